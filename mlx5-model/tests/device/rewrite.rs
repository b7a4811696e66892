//! What steering does to packets: lists of changes as Linux's drivers write them (`drivers/net/ethernet/mellanox/mlx5/core/en_tc.c`,
//! `offload_pedit_fields`), tunnels on and off, and tables for what is sent.

use pollux_mlx5_abi::command::counter::{AllocFlowCounterIn, QueryFlowCounterIn, TrafficCounter};
use pollux_mlx5_abi::command::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, Destination, FlowContext, FlowTableContext, QueryFlowTableIn,
    QueryFlowTableOut, SetFlowEntryIn, action, criteria, destination, table,
};
use pollux_mlx5_abi::command::matching::{MatchMisc, MatchParameters};
use pollux_mlx5_abi::command::register::{Ppcnt, Rfc2863Counters, counter_group, id};
use pollux_mlx5_abi::command::rewrite::{
    AddAction, AllocModifyHeaderIn, CopyAction, DeallocModifyHeaderIn, PacketReformatContext, SetAction,
    change, field, place, reformat,
};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::Completion;
use pollux_mlx5_model::{DeviceConfig, Traits};

use super::command::register;
use super::offload::{ipv4, ipv6, l2, sum, tcp, udp};
use super::receive::{arrive, buffer};
use super::rig::{Cq, Rig, Sq, number};
use super::send::plain;

/// A card that changes no packets.
fn unchanging() -> Rig {
    let traits = Traits { change_packets: false, ..Traits::default() };
    Rig::with(DeviceConfig { traits, ..DeviceConfig::default() })
}

pub(super) fn set(of: u32, offset: u32, bits: u32, data: u32) -> [u8; 8] {
    let mut action = SetAction::ZERO;
    for (field, value) in [
        (SetAction::ACTION_TYPE, change::SET),
        (SetAction::FIELD, of),
        (SetAction::OFFSET, offset),
        (SetAction::LENGTH, bits & 31),
        (SetAction::DATA, data),
    ] {
        field.set(&mut action, value);
    }
    action
}

fn add(of: u32, data: u32) -> [u8; 8] {
    let mut action = AddAction::ZERO;
    AddAction::ACTION_TYPE.set(&mut action, change::ADD);
    AddAction::FIELD.set(&mut action, of);
    AddAction::DATA.set(&mut action, data);
    action
}

fn copy((from, from_offset): (u32, u32), (to, to_offset): (u32, u32), bits: u32) -> [u8; 8] {
    let mut action = CopyAction::ZERO;
    for (field, value) in [
        (CopyAction::ACTION_TYPE, change::COPY),
        (CopyAction::SRC_FIELD, from),
        (CopyAction::SRC_OFFSET, from_offset),
        (CopyAction::LENGTH, bits & 31),
        (CopyAction::DST_FIELD, to),
        (CopyAction::DST_OFFSET, to_offset),
    ] {
        field.set(&mut action, value);
    }
    action
}

pub(super) fn changes(rig: &Rig, kind: u32, list: &[[u8; 8]]) -> Result<u32, u8> {
    let mut input = AllocModifyHeaderIn::ZERO.to_vec();
    let head: &mut [u8; AllocModifyHeaderIn::BYTES] = input.first_chunk_mut().expect("a command");
    AllocModifyHeaderIn::TABLE_TYPE.set(head, kind);
    AllocModifyHeaderIn::NUM_OF_ACTIONS.set(head, list.len() as u32);
    input.extend(list.as_flattened());
    let made = rig.command(op::ALLOC_MODIFY_HEADER_CONTEXT, 0, &mut input, 16);
    made.map(|out| u32::from_be_bytes(out[8..12].try_into().expect("4 bytes")))
        .map_err(|refused| refused.status)
}

fn header(rig: &Rig, kind: u32, bytes: &[u8]) -> Result<u32, u8> {
    let mut context = PacketReformatContext::ZERO;
    PacketReformatContext::REFORMAT_TYPE.set(&mut context, kind);
    PacketReformatContext::REFORMAT_DATA_SIZE.set(&mut context, bytes.len() as u32);
    let mut input = vec![0; place::CONTEXT];
    input.extend(&context[..place::DATA]);
    input.extend(bytes);
    input.resize(input.len().next_multiple_of(4).max(place::CONTEXT + 8), 0);
    let made = rig.command(op::ALLOC_PACKET_REFORMAT_CONTEXT, 0, &mut input, 16);
    made.map(|out| u32::from_be_bytes(out[8..12].try_into().expect("4 bytes")))
        .map_err(|refused| refused.status)
}

