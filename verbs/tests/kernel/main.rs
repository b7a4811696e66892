//! Verbs on a kernel's own device, of rxe or of mlx5: both ends on one device, which sends to itself.

#![expect(unsafe_code, reason = "who takes over a region promises that nobody refers into it")]

mod mlx5;
mod pingpong;

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_tests::patience::patient;
use pollux_tests::require::{Need, require};
use pollux_uverbs::KernelFile;
use pollux_uverbs::abi::flags::GidType;
use pollux_uverbs::abi::object::driver;
use pollux_verbs::{
    Access, Ah, AsyncKind, Buffers, Connection, Context, Cq, CqOptions, Device, DeviceCaps, Dm, Element,
    Errno, Mr, MwType, Options, Path as To, Pd, Placement, PostError, Provider, Qp, QpAttributes, QpKind,
    QpOptions, QpState, Selectivity, Srq, SrqOptions, VerbsError, Wc, WcOpcode, WcStatus, Xrcd,
};

/// The kernel's device to try: the first of mlx5 where `POLLUX_REQUIRE` names that, since it may carry somebody's connection; else
/// the first of rxe.
fn device() -> Option<(Device, Context)> {
    device_of(if Need::Mlx5.is_required() { Need::Mlx5 } else { Need::Rxe })
}

fn device_of(need: Need) -> Option<(Device, Context)> {
    if !require(&[need]) {
        return None;
    }
    let wanted = if need == Need::Mlx5 { driver::MLX5 } else { driver::RXE };
    let all = pollux_verbs::devices(Path::new("/")).expect("a kernel with uverbs");
    let found = all
        .into_iter()
        .filter(|device| device.driver_id() == Some(wanted))
        .find_map(|device| Some((Context::open_device(&device, Options::default()).ok()?, device)));
    let (context, device) = found.expect("the device that was found opens");
    Some((device, context))
}

fn kernels() -> Option<Context> {
    device().map(|(_, context)| context)
}

/// Index and value of a GID of IPv4.
fn gid(context: &Context) -> (u8, [u8; 16]) {
    let all = context.gids().expect("GIDs");
    let v4 = all.iter().find(|gid| {
        gid.kind == GidType::ROCE_V2 && gid.gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    });
    let found = v4.or(all.first()).expect("a GID");
    (found.index as u8, found.gid)
}

/// What a completion told.
#[derive(Debug, PartialEq)]
struct Done {
    id: u64,
    status: WcStatus,
    opcode: WcOpcode,
    bytes: u32,
    imm: Option<u32>,
    data: Vec<u8>,
}

fn wait(cq: &mut Cq, count: usize) -> Vec<Done> {
    let end = Instant::now() + patient(Duration::from_secs(10));
    let mut done = Vec::new();
    while done.len() < count {
        assert!(Instant::now() < end, "only {done:?} in time");
        cq.poll(count - done.len(), |wc: &mut Wc<'_, '_>| {
            let (id, status, opcode, bytes, imm) = (wc.id(), wc.status(), wc.opcode(), wc.bytes(), wc.imm());
            let data = std::iter::from_fn(|| wc.take_buf()).flat_map(|buf| buf.to_vec()).collect();
            done.push(Done { id, status, opcode, bytes, imm, data });
        });
    }
    done
}

struct Ends {
    one: Qp,
    two: Qp,
    cq: Cq,
    buffers: Buffers,
    pd: Pd,
}

fn connected(context: &Context, kind: QpKind) -> Ends {
    let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    connected_with(context, kind, if kind == QpKind::Rc { rights } else { Access::REMOTE_WRITE })
}

fn connected_with(context: &Context, kind: QpKind, rights: Access) -> Ends {
    let pd = Pd::new(context).expect("a domain");
    let buffers = Buffers::new(&pd, 32, 4096).expect("buffers");
    let cq = Cq::new(context, CqOptions::new(64)).expect("a completion queue");
    let options = QpOptions::new(kind).depth(16, 16).inline(64).pieces(2, 2);
    let make = || {
        let mut qp = Qp::new(&pd, &cq, &cq, &options).expect("a queue pair");
        qp.init(1, rights).expect("INIT");
        qp
    };
    let (mut one, mut two) = (make(), make());
    let (index, own) = gid(context);
    let path = To { hop_limit: 1, ..To::new(own, index) };
    one.connect(&Connection::new(path, two.qpn())).expect("connected");
    two.connect(&Connection::new(path, one.qpn())).expect("connected");
    Ends { one, two, cq, buffers, pd }
}

