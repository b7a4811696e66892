//! The wire that is a Linux interface, on a real one.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use pollux_mlx5_model::time::Clock;
use pollux_mlx5_model::wire::{Impairments, Sent, Wire, WireSpec};
use pollux_tests::netns::{Namespace, join};
use pollux_tests::require::{Need, require};
use pollux_wire::{Ether, EtherType, Ipv4, Udp};

fn open(name: &str) -> Box<dyn Wire> {
    let spec: WireSpec = format!("iface:{name}").parse().expect("a wire");
    spec.open([2, 0, 0, 0, 0, 9], Impairments::default(), &Clock::machine()).expect("opened")
}

/// The next UDP payload to port 9, whose checksums must be right.
fn await_udp(wire: &mut dyn Wire) -> Vec<u8> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut room = [0; 2048];
    loop {
        assert!(Instant::now() < end, "no datagram within ten seconds");
        wire.poll();
        let Some(bytes) = wire.receive(&mut room) else { continue };
        let ether = Ether::new(&room[..bytes]).expect("Ethernet");
        if ether.ether_type() != EtherType::IPV4 {
            continue;
        }
        let ip = Ipv4::new(ether.payload()).expect("IPv4");
        let udp = Udp::new(ip.payload()).expect("UDP");
        assert!(ip.checksum_ok() && udp.checksum_ok(ip.pseudo_sum()), "the frame is finished");
        return udp.payload().to_vec();
    }
}

#[test]
fn frames_cross_to_the_kernel_and_back() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("wire");
    join(&host, "va", &host, "vb");
    host.ip(&["addr", "add", "10.9.0.1/24", "dev", "va"]);
    host.ip(&["neigh", "add", "10.9.0.2", "lladdr", "02:00:00:00:00:09", "dev", "va"]);
    host.enter(|| {
        let mut wire = open("vb");
        assert!(wire.is_up() && !wire.waits());
        assert_eq!(wire.describe(), "iface:vb");
        let socket = UdpSocket::bind("10.9.0.1:9").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
        for bytes in [0, 1, 100, 1400] {
            socket.send_to(&vec![0x5a; bytes], "10.9.0.2:9").expect("sent");
            assert_eq!(await_udp(wire.as_mut()), vec![0x5a; bytes]);
        }
        // Back: a frame of the wire reaches the kernel's socket.
        let mac = mac_of("va").expect("a MAC");
        let frame = datagram(mac, b"from the wire");
        assert_eq!(wire.send(&frame), Sent::Yes);
        assert!(wire.is_pending());
        wire.poll();
        let mut room = [0; 64];
        let (bytes, from) = socket.recv_from(&mut room).expect("received");
        assert_eq!((&room[..bytes], from.to_string().as_str()), (&b"from the wire"[..], "10.9.0.2:9"));
    })
    .join()
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

#[test]
fn the_link_is_the_interfaces() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("link");
    join(&host, "va", &host, "vb");
    let name = host.name().to_owned();
    let ip = move |args: &[&str]| {
        pollux_tests::netns::must(std::process::Command::new("ip").args(["-n", &name]).args(args));
    };
    host.enter(move || {
        let mut wire = open("vb");
        for (state, up) in [("down", false), ("up", true)] {
            ip(&["link", "set", "va", state]);
            let end = Instant::now() + Duration::from_secs(10);
            while wire.is_up() != up {
                assert!(Instant::now() < end, "the link did not go {state}");
                wire.poll();
            }
            // Into the dark: lost, said so, and nobody waits.
            let lost = (0..2000).filter(|_| up || wire.send(&[0xff; 60]) == Sent::Lost).count();
            assert_eq!(lost, 2000);
        }
    })
    .join()
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn mac_of(interface: &str) -> std::io::Result<[u8; 6]> {
    pollux_frame_io::interface::Interface::find(interface)
        .map_err(std::io::Error::other)?
        .state()
        .map(|state| state.mac)
}

/// A UDP datagram from 10.9.0.2 to 10.9.0.1, without a UDP checksum.
fn datagram(to: [u8; 6], payload: &[u8]) -> Vec<u8> {
    use pollux_wire::{EtherRepr, IpProtocol, Ipv4Repr};
    let bytes = 8 + payload.len() as u16;
    let mut frame = vec![0; 42 + payload.len()];
    let ip = Ipv4Repr::new([10, 9, 0, 2].into(), [10, 9, 0, 1].into(), IpProtocol::UDP, bytes);
    let ether = EtherRepr { dst: to.into(), src: [2, 0, 0, 0, 0, 9].into(), ether_type: EtherType::IPV4 };
    let rest = ether.emit(&mut frame).expect("room");
    let udp = ip.emit(rest).expect("room");
    udp[..8].copy_from_slice(&[0, 9, 0, 9, (bytes >> 8) as u8, bytes as u8, 0, 0]);
    udp[8..].copy_from_slice(payload);
    frame
}
