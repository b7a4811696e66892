//! What can go wrong when a ring is made.

/// Why a ring could not be made, attached or reset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The capacity is zero or too large.
    #[error("ring capacity {capacity} does not fit: it must be 1 to {max} elements of {element_bytes} bytes")]
    Capacity {
        /// What was asked for.
        capacity: usize,
        /// The largest capacity for elements of this size.
        max: usize,
        /// Size of one element.
        element_bytes: usize,
    },
    /// The head-tail distance of an RTS ring is zero or larger than the ring.
    #[error("head-tail distance {distance} does not fit: it must be 1 to the capacity, {capacity}")]
    Distance {
        /// What was asked for.
        distance: usize,
        /// The ring's capacity.
        capacity: usize,
    },
    /// The allocator has no memory for the ring.
    #[error("no memory for a ring of {bytes} bytes: make it smaller or free memory")]
    NoMemory {
        /// What was asked for.
        bytes: usize,
    },
    /// The region is too small for the ring.
    #[error("region of {bytes} bytes is too small: a ring of {capacity} elements needs {needed} bytes")]
    RegionTooSmall {
        /// Size of the region.
        bytes: usize,
        /// Capacity of the ring.
        capacity: usize,
        /// Bytes needed; see [`region_bytes`](crate::region_bytes).
        needed: usize,
    },
    /// The region does not start at a multiple of the alignment that the ring needs.
    #[error("region at {address:#x} is not aligned: a ring must start at a multiple of {align} bytes")]
    Misaligned {
        /// Where the region starts.
        address: usize,
        /// The alignment needed; see [`region_align`](crate::region_align).
        align: usize,
    },
    /// There is no ring in the region, or not the one that was expected.
    #[error("no such ring in the region: {field} is {found:#x}, must be {expected:#x}")]
    Header {
        /// The field of the header that differs.
        field: &'static str,
        /// What stands there.
        found: u64,
        /// What must stand there.
        expected: u64,
    },
    /// A reset needs both ends of one ring and nobody else on it.
    #[error("ring cannot be reset: {holders} ends hold it, must be exactly its producer and its consumer")]
    NotExclusive {
        /// How many ends hold the producer's ring.
        holders: usize,
    },
}
