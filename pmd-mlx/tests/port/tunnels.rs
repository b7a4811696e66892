//! What packets in tunnels ask for, done by the device: the frames are those that software makes of them.

use pollux_mempool::{Burst, Mbuf, MbufPool, TxFlags, TxOffload};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::Traits;
use pollux_mlx5_model::config::Profile;
use pollux_pmd_mlx::Arguments;
use pollux_port::finish::Finisher;
use pollux_port::{PortConfig, TxOffloads};

use crate::harness::{A, B, Pair, pool, received};

/// A kind of tunnel: its flag, the offload for cutting inside, whether it is over UDP, what is between the outer layer 3 or the UDP
/// header and the inner layer 3 (the inner type goes into the last two bytes), and whether that ends with an Ethernet header.
struct Kind {
    flag: TxFlags,
    offload: TxOffloads,
    /// UDP port, or IP protocol (0: by the inner version).
    port: u16,
    over_udp: bool,
    head: &'static [u8],
    typed: bool,
}

const ETHERNET: [u8; 12] = [2, 9, 9, 9, 9, 1, 2, 9, 9, 9, 9, 2];

fn kinds() -> Vec<Kind> {
    let kind = |flag, offload, over_udp, port, head: Vec<u8>, typed| Kind {
        flag,
        offload,
        port,
        over_udp,
        head: head.leak(),
        typed,
    };
    let framed = |head: &[u8]| [head, &ETHERNET, &[0, 0]].concat();
    let vxlan = framed(&[8, 0, 0, 0, 0, 0, 5, 0]);
    let geneve = framed(&[2, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 1, 7, 7, 7, 7]);
    vec![
        kind(TxFlags::TUNNEL_VXLAN, TxOffloads::VXLAN_TNL_TSO, true, 4789, vxlan.clone(), true),
        kind(TxFlags::TUNNEL_GENEVE, TxOffloads::GENEVE_TNL_TSO, true, 6081, geneve, true),
        kind(TxFlags::TUNNEL_GRE, TxOffloads::GRE_TNL_TSO, false, 47, vec![0; 4], true),
        kind(TxFlags::TUNNEL_GRE, TxOffloads::GRE_TNL_TSO, false, 47, framed(&[0, 0, 0x65, 0x58]), true),
        kind(TxFlags::TUNNEL_IP, TxOffloads::IP_TNL_TSO, false, 0, vec![], false),
        kind(TxFlags::TUNNEL_UDP, TxOffloads::UDP_TNL_TSO, true, 8472, vxlan, true),
    ]
}

