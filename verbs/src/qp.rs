//! Queue pairs: made, connected, asked, changed. What they post is in [`batch`](crate::Batch).

use std::sync::Arc;

use crate::provider::mlx5::qp as mlx5_qp;
use crate::provider::request::NO_RECEIVES;
use crate::provider::{Ends, QueueBase, Side, each, each_its_own, rxe};
use pollux_mlx5_common::key::Keys;
use pollux_uverbs::QpHandle;
use pollux_uverbs::abi::flags::{Access, QpMask, QpState, QpType};
use pollux_uverbs::abi::queue_pair::{ModifyQp, QpDest, QueryQpResp};
use pollux_uverbs::qp::QpHome;

use crate::ah::Path;
use crate::batch::{Batch, FOREIGN, List, Receives};
use crate::cq::{COMPLETION_QUEUE, Cq};
use crate::flow::{Rule, RuleId, Rules};
use crate::mr::{Attached, Mr};
use crate::options::{QpOptions, QpSizes};
use crate::pd::Pd;
use crate::srq::Srq;
use crate::view::{Errors, Listed, QpRecord};
use crate::xrcd::Xrcd;
use crate::{Context, Mtu, PostError, QpKind, VerbsError, state};

/// A region that is too short for linked receives.
const SHORT: PostError = PostError::Incomplete(
    "a region shorter than the receives of the queue (Qp::sizes) times the bytes of each, or pieces of none or over 2 GiB",
);

pub(crate) mod ece;
pub(crate) mod order;

/// Attributes for [`Qp::modify`]. Those that are `None` stay unchanged.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpAttributes {
    /// Next state.
    pub state: Option<QpState>,
    /// Assumed current state (`IBV_QP_CUR_STATE`).
    pub current: Option<QpState>,
    /// Remote access rights.
    pub access: Option<Access>,
    /// P_Key index.
    pub pkey_index: Option<u16>,
    /// Port, from 1.
    pub port: Option<u8>,
    /// Q_Key.
    pub qkey: Option<u32>,
    /// Address vector of the path to the peer.
    pub path: Option<Path>,
    /// Path MTU.
    pub mtu: Option<Mtu>,
    /// ACK timeout, 4.096 us x 2^n; 0 disables it.
    pub timeout: Option<u8>,
    /// Retry count.
    pub retries: Option<u8>,
    /// RNR retry count; 7 is infinite.
    pub rnr_retries: Option<u8>,
    /// Initial PSN expected from the peer.
    pub rq_psn: Option<u32>,
    /// Initial PSN of the send queue.
    pub sq_psn: Option<u32>,
    /// Outstanding RDMA reads and atomics as initiator.
    pub max_rd_atomic: Option<u8>,
    /// Outstanding RDMA reads and atomics as responder.
    pub max_dest_rd_atomic: Option<u8>,
    /// Minimum RNR NAK timer, as code.
    pub min_rnr_timer: Option<u8>,
    /// QP number of the peer.
    pub dest_qpn: Option<u32>,
    /// Alternate path, its P_Key index and its ACK timeout.
    pub alternate: Option<(Path, u16, u8)>,
    /// Path migration state: 0 migrated, 1 rearm, 2 armed.
    pub migration: Option<u8>,
    /// Requests the event `SQ_DRAINED` in the transition to SQD, which Linux's mlx5_ib refuses.
    pub notify_drained: Option<bool>,
    /// Rate limit in kbit/s.
    pub rate_limit: Option<u32>,
}

