//! Commands of `/dev/infiniband/rdma_cm`, right and wrong, for one device whose port has one address: connections with itself, datagrams, a
//! group. The same commands each time, so that what Linux answers and what our own manager answers can be held against each other.

#[path = "room.rs"]
mod room;
#[path = "session.rs"]
mod session;

use pollux_uverbs::abi::connection::{
    Accept, Bind, Connect, CreateId, DestroyId, Disconnect, GetEvent, Listen, MigrateId, Notify, QUERY_ADDR,
    Query, Reject, ResolveAddr, ResolveRoute, SetOption, command, option, space,
};
use pollux_verbs::{AsyncKind, Errno};
use session::{CLIENT, QPN, SERVER, Session, address, ip, parameters};

pub(crate) use room::Room;

/// The device's address.
pub(crate) const ADDRESS: &str = "10.0.0.1";
const OWN: [u8; 4] = [10, 0, 0, 1];

/// An open file of a connection manager's.
pub(crate) trait Commands {
    /// Writes a command, whose answer comes to `room`. Nothing waits.
    fn write(&self, room: &Room, bytes: &[u8]) -> Result<(), Errno>;

    /// Its descriptor, by which other files name it.
    fn descriptor(&self) -> u32;
}

/// The commands and their answers, with a file for who listens and another one for who connects.
pub(crate) fn calls<F: Commands>(open: impl Fn() -> F) -> String {
    let mut tour = Session::new([open(), open()]);
    tour.heads();
    tour.creation();
    tour.unknown();
    tour.binding();
    tour.options();
    tour.resolution();
    tour.connection();
    tour.refusals();
    tour.datagrams();
    tour.groups();
    tour.migration();
    tour.lines
}

impl<F: Commands> Session<F> {
    /// What no table has, and what is cut.
    fn heads(&mut self) {
        for cmd in [13, 25, 99, u32::MAX] {
            self.tell(CLIENT, &format!("command {cmd}"), cmd, &[0_u8; 8]);
        }
        self.line(CLIENT, "nothing", &[]);
        self.line(CLIENT, "half a head", &[0; 7]);
        let mut cut = Self::bytes(command::LISTEN, &Listen::default(), 0);
        cut.truncate(12);
        self.line(CLIENT, "a cut body", &cut);
        self.no_event(CLIENT);
        let response = self.room.address();
        let short = Self::bytes(command::GET_EVENT, &GetEvent { response }, 100);
        self.line(CLIENT, "event in 100 bytes", &short);
    }

    fn creation(&mut self) {
        let response = self.room.address();
        let usual = CreateId { uid: 1, response, ps: space::TCP, ..CreateId::default() };
        for (what, create) in [
            ("in no space", CreateId { ps: 0, ..usual }),
            ("in a space of nobody's", CreateId { ps: 0x0107, ..usual }),
            ("answered nowhere", CreateId { response: 16, ..usual }),
        ] {
            self.line(CLIENT, &format!("create {what}"), &Self::bytes(command::CREATE_ID, &create, 4));
        }
        self.line(CLIENT, "create in 3 bytes", &Self::bytes(command::CREATE_ID, &usual, 3));
        for ps in [space::TCP, space::UDP, space::IB] {
            let id = self.create(CLIENT, "one", 1, ps);
            self.queries(CLIENT, "one", id);
            self.attributes(CLIENT, "one", id);
            self.destroy(CLIENT, "one", id);
        }
    }

    /// Each command of an ID that is not there, of one of another file's, and of one that is new.
    fn unknown(&mut self) {
        let id = self.create(SERVER, "another's", 1, space::TCP);
        self.each("unknown", 0x7777);
        self.each("another's", id);
        self.destroy(SERVER, "another's", id);
        let id = self.create(CLIENT, "new", 1, space::UDP);
        self.each("new", id);
        self.destroy(CLIENT, "new", id);
    }

