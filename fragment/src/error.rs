//! Why a packet is not cut, neither into fragments nor into segments.

use pollux_wire::WireError;

/// Why a packet was not cut. It is as it was, and no mbuf was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FragmentError {
    /// It is no IP packet, or its lengths contradict each other.
    #[error("not a whole IPv4 or IPv6 packet, whose headers lie in one mbuf")]
    Malformed,
    /// Its sender forbids it (IPv4), or it was cut before (IPv6): the sender is told the MTU by ICMP.
    #[error("the packet must not be cut, and is longer than the MTU of {mtu} bytes: tell its sender by ICMP")]
    DontFragment {
        /// The MTU.
        mtu: usize,
    },
    /// Checksum or segmentation are left to the device, which sees no whole packet then.
    #[error("the packet's checksum or segmentation is left to the device: have it done before")]
    Open,
    /// Nothing but TCP, and UDP over IPv4 without a tunnel, is cut into segments; nor are packets of 64 KiB and more, and fragments.
    #[error("the packet is cut as neither TCP nor UDP over IPv4: {0}")]
    Segment(#[source] WireError),
    /// A segment has no room for payload.
    #[error(
        "segments of {bytes} bytes are too small for {headers} bytes of headers: must be at least {least}"
    )]
    SegmentBytes {
        /// Bytes of a segment, its Ethernet header included.
        bytes: usize,
        /// Bytes of headers in each segment.
        headers: usize,
        /// The least that will do.
        least: usize,
    },
    /// The MTU holds no fragment.
    #[error("MTU of {mtu} bytes is too small for {headers} bytes of headers: must be at least {least}")]
    Mtu {
        /// The MTU.
        mtu: usize,
        /// Bytes of headers in each fragment.
        headers: usize,
        /// The least that will do.
        least: usize,
    },
    /// The burst has not so many places.
    #[error("{needed} fragments do not fit the burst, which has room for {room}")]
    NoRoom {
        /// Fragments.
        needed: usize,
        /// Places.
        room: usize,
    },
    /// The pool is empty, or its mbufs are too small for a fragment.
    #[error("the pool has no mbufs of {bytes} bytes left")]
    NoMbufs {
        /// Bytes of a fragment with its Ethernet header.
        bytes: usize,
    },
}
