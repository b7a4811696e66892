//! What is asked for, and the answer to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libc::c_int;
use pollux_mlx5_model::for_process;
use pollux_uverbs::{Errno, Page};

use super::super::client::Client;
use super::super::descriptor::Kept;
use super::super::letter::{self, DESCRIPTORS, NUMBERS, ask};
use super::super::netdev::{live, message, news, request};
use super::super::pages::protection;
use super::super::{asked, frame, opened, planned};

/// Most bytes of a name or a request that are read.
const BYTES_MAX: u64 = 4096;

/// What goes back: the error's number, numbers that depend on what was asked, descriptors.
#[derive(Default)]
pub(super) struct Answer {
    numbers: [u64; NUMBERS],
    descriptors: Vec<OwnedFd>,
    other_end: Option<Arc<Kept>>,
    page: Option<Page>,
}

/// Bytes of the client's.
fn bytes(client: Client, at: u64, bytes: u64) -> Result<Vec<u8>, Errno> {
    let bytes = usize::try_from(bytes.min(BYTES_MAX)).map_err(|_| Errno::EINVAL)?;
    let mut found = vec![0; bytes];
    client.read(at, &mut found).map(|()| found)
}

/// A number that the client counts devices by.
fn device(number: u64) -> Result<usize, Errno> {
    usize::try_from(number).map_err(|_| Errno::ENODEV)
}

impl Answer {
    /// Carries out what a process asks for.
    pub(super) fn carry_out(&mut self, asked: [u64; NUMBERS], process: i32) -> Result<(), Errno> {
        let client = Client::of(process);
        let [kind, a, b, c, d, e] = asked;
        match kind {
            ask::OPEN => {
                let plan = planned::plan().ok_or(Errno::ENODEV)?;
                let made = opened::make(plan, device(a)?)?;
                self.numbers[1] = made.inode;
                self.descriptors.push(made.file);
                self.other_end = Some(made.other_end);
                Ok(())
            }
            ask::IOCTL => self.ioctl(a, b, process),
            ask::MAP => self.map(a, b, c, d),
            ask::PLAN => {
                let text = planned::plan().ok_or(Errno::ENODEV)?.text();
                self.put(client, text.as_bytes(), a, b)
            }
            ask::NETDEV => request::carry_out(client, device(a)?, b, c),
            ask::NETLINK => {
                let request = bytes(client, a, b)?;
                let port = u32::try_from(c).map_err(|_| Errno::EINVAL)?;
                let plan = planned::plan().ok_or(Errno::ENODEV)?;
                let answers = message::answer(plan, &request, port).ok_or(Errno::EOPNOTSUPP)?;
                self.put(client, &message::together(answers), d, e)
            }
            ask::SYSFS => {
                let name = String::from_utf8(bytes(client, b, c)?).map_err(|_| Errno::ENOENT)?;
                let content = live::content(device(a)?, &name).ok_or(Errno::ENOENT)?;
                self.put(client, content.as_bytes(), d, e)
            }
            ask::INTERFACE => {
                self.numbers[1..5].copy_from_slice(&news::told(device(a)?)?);
                Ok(())
            }
            ask::STEP => self.number(asked::step()),
            ask::BUS => {
                self.numbers[1..3].copy_from_slice(&asked::bus(device(a)?)?);
                Ok(())
            }
            ask::PLUG => self.number(asked::plug(client, a, b)),
            ask::SEND => self.number(asked::send(client, a, b, c)),
            ask::RECEIVE => self.number(asked::receive(client, a, b, c)),
            _ => Err(Errno::EINVAL),
        }
    }

    fn number(&mut self, told: Result<u64, Errno>) -> Result<(), Errno> {
        told.map(|number| self.numbers[1] = number)
    }

    /// Writes an answer where the client has room for it.
    fn put(&mut self, client: Client, told: &[u8], at: u64, room: u64) -> Result<(), Errno> {
        if told.len() as u64 > room {
            return Err(Errno(libc::EMSGSIZE));
        }
        client.write(at, told)?;
        self.numbers[1] = told.len() as u64;
        Ok(())
    }

    fn ioctl(&mut self, file: u64, address: u64, process: i32) -> Result<(), Errno> {
        let channel = opened::by_inode(file).ok_or(Errno::EIO)?;
        let mut made = Vec::new();
        // SAFETY: what the frame says is the client's word, of its own memory.
        let call = || unsafe { frame::carry_out(&*channel, Client::of(process), address, &mut made) };
        let done = for_process(process, call);
        for ((place, fd), number) in made.into_iter().zip(&mut self.numbers[2..2 + DESCRIPTORS]) {
            *number = place;
            self.descriptors.push(fd);
        }
        done
    }

    fn map(&mut self, file: u64, offset: u64, bytes: u64, rights: u64) -> Result<(), Errno> {
        let channel = opened::by_inode(file).ok_or(Errno::EIO)?;
        let rights = c_int::try_from(rights).map_err(|_| Errno::EINVAL)?;
        let bytes = usize::try_from(bytes).map_err(|_| Errno::EINVAL)?;
        let page = channel.map(offset, bytes, protection(rights))?;
        // SAFETY: only where it begins is looked at here.
        let (_, offset) = unsafe { page.file() }.ok_or(Errno::EIO)?;
        self.numbers[1] = offset;
        self.page = Some(page);
        Ok(())
    }

    /// Sends it.
    pub(super) fn send(mut self, socket: &Kept, done: Result<(), Errno>) -> Result<(), Errno> {
        if let Err(errno) = done {
            self.numbers[0] = errno.0.cast_unsigned().into();
        }
        let mut descriptors: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(AsFd::as_fd).collect();
        descriptors.extend(self.other_end.iter().map(|end| end.as_fd()));
        // SAFETY: the client maps what it asked for, and nothing else.
        let page = self.page.as_ref().and_then(|page| unsafe { page.file() });
        descriptors.extend(page.map(|(file, _)| file));
        letter::answer(socket, self.numbers, &descriptors)
    }
}
