//! What librdmacm's stream tests have in common, `rstream` and `riostream`: options, sizes, and the connections of a run. Source of
//! options, texts and sizes: rdma-core `librdmacm/examples/rstream.c`, `riostream.c` and `common.c`.
//!
//! ```text
//!   a connection with inline data     latency: a transfer there, one back, many times
//!   a connection without              bandwidth: many transfers there, as many back
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use pollux_bringup::program::{say, tell};
use pollux_cm::Manager;
use pollux_eal::LcoreContext;
use pollux_rsocket::{PollEntry, RsListener, RsOptions, RsStream, poll};

use super::address::Format;
use super::table::{count_of, count_text, size_text};
use crate::number::within;
use crate::rdma::Failure;

/// How long a call waits before a stop is looked for.
pub const LOOK: Duration = Duration::from_millis(50);
/// How many attempts fail at once before others have a turn.
const TRIES: u32 = 64;
/// Half of the buffers, if nothing else is said.
pub const BUFFER: usize = 1 << 19;
/// How many bytes both ends exchange before the clock starts.
pub const SYNC: usize = 16;

/// What `-T` has: a letter, or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// Sockets of TCP.
    Sockets,
    /// Waits by poll.
    Async,
    /// Calls that block.
    Blocking,
    /// Sockets of TCP, as if each connection had a process.
    Fork,
    /// Calls that do not block.
    Nonblocking,
    /// Addresses are always resolved by the connection manager.
    Resolve,
    /// Compares the data.
    Verify,
    /// Sends everything back.
    Echo,
}

impl Test {
    /// Its letter, how its word begins, and the rest of the word.
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Sockets => ["s", "socket", "s"],
            Self::Async => ["a", "async", ""],
            Self::Blocking => ["b", "block", "ing"],
            Self::Fork => ["f", "fork", ""],
            Self::Nonblocking => ["n", "nonblock", "ing"],
            Self::Resolve => ["r", "resolve", ""],
            Self::Verify => ["v", "verify", ""],
            Self::Echo => ["e", "echo", ""],
        }
    }

    /// Reads one of those that a program has.
    ///
    /// # Errors
    /// It is none of them, in one line.
    pub fn read(text: &str, known: &[Self]) -> Result<Self, String> {
        let text = text.to_ascii_lowercase();
        let is = |test: &&Self| {
            let [letter, word, _] = test.words();
            text == letter || text.starts_with(word)
        };
        known.iter().find(is).copied().ok_or_else(|| {
            let words = known.iter().map(|test| {
                let [letter, word, rest] = test.words();
                format!("{letter}|{word}{rest}")
            });
            format!("is none of {}", words.collect::<Vec<_>>().join(", "))
        })
    }
}

/// What `-S` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// All of them.
    All,
    /// One, in bytes.
    Bytes(usize),
}

fn size(text: &str) -> Result<Size, String> {
    if text.get(..3).is_some_and(|head| head.eq_ignore_ascii_case("all")) {
        return Ok(Size::All);
    }
    within(text, 1, 1 << 30).map(|bytes| Size::Bytes(bytes as usize)).map_err(|why| format!("{why}, or all"))
}

