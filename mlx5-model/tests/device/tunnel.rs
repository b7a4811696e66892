//! Entries for packets in tunnels, as Linux's driver posts them (`drivers/net/ethernet/mellanox/mlx5/core/en_tx.c`,
//! `mlx5e_txwqe_build_eseg_csum`, `mlx5e_tx_get_gso_ihs`; `en_accel/en_accel.h`, `mlx5e_tx_tunnel_accel`) and DPDK's
//! (`drivers/net/mlx5/mlx5_tx.h`, `txq_mbuf_to_swp`).

use pollux_mlx5_abi::caps::ethernet::EthernetCaps;
use pollux_mlx5_abi::caps::{self, QueryHcaCapOut};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::sq::SqContext;
use pollux_mlx5_abi::command::tir::TirContext;
use pollux_mlx5_abi::cqe::{CqeError, Layer3, packet};
use pollux_mlx5_abi::opcode::{completion, send};
use pollux_mlx5_abi::syndrome::Syndrome;
use pollux_mlx5_abi::wqe::{Completion, Data, Ethernet, INSERT_VLAN, checksum, parse};
use pollux_mlx5_model::config::Profile;
use pollux_mlx5_model::{DeviceConfig, Traits};
use zerocopy::IntoBytes;

use super::offload::{ipv4, ipv6, l2, sum, tcp, udp};
use super::receive::{arrive, buffer};
use super::rig::{HCA_DELTA, Rig};
use super::send::ethernet;

/// Kinds of tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vxlan,
    Geneve,
    Gre,
    /// Ethernet in GRE, with a key.
    GreTap,
    IpInIp,
    /// One that no card knows, over UDP.
    Other,
}

const KINDS: [Kind; 6] = [Kind::Vxlan, Kind::Geneve, Kind::Gre, Kind::GreTap, Kind::IpInIp, Kind::Other];

/// A frame and where its headers begin.
#[derive(Clone, Debug)]
struct Built {
    frame: Vec<u8>,
    outer_v6: bool,
    outer_l4: usize,
    inner_v6: bool,
    inner_udp: bool,
    inner_l3: usize,
    inner_l4: usize,
    over_udp: bool,
}

const OUTER_L3: usize = 14;

/// A frame whose sums are all right; that of an outer UDP header is 0.
fn build(kind: Kind, outer_v6: bool, inner_v6: bool, inner_udp: bool, payload: usize) -> Built {
    let (protocol, transport) = if inner_udp { (17, udp(payload)) } else { (6, tcp(0x19, payload)) };
    let inner = if inner_v6 { ipv6(protocol, &transport) } else { ipv4(protocol, &transport) };
    let inner_type: u16 = if inner_v6 { 0x86dd } else { 0x0800 };
    let framed = [&l2(inner_type, &[])[..], &inner].concat();
    let over = |port: u16, behind: &[u8]| {
        let bytes = (8 + behind.len()) as u16;
        [&[0xc0, 1][..], &port.to_be_bytes(), &bytes.to_be_bytes(), &[0, 0], behind].concat()
    };
    let (protocol, head) = match kind {
        Kind::Vxlan => (17, over(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &framed].concat())),
        Kind::Geneve => {
            let head = [&[2, 0, 0x65, 0x58, 0, 0, 7, 0][..], &[1, 2, 3, 1, 9, 9, 9, 9]].concat();
            (17, over(6081, &[head, framed].concat()))
        }
        Kind::Gre => (47, [&[0, 0][..], &inner_type.to_be_bytes(), &inner].concat()),
        Kind::GreTap => (47, [&[0x20, 0, 0x65, 0x58, 0, 0, 0, 7][..], &framed].concat()),
        Kind::IpInIp => (if inner_v6 { 41 } else { 4 }, inner.clone()),
        Kind::Other => (17, over(5555, &[&[7; 6][..], &inner].concat())),
    };
    let outer = if outer_v6 {
        let mut bytes = vec![0x60, 0, 0, 0];
        bytes.extend((head.len() as u16).to_be_bytes());
        bytes.extend([protocol, 64]);
        bytes.extend((101..=132).collect::<Vec<u8>>());
        bytes
    } else {
        let mut bytes = vec![0x45, 0, 0, 0, 0xff, 0xfe, 0, 0, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
        bytes[2..4].copy_from_slice(&(20 + head.len() as u16).to_be_bytes());
        let header = !sum(&bytes);
        bytes[10..12].copy_from_slice(&header.to_be_bytes());
        bytes
    };
    let frame = [&l2(if outer_v6 { 0x86dd } else { 0x0800 }, &[])[..], &outer, &head].concat();
    let inner_l3 = frame.len() - inner.len();
    Built {
        outer_v6,
        outer_l4: OUTER_L3 + outer.len(),
        inner_v6,
        inner_udp,
        inner_l3,
        inner_l4: inner_l3 + if inner_v6 { 40 } else { 20 },
        over_udp: protocol == 17,
        frame,
    }
}

