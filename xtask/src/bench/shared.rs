//! Files that both sides of a figure read, in a folder that is gone afterwards.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::peer::Root;
use crate::run::Outcome;

/// A folder of ours, inside the peer's root if there is one.
pub(super) struct Shared {
    outside: PathBuf,
    name: String,
}

impl Shared {
    pub(super) fn make(root: Option<&Root>) -> Outcome<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("pollux-bench-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let top = root.map_or_else(std::env::temp_dir, |root| root.path().join("pollux"));
        let made = Self { outside: top.join(&name), name };
        let cannot = |why| format!("cannot make {}: {why}", made.outside.display());
        std::fs::create_dir_all(&made.outside).map_err(cannot)?;
        Ok(made)
    }

    pub(super) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Outcome {
        let file = self.outside.join(name);
        std::fs::write(&file, bytes).map_err(|why| format!("cannot write {}: {why}", file.display()))
    }

    /// Where it is for our programs.
    pub(super) fn ours(&self) -> String {
        self.outside.display().to_string()
    }

    /// Where it is for the peer's, inside their root.
    pub(super) fn theirs(&self) -> String {
        format!("/pollux/{}", self.name)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.outside));
    }
}

/// A capture file of frames, a microsecond after each other.
pub(super) fn capture(frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Header of a little-endian capture with microseconds, version 2.4, snap length 64 KiB, Ethernet.
    // Source: the-tcpdump-group/libpcap `pcap/pcap.h`, `struct pcap_file_header`.
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend(word.to_le_bytes());
    }
    for (number, frame) in (0u32..).zip(frames) {
        let length = frame.len() as u32;
        for word in [number / 1_000_000, number % 1_000_000, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(frame);
    }
    bytes
}
