//! The side of a queue pair that answers requests.
//!
//! A packet whose turn it is, is checked against the message that it belongs to, against memory and its keys, and carried out.
//! One that comes too early asks for the missing one; one that came before is answered again, without being carried out
//! again. What the peer is told waits in a line and goes out in order, as the wire takes it.

mod loose;
mod progress;
mod request;

use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::syndrome::Syndrome as Why;
use pollux_mlx5_abi::wqe::{Data, INVALID_LKEY};
use pollux_wire::roce::operation::{self as o, Class};
use pollux_wire::roce::{Aeth, AtomicAckEth, BthRepr, MASK_24, Nak, Syndrome, XrcEth};
use zerocopy::{FromBytes, IntoBytes};

use super::dynamic;
use super::packet::{Extension, Incoming, PARTITION, source_port};
use super::psn::{after, distance};
use super::qp::{Qp, Source};
use super::state::{Service, State};
use super::{Around, Desk, Sent, Turn, signature};
use crate::failure::Failure;
use crate::memory_keys::{Access, KeyError, Who, read, write};
use crate::receive::{Entry, PoolKind};
pub(crate) use loose::datagram;
use loose::unreliable;
pub(crate) use progress::Responder;
use progress::{Answer, Message};
use request::{carry_out, reading};

/// Packets kept that came too early, with selective repeat.
const EARLY_MAX: usize = 512;

/// A request that is refused.
struct Refusal {
    nak: Nak,
    /// What the receive entry in hand, or the next one, reports.
    report: Option<Why>,
    /// What software is told of the queue pair.
    event: Option<u8>,
}

impl Refusal {
    /// A request that makes no sense.
    const INVALID: Self =
        Self { nak: Nak::InvalidRequest, report: None, event: Some(event::WQ_INVAL_REQ_ERROR) };
    /// Memory does not allow it.
    const ACCESS: Self = Self { nak: Nak::Access, report: None, event: Some(event::WQ_ACCESS_ERROR) };

    const fn local(nak: Nak, code: u8, vendor: u8) -> Self {
        Self { nak, report: Some(Why { code, vendor }), event: None }
    }

    fn of_scatter(problem: Problem) -> Self {
        match problem {
            Problem::Length => Self::local(Nak::InvalidRequest, Why::LOCAL_LENGTH_ERR, 0x71),
            Problem::Key(error) => Self::local(Nak::Operation, Why::LOCAL_PROT_ERR, error.vendor()),
        }
    }
}

/// What became of a packet in turn.
enum Done {
    Taken,
    /// No receive is posted.
    NotReady,
    /// Memory is not all there, and the host was asked for it.
    Awaited,
}

/// Why data do not fit a receive entry.
enum Problem {
    Length,
    Key(KeyError),
}

/// Writes `data` from byte `from` on of the segments of a receive entry.
fn scatter(around: &Around<'_, '_>, who: Who, entry: &Entry, from: u64, data: &[u8]) -> Result<(), Problem> {
    let (mut skip, mut done, mut rest) = (from, 0, entry.segments());
    while done < data.len() {
        let Ok((segment, behind)) = Data::ref_from_prefix(rest) else { return Err(Problem::Length) };
        rest = behind;
        let (key, room, at) = (segment.lkey.get(), segment.bytes(), segment.addr.get());
        if key == INVALID_LKEY {
            return Err(Problem::Length);
        }
        if skip >= room {
            skip -= room;
            continue;
        }
        let run = ((room - skip) as usize).min(data.len() - done);
        let at = at.checked_add(skip).ok_or(Problem::Key(KeyError::Bounds))?;
        write(around.bus, around.keys, who, key, at, Access::Write, &data[done..done + run])
            .map_err(Problem::Key)?;
        done += run;
        skip = 0;
    }
    Ok(())
}

/// Where receive entries come from: of XRC the shared receive queue that the packet names.
#[derive(Clone, Copy)]
struct Origin {
    pool: Option<u32>,
    cqn: u32,
    /// As completions have it.
    name: u32,
    who: Who,
}

