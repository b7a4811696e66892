//! The devices of this process, for the children that it forks: their calls on files that they have from here are carried out here, with
//! their memory and descriptors, as a kernel carries out every process's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::c_int;
use pollux_mlx5_model::for_process;
use pollux_uverbs::{Errno, Page};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;

use super::client::Client;
use super::descriptor::Kept;
use super::letter::{self, DESCRIPTORS, Letter, NUMBERS, ask};
use super::pages::protection;
use super::{frame, opened, thread};

/// A process whose calls come by a socket of its own.
struct Caller {
    socket: Kept,
    process: i32,
}

/// Begins to answer what is asked of this process, in a thread that gets none of the program's signals.
pub(super) fn start(asked: Kept) {
    thread::start("mlx5-run", move || answer_all(&asked));
}

fn answer_all(asked: &Kept) {
    let mut callers: Vec<Caller> = Vec::new();
    loop {
        let files = opened::other_ends();
        let sockets = std::iter::once(asked).chain(callers.iter().map(|caller| &caller.socket));
        let mut waits: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        waits.extend(files.iter().map(|file| PollFd::new(file, PollFlags::empty())));
        if poll(&mut waits, None).is_err() {
            continue;
        }
        let has_news: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
        drop(waits);
        let (sockets, files) = has_news.split_at(1 + callers.len());
        let mut index = 0;
        callers.retain(|caller| {
            index += 1;
            if !sockets[index] || serve(caller) {
                return true;
            }
            opened::forget_process(caller.process);
            false
        });
        if sockets[0] {
            let Some(letter) = letter::receive(asked) else { return };
            callers.extend(caller(letter));
        }
        if files.contains(&true) {
            opened::end_closed();
        }
    }
}

/// Who asks to be answered by a socket: whoever made that.
fn caller(letter: Letter) -> Option<Caller> {
    let socket = letter.descriptors.into_iter().next().filter(|_| letter.numbers[0] == ask::CONNECT)?;
    let process = socket_peercred(&socket).ok()?.pid.as_raw_pid();
    Some(Caller { socket: Kept::new(socket).ok()?, process })
}

/// Answers one call; whether there may be more.
fn serve(caller: &Caller) -> bool {
    let Some(letter) = letter::receive(&caller.socket) else { return false };
    let mut answer = Answer::default();
    let done = catch_unwind(AssertUnwindSafe(|| carry_out(&letter.numbers, caller.process, &mut answer)));
    if let Err(errno) = done.unwrap_or(Err(Errno::EIO)) {
        answer.numbers[0] = errno.0.cast_unsigned().into();
    }
    let mut descriptors: Vec<BorrowedFd<'_>> = answer.descriptors.iter().map(AsFd::as_fd).collect();
    // SAFETY: the child maps what it asked for, and nothing else.
    let page = answer.page.as_ref().and_then(|page| unsafe { page.file() });
    descriptors.extend(page.map(|(file, _)| file));
    letter::send(&caller.socket, answer.numbers, &descriptors).is_ok()
}

/// What goes back: the error's number, one that depends on what was asked, where the numbers of descriptors go.
#[derive(Default)]
struct Answer {
    numbers: [u64; NUMBERS],
    descriptors: Vec<OwnedFd>,
    page: Option<Page>,
}

fn carry_out(asked: &[u64; NUMBERS], process: i32, answer: &mut Answer) -> Result<(), Errno> {
    let [kind, file, a, b, c, _] = *asked;
    match kind {
        ask::OPEN => {
            let plan = opened::plan().ok_or(Errno::ENODEV)?;
            let (fd, inode) = opened::make(plan, usize::try_from(file).map_err(|_| Errno::ENODEV)?)?;
            answer.numbers[1] = inode;
            answer.descriptors.push(fd);
            Ok(())
        }
        ask::IOCTL => {
            let channel = opened::by_inode(file).ok_or(Errno::EIO)?;
            let mut made = Vec::new();
            // SAFETY: what the frame says is the child's word, of its own memory.
            let call = || unsafe { frame::carry_out(&*channel, Client::of(process), a, &mut made) };
            let done = for_process(process, call);
            for ((place, fd), number) in made.into_iter().zip(&mut answer.numbers[2..2 + DESCRIPTORS]) {
                *number = place;
                answer.descriptors.push(fd);
            }
            done
        }
        ask::MAP => {
            let channel = opened::by_inode(file).ok_or(Errno::EIO)?;
            let rights = c_int::try_from(c).map_err(|_| Errno::EINVAL)?;
            let bytes = usize::try_from(b).map_err(|_| Errno::EINVAL)?;
            let page = channel.map(a, bytes, protection(rights))?;
            // SAFETY: only where it begins is looked at here.
            let (_, offset) = unsafe { page.file() }.ok_or(Errno::EIO)?;
            answer.numbers[1] = offset;
            answer.page = Some(page);
            Ok(())
        }
        _ => Err(Errno::EINVAL),
    }
}
