//! Connections by address between models of a card, over the manager of this process.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use pollux_cm::{
    ConnectionParameters, Event, EventChannel, EventKind, Id, IdOptions, ManagementPort, Manager, PortSpace,
    RejectReason, Timing, private_data,
};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::{Cable, Impairments};
use pollux_verbs::{
    Ah, Buffers, Context, Cq, CqOptions, Errno, Options, Pd, Provider, Qp, QpKind, QpOptions, QpState,
};

const LIMIT: Duration = Duration::from_secs(20);
/// Answers within 134 ms and 15 retries, so that tests of what is lost end soon. A host that is asked may have to ask the wire itself who
/// asks, and says meanwhile what it knows.
const QUICK: Timing = Timing { response: 15, retries: 15, lifetime: 10, service: 12 };

/// A device, and what connects over it.
struct Host {
    context: Context,
    channel: EventChannel,
    manager: Manager,
    ip: &'static str,
    _model: Model,
}

impl Host {
    fn new(name: &str, ip: &'static str, plug: Cable, impairments: Impairments) -> Self {
        Self::with(name, &[ip], plug, impairments)
    }

    /// With these addresses, of which its own is the first.
    fn with(name: &str, ips: &[&'static str], plug: Cable, impairments: Impairments) -> Self {
        let door = DoorProfile { management: true, ..DoorProfile::NEWEST };
        let mut model = Model::builder(name).door(door).plugged(plug).impairments(impairments);
        for ip in ips {
            model = model.ip(format!("{ip}/24").parse().expect("an address"));
        }
        let (model, ip) = (model.build().expect("a model"), ips[0]);
        let context = Context::open(model.open(), Provider::Mlx5, Options::default()).expect("a context");
        let port = ManagementPort::open(&context, 1).expect("queue pair 1");
        let manager = Manager::with_timing(vec![port], QUICK);
        let channel = manager.channel().expect("a channel");
        Self { context, channel, manager, ip, _model: model }
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip.parse().expect("an address"), port)
    }

    fn id(&self) -> Id {
        self.channel.create_id(PortSpace::Tcp).expect("an ID")
    }

    fn listener(&self, port: u16, backlog: u32) -> Id {
        let id = self.id();
        id.bind(self.at(port)).expect("an address of its own");
        id.listen(backlog).expect("it listens");
        id
    }

    /// A queue pair for an ID, and its domain and completion queue.
    fn queue(&self, id: &Id) -> (Qp, Pd, Cq) {
        let pd = Pd::new(&self.context).expect("a domain");
        let cq = Cq::new(&self.context, CqOptions::new(64)).expect("a queue");
        let qp = id.create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc).depth(8, 8).inline(32));
        (qp.expect("a queue pair"), pd, cq)
    }

    fn resolve(&self, id: &Id, to: SocketAddr) {
        id.resolve_address(None, to, LIMIT).expect("asked");
        assert!(matches!(self.next().kind, EventKind::AddressResolved));
        id.resolve_route(LIMIT).expect("asked");
        assert!(matches!(self.next().kind, EventKind::RouteResolved));
    }

    fn next(&self) -> Event {
        self.channel.wait(LIMIT).expect("no error").expect("an event in time")
    }
}

fn hosts_on(impairments: Impairments) -> [Host; 2] {
    let (near, far) = Cable::pair();
    [
        Host::new("near", "192.0.2.1", near, impairments),
        Host::new("far", "192.0.2.2", far, Impairments::default()),
    ]
}

fn hosts() -> [Host; 2] {
    hosts_on(Impairments::default())
}