/// Options of both programs.
#[derive(clap::Args, Clone, Debug)]
pub struct StreamOptions {
    /// Server address; without it this is the server
    #[arg(short = 's', value_name = "ADDR")]
    pub server: Option<String>,
    /// Address to bind [default: any]
    #[arg(short = 'b', value_name = "ADDR")]
    pub bind: Option<String>,
    /// Format of the addresses
    #[arg(short = 'f', value_enum, default_value = "name", ignore_case = true)]
    pub format: Format,
    /// Half of the send and of the receive buffer, in bytes [default: 524288]
    #[arg(short = 'B', value_name = "BYTES", value_parser = |text: &str| within(text, 2048, 1 << 28))]
    pub buffer: Option<u64>,
    /// Inline data of the latency test in bytes
    #[arg(short = 'i', value_name = "BYTES", default_value = "64", value_parser = |text: &str| within(text, 0, 1024))]
    pub inline: u64,
    /// Iterations of one test; each is transfers in both directions
    #[arg(short = 'I', value_name = "N", value_parser = |text: &str| within(text, 1, i32::MAX as u64))]
    pub iterations: Option<u64>,
    /// Transfers of one test in a direction [default: 1000]
    #[arg(short = 'C', value_name = "N", value_parser = |text: &str| within(text, 1, i32::MAX as u64))]
    pub count: Option<u64>,
    /// Bytes of a transfer of one test [default: 1000], or all
    #[arg(short = 'S', value_name = "BYTES", value_parser = size)]
    pub size: Option<Size>,
    /// Port
    #[arg(short = 'p', value_name = "PORT", default_value = "7471", value_parser = |text: &str| within(text, 1, 65535))]
    pub port: u64,
}

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    name: String,
    /// Of a transfer.
    pub bytes: usize,
    /// In a direction.
    pub transfers: u64,
    /// Each is the transfers of both directions.
    pub iterations: u64,
}

impl Run {
    fn latency(bytes: usize) -> Self {
        let name = format!("{}_lat", size_text(bytes as u64));
        Self { name, bytes, transfers: 1, iterations: count_of(bytes) }
    }

    fn bandwidth(bytes: usize) -> Self {
        let name = format!("{}_bw", size_text(bytes as u64));
        Self { name, bytes, transfers: count_of(bytes), iterations: 1 }
    }

    /// Tells the row, with how long it took.
    pub fn tell(&self, time: Duration) {
        tell(format_args!("{}", self.row(time)));
    }

    fn row(&self, time: Duration) -> String {
        let bytes = self.iterations * self.transfers * self.bytes as u64 * 2;
        let us = time.as_secs_f64() * 1e6;
        format!(
            "{:<10}{:<8}{:<8}{:<8}{:<8}{:>8.2}s{:>10.2}{:>11.2}",
            self.name,
            size_text(self.bytes as u64),
            count_text(self.transfers),
            count_text(self.iterations),
            size_text(bytes),
            us / 1e6,
            bytes as f64 * 8.0 / (1000.0 * us),
            us / self.iterations as f64 / (self.transfers as f64 * 2.0)
        )
    }
}

/// Sizes of both tests: a few, or all.
fn sizes(all: bool) -> Vec<usize> {
    let powers = (6..=22).flat_map(|power| {
        let size = 1_usize << power;
        [Some((size, matches!(power, 6 | 12 | 16 | 20))), (power > 6).then_some((size + size / 2, false))]
    });
    powers.flatten().filter(|(_, usual)| *usual || all).map(|(size, _)| size).collect()
}

/// After how many attempts that fail others have a turn: at once where they do what is waited for.
pub fn turn(is_software: bool) -> u32 {
    if is_software { 1 } else { TRIES }
}

/// A connection, over RDMA or TCP.
#[derive(Debug)]
pub enum Stream {
    /// Of RDMA.
    Rdma(RsStream),
    /// Of the kernel, for comparison.
    Tcp(TcpStream),
}

impl Stream {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Self::Rdma(stream) => stream.write(data),
            Self::Tcp(stream) => stream.write(data),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Rdma(stream) => stream.read(into),
            Self::Tcp(stream) => stream.read(into),
        }
    }

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Rdma(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        }
    }
}

#[derive(Debug)]
enum Listener {
    Rdma(Box<RsListener>),
    Tcp(TcpListener),
}

/// What a program has that the other has not, and by what it runs.
#[derive(Debug)]
pub struct Ends<'a> {
    /// Its name.
    pub program: &'static str,
    /// What `-T` was given.
    pub tests: &'a [Test],
    /// Without data for so long, the peer is probed.
    pub keepalive: Option<Duration>,
    /// How many maps the peer can make.
    pub maps: u16,
    /// Of RDMA.
    pub with: Option<(&'a LcoreContext, &'a Manager)>,
}

