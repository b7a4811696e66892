//! What is not on every card, or not asked for every day.
#![expect(unsafe_code, reason = "who takes over a region promises that nobody refers into it")]

use pollux_mlx5_kernel::DoorProfile;
use pollux_verbs::{
    Access, Advice, Connection, Context, CqOptions, DataOrder, Ece, Mr, Mw, MwType, Options, Path, Pd,
    Provider, QpKind, QpOptions, VerbsError, WcOpcode, WcStatus,
};

use crate::rig::{Rig, all_rights, connect, pattern};

fn options() -> QpOptions {
    QpOptions::new(QpKind::Rc).depth(32, 32).inline(64).pieces(2, 2)
}

/// Messages both ways, many times round the completion queues.
fn talk(rig: &Rig, cq: &CqOptions) {
    let (mut near, mut far) =
        (rig.near.end_with(cq.clone(), &options()), rig.far.end_with(cq.clone(), &options()));
    connect(&mut near, &mut far);
    for round in 0..3 * u64::from(near.cq.entries()) {
        let data = pattern(1 + round as usize % 3000, round);
        let mut receives = far.qp.receives().expect("its own");
        receives.piece(round, rig.far.buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
        let mut batch = near.qp.batch();
        batch
            .send(round)
            .piece(rig.near.buffers.filled(&data).expect("a buffer"))
            .imm(round as u32)
            .signalled();
        batch.ring().expect("posted");
        let got = rig.completions(&mut far.cq, 1).remove(0);
        assert_eq!((got.id, got.imm, got.qpn), (round, Some(round as u32), far.qp.qpn()));
        assert_eq!(got.data(), data);
        let sent = rig.completions(&mut near.cq, 1).remove(0);
        assert_eq!((sent.id, sent.status, sent.qpn), (round, WcStatus::SUCCESS, near.qp.qpn()));
    }
    rig.is_clean();
}

#[test]
fn completions_of_128_bytes() {
    talk(&Rig::stepped(), &CqOptions { wide: true, ..CqOptions::new(15) });
}

#[test]
fn cards_and_kernels_whose_completions_call_queues_by_number() {
    let cards = Rig::on(true, |builder| builder.traits(|traits| traits.cqe_version = 0));
    let door = DoorProfile { cqe_version_max: Some(0), ..DoorProfile::default() };
    let kernels = Rig::on(true, |builder| builder.door(door));
    for rig in [cards, kernels] {
        talk(&rig, &CqOptions::new(15));
        talk(&rig, &CqOptions { wide: true, ..CqOptions::new(15) });
        // Several queue pairs and both directions on one queue: what is told by the number alone.
        let mut ends: Vec<_> = (0..3).map(|_| rig.pair(&options())).collect();
        for (number, (near, far)) in (0_u32..3).zip(&mut ends) {
            let mut receives = far.qp.receives().expect("its own");
            receives.piece(number.into(), rig.far.buffers.take().expect("a buffer"));
            receives.ring().expect("posted");
            let mut batch = near.qp.batch();
            batch.send(number.into()).inline(&[number as u8; 9]).signalled();
            batch.ring().expect("posted");
        }
        for (number, (_, far)) in (0_u32..3).zip(&mut ends).rev() {
            let got = rig.completions(&mut far.cq, 1).remove(0);
            assert_eq!((got.id, got.data(), got.qpn), (number.into(), vec![number as u8; 9], far.qp.qpn()));
        }
        rig.is_clean();
    }
}

#[test]
fn what_goes_to_the_null_region_leads_nowhere() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options());
    let null = Mr::null(&rig.near.pd).expect("a region");
    let source = Mr::allocate(&rig.far.pd, 4096, all_rights()).expect("memory");
    let kept = Mr::allocate(&rig.near.pd, 4096, all_rights()).expect("memory");
    source.write(0, &pattern(4096, 1));
    let mut batch = near.qp.batch();
    // The first thousand bytes are of no interest.
    batch.read(1, source.address(), source.rkey()).mr(&null, 0..1000).mr(&kept, 0..3096).signalled();
    batch.ring().expect("posted");
    let done = rig.completions(&mut near.cq, 1).remove(0);
    assert_eq!((done.status, done.opcode), (WcStatus::SUCCESS, WcOpcode::RDMA_READ));
    let mut seen = vec![0; 3096];
    kept.read(0, &mut seen);
    assert_eq!(seen, pattern(4096, 1)[1000..]);
    let mut receives = near.qp.receives().expect("its own");
    receives.mr(2, &null, 0..64);
    receives.ring().expect("posted");
    let mut batch = far.qp.batch();
    batch.send(3).inline(b"unheard").signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut near.cq, 1)[0].bytes, 7);
    assert_eq!(rig.completions(&mut far.cq, 1)[0].status, WcStatus::SUCCESS);
    // All of it is the longest piece that there is: room for any message, and too long for one.
    let mut receives = near.qp.receives().expect("its own");
    receives.mr(4, &null, 0..null.bytes());
    receives.ring().expect("posted");
    let mut batch = far.qp.batch();
    batch.send(5).inline(b"unheard too").signalled();
    batch.ring().expect("posted");
    let done = rig.completions(&mut near.cq, 1).remove(0);
    assert_eq!((done.status, done.bytes), (WcStatus::SUCCESS, 11));
    let mut batch = near.qp.batch();
    batch.read(6, source.address(), source.rkey()).mr(&null, 0..null.bytes()).signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::LOC_LEN_ERR);
    rig.is_clean();
}

