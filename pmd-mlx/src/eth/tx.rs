//! Sending: from mbufs to entries.
//!
//! ```text
//!   burst ─► completions taken, mbufs freed ─► entries written ─► completion asked for? ─► one doorbell
//!                                                  │ ring full: the rest stays with the caller
//! ```
//!
//! A packet is sent in the first of these ways that it fits into:
//!
//! | entry | when | 16-byte segments |
//! |---|---|---|
//! | one of many (eMPW) | `MULTI_PACKET`; one mbuf, same checksum flags as its neighbours, no tag by the device, no TSO, no tunnel of which the entry must tell | 1, or its bytes inline |
//! | inlined | at most `inline_max` bytes | 2, then its bytes |
//! | header inlined | the device wants `inline_min` bytes, or a tag is put in here, or TSO | 2, header, 1 an mbuf |
//! | plain | else | 2, then 1 an mbuf |
//!
//! **Bytes on the bus** for a packet of 64 bytes, burst of 32, entries only: plain 48 of 64 (an entry is whole blocks),
//! eMPW by pointers `(32 + 32 * 16) / 32` = 17, eMPW inlined `5 * 16 + 1` = 81, but then the device does not fetch the 64
//! bytes of payload by another read.
//!
//! Each set of features has its function, compiled with the rest cut out; a queue takes the smallest that has all it needs.
//! Flags of packets that ask for features that the queue was not made for are not looked at.
//!
//! Sources: DPDK `drivers/net/mlx5/mlx5_tx.h`; Linux `drivers/net/ethernet/mellanox/mlx5/core/en_tx.c`; layouts in
//! [`pollux_mlx5_abi::wqe`].
#![expect(unsafe_code, reason = "copies packets into the ring, takes mbufs out of bursts")]

use std::mem::MaybeUninit;

use pollux_eal::barrier;
use pollux_mempool::{Burst, Mbuf, TxFlags};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    Data, Ethernet, INSERT_VLAN, InlineHeader, SEGMENTS_MAX, blocks, checksum, inline_segments,
};
use pollux_port::driver::{InBurst, Moved, TxBurst, TxDescriptor, TxSetup};
use pollux_port::{BadPacket, PortError, TxDrop, TxProblem};

#[cfg(test)]
use super::parking::Parked;
use super::parking::{Control, Running};
use super::parts::{SqParts, TxFeatures, TxTunnels};
use super::sq::{INLINE_BYTES_MAX, Sq};
use pollux_mlx5_common::key::Keys;
use pollux_mlx5_common::send_ring::SendRing;
use tunnel::Places;

mod tunnel;

/// Chains.
const MULTI: u32 = TxFeatures::MULTI_SEGMENT.bits();
/// Checksums.
const CHECKSUM: u32 = TxFeatures::CHECKSUM.bits();
/// Tags.
const VLAN: u32 = TxFeatures::VLAN_INSERT.bits();
/// Segmentation.
const TSO: u32 = TxFeatures::TSO.bits();
/// Short packets inline.
const INLINE: u32 = TxFeatures::INLINE.bits();
/// Many packets an entry.
const MPW: u32 = TxFeatures::MULTI_PACKET.bits();

/// The sets for which there are functions, the small ones first.
const SETS: [u32; 12] = [
    0,
    MPW,
    CHECKSUM,
    MPW | CHECKSUM,
    CHECKSUM | VLAN,
    MPW | CHECKSUM | VLAN,
    MPW | INLINE,
    MPW | INLINE | CHECKSUM | VLAN,
    MULTI | CHECKSUM,
    MPW | MULTI | CHECKSUM,
    MULTI | CHECKSUM | VLAN | TSO | INLINE,
    MPW | MULTI | CHECKSUM | VLAN | TSO | INLINE,
];

/// Most packets of an entry. Source: DPDK `drivers/net/mlx5/mlx5_tx.h`, `MLX5_EMPW_MAX_PACKETS`.
const MPW_MAX: usize = 32;
/// Most segments of an entry with many packets: whole blocks.
const MPW_SEGMENTS: u32 = 60;
/// Fewest bytes of an inline header that has a tag in it: two addresses, the tag, the type.
const TAGGED: u32 = 18;

