//! A completion queue: the ring that the device writes and one lcore reads.
//!
//! An entry is ready when its last two bytes say so ([`Validity`]); only then is the rest read, after a barrier. Entries
//! are read by volatile loads of their fields, never through a reference. What a queue makes of the fields is its own
//! matter: `eth::rx`, `eth::tx`.
#![expect(unsafe_code, reason = "reads entries that a device writes")]

use std::mem::offset_of;
use std::ptr::NonNull;

use pollux_eal::barrier;
use pollux_eal::region::Zone;
use pollux_mlx5_abi::cqe::{self, Cqe64, CqeError, Validity, part};
use pollux_mlx5_abi::doorbell::{ArmWord, INDEX_24};
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;
use zerocopy::IntoBytes;

use crate::dbrec::{DoorbellRecord, FIRST, SECOND};
use crate::uar::Arm;

/// What a completion queue is made of.
#[derive(Debug)]
pub struct CqParts {
    /// The ring: `cqe_bytes << entries_log2` bytes.
    pub ring: Zone,
    /// Entries, as a power of two.
    pub entries_log2: u8,
    /// 64 or 128.
    pub cqe_bytes: usize,
    /// The device was asked for the enhanced layout: entries say their pass of the ring, not an owner bit.
    pub enhanced: bool,
    /// The record for consumer index and arm word.
    pub dbrec: DoorbellRecord,
    /// The device's number for it.
    pub cqn: u32,
    /// Where it is armed; `None`: no interrupts.
    pub arm: Option<Arm>,
}

impl CqParts {
    /// Makes every entry of the ring one that nobody has written yet. It comes before the device learns of the ring: what
    /// is fresh to the device must look so to us.
    ///
    /// # Panics
    /// When the ring is shorter than it says.
    pub fn freshen(&mut self) {
        let last = [cqe::FRESH_PASS, cqe::FRESH];
        for entry in 1..=1_usize << self.entries_log2 {
            self.ring.copy_in(entry * self.cqe_bytes - 2, &last);
        }
    }
}

/// The place of `op_own` in an entry of 64 bytes.
const OP_OWN: usize = offset_of!(Cqe64, op_own);
/// The place of the pass, in the enhanced layout.
const PASS: usize = offset_of!(Cqe64, signature);

const _: () = assert!(PASS.is_multiple_of(2) && PASS + 1 == OP_OWN);

const _: () = assert!(
    offset_of!(CqeError, syndrome) == offset_of!(Cqe64, timestamp) + 7
        && offset_of!(CqeError, vendor_err_synd) == offset_of!(Cqe64, timestamp) + 6
);

/// A completion queue, at work.
#[derive(Debug)]
pub struct Cq {
    /// The last 64 bytes of entry 0.
    base: NonNull<u8>,
    /// Bytes of an entry, as a power of two.
    stride_log: u8,
    log: u8,
    /// Entries in the ring, less one.
    mask: u32,
    validity: Validity,
    /// Entries consumed in all.
    consumer: u32,
    arm_sequence: u8,
    parts: CqParts,
}

// SAFETY: the ring belongs to no thread, and the zone that this owns is the only right to it.
unsafe impl Send for Cq {}

/// A look at a completion queue from outside.
#[derive(Debug)]
pub struct View {
    base: NonNull<u8>,
    stride: usize,
    log: u8,
    validity: Validity,
    consumer: NonNull<u32>,
}

// SAFETY: it only reads, by volatile loads, what belongs to no thread.
unsafe impl Send for View {}

impl View {
    /// Entries in the ring.
    #[must_use]
    pub fn entries(&self) -> u32 {
        1 << self.log
    }

    /// How many entries the device has written that were not consumed, as far as the record says. Looks at each of them.
    ///
    /// # Safety
    /// As [`end`](Self::end).
    #[must_use]
    pub unsafe fn waiting(&self) -> u32 {
        // SAFETY: by the caller.
        let (consumer, end) = unsafe { self.span() };
        end.wrapping_sub(consumer) & INDEX_24
    }

