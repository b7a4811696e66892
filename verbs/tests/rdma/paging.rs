//! Memory on demand: whatever comes upon pages that are not there, on either side, and where those never come.
#![expect(unsafe_code, reason = "memory that is not there is registered by a raw call")]

use std::sync::Arc;

use pollux_mlx5_model::Traits;
use pollux_uverbs::abi::id::mr::{OBJECT, reg};
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::{Call, Channel, MrHandle};
use pollux_verbs::{
    Access, Advice, AllMemory, Context, Cq, CqOptions, Errno, Mr, OdpGeneral, OdpService, Options, Path, Pd,
    Provider, Qp, QpKind, QpOptions, VerbsError, WcStatus,
};

use crate::rig::{End, Rig, Side, all_rights, connect, pattern};

/// More pages than a message has, none of which was there.
const BYTES: usize = 64 << 10;

fn rig() -> Rig {
    Rig::on(false, |builder| builder.traits(on_demand))
}

fn on_demand(traits: &mut Traits) {
    traits.on_demand_paging = true;
}

/// How memory is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pinned,
    OnDemand,
    AllMemory,
}

fn memory(side: &Side, form: Form) -> Mr {
    match form {
        Form::Pinned => Mr::allocate(&side.pd, BYTES, all_rights()).expect("memory"),
        Form::OnDemand => Mr::allocate(&side.pd, BYTES, all_rights() | Access::ON_DEMAND).expect("memory"),
        Form::AllMemory => AllMemory::register(&side.pd).expect("a region").allocate(BYTES).expect("memory"),
    }
}

/// What one end does with the other's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Send,
    Write,
    Read,
    FetchAdd,
}

/// Moves bytes between places that are on a page's end, and looks at where they arrived.
fn moves(rig: &Rig, (near, far): (&mut End, &mut End), verb: Verb, here: &Mr, there: &Mr) {
    let (from, bytes) = if verb == Verb::FetchAdd { (4096, 8) } else { (4000, 9000) };
    let range = from..from + bytes;
    let data = pattern(bytes, 7);
    let (source, target) =
        if matches!(verb, Verb::Send | Verb::Write) { (here, there) } else { (there, here) };
    source.write(from, &data);
    if verb == Verb::Send {
        let mut receives = far.qp.receives().expect("its own");
        receives.mr(9, there, range.clone());
        receives.ring().expect("posted");
    }
    let mut batch = near.qp.batch();
    match verb {
        Verb::Send => batch.send(1).mr(here, range),
        Verb::Write => batch.write(1, there.address() + from as u64, there.rkey()).mr(here, range),
        Verb::Read => batch.read(1, there.address() + from as u64, there.rkey()).mr(here, range),
        Verb::FetchAdd => batch.fetch_add(1, there.address() + from as u64, there.rkey(), 5).mr(here, range),
    };
    batch.signalled();
    assert_eq!(batch.ring(), Ok(1));
    let done = rig.completions(&mut near.cq, 1).remove(0);
    assert_eq!(done.status, WcStatus::SUCCESS, "{verb:?}");
    if verb == Verb::Send {
        assert_eq!(rig.completions(&mut far.cq, 1).remove(0).status, WcStatus::SUCCESS);
    }
    let mut seen = vec![0; bytes];
    target.read(from, &mut seen);
    assert_eq!(seen, data, "{verb:?}");
    if verb == Verb::FetchAdd {
        let before = u64::from_ne_bytes(data.try_into().expect("8 bytes"));
        assert_eq!(there.load64(from), before.wrapping_add(5));
    }
}

#[test]
fn every_verb_waits_for_pages_on_either_side() {
    for verb in [Verb::Send, Verb::Write, Verb::Read, Verb::FetchAdd] {
        for (near_form, far_form) in [
            (Form::OnDemand, Form::Pinned),
            (Form::Pinned, Form::OnDemand),
            (Form::OnDemand, Form::OnDemand),
            (Form::AllMemory, Form::Pinned),
            (Form::AllMemory, Form::OnDemand),
        ] {
            let rig = rig();
            let (mut near, mut far) = rig.pair(&QpOptions::new(QpKind::Rc).depth(8, 8));
            let pinned = rig.near.model.device().memory().pinned_bytes();
            let (here, there) = (memory(&rig.near, near_form), memory(&rig.far, far_form));
            if near_form != Form::Pinned {
                assert_eq!(rig.near.model.device().memory().pinned_bytes(), pinned, "nothing is pinned");
            }
            let what = format!("{verb:?}, {near_form:?} and {far_form:?}");
            for round in 0..2 {
                moves(&rig, (&mut near, &mut far), verb, &here, &there);
                for (side, form) in [(&rig.near, near_form), (&rig.far, far_form)] {
                    let faults = side.model.kernel().page_faults();
                    assert_eq!(faults > 0, form != Form::Pinned, "{what}: {faults} in round {round}");
                    assert!(faults < 8, "{what}: {faults}, but what is there is not asked for again");
                }
            }
        }
    }
}

