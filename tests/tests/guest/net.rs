//! mlx5_core's own network interfaces on two functions with a cable between them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use pollux_tests::netns::{Namespace, must};
use pollux_tests::patience::patient;
use sha2::{Digest, Sha256};

use crate::bed::{Drivers, FAR, FUNCTIONS, MACS, NEAR, Pair, counter, here, netdev, read, run, wait, write};

#[test]
fn two_functions_ping_each_other() {
    if !here() {
        return;
    }
    let pair = Pair::up();
    pair.ping(100, FAR);
    pair.ping(50, &format!("-s 1472 -M do {FAR}"));
    let theirs = must(&mut pair.there.command("ping", &["-q", "-c", "50", "-i", "0.01", NEAR]));
    assert!(String::from_utf8_lossy(&theirs.stdout).contains("50 received, 0% packet loss"));
}

#[test]
fn jumbo_frames_pass_whole() {
    if !here() {
        return;
    }
    let pair = Pair::up();
    pair.set("mtu 9000");
    pair.wait_for_carrier();
    pair.ping(50, &format!("-s 8972 -M do {FAR}"));
    pair.ping(20, FAR);
    transfer(&pair.there, &format!("{FAR}:7001"), 4);
    // And back.
    pair.set("mtu 1500");
    pair.wait_for_carrier();
    pair.ping(20, &format!("-s 1472 -M do {FAR}"));
}

#[test]
fn vlans_are_kept_apart() {
    if !here() {
        return;
    }
    run("modprobe 8021q");
    let pair = Pair::up();
    for (id, network) in [(7, "10.7.0"), (4000, "10.40.0")] {
        let id = id.to_string();
        let name = format!("tag{id}");
        run(&format!("ip link add link {} name {name} type vlan id {id}", pair.near));
        run(&format!("ip address add {network}.1/24 dev {name}"));
        run(&format!("ip link set {name} up"));
        pair.there.ip(&["link", "add", "link", &pair.far, "name", &name, "type", "vlan", "id", &id]);
        pair.there.ip(&["address", "add", &format!("{network}.2/24"), "dev", &name]);
        pair.there.ip(&["link", "set", &name, "up"]);
    }
    pair.ping(50, "10.7.0.2");
    pair.ping(50, "-s 1472 -M do 10.40.0.2");
    transfer(&pair.there, "10.7.0.2:7002", 2);
    // With the card's part in it taken away and given back.
    for state in ["off", "on"] {
        run(&format!("ethtool -K {} rx-vlan-offload {state} tx-vlan-offload {state}", pair.near));
        pair.ping(20, "10.7.0.2");
    }
    // No tag in common: nobody answers.
    pair.there.ip(&["link", "delete", "tag7"]);
    pair.there.ip(&["link", "add", "link", &pair.far, "name", "tag8", "type", "vlan", "id", "8"]);
    pair.there.ip(&["address", "add", "10.7.0.2/24", "dev", "tag8"]);
    pair.there.ip(&["link", "set", "tag8", "up"]);
    let lost =
        std::process::Command::new("ping").args(["-c", "3", "-i", "0.1", "-W", "1", "10.7.0.2"]).output();
    assert!(!lost.expect("ping starts").status.success());
}

#[test]
fn tcp_with_checksums_and_segmentation_by_the_card() {
    if !here() {
        return;
    }
    let pair = Pair::up();
    let features = run(&format!("ethtool -k {}", pair.near));
    for on in ["rx-checksumming: on", "tx-checksumming: on", "tcp-segmentation-offload: on"] {
        assert!(features.contains(on), "{on} is missing in {features}");
    }
    transfer(&pair.there, &format!("{FAR}:7003"), 16);
    for near in [run(&format!("ethtool -S {}", pair.near)), there(&pair, "-S")] {
        assert!(counter(&near, "tx_tso_packets") > 0, "{near}");
        let checked = counter(&near, "rx_csum_complete")
            + counter(&near, "rx_csum_unnecessary")
            + counter(&near, "rx_csum_complete_tail");
        assert!(checked > 1000, "{near}");
        for bad in ["rx_csum_none", "rx_wqe_err", "tx_cqe_err", "tx_recover", "rx_out_of_buffer"] {
            assert!(counter(&near, bad) < 20, "{bad}: {near}");
        }
    }
    // The same by the processor.
    run(&format!("ethtool -K {} tso off gso off tx off rx off", pair.near));
    transfer(&pair.there, &format!("{FAR}:7004"), 4);
}

