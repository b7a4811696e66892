//! From an application's rule to a driver's plan.

use super::item::Fields;
use super::{
    FlowAction, FlowActions, FlowAttributes, FlowFate, FlowInfo, FlowItem, FlowPart, FlowPlan, FlowRule,
    ItemMatch, L3, L4, Masked, Pattern,
};
use crate::{PortError, QueueId, RssConfig, RssInfo, offload};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What a rule is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowLimits {
    pub(crate) flow: FlowInfo,
    pub(crate) rss: Option<RssInfo>,
    pub(crate) rx_queues: u16,
}

type Checked<T> = Result<T, PortError>;

impl FlowLimits {
    /// The plan of a rule, or what of it cannot be. The error lacks the port's name.
    pub(crate) fn plan(&self, rule: &FlowRule) -> Checked<FlowPlan> {
        let FlowAttributes { group, priority, ingress, egress, transfer } = rule.attributes;
        for (name, value, count) in
            [("group", group, self.flow.groups), ("priority", priority, self.flow.priorities)]
        {
            if value >= count {
                return Err(PortError::flow(
                    FlowPart::Attribute(name, value),
                    format!("there are {count}, from 0"),
                ));
            }
        }
        for (name, given, wanted) in
            [("ingress", ingress, true), ("egress", egress, false), ("transfer", transfer, false)]
        {
            if given != wanted {
                let part = FlowPart::Attribute(name, given.into());
                return Err(PortError::flow(part, "rules are for received packets"));
            }
        }
        let pattern = self.pattern(&rule.pattern)?;
        let mut plan = FlowPlan {
            group,
            priority,
            pattern,
            fate: FlowFate::Drop,
            mark: None,
            flag: false,
            count: false,
        };
        self.actions(&rule.actions, &mut plan)?;
        Ok(plan)
    }

    fn pattern(&self, items: &[FlowItem]) -> Checked<Pattern> {
        let mut pattern = Pattern::default();
        let mut depth = 0;
        for (at, item) in items.iter().enumerate() {
            let bad = |reason: String| PortError::flow(FlowPart::Item(Some(at), item.name()), reason);
            if !self.flow.items.contains(item.kind()) {
                return Err(bad(format!("the port matches {}", offload::names(&self.flow.items))));
            }
            let layer = match item {
                FlowItem::Eth(_) => 1,
                FlowItem::Vlan(_) => 2,
                FlowItem::Ipv4(_) | FlowItem::Ipv6(_) => 3,
                FlowItem::Tcp(_) | FlowItem::Udp(_) => 4,
            };
            if layer <= depth {
                return Err(bad("headers stand from the outside in, each once".into()));
            }
            if layer == 4 && depth < 3 {
                return Err(bad("ipv4 or ipv6 must stand before it".into()));
            }
            depth = layer;
            match item {
                FlowItem::Eth(wanted) => pattern.eth = masked(wanted).map_err(bad)?,
                FlowItem::Vlan(wanted) => pattern.vlan = Some(masked(wanted).map_err(bad)?),
                FlowItem::Ipv4(wanted) => pattern.l3 = L3::Ipv4(masked(wanted).map_err(bad)?),
                FlowItem::Ipv6(wanted) => pattern.l3 = L3::Ipv6(masked(wanted).map_err(bad)?),
                FlowItem::Tcp(wanted) => pattern.l4 = L4::Tcp(masked(wanted).map_err(bad)?),
                FlowItem::Udp(wanted) => pattern.l4 = L4::Udp(masked(wanted).map_err(bad)?),
            }
        }
        contradiction(&pattern)?;
        Ok(pattern)
    }

