//! RDMA programs: a running EAL and contexts of the devices that the command line names, without ports.

pub(crate) mod device;

use std::path::Path;

use pollux_config::{CommandLine, DeviceArg, PortSpec};
use pollux_eal::Eal;
use tracing::subscriber::DefaultGuard;

use crate::driver::Drivers;
use crate::{BringupError, program, telemetry};

pub use device::{ModelCounter, RdmaDevice};

/// A running EAL and RDMA devices. Dropped in this order: devices, then the EAL.
#[derive(Debug)]
pub struct RdmaBringup {
    /// The devices in the order of the command line.
    pub devices: Vec<RdmaDevice>,
    /// Lcores, memory, clock. SIGINT, SIGTERM and SIGHUP set its stop flag.
    pub eal: Eal,
    _logs: DefaultGuard,
}

impl RdmaBringup {
    /// Starts an EAL and opens the devices that `line` names. `also` names one more, as the originals' `-d` does: if the line
    /// names it already, nothing is added.
    ///
    /// # Errors
    /// [`BringupError`], one line: no device at all is one, with what could be named.
    pub fn new(line: &CommandLine, also: Option<&str>) -> Result<Self, BringupError> {
        Self::start(line, also, true)
    }

    /// The same for programs whose devices are found by address: that the line names none is no error.
    ///
    /// # Errors
    /// [`BringupError`], one line.
    pub fn by_address(line: &CommandLine) -> Result<Self, BringupError> {
        Self::start(line, None, false)
    }

    fn start(line: &CommandLine, also: Option<&str>, some: bool) -> Result<Self, BringupError> {
        let _starting = program::start_up(&line.program)?;
        let drivers = Drivers::new();
        let mut specs = line.ports.clone();
        if let Some(also) = also
            && !specs.iter().any(|spec| spec.device.name == also)
        {
            let device: DeviceArg = also.parse()?;
            line.eal.devices.check_blocked(&device)?;
            check_there(&drivers, &device, &specs)?;
            specs.push(PortSpec::new(device));
        }
        if some && specs.is_empty() {
            return Err(none_named());
        }
        let prepared: Vec<_> = specs
            .iter()
            .map(|spec| drivers.prepare_rdma(&spec.device, &line.eal.devices))
            .collect::<Result<_, _>>()?;
        drivers.check_exclusive(specs.iter().map(|spec| &spec.device))?;
        pollux_eal::simd::limit(line.eal.simd_bits_max);
        pollux_wire::simd::limit(line.eal.simd_bits_max);
        let eal = Eal::init(telemetry::with_default(line.eal.clone()))?;
        let logs = eal.enter_logs();
        eal.handle_signals()?;
        let devices: Vec<RdmaDevice> = specs
            .iter()
            .zip(prepared)
            .map(|(spec, open)| open(&spec.device.name, &eal))
            .collect::<Result<_, _>>()?;
        telemetry::register_for_rdma(&eal, line, &devices)?;
        program::warn(&without_pools(line));
        Ok(Self { devices, eal, _logs: logs })
    }
}

/// The command line with a warning for each option about pools of mbufs: RDMA programs have none.
fn without_pools(line: &CommandLine) -> CommandLine {
    let mut line = line.clone();
    let pools = &line.eal.pools;
    let given = [("--mbuf-pool-ops-name", pools.backend.is_some()), ("--mempool-debug", pools.debug)];
    for (option, _) in given.into_iter().filter(|(_, given)| *given) {
        line.warnings.push(format!("option '{option}' has no effect: this program uses no mbuf pools"));
    }
    line
}

/// Returns all RDMA devices of the kernel, supported or not.
#[must_use]
pub fn present() -> Vec<pollux_verbs::Device> {
    pollux_verbs::devices(Path::new("/")).unwrap_or_default()
}

/// If the command line names devices, a further kernel device that does not exist is likely a typo: suggests the nearest name.
fn check_there(drivers: &Drivers, device: &DeviceArg, named: &[PortSpec]) -> Result<(), BringupError> {
    let there = || pollux_verbs::find(Path::new("/"), &device.name).is_ok();
    if named.is_empty() || !drivers.is_hardware(device) || there() {
        return Ok(());
    }
    let named: Vec<&str> = named.iter().map(|spec| spec.device.name.as_str()).collect();
    let meant = pollux_config::nearest(&device.name, named.iter().copied());
    let meant = meant.map(|name| format!(", did you mean '{name}'?")).unwrap_or_default();
    Err(BringupError::Usage(format!(
        "device '{}': no such device{meant}; devices named by --vdev and -a: {}; devices of the kernel: {}",
        device.name,
        named.join(", "),
        here()
    )))
}

/// The kernel's RDMA devices, in words.
fn here() -> String {
    let here: Vec<String> = present().into_iter().map(|device| device.ibdev).collect();
    if here.is_empty() { "none".to_owned() } else { here.join(", ") }
}

/// What to say when no device is named.
fn none_named() -> BringupError {
    BringupError::Usage(format!(
        "no device given: use --vdev mlx5_model0 for a device model, or -a or -d for a device of the kernel: {}",
        here()
    ))
}
