//! Completion queues, work queues, tables of them, queue pairs.

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::sq::{CreateSqIn, SqContext};
use pollux_mlx5_abi::kernel::completion_queue::{CreateCq, ResizeCq};
use pollux_mlx5_abi::kernel::queue_pair::{hash_field, qp_answer};
use pollux_mlx5_abi::kernel::work_queue::wq_mask;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::{DeviceConfig, Traits};
use pollux_uverbs::abi::flags::{CqFlags, QpMask, QpState, QpType, WqFlags, WqState};
use pollux_uverbs::abi::queue_pair::ModifyQp;
use pollux_uverbs::cq::CqRequest;
use pollux_uverbs::wq::WqChange;
use pollux_uverbs::{Driver, Errno, WqHandle};
use zerocopy::IntoBytes;

use super::bench::{Bench, address, errno};

#[test]
fn a_completion_queue_is_made_and_its_answer_tells_what_was_made() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let made = opened.cq(6, None);
    assert_eq!(made.cq.entries, 63);
    assert_ne!(made.cqn, 0);
    opened.context.moderate_cq(made.cq.handle, 16, 8).expect("moderation");
    assert_eq!(errno(opened.context.moderate_cq(made.cq.handle, 16, 1 << 12)), Errno::EINVAL);
    let gone = opened.context.destroy_cq(made.cq.handle).expect("destroyed");
    assert_eq!((gone.comp_events_reported, gone.async_events_reported), (0, 0));
    assert_eq!(errno(opened.context.destroy_cq(made.cq.handle)), Errno::ENOENT);
    drop(opened);
    bench.close();
}

#[test]
fn a_parent_outlives_its_children() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let wq = opened.wq(cq.cq.handle, 4, 1);
    let table = opened.table(&[wq.wq.handle]).expect("a table");
    let (qp, _) = opened.rss(table.handle, 0).expect("a queue pair");
    let context = &opened.context;
    assert_eq!(errno(context.dealloc_pd(opened.pd)), Errno::EBUSY);
    assert_eq!(errno(context.destroy_cq(cq.cq.handle)), Errno::EBUSY);
    assert_eq!(errno(context.destroy_wq(wq.wq.handle)), Errno::EBUSY);
    assert_eq!(errno(context.destroy_rwq_ind_table(table.handle)), Errno::EBUSY);
    context.destroy_qp(qp.handle).expect("the queue pair");
    context.destroy_rwq_ind_table(table.handle).expect("then the table");
    context.destroy_wq(wq.wq.handle).expect("then the queue");
    context.destroy_cq(cq.cq.handle).expect("then the completion queue");
    context.dealloc_pd(opened.pd).expect("then the domain");
    drop(opened);
    bench.close();
}

#[test]
fn closing_a_context_destroys_all_that_is_left() {
    let bench = Bench::new(DoorProfile::default());
    let before = (bench.watch.left(), bench.device.memory().pinned_bytes());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let queues: Vec<_> = (0..4).map(|index| opened.wq(cq.cq.handle, 4, index)).collect();
    let handles: Vec<WqHandle> = queues.iter().map(|queue| queue.wq.handle).collect();
    let table = opened.table(&handles).expect("a table");
    opened.rss(table.handle, hash_field::SRC_IPV4).expect("a queue pair");
    let raw = opened.raw(cq.cq.handle);
    assert!(bench.watch.left().len() > before.0.len());
    drop(opened);
    assert_eq!((bench.watch.left(), bench.device.memory().pinned_bytes()), before);
    drop((raw, queues));
    bench.close();
}

#[test]
fn a_work_queue_goes_through_its_states() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let made = opened.wq(cq.cq.handle, 4, 1);
    assert_eq!((made.wq.max_wr, made.wq.max_sge), (16, 1));
    let step = |current: WqState, next: WqState| {
        let change = WqChange { state: Some(next), current: Some(current), flags: None };
        let driver = [0_u8; 8];
        opened.context.modify_wq(made.wq.handle, &change, Driver::new(&driver, &mut []))
    };
    step(WqState::RESET, WqState::RDY).expect("ready");
    assert_eq!(errno(step(WqState::RESET, WqState::RDY)), Errno::EINVAL, "it is not in reset");
    step(WqState::RDY, WqState::ERR).expect("in error");
    step(WqState::ERR, WqState::RESET).expect("in reset again");
    let strip = WqChange {
        state: None,
        current: None,
        flags: Some((WqFlags::CVLAN_STRIPPING, WqFlags::CVLAN_STRIPPING)),
    };
    let driver = [0_u8; 8];
    opened.context.modify_wq(made.wq.handle, &strip, Driver::new(&driver, &mut [])).expect("strips tags");
    drop(opened);
    bench.close();
}

