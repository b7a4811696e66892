use super::environment::{clear_vport, counters};
use super::receive::{arrive, buffer};
use super::rig::{Cq, Rig, Rq, frame, number};
use super::send::plain;
use pollux_mlx5_abi::command::counter::{AllocFlowCounterIn, QueryFlowCounterIn, TrafficCounter};
use pollux_mlx5_abi::command::environment::steering_failures;
use pollux_mlx5_abi::command::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, DeleteFlowEntryIn, DestroyFlowGroupIn, FlowContext,
    FlowTableContext, ModifyFlowTableIn, SetFlowEntryIn, criteria, destination, table,
};
use pollux_mlx5_abi::command::matching::{MatchHeaders, MatchMisc, MatchParameters};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::Completion;

/// Match parameters with these outer headers.
fn outer(change: impl FnOnce(&mut [u8; 64])) -> [u8; 512] {
    let mut all = MatchParameters::ZERO;
    change(MatchParameters::OUTER_HEADERS.of_mut(&mut all));
    all
}

pub(crate) fn udp4(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = frame(64, 0);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14..24].copy_from_slice(&[0x45, 0xb9, 0, 50, 0, 0, 0, 0, 33, 17]);
    bytes[26..30].copy_from_slice(&source);
    bytes[30..34].copy_from_slice(&destination);
    bytes[34..36].copy_from_slice(&ports.0.to_be_bytes());
    bytes[36..38].copy_from_slice(&ports.1.to_be_bytes());
    bytes[38..42].copy_from_slice(&[0, 30, 0, 0]);
    bytes
}

pub(crate) fn queues<const N: usize>(rig: &Rig) -> [(Cq, Rq); N] {
    std::array::from_fn(|_| {
        let cq = rig.cq(8);
        let mut rq = rig.rq(6, 4, &cq);
        let data = buffer(rig, 2048).1;
        (0..64).for_each(|_| rq.post(rig, &[data]));
        (cq, rq)
    })
}

/// Which queue got the frame, and with which tag.
pub(crate) fn taker<const N: usize>(
    rig: &Rig,
    queues: &mut [(Cq, Rq); N],
    frame: &[u8],
) -> Option<(usize, u32)> {
    arrive(rig, frame);
    let mut found = None;
    for (index, (cq, _)) in queues.iter_mut().enumerate() {
        while let Some(entry) = cq.poll(rig) {
            assert_eq!(found.replace((index, entry.flow_tag())), None, "once");
        }
    }
    found
}

/// What no entry of the first table takes goes to the second one.
fn misses_to(rig: &Rig, from: u32, to: u32) {
    let mut input = ModifyFlowTableIn::ZERO;
    ModifyFlowTableIn::TABLE_ID.set(&mut input, from);
    ModifyFlowTableIn::MODIFY_FIELD_SELECT.set(&mut input, 1);
    let context = ModifyFlowTableIn::FLOW_TABLE_CONTEXT.of_mut(&mut input);
    FlowTableContext::TABLE_MISS_ACTION.set(context, 1);
    FlowTableContext::TABLE_MISS_ID.set(context, to);
    rig.must(op::MODIFY_FLOW_TABLE, 0, &mut input, 16);
}

#[test]
fn without_a_root_nothing_comes() {
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    assert_eq!(taker(&rig, &mut queues, &frame(64, 0)), None);
    assert_eq!(rig.device.port_counters().steering_discards, 1);
}

