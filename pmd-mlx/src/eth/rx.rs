//! Receiving: from completions to mbufs.
//!
//! ```text
//!   completion ring ─ owner bit ─ barrier ─► length, index: sane? ─► mbuf of the entry: header written ─► burst
//!                                             │ no                    │ entry empty
//!                                             ▼                       ▼
//!                                           parked                  refilled in bulk, one record store a burst
//! ```
//!
//! | mode | when | a packet is |
//! |---|---|---|
//! | `scalar` | vectors are off, or an FCS is to be cut off | one mbuf |
//! | `sse`, `avx2` | else | one mbuf; four completions at a time |
//! | `scatter` | a frame may be longer than an mbuf, or joined of several | a chain of mbufs |
//! | `split` | packets are split | a chain of mbufs of several pools |
//! | `striding` | many packets share a buffer | an mbuf with a copy, or one that shows the buffer |
//!
//! All understand compressed completions. Each mode exists for several sets of features (`TABLE` and so on); a queue takes
//! the smallest that has all it needs when it is made, so that no packet is asked about features that are off.
//!
//! Sources: DPDK `drivers/net/mlx5/mlx5_rx.c`; Linux `drivers/net/ethernet/mellanox/mlx5/core/en_rx.c`.
#![expect(unsafe_code, reason = "takes mbufs by their addresses from the ring")]

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use pollux_eal::barrier;
use pollux_eal::simd::SimdWidth;
use pollux_mempool::{Burst, Mbuf};
use pollux_mlx5_abi::cqe::format;
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_port::driver::{InBurst, Moved, RxBurst, RxDescriptor, RxSetup};
use pollux_port::{PortError, PowerMonitor, RxDrop};
use pollux_uverbs::event::CompChannel;

use super::parking::{Control, MalformedCqe, Running, Trouble};
use super::parts::{RqParts, RxFeatures};
use super::rq::Rq;
use meta::Meta;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::cq::Entry;
use pollux_mlx5_common::key::Keys;

pub(crate) mod describe;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod join;
mod meta;
mod scatter;
mod split;
mod stride;
pub(crate) mod title;
#[cfg(target_arch = "x86_64")]
mod vector;
pub(crate) mod zip;

/// Packet type, checksums, VLAN flags: the table.
pub(super) const TABLE: u32 = 1;
/// RSS hash.
pub(super) const HASH: u32 = 2;
/// VLAN tag.
pub(super) const VLAN: u32 = 4;
/// Mark.
pub(super) const MARK: u32 = 8;
/// Time of arrival.
pub(super) const TIME: u32 = 16;
/// Joined segments.
pub(super) const LRO: u32 = 32;

/// The sets for which there are functions, the small ones first.
const SETS: [u32; 6] = [
    0,
    TABLE,
    TABLE | HASH,
    TABLE | HASH | VLAN | MARK,
    TABLE | HASH | VLAN | MARK | TIME,
    TABLE | HASH | VLAN | MARK | TIME | LRO,
];

/// How far ahead of the completion at hand the next ones are prefetched, with the headers of their mbufs: a group of the vector
/// loops. Source: DPDK `drivers/net/mlx5/mlx5_rxtx_vec_sse.h`, `rxq_cq_process_v`.
const AHEAD: u32 = 4;

/// The bits of `op_own` in which a plain completion of a packet has exactly [`PLAIN`].
const KIND: u8 = 0xf0 | format::COMPRESSED << 2;
/// A packet was received, nothing inline.
const PLAIN: u8 = completion::RESPONDER_SEND << 4;

/// The function of a set, of a generic one.
macro_rules! pick {
    ($function:path, $set:expr) => {{
        const FUNCTIONS: [RxFunction; SETS.len()] = {
            use $function as function;
            [
                function::<{ SETS[0] }>,
                function::<{ SETS[1] }>,
                function::<{ SETS[2] }>,
                function::<{ SETS[3] }>,
                function::<{ SETS[4] }>,
                function::<{ SETS[5] }>,
            ]
        };
        FUNCTIONS[$set]
    }};
}
pub(super) type RxFunction = fn(&mut Rq, &mut Burst, usize) -> Moved;

