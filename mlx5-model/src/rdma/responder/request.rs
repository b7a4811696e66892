//! One packet of a request, checked and carried out.

use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome as Why;
use pollux_wire::roce::operation::{self as o, Class, Shape};
use pollux_wire::roce::{AtomicEth, BthRepr, Ieth, ImmDt, MASK_24, Nak, Reth, XrcEth};
use zerocopy::FromZeros;

use super::{Answer, Done, Message, Origin, Refusal, origin, scatter, take_entry};
use crate::memory_keys::{Access, Who, read, write};
use crate::rdma::psn::after;
use crate::rdma::qp::Qp;
use crate::rdma::state::Service;
use crate::rdma::{Around, signature};
use crate::receive::Entry;

/// Carries out a packet whose turn it is, of either kind of connection.
pub(super) fn carry_out(
    pair: &mut Qp,
    around: &mut Around<'_, '_>,
    bth: BthRepr,
    shape: Shape,
    rest: &[u8],
) -> Result<Done, Refusal> {
    let origin = origin(pair, around, rest)?;
    let rest = if pair.service == Service::Xrc { &rest[XrcEth::BYTES..] } else { rest };
    let fits = match (pair.responder.message, shape.class) {
        (Some(Message::Send { .. }), Class::Send) | (Some(Message::Write { .. }), Class::Write) => {
            !shape.first
        }
        (Some(_), _) => false,
        (None, _) => shape.first,
    };
    if !fits {
        return Err(Refusal::INVALID);
    }
    match shape.class {
        Class::Send => take_send(pair, around, bth, shape, rest, &origin),
        Class::Write => take_write(pair, around, bth, shape, rest, &origin),
        Class::Read => take_read(pair, around, bth, rest, &origin),
        Class::Atomic => take_atomic(pair, around, bth, rest, &origin),
        Class::ReadResponse | Class::Acknowledge => Err(Refusal::INVALID),
    }
}

/// Whether a packet is as long as its place in a message asks for.
fn check_length(pair: &Qp, shape: Shape, bytes: usize) -> Result<(), Refusal> {
    let fits = match (shape.first, shape.last) {
        (_, false) => bytes == pair.mtu,
        (true, true) => bytes <= pair.mtu,
        (false, true) => (1..=pair.mtu).contains(&bytes),
    };
    if fits { Ok(()) } else { Err(Refusal::INVALID) }
}

/// Immediate data or key, and the payload.
pub(super) fn split_off(shape: Shape, rest: &[u8]) -> Result<(Option<u32>, &[u8]), Refusal> {
    if shape.immediate {
        let (imm, payload) = ImmDt::new(rest).map_err(|_| Refusal::INVALID)?;
        return Ok((Some(imm.data.get()), payload));
    }
    if shape.invalidate {
        let (key, payload) = Ieth::new(rest).map_err(|_| Refusal::INVALID)?;
        return Ok((Some(key.key.get()), payload));
    }
    Ok((None, rest))
}

fn take_send(
    pair: &mut Qp,
    around: &mut Around<'_, '_>,
    bth: BthRepr,
    shape: Shape,
    rest: &[u8],
    origin: &Origin,
) -> Result<Done, Refusal> {
    let (extra, payload) = split_off(shape, rest)?;
    check_length(pair, shape, payload.len())?;
    if pair.responder.held.is_none() {
        if around.bus.faults.not_ready() {
            return Ok(Done::NotReady);
        }
        match take_entry(pair, around, origin) {
            Ok(Some(entry)) => pair.responder.held = Some(entry),
            Ok(None) => return Ok(Done::NotReady),
            Err(()) => {
                return Err(Refusal {
                    event: Some(event::WQ_CATAS_ERROR),
                    ..Refusal::local(Nak::Operation, Why::LOCAL_PROT_ERR, 0x50)
                });
            }
        }
    }
    if let Some(syndrome) = around.bus.faults.receive_entry() {
        return Err(Refusal { nak: Nak::Operation, report: Some(syndrome), event: None });
    }
    let done = match pair.responder.message {
        Some(Message::Send { done }) => done,
        _ => 0,
    };
    if done + payload.len() as u64 > 1 << pair.log_message_max {
        return Err(Refusal::local(Nak::InvalidRequest, Why::LOCAL_LENGTH_ERR, 0x71));
    }
    let put = match &pair.responder.held {
        Some(entry) => scatter(around, origin.who, entry, done, payload),
        None => Ok(()),
    };
    signature::report_received(pair, around, origin.cqn);
    put.map_err(Refusal::of_scatter)?;
    if shape.last && shape.invalidate {
        let key = extra.unwrap_or(0);
        if !around.keys.invalidate(key, origin.who) {
            return Err(Refusal::ACCESS);
        }
    }
    let done = done + payload.len() as u64;
    pair.responder.expected = after(bth.psn, 1);
    if !shape.last {
        pair.responder.message = Some(Message::Send { done });
        return Ok(Done::Taken);
    }
    let opcode = match (shape.immediate, shape.invalidate) {
        (true, _) => completion::RESPONDER_SEND_IMM,
        (_, true) => completion::RESPONDER_SEND_INVAL,
        _ => completion::RESPONDER_SEND,
    };
    pair.responder.messages = after(pair.responder.messages, 1);
    if let Some(entry) = pair.responder.take_held() {
        complete(pair, around, origin, &entry, opcode, done, extra.unwrap_or(0), bth.solicited, 0);
    }
    Ok(Done::Taken)
}

