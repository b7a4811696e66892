//! What Linux refuses, and by which number, where that is not what one would guess. All of it stands in the record of Linux's answers
//! (`tests/golden/rdma.txt`), which a whole tour is held against (`tests/tests/rdma_calls.rs`).

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::kernel::completion_queue::{CreateCq, CreateCqAnswer, ResizeCq};
use pollux_mlx5_abi::kernel::queue_pair::{CreateAhAnswer, CreateQp, CreateQpAnswer};
use pollux_mlx5_kernel::DoorProfile;
use pollux_uverbs::abi::flags::{Access, CqFlags, QpMask, QpState, QpType};
use pollux_uverbs::abi::memory::{AhAttr, GlobalRoute};
use pollux_uverbs::abi::queue_pair::{ModifyQp, QpDest};
use pollux_uverbs::cq::CqRequest;
use pollux_uverbs::mr::{MrChange, MrRequest};
use pollux_uverbs::mw::MwType;
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::srq::SrqKind;
use pollux_uverbs::xrcd::XrcdRequest;
use pollux_uverbs::{CqHandle, Driver, Errno, MrHandle, PdHandle, QpHandle, SrqHandle, XrcdHandle};
use zerocopy::{FromZeros, IntoBytes};

use super::bench::{Bench, address, errno};

