//! What stands in a request's packets: opcode, extension headers, and which bytes of the message.

use pollux_mlx5_abi::opcode::send;
use pollux_wire::roce::operation;
use pollux_wire::roce::{AtomicEth, BthRepr, Deth, Ieth, ImmDt, Reth, XrcEth};
use zerocopy::IntoBytes;

use crate::rdma::dynamic;
use crate::rdma::packet::{Extension, PARTITION};
use crate::rdma::qp::Qp;
use crate::rdma::request::{Kind, Request};
use crate::rdma::state::Service;

/// After so many packets an answer is asked for, beside each message's end.
const ASK_EVERY: u32 = 64;

/// The headers of the packet `psn` of a request, and which bytes of its message are in it.
pub(super) fn headers(
    pair: &Qp,
    request: &Request,
    psn: u32,
    last_in_window: bool,
) -> (BthRepr, Extension, u64, usize) {
    use operation as o;
    let index = request.sent;
    let from = u64::from(index) * pair.mtu as u64;
    let left = request.bytes.saturating_sub(from);
    let first = index == 0;
    let last = index + 1 == request.packets;
    let transport = match pair.service {
        Service::Unreliable => o::UC,
        Service::Datagram | Service::Management => o::UD,
        Service::Xrc => o::XRC,
        Service::Reliable | Service::Keys => o::RC,
        Service::Initiator | Service::Target => dynamic::TRANSPORT,
    };
    let mut extension = Extension::new();
    if let Some(initiator) = &pair.initiator {
        extension = extension.with(initiator.header(pair.number).as_bytes());
    }
    if pair.service == Service::Xrc {
        extension = extension.with(XrcEth { queue: request.pool.into() }.as_bytes());
    }
    if let Some((_, _, qkey)) = request.to {
        let source = match (pair.service, pair.known_as) {
            (Service::Management, _) => 1,
            (_, 0) => pair.number,
            (_, number) => number,
        };
        extension = extension.with(Deth { qkey: qkey.into(), source: source.into() }.as_bytes());
    }
    let (imm, inval) =
        (matches!(request.opcode, send::SEND_IMM | send::RDMA_WRITE_IMM), request.opcode == send::SEND_INVAL);
    let opcode = match (request.kind, first, last) {
        (Kind::Send, true, true) if imm => o::SEND_ONLY_IMM,
        (Kind::Send, true, true) if inval => o::SEND_ONLY_INVALIDATE,
        (Kind::Send, true, true) => o::SEND_ONLY,
        (Kind::Send, true, false) => o::SEND_FIRST,
        (Kind::Send, false, true) if imm => o::SEND_LAST_IMM,
        (Kind::Send, false, true) if inval => o::SEND_LAST_INVALIDATE,
        (Kind::Send, false, true) => o::SEND_LAST,
        (Kind::Send, false, false) => o::SEND_MIDDLE,
        (Kind::Write, true, true) if imm => o::WRITE_ONLY_IMM,
        (Kind::Write, true, true) => o::WRITE_ONLY,
        (Kind::Write, true, false) => o::WRITE_FIRST,
        (Kind::Write, false, true) if imm => o::WRITE_LAST_IMM,
        (Kind::Write, false, true) => o::WRITE_LAST,
        (Kind::Write, false, false) => o::WRITE_MIDDLE,
        (Kind::Atomic, ..) if request.opcode == send::ATOMIC_CS => o::COMPARE_SWAP,
        (Kind::Atomic, ..) => o::FETCH_ADD,
        (Kind::Read | Kind::Local, ..) => o::READ_REQUEST,
    };
    let mut bytes = left.min(pair.mtu as u64) as usize;
    match request.kind {
        Kind::Write if first => {
            let reth = Reth {
                address: request.remote.into(),
                key: request.key.into(),
                bytes: (request.bytes as u32).into(),
            };
            extension = extension.with(reth.as_bytes());
        }
        Kind::Read => {
            let reth = Reth {
                address: request.remote.wrapping_add(from).into(),
                key: request.key.into(),
                bytes: (left as u32).into(),
            };
            extension = extension.with(reth.as_bytes());
            bytes = 0;
        }
        Kind::Atomic => {
            let atomic = AtomicEth {
                address: request.remote.into(),
                key: request.key.into(),
                swap_add: request.operands.0.into(),
                compare: request.operands.1.into(),
            };
            extension = extension.with(atomic.as_bytes());
            bytes = 0;
        }
        _ => {}
    }
    if last && imm {
        extension = extension.with(ImmDt { data: request.imm.into() }.as_bytes());
    } else if last && inval {
        extension = extension.with(Ieth { key: request.imm.into() }.as_bytes());
    }
    let ends = last || request.is_fetch();
    let bth = BthRepr {
        opcode: transport | opcode,
        solicited: ends && request.solicited,
        migrated: true,
        partition: PARTITION,
        ack: pair.service.is_reliable() && (ends || last_in_window || psn % ASK_EVERY == ASK_EVERY - 1),
        psn,
        ..BthRepr::default()
    };
    (bth, extension, from, bytes)
}
