//! What a program tells of its ports, pools and devices, under the names and keys of DPDK's telemetry; see [`pollux_eal::telemetry`].
//!
//! Read on the telemetry thread, through views that lcores do not notice.

mod ethdev;
mod model;
mod pool;
mod rdma;
mod trace;

use pollux_config::CommandLine;
use pollux_eal::telemetry::Value;
use pollux_eal::{Eal, EalError};
use pollux_port::PortViews;

use crate::RdmaDevice;

pub(crate) use model::Models;
pub(crate) use pool::pools;
pub(crate) use rdma::RdmaDevices;
pub(crate) use trace::{LiveTrace, Traces};

/// Registers `/eal/params`, `/eal/app_params`, `/ethdev/*`, `/mempool/*`, `/ring/*`, `/model/ledger`, `/rdma/*` and `/uverbs/trace`.
pub(crate) fn register(
    eal: &Eal,
    line: &CommandLine,
    ports: &PortViews,
    models: &Models,
    devices: &RdmaDevices,
    traces: &Traces,
) -> Result<(), EalError> {
    register_arguments(eal, line)?;
    ethdev::register(eal.telemetry(), ports)?;
    pool::register(eal.telemetry(), ports, eal.memory())?;
    model::register(eal.telemetry(), models)?;
    trace::register(eal, traces)?;
    rdma::register(eal.telemetry(), devices)
}

/// Registers what a program of RDMA has of these: `/eal/params`, `/eal/app_params`, `/model/ledger`, `/rdma/*` and `/uverbs/trace`.
pub(crate) fn register_for_rdma(
    eal: &Eal,
    line: &CommandLine,
    devices: &[RdmaDevice],
) -> Result<(), EalError> {
    register_arguments(eal, line)?;
    let models = Models::default();
    devices.iter().for_each(|device| models.put(&device.name, device.model.as_ref()));
    model::register(eal.telemetry(), &models)?;
    let open = RdmaDevices::default();
    devices.iter().for_each(|device| open.put(device));
    let traces = Traces::default();
    devices.iter().for_each(|device| traces.put(&device.name, device.trace.clone()));
    trace::register(eal, &traces)?;
    rdma::register(eal.telemetry(), &open)
}

/// Source: DPDK `lib/eal/common/eal_common_options.c`, `handle_eal_info_request`.
fn register_arguments(eal: &Eal, line: &CommandLine) -> Result<(), EalError> {
    let halves = [
        ("/eal/params", "Returns the EAL arguments. Takes no parameters", &line.arguments.eal),
        ("/eal/app_params", "Returns the application arguments. Takes no parameters", &line.arguments.app),
    ];
    for (path, help, arguments) in halves {
        let arguments: Value =
            arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
        eal.telemetry().register(path, help, move |_| arguments.clone())?;
    }
    Ok(())
}

/// Whether the socket is made, where the command line says nothing: it is.
pub(crate) fn with_default(mut spec: pollux_config::EalSpec) -> pollux_config::EalSpec {
    spec.telemetry.get_or_insert(true);
    spec
}
