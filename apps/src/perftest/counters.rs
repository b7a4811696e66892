//! `--report-counters`: by how much counters of the port rose.
//!
//! Source: linux-rdma/perftest `src/perftest_counters.c`: files below `ports/N` of the device in sysfs, read before and after.

use std::fmt::Write;
use std::path::PathBuf;

use pollux_bringup::RdmaDevice;

use crate::rdma::Failure;

/// Counters and what they were when they were looked at last.
#[derive(Debug)]
pub struct Counters {
    each: Vec<(String, PathBuf, u64)>,
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
        let Some(folder) = device.sysfs() else {
            return Err(Failure::Usage(format!(
                "-W: {} has no counters in sysfs; for the device model, see the ledger in the output of --json",
                device.name
            )));
        };
        Self::of(folder.join(format!("ports/{port}")), names).map(Some)
    }

    fn of(folder: PathBuf, names: &[String]) -> Result<Self, Failure> {
        let each = names.iter().map(|name| {
            let path = folder.join(name);
            match read(&path) {
                Some(value) => Ok((name.clone(), path, value)),
                None => Err(Failure::Usage(format!(
                    "-W {name}: no such counter, {}; list the directory to see the counters",
                    path.display()
                ))),
            }
        });
        Ok(Self { each: each.collect::<Result<_, _>>()? })
    }

    /// By how much each rose since it was looked at last, as the original prints it; `gone` of one that is there no more, as
    /// when its device was pulled out.
    pub fn rise(&mut self) -> String {
        let mut text = String::new();
        for (name, path, before) in &mut self.each {
            let Some(now) = read(path) else {
                let _ = writeln!(text, "\t{name}=gone");
                continue;
            };
            let _ = writeln!(text, "\t{name}={}", now.wrapping_sub(*before));
            *before = now;
        }
        text + "\n"
    }
}

fn read(path: &std::path::Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
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
        let mut counters = Counters::of(folder.path().to_owned(), &names).expect("it is there");
        std::fs::write(&file, "142\n").expect("written");
        assert_eq!(counters.rise(), "\tcounters/port_rcv_data=42\n\n");
        assert_eq!(counters.rise(), "\tcounters/port_rcv_data=0\n\n");
        std::fs::remove_file(&file).expect("it was there");
        assert_eq!(counters.rise(), "\tcounters/port_rcv_data=gone\n\n");
        std::fs::write(&file, "150\n").expect("written");
        assert_eq!(counters.rise(), "\tcounters/port_rcv_data=8\n\n");
        let missing = Counters::of(folder.path().to_owned(), &["hw_counters/none".to_owned()]);
        assert!(
            matches!(missing, Err(Failure::Usage(line)) if line.contains("-W hw_counters/none: no such counter"))
        );
    }
}
