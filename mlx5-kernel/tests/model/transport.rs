//! Queue pairs of a transport, and what they stand on: shared receive queues, XRC domains, address handles, windows, groups.

use std::fs::File;
use std::os::fd::AsFd;

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext, optional, receive, service};
use pollux_mlx5_abi::command::qp::{CreateQpIn, TransitionIn};
use pollux_mlx5_abi::kernel::mmap;
use pollux_mlx5_abi::kernel::queue_pair::{CreateAhAnswer, qp_flag};
use pollux_mlx5_kernel::DoorProfile;
use pollux_uverbs::abi::flags::{Access, GidType, QpFlags, QpMask as M, QpState as S, QpType};
use pollux_uverbs::abi::memory::{AhAttr, GlobalRoute};
use pollux_uverbs::abi::queue_pair::{ModifyQp, QpDest};
use pollux_uverbs::event::AsyncKind;
use pollux_uverbs::mw::MwType;
use pollux_uverbs::qp::{Qp, QpHome, QpRequest};
use pollux_uverbs::srq::SrqKind;
use pollux_uverbs::xrcd::XrcdRequest;
use pollux_uverbs::{Driver, Errno, Protection, UverbsError};
use zerocopy::{FromZeros, IntoBytes};

use super::bench::{Bench, Opened, errno};

/// The link-local GID of the station at 02:00:00:00:00:07.
const PEER: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 7];

const CONNECTED: [QpType; 4] = [QpType::RC, QpType::UC, QpType::XRC_INI, QpType::XRC_TGT];

/// Values that fit every step.
fn values(to: S) -> ModifyQp {
    ModifyQp {
        dest: QpDest {
            dgid: PEER,
            flow_label: 0x12345,
            hop_limit: 1,
            traffic_class: 0x6b,
            sl: 3,
            is_global: 1,
            port_num: 1,
            ..QpDest::default()
        },
        qp_state: to.0,
        path_mtu: 3,
        port_num: 1,
        qkey: 0x1111_1111,
        rq_psn: 0x10_0001,
        sq_psn: 0x20_0002,
        dest_qp_num: 0x123,
        qp_access_flags: (Access::REMOTE_WRITE | Access::REMOTE_READ).bits(),
        max_rd_atomic: 4,
        max_dest_rd_atomic: 3,
        min_rnr_timer: 12,
        timeout: 14,
        retry_cnt: 6,
        rnr_retry: 7,
        ..ModifyQp::default()
    }
}

/// What a step must have.
fn required(kind: QpType, to: S) -> M {
    let peer = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    let serves = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let retries = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
    match (to, kind) {
        (S::INIT, QpType::UD) => M::PKEY_INDEX | M::PORT | M::QKEY,
        (S::INIT, _) => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
        (S::RTR, QpType::RC | QpType::XRC_TGT) => peer | serves,
        (S::RTR, QpType::UC | QpType::XRC_INI) => peer,
        (S::RTS, QpType::RC | QpType::XRC_INI) => retries,
        (S::RTS, QpType::XRC_TGT) => M::TIMEOUT | M::SQ_PSN,
        (S::RTS, QpType::UC | QpType::UD) => M::SQ_PSN,
        _ => M::empty(),
    }
}

fn step(opened: &Opened, qp: &Qp, mask: M, to: S) -> Result<(), UverbsError> {
    opened.context.modify_qp(qp.handle, mask | M::STATE, &values(to), Driver::none())
}

fn make(opened: &Opened, kind: QpType) -> Qp {
    if kind == QpType::XRC_TGT {
        let xrcd = opened.must(opened.context.open_xrcd(&XrcdRequest::default(), Driver::none()));
        let request = QpRequest::new(kind, QpHome::Xrcd(xrcd));
        return opened.must(opened.context.create_qp(&request, Driver::none()));
    }
    let cq = opened.cq(6, None);
    let made = opened.must(opened.transport(kind, cq.cq.handle, |request, driver| {
        if kind == QpType::XRC_INI {
            request.recv_cq = None;
            request.cap.max_recv_wr = 0;
            driver.rq_wqe_count = 0;
        }
    }));
    // Its memory is the test's to the end.
    let qp = made.qp;
    std::mem::forget((made, cq));
    qp
}

