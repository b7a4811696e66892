//! How two programs meet before their queue pairs do: over TCP, or a queue pair of its own (`perftest::by_address`), with the bytes of other
//! people's programs.
//!
//! ```text
//!   line      a connection: listen, connect, whole messages, an end that is noticed
//!   pingpong  what rdma-core's ibv_*_pingpong say to each other
//!   perftest  what ib_send_bw and its family say to each other
//! ```
//!
//! Each message is a byte array of fixed length, made and read by plain functions; so either end of each conversation can
//! be the original.

pub mod line;
pub mod perftest;
pub mod pingpong;

pub use line::{Line, Listener, Side};

/// Why two ends did not meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExchangeError {
    /// Nobody listens there.
    #[error("cannot connect to {host}:{port}: {source}; start the server first, with the same -p")]
    Connect {
        /// Where.
        host: String,
        /// Where.
        port: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// The name has no address.
    #[error("cannot resolve '{host}': {source}; give the server's host name or IP address")]
    Resolve {
        /// The name.
        host: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The TCP port is taken.
    #[error("cannot listen on TCP port {port}: {source}; choose another port with -p at both ends")]
    Listen {
        /// The port.
        port: u16,
        /// What the system said.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("connection to {peer} lost while {what}: {source}")]
    Broken {
        /// The other end.
        peer: String,
        /// What was being said.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// The other end went away.
    #[error(
        "{peer} closed the connection while {what}; it may have rejected the options: see its last line and give both ends the same ones"
    )]
    Closed {
        /// The other end.
        peer: String,
        /// What was being said.
        what: &'static str,
    },
    /// The other end says nothing.
    #[error("no answer from {peer} for {seconds} seconds while {what}; run the same program at both ends")]
    Silent {
        /// The other end.
        peer: String,
        /// What was being said.
        what: &'static str,
        /// How long.
        seconds: u64,
    },
    /// The other end is another program.
    #[error("{peer}: unexpected message {said:?}, expected {expected}; run the same program at both ends")]
    Strange {
        /// The other end.
        peer: String,
        /// The beginning of what it said.
        said: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// The other end's perftest is too old, or says what it is in a way that nobody reads.
    #[error("{peer}: perftest {theirs} is incompatible with {ours}; run perftest 5.70 or newer")]
    Version {
        /// The other end.
        peer: String,
        /// Its version.
        theirs: String,
        /// Ours.
        ours: String,
    },
    /// The two ends were told different things.
    #[error("{what} differs: {ours} here, {theirs} at {peer}; give both ends the same")]
    Differ {
        /// The other end.
        peer: String,
        /// The option.
        what: String,
        /// Here.
        ours: String,
        /// There.
        theirs: String,
    },
    /// Ctrl-C, or the like, while waiting.
    #[error("stopped while {what}")]
    Stopped {
        /// What was being waited for.
        what: &'static str,
    },
}