/// What is run, and what both ends know of the data so far.
pub struct Bench<'a> {
    options: &'a StreamOptions,
    ends: Ends<'a>,
    /// This end sends first.
    pub is_client: bool,
    blocks: bool,
    polls: bool,
    /// Data are compared.
    pub verify: bool,
    /// The next byte that is sent, and that is expected.
    next: [u8; 2],
    checked: u64,
    /// What is sent, and read.
    pub buffer: Vec<u8>,
}

impl<'a> Bench<'a> {
    /// One that has done nothing yet.
    #[must_use]
    pub fn new(options: &'a StreamOptions, ends: Ends<'a>) -> Self {
        // The later of two that contradict each other counts.
        let last = ends.tests.iter().rev().find(|test| matches!(test, Test::Blocking | Test::Nonblocking));
        let has = |test| ends.tests.contains(&test);
        Self {
            options,
            is_client: options.server.is_some(),
            blocks: last == Some(&Test::Blocking),
            polls: has(Test::Async),
            verify: has(Test::Verify),
            next: [0; 2],
            checked: 0,
            buffer: Vec::new(),
            ends,
        }
    }

    /// Runs one end: `test` is called for each row of the table, with the buffer large enough for it.
    ///
    /// # Errors
    /// One line.
    pub fn run(
        &mut self,
        mut test: impl FnMut(&mut Self, &mut Stream, &Run) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let options = self.options;
        let host = |host: &Option<String>, option| {
            host.as_deref().map(|host| options.format.read(host, option)).transpose()
        };
        let (server, bind) = (host(&options.server, "-s")?, host(&options.bind, "-b")?);
        let port = u16::try_from(options.port).unwrap_or_default();
        let peer = server.map(|server| SocketAddr::new(server, port));
        let listener = match peer {
            Some(_) => None,
            None => Some(self.listen(SocketAddr::new(bind.unwrap_or(options.format.any()), port))?),
        };
        tell(format_args!(
            "{:<10}{:<8}{:<8}{:<8}{:<8}{:>8} {:>10}{:>13}",
            "name", "bytes", "xfers", "iters", "total", "time", "Gb/sec", "usec/xfer"
        ));
        for (inline, runs) in self.tests() {
            let mut stream = match (&listener, peer) {
                (Some(listener), _) => self.accept(listener, inline)?,
                (None, Some(peer)) => self.connect(peer, bind, inline)?,
                (None, None) => return Ok(()),
            };
            for run in runs {
                self.buffer.resize(self.buffer.len().max(run.bytes).max(SYNC), 0);
                test(self, &mut stream, &run)?;
            }
            // The peer may have ended it first.
            stream.shutdown().ok();
        }
        Ok(())
    }

    /// The tests of each connection, and its inline data.
    fn tests(&self) -> Vec<(u32, Vec<Run>)> {
        let options = self.options;
        let bytes = match options.size {
            Some(Size::Bytes(bytes)) => Some(bytes),
            _ => None,
        };
        if bytes.is_some() || options.count.is_some() || options.iterations.is_some() {
            let run = Run {
                name: "custom".into(),
                bytes: bytes.unwrap_or(1000),
                transfers: options.count.unwrap_or(1000),
                iterations: options.iterations.unwrap_or(1),
            };
            return vec![(RsOptions::INLINE, vec![run])];
        }
        let sizes = sizes(options.size == Some(Size::All));
        let latency = sizes.iter().map(|size| Run::latency(*size)).collect();
        let bandwidth = sizes.iter().map(|size| Run::bandwidth(*size)).collect();
        vec![(options.inline as u32, latency), (0, bandwidth)]
    }

    fn socket_options(&self, inline: u32) -> RsOptions {
        let half = self.options.buffer.map_or(BUFFER, |bytes| bytes as usize);
        RsOptions::default()
            .send_buffer(2 * half)
            .receive_buffer(2 * half)
            .inline(inline)
            .maps(self.ends.maps)
            .keepalive(self.ends.keepalive)
            .nonblocking(true)
    }

    /// What the original tells of a socket that it gives options.
    fn tell_keepalive(&self) {
        if let Some(after) = self.ends.keepalive {
            tell(format_args!("Keepalive: ON\n  time: {}", after.as_secs()));
        }
    }

