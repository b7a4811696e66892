//! The step that all devices of the process make together.

use std::sync::Arc;

use super::function::Function;
use super::write_combining::WriteCombining;
use crate::device::Device;
use crate::time::worker::Steps;

/// Frames of each direction that a device moves in one step.
const BUDGET: usize = 64;

/// A device, and the stores to it that wait for more.
type Stepped = (Arc<Device>, Arc<WriteCombining>);

/// Every device of the process, stepped together.
#[derive(Clone, Debug)]
pub(super) struct All(Arc<[Stepped]>);

impl All {
    pub(super) fn new<'a>(functions: impl Iterator<Item = &'a Function>) -> Self {
        let stepped = |function: &Function| (Arc::clone(function.device()), Arc::clone(function.combining()));
        Self(functions.map(stepped).collect())
    }

    /// One step of each; whether one of them had work.
    pub(super) fn step_all(&self) -> bool {
        self.0.iter().fold(false, |some, (device, combining)| {
            for (page, offset, bytes) in combining.waited(false) {
                device.doorbell_store(page, offset, &bytes);
            }
            // What waits is looked at again at once.
            device.step(BUDGET) | combining.is_pending() | some
        })
    }
}

impl Steps for All {
    fn step(&self) -> bool {
        self.step_all()
    }

    fn name(&self) -> String {
        self.0.iter().map(|(device, _)| device.name()).collect::<Vec<_>>().join(", ")
    }
}
