//! Programs that share the devices of a daemon, and what becomes of either when the other ends.
#![expect(unsafe_code, reason = "fork(2), and a request of a network interface")]

use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pollux_verbs::Dm;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with,
};

use super::bed::{Bed, Ended, free_port, start, until_listening, wait};
use super::client::{client, is_client_with, is_started};
use super::fork::{context, end, file, fork};

/// `mlx5-run --serve`.
struct Daemon {
    child: Child,
    socket: PathBuf,
    _bed: Bed,
}

impl Daemon {
    fn start(options: &[&str]) -> Self {
        let bed = Bed::new();
        let socket = bed.path().join("daemon");
        Self { child: serving(&bed, &socket, options), socket, _bed: bed }
    }

    /// What a program is attached with.
    fn options(&self) -> [&str; 2] {
        ["--attach", self.socket.to_str().expect("text")]
    }

    /// Ends it by a signal.
    fn end(self) -> Ended {
        signal(self.child.id(), "TERM");
        let ended = wait(self.child);
        assert!(!self.socket.exists(), "its socket is gone");
        ended
    }

    /// The same; it must end well, with nothing of its clients' left in its devices.
    fn must_end(self) {
        let ended = self.end();
        assert_eq!(ended.status, Some(0), "{}", ended.said);
        assert!(ended.said.contains("\"objects_left\":0,"), "{}", ended.said);
        assert!(ended.said.contains("\"rules_broken\":0"), "{}", ended.said);
    }
}

/// A daemon whose devices programs can be attached to.
fn serving(bed: &Bed, socket: &Path, options: &[&str]) -> Child {
    let mut command = bed.launcher(&["--serve", socket.to_str().expect("text"), "--summary=json"]);
    let mut child = start(command.args(options));
    assert!(line(&mut child).starts_with("mlx5-run: serving mlx5_0"));
    child
}

/// The next line of a program that prints no more than that for now.
fn line(child: &mut Child) -> String {
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().expect("a pipe")).read_line(&mut said).expect("text");
    said
}

fn signal(process: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

fn packet_socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
}

/// A connection that no `mlx5-run` made.
fn stranger(to: &Path) -> OwnedFd {
    let socket = packet_socket();
    connect(&socket, &SocketAddrUnix::new(to).expect("an address")).expect("connected");
    socket
}

#[test]
fn programs_share_a_device() {
    let daemon = Daemon::start(&[]);
    let bed = Bed::new();
    let options = daemon.options();
    for program in [&["ibv_rc_pingpong", "-g", "1"][..], &["ibv_ud_pingpong", "-g", "1", "-e"]] {
        bed.must(&options, program, "-p");
    }
    bed.must(&options, &["ib_write_bw", "-n", "50", "-F"], "-p");
    assert_eq!(bed.left(), [""; 0]);
    daemon.must_end();
}

#[test]
fn devices_of_a_daemon_are_joined_by_its_wires() {
    let daemon = Daemon::start(&["--ports", "2", "--wire", "cable:a", "--wire", "cable:a"]);
    let (bed, port, options) = (Bed::new(), free_port(), daemon.options());
    let program = |device| ["ibv_rc_pingpong", "-g", "1", "-d", device, "-p", &port];
    let server = until_listening(start(&mut bed.command(&options, &program("mlx5_0"))), &port);
    let client = bed.run(&options, &[&program("mlx5_1")[..], &["127.0.0.1"]].concat());
    assert_eq!(client.status, Some(0), "{}", client.said);
    assert_eq!(wait(server).status, Some(0));
    let said = daemon.end().said;
    let sent = said.matches("\"frames_sent\":").count();
    assert_eq!((sent, said.matches("\"frames_sent\":0,").count()), (2, 0), "both sent: {said}");
}

