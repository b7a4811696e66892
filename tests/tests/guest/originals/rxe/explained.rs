//! An original whose calls `explain` tells while it runs: it is traced before it begins, for nearly all of its calls are made then.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pollux_tests::program::{Finished, Running};

use super::super::{Device, LIMIT, Program, free_port, listens};
use crate::bed::{here, ours, wait};

/// The name of this test, and of what it starts: itself, which waits for a file and is the original then.
const OWN: &str = "originals::rxe::explained::explained_as_it_runs";
/// The file, where this process is that one.
const FILE: &str = "POLLUX_EXPLAINED_BEGIN";
/// The words of the original, each on a line.
const WORDS: &str = "POLLUX_EXPLAINED_WORDS";
const ORIGINAL: &str = "ibv_rc_pingpong";

/// Waits for the file, and executes the original.
fn wait_and_execute(file: &Path) -> ! {
    wait("a file", LIMIT, || file.exists().then_some(()));
    let words = std::env::var(WORDS).expect("words");
    let why = Command::new(Program::original(ORIGINAL).0).args(words.lines()).exec();
    panic!("{ORIGINAL}: {why}")
}

fn succeeded(end: &Finished) {
    assert!(end.status.success(), "{}\n{}{}", end.status, end.stdout, end.stderr.join("\n"));
}

#[test]
fn explained_as_it_runs() {
    if let Some(file) = std::env::var_os(FILE) {
        wait_and_execute(Path::new(&file));
    }
    if !here() {
        return;
    }
    let device = Device::new("rxe0");
    let folder = tempfile::tempdir().expect("a folder");
    let begin = folder.path().join("begin");
    let port = free_port();
    let words = ["-g", &device.gid, "-p", &port, "-n", "100"];
    let mut server = Command::new(std::env::current_exe().expect("a program"));
    server.args(["--exact", OWN, "--nocapture"]).env(FILE, &begin);
    server.env(WORDS, [&["-d", "rxe0"][..], &words].concat().join("\n"));
    let server = Running::start(server);
    let pid = server.pid();
    // What it tells is more than a pipe holds that nobody reads.
    let told = std::fs::File::create(folder.path().join("told")).expect("a file");
    let mut explain = Command::new(ours("explain"));
    explain.args(["--pid", &pid.to_string(), "--follow"]);
    let mut explain = Following::start(explain, told);
    let text = || std::fs::read_to_string(folder.path().join("told")).unwrap_or_default();
    wait("a process that is traced", LIMIT, || text().contains("calls from now on:\n").then_some(()));
    std::fs::write(&begin, "").expect("a file");
    wait("a listening server", LIMIT, || listens(&port).then_some(()));
    let client = Program::original(ORIGINAL).start(&device, &words, Some("127.0.0.1"));
    succeeded(&client.finish(LIMIT));
    succeeded(&server.finish(LIMIT));
    let status = explain.finish();
    let text = text();
    println!("{}", text.lines().take(400).collect::<Vec<_>>().join("\n"));
    assert_eq!(status, Some(0), "explain did not end well");
    let has = |wanted: &[&str]| text.lines().any(|line| wanted.iter().all(|part| line.contains(part)));
    // By the ioctl's methods or by write commands: that is for libibverbs to choose, which changes it from release to release.
    for call in ["ALLOC_PD", "REG_MR", "MODIFY_QP"] {
        assert!(has(&[call, " -> ok"]), "no {call} that succeeds");
    }
    for object in ["CQ", "QP"] {
        let (method, command) = (format!(" {object}/CREATE,"), format!("CREATE_{object},"));
        assert!(has(&[&method, " -> ok"]) || has(&[&command, " -> ok"]), "no {object} that is made");
    }
    for wanted in [
        " open uverbs0 -> ok",
        " mmap pages of the device (offset ",
        " is made, in RESET",
        ": RESET -> INIT",
        ": INIT -> RTR",
        ": RTR -> RTS",
        " close: the channel is gone",
    ] {
        assert!(has(&[wanted]), "no line with {wanted:?}");
    }
    assert!(has(&[&format!("process {pid} executes: "), ORIGINAL]), "it is not told what is executed");
    assert!(has(&[&format!("process {pid} has ended, status 0")]), "its end is not told");
    for unwanted in
        ["unreadable", "not understood", "cannot be read", "is no line of a trace", "which is no command"]
    {
        assert!(!has(&[unwanted]), "a line with {unwanted:?}");
    }
}

/// `explain`, ended with the test whatever happens.
struct Following(std::process::Child);

impl Following {
    fn start(mut command: Command, told: std::fs::File) -> Self {
        Self(command.stdin(std::process::Stdio::null()).stdout(told).spawn().expect("explain starts"))
    }

    /// Its status, once it has ended by itself.
    fn finish(&mut self) -> Option<i32> {
        wait("the end of explain", LIMIT + Duration::from_secs(10), || {
            self.0.try_wait().expect("it is a child")
        })
        .code()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
