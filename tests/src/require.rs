//! What a test needs of the machine, and what happens where it is missing.
//!
//! A test that cannot run says why on one line and counts as skipped. `POLLUX_REQUIRE=root,net` names needs that
//! must not be missing: there a skip is a failure, so that CI cannot go green by skipping.

use std::process::{Command, Stdio};

/// Something a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The rights of the superuser.
    Root,
    /// Namespaces, veth pairs and the tools that make them and look into them.
    Net,
    /// Huge pages of 2 MiB, or the right to reserve them.
    HugePages,
    /// The guest of `cargo xtask vm`, with what its job plugged into it.
    Guest,
    /// Wireshark's reader of captures.
    Tshark,
}

impl Need {
    /// Its word in `POLLUX_REQUIRE`. Huge pages come with `root`: who may reserve them has them; tshark with `net`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Root | Self::HugePages => "root",
            Self::Guest => "guest",
            Self::Net | Self::Tshark => "net",
        }
    }

    fn missing(self) -> Option<String> {
        match self {
            Self::Root => (!is_root()).then(|| "needs root".into()),
            Self::Net => ["ip", "ping", "tcpdump", "ethtool"]
                .iter()
                .find(|tool| !runs(tool))
                .map(|tool| format!("needs the program {tool}"))
                .or_else(|| (!is_root()).then(|| "needs root to make network namespaces".into())),
            Self::Guest => (!std::path::Path::new("/jobs.json").exists() || !is_root())
                .then(|| "needs a guest of its own: cargo xtask vm".into()),
            Self::Tshark => (!runs("tshark")).then(|| "needs the program tshark".into()),
            Self::HugePages => {
                let reserved = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
                let none = reserved.trim().parse::<u64>().unwrap_or(0) == 0;
                (none && !is_root()).then(|| "needs huge pages, or root to reserve them".into())
            }
        }
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:"))
        .is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

fn runs(program: &str) -> bool {
    Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether a test with these needs can run. Prints the reason when it cannot.
///
/// # Panics
/// When a need is missing that `POLLUX_REQUIRE` names.
#[must_use]
pub fn require(needs: &[Need]) -> bool {
    let required = std::env::var("POLLUX_REQUIRE").unwrap_or_default();
    for need in needs {
        if let Some(why) = need.missing() {
            let word = need.word();
            assert!(
                !required.split(',').any(|named| named.trim() == word),
                "POLLUX_REQUIRE names {word}, but the test {why}"
            );
            // Written past the test harness's capture, so that a skip is seen without --nocapture.
            let line = format!("skipped: {why} (POLLUX_REQUIRE={word} makes this a failure)\n");
            drop(std::io::Write::write_all(&mut std::io::stderr().lock(), line.as_bytes()));
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_missing() {
        assert!(runs("sh"));
        assert!(!runs("no-such-program-anywhere"));
        assert!(require(&[]));
    }
}
