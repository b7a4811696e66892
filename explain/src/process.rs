//! A process that runs: what of its devices is to be seen from outside.
//!
//! ```text
//!   /proc/PID/fd, maps, net/unix ──► files of devices, pages that it mapped, memory, its telemetry socket: Process
//!   that socket ── /rdma/*, /ethdev/*, /model/ledger ──► queues and their states: Told
//!                └─ /uverbs/trace ──► a file that grows while it is watched: Live
//!   ptrace(2) of any other process ──► its calls on devices, as lines of a trace: Tracer
//! ```

mod live;
mod told;
mod tracer;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use live::Live;
pub use told::Told;
pub use tracer::Tracer;

use crate::text::mapped;

/// A process whose calls are told as it makes them.
pub trait Watch {
    /// What came since, explained; `None` where nothing did.
    ///
    /// # Errors
    /// It cannot be read.
    fn more(&mut self) -> io::Result<Option<String>>;

    /// Whether no more will come.
    fn is_over(&self) -> bool;

    /// What it was in all.
    fn summary(&self) -> String;

    /// Ends it. What came by then is still to be had, by [`more`](Self::more) until that is `None`.
    fn end(&mut self);
}

/// Where device files of verbs are. Source: Linux `drivers/infiniband/core/device.c`, `ib_devnode`s.
const FILES: &str = "/dev/infiniband/";
/// What the kernel calls the files of events. Source: Linux `drivers/infiniband/core/uverbs_std_types_async_fd.c`.
const EVENTS: &str = "anon_inode:[infinibandevent]";
/// The beginning of the telemetry socket's name.
const TELEMETRY: &str = "dpdk_telemetry.v2";
/// Most lines that are read of a file, and entries of a folder.
const LINES_MAX: usize = 1 << 16;
/// Names under which memory of huge pages is mapped. Source: Linux `fs/hugetlbfs/inode.c`, `hugetlb_file_setup`.
const HUGE: [&str; 3] = ["hugepages", "huge", "anon_hugepage"];

/// A page of a device that a process mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DevicePage {
    address: u64,
    bytes: u64,
    rights: String,
    offset: u64,
    file: String,
}

/// What `/proc` tells of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    command: String,
    /// Descriptors of RDMA devices, and what they are of.
    files: Vec<(u32, String)>,
    pages: Vec<DevicePage>,
    /// Memory of huge pages and memory files, by name: bytes, maps.
    memory: BTreeMap<String, (u64, usize)>,
    telemetry: Option<PathBuf>,
}

