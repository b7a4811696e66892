//! What becomes of a packet that a rule matches.

use crate::{HashAlgorithm, HashFields, QueueId};
use bitflags::bitflags;

/// RSS action: distributes matching packets over a set of queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowRss {
    /// The queues, in order; at least one.
    pub queues: Vec<QueueId>,
    /// Hash fields; empty selects those of the port.
    pub fields: HashFields,
    /// Hash key; `None` selects that of the port.
    pub key: Option<Vec<u8>>,
    /// The algorithm.
    pub algorithm: HashAlgorithm,
}

/// One action. A rule has one *fate* (queue, rss, drop, jump, passthru) and any of the others beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlowAction {
    /// Delivers to this queue (fate).
    Queue(QueueId),
    /// Distributes over several queues by RSS (fate).
    Rss(FlowRss),
    /// Drops the packet (fate).
    Drop,
    /// Jumps to another group (fate).
    Jump(u32),
    /// Continues with the following rules (fate).
    PassThru,
    /// Sets the mark of the packet: [`Mbuf::mark`](pollux_mempool::Mbuf::mark).
    Mark(u32),
    /// Sets the packet flag for a matched rule.
    Flag,
    /// Counts packets and bytes; see [`Port::flow_query`](crate::Port::flow_query).
    Count,
    /// The rule is reported when nothing matched it for so many seconds.
    Age(u32),
    /// Removes the outer VLAN tag.
    PopVlan,
    /// Inserts a VLAN tag with this EtherType.
    PushVlan(u16),
}

bitflags! {
    /// Kinds of actions.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FlowActions: u32 {
        /// [`FlowAction::Queue`].
        const QUEUE = 1 << 0;
        /// [`FlowAction::Rss`].
        const RSS = 1 << 1;
        /// [`FlowAction::Drop`].
        const DROP = 1 << 2;
        /// [`FlowAction::Jump`].
        const JUMP = 1 << 3;
        /// [`FlowAction::PassThru`].
        const PASSTHRU = 1 << 4;
        /// [`FlowAction::Mark`].
        const MARK = 1 << 5;
        /// [`FlowAction::Flag`].
        const FLAG = 1 << 6;
        /// [`FlowAction::Count`].
        const COUNT = 1 << 7;
        /// [`FlowAction::Age`].
        const AGE = 1 << 8;
        /// [`FlowAction::PopVlan`].
        const POP_VLAN = 1 << 9;
        /// [`FlowAction::PushVlan`].
        const PUSH_VLAN = 1 << 10;
    }
}

impl FlowActions {
    /// Those of which a rule has exactly one.
    pub const FATES: Self =
        Self::QUEUE.union(Self::RSS).union(Self::DROP).union(Self::JUMP).union(Self::PASSTHRU);
}

impl FlowAction {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> FlowActions {
        match self {
            Self::Queue(_) => FlowActions::QUEUE,
            Self::Rss(_) => FlowActions::RSS,
            Self::Drop => FlowActions::DROP,
            Self::Jump(_) => FlowActions::JUMP,
            Self::PassThru => FlowActions::PASSTHRU,
            Self::Mark(_) => FlowActions::MARK,
            Self::Flag => FlowActions::FLAG,
            Self::Count => FlowActions::COUNT,
            Self::Age(_) => FlowActions::AGE,
            Self::PopVlan => FlowActions::POP_VLAN,
            Self::PushVlan(_) => FlowActions::PUSH_VLAN,
        }
    }

    /// DPDK's name of its kind, as testpmd takes it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queue(_) => "queue",
            Self::Rss(_) => "rss",
            Self::Drop => "drop",
            Self::Jump(_) => "jump",
            Self::PassThru => "passthru",
            Self::Mark(_) => "mark",
            Self::Flag => "flag",
            Self::Count => "count",
            Self::Age(_) => "age",
            Self::PopVlan => "of_pop_vlan",
            Self::PushVlan(_) => "of_push_vlan",
        }
    }
}
