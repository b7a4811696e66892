//! Who has memory, whatever is dropped, forgotten or refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_mempool::MbufPool;
use pollux_mlx5_model::Model;
use pollux_verbs::{
    Access, Buffers, Context, Cq, CqOptions, Mr, Options, Pd, PostError, Provider, Qp, QpAttributes, QpKind,
    QpOptions, QpState, Srq, SrqOptions, VerbsError,
};

use crate::channel::{Refusals, Refusing};
use crate::rig::{Rig, all_rights};

fn post(qp: &mut Qp, buffers: &Buffers, count: u64) {
    let mut receives = qp.receives().expect("its own");
    for id in 0..count {
        receives.piece(id, buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
}

#[test]
fn buffers_are_owned_and_go_home() {
    let rig = Rig::stepped();
    let buffers = Buffers::new(&rig.near.pd, 3, 100).expect("buffers");
    let mut first = buffers.filled(b"one").expect("a buffer");
    assert_eq!((&first[..], first.room(), first.len()), (&b"one"[..], 100, 3));
    first[0] = b'O';
    assert!(first.set_len(100) && !first.set_len(101));
    assert!(first.fill(&[7; 100]) && !first.fill(&[0; 101]) && first.iter().all(|byte| *byte == 7));
    let others: Vec<_> = std::iter::from_fn(|| buffers.take()).collect();
    assert_eq!((others.len(), buffers.available(), buffers.count()), (2, 0, 3));
    assert!(buffers.filled(b"none is left").is_none());
    drop(others);
    assert!(buffers.filled(&[0; 101]).is_none());
    assert_eq!(buffers.available(), 2);
    // The memory lives as long as a buffer is out.
    drop(buffers);
    first.fill(b"still there");
    assert_eq!(&first[..], b"still there");
}

#[test]
fn what_is_posted_goes_home_when_the_queue_pair_is_destroyed() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let mut cq = side.cq(64);
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    let all = side.buffers.available();
    post(&mut qp, &side.buffers, 10);
    assert_eq!(side.buffers.available(), all - 10);
    drop(qp);
    // The completion queue might still tell of them.
    assert_eq!(cq.poll(16, |wc| panic!("{wc:?}")), 0);
    assert_eq!(side.buffers.available(), all);
}

#[test]
fn completions_of_a_queue_pair_that_is_gone_are_skipped() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let mut cq = side.cq(64);
    let all = side.buffers.available();
    for _ in 0..3 {
        let mut gone = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
        gone.init(1, Access::empty()).expect("INIT");
        post(&mut gone, &side.buffers, 5);
        gone.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
        for _ in 0..50 {
            rig.turn();
        }
        drop(gone);
        // The next one, which might get its name.
        let mut next = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
        next.init(1, Access::empty()).expect("INIT");
        post(&mut next, &side.buffers, 2);
        next.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
        let done = rig.completions(&mut cq, 2);
        assert!(done.iter().all(|done| done.qpn == next.qpn()), "{done:?}");
        drop(done);
        drop(next);
        cq.poll(1, |_| {});
        assert_eq!(side.buffers.available(), all);
    }
}

#[test]
fn a_queue_pair_that_was_reset_begins_anew() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let mut cq = side.cq(64);
    let all = side.buffers.available();
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    for round in 0..3 {
        qp.init(1, Access::empty()).expect("INIT");
        post(&mut qp, &side.buffers, 7);
        qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
        for _ in 0..50 {
            rig.turn();
        }
        // Some were polled before.
        let mut seen = Vec::new();
        cq.poll(round, |wc| seen.push(wc.id()));
        assert_eq!(seen, (0..round as u64).collect::<Vec<_>>());
        qp.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
        assert_eq!(cq.poll(64, |wc| panic!("{wc:?}")), 0);
        assert_eq!(side.buffers.available(), all, "round {round}");
    }
    rig.is_clean();
}

