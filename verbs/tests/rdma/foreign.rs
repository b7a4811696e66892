//! What is of another device, or of another context of the same one, is refused wherever it is given.

use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::Cable;
use pollux_verbs::{
    Ah, Batch, Buffers, CompletionChannel, CqOptions, Dm, EthFilter, FlowSpec, FlowType, HashFields, HashQp,
    Mr, Mw, MwType, Path, Pd, PostError, Qp, QpKind, QpOptions, Rule, Srq, SrqOptions, VerbsError, Wq,
    WqOptions, WqTable, Xrcd,
};

use crate::rig::{QKEY, Rig, Side, all_rights};

fn options() -> QpOptions {
    QpOptions::new(QpKind::Rc).depth(8, 8)
}

/// Asks for each object of `here` to be made with what is of `other`: the names of those that were refused for that, and of those
/// that were not.
fn made(here: &Side, other: &Side) -> (Vec<&'static str>, Vec<&'static str>) {
    let (cq, foreign_cq) = (here.cq(16), other.cq(16));
    let (pd, foreign_pd) = (&here.pd, &other.pd);
    let srq = |side: &Side| Srq::new(&side.pd, &SrqOptions::new(8)).expect("a shared receive queue");
    let foreign_srq = srq(other);
    let (xrcd, foreign_xrcd) =
        (Xrcd::new(&here.context).expect("a domain"), Xrcd::new(&other.context).expect("a domain"));
    let foreign_wq = Wq::new(foreign_pd, &foreign_cq, &WqOptions::new(8)).expect("a work queue");
    let foreign_dm = Dm::new(&other.context, 4096, 0).expect("device memory");
    let foreign_channel = CompletionChannel::new(&other.context).expect("a channel");
    let mut mr = Mr::allocate(pd, 4096, all_rights()).expect("memory");
    let outcomes: [(&str, Result<(), VerbsError>); 12] = [
        ("Qp, sends", Qp::new(pd, &foreign_cq, &cq, &options()).map(drop)),
        ("Qp, receives", Qp::new(pd, &cq, &foreign_cq, &options()).map(drop)),
        ("Qp, Pd", Qp::new(foreign_pd, &cq, &cq, &options()).map(drop)),
        ("Qp, Srq", Qp::with_srq(pd, &cq, &cq, &foreign_srq, &options()).map(drop)),
        ("Srq, Xrcd", Srq::xrc(pd, &foreign_xrcd, &cq, &SrqOptions::new(8)).map(drop)),
        ("Srq, Cq", Srq::xrc(pd, &xrcd, &foreign_cq, &SrqOptions::new(8)).map(drop)),
        ("Wq, Cq", Wq::new(pd, &foreign_cq, &WqOptions::new(8)).map(drop)),
        ("WqTable, Wq", WqTable::new(pd, &[&foreign_wq]).map(drop)),
        ("WqTable of another, Wq", {
            // A hash queue pair is made in its table's domain: there is no other to mix it with.
            let table = WqTable::new(foreign_pd, &[&foreign_wq]).expect("a table");
            let wq = Wq::new(pd, &cq, &WqOptions::new(8)).expect("a work queue");
            HashQp::new(&table, HashFields::empty(), &[0; 40]).expect("a queue pair");
            WqTable::new(foreign_pd, &[&foreign_wq, &wq]).map(drop)
        }),
        (
            "Cq, channel",
            pollux_verbs::Cq::new(&here.context, CqOptions::new(8).channel(&foreign_channel)).map(drop),
        ),
        ("Mr, Dm", Mr::of_device(pd, &foreign_dm, 0..64, all_rights()).map(drop)),
        ("Mr, Pd", mr.reregister(None, Some(foreign_pd))),
    ];
    let is_refused = |(_, outcome): &&(&str, Result<(), VerbsError>)| {
        let refused = matches!(outcome, Err(VerbsError::Foreign { .. }));
        refused
            && outcome
                .as_ref()
                .is_err_and(|error| error.to_string().ends_with("must belong to the same Context"))
    };
    let names = |refused: bool| {
        outcomes.iter().filter(|one| is_refused(one) == refused).map(|(name, _)| *name).collect::<Vec<_>>()
    };
    (names(true), names(false))
}

