//! Objects: made, asked, changed, destroyed in every order.

use pollux_verbs::{
    Access, AsyncKind, CompletionChannel, Connection, Cq, CqOptions, Dm, Element, Mr, Mw, MwType, Path, Pd,
    Qp, QpAttributes, QpKind, QpOptions, QpState, Srq, SrqOptions, VerbsError, WcStatus, Xrcd,
};

use crate::rig::{Rig, all_rights, connect};

#[test]
fn a_device_tells_what_it_is() {
    let rig = Rig::stepped();
    let context = &rig.near.context;
    let device = context.device().expect("attributes");
    assert!(device.base.max_qp > 0 && device.base.max_sge > 0 && device.base.phys_port_cnt == 1);
    let port = context.port(1).expect("a port").legacy_resp;
    assert_eq!(pollux_verbs::event::port_state_str(port.state), "active");
    assert!(context.port(9).is_err());
    assert_eq!(context.port_speed_mbps(1).expect("a speed"), Some(100_000));
    assert!(context.port_speed_mbps(9).is_err());
    rig.near.model.device().set_link(false);
    assert_eq!(context.port_speed_mbps(1).expect("a speed"), Some(0), "while it is down");
    rig.near.model.device().set_link(true);
    let gids = context.gids().expect("a table");
    assert!(gids.iter().any(|gid| gid.index == 0 && gid.gid[..2] == [0xfe, 0x80]), "{gids:?}");
    assert_eq!(context.gid(1, 0).expect("an entry").expect("not empty").gid, gids[0].gid);
    assert_eq!(context.pkey(1, 0).expect("the default"), 0xffff);
    let error = context.pkey(1, 1000).expect_err("too far");
    assert!(error.to_string().starts_with("partition key index 1000"), "{error}");
    assert!(context.clock().expect("a clock").read().expect("a time").hz > 0);
}

#[test]
fn queue_pairs_of_every_transport_go_through_their_states() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let cq = side.cq(64);
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud, QpKind::Raw] {
        let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(kind)).expect("a queue pair");
        let state = |qp: &Qp| QpState(qp.query().expect("values").qp_state);
        assert_eq!((qp.state(), state(&qp)), (QpState::RESET, QpState::RESET), "{kind}");
        let early = qp.modify(&QpAttributes::state(QpState::RTS)).expect_err("not from RESET");
        assert!(matches!(early, VerbsError::Transition { .. }), "{kind}: {early}");
        qp.init(1, all_rights()).expect("INIT");
        assert_eq!(state(&qp), QpState::INIT, "{kind}");
        let connection = Connection::new(Path::new(rig.far.gid, 0), 0x1234);
        qp.ready_to_receive(&connection).expect("RTR");
        assert_eq!(state(&qp), QpState::RTR, "{kind}");
        qp.ready_to_send(&connection).expect("RTS");
        assert_eq!((qp.state(), state(&qp)), (QpState::RTS, QpState::RTS), "{kind}");
        qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
        assert_eq!(state(&qp), QpState::ERR, "{kind}");
        qp.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
        qp.init(1, Access::empty()).expect("INIT again");
        assert_eq!(state(&qp), QpState::INIT, "{kind}");
    }
}

#[test]
fn sizes_beyond_the_device_are_refused_in_one_line() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let cq = side.cq(64);
    for (options, words) in [
        (QpOptions::new(QpKind::Rc).depth(1 << 20, 1), "sends"),
        (QpOptions::new(QpKind::Rc).depth(1, 1 << 20), "receive queue depth"),
        (QpOptions::new(QpKind::Rc).inline(5000), "inline bytes"),
        (QpOptions::new(QpKind::Rc).pieces(100, 1), "SGEs"),
    ] {
        let error = Qp::new(&side.pd, &cq, &cq, &options).expect_err("too much").to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
    let error = Cq::new(&side.context, CqOptions::new(u32::MAX)).expect_err("too much").to_string();
    assert!(error.contains("entries; the device allows"), "{error}");
    let error = Srq::new(&side.pd, &SrqOptions::new(0)).expect_err("nothing").to_string();
    assert!(error.contains("depth 0; "), "{error}");
}