/// A server that takes one connection, and its data; then the client's end.
fn serve(host: Host, listener: Id) -> (Vec<u8>, Host) {
    let EventKind::ConnectRequest { id, parameters } = host.next().kind else { panic!("a request") };
    let (mut qp, pd, mut cq) = host.queue(&id);
    let buffers = Buffers::new(&pd, 1, 64).expect("buffers");
    let mut receives = qp.receives().expect("a ring");
    receives.piece(1, buffers.take().expect("a buffer"));
    receives.ring().expect("posted");
    id.accept(&mut qp, &parameters.private_data(*b"welcome")).expect("accepted");
    let mut received = None;
    let begin = Instant::now();
    let mut events = Vec::new();
    while received.is_none() || !events.contains(&"RDMA_CM_EVENT_DISCONNECTED") {
        cq.poll(1, |wc| {
            received = wc.take_buf().filter(|_| wc.is_ok()).map(|buffer| buffer.to_vec()).or(received.take())
        });
        events.extend(host.channel.next().expect("no error").map(|event| event.kind.name()));
        assert!(begin.elapsed() < LIMIT, "{events:?}");
    }
    id.disconnect(&mut qp).expect("agreed");
    // What is said is heard before the device goes.
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        host.channel.next().expect("no error");
    }
    drop(listener);
    (received.expect("data"), host)
}

fn connect_and_send(near: &Host, to: SocketAddr) {
    let id = near.id();
    // 67 ms: the wire may lose its packets, too.
    id.set_options(IdOptions { ack_timeout: Some(14), ..IdOptions::default() }).expect("set");
    near.resolve(&id, to);
    assert_eq!(id.peer_address(), Some(to));
    assert_eq!(id.local_address().map(|local| local.ip().to_string()).as_deref(), Some(near.ip));
    let (mut qp, _pd, mut cq) = near.queue(&id);
    id.connect(&qp, &ConnectionParameters::default().private_data(*b"hello")).expect("asked");
    let parameters = match near.next().kind {
        EventKind::ConnectResponse(parameters) => parameters,
        other => panic!("{other} in place of a response; {:?}", near.manager.counts()),
    };
    assert_eq!(&parameters.private_data[..8], b"welcome\0");
    id.establish(&mut qp).expect("established");
    assert_eq!(qp.state(), QpState::RTS);
    let mut batch = qp.batch();
    batch.send(1).inline(b"by address").signalled();
    batch.ring().expect("posted");
    let (begin, mut sent) = (Instant::now(), false);
    while !sent {
        cq.poll(1, |wc| {
            assert!(wc.is_ok(), "{wc:?}");
            sent = true;
        });
        near.channel.next().expect("no error");
        assert!(begin.elapsed() < LIMIT, "not sent");
    }
    id.disconnect(&mut qp).expect("asked");
    assert!(matches!(near.next().kind, EventKind::Disconnected));
    assert!(matches!(near.next().kind, EventKind::TimewaitExit));
}

/// What was said last is heard.
#[test]
fn who_leaves_at_once_is_heard() {
    let [near, far] = hosts();
    let (listener, to) = (far.listener(7, 1), far.at(7));
    let server = std::thread::spawn(move || {
        let asked = far.next();
        assert!(matches!(asked.kind, EventKind::ConnectRequest { .. }));
        drop((asked, listener, far));
    });
    let id = near.id();
    near.resolve(&id, to);
    let (qp, _pd, _cq) = near.queue(&id);
    id.connect(&qp, &ConnectionParameters::default()).expect("asked");
    server.join().expect("it ends");
    assert!(matches!(near.next().kind, EventKind::Rejected { .. }));
}

/// A peer may ask for more READs at once than the device can: it is told of what it can.
#[test]
fn reads_at_once_are_no_more_than_the_device_can() {
    let [near, far] = hosts();
    let limits = far.context.device().expect("attributes").base;
    assert!(limits.max_qp_rd_atom < 200 && limits.max_qp_init_rd_atom < 200);
    let (listener, to) = (far.listener(7, 1), far.at(7));
    let server = std::thread::spawn(move || {
        let EventKind::ConnectRequest { id, parameters } = far.next().kind else { panic!("a request") };
        assert_eq!((parameters.responder_resources, parameters.initiator_depth), (200, 255));
        let (mut qp, _pd, _cq) = far.queue(&id);
        id.accept(&mut qp, &parameters).expect("accepted");
        assert!(matches!(far.next().kind, EventKind::Established(_)));
        drop((id, qp, listener));
    });
    let id = near.id();
    near.resolve(&id, to);
    let (mut qp, _pd, _cq) = near.queue(&id);
    let ask = ConnectionParameters { responder_resources: 255, initiator_depth: 200, ..Default::default() };
    id.connect(&qp, &ask).expect("asked");
    let EventKind::ConnectResponse(answer) = near.next().kind else { panic!("a response") };
    let told = (u32::from(answer.responder_resources), u32::from(answer.initiator_depth));
    assert_eq!(told, (limits.max_qp_init_rd_atom, limits.max_qp_rd_atom));
    id.establish(&mut qp).expect("established");
    server.join().expect("it ends");
}

