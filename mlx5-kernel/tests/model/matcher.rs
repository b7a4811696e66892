//! The driver's own flows, and what programs of the firmware's objects are told.

use std::io::Read;
use std::os::fd::OwnedFd;

use pollux_mlx5_abi::command::counter::{AllocFlowCounterOut, QueryFlowCounterIn};
use pollux_mlx5_abi::command::matching::{MatchHeaders, MatchParameters};
use pollux_mlx5_abi::command::tir::{CreateTirIn, CreateTirOut, TirContext, dispatch};
use pollux_mlx5_abi::command::{CommandIn, opcode as op, start};
use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::kernel::{attribute as a, flow_flag, flow_type, method, object};
use pollux_mlx5_kernel::DoorProfile;
use pollux_uverbs::{Call, Errno, UverbsError, Value};

use super::bench::{Bench, Opened, errno};

fn create(opened: &Opened, input: &[u8], output: &mut [u8]) -> u32 {
    let mut call = Call::new(object::DEVX_OBJ, method::devx_obj::CREATE);
    call.new_object(a::devx_obj_create::HANDLE)
        .bytes(a::devx_obj_create::CMD_IN, input)
        .out(a::devx_obj_create::CMD_OUT, output);
    opened.must(opened.context.call(&mut call));
    opened.must(call.created(a::devx_obj_create::HANDLE))
}

fn matcher(opened: &Opened, mask: &[u8], priority: u16) -> Result<u32, UverbsError> {
    use a::flow_matcher_create as m;
    let priority = priority.to_ne_bytes();
    let mut call = Call::new(object::FLOW_MATCHER, method::flow_matcher::CREATE);
    call.new_object(m::CREATE_HANDLE)
        .bytes(m::MATCH_MASK, mask)
        .attribute(m::FLOW_TYPE, Value::Element(flow_type::NORMAL as u8, &priority))
        .bytes(m::MATCH_CRITERIA, &[1]);
    opened.context.call(&mut call)?;
    call.created(m::CREATE_HANDLE)
}

/// What a flow does.
#[derive(Default)]
struct Does {
    devx: Option<u32>,
    flags: u32,
    tag: Option<u32>,
    counter: Option<u32>,
}

fn flow(opened: &Opened, matcher: u32, value: &[u8], does: &Does) -> Result<u32, UverbsError> {
    use a::create_flow as c;
    let counters = does.counter.unwrap_or_default().to_ne_bytes();
    let mut call = Call::new(pollux_uverbs::abi::id::flow::OBJECT, method::flow::CREATE_FLOW);
    call.new_object(c::HANDLE).bytes(c::MATCH_VALUE, value).object(c::MATCHER, matcher);
    if let Some(handle) = does.devx {
        call.object(c::DEST_DEVX, handle);
    }
    if let Some(tag) = does.tag {
        call.u32(c::TAG, tag);
    }
    if does.flags != 0 {
        call.u32(c::FLAGS, does.flags);
    }
    if does.counter.is_some() {
        call.bytes(c::ARR_COUNTERS_DEVX, &counters);
    }
    opened.context.call(&mut call)?;
    call.created(c::HANDLE)
}

/// A match on the ether type, or its mask.
fn ether_type(value: u32) -> Vec<u8> {
    let mut block = MatchParameters::ZERO;
    let outer = MatchParameters::OUTER_HEADERS.of_mut(&mut block);
    MatchHeaders::ETHERTYPE.set(outer, value);
    block.to_vec()
}

fn tir(opened: &Opened, rqn: u32) -> u32 {
    let mut input = CommandIn::ZERO;
    start(&mut input, op::ALLOC_TRANSPORT_DOMAIN, 0, 0);
    let mut output = [0; 16];
    create(opened, &input, &mut output);
    let domain = u32::from_be_bytes(output[8..12].try_into().unwrap()) & 0xff_ffff;
    let mut input = CreateTirIn::ZERO;
    start(&mut input, op::CREATE_TIR, 0, 0);
    let context = CreateTirIn::CTX.of_mut(&mut input);
    TirContext::DISP_TYPE.set(context, dispatch::DIRECT);
    TirContext::INLINE_RQN.set(context, rqn);
    TirContext::TRANSPORT_DOMAIN.set(context, domain);
    let mut output = CreateTirOut::ZERO;
    create(opened, &input, &mut output)
}

