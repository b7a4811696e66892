//! Test programs run to see them fail: what failed and by which words, with a bound on the time; and the count of what was found.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::interrupt;
use crate::run::{Outcome, shown};

/// How often a program that runs is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The test.
    pub(crate) test: String,
    /// What it said first, on one line.
    pub(crate) words: String,
}

/// How a program of tests ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// All passed.
    Passed,
    /// Some failed.
    Failed(Vec<Failure>),
    /// It did not come to its end in time, and was killed.
    Hung,
    /// By a signal, or in a way that tests do not.
    Died(String),
}

/// A run of a program of tests.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) end: End,
    /// All that it wrote.
    pub(crate) said: String,
}

/// Runs a program of tests, for `patience` at most.
///
/// # Errors
/// It cannot be started or read, or a signal came for us.
pub(crate) fn run(command: &mut Command, patience: Duration) -> Outcome<Trial> {
    let name = shown(command);
    let failed = |what: &str, why: std::io::Error| format!("cannot {what} `{name}`: {why}");
    let file = tempfile::NamedTempFile::new().map_err(|why| failed("keep what is said by", why))?;
    let again = || file.reopen().map(Stdio::from).map_err(|why| failed("keep what is said by", why));
    // A group of its own, so that what it starts ends with it.
    command.stdin(Stdio::null()).stdout(again()?).stderr(again()?).process_group(0);
    let mut child = command.spawn().map_err(|why| failed("start", why))?;
    let ended = wait(&mut child, patience).map_err(|why| failed("wait for", why))?;
    interrupt::check()?;
    let mut bytes = Vec::new();
    File::open(file.path())
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|why| failed("read what was said by", why))?;
    let said = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Trial { end: end(ended, &said), said })
}

/// `None` when it was killed, for it took too long or we are asked to end.
fn wait(child: &mut Child, patience: Duration) -> std::io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    while begin.elapsed() < patience && interrupt::check().is_ok() {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(LOOK);
    }
    let _ended_just_now = kill_process_group(Pid::from_child(child), Signal::KILL);
    child.wait().map(|_| None)
}

fn end(status: Option<ExitStatus>, said: &str) -> End {
    let Some(status) = status else { return End::Hung };
    if status.success() {
        return End::Passed;
    }
    let failures = failures(said);
    // What a program of tests ends with when some failed. Source: rust-lang/rust `library/test/src/lib.rs`,
    // `ERROR_EXIT_CODE`.
    if status.code() == Some(101) && !failures.is_empty() {
        return End::Failed(failures);
    }
    End::Died(status.signal().map_or_else(|| status.to_string(), |signal| format!("signal {signal}")))
}

/// The tests that failed, by what their program says of each.
fn failures(said: &str) -> Vec<Failure> {
    let mut all: Vec<Failure> = Vec::new();
    let mut lines = said.lines().peekable();
    while let Some(line) = lines.next() {
        let section = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(test) = section {
            all.push(Failure { test: test.to_owned(), words: String::new() });
            continue;
        }
        let Some(last) = all.last_mut() else { continue };
        if !last.words.is_empty() || !line.contains("panicked at ") {
            continue;
        }
        let mut words = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.is_empty() && !line.starts_with("note: run with")) {
            words.push(line.trim());
        }
        last.words = words.join("; ");
    }
    all
}

/// What the language says when a program goes wrong. It is no test's assertion that did.
const RUNTIME: &[&str] = &[
    "index out of bounds",
    "attempt to ",
    "range start index",
    "range end index",
    "slice index",
    "called `Option::unwrap()`",
    "called `Result::unwrap()`",
    "unsafe precondition",
    "misaligned pointer",
    "null pointer",
    "internal error: entered unreachable code",
    "explicit panic",
];

impl Failure {
    /// Whether a rule or an assertion was broken that has words of its own.
    pub(crate) fn is_named(&self) -> bool {
        !self.words.is_empty() && !RUNTIME.iter().any(|start| self.words.starts_with(start))
    }

    /// Its words, not too many of them.
    pub(crate) fn brief(&self) -> String {
        const MOST: usize = 150;
        if self.words.chars().count() <= MOST {
            return self.words.clone();
        }
        self.words.chars().take(MOST).chain("...".chars()).collect()
    }
}

/// How many were tried, and what came of them.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) found: usize,
    pub(crate) survived: usize,
    /// Those of which something else was said.
    pub(crate) wrong: usize,
}

impl Tally {
    /// Counts one, and gives the word for it.
    pub(crate) fn count(&mut self, found: bool, as_said: bool) -> &'static str {
        self.wrong += usize::from(!as_said);
        if found {
            self.found += 1;
            "found"
        } else {
            self.survived += 1;
            "survives"
        }
    }

    /// The last line.
    pub(crate) fn told(&self, what: &str) -> String {
        let Self { found, survived, .. } = self;
        format!("{} {what}, {found} found, {survived} survived", found + survived)
    }
}

/// Milliseconds, so rounded that two runs agree.
pub(crate) fn rounded(time: Duration) -> u128 {
    time.as_millis() / 100 * 100
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
running 3 tests
test a::one ... FAILED
test two ... ok
test three ... FAILED

failures:

---- a::one stdout ----
a line of its own

thread 'a::one' (7) panicked at pmd-mlx/tests/port/data.rs:3:5:
assertion `left == right` failed: every one home
  left: 1
 right: 0
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

---- three stdout ----

thread 'three' (9) panicked at src/lib.rs:1:1:
index out of bounds: the len is 1 but the index is 1


failures:
    a::one
    three

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn a_failure_has_its_first_words_and_the_language_has_none() {
        let failures = failures(SAID);
        let [one, three] = &failures[..] else { panic!("{failures:?}") };
        assert_eq!((one.test.as_str(), three.test.as_str()), ("a::one", "three"));
        assert_eq!(one.words, "assertion `left == right` failed: every one home; left: 1; right: 0");
        assert!(one.is_named() && !three.is_named());
    }

    #[test]
    fn a_program_that_hangs_or_dies_found_nothing() {
        let sh = |script: &str, patience| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(&mut command, Duration::from_millis(patience)).expect("it runs").end
        };
        assert_eq!(sh("exit 0", 10_000), End::Passed);
        assert_eq!(sh("sleep 60 & sleep 60", 100), End::Hung);
        assert_eq!(sh("kill -SEGV $$", 10_000), End::Died("signal 11".into()));
        assert!(matches!(sh("echo nothing; exit 101", 10_000), End::Died(_)), "no test said that it failed");
        let script = format!("cat <<'END'\n{SAID}END\nexit 101");
        assert!(matches!(sh(&script, 10_000), End::Failed(failures) if failures.len() == 2));
    }
}