#[test]
fn connections_are_made_by_address_and_carry_data() {
    let [near, far] = hosts();
    let (listener, to) = (far.listener(7174, 3), far.at(7174));
    let server = std::thread::spawn(move || serve(far, listener));
    connect_and_send(&near, to);
    assert_eq!(server.join().expect("it ends").0, b"by address");
}

#[test]
fn what_the_wire_loses_is_said_again() {
    let mut again = 0;
    for seed in 1..=8 {
        let bad = Impairments { loss: 0.12, dup: 0.2, seed, ..Impairments::default() };
        let [near, far] = hosts_on(bad);
        let (listener, to) = (far.listener(7174, 3), far.at(7174));
        let server = std::thread::spawn(move || serve(far, listener));
        connect_and_send(&near, to);
        let (data, far) = server.join().expect("it ends");
        assert_eq!(data, b"by address", "seed {seed}");
        again +=
            [&near, &far].map(|host| host.manager.counts().expect("its own").sent_again).iter().sum::<u64>();
    }
    assert!(again > 0, "nothing was lost");
}

#[test]
fn who_says_no_is_heard_with_its_reason() {
    let [near, far] = hosts();
    let to = far.at(7174);
    let ask = |near: &Host| {
        let id = near.id();
        near.resolve(&id, to);
        let (qp, ..) = near.queue(&id);
        id.connect(&qp, &ConnectionParameters::default()).expect("asked");
        (id, qp)
    };
    // Nobody listens.
    let (id, _qp) = ask(&near);
    far.channel.wait(Duration::from_millis(50)).expect("no error");
    let rejected = near.next();
    assert_eq!(rejected.id, id.number());
    assert!(
        matches!(rejected.kind, EventKind::Rejected { reason: RejectReason::INVALID_SERVICE_ID, .. }),
        "{}",
        rejected.kind
    );
    // The program says no, with a word; or lets go of the request.
    let listener = far.listener(7174, 1);
    for word in [Some(&b"not today"[..]), None] {
        let (_id, _qp) = ask(&near);
        let EventKind::ConnectRequest { id: request, parameters } = far.next().kind else { panic!() };
        assert_eq!(parameters.private_data.len(), private_data::CONNECT);
        match word {
            Some(word) => request.reject(word).expect("it was asked"),
            None => drop(request),
        }
        let EventKind::Rejected { reason, private_data } = near.next().kind else { panic!() };
        assert_eq!(reason, RejectReason::CONSUMER_DEFINED);
        assert_eq!(private_data.starts_with(b"not today"), word.is_some());
    }
    // One may wait; the second is rejected.
    let (_first, _first_qp) = ask(&near);
    let EventKind::ConnectRequest { id: waiting, .. } = far.next().kind else { panic!() };
    let (second, _second_qp) = ask(&near);
    far.channel.wait(Duration::from_millis(50)).expect("no error");
    let rejected = near.next();
    assert_eq!(rejected.id, second.number());
    assert!(matches!(rejected.kind, EventKind::Rejected { .. }), "{}", rejected.kind);
    // It listens no more.
    drop((waiting, listener));
    assert!(matches!(near.next().kind, EventKind::Rejected { .. }));
    let (_id, _qp) = ask(&near);
    far.channel.wait(Duration::from_millis(50)).expect("no error");
    let kind = near.next().kind;
    assert!(matches!(kind, EventKind::Rejected { reason: RejectReason::INVALID_SERVICE_ID, .. }), "{kind}");
}

