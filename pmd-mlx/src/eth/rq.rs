//! A receive queue: the ring of entries that the device fills, and the mbufs that wait in it.
//!
//! ```text
//!        taken                         posted
//!   ───────┴─────────────────────────────┴──────────►  free-running; slot = index & mask
//!    empty │ the device's: entry and mbuf │ empty
//!          └► completions, in order       └► refill, in bulk
//! ```
//!
//! An entry is one data segment, or `1 << segments_log2` of them where packets are scattered over several mbufs. There the
//! mbufs that a packet took are replaced at once, so all entries are always posted. Entries of a striding queue are in
//! `striding`.
//!
//! Source of the entry: rdma-core `providers/mlx5/qp.c`, `mlx5_post_wq_recv`; DPDK `drivers/net/mlx5/mlx5_rx.c`,
//! `mlx5_rxq_initialize`.
#![expect(unsafe_code, reason = "writes entries that a device reads, and owns mbufs by their addresses")]

use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;
use std::sync::Arc;

use pollux_eal::barrier;
use pollux_eal::region::Zone;
use pollux_mempool::dynamic::{Field, Flag};
use pollux_mempool::{Burst, Mbuf, MbufPool, RxFlags};
use pollux_mlx5_abi::cqe::{MiniFormat, format};
use pollux_mlx5_abi::wqe::{Data, INVALID_LKEY};
use pollux_port::driver::RxSetup;
use pollux_port::{RxCounters, RxDrop, RxOffloads};

use super::parking::{MalformedCqe, Trouble};
use super::parts::{Hold, RqParts, RxFeatures};
use super::rx::describe::{self, Descriptions};
use super::rx::title::{Kept, Zip};
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::cq::Cq;
use pollux_mlx5_common::dbrec::{DoorbellRecord, FIRST};
use pollux_mlx5_common::key::{Key, Keys};

pub(crate) mod place;
pub(crate) mod split;
pub(crate) mod striding;

use place::Place;
use split::Split;
use striding::Striding;

/// Refill when so many entries are empty: as many as a usual burst brings.
const REFILL: u32 = 32;

/// What stands in for a key that is not there: the device refuses it.
const UNKNOWN: Key = Key { lkey_be: INVALID_LKEY.to_be(), delta: 0 };

/// Data segments of an entry at most, as a power of two.
pub(crate) const SEGMENTS_LOG2_MAX: u8 = 5;

/// A raw mbuf's place.
pub(super) type Slot = MaybeUninit<NonNull<u8>>;

/// The inside of a receive queue. The lcore's half reaches it while the queue runs, the control half while it is
/// [parked](super::parking).
pub struct Rq {
    pub(super) cq: Cq,
    /// The first entry.
    pub(super) ring: NonNull<u8>,
    /// Entries, as a power of two.
    pub(super) log: u8,
    pub(super) segments_log2: u8,
    /// The mbufs that a packet took are replaced at once, before it is handed over.
    pub(super) in_place: bool,
    /// Entries posted in all.
    pub(super) posted: u32,
    /// Entries that came back in all.
    pub(super) taken: u32,
    refill_at: u32,
    /// The pool had no mbuf for the next entry.
    starving: bool,
    /// Mbufs of the entries, one a segment.
    pub(super) slots: Box<[Slot]>,
    pub(super) descriptions: Arc<Descriptions>,
    pub(super) port: u16,
    pub(super) headroom: u32,
    /// Bytes of an mbuf.
    pub(super) room: u32,
    /// Bytes that an entry has room for.
    pub(super) capacity: u32,
    /// Longest packet that is delivered, FCS included where it is cut off.
    pub(super) longest: u32,
    pub(super) crc: u32,
    pub(super) want: RxFlags,
    pub(super) zip: Zip,
    /// Of the enhanced layout: the last plain completion.
    pub(super) title: Option<Kept>,
    pub(super) compressed: Option<MiniFormat>,
    pub(super) time: Option<(Field<u64>, Flag)>,
    /// What went wrong in this burst.
    pub(super) trouble: Option<Trouble>,
    pub(super) pool: MbufPool,
    pub(super) counters: Arc<RxCounters>,
    /// Where the pool's mbufs are.
    place: Place,
    pub(super) keys: Keys,
    pub(super) dbrec: DoorbellRecord,
    pub(super) striding: Option<Box<Striding>>,
    /// Of a queue that splits packets.
    pub(super) split: Option<Box<Split>>,
    number: u32,
    _zone: Zone,
}

