//! Descriptors of a process that are of RDMA devices, and the channels that they are: two that were opened are two channels, one that
//! was duplicated is the same.

use std::collections::BTreeMap;
use std::fs;

use crate::process::{EVENTS, FILES};

/// An opened file of uverbs, as lines of a trace name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Channel {
    /// The process, and a number there.
    pub(super) name: String,
    /// The file's name: `uverbs0`.
    pub(super) file: String,
}

/// What a descriptor is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Uverbs(String),
    Events,
    Other,
}

#[derive(Debug)]
pub(super) struct Files {
    pid: u32,
    known: BTreeMap<i32, Channel>,
    next: u64,
}

impl Files {
    /// Those that the process has now.
    pub(super) fn of(pid: u32) -> Self {
        let mut files = Self { pid, known: BTreeMap::new(), next: 0 };
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let thread = pid.cast_signed();
        let mut numbers: Vec<i32> =
            open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        for fd in numbers {
            let _known = files.at(thread, fd);
        }
        files
    }

    /// What a thread's descriptor is. Threads may have tables of their own.
    pub(super) fn kind(&self, thread: i32, fd: i32) -> Kind {
        let link = fs::read_link(format!("/proc/{}/task/{thread}/fd/{fd}", self.pid)).unwrap_or_default();
        kind(&link.to_string_lossy())
    }

    /// The channel of a descriptor. One that nobody saw being opened came from another process, or was there before.
    pub(super) fn at(&mut self, thread: i32, fd: i32) -> Option<Channel> {
        match self.kind(thread, fd) {
            Kind::Uverbs(file) => match self.known.get(&fd) {
                Some(known) if known.file == file => Some(known.clone()),
                _ => Some(self.insert(fd, file)),
            },
            _ => None,
        }
    }

    /// The channel of a descriptor that was opened just now, if it is one of uverbs.
    pub(super) fn opened(&mut self, thread: i32, fd: i32) -> Option<Channel> {
        match self.kind(thread, fd) {
            Kind::Uverbs(file) => Some(self.insert(fd, file)),
            _ => None,
        }
    }

    /// The number that the next channel gets.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    fn insert(&mut self, fd: i32, file: String) -> Channel {
        let channel = Channel { name: format!("{}.{}", self.pid, self.next), file };
        self.next += 1;
        let _ = self.known.insert(fd, channel.clone());
        channel
    }

    /// A descriptor is another one, too.
    pub(super) fn duplicated(&mut self, channel: Channel, fd: i32) {
        let _ = self.known.insert(fd, channel);
    }

    /// A descriptor is closed. Its channel, if that was the last one of it.
    pub(super) fn closed(&mut self, fd: i32) -> Option<Channel> {
        let channel = self.known.remove(&fd)?;
        (!self.known.values().any(|other| *other == channel)).then_some(channel)
    }

    /// Looks at all of them again. The channels that are gone.
    pub(super) fn look(&mut self, thread: i32) -> Vec<Channel> {
        let is_gone = |(fd, channel): (&i32, &Channel)| {
            let same = self.kind(thread, *fd) == Kind::Uverbs(channel.file.clone());
            (!same).then_some(*fd)
        };
        let gone: Vec<i32> = self.known.iter().filter_map(is_gone).collect();
        gone.into_iter().filter_map(|fd| self.closed(fd)).collect()
    }

    /// All channels, each once.
    pub(super) fn channels(&self) -> Vec<Channel> {
        let mut all = Vec::new();
        for channel in self.known.values() {
            if !all.contains(channel) {
                all.push(channel.clone());
            }
        }
        all
    }
}

/// What a descriptor is whose link in `/proc` this is. Behind the name of a device that was removed stands ` (deleted)`.
fn kind(link: &str) -> Kind {
    if link == EVENTS {
        return Kind::Events;
    }
    let name = link.strip_prefix(FILES).and_then(|name| name.split(' ').next());
    match name.filter(|name| is_uverbs(name)) {
        Some(name) => Kind::Uverbs(name.to_owned()),
        None => Kind::Other,
    }
}

/// Whether a file of that folder is one of uverbs.
pub(super) fn is_uverbs(name: &str) -> bool {
    name.strip_prefix("uverbs").is_some_and(|number| {
        !number.is_empty() && number.len() < 10 && number.bytes().all(|one| one.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_tell_what_descriptors_are() {
        for (link, wanted) in [
            ("/dev/infiniband/uverbs0", Kind::Uverbs("uverbs0".into())),
            ("/dev/infiniband/uverbs12 (deleted)", Kind::Uverbs("uverbs12".into())),
            ("/dev/infiniband/rdma_cm", Kind::Other),
            ("/dev/infiniband/uverbs", Kind::Other),
            ("/dev/infiniband/uverbs0 @9", Kind::Uverbs("uverbs0".into())),
            ("/dev/infiniband/uverbs0\n", Kind::Other),
            ("anon_inode:[infinibandevent]", Kind::Events),
            ("/tmp/dev/infiniband/uverbs0", Kind::Other),
        ] {
            assert_eq!(kind(link), wanted, "{link}");
        }
    }

    #[test]
    fn a_channel_is_gone_with_its_last_descriptor() {
        let mut files = Files { pid: 7, known: BTreeMap::new(), next: 0 };
        let first = files.insert(3, "uverbs0".into());
        let second = files.insert(4, "uverbs0".into());
        assert_eq!((first.name.as_str(), second.name.as_str()), ("7.0", "7.1"));
        files.duplicated(first.clone(), 9);
        assert_eq!(files.closed(3), None);
        assert_eq!((files.closed(9), files.closed(9)), (Some(first), None));
        assert_eq!(files.channels(), [second]);
    }
}
