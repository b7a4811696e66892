//! A send queue: the ring of entries that the device reads, and the mbufs that are on their way.
//!
//! ```text
//!           ci                                     pi
//!   ─────────┴──────────────┬───────────────────────┴─────────►  blocks of 64 bytes
//!    free    │ the device's │ asked: these make a completion │ free
//!            └► freed in bulk when the completion of the last one asked for comes
//! ```
//!
//! **Completions.** An entry makes one only when asked. A burst's last entry is asked when 32 packets or an eighth of the
//! ring went out since the last, or when no completion is under way at all. A completion frees all mbufs up to its entry at
//! once. A few packets sent while a completion was under way may so wait for the next burst; where there is none,
//! `settle` asks by an entry that does nothing. Where nothing comes back for very long, the control half
//! kicks the queue (`recovery`).
//!
//! Entries are written into the ring, and posted once a burst, by [`SendRing`].
//!
//! Source: DPDK `drivers/net/mlx5/mlx5_tx.h`, `mlx5_tx_request_completion`.
#![expect(unsafe_code, reason = "makes a ring that a device reads, and owns mbufs by their addresses")]

use std::collections::VecDeque;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::sync::Arc;

use pollux_eal::region::Zone;
use pollux_mempool::{Mbuf, MbufPool};
use pollux_mlx5_abi::cqe::CqeError;
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{BLOCK_BYTES, Completion, blocks};
use pollux_port::driver::TxSetup;
use pollux_port::{TxCounters, TxDrop, TxOffloads};

use super::parking::{MalformedCqe, Trouble};
use super::parts::{Hold, SqParts, TxFeatures, TxTunnels};
use pollux_mlx5_common::cq::Cq;
use pollux_mlx5_common::key::Keys;
use pollux_mlx5_common::send_ring::SendRing;

/// Most bytes inline in one entry: what its segments leave room for. Source: DPDK `doc/guides/nics/mlx5.rst`,
/// `txq_inline_max`.
pub(super) const INLINE_BYTES_MAX: usize = 930;

/// Ask for a completion after so many packets. Source: DPDK `drivers/net/mlx5/mlx5_defs.h`, `MLX5_TX_COMP_THRESH`.
const ASK_PACKETS: u32 = 32;

/// A completion that was asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    /// The first block of the entry that makes it.
    wqe: u16,
    /// Blocks that are free when it comes.
    blocks: u32,
    /// Mbufs that are.
    mbufs: u32,
}

/// The inside of a send queue. The lcore's half reaches it while the queue runs, the control half while it is
/// [parked](super::parking).
pub struct Sq {
    pub(super) ring: SendRing,
    /// Blocks written in all.
    pub(super) pi: u32,
    asked_pi: u32,
    /// Mbufs on their way, by their addresses.
    mbufs: Box<[MaybeUninit<NonNull<u8>>]>,
    head: u32,
    tail: u32,
    /// Of those, or of some that went home since, packets that were never posted and are counted already: which, and
    /// their bytes.
    dropped: VecDeque<(u32, u32)>,
    asked_head: u32,
    ask_packets: u32,
    ask_blocks: u32,
    requests: Box<[Request]>,
    request_head: u32,
    request_tail: u32,
    cq: Cq,
    pub(super) keys: Keys,
    /// The first block of the last entry.
    last: u32,
    control_imm: u32,
    pub(super) inline_min: u32,
    pub(super) inline_max: u32,
    pub(super) tso_bytes_max: u32,
    pub(super) tso_header_max: u32,
    pub(super) vlan_by_device: bool,
    pub(super) tunnels: TxTunnels,
    /// Whether all mbufs on their way are plain ones of `home`, so that they go back unseen.
    fast_free: bool,
    home: Option<MbufPool>,
    pub(super) trouble: Option<Trouble>,
    pub(super) counters: Arc<TxCounters>,
    zone: Zone,
}

