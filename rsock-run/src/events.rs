//! Which descriptors have news: epoll, told of changes alone.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

/// Most news that are taken at once.
const BURST: usize = 64;

/// A descriptor's number here.
pub(crate) type Token = u64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Events {
    epoll: OwnedFd,
    next: Token,
}

impl Events {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, next: 0 })
    }

    /// From now on there are news of it, until it is closed.
    pub(crate) fn add(&mut self, fd: impl AsFd) -> io::Result<Token> {
        self.next += 1;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, fd, EventData::new_u64(self.next), flags)?;
        Ok(self.next)
    }

    /// Waits so long for news, and hands out the numbers of those who have some.
    pub(crate) fn wait(&self, time: Duration, mut each: impl FnMut(Token)) {
        let time = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        let mut room = [const { MaybeUninit::<Event>::uninit() }; BURST];
        // Interrupted, it is as if there were none.
        if let Ok((heard, _)) = epoll::wait(&self.epoll, &mut room[..], Some(&time)) {
            heard.iter().for_each(|event| each(event.data.u64()));
        }
    }
}