/// Takes a receive entry, if one is posted.
fn take_entry(pair: &mut Qp, around: &mut Around<'_, '_>, origin: &Origin) -> Result<Option<Box<Entry>>, ()> {
    let mut entry = Box::<Entry>::default();
    let taken = match origin.pool {
        Some(pool) => match around.pools.get_mut(pool) {
            Some(pool) => pool.take(around.bus, around.events, &mut entry),
            None => return Err(()),
        },
        None => match &mut pair.source {
            Source::Own(ring) => ring.take(around.bus, &mut entry),
            Source::Pool(_) | Source::None => return Ok(None),
        },
    };
    match taken {
        Ok(true) => Ok(Some(entry)),
        Ok(false) => {
            if let Some(counters) = around.counters.get_mut(pair.counter_set) {
                counters.out_of_buffer += 1;
            }
            Ok(None)
        }
        Err(_) => Err(()),
    }
}

/// A request came in for a connected queue pair.
pub(crate) fn request(pair: &mut Qp, around: &mut Around<'_, '_>, packet: &Incoming<'_>) {
    if pair.state == State::Receive && !pair.responder.established {
        pair.responder.established = true;
        pair.tell(around, event::COMM_EST);
    }
    if !pair.service.is_reliable() {
        unreliable(pair, around, packet);
        return;
    }
    let (bth, rest) = (packet.bth, packet.rest);
    let early = distance(pair.responder.expected, bth.psn);
    if early < 0 {
        again(pair, around, bth, rest);
        return;
    }
    if early > 0 {
        too_early(pair, around, bth, rest);
        return;
    }
    in_turn(pair, around, bth, rest);
    // What came early may be next.
    while pair.state.receives() {
        let expected = pair.responder.expected;
        let Some((bth, rest)) = pair.responder.early.remove(&expected) else { break };
        in_turn(pair, around, bth, &rest);
    }
    let expected = pair.responder.expected;
    pair.responder.early.retain(|psn, _| distance(expected, *psn) > 0);
}

fn too_early(pair: &mut Qp, around: &mut Around<'_, '_>, bth: BthRepr, rest: &[u8]) {
    if let Some(counters) = around.counters.get_mut(pair.counter_set) {
        counters.out_of_sequence += 1;
    }
    let responder = &mut pair.responder;
    let psn = responder.expected;
    if pair.ece.is_selective() {
        if responder.early.len() < EARLY_MAX && distance(psn, bth.psn) < EARLY_MAX as i32 {
            responder.early.insert(bth.psn, (bth, rest.to_vec()));
            // Each tells which packet came in the missing one's stead.
            let syndrome = Syndrome::Nak(Nak::Sequence);
            responder.push(Answer::Say { psn, syndrome, messages: bth.psn });
        }
        return;
    }
    if !responder.told {
        responder.told = true;
        let (messages, syndrome) = (responder.messages, Syndrome::Nak(Nak::Sequence));
        responder.push(Answer::Say { psn, syndrome, messages });
    }
}

/// A packet whose turn it is.
fn in_turn(pair: &mut Qp, around: &mut Around<'_, '_>, bth: BthRepr, rest: &[u8]) {
    let shape = o::shape(bth.opcode);
    // What an access before this one came upon is over.
    around.keys.absent.take_found();
    let outcome = match shape {
        Some(shape) => carry_out(pair, around, bth, shape, rest),
        None => Err(Refusal::INVALID),
    };
    let outcome = if outcome.is_err() && pair.asks_for_pages(around) { Ok(Done::Awaited) } else { outcome };
    match outcome {
        Ok(Done::Taken) => {
            pair.responder.told = false;
            let fetch = shape.is_some_and(|shape| matches!(shape.class, Class::Read | Class::Atomic));
            if !fetch && (bth.ack || shape.is_some_and(|shape| shape.last)) {
                pair.responder.acknowledge(bth.psn);
            }
        }
        Ok(Done::NotReady) => {
            let (messages, syndrome) = (pair.responder.messages, Syndrome::NotReady(pair.rnr_timer));
            pair.responder.push(Answer::Say { psn: bth.psn, syndrome, messages });
            // What follows is not missing, it comes again.
            pair.responder.told = true;
            pair.responder.early.clear();
        }
        Ok(Done::Awaited) => {
            pair.paging.receiver_waits = true;
            pair.responder.told = true;
            pair.responder.early.clear();
        }
        Err(refusal) => refuse(pair, around, bth, rest, &refusal),
    }
}

