//! What tables refuse.

use std::io;
use std::net::IpAddr;

/// Why a table was not made or not changed. A change that fails leaves the table as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// More words than a process can map.
    #[error("a table of {words} words is too large: ask for less capacity")]
    TooLarge {
        /// Words that were needed.
        words: usize,
    },
    /// The kernel gave no address space.
    #[error(
        "cannot map {bytes} bytes for a table: {source}; ask for less capacity, or raise the limit (ulimit -v)"
    )]
    Memory {
        /// Bytes that were asked for.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// A capacity that a table cannot have.
    #[error("capacity of {given} {of} is out of range: must be from 1 to {most}")]
    Capacity {
        /// What it counts.
        of: &'static str,
        /// What was asked for.
        given: usize,
        /// What can be.
        most: usize,
    },
    /// A prefix longer than an address.
    #[error("prefix {address}/{length} is longer than an address: at most {most} bits")]
    PrefixLength {
        /// Its address.
        address: IpAddr,
        /// Its bits.
        length: u8,
        /// Bits of an address.
        most: u8,
    },
    /// Bits behind a prefix are set.
    #[error("prefix {address}/{length} has bits set behind the prefix: write {network}/{length}")]
    HostBits {
        /// The address that was given.
        address: IpAddr,
        /// Bits of the prefix.
        length: u8,
        /// The same without those bits.
        network: IpAddr,
    },
    /// A value that tables keep for themselves.
    #[error("value {given} is too large: at most {most}")]
    Value {
        /// What was given.
        given: u32,
        /// What can be.
        most: u32,
    },
    /// No room for what was to be put in.
    #[error("the table is full: it has {used} {of} of {most}; make it with a larger capacity")]
    Full {
        /// What it has no more of.
        of: &'static str,
        /// How many are in use.
        used: usize,
        /// How many there are.
        most: usize,
    },
    /// Readers have not taken what was published before, so that its memory cannot be used again. What was changed stays to be published.
    #[error(
        "cannot publish: a reader is {behind} version{} behind; try again when it has passed, or drop readers of threads that sleep",
        if *behind == 1 { "" } else { "s" }
    )]
    ReadersBehind {
        /// Versions published since the last that the slowest reader took.
        behind: u64,
    },
    /// A classification rule that matches nothing.
    #[error("rule {rule}: {field} from {first} to {last} is no range: the first must not be above the last")]
    Range {
        /// The rule's place among those that were given, from 0.
        rule: usize,
        /// Which of its fields.
        field: &'static str,
        /// Where it begins.
        first: u16,
        /// Where it ends.
        last: u16,
    },
}