/// Writes the completion of a receive entry.
#[expect(clippy::too_many_arguments, reason = "what a completion says")]
pub(super) fn complete(
    pair: &mut Qp,
    around: &mut Around<'_, '_>,
    origin: &Origin,
    entry: &Entry,
    opcode: u8,
    bytes: u64,
    extra: u32,
    solicited: bool,
    flags: u32,
) {
    let mut report = Cqe64::new_zeroed();
    let remote = if flags == 0 { pair.remote } else { flags };
    report.flags_rqpn.set(remote);
    report.srqn_uidx.set(origin.name & MASK_24);
    report.imm_inval_pkey.set(extra);
    report.byte_cnt.set(bytes as u32);
    report.timestamp.set(around.bus.stamp());
    report.sop_drop_qpn.set(pair.number);
    report.wqe_counter.set(entry.index);
    report.op_own = opcode << 4 | u8::from(solicited) << 1;
    if around.completions.push(around.bus, around.events, origin.cqn, &report, solicited).is_err() {
        pair.die(around);
    }
}

fn take_write(
    pair: &mut Qp,
    around: &mut Around<'_, '_>,
    bth: BthRepr,
    shape: Shape,
    rest: &[u8],
    origin: &Origin,
) -> Result<Done, Refusal> {
    let (message, rest) = if shape.first {
        let (reth, rest) = Reth::new(rest).map_err(|_| Refusal::INVALID)?;
        let (key, at, bytes) = (reth.key.get(), reth.address.get(), u64::from(reth.bytes.get()));
        if bytes > 1 << pair.log_message_max {
            return Err(Refusal::INVALID);
        }
        if !pair.rights.write {
            return Err(Refusal::ACCESS);
        }
        // A write of nothing needs no key.
        if bytes > 0 {
            around
                .keys
                .check(key, origin.who, at, bytes, Access::RemoteWrite)
                .map_err(|_| Refusal::ACCESS)?;
        }
        if let Some(counters) = around.counters.get_mut(pair.counter_set) {
            counters.writes += 1;
        }
        ((key, at, bytes, bytes), rest)
    } else {
        match pair.responder.message {
            Some(Message::Write { key, at, left, bytes }) => ((key, at, left, bytes), rest),
            _ => return Err(Refusal::INVALID),
        }
    };
    let (key, at, left, bytes) = message;
    let (extra, payload) = split_off(shape, rest)?;
    check_length(pair, shape, payload.len())?;
    let length = payload.len() as u64;
    if length > left || shape.last && length != left {
        return Err(Refusal::INVALID);
    }
    // Immediate data use up a receive entry, and wait for one.
    if shape.last && shape.immediate && pair.responder.held.is_none() {
        if around.bus.faults.not_ready() {
            return Ok(Done::NotReady);
        }
        match take_entry(pair, around, origin) {
            Ok(Some(entry)) => pair.responder.held = Some(entry),
            Ok(None) => return Ok(Done::NotReady),
            Err(()) => {
                return Err(Refusal {
                    event: Some(event::WQ_CATAS_ERROR),
                    ..Refusal::local(Nak::Operation, Why::LOCAL_PROT_ERR, 0x50)
                });
            }
        }
    }
    let put = match length {
        0 => Ok(()),
        _ => write(around.bus, around.keys, origin.who, key, at, Access::RemoteWrite, payload),
    };
    signature::report_received(pair, around, origin.cqn);
    put.map_err(|_| {
        let report = Why { code: Why::LOCAL_ACCESS_ERR, vendor: 0x55 };
        Refusal { report: Some(report), ..Refusal::ACCESS }
    })?;
    pair.responder.expected = after(bth.psn, 1);
    if !shape.last {
        pair.responder.message =
            Some(Message::Write { key, at: at.wrapping_add(length), left: left - length, bytes });
        return Ok(Done::Taken);
    }
    pair.responder.messages = after(pair.responder.messages, 1);
    pair.responder.message = None;
    if shape.immediate
        && let Some(entry) = pair.responder.take_held()
    {
        let opcode = completion::RESPONDER_RDMA_WRITE_IMM;
        complete(pair, around, origin, &entry, opcode, bytes, extra.unwrap_or(0), bth.solicited, 0);
    }
    Ok(Done::Taken)
}

