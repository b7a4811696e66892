//! Flow rules: which frames a raw queue pair takes from the wire.

use std::sync::atomic::{AtomicU64, Ordering};

use pollux_uverbs::abi::flags::{FlowFlags, FlowType};
use pollux_uverbs::flow::{FlowRule, FlowSpec};
use pollux_uverbs::{Driver, FlowHandle, QpHandle};

use crate::{Context, VerbsError};

/// A rule: frames that match all of its specs go to the queue pair that it is given to.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// The port, from 1.
    pub port: u8,
    /// 0 is looked at first.
    pub priority: u16,
    /// What it is beside its specs: [`FlowType::NORMAL`], or what takes all that no other rule does.
    pub kind: FlowType,
    /// What it matches, outermost header first.
    pub specs: &'a [FlowSpec],
}

/// Names a rule of a queue pair, to [take it back](crate::Qp::unsteer).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId {
    /// The serial of the rules that it is one of.
    rules: u64,
    handle: FlowHandle,
}

/// The rules of a queue pair. They go before it does: the kernel keeps one that still has any.
#[derive(Debug)]
pub(crate) struct Rules {
    context: Context,
    /// No other queue pair's rules have it.
    serial: u64,
    handles: Vec<FlowHandle>,
}

impl Rules {
    pub(crate) fn new(context: &Context) -> Self {
        static SERIAL: AtomicU64 = AtomicU64::new(1);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        Self { context: context.clone(), serial, handles: Vec::new() }
    }

    pub(crate) fn add(&mut self, qp: QpHandle, rule: &Rule<'_>) -> Result<RuleId, VerbsError> {
        let Rule { port, priority, kind, specs } = *rule;
        let rule = FlowRule { qp, port, priority, kind, flags: FlowFlags::empty(), specs };
        let handle = self
            .context
            .uverbs()
            .create_flow(&rule, Driver::none())
            .map_err(VerbsError::kernel("create a flow rule"))?;
        self.handles.push(handle);
        Ok(RuleId { rules: self.serial, handle })
    }

    pub(crate) fn remove(&mut self, rule: RuleId) -> Result<(), VerbsError> {
        let known =
            self.handles.iter().position(|handle| rule.rules == self.serial && *handle == rule.handle);
        let Some(at) = known else {
            return Err(VerbsError::Range {
                what: "flow rule",
                value: rule.handle.0.into(),
                allowed: "it is none of this queue pair's".into(),
            });
        };
        self.context
            .uverbs()
            .destroy_flow(self.handles[at])
            .map_err(VerbsError::kernel("destroy a flow rule"))?;
        self.handles.remove(at);
        Ok(())
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        for handle in self.handles.drain(..).rev() {
            if let Err(error) = self.context.uverbs().destroy_flow(handle) {
                tracing::warn!(target: "lib.verbs", "{}: {error}", self.context.name());
            }
        }
    }
}
