//! The kernel's half of the connection manager's file: what it answers to commands that are right, wrong and hostile. That librdmacm's own
//! programs connect by it is tested with `mlx5-run`.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use pollux_cm::{ClientMemory, ManagementPort, Served, ServedFile};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::Cable;
use pollux_uverbs::abi::connection::{
    ADDRESS_BYTES, Accept, Bind, ConnParam, Connect, CreateId, DestroyId, EventResp, GetEvent, Head,
    InitQpAttr, JoinMcast, Listen, Notify, Query, QueryAddrResp, ResolveAddr, ResolveRoute, command, event,
    space,
};
use pollux_verbs::{Context, Errno, Options, Provider};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Memory of a program: 4,096 bytes from there.
const MEMORY: u64 = 0x10_000;

struct Memory(RefCell<Vec<u8>>);

impl Memory {
    fn place(address: u64, bytes: usize) -> Result<std::ops::Range<usize>, Errno> {
        let from =
            address.checked_sub(MEMORY).and_then(|from| usize::try_from(from).ok()).ok_or(Errno::EFAULT)?;
        let to = from.checked_add(bytes).filter(|to| *to <= 4096).ok_or(Errno::EFAULT)?;
        Ok(from..to)
    }
}

impl ClientMemory for Memory {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno> {
        into.copy_from_slice(&self.0.borrow()[Self::place(address, into.len())?]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno> {
        self.0.borrow_mut()[Self::place(address, from.len())?].copy_from_slice(from);
        Ok(())
    }
}

struct Client {
    file: ServedFile,
    memory: Memory,
}

impl Client {
    fn of(served: &Served) -> Self {
        Self { file: served.open(), memory: Memory(RefCell::new(vec![0; 4096])) }
    }

    fn ask(&self, cmd: u32, body: &(impl IntoBytes + Immutable), out: u16) -> Result<(), Errno> {
        let head = Head { cmd, r#in: body.as_bytes().len() as u16, out };
        self.file.command(&self.memory, &[head.as_bytes(), body.as_bytes()].concat())
    }

    fn answer<A: FromBytes>(&self) -> A {
        A::read_from_prefix(&self.memory.0.borrow()).expect("room").0
    }

    fn create(&self, uid: u64, ps: u16) -> u32 {
        let create = CreateId { uid, response: MEMORY, ps, ..CreateId::default() };
        self.ask(command::CREATE_ID, &create, 4).expect("made");
        self.answer()
    }

    fn event(&self) -> Result<EventResp, Errno> {
        let get = GetEvent { response: MEMORY };
        self.ask(command::GET_EVENT, &get, size_of::<EventResp>() as u16).map(|()| self.answer())
    }
}

fn address(ip: [u8; 4], port: u16) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip);
    bytes
}

/// Two managers, at the ends of a cable.
fn ends() -> [(Model, Served); 2] {
    let (one, other) = Cable::pair();
    [("near", "192.0.2.1/24", one), ("far", "192.0.2.2/24", other)].map(|(name, ip, plug)| {
        let model = Model::builder(name).door(DoorProfile::NEWEST).plugged(plug);
        let model = model.ip(ip.parse().expect("one")).build().expect("a model");
        let context = Context::open(model.open_for_management(), Provider::Mlx5, Options::default());
        let port = ManagementPort::open(&context.expect("a context"), 1).expect("the kernel's own");
        (model, Served::over(vec![port]))
    })
}

/// The next event of a client, while both managers work.
fn next(managers: &[&Served], client: &Client) -> EventResp {
    let begin = Instant::now();
    while !client.file.has_events() {
        managers.iter().for_each(|served| {
            served.work();
        });
        assert!(begin.elapsed() < Duration::from_secs(10), "no event");
    }
    client.event().expect("it waits")
}

fn work_for(managers: &[&Served], time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        managers.iter().for_each(|served| {
            served.work();
        });
    }
}

/// Two devices of one manager: each has local ports of its own, one that is for all addresses is for none else.
#[test]
fn local_ports_are_a_device_s_own() {
    let devices = [("one", "192.0.2.1/24"), ("other", "198.51.100.1/24")].map(|(name, ip)| {
        let model = Model::builder(name).door(DoorProfile::NEWEST).ip(ip.parse().expect("one"));
        let model = model.build().expect("a model");
        let context = Context::open(model.open_for_management(), Provider::Mlx5, Options::default());
        let port = ManagementPort::open(&context.expect("a context"), 1).expect("the kernel's own");
        (model, port)
    });
    let [(_one, near), (_other, far)] = devices;
    let served = Served::over(vec![near, far]);
    let client = Client::of(&served);
    let bind = |ip| {
        let id = client.create(1, space::TCP);
        let bind = Bind { id, addr_size: 16, addr: address(ip, 7174), ..Bind::default() };
        let bound = client.ask(command::BIND, &bind, 0);
        bound.map(|()| client.ask(command::LISTEN, &Listen { id, backlog: 1 }, 0).expect("it listens"))
    };
    let (one, other, any) = ([192, 0, 2, 1], [198, 51, 100, 1], [0; 4]);
    let taken = (Err(Errno::EADDRINUSE), Err(Errno::EADDRNOTAVAIL));
    assert_eq!((bind(one), bind(one), bind(any)), (Ok(()), taken.0, taken.1));
    assert_eq!((bind(other), bind(other)), (Ok(()), taken.0));
}

