//! Why memory could not be had: each message says what, how much, what there is, and what mends it.

use std::io;
use std::path::PathBuf;

use crate::hugepage::{Bytes, wanted_and_had};
use crate::topology::SocketId;

/// Why memory could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Zero bytes, or more than an address space has.
    #[error("cannot reserve {bytes} bytes for {name}: a zone has at least 1 byte and at most {max}")]
    Size {
        /// What the memory was for.
        name: String,
        /// How much was asked for.
        bytes: usize,
        /// The most that can be asked for.
        max: usize,
    },
    /// An alignment that is no power of two, or a huge one.
    #[error("cannot reserve {name} with alignment {align}: it must be a power of two of at most {max}")]
    Align {
        /// What the memory was for.
        name: String,
        /// The alignment asked for.
        align: usize,
        /// The largest alignment.
        max: usize,
    },
    /// A boundary that is no power of two, or smaller than the zone.
    #[error(
        "cannot reserve {bytes} bytes for {name} within a boundary of {bound}: it must be a power of two no smaller than the zone"
    )]
    Bound {
        /// What the memory was for.
        name: String,
        /// How much was asked for.
        bytes: usize,
        /// The boundary asked for.
        bound: usize,
    },
    /// Another living zone has this name.
    #[error(
        "cannot reserve {name}: a zone of that name exists ({bytes} bytes); drop it first or choose another name"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// Size of the zone that has it.
        bytes: usize,
    },
    /// The options' own limit.
    #[error(
        "cannot reserve {} for {name}: {} of the limit of {} are mapped; raise --numa-limit", Bytes(*.bytes), Bytes(*.used), Bytes(*.limit)
    )]
    Limit {
        /// What the memory was for.
        name: String,
        /// How much more was needed.
        bytes: usize,
        /// How much is mapped already.
        used: usize,
        /// The limit.
        limit: usize,
    },
    /// The machine (or the control group) has less memory left than asked for.
    #[error(
        "cannot populate {} for {name}: {} are available ({source_of_limit}); ask for less or free some",
        wanted_and_had(*.bytes, *.available).0, wanted_and_had(*.bytes, *.available).1
    )]
    NotEnough {
        /// What the memory was for.
        name: String,
        /// How much was asked for.
        bytes: usize,
        /// How much could be had.
        available: usize,
        /// Where that number comes from.
        source_of_limit: String,
    },
    /// The kernel refused a mapping.
    #[error("cannot map {} in pages of {} for {name}{mend}", Bytes(*.bytes), Bytes(*.page_size))]
    Map {
        /// What the memory was for.
        name: String,
        /// How much was asked for.
        bytes: usize,
        /// The size of its pages.
        page_size: usize,
        /// What would help, if it is known; begins with `: `.
        mend: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Mapped, but the pages were not to be had: to touch them would be a SIGBUS.
    #[error("cannot populate {} in pages of {} for {name}{mend}", Bytes(*.bytes), Bytes(*.page_size))]
    Populate {
        /// What the memory was for.
        name: String,
        /// How much was asked for.
        bytes: usize,
        /// The size of its pages.
        page_size: usize,
        /// What would help, if it is known; begins with `: `.
        mend: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Locking was required and RLIMIT_MEMLOCK (or the lack of CAP_IPC_LOCK) refused it.
    #[error(
        "cannot lock {} for {name}: RLIMIT_MEMLOCK is {}; run `ulimit -l unlimited`, or set LimitMEMLOCK=infinity in the service", Bytes(*.bytes), Bytes(*.limit)
    )]
    Lock {
        /// What the memory was for.
        name: String,
        /// How much was to be locked.
        bytes: usize,
        /// The limit.
        limit: usize,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The pages could not be bound to a NUMA node.
    #[error("cannot bind {} for {name} to NUMA node {socket}", Bytes(*.bytes))]
    Bind {
        /// What the memory was for.
        name: String,
        /// How much was asked for.
        bytes: usize,
        /// The node.
        socket: SocketId,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is no such NUMA node.
    #[error("cannot reserve memory for {name} on NUMA node {socket}: this machine has {present}")]
    NoSocket {
        /// What the memory was for.
        name: String,
        /// The node asked for.
        socket: SocketId,
        /// The nodes there are.
        present: String,
    },
    /// Huge pages were demanded and there are too few.
    #[error("cannot allocate {} of hugepages for {name}: {free}; {mend}", Bytes(*.bytes))]
    NoHugePages {
        /// What the memory was for.
        name: String,
        /// How much was asked for.
        bytes: usize,
        /// What is free, by size.
        free: String,
        /// The command that would help.
        mend: String,
    },
    /// `--huge-dir` names something that is not a mounted hugetlbfs.
    #[error("cannot use {} for huge pages: it is not a hugetlbfs mount; run `mount -t hugetlbfs -o pagesize=2M none {}`, or leave --huge-dir out", .path.display(), .path.display())]
    NotHugetlbfs {
        /// The directory.
        path: PathBuf,
    },
    /// `--huge-dir` cannot be used.
    #[error("cannot use {} for huge pages", .path.display())]
    HugeDir {
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// `--iova-mode pa`.
    #[error(
        "--iova-mode pa is not supported: all devices use virtual addresses; give --iova-mode va, or leave it out"
    )]
    PhysicalIova,
}
