//! What the control half hands to the data half: memory, records, registers and numbers of queues that the device knows.
//!
//! The control half makes the objects (verbs or DevX), puts what they are made of here, and calls `RxQueue::new` or
//! `TxQueue::new`. From then on the data half owns it all. When it is dropped it gives ring, records and mbufs to the
//! queue's [`Hold`], which destroys the device's objects first.

use std::fmt;

use bitflags::bitflags;
use pollux_eal::region::Zone;
use pollux_eal::simd::SimdWidth;
use pollux_mempool::MbufPool;
use pollux_mlx5_abi::cqe::MiniFormat;
use pollux_uverbs::event::CompChannel;

pub use pollux_mlx5_common::cq::CqParts;
use pollux_mlx5_common::dbrec::DoorbellRecord;
use pollux_mlx5_common::mr::Buffers;
use pollux_mlx5_common::uar::SendDoorbell;

/// What keeps the device's objects of a queue alive, and ends them.
pub trait Hold: Send + fmt::Debug {
    /// Ends the device's use of the queue. `remains` is what the device may reach until then, ring, records and buffers:
    /// it is dropped when the objects are destroyed; and where the device is gone and they cannot be, after its file is
    /// closed.
    fn end(self: Box<Self>, remains: Box<dyn Send>);
}

/// Nothing to end: for rings that no device knows, in tests and benches.
#[derive(Debug)]
pub struct NoDevice;

impl Hold for NoDevice {
    fn end(self: Box<Self>, remains: Box<dyn Send>) {
        drop(remains);
    }
}

bitflags! {
    /// What a receive queue tells of each packet. What is not asked for is not even looked at.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RxFeatures: u32 {
        /// Packet type.
        const PACKET_TYPE = 1 << 0;
        /// Checksum status.
        const CHECKSUM = 1 << 1;
        /// The hash.
        const RSS_HASH = 1 << 2;
        /// Tags that the device takes off.
        const VLAN_STRIP = 1 << 3;
        /// Marks of flow rules.
        const MARK = 1 << 4;
        /// Time of arrival.
        const TIMESTAMP = 1 << 5;
        /// That a packet was joined of TCP segments.
        const LRO = 1 << 6;
    }
}

bitflags! {
    /// What packets may ask of a send queue. Flags of an mbuf that were not asked for here are not looked at.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct TxFeatures: u32 {
        /// Packets of more than one mbuf.
        const MULTI_SEGMENT = 1 << 0;
        /// Checksums of layers 3 and 4, those inside tunnels included.
        const CHECKSUM = 1 << 1;
        /// A VLAN tag to insert.
        const VLAN_INSERT = 1 << 2;
        /// Segmentation.
        const TSO = 1 << 3;
        /// Short packets are copied into the entries.
        const INLINE = 1 << 4;
        /// Several packets an entry (enhanced multi-packet write).
        const MULTI_PACKET = 1 << 5;
        /// Mbufs go home unseen while all are of one pool, one segment and one owner each.
        const FAST_FREE = 1 << 6;
        /// The device inserts VLAN tags; else they are inserted in the inlined header.
        const VLAN_BY_DEVICE = 1 << 7;
    }
}

/// The flow tag under which a rule marks packets with `mark`: 0 stands for no rule, so marks are shifted by one.
///
/// `None` when the tag's 24 bits cannot hold it. Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `mlx5_flow_mark_set`.
#[must_use]
pub const fn flow_tag(mark: u32) -> Option<u32> {
    if mark < FLOW_TAG_FLAG - 1 { Some(mark + 1) } else { None }
}

/// The flow tag of a rule that flags packets without a mark. Source: DPDK `drivers/common/mlx5/mlx5_prm.h`,
/// `MLX5_FLOW_MARK_DEFAULT`.
pub const FLOW_TAG_FLAG: u32 = 0xff_ffff;

/// What a receive queue is made of.
#[derive(Debug)]
pub struct RqParts {
    /// The ring. Entries of a striding queue are 32 bytes, others `16 << segments_log2`.
    pub ring: Zone,
    /// Entries, as a power of two.
    pub wqes_log2: u8,
    /// Data segments of an entry, as a power of two: 0, or more where packets are scattered.
    pub segments_log2: u8,
    /// The record for entries posted ([`FIRST`](pollux_mlx5_common::dbrec::FIRST)).
    pub dbrec: DoorbellRecord,
    /// The device's number for it, for a dump.
    pub number: u32,
    /// Its completion queue, with at least as many entries as packets can be on their way. The ring of completions is
    /// [fresh](CqParts::freshen).
    pub cq: CqParts,
    /// How minis of compressed completions look; `None`: the device was not asked to compress.
    pub compressed: Option<MiniFormat>,
    /// Memory shared by many packets; `None`: an mbuf a segment.
    pub striding: Option<StridingParts>,
    /// How entries are split, no more parts than there are data segments; `None`: they are not.
    pub split: Option<SplitParts>,
    /// What to tell of each packet.
    pub features: RxFeatures,
    /// The widest vectors to use.
    pub simd: SimdWidth,
    /// Longest frame that is to be delivered, in bytes without FCS.
    pub frame_bytes_max: usize,
    /// Bytes of FCS that the device leaves at the end of each packet and that are cut off here: 0, or 4.
    pub crc_bytes: usize,
    /// Where the completion queue tells of arrivals when it is armed; `None`: nowhere.
    pub events: Option<CompChannel>,
    /// The device's objects.
    pub hold: Box<dyn Hold>,
}