/// An ID that has asked for a connection of queue pair `qpn` to port 7174 of the far end.
fn asked(managers: &[&Served], client: &Client, qpn: u32) -> u32 {
    let id = client.create(0xabc, space::TCP);
    let dst_addr = address([192, 0, 2, 2], 7174);
    let resolve = ResolveAddr { id, timeout_ms: 2000, dst_size: 16, dst_addr, ..ResolveAddr::default() };
    client.ask(command::RESOLVE_ADDR, &resolve, 0).expect("asked");
    assert_eq!(next(managers, client).event, event::ADDR_RESOLVED);
    client.ask(command::RESOLVE_ROUTE, &ResolveRoute { id, timeout_ms: 2000 }, 0).expect("asked");
    assert_eq!(next(managers, client).event, event::ROUTE_RESOLVED);
    let conn_param = ConnParam { qp_num: qpn, valid: 1, ..ConnParam::default() };
    client.ask(command::CONNECT, &Connect { conn_param, id, ..Connect::default() }, 0).expect("asked");
    id
}

fn qpn_in(told: &EventResp) -> u32 {
    ConnParam::read_from_prefix(&told.param).expect("room").0.qp_num
}

fn served() -> (Model, Served) {
    // As of a kernel: programs have no queue pair 1, the kernel's own channel has.
    let model = Model::builder("served").door(DoorProfile::NEWEST).ip("192.0.2.1/24".parse().expect("one"));
    let model = model.build().expect("a model");
    let open = |channel| Context::open(channel, Provider::Mlx5, Options::default()).expect("a context");
    assert!(ManagementPort::open(&open(model.open()), 1).is_err(), "of the kernel");
    let port = ManagementPort::open(&open(model.open_for_management()), 1).expect("the kernel's own");
    (model, Served::over(vec![port]))
}

#[test]
fn ids_are_bound_asked_and_destroyed() {
    let (_model, served) = served();
    let [one, other] = [Client::of(&served), Client::of(&served)];
    let id = one.create(0xabc, space::TCP);
    let bind = |ip, port| Bind { id, addr_size: 16, addr: address(ip, port), ..Bind::default() };
    assert_eq!(one.ask(command::BIND, &bind([203, 0, 113, 1], 1), 0), Err(Errno::EADDRNOTAVAIL));
    assert_eq!(
        other.ask(command::BIND, &bind([192, 0, 2, 1], 7174), 0),
        Err(Errno::EINVAL),
        "of another file"
    );
    one.ask(command::BIND, &bind([192, 0, 2, 1], 7174), 0).expect("bound");
    one.ask(command::LISTEN, &Listen { id, backlog: 1 }, 0).expect("it listens");
    let query = Query { response: MEMORY, id, option: 0 };
    assert_eq!(one.ask(command::QUERY, &query, 100), Err(Errno::ENOSPC));
    one.ask(command::QUERY, &query, size_of::<QueryAddrResp>() as u16).expect("told");
    let told: QueryAddrResp = one.answer();
    assert_eq!(
        (told.src_size, &told.src_addr[..], told.port_num),
        (16, &address([192, 0, 2, 1], 7174)[..], 1)
    );
    assert_ne!(told.node_guid, [0; 8]);
    // Another one wants the port.
    let second = other.create(1, space::TCP);
    let taken = Bind { id: second, ..bind([192, 0, 2, 1], 7174) };
    assert_eq!(other.ask(command::BIND, &taken, 0), Err(Errno::EADDRINUSE));
    let destroy = DestroyId { response: MEMORY, id, reserved: 0 };
    one.ask(command::DESTROY_ID, &destroy, 4).expect("destroyed");
    assert_eq!(one.answer::<u32>(), 0, "events that were read");
    assert_eq!(one.ask(command::DESTROY_ID, &destroy, 4), Err(Errno::ENOENT));
    other.ask(command::BIND, &taken, 0).expect("free again");
    // With its file an ID goes.
    drop(other);
    let third = one.create(2, space::TCP);
    one.ask(command::BIND, &Bind { id: third, ..bind([192, 0, 2, 1], 7174) }, 0).expect("free again");
}

