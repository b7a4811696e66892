//! Two ports in a row: what comes into the first one, frame by frame as the test gives it, goes out of the second.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::packet;
use super::testpmd::{PATIENCE, Start, Testpmd};

/// A testpmd whose first port receives from a pipe, and whose second one sends to a file.
pub(crate) struct Lane {
    pub(crate) testpmd: Testpmd,
    pipe: File,
    to: PathBuf,
    /// Frames of the file that were looked at.
    seen: usize,
    /// Address of the first port.
    pub(crate) mac: [u8; 6],
    _folder: tempfile::TempDir,
}

impl Lane {
    /// Starts one, on wires of its own.
    pub(crate) fn start(start: &Start<'_>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let [from, to] = ["in.pcap", "out.pcap"].map(|name| folder.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &from, 0o600.into()).expect("a pipe");
        // Both ends, so that it is never at its end.
        let mut pipe = OpenOptions::new().read(true).write(true).open(&from).expect("a pipe");
        pipe.write_all(&packet::head()).expect("it holds that");
        let wires = [format!("pcap:{}:", from.display()), format!("pcap::{}", to.display())];
        let mut testpmd = Testpmd::start(&Start { wires: &[&wires[0], &wires[1]], ..*start });
        let told = testpmd.tell("show port info 0");
        let (_, behind) = told.split_once("MAC address: ").expect("an address");
        let digits = behind.lines().next().expect("a line").trim().split(':');
        let bytes: Vec<u8> = digits.map(|byte| u8::from_str_radix(byte, 16).expect("a byte")).collect();
        Self { testpmd, pipe, to, seen: 0, mac: bytes.try_into().expect("six"), _folder: folder }
    }

    /// Gives frames to the first port.
    pub(crate) fn give(&mut self, frames: &[Vec<u8>]) {
        let records: Vec<u8> = frames.iter().flat_map(|frame| packet::record(frame)).collect();
        self.pipe.write_all(&records).expect("it reads");
    }

    /// Gives frames to the first port, and then one that passes: all that came out of the second one before that.
    pub(crate) fn pass(&mut self, frames: &[Vec<u8>], passing: &[u8]) -> Vec<Vec<u8>> {
        self.give(frames);
        self.give(&[passing.to_vec()]);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let frames = packet::read(&self.to);
            if let Some(at) = frames[self.seen..].iter().position(|frame| frame == passing) {
                let came = frames[self.seen..][..at].to_vec();
                self.seen += at + 1;
                return came;
            }
            assert!(Instant::now() < deadline, "of {} frames none is the last", frames.len() - self.seen);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until that many frames in all came out of the second port.
    pub(crate) fn sent(&self, count: usize) -> Vec<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let frames = packet::read(&self.to);
            if frames.len() >= count {
                return frames;
            }
            assert!(Instant::now() < deadline, "{} frames, where {count} shall come", frames.len());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
