//! The two cache lines before an mbuf's data, as they lie in the region.
//!
//! No field is an address: data, next segment and attached mbuf are found by their distance from the header, so the
//! header means the same to every process that maps the regions at the same distances from one another.

use pollux_atomic::AtomicU64;
#[cfg(not(loom))]
use std::mem::offset_of;

use super::flag::{RxFlags, TxFlags};
use super::packet_type::PacketType;

/// `home` of an mbuf is `pool number << 32 | kind | references`.
pub(crate) const REFERENCES: u64 = 0xffff;
/// More segments follow: `Cold::next` is valid.
pub(crate) const CHAINED: u64 = 1 << 16;
/// The data is another mbuf's, `Cold::attached` away, which this one holds a reference of.
pub(crate) const INDIRECT: u64 = 1 << 17;
/// The data is an external buffer's.
pub(crate) const EXTERNAL: u64 = 1 << 18;

/// The first cache line: all that receiving, forwarding and sending one plain segment touches.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// Pool number, kind, references. At rest, and for an mbuf with one segment of its own and one owner, the lower
    /// half is exactly 1.
    pub(crate) home: AtomicU64,
    /// Where the data room starts, counted from the header.
    pub(crate) room_at: i64,
    pub(crate) lengths: Lengths,
    pub(crate) marks: Marks,
    pub(crate) rss_hash: u32,
    pub(crate) mark: u32,
    pub(crate) vlan_tci: u16,
    pub(crate) vlan_tci_outer: u16,
    /// Bytes in the data room, headroom included.
    pub(crate) room: u32,
}

/// Written whole when an mbuf is taken from its pool.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    pub(crate) data_off: u32,
    pub(crate) data_len: u32,
    pub(crate) pkt_len: u32,
    pub(crate) segments: u16,
    pub(crate) port: u16,
}

/// Written whole when an mbuf is taken from its pool. The fields of the header after it mean something only under
/// the flag that says so, and need no reset.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    pub(crate) rx_flags: RxFlags,
    pub(crate) tx_flags: TxFlags,
    pub(crate) dynamic_flags: u32,
    pub(crate) packet_type: PacketType,
}

/// The second cache line.
#[repr(C, align(64))]
pub(crate) struct Cold {
    /// Where the next segment's header is, counted from this one. Valid under `CHAINED`.
    pub(crate) next: i64,
    /// Where the header is whose data this mbuf shows, counted from this one. Valid under `INDIRECT`.
    pub(crate) attached: i64,
    /// Lengths of headers for offloads, packed. Valid under the tx flags.
    pub(crate) tx_offload: u64,
    /// Which object of its pool this is.
    pub(crate) index: u32,
    /// `COOKIE`, as long as nobody wrote where it must not.
    pub(crate) cookie: u32,
    pub(crate) dynamic: [u8; DYNAMIC_BYTES],
}

/// Stands in each header; chosen at random.
pub(crate) const COOKIE: u32 = 0x9d6c_31e7;
/// Bytes for dynamic fields.
pub(crate) const DYNAMIC_BYTES: usize = 32;
/// Bytes from the header to the private area.
pub(crate) const HEADER_BYTES: usize = size_of::<Header>() + size_of::<Cold>();

// Loom's atomics are larger.
#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<Header>() == 64 && size_of::<Cold>() == 64);
    assert!(offset_of!(Header, lengths) == 16 && size_of::<Lengths>() == 16);
    assert!(offset_of!(Header, marks) == 32 && size_of::<Marks>() == 16);
};

pub(crate) const PORT_NONE: u16 = u16::MAX;

impl Lengths {
    #[inline(always)]
    pub(crate) fn fresh(headroom: u32) -> Self {
        Self { data_off: headroom, data_len: 0, pkt_len: 0, segments: 1, port: PORT_NONE }
    }
}

impl Marks {
    #[inline(always)]
    pub(crate) fn fresh() -> Self {
        Self {
            rx_flags: RxFlags::empty(),
            tx_flags: TxFlags::empty(),
            dynamic_flags: 0,
            packet_type: PacketType::UNKNOWN,
        }
    }
}
