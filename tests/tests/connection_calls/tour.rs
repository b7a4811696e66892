//! Commands of `/dev/infiniband/rdma_cm`, right and wrong, for one device whose port has one address: connections with itself, datagrams, a
//! group. The same commands each time, so that what Linux answers and what our own manager answers can be held against each other.

#[path = "room.rs"]
mod room;

use std::fmt::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

use pollux_uverbs::abi::connection::{
    ADDRESS_BYTES, Accept, Bind, ConnParam, Connect, CreateId, DestroyId, Disconnect, EventResp, GetEvent,
    Head, InitQpAttr, JoinMcast, Listen, MigrateId, Notify, QUERY_ADDR, QUERY_GID, QUERY_PATH, QpAttr, Query,
    QueryAddrResp, QueryPathResp, Reject, ResolveAddr, ResolveRoute, SetOption, command, event, option,
    space,
};
use pollux_uverbs::abi::flags::QpMask;
use pollux_verbs::{AsyncKind, Errno};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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
    let mut tour = Tour { files: [open(), open()], room: Room::new(), ids: Vec::new(), lines: String::new() };
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

/// Which of the files.
const SERVER: usize = 0;
const CLIENT: usize = 1;

/// How long an event may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The flow label of the path in `UdParam`.
const LABEL: Range<usize> = 24..28;

/// What paths of RoCE do not use, where Linux tells of a service and of a MAC address.
const UNUSED: [Range<usize>; 2] = [16..24, 56..60];
/// The flow label of the first path of an answer.
const PATH_LABEL: Range<usize> = size_of::<QueryPathResp>() + 52..size_of::<QueryPathResp>() + 55;

const QPN: u32 = 0x123;
const PEER_QPN: u32 = 0x456;

struct Tour<F> {
    files: [F; 2],
    room: Room,
    /// The manager's numbers of IDs and memberships, and what they are called here.
    ids: Vec<(u32, &'static str)>,
    lines: String,
}

/// Bytes in hexadecimal, rows of zeros counted.
fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    for run in bytes.chunk_by(|one, other| *one == 0 && *other == 0) {
        match run {
            [0, 0, 0, ..] => write!(out, "{{{}}}", run.len()),
            _ => run.iter().try_for_each(|byte| write!(out, "{byte:02x}")),
        }
        .expect("room");
    }
    out
}

fn address(ip: [u8; 4], port: u16) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip);
    bytes
}

/// An address whose port the manager chose has no port.
fn without_chosen_port(bytes: &mut [u8; ADDRESS_BYTES]) {
    if u16::from_be_bytes([bytes[2], bytes[3]]) >= 0x8000 {
        bytes[2..4].fill(0xff);
    }
}

fn parameters(qp_num: u32, private: &[u8]) -> ConnParam {
    let mut param = ConnParam {
        qp_num,
        responder_resources: 4,
        initiator_depth: 3,
        flow_control: 1,
        retry_count: 5,
        rnr_retry_count: 6,
        valid: 1,
        private_data_len: private.len() as u8,
        ..ConnParam::default()
    };
    param.private_data[..private.len()].copy_from_slice(private);
    param
}

impl<F: Commands> Tour<F> {
    /// Writes bytes as they are, and takes down what comes of it as `shown` says.
    fn raw(&mut self, file: usize, what: &str, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
        self.room.clear();
        let outcome = self.files[file].write(&self.room, bytes).map(|()| self.room.answer());
        match &outcome {
            Ok(_) => write!(self.lines, "{what} -> ok"),
            Err(errno) => write!(self.lines, "{what} -> {}", errno.name().unwrap_or("unnamed")),
        }
        .expect("room");
        outcome
    }

    fn end_line(&mut self, more: &str) {
        writeln!(self.lines, "{more}").expect("room");
    }

    fn line(&mut self, file: usize, what: &str, bytes: &[u8]) {
        let answer = self.raw(file, what, bytes).unwrap_or_default();
        let more = if answer.is_empty() { String::new() } else { format!(" {}", hex(&answer)) };
        self.end_line(&more);
    }