#[test]
fn who_cannot_be_reached_is_told() {
    let [near, far] = hosts();
    // Nobody has the address; it is in no subnet.
    let timeout = Duration::from_millis(500);
    for (address, errno) in [("192.0.2.77:1", Errno::ETIMEDOUT), ("198.51.100.1:1", Errno::ENETUNREACH)] {
        let id = near.id();
        let begin = Instant::now();
        id.resolve_address(None, address.parse().expect("an address"), timeout).expect("asked");
        assert!(begin.elapsed() < timeout, "{address}: the call waits for nobody");
        match near.next().kind {
            EventKind::AddressError(found) => assert_eq!(found, errno, "{address}"),
            other => panic!("{address}: {other}"),
        }
        assert_eq!(begin.elapsed() >= timeout, errno == Errno::ETIMEDOUT, "{address}");
        // It may be asked for again.
        id.resolve_address(None, far.at(7174), LIMIT).expect("free again");
        assert!(matches!(near.next().kind, EventKind::AddressResolved));
    }
    // Others are served meanwhile.
    let (nobody, somebody) = (near.id(), near.id());
    nobody.resolve_address(None, "192.0.2.78:1".parse().expect("an address"), LIMIT).expect("asked");
    let line = nobody.resolve_address(None, far.at(1), LIMIT).expect_err("twice").to_string();
    assert!(line.starts_with("cannot resolve an address: "), "{line}");
    near.resolve(&somebody, far.at(7174));
    drop((nobody, somebody));
    // Its manager hangs: it is asked again and again, and given up.
    let listener = far.listener(7174, 1);
    let id = near.id();
    near.resolve(&id, far.at(7174));
    let (qp, ..) = near.queue(&id);
    let begin = Instant::now();
    id.connect(&qp, &ConnectionParameters::default()).expect("asked");
    let kind = near.next().kind;
    assert!(matches!(kind, EventKind::Unreachable(Errno::ETIMEDOUT)), "{kind}");
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    assert_eq!(near.manager.counts().expect("its own").sent_again, 15);
    drop((id, listener));
}

#[test]
fn addresses_and_ports_are_held_by_one() {
    let [near, _far] = hosts();
    let stranger = near.id().bind("203.0.113.1:1".parse().expect("an address")).expect_err("not ours");
    let line = stranger.to_string();
    assert!(line.starts_with("203.0.113.1:1 is the address of no RDMA device here; addresses: "), "{line}");
    assert!(line.contains("192.0.2.1"), "{line}");
    let first = near.listener(5000, 1);
    let second = near.id();
    let line = second.bind(near.at(5000)).expect_err("in use").to_string();
    assert_eq!(line, "port 5000 of Tcp is in use; choose another, or 0 for any");
    // A port of datagrams is another one.
    let datagrams = near.channel.create_id(PortSpace::Udp).expect("an ID");
    datagrams.bind(near.at(5000)).expect("free");
    drop(first);
    second.bind(near.at(5000)).expect("free again");
    // Any port, each time another.
    let any: Vec<u16> = (0..3)
        .map(|_| {
            let id = near.id();
            id.bind(near.at(0)).expect("free");
            let port = id.local_address().expect("bound").port();
            std::mem::forget(id);
            port
        })
        .collect();
    assert!(any[0] != any[1] && any[1] != any[2] && any.iter().all(|port| *port >= 49_152), "{any:?}");
    // Shared by two families, each of which says that it wants its own alone.
    let own_family_only = IdOptions { own_family_only: true, ..IdOptions::default() };
    let families = ["0.0.0.0:6100", "[::]:6100"].map(|all| {
        let id = near.id();
        id.set_options(own_family_only).expect("set");
        id.bind(all.parse().expect("an address")).expect("all addresses of a family");
        id.listen(1).expect("it listens");
        id
    });
    drop(families);
    let one = near.id();
    one.bind("0.0.0.0:6100".parse().expect("an address")).expect("free");
    let other = near.id();
    other.set_options(own_family_only).expect("set");
    other.bind("[::]:6100".parse().expect("an address")).expect_err("the first wants both families");
    // Shared by all who say so, as long as none listens.
    let shared: Vec<Id> = (0..2)
        .map(|_| {
            let id = near.id();
            id.set_options(IdOptions { reuse_address: true, ..IdOptions::default() }).expect("set");
            id.bind(near.at(6000)).expect("shared");
            id
        })
        .collect();
    near.id().bind(near.at(6000)).expect_err("it does not share");
    let line = shared[0].listen(1).expect_err("the other has the port, too").to_string();
    assert_eq!(line, "port 6000 of Tcp is in use; choose another, or 0 for any");
    let [first, second] = <[Id; 2]>::try_from(shared).expect("two");
    drop(second);
    first.listen(1).expect("it is alone");
    let late = near.id();
    late.set_options(IdOptions { reuse_address: true, ..IdOptions::default() }).expect("set");
    late.bind(near.at(6000)).expect_err("one listens");
    drop(first);
    late.bind(near.at(6000)).expect("free");
}