// SAFETY: ring and slots belong to no thread; the zone and the mbufs are this queue's own.
unsafe impl Send for Rq {}

impl std::fmt::Debug for Rq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rq")
            .field("number", &self.number)
            .field("posted", &self.posted)
            .field("taken", &self.taken)
            .field("cq", &self.cq)
            .finish_non_exhaustive()
    }
}

impl Rq {
    pub(super) fn new(
        mut parts: RqParts,
        setup: &RxSetup,
        mut keys: Keys,
    ) -> Result<(Self, Box<dyn Hold>), MlxError> {
        let refuse = |problem: String, hold: Box<dyn Hold>, remains: Box<dyn Send>| {
            hold.end(remains);
            let queue = format!("port {} rx queue {}", setup.port, setup.queue);
            Err(MlxError::Queue { queue, problem })
        };
        let pool = &setup.pool;
        let segments = 1_usize << parts.segments_log2;
        let entry = if parts.striding.is_some() { 32 } else { size_of::<Data>() * segments };
        assert!(parts.ring.bytes() >= entry << parts.wqes_log2, "a ring shorter than its entries");
        assert!(parts.wqes_log2 <= 15, "2^{} entries", parts.wqes_log2);
        assert!(parts.segments_log2 <= SEGMENTS_LOG2_MAX, "2^{} segments", parts.segments_log2);
        let (room, headroom) = (pool.data_room() as u32, pool.headroom() as u32);
        let mut capacity = (segments as u32 * room).saturating_sub(headroom);
        let shared = parts.striding.is_some();
        if let Some(split) = &parts.split {
            assert!(split.parts.len() <= segments && !shared, "{} parts", split.parts.len());
            capacity = Split::capacity(split);
        }
        if let Some(striding) = &parts.striding {
            capacity = Striding::capacity(striding);
            if let Err(problem) = Striding::check(striding, parts.wqes_log2) {
                let (hold, remains) = parts.split();
                return refuse(problem, hold, remains);
            }
        }
        if room <= headroom && parts.split.is_none()
            || (capacity as usize) < parts.frame_bytes_max + parts.crc_bytes
        {
            let problem = format!(
                "a frame of {} bytes does not fit into {capacity} bytes, {segments} mbufs of {room} with {headroom} of \
                 headroom; ask for SCATTER, take a pool of larger mbufs, or lower the MTU",
                parts.frame_bytes_max
            );
            let (hold, remains) = parts.split();
            return refuse(problem, hold, remains);
        }
        keys.follow();
        // Of a striding queue's pool, and of one that is split, the device need not know.
        let place = match Place::of(pool, &mut keys) {
            Err(problem) if !shared && parts.split.is_none() => {
                let (hold, remains) = parts.split();
                return refuse(problem, hold, remains);
            }
            known => known.unwrap_or_default(),
        };
        let split = match parts.split.take().map(|split| Split::new(split, &mut keys)).transpose() {
            Ok(split) => split.map(Box::new),
            Err(problem) => {
                let (hold, remains) = parts.split();
                return refuse(problem, hold, remains);
            }
        };
        let striding = match parts.striding {
            None => None,
            Some(striding) => Some(Box::new(Striding::new(striding, parts.wqes_log2, &mut keys))),
        };
        let slots = if striding.is_some() { 0 } else { segments << parts.wqes_log2 };
        let features = parts.features;
        let time = features.contains(RxFeatures::TIMESTAMP).then(describe::time_field);
        let mut this = Self {
            cq: Cq::new(parts.cq),
            ring: parts.ring.base(),
            log: parts.wqes_log2,
            segments_log2: parts.segments_log2,
            in_place: parts.segments_log2 > 0 || split.is_some() || features.contains(RxFeatures::LRO),
            posted: 0,
            taken: 0,
            refill_at: REFILL.min(1 << parts.wqes_log2 >> 2).max(1),
            starving: false,
            slots: vec![MaybeUninit::uninit(); slots].into_boxed_slice(),
            descriptions: Descriptions::of(features),
            port: setup.port.0,
            headroom,
            room,
            capacity,
            longest: capacity.min((parts.frame_bytes_max + parts.crc_bytes) as u32),
            crc: parts.crc_bytes as u32,
            want: describe::wanted(features),
            zip: Zip::default(),
            title: None,
            compressed: parts.compressed,
            time: time.flatten(),
            trouble: None,
            pool: pool.clone(),
            counters: Arc::clone(&setup.counters),
            place,
            keys,
            dbrec: parts.dbrec,
            striding,
            split,
            number: parts.number,
            _zone: parts.ring,
        };
        this.write_ring();
        let hold = parts.hold;
        let posted = this.refill();
        if posted < this.entries() {
            let problem = format!(
                "pool {} gave mbufs for {posted} of {} entries; it needs more than all its rings together",
                pool.name(),
                this.entries()
            );
            // The device knows the ring and may have read it.
            return refuse(problem, hold, Box::new(this));
        }
        Ok((this, hold))
    }

