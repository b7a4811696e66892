//! The devices of this process, for others: the children that it forks, or whoever reaches a daemon's socket. Their calls are carried out
//! here, with their memory and descriptors, as a kernel carries out every process's.

mod answer;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pollux_uverbs::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, accept_with};

use super::client::{self, Client};
use super::descriptor::Kept;
use super::letter::{self, Letter, ask};
use super::{asked, opened, thread};
use answer::Answer;

/// Most processes at a time.
const CALLERS_MAX: usize = 512;
/// How long a new one waits where there is no room for it.
const FULL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A process whose calls come by a socket of its own.
struct Caller {
    socket: Kept,
    process: i32,
    user: libc::uid_t,
    /// It has said who it is.
    is_known: bool,
}

/// Where callers come from.
enum Door {
    /// A socket that forked children have from this process.
    Children(Kept),
    /// One that has a path.
    Listener(OwnedFd),
}

/// What there is at the door.
enum Came {
    Caller(Caller),
    Nobody,
    /// Somebody whom there is no room for.
    Later,
    /// Nobody will come any more.
    Over,
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Children(asked) => asked.as_fd(),
            Self::Listener(listener) => listener.as_fd(),
        }
    }
}

/// Begins to answer children, in a thread that gets none of the program's signals.
pub(super) fn start(asked: Kept) {
    // Without a thread the socket ends here, and children are told so by its end.
    let _refused = thread::start("mlx5-run", move || answer_all(&Door::Children(asked)));
}

/// Answers whoever connects, until the listener is shut down.
pub(super) fn listen(listener: OwnedFd) {
    answer_all(&Door::Listener(listener));
}

fn answer_all(door: &Door) {
    let mut callers: Vec<Caller> = Vec::new();
    let mut full = false;
    loop {
        let files = opened::other_ends();
        let at_door = if full { PollFlags::empty() } else { PollFlags::IN };
        let mut waits = vec![PollFd::new(door, at_door)];
        waits.extend(callers.iter().map(|caller| PollFd::new(&caller.socket, PollFlags::IN)));
        waits.extend(files.iter().map(|file| PollFd::new(&**file, PollFlags::empty())));
        if poll(&mut waits, full.then_some(&FULL)).is_err() {
            continue;
        }
        let is_shut = waits[0].revents().contains(PollFlags::HUP);
        let has_news: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        drop(waits);
        let (sockets, files) = has_news.split_at(1 + callers.len());
        let mut index = 0;
        // Before new ones: a process that has become another program comes again.
        callers.retain_mut(|caller| {
            index += 1;
            if !sockets[index] || serve(caller) {
                return true;
            }
            opened::forget_process(caller.process);
            asked::forget_process(Client::of(caller.process));
            false
        });
        let came = match sockets[0] || full {
            true if is_shut => Came::Over,
            true => door.next(),
            false => Came::Nobody,
        };
        full = matches!(came, Came::Later);
        match came {
            Came::Caller(caller) => admit(&mut callers, caller),
            Came::Nobody | Came::Later => {}
            Came::Over => return,
        }
        if files.contains(&true) {
            let _panicked = catch_unwind(opened::end_closed);
        }
    }
}

/// Takes a caller, if need be in the place of one that has said nothing.
fn admit(callers: &mut Vec<Caller>, caller: Caller) {
    if callers.len() >= CALLERS_MAX {
        let Some(silent) = callers.iter().position(|other| !other.is_known) else { return };
        callers.remove(silent);
    }
    callers.push(caller);
}

impl Door {
    fn next(&self) -> Came {
        let socket = match self {
            Self::Children(asked) => {
                let Some(Letter { numbers, descriptors }) = letter::receive(asked) else { return Came::Over };
                descriptors.into_iter().next().filter(|_| numbers[0] == ask::CONNECT)
            }
            Self::Listener(listener) => match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(socket) => Some(socket),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {
                    None
                }
                Err(_) => return Came::Later,
            },
        };
        socket.and_then(Caller::of).map_or(Came::Nobody, Came::Caller)
    }
}

impl Caller {
    /// Who asks to be answered by a socket: whoever made that.
    fn of(socket: OwnedFd) -> Option<Self> {
        let (process, user) = client::peer(&socket)?;
        Some(Self { socket: Kept::new(socket).ok()?, process, user, is_known: false })
    }

    /// Whether this process can carry out the caller's calls, which says what stands in its memory.
    fn greeting(&self, [_, version, place, mark, ..]: [u64; letter::NUMBERS]) -> Result<(), Errno> {
        if version != letter::VERSION {
            return Err(Errno(libc::EPROTO));
        }
        if self.user != rustix::process::geteuid().as_raw() {
            return Err(Errno(libc::EACCES));
        }
        let mut found = [0; 8];
        let read = Client::of(self.process).read(place, &mut found);
        if read.is_ok() && found == mark.to_ne_bytes() { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// Answers one call; whether there may be more.
fn serve(caller: &mut Caller) -> bool {
    let Some(letter) = letter::receive(&caller.socket) else { return false };
    let mut answer = Answer::default();
    let done = if letter.numbers[0] == ask::GREET {
        let greeting = caller.greeting(letter.numbers);
        caller.is_known = greeting.is_ok();
        greeting
    } else if caller.is_known {
        let carry_out = || answer.carry_out(letter.numbers, caller.process);
        catch_unwind(AssertUnwindSafe(carry_out)).unwrap_or(Err(Errno::EIO))
    } else {
        return false;
    };
    let told = answer.send(&caller.socket, done);
    told.is_ok() && caller.is_known
}