fn refuse(pair: &mut Qp, around: &mut Around<'_, '_>, bth: BthRepr, rest: &[u8], refusal: &Refusal) {
    let (messages, syndrome) = (pair.responder.messages, Syndrome::Nak(refusal.nak));
    pair.responder.push(Answer::Say { psn: bth.psn, syndrome, messages });
    if let Some(counters) = around.counters.get_mut(pair.counter_set) {
        match (refusal.nak, refusal.report) {
            (Nak::Access, _) => counters.remote_access_errors += 1,
            (_, Some(why)) if why.code == Why::LOCAL_LENGTH_ERR => counters.length_errors += 1,
            (_, Some(_)) => counters.protection_errors += 1,
            _ => {}
        }
    }
    pair.state = State::Error;
    if let Some(report) = refusal.report {
        let origin = origin(pair, around, rest).ok();
        if let (Some(entry), Some(origin)) = (pair.responder.take_held(), origin) {
            pair.report_receive(around, origin.cqn, origin.name, entry.index, report);
        }
    }
    if let Some(kind) = refusal.event {
        pair.tell(around, kind);
    }
}

/// Where entries come from, and whose memory it is about.
fn origin(pair: &Qp, around: &Around<'_, '_>, rest: &[u8]) -> Result<Origin, Refusal> {
    let named = |pool: Option<u32>| pair.user_index.or(pool).unwrap_or(0);
    if pair.service != Service::Xrc {
        let pool = pair.pool();
        return Ok(Origin { pool, cqn: pair.cqn_receive, name: named(pool), who: pair.who() });
    }
    let number = XrcEth::new(rest).map_err(|_| Refusal::INVALID)?.0.queue.get() & MASK_24;
    let pool = around.pools.get(number).ok_or(Refusal::INVALID)?;
    let PoolKind::Xrc { domain, cqn, user_index } = pool.kind else { return Err(Refusal::INVALID) };
    if domain != pair.xrc_domain {
        return Err(Refusal::INVALID);
    }
    // The queue's own name, whether the queue pair has one or not: its kernel makes a receiver without.
    let name = user_index.unwrap_or(number);
    let who = Who { domain: pool.ring.domain, ..pair.who() };
    Ok(Origin { pool: Some(number), cqn, name, who })
}

/// A packet that came before: it is answered again.
fn again(pair: &mut Qp, around: &mut Around<'_, '_>, bth: BthRepr, rest: &[u8]) {
    if let Some(counters) = around.counters.get_mut(pair.counter_set) {
        counters.duplicates += 1;
    }
    let Some(shape) = o::shape(bth.opcode) else { return };
    match shape.class {
        Class::Send | Class::Write => {
            if bth.ack || shape.last {
                let last = after(pair.responder.expected, MASK_24);
                pair.responder.acknowledge(last);
            }
        }
        Class::Read => {
            let Ok(origin) = origin(pair, around, rest) else { return };
            let rest = if pair.service == Service::Xrc { &rest[XrcEth::BYTES..] } else { rest };
            // What cannot be read any more is not answered: the peer asks no further by itself.
            let Ok((answer, packets)) = reading(pair, around, bth.psn, rest, origin.who, true) else {
                return;
            };
            // Not more than it asked for then.
            if distance(after(bth.psn, packets), pair.responder.expected) < 0 {
                return;
            }
            // What is still being answered of it gives way.
            pair.responder.answers.retain(|waiting| match waiting {
                Answer::Read { psn, packets, .. } => {
                    distance(*psn, bth.psn) < 0 || distance(after(*psn, *packets), bth.psn) >= 0
                }
                _ => true,
            });
            pair.responder.push(answer);
        }
        Class::Atomic => {
            let known = pair.responder.atomics.iter().find(|(psn, _)| *psn == bth.psn).copied();
            if let Some((psn, original)) = known {
                let messages = pair.responder.messages;
                pair.responder.push(Answer::Atomic { psn, original, messages, again: true });
            }
        }
        Class::ReadResponse | Class::Acknowledge => {}
    }
}