// SAFETY: the slots belong to no thread; the mbufs are this queue's own.
unsafe impl Send for Sq {}

impl std::fmt::Debug for Sq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sq")
            .field("ring", &self.ring)
            .field("pi", &self.pi)
            .field("head", &self.head)
            .field("tail", &self.tail)
            .field("cq", &self.cq)
            .finish_non_exhaustive()
    }
}

impl Sq {
    pub(super) fn new(parts: SqParts, setup: &TxSetup, keys: Keys) -> (Self, Box<dyn Hold>) {
        assert!(parts.ring.bytes() >= BLOCK_BYTES << parts.wqebbs_log2, "a ring shorter than its blocks");
        assert!((2..=15).contains(&parts.wqebbs_log2), "2^{} blocks", parts.wqebbs_log2);
        let mbufs = usize::from(setup.descriptors).max(2).next_power_of_two();
        let cq = Cq::new(parts.cq);
        let requests = cq.entries() as usize;
        let (base, log) = (parts.ring.base(), parts.wqebbs_log2);
        // SAFETY: the zone is as long as the ring, as just asserted, and stays with it; entries name the memory of mbufs, which stay
        // with the queue until the device is done with them, and of which its keys tell.
        let ring = unsafe { SendRing::new(base, log, parts.number, parts.dbrec, parts.doorbell) };
        let this = Self {
            ring,
            pi: 0,
            asked_pi: 0,
            mbufs: vec![MaybeUninit::uninit(); mbufs].into_boxed_slice(),
            head: 0,
            tail: 0,
            dropped: VecDeque::with_capacity(mbufs),
            asked_head: 0,
            ask_packets: ASK_PACKETS.min(mbufs as u32 / 4),
            // An entry can be 16 blocks: in a small ring no block may wait unasked, or it could keep such an entry out.
            ask_blocks: if log < 7 { 0 } else { 1 << log >> 3 },
            requests: vec![Request::default(); requests].into_boxed_slice(),
            request_head: 0,
            request_tail: 0,
            cq,
            keys,
            last: 0,
            control_imm: parts.control_imm,
            inline_min: parts.inline_min as u32,
            inline_max: parts.inline_max.min(INLINE_BYTES_MAX) as u32,
            tso_bytes_max: parts.tso_bytes_max as u32,
            tso_header_max: parts.tso_header_max.min(INLINE_BYTES_MAX) as u32,
            tunnels: parts.tunnels,
            vlan_by_device: parts.features.contains(TxFeatures::VLAN_BY_DEVICE),
            fast_free: parts.features.contains(TxFeatures::FAST_FREE),
            home: None,
            trouble: None,
            counters: Arc::clone(&setup.counters),
            zone: parts.ring,
        };
        (this, parts.hold)
    }

    /// Blocks that can be written.
    #[inline(always)]
    pub(super) fn free_blocks(&self) -> u32 {
        self.ring.free(self.pi)
    }

    /// Packets that can be taken.
    #[inline(always)]
    pub(super) fn free_mbufs(&self) -> u32 {
        self.mbufs.len() as u32 - self.head.wrapping_sub(self.tail)
    }

