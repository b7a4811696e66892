//! librdmacm's `rping`: the client tells where its data are, the server READs them and WRITEs them back. Source of options, texts and
//! messages: rdma-core `librdmacm/examples/rping.c`.
//!
//! ```text
//!   client  where the source is ──►  server READs it           ◄── go on
//!           where the sink is   ──►  server WRITEs it back      ◄── go on     and so on, until the client ends
//! ```

use std::net::{Ipv4Addr, SocketAddr};

use pollux_bringup::program::{say, tell};
use pollux_cm::{ConnectionParameters, EventChannel, EventKind, Id, IdNumber, Manager, PortSpace};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_verbs::{Access, Buffers, Cq, CqOptions, Mr, Pd, Qp, QpKind, QpOptions, WcOpcode, WcStatus};

use super::address::Format;
use super::manager::{connect, device_of, next, part, resolve, run as run_program};
use crate::number::within;
use crate::rdma::Failure;

/// Sends under way.
const DEPTH: u32 = 16;
/// Bytes of a message: address, key, length.
const MESSAGE: usize = 16;
/// The longest data, and the shortest, which hold a message with any number.
const SIZES: [u64; 2] = [26, 64 * 1024 - 1];
/// Letters that data are made of.
const LETTERS: [u8; 2] = [b'A', b'z'];

/// rping: RDMA ping-pong by address. The client's data is READ and WRITTEN back by the server. Start the server (-s), then the client
/// (-c). Interoperates with librdmacm's rping.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "The loop is one page: rdma-apps/src/cm/rping.rs.")]
#[expect(clippy::struct_excessive_bools, reason = "options of the original")]
pub struct Options {
    /// Run as the server
    #[arg(short = 's', required_unless_present = "client", conflicts_with = "client")]
    pub server: bool,
    /// Run as the client
    #[arg(short = 'c')]
    pub client: bool,
    /// Server address [default of the server: any]
    #[arg(short = 'a', value_name = "ADDR", required_if_eq("client", "true"))]
    pub addr: Option<String>,
    /// Source address of the client
    #[arg(short = 'I', value_name = "ADDR", conflicts_with = "server")]
    pub source: Option<String>,
    /// Port
    #[arg(short = 'p', value_name = "PORT", default_value = "7174", value_parser = |text: &str| within(text, 1, 65535))]
    pub port: u64,
    /// Number of pings [default: until the end]
    #[arg(short = 'C', value_name = "N", value_parser = |text: &str| within(text, 1, i32::MAX as u64))]
    pub count: Option<u64>,
    /// Size of the ping data in bytes; both ends must agree
    #[arg(short = 'S', value_name = "BYTES", default_value = "64", value_parser = |text: &str| within(text, SIZES[0], SIZES[1]))]
    pub size: u64,
    /// Print the ping data
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Validate the ping data
    #[arg(short = 'V')]
    pub validate: bool,
    /// Print events of the connection manager
    #[arg(short = 'd')]
    pub debug: bool,
    /// Server: serve one client after another, until the end
    #[arg(short = 'P', conflicts_with = "client")]
    pub persistent: bool,
    /// No effect: the queue pair is always the program's own
    #[arg(short = 'q')]
    pub self_created: bool,
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), pollux_bringup::BringupError> {
    run_program(line, [("rping", " -s -a 10.0.0.1"), ("rping", " -c -a 10.0.0.1")], move |lcore, manager| {
        let addr = Format::Name.read_given(options.addr.as_deref(), "-a")?;
        let port = u16::try_from(options.port).unwrap_or_default();
        let local = SocketAddr::new(addr.unwrap_or(Ipv4Addr::UNSPECIFIED.into()), port);
        if options.server {
            serve(lcore, manager, &options, local)
        } else {
            ping(lcore, manager, &options, local)
        }
    })
}