/// What an entry does.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Does {
    pub(super) actions: u32,
    pub(super) changes: u32,
    pub(super) header: u32,
    pub(super) to: Option<(u32, u32)>,
    pub(super) counter: Option<u32>,
}

/// A table of one group of one entry.
pub(super) fn table_with(
    rig: &Rig,
    kind: u32,
    level: u32,
    enabled: u32,
    mask: [u8; 512],
    value: [u8; 512],
    does: Does,
) -> Result<u32, u8> {
    let mut input = CreateFlowTableIn::ZERO;
    CreateFlowTableIn::TABLE_TYPE.set(&mut input, kind);
    let context = CreateFlowTableIn::FLOW_TABLE_CONTEXT.of_mut(&mut input);
    FlowTableContext::LEVEL.set(context, level);
    FlowTableContext::LOG_SIZE.set(context, 2);
    FlowTableContext::REFORMAT_EN.set(context, (does.actions & action::PACKET_REFORMAT != 0).into());
    let decap = does.actions & action::DECAP != 0 && kind == table::NIC_RX;
    FlowTableContext::DECAP_EN.set(context, decap.into());
    let table = number(&rig.must(op::CREATE_FLOW_TABLE, 0, &mut input, 16));
    entry_of(rig, (kind, table), enabled, mask, value, does)
}

/// One entry in one group.
fn entry_of(
    rig: &Rig,
    (kind, table): (u32, u32),
    enabled: u32,
    mask: [u8; 512],
    value: [u8; 512],
    does: Does,
) -> Result<u32, u8> {
    let mut input = CreateFlowGroupIn::ZERO;
    CreateFlowGroupIn::TABLE_TYPE.set(&mut input, kind);
    CreateFlowGroupIn::TABLE_ID.set(&mut input, table);
    CreateFlowGroupIn::MATCH_CRITERIA_ENABLE.set(&mut input, enabled);
    CreateFlowGroupIn::MATCH_CRITERIA.set(&mut input, mask);
    let group = rig.command(op::CREATE_FLOW_GROUP, 0, &mut input, 16).map_err(|refused| refused.status)?;
    let mut input = SetFlowEntryIn::ZERO.to_vec();
    let head: &mut [u8; SetFlowEntryIn::BYTES] = input.first_chunk_mut().expect("a command");
    SetFlowEntryIn::TABLE_TYPE.set(head, kind);
    SetFlowEntryIn::TABLE_ID.set(head, table);
    let context = SetFlowEntryIn::FLOW_CONTEXT.of_mut(head);
    FlowContext::GROUP_ID.set(context, number(&group));
    FlowContext::MATCH_VALUE.set(context, value);
    let forward = if does.to.is_some() { action::FWD_DEST } else { 0 };
    let counted = if does.counter.is_some() { action::COUNT } else { 0 };
    FlowContext::ACTION.set(context, does.actions | forward | counted);
    FlowContext::MODIFY_HEADER_ID.set(context, does.changes);
    FlowContext::PACKET_REFORMAT_ID.set(context, does.header);
    FlowContext::DESTINATION_LIST_SIZE.set(context, does.to.is_some().into());
    FlowContext::FLOW_COUNTER_LIST_SIZE.set(context, does.counter.is_some().into());
    if let Some((kind, id)) = does.to {
        let mut block = Destination::ZERO;
        Destination::DESTINATION_TYPE.set(&mut block, kind);
        Destination::DESTINATION_ID.set(&mut block, id);
        input.extend(block);
    }
    if let Some(counter) = does.counter {
        input.extend(counter.to_be_bytes());
        input.extend([0; 4]);
    }
    let made = rig.command(op::SET_FLOW_TABLE_ENTRY, 0, &mut input, 16);
    made.map(|_| table).map_err(|refused| refused.status)
}

pub(super) fn all(rig: &Rig, kind: u32, level: u32, does: Does) -> Result<u32, u8> {
    table_with(rig, kind, level, 0, [0; 512], [0; 512], does)
}