#[test]
fn a_reset_counts_nothing_twice_and_completes_nothing() {
    let Some(context) = kernels() else { return };
    let Ends { mut one, buffers, .. } = connected(&context, QpKind::Rc);
    let view = context.view();
    let counts = |qp: &Qp| {
        let told = view.queue_pair(qp.qpn().into()).expect("it is there");
        let receive = told.receive.expect("a ring of its own");
        (receive.posted, receive.completed)
    };
    for round in 1..=2 {
        let mut receives = one.receives().expect("a ring of its own");
        for id in 0..3 {
            receives.piece(id, buffers.take().expect("a buffer"));
        }
        receives.ring().expect("posted");
        assert_eq!(counts(&one), (3 * round, 0));
        one.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
        assert_eq!(counts(&one), (3 * round, 0));
        one.init(1, Access::empty()).expect("INIT");
    }
}

#[test]
fn messages_go_over_connections() {
    let Some(context) = kernels() else { return };
    for kind in [QpKind::Rc, QpKind::Uc] {
        let Ends { mut one, mut two, mut cq, buffers, .. } = connected(&context, kind);
        let mut receives = two.receives().expect("a ring of its own");
        for id in 0..3 {
            receives.piece(id, buffers.take().expect("a buffer"));
        }
        assert_eq!(receives.ring(), Ok(3));
        let mut batch = one.batch();
        batch.send(10).inline(b"small").signalled();
        batch.send(11).piece(buffers.filled(&[7; 4000]).expect("a buffer")).imm(0x1234_5678).signalled();
        let parts = [buffers.filled(b"two ").expect("a buffer"), buffers.filled(b"parts").expect("a buffer")];
        let mut open = batch.send(12).signalled();
        for part in parts {
            open = open.piece(part);
        }
        assert_eq!(batch.ring(), Ok(3));
        let done = wait(&mut cq, 6);
        let of = |id| done.iter().find(|done| done.id == id).expect("completed");
        for id in 10..13 {
            assert_eq!((of(id).status, of(id).opcode), (WcStatus::SUCCESS, WcOpcode::SEND), "{done:?}");
        }
        assert_eq!(of(0).data, b"small");
        assert_eq!((of(1).imm, of(1).data.len(), of(1).opcode), (Some(0x1234_5678), 4000, WcOpcode::RECV));
        assert_eq!(of(2).data, b"two parts");
        assert_eq!(buffers.available(), buffers.count(), "all came home");
    }
}

#[test]
fn memory_is_written_read_and_swapped() {
    let Some(context) = kernels() else { return };
    let Ends { mut one, two, mut cq, buffers, pd } = connected(&context, QpKind::Rc);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let far = Mr::allocate(&pd, 8192, rights).expect("a region");
    far.store64(8, 40);
    let mut batch = one.batch();
    batch.write(1, far.address() + 100, far.rkey()).piece(buffers.filled(&[9; 3000]).expect("a buffer"));
    let mut room = buffers.take().expect("a buffer");
    assert!(room.set_len(3000));
    batch.read(2, far.address() + 100, far.rkey()).piece(room).signalled();
    let word = |value: u64| buffers.filled(&value.to_ne_bytes()).expect("a buffer");
    batch.fetch_add(3, far.address() + 8, far.rkey(), 2).piece(word(0)).signalled();
    batch.compare_swap(4, far.address() + 8, far.rkey(), 42, 77).piece(word(0)).signalled();
    assert_eq!(batch.ring(), Ok(4));
    let done = wait(&mut cq, 3);
    assert!(done.iter().all(|done| done.status == WcStatus::SUCCESS), "{done:?}");
    assert_eq!((done[0].id, done[0].opcode), (2, WcOpcode::RDMA_READ));
    // The written buffer came home with the read, whose data are behind it.
    assert_eq!(done[0].data[3000..], [9; 3000]);
    assert_eq!((done[1].opcode, &done[1].data[..]), (WcOpcode::FETCH_ADD, &40_u64.to_ne_bytes()[..]));
    assert_eq!((done[2].opcode, &done[2].data[..]), (WcOpcode::COMP_SWAP, &42_u64.to_ne_bytes()[..]));
    assert_eq!(far.load64(8), 77);
    let mut seen = [0; 3000];
    far.read(100, &mut seen);
    assert_eq!(seen, [9; 3000]);
    // What is not allowed is an error at this end, and what is behind it is flushed.
    let mut batch = one.batch();
    batch
        .write(5, far.address() + 8000, far.rkey())
        .piece(buffers.filled(&[1; 1000]).expect("a buffer"))
        .signalled();
    batch.send(6).inline(b"x").signalled();
    assert_eq!(batch.ring(), Ok(2));
    let done = wait(&mut cq, 2);
    assert_eq!((done[0].id, done[0].status), (5, WcStatus::REM_ACCESS_ERR));
    assert_eq!((done[1].id, done[1].status), (6, WcStatus::WR_FLUSH_ERR));
    drop((one, two));
    assert_eq!(buffers.available(), buffers.count());
}

