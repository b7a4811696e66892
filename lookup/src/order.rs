//! The orderings by which versions of a table go from its writer to its readers, and old memory back.

pollux_atomic::orderings! {
    /// A version brings all words of it. Pairs with `version_take`.
    version_publish = Release { Relaxed => Found("a_version_is_read_whole") }
    /// Pairs with `version_publish`.
    version_take = Acquire { Relaxed => Found("a_version_is_read_whole") }
    /// What was read of earlier versions has been read. Pairs with `seat_read`.
    seat_pass = Release { Relaxed => Found("memory_is_reused_behind_its_readers") }
    /// Memory that is written anew has been read before. Pairs with `seat_pass`.
    seat_read = Acquire { Relaxed => Found("memory_is_reused_behind_its_readers") }
}