    /// Each command but those that only move an ID's state.
    fn each(&mut self, what: &str, id: u32) {
        let response = self.room.address();
        let conn_param = parameters(QPN, b"data");
        self.tell(
            CLIENT,
            &format!("connect {what}"),
            command::CONNECT,
            &Connect { conn_param, id, ..Connect::default() },
        );
        self.tell(
            CLIENT,
            &format!("connect {what}, invalid"),
            command::CONNECT,
            &Connect { id, ..Connect::default() },
        );
        self.tell(
            CLIENT,
            &format!("accept {what}"),
            command::ACCEPT,
            &Accept { uid: 5, conn_param, id, ..Accept::default() },
        );
        self.tell(CLIENT, &format!("establish {what}"), command::ACCEPT, &Accept { id, ..Accept::default() });
        self.tell(CLIENT, &format!("reject {what}"), command::REJECT, &Reject { id, ..Reject::default() });
        self.tell(CLIENT, &format!("disconnect {what}"), command::DISCONNECT, &Disconnect { id });
        for event in [AsyncKind::COMM_EST.0, 99] {
            self.tell(CLIENT, &format!("notify {what} of {event}"), command::NOTIFY, &Notify { id, event });
        }
        self.tell(
            CLIENT,
            &format!("resolve the route of {what}"),
            command::RESOLVE_ROUTE,
            &ResolveRoute { id, timeout_ms: 100 },
        );
        self.option(CLIENT, &format!("type of service of {what}"), id, (0, option::TOS), &[8]);
        let leave = DestroyId { response, id: 0x7777, ..DestroyId::default() };
        self.ask::<u32>(CLIENT, "leave no group", command::LEAVE_MCAST, &leave, |_| {});
        self.query(CLIENT, what, id, QUERY_ADDR);
        let query = Query { response, id, option: 9 };
        self.line(CLIENT, &format!("query 9 of {what}"), &Self::bytes(command::QUERY, &query, 300));
        let query = Query { response, id, option: QUERY_ADDR };
        self.line(CLIENT, &format!("query {what} in 100 bytes"), &Self::bytes(command::QUERY, &query, 100));
        self.attributes(CLIENT, what, id);
        self.route(CLIENT, what, id);
        let query = Query { response, id, option: 0 };
        for bytes in [100, 199] {
            let what = format!("query the route of {what} in {bytes} bytes");
            self.line(CLIENT, &what, &Self::bytes(command::QUERY_ROUTE, &query, bytes));
        }
        self.join_ip(&format!("{what} to its own address"), id, ip(OWN, 0));
        self.join(CLIENT, &format!("join {what} to its own address"), id, (OWN, 16), 0);
        if what != "new" {
            self.bind(CLIENT, what, id, address(OWN, 7000), 16);
            self.bind_ip(CLIENT, what, id, ip(OWN, 7000));
            self.resolve_ip(what, id, ip(OWN, 0), ip(OWN, 7174));
            self.listen(CLIENT, what, id);
            self.resolve(CLIENT, what, id, (0, 16), OWN);
            self.destroy(CLIENT, what, id);
        }
    }