impl Process {
    /// Reads what is told of it below `root`, which is `/`.
    ///
    /// # Errors
    /// There is none of that number, or it is another user's; [`refusal`] says why.
    pub fn read(root: &Path, pid: u32) -> io::Result<Self> {
        let folder = root.join(format!("proc/{pid}"));
        let command = fs::read(folder.join("cmdline"))?;
        let command = String::from_utf8_lossy(&command).trim_end_matches('\0').replace('\0', " ");
        let mut process = Self { pid, command: plain(&command), ..Self::default() };
        let mut inodes = Vec::new();
        for entry in fs::read_dir(folder.join("fd"))?.take(LINES_MAX).flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let Ok(to) = fs::read_link(entry.path()) else { continue };
            let to = to.to_string_lossy();
            if let Some(name) = to.strip_prefix(FILES) {
                let device =
                    fs::read_to_string(root.join(format!("sys/class/infiniband_verbs/{name}/ibdev")));
                let device =
                    device.map_or_else(|_| String::new(), |device| format!(" ({})", plain(device.trim())));
                process.files.push((number, format!("{}{device}", plain(&to))));
            } else if to == EVENTS {
                process.files.push((number, "events of an RDMA device".into()));
            } else if let Some(inode) = to.strip_prefix("socket:[").and_then(|to| to.strip_suffix(']')) {
                inodes.push(inode.to_owned());
            }
        }
        process.files.sort();
        // Names in both are any bytes, and in the latter those of other users too.
        let maps = fs::read(folder.join("maps"))?;
        for line in String::from_utf8_lossy(&maps).lines().take(LINES_MAX) {
            process.map(line);
        }
        let sockets = fs::read(folder.join("net/unix")).unwrap_or_default();
        process.telemetry = String::from_utf8_lossy(&sockets)
            .lines()
            .take(LINES_MAX)
            .find_map(|line| telemetry(line, &inodes));
        Ok(process)
    }

    /// A line of `maps`. Source: Linux `Documentation/filesystems/proc.rst`.
    fn map(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(rights), Some(offset)) = (words.next(), words.next(), words.next()) else {
            return;
        };
        let number = |word: &str| u64::from_str_radix(word, 16).ok();
        let Some((from, to)) = range.split_once('-').and_then(|(from, to)| number(from).zip(number(to)))
        else {
            return;
        };
        let path = words.skip(2).collect::<Vec<_>>().join(" ");
        let bytes = to.saturating_sub(from);
        if let Some(file) = path.strip_prefix(FILES) {
            self.pages.push(DevicePage {
                address: from,
                bytes,
                rights: plain(rights),
                offset: number(offset).unwrap_or(0),
                file: plain(file),
            });
        } else if path.starts_with("/memfd:") || HUGE.iter().any(|name| path.contains(name)) {
            let name = path.strip_suffix(" (deleted)").unwrap_or(&path);
            let (all, maps) = self.memory.entry(plain(name)).or_default();
            (*all, *maps) = (all.saturating_add(bytes), *maps + 1);
        }
    }

    /// The socket on which it answers questions, if it is a program of Pollux, or of DPDK.
    #[must_use]
    pub fn telemetry(&self) -> Option<&Path> {
        self.telemetry.as_deref()
    }

    /// Whether it has an RDMA device of the kernel open.
    #[must_use]
    pub fn has_device(&self) -> bool {
        !self.files.is_empty() || !self.pages.is_empty()
    }

    /// It, in words.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("process {}: {}\n", self.pid, self.command);
        let _ = writeln!(out, "files of RDMA devices:{}", if self.files.is_empty() { " none" } else { "" });
        for (number, what) in &self.files {
            let _ = writeln!(out, "  descriptor {number}: {what}");
        }
        let _ = writeln!(out, "pages of devices:{}", if self.pages.is_empty() { " none" } else { "" });
        for DevicePage { address, bytes, rights, offset, file } in &self.pages {
            let what = mapped(*offset);
            let _ = writeln!(out, "  {address:#x}: {what} of {file}, {bytes} bytes, {rights}");
        }
        let _ = writeln!(
            out,
            "memory:{}",
            if self.memory.is_empty() { " neither huge pages nor memory files" } else { "" }
        );
        for (name, (bytes, maps)) in &self.memory {
            let _ = writeln!(out, "  {name}: {bytes} bytes (maps: {maps})");
        }
        match &self.telemetry {
            Some(path) => {
                let _ = writeln!(out, "telemetry: {}", plain(&path.to_string_lossy()));
            }
            None => out += "telemetry: none; states of queues are not told\n",
        }
        if self.has_device() {
            let _ = writeln!(
                out,
                "not seen here: posts and polls, which are stores and loads of the pages above, and calls, which --follow tells from now on; \
                 queue pairs as the kernel has them: `rdma resource show qp pid {}`",
                self.pid
            );
        }
        out
    }
}

/// Why a process is not to be seen, where the kernel says only that it is not permitted.
#[must_use]
pub fn refusal(pid: u32, why: io::Error) -> io::Error {
    tracer::refused::because(pid, why)
}

/// The path of a socket of telemetry that is one of these. Source: Linux `net/unix/af_unix.c`, `unix_seq_show`: inode and path are the
/// seventh and eighth word.
fn telemetry(line: &str, inodes: &[String]) -> Option<PathBuf> {
    let mut words = line.split_ascii_whitespace().skip(6);
    let inode = words.next()?;
    let path = PathBuf::from(words.collect::<Vec<_>>().join(" "));
    let ours = path.file_name()?.to_str()?.starts_with(TELEMETRY);
    (ours && inodes.iter().any(|known| known == inode)).then_some(path)
}

/// A name as it can be printed: what others chose may hold anything.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;