#[test]
fn a_window_opens_a_part_of_a_region() {
    let Some(context) = kernels() else { return };
    let Ends { mut one, mut two, mut cq, buffers, pd } = connected(&context, QpKind::Rc);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::MW_BIND;
    let far = Mr::allocate(&pd, 4096, rights).expect("a region");
    let mut window = pollux_verbs::Mw::new(&pd, MwType::Type2).expect("a window");
    let mut batch = two.batch();
    batch.bind(1, &mut window, &far, 0..64, Access::REMOTE_WRITE).signalled();
    assert_eq!(batch.ring(), Ok(1));
    let done = wait(&mut cq, 1);
    assert_eq!((done[0].status, done[0].opcode), (WcStatus::SUCCESS, WcOpcode::BIND_MW));
    let mut batch = one.batch();
    batch
        .write(2, far.address(), window.rkey())
        .piece(buffers.filled(b"by the window").expect("a buffer"))
        .signalled();
    assert_eq!(batch.ring(), Ok(1));
    assert_eq!(wait(&mut cq, 1)[0].status, WcStatus::SUCCESS);
    let mut seen = [0; 13];
    far.read(0, &mut seen);
    assert_eq!(&seen, b"by the window");
}

#[test]
fn datagrams_are_told_from_whom() {
    let Some(context) = kernels() else { return };
    let pd = Pd::new(&context).expect("a domain");
    let buffers = Buffers::new(&pd, 8, 4096).expect("buffers");
    let mut cq = Cq::new(&context, CqOptions::new(16)).expect("a completion queue");
    let make = || {
        let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Ud).depth(8, 8)).expect("a queue pair");
        qp.ready_datagram(1, 0x1111_1111, 0).expect("RTS");
        qp
    };
    let (mut one, mut two) = (make(), make());
    let (index, own) = gid(&context);
    let ah = Ah::new(&pd, &To { hop_limit: 1, ..To::new(own, index) }).expect("an address");
    let mut receives = two.receives().expect("a ring of its own");
    receives.piece(1, buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    let mut batch = one.batch();
    batch
        .send(2)
        .to(&ah, two.qpn(), 0x1111_1111)
        .piece(buffers.filled(b"datagram").expect("a buffer"))
        .signalled();
    assert_eq!(batch.ring(), Ok(1));
    let (mut source, mut back) = (0, None);
    let end = Instant::now() + patient(Duration::from_secs(10));
    let mut count = 0;
    while count < 2 {
        assert!(Instant::now() < end, "{count} completions in time");
        count += cq.poll(2, |wc| {
            assert!(wc.is_ok(), "{wc:?}");
            if wc.is_receive() {
                source = wc.source_qpn();
                let buf = wc.take_buf().expect("its buffer");
                assert_eq!(&buf[40..], b"datagram");
                back = To::back(wc, &buf, index);
            }
        });
    }
    assert_eq!(source, one.qpn());
    assert_eq!(back.expect("a header").gid, own);
}