fn ip(v6: bool, protocol: u8, behind: &[u8]) -> Vec<u8> {
    let length = behind.len() as u16;
    let mut bytes = if v6 {
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend(length.to_be_bytes());
        bytes.extend([protocol, 64]);
        bytes.extend((1..=32).collect::<Vec<u8>>());
        bytes
    } else {
        let mut bytes = vec![0x45, 0, 0, 0, 0x11, 0x22, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bytes[2..4].copy_from_slice(&(20 + length).to_be_bytes());
        bytes
    };
    bytes.extend(behind);
    bytes
}

/// A packet with `payload` bytes inside, its flags and lengths; sums are open.
fn packet(pool: &MbufPool, kind: &Kind, [outer_v6, inner_v6]: [bool; 2], payload: usize) -> Mbuf {
    let mut tcp = vec![0x12, 0x34, 0x56, 0x78, 0, 0, 1, 0, 0, 0, 2, 0, 0x50, 0x19, 0x20, 0, 0, 0, 0, 0];
    tcp.extend((0..payload).map(|at| (at * 13) as u8));
    let inner = ip(inner_v6, 6, &tcp);
    let ether_type: u16 = if inner_v6 { 0x86dd } else { 0x0800 };
    let mut head = kind.head.to_vec();
    if kind.typed {
        let at = head.len() - 2;
        head[at..].copy_from_slice(&ether_type.to_be_bytes());
    }
    let mut between = head.clone();
    if kind.over_udp {
        let bytes = (8 + head.len() + inner.len()) as u16;
        between = [&[0xc0, 1][..], &kind.port.to_be_bytes(), &bytes.to_be_bytes(), &[0, 0], &head].concat();
    }
    let protocol = match kind.port {
        _ if kind.over_udp => 17,
        0 if inner_v6 => 41,
        0 => 4,
        port => port as u8,
    };
    let outer = ip(outer_v6, protocol, &[between.clone(), inner.clone()].concat());
    let outer_type: u16 = if outer_v6 { 0x86dd } else { 0x0800 };
    let frame = [&B[..], &A, &outer_type.to_be_bytes(), &outer].concat();
    let mut mbuf = pool.alloc().expect("an mbuf");
    let (first, rest) = frame.split_at(frame.len().min(1500));
    assert!(mbuf.append_slice(first));
    for piece in rest.chunks(1500) {
        let mut next = pool.alloc().expect("an mbuf");
        assert!(next.append_slice(piece));
        mbuf.chain(next).expect("short");
    }
    let outer_flags = if outer_v6 { TxFlags::OUTER_IPV6 } else { TxFlags::OUTER_IPV4 };
    mbuf.set_tx_flags(kind.flag | outer_flags | if inner_v6 { TxFlags::IPV6 } else { TxFlags::IPV4 });
    mbuf.set_tx_offload(TxOffload {
        outer_l2_len: 14,
        outer_l3_len: if outer_v6 { 40 } else { 20 },
        l2_len: between.len() as u8,
        l3_len: if inner_v6 { 40 } else { 20 },
        l4_len: 20,
        tso_segment_bytes: 1000,
    });
    mbuf
}

fn pair(card: Traits) -> Pair {
    Pair::with(DoorProfile::default(), |config| DeviceConfig { traits: card, ..config })
}

/// Whether frames, which a wire may have padded, are those.
fn assert_same(got: &[Vec<u8>], want: &[Vec<u8>], case: &str) {
    assert_eq!(got.len(), want.len(), "{case}");
    for (index, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(got, want, "{case}: frame {index}");
    }
}

#[test]
fn the_device_makes_the_frames_that_software_makes() {
    for profile in Profile::ALL {
        for (devx, multi_packet) in [(true, None), (true, Some(false)), (false, None)] {
            let pair = pair(profile.traits());
            let pool = pool("tunnels", 4095);
            let arguments = Arguments { devx, multi_packet, ..Arguments::default() };
            let (mut a, mut b) = (pair.a.open(arguments.clone()), pair.b.open(arguments));
            let offered = a.info().tx_offloads;
            // Chains are not freed unseen.
            let tx_offloads = offered - TxOffloads::MBUF_FAST_FREE;
            let config = PortConfig { tx_offloads, ..PortConfig::queues(1, 1, &pool) };
            let mut queues_a = a.bring_up(config).expect("up");
            let mut queues_b = b.bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
            for kind in kinds() {
                for bits in 0..32_u8 {
                    let bit = |at: u8| bits >> at & 1 != 0;
                    let (sums, cut, tag) = (bit(2), bit(3), bit(4));
                    let make = || {
                        let versions = [bit(0), bit(1)];
                        let mut mbuf = packet(&pool, &kind, versions, if cut { 3500 } else { 300 });
                        let mut flags = mbuf.tx_flags();
                        if sums || cut {
                            flags |= TxFlags::TCP_CHECKSUM;
                            flags.set(TxFlags::IP_CHECKSUM, !versions[1]);
                            flags.set(TxFlags::OUTER_IP_CHECKSUM, !versions[0]);
                        }
                        flags.set(TxFlags::TCP_SEGMENTATION, cut);
                        flags.set(TxFlags::VLAN, tag);
                        mbuf.set_tx_flags(flags);
                        mbuf.set_vlan_tci(0x2a);
                        mbuf
                    };
                    let case = format!("{profile} devx {devx} {multi_packet:?} {:?} {bits:#07b}", kind.flag);
                    let mut want = Vec::new();
                    Finisher::default().plain(&make(), |frame| want.push(frame.to_vec())).expect("sound");
                    let mut burst = Burst::new();
                    burst.push(make());
                    let prepared = queues_a.tx[0].tx_prepare(&mut burst);
                    if cut && !offered.contains(kind.offload) {
                        let refused = prepared.expect_err(&case).to_string();
                        let name = format!("{:?}", kind.offload);
                        let name = name.trim_start_matches("TxOffloads(").trim_end_matches(')');
                        assert!(refused.contains(name), "{case}: {refused}");
                        continue;
                    }
                    prepared.expect(&case);
                    assert_eq!(queues_a.tx[0].tx_burst(&mut burst), 1, "{case}");
                    pair.settle();
                    assert_same(&received(&mut queues_b, 0), &want, &case);
                }
            }
            pair.a.assert_orderly();
            drop((queues_a, queues_b, a, b));
            assert_eq!(pool.in_use(), 0);
        }
    }
}

#[test]
fn a_port_offers_what_its_card_does() {
    let outer = TxOffloads::OUTER_IPV4_CKSUM;
    let (vxlan, gre, geneve) =
        (TxOffloads::VXLAN_TNL_TSO, TxOffloads::GRE_TNL_TSO, TxOffloads::GENEVE_TNL_TSO);
    let any = TxOffloads::UDP_TNL_TSO | TxOffloads::IP_TNL_TSO;
    let all = outer | vxlan | gre | geneve | any;
    let base = Traits::default();
    for (card, want) in [
        (Profile::ConnectX4Lx.traits(), all - geneve),
        (Profile::ConnectX5.traits(), all),
        (Profile::ConnectX6Dx.traits(), all),
        (Profile::ConnectX7.traits(), all),
        (Traits { vxlan: false, ..base }, all - vxlan),
        (Traits { gre: false, ..base }, all - gre),
        (Traits { software_parsing: false, ..base }, all - any),
        (Traits { vxlan: false, gre: false, geneve: false, ..base }, outer | any),
        (
            Traits { vxlan: false, gre: false, geneve: false, software_parsing: false, ..base },
            TxOffloads::empty(),
        ),
    ] {
        for devx in [true, false] {
            let pair = pair(card);
            let pool = pool("offers", 1023);
            let mut port = pair.a.open(Arguments { devx, ..Arguments::default() });
            let tunnels = all | TxOffloads::OUTER_UDP_CKSUM | TxOffloads::IPIP_TNL_TSO;
            assert_eq!(port.info().tx_offloads & tunnels, want, "{card:?}");
            for (name, offload) in tunnels.iter_names() {
                let config = PortConfig { tx_offloads: offload, ..PortConfig::queues(1, 1, &pool) };
                match port.configure(config) {
                    Ok(()) => assert!(want.contains(offload), "{name}"),
                    Err(error) => {
                        assert!(
                            !want.contains(offload) && error.to_string().contains(name),
                            "{name}: {error}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_kind_that_nobody_finds_is_refused_and_counted() {
    let pair = pair(Traits { software_parsing: false, ..Traits::default() });
    let pool = pool("unknown", 2047);
    let mut port = pair.a.open(Arguments::default());
    let config = PortConfig { tx_offloads: port.info().tx_offloads, ..PortConfig::queues(1, 1, &pool) };
    let mut queues = port.bring_up(config).expect("up");
    let kinds = kinds();
    let unknown = kinds.last().expect("one");
    let mut burst = Burst::new();
    for kind in [&kinds[0], unknown, &kinds[0]] {
        let mut mbuf = packet(&pool, kind, [false, false], 100);
        mbuf.set_tx_flags(mbuf.tx_flags() | TxFlags::IP_CHECKSUM | TxFlags::TCP_CHECKSUM);
        burst.push(mbuf);
    }
    let refused = queues.tx[0].tx_prepare(&mut burst).expect_err("the second").to_string();
    assert!(refused.starts_with("packet 1: it asks for something inside a tunnel"), "{refused}");
    assert_eq!((queues.tx[0].tx_burst(&mut burst), burst.len()), (3, 0));
    pair.settle();
    let stats = port.stats();
    assert_eq!((stats.opackets, stats.oerrors), (2, 1));
}
