//! ConnectX ports: real ones, and those of the device model. Past the channel and the interface they are the same.

mod keys;
mod model;
mod real;

use pollux_config::{ConfigError, DeviceArg};
use pollux_pmd_mlx::devargs::Arguments;
use pollux_pmd_mlx::eth::port::{Mlx5Port, PortSpec};
use pollux_port::PortError;

use super::{Open, Opened};
pub use model::ModelNetdev;
pub(crate) use real::openable;

/// A port of the device model.
pub(super) fn model(device: &DeviceArg) -> Result<Open, ConfigError> {
    let (keys, rest) = keys::ModelKeys::take(device)?;
    let arguments = Arguments::parse(&rest).map_err(keys::with_own)?;
    Ok(Box::new(move |name, eal| {
        let memlock = keys.faults.memlock;
        let model = model::make(name, keys).map_err(|error| PortError::device("make the model", error))?;
        let netdev = ModelNetdev::new(&model);
        let spec = PortSpec {
            arguments,
            memlock,
            ..PortSpec::new(model.open(), std::sync::Arc::new(netdev), eal.memory().clone())
        };
        Ok(Opened { driver: Box::new(Mlx5Port::open(spec)?), model: Some(model) })
    }))
}

/// A device of the machine, by RDMA name, PCI address or interface.
pub(super) fn real(device: &DeviceArg) -> Result<Open, ConfigError> {
    let arguments = Arguments::parse(device)?;
    Ok(Box::new(move |name, eal| {
        let found = real::find(name)?;
        let spec = PortSpec {
            arguments,
            socket: found.socket,
            ..PortSpec::new(found.channel, found.netdev, eal.memory().clone())
        };
        Ok(Opened { driver: Box::new(Mlx5Port::open(spec)?), model: None })
    }))
}