    /// Entries in the ring.
    #[must_use]
    pub fn entries(&self) -> u32 {
        1 << self.log
    }

    #[inline(always)]
    pub(super) fn mask(&self) -> u32 {
        (1 << self.log) - 1
    }

    /// The data segment of a slot.
    #[inline(always)]
    pub(super) fn segment(&self, slot: usize) -> NonNull<u8> {
        debug_assert!(slot < self.slots.len());
        // SAFETY: slots are below the number of segments that fill the ring (`new`).
        unsafe { self.ring.add(slot * size_of::<Data>()) }
    }

    /// Writes what stays the same in all entries.
    fn write_ring(&mut self) {
        if let Some(striding) = &mut self.striding {
            // SAFETY: the ring has an entry of 32 bytes for each buffer (`new`).
            return unsafe { striding.write_ring(self.ring, 1 << self.log) };
        }
        if let Some(split) = self.split.take() {
            self.write_split(&split);
            self.split = Some(split);
            return;
        }
        let segments = 1 << self.segments_log2;
        for slot in 0..self.slots.len() {
            let first = slot & (segments - 1) == 0;
            let bytes = if first { self.room - self.headroom } else { self.room };
            let lkey_be = self.place.usual().lkey_be;
            // SAFETY: the segment is in the ring; volatile stores bear a device that reads.
            unsafe {
                let at = self.segment(slot);
                at.add(offset_of!(Data, byte_count)).cast::<u32>().write_volatile(bytes.to_be());
                at.add(offset_of!(Data, lkey)).cast::<u32>().write_volatile(lkey_be);
            }
        }
    }

    /// Puts the mbuf that stands in `slot` into its segment.
    #[inline(always)]
    pub(super) fn write_segment(&mut self, slot: usize, raw: NonNull<u8>) {
        let first = slot & ((1 << self.segments_log2) - 1) == 0;
        let headroom = if first { self.headroom } else { 0 };
        let (address, key) = self.place.target(&mut self.keys, raw, headroom);
        self.point(slot, address, (!self.place.is_whole()).then_some(key));
    }