/// An end of a connection: its queue pair, and the memory that the other side reaches.
struct End<'a> {
    lcore: &'a LcoreContext,
    channel: &'a EventChannel,
    options: &'a Options,
    id: Id,
    qp: Qp,
    cq: Cq,
    messages: Buffers,
    /// What the server READs into and WRITEs from; the client's is WRITTEN to.
    sink: Mr,
    /// What of the client's is READ.
    source: Mr,
}

/// What was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// A message, as it is.
    Message([u8; MESSAGE]),
    Read,
    Written,
    /// The peer ended the connection.
    Disconnected,
}

impl<'a> End<'a> {
    fn new(
        lcore: &'a LcoreContext,
        channel: &'a EventChannel,
        options: &'a Options,
        id: Id,
    ) -> Result<Self, Failure> {
        let (context, _) = device_of(&id)?;
        let pd = Pd::new(&context)?;
        let mut cq = Cq::new(&context, CqOptions::new(2 * DEPTH))?;
        let mut qp = id.create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc).depth(DEPTH, 2))?;
        qp.make_room(&mut cq)?;
        let messages = Buffers::new(&pd, 2 * DEPTH as usize, MESSAGE)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let bytes = options.size as usize;
        let (sink, source) = (Mr::allocate(&pd, bytes, access)?, Mr::allocate(&pd, bytes, access)?);
        receive(&mut qp, &messages)?;
        Ok(Self { lcore, channel, options, id, qp, cq, messages, sink, source })
    }

    /// Waits for the next thing that is not only the end of a send.
    fn wait(&mut self) -> Result<Came, Failure> {
        let mut empty = 0u32;
        loop {
            let mut came = None;
            let mut failed = None;
            self.cq.poll(1, |wc| match (wc.status(), wc.opcode()) {
                (WcStatus::SUCCESS, _) if wc.is_receive() => {
                    let message =
                        wc.take_buf().and_then(|buffer| <[u8; MESSAGE]>::try_from(&buffer[..]).ok());
                    came = message.map(Came::Message);
                    if message.is_none() {
                        failed = Some(Failure::Error(
                            "a message of another length: run rping at both ends".into(),
                        ));
                    }
                }
                (WcStatus::SUCCESS, WcOpcode::RDMA_READ) => came = Some(Came::Read),
                (WcStatus::SUCCESS, WcOpcode::RDMA_WRITE) => came = Some(Came::Written),
                // The end of the connection says why.
                (WcStatus::SUCCESS | WcStatus::WR_FLUSH_ERR, _) => {}
                (status, _) => failed = Some(Failure::completion(status, wc.id())),
            });
            if let Some(failure) = failed {
                return Err(failure);
            }
            if let Some(came) = came {
                if matches!(came, Came::Message(_)) {
                    receive(&mut self.qp, &self.messages)?;
                }
                return Ok(came);
            }
            empty = empty.wrapping_add(1);
            if !empty.is_multiple_of(64) {
                continue;
            }
            while let Some(event) = self.channel.next()? {
                debug(self.options, &event.kind);
                if event.id == self.id.number() && matches!(event.kind, EventKind::Disconnected) {
                    let side = if self.options.server { "server" } else { "client" };
                    say(format_args!("{side} DISCONNECT EVENT..."));
                    return Ok(Came::Disconnected);
                }
            }
            if self.lcore.stop_requested() {
                return Err(Failure::Stopped);
            }
            std::thread::yield_now();
        }
    }

    /// Tells the peer where something is, or to go on.
    fn tell(&mut self, memory: &Mr) -> Result<(), Failure> {
        let mut message = [0; MESSAGE];
        message[..8].copy_from_slice(&memory.address().to_be_bytes());
        message[8..12].copy_from_slice(&memory.rkey().to_be_bytes());
        message[12..].copy_from_slice(&(memory.bytes() as u32).to_be_bytes());
        let buffer = self.messages.filled(&message);
        let buffer =
            buffer.ok_or_else(|| Failure::Error("more messages under way than there are buffers".into()))?;
        let mut batch = self.qp.batch();
        batch.send(1).piece(buffer).signalled();
        batch.ring()?;
        Ok(())
    }

    /// Where something of the peer's is: address, key, bytes.
    fn read_place(&self, message: [u8; MESSAGE]) -> Result<(u64, u32, usize), Failure> {
        let (address, rest) = message.split_at(8);
        let (key, bytes) = rest.split_at(4);
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        let length = number(bytes);
        if length > self.options.size {
            return Err(Failure::Error(format!(
                "the client's data has {length} bytes, this end has room for {}: give both ends the same -S",
                self.options.size
            )));
        }
        Ok((number(address), number(key) as u32, length as usize))
    }
}