#[test]
fn two_addresses_of_a_device_may_have_one_local_port() {
    let ips = ["192.0.2.2", "192.0.2.3"];
    let (near, far) = Cable::pair();
    let near = Host::new("near", "192.0.2.1", near, Impairments::default());
    let far = Host::with("far", &ips, far, Impairments::default());
    let at = |ip: &str| SocketAddr::new(ip.parse().expect("an address"), 7174);
    let listeners = ips.map(|ip| {
        let id = far.id();
        id.bind(at(ip)).expect("nobody has it at this address");
        id.listen(1).expect("it listens");
        id
    });
    far.id().bind(at("0.0.0.0")).expect_err("two have it");
    let ask = |ip| {
        let id = near.id();
        near.resolve(&id, at(ip));
        let (qp, ..) = near.queue(&id);
        id.connect(&qp, &ConnectionParameters::default()).expect("asked");
        (id, qp)
    };
    for (ip, listener) in ips.iter().zip(&listeners) {
        let _asked = ask(ip);
        let event = far.next();
        assert_eq!(
            (event.id, event.kind.name()),
            (listener.number(), "RDMA_CM_EVENT_CONNECT_REQUEST"),
            "{ip}"
        );
        drop(event);
        assert!(matches!(near.next().kind, EventKind::Rejected { .. }));
    }
    // Of two the one goes, and the other stays.
    let [first, second] = listeners;
    drop(first);
    let _asked = ask(ips[0]);
    far.channel.wait(Duration::from_millis(50)).expect("no error");
    let kind = near.next().kind;
    assert!(matches!(kind, EventKind::Rejected { reason: RejectReason::INVALID_SERVICE_ID, .. }), "{kind}");
    let _asked = ask(ips[1]);
    assert_eq!(far.next().id, second.number());
}