#[test]
fn a_striding_queue_takes_what_the_device_allows() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let striding = |strides: u32, stride_bytes: u32| {
        opened.try_wq(cq.cq.handle, 4, 1, |driver| {
            driver.comp_mask = wq_mask::STRIDING_RQ;
            driver.rq_wqe_shift = 5;
            driver.single_wqe_log_num_of_strides = strides;
            driver.single_stride_log_num_of_bytes = stride_bytes;
        })
    };
    striding(9, 11).expect("512 strides of 2 KiB");
    for (strides, stride_bytes) in [(2, 11), (17, 11), (9, 5), (9, 14), (u32::MAX, u32::MAX)] {
        assert_eq!(
            errno(striding(strides, stride_bytes).map(|_| ())),
            Errno::EINVAL,
            "{strides} {stride_bytes}"
        );
    }
    drop(opened);
    bench.close();
}

#[test]
fn a_hash_takes_fields_of_one_kind_of_packet() {
    use hash_field as h;
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let wq = opened.wq(cq.cq.handle, 4, 1);
    let table = opened.table(&[wq.wq.handle]).expect("a table");
    let good = [
        0,
        h::SRC_IPV4,
        h::SRC_IPV4 | h::DST_IPV4,
        h::SRC_IPV6 | h::DST_IPV6 | h::SRC_PORT_TCP | h::DST_PORT_TCP,
        h::SRC_IPV4 | h::DST_IPV4 | h::DST_PORT_UDP,
    ];
    for fields in good {
        let (qp, answer) = opened.rss(table.handle, fields).unwrap_or_else(|error| {
            panic!("{fields:#x}: {error}; refused: {:?}", bench.watch.refused());
        });
        assert_eq!(answer.comp_mask & qp_answer::TIRN, qp_answer::TIRN);
        opened.context.destroy_qp(qp.handle).expect("destroyed");
    }
    for fields in [h::SRC_IPV4 | h::SRC_IPV6, h::SRC_PORT_TCP | h::DST_PORT_UDP | h::SRC_IPV4] {
        assert_eq!(errno(opened.rss(table.handle, fields)), Errno::EINVAL, "{fields:#x}");
    }
    drop(opened);
    bench.close();
}

#[test]
fn a_raw_queue_pair_has_a_queue_of_each_direction() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let made = opened.raw(cq.cq.handle);
    assert_eq!(made.answer.comp_mask, qp_answer::TIRN | qp_answer::TISN | qp_answer::RQN | qp_answer::SQN);
    let step = |state: QpState, mask: QpMask, values: ModifyQp| {
        let values = ModifyQp { qp_state: state.0, ..values };
        opened.context.modify_qp(made.qp.handle, mask | QpMask::STATE, &values, Driver::none())
    };
    let port = ModifyQp { port_num: 1, ..ModifyQp::default() };
    assert_eq!(
        errno(step(QpState::RTS, QpMask::empty(), ModifyQp::default())),
        Errno::EINVAL,
        "not from RESET"
    );
    step(QpState::INIT, QpMask::PORT, port).expect("INIT");
    step(QpState::RTR, QpMask::empty(), ModifyQp::default()).expect("RTR");
    step(QpState::RTS, QpMask::empty(), ModifyQp::default()).expect("RTS");
    let state = opened.context.query_qp(made.qp.handle, QpMask::STATE).expect("a state");
    assert_eq!((QpState(state.qp_state), state.max_recv_wr), (QpState::RTS, 64));
    step(QpState::ERR, QpMask::empty(), ModifyQp::default()).expect("ERR");
    step(QpState::RESET, QpMask::empty(), ModifyQp::default()).expect("RESET");
    let state = opened.context.query_qp(made.qp.handle, QpMask::STATE).expect("a state");
    assert_eq!(QpState(state.qp_state), QpState::RESET);
    opened.context.destroy_qp(made.qp.handle).expect("destroyed");
    for pair in [op::CREATE_SQ, op::CREATE_RQ, op::CREATE_TIS, op::CREATE_TIR] {
        assert_eq!(bench.watch.done(pair).len(), 1);
    }
    drop(opened);
    bench.close();
}

