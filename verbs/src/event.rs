//! Asynchronous events.

use pollux_uverbs::event::{AsyncEvent, AsyncKind, Subject};

/// What happened outside any call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What.
    pub kind: AsyncKind,
    /// To what.
    pub element: Element,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// The completion queue with this [`id`](crate::Cq::id).
    Cq(u64),
    /// The queue pair with this [`id`](crate::Qp::id).
    Qp(u64),
    /// The shared receive queue with this [`id`](crate::Srq::id).
    Srq(u64),
    /// A work queue.
    Wq(u64),
    /// The port of this number.
    Port(u32),
    /// The device.
    Device,
}

impl From<AsyncEvent> for Event {
    fn from(event: AsyncEvent) -> Self {
        let element = match event.kind.subject() {
            Subject::Cq => Element::Cq(event.element),
            Subject::Qp => Element::Qp(event.element),
            Subject::Srq => Element::Srq(event.element),
            Subject::Wq => Element::Wq(event.element),
            Subject::Port => Element::Port(event.element as u32),
            Subject::Device => Element::Device,
        };
        Self { kind: event.kind, element }
    }
}

/// What an event means, in the words of rdma-core. Source: `libibverbs/enum_strs.c`, `ibv_event_type_str`.
#[must_use]
pub const fn event_str(kind: AsyncKind) -> &'static str {
    match kind {
        AsyncKind::CQ_ERR => "CQ error",
        AsyncKind::QP_FATAL => "local work queue catastrophic error",
        AsyncKind::QP_REQ_ERR => "invalid request local work queue error",
        AsyncKind::QP_ACCESS_ERR => "local access violation work queue error",
        AsyncKind::COMM_EST => "communication established",
        AsyncKind::SQ_DRAINED => "send queue drained",
        AsyncKind::PATH_MIG => "path migrated",
        AsyncKind::PATH_MIG_ERR => "path migration request error",
        AsyncKind::DEVICE_FATAL => "local catastrophic error",
        AsyncKind::PORT_ACTIVE => "port active",
        AsyncKind::PORT_ERR => "port error",
        AsyncKind::LID_CHANGE => "LID change",
        AsyncKind::PKEY_CHANGE => "P_Key change",
        AsyncKind::SM_CHANGE => "SM change",
        AsyncKind::SRQ_ERR => "SRQ catastrophic error",
        AsyncKind::SRQ_LIMIT_REACHED => "SRQ limit reached",
        AsyncKind::QP_LAST_WQE_REACHED => "last WQE reached",
        AsyncKind::CLIENT_REREGISTER => "client reregistration",
        AsyncKind::GID_CHANGE => "GID table change",
        AsyncKind::WQ_FATAL => "WQ fatal",
        AsyncKind::DEVICE_SPEED_CHANGE => "Device link speed change",
        _ => "unknown",
    }
}

/// A port's state, in the words of rdma-core. Source: `libibverbs/enum_strs.c`, `ibv_port_state_str`.
#[must_use]
pub const fn port_state_str(state: u8) -> &'static str {
    match state {
        0 => "no state change (NOP)",
        1 => "down",
        2 => "init",
        3 => "armed",
        4 => "active",
        5 => "active defer",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_that_has_a_name_has_words() {
        for number in 0..=20 {
            let kind = AsyncKind(number);
            assert_eq!(kind.name().is_some(), event_str(kind) != "unknown", "{kind}");
        }
        assert_eq!(event_str(AsyncKind(99)), "unknown");
    }
}
