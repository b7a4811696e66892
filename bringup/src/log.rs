//! Every component that a message of this workspace carries, for `--log-level help`.
//!
//! Names are DPDK's where it has the component (`RTE_LOG_REGISTER_DEFAULT` makes them of the folder: `lib/ethdev` is `lib.ethdev`,
//! `drivers/net/mlx5` is `pmd.net.mlx5`; DPDK/dpdk `lib/meson.build`, `drivers/meson.build`), else ours. A message names its
//! component as its target; the test below compares the two.

/// In alphabetical order.
pub(crate) const COMPONENTS: [&str; 24] = [
    "lib.cm",
    "lib.eal",
    "lib.ethdev",
    "lib.ethdev.trace",
    "lib.frame_io",
    "lib.mempool",
    "lib.pdump",
    "lib.rsocket",
    "lib.telemetry",
    "lib.verbs",
    "model.pci",
    "model.receive",
    "model.rule",
    "model.send",
    "model.steering",
    "model.wire",
    "model.worker",
    "perftest",
    "pmd.common.mlx5",
    "pmd.net.af_packet",
    "pmd.net.af_xdp",
    "pmd.net.mlx5",
    "pmd.net.pcap",
    "pmd.net.tap",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    const MACROS: [&str; 6] = ["trace", "debug", "info", "warn", "error", "event"];

    /// The names that a file imports from `tracing`.
    fn imports(text: &str) -> impl Iterator<Item = &str> {
        let lists = text.lines().filter_map(|line| line.trim_start().strip_prefix("use tracing::"));
        lists.flat_map(|list| list.split(|mark: char| !mark.is_alphanumeric() && mark != '_'))
    }

    /// The source files below `folder`, without those of tests.
    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
                found.push(path);
            }
        }
    }

    /// What stands between the parenthesis of each `tracing` macro and its end of line or the next comma, and where.
    fn messages(text: &str) -> impl Iterator<Item = (usize, Option<&str>)> {
        // Tests in the file come last.
        let text = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(own, _)| own);
        let starts = text.match_indices("tracing::").filter_map(move |(at, path)| {
            let name = &text[at + path.len()..];
            let called = MACROS
                .into_iter()
                .find(|called| name.strip_prefix(called).is_some_and(|rest| rest.starts_with("!(")))?;
            let target = name[called.len() + 2..].trim_start().strip_prefix("target: \"");
            Some((at, target.and_then(|rest| rest.split('"').next())))
        });
        starts.map(|(at, target)| (text[..at].lines().count(), target))
    }

    #[test]
    fn messages_name_the_components_that_help_lists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let mut files = Vec::new();
        for entry in fs::read_dir(root).expect("the workspace") {
            let folder = entry.expect("an entry").path().join("src");
            if folder.is_dir() {
                sources(&folder, &mut files);
            }
        }
        assert!(files.len() > 300, "{} source files", files.len());
        let mut used = BTreeSet::new();
        for file in files {
            let text = fs::read_to_string(&file).expect("a source file");
            let bare = imports(&text).any(|name| MACROS.contains(&name));
            assert!(!bare, "{}: write tracing::warn!(target: ..), imported from nowhere", file.display());
            for (line, target) in messages(&text) {
                let target = target.unwrap_or_else(|| {
                    panic!("{}:{line}: a message without `target: \"..\"`, its component", file.display())
                });
                used.insert(target.to_owned());
            }
        }
        let listed: BTreeSet<_> = COMPONENTS.iter().map(ToString::to_string).collect();
        assert_eq!(used, listed);
        assert!(COMPONENTS.is_sorted());
    }
}
