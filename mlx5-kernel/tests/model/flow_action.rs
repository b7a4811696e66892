//! What the driver's own flows do to packets.

use pollux_mlx5_abi::command::flow::{
    CreateFlowTableIn, FlowContext, FlowTableContext, SetFlowEntryIn, action,
};
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::rewrite::{SetAction, change, field};
use pollux_mlx5_abi::kernel::verbs::{flow_table, packet_reformat};
use pollux_mlx5_abi::kernel::{attribute as a, flow_flag, flow_type, method, object};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::DeviceConfig;
use pollux_mlx5_model::config::Profile;
use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Errno, UverbsError, Value};

use super::bench::{Bench, Opened, errno};

/// A header as long as those of VXLAN are.
const HEADER: [u8; 50] = [0x5a; 50];

fn matcher(opened: &Opened, table: u64) -> u32 {
    use a::flow_matcher_create as m;
    let mut call = Call::new(object::FLOW_MATCHER, method::flow_matcher::CREATE);
    call.new_object(m::CREATE_HANDLE)
        .bytes(m::MATCH_MASK, &[0; 64])
        .attribute(m::FLOW_TYPE, Value::Element(flow_type::NORMAL as u8, &[0; 2]))
        .bytes(m::MATCH_CRITERIA, &[0])
        .u64(m::FT_TYPE, table);
    opened.must(opened.context.call(&mut call));
    opened.must(call.created(m::CREATE_HANDLE))
}

fn reformat(opened: &Opened, kind: u64, table: u64, header: Option<&[u8]>) -> Result<u32, UverbsError> {
    use a::create_packet_reformat as r;
    let mut call = Call::new(id::flow_action::OBJECT, method::flow_action::CREATE_PACKET_REFORMAT);
    call.new_object(r::HANDLE).u64(r::TYPE, kind).u64(r::FT_TYPE, table);
    if let Some(header) = header {
        call.bytes(r::DATA_BUF, header);
    }
    opened.context.call(&mut call)?;
    call.created(r::HANDLE)
}

fn changes(opened: &Opened, list: &[u8], table: u64) -> Result<u32, UverbsError> {
    use a::create_modify_header as m;
    let mut call = Call::new(id::flow_action::OBJECT, method::flow_action::CREATE_MODIFY_HEADER);
    call.new_object(m::HANDLE).bytes(m::ACTIONS_PRM, list).u64(m::FT_TYPE, table);
    opened.context.call(&mut call)?;
    call.created(m::HANDLE)
}

/// A flow that does this, of all that a matcher without a mask meets.
fn flow(opened: &Opened, matcher: u32, flags: u32, does: &[u32]) -> Result<u32, UverbsError> {
    use a::create_flow as c;
    let does: Vec<u8> = does.iter().flat_map(|handle| handle.to_ne_bytes()).collect();
    let mut call = Call::new(id::flow::OBJECT, method::flow::CREATE_FLOW);
    call.new_object(c::HANDLE).bytes(c::MATCH_VALUE, &[0; 64]).object(c::MATCHER, matcher);
    call.bytes(c::ARR_FLOW_ACTIONS, &does);
    if flags != 0 {
        call.u32(c::FLAGS, flags);
    }
    opened.context.call(&mut call)?;
    call.created(c::HANDLE)
}

fn destroy(opened: &Opened, object: u16, handle: u32) -> Result<(), UverbsError> {
    let (method, attribute) = match object {
        id::flow::OBJECT => (id::flow::destroy::METHOD, id::flow::destroy::HANDLE),
        _ => (id::flow_action::destroy::METHOD, id::flow_action::destroy::HANDLE),
    };
    let mut call = Call::new(object, method);
    call.object(attribute, handle);
    opened.context.call(&mut call)
}

/// Sets the time to live.
fn lives(hops: u32) -> [u8; 8] {
    let mut entry = SetAction::ZERO;
    SetAction::ACTION_TYPE.set(&mut entry, change::SET);
    SetAction::FIELD.set(&mut entry, field::IP_TTL);
    SetAction::LENGTH.set(&mut entry, 8);
    SetAction::DATA.set(&mut entry, hops);
    entry
}

