//! Layers around ports: they see what passes between a driver and its queue values, and cost nothing where there is none.
//!
//! ```text
//!   RxQueue, TxQueue  <->  trace  <->  tee  <->  fault  <->  driver
//! ```
//!
//! Any device argument takes the layers' keys, which [`LayerSpec::take`] reads and [`wrap`] turns into layers, in
//! the order of the picture:
//!
//! - `trace=1`: one log line a packet; `trace=summary`: one line a queue when it goes.
//! - `tee=FILE`: what passes is written to a pcapng file.
//! - `fault=[drop:0.01,seed:7]`: see [`fault::FaultPlan`].
//!
//! Layers are for looking and for tests: they log, write files and take locks where packets pass.
pub mod fault;
pub mod tee;
pub mod tracer;

use crate::config::PortConfig;
use crate::driver::{
    ClockDriver, FlowDriver, PortDriver, RssDriver, RxBurst, RxSetup, TxBurst, TxSetup, VlanDriver,
};
use crate::link::{Fec, FecModes, SpeedFec, SpeedLanes};
use crate::{Direction, EventSink, Link, MacAddress, PortError, PortInfo, QueueId};
use fault::FaultPlan;
use pollux_config::{ConfigError, DeviceArg, KeyReader};
use pollux_mempool::ExternalMemory;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use tee::SharedSink;
use tracer::TraceMode;

/// A layer around a driver: it wraps each queue as it is set up.
pub trait Layer: Send {
    /// Puts itself around an rx queue.
    fn rx(&mut self, setup: &RxSetup, inner: Box<dyn RxBurst>) -> Box<dyn RxBurst>;

    /// Puts itself around a tx queue.
    fn tx(&mut self, setup: &TxSetup, inner: Box<dyn TxBurst>) -> Box<dyn TxBurst>;

    /// Its own statistics, as [`PortDriver::xstats`].
    fn xstats(&self) -> Vec<(Cow<'static, str>, u64)> {
        Vec::new()
    }
}

/// The keys that [`LayerSpec::from_keys`] reads.
pub const KEYS: [&str; 3] = ["fault", "tee", "trace"];

/// Which layers a port gets: plain data.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayerSpec {
    /// `fault`.
    pub fault: Option<FaultPlan>,
    /// `tee`.
    pub tee: Option<PathBuf>,
    /// `trace`.
    pub trace: Option<TraceMode>,
}

impl LayerSpec {
    /// Takes the layers' keys out of a device argument; what is left is for the driver.
    ///
    /// # Errors
    /// When a value makes no sense.
    pub fn take(device: &DeviceArg) -> Result<(Self, DeviceArg), ConfigError> {
        let spec = Self::from_keys(&mut device.keys())?;
        let mut rest = device.clone();
        rest.args.retain(|(key, _)| !KEYS.contains(&key.as_str()));
        Ok((spec, rest))
    }

    /// Reads the layers' keys of a device argument; the driver's own are left for the driver.
    ///
    /// # Errors
    /// When a value makes no sense.
    pub fn from_keys(keys: &mut KeyReader<'_>) -> Result<Self, ConfigError> {
        let fault = match keys.text("fault")? {
            None => None,
            Some(text) => Some(FaultPlan::parse(text).map_err(|problem| keys.bad("fault", text, problem))?),
        };
        let tee = keys.text("tee")?.map(PathBuf::from);
        let trace = match keys.choice("trace", &["0", "1", "summary"])? {
            Some(1) => Some(TraceMode::Packets),
            Some(2) => Some(TraceMode::Summary),
            _ => None,
        };
        Ok(Self { fault, tee, trace })
    }
}

/// Puts the layers of `spec` around a driver. `open_tee` opens the file to which a tee writes.
///
/// # Errors
/// [`PortError::Device`] when the file cannot be opened.
pub fn wrap(
    name: &str,
    mut driver: Box<dyn PortDriver>,
    spec: &LayerSpec,
    open_tee: impl FnOnce(&Path) -> std::io::Result<SharedSink>,
) -> Result<Box<dyn PortDriver>, PortError> {
    if let Some(plan) = &spec.fault {
        driver = around(driver, fault::Faults::new(plan.clone()));
    }
    if let Some(path) = &spec.tee {
        let sink = open_tee(path).map_err(|error| {
            PortError::device(format!("open tee file {}", path.display()), error).named(name)
        })?;
        driver = around(driver, tee::Tee::new(name, sink));
    }
    if let Some(mode) = spec.trace {
        driver = around(driver, tracer::Tracer::new(name, mode));
    }
    Ok(driver)
}

