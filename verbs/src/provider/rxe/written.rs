//! Requests that a batch has written down and the kernel has not been told of. The queue pair keeps them, so that a batch of
//! either provider is small enough for registers.

use zerocopy::IntoBytes;

use super::abi::{Dma, Flush, Remote, SendEntry, Sge, opcode};
use super::track::Note;
use crate::provider::request::{FlushRange, PostError};

/// The request that is being written.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) entry: SendEntry,
    pub(super) note: Note,
    pub(super) sges: Vec<Sge>,
    pub(super) inline: Vec<u8>,
    /// The kernel writes its pieces.
    pub(super) writes: bool,
    /// A datagram without an address.
    pub(super) lacks: bool,
    /// It takes no data of the user's.
    pub(super) bare: bool,
    /// Bytes of the peer's memory that it concerns where no data say so.
    pub(super) concerns: u32,
}

impl Request {
    pub(super) fn new(id: u64, opcode: u32, send_flags: u32) -> Self {
        Self {
            entry: SendEntry { opcode, send_flags, ..SendEntry::default() },
            note: Note { id, pieces: Vec::new() },
            sges: Vec::new(),
            inline: Vec::new(),
            writes: false,
            lacks: false,
            bare: false,
            concerns: 0,
        }
    }

    /// What the operation has of its own, one of the structures of `super::abi`.
    pub(super) fn set_operation(&mut self, operation: &(impl IntoBytes + zerocopy::Immutable)) {
        let bytes = operation.as_bytes();
        self.entry.operation.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
    }

    /// Makes it an atomic write. The 8 bytes stand where pieces would, without the flag of inline data. Sources: rdma-core
    /// `providers/rxe/rxe.c`, `wr_atomic_write`; Linux `drivers/infiniband/sw/rxe/rxe_req.c`, `finish_packet`.
    pub(super) fn set_atomic_write(&mut self, address: u64, rkey: u32, value: u64) {
        self.bare = true;
        self.entry.iova = address;
        self.set_operation(&Remote { address, rkey, reserved: 0 });
        self.inline.extend_from_slice(&value.to_ne_bytes());
    }

    /// Makes it a flush. Sources: rdma-core `providers/rxe/rxe.c`, `wr_flush`; Linux `drivers/infiniband/sw/rxe/rxe_req.c`,
    /// `init_req_packet`.
    pub(super) fn set_flush(&mut self, range: &FlushRange) {
        let &FlushRange { address, rkey, bytes: length, placement, level } = range;
        self.bare = true;
        self.entry.iova = address;
        let (placement, level) = (placement.bits(), level as u8);
        self.set_operation(&Flush { address, length, rkey, placement, level, reserved: [0; 6] });
        self.concerns = length;
    }

    /// The entry as it goes into the queue under this number: its parts, one behind the other.
    ///
    /// # Errors
    /// An operation without what it needs, or too much data.
    pub(super) fn encode(&mut self, number: u64) -> Result<[&[u8]; 3], PostError> {
        let Self { entry, sges, inline, concerns, .. } = self;
        let is_atomic = matches!(entry.opcode, opcode::COMPARE_SWAP | opcode::FETCH_ADD);
        if is_atomic && (sges.len() != 1 || sges[0].length != 8) {
            return Err(PostError::Incomplete("an atomic operation without one piece of 8 bytes"));
        }
        let bytes: u64 = if inline.is_empty() {
            sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>() + u64::from(*concerns)
        } else {
            inline.len() as u64
        };
        let Ok(length) = u32::try_from(bytes) else {
            return Err(PostError::Incomplete("more than 4 GiB in one request"));
        };
        entry.wr_id = number;
        entry.dma = Dma { length, resid: length, num_sge: sges.len() as u32, ..Dma::default() };
        Ok([entry.as_bytes(), sges.as_bytes(), inline])
    }
}

/// What a batch has written down so far.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) closed: Vec<Note>,
    pub(super) open: Option<Request>,
    pub(super) failed: Option<PostError>,
    /// Memory of a request before, for the next.
    spare: (Vec<Sge>, Vec<u8>),
}

