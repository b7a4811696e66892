//! The programs of `examples/`, as a user runs them. `cargo xtask examples` builds them and says where they are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_tests::netns::{Namespace, join};
use pollux_tests::patience::patient;
use pollux_tests::program::{Running, with_default_signals};
use pollux_tests::require::{Need, require};

mod examples {
    mod firewall;
}

const LIMIT: Duration = Duration::from_secs(120);

/// Where a program of `examples/` is; `None`, with a line, where nobody built them.
fn example(name: &str) -> Option<PathBuf> {
    match std::env::var_os("POLLUX_EXAMPLES") {
        Some(folder) => Some(Path::new(&folder).join(name)),
        None => {
            println!("skipped: {name} is not built: `cargo xtask examples` builds and runs it");
            None
        }
    }
}

/// Sends `bytes` there and back over TCP; the peer's address as the other end sees it, and what happened.
fn echo(
    here: &Namespace,
    there: &Namespace,
    address: &'static str,
    port: u16,
    bytes: usize,
) -> Result<String, String> {
    let (ready, bound) = std::sync::mpsc::channel();
    let server = there.enter(move || -> Result<String, String> {
        let listener =
            TcpListener::bind((address, port)).unwrap_or_else(|why| panic!("{address}:{port}: {why}"));
        listener.set_nonblocking(true).map_err(|why| why.to_string())?;
        ready.send(()).expect("the client waits");
        let end = Instant::now() + patient(Duration::from_secs(5));
        let (mut stream, peer) = loop {
            match listener.accept() {
                Ok(accepted) => break accepted,
                Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(20)),
                Err(why) => return Err(why.to_string()),
            }
        };
        stream.set_nonblocking(false).map_err(|why| why.to_string())?;
        let mut all = vec![0; bytes];
        stream.read_exact(&mut all).and_then(|()| stream.write_all(&all)).map_err(|why| why.to_string())?;
        Ok(peer.ip().to_string())
    });
    bound.recv().expect("the server is there");
    let client = here.enter(move || -> Result<(), String> {
        let to = SocketAddr::new(address.parse().expect("an address"), port);
        let limit = patient(Duration::from_secs(3));
        let mut stream = TcpStream::connect_timeout(&to, limit).map_err(|why| why.to_string())?;
        stream.set_read_timeout(Some(patient(Duration::from_secs(20)))).map_err(|why| why.to_string())?;
        let sent: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut writer = stream.try_clone().map_err(|why| why.to_string())?;
        let copy = sent.clone();
        let writing = std::thread::spawn(move || writer.write_all(&copy));
        let mut back = vec![0; bytes];
        stream.read_exact(&mut back).map_err(|why| why.to_string())?;
        writing.join().expect("no panic").map_err(|why| why.to_string())?;
        if back == sent { Ok(()) } else { Err("other bytes came back".into()) }
    });
    let (sent, seen) = (client.join().expect("no panic"), server.join().expect("no panic"));
    sent.and(seen)
}