#[test]
fn sizes_and_places_that_make_no_sense_are_refused() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let refuse =
        |what: &str, expected: Errno, change: fn(&mut pollux_mlx5_abi::kernel::queue_pair::CreateQp)| {
            let result = opened.try_raw(cq.cq.handle, |_, driver| change(driver));
            assert_eq!(errno(result.map(|_| ())), expected, "{what}");
        };
    refuse("entries that are no power of two", Errno::EINVAL, |driver| driver.sq_wqe_count = 63);
    refuse("entries beyond the device", Errno::EINVAL, |driver| driver.sq_wqe_count = 1 << 20);
    refuse("a ring that is not there", Errno::EFAULT, |driver| driver.sq_buf_addr = 1 << 46);
    refuse("a flag that nobody knows", Errno::EINVAL, |driver| driver.flags = 1 << 30);
    let driver = CreateCq {
        buf_addr: address(&cq.ring),
        db_addr: address(&cq.record),
        cqe_size: 64,
        ..CreateCq::default()
    };
    let mut request =
        CqRequest { entries: 1 << 23, user_handle: 0, channel: None, vector: 0, flags: CqFlags::empty() };
    let result = opened.context.create_cq(&request, Driver::new(driver.as_bytes(), &mut []));
    assert_eq!(errno(result), Errno::EINVAL, "entries beyond the device");
    (request.entries, request.vector) = (63, opened.context.comp_vectors());
    let result = opened.context.create_cq(&request, Driver::new(driver.as_bytes(), &mut []));
    assert_eq!(errno(result), Errno::EINVAL, "a vector that is not there");
    let result = opened.try_raw(cq.cq.handle, |request, _| request.kind = QpType::DRIVER);
    assert_eq!(errno(result.map(|_| ())), Errno::EOPNOTSUPP);
    let before = bench.watch.left();
    let at = address(&cq.ring);
    let result = opened.try_wq(cq.cq.handle, 4, 1, |driver| driver.buf_addr = at + 1);
    assert_eq!(errno(result.map(|_| ())), Errno::EINVAL, "a ring in the middle of a word");
    assert_eq!(bench.watch.left(), before, "what is refused leaves nothing");
    drop(opened);
    bench.close();
}

#[test]
fn a_device_that_cannot_move_a_completion_queue_is_not_asked() {
    let traits = Traits { cq_resize: false, ..Traits::default() };
    let config = DeviceConfig { traits, ..DeviceConfig::default() };
    let bench = Bench::with(DoorProfile::default(), config);
    let opened = bench.open();
    let made = opened.cq(4, None);
    let larger = opened.zone(64 << 6);
    let driver = ResizeCq { buf_addr: address(&larger), cqe_size: 64, ..ResizeCq::default() };
    let data = Driver::new(driver.as_bytes(), &mut []);
    assert_eq!(errno(opened.context.resize_cq(made.cq.handle, 63, data)), Errno::ENOSYS);
    assert!(bench.watch.done(op::MODIFY_CQ).is_empty());
    drop((opened, made));
    bench.close();
}

#[test]
fn a_send_queue_takes_entries_of_many_packets_where_the_device_does() {
    for packs in [false, true] {
        let traits = Traits { enhanced_multi_packet: packs, ..Traits::default() };
        let bench = Bench::with(DoorProfile::default(), DeviceConfig { traits, ..DeviceConfig::default() });
        let opened = bench.open();
        let cq = opened.cq(6, None);
        let made = opened.raw(cq.cq.handle);
        let done = bench.watch.done(op::CREATE_SQ);
        let input = done[0].input.first_chunk().expect("whole");
        assert_eq!(SqContext::ALLOW_MULTI_PKT_SEND_WQE.is_set(&CreateSqIn::CTX.get(input)), packs);
        drop((made, cq, opened));
        bench.close();
    }
}
