//! What goes wrong: at which end it is told, as what, and what becomes of the rest.

use pollux_mlx5_model::fault::FaultPlan;
use pollux_tests::log::logged;
use pollux_verbs::{
    Access, AsyncKind, Connection, Cq, CqOptions, DeviceCaps, Element, Errno, Mr, Path, Pd, Placement,
    PostError, Qp, QpAttributes, QpKind, QpOptions, QpState, Selectivity, WcStatus,
};

use crate::rig::{End, Rig, all_rights, connect, pattern};

fn options() -> QpOptions {
    QpOptions::new(QpKind::Rc).depth(32, 32).inline(64)
}

fn state(end: &End) -> QpState {
    QpState(end.qp.query().expect("values").qp_state)
}

#[test]
fn a_queue_pair_without_room_for_sends_takes_none() {
    let rig = Rig::stepped();
    // Its receives fill a page: there is nothing of its own behind them.
    let mut end = rig.near.end(&QpOptions::new(QpKind::Rc).depth(0, 256));
    let mut batch = end.qp.batch();
    batch.send(1).signalled();
    let why = batch.ring().expect_err("nothing is posted");
    assert!(matches!(why, PostError::Incomplete(text) if text.contains("without room for sends")), "{why}");
}

#[test]
fn memory_of_another_domain_is_refused_here() {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options());
    let elsewhere = Pd::new(&rig.near.context).expect("a domain");
    let mr = Mr::allocate(&elsewhere, 4096, all_rights()).expect("memory");
    let mut batch = near.qp.batch();
    batch.send(1).mr(&mr, 0..64).signalled();
    batch.send(2).inline(b"behind it");
    batch.ring().expect("posted");
    let done = rig.completions(&mut near.cq, 2);
    assert_eq!((done[0].id, done[0].status), (1, WcStatus::LOC_PROT_ERR), "{done:?}");
    assert_eq!((done[1].id, done[1].status), (2, WcStatus::WR_FLUSH_ERR), "{done:?}");
    assert_eq!(state(&near), QpState::ERR);
    drop(far);
}

#[test]
fn atomic_writes_and_flushes_are_on_no_card() {
    let rig = Rig::stepped();
    let told = rig.near.context.device().expect("attributes").device_cap_flags_ex;
    let newer = DeviceCaps::ATOMIC_WRITE | DeviceCaps::FLUSH_GLOBAL | DeviceCaps::FLUSH_PERSISTENT;
    assert!(!DeviceCaps::from_bits_retain(told).intersects(newer), "{told:#x}");
    // Nor is a region registered with such a right.
    for right in [Access::FLUSH_GLOBAL, Access::FLUSH_PERSISTENT] {
        let error = Mr::allocate(&rig.far.pd, 4096, all_rights() | right).expect_err("no such right");
        assert_eq!(error.errno(), Some(Errno::EOPNOTSUPP), "{error}");
    }
    let (mut near, far) = rig.pair(&options());
    let target = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let (address, key) = (target.address(), target.rkey());
    for operation in ["atomic write", "flush"] {
        let mut batch = near.qp.batch();
        batch.write(1, address, key).inline(&[1; 8]).signalled();
        if operation == "flush" {
            batch.flush(2, address, key, 64, Placement::GLOBAL, Selectivity::Range).signalled();
        } else {
            batch.atomic_write(2, address, key, 3).signalled();
        }
        batch.write(3, address, key).inline(&[2; 8]).signalled();
        let error = batch.ring().expect_err("no such operation");
        assert_eq!(error, PostError::Device { operation });
        assert!(error.to_string().contains(operation), "{error}");
    }
    // What is before is told first, and what says nothing is refused anywhere.
    let mut batch = near.qp.batch();
    batch.compare_swap(1, address, key, 1, 2).inline(&[0; 8]).atomic_write(2, address, key, 3);
    assert!(matches!(batch.ring(), Err(PostError::Incomplete(_))));
    for (bytes, placement) in [(64, Placement::empty()), (1 << 31 | 1, Placement::GLOBAL)] {
        let mut batch = near.qp.batch();
        batch.flush(1, address, key, bytes, placement, Selectivity::Range);
        assert!(matches!(batch.ring(), Err(PostError::Incomplete(text)) if text.contains("placement")));
    }
    for _ in 0..50 {
        rig.turn();
    }
    assert_eq!(near.cq.poll(8, |wc| panic!("{wc:?}")), 0);
    assert_eq!(target.load64(0), 0);
    drop(far);
}