    fn actions(&self, actions: &[FlowAction], plan: &mut FlowPlan) -> Checked<()> {
        let mut seen = FlowActions::empty();
        for (at, action) in actions.iter().enumerate() {
            let part = || FlowPart::Action(Some(at), action.name());
            let kind = action.kind();
            if !self.flow.actions.contains(kind) {
                return Err(PortError::flow(
                    part(),
                    format!("the port has {}", offload::names(&self.flow.actions)),
                ));
            }
            if seen.intersects(kind) {
                return Err(PortError::flow(part(), "it stands in the rule twice"));
            }
            if FlowActions::FATES.contains(kind) && seen.intersects(FlowActions::FATES) {
                return Err(PortError::flow(part(), "a packet has one fate only"));
            }
            seen |= kind;
            match action {
                FlowAction::Queue(queue) => {
                    self.queue(*queue).map_err(|reason| PortError::flow(part(), reason))?;
                    plan.fate = FlowFate::Queue(*queue);
                }
                FlowAction::Rss(rss) => {
                    if rss.queues.is_empty() {
                        return Err(PortError::flow(part(), "it names no queue"));
                    }
                    let all = rss.queues.iter().try_for_each(|queue| self.queue(*queue));
                    all.map_err(|reason| PortError::flow(part(), reason))?;
                    let config =
                        RssConfig { fields: rss.fields, key: rss.key.clone(), algorithm: rss.algorithm };
                    let info = self.rss.ok_or_else(|| PortError::flow(part(), "the port has no hash"))?;
                    info.check(&config)?;
                    plan.fate = FlowFate::Rss(rss.clone());
                }
                FlowAction::Drop => plan.fate = FlowFate::Drop,
                FlowAction::Jump(group) => {
                    if *group >= self.flow.groups || *group <= plan.group {
                        return Err(PortError::flow(
                            part(),
                            format!("to group {group}: it leads to a later one of {}", self.flow.groups),
                        ));
                    }
                    plan.fate = FlowFate::Jump(*group);
                }
                FlowAction::PassThru => plan.fate = FlowFate::PassThru,
                FlowAction::Mark(mark) => {
                    if *mark > self.flow.mark_max {
                        let most = self.flow.mark_max;
                        return Err(PortError::flow(part(), format!("{mark} is more than {most}")));
                    }
                    plan.mark = Some(*mark);
                }
                FlowAction::Flag => plan.flag = true,
                FlowAction::Count => plan.count = true,
                FlowAction::Age(_) | FlowAction::PopVlan | FlowAction::PushVlan(_) => {
                    return Err(PortError::flow(part(), "no plan has room for it"));
                }
            }
        }
        if !seen.intersects(FlowActions::FATES) {
            return Err(PortError::flow(
                FlowPart::Rule,
                "no action says where packets go; add queue, rss or drop",
            ));
        }
        Ok(())
    }

    fn queue(&self, queue: QueueId) -> Result<(), String> {
        if queue.0 < self.rx_queues {
            return Ok(());
        }
        Err(format!("there is no rx queue {queue}; {} are configured", self.rx_queues))
    }
}

/// Values under their mask.
fn masked<T: Fields + Default>(wanted: &ItemMatch<T>) -> Result<Masked<T>, String> {
    let Some(spec) = wanted.spec else {
        if wanted.mask.is_some() || wanted.last.is_some() {
            return Err("a mask or a last value needs a spec".into());
        }
        return Ok(Masked::default());
    };
    let mask = wanted.mask.unwrap_or(T::DEFAULT_MASK);
    let spec = spec.and(&mask);
    if wanted.last.is_some_and(|last| last.and(&mask) != spec) {
        return Err(
            "ranges are not matched; leave `last` out and give one rule for each value or mask".into()
        );
    }
    Ok(Masked { spec, mask })
}

/// What an item says of the header behind it must agree with the item behind it.
fn contradiction(pattern: &Pattern) -> Checked<()> {
    let behind = match pattern.l3 {
        L3::Any => None,
        L3::Ipv4(_) => Some(IPV4),
        L3::Ipv6(_) => Some(IPV6),
    };
    let (name, kind) = match pattern.vlan {
        Some(vlan) => ("vlan", Masked { spec: vlan.spec.inner_type, mask: vlan.mask.inner_type }),
        None => ("eth", Masked { spec: pattern.eth.spec.ether_type, mask: pattern.eth.mask.ether_type }),
    };
    if let Some(behind) = behind
        && behind & kind.mask != kind.spec
    {
        let reason = format!("it says type {:#06x}, the item behind it {behind:#06x}", kind.spec);
        return Err(PortError::flow(FlowPart::Item(None, name), reason));
    }
    let transport = match pattern.l4 {
        L4::Any => return Ok(()),
        L4::Tcp(_) => TCP,
        L4::Udp(_) => UDP,
    };
    let (name, kind) = match pattern.l3 {
        L3::Any => return Ok(()),
        L3::Ipv4(ip) => ("ipv4", Masked { spec: ip.spec.protocol, mask: ip.mask.protocol }),
        L3::Ipv6(ip) => ("ipv6", Masked { spec: ip.spec.next_header, mask: ip.mask.next_header }),
    };
    if transport & kind.mask != kind.spec {
        let reason = format!("it says protocol {}, the item behind it {transport}", kind.spec);
        return Err(PortError::flow(FlowPart::Item(None, name), reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