#[test]
fn events_are_read_and_counted() {
    let (_model, served) = served();
    let client = Client::of(&served);
    assert_eq!(client.event(), Err(Errno::EAGAIN));
    let id = client.create(0xabc, space::TCP);
    // Nobody has the address, on a wire that leads nowhere.
    let dst_addr = address([198, 51, 100, 9], 1);
    let resolve = ResolveAddr { id, timeout_ms: 1, dst_size: 16, dst_addr, ..ResolveAddr::default() };
    client.ask(command::RESOLVE_ADDR, &resolve, 0).expect("asked");
    assert!(client.file.has_events());
    let told = client.event().expect("an event");
    assert_eq!((told.uid, told.id, told.event), (0xabc, id, event::ADDR_ERROR));
    assert_eq!(told.status.cast_signed(), -Errno::ENETUNREACH.0);
    assert!(!client.file.has_events());
    // Nobody answers: the command is done at once, and the event comes in the time that it says.
    let (begin, timeout) = (Instant::now(), Duration::from_millis(250));
    let nobody = ResolveAddr { timeout_ms: 250, dst_addr: address([192, 0, 2, 77], 1), ..resolve };
    client.ask(command::RESOLVE_ADDR, &nobody, 0).expect("asked");
    assert_eq!(client.event(), Err(Errno::EAGAIN));
    assert!(begin.elapsed() < timeout, "{:?}", begin.elapsed());
    while !client.file.has_events() {
        served.work();
        assert!(begin.elapsed() < Duration::from_secs(2));
    }
    assert!(begin.elapsed() >= timeout);
    let told = client.event().expect("an event");
    assert_eq!((told.event, told.status.cast_signed()), (event::ADDR_ERROR, -Errno::ETIMEDOUT.0));
    client.ask(command::DESTROY_ID, &DestroyId { response: MEMORY, id, reserved: 0 }, 4).expect("destroyed");
    assert_eq!(client.answer::<u32>(), 2, "events that were read");
    // An ID of InfiniBand's own can be bound, which tells that commands take such addresses.
    let native = client.create(1, space::IB);
    let mut addr = [0; ADDRESS_BYTES];
    addr[..2].copy_from_slice(&27_u16.to_ne_bytes());
    client
        .ask(command::BIND, &Bind { id: native, addr_size: 48, addr, ..Bind::default() }, 0)
        .expect("taken");
    assert_eq!(client.ask(command::LISTEN, &Listen { id: native, backlog: 1 }, 0), Err(Errno::EINVAL));
    assert_eq!(
        client.ask(command::CREATE_ID, &CreateId { response: 8, ps: space::TCP, ..CreateId::default() }, 4),
        Err(Errno::EFAULT)
    );
    assert_eq!(client.ask(99, &0_u32, 0), Err(Errno::EINVAL));
    assert_eq!(client.ask(13, &0_u32, 0), Err(Errno::ENOSYS), "GET_OPTION, which no kernel has");
    assert_eq!(client.file.command(&client.memory, &[0; 7]), Err(Errno::EINVAL));
    let early = Connect { id: native, ..Connect::default() };
    assert_eq!(client.ask(command::CONNECT, &early, 0), Err(Errno::EINVAL));
    let state = InitQpAttr { response: MEMORY, id: client.create(2, space::TCP), qp_state: 2 };
    assert_eq!(client.ask(command::INIT_QP_ATTR, &state, 144), Err(Errno::EINVAL), "no connection");
}

#[test]
fn whatever_is_written_is_answered() {
    let (_model, served) = served();
    let client = Client::of(&served);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (mut done, mut last) = (0, 0);
    for turn in 0..20_000 {
        let mut bytes = vec![0; 8 + (random() % 300) as usize];
        bytes.iter_mut().for_each(|byte| *byte = random() as u8);
        let head = Head {
            cmd: (random() % 24) as u32,
            r#in: (bytes.len() - 8) as u16,
            out: (random() % 400) as u16,
        };
        bytes[..8].copy_from_slice(head.as_bytes());
        if turn % 20 == 0 {
            last = client.create(turn, if turn % 40 == 0 { space::TCP } else { space::UDP });
        }
        // Half of them have numbers of IDs and places of memory where they are looked for.
        if turn % 2 == 0 {
            for place in (8..bytes.len().saturating_sub(8)).step_by(8) {
                let word = match random() % 4 {
                    0 => MEMORY,
                    1 => u64::from(last).saturating_sub(random() % 3),
                    2 => u64::from(if random() % 2 == 0 { space::TCP } else { space::UDP }),
                    _ => random(),
                };
                bytes[place..place + 8].copy_from_slice(&word.to_ne_bytes());
            }
        }
        done += u32::from(client.file.command(&client.memory, &bytes).is_ok());
    }
    assert!(done > 100, "{done} commands were right by chance");
}

