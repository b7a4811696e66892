//! Polling: one completion queue for many queue pairs and both directions.
//!
//! ```text
//!   poll ── peek: owner bit ── barrier ── whose? (the last one's, else looked up) ── note of the entry ── Wc ── each(wc)
//!     └ once: consumer record                                                                              │
//!                                                              places given back with release  ◄── drop ───┘
//! ```
//!
//! Queue pairs come and go by messages, of which a version tells: it is looked at once a completion, so that one of a queue
//! made a moment ago finds it. A queue pair that was destroyed stays known until the completions that it had made are
//! passed; they are skipped. No system call, no allocation (messages apart), no lock.
#![expect(
    unsafe_code,
    reason = "reads entries that the device writes, and hands the ring over when it is dropped"
)]

pub(super) mod home;
pub(super) mod target;

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_mlx5_abi::cqe::{FLAGS_GRH, Layer3, format, packet, part, status};
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;

use super::post::shared::Claim;
use super::post::track::Taken;
use super::status::{WcOpcode, WcStatus};
use crate::mr::Piece;
use home::{Home, Message};
use pollux_mlx5_common::cq::{Cq, Entry};
use target::{Receiver, SRQ_KEY, Target};

/// The half of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Poller {
    pub(crate) cq: ManuallyDrop<Cq>,
    home: Arc<Home>,
    version: u32,
    indexed: bool,
    targets: Vec<Target>,
    /// Where the last one was found.
    last: usize,
    /// Some are known only up to here.
    gone: bool,
    strange: Strange,
}

/// Completions that are of no request.
#[derive(Clone, Copy, Debug, Default)]
struct Strange {
    count: u64,
    /// Of the last one.
    opcode: u8,
    number: u32,
}

impl Strange {
    #[cold]
    #[inline(never)]
    fn note(&mut self, opcode: u8, number: u32) {
        *self = Self { count: self.count.wrapping_add(1), opcode, number };
    }
}

impl std::fmt::Display for Strange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = completion::name(self.opcode).unwrap_or("unknown");
        write!(
            f,
            "{} completions of no request were skipped, the last with opcode {:#x} ({name}) of queue {:#x}; update the \
             firmware, or reset the queue if requests stay open",
            self.count, self.opcode, self.number
        )
    }
}

impl Poller {
    pub(crate) fn new(cq: Cq, home: Arc<Home>, indexed: bool) -> Self {
        Self {
            cq: ManuallyDrop::new(cq),
            home,
            version: 0,
            indexed,
            targets: Vec::new(),
            last: 0,
            gone: false,
            strange: Strange::default(),
        }
    }

    pub(crate) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// Completions that made no sense, and were skipped.
    #[must_use]
    pub(crate) fn strange(&self) -> u64 {
        self.strange.count
    }

    /// Asks for an event at the next completion, or the next solicited one. `false` where there are none to be had. One that
    /// is there already makes none: poll once more before waiting.
    pub(crate) fn arm(&mut self, solicited_only: bool) -> bool {
        self.cq.arm(solicited_only)
    }

    /// Says that an event was taken: the next [`arm`](Self::arm) is a new one.
    pub(crate) fn event_taken(&mut self) {
        self.cq.event_taken();
    }

    /// Takes in what came and went.
    #[cold]
    #[inline(never)]
    fn follow(&mut self) {
        // Acquire pairs with the Release in `Home::tell`. The version first: a message in between makes us come again.
        self.version = self.home.version.load(Ordering::Acquire);
        let now = self.cq.consumer();
        self.targets.retain(|target| target.until.is_none_or(|until| (now.wrapping_sub(until) as i32) < 0));
        for message in self.home.take_messages() {
            match message {
                Message::Came(target) => {
                    let at = self.targets.partition_point(|other| other.key < target.key);
                    self.targets.insert(at, target);
                }
                Message::Went(serial, end) => {
                    if let Some(target) = self.targets.iter_mut().find(|target| target.serial == serial) {
                        // From 24 bits to those that count here.
                        let ahead = (end.wrapping_sub(now) << 8) as i32 >> 8;
                        target.until = Some(now.wrapping_add_signed(ahead));
                    }
                }
            }
        }
        self.gone = self.targets.iter().any(|target| target.until.is_some());
        self.last = usize::MAX;
    }

    /// Forgets those whose completions are passed: what they left behind goes home.
    #[cold]
    #[inline(never)]
    fn forget_gone(&mut self) {
        let now = self.cq.consumer();
        let is_passed = |until: u32| now.wrapping_sub(until) as i32 >= 0;
        self.targets.retain(|target| !target.until.is_some_and(is_passed));
        self.gone = self.targets.iter().any(|target| target.until.is_some());
        self.last = usize::MAX;
    }