impl Built {
    /// The same with sums still to be filled in.
    fn raw(&self) -> Vec<u8> {
        let mut raw = self.frame.clone();
        for (v6, l3) in [(self.outer_v6, OUTER_L3), (self.inner_v6, self.inner_l3)] {
            if !v6 {
                raw[l3 + 10..l3 + 12].copy_from_slice(&[0xde, 0xad]);
            }
        }
        let at = self.inner_l4 + if self.inner_udp { 6 } else { 16 };
        raw[at..at + 2].copy_from_slice(&[0xbe, 0xef]);
        raw
    }

    fn headers(&self) -> usize {
        self.inner_l4 + if self.inner_udp { 8 } else { 20 }
    }

    /// Says where headers are.
    fn tell(&self, segment: &mut Ethernet, tag: usize) {
        let half = |at: usize| ((at + tag) / 2) as u8;
        segment.swp_outer_l3_offset = half(OUTER_L3);
        segment.swp_outer_l4_offset = if self.over_udp { half(self.outer_l4) } else { 0 };
        segment.swp_inner_l3_offset = half(self.inner_l3);
        segment.swp_inner_l4_offset = half(self.inner_l4);
        for (is, flag) in [
            (self.outer_v6, parse::OUTER_L3_IPV6),
            (self.over_udp, parse::OUTER_L4_UDP),
            (self.inner_v6, parse::INNER_L3_IPV6),
            (self.inner_udp, parse::INNER_L4_UDP),
        ] {
            segment.swp_flags |= if is { flag } else { 0 };
        }
    }
}

const ASKED: u8 = checksum::L3 | checksum::L3_INNER | checksum::L4_INNER;

/// Whether a card finds its way into a tunnel by itself.
fn knows(card: &Traits, kind: Kind) -> bool {
    match kind {
        Kind::Vxlan => card.vxlan,
        Kind::Geneve => card.geneve,
        Kind::Gre | Kind::GreTap => card.gre,
        Kind::IpInIp => card.ip_in_ip,
        Kind::Other => false,
    }
}

/// Posts an entry whose first `inline` bytes are inline, and takes what goes out, or the error.
fn post(
    rig: &Rig,
    opcode: u8,
    frame: &[u8],
    inline: usize,
    change: impl FnOnce(&mut Ethernet),
) -> Result<Vec<Vec<u8>>, Syndrome> {
    let mut cq = rig.cq(6);
    let mut sq = rig.sq_with(6, &cq, |context| {
        SqContext::ALLOW_SWP.set(context, 1);
        // Not all cards have it.
        SqContext::ALLOW_MULTI_PKT_SEND_WQE.set(context, 0);
    });
    let at = rig.room(frame.len());
    rig.write(at, &frame[inline..]);
    let mut body = ethernet(&frame[..inline], change);
    body.extend(Data::new((frame.len() - inline) as u32, rig.lkey, at + HCA_DELTA).as_bytes());
    sq.write(rig, opcode, &body, Completion::Always);
    sq.ring(rig);
    rig.settle();
    let entry = cq.poll(rig).expect("a completion");
    if entry.opcode() == completion::REQUESTER {
        return Ok(std::mem::take(&mut rig.wire.ends().sent));
    }
    Err(CqeError::of(&entry).expect("an error").syndrome())
}

