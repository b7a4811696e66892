//! Events: what happened to objects, and which completion queues have something.
//!
//! Both are descriptors of their own. Reading never waits; who wants to wait polls the descriptor, or gives it to
//! `eal::interrupt`.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::device::{AsyncEventDesc, CompEventDesc};
use crate::{Errno, Operation, UverbsError, ioctl};

/// Events read at once.
const BATCH: usize = 16;

/// Something that happened outside any call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// What.
    pub kind: AsyncKind,
    /// To what: the user handle of the object, or the number of the port.
    pub element: u64,
}

/// What happened. Values from the kernel that are not named here stay as they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsyncKind(pub u32);

macro_rules! kinds {
    ($($name:ident = $value:literal $subject:ident),* $(,)?) => {
        impl AsyncKind {
            $(
                #[doc = concat!("`", stringify!($name), "`; its element is a ", stringify!($subject), ".")]
                pub const $name: Self = Self($value);
            )*

            /// Its name, if it is a known one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            /// What its element is. Unknown kinds are taken to be about the device.
            #[must_use]
            pub const fn subject(self) -> Subject {
                match self.0 {
                    $($value => Subject::$subject,)*
                    _ => Subject::Device,
                }
            }
        }
    };
}

// Source: rdma-core `libibverbs/verbs.h`, `enum ibv_event_type`.
kinds! {
    CQ_ERR = 0 Cq,
    QP_FATAL = 1 Qp,
    QP_REQ_ERR = 2 Qp,
    QP_ACCESS_ERR = 3 Qp,
    COMM_EST = 4 Qp,
    SQ_DRAINED = 5 Qp,
    PATH_MIG = 6 Qp,
    PATH_MIG_ERR = 7 Qp,
    DEVICE_FATAL = 8 Device,
    PORT_ACTIVE = 9 Port,
    PORT_ERR = 10 Port,
    LID_CHANGE = 11 Port,
    PKEY_CHANGE = 12 Port,
    SM_CHANGE = 13 Port,
    SRQ_ERR = 14 Srq,
    SRQ_LIMIT_REACHED = 15 Srq,
    QP_LAST_WQE_REACHED = 16 Qp,
    CLIENT_REREGISTER = 17 Port,
    GID_CHANGE = 18 Port,
    WQ_FATAL = 19 Wq,
    DEVICE_SPEED_CHANGE = 20 Port,
}

impl std::fmt::Display for AsyncKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "event {}", self.0),
        }
    }
}

impl std::fmt::Debug for AsyncKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A completion queue.
    Cq,
    /// A queue pair.
    Qp,
    /// A shared receive queue.
    Srq,
    /// A work queue.
    Wq,
    /// A port.
    Port,
    /// The whole device.
    Device,
}

/// The descriptor of asynchronous events of a context.
#[derive(Debug)]
pub struct AsyncEvents(Events<AsyncEventDesc>);