#[test]
fn what_a_region_has_under_all_memory_goes_when_the_last_has_gone() {
    let rig = rig();
    let handles = rig.near.next_handles();
    let all = AllMemory::register(&rig.near.pd).expect("a region");
    let (one, two) = (all.allocate(5000).expect("memory"), all.allocate(100).expect("memory"));
    assert_eq!((one.lkey(), one.handle()), (two.lkey(), None));
    assert_eq!(one.access(), Access::LOCAL_WRITE | Access::ON_DEMAND);
    drop(all);
    let zone = one.deregister().expect("nobody has it").expect("its memory");
    assert!(zone.bytes() >= 5000);
    let (mut near, mut far) = rig.pair(&QpOptions::new(QpKind::Rc).depth(8, 8));
    let there = memory(&rig.far, Form::Pinned);
    two.write(0, b"still there");
    let mut batch = near.qp.batch();
    batch.write(1, there.address(), there.rkey()).mr(&two, 0..11).signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
    let mut seen = [0; 11];
    there.read(0, &mut seen);
    assert_eq!(&seen, b"still there");
    // Peers have no rights.
    let local = memory(&rig.far, Form::Pinned);
    let mut batch = far.qp.batch();
    batch.read(2, two.address(), two.rkey()).mr(&local, 0..11).signalled();
    batch.ring().expect("posted");
    assert_eq!(rig.completions(&mut far.cq, 1)[0].status, WcStatus::REM_ACCESS_ERR);
    drop((near, far, two));
    assert_eq!(rig.near.next_handles(), handles);
}

/// A peer writes page after page: each question brings more than the one before, and what is there stays there.
#[test]
fn pages_that_come_one_by_one_stay() {
    let rig = rig();
    let (mut near, _far) = rig.pair(&options());
    let here = memory(&rig.near, Form::Pinned);
    let there = memory(&rig.far, Form::OnDemand);
    for round in 0..2 {
        let before = rig.far.model.kernel().page_faults();
        for page in 0..BYTES / 4096 {
            let data = pattern(100, (round * 100 + page) as u64);
            here.write(0, &data);
            let mut batch = near.qp.batch();
            let at = there.address() + page as u64 * 4096;
            batch.write(1, at, there.rkey()).mr(&here, 0..100).signalled();
            batch.ring().expect("posted");
            assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
            let mut seen = [0; 100];
            there.read(page * 4096, &mut seen);
            assert_eq!(seen[..], data);
        }
        // One page, then two, four, eight, and the last.
        let faults = rig.far.model.kernel().page_faults() - before;
        assert_eq!(faults, if round == 0 { 5 } else { 0 }, "in round {round}");
    }
}

/// Registers what is no memory, by a raw call.
fn register(channel: &dyn Channel, pd: &Pd, (at, bytes): (u64, u64)) -> MrHandle {
    let mut call = Call::new(OBJECT, reg::METHOD);
    call.new_object(reg::HANDLE)
        .object(reg::PD_HANDLE, pd.handle().0)
        .u64(reg::IOVA, at)
        .u64(reg::ADDR, at)
        .u64(reg::LENGTH, bytes)
        .u32(reg::ACCESS_FLAGS, (all_rights() | Access::ON_DEMAND).bits())
        .answer(reg::RESP_LKEY, 4)
        .answer(reg::RESP_RKEY, 4);
    call.driver = driver::MLX5;
    // SAFETY: the device is asked to reach what nobody has.
    unsafe { channel.call(&mut call) }.expect("registered");
    MrHandle(call.created(reg::HANDLE).expect("a handle"))
}

