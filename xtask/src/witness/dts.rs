//! DPDK's own test suite, of which the parsers of testpmd's output are used: fetched as Debian has its source, never committed.

use std::path::PathBuf;

use crate::debian::{Source, cache_dir};
use crate::run::Outcome;

/// The release whose DPDK has the parsers where they are looked for.
const RELEASE: &str = "sid";

/// The folder `dts` of the newest source; it is fetched and unpacked once for each version.
///
/// `Err` within: there is none to be had.
///
/// # Errors
/// One line when it is not as expected, or the cache cannot be written.
pub(super) fn fetch() -> Outcome<Result<PathBuf, String>> {
    let source = match Source::fetch("dpdk", RELEASE)? {
        Ok(source) => source,
        Err(why) => return Ok(Err(why)),
    };
    let folder = cache_dir()?.join(format!("dts-{}", source.version));
    let parsers = "dts/api/testpmd/types.py";
    if !folder.join(parsers).exists() {
        source.unpack(&["*/dts/api", "*/dts/framework"], &folder)?;
    }
    if !folder.join(parsers).exists() {
        return Err(format!("DPDK {} of Debian {RELEASE} has no {parsers}", source.version));
    }
    Ok(Ok(folder.join("dts")))
}