/// A frame whose sums are right.
pub(super) fn summed(mut frame: Vec<u8>, l4: usize, at: usize) -> Vec<u8> {
    let v6 = frame[14] >> 4 == 6;
    let (addresses, protocol) = if v6 { (22..54, frame[20]) } else { (26..34, frame[23]) };
    if !v6 {
        frame[24..26].fill(0);
        let header = !sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&header.to_be_bytes());
    }
    frame[l4 + at..l4 + at + 2].fill(0);
    let length = ((frame.len() - l4) as u32).to_be_bytes();
    let all = !sum(&[&frame[addresses], &length, &[0, protocol], &frame[l4..]].concat());
    frame[l4 + at..l4 + at + 2].copy_from_slice(&all.to_be_bytes());
    frame
}

/// A queue that receives what a list of changes left of a frame.
fn received(list: &[[u8; 8]], frame: &[u8]) -> Vec<u8> {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut rq = rig.rq(4, 4, &cq);
    let (at, data) = buffer(&rig, 2048);
    rq.post(&rig, &[data]);
    let changes = changes(&rig, table::NIC_RX, list).expect("a list");
    let to = Some((destination::TIR, rig.direct_tir(&rq)));
    let does = Does { actions: action::MOD_HDR, changes, to, ..Does::default() };
    let made = all(&rig, table::NIC_RX, 0, does).expect("an entry");
    rig.root_of(table::NIC_RX, made);
    // What an entry names does not go.
    let mut end = DeallocModifyHeaderIn::ZERO;
    DeallocModifyHeaderIn::MODIFY_HEADER_ID.set(&mut end, changes);
    let ended = rig.command(op::DEALLOC_MODIFY_HEADER_CONTEXT, 0, &mut end, 16);
    assert_eq!(ended.expect_err("in use").status, status::RES_BUSY);
    arrive(&rig, frame);
    let bytes = cq.poll(&rig).expect("a completion").byte_cnt.get();
    rig.read(at, bytes as usize)
}

#[test]
fn fields_are_set_added_to_and_copied_and_sums_stay_right() {
    let frame = summed([&l2(0x800, &[])[..], &ipv4(6, &tcp(0x10, 77))].concat(), 34, 16);
    let list = [
        set(field::DMAC_47_16, 0, 32, 0x0202_0304),
        set(field::DMAC_15_0, 0, 16, 0x0506),
        set(field::DIPV4, 8, 16, 0xabcd),
        set(field::IP_DSCP, 0, 6, 0x2e),
        add(field::IP_TTL, 0xff),
        add(field::TCP_SEQ_NUM, 0x1_0001),
        copy((field::DIPV4, 8), (field::TCP_SPORT, 0), 16),
        set(field::TCP_DPORT, 0, 16, 8080),
        // Of headers that the packet has not.
        set(field::UDP_DPORT, 0, 16, 1),
        set(field::FIRST_VID, 0, 12, 7),
    ];
    let mut expected = frame.clone();
    expected[..6].copy_from_slice(&[2, 2, 3, 4, 5, 6]);
    expected[31..33].copy_from_slice(&[0xab, 0xcd]);
    expected[15] = expected[15] & 3 | 0x2e << 2;
    expected[22] = expected[22].wrapping_sub(1);
    let sequence = u32::from_be_bytes(frame[38..42].try_into().expect("4 bytes")).wrapping_add(0x1_0001);
    expected[38..42].copy_from_slice(&sequence.to_be_bytes());
    expected[34..36].copy_from_slice(&[0xab, 0xcd]);
    expected[36..38].copy_from_slice(&8080_u16.to_be_bytes());
    assert_eq!(received(&list, &frame), summed(expected, 34, 16));
    // A sum that was wrong stays wrong by as much.
    let mut wrong = frame.clone();
    wrong[50] ^= 0x40;
    let came = received(&[set(field::TCP_DPORT, 0, 16, 8080)], &wrong);
    assert_ne!(came, summed(came.clone(), 34, 16));

    let frame = summed([&l2(0x86dd, &[])[..], &ipv6(17, &udp(30))].concat(), 54, 6);
    let list = [
        set(field::SIPV6_127_96 + 3, 0, 32, 0xdead_beef),
        add(field::IPV6_HOPLIMIT, 0xff),
        set(field::UDP_SPORT, 4, 8, 0x5a),
    ];
    let mut expected = frame.clone();
    expected[34..38].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef]);
    expected[21] -= 1;
    expected[54] = expected[54] & 0xf0 | 5;
    expected[55] = expected[55] & 0x0f | 0xa0;
    assert_eq!(received(&list, &frame), summed(expected, 54, 6));
}