    /// Where the target of that name stands.
    #[inline(always)]
    fn find(&mut self, key: u32) -> Option<usize> {
        if let Some(target) = self.targets.get(self.last)
            && target.key == key
            && target.until.is_none()
        {
            return Some(self.last);
        }
        self.search(key)
    }

    #[inline(never)]
    fn search(&mut self, key: u32) -> Option<usize> {
        let first = self.targets.partition_point(|target| target.key < key);
        let same = self.targets[first..].iter().take_while(|target| target.key == key);
        // One that is gone goes before the one that has its name now, up to where it was told so. The entry in question is
        // consumed already.
        let index = self.cq.consumer().wrapping_sub(1);
        let before =
            |target: &Target| target.until.is_some_and(|until| (index.wrapping_sub(until) as i32) < 0);
        let (mut live, mut gone) = (None, None);
        for (at, target) in same.enumerate() {
            match target.until {
                None => live = Some(first + at),
                Some(_) if before(target) => gone = gone.or(Some(first + at)),
                Some(_) => {}
            }
        }
        if gone.is_none() {
            // Those that are gone for good make every search longer: out with them at the next change.
            self.last = live.unwrap_or(usize::MAX);
        }
        gone.or(live)
    }
}

impl Poller {
    /// Takes up to `max` completions, calling `each` with every one. How many.
    #[inline]
    pub(crate) fn poll(&mut self, max: usize, mut each: impl FnMut(&mut Wc<'_>)) -> usize {
        let mut taken = 0;
        let mut consumed = false;
        while taken < max {
            // SAFETY: the ring is this poller's own, and the entry is read while it is there.
            let Some(entry) = (unsafe { self.cq.peek(0) }) else { break };
            self.cq.consume(1);
            consumed = true;
            // Acquire pairs with the Release in `Home::tell`: what the device completed was told before it was posted.
            if self.home.version.load(Ordering::Acquire) != self.version {
                self.follow();
            }
            // Apart from the rest, so that what most completions are stays in registers.
            if let Some(mut wc) = self.sent(entry) {
                taken += 1;
                each(&mut wc);
            } else if let Some(mut wc) = self.completion(entry) {
                taken += 1;
                each(&mut wc);
            }
        }
        if consumed {
            self.cq.publish();
        } else if self.home.version.load(Ordering::Acquire) != self.version {
            // Nothing is there: what queues that are gone left behind goes home.
            self.follow();
        }
        if self.gone {
            self.forget_gone();
        }
        taken
    }

    /// A request that was carried out. None of anything else, and of what a queue pair left that is gone.
    #[inline(always)]
    fn sent(&mut self, entry: Entry) -> Option<Wc<'_>> {
        let op_own = entry.op_own();
        if part::opcode(op_own) != completion::REQUESTER || part::format(op_own) != format::PLAIN {
            return None;
        }
        let key = if self.indexed { entry.user_index() } else { entry.number() };
        let at = self.find(key)?;
        let target = &mut self.targets[at];
        if target.until.is_some() {
            return None;
        }
        let send = target.send.as_mut()?;
        let note = send.find(entry.wqe_counter())?;
        let from = From::Send(send.take(&note), note.extra);
        Some(Wc {
            entry,
            opcode: completion::REQUESTER,
            id: note.id,
            number: target.number,
            from,
            left: None,
        })
    }

    #[inline(never)]
    fn completion(&mut self, entry: Entry) -> Option<Wc<'_>> {
        let op_own = entry.op_own();
        let opcode = part::opcode(op_own);
        let requester = opcode == completion::REQUESTER || opcode == completion::REQUESTER_ERROR;
        let (number, index) = (entry.number(), entry.user_index());
        let key = if self.indexed { index } else { number };
        let mut found = self.find(key);
        if found.is_none() && !self.indexed && !requester && index != 0 {
            found = self.find(index | SRQ_KEY);
        }
        let Self { targets, strange, .. } = self;
        let Some(at) = found else {
            if opcode != completion::RESIZE_CQ {
                strange.note(opcode, number);
            }
            return None;
        };
        let target = &mut targets[at];
        if target.until.is_some() {
            return None;
        }
        let counter = entry.wqe_counter();
        // Neither compressed nor with data in it: nobody asked for that.
        let plain = part::format(op_own) == format::PLAIN;
        let (id, from, number) = match opcode {
            completion::REQUESTER | completion::REQUESTER_ERROR => {
                match target.send.as_mut().and_then(|send| Some((send.find(counter)?, send))) {
                    Some((note, send)) if plain => {
                        (note.id, From::Send(send.take(&note), note.extra), target.number)
                    }
                    _ => return malformed(strange, entry),
                }
            }
            completion::RESPONDER_RDMA_WRITE_IMM
            | completion::RESPONDER_SEND
            | completion::RESPONDER_SEND_IMM
            | completion::RESPONDER_SEND_INVAL
            | completion::RESPONDER_ERROR => {
                // The entry names the receive queue of a raw queue pair, which has a number of its own.
                let own = match &mut target.recv {
                    Receiver::Own(recv) => recv
                        .find_receive(counter)
                        .map(|note| (note.id, From::Own(recv.take(&note), note.extra), target.number)),
                    Receiver::Shared(recv) => {
                        recv.claim(counter).map(|claim| (claim.id, From::Shared(claim), number))
                    }
                    Receiver::None => None,
                };
                match own {
                    Some(own) if plain => own,
                    _ => return malformed(strange, entry),
                }
            }
            _ => return malformed(strange, entry),
        };
        if matches!(opcode, completion::REQUESTER_ERROR | completion::RESPONDER_ERROR) {
            target.errors.count(WcStatus::of(entry.syndrome()));
        }
        Some(Wc { entry, opcode, id, number, from, left: None })
    }
}