/// Takes all memory of the device that there is, at least as many pieces as `wanted`, and ends as if shot.
fn take_all_and_die(wanted: usize) {
    let context = context(file());
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut held = Vec::new();
    loop {
        match Dm::new(&context, 4096, 0) {
            Ok(piece) => held.push(piece),
            Err(_) if held.len() < wanted && Instant::now() < deadline => {
                // The daemon hears of an end a little later.
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(_) => break,
        }
        assert!(held.len() < 100_000, "memory of a device has an end");
    }
    println!("held={}", held.len());
    // SAFETY: it ends this process.
    unsafe { libc::raise(libc::SIGKILL) };
}

#[test]
fn what_a_killed_program_had_goes_with_it() {
    const TEST: &str = "daemon::what_a_killed_program_had_goes_with_it";
    const WANTED: &str = "POLLUX_WANTED";
    if is_started() {
        let wanted = std::env::var(WANTED).expect("a number").parse().expect("a number");
        return take_all_and_die(wanted);
    }
    let daemon = Daemon::start(&[]);
    let bed = Bed::new();
    let held = |wanted: &str| {
        let ended = wait(start(client(&bed, &daemon.options(), TEST).env(WANTED, wanted)));
        assert_eq!(ended.status, Some(137), "{}", ended.said);
        let (_, held) = ended.said.split_once("held=").unwrap_or_else(|| panic!("{}", ended.said));
        held.lines().next().expect("a number").to_owned()
    };
    let first = held("1");
    assert_eq!(held(&first), first);
    // And one that had begun to talk with another.
    let port = free_port();
    let program = format!("ibv_rc_pingpong -g 1 -p {port} >/dev/null & echo $!; wait");
    let mut server = start(&mut bed.command(&daemon.options(), &["sh", "-c", &program]));
    let process: u32 = line(&mut server).trim().parse().expect("its number");
    let server = until_listening(server, &port);
    signal(process, "KILL");
    assert_eq!(wait(server).status, Some(0), "the shell's");
    bed.must(&daemon.options(), &["ibv_rc_pingpong", "-g", "1"], "-p");
    assert_eq!(daemon.end().status, Some(0));
}

#[test]
fn strangers_keep_nobody_out() {
    let daemon = Daemon::start(&[]);
    let silent: Vec<OwnedFd> = (0..600).map(|_| stranger(&daemon.socket)).collect();
    // Requests in front of the greeting, of kinds that there are not, cut off, too long; a greeting of another version, and one of
    // memory that is not there.
    let numbers =
        |numbers: &[u64]| -> Vec<u8> { numbers.iter().flat_map(|number| number.to_ne_bytes()).collect() };
    let words = [
        numbers(&[2; 6]),
        numbers(&[u64::MAX; 6]),
        vec![5; 3],
        vec![1; 9000],
        numbers(&[5; 6]),
        numbers(&[5, 1, 8, 0, 0, 0]),
    ];
    for word in &words {
        let socket = stranger(&daemon.socket);
        let _refused = send(&socket, word, SendFlags::NOSIGNAL);
        let mut answer = [0; 48];
        let mut file = std::fs::File::from(socket);
        // An answer that refuses, or none; and then the end.
        while file.read(&mut answer).is_ok_and(|bytes| bytes > 0) {
            assert_ne!(answer[..8], [0; 8], "{word:?}");
        }
    }
    let bed = Bed::new();
    bed.must(&daemon.options(), &["ibv_rc_pingpong", "-g", "1"], "-p");
    drop(silent);
    daemon.must_end();
}

#[test]
fn a_killed_daemon_is_told_of_and_started_again() {
    let mut daemon = Daemon::start(&[]);
    let bed = Bed::new();
    let opens = "exec 3<>/dev/infiniband/uverbs0; echo opened; exec sleep 50";
    let mut program = start(&mut bed.command(&daemon.options(), &["sh", "-c", opens]));
    assert_eq!(line(&mut program), "opened\n");
    daemon.child.kill().expect("it runs");
    let _status = daemon.child.wait().expect("its end");
    let refused = bed.run(&daemon.options(), &["true"]);
    assert_eq!(refused.status, Some(1));
    assert!(
        refused.said.contains("no daemon listens there: start one with `mlx5-run --serve`"),
        "{}",
        refused.said
    );
    // Neither the killed daemon's socket nor a program of its, which no longer uses the device, is in the way of another daemon.
    daemon.child = serving(&bed, &daemon.socket, &[]);
    bed.must(&daemon.options(), &["ibv_rc_pingpong", "-g", "1"], "-p");
    signal(program.id(), "TERM");
    assert_eq!(wait(program).status, Some(143));
    daemon.must_end();
}

#[test]
fn a_program_that_polls_learns_of_the_end() {
    let mut daemon = Daemon::start(&[]);
    let (bed, port) = (Bed::new(), free_port());
    // It waits for its client by TCP, with the device open.
    let program = ["ibv_rc_pingpong", "-g", "1", "-p", &port];
    let server = until_listening(start(&mut bed.command(&daemon.options(), &program)), &port);
    daemon.child.kill().expect("it runs");
    let _status = daemon.child.wait().expect("its end");
    let ended = wait(server);
    assert_eq!(ended.status, Some(143), "{}", ended.said);
    assert!(ended.said.contains("has ended, and its devices with it"), "{}", ended.said);
    assert!(ended.said.contains("still has them open: it is terminated"), "{}", ended.said);
}

/// The MTU of the device's network interface, as ioctl tells it.
fn mtu() -> i32 {
    // SAFETY: all zero is a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"mlx5run0") {
        *to = *from as libc::c_char;
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    // SAFETY: a request with room for the answer.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it is the MTU that was asked for.
    unsafe { request.ifr_ifru.ifru_mtu }
}

/// Children are answered as their parent is, about the network interface too.
fn forks() {
    let file =
        std::fs::File::options().read(true).write(true).open("/dev/infiniband/uverbs0").expect("a device");
    assert_eq!(mtu(), 1500);
    let child = fork(|| {
        assert_eq!(mtu(), 1500);
        let counters = "/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer";
        assert_eq!(std::fs::read_to_string(counters).expect("a counter").trim(), "0");
        assert_eq!(end(fork(|| assert_eq!(mtu(), 1500))), 0);
    });
    assert_eq!(end(child), 0);
    drop(file);
}

#[test]
fn a_forked_child_asks_the_daemon() {
    const TEST: &str = "daemon::a_forked_child_asks_the_daemon";
    if is_started() {
        return forks();
    }
    let daemon = Daemon::start(&[]);
    assert!(!is_client_with(&daemon.options(), TEST));
    daemon.must_end();
}

#[test]
fn a_forked_child_asks_its_parent() {
    if is_client_with(&[], "daemon::a_forked_child_asks_its_parent") {
        forks();
    }
}

#[test]
fn stepped_devices_of_a_daemon_work_when_a_program_says_so() {
    const TEST: &str = "daemon::stepped_devices_of_a_daemon_work_when_a_program_says_so";
    if is_started() {
        return super::stepped::hold_the_other_end();
    }
    let daemon = Daemon::start(&["--stepped", "--wire", "cable:far"]);
    // The second has the end that the first one had.
    for _ in 0..2 {
        assert!(!is_client_with(&daemon.options(), TEST));
    }
    assert_eq!(daemon.end().status, Some(0));
}

#[test]
fn what_cannot_be_is_one_line() {
    let bed = Bed::new();
    let at = |name: &str| bed.path().join(name).to_string_lossy().into_owned();
    let (nowhere, file, stream, folder) = (at("nowhere"), at("file"), at("stream"), at("a/b/c"));
    std::fs::write(&file, "text").expect("a file");
    let _stream = UnixListener::bind(&stream).expect("a socket");
    let long = at(&"x".repeat(120));
    let daemon = Daemon::start(&[]);
    let taken = daemon.socket.to_string_lossy().into_owned();
    for (options, status, part) in [
        (&["--attach", &nowhere, "--", "true"][..], 1, "no daemon listens there"),
        (&["--attach", &file, "--", "true"], 1, "no daemon listens there"),
        (&["--attach", &stream, "--", "true"], 1, "it gives no answer that mlx5-run knows"),
        (&["--attach", &taken, "--ports", "2", "--", "true"], 2, "cannot be used with"),
        (&["--attach", &taken, "--summary", "--", "true"], 2, "cannot be used with"),
        (&["--attach", &taken], 2, "PROGRAM"),
        (&["--serve", &nowhere, "--", "true"], 2, "cannot be used with"),
        (&["--serve", &taken], 1, "another process has this socket open"),
        (&["--serve", &file], 1, "is no socket"),
        (&["--serve", &folder], 1, "No such file or directory"),
        (&["--serve", &long], 1, "a socket's path has 1 to 107 bytes"),
        (&["--serve", &nowhere, "--wire", "iface:nosuch0"], 1, "nosuch0"),
    ] {
        let ended = wait(start(&mut bed.launcher(options)));
        assert_eq!(ended.status, Some(status), "{options:?}: {}", ended.said);
        assert!(ended.said.contains(part), "{options:?}: {}", ended.said);
        assert!(status == 2 || ended.said.trim_end().lines().count() == 1, "{options:?}: {}", ended.said);
    }
    assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "text");
    assert!(!Path::new(&nowhere).exists(), "nothing is left");
    daemon.must_end();
}