    /// The index behind the last entry that the device has written, in 24 bits.
    ///
    /// # Safety
    /// Ring and record are there, and the ring is the queue's.
    pub unsafe fn end(&self) -> u32 {
        // SAFETY: by the caller.
        unsafe { self.span() }.1
    }

    /// The consumer's index as the record has it, and the index behind the last entry written, in 24 bits.
    ///
    /// # Safety
    /// As [`end`](Self::end).
    unsafe fn span(&self) -> (u32, u32) {
        // SAFETY: by the caller.
        let consumer = u32::from_be(unsafe { self.consumer.read_volatile() }) & INDEX_24;
        let mut index = consumer;
        for _ in 0..1_u32 << self.log {
            let slot = (index & ((1 << self.log) - 1)) as usize;
            // SAFETY: by the caller; the slot is below the number of entries.
            let word = unsafe { last_word(self.base.add(slot * self.stride)) };
            if !self.validity.is_ready(word, index, self.log) {
                break;
            }
            index = index.wrapping_add(1) & INDEX_24;
        }
        (consumer, index)
    }
}

/// The last two bytes of an entry, `op_own` above.
///
/// # Safety
/// The place is an entry's.
#[inline(always)]
unsafe fn last_word(place: NonNull<u8>) -> u16 {
    // SAFETY: inside the entry by the caller, and aligned as it is; a volatile load bears a device that writes.
    u16::from_le(unsafe { place.add(PASS).cast::<u16>().read_volatile() })
}

/// Where an entry is, ready and to be read.
#[derive(Clone, Copy, Debug)]
pub struct Entry(NonNull<u8>);

impl Cq {
    /// The queue over its parts, nothing consumed.
    ///
    /// # Panics
    /// When the entries are neither 64 nor 128 bytes, or do not fill the ring, or are more than 2^22: it is our mistake.
    #[must_use]
    pub fn new(parts: CqParts) -> Self {
        let bytes = parts.cqe_bytes;
        assert!(bytes == 64 || bytes == 128, "completions of {bytes} bytes");
        assert!(parts.entries_log2 <= 22, "2^{} completions", parts.entries_log2);
        assert!(parts.ring.bytes() >= bytes << parts.entries_log2, "a ring shorter than its entries");
        // SAFETY: an entry is 64 bytes or more.
        let base = unsafe { parts.ring.base().add(bytes - 64) };
        let validity = if parts.enhanced { Validity::ENHANCED } else { Validity::BASIC };
        let (log, stride_log) = (parts.entries_log2, bytes.ilog2() as u8);
        Self { base, stride_log, log, mask: (1 << log) - 1, validity, consumer: 0, arm_sequence: 0, parts }
    }