#[test]
fn lower_indices_come_first_and_misses_go_on() {
    let rig = Rig::new();
    let mut queues = queues::<4>(&rig);
    let tirs: Vec<u32> = queues.iter().map(|(_, rq)| rig.direct_tir(rq)).collect();
    let last = rig.table(5, 4);
    let group = rig.group(last, 0, 15, 0, [0; 512]);
    rig.entry(last, group, 3, [0; 512], 0, &[(destination::TIR, tirs[3])], &[]).expect("an entry");
    let first = rig.table(1, 6);
    let by_port = outer(|part| {
        MatchHeaders::IP_PROTOCOL.set(part, 0xff);
        MatchHeaders::UDP_DPORT.set(part, 0xffff);
    });
    let by_type = outer(|part| MatchHeaders::ETHERTYPE.set(part, 0xffff));
    let exact = rig.group(first, 0, 7, criteria::OUTER_HEADERS, by_port);
    let coarse = rig.group(first, 8, 15, criteria::OUTER_HEADERS, by_type);
    let port = |port| {
        outer(|part| {
            MatchHeaders::IP_PROTOCOL.set(part, 17);
            MatchHeaders::UDP_DPORT.set(part, port);
        })
    };
    rig.entry(first, exact, 0, port(80), 0xabc, &[(destination::TIR, tirs[0])], &[]).expect("an entry");
    rig.entry(first, exact, 1, port(81), 0, &[], &[]).expect("a drop");
    let ip = outer(|part| MatchHeaders::ETHERTYPE.set(part, 0x800));
    rig.entry(first, coarse, 8, ip, 0x111, &[(destination::TIR, tirs[1])], &[]).expect("an entry");
    rig.root(first);
    let to = |port| udp4([1, 2, 3, 4], [5, 6, 7, 8], (9, port));
    assert_eq!(taker(&rig, &mut queues, &to(80)), Some((0, 0xabc)));
    assert_eq!(taker(&rig, &mut queues, &to(81)), None);
    assert_eq!(taker(&rig, &mut queues, &to(82)), Some((1, 0x111)));
    assert_eq!(taker(&rig, &mut queues, &frame(64, 0)), None, "misses are dropped at first");
    misses_to(&rig, first, last);
    assert_eq!(taker(&rig, &mut queues, &frame(64, 0)), Some((3, 0)));
    // To a table of a higher level, its tag kept.
    let all = rig.group(first, 20, 20, 0, [0; 512]);
    rig.entry(first, all, 20, [0; 512], 0x77, &[(destination::FLOW_TABLE, last)], &[]).expect("an entry");
    assert_eq!(taker(&rig, &mut queues, &frame(64, 0)), Some((3, 0x77)));
    let back = rig.entry(last, group, 4, [0; 512], 0, &[(destination::FLOW_TABLE, first)], &[]);
    assert_eq!(back.expect_err("never to a lower level").status, 3);
}

