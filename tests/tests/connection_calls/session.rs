//! Two open files of a connection manager's, the commands that are written to them, and the lines that tell what was answered: what differs
//! from run to run by its nature (numbers of IDs, ports that the manager chose, PSNs, flow labels) is not in them.

use std::fmt::Write;
use std::ops::Range;
use std::time::{Duration, Instant};

use pollux_uverbs::abi::connection::{
    ADDRESS_BYTES, Accept, Bind, BindIp, ConnParam, Connect, CreateId, DestroyId, EventResp, GetEvent, Head,
    IP_BYTES, InitQpAttr, JoinIpMcast, JoinMcast, Listen, QUERY_ADDR, QUERY_GID, QUERY_PATH, QpAttr, Query,
    QueryAddrResp, QueryPathResp, QueryRouteResp, Reject, ResolveAddr, ResolveIp, SetOption, command, event,
};
use pollux_uverbs::abi::flags::QpMask;
use pollux_verbs::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::room::Room;
use super::{Commands, OWN};

/// Which of the files.
pub(super) const SERVER: usize = 0;
pub(super) const CLIENT: usize = 1;

pub(super) const QPN: u32 = 0x123;
const PEER_QPN: u32 = 0x456;

/// How long an event may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The flow label of the path in `UdParam`.
const LABEL: Range<usize> = 24..28;

/// What paths of RoCE do not use, where Linux tells of a service and of a MAC address.
const UNUSED: [Range<usize>; 2] = [16..24, 56..60];
/// The flow label of the first path of an answer.
const PATH_LABEL: Range<usize> = size_of::<QueryPathResp>() + 52..size_of::<QueryPathResp>() + 55;

/// See the module.
pub(super) struct Session<F> {
    pub(super) files: [F; 2],
    pub(super) room: Room,
    /// The manager's numbers of IDs and memberships, and what they are called here.
    pub(super) ids: Vec<(u32, &'static str)>,
    pub(super) lines: String,
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

pub(super) fn address(ip: [u8; 4], port: u16) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip);
    bytes
}

/// An address whose port the manager chose has no port.
fn without_chosen_port(bytes: &mut [u8]) {
    if u16::from_be_bytes([bytes[2], bytes[3]]) >= 0x8000 {
        bytes[2..4].fill(0xff);
    }
}

/// The same in a room for addresses of IP alone.
pub(super) fn ip(ip: [u8; 4], port: u16) -> [u8; IP_BYTES] {
    *address(ip, port).first_chunk().expect("it is longer")
}