    fn bytes(cmd: u32, body: &(impl IntoBytes + Immutable), out: usize) -> Vec<u8> {
        let head = Head { cmd, r#in: body.as_bytes().len() as u16, out: out as u16 };
        [head.as_bytes(), body.as_bytes()].concat()
    }

    /// A command without an answer.
    fn tell(&mut self, file: usize, what: &str, cmd: u32, body: &(impl IntoBytes + Immutable)) {
        self.line(file, what, &Self::bytes(cmd, body, 0));
    }

    /// A command with an answer, which is shown as `shown` makes it.
    fn ask<A: FromBytes + IntoBytes + Immutable + KnownLayout>(
        &mut self,
        file: usize,
        what: &str,
        cmd: u32,
        body: &(impl IntoBytes + Immutable),
        shown: impl FnOnce(&mut A),
    ) -> Option<A> {
        let answer = self.raw(file, what, &Self::bytes(cmd, body, size_of::<A>()));
        let answer = answer.ok().map(|bytes| {
            let mut whole = A::new_zeroed();
            let room = whole.as_mut_bytes();
            let count = bytes.len().min(room.len());
            room[..count].copy_from_slice(&bytes[..count]);
            (whole, bytes.len())
        });
        let Some((mut whole, count)) = answer else {
            self.end_line("");
            return None;
        };
        shown(&mut whole);
        let more = format!(" {count}: {}", hex(&whole.as_bytes()[..count.min(size_of::<A>())]));
        self.end_line(&more);
        Some(whole)
    }

    /// Makes an ID that is called `name`.
    fn create(&mut self, file: usize, name: &'static str, uid: u64, ps: u16) -> u32 {
        let create = CreateId { uid, response: self.room.address(), ps, qp_type: 2, ..CreateId::default() };
        let bytes = Self::bytes(command::CREATE_ID, &create, 4);
        self.raw(file, &format!("create {name} in {ps:#06x}"), &bytes).expect("an ID");
        let mut id = [0; 4];
        self.room.read(create.response, &mut id).expect("room");
        let id = u32::from_ne_bytes(id);
        self.end_line("");
        self.ids.push((id, name));
        id
    }

    fn destroy(&mut self, file: usize, what: &str, id: u32) {
        let destroy = DestroyId { response: self.room.address(), id, ..DestroyId::default() };
        self.ask::<u32>(file, &format!("destroy {what}"), command::DESTROY_ID, &destroy, |_| {});
        self.ids.retain(|(of, _)| *of != id);
    }

    fn bind(&mut self, file: usize, what: &str, id: u32, addr: [u8; ADDRESS_BYTES], addr_size: u16) {
        let bind = Bind { id, addr_size, addr, ..Bind::default() };
        self.tell(file, &format!("bind {what}"), command::BIND, &bind);
    }

    fn listen(&mut self, file: usize, what: &str, id: u32) {
        self.tell(file, &format!("listen {what}"), command::LISTEN, &Listen { id, backlog: 2 });
    }

    fn query(&mut self, file: usize, what: &str, id: u32, option: u32) {
        let query = Query { response: self.room.address(), id, option };
        if option == QUERY_PATH {
            let what = format!("query the path of {what}");
            let bytes = Self::bytes(command::QUERY, &query, 4000);
            let mut answer = self.raw(file, &what, &bytes).unwrap_or_default();
            if let Some(label) = answer.get_mut(PATH_LABEL) {
                label.fill(0xff);
            }
            for part in UNUSED {
                if let Some(part) = answer.get_mut(part) {
                    part.fill(0);
                }
            }
            return self.end_line(&format!(" {}", hex(&answer)));
        }
        let of = if option == QUERY_GID { "GIDs" } else { "addresses" };
        self.ask::<QueryAddrResp>(
            file,
            &format!("query the {of} of {what}"),
            command::QUERY,
            &query,
            |answer| {
                if option == QUERY_ADDR {
                    without_chosen_port(&mut answer.src_addr);
                    without_chosen_port(&mut answer.dst_addr);
                } else {
                    // The port is the end of the service.
                    for addr in [&mut answer.src_addr, &mut answer.dst_addr] {
                        if addr[30] >= 0x80 {
                            addr[30..32].fill(0xff);
                        }
                    }
                }
            },
        );
    }

    fn queries(&mut self, file: usize, what: &str, id: u32) {
        for option in [QUERY_ADDR, QUERY_PATH, QUERY_GID] {
            self.query(file, what, id, option);
        }
    }

    fn attributes(&mut self, file: usize, what: &str, id: u32) {
        for (qp_state, state) in [(0, "RESET"), (1, "INIT"), (2, "RTR"), (3, "RTS"), (6, "ERR"), (99, "99")] {
            let init = InitQpAttr { response: self.room.address(), id, qp_state };
            let what = format!("attributes of {what} for {state}");
            self.ask::<QpAttr>(file, &what, command::INIT_QP_ATTR, &init, |answer| {
                // Where they begin to count is drawn, and told where it is of no use.
                let counts = QpMask::from_bits_retain(answer.qp_attr_mask);
                for (psn, bit) in [(&mut answer.rq_psn, QpMask::RQ_PSN), (&mut answer.sq_psn, QpMask::SQ_PSN)]
                {
                    *psn = if counts.contains(bit) { 0xffff_ffff } else { 0 };
                }
                let label = &mut answer.ah_attr.grh.flow_label;
                *label = if *label == 0 { 0 } else { 0xffff_ffff };
            });
        }
    }

    /// Waits for an event, and takes it down. The number that it carries.
    fn event(&mut self, file: usize, made: &'static str) -> u32 {
        let get = GetEvent { response: self.room.address() };
        let bytes = Self::bytes(command::GET_EVENT, &get, size_of::<EventResp>());
        let begin = Instant::now();
        loop {
            self.room.clear();
            match self.files[file].write(&self.room, &bytes) {
                Err(Errno::EAGAIN) => {}
                outcome => {
                    outcome.expect("an event");
                    break;
                }
            }
            if begin.elapsed() > LIMIT {
                self.end_line("no event");
                return u32::MAX;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let answer = self.room.answer();
        let count = answer.len();
        let padded: Vec<u8> = answer.into_iter().chain([0; size_of::<EventResp>()]).collect();
        let (told, _) = EventResp::read_from_prefix(&padded).expect("it is long enough");
        if told.event == event::CONNECT_REQUEST {
            self.ids.push((told.id, made));
        }
        // Memberships have numbers of their own, and are the youngest.
        let name = self.ids.iter().rfind(|(id, _)| *id == told.id).map_or("nobody", |(_, name)| *name);
        let mut param = told.param;
        if told.event == event::ESTABLISHED && told.param[..4] == PEER_QPN.to_ne_bytes() {
            // Of datagrams: where they go, with the flow label.
            param[LABEL].fill(0xff);
        }
        let file = if file == SERVER { "server" } else { "client" };
        let (event, uid, status) = (told.event, told.uid, told.status.cast_signed());
        writeln!(
            self.lines,
            "event {event} at the {file}: uid {uid}, {name}, status {status}, {count} bytes: {} {}",
            hex(&param),
            hex(told.ece.as_bytes())
        )
        .expect("room");
        told.id
    }

    fn no_event(&mut self, file: usize) {
        let get = GetEvent { response: self.room.address() };
        self.line(file, "event", &Self::bytes(command::GET_EVENT, &get, size_of::<EventResp>()));
    }

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
        self.join(CLIENT, &format!("join {what} to its own address"), id, (OWN, 16), 0);
        if what != "new" {
            self.bind(CLIENT, what, id, address(OWN, 7000), 16);
            self.listen(CLIENT, what, id);
            self.resolve(CLIENT, what, id, (0, 16), OWN);
            self.destroy(CLIENT, what, id);
        }
    }

    fn resolve(&mut self, file: usize, what: &str, id: u32, (src_size, dst_size): (u16, u16), to: [u8; 4]) {
        let src_addr = if src_size == 0 { [0; ADDRESS_BYTES] } else { address(OWN, 0) };
        let dst_addr = address(to, 7174);
        let (timeout_ms, reserved) = (300, 0);
        let resolve = ResolveAddr { id, timeout_ms, src_size, dst_size, reserved, src_addr, dst_addr };
        self.tell(file, &format!("resolve {what}"), command::RESOLVE_ADDR, &resolve);
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
    }

    fn option(&mut self, file: usize, what: &str, id: u32, (level, name): (u32, u32), value: &[u8]) {
        let at = self.room.address() + 2048;
        self.room.clear();
        self.room.write(at, value).expect("room");
        let optlen = value.len() as u32;
        let set = SetOption { optval: at, id, level, optname: name, optlen };
        let bytes = Self::bytes(command::SET_OPTION, &set, 0);
        // Nothing is answered: what stands in the room is the value.
        let outcome = self.files[file].write(&self.room, &bytes);
        let said =
            outcome.map_or_else(|errno| errno.name().unwrap_or("unnamed").to_owned(), |()| "ok".into());
        writeln!(self.lines, "set {what} {level}/{name} to {} -> {said}", hex(value)).expect("room");
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
        self.resolve(CLIENT, "nobody's address", id, (0, 16), [10, 0, 0, 99]);
        self.resolve(CLIENT, "twice at once", id, (0, 16), OWN);
        self.event(CLIENT, "");
        self.query(CLIENT, "who found nobody", id, QUERY_ADDR);
        self.resolve(CLIENT, "its own address", id, (16, 16), OWN);
        self.event(CLIENT, "");
        self.resolve(CLIENT, "again", id, (0, 16), OWN);
        self.bind(CLIENT, "who resolved", id, address(OWN, 0), 16);
        self.queries(CLIENT, "resolved", id);
        self.attributes(CLIENT, "resolved", id);
        let connect = Connect { conn_param: parameters(QPN, b""), id, ..Connect::default() };
        self.tell(CLIENT, "connect without a route", command::CONNECT, &connect);
        let route = ResolveRoute { id, timeout_ms: 300 };
        self.tell(CLIENT, "resolve the route", command::RESOLVE_ROUTE, &route);
        self.event(CLIENT, "");
        self.tell(CLIENT, "resolve the route again", command::RESOLVE_ROUTE, &route);
        self.queries(CLIENT, "routed", id);
        self.attributes(CLIENT, "routed", id);
        self.destroy(CLIENT, "resolving", id);
    }

    /// An ID that has a route to whoever listens at a port.
    fn routed(&mut self, name: &'static str, ps: u16) -> u32 {
        let id = self.create(CLIENT, name, 0x11, ps);
        self.bind(CLIENT, name, id, address(OWN, 7300), 16);
        self.resolve(CLIENT, name, id, (0, 16), OWN);
        self.event(CLIENT, "");
        let route = ResolveRoute { id, timeout_ms: 300 };
        self.tell(CLIENT, "resolve the route", command::RESOLVE_ROUTE, &route);
        self.event(CLIENT, "");
        id
    }

    fn listening(&mut self, ps: u16) -> u32 {
        let id = self.create(SERVER, "listener", 0x22, ps);
        self.bind(SERVER, "listener", id, address(OWN, 7174), 16);
        self.listen(SERVER, "listener", id);
        id
    }

    fn connect(&mut self, id: u32, private: &[u8]) {
        let connect = Connect { conn_param: parameters(QPN, private), id, ..Connect::default() };
        let what = format!("connect with {} bytes", private.len());
        self.tell(CLIENT, &what, command::CONNECT, &connect);
    }

    fn accept(&mut self, id: u32, private: &[u8]) {
        let conn_param = parameters(PEER_QPN, private);
        let accept = Accept { uid: 0x33, conn_param, id, ..Accept::default() };
        self.tell(SERVER, &format!("accept with {} bytes", private.len()), command::ACCEPT, &accept);
    }

    fn connection(&mut self) {
        let listener = self.listening(space::TCP);
        let client = self.routed("client", space::TCP);
        self.connect(client, &[7; 57]);
        self.connect(client, b"hello");
        let server = self.event(SERVER, "server");
        self.accept(server, &[7; 197]);
        self.event(CLIENT, "");
        self.accept(server, b"welcome");
        self.destroy(CLIENT, "client", client);
        self.destroy(SERVER, "server", server);
        let client = self.routed("client", space::TCP);
        self.connect(client, b"hello");
        self.connect(client, b"hello");
        let server = self.event(SERVER, "server");
        self.queries(SERVER, "server", server);
        self.attributes(SERVER, "server", server);
        self.accept(server, b"welcome");
        self.event(CLIENT, "");
        self.attributes(CLIENT, "client", client);
        let establish = Accept { id: client, ..Accept::default() };
        self.tell(CLIENT, "establish", command::ACCEPT, &establish);
        self.event(SERVER, "");
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
        self.event(SERVER, "");
        self.tell(SERVER, "disconnect, too", command::DISCONNECT, &Disconnect { id: server });
        self.event(CLIENT, "");
        self.attributes(CLIENT, "client, which is over", client);
        self.tell(CLIENT, "disconnect again", command::DISCONNECT, &Disconnect { id: client });
        self.destroy(CLIENT, "client", client);
        self.destroy(SERVER, "server", server);
        self.destroy(SERVER, "listener", listener);
    }

    fn refusals(&mut self) {
        let nobody = self.routed("client", space::TCP);
        self.connect(nobody, b"hello");
        self.event(CLIENT, "");
        self.attributes(CLIENT, "client, which nobody heard", nobody);
        self.connect(nobody, b"hello");
        self.destroy(CLIENT, "client", nobody);
        let listener = self.listening(space::TCP);
        for private in [&b""[..], b"go away", &[7; 148], &[7; 149]] {
            let client = self.routed("client", space::TCP);
            self.connect(client, b"hello");
            let server = self.event(SERVER, "server");
            let mut reject =
                Reject { id: server, private_data_len: private.len() as u8, ..Reject::default() };
            reject.private_data[..private.len()].copy_from_slice(private);
            let what = format!("reject with {} bytes", private.len());
            self.tell(SERVER, &what, command::REJECT, &reject);
            if private.len() == 149 {
                // Not even said.
                self.destroy(SERVER, "server", server);
            }
            self.event(CLIENT, "");
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
        self.event(CLIENT, "");
        self.destroy(CLIENT, "client", nobody);
        let listener = self.listening(space::UDP);
        let client = self.routed("client", space::UDP);
        self.queries(CLIENT, "client", client);
        self.attributes(CLIENT, "client", client);
        self.connect(client, &[7; 181]);
        self.connect(client, b"hello");
        let server = self.event(SERVER, "server");
        self.queries(SERVER, "server", server);
        self.attributes(SERVER, "server", server);
        self.accept(server, b"welcome");
        self.event(CLIENT, "");
        self.attributes(CLIENT, "client", client);
        self.tell(CLIENT, "disconnect", command::DISCONNECT, &Disconnect { id: client });
        self.destroy(CLIENT, "client", client);
        self.destroy(SERVER, "server", server);
        let client = self.routed("client", space::UDP);
        self.connect(client, b"hello");
        let server = self.event(SERVER, "server");
        self.accept(server, &[7; 137]);
        self.event(CLIENT, "");
        self.destroy(CLIENT, "client", client);
        self.destroy(SERVER, "server", server);
        let client = self.routed("client", space::UDP);
        self.connect(client, b"hello");
        let server = self.event(SERVER, "server");
        let mut reject = Reject { id: server, private_data_len: 2, ..Reject::default() };
        reject.private_data[..2].copy_from_slice(b"no");
        self.tell(SERVER, "reject", command::REJECT, &reject);
        self.event(CLIENT, "");
        self.destroy(CLIENT, "client", client);
        self.destroy(SERVER, "server", server);
        self.destroy(SERVER, "listener", listener);
    }

    fn join(&mut self, file: usize, what: &str, id: u32, (group, size): ([u8; 4], u16), flags: u16) -> u32 {
        let join = JoinMcast {
            response: self.room.address(),
            uid: 0x44,
            id,
            addr_size: size,
            join_flags: flags,
            addr: address(group, 0),
        };
        let mut made = None;
        self.ask::<u32>(file, what, command::JOIN_MCAST, &join, |number| {
            made = Some(std::mem::take(number));
        });
        made.unwrap_or_default()
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
                let number = self.join(CLIENT, &format!("join {name}"), id, (GROUP, 16), flags);
                let joined = self.lines.lines().last().is_some_and(|line| line.contains("-> ok"));
                if joined {
                    self.ids.push((number, name));
                    self.event(CLIENT, "");
                    let leave =
                        DestroyId { response: self.room.address(), id: number, ..DestroyId::default() };
                    self.ids.retain(|(_, of)| *of != name);
                    self.ask::<u32>(CLIENT, "leave", command::LEAVE_MCAST, &leave, |_| {});
                    self.ask::<u32>(CLIENT, "leave again", command::LEAVE_MCAST, &leave, |_| {});
                }
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