#[test]
fn every_header_field_can_be_matched() {
    type Set = fn(&mut [u8; 64], bool);
    let v4 = udp4([10, 20, 30, 40], [50, 60, 70, 80], (1000, 2000));
    let mut tagged = v4.clone();
    tagged.splice(12..12, [0x81, 0, 0xb1, 0x23]);
    let mut v6 = frame(100, 0);
    v6[12..22].copy_from_slice(&[0x86, 0xdd, 0x6b, 0x90, 0, 0, 0, 20, 6, 77]);
    v6[22..54].copy_from_slice(&std::array::from_fn::<u8, 32, _>(|index| index as u8));
    v6[54..68].copy_from_slice(&[3, 232, 7, 208, 0, 0, 0, 0, 0, 0, 0, 0, 0x51, 0x12]);
    let value = |mask: bool, value: u32, width: u32| if mask { u32::MAX >> (32 - width) } else { value };
    let cases: [(&[u8], Set); 17] = [
        (&v4, |part, _| MatchHeaders::DMAC.set(part, 0x0200_0000_0001)),
        (&v4, |part, _| MatchHeaders::SMAC.set(part, 0x0200_0000_0009)),
        (&v4, |part, mask| MatchHeaders::ETHERTYPE.set(part, if mask { 0xffff } else { 0x800 })),
        (&tagged, |part, mask| MatchHeaders::ETHERTYPE.set(part, if mask { 0xffff } else { 0x800 })),
        (&tagged, |part, mask| MatchHeaders::FIRST_VID.set(part, if mask { 0xfff } else { 0x123 })),
        (&tagged, |part, mask| MatchHeaders::FIRST_PRIO.set(part, if mask { 7 } else { 5 })),
        (&tagged, |part, _| MatchHeaders::CVLAN_TAG.set(part, 1)),
        (&v4, |part, mask| MatchHeaders::IP_VERSION.set(part, if mask { 15 } else { 4 })),
        (&v4, |part, mask| MatchHeaders::IP_PROTOCOL.set(part, if mask { 255 } else { 17 })),
        (&v4, |part, mask| MatchHeaders::IP_DSCP.set(part, if mask { 63 } else { 0xb9 >> 2 })),
        (&v4, |part, mask| MatchHeaders::TTL_HOPLIMIT.set(part, if mask { 255 } else { 33 })),
        (&v4, |part, mask| MatchHeaders::SRC_IPV4.set(part, if mask { u32::MAX } else { 0x0a14_1e28 })),
        (&v4, |part, mask| MatchHeaders::DST_IPV4.set(part, if mask { 0xffff_0000 } else { 0x323c_0000 })),
        (&v4, |part, mask| MatchHeaders::UDP_SPORT.set(part, if mask { 0xffff } else { 1000 })),
        (&v6, |part, mask| MatchHeaders::TCP_DPORT.set(part, if mask { 0xffff } else { 2000 })),
        (&v6, |part, mask| MatchHeaders::IP_DSCP.set(part, if mask { 63 } else { 0xb9 >> 2 })),
        (&v6, |part, mask| {
            let address: [u8; 16] = std::array::from_fn(|index| if mask { 0xff } else { index as u8 });
            MatchHeaders::SRC_IPV6.set(part, address);
            MatchHeaders::TCP_FLAGS.set(part, if mask { 0x1ff } else { 0x112 });
        }),
    ];
    assert_eq!(value(true, 0, 12), 0xfff);
    for (index, (frame, set)) in cases.iter().enumerate() {
        let rig = Rig::new();
        let mut queues = queues::<1>(&rig);
        let tir = rig.direct_tir(&queues[0].1);
        let table = rig.table(0, 4);
        let mut mask = outer(|part| set(part, true));
        // Addresses of layer 2 are matched whole.
        if index < 2 {
            let at = if index == 0 { 8 } else { 0 };
            mask[at..at + 6].fill(0xff);
        }
        let group = rig.group(table, 0, 3, criteria::OUTER_HEADERS, mask);
        let right = outer(|part| set(part, false));
        let mut wrong = right;
        let bit = mask.iter().position(|byte| *byte != 0).expect("a mask");
        wrong[bit] ^= mask[bit] & mask[bit].wrapping_neg();
        rig.root(table);
        let to = [(destination::TIR, tir)];
        rig.entry(table, group, 0, wrong, 1, &to, &[]).expect("an entry");
        assert_eq!(taker(&rig, &mut queues, frame), None, "case {index}");
        rig.entry(table, group, 1, right, 2, &to, &[]).expect("an entry");
        assert_eq!(taker(&rig, &mut queues, frame), Some((0, 2)), "case {index}");
    }
}

#[test]
fn a_tunnels_network_can_be_matched() {
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    let tir = rig.direct_tir(&queues[0].1);
    let table = rig.table(0, 4);
    let set = |vni: u32| {
        let mut all = MatchParameters::ZERO;
        MatchMisc::VXLAN_VNI.set(MatchParameters::MISC_PARAMETERS.of_mut(&mut all), vni);
        all
    };
    let group = rig.group(table, 0, 3, criteria::MISC_PARAMETERS, set(0xff_ffff));
    rig.entry(table, group, 0, set(0x12_3456), 0, &[(destination::TIR, tir)], &[]).expect("an entry");
    rig.root(table);
    let mut frame = udp4([1; 4], [2; 4], (7, 4789));
    frame.extend([0; 40]);
    frame[16..18].copy_from_slice(&90_u16.to_be_bytes());
    frame[38..40].copy_from_slice(&70_u16.to_be_bytes());
    frame[46..49].copy_from_slice(&[0x12, 0x34, 0x56]);
    assert_eq!(taker(&rig, &mut queues, &frame), Some((0, 0)));
    frame[48] = 0x57;
    assert_eq!(taker(&rig, &mut queues, &frame), None);
    // What is not parsed cannot be asked for.
    let mut input = pollux_mlx5_abi::command::flow::CreateFlowGroupIn::ZERO;
    use pollux_mlx5_abi::command::flow::CreateFlowGroupIn as G;
    G::TABLE_ID.set(&mut input, table);
    G::START_FLOW_INDEX.set(&mut input, 8);
    G::END_FLOW_INDEX.set(&mut input, 9);
    G::MATCH_CRITERIA_ENABLE.set(&mut input, criteria::MISC_PARAMETERS_2);
    assert_eq!(rig.command(op::CREATE_FLOW_GROUP, 0, &mut input, 16).expect_err("refused").status, 3);
}