fn receive(qp: &mut Qp, messages: &Buffers) -> Result<(), Failure> {
    if let Some(buffer) = messages.take()
        && let Some(mut receives) = qp.receives()
    {
        receives.piece(0, buffer);
        receives.ring()?;
    }
    Ok(())
}

fn debug(options: &Options, kind: &EventKind) {
    if options.debug {
        tell(format_args!("cma_event type {kind}"));
    }
}

fn ping(lcore: &LcoreContext, manager: &Manager, options: &Options, peer: SocketAddr) -> Result<(), Failure> {
    let source = Format::Name.read_given(options.source.as_deref(), "-I")?;
    let channel = manager.channel()?;
    let id = channel.create_id(PortSpace::Tcp)?;
    resolve(lcore, &channel, &id, source, peer)?;
    debug(options, &EventKind::AddressResolved);
    debug(options, &EventKind::RouteResolved);
    let mut end = End::new(lcore, &channel, options, id)?;
    connect(lcore, &channel, (&end.id, &mut end.qp), &ConnectionParameters::default(), peer)?;
    // To librdmacm's program the peer's answer is this event: its library changes the queue pair itself.
    debug(options, &EventKind::Established(ConnectionParameters::default()));
    let outcome = ping_all(&mut end);
    end.id.disconnect(&mut end.qp)?;
    if !matches!(outcome, Ok(false)) {
        part(&channel);
    }
    outcome.map(drop)
}

/// The client's part. `false`: the server ended it.
fn ping_all(end: &mut End<'_>) -> Result<bool, Failure> {
    let size = end.options.size as usize;
    let (source, sink) = (end.source.clone(), end.sink.clone());
    let mut sent = vec![0; size];
    let mut pings = 0u64..;
    while end.options.count.is_none_or(|count| pings.start < count) {
        let Some(ping) = pings.next() else { break };
        fill(&mut sent, ping);
        source.write(0, &sent);
        for memory in [&source, &sink] {
            end.tell(memory)?;
            match end.wait()? {
                Came::Message(_) => {}
                Came::Disconnected => return Ok(false),
                other => {
                    return Err(Failure::Error(format!("{other:?} in place of the server's word to go on")));
                }
            }
        }
        let mut returned = vec![0; size];
        sink.read(0, &mut returned);
        if end.options.validate && returned != sent {
            return Err(Failure::Error(format!("ping {ping}: data mismatch!")));
        }
        if end.options.verbose {
            tell(format_args!("ping data: {}", text(&returned)));
        }
        if end.lcore.stop_requested() {
            return Err(Failure::Stopped);
        }
    }
    Ok(true)
}

/// The data of a ping: its number, letters in order, each ping begins with the next one.
fn fill(data: &mut [u8], ping: u64) {
    let head = format!("rdma-ping-{ping}: ");
    let head = &head.as_bytes()[..head.len().min(data.len() - 1)];
    data[..head.len()].copy_from_slice(head);
    let letters = u64::from(LETTERS[1] - LETTERS[0]) + 1;
    for (letter, byte) in (ping % letters..).zip(&mut data[head.len()..]) {
        *byte = LETTERS[0] + (letter % letters) as u8;
    }
    if let Some(last) = data.last_mut() {
        *last = 0;
    }
}

/// What of data is text: up to the zero at its end.
fn text(data: &[u8]) -> String {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    String::from_utf8_lossy(&data[..end]).into_owned()
}

