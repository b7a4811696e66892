//! The stateful firewall between two hosts.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_tests::frame;
use pollux_tests::netns::{Namespace, join};
use pollux_tests::patience::patient;
use pollux_tests::program::{Running, with_default_signals};
use pollux_tests::require::{Need, require};
use pollux_tests::telemetry::Client;
use pollux_wire::TcpFlags;
use pollux_wire::build::Frame;
use serde_json::Value;
use tempfile::TempDir;

use crate::{echo, example};

const INNER: &str = "10.77.0.1";
const OUTER: &str = "10.77.0.2";
const NAT: &str = "10.77.0.99";
/// What an address needs of the rules to be no mistake.
const HEAD: &str = "address = '10.77.0.99'\ndefault_allow = true\n";
const TELNET: &str = "[[rule]]\nname = 'telnet'\nallow = false\nprotocol = 'tcp'\nfrom = '10.77.0.0/24'\nports = [7002, 7002]\n";

/// Two hosts, and the firewall between them on two lcores.
struct Bed {
    inner: Namespace,
    outer: Namespace,
    running: Running,
    folder: TempDir,
    _middle: Namespace,
}

impl Bed {
    /// `None`: something is missing here.
    fn new() -> Option<Self> {
        let program = example("firewall")?;
        if !require(&[Need::Root, Need::Net]) {
            return None;
        }
        let [inner, middle, outer] = ["fwi", "fwm", "fwo"].map(Namespace::new);
        join(&inner, "eth0", &middle, "in0");
        join(&outer, "eth0", &middle, "out0");
        for (host, address) in [(&inner, INNER), (&outer, OUTER)] {
            host.ip(&["addr", "add", &format!("{address}/24"), "dev", "eth0"]);
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("rules.toml"), HEAD).expect("a file");
        let args = "-l 0,1 --no-huge --vdev net_af_packet0,iface=in0,qpairs=2 --vdev net_af_packet1,iface=out0,qpairs=2 --";
        let mut command =
            middle.command(program.to_str().expect("a path"), &args.split(' ').collect::<Vec<_>>());
        command.arg("--rules").arg(folder.path().join("rules.toml")).arg("--json");
        command.env("RUNTIME_DIRECTORY", folder.path());
        let mut running = Running::start(with_default_signals(&command));
        running.wait_for("forwarding on 2 lcores");
        Some(Self { inner, outer, running, folder, _middle: middle })
    }

    fn rules(&mut self, text: &str, answer: &str) {
        std::fs::write(self.folder.path().join("rules.toml"), text).expect("the file");
        self.running.wait_for(answer);
    }

    fn ask(&self, command: &str) -> Value {
        Client::new(&self.folder.path().join("dpdk/rte/dpdk_telemetry.v2")).ask(command)
    }

    /// A count, of all lcores.
    fn count(&self, what: &str) -> u64 {
        let lcores = self.ask("/firewall/lcores");
        let lcores = lcores.as_array().unwrap_or_else(|| panic!("{lcores}"));
        lcores.iter().map(|lcore| lcore[what].as_u64().unwrap_or_else(|| panic!("{lcore}"))).sum()
    }