#[test]
fn every_transport_goes_through_its_states_and_back() {
    for kind in [QpType::RC, QpType::UC, QpType::UD, QpType::XRC_INI, QpType::XRC_TGT] {
        let bench = Bench::new(DoorProfile::default());
        let opened = bench.open();
        let qp = make(&opened, kind);
        for to in [S::INIT, S::RTR, S::RTS] {
            opened.must(step(&opened, &qp, required(kind, to), to));
            let state = opened.must(opened.context.query_qp(qp.handle, M::STATE));
            assert_eq!(state.qp_state, to.0, "{kind}");
        }
        for to in [S::ERR, S::RESET, S::RESET] {
            opened.must(step(&opened, &qp, M::empty(), to));
            let state = opened.must(opened.context.query_qp(qp.handle, M::STATE));
            assert_eq!(state.qp_state, to.0, "{kind}");
        }
        opened.must(opened.context.destroy_qp(qp.handle));
        drop(opened);
        bench.close();
    }
}

#[test]
fn what_a_step_lacks_or_has_too_much_is_refused() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    for kind in [QpType::RC, QpType::UC, QpType::UD, QpType::XRC_INI, QpType::XRC_TGT] {
        let qp = make(&opened, kind);
        for to in [S::INIT, S::RTR, S::RTS] {
            let needs = required(kind, to);
            for bit in (0..21).filter_map(|bit| M::from_bits(1 << bit)).filter(|bit| needs.contains(*bit)) {
                assert_eq!(errno(step(&opened, &qp, needs - bit, to)), Errno::EINVAL, "{kind} {to} {bit:?}");
            }
            // Of XRC, fields of the half that it has not do not count: not RNR_RETRY, say.
            let foreign = if to == S::RTS { M::DEST_QPN } else { M::SQ_PSN };
            assert_eq!(errno(step(&opened, &qp, needs | foreign, to)), Errno::EINVAL, "{kind} {to}");
            // A state that does not follow.
            assert_eq!(errno(step(&opened, &qp, needs, S::SQE)), Errno::EINVAL);
            opened.must(step(&opened, &qp, needs, to));
        }
        assert_eq!(errno(step(&opened, &qp, M::empty(), S::RTR)), Errno::EINVAL);
    }
    drop(opened);
    bench.close();
}

#[test]
fn values_that_cannot_be_are_refused() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let qp = make(&opened, QpType::RC);
    let try_it = |to: S, change: &dyn Fn(&mut ModifyQp)| {
        let mut request = values(to);
        change(&mut request);
        let mask = required(QpType::RC, to) | M::STATE;
        opened.context.modify_qp(qp.handle, mask, &request, Driver::none())
    };
    type Change = (S, &'static dyn Fn(&mut ModifyQp), Errno);
    let changes: &[Change] = &[
        (S::INIT, &|request| request.port_num = 2, Errno::EINVAL),
        (S::INIT, &|request| request.pkey_index = 1, Errno::EINVAL),
        (S::INIT, &|request| request.qp_state = 9, Errno::EINVAL),
    ];
    for (to, change, wanted) in changes {
        assert_eq!(errno(try_it(*to, change)), *wanted);
    }
    opened.must(try_it(S::INIT, &|_| {}));
    let changes: &[Change] = &[
        (S::RTR, &|request| request.path_mtu = 0, Errno::EINVAL),
        (S::RTR, &|request| request.path_mtu = 6, Errno::EINVAL),
        (S::RTR, &|request| request.dest.is_global = 0, Errno::EINVAL),
        (S::RTR, &|request| request.dest.port_num = 0, Errno::EINVAL),
        (S::RTR, &|request| request.dest.sgid_index = 9, Errno::EINVAL),
        (S::RTR, &|request| request.dest.static_rate = 1, Errno::EINVAL),
        (S::RTR, &|request| request.max_dest_rd_atomic = 255, Errno::EINVAL),
        // No network of the kernel's is here to ask.
        (S::RTR, &|request| request.dest.dgid[15 - 4] = 0, Errno::ENETUNREACH),
    ];
    for (to, change, wanted) in changes {
        assert_eq!(errno(try_it(*to, change)), *wanted);
    }
    opened.must(try_it(S::RTR, &|_| {}));
    assert_eq!(errno(try_it(S::RTS, &|request| request.max_rd_atomic = 255)), Errno::EINVAL);
    opened.must(try_it(S::RTS, &|_| {}));
    drop(opened);
    bench.close();
}

