//! Rules and VLAN tags on a port's control half.

use pollux_port::driver::{FlowDriver, VlanDriver};
use pollux_port::flow::{FlowCount, FlowInfo, FlowPart, FlowPlan};
use pollux_port::{PortError, QueueId, RxOffloads};

use super::{Place, Rules, info};
use crate::eth::port::Mlx5Port;
use crate::eth::port::spread::SpreadSpec;
use pollux_mlx5_common::object::NumberedObject;

impl Mlx5Port {
    /// The receive queues, by number.
    fn receive_queues(&self) -> Vec<Option<NumberedObject>> {
        self.slots().rx.iter().map(|slot| slot.as_ref().and_then(|slot| slot.queue.get())).collect()
    }

    /// Makes the objects of all rules: the port starts.
    pub(in crate::eth) fn make_rules(&mut self) -> Result<(), PortError> {
        let queues = self.receive_queues();
        let Some(backend) = self.backend.clone() else { return Ok(()) };
        let place = Place { backend: &*backend, spread: &self.spread_spec, queues: &queues };
        self.rules.make(&place)
    }

    /// Takes them away: the port stops.
    pub(in crate::eth) fn unmake_rules(&mut self) {
        if let Some(backend) = self.backend.clone() {
            self.rules.unmake(&*backend);
        }
    }

    /// Spreads packets otherwise, also while they flow: then those that arrive between the old rules and the new ones are
    /// not the port's, for the device does not change a table under rules of the kernel. What it refuses changes nothing.
    pub(in crate::eth) fn respread(&mut self, spec: SpreadSpec) -> Result<(), PortError> {
        let before = std::mem::replace(&mut self.spread_spec, spec);
        if self.spread.is_none() {
            return Ok(());
        }
        self.unspread();
        let done = self.spread_packets();
        if done.is_err() {
            self.spread_spec = before;
            self.spread_packets()?;
        }
        done
    }

    /// What the filter lets in of VLANs: the list, while there is one.
    fn filter_vlans(&mut self, on: bool, vlans: Vec<u16>) -> Result<(), PortError> {
        self.want(|wanted| wanted.vlans = (on && !vlans.is_empty()).then_some(vlans))
    }
}

impl FlowDriver for Mlx5Port {
    fn flow_info(&self) -> FlowInfo {
        info(self.priority, self.labels)
    }

    fn validate(&mut self, plan: &FlowPlan) -> Result<(), PortError> {
        let (_, backend, _) = self.parts()?;
        Rules::check(plan, &**backend, &self.spread_spec)
    }

    fn create(&mut self, plan: &FlowPlan) -> Result<u64, PortError> {
        self.validate(plan)?;
        let queues = self.receive_queues();
        let backend = self.parts()?.1.clone();
        let place = Place { backend: &*backend, spread: &self.spread_spec, queues: &queues };
        self.rules.add(plan, self.started.then_some(&place))
    }

    fn destroy(&mut self, rule: u64) -> Result<(), PortError> {
        if self.rules.remove(rule) {
            return Ok(());
        }
        Err(PortError::flow(FlowPart::Rule, "the driver has no such rule"))
    }

    fn query(&mut self, rule: u64, reset: bool) -> Result<FlowCount, PortError> {
        let backend = self.parts()?.1.clone();
        self.rules.count(rule, reset, &*backend)
    }

    fn isolate(&mut self, on: bool) -> Result<(), PortError> {
        self.want(|wanted| wanted.isolated = on)
    }
}

/// With a list of VLANs only frames with one of their tags come in: the kernel's rules cannot ask for frames without a tag.
/// With an empty list all do. A promiscuous port looks at no tag. Both as in DPDK's driver.
impl VlanDriver for Mlx5Port {
    fn set_filter(&mut self, vlan: u16, on: bool) -> Result<(), PortError> {
        let mut vlans = self.wanted.vlans.clone().unwrap_or_default();
        vlans.retain(|known| *known != vlan);
        if on {
            vlans.push(vlan);
        }
        self.filter_vlans(true, vlans.clone())?;
        self.vlans = vlans;
        Ok(())
    }

    fn set_offloads(&mut self, on: RxOffloads) -> Result<(), PortError> {
        let strip = on.contains(RxOffloads::VLAN_STRIP);
        let count = u16::try_from(self.strips.len()).unwrap_or(u16::MAX);
        for queue in 0..count {
            self.set_strip_on_queue(QueueId(queue), strip)?;
        }
        let vlans = self.vlans.clone();
        self.filter_vlans(on.contains(RxOffloads::VLAN_FILTER), vlans)
    }

    fn set_strip_on_queue(&mut self, queue: QueueId, on: bool) -> Result<(), PortError> {
        let at = usize::from(queue.0);
        let set_up = self.strips.get(at).copied().unwrap_or_default();
        if on && !set_up {
            let reason = format!(
                "rx queue {queue} was set up without VLAN_STRIP; with it, it can be turned off and on"
            );
            return Err(PortError::unsupported("VLAN strip", reason));
        }
        if !set_up {
            return Ok(());
        }
        self.parts()?;
        let slots = self.slots();
        let Some(slot) = slots.rx.get(at).and_then(Option::as_ref) else { return Ok(()) };
        slot.queue.set_vlan_strip(on).map_err(|error| PortError::device("change VLAN strip", error))
    }
}
