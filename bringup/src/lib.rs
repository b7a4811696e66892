//! From a command line to a running EAL and opened ports; the only crate that names every driver.
//!
//! ```text
//!   main ─► program::main ─► CommandLine ─► Bringup::new ─► Eal, Ports ─► Bringup::start_ports ─► queues
//!           one line and 2                  driver table                  one pool, sized for
//!           for each mistake                                              the queues
//! ```
//!
//! Programs of RDMA have devices instead of ports: `RdmaBringup::new ─► Eal, RdmaDevice (a verbs context)`.
//!
//! Called by the apps; calls `config`, `eal`, `mempool`, `port` and every driver.

#![forbid(unsafe_code)]

mod capture;
mod devices;
mod driver;
mod error;
mod exclusive;
mod file;
mod interface;
mod ledger;
mod log;
mod openable;
mod pool;
pub mod program;
mod rdma;
mod receive;
mod request;
mod telemetry;
mod transmit;
mod view;

use pollux_config::{CommandLine, PortSpec};
use pollux_eal::{Eal, StopReason};
use pollux_mempool::MbufPool;
use pollux_port::{MacAddress, PortConfig, PortId, Ports, Queues, RxQueueConfig, TxQueueConfig};

use capture::CaptureServer;
use devices::Device;
use tracing::subscriber::DefaultGuard;

pub use driver::{Drivers, Mlx5Card, ModelNetdev};
pub use error::BringupError;
pub use exclusive::Exclusive;
pub use ledger::{Crossing, PortLedger};
pub use pool::{Needs, PoolOptions};
pub use rdma::{ModelCounter, RdmaBringup, RdmaDevice, present};
pub use receive::ReceiveRequest;
pub use request::PortRequest;
pub use transmit::needed_for;
pub use view::View;

/// A running EAL and the ports of one program, opened and numbered.
///
/// Dropped in this order: ports, then the EAL.
#[derive(Debug)]
pub struct Bringup {
    /// Ends first: a capture has all that passed until then.
    _captures: Option<CaptureServer>,
    /// The ports, numbered in the order of the command line.
    pub ports: Ports,
    /// By the number of their port; `None`: it was detached.
    devices: Vec<Option<Device>>,
    /// Their models, for telemetry.
    modelled: telemetry::Models,
    rdma: telemetry::RdmaDevices,
    traces: telemetry::Traces,
    drivers: Drivers,
    line: CommandLine,
    pool_options: PoolOptions,
    /// In debug mode, those that were made.
    watched: Vec<MbufPool>,
    notices: Vec<String>,
    /// Ports were started before.
    started: bool,
    /// Lcores, memory, clock. SIGINT, SIGTERM and SIGHUP set its stop flag.
    pub eal: Eal,
    /// The thread that brings up also logs there.
    _logs: DefaultGuard,
}

impl Bringup {
    /// Starts an EAL and opens, without configuring them, the ports named by `line`, or two ports of the device model without any.
    ///
    /// # Errors
    /// [`BringupError`], one line; nothing is left behind.
    pub fn new(line: &CommandLine) -> Result<Self, BringupError> {
        Self::with_drivers(line, Drivers::new())
    }