    /// Has the segment of a slot say an address, and a key where that differs from mbuf to mbuf.
    #[inline(always)]
    pub(super) fn point(&mut self, slot: usize, address: u64, key: Option<Key>) {
        let at = self.segment(slot);
        // SAFETY: the segment is in the ring and not posted; volatile stores bear a device that reads.
        unsafe {
            if let Some(key) = key {
                at.add(offset_of!(Data, lkey)).cast::<u32>().write_volatile(key.lkey_be);
            }
            at.add(offset_of!(Data, addr)).cast::<u64>().write_volatile(address.to_be());
        }
    }

    /// Posts entries with fresh mbufs where there are empty ones, and tells the device. How many are posted now.
    pub fn refill(&mut self) -> u32 {
        if self.striding.is_some() {
            let (taken, posted) = (self.taken, self.taken.wrapping_add(1 << self.log));
            if self.posted != posted {
                self.posted = posted;
                self.ring_doorbell();
            }
            return posted.wrapping_sub(taken);
        }
        let before = self.posted;
        loop {
            let empty = self.entries() - self.posted.wrapping_sub(self.taken);
            let at = self.posted & self.mask();
            let run = empty.min(self.entries() - at);
            if run == 0 {
                break;
            }
            let got = self.refill_run(at, run);
            self.posted = self.posted.wrapping_add(got);
            if got < run {
                break;
            }
        }
        if self.posted != before {
            self.ring_doorbell();
        }
        self.posted.wrapping_sub(self.taken)
    }

    /// As [`refill`](Self::refill), once it is worth the while.
    #[inline(always)]
    pub(super) fn refill_some(&mut self) {
        if self.posted.wrapping_sub(self.taken) + self.refill_at <= 1 << self.log {
            self.refill();
        }
    }

    /// Posts entries with mbufs of `spare` that are plain ones of this pool. How many were taken. Where an entry has several
    /// mbufs, or none of its own, there is no room for any.
    pub(super) fn refill_with(&mut self, spare: &mut Burst) -> usize {
        if self.striding.is_some() || self.in_place {
            return 0;
        }
        let (mut at, mut count) = (0, 0);
        while at < spare.len() && self.posted.wrapping_sub(self.taken) < self.entries() {
            if !spare[at].is_plain_of(&self.pool) {
                at += 1;
                continue;
            }
            let Some(mbuf) = spare.swap_remove(at) else { break };
            let (slot, raw) = ((self.posted & self.mask()) as usize, mbuf.into_raw());
            self.slots[slot].write(raw);
            self.write_segment(slot, raw);
            self.posted = self.posted.wrapping_add(1);
            count += 1;
        }
        if count > 0 {
            self.ring_doorbell();
        }
        count
    }

    /// Fills `run` entries from place `at`, none of which goes past the ring's end. How many were filled.
    #[inline(always)]
    fn refill_run(&mut self, at: u32, run: u32) -> u32 {
        if let Some(split) = self.split.take() {
            let filled = self.refill_split(&split, at, run);
            self.split = Some(split);
            return filled;
        }
        let log = self.segments_log2;
        let (first, count) = ((at as usize) << log, (run as usize) << log);
        if !self.pool.alloc_raw(&mut self.slots[first..first + count]) {
            return self.refill_few(at, run);
        }
        self.starving = false;
        if let (0, Some(distance)) = (log, self.place.distance()) {
            self.point_all(first, count, distance.wrapping_add(u64::from(self.headroom)));
            return run;
        }
        for slot in first..first + count {
            // SAFETY: `alloc_raw` has written all of them.
            let raw = unsafe { self.slots[slot].assume_init() };
            self.write_segment(slot, raw);
        }
        run
    }

