//! System calls of a process, of which those on RDMA devices become lines of a trace. What a call is given is read in front of it, what it
//! answers behind it; between the two other threads make calls.

use std::collections::BTreeMap;

use libc::c_long;
use pollux_uverbs::Errno;
use pollux_uverbs::abi::frame::RDMA_VERBS_IOCTL;
use pollux_uverbs::trace::hex;

use super::command::Command;
use super::files::{Channel, Files, Kind, is_uverbs};
use super::frame::Frame;
use super::memory::Memory;
use super::{Said, driver};
use crate::process::{DevicePage, FILES, plain};

/// The architecture whose calls have the numbers of `libc`. Source: Linux `include/uapi/linux/audit.h`.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;
/// Set in the numbers of calls of x32, which have x86-64's architecture. Source: Linux `arch/x86/include/uapi/asm/unistd.h`.
const X32: u64 = 0x4000_0000;
/// Bytes of a completion event and of an asynchronous one. Source: `pollux_uverbs::abi::device`.
const EVENTS: [i64; 2] = [8, 16];
/// Most pages whose place is kept.
const PAGES_MAX: usize = 1 << 12;

/// A call between its two stops.
#[derive(Debug)]
enum Pending {
    Method(Channel, Result<Frame, String>),
    Command(Channel, Result<Command, String>),
    /// Another ioctl of the file.
    Ioctl(Channel, u32),
    /// Events are read to there.
    Events(u64),
    Open(Option<String>),
    Duplicate(Channel, i32),
    Map(Channel, Page),
    Unmap(Page),
    /// Descriptors may be others behind it.
    CloseSome,
}

/// A page of a device.
#[derive(Clone, Debug)]
struct Page {
    address: u64,
    bytes: u64,
    offset: u64,
    rights: &'static str,
    /// Of those that were mapped before, nobody knows it.
    channel: Option<String>,
}

/// The calls of one process.
#[derive(Debug)]
pub(super) struct Calls {
    pid: u32,
    files: Files,
    pages: Vec<Page>,
    pending: BTreeMap<i32, Pending>,
    /// Calls of another architecture were told of.
    is_other: bool,
}

impl Calls {
    /// Of a process that has mapped these pages.
    pub(super) fn of(pid: u32, pages: &[DevicePage], said: &mut Vec<Said>) -> Self {
        let page = |page: &DevicePage| Page {
            address: page.address,
            bytes: page.bytes,
            offset: page.offset,
            rights: "",
            channel: None,
        };
        let files = Files::of(pid);
        for channel in files.channels() {
            said.extend(driver::other(&channel));
        }
        Self {
            pid,
            files,
            pages: pages.iter().take(PAGES_MAX).map(page).collect(),
            pending: BTreeMap::new(),
            is_other: false,
        }
    }

    /// A thread is about to make a call.
    pub(super) fn entry(
        &mut self,
        thread: i32,
        (arch, number): (u32, u64),
        arguments: [u64; 6],
        said: &mut Vec<Said>,
    ) {
        let _left = self.pending.remove(&thread);
        if arch != ARCH || (cfg!(target_arch = "x86_64") && number & X32 != 0) {
            if !std::mem::replace(&mut self.is_other, true) {
                said.push(Said::word(format!(
                    "process {} makes calls of another architecture ({arch:#010x}), which are not understood",
                    self.pid
                )));
            }
            return;
        }
        let Ok(number) = c_long::try_from(number) else { return };
        if let Some(pending) = self.pending(thread, number, arguments, said) {
            let _ = self.pending.insert(thread, pending);
        }
    }

