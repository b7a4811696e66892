//! A queue pair: what it is made of, what its context says, and how it fails.

use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext, optional};

use pollux_mlx5_abi::eqe::{event, queue_kind};
use pollux_mlx5_abi::opcode::completion;
use pollux_mlx5_abi::syndrome::Syndrome;

use super::Around;
use super::dynamic::{Initiator, Target};
use super::ece::Ece;
use super::paging::Paging;
use super::path::{self, Path};
use super::requester::Requester;
use super::responder::Responder;
use super::state::{Service, State};
use crate::device::bus::Bus;
use crate::device::ring::send::SendRing;
use crate::device::violation::Violation;
use crate::failure::Failure;
use crate::memory_keys::Who;
use crate::receive::WorkRing;

/// Where a queue pair's receive entries are posted.
#[derive(Debug)]
pub(crate) enum Source {
    /// Nowhere.
    None,
    Own(Box<WorkRing>),
    Pool(u32),
}

/// What a peer may do to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: u32,
    pub(crate) service: Service,
    /// Its entries may copy memory.
    pub(crate) copies: bool,
    /// Its entries may set signature variables.
    pub(crate) signs: bool,
    /// Its send queue is drained at a signature mismatch.
    pub(crate) drains: bool,
    pub(crate) state: State,
    pub(crate) domain: u32,
    pub(crate) uar: u32,
    pub(crate) send: Option<SendRing>,
    pub(crate) source: Source,
    pub(crate) cqn_send: u32,
    pub(crate) cqn_receive: u32,
    /// What completions call it; `None`: by the number of its pool.
    pub(crate) user_index: Option<u32>,
    pub(crate) xrc_domain: u32,
    /// The kernel's key for any memory may be used.
    pub(crate) reserved_key: bool,
    /// The kernel made it for its own work: it is no user context's, and may register memory.
    kernel: bool,
    /// What it sends to a group does not come back to its own device.
    pub(crate) block_loopback: bool,
    /// What datagrams call it; 0: its number.
    pub(crate) known_as: u32,
    pub(crate) counter_set: u32,
    pub(crate) path: Path,
    pub(crate) remote: u32,
    pub(crate) mtu: usize,
    pub(crate) log_message_max: u32,
    pub(crate) qkey: u32,
    pub(crate) rights: Rights,
    /// 4.096 us times 2 to this; 0: without end.
    pub(crate) ack_timeout: u32,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) rnr_timer: u8,
    /// Reads and atomics under way at most: of this side, and of the peer's.
    pub(crate) out_max: usize,
    pub(crate) in_max: usize,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// What it agreed on with its peer.
    pub(crate) ece: Ece,
    pub(crate) context: [u8; 232],
    /// Software knows that no entry of the pool is in use by it any more.
    pub(crate) told_last: bool,
    pub(crate) paging: Paging,
    /// Nothing can be reported any more.
    pub(crate) dead: bool,
    /// When a timer of it was set.
    pub(crate) timed: Option<u64>,
    /// What it has as an end of dynamic connections.
    pub(crate) initiator: Option<Box<Initiator>>,
    pub(crate) target: Option<Box<Target>>,
}

/// What a queue pair is made of.
pub(crate) struct Make {
    pub(crate) service: Service,
    /// The kernel made it for its own work: it is no user context's, and may register memory.
    pub(crate) kernel: bool,
    /// Its entries may copy memory.
    pub(crate) copies: bool,
    /// Its entries may set signature variables.
    pub(crate) signs: bool,
    pub(crate) domain: u32,
    pub(crate) uar: u32,
    pub(crate) send: Option<SendRing>,
    pub(crate) source: Source,
    pub(crate) user_index: Option<u32>,
    pub(crate) context: [u8; 232],
    pub(crate) ece: Ece,
}

