//! DPDK's own test suite, of which the parsers of testpmd's output are used: a checkout that is at hand, or as Debian has its source; never
//! committed.

use std::path::{Path, PathBuf};

use crate::debian::{Source, cache_dir};
use crate::run::Outcome;

/// The folder `dts` of a checkout of DPDK.
pub(super) const AT_HAND: &str = "POLLUX_DPDK_DTS";

/// Releases in turn: the newest one, whose version changes, so that its index may name a source that the archive has no more, and one whose
/// version stays.
const RELEASES: [&str; 2] = ["sid", "trixie"];

/// Where a source has its parsers: since 25.11, and before.
const PARSERS: [&str; 2] = ["api/testpmd/types.py", "framework/remote_session/testpmd_shell.py"];

fn has_parsers(dts: &Path) -> bool {
    PARSERS.iter().any(|file| dts.join(file).exists())
}

/// The folder `dts` of the checkout that [`AT_HAND`] names, else of the newest source; that is fetched and unpacked once for each version.
///
/// `Err` within: there is none to be had.
///
/// # Errors
/// One line when it is not as expected, or the cache cannot be written.
pub(super) fn fetch() -> Outcome<Result<PathBuf, String>> {
    if let Some(dts) = std::env::var_os(AT_HAND).map(PathBuf::from) {
        return match has_parsers(&dts) {
            true => Ok(Ok(dts)),
            false => {
                Err(format!("{AT_HAND}={}: has neither {} nor {}", dts.display(), PARSERS[0], PARSERS[1]))
            }
        };
    }
    let mut reasons = Vec::new();
    for release in RELEASES {
        match Source::fetch("dpdk", release)? {
            Ok(source) => return unpacked(&source, release).map(Ok),
            Err(why) => reasons.push(format!("{release}: {why}")),
        }
    }
    Ok(Err(reasons.join("; ")))
}

fn unpacked(source: &Source, release: &str) -> Outcome<PathBuf> {
    let folder = cache_dir()?.join(format!("dts-{}", source.version));
    let dts = folder.join("dts");
    if !has_parsers(&dts) {
        source.unpack(&["*/dts"], &folder)?;
    }
    match has_parsers(&dts) {
        true => Ok(dts),
        false => {
            Err(format!("DPDK {} of Debian {release} has no parsers of testpmd's output", source.version))
        }
    }
}
