//! The logs of a job's runs: a folder each, named by when it began, of which the last few are kept.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Outcome, output};

/// How many runs of a job are kept.
const KEPT: usize = 5;
/// The link to the newest.
const LAST: &str = "last";

/// A new folder below `job`, the logs of one job on one kernel; the oldest make room for it.
pub(crate) fn begin(job: &Path) -> Outcome<PathBuf> {
    let stamp = output(Command::new("date").args(["-u", "+%Y-%m-%dT%H.%M.%S"]))?;
    new(job, stamp.trim())
}

fn new(job: &Path, stamp: &str) -> Outcome<PathBuf> {
    let failed = |why| format!("cannot write {}: {why}", job.display());
    std::fs::create_dir_all(job).map_err(failed)?;
    let runs = runs(job).map_err(failed)?;
    for old in runs.iter().take((runs.len() + 1).saturating_sub(KEPT)) {
        std::fs::remove_dir_all(old).map_err(failed)?;
    }
    // Two runs within a second share a folder.
    let run = job.join(stamp);
    std::fs::create_dir_all(&run).map_err(failed)?;
    let link = job.join(LAST);
    drop(std::fs::remove_file(&link));
    std::os::unix::fs::symlink(stamp, &link).map_err(failed)?;
    Ok(run)
}

/// The runs that are there, the oldest first.
fn runs(job: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut runs: Vec<PathBuf> = std::fs::read_dir(job)?
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect();
    runs.sort();
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_its_own_logs_and_the_last_few_are_kept() {
        let top = tempfile::tempdir().expect("a folder");
        let job = top.path().join("job");
        for second in 10..20 {
            let run = new(&job, &format!("2026-01-01T00.00.{second}")).expect("a folder");
            std::fs::write(run.join("jobs.log"), second.to_string()).expect("a file");
        }
        let kept: Vec<_> = runs(&job).expect("runs").iter().map(|run| run.join("jobs.log")).collect();
        assert_eq!(kept.len(), KEPT);
        assert_eq!(std::fs::read_to_string(&kept[0]).expect("the oldest"), "15");
        assert_eq!(std::fs::read_to_string(job.join(LAST).join("jobs.log")).expect("the last"), "19");
    }
}