#[cold]
#[inline(never)]
fn malformed<W>(strange: &mut Strange, entry: Entry) -> Option<W> {
    strange.note(entry.opcode(), entry.number());
    None
}

impl Drop for Poller {
    fn drop(&mut self) {
        if self.strange.count > 0 {
            tracing::warn!(target: "pmd.common.mlx5", "completion queue {:#x}: {}", self.cq.number(), self.strange);
        }
        // SAFETY: once, and not used again. It moves to whoever destroys the device's queue, after the last queue pair.
        let cq = unsafe { ManuallyDrop::take(&mut self.cq) };
        self.home.leave(cq);
    }
}

enum From<'c> {
    /// With 1 if it invalidated a key.
    Send(Taken<'c, Piece>, u32),
    Own(Taken<'c, Piece>, u32),
    Shared(Claim<'c, Piece>),
}

/// A completion. Fields are read from the device's entry when they are asked for. What the request took along is there to be
/// [taken](Self::take); the rest goes home.
pub(crate) struct Wc<'c> {
    entry: Entry,
    opcode: u8,
    id: u64,
    number: u32,
    from: From<'c>,
    /// Bytes received that no piece has been told of, once the first was taken.
    left: Option<u32>,
}

impl std::fmt::Debug for Wc<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wc")
            .field("id", &self.id)
            .field("number", &self.number)
            .field("opcode", &completion::name(self.opcode))
            .finish_non_exhaustive()
    }
}

