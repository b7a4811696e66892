//! The side of a queue pair that sends requests.
//!
//! Entries become [`Request`]s, in order, each with its sequence numbers. Packets go out as far as the window, the limit of
//! reads under way and the wire allow. What the peer confirms moves on from the front; what it refuses, and what it does not
//! answer in time, makes sending go back. Completions are written from the front, in order.

mod answer;
mod headers;
mod progress;

use pollux_mlx5_abi::cqe::Cqe64;
use pollux_mlx5_abi::eqe::{event, queue_kind};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::wqe::{BLOCK_BYTES, Completion, Fence};
use pollux_wire::roce::BthRepr;
use zerocopy::FromZeros;

use super::packet::source_port;
use super::psn::{after, distance};
use super::qp::Qp;
use super::request::{Kind, Request};
use super::state::{Service, State};
use super::{Around, Desk, Sent, Turn, copy, signature, work};
use crate::device::violation::Violation;
use crate::failure::Failure;
use crate::memory_keys::change;
pub(crate) use answer::answer;
use headers::headers;
pub(crate) use progress::Requester;

/// Packets under way at most.
const WINDOW: i32 = 512;
/// Requests under way at most; the ring bounds them too.
const REQUESTS_MAX: usize = 1 << 12;
/// Answers kept that came before their turn.
const EARLY_MAX: usize = 512;

/// How long answers may take: `None` for ever. Source: InfiniBand Architecture Specification, volume 1, 9.7.6.1.3.
fn timeout(pair: &Qp) -> Option<u64> {
    (pair.ack_timeout > 0).then(|| 4096_u64 << pair.ack_timeout.min(31))
}

/// Sends what can be sent, begins what can be begun, completes what is done.
pub(crate) fn run(pair: &mut Qp, around: &mut Around<'_, '_>, desk: &mut Desk, budget: usize) -> Turn {
    let mut turn = Turn::default();
    while pair.state.sends() {
        complete(pair, around, &mut turn);
        if !pair.state.sends() {
            break;
        }
        let now = around.bus.now;
        if pair.requester.wait.is_some_and(|wait| now < wait) {
            break;
        }
        pair.requester.wait = None;
        if turn.done >= budget {
            turn.more = true;
            break;
        }
        if pair.requester.cursor < pair.requester.requests.len() {
            match send_one(pair, around, desk) {
                Step::Sent => turn.done += 1,
                Step::Stuck => break,
                Step::Busy => {
                    turn.more = true;
                    break;
                }
            }
        } else if !begin_one(pair, around, desk, &mut turn) {
            break;
        }
    }
    if pair.state == State::Draining && pair.requester.is_idle() {
        pair.state = State::Drained;
        around.events.queue_error(around.bus, event::SQ_DRAINED, queue_kind::QP, pair.number);
        turn.done += 1;
    }
    turn
}

enum Step {
    Sent,
    /// Something must come first: an answer, a timer.
    Stuck,
    /// The wire takes nothing now.
    Busy,
}

/// Work on keys and copies of memory is done as it is begun: no peer has a part in it.
fn carry_out(pair: &Qp, around: &mut Around<'_, '_>, request: &Request) -> Result<(), Failure> {
    if request.changes_key() {
        let any_domain = pair.service == Service::Keys;
        let (opcode, name, segments) = (request.opcode, request.imm, &request.segments);
        return change(around.keys, around.bus, pair.who(), any_domain, opcode, name, segments)
            .map_err(Failure::from);
    }
    if request.sets_signature() {
        return signature::set(pair, around, request);
    }
    if request.opcode == send::MMO { copy::carry_out(pair, around, request) } else { Ok(()) }
}