impl AsyncEvents {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, UverbsError> {
        Ok(Self(Events::new(fd, "async event")?))
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// [`UverbsError::Refused`] with `EIO` when the device was removed, [`UverbsError::Short`] for half an event.
    pub fn next(&self) -> Result<Option<AsyncEvent>, UverbsError> {
        let event = self.0.next()?;
        Ok(event.map(|event| AsyncEvent { kind: AsyncKind(event.event_type), element: event.element }))
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

/// A completion channel: completion queues made with it tell here that they have something, once each time they are armed.
#[derive(Debug)]
pub struct CompChannel(Events<CompEventDesc>);

impl CompChannel {
    pub(crate) fn new(fd: OwnedFd) -> Result<Self, UverbsError> {
        Ok(Self(Events::new(fd, "completion event")?))
    }

    /// The user handle of the next completion queue that has something, if there is one. Count them for each queue: the
    /// answer to its destruction tells how many were read, [`DestroyCqResp`](crate::abi::queue::DestroyCqResp).
    ///
    /// # Errors
    /// As [`AsyncEvents::next`].
    pub fn next(&self) -> Result<Option<u64>, UverbsError> {
        Ok(self.0.next()?.map(|event| event.cq_handle))
    }
}

impl AsFd for CompChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

#[derive(Debug)]
struct Events<T> {
    file: File,
    read: Mutex<VecDeque<T>>,
    operation: Operation,
}

impl<T: FromBytes + IntoBytes + Immutable + KnownLayout + Copy + Default> Events<T> {
    fn new(fd: OwnedFd, what: &'static str) -> Result<Self, UverbsError> {
        let operation = Operation::Other(what);
        ioctl::set_nonblocking(fd.as_fd()).map_err(|errno| UverbsError::Refused {
            operation,
            errno,
            words: None,
        })?;
        Ok(Self { file: File::from(fd), read: Mutex::default(), operation })
    }

    fn next(&self) -> Result<Option<T>, UverbsError> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = read.pop_front() {
            return Ok(Some(event));
        }
        let mut room = [T::default(); BATCH];
        let bytes = loop {
            match (&self.file).read(room.as_mut_bytes()) {
                Ok(bytes) => break bytes,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(UverbsError::Refused {
                        operation: self.operation,
                        errno: Errno::from(error),
                        words: None,
                    });
                }
            }
        };
        if bytes == 0 {
            // A model's end is closed. The kernel's file never ends.
            return Err(UverbsError::Refused { operation: self.operation, errno: Errno::EIO, words: None });
        }
        if !bytes.is_multiple_of(size_of::<T>()) {
            return Err(UverbsError::Short {
                operation: self.operation,
                attribute: "the last event".into(),
                bytes: bytes % size_of::<T>(),
                wanted: size_of::<T>(),
            });
        }
        read.extend(&room[..bytes / size_of::<T>()]);
        Ok(read.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn channel() -> (UnixStream, AsyncEvents) {
        let (model, ours) = UnixStream::pair().expect("sockets");
        (model, AsyncEvents::new(ours.into()).expect("events"))
    }

    fn desc(event_type: u32, element: u64) -> AsyncEventDesc {
        AsyncEventDesc { element, event_type, reserved: 0 }
    }

    #[test]
    fn events_come_in_order_and_never_wait() {
        let (mut model, events) = channel();
        assert_eq!(events.next().expect("nothing"), None);
        for count in 0..40u32 {
            model.write_all(desc(count, u64::from(count) << 32).as_bytes()).expect("room");
        }
        for count in 0..40 {
            let event = events.next().expect("event").expect("one more");
            assert_eq!(event, AsyncEvent { kind: AsyncKind(count), element: u64::from(count) << 32 });
        }
        assert_eq!(events.next().expect("nothing"), None);
    }

    #[test]
    fn half_an_event_is_an_error() {
        let (mut model, events) = channel();
        model.write_all(&desc(8, 0).as_bytes()[..12]).expect("room");
        let error = events.next().expect_err("short");
        assert_eq!(
            error.to_string(),
            "async event: the last event has 12 bytes, at least 16 are needed; update the kernel, or its driver of the device"
        );
    }

    #[test]
    fn the_end_is_a_removed_device() {
        let (model, events) = channel();
        drop(model);
        assert_eq!(events.next().expect_err("end").errno(), Some(Errno::EIO));
    }

    #[test]
    fn kinds_say_what_they_are_about() {
        assert_eq!(AsyncKind::PORT_ERR.subject(), Subject::Port);
        assert_eq!(AsyncKind::WQ_FATAL.subject(), Subject::Wq);
        assert_eq!(AsyncKind(99).subject(), Subject::Device);
        assert_eq!(
            (AsyncKind(99).to_string(), AsyncKind::CQ_ERR.to_string()),
            ("event 99".into(), "CQ_ERR".into())
        );
    }
}