#[test]
fn events_of_connections_are_the_kernels() {
    let [(_one, near), (_two, far)] = ends();
    let managers = [&near, &far];
    let [client, server] = managers.map(Client::of);
    let listener = server.create(0x11, space::TCP);
    let addr = address([192, 0, 2, 2], 7174);
    server
        .ask(command::BIND, &Bind { id: listener, addr_size: 16, addr, ..Bind::default() }, 0)
        .expect("bound");
    server.ask(command::LISTEN, &Listen { id: listener, backlog: 8 }, 0).expect("it listens");
    let id = asked(&managers, &client, 0x77);
    // An event for which there is no memory is there still.
    let begin = Instant::now();
    let elsewhere = GetEvent { response: 8 };
    while server.ask(command::GET_EVENT, &elsewhere, 400) != Err(Errno::EFAULT) {
        assert!(begin.elapsed() < Duration::from_secs(10), "no request");
    }
    let request = next(&managers, &server);
    assert_eq!((request.event, request.uid, qpn_in(&request)), (event::CONNECT_REQUEST, 0x11, 0x77));
    let conn_param = ConnParam { qp_num: 0x55, valid: 1, ..ConnParam::default() };
    let accept = Accept { uid: 0x22, conn_param, id: request.id, ..Accept::default() };
    server.ask(command::ACCEPT, &accept, 0).expect("accepted");
    let response = next(&managers, &client);
    assert_eq!((response.event, response.id, qpn_in(&response)), (event::CONNECT_RESPONSE, id, 0x55));
    // Data came before the RTU.
    let notify = |event| server.ask(command::NOTIFY, &Notify { id: request.id, event }, 0);
    assert_eq!(notify(6), Err(Errno::EINVAL), "no other path");
    notify(4).expect("half open");
    assert_eq!(notify(4), Err(Errno::EISCONN));
    let established = next(&managers, &server);
    assert_eq!((established.event, established.uid), (event::ESTABLISHED, 0x22));
    // Of a request that fails before it is accepted nobody is told.
    let second = asked(&managers, &client, 0x78);
    let request = next(&managers, &server);
    assert_eq!((request.event, qpn_in(&request)), (event::CONNECT_REQUEST, 0x78));
    let destroy = DestroyId { response: MEMORY, id: second, reserved: 0 };
    assert_eq!(client.ask(command::DESTROY_ID, &destroy, 0), Err(Errno::ENOSPC), "nothing is done");
    client.ask(command::DESTROY_ID, &destroy, 4).expect("it is there");
    work_for(&managers, Duration::from_millis(100));
    assert!(!server.file.has_events());
    assert_eq!(server.event(), Err(Errno::EAGAIN));
    let late = Accept { uid: 0x33, id: request.id, ..accept };
    assert_eq!(server.ask(command::ACCEPT, &late, 0), Err(Errno::EINVAL));
    // The request and nothing else.
    server
        .ask(command::DESTROY_ID, &DestroyId { response: MEMORY, id: listener, reserved: 0 }, 4)
        .expect("gone");
    assert_eq!(server.answer::<u32>(), 2);
}

#[test]
fn groups_are_joined_whole_or_not_at_all() {
    let (_model, served) = served();
    let client = Client::of(&served);
    let id = client.create(0xabc, space::UDP);
    let addr = address([192, 0, 2, 1], 0);
    client.ask(command::BIND, &Bind { id, addr_size: 16, addr, ..Bind::default() }, 0).expect("bound");
    let addr = address([239, 1, 2, 3], 0);
    let join = JoinMcast { response: MEMORY, uid: 0xdef, id, addr_size: 16, addr, ..JoinMcast::default() };
    assert_eq!(client.ask(command::JOIN_MCAST, &join, 0), Err(Errno::ENOSPC));
    assert_eq!(client.ask(command::JOIN_MCAST, &JoinMcast { response: 8, ..join }, 4), Err(Errno::EFAULT));
    assert!(!client.file.has_events());
    client.ask(command::JOIN_MCAST, &join, 4).expect("not joined before");
    let membership = client.answer();
    let told = client.event().expect("it joined");
    assert_eq!((told.event, told.uid, told.id), (event::MULTICAST_JOIN, 0xdef, membership));
    let leave = DestroyId { response: MEMORY, id: membership, reserved: 0 };
    assert_eq!(client.ask(command::LEAVE_MCAST, &leave, 0), Err(Errno::ENOSPC));
    client.ask(command::LEAVE_MCAST, &leave, 4).expect("it left");
    assert_eq!(client.answer::<u32>(), 1, "events of the membership");
    client.ask(command::DESTROY_ID, &DestroyId { id, ..leave }, 4).expect("destroyed");
    assert_eq!(client.answer::<u32>(), 1, "they are the ID's as well");
}