#[test]
fn queues_share_what_comes() {
    if !here() {
        return;
    }
    let pair = Pair::up();
    let channels = run(&format!("ethtool -l {}", pair.near));
    assert_eq!(channels.matches("Combined:\t2").count(), 2, "{channels}");
    let spread = run(&format!("ethtool -x {}", pair.near));
    assert!(spread.contains("RSS hash key:") && spread.contains("toeplitz: on"), "{spread}");
    let both = received(&pair, 64);
    assert!(both.iter().all(|count| *count > 200), "{both:?} of 1280 datagrams");
    // All to the first queue.
    run(&format!("ethtool -X {} equal 1", pair.near));
    let one = received(&pair, 64);
    assert!(one[0] >= 1280 && one[1] < 20, "{one:?}");
    run(&format!("ethtool -X {} default", pair.near));
    run(&format!("ethtool -L {} combined 1", pair.near));
    pair.wait_for_carrier();
    pair.ping(20, FAR);
    run(&format!("ethtool -L {} combined 2", pair.near));
    pair.wait_for_carrier();
    pair.ping(20, FAR);
}

#[test]
fn ethtool_shows_a_card() {
    if !here() {
        return;
    }
    let pair = Pair::up();
    let near = &pair.near;
    assert_eq!(read(format!("/sys/class/net/{near}/address")), MACS[0]);
    let driver = run(&format!("ethtool -i {near}"));
    assert!(driver.contains("driver: mlx5_core"), "{driver}");
    assert!(driver.contains(&format!("bus-info: {}", FUNCTIONS[0])), "{driver}");
    assert!(driver.contains("firmware-version: 22."), "{driver}");
    let link = run(&format!("ethtool {near}"));
    assert!(link.contains("Link detected: yes"), "{link}");
    assert!(link.lines().any(|line| line.trim().starts_with("Speed: ") && line.ends_with("Mb/s")), "{link}");
    let rings = run(&format!("ethtool -g {near}"));
    assert!(rings.contains("RX:") && rings.contains("8192"), "{rings}");
    run(&format!("ethtool -G {near} rx 512 tx 256"));
    pair.wait_for_carrier();
    pair.ping(20, FAR);
    let coalesce = run(&format!("ethtool -c {near}"));
    assert!(coalesce.contains("rx-usecs:"), "{coalesce}");
    // What the port and its queues counted agrees with what was sent.
    let before = run(&format!("ethtool -S {near}"));
    pair.ping(200, FAR);
    let after = run(&format!("ethtool -S {near}"));
    for name in ["rx_packets", "tx_packets", "rx_packets_phy", "tx_packets_phy", "rx_vport_unicast_packets"] {
        let count = counter(&after, name) - counter(&before, name);
        assert!((200..260).contains(&count), "{name}: {count} for 200 pings");
    }
    let ports = run(&format!("ip -s link show {near}"));
    assert!(ports.contains("RX:"), "{ports}");
}

#[test]
fn ten_loads_leave_nothing() {
    if !here() {
        return;
    }
    for round in 0..10 {
        let drivers = Drivers::net();
        if round % 3 == 0 {
            for function in FUNCTIONS {
                run(&format!("ip link set {} up", netdev(function).expect("an interface")));
            }
        }
        assert_eq!(read("/sys/module/mlx5_core/refcnt"), "0", "round {round}");
        drivers.unload();
        for function in FUNCTIONS {
            assert!(netdev(function).is_none());
        }
    }
    assert!(!std::path::Path::new("/sys/module/mlx5_core").exists());
}