#[test]
fn a_window_of_the_first_kind_moves_and_closes() {
    let rig = Rig::stepped();
    let (mut near, mut far) = rig.pair(&options());
    let target = Mr::allocate(&rig.far.pd, 4096, all_rights() | Access::MW_BIND).expect("memory");
    let mut window = Mw::new(&rig.far.pd, MwType::Type1).expect("a window");
    let mut keys = vec![window.rkey()];
    // It need not be closed before it is opened elsewhere.
    for at in [0_usize, 1024, 2048] {
        let mut batch = far.qp.batch();
        batch.bind(1, &mut window, &target, at..at + 512, Access::REMOTE_WRITE).signalled();
        batch.ring().expect("posted");
        let bound = rig.completions(&mut far.cq, 1).remove(0);
        assert_eq!((bound.status, bound.opcode), (WcStatus::SUCCESS, WcOpcode::BIND_MW));
        assert!(!keys.contains(&window.rkey()), "a new key each time");
        keys.push(window.rkey());
        let mut batch = near.qp.batch();
        batch
            .write(2, target.address() + at as u64 + 10, window.rkey())
            .inline(&[at as u8 | 1; 8])
            .signalled();
        batch.ring().expect("posted");
        assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
        let mut seen = [0; 8];
        target.read(at + 10, &mut seen);
        assert_eq!(seen, [at as u8 | 1; 8]);
    }
    // An empty part closes it.
    let mut batch = far.qp.batch();
    batch.bind(3, &mut window, &target, 0..0, Access::empty()).signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut far.cq, 1)[0].status, WcStatus::SUCCESS);
    let mut batch = near.qp.batch();
    batch.write(4, target.address() + 2060, window.rkey()).inline(b"closed").signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::REM_ACCESS_ERR);
    rig.is_clean();
}

#[test]
fn what_this_driver_does_not_have_is_said_by_name() {
    use std::os::fd::AsFd;

    let rig = Rig::stepped();
    let pd = &rig.near.pd;
    let mr = Mr::allocate(pd, 4096, all_rights()).expect("memory");
    let file = tempfile::tempfile().expect("a file");
    let refusals = [
        mr.advise(0..4096, Advice::PREFETCH, true).expect_err("nothing is paged in"),
        Mr::of_dmabuf(pd, file.as_fd(), 0..4096, Access::LOCAL_WRITE).expect_err("no dma-buf"),
    ];
    for error in refusals {
        assert!(matches!(error, VerbsError::Unsupported { .. }), "{error}");
    }
    assert!(matches!(mr.advise(0..4097, Advice::PREFETCH, true), Err(VerbsError::Range { .. })));
}

/// Another handle of the same file: what was made by one is known to the other, and stays the first one's.
#[test]
fn a_context_is_shared() {
    let rig = Rig::stepped();
    let channel = rig.near.model.open();
    let options = Options { address_shift_pages: 7, ..Options::default() };
    let first =
        Context::open(std::sync::Arc::clone(&channel), Provider::Mlx5, options.clone()).expect("a context");
    let pd = Pd::new(&first).expect("a domain");
    let mr = Mr::allocate(&pd, 4096, all_rights()).expect("memory");
    mr.write(100, b"of the first");

    let second = Context::import(channel, Provider::Mlx5, options).expect("the same context");
    let imported = Pd::import(&second, pd.handle());
    // SAFETY: nobody has references into a region.
    let region =
        unsafe { Mr::import(&imported, mr.handle().expect("its own"), mr.access()) }.expect("the region");
    assert_eq!((region.lkey(), region.rkey(), region.bytes()), (mr.lkey(), mr.rkey(), 4096));
    assert_eq!((region.address(), region.handle()), (mr.address(), None));
    let mut changed = region.clone();
    assert!(matches!(changed.reregister(Some(Access::empty()), None), Err(VerbsError::InUse { .. })));
    drop(changed);
    // SAFETY: as above.
    assert!(unsafe { Mr::import(&imported, pollux_uverbs::MrHandle(u32::MAX), Access::empty()) }.is_err());

    // A queue pair of the second sends what the first registered.
    let cq = pollux_verbs::Cq::new(&second, CqOptions::new(64)).expect("a queue");
    let mut qp = pollux_verbs::Qp::new(&imported, &cq, &cq, &self::options()).expect("a queue pair");
    qp.init(1, all_rights()).expect("INIT");
    let mut far = rig.far.end(&self::options());
    let path = |gid| pollux_verbs::Path::new(gid, 0);
    qp.connect(&pollux_verbs::Connection::new(path(rig.far.gid), far.qp.qpn())).expect("RTS");
    far.qp.connect(&pollux_verbs::Connection::new(path(rig.near.gid), qp.qpn())).expect("RTS");
    let mut receives = far.qp.receives().expect("its own");
    receives.piece(1, rig.far.buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    let mut batch = qp.batch();
    batch.send(2).mr(&region, 100..112).signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut far.cq, 1)[0].data(), b"of the first");

    // The second leaves; the first has what it had.
    drop((qp, cq, region, imported, second));
    let mut seen = [0; 12];
    mr.read(100, &mut seen);
    assert_eq!(&seen, b"of the first");
    mr.deregister().expect("still there");
    drop(pd);
    rig.is_clean();
}