    /// Has each segment of `count` slots say the address of its mbuf and `distance` more, where all have one key: an addition and a
    /// store, and no look at the queue for each.
    #[inline(always)]
    fn point_all(&mut self, first: usize, count: usize, distance: u64) {
        let at = self.segment(first).as_ptr();
        for (next, slot) in self.slots[first..first + count].iter().enumerate() {
            // SAFETY: the slot was filled (`refill_run`); its segment is in the ring and not posted; volatile stores bear a device that
            // reads.
            unsafe {
                let address = (slot.assume_init().as_ptr().addr() as u64).wrapping_add(distance);
                let place = at.add(next * size_of::<Data>() + offset_of!(Data, addr));
                place.cast::<u64>().write_volatile(address.to_be());
            }
        }
    }

    /// The pool has not as many: one entry at a time, as far as it goes.
    #[cold]
    #[inline(never)]
    fn refill_few(&mut self, at: u32, run: u32) -> u32 {
        let segments = 1 << self.segments_log2;
        for done in 0..run {
            let first = ((at + done) as usize) << self.segments_log2;
            if !self.pool.alloc_raw(&mut self.slots[first..first + segments]) {
                self.starve();
                return done;
            }
            for slot in first..first + segments {
                // SAFETY: `alloc_raw` has written all of them.
                let raw = unsafe { self.slots[slot].assume_init() };
                self.write_segment(slot, raw);
            }
        }
        run
    }

    /// The pool is dry: counted once each time it runs so; polls go on and try again.
    #[cold]
    fn starve(&mut self) {
        if !std::mem::replace(&mut self.starving, true) {
            self.counters.drop_for(RxDrop::NoMbuf, 1);
        }
    }

    /// Tells the device how many entries are posted.
    #[inline(always)]
    pub(super) fn ring_doorbell(&mut self) {
        barrier::to_device();
        self.dbrec.store(FIRST, self.posted & 0xffff);
    }

    /// Remembers that a completion made no sense; the burst ends there.
    #[cold]
    pub(super) fn malformed(&mut self, what: MalformedCqe) {
        self.trouble = Some(Trouble::Malformed(what));
    }

    /// The completion queue, for a dump.
    #[must_use]
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Entries posted and entries that came back, in all.
    #[must_use]
    pub fn indices(&self) -> (u32, u32) {
        (self.posted, self.taken)
    }

    /// The device's number for it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// After the device's queue is in error: consumes all completions, of failed work and other. How many. Packets that
    /// were received and not fetched are lost; they are counted as missed.
    pub fn drain(&mut self) -> u32 {
        let mut drained = 0;
        // A device that goes on completing must not keep us here.
        for _ in 0..2 * self.cq.entries() {
            // SAFETY: the ring is this queue's own, and the entry is read while it is there.
            let Some(entry) = (unsafe { self.cq.peek(0) }) else { break };
            let (count, packets) = (self.cq.places(entry), self.packets(entry));
            self.counters.drop_for(RxDrop::Missed, u64::from(packets));
            let index = self.cq.consumer();
            let title = packets > 0 && entry.format() == format::PLAIN;
            self.cq.consume(count);
            if title {
                self.keep_title(index);
            }
            self.cq.invalidate(index, index.wrapping_add(count));
            drained += count;
        }
        self.zip = Zip::default();
        self.cq.publish();
        drained
    }

    /// After the device's queue was reset: all mbufs go home, indices begin at zero. [`refill`](Self::refill) comes next,
    /// once the queue is ready again.
    pub fn reset(&mut self) {
        let at_hand = (self.taken & self.mask()) as usize;
        self.give_all();
        if let Some(striding) = &mut self.striding {
            striding.restart(at_hand);
        }
        (self.posted, self.taken) = (0, 0);
        self.trouble = None;
        self.zip = Zip::default();
        self.dbrec.store(FIRST, 0);
        self.write_ring();
    }