fn rig(card: Traits) -> Rig {
    Rig::with(DeviceConfig { traits: card, mtu: 9000, ..DeviceConfig::default() })
}

/// The vendor's bytes of entries that say what is not so, and of tunnels that nobody finds the way into.
const TOLD: u8 = 0x69;
const NOT_FOUND: u8 = 0x68;

#[test]
fn sums_are_filled_in_inside_and_outside() {
    for profile in Profile::ALL {
        let card = profile.traits();
        let rig = rig(card);
        for kind in KINDS {
            for bits in 0..8 {
                let built = build(kind, bits & 1 != 0, bits & 2 != 0, bits & 4 != 0, 61);
                let case = format!("{profile} {kind:?} {bits:#b}");
                // By itself, and told.
                for told in [false, true] {
                    let sent = post(&rig, send::SEND, &built.raw(), 18, |segment| {
                        segment.cs_flags = ASKED;
                        if told {
                            built.tell(segment, 0);
                        }
                    });
                    if told || knows(&card, kind) {
                        assert_eq!(sent.as_deref(), Ok(&[built.frame.clone()][..]), "{case} {told}");
                    } else {
                        assert_eq!(sent.map_err(|error| error.vendor), Err(NOT_FOUND), "{case} {told}");
                    }
                }
            }
        }
    }
}

#[test]
fn only_what_is_asked_for_is_filled_in() {
    let rig = rig(Traits::default());
    let built = build(Kind::Gre, false, false, true, 40);
    let raw = built.raw();
    let fields = [
        (checksum::L3, OUTER_L3 + 10),
        (checksum::L3_INNER, built.inner_l3 + 10),
        (checksum::L4_INNER, built.inner_l4 + 6),
    ];
    for asked in 0..8 {
        let mut flags = 0;
        let mut want = raw.clone();
        for (bit, (flag, at)) in fields.into_iter().enumerate() {
            if asked & 1 << bit != 0 {
                flags |= flag;
                want[at..at + 2].copy_from_slice(&built.frame[at..at + 2]);
            }
        }
        let sent = post(&rig, send::SEND, &raw, 0, |segment| segment.cs_flags = flags);
        assert_eq!(sent, Ok(vec![want]), "{flags:#x}");
    }
}

/// Checks one segment of a packet that was cut, whose headers are of `whole`.
fn check_segment(segment: &[u8], whole: &Built, index: usize, last: bool, case: &str) {
    let word = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
    for (v6, l3, id) in [(whole.outer_v6, OUTER_L3, 0xfffe_u16), (whole.inner_v6, whole.inner_l3, 0x1234)] {
        if v6 {
            assert_eq!(usize::from(word(l3 + 4)), segment.len() - l3 - 40, "{case}");
        } else {
            assert_eq!(usize::from(word(l3 + 2)), segment.len() - l3, "{case}");
            assert_eq!(word(l3 + 4), id.wrapping_add(index as u16), "{case}");
            assert_eq!(sum(&segment[l3..l3 + 20]), 0xffff, "{case}");
        }
    }
    if whole.over_udp {
        assert_eq!(usize::from(word(whole.outer_l4 + 4)), segment.len() - whole.outer_l4, "{case}");
        assert_eq!(word(whole.outer_l4 + 6), 0, "{case}: no card fills in the outer UDP checksum");
    }
    let l4 = whole.inner_l4;
    let addresses = whole.inner_l3 + if whole.inner_v6 { 8 } else { 12 }..l4;
    let bytes = ((segment.len() - l4) as u32).to_be_bytes();
    let protocol = if whole.inner_udp { 17 } else { 6 };
    let pseudo = [&segment[addresses], &bytes, &[0, protocol]].concat();
    assert_eq!(sum(&[&pseudo, &segment[l4..]].concat()), 0xffff, "{case}: segment {index}");
    if !whole.inner_udp {
        assert_eq!(segment[l4 + 13] & 0x09, if last { 0x09 } else { 0 }, "{case}");
        let sequence = u32::from_be_bytes(segment[l4 + 4..l4 + 8].try_into().expect("4 bytes"));
        assert_eq!(sequence, 0x100 + 1000 * index as u32, "{case}");
    }
}

