//! The kernel's connection manager, `/dev/infiniband/rdma_cm`: as librdmacm uses it, without librdmacm. Source: rdma-core
//! `librdmacm/cma.c`; Linux `drivers/infiniband/core/ucma.c`.

mod file;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pollux_uverbs::abi::connection as abi;
use pollux_uverbs::abi::connection::{command, event};
use pollux_uverbs::abi::flags::{Access, QpMask, QpState, QpType};
use pollux_verbs::{AsyncKind, Context, Errno, Mtu, Options, QpAttributes};
use zerocopy::FromBytes;

use crate::abi::{address, heard, path, told};
use crate::error::CmError;
use crate::occurrence::{Occurrence, What};
use crate::parameters::{ConnectionParameters, IdOptions, RejectReason};
use crate::service::PortSpace;
use file::CmFile;

/// An ID of the kernel's.
#[derive(Clone, Copy, Debug)]
struct Record {
    handle: u32,
    channel: u64,
    space: PortSpace,
    /// The GUID of the node that it leads to, and the port, once the kernel has told: an ID stays with its device.
    device: Option<(u64, u8)>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    ids: HashMap<u64, Record>,
    /// By the kernel's number: of one that nobody accepted yet, events carry no other.
    by_handle: HashMap<u32, u64>,
    files: HashMap<u64, Arc<CmFile>>,
    /// The kernel's numbers of memberships in multicast groups, by ID.
    groups: HashMap<(u64, IpAddr), u32>,
    /// Channels that are gone, whose IDs keep their files.
    ended: HashSet<u64>,
    /// Devices that were opened, by the GUID of their node.
    contexts: HashMap<u64, Context>,
}

