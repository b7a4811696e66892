//! Micro and whole-program figures, beside the peers on the same machine.