#[test]
fn tcp_inside_is_cut() {
    for profile in Profile::ALL {
        let card = profile.traits();
        let rig = rig(card);
        for kind in KINDS {
            for bits in 0..8 {
                // Lengths of the whole, or of one segment already, as where the kernel computes outer sums beforehand.
                let partial = bits & 4 != 0;
                let whole = build(kind, bits & 1 != 0, bits & 2 != 0, false, 3500);
                let mut raw = whole.raw();
                if partial {
                    let one = build(kind, bits & 1 != 0, bits & 2 != 0, false, 1000);
                    raw[..one.headers()].copy_from_slice(&one.raw()[..one.headers()]);
                }
                let case = format!("{profile} {kind:?} {bits:#b}");
                for told in [false, true] {
                    let sent = post(&rig, send::TSO, &raw, whole.headers(), |segment| {
                        segment.cs_flags = ASKED;
                        segment.mss.set(1000);
                        if told {
                            whole.tell(segment, 0);
                        }
                    });
                    if !told && !knows(&card, kind) {
                        assert_eq!(sent.map_err(|error| error.vendor), Err(NOT_FOUND), "{case}");
                        continue;
                    }
                    let sent = sent.unwrap_or_else(|error| panic!("{case}: {error:?}"));
                    assert_eq!(sent.len(), 4, "{case}");
                    for (index, segment) in sent.iter().enumerate() {
                        check_segment(segment, &whole, index, index == 3, &case);
                    }
                    let joined: Vec<u8> =
                        sent.iter().flat_map(|segment| segment[whole.headers()..].to_vec()).collect();
                    assert_eq!(joined, whole.frame[whole.headers()..], "{case}");
                }
            }
        }
    }
}

#[test]
fn a_cut_that_waits_for_the_wire_goes_on_where_it_was() {
    let rig = rig(Traits::default());
    let whole = build(Kind::Vxlan, false, true, false, 5000);
    rig.wire.ends().room = Some(2);
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    let at = rig.room(5000);
    rig.write(at, &whole.frame[whole.headers()..]);
    let mut body = ethernet(&whole.raw()[..whole.headers()], |segment| {
        segment.cs_flags = ASKED;
        segment.mss.set(1000);
    });
    body.extend(Data::new(5000, rig.lkey, at + HCA_DELTA).as_bytes());
    sq.write(&rig, send::TSO, &body, Completion::Always);
    sq.ring(&rig);
    rig.device.step(64);
    assert!(cq.poll(&rig).is_none());
    rig.wire.ends().room = None;
    rig.settle();
    assert!(cq.poll(&rig).is_some());
    let sent = std::mem::take(&mut rig.wire.ends().sent);
    assert_eq!(sent.len(), 5);
    for (index, segment) in sent.iter().enumerate() {
        check_segment(segment, &whole, index, index == 4, "resumed");
    }
}