#[test]
fn what_is_not_there_is_told_by_commands_as_by_calls() {
    let bench = Bench::new(DoorProfile::linux_6_12());
    let opened = bench.open();
    let context = &opened.context;
    let ring = opened.zone(4096);
    let request = MrRequest {
        pd: PdHandle(99),
        start: address(&ring),
        length: 4096,
        hca_va: address(&ring),
        access: Access::LOCAL_WRITE,
    };
    assert_eq!(errno(opened.register(&request)), Errno::ENOENT);
    let rights = MrChange { access: Some(Access::LOCAL_WRITE), ..MrChange::default() };
    assert_eq!(errno(opened.change(MrHandle(99), &rights)), Errno::ENOENT);
    assert_eq!(errno(context.alloc_mw(PdHandle(99), MwType::Type1, Driver::none())), Errno::ENOENT);
    assert_eq!(errno(context.moderate_cq(CqHandle(99), 1, 1)), Errno::ENOENT);
    let resize = ResizeCq { buf_addr: address(&ring), cqe_size: 64, ..ResizeCq::default() };
    let resized = context.resize_cq(CqHandle(99), 15, Driver::new(resize.as_bytes(), &mut []));
    assert_eq!(errno(resized), Errno::ENOENT);
    assert_eq!(errno(context.query_qp(QpHandle(99), QpMask::all())), Errno::ENOENT);
    let values = ModifyQp { qp_state: QpState::RESET.0, ..ModifyQp::default() };
    let modified = context.modify_qp(QpHandle(99), QpMask::STATE, &values, Driver::none());
    assert_eq!(errno(modified), Errno::ENOENT);
    let group = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(errno(context.attach_mcast(QpHandle(99), group, 0)), Errno::ENOENT);
    assert_eq!(errno(context.detach_mcast(QpHandle(99), group, 0)), Errno::ENOENT);
    assert_eq!(errno(context.query_srq(SrqHandle(99))), Errno::ENOENT);
    assert_eq!(errno(context.modify_srq(SrqHandle(99), None, Some(1), Driver::none())), Errno::ENOENT);
    // Of XRC domains it is another one.
    let opened_qp = context.open_qp(XrcdHandle(99), 5, QpType::XRC_TGT, 0, Driver::none());
    assert_eq!(errno(opened_qp), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn a_completion_queues_ring_begins_on_a_page() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let (ring, record) = (opened.zone(8192), opened.zone(4096));
    let request =
        CqRequest { entries: 63, user_handle: 0, channel: None, vector: 0, flags: CqFlags::empty() };
    let words = CreateCq {
        buf_addr: address(&ring) + 64,
        db_addr: address(&record),
        cqe_size: 64,
        ..CreateCq::default()
    };
    let mut answer = CreateCqAnswer::new_zeroed();
    let made = opened.context.create_cq(&request, Driver::new(words.as_bytes(), answer.as_mut_bytes()));
    assert_eq!(errno(made), Errno::EINVAL);
    let cq = opened.cq(4, None);
    let words = ResizeCq { buf_addr: address(&ring) + 64, cqe_size: 64, ..ResizeCq::default() };
    let resized = opened.context.resize_cq(cq.cq.handle, 63, Driver::new(words.as_bytes(), &mut []));
    assert_eq!(errno(resized), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn a_queue_pair_names_both_completion_queues_and_a_kind_that_is_known() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(4, None).cq.handle;
    for kind in [QpType::RC, QpType::UC, QpType::UD] {
        let made = opened.transport(kind, cq, |request, _| request.send_cq = None);
        assert_eq!(errno(made.map(drop)), Errno::ENOENT, "{kind}");
        let made = opened.transport(kind, cq, |request, _| request.recv_cq = None);
        assert_eq!(errno(made.map(drop)), Errno::ENOENT, "{kind}");
    }
    for (kind, wanted) in
        [(QpType(0), Errno::EINVAL), (QpType(77), Errno::EINVAL), (QpType::DRIVER, Errno::EOPNOTSUPP)]
    {
        assert_eq!(errno(opened.transport(kind, cq, |_, _| {}).map(drop)), wanted, "{kind}");
    }
    assert_eq!(errno(opened.srq(SrqKind::TagMatching { cq, max_tags: 4 }).map(drop)), Errno::EINVAL);
    // What is in a number of entries that is no power of two.
    let made = opened.must(opened.transport(QpType::RC, cq, |_, words| words.rq_wqe_count = 15));
    let values = opened.must(opened.context.query_qp(made.qp.handle, QpMask::all()));
    assert_eq!(values.max_recv_wr, 15);
    // It has no way to anybody yet.
    assert_eq!((values.dest, values.alt_dest), (QpDest::default(), QpDest::default()));
    drop(opened);
    bench.close();
}

#[test]
fn a_receiver_of_xrc_is_the_kernels_own_to_the_driver() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let cq = opened.cq(4, None).cq.handle;
    let xrcd = opened.must(opened.context.open_xrcd(&XrcdRequest::default(), Driver::none()));
    let make = |request: QpRequest| {
        let words = CreateQp { ece_options: 0x1000_0000, ..CreateQp::default() };
        let mut answer = CreateQpAnswer { bfreg_index: 5, ..CreateQpAnswer::default() };
        let made = opened.context.create_qp(&request, Driver::new(words.as_bytes(), answer.as_mut_bytes()));
        made.map(|qp| (qp, answer))
    };
    let receiver = QpRequest::new(QpType::XRC_TGT, QpHome::Xrcd(xrcd));
    let (_, answer) = opened.must(make(receiver));
    assert_eq!(answer.as_bytes(), CreateQpAnswer::default().as_bytes());
    assert_eq!(errno(make(QpRequest { send_cq: Some(cq), ..receiver })), Errno::EINVAL);
    assert_eq!(errno(make(QpRequest { kind: QpType::RC, ..receiver })), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn an_address_has_a_rate_that_is_one_and_room_for_its_mac() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let grh = GlobalRoute { dgid: [0xff; 16], hop_limit: 1, ..GlobalRoute::default() };
    let usual = AhAttr { grh, is_global: 1, port_num: 1, ..AhAttr::default() };
    let make = |attributes: &AhAttr| {
        let mut answer = CreateAhAnswer::new_zeroed();
        opened.context.create_ah(opened.pd, attributes, Driver::new(&[], answer.as_mut_bytes()))
    };
    opened.must(make(&usual));
    assert_eq!(errno(opened.context.create_ah(opened.pd, &usual, Driver::none())), Errno::EINVAL);
    assert_eq!(errno(make(&AhAttr { static_rate: 200, ..usual })), Errno::EINVAL);
    assert_eq!(errno(make(&AhAttr { grh: GlobalRoute { dgid: [0; 16], ..grh }, ..usual })), Errno::EINVAL);
    drop(opened);
    bench.close();
}

#[test]
fn a_region_keeps_its_key_when_its_memory_changes() {
    let bench = Bench::new(DoorProfile::default());
    let opened = bench.open();
    let zone = opened.zone(64 << 12);
    let start = address(&zone);
    let request =
        MrRequest { pd: opened.pd, start, length: 8192, hca_va: start, access: Access::LOCAL_WRITE };
    let mr = opened.must(opened.register(&request));
    let keys = bench.watch.done(op::CREATE_MKEY).len();
    let to = |pages: u64| MrChange {
        translation: Some((start + 4096, pages << 12, start + 4096)),
        access: Some(Access::LOCAL_WRITE | Access::REMOTE_READ),
        ..MrChange::default()
    };
    for pages in [1, 4, 2] {
        let changed = opened.must(opened.change(mr.handle, &to(pages)));
        assert_eq!((changed.lkey, changed.rkey), (mr.lkey, mr.rkey), "{pages} pages");
        assert_eq!(opened.must(opened.context.query_mr(mr.handle)).length, pages << 12);
    }
    assert_eq!(bench.watch.done(op::CREATE_MKEY).len(), keys);
    // A key of Linux's cache has room for four pages; at another place in larger ones, these are pages of 4 KiB.
    let five = MrChange { translation: Some((start + 4096, 5 << 12, start)), ..to(5) };
    let longer = opened.must(opened.change(mr.handle, &five));
    assert_ne!(longer.lkey, mr.lkey);
    assert_eq!(bench.watch.done(op::CREATE_MKEY).len(), keys + 1);
    // What no entry of a queue changes makes a key anew.
    let relaxed = Access::LOCAL_WRITE | Access::RELAXED_ORDERING;
    let changed = opened.must(opened.change(mr.handle, &MrChange { access: Some(relaxed), ..to(1) }));
    assert_ne!(changed.lkey, longer.lkey);
    assert_eq!(bench.watch.done(op::CREATE_MKEY).len(), keys + 2);
    drop(opened);
    bench.close();
}