    /// The device's number for it.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.parts.cqn
    }

    /// Entries in the ring.
    #[must_use]
    #[inline(always)]
    pub fn entries(&self) -> u32 {
        1 << self.log
    }

    /// Entries in the ring, as a power of two.
    #[inline(always)]
    pub fn log(&self) -> u8 {
        self.log
    }

    /// Entries consumed in all.
    #[must_use]
    #[inline(always)]
    pub fn consumer(&self) -> u32 {
        self.consumer
    }

    /// The last 64 bytes of the place of a free-running index.
    #[inline(always)]
    pub fn place(&self, index: u32) -> NonNull<u8> {
        let slot = (index & self.mask) as usize;
        // SAFETY: `slot` is below the number of entries, which fill the ring (`new`).
        unsafe { self.base.add(slot << self.stride_log) }
    }

    /// How its entries say that they are ready.
    #[inline(always)]
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Whether it has the enhanced layout.
    #[inline(always)]
    pub fn is_enhanced(&self) -> bool {
        self.validity == Validity::ENHANCED
    }

    /// Whether the entry at a free-running index is ready.
    #[inline(always)]
    pub fn is_ready(&self, index: u32) -> bool {
        self.is_ready_at(self.place(index), index)
    }

    #[inline(always)]
    fn is_ready_at(&self, place: NonNull<u8>, index: u32) -> bool {
        // SAFETY: the callers' places are entries'.
        let word = unsafe { last_word(place) };
        self.validity.is_ready(word, index, self.log)
    }

    /// The next entry, `ahead` behind the first that was not consumed, if the device has written it. Hot: one load and two
    /// comparisons.
    ///
    /// # Safety
    /// The entry is read while the queue's ring is there.
    #[inline(always)]
    pub unsafe fn peek(&self, ahead: u32) -> Option<Entry> {
        let index = self.consumer.wrapping_add(ahead);
        let place = self.place(index);
        if !self.is_ready_at(place, index) {
            return None;
        }
        barrier::from_device();
        // SAFETY: `place` is an entry's; the ring, by the caller.
        Some(unsafe { Entry::at(place) })
    }

    /// Asks for the line of the place `ahead` behind the first that was not consumed: the device has written it past this
    /// processor's own caches. Hot: an instruction that waits for nothing.
    #[inline(always)]
    pub fn prefetch(&self, ahead: u32) {
        barrier::prefetch_read(self.place(self.consumer.wrapping_add(ahead)).as_ptr());
    }

    /// As [`prefetch`](Self::prefetch), of `N` places in a row. Those past the ring's end, which are no places, cost as much.
    #[inline(always)]
    pub fn prefetch_run<const N: usize>(&self, ahead: u32) {
        let first = self.place(self.consumer.wrapping_add(ahead)).as_ptr();
        (0..N).for_each(|next| barrier::prefetch_read(first.wrapping_add(next << self.stride_log)));
    }

    /// The `N` places from that of a free-running index on.
    ///
    /// # Safety
    /// None of them is behind the ring's end.
    #[inline(always)]
    pub unsafe fn run<const N: usize>(&self, index: u32) -> [NonNull<u8>; N] {
        let first = self.place(index);
        // SAFETY: in the ring, by the caller.
        std::array::from_fn(|next| unsafe { first.add(next << self.stride_log) })
    }

    /// Address of the byte of the next entry by which it becomes ready, what stands there, and whether that makes it ready.
    pub fn next_word(&self) -> (usize, u8, bool) {
        let place = self.place(self.consumer);
        // SAFETY: `place` is an entry's.
        let word = unsafe { last_word(place) };
        let (at, value) = if self.is_enhanced() { (PASS, word as u8) } else { (OP_OWN, (word >> 8) as u8) };
        (place.as_ptr().addr() + at, value, self.validity.is_ready(word, self.consumer, self.log))
    }

    /// How many places of the ring an entry takes up.
    #[inline(always)]
    pub fn places(&self, entry: Entry) -> u32 {
        let op_own = entry.op_own();
        if part::format(op_own) != cqe::format::COMPRESSED {
            1
        } else if self.is_enhanced() {
            cqe::enhanced_minis(op_own).min(self.entries())
        } else {
            entry.byte_cnt().clamp(1, self.entries())
        }
    }

    /// Gives `count` places back, without telling the device yet.
    #[inline(always)]
    pub fn consume(&mut self, count: u32) {
        self.consumer = self.consumer.wrapping_add(count);
    }

    /// Tells the device how far entries have been consumed.
    #[inline(always)]
    pub fn publish(&mut self) {
        // The loads of the entries come before the store that gives their places away.
        barrier::to_device();
        self.parts.dbrec.store(FIRST, self.consumer & INDEX_24);
    }

    /// Makes the places from `from` up to `to` ones that the device has not written in this pass or the next: what stood
    /// there is a compressed array, or left from an earlier pass, and could be taken for ready.
    #[inline]
    pub fn invalidate(&mut self, from: u32, to: u32) {
        let mut index = from;
        while index != to {
            let parity = (index >> self.log & 1) as u8;
            // Up to the end of the ring, where the parity changes.
            let run = (self.entries() - (index & self.mask)).min(to.wrapping_sub(index));
            let first = self.place(index);
            for place in 0..run as usize {
                // SAFETY: inside the ring; the device writes there only when the place has been given back.
                unsafe {
                    let op_own = first.add((place << self.stride_log) + OP_OWN);
                    op_own.write_volatile(completion::INVALID << 4 | parity);
                }
            }
            index = index.wrapping_add(run);
        }
    }

    /// Starts the index at `at`, all places fresh, so that tests see it wrap.
    #[doc(hidden)]
    pub fn start_at(&mut self, at: u32) {
        self.consumer = at;
        self.invalidate(at.wrapping_sub(self.entries()), at);
        self.publish();
    }

    /// Where somebody else can see how far the device has got, as long as ring and record are there and the queue does not
    /// [move](Self::move_to).
    pub fn view(&self) -> View {
        let consumer = self.parts.dbrec.place(FIRST);
        View { base: self.base, stride: self.stride(), log: self.log, validity: self.validity, consumer }
    }

    /// The number of 64 or 128 bytes that an entry has.
    pub fn stride(&self) -> usize {
        1 << self.stride_log
    }

    /// Goes on in another ring, with what the old one holds up to the entry that says so. That entry's place goes with it:
    /// what stood at an index stands at the next one. The old ring, if the device has gone over. Source: rdma-core
    /// `providers/mlx5/cq.c`, `mlx5_cq_resize_copy_cqes`.
    ///
    /// # Errors
    /// The new ring: the device has not gone over yet, or what it left does not fit.
    ///
    /// # Panics
    /// When the ring is shorter than its entries, or the queue has the enhanced layout: it is our mistake.
    pub fn move_to(&mut self, mut ring: Zone, log: u8) -> Result<Zone, Zone> {
        assert!(ring.bytes() >= self.stride() << log, "a ring shorter than its entries");
        assert!(!self.is_enhanced(), "entries that say a pass of this ring");
        let mut index = self.consumer;
        loop {
            if index.wrapping_sub(self.consumer) >= self.entries() || !self.is_ready(index) {
                return Err(ring);
            }
            barrier::from_device();
            let mut entry = self.copy_out(index);
            if entry.opcode() == completion::RESIZE_CQ {
                break;
            }
            index = index.wrapping_add(1);
            if index.wrapping_sub(self.consumer) > 1 << log {
                return Err(ring);
            }
            entry.op_own = entry.op_own & !cqe::OWNER | (index >> log & 1) as u8;
            let slot = (index & ((1 << log) - 1)) as usize;
            ring.copy_in(slot * self.stride() + self.stride() - 64, entry.as_bytes());
        }
        // SAFETY: an entry is 64 bytes or more.
        self.base = unsafe { ring.base().add(self.stride() - 64) };
        (self.log, self.mask) = (log, (1 << log) - 1);
        self.consumer = self.consumer.wrapping_add(1);
        self.parts.entries_log2 = log;
        let old = std::mem::replace(&mut self.parts.ring, ring);
        self.publish();
        Ok(old)
    }

    /// Asks for an interrupt at the next completion. `false` where there is none to be had.
    ///
    /// One that is ready already makes no new one: look once more after arming, before waiting.
    /// Source: rdma-core `providers/mlx5/cq.c`, `mlx5_arm_cq`.
    pub fn arm(&mut self, solicited_only: bool) -> bool {
        let Some(arm) = &self.parts.arm else { return false };
        let word = ArmWord { sequence: self.arm_sequence, solicited_only, consumer: self.consumer };
        self.parts.dbrec.store(SECOND, word.word());
        barrier::wc_flush();
        arm.store(u64::from_ne_bytes(word.register(self.parts.cqn)));
        true
    }

    /// An event was taken: the next arm is a new one and not a repetition.
    pub fn event_taken(&mut self) {
        self.arm_sequence = self.arm_sequence.wrapping_add(1) & 3;
    }

    /// The bytes of the entry at a free-running index, ready or not, for a dump.
    #[must_use]
    pub fn copy_out(&self, index: u32) -> Cqe64 {
        let mut bytes = [0_u8; 64];
        for (at, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: inside the entry; volatile loads bear a device that writes.
            *byte = unsafe { self.place(index).add(at).read_volatile() };
        }
        zerocopy::transmute!(bytes)
    }
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        impl Entry {
            $($(#[$doc])*
            #[must_use]
            #[inline(always)]
            pub fn $name(self) -> $type {
                // SAFETY: the field is inside the entry, aligned as the entry is to 64; `Entry` is made of places in a
                // ring that lives as long as the burst. A volatile load bears a device that does what it must not.
                <$type>::from_be(unsafe {
                    self.0.add(offset_of!(Cqe64, $name)).cast::<$type>().read_volatile()
                })
            }
            )*
        }
    };
}

