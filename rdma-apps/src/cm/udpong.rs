//! librdmacm's `udpong`: datagrams back and forth, or in one direction and counted, over datagram sockets of RDMA or of the kernel. Source of
//! options, texts and sizes: rdma-core `librdmacm/examples/udpong.c` and `common.c`.
//!
//! ```text
//!   client                    server
//!   login        ----->       the client's number
//!   start        ----->       its count is 0
//!   echo         ----->       counts, sends back                 latency: one after the other
//!   data ...     ----->       counts                             bandwidth: one behind the other
//!   end          ----->       the count
//! ```
//!
//! The client says again what is not answered in time; by the sequence number it knows an answer from a late one.

pub mod message;
pub mod socket;

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use pollux_bringup::BringupError;
use pollux_bringup::program::{say, tell};
use pollux_cm::Manager;
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;

use super::address::Format;
use super::manager::run_with_keys;
use super::stream::{BUFFER, LOOK, Test, turn};
use super::table::{count_of, count_text, size_text};
use crate::number::within;
use crate::rdma::Failure;
use message::{CONTROL, HEADER, LONGEST, Message, Operation};
use socket::Socket;

/// What `-T` has, in the order in which it is told.
const TESTS: [Test; 5] = [Test::Sockets, Test::Async, Test::Blocking, Test::Nonblocking, Test::Echo];
/// Sizes of both tests. Source: `test_size`.
const SIZES: [usize; 9] = [64, 128, 192, 256, 384, 512, 768, 1024, 1536];
/// How long an answer may take before the question is asked again: where the server may have to find a way here first, and else. Source:
/// `run_test`.
const PATIENCE: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(1)];
/// Keys of two models on one machine: their addresses are the machine's as well, for UDP.
const KEYS: [&str; 2] = [",ip=127.0.0.2/8", ",ip=127.0.0.1/8"];

/// udpong: latency and bandwidth of datagram sockets over RDMA. Start the server, then the client (-s). Interoperates with librdmacm's
/// udpong.
#[derive(clap::Parser, Clone, Debug)]
#[command(
    after_help = "The loop is one page: rdma-apps/src/cm/udpong.rs. The sockets are the crate rsocket."
)]
pub struct Options {
    /// Server address; without it this is the server
    #[arg(short = 's', value_name = "ADDR")]
    pub server: Option<String>,
    /// Address to bind [default: any]
    #[arg(short = 'b', value_name = "ADDR")]
    pub bind: Option<String>,
    /// Half of the send and of the receive buffer, in bytes [default: 524288]
    #[arg(short = 'B', value_name = "BYTES", value_parser = |text: &str| within(text, 2048, 1 << 28))]
    pub buffer: Option<u64>,
    /// Datagrams of one test [default: 1000]
    #[arg(short = 'C', value_name = "N", value_parser = |text: &str| within(text, 1, i32::MAX as u64))]
    pub count: Option<u64>,
    /// Bytes of a datagram of one test [default: 1000]
    #[arg(short = 'S', value_name = "BYTES", value_parser = |text: &str| within(text, CONTROL as u64, LONGEST as u64))]
    pub size: Option<u64>,
    /// Port
    #[arg(short = 'p', value_name = "PORT", default_value = "7174", value_parser = |text: &str| within(text, 1, 65535))]
    pub port: u64,
    /// What is tested, more than once: s|sockets, a|async, b|blocking, n|nonblocking, e|echo
    #[arg(short = 'T', value_name = "TEST", value_parser = |text: &str| Test::read(text, &TESTS))]
    pub tests: Vec<Test>,
}

/// Runs one end.
///
/// # Errors
/// One line.
pub fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    if options.tests.contains(&Test::Sockets) {
        return bench(&options, None).or_else(Failure::end);
    }
    let example = [("udpong", " -b 127.0.0.2"), ("udpong", " -s 127.0.0.2")];
    run_with_keys(line, example, KEYS, move |lcore, manager| bench(&options, Some((lcore, manager))))
}

