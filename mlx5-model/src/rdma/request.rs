//! A request: what a send entry asks for, from the entry to its completion.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Completion, Control, Fence};

use super::dynamic::Peer;
use super::path::Path;
use crate::device::bus::Bus;
use crate::failure::Failure;
use crate::memory_keys::{Access, KeyError, Keys, Who, read, write};

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
    pub(crate) fence: Option<Fence>,
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
    pub(super) fn of(control: &Control) -> Self {
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

    pub(super) fn note(&mut self, reserved: Option<usize>) {
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
