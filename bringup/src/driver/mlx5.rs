//! ConnectX ports: real ones, and those of the device model. Past the channel and the interface they are the same.

mod card;
mod keys;
mod model;
mod real;
mod trace;

use std::sync::Arc;

use pollux_config::{ConfigError, DeviceArg};
use pollux_eal::Eal;
use pollux_mlx5_model::Model;
use pollux_pmd_mlx::devargs::Arguments;
use pollux_pmd_mlx::eth::port::{Mlx5Port, Mlx5Spec};
use pollux_port::PortError;
use pollux_port::driver::DriverInfo;
use pollux_verbs::{Context, Options, Provider, VerbsError};

use super::entry::{Open, OpenRdma, Opened};
use crate::error::BringupError;
use crate::rdma::device::RdmaDevice;
pub use card::Mlx5Card;
pub use model::ModelNetdev;
pub(super) use real::openable;

/// Keeps in the program what it tells of the model; of the driver proper, opening a port does.
pub(super) fn carry() {
    DriverInfo::carry(&keys::TEXT);
}

/// A port of the device model.
pub(super) fn model(device: &DeviceArg) -> Result<Open, ConfigError> {
    let (keys, rest) = keys::ModelKeys::take(device)?;
    keys.check_core(device)?;
    let arguments = Arguments::parse(&rest).map_err(keys::with_own)?;
    Ok(Box::new(move |name, eal| {
        let memlock = keys.faults.memlock;
        let model = model::make(name, keys).map_err(|error| PortError::device("create the model", error))?;
        let netdev = ModelNetdev::new(&model);
        let (channel, trace) = trace::of_model(&model, name)?;
        let spec =
            Mlx5Spec { arguments, memlock, ..Mlx5Spec::new(channel, Arc::new(netdev), eal.memory().clone()) };
        Ok(Opened { driver: Box::new(Mlx5Port::open(spec)?), model: Some(model), trace })
    }))
}

/// A device of the machine, by RDMA name, PCI address or interface.
pub(super) fn real(device: &DeviceArg) -> Result<Open, ConfigError> {
    let arguments = Arguments::parse(device)?;
    Ok(Box::new(move |name, eal| {
        let found = real::find(name)?;
        let spec = Mlx5Spec {
            arguments,
            socket: found.socket,
            ..Mlx5Spec::new(found.channel, found.netdev, eal.memory().clone())
        };
        Ok(Opened { driver: Box::new(Mlx5Port::open(spec)?), model: None, trace: found.trace })
    }))
}

/// A device model as an RDMA device. The driver's own keys are for ports; they are checked and set aside.
pub(super) fn model_rdma(device: &DeviceArg) -> Result<OpenRdma, ConfigError> {
    let (keys, rest) = keys::ModelKeys::take(device)?;
    keys.check_core(device)?;
    Arguments::parse(&rest).map_err(keys::with_own)?;
    Ok(Box::new(move |name, eal| {
        let model = model::make(name, keys)
            .map_err(|error| PortError::device("create the model", error).named(name))?;
        rdma_of_model(name, &model, eal)
    }))
}

/// A context of a model.
pub(super) fn rdma_of_model(name: &str, model: &Arc<Model>, eal: &Eal) -> Result<RdmaDevice, BringupError> {
    let options = Options { memory: eal.memory().clone(), ..Options::default() };
    let (channel, trace) = trace::of_model(model, name)?;
    let context = Context::open(channel, Provider::Mlx5, options)?;
    Ok(RdmaDevice { name: name.to_owned(), context, model: Some(Arc::clone(model)), sysfs: None, trace })
}

/// A device of the machine, by RDMA name, PCI address or interface.
pub(super) fn real_rdma(device: &DeviceArg) -> Result<OpenRdma, ConfigError> {
    Arguments::parse(device)?;
    Ok(Box::new(|name, eal| {
        let find = |error: VerbsError| PortError::device("find the device", error).named(name);
        let found = pollux_verbs::find(std::path::Path::new("/"), name).map_err(find)?;
        let (channel, trace) = trace::traced(found.open().map_err(VerbsError::Discovery)?, &found.ibdev)?;
        let options = Options { memory: eal.memory().clone(), ..Options::default() };
        let context = Context::open_device_over(&found, channel, options)?;
        Ok(RdmaDevice { name: found.ibdev, context, model: None, sysfs: Some(found.sysfs), trace })
    }))
}
