//! Two hosts joined only by l2fwd: their pings, transfers and odd frames go through it whole. Three networks joined only by l3fwd.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use pollux_tests::amount::amount;
use pollux_tests::frame::{self, Capture};
use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::patience::patient;
use pollux_tests::program::{Running, app};
use pollux_tests::require::{Need, require};
use pollux_tests::thread;
use sha2::{Digest, Sha256};

mod traffic {
    mod router;
}

/// Two hosts with one interface each, `eth0`, and a host in the middle where l2fwd runs.
struct Bridge {
    a: Namespace,
    b: Namespace,
    // Declared last: the program ends after the namespaces' names are gone, and the kernel frees them with it.
    middle: Namespace,
}

const A4: &str = "10.77.0.1";
const B4: &str = "10.77.0.2";
const A6: &str = "fd77::1";
const B6: &str = "fd77::2";
const MTU: &str = "9000";

fn l2fwd(middle: &Namespace, devices: [&str; 2]) -> Running {
    l2fwd_idle(middle, &devices, "poll")
}

/// With `--idle MODE`.
fn l2fwd_idle(middle: &Namespace, devices: &[&str], mode: &str) -> Running {
    let program = app("l2fwd");
    let program = program.to_str().expect("a path in UTF-8");
    let mut args = vec!["-l", "0"];
    args.extend(devices.iter().flat_map(|device| ["--vdev", device]));
    args.extend(["--", "-P", "--no-mac-updating", "-T", "0", "--json", "--idle", mode]);
    let mut running = Running::start(middle.command(program, &args));
    running.wait_for("forwarding");
    running
}

impl Bridge {
    fn addresses(&self) {
        for (host, v4, v6) in [(&self.a, A4, A6), (&self.b, B4, B6)] {
            host.quiet_ipv6("eth0");
            host.ip(&["link", "set", "eth0", "mtu", MTU, "up"]);
            host.ip(&["address", "add", &format!("{v4}/24"), "dev", "eth0"]);
            host.ip(&["-6", "address", "add", &format!("{v6}/64"), "dev", "eth0", "nodad"]);
        }
    }

    /// Two veth pairs, l2fwd's ends in the middle, in jumbo size.
    fn veth() -> Self {
        let made = Self::apart();
        join(&made.a, "eth0", &made.middle, "left");
        join(&made.b, "eth0", &made.middle, "right");
        for end in ["left", "right"] {
            made.middle.ip(&["link", "set", end, "mtu", MTU]);
        }
        made.addresses();
        made
    }

    /// Hosts that are not joined yet.
    fn apart() -> Self {
        Self { a: Namespace::new("a"), b: Namespace::new("b"), middle: Namespace::new("m") }
    }

    /// Moves the taps of the middle to the hosts, as a container runtime does.
    fn take_taps(&self) {
        for (host, interface) in [(&self.a, "left"), (&self.b, "right")] {
            self.middle.ip(&["link", "set", interface, "netns", host.name(), "name", "eth0"]);
        }
        self.addresses();
    }

    /// All that two hosts may want of each other. `POLLUX_MEBIBYTES` is how much they transfer each way; 64 if it is not set.
    fn exercise(&self) {
        let mebibytes = amount("POLLUX_MEBIBYTES", 64);
        ping(&self.a, &["-4", "-c", "1000", "-i", "0.002", B4], 1000);
        ping(&self.b, &["-6", "-c", "100", "-i", "0.002", A6], 100);
        // With "do not fragment": 28 and 8 bytes of headers around a payload that fills the frame.
        ping(&self.a, &["-4", "-c", "10", "-i", "0.01", "-M", "do", "-s", "1472", B4], 10);
        ping(&self.b, &["-4", "-c", "10", "-i", "0.01", "-M", "do", "-s", "8972", A4], 10);
        transfer(&self.a, &self.b, &format!("{B4}:7001"), mebibytes);
        transfer(&self.b, &self.a, &format!("{A4}:7002"), mebibytes);
        transfer(&self.a, &self.b, &format!("[{B6}]:7003"), mebibytes / 8);
        untouched(&self.a, &self.b);
        untouched(&self.b, &self.a);
    }
}

