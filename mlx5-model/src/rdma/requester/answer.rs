//! What the peer's answers do to requests: confirmed, sent again, failed.

use pollux_wire::roce::operation::{self, Class};
use pollux_wire::roce::{Aeth, AtomicAckEth, NOT_READY_10US, Nak, Syndrome};

use super::{EARLY_MAX, Requester, WINDOW, fail_at, timeout};
use crate::failure::Failure;
use crate::rdma::packet::Incoming;
use crate::rdma::psn::{PSN_MASK, after, distance};
use crate::rdma::qp::Qp;
use crate::rdma::request::{Kind, Request};
use crate::rdma::{Around, signature};
use crate::time::TICKS_PER_US;

/// An answer of the peer.
pub(crate) fn answer(pair: &mut Qp, around: &mut Around<'_, '_>, packet: &Incoming<'_>) {
    if !pair.state.sends() {
        return;
    }
    let Some(shape) = operation::shape(packet.bth.opcode) else { return };
    let psn = packet.bth.psn;
    let requester = &pair.requester;
    let begun = distance(requester.unconfirmed(), psn);
    // Behind what was sent, or long over: of another life.
    if distance(psn, requester.sent_end) <= 0 || begun < -WINDOW {
        return;
    }
    match shape.class {
        Class::ReadResponse => read_answer(pair, around, packet),
        Class::Acknowledge => {
            let Ok((aeth, rest)) = Aeth::new(packet.rest) else { return };
            if packet.bth.opcode & !operation::TRANSPORT == operation::ATOMIC_ACKNOWLEDGE {
                let Ok((value, _)) = AtomicAckEth::new(rest) else { return };
                atomic_answer(pair, around, psn, value.original.get());
            } else {
                acknowledge(pair, around, psn, aeth);
            }
        }
        _ => {}
    }
}

/// An answer is missing in front of one that came: from there on again, once.
fn implied(pair: &mut Qp, around: &mut Around<'_, '_>, psn: u32) {
    if pair.requester.gone_back == Some(psn) {
        return;
    }
    if let Some(counters) = around.counters.get_mut(pair.counter_set) {
        counters.implied_naks += 1;
    }
    pair.requester.gone_back = Some(psn);
    pair.requester.go_back(psn);
}

fn acknowledge(pair: &mut Qp, around: &mut Around<'_, '_>, psn: u32, aeth: &Aeth) {
    let (now, waits) = (around.bus.now, timeout(pair));
    let syndrome = aeth.syndrome();
    let covered = if matches!(syndrome, Syndrome::Ack(_)) { psn } else { after(psn, PSN_MASK) };
    match pair.requester.confirm(covered) {
        Ok(true) => pair.requester.progress(now, waits),
        Ok(false) => {}
        Err(missing) => {
            implied(pair, around, missing);
            return;
        }
    }
    // A refusal of something that was confirmed since.
    if distance(pair.requester.unconfirmed(), psn) < 0 {
        return;
    }
    match syndrome {
        Syndrome::Ack(_) | Syndrome::Unknown(_) => {}
        Syndrome::NotReady(timer) => {
            if let Some(counters) = around.counters.get_mut(pair.counter_set) {
                counters.not_ready += 1;
            }
            let requester = &mut pair.requester;
            if requester.rnr_retries == 0 {
                fail_at(pair, psn, Failure::NOT_READY);
                return;
            }
            // 7 stands for no limit. Source: InfiniBand Architecture Specification, volume 1, 9.7.5.2.8.
            if requester.max_rnr_retries != 7 {
                requester.rnr_retries -= 1;
            }
            let pause = u64::from(NOT_READY_10US[usize::from(timer & 31)]) * 10 * TICKS_PER_US;
            requester.wait = Some(now + pause);
            requester.gone_back = None;
            requester.there.clear();
            requester.go_back(psn);
            requester.arm(now + pause, waits);
        }
        Syndrome::Nak(Nak::Sequence) => {
            if let Some(counters) = around.counters.get_mut(pair.counter_set) {
                counters.sequence_naks += 1;
            }
            let selective = pair.ece.is_selective();
            let requester = &mut pair.requester;
            if selective {
                // The count of messages gives way to the packet that came in its stead.
                requester.lacks(psn, aeth.messages());
                requester.arm(now, waits);
                return;
            }
            if requester.gone_back == Some(psn) {
                return;
            }
            if requester.retries == 0 {
                fail_at(pair, psn, Failure::RETRIES);
                return;
            }
            requester.retries -= 1;
            requester.gone_back = Some(psn);
            requester.go_back(psn);
            requester.arm(now, waits);
        }
        Syndrome::Nak(Nak::InvalidRequest | Nak::InvalidDatagram) => {
            fail_at(pair, psn, Failure::REMOTE_INVALID);
        }
        Syndrome::Nak(Nak::Access) => fail_at(pair, psn, Failure::REMOTE_ACCESS),
        Syndrome::Nak(Nak::Operation) => fail_at(pair, psn, Failure::REMOTE_OPERATION),
    }
}

