//! Two cards with two ports each, and a cable between the ports of each number.

use std::sync::{Arc, Mutex};

use pollux_mlx5_kernel::InterfaceAddress;
use pollux_mlx5_model::Device;
use pollux_mlx5_model::wire::Cable;
use pollux_verbs::{
    Access, Ah, AsyncKind, Connection, Cq, Element, Path, PortState, Qp, QpAttributes, QpKind, QpOptions,
    QpState, VerbsError, WcStatus,
};

use crate::rig::{QKEY, Rig, Side, all_rights};

const PORTS: [u8; 2] = [1, 2];
const GROUP: [u8; 16] = [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];

/// The cards; each card's second port has an address of its own.
fn two_ports() -> Rig {
    let (near, far) = Cable::pair();
    let ends = Mutex::new(vec![(far, 2), (near, 1)]);
    Rig::on(true, |builder| {
        let (end, number) = ends.lock().expect("no panic").pop().expect("two cards");
        let address: InterfaceAddress = format!("192.0.2.{number}/24").parse().expect("an address");
        builder.second_plugged(end, [2, 0, 0, 0, 2, number], address)
    })
}

/// The function whose wire a port's is.
fn device(side: &Side, port: u8) -> &Arc<Device> {
    if port == 1 { side.model.device() } else { side.model.second_device().expect("a second port") }
}

/// Frames to single stations that left by each port.
fn sent(side: &Side) -> [u64; 2] {
    PORTS.map(|port| device(side, port).port_counters().sent.unicast.packets)
}

struct End<'a> {
    side: &'a Side,
    qp: Qp,
    cq: Cq,
    gid: [u8; 16],
}

impl<'a> End<'a> {
    /// In INIT, at a port.
    fn new(side: &'a Side, port: u8, kind: QpKind) -> Self {
        let cq = side.cq(64);
        let options = QpOptions::new(kind).depth(8, 8).inline(64);
        let mut qp = Qp::new(&side.pd, &cq, &cq, &options).expect("a queue pair");
        if kind == QpKind::Ud {
            qp.ready_datagram(port, QKEY, 0).expect("RTS");
        } else {
            qp.init(port, all_rights()).expect("INIT");
        }
        Self { side, qp, cq, gid: side.context.gid(port, 0).expect("a table").expect("an entry").gid }
    }

    /// Connects it to an end at that port.
    fn connect(&mut self, port: u8, to: &End<'_>) {
        let path = Path { port, ..Path::new(to.gid, 0) };
        let connection = Connection { timeout: 1, retries: 1, ..Connection::new(path, to.qp.qpn()) };
        self.qp.connect(&connection).expect("RTS");
    }

    fn receive(&mut self) {
        let mut receives = self.qp.receives().expect("its own");
        receives.piece(1, self.side.buffers.take().expect("a buffer"));
        receives.ring().expect("posted");
    }

    fn send(&mut self) {
        let mut batch = self.qp.batch();
        batch.send(2).inline(b"by this port").signalled();
        batch.ring().expect("posted");
    }

    /// How many messages have come.
    fn heard(&mut self) -> usize {
        let mut heard = 0;
        self.cq.poll(8, |wc| {
            heard += 1;
            while wc.take().is_some() {}
        });
        heard
    }

    fn send_to(&mut self, ah: &Ah, qpn: u32) {
        let mut batch = self.qp.batch();
        batch.send(2).to(ah, qpn, QKEY).inline(b"by this port").signalled();
        batch.ring().expect("posted");
    }
}

/// Connected ends at a port, one on each side.
fn connected<'a>(sides: [&'a Side; 2], port: u8) -> [End<'a>; 2] {
    let [mut one, mut other] = sides.map(|side| End::new(side, port, QpKind::Rc));
    one.connect(port, &other);
    other.connect(port, &one);
    [one, other]
}