impl Table {
    /// Closes the file of a channel that is gone, with its last ID.
    fn close_unused(&mut self, channel: u64) {
        if self.ended.contains(&channel) && !self.ids.values().any(|record| record.channel == channel) {
            self.ended.remove(&channel);
            self.files.remove(&channel);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Kernel {
    root: PathBuf,
    options: Options,
    table: Mutex<Table>,
}

fn refused(what: &'static str) -> impl FnOnce(Errno) -> CmError {
    move |errno| CmError::Kernel { what, errno }
}

impl Kernel {
    /// Below a root, `/` but in tests; devices are opened with these options.
    pub(crate) fn open(root: &FilePath, options: Options) -> Result<Self, CmError> {
        let kernel = Self { root: root.to_owned(), options, table: Mutex::default() };
        // Whether there is one is told at once.
        kernel.new_file()?;
        Ok(kernel)
    }

    fn new_file(&self) -> Result<CmFile, CmError> {
        let path = self.root.join("dev/infiniband/rdma_cm");
        CmFile::open(&path).map_err(|source| CmError::Open { path, source })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn channel(&self) -> Result<u64, CmError> {
        let file = Arc::new(self.new_file()?);
        let mut table = self.table();
        table.next += 1;
        let channel = table.next;
        table.files.insert(channel, file);
        Ok(channel)
    }

    pub(crate) fn end_channel(&self, channel: u64) {
        let mut table = self.table();
        table.ended.insert(channel);
        table.close_unused(channel);
    }

    fn file_of(&self, channel: u64) -> Result<Arc<CmFile>, CmError> {
        let gone = CmError::State { what: "use the channel", why: "it ended" };
        self.table().files.get(&channel).cloned().ok_or(gone)
    }

    /// An ID, and the file that it is of.
    fn record(&self, id: u64) -> Result<(Record, Arc<CmFile>), CmError> {
        let unknown = CmError::State { what: "use the ID", why: "it was made by another manager" };
        let record = self.table().ids.get(&id).copied().ok_or(unknown)?;
        Ok((record, self.file_of(record.channel)?))
    }

    pub(crate) fn create(&self, channel: u64, space: PortSpace) -> Result<u64, CmError> {
        let file = self.file_of(channel)?;
        let number = {
            let mut table = self.table();
            table.next += 1;
            table.next
        };
        let qp_type = match space {
            PortSpace::Tcp => QpType::RC,
            PortSpace::Udp => QpType::UD,
        };
        let made: abi::CreateIdResp = file
            .ask(command::CREATE_ID, |response| abi::CreateId {
                uid: number,
                response,
                ps: space.code(),
                qp_type: qp_type.0,
                ..abi::CreateId::default()
            })
            .map_err(refused("create an ID"))?;
        self.put(number, Record { handle: made.id, channel, space, device: None });
        Ok(number)
    }

    fn put(&self, number: u64, record: Record) {
        let mut table = self.table();
        table.by_handle.insert(record.handle, number);
        table.ids.insert(number, record);
    }

    pub(crate) fn destroy(&self, id: u64) {
        let Ok((record, file)) = self.record(id) else { return };
        let ended: Result<abi::DestroyIdResp, Errno> = file.ask(command::DESTROY_ID, |response| {
            abi::DestroyId { response, id: record.handle, ..abi::DestroyId::default() }
        });
        if let Err(errno) = ended {
            tracing::warn!(target: "lib.cm", "cannot destroy an ID: {errno}");
        }
        let mut table = self.table();
        table.ids.remove(&id);
        table.by_handle.remove(&record.handle);
        table.groups.retain(|(of, _), _| *of != id);
        table.close_unused(record.channel);
    }

    pub(crate) fn migrate(&self, id: u64, to: u64) -> Result<(), CmError> {
        let (record, from) = self.record(id)?;
        let file = self.file_of(to)?;
        let what = "move an ID to another channel";
        // Asked of the new file, which names the old one.
        let _: abi::MigrateResp = file
            .ask(command::MIGRATE_ID, |response| abi::MigrateId {
                response,
                id: record.handle,
                fd: from.as_fd().as_raw_fd() as u32,
            })
            .map_err(refused(what))?;
        let mut table = self.table();
        if let Some(record) = table.ids.get_mut(&id) {
            record.channel = to;
        }
        table.close_unused(record.channel);
        Ok(())
    }

    pub(crate) fn bind(&self, id: u64, address: SocketAddr) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let (addr, addr_size) = address::encode(address);
        let bind = abi::Bind { id: record.handle, addr_size, addr, ..abi::Bind::default() };
        file.tell(command::BIND, &bind).map_err(refused("bind the ID"))
    }

    pub(crate) fn listen(&self, id: u64, backlog: u32) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        file.tell(command::LISTEN, &abi::Listen { id: record.handle, backlog }).map_err(refused("listen"))
    }

    pub(crate) fn resolve_address(
        &self,
        id: u64,
        source: Option<SocketAddr>,
        destination: SocketAddr,
        timeout: Duration,
    ) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let (dst_addr, dst_size) = address::encode(destination);
        let (src_addr, src_size) = source.map_or(([0; abi::ADDRESS_BYTES], 0), address::encode);
        let resolve = abi::ResolveAddr {
            id: record.handle,
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
            src_size,
            dst_size,
            src_addr,
            dst_addr,
            ..abi::ResolveAddr::default()
        };
        file.tell(command::RESOLVE_ADDR, &resolve).map_err(refused("resolve the address"))
    }

    pub(crate) fn resolve_route(&self, id: u64, timeout: Duration) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let resolve = abi::ResolveRoute { id: record.handle, timeout_ms };
        file.tell(command::RESOLVE_ROUTE, &resolve).map_err(refused("resolve the route"))
    }

    fn query(&self, id: u64) -> Result<abi::QueryAddrResp, CmError> {
        let (record, file) = self.record(id)?;
        file.ask(command::QUERY, |response| abi::Query {
            response,
            id: record.handle,
            option: abi::QUERY_ADDR,
        })
        .map_err(refused("ask for the addresses of an ID"))
    }

    pub(crate) fn addresses(&self, id: u64) -> (Option<SocketAddr>, Option<SocketAddr>) {
        self.query(id)
            .map_or((None, None), |told| (address::decode(&told.src_addr), address::decode(&told.dst_addr)))
    }

    pub(crate) fn space(&self, id: u64) -> Option<PortSpace> {
        self.table().ids.get(&id).map(|record| record.space)
    }