/// A receive queue: the lcore's half.
#[derive(Debug)]
#[repr(align(128))]
pub struct RxQueue {
    running: Running<Rq>,
    events: Option<CompChannel>,
    burst: RxFunction,
    mode: &'static str,
}

impl RxQueue {
    /// The queue over its parts: fills the ring with mbufs of the setup's pool and stores the doorbell record. The device's
    /// queue is ready (RDY) or about to be.
    ///
    /// # Errors
    /// [`MlxError::Queue`] when the pool is too small, its mbufs are, or the device does not know its memory. The parts'
    /// hold is told to end.
    pub fn new(mut parts: RqParts, setup: &RxSetup, keys: Keys) -> Result<Self, MlxError> {
        let set = set_of(parts.features);
        let events = parts.events.take();
        // Packets that may be joined are few and long.
        let scatter = parts.segments_log2 > 0 || parts.features.contains(RxFeatures::LRO);
        let striding = parts.striding.is_some();
        let split = parts.split.is_some();
        let (width, crc) = (parts.simd, parts.crc_bytes > 0);
        let watch = setup.counters.watch();
        let (rq, hold) = Rq::new(parts, setup, keys)?;
        let (burst, mode) = if striding {
            (pick!(stride::burst, set), "striding")
        } else if split {
            (pick!(split::burst, set), "split")
        } else if scatter {
            (pick!(scatter::burst, set), "scatter")
        } else {
            // The vector loops do not cut an FCS off.
            single_for(if crc { SimdWidth::Scalar } else { width }, set)
        };
        Ok(Self { running: Running::new(rq, hold, watch), events, burst, mode })
    }

    /// The handle for the control half.
    #[must_use]
    pub fn control(&self) -> Control<Rq> {
        self.running.control()
    }

    /// Reads what the channel tells; each time it told, the next arming is a new one.
    fn take_events(&mut self) -> Result<(), PortError> {
        let Some(events) = &self.events else {
            return Err(PortError::unsupported(
                "rx interrupt",
                "the queue was not configured for interrupts",
            ));
        };
        while events.next().map_err(|error| PortError::device("read completion events", error))?.is_some() {
            if let Some(mut rq) = self.running.take() {
                rq.cq.event_taken();
            }
        }
        Ok(())
    }
}

fn single_for(width: SimdWidth, set: usize) -> (RxFunction, &'static str) {
    // The processor is asked once more: a width that it lacks must not be a way to undefined instructions.
    match width.min(SimdWidth::detect()) {
        #[cfg(target_arch = "x86_64")]
        SimdWidth::Bits128 => (pick!(vector::burst_sse, set), "sse"),
        #[cfg(target_arch = "x86_64")]
        SimdWidth::Bits256 | SimdWidth::Bits512 => (pick!(vector::burst_avx2, set), "avx2"),
        _ => (pick!(single, set), "scalar"),
    }
}

/// The smallest set that has all of these.
fn set_of(features: RxFeatures) -> usize {
    let mut need = 0;
    let table = RxFeatures::PACKET_TYPE | RxFeatures::CHECKSUM | RxFeatures::VLAN_STRIP;
    for (has, bit) in [
        (features.intersects(table), TABLE),
        (features.contains(RxFeatures::RSS_HASH), HASH),
        (features.contains(RxFeatures::VLAN_STRIP), VLAN),
        (features.contains(RxFeatures::MARK), MARK),
        (features.contains(RxFeatures::TIMESTAMP), TIME),
        (features.contains(RxFeatures::LRO), LRO),
    ] {
        need |= if has { bit } else { 0 };
    }
    SETS.iter().position(|set| set & need == need).unwrap_or(SETS.len() - 1)
}