    fn binding(&mut self) {
        let id = self.create(SERVER, "bound", 1, space::TCP);
        let own = address(OWN, 7174);
        let family = |family: u16| {
            let mut other = own;
            other[..2].copy_from_slice(&family.to_ne_bytes());
            other
        };
        for (what, addr, size) in [
            ("without an address", own, 0),
            ("to a short address", own, 15),
            ("to a long address", own, 28),
            ("to no family", family(0), 16),
            ("to a family of nobody's", family(77), 16),
            ("to an address of others", address([10, 0, 0, 99], 7174), 16),
            ("to a group", address([239, 1, 2, 3], 7174), 16),
        ] {
            self.bind(SERVER, what, id, addr, size);
        }
        let reserved = Bind { id, addr_size: 16, reserved: 1, addr: own };
        self.tell(SERVER, "bind with a reserved bit", command::BIND, &reserved);
        self.bind(SERVER, "to its address", id, own, 16);
        self.bind(SERVER, "again", id, own, 16);
        self.queries(SERVER, "bound", id);
        self.attributes(SERVER, "bound", id);
        let other = self.create(CLIENT, "other", 2, space::TCP);
        self.bind(CLIENT, "to a port in use", other, own, 16);
        self.bind(CLIENT, "any address to a port in use", other, address([0; 4], 7174), 16);
        let datagrams = self.create(CLIENT, "datagrams", 3, space::UDP);
        self.bind(CLIENT, "to the same port of another space", datagrams, own, 16);
        self.destroy(CLIENT, "datagrams", datagrams);
        for (what, addr) in [
            ("to no family", [0; 28]),
            ("to a family of nobody's", {
                let mut addr = ip(OWN, 7174);
                addr[0] = 77;
                addr
            }),
            ("to an address of InfiniBand's", {
                let mut addr = ip(OWN, 7174);
                addr[0] = 27;
                addr
            }),
            ("to an address of others", ip([10, 0, 0, 99], 7175)),
            ("to a port in use", ip(OWN, 7174)),
            ("any address to a port in use", ip([0; 4], 7174)),
        ] {
            self.bind_ip(CLIENT, what, other, addr);
        }
        self.bind(CLIENT, "to any port", other, address(OWN, 0), 16);
        self.query(CLIENT, "any port", other, QUERY_ADDR);
        self.destroy(CLIENT, "other", other);
        self.listen(SERVER, "bound", id);
        self.listen(SERVER, "twice", id);
        self.resolve(SERVER, "of who listens", id, (0, 16), OWN);
        self.bind(SERVER, "of who listens", id, own, 16);
        let connect = Connect { conn_param: parameters(QPN, b""), id, ..Connect::default() };
        self.tell(SERVER, "connect of who listens", command::CONNECT, &connect);
        self.destroy(SERVER, "bound", id);
        let id = self.create(SERVER, "unbound", 1, space::TCP);
        self.listen(SERVER, "unbound", id);
        self.query(SERVER, "unbound", id, QUERY_ADDR);
        self.destroy(SERVER, "unbound", id);
        let id = self.create(SERVER, "any", 1, space::TCP);
        self.bind(SERVER, "to any address", id, address([0; 4], 7174), 16);
        self.queries(SERVER, "any", id);
        self.destroy(SERVER, "any", id);
        let id = self.create(SERVER, "by IP", 1, space::TCP);
        self.bind_ip(SERVER, "to its address", id, ip(OWN, 7175));
        self.bind_ip(SERVER, "again", id, ip(OWN, 7175));
        self.queries(SERVER, "bound by IP", id);
        self.destroy(SERVER, "by IP", id);
    }

    fn options(&mut self) {
        for ps in [space::TCP, space::UDP] {
            let id = self.create(CLIENT, "options", 1, ps);
            for (name, value) in [
                (option::TOS, &[0x20][..]),
                (option::TOS, &[0; 4]),
                (option::REUSEADDR, &[1, 0, 0, 0]),
                (option::REUSEADDR, &[1]),
                (option::AFONLY, &[1, 0, 0, 0]),
                (option::AFONLY, &[1, 0]),
                (option::ACK_TIMEOUT, &[18]),
                (option::ACK_TIMEOUT, &[31]),
                (option::ACK_TIMEOUT, &[32]),
                (option::ACK_TIMEOUT, &[18, 0, 0, 0]),
                (77, &[1]),
                (option::TOS, &[]),
                (option::TOS, &[0; 64]),
            ] {
                self.option(CLIENT, "option", id, (option::LEVEL_ID, name), value);
            }
            self.option(CLIENT, "option", id, (7, 0), &[1]);
            let nowhere = SetOption { optval: 16, id, level: 0, optname: option::TOS, optlen: 1 };
            self.tell(CLIENT, "set what is nowhere", command::SET_OPTION, &nowhere);
            self.bind(CLIENT, "options", id, address(OWN, 7200), 16);
            self.option(CLIENT, "option of who is bound", id, (0, option::REUSEADDR), &[1, 0, 0, 0]);
            self.option(CLIENT, "option of who is bound", id, (0, option::AFONLY), &[1, 0, 0, 0]);
            self.option(CLIENT, "option of who is bound", id, (0, option::ACK_TIMEOUT), &[18]);
            let other = self.create(CLIENT, "sharer", 1, ps);
            self.option(CLIENT, "sharing", other, (0, option::REUSEADDR), &[1, 0, 0, 0]);
            self.bind(CLIENT, "to the same port, shared", other, address(OWN, 7200), 16);
            self.listen(CLIENT, "at a shared port", other);
            self.destroy(CLIENT, "sharer", other);
            self.destroy(CLIENT, "options", id);
        }
    }

