//! The suite and what it needs, as this machine's Debian release has them, unpacked in the cache: nothing is installed, and no right of
//! root is needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian;
use crate::run::{Outcome, must, output};

/// What the tests use beside pyverbs.
const BESIDE: &[&str] = &["python3-scapy"];
/// Where Debian has the tests.
const TESTS: &str = "usr/share/doc/rdma-core/tests";

/// The unpacked packages.
pub(super) struct Suite {
    root: PathBuf,
    /// Of python3-pyverbs.
    pub(super) version: String,
}

impl Suite {
    /// Fetches the packages, once; what is in the cache serves as long as it is there.
    pub(super) fn fetch(cache: &Path) -> Outcome<Self> {
        if !Path::new("/usr/bin/python3").exists() {
            return Err("the suite needs Debian's own Python: apt-get install python3".into());
        }
        let release = debian::release()?;
        let root = cache.join(format!("pyverbs-{release}"));
        if !root.join(TESTS).is_dir() {
            let half = root.with_extension("half");
            drop(fs::remove_dir_all(&half));
            debian::unpack("python3-pyverbs", BESIDE, &half)?;
            // Debian packs the larger files.
            must(
                Command::new("find")
                    .arg(half.join(TESTS))
                    .args(["-name", "*.gz", "-exec", "gunzip", "{}", "+"]),
            )?;
            drop(fs::remove_dir_all(&root));
            fs::rename(&half, &root).map_err(|why| format!("cannot rename {}: {why}", half.display()))?;
        }
        let version = root.join("version");
        let version = fs::read_to_string(&version)
            .map_err(|why| format!("cannot read {}: {why}; remove {}", version.display(), root.display()))?;
        Ok(Self { root, version: version.trim().into() })
    }

    /// Where Python and the loader find it all.
    pub(super) fn environment(&self, command: &mut Command) {
        let within = |path: &str| self.root.join(path).display().to_string();
        let python = [
            within(TESTS),
            within(TESTS.trim_end_matches("/tests")),
            within("usr/lib/python3/dist-packages"),
        ];
        command.env("PYTHONPATH", python.join(":")).env("PYTHONDONTWRITEBYTECODE", "1");
        let folder = output(Command::new("find").arg(within("usr/lib")).args([
            "-name",
            "libibverbs.so.1",
            "-printf",
            "%h",
        ]));
        if let Ok(folder) = folder {
            command.env("LD_LIBRARY_PATH", folder);
        }
    }
}
