//! DPDK's own test suite, of which the parsers of testpmd's output are used: fetched as Debian has its source, never committed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::debian;
use crate::run::{Outcome, must};

/// The release whose DPDK has the parsers where they are looked for.
const RELEASE: &str = "sid";

/// The folder `dts` of the newest source; it is fetched and unpacked once for each version.
///
/// # Errors
/// One line when there is none to be had.
pub(super) fn fetch() -> Outcome<PathBuf> {
    let cache = debian::cache_dir()?;
    let (archive, version) = debian::source("dpdk", RELEASE, &cache.join("source-sid"))?;
    let folder = cache.join(format!("dts-{version}"));
    let dts = folder.join("dts");
    if !dts.is_dir() {
        fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let mut tar = Command::new("tar");
        tar.arg("xf").arg(&archive).arg("-C").arg(&folder);
        must(tar.args(["--strip-components=1", "--wildcards", "*/dts/api", "*/dts/framework"]))?;
    }
    if !dts.join("api/testpmd/types.py").exists() {
        return Err(format!("DPDK {version} of Debian {RELEASE} has no dts/api/testpmd/types.py"));
    }
    Ok(dts)
}