    fn resolution(&mut self) {
        let id = self.create(CLIENT, "resolving", 1, space::TCP);
        for (what, sizes) in [
            ("to no address", (0, 0)),
            ("to a short address", (0, 15)),
            ("to a long address", (0, 28)),
            ("from a short address", (8, 16)),
        ] {
            self.resolve(CLIENT, what, id, sizes, OWN);
        }
        let usual = ResolveAddr {
            id,
            timeout_ms: 300,
            dst_size: 16,
            dst_addr: address(OWN, 7174),
            ..ResolveAddr::default()
        };
        for (what, resolve) in [
            ("with a reserved bit", ResolveAddr { reserved: 1, ..usual }),
            ("from others", ResolveAddr { src_size: 16, src_addr: address([10, 0, 0, 99], 0), ..usual }),
            ("to a family of nobody's", {
                let mut dst_addr = usual.dst_addr;
                dst_addr[0] = 77;
                ResolveAddr { dst_addr, ..usual }
            }),
        ] {
            self.tell(CLIENT, &format!("resolve {what}"), command::RESOLVE_ADDR, &resolve);
        }
        let nowhere = [0; 28];
        self.resolve_ip("to no family", id, nowhere, nowhere);
        self.resolve_ip("from a family of nobody's", id, [77; 28], ip(OWN, 7174));
        self.resolve_ip("from others", id, ip([10, 0, 0, 99], 0), ip(OWN, 7174));
        self.resolve(CLIENT, "nobody's address", id, (0, 16), [10, 0, 0, 99]);
        self.resolve(CLIENT, "twice at once", id, (0, 16), OWN);
        self.event(CLIENT);
        self.query(CLIENT, "who found nobody", id, QUERY_ADDR);
        self.resolve(CLIENT, "its own address", id, (16, 16), OWN);
        self.event(CLIENT);
        self.resolve(CLIENT, "again", id, (0, 16), OWN);
        self.bind(CLIENT, "who resolved", id, address(OWN, 0), 16);
        self.queries(CLIENT, "resolved", id);
        self.attributes(CLIENT, "resolved", id);
        let connect = Connect { conn_param: parameters(QPN, b""), id, ..Connect::default() };
        self.tell(CLIENT, "connect without a route", command::CONNECT, &connect);
        let route = ResolveRoute { id, timeout_ms: 300 };
        self.tell(CLIENT, "resolve the route", command::RESOLVE_ROUTE, &route);
        self.event(CLIENT);
        self.tell(CLIENT, "resolve the route again", command::RESOLVE_ROUTE, &route);
        self.queries(CLIENT, "routed", id);
        self.attributes(CLIENT, "routed", id);
        self.destroy(CLIENT, "resolving", id);
        for source in [nowhere, ip(OWN, 0)] {
            let id = self.create(CLIENT, "resolving by IP", 1, space::UDP);
            self.resolve_ip("its own address", id, source, ip(OWN, 7174));
            self.event(CLIENT);
            self.queries(CLIENT, "resolved by IP", id);
            self.destroy(CLIENT, "resolving by IP", id);
        }
    }

