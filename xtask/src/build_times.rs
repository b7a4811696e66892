//! What builds cost, in processor time: of this tree, and of another commit beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::run::{Outcome, cargo, must, output, root, target_dir};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A commit that is built beside this tree, step by step in turn
    #[arg(long, value_name = "COMMIT")]
    beside: Option<String>,
    /// Also the tests: from clean, and once built (in elapsed time)
    #[arg(long)]
    tests: bool,
}

/// What an app's author changes.
const APP: &str = "apps/src/bin/l2fwd.rs";

/// A build, and the most that it may take: seconds, and over the commit beside it.
struct Step {
    name: &'static str,
    args: &'static [&'static str],
    prepare: Prepare,
    /// Elapsed time counts, not that of the processors.
    elapsed: bool,
    most: f64,
    ratio: Option<f64>,
}

#[derive(PartialEq, Eq)]
enum Prepare {
    /// Nothing is built.
    Clean,
    /// The step before built it, and the app's main file is newer.
    Touch,
    /// The step before built it.
    Nothing,
}

const BUILDS: &[Step] = &[
    Step {
        name: "l2fwd, from clean",
        args: &["build", "--release", "--bin", "l2fwd"],
        prepare: Prepare::Clean,
        elapsed: false,
        most: 150.0,
        ratio: Some(0.70),
    },
    Step {
        name: "l2fwd, its main file changed",
        args: &["build", "--release", "--bin", "l2fwd"],
        prepare: Prepare::Touch,
        elapsed: false,
        most: 15.0,
        ratio: Some(0.20),
    },
    Step {
        name: "workspace, from clean",
        args: &["build", "--release", "--workspace"],
        prepare: Prepare::Clean,
        elapsed: false,
        most: 540.0,
        ratio: Some(0.38),
    },
];

const TESTS: &[Step] = &[
    Step {
        name: "tests, from clean",
        args: &["test", "--workspace"],
        prepare: Prepare::Clean,
        elapsed: true,
        most: 720.0,
        ratio: None,
    },
    Step {
        name: "tests, once built",
        args: &["test", "--workspace"],
        prepare: Prepare::Nothing,
        elapsed: true,
        most: 600.0,
        ratio: None,
    },
];

impl Step {
    /// Whether it took no longer than it may, and no larger share of what it took beside.
    fn is_met(&self, taken: f64, ratio: Option<f64>) -> bool {
        taken <= self.most && ratio.zip(self.ratio).is_none_or(|(ratio, most)| ratio <= most)
    }
}

/// A tree with a target directory of its own.
struct Tree {
    source: PathBuf,
    target: PathBuf,
}

pub(crate) fn build_times(args: &Args) -> Outcome {
    let folder = target_dir().join("build-times");
    let here = Tree { source: root(), target: folder.join("here") };
    let beside = match &args.beside {
        Some(commit) => Some(check_out(commit, &folder)?),
        None => None,
    };
    let mut report = vec![format!(
        "{:<30} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7}",
        "name", "cpu s", "elapsed s", "at most", "beside", "ratio", "at most"
    )];
    let mut missed = Vec::new();
    for step in BUILDS.iter().chain(if args.tests { TESTS } else { &[] }) {
        let (cpu, elapsed) = here.take(step)?;
        let other = match &beside {
            Some(tree) if step.ratio.is_some() => Some(tree.take(step)?.0),
            _ => None,
        };
        let taken = if step.elapsed { elapsed } else { cpu };
        let ratio = other.map(|other| taken / other);
        let met = step.is_met(taken, ratio);
        if !met {
            missed.push(step.name);
        }
        let or_dash =
            |value: Option<f64>, digits: usize| value.map_or("-".into(), |value| format!("{value:.digits$}"));
        report.push(format!(
            "{:<30} {cpu:>9.1} {elapsed:>9.1} {:>9.0} {:>9} {:>7} {:>7} {}",
            step.name,
            step.most,
            or_dash(other, 1),
            or_dash(ratio, 2),
            or_dash(step.ratio.filter(|_| beside.is_some()), 2),
            if met { "met" } else { "missed" },
        ));
    }
    if let Some(tree) = beside {
        must(
            std::process::Command::new("git")
                .current_dir(root())
                .args(["worktree", "remove", "--force"])
                .arg(tree.source),
        )?;
    }
    println!("{}", report.join("\n"));
    verdict(&missed)
}