fn ping(from: &Namespace, args: &[&str], count: u32) {
    let done = must(&mut from.command("ping", &[&["-q", "-W", "2"], args].concat()));
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        said.contains(&format!("{count} packets transmitted, {count} received, 0% packet loss")),
        "{said}"
    );
    assert!(!said.contains("duplicates"), "{said}");
}

/// A stream of bytes that differ, from one host to the other, compared by digest.
fn transfer(from: &Namespace, to: &Namespace, address: &str, mebibytes: usize) {
    const PIECE: usize = 1 << 20;
    let address: SocketAddr = address.parse().expect("an address");
    let receiver = to.enter(move || {
        let listener = TcpListener::bind(address).expect("bind");
        let (mut stream, _) = listener.accept().expect("accept");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("timeout");
        let mut digest = Sha256::new();
        let mut piece = vec![0; PIECE];
        let mut total = 0;
        loop {
            let got = stream.read(&mut piece).expect("read");
            if got == 0 {
                return (total, digest.finalize());
            }
            total += got;
            digest.update(&piece[..got]);
        }
    });
    let sender = from.enter(move || {
        let mut tries = 0;
        let mut stream = loop {
            match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                Ok(stream) => break stream,
                Err(_) if tries < 50 => tries += 1,
                Err(why) => panic!("connect {address}: {why}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("timeout");
        let mut digest = Sha256::new();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut piece = vec![0; PIECE];
        for _ in 0..mebibytes {
            for word in piece.chunks_exact_mut(8) {
                // xorshift64: cheap, and no two pieces alike.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            digest.update(&piece);
            stream.write_all(&piece).expect("write");
        }
        (mebibytes * PIECE, digest.finalize())
    });
    let sent = sender.join().expect("the sender");
    let received = receiver.join().expect("the receiver");
    assert_eq!(received, sent, "{address}: what arrived is not what was sent");
}

/// Frames that no stack makes sense of, tagged (802.1Q, 802.1ad, both) and untagged, from the shortest to the largest, byte by byte.
fn untouched(from: &Namespace, to: &Namespace) {
    let lengths = [68, 69, 72, 127, 590, 1514, 9014];
    let tags: [&[u8]; 4] = [
        &[],
        &[0x81, 0x00, 0x60, 0x64],
        &[0x88, 0xa8, 0x00, 0x05],
        &[0x88, 0xa8, 0x00, 0x05, 0x81, 0x00, 0x00, 0x06],
    ];
    let mut frames = Vec::new();
    for (n, length) in lengths.into_iter().enumerate() {
        for tag in tags {
            // A packet socket lets 802.1Q alone pass the MTU by a tag's length; other tags have to fit.
            let length = if tag.starts_with(&[0x88]) { length - tag.len() } else { length };
            // To a station that nobody is, of a type for local experiments (IEEE 802, 88-b5).
            let mut frame = vec![0x02, 0, 0, 0, 0x77, n as u8, 0x02, 0, 0, 0, 0x77, 0xff];
            frame.extend(tag);
            frame.extend([0x88, 0xb5]);
            // Beyond the MTU the kernel sends no tag but one of 802.1Q (`packet_extra_vlan_len_allowed`).
            let longest = if tag.first() == Some(&0x81) { 9018 } else { 9014 };
            let whole = longest.min(length + tag.len());
            frame.extend((0..whole - frame.len()).map(|at| (at * 7 + n) as u8));
            frames.push(frame);
        }
    }
    let capture = Capture::start(to, "eth0", frames.len(), "ether src 02:00:00:00:77:ff");
    frame::send(from, "eth0", frames.clone());
    let seen = capture.frames(Duration::from_secs(5));
    assert_eq!(seen.len(), frames.len(), "lengths seen: {:?}", seen.iter().map(Vec::len).collect::<Vec<_>>());
    for (seen, sent) in seen.iter().zip(&frames) {
        assert_eq!(seen, sent, "a frame of {} bytes was altered", sent.len());
    }
}

fn ends_well(running: Running) {
    ends_with(running, 1000);
}

/// It ends well, and more packets than `least` went each way.
fn ends_with(running: Running, least: u64) {
    let done = running.interrupt();
    assert!(done.status.success(), "{}", done.stderr.join("\n"));
    let report = done.report();
    let ports = report["ports"].as_array().expect("ports");
    assert_eq!(ports.len(), 2);
    for port in ports {
        assert!(port["rx_packets"].as_u64() > Some(least), "{report}");
        assert!(port["tx_packets"].as_u64() > Some(least), "{report}");
    }
}

#[test]
fn af_packet_with_the_offloads_a_veth_comes_with() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let bridge = Bridge::veth();
    let running = l2fwd(&bridge.middle, ["net_af_packet0,iface=left", "net_af_packet1,iface=right"]);
    bridge.exercise();
    ends_well(running);
}

#[test]
fn af_packet_without_offloads() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let bridge = Bridge::veth();
    for (host, interface) in
        [(&bridge.a, "eth0"), (&bridge.b, "eth0"), (&bridge.middle, "left"), (&bridge.middle, "right")]
    {
        let off = [
            "-K", interface, "rx", "off", "tx", "off", "sg", "off", "tso", "off", "gso", "off", "gro", "off",
        ];
        must(&mut host.command("ethtool", &[&off[..], &["txvlan", "off", "rxvlan", "off"]].concat()));
    }
    let running = l2fwd(&bridge.middle, ["net_af_packet0,iface=left", "net_af_packet1,iface=right"]);
    bridge.exercise();
    ends_well(running);
}

/// Two veth pairs whose hosts close all checksums: an XDP program is not told of open ones.
fn closing() -> Bridge {
    let bridge = Bridge::veth();
    for host in [&bridge.a, &bridge.b] {
        must(&mut host.command("ethtool", &["-K", "eth0", "tx", "off"]));
    }
    bridge
}

const XDP: [&str; 2] = ["net_af_xdp0,iface=left", "net_af_xdp1,iface=right"];

#[test]
fn af_xdp_in_jumbo_size() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let bridge = closing();
    let running = l2fwd(&bridge.middle, XDP);
    bridge.exercise();
    ends_well(running);
}

