//! Error numbers as a kernel answers them, and what they mean on this file.

use std::fmt;

/// An error number. Doors answer with one; what it means depends on the call, see [`Errno::meaning`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "` of errno(3).")]
                pub const $name: Self = Self(libc::$name);
            )*

            /// Its name in errno(3), if it is one that this file is known to answer.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV EINVAL ENFILE EMFILE ENOTTY
    EFBIG ENOSPC ERANGE ENOSYS ENODATA ENOMSG EOVERFLOW EPROTONOSUPPORT EOPNOTSUPP ENETDOWN ENETUNREACH ETIMEDOUT ECANCELED EREMOTEIO EPIPE
    EADDRINUSE EADDRNOTAVAIL EISCONN
}

impl Errno {
    /// What the uverbs file means by it, where that is more than its general text. Source: Linux
    /// `drivers/infiniband/core/uverbs_ioctl.c` and `uverbs_main.c`, rdma-core `libibverbs/cmd_fallback.c`.
    #[must_use]
    pub const fn meaning(self) -> Option<&'static str> {
        Some(match self {
            Self::EPROTONOSUPPORT => "the kernel lacks this method, or an attribute of it that was mandatory",
            Self::ENOTTY => "the file does not know the ioctl of uverbs",
            Self::EOPNOTSUPP => "the device or its kernel driver cannot do this",
            Self::EINVAL => "a value was not accepted",
            Self::ENOSPC => "a buffer is shorter than what the kernel has to put there, or a table is full",
            Self::ENOMEM => "no memory, or more than the limit on locked memory allows (`ulimit -l`)",
            Self::EFAULT => "an address is not mapped, or not with the rights that the call needs",
            Self::EMFILE => "too many open files in this process",
            Self::ENFILE => "too many open files in the whole system",
            Self::EBUSY => "other objects still use it",
            Self::EAGAIN => "the device, or the kernel, has none left for now",
            Self::ENOENT => "no such object, or of another kind",
            Self::EIO => "the device was removed, or its firmware refused the command",
            Self::ENODEV => "the device was removed",
            Self::ETIMEDOUT => "nobody on the wire answers for the address of the destination",
            Self::ENETUNREACH => "the destination is in no subnet of the source address",
            Self::EREMOTEIO => "the firmware refused the command; its status is in the answer",
            Self::EPERM => "this needs CAP_NET_RAW or CAP_NET_ADMIN",
            Self::EACCES => "no permission; write(2) on this file also wants the credentials that opened it",
            _ => return None,
        })
    }

    /// Whether it says that a method is not there, so that an older way may be tried.
    #[must_use]
    pub const fn says_absent(self) -> bool {
        matches!(self, Self::EPROTONOSUPPORT | Self::ENOTTY)
    }
}

impl From<std::io::Error> for Errno {
    /// An error without a number becomes `EIO`.
    fn from(error: std::io::Error) -> Self {
        error.raw_os_error().map_or(Self::EIO, Self)
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name)?,
            None => write!(f, "errno {}", self.0)?,
        }
        if let Some(meaning) = self.meaning() {
            write!(f, " ({meaning})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl std::error::Error for Errno {}
