//! Flow rules of a port.
use super::Port;
use crate::PortError;
use crate::flow::check::FlowLimits;
use crate::flow::{FlowAction, FlowCount, FlowHandle, FlowInfo, FlowPart, FlowPlan, FlowRule};
use std::collections::BTreeMap;

/// The rules that a port has.
#[derive(Debug, Default)]
pub(super) struct Flows {
    next: u64,
    /// By number: the rule as it was given, and the driver's name for it.
    rules: BTreeMap<u64, (FlowRule, u64)>,
    isolated: bool,
}

impl Port {
    /// What rules the port takes.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`].
    pub fn flow_info(&mut self) -> Result<FlowInfo, PortError> {
        self.must_be_there("read what flow rules can be")?;
        self.driver.flow().map(|flow| flow.flow_info()).map_err(|error| error.named(&self.name))
    }

    /// Whether [`Port::flow_create`] would take this rule now. Changes nothing.
    ///
    /// # Errors
    /// When not configured, gone or closed; [`PortError::Flow`], which names the part of the rule that is at fault;
    /// [`PortError::Argument`] for an RSS action that the port cannot hash; [`PortError::Unsupported`]; what the device said.
    #[doc(alias = "rte_flow_validate")]
    pub fn flow_validate(&mut self, rule: &FlowRule) -> Result<(), PortError> {
        let plan = self.flow_plan("check a flow rule", rule)?;
        let done = self.driver.flow().and_then(|flow| flow.validate(&plan));
        done.map_err(|error| error.named(&self.name))
    }

    /// Makes a rule. It holds until it is destroyed, the port is configured anew, reset or closed; over stop and start too.
    ///
    /// # Errors
    /// As [`Port::flow_validate`]; when the device has no room for it.
    #[doc(alias = "rte_flow_create")]
    pub fn flow_create(&mut self, rule: &FlowRule) -> Result<FlowHandle, PortError> {
        let plan = self.flow_plan("make a flow rule", rule)?;
        let made = self.driver.flow().and_then(|flow| flow.create(&plan));
        let token = made.map_err(|error| error.named(&self.name))?;
        let number = self.flows.next;
        self.flows.next += 1;
        self.flows.rules.insert(number, (rule.clone(), token));
        Ok(FlowHandle { port: self.id, number })
    }

    /// Ends a rule.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Flow`] when the port has no such rule; what the device said, in which case the rule
    /// stays.
    #[doc(alias = "rte_flow_destroy")]
    pub fn flow_destroy(&mut self, handle: FlowHandle) -> Result<(), PortError> {
        self.must_be_there("destroy a flow rule")?;
        let (_, token) = self.flow_rule(handle)?;
        let token = *token;
        let done = self.driver.flow().and_then(|flow| flow.destroy(token));
        done.map_err(|error| error.named(&self.name))?;
        self.flows.rules.remove(&handle.number);
        Ok(())
    }

    /// Ends all rules. Those that the port's filters stand for stay.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; the first thing that the device said, after all were tried.
    #[doc(alias = "rte_flow_flush")]
    pub fn flow_flush(&mut self) -> Result<(), PortError> {
        self.must_be_there("flush flow rules")?;
        self.driver.flow().map(drop).map_err(|error| error.named(&self.name))?;
        let handles: Vec<FlowHandle> = self.flow_rules().map(|(handle, _)| handle).collect();
        handles.into_iter().map(|handle| self.flow_destroy(handle)).fold(Ok(()), Result::and)
    }

    /// What a counting rule has seen since it was made, or since it was last set back; sets it back afterwards if `reset`.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Flow`] when the port has no such rule, or it does not count; what the device said.
    #[doc(alias = "rte_flow_query")]
    pub fn flow_query(&mut self, handle: FlowHandle, reset: bool) -> Result<FlowCount, PortError> {
        self.must_be_there("query a flow rule")?;
        let (rule, token) = self.flow_rule(handle)?;
        let token = *token;
        if !rule.actions.contains(&FlowAction::Count) {
            let reason = "the rule has no count action";
            return Err(PortError::flow(FlowPart::Rule, reason).named(&self.name));
        }
        let asked = self.driver.flow().and_then(|flow| flow.query(token, reset));
        asked.map_err(|error| error.named(&self.name))
    }

    /// The rules, in the order in which they were made.
    pub fn flow_rules(&self) -> impl Iterator<Item = (FlowHandle, &FlowRule)> {
        let port = self.id;
        self.flows.rules.iter().map(move |(&number, (rule, _))| (FlowHandle { port, number }, rule))
    }

    /// Receives only what rules direct to a queue, or, as at first, all that the port's filters let in as well.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; what the device said.
    #[doc(alias = "rte_flow_isolate")]
    pub fn flow_isolate(&mut self, on: bool) -> Result<(), PortError> {
        self.must_be_there("isolate the port")?;
        let done = self.driver.flow().and_then(|flow| flow.isolate(on));
        done.map_err(|error| error.named(&self.name))?;
        self.flows.isolated = on;
        Ok(())
    }

    /// Whether it does.
    #[must_use]
    pub fn flow_isolated(&self) -> bool {
        self.flows.isolated
    }

    fn flow_rule(&self, handle: FlowHandle) -> Result<&(FlowRule, u64), PortError> {
        let found = (handle.port == self.id).then(|| self.flows.rules.get(&handle.number)).flatten();
        found.ok_or_else(|| {
            let reason = format!(
                "the port has no rule {handle}; it was destroyed, or belongs to port {}",
                handle.port
            );
            PortError::flow(FlowPart::Rule, reason).named(&self.name)
        })
    }

    fn flow_plan(&mut self, operation: &'static str, rule: &FlowRule) -> Result<FlowPlan, PortError> {
        self.must_be_configured(operation)?;
        let flow =
            self.driver.flow().map(|flow| flow.flow_info()).map_err(|error| error.named(&self.name))?;
        let rx_queues = u16::try_from(self.config.rx_queues.len()).unwrap_or(u16::MAX);
        let limits = FlowLimits { flow, rss: self.info.rss, rx_queues };
        limits.plan(rule).map_err(|error| error.named(&self.name))
    }

    /// Before the queues that rules lead to go away.
    pub(super) fn flows_end(&mut self) -> Result<(), PortError> {
        if self.flows.rules.is_empty() { Ok(()) } else { self.flow_flush() }
    }

    pub(super) fn flows_forget(&mut self) {
        self.flows.rules.clear();
        self.flows.isolated = false;
    }
}
