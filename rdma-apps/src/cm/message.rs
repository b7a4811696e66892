//! What `rdma_server` and `rdma_client` have in common: a queue pair with one message of 16 bytes in each direction. Source of sizes:
//! rdma-core `librdmacm/examples/rdma_server.c`, `rdma_client.c`.

use pollux_cm::{EventChannel, EventKind, Id};
use pollux_eal::LcoreContext;
use pollux_verbs::{Buffers, Cq, CqOptions, Pd, Qp, QpKind, QpOptions, WcStatus};

use super::manager::{device_of, part};
use crate::rdma::Failure;

/// Bytes of a message.
const MESSAGE: usize = 16;
/// The port of both programs, as typed.
pub const PORT: &str = "7471";

/// The two programs, and their options between device models.
pub const EXAMPLE: [(&str, &str); 2] = [("rdma_server", " -s 10.0.0.1"), ("rdma_client", " -s 10.0.0.1")];

/// An end of the connection.
pub struct End<'a> {
    lcore: &'a LcoreContext,
    channel: &'a EventChannel,
    /// Its ID.
    pub id: Id,
    /// Its queue pair, whose one receive is posted.
    pub qp: Qp,
    cq: Cq,
    sent: bool,
    received: bool,
    ended: bool,
    /// The device gave up what was under way.
    flushed: bool,
}

impl<'a> End<'a> {
    /// A queue pair for an ID that leads to a device, or was asked for.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(lcore: &'a LcoreContext, channel: &'a EventChannel, id: Id) -> Result<Self, Failure> {
        let (context, _) = device_of(&id)?;
        let pd = Pd::new(&context)?;
        let mut cq = Cq::new(&context, CqOptions::new(2))?;
        let options = QpOptions::new(QpKind::Rc).depth(1, 1).inline(MESSAGE as u32);
        let mut qp = id.create_qp(&pd, &cq, &cq, &options)?;
        qp.make_room(&mut cq)?;
        let buffer = Buffers::new(&pd, 1, MESSAGE)?.take();
        if let (Some(buffer), Some(mut receives)) = (buffer, qp.receives()) {
            receives.piece(0, buffer);
            receives.ring()?;
        }
        Ok(Self { lcore, channel, id, qp, cq, sent: false, received: false, ended: false, flushed: false })
    }

    /// Sends the message, and waits until the peer has it.
    ///
    /// # Errors
    /// It does not get it, or a stop.
    pub fn send(&mut self) -> Result<(), Failure> {
        let mut batch = self.qp.batch();
        batch.send(1).inline(&[0; MESSAGE]).signalled();
        batch.ring()?;
        // The peer may have it, and end the connection, before its device says so: until it is given up, that may still come.
        self.until("the message was sent", |end| end.sent, |end| end.flushed)
    }

    /// Waits for the peer's message.
    ///
    /// # Errors
    /// None comes, or a stop.
    pub fn receive(&mut self) -> Result<(), Failure> {
        self.until("the peer's message came", |end| end.received, |_| true)
    }

    /// Ends the connection after all that was to be done, and sees to it that the peer hears of it.
    ///
    /// # Errors
    /// `outcome`'s, or what the device says.
    pub fn finish(mut self, outcome: Result<(), Failure>) -> Result<(), Failure> {
        self.id.disconnect(&mut self.qp)?;
        if !self.ended {
            part(self.channel);
        }
        outcome
    }

    /// Polls until something is done, or the peer has ended the connection and it will not be any more.
    fn until(
        &mut self,
        what: &str,
        done: impl Fn(&Self) -> bool,
        lost: impl Fn(&Self) -> bool,
    ) -> Result<(), Failure> {
        loop {
            let mut failed = None;
            let (sent, received, flushed) = (&mut self.sent, &mut self.received, &mut self.flushed);
            self.cq.poll(2, |wc| match wc.status() {
                WcStatus::SUCCESS if wc.is_receive() => *received = true,
                WcStatus::SUCCESS => *sent = true,
                // The end of the connection says why.
                WcStatus::WR_FLUSH_ERR => *flushed = true,
                status => failed = Some(Failure::completion(status, wc.id())),
            });
            if let Some(failure) = failed {
                return Err(failure);
            }
            if done(self) {
                return Ok(());
            }
            if self.ended && lost(self) {
                return Err(Failure::Error(format!("the peer ended the connection before {what}")));
            }
            while let Some(event) = self.channel.next()? {
                self.ended |= event.id == self.id.number() && matches!(event.kind, EventKind::Disconnected);
            }
            if self.lcore.stop_requested() {
                return Err(Failure::Stopped);
            }
            std::thread::yield_now();
        }
    }
}