impl RxBurst for RxQueue {
    #[inline]
    fn rx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let Some(mut rq) = self.running.enter(inside) else { return Moved::NONE };
        let moved = (self.burst)(&mut rq, burst, max);
        let trouble = rq.trouble;
        if let Some(trouble) = trouble {
            self.running.park(trouble);
        }
        moved
    }

    fn mode(&self) -> &'static str {
        self.mode
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(self.running.take().map_or(0, |rq| rq.waiting()))
    }

    fn descriptor_status(&self, offset: usize) -> Result<RxDescriptor, PortError> {
        let seen = self.running.take().map(|rq| {
            let (posted, taken) = rq.indices();
            if offset < rq.waiting() {
                RxDescriptor::Done
            } else if offset < posted.wrapping_sub(taken) as usize {
                RxDescriptor::Available
            } else {
                RxDescriptor::Unavailable
            }
        });
        Ok(seen.unwrap_or(RxDescriptor::Unavailable))
    }

    fn refill(&mut self, inside: &InBurst<'_>, spare: &mut Burst) -> Result<usize, PortError> {
        Ok(self.running.enter(inside).map_or(0, |mut rq| rq.refill_with(spare)))
    }

    /// Arms the completion queue. The device looks at what was said to be consumed: where completions wait, the event comes
    /// at once.
    fn set_interrupt(&mut self, on: bool) -> Result<(), PortError> {
        self.take_events()?;
        if on && let Some(mut rq) = self.running.take() {
            rq.cq.publish();
            if !rq.cq.arm(false) {
                return Err(PortError::unsupported("rx interrupt", "the queue has no register to arm it by"));
            }
        }
        Ok(())
    }

    fn interrupt_fd(&self) -> Result<BorrowedFd<'_>, PortError> {
        self.events.as_ref().map(AsFd::as_fd).ok_or_else(|| {
            PortError::unsupported("rx interrupt", "the queue was not configured for interrupts")
        })
    }

    fn power_monitor(&self) -> Result<PowerMonitor, PortError> {
        let halted =
            || PortError::unsupported("power monitor", "the queue is stopped, or parked after an error");
        let (address, value, ready) = self.running.take().map(|rq| rq.cq.next_word()).ok_or_else(halted)?;
        // What is there already has arrived.
        let expected = u64::from(if ready { !value } else { value });
        Ok(PowerMonitor { address, bytes: 1, mask: 0xff, expected })
    }
}

/// Where a burst's packets go, and what they sum up to.
pub(super) struct Out<'a> {
    places: &'a mut [MaybeUninit<Mbuf>],
    done: usize,
    bytes: u64,
}

