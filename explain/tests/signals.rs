//! `explain` ended by a signal: behind a whole line, with what the trace was in all.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pollux_tests::program::{Finished, Running, with_default_signals};

const LINE: &str = "map 0x500000 4096 Read -> ok\n";
const SAID: &str = "page of the adapter's clock";
const END: Duration = Duration::from_secs(10);

/// The program; what it says goes to standard error, where a test sees it at once.
fn explain(arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" >&2", env!("CARGO_BIN_EXE_explain")]).args(arguments);
    with_default_signals(&command)
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// It explained so many maps, and ended by itself.
fn ended_behind(finished: &Finished, maps: usize) {
    let said = &finished.stderr;
    assert_eq!(finished.status.code(), Some(0), "{said:?}");
    assert_eq!(said.iter().filter(|line| line.contains(SAID)).count(), maps, "{said:?}");
    assert_eq!(said.last(), Some(&format!("in all: {maps} maps")), "{said:?}");
}

#[test]
fn a_file_that_is_followed_ends_with_what_it_was_in_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("calls");
    let mut file = std::fs::File::create(&path).expect("a file");
    file.write_all(LINE.as_bytes()).expect("a line");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut running = Running::start(explain(&["--follow", shown(&path)]));
        let _ = running.wait_for(SAID);
        running.signal(signal);
        ended_behind(&running.finish(END), 1);
    }
}

#[test]
fn a_pipe_that_gives_nothing_more_holds_up_no_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo runs");
    assert!(made.success());
    // Both ends, so that opening it waits for nobody.
    let mut pipe = std::fs::File::options().read(true).write(true).open(&path).expect("a pipe");
    let mut running = Running::start(explain(&[shown(&path)]));
    pipe.write_all(LINE.repeat(2).as_bytes()).expect("lines");
    let _ = running.wait_for("   2 mmap");
    running.signal(libc::SIGINT);
    ended_behind(&running.finish(END), 2);
}

#[test]
fn a_program_that_is_run_is_ended_and_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    let script = format!(
        "#!/bin/sh\ntrap 'exit 0' TERM\nprintf '%s\\n' '{}' >\"$POLLUX_UVERBS_TRACE.a0\"\necho ready\n\
         while :; do sleep 0.05; done\n",
        LINE.trim_end()
    );
    std::fs::write(&program, script).expect("a script");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("it may run");
    let mut running = Running::start(explain(&["--", shown(&program)]));
    let _ = running.wait_for("ready");
    running.signal(libc::SIGTERM);
    let finished = running.finish(END);
    assert!(finished.stderr.iter().any(|line| line == "device a0"), "{:?}", finished.stderr);
    ended_behind(&finished, 1);
}