fn bench(options: &Options, with: Option<(&LcoreContext, &Manager)>) -> Result<(), Failure> {
    let bind = Format::Name.read_given(options.bind.as_deref(), "-b")?;
    let port = u16::try_from(options.port).unwrap_or_default();
    let server = Format::Name.read_given(options.server.as_deref(), "-s")?;
    let server = server.map(|server| SocketAddr::new(server, port));
    let any = |like: Option<SocketAddr>| -> IpAddr {
        if like.is_some_and(|like| like.is_ipv6()) {
            Ipv6Addr::UNSPECIFIED.into()
        } else {
            Ipv4Addr::UNSPECIFIED.into()
        }
    };
    // Of a client any port will do.
    let local = SocketAddr::new(bind.unwrap_or(any(server)), if server.is_some() { 0 } else { port });
    let half = options.buffer.map_or(BUFFER, |bytes| bytes as usize);
    let socket = Socket::bind(with.map(|(_, manager)| manager), local, half)
        .map_err(|error| failed(with.is_none().then_some(local), &error))?;
    let last = options.tests.iter().rev().find(|test| matches!(test, Test::Blocking | Test::Nonblocking));
    let waits = last == Some(&Test::Blocking) || options.tests.contains(&Test::Async);
    let end = End { socket, waits, lcore: with.map(|(lcore, _)| lcore) };
    match server {
        Some(server) => Client::new(end, server)?.run(options),
        None => serve(&end, local),
    }
}

/// A line about a call of a socket; the kernel's say nothing of the address.
fn failed(address: Option<SocketAddr>, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::ConnectionRefused => "; start the server first, with the same -p",
        _ => "",
    };
    let line = format!("{error}{advice}");
    Failure::Error(address.map_or_else(|| line.clone(), |address| format!("{address}: {line}")))
}

/// A socket, and how its calls are waited for.
struct End<'a> {
    socket: Socket,
    /// Until something can be done, else it is tried over and over.
    waits: bool,
    lcore: Option<&'a LcoreContext>,
}

