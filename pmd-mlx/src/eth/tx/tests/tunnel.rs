//! Packets in tunnels, byte by byte.

use super::*;
use crate::eth::parts::KnownTunnels;

/// A card that knows VXLAN and GRE and is told of all else.
const TOLD: TxTunnels =
    TxTunnels { known: KnownTunnels::VXLAN.union(KnownTunnels::GRE), told_sums: true, told_cuts: true };

/// A packet of `bytes` bytes with flags and the lengths of its headers: outer layers 2 and 3, what is between, inner layers 3 and 4.
fn tunnelled(pool: &MbufPool, bytes: usize, flags: TxFlags, lengths: [u8; 5]) -> Mbuf {
    let [outer_l2_len, outer_l3_len, l2_len, l3_len, l4_len] = lengths;
    let mut mbuf = packet(pool, &super::bytes(1, bytes));
    mbuf.set_tx_flags(flags);
    mbuf.set_tx_offload(TxOffload {
        outer_l2_len,
        outer_l3_len: outer_l3_len.into(),
        l2_len,
        l3_len: l3_len.into(),
        l4_len,
        tso_segment_bytes: if flags.contains(TxFlags::TCP_SEGMENTATION) { 100 } else { 0 },
    });
    mbuf
}

/// The first 8 bytes of the Ethernet segment of an entry that sends it: offsets of layers 4 and 3 outside, 4 and 3 inside; checksums;
/// kinds; segment size. `None`: it is dropped.
fn told(tunnels: TxTunnels, flags: TxFlags, lengths: [u8; 5]) -> Option<[u8; 8]> {
    let pool = pool(64);
    let (mut queue, mut device, counters) = rig(&Plan { features: all(), tunnels, ..Plan::default() }, &pool);
    let mut burst = Burst::new();
    let mbuf = tunnelled(&pool, 700, flags, lengths);
    let prepared = queue.prepare(std::slice::from_mut(&mut { mbuf })).is_ok();
    burst.push(tunnelled(&pool, 700, flags, lengths));
    let sent = queue.tx_burst(&mut burst).packets == 1;
    assert_eq!(sent, prepared, "what is prepared is sent");
    assert_eq!(counters.dropped(TxDrop::Malformed), u64::from(!sent));
    let segment = sent.then(|| device.segment(1)[..8].try_into().expect("8 bytes"));
    let sent = device.send();
    assert!(sent.is_empty() || sent[0].bytes == super::bytes(1, 700) || flags.contains(TxFlags::VLAN));
    queue.tx_burst(&mut burst);
    assert_eq!(pool.in_use(), 0);
    segment
}

const V4: TxFlags = TxFlags::IPV4.union(TxFlags::IP_CHECKSUM);
const OUTER_V4: TxFlags = TxFlags::OUTER_IPV4.union(TxFlags::OUTER_IP_CHECKSUM);
const CUT: TxFlags = TxFlags::TCP_SEGMENTATION.union(TxFlags::TCP_CHECKSUM);

#[test]
fn what_the_device_does_not_know_it_is_told() {
    let (v6, outer_v6) = (TxFlags::IPV6, TxFlags::OUTER_IPV6);
    let (tcp, udp) = (TxFlags::TCP_CHECKSUM, TxFlags::UDP_CHECKSUM);
    let all_sums = 0x70;
    for (flags, lengths, want) in [
        // Known: nothing is said.
        (TxFlags::TUNNEL_VXLAN | OUTER_V4 | V4 | tcp, [14, 20, 30, 20, 20], [0, 0, 0, 0, all_sums, 0, 0, 0]),
        (TxFlags::TUNNEL_VXLAN | outer_v6 | v6 | udp, [14, 40, 30, 40, 8], [0, 0, 0, 0, 0x20, 0, 0, 0]),
        (TxFlags::TUNNEL_GRE | OUTER_V4 | v6 | CUT, [14, 20, 4, 40, 20], [0, 0, 0, 0, 0x60, 0, 0, 100]),
        // IP in IP, every pair of versions.
        (TxFlags::TUNNEL_IPIP | OUTER_V4 | V4 | tcp, [14, 20, 0, 20, 20], [0, 7, 27, 17, all_sums, 0, 0, 0]),
        (TxFlags::TUNNEL_IP | OUTER_V4 | V4 | tcp, [14, 20, 0, 20, 20], [0, 7, 27, 17, all_sums, 0, 0, 0]),
        (TxFlags::TUNNEL_IP | OUTER_V4 | v6 | udp, [14, 20, 0, 40, 8], [0, 7, 37, 17, 0x60, 0x03, 0, 0]),
        (TxFlags::TUNNEL_IP | outer_v6 | V4 | udp, [14, 40, 0, 20, 8], [0, 7, 37, 27, 0x30, 0x12, 0, 0]),
        (TxFlags::TUNNEL_IP | outer_v6 | v6 | tcp, [14, 40, 0, 40, 20], [0, 7, 47, 27, 0x20, 0x11, 0, 0]),
        // Over UDP, with a header of 8 bytes and Ethernet inside.
        (
            TxFlags::TUNNEL_UDP | OUTER_V4 | V4 | tcp,
            [14, 20, 30, 20, 20],
            [17, 7, 42, 32, all_sums, 0x20, 0, 0],
        ),
        (TxFlags::TUNNEL_UDP | outer_v6 | v6 | udp, [14, 40, 30, 40, 8], [27, 7, 62, 42, 0x20, 0x33, 0, 0]),
        (
            TxFlags::TUNNEL_GENEVE | OUTER_V4 | V4 | tcp,
            [14, 20, 38, 20, 20],
            [17, 7, 46, 36, all_sums, 0x20, 0, 0],
        ),
        (
            TxFlags::TUNNEL_VXLAN_GPE | OUTER_V4 | v6 | tcp,
            [14, 20, 16, 40, 20],
            [17, 7, 45, 25, 0x60, 0x21, 0, 0],
        ),
        (TxFlags::TUNNEL_GTP | outer_v6 | V4, [14, 40, 16, 20, 0], [27, 7, 0, 35, 0x10, 0x30, 0, 0]),
        // Cut: each segment has an outer length, so the outer header is summed up whether that is asked for or not.
        (TxFlags::TUNNEL_IP | OUTER_V4 | V4 | CUT, [14, 20, 0, 20, 20], [0, 7, 27, 17, all_sums, 0, 0, 100]),
        (
            TxFlags::TUNNEL_UDP | TxFlags::OUTER_IPV4 | v6 | CUT,
            [14, 20, 30, 40, 20],
            [17, 7, 52, 32, 0x60, 0x21, 0, 100],
        ),
        // Tags in the frame, and one that is put in: it counts.
        (
            TxFlags::TUNNEL_UDP | OUTER_V4 | V4 | tcp,
            [18, 20, 30, 20, 20],
            [19, 9, 44, 34, all_sums, 0x20, 0, 0],
        ),
        (
            TxFlags::TUNNEL_UDP | OUTER_V4 | V4 | tcp | TxFlags::VLAN,
            [14, 20, 30, 20, 20],
            [19, 9, 44, 34, all_sums, 0x20, 0, 0],
        ),
        // Nothing is asked for inside.
        (TxFlags::TUNNEL_UDP | OUTER_V4, [14, 20, 30, 20, 20], [0, 0, 0, 0, 0x40, 0, 0, 0]),
    ] {
        assert_eq!(told(TOLD, flags, lengths), Some(want), "{flags:?} {lengths:?}");
    }
}