/// Sends answers, as many as the wire takes.
pub(crate) fn run(pair: &mut Qp, around: &mut Around<'_, '_>, desk: &mut Desk, budget: usize) -> Turn {
    let mut turn = Turn::default();
    if pair.paging.sender_waits {
        return turn;
    }
    while let Some(answer) = pair.responder.answers.front().copied() {
        if turn.done >= budget {
            turn.more = true;
            break;
        }
        let transport = match pair.service {
            Service::Xrc => o::XRC,
            Service::Target => dynamic::TRANSPORT,
            _ => o::RC,
        };
        let bth = BthRepr { migrated: true, partition: PARTITION, qp: pair.remote, ..BthRepr::default() };
        let port = source_port(pair.path.source_port, pair.number, pair.remote);
        let mut finished = true;
        let sent = match answer {
            Answer::Say { psn, syndrome, messages } => {
                let extension = Extension::new().with(Aeth::make(syndrome, messages).as_bytes());
                let bth = BthRepr { opcode: transport | o::ACKNOWLEDGE, psn, ..bth };
                desk.send(around, &pair.path, port, bth, &extension, 0, None, |_, _, _| Ok(()))
            }
            Answer::Atomic { psn, original, messages, .. } => {
                let extension = Extension::new()
                    .with(Aeth::make(Syndrome::ACK, messages).as_bytes())
                    .with(AtomicAckEth { original: original.into() }.as_bytes());
                let bth = BthRepr { opcode: transport | o::ATOMIC_ACKNOWLEDGE, psn, ..bth };
                desk.send(around, &pair.path, port, bth, &extension, 0, None, |_, _, _| Ok(()))
            }
            Answer::Read { psn, key, at, bytes, sent, packets, who, messages, .. } => {
                let from = u64::from(sent) * pair.mtu as u64;
                let length = (bytes - from.min(bytes)).min(pair.mtu as u64) as usize;
                let (first, last) = (sent == 0, sent + 1 >= packets);
                let opcode = match (first, last) {
                    (true, true) => o::READ_RESPONSE_ONLY,
                    (true, false) => o::READ_RESPONSE_FIRST,
                    (false, false) => o::READ_RESPONSE_MIDDLE,
                    (false, true) => o::READ_RESPONSE_LAST,
                };
                let mut extension = Extension::new();
                if first || last {
                    extension = extension.with(Aeth::make(Syndrome::ACK, messages).as_bytes());
                }
                let bth = BthRepr { opcode: transport | opcode, psn: after(psn, sent), ..bth };
                finished = last;
                desk.send(around, &pair.path, port, bth, &extension, length, None, |bus, keys, room| {
                    let at = at.wrapping_add(from);
                    read(bus, keys, who, key, at, Access::RemoteRead, room).map_err(Into::into)
                })
            }
        };
        let cqn = pair.cqn_receive;
        signature::report_received(pair, around, cqn);
        match sent {
            Ok(Sent::Yes) => turn.done += 1,
            Ok(Sent::Busy) => {
                turn.more = true;
                break;
            }
            Err(Failure::ABSENT) if pair.asks_for_pages(around) => {
                pair.paging.sender_waits = true;
                break;
            }
            Err(_) => {
                // What was there when the request came is gone.
                finished = true;
                if let Answer::Read { psn, sent, messages, .. } = answer {
                    let syndrome = Syndrome::Nak(Nak::Access);
                    pair.responder.answers.clear();
                    pair.responder.push(Answer::Say { psn: after(psn, sent), syndrome, messages });
                    pair.state = State::Error;
                    let kind = event::WQ_ACCESS_ERROR;
                    pair.tell(around, kind);
                    turn.more = true;
                    break;
                }
            }
        }
        if finished {
            pair.responder.answers.pop_front();
        } else if let Some(Answer::Read { sent, .. }) = pair.responder.answers.front_mut() {
            *sent += 1;
        }
    }
    turn
}