    fn pending(
        &mut self,
        thread: i32,
        number: c_long,
        [first, second, third, fourth, fifth, sixth]: [u64; 6],
        said: &mut Vec<Said>,
    ) -> Option<Pending> {
        // The kernel takes their lower halves.
        let fd = first as i32;
        let memory = || Memory::of(self.pid, thread);
        match number {
            libc::SYS_ioctl => {
                let request = second as u32;
                let channel = self.channel(thread, fd, said)?;
                Some(match request {
                    RDMA_VERBS_IOCTL => {
                        let memory = Memory::of(self.pid, thread);
                        Pending::Method(channel, Frame::read(&memory, third))
                    }
                    _ => Pending::Ioctl(channel, request),
                })
            }
            libc::SYS_write => {
                let channel = self.channel(thread, fd, said)?;
                let memory = Memory::of(self.pid, thread);
                Some(Pending::Command(channel, Command::read(&memory, second, third)))
            }
            libc::SYS_read => {
                (self.files.kind(thread, fd) == Kind::Events).then_some(Pending::Events(second))
            }
            libc::SYS_openat | libc::SYS_openat2 => Some(Pending::Open(named(memory().path(second)))),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open | libc::SYS_creat => Some(Pending::Open(named(memory().path(first)))),
            libc::SYS_dup | libc::SYS_dup3 => self.duplicate(thread, fd, said),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => self.duplicate(thread, fd, said),
            libc::SYS_fcntl if matches!(second as i32, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                self.duplicate(thread, fd, said)
            }
            libc::SYS_close => {
                // The number is another thread's before this one stops again.
                self.closed(fd, said);
                None
            }
            libc::SYS_close_range => Some(Pending::CloseSome),
            libc::SYS_mmap if fourth as i32 & libc::MAP_ANONYMOUS == 0 => {
                let channel = self.channel(thread, fifth as i32, said)?;
                let name = channel.name.clone();
                let page = Page {
                    address: 0,
                    bytes: second,
                    offset: sixth,
                    rights: rights(third as i32),
                    channel: Some(name),
                };
                Some(Pending::Map(channel, page))
            }
            libc::SYS_munmap => {
                let end = first.saturating_add(second);
                let hit =
                    |page: &&Page| page.address < end && first < page.address.saturating_add(page.bytes);
                self.pages
                    .iter()
                    .find(hit)
                    .cloned()
                    .map(|page| Pending::Unmap(Page { address: first, bytes: second, ..page }))
            }
            _ => None,
        }
    }

    /// The channel of a descriptor. Of one that was not known it is said what it is of.
    fn channel(&mut self, thread: i32, fd: i32, said: &mut Vec<Said>) -> Option<Channel> {
        let before = self.files.next();
        let channel = self.files.at(thread, fd)?;
        if self.files.next() != before {
            said.extend(driver::other(&channel));
        }
        Some(channel)
    }

    fn duplicate(&mut self, thread: i32, fd: i32, said: &mut Vec<Said>) -> Option<Pending> {
        self.channel(thread, fd, said).map(|channel| Pending::Duplicate(channel, fd))
    }

    /// A thread is behind its call.
    pub(super) fn exit(&mut self, thread: i32, value: i64, failed: bool, said: &mut Vec<Said>) {
        let Some(pending) = self.pending.remove(&thread) else { return };
        let outcome = outcome(value, failed);
        let memory = Memory::of(self.pid, thread);
        let number = i32::try_from(value).ok().filter(|_| !failed);
        match pending {
            Pending::Method(channel, Ok(frame)) => {
                said.push(line(&frame.line(&memory, &outcome), &channel.name));
            }
            Pending::Command(channel, Ok(command)) => {
                said.push(line(&command.line(&memory, &outcome), &channel.name));
            }
            Pending::Method(channel, Err(what)) | Pending::Command(channel, Err(what)) => {
                said.push(Said::word(format!("{}: {what} -> {outcome}", channel.file)));
            }
            Pending::Ioctl(channel, request) => {
                said.push(Said::word(format!(
                    "{}: ioctl {request:#x}, which is not one of uverbs -> {outcome}",
                    channel.file
                )));
            }
            Pending::Events(address) if !failed && EVENTS.contains(&value) => {
                if let Some(bytes) = memory.read(address, value as usize) {
                    said.push(Said::Line(format!("event bytes={} -> ok", hex(&bytes))));
                }
            }
            Pending::Events(_) => {}
            Pending::Open(named) => match number {
                Some(fd) => {
                    // The descriptor that had the number was closed by a way that nobody saw.
                    if let Some(channel) = self.files.opened(thread, fd) {
                        said.extend(driver::other(&channel));
                        said.push(line(&format!("open {} -> ok", channel.file), &channel.name));
                    }
                }
                None => {
                    let line = named.map(|name| Said::Line(format!("open {name} -> {outcome}")));
                    said.extend(line);
                }
            },
            Pending::Duplicate(channel, from) => {
                if let Some(to) = number.filter(|to| *to != from) {
                    self.closed(to, said);
                    said.push(line(&format!("dup {from} {to} -> ok"), &channel.name));
                    self.files.duplicated(channel, to);
                }
            }
            Pending::Map(channel, page) => {
                let Page { offset, bytes, rights, .. } = page;
                said.push(line(&format!("map {offset:#x} {bytes} {rights} -> {outcome}"), &channel.name));
                if !failed && self.pages.len() < PAGES_MAX {
                    self.pages.push(Page { address: value.cast_unsigned(), ..page });
                }
            }
            Pending::Unmap(page) if !failed => self.unmapped(&page, said),
            Pending::Unmap(_) => {}
            Pending::CloseSome => self.looked(thread, said),
        }
    }

