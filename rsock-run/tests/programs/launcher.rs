//! `rsock-run` itself: what it refuses, how it ends, and what it makes of strangers at its control socket.

use std::time::{Duration, Instant};

use pollux_tests::program::Running;
use pollux_tests::require::{Need, require};

use super::bed::{Bed, End, LIMIT, must};

#[test]
fn what_it_cannot_run_is_one_line() {
    let bed = Bed::new();
    let plain = bed.path().join("plain");
    std::fs::write(&plain, "text").expect("a file");
    let plain = plain.to_str().expect("a path");
    let not_executable =
        format!("rsock-run: {plain} is not executable: chmod +x makes it so, or name its interpreter");
    for (arguments, status, line) in [
        (
            &[][..],
            2,
            "rsock-run: no program given: rsock-run [EAL options] -- PROGRAM [ARGUMENTS], such as -- iperf3 -s",
        ),
        (&["--"], 2, "rsock-run: no program given: "),
        (&["--", "there-is-none"], 127, "rsock-run: there is no program there-is-none in PATH"),
        (&["--", "./there-is-none"], 127, "rsock-run: there is no program ./there-is-none"),
        (&["--", plain], 126, &not_executable),
        (&["--", "/etc"], 126, "rsock-run: /etc is not a file"),
        (&["--no-huge", "-a", "mlx5_77", "--", "true"], 1, "rsock-run: "),
        (&["--vdev", "mlx5_modle0", "--", "true"], 1, "rsock-run: "),
        (&["--lcoers", "0", "--", "true"], 2, "rsock-run: "),
    ] {
        let mut command = bed.bare();
        command.args(arguments);
        let end = Running::start(command).finish(LIMIT);
        let messages = end.messages();
        assert_eq!(messages.len(), 1, "{arguments:?}: {messages:?}");
        assert!(messages[0].starts_with(line), "{arguments:?}: {messages:?}");
        assert_eq!(end.status.code(), Some(status), "{arguments:?}: {messages:?}");
    }
    // A program that loads no libraries; glibc's own is one.
    if std::path::Path::new("/sbin/ldconfig").exists() {
        let mut command = bed.bare();
        command.args(["--", "/sbin/ldconfig", "--version"]);
        let end = Running::start(command).finish(LIMIT);
        assert_eq!(end.status.code(), Some(126));
        assert!(
            end.messages()[0].starts_with("rsock-run: /sbin/ldconfig is linked statically: "),
            "{:?}",
            end.stderr
        );
    }
    assert_eq!(bed.left(), 0);
}

#[test]
fn a_path_that_cannot_be_preloaded_is_one_line() {
    let bed = Bed::new();
    let built = std::path::Path::new(env!("CARGO_BIN_EXE_rsock-run"));
    for name in ["a space", "a:colon"] {
        let folder = bed.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let own = folder.join("rsock-run");
        std::fs::copy(built, &own).expect("a copy");
        std::fs::write(folder.join("libpollux_rsock_run.so"), "").expect("a file");
        let mut command = std::process::Command::new(own);
        command.args(["--", "true"]).env("TMPDIR", bed.path());
        let end = Running::start(command).finish(LIMIT);
        let messages = end.messages();
        assert_eq!((end.status.code(), messages.len()), (Some(1), 1), "{messages:?}");
        assert!(messages[0].contains("has a space or a colon in its path"), "{messages:?}");
    }
}

