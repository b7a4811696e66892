//! The programs of `examples/`, a workspace of their own as a user's program is; README.md's program in a folder of its own; the guide's
//! packages, made page by page.

use std::fs;
use std::path::Path;

use crate::outside;
use crate::run::{Outcome, cargo, must, output, root, target_dir};

/// Formats, lints, builds and runs them; none has more lines than it may.
pub(crate) fn examples() -> Outcome {
    let folder = root().join("examples");
    let target = target_dir().join("examples");
    let here = |args: &[&str], target: &Path| {
        let mut command = cargo(args);
        command.current_dir(&folder).env("CARGO_TARGET_DIR", target);
        command
    };
    must(&mut here(&["fmt", "--all", "--check"], &target))?;
    // There others' crates are checked already.
    must(&mut here(&["clippy", "--locked", "--all-targets", "--", "-D", "warnings"], &target_dir()))?;
    // With the tests at once: these alone ask for more features, and all would be built twice.
    must(&mut here(&["build", "--release", "--locked", "--all-targets"], &target))?;
    must(&mut here(&["test", "--release", "--locked"], &target))?;
    outside::outside(&target)?;
    let mut long = Vec::new();
    for (name, most) in LINES {
        let lines = lines(name)?;
        eprintln!("xtask: examples: {name} has {lines} lines, at most {most}");
        if lines > *most {
            long.push(*name);
        }
    }
    if !long.is_empty() {
        return Err(format!("examples: longer than they may be: {}", long.join(", ")));
    }
    let tests = ["test", "--workspace", "--test=examples", "--test=guide"];
    must(cargo(&tests).env("POLLUX_EXAMPLES", target.join("release")))
}

/// That their lock file names every package that the workspace's crates have come to ask for. Its builds refuse one that does not, long
/// after a change's first tests.
pub(crate) fn locked() -> Outcome {
    let mut command = cargo(&["metadata", "--locked", "--quiet", "--format-version=1"]);
    output(command.current_dir(root().join("examples"))).map(drop)
}

/// The most lines of each, without blanks and comments.
const LINES: &[(&str, usize)] =
    &[("firewall", 399), ("firewall_nat", 197), ("generator", 118), ("net_udp", 103), ("rdma_copy", 118)];

fn lines(name: &str) -> Outcome<usize> {
    let folder = root().join("examples").join(name).join("src");
    let entries = fs::read_dir(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut all = 0;
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        all += text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    }
    Ok(all)
}
