//! A descriptor that tells events: one end of a pair of sockets, so that poll, epoll, read and dup(2) work as on the
//! kernel's file.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_uverbs::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

/// How many events of an object were read; what its destruction answers.
pub(crate) type Count = Arc<AtomicU32>;

/// Most events that wait in a descriptor that nobody reads: then the oldest wait is over, and new ones are dropped.
const WAITING_MAX: usize = 1 << 16;

/// Longest record: the head of an answered DevX command and the answer, whose length has 16 bits.
const RECORD_MAX: usize = 8 + u16::MAX as usize;

/// What kind of events it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// Completions: `ib_uverbs_comp_event_desc`.
    Completion,
    /// What happens to objects: `ib_uverbs_async_event_desc`.
    Asynchronous,
    /// Answers to DevX queries.
    DevxCommand,
    /// Device events for DevX.
    DevxEvent {
        /// Only the head, and once until it is read.
        omit_data: bool,
    },
}

/// The kernel's end of the pair, and a handle of the user's end, by which it knows what was read.
#[derive(Debug)]
pub(crate) struct EventFile {
    pub(crate) kind: FileKind,
    identity: (u64, u64),
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ours: OwnedFd,
    theirs: OwnedFd,
    /// Whose the events are that were told and may not have been read yet, oldest first.
    told: VecDeque<Told>,
    /// Those of them, the newest, for which the socket had no room.
    waiting: VecDeque<Vec<u8>>,
}

/// An event that was told: whose it is, and the bytes it takes of what a user may leave unread.
#[derive(Debug)]
struct Told {
    count: Option<Count>,
    bytes: usize,
}

impl EventFile {
    /// A new pair; the second is the user's end.
    pub(crate) fn new(kind: FileKind) -> Result<(Arc<Self>, OwnedFd), Errno> {
        let errno = |error: rustix::io::Errno| Errno(error.raw_os_error());
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(errno)?;
        let user = theirs.try_clone().map_err(Errno::from)?;
        let identity = identity(theirs.as_fd())?;
        let state = Mutex::new(State { ours, theirs, told: VecDeque::new(), waiting: VecDeque::new() });
        Ok((Arc::new(Self { kind, identity, state }), user))
    }

    /// Whether a descriptor is a handle of the user's end.
    pub(crate) fn is(&self, fd: BorrowedFd<'_>) -> bool {
        identity(fd).is_ok_and(|other| other == self.identity)
    }

    /// Whether descriptor number `fd` of the process with that folder of `/proc` is a handle of the user's end.
    pub(crate) fn is_number(&self, process: &str, fd: i32) -> bool {
        fs::metadata(format!("{process}/fd/{fd}"))
            .is_ok_and(|file| (file.st_dev(), file.st_ino()) == self.identity)
    }

    /// Tells an event; `count` counts it when it has been read. Never waits.
    pub(crate) fn tell(&self, record: &[u8], count: Option<&Count>) {
        let mut state = self.state();
        state.settle();
        if state.waiting.len() >= WAITING_MAX {
            return;
        }
        state.told.push_back(Told { count: count.cloned(), bytes: record.len() });
        state.waiting.push_back(record.to_vec());
        state.flush();
    }

    /// Whether an event with this count has not been read yet.
    pub(crate) fn has_unread(&self, count: &Count) -> bool {
        let mut state = self.state();
        state.settle();
        state.told.iter().any(|told| told.is(count))
    }

    /// How many bytes of records wait to be read.
    pub(crate) fn unread_bytes(&self) -> usize {
        let mut state = self.state();
        state.settle();
        state.told.iter().map(|told| told.bytes).sum()
    }

    /// Counts what was read and takes back what was not, of the object with that count.
    pub(crate) fn forget(&self, count: &Count) {
        let mut state = self.state();
        state.settle();
        if !state.told.iter().any(|told| told.is(count)) {
            return;
        }
        // Everything that is unread comes out, and what belongs to others goes back in, in order.
        let mut unread: VecDeque<Vec<u8>> = VecDeque::new();
        let mut record = vec![0; RECORD_MAX];
        while let Ok((_, bytes)) = recv(&state.theirs, record.as_mut_slice(), RecvFlags::DONTWAIT) {
            if bytes == 0 {
                break;
            }
            unread.push_back(record[..bytes].to_vec());
        }
        let waiting = std::mem::take(&mut state.waiting);
        unread.extend(waiting);
        while state.told.len() > unread.len() {
            state.count_oldest();
        }
        let told = std::mem::take(&mut state.told);
        for (told, record) in told.into_iter().zip(unread) {
            if !told.is(count) {
                state.told.push_back(told);
                state.waiting.push_back(record);
            }
        }
        state.flush();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Lists of records are whole at any time.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    fn is(&self, count: &Count) -> bool {
        self.count.as_ref().is_some_and(|own| Arc::ptr_eq(own, count))
    }
}

impl State {
    /// Counts what the user has read since last time, and fills the room that this made.
    fn settle(&mut self) {
        // The socket tells bytes; records differ in length, but they are read in order.
        let unread = rustix::io::ioctl_fionread(&self.theirs).unwrap_or(0);
        let waiting: usize = self.waiting.iter().map(Vec::len).sum();
        let unread = usize::try_from(unread).unwrap_or(usize::MAX).saturating_add(waiting);
        let mut told: usize = self.told.iter().map(|told| told.bytes).sum();
        while told > unread {
            match self.told.front() {
                Some(oldest) => told -= oldest.bytes,
                None => break,
            }
            self.count_oldest();
        }
        self.flush();
    }

    fn count_oldest(&mut self) {
        if let Some(Told { count: Some(count), .. }) = self.told.pop_front() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&mut self) {
        while let Some(record) = self.waiting.front() {
            match send(&self.ours, record, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(_) => {
                    self.waiting.pop_front();
                }
                // Full: the next event, or the next call, tries again.
                Err(_) => return,
            }
        }
    }
}

/// What all handles of a socket have in common.
fn identity(fd: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    let file = fs::File::from(fd.try_clone_to_owned()?).metadata()?;
    Ok((file.st_dev(), file.st_ino()))
}
