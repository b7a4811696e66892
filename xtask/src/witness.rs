//! `cargo xtask witness`: rdma-core's own test suite and DPDK's newest driver on our devices, in processes of this machine; and
//! the recipe of `mlx5-run/container`.
//!
//! ```text
//!   Debian's python3-pyverbs ── suite ──► cache     (the tests come with it, and are never committed)
//!   mlx5-run ── native.py TEST.. ──► report, a line of JSON a test ──► table ── beside tests/witness/pyverbs/native.txt
//! ```
//!
//! DPDK comes from a root of Debian sid; the tests of `mlx5-run` that run this machine's are run with that one. Of its source, where that can be
//! fetched, the parsers of its test suite read what our testpmd prints.
//!
//! The virtual machine's job `pyverbs` runs the suite over Linux's mlx5_ib; here `mlx5-kernel` answers in its stead.

mod dts;
mod report;
mod suite;
mod table;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::run::{Outcome, build, cargo, must, release_dir, root, target_dir};
use crate::{debian, interrupt};
use report::{Report, Verdict};
use suite::Suite;
use table::Table;

/// Tests that have to pass, whatever the table says.
const LEAST: usize = 150;
/// Seconds for a test; then the suite's process ends itself and says where it stood.
const LIMIT: u64 = 60;
/// How much longer one that does not may go on.
const GRACE: Duration = Duration::from_secs(10);
/// How often who waits looks.
const LOOK: Duration = Duration::from_millis(20);
/// What the cards can do beside what all can, as in `tests/witness/pyverbs/job.toml`.
const WITH: &str = "on-demand-paging,padded-completions,dynamic-connections,signatures";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only rdma-core's tests whose names contain TEXT
    #[arg(long, value_name = "TEXT", conflicts_with = "record")]
    test: Option<String>,
    /// Write the table of results anew instead of comparing with it
    #[arg(long)]
    record: bool,
}

pub(crate) fn witness(args: &Args) -> Outcome {
    interrupt::listen()?;
    pyverbs(args)?;
    if args.test.is_none() && !args.record {
        dpdk()?;
        container()?;
    }
    Ok(())
}

/// The container's recipe, without a container's tools: the programs that [`pyverbs`] built, in a root of this release.
fn container() -> Outcome {
    debian::needs_root("the container's recipe")?;
    must(Command::new(root().join("mlx5-run/container/try")).arg(release_dir()).arg(debian::release()?))
}

/// Where it has its root, the tests find no reason to be skipped.
/// Of the whole workspace: one package alone has other features, and is built again with all that it needs.
fn dpdk() -> Outcome {
    let root = debian::newest_dpdk()?;
    for tests in ["dpdk", "telemetry", "usertools"] {
        must(cargo(&["test", "--workspace", "--test", tests]).env("POLLUX_DPDK_ROOT", &root))?;
    }
    match dts::fetch()? {
        Ok(dts) => {
            let tests = ["test", "--workspace", "--test=prompt", "dts"];
            must(cargo(&tests).env(dts::AT_HAND, dts))
        }
        Err(why) => {
            eprintln!("xtask: skipped: the parsers of DPDK's test suite: {why}");
            Ok(())
        }
    }
}

fn pyverbs(args: &Args) -> Outcome {
    build(&["mlx5-run"])?;
    let suite = Suite::fetch(&debian::cache_dir()?)?;
    let run = Run::new(suite)?;
    let mut names = run.names()?;
    if let Some(text) = &args.test {
        names.retain(|name| name.contains(text.as_str()));
    }
    let report = run.all(&names)?;
    let count = |wanted: fn(&Verdict) -> bool| report.iter().filter(|(_, verdict)| wanted(verdict)).count();
    let passed = count(|verdict| *verdict == Verdict::Passed);
    let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
    let failing = report.len() - passed - skipped;
    let path = root().join("tests/witness/pyverbs/native.txt");
    let known = match fs::read_to_string(&path) {
        Ok(text) => Table::parse(&text).map_err(|why| format!("{}: {why}", path.display()))?,
        Err(_) if args.record => Table::default(),
        Err(why) => return Err(format!("cannot read {}: {why}; --record writes it", path.display())),
    };
    eprintln!("xtask: pyverbs {}: {passed} passed, {failing} failing, {skipped} skipped", run.suite.version);
    if args.record {
        let text = known.renewed(&run.suite.version, &report).to_string();
        return fs::write(&path, text).map_err(|why| format!("cannot write {}: {why}", path.display()));
    }
    if known.version != run.suite.version {
        return Err(format!(
            "the table is of pyverbs {}, this machine has {}: --record writes it anew",
            known.version, run.suite.version
        ));
    }
    let difference = known.compare(
        &report,
        table::Run { is_whole: args.test.is_none(), as_root: rustix::process::getuid().is_root() },
    );
    difference.news.iter().for_each(|line| eprintln!("xtask: {line}"));
    difference.losses.iter().for_each(|line| eprintln!("xtask: not ok: {line}"));
    if !difference.losses.is_empty() {
        return Err(format!(
            "pyverbs: {} tests that passed do not; see {}",
            difference.losses.len(),
            run.log.display()
        ));
    }
    let on_this_machine = passed + difference.excused;
    if args.test.is_none() && on_this_machine < LEAST {
        return Err(format!("pyverbs: {on_this_machine} passed, where {LEAST} have to"));
    }
    Ok(())
}