impl End<'_> {
    /// Whether a signal ended the program.
    fn look(&self) -> Result<(), Failure> {
        let stops = self.lcore.is_some_and(LcoreContext::stop_requested);
        if stops { Err(Failure::Stopped) } else { Ok(()) }
    }

    /// Does something until it would not have to wait, or until a deadline.
    fn done<T>(
        &self,
        receives: bool,
        deadline: Option<Instant>,
        mut attempt: impl FnMut(&Socket) -> io::Result<T>,
    ) -> Result<Option<T>, Failure> {
        let (turn, mut tries) = (turn(self.socket.is_software()), 0_u32);
        loop {
            match attempt(&self.socket) {
                Ok(done) => return Ok(Some(done)),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(failed(None, &error)),
            }
            let left = deadline.map_or(LOOK, |deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            tries = tries.wrapping_add(1);
            // An answer that has a time is always waited for, as in the original.
            if self.waits || deadline.is_some() {
                self.socket.wait(receives, left.min(LOOK)).map_err(|error| failed(None, &error))?;
                self.look()?;
            } else if tries.is_multiple_of(turn) {
                self.look()?;
                std::thread::yield_now();
            }
        }
    }

    fn send(&self, data: &[u8], to: Option<SocketAddr>) -> Result<(), Failure> {
        self.done(false, None, |socket| socket.send(data, to)).map(drop)
    }

    fn receive(
        &self,
        into: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<Option<(usize, SocketAddr)>, Failure> {
        self.done(true, deadline, |socket| socket.receive(into))
    }
}

/// Answers clients until a signal ends it.
fn serve(end: &End<'_>, local: SocketAddr) -> Result<(), Failure> {
    say(format_args!("udpong: listening on {}", end.socket.local().unwrap_or(local)));
    let mut counts = [0_u32; 256];
    let mut next = 0_u8;
    let mut bytes = vec![0; LONGEST];
    loop {
        let Some((length, from)) = end.receive(&mut bytes, None)? else { continue };
        let datagram = &mut bytes[..length];
        // Of nobody who knows the messages.
        let Some(mut message) = Message::decode(datagram) else { continue };
        if message.operation == Operation::Login {
            tell(format_args!("client login from {}", from.ip()));
            message.client = next;
            next = next.wrapping_add(1);
        }
        let count = &mut counts[usize::from(message.client)];
        match message.operation {
            Operation::Login | Operation::Start => *count = 0,
            Operation::Echo => *count = count.wrapping_add(1),
            Operation::End => message.count = *count,
            Operation::Data => {
                *count = count.wrapping_add(1);
                continue;
            }
        }
        datagram[..HEADER].copy_from_slice(&message.encode());
        match end.send(datagram, Some(from)) {
            // One who cannot be answered is no reason to leave the others.
            Err(Failure::Error(line)) => say(format_args!("udpong: {from}: {line}")),
            sent => sent?,
        }
    }
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    name: String,
    bytes: usize,
    datagrams: u64,
    echoes: bool,
}

impl Run {
    fn latency(bytes: usize) -> Self {
        let name = format!("{}_lat", size_text(bytes as u64));
        Self { name, bytes, datagrams: count_of(bytes) / 10, echoes: true }
    }

    fn bandwidth(bytes: usize) -> Self {
        let name = format!("{}_bw", size_text(bytes as u64));
        Self { name, bytes, datagrams: count_of(bytes), echoes: false }
    }

    /// What options ask for: one test, or latency and bandwidth of all sizes.
    fn all(options: &Options) -> Vec<Self> {
        if options.size.is_none() && options.count.is_none() {
            return SIZES.map(Self::latency).into_iter().chain(SIZES.map(Self::bandwidth)).collect();
        }
        vec![Self {
            name: "custom".into(),
            bytes: options.size.unwrap_or(1000) as usize,
            datagrams: options.count.unwrap_or(1000),
            echoes: options.tests.contains(&Test::Echo),
        }]
    }

    /// The row, of as many datagrams as came: of those that are sent back both ways count.
    fn row(&self, counted: u32, time: Duration) -> String {
        let transfers = if self.echoes { 2 * self.datagrams } else { counted.into() };
        let bytes = transfers * self.bytes as u64;
        let us = time.as_secs_f64() * 1e6;
        format!(
            "{:<10}{:<8}{:<8}{:<8}{:>8.2}s{:>10.2}{:>11.2}",
            self.name,
            size_text(self.bytes as u64),
            count_text(transfers),
            size_text(bytes),
            us / 1e6,
            bytes as f64 * 8.0 / (1000.0 * us),
            us / transfers as f64
        )
    }
}

struct Client<'a> {
    end: End<'a>,
    server: SocketAddr,
    /// By the server's numbers.
    number: u8,
    sequence: u8,
    /// What is sent.
    bytes: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(end: End<'a>, server: SocketAddr) -> Result<Self, Failure> {
        end.socket.connect(server).map_err(|error| failed(None, &error))?;
        Ok(Self { end, server, number: 0, sequence: 0, bytes: vec![0; LONGEST] })
    }

    fn run(&mut self, options: &Options) -> Result<(), Failure> {
        let longest = self.end.socket.longest().map_err(|error| failed(None, &error))?;
        let mut runs = Run::all(options);
        if let Some(size) = options.size.filter(|size| *size > longest as u64) {
            return Err(Failure::Usage(format!(
                "-S {size}: a datagram to {} has at most {longest} bytes: give at most {longest}",
                self.server
            )));
        }
        let count = runs.len();
        runs.retain(|run| run.bytes <= longest);
        if runs.len() < count {
            say(format_args!(
                "udpong: datagrams of more than {longest} bytes are left out: no packet has room for them"
            ));
        }
        tell(format_args!(
            "{:<10}{:<8}{:<8}{:<8}{:>8} {:>10}{:>13}",
            "name", "bytes", "xfers", "total", "time", "Gb/sec", "usec/xfer"
        ));
        self.number = self.ask(Operation::Login, CONTROL, PATIENCE[0])?.client;
        runs.iter().try_for_each(|run| self.test(run))?;
        if let Some([sent, by_udp]) = self.end.socket.sent() {
            say(format_args!("udpong: sent {sent} datagrams by RDMA, {by_udp} by UDP"));
        }
        Ok(())
    }

    fn test(&mut self, run: &Run) -> Result<(), Failure> {
        self.ask(Operation::Start, CONTROL, PATIENCE[0])?;
        let begin = Instant::now();
        for _ in 0..run.datagrams {
            if run.echoes {
                self.ask(Operation::Echo, run.bytes, PATIENCE[1])?;
            } else {
                self.send(Operation::Data, run.bytes)?;
            }
        }
        let counted = self.ask(Operation::End, CONTROL, PATIENCE[1])?.count;
        tell(format_args!("{}", run.row(counted, begin.elapsed())));
        Ok(())
    }

    fn send(&mut self, operation: Operation, bytes: usize) -> Result<(), Failure> {
        let message = Message { operation, client: self.number, sequence: self.sequence, count: 0 };
        self.bytes[..HEADER].copy_from_slice(&message.encode());
        self.end.send(&self.bytes[..bytes], None)
    }

    /// Asks until it is answered. Answers to what was asked before are late, and none.
    fn ask(&mut self, operation: Operation, bytes: usize, patience: Duration) -> Result<Message, Failure> {
        let mut answer = [0; LONGEST];
        loop {
            self.send(operation, bytes)?;
            let deadline = Instant::now() + patience;
            while let Some((length, _)) = self.end.receive(&mut answer, Some(deadline))? {
                let message = Message::decode(&answer[..length]).filter(|_| length == bytes);
                if let Some(message) = message.filter(|message| message.sequence == self.sequence) {
                    self.sequence = self.sequence.wrapping_add(1);
                    return Ok(message);
                }
            }
            self.end.look()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the original's `printf`.
    #[test]
    fn rows_are_those_of_the_original() {
        let row = Run::latency(64).row(0, Duration::from_millis(2500));
        assert_eq!(row, "64_lat    64      20k     1.2m        2.50s      0.00     125.00");
        let row = Run::bandwidth(1536).row(9000, Duration::from_secs(1));
        assert_eq!(row, "1.5k_bw   1.5k    9k      13m         1.00s      0.11     111.11");
    }

    #[test]
    fn tests_are_those_of_the_original() {
        let options = |line: &str| {
            let words = ["udpong"].into_iter().chain(line.split_whitespace());
            <Options as clap::Parser>::try_parse_from(words)
        };
        let all = Run::all(&options("").expect("none is needed"));
        let names: Vec<&str> = all.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(
            (names.len(), names[0], names[8], names[9], names[17]),
            (18, "64_lat", "1.5k_lat", "64_bw", "1.5k_bw")
        );
        assert_eq!(
            (all[0].datagrams, all[7].datagrams, all[9].datagrams, all[17].datagrams),
            (10_000, 1000, 100_000, 10_000)
        );
        let custom = |bytes, datagrams, echoes| vec![Run { name: "custom".into(), bytes, datagrams, echoes }];
        for (line, runs) in [
            ("-S 64", custom(64, 1000, false)),
            ("-C 5 -T e", custom(1000, 5, true)),
            ("-S 2056 -C 7 -T echo -T a", custom(2056, 7, true)),
        ] {
            assert_eq!(Run::all(&options(line).expect(line)), runs, "{line}");
        }
        for line in ["-S 15", "-S 2057", "-C 0", "-p 0", "-T f", "-B 2047"] {
            assert!(options(line).is_err(), "{line}");
        }
    }
}