/// Requests that fetch and whose first answer is not out yet.
fn pending(pair: &Qp) -> usize {
    let waits = |answer: &&Answer| {
        matches!(answer, Answer::Read { again: false, .. } | Answer::Atomic { again: false, .. })
    };
    pair.responder.answers.iter().filter(waits).count()
}

/// The answer that a request to read asks for.
pub(super) fn reading(
    pair: &Qp,
    around: &Around<'_, '_>,
    psn: u32,
    rest: &[u8],
    who: Who,
    again: bool,
) -> Result<(Answer, u32), Refusal> {
    let (reth, behind) = Reth::new(rest).map_err(|_| Refusal::INVALID)?;
    let (key, at, bytes) = (reth.key.get(), reth.address.get(), u64::from(reth.bytes.get()));
    if !behind.is_empty() || bytes > 1 << pair.log_message_max {
        return Err(Refusal::INVALID);
    }
    if !pair.rights.read {
        return Err(Refusal::ACCESS);
    }
    if bytes > 0 {
        around.keys.check(key, who, at, bytes, Access::RemoteRead).map_err(|_| Refusal::ACCESS)?;
    }
    let packets = (bytes.div_ceil(pair.mtu as u64) as u32).max(1);
    let messages = pair.responder.messages;
    Ok((Answer::Read { psn, key, at, bytes, sent: 0, packets, who, messages, again }, packets))
}

fn take_read(
    pair: &mut Qp,
    around: &mut Around<'_, '_>,
    bth: BthRepr,
    rest: &[u8],
    origin: &Origin,
) -> Result<Done, Refusal> {
    if pending(pair) >= pair.in_max.max(1) {
        return Err(Refusal::INVALID);
    }
    let (answer, packets) = reading(pair, around, bth.psn, rest, origin.who, false)?;
    pair.responder.messages = after(pair.responder.messages, 1);
    if let Some(counters) = around.counters.get_mut(pair.counter_set) {
        counters.reads += 1;
    }
    pair.responder.push(answer);
    pair.responder.expected = after(bth.psn, packets);
    Ok(Done::Taken)
}

fn take_atomic(
    pair: &mut Qp,
    around: &mut Around<'_, '_>,
    bth: BthRepr,
    rest: &[u8],
    origin: &Origin,
) -> Result<Done, Refusal> {
    let (atomic, behind) = AtomicEth::new(rest).map_err(|_| Refusal::INVALID)?;
    let (key, at) = (atomic.key.get(), atomic.address.get());
    if !behind.is_empty() || !at.is_multiple_of(8) || pending(pair) >= pair.in_max.max(1) {
        return Err(Refusal::INVALID);
    }
    if !pair.rights.atomic {
        return Err(Refusal::ACCESS);
    }
    let mut bytes = [0; 8];
    read(around.bus, around.keys, origin.who, key, at, Access::Atomic, &mut bytes)
        .map_err(|_| Refusal::ACCESS)?;
    let original = u64::from_le_bytes(bytes);
    let operand = atomic.swap_add.get();
    let value = if bth.opcode & !o::TRANSPORT == o::FETCH_ADD {
        Some(original.wrapping_add(operand))
    } else {
        (original == atomic.compare.get()).then_some(operand)
    };
    if let Some(value) = value {
        let bytes = value.to_le_bytes();
        write(around.bus, around.keys, origin.who, key, at, Access::Atomic, &bytes)
            .map_err(|_| Refusal::ACCESS)?;
    }
    if let Some(counters) = around.counters.get_mut(pair.counter_set) {
        counters.atomics += 1;
    }
    let (psn, keep) = (bth.psn, pair.in_max.max(1));
    let responder = &mut pair.responder;
    responder.messages = after(responder.messages, 1);
    responder.atomics.push_back((psn, original));
    while responder.atomics.len() > keep {
        responder.atomics.pop_front();
    }
    responder.push(Answer::Atomic { psn, original, messages: responder.messages, again: false });
    responder.expected = after(psn, 1);
    Ok(Done::Taken)
}