#[test]
fn whatever_is_dropped_first_children_are_destroyed_before_parents() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let before = side.next_handles();
    let cq = side.cq(64);
    let pd = Pd::new(&side.context).expect("a domain");
    let srq = Srq::new(&pd, &SrqOptions::new(8)).expect("a shared queue");
    let xrcd = Xrcd::new(&side.context).expect("a domain");
    let receiver = Qp::xrc_receiver(&xrcd).expect("a receiver");
    let xsrq = Srq::xrc(&pd, &xrcd, &cq, &SrqOptions::new(8)).expect("a shared queue of XRC");
    let qp = Qp::with_srq(&pd, &cq, &cq, &srq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    let sender = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::XrcSend)).expect("a sender");
    let mr = Mr::allocate(&pd, 4096, all_rights()).expect("memory");
    assert_ne!(xsrq.number(), 0);
    drop((cq, srq, xrcd, pd));
    drop(mr);
    drop(xsrq);
    drop((qp, sender, receiver));
    assert_eq!(side.next_handles(), before, "the kernel refused to destroy none");
    rig.is_clean();
}

#[test]
fn regions_change_rights_and_memory_while_nobody_has_them() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let mut mr = Mr::allocate(&side.pd, 8192, Access::LOCAL_WRITE).expect("memory");
    mr.write(5, b"kept");
    mr.reregister(Some(all_rights()), None).expect("other rights");
    assert_eq!(mr.access(), all_rights());
    let other = mr.clone();
    let error = mr.reregister(Some(Access::LOCAL_WRITE), None).expect_err("another handle has it");
    assert!(matches!(error, VerbsError::InUse { .. }), "{error}");
    drop(other);
    let zone = side.context.reserve(4096).expect("memory");
    let before = mr.replace(zone).expect("other memory");
    let mut seen = [0; 4];
    before.copy_out(5, &mut seen);
    assert_eq!((&seen, mr.bytes()), (b"kept", 4096));
    let another = Pd::new(&side.context).expect("a domain");
    mr.reregister(None, Some(&another)).expect("another domain");
    assert!(mr.pd().is(&another));
    let zone = mr.deregister().expect("nobody has it").expect("host memory");
    assert_eq!(zone.bytes(), 4096);
}

#[test]
fn a_region_keeps_its_keys_when_its_rights_change() {
    let rig = Rig::stepped();
    let mut mr = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let (address, keys) = (mr.address(), (mr.lkey(), mr.rkey()));
    let another = Pd::new(&rig.far.context).expect("a domain");
    let read_only = Access::LOCAL_WRITE | Access::REMOTE_READ;
    // What its peer writes fails where the rights, or the domain, do not go with the queue pair.
    for (access, pd, status) in [
        (None, None, WcStatus::SUCCESS),
        (Some(read_only), None, WcStatus::REM_ACCESS_ERR),
        (Some(all_rights()), None, WcStatus::SUCCESS),
        (None, Some(&another), WcStatus::REM_ACCESS_ERR),
        (None, Some(&rig.far.pd), WcStatus::SUCCESS),
    ] {
        if access.is_some() || pd.is_some() {
            mr.reregister(access, pd).expect("nobody has it");
        }
        assert_eq!((mr.lkey(), mr.rkey()), keys, "{access:?}");
        let (mut near, _far) = rig.pair(&QpOptions::new(QpKind::Rc).inline(64));
        let mut batch = near.qp.batch();
        batch.write(1, address, keys.1).inline(b"written").signalled();
        batch.ring().expect("posted");
        assert_eq!(rig.completions(&mut near.cq, 1)[0].status, status, "{access:?}");
    }
}