/// Puts one layer around a driver.
pub fn around(driver: Box<dyn PortDriver>, layer: impl Layer + 'static) -> Box<dyn PortDriver> {
    Box::new(Layered { driver, layer: Box::new(layer) })
}

/// A driver with a layer around it: control goes straight through.
struct Layered {
    driver: Box<dyn PortDriver>,
    layer: Box<dyn Layer>,
}

impl PortDriver for Layered {
    fn info(&self) -> PortInfo {
        self.driver.info()
    }

    fn configure(&mut self, config: &PortConfig) -> Result<(), PortError> {
        self.driver.configure(config)
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        let inner = self.driver.rx_queue_setup(setup.clone())?;
        Ok(self.layer.rx(&setup, inner))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        let inner = self.driver.tx_queue_setup(setup.clone())?;
        Ok(self.layer.tx(&setup, inner))
    }

    fn start(&mut self) -> Result<(), PortError> {
        self.driver.start()
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.driver.stop()
    }

    fn close(&mut self) -> Result<(), PortError> {
        self.driver.close()
    }

    fn reset(&mut self) -> Result<(), PortError> {
        self.driver.reset()
    }

    fn update_counters(&self) {
        self.driver.update_counters();
    }

    fn dump_queue(&mut self, direction: Direction, queue: QueueId) -> Result<String, PortError> {
        self.driver.dump_queue(direction, queue)
    }

    fn xstats(&self) -> Vec<(Cow<'static, str>, u64)> {
        let mut all = self.driver.xstats();
        all.extend(self.layer.xstats());
        all
    }

    fn set_xstat_enabled(&mut self, name: &str, on: bool) -> Result<(), PortError> {
        self.driver.set_xstat_enabled(name, on)
    }

    fn link(&mut self, started: bool) -> Link {
        self.driver.link(started)
    }

    fn lane_capabilities(&mut self) -> Result<Vec<SpeedLanes>, PortError> {
        self.driver.lane_capabilities()
    }

    fn set_lanes(&mut self, lanes: u16) -> Result<(), PortError> {
        self.driver.set_lanes(lanes)
    }

    fn fec_capabilities(&mut self) -> Result<Vec<SpeedFec>, PortError> {
        self.driver.fec_capabilities()
    }

    fn fec(&mut self) -> Result<Fec, PortError> {
        self.driver.fec()
    }

    fn set_fec(&mut self, modes: FecModes) -> Result<(), PortError> {
        self.driver.set_fec(modes)
    }

    fn set_link_up(&mut self, up: bool) -> Result<(), PortError> {
        self.driver.set_link_up(up)
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        self.driver.mtu()
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.driver.set_mtu(mtu)
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        self.driver.set_promiscuous(on)
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        self.driver.set_all_multicast(on)
    }

    fn set_neighbours_by_kernel(&mut self, on: bool) -> Result<(), PortError> {
        self.driver.set_neighbours_by_kernel(on)
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        self.driver.mac_address()
    }

    fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.driver.set_mac_address(mac)
    }

    fn add_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.driver.add_mac_address(mac)
    }

    fn remove_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.driver.remove_mac_address(mac)
    }

    fn set_multicast_list(&mut self, groups: &[MacAddress]) -> Result<(), PortError> {
        self.driver.set_multicast_list(groups)
    }

    fn register_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        self.driver.register_memory(memory)
    }

    fn unregister_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        self.driver.unregister_memory(memory)
    }

    fn connect(&mut self, events: &EventSink) {
        self.driver.connect(events);
    }

    fn rx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.driver.rx_queue_start(queue)
    }

    fn rx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.driver.rx_queue_stop(queue)
    }

    fn tx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.driver.tx_queue_start(queue)
    }

    fn tx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.driver.tx_queue_stop(queue)
    }

    fn rss(&mut self) -> Result<&mut dyn RssDriver, PortError> {
        self.driver.rss()
    }

    fn flow(&mut self) -> Result<&mut dyn FlowDriver, PortError> {
        self.driver.flow()
    }

    fn vlan(&mut self) -> Result<&mut dyn VlanDriver, PortError> {
        self.driver.vlan()
    }

    fn clock(&mut self) -> Result<&mut dyn ClockDriver, PortError> {
        self.driver.clock()
    }
}