#[test]
fn pages_that_never_come_fail_the_work() {
    for is_peers in [false, true] {
        let rig = rig();
        let channel = rig.near.model.open();
        let options = Options { address_shift_pages: 7, ..Options::default() };
        let context = Context::open(Arc::clone(&channel), Provider::Mlx5, options).expect("a context");
        let pd = Pd::new(&context).expect("a domain");
        // Where Linux maps nothing unless it is asked to.
        let handle = register(channel.as_ref(), &pd, (1 << 44, 8192));
        // SAFETY: nobody has references there, where no memory is.
        let here = unsafe { Mr::import(&pd, handle, all_rights()) }.expect("the region");
        let cq = Cq::new(&context, CqOptions::new(64)).expect("a queue");
        let mut qp = Qp::new(&pd, &cq, &cq, &self::options()).expect("a queue pair");
        qp.init(1, all_rights()).expect("INIT");
        let mut far = rig.far.end(&self::options());
        let path = |gid| Path::new(gid, 0);
        qp.connect(&pollux_verbs::Connection::new(path(rig.far.gid), far.qp.qpn())).expect("RTS");
        far.qp.connect(&pollux_verbs::Connection::new(path(rig.near.gid), qp.qpn())).expect("RTS");
        let there = memory(&rig.far, Form::Pinned);
        let (batch, expected) = if is_peers {
            let mut batch = far.qp.batch();
            batch.read(1, here.address(), here.rkey()).mr(&there, 0..100).signalled();
            (batch, WcStatus::REM_ACCESS_ERR)
        } else {
            let mut batch = qp.batch();
            batch.write(1, there.address(), there.rkey()).mr(&here, 0..100).signalled();
            (batch, WcStatus::LOC_PROT_ERR)
        };
        batch.ring().expect("posted");
        let mut cq = cq;
        let completions = if is_peers { &mut far.cq } else { &mut cq };
        let done = rig.completions(completions, 1).remove(0);
        assert_eq!(done.status, expected, "the peer's: {is_peers}");
        assert_eq!(rig.near.model.kernel().page_faults(), 0);
        let advised = here.advise(0..8192, Advice::PREFETCH, true).expect_err("no memory");
        assert!(
            matches!(advised, VerbsError::Kernel { source, .. } if source.errno() == Some(Errno::EFAULT))
        );
        here.advise(0..8192, Advice::PREFETCH, false).expect("nobody waits for what becomes of it");
    }
}

#[test]
fn pages_that_are_advised_are_not_asked_for() {
    let rig = rig();
    let (mut near, mut far) = rig.pair(&QpOptions::new(QpKind::Rc).depth(8, 8));
    let there = memory(&rig.far, Form::Pinned);
    for form in [Form::OnDemand, Form::AllMemory] {
        for flush in [false, true] {
            let here = memory(&rig.near, form);
            here.advise(0..BYTES, Advice::PREFETCH_WRITE, flush).expect("advice");
            let before = rig.near.model.kernel().page_faults();
            moves(&rig, (&mut near, &mut far), Verb::Read, &here, &there);
            assert_eq!(rig.near.model.kernel().page_faults(), before, "{form:?}");
        }
    }
    let here = memory(&rig.near, Form::OnDemand);
    here.advise(0..BYTES, Advice::PREFETCH_NO_FAULT, true).expect("advice");
    here.advise(0..0, Advice::PREFETCH, true).expect("advice about nothing");
    moves(&rig, (&mut near, &mut far), Verb::Read, &here, &there);
}

#[test]
fn advice_that_makes_no_sense_is_refused() {
    let rig = rig();
    let refused = |mr: &Mr, advice| match mr.advise(0..4096, advice, true) {
        Err(VerbsError::Kernel { source, .. }) => source.errno(),
        other => panic!("{other:?}"),
    };
    let pinned = memory(&rig.near, Form::Pinned);
    assert_eq!(refused(&pinned, Advice::PREFETCH), Some(Errno::ENOENT));
    let read_only = Mr::allocate(&rig.near.pd, 4096, Access::REMOTE_READ | Access::ON_DEMAND);
    let read_only = read_only.expect("memory");
    assert_eq!(refused(&read_only, Advice::PREFETCH_WRITE), Some(Errno::EPERM));
    read_only.advise(0..4096, Advice::PREFETCH, true).expect("advice");
}

