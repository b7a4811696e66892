//! Event descriptors by interrupt vector.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_mlx5_kernel::CommandQueue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_MASK, VFIO_IRQ_SET_ACTION_UNMASK, VFIO_IRQ_SET_DATA_BOOL, VFIO_IRQ_SET_DATA_EVENTFD,
};

use super::function::Function;

/// What `/proc/self/fd` says of an event descriptor. Source: Linux `fs/eventfd.c`.
const EVENT: &str = "anon_inode:[eventfd]";

/// Where the interrupts of a device go.
#[derive(Clone, Debug)]
pub(super) struct Vectors(Arc<Mutex<Vec<Option<File>>>>);

impl Vectors {
    /// Has the device's interrupts signal the descriptors.
    pub(super) fn connect(function: &Function, count: u32) -> Self {
        let vectors = Self(Arc::new(Mutex::new((0..count).map(|_| None).collect())));
        for vector in 0..count {
            let signalled = vectors.clone();
            function.device().on_interrupt(vector, Arc::new(move || signalled.signal(vector as usize)));
        }
        vectors
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<File>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, vector: usize) {
        tracing::trace!(target: "model.pci", vector, "interrupt");
        if let Some(Some(descriptor)) = self.lock().get(vector) {
            // A counter that is full has been signalled already; a write would wait until it is read, where the machine, which
            // has the descriptor too, took back that no write of it waits.
            let mut ready = [PollFd::new(descriptor, PollFlags::OUT)];
            if poll(&mut ready, Some(&Timespec::default())).is_ok_and(|count| count > 0) {
                drop((&*descriptor).write_all(&1_u64.to_ne_bytes()));
            }
        }
    }

    /// Forgets all descriptors.
    pub(super) fn clear(&self) {
        self.lock().fill_with(|| None);
    }

    /// Sets the descriptors of `count` vectors from `start` on: as many as are given, or none where none are.
    ///
    /// # Errors
    /// `EINVAL` for vectors that are not there, another number of descriptors, descriptors that tell no events, and data in
    /// bytes.
    pub(super) fn set(&self, flags: u32, start: u32, count: u32, given: Vec<OwnedFd>) -> io::Result<()> {
        let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what.to_owned()));
        tracing::debug!(target: "model.pci", flags, start, count, descriptors = given.len(), "interrupts");
        if flags & VFIO_IRQ_SET_DATA_BOOL != 0 {
            return wrong("interrupts are set by event descriptors, not by bytes");
        }
        if flags & (VFIO_IRQ_SET_ACTION_MASK | VFIO_IRQ_SET_ACTION_UNMASK) != 0 {
            // The machine masks vectors itself.
            return Ok(());
        }
        if count == 0 {
            self.clear();
            return Ok(());
        }
        let descriptors = given.into_iter().map(event).collect::<io::Result<Vec<File>>>()?;
        let mut places = self.lock();
        let (start, count) = (start as usize, count as usize);
        let Some(places) = places.get_mut(start..start.saturating_add(count)) else {
            return wrong("no such interrupt vector");
        };
        if descriptors.is_empty() {
            if flags & VFIO_IRQ_SET_DATA_EVENTFD != 0 {
                // None yet.
                places.fill_with(|| None);
            }
            return Ok(());
        }
        if descriptors.len() != count {
            return wrong("as many descriptors as vectors, or none");
        }
        for (place, descriptor) in places.iter_mut().zip(descriptors) {
            *place = Some(descriptor);
        }
        Ok(())
    }
}

/// A descriptor that the thread of all devices may write to: an event counter, which never has it wait.
fn event(descriptor: OwnedFd) -> io::Result<File> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))?;
    if link.as_os_str() != EVENT {
        let what = format!("an interrupt's descriptor must be an eventfd, not {}", link.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    fcntl_setfl(&descriptor, fcntl_getfl(&descriptor)? | OFlags::NONBLOCK)?;
    Ok(descriptor.into())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::io::{dup, read, write};
    use vfio_bindings::bindings::vfio::VFIO_IRQ_SET_ACTION_TRIGGER;

    use super::*;

    #[test]
    fn a_full_counter_holds_nobody_up() {
        let theirs = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let vectors = Vectors(Arc::new(Mutex::new(vec![None])));
        let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
        vectors.set(flags, 0, 1, vec![dup(&theirs).expect("the same")]).expect("taken");
        // What a machine may do at any time: the descriptors share their flags.
        let flags = fcntl_getfl(&theirs).expect("flags");
        fcntl_setfl(&theirs, flags - OFlags::NONBLOCK).expect("writes wait now");
        write(&theirs, &(u64::MAX - 1).to_ne_bytes()).expect("full");
        let (done, when) = mpsc::channel();
        let signalled = vectors.clone();
        let thread = thread::spawn(move || {
            signalled.signal(0);
            let _ = done.send(());
        });
        let outcome = when.recv_timeout(Duration::from_secs(10));
        // Lets go of a thread that waits all the same.
        let mut count = [0; 8];
        read(&theirs, &mut count).expect("what was counted");
        thread.join().expect("it ends");
        assert_eq!((outcome, u64::from_ne_bytes(count)), (Ok(()), u64::MAX - 1));
        vectors.signal(0);
        read(&theirs, &mut count).expect("a signal");
        assert_eq!(u64::from_ne_bytes(count), 1);
    }
}
