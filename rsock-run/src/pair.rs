//! A connection: a socket of the kernel's and a stream over RDMA, between which bytes are copied in both directions.
//!
//! The end of one direction is passed on when all before it has been, and the other goes on. What fails resets the other side, after what
//! came before.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pollux_rsocket::RsStream;
use rustix::net::sockopt::set_socket_linger;

/// Bytes that one direction keeps: when they are not taken, its source is not read.
const BUFFER: usize = 1 << 17;
/// How often a direction moves before others have their turn.
const TURNS: usize = 8;
/// How long a stream that closes may wait for its peer: as `rsocket` does.
const LINGER: Duration = Duration::from_secs(3);
/// Stack of a thread that closes a stream.
const STACK: usize = 128 << 10;

/// One direction: what was read and not written yet, and how far its end is.
#[derive(Debug)]
struct Flow {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    /// The source has ended.
    ended: bool,
    /// Its end was passed on, or nobody wants it.
    closed: bool,
}

impl Flow {
    fn new() -> Self {
        Self { buffer: vec![0; BUFFER], begin: 0, end: 0, ended: false, closed: false }
    }

    fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    fn filled(&mut self, bytes: usize) {
        (self.begin, self.end) = (0, bytes);
        self.ended = bytes == 0;
    }

    fn written(&mut self, bytes: usize) {
        self.begin += bytes;
    }

    /// Nobody takes any more of it.
    fn give_up(&mut self) {
        (self.begin, self.end) = (0, 0);
        (self.ended, self.closed) = (true, true);
    }
}

/// Streams that close on threads of their own: what was written has to arrive, which is waited for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Closing(Arc<AtomicUsize>);

impl Closing {
    fn begin(&self, close: impl FnOnce() + Send + 'static) {
        let count = Arc::clone(&self.0);
        count.fetch_add(1, Ordering::Relaxed);
        let work = move || {
            close();
            count.fetch_sub(1, Ordering::Release);
        };
        if std::thread::Builder::new().name("close".into()).stack_size(STACK).spawn(work).is_err() {
            // What was to be done is dropped with the closure, and the stream with it.
            self.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// Closes a stream.
    pub(crate) fn close(&self, stream: RsStream) {
        self.begin(move || drop(stream));
    }

    /// Waits until all are closed, a moment at most.
    pub(crate) fn wait(&self) {
        let begin = Instant::now();
        while self.0.load(Ordering::Acquire) > 0 && begin.elapsed() < LINGER {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What came of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Bytes, or an end, went on.
    Moved,
    /// Nothing could.
    Idle,
    /// The connection is over.
    Over,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pair {
    socket: TcpStream,
    stream: RsStream,
    /// From the socket to the stream, and back.
    out: Flow,
    back: Flow,
    /// What epoll says of the socket, until a call finds otherwise.
    readable: bool,
    writable: bool,
    /// The socket is to be reset at the end: the stream took less than was said to it, or failed.
    broken: bool,
    closing: Closing,
}

impl Pair {
    /// The stream does not block, nor does the socket.
    pub(crate) fn new(socket: TcpStream, stream: RsStream, closing: &Closing) -> Self {
        Self {
            socket,
            stream,
            out: Flow::new(),
            back: Flow::new(),
            readable: true,
            writable: true,
            broken: false,
            closing: closing.clone(),
        }
    }

    /// Something changed at the socket.
    pub(crate) fn wake(&mut self) {
        (self.readable, self.writable) = (true, true);
    }

    /// Whether the stream has not taken all that the program wrote.
    pub(crate) fn owes(&self) -> bool {
        !self.out.is_empty()
    }

    /// Closes both; the stream by the thread for it alone, which has no handle here to wait for then.
    pub(crate) fn end(self) {
        let all_went = self.out.closed && self.back.closed;
        if self.broken || !all_went {
            // Closed with a linger of zero, a socket is reset.
            set_socket_linger(&self.socket, Some(Duration::ZERO)).ok();
        }
        self.closing.close(self.stream);
    }

    /// Moves what can be moved.
    pub(crate) fn turn(&mut self) -> Turn {
        let mut moved = false;
        for _ in 0..TURNS {
            let Some(out) = self.out() else {
                // The socket is gone.
                self.broken = true;
                return Turn::Over;
            };
            let back = self.back();
            if !out && !back {
                break;
            }
            moved = true;
        }
        if self.out.closed && self.back.closed {
            return Turn::Over;
        }
        if moved { Turn::Moved } else { Turn::Idle }
    }

    /// From the socket to the stream. Whether anything moved; `None`: the socket has failed.
    fn out(&mut self) -> Option<bool> {
        let flow = &mut self.out;
        let mut moved = false;
        if flow.is_empty() && !flow.ended && self.readable {
            match self.socket.read(&mut flow.buffer) {
                Ok(bytes) => {
                    flow.filled(bytes);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => moved = true,
                Err(_) => return None,
            }
        }
        if !flow.is_empty() {
            match self.stream.write(&flow.buffer[flow.begin..flow.end]) {
                Ok(bytes) => {
                    flow.written(bytes);
                    moved |= bytes > 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => {
                    // The peer takes no more; what it sent before is still delivered.
                    flow.give_up();
                    self.broken = true;
                    moved = true;
                }
            }
        }
        if flow.is_empty() && flow.ended && !flow.closed {
            flow.closed = true;
            moved = true;
            // With both ends reached the stream is closed as a whole.
            if !self.back.closed {
                let stream = self.stream.clone();
                self.closing.begin(move || {
                    // A peer that is gone is heard of by reading.
                    stream.shutdown(Shutdown::Write).ok();
                });
            }
        }
        Some(moved)
    }

    /// From the stream to the socket. Whether anything moved.
    fn back(&mut self) -> bool {
        let flow = &mut self.back;
        let mut moved = false;
        if flow.is_empty() && !flow.ended {
            match self.stream.read(&mut flow.buffer) {
                Ok(bytes) => {
                    flow.filled(bytes);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => {
                    flow.give_up();
                    self.out.give_up();
                    self.broken = true;
                    return true;
                }
            }
        }
        if !flow.is_empty() && self.writable {
            match self.socket.write(&flow.buffer[flow.begin..flow.end]) {
                Ok(bytes) => {
                    flow.written(bytes);
                    moved |= bytes > 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => moved = true,
                Err(_) => {
                    // The program takes no more; what it wrote before is still sent.
                    flow.give_up();
                    self.broken = true;
                    moved = true;
                }
            }
        }
        if flow.is_empty() && flow.ended && !flow.closed {
            flow.closed = true;
            moved = true;
            // A socket that is not connected any more has its end already.
            self.socket.shutdown(Shutdown::Write).ok();
        }
        moved
    }
}
