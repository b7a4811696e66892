//! The end that receives: requests of initiators, and what they are answered.

use std::mem::swap;

use pollux_mlx5_abi::eqe::{self, event};
use pollux_wire::roce::operation::{self, Class};
use pollux_wire::roce::{Aeth, BthRepr, MASK_24, Nak, Syndrome};
use zerocopy::{FromBytes, IntoBytes};

use super::connection::{Connection, IDLE, Refused, Target};
use super::{Header, TRANSPORT};
use crate::failure::Failure;
use crate::rdma::packet::{Extension, Incoming, PARTITION, source_port};
use crate::rdma::path::Path;
use crate::rdma::qp::Qp;
use crate::rdma::responder::{self, Responder};
use crate::rdma::state::State;
use crate::rdma::{Around, Desk, Sent, Turn};

fn raise(around: &mut Around<'_, '_>, kind: u8, number: u32) {
    let data = eqe::Target { dctn: number.into(), ..Default::default() };
    around.events.raise(around.bus, kind, 0, data.as_bytes());
}

/// A packet came in for a target.
pub(crate) fn request(pair: &mut Qp, around: &mut Around<'_, '_>, packet: &Incoming<'_>) {
    let Some(mut target) = pair.target.take() else { return };
    take(pair, &mut target, around, packet);
    pair.target = Some(target);
}

fn take(pair: &mut Qp, target: &mut Target, around: &mut Around<'_, '_>, packet: &Incoming<'_>) {
    let asks = operation::shape(packet.bth.opcode)
        .is_some_and(|shape| !matches!(shape.class, Class::ReadResponse | Class::Acknowledge));
    let Ok((header, rest)) = Header::ref_from_prefix(packet.rest) else { return };
    if !asks {
        return;
    }
    let (source, session) = (header.source.get() & MASK_24, header.session.get());
    let path = Path { mac: packet.mac, gid: packet.source, ..pair.path };
    let psn = packet.bth.psn;
    if header.key.get() != target.key {
        target.violations = target.violations.saturating_add(1);
        if std::mem::take(&mut target.armed) {
            raise(around, event::DCT_KEY_VIOLATION, pair.number);
        }
        target.refuse(Refused { path, source, psn, syndrome: Syndrome::Nak(Nak::Access) });
        return;
    }
    let from = (packet.source, source);
    let (known, now) = (target.connections.get(&from), around.bus.now);
    // Of a connection that its initiator has ended since. After a while it is another initiator, which began anew.
    if known.is_some_and(|known| session < known.session && now.saturating_sub(known.used) < IDLE) {
        return;
    }
    let known = known.map(|known| known.session);
    if known != Some(session) {
        if known.is_none() && !target.make_room(now) {
            let syndrome = Syndrome::NotReady(pair.rnr_timer);
            target.refuse(Refused { path, source, psn, syndrome });
            return;
        }
        let mut responder = Responder::default();
        responder.begin(header.first.get() & MASK_24);
        let new = Connection { session, path, responder, used: 0, over: false };
        if let Some(mut old) = target.connections.insert(from, new) {
            break_off(pair, around, &mut old.responder);
        }
        if let Some(counters) = around.counters.get_mut(pair.counter_set) {
            counters.connects += 1;
        }
    }
    let Some(connection) = target.connections.get_mut(&from) else { return };
    connection.used = now;
    if connection.over {
        return;
    }
    with(pair, around, source, connection, |pair, around| {
        responder::request(pair, around, &packet.behind(rest));
    });
}

/// Does something for a connection, in the place of a queue pair's only one.
fn with<T>(
    pair: &mut Qp,
    around: &mut Around<'_, '_>,
    source: u32,
    connection: &mut Connection,
    what: impl FnOnce(&mut Qp, &mut Around<'_, '_>) -> T,
) -> T {
    swap(&mut pair.responder, &mut connection.responder);
    let own = std::mem::replace(&mut pair.path, connection.path);
    pair.remote = source;
    let outcome = what(pair, around);
    swap(&mut pair.responder, &mut connection.responder);
    pair.path = own;
    if pair.state == State::Error && !pair.dead {
        // One connection's error is not the others'.
        pair.state = State::Receive;
        connection.over = true;
        break_off(pair, around, &mut connection.responder);
    }
    outcome
}

/// A message will not end: its receive entry is flushed.
fn break_off(pair: &mut Qp, around: &mut Around<'_, '_>, responder: &mut Responder) {
    if let Some(entry) = responder.take_held()
        && !pair.dead
    {
        let name = pair.user_index.or(pair.pool()).unwrap_or(0);
        pair.report_receive(around, pair.cqn_receive, name, entry.index, Failure::FLUSHED.0);
    }
}

/// Tells initiators what there is to tell, and ends what is to be drained.
pub(crate) fn run(pair: &mut Qp, around: &mut Around<'_, '_>, desk: &mut Desk, budget: usize) -> Turn {
    let Some(mut target) = pair.target.take() else { return Turn::default() };
    let mut turn = answer(pair, &mut target, around, desk, budget);
    if pair.state == State::Draining {
        for connection in target.connections.values_mut() {
            break_off(pair, around, &mut connection.responder);
        }
        target.connections.clear();
        target.refused.clear();
        pair.state = State::Drained;
        raise(around, event::DCT_DRAINED, pair.number);
        turn.done += 1;
        turn.more = false;
    }
    pair.target = Some(target);
    turn
}

fn answer(
    pair: &mut Qp,
    target: &mut Target,
    around: &mut Around<'_, '_>,
    desk: &mut Desk,
    budget: usize,
) -> Turn {
    let mut turn = Turn::default();
    while let Some(refused) = target.refused.front().copied() {
        let bth = BthRepr {
            opcode: TRANSPORT | operation::ACKNOWLEDGE,
            migrated: true,
            partition: PARTITION,
            qp: refused.source,
            psn: refused.psn,
            ..BthRepr::default()
        };
        let extension = Extension::new().with(Aeth::make(refused.syndrome, 0).as_bytes());
        let port = source_port(refused.path.source_port, pair.number, refused.source);
        let sent = desk.send(around, &refused.path, port, bth, &extension, 0, None, |_, _, _| Ok(()));
        if sent == Ok(Sent::Busy) || turn.done >= budget {
            turn.more = true;
            return turn;
        }
        target.refused.pop_front();
        turn.done += 1;
    }
    for ((_, source), connection) in &mut target.connections {
        if connection.responder.has_nothing_to_say() {
            continue;
        }
        if turn.done >= budget {
            turn.more = true;
            break;
        }
        let left = budget - turn.done;
        let one =
            with(pair, around, *source, connection, |pair, around| responder::run(pair, around, desk, left));
        turn.done += one.done;
        turn.more |= one.more;
    }
    turn
}