#[test]
fn firewall_nat_translates_tcp_and_drops_by_rules_that_change() {
    let Some(program) = example("firewall_nat") else { return };
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let (inner, middle, outer) = (Namespace::new("fwi"), Namespace::new("fwm"), Namespace::new("fwo"));
    join(&inner, "eth0", &middle, "in0");
    join(&outer, "eth0", &middle, "out0");
    inner.ip(&["addr", "add", "10.77.0.1/24", "dev", "eth0"]);
    outer.ip(&["addr", "add", "10.77.0.2/24", "dev", "eth0"]);
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules");
    std::fs::write(&rules, "# nothing yet\n").expect("a file");

    let args = "-l 0,1 --no-huge --vdev net_af_packet0,iface=in0,qpairs=2 --vdev net_af_packet1,iface=out0,qpairs=2 -- --nat 10.77.0.99";
    let mut command = middle.command(program.to_str().expect("a path"), &args.split(' ').collect::<Vec<_>>());
    command.arg("--rules").arg(&rules);
    let mut running = Running::start(with_default_signals(&command));
    running.wait_for("forwarding on 2 lcores");

    for port in [7001, 7002, 7003] {
        let seen = echo(&inner, &outer, "10.77.0.2", port, 1 << 20);
        assert_eq!(seen.as_deref(), Ok("10.77.0.99"), "port {port}");
    }
    std::fs::write(&rules, "drop tcp 10.77.0.1 * 10.77.0.2 7002\n").expect("the file");
    std::thread::sleep(patient(Duration::from_millis(500)));
    echo(&inner, &outer, "10.77.0.2", 7002, 100).expect_err("the rule drops it");
    assert_eq!(echo(&inner, &outer, "10.77.0.2", 7001, 1 << 16).as_deref(), Ok("10.77.0.99"));

    std::fs::write(&rules, "drop tcp\n").expect("the file");
    running.wait_for("the rules stay as they were");
    echo(&inner, &outer, "10.77.0.2", 7002, 100).expect_err("the rule still drops it");
    std::fs::write(&rules, "").expect("the file");
    std::thread::sleep(patient(Duration::from_millis(500)));
    assert_eq!(echo(&inner, &outer, "10.77.0.2", 7002, 100).as_deref(), Ok("10.77.0.99"));

    // Another change within a tick of the file system's clock.
    let when = std::fs::metadata(&rules).and_then(|about| about.modified()).expect("the file");
    let next = folder.path().join("next");
    std::fs::write(&next, "drop tcp 10.77.0.1 * 10.77.0.2 7003\n").expect("a file");
    std::fs::File::open(&next).and_then(|file| file.set_modified(when)).expect("its time");
    std::fs::rename(&next, &rules).expect("the file");
    std::thread::sleep(patient(Duration::from_millis(500)));
    echo(&inner, &outer, "10.77.0.2", 7003, 100).expect_err("the rule drops it");

    let finished = running.interrupt();
    assert!(finished.status.success(), "{:?}", finished.stderr);
    assert!(
        finished.stdout.lines().count() == 2 && finished.stdout.contains(" packets passed, "),
        "{}",
        finished.stdout
    );
}

#[test]
fn firewall_nat_refuses_rules_that_are_none() {
    let Some(program) = example("firewall_nat") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let rules = folder.path().join("rules");
    std::fs::write(&rules, "drop tcp * * * *\nallow all\n").expect("a file");
    let done = Command::new(program)
        .args(["--no-huge", "--", "--nat", "10.0.0.1", "--rules"])
        .arg(&rules)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.lines().count() == 1 && said.contains("rules:2: 'allow all' is no rule"), "{said}");
}

#[test]
fn generator_measures_what_comes_back() {
    let Some(program) = example("generator") else { return };
    // A ring brings back what is sent.
    let run = |args: &str| {
        let done = Command::new(&program).args(args.split(' ')).output().expect("it runs");
        (
            done.status.code(),
            String::from_utf8_lossy(&done.stdout).into_owned(),
            String::from_utf8_lossy(&done.stderr).into_owned(),
        )
    };
    let (code, told, said) = run("-l 0 --no-huge --vdev net_ring0 -- --rate 20000 --duration 1");
    assert_eq!(code, Some(0), "{said}");
    let number = |word: &str| -> u64 {
        let behind = told.split_once(word).unwrap_or_else(|| panic!("{told}")).1;
        behind
            .trim_start()
            .split(|at: char| !at.is_ascii_digit())
            .next()
            .and_then(|number| number.parse().ok())
            .expect("a number")
    };
    let (sent, received, lost) = (number("sent"), number("received"), number("lost"));
    assert!((10_000..=20_001).contains(&sent) && received == sent && lost == 0, "{told}");
    assert!(told.contains("p50 ") && told.contains("p99 "), "{told}");
    // A port that swallows what is sent.
    let (code, told, said) = run("-l 0 --no-huge --vdev net_null0,no-rx=1 -- --rate 1000 --duration 1");
    assert!(code == Some(0) && told.contains("received 0, lost "), "{told}{said}");
    let (code, _, said) = run("-l 0 --no-huge --vdev net_ring0 -- --rate 0");
    assert!(code == Some(2) && said.contains("0 tokens per second"), "{said}");
}

#[test]
fn generator_counts_a_packet_once_however_often_it_comes_back() {
    let Some(program) = example("generator") else { return };
    let Some(reflector) = example("net_udp") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
    let start = |program: &Path, lcore: &str, wire: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(["-l", lcore, "--no-huge", "--vdev", &format!("mlx5_model0,wire=unix:{wire}"), "--"]);
        command.args(args);
        Running::start(with_default_signals(&command))
    };
    // One port sends to itself.
    let mut back = start(&reflector, "1", &format!("{b}:{a}"), &["-P", "--no-mac-updating", "-T", "0"]);
    back.wait_for("forwarding on");
    let wire = format!("{a}:{b},dup=0.5,loss=0.1,seed=3");
    let done = start(&program, "0", &wire, &["--rate", "5000", "--duration", "1"]).finish(patient(LIMIT));
    drop(back.interrupt());
    assert!(done.status.success(), "{:?}", done.stderr);
    let numbers: Vec<u64> =
        done.stdout.split(|at: char| !at.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let [sent, received, lost, ..] = numbers[..] else { panic!("{}", done.stdout) };
    assert!(sent > 2_000 && received > sent / 2 && received + lost == sent, "{}", done.stdout);
    assert!(lost > sent / 20, "copies stand for none that were lost: {}", done.stdout);
}