/// Neither SIGINT nor SIGKILL leaves an XDP program, and the next process finds the queue free.
#[test]
fn af_xdp_leaves_no_program() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let bridge = closing();
    let program = |end: &str| {
        let shown = must(&mut bridge.middle.command("ip", &["-d", "link", "show", "dev", end]));
        String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
    };
    for signal in [9, 9, 2] {
        let running = l2fwd(&bridge.middle, XDP);
        assert!(program("left") && program("right"));
        ping(&bridge.a, &["-4", "-c", "10", "-i", "0.01", B4], 10);
        running.signal(signal);
        let done = running.finish(Duration::from_secs(20));
        assert_eq!(done.status.success(), signal == 2, "{}", done.stderr.join("\n"));
        assert!(!program("left") && !program("right"), "signal {signal}");
    }
}

/// The taps are made where l2fwd runs and then moved to the hosts.
#[test]
fn taps_that_are_moved_away() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let bridge = Bridge::apart();
    let running = l2fwd(&bridge.middle, ["net_tap0,iface=left", "net_tap1,iface=right"]);
    bridge.take_taps();
    bridge.exercise();
    ends_well(running);
}

/// SIGKILL runs no line of ours; the kernel alone must find nothing left to keep.
#[test]
fn sigkill_leaves_no_interface() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let middle = Namespace::new("m");
    let running = l2fwd(&middle, ["net_tap0,iface=left", "net_tap1,iface=right"]);
    let links = |host: &Namespace| {
        String::from_utf8_lossy(&must(Command::new("ip").args(["-n", host.name(), "-o", "link"])).stdout)
            .into_owned()
    };
    assert!(links(&middle).contains("left"), "{}", links(&middle));
    running.signal(9);
    let done = running.finish(Duration::from_secs(10));
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&done.status), Some(9));
    let left = links(&middle);
    assert!(!left.contains("left") && !left.contains("right"), "{left}");
}

