//! Two hosts joined only by l2fwd: their pings, transfers and odd frames go through it whole.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use pollux_tests::frame::{self, Capture};
use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::program::{Running, app};
use pollux_tests::require::{Need, require};
use sha2::{Digest, Sha256};

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
    let program = app("l2fwd");
    let program = program.to_str().expect("a path in UTF-8");
    let args = [
        "-l",
        "0",
        "--vdev",
        devices[0],
        "--vdev",
        devices[1],
        "--",
        "-P",
        "--no-mac-updating",
        "-T",
        "0",
        "--json",
    ];
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
        let made = Self { a: Namespace::new("a"), b: Namespace::new("b"), middle: Namespace::new("m") };
        join(&made.a, "eth0", &made.middle, "left");
        join(&made.b, "eth0", &made.middle, "right");
        for end in ["left", "right"] {
            made.middle.ip(&["link", "set", end, "mtu", MTU]);
        }
        made.addresses();
        made
    }

    /// All that two hosts may want of each other.
    fn exercise(&self, mebibytes: usize) {
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
    let done = running.interrupt();
    assert!(done.status.success(), "{}", done.stderr.join("\n"));
    let report = done.report();
    let ports = report["ports"].as_array().expect("ports");
    assert_eq!(ports.len(), 2);
    for port in ports {
        assert!(port["rx_packets"].as_u64() > Some(1000), "{report}");
        assert!(port["tx_packets"].as_u64() > Some(1000), "{report}");
    }
}

#[test]
fn af_packet_with_the_offloads_a_veth_comes_with() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let bridge = Bridge::veth();
    let running = l2fwd(&bridge.middle, ["net_af_packet0,iface=left", "net_af_packet1,iface=right"]);
    bridge.exercise(256);
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
    bridge.exercise(256);
    ends_well(running);
}

/// The taps are made where l2fwd runs and then moved to the hosts, as a container runtime does.
#[test]
fn taps_that_are_moved_away() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let bridge = Bridge { a: Namespace::new("a"), b: Namespace::new("b"), middle: Namespace::new("m") };
    let running = l2fwd(&bridge.middle, ["net_tap0,iface=left", "net_tap1,iface=right"]);
    for (host, interface) in [(&bridge.a, "left"), (&bridge.b, "right")] {
        bridge.middle.ip(&["link", "set", interface, "netns", host.name(), "name", "eth0"]);
    }
    bridge.addresses();
    bridge.exercise(256);
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
    let bridge = Bridge::veth();
    let (a, b) = (Namespace::new("c"), Namespace::new("d"));
    join(&a, "eth0", &bridge.middle, "third");
    join(&b, "eth0", &bridge.middle, "fourth");
    let program = app("l2fwd");
    let mut args = vec!["-l", "0"];
    for device in ["0,iface=left", "1,iface=right", "2,iface=third", "3,iface=fourth"] {
        args.extend(["--vdev", Box::leak(format!("net_af_packet{device}").into_boxed_str())]);
    }
    args.extend(["--", "-P", "--no-mac-updating", "-T", "0", "--json"]);
    let mut running = Running::start(bridge.middle.command(program.to_str().expect("UTF-8"), &args));
    running.wait_for("forwarding");
    ping(&bridge.a, &["-4", "-c", "10", "-i", "0.01", B4], 10);
    bridge.middle.ip(&["link", "delete", "fourth"]);
    running.wait_for("net_af_packet3 disappeared");
    ping(&bridge.a, &["-4", "-c", "100", "-i", "0.01", B4], 100);
    let done = running.interrupt();
    assert!(done.status.success(), "{}", done.stderr.join("\n"));
    assert_eq!(done.report()["ports"].as_array().map(Vec::len), Some(4));
}