#[test]
fn a_shared_queue_feeds_several() {
    let Some(context) = kernels() else { return };
    let pd = Pd::new(&context).expect("a domain");
    let buffers = Buffers::new(&pd, 16, 256).expect("buffers");
    let mut cq = Cq::new(&context, CqOptions::new(32)).expect("a completion queue");
    let mut srq = Srq::new(&pd, &SrqOptions::new(8)).expect("a shared queue");
    let (index, own) = gid(&context);
    let path = To { hop_limit: 1, ..To::new(own, index) };
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let options = QpOptions::new(QpKind::Rc).depth(4, 4).inline(32);
        let mut one = Qp::new(&pd, &cq, &cq, &options).expect("a queue pair");
        let mut two = Qp::with_srq(&pd, &cq, &cq, &srq, &options).expect("a queue pair");
        one.init(1, Access::empty()).expect("INIT");
        two.init(1, Access::empty()).expect("INIT");
        one.connect(&Connection::new(path, two.qpn())).expect("connected");
        two.connect(&Connection::new(path, one.qpn())).expect("connected");
        pairs.push((one, two));
    }
    let mut receives = srq.receives();
    for id in 0..4 {
        receives.piece(id, buffers.take().expect("a buffer"));
    }
    assert_eq!(receives.ring(), Ok(4));
    for (one, _) in &mut pairs {
        let mut batch = one.batch();
        batch.send(10).inline(b"shared").signalled();
        batch.send(11).inline(b"twice").signalled();
        assert_eq!(batch.ring(), Ok(2));
    }
    let done = wait(&mut cq, 8);
    let received: Vec<&[u8]> = done.iter().filter(|done| done.id < 4).map(|done| &done.data[..]).collect();
    assert_eq!(received.iter().filter(|data| **data == b"shared").count(), 2, "{done:?}");
    assert_eq!(received.iter().filter(|data| **data == b"twice").count(), 2, "{done:?}");
}