#[test]
fn the_firmware_is_told_what_linux_tells_it() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let made =
        opened.must(opened.transport(QpType::RC, cq.cq.handle, |request, _| request.sq_sig_all = true));
    let created = bench.watch.done(op::CREATE_QP).pop().expect("made");
    let context = CreateQpIn::QPC.get(created.input.first_chunk().expect("whole"));
    assert_eq!(QpContext::ST.get(&context), service::RC);
    assert_eq!(QpContext::RQ_TYPE.get(&context), receive::OWN);
    assert_eq!((QpContext::LOG_SQ_SIZE.get(&context), QpContext::NO_SQ.get(&context)), (4, 0));
    assert_eq!((QpContext::LOG_RQ_SIZE.get(&context), QpContext::LOG_RQ_STRIDE.get(&context)), (4, 1));
    assert_eq!((QpContext::CQN_SND.get(&context), QpContext::CQN_RCV.get(&context)), (cq.cqn, cq.cqn));
    assert_eq!((QpContext::USER_INDEX.get(&context), QpContext::PD.get(&context)), (9, opened.pdn));
    assert_eq!(made.answer.bfreg_index & 1 << 31, 0, "a register of the static kind");
    for to in [S::INIT, S::RTR, S::RTS] {
        opened.must(step(&opened, &made.qp, required(QpType::RC, to), to));
    }
    let told = |code| {
        let seen = bench.watch.done(code).pop().expect("done");
        let input: [u8; TransitionIn::BYTES] = *seen.input.first_chunk().expect("whole");
        (TransitionIn::OPT_PARAM_MASK.get(&input), TransitionIn::QPC.get(&input))
    };
    let (bits, context) = told(op::INIT2RTR_QP);
    assert_eq!(bits, optional::RRE | optional::RWE | optional::RAE);
    assert_eq!((QpContext::MTU.get(&context), QpContext::REMOTE_QPN.get(&context)), (3, 0x123));
    assert_eq!((QpContext::LOG_RRA_MAX.get(&context), QpContext::NEXT_RCV_PSN.get(&context)), (2, 0x10_0001));
    let path = QpContext::PRIMARY_ADDRESS_PATH.of(&context);
    assert_eq!(AddressPath::RMAC.get(path), 0x0200_0000_0007);
    assert_eq!(AddressPath::RGID_RIP.get(path), PEER);
    assert_eq!((AddressPath::TCLASS.get(path), AddressPath::DSCP.get(path)), (0x6b, 0x6b >> 2));
    assert_eq!((AddressPath::FLOW_LABEL.get(path), AddressPath::ETH_PRIO.get(path)), (0x12345, 3));
    assert_eq!(AddressPath::UDP_SPORT.get(path), 0xc000 | (0x2345 ^ 0x4));
    let (bits, context) = told(op::RTR2RTS_QP);
    assert_eq!(bits, 0);
    assert_eq!((QpContext::RETRY_COUNT.get(&context), QpContext::RNR_RETRY.get(&context)), (6, 7));
    assert_eq!(
        (QpContext::LOG_SRA_MAX.get(&context), QpContext::NEXT_SEND_PSN.get(&context)),
        (2, 0x20_0002)
    );
    assert_eq!(AddressPath::ACK_TIMEOUT.get(QpContext::PRIMARY_ADDRESS_PATH.of(&context)), 14);
    let is = opened.must(opened.context.query_qp(made.qp.handle, M::all()));
    assert_eq!((is.qp_state, is.path_mtu, is.dest_qp_num, is.rq_psn), (3, 3, 0x123, 0x10_0001));
    assert_eq!((is.max_rd_atomic, is.max_dest_rd_atomic, is.timeout), (4, 4, 14));
    assert_eq!((is.retry_cnt, is.rnr_retry, is.min_rnr_timer, is.sq_sig_all), (6, 7, 12, 1));
    assert_eq!(is.qp_access_flags, (Access::REMOTE_READ | Access::REMOTE_WRITE).bits());
    assert_eq!((is.dest.dgid, is.dest.flow_label, is.dest.traffic_class), (PEER, 0x12345, 0x6b));
    assert_eq!((is.max_recv_wr, is.max_recv_sge), (16, 2));
    drop(opened);
    bench.close();
}