/// A message that arrives.
fn exchange(rig: &Rig, [one, other]: &mut [End<'_>; 2]) {
    other.receive();
    one.send();
    for end in [one, other] {
        assert_eq!(rig.completions(&mut end.cq, 1)[0].status, WcStatus::SUCCESS);
    }
}

#[test]
fn each_port_tells_of_itself() {
    let rig = two_ports();
    let context = &rig.near.context;
    assert_eq!(context.device().expect("attributes").base.phys_port_cnt, 2);
    rig.turn();
    assert_eq!(PORTS.map(|port| context.port_state(port).expect("a port")), [PortState::Active; 2]);
    assert!(context.port_state(3).is_err() && context.port_state(0).is_err());
    let gids = context.gids().expect("tables");
    for port in PORTS {
        let own: Vec<_> = gids.iter().filter(|gid| gid.port == u32::from(port)).collect();
        // The link-local one, made of the port's MAC, and one of IPv4.
        assert_eq!(own.len(), 2, "{gids:?}");
        assert_eq!(own[0].gid, context.gid(port, 0).expect("a table").expect("an entry").gid);
        assert_eq!(own[0].gid[13..], device(&rig.near, port).mac()[3..]);
        assert_eq!(context.gid(port, 2).expect("a table"), None);
    }
    assert_eq!(context.gid(2, 1).expect("a table").expect("an entry").gid[12..], [192, 0, 2, 1]);
    assert!(context.gid(3, 0).is_err());
    while context.next_event().expect("readable").is_some() {}
    device(&rig.near, 2).set_link(false);
    let mut seen = None;
    rig.until("event", || {
        seen = context.next_event().expect("readable");
        seen.is_some()
    });
    let event = seen.expect("an event");
    assert_eq!((event.kind, event.element), (AsyncKind::PORT_ERR, Element::Port(2)));
    assert_eq!(
        PORTS.map(|port| context.port_state(port).expect("a port")),
        [PortState::Active, PortState::Down]
    );
    assert_eq!(context.port_speed_mbps(2).expect("a speed"), Some(0));
    device(&rig.near, 2).set_link(true);
    rig.until("link", || context.port_state(2).expect("a port") == PortState::Active);
}

#[test]
fn messages_take_the_wire_of_their_port() {
    for kind in [QpKind::Rc, QpKind::Uc, QpKind::Ud] {
        for port in PORTS {
            let rig = two_ports();
            let mut near = End::new(&rig.near, port, kind);
            let mut far = End::new(&rig.far, port, kind);
            if kind != QpKind::Ud {
                near.connect(port, &far);
                far.connect(port, &near);
            }
            far.receive();
            let before = sent(&rig.near);
            if kind == QpKind::Ud {
                let path = Path { port, ..Path::new(far.gid, 0) };
                let ah = Ah::new(&rig.near.pd, &path).expect("an address");
                near.send_to(&ah, far.qp.qpn());
            } else {
                near.send();
            }
            assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS, "{kind} at {port}");
            let got = rig.completions(&mut far.cq, 1).remove(0);
            let header = if kind == QpKind::Ud { 40 } else { 0 };
            assert_eq!((got.status, &got.data()[header..]), (WcStatus::SUCCESS, &b"by this port"[..]));
            let after = sent(&rig.near);
            let new = [after[0] - before[0], after[1] - before[1]];
            assert_eq!(new, if port == 1 { [1, 0] } else { [0, 1] }, "{kind} at {port}");
        }
    }
}