#[test]
fn a_flow_changes_what_is_sent_and_puts_a_header_in_front() {
    let bench = Bench::new(DoorProfile::default());
    let before = bench.watch.left();
    let opened = bench.open();
    let kind = matcher(&opened, flow_table::NIC_TX);
    let front =
        opened.must(reformat(&opened, packet_reformat::L2_TO_L2_TUNNEL, flow_table::NIC_TX, Some(&HEADER)));
    let hops = opened.must(changes(&opened, &lives(9), flow_table::NIC_TX));
    let made = opened.must(flow(&opened, kind, 0, &[front, hops]));
    let table = bench.watch.done(op::CREATE_FLOW_TABLE).pop().expect("a table");
    let table = CreateFlowTableIn::FLOW_TABLE_CONTEXT.of(table.input.first_chunk().expect("a command"));
    assert!(FlowTableContext::REFORMAT_EN.is_set(table) && !FlowTableContext::DECAP_EN.is_set(table));
    let entry = bench.watch.done(op::SET_FLOW_TABLE_ENTRY).pop().expect("an entry");
    let entry = SetFlowEntryIn::FLOW_CONTEXT.of(entry.input.first_chunk().expect("a command"));
    assert_eq!(FlowContext::ACTION.get(entry), action::ALLOW | action::PACKET_REFORMAT | action::MOD_HDR);
    let sent = bench.watch.done(op::ALLOC_PACKET_REFORMAT_CONTEXT).pop().expect("a context");
    assert!(sent.input.windows(HEADER.len()).any(|part| part == HEADER), "the header goes to the device");
    assert_eq!(errno(destroy(&opened, id::flow_action::OBJECT, front)), Errno::EBUSY, "a flow has it");
    assert_eq!(errno(flow(&opened, kind, 0, &[hops])), Errno::EEXIST, "the same packets, another change");
    for (wrong, why) in [
        (&[front, front][..], Errno::EINVAL),
        (&[front, hops, hops][..], Errno::EINVAL),
        (&[kind][..], Errno::EINVAL),
        (&[9999][..], Errno::ENOENT),
    ] {
        assert_eq!(errno(flow(&opened, kind, 0, wrong)), why, "{wrong:?}");
    }
    opened.must(destroy(&opened, id::flow::OBJECT, made));
    opened.must(destroy(&opened, id::flow_action::OBJECT, front));
    assert_eq!(bench.watch.done(op::DEALLOC_PACKET_REFORMAT_CONTEXT).len(), 1);
    drop(opened);
    assert_eq!(bench.watch.done(op::DEALLOC_MODIFY_HEADER_CONTEXT).len(), 1, "with the context");
    assert_eq!(bench.watch.left(), before);
    bench.close();
}

#[test]
fn a_flow_takes_a_tunnels_headers_off_what_is_received() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let bare = opened.must(reformat(&opened, packet_reformat::L2_TUNNEL_TO_L2, flow_table::NIC_RX, None));
    assert!(bench.watch.done(op::ALLOC_PACKET_REFORMAT_CONTEXT).is_empty(), "it needs no context");
    let kind = matcher(&opened, flow_table::NIC_RX);
    let made = opened.must(flow(&opened, kind, flow_flag::DEFAULT_MISS, &[bare]));
    let entry = bench.watch.done(op::SET_FLOW_TABLE_ENTRY).pop().expect("an entry");
    let entry = SetFlowEntryIn::FLOW_CONTEXT.of(entry.input.first_chunk().expect("a command"));
    assert_eq!(FlowContext::ACTION.get(entry), action::FWD_DEST | action::DECAP);
    opened.must(destroy(&opened, id::flow::OBJECT, made));
    opened.must(destroy(&opened, id::flow_action::OBJECT, bare));
    drop(opened);
    bench.close();
}

#[test]
fn what_a_card_cannot_do_to_packets_is_refused() {
    use packet_reformat as kind;
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    for (kind, table) in [
        (kind::L2_TUNNEL_TO_L2, flow_table::NIC_TX),
        (kind::L2_TO_L2_TUNNEL, flow_table::NIC_RX),
        (kind::L3_TUNNEL_TO_L2, flow_table::NIC_TX),
        (kind::L2_TO_L3_TUNNEL, flow_table::NIC_RX),
    ] {
        assert_eq!(errno(reformat(&opened, kind, table, Some(&HEADER))), Errno::EOPNOTSUPP, "{kind}");
    }
    assert_eq!(errno(reformat(&opened, 4, flow_table::NIC_RX, Some(&HEADER))), Errno::EINVAL);
    let headless = reformat(&opened, kind::L2_TO_L2_TUNNEL, flow_table::NIC_TX, None);
    assert_eq!(errno(headless), Errno::ENOENT);
    let long = reformat(&opened, kind::L2_TO_L2_TUNNEL, flow_table::NIC_TX, Some(&[0; 1024]));
    assert_eq!(errno(long), Errno::EINVAL);
    assert_eq!(errno(changes(&opened, &[0; 12], flow_table::NIC_TX)), Errno::EINVAL, "half a change");
    assert_eq!(errno(changes(&opened, &lives(9), flow_table::FDB)), Errno::EOPNOTSUPP);
    let many = lives(9).repeat(255);
    assert_eq!(errno(changes(&opened, &many, flow_table::NIC_TX)), Errno::EOPNOTSUPP);
    drop(opened);
    bench.close();
    let traits = Profile::ConnectX4Lx.traits();
    let old = Bench::with(DoorProfile::default(), DeviceConfig { traits, ..DeviceConfig::default() });
    let opened = old.open();
    let front = reformat(&opened, kind::L2_TO_L2_TUNNEL, flow_table::NIC_TX, Some(&HEADER));
    assert_eq!(errno(front), Errno::EOPNOTSUPP);
    assert_eq!(errno(changes(&opened, &lives(9), flow_table::NIC_RX)), Errno::EOPNOTSUPP);
    drop(opened);
    old.close();
}