impl Qp {
    pub(crate) fn new(make: Make) -> Self {
        use QpContext as Q;
        let Make { service, kernel, copies, signs, domain, uar, .. } = make;
        let Make { send, source, user_index, context, ece, .. } = make;
        let initiator = (service == Service::Initiator).then(|| Box::new(Initiator::new(&context)));
        Self {
            number: 0,
            service,
            copies,
            signs,
            drains: signs && Q::DRAIN_SIGERR.is_set(&context),
            state: State::Reset,
            domain,
            uar,
            send,
            source,
            cqn_send: Q::CQN_SND.get(&context),
            cqn_receive: Q::CQN_RCV.get(&context),
            user_index,
            xrc_domain: Q::XRCD.get(&context),
            reserved_key: Q::RLKY.is_set(&context),
            kernel,
            block_loopback: Q::BLOCK_LB_MC.is_set(&context),
            known_as: Q::DETH_SQPN.get(&context),
            counter_set: Q::COUNTER_SET_ID.get(&context),
            path: Path::default(),
            remote: 0,
            mtu: 256,
            log_message_max: 30,
            qkey: 0,
            rights: Rights::default(),
            ack_timeout: 0,
            retries: 0,
            rnr_retries: 0,
            rnr_timer: 0,
            out_max: 1,
            in_max: 1,
            requester: Requester::default(),
            responder: Responder::default(),
            ece,
            context,
            told_last: false,
            paging: Paging::default(),
            dead: false,
            timed: None,
            initiator,
            target: None,
        }
    }

    /// What every transition to `to` must change.
    pub(crate) fn apply(&mut self, to: State, from: State, context: &[u8; 232]) {
        use QpContext as Q;
        let ours = &mut self.context;
        let path = Q::PRIMARY_ADDRESS_PATH.get(context);
        macro_rules! copy {
            ($($field:ident),+) => { $(Q::$field.set(ours, Q::$field.get(context));)+ };
        }
        match (from, to) {
            (State::Reset, State::Init) => {
                copy!(PM_STATE, COUNTER_SET_ID, RRE, RWE, RAE, ATOMIC_MODE, Q_KEY, DETH_SQPN, RLKY);
                let mine = Q::PRIMARY_ADDRESS_PATH.of_mut(ours);
                AddressPath::PKEY_INDEX.set(mine, AddressPath::PKEY_INDEX.get(&path));
                AddressPath::VHCA_PORT_NUM.set(mine, AddressPath::VHCA_PORT_NUM.get(&path));
                self.path.second = path::is_at_second(&path);
                self.known_as = Q::DETH_SQPN.get(context);
                self.reserved_key |= Q::RLKY.is_set(context);
                self.counter_set = Q::COUNTER_SET_ID.get(context);
                self.set_rights(context);
                self.qkey = Q::Q_KEY.get(context);
            }
            (State::Init, State::Receive) => {
                copy!(MTU, LOG_MSG_MAX);
                if self.service.is_connected() {
                    copy!(REMOTE_QPN, NEXT_RCV_PSN, LOG_RRA_MAX, MIN_RNR_NAK);
                    // What is set before or after, each by a command of its own, stays.
                    let mut new = path;
                    let mine = Q::PRIMARY_ADDRESS_PATH.of_mut(ours);
                    AddressPath::PKEY_INDEX.set(&mut new, AddressPath::PKEY_INDEX.get(mine));
                    if AddressPath::VHCA_PORT_NUM.get(&new) == 0 {
                        AddressPath::VHCA_PORT_NUM.set(&mut new, AddressPath::VHCA_PORT_NUM.get(mine));
                    }
                    *mine = new;
                    self.path = Path::of(&new);
                    self.remote = Q::REMOTE_QPN.get(context);
                    self.rnr_timer = Q::MIN_RNR_NAK.get(context) as u8;
                    self.in_max = 1 << Q::LOG_RRA_MAX.get(context);
                    self.responder.begin(Q::NEXT_RCV_PSN.get(context));
                }
                self.mtu = 128 << Q::MTU.get(context).clamp(1, 5);
                self.log_message_max = Q::LOG_MSG_MAX.get(context).clamp(1, 31);
            }
            (State::Receive, State::Send) => {
                copy!(NEXT_SEND_PSN);
                if self.service.is_reliable() {
                    copy!(LOG_ACK_REQ_FREQ, LOG_SRA_MAX, RETRY_COUNT, RNR_RETRY);
                    let timeout = AddressPath::ACK_TIMEOUT.get(&path);
                    AddressPath::ACK_TIMEOUT.set(Q::PRIMARY_ADDRESS_PATH.of_mut(ours), timeout);
                    self.ack_timeout = timeout;
                    self.retries = Q::RETRY_COUNT.get(context) as u8;
                    self.rnr_retries = Q::RNR_RETRY.get(context) as u8;
                    self.out_max = 1 << Q::LOG_SRA_MAX.get(context);
                }
                let psn = Q::NEXT_SEND_PSN.get(context);
                self.requester.begin(psn, self.retries, self.rnr_retries);
            }
            (State::Drained, State::Send) => {
                // Software may have written other entries in the place of those that wait. Source: rdma-core `providers/mlx5/qp.c`,
                // `mlx5dv_qp_cancel_posted_send_wrs`.
                if let Some(send) = &mut self.send {
                    send.forget_came_along();
                }
            }
            _ => {}
        }
    }