/// What a run comes to of which these steps took longer than they may.
fn verdict(missed: &[&str]) -> Outcome {
    if missed.is_empty() { Ok(()) } else { Err(format!("build-times: missed: {}", missed.join("; "))) }
}

/// Another commit in a work tree of its own, which an earlier run may have left.
fn check_out(commit: &str, folder: &Path) -> Outcome<Tree> {
    let source = folder.join("source");
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command.current_dir(root()).args(args);
        command
    };
    if source.exists() {
        must(git(&["worktree", "remove", "--force"]).arg(&source))?;
    }
    must(git(&["worktree", "add", "--detach"]).arg(&source).arg(commit))?;
    Ok(Tree { source, target: folder.join("beside") })
}

impl Tree {
    /// One step: processor time and elapsed time, in seconds.
    fn take(&self, step: &Step) -> Outcome<(f64, f64)> {
        match step.prepare {
            Prepare::Clean if self.target.exists() => fs::remove_dir_all(&self.target)
                .map_err(|why| format!("cannot remove {}: {why}", self.target.display()))?,
            Prepare::Touch => {
                let file = self.source.join(APP);
                let now = std::time::SystemTime::now();
                fs::File::options()
                    .append(true)
                    .open(&file)
                    .and_then(|file| file.set_modified(now))
                    .map_err(|why| format!("cannot touch {}: {why}", file.display()))?;
            }
            Prepare::Clean | Prepare::Nothing => {}
        }
        let (before, start) = (children_cpu()?, Instant::now());
        must(cargo(step.args).current_dir(&self.source).env("CARGO_TARGET_DIR", &self.target))?;
        Ok((children_cpu()? - before, start.elapsed().as_secs_f64()))
    }
}

/// Processor time of the children that were waited for, and theirs, in seconds. Source: proc_pid_stat(5), `cutime` and `cstime`.
fn children_cpu() -> Outcome<f64> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|why| format!("/proc/self/stat: {why}"))?;
    let ticks = children_ticks(&stat).ok_or("/proc/self/stat is not as proc_pid_stat(5) has it")?;
    let hertz = output(std::process::Command::new("getconf").arg("CLK_TCK"))?;
    let hertz: f64 = hertz.trim().parse().map_err(|_| format!("getconf CLK_TCK says {hertz:?}"))?;
    Ok(ticks as f64 / hertz)
}

/// The 16th and the 17th field; the second is a name in parentheses, which may hold blanks.
fn children_ticks(stat: &str) -> Option<u64> {
    let mut behind = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let (user, system): (u64, u64) = (behind.next()?.parse().ok()?, behind.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_takes_too_long_is_an_error_by_name() {
        let step = Step {
            name: "it",
            args: &[],
            prepare: Prepare::Nothing,
            elapsed: false,
            most: 2.0,
            ratio: Some(0.5),
        };
        assert!(step.is_met(2.0, Some(0.5)) && step.is_met(2.0, None));
        assert!(!step.is_met(2.1, None) && !step.is_met(2.0, Some(0.6)));
        assert_eq!(verdict(&[]), Ok(()));
        assert_eq!(verdict(&["one", "two"]), Err("build-times: missed: one; two".into()));
    }

    #[test]
    fn what_is_touched_is_there() {
        assert!(root().join(APP).is_file(), "{APP}");
    }

    #[test]
    fn ticks_of_children_stand_behind_the_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 200 0 0 3 4 50 60 20 0 1 0 5 6 7";
        assert_eq!(children_ticks(stat), Some(110));
        assert_eq!(children_ticks("7 (short) S 1"), None);
    }
}