pub(super) type TxFunction = fn(&mut Sq, &mut Burst) -> Moved;

const FUNCTIONS: [TxFunction; SETS.len()] = [
    burst::<{ SETS[0] }>,
    burst::<{ SETS[1] }>,
    burst::<{ SETS[2] }>,
    burst::<{ SETS[3] }>,
    burst::<{ SETS[4] }>,
    burst::<{ SETS[5] }>,
    burst::<{ SETS[6] }>,
    burst::<{ SETS[7] }>,
    burst::<{ SETS[8] }>,
    burst::<{ SETS[9] }>,
    burst::<{ SETS[10] }>,
    burst::<{ SETS[11] }>,
];

const MODES: [&str; SETS.len()] = [
    "plain",
    "empw",
    "plain, checksum",
    "empw, checksum",
    "plain, checksum, vlan",
    "empw, checksum, vlan",
    "empw, inline",
    "empw, inline, checksum, vlan",
    "plain, multi-segment, checksum",
    "empw, multi-segment, checksum",
    "plain, full",
    "empw, full",
];

/// A send queue: the lcore's half.
#[derive(Debug)]
#[repr(align(128))]
pub struct TxQueue {
    running: Running<Sq>,
    burst: TxFunction,
    mode: &'static str,
    /// What [`TxBurst::prepare`] goes by; `None` where inner headers are not looked at.
    tunnels: Option<TxTunnels>,
}

impl TxQueue {
    /// The queue over its parts. The device's queue is ready (RTS, RDY) or about to be.
    #[must_use]
    pub fn new(parts: SqParts, setup: &TxSetup, keys: Keys) -> Self {
        let mut features = parts.features;
        // The device cannot have both: its minimum is per packet, and such an entry has one header for all.
        features.set(
            TxFeatures::MULTI_PACKET,
            features.contains(TxFeatures::MULTI_PACKET) && parts.inline_min == 0,
        );
        let set = set_of(features);
        let tunnels = (SETS[set] & CHECKSUM != 0).then_some(parts.tunnels);
        let (sq, hold) = Sq::new(parts, setup, keys);
        let running = Running::new(sq, hold, setup.counters.watch());
        Self { running, burst: FUNCTIONS[set], mode: MODES[set], tunnels }
    }

    /// The handle for the control half.
    #[must_use]
    pub fn control(&self) -> Control<Sq> {
        self.running.control()
    }

    #[cfg(test)]
    pub(super) fn inside(&self) -> Parked<'_, Sq> {
        self.running.take().expect("it runs")
    }
}

/// The smallest set that has all of these, and packets together only if that was asked for.
fn set_of(features: TxFeatures) -> usize {
    let need = features.bits() & (MULTI | CHECKSUM | VLAN | TSO | INLINE | MPW);
    let fits = |set: &u32| set & need == need && (set ^ need) & MPW == 0;
    SETS.iter().position(fits).unwrap_or(if need & MPW == 0 { 10 } else { 11 })
}

impl TxBurst for TxQueue {
    #[inline]
    fn tx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let Some(mut sq) = self.running.enter(inside) else { return Moved::NONE };
        let moved = (self.burst)(&mut sq, burst);
        let (trouble, (taken, given)) = (sq.trouble, sq.progress());
        sq.tell(taken, given);
        if let Some(trouble) = trouble {
            self.running.park(trouble);
        }
        moved
    }

    fn mode(&self) -> &'static str {
        self.mode
    }

    fn prepare(&mut self, mbufs: &mut [Mbuf]) -> Result<(), BadPacket> {
        let Some(tunnels) = self.tunnels else { return Ok(()) };
        for (index, mbuf) in mbufs.iter().enumerate() {
            if !tunnels.finds(mbuf.tx_flags()) {
                let told = tunnels.tell(mbuf, 0);
                told.map_err(|why| BadPacket { index, problem: TxProblem::Driver(why.text()) })?;
            }
        }
        Ok(())
    }

    fn done_cleanup(&mut self, max: usize) -> Result<usize, PortError> {
        // Completions free all they can; there is no freeing of a part.
        let _ = max;
        let Some(mut sq) = self.running.take() else { return Ok(0) };
        let before = sq.pending();
        sq.reap();
        let freed = before - sq.pending();
        if sq.trouble.is_none() {
            sq.settle();
        }
        let (taken, given) = sq.progress();
        sq.tell(taken, given);
        if let Some(trouble) = sq.trouble {
            sq.park(trouble);
        }
        Ok(freed as usize)
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(self.running.take().map_or(0, |sq| sq.pending() as usize))
    }

    fn descriptor_status(&self, offset: usize) -> Result<TxDescriptor, PortError> {
        let seen = self.running.take().map(|sq| (sq.free_mbufs(), sq.pending()));
        let Some((free, pending)) = seen else { return Ok(TxDescriptor::Unavailable) };
        let (free, places) = (free as usize, (free + pending) as usize);
        Ok(if offset >= places {
            TxDescriptor::Unavailable
        } else if offset < free {
            TxDescriptor::Done
        } else {
            TxDescriptor::Full
        })
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is in the ring.
    Sent,
    /// The ring is full.
    Full,
    /// It can never be sent.
    Dropped(TxDrop),
}