    /// What a transition changes because the mask says so.
    pub(crate) fn apply_optional(&mut self, mask: u32, context: &[u8; 232]) {
        use QpContext as Q;
        let ours = &mut self.context;
        let on = |bit| mask & bit != 0;
        if on(optional::RRE) {
            Q::RRE.set(ours, Q::RRE.get(context));
            self.rights.read = Q::RRE.is_set(context);
        }
        if on(optional::RWE) {
            Q::RWE.set(ours, Q::RWE.get(context));
            self.rights.write = Q::RWE.is_set(context);
        }
        if on(optional::RAE) {
            Q::RAE.set(ours, Q::RAE.get(context));
            Q::ATOMIC_MODE.set(ours, Q::ATOMIC_MODE.get(context));
            self.rights.atomic = Q::RAE.is_set(context);
        }
        if on(optional::PKEY_INDEX) {
            let index = AddressPath::PKEY_INDEX.get(Q::PRIMARY_ADDRESS_PATH.of(context));
            AddressPath::PKEY_INDEX.set(Q::PRIMARY_ADDRESS_PATH.of_mut(ours), index);
        }
        if on(optional::PRI_PORT) {
            let path = Q::PRIMARY_ADDRESS_PATH.of(context);
            let port = AddressPath::VHCA_PORT_NUM.get(path);
            AddressPath::VHCA_PORT_NUM.set(Q::PRIMARY_ADDRESS_PATH.of_mut(ours), port);
            self.path.second = path::is_at_second(path);
        }
        if on(optional::ALT_ADDR_PATH) {
            Q::SECONDARY_ADDRESS_PATH.set(ours, Q::SECONDARY_ADDRESS_PATH.get(context));
        }
        if on(optional::PM_STATE) {
            Q::PM_STATE.set(ours, Q::PM_STATE.get(context));
        }
        if on(optional::Q_KEY) {
            Q::Q_KEY.set(ours, Q::Q_KEY.get(context));
            self.qkey = Q::Q_KEY.get(context);
        }
        if on(optional::RNR_TIMEOUT) {
            Q::MIN_RNR_NAK.set(ours, Q::MIN_RNR_NAK.get(context));
            self.rnr_timer = Q::MIN_RNR_NAK.get(context) as u8;
        }
        if on(optional::DRAIN_SIGERR) {
            Q::DRAIN_SIGERR.set(ours, Q::DRAIN_SIGERR.get(context));
            self.drains = Q::DRAIN_SIGERR.is_set(context);
        }
        if on(optional::COUNTER_SET_ID) {
            Q::COUNTER_SET_ID.set(ours, Q::COUNTER_SET_ID.get(context));
            self.counter_set = Q::COUNTER_SET_ID.get(context);
        }
        if on(optional::CQN_RCV) {
            Q::CQN_RCV.set(ours, Q::CQN_RCV.get(context));
            self.cqn_receive = Q::CQN_RCV.get(context);
        }
        if on(optional::SRQN) {
            let number = Q::SRQN_RMPN_XRQN.get(context);
            Q::SRQN_RMPN_XRQN.set(ours, number);
            if let Source::Pool(pool) = &mut self.source {
                *pool = number;
            }
        }
    }

    /// The source port of its packets, 0 for one that follows from both numbers.
    pub(crate) fn change_source_port(&mut self, port: u32) {
        AddressPath::UDP_SPORT.set(QpContext::PRIMARY_ADDRESS_PATH.of_mut(&mut self.context), port);
        self.path.source_port = port as u16;
    }

    fn set_rights(&mut self, context: &[u8; 232]) {
        self.rights = Rights {
            read: QpContext::RRE.is_set(context),
            write: QpContext::RWE.is_set(context),
            atomic: QpContext::RAE.is_set(context),
        };
    }

    /// Back to where it was made: all that was posted is forgotten.
    pub(crate) fn reset(&mut self) {
        self.state = State::Reset;
        self.requester = Requester::default();
        self.responder = Responder::default();
        (self.dead, self.told_last) = (false, false);
        self.paging = Paging::default();
        self.ece.reset();
        if let Some(initiator) = &mut self.initiator {
            initiator.reset();
        }
        if let Some(send) = &mut self.send {
            send.reset();
        }
        if let Source::Own(ring) = &mut self.source {
            ring.reset();
        }
    }

