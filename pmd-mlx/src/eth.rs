//! Ethernet: ports made of RAW_PACKET queues.

pub mod parking;
pub mod parts;
pub mod verbs;