    /// All mbufs go home.
    fn give_all(&mut self) {
        if let Some(striding) = &mut self.striding {
            striding.give_all();
            return;
        }
        if let Some(split) = self.split.take() {
            while self.taken != self.posted {
                // SAFETY: between `taken` and `posted` every entry has its mbufs, and the next line leaves it behind.
                unsafe { self.give_split(&split, self.taken & self.mask()) };
                self.taken = self.taken.wrapping_add(1);
            }
            self.split = Some(split);
            return;
        }
        while self.taken != self.posted {
            let first = ((self.taken & self.mask()) as usize) << self.segments_log2;
            for slot in first..first + (1 << self.segments_log2) {
                // SAFETY: between `taken` and `posted` every slot has an mbuf, which is forgotten by the next line.
                unsafe { Mbuf::free_raw(&[self.slots[slot].assume_init()]) };
            }
            self.taken = self.taken.wrapping_add(1);
        }
    }

    /// The mbuf of the entry, of one segment, that is `ahead` behind the next to come back.
    ///
    /// # Safety
    /// It is posted.
    #[inline(always)]
    pub(super) unsafe fn raw(&self, ahead: u32) -> NonNull<u8> {
        let slot = (self.taken.wrapping_add(ahead) & self.mask()) as usize;
        // SAFETY: slots between `taken` and `posted` hold mbufs (caller).
        unsafe { self.slots.get_unchecked(slot).assume_init() }
    }

    /// The mbufs of `N` entries in a row, as by [`raw`](Self::raw).
    ///
    /// # Safety
    /// They are posted, and none is behind the ring's end.
    #[inline(always)]
    pub(super) unsafe fn raws<const N: usize>(&self, ahead: u32) -> [NonNull<u8>; N] {
        let slot = (self.taken.wrapping_add(ahead) & self.mask()) as usize;
        // SAFETY: as in `raw`.
        std::array::from_fn(|next| unsafe { self.slots.get_unchecked(slot + next).assume_init() })
    }

    /// Ends a burst that brought something: places of completions go back, entries are filled again.
    #[inline(always)]
    pub(super) fn finish(&mut self) {
        self.cq.publish();
        self.keys.follow();
        self.refill_some();
    }

    /// Starts all indices at `at`, so that tests see them wrap.
    #[cfg(test)]
    pub(super) fn start_at(&mut self, at: u32) {
        self.give_all();
        (self.posted, self.taken) = (at, at);
        self.cq.start_at(at);
        self.dbrec.store(FIRST, at & 0xffff);
        self.write_ring();
        self.refill();
    }

    /// How many packets wait: completions that are ready, those inside compressed ones too.
    pub(super) fn waiting(&self) -> usize {
        let (mut at, mut packets) = (0, 0);
        while at < self.cq.entries() {
            // SAFETY: the ring is this queue's own, and the entry is read while it is there.
            let Some(entry) = (unsafe { self.cq.peek(at) }) else { break };
            let places = self.cq.places(entry);
            at += places;
            packets += places;
        }
        packets.saturating_sub(self.zip.done) as usize
    }
}

impl Drop for Rq {
    fn drop(&mut self) {
        self.give_all();
    }
}

/// Which offloads of a port become which features of a queue. Packet types cost nothing beside; marks depend on flow
/// rules, so the control half says.
#[must_use]
pub fn features(offloads: RxOffloads, mark: bool) -> RxFeatures {
    let mut features = RxFeatures::PACKET_TYPE;
    features.set(RxFeatures::CHECKSUM, offloads.intersects(RxOffloads::CHECKSUM));
    features.set(RxFeatures::RSS_HASH, offloads.contains(RxOffloads::RSS_HASH));
    features.set(RxFeatures::VLAN_STRIP, offloads.contains(RxOffloads::VLAN_STRIP));
    features.set(RxFeatures::TIMESTAMP, offloads.contains(RxOffloads::TIMESTAMP));
    features.set(RxFeatures::LRO, offloads.contains(RxOffloads::TCP_LRO));
    features.set(RxFeatures::MARK, mark);
    features
}
