//! What the ends of a test say to each other, as messages of a queue pair that a connection manager connected. Source of its sizes:
//! linux-rdma/perftest `src/perftest_communication.c`, `create_comm_struct`, `rdma_write_data`, `rdma_read_data`.

use std::cell::Cell;
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use pollux_bringup::RdmaDevice;
use pollux_cm::{ConnectionParameters, EventChannel, EventKind, Id, IdOptions, Manager, PortSpace};
use pollux_eal::LcoreContext;
use pollux_verbs::{Buffers, Context, Cq, CqOptions, Pd, Qp, QpKind, QpOptions, WcStatus};

use crate::cm::manager::{connect, device_of, next, resolve};
use crate::exchange::line::Way;
use crate::perftest::settings::Settings;
use crate::rdma::Failure;

/// Receives that are posted. The ends take turns, so one would do.
const DEPTH: u32 = 4;
/// Room for the longest message, with which two ends of ours compare settings.
const MESSAGE: usize = 1024;
/// How long a look for a message lasts.
const LOOK: Duration = Duration::from_millis(20);
/// How long the end may take to be agreed on.
const PARTING: Duration = Duration::from_millis(500);
/// How long the other end may take to take a message.
const TAKEN: Duration = Duration::from_secs(10);

/// The ACK timeout is that of the test, the type of service is not.
fn id_options(settings: &Settings) -> IdOptions {
    IdOptions { ack_timeout: Some(settings.options.qp_timeout as u8), ..IdOptions::default() }
}

/// The queue pair, and the memory of its messages.
#[derive(Debug)]
pub(super) struct Conversation {
    channel: EventChannel,
    id: Id,
    context: Context,
    qp: Qp,
    sends: Cq,
    receives: Cq,
    messages: Buffers,
    gone: Cell<bool>,
}

impl Conversation {
    /// Connects to who waits.
    pub(super) fn ask(
        lcore: &LcoreContext,
        manager: &Manager,
        peer: SocketAddr,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        let channel = manager.channel()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        id.set_options(id_options(settings))?;
        resolve(lcore, &channel, &id, None, peer)?;
        let mut this = Self::new(channel, id)?;
        connect(lcore, &this.channel, (&this.id, &mut this.qp), &Self::parameters(), peer)?;
        Ok(this)
    }

    /// Agrees with who asks.
    pub(super) fn answer(
        lcore: &LcoreContext,
        channel: EventChannel,
        id: Id,
        asked: &ConnectionParameters,
        settings: &Settings,
    ) -> Result<Self, Failure> {
        id.set_options(id_options(settings))?;
        let peer = id.peer_address().map_or_else(|| "a client".to_owned(), |peer| peer.to_string());
        let mut this = Self::new(channel, id)?;
        this.id.accept(&mut this.qp, &ConnectionParameters { private_data: Vec::new(), ..asked.clone() })?;
        loop {
            let event = next(lcore, &this.channel)?;
            match event.kind {
                _ if event.id != this.id.number() => {}
                EventKind::Established(_) => return Ok(this),
                kind => return Err(Failure::Peer(format!("{peer} did not get through: {kind}"))),
            }
        }
    }

    /// No reads go over it.
    fn parameters() -> ConnectionParameters {
        ConnectionParameters { responder_resources: 0, initiator_depth: 0, ..ConnectionParameters::default() }
    }

    fn new(channel: EventChannel, id: Id) -> Result<Self, Failure> {
        let (context, _) = device_of(&id)?;
        let pd = Pd::new(&context)?;
        let mut sends = Cq::new(&context, CqOptions::new(DEPTH))?;
        let mut receives = Cq::new(&context, CqOptions::new(DEPTH))?;
        let mut qp = id.create_qp(&pd, &sends, &receives, &QpOptions::new(QpKind::Rc).depth(DEPTH, DEPTH))?;
        for cq in [&mut sends, &mut receives] {
            qp.make_room(cq)?;
        }
        let messages = Buffers::new(&pd, 2 * DEPTH as usize, MESSAGE)?;
        if let Some(mut room) = qp.receives() {
            for buffer in std::iter::from_fn(|| messages.take()).take(DEPTH as usize) {
                room.piece(0, buffer);
            }
            room.ring()?;
        }
        Ok(Self { channel, id, context, qp, sends, receives, messages, gone: Cell::new(false) })
    }

