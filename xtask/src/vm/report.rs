//! What the jobs of a guest came to.

use std::fmt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use super::job::Job;
use super::machine::Ended;
use super::rules;
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

/// Reads what the guest sent and prints what became of the job. `lost` is how its devices' process ended, if by itself.
pub(crate) fn of(
    kernel: &str,
    job: &Job,
    ended: &Ended,
    lost: Option<ExitStatus>,
    logs: &Path,
    time: Duration,
) -> Outcome<Sum> {
    let path = logs.join("jobs.log");
    let said = std::fs::read(&path).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).replace('\r', "");
    let (mut sum, mut lines) = judge(&said, job);
    let trouble = match ended {
        Ended::Off => lost.map(|status| format!("mlx5-device ended with {status}; see device.log")),
        Ended::Overtime(limit) => {
            Some(format!("the guest did not power off within {} s and was ended", limit.as_secs()))
        }
        Ended::Failed(why) => Some(why.clone()),
        Ended::Lost(status) => {
            let console = std::fs::read(logs.join("console.log")).unwrap_or_default();
            let console = String::from_utf8_lossy(&console).into_owned();
            let noticed = console.lines().find(|line| line.contains("mlx5") && line.contains("Fatal error"));
            let noticed = noticed.unwrap_or("its driver had not noticed it");
            // One cause, one line.
            lines.truncate(1);
            Some(format!(
                "mlx5-device ended with {status} while the guest ran, which said: {}",
                noticed.trim()
            ))
        }
    };
    if let Some(trouble) = trouble {
        (sum.jobs_ok, sum.jobs_failed) = (0, 1);
        lines.push(trouble);
    }
    let log = std::fs::read(logs.join("device.log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    if rules::are_for(job) {
        hold_to_rules(&log, &mut sum, &mut lines);
    }
    for (index, line) in lines.iter().enumerate() {
        let seconds = if index == 0 { format!(" ({} s)", time.as_secs()) } else { String::new() };
        println!("vm: Linux {kernel}: {line}{seconds}");
    }
    if sum.jobs_failed > 0 {
        println!("vm: Linux {kernel}: logs of {} are in {}", job.name, logs.display());
    }
    Ok(sum)
}

/// A job fails whose guest broke a rule of its devices.
fn hold_to_rules(log: &str, sum: &mut Sum, lines: &mut Vec<String>) {
    let broken = rules::broken(log);
    if !broken.is_empty() {
        (sum.jobs_ok, sum.jobs_failed) = (0, 1);
        lines.extend(broken.iter().take(SHOWN).map(|line| format!("    its driver broke a rule: {line}")));
        lines.extend(
            broken
                .get(SHOWN..)
                .map(|more| format!("    and {} more: see device.log", more.len()))
                .filter(|_| broken.len() > SHOWN),
        );
    }
}

fn judge(said: &str, job: &Job) -> (Sum, Vec<String>) {
    let Job { name, tests, reports, .. } = *job;
    let text = between(said, &format!("begin {name}"), &format!("end {name} "));
    let status =
        said.lines().find_map(|line| line.strip_prefix(&format!("end {name} "))).unwrap_or("never ended");
    let (passed, failed) = results(text);
    let skipped = text.lines().filter(|line| line.starts_with("skipped: ")).count() as u64;
    // A test that skips counts as passed for its harness.
    let passed = passed.saturating_sub(skipped);
    let log = between(said, "begin dmesg", "end dmesg ");
    let complaints = complaints(log, &[reports, job.warns].concat(), job.script.is_some());
    let missing: Vec<_> = reports.iter().filter(|report| !log.contains(**report)).collect();
    let done = said.lines().any(|line| line == "done");
    let good = status == "ok"
        && failed == 0
        && skipped == 0
        && (!tests || passed > 0)
        && complaints.is_empty()
        && missing.is_empty()
        && done;
    let mut lines =
        vec![format!("{name}: {status}; {passed} tests passed, {failed} failed, {skipped} skipped")];
    if !good {
        let shown: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
        if status != "ok" || failed > 0 || skipped > 0 || (tests && passed == 0) {
            lines.extend(
                shown.iter().skip(shown.len().saturating_sub(SHOWN)).map(|line| format!("    {line}")),
            );
        }
        lines.extend(complaints.iter().take(SHOWN).map(|line| format!("    the kernel complained: {line}")));
        lines.extend(missing.iter().map(|report| format!("    the kernel did not report: {report}")));
        if !done {
            lines.push("    the guest died before its job was done: see console.log".into());
        }
    }
    let sum = Sum { jobs_ok: usize::from(good), jobs_failed: usize::from(!good), passed, failed, skipped };
    (sum, lines)
}

/// What the guest's first process has the kernel log before the job begins; warnings before that are of QEMU's machine.
const BEGINS: &str = "pollux: the job begins";
/// What a kernel warns of at any time because emulation is slow.
const SLOW: &[&str] =
    &["clocksource:", "tsc:", "hrtimer: interrupt took", "perf: interrupt took", "hogged CPU for"];