#[test]
fn a_flow_leads_to_an_object_of_the_firmware_or_drops() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(4, None);
    let wq = opened.wq(cq.cq.handle, 4, 1);
    let tir = tir(&opened, wq.wq.wqn);
    let (mask, value) = (ether_type(0xffff), ether_type(0x0800));
    let kind = opened.must(matcher(&opened, &mask, 3));
    let mut counter = AllocFlowCounterOut::ZERO;
    let mut input = CommandIn::ZERO;
    start(&mut input, op::ALLOC_FLOW_COUNTER, 0, 0);
    let counter = create(&opened, &input, &mut counter);
    let leads = Does { devx: Some(tir), tag: Some(9), counter: Some(counter), ..Does::default() };
    let made = opened.must(flow(&opened, kind, &value, &leads));
    let drops = Does { flags: flow_flag::DROP, ..Does::default() };
    opened.must(flow(&opened, kind, &ether_type(0x86dd), &drops));
    assert_eq!(bench.watch.done(op::SET_FLOW_TABLE_ENTRY).len(), 2);
    let past = Does { flags: flow_flag::DEFAULT_MISS, ..Does::default() };
    let to_kernel = opened.must(flow(&opened, kind, &ether_type(0x0806), &past));
    assert_eq!(bench.watch.done(op::CREATE_FLOW_TABLE).len(), 2, "it leads to a table behind all others");
    let undecided = Does { flags: flow_flag::DEFAULT_MISS | flow_flag::DROP, ..Does::default() };
    assert_eq!(errno(flow(&opened, kind, &value, &undecided)), Errno::EINVAL);
    let torn = Does { devx: Some(tir), ..past };
    assert_eq!(errno(flow(&opened, kind, &value, &torn)), Errno::EINVAL);
    let both = Does { devx: Some(tir), flags: flow_flag::DROP, ..Does::default() };
    assert_eq!(errno(flow(&opened, kind, &value, &both)), Errno::EINVAL);
    let wide = Does { devx: Some(tir), tag: Some(1 << 24), ..Does::default() };
    assert_eq!(errno(flow(&opened, kind, &value, &wide)), Errno::EINVAL);
    let nowhere = Does { devx: Some(kind), ..Does::default() };
    assert_eq!(errno(flow(&opened, kind, &value, &nowhere)), Errno::EINVAL, "a matcher is no place to go");
    let mut call = Call::new(object::FLOW_MATCHER, method::flow_matcher::DESTROY);
    call.object(a::flow_matcher_destroy::HANDLE, kind);
    assert_eq!(errno(opened.context.call(&mut call)), Errno::EBUSY, "a flow was made with it");
    let mut call = Call::new(object::DEVX_OBJ, method::devx_obj::DESTROY);
    call.object(a::devx_obj_destroy::HANDLE, tir);
    assert_eq!(errno(opened.context.call(&mut call)), Errno::EBUSY, "a flow leads there");
    let mut call =
        Call::new(pollux_uverbs::abi::id::flow::OBJECT, pollux_uverbs::abi::id::flow::destroy::METHOD);
    call.object(pollux_uverbs::abi::id::flow::destroy::HANDLE, made);
    opened.must(opened.context.call(&mut call));
    assert_eq!(bench.watch.done(op::DELETE_FLOW_TABLE_ENTRY).len(), 1);
    let mut call =
        Call::new(pollux_uverbs::abi::id::flow::OBJECT, pollux_uverbs::abi::id::flow::destroy::METHOD);
    call.object(pollux_uverbs::abi::id::flow::destroy::HANDLE, to_kernel);
    opened.must(opened.context.call(&mut call));
    assert_eq!(bench.watch.done(op::DESTROY_FLOW_TABLE).len(), 1, "nothing leads to the last table");
    drop((opened, cq, wq));
    bench.close();
}