/// The suite under `mlx5-run`.
struct Run {
    suite: Suite,
    /// What tests say.
    log: PathBuf,
    /// Removed with all in it.
    folder: tempfile::TempDir,
}

impl Run {
    fn new(suite: Suite) -> Outcome<Self> {
        let logs = target_dir().join("witness");
        fs::create_dir_all(&logs).map_err(|why| format!("cannot make {}: {why}", logs.display()))?;
        let log = logs.join("pyverbs.log");
        File::create(&log).map_err(|why| format!("cannot write {}: {why}", log.display()))?;
        let folder = tempfile::Builder::new().prefix("pollux-witness-").tempdir();
        let folder = folder.map_err(|why| format!("cannot make a folder for reports: {why}"))?;
        Ok(Self { suite, log, folder })
    }

    /// All tests of the suite.
    fn names(&self) -> Outcome<Vec<String>> {
        let path = self.folder.path().join("names");
        self.turn(&path, &[])?;
        let names = report::names(&read(&path)?)?;
        if names.is_empty() {
            Err(format!("the suite has no tests; see {}", self.log.display()))
        } else {
            Ok(names)
        }
    }

    /// Runs the tests; after one that ended the suite's process, the rest in another.
    fn all(&self, names: &[String]) -> Outcome<Report> {
        let mut done = Report::default();
        let mut rest = names.to_vec();
        for turn in 0.. {
            if rest.is_empty() {
                break;
            }
            let path = self.folder.path().join(format!("report{turn}"));
            let stray = self.turn(&path, &rest)?;
            let mut report = report::parse(&read(&path)?)?;
            if report.is_empty() {
                return Err(format!("the suite ran no test; see {}", self.log.display()));
            }
            // Whose processes are left is the last one's that began.
            if let (true, Some((_, verdict))) = (stray, report.last_mut()) {
                *verdict = Verdict::Failing("left processes behind, or did not end".into());
            }
            rest.retain(|name| report.iter().all(|(done, _)| done != name));
            done.extend(report);
        }
        Ok(done)
    }

    /// Starts the suite once, and waits for its end, which comes in time or is brought about. Whether anything was left of it then.
    fn turn(&self, report: &Path, tests: &[String]) -> Outcome<bool> {
        File::create(report).map_err(|why| format!("cannot write {}: {why}", report.display()))?;
        let log = || File::options().append(true).open(&self.log);
        let (out, error) = (log(), log());
        let (out, error) = (
            out.map_err(|why| format!("{why}"))?,
            error.map_err(|why| format!("cannot write a log: {why}"))?,
        );
        let mut command = Command::new(release_dir().join("mlx5-run"));
        command.args(["--ports", "2", "--wire", "cable:a", "--wire", "cable:a", "--with", WITH, "--"]);
        command.arg("/usr/bin/python3").arg("-u").arg(root().join("tests/witness/pyverbs/native.py"));
        command.arg(report).arg(LIMIT.to_string()).args(tests);
        self.suite.environment(&mut command);
        // What a run leaves that is ended goes with the folder.
        command.env("TMPDIR", self.folder.path());
        command
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(error)
            .process_group(0);
        let child = command.spawn().map_err(|why| format!("cannot start mlx5-run: {why}"))?;
        Group::of(child).wait(report)
    }
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|why| format!("cannot read {}: {why}", path.display()))
}

/// A process and all that it started, which go with this.
struct Group {
    leader: Child,
    id: Pid,
}

impl Group {
    fn of(leader: Child) -> Self {
        let id = Pid::from_child(&leader);
        Self { leader, id }
    }

    /// Waits until its leader has ended, or the report did not grow for longer than a test may take.
    fn wait(mut self, report: &Path) -> Outcome<bool> {
        let limit = Duration::from_secs(LIMIT) + GRACE;
        let (mut bytes, mut since) = (0, Instant::now());
        loop {
            interrupt::check()?;
            let ended = self.leader.try_wait().map_err(|why| format!("cannot wait for mlx5-run: {why}"))?;
            if ended.is_some() {
                break;
            }
            let now = fs::metadata(report).map_or(0, |file| file.len());
            if now != bytes {
                (bytes, since) = (now, Instant::now());
            }
            if since.elapsed() > limit {
                return Ok(true);
            }
            std::thread::sleep(LOOK);
        }
        // What it started may still be about to end.
        let begin = Instant::now();
        while self.is_there() && begin.elapsed() < GRACE {
            std::thread::sleep(LOOK);
        }
        Ok(self.is_there())
    }

    fn is_there(&self) -> bool {
        test_kill_process_group(self.id).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ended_already = kill_process_group(self.id, Signal::KILL);
        let _status = self.leader.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_leaves_is_ended_and_told() {
        let report = tempfile::NamedTempFile::new().expect("a file");
        let start = |script: &str| {
            let mut shell = Command::new("sh");
            Group::of(shell.args(["-c", script]).process_group(0).spawn().expect("a shell"))
        };
        assert_eq!(start("true").wait(report.path()), Ok(false));
        let left = start("sleep 1000 & true");
        let id = left.id;
        assert_eq!(left.wait(report.path()), Ok(true));
        let begin = Instant::now();
        while test_kill_process_group(id).is_ok() {
            assert!(begin.elapsed() < GRACE, "it is still there");
            std::thread::sleep(LOOK);
        }
    }
}