impl Written {
    /// Begins a request.
    pub(super) fn begin(&mut self, id: u64, opcode: u32, send_flags: u32) -> &mut Request {
        let (sges, inline) = std::mem::take(&mut self.spare);
        self.open.insert(Request { sges, inline, ..Request::new(id, opcode, send_flags) })
    }

    /// The open request is in the queue.
    pub(super) fn close(&mut self) {
        let Some(Request { note, mut sges, mut inline, .. }) = self.open.take() else { return };
        sges.clear();
        inline.clear();
        self.spare = (sges, inline);
        self.closed.push(note);
    }

    /// Drops what no doorbell told of.
    #[inline(never)]
    pub(super) fn forget(&mut self) {
        self.closed.clear();
        self.open = None;
        self.failed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::abi::flag;
    use super::*;
    use crate::provider::request::{Placement, Selectivity};

    /// What an entry is made of, at the places that a C compiler gives the fields of `struct rxe_send_wqe`.
    fn expected(words: &[(usize, &[u8])], bytes: usize) -> Vec<u8> {
        let mut entry = vec![0; bytes];
        for (at, bytes) in words {
            entry[*at..][..bytes.len()].copy_from_slice(bytes);
        }
        entry
    }

    #[test]
    fn an_atomic_write_carries_its_bytes_behind_the_entry() {
        let mut request = Request::new(77, opcode::ATOMIC_WRITE, flag::SIGNALED);
        let (address, value) = (0x7f00_1234_5678_u64, 0x0102_0304_0506_0708_u64);
        request.set_atomic_write(address, 0x0000_2a01, value);
        let entry = request.encode(5).expect("it is whole").concat();
        let expected = expected(
            &[
                (0, &5_u64.to_ne_bytes()),            // wr.wr_id
                (12, &15_u32.to_ne_bytes()),          // wr.opcode
                (16, &2_u32.to_ne_bytes()),           // wr.send_flags: signaled, and not inline
                (24, &address.to_ne_bytes()),         // wr.wr.rdma.remote_addr
                (32, &0x0000_2a01_u32.to_ne_bytes()), // wr.wr.rdma.rkey
                (152, &address.to_ne_bytes()),        // iova
                (184, &8_u32.to_ne_bytes()),          // dma.length
                (188, &8_u32.to_ne_bytes()),          // dma.resid; num_sge stays 0
                (208, &value.to_ne_bytes()),          // dma.atomic_wr
            ],
            216,
        );
        assert_eq!(entry, expected);
    }

    #[test]
    fn a_flush_has_a_length_and_no_data() {
        let address = 0x7f00_1234_5000_u64;
        for (placement, level, told) in [
            (Placement::GLOBAL, Selectivity::Range, [1, 0]),
            (Placement::PERSISTENT, Selectivity::Region, [2, 1]),
            (Placement::GLOBAL | Placement::PERSISTENT, Selectivity::Range, [3, 0]),
        ] {
            let mut request = Request::new(1, opcode::FLUSH, 0);
            request.set_flush(&FlushRange { address, rkey: 0x2b02, bytes: 5000, placement, level });
            let expected = expected(
                &[
                    (0, &9_u64.to_ne_bytes()),
                    (12, &14_u32.to_ne_bytes()),
                    (24, &address.to_ne_bytes()),    // wr.wr.flush.remote_addr
                    (32, &5000_u32.to_ne_bytes()),   // wr.wr.flush.length
                    (36, &0x2b02_u32.to_ne_bytes()), // wr.wr.flush.rkey
                    (40, &told),                     // wr.wr.flush.type and level
                    (152, &address.to_ne_bytes()),
                    (184, &5000_u32.to_ne_bytes()),
                    (188, &5000_u32.to_ne_bytes()),
                ],
                208,
            );
            assert_eq!(request.encode(9).expect("it is whole").concat(), expected);
        }
    }
}