impl RqParts {
    /// The device's objects, and what the device may reach until they are gone.
    pub(crate) fn split(self) -> (Box<dyn Hold>, Box<dyn Send>) {
        (self.hold, Box::new((self.ring, self.dbrec, self.cq, self.striding)))
    }
}

/// The parts that packets are split into.
#[derive(Debug)]
pub struct SplitParts {
    /// The parts, in order.
    pub parts: Vec<SplitPart>,
    /// The key of no memory, for parts without a pool.
    pub null_key: u32,
}

/// One part of each packet.
#[derive(Clone, Debug)]
pub struct SplitPart {
    /// Where its mbufs come from; `None`: it is dropped.
    pub pool: Option<MbufPool>,
    /// Where in an mbuf's room it begins, headroom included.
    pub offset: u32,
    /// Its bytes; with the offset they fit into the room.
    pub bytes: u32,
}

/// The buffers of a striding receive queue.
#[derive(Debug)]
pub struct StridingParts {
    /// The buffers, one after another, each `1 << (strides_log2 + stride_bytes_log2)` bytes: at least as many as the ring
    /// has entries; those above that replace buffers whose packets the application keeps.
    pub buffers: Buffers,
    /// How many buffers.
    pub count: usize,
    /// Strides of a buffer, as a power of two.
    pub strides_log2: u8,
    /// Bytes of a stride, as a power of two.
    pub stride_bytes_log2: u8,
    /// Whether the device leaves two bytes free at the start of each packet, so that what follows the Ethernet header is
    /// aligned.
    pub two_byte_shift: bool,
    /// Packets of at most so many bytes are copied into an mbuf; longer ones stay where they are.
    pub copy_bytes_max: usize,
}

/// What a send queue is made of.
#[derive(Debug)]
pub struct SqParts {
    /// The ring: `64 << wqebbs_log2` bytes.
    pub ring: Zone,
    /// Blocks of 64 bytes, as a power of two.
    pub wqebbs_log2: u8,
    /// The record for blocks posted ([`SECOND`](pollux_mlx5_common::dbrec::SECOND)).
    pub dbrec: DoorbellRecord,
    /// Where it rings.
    pub doorbell: SendDoorbell,
    /// The number that entries carry: of the queue pair, or of the send queue.
    pub number: u32,
    /// What the last dword of control segments of an Ethernet entry carries: 0 (the TIS for an underlay queue).
    pub control_imm: u32,
    /// Its completion queue. The ring of completions is [fresh](CqParts::freshen).
    pub cq: CqParts,
    /// Header bytes that every entry must carry inline: 0, or 18 for layer 2 on ConnectX-4.
    pub inline_min: usize,
    /// Packets of at most so many bytes are inlined, where [`TxFeatures::INLINE`] is set.
    pub inline_max: usize,
    /// What packets may ask for.
    pub features: TxFeatures,
    /// Longest packet that is cut into segments, in bytes.
    pub tso_bytes_max: usize,
    /// Longest header in front of a payload that is cut, in bytes.
    pub tso_header_max: usize,
    /// How the device finds what packets in tunnels ask for.
    pub tunnels: TxTunnels,
    /// The device's objects.
    pub hold: Box<dyn Hold>,
}

/// How a device finds the inner headers of what it sends: by itself, where it knows the kind of tunnel, or told by the entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxTunnels {
    /// Kinds that it knows.
    pub known: KnownTunnels,
    /// It is told of others, to fill in checksums.
    pub told_sums: bool,
    /// It is told of others, to cut them.
    pub told_cuts: bool,
}

bitflags! {
    /// Kinds of tunnel, each a bit that stands where [`TxFlags::TUNNEL_MASK`](pollux_mempool::TxFlags::TUNNEL_MASK) counts it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct KnownTunnels: u16 {
        /// VXLAN, to its usual port.
        const VXLAN = 1 << 1;
        /// GRE.
        const GRE = 1 << 2;
        /// Geneve.
        const GENEVE = 1 << 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_tags_that_are_neither_none_nor_flag() {
        assert_eq!((flow_tag(0), flow_tag(0xff_fffd)), (Some(1), Some(0xff_fffe)));
        assert_eq!((flow_tag(0xff_fffe), flow_tag(u32::MAX)), (None, None));
    }
}