#[test]
fn a_flow_label_of_ipv6_can_be_matched() {
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    let tir = rig.direct_tir(&queues[0].1);
    let table = rig.table(0, 4);
    let set = |label: u32| {
        let mut all = MatchParameters::ZERO;
        MatchMisc::OUTER_IPV6_FLOW_LABEL.set(MatchParameters::MISC_PARAMETERS.of_mut(&mut all), label);
        all
    };
    let group = rig.group(table, 0, 3, criteria::MISC_PARAMETERS, set(0xf_ffff));
    rig.entry(table, group, 0, set(0x1_2345), 0, &[(destination::TIR, tir)], &[]).expect("an entry");
    rig.root(table);
    let mut packet = frame(80, 0);
    packet[12..22].copy_from_slice(&[0x86, 0xdd, 0x6a, 0xb1, 0x23, 0x45, 0, 26, 59, 64]);
    assert_eq!(taker(&rig, &mut queues, &packet), Some((0, 0)), "whatever the traffic class");
    packet[17] = 0x46;
    assert_eq!(taker(&rig, &mut queues, &packet), None);
    assert_eq!(taker(&rig, &mut queues, &udp4([1; 4], [2; 4], (0x1234, 0x5000))), None, "IPv4 has none");
}

#[test]
fn counters_count_and_are_read() {
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    let tir = rig.direct_tir(&queues[0].1);
    let mut bulk = AllocFlowCounterIn::ZERO;
    AllocFlowCounterIn::FLOW_COUNTER_BULK.set(&mut bulk, 1);
    let first =
        u32::from_be_bytes(rig.must(op::ALLOC_FLOW_COUNTER, 0, &mut bulk, 16)[8..12].try_into().expect("4"));
    let table = rig.table(0, 4);
    let group = rig.group(table, 0, 0, 0, [0; 512]);
    let to = [(destination::TIR, tir)];
    rig.entry(table, group, 0, [0; 512], 0, &to, &[first + 5, first + 127]).expect("an entry");
    rig.root(table);
    for bytes in [64, 100] {
        assert!(taker(&rig, &mut queues, &frame(bytes, 0)).is_some());
    }
    let mut query = QueryFlowCounterIn::ZERO;
    QueryFlowCounterIn::FLOW_COUNTER_ID.set(&mut query, first);
    QueryFlowCounterIn::NUM_OF_COUNTERS.set(&mut query, 128);
    QueryFlowCounterIn::CLEAR.set(&mut query, 1);
    let out = rig.must(op::QUERY_FLOW_COUNTER, 0, &mut query, 16 + 128 * 16);
    let counts: Vec<(u64, u64)> = out[16..]
        .as_chunks::<16>()
        .0
        .iter()
        .map(|block| (TrafficCounter::PACKETS.get(block), TrafficCounter::OCTETS.get(block)))
        .collect();
    for (index, count) in counts.iter().enumerate() {
        assert_eq!(*count, if matches!(index, 5 | 127) { (2, 164) } else { (0, 0) }, "{index}");
    }
    let again = rig.must(op::QUERY_FLOW_COUNTER, 0, &mut query, 16 + 128 * 16);
    assert!(again[16..].iter().all(|byte| *byte == 0));
    let mut free = [0; 16];
    free[8..12].copy_from_slice(&(first + 5).to_be_bytes());
    assert_eq!(rig.command(op::DEALLOC_FLOW_COUNTER, 0, &mut free, 16).expect_err("in use").status, 6);
}

