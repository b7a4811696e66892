//! What the kernel drops before a port because nobody polls it: each frame is received or counted as missed.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_frame_io::packet_socket::PacketOptions;
use pollux_mempool::{Burst, MbufPool};
use pollux_port::driver::PortDriver;
use pollux_port::{Port, PortConfig, PortId, Queues};
use pollux_port_soft::af_packet::AfPacketPort;
use pollux_port_soft::pcap::{PcapOptions, PcapPort, PcapSource};
use pollux_port_soft::tap::{TapOptions, TapPort};
use pollux_tests::netns::{Namespace, join};
use pollux_tests::require::{Need, require};

/// More than a tap (1000) or a packet socket's ring (512) holds.
const SENT: u64 = 5000;

/// Sends datagrams of several flows to a neighbour that does not exist.
fn send(host: &Namespace) {
    let done = host.enter(|| {
        let sockets: Vec<_> =
            (0..8).map(|_| UdpSocket::bind("10.9.0.1:0").expect("the address is there")).collect();
        for number in 0..SENT {
            let socket = &sockets[number as usize % sockets.len()];
            socket.send_to(&number.to_be_bytes(), "10.9.0.2:9").expect("sent");
        }
    });
    done.join().expect("sent");
}

/// An interface that sends what is for 10.9.0.2, and nothing else.
fn address(host: &Namespace, interface: &str) {
    host.ip(&["link", "set", interface, "up"]);
    host.ip(&["address", "add", "10.9.0.1/24", "dev", interface]);
    host.ip(&["neighbour", "replace", "10.9.0.2", "lladdr", "02:00:00:00:00:09", "dev", interface]);
}

/// Datagrams of [`send`] that wait in the queues.
fn receive(queues: &mut Queues) -> u64 {
    let (mut burst, mut count, mut last) = (Burst::new(), 0, Instant::now());
    while last.elapsed() < Duration::from_millis(300) {
        for rx in &mut queues.rx {
            while rx.rx_burst(&mut burst, 32) > 0 {
                last = Instant::now();
                count += burst.iter().filter(|mbuf| mbuf.data()[12..14] == [8, 0]).count() as u64;
                burst.clear();
            }
        }
    }
    count
}

fn periods(case: &str, driver: Box<dyn PortDriver>, queues: usize, mut send: impl FnMut(u64)) {
    let pool = MbufPool::builder("loss", 4096).build_anonymous().expect("memory");
    let mut port = Port::new(PortId(0), "loss", driver);
    let config = PortConfig { promiscuous: Some(true), ..PortConfig::queues(queues, queues, &pool) };
    let mut queues = port.bring_up(config).unwrap_or_else(|error| panic!("{case}: {error:?}"));
    let mut received = 0;
    for period in 1..=3 {
        send(period);
        received += receive(&mut queues);
        let missed = port.stats().imissed;
        assert_eq!(received + missed, period * SENT, "{case}, period {period}: {received} received");
        assert!(missed > 0 && received > 0, "{case}: {missed} missed, {received} received");
        assert!(port.dropped().iter().any(|drop| drop.reason == "queue full" && drop.packets == missed));
        port.stop().expect("stops");
        port.start().expect("starts");
    }
    port.reset_stats();
    assert_eq!(port.stats().imissed, 0);
}

#[test]
fn a_tap_counts_what_the_kernel_drops_wherever_it_is() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    for queues in [1, 2] {
        let (home, away) = (Arc::new(Namespace::new("home")), Namespace::new("away"));
        let inside = home.clone();
        home.enter(move || {
            let options = TapOptions { interface: "plxloss".into(), mac: None };
            let driver = TapPort::new(&options).unwrap_or_else(|error| panic!("{error:?}"));
            let (home, away) = (&inside, &away);
            periods(&format!("tap, {queues} queues"), Box::new(driver), queues, |period| {
                if period == 2 {
                    home.ip(&["link", "set", "plxloss", "netns", away.name()]);
                }
                let host = if period == 1 { home } else { away };
                if period < 3 {
                    must_be_silent(host, "plxloss");
                    address(host, "plxloss");
                }
                send(host);
            });
        })
        .join()
        .expect("no panic");
    }
}

fn must_be_silent(host: &Namespace, interface: &str) {
    let setting = format!("net.ipv6.conf.{interface}.disable_ipv6=1");
    pollux_tests::netns::must(&mut host.command("sysctl", &["-qw", &setting]));
}

#[test]
fn packet_sockets_count_what_the_kernel_drops() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    type Make = fn() -> Box<dyn PortDriver>;
    fn pcap(options: PcapOptions) -> Box<dyn PortDriver> {
        Box::new(PcapPort::new("net_pcap0", &options).unwrap_or_else(|error| panic!("{error:?}")))
    }
    fn af_packet(queues: u16) -> Box<dyn PortDriver> {
        let options = PacketOptions { queues, receiving: queues, ..PacketOptions::new("right") };
        Box::new(AfPacketPort::new(options).unwrap_or_else(|error| panic!("{error:?}")))
    }
    let table: [(&str, usize, Make); 5] = [
        ("af_packet", 1, || af_packet(1)),
        ("af_packet", 2, || af_packet(2)),
        ("pcap iface", 1, || pcap(PcapOptions { interface: Some("right".into()), ..PcapOptions::default() })),
        ("pcap rx_iface", 1, || {
            pcap(PcapOptions { rx: vec![PcapSource::Interface("right".into())], ..PcapOptions::default() })
        }),
        ("pcap rx_iface_in", 1, || {
            pcap(PcapOptions { rx: vec![PcapSource::InterfaceIn("right".into())], ..PcapOptions::default() })
        }),
    ];
    for (case, queues, make) in table {
        let (a, b) = (Namespace::new("a"), Namespace::new("b"));
        join(&a, "left", &b, "right");
        for (host, interface) in [(&a, "left"), (&b, "right")] {
            must_be_silent(host, interface);
        }
        address(&a, "left");
        b.enter(move || periods(case, make(), queues, |_| send(&a))).join().expect("no panic");
    }
}
