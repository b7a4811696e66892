//! What some devices have and others lack: one trait a feature, reached through [`PortDriver`](super::PortDriver).
//!
//! The control handle has checked states, numbers and what the port states of itself before it calls.
#![expect(
    clippy::missing_errors_doc,
    reason = "every method fails alike: unsupported, or what the device said"
)]
use crate::flow::{FlowCount, FlowInfo, FlowPlan};
use crate::{DeviceClock, PortError, QueueId, RssConfig, RxOffloads, VlanTagPlace};
use std::time::Duration;

/// A hash and a redirection table; [`PortInfo::rss`](crate::PortInfo::rss) says of what kind.
pub trait RssDriver {
    /// What is hashed now, with the key in use.
    fn rss(&self) -> RssConfig;

    /// Changes it, at run time too. A key of `None` stays.
    fn set_rss(&mut self, config: &RssConfig) -> Result<(), PortError>;

    /// The redirection table: as many entries as stated.
    fn table(&self) -> Vec<QueueId>;

    /// Changes it, at run time too: as many entries as stated, each a configured queue.
    fn set_table(&mut self, table: &[QueueId]) -> Result<(), PortError>;
}

/// Flow rules.
pub trait FlowDriver {
    /// What rules it takes. Stays the same from `configure` on.
    fn flow_info(&self) -> FlowInfo;

    /// Whether a rule could be made now; changes nothing.
    fn validate(&mut self, plan: &FlowPlan) -> Result<(), PortError>;

    /// Makes a rule and gives a number that names it. It holds from now on, or from start, and over stop and start.
    fn create(&mut self, plan: &FlowPlan) -> Result<u64, PortError>;

    /// Ends a rule. When it fails, the rule stays.
    fn destroy(&mut self, rule: u64) -> Result<(), PortError>;

    /// What a counting rule has seen; sets it back to 0 afterwards if `reset`.
    fn query(&mut self, rule: u64, reset: bool) -> Result<FlowCount, PortError> {
        let _ = (rule, reset);
        Err(PortError::unsupported("flow counters", "the device does not count by rule"))
    }

    /// Receives only what rules direct to a queue, or all that the port's filters let in besides.
    fn isolate(&mut self, on: bool) -> Result<(), PortError> {
        let _ = on;
        Err(PortError::unsupported("isolated mode", "the device's own rules cannot be taken away"))
    }
}

/// VLAN tags.
pub trait VlanDriver {
    /// Receives frames of this VLAN, or no longer; below 4096. Only while
    /// [`RxOffloads::VLAN_FILTER`] is on.
    fn set_filter(&mut self, vlan: u16, on: bool) -> Result<(), PortError> {
        let _ = (vlan, on);
        Err(PortError::unsupported("VLAN filter", "the device has no list of VLANs"))
    }

    /// Changes which of [`RxOffloads::VLAN`] all queues do; inside what the port states.
    fn set_offloads(&mut self, on: RxOffloads) -> Result<(), PortError> {
        let _ = on;
        Err(PortError::unsupported("VLAN offload change", "it is fixed when the port is configured"))
    }

    /// Takes tags out on one queue, or not.
    fn set_strip_on_queue(&mut self, queue: QueueId, on: bool) -> Result<(), PortError> {
        let _ = (queue, on);
        Err(PortError::unsupported("VLAN strip by queue", "it is fixed when the queue is set up"))
    }

    /// The ether type by which a tag is known.
    fn set_ether_type(&mut self, place: VlanTagPlace, ether_type: u16) -> Result<(), PortError> {
        let _ = (place, ether_type);
        Err(PortError::unsupported("VLAN ether type", "the device knows tags by fixed types"))
    }

    /// Puts this tag into every frame sent without one; `None`: no more.
    fn set_port_vlan(&mut self, tci: Option<u16>) -> Result<(), PortError> {
        let _ = tci;
        Err(PortError::unsupported("port VLAN", "the device tags only frames that ask for it"))
    }
}

/// A clock.
pub trait ClockDriver {
    /// Reads it.
    fn read_clock(&mut self) -> Result<DeviceClock, PortError>;

    /// Takes the time of PTP packets, or no longer.
    fn set_time_sync(&mut self, on: bool) -> Result<(), PortError> {
        let _ = on;
        Err(PortError::unsupported("time synchronisation", "the device's clock runs free"))
    }

    /// The clock's time of day.
    fn time(&mut self) -> Result<Duration, PortError> {
        Err(PortError::unsupported("time synchronisation", "the device's clock runs free"))
    }

    /// Moves the clock by so many nanoseconds.
    fn adjust_time(&mut self, nanos: i64) -> Result<(), PortError> {
        let _ = nanos;
        Err(PortError::unsupported("time synchronisation", "the device's clock runs free"))
    }
}
