//! What a program counts, for other threads than the one that brought it up.

use pollux_eal::Eal;
use pollux_eal::clock::Clock;
use pollux_eal::lcore::{LcoreId, Lcores, Usage};
use pollux_mempool::MbufPool;
use pollux_port::{PortView, PortViews, Ports};

use crate::PortLedger;
use crate::telemetry::{Models, pools};

/// Ports, pools, lcores and device models of one program, to be read on any thread. Lcores do not notice. Clones are the same.
#[derive(Clone, Debug)]
pub struct View {
    ports: PortViews,
    models: Models,
    lcores: Lcores,
    clock: Clock,
}

impl View {
    pub(crate) fn new(eal: &Eal, ports: &Ports, models: &Models) -> Self {
        Self {
            ports: ports.views(),
            models: models.clone(),
            lcores: eal.lcores().clone(),
            clock: eal.clock(),
        }
    }

    /// Returns the ports that are there, by number. Closed ones are not.
    #[must_use]
    pub fn ports(&self) -> Vec<PortView> {
        self.ports.list()
    }

    /// Returns the pools that these ports receive into, each once.
    #[must_use]
    pub fn pools(&self) -> Vec<MbufPool> {
        pools(&self.ports)
    }

    /// Returns the PCIe traffic of a port so far; `None` on hardware and on ports without a device, where it is not counted.
    #[must_use]
    pub fn ledger(&self, port: &str) -> Option<PortLedger> {
        self.models.ledger(port)
    }

    /// Returns the cycles that an lcore reported.
    #[must_use]
    pub fn usage(&self, lcore: LcoreId) -> Option<Usage> {
        self.lcores.usage(lcore)
    }

    /// Returns the clock whose cycles are counted.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }
}