    /// Waits until a count is as large.
    #[track_caller]
    fn until(&self, what: &str, wanted: u64) {
        let end = Instant::now() + patient(Duration::from_secs(5));
        while self.count(what) < wanted {
            assert!(Instant::now() < end, "{what}: {} of {wanted}", self.count(what));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Packets on which a rule decided.
    fn decided(&self, rule: &str) -> u64 {
        let rules = self.ask("/firewall/rules");
        rules[rule]["packets"].as_u64().unwrap_or_else(|| panic!("{rules}"))
    }

    fn connects(&self, port: u16, bytes: usize) -> Result<String, String> {
        echo(&self.inner, &self.outer, OUTER, port, bytes)
    }
}

#[test]
fn firewall_passes_what_inner_hosts_open_and_counts_by_rule() {
    let Some(mut bed) = Bed::new() else { return };
    for port in 7001..7009 {
        assert_eq!(bed.connects(port, 1 << 18).as_deref(), Ok(NAT), "port {port}");
    }
    assert!(bed.count("opened") >= 8);
    let before = bed.decided("default");
    assert!(before > 8 * 10);

    // Both ways over UDP, from an outer port that is the inner host's own no more.
    let server = bed.outer.enter(|| {
        let socket = UdpSocket::bind((OUTER, 7100)).expect("bound");
        socket.set_read_timeout(Some(patient(Duration::from_secs(10)))).expect("set");
        let (bytes, from) = socket.recv_from(&mut [0; 64]).expect("a datagram");
        socket.send_to(&vec![b'x'; bytes], from).expect("sent");
        from
    });
    let answered = bed.inner.enter(|| {
        let socket = UdpSocket::bind((INNER, 0)).expect("bound");
        socket.set_read_timeout(Some(patient(Duration::from_secs(1)))).expect("set");
        socket.connect((OUTER, 7100)).expect("connected");
        let mut tries = (0..10).map(|_| socket.send(b"hello").and_then(|_| socket.recv(&mut [0; 64])));
        tries.find_map(Result::ok)
    });
    assert_eq!(answered.join().expect("no panic"), Some(5));
    let inner_seen = server.join().expect("no panic");
    assert_eq!(inner_seen.ip().to_string(), NAT);
    // The same outer port, asked by somebody else.
    let unknown = bed.count("unknown");
    let other = bed.outer.enter(move || {
        UdpSocket::bind((OUTER, 7101)).and_then(|socket| socket.send_to(b"hello", inner_seen)).map(drop)
    });
    other.join().expect("no panic").expect("sent");
    bed.until("unknown", unknown + 1);
    // The middle of a connection that nobody has opened.
    let (unknown, opened) = (bed.count("unknown"), bed.count("opened"));
    let middle =
        Frame::ether([2, 0, 0, 0, 0, 9], [0xff; 6]).ipv4([10, 77, 0, 1], [10, 77, 0, 2]).tcp(1025, 7001);
    frame::send(&bed.inner, "eth0", vec![middle.flags(TcpFlags::ACK).payload(b"").to_vec()]);
    bed.until("unknown", unknown + 1);
    assert_eq!(bed.count("opened"), opened);

    // Nobody outside opens anything, neither at the address of the NAT nor at that of an inner host who listens.
    let opened = bed.count("opened");
    for address in [NAT, INNER] {
        let unknown = bed.count("unknown");
        let refused = bed.outer.enter(move || {
            let to = std::net::SocketAddr::new(address.parse().expect("an address"), 7200);
            TcpStream::connect_timeout(&to, patient(Duration::from_millis(500))).map(drop)
        });
        let why = refused.join().expect("no panic").expect_err("nothing passes");
        assert_eq!(why.kind(), std::io::ErrorKind::TimedOut, "{address}: nobody answers");
        assert!(bed.count("unknown") > unknown, "{address}");
    }
    echo(&bed.outer, &bed.inner, INNER, 7200, 10).expect_err("nothing passes");
    assert_eq!(bed.count("opened"), opened);
    let pinged = bed.inner.command("ping", &["-c", "1", "-W", "1", OUTER]).output().expect("ping");
    assert!(!pinged.status.success() && bed.count("other") > 0, "ICMP does not pass");

    // Rules change under a connection; what is counted goes on.
    bed.rules(&format!("{HEAD}{TELNET}"), "rules taken over");
    bed.connects(7002, 100).expect_err("the rule drops it");
    assert_eq!(bed.connects(7001, 1 << 16).as_deref(), Ok(NAT));
    assert!(bed.decided("telnet") > 0 && bed.decided("default") > before);
    bed.rules(&format!("{HEAD}{}", TELNET.replace("/24", "/33")), "the rules in force stay");
    bed.connects(7002, 100).expect_err("the rule still drops it");
    let dropped = bed.decided("telnet");
    std::fs::write(
        bed.folder.path().join("rules.toml"),
        format!("{HEAD}{}", TELNET.replace("false", "true")),
    )
    .expect("the file");
    let passes = (0..20).any(|_| {
        std::thread::sleep(patient(Duration::from_millis(200)));
        bed.connects(7002, 100).as_deref() == Ok(NAT)
    });
    assert!(passes && bed.decided("telnet") > dropped);

    let report = bed.running.interrupt().report();
    assert!(report["ports"][1]["tx_packets"].as_u64().is_some_and(|packets| packets > 100), "{report}");
}

/// Frames that open connections to the outer host, each from an address and port that nobody else has.
fn flood(numbers: Range<u32>, from_outside: bool) -> Vec<Vec<u8>> {
    let syn = |number: u32| {
        let spoofed = Ipv4Addr::new(10, 99, (number >> 14) as u8, 1 + (number >> 22) as u8);
        let to: Ipv4Addr = if from_outside { NAT } else { OUTER }.parse().expect("an address");
        let port = 1024 + (number & 0x3fff) as u16;
        let frame = Frame::ether([2, 0, 0, 0, 0, 9], [0xff; 6]).ipv4(spoofed, to);
        frame.tcp(port, 1024 + (number % 60_000) as u16).flags(TcpFlags::SYN).payload(b"").to_vec()
    };
    numbers.map(syn).collect()
}

/// Sends such frames until a count is as large as wanted: some find no room in the rings of packet sockets.
fn flood_until(bed: &Bed, from_outside: bool, what: &str, wanted: u64) {
    const PIECE: u32 = 10_000;
    let from = if from_outside { &bed.outer } else { &bed.inner };
    for piece in 0..100 {
        frame::send(from, "eth0", flood(piece * PIECE..(piece + 1) * PIECE, from_outside));
        if bed.count(what) >= wanted {
            return;
        }
    }
    panic!("{what}: {} of {wanted}", bed.count(what));
}

#[test]
fn firewall_survives_floods_of_opened_connections() {
    let Some(bed) = Bed::new() else { return };
    // One that is there before, and after.
    let listening = bed.outer.enter(|| {
        let listener = TcpListener::bind((OUTER, 7300)).expect("bound");
        let (mut stream, peer) = listener.accept().expect("accepted");
        stream.set_read_timeout(Some(patient(Duration::from_secs(60)))).expect("set");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        (all, peer.ip().to_string())
    });
    std::thread::sleep(patient(Duration::from_millis(200)));
    let (go, wait) = std::sync::mpsc::channel();
    let (ready, begun) = std::sync::mpsc::channel();
    let talking = bed.inner.enter(move || {
        let mut stream = TcpStream::connect((OUTER, 7300)).expect("connected");
        stream.write_all(b"before ").expect("written");
        ready.send(()).expect("awaited");
        wait.recv().expect("told");
        stream.write_all(b"after").expect("written");
    });
    begun.recv().expect("connected");

    flood_until(&bed, false, "given_up", 20_000);
    let open = bed.count("opened") - bed.count("ended") - bed.count("given_up");
    assert!(open <= 64_512 / 2 + 100, "{open}: half of all ports are never a flood's");
    assert_eq!(bed.connects(7301, 1 << 16).as_deref(), Ok(NAT), "others still connect");

    let before = bed.count("opened");
    flood_until(&bed, true, "unknown", 60_000);
    assert!(bed.count("opened") <= before + 10, "nobody outside opens anything");
    assert_eq!(bed.connects(7302, 1 << 16).as_deref(), Ok(NAT), "others still connect");

    go.send(()).expect("it waits");
    talking.join().expect("no panic");
    let (all, seen) = listening.join().expect("no panic");
    assert_eq!((all.as_slice(), seen.as_str()), (&b"before after"[..], NAT));
    assert!(bed.running.interrupt().status.success());
}

#[test]
fn firewall_refuses_rules_that_are_none() {
    let Some(program) = example("firewall") else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let rules: PathBuf = folder.path().join("rules.toml");
    for (text, wrong) in [
        (
            HEAD.replace("true", "1"),
            "rules.toml', line 2, column 17: invalid type: integer `1`, expected a boolean".to_owned(),
        ),
        (HEAD.replace("99'", "999'"), "rules.toml', line 1, column 11: invalid IPv4 address syntax".into()),
        (
            format!("{HEAD}port = 1\n"),
            "rules.toml', line 3, column 1: unknown field `port`, expected one of".into(),
        ),
        (
            format!("{HEAD}{}", TELNET.replace("/24", "/33")),
            "rules.toml: rule 'telnet': '10.77.0.0/33' is no prefix such as 10.0.0.0/8".into(),
        ),
        (
            format!("{HEAD}{}", TELNET.replace("[7002", "[7003")),
            "rules.toml: rule 0: destination port from 7003 to 7002 is no range".into(),
        ),
    ] {
        std::fs::write(&rules, text).expect("a file");
        let done = Command::new(&program).args(["--no-huge", "--", "--rules"]).arg(&rules).output();
        let done = done.expect("it runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(said.lines().count() == 1 && said.contains(&wrong), "{said}");
    }
    let done = Command::new(&program).args(["--no-huge", "--", "--rules", "/nonexistent"]).output();
    let said = String::from_utf8_lossy(&done.expect("it runs").stderr).into_owned();
    assert!(said.lines().count() == 1 && said.contains("cannot read /nonexistent"), "{said}");
}