    /// As [`new`](Self::new), with drivers of the program's own beside the built-in ones.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_drivers(line: &CommandLine, drivers: Drivers) -> Result<Self, BringupError> {
        let _starting = program::start_up(&line.program)?;
        let mut specs = line.ports.clone();
        let mut notices = Vec::new();
        let (pool_options, warning) = PoolOptions::new(&line.eal.pools)?;
        let mut line = line.clone();
        line.warnings.extend(warning);
        if specs.is_empty() {
            specs = driver::usual_ports()?;
            let what = "no device named, so two ports of the mlx5 device model, each with a source of 64-byte frames on its \
                        wire (--vdev names others)";
            notices = vec![what.into(), openable::line(&driver::openable())];
        }
        // What the drivers refuse is known before threads and memory are made.
        let prepared = specs.iter().map(|spec| drivers.prepare(&spec.device, &line.eal.devices));
        let prepared: Vec<_> = prepared.collect::<Result<_, _>>()?;
        drivers.check_exclusive(specs.iter().map(|spec| &spec.device))?;
        pollux_eal::simd::limit(line.eal.simd_bits_max);
        pollux_wire::simd::limit(line.eal.simd_bits_max);
        let eal = Eal::init(telemetry::with_default(line.eal.clone()))?;
        let logs = eal.enter_logs();
        eal.handle_signals()?;
        let (ports, modelled) = (Ports::new(), telemetry::Models::default());
        let (rdma, traces) = (telemetry::RdmaDevices::default(), telemetry::Traces::default());
        telemetry::register(&eal, &line, &ports.views(), &modelled, &rdma, &traces)?;
        let mut bringup = Self {
            _captures: None,
            ports,
            devices: Vec::new(),
            modelled,
            rdma,
            traces,
            drivers,
            line,
            pool_options,
            watched: Vec::new(),
            notices,
            started: false,
            eal,
            _logs: logs,
        };
        for (spec, prepared) in specs.into_iter().zip(prepared) {
            bringup.open(None, spec, prepared)?;
        }
        bringup._captures =
            CaptureServer::start(&bringup.eal, bringup.ports.views(), bringup.ports.captures());
        Ok(bringup)
    }

    /// Configures and starts the given ports, each with the queues that `request` or its profile names (one each way if none does),
    /// all fed from one pool. The queues come in the order of `ids`. When the ports are none that the user named, two lines on
    /// standard error say so, and what could be named.
    ///
    /// # Errors
    /// [`BringupError`], one line.
    pub fn start_ports(
        &mut self,
        ids: &[PortId],
        request: &PortRequest,
    ) -> Result<(Vec<Queues>, MbufPool), BringupError> {
        // Later the program runs and a signal is an ordinary end; until now it may have come unseen.
        let starting = (!self.started).then(|| program::start_up(&self.line.program)).transpose()?;
        if let (Some(_), Some(StopReason::Signal(signal))) = (&starting, self.eal.stop_flag().reason()) {
            return Err(BringupError::Signal { signal });
        }
        let mut needs = Needs::for_lcores(request.lcores);
        if let Some(count) = request.mbuf_cache {
            needs = needs.cache(count);
        }
        let mut specs = Vec::new();
        for &id in ids {
            let mut spec = self.spec(id)?.clone();
            let port = self.ports.get(id).ok_or(BringupError::NoPort { port: id.0 })?;
            spec.queues = request.queues_of_port(id, &spec.queues);
            driver::check_queues(&spec, &port.info())?;
            needs.add_port(&port.info(), &spec.queues);
            specs.push(spec);
        }
        let pool = needs.pool(self.eal.memory(), request.mbufs, self.pool_options)?;
        let segments = request.receive.segments(self.eal.memory(), &pool, self.pool_options)?;
        if self.pool_options.debug {
            let parts = segments.iter().filter_map(|segment| segment.pool.clone());
            self.watched.extend(std::iter::once(pool.clone()).chain(parts));
        }
        let (mut configs, mut needed) = (Vec::new(), request.open());
        for (&id, spec) in ids.iter().zip(&specs) {
            let port = self.ports.get_mut(id).ok_or(BringupError::NoPort { port: id.0 })?;
            let rx =
                RxQueueConfig { descriptors: spec.queues.rx_descriptors, ..RxQueueConfig::new(pool.clone()) };
            let tx = TxQueueConfig { descriptors: spec.queues.tx_descriptors, ..TxQueueConfig::default() };
            let mut config = PortConfig {
                rx_queues: vec![rx; spec.queues.rx_queues.into()],
                tx_queues: vec![tx; spec.queues.tx_queues.into()],
                mtu: spec.mtu,
                promiscuous: spec.promiscuous,
                scatter: spec.scatter,
                max_lro_bytes: spec.max_lro,
                ..PortConfig::default()
            };
            request.put(&mut config, &port.info());
            request.receive.put(&segments, &mut config);
            needed |= transmit::needed_for(port, &config)?;
            configs.push(config);
        }
        let mut all = Vec::new();
        for (&id, mut config) in ids.iter().zip(configs) {
            let port = self.ports.get_mut(id).ok_or(BringupError::NoPort { port: id.0 })?;
            // What a port cannot do is done in software in front of it; chains that it cannot send it refuses, and counts.
            config.open = needed;
            all.push(port.bring_up(config)?);
        }
        self.started = true;
        program::warn(&self.line);
        self.say_notices();
        Ok((all, pool))
    }

    /// Says, once, which ports were opened where none was named. [`start_ports`](Self::start_ports) does; a program that brings its ports up
    /// on its own calls it.
    pub fn say_notices(&mut self) {
        for notice in self.notices.drain(..) {
            program::say(format_args!("{}: {notice}", self.line.program));
        }
    }

    /// Returns the configuration of a port from the command line or the profile.
    ///
    /// # Errors
    /// [`BringupError::NoPort`].
    pub fn spec(&self, id: PortId) -> Result<&PortSpec, BringupError> {
        Ok(&self.device(id)?.spec)
    }

    /// A port's device as one of RDMA, beside the port: another context of the same device, whose packets do not pass the port's
    /// queues.
    ///
    /// # Errors
    /// There is no such port, its device has no RDMA, or what the device says.
    pub fn rdma(&self, id: PortId) -> Result<RdmaDevice, BringupError> {
        let device = self.device(id)?;
        let opened = self.drivers.rdma_beside(&device.spec.device, device.model.as_ref(), &self.eal)?;
        self.rdma.put(&opened);
        self.traces.put(&opened.name, opened.trace.clone());
        Ok(opened)
    }

    /// Returns the PCIe traffic of a port so far; `None` on hardware and on ports without a device, where it is not counted.
    #[must_use]
    pub fn ledger(&self, id: PortId) -> Option<PortLedger> {
        self.modelled.ledger(&self.spec(id).ok()?.device.name)
    }

    /// Returns what the program counts, to be read on any thread; it follows as ports come and go.
    #[must_use]
    pub fn view(&self) -> View {
        View::new(&self.eal, &self.ports, &self.modelled)
    }

    /// Returns the MAC address of a port.
    ///
    /// # Errors
    /// [`BringupError`] when there is no such port or it does not tell.
    pub fn mac(&mut self, id: PortId) -> Result<MacAddress, BringupError> {
        let port = self.ports.get_mut(id).ok_or(BringupError::NoPort { port: id.0 })?;
        Ok(port.mac_address()?)
    }
}

impl Drop for Bringup {
    /// In debug mode the guards of all mbufs are looked at once more, and what is found is logged.
    fn drop(&mut self) {
        for pool in &self.watched {
            let faults = pool.audit().len();
            if faults > 0 {
                tracing::error!(target: "lib.mempool", "pool {}: misused {faults} times", pool.name());
            }
        }
    }
}