    /// Pages of devices that were in a range are mapped no longer.
    fn unmapped(&mut self, range: &Page, said: &mut Vec<Said>) {
        let end = range.address.saturating_add(range.bytes);
        self.pages.retain(|page| {
            let hit = page.address >= range.address && page.address.saturating_add(page.bytes) <= end;
            if hit {
                let text = format!("unmap {:#x} {} -> ok", page.offset, page.bytes);
                said.push(match &page.channel {
                    Some(channel) => line(&text, channel),
                    None => Said::Line(text),
                });
            }
            !hit
        });
    }

    fn closed(&mut self, fd: i32, said: &mut Vec<Said>) {
        said.extend(self.files.closed(fd).map(|channel| line("close", &channel.name)));
    }

    fn looked(&mut self, thread: i32, said: &mut Vec<Said>) {
        said.extend(self.files.look(thread).iter().map(|channel| line("close", &channel.name)));
    }

    /// A thread has ended.
    pub(super) fn gone(&mut self, thread: i32) {
        let _left = self.pending.remove(&thread);
    }

    /// The process executes another program: one thread is left, which has the process's number, and no page.
    pub(super) fn executed(&mut self, said: &mut Vec<Said>) {
        self.pending.clear();
        self.pages.clear();
        self.is_other = false;
        let command = std::fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
        said.push(Said::word(format!("process {} executes: {}", self.pid, plain(&command))));
        self.looked(self.pid.cast_signed(), said);
    }

    /// The process has ended.
    pub(super) fn ended(&mut self, said: &mut Vec<Said>) {
        said.extend(self.files.channels().iter().map(|channel| line("close", &channel.name)));
    }
}

/// A line of a trace, and its channel.
fn line(text: &str, channel: &str) -> Said {
    Said::Line(format!("{text} @{channel}"))
}

/// How a call ended, as a trace has it.
fn outcome(value: i64, failed: bool) -> String {
    if !failed {
        return "ok".into();
    }
    let errno = i32::try_from(value.unsigned_abs()).map_or(Errno(0), Errno);
    errno.name().map_or_else(|| format!("{errno:?}"), str::to_owned)
}

/// The name of a file of uverbs in a path that is opened.
fn named(path: Option<String>) -> Option<String> {
    let name = path?.strip_prefix(FILES)?.to_owned();
    is_uverbs(&name).then_some(name)
}

/// Rights of a map, as a trace has them.
fn rights(protection: i32) -> &'static str {
    match (protection & libc::PROT_READ != 0, protection & libc::PROT_WRITE != 0) {
        (true, true) => "ReadWrite",
        (true, false) => "Read",
        (false, true) => "Write",
        (false, false) => "None",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_those_of_traces() {
        let said = [(3, false), (-25, true), (-22, true), (-71, true), (i64::MIN, true)]
            .map(|(value, failed)| outcome(value, failed));
        assert_eq!(said, ["ok", "ENOTTY", "EINVAL", "Errno(71)", "Errno(0)"]);
        assert_eq!([0, 1, 2, 3].map(rights), ["None", "Read", "Write", "ReadWrite"]);
        let name = |path: &str| named(Some(path.to_owned()));
        assert_eq!(name("/dev/infiniband/uverbs3").as_deref(), Some("uverbs3"));
        for other in ["/dev/infiniband/uverbs3/x", "/dev/infiniband/uverbs 3", "uverbs3", ""] {
            assert_eq!(name(other), None);
        }
    }
}
