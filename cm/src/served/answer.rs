//! What commands are answered, and what events are told.

use std::net::SocketAddr;

use pollux_uverbs::abi::connection::{
    ADDRESS_BYTES, ConnParam, EventResp, PathData, QpAttr, QueryAddrResp, UdParam, event,
};
use pollux_uverbs::abi::memory::AhAttr;
use pollux_verbs::{Errno, Path, QpAttributes};
use zerocopy::IntoBytes;

use super::{ClientMemory, Entry, State};
use crate::abi::{address, told};
use crate::occurrence::{Occurrence, What};
use crate::parameters::ConnectionParameters;
use crate::service::gid_of;

/// Where the answer of a command goes, and how much of it there is room for.
pub(super) struct Room<'a> {
    pub(super) memory: &'a dyn ClientMemory,
    pub(super) bytes: usize,
}

impl Room<'_> {
    /// Writes an answer, of which a program wants `least` bytes at least: younger ones may know more.
    pub(super) fn put(&self, response: u64, answer: &[u8], least: usize) -> Result<(), Errno> {
        if self.bytes < least {
            return Err(Errno::ENOSPC);
        }
        self.memory.write(response, &answer[..answer.len().min(self.bytes)])
    }
}

/// Source: Linux `include/linux/socket.h`, `AF_IB`; `include/rdma/ib.h`, `struct sockaddr_ib`.
const AF_IB: u16 = 27;
const IB_ADDRESS_BYTES: u16 = 48;

/// An address as that of a GID.
fn as_gid(local: Option<SocketAddr>) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..2].copy_from_slice(&AF_IB.to_ne_bytes());
    bytes[2..4].copy_from_slice(&0xffff_u16.to_be_bytes());
    if let Some(local) = local {
        bytes[8..24].copy_from_slice(&gid_of(local.ip()));
    }
    bytes
}

/// Whether bytes are an address of InfiniBand's.
pub(super) fn is_of_infiniband(address: &[u8; ADDRESS_BYTES]) -> bool {
    address[..2] == AF_IB.to_ne_bytes()
}

/// The addresses of an ID, and the device and port that they lead to.
pub(super) fn addresses(state: &State, id: u32, as_gids: bool) -> QueryAddrResp {
    let (local, peer) = state.software.addresses(id.into());
    let (node_guid, port_num) = state.software.node(id.into()).unwrap_or_default();
    let mut answer = QueryAddrResp {
        node_guid: node_guid.to_be_bytes(),
        port_num,
        pkey: u16::from_ne_bytes(0xffff_u16.to_be_bytes()),
        ..QueryAddrResp::default()
    };
    if as_gids {
        (answer.src_addr, answer.src_size) = (as_gid(local), IB_ADDRESS_BYTES);
        (answer.dst_addr, answer.dst_size) = (as_gid(peer), IB_ADDRESS_BYTES);
    } else {
        (answer.src_addr, answer.src_size) = local.map_or(([0; ADDRESS_BYTES], 0), address::encode);
        (answer.dst_addr, answer.dst_size) = peer.map_or(([0; ADDRESS_BYTES], 0), address::encode);
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
    // Reversible, and one of it.
    record[49] = 0x80 | 1;
    record[50..52].fill(0xff);
    record[53] = path.service_level;
    // Exactly: what the two upper bits say.
    record[54] = 2 << 6 | mtu;
    record[55] = 2 << 6 | path.rate & 0x3f;
    PathData { flags: FOR_ALL, path_rec: record, ..PathData::default() }
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

fn connection(parameters: &ConnectionParameters) -> Vec<u8> {
    told(0, parameters).as_bytes().to_vec()
}

fn private(private_data: Vec<u8>) -> Vec<u8> {
    connection(&ConnectionParameters { private_data, ..ConnectionParameters::default() })
}

/// An event as it is read, which counts as read from now on. `None` of an ID that is gone.
pub(super) fn told_event(state: &mut State, file: u64, occurrence: Occurrence) -> Option<EventResp> {
    let number = u32::try_from(occurrence.id).ok()?;
    let entry = state.ids.get_mut(&number)?;
    let mut answer = EventResp { uid: entry.uid, id: number, ..EventResp::default() };
    let (options, space) = (entry.options, entry.space);
    // Those about a group count as the membership's.
    entry.reported += u32::from(!matches!(occurrence.what, What::MulticastJoined { .. }));
    let failed = |errno: Errno| (errno.0.wrapping_neg().cast_unsigned(), Vec::new());
    let good = |param| (0, param);
    let mut made_by = None;
    let mut group = None;
    let (event, (status, param)) = match occurrence.what {
        What::AddressResolved => (event::ADDR_RESOLVED, good(Vec::new())),
        What::AddressError(errno) => (event::ADDR_ERROR, failed(errno)),
        What::RouteResolved => (event::ROUTE_RESOLVED, good(Vec::new())),
        What::RouteError(errno) => (event::ROUTE_ERROR, failed(errno)),
        What::ConnectRequest { made, parameters } => {
            made_by = Some(made);
            (event::CONNECT_REQUEST, good(connection(&parameters)))
        }
        What::DatagramRequest { made, private_data } => {
            made_by = Some(made);
            (event::CONNECT_REQUEST, good(datagram(None, 0, 0, &private_data)))
        }
        What::ConnectResponse(parameters) => (event::CONNECT_RESPONSE, good(connection(&parameters))),
        What::ConnectError(errno) => (event::CONNECT_ERROR, failed(errno)),
        What::Unreachable(errno) => (event::UNREACHABLE, failed(errno)),
        What::Rejected { reason, private_data } => {
            (event::REJECTED, (u32::from(reason.0), private(private_data)))
        }
        What::Established(parameters) => (event::ESTABLISHED, good(connection(&parameters))),
        What::DatagramEstablished { path, qpn, qkey, private_data } => {
            (event::ESTABLISHED, good(datagram(Some(&path), qpn, qkey, &private_data)))
        }
        What::Disconnected => (event::DISCONNECTED, good(Vec::new())),
        What::MulticastJoined { path, qpn, qkey } => {
            group = Some(path.gid);
            (event::MULTICAST_JOIN, good(datagram(Some(&path), qpn, qkey, &[])))
        }
        What::MulticastError(errno) => (event::MULTICAST_ERROR, failed(errno)),
        What::DeviceRemoval => (event::DEVICE_REMOVAL, good(Vec::new())),
        What::AddressChange => (event::ADDR_CHANGE, good(Vec::new())),
        What::TimewaitExit => (event::TIMEWAIT_EXIT, good(Vec::new())),
    };
    (answer.event, answer.status) = (event, status);
    crate::message::fill(&mut answer.param, &param);
    const { assert!(size_of::<ConnParam>() <= 304 && size_of::<UdParam>() <= 304) };
    if let Some(gid) = group {
        let joined = state.memberships.iter_mut().find(|(_, it)| it.id == number && gid_of(it.group) == gid);
        let (&membership, found) = joined?;
        found.reported += 1;
        (answer.uid, answer.id) = (found.uid, membership);
        return Some(answer);
    }
    if let Some(made) = made_by {
        let made = u32::try_from(made).ok()?;
        state.ids.insert(made, Entry { uid: 0, file, space, options, reported: 0 });
        answer.id = made;
    }
    Some(answer)
}