/// A table with these flags, or why there is none.
fn flagged(rig: &Rig, kind: u32, flags: &[pollux_mlx5_abi::field::Field<40>]) -> Result<u32, u8> {
    let mut input = CreateFlowTableIn::ZERO;
    CreateFlowTableIn::TABLE_TYPE.set(&mut input, kind);
    let context = CreateFlowTableIn::FLOW_TABLE_CONTEXT.of_mut(&mut input);
    for flag in flags {
        flag.set(context, 1);
    }
    let made = rig.command(op::CREATE_FLOW_TABLE, 0, &mut input, 16);
    made.map(|out| number(&out)).map_err(|refused| refused.status)
}

#[test]
fn a_table_lets_its_entries_do_what_its_flags_say() {
    use FlowTableContext as F;
    let rig = Rig::new();
    let bare = header(&rig, reformat::L3_TUNNEL_TO_L2, &[0; 14]).expect("a header");
    let around = header(&rig, reformat::L2_TO_L2_TUNNEL, &[0; 20]).expect("a header");
    let list = changes(&rig, table::NIC_RX, &[add(field::IP_TTL, 1)]).expect("a list");
    let of = |actions, header| Does { actions, header, changes: list, ..Does::default() };
    let allow = action::ALLOW;
    for (kind, flags, does, taken) in [
        (table::NIC_RX, &[][..], of(allow | action::MOD_HDR, 0), true),
        (table::NIC_RX, &[], of(allow | action::DECAP, 0), false),
        (table::NIC_RX, &[F::REFORMAT_EN], of(allow | action::DECAP, 0), false),
        (table::NIC_RX, &[F::DECAP_EN], of(allow | action::DECAP, 0), true),
        (table::NIC_RX, &[F::DECAP_EN], of(allow | action::PACKET_REFORMAT, bare), false),
        (table::NIC_RX, &[F::REFORMAT_EN], of(allow | action::PACKET_REFORMAT, bare), true),
        (table::NIC_TX, &[], of(allow | action::PACKET_REFORMAT, around), false),
        (table::NIC_TX, &[F::REFORMAT_EN], of(allow | action::PACKET_REFORMAT, around), true),
    ] {
        let table = flagged(&rig, kind, flags).expect("a table");
        let made = entry_of(&rig, (kind, table), 0, [0; 512], [0; 512], does);
        assert_eq!(made, if taken { Ok(table) } else { Err(status::BAD_PARAM_ERR) }, "{kind} {does:?}");
        let mut query = QueryFlowTableIn::ZERO;
        QueryFlowTableIn::TABLE_TYPE.set(&mut query, kind);
        QueryFlowTableIn::TABLE_ID.set(&mut query, table);
        let out = rig.must(op::QUERY_FLOW_TABLE, 0, &mut query, QueryFlowTableOut::BYTES);
        let out: &[u8; QueryFlowTableOut::BYTES] = out.first_chunk().expect("an answer");
        let context = QueryFlowTableOut::FLOW_TABLE_CONTEXT.of(out);
        for flag in [F::DECAP_EN, F::REFORMAT_EN] {
            assert_eq!(flag.is_set(context), flags.iter().any(|set| set.bit() == flag.bit()));
        }
    }
    // What the capabilities do not say.
    for (kind, flag) in [
        (table::NIC_TX, F::DECAP_EN),
        (table::NIC_RX, F::SW_OWNER),
        (table::NIC_RX, F::TERMINATION_TABLE),
        (table::NIC_TX, F::TERMINATION_TABLE),
    ] {
        assert_eq!(flagged(&rig, kind, &[flag]), Err(status::BAD_PARAM_ERR));
    }
    assert_eq!(flagged(&unchanging(), table::NIC_RX, &[F::DECAP_EN]), Err(status::BAD_PARAM_ERR));
}

