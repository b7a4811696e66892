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
    /// Returns which flow rules the port supports.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`].
    pub fn flow_info(&mut self) -> Result<FlowInfo, PortError> {
        self.must_be_there("read what flow rules can be")?;
        self.driver.lock().flow().map(|flow| flow.flow_info()).map_err(|error| error.named(&self.name))
    }

    /// Checks whether [`Port::flow_create`] would accept this rule now, without creating it.
    ///
    /// # Errors
    /// When not configured, gone or closed; [`PortError::Flow`], which names the part of the rule that is at fault;
    /// [`PortError::Argument`] for an RSS action that the port cannot hash; [`PortError::Unsupported`]; what the device said.
    #[doc(alias = "rte_flow_validate")]
    pub fn flow_validate(&mut self, rule: &FlowRule) -> Result<(), PortError> {
        let plan = self.flow_plan("check a flow rule", rule)?;
        let done = self.driver.lock().flow().and_then(|flow| flow.validate(&plan));
        done.map_err(|error| error.named(&self.name))
    }

    /// Creates a flow rule. It survives stop and start, until it is destroyed or the port is reconfigured, reset or closed.
    ///
    /// # Errors
    /// As [`Port::flow_validate`]; when the device has no room for it.
    #[doc(alias = "rte_flow_create")]
    pub fn flow_create(&mut self, rule: &FlowRule) -> Result<FlowHandle, PortError> {
        let plan = self.flow_plan("create a flow rule", rule)?;
        let made = self.driver.lock().flow().and_then(|flow| flow.create(&plan));
        let token = made.map_err(|error| error.named(&self.name))?;
        let number = self.flows.next;
        self.flows.next += 1;
        self.flows.rules.insert(number, (rule.clone(), token));
        Ok(FlowHandle { port: self.id, number })
    }

    /// Destroys a flow rule.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Flow`] when the port has no such rule; what the device said, in which case the rule
    /// stays.
    #[doc(alias = "rte_flow_destroy")]
    pub fn flow_destroy(&mut self, handle: FlowHandle) -> Result<(), PortError> {
        self.must_be_there("destroy a flow rule")?;
        let (_, token) = self.flow_rule(handle)?;
        let token = *token;
        let done = self.driver.lock().flow().and_then(|flow| flow.destroy(token));
        done.map_err(|error| error.named(&self.name))?;
        self.flows.rules.remove(&handle.number);
        Ok(())
    }

    /// Destroys all flow rules. Rules that implement the port's filters stay.
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; the first thing that the device said, after all were tried.
    #[doc(alias = "rte_flow_flush")]
    pub fn flow_flush(&mut self) -> Result<(), PortError> {
        self.must_be_there("flush flow rules")?;
        self.driver.lock().flow().map(drop).map_err(|error| error.named(&self.name))?;
        let handles: Vec<FlowHandle> = self.flow_rules().map(|(handle, _)| handle).collect();
        handles.into_iter().map(|handle| self.flow_destroy(handle)).fold(Ok(()), Result::and)
    }

    /// Returns the counter of a rule with a count action, and resets it if `reset` is set.
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
        let asked = self.driver.lock().flow().and_then(|flow| flow.query(token, reset));
        asked.map_err(|error| error.named(&self.name))
    }

    /// Returns the flow rules in order of creation.
    pub fn flow_rules(&self) -> impl Iterator<Item = (FlowHandle, &FlowRule)> {
        let port = self.id;
        self.flows.rules.iter().map(move |(&number, (rule, _))| (FlowHandle { port, number }, rule))
    }

    /// Enables flow isolated mode, in which only flow rules deliver packets, or disables it (the default).
    ///
    /// # Errors
    /// When gone or closed; [`PortError::Unsupported`]; what the device said.
    #[doc(alias = "rte_flow_isolate")]
    pub fn flow_isolate(&mut self, on: bool) -> Result<(), PortError> {
        self.must_be_there("isolate the port")?;
        let done = self.driver.lock().flow().and_then(|flow| flow.isolate(on));
        done.map_err(|error| error.named(&self.name))?;
        self.flows.isolated = on;
        Ok(())
    }

    /// Returns whether flow isolated mode is enabled.
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
        let flow = self
            .driver
            .lock()
            .flow()
            .map(|flow| flow.flow_info())
            .map_err(|error| error.named(&self.name))?;
        let rx_queues = u16::try_from(self.shown.config.rx_queues.len()).unwrap_or(u16::MAX);
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