/// Posts requests of `here` that name what is of `other`: those that were taken.
fn posted(here: &Side, other: &Side) -> Vec<&'static str> {
    let mut taken = Vec::new();
    let cq = here.cq(64);
    let mr = Mr::allocate(&here.pd, 4096, all_rights()).expect("memory");
    let foreign_mr = Mr::allocate(&other.pd, 4096, all_rights()).expect("memory");
    let mut qp = Qp::new(&here.pd, &cq, &cq, &options()).expect("a queue pair");
    qp.init(1, all_rights()).expect("INIT");
    let mut note = |name: &'static str, outcome: Result<u32, PostError>| match outcome {
        Err(PostError::Incomplete(words)) if words.contains("of another device") => {}
        _ => taken.push(name),
    };
    let mut window = Mw::new(&here.pd, MwType::Type2).expect("a window");
    let mut foreign_window = Mw::new(&other.pd, MwType::Type2).expect("a window");
    let buf = || other.buffers.filled(b"of another").expect("a buffer");
    let mut send = |name: &'static str, request: &mut dyn FnMut(&mut Batch<'_>)| {
        let mut batch = qp.batch();
        request(&mut batch);
        note(name, batch.ring());
    };
    // Twice: what a queue has met is looked at no more.
    for _ in 0..2 {
        send("send, Mr", &mut |batch| {
            batch.send(1).mr(&foreign_mr, 0..64);
        });
        send("send, an own and another Mr", &mut |batch| {
            batch.send(1).mr(&mr, 0..64);
            batch.send(2).mr(&foreign_mr, 0..64);
        });
    }
    send("read, Mr", &mut |batch| {
        batch.read(1, 0, 1).mr(&foreign_mr, 0..64);
    });
    send("send, Buf", &mut |batch| {
        batch.send(1).piece(buf());
    });
    send("bind, Mr", &mut |batch| {
        batch.bind(1, &mut window, &foreign_mr, 0..64, all_rights());
    });
    send("bind, Mw", &mut |batch| {
        batch.bind(1, &mut foreign_window, &mr, 0..64, all_rights());
    });

    let mut datagrams = Qp::new(&here.pd, &cq, &cq, &QpOptions::new(QpKind::Ud)).expect("a queue pair");
    datagrams.ready_datagram(1, QKEY, 0).expect("RTS");
    let foreign_ah = Ah::new(&other.pd, &Path::new(other.gid, 0)).expect("an address");
    let mut batch = datagrams.batch();
    batch.send(1).to(&foreign_ah, 1, QKEY).mr(&mr, 0..64);
    note("send, Ah", batch.ring());

    let mut srq = Srq::new(&here.pd, &SrqOptions::new(8)).expect("a shared receive queue");
    let mut wq = Wq::new(&here.pd, &cq, &WqOptions::new(8)).expect("a work queue");
    for (name, mut list) in [
        ("receive, Mr", qp.receives().expect("its own")),
        ("receive of a shared queue, Mr", srq.receives()),
        ("receive of a work queue, Mr", wq.receives()),
    ] {
        list.mr(1, &foreign_mr, 0..64);
        note(name, list.ring());
    }
    for own in [false, true] {
        let mut list = qp.receives().expect("its own");
        let bufs = if own { vec![here.buffers.take().expect("a buffer"), buf()] } else { vec![buf()] };
        list.pieces(1, bufs);
        note("receive, Bufs", list.ring());
    }
    let mut list = srq.receives();
    list.piece(1, buf());
    note("receive, Buf", list.ring());
    assert_eq!(other.buffers.available(), other.buffers.count(), "what was not taken went home");
    taken
}

#[test]
fn what_is_of_another_context_is_refused() {
    let rig = Rig::stepped();
    // Another context of the near device.
    let twin = Side::over(std::sync::Arc::clone(&rig.near.model));
    for (name, here, other) in [
        ("another device", &rig.near, &rig.far),
        ("and back", &rig.far, &rig.near),
        ("another context of the device", &rig.near, &twin),
    ] {
        let (refused, taken) = made(here, other);
        assert_eq!((refused.len(), taken.len()), (12, 0), "{name}: {taken:?} were made");
        assert_eq!(posted(here, other), [""; 0], "{name}");
    }
    rig.is_clean();
}

#[test]
fn what_is_of_the_same_context_goes_together() {
    let rig = Rig::stepped();
    let (_, taken) = made(&rig.near, &rig.near);
    assert_eq!(taken.len(), 12, "{taken:?}");
}

/// Numbers of rules are the kernel's, from 0 on in each context.
#[test]
fn a_rule_is_taken_back_by_the_queue_pair_that_has_it_alone() {
    let rig = Rig::stepped();
    let raw = |side: &Side| {
        let cq = side.cq(16);
        let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Raw)).expect("a queue pair");
        qp.init(1, all_rights()).expect("INIT");
        let mask = EthFilter { dst_mac: [0xff; 6], ..EthFilter::default() };
        let spec = FlowSpec::Eth {
            value: EthFilter { dst_mac: [2; 6], ..EthFilter::default() },
            mask,
            inner: false,
        };
        let rule = Rule { port: 1, priority: 0, kind: FlowType::NORMAL, specs: &[spec] };
        let id = qp.steer(&rule).expect("a rule");
        (qp, id)
    };
    let ((mut near, near_rule), (mut far, far_rule)) = (raw(&rig.near), raw(&rig.far));
    assert!(matches!(near.unsteer(far_rule), Err(VerbsError::Range { .. })));
    near.unsteer(near_rule).expect("its own");
    far.unsteer(far_rule).expect("its own");
}

/// The way that it was done: a region of one device whose key and addresses are those of another's memory.
#[test]
fn no_device_writes_to_memory_that_another_was_told_of() {
    let (left, right) = Cable::pair();
    let build = |name, end| Side::new(Model::builder(name).plugged(end).stepped().build().expect("a model"));
    let (left, right) = (build("left", left), build("right", right));
    // The same objects in the same order, so the same keys.
    let pools = [&left, &right]
        .map(|side| Buffers::new(&Pd::new(&side.context).expect("a domain"), 1, 64).expect("buffers"));
    let mut end = left.end(&options());
    let mut receives = end.qp.receives().expect("its own");
    receives.piece(1, pools[1].take().expect("a buffer"));
    assert!(matches!(receives.ring(), Err(PostError::Incomplete(_))));
    assert_eq!(pools[1].available(), 1);
}