    /// The GUID of the node that an ID leads to, and the port. Source: Linux `drivers/infiniband/core/cma.c`, where an ID that has a device
    /// is never given another.
    fn node(&self, id: u64) -> Result<Option<(u64, u8)>, CmError> {
        let known = self.table().ids.get(&id).and_then(|record| record.device);
        if known.is_some() {
            return Ok(known);
        }
        let told = self.query(id)?;
        let guid = u64::from_be_bytes(told.node_guid);
        if guid == 0 {
            return Ok(None);
        }
        let node = (guid, told.port_num);
        if let Some(record) = self.table().ids.get_mut(&id) {
            record.device = Some(node);
        }
        Ok(Some(node))
    }

    /// The device of an ID, opened if it was not, and its port.
    pub(crate) fn device(&self, id: u64) -> Result<Option<(Context, u8)>, CmError> {
        let Some((guid, port)) = self.node(id)? else { return Ok(None) };
        if let Some(context) = self.table().contexts.get(&guid) {
            return Ok(Some((context.clone(), port)));
        }
        let devices = pollux_verbs::devices(&self.root)?;
        let Some(device) = devices.iter().find(|device| device.node_guid == Some(guid)) else {
            return Ok(None);
        };
        let context = Context::open_device(device, self.options.clone())?;
        self.table().contexts.insert(guid, context.clone());
        Ok(Some((context, port)))
    }

    pub(crate) fn qp_attributes(&self, id: u64, state: QpState) -> Result<QpAttributes, CmError> {
        let (record, file) = self.record(id)?;
        let told: abi::QpAttr = file
            .ask(command::INIT_QP_ATTR, |response| abi::InitQpAttr {
                response,
                id: record.handle,
                qp_state: state.0.into(),
            })
            .map_err(refused("ask for attributes of a queue pair"))?;
        let mask = QpMask::from_bits_retain(told.qp_attr_mask);
        let given = |bit| mask.contains(bit);
        Ok(QpAttributes {
            access: given(QpMask::ACCESS_FLAGS).then(|| Access::from_bits_retain(told.qp_access_flags)),
            pkey_index: given(QpMask::PKEY_INDEX).then_some(told.pkey_index),
            port: given(QpMask::PORT).then_some(told.port_num),
            qkey: given(QpMask::QKEY).then_some(told.qkey),
            path: given(QpMask::AV).then(|| path(&told.ah_attr)),
            mtu: if given(QpMask::PATH_MTU) { Mtu::from_code(told.path_mtu as u8) } else { None },
            timeout: given(QpMask::TIMEOUT).then_some(told.timeout),
            retries: given(QpMask::RETRY_CNT).then_some(told.retry_cnt),
            rnr_retries: given(QpMask::RNR_RETRY).then_some(told.rnr_retry),
            rq_psn: given(QpMask::RQ_PSN).then_some(told.rq_psn),
            sq_psn: given(QpMask::SQ_PSN).then_some(told.sq_psn),
            max_rd_atomic: given(QpMask::MAX_QP_RD_ATOMIC).then_some(told.max_rd_atomic),
            max_dest_rd_atomic: given(QpMask::MAX_DEST_RD_ATOMIC).then_some(told.max_dest_rd_atomic),
            min_rnr_timer: given(QpMask::MIN_RNR_TIMER).then_some(told.min_rnr_timer),
            dest_qpn: given(QpMask::DEST_QPN).then_some(told.dest_qp_num),
            ..QpAttributes::state(state)
        })
    }

