//! Packets that nobody acknowledges: unreliable connections and datagrams.

use pollux_mlx5_abi::eqe::{event, queue_kind};
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome as Why;
use pollux_wire::roce::operation::{self as o, Class};
use pollux_wire::roce::{Deth, MASK_24};

use super::request::{carry_out, complete, split_off};
use super::{Done, Origin, Problem, Refusal, scatter, take_entry};
use crate::frame::Ip;
use crate::rdma::packet::{GLOBAL_BYTES, Incoming};
use crate::rdma::psn::after;
use crate::rdma::qp::Qp;
use crate::rdma::state::{Service, State};
use crate::rdma::{Around, signature};

/// Key of queue pair 1. Source: InfiniBand Architecture Specification, volume 1, 3.5.3.
const MANAGEMENT_KEY: u32 = 0x8001_0000;

/// A packet of an unreliable connection: what misses one is left out, message by message.
pub(super) fn unreliable(pair: &mut Qp, around: &mut Around<'_, '_>, packet: &Incoming<'_>) {
    let bth = packet.bth;
    let Some(shape) = o::shape(bth.opcode) else { return };
    if !matches!(shape.class, Class::Send | Class::Write) {
        return;
    }
    let fits = bth.psn == pair.responder.expected;
    pair.responder.expected = after(bth.psn, 1);
    if !fits && let Some(counters) = around.counters.get_mut(pair.counter_set) {
        counters.out_of_sequence += 1;
    }
    if shape.first || !fits {
        // The message before is not whole; its entry serves the next.
        pair.responder.message = None;
    }
    if !shape.first && pair.responder.message.is_none() {
        return;
    }
    match carry_out(pair, around, bth, shape, packet.rest) {
        // Nobody waits for memory here: no such connection is said to.
        Ok(Done::Taken | Done::Awaited) => {}
        Ok(Done::NotReady) => pair.responder.message = None,
        Err(Refusal { report: Some(report), .. }) => {
            pair.state = State::Error;
            if let Some(entry) = pair.responder.take_held() {
                let name = pair.user_index.or(pair.pool()).unwrap_or(0);
                pair.report_receive(around, pair.cqn_receive, name, entry.index, report);
            }
        }
        // Nobody is told; the packet was not for us.
        Err(_) => pair.responder.message = None,
    }
}

/// A datagram.
pub(crate) fn datagram(pair: &mut Qp, around: &mut Around<'_, '_>, packet: &Incoming<'_>) {
    let bth = packet.bth;
    let Ok((deth, rest)) = Deth::new(packet.rest) else { return };
    let Some(shape) = o::shape(bth.opcode).filter(|_| o::has(o::UD, bth.opcode)) else { return };
    let Ok((extra, payload)) = split_off(shape, rest) else { return };
    let key = if pair.service == Service::Management { MANAGEMENT_KEY } else { pair.qkey };
    if deth.qkey.get() != key {
        around.port.qkey_violations = around.port.qkey_violations.saturating_add(1);
        return;
    }
    let pool = pair.pool();
    let name = pair.user_index.or(pool).unwrap_or(0);
    let origin = Origin { pool, cqn: pair.cqn_receive, name, who: pair.who() };
    let entry = match take_entry(pair, around, &origin) {
        Ok(Some(entry)) => entry,
        Ok(None) => return,
        Err(()) => {
            pair.state = State::Error;
            around.events.queue_error(around.bus, event::WQ_CATAS_ERROR, queue_kind::QP, pair.number);
            return;
        }
    };
    let mut problem = around.bus.faults.receive_entry();
    if problem.is_none() {
        let outcome = scatter(around, origin.who, &entry, 0, &packet.global_header())
            .and_then(|()| scatter(around, origin.who, &entry, GLOBAL_BYTES as u64, payload));
        problem = match outcome {
            Ok(()) => None,
            Err(Problem::Length) => Some(Why { code: Why::LOCAL_LENGTH_ERR, vendor: 0x71 }),
            Err(Problem::Key(error)) => Some(Why { code: Why::LOCAL_PROT_ERR, vendor: error.vendor() }),
        };
    }
    signature::report_received(pair, around, origin.cqn);
    if let Some(report) = problem {
        pair.state = State::Error;
        pair.report_receive(around, origin.cqn, origin.name, entry.index, report);
        return;
    }
    // Which header is in front, and which version of RoCE brought it. Source: Linux
    // `drivers/infiniband/hw/mlx5/cq.c`, `handle_responder`, and `include/linux/mlx5/device.h`,
    // `MLX5_CQE_ROCE_L3_HEADER_TYPE_*`.
    let version = if packet.ip == Ip::V4 { 2 } else { 1 };
    let flags = 1 << 28 | version << 24 | deth.source.get() & MASK_24;
    let opcode = if shape.immediate { completion::RESPONDER_SEND_IMM } else { completion::RESPONDER_SEND };
    let bytes = (payload.len() + GLOBAL_BYTES) as u64;
    // Without immediate data the partition stands in its place: queue pair 1 answers by it. Source: Linux
    // `drivers/infiniband/hw/mlx5/cq.c`, `handle_responder`; rdma-core `providers/mlx5/cq.c`, likewise.
    let extra = extra.unwrap_or(bth.partition.into());
    complete(pair, around, &origin, &entry, opcode, bytes, extra, bth.solicited, flags);
}
