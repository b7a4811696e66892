//! Whole-program tests over real kernel interfaces.