    /// An ID that has a route to whoever listens at a port.
    fn routed(&mut self, name: &'static str, ps: u16) -> u32 {
        let id = self.create(CLIENT, name, 0x11, ps);
        self.bind(CLIENT, name, id, address(OWN, 7300), 16);
        self.resolve(CLIENT, name, id, (0, 16), OWN);
        self.event(CLIENT);
        let route = ResolveRoute { id, timeout_ms: 300 };
        self.tell(CLIENT, "resolve the route", command::RESOLVE_ROUTE, &route);
        self.event(CLIENT);
        id
    }

    fn listening(&mut self, ps: u16) -> u32 {
        let id = self.create(SERVER, "listener", 0x22, ps);
        self.bind(SERVER, "listener", id, address(OWN, 7174), 16);
        self.listen(SERVER, "listener", id);
        id
    }

    /// An ID that has asked who listens, and the one that the request made.
    fn asked(&mut self, ps: u16) -> (u32, u32) {
        let client = self.routed("client", ps);
        self.connect(client, b"hello");
        (client, self.request("server"))
    }

    fn both_go(&mut self, client: u32, server: u32) {
        self.destroy(CLIENT, "client", client);
        self.destroy(SERVER, "server", server);
    }

    fn connection(&mut self) {
        let listener = self.listening(space::TCP);
        let client = self.routed("client", space::TCP);
        self.connect(client, &[7; 57]);
        self.connect(client, b"hello");
        let server = self.request("server");
        self.accept(server, &[7; 197]);
        self.event(CLIENT);
        self.accept(server, b"welcome");
        self.both_go(client, server);
        let client = self.routed("client", space::TCP);
        self.connect(client, b"hello");
        self.connect(client, b"hello");
        let server = self.request("server");
        self.queries(SERVER, "server", server);
        self.attributes(SERVER, "server", server);
        self.accept(server, b"welcome");
        self.event(CLIENT);
        self.attributes(CLIENT, "client", client);
        let establish = Accept { id: client, ..Accept::default() };
        self.tell(CLIENT, "establish", command::ACCEPT, &establish);
        self.event(SERVER);
        self.attributes(SERVER, "server", server);
        self.tell(CLIENT, "establish again", command::ACCEPT, &establish);
        for (file, id) in [(SERVER, server), (CLIENT, client)] {
            let notify = Notify { id, event: AsyncKind::COMM_EST.0 };
            self.tell(file, "notify of what is known", command::NOTIFY, &notify);
        }
        self.no_event(CLIENT);
        self.queries(CLIENT, "client", client);
        self.connect(client, b"");
        self.tell(
            CLIENT,
            "reject what is open",
            command::REJECT,
            &Reject { id: client, ..Reject::default() },
        );
        self.tell(CLIENT, "disconnect", command::DISCONNECT, &Disconnect { id: client });
        self.event(SERVER);
        self.tell(SERVER, "disconnect, too", command::DISCONNECT, &Disconnect { id: server });
        self.event(CLIENT);
        self.attributes(CLIENT, "client, which is over", client);
        self.tell(CLIENT, "disconnect again", command::DISCONNECT, &Disconnect { id: client });
        self.both_go(client, server);
        self.destroy(SERVER, "listener", listener);
    }

    fn refusals(&mut self) {
        let nobody = self.routed("client", space::TCP);
        self.connect(nobody, b"hello");
        self.event(CLIENT);
        self.attributes(CLIENT, "client, which nobody heard", nobody);
        self.connect(nobody, b"hello");
        self.destroy(CLIENT, "client", nobody);
        let listener = self.listening(space::TCP);
        for private in [&b""[..], b"go away", &[7; 148], &[7; 149]] {
            let (client, server) = self.asked(space::TCP);
            self.reject(server, private);
            if private.len() == 149 {
                // Not even said.
                self.destroy(SERVER, "server", server);
            }
            self.event(CLIENT);
            if private.len() != 149 {
                self.accept(server, b"");
                self.destroy(SERVER, "server", server);
            }
            self.destroy(CLIENT, "client", client);
        }
        self.destroy(SERVER, "listener", listener);
    }