    pub(crate) fn connect(
        &self,
        id: u64,
        qpn: u32,
        parameters: &ConnectionParameters,
    ) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let conn_param = told(qpn, parameters);
        let connect = abi::Connect { conn_param, id: record.handle, ..abi::Connect::default() };
        file.tell(command::CONNECT, &connect).map_err(refused("connect"))
    }

    pub(crate) fn accept(&self, id: u64, qpn: u32, parameters: &ConnectionParameters) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let conn_param = told(qpn, parameters);
        let accept = abi::Accept { uid: id, conn_param, id: record.handle, ..abi::Accept::default() };
        file.tell(command::ACCEPT, &accept).map_err(refused("accept"))
    }

    /// Of who connected: both may send. Source: rdma-core `librdmacm/cma.c`, `rdma_establish`.
    pub(crate) fn establish(&self, id: u64) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let accept = abi::Accept { uid: id, id: record.handle, ..abi::Accept::default() };
        file.tell(command::ACCEPT, &accept).map_err(refused("establish the connection"))
    }

    pub(crate) fn reject(&self, id: u64, private: &[u8]) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let mut reject = abi::Reject {
            id: record.handle,
            private_data_len: private.len() as u8,
            ..abi::Reject::default()
        };
        crate::message::fill(&mut reject.private_data, private);
        file.tell(command::REJECT, &reject).map_err(refused("reject"))
    }

    /// Joins a multicast group. The event about it carries the ID's number.
    pub(crate) fn join(&self, id: u64, group: IpAddr, sends_only: bool) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let (addr, addr_size) = address::encode(SocketAddr::new(group, 0));
        let join_flags = if sends_only { abi::join::SENDONLY_FULLMEMBER } else { abi::join::FULLMEMBER };
        if self.table().groups.contains_key(&(id, group)) {
            return Err(CmError::State { what: "join", why: "the ID is in the group" });
        }
        let joined: abi::CreateIdResp = file
            .ask(command::JOIN_MCAST, |response| abi::JoinMcast {
                response,
                uid: id,
                id: record.handle,
                addr_size,
                join_flags,
                addr,
            })
            .map_err(refused("join the multicast group"))?;
        self.table().groups.insert((id, group), joined.id);
        Ok(())
    }

    pub(crate) fn leave(&self, id: u64, group: IpAddr) -> Result<(), CmError> {
        let (_, file) = self.record(id)?;
        let Some(membership) = self.table().groups.remove(&(id, group)) else {
            return Err(CmError::State { what: "leave", why: "the ID is not in the group" });
        };
        let _: abi::DestroyIdResp = file
            .ask(command::LEAVE_MCAST, |response| abi::DestroyId {
                response,
                id: membership,
                ..abi::DestroyId::default()
            })
            .map_err(refused("leave the multicast group"))?;
        Ok(())
    }

    pub(crate) fn disconnect(&self, id: u64) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        match file.tell(command::DISCONNECT, &abi::Disconnect { id: record.handle }) {
            // It is over.
            Ok(()) | Err(Errno::EINVAL) => Ok(()),
            Err(errno) => Err(refused("disconnect")(errno)),
        }
    }

    pub(crate) fn established_by_data(&self, id: u64) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        match file.tell(command::NOTIFY, &abi::Notify { id: record.handle, event: AsyncKind::COMM_EST.0 }) {
            // It is known.
            Ok(()) | Err(Errno::EISCONN) => Ok(()),
            Err(errno) => Err(refused("notify")(errno)),
        }
    }

    pub(crate) fn set_options(&self, id: u64, options: IdOptions) -> Result<(), CmError> {
        if options.type_of_service != 0 {
            self.set_option(id, abi::option::TOS, &[options.type_of_service])?;
        }
        if options.reuse_address {
            self.set_option(id, abi::option::REUSEADDR, &1i32.to_ne_bytes())?;
        }
        if options.own_family_only {
            self.set_option(id, abi::option::AFONLY, &1i32.to_ne_bytes())?;
        }
        if let Some(timeout) = options.ack_timeout {
            self.set_option(id, abi::option::ACK_TIMEOUT, &[timeout])?;
        }
        Ok(())
    }

    fn set_option(&self, id: u64, name: u32, value: &[u8]) -> Result<(), CmError> {
        let (record, file) = self.record(id)?;
        let option = abi::SetOption {
            optval: value.as_ptr().expose_provenance() as u64,
            id: record.handle,
            level: abi::option::LEVEL_ID,
            optname: name,
            optlen: value.len() as u32,
        };
        file.tell(command::SET_OPTION, &option).map_err(refused("set an option"))
    }

    /// The next event of a channel, if there is one.
    pub(crate) fn next(&self, channel: u64) -> Result<Option<Occurrence>, CmError> {
        let file = self.file_of(channel)?;
        loop {
            let told: Result<abi::EventResp, Errno> =
                file.ask(command::GET_EVENT, |response| abi::GetEvent { response });
            let told = match told {
                Ok(told) => told,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(refused("read an event")(errno)),
            };
            if let Some(occurrence) = self.occurrence(channel, &told) {
                return Ok(Some(occurrence));
            }
        }
    }

    /// `None` of an ID that is gone, and of an event that is not known here.
    fn occurrence(&self, channel: u64, told: &abi::EventResp) -> Option<Occurrence> {
        let id = match told.uid {
            0 => *self.table().by_handle.get(&told.id)?,
            id => id,
        };
        let errno = Errno((told.status as i32).wrapping_neg());
        let datagrams = self.space(id) == Some(PortSpace::Udp);
        let datagram = || abi::UdParam::read_from_bytes(&told.param).ok();
        let private =
            |param: &abi::UdParam| param.private_data[..usize::from(param.private_data_len)].to_vec();
        let what = match told.event {
            event::ADDR_RESOLVED => What::AddressResolved,
            event::ADDR_ERROR => What::AddressError(errno),
            event::ROUTE_RESOLVED => What::RouteResolved,
            event::ROUTE_ERROR => What::RouteError(errno),
            event::CONNECT_REQUEST => {
                let space = self.space(id)?;
                let made = {
                    let mut table = self.table();
                    table.next += 1;
                    table.next
                };
                self.put(made, Record { handle: told.id, channel, space, device: None });
                if datagrams {
                    What::DatagramRequest { made, private_data: private(&datagram()?) }
                } else {
                    let (qpn, parameters) = heard(&told.param);
                    What::ConnectRequest { made, qpn, parameters }
                }
            }
            event::CONNECT_RESPONSE => {
                let (qpn, parameters) = heard(&told.param);
                What::ConnectResponse { qpn, parameters }
            }
            event::CONNECT_ERROR => What::ConnectError(errno),
            // So is told that a peer refuses datagrams, with its status. Source: Linux `drivers/infiniband/core/cma.c`,
            // `cma_sidr_rep_handler`.
            event::UNREACHABLE if datagrams && told.status.cast_signed() > 0 => What::Rejected {
                reason: RejectReason(told.status as u16),
                private_data: private(&datagram()?),
            },
            event::UNREACHABLE => What::Unreachable(errno),
            event::REJECTED => What::Rejected {
                reason: RejectReason(told.status as u16),
                private_data: heard(&told.param).1.private_data,
            },
            event::ESTABLISHED if datagrams => {
                let param = datagram()?;
                What::DatagramEstablished {
                    path: path(&param.ah_attr),
                    qpn: param.qp_num,
                    qkey: param.qkey,
                    private_data: private(&param),
                }
            }
            event::ESTABLISHED => What::Established(heard(&told.param).1),
            event::DISCONNECTED => What::Disconnected,
            event::MULTICAST_JOIN => {
                let param = datagram()?;
                What::MulticastJoined { path: path(&param.ah_attr), qpn: param.qp_num, qkey: param.qkey }
            }
            event::MULTICAST_ERROR => What::MulticastError(errno),
            event::DEVICE_REMOVAL => What::DeviceRemoval,
            event::ADDR_CHANGE => What::AddressChange,
            event::TIMEWAIT_EXIT => What::TimewaitExit,
            other => {
                tracing::debug!(target: "lib.cm", "event {other} is not known here");
                return None;
            }
        };
        Some(Occurrence { id, what })
    }

    /// Waits until a channel may have an event.
    pub(crate) fn wait(&self, channel: u64, timeout: Duration) -> Result<(), CmError> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let file = self.file_of(channel)?;
        let limit =
            Timespec { tv_sec: timeout.as_secs().min(3600) as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut one = [PollFd::new(&*file, PollFlags::IN)];
        match poll(&mut one, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(refused("wait for events")(Errno(errno.raw_os_error()))),
        }
    }
}