impl Wc<'_> {
    /// The word that the request was posted with.
    #[must_use]
    #[inline(always)]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The queue pair's number.
    #[must_use]
    #[inline(always)]
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Of work that was sent: one of [`send`](pollux_mlx5_abi::opcode::send).
    #[must_use]
    #[inline(always)]
    pub(crate) fn send_opcode(&self) -> u8 {
        self.entry.send_opcode()
    }

    /// Whether it is a receive.
    #[must_use]
    #[inline(always)]
    pub(crate) fn is_receive(&self) -> bool {
        !matches!(self.from, From::Send(..))
    }

    /// Why it failed, if it did.
    #[must_use]
    #[inline(always)]
    pub(crate) fn syndrome(&self) -> Option<Syndrome> {
        matches!(self.opcode, completion::REQUESTER_ERROR | completion::RESPONDER_ERROR)
            .then(|| self.entry.syndrome())
    }

    /// How it ended.
    #[must_use]
    #[inline(always)]
    pub(crate) fn status(&self) -> WcStatus {
        self.syndrome().map_or(WcStatus::SUCCESS, WcStatus::of)
    }

    /// What it is of. Of a failed receive this says nothing but that.
    #[must_use]
    #[inline(always)]
    pub(crate) fn operation(&self) -> WcOpcode {
        match self.opcode {
            completion::REQUESTER | completion::REQUESTER_ERROR => match self.from {
                From::Send(_, 1) => WcOpcode::LOCAL_INV,
                _ => WcOpcode::of_send(self.send_opcode()),
            },
            completion::RESPONDER_RDMA_WRITE_IMM => WcOpcode::RECV_RDMA_WITH_IMM,
            _ => WcOpcode::RECV,
        }
    }

    /// Immediate data, if it carries some.
    #[must_use]
    #[inline(always)]
    pub(crate) fn imm(&self) -> Option<u32> {
        use completion::{RESPONDER_RDMA_WRITE_IMM, RESPONDER_SEND_IMM};
        let carries = matches!(self.opcode, RESPONDER_RDMA_WRITE_IMM | RESPONDER_SEND_IMM);
        carries.then(|| self.entry.imm_inval_pkey())
    }

    /// The key of ours that the message invalidated, if it did.
    #[must_use]
    #[inline(always)]
    pub(crate) fn invalidated(&self) -> Option<u32> {
        (self.opcode == completion::RESPONDER_SEND_INVAL).then(|| self.entry.imm_inval_pkey())
    }

    /// The vendor's code of an error; 0 of a success.
    #[must_use]
    #[inline(always)]
    pub(crate) fn vendor_error(&self) -> u32 {
        self.syndrome().map_or(0, |syndrome| syndrome.vendor.into())
    }

    /// Bytes received, or read from the peer.
    #[must_use]
    #[inline(always)]
    pub(crate) fn bytes(&self) -> u32 {
        self.entry.byte_cnt()
    }

    /// The sender's queue pair, of a datagram.
    #[must_use]
    #[inline(always)]
    pub(crate) fn source(&self) -> u32 {
        part::source(self.entry.flags_rqpn())
    }

    /// Whether 40 bytes of global header stand before a datagram.
    #[must_use]
    #[inline(always)]
    pub(crate) fn has_global_header(&self) -> bool {
        self.entry.flags_rqpn() & FLAGS_GRH != 0
    }

    /// Service level.
    #[must_use]
    #[inline(always)]
    pub(crate) fn service_level(&self) -> u8 {
        part::service_level(self.entry.flags_rqpn())
    }

    /// Local identifier of the sender.
    #[must_use]
    #[inline(always)]
    pub(crate) fn source_lid(&self) -> u16 {
        self.entry.slid()
    }

    /// When it happened, in ticks of the device.
    #[must_use]
    #[inline(always)]
    pub(crate) fn timestamp(&self) -> u64 {
        self.entry.timestamp()
    }

    /// Whether the sender asked for an event.
    #[must_use]
    #[inline(always)]
    pub(crate) fn is_solicited(&self) -> bool {
        part::solicited(self.entry.op_own())
    }

    /// The hash by which a frame's queue was chosen; 0 where none was made.
    #[must_use]
    #[inline(always)]
    pub(crate) fn rss_hash(&self) -> u32 {
        self.entry.rss_hash_result()
    }

    /// What the rule that took a frame tagged it with; 0 of others.
    #[must_use]
    #[inline(always)]
    pub(crate) fn flow_tag(&self) -> u32 {
        self.entry.number()
    }

    /// The VLAN tag that the device took out of a frame.
    #[must_use]
    #[inline(always)]
    pub(crate) fn vlan(&self) -> Option<u16> {
        (self.entry.l4_l3_hdr_type() & packet::VLAN_STRIPPED != 0).then(|| self.entry.vlan_info())
    }

    /// Whether a frame's checksums of IPv4 and of TCP or UDP are there and right; of IPv6 it is not told. Source: rdma-core
    /// `providers/mlx5/cq.c`, `get_csum_ok`.
    #[must_use]
    #[inline(always)]
    pub(crate) fn are_checksums_ok(&self) -> bool {
        let good = status::L3_OK | status::L4_OK;
        let layer3 = self.entry.l4_l3_hdr_type() >> packet::L3_SHIFT & packet::L3_MASK;
        self.entry.hds_ip_ext() & good == good && layer3 == Layer3::Ipv4 as u8
    }

    /// How many pieces are left of the request that the [next](Self::take) one is of: of sends that may be one before this. 0 when
    /// there are no more.
    pub(crate) fn left_of_request(&mut self) -> u32 {
        match &mut self.from {
            From::Send(taken, _) => taken.left_of_entry(),
            From::Own(taken, before) => taken.left_from(*before),
            From::Shared(claim) => claim.left(),
        }
    }

    /// The next piece of what the request took along; of sends those of the requests before it as well that made no
    /// completion, in order. A received one has its length.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Piece> {
        let mut piece = match &mut self.from {
            From::Send(taken, _) => return taken.next().map(|(_, piece)| piece),
            From::Own(taken, before) => loop {
                let (index, piece) = taken.next()?;
                // Those before are of receives whose completions were lost.
                if index.wrapping_sub(*before) as i32 >= 0 {
                    break piece;
                }
            },
            From::Shared(claim) => claim.next()?,
        };
        if self.opcode != completion::RESPONDER_ERROR {
            let written = self.opcode != completion::RESPONDER_RDMA_WRITE_IMM;
            let left = self.left.unwrap_or(if written { self.entry.byte_cnt() } else { 0 });
            let bytes = left.min(piece.room());
            piece.filled(bytes);
            self.left = Some(left - bytes);
        }
        Some(piece)
    }
}