impl<'a> Out<'a> {
    #[inline(always)]
    pub(super) fn new(burst: &'a mut Burst, max: usize) -> Self {
        let spare = burst.spare();
        let max = max.min(spare.len());
        Self { places: &mut spare[..max], done: 0, bytes: 0 }
    }

    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.done < self.places.len()
    }

    #[inline(always)]
    pub(super) fn left(&self) -> usize {
        self.places.len() - self.done
    }

    /// Adds a packet of one mbuf of the ring, with the FCS cut off where there is one.
    ///
    /// # Safety
    /// The mbuf is of the queue's pool, by `alloc_raw`, and the caller's; `bytes` fit behind the headroom. There is room.
    #[inline(always)]
    pub(super) unsafe fn push<const F: u32>(&mut self, rq: &Rq, raw: NonNull<u8>, bytes: u32, meta: &Meta) {
        let len = bytes.saturating_sub(rq.crc);
        // SAFETY: the caller's promise.
        let mut mbuf =
            unsafe { Mbuf::adopt_received(raw, rq.headroom, len, rq.port, meta.flags, meta.packet_type) };
        meta.write::<F>(rq, &mut mbuf);
        self.add(mbuf, len);
    }

    /// Adds a packet of `len` bytes. There is room.
    #[inline(always)]
    pub(super) fn add(&mut self, mbuf: Mbuf, len: u32) {
        debug_assert!(self.has_room());
        self.places[self.done].write(mbuf);
        self.done += 1;
        self.bytes += u64::from(len);
    }

    /// Puts a packet `ahead` behind the last one. It is part of the packets once it is [counted](Self::count).
    ///
    /// # Safety
    /// There is room, and the packets before it are put there as well before they are counted.
    #[inline(always)]
    pub(super) unsafe fn put(&mut self, ahead: usize, mbuf: Mbuf) {
        debug_assert!(self.done + ahead < self.places.len());
        // SAFETY: the caller's promise. Without a branch there is no mbuf to be dropped, which would be kept in memory for it.
        unsafe { self.places.get_unchecked_mut(self.done + ahead).write(mbuf) };
    }

    /// Counts packets that were [put](Self::put), and their bytes.
    #[inline(always)]
    pub(super) fn count(&mut self, packets: usize, bytes: u64) {
        self.done += packets;
        self.bytes += bytes;
    }

    /// Makes the packets part of the burst.
    #[inline(always)]
    pub(super) fn moved(self) -> (usize, Moved) {
        (self.done, Moved { packets: self.done, bytes: self.bytes })
    }
}

/// Why a loop over plain completions ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// No more ready, or no room in the burst.
    Empty,
    /// The next one is not plain.
    Special,
}

/// One mbuf a packet, one completion at a time.
fn single<const F: u32>(rq: &mut Rq, burst: &mut Burst, max: usize) -> Moved {
    single_with::<F>(rq, burst, max, plain::<F>, Rq::unzip::<F>)
}