#[test]
fn a_region_keeps_its_keys_when_its_memory_changes() {
    let rig = Rig::stepped();
    let mut mr = Mr::allocate(&rig.far.pd, 8192, all_rights()).expect("memory");
    let keys = (mr.lkey(), mr.rkey());
    let before = mr.replace(rig.far.context.reserve(4096).expect("memory")).expect("other memory");
    assert_eq!((mr.lkey(), mr.rkey()), keys);
    // What a peer writes is there, and what was there before stays as it was; past the end is nothing.
    for (at, status) in [(100, WcStatus::SUCCESS), (4092, WcStatus::REM_ACCESS_ERR)] {
        let (mut near, _far) = rig.pair(&QpOptions::new(QpKind::Rc).inline(64));
        let mut batch = near.qp.batch();
        batch.write(1, mr.address() + at, keys.1).inline(b"written").signalled();
        batch.ring().expect("posted");
        assert_eq!(rig.completions(&mut near.cq, 1)[0].status, status);
    }
    let (mut seen, mut old) = ([0; 7], [0; 7]);
    mr.read(100, &mut seen);
    before.copy_out(100, &mut old);
    assert_eq!((&seen, old), (b"written", [0; 7]));
}

#[test]
fn regions_are_read_and_written_by_copies() {
    let rig = Rig::stepped();
    let mr = Mr::allocate(&rig.near.pd, 4096, all_rights()).expect("memory");
    let bytes: Vec<u8> = (0..200).collect();
    mr.write(3, &bytes);
    let mut seen = vec![0; 200];
    mr.read(3, &mut seen);
    assert_eq!(seen, bytes);
    mr.store64(64, 0x0102_0304_0506_0708);
    assert_eq!(mr.load64(64), 0x0102_0304_0506_0708);
    assert_eq!(mr.load8(64), 8);
    assert_ne!(mr.address(), 0);
    let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| mr.read(4095, &mut [0; 2])));
    assert!(outside.is_err());
}

#[test]
fn a_queue_that_has_something_says_so_on_its_channel() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let channel = CompletionChannel::new(&side.context).expect("a channel");
    let mut cq = Cq::new(&side.context, CqOptions::new(64).channel(&channel)).expect("a queue");
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    cq.moderate(1, 0).expect("as before");
    cq.notify(false).expect("armed");
    assert_eq!(channel.next().expect("readable"), None);
    let mut receives = qp.receives().expect("its own");
    receives.piece(1, side.buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
    let mut told = None;
    rig.until("event", || {
        told = channel.next().expect("readable");
        told.is_some()
    });
    assert_eq!(told, Some(cq.id()));
    cq.event_taken();
    let done = rig.completions(&mut cq, 1);
    assert_eq!((done[0].id, done[0].status, done[0].pieces.len()), (1, WcStatus::WR_FLUSH_ERR, 1));
    let error = side.cq(4).notify(false).expect_err("no channel");
    assert!(matches!(error, VerbsError::Unsupported { .. }), "{error}");
}