#[test]
fn what_cannot_be_told_is_refused() {
    let tcp = V4 | TxFlags::TCP_CHECKSUM;
    for (flags, lengths) in [
        // An odd place, one too far on, and no word on which IP.
        (TxFlags::TUNNEL_UDP | tcp, [14, 20, 31, 20, 20]),
        (TxFlags::TUNNEL_UDP | tcp, [14, 255, 255, 20, 20]),
        (TxFlags::TUNNEL_UDP | TxFlags::TCP_CHECKSUM, [14, 20, 30, 20, 20]),
    ] {
        assert_eq!(told(TOLD, flags, lengths), None, "{flags:?} {lengths:?}");
    }
    // Cards that are told nothing, or not for all.
    let nothing = TxTunnels { told_sums: false, told_cuts: false, ..TOLD };
    let sums = TxTunnels { told_cuts: false, ..TOLD };
    for kind in
        [TxFlags::TUNNEL_UDP, TxFlags::TUNNEL_IPIP, TxFlags::TUNNEL_GENEVE, TxFlags::TUNNEL_MPLS_IN_UDP]
    {
        for (tunnels, flags, goes) in [
            (nothing, kind | tcp, false),
            (nothing, kind | OUTER_V4, true),
            (sums, kind | tcp, true),
            (sums, kind | V4 | CUT, false),
            (TOLD, kind | V4 | CUT, true),
        ] {
            let lengths = [14, 20, 30, 20, 20];
            assert_eq!(told(tunnels, flags, lengths).is_some(), goes, "{tunnels:?} {flags:?}");
        }
    }
    let geneve = TxTunnels { known: KnownTunnels::GENEVE, ..nothing };
    let known = told(geneve, TxFlags::TUNNEL_GENEVE | OUTER_V4 | tcp, [14, 20, 38, 20, 20]);
    assert_eq!(known, Some([0, 0, 0, 0, 0x70, 0, 0, 0]));
}

#[test]
fn what_is_told_has_an_entry_of_its_own() {
    let pool = pool(64);
    let (mut queue, mut device, _) = rig(&Plan { features: all(), tunnels: TOLD, ..Plan::default() }, &pool);
    let tcp = V4 | TxFlags::TCP_CHECKSUM;
    let mut burst = Burst::new();
    for kind in [
        TxFlags::TUNNEL_VXLAN,
        TxFlags::TUNNEL_VXLAN,
        TxFlags::TUNNEL_GENEVE,
        TxFlags::TUNNEL_GENEVE,
        TxFlags::TUNNEL_VXLAN,
        TxFlags::TUNNEL_VXLAN,
    ] {
        burst.push(tunnelled(&pool, 200, kind | tcp, [14, 20, 30, 20, 20]));
    }
    assert_eq!(queue.tx_burst(&mut burst).packets, 6);
    assert_eq!((device.send().len(), device.entries), (6, 4));
    queue.tx_burst(&mut burst);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_tag_before_what_is_told_stands_in_the_header() {
    let pool = pool(64);
    let features = all() | TxFeatures::VLAN_BY_DEVICE;
    let (mut queue, mut device, _) = rig(&Plan { features, tunnels: TOLD, ..Plan::default() }, &pool);
    let mut burst = Burst::new();
    for kind in [TxFlags::TUNNEL_VXLAN, TxFlags::TUNNEL_UDP] {
        let mut mbuf =
            tunnelled(&pool, 200, kind | V4 | TxFlags::TCP_CHECKSUM | TxFlags::VLAN, [14, 20, 30, 20, 20]);
        mbuf.set_vlan_tci(0x123);
        burst.push(mbuf);
    }
    assert_eq!(queue.tx_burst(&mut burst).packets, 2);
    let sent = device.send();
    assert_eq!((sent[0].vlan, sent[1].vlan), (Some(0x123), None));
    assert_eq!(sent[1].bytes, with_tag(&bytes(1, 200), 0x123));
}