/// Sends from the front of a burst.
fn burst<const F: u32>(sq: &mut Sq, burst: &mut Burst) -> Moved {
    sq.keys.follow();
    sq.reap();
    if sq.trouble.is_some() {
        return Moved::NONE;
    }
    let most = burst.len().min(sq.free_mbufs() as usize);
    let (mut at, mut moved) = (0, Moved::NONE);
    while at < most {
        // A packet with a tag is mostly none of many, nor is its neighbour.
        if F & MPW != 0 && (F & VLAN == 0 || belongs::<F>(sq, &burst[at])) {
            let (packets, bytes) = many::<F>(sq, &burst[at..most]);
            at += packets;
            moved.packets += packets;
            moved.bytes += bytes;
            if at == most {
                break;
            }
            // The next one starts another entry: of many again if it can.
            if packets > 0 && sq.free_blocks() > 0 && belongs::<F>(sq, &burst[at]) {
                continue;
            }
        }
        let fate = block::<F>(sq, &burst[at]);
        match fate.unwrap_or_else(|| one::<F>(sq, &burst[at])) {
            Fate::Sent => {
                moved.packets += 1;
                moved.bytes += u64::from(burst[at].pkt_len());
            }
            Fate::Full => break,
            Fate::Dropped(reason) => sq.drop_taken(at as u32, burst[at].pkt_len(), reason),
        }
        at += 1;
    }
    if at > 0 {
        sq.admit(&burst[..at]);
        // SAFETY: `at` is at most the number of free places, and the burst forgets these mbufs at once.
        unsafe {
            sq.own(burst.as_ptr(), at as u32);
            burst.forget_front(at);
        }
        if sq.pi == sq.ring.posted() {
            sq.finish_idle();
        } else {
            sq.finish();
        }
    }
    moved
}

/// The checksum bits that a packet's flags ask for. Source: DPDK `drivers/net/mlx5/mlx5_rxtx.c`,
/// `mlx5_set_cksum_table`.
#[inline(always)]
fn checksums<const F: u32>(flags: TxFlags) -> u8 {
    if F & CHECKSUM == 0 {
        return 0;
    }
    let l4 = flags.intersects(TxFlags::L4_MASK.union(TxFlags::TCP_SEGMENTATION));
    let mut bits = 0;
    if flags.intersects(TxFlags::TUNNEL_MASK) {
        // Each segment has an outer length of its own.
        let outer = flags.contains(TxFlags::OUTER_IP_CHECKSUM)
            || F & TSO != 0 && flags.contains(TxFlags::TCP_SEGMENTATION);
        bits |= if outer { checksum::L3 } else { 0 };
        bits |= if flags.contains(TxFlags::IP_CHECKSUM) { checksum::L3_INNER } else { 0 };
        bits |= if l4 { checksum::L4_INNER } else { 0 };
    } else {
        bits |= if flags.contains(TxFlags::IP_CHECKSUM) { checksum::L3 } else { 0 };
        bits |= if l4 { checksum::L4 } else { 0 };
    }
    bits
}