#[test]
fn a_reset_function_is_as_new() {
    if !here() {
        return;
    }
    let reset = |function: &str| write(&format!("/sys/bus/pci/devices/{function}/reset"), "1");
    assert!(read(format!("/sys/bus/pci/devices/{}/reset_method", FUNCTIONS[0])).contains("flr"));
    // While a driver has it, what it made is taken off first.
    let drivers = Drivers::net();
    write("/sys/bus/pci/drivers/mlx5_core/unbind", FUNCTIONS[0]);
    reset(FUNCTIONS[0]);
    write("/sys/bus/pci/drivers/mlx5_core/bind", FUNCTIONS[0]);
    wait("an interface", Duration::from_secs(10), || netdev(FUNCTIONS[0]));
    let pair = Pair::on(drivers);
    pair.ping(20, FAR);
    drop(pair);
    // Taken out of the bus and found again.
    write(&format!("/sys/bus/pci/devices/{}/remove", FUNCTIONS[1]), "1");
    write("/sys/bus/pci/rescan", "1");
    reset(FUNCTIONS[1]);
    let pair = Pair::up();
    pair.ping(20, FAR);
}

fn there(pair: &Pair, what: &str) -> String {
    let done = must(&mut pair.there.command("ethtool", &[what, &pair.far]));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Sends 20 datagrams from each of `flows` ports there, and tells how many each queue here received.
fn received(pair: &Pair, flows: u16) -> [u64; 2] {
    let count = || {
        let all = run(&format!("ethtool -S {}", pair.near));
        [counter(&all, "rx0_packets"), counter(&all, "rx1_packets")]
    };
    let before = count();
    // The neighbour is known from here on.
    pair.ping(1, FAR);
    let sink = UdpSocket::bind((NEAR, 9)).expect("a port");
    let sender = pair.there.enter(move || {
        // All over the range: the key is random, and may have no bit for a few that are close together.
        for port in (0..flows).map(|flow| 1024 + flow * 997) {
            let socket = UdpSocket::bind((FAR, port)).expect("a port");
            for number in 0..20_u8 {
                socket.send_to(&[number; 100], (NEAR, 9)).expect("sent");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    sender.join().expect("the sender ends");
    std::thread::sleep(Duration::from_millis(300));
    drop(sink);
    let after = count();
    [after[0] - before[0], after[1] - before[1]]
}

/// So many MiB there and back again, compared by SHA-256.
pub(crate) fn transfer(there: &Namespace, address: &str, mebibytes: usize) {
    let to: SocketAddr = address.parse().expect("an address");
    let server = there.enter(move || {
        let listener = TcpListener::bind(to).expect("a port");
        let (mut stream, _) = listener.accept().expect("a caller");
        let got = take(&mut stream, mebibytes);
        give(&mut stream, mebibytes, 2);
        got
    });
    let mut stream = wait("a server", Duration::from_secs(10), || TcpStream::connect(to).ok());
    stream.set_read_timeout(Some(patient(Duration::from_secs(30)))).expect("a limit");
    give(&mut stream, mebibytes, 1);
    assert_eq!(take(&mut stream, mebibytes), hash(mebibytes, 2), "from there");
    assert_eq!(server.join().expect("the server ends"), hash(mebibytes, 1), "to there");
}

const CHUNK: usize = 1 << 16;

fn chunk(number: usize, seed: u64) -> Vec<u8> {
    let mut state = seed << 32 | number as u64 | 1 << 20;
    (0..CHUNK / 8)
        .flat_map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        })
        .collect()
}

fn give(stream: &mut TcpStream, mebibytes: usize, seed: u64) {
    for number in 0..mebibytes * (1 << 20) / CHUNK {
        stream.write_all(&chunk(number, seed)).expect("sent");
    }
}

fn take(stream: &mut TcpStream, mebibytes: usize) -> Vec<u8> {
    let mut digest = Sha256::new();
    let mut room = vec![0; CHUNK];
    let mut left = mebibytes << 20;
    while left > 0 {
        let most = left.min(CHUNK);
        let bytes = stream.read(&mut room[..most]).expect("received");
        assert!(bytes > 0, "the other side ended with {left} bytes to go");
        digest.update(&room[..bytes]);
        left -= bytes;
    }
    digest.finalize().to_vec()
}

fn hash(mebibytes: usize, seed: u64) -> Vec<u8> {
    let mut digest = Sha256::new();
    for number in 0..mebibytes * (1 << 20) / CHUNK {
        digest.update(chunk(number, seed));
    }
    digest.finalize().to_vec()
}
