//! A translator of source addresses and ports, written with the documented helpers.

use pollux_mempool::{Burst, Mbuf};
use pollux_port::finish::transport_sum;
use pollux_port::{RxQueue, TxQueue};
use pollux_tests::require::{Need, require};
use pollux_wire::{IpProtocol, checksum};

use super::middle::{B4, B6, FLOOR, Hosts, Setup, Work, start, tcp, udp};

const A4: [u8; 4] = [10, 77, 0, 1];
const SEEN4: [u8; 4] = [10, 77, 0, 99];
const A6: [u8; 16] = [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const SEEN6: [u8; 16] = [0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x99, 0x99];

fn word(data: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*data.get(at)?, *data.get(at + 1)?]))
}

/// Puts `new` in the place of the address at `at` and turns the lowest bits of the port at the same side. What is neither TCP nor
/// UDP stays.
fn translate(mbuf: &mut Mbuf, out: bool) -> Option<()> {
    let data = mbuf.data();
    let (v6, protocol, l4) = match word(data, 12)? {
        0x0800 => (false, IpProtocol(*data.get(23)?), 34),
        0x86dd => (true, IpProtocol(*data.get(20)?), 54),
        _ => return None,
    };
    let sum_at = l4
        + match protocol {
            IpProtocol::TCP => 16,
            IpProtocol::UDP => 6,
            _ => return None,
        };
    let (old, new): (&[u8], &[u8]) = match (v6, out) {
        (false, true) => (&A4, &SEEN4),
        (false, false) => (&SEEN4, &A4),
        (true, true) => (&A6, &SEEN6),
        (true, false) => (&SEEN6, &A6),
    };
    let address_at = if v6 { 22 } else { 26 } + if out { 0 } else { old.len() };
    if data.get(address_at..address_at + old.len())? != old {
        return None;
    }
    let port_at = l4 + if out { 0 } else { 2 };
    let old_port = word(data, port_at)?.to_be_bytes();
    let new_port = (word(data, port_at)? ^ 0x0155).to_be_bytes();
    let field = word(data, sum_at)?;
    let state = transport_sum(mbuf, protocol, field);
    let field = state.address_changed(field, old, new);
    let field = state.data_changed(field, &old_port, &new_port);
    let ip = (!v6).then(|| word(data, 24)).flatten().map(|sum| checksum::update_bytes(sum, old, new));
    let data = mbuf.data_mut()?;
    data[address_at..address_at + new.len()].copy_from_slice(new);
    data[port_at..port_at + 2].copy_from_slice(&new_port);
    data[sum_at..sum_at + 2].copy_from_slice(&field.to_be_bytes());
    if let Some(ip) = ip {
        data[24..26].copy_from_slice(&ip.to_be_bytes());
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