fields! {
    /// A mask of [`cqe::packet`].
    pkt_info: u8;
    /// Of a striding ring: the receive entry.
    wqe_id: u16;
    /// Of joined segments: a mask of [`cqe::lro`].
    lro_tcppsh_abort_dupack: u8;
    /// Of joined segments: the least time to live.
    lro_min_ttl: u8;
    /// Of joined segments: the last window.
    lro_tcp_win: u16;
    /// Of joined segments: the last acknowledgement.
    lro_ack_seq_num: u32;
    /// The hash that chose the queue.
    rss_hash_result: u32;
    /// What was hashed.
    rss_hash_type: u8;
    /// Sum over all behind the Ethernet header.
    check_sum: u16;
    /// A mask of [`cqe::status`].
    hds_ip_ext: u8;
    /// A mask of [`cqe::packet`].
    l4_l3_hdr_type: u8;
    /// The tag that was taken off.
    vlan_info: u16;
    /// Path bits of the destination.
    ml_path: u8;
    /// LID of the source.
    slid: u16;
    /// Global header, service level, and queue pair of the source.
    flags_rqpn: u32;
    /// Shared receive queue, or what the user called the queue.
    srqn_uidx: u32;
    /// Immediate data, invalidated key or partition key.
    imm_inval_pkey: u32;
    /// Bytes, or strides, or packets of a compressed title.
    byte_cnt: u32;
    /// When, in ticks.
    timestamp: u64;
    /// Opcode or drop counter, and queue or flow tag.
    sop_drop_qpn: u32;
    /// Which entry of the work queue.
    wqe_counter: u16;
    /// Opcode, format, solicited, owner.
    op_own: u8;
}