/// A request that the peer refuses, and what both ends are told.
fn refused(rights: Access, request: impl FnOnce(&mut pollux_verbs::Batch<'_>, &Mr), status: WcStatus) {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options());
    let target = Mr::allocate(&rig.far.pd, 4096, rights).expect("memory");
    let mut batch = near.qp.batch();
    request(&mut batch, &target);
    batch.signalled();
    batch.ring().expect("posted");
    let done = rig.completions(&mut near.cq, 1);
    assert_eq!(done[0].status, status, "{done:?}");
    rig.until("state", || state(&far) == QpState::ERR);
    let mut seen = vec![0; 4096];
    target.read(0, &mut seen);
    assert!(seen.iter().all(|byte| *byte == 0), "nothing was written");
}

#[test]
fn keys_addresses_and_rights_that_do_not_fit_are_refused_there() {
    let write = |batch: &mut pollux_verbs::Batch<'_>, address: u64, rkey: u32| {
        batch.write(1, address, rkey).inline(&[7; 16]);
    };
    let denied = WcStatus::REM_ACCESS_ERR;
    refused(all_rights(), |batch, mr| write(batch, mr.address(), mr.rkey() ^ 0xff00), denied);
    refused(all_rights(), |batch, mr| write(batch, mr.address() + 4090, mr.rkey()), denied);
    refused(all_rights(), |batch, mr| write(batch, mr.address() - 1, mr.rkey()), denied);
    refused(Access::LOCAL_WRITE, |batch, mr| write(batch, mr.address(), mr.rkey()), denied);
}

#[test]
fn a_message_longer_than_the_receive_fails_at_both_ends() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options());
    let small = pollux_verbs::Buffers::new(&rig.far.pd, 1, 8).expect("buffers");
    let mut receives = far.qp.receives().expect("its own");
    receives.piece(5, small.take().expect("a buffer"));
    receives.ring().expect("posted");
    let mut batch = near.qp.batch();
    batch.send(1).inline(&[1; 16]).signalled();
    batch.ring().expect("posted");
    let there = rig.completions(&mut far.cq, 1);
    assert_eq!((there[0].id, there[0].status, there[0].pieces.len()), (5, WcStatus::LOC_LEN_ERR, 1));
    let here = rig.completions(&mut near.cq, 1);
    assert_eq!(here[0].status, WcStatus::REM_INV_REQ_ERR);
}

