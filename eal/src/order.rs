//! The orderings by which slots go from thread to thread, and timers between their handles and their lcore.

pollux_atomic::orderings! {
    /// What the last holder of a slot left in its caches is seen by this one. Pairs with `slot_give_back`.
    slot_take = Acquire { Relaxed => Found("a_slot_brings_what_its_last_holder_left") }
    /// Pairs with `slot_take`.
    slot_give_back = Release { Relaxed => Found("a_slot_brings_what_its_last_holder_left") }

    /// A run begins by the plan that it was filed for.
    timer_begin = AcqRel {
        Release => Survives("the lcore has read a word of this version with acquire before, in `plan`"),
        Acquire => Survives("whoever sees the running bit waits for the end of the run, and has all from that"),
    }
    /// A run has ended: whoever waited for that sees all that the callback did. Pairs with `timer_wait` and `timer_cancel`.
    timer_finish = AcqRel {
        Acquire => Found("a_run_that_was_waited_for_is_over"),
        Release => Survives("the lcore asks nothing but the version of what the handle decided meanwhile"),
    }
    /// What a run that is over did is seen.
    timer_wait = Acquire { Relaxed => Found("a_run_that_was_waited_for_is_over") }
    /// As `timer_wait`, when the run was over before.
    timer_cancel = Acquire { Relaxed => Found("a_run_that_was_over_is_seen") }
    /// The handle's decision comes with its plan. Pairs with `timer_plan`.
    timer_decide = AcqRel {
        Acquire => Found("a_plan_is_read_whole"),
        Release => Survives("a handle reads nothing of its lcore's but the running bit, which it keeps"),
    }
    /// The plan of this decision.
    timer_plan = Acquire { Relaxed => Found("a_plan_is_read_whole") }
    /// A value of a later plan brings the later word with it. Pairs with `timer_plan_read`.
    timer_plan_write = Release { Relaxed => Found("a_plan_is_read_whole") }
    /// As `timer_plan_write`.
    timer_plan_read = Acquire { Relaxed => Found("a_plan_is_read_whole") }
}