impl Entry {
    /// The entry at a place of a ring.
    ///
    /// # Safety
    /// There are 64 bytes of an entry, aligned to 64, as long as this is read.
    #[inline(always)]
    #[must_use]
    pub unsafe fn at(place: NonNull<u8>) -> Self {
        Self(place)
    }

    /// What it reports: one of [`completion`], or nonsense.
    #[must_use]
    #[inline(always)]
    pub fn opcode(self) -> u8 {
        part::opcode(self.op_own())
    }

    /// One of [`cqe::format`].
    #[must_use]
    #[inline(always)]
    pub fn format(self) -> u8 {
        part::format(self.op_own())
    }

    /// The queue pair or send queue, or the tag of the rule that took a frame.
    #[must_use]
    #[inline(always)]
    pub fn number(self) -> u32 {
        part::number(self.sop_drop_qpn())
    }

    /// Of work that was sent: one of [`send`](pollux_mlx5_abi::opcode::send).
    #[must_use]
    #[inline(always)]
    pub fn send_opcode(self) -> u8 {
        part::send_opcode(self.sop_drop_qpn())
    }

    /// The shared receive queue, or what the user called the queue.
    #[must_use]
    #[inline(always)]
    pub fn user_index(self) -> u32 {
        part::user_index(self.srqn_uidx())
    }