impl QpAttributes {
    /// Only the next state.
    #[must_use]
    pub fn state(state: QpState) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// Which attributes are given.
    #[must_use]
    pub fn mask(&self) -> QpMask {
        let given = [
            (QpMask::STATE, self.state.is_some()),
            (QpMask::CUR_STATE, self.current.is_some()),
            (QpMask::ACCESS_FLAGS, self.access.is_some()),
            (QpMask::PKEY_INDEX, self.pkey_index.is_some()),
            (QpMask::PORT, self.port.is_some()),
            (QpMask::QKEY, self.qkey.is_some()),
            (QpMask::AV, self.path.is_some()),
            (QpMask::PATH_MTU, self.mtu.is_some()),
            (QpMask::TIMEOUT, self.timeout.is_some()),
            (QpMask::RETRY_CNT, self.retries.is_some()),
            (QpMask::RNR_RETRY, self.rnr_retries.is_some()),
            (QpMask::RQ_PSN, self.rq_psn.is_some()),
            (QpMask::SQ_PSN, self.sq_psn.is_some()),
            (QpMask::MAX_QP_RD_ATOMIC, self.max_rd_atomic.is_some()),
            (QpMask::MAX_DEST_RD_ATOMIC, self.max_dest_rd_atomic.is_some()),
            (QpMask::MIN_RNR_TIMER, self.min_rnr_timer.is_some()),
            (QpMask::DEST_QPN, self.dest_qpn.is_some()),
            (QpMask::ALT_PATH, self.alternate.is_some()),
            (QpMask::PATH_MIG_STATE, self.migration.is_some()),
            (QpMask::EN_SQD_ASYNC_NOTIFY, self.notify_drained.is_some()),
            (QpMask::RATE_LIMIT, self.rate_limit.is_some()),
        ];
        given.into_iter().filter(|(_, is)| *is).map(|(mask, _)| mask).collect()
    }

    pub(crate) fn values(&self) -> ModifyQp {
        let alternate = self.alternate.as_ref();
        ModifyQp {
            dest: self.path.as_ref().map(destination).unwrap_or_default(),
            alt_dest: alternate.map(|(path, ..)| destination(path)).unwrap_or_default(),
            alt_pkey_index: alternate.map_or(0, |(_, pkey, _)| *pkey),
            alt_timeout: alternate.map_or(0, |(.., timeout)| *timeout),
            alt_port_num: alternate.map_or(0, |(path, ..)| path.port),
            qkey: self.qkey.unwrap_or(0),
            rq_psn: self.rq_psn.unwrap_or(0) & 0xff_ffff,
            sq_psn: self.sq_psn.unwrap_or(0) & 0xff_ffff,
            dest_qp_num: self.dest_qpn.unwrap_or(0),
            qp_access_flags: self.access.unwrap_or_default().bits(),
            pkey_index: self.pkey_index.unwrap_or(0),
            qp_state: self.state.map_or(0, |state| state.0),
            cur_qp_state: self.current.map_or(0, |state| state.0),
            path_mtu: self.mtu.map_or(0, Mtu::code),
            path_mig_state: self.migration.unwrap_or(0),
            en_sqd_async_notify: u8::from(self.notify_drained.unwrap_or(false)),
            max_rd_atomic: self.max_rd_atomic.unwrap_or(0),
            max_dest_rd_atomic: self.max_dest_rd_atomic.unwrap_or(0),
            min_rnr_timer: self.min_rnr_timer.unwrap_or(0),
            port_num: self.port.unwrap_or(0),
            timeout: self.timeout.unwrap_or(0),
            retry_cnt: self.retries.unwrap_or(0),
            rnr_retry: self.rnr_retries.unwrap_or(0),
            ..ModifyQp::default()
        }
    }
}

fn destination(path: &Path) -> QpDest {
    QpDest {
        dgid: path.gid,
        flow_label: path.flow_label,
        dlid: path.lid,
        sgid_index: path.gid_index,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        sl: path.service_level,
        static_rate: path.rate,
        is_global: 1,
        port_num: path.port,
        ..QpDest::default()
    }
}

/// A packet sequence number to begin with, 24 bits: another one each time, so that packets of an earlier connection are told apart.
#[must_use]
pub fn random_psn() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(()) as u32 & 0xff_ffff
}

/// Parameters of a connection. The defaults are those of rdma-core's examples.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Address vector of the path to the peer.
    pub path: Path,
    /// QP number of the peer.
    pub qpn: u32,
    /// Initial PSN expected from the peer.
    pub rq_psn: u32,
    /// Initial PSN of the send queue.
    pub sq_psn: u32,
    /// Path MTU.
    pub mtu: Mtu,
    /// Outstanding RDMA reads and atomics as initiator.
    pub max_rd_atomic: u8,
    /// Outstanding RDMA reads and atomics as responder.
    pub max_dest_rd_atomic: u8,
    /// Minimum RNR NAK timer, as code.
    pub min_rnr_timer: u8,
    /// ACK timeout, 4.096 us x 2^n; 0 disables it.
    pub timeout: u8,
    /// Retry count.
    pub retries: u8,
    /// RNR retry count; 7 is infinite.
    pub rnr_retries: u8,
}