/// The frame of all modes with one mbuf a packet: `run` takes plain completions, `unzip` those of a compressed session, this the rest.
#[inline(always)]
pub(super) fn single_with<const F: u32>(
    rq: &mut Rq,
    burst: &mut Burst,
    max: usize,
    run: impl Fn(&mut Rq, &mut Out<'_>) -> Stop,
    unzip: impl Fn(&mut Rq, &mut Out<'_>),
) -> Moved {
    let mut out = Out::new(burst, max);
    let before = rq.cq.consumer();
    loop {
        if rq.zip.count != 0 {
            unzip(rq, &mut out);
            if rq.zip.count != 0 {
                break;
            }
        }
        let at = rq.cq.consumer();
        let stop = run(rq, &mut out);
        rq.keep_title(at);
        if stop == Stop::Empty || !rq.special() {
            break;
        }
    }
    let (done, moved) = out.moved();
    // SAFETY: `Out` has written so many places.
    unsafe { burst.filled(done) };
    // A ring that ran empty brings nothing any more, and still wants mbufs.
    if rq.cq.consumer() != before || done != 0 || rq.posted == rq.taken {
        rq.finish();
    }
    moved
}

/// Takes plain completions as long as there are some and the burst has room.
#[inline(always)]
pub(super) fn plain<const F: u32>(rq: &mut Rq, out: &mut Out<'_>) -> Stop {
    let most = (out.left() as u32).min(rq.posted.wrapping_sub(rq.taken));
    let mut ahead = 0;
    let mut stop = Stop::Empty;
    while ahead < most {
        // SAFETY: the ring is this queue's own, and the entry is read while it is there.
        let Some(entry) = (unsafe { rq.cq.peek(ahead) }) else { break };
        let bytes = entry.byte_cnt();
        let strange = u32::from(entry.op_own() & KIND != PLAIN)
            | (u32::from(entry.wqe_counter()) ^ rq.taken.wrapping_add(ahead)) & rq.mask()
            | u32::from(bytes.wrapping_sub(1) >= rq.longest);
        if strange != 0 {
            stop = Stop::Special;
            break;
        }
        // SAFETY: below `most`, so posted.
        let raw = unsafe { rq.raw(ahead) };
        if ahead + AHEAD < most {
            // SAFETY: as above.
            unsafe { rq.prefetch(ahead + AHEAD) };
        }
        let meta = Meta::read::<F>(rq, entry);
        // SAFETY: the mbuf is of the pool; `longest` is not more than fits behind the headroom; its slot is left behind
        // below.
        unsafe { out.push::<F>(rq, raw, bytes, &meta) };
        ahead += 1;
    }
    rq.cq.consume(ahead);
    rq.taken = rq.taken.wrapping_add(ahead);
    // An empty ring with completions still coming is as strange as a strange completion.
    if ahead == most && rq.posted == rq.taken && out.has_room() && rq.cq.is_ready(rq.cq.consumer()) {
        stop = Stop::Special;
    }
    stop
}

impl Rq {
    /// Asks for the lines of a completion to come and of the header of its mbuf, where an entry is one mbuf.
    ///
    /// # Safety
    /// The entry is posted.
    #[inline(always)]
    unsafe fn prefetch(&self, ahead: u32) {
        self.cq.prefetch(ahead);
        // SAFETY: the caller's promise.
        barrier::prefetch_write(unsafe { self.raw(ahead) }.as_ptr());
    }

    /// Looks at a completion that is ready and not plain, or not sane. `true`: go on, it was dealt with.
    #[cold]
    #[inline(never)]
    pub(super) fn special(&mut self) -> bool {
        // SAFETY: the ring is this queue's own, and the entry is read while it is there.
        let Some(entry) = (unsafe { self.cq.peek(0) }) else { return false };
        if !self.is_packet(entry) {
            return false;
        }
        if self.is_array(entry) {
            return self.open_zip(entry);
        }
        let next = self.taken & self.mask();
        if self.posted == self.taken || u32::from(entry.wqe_counter()) & self.mask() != next {
            self.malformed(MalformedCqe::Counter);
            return false;
        }
        if entry.op_own() & KIND != PLAIN {
            return self.open_zip(entry);
        }
        let bytes = entry.byte_cnt();
        if bytes.wrapping_sub(1) >= self.capacity {
            self.malformed(MalformedCqe::Length);
            return false;
        }
        if bytes > self.longest {
            let at = self.cq.consumer();
            self.cq.consume(1);
            self.keep_title(at);
            if !self.in_place {
                // SAFETY: the entry is posted, and its slot is left behind by the next line.
                unsafe { Mbuf::free_raw(&[self.raw(0)]) };
            } else {
                // The same mbufs wait again.
                self.posted = self.posted.wrapping_add(1);
            }
            self.taken = self.taken.wrapping_add(1);
            self.too_long();
        }
        true
    }

    #[cold]
    pub(super) fn too_long(&self) {
        self.counters.drop_for(RxDrop::TooLong, 1);
    }

    /// Whether a completion is of a packet or of several; else it is trouble.
    #[cold]
    #[inline(never)]
    pub(super) fn is_packet(&mut self, entry: Entry) -> bool {
        if self.is_array(entry) {
            return true;
        }
        match entry.opcode() {
            completion::RESPONDER_SEND => {}
            completion::RESPONDER_ERROR | completion::REQUESTER_ERROR => {
                let syndrome = entry.copy();
                let syndrome = pollux_mlx5_abi::cqe::CqeError::of(&syndrome);
                let syndrome = syndrome.map_or(Syndrome { code: 0, vendor: 0 }, |error| error.syndrome());
                self.trouble = Some(Trouble::Failed(syndrome));
                return false;
            }
            opcode => {
                self.malformed(MalformedCqe::Opcode(opcode));
                return false;
            }
        }
        let kind = entry.format();
        if kind != format::PLAIN && kind != format::COMPRESSED {
            self.malformed(MalformedCqe::Format);
            return false;
        }
        true
    }
}

#[cfg(test)]
mod tests;
