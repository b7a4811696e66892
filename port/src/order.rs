//! The orderings between a port's control handle and its queues.

pollux_atomic::orderings! {
    /// A queue that sees the gate open sees what `start` wrote. Pairs with `gate_pass`.
    gate_change = Release { Relaxed => Found("gate_opened_brings_the_start") }
    /// The slow path to a word that is not known yet.
    gate_pass = Acquire { Relaxed => Found("gate_opened_brings_the_start") }
    /// A burst has ended: whoever waited sees what it did. Pairs with `at_work_wait`.
    at_work_end = Release { Relaxed => Found("gate_shut_and_waited_for") }
    /// What the burst did is seen after the wait.
    at_work_wait = Acquire { Relaxed => Found("gate_shut_and_waited_for") }
    /// The next owner of a queue has what the last one did.
    held_take = Acquire { Relaxed => Found("queue_from_owner_to_owner") }
    /// Pairs with `held_take`.
    held_end = Release { Relaxed => Found("queue_from_owner_to_owner") }
}