/// What every layer passes through to the queue it is around.
macro_rules! pass_rx {
    () => {
        fn resume(&mut self) {
            self.inner.resume();
        }

        fn refill(&mut self, inside: &InBurst<'_>, spare: &mut Burst) -> Result<usize, crate::PortError> {
            self.inner.refill(inside, spare)
        }

        fn mode(&self) -> &'static str {
            self.inner.mode()
        }

        fn queue_count(&self) -> Result<usize, crate::PortError> {
            self.inner.queue_count()
        }

        fn descriptor_status(&self, offset: usize) -> Result<crate::driver::RxDescriptor, crate::PortError> {
            self.inner.descriptor_status(offset)
        }

        fn set_interrupt(&mut self, on: bool) -> Result<(), crate::PortError> {
            self.inner.set_interrupt(on)
        }

        fn interrupt_fd(&self) -> Result<std::os::fd::BorrowedFd<'_>, crate::PortError> {
            self.inner.interrupt_fd()
        }

        fn power_monitor(&self) -> Result<crate::PowerMonitor, crate::PortError> {
            self.inner.power_monitor()
        }
    };
}

macro_rules! pass_tx {
    () => {
        fn resume(&mut self) {
            self.inner.resume();
        }

        fn recycle(&mut self, inside: &InBurst<'_>, spare: &mut Burst) -> Result<usize, crate::PortError> {
            self.inner.recycle(inside, spare)
        }

        fn mode(&self) -> &'static str {
            self.inner.mode()
        }

        fn done_cleanup(&mut self, max: usize) -> Result<usize, crate::PortError> {
            self.inner.done_cleanup(max)
        }

        fn queue_count(&self) -> Result<usize, crate::PortError> {
            self.inner.queue_count()
        }

        fn descriptor_status(&self, offset: usize) -> Result<crate::driver::TxDescriptor, crate::PortError> {
            self.inner.descriptor_status(offset)
        }

        fn lacks(&mut self) -> crate::TxOffloads {
            self.inner.lacks()
        }

        fn prepare(&mut self, mbufs: &mut [pollux_mempool::Mbuf]) -> Result<(), crate::BadPacket> {
            self.inner.prepare(mbufs)
        }
    };
}
use pass_rx;
pub(crate) use pass_tx;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_layers_and_nonsense_is_refused() {
        let device: DeviceArg = "net_null0,size=64,trace=summary,tee=a.pcapng,fault=[drop:0.5,seed:7]"
            .parse()
            .expect("well formed");
        let mut keys = device.keys();
        let spec = LayerSpec::from_keys(&mut keys).expect("good values");
        assert_eq!(spec.tee.as_deref(), Some(Path::new("a.pcapng")));
        assert_eq!(spec.trace, Some(TraceMode::Summary));
        assert_eq!(spec.fault.expect("given").drop, 0.5);
        assert!(keys.finish().is_err(), "size is the driver's key");
        let (_, rest) = LayerSpec::take(&device).expect("good values");
        assert_eq!(rest.to_string(), "net_null0,size=64");

        let none: DeviceArg = "net_null0,trace=0".parse().expect("well formed");
        assert_eq!(LayerSpec::from_keys(&mut none.keys()).expect("good values"), LayerSpec::default());
        for bad in ["net_null0,trace=2", "net_null0,tee=", "net_null0,fault=[drop:2]"] {
            let device: DeviceArg = bad.parse().expect("well formed");
            assert!(LayerSpec::from_keys(&mut device.keys()).is_err(), "{bad}");
        }
    }
}