#[test]
fn entries_are_changed_and_taken_away() {
    let rig = Rig::new();
    let mut queues = queues::<2>(&rig);
    let tirs = [rig.direct_tir(&queues[0].1), rig.direct_tir(&queues[1].1)];
    let table = rig.table(0, 4);
    let group = rig.group(table, 0, 1, 0, [0; 512]);
    rig.entry(table, group, 0, [0; 512], 1, &[(destination::TIR, tirs[0])], &[]).expect("an entry");
    rig.root(table);
    assert_eq!(taker(&rig, &mut queues, &frame(64, 0)), Some((0, 1)));
    let mut input = SetFlowEntryIn::ZERO.to_vec();
    let head: &mut [u8; SetFlowEntryIn::BYTES] = input.first_chunk_mut().expect("a command");
    SetFlowEntryIn::TABLE_ID.set(head, table);
    SetFlowEntryIn::MODIFY_ENABLE_MASK.set(head, 0b110);
    let context = SetFlowEntryIn::FLOW_CONTEXT.of_mut(head);
    FlowContext::ACTION.set(context, 4);
    FlowContext::FLOW_TAG.set(context, 9);
    FlowContext::DESTINATION_LIST_SIZE.set(context, 1);
    input.extend((destination::TIR << 24 | tirs[1]).to_be_bytes());
    input.extend([0; 4]);
    rig.must(op::SET_FLOW_TABLE_ENTRY, 1, &mut input, 16);
    assert_eq!(taker(&rig, &mut queues, &frame(64, 0)), Some((1, 9)));
    // A TIR in use stays; one that is not goes.
    let destroy = |tir: u32| {
        let mut input = [0; 16];
        input[8..12].copy_from_slice(&tir.to_be_bytes());
        rig.command(op::DESTROY_TIR, 0, &mut input, 16).map_err(|refused| refused.status)
    };
    assert_eq!(destroy(tirs[1]).map(drop), Err(6));
    assert_eq!(destroy(tirs[0]).map(drop), Ok(()));
    let mut delete = [0; 64];
    delete[0x14..0x18].copy_from_slice(&table.to_be_bytes());
    rig.must(op::DELETE_FLOW_TABLE_ENTRY, 0, &mut delete, 16);
    assert_eq!(taker(&rig, &mut queues, &frame(64, 0)), None);
    assert_eq!(rig.command(op::DELETE_FLOW_TABLE_ENTRY, 0, &mut delete, 16).expect_err("gone").status, 5);
}

#[test]
fn a_large_group_finds_each_of_its_entries() {
    let rig = Rig::new();
    let mut queues = queues::<2>(&rig);
    let tirs = [rig.direct_tir(&queues[0].1), rig.direct_tir(&queues[1].1)];
    let table = rig.table(0, 10);
    let mask = outer(|part| MatchHeaders::DST_IPV4.set(part, u32::MAX));
    let group = rig.group(table, 0, 999, criteria::OUTER_HEADERS, mask);
    rig.root(table);
    for index in 0..300_u32 {
        let value = outer(|part| MatchHeaders::DST_IPV4.set(part, 0x0a00_0000 + index));
        let to = [(destination::TIR, tirs[index as usize & 1])];
        rig.entry(table, group, index, value, index + 1, &to, &[]).expect("an entry");
    }
    for index in [0, 1, 7, 8, 9, 255, 256, 299] {
        let frame = udp4([1; 4], (0x0a00_0000_u32 + index).to_be_bytes(), (1, 2));
        assert_eq!(taker(&rig, &mut queues, &frame), Some((index as usize & 1, index + 1)));
    }
    assert_eq!(taker(&rig, &mut queues, &udp4([1; 4], [10, 0, 1, 44], (1, 2))), None);
}

/// A table of one entry that takes all and leads there.
fn all(rig: &Rig, kind: u32, level: u32, to: &[(u32, u32)], counters: &[u32]) -> u32 {
    let table = rig.table_of(kind, level, 0);
    let group = rig.group(table, 0, 0, 0, [0; 512]);
    rig.entry(table, group, 0, [0; 512], 0, to, counters).expect("an entry");
    table
}

#[test]
fn each_path_passes_all_the_levels() {
    let rig = Rig::new();
    let mut queues = queues::<2>(&rig);
    let tirs = [rig.direct_tir(&queues[0].1), rig.direct_tir(&queues[1].1)];
    let chain = |tir| {
        let last = all(&rig, table::NIC_RX, 127, &[(destination::TIR, tir)], &[]);
        (1..127).rev().fold(last, |next, level| {
            all(&rig, table::NIC_RX, level, &[(destination::FLOW_TABLE, next)], &[])
        })
    };
    let both = tirs.map(|tir| (destination::FLOW_TABLE, chain(tir)));
    rig.root(all(&rig, table::NIC_RX, 0, &both, &[]));
    arrive(&rig, &frame(64, 0));
    for (cq, _) in &mut queues {
        assert!(cq.poll(&rig).is_some());
    }
    assert_eq!(rig.device.port_counters().rx_steering_ended, 0);
    let mut input = CreateFlowTableIn::ZERO;
    let context = CreateFlowTableIn::FLOW_TABLE_CONTEXT.of_mut(&mut input);
    FlowTableContext::LEVEL.set(context, 128);
    let beyond = rig.command(op::CREATE_FLOW_TABLE, 0, &mut input, 16);
    assert_eq!(beyond.expect_err("no such level").status, status::BAD_PARAM_ERR);
}