/// Lines of the kernel's log that a card in order does not cause: warnings and errors of its drivers, or of `all` the kernel,
/// whatever says that the kernel itself is in trouble, but none that the job names in `known`.
fn complaints<'a>(log: &'a str, known: &[&str], all: bool) -> Vec<&'a str> {
    const DRIVERS: &[&str] =
        &["mlx5", "infiniband", "ib_core", "ib_uverbs", "rdma", "uverbs", "NETDEV WATCHDOG"];
    const SPLATS: &[&str] = &[
        "WARNING:",
        "BUG:",
        "Oops",
        "Call Trace",
        "blocked for more than",
        "hw csum failure",
        "soft lockup",
    ];
    let begins = log.find(BEGINS).unwrap_or(0);
    let place = |line: &str| line.as_ptr().addr() - log.as_ptr().addr();
    log.lines()
        .filter(|line| {
            let Some((level, text)) = line.strip_prefix('<').and_then(|rest| rest.split_once('>')) else {
                return false;
            };
            let warns = place(line) >= begins && level.parse::<u32>().is_ok_and(|level| level <= 4);
            let counts = all || DRIVERS.iter().any(|name| text.contains(name));
            (warns && counts || SPLATS.iter().any(|word| text.contains(word)))
                && !known.iter().chain(SLOW).any(|part| text.contains(part))
        })
        .collect()
}

fn between<'a>(said: &'a str, begin: &str, end: &str) -> &'a str {
    let from = said.find(begin).map_or(said.len(), |at| at + begin.len());
    let rest = &said[from..];
    &rest[..rest.find(end).unwrap_or(rest.len())]
}

/// Sums up the lines in which test programs say how many of their tests passed and failed, and those of scripts that say so
/// one by one.
fn results(text: &str) -> (u64, u64) {
    let count = |line: &str, word: &str| -> u64 {
        line.split([';', '.'])
            .find_map(|part| part.trim().strip_suffix(word)?.trim().parse().ok())
            .unwrap_or(0)
    };
    text.lines().fold((0, 0), |(passed, failed), line| {
        if line.starts_with("test result:") {
            (passed + count(line, "passed"), failed + count(line, "failed"))
        } else {
            (passed + u64::from(line.starts_with("ok ")), failed + u64::from(line.starts_with("not ok ")))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(tests: bool, reports: &'static [&'static str]) -> Job {
        let mut job = Job::default();
        (job.name, job.tests, job.reports) = ("a", tests, reports);
        job
    }

    const GOOD: &str = "begin a\ntest result: ok. 7 passed; 0 failed; 0 ignored\n\nend a ok\nbegin dmesg\n<6> fine\n\nend dmesg ok\ndone\n";

    #[test]
    fn jobs_that_passed() {
        let (sum, lines) = judge(GOOD, &job(true, &[]));
        assert_eq!(sum, Sum { jobs_ok: 1, passed: 7, ..Sum::default() }, "{lines:?}");
        let reported = GOOD.replace("<6> fine", "<3> mlx5_core 0000:01:00.0: Fatal error 1 detected");
        assert_eq!(judge(&reported, &job(true, &["Fatal error"])).0.jobs_ok, 1);
    }

    #[test]
    fn a_job_fails_whose_guest_broke_a_rule() {
        let (mut sum, mut lines) = judge(GOOD, &job(true, &[]));
        hold_to_rules(" INFO model.pci: started\n", &mut sum, &mut lines);
        assert_eq!((sum.jobs_ok, lines.len()), (1, 1));
        let log = " WARN model.rule: a: queue 0x7: something\n".repeat(SHOWN + 2);
        hold_to_rules(&log, &mut sum, &mut lines);
        assert_eq!((sum.jobs_ok, sum.jobs_failed, lines.len()), (0, 1, SHOWN + 2));
        assert!(
            lines[1].ends_with("queue 0x7: something") && lines[SHOWN + 1].contains("2 more"),
            "{lines:?}"
        );
    }

    #[test]
    fn what_is_no_success() {
        let changed = |from: &str, to: &str| GOOD.replace(from, to);
        for (text, name) in [
            (GOOD.to_owned(), "missing"),
            (changed("end a ok", "end a timeout"), "a"),
            (changed("begin a", "begin a\nskipped: needs root"), "a"),
            (changed("0 failed", "1 failed"), "a"),
            (changed("7 passed", "0 passed"), "a"),
            (changed("done", ""), "a"),
            (changed("<6> fine", "<4> mlx5_core 0000:01:00.0: something"), "a"),
            (changed("<6> fine", "<4> WARNING: CPU: 0 PID: 1 at lib/x.c:1"), "a"),
        ] {
            let mut job = job(true, &[]);
            job.name = name;
            let (sum, lines) = judge(&text, &job);
            assert_eq!(sum.jobs_failed, 1, "{text}: {lines:?}");
            assert!(sum.outcome().is_err());
        }
        let (sum, _) = judge(GOOD, &job(true, &["Fatal error"]));
        assert_eq!(sum.jobs_failed, 1, "what must be reported was not");
    }

    #[test]
    fn whoever_warns_is_a_fault_unless_the_job_names_it() {
        let log = "<4> vxlan: odd\n<6> mlx5_core: firmware version\n<3> mlx5_core: bad\n<4> hw csum failure\n<6> Call Trace\n";
        let all = ["<4> vxlan: odd", "<3> mlx5_core: bad", "<4> hw csum failure", "<6> Call Trace"];
        assert_eq!(complaints(log, &[], true), all);
        assert_eq!(complaints(log, &[], false), all[1..], "the tests of ours go by the drivers");
        assert_eq!(complaints(log, &["mlx5_core: bad", "vxlan"], true), all[2..]);
        let booted = format!("<4> ACPI: odd\n<4> WARNING: at once\n<6> {BEGINS}\n<4> vxlan: odd\n");
        assert_eq!(complaints(&booted, &[], true), ["<4> WARNING: at once", "<4> vxlan: odd"]);
    }

    #[test]
    fn scripts_count_line_by_line() {
        assert_eq!(results("ok one\nokay\nnot ok two\nok three: 7\n"), (2, 1));
    }
}
