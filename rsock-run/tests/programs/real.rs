//! Programs straight from Debian's packages.

use pollux_tests::program::Running;
use pollux_tests::require::{Need, PYTHON, require};

use super::bed::{Bed, End, LIMIT, SERVER, free_port, must};

/// Tries a client until its server listens; what it printed.
fn until_served(bed: &Bed, client: &[&str]) -> String {
    for _ in 0..50 {
        let end = bed.start(End::Client, client).finish(LIMIT);
        if end.status.success() {
            return end.stdout;
        }
        let told = format!("{}{}", end.stdout, end.stderr.join("\n"));
        // Its device may not be on the wire yet, or nobody listens.
        let early = ["refused", "couldn't connect", "no route to host"];
        assert!(early.iter().any(|word| told.to_lowercase().contains(word)), "{client:?}: {told}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{client:?}: nobody listens");
}

#[test]
fn iperf3_measures_both_directions() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    // The server names its address, and takes any.
    for (server, client) in [(&["-B", SERVER][..], &["-P", "3"][..]), (&[], &["--bidir"])] {
        let (bed, port) = (Bed::new(), free_port());
        let server = bed.start(End::Server, &[&["iperf3", "-s", "-1", "-p", &port], server].concat());
        let client = [&["iperf3", "-c", SERVER, "-p", &port, "-n", "4M"], client].concat();
        let said = until_served(&bed, &client);
        assert!(said.contains("connected to 10.9.0.1 port") && said.contains("iperf Done"), "{said}");
        assert!(must(server).contains("Accepted connection from 10.9.0.2"));
    }
}

#[test]
fn redis_serves_its_clients_and_its_benchmark() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let (bed, port) = (Bed::new(), free_port());
    let folder = bed.path().display().to_string();
    let options =
        ["--bind", SERVER, "--port", &port, "--save", "", "--dir", &folder, "--protected-mode", "no"];
    let server = bed.start(End::Server, &[&["redis-server"], &options[..]].concat());
    let client = |words: &[&str]| -> Vec<String> {
        [&["redis-cli", "-h", SERVER, "-p", &port], words].concat().iter().map(ToString::to_string).collect()
    };
    let run = |words: &[&str]| {
        let words = client(words);
        until_served(&bed, &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(run(&["set", "key", "over RDMA"]).trim(), "OK");
    assert_eq!(run(&["get", "key"]).trim(), "over RDMA");
    assert!(run(&["client", "list"]).contains("addr=10.9.0.2:"), "it knows its clients");
    let benchmark =
        ["redis-benchmark", "-h", SERVER, "-p", &port, "-t", "get,set", "-n", "500", "-c", "10", "-q"];
    let said = must(bed.start(End::Client, &benchmark));
    assert!(said.contains("SET: ") && said.contains("GET: "), "{said}");
    // A command that is answered by the end of the connection.
    must(bed.start(End::Client, &["redis-cli", "-h", SERVER, "-p", &port, "shutdown", "nosave"]));
    must(server);
}

#[test]
fn curl_gets_a_file_from_pythons_server() {
    if !require(&[Need::TcpPrograms]) {
        return;
    }
    let (bed, port) = (Bed::new(), free_port());
    let folder = bed.path().join("www");
    std::fs::create_dir(&folder).expect("a folder");
    let data: Vec<u8> = (0..16_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.join("file"), &data).expect("a file");
    // As `python3 -m http.server`, which else asks DNS for the name of its address, for as long as that takes.
    let module = "import runpy, socket; socket.getfqdn = lambda host='': host; runpy.run_module('http.server', run_name='__main__')";
    let server = [PYTHON, "-c", module, &port, "--bind", SERVER, "--directory"];
    let server = [&server[..], &[folder.to_str().expect("a path")]].concat();
    let server = bed.start(End::Server, &server);
    let url = format!("http://{SERVER}:{port}/file");
    let copy = bed.path().join("copy");
    let client =
        ["curl", "-sS", "--noproxy", "*", "--max-time", "50", "-o", copy.to_str().expect("a path"), &url];
    until_served(&bed, &client);
    assert!(std::fs::read(&copy).expect("a file") == data, "the same bytes");
    let end = server.interrupt();
    assert!(
        end.stderr.iter().any(|line| line.starts_with("10.9.0.2 ")),
        "it logs its client: {:?}",
        end.stderr
    );
}

/// A client of librdmacm's own API, on a device model of `mlx5-run`.
#[test]
fn librdmacms_rsockets_reach_a_program() {
    if !require(&[Need::TcpPrograms, Need::RdmaCm]) {
        return;
    }
    let launcher = std::path::Path::new(env!("CARGO_BIN_EXE_rsock-run")).with_file_name("mlx5-run");
    if !launcher.exists() {
        eprintln!("skipped: {} is not built: cargo test --workspace builds it", launcher.display());
        return;
    }
    let (bed, port) = (Bed::new(), free_port());
    let server = "
import socket, sys
s = socket.create_server(('10.9.0.1', int(sys.argv[1]))); print('listening', file=sys.stderr, flush=True)
c, peer = s.accept(); print(peer[0])
while True:
    part = c.recv(65536)
    if not part: break
    c.sendall(part)
";
    let client = "
import ctypes, socket, struct, sys
rdma = ctypes.CDLL('librdmacm.so.1'); rdma.rsend.restype = rdma.rrecv.restype = ctypes.c_ssize_t
fd = rdma.rsocket(socket.AF_INET, socket.SOCK_STREAM, 0)
to = struct.pack('=HH4s8x', socket.AF_INET, socket.htons(int(sys.argv[1])), socket.inet_aton('10.9.0.1'))
assert rdma.rconnect(fd, to, 16) == 0
room = ctypes.create_string_buffer(30000)
for number in range(20):
    data = bytes([number]) * 30000; sent, back = 0, b''
    while sent < len(data): sent += rdma.rsend(fd, data[sent:], len(data) - sent, 0)
    while len(back) < len(data):
        count = rdma.rrecv(fd, room, len(data) - len(back), 0); assert count > 0
        back += room.raw[:count]
    assert back == data
assert rdma.rshutdown(fd, socket.SHUT_WR) == 0 and rdma.rrecv(fd, room, 1, 0) == 0
rdma.rclose(fd); print('echoed')
";
    let mut server = bed.python(End::Server, server, &[&port]);
    server.wait_for("listening");
    let [own, peer] = ["b", "a"].map(|name| bed.path().join(name).display().to_string());
    let mut command = std::process::Command::new(launcher);
    command.args([
        "--wire",
        &format!("unix:{own}:{peer}"),
        "--ip",
        "10.9.0.2/24",
        "--",
        PYTHON,
        "-c",
        client,
        &port,
    ]);
    command.env("TMPDIR", bed.path()).env("XDG_RUNTIME_DIR", bed.path());
    assert_eq!(must(Running::start(command)), "echoed\n");
    assert_eq!(must(server), "10.9.0.2\n");
}
