//! Jobs that are files: each folder of `tests/witness` is one, with `job.toml`, what it needs, and `run.sh`, what it does.
//!
//! The script runs in the guest under `sh -eu` with the packages' files around it, `/witness/lib.sh` beside it. It prints a line
//! `ok WHAT` or `not ok WHAT` for each thing that it looked at; the job passes if there is one, none is `not ok`, and it ends
//! with status 0.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Job, Wire, list};
use crate::run::{Outcome, root};

/// Where the guest has the script and what all scripts share.
pub(crate) const INSIDE: &str = "witness";
/// What all scripts share, beside the folders.
pub(crate) const LIBRARY: &str = "lib.sh";
const SCRIPT: &str = "run.sh";

/// `job.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// Debian packages whose files the guest has, with all that they depend on.
    packages: Vec<String>,
    /// Modules of the kernel beside those that every guest has.
    #[serde(default)]
    modules: Vec<String>,
    wires: Wires,
    /// What the functions can beside what all can: `mlx5-device --with`.
    #[serde(default)]
    with: Vec<String>,
    /// How long the script may take.
    seconds: u64,
    /// Runs with `--all` or by its name alone.
    #[serde(default)]
    long: bool,
    /// Runs with `--short` too.
    #[serde(default)]
    short: bool,
    /// Parts of lines that the kernel's log may warn with.
    #[serde(default)]
    warns: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Wires {
    /// Two functions with a cable between them.
    Cable,
    /// No function.
    None,
}

/// The folder of all of them.
pub(crate) fn folder() -> PathBuf {
    root().join("tests/witness")
}

/// Every job of the folder, by name.
///
/// # Errors
/// One line for a folder that is no job, with its path.
pub(crate) fn all() -> Outcome<Vec<Job>> {
    read(&folder())
}

fn read(folder: &Path) -> Outcome<Vec<Job>> {
    let unread = |why| format!("cannot read {}: {why}", folder.display());
    let mut folders: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(unread)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders.iter().map(|folder| job(folder)).collect()
}

fn job(folder: &Path) -> Outcome<Job> {
    let (path, script) = (folder.join("job.toml"), folder.join(SCRIPT));
    let text =
        std::fs::read_to_string(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    let Description { packages, modules, wires, with, seconds, long, short, warns } =
        toml::from_str(&text).map_err(|why| format!("{}: {}", path.display(), why.message()))?;
    if !script.is_file() {
        return Err(format!("{} is not there: a witness is job.toml and {SCRIPT}", script.display()));
    }
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Jobs are constants to all that handles them; those that are read live as long as the task.
    let words = |words: Vec<String>| -> &'static [&'static str] {
        words.into_iter().map(|word| &*word.leak()).collect::<Vec<_>>().leak()
    };
    Ok(Job {
        name: name.leak(),
        wires: match wires {
            Wires::Cable => list::CABLE,
            Wires::None => &[] as &[Wire],
        },
        commands: &[&["sh", "-eu", "/witness/run.sh"]],
        packages: words(packages),
        modules: words(modules),
        script: Some(script.leak()),
        warns: words(warns),
        with: words(with),
        seconds,
        long,
        short,
        tests: true,
        ..Job::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(description: &str, script: bool) -> tempfile::TempDir {
        let top = tempfile::tempdir().expect("a folder");
        let job = top.path().join("juggler");
        std::fs::create_dir(&job).expect("a folder");
        std::fs::write(job.join("job.toml"), description).expect("a file");
        if script {
            std::fs::write(job.join(SCRIPT), "").expect("a file");
        }
        top
    }

    #[test]
    fn a_folder_is_a_job() {
        let top = folder(
            "packages = [\"iperf3\"]\nwires = \"cable\"\nwith = [\"padded\"]\nseconds = 7\nwarns = [\"odd\"]\n",
            true,
        );
        let jobs = read(top.path()).expect("a job");
        let [job] = &jobs[..] else { panic!("{} jobs", jobs.len()) };
        assert_eq!((job.name, job.packages, job.warns), ("juggler", &["iperf3"][..], &["odd"][..]));
        assert_eq!((job.wires.len(), job.seconds, job.tests, job.long), (2, 7, true, false));
        assert_eq!(job.with, ["padded"]);
    }

    #[test]
    fn what_is_no_job_is_told_of() {
        for (description, script, expected) in [
            ("packages = []\nwires = \"cable\"\n", true, "juggler/job.toml: missing field `seconds`"),
            ("packages = []\nwires = \"wet\"\nseconds = 1\n", true, "unknown variant `wet`"),
            ("packages = []\nwires = \"none\"\nseconds = 1\nballs = 3\n", true, "unknown field `balls`"),
            ("packages = []\nwires = \"none\"\nseconds = 1\n", false, "run.sh is not there"),
        ] {
            let top = folder(description, script);
            let why = read(top.path()).err().expect("no job");
            assert!(why.contains(expected) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn those_of_the_tree_are_in_order() {
        assert!(!all().expect("jobs").is_empty());
    }
}