#[test]
fn destinations_that_multiply_come_to_an_end() {
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    let tir = rig.direct_tir(&queues[0].1);
    let counter = number(&rig.must(op::ALLOC_FLOW_COUNTER, 0, &mut AllocFlowCounterIn::ZERO.clone(), 16));
    let twice = |kind, last| {
        (0..60)
            .rev()
            .fold(last, |next, level| all(&rig, kind, level, &[(destination::FLOW_TABLE, next); 2], &[]))
    };
    // 2 to the 60th copies.
    let last = all(&rig, table::NIC_RX, 60, &[(destination::TIR, tir)], &[counter]);
    rig.root(twice(table::NIC_RX, last));
    arrive(&rig, &frame(64, 0));
    assert!(queues[0].0.poll(&rig).is_some(), "what was delivered so far");
    assert_eq!(rig.device.port_counters().rx_steering_ended, 1);
    let mut query = QueryFlowCounterIn::ZERO;
    QueryFlowCounterIn::FLOW_COUNTER_ID.set(&mut query, counter);
    let out = rig.must(op::QUERY_FLOW_COUNTER, 0, &mut query, 32);
    let traffic: &[u8; TrafficCounter::BYTES] = out[16..].first_chunk().expect("a counter");
    let counted = TrafficCounter::PACKETS.get(traffic);
    assert!((400..1024).contains(&counted), "{counted}: of 1024 tables");

    // As many copies as there may be, and one more.
    let fan =
        |level, to: u32| all(&rig, table::NIC_RX, level, &[(destination::TIR, tir); 64][..to as usize], &[]);
    let mut to = vec![(destination::FLOW_TABLE, fan(1, 64)); 16];
    rig.root(all(&rig, table::NIC_RX, 0, &to, &[]));
    arrive(&rig, &frame(64, 0));
    assert_eq!(rig.device.port_counters().rx_steering_ended, 1);
    to.push((destination::TIR, tir));
    to.rotate_right(1);
    rig.root(all(&rig, table::NIC_RX, 0, &to, &[]));
    arrive(&rig, &frame(64, 0));
    assert_eq!(rig.device.port_counters().rx_steering_ended, 2);

    // Nothing of it is sent.
    let cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    rig.wire.ends().sent.clear();
    let last = rig.table_of(table::NIC_TX, 60, 0);
    rig.root_of(table::NIC_TX, twice(table::NIC_TX, last));
    sq.write(&rig, send::SEND, &plain(&rig, &frame(64, 0)), Completion::Always);
    sq.ring(&rig);
    rig.settle();
    assert!(rig.wire.ends().sent.is_empty());
    assert_eq!(rig.device.port_counters().tx_steering_ended, 1);
    // They stay when the vport's own counters are cleared.
    clear_vport(&rig);
    let counted = counters(&rig);
    assert_eq!(steering_failures::HANDLED.get(&counted), 2);
    assert_eq!(steering_failures::GENERATED.get(&counted), 1);
}

