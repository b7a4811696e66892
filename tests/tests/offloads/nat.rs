//! A translator of source addresses and ports, written with the documented helpers.

use std::net::{Ipv4Addr, Ipv6Addr};

use pollux_mempool::{Burst, Mbuf};
use pollux_port::{PacketMut, RxQueue, TxQueue};
use pollux_tests::require::{Need, require};
use pollux_wire::edit::PortsMut;

use super::middle::{B4, B6, FLOOR, Hosts, Setup, Work, start, tcp, udp};

const A4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const SEEN4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 99);
const A6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const SEEN6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 0x9999);
const TURN: u16 = 0x0155;

fn turn(mut ports: PortsMut<'_>, out: bool) {
    let (src, dst) = (ports.src(), ports.dst());
    if out { ports.set_src(src ^ TURN) } else { ports.set_dst(dst ^ TURN) }
}

/// Gives the inner host another address and turns the lowest bits of the port at its side. What is neither TCP nor UDP stays.
fn translate(mbuf: &mut Mbuf, out: bool) -> Option<()> {
    if let Some(mut ip) = mbuf.ipv4_mut() {
        let seen = if out { ip.src() == A4 } else { ip.dst() == SEEN4 };
        if !seen {
            return None;
        }
        turn(ip.ports_mut()?, out);
        if out {
            ip.set_src(SEEN4)
        } else {
            ip.set_dst(A4)
        }
        return Some(());
    }
    let mut ip = mbuf.ipv6_mut()?;
    if !(if out { ip.src() == A6 } else { ip.dst() == SEEN6 }) {
        return None;
    }
    turn(ip.ports_mut()?, out);
    if out {
        ip.set_src(SEEN6)
    } else {
        ip.set_dst(A6)
    }
    Some(())
}

fn pass(rx: &mut RxQueue, tx: &mut TxQueue, burst: &mut Burst, out: bool, prepare: bool) {
    if burst.is_empty() {
        rx.rx_burst(burst, 32);
        for mbuf in burst.iter_mut() {
            let _ = translate(mbuf, out);
        }
        if prepare {
            tx.tx_prepare(burst).expect("what came in can be sent");
        }
    }
    tx.tx_burst(burst);
}

#[test]
fn translated_tcp_and_udp_arrive_whole() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    // With open sums from the hosts, and with whole ones; `tx_prepare` would write sums of pseudo-headers anew.
    let interfaces = ["net_af_packet0,iface=left", "net_af_packet1,iface=right"];
    let model = ["net_af_packet0,iface=left", "mlx5_model0,wire=iface:right"];
    for (devices, sums, prepare) in [
        (interfaces, "on", false),
        (interfaces, "on", true),
        (interfaces, "off", false),
        (model, "on", false),
        (model, "on", true),
    ] {
        let hosts = Hosts::new();
        hosts.veth(&hosts.a, "left", "1500");
        hosts.veth(&hosts.b, "right", "1500");
        for host in [&hosts.a, &hosts.b] {
            super::middle::features(host, "eth0", &["tx", sums]);
        }
        let forwarding = start(&hosts.middle, &devices, Setup::default(), move |mut queues| {
            let (mut b, mut a) = (queues.pop().expect("b"), queues.pop().expect("a"));
            let work: Work = Box::new(move |lcore| {
                let (mut out, mut back) = (Burst::new(), Burst::new());
                while !lcore.stop_requested() {
                    pass(&mut a.rx[0], &mut b.tx[0], &mut out, true, prepare);
                    pass(&mut b.rx[0], &mut a.tx[0], &mut back, false, prepare);
                }
            });
            vec![work]
        });
        hosts.addresses("1500");
        let mac = mac_of(&hosts);
        for address in ["10.77.0.99", "fd77::9999"] {
            hosts.b.ip(&["neigh", "add", address, "lladdr", &mac, "dev", "eth0"]);
        }
        udp(&hosts.a, &hosts.b, &format!("{B4}:7100"), 1400);
        udp(&hosts.a, &hosts.b, &format!("[{B6}]:7101"), 1400);
        let rates = [
            tcp(&hosts.a, &hosts.b, &format!("{B4}:7001"), 16),
            tcp(&hosts.a, &hosts.b, &format!("[{B6}]:7002"), 16),
        ];
        println!("{devices:?}, sums {sums}: {rates:.0?} Mbit/s");
        assert!(rates.iter().all(|rate| *rate > FLOOR), "{devices:?}, sums {sums}: {rates:.0?} Mbit/s");
        let dropped = forwarding.end();
        assert!(dropped.is_empty(), "{devices:?}: {dropped:?}");
    }
}

/// The address of the first host's interface.
fn mac_of(hosts: &Hosts) -> String {
    let said = pollux_tests::netns::must(&mut hosts.a.command("cat", &["/sys/class/net/eth0/address"]));
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}
