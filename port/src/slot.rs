//! What the control handle keeps of a queue.

use std::sync::Arc;

use crate::burst::QueueOwner;
use crate::capture::Captures;
use crate::prepare::TxRules;
use crate::queue::QueueParts;
use crate::stats::Counters;
use crate::{Direction, Gate, PortError, PortId, QueueId};

/// What the control handle keeps of a queue.
#[derive(Debug)]
pub(crate) struct QueueSlot<C> {
    pub(crate) counters: Arc<C>,
    pub(crate) set_up: bool,
    /// Deferred at port start, or stopped individually since.
    pub(crate) stopped: bool,
    /// Which of its ways the driver chose.
    pub(crate) mode: Option<&'static str>,
}

impl<C> Clone for QueueSlot<C> {
    fn clone(&self) -> Self {
        Self { counters: Arc::clone(&self.counters), ..*self }
    }
}

impl<C: Default> Default for QueueSlot<C> {
    fn default() -> Self {
        Self { counters: Arc::default(), set_up: false, stopped: false, mode: None }
    }
}

impl<C: Counters> QueueSlot<C> {
    /// Takes the queue for a value that is about to be made; until the driver has agreed it counts as not set up.
    pub(crate) fn take(
        &mut self,
        (port, port_name, gate): (PortId, &Arc<str>, &Gate),
        captures: Option<&Captures>,
        direction: Direction,
        queue: QueueId,
    ) -> Result<QueueParts<C>, PortError> {
        let owner = QueueOwner::take(self.counters.line()).ok_or_else(|| PortError::QueueHeld {
            port: port_name.to_string(),
            direction,
            queue,
        })?;
        self.set_up = false;
        Ok(QueueParts {
            gate: gate.clone(),
            counters: Arc::clone(&self.counters),
            port,
            port_name: Arc::clone(port_name),
            queue,
            rules: TxRules::default(),
            taps: captures.and_then(|captures| captures.taps(port, queue, self.counters.line())),
            owner,
        })
    }
}
