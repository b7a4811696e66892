//! The orderings between the lcores that put frames into a ring and the reader that takes them out.

pollux_atomic::orderings! {
    /// A record is whole when its stamp is seen. Pairs with `stamp_read`.
    stamp_write = Release { Relaxed => Found("records_are_whole_when_seen") }
    /// What the stamp's record says is read after it.
    stamp_read = Acquire { Relaxed => Found("records_are_whole_when_seen") }
    /// What a writer wrote into room that it gives back was written before what the next one writes there. Pairs with `room_take`.
    room_back = Release { Relaxed => Survives("loom has stores to a word in the order in which they were made, as processors need not") }
    /// What is written into room is written after what others wrote there who gave it back.
    room_take = Acquire { Relaxed => Survives("as for `room_back`") }
    /// The reader is done with what lies before its position. Pairs with `tail_read`.
    tail_write = Release { Relaxed => Survives("loom lets no load see a store that comes after it, as processors may") }
    /// Room that the reader gave back is written after that.
    tail_read = Acquire { Relaxed => Survives("as for `tail_write`") }
}
