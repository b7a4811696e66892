//! The calls of a program of Pollux as it makes them: it writes a trace while somebody watches, and no longer.

mod file;

use std::io;
use std::path::Path;

use pollux_eal::telemetry::Value;

use self::file::TraceFile;
use super::{Told, Watch, plain};
use crate::Explainer;

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
    /// Which of the program's traces it is.
    number: Option<u64>,
    file: TraceFile,
    explainer: Explainer,
    /// The program writes it, as far as is known.
    on: bool,
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
        for name in all.as_object().into_iter().flat_map(|all| all.keys()) {
            live.watch(name, Explainer::new(names), fast)?;
        }
        if live.devices.is_empty() {
            return Err(io::Error::other(
                "it has no device whose calls can be watched: one of mlx5, without POLLUX_UVERBS_TRACE in its environment",
            ));
        }
        Ok(live)
    }

    fn watch(&mut self, name: &str, explainer: Explainer, fast: bool) -> io::Result<()> {
        let what = if fast { "fast" } else { "on" };
        let answer = self.told.ask(&format!("/uverbs/trace,{name},{what}"))?;
        if let Some(why) = answer["error"].as_str() {
            return Err(io::Error::other(format!("it cannot write a trace: {}", plain(why))));
        }
        // The device may be gone.
        let Some(path) = answer["path"].as_str() else { return Ok(()) };
        let number = answer["number"].as_u64();
        match TraceFile::open(path.into(), &self.told) {
            Ok(file) => {
                self.devices.push(Watched { name: name.to_owned(), number, file, explainer, on: true });
                Ok(())
            }
            Err(why) => {
                turn_off(&self.told, name, number);
                Err(why)
            }
        }
    }

    /// Where the program writes.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.devices.iter().map(|watched| watched.file.path())
    }
}

impl Watch for Live {
    /// Where the device changes, a line says so, and where another one watches a device from now on.
    fn more(&mut self) -> io::Result<Option<String>> {
        let mut out = None::<String>;
        for (at, watched) in self.devices.iter_mut().enumerate() {
            // Before the read: nothing is written behind that.
            let is_removed = watched.on && watched.file.is_removed();
            let Some(lines) = watched.file.lines()? else {
                if is_removed {
                    watched.on = false;
                    *out.get_or_insert_default() += &removed(&self.told, &watched.name);
                }
                continue;
            };
            let out = out.get_or_insert_default();
            if !lines.is_empty() && self.shown != Some(at) {
                self.shown = Some(at);
                *out += &format!("device {}\n", plain(&watched.name));
            }
            for line in String::from_utf8_lossy(&lines).lines() {
                *out += &watched.explainer.line(line);
            }
        }
        Ok(out)
    }

    /// The program has ended, or others watch its devices.
    fn is_over(&self) -> bool {
        self.told.is_gone() || !self.devices.iter().any(|watched| watched.on)
    }

    fn summary(&self) -> String {
        self.devices
            .iter()
            .map(|watched| format!("device {}\n{}", plain(&watched.name), watched.explainer.summary()))
            .collect()
    }

    /// Has the program write no more. What it wrote by then is still to be had.
    fn end(&mut self) {
        for watched in &mut self.devices {
            if std::mem::take(&mut watched.on) {
                turn_off(&self.told, &watched.name, watched.number);
                watched.file.remove();
            }
            watched.file.stop();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.end();
    }
}

/// A trace without a number is whichever is written.
fn turn_off(told: &Told, device: &str, number: Option<u64>) {
    let number = number.map_or_else(String::new, |number| format!(",{number}"));
    // A program that has ended writes no more.
    let _ended = told.ask(&format!("/uverbs/trace,{device},off{number}"));
}

/// Why the file of a trace is gone; nothing where the program is, too.
fn removed(told: &Told, device: &str) -> String {
    let Ok(all) = told.ask("/uverbs/trace") else { return String::new() };
    let why = match all.get(device).and_then(Value::as_bool) {
        Some(true) => "another one watches it now",
        _ => "its trace was turned off",
    };
    format!("device {}: {why}; no more of it is told here\n", plain(device))
}

#[cfg(test)]
mod tests;
