//! The message by which a client whose datagrams are connected by address tells a server the number of its queue pair. Source:
//! linux-rdma/perftest `src/perftest_communication.c`, `rdma_cm_send_ud_connection_parameters`.

use pollux_verbs::{Path, WcStatus};

use super::{End, HEADER, finish};
use crate::rdma::Failure;

/// Its bytes. The number is its immediate data.
const NUMBER: usize = 4;

impl End {
    /// Posts the receive for the message by which a client of datagrams tells its queue pair: see [`tell_number`](Self::tell_number).
    ///
    /// # Errors
    /// As [`post_receives`](Self::post_receives).
    pub fn expect_number(&mut self, qp: usize) -> Result<(), Failure> {
        let size = std::mem::replace(&mut self.size, NUMBER);
        let posted = self.post_receives(qp, 1);
        self.size = size;
        posted
    }

    /// The way back to whom that message came from, once it is there.
    ///
    /// # Errors
    /// It failed, or tells nothing.
    pub fn heard_number(&mut self, qp: usize, gid_index: u8) -> Result<Option<Path>, Failure> {
        let (mr, place) = (&self.mr, (self.settings.qps + qp) * self.area);
        let mut heard = None;
        self.receives.cq.poll(1, |wc| {
            let mut header = [0; HEADER];
            mr.read(place, &mut header);
            heard = Some(match wc.status() {
                WcStatus::SUCCESS => Path::back(wc, &header, gid_index).ok_or_else(|| {
                    Failure::Error(
                        "a message that does not say where it is from: run the same test at both ends".into(),
                    )
                }),
                status => Err(Failure::completion(status, wc.id())),
            });
        });
        heard.transpose()
    }

    /// Tells a server of datagrams the number of a queue pair, so that it knows where to answer.
    ///
    /// # Errors
    /// The queue is full, which is a mistake of ours.
    pub fn tell_number(&mut self, qp: usize, to: u32) -> Result<(), Failure> {
        let own = self.own[qp].qpn;
        let Some(ah) = self.ahs.get(qp) else { return Ok(()) };
        let mut batch = self.qps[qp].batch();
        let place = qp * self.area;
        batch.send(0).imm(own).to(ah, to, self.qkey).mr(&self.mr, place..place + NUMBER).signalled();
        finish(batch)
    }

    /// Whether that message is sent.
    ///
    /// # Errors
    /// It failed.
    pub fn told_number(&mut self) -> Result<bool, Failure> {
        let mut told = Ok(false);
        self.sends.cq.poll(1, |wc| {
            told = if wc.is_ok() { Ok(true) } else { Err(Failure::completion(wc.status(), wc.id())) };
        });
        told
    }
}