#[test]
fn what_is_out_of_order_is_one_line() {
    let [near, far] = hosts();
    let listener = far.listener(7174, 1);
    let id = near.id();
    let line = |error: pollux_cm::CmError| error.to_string();
    assert_eq!(
        line(id.resolve_route(LIMIT).expect_err("early")),
        "cannot resolve a route: resolve the address first"
    );
    assert_eq!(line(id.reject(&[]).expect_err("nothing")), "cannot reject: the ID has no connection");
    near.resolve(&id, far.at(7174));
    let (mut qp, pd, cq) = near.queue(&id);
    let long = ConnectionParameters::default().private_data(vec![0; private_data::CONNECT + 1]);
    assert_eq!(
        line(id.connect(&qp, &long).expect_err("too long")),
        "57 bytes of private data: there is room for 56"
    );
    let unreliable = id.create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Uc)).expect("a queue pair");
    assert_eq!(
        line(id.connect(&unreliable, &ConnectionParameters::default()).expect_err("of UC")),
        "connecting this queue pair: only queue pairs of RC connect"
    );
    id.connect(&qp, &ConnectionParameters::default()).expect("asked");
    id.connect(&qp, &ConnectionParameters::default()).expect_err("asked already");
    id.bind(near.at(1)).expect_err("bound already");
    assert_eq!(
        line(id.establish(&mut qp).expect_err("early")),
        "cannot tell attributes of a queue pair: the ID has no connection that far: connect, or wait for a response"
    );
    let EventKind::ConnectRequest { id: request, .. } = far.next().kind else { panic!("a request") };
    let (mut theirs, ..) = far.queue(&request);
    let ready = request.qp_attributes(QpState::RTR).expect("what the peer said is known");
    assert_eq!(ready.dest_qpn, Some(qp.qpn()));
    let long = ConnectionParameters::default().private_data(vec![0; 197]);
    assert_eq!(
        line(request.accept(&mut theirs, &long).expect_err("too long")),
        "197 bytes of private data: there is room for 196"
    );
    assert_eq!(
        line(request.reject(&[0; 149]).expect_err("too long")),
        "149 bytes of private data: there is room for 148"
    );
    drop(listener);
}

/// Who is told of what moves with the ID.
#[test]
fn events_follow_an_id_to_another_channel() {
    let [near, far] = hosts();
    let id = near.id();
    let elsewhere = near.manager.channel().expect("a channel");
    id.resolve_address(None, far.at(1), LIMIT).expect("asked");
    // It waits already.
    let begin = Instant::now();
    while id.device().expect("no error").is_none() {
        assert!(elsewhere.next().expect("no error").is_none() && begin.elapsed() < LIMIT);
    }
    id.migrate(&elsewhere).expect("the same manager");
    id.resolve_route(LIMIT).expect("asked");
    assert!(near.channel.next().expect("no error").is_none());
    for name in ["RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ROUTE_RESOLVED"] {
        let event = elsewhere.next().expect("no error").expect("an event");
        assert_eq!((event.id, event.kind.name()), (id.number(), name));
    }
    let line = id.migrate(&far.channel).expect_err("another manager").to_string();
    assert_eq!(line, "cannot move the ID: the channel is of another manager");
    // Without a channel it goes on; nobody hears of it. Who asks for a connection there is rejected.
    drop(elsewhere);
    drop(id);
    let unheard = far.manager.channel().expect("a channel");
    let listener = unheard.create_id(PortSpace::Tcp).expect("an ID");
    listener.bind(far.at(7174)).expect("bound");
    listener.listen(1).expect("it listens");
    drop(unheard);
    let id = near.id();
    near.resolve(&id, far.at(7174));
    let (qp, ..) = near.queue(&id);
    id.connect(&qp, &ConnectionParameters::default()).expect("asked");
    far.channel.wait(Duration::from_millis(50)).expect("no error");
    let kind = near.next().kind;
    assert!(matches!(kind, EventKind::Rejected { .. }), "{kind}");
}