/// Tables of sniffers are there where the card has them, and their entries change nothing.
#[test]
fn copies_for_sniffers_stay_as_they_are() {
    use FlowTableContext as F;
    let traits = Traits { sniffer: true, ..Traits::default() };
    let rig = Rig::with(DeviceConfig { traits, ..DeviceConfig::default() });
    let list = changes(&rig, table::NIC_RX, &[add(field::IP_TTL, 1)]).expect("a list");
    for kind in [table::SNIFFER_RX, table::SNIFFER_TX] {
        assert_eq!(flagged(&Rig::new(), kind, &[]), Err(status::BAD_PARAM_ERR), "no such capability");
        let table = flagged(&rig, kind, &[]).expect("a table");
        for flag in [F::REFORMAT_EN, F::DECAP_EN] {
            assert_eq!(flagged(&rig, kind, &[flag]), Err(status::BAD_PARAM_ERR));
        }
        assert_eq!(changes(&rig, kind, &[add(field::IP_TTL, 1)]), Err(status::BAD_PARAM_ERR));
        for (actions, refused) in [(action::ALLOW, false), (action::ALLOW | action::MOD_HDR, true)] {
            let does = Does { actions, changes: list, ..Does::default() };
            let made = entry_of(&rig, (kind, table), 0, [0; 512], [0; 512], does);
            assert_eq!(made.is_err(), refused, "{kind} {actions:#x}: {made:?}");
        }
    }
}

#[test]
fn lists_and_headers_are_checked() {
    let rig = Rig::new();
    let refused = |list: &[[u8; 8]]| changes(&rig, table::NIC_RX, list);
    assert_eq!(refused(&[]), Err(status::BAD_PARAM_ERR));
    assert_eq!(refused(&[set(0x49, 0, 32, 0)]), Err(status::BAD_PARAM_ERR), "a register that no table reads");
    assert_eq!(refused(&[set(field::IP_TTL, 4, 8, 0)]), Err(status::BAD_PARAM_ERR), "beyond the field");
    assert_eq!(refused(&[add(0x49, 1)]), Err(status::BAD_PARAM_ERR));
    assert_eq!(changes(&rig, table::FDB, &[add(field::IP_TTL, 1)]), Err(status::BAD_PARAM_ERR));
    assert_eq!(header(&rig, 0x11, &[0; 20]), Err(status::BAD_PARAM_ERR));
    assert_eq!(header(&rig, reformat::L2_TO_L2_TUNNEL, &[0; 8]), Err(status::BAD_PARAM_ERR));
    // A tunnel is put onto what is sent alone.
    let header = header(&rig, reformat::L2_TO_L2_TUNNEL, &[0; 20]).expect("a header");
    let does = Does { actions: action::ALLOW | action::PACKET_REFORMAT, header, ..Does::default() };
    assert_eq!(all(&rig, table::NIC_RX, 0, does), Err(status::BAD_PARAM_ERR));
    assert!(all(&rig, table::NIC_TX, 0, does).is_ok());
    let does = Does { actions: action::ALLOW | action::DECAP, ..Does::default() };
    assert_eq!(all(&rig, table::NIC_TX, 0, does), Err(status::BAD_PARAM_ERR));
    let rig = unchanging();
    assert_eq!(changes(&rig, table::NIC_RX, &[add(field::IP_TTL, 1)]), Err(status::BAD_OP_ERR));
}

fn sends(rig: &Rig, sq: &mut Sq, cq: &mut Cq, frame: &[u8]) -> Vec<Vec<u8>> {
    sq.write(rig, send::SEND, &plain(rig, frame), Completion::Always);
    sq.ring(rig);
    rig.settle();
    assert_eq!(cq.poll(rig).expect("a completion").opcode(), 0);
    std::mem::take(&mut rig.wire.ends().sent).into_iter().collect()
}

/// Headers of VXLAN, with no length and no sum; the IPv4 header begins at 14, that of UDP at 34.
fn vxlan() -> Vec<u8> {
    let mut behind = udp(8);
    behind[2..4].copy_from_slice(&4789_u16.to_be_bytes());
    behind[4..8].fill(0);
    behind[8..].copy_from_slice(&[8, 0, 0, 0, 0, 0, 5, 0]);
    let mut header = [&l2(0x800, &[])[..], &ipv4(17, &behind)].concat();
    for at in [16, 24, 40] {
        header[at..at + 2].fill(0);
    }
    header
}

/// An IPv4 header, and what it carries as it is.
fn ipv4_over(protocol: u8, behind: &[u8]) -> Vec<u8> {
    let mut bytes = ipv4(17, &udp(0))[..20].to_vec();
    bytes[2..4].copy_from_slice(&(20 + behind.len() as u16).to_be_bytes());
    bytes[9] = protocol;
    bytes[10..12].fill(0);
    let header = !sum(&bytes);
    bytes[10..12].copy_from_slice(&header.to_be_bytes());
    [&bytes[..], behind].concat()
}