#[test]
fn both_ports_at_once_and_a_broken_one_beside_a_sound_one() {
    let rig = two_ports();
    let mut ends = PORTS.map(|port| connected([&rig.near, &rig.far], port));
    let both = |ends: &mut [[End<'_>; 2]; 2]| {
        for [near, far] in ends {
            far.receive();
            near.send();
        }
    };
    both(&mut ends);
    for end in ends.as_flattened_mut() {
        assert_eq!(rig.completions(&mut end.cq, 1)[0].status, WcStatus::SUCCESS);
    }
    device(&rig.far, 2).set_link(false);
    both(&mut ends);
    let [[near1, _], [near2, _]] = &mut ends;
    assert_eq!(rig.completions(&mut near1.cq, 1)[0].status, WcStatus::SUCCESS);
    assert_eq!(rig.completions(&mut near2.cq, 1)[0].status, WcStatus::RETRY_EXC_ERR);
}

#[test]
fn a_queue_pair_hears_its_own_port_alone() {
    let rig = two_ports();
    let mut far = End::new(&rig.far, 2, QpKind::Ud);
    far.receive();
    let (at1, at2) = (far_gid(&rig, 1), far.gid);
    // To its number at the other port; then to its address, by the wire of the other port; then as it should be.
    for (port, gid, hears) in [(1, at1, false), (1, at2, false), (2, at1, false), (2, at2, true)] {
        let mut near = End::new(&rig.near, port, QpKind::Ud);
        let ah = Ah::new(&rig.near.pd, &Path { port, ..Path::new(gid, 0) }).expect("an address");
        near.send_to(&ah, far.qp.qpn());
        assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
        rig.turn();
        assert_eq!(far.heard() == 1, hears, "from port {port} to {gid:?}");
    }
}

fn far_gid(rig: &Rig, port: u8) -> [u8; 16] {
    rig.far.context.gid(port, 0).expect("a table").expect("an entry").gid
}

#[test]
fn a_group_is_heard_at_the_port_that_it_is_sent_to() {
    let rig = two_ports();
    for from in PORTS {
        let mut members = PORTS.map(|port| End::new(&rig.far, port, QpKind::Ud));
        for member in &mut members {
            member.receive();
            member.qp.attach_multicast(GROUP, 0).expect("a member");
        }
        let mut near = End::new(&rig.near, from, QpKind::Ud);
        let path = Path { port: from, ..Path::new(GROUP, 0) };
        let ah = Ah::new(&rig.near.pd, &path).expect("an address");
        near.send_to(&ah, 0xff_ffff);
        assert_eq!(rig.completions(&mut near.cq, 1)[0].status, WcStatus::SUCCESS);
        rig.turn();
        let heard = members.each_mut().map(|member| member.heard());
        assert_eq!(heard, if from == 1 { [1, 0] } else { [0, 1] }, "from port {from}");
        for member in &members {
            member.qp.detach_multicast(GROUP, 0).expect("a member no more");
        }
    }
}

/// What goes back to the port that it leaves by takes no wire; what goes to the card's other port does.
#[test]
fn a_port_hears_itself_and_not_the_other_one() {
    let rig = two_ports();
    for port in PORTS {
        let mut ends = connected([&rig.near; 2], port);
        let before = sent(&rig.near);
        exchange(&rig, &mut ends);
        assert_eq!(sent(&rig.near), before);
    }
    let mut one = End::new(&rig.near, 1, QpKind::Rc);
    let mut other = End::new(&rig.near, 2, QpKind::Rc);
    one.connect(1, &other);
    other.connect(2, &one);
    other.receive();
    one.send();
    assert_eq!(rig.completions(&mut one.cq, 1)[0].status, WcStatus::RETRY_EXC_ERR);
}

#[test]
fn ports_that_do_not_go_together_are_refused() {
    let rig = two_ports();
    let side = &rig.near;
    let refused = |result: Result<(), VerbsError>, what: &str| {
        let error = result.expect_err(what).to_string();
        assert!(error.contains("EINVAL"), "{what}: {error}");
    };
    let cq = side.cq(8);
    let mut qp = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
    refused(qp.init(3, Access::empty()), "a third port");
    qp.init(1, Access::empty()).expect("INIT");
    let other = Path { port: 2, ..Path::new(rig.far.gid, 0) };
    refused(qp.ready_to_receive(&Connection::new(other, 1)), "a path from another port");
    // An alternate path is at the port that is said to be its.
    let mut near = End::new(side, 1, QpKind::Rc);
    let far = End::new(&rig.far, 1, QpKind::Rc);
    let alternate = |port| Path { port, ..Path::new(rig.far.gid, 0) };
    let connection = Connection::new(alternate(1), far.qp.qpn());
    near.qp.ready_to_receive(&connection).expect("RTR");
    near.qp.ready_to_send(&connection).expect("RTS");
    let third =
        near.qp.modify(&QpAttributes { alternate: Some((alternate(3), 0, 1)), ..QpAttributes::default() });
    refused(third, "an alternate path at a third port");
    let mut raw = Qp::new(&side.pd, &cq, &cq, &QpOptions::new(QpKind::Raw)).expect("a queue pair");
    refused(raw.init(2, Access::empty()), "frames by the second port");
    assert_eq!(raw.state(), QpState::RESET);
    let third = Path { port: 3, ..Path::new(rig.far.gid, 0) };
    Ah::new(&side.pd, &third).map(drop).expect_err("a third port");
}

/// The function of the second port is pulled out: what is sent there is lost, and the first port works on.
#[test]
fn a_second_function_that_is_gone_holds_nobody_up() {
    let rig = two_ports();
    device(&rig.near, 2).remove();
    let mut near = End::new(&rig.near, 2, QpKind::Ud);
    let gid = far_gid(&rig, 2);
    let ah = Ah::new(&rig.near.pd, &Path { port: 2, ..Path::new(gid, 0) }).expect("an address");
    for _ in 0..300 {
        for _ in 0..8 {
            near.send_to(&ah, 7);
        }
        let done = rig.completions(&mut near.cq, 8);
        assert!(done.iter().all(|done| done.status == WcStatus::SUCCESS), "{done:?}");
    }
    rig.near.model.settle();
    exchange(&rig, &mut connected([&rig.near, &rig.far], 1));
}

/// Peers in the port's subnet are asked for on the port's wire.
#[test]
fn addresses_are_found_by_their_ports() {
    let rig = two_ports();
    let gid = rig.far.context.gid(2, 1).expect("a table").expect("an entry").gid;
    let mut far = End::new(&rig.far, 2, QpKind::Ud);
    far.receive();
    let mut near = End::new(&rig.near, 2, QpKind::Ud);
    let path = Path { port: 2, ..Path::new(gid, 1) };
    let mut found = None;
    rig.until("answer", || {
        found = Ah::new(&rig.near.pd, &path).ok();
        found.is_some()
    });
    near.send_to(&found.expect("an address"), far.qp.qpn());
    let got = rig.completions(&mut far.cq, 1).remove(0);
    assert_eq!(&got.data()[40..], b"by this port");
    // From port 1, whose own address is of another subnet, nobody can be asked.
    Ah::new(&rig.near.pd, &Path { port: 1, ..path }).map(drop).expect_err("no way there");
}