    fn listen(&self, local: SocketAddr) -> Result<Listener, Failure> {
        let failed = |error: io::Error| Failure::Error(error.to_string());
        let (listener, local) = match self.ends.with {
            Some((_, manager)) => {
                let listener =
                    RsListener::bind_with(manager, local, 1, &self.socket_options(0)).map_err(failed)?;
                let local = listener.local_addr().unwrap_or(local);
                (Listener::Rdma(Box::new(listener)), local)
            }
            None => {
                let listener =
                    TcpListener::bind(local).map_err(|error| Failure::Error(format!("{local}: {error}")))?;
                (Listener::Tcp(listener), local)
            }
        };
        say(format_args!("{}: listening on {local}", self.ends.program));
        Ok(listener)
    }

    fn accept(&self, listener: &Listener, inline: u32) -> Result<Stream, Failure> {
        let failed = |error: io::Error| Failure::Error(format!("cannot accept: {error}"));
        let listener = match listener {
            Listener::Rdma(listener) => listener,
            Listener::Tcp(listener) => return self.tcp(listener.accept().map_err(failed)?.0),
        };
        listener.set_options(&self.socket_options(inline));
        self.tell_keepalive();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    self.tell_keepalive();
                    return Ok(Stream::Rdma(stream));
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(failed(error)),
                Err(_) => self.wait(&mut [PollEntry::listener(listener)])?,
            }
        }
    }

    fn connect(&self, peer: SocketAddr, source: Option<IpAddr>, inline: u32) -> Result<Stream, Failure> {
        let refused = |error: io::Error| {
            let advice = match error.kind() {
                ErrorKind::ConnectionRefused => "; start the server first, with the same -p",
                _ => "",
            };
            Failure::Error(format!("{error}{advice}"))
        };
        let Some((_, manager)) = self.ends.with else {
            return self
                .tcp(TcpStream::connect(peer).map_err(|error| Failure::Error(format!("{peer}: {error}")))?);
        };
        self.tell_keepalive();
        let source = source.map(|source| SocketAddr::new(source, 0));
        let stream = RsStream::start_connect(manager, source, peer, &self.socket_options(inline));
        let stream = stream.map_err(refused)?;
        loop {
            let mut entries = [PollEntry::stream(&stream, false, true)];
            self.wait(&mut entries)?;
            if let Some(error) = stream.take_error().ok().flatten() {
                return Err(refused(error));
            }
            if entries.iter().any(|entry| entry.readiness().writable) {
                return Ok(Stream::Rdma(stream));
            }
        }
    }

    fn tcp(&self, stream: TcpStream) -> Result<Stream, Failure> {
        let set = || -> io::Result<()> {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(!self.blocks)
        };
        set().map_err(|error| Failure::Error(error.to_string()))?;
        Ok(Stream::Tcp(stream))
    }

    /// Waits a moment for sockets.
    fn wait(&self, entries: &mut [PollEntry<'_>]) -> Result<(), Failure> {
        let ready = poll(entries, Some(LOOK)).map_err(|error| Failure::Error(error.to_string()))?;
        if ready == 0 { self.look() } else { Ok(()) }
    }

    /// Whether a signal ended the program.
    ///
    /// # Errors
    /// It did.
    pub fn look(&self) -> Result<(), Failure> {
        let stops = self.ends.with.is_some_and(|(lcore, _)| lcore.stop_requested());
        if stops { Err(Failure::Stopped) } else { Ok(()) }
    }

    /// Goes on with a transfer until all of it went.
    ///
    /// # Errors
    /// One line.
    pub fn transfer(
        &self,
        stream: &mut Stream,
        bytes: usize,
        is_sent: bool,
        mut part: impl FnMut(&mut Stream, usize) -> io::Result<usize>,
    ) -> Result<(), Failure> {
        let turn = match stream {
            Stream::Rdma(stream) => turn(stream.is_software()),
            Stream::Tcp(_) => TRIES,
        };
        let (mut done, mut tries) = (0, 0_u32);
        while done < bytes {
            match part(stream, done) {
                Ok(0) => return Err(ended()),
                Ok(moved) => (done, tries) = (done + moved, 0),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    tries += 1;
                    match stream {
                        Stream::Rdma(stream) if self.blocks || self.polls => {
                            self.wait(&mut [PollEntry::stream(stream, !is_sent, is_sent)])?;
                        }
                        _ if tries.is_multiple_of(turn) => {
                            self.look()?;
                            std::thread::yield_now();
                        }
                        _ => {}
                    }
                }
                Err(error) => return Err(Failure::Error(error.to_string())),
            }
        }
        Ok(())
    }

    /// Sends the beginning of the buffer.
    ///
    /// # Errors
    /// One line.
    pub fn send(&self, stream: &mut Stream, bytes: usize) -> Result<(), Failure> {
        self.transfer(stream, bytes, true, |stream, at| stream.write(&self.buffer[at..bytes]))
    }

    /// Receives into the beginning of the buffer.
    ///
    /// # Errors
    /// One line.
    pub fn receive(&mut self, stream: &mut Stream, bytes: usize) -> Result<(), Failure> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = self.transfer(stream, bytes, false, |stream, at| stream.read(&mut buffer[at..bytes]));
        self.buffer = buffer;
        received
    }

    /// Writes what the peer expects next to the beginning of the buffer.
    pub fn fill(&mut self, bytes: usize) {
        for byte in &mut self.buffer[..bytes] {
            *byte = self.next[0];
            self.next[0] = self.next[0].wrapping_add(1);
        }
    }

    /// Compares the beginning of the buffer.
    ///
    /// # Errors
    /// Another byte than expected, in one line.
    pub fn check(&mut self, bytes: usize) -> Result<(), Failure> {
        for byte in &self.buffer[..bytes] {
            if *byte != self.next[1] {
                return Err(Failure::Error(format!("data verification failed byte {}", self.checked)));
            }
            self.next[1] = self.next[1].wrapping_add(1);
            self.checked += 1;
        }
        Ok(())
    }
}