pub(super) fn parameters(qp_num: u32, private: &[u8]) -> ConnParam {
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

impl<F: Commands> Session<F> {
    pub(super) fn new(files: [F; 2]) -> Self {
        Self { files, room: Room::new(), ids: Vec::new(), lines: String::new() }
    }

    /// Writes bytes as they are, and takes down what comes of it, but for the answer and the end of the line.
    pub(super) fn raw(&mut self, file: usize, what: &str, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
        self.room.clear();
        let outcome = self.files[file].write(&self.room, bytes).map(|()| self.room.answer());
        match &outcome {
            Ok(_) => write!(self.lines, "{what} -> ok"),
            Err(errno) => write!(self.lines, "{what} -> {}", errno.name().unwrap_or("unnamed")),
        }
        .expect("room");
        outcome
    }

    pub(super) fn end_line(&mut self, more: &str) {
        writeln!(self.lines, "{more}").expect("room");
    }

    pub(super) fn line(&mut self, file: usize, what: &str, bytes: &[u8]) {
        let answer = self.raw(file, what, bytes).unwrap_or_default();
        let more = if answer.is_empty() { String::new() } else { format!(" {}", hex(&answer)) };
        self.end_line(&more);
    }

    pub(super) fn bytes(cmd: u32, body: &(impl IntoBytes + Immutable), out: usize) -> Vec<u8> {
        let head = Head { cmd, r#in: body.as_bytes().len() as u16, out: out as u16 };
        [head.as_bytes(), body.as_bytes()].concat()
    }

    /// A command without an answer.
    pub(super) fn tell(&mut self, file: usize, what: &str, cmd: u32, body: &(impl IntoBytes + Immutable)) {
        self.line(file, what, &Self::bytes(cmd, body, 0));
    }

    /// A command with an answer, which is shown as `shown` makes it.
    pub(super) fn ask<A: FromBytes + IntoBytes + Immutable + KnownLayout>(
        &mut self,
        file: usize,
        what: &str,
        cmd: u32,
        body: &(impl IntoBytes + Immutable),
        shown: impl FnOnce(&mut A),
    ) {
        let Ok(bytes) = self.raw(file, what, &Self::bytes(cmd, body, size_of::<A>())) else {
            return self.end_line("");
        };
        let mut whole = A::new_zeroed();
        let count = bytes.len().min(size_of::<A>());
        whole.as_mut_bytes()[..count].copy_from_slice(&bytes[..count]);
        shown(&mut whole);
        self.end_line(&format!(" {}: {}", bytes.len(), hex(&whole.as_bytes()[..count])));
    }

    /// Makes an ID that is called `name`.
    pub(super) fn create(&mut self, file: usize, name: &'static str, uid: u64, ps: u16) -> u32 {
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

    pub(super) fn destroy(&mut self, file: usize, what: &str, id: u32) {
        let destroy = DestroyId { response: self.room.address(), id, ..DestroyId::default() };
        self.ask::<u32>(file, &format!("destroy {what}"), command::DESTROY_ID, &destroy, |_| {});
        self.ids.retain(|(of, _)| *of != id);
    }

    pub(super) fn bind(
        &mut self,
        file: usize,
        what: &str,
        id: u32,
        addr: [u8; ADDRESS_BYTES],
        addr_size: u16,
    ) {
        let bind = Bind { id, addr_size, addr, ..Bind::default() };
        self.tell(file, &format!("bind {what}"), command::BIND, &bind);
    }

    pub(super) fn listen(&mut self, file: usize, what: &str, id: u32) {
        self.tell(file, &format!("listen {what}"), command::LISTEN, &Listen { id, backlog: 2 });
    }

    pub(super) fn query(&mut self, file: usize, what: &str, id: u32, option: u32) {
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

    pub(super) fn queries(&mut self, file: usize, what: &str, id: u32) {
        for option in [QUERY_ADDR, QUERY_PATH, QUERY_GID] {
            self.query(file, what, id, option);
        }
        self.route(file, what, id);
    }

    pub(super) fn route(&mut self, file: usize, what: &str, id: u32) {
        let query = Query { response: self.room.address(), id, option: 0 };
        let what = format!("query the route of {what}");
        self.ask::<QueryRouteResp>(file, &what, command::QUERY_ROUTE, &query, |answer| {
            without_chosen_port(&mut answer.src_addr);
            without_chosen_port(&mut answer.dst_addr);
            let label = &mut answer.ib_route[0].flow_label;
            *label = if *label == [0; 4] { [0; 4] } else { [0xff; 4] };
        });
    }

    pub(super) fn bind_ip(&mut self, file: usize, what: &str, id: u32, addr: [u8; IP_BYTES]) {
        let bind = BindIp { response: 0, addr, id };
        self.tell(file, &format!("bind IP {what}"), command::BIND_IP, &bind);
    }

    pub(super) fn resolve_ip(
        &mut self,
        what: &str,
        id: u32,
        src_addr: [u8; IP_BYTES],
        dst_addr: [u8; IP_BYTES],
    ) {
        let resolve = ResolveIp { src_addr, dst_addr, id, timeout_ms: 300 };
        self.tell(CLIENT, &format!("resolve IP {what}"), command::RESOLVE_IP, &resolve);
    }

    pub(super) fn join_ip(&mut self, what: &str, id: u32, addr: [u8; IP_BYTES]) -> Option<u32> {
        let join = JoinIpMcast { response: self.room.address(), uid: 0x55, addr, id };
        let mut made = None;
        self.ask::<u32>(CLIENT, &format!("join IP {what}"), command::JOIN_IP_MCAST, &join, |number| {
            made = Some(std::mem::take(number));
        });
        made
    }

    pub(super) fn attributes(&mut self, file: usize, what: &str, id: u32) {
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

    /// Waits for an event, and takes it down.
    pub(super) fn event(&mut self, file: usize) {
        self.event_of(file, None);
    }

    /// Waits for a request, and takes it down. The ID that it made, which is called `name`.
    pub(super) fn request(&mut self, name: &'static str) -> u32 {
        self.event_of(SERVER, Some(name)).expect("a request")
    }

    /// The number that an event carries; a request made the ID `made`.
    pub(super) fn event_of(&mut self, file: usize, made: Option<&'static str>) -> Option<u32> {
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
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        let answer = self.room.answer();
        let count = answer.len();
        let padded: Vec<u8> = answer.into_iter().chain([0; size_of::<EventResp>()]).collect();
        let (told, _) = EventResp::read_from_prefix(&padded).expect("it is long enough");
        self.ids.extend(made.map(|made| (told.id, made)));
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
        Some(told.id)
    }

    pub(super) fn no_event(&mut self, file: usize) {
        let get = GetEvent { response: self.room.address() };
        self.line(file, "event", &Self::bytes(command::GET_EVENT, &get, size_of::<EventResp>()));
    }

    pub(super) fn option(
        &mut self,
        file: usize,
        what: &str,
        id: u32,
        (level, name): (u32, u32),
        value: &[u8],
    ) {
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

    pub(super) fn resolve(
        &mut self,
        file: usize,
        what: &str,
        id: u32,
        (src_size, dst_size): (u16, u16),
        to: [u8; 4],
    ) {
        let src_addr = if src_size == 0 { [0; ADDRESS_BYTES] } else { address(OWN, 0) };
        let dst_addr = address(to, 7174);
        let (timeout_ms, reserved) = (300, 0);
        let resolve = ResolveAddr { id, timeout_ms, src_size, dst_size, reserved, src_addr, dst_addr };
        self.tell(file, &format!("resolve {what}"), command::RESOLVE_ADDR, &resolve);
    }

    pub(super) fn connect(&mut self, id: u32, private: &[u8]) {
        let connect = Connect { conn_param: parameters(QPN, private), id, ..Connect::default() };
        let what = format!("connect with {} bytes", private.len());
        self.tell(CLIENT, &what, command::CONNECT, &connect);
    }

    pub(super) fn accept(&mut self, id: u32, private: &[u8]) {
        let conn_param = parameters(PEER_QPN, private);
        let accept = Accept { uid: 0x33, conn_param, id, ..Accept::default() };
        self.tell(SERVER, &format!("accept with {} bytes", private.len()), command::ACCEPT, &accept);
    }

    pub(super) fn reject(&mut self, id: u32, private: &[u8]) {
        let mut reject = Reject { id, private_data_len: private.len() as u8, ..Reject::default() };
        reject.private_data[..private.len()].copy_from_slice(private);
        self.tell(SERVER, &format!("reject with {} bytes", private.len()), command::REJECT, &reject);
    }

    /// The number of the membership, if it was granted.
    pub(super) fn join(
        &mut self,
        file: usize,
        what: &str,
        id: u32,
        (group, size): ([u8; 4], u16),
        flags: u16,
    ) -> Option<u32> {
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
        made
    }
}
