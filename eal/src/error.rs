//! What can go wrong at set-up and control. The data path has no errors.

use std::error::Error;
use std::io;

use crate::lcore::{CpuSet, LcoreId};

/// Returns an error and its causes, in one line.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// EAL errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EalError {
    /// The kernel does not say on which CPUs this process may run.
    #[error("cannot read the CPU affinity of this process")]
    Affinity {
        /// Error of the kernel.
        source: io::Error,
    },

    /// An lcore was asked for on a CPU that the process may not use, or that is not there.
    #[error(
        "lcore {lcore} needs CPU {cpu}, which does not exist or is outside this process's affinity; allowed CPUs: \
         {allowed} (choose among them with -l or --lcores, or widen the affinity with taskset)"
    )]
    CpuNotAllowed {
        /// The lcore.
        lcore: LcoreId,
        /// The CPU it needs.
        cpu: u16,
        /// CPUs that the process may use.
        allowed: CpuSet,
    },

    /// An lcore is named twice.
    #[error("lcore {lcore} is named twice; name each lcore once")]
    LcoreTwice {
        /// The lcore.
        lcore: LcoreId,
    },

    /// An lcore was given no CPU to run on.
    #[error("lcore {lcore} has no CPU; assign at least one of {allowed}")]
    LcoreWithoutCpu {
        /// The lcore.
        lcore: LcoreId,
        /// CPUs that the process may use.
        allowed: CpuSet,
    },

    /// No lcore is left to run an application.
    #[error(
        "no lcore is left for the application: all of {service} are service cores; leave at least one out of -S"
    )]
    NoLcore {
        /// The service cores.
        service: String,
    },

    /// The main lcore is not among the lcores of the application.
    #[error("main lcore {main} is not among the lcores of the application ({lcores}); name one of them")]
    MainLcore {
        /// What was requested.
        main: LcoreId,
        /// What exists.
        lcores: String,
    },

    /// An lcore could not be pinned.
    #[error("cannot pin {thread} to CPU {cpus}")]
    Pin {
        /// The thread.
        thread: String,
        /// Where it should run.
        cpus: CpuSet,
        /// Error of the kernel.
        source: io::Error,
    },

    /// A telemetry command could not be registered.
    #[error("telemetry command '{command}' {problem}")]
    TelemetryCommand {
        /// The command.
        command: String,
        /// Why not.
        problem: &'static str,
    },

    /// A directory of a file prefix's sockets could not be made, or is not safe.
    #[error("{}", path.display())]
    RuntimeDirectory {
        /// The directory.
        path: std::path::PathBuf,
        /// What is wrong there.
        source: io::Error,
    },

    /// A socket of a file prefix could not be made.
    #[error(transparent)]
    PrefixSocket(#[from] crate::socket_file::SocketFileError),

    /// A thread could not be created.
    #[error("cannot start thread {thread}")]
    Thread {
        /// Its name.
        thread: String,
        /// Error of the kernel.
        source: io::Error,
    },

    /// No such lcore.
    #[error("there is no lcore {lcore}; there are {lcores}")]
    UnknownLcore {
        /// What was requested.
        lcore: LcoreId,
        /// What exists.
        lcores: String,
    },

    /// The lcore is busy.
    #[error("lcore {lcore} is running; wait for it before launching on it again")]
    LcoreBusy {
        /// The lcore.
        lcore: LcoreId,
    },

    /// The lcore's role does not allow this.
    #[error("lcore {lcore} is {role} and cannot {action}")]
    WrongRole {
        /// The lcore.
        lcore: LcoreId,
        /// What it is.
        role: crate::lcore::LcoreRole,
        /// What was asked of it.
        action: &'static str,
    },

    /// Memory could not be reserved.
    #[error(transparent)]
    Memory(#[from] crate::region::MemoryError),

    /// A thread that is an lcore cannot become one more.
    #[error("this thread is already lcore {lcore}")]
    AlreadyLcore {
        /// What it is.
        lcore: LcoreId,
    },

    /// All lcore numbers are taken.
    #[error("all {limit} lcore IDs are in use; unregister a thread that no longer needs one")]
    TooManyLcores {
        /// How many there are.
        limit: u16,
    },

    /// A callback does not accept an lcore.
    #[error("lcore {lcore} was refused: {reason}")]
    Refused {
        /// Which.
        lcore: LcoreId,
        /// What the callback said.
        reason: String,
    },

    /// The EAL is shut down.
    #[error("the EAL is shut down; cannot accept {subject}")]
    ShutDown {
        /// What was requested.
        subject: &'static str,
    },

    /// No such service.
    #[error("there is no service {number}; it was unregistered, or belongs to another Eal")]
    UnknownService {
        /// Its number.
        number: u32,
    },

    /// Not a service core.
    #[error("{asked} needs a service core; service cores: {cores}")]
    NoServiceCore {
        /// What was requested.
        asked: String,
        /// What exists.
        cores: String,
    },

    /// A log pattern that cannot be understood.
    #[error(
        "option '--log-level': '{pattern}' is not a valid pattern: {source}; write PATTERN:LEVEL with wildcards * and ?, or REGEX,LEVEL"
    )]
    LogPattern {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        source: regex_lite::Error,
    },

    /// A signal cannot be handled.
    #[error("cannot handle signal {signal}")]
    Signal {
        /// Its number.
        signal: i32,
        /// Error of the kernel.
        source: io::Error,
    },

    /// An event or epoll file could not be made or changed.
    #[error("cannot {action}")]
    Event {
        /// What was tried.
        action: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}