/// Queue pairs of both ends, in INIT, each with what the other end has, as told by whoever connects them.
fn agreed(rig: &Rig) -> [Ece; 2] {
    let (mut near, mut far) = (rig.near.end(&options()), rig.far.end(&options()));
    let (ours, theirs) = (near.qp.query_ece().expect("options"), far.qp.query_ece().expect("options"));
    near.qp.set_ece(theirs).expect("of the same vendor");
    far.qp.set_ece(ours).expect("of the same vendor");
    connect(&mut near, &mut far);
    [near, far].map(|end| end.qp.query_ece().expect("options"))
}

#[test]
fn ends_agree_on_what_both_have() {
    let both = Rig::on(true, |builder| builder.traits(|traits| traits.selective_repeat = true));
    assert_eq!(agreed(&both), [Ece::mlx5(0x3000_0001); 2]);
    assert!(agreed(&both)[0].repeats_selectively());
    let neither = Rig::stepped();
    assert_eq!(agreed(&neither), [Ece::mlx5(0x3000_0000); 2]);
    assert!(!agreed(&neither)[0].repeats_selectively());

    // One end knows no more than version 2, and no way of repeating.
    let mut qp = both.near.end(&options()).qp;
    qp.set_ece(Ece::mlx5(0x2000_0000)).expect("of the same vendor");
    assert_eq!(qp.query_ece().expect("options"), Ece::mlx5(0), "not known before a change");
    // A change that fails asks for nothing, the next one does.
    let broken = Connection::new(Path::new(both.far.gid, 99), 7);
    assert!(qp.ready_to_receive(&broken).is_err());
    assert_eq!(qp.query_ece().expect("options"), Ece::mlx5(0));
    qp.ready_to_receive(&Connection::new(Path::new(both.far.gid, 0), 7)).expect("RTR");
    assert_eq!(qp.query_ece().expect("options"), Ece::mlx5(0x2000_0000));
}

#[test]
fn options_are_of_a_vendor_and_not_every_card_has_them() {
    let rig = Rig::stepped();
    let mut qp = rig.near.end(&options()).qp;
    let error = qp.set_ece(Ece { vendor: 0x1d0f, options: 1 }).expect_err("another's").to_string();
    assert_eq!(
        error,
        "connection options of vendor 7439: this device's vendor is 5555; of another's, connect without"
    );
    let old = Rig::on(true, |builder| builder.profile(pollux_mlx5_model::config::Profile::ConnectX5));
    let mut qp = old.near.end(&options()).qp;
    assert_eq!(qp.query_ece().expect("none"), Ece::mlx5(0));
    let error = qp.set_ece(Ece::mlx5(0x3000_0000)).expect_err("none").to_string();
    assert!(error.starts_with("connection options (ECE): "), "{error}");
    talk(&old, &CqOptions::new(15));
}

#[test]
fn what_the_device_promises_of_the_order_of_data_is_told_once_it_sends() {
    let all = DataOrder { whole_message: true, aligned_128: true };
    let order = |rig: &Rig| {
        let mut end = rig.near.end(&options());
        assert_eq!(end.qp.data_in_order(), DataOrder::default(), "in INIT");
        let mut far = rig.far.end(&options());
        connect(&mut end, &mut far);
        assert_eq!(end.qp.data_in_order(), end.qp.device_data_in_order(), "x86 keeps it");
        end.qp.data_in_order()
    };
    assert_eq!(order(&Rig::stepped()), all);
    assert_eq!(order(&Rig::on(true, |builder| builder.traits(|traits| traits.selective_repeat = true))), all);
    let silent = Rig::on(true, |builder| builder.traits(|traits| traits.data_in_order = false));
    assert_eq!(order(&silent), DataOrder::default());
    let door = DoorProfile { no_devx: true, ..DoorProfile::default() };
    assert_eq!(order(&Rig::on(true, |builder| builder.door(door))), DataOrder::default());
}
