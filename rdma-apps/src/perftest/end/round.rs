//! Rounds of `--data_validation`: memory that is filled with patterns, moved, and compared.

use super::{End, finish};
use crate::exchange::perftest::Keys;
use crate::perftest::pattern::{Compared, pattern};
use crate::perftest::settings::Verb;
use crate::rdma::Failure;

impl End {
    /// Fills what the other end reads with what it will compare with.
    pub fn fill_for_reads(&mut self) {
        for qp in 0..self.settings.qps {
            for slot in 0..self.settings.tx_depth {
                let bytes = pattern(self.size, seed(self.own[qp].qpn, slot, 0));
                self.mr.write((self.settings.qps + qp) * self.area + slot * self.flow_area(), &bytes);
            }
        }
    }

    /// Fills the first places of a queue pair: with what a round writes, or with what no READ leaves there.
    pub fn prepare(&mut self, qp: usize, count: u64, round: u64) {
        let writes = self.settings.test.verb == Verb::Write;
        for slot in 0..count as usize {
            let own = seed(self.own[qp].qpn, slot, round);
            let bytes = pattern(self.size, if writes { own } else { !own });
            self.mr.write(qp * self.area + slot * self.flow_area(), &bytes);
        }
    }

    /// Posts a message of each of the first places of a queue pair, the last with a completion; or reads back what they wrote.
    ///
    /// # Errors
    /// The queue is full, which is a mistake of ours.
    pub fn post_round(&mut self, qp: usize, count: u64, back: bool) -> Result<(), Failure> {
        let (area, each, size) = (self.area, self.flow_area(), self.size);
        let Keys { address, rkey, .. } = self.other[qp];
        let mut batch = self.qps[qp].batch();
        for slot in 0..count as usize {
            let remote = address + (slot * each) as u64;
            let half = if back { self.settings.qps } else { 0 };
            let local = (half + qp) * area + slot * each;
            match self.settings.test.verb {
                Verb::Write if !back => batch.write(slot as u64, remote, rkey),
                _ => batch.read(slot as u64, remote, rkey),
            };
            batch.mr(&self.mr, local..local + size);
            if slot + 1 == count as usize {
                batch.signalled();
            }
        }
        finish(batch)
    }

    /// Compares what a round left in the first places of a queue pair with what it should have.
    #[must_use]
    pub fn compare(&self, qp: usize, count: u64, round: u64) -> Compared {
        let writes = self.settings.test.verb == Verb::Write;
        let mut found = vec![0; self.size];
        let mut compared = Compared::default();
        for slot in 0..count as usize {
            let (half, seed) = match writes {
                true => (self.settings.qps, seed(self.own[qp].qpn, slot, round)),
                false => (0, seed(self.other[qp].qpn, slot, 0)),
            };
            self.mr.read((half + qp) * self.area + slot * self.flow_area(), &mut found);
            let expected = pattern(self.size, seed);
            compared.bytes += self.size as u64;
            compared.wrong += found.iter().zip(&expected).filter(|(one, other)| one != other).count() as u64;
        }
        compared
    }
}

/// Where the bytes of a place come from in a round.
fn seed(qpn: u32, slot: usize, round: u64) -> u64 {
    round << 40 | u64::from(qpn) << 16 | slot as u64
}
