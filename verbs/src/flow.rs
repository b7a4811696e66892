//! Flow rules: which frames a raw queue pair takes from the wire.

use pollux_uverbs::abi::flags::{FlowFlags, FlowType};
use pollux_uverbs::flow::{FlowRule, FlowSpec};
use pollux_uverbs::{Driver as Data, FlowHandle, QpHandle};

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
pub struct RuleId(u32);

/// The rules of a queue pair. They go before it does: the kernel keeps one that still has any.
#[derive(Debug)]
pub(crate) struct Rules {
    context: Context,
    handles: Vec<FlowHandle>,
}

impl Rules {
    pub(crate) fn new(context: &Context) -> Self {
        Self { context: context.clone(), handles: Vec::new() }
    }

    pub(crate) fn add(&mut self, qp: QpHandle, rule: &Rule<'_>) -> Result<RuleId, VerbsError> {
        let Rule { port, priority, kind, specs } = *rule;
        let rule = FlowRule { qp, port, priority, kind, flags: FlowFlags::empty(), specs };
        let handle = self
            .context
            .uverbs()
            .create_flow(&rule, Data::none())
            .map_err(VerbsError::kernel("make a flow rule"))?;
        self.handles.push(handle);
        Ok(RuleId(handle.0))
    }

    pub(crate) fn remove(&mut self, rule: RuleId) -> Result<(), VerbsError> {
        let Some(at) = self.handles.iter().position(|handle| handle.0 == rule.0) else {
            return Err(VerbsError::Range {
                what: "flow rule",
                value: rule.0.into(),
                allowed: "it is none of this queue pair's".into(),
            });
        };
        self.context
            .uverbs()
            .destroy_flow(self.handles[at])
            .map_err(VerbsError::kernel("take a flow rule back"))?;
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