    /// Both addresses, as far as they are known.
    pub(super) fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (self.id.local_address(), self.id.peer_address())
    }

    /// Whether the address leads to the device of the test.
    pub(super) fn check_device(&self, device: &RdmaDevice) -> Result<(), Failure> {
        let guid = |context: &Context| context.device().map(|device| device.base.node_guid);
        if guid(&self.context)? == guid(&device.context)? {
            return Ok(());
        }
        let (name, other) = (&device.name, self.context.name());
        Err(Failure::Usage(format!(
            "{name}: the address leads to another device ({other}): give that one's name, or an address of {name}"
        )))
    }

    /// Whether the peer ended it. The manager of this process works in here.
    fn hears_end(&self) -> Result<bool, Error> {
        while let Some(event) = self.channel.next().map_err(Error::other)? {
            let ended = event.id == self.id.number() && matches!(event.kind, EventKind::Disconnected);
            self.gone.set(self.gone.get() || ended);
        }
        Ok(self.gone.get())
    }

    fn failed(&self, status: WcStatus) -> Error {
        match status {
            WcStatus::WR_FLUSH_ERR => {
                self.gone.set(true);
                ErrorKind::BrokenPipe.into()
            }
            status => Error::other(format!("completion status {status}")),
        }
    }

    /// A message that is there.
    fn message(&mut self, room: &mut [u8]) -> Option<Result<usize, Error>> {
        let mut taken = None;
        self.receives.poll(1, |wc| {
            taken = Some(if wc.is_ok() { Ok(wc.take_buf()) } else { Err(wc.status()) });
        });
        match taken? {
            Err(status) => Some(Err(self.failed(status))),
            Ok(buffer) => {
                let buffer = buffer?;
                let bytes = room.len().min(buffer.len());
                room[..bytes].copy_from_slice(&buffer[..bytes]);
                let mut receives = self.qp.receives()?;
                receives.piece(0, buffer);
                Some(receives.ring().map(|_| bytes).map_err(Error::other))
            }
        }
    }
}

impl Drop for Conversation {
    /// The peer hears of the end, before a client comes whose queue pair has the same number, as that of a fresh device model.
    fn drop(&mut self) {
        let begin = Instant::now();
        if !self.gone.get() && self.id.disconnect(&mut self.qp).is_ok() {
            while begin.elapsed() < PARTING && matches!(self.hears_end(), Ok(false)) {
                std::thread::yield_now();
            }
        }
    }
}

impl Way for Conversation {
    fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        let buffer = self.messages.filled(message).ok_or(ErrorKind::OutOfMemory)?;
        let mut batch = self.qp.batch();
        batch.send(0).piece(buffer).signalled();
        batch.ring().map_err(Error::other)?;
        let begin = Instant::now();
        loop {
            // Before the look for a completion: who takes the last message ends the connection right away, and has acknowledged it by then.
            let ended = self.hears_end()?;
            let mut done = None;
            self.sends.poll(1, |wc| done = Some(wc.status()));
            match done {
                Some(WcStatus::SUCCESS) => return Ok(()),
                Some(status) => return Err(self.failed(status)),
                None if ended => return Err(ErrorKind::BrokenPipe.into()),
                None if begin.elapsed() > TAKEN => return Err(ErrorKind::TimedOut.into()),
                None => std::thread::yield_now(),
            }
        }
    }

    fn take(&mut self, room: &mut [u8]) -> Result<usize, Error> {
        let begin = Instant::now();
        loop {
            let ended = self.hears_end()?;
            match self.message(room) {
                Some(Err(error)) if error.kind() == ErrorKind::BrokenPipe => return Ok(0),
                Some(outcome) => return outcome,
                None if ended => return Ok(0),
                None if begin.elapsed() > LOOK => return Err(ErrorKind::WouldBlock.into()),
                None => std::thread::yield_now(),
            }
        }
    }

    fn is_closed(&self) -> bool {
        self.hears_end().unwrap_or(true)
    }

    fn shut(&mut self) -> bool {
        self.id.disconnect(&mut self.qp).is_ok()
    }

    fn watcher(&self) -> Result<Box<dyn Way>, Error> {
        Err(ErrorKind::Unsupported.into())
    }

    fn packs_keys(&self) -> bool {
        true
    }
}