#[test]
fn matchers_of_another_length_are_taken_as_far_as_they_go() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    assert_eq!(errno(matcher(&opened, &[], 0)), Errno::EINVAL);
    opened.must(matcher(&opened, &ether_type(0xffff)[..64], 0));
    assert_eq!(errno(matcher(&opened, &[0; 4096], 0)), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn a_query_is_answered_by_a_descriptor() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let mut call = Call::new(object::DEVX_ASYNC_CMD_FD, method::devx_async_cmd_fd::ALLOC);
    call.new_fd(a::devx_async_cmd_fd_alloc::HANDLE);
    opened.must(opened.context.call(&mut call));
    let fd: OwnedFd = opened.must(call.created_fd(a::devx_async_cmd_fd_alloc::HANDLE));
    let mut input = CommandIn::ZERO;
    start(&mut input, op::ALLOC_FLOW_COUNTER, 0, 0);
    let mut output = AllocFlowCounterOut::ZERO;
    let counter = create(&opened, &input, &mut output);
    let mut query = QueryFlowCounterIn::ZERO;
    start(&mut query, op::QUERY_FLOW_COUNTER, 0, 0);
    QueryFlowCounterIn::FLOW_COUNTER_ID.set(&mut query, AllocFlowCounterOut::FLOW_COUNTER_ID.get(&output));
    {
        use a::devx_obj_query_async as q;
        let mut call = Call::new(object::DEVX_OBJ, method::devx_obj::ASYNC_QUERY);
        call.object(q::HANDLE, counter)
            .bytes(q::CMD_IN, &query)
            .fd(q::FD, std::os::fd::AsFd::as_fd(&fd))
            .u64(q::WR_ID, 0x5678)
            .u64(q::OUT_LEN, 32);
        opened.must(opened.context.call(&mut call));
    }
    let mut file = std::fs::File::from(fd);
    let mut record = [0; 256];
    let bytes = file.read(&mut record).expect("there is an answer");
    let tag = u64::from_ne_bytes(record[..8].try_into().unwrap());
    assert_eq!((bytes, tag), (8 + 32, 0x5678));
    assert_eq!(record[8], 0, "the firmware's status");
    drop(opened);
    bench.close();
}

#[test]
fn the_link_is_told_to_who_subscribed() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    bench.device.step(1);
    let mut call = Call::new(object::DEVX_ASYNC_EVENT_FD, method::devx_async_event_fd::ALLOC);
    call.new_fd(a::devx_async_event_fd_alloc::HANDLE).u32(a::devx_async_event_fd_alloc::FLAGS, 1);
    opened.must(opened.context.call(&mut call));
    let fd = opened.must(call.created_fd(a::devx_async_event_fd_alloc::HANDLE));
    let subscribe = |kind: u8| {
        use a::devx_subscribe_event as s;
        let kinds = u16::from(kind).to_ne_bytes();
        let mut call = Call::new(object::DEVX, method::devx::SUBSCRIBE_EVENT);
        call.fd(s::FD_HANDLE, std::os::fd::AsFd::as_fd(&fd))
            .bytes(s::TYPE_NUM_LIST, &kinds)
            .u64(s::COOKIE, 0xc00c1e);
        opened.context.call(&mut call)
    };
    assert_eq!(errno(subscribe(event::COMP)), Errno::EINVAL, "that belongs to an object");
    opened.must(subscribe(event::PORT_CHANGE));
    bench.device.set_link(false);
    bench.device.step(1);
    let mut file = std::fs::File::from(fd);
    let mut record = [0; 64];
    let bytes = file.read(&mut record).expect("there is an event");
    assert_eq!(bytes, 8, "without the event's data");
    assert_eq!(u64::from_ne_bytes(record[..8].try_into().unwrap()), 0xc00c1e);
    drop(opened);
    bench.close();
}