/// The kernel keeps the table of GIDs by the addresses of the interface.
#[test]
fn an_interfaces_new_address_is_an_event_and_a_gid() {
    let Some((device, context)) = device() else { return };
    let netdev = device.netdevs.first().expect("the interface of the device");
    let gid = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1];
    for (change, there) in [("add", true), ("del", false)] {
        // What was before is none of this test's.
        while context.next_event().expect("events").is_some() {}
        let status = Command::new("ip")
            .args(["address", change, "10.77.0.1/24", "dev", netdev])
            .status()
            .expect("the program ip");
        assert!(status.success(), "ip address {change}: {status}");
        let end = Instant::now() + patient(Duration::from_secs(10));
        loop {
            assert!(Instant::now() < end, "no event of the table of GIDs after {change}");
            match context.next_event().expect("events") {
                Some(event) if event.kind == AsyncKind::GID_CHANGE => {
                    assert_eq!(event.element, Element::Port(1));
                    break;
                }
                Some(_) => {}
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        let has = || context.gids().expect("GIDs").iter().any(|known| known.gid == gid);
        while has() != there {
            assert!(Instant::now() < end, "after {change}: {:?}", context.gids());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_forgotten_list_posts_nothing() {
    let Some(context) = kernels() else { return };
    let pd = Pd::new(&context).expect("a domain");
    let buffers = Buffers::new(&pd, 8, 256).expect("buffers");
    let cq = Cq::new(&context, CqOptions::new(16)).expect("a queue");
    let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc).depth(4, 4)).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    let take = || buffers.take().expect("a buffer");
    let mut receives = qp.receives().expect("its own");
    receives.piece(1, take()).piece(2, take());
    std::mem::forget(receives);
    let mut receives = qp.receives().expect("its own");
    receives.piece(3, take());
    assert_eq!(receives.ring(), Ok(1));
    assert_eq!(buffers.available(), buffers.count() - 1, "no doorbell told of the first two");
    // One that is dropped.
    let mut dropped = qp.receives().expect("its own");
    dropped.piece(4, take());
    drop(dropped);
    assert_eq!(buffers.available(), buffers.count() - 1);
}

#[test]
fn what_was_posted_comes_home_with_the_queue() {
    let Some(context) = kernels() else { return };
    let Ends { one, mut two, mut cq, buffers, .. } = connected(&context, QpKind::Rc);
    let mut receives = two.receives().expect("a ring of its own");
    for id in 0..5 {
        receives.piece(id, buffers.take().expect("a buffer"));
    }
    assert_eq!(receives.ring(), Ok(5));
    let mut refused = two.receives().expect("a ring of its own");
    for id in 0..64 {
        let Some(buf) = buffers.take() else { break };
        refused.piece(id, buf);
    }
    refused.ring().expect_err("more than fit");
    assert_eq!(buffers.available(), buffers.count() - 5);
    drop((one, two));
    // The completion queue might still tell of them.
    assert_eq!(cq.poll(8, |_| {}), 0);
    assert_eq!(buffers.available(), buffers.count());
}

mod rxe {
    use super::*;

    const NEWER: DeviceCaps =
        DeviceCaps::ATOMIC_WRITE.union(DeviceCaps::FLUSH_GLOBAL).union(DeviceCaps::FLUSH_PERSISTENT);

    /// The device, if its kernel has atomic writes and flushes; one before Linux 6.2 refuses them, as is seen to here.
    fn newer() -> Option<Context> {
        let (_, context) = device_of(Need::Rxe)?;
        let told = context.device().expect("attributes").device_cap_flags_ex;
        if DeviceCaps::from_bits_retain(told).contains(NEWER) {
            return Some(context);
        }
        let Ends { mut one, .. } = connected(&context, QpKind::Rc);
        let mut batch = one.batch();
        batch.atomic_write(1, 0, 0, 1);
        assert_eq!(batch.ring(), Err(PostError::Device { operation: "atomic write" }));
        let mut batch = one.batch();
        batch.flush(1, 0, 0, 1, Placement::GLOBAL, Selectivity::Range);
        assert_eq!(batch.ring(), Err(PostError::Device { operation: "flush" }));
        None
    }

    const RIGHTS: Access = Access::REMOTE_WRITE.union(Access::FLUSH_GLOBAL);

    #[test]
    fn memory_is_written_at_once_and_flushed() {
        let Some(context) = newer() else { return };
        let Ends { mut one, two, mut cq, buffers, pd } = connected_with(&context, QpKind::Rc, RIGHTS);
        let far = Mr::allocate(&pd, 8192, Access::LOCAL_WRITE | RIGHTS).expect("a region");
        let (address, key) = (far.address(), far.rkey());
        let (global, value) = (Placement::GLOBAL, 0x0102_0304_0506_0708_u64);
        // More than one to wait for another, a range of several packets' length, and a region without a range.
        let mut batch = one.batch();
        batch.write(1, address + 100, key).piece(buffers.filled(&[9; 3000]).expect("a buffer"));
        batch.atomic_write(2, address + 8, key, value).signalled();
        batch.flush(3, address, key, 8192, global, Selectivity::Range).signalled();
        batch.flush(4, 0, key, 0, global, Selectivity::Region).signalled();
        batch.atomic_write(5, address + 16, key, !value).fenced().signalled();
        assert_eq!(batch.ring(), Ok(5));
        let done = wait(&mut cq, 4);
        let told: Vec<_> = done.iter().map(|done| (done.id, done.status, done.opcode)).collect();
        assert_eq!(
            told,
            [
                (2, WcStatus::SUCCESS, WcOpcode::ATOMIC_WRITE),
                (3, WcStatus::SUCCESS, WcOpcode::FLUSH),
                (4, WcStatus::SUCCESS, WcOpcode::FLUSH),
                (5, WcStatus::SUCCESS, WcOpcode::ATOMIC_WRITE),
            ]
        );
        assert_eq!((far.load64(8), far.load64(16)), (value, !value));
        let mut seen = [0; 3000];
        far.read(100, &mut seen);
        assert_eq!(seen, [9; 3000]);
        // What they take no part of is refused here.
        for with_data in [true, false] {
            let mut batch = one.batch();
            batch.atomic_write(6, address, key, 1);
            if with_data {
                batch.piece(buffers.filled(&[1; 8]).expect("a buffer"));
            } else {
                batch.imm(1);
            }
            assert!(matches!(batch.ring(), Err(PostError::Incomplete(_))));
            let mut batch = one.batch();
            batch.flush(6, address, key, 8, global, Selectivity::Range).inline(&[1; 8]);
            assert!(matches!(batch.ring(), Err(PostError::Incomplete(_))));
        }
        assert_eq!(far.load64(8), value);
        drop((one, two));
        assert_eq!(buffers.available(), buffers.count());
    }

    /// What comes of one request to a region with these rights.
    fn refused(
        context: &Context,
        rights: Access,
        request: impl FnOnce(&mut pollux_verbs::Batch<'_>, &Mr),
    ) -> WcStatus {
        let Ends { mut one, two: _two, mut cq, pd, .. } = connected_with(context, QpKind::Rc, RIGHTS);
        let far = Mr::allocate(&pd, 4096, Access::LOCAL_WRITE | rights).expect("a region");
        let mut batch = one.batch();
        request(&mut batch, &far);
        batch.signalled();
        assert_eq!(batch.ring(), Ok(1));
        let status = wait(&mut cq, 1)[0].status;
        assert_eq!((far.load64(0), far.load64(8)), (0, 0));
        status
    }

    #[test]
    fn what_a_peer_does_not_grant_is_neither_written_nor_flushed() {
        let Some(context) = newer() else { return };
        let (global, range) = (Placement::GLOBAL, Selectivity::Range);
        let flush = |bytes, placement| {
            move |batch: &mut pollux_verbs::Batch<'_>, far: &Mr| {
                batch.flush(1, far.address(), far.rkey(), bytes, placement, range);
            }
        };
        // Beyond the region, without the region's right, and without the queue pair's.
        assert_eq!(refused(&context, RIGHTS, flush(4097, global)), WcStatus::REM_ACCESS_ERR);
        assert_eq!(refused(&context, Access::REMOTE_WRITE, flush(64, global)), WcStatus::REM_ACCESS_ERR);
        let persistent = refused(&context, RIGHTS, flush(64, Placement::PERSISTENT));
        assert_eq!(persistent, WcStatus::REM_INV_REQ_ERR);
        let write = |offset: u64| {
            move |batch: &mut pollux_verbs::Batch<'_>, far: &Mr| {
                batch.atomic_write(1, far.address() + offset, far.rkey(), u64::MAX);
            }
        };
        assert_eq!(refused(&context, Access::FLUSH_GLOBAL, write(0)), WcStatus::REM_ACCESS_ERR);
        assert_eq!(refused(&context, RIGHTS, write(4096)), WcStatus::REM_ACCESS_ERR);
        let across = refused(&context, RIGHTS, write(4));
        assert!([WcStatus::REM_OP_ERR, WcStatus::REM_INV_REQ_ERR].contains(&across), "{across:?}");
        // Memory that a loss of power empties is none to be flushed for good.
        let pd = Pd::new(&context).expect("a domain");
        let error = Mr::allocate(&pd, 4096, Access::LOCAL_WRITE | Access::FLUSH_PERSISTENT);
        assert_eq!(error.expect_err("no persistent memory").errno(), Some(Errno::EINVAL));
        // Connections without acknowledgements have neither.
        let Ends { mut one, .. } = connected(&context, QpKind::Uc);
        let mut batch = one.batch();
        batch.atomic_write(1, 0, 0, 1);
        assert_eq!(batch.ring(), Err(PostError::Operation { kind: QpKind::Uc, operation: "atomic write" }));
        let mut batch = one.batch();
        batch.flush(1, 0, 0, 8, global, range);
        assert_eq!(batch.ring(), Err(PostError::Operation { kind: QpKind::Uc, operation: "flush" }));
    }

    #[test]
    fn what_rxe_has_not_is_refused() {
        let Some((device, context)) = device_of(Need::Rxe) else { return };
        let file = tempfile::tempfile().expect("a file");
        assert!(Xrcd::of_file(&context, file.as_fd()).is_err(), "a domain of XRC");
        assert!(
            matches!(Dm::new(&context, 256, 6), Err(VerbsError::Unsupported { .. })),
            "memory of its own"
        );
        let file = device.open().expect("the file");
        let copy = file.fd().try_clone_to_owned().expect("a descriptor");
        let _first = Context::open(file, Provider::Rxe, Options::default()).expect("a context");
        let copy = Arc::new(KernelFile::adopt(copy).expect("a device's file"));
        let second = Context::import(copy, Provider::Rxe, Options::default());
        assert!(matches!(second, Err(VerbsError::Unsupported { .. })), "another process's context");
    }
}
