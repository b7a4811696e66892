//! The orderings between those who use a pool's objects, and whoever ends the pool.

pollux_atomic::orderings! {
    /// Objects rest in a cache, and the thread that put them is done with the pool. Pairs with the fence of whoever sums up.
    cache_publish = Release { Relaxed => Found("a_put_is_seen_whole") }
    /// A passage is entered before anything moves in it.
    passage_enter = AcqRel {
        Release => Survives("what moves in the passage is published with release, which nothing before it passes"),
        Acquire => Survives("as for release; nothing before the passage is handed on by it"),
    }
    /// All that moved in a passage has moved. Pairs with `passage_left`. SeqCst with the mark of a closed pool: one of the two
    /// threads sees the other's.
    passage_leave = SeqCst {
        AcqRel => Survives("loom knows no SeqCst operations, only fences: it takes them for AcqRel"),
        Relaxed => Found("a_passage_is_seen_whole"),
    }
    /// What was done in the passages that were left is seen.
    passage_left = SeqCst {
        Acquire => Survives("as `passage_leave`"),
        Relaxed => Survives("the fence behind the sum acquires what was read before it"),
    }

    /// Whoever finds itself the only one has the others' reads of the data behind it. Pairs with `reference_end`.
    reference_sole = Acquire { Relaxed => Found("who_is_alone_may_write") }
    /// Our use of the data is over before the reference is gone; so is that of those before us.
    reference_end = AcqRel {
        Acquire => Found("who_is_alone_may_write"),
        Release => Found("the_last_reference_goes_home"),
    }
}