    /// It leaves RESET: the device reads its records, which must say zero.
    pub(crate) fn at_ready(&mut self, bus: &Bus<'_>, send_record: bool) -> Result<(), Violation> {
        if let Source::Own(ring) = &mut self.source
            && let Some(record) = ring.at_ready(bus)
        {
            return Err(Violation::RecordAtReady { queue: self.number, record });
        }
        match &self.send {
            Some(ring) if send_record => ring.at_ready(bus, self.number),
            _ => Ok(()),
        }
    }

    /// The context as it is now.
    pub(crate) fn query(&self) -> [u8; 232] {
        use QpContext as Q;
        let mut context = self.context;
        Q::STATE.set(&mut context, self.state.code());
        Q::NEXT_SEND_PSN.set(&mut context, self.requester.next_psn());
        Q::LAST_ACKED_PSN.set(&mut context, self.requester.last_acked());
        Q::NEXT_RCV_PSN.set(&mut context, self.responder.expected());
        Q::RMSN.set(&mut context, self.responder.messages());
        if let Some(send) = &self.send {
            Q::HW_SQ_WQEBB_COUNTER.set(&mut context, send.next().into());
            Q::SW_SQ_WQEBB_COUNTER.set(&mut context, send.posted().into());
        }
        if let Source::Own(ring) = &self.source {
            Q::HW_RQ_COUNTER.set(&mut context, ring.next.into());
        }
        context
    }

    /// Tells software of something that happened to it. Of targets there is nothing to tell: their numbers are no queue pairs', and
    /// of all kinds of events only two are theirs (Linux `drivers/infiniband/hw/mlx5/qpc.c`, `dct_allowed_event_types`).
    pub(crate) fn tell(&self, around: &mut Around<'_, '_>, kind: u8) {
        if self.service != Service::Target {
            around.events.queue_error(around.bus, kind, queue_kind::QP, self.number);
        }
    }

    /// Nothing can be reported any more.
    pub(crate) fn die(&mut self, around: &mut Around<'_, '_>) {
        if !self.dead {
            self.tell(around, event::WQ_CATAS_ERROR);
        }
        self.dead = true;
        self.state = State::Error;
    }

    /// Reports a send entry that failed, or was flushed.
    pub(crate) fn report_send(
        &mut self,
        around: &mut Around<'_, '_>,
        opcode: u8,
        index: u16,
        failure: Failure,
    ) {
        let (cqn, name) = (self.cqn_send, self.user_index.unwrap_or(0));
        let kind = completion::REQUESTER_ERROR;
        let Around { bus, completions, events, .. } = around;
        if completions
            .push_error(bus, events, cqn, kind, self.number, opcode, name, index, failure.0)
            .is_err()
        {
            self.die(around);
        }
    }

    /// Reports a receive entry that failed, or was flushed.
    pub(crate) fn report_receive(
        &mut self,
        around: &mut Around<'_, '_>,
        cqn: u32,
        name: u32,
        index: u16,
        syndrome: Syndrome,
    ) {
        let kind = completion::RESPONDER_ERROR;
        let Around { bus, completions, events, .. } = around;
        if completions.push_error(bus, events, cqn, kind, self.number, 0, name, index, syndrome).is_err() {
            self.die(around);
        }
    }

    /// An access failed; true when it came upon a page that is not there and the host was asked for it.
    pub(super) fn asks_for_pages(&mut self, around: &mut Around<'_, '_>) -> bool {
        self.paging.asks(around, self.service, self.number)
    }

    /// On whose behalf it reaches memory.
    pub(crate) fn who(&self) -> Who {
        Who { domain: self.domain, pair: Some(self.number), reserved: self.reserved_key, kernel: self.kernel }
    }

    /// Whether what is posted to it is flushed.
    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.state, State::Error | State::SendError) && !self.dead
    }

    /// Entries of the send ring that were not begun.
    pub(crate) fn has_posted(&self) -> bool {
        self.send.as_ref().is_some_and(|send| send.left() > 0)
    }

    /// The pool that receive entries come from, if that is what it has.
    pub(crate) fn pool(&self) -> Option<u32> {
        match self.source {
            Source::Pool(pool) => Some(pool),
            Source::None | Source::Own(_) => None,
        }
    }
}