#[test]
fn an_event_comes_for_messages_that_ask_for_one() {
    let rig = Rig::stepped();
    let channel = CompletionChannel::new(&rig.far.context).expect("a channel");
    let options = QpOptions::new(QpKind::Rc);
    let mut near = rig.near.end(&options);
    let mut far = rig.far.end_with(CqOptions::new(64).channel(&channel), &options);
    connect(&mut near, &mut far);
    let mut receives = far.qp.receives().expect("its own");
    for id in 0..2 {
        receives.piece(id, rig.far.buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
    far.cq.notify(true).expect("armed");
    for solicited in [false, true] {
        let mut batch = near.qp.batch();
        batch.send(1).piece(rig.near.buffers.filled(b"message").expect("a buffer")).signalled();
        if solicited {
            batch.solicited();
        }
        assert_eq!(batch.ring(), Ok(1));
        assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
        let told = channel.next().expect("readable");
        assert_eq!(told, solicited.then(|| far.cq.id()), "solicited: {solicited}");
    }
    far.cq.event_taken();
    let done = rig.completions(&mut far.cq, 2);
    assert_eq!(done.iter().map(|done| done.status).collect::<Vec<_>>(), [WcStatus::SUCCESS; 2]);
}

#[test]
fn a_link_that_goes_down_is_an_event() {
    let rig = Rig::stepped();
    let side = &rig.near;
    while side.context.next_event().expect("readable").is_some() {}
    rig.turn();
    while side.context.next_event().expect("readable").is_some() {}
    side.model.device().set_link(false);
    let mut seen = None;
    rig.until("event", || {
        seen = side.context.next_event().expect("readable");
        seen.is_some()
    });
    let event = seen.expect("an event");
    assert_eq!((event.kind, event.element), (AsyncKind::PORT_ERR, Element::Port(1)));
    assert_eq!(pollux_verbs::event::event_str(event.kind), "port error");
}

#[test]
fn windows_and_device_memory_come_and_go() {
    let rig = Rig::stepped();
    let side = &rig.near;
    for kind in [MwType::Type1, MwType::Type2] {
        let window = Mw::new(&side.pd, kind).expect("a window");
        assert_ne!(window.rkey(), 0);
    }
    let dm = match Dm::new(&side.context, 256, 6) {
        Ok(dm) => dm,
        Err(error) => panic!("device memory: {error}"),
    };
    dm.write(8, &[1, 2, 3, 4, 5, 6, 7, 8]).expect("inside");
    let mut seen = [0; 8];
    dm.read(8, &mut seen).expect("inside");
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(dm.write(254, &[0; 4]).is_err() && dm.write(1, &[0; 4]).is_err());
    // There is nothing behind a model that other devices could reach; it says so as a kernel does that is built without it.
    let error = dm.export().expect_err("no peer-to-peer").to_string();
    assert!(
        error.starts_with("dma-buf of device memory: it takes Linux 7.0") && error.contains("EOPNOTSUPP"),
        "{error}"
    );
    let mr = Mr::of_device(&side.pd, &dm, 0..256, Access::LOCAL_WRITE).expect("a region of it");
    drop(dm);
    drop(mr);
}

#[test]
fn a_completion_queue_grows_with_what_it_holds() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let mut cq = side.cq(15);
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    let mut receives = qp.receives().expect("its own");
    for id in 0..30 {
        receives.piece(id, side.buffers.take().expect("a buffer"));
    }
    // 12 come before, and the rest after.
    drop(receives);
    let mut receives = qp.receives().expect("its own");
    for id in 0..12 {
        receives.piece(id, side.buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
    qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
    for _ in 0..50 {
        rig.turn();
    }
    let seen = {
        let mut seen = Vec::new();
        cq.poll(5, |wc| seen.push(wc.id()));
        seen
    };
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    cq.resize(63).expect("larger");
    assert_eq!(cq.entries(), 63);
    let mut receives = qp.receives().expect("its own");
    for id in 12..42 {
        receives.piece(id, side.buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
    let done = rig.completions(&mut cq, 37);
    assert_eq!(done.iter().map(|done| done.id).collect::<Vec<_>>(), (5..42).collect::<Vec<_>>());
    assert!(cq.resize(u32::MAX).is_err());
    rig.is_clean();
}

/// Asking who has an address takes seconds when nobody has it; other calls of the same context do not wait for that.
#[test]
fn a_question_on_the_wire_holds_nobody_up() {
    let rig = Rig::threaded();
    // The GID of the port's IPv4 address, and a neighbour that is not there.
    let own = rig.near.context.gid(1, 1).expect("a table").expect("an IPv4 address").gid;
    let mut nobody = own;
    nobody[15] ^= 0x55;
    let asking = std::thread::scope(|scope| {
        let pd = &rig.near.pd;
        let asked = scope.spawn(move || {
            let begun = std::time::Instant::now();
            let error = pollux_verbs::Ah::new(pd, &Path::new(nobody, 1)).expect_err("nobody answers");
            (error.errno(), begun.elapsed())
        });
        std::thread::sleep(std::time::Duration::from_millis(100));
        let begun = std::time::Instant::now();
        rig.near.context.device().expect("an answer");
        let took = begun.elapsed();
        let (errno, asking) = asked.join().expect("it ends");
        assert_eq!(errno, Some(pollux_verbs::Errno::ETIMEDOUT));
        assert!(took < asking / 2, "{took:?} of {asking:?}");
        asking
    });
    assert!(asking > std::time::Duration::from_secs(1), "{asking:?}");
}
