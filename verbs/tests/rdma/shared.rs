//! Shared receive queues, XRC and groups.

use std::os::fd::AsFd;

use pollux_verbs::{
    Ah, AsyncKind, Buffers, Connection, Context, Cq, CqOptions, Element, Options, Path, Pd, Provider, Qp,
    QpAttributes, QpKind, QpOptions, QpState, Srq, SrqOptions, VerbsError, WcStatus, Xrcd,
};

use crate::rig::{QKEY, Rig, all_rights};

#[test]
fn two_queue_pairs_receive_through_one_queue() {
    let rig = Rig::stepped();
    let mut srq = Srq::new(&rig.far.pd, &SrqOptions::new(16)).expect("a shared queue");
    let mut cq = rig.far.cq(64);
    let all = rig.far.buffers.available();
    let mut pairs: Vec<_> = (0..2)
        .map(|_| {
            let mut near = rig.near.end(&QpOptions::new(QpKind::Rc).inline(64));
            let mut far =
                Qp::with_srq(&rig.far.pd, &cq, &cq, &srq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
            far.init(1, all_rights()).expect("INIT");
            near.qp.connect(&Connection::new(Path::new(rig.far.gid, 0), far.qpn())).expect("RTS");
            far.connect(&Connection::new(Path::new(rig.near.gid, 0), near.qp.qpn())).expect("RTS");
            (near, far)
        })
        .collect();
    // Several times round the ring, with receives that come back in another order than they were posted in.
    let mut held = Vec::new();
    for round in 0..12_u64 {
        let mut receives = srq.receives();
        for id in 0..6 {
            receives.piece(round * 10 + id, rig.far.buffers.take().expect("a buffer"));
        }
        assert_eq!(receives.ring(), Ok(6));
        for (which, (near, _)) in pairs.iter_mut().enumerate() {
            let mut batch = near.qp.batch();
            for number in 0..3_u8 {
                batch.send(1).inline(&[which as u8, number, round as u8]);
            }
            batch.signalled();
            batch.ring().expect("posted");
        }
        for (near, _) in &mut pairs {
            assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
        }
        let got = rig.completions(&mut cq, 6);
        for (which, (_, far)) in pairs.iter().enumerate() {
            let of: Vec<_> =
                got.iter().filter(|done| done.qpn == far.qpn()).map(|done| done.data()).collect();
            let expected: Vec<_> = (0..3).map(|number| vec![which as u8, number, round as u8]).collect();
            assert_eq!(of, expected, "round {round}");
        }
        held = got;
    }
    drop(held);
    assert_eq!(rig.far.buffers.available(), all);
    rig.is_clean();
}

#[test]
fn a_shared_queue_that_runs_low_is_an_event_and_a_full_one_refuses() {
    let rig = Rig::stepped();
    let side = &rig.far;
    let mut srq = Srq::new(&side.pd, &SrqOptions::new(7)).expect("a shared queue");
    let (room, _) = srq.sizes();
    let mut receives = srq.receives();
    for id in 0..u64::from(room) {
        receives.piece(id, side.buffers.take().expect("a buffer"));
    }
    assert_eq!(receives.ring(), Ok(room));
    let mut receives = srq.receives();
    receives.piece(99, side.buffers.take().expect("a buffer"));
    assert_eq!(receives.ring(), Err(pollux_verbs::PostError::Full));
    srq.set_limit(room - 1).expect("a limit");
    assert_eq!(srq.query().expect("values").srq_limit, room - 1);
    let mut cq = side.cq(64);
    let mut near = rig.near.end(&QpOptions::new(QpKind::Rc).inline(64));
    let mut far = Qp::with_srq(&side.pd, &cq, &cq, &srq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    far.init(1, all_rights()).expect("INIT");
    near.qp.connect(&Connection::new(Path::new(side.gid, 0), far.qpn())).expect("RTS");
    far.connect(&Connection::new(Path::new(rig.near.gid, 0), near.qp.qpn())).expect("RTS");
    let mut batch = near.qp.batch();
    (0..2).for_each(|id| {
        batch.send(id).inline(b"x");
    });
    batch.signalled();
    batch.ring().expect("posted");
    rig.completions(&mut near.cq, 1);
    rig.completions(&mut cq, 2);
    let mut told = Vec::new();
    rig.until("event", || {
        told.extend(side.context.next_event().expect("readable"));
        told.iter().any(|event| event.kind == AsyncKind::SRQ_LIMIT_REACHED)
    });
    assert!(told.iter().any(|event| event.element == Element::Srq(srq.id())), "{told:?}");
    rig.is_clean();
}

#[test]
fn an_aborted_list_of_a_shared_queue_comes_back() {
    let rig = Rig::stepped();
    let side = &rig.far;
    let mut srq =
        Srq::new(&side.pd, &SrqOptions { pieces: 2, ..SrqOptions::new(7) }).expect("a shared queue");
    let all = side.buffers.available();
    for _ in 0..3 {
        let mut receives = srq.receives();
        receives.pieces(1, [side.buffers.take().expect("a buffer"), side.buffers.take().expect("a buffer")]);
        receives.piece(2, side.buffers.take().expect("a buffer"));
        assert_eq!(receives.abort().len(), 3);
        let (_, pieces) = srq.sizes();
        let mut receives = srq.receives();
        receives.pieces(3, (0..=pieces).map(|_| side.buffers.take().expect("a buffer")));
        assert!(receives.ring().is_err());
        assert_eq!(side.buffers.available(), all);
    }
    drop(srq);
    assert_eq!(side.buffers.available(), all);
    rig.is_clean();
}

#[test]
fn xrc_requests_name_the_queue_that_takes_them() {
    let rig = Rig::stepped();
    let (near, far) = (&rig.near, &rig.far);
    let xrcd = Xrcd::new(&far.context).expect("a domain");
    let mut cq = far.cq(64);
    let mut queues: Vec<_> =
        (0..2).map(|_| Srq::xrc(&far.pd, &xrcd, &cq, &SrqOptions::new(8)).expect("a shared queue")).collect();
    let mut receiver = Qp::xrc_receiver(&xrcd).expect("a receiver");
    receiver.init(1, all_rights()).expect("INIT");
    let mut send_cq = near.cq(64);
    let options = QpOptions::new(QpKind::XrcSend).inline(64);
    let mut sender = Qp::new(&near.pd, &send_cq, &send_cq, &options).expect("a sender");
    sender.init(1, all_rights()).expect("INIT");
    sender.connect(&Connection::new(Path::new(far.gid, 0), receiver.qpn())).expect("RTS");
    receiver.connect(&Connection::new(Path::new(near.gid, 0), sender.qpn())).expect("RTS");
    for (number, srq) in queues.iter_mut().enumerate() {
        let mut receives = srq.receives();
        receives.piece(number as u64, far.buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
    }
    for number in [1, 0] {
        let mut batch = sender.batch();
        batch.send(7).to_srq(queues[number].number()).inline(&[number as u8; 5]).signalled();
        batch.ring().expect("posted");
        assert_eq!(rig.completions(&mut send_cq, 1)[0].status, WcStatus::SUCCESS);
        let got = rig.completions(&mut cq, 1).remove(0);
        assert_eq!((got.id, got.data()), (number as u64, vec![number as u8; 5]));
    }
    let mut batch = sender.batch();
    batch.send(8).inline(b"to whom?");
    assert!(batch.ring().is_err());
    rig.is_clean();
}

/// Two contexts of one card, as two processes that share a domain by its file.
#[test]
fn a_receiver_of_xrc_is_opened_by_its_number() {
    let rig = Rig::stepped();
    let (near, far) = (&rig.near, &rig.far);
    let file = tempfile::tempfile().expect("a file");
    let own = Xrcd::of_file(&far.context, file.as_fd()).expect("a domain");
    let mut receiver = Qp::xrc_receiver(&own).expect("a receiver");
    receiver.init(1, all_rights()).expect("INIT");
    let qpn = receiver.qpn();
    // The other process: its own context, its own queues.
    let other = Context::open(far.model.open(), Provider::Mlx5, Options::default()).expect("a context");
    let (pd, shared) =
        (Pd::new(&other).expect("a domain"), Xrcd::of_file(&other, file.as_fd()).expect("the same"));
    let buffers = Buffers::new(&pd, 4, 64).expect("buffers");
    let mut cq = Cq::new(&other, CqOptions::new(64)).expect("a queue");
    let mut srq = Srq::xrc(&pd, &shared, &cq, &SrqOptions::new(8)).expect("a shared queue");
    let mut receives = srq.receives();
    receives.piece(5, buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    assert!(Qp::open(&shared, qpn ^ 1).is_err(), "there is none");
    let opened = Qp::open(&shared, qpn).expect("opened");
    assert_eq!(opened.qpn(), qpn);
    assert_eq!(QpState(opened.query().expect("values").qp_state), QpState::INIT);

    let mut send_cq = near.cq(64);
    let mut sender =
        Qp::new(&near.pd, &send_cq, &send_cq, &QpOptions::new(QpKind::XrcSend).inline(64)).expect("a sender");
    sender.init(1, all_rights()).expect("INIT");
    sender.connect(&Connection::new(Path::new(far.gid, 0), qpn)).expect("RTS");
    // Either may take it on; what only one of them did holds for both.
    receiver.ready_to_receive(&Connection::new(Path::new(near.gid, 0), sender.qpn())).expect("RTR");
    let to_sends = QpAttributes { sq_psn: Some(0), timeout: Some(14), ..QpAttributes::state(QpState::RTS) };
    opened.modify(&to_sends).expect("RTS");
    let error = opened.modify(&QpAttributes::state(QpState::INIT)).expect_err("not from there");
    assert!(matches!(error, VerbsError::Transition { from: QpState::RTS, .. }), "{error}");
    // Who made it leaves.
    drop((receiver, own));
    let mut batch = sender.batch();
    batch.send(7).to_srq(srq.number()).inline(b"to the other").signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut send_cq, 1)[0].status, WcStatus::SUCCESS);
    let got = rig.completions(&mut cq, 1).remove(0);
    assert_eq!((got.id, got.data()), (5, b"to the other".to_vec()));
    drop(opened);
    assert!(Qp::open(&shared, qpn).is_err(), "the last has left");
    rig.is_clean();
}

#[test]
fn a_group_hears_what_is_sent_to_it() {
    let rig = Rig::stepped();
    let options = QpOptions::new(QpKind::Ud).inline(64);
    let (mut near, mut far) = rig.pair(&options);
    let group = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3];
    far.qp.attach_multicast(group, 0).expect("a member");
    let mut receives = far.qp.receives().expect("its own");
    receives.piece(1, rig.far.buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    let ah = Ah::new(&rig.near.pd, &Path::new(group, 0)).expect("an address");
    let mut batch = near.qp.batch();
    batch.send(2).to(&ah, 0xff_ffff, QKEY).inline(b"to all").signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
    let got = rig.completions(&mut far.cq, 1).remove(0);
    assert_eq!(got.data()[40..], *b"to all");
    far.qp.detach_multicast(group, 0).expect("a member no more");
    assert!(far.qp.detach_multicast(group, 0).is_err());
    rig.is_clean();
}