/// Whether a packet can be one of many in an entry, whatever its neighbours.
#[inline(always)]
fn belongs<const F: u32>(sq: &Sq, mbuf: &Mbuf) -> bool {
    let single = mbuf.is_contiguous();
    let whole = F & TSO == 0 || !mbuf.tx_flags().contains(TxFlags::TCP_SEGMENTATION);
    let tagged = F & VLAN != 0 && mbuf.tx_flags().contains(TxFlags::VLAN);
    // An entry says where headers are for all its packets.
    let found = F & CHECKSUM == 0 || sq.tunnels.finds(mbuf.tx_flags());
    single && whole && found && mbuf.data_len() != 0 && (!tagged || tags_inline::<F>(sq, mbuf))
}

/// Whether a packet that gets a tag is copied anyway.
#[inline(always)]
fn tags_inline<const F: u32>(sq: &Sq, mbuf: &Mbuf) -> bool {
    F & INLINE != 0 && mbuf.data_len() as u32 <= sq.inline_max && mbuf.data_len() >= 14
}

/// The two words of the Ethernet segment: where headers are, checksums, size to cut to, and the inline header's length and first two
/// bytes.
#[inline(always)]
fn ethernet(places: Places, checksums: u8, mss: u16, inline: u16, start: [u8; 2]) -> [u64; 2] {
    Ethernet::words(places.offsets.to_ne_bytes(), checksums, places.kinds, mss, inline, start)
}

/// Puts as many packets as belong together into one entry: how many, and their bytes. None when the first does not belong
/// or there is no room.
#[inline(always)]
fn many<const F: u32>(sq: &mut Sq, mbufs: &[Mbuf]) -> (usize, u64) {
    let room = (sq.free_blocks() * 4).min(MPW_SEGMENTS);
    let start = SendRing::first_segment(sq.pi);
    let sums = mbufs.first().map_or(0, |mbuf| checksums::<F>(mbuf.tx_flags()));
    let (mut used, mut packets, mut bytes) = (2, 0, 0);
    for mbuf in mbufs.iter().take(MPW_MAX) {
        if packets + 4 < mbufs.len() {
            barrier::prefetch_read(mbufs[packets + 4].header_ptr());
        }
        let len = mbuf.data_len() as u32;
        if !belongs::<F>(sq, mbuf) || F & CHECKSUM != 0 && checksums::<F>(mbuf.tx_flags()) != sums {
            break;
        }
        if F & INLINE != 0 && len <= sq.inline_max {
            let tagged = F & VLAN != 0 && mbuf.tx_flags().contains(TxFlags::VLAN);
            let inline = len + if tagged { 4 } else { 0 };
            let segments = inline_segments(inline as usize) as u32;
            if used + segments > room {
                break;
            }
            sq.ring.inline_head(start.wrapping_add(used), inline);
            // SAFETY: the segments are free; the mbuf has `len` bytes, 14 at least where a tag is put in.
            unsafe {
                if tagged {
                    let mut packet = [MaybeUninit::<u8>::uninit(); INLINE_BYTES_MAX + 4];
                    let whole = tag(mbuf, inline as usize, &mut packet);
                    sq.ring.copy(start.wrapping_add(used), size_of::<InlineHeader>(), whole, inline as usize);
                } else {
                    sq.ring.copy(
                        start.wrapping_add(used),
                        size_of::<InlineHeader>(),
                        mbuf.data_ptr(),
                        len as usize,
                    );
                }
            }
            used += segments;
        } else {
            let address = mbuf.data_ptr().addr() as u64;
            let Some(key) = sq.keys.find(address, u64::from(len)) else { break };
            if used + 1 > room {
                break;
            }
            sq.ring.write(
                start.wrapping_add(used),
                Data::words(len, key.lkey_be, address.wrapping_add(key.delta)),
            );
            used += 1;
        }
        packets += 1;
        bytes += u64::from(len);
    }
    if packets > 0 {
        sq.ring.write(start.wrapping_add(1), ethernet(Places::default(), sums, 0, 0, [0; 2]));
        sq.close(send::ENHANCED_MPSW, used);
    }
    (packets, bytes)
}