impl Connection {
    /// Creates the parameters of a connection to a QP of the peer.
    #[must_use]
    pub fn new(path: Path, qpn: u32) -> Self {
        Self {
            path,
            qpn,
            rq_psn: 0,
            sq_psn: 0,
            mtu: Mtu::Bytes1024,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            timeout: 14,
            retries: 7,
            rnr_retries: 7,
        }
    }
}

/// Refuses a queue pair that is to segment frames where it cannot. Source: rdma-core `providers/mlx5/verbs.c`, `create_qp`.
fn admit_tso(context: &Context, options: &QpOptions) -> Result<(), VerbsError> {
    let refuse = |why: String| Err(VerbsError::Unsupported { what: "TSO", why });
    if options.tso_header == 0 {
        return Ok(());
    }
    if options.kind != QpKind::Raw {
        return refuse(format!("{} QPs do not segment frames; RAW_PACKET QPs do", options.kind));
    }
    let limits = context.frame_limits();
    if limits.max_tso == 0 || !QpType::RAW_PACKET.is_in(limits.tso_kinds) {
        return refuse("this device segments no frames of RAW_PACKET QPs (FrameLimits::max_tso)".into());
    }
    Ok(())
}

/// What a queue pair belongs to and receives through.
#[derive(Debug)]
enum Home {
    Pd(Pd),
    Xrcd(Xrcd),
}

impl Home {
    fn pd(&self) -> Option<&Pd> {
        match self {
            Self::Pd(pd) => Some(pd),
            Self::Xrcd(_) => None,
        }
    }
}

/// A queue pair. It belongs to whoever posts; when it is dropped the device's is destroyed, and what was posted goes home once
/// its completion queues were polled again or are gone too. If the kernel refuses to destroy it, all of that stays where it is
/// for good. Forgotten ([`std::mem::forget`]), it works on, and what it was given stays out of reach.
#[derive(Debug)]
pub struct Qp {
    /// First, so that they are gone when the queue pair goes.
    rules: Rules,
    record: Listed<QpRecord>,
    side: Side<mlx5_qp::Qp, rxe::qp::Qp>,
    attached: Attached,
    kind: QpKind,
    state: QpState,
    id: u64,
    home: Home,
}

impl Qp {
    /// A queue pair whose sends complete in one queue and receives in another or the same, with what it receives posted to
    /// itself. It is in state RESET.
    ///
    /// # Errors
    /// Sizes that the device does not have, a transport that is made otherwise, a completion queue of another context
    /// ([`VerbsError::Foreign`]), or what the kernel says: `EPERM` for a raw one without CAP_NET_RAW.
    #[doc(alias = "ibv_create_qp")]
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn new(pd: &Pd, send_cq: &Cq, recv_cq: &Cq, options: &QpOptions) -> Result<Self, VerbsError> {
        if options.kind == QpKind::XrcReceive {
            return Err(VerbsError::Unsupported {
                what: "XRC receiver in a protection domain",
                why: "it belongs to an XRC domain: Qp::xrc_receiver".into(),
            });
        }
        Self::make(Home::Pd(pd.clone()), Some(send_cq), Some(recv_cq), None, options)
    }

