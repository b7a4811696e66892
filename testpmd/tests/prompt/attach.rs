//! Devices that come and go at the prompt.

use std::net::UdpSocket;

use pollux_tests::capture;
use pollux_tests::netns::Namespace;
use pollux_tests::require::{Need, require};
use pollux_wire::checksum::{Sum, pseudo_v4};
use pollux_wire::{Ether, IpProtocol, Ipv4};

use crate::NULLS;
use crate::typist::{Typist, number, two_cpus};

/// What is attached forwards like the ports of the start, and is watched like them.
#[test]
fn devices_come_and_go_at_the_prompt() {
    if !two_cpus() {
        return;
    }
    let mut typist = Typist::start(&NULLS[..4], &["--rxq=2", "--txq=2"]);
    let attached = typist.line("port attach net_ring0");
    assert!(
        attached.contains("Attaching a new port...\nPort 1 is attached. Now total ports is 2\nDone"),
        "{attached}"
    );
    assert!(typist.line("start").contains("start port 1 first"));
    for refused in [
        ("port attach net_ring0", "Failed to attach port net_ring0: ", "port 1 has that name"),
        ("port attach net_nul9", "Failed to attach port net_nul9: ", "did you mean 'net_null'"),
        ("port detach 7", "Invalid port 7", ""),
        ("port detach 0", "Port not stopped", ""),
        ("device detach net_null9", "Failed to detach device net_null9", ""),
    ] {
        let said = typist.line(refused.0);
        assert!(said.contains(refused.1) && said.contains(refused.2), "{}: {said}", refused.0);
    }
    assert!(typist.line("port start 1").contains("Configuring Port 1"));
    for round in 0..2 {
        let started = typist.line("start");
        assert!(started.contains("streams=4"), "both ports, two queues each: {started}");
        typist.until("show port stats 1", |said| number(said, "TX-packets: ") > 1000);
        typist.line("stop");
        typist.line("port stop 1");
        let detached = typist.line("port detach 1");
        assert!(
            detached.contains("Device is detached") && detached.contains("Now total ports is 1\nDone"),
            "{detached}"
        );
        assert!(typist.line("show port info 1").contains("Invalid port 1"));
        // Its number and its name are free again, and its counts are gone.
        let device = if round == 0 { "net_ring0" } else { "mlx5_model0,wire=null" };
        assert!(typist.line(&format!("port attach {device}")).contains("Port 1 is attached"));
        assert!(typist.line("port start all").contains("Configuring Port 1"));
    }
    // What was left of a closed port is its device.
    typist.line("port stop all");
    typist.line("port close 1");
    let detached = typist.line("device detach mlx5_model0");
    assert!(
        detached.contains("Device mlx5_model0 is detached") && !detached.contains("not closed"),
        "{detached}"
    );
    typist.line("port start all");
    assert!(typist.line("start").contains("streams=2"));
    typist.quit();
}

/// What the last run had dropped at a port is not that of the next device with its number.
#[test]
fn an_attached_device_inherits_no_drops() {
    if !two_cpus() {
        return;
    }
    let mut typist =
        Typist::start(&["-l", "0,1", "--vdev", "net_null0", "--vdev", "mlx5_model0,wire=null"], &[]);
    let dropped = |said: &str| {
        let port = said.split("Forward statistics for port 1").nth(1).unwrap_or_default();
        number(port, "TX-dropped: ")
    };
    typist.line("start");
    typist.line("port 1 txq 0 stop");
    typist.until("show fwd stats all", |said| dropped(said) > 0);
    typist.line("stop");
    typist.line("port stop 1");
    typist.line("port detach 1");
    assert!(!typist.line("show fwd latency").contains("1/0"), "streams go with their ports");
    typist.line("port attach mlx5_model0,wire=null");
    assert_eq!(dropped(&typist.line("show fwd stats all")), 0);
    typist.quit();
}

/// A port that cannot wake its lcore is named when it is attached, as those of the start are.
#[test]
fn a_port_without_interrupts_is_named_when_it_is_attached() {
    let mut typist = Typist::start(&["-l", "0", "--vdev", "mlx5_model0,wire=null"], &["--idle=interrupt"]);
    let attached = typist.line("port attach net_ring0");
    let notice = "Done\nport 1 net_ring0 has no rx interrupt: an idle lcore polls it every 1 ms";
    assert!(attached.contains(notice), "{attached}");
    let attached = typist.line("port attach mlx5_model1,wire=null");
    assert!(attached.contains("Port 2 is attached") && !attached.contains("interrupt"), "{attached}");
    typist.quit();
}

/// What the kernel sends through a tap that was attached leaves a port of the start with its checksum filled in.
#[test]
fn ports_of_the_start_finish_what_an_attached_one_leaves_open() {
    const DATAGRAMS: u64 = 20;
    if !require(&[Need::Root, Need::Net]) || !two_cpus() {
        return;
    }
    let host = Namespace::new("tpmd-tap");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("none"), capture::capture(&[])).expect("written");
    let wire = format!("mlx5_model1,wire=pcap:{}:{}", path("none").display(), path("out").display());
    let eal = ["-l", "0,1", "--vdev", "mlx5_model0,wire=null", "--vdev", &wire];
    let mut typist = Typist::inside(&host, &eal, &[]);
    let attached = typist.line("port attach net_tap0,iface=tap0");
    assert!(attached.contains("Port 2 is attached"), "{attached}");
    // The others were told of no such packets.
    let refused = typist.line("port start 2");
    assert!(refused.contains("Please stop port 0 first") && refused.contains("UDP_CKSUM"), "{refused}");
    assert!(!refused.contains("Configuring"), "{refused}");
    typist.line("port stop all");
    let started = typist.line("port start all");
    for port in 0..3 {
        assert!(started.contains(&format!("Configuring Port {port} ")), "{started}");
    }
    host.ip(&["address", "add", "10.9.0.1/24", "dev", "tap0"]);
    host.ip(&["neighbour", "add", "10.9.0.2", "lladdr", "02:00:00:00:00:02", "dev", "tap0"]);
    typist.line("set portlist 2,1");
    let begun = typist.line("start");
    assert!(begun.contains("RX P=2/Q=0 (socket 0) -> TX P=1/Q=0"), "{begun}");
    let sender = host.enter(|| {
        let socket = UdpSocket::bind("10.9.0.1:0").expect("a socket");
        for number in 0..DATAGRAMS {
            let text = format!("datagram {number}");
            socket.send_to(text.as_bytes(), "10.9.0.2:9").expect("sent");
        }
    });
    sender.join().expect("no panic");
    typist.until("show port stats 1", |said| number(said, "TX-packets: ") >= DATAGRAMS);
    typist.line("stop");
    typist.quit();
    let left = capture::frames(&std::fs::read(path("out")).expect("written"));
    let datagrams = left.iter().filter_map(|frame| {
        let ether = Ether::new(frame).ok()?;
        let ip = Ipv4::new(ether.payload()).ok().filter(|ip| ip.protocol() == IpProtocol::UDP)?;
        let bytes = usize::from(ip.total_bytes.get()) - 20;
        let pseudo = pseudo_v4(ip.src(), ip.dst(), IpProtocol::UDP, bytes as u16);
        Some((pseudo + Sum::of(&ether.payload()[20..20 + bytes])).checksum())
    });
    assert_eq!(datagrams.collect::<Vec<_>>(), [0; DATAGRAMS as usize], "sums of the datagrams that left");
}