#[test]
fn queue_pairs_that_cannot_be_are_refused() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(6, None);
    let refused =
        |kind, change: &dyn Fn(&mut QpRequest, &mut pollux_mlx5_abi::kernel::queue_pair::CreateQp)| {
            errno(opened.transport(kind, cq.cq.handle, |request, driver| change(request, driver)).map(|_| ()))
        };
    assert_eq!(refused(QpType::RC, &|_, driver| driver.sq_wqe_count = 15), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|_, driver| driver.sq_wqe_count = 1 << 30), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|_, driver| driver.rq_wqe_count = 0), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|_, driver| driver.rq_wqe_shift = 3), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|_, driver| driver.rq_wqe_shift = 60), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|_, driver| driver.buf_addr += 8), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|_, driver| driver.uidx = 0xff_ffff), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|_, driver| driver.flags = qp_flag::TYPE_DCI), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|request, _| request.cap.max_recv_wr = 1 << 30), Errno::EINVAL);
    assert_eq!(refused(QpType::RC, &|request, _| request.flags = QpFlags::CVLAN_STRIPPING), Errno::EINVAL);
    assert_eq!(refused(QpType::XRC_INI, &|_, _| ()), Errno::EINVAL, "a receive ring that it cannot have");
    assert_eq!(refused(QpType(7), &|_, _| ()), Errno::EINVAL);
    assert_eq!(refused(QpType::DRIVER, &|_, _| ()), Errno::EOPNOTSUPP);
    drop(opened);
    bench.close();
}

#[test]
fn a_shared_receive_queue_is_made_limited_and_outlives_its_users() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let (srq, _ring, _record) = opened.must(opened.srq(SrqKind::Basic));
    assert_eq!((srq.srqn, srq.max_wr, srq.max_sge), (None, 15, 1));
    let cq = opened.cq(6, None);
    let made = opened.must(opened.transport(QpType::RC, cq.cq.handle, |request, driver| {
        request.srq = Some(srq.handle);
        driver.rq_wqe_count = 0;
    }));
    assert_eq!(made.qp.cap.max_recv_wr, 0);
    assert_eq!(errno(opened.context.destroy_srq(srq.handle)), Errno::EBUSY);
    opened.must(opened.context.modify_srq(srq.handle, None, Some(5), Driver::none()));
    // Nothing is posted, so there are fewer at once, and the limit is spent.
    bench.device.step(1);
    let event = opened.must(opened.context.events().next()).expect("an event");
    assert_eq!((event.kind, event.element), (AsyncKind::SRQ_LIMIT_REACHED, 0x55));
    let is = opened.must(opened.context.query_srq(srq.handle));
    assert_eq!((is.max_wr, is.max_sge, is.srq_limit), (15, 1, 0));
    assert_eq!(errno(opened.context.modify_srq(srq.handle, None, Some(16), Driver::none())), Errno::EINVAL);
    assert_eq!(errno(opened.context.modify_srq(srq.handle, Some(31), None, Driver::none())), Errno::EINVAL);
    opened.must(opened.context.destroy_qp(made.qp.handle));
    let gone = opened.must(opened.context.destroy_srq(srq.handle));
    assert_eq!(gone.events_reported, 1);
    drop(opened);
    bench.close();
}