#[test]
fn what_is_sent_passes_tables_of_its_own() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let (mut first, mut second) = (rig.sq(6, &cq), rig.sq(6, &cq));
    let frame = summed([&l2(0x800, &[])[..], &ipv4(17, &udp(64))].concat(), 34, 6);
    assert_eq!(sends(&rig, &mut first, &mut cq, &frame), std::slice::from_ref(&frame), "no table");
    let counter = number(&rig.must(op::ALLOC_FLOW_COUNTER, 0, &mut AllocFlowCounterIn::ZERO.clone(), 16));
    let by_queue = |number| {
        let mut all = MatchParameters::ZERO;
        MatchMisc::SOURCE_SQN.set(MatchParameters::MISC_PARAMETERS.of_mut(&mut all), number);
        all
    };
    // The first queue's datagrams get another port, are counted, and go into a tunnel behind; what no entry takes goes out.
    let header = header(&rig, reformat::L2_TO_L2_TUNNEL, &vxlan()).expect("a header");
    let does = Does { actions: action::ALLOW | action::PACKET_REFORMAT, header, ..Does::default() };
    let outer = all(&rig, table::NIC_TX, 3, does).expect("a table");
    let changes = changes(&rig, table::NIC_TX, &[set(field::UDP_DPORT, 0, 16, 53)]).expect("a list");
    let to = Some((destination::FLOW_TABLE, outer));
    let does = Does { actions: action::MOD_HDR, changes, to, counter: Some(counter), ..Does::default() };
    let (mask, value) = (by_queue(0xff_ffff), by_queue(first.number));
    let made =
        table_with(&rig, table::NIC_TX, 0, criteria::MISC_PARAMETERS, mask, value, does).expect("a table");
    rig.root_of(table::NIC_TX, made);
    assert_eq!(sends(&rig, &mut second, &mut cq, &frame), std::slice::from_ref(&frame));
    let mut inside = frame.clone();
    inside[36..38].copy_from_slice(&53_u16.to_be_bytes());
    let inside = summed(inside, 34, 6);
    let mut expected = [vxlan(), inside].concat();
    let bytes = expected.len() as u16;
    expected[16..18].copy_from_slice(&(bytes - 14).to_be_bytes());
    expected[38..40].copy_from_slice(&(bytes - 34).to_be_bytes());
    let of_header = !sum(&expected[14..34]);
    expected[24..26].copy_from_slice(&of_header.to_be_bytes());
    assert_eq!(sends(&rig, &mut first, &mut cq, &frame), [expected]);
    let mut query = QueryFlowCounterIn::ZERO;
    QueryFlowCounterIn::FLOW_COUNTER_ID.set(&mut query, counter);
    let out = rig.must(op::QUERY_FLOW_COUNTER, 0, &mut query, 32);
    let traffic: &[u8; TrafficCounter::BYTES] = out[16..].first_chunk().expect("a counter");
    assert_eq!(
        (TrafficCounter::PACKETS.get(traffic), TrafficCounter::OCTETS.get(traffic)),
        (1, frame.len() as u64)
    );
    // Tables of one way lead to none of the other, nor to queues, and what is received was sent by no queue.
    let does = |to| Does { to: Some(to), ..Does::default() };
    assert_eq!(
        all(&rig, table::NIC_RX, 0, does((destination::FLOW_TABLE, outer))),
        Err(status::BAD_PARAM_ERR)
    );
    let rq = rig.rq(4, 4, &cq);
    let tir = rig.direct_tir(&rq);
    assert_eq!(all(&rig, table::NIC_TX, 0, does((destination::TIR, tir))), Err(status::BAD_PARAM_ERR));
    let does = does((destination::TIR, tir));
    let refused = table_with(&rig, table::NIC_RX, 0, criteria::MISC_PARAMETERS, mask, value, does);
    assert_eq!(refused, Err(status::BAD_PARAM_ERR));
    // Nothing is sent of what an entry drops.
    let made =
        all(&rig, table::NIC_TX, 1, Does { actions: action::DROP, ..Does::default() }).expect("a table");
    rig.root_of(table::NIC_TX, made);
    assert!(sends(&rig, &mut second, &mut cq, &frame).is_empty());
}

