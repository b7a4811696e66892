//! What can go wrong, in one line each.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use crate::Errno;
use crate::abi::{id, write};

/// What was asked of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A method of an object, by ioctl.
    Method {
        /// Number of the object.
        object: u16,
        /// Number of the method.
        method: u16,
        /// What its owner calls it, if it is a driver's.
        name: Option<&'static str>,
    },
    /// A write command.
    Write {
        /// Its number, with the flag of extended ones.
        command: u32,
    },
    /// A map of pages.
    Map {
        /// Offset in the file, which says of what.
        offset: u64,
    },
    /// Something else, by name.
    Other(&'static str),
}

impl Operation {
    /// A method of the core namespace.
    #[must_use]
    pub const fn method(object: u16, method: u16) -> Self {
        Self::Method { object, method, name: None }
    }

    /// Name of an attribute of it.
    #[must_use]
    pub fn attribute(self, attribute: u16) -> Cow<'static, str> {
        let known = match self {
            Self::Method { object, method, .. } => id::attribute_name(object, method, attribute),
            _ => None,
        };
        known.map_or_else(|| Cow::Owned(format!("attribute {attribute:#x}")), Cow::Borrowed)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Method { name: Some(name), .. } => f.write_str(name),
            Self::Method { object, method, .. } => {
                match (id::method_name(object, method), id::object_name(object)) {
                    (Some(name), _) => f.write_str(name),
                    (None, Some(name)) => write!(f, "{name}/{method:#x}"),
                    (None, None) => write!(f, "object {object:#x} method {method:#x}"),
                }
            }
            Self::Write { command } => match write::name(command) {
                Some(name) => f.write_str(name),
                None => write!(f, "write command {command:#x}"),
            },
            Self::Map { offset } => write!(f, "mmap at {offset:#x}"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// What can go wrong on this file and on the way to it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UverbsError {
    /// The kernel, or the model in its place, said no.
    #[error("{operation}: {errno}{}", more(*.operation, *.errno, .words.as_deref()))]
    Refused {
        /// What was asked.
        operation: Operation,
        /// The answer.
        errno: Errno,
        /// What the other side said beside it, where it [can be asked](crate::Channel::words).
        words: Option<String>,
    },

    /// Neither the native method nor an older command can do it.
    #[error("{operation}: this kernel is too old for {what}")]
    TooOld {
        /// What was asked.
        operation: Operation,
        /// What about it has no older form.
        what: &'static str,
    },

    /// Success, but with an output that was not written.
    #[error("{operation}: succeeded without writing {attribute}{}", OTHER_ABI)]
    Unwritten {
        /// What was asked.
        operation: Operation,
        /// The output.
        attribute: Cow<'static, str>,
    },

    /// Success, but with fewer bytes than the answer needs.
    #[error("{operation}: {attribute} has {bytes} bytes, at least {wanted} are needed{}", OTHER_ABI)]
    Short {
        /// What was asked.
        operation: Operation,
        /// The output.
        attribute: Cow<'static, str>,
        /// What came.
        bytes: usize,
        /// What is needed.
        wanted: usize,
    },

    /// Success, but with a value that cannot be.
    #[error("{operation}: {attribute} is {value:#x}, {allowed} expected")]
    Unexpected {
        /// What was asked.
        operation: Operation,
        /// The output.
        attribute: Cow<'static, str>,
        /// What came.
        value: u64,
        /// What could have.
        allowed: &'static str,
    },

    /// An input that the ABI has no room for.
    #[error("{operation}: {attribute} is {value}, at most {limit} can be said")]
    TooLarge {
        /// What was to be asked.
        operation: Operation,
        /// The input.
        attribute: Cow<'static, str>,
        /// Its value or length.
        value: u64,
        /// What the ABI can express.
        limit: u64,
    },

    /// Registers of a page that are not there or already in use.
    #[error("registers {start:#x}..{end:#x} of a page of {bytes:#x} bytes: {problem}")]
    Registers {
        /// First byte.
        start: usize,
        /// First byte past them.
        end: usize,
        /// Length of the page.
        bytes: usize,
        /// What is wrong.
        problem: &'static str,
    },

    /// No RDMA in this kernel.
    #[error("{path} is not there: this kernel has no ib_uverbs; `modprobe ib_uverbs` loads it where the module is installed", path = .path.display())]
    NoKernel {
        /// What was looked for.
        path: PathBuf,
    },

    /// The kernel's ABI is of another kind.
    #[error("{path} says that the ABI is version {found}; {known} is known", path = .path.display())]
    AbiVersion {
        /// Where it stands.
        path: PathBuf,
        /// What stands there.
        found: String,
        /// What is known.
        known: u32,
    },

    /// Sysfs is not as expected.
    #[error("{path}: {problem}", path = .path.display())]
    Sysfs {
        /// What was read.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },

    /// No device of that name.
    #[error("no RDMA device {wanted}; there {present}")]
    NoDevice {
        /// What was asked for.
        wanted: String,
        /// What is there, ready to be printed.
        present: String,
    },

    /// Several devices answer to that name.
    #[error("{wanted} has several RDMA devices: {present}; name one of these")]
    Ambiguous {
        /// What was asked for.
        wanted: String,
        /// Those that match.
        present: String,
    },

    /// The file of the device cannot be opened.
    #[error("cannot open {path}: {errno:?}; {mend}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        errno: Errno,
        /// What to do about it.
        mend: String,
    },

    /// The file opened is not the device that sysfs means.
    #[error("{path} is device {found_major}:{found_minor}, not {major}:{minor} as sysfs says; udev has made another node there", path = .path.display())]
    WrongFile {
        /// The file.
        path: PathBuf,
        /// Its major number.
        found_major: u32,
        /// Its minor number.
        found_minor: u32,
        /// What sysfs says.
        major: u32,
        /// What sysfs says.
        minor: u32,
    },
}

/// How the [words](crate::Channel::words) of a refusal begin that came from the firmware, and not from a check of the kernel.
pub const FIRMWARE_SAID: &str = "the firmware said";

/// What to try about an answer that the ABI does not allow.
const OTHER_ABI: &str = "; update the kernel, or its driver of the device";

/// What there is to be known beyond an error number, or where: what to try, that is, unless the name of the number says it.
fn more(operation: Operation, errno: Errno, words: Option<&str>) -> String {
    // By these a kernel passes on what the firmware answered. Source: Linux
    // `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`, `cmd_status_to_err`.
    let of_firmware = matches!(errno, Errno::EINVAL | Errno::EIO | Errno::EAGAIN | Errno::EBUSY);
    match (words, operation) {
        (Some(words), _) => format!("; {words}"),
        (None, Operation::Method { .. } | Operation::Write { .. }) if of_firmware => {
            "; if it was the firmware that refused, `dmesg` has its status and syndrome".into()
        }
        (None, _) => match errno {
            Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::ENOTTY | Errno::ENOSYS => {
                "; a newer kernel or firmware may have it".into()
            }
            Errno::ENOSPC => "; ask for fewer queues or rules".into(),
            Errno::ENODEV | Errno::EIO => "; `rdma dev` tells whether the device is there".into(),
            _ => String::new(),
        },
    }
}

impl UverbsError {
    /// The kernel's error number, if that is what it is about.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } | Self::Open { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Whether the other side tells that the firmware refused it. `false` where nobody tells: a kernel does not.
    #[must_use]
    pub fn says_firmware(&self) -> bool {
        matches!(self, Self::Refused { words: Some(words), .. } if words.starts_with(FIRMWARE_SAID))
    }

    /// Whether it says that the device, its driver or the kernel cannot do such a thing at all.
    #[must_use]
    pub fn says_unsupported(&self) -> bool {
        match self {
            Self::TooOld { .. } => true,
            Self::Refused { errno, .. } => {
                matches!(*errno, Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT | Errno::ENOTTY | Errno::ENOSYS)
            }
            _ => false,
        }
    }
}
