//! From an application's rule to a driver's plan.

use super::{
    FlowAction, FlowActions, FlowAttributes, FlowFate, FlowInfo, FlowPart, FlowPlan, FlowRule, pattern,
};
use crate::{PortError, QueueId, RssConfig, RssInfo, offload};

/// What a rule is checked against.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowLimits {
    pub(crate) flow: FlowInfo,
    pub(crate) rss: Option<RssInfo>,
    pub(crate) rx_queues: u16,
}

impl FlowLimits {
    /// The plan of a rule, or what of it cannot be. The error lacks the port's name.
    pub(crate) fn plan(&self, rule: &FlowRule) -> Result<FlowPlan, PortError> {
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
        let pattern = pattern::read(&rule.pattern, self.flow.items)?;
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

    fn actions(&self, actions: &[FlowAction], plan: &mut FlowPlan) -> Result<(), PortError> {
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

#[cfg(test)]
mod tests;