fn serve(
    lcore: &LcoreContext,
    manager: &Manager,
    options: &Options,
    local: SocketAddr,
) -> Result<(), Failure> {
    let channel = manager.channel()?;
    let listener = channel.create_id(PortSpace::Tcp)?;
    listener.bind(local)?;
    // What the original says.
    listener.listen(3)?;
    say(format_args!("rping: listening on {}", listener.local_address().unwrap_or(local)));
    loop {
        let event = next(lcore, &channel)?;
        debug(options, &event.kind);
        let EventKind::ConnectRequest { id, parameters } = event.kind else { continue };
        let peer = id.peer_address();
        let served = serve_one(
            lcore,
            &channel,
            options,
            id,
            &ConnectionParameters { private_data: Vec::new(), ..parameters },
        );
        match served {
            Err(failure @ (Failure::Error(_) | Failure::Peer(_))) if options.persistent => {
                let (Failure::Error(line) | Failure::Peer(line)) = failure else { continue };
                let peer = peer.map_or_else(|| "a client".to_owned(), |peer| peer.to_string());
                say(format_args!("{peer}: {line}; waiting for the next client"));
            }
            Ok(()) if options.persistent => {}
            other => return other,
        }
    }
}

/// The server's part, until the client ends it.
fn serve_one(
    lcore: &LcoreContext,
    channel: &EventChannel,
    options: &Options,
    id: Id,
    parameters: &ConnectionParameters,
) -> Result<(), Failure> {
    let number: IdNumber = id.number();
    let mut end = End::new(lcore, channel, options, id)?;
    end.id.accept(&mut end.qp, parameters)?;
    loop {
        let event = next(lcore, channel)?;
        debug(options, &event.kind);
        match event.kind {
            _ if event.id != number => {}
            EventKind::Established(_) => break,
            EventKind::Disconnected => return Ok(()),
            kind => return Err(Failure::Error(format!("the client did not get through: {kind}"))),
        }
    }
    let outcome = answer(&mut end);
    end.id.disconnect(&mut end.qp)?;
    if outcome.is_err() {
        // It is this end that ends it: the client is to hear so.
        part(channel);
    }
    outcome
}

fn answer(end: &mut End<'_>) -> Result<(), Failure> {
    let sink = end.sink.clone();
    loop {
        let Came::Message(message) = end.wait()? else { return Ok(()) };
        let (address, rkey, bytes) = end.read_place(message)?;
        let mut batch = end.qp.batch();
        batch.read(2, address, rkey).mr(&sink, 0..bytes).signalled();
        batch.ring()?;
        let Came::Read = end.wait()? else { return Ok(()) };
        let mut data = vec![0; bytes];
        sink.read(0, &mut data);
        let written = (text(&data).len() + 1).min(bytes);
        if end.options.verbose {
            tell(format_args!("server ping data: {}", text(&data)));
        }
        end.tell(&sink)?;
        let Came::Message(message) = end.wait()? else { return Ok(()) };
        let (address, rkey, bytes) = end.read_place(message)?;
        let mut batch = end.qp.batch();
        batch.write(3, address, rkey).mr(&sink, 0..written.min(bytes)).signalled();
        batch.ring()?;
        let Came::Written = end.wait()? else { return Ok(()) };
        end.tell(&sink)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the original's loop.
    #[test]
    fn data_are_those_of_the_original() {
        let mut data = [0; 64];
        fill(&mut data, 0);
        assert_eq!(text(&data), "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr");
        fill(&mut data, 1);
        assert_eq!(text(&data), "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs");
        fill(&mut data, 57);
        assert_eq!(&text(&data)[..20], "rdma-ping-57: zABCDE");
        fill(&mut data, 58);
        assert_eq!(&text(&data)[..20], "rdma-ping-58: ABCDEF");
        let mut short = [1; 26];
        fill(&mut short, i32::MAX as u64);
        assert_eq!(text(&short), "rdma-ping-2147483647: HIJ");
    }
}
