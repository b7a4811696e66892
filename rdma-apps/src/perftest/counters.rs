//! `--report-counters`: by how much counters of the port rose.
//!
//! Source: linux-rdma/perftest `src/perftest_counters.c`: files below `ports/N` of the device in sysfs, read before and after. A device
//! model has no files, but the counters that its kernel's half would have in them.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use pollux_bringup::{ModelCounter, RdmaDevice};

use crate::rdma::Failure;

/// Counters and what they were when they were looked at last.
#[derive(Debug)]
pub struct Counters {
    each: Vec<(String, Place, u64)>,
}

/// Where a counter stands.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Model(ModelCounter),
}

impl Place {
    fn read(&self) -> Option<u64> {
        match self {
            Self::File(path) => std::fs::read_to_string(path).ok()?.trim().parse().ok(),
            Self::Model(counter) => counter.read(),
        }
    }
}

impl Counters {
    /// Of a port, by their names below `ports/N`; `None` when none is asked for.
    ///
    /// # Errors
    /// The device has none, or not that one.
    pub fn open(device: &RdmaDevice, port: u8, names: &[String]) -> Result<Option<Self>, Failure> {
        if names.is_empty() {
            return Ok(None);
        }
        let Some(folder) = device.sysfs() else { return Self::of_model(device, port, names).map(Some) };
        Self::of(&folder.join(format!("ports/{port}")), names).map(Some)
    }

    fn of(folder: &Path, names: &[String]) -> Result<Self, Failure> {
        Self::found(names, |name| {
            let path = folder.join(name);
            let unknown = format!("{}; list the directory to see the counters", path.display());
            (Place::File(path), unknown)
        })
    }

    fn of_model(device: &RdmaDevice, port: u8, names: &[String]) -> Result<Self, Failure> {
        Self::found(names, |name| {
            let short = name.strip_prefix("hw_counters/").unwrap_or_default();
            let counter = device.model_counter(port, short);
            let known = counter.known().join(", hw_counters/");
            (Place::Model(counter), format!("{} has hw_counters/{known}", device.name))
        })
    }

    /// Those that can be read; `place` tells where one stands, and what is said where it cannot.
    fn found(names: &[String], place: impl Fn(&str) -> (Place, String)) -> Result<Self, Failure> {
        let each = names.iter().map(|name| {
            let (place, unknown) = place(name);
            let value = place.read();
            let value =
                value.ok_or_else(|| Failure::Usage(format!("-W {name}: no such counter, {unknown}")))?;
            Ok((name.clone(), place, value))
        });
        Ok(Self { each: each.collect::<Result<_, Failure>>()? })
    }

    /// By how much each rose since it was looked at last, as the original prints it; `gone` of one that is there no more, as
    /// when its device was pulled out.
    pub fn rise(&mut self) -> String {
        let mut text = String::new();
        for (name, place, before) in &mut self.each {
            let Some(now) = place.read() else {
                let _ = writeln!(text, "\t{name}=gone");
                continue;
            };
            let rise = match place {
                Place::File(_) => now.wrapping_sub(*before),
                // Of 32 bits, which run over.
                Place::Model(_) => (now as u32).wrapping_sub(*before as u32).into(),
            };
            let _ = writeln!(text, "\t{name}={rise}");
            *before = now;
        }
        text + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rose_is_shown_once() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("counters")).expect("made");
        let file = folder.path().join("counters/port_rcv_data");
        std::fs::write(&file, "100\n").expect("written");
        let names = ["counters/port_rcv_data".to_owned()];
        let mut counters = Counters::of(folder.path(), &names).expect("it is there");
        std::fs::write(&file, "142\n").expect("written");
        assert_eq!(counters.rise(), "\tcounters/port_rcv_data=42\n\n");
        assert_eq!(counters.rise(), "\tcounters/port_rcv_data=0\n\n");
        std::fs::remove_file(&file).expect("it was there");
        assert_eq!(counters.rise(), "\tcounters/port_rcv_data=gone\n\n");
        std::fs::write(&file, "150\n").expect("written");
        assert_eq!(counters.rise(), "\tcounters/port_rcv_data=8\n\n");
        let missing = Counters::of(folder.path(), &["hw_counters/none".to_owned()]);
        assert!(
            matches!(missing, Err(Failure::Usage(line)) if line.contains("-W hw_counters/none: no such counter"))
        );
    }
}
