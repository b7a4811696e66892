//! What can go wrong when a ring is made.

/// Errors of creating, attaching or resetting a ring.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The capacity is zero or too large.
    #[error("ring capacity {capacity}: must be from 1 to {max} elements of {element_bytes} bytes")]
    Capacity {
        /// Requested value.
        capacity: usize,
        /// Maximum capacity for elements of this size.
        max: usize,
        /// Size of one element.
        element_bytes: usize,
    },
    /// The head-tail distance of an RTS ring is zero or larger than the ring.
    #[error("head-tail distance {distance}: must be from 1 to the capacity, {capacity}")]
    Distance {
        /// Requested value.
        distance: usize,
        /// The ring's capacity.
        capacity: usize,
    },
    /// The allocator has no memory for the ring.
    #[error("no memory for a ring of {bytes} bytes: make it smaller or free memory")]
    NoMemory {
        /// Requested value.
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
    /// The region contains no ring, or another one than expected.
    #[error("the region does not contain this ring: {field} is {found:#x}, must be {expected:#x}")]
    Header {
        /// The field of the header that differs.
        field: &'static str,
        /// Value found.
        found: u64,
        /// Value expected.
        expected: u64,
    },
    /// A reset requires exactly one producer and one consumer, both of this ring.
    #[error("cannot reset the ring: {holders} ends exist, must be exactly one producer and one consumer")]
    NotExclusive {
        /// Number of ends of the producer's ring.
        holders: usize,
    },
}