#[test]
fn other_rights_make_a_region_anew() {
    let rig = rig();
    let (mut near, mut far) = rig.pair(&QpOptions::new(QpKind::Rc).depth(8, 8));
    let here = memory(&rig.near, Form::Pinned);
    let mut there =
        Mr::allocate(&rig.far.pd, BYTES, Access::LOCAL_WRITE | Access::ON_DEMAND).expect("memory");
    there.reregister(Some(all_rights() | Access::ON_DEMAND), None).expect("other rights");
    moves(&rig, (&mut near, &mut far), Verb::Write, &here, &there);
    assert!(rig.far.model.kernel().page_faults() > 0);
    drop((near, far));
    // Memory that pages in is not pinned later.
    let mut paged = memory(&rig.far, Form::OnDemand);
    let refused = paged.reregister(Some(all_rights()), None).expect_err("it pages in");
    assert_eq!(refused.errno(), Some(Errno::EOPNOTSUPP));
    // What was pinned pages in when it is wanted so.
    let mut pinned = memory(&rig.far, Form::Pinned);
    let before = rig.far.model.device().memory().pinned_bytes();
    pinned.reregister(Some(all_rights() | Access::ON_DEMAND), None).expect("other rights");
    assert_eq!(before - rig.far.model.device().memory().pinned_bytes(), BYTES as u64);
    let (mut near, mut far) = (rig.near.end(&options()), rig.far.end(&options()));
    connect(&mut near, &mut far);
    let before = rig.far.model.kernel().page_faults();
    moves(&rig, (&mut near, &mut far), Verb::Write, &here, &pinned);
    assert!(rig.far.model.kernel().page_faults() > before);
    // A part of all memory has the rights of all.
    let mut part = memory(&rig.near, Form::AllMemory);
    assert!(matches!(part.reregister(Some(all_rights()), None), Err(VerbsError::Unsupported { .. })));
    let zone = rig.near.context.reserve(4096).expect("memory");
    assert!(matches!(*part.replace(zone).expect_err("of all"), (VerbsError::Unsupported { .. }, Some(_))));
}

fn options() -> QpOptions {
    QpOptions::new(QpKind::Rc).depth(8, 8)
}

#[test]
fn cards_say_what_they_can_and_others_refuse() {
    let rig = rig();
    let caps = rig.near.context.device().expect("capabilities");
    assert_eq!(
        OdpGeneral::from_bits_retain(caps.odp_caps.general_caps),
        OdpGeneral::SUPPORT | OdpGeneral::IMPLICIT
    );
    let connected = OdpService::SEND
        | OdpService::RECV
        | OdpService::WRITE
        | OdpService::READ
        | OdpService::ATOMIC
        | OdpService::SRQ_RECV;
    let (rc, ud) = (connected.bits(), OdpService::SEND.bits());
    assert_eq!((caps.odp_caps.per_transport_caps, caps.xrc_odp_caps), ([rc, 0, ud], rc));

    let without = Rig::threaded();
    let caps = without.near.context.device().expect("capabilities");
    assert_eq!((caps.odp_caps.general_caps, caps.odp_caps.per_transport_caps), (0, [0; 3]));
    let refused = Mr::allocate(&without.near.pd, 4096, Access::LOCAL_WRITE | Access::ON_DEMAND);
    assert!(
        matches!(refused, Err(VerbsError::Kernel { source, .. }) if source.errno() == Some(Errno::EOPNOTSUPP))
    );
    let refused = AllMemory::register(&without.near.pd).expect_err("no such card");
    assert!(refused.to_string().ends_with("register each zone"), "{refused}");
    let pinned = memory(&without.near, Form::Pinned);
    assert!(matches!(pinned.advise(0..4096, Advice::PREFETCH, true), Err(VerbsError::Unsupported { .. })));
    // Keys can be changed by no queue there: one for all memory is not to be had.
    let fixed = Rig::on(false, |builder| {
        builder.traits(|traits| {
            on_demand(traits);
            traits.change_keys = false;
        })
    });
    let caps = fixed.near.context.device().expect("capabilities");
    assert_eq!(caps.odp_caps.general_caps, OdpGeneral::SUPPORT.bits());
    AllMemory::register(&fixed.near.pd).expect_err("no such card");
}
