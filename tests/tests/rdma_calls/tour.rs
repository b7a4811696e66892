//! One of each object of RDMA, made, changed, asked and destroyed on one device: the same calls of uverbs each time, so that what
//! Linux answers to them and what our own kernel answers can be held against each other. Nothing is sent.

#[path = "refusal.rs"]
mod refusal;

use std::sync::Arc;

use pollux_explain::normal;
use pollux_uverbs::Channel;
use pollux_uverbs::trace::{Lines, Traced};
use pollux_verbs::{
    Access, Advice, Ah, CompletionChannel, Connection, Context, Cq, CqOptions, Dm, Mr, Mw, MwType, Options,
    Path, Pd, Provider, Qp, QpAttributes, QpKind, QpOptions, QpState, Srq, SrqOptions, Xrcd,
};

/// The device's own address of IPv4: both ends of every path are here.
pub(crate) const ADDRESS: &str = "10.0.0.1";

/// The calls of the tour on a device that `open` opens, with their answers, in [normal](normal::normal) form.
pub(crate) fn calls(open: impl Fn() -> Arc<dyn Channel>) -> String {
    let lines = Lines::default();
    let traced = || Arc::new(Traced::new(open(), Box::new(lines.clone())));
    objects(&Context::open(traced(), Provider::Mlx5, Options::default()).expect("a context"));
    refusal::refused(traced());
    normal::normal(&lines.take(), normal::MLX5)
}

/// All rights.
fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// The objects as programs make them.
fn objects(context: &Context) {
    let path = device(context);
    let pd = Pd::new(context).expect("a domain");
    memory(context, &pd);
    completions(context);
    let cq = Cq::new(context, CqOptions::new(63)).expect("a completion queue");
    for kind in [QpKind::Rc, QpKind::Uc] {
        connected(&pd, &cq, kind, path);
    }
    datagrams(&pd, &cq, path);
    frames(&pd, &cq);
    shared(&pd, &cq, path);
    xrc(context, &pd, &cq, path);
}

/// What the device, its port and its tables say; a path from its address to itself.
fn device(context: &Context) -> Path {
    context.device().expect("attributes");
    context.port(1).expect("a port");
    assert!(context.port(2).is_err());
    let gids = context.gids().expect("a table");
    let own = gids.iter().find(|gid| std::net::Ipv6Addr::from(gid.gid).to_ipv4_mapped().is_some());
    let own = own.unwrap_or_else(|| panic!("no GID of {ADDRESS}: {gids:?}"));
    for gid in &gids {
        context.gid(1, gid.index).expect("a table");
    }
    // An entry that is empty, and one that is not there.
    assert_eq!(context.gid(1, 100).expect("a table"), None);
    assert!(context.gid(1, 4096).is_err() && context.gid(2, 0).is_err());
    context.clock().expect("a clock");
    Path { hop_limit: 1, ..Path::new(own.gid, u8::try_from(own.index).expect("a small table")) }
}

/// Regions of the process's memory and of the device's, and windows.
fn memory(context: &Context, pd: &Pd) {
    let mut mr = Mr::allocate(pd, 8192, Access::LOCAL_WRITE).expect("memory");
    mr.reregister(Some(all_rights()), None).expect("other rights");
    let another = Pd::new(context).expect("a domain");
    mr.reregister(None, Some(&another)).expect("another domain");
    drop(mr.replace(context.reserve(4096).expect("memory")).expect("other memory"));
    // Nothing is on demand.
    assert!(mr.advise(0..4096, Advice::PREFETCH, true).is_err());
    drop(mr.deregister().expect("nobody has it"));
    let relaxed = all_rights() | Access::MW_BIND | Access::RELAXED_ORDERING;
    drop(Mr::allocate(pd, 3 << 20, relaxed).expect("memory"));
    let zone = context.reserve(4096).expect("memory");
    drop(Mr::register(pd, zone, Access::LOCAL_WRITE | Access::ZERO_BASED).expect("memory"));
    for kind in [MwType::Type1, MwType::Type2] {
        drop(Mw::new(pd, kind).expect("a window"));
    }
    let dm = Dm::new(context, 256, 6).expect("memory of the device");
    let parts =
        [Mr::of_device(pd, &dm, 0..256, Access::LOCAL_WRITE), Mr::of_device(pd, &dm, 64..128, all_rights())];
    drop(parts.map(|part| part.expect("a region")));
    drop(dm);
    drop(Dm::new(context, 4096, 12).expect("memory of the device"));
}

/// Completion queues of each make.
fn completions(context: &Context) {
    let channel = CompletionChannel::new(context).expect("a channel");
    let mut cq =
        Cq::new(context, CqOptions { vector: 1, ..CqOptions::new(15).channel(&channel) }).expect("a queue");
    cq.moderate(16, 100).expect("a period");
    cq.resize(100).expect("larger");
    cq.resize(7).expect("smaller");
    drop(cq);
    let options = CqOptions { wide: true, ignore_overrun: true, ..CqOptions::new(1) };
    drop(Cq::new(context, options).expect("a queue"));
}