#[test]
fn datagrams_find_their_queue_pair_by_address() {
    let [near, far] = hosts();
    let udp = QpOptions::new(QpKind::Ud).depth(8, 8).inline(32);
    let listener = far.channel.create_id(PortSpace::Udp).expect("an ID");
    listener.bind(far.at(7174)).expect("bound");
    listener.listen(0).expect("it listens");
    let to = far.at(7174);
    let server = std::thread::spawn(move || {
        let EventKind::DatagramRequest { id, private_data } = far.next().kind else { panic!("a request") };
        assert!(private_data.starts_with(b"which?") && private_data.len() == private_data::DATAGRAM_CONNECT);
        let pd = Pd::new(&far.context).expect("a domain");
        let mut cq = Cq::new(&far.context, CqOptions::new(64)).expect("a queue");
        let mut qp = id.create_qp(&pd, &cq, &cq, &udp).expect("a queue pair");
        let buffers = Buffers::new(&pd, 1, 128).expect("buffers");
        let mut receives = qp.receives().expect("a ring");
        receives.piece(1, buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
        id.accept_datagrams(&qp, b"this one").expect("told");
        let (begin, mut received) = (Instant::now(), None);
        while received.is_none() {
            cq.poll(1, |wc| received = wc.take_buf());
            far.channel.next().expect("no error");
            assert!(begin.elapsed() < LIMIT, "no datagram");
        }
        drop(listener);
        received.expect("a datagram")[40..].to_vec()
    });
    let id = near.channel.create_id(PortSpace::Udp).expect("an ID");
    near.resolve(&id, to);
    id.connect_datagrams(b"which?").expect("asked");
    let EventKind::DatagramEstablished { path, qpn, qkey, private_data } = near.next().kind else {
        panic!("an answer")
    };
    assert_eq!((qkey, &private_data[..9]), (0x0123_4567, &b"this one\0"[..]));
    let pd = Pd::new(&near.context).expect("a domain");
    let cq = Cq::new(&near.context, CqOptions::new(64)).expect("a queue");
    let mut qp = id.create_qp(&pd, &cq, &cq, &udp).expect("a queue pair");
    let ah = Ah::new(&pd, &path).expect("an address");
    let mut batch = qp.batch();
    batch.send(1).to(&ah, qpn, qkey).inline(b"a datagram").signalled();
    batch.ring().expect("posted");
    assert_eq!(server.join().expect("it ends"), b"a datagram");
    // Nobody listens on another port.
    drop((qp, id));
}

#[test]
fn a_multicast_group_hears_what_is_sent_to_it() {
    let [near, far] = hosts();
    let group: IpAddr = "239.1.2.3".parse().expect("an address");
    let udp = QpOptions::new(QpKind::Ud).depth(8, 8).inline(32);
    let [sender, receiver] = [&near, &far].map(|host| {
        let id = host.channel.create_id(PortSpace::Udp).expect("an ID");
        let line = id.join_multicast(group, false).expect_err("early").to_string();
        assert_eq!(line, "cannot join: bind the ID to an address, or resolve one, first");
        id.resolve_address(Some(host.at(0)), SocketAddr::new(group, 0), LIMIT).expect("asked");
        assert!(matches!(host.next().kind, EventKind::AddressResolved));
        let line = id.join_multicast("10.0.0.1".parse().expect("one"), false).expect_err("none").to_string();
        assert_eq!(line, "cannot join: the address is of no multicast group");
        id.join_multicast(group, false).expect("joined");
        let EventKind::MulticastJoined { path, qpn, qkey } = host.next().kind else { panic!("joined") };
        assert_eq!(
            (path.gid[10..].to_vec(), qpn, qkey),
            (vec![0xff, 0xff, 239, 1, 2, 3], 0xff_ffff, 0x0123_4567)
        );
        let line = id.join_multicast(group, false).expect_err("twice").to_string();
        assert_eq!(line, "cannot join: the ID is in the group");
        let pd = Pd::new(&host.context).expect("a domain");
        let cq = Cq::new(&host.context, CqOptions::new(64)).expect("a queue");
        let mut qp = id.create_qp(&pd, &cq, &cq, &udp).expect("a queue pair");
        let buffers = Buffers::new(&pd, 2, 128).expect("buffers");
        let mut receives = qp.receives().expect("a ring");
        receives.piece(1, buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
        (id, path, pd, cq, qp)
    });
    let (far_id, path, _far_pd, mut far_cq, far_qp) = receiver;
    let (_near_id, to, near_pd, _near_cq, mut near_qp) = sender;
    far_qp.attach_multicast(path.gid, path.lid).expect("attached");
    let ah = Ah::new(&near_pd, &to).expect("an address");
    let mut batch = near_qp.batch();
    batch.send(1).to(&ah, 0xff_ffff, 0x0123_4567).inline(b"to all").signalled();
    batch.ring().expect("posted");
    let (begin, mut heard) = (Instant::now(), None);
    while heard.is_none() {
        far_cq.poll(1, |wc| heard = wc.take_buf());
        assert!(begin.elapsed() < LIMIT, "nothing heard");
    }
    assert_eq!(&heard.expect("a datagram")[40..], b"to all");
    far_qp.detach_multicast(path.gid, path.lid).expect("detached");
    far_id.leave_multicast(group).expect("left");
    let line = far_id.leave_multicast(group).expect_err("left already").to_string();
    assert_eq!(line, "cannot leave: the ID is not in the group");
    // A group is for datagrams.
    let line = near.id().join_multicast(group, false).expect_err("of connections").to_string();
    assert_eq!(line, "cannot join: the ID is of connections: make one of PortSpace::Udp");
}

/// A kernel keeps queue pair 1; a port has one.
#[test]
fn queue_pair_1_is_one_managers() {
    let plain = Model::builder("plain").build().expect("a model");
    let context = Context::open(plain.open(), Provider::Mlx5, Options::default()).expect("a context");
    let refused = ManagementPort::open(&context, 1).expect_err("the kernel's");
    assert_eq!(refused.errno(), Some(Errno::EINVAL), "{refused}");
    let door = DoorProfile { management: true, ..DoorProfile::NEWEST };
    let model = Model::builder("open").door(door).build().expect("a model");
    let context = Context::open(model.open(), Provider::Mlx5, Options::default()).expect("a context");
    let first = ManagementPort::open(&context, 1).expect("free");
    let other = Context::open(model.open(), Provider::Mlx5, Options::default()).expect("a context");
    let refused = ManagementPort::open(&other, 1).expect_err("taken");
    assert_eq!(refused.errno(), Some(Errno::EBUSY), "{refused}");
    drop(first);
    ManagementPort::open(&other, 1).expect("free again");
}

/// A request that nobody has heard of goes with its listener, and what happens to it later as well.
#[test]
fn requests_follow_their_listener() {
    let [near, far] = hosts();
    let listener = far.listener(7174, 1);
    let elsewhere = far.manager.channel().expect("a channel");
    let id = near.id();
    near.resolve(&id, far.at(7174));
    let (mut qp, ..) = near.queue(&id);
    id.connect(&qp, &ConnectionParameters::default()).expect("asked");
    let begin = Instant::now();
    while far.manager.counts().expect("its own").received == 0 {
        assert!(elsewhere.next().expect("no error").is_none() && begin.elapsed() < LIMIT);
    }
    listener.migrate(&elsewhere).expect("the same manager");
    let wait = || elsewhere.wait(LIMIT).expect("no error").expect("an event in time").kind;
    let EventKind::ConnectRequest { id: request, parameters } = wait() else { panic!("a request") };
    let (mut theirs, ..) = far.queue(&request);
    request.accept(&mut theirs, &parameters.private_data(*b"welcome")).expect("accepted");
    assert!(matches!(near.next().kind, EventKind::ConnectResponse(_)));
    id.establish(&mut qp).expect("established");
    assert!(matches!(wait(), EventKind::Established(_)));
    assert!(far.channel.next().expect("no error").is_none());
}

#[test]
fn any_address_is_one_of_both_families_unless_said() {
    let [near, far] = hosts();
    for own_family_only in [false, true] {
        let listener = far.id();
        let options = IdOptions { own_family_only, ..IdOptions::default() };
        listener.set_options(options).expect("set");
        listener.bind("[::]:7174".parse().expect("an address")).expect("free");
        listener.listen(1).expect("it listens");
        let id = near.id();
        near.resolve(&id, far.at(7174));
        let (qp, ..) = near.queue(&id);
        id.connect(&qp, &ConnectionParameters::default()).expect("asked");
        let event = far.channel.wait(Duration::from_millis(100)).expect("no error");
        assert_eq!(event.is_none(), own_family_only);
        drop(event);
        let EventKind::Rejected { reason, .. } = near.next().kind else { panic!("a rejection") };
        assert_eq!(reason == RejectReason::INVALID_SERVICE_ID, own_family_only, "{reason}");
    }
}