#[test]
fn its_status_is_its_programs_and_help_is_its_own() {
    let bed = Bed::new();
    let status = |program: &[&str]| bed.start(End::Server, program).finish(LIMIT);
    assert_eq!(status(&["sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(status(&["sh", "-c", "kill -9 $$"]).status.code(), Some(137));
    assert_eq!(status(&["sh", "-c", "echo $0 $1", "-h", "--"]).stdout, "-h --\n");
    let mut help = bed.bare();
    help.arg("--help");
    let help = must(Running::start(help));
    assert!(help.contains("rsocket protocol") && help.contains("--vdev"), "{help}");
    assert_eq!(bed.left(), 0);
}

#[test]
fn signals_are_the_programs_as_often_as_they_come() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let bed = Bed::new();
    let program = "
import signal, sys, time
def heard(number, _):
    global count
    count += 1; print('heard', count, file=sys.stderr, flush=True)
    if count == 3: sys.exit(5)
count = 0
signal.signal(signal.SIGTERM, heard); print('ready', file=sys.stderr, flush=True)
while True: time.sleep(1)
";
    let mut program = bed.python(End::Server, program, &[]);
    program.wait_for("ready");
    for count in 1..=3 {
        program.signal(15);
        program.wait_for(&format!("heard {count}"));
        std::thread::sleep(Duration::from_millis(600));
    }
    assert_eq!(program.finish(LIMIT).status.code(), Some(5));
    assert_eq!(bed.left(), 0);
}

/// The launcher has a descriptor for each connection; the program keeps its limit.
#[test]
fn its_descriptors_are_as_many_as_may_be() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let bed = Bed::new();
    let program = "
import os, resource, time
limit = lambda pid: resource.prlimit(pid, resource.RLIMIT_NOFILE)
for _ in range(1000):
    if limit(os.getppid()) == (512, 512): break
    time.sleep(0.01)
print(limit(os.getppid()), limit(0))
";
    let launcher = bed.launcher(End::Server);
    let mut command = std::process::Command::new("prlimit");
    command.arg("--nofile=256:512").arg(launcher.get_program()).args(launcher.get_args());
    command.args(["--", pollux_tests::require::PYTHON, "-c", program]);
    command.env("TMPDIR", bed.path()).env("RUNTIME_DIRECTORY", bed.path());
    assert_eq!(must(Running::start(command)), "(512, 512) (256, 512)\n");
}

/// Bytes that are no request, half a request, a request too much: each ends the call of who sent it, and nothing else.
#[test]
fn strangers_at_its_control_socket_do_no_harm() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let bed = Bed::new();
    let program = "
import os, random, socket, stat
path = os.environ['RSOCK_RUN']
assert stat.S_IMODE(os.stat(os.path.dirname(path)).st_mode) == 0o700
chance = random.Random(1)
held = []
for number in range(400):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect(path)
    length = chance.choice([0, 1, 42, 43, 44, 5000])
    data = bytearray(chance.randbytes(length))
    if length == 43:
        # Requests by their look: a kind, and addresses of IPv4.
        data[0] = chance.randrange(1, 16); data[1:5] = bytes(4)
        for at in (5, 24):
            data[at] = chance.choice([0, 4, 6]); data[at + 5:at + 17] = bytes(12)
            if data[at] == 0: data[at:at + 19] = bytes(19)
    s.send(data)
    if number % 3: s.close()
    else: held.append(s)
t = socket.create_server(('10.9.0.1', 0))
c = socket.create_connection(t.getsockname())
d, peer = t.accept(); d.sendall(b'well'); print(c.recv(10), peer[0])
";
    assert_eq!(must(bed.python(End::Server, program, &[])), "b'well' 10.9.0.1\n");
}

/// While nothing happens it costs a few percent of a processor.
#[test]
fn an_idle_program_costs_little() {
    let bed = Bed::new();
    let begin = Instant::now();
    let mut program = bed.start(End::Server, &["sh", "-c", "echo ready >&2; sleep 2.5"]);
    program.wait_for("ready");
    std::thread::sleep(Duration::from_millis(300));
    let share = pollux_tests::thread::share(program.pid(), "lcore-0", Duration::from_secs(2));
    assert!(share < 0.10, "{:.1} % of a processor", share * 100.0);
    must(program);
    assert!(begin.elapsed() < Duration::from_secs(30));
}
