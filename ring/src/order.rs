//! The orderings by which the two sides of a ring, and the threads of one side, hand slots to each other.

pollux_atomic::orderings! {
    /// A ring in a region is announced when all else of its header is written. Pairs with `find`.
    announce = Release { Relaxed => Survives("the header is written by plain stores, which loom does not see") }
    /// Whoever finds a ring in a region finds all of its header.
    find = Acquire { Relaxed => Survives("as `announce`") }

    /// SP/SC: the elements are there before the position says so. Pairs with `spsc_look_elements`.
    spsc_put = Release { Relaxed => Found("spsc_in_order_through_a_full_ring") }
    /// SP/SC: the elements are moved out before the slots are free. Pairs with `spsc_look_room`.
    spsc_get = Release { Relaxed => Found("spsc_in_order_through_a_full_ring") }
    /// The consumer has moved out what stood in those slots.
    spsc_look_room = Acquire { Relaxed => Found("spsc_in_order_through_a_full_ring") }
    /// The elements are there.
    spsc_look_elements = Acquire { Relaxed => Found("spsc_in_order_through_a_full_ring") }
    /// An end that is made over positions that another moved before has what that one did.
    spsc_begin = Acquire {
        Relaxed => Survives("who makes an end over used positions promises that the last one is gone, and knows by other means")
    }
    /// SP/SC, a guard: as `spsc_put`.
    spsc_hold_put = Release { Relaxed => Found("spsc_spans") }
    /// SP/SC, a guard: as `spsc_get`.
    spsc_hold_get = Release { Relaxed => Found("spsc_spans_through_a_full_ring") }
    /// HTS, a guard: the other side has the slots as it leaves them, and so has the next on its own side.
    hts_hold = Release { Relaxed => Found("hts_peek") }

    /// MP/MC: the head brings a peer's tail no older than the one by which it was found to have room.
    mpmc_head = Acquire { Relaxed => Found("mpmc_head_that_was_lost") }
    /// MP/MC: what a thread of this side noted of the peer brings the peer's publications.
    mpmc_seen = Acquire { Relaxed => Found("mpmc_consumers") }
    /// MP/MC: the note hands on what was acquired.
    mpmc_note = Release { Relaxed => Found("mpmc_consumers") }
    /// MP/MC: the peer is done with the slots.
    mpmc_peer = Acquire { Relaxed => Found("mpmc_producers") }
    /// MP/MC: who reads this head has the peer's tail that we have. No acquire: the head was read with it before, and the swap finds
    /// that same value, which never comes again.
    mpmc_claim = Release { Relaxed => Found("mpmc_head_that_was_lost") }
    /// MP/MC: as `mpmc_head`, for the head that another was quicker to move.
    mpmc_claim_lost = Acquire { Relaxed => Found("mpmc_head_that_was_lost") }
    /// MP/MC: who acquires our tail has the elements of those who claimed before us, too.
    mpmc_turn = Acquire { Relaxed => Found("mpmc_second_tail") }
    /// MP/MC: our slots are done with.
    mpmc_publish = Release { Relaxed => Found("mpmc_producers") }

    /// RTS: as `mpmc_head`.
    rts_head = Acquire { Relaxed => Found("rts_head_that_was_lost") }
    /// RTS: the peer is done with the slots.
    rts_peer = Acquire { Relaxed => Found("rts_producers") }
    /// RTS: as `mpmc_claim`.
    rts_claim = Release { Relaxed => Found("rts_head_that_was_lost") }
    /// RTS: who finishes sees every claim of those who finished before, and so a head no older than theirs.
    rts_tail = Acquire { Relaxed => Found("rts_claim_that_is_held_up") }
    /// RTS: as `rts_tail`, for the tail that another was quicker to move.
    rts_publish_lost = Acquire { Relaxed => Found("rts_claim_that_is_held_up") }
    /// RTS: hands on the slots of all who finished, not only our own.
    rts_publish = AcqRel {
        Acquire => Found("rts_second_tail"),
        Release => Survives("the tail was read with acquire before, and the swap finds that same value: it counts who finished"),
    }

    /// HTS: what the thread did that was here before.
    hts_enter = Acquire { Relaxed => Found("hts_head_that_was_lost") }
    /// HTS: the peer is done with the slots.
    hts_peer = Acquire { Relaxed => Found("hts_producers") }
    /// HTS: what a guard did that gave back all it had claimed, and so left the word as it was read. No release: nobody goes by a
    /// word that says that somebody is inside.
    hts_claim = Acquire { Relaxed => Found("hts_reservation_given_up") }
    /// HTS: our slots are done with, for either side.
    hts_publish = Release { Relaxed => Found("hts_producers") }

    /// An end is gone, and what it did is done. Pairs with `ends`.
    end = Release { Relaxed => Found("reset") }
    /// Who counts the ends has what those did that are gone.
    ends = Acquire { Relaxed => Found("reset") }
    /// Elements left inside, when nobody is at work.
    left_inside = Acquire {
        Relaxed => Survives("who counts what is left holds all ends, and has what they did by that")
    }
    /// The consumers' position before the producers', so that none is counted that was not put.
    count = Acquire { Relaxed => Found("a_count_is_never_more_than_was_put") }
}