/// Begins the next entry. False when there is none, or it must wait.
fn begin_one(pair: &mut Qp, around: &mut Around<'_, '_>, desk: &mut Desk, turn: &mut Turn) -> bool {
    if !pair.has_posted() || pair.state != State::Send || pair.requester.requests.len() >= REQUESTS_MAX {
        return false;
    }
    if pair.paging.sender_waits {
        return false;
    }
    let Some(ring) = &pair.send else { return false };
    let (mut request, blocks) = work::next(pair, ring, around.bus);
    let wait = match request.fence {
        Some(Fence::Fence | Fence::SmallAndFence) => pair.requester.requests.iter().any(Request::is_fetch),
        Some(Fence::StrongOrdering) => !pair.requester.is_idle(),
        _ => false,
    };
    let idle = pair.requester.is_idle();
    let wait = wait || pair.initiator.as_ref().is_some_and(|initiator| initiator.waits(&request, idle));
    if wait {
        return false;
    }
    if !std::mem::take(&mut pair.paging.begun) {
        if let Some(byte) = request.reserved {
            around.bus.note(Violation::Reserved { queue: pair.number, byte });
        }
        if pair.requester.changed_key && matches!(request.fence, Some(Fence::None | Fence::Fence)) {
            around.bus.note(Violation::Unfenced { queue: pair.number });
        }
        if let Some(syndrome) = around.bus.faults.send_entry() {
            request.failed = Some(Failure(syndrome));
        }
    }
    if let Some(initiator) = &mut pair.initiator {
        if initiator.has_failed(request.stream) {
            request.failed = Some(Failure::FLUSHED);
        }
        let (psn, now) = (pair.requester.next_psn, around.bus.now);
        if let Some(peer) = initiator.begin(&request, idle, psn, || desk.session(now)) {
            (pair.path, pair.remote) = (peer.path, peer.target);
        }
    }
    if request.failed.is_none() {
        let outcome = carry_out(pair, around, &request);
        signature::report_sent(pair, around);
        // What it reads or writes is not all there: it stays posted until it is.
        if outcome == Err(Failure::ABSENT) && pair.asks_for_pages(around) {
            (pair.paging.sender_waits, pair.paging.begun) = (true, true);
            return false;
        }
        request.failed = outcome.err();
    }
    pair.requester.changed_key = request.changes_key() || request.sets_signature();
    if let Some(ring) = &mut pair.send {
        if let Some(seen) = around.bus.fast_path {
            let mut bytes = vec![0; usize::from(blocks) * BLOCK_BYTES];
            if ring.read(around.bus, &mut bytes).is_ok() {
                seen.entry(pair.number, ring.next(), &bytes);
            }
        }
        ring.advance(blocks);
    }
    if request.failed.is_some() {
        (request.kind, request.packets) = (Kind::Local, 0);
    }
    request.first = pair.requester.next_psn;
    pair.requester.next_psn = after(request.first, request.packets);
    if request.packets == 0 {
        turn.done += 1;
    }
    pair.requester.requests.push_back(request);
    pair.requester.skip_sent();
    true
}

/// Completes requests from the front.
fn complete(pair: &mut Qp, around: &mut Around<'_, '_>, turn: &mut Turn) {
    let reliable = pair.service.is_reliable();
    while let Some(front) = pair.requester.requests.front() {
        if let Some(failure) = front.failed {
            turn.done += 1;
            fail(pair, around, failure);
            return;
        }
        let reached = if reliable { front.confirmed } else { front.sent };
        if reached < front.packets {
            return;
        }
        let Some(request) = pair.requester.requests.pop_front() else { return };
        pair.requester.cursor = pair.requester.cursor.saturating_sub(1);
        let event = match request.completion {
            Completion::OnError | Completion::OnFirstError => continue,
            Completion::Always => false,
            Completion::AlwaysAndEvent => true,
        };
        let mut entry = Cqe64::new_zeroed();
        entry.srqn_uidx.set(pair.user_index.unwrap_or(0));
        entry.byte_cnt.set(request.bytes as u32);
        entry.timestamp.set(around.bus.stamp());
        entry.sop_drop_qpn.set(u32::from(request.opcode) << 24 | pair.number);
        entry.wqe_counter.set(request.index);
        entry.op_own = completion::REQUESTER << 4 | u8::from(event) << 1;
        if around.completions.push(around.bus, around.events, pair.cqn_send, &entry, event).is_err() {
            pair.die(around);
            return;
        }
    }
}

/// The oldest request fails, and the queue pair with it: of those without acknowledgement the sending side alone, of an initiator
/// perhaps no more than a stream.
pub(crate) fn fail(pair: &mut Qp, around: &mut Around<'_, '_>, failure: Failure) {
    let (opcode, index) = pair.requester.take_unfinished().unwrap_or((send::NOP, 0));
    let goes_on = pair.initiator.as_mut().is_some_and(|initiator| initiator.fail());
    if !goes_on {
        pair.state = if pair.service.is_reliable() || pair.service == Service::Keys {
            State::Error
        } else {
            State::SendError
        };
    }
    if failure != Failure::FLUSHED
        && let Some(counters) = around.counters.get_mut(pair.counter_set)
    {
        counters.request_errors += 1;
    }
    pair.report_send(around, opcode, index, failure);
    if goes_on {
        // What else is under way is of the same stream.
        while let Some((opcode, index)) = pair.requester.take_unfinished() {
            pair.report_send(around, opcode, index, Failure::FLUSHED);
        }
        pair.requester.abandon();
    }
}

