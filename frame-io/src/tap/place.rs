//! Where a tap's interface is, and how to get at it there with as few rights as that takes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

use super::TapControl;
use crate::interface::{Interface, within_namespace};
use crate::sys;

/// The interface where it was last seen. It is looked for again when it is there no more.
#[derive(Debug, Default)]
pub(super) struct Place(Mutex<Option<Found>>);

/// An interface, by handles that stay in the namespace where they were made.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) interface: Interface,
    /// The kernel's table of what the interfaces of that namespace count.
    counts: File,
}

impl Place {
    /// Runs `work` on the interface, wherever it is now.
    pub(super) fn with<T>(
        &self,
        tap: &TapControl,
        work: impl FnOnce(&Found) -> io::Result<T>,
    ) -> io::Result<T> {
        let name = tap.name()?;
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = &*place
            && found.interface.current_name().is_ok_and(|called| called == name)
        {
            return work(found);
        }
        work(place.insert(there(tap, || Found::here(&name))?))
    }
}

impl Found {
    /// Looks in the calling thread's namespace.
    fn here(name: &str) -> io::Result<Self> {
        let interface = Interface::find(name).map_err(io::Error::other)?;
        // A file of a namespace stays with it (fs/proc/proc_net.c). `net` of the process would be another thread's.
        Ok(Self { interface, counts: File::open("/proc/thread-self/net/dev")? })
    }

    /// What the kernel dropped on its way to the interface of that name.
    pub(super) fn tx_dropped(&self, name: &str) -> io::Result<u64> {
        let mut table = String::new();
        (&self.counts).seek(SeekFrom::Start(0))?;
        (&self.counts).read_to_string(&mut table)?;
        tx_dropped(&table, name).ok_or_else(|| io::Error::other("no line for it in /proc/net/dev"))
    }
}

/// Source: Linux `net/core/net-procfs.c`, `dev_seq_printf_stats`: eight numbers of what is received, then bytes, packets,
/// errors and drops of what is sent.
fn tx_dropped(table: &str, name: &str) -> Option<u64> {
    let counts = table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    counts.split_whitespace().nth(8 + 3)?.parse().ok()
}

/// Runs `work` in the namespace where the interface is: on this thread, if that is its own.
pub(super) fn there<T: Send>(tap: &TapControl, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    match namespace(tap) {
        Ok(namespace) if !is_own(&namespace)? => {
            within_namespace(namespace.as_fd(), work).map_err(|error| match error.raw_os_error() {
                Some(libc::EPERM) => io::Error::new(
                    io::ErrorKind::PermissionDenied,
                    "it was moved to another network namespace, which takes CAP_SYS_ADMIN to enter: run as root",
                ),
                _ => error,
            })
        }
        Ok(_) => work(),
        // Without CAP_NET_ADMIN the kernel does not tell (drivers/net/tun.c, TUNGETDEVNETNS), and before Linux 5.2 it cannot.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EINVAL | libc::ENOTTY)) => {
            let name = tap.name()?;
            let namesake = Interface::find(&name).map_err(io::Error::other)?.state()?;
            if namesake.mac != tap.mac()? {
                let problem = format!("{name} of this network namespace is another: it was moved away or renamed");
                return Err(io::Error::other(problem));
            }
            work()
        }
        Err(error) => Err(error),
    }
}

fn namespace(tap: &TapControl) -> io::Result<OwnedFd> {
    Ok(sys::own(sys::ioctl_value(tap.file.as_fd(), libc::TUNGETDEVNETNS, 0)?))
}

fn is_own(namespace: &OwnedFd) -> io::Result<bool> {
    let identity = |file: File| file.metadata().map(|data| (data.dev(), data.ino()));
    Ok(identity(namespace.try_clone()?.into())? == identity(File::open("/proc/thread-self/ns/net")?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_in_the_kernels_table() {
        let table = "Inter-|   Receive                            |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo\n\
                     xtap0: 9 9 9 9 9 9 9 9 9 9 9 999 9 9 9 9\n  \
                     tap0:12345678 2 3 4 5 6 7 8 9 10 11 1234 13 14 15 16\n";
        assert_eq!(tx_dropped(table, "tap0"), Some(1234));
        assert_eq!(tx_dropped(table, "xtap0"), Some(999));
        assert_eq!(tx_dropped(table, "tap"), None);
    }
}
