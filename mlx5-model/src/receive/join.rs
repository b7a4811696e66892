//! Joining TCP segments of one flow into one packet (large receive offload, LRO).
//!
//! ```text
//!   segment ─► same flow, next in sequence? ─ yes ─► its payload behind what was ─► full, pushed, too old? ─► delivered
//!                 │ no                                                              └ no: kept
//!                 └► what was kept of the flow is delivered; this one is kept, or passes if it can start nothing
//! ```
//!
//! What is delivered has the first segment's headers, as they came, and all payload behind them. The completion tells what
//! software must write into them: how many there were, the last window and acknowledgement, whether one was pushed, the least
//! time to live, and the sum of the payload. Source: DPDK `drivers/net/mlx5/mlx5_rx.c`, `mlx5_lro_update_hdr`; `mlx5_prm.h`,
//! `mlx5_ifc_tirc_bits`; guide `mlx5.rst`, "LRO".

use pollux_mlx5_abi::cqe::status;
use pollux_wire::checksum::Sum;

use super::{Arrival, Checked};
use crate::frame::{Headers, Ip, Transport, be16};
use crate::time::TICKS_PER_US;

/// How a TIR's packets are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    pub(crate) ipv4: bool,
    pub(crate) ipv6: bool,
    pub(crate) timeout_us: u32,
    /// Most bytes from the TCP header on.
    pub(crate) bytes_max: usize,
}

/// What a completion says of segments that were joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) segments: u8,
    pub(crate) push: bool,
    pub(crate) ttl_min: u8,
    pub(crate) window: u16,
    pub(crate) acknowledged: u32,
    /// Sum over the payload.
    pub(crate) sum: u16,
}

/// Flows that are joined at a time.
const SESSIONS_MAX: usize = 64;
/// Segments with less payload are not joined: `lro_min_mss_size`.
pub(crate) const PAYLOAD_MIN: usize = 64;
/// Times that can be asked for, in microseconds: `lro_timer_supported_periods`. Which they are, and the least payload, is the
/// firmware's to say; no public source tells silicon's, and these are the model's own. Nor does one tell that silicon refuses
/// others; drivers choose from the list. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`,
/// `mlx5e_choose_lro_timeout`; DPDK's guide `mlx5.rst`, `lro_timeout_usec`.
pub(crate) const PERIODS_US: [u32; 4] = [8, 16, 32, 1024];

const FLAGS_AT: usize = 13;
const PUSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Segments of one flow so far.
#[derive(Debug)]
pub(crate) struct Session {
    tir: u32,
    pub(crate) queue: u32,
    pub(crate) frame: Vec<u8>,
    pub(crate) headers: Headers,
    pub(crate) checked: Checked,
    pub(crate) tag: u32,
    pub(crate) hash: u32,
    pub(crate) hash_kind: u8,
    joined: Joined,
    /// The sequence number that continues it.
    next: u32,
    bytes_max: usize,
    deadline: u64,
    /// Nothing is added any more.
    closed: bool,
    /// It found no buffer.
    waits: bool,
    /// Sum over the payload, once nothing is added any more.
    sum: Option<u16>,
}

impl Session {
    /// Closes it: what its completion says, `None` of one segment alone.
    pub(super) fn close(&mut self) -> Option<Joined> {
        self.closed = true;
        if self.joined.segments < 2 {
            return None;
        }
        let payload = self.frame.get(self.headers.payload..).unwrap_or_default();
        let sum = *self.sum.get_or_insert_with(|| Sum::of(payload).fold());
        Some(Joined { sum, ..self.joined })
    }

    fn is_same_flow(&self, tir: u32, queue: u32, arrival: &Arrival<'_>) -> bool {
        let (ours, theirs) = (&self.headers, arrival.headers);
        self.tir == tir
            && self.queue == queue
            && ours.l3 == theirs.l3
            && ours.ip == theirs.ip
            && theirs.transport == Transport::Tcp
            && self.frame.get(..ours.l3) == arrival.frame.get(..ours.l3)
            && ours.addresses(&self.frame) == theirs.addresses(arrival.frame)
            && ours.ports(&self.frame) == theirs.ports(arrival.frame)
    }

    /// Adds a segment of the flow, if it continues it.
    fn add(&mut self, segment: &Segment<'_>, arrival: &Arrival<'_>) -> bool {
        let headers = &self.headers;
        let (l3, l4, end) = (headers.l3, headers.l4, headers.payload);
        let class = |frame: &[u8]| if headers.ip == Ip::V4 { frame[l3 + 1].into() } else { be16(frame, l3) };
        let fits = end - l4 + (self.frame.len() - end) + segment.payload.len() <= self.bytes_max
            && self.frame.len() + segment.payload.len() <= usize::from(u16::MAX);
        let same = headers.l4 == arrival.headers.l4
            && headers.payload == arrival.headers.payload
            && self.frame.get(l4 + 20..end) == arrival.frame.get(l4 + 20..end)
            && class(&self.frame) == class(arrival.frame)
            && (self.tag, self.hash) == (arrival.tag, arrival.hash);
        if self.closed || !same || !fits || segment.sequence != self.next || self.joined.segments == u8::MAX {
            return false;
        }
        self.frame.extend_from_slice(segment.payload);
        self.next = self.next.wrapping_add(segment.payload.len() as u32);
        self.joined.segments += 1;
        self.joined.push |= segment.push;
        self.joined.ttl_min = self.joined.ttl_min.min(segment.ttl);
        (self.joined.window, self.joined.acknowledged) = (segment.window, segment.acknowledged);
        self.closed = segment.push;
        true
    }
}

