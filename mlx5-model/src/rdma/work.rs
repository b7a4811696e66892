//! Send entries: read from the ring, taken apart, made into requests.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    self, AddressVector, Atomic, BLOCK_BYTES, Control, Data, EXTENDED_UD_AV, INLINE, RemoteAddress,
    SEGMENT_BYTES, SEGMENTS_MAX, Xrc, copy,
};
use zerocopy::FromBytes;

use super::dynamic::Peer;
use super::path::{Path, is_group};
use super::qp::Qp;
use super::request::{Kind, Part, Request};
use super::state::Service;
use crate::device::blue_flame::CameAlong;
use crate::device::bus::Bus;
use crate::device::ring::send::SendRing;
use crate::failure::Failure;
use crate::ledger::Crossing;
use crate::send::reserved;

/// Bytes of an entry at most.
pub(crate) const ENTRY_MAX: usize = wqe::blocks(SEGMENTS_MAX) * BLOCK_BYTES;

/// The next entry of a ring where one is posted: what it asks for, and how many blocks it has.
pub(crate) fn next(pair: &Qp, ring: &SendRing, bus: &Bus<'_>) -> (Request, u16) {
    let posted = ring.left();
    let mut bytes = [0; ENTRY_MAX];
    let mut control = Control::default();
    let mut length = BLOCK_BYTES;
    let came = ring.next_came_along().map(CameAlong::bytes);
    let fetch = |into: &mut [u8]| match came {
        Some(came) => {
            // It came whole.
            let known = into.len().min(came.len());
            into[..known].copy_from_slice(&came[..known]);
            Ok(())
        }
        None => ring.read(bus, into).map_err(|_| Failure::ACCESS),
    };
    let mut outcome = fetch(&mut bytes[..BLOCK_BYTES]);
    if outcome.is_ok() {
        control = Control::read_from_prefix(&bytes).map_or(control, |(control, _)| control);
        length = usize::from(control.segments()) * SEGMENT_BYTES;
        let blocks = wqe::blocks(control.segments().into());
        outcome = if blocks == 0
            || blocks > usize::from(posted)
            || control.index() != ring.next()
            || control.qpn() != pair.number
        {
            Err(Failure::ENTRY)
        } else if length > BLOCK_BYTES {
            fetch(&mut bytes[..blocks * BLOCK_BYTES])
        } else {
            Ok(())
        };
    }
    let mut request = Request::of(&control);
    if pair.initiator.as_ref().is_some_and(|initiator| initiator.has_streams) {
        request.stream = u16::from_be_bytes(std::mem::take(&mut control.dci_stream_channel_id));
    }
    if outcome.is_ok() {
        request.reserved = reserved::in_control(&control);
    }
    // Completions name the place, whatever stands there.
    request.index = ring.next();
    let blocks = (wqe::blocks(control.segments().into()).max(1) as u16).min(posted.max(1));
    let outcome = outcome.and_then(|()| {
        if came.is_none() {
            bus.ledger.add_entries(Crossing::SendEntry, 0, length);
        }
        let body = &bytes[SEGMENT_BYTES..length.max(SEGMENT_BYTES)];
        take_apart(pair, control.modifier(), &mut request, body)
    });
    if let Err(failure) = outcome {
        request.failed = Some(failure);
    }
    (request, blocks)
}

/// A segment at the front.
fn front<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    rest: &[u8],
) -> Result<(&T, &[u8]), Failure> {
    T::ref_from_prefix(rest).map_err(|_| Failure::SEGMENTS)
}

