//! What the jobs of a guest came to.

use std::fmt;
use std::path::Path;

use super::job::Job;
use super::machine::Ended;
use crate::run::Outcome;

/// Last lines of a failed job that are shown; its log has all.
const SHOWN: usize = 30;

/// Counts over jobs and kernels.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    jobs_ok: usize,
    jobs_failed: usize,
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, other: &Self) {
        self.jobs_ok += other.jobs_ok;
        self.jobs_failed += other.jobs_failed;
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    pub(crate) fn outcome(&self) -> Outcome {
        if self.jobs_failed == 0 { Ok(()) } else { Err(format!("{} jobs failed", self.jobs_failed)) }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} jobs passed, {} failed; {} tests passed, {} failed, {} skipped",
            self.jobs_ok, self.jobs_failed, self.passed, self.failed, self.skipped
        )
    }
}

/// Reads what the guest sent and prints a line a job.
pub(crate) fn of(kernel: &str, jobs: &[Job], ended: &Ended, logs: &Path) -> Outcome<Sum> {
    let path = logs.join("jobs.log");
    let said = std::fs::read(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
    let said = String::from_utf8_lossy(&said).replace('\r', "");
    let names: Vec<_> = jobs.iter().map(|job| (job.name, job.tests)).collect();
    let (sum, lines) = judge(&said, &names);
    for line in &lines {
        println!("vm: Linux {kernel}: {line}");
    }
    match ended {
        Ended::Off => Ok(sum),
        Ended::Overtime(limit) => {
            println!("vm: Linux {kernel}: did not power off within {} s and was ended", limit.as_secs());
            Ok(sum)
        }
    }
}

fn judge(said: &str, jobs: &[(&str, bool)]) -> (Sum, Vec<String>) {
    let mut sum = Sum::default();
    let mut lines = Vec::new();
    for &(name, tests) in jobs {
        let text = between(said, &format!("begin {name}"), &format!("end {name} "));
        let status =
            said.lines().find_map(|line| line.strip_prefix(&format!("end {name} "))).unwrap_or("never ended");
        let (passed, failed) = results(text);
        let skipped = text.lines().filter(|line| line.starts_with("skipped: ")).count() as u64;
        // A test that skips counts as passed for its harness.
        let passed = passed.saturating_sub(skipped);
        let good = status == "ok" && failed == 0 && skipped == 0 && (!tests || passed > 0);
        *(if good { &mut sum.jobs_ok } else { &mut sum.jobs_failed }) += 1;
        sum.passed += passed;
        sum.failed += failed;
        sum.skipped += skipped;
        lines.push(format!("{name}: {status}; {passed} tests passed, {failed} failed, {skipped} skipped"));
        if !good {
            let shown: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
            lines.extend(
                shown.iter().skip(shown.len().saturating_sub(SHOWN)).map(|line| format!("    {line}")),
            );
        }
    }
    if !said.lines().any(|line| line == "done") {
        sum.jobs_failed = sum.jobs_failed.max(1);
        lines.push("the guest died before its jobs were done: see console.log".into());
    }
    (sum, lines)
}

fn between<'a>(said: &'a str, begin: &str, end: &str) -> &'a str {
    let from = said.find(begin).map_or(said.len(), |at| at + begin.len());
    let rest = &said[from..];
    &rest[..rest.find(end).unwrap_or(rest.len())]
}

/// Sums up the lines in which test programs say how many of their tests passed and failed.
fn results(text: &str) -> (u64, u64) {
    let count = |line: &str, word: &str| -> u64 {
        line.split([';', '.'])
            .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
            .unwrap_or(0)
    };
    text.lines().filter(|line| line.starts_with("test result:")).fold((0, 0), |(passed, failed), line| {
        (passed + count(line, "passed"), failed + count(line, "failed"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "begin a\ntest result: ok. 7 passed; 0 failed; 0 ignored\n\nend a ok\nbegin b\n\nend b ok\ndone\n";

    #[test]
    fn jobs_that_passed() {
        let (sum, _) = judge(GOOD, &[("a", true), ("b", false)]);
        assert_eq!(sum, Sum { jobs_ok: 2, passed: 7, ..Sum::default() });
    }

    #[test]
    fn what_is_no_success() {
        for (text, jobs) in [
            (GOOD, &[("b", true)][..]),
            (GOOD, &[("missing", false)]),
            ("begin a\nend a timeout\ndone\n", &[("a", false)]),
            (
                "begin a\nskipped: needs root\ntest result: ok. 1 passed; 0 failed\nend a ok\ndone\n",
                &[("a", true)],
            ),
            ("begin a\ntest result: FAILED. 1 passed; 1 failed\nend a failed\ndone\n", &[("a", true)]),
            ("begin a\ntest result: ok. 7 passed; 0 failed\nend a ok\n", &[("a", true)]),
        ] {
            let (sum, lines) = judge(text, jobs);
            assert_eq!(sum.jobs_failed, 1, "{text}: {lines:?}");
            assert!(sum.outcome().is_err());
        }
    }
}