/// The daemon reads and writes its clients' memory, and so it may not be another user's.
#[test]
fn another_user_is_refused() {
    // SAFETY: a question.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: wants root, who may become another user");
        return;
    }
    let daemon = Daemon::start(&[]);
    let bed = Bed::new();
    for path in [daemon.socket.parent().expect("a folder"), &daemon.socket, bed.path()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("its rights");
    }
    // The file itself may be where that user cannot look.
    let launcher = bed.path().join("mlx5-run");
    let own = Path::new(env!("CARGO_BIN_EXE_mlx5-run"));
    std::fs::copy(own, &launcher).expect("a copy");
    // Where cargo has it: beside the program only if it was asked to build the library itself.
    let library = "libpollux_mlx5_run.so";
    let mut places = [own.with_file_name(library), own.with_file_name("deps").join(library)].into_iter();
    let from = places.find(|path| path.exists()).expect("the library");
    std::fs::copy(from, bed.path().join(library)).expect("a copy");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(launcher);
    command.args(daemon.options()).args(["--", "true"]).env("TMPDIR", bed.path()).stdin(Stdio::null());
    let ended = wait(start(&mut command));
    assert_eq!(ended.status, Some(1), "{}", ended.said);
    assert!(ended.said.contains("the daemon is another user's: run both as one user"), "{}", ended.said);
    daemon.must_end();
}

#[test]
fn it_ends_with_programs_attached() {
    let daemon = Daemon::start(&[]);
    let (bed, port) = (Bed::new(), free_port());
    let server = start(&mut bed.command(&daemon.options(), &["ibv_rc_pingpong", "-g", "1", "-p", &port]));
    let server = until_listening(server, &port);
    let begin = Instant::now();
    let ended = daemon.end();
    assert!(begin.elapsed() < Duration::from_secs(5), "at once");
    assert_eq!(ended.status, Some(0), "{}", ended.said);
    assert_eq!(wait(server).status, Some(143));
}