/// A pair of queue pairs that are connected with each other, through all states.
fn connected(pd: &Pd, cq: &Cq, kind: QpKind, path: Path) {
    let options = QpOptions::new(kind).depth(30, 50).pieces(3, 2).inline(64);
    let make = || Qp::new(pd, cq, cq, &options).expect("a queue pair");
    let (mut one, mut two) = (make(), make());
    for qp in [&mut one, &mut two] {
        qp.query().expect("values");
        qp.init(1, all_rights()).expect("INIT");
        qp.query().expect("values");
    }
    let numbers = [one.qpn(), two.qpn()];
    for (qp, peer) in [(&mut one, numbers[1]), (&mut two, numbers[0])] {
        let path = Path { service_level: 3, traffic_class: 0x68, flow_label: 0x12345, ..path };
        let connection = Connection {
            rq_psn: 0x11_1111,
            sq_psn: 0x22_2222,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 8,
            ..Connection::new(path, peer)
        };
        qp.ready_to_receive(&connection).expect("RTR");
        qp.query().expect("values");
        qp.ready_to_send(&connection).expect("RTS");
        qp.query().expect("values");
    }
    let rights = QpAttributes { access: Some(Access::REMOTE_READ), ..QpAttributes::default() };
    one.modify(&rights).expect("other rights");
    if kind == QpKind::Rc {
        one.modify(&QpAttributes { min_rnr_timer: Some(20), ..QpAttributes::state(QpState::RTS) })
            .expect("a timer");
    }
    one.query().expect("values");
    // Not every kernel has a way there.
    drop(one.modify(&QpAttributes::state(QpState::SQD)));
    one.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
    one.query().expect("values");
    one.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
    one.query().expect("values");
    one.init(1, Access::empty()).expect("INIT again");
}

/// A queue pair of datagrams, groups that it joins, and addresses.
fn datagrams(pd: &Pd, cq: &Cq, path: Path) {
    let mut qp = Qp::new(pd, cq, cq, &QpOptions::new(QpKind::Ud)).expect("a queue pair");
    let options = QpOptions { block_loopback: true, all_signalled: true, ..QpOptions::new(QpKind::Ud) };
    drop(Qp::new(pd, cq, cq, &options).expect("a queue pair"));
    qp.ready_datagram(1, 0x1234_5678, 0x33_3333).expect("RTS");
    qp.query().expect("values");
    qp.modify(&QpAttributes { qkey: Some(0x1111_1111), ..QpAttributes::state(QpState::RTS) }).expect("a key");
    let group = pollux_verbs::roce_gid("239.1.2.3".parse().expect("an address"));
    qp.attach_multicast(group, 0).expect("a group");
    qp.attach_multicast(group, 0).expect("the same again");
    qp.detach_multicast(group, 0).expect("a member");
    assert!(qp.detach_multicast(group, 0).is_err());
    qp.query().expect("values");
    drop(Ah::new(pd, &path).expect("an address"));
    let other = Path { service_level: 5, traffic_class: 0x20, flow_label: 0xabcde, hop_limit: 9, ..path };
    drop(Ah::new(pd, &other).expect("an address"));
    drop(Ah::new(pd, &Path { gid: group, ..path }).expect("an address"));
}

/// A queue pair of frames.
fn frames(pd: &Pd, cq: &Cq) {
    let mut qp = Qp::new(pd, cq, cq, &QpOptions::new(QpKind::Raw)).expect("a queue pair");
    qp.query().expect("values");
    qp.init(1, Access::empty()).expect("INIT");
    qp.ready_frames().expect("RTS");
    qp.query().expect("values");
    qp.modify(&QpAttributes::state(QpState::ERR)).expect("ERR");
    qp.query().expect("values");
    qp.modify(&QpAttributes::state(QpState::RESET)).expect("RESET");
}

/// A shared receive queue and a queue pair that receives through it.
fn shared(pd: &Pd, cq: &Cq, path: Path) {
    let srq = Srq::new(pd, &SrqOptions { pieces: 2, ..SrqOptions::new(100) }).expect("a shared queue");
    srq.query().expect("values");
    srq.set_limit(10).expect("a limit");
    srq.query().expect("values");
    let make = || Qp::with_srq(pd, cq, cq, &srq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    let (mut one, two) = (make(), make());
    one.init(1, all_rights()).expect("INIT");
    one.connect(&Connection::new(path, two.qpn())).expect("RTS");
    one.query().expect("values");
    drop((one, two));
    drop(srq);
    drop(Srq::new(pd, &SrqOptions { limit: 3, ..SrqOptions::new(1) }).expect("a shared queue"));
}

/// Domains, shared queues, senders and receivers of XRC.
fn xrc(context: &Context, pd: &Pd, cq: &Cq, path: Path) {
    let own = Xrcd::new(context).expect("a domain");
    let srq = Srq::xrc(pd, &own, cq, &SrqOptions::new(8)).expect("a shared queue");
    srq.query().expect("values");
    srq.set_limit(2).expect("a limit");
    srq.query().expect("values");
    let mut receiver = Qp::xrc_receiver(&own).expect("a receiver");
    let mut sender = Qp::new(pd, cq, cq, &QpOptions::new(QpKind::XrcSend)).expect("a sender");
    let numbers = [receiver.qpn(), sender.qpn()];
    for (qp, peer) in [(&mut receiver, numbers[1]), (&mut sender, numbers[0])] {
        qp.query().expect("values");
        qp.init(1, Access::REMOTE_WRITE).expect("INIT");
        let connection = Connection::new(path, peer);
        qp.ready_to_receive(&connection).expect("RTR");
        qp.query().expect("values");
        qp.ready_to_send(&connection).expect("RTS");
        qp.query().expect("values");
    }
    drop((srq, receiver, sender));
    let file = tempfile::tempfile().expect("a file");
    let shared = Xrcd::of_file(context, std::os::fd::AsFd::as_fd(&file)).expect("a domain");
    drop(Xrcd::of_file(context, std::os::fd::AsFd::as_fd(&file)).expect("the same domain"));
    let receiver = Qp::xrc_receiver(&shared).expect("a receiver");
    let opened = Qp::open(&shared, receiver.qpn()).expect("opened");
    opened.query().expect("values");
    drop((opened, receiver));
}
