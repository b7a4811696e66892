//! Send entries: read from the ring, taken apart, made into requests.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    self, AddressVector, Atomic, BLOCK_BYTES, Completion, Control, Data, EXTENDED_UD_AV, INLINE,
    RemoteAddress, SEGMENT_BYTES, SEGMENTS_MAX, Xrc, copy,
};
use zerocopy::FromBytes;

use super::dynamic::Peer;
use super::path::{Path, is_group};
use super::qp::Qp;
use super::state::Service;
use crate::device::blue_flame::CameAlong;
use crate::device::bus::Bus;
use crate::device::ring::send::SendRing;
use crate::failure::Failure;
use crate::ledger::Crossing;
use crate::memory_keys::{Access, KeyError, Keys, Who, read, write};
use crate::send::reserved;

/// Bytes of an entry at most.
pub(crate) const ENTRY_MAX: usize = wqe::blocks(SEGMENTS_MAX) * BLOCK_BYTES;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send,
    Write,
    Read,
    Atomic,
    /// Nothing on the wire.
    Local,
}

/// Local memory of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// In the entry itself: from, to.
    Inline(u16, u16),
    /// Key, address, bytes.
    Memory(u32, u64, u64),
}

/// A request, from its entry to its completion.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) opcode: u8,
    /// Its entry's first block.
    pub(crate) index: u16,
    pub(crate) completion: Completion,
    pub(crate) solicited: bool,
    pub(crate) fence: Option<wqe::Fence>,
    pub(crate) imm: u32,
    pub(crate) parts: Vec<Part>,
    pub(crate) inline: Vec<u8>,
    pub(crate) bytes: u64,
    pub(crate) remote: u64,
    pub(crate) key: u32,
    /// The value to store or add, and the one to compare.
    pub(crate) operands: (u64, u64),
    /// Of a datagram: where it goes, to which queue pair, with which key.
    pub(crate) to: Option<(Path, u32, u32)>,
    /// Of an initiator: its stream, and where it goes.
    pub(crate) stream: u16,
    pub(crate) peer: Option<Peer>,
    /// Of XRC: the shared receive queue.
    pub(crate) pool: u32,
    /// Of work on keys: the segments behind the control segment.
    pub(crate) segments: Vec<u8>,
    /// Sequence number of its first packet, how many there are, of requests to read those of the answer.
    pub(crate) first: u32,
    pub(crate) packets: u32,
    /// How many of them were sent (or asked for) since sending went back last, and how many are known to be there.
    pub(crate) sent: u32,
    pub(crate) confirmed: u32,
    /// It cannot go on; told when its turn comes.
    pub(crate) failed: Option<Failure>,
    /// The first byte of its entry that has bits set which mean nothing.
    pub(crate) reserved: Option<usize>,
}

impl Request {
    fn of(control: &Control) -> Self {
        Self {
            kind: Kind::Local,
            opcode: control.opcode(),
            index: control.index(),
            completion: control.completion(),
            solicited: control.solicited(),
            fence: control.fence(),
            imm: control.imm.get(),
            parts: Vec::new(),
            inline: Vec::new(),
            bytes: 0,
            remote: 0,
            key: 0,
            operands: (0, 0),
            to: None,
            stream: 0,
            peer: None,
            pool: 0,
            segments: Vec::new(),
            first: 0,
            packets: 0,
            sent: 0,
            confirmed: 0,
            failed: None,
            reserved: None,
        }
    }

    /// It changes a memory key.
    pub(crate) fn changes_key(&self) -> bool {
        matches!(self.opcode, send::UMR | send::LOCAL_INVAL)
    }

    /// It sets a signature variable. Whoever uses a key of it next waits as for the key: rdma-core `providers/mlx5/qp.c`,
    /// `mlx5_umr_set_psv`; Linux `drivers/infiniband/hw/mlx5/wr.c`, `handle_reg_mr_integrity`.
    pub(crate) fn sets_signature(&self) -> bool {
        self.opcode == send::SET_PSV
    }

    fn note(&mut self, reserved: Option<usize>) {
        self.reserved = self.reserved.or(reserved);
    }

    /// It fetches something from the peer.
    pub(crate) fn is_fetch(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Atomic)
    }

    /// Copies bytes `from..` of its message.
    pub(crate) fn gather(
        &self,
        bus: &Bus<'_>,
        keys: &Keys,
        who: Who,
        from: u64,
        into: &mut [u8],
    ) -> Result<(), KeyError> {
        let (mut skip, mut done) = (from, 0);
        for part in &self.parts {
            if done == into.len() {
                break;
            }
            let all = part.bytes();
            if skip >= all {
                skip -= all;
                continue;
            }
            let run = ((all - skip) as usize).min(into.len() - done);
            let room = &mut into[done..done + run];
            match *part {
                Part::Inline(start, _) => {
                    let start = usize::from(start) + skip as usize;
                    room.copy_from_slice(self.inline.get(start..start + run).ok_or(KeyError::Bounds)?);
                }
                Part::Memory(key, at, _) => {
                    let at = at.checked_add(skip).ok_or(KeyError::Bounds)?;
                    read(bus, keys, who, key, at, Access::Read, room)?;
                }
            }
            done += run;
            skip = 0;
        }
        if done == into.len() { Ok(()) } else { Err(KeyError::Bounds) }
    }

    /// Writes bytes `from..` of what it fetched.
    pub(crate) fn scatter(
        &self,
        bus: &Bus<'_>,
        keys: &Keys,
        who: Who,
        from: u64,
        data: &[u8],
    ) -> Result<(), KeyError> {
        let (mut skip, mut done) = (from, 0);
        for part in &self.parts {
            if done == data.len() {
                break;
            }
            let all = part.bytes();
            if skip >= all {
                skip -= all;
                continue;
            }
            let run = ((all - skip) as usize).min(data.len() - done);
            let Part::Memory(key, at, _) = *part else { return Err(KeyError::Right) };
            let at = at.checked_add(skip).ok_or(KeyError::Bounds)?;
            write(bus, keys, who, key, at, Access::Write, &data[done..done + run])?;
            done += run;
            skip = 0;
        }
        if done == data.len() { Ok(()) } else { Err(KeyError::Bounds) }
    }
}

impl Part {
    fn bytes(&self) -> u64 {
        match self {
            Self::Inline(from, to) => u64::from(to - from),
            Self::Memory(_, _, bytes) => *bytes,
        }
    }
}

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
        let path = Path::of_vector(vector);
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
