//! The states of a queue pair: which command leads from where to where, and what it may change on the way.

use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::qp::context::{optional as o, service, state};

/// Source: Linux `include/linux/mlx5/qp.h`, `MLX5_QP_STATE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Reset,
    Init,
    /// Ready to receive.
    Receive,
    /// Ready to send.
    Send,
    /// The send queue failed, receiving goes on.
    SendError,
    /// The send queue finishes what it has begun.
    Draining,
    /// It has.
    Drained,
    Error,
}

impl State {
    /// As the context says it.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Reset => state::RST,
            Self::Init => state::INIT,
            Self::Receive => state::RTR,
            Self::Send => state::RTS,
            Self::SendError => state::SQER,
            Self::Draining => state::SQ_DRAINING,
            Self::Drained => state::SQD,
            Self::Error => state::ERR,
        }
    }

    /// Whether packets to it are looked at.
    pub(crate) fn receives(self) -> bool {
        !matches!(self, Self::Reset | Self::Init | Self::Error)
    }

    /// Whether packets of requests begun are sent, and answers to them taken.
    pub(crate) fn sends(self) -> bool {
        matches!(self, Self::Send | Self::Draining)
    }
}

/// The kinds of service that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Reliable,
    Unreliable,
    Datagram,
    /// Queue pair 1: datagrams of management.
    Management,
    Xrc,
    /// The kernel's own queue for memory keys.
    Keys,
    /// Of dynamic connections: sends to targets, one after the other.
    Initiator,
    /// What initiators send to. It is made by a command of its own.
    Target,
}

impl Service {
    pub(crate) fn of(code: u32) -> Option<Self> {
        Some(match code {
            service::RC => Self::Reliable,
            service::UC => Self::Unreliable,
            service::UD => Self::Datagram,
            service::QP1 => Self::Management,
            service::XRC => Self::Xrc,
            service::REG_UMR => Self::Keys,
            service::DCI => Self::Initiator,
            _ => return None,
        })
    }

    /// Packets are acknowledged.
    pub(crate) fn is_reliable(self) -> bool {
        matches!(self, Self::Reliable | Self::Xrc | Self::Initiator | Self::Target)
    }

    pub(crate) fn is_datagram(self) -> bool {
        matches!(self, Self::Datagram | Self::Management)
    }

    /// An end of dynamic connections.
    pub(crate) fn is_dynamic(self) -> bool {
        matches!(self, Self::Initiator | Self::Target)
    }

    /// It has a peer of its own.
    pub(crate) fn is_connected(self) -> bool {
        matches!(self, Self::Reliable | Self::Xrc | Self::Unreliable)
    }
}

/// A transition: from, to, and what may be changed beside what must.
pub(crate) struct Transition {
    pub(crate) from: State,
    pub(crate) to: State,
    pub(crate) optional: u32,
}

/// Rights of the peer, of queue pairs that have all of them.
const RIGHTS: u32 = o::RRE | o::RAE | o::RWE;

/// What a command does to a queue pair of a service; `None` for commands that lead from any state (2ERR, 2RST).
///
/// What may be changed is as Linux `drivers/infiniband/hw/mlx5/qp.c` has it (`opt_mask`); moving to a completion queue or a
/// set of counters is the same for all.
pub(crate) fn transition(opcode: u16, service: Service) -> Option<Transition> {
    use State as S;
    let (from, to) = match opcode {
        op::RST2INIT_QP => (S::Reset, S::Init),
        op::INIT2INIT_QP => (S::Init, S::Init),
        op::INIT2RTR_QP => (S::Init, S::Receive),
        op::RTR2RTS_QP => (S::Receive, S::Send),
        op::RTS2RTS_QP => (S::Send, S::Send),
        op::SQERR2RTS_QP => (S::SendError, S::Send),
        op::RTS2SQD_QP => (S::Send, S::Draining),
        op::SQD_RTS_QP => (S::Drained, S::Send),
        _ => return None,
    };
    let reliable = service.is_reliable();
    let rights = match service {
        Service::Reliable | Service::Xrc => RIGHTS,
        Service::Unreliable => o::RWE,
        _ => 0,
    };
    let qkey = if service.is_datagram() { o::Q_KEY } else { 0 };
    let optional = match opcode {
        op::INIT2INIT_QP => rights | qkey | o::PKEY_INDEX | o::PRI_PORT | o::LAG_TX_AFF,
        op::INIT2RTR_QP => {
            let path = if service.is_connected() { o::ALT_ADDR_PATH | o::LAG_TX_AFF } else { 0 };
            rights | qkey | path | o::PKEY_INDEX
        }
        op::RTR2RTS_QP | op::RTS2RTS_QP => {
            let path = if service.is_connected() { o::ALT_ADDR_PATH | o::PM_STATE } else { 0 };
            let timer = if reliable && !service.is_dynamic() { o::RNR_TIMEOUT } else { 0 };
            let moved = if opcode == op::RTS2RTS_QP { o::COUNTER_SET_ID } else { 0 };
            let taken = if opcode == op::RTS2RTS_QP && service == Service::Datagram {
                o::SRQN | o::CQN_RCV
            } else {
                0
            };
            rights | qkey | path | timer | moved | taken
        }
        op::SQERR2RTS_QP | op::SQD_RTS_QP => rights | qkey | if reliable { o::RNR_TIMEOUT } else { 0 },
        _ => 0,
    };
    Some(Transition { from, to, optional })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transition_begins_in_one_state() {
        let steps = [
            (op::RST2INIT_QP, State::Reset, State::Init),
            (op::INIT2RTR_QP, State::Init, State::Receive),
            (op::RTR2RTS_QP, State::Receive, State::Send),
            (op::SQERR2RTS_QP, State::SendError, State::Send),
        ];
        for (opcode, from, to) in steps {
            let step = transition(opcode, Service::Reliable).expect("a transition");
            assert_eq!((step.from, step.to), (from, to));
        }
        assert!(transition(op::TO_ERR_QP, Service::Reliable).is_none());
    }

    #[test]
    fn a_service_changes_what_it_has() {
        let of = |opcode, service| transition(opcode, service).expect("a transition").optional;
        assert_eq!(of(op::RTR2RTS_QP, Service::Datagram), o::Q_KEY);
        assert_eq!(of(op::SQERR2RTS_QP, Service::Unreliable), o::RWE);
        assert!(of(op::INIT2RTR_QP, Service::Xrc) & o::RAE != 0);
        assert_eq!(of(op::RST2INIT_QP, Service::Reliable), 0);
    }
}