    fn datagrams(&mut self) {
        let nobody = self.routed("client", space::UDP);
        self.connect(nobody, b"hello");
        self.event(CLIENT);
        self.destroy(CLIENT, "client", nobody);
        let listener = self.listening(space::UDP);
        let client = self.routed("client", space::UDP);
        self.queries(CLIENT, "client", client);
        self.attributes(CLIENT, "client", client);
        self.connect(client, &[7; 181]);
        self.connect(client, b"hello");
        let server = self.request("server");
        self.queries(SERVER, "server", server);
        self.attributes(SERVER, "server", server);
        self.accept(server, b"welcome");
        self.event(CLIENT);
        self.attributes(CLIENT, "client", client);
        self.tell(CLIENT, "disconnect", command::DISCONNECT, &Disconnect { id: client });
        self.both_go(client, server);
        let (client, server) = self.asked(space::UDP);
        self.accept(server, &[7; 137]);
        self.event(CLIENT);
        self.both_go(client, server);
        let (client, server) = self.asked(space::UDP);
        self.reject(server, b"no");
        self.event(CLIENT);
        self.both_go(client, server);
        self.destroy(SERVER, "listener", listener);
    }

    fn groups(&mut self) {
        const GROUP: [u8; 4] = [239, 1, 2, 3];
        for ps in [space::UDP, space::TCP] {
            let id = self.create(CLIENT, "member", 1, ps);
            self.join(CLIENT, "join unbound", id, (GROUP, 16), 0);
            self.bind(CLIENT, "member", id, address(OWN, 7400), 16);
            self.join(CLIENT, "join with a short address", id, (GROUP, 15), 0);
            self.join(CLIENT, "join with an odd flag", id, (GROUP, 16), 7);
            for (flags, name) in [(0, "membership"), (1, "sender")] {
                if let Some(number) = self.join(CLIENT, &format!("join {name}"), id, (GROUP, 16), flags) {
                    self.ids.push((number, name));
                    self.event(CLIENT);
                    let leave =
                        DestroyId { response: self.room.address(), id: number, ..DestroyId::default() };
                    self.ids.retain(|(_, of)| *of != name);
                    self.ask::<u32>(CLIENT, "leave", command::LEAVE_MCAST, &leave, |_| {});
                    self.ask::<u32>(CLIENT, "leave again", command::LEAVE_MCAST, &leave, |_| {});
                }
            }
            self.join_ip("to no family", id, [0; 28]);
            if let Some(number) = self.join_ip("membership", id, ip(GROUP, 0)) {
                self.ids.push((number, "membership by IP"));
                self.event(CLIENT);
                let leave = DestroyId { response: self.room.address(), id: number, ..DestroyId::default() };
                self.ids.retain(|(_, of)| *of != "membership by IP");
                self.ask::<u32>(CLIENT, "leave", command::LEAVE_MCAST, &leave, |_| {});
            }
            self.attributes(CLIENT, "member", id);
            self.destroy(CLIENT, "member", id);
        }
    }

    fn migration(&mut self) {
        let id = self.routed("mover", space::TCP);
        let response = self.room.address();
        let fd = self.files[CLIENT].descriptor();
        let migrate = MigrateId { response, id, fd };
        self.ask::<u32>(SERVER, "move to the server's file", command::MIGRATE_ID, &migrate, |_| {});
        self.query(CLIENT, "who left the file", id, QUERY_ADDR);
        let unknown = MigrateId { id: 0x7777, ..migrate };
        self.ask::<u32>(SERVER, "move nobody", command::MIGRATE_ID, &unknown, |_| {});
        self.destroy(SERVER, "mover", id);
    }
}