impl Requester {
    /// The peer lacks `psn` and has `has`: what is missing between them goes out once more, each packet once.
    fn lacks(&mut self, psn: u32, has: u32) {
        if distance(psn, has) <= 0 || distance(has, self.sent_end) <= 0 {
            return;
        }
        self.there.insert(has);
        if self.again.contains(&psn) {
            return;
        }
        // All up to the furthest packet that is there: those that are not are lost, or on their way.
        let Some(end) = self.there.iter().copied().max_by_key(|other| distance(psn, *other)) else { return };
        let mut missing = psn;
        while distance(missing, end) > 0 {
            self.again.insert(missing);
            missing = after(missing, 1);
        }
        let again = std::mem::take(&mut self.again);
        self.go_back(psn);
        self.again = again;
        self.mending = true;
    }
}

fn atomic_answer(pair: &mut Qp, around: &mut Around<'_, '_>, psn: u32, original: u64) {
    match pair.requester.confirm(after(psn, PSN_MASK)) {
        Ok(_) => {}
        Err(missing) => {
            implied(pair, around, missing);
            return;
        }
    }
    let who = pair.who();
    let Some(request) =
        pair.requester.requests.iter_mut().find(|request| {
            request.first == psn && request.packets > 0 && request.confirmed < request.packets
        })
    else {
        return;
    };
    if request.kind != Kind::Atomic {
        request.failed = Some(Failure::ANSWER);
        return;
    }
    // In memory the value is in the host's order.
    let outcome = request.scatter(around.bus, around.keys, who, 0, &original.to_le_bytes());
    if outcome.is_ok() {
        (request.confirmed, request.sent) = (1, 1);
    }
    signature::report_sent(pair, around);
    if let Err(error) = outcome {
        let failure = error.into();
        if is_lost(pair, around, failure) {
            return;
        }
        fail_at(pair, psn, failure);
    }
    pair.requester.skip_sent();
    let (now, waits) = (around.bus.now, timeout(pair));
    pair.requester.progress(now, waits);
}

fn read_answer(pair: &mut Qp, around: &mut Around<'_, '_>, packet: &Incoming<'_>) {
    let psn = packet.bth.psn;
    let holds = |request: &Request| {
        let index = distance(request.first, psn);
        index >= 0 && (index as u32) < request.packets
    };
    let Some(at) = pair.requester.requests.iter().position(holds) else { return };
    let shape = operation::shape(packet.bth.opcode);
    let headed = shape.is_some_and(|shape| shape.first || shape.last);
    let payload = if headed { packet.rest.get(Aeth::BYTES..) } else { Some(packet.rest) };
    let Some(payload) = payload else { return };
    match pair.requester.confirm(after(psn, PSN_MASK)) {
        Ok(_) => {}
        // What misses may be in front of this read, or its own.
        Err(missing) => {
            let own =
                pair.requester.requests.get(at).is_some_and(|request| {
                    request.kind == Kind::Read && distance(request.first, missing) >= 0
                });
            if pair.ece.is_selective() && own && pair.requester.early.len() < EARLY_MAX {
                pair.requester.early.insert(psn, payload.to_vec());
            }
            implied(pair, around, missing);
            return;
        }
    }
    place(pair, around, at, psn, payload);
    // What came early follows.
    while let Some(psn) =
        pair.requester.requests.get(at).map(|request| after(request.first, request.confirmed))
    {
        let Some(payload) = pair.requester.early.remove(&psn) else { break };
        place(pair, around, at, psn, &payload);
    }
    let unconfirmed = pair.requester.unconfirmed();
    pair.requester.early.retain(|psn, _| distance(unconfirmed, *psn) >= 0);
    let (now, waits) = (around.bus.now, timeout(pair));
    pair.requester.progress(now, waits);
}

/// Puts the answer to a read where it belongs, if it is its turn.
fn place(pair: &mut Qp, around: &mut Around<'_, '_>, at: usize, psn: u32, payload: &[u8]) {
    let (who, mtu) = (pair.who(), pair.mtu as u64);
    let Some(request) = pair.requester.requests.get_mut(at) else { return };
    let index = distance(request.first, psn);
    if index < 0 || index as u32 != request.confirmed || request.confirmed >= request.packets {
        return;
    }
    let from = u64::from(request.confirmed) * mtu;
    let expected = (request.bytes - from.min(request.bytes)).min(mtu);
    if request.kind != Kind::Read || payload.len() as u64 != expected {
        request.failed = Some(Failure::ANSWER);
        return;
    }
    match request.scatter(around.bus, around.keys, who, from, payload) {
        Ok(()) => {
            request.confirmed += 1;
            request.sent = request.sent.max(request.confirmed);
        }
        Err(error) => {
            let failure = error.into();
            if !is_lost(pair, around, failure) {
                fail_at(pair, psn, failure);
            }
        }
    }
    pair.requester.skip_sent();
    signature::report_sent(pair, around);
}

/// Whether an answer is as good as lost, since where it was to go is not all there, and is asked for again when it is late.
fn is_lost(pair: &mut Qp, around: &mut Around<'_, '_>, failure: Failure) -> bool {
    failure == Failure::ABSENT && pair.asks_for_pages(around)
}