#[test]
fn what_gets_too_long_is_counted() {
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    let header = header(&rig, reformat::L2_TO_L2_TUNNEL, &vxlan()).expect("a header");
    let does = Does { actions: action::ALLOW | action::PACKET_REFORMAT, header, ..Does::default() };
    let made = all(&rig, table::NIC_TX, 0, does).expect("a table");
    rig.root_of(table::NIC_TX, made);
    // The MTU is 1500, and tags have room.
    let frame = |bytes: usize| [&l2(0x800, &[])[..], &ipv4(17, &udp(bytes - 42))].concat();
    let fits = 1522 - vxlan().len();
    assert_eq!(sends(&rig, &mut sq, &mut cq, &frame(fits)).len(), 1);
    assert_eq!(rig.device.port_counters().sent_too_long, 0);
    assert!(sends(&rig, &mut sq, &mut cq, &frame(fits + 1)).is_empty());
    assert_eq!(rig.device.port_counters().sent_too_long, 1);
    let mut query = Ppcnt::ZERO;
    Ppcnt::GRP.set(&mut query, counter_group::RFC_2863);
    let counters = register(&rig, id::PPCNT, false, query);
    let set: &[u8; 248] = Ppcnt::COUNTER_SET.of(&counters);
    assert_eq!(Rfc2863Counters::OUT_ERRORS.get(set), 1);
}

#[test]
fn tunnels_come_off_and_a_packet_gets_another_header() {
    let packet = ipv4(17, &udp(64));
    let frame = summed([&l2(0x800, &[])[..], &packet].concat(), 34, 6);
    let mut tunnel = [vxlan(), frame.clone()].concat();
    let bytes = tunnel.len() as u16;
    tunnel[16..18].copy_from_slice(&(bytes - 14).to_be_bytes());
    tunnel[38..40].copy_from_slice(&(bytes - 34).to_be_bytes());
    let bare = [&l2(0x800, &[])[..], &ipv4_over(4, &frame[14..])].concat();
    // With a key and of version 1, as rdma-core's tests have it.
    let keyed = [&[0x20, 1, 0x65, 0x58, 0x12, 0x34, 0x56, 0x78][..], &frame].concat();
    let gre = [&l2(0x800, &[])[..], &ipv4_over(47, &keyed)].concat();
    let new = l2(0, &[]);
    for (what, frame_in, decap, expected) in [
        ("VXLAN", &tunnel, true, frame.clone()),
        ("no tunnel", &frame, true, frame.clone()),
        ("GRE", &gre, true, frame.clone()),
        ("IP in IP", &bare, false, [&new[..12], &[8, 0], &frame[14..]].concat()),
    ] {
        let rig = Rig::new();
        let mut cq = rig.cq(6);
        let mut rq = rig.rq(4, 4, &cq);
        let (at, data) = buffer(&rig, 2048);
        rq.post(&rig, &[data]);
        let to = Some((destination::TIR, rig.direct_tir(&rq)));
        let mut does = Does { actions: action::DECAP, to, ..Does::default() };
        if !decap {
            does.actions = action::PACKET_REFORMAT;
            does.header = header(&rig, reformat::L3_TUNNEL_TO_L2, &new).expect("a header");
        }
        let made = all(&rig, table::NIC_RX, 0, does).expect("a table");
        rig.root_of(table::NIC_RX, made);
        arrive(&rig, frame_in);
        let bytes = cq.poll(&rig).expect("a completion").byte_cnt.get();
        assert_eq!(rig.read(at, bytes as usize), expected, "{what}");
    }
    // The same onto what is sent: the frame's own header goes.
    let rig = Rig::new();
    let mut cq = rig.cq(6);
    let mut sq = rig.sq(6, &cq);
    let outer = [&l2(0x800, &[])[..], &ipv4_over(4, &[])].concat();
    let header = header(&rig, reformat::L2_TO_L3_TUNNEL, &outer).expect("a header");
    let does = Does { actions: action::ALLOW | action::PACKET_REFORMAT, header, ..Does::default() };
    let made = all(&rig, table::NIC_TX, 0, does).expect("a table");
    rig.root_of(table::NIC_TX, made);
    let mut expected = [&outer[..], &frame[14..]].concat();
    let bytes = expected.len() as u16 - 14;
    expected[16..18].copy_from_slice(&bytes.to_be_bytes());
    expected[24..26].fill(0);
    let of_header = !sum(&expected[14..34]);
    expected[24..26].copy_from_slice(&of_header.to_be_bytes());
    assert_eq!(sends(&rig, &mut sq, &mut cq, &frame), [expected]);
}