#[test]
fn all_that_is_posted_is_flushed_in_order() {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options());
    let all = rig.near.buffers.available();
    let mut receives = near.qp.receives().expect("its own");
    for id in 0..5 {
        receives.piece(id, rig.near.buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
    near.qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
    let mut batch = near.qp.batch();
    for id in 10..14 {
        batch.send(id).piece(rig.near.buffers.filled(b"too late").expect("a buffer"));
    }
    batch.ring().expect("posted");
    let done = rig.completions(&mut near.cq, 9);
    assert!(
        done.iter().all(|done| done.status == WcStatus::WR_FLUSH_ERR && done.pieces.len() == 1),
        "{done:?}"
    );
    let ids = |receives: bool| -> Vec<u64> {
        done.iter().map(|done| done.id).filter(|id| (*id < 10) == receives).collect()
    };
    assert_eq!((ids(true), ids(false)), ((0..5).collect(), (10..14).collect()));
    drop(done);
    assert_eq!(rig.near.buffers.available(), all);
    drop(far);
    rig.is_clean();
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    let rig = Rig::stepped();
    let (mut near, far) = rig.pair(&options());
    drop(far);
    let mut batch = near.qp.batch();
    batch.send(1).inline(b"anybody?").signalled();
    batch.ring().expect("posted");
    let done = rig.completions(&mut near.cq, 1);
    assert_eq!(done[0].status, WcStatus::RETRY_EXC_ERR, "{done:?}");
    assert_eq!(state(&near), QpState::ERR);
}

#[test]
fn a_completion_queue_that_overflows_is_an_event() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let cq = Cq::new(&side.context, CqOptions::new(7)).expect("a queue");
    let mut qp = Qp::new(&side.pd, &cq, &cq, &options()).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    let all = side.buffers.available();
    let mut receives = qp.receives().expect("its own");
    for id in 0..16 {
        receives.piece(id, side.buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
    qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
    let mut told = Vec::new();
    rig.until("event", || {
        told.extend(side.context.next_event().expect("readable"));
        told.iter().any(|event| event.kind == AsyncKind::CQ_ERR)
    });
    assert!(told.iter().any(|event| event.element == Element::Cq(cq.id())), "{told:?}");
    drop((qp, cq));
    assert_eq!(side.buffers.available(), all);
}

#[test]
fn ends_that_were_in_error_are_connected_again() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options());
    for round in 0..3_u64 {
        let mut receives = far.qp.receives().expect("its own");
        receives.piece(round, rig.far.buffers.take().expect("a buffer"));
        receives.piece(round + 10, rig.far.buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
        let mut batch = near.qp.batch();
        batch.send(round).inline(&round.to_ne_bytes()).signalled();
        batch.ring().expect("posted");
        assert!(rig.completions(&mut near.cq, 1)[0].status == WcStatus::SUCCESS);
        assert_eq!(rig.completions(&mut far.cq, 1)[0].data(), round.to_ne_bytes());
        for end in [&mut near, &mut far] {
            end.qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
            end.qp.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
            end.qp.init(1, all_rights()).expect("INIT");
        }
        connect(&mut near, &mut far);
    }
    rig.is_clean();
}

/// Connects two ends whose requester repeats so often what finds no receive.
fn patient(rig: &Rig, rnr_retries: u8) -> (End, End) {
    let (mut near, mut far) = (rig.near.end(&options()), rig.far.end(&options()));
    let (near_qpn, far_qpn) = (near.qp.qpn(), far.qp.qpn());
    // 0.01 ms until it asks again.
    let to =
        |gid, qpn| Connection { rnr_retries, min_rnr_timer: 1, ..Connection::new(Path::new(gid, 0), qpn) };
    near.qp.connect(&to(rig.far.gid, far_qpn)).expect("RTS");
    far.qp.connect(&to(rig.near.gid, near_qpn)).expect("RTS");
    (near, far)
}

#[test]
fn receivers_that_are_not_ready_by_plan_are_asked_again() {
    for (plan, rnr_retries, arrives) in [
        ("rnr:1/3", 7, true),
        ("rnr:1/3", 3, true),
        ("rnr:1/3", 2, false),
        ("rnr:1/1", 0, false),
        ("rnr:2/60", 7, true),
        ("seed:3,rnr-share:0.5", 7, true),
    ] {
        let rig = Rig::on(true, |builder| builder.faults(plan.parse().expect("a plan")));
        let (mut near, mut far) = patient(&rig, rnr_retries);
        let messages = 20;
        let mut receives = far.qp.receives().expect("its own");
        for number in 0..messages {
            receives.piece(number, rig.far.buffers.take().expect("a buffer"));
        }
        receives.ring().expect("posted");
        let mut batch = near.qp.batch();
        for number in 0..messages {
            let bytes = pattern(100, number);
            batch
                .send(number)
                .piece(rig.near.buffers.filled(&bytes).expect("a buffer"))
                .imm(number as u32)
                .signalled();
        }
        batch.ring().expect("posted");
        let sent = rig.completions(&mut near.cq, messages as usize);
        if !arrives {
            assert_eq!(sent[0].status, WcStatus::RNR_RETRY_EXC_ERR, "{plan} {rnr_retries}: {:?}", sent[0]);
            assert!(
                sent[1..].iter().all(|done| done.status == WcStatus::WR_FLUSH_ERR),
                "{plan} {rnr_retries}"
            );
            assert_eq!(state(&near), QpState::ERR);
            continue;
        }
        assert!(sent.iter().all(|done| done.status == WcStatus::SUCCESS), "{plan} {rnr_retries}: {sent:?}");
        let came = rig.completions(&mut far.cq, messages as usize);
        for (number, done) in came.iter().enumerate() {
            assert_eq!(
                (done.id, done.imm),
                (number as u64, Some(number as u32)),
                "{plan}: in order, each once"
            );
            assert_eq!(done.data(), pattern(100, number as u64));
        }
    }
}

/// A completion of a kind that no queue pair gets: its request stays open, and those behind it go on.
#[test]
fn a_completion_of_an_unknown_kind_is_counted_and_skipped() {
    let plan: FaultPlan = "odd-completion:2/0x7".parse().expect("a plan");
    let rig = Rig::on(true, |builder| builder.faults(plan.clone()));
    let (mut near, far) = rig.pair(&options());
    let target = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let mut qpn = 0;
    let logged = logged(|| {
        let mut ids = Vec::new();
        for id in 0..4 {
            let mut batch = near.qp.batch();
            batch.write(id, target.address(), target.rkey()).inline(b"eight by").signalled();
            batch.ring().expect("posted");
            (0..8).for_each(|_| rig.turn());
            near.cq.poll(8, |wc| ids.push((wc.id(), wc.status())));
        }
        assert_eq!(ids, [0, 2, 3].map(|id| (id, WcStatus::SUCCESS)));
        assert_eq!(near.cq.strange(), 1);
        qpn = near.qp.qpn();
        // The poller says what it skipped when it goes, out of the data path.
        drop(near);
    });
    let [line] = &logged[..] else { panic!("one line, not {logged:?}") };
    let told = format!(
        ": 1 completions of no request were skipped, the last with opcode 0x7 (unknown) of queue {qpn:#x}; update the firmware, \
         or reset the queue if requests stay open"
    );
    assert!(line.contains("completion queue 0x") && line.ends_with(&told), "{line}");
    drop(far);
}
