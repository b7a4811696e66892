//! What can go wrong between a command line and running ports.

use pollux_config::ConfigError;
use pollux_eal::region::MemoryError;
use pollux_eal::{EalError, Panicked};
use pollux_mempool::PoolError;
use pollux_port::PortError;
use pollux_uverbs::{Errno, UverbsError};
use pollux_verbs::VerbsError;

/// Errors of starting up and running a program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BringupError {
    /// The command line, a device argument or a profile.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The EAL.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The mbuf pool.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// An RDMA device.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// Memory for the pool.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Unknown driver.
    #[error("device '{device}': unknown driver{}; drivers: {drivers}", near(.nearest.as_deref()))]
    UnknownDriver {
        /// The device's name.
        device: String,
        /// The nearest driver name.
        nearest: Option<String>,
        /// All drivers.
        drivers: String,
    },
    /// A driver of the program's own that cannot be added.
    #[error("driver '{name}': {problem}")]
    Driver {
        /// The name under which it was to be added.
        name: String,
        /// What is wrong, what is allowed.
        problem: String,
    },
    /// Fewer mbufs than the queues may hold at once.
    #[error(
        "mbuf pool is too small ({has} mbufs): the queues need up to {needs} ({parts}); give --mbufs {needs} or \
         leave it out"
    )]
    PoolTooSmall {
        /// Requested number of mbufs.
        has: usize,
        /// Required number of mbufs.
        needs: usize,
        /// What requires them.
        parts: String,
    },
    /// No such port.
    #[error("no port {port}")]
    NoPort {
        /// The number.
        port: u16,
    },
    /// Invalid application options.
    #[error("{0}")]
    Usage(String),
    /// A signal terminated the program during startup.
    #[error("terminated by signal {signal} during startup")]
    Signal {
        /// Its number.
        signal: i32,
    },
    /// The application failed while running.
    #[error("{0}")]
    Runtime(String),
}

fn near(nearest: Option<&str>) -> String {
    nearest.map(|word| format!(", did you mean '{word}'?")).unwrap_or_default()
}

impl BringupError {
    /// Returns the exit status: 2 for errors of usage, 1 for all others.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let usage = match self {
            Self::Signal { signal } => return u8::try_from(128 + signal).unwrap_or(1),
            Self::Config(_)
            | Self::UnknownDriver { .. }
            | Self::PoolTooSmall { .. }
            | Self::NoPort { .. }
            | Self::Usage(_) => true,
            Self::Eal(error) => matches!(
                error,
                EalError::CpuNotAllowed { .. }
                    | EalError::LcoreTwice { .. }
                    | EalError::NoLcore { .. }
                    | EalError::MainLcore { .. }
                    | EalError::UnknownLcore { .. }
                    | EalError::LogPattern { .. }
                    | EalError::Memory(
                        MemoryError::PhysicalIova
                            | MemoryError::NoSocket { .. }
                            | MemoryError::NotHugetlbfs { .. }
                            | MemoryError::HugeDir { .. }
                    )
            ),
            Self::Port(error) => !matches!(error, PortError::Device { .. } | PortError::State { .. }),
            Self::Pool(error) => matches!(error, PoolError::OutOfRange { .. }),
            // The program is at fault that adds it.
            Self::Driver { .. } => false,
            Self::Memory(_) | Self::Verbs(_) | Self::Runtime(_) => false,
        };
        if usage { 2 } else { 1 }
    }

    /// Returns the error and its causes on one line.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let text = error.to_string();
            // Some errors print their cause themselves.
            if !line.ends_with(&text) {
                line = format!("{line}: {text}");
            }
            cause = error.source();
        }
        if self.lacks_descriptors() {
            let limit = pollux_eal::hugepage::open_file_limit();
            line = format!(
                "{line}: the limit is {limit} open files; raise it with {}",
                pollux_eal::hugepage::RAISE_OPEN_FILES
            );
        }
        one_line(&line)
    }

    /// Whether the kernel said that this process has too many files open.
    fn lacks_descriptors(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let answer = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
            let refused = error.downcast_ref::<UverbsError>().and_then(UverbsError::errno);
            if answer == Some(EMFILE) || refused == Some(Errno::EMFILE) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl From<Panicked> for BringupError {
    fn from(panicked: Panicked) -> Self {
        Self::Runtime(panicked.to_string())
    }
}

/// "Too many open files" (Linux, `include/uapi/asm-generic/errno-base.h`).
const EMFILE: i32 = 24;

/// What a user typed may hold any character; none of them may break the line.
fn one_line(text: &str) -> String {
    text.chars()
        .flat_map(|mark| {
            let (plain, escaped) =
                if mark.is_control() { (None, Some(mark.escape_default())) } else { (Some(mark), None) };
            plain.into_iter().chain(escaped.into_iter().flatten())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_and_its_causes_are_one_line() {
        let source = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = BringupError::Config(ConfigError::ProfileRead { path: "a\nb".into(), source });
        assert_eq!(error.line(), "profile 'a\\nb': cannot be read: entity not found");
        assert_eq!(error.exit_code(), 2);
        let source = std::io::Error::from_raw_os_error(EMFILE);
        let error = BringupError::Config(ConfigError::ProfileRead { path: "a".into(), source });
        let line = error.line();
        assert!(
            line.starts_with("profile 'a': cannot be read: Too many open files (os error 24): "),
            "{line}"
        );
        assert!(line.ends_with(" open files; raise it with `ulimit -n 1024`"), "{line}");
        assert_eq!(BringupError::Runtime("no port is left".into()).exit_code(), 1);
    }
}