/// A segment that can be joined to others.
struct Segment<'f> {
    payload: &'f [u8],
    sequence: u32,
    acknowledged: u32,
    window: u16,
    ttl: u8,
    push: bool,
}

impl<'f> Segment<'f> {
    fn of(arrival: &Arrival<'f>, merge: &Merge) -> Option<Self> {
        let (frame, headers) = (arrival.frame, arrival.headers);
        let (allowed, ip_bytes, ttl_at) = match headers.ip {
            Ip::V4 => (merge.ipv4, 20, 8),
            Ip::V6 => (merge.ipv6, 40, 7),
            Ip::None => return None,
        };
        let right = status::L3_OK | status::L4_OK;
        let plain = allowed
            && headers.transport == Transport::Tcp
            && !headers.fragment
            && !headers.options
            && headers.l4 - headers.l3 == ip_bytes
            && arrival.checked.info == 0
            && arrival.checked.status & right == right;
        if !plain {
            return None;
        }
        let payload = frame.get(headers.payload..headers.packet_end(frame)?)?;
        let tcp = frame.get(headers.l4..headers.payload)?;
        let flags = *tcp.get(FLAGS_AT)?;
        let word =
            |at: usize| tcp.get(at..).and_then(<[u8]>::first_chunk).map(|word| u32::from_be_bytes(*word));
        (payload.len() >= PAYLOAD_MIN && flags & !PUSH == ACK).then_some(())?;
        Some(Self {
            payload,
            sequence: word(4)?,
            acknowledged: word(8)?,
            window: be16(tcp, 14),
            ttl: frame[headers.l3 + ttl_at],
            push: flags & PUSH != 0,
        })
    }
}

/// What became of a frame.
#[derive(Debug)]
pub(crate) enum Offer {
    /// It is part of a session.
    Kept,
    /// It goes to its queue as it is.
    Passes,
    /// The session there goes first, what came before it of its flow or for which there is no room; then it is to be offered
    /// again.
    After(usize),
}

/// All sessions, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Joins {
    sessions: Vec<Session>,
    /// Memory of sessions that are over, for the next ones: with those that are not, [`SESSIONS_MAX`] at most.
    spare: Vec<Vec<u8>>,
}

impl Joins {
    /// A frame for a queue of a TIR that joins.
    pub(crate) fn offer(
        &mut self,
        now: u64,
        tir: u32,
        queue: u32,
        arrival: &Arrival<'_>,
        merge: &Merge,
    ) -> Offer {
        let segment = Segment::of(arrival, merge);
        let known = self.sessions.iter().position(|session| session.is_same_flow(tir, queue, arrival));
        if let Some(at) = known {
            let added = segment.is_some_and(|segment| self.sessions[at].add(&segment, arrival));
            return if added { Offer::Kept } else { Offer::After(at) };
        }
        let Some(segment) = segment.filter(|segment| !segment.push) else { return Offer::Passes };
        let begin = arrival.headers.payload;
        if begin - arrival.headers.l4 + 2 * segment.payload.len() > merge.bytes_max {
            return Offer::Passes;
        }
        if self.sessions.len() == SESSIONS_MAX {
            // One that waits for a buffer would hold up this frame, whatever queue that is for.
            return Offer::After(self.sessions.iter().position(|session| !session.waits).unwrap_or(0));
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        // As long as it may become, so that it does not move as it grows.
        frame.reserve((arrival.headers.l4 + merge.bytes_max).min(usize::from(u16::MAX)));
        frame.extend_from_slice(&arrival.frame[..begin + segment.payload.len()]);
        self.sessions.push(Session {
            tir,
            queue,
            frame,
            headers: *arrival.headers,
            checked: *arrival.checked,
            tag: arrival.tag,
            hash: arrival.hash,
            hash_kind: arrival.hash_kind,
            joined: Joined {
                segments: 1,
                push: false,
                ttl_min: segment.ttl,
                window: segment.window,
                acknowledged: segment.acknowledged,
                sum: 0,
            },
            next: segment.sequence.wrapping_add(segment.payload.len() as u32),
            bytes_max: merge.bytes_max,
            deadline: now.saturating_add(u64::from(merge.timeout_us) * TICKS_PER_US),
            closed: false,
            waits: false,
            sum: None,
        });
        Offer::Kept
    }

    /// The first session from `from` on that is due.
    pub(super) fn due(&self, from: usize, now: u64) -> Option<usize> {
        let is_due = |session: &Session| session.closed || session.deadline <= now;
        self.sessions.get(from..)?.iter().position(is_due).map(|at| from + at)
    }

    /// Takes a session out.
    pub(super) fn take(&mut self, at: usize) -> Session {
        self.sessions.remove(at)
    }

    /// A session is over.
    pub(super) fn finish(&mut self, session: Session) {
        self.spare.push(session.frame);
    }

    /// A session that found no buffer waits for one, where it was.
    pub(super) fn wait(&mut self, at: usize, mut session: Session) {
        session.waits = true;
        self.sessions.insert(at, session);
    }

    /// A queue is reset or gone.
    pub(crate) fn forget(&mut self, queue: u32) {
        self.sessions.retain(|session| session.queue != queue);
    }

    /// A TIR is changed or gone: what was joined under it goes to its queue.
    pub(crate) fn end(&mut self, tir: u32) {
        self.sessions
            .iter_mut()
            .filter(|session| session.tir == tir)
            .for_each(|session| session.closed = true);
    }
}
