//! What an application asks of its ports by code: queues, RSS, offloads and MTU, on ports with and without them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_mempool::{Burst, Mbuf, MbufPool, TxFlags, TxOffload};
use pollux_port::{HashFields, PortId, Queues, RssConfig, RxOffloads, TxOffloads};
use pollux_tests::require::{Need, require};
use pollux_wire::IpProtocol;
use pollux_wire::checksum::{self, pseudo_v4};

const FLOWS: u16 = 64;
const IDS: [PortId; 2] = [PortId(0), PortId(1)];

fn bringup(devices: [&str; 2]) -> Bringup {
    let arguments = ["request", "-l", "0", "--vdev", devices[0], "--vdev", devices[1]];
    let line = CommandLine::parse(arguments).expect("a command line");
    Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()))
}

/// A UDP packet of its own flow, its checksums left to the device: the UDP one is that of the pseudo-header (DPDK
/// `lib/mbuf/rte_mbuf_core.h`, `RTE_MBUF_F_TX_UDP_CKSUM`).
fn packet(pool: &MbufPool, flow: u16) -> Mbuf {
    let (from, to) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9, 8, 0]);
    frame.extend([0x45, 0, 0, 60, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend(from.octets().into_iter().chain(to.octets()));
    frame.extend([1000 + flow, 7, 40].map(u16::to_be_bytes).concat());
    frame.extend(pseudo_v4(from, to, IpProtocol::UDP, 40).fold().to_be_bytes());
    frame.extend([0xa5; 32]);
    let mut mbuf = pool.alloc().expect("an mbuf");
    mbuf.append(frame.len()).expect("room").copy_from_slice(&frame);
    mbuf.set_tx_flags(TxFlags::IPV4 | TxFlags::IP_CHECKSUM | TxFlags::UDP_CHECKSUM);
    mbuf.set_tx_offload(TxOffload { l2_len: 14, l3_len: 20, ..TxOffload::default() });
    mbuf
}

/// Checks the checksums of such a packet.
fn whole(frame: &[u8]) {
    assert_eq!(checksum::of(&frame[14..34]), 0, "IPv4 header checksum");
    let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let sum = pseudo_v4(from, to, IpProtocol::UDP, 40).add_bytes(&frame[34..74]);
    assert_eq!(sum.fold(), u16::MAX, "UDP checksum");
}

/// Which queues of port 1 each flow arrives at that port 0 sends, its checksums good.
fn exchange(queues: &mut [Queues], pool: &MbufPool) -> BTreeMap<u16, BTreeSet<usize>> {
    let end = Instant::now() + Duration::from_secs(20);
    let mut arrived: BTreeMap<u16, BTreeSet<usize>> = BTreeMap::new();
    let (mut next, mut received) = (0, 0);
    let mut waiting = Burst::new();
    // Each flow twice: a flow stays with its queue.
    while received < 2 * FLOWS {
        assert!(Instant::now() < end, "{received} of {} packets", 2 * FLOWS);
        if waiting.is_empty() && next < 2 * FLOWS {
            waiting.push(packet(pool, next % FLOWS));
            next += 1;
        }
        queues[0].tx[0].tx_burst(&mut waiting);
        for (number, rx) in queues[1].rx.iter_mut().enumerate() {
            let mut burst = Burst::new();
            rx.rx_burst(&mut burst, 32);
            for mbuf in &burst {
                let frame = mbuf.data();
                // Others speak on a wire, too.
                if frame.len() < 74 || frame[12..14] != [8, 0] || frame[23] != 17 {
                    continue;
                }
                received += 1;
                whole(frame);
                let flow = u16::from_be_bytes([frame[34], frame[35]]) - 1000;
                arrived.entry(flow).or_default().insert(number);
            }
        }
        std::thread::yield_now();
    }
    arrived
}

#[test]
fn queues_spread_by_rss_and_offloads_by_code_on_mlx5() {
    let mut bringup = bringup(["mlx5_model0,wire=cable:request", "mlx5_model1,wire=cable:request"]);
    let request = PortRequest::new()
        .queues(4)
        .rss(RssConfig::new(HashFields::IP | HashFields::UDP))
        .rx(RxOffloads::CHECKSUM)
        .tx(TxOffloads::CHECKSUM)
        .rx_descriptors(256)
        .promiscuous(true)
        .mtu(4000);
    let (mut queues, pool) =
        bringup.start_ports(&IDS, &request).unwrap_or_else(|error| panic!("{}", error.line()));
    assert!(queues.iter().all(|port| (port.rx.len(), port.tx.len()) == (4, 4)));
    for id in IDS {
        let port = bringup.ports.get_mut(id).expect("it is there");
        assert_eq!(port.mtu().expect("it tells"), 4000);
        let config = port.config();
        assert!(config.rx_queues.iter().all(|queue| queue.descriptors == 256));
        assert!(config.rx_offloads.contains(RxOffloads::CHECKSUM));
    }
    let arrived = exchange(&mut queues, &pool);
    assert_eq!(arrived.len(), usize::from(FLOWS));
    assert!(arrived.values().all(|queues| queues.len() == 1), "a flow stays with its queue: {arrived:?}");
    let used: BTreeSet<usize> = arrived.values().flatten().copied().collect();
    assert_eq!(used.len(), 4, "{arrived:?}");
}

/// mlx5 has no SCTP checksum. Source: DPDK `drivers/net/mlx5/mlx5_txq.c`, `mlx5_get_tx_port_offloads`.
#[test]
fn a_checksum_that_a_port_cannot_do_is_done_in_front_of_it() {
    let mut bringup = bringup(["mlx5_model0,wire=cable:sctp", "mlx5_model1,wire=cable:sctp"]);
    let request = PortRequest::new().tx(TxOffloads::SCTP_CKSUM).promiscuous(true);
    let (mut queues, pool) =
        bringup.start_ports(&IDS, &request).unwrap_or_else(|error| panic!("{}", error.line()));
    let mut mbuf = packet(&pool, 0);
    let frame = mbuf.data_mut().expect("it is alone");
    frame[23] = 132;
    frame[42..46].fill(0);
    mbuf.set_tx_flags(TxFlags::IPV4 | TxFlags::SCTP_CHECKSUM);
    let mut burst = Burst::new();
    burst.push(mbuf);
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < end, "nothing arrives");
        queues[0].tx[0].tx_burst(&mut burst);
        let mut received = Burst::new();
        queues[1].rx[0].rx_burst(&mut received, 32);
        let Some(frame) = received.iter().map(|mbuf| mbuf.data()).find(|frame| frame[23] == 132) else {
            std::thread::yield_now();
            continue;
        };
        let mut body = frame[34..74].to_vec();
        body[8..12].fill(0);
        assert_eq!(frame[42..46], checksum::crc32c([&body[..]]));
        return;
    }
}

#[test]
fn what_a_port_does_not_have_is_refused_in_one_line() {
    for (devices, request, expected) in [
        (
            ["net_af_packet0,iface=lo", "net_null0"],
            PortRequest::new().queues(2),
            "write qpairs=2 in its device argument",
        ),
        (["net_null0", "net_null1"], PortRequest::new().rx(RxOffloads::TCP_LRO), "TCP_LRO"),
        (
            ["net_null0", "net_null1"],
            PortRequest::new().tx(TxOffloads::SEND_ON_TIMESTAMP),
            "SEND_ON_TIMESTAMP",
        ),
        (["net_ring0", "net_ring1"], PortRequest::new().rss(RssConfig::new(HashFields::IP)), "RSS"),
    ] {
        if devices[0].contains("af_packet") && !require(&[Need::Net]) {
            continue;
        }
        let mut bringup = bringup(devices);
        let refused = bringup.start_ports(&IDS, &request).map(|_| ()).expect_err("it has none").line();
        assert!(refused.contains(expected), "{refused}");
    }
}