#[test]
fn an_xrc_domain_is_shared_by_its_file() {
    let bench = Bench::new(DoorProfile::default());
    let (one, two) = (bench.open(), bench.open());
    let file = File::open("/proc/self/exe").expect("this program");
    let named = XrcdRequest { file: Some(file.as_fd()), create: true, exclusive: false };
    let there = XrcdRequest { create: false, ..named };
    assert_eq!(errno(one.context.open_xrcd(&there, Driver::none())), Errno::EAGAIN);
    let first = one.must(one.context.open_xrcd(&named, Driver::none()));
    let second = two.must(two.context.open_xrcd(&there, Driver::none()));
    let alone = XrcdRequest { exclusive: true, ..named };
    assert_eq!(errno(two.context.open_xrcd(&alone, Driver::none())), Errno::EINVAL);
    assert_eq!(bench.watch.done(op::ALLOC_XRCD).len(), 1);
    let cq = one.cq(6, None);
    let (srq, _ring, _record) = one.must(one.srq(SrqKind::Xrc { xrcd: first, cq: cq.cq.handle }));
    assert!(srq.srqn.is_some_and(|number| number != 0));
    assert_eq!(errno(one.context.close_xrcd(first)), Errno::EBUSY);
    let refused = one.transport(QpType::RC, cq.cq.handle, |request, driver| {
        request.srq = Some(srq.handle);
        driver.rq_wqe_count = 0;
    });
    assert_eq!(errno(refused.map(|_| ())), Errno::EINVAL, "an XRC one is for XRC");
    let receiver = one
        .must(one.context.create_qp(&QpRequest::new(QpType::XRC_TGT, QpHome::Xrcd(first)), Driver::none()));
    let opened = two.must(two.context.open_qp(second, receiver.qpn, QpType::XRC_TGT, 1, Driver::none()));
    assert_eq!(opened.qpn, receiver.qpn);
    assert_eq!(
        errno(two.context.open_qp(second, receiver.qpn ^ 1, QpType::XRC_TGT, 1, Driver::none())),
        Errno::EINVAL
    );
    assert_eq!(
        errno(two.context.open_qp(second, receiver.qpn, QpType::RC, 1, Driver::none())),
        Errno::EINVAL
    );
    // Both are one queue pair: what one does the other sees, and it lives as long as one of them.
    one.must(step(&one, &receiver, required(QpType::XRC_TGT, S::INIT), S::INIT));
    one.must(one.context.destroy_qp(receiver.handle));
    assert_eq!(two.must(two.context.query_qp(opened.handle, M::STATE)).qp_state, S::INIT.0);
    two.must(step(&two, &opened, required(QpType::XRC_TGT, S::RTR), S::RTR));
    two.must(two.context.destroy_qp(opened.handle));
    assert_eq!(
        errno(two.context.open_qp(second, receiver.qpn, QpType::XRC_TGT, 1, Driver::none())),
        Errno::EINVAL
    );
    one.must(one.context.destroy_srq(srq.handle));
    one.must(one.context.close_xrcd(first));
    two.must(two.context.close_xrcd(second));
    drop((one, two));
    bench.close();
}