/// The peer went away in the middle.
#[must_use]
pub fn ended() -> Failure {
    Failure::Error("the peer ended the connection before the test".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand from the original's `printf`.
    #[test]
    fn rows_are_those_of_the_original() {
        let row = Run::latency(64).row(Duration::from_millis(2500));
        assert_eq!(row, "64_lat    64      1       100k    12m         2.50s      0.04      12.50");
        let row = Run::bandwidth(98_304).row(Duration::from_secs(1));
        assert_eq!(row, "96k_bw    96k     1k      1       187m        1.00s      1.57     500.00");
        assert_eq!(Run::bandwidth(6 << 20).name, "6m_bw");
    }

    #[test]
    fn sizes_are_those_of_the_original() {
        assert_eq!(sizes(false), [64, 4096, 65_536, 1 << 20]);
        let all = sizes(true);
        assert_eq!((all.len(), all[..5].to_vec(), all[32]), (33, vec![64, 128, 192, 256, 384], 6 << 20));
    }

    #[test]
    fn words_of_tests_are_letters_or_begin_alike() {
        let known = [Test::Sockets, Test::Async, Test::Blocking, Test::Nonblocking, Test::Verify];
        let read = |text| Test::read(text, &known);
        assert_eq!(read("S"), Ok(Test::Sockets));
        assert_eq!(["sockets", "async", "BLOCKING", "n", "verify"].map(|word| read(word).is_ok()), [true; 5]);
        assert_eq!(read("blocking"), Ok(Test::Blocking));
        assert!(read("x").is_err() && read("").is_err());
        let line = "is none of s|sockets, a|async, b|blocking, n|nonblocking, v|verify";
        assert_eq!(read("fork"), Err(line.into()));
        assert_eq!((size("ALL"), size("4096")), (Ok(Size::All), Ok(Size::Bytes(4096))));
        assert!(size("0").is_err() && size("al").is_err());
    }
}
