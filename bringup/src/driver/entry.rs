//! A driver in the table: a name, what reads the keys of its devices, and how these are opened once there is an EAL.

use std::sync::Arc;

use pollux_config::{ConfigError, DeviceArg, KeyReader};
use pollux_eal::Eal;
use pollux_mlx5_model::Model;
use pollux_port::PortError;
use pollux_port::driver::{DriverInfo, PortDriver};

use crate::error::BringupError;
use crate::exclusive::Keys;
use crate::rdma::device::RdmaDevice;
use crate::telemetry::LiveTrace;

/// Reads a device's keys.
type Read = dyn Fn(&DeviceArg) -> Result<Open, ConfigError> + Send + Sync;

/// Opens the device under the given name; its keys are read by then.
pub(super) type Open = Box<dyn FnOnce(&str, &Eal) -> Result<Opened, PortError>>;

/// Opens an RDMA device under the given name; its keys are read by then.
pub(crate) type OpenRdma = Box<dyn FnOnce(&str, &Eal) -> Result<RdmaDevice, BringupError>>;

/// An open device.
pub(crate) struct Opened {
    pub(crate) driver: Box<dyn PortDriver>,
    /// What stands in for hardware, if anything does.
    pub(crate) model: Option<Arc<Model>>,
    /// Its calls, where they can be watched.
    pub(crate) trace: Option<LiveTrace>,
}

/// A driver.
#[derive(Clone)]
pub(super) struct Entry {
    /// The beginning of its devices' names.
    pub(super) name: String,
    pub(super) read: Arc<Read>,
    /// Which keys name what two ports cannot share.
    pub(super) exclusive: Keys,
}

/// Whose a driver is.
pub(super) enum Origin<'a> {
    /// A program's own, of this name: it takes the keys that its reader asks for.
    Program(&'a str),
    /// This workspace's: it takes the keys that are told of it, and the program carries the text that is made of that.
    BuiltIn(&'a DriverInfo, &'static [u8]),
}

impl Entry {
    /// A driver whose ports have no model behind them: `read` takes the keys, those that it leaves are refused.
    pub(super) fn of_port<O, D>(
        origin: Origin<'_>,
        read: impl Fn(&mut KeyReader<'_>) -> Result<O, ConfigError> + Send + Sync + 'static,
        open: impl Fn(&str, O, &Eal) -> Result<D, PortError> + Send + Sync + 'static,
    ) -> Self
    where
        O: 'static,
        D: PortDriver + 'static,
    {
        let (name, params) = match origin {
            Origin::Program(name) => (name, None),
            Origin::BuiltIn(info, text) => {
                DriverInfo::carry(text);
                (info.name, Some(info.params))
            }
        };
        let open = Arc::new(open);
        let read = move |device: &DeviceArg| -> Result<Open, ConfigError> {
            let mut keys = params.map_or_else(|| device.keys(), |params| device.keys_of(params));
            let options = read(&mut keys)?;
            keys.finish()?;
            let open = Arc::clone(&open);
            Ok(Box::new(move |name, eal| {
                Ok(Opened { driver: Box::new(open(name, options, eal)?), model: None, trace: None })
            }))
        };
        Self { name: name.into(), read: Arc::new(read), exclusive: &[] }
    }

    /// The same, with keys that name what two ports cannot share.
    pub(super) fn exclusive(self, keys: Keys) -> Self {
        Self { exclusive: keys, ..self }
    }
}