#[test]
fn an_address_handle_tells_the_mac() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let attr = AhAttr {
        grh: GlobalRoute { dgid: PEER, ..GlobalRoute::default() },
        is_global: 1,
        port_num: 1,
        ..AhAttr::default()
    };
    let make = |attr: &AhAttr| {
        let mut answer = CreateAhAnswer::new_zeroed();
        let ah = opened.context.create_ah(opened.pd, attr, Driver::new(&[], answer.as_mut_bytes()));
        ah.map(|ah| (ah, answer))
    };
    let (ah, answer) = opened.must(make(&attr));
    assert_eq!((answer.response_length, answer.dmac), (10, [2, 0, 0, 0, 0, 7]));
    assert_eq!(errno(opened.context.dealloc_pd(opened.pd)), Errno::EBUSY);
    opened.must(opened.context.destroy_ah(ah));
    let group = GlobalRoute { dgid: [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], ..attr.grh };
    let (_, answer) = opened.must(make(&AhAttr { grh: group, ..attr }));
    assert_eq!(answer.dmac, [0x33, 0x33, 1, 2, 3, 4]);
    assert_eq!(errno(make(&AhAttr { is_global: 0, ..attr })), Errno::EINVAL);
    assert_eq!(errno(make(&AhAttr { port_num: 2, ..attr })), Errno::EINVAL);
    let nowhere = GlobalRoute { sgid_index: 77, ..attr.grh };
    assert_eq!(errno(make(&AhAttr { grh: nowhere, ..attr })), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn windows_and_groups_are_had_and_given_back() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    // A card has windows or says that it has none.
    let offered = opened.must(opened.context.query_device(Driver::none())).base.max_mw != 0;
    for kind in [MwType::Type1, MwType::Type2] {
        let window = opened.context.alloc_mw(opened.pd, kind, Driver::none());
        if !offered {
            assert_eq!(errno(window), Errno::EOPNOTSUPP);
            continue;
        }
        let window = opened.must(window);
        assert_ne!(window.rkey >> 8, 0);
        opened.must(opened.context.dealloc_mw(window.handle));
    }
    let datagrams = make(&opened, QpType::UD);
    let group = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let context = &opened.context;
    opened.must(context.attach_mcast(datagrams.handle, group, 0));
    opened.must(context.attach_mcast(datagrams.handle, group, 0));
    assert_eq!(bench.watch.done(op::ATTACH_TO_MCG).len(), 1);
    assert_eq!(errno(context.destroy_qp(datagrams.handle)), Errno::EBUSY);
    assert_eq!(errno(context.attach_mcast(datagrams.handle, PEER, 0)), Errno::EINVAL);
    for (last, done) in [([239, 1, 2, 3], true), ([192, 0, 2, 1], false)] {
        let mut mapped = [0; 16];
        mapped[10..12].fill(0xff);
        mapped[12..].copy_from_slice(&last);
        match context.attach_mcast(datagrams.handle, mapped, 0) {
            Ok(()) if done => opened.must(context.detach_mcast(datagrams.handle, mapped, 0)),
            other => assert_eq!((errno(other), done), (Errno::EINVAL, false), "{last:?}"),
        }
    }
    assert_eq!(errno(context.detach_mcast(datagrams.handle, [0xff; 16], 0)), Errno::EINVAL);
    opened.must(context.detach_mcast(datagrams.handle, group, 0));
    // What is left at the end of the context is left for it.
    opened.must(context.attach_mcast(datagrams.handle, group, 0));
    let connected = make(&opened, QpType::RC);
    assert_eq!(errno(context.attach_mcast(connected.handle, group, 0)), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn gids_are_of_the_second_version() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let first = opened.must(opened.context.query_gid(1, 0)).expect("it is there");
    assert_eq!(first.kind, GidType::ROCE_V2);
    assert_eq!(first.gid, [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]);
    drop(opened);
    bench.close();
}

#[test]
fn old_kernels_make_them_by_command() {
    let bench = Bench::new(DoorProfile::linux_5_4());
    let opened = bench.open();
    for kind in CONNECTED {
        let qp = make(&opened, kind);
        opened.must(step(&opened, &qp, required(kind, S::INIT), S::INIT));
    }
    let (srq, _ring, _record) = opened.must(opened.srq(SrqKind::Basic));
    assert_eq!(srq.max_wr, 15);
    drop(opened);
    bench.close();
}

#[test]
fn memory_of_the_device_is_lent_mapped_and_registered() {
    use pollux_mlx5_abi::kernel::attribute::alloc_dm as a;
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let context = &opened.context;
    let alloc = |bytes: u64, log_align: u32| {
        let made = context.alloc_dm(bytes, log_align, |call| {
            call.answer(a::RESP_START_OFFSET, 8).answer(a::RESP_PAGE_INDEX, 2);
        })?;
        let start: u64 = made.1.get(a::RESP_START_OFFSET)?;
        let index: u16 = made.1.get(a::RESP_PAGE_INDEX)?;
        Ok::<_, UverbsError>((made.0, start, index))
    };
    let most = opened.must(context.query_device(Driver::none())).max_dm_size;
    if most == 0 {
        // A card without such memory says so.
        assert_eq!(errno(alloc(64, 6)), Errno::EOPNOTSUPP);
        return;
    }
    assert_eq!(errno(alloc(0, 6)), Errno::EINVAL);
    assert_eq!(errno(alloc(64, 60)), Errno::EINVAL);
    assert_eq!(errno(alloc(most + 1, 6)), Errno::ENOMEM);
    let (first, _, one) = opened.must(alloc(100, 6));
    let (second, start, two) = opened.must(alloc(5000, 6));
    assert_ne!(one, two, "each is mapped by itself");
    let offset = mmap::offset(mmap::DEVICE_MEM, two, 4096);
    let page = opened.must(context.map(offset, 8192, Protection::Write));
    assert_eq!((page.bytes(), start), (8192, 0));
    assert_eq!(errno(context.map(offset, 4096, Protection::Write)), Errno::EINVAL);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let mr = opened.must(context.reg_dm_mr(opened.pd, second, 64, 4936, rights));
    assert_eq!(mr.lkey, mr.rkey);
    assert_eq!(errno(context.reg_dm_mr(opened.pd, second, 64, 4937, rights)), Errno::EINVAL);
    assert_eq!(errno(context.reg_dm_mr(opened.pd, second, 0, 64, Access::MW_BIND)), Errno::EINVAL);
    assert_eq!(errno(context.free_dm(second)), Errno::EBUSY);
    opened.must(context.dereg_mr(mr.handle));
    opened.must(context.free_dm(second));
    assert_eq!(errno(context.map(offset, 8192, Protection::Write)), Errno::EINVAL);
    // Its pages are free again, all of them but the one of the first.
    let (third, _, _) = opened.must(alloc(most - 4096, 6));
    assert_eq!(errno(alloc(64, 6)), Errno::ENOMEM);
    opened.must(context.free_dm(third));
    opened.must(context.free_dm(first));
    drop((page, opened));
    bench.close();
}
