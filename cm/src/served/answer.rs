//! What commands are answered, and what events are told.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use pollux_uverbs::abi::connection::{
    ADDRESS_BYTES, ConnParam, EventResp, PathData, QpAttr, QueryAddrResp, QueryRouteResp, UdParam, UserPath,
    event, space,
};
use pollux_uverbs::abi::memory::AhAttr;
use pollux_verbs::{Errno, Path, QpAttributes};
use zerocopy::IntoBytes;

use super::{ClientMemory, Entry, State};
use crate::abi::{address, told};
use crate::occurrence::{Occurrence, What};
use crate::parameters::ConnectionParameters;
use crate::service::{PortSpace, gid_of};

/// Where the answer of a command goes, and how much of it there is room for.
pub(super) struct Room<'a> {
    pub(super) memory: &'a dyn ClientMemory,
    pub(super) bytes: usize,
}

impl Room<'_> {
    /// Refuses a command before it is carried out, if there is no room for `least` bytes of its answer.
    pub(super) fn check(&self, least: usize) -> Result<(), Errno> {
        if self.bytes < least { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    /// Writes an answer, of which a program wants `least` bytes at least: younger ones may know more.
    pub(super) fn put(&self, response: u64, answer: &[u8], least: usize) -> Result<(), Errno> {
        self.check(least)?;
        self.memory.write(response, &answer[..answer.len().min(self.bytes)])
    }
}

/// An address as that of a GID, once there is a device, and a service. Ports of RoCE have no partition key there. Source: Linux
/// `drivers/infiniband/core/ucma.c`, `ucma_query_gid`; `drivers/infiniband/core/cma.c`, `rdma_get_service_id`, `rdma_read_gids`.
fn as_gid(address: Option<SocketAddr>, has_device: bool, service: u64) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..2].copy_from_slice(&address::AF_IB.to_ne_bytes());
    if let Some(address) = address.filter(|_| has_device) {
        bytes[8..24].copy_from_slice(&gid_of(address.ip()));
    }
    let port = address.map_or(0, |address| address.port());
    bytes[24..32].copy_from_slice(&(service | u64::from(port)).to_be_bytes());
    bytes
}

/// Whether bytes are an address of InfiniBand's.
pub(super) fn is_of_infiniband(address: &[u8; ADDRESS_BYTES]) -> bool {
    address[..2] == address::AF_IB.to_ne_bytes()
}

/// The addresses of an ID, and the device and port that they lead to. Source: Linux `drivers/infiniband/core/cma.c`, `rdma_bind_addr_dst`.
pub(super) fn addresses(state: &State, id: u32, as_gids: bool) -> QueryAddrResp {
    let (local, peer) = state.software.addresses(id.into());
    let node = state.software.node(id.into());
    let (node_guid, port_num) = node.unwrap_or_default();
    // Once the ID has an address, the peer's is one of the same family.
    let any = local.map(|local| match local {
        SocketAddr::V4(_) => SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0),
        SocketAddr::V6(_) => SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0),
    });
    let peer = peer.or(any);
    let mut answer =
        QueryAddrResp { node_guid: node_guid.to_be_bytes(), port_num, ..QueryAddrResp::default() };
    if as_gids {
        let space = state.ids.get(&id).and_then(|entry| entry.space).map_or(space::IB, PortSpace::code);
        let service = u64::from(space) << 16;
        (answer.src_addr, answer.src_size) =
            (as_gid(local, node.is_some(), service), address::IB_BYTES as u16);
        (answer.dst_addr, answer.dst_size) =
            (as_gid(peer, node.is_some(), service), address::IB_BYTES as u16);
    } else {
        let unknown = ([0; ADDRESS_BYTES], 0);
        (answer.src_addr, answer.src_size) = local.map_or(unknown, address::encode);
        (answer.dst_addr, answer.dst_size) = peer.map_or(unknown, address::encode);
    }
    answer
}

/// A path in both directions. Source of the flags: Linux `include/uapi/rdma/ib_user_sa.h`, `IB_PATH_GMP` and its neighbours; of the record:
/// rdma-core `libibverbs/sa.h`, `struct ibv_path_record`.
pub(super) fn path(from: [u8; 16], path: &Path, mtu: u8) -> PathData {
    const FOR_ALL: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;
    let mut record = [0; 64];
    record[8..24].copy_from_slice(&path.gid);
    record[24..40].copy_from_slice(&from);
    let label = path.flow_label << 8 | u32::from(path.hop_limit);
    record[44..48].copy_from_slice(&label.to_be_bytes());
    record[48] = path.traffic_class;
    // Reversible.
    record[49] = 0x80;
    record[50..52].fill(0xff);
    record[53] = path.service_level;
    record[54] = EXACTLY << 6 | mtu;
    record[55] = EXACTLY << 6 | path.rate & 0x3f;
    record[56] = EXACTLY << 6 | LIFETIME;
    PathData { flags: FOR_ALL, path_rec: record, ..PathData::default() }
}