#[test]
fn datagrams_are_cut_too() {
    // Linux's driver asks for it with the lengths of one segment: `mlx5e_udp_gso_handle_tx_skb`.
    let rig = rig(Traits::default());
    for (l2, one, whole) in [
        (l2(0x800, &[]), ipv4(17, &udp(1000)), ipv4(17, &udp(2500))),
        (l2(0x86dd, &[]), ipv6(17, &udp(1000)), ipv6(17, &udp(2500))),
    ] {
        let headers = l2.len() + one.len() - 1000;
        let packet = [&l2[..], &one[..one.len() - 1000], &whole[whole.len() - 2500..]].concat();
        let sent = post(&rig, send::TSO, &packet, headers, |segment| {
            segment.cs_flags = checksum::L3 | checksum::L4;
            segment.mss.set(1000);
        });
        let sent = sent.expect("cut");
        assert_eq!(
            sent.iter().map(Vec::len).collect::<Vec<_>>(),
            [headers + 1000, headers + 1000, headers + 500]
        );
        assert_eq!(sent[0], [&l2[..], &one].concat());
    }
}

#[test]
fn what_an_entry_says_must_be_so() {
    type Change = fn(&mut Ethernet);
    let wrong: [(&str, Change); 9] = [
        ("outer layer 3 elsewhere", |segment| segment.swp_outer_l3_offset += 1),
        ("outer layer 4 elsewhere", |segment| segment.swp_outer_l4_offset += 1),
        ("inner layer 3 elsewhere", |segment| segment.swp_inner_l3_offset -= 1),
        ("inner layer 4 elsewhere", |segment| segment.swp_inner_l4_offset += 2),
        ("inner layer 3 outside", |segment| segment.swp_inner_l3_offset = segment.swp_outer_l3_offset),
        ("another inner IP", |segment| segment.swp_flags ^= parse::INNER_L3_IPV6),
        ("another inner transport", |segment| segment.swp_flags ^= parse::INNER_L4_UDP),
        ("another outer IP", |segment| segment.swp_flags ^= parse::OUTER_L3_IPV6),
        ("a reserved bit", |segment| segment.swp_flags |= 1 << 3),
    ];
    for profile in Profile::ALL {
        let rig = rig(profile.traits());
        for kind in [Kind::Geneve, Kind::Other] {
            let built = build(kind, false, false, false, 50);
            for (name, change) in wrong {
                let sent = post(&rig, send::SEND, &built.raw(), 18, |segment| {
                    segment.cs_flags = ASKED;
                    built.tell(segment, 0);
                    change(segment);
                });
                let want = Err(Syndrome { code: Syndrome::LOCAL_QP_OP_ERR, vendor: TOLD });
                assert_eq!(sent, want, "{profile} {kind:?} {name}");
            }
        }
        // What is left out the card finds, if its parser stays on.
        let built = build(Kind::Vxlan, false, false, false, 50);
        let sent = post(&rig, send::SEND, &built.raw(), 18, |segment| {
            segment.cs_flags = ASKED;
            built.tell(segment, 0);
            (segment.swp_inner_l3_offset, segment.swp_inner_l4_offset) = (0, 0);
        });
        assert_eq!(sent.is_ok(), profile.traits().parser_complements, "{profile}");
    }
}

#[test]
fn a_tag_that_the_card_inserts_may_be_counted_or_not() {
    let rig = rig(Traits::default());
    let built = build(Kind::Other, false, true, false, 50);
    for tag in [0, 4, 8] {
        let sent = post(&rig, send::SEND, &built.raw(), 0, |segment| {
            segment.cs_flags = ASKED;
            segment.inline_hdr_sz.set(INSERT_VLAN);
            segment.inline_hdr_start = [0, 5];
            built.tell(segment, tag);
        });
        let want = [&built.frame[..12], &[0x81, 0, 0, 5], &built.frame[12..]].concat();
        assert_eq!(sent.map_err(|error| error.vendor), if tag > 4 { Err(TOLD) } else { Ok(vec![want]) });
    }
}