    /// Of a failure: why.
    #[must_use]
    pub fn syndrome(self) -> Syndrome {
        // The two bytes stand where a plain entry has the low half of its time.
        let [.., vendor, code] = self.timestamp().to_be_bytes();
        Syndrome { code, vendor }
    }

    /// All 64 bytes.
    #[must_use]
    pub fn copy(self) -> Cqe64 {
        let mut words = [0_u64; 8];
        for (at, word) in words.iter_mut().enumerate() {
            // SAFETY: as in the fields.
            *word = unsafe { self.0.cast::<u64>().add(at).read_volatile() };
        }
        zerocopy::transmute!(words)
    }
}

#[cfg(test)]
mod tests {
    use pollux_eal::region::Region;

    use super::*;
    use crate::dbrec::DoorbellRecords;

    fn zone(bytes: usize) -> Zone {
        Region::anonymous("completions", bytes).expect("memory").into_zone()
    }

    fn fresh(entries_log2: u8) -> CqParts {
        let dbrec = DoorbellRecords::new(zone(4096)).take().expect("a record");
        let ring = zone(64 << entries_log2);
        let mut parts =
            CqParts { ring, entries_log2, cqe_bytes: 64, enhanced: false, dbrec, cqn: 1, arm: None };
        parts.freshen();
        parts
    }

    /// What the device writes at an index.
    fn complete(ring: &mut Zone, log: u8, index: u32, opcode: u8, counter: u16) {
        let mut entry = Cqe64::fresh();
        entry.wqe_counter = counter.into();
        entry.op_own = opcode << 4 | (index >> log & 1) as u8;
        ring.copy_in((index & ((1 << log) - 1)) as usize * 64, entry.as_bytes());
    }

    #[test]
    fn what_stood_in_the_old_ring_stands_in_the_new_one() {
        for start in [0_u32, 6, 13, 0xff_fffe, u32::MAX - 2] {
            let mut cq = Cq::new(fresh(3));
            cq.start_at(start);
            for ahead in 0..4 {
                complete(
                    &mut cq.parts.ring,
                    3,
                    start.wrapping_add(ahead),
                    completion::REQUESTER,
                    ahead as u16,
                );
            }
            let mut new = fresh(5).ring;
            // Nothing says yet that the device goes on elsewhere.
            new = cq.move_to(new, 5).expect_err("not yet");
            assert_eq!((cq.entries(), cq.consumer()), (8, start));
            complete(&mut cq.parts.ring, 3, start.wrapping_add(4), completion::RESIZE_CQ, 0);
            // The device writes the next one in the new ring.
            complete(&mut new, 5, start.wrapping_add(5), completion::REQUESTER, 4);
            // All others of this pass must look unwritten, whatever the pass.
            for index in (0..32).map(|ahead| start.wrapping_add(6 + ahead)).take(27) {
                let parity = (index >> 5 & 1) as u8 ^ 1;
                new.copy_in((index & 31) as usize * 64 + 63, &[completion::INVALID << 4 | parity]);
            }
            cq.move_to(new, 5).expect("it went over");
            let mut seen = Vec::new();
            // SAFETY: the queue stands above.
            while let Some(entry) = unsafe { cq.peek(0) } {
                seen.push(entry.wqe_counter());
                cq.consume(1);
            }
            assert_eq!(seen, [0, 1, 2, 3, 4], "from {start:#x}");
            cq.publish();
            // SAFETY: ring and record are the queue's, which lives.
            assert_eq!(unsafe { cq.view().end() }, cq.consumer() & INDEX_24);
        }
    }
}