#[test]
fn the_order_in_which_queues_are_dropped_does_not_matter() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let all = side.buffers.available();
    for order in 0..6 {
        let cq = side.cq(64);
        let mut srq = Srq::new(&side.pd, &SrqOptions::new(8)).expect("a shared queue");
        let mut receives = srq.receives();
        receives
            .piece(1, side.buffers.take().expect("a buffer"))
            .piece(2, side.buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
        let mut qp =
            Qp::with_srq(&side.pd, &cq, &cq, &srq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
        assert!(qp.receives().is_none());
        let (mut cq, mut srq, mut qp) = (Some(cq), Some(srq), Some(qp));
        for turn in 0..3 {
            match (order / 2 + if order % 2 == 0 { turn } else { 3 - turn }) % 3 {
                0 => drop(cq.take()),
                1 => drop(srq.take()),
                _ => drop(qp.take()),
            }
        }
        assert_eq!(side.buffers.available(), all, "order {order}");
    }
    rig.is_clean();
}

#[test]
fn a_forgotten_queue_pair_keeps_what_it_has() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let cq = side.cq(64);
    let mr = Mr::allocate(&side.pd, 4096, all_rights()).expect("memory");
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    let all = side.buffers.available();
    post(&mut qp, &side.buffers, 4);
    let mut receives = qp.receives().expect("its own");
    receives.mr(9, &mr, 0..64);
    receives.ring().expect("posted");
    std::mem::forget(qp);
    drop(cq);
    assert_eq!(side.buffers.available(), all - 4);
    let error = *mr.deregister().expect_err("the queue pair has it");
    assert!(matches!(error.0, VerbsError::InUse { .. }), "{}", error.0);
    rig.is_clean();
}

#[test]
fn a_forgotten_batch_or_completion_queue_frees_nothing_early() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let cq = side.cq(64);
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    let all = side.buffers.available();
    let mut receives = qp.receives().expect("its own");
    receives.piece(1, side.buffers.take().expect("a buffer"));
    std::mem::forget(receives);
    assert_eq!(side.buffers.available(), all - 1, "the queue pair has it");
    post(&mut qp, &side.buffers, 2);
    assert_eq!(side.buffers.available(), all - 2, "no doorbell told of the first: it went home");
    std::mem::forget(cq);
    drop(qp);
    assert_eq!(side.buffers.available(), all - 2, "the forgotten completion queue may know them");
    rig.is_clean();
}

#[test]
fn a_batch_that_is_not_rung_posts_nothing() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let mut cq = side.cq(64);
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc).inline(8).pieces(2, 2))
        .expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    let all = side.buffers.available();
    let buf = |bytes: &[u8]| side.buffers.filled(bytes).expect("a buffer");
    let mut batch = qp.batch();
    batch.send(1).piece(buf(b"a")).piece(buf(b"b"));
    batch.send(2).piece(buf(b"c")).signalled();
    assert_eq!(batch.count(), 2);
    drop(batch);
    assert_eq!(side.buffers.available(), all);
    let mut batch = qp.batch();
    batch.send(1).piece(buf(b"a")).piece(buf(b"b"));
    let back: Vec<_> = batch.abort().into_iter().map(|piece| piece.bytes().to_vec()).collect();
    assert_eq!(back, [b"a", b"b"]);
    // Of a request that cannot be posted the first fault is told, and all go home.
    let mr = Mr::allocate(&side.pd, 64, Access::LOCAL_WRITE).expect("memory");
    type Fault<'f> = (&'f dyn Fn(&mut pollux_verbs::Batch<'_>), &'f str);
    let faults: [Fault<'_>; 8] = [
        (
            &|batch| {
                let _ = batch.send(1).inline(&[0; 40]);
            },
            "40 bytes of inline data",
        ),
        (
            &|batch| {
                let _ = batch.send(1).piece(buf(b"a")).piece(buf(b"b")).piece(buf(b"c"));
            },
            "more than 2 SGEs",
        ),
        (
            &|batch| {
                let _ = batch.send(1).inline(b"x").piece(buf(b"a"));
            },
            "pieces in a request that has inline data",
        ),
        (
            &|batch| {
                let _ = batch.read(1, 0, 0).inline(b"x");
            },
            "inline data in a request",
        ),
        (
            &|batch| {
                let _ = batch.read(1, 0, 0).imm(7);
            },
            "immediate data",
        ),
        (
            &|batch| {
                let _ = batch.send(1).to_srq(7);
            },
            "which XRC alone has",
        ),
        (
            &|batch| {
                let _ = batch.send(1).mr(&mr, 60..65);
            },
            "not inside its memory region",
        ),
        (
            &|batch| {
                (0..5000).for_each(|id| {
                    batch.send(id);
                })
            },
            "the queue is full",
        ),
    ];
    for (fault, words) in faults {
        let mut batch = qp.batch();
        batch.send(0).piece(buf(b"before"));
        fault(&mut batch);
        let error = batch.ring().expect_err(words).to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
        assert_eq!(side.buffers.available(), all, "{words}");
    }
    drop(qp);
    let mut ud = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Ud)).expect("a queue pair");
    let mut batch = ud.batch();
    batch.write(1, 0, 0);
    assert_eq!(
        batch.ring().expect_err("datagrams do not write"),
        PostError::Operation { kind: QpKind::Ud, operation: "write to the peer's memory" }
    );
    let mut batch = ud.batch();
    batch.send(1);
    assert!(matches!(batch.ring(), Err(PostError::Incomplete(_))), "no address");
    assert_eq!(cq.poll(16, |wc| panic!("{wc:?}")), 0);
    rig.is_clean();
}