/// Copies the first `bytes - 4` bytes of a packet, with its tag put in behind the addresses. Where they are.
///
/// # Safety
/// The packet has `bytes - 4` bytes, 12 or more.
#[inline]
unsafe fn tag(mbuf: &Mbuf, bytes: usize, to: &mut [MaybeUninit<u8>]) -> *const u8 {
    assert!(bytes <= to.len() && bytes >= 16, "the header has room");
    let at = to.as_mut_ptr().cast::<u8>();
    // SAFETY: `bytes` bytes of room, as asserted; `read` fills what is handed to it, as far as the packet goes (caller).
    unsafe {
        std::ptr::write_bytes(at, 0, bytes);
        let whole = std::slice::from_raw_parts_mut(at, bytes);
        mbuf.read(0, &mut whole[..12]);
        whole[12..14].copy_from_slice(&[0x81, 0x00]);
        whole[14..16].copy_from_slice(&mbuf.vlan_tci().to_be_bytes());
        mbuf.read(12, &mut whole[16..]);
    }
    at
}

/// What the headers of a packet that is to be cut come to, and the size of the pieces.
#[inline]
fn cut(sq: &Sq, mbuf: &Mbuf) -> Result<(u32, u16), TxDrop> {
    let offload = mbuf.tx_offload();
    let outer = if mbuf.tx_flags().intersects(TxFlags::TUNNEL_MASK) {
        u32::from(offload.outer_l2_len) + u32::from(offload.outer_l3_len)
    } else {
        0
    };
    let header = outer + u32::from(offload.l2_len) + u32::from(offload.l3_len) + u32::from(offload.l4_len);
    if mbuf.pkt_len() > sq.tso_bytes_max {
        return Err(TxDrop::TooLong);
    }
    let sane = header >= TAGGED && header <= sq.tso_header_max && header < mbuf.pkt_len();
    if !sane || offload.tso_segment_bytes == 0 {
        return Err(TxDrop::Malformed);
    }
    Ok((header, offload.tso_segment_bytes))
}

/// Puts a packet of which nothing is inline into an entry of its own, of one block. None where it is no such packet.
#[inline(always)]
fn block<const F: u32>(sq: &mut Sq, mbuf: &Mbuf) -> Option<Fate> {
    let (flags, len) = (mbuf.tx_flags(), mbuf.data_len() as u32);
    let tagged = F & VLAN != 0 && flags.contains(TxFlags::VLAN);
    let fits = mbuf.is_contiguous()
        && len != 0
        && sq.inline_min == 0
        && (!tagged || sq.vlan_by_device)
        && (F & TSO == 0 || !flags.contains(TxFlags::TCP_SEGMENTATION))
        && (F & INLINE == 0 || len > sq.inline_max)
        && (F & CHECKSUM == 0 || sq.tunnels.finds(flags));
    if !fits {
        return None;
    }
    if sq.free_blocks() == 0 {
        return Some(Fate::Full);
    }
    let address = mbuf.data_ptr().addr() as u64;
    let Some(key) = sq.keys.find(address, len.into()) else {
        return Some(Fate::Dropped(TxDrop::Unregistered));
    };
    let start = SendRing::first_segment(sq.pi);
    let (size, first) = if tagged { (INSERT_VLAN, mbuf.vlan_tci().to_be_bytes()) } else { (0, [0; 2]) };
    sq.ring.write(start.wrapping_add(1), ethernet(Places::default(), checksums::<F>(flags), 0, size, first));
    sq.ring.write(start.wrapping_add(2), Data::words(len, key.lkey_be, address.wrapping_add(key.delta)));
    sq.close(send::SEND, 3);
    Some(Fate::Sent)
}

