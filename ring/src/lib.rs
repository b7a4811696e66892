//! Lock-free rings: SP/SC, MP/MC, RTS, HTS; bulk and burst; peek and zero-copy spans.