#[test]
fn a_queue_that_was_not_told_to_listen_refuses() {
    let rig = rig(Traits::default());
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    let built = build(Kind::Geneve, false, false, false, 50);
    let at = rig.room(built.frame.len());
    rig.write(at, &built.frame);
    let mut body = ethernet(&[], |segment| built.tell(segment, 0));
    body.extend(Data::new(built.frame.len() as u32, rig.lkey, at + HCA_DELTA).as_bytes());
    sq.write(&rig, send::SEND, &body, Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert_eq!(cq.error(&rig).syndrome(), Syndrome { code: Syndrome::LOCAL_QP_OP_ERR, vendor: TOLD });
    let card = Traits { software_parsing: false, ..Traits::default() };
    let rig = self::rig(card);
    let (ring, record) = (rig.room(64 << 6), rig.room(64));
    let swp = |context: &mut [u8; SqContext::BYTES]| SqContext::ALLOW_SWP.set(context, 1);
    let mut input = rig.sq_input(6, &rig.cq(6), ring, record, swp);
    assert!(rig.command(op::CREATE_SQ, 0, &mut input, 16).is_err(), "a card without it");
}

#[test]
fn four_ports_are_vxlans() {
    let rig = rig(Traits::default());
    let out = rig.must(
        op::QUERY_HCA_CAP,
        caps::op_mod(caps::kind::ETHERNET_OFFLOADS, caps::NOW),
        &mut [0; 16],
        4112,
    );
    let block = QueryHcaCapOut::CAPABILITY.get(out.first_chunk().expect("an answer"));
    let block: &[u8; 256] = block.first_chunk().expect("a block");
    // Linux takes one off for the port that cards know, and has none left of one.
    assert_eq!(EthernetCaps::MAX_VXLAN_UDP_PORTS.get(block), 4);
    let port = |opcode: u16, port: u16| {
        let mut input = [0; 16];
        input[14..].copy_from_slice(&port.to_be_bytes());
        rig.command(opcode, 0, &mut input, 16).is_ok()
    };
    let is_known = |port: u16| {
        let mut built = build(Kind::Vxlan, false, false, false, 50);
        let at = built.outer_l4 + 2;
        built.frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
        post(&rig, send::SEND, &built.raw(), 0, |segment| segment.cs_flags = ASKED).is_ok()
    };
    assert!(is_known(4789) && !is_known(8472));
    assert!([4789, 8472, 1000, 1001, 1000].into_iter().all(|number| port(op::ADD_VXLAN_UDP_DPORT, number)));
    assert!(!port(op::ADD_VXLAN_UDP_DPORT, 1002) && !port(op::ADD_VXLAN_UDP_DPORT, 0));
    assert!(is_known(4789) && is_known(8472) && is_known(1001) && !is_known(1002));
    assert!(port(op::DELETE_VXLAN_UDP_DPORT, 1001) && !port(op::DELETE_VXLAN_UDP_DPORT, 1001));
    assert!(!is_known(1001) && port(op::ADD_VXLAN_UDP_DPORT, 1002) && is_known(1002));
}

#[test]
fn what_comes_is_looked_into_where_the_card_knows_the_tunnel() {
    for profile in Profile::ALL {
        let card = profile.traits();
        let rig = rig(card);
        let mut cq = rig.cq(6);
        let mut rq = rig.rq(4, 4, &cq);
        rig.all_to(rig.tir(|context| {
            TirContext::INLINE_RQN.set(context, rq.number);
            TirContext::TUNNELED_OFFLOAD_EN.set(context, 1);
        }));
        for kind in KINDS {
            for bits in 0..4 {
                let built = build(kind, bits & 1 != 0, bits & 2 != 0, false, 30);
                rq.post(&rig, &[buffer(&rig, 2048).1]);
                arrive(&rig, &built.frame);
                let entry = cq.poll(&rig).expect("a completion");
                let tunneled = entry.pkt_info & packet::TUNNELED != 0;
                assert_eq!(tunneled, knows(&card, kind), "{profile} {kind:?} {bits:#b}");
                if tunneled {
                    let layer3 = if built.inner_v6 { Layer3::Ipv6 } else { Layer3::Ipv4 };
                    assert_eq!((entry.layer3(), entry.hds_ip_ext), (Some(layer3), 7), "{profile} {kind:?}");
                }
            }
        }
    }
}