/// Puts one packet into an entry of its own.
#[inline(never)]
fn one<const F: u32>(sq: &mut Sq, mbuf: &Mbuf) -> Fate {
    let (flags, len) = (mbuf.tx_flags(), mbuf.pkt_len());
    let contiguous = F & MULTI == 0 || mbuf.is_contiguous();
    // Of a chain on a queue without chains only the first mbuf would leave.
    if len == 0 || F & MULTI == 0 && !mbuf.is_contiguous() {
        return Fate::Dropped(TxDrop::Malformed);
    }
    let cut = F & TSO != 0 && flags.contains(TxFlags::TCP_SEGMENTATION);
    let tagged = F & VLAN != 0 && flags.contains(TxFlags::VLAN);
    let (mut opcode, mut mss) = (send::SEND, 0);
    // Bytes of the packet that go inline.
    let mut inline = sq.inline_min;
    if cut {
        match self::cut(sq, mbuf) {
            Ok((header, size)) => (opcode, inline, mss) = (send::TSO, header.max(inline), size),
            Err(reason) => return Fate::Dropped(reason),
        }
    } else if F & INLINE != 0 && contiguous && len <= sq.inline_max {
        inline = len;
    }
    let told = F & CHECKSUM != 0 && !sq.tunnels.finds(flags);
    // Linux's driver does not count a tag that the device inserts, DPDK's does: here it stands in the header.
    let by_device = tagged && inline == 0 && sq.vlan_by_device && !told;
    let mut places = Places::default();
    if told {
        match sq.tunnels.tell(mbuf, if tagged { 4 } else { 0 }) {
            Ok(found) => places = found,
            Err(_) => return Fate::Dropped(TxDrop::Malformed),
        }
    }
    if tagged && !by_device {
        inline = inline.max(TAGGED - 4);
    }
    if inline > len {
        // The device takes no packet that is shorter than the header that it must see.
        return Fate::Dropped(TxDrop::Malformed);
    }
    let header = inline + if tagged && !by_device { 4 } else { 0 };
    let head_segments = SendRing::header_segments(header);
    let pieces = if inline == len { 0 } else { mbuf.segment_count() as u32 };
    let room = sq.free_blocks();
    if head_segments + pieces > SEGMENTS_MAX as u32 {
        return Fate::Dropped(TxDrop::Malformed);
    }
    let most = blocks((head_segments + pieces) as usize) as u32;
    if most > room {
        return if most > sq.ring.blocks() { Fate::Dropped(TxDrop::Malformed) } else { Fate::Full };
    }
    let start = SendRing::first_segment(sq.pi);
    let mut used = head_segments;
    if pieces > 0 {
        if contiguous {
            let address = mbuf.data_ptr().addr() as u64 + u64::from(inline);
            let Some(key) = sq.keys.find(address, u64::from(len - inline)) else {
                return Fate::Dropped(TxDrop::Unregistered);
            };
            let words = Data::words(len - inline, key.lkey_be, address.wrapping_add(key.delta));
            sq.ring.write(start.wrapping_add(used), words);
            used += 1;
        } else {
            let mut skip = inline as usize;
            for piece in mbuf.segments() {
                if skip >= piece.len() {
                    skip -= piece.len();
                    continue;
                }
                let (address, bytes) = (piece.as_ptr().addr() as u64 + skip as u64, piece.len() - skip);
                skip = 0;
                let Some(key) = sq.keys.find(address, bytes as u64) else {
                    return Fate::Dropped(TxDrop::Unregistered);
                };
                let words = Data::words(bytes as u32, key.lkey_be, address.wrapping_add(key.delta));
                sq.ring.write(start.wrapping_add(used), words);
                used += 1;
            }
        }
    }
    let (mut size, mut first) = (header as u16, [0; 2]);
    if header > 0 {
        let mut bytes = [MaybeUninit::<u8>::uninit(); INLINE_BYTES_MAX + 4];
        // SAFETY: the packet has `inline` bytes, 14 or more where a tag is put in; the segments of the header are free.
        unsafe {
            let from = if header != inline {
                tag(mbuf, header as usize, &mut bytes)
            } else if mbuf.data_len() as u32 >= inline {
                mbuf.data_ptr().cast_const()
            } else {
                let at = bytes.as_mut_ptr().cast::<u8>();
                std::ptr::write_bytes(at, 0, inline as usize);
                mbuf.read(0, std::slice::from_raw_parts_mut(at, inline as usize));
                at.cast_const()
            };
            first = sq.ring.copy_header(sq.pi, from, header as usize);
        }
    } else if by_device {
        (size, first) = (INSERT_VLAN, mbuf.vlan_tci().to_be_bytes());
    }
    sq.ring.write(start.wrapping_add(1), ethernet(places, checksums::<F>(flags), mss, size, first));
    sq.close(opcode, used);
    Fate::Sent
}

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
