//! Forwarding applications, one small binary each.