/// Marks the request that holds `psn` as failed.
fn fail_at(pair: &mut Qp, psn: u32, failure: Failure) {
    let holds = |request: &&mut Request| {
        let packet = distance(request.first, psn);
        packet >= 0 && (packet as u32) < request.packets
    };
    if let Some(request) = pair.requester.requests.iter_mut().find(holds) {
        request.failed = Some(failure);
    }
}

/// Sends the next packet.
fn send_one(pair: &mut Qp, around: &mut Around<'_, '_>, desk: &mut Desk) -> Step {
    if pair.paging.sender_waits {
        return Step::Stuck;
    }
    let requester = &pair.requester;
    let Some(request) = requester.requests.get(requester.cursor) else { return Step::Stuck };
    if request.failed.is_some() {
        return Step::Stuck;
    }
    let psn = after(request.first, request.sent);
    if request.is_fetch() && request.sent == request.confirmed && requester.fetches() >= pair.out_max {
        return Step::Stuck;
    }
    let ahead = distance(requester.unconfirmed(), psn);
    if pair.service.is_reliable() && ahead >= WINDOW {
        return Step::Stuck;
    }
    let reliable = pair.service.is_reliable();
    if requester.mending && distance(psn, requester.sent_end) > 0 && !requester.again.contains(&psn) {
        // The peer has this one, or it is on its way: what it lacks is behind.
        let requester = &mut pair.requester;
        if let Some(request) = requester.requests.get_mut(requester.cursor) {
            request.sent = if request.kind == Kind::Read { request.packets } else { request.sent + 1 };
        }
        requester.skip_sent();
        return Step::Sent;
    }
    let last_in_window = ahead + 1 >= WINDOW;
    let (bth, extension, from, bytes) = headers(pair, request, psn, last_in_window);
    let who = pair.who();
    let (path, remote) = match &request.to {
        Some((path, remote, _)) => (*path, *remote),
        None => (pair.path, pair.remote),
    };
    let port = source_port(path.source_port, pair.number, remote);
    let fill = |bus: &crate::device::bus::Bus<'_>, keys: &crate::memory_keys::Keys, room: &mut [u8]| {
        request.gather(bus, keys, who, from, room).map_err(Failure::from)
    };
    let block = pair.block_loopback.then_some(pair.number);
    let sent = desk.send(around, &path, port, BthRepr { qp: remote, ..bth }, &extension, bytes, block, fill);
    signature::report_sent(pair, around);
    if sent == Err(Failure::ABSENT) && pair.asks_for_pages(around) {
        pair.paging.sender_waits = true;
        return Step::Stuck;
    }
    let now = around.bus.now;
    let waits = timeout(pair);
    let requester = &mut pair.requester;
    let Some(request) = requester.requests.get_mut(requester.cursor) else { return Step::Stuck };
    match sent {
        Ok(Sent::Yes) => {
            request.sent = if request.kind == Kind::Read { request.packets } else { request.sent + 1 };
            let end = after(request.first, request.sent);
            if distance(requester.sent_end, end) > 0 {
                requester.sent_end = end;
            }
            requester.skip_sent();
            if reliable && requester.deadline.is_none() {
                requester.arm(now, waits);
            }
            Step::Sent
        }
        Ok(Sent::Busy) => Step::Busy,
        Err(failure) => {
            request.failed = Some(failure);
            // Told at once, or when those before it are answered.
            Step::Sent
        }
    }
}

/// The time has come that [`Requester::due`] gave.
pub(crate) fn time(pair: &mut Qp, around: &mut Around<'_, '_>) {
    let now = around.bus.now;
    if pair.requester.deadline.is_none_or(|deadline| now < deadline) || !pair.state.sends() {
        return;
    }
    let waits = timeout(pair);
    let requester = &mut pair.requester;
    if requester.wait.is_some_and(|wait| now < wait) {
        // The peer asked for silence; it is not late.
        requester.arm(now, waits);
        return;
    }
    if let Some(counters) = around.counters.get_mut(pair.counter_set) {
        counters.timeouts += 1;
    }
    let psn = requester.unconfirmed();
    if requester.retries == 0 {
        requester.deadline = None;
        fail_at(pair, psn, Failure::RETRIES);
        return;
    }
    requester.retries -= 1;
    requester.gone_back = None;
    requester.there.clear();
    requester.go_back(psn);
    requester.arm(now, waits);
}