/// How long packets live. Source: Linux `drivers/infiniband/core/cma.c`, `CMA_IBOE_PACKET_LIFETIME`.
const LIFETIME: u8 = 16;
/// Exactly. Source: Linux `include/rdma/ib_sa.h`, `enum ib_sa_selector`.
const EXACTLY: u8 = 2;

/// The addresses of an ID, the device and port that they lead to, and the path. Source: Linux `drivers/infiniband/core/ucma.c`,
/// `ucma_query_route`, `ucma_copy_iboe_route`; `drivers/infiniband/core/uverbs_marshall.c`, `ib_copy_path_rec_to_user`.
pub(super) fn route(state: &State, id: u32) -> Result<QueryRouteResp, Errno> {
    let told = addresses(state, id, false);
    let mut answer = QueryRouteResp {
        node_guid: told.node_guid,
        src_addr: address::narrow(&told.src_addr),
        dst_addr: address::narrow(&told.dst_addr),
        port_num: told.port_num,
        ..QueryRouteResp::default()
    };
    if state.software.node(id.into()).is_none() {
        return Ok(answer);
    }
    let gid = |address| address::decode(address).map_or([0; 16], |address| gid_of(address.ip()));
    let (sgid, dgid) = (gid(&told.src_addr), gid(&told.dst_addr));
    let ends = UserPath { sgid, dgid, pkey: [0xff; 2], ..UserPath::default() };
    let found = state.software.path(id.into()).map_err(super::errno)?;
    answer.num_paths = u32::from(found.is_some());
    answer.ib_route[0] = found.map_or(ends, |(path, mtu)| UserPath {
        dgid: path.gid,
        flow_label: path.flow_label.to_be_bytes(),
        reversible: 1,
        mtu: mtu.into(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.service_level,
        mtu_selector: EXACTLY,
        rate_selector: EXACTLY,
        rate: path.rate & 0x3f,
        packet_life_time_selector: EXACTLY,
        packet_life_time: LIFETIME,
        ..ends
    });
    Ok(answer)
}

/// Attributes of a queue pair.
pub(super) fn attributes(attributes: &QpAttributes) -> QpAttr {
    QpAttr {
        qp_attr_mask: attributes.mask().bits(),
        qp_state: attributes.state.map_or(0, |state| state.0.into()),
        path_mtu: attributes.mtu.map_or(0, |mtu| mtu.code().into()),
        qkey: attributes.qkey.unwrap_or(0),
        rq_psn: attributes.rq_psn.unwrap_or(0),
        sq_psn: attributes.sq_psn.unwrap_or(0),
        dest_qp_num: attributes.dest_qpn.unwrap_or(0),
        qp_access_flags: attributes.access.map_or(0, |access| access.bits()),
        ah_attr: attributes.path.map_or_else(AhAttr::default, |path| path.attributes()),
        pkey_index: attributes.pkey_index.unwrap_or(0),
        max_rd_atomic: attributes.max_rd_atomic.unwrap_or(0),
        max_dest_rd_atomic: attributes.max_dest_rd_atomic.unwrap_or(0),
        min_rnr_timer: attributes.min_rnr_timer.unwrap_or(0),
        port_num: attributes.port.unwrap_or(0),
        timeout: attributes.timeout.unwrap_or(0),
        retry_cnt: attributes.retries.unwrap_or(0),
        rnr_retry: attributes.rnr_retries.unwrap_or(0),
        ..QpAttr::default()
    }
}

fn datagram(path: Option<&Path>, qp_num: u32, qkey: u32, private: &[u8]) -> Vec<u8> {
    let mut param = UdParam {
        qp_num,
        qkey,
        ah_attr: path.map_or_else(AhAttr::default, Path::attributes),
        private_data_len: private.len() as u8,
        ..UdParam::default()
    };
    crate::message::fill(&mut param.private_data, private);
    param.as_bytes().to_vec()
}

fn connection(qpn: u32, parameters: &ConnectionParameters) -> Vec<u8> {
    ConnParam { valid: 0, ..told(qpn, parameters) }.as_bytes().to_vec()
}

/// Private data alone.
fn private(private_data: &[u8]) -> Vec<u8> {
    let mut param = ConnParam { private_data_len: private_data.len() as u8, ..ConnParam::default() };
    crate::message::fill(&mut param.private_data, private_data);
    param.as_bytes().to_vec()
}

/// Takes what nobody is told out of the front of a queue of events.
pub(super) fn skip_untold(state: &mut State, file: u64) {
    while state.software.peek(file).is_some_and(|occurrence| told_event(state, occurrence).is_none()) {
        state.software.take(file);
    }
}

/// An event, and what counts when it is read.
pub(super) struct Told {
    pub(super) answer: EventResp,
    id: u32,
    made: Option<u32>,
    membership: Option<u32>,
}

impl Told {
    /// The event was read: the ID's events are counted, those about a group for the membership as well. Source: Linux
    /// `drivers/infiniband/core/ucma.c`, `ucma_get_event`; rdma-core `librdmacm/cma.c`, `ucma_complete_mc_event`.
    pub(super) fn count(&self, state: &mut State, file: u64) {
        let Some(entry) = state.ids.get_mut(&self.id) else { return };
        entry.reported += 1;
        let (options, space) = (entry.options, entry.space);
        if let Some(membership) = self.membership.and_then(|number| state.memberships.get_mut(&number)) {
            membership.reported += 1;
        }
        if let Some(made) = self.made {
            state.ids.insert(made, Entry { uid: 0, file, space, options, reported: 0 });
        }
    }
}

/// What is told of an occurrence. `None` of an ID or a membership that is gone, and of an ID whose number the program has not given yet, which is
/// one that a request made and that failed before it was accepted. Source: Linux `drivers/infiniband/core/ucma.c`, `ucma_event_handler`.
pub(super) fn told_event(state: &State, occurrence: &Occurrence) -> Option<Told> {
    let id = u32::try_from(occurrence.id).ok()?;
    let entry = state.ids.get(&id).filter(|entry| entry.uid != 0 || occurrence.made().is_some())?;
    let mut answer = EventResp { uid: entry.uid, id, ..EventResp::default() };
    let made = occurrence.made().map(u32::try_from).transpose().ok()?;
    let mut membership = None;
    if let What::MulticastJoined { path, .. } = &occurrence.what {
        let is_of_it = |it: &super::Membership| it.id == id && gid_of(it.group) == path.gid;
        let (&number, found) = state.memberships.iter().find(|(_, it)| is_of_it(it))?;
        (answer.uid, answer.id) = (found.uid, number);
        membership = Some(number);
    }
    answer.id = made.unwrap_or(answer.id);
    let (event, status, param) = described(&occurrence.what, entry.space);
    (answer.event, answer.status) = (event, status);
    crate::message::fill(&mut answer.param, &param);
    const { assert!(size_of::<ConnParam>() <= 304 && size_of::<UdParam>() <= 304) };
    Some(Told { answer, id, made, membership })
}

/// The number of an event of an ID of that space, its status, and its parameters.
fn described(what: &What, space: Option<PortSpace>) -> (u32, u32, Vec<u8>) {
    let failed = |event, errno: &Errno| (event, errno.0.wrapping_neg().cast_unsigned(), Vec::new());
    let good = |event, param| (event, 0, param);
    match what {
        What::AddressResolved => good(event::ADDR_RESOLVED, Vec::new()),
        What::AddressError(errno) => failed(event::ADDR_ERROR, errno),
        What::RouteResolved => good(event::ROUTE_RESOLVED, Vec::new()),
        What::RouteError(errno) => failed(event::ROUTE_ERROR, errno),
        // Source: Linux `drivers/infiniband/core/cma.c`, `cma_set_req_event_data`, `cma_set_rep_event_data`.
        What::ConnectRequest { qpn, parameters, .. } => {
            good(event::CONNECT_REQUEST, connection(*qpn, parameters))
        }
        What::ConnectResponse { qpn, parameters } => {
            good(event::CONNECT_RESPONSE, connection(*qpn, parameters))
        }
        What::DatagramRequest { private_data, .. } => {
            good(event::CONNECT_REQUEST, datagram(None, 0, 0, private_data))
        }
        What::ConnectError(errno) => failed(event::CONNECT_ERROR, errno),
        What::Unreachable(errno) => failed(event::UNREACHABLE, errno),
        // Source: Linux `drivers/infiniband/core/cma.c`, `cma_sidr_rep_handler`.
        What::Rejected { reason, private_data } if space == Some(PortSpace::Udp) => {
            (event::UNREACHABLE, u32::from(reason.0), datagram(None, 0, 0, private_data))
        }
        What::Rejected { reason, private_data } => {
            (event::REJECTED, u32::from(reason.0), private(private_data))
        }
        // What comes with the last message is told to nobody.
        What::Established(_) => good(event::ESTABLISHED, Vec::new()),
        What::DatagramEstablished { path, qpn, qkey, private_data } => {
            good(event::ESTABLISHED, datagram(Some(path), *qpn, *qkey, private_data))
        }
        What::Disconnected => good(event::DISCONNECTED, Vec::new()),
        What::MulticastJoined { path, qpn, qkey } => {
            good(event::MULTICAST_JOIN, datagram(Some(path), *qpn, *qkey, &[]))
        }
        What::MulticastError(errno) => failed(event::MULTICAST_ERROR, errno),
        What::DeviceRemoval => good(event::DEVICE_REMOVAL, Vec::new()),
        What::AddressChange => good(event::ADDR_CHANGE, Vec::new()),
        What::TimewaitExit => good(event::TIMEWAIT_EXIT, Vec::new()),
    }
}
