//! What views for other threads tell, step by step.

use pollux_verbs::{
    Access, Armed, CompletionChannel, Cq, CqOptions, Level, Mr, MrKind, Qp, QpAttributes, QpKind, QpOptions,
    QpState, Srq, SrqOptions, WcStatus,
};

use crate::rig::{Rig, all_rights};

fn options() -> QpOptions {
    QpOptions::new(QpKind::Rc).depth(32, 32).inline(64)
}

#[test]
fn levels_follow_what_is_posted_done_and_polled() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options());
    let (here, there) = (rig.near.context.view(), rig.far.context.view());
    let mut receives = far.qp.receives().expect("a ring");
    for id in 0..3 {
        receives.piece(id, rig.far.buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
    let of = |far: bool| if far { there.queue_pairs() } else { here.queue_pairs() }[0].clone();
    assert_eq!(of(true).receive, Some(Level { places: 32, used: 3, posted: 3, completed: 0 }));
    assert_eq!(
        (of(true).qpn, of(true).peer, of(true).state),
        (far.qp.qpn(), Some(near.qp.qpn()), QpState::RTS)
    );
    let mut batch = near.qp.batch();
    batch.send(1).inline(b"one");
    batch.send(2).inline(b"two").signalled();
    batch.ring().expect("posted");
    let send = of(false).send.expect("a queue");
    assert!(send.used >= 2 && send.used <= send.places && send.posted == 2, "{send:?}");
    let waiting = || there.completion_queues().iter().map(|queue| queue.level.used).sum::<u32>();
    rig.until("completions", || waiting() == 2);
    assert_eq!(there.operations().received, 0, "none was taken");
    rig.completions(&mut far.cq, 2);
    assert_eq!(
        (
            waiting(),
            of(true).receive.map(|level| level.used),
            of(true).receive.map_or(0, |level| level.completed)
        ),
        (0, Some(1), 2)
    );
    rig.completions(&mut near.cq, 1);
    assert_eq!(of(false).send.map(|level| (level.used, level.posted)), Some((0, 2)));
    assert_eq!((here.operations().sent, there.operations().received), (2, 2));
    // A reset begins another ring, and goes on counting.
    near.qp.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
    let now = of(false);
    assert_eq!(
        (now.state, now.peer, now.send.map(|level| (level.used, level.posted))),
        (QpState::RESET, None, Some((0, 2)))
    );
    // The receive that was posted and not filled is gone, not completed.
    far.qp.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
    assert_eq!(of(true).receive, Some(Level { places: 32, used: 0, posted: 3, completed: 2 }));
    far.qp.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
    assert_eq!((of(true).receive.map_or(0, |level| level.posted), there.operations().received), (3, 2));
    drop((near, far));
    assert!(here.queue_pairs().is_empty() && here.completion_queues().is_empty());
    assert_eq!(here.operations().sent, 2, "what was done stays so");
}

#[test]
fn errors_are_counted_by_status() {
    let rig = Rig::stepped();
    let (mut near, _far) = rig.pair(&options());
    let view = rig.near.context.view();
    let mut batch = near.qp.batch();
    batch.write(1, 0x1000, 0xbad).inline(&[1; 8]).signalled();
    batch.write(2, 0x1000, 0xbad).inline(&[1; 8]).signalled();
    batch.ring().expect("posted");
    rig.completions(&mut near.cq, 2);
    let wanted = vec![(WcStatus::WR_FLUSH_ERR, 1), (WcStatus::REM_ACCESS_ERR, 1)];
    assert_eq!(view.queue_pairs()[0].errors, wanted);
    drop(near);
    assert_eq!(view.operations().errors, wanted);
}

#[test]
fn memory_is_told_with_its_rights_and_without_keys() {
    let rig = Rig::stepped();
    let view = rig.near.context.view();
    let buffers = view.memory();
    assert_eq!((buffers.len(), buffers[0].kind, buffers[0].bytes), (1, MrKind::Buffers, 64 * 8192));
    let mut mr = Mr::allocate(&rig.near.pd, 5000, all_rights()).expect("memory");
    let told = view.memory()[1];
    assert_eq!((told.kind, told.bytes, told.access), (MrKind::Region, mr.bytes() as u64, all_rights()));
    mr.reregister(Some(Access::LOCAL_WRITE), None).expect("other rights");
    assert_eq!(view.memory()[1].access, Access::LOCAL_WRITE);
    mr.deregister().expect("nobody has it");
    assert_eq!(view.memory().len(), 1);
}

#[test]
fn events_that_are_asked_for_show_until_they_are_taken() {
    let rig = Rig::stepped();
    let channel = CompletionChannel::new(&rig.near.context).expect("a channel");
    let mut cq =
        Cq::new(&rig.near.context, CqOptions::new(16).channel(&channel)).expect("a completion queue");
    let view = rig.near.context.view();
    let told = || view.completion_queues()[0];
    assert_eq!((told().armed, told().has_channel, told().level.used), (Armed::No, true, 0));
    cq.notify(false).expect("armed");
    assert_eq!(told().armed, Armed::Next);
    cq.event_taken();
    assert_eq!(told().armed, Armed::No);
    cq.notify(true).expect("armed");
    assert_eq!(told().armed, Armed::Solicited);
    cq.resize(100).expect("larger");
    assert_eq!(told().level.places, cq.entries());
}

#[test]
fn shared_receive_queues_are_told_apart_from_queue_pairs() {
    let rig = Rig::stepped();
    let mut srq = Srq::new(&rig.near.pd, &SrqOptions::new(16)).expect("a shared receive queue");
    let cq = rig.near.cq(16);
    let _qp = Qp::with_srq(&rig.near.pd, &cq, &cq, &srq, &options()).expect("a queue pair");
    let view = rig.near.context.view();
    let mut receives = srq.receives();
    for id in 0..5 {
        receives.piece(id, rig.near.buffers.take().expect("a buffer"));
    }
    receives.ring().expect("posted");
    let told = &view.shared_receive_queues()[0];
    assert_eq!(
        (told.number, told.level.used, told.level.posted, told.level.completed),
        (srq.number(), 5, 5, 0)
    );
    assert!(view.queue_pairs()[0].receive.is_none());
}

#[test]
fn a_view_keeps_nothing_open() {
    let rig = Rig::stepped();
    let view = rig.far.context.view();
    assert!(view.is_open() && view.memory().len() == 1);
    drop(rig);
    assert!(!view.is_open() && view.memory().is_empty() && view.operations().sent == 0);
}