    /// Packets that were taken and are not known to be sent.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.head.wrapping_sub(self.tail)
    }

    /// Their bytes. Not for the path of packets: it looks at each.
    fn pending_bytes(&self) -> u64 {
        let mask = self.mbufs.len() as u32 - 1;
        let places = (0..self.pending()).map(|at| (self.tail.wrapping_add(at) & mask) as usize);
        let bytes = places.map(|place| {
            // SAFETY: from `tail` up to `head` there are mbufs, which stay this queue's.
            let mbuf = unsafe { ManuallyDrop::new(Mbuf::from_raw(self.mbufs[place].assume_init())) };
            u64::from(mbuf.pkt_len())
        });
        bytes.sum()
    }

    /// Drops the packet that becomes this queue's `ahead` behind the last one: it is not posted, and goes home with its
    /// neighbours.
    #[cold]
    #[inline(never)]
    pub(super) fn drop_taken(&mut self, ahead: u32, bytes: u32, reason: TxDrop) {
        self.counters.drop_for(reason, 1);
        let is_home = |(place, _): &(u32, u32)| place.wrapping_sub(self.tail) >= self.mbufs.len() as u32;
        while self.dropped.front().is_some_and(is_home) {
            self.dropped.pop_front();
        }
        self.dropped.push_back((self.head.wrapping_add(ahead), bytes));
    }

    /// Packets that are on their way, and their bytes.
    fn under_way(&self) -> (u32, u64) {
        let pending = self.pending();
        let here = self.dropped.iter().filter(|(place, _)| place.wrapping_sub(self.tail) < pending);
        let (count, bytes) = here.fold((0, 0), |sum, (_, bytes)| (sum.0 + 1, sum.1 + u64::from(*bytes)));
        (pending - count, self.pending_bytes() - bytes)
    }

    /// Packets that were taken, and given back, in all.
    #[inline(always)]
    pub(super) fn progress(&self) -> (u32, u32) {
        (self.head, self.tail)
    }

    /// The ring, for a dump.
    #[must_use]
    pub fn ring(&self) -> &SendRing {
        &self.ring
    }

    /// The block at a free-running index, for a dump.
    #[must_use]
    pub fn copy_block(&self, index: u32) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        self.zone.copy_out((index & (self.ring.blocks() - 1)) as usize * BLOCK_BYTES, &mut block);
        block
    }

    /// The completion queue, for a dump.
    #[must_use]
    pub fn cq(&self) -> &Cq {
        &self.cq
    }

    /// Ends the entry whose other segments are written: its control segment.
    #[inline(always)]
    pub(super) fn close(&mut self, opcode: u8, segments: u32) {
        self.ring.control(self.pi, opcode, segments, 0, self.control_imm);
        self.last = self.pi;
        self.pi = self.pi.wrapping_add(blocks(segments as usize) as u32);
    }

    /// Takes over the mbufs of the first `count` packets of a burst.
    ///
    /// # Safety
    /// There are so many at `from`, and so many [free](Self::free_mbufs) places; the caller forgets them.
    #[inline(always)]
    pub(super) unsafe fn own(&mut self, from: *const Mbuf, count: u32) {
        let mask = self.mbufs.len() as u32 - 1;
        let at = (self.head & mask) as usize;
        let first = (count as usize).min(self.mbufs.len() - at);
        // SAFETY: the places from `head` on are free; the run is cut at the end of the ring. An `Mbuf` is its address.
        unsafe {
            let to = self.mbufs.as_mut_ptr();
            std::ptr::copy_nonoverlapping(from.cast(), to.add(at), first);
            if first < count as usize {
                std::ptr::copy_nonoverlapping(from.add(first).cast(), to, count as usize - first);
            }
        }
        self.head = self.head.wrapping_add(count);
    }

    /// Looks at mbufs that the queue is about to own: freeing unseen ends for good where one is not a plain one of the pool that
    /// the first one came from. Their headers are hot here and cold when they are free; what is plain stays so, as no one else can
    /// name it.
    #[inline(always)]
    pub(super) fn admit(&mut self, mbufs: &[Mbuf]) {
        if !self.fast_free {
            return;
        }
        let plain = match &self.home {
            Some(pool) => mbufs.iter().fold(true, |plain, mbuf| plain & mbuf.is_plain_of(pool)),
            None => false,
        };
        if !plain {
            self.find_home(mbufs);
        }
    }

    #[cold]
    #[inline(never)]
    fn find_home(&mut self, mbufs: &[Mbuf]) {
        if self.home.is_none() {
            self.home = mbufs.first().and_then(Mbuf::pool);
        }
        self.fast_free =
            self.home.as_ref().is_some_and(|pool| mbufs.iter().all(|mbuf| mbuf.is_plain_of(pool)));
        if !self.fast_free {
            // The pool may end before this queue does.
            self.home = None;
        }
    }

    /// Takes completions and frees what they say is sent.
    #[inline(always)]
    pub(super) fn reap(&mut self) {
        let asked = self.request_head.wrapping_sub(self.request_tail);
        // Completions seen, and requests that they answer.
        let (mut seen, mut done) = (0, 0);
        // SAFETY: the ring is this queue's own, and the entry is read while it is there.
        while let Some(entry) = unsafe { self.cq.peek(seen) } {
            let request = self.request(self.request_tail.wrapping_add(done));
            // A plain completion of sent work, for the entry that was asked for.
            let strange = entry.op_own() >> 2 != completion::REQUESTER << 2
                || done == asked
                || entry.wqe_counter() != request.wqe;
            if strange {
                let Some(later) = self.strange(entry, done, asked) else { break };
                done = later;
            }
            seen += 1;
            done += 1;
        }
        if seen > 0 {
            self.cq.consume(seen);
            self.cq.publish();
            self.request_tail = self.request_tail.wrapping_add(done);
            let request = self.request(self.request_tail.wrapping_sub(1));
            self.ring.give_back(request.blocks);
            self.free(request.mbufs);
        }
    }

    #[inline(always)]
    fn request(&self, index: u32) -> Request {
        self.requests[(index & (self.cq.entries() - 1)) as usize]
    }

    /// A completion that is not of the next request: of which one it is, where one before it was lost (entries complete in
    /// order, so a later one says the same of those before it); else trouble.
    #[cold]
    #[inline(never)]
    fn strange(&mut self, entry: pollux_mlx5_common::cq::Entry, done: u32, asked: u32) -> Option<u32> {
        if entry.op_own() >> 2 == completion::REQUESTER << 2 {
            let is_it =
                |at: &u32| self.request(self.request_tail.wrapping_add(*at)).wqe == entry.wqe_counter();
            let later = (done..asked).find(is_it);
            if later.is_some() {
                return later;
            }
        }
        let copy = entry.copy();
        self.trouble = Some(match entry.opcode() {
            completion::REQUESTER_ERROR | completion::RESPONDER_ERROR => {
                let syndrome = CqeError::of(&copy).map(CqeError::syndrome);
                Trouble::Failed(syndrome.unwrap_or(Syndrome { code: 0, vendor: 0 }))
            }
            completion::REQUESTER if copy.format() != 0 => Trouble::Malformed(MalformedCqe::Format),
            completion::REQUESTER => Trouble::Malformed(MalformedCqe::Counter),
            opcode => Trouble::Malformed(MalformedCqe::Opcode(opcode)),
        });
        None
    }

    /// Frees mbufs up to `to`.
    #[inline(always)]
    fn free(&mut self, to: u32) {
        let mask = self.mbufs.len() as u32 - 1;
        while self.tail != to {
            let at = (self.tail & mask) as usize;
            let count = (to.wrapping_sub(self.tail) as usize).min(self.mbufs.len() - at).min(64);
            // SAFETY: from `tail` up to `head` there are mbufs; they are left behind by the last line.
            unsafe {
                let raws = std::slice::from_raw_parts(self.mbufs.as_ptr().add(at).cast(), count);
                match &self.home {
                    // `admit` saw each.
                    Some(pool) if self.fast_free => pool.give_raw(raws),
                    _ => Mbuf::free_raw(raws),
                }
            }
            self.tail = self.tail.wrapping_add(count as u32);
        }
    }

    /// Ends a burst that wrote entries: asks for a completion where it is time, and posts them.
    #[inline(always)]
    pub(super) fn finish(&mut self) {
        let asked = self.request_head.wrapping_sub(self.request_tail);
        let due = asked == 0
            || self.head.wrapping_sub(self.asked_head) >= self.ask_packets
            || self.pi.wrapping_sub(self.asked_pi) >= self.ask_blocks;
        if due && asked < self.cq.entries() {
            self.ring.flag(self.last, Completion::Always as u8);
            let at = (self.request_head & (self.cq.entries() - 1)) as usize;
            self.requests[at] = Request { wqe: self.last as u16, blocks: self.pi, mbufs: self.head };
            self.request_head = self.request_head.wrapping_add(1);
            (self.asked_pi, self.asked_head) = (self.pi, self.head);
        }
        self.ring.post(self.last, self.pi);
    }

    /// Ends a burst that wrote nothing. Packets that were refused go home where nothing before them is under way.
    #[inline(always)]
    pub(super) fn finish_idle(&mut self) {
        if self.ring.done() == self.pi {
            self.free(self.head);
            self.asked_head = self.head;
        }
    }

    /// Asks for a completion of what is under way and was not asked for, by an entry that does nothing.
    pub(super) fn settle(&mut self) {
        let asked = self.request_head != self.request_tail;
        if asked || self.ring.done() == self.pi || self.free_blocks() == 0 {
            return;
        }
        self.close(send::NOP, 1);
        self.finish();
    }

    /// For a queue of which nothing came back for long: fetches what the lcore did not, and asks for what it did not ask for.
    /// False when there is nothing to be fetched and something was asked for: the device is silent.
    pub(super) fn kick(&mut self) -> bool {
        let before = self.tail;
        self.reap();
        if self.trouble.is_some() {
            return false;
        }
        if self.tail != before || self.pending() == 0 {
            return true;
        }
        let asked = self.request_head != self.request_tail;
        self.settle();
        !asked && self.request_head != self.request_tail
    }

    /// After the device's queue is in error: consumes all completions. How many.
    pub fn drain(&mut self) -> u32 {
        let mut drained = 0;
        // A device that goes on completing must not keep us here.
        while drained < 2 * self.cq.entries() && self.cq.is_ready(self.cq.consumer()) {
            let index = self.cq.consumer();
            self.cq.invalidate(index, index.wrapping_add(1));
            self.cq.consume(1);
            drained += 1;
        }
        self.cq.publish();
        drained
    }

    /// After the device's queue was reset: what was on its way goes home and is counted as refused, indices begin at zero.
    /// How many packets were lost.
    pub fn reset(&mut self) -> u32 {
        let (lost, bytes) = self.under_way();
        self.counters.lose(TxDrop::Refused, u64::from(lost), bytes);
        self.free(self.head);
        self.dropped.clear();
        self.trouble = None;
        self.start_at(0);
        lost
    }

    /// Starts all indices at `at`, with nothing posted; tests see them wrap.
    pub(super) fn start_at(&mut self, at: u32) {
        self.ring.restart(at);
        (self.pi, self.asked_pi, self.last) = (at, at, at);
        (self.head, self.tail, self.asked_head) = (at, at, at);
        (self.request_head, self.request_tail) = (at, at);
    }
}

impl Drop for Sq {
    fn drop(&mut self) {
        self.free(self.head);
    }
}

/// Which offloads of a port become which features of a queue; how entries look (inline, several packets each) is the control
/// half's choice.
#[must_use]
pub fn features(offloads: TxOffloads) -> TxFeatures {
    let mut features = TxFeatures::empty();
    let checksums = TxOffloads::CHECKSUM | TxOffloads::OUTER_IPV4_CKSUM;
    features.set(TxFeatures::MULTI_SEGMENT, offloads.contains(TxOffloads::MULTI_SEGS));
    features.set(TxFeatures::CHECKSUM, offloads.intersects(checksums));
    features.set(TxFeatures::VLAN_INSERT, offloads.contains(TxOffloads::VLAN_INSERT));
    features.set(TxFeatures::TSO, offloads.contains(TxOffloads::TCP_TSO));
    features.set(TxFeatures::FAST_FREE, offloads.contains(TxOffloads::MBUF_FAST_FREE));
    features
}