fn take_apart(pair: &Qp, modifier: u8, request: &mut Request, body: &[u8]) -> Result<(), Failure> {
    use Service as S;
    // How far into the entry what is left begins.
    let at = |rest: &[u8]| SEGMENT_BYTES + body.len() - rest.len();
    let reliable = pair.service.is_reliable();
    let connected = pair.service.is_connected() || pair.service == S::Initiator;
    request.kind = match request.opcode {
        send::NOP => return Ok(()),
        send::SEND | send::SEND_IMM if pair.service != S::Keys => Kind::Send,
        send::SEND_INVAL if reliable => Kind::Send,
        send::RDMA_WRITE | send::RDMA_WRITE_IMM if connected => Kind::Write,
        send::RDMA_READ if reliable => Kind::Read,
        send::ATOMIC_CS | send::ATOMIC_FA if reliable => Kind::Atomic,
        send::UMR | send::LOCAL_INVAL if !pair.service.is_datagram() => {
            if request.opcode == send::UMR {
                request.note(reserved::in_umr(body));
            }
            request.segments = body.to_vec();
            return Ok(());
        }
        send::SET_PSV if pair.signs => {
            request.segments = body.to_vec();
            return Ok(());
        }
        send::MMO if pair.copies && modifier == copy::MODIFIER => {
            request.segments = body.to_vec();
            return Ok(());
        }
        _ => return Err(Failure::OPCODE),
    };
    let mut rest = body;
    if pair.service == S::Xrc {
        let (xrc, behind) = front::<Xrc>(rest)?;
        request.pool = xrc.xrc_srqn.get() & 0xff_ffff;
        rest = behind;
    }
    if pair.service.is_datagram() || pair.service == S::Initiator {
        let (vector, behind) = front::<AddressVector>(rest)?;
        // Without the extended form there is no address that RoCE could use.
        if vector.dqp_dct.get() & EXTENDED_UD_AV == 0 {
            return Err(Failure::SEGMENTS);
        }
        request.note(reserved::in_vector(at(rest), vector));
        let path = Path::of_vector(vector, pair.path.second);
        if pair.service == S::Initiator {
            if is_group(&path.gid) {
                return Err(Failure::ADDRESS);
            }
            request.peer = Some(Peer { path, target: vector.qpn(), key: vector.key.get() });
        } else {
            let qkey = if vector.qkey() >> 31 == 1 { pair.qkey } else { vector.qkey() };
            request.to = Some((path, vector.qpn(), qkey));
        }
        rest = behind;
    }
    if matches!(request.kind, Kind::Write | Kind::Read | Kind::Atomic) {
        let (remote, behind) = front::<RemoteAddress>(rest)?;
        request.note(reserved::in_remote(at(rest), remote));
        (request.remote, request.key) = (remote.raddr.get(), remote.rkey.get());
        rest = behind;
    }
    if request.kind == Kind::Atomic {
        let (atomic, behind) = front::<Atomic>(rest)?;
        request.operands = (atomic.swap_add.get(), atomic.compare.get());
        rest = behind;
    }
    while !rest.is_empty() {
        let (data, behind) = front::<Data>(rest)?;
        let count = data.byte_count.get();
        if count & INLINE == 0 {
            request.parts.push(Part::Memory(data.lkey.get(), data.addr.get(), data.bytes()));
            request.bytes += data.bytes();
            rest = behind;
            continue;
        }
        if request.is_fetch() {
            return Err(Failure::SEGMENTS);
        }
        let bytes = (count & !INLINE) as usize;
        let inline = rest.get(4..4 + bytes).ok_or(Failure::SEGMENTS)?;
        let from = request.inline.len() as u16;
        request.inline.extend_from_slice(inline);
        request.parts.push(Part::Inline(from, request.inline.len() as u16));
        request.bytes += bytes as u64;
        rest = rest.get((4 + bytes).next_multiple_of(SEGMENT_BYTES)..).ok_or(Failure::SEGMENTS)?;
    }
    if request.kind == Kind::Atomic && request.bytes != 8 {
        return Err(Failure::LENGTH);
    }
    if request.bytes > 1 << pair.log_message_max
        || pair.service.is_datagram() && request.bytes > pair.mtu as u64
    {
        return Err(Failure::LENGTH);
    }
    request.packets = match request.kind {
        Kind::Local => 0,
        Kind::Atomic => 1,
        _ => (request.bytes.div_ceil(pair.mtu as u64) as u32).max(1),
    };
    Ok(())
}
