//! The two cache lines before an mbuf's data, as they lie in the region.
//!
//! No field is an address: data, next segment and attached mbuf are found by their distance from the header, so the
//! header means the same to every process that maps the regions at the same distances from one another.
#![expect(unsafe_code, reason = "writes headers in pinned memory")]

#[cfg(not(loom))]
use std::mem::offset_of;
use std::ptr::NonNull;

use pollux_atomic::{AtomicU64, Ordering};
use pollux_wire::PacketType;

use super::flag::{RxFlags, TxFlags};

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

#[inline(always)]
pub(super) fn home<'a>(header: NonNull<Header>) -> &'a AtomicU64 {
    // SAFETY: headers are valid as long as their pool, which is as long as an object is out. Callers hold one.
    unsafe { &(*header.as_ptr()).home }
}

#[inline(always)]
pub(super) fn cold(header: NonNull<Header>) -> *mut Cold {
    // SAFETY: the second line follows the first in every object of an mbuf pool.
    unsafe { header.as_ptr().add(1).cast() }
}

#[inline(always)]
pub(super) fn distance(from: NonNull<Header>, to: *mut u8) -> i64 {
    to.expose_provenance().wrapping_sub(from.as_ptr().addr()) as i64
}

impl Header {
    /// Makes the header that the constructor of a pool writes.
    ///
    /// # Safety
    /// `at` is valid for writes of `HEADER_BYTES` and aligned to 64.
    pub(crate) unsafe fn construct(
        at: NonNull<u8>,
        pool: u16,
        index: u32,
        room: NonNull<u8>,
        room_bytes: u32,
    ) {
        let header = at.cast::<Header>();
        let room_at = distance(header, room.as_ptr());
        // SAFETY: the caller's promise.
        unsafe {
            header.write(Header {
                home: AtomicU64::new(u64::from(pool) << 32 | 1),
                room_at,
                lengths: Lengths::fresh(0),
                marks: Marks::fresh(),
                rss_hash: 0,
                mark: 0,
                vlan_tci: 0,
                vlan_tci_outer: 0,
                room: room_bytes,
            });
            cold(header).write(Cold {
                next: 0,
                attached: 0,
                tx_offload: 0,
                index,
                cookie: COOKIE,
                dynamic: [0; DYNAMIC_BYTES],
            });
        }
    }

    /// Whether the header at `at` is that of mbuf `index` of a pool, at rest.
    ///
    /// # Safety
    /// `at` is a place of an mbuf pool, and the caller owns it.
    pub(crate) unsafe fn is_whole(at: NonNull<u8>, pool: u16, index: u32) -> bool {
        let header = at.cast::<Header>();
        // SAFETY: the caller's promise.
        let (cookie, found) = unsafe { ((*cold(header)).cookie, (*cold(header)).index) };
        home(header).load(Ordering::Relaxed) == u64::from(pool) << 32 | 1
            && cookie == COOKIE
            && found == index
    }
}

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
