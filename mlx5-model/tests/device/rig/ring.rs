//! Rings as a driver has them: entries written and posted, completions polled.

use pollux_mlx5_abi::cqe::{Cqe64, CqeError, Validity};
use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::wqe::{Completion, Control, Data};
use zerocopy::{FromBytes, IntoBytes};

use super::Rig;

/// A completion queue.
pub(crate) struct Cq {
    pub(crate) number: u32,
    pub(crate) ring: u64,
    pub(crate) record: u64,
    pub(crate) log: u8,
    pub(crate) entry_bytes: u64,
    pub(crate) next: u32,
}

/// A send queue.
pub(crate) struct Sq {
    pub(crate) number: u32,
    pub(crate) ring: u64,
    pub(crate) record: u64,
    pub(crate) log: u8,
    pub(crate) next: u16,
    /// The head of the entry that was written last, which the doorbell says.
    pub(super) last: [u8; 8],
}

/// A receive queue.
pub(crate) struct Rq {
    pub(crate) number: u32,
    pub(crate) ring: u64,
    pub(crate) record: u64,
    pub(crate) log: u8,
    pub(crate) log_bytes: u8,
    pub(crate) posted: u16,
}

impl Cq {
    /// The next completion, if there is one; nothing is given back yet.
    pub(crate) fn poll(&mut self, rig: &Rig) -> Option<Cqe64> {
        let entry = self.peek(rig, self.next)?;
        self.next += 1;
        Some(entry)
    }

    /// The completion at an index, if it is there.
    pub(crate) fn peek(&self, rig: &Rig, index: u32) -> Option<Cqe64> {
        let entry = self.at(rig, index);
        Validity::BASIC.is_ready(entry.last_word(), index, self.log).then_some(entry)
    }

    /// Whatever stands at an index.
    pub(crate) fn at(&self, rig: &Rig, index: u32) -> Cqe64 {
        let slot = u64::from(index & ((1 << self.log) - 1));
        let at = self.ring + (slot + 1) * self.entry_bytes - 64;
        Cqe64::read_from_bytes(&rig.read(at, 64)).expect("64 bytes")
    }

    /// Gives back all that was polled.
    pub(crate) fn give_back(&self, rig: &Rig) {
        rig.write(self.record, &(self.next & 0xff_ffff).to_be_bytes());
    }

    /// Polls an error.
    #[track_caller]
    pub(crate) fn error(&mut self, rig: &Rig) -> CqeError {
        let entry = self.poll(rig).expect("a completion");
        *CqeError::of(&entry).unwrap_or_else(|| panic!("an error, not {entry:?}"))
    }
}

impl Sq {
    /// One that was made by hand.
    pub(crate) fn at(number: u32, ring: u64, record: u64, log: u8) -> Self {
        Self { number, ring, record, log, next: 0, last: [0; 8] }
    }

    /// Writes an entry: `body` is all behind the control segment. The doorbell is the caller's.
    pub(crate) fn write(&mut self, rig: &Rig, opcode: u8, body: &[u8], completion: Completion) {
        let segments = 1 + body.len().div_ceil(16);
        let control = Control::new(opcode, 0, self.next, self.number, segments as u8, completion as u8, 0);
        self.write_raw(rig, &control, body);
    }

    pub(crate) fn write_raw(&mut self, rig: &Rig, control: &Control, body: &[u8]) {
        let mut bytes = control.as_bytes().to_vec();
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        for block in bytes.chunks(64) {
            let slot = u64::from(self.next) & ((1 << self.log) - 1);
            rig.write(self.ring + slot * 64, block);
            self.next = self.next.wrapping_add(1);
        }
        self.last = control.head();
    }

    pub(crate) fn write_record(&self, rig: &Rig) {
        rig.write(self.record + 4, &u32::from(self.next).to_be_bytes());
    }

    /// Record, then register.
    pub(crate) fn ring(&self, rig: &Rig) {
        self.write_record(rig);
        rig.store(uar::BLUE_FLAME, &self.last);
    }

    pub(crate) fn last(&self) -> [u8; 8] {
        self.last
    }
}

impl Rq {
    /// Posts an entry: its data segments.
    pub(crate) fn post(&mut self, rig: &Rig, segments: &[Data]) {
        let mut bytes: Vec<u8> = segments.as_bytes().to_vec();
        bytes.resize(1 << self.log_bytes, 0);
        self.post_raw(rig, &bytes);
    }

    pub(crate) fn post_raw(&mut self, rig: &Rig, bytes: &[u8]) {
        let slot = u64::from(self.posted) & ((1 << self.log) - 1);
        rig.write(self.ring + (slot << self.log_bytes), bytes);
        self.posted = self.posted.wrapping_add(1);
        rig.write(self.record, &u32::from(self.posted).to_be_bytes());
    }
}