#[test]
fn rdma_copy_writes_reads_back_and_compares() {
    let Some(program) = example("rdma_copy") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let [a, b] = ["a", "b"].map(|name| folder.path().join(name).display().to_string());
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let start = |lcore: &str, from: &str, to: &str, args: &[&str]| {
        let mut command = Command::new(&program);
        command.args([
            "-l",
            lcore,
            "--no-huge",
            "--vdev",
            &format!("mlx5_model0,wire=unix:{from}:{to}"),
            "--",
        ]);
        command.args(args).arg(port.to_string());
        Running::start(with_default_signals(&command))
    };
    let mut server = start("0", &a, &b, &["--listen", "--size", "1024"]);
    server.wait_for("waiting at");
    let client = start("1", &b, &a, &[]).finish(patient(LIMIT));
    assert!(client.status.success(), "{:?}", client.stderr);
    assert!(
        client.stdout.contains("wrote 1024 MiB") && client.stdout.contains("compared 1024 MiB"),
        "{}",
        client.stdout
    );
    let server = server.finish(patient(LIMIT));
    assert!(
        server.status.success() && server.stdout.starts_with("gave 1024 MiB to 127.0.0.1:"),
        "{}{:?}",
        server.stdout,
        server.stderr
    );
}

#[test]
fn rdma_copy_ends_with_the_first_signal_while_it_waits() {
    let Some(program) = example("rdma_copy") else { return };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port");
    let mut command = Command::new(&program);
    command
        .args(["-l", "0", "--no-huge", "--vdev", "mlx5_model0", "--", "--listen", "--size", "1"])
        .arg(port.to_string());
    let mut server = Running::start(with_default_signals(&command));
    server.wait_for("waiting at");
    let ended = server.interrupt();
    assert!(ended.status.success() && ended.stdout.is_empty(), "{}{:?}", ended.stdout, ended.stderr);
}

#[test]
fn net_udp_is_a_cable_between_two_processes() {
    let Some(program) = example("net_udp") else { return };
    // Free ports, until the programs take them.
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a free UDP port"));
    let [a, b] = sockets.map(|socket| socket.local_addr().expect("bound"));
    let start = |lcore: &str, local: SocketAddr, peer: SocketAddr, null: &str| {
        let mut command = Command::new(&program);
        command.args(["-l", lcore, "--no-huge", "--vdev", &format!("net_udp0,local={local},peer={peer}")]);
        command.args(["--vdev", null, "--", "--no-mac-updating", "-T", "0", "--json"]);
        let mut running = Running::start(with_default_signals(&command));
        running.wait_for("forwarding");
        running
    };
    let receiver = start("0", a, b, "net_null0,no-rx=1");
    let sender = start("1", b, a, "net_null0,size=200");
    std::thread::sleep(patient(Duration::from_secs(1)));
    let sent = sender.interrupt().report();
    let received = receiver.interrupt().report();
    let count = |report: &serde_json::Value, port: usize, what: &str| {
        report["ports"][port][what].as_u64().unwrap_or_else(|| panic!("{report}"))
    };
    let (sent, received) = ((count(&sent, 0, "tx_packets"), count(&sent, 0, "tx_bytes")), received);
    let (arrived, bytes) = (count(&received, 0, "rx_packets"), count(&received, 0, "rx_bytes"));
    // UDP drops what the receiver's socket has no room for.
    assert!(arrived > 100 && arrived <= sent.0, "{arrived} of {}", sent.0);
    assert_eq!((bytes, sent.1), (200 * arrived, 200 * sent.0));
    assert_eq!(count(&received, 1, "tx_packets"), arrived);

    let done = Command::new(&program)
        .args(["--no-huge", "--vdev", "net_udp0,local=here"])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(said.trim_end().ends_with("local=here: cannot be read: write it like 127.0.0.1:4000"), "{said}");
}
