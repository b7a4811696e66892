use super::*;
use pollux_mempool::MbufPool;

fn info() -> PortInfo {
    PortInfo { max_tso_bytes: 9000, max_tx_segments: 3, tx_pseudo_sums: true, ..PortInfo::default() }
}

fn rules() -> TxRules {
    TxRules::new(&info(), TxOffloads::CHECKSUM | TxOffloads::TCP_TSO | TxOffloads::MULTI_SEGS)
}

fn pool() -> MbufPool {
    MbufPool::builder("prepare", 32).build_anonymous().expect("small")
}

/// Ethernet, IPv4 10.0.0.1 to 10.0.0.2, then `protocol` and `bytes` of that layer, all zero.
fn ipv4(pool: &MbufPool, protocol: u8, bytes: usize) -> Mbuf {
    let mut frame = vec![0; 34 + bytes];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[23] = protocol;
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let mut mbuf = pool.alloc().expect("fresh");
    assert!(mbuf.append_slice(&frame));
    mbuf
}

fn ask(mbuf: &mut Mbuf, flags: TxFlags, l4_len: u8, segment: u16) {
    mbuf.set_tx_flags(flags);
    mbuf.set_tx_offload(TxOffload {
        l2_len: 14,
        l3_len: 20,
        l4_len,
        tso_segment_bytes: segment,
        ..TxOffload::default()
    });
}

const UDP: TxFlags = TxFlags::IPV4.union(TxFlags::UDP_CHECKSUM);
const TSO: TxFlags =
    TxFlags::IPV4.union(TxFlags::IP_CHECKSUM).union(TxFlags::TCP_CHECKSUM).union(TxFlags::TCP_SEGMENTATION);

#[test]
fn sums_are_written_where_the_checksum_goes() {
    let pool = pool();
    let mut burst = [ipv4(&pool, 17, 8), ipv4(&pool, 6, 40), ipv4(&pool, 17, 8)];
    ask(&mut burst[0], UDP, 0, 0);
    ask(&mut burst[1], TSO, 20, 10);
    rules().prepare(&mut burst).expect("all sound");
    // By hand: 0a00 + 0001 + 0a00 + 0002 = 1403, protocol 17 (0x11) and length 8.
    assert_eq!(burst[0].data()[40..42], [0x14, 0x1c]);
    // Protocol 6 and length 40 (0x28).
    assert_eq!(burst[1].data()[50..52], [0x14, 0x31]);
    assert_eq!(burst[2].data()[40..42], [0, 0], "it asked for nothing");

    let quiet = TxRules { pseudo_sums: false, ..rules() };
    let mut plain = [ipv4(&pool, 17, 8)];
    ask(&mut plain[0], UDP, 0, 0);
    quiet.prepare(&mut plain).expect("sound");
    assert_eq!(plain[0].data()[40..42], [0, 0], "a port that needs no sum gets none");
}

#[test]
fn ipv6_is_summed_with_its_own_addresses() {
    let pool = pool();
    let mut frame = vec![0; 14 + 40 + 8];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[14] = 0x60;
    frame[22..54].fill(0x11);
    let mut mbuf = pool.alloc().expect("fresh");
    assert!(mbuf.append_slice(&frame));
    mbuf.set_tx_flags(TxFlags::IPV6 | TxFlags::UDP_CHECKSUM);
    mbuf.set_tx_offload(TxOffload { l2_len: 14, l3_len: 40, ..TxOffload::default() });
    let mut burst = [mbuf];
    rules().prepare(&mut burst).expect("sound");
    // 16 times 0x1111 is 0x11110, carried 0x1111; and 8 and 17.
    assert_eq!(burst[0].data()[60..62], [0x11, 0x2a]);
}

#[test]
fn the_first_bad_packet_is_named_and_those_before_it_are_ready() {
    let pool = pool();
    let mut burst = [ipv4(&pool, 17, 8), ipv4(&pool, 17, 8)];
    ask(&mut burst[0], UDP, 0, 0);
    ask(&mut burst[1], TxFlags::IPV4 | TxFlags::SCTP_CHECKSUM, 0, 0);
    let bad = rules().prepare(&mut burst).expect_err("no SCTP");
    assert_eq!(bad, BadPacket { index: 1, problem: TxProblem::Offload(TxOffloads::SCTP_CKSUM) });
    assert_eq!(bad.to_string(), "packet 1: it requests SCTP_CKSUM, which is not enabled on its queue");
    assert_eq!(burst[0].data()[40..42], [0x14, 0x1c]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let pool = pool();
    let refused = |flags: TxFlags, l4_len: u8, segment: u16| {
        let mut burst = [ipv4(&pool, 6, 20)];
        ask(&mut burst[0], flags, l4_len, segment);
        rules().prepare(&mut burst).expect_err("makes no sense").problem
    };
    for flags in
        [TxFlags::UDP_CHECKSUM, TxFlags::IP_CHECKSUM, UDP | TxFlags::IPV6, TSO - TxFlags::IP_CHECKSUM]
    {
        assert!(matches!(refused(flags, 20, 100), TxProblem::Flags(_)), "{flags:?}");
    }
    assert!(matches!(refused(TSO, 20, 0), TxProblem::Flags(_)), "no size of segments");
    assert!(matches!(refused(TSO, 24, 100), TxProblem::Lengths(_)), "a header longer than the packet");
    assert!(matches!(refused(TSO, 16, 100), TxProblem::Lengths(_)), "shorter than any TCP header");
    assert!(matches!(refused(TSO | TxFlags::TUNNEL_VXLAN, 20, 100), TxProblem::Offload(_)));
    assert!(matches!(refused(TxFlags::VLAN, 0, 0), TxProblem::Offload(_)));

    let mut short = [ipv4(&pool, 17, 7)];
    ask(&mut short[0], UDP, 0, 0);
    assert!(matches!(rules().prepare(&mut short).expect_err("short").problem, TxProblem::Lengths(_)));
    let mut lengthless = [ipv4(&pool, 17, 8)];
    lengthless[0].set_tx_flags(UDP);
    lengthless[0].set_tx_offload(TxOffload::default());
    assert!(matches!(rules().prepare(&mut lengthless).expect_err("none").problem, TxProblem::Lengths(_)));
}

#[test]
fn limits_hold() {
    let pool = pool();
    let chain = |count: usize| {
        let mut packet = ipv4(&pool, 6, 20);
        for _ in 1..count {
            let mut further = pool.alloc().expect("fresh");
            assert!(further.append_slice(&[0; 2000]));
            packet.chain(further).expect("short");
        }
        packet
    };
    assert!(rules().prepare(&mut [chain(3)]).is_ok());
    let bad = rules().prepare(&mut [chain(4)]).expect_err("four");
    assert_eq!(bad.problem, TxProblem::TooManySegments { segments: 4, max: 3 });
    let wide = TxRules { max_segments: 9, ..rules() };
    let mut long = [chain(6)];
    ask(&mut long[0], TSO, 20, 1000);
    let bad = wide.prepare(&mut long).expect_err("long");
    assert_eq!(bad.problem, TxProblem::TooLong { bytes: 10_054, max: 9000 });

    let mut shared = [ipv4(&pool, 17, 8)];
    ask(&mut shared[0], UDP, 0, 0);
    let clone = shared[0].clone_indirect(&pool).expect("room");
    let mut both = [clone];
    ask(&mut both[0], UDP, 0, 0);
    assert_eq!(rules().prepare(&mut both).expect_err("shared").problem, TxProblem::Shared);
}