    /// Creates a queue pair that receives from a shared receive queue.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_srq(
        pd: &Pd,
        send_cq: &Cq,
        recv_cq: &Cq,
        srq: &Srq,
        options: &QpOptions,
    ) -> Result<Self, VerbsError> {
        Self::make(Home::Pd(pd.clone()), Some(send_cq), Some(recv_cq), Some(srq), options)
    }

    /// Creates an XRC receive QP: each message names its shared receive queue.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn xrc_receiver(xrcd: &Xrcd) -> Result<Self, VerbsError> {
        let options = QpOptions::new(QpKind::XrcReceive).depth(0, 0);
        Self::make(Home::Xrcd(xrcd.clone()), None, None, None, &options)
    }

    fn make(
        home: Home,
        send_cq: Option<&Cq>,
        recv_cq: Option<&Cq>,
        srq: Option<&Srq>,
        options: &QpOptions,
    ) -> Result<Self, VerbsError> {
        let (context, keys, kernel_home) = match &home {
            Home::Pd(pd) => (pd.context(), Some(pd.keys()), QpHome::Pd(pd.handle())),
            Home::Xrcd(xrcd) => (xrcd.context(), None, QpHome::Xrcd(xrcd.handle())),
        };
        for cq in [send_cq, recv_cq].into_iter().flatten() {
            context.admit(COMPLETION_QUEUE, cq.context())?;
        }
        if let Some(srq) = srq {
            context.admit("a shared receive queue", srq.context())?;
        }
        admit_tso(context, options)?;
        let id = context.object_number();
        let attached = Attached::new(context);
        let errors = Arc::<Errors>::default();
        let base = QueueBase {
            keys: keys.unwrap_or_else(Keys::empty),
            user_handle: id,
            kept: attached.keeper(home.pd()),
            errors: Arc::clone(&errors),
        };
        let side = match context.driver() {
            Side::Mlx5(hca) => {
                let [send_cq, recv_cq] = [send_cq, recv_cq].map(|cq| cq.map(Cq::mlx5));
                let ends = Ends { send_cq, recv_cq, srq: srq.map(Srq::mlx5) };
                Side::Mlx5(hca.create_qp(kernel_home, ends, options, base)?)
            }
            Side::Rxe(rxe) => {
                let [send_cq, recv_cq] = [send_cq, recv_cq].map(|cq| cq.map(Cq::rxe));
                let ends = Ends { send_cq, recv_cq, srq: srq.map(Srq::rxe) };
                Side::Rxe(rxe.create_qp(kernel_home, ends, options, base)?)
            }
        };
        let rules = Rules::new(context);
        let (made, gauges) = each!(&side, qp => ((qp.number(), options.kind, qp.sizes()), qp.gauges()));
        let record = context.registry().qps.add(QpRecord::new(made, gauges, errors));
        Ok(Self { rules, record, side, attached, kind: options.kind, state: QpState::RESET, id, home })
    }

    /// Returns the context.
    #[must_use]
    pub fn context(&self) -> &Context {
        match &self.home {
            Home::Pd(pd) => pd.context(),
            Home::Xrcd(xrcd) => xrcd.context(),
        }
    }

    /// Returns the ID by which events refer to it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the QP number.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        each!(&self.side, qp => qp.number())
    }

    /// Transport type.
    #[must_use]
    pub fn kind(&self) -> QpKind {
        self.kind
    }

    /// Returns the state set last. After an error the device may be in another one; see [`query`](Self::query).
    #[must_use]
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Returns the actual capacities.
    #[must_use]
    pub fn sizes(&self) -> QpSizes {
        each!(&self.side, qp => qp.sizes())
    }

    /// Returns the most completions that it can leave unpolled: what a completion queue that serves it alone must hold. More than
    /// sends and receives together where its entries vary in length.
    #[must_use]
    pub fn completions(&self) -> u32 {
        each!(&self.side, qp => qp.completions())
    }

    /// Grows a completion queue, if it must, so that all that this queue pair may have under way can complete: devices round its rings
    /// up, and whoever posts until they are full would overrun a completion queue of the size that was asked for.
    ///
    /// # Errors
    /// As [`Cq::resize`].
    pub fn make_room(&self, cq: &mut Cq) -> Result<(), VerbsError> {
        if self.completions() > cq.entries() { cq.resize(self.completions()) } else { Ok(()) }
    }

    fn handle(&self) -> QpHandle {
        each!(&self.side, qp => qp.handle())
    }

    /// Changes attributes, of which the state is one. To RESET, nothing is posted any more: what was goes home once the
    /// completion queues were polled.
    ///
    /// # Errors
    /// A change that the state does not allow, an attribute that is missing or too much, or what the kernel says.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, attributes: &QpAttributes) -> Result<(), VerbsError> {
        let mask = attributes.mask();
        let from = attributes.current.unwrap_or(self.state);
        let to = attributes.state.unwrap_or(from);
        state::check(self.kind, from, to, mask)?;
        let resets = attributes.state == Some(QpState::RESET);
        // Counted before the kernel empties a ring that stays.
        let before =
            [&self.record.send, &self.record.receive].map(|meter| resets.then(|| meter.level()).flatten());
        each!(&mut self.side, qp => qp.change(mask, &attributes.values(), attributes.rate_limit))
            .map_err(VerbsError::kernel("modify a queue pair"))?;
        self.state = to;
        if resets {
            each!(&mut self.side, qp => qp.was_reset());
            let [send, receive] = each!(&self.side, qp => qp.gauges());
            let [sent, received] = before;
            self.record.send.was_reset(send, sent);
            self.record.receive.was_reset(receive, received);
        }
        self.record.changed(to, attributes.dest_qpn);
        Ok(())
    }

    /// Modifies the QP to INIT, with a port and remote access rights. Receives can be posted from then on.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn init(&mut self, port: u8, access: Access) -> Result<(), VerbsError> {
        let mut attributes = QpAttributes { port: Some(port), ..QpAttributes::state(QpState::INIT) };
        match self.kind {
            QpKind::Raw => {}
            // For a datagram queue pair: a queue key of 0, which `modify` changes.
            QpKind::Ud => (attributes.pkey_index, attributes.qkey) = (Some(0), Some(0)),
            QpKind::Gsi => {
                (attributes.pkey_index, attributes.qkey, attributes.port) = (Some(0), Some(0), None);
            }
            _ => (attributes.pkey_index, attributes.access) = (Some(0), Some(access)),
        }
        self.modify(&attributes)
    }

    /// Modifies a UD or GSI QP to INIT, RTR and RTS, with a Q_Key.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn ready_datagram(&mut self, port: u8, qkey: u32, sq_psn: u32) -> Result<(), VerbsError> {
        self.modify(&QpAttributes {
            port: (self.kind != QpKind::Gsi).then_some(port),
            pkey_index: Some(0),
            qkey: Some(qkey),
            ..QpAttributes::state(QpState::INIT)
        })?;
        self.modify(&QpAttributes::state(QpState::RTR))?;
        self.modify(&QpAttributes { sq_psn: Some(sq_psn), ..QpAttributes::state(QpState::RTS) })
    }

    /// Modifies a raw packet QP from INIT to RTR and RTS.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn ready_frames(&mut self) -> Result<(), VerbsError> {
        self.modify(&QpAttributes::state(QpState::RTR))?;
        self.modify(&QpAttributes::state(QpState::RTS))
    }

    /// Modifies the QP from INIT to RTR: it can receive from the peer.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn ready_to_receive(&mut self, connection: &Connection) -> Result<(), VerbsError> {
        let responder = matches!(self.kind, QpKind::Rc | QpKind::XrcReceive);
        let connected = !matches!(self.kind, QpKind::Ud | QpKind::Gsi | QpKind::Raw);
        self.modify(&QpAttributes {
            path: connected.then_some(connection.path),
            mtu: connected.then_some(connection.mtu),
            dest_qpn: connected.then_some(connection.qpn),
            rq_psn: connected.then_some(connection.rq_psn),
            max_dest_rd_atomic: responder.then_some(connection.max_dest_rd_atomic),
            min_rnr_timer: responder.then_some(connection.min_rnr_timer),
            ..QpAttributes::state(QpState::RTR)
        })
    }

    /// Modifies the QP from RTR to RTS: it can send.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn ready_to_send(&mut self, connection: &Connection) -> Result<(), VerbsError> {
        let requester = matches!(self.kind, QpKind::Rc | QpKind::XrcSend);
        self.modify(&QpAttributes {
            sq_psn: (self.kind != QpKind::Raw).then_some(connection.sq_psn),
            timeout: (requester || self.kind == QpKind::XrcReceive).then_some(connection.timeout),
            retries: requester.then_some(connection.retries),
            rnr_retries: requester.then_some(connection.rnr_retries),
            max_rd_atomic: requester.then_some(connection.max_rd_atomic),
            ..QpAttributes::state(QpState::RTS)
        })
    }

    /// Modifies the QP from INIT to RTR and RTS.
    ///
    /// # Errors
    /// As [`modify`](Self::modify).
    pub fn connect(&mut self, connection: &Connection) -> Result<(), VerbsError> {
        self.ready_to_receive(connection)?;
        self.ready_to_send(connection)
    }

    /// Queries the attributes, the state among them, from the device.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QueryQpResp, VerbsError> {
        self.context()
            .uverbs()
            .query_qp(self.handle(), QpMask::all())
            .map_err(VerbsError::kernel("query a queue pair"))
    }

    /// Attaches a UD QP to a multicast group.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach_multicast(&self, gid: [u8; 16], lid: u16) -> Result<(), VerbsError> {
        self.context()
            .uverbs()
            .attach_mcast(self.handle(), gid, lid)
            .map_err(VerbsError::kernel("attach to a multicast group"))
    }

    /// Detaches the QP from a multicast group. A QP cannot be destroyed while attached.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn detach_multicast(&self, gid: [u8; 16], lid: u16) -> Result<(), VerbsError> {
        self.context()
            .uverbs()
            .detach_mcast(self.handle(), gid, lid)
            .map_err(VerbsError::kernel("detach from a multicast group"))
    }

    /// Creates a flow steering rule that delivers matching frames to this raw packet QP, destroyed with it at the latest.
    ///
    /// # Errors
    /// What the kernel says: `EPERM` without CAP_NET_RAW, `EINVAL` for a queue pair that receives no frames or a rule that the
    /// device cannot hold, `EOPNOTSUPP` for a kind of rule that it does not have.
    #[doc(alias = "ibv_create_flow")]
    pub fn steer(&mut self, rule: &Rule<'_>) -> Result<RuleId, VerbsError> {
        let handle = self.handle();
        self.rules.add(handle, rule)
    }

    /// Destroys a flow steering rule.
    ///
    /// # Errors
    /// It is none of this queue pair's, or what the kernel says.
    pub fn unsteer(&mut self, rule: RuleId) -> Result<(), VerbsError> {
        self.rules.remove(rule)
    }

    /// Starts a batch of sends.
    #[inline(always)]
    #[doc(alias = "ibv_post_send")]
    #[doc(alias = "ibv_wr_start")]
    pub fn batch(&mut self) -> Batch<'_> {
        Batch::new(each_its_own!(&mut self.side, qp => qp.batch()), &mut self.attached)
    }

    /// Starts a batch of receives. `None` if the QP has no receive queue of its own.
    #[inline(always)]
    #[doc(alias = "ibv_post_recv")]
    pub fn receives(&mut self) -> Option<Receives<'_>> {
        let list = match &mut self.side {
            Side::Mlx5(qp) => List::Mlx5(qp.poster().receives()?),
            Side::Rxe(qp) => List::Rxe(qp.receives()?),
        };
        Some(Receives::new(list, &mut self.attached))
    }

    /// Links the receive queue to a region, until the queue pair is reset: its entries are written here once, and posted by
    /// [`post_linked`](Self::post_linked) as they stand. The region is cut from its start into as many pieces of `bytes` bytes as
    /// [`sizes`](Self::sizes) says that there are receives. A completion of such a receive has its piece's index as
    /// [`id`](crate::Wc::id): piece `id * bytes..(id + 1) * bytes` of the region holds the message (of datagrams, 40 bytes of
    /// network header before it). The queue pair keeps the region as long as it lives. On rxe, whose kernel changes entries, each is written again.
    ///
    /// A piece may be overwritten as soon as it is posted again, so read it before.
    ///
    /// # Errors
    /// A region that is too short or not the queue's; no receive queue of its own; receives are posted.
    pub fn link_receives(&mut self, mr: &Mr, bytes: usize) -> Result<(), PostError> {
        let pieces = self.sizes().receives as usize;
        if pieces == 0 {
            return Err(NO_RECEIVES);
        }
        let first = bytes.checked_mul(pieces).filter(|all| *all <= mr.bytes() && *all > 0);
        let first = first.and_then(|_| mr.span(0..bytes)).ok_or(SHORT)?;
        each!(&self.side, qp => qp.may_link())?;
        if !self.attached.keep(mr) {
            return Err(FOREIGN);
        }
        each!(&mut self.side, qp => qp.link_receives(first.span()))
    }

    /// Posts the next `count` receives of a [linked](Self::link_receives) queue, piece after piece and around at the end: from piece 0
    /// on where nothing was posted before, else from where the device says; go by [`id`](crate::Wc::id). Hot: a store to memory,
    /// whatever `count` is, but for rxe.
    ///
    /// # Errors
    /// The queue is not linked, or so many are not free: then none is posted.
    #[inline(always)]
    pub fn post_linked(&mut self, count: u32) -> Result<(), PostError> {
        each!(&mut self.side, qp => qp.post_linked(count))
    }

    /// Turns the copying of small requests to the device off, or on again where it has a page for it.
    pub fn set_blueflame(&mut self, on: bool) {
        // The doorbell of rxe is a call.
        if let Side::Mlx5(qp) = &mut self.side {
            qp.poster().set_blueflame(on);
        }
    }
}
