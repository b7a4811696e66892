//! An open RDMA device, whoever opened it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollux_mlx5_model::Model;
use pollux_verbs::Context;

use crate::ledger::PortLedger;
use crate::telemetry::LiveTrace;

/// An RDMA device of a program.
#[derive(Debug)]
pub struct RdmaDevice {
    /// As the command line calls it; a real one as the kernel does.
    pub name: String,
    /// The open device.
    pub context: Context,
    pub(crate) model: Option<Arc<Model>>,
    pub(crate) sysfs: Option<PathBuf>,
    /// Its calls, where they can be watched.
    pub(crate) trace: Option<LiveTrace>,
}

impl RdmaDevice {
    /// What it made PCIe carry so far; none where nobody counts it, as on hardware.
    #[must_use]
    pub fn ledger(&self) -> Option<PortLedger> {
        Some(PortLedger::new(&self.model.as_ref()?.ledger()))
    }

    /// Where its frames go, of a model.
    #[must_use]
    pub fn wire(&self) -> Option<String> {
        Some(self.model.as_ref()?.wire().to_owned())
    }

    /// The same of its second port, if it has one.
    #[must_use]
    pub fn second_wire(&self) -> Option<String> {
        Some(self.model.as_ref()?.second_wire()?.to_owned())
    }

    /// A counter of a port, by the name that it has among `hw_counters` in sysfs: of a model, which has no folder there.
    #[must_use]
    pub fn model_counter(&self, port: u8, name: &str) -> ModelCounter {
        ModelCounter { model: self.model.clone(), port, name: name.into() }
    }

    /// Where sysfs describes it, of a real one.
    #[must_use]
    pub fn sysfs(&self) -> Option<&Path> {
        self.sysfs.as_deref()
    }
}

/// A counter of a device model's port.
#[derive(Clone, Debug)]
pub struct ModelCounter {
    model: Option<Arc<Model>>,
    port: u8,
    name: String,
}

impl ModelCounter {
    fn all(&self) -> Vec<(&'static str, u32)> {
        let counters = self.model.as_ref().and_then(|model| model.kernel().hw_counters(self.port).ok());
        counters.unwrap_or_default()
    }

    /// What it is now; `None` when there is none of that name, or the device is gone. It runs over at 2 to the power of 32.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        let all = self.all();
        all.iter().find(|(name, _)| *name == self.name).map(|(_, value)| (*value).into())
    }

    /// The names of those that the port has.
    #[must_use]
    pub fn known(&self) -> Vec<&'static str> {
        self.all().iter().map(|(name, _)| *name).collect()
    }
}
