//! Connections that are the kernel's: without a device, and to peers without RDMA.

use std::process::Command;

use pollux_tests::netns::{Namespace, join};
use pollux_tests::program::Running;
use pollux_tests::require::{Need, PYTHON, require};

use super::bed::{Bed, End, LIMIT, must};

#[test]
fn without_a_device_all_is_the_kernels_and_one_line_says_so() {
    if std::path::Path::new("/dev/infiniband/rdma_cm").exists() {
        eprintln!("skipped: the kernel has a connection manager here");
        return;
    }
    let bed = Bed::new();
    let mut command = bed.bare();
    command.args(["--no-huge", "--", "sh", "-c", "echo $LD_PRELOAD$RSOCK_RUN; exit 3"]);
    let end = Running::start(command).finish(LIMIT);
    assert_eq!((end.status.code(), end.stdout.as_str()), (Some(3), "\n"));
    let messages = end.messages();
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].starts_with("rsock-run: no RDMA device: "), "{messages:?}");
}

/// Two hosts, of which one has a launcher, and a peer with a launcher but no server.
#[test]
fn peers_without_rdma_are_met_by_tcp_and_one_line_says_so() {
    if !require(&[Need::Root, Need::Net, Need::TcpPrograms]) {
        return;
    }
    let bed = Bed::new();
    let [here, there] = ["here", "there"].map(Namespace::new);
    join(&here, "eth0", &there, "eth0");
    here.ip(&["address", "add", "192.0.2.1/24", "dev", "eth0"]);
    there.ip(&["address", "add", "192.0.2.2/24", "dev", "eth0"]);
    let server = "
import socket, sys
s = socket.create_server(('192.0.2.2', 7000)); print('listening', file=sys.stderr, flush=True)
for _ in range(4):
    c, peer = s.accept(); c.sendall(peer[0].encode()); c.close()
";
    let mut server = Running::start(there.command(PYTHON, &["-c", server]));
    server.wait_for("listening");
    // Its device answers on the wire, and nobody listens there.
    let neighbour = bed.start(End::Server, &["sleep", "60"]);
    let client = "
import os, socket, time
for _ in range(4):
    if os.fork() == 0:
        c = socket.create_connection(('192.0.2.2', 7000)); assert c.recv(100) == b'192.0.2.1'
        assert c.getpeername() == ('192.0.2.2', 7000) and c.getsockname()[0] == '192.0.2.1'
        os._exit(0)
for _ in range(4): assert os.wait()[1] == 0
def refused(address):
    begin = time.time()
    try: socket.create_connection((address, 7000))
    except OSError as error: return type(error).__name__, error.errno, time.time() - begin < 8
time.sleep(0.5)
print(refused('10.9.0.1'), refused('10.9.0.77'))
";
    let launcher: Command = bed.launcher(End::Client);
    let words: Vec<&str> = launcher.get_args().map(|word| word.to_str().expect("text")).collect();
    let program = launcher.get_program().to_str().expect("text");
    let mut command = here.command(program, &[&words[..], &["--", PYTHON, "-c", client]].concat());
    for (name, value) in launcher.get_envs() {
        command.env(name, value.expect("a value"));
    }
    let end = Running::start(command).finish(LIMIT);
    assert!(end.status.success(), "{}{:?}", end.stdout, end.stderr);
    assert_eq!(end.stdout, "('ConnectionRefusedError', 111, True) ('OSError', 113, True)\n");
    let line = "rsock-run: 192.0.2.2 is on no network of an RDMA device; connections to such addresses are the kernel's TCP";
    assert_eq!(end.messages(), [line]);
    must(server);
    neighbour.signal(15);
    assert_eq!(neighbour.finish(LIMIT).status.code(), Some(128 + 15));
}

/// Nobody's rights: no locked memory, no huge pages, no capability.
#[test]
fn a_user_without_rights_has_it_all() {
    if !require(&[Need::Root, Need::TcpPrograms]) {
        return;
    }
    let bed = Bed::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(bed.path(), open).expect("its folder");
    // Where nobody may read: the build's folder is root's.
    for (file, name) in [
        (std::path::PathBuf::from(env!("CARGO_BIN_EXE_rsock-run")), "rsock-run"),
        (std::path::Path::new(env!("CARGO_BIN_EXE_rsock-run")).with_file_name("deps").join(LIBRARY), LIBRARY),
    ] {
        std::fs::copy(file, bed.path().join(name)).expect("a copy");
    }
    let as_nobody = |end: End, program: &str| {
        let launcher = bed.launcher(end);
        let own = bed.path().join("rsock-run");
        let words = launcher
            .get_args()
            .map(|word| if word == env!("CARGO_BIN_EXE_rsock-run") { own.as_os_str() } else { word });
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
            "--inh-caps=-all",
        ]);
        command.arg(launcher.get_program()).args(words).args(["--", PYTHON, "-c", program]);
        command.env("TMPDIR", bed.path()).env("RUNTIME_DIRECTORY", bed.path()).env("HOME", "/nonexistent");
        Running::start(command)
    };
    let server = "
import os, socket, sys
s = socket.create_server(('10.9.0.1', 7001)); print('listening', file=sys.stderr, flush=True)
c, peer = s.accept(); c.sendall(peer[0].encode()); assert os.getuid() == 65534
";
    let mut server = as_nobody(End::Server, server);
    server.wait_for("listening");
    let client = "import socket; print(socket.create_connection(('10.9.0.1', 7001)).recv(100))";
    assert_eq!(must(as_nobody(End::Client, client)), "b'10.9.0.2'\n");
    must(server);
}

/// The library that is loaded into programs.
const LIBRARY: &str = "libpollux_rsock_run.so";
