//! The calls of a program of Pollux as it makes them: it writes a trace while somebody watches, and no longer.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Told, plain};
use crate::Explainer;

/// Bytes that are read at once, of each device.
const AT_ONCE: u64 = 1 << 20;

/// A program that is being watched. It writes no more once this is dropped.
#[derive(Debug)]
pub struct Live {
    told: Told,
    devices: Vec<Watched>,
    /// Whose lines were the last ones.
    shown: Option<usize>,
}

#[derive(Debug)]
struct Watched {
    name: String,
    path: PathBuf,
    file: File,
    /// A line that is not whole yet.
    rest: Vec<u8>,
    explainer: Explainer,
}

impl Live {
    /// Has the program write a trace of each of its devices; with `fast` a device model also what passes without a call. With `names` addresses
    /// and keys are named.
    ///
    /// # Errors
    /// It has no devices whose calls can be watched, it cannot write, or what it writes cannot be read.
    pub fn begin(told: Told, names: bool, fast: bool) -> io::Result<Self> {
        let all = told.ask("/uverbs/trace")?;
        let mut live = Self { told, devices: Vec::new(), shown: None };
        let mut devices: Vec<&String> = all.as_object().into_iter().flatten().map(|(name, _)| name).collect();
        devices.dedup();
        for name in devices {
            let what = if fast { "fast" } else { "on" };
            let answer = live.told.ask(&format!("/uverbs/trace,{name},{what}"))?;
            if let Some(why) = answer["error"].as_str() {
                return Err(io::Error::other(format!("it cannot write a trace: {}", plain(why))));
            }
            let Some(path) = answer["path"].as_str().map(PathBuf::from) else { continue };
            let file =
                File::open(&path).map_err(|why| io::Error::other(format!("{}: {why}", path.display())))?;
            let explainer = Explainer::new(names);
            live.devices.push(Watched { name: name.clone(), path, file, rest: Vec::new(), explainer });
        }
        if live.devices.is_empty() {
            return Err(io::Error::other(
                "it has no device whose calls can be watched: one of mlx5, without POLLUX_UVERBS_TRACE in its environment",
            ));
        }
        Ok(live)
    }

    /// Where the program writes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.devices.iter().map(|watched| &*watched.path)
    }

    /// What was written since, explained. Where the device changes, a line says so.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn more(&mut self) -> io::Result<String> {
        let mut out = String::new();
        for (at, watched) in self.devices.iter_mut().enumerate() {
            Read::by_ref(&mut watched.file).take(AT_ONCE).read_to_end(&mut watched.rest)?;
            let Some(end) = watched.rest.iter().rposition(|byte| *byte == b'\n') else { continue };
            let lines: Vec<u8> = watched.rest.drain(..=end).collect();
            if self.shown != Some(at) {
                self.shown = Some(at);
                out += &format!("device {}\n", plain(&watched.name));
            }
            for line in String::from_utf8_lossy(&lines).lines() {
                out += &watched.explainer.line(line);
            }
        }
        Ok(out)
    }

    /// What the traces were in all.
    #[must_use]
    pub fn summary(&self) -> String {
        self.devices
            .iter()
            .map(|watched| format!("device {}\n{}", plain(&watched.name), watched.explainer.summary()))
            .collect()
    }

    /// Has the program write no more, and explains what it still wrote.
    ///
    /// # Errors
    /// A trace cannot be read.
    pub fn end(&mut self) -> io::Result<String> {
        self.off();
        self.more()
    }

    fn off(&self) {
        for watched in &self.devices {
            // A program that has ended writes no more; its files are ours to remove.
            let _ended = self.told.ask(&format!("/uverbs/trace,{},off", watched.name));
            let _gone = std::fs::remove_file(&watched.path);
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.off();
    }
}
