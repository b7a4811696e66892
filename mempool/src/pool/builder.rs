//! What a pool of mbufs adds to a pool.

use super::MbufPool;
use crate::builder::contents::{Contents, Layout};
use crate::builder::{PoolBuilder, Range};
use crate::mbuf::header::{HEADER_BYTES, Lengths};
use crate::shared::{Handle, MbufPlan, MbufShape, Plan};
use crate::{Area, PoolError};

/// Maximum data room in bytes, headroom included.
pub const DATA_ROOM_MAX: usize = 1 << 30;
/// Default headroom in bytes.
pub const HEADROOM: usize = 128;
/// Default data room in bytes: the headroom and a frame of up to 2 KiB.
pub const DATA_ROOM: usize = HEADROOM + 2048;

/// Where headers, private areas and data rooms start, so that no two mbufs share a cache line.
const ALIGN: usize = 64;

/// What an mbuf pool is made from; see [`MbufPool::builder`].
pub type MbufPoolBuilder = PoolBuilder<Mbufs>;

/// Mbufs of one size.
#[derive(Debug)]
pub struct Mbufs {
    data_room: usize,
    headroom: usize,
    private_bytes: usize,
    apart: Option<(Vec<Area>, usize)>,
}

impl MbufPool {
    /// Starts the parameters of a pool of `count` mbufs.
    #[doc(alias = "rte_pktmbuf_pool_create")]
    pub fn builder(name: &str, count: usize) -> MbufPoolBuilder {
        let mbufs = Mbufs { data_room: DATA_ROOM, headroom: HEADROOM, private_bytes: 0, apart: None };
        PoolBuilder::new(name, count, mbufs)
    }
}

impl MbufPoolBuilder {
    /// Sets the data room of each mbuf in bytes, headroom included [default: 2176].
    pub fn data_room(mut self, bytes: usize) -> Self {
        self.contents.data_room = bytes;
        self
    }

    /// Sets the headroom in bytes [default: 128].
    pub fn headroom(mut self, bytes: usize) -> Self {
        self.contents.headroom = bytes;
        self
    }

    /// Sets the size of the private area between header and data room, in bytes [default: 0].
    pub fn private_bytes(mut self, bytes: usize) -> Self {
        self.contents.private_bytes = bytes;
        self
    }

    /// Puts data rooms apart from headers: piece `i` of `piece_bytes` in `areas` is the data room of mbuf `i`, headroom
    /// included, and replaces [`data_room`](Self::data_room). Pieces lie one after another from the start of each
    /// area, as a device or the kernel wants them. Debug mode cannot guard them.
    pub fn data_apart(mut self, areas: Vec<Area>, piece_bytes: usize) -> Self {
        self.contents.apart = Some((areas, piece_bytes));
        self.contents.data_room = piece_bytes;
        self
    }
}

impl Mbufs {
    fn room_at(&self) -> usize {
        self.private_bytes.div_ceil(ALIGN).saturating_mul(ALIGN).saturating_add(HEADER_BYTES)
    }
}

impl Contents for Mbufs {
    type Pool = MbufPool;
    const COUNTED: &'static str = "number of mbufs";

    fn check(&self, range: &Range<'_>) -> Result<(), PoolError> {
        range.check("data room", self.data_room, 1, DATA_ROOM_MAX)?;
        range.check("headroom", self.headroom, 0, self.data_room)?;
        range.check("private area", self.private_bytes, 0, u16::MAX.into())
    }

    fn layout(&self, guard_bytes: usize) -> Layout {
        let room = if self.apart.is_some() { 0 } else { self.data_room };
        let bytes = self.room_at().saturating_add(room);
        let lines = bytes.saturating_add(guard_bytes).div_ceil(ALIGN);
        // An odd number of lines: with an even one, headers would fall on half of a cache's sets or fewer.
        Layout { bytes, stride: (lines | 1).saturating_mul(ALIGN), align: ALIGN }
    }

    fn open(self, plan: Plan, areas: Vec<Area>) -> Result<MbufPool, PoolError> {
        let shape = MbufShape {
            fresh: Lengths::fresh(self.headroom as u32),
            room: self.data_room as u32,
            private_bytes: self.private_bytes as u32,
            room_at: self.room_at() as u32,
        };
        let mbuf = Some(MbufPlan { shape, apart: self.apart });
        Handle::open(Plan { mbuf, ..plan }, areas, |_, _| ()).map(MbufPool)
    }
}