/// A port that goes away takes nothing with it: the others go on, and the report says what happened.
#[test]
fn a_port_that_disappears() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    for mode in ["poll", "interrupt"] {
        let bridge = Bridge::veth();
        let (a, b) = (Namespace::new("c"), Namespace::new("d"));
        join(&a, "eth0", &bridge.middle, "third");
        join(&b, "eth0", &bridge.middle, "fourth");
        let devices = [
            "net_af_packet0,iface=left",
            "net_af_packet1,iface=right",
            "net_af_packet2,iface=third",
            "net_af_packet3,iface=fourth",
        ];
        let mut running = l2fwd_idle(&bridge.middle, &devices, mode);
        ping(&bridge.a, &["-4", "-c", "10", "-i", "0.01", B4], 10);
        bridge.middle.ip(&["link", "delete", "fourth"]);
        running.wait_for("net_af_packet3 disappeared");
        if mode == "interrupt" {
            // Its socket tells of that for ever, and is not listened to any more.
            let idle = thread::share(running.pid(), "lcore-", Duration::from_secs(1));
            assert!(idle <= IDLE_SHARE, "{idle:.4} of a core");
        }
        ping(&bridge.a, &["-4", "-c", "100", "-i", "0.01", B4], 100);
        let done = running.interrupt();
        assert!(done.status.success(), "{}", done.stderr.join("\n"));
        assert_eq!(done.report()["ports"].as_array().map(Vec::len), Some(4));
    }
}

/// Of a core, at most, what an lcore takes that may sleep.
const IDLE_SHARE: f64 = 0.02;

/// Pings that each find the forwarder idle, in every mode; how long they took is printed. `place` puts the ports where they belong.
fn idle(devices: [&str; 2], place: impl Fn() -> Bridge, move_away: bool) {
    for mode in ["poll", "pause", "interrupt"] {
        let bridge = place();
        let running = l2fwd_idle(&bridge.middle, &devices, mode);
        if move_away {
            bridge.take_taps();
        }
        answered(&bridge.a);
        let share = thread::share(running.pid(), "lcore-", Duration::from_secs(2));
        let times = round_trips(&bridge.a, &["-4", "-c", "200", "-i", "0.005", B4]);
        let at = |share: usize| times[times.len() * share / 100];
        println!("{} {mode}: idle {share:.3} of a core, p50 {} ms, p99 {} ms", devices[0], at(50), at(99));
        assert_eq!(times.len(), 200, "{mode}: pings were lost");
        if mode == "interrupt" {
            assert!(share <= IDLE_SHARE, "an idle lcore takes {share:.4} of a core");
            // An lcore that no packet woke would sleep on, for 15 of its 20 ms.
            assert!(at(50) < patient(Duration::from_millis(10)).as_secs_f64() * 1e3, "{} ms", at(50));
        }
        transfer(&bridge.a, &bridge.b, &format!("{B4}:7001"), 8);
        std::thread::sleep(Duration::from_millis(50));
        transfer(&bridge.b, &bridge.a, &format!("{A4}:7002"), 8);
        // A link that goes and comes back finds it asleep.
        bridge.b.ip(&["link", "set", "eth0", "down"]);
        std::thread::sleep(Duration::from_millis(50));
        bridge.b.ip(&["link", "set", "eth0", "up"]);
        answered(&bridge.a);
        ping(&bridge.a, &["-4", "-c", "20", "-i", "0.02", B4], 20);
        ends_with(running, 200);
    }
}

/// Waits until the other host answers.
fn answered(from: &Namespace) {
    must(&mut from.command("ping", &["-q", "-4", "-c", "1", "-w", "10", "-i", "0.05", B4]));
}

/// The times of pings in milliseconds, sorted.
fn round_trips(from: &Namespace, args: &[&str]) -> Vec<f64> {
    let done = must(&mut from.command("ping", &[&["-W", "2"], args].concat()));
    let said = String::from_utf8_lossy(&done.stdout);
    let times = said.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    times
}

#[test]
fn pings_find_an_idle_forwarder_on_af_packet() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    idle(["net_af_packet0,iface=left", "net_af_packet1,iface=right"], Bridge::veth, false);
}

#[test]
fn pings_find_an_idle_forwarder_on_af_xdp() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    idle(XDP, closing, false);
}

#[test]
fn pings_find_an_idle_forwarder_on_taps() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    idle(["net_tap0,iface=left", "net_tap1,iface=right"], Bridge::apart, true);
}