/// A piece without bytes takes no segment of its entry, but it is owned like any other.
#[test]
fn pieces_without_bytes_count() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let empty = Buffers::new(&side.pd, 8192, 0).expect("buffers");
    let take = || empty.take().expect("a buffer");
    let options = QpOptions::new(QpKind::Rc).depth(128, 4).pieces(8, 8);
    let mut end = side.end_with(CqOptions::new(2048), &options);
    end.qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
    // More entries fit than longest ones would, and each has as many pieces as one may have.
    let mut posted = 0;
    loop {
        let mut batch = end.qp.batch();
        batch.send(posted);
        for _ in 0..8 {
            batch.piece(take());
        }
        match batch.ring() {
            Ok(count) => posted += u64::from(count),
            Err(error) => break assert_eq!(error, PostError::Full),
        }
    }
    assert!(posted > 256, "{posted}");
    assert_eq!(empty.available() as u64, 8192 - 8 * posted);
    let done = rig.completions(&mut end.cq, posted as usize);
    assert!(done.iter().zip(0..).all(|(done, id)| done.id == id && done.pieces.len() == 8));
    drop(done);
    assert_eq!(empty.available(), 8192);
    let mut receives = end.qp.receives().expect("its own");
    receives.pieces(1, (0..8).map(|_| take()));
    assert_eq!(receives.ring(), Ok(1));
    let mut receives = end.qp.receives().expect("its own");
    receives.pieces(2, (0..9).map(|_| take()));
    assert_eq!(receives.ring(), Err(PostError::Pieces { limit: 8 }));
    assert_eq!(rig.completions(&mut end.cq, 1)[0].pieces.len(), 8);
    assert_eq!(empty.available(), 8192);
    drop(end);
    rig.is_clean();
}

#[test]
fn packets_of_a_pool_that_the_domain_knows_can_be_posted() {
    let rig = Rig::stepped();
    let side = &rig.near;
    let pool = MbufPool::builder("posted packets", 64).build_anonymous().expect("a pool");
    let mut cq = side.cq(64);
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    qp.init(1, Access::empty()).expect("INIT");
    let mut receives = qp.receives().expect("its own");
    receives.piece(1, pool.alloc().expect("an mbuf"));
    assert_eq!(receives.ring(), Err(PostError::Memory), "nobody registered it");
    side.pd.add_pool(&pool).expect("registered");
    side.pd.add_pool(&pool).expect("once");
    let mut receives = qp.receives().expect("its own");
    receives.piece(1, pool.alloc().expect("an mbuf"));
    assert_eq!(receives.ring(), Ok(1));
    assert_eq!(pool.available(), 63);
    drop(qp);
    cq.poll(1, |_| {});
    assert_eq!(pool.available(), 64);
}

/// Where the kernel does not destroy a queue, nothing that it was given is ever free again.
#[test]
fn what_the_kernel_does_not_destroy_is_never_freed() {
    let model = Model::builder("stubborn").stepped().build().expect("a model");
    let refusals = Arc::new(Refusals::default());
    let channel = Arc::new(Refusing { inner: model.open(), refusals: Arc::clone(&refusals) });
    let context = Context::open(channel, Provider::Mlx5, Options::default()).expect("a context");
    let pd = Pd::new(&context).expect("a domain");
    let buffers = Buffers::new(&pd, 8, 64).expect("buffers");
    let mut cq = Cq::new(&context, CqOptions::new(64)).expect("a queue");
    for refuse in [true, false] {
        refusals.queue_pairs.store(refuse, Ordering::Relaxed);
        let mr = Mr::allocate(&pd, 4096, all_rights()).expect("memory");
        let mut qp = Qp::new(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
        qp.init(1, Access::empty()).expect("INIT");
        let all = buffers.available();
        post(&mut qp, &buffers, 3);
        let mut receives = qp.receives().expect("its own");
        receives.mr(9, &mr, 0..64);
        receives.ring().expect("posted");
        drop(qp);
        cq.poll(16, |wc| panic!("{wc:?}"));
        assert_eq!(buffers.available(), if refuse { all - 3 } else { all });
        assert_eq!(mr.deregister().is_err(), refuse, "the queue pair keeps it");
    }
    refusals.regions.store(true, Ordering::Relaxed);
    let mr = Mr::allocate(&pd, 4096, all_rights()).expect("memory");
    let error = *mr.deregister().expect_err("the kernel refuses");
    assert!(error.1.is_none() && error.0.errno() == Some(pollux_uverbs::Errno::EBUSY), "{}", error.0);
}
