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

    /// Where sysfs describes it, of a real one.
    #[must_use]
    pub fn sysfs(&self) -> Option<&Path> {
        self.sysfs.as_deref()
    }
}