#[test]
fn groups_that_a_frame_is_compared_with_are_bounded() {
    const GROUPS: u32 = 1 << 12;
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    let tir = rig.direct_tir(&queues[0].1);
    let mask = outer(|part| MatchHeaders::DST_IPV4.set(part, u32::MAX));
    let full = |level| {
        let table = rig.table(level, 13);
        for index in 0..GROUPS {
            rig.group(table, index, index, criteria::OUTER_HEADERS, mask);
        }
        table
    };
    let tables: Vec<u32> = (0..5).map(full).collect();
    let mut more = CreateFlowGroupIn::ZERO;
    CreateFlowGroupIn::TABLE_ID.set(&mut more, tables[0]);
    CreateFlowGroupIn::START_FLOW_INDEX.set(&mut more, GROUPS);
    CreateFlowGroupIn::END_FLOW_INDEX.set(&mut more, GROUPS);
    let refused = rig.command(op::CREATE_FLOW_GROUP, 0, &mut more, 16);
    assert_eq!(refused.expect_err("no room").status, status::NO_RES_ERR);
    for pair in tables.windows(2) {
        misses_to(&rig, pair[0], pair[1]);
    }
    misses_to(&rig, tables[4], all(&rig, table::NIC_RX, 5, &[(destination::TIR, tir)], &[]));
    // Three tables, and a fourth, are what a frame may pass.
    for (from, ended) in [(2, 0), (1, 1)] {
        rig.root(tables[from]);
        assert_eq!(taker(&rig, &mut queues, &frame(64, 0)).is_none(), ended == 1);
        assert_eq!(rig.device.port_counters().rx_steering_ended, ended);
    }
    // All tables together have a limit, too, and groups that end make room.
    let others: Vec<u32> = (6..16).map(full).collect();
    let last = rig.table(20, 13);
    let mut last_groups = Vec::new();
    let mut more = CreateFlowGroupIn::ZERO;
    CreateFlowGroupIn::TABLE_ID.set(&mut more, last);
    for index in 0..GROUPS {
        CreateFlowGroupIn::START_FLOW_INDEX.set(&mut more, index);
        CreateFlowGroupIn::END_FLOW_INDEX.set(&mut more, index);
        match rig.command(op::CREATE_FLOW_GROUP, 0, &mut more, 16) {
            Ok(out) => last_groups.push(number(&out)),
            Err(refused) => {
                assert_eq!(refused.status, status::NO_RES_ERR);
                break;
            }
        }
    }
    assert_eq!((tables.len() + others.len()) * GROUPS as usize + 1 + last_groups.len(), 1 << 16);
    let mut end = DestroyFlowGroupIn::ZERO;
    DestroyFlowGroupIn::TABLE_ID.set(&mut end, last);
    DestroyFlowGroupIn::GROUP_ID.set(&mut end, last_groups[0]);
    rig.must(op::DESTROY_FLOW_GROUP, 0, &mut end, 16);
    CreateFlowGroupIn::START_FLOW_INDEX.set(&mut more, 0);
    CreateFlowGroupIn::END_FLOW_INDEX.set(&mut more, 0);
    rig.must(op::CREATE_FLOW_GROUP, 0, &mut more, 16);
}

#[test]
fn of_entries_with_one_value_the_lowest_index_counts() {
    let rig = Rig::new();
    let mut queues = queues::<1>(&rig);
    let tir = rig.direct_tir(&queues[0].1);
    let table = rig.table(0, 6);
    let mask = outer(|part| MatchHeaders::DST_IPV4.set(part, u32::MAX));
    let group = rig.group(table, 0, 63, criteria::OUTER_HEADERS, mask);
    rig.root(table);
    let value = |index: u32| outer(|part| MatchHeaders::DST_IPV4.set(part, 0x0a00_0000 + index / 4));
    // Highest first.
    for index in (0..32).rev() {
        let to = [(destination::TIR, tir)];
        rig.entry(table, group, index, value(index), index + 1, &to, &[]).expect("an entry");
    }
    let mut tag =
        |last: u8| taker(&rig, &mut queues, &udp4([1; 4], [10, 0, 0, last], (1, 2))).map(|(_, tag)| tag);
    let delete = |index| {
        let mut input = DeleteFlowEntryIn::ZERO;
        DeleteFlowEntryIn::TABLE_ID.set(&mut input, table);
        DeleteFlowEntryIn::FLOW_INDEX.set(&mut input, index);
        rig.must(op::DELETE_FLOW_TABLE_ENTRY, 0, &mut input, 16);
    };
    assert_eq!((tag(0), tag(7)), (Some(1), Some(29)));
    for index in [0, 1, 2] {
        delete(index);
        assert_eq!(tag(0), Some(index + 2));
    }
    delete(3);
    assert_eq!(tag(0), None);
    // By a scan, and by value again.
    (4..26).for_each(delete);
    assert_eq!((tag(6), tag(7)), (Some(27), Some(29)));
    for index in (0..12).rev() {
        let to = [(destination::TIR, tir)];
        rig.entry(table, group, index, value(index), index + 1, &to, &[]).expect("an entry");
    }
    assert_eq!((tag(0), tag(2), tag(6), tag(7)), (Some(1), Some(9), Some(27), Some(29)));
}
