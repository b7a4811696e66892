//! A port: the control half.
//!
//! ```text
//!   open ──► context, protection domain, pools registered
//!   rx/tx queue set-up ──► doorbell page, completion queue, queue; its data half moves to an lcore
//!   start ──► queues that were stopped run; table, hash queues, default rules: packets flow
//!   stop  ──► rules, hash queues, table go; queues stay
//!   close ──► queues go, then the device
//! ```

mod address;
mod hash;
mod make;
mod open;
pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod run;
pub(crate) mod slot;
mod split;
pub mod spread;
mod tunnels;

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_mempool::{ExternalMemory, Subscription};
use pollux_port::driver::{
    ClockDriver, FlowDriver, PortDriver, RssDriver, RxBurst, RxSetup, TxBurst, TxSetup, VlanDriver,
};
use pollux_port::{
    DeviceClock, Direction, EventSink, Gate, Link, MacAddress, PortConfig, PortError, PortInfo, QueueId,
    RxOffloads,
};

use self::plan::{RxPlan, TxPlan};
use self::slot::Slots;
use self::spread::{Spread, SpreadSpec};
use super::dump;
use super::filter::{Filter, Wanted};
use super::flow::Rules;
use super::recovery::{Watch, Watched};
use super::rss::Hashing;
use super::speed;
use super::stats::Counted;
use crate::devargs::Arguments;
use crate::eth::backend::{Backend, MergeSpec};
use crate::netdev::Netdev;
use pollux_mlx5_common::clock::{AdapterClock, Reading};
use pollux_mlx5_common::context::{Device, PORT};
use pollux_mlx5_common::mr::Registry;
use pollux_mlx5_common::object::NumberedObject;
use pollux_mlx5_common::uar::Uars;

pub use open::Mlx5Spec;

/// The driver's name in device arguments and port information.
pub const DRIVER: &str = "mlx5_pci";

/// A ConnectX port.
pub struct Mlx5Port {
    // In the order in which they go.
    watch: Option<Watch>,
    watched: Option<Arc<Watched>>,
    /// Rules of applications.
    pub(super) rules: Rules,
    filter: Filter,
    pub(super) spread: Option<Spread>,
    slots: Arc<Mutex<Slots>>,
    _pools: Option<Subscription>,
    registry: Option<Arc<Registry>>,
    pub(super) backend: Option<Arc<dyn Backend>>,
    uars: Option<Arc<Uars>>,
    device: Option<Arc<Device>>,
    netdev: Arc<dyn Netdev>,
    arguments: Arguments,
    info: PortInfo,
    counted: RefCell<Counted>,
    clock: Option<AdapterClock>,
    /// First of the priorities of default rules.
    pub(super) priority: u16,
    /// The card matches MPLS labels.
    pub(super) labels: bool,
    pub(super) wanted: Wanted,
    pub(super) spread_spec: SpreadSpec,
    pub(super) hashing: Hashing,
    /// Further addresses and groups that were told to the interface, which had not got them by itself.
    told: Vec<MacAddress>,
    /// Which rx queues were set up to take VLAN tags out.
    pub(super) strips: Vec<bool>,
    /// The VLANs that are let in, also while the filter is off.
    pub(super) vlans: Vec<u16>,
    pub(super) started: bool,
    /// The MTU that the rx queues were set up for.
    queues_mtu: Option<u32>,
    rx_queues: usize,
    tx_queues: usize,
}

/// What an open port works with.
pub(super) type Parts<'a> = (&'a Arc<Device>, &'a Arc<dyn Backend>, &'a Arc<Registry>);

impl Mlx5Port {
    /// Reads what the device tells and mends queues in error. The watching thread does it by itself.
    pub fn look(&self) {
        if let Some(watched) = &self.watched {
            watched.look();
        }
    }

    /// The device; the port is closed without one.
    fn device(&self) -> Result<&Arc<Device>, PortError> {
        self.device.as_ref().ok_or_else(|| PortError::device("use the device", Closed))
    }

    pub(super) fn parts(&self) -> Result<Parts<'_>, PortError> {
        match (&self.device, &self.backend, &self.registry) {
            (Some(device), Some(backend), Some(registry)) => Ok((device, backend, registry)),
            _ => Err(PortError::device("use the device", Closed)),
        }
    }

    pub(super) fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the default rules in line with what is wanted, while packets flow.
    fn refilter(&mut self) -> Result<(), PortError> {
        let (Some(spread), Some(backend)) = (&self.spread, &self.backend) else { return Ok(()) };
        self.filter
            .apply(&**backend, spread, self.priority, &self.wanted)
            .map_err(|error| PortError::device("change the default rules", error))
    }

    /// Changes what is wanted, and takes it back where the device refuses.
    pub(super) fn want(&mut self, change: impl FnOnce(&mut Wanted)) -> Result<(), PortError> {
        let before = self.wanted.clone();
        change(&mut self.wanted);
        let done = self.refilter();
        if done.is_err() {
            self.wanted = before;
            // The rules from before are still there; what was added of the new ones goes.
            let _again = self.refilter();
        }
        done
    }

    /// Destroys all queues. Their data halves, where they live on, see nothing of it but that nothing comes.
    fn destroy_queues(&mut self) {
        let Slots { rx, tx } = std::mem::take(&mut *self.slots());
        rx.iter().flatten().for_each(|slot| slot.queue.destroy());
        tx.iter().flatten().for_each(|slot| slot.queue.destroy());
    }

    /// Lets packets flow to the queues: hash queues over them, default rules to these.
    pub(super) fn spread_packets(&mut self) -> Result<(), PortError> {
        let (_, backend, _) = self.parts()?;
        let queues: Vec<NumberedObject> =
            self.slots().rx.iter().flatten().filter_map(|slot| slot.queue.get()).collect();
        if queues.is_empty() {
            return Ok(());
        }
        let spread = Spread::new(&**backend, &self.spread_spec, &queues)
            .map_err(|error| PortError::device("set up RSS", error))?;
        self.spread = Some(spread);
        let done = self.refilter();
        if done.is_err() {
            self.unspread();
        }
        done
    }

    /// Ends the flow of packets to the queues.
    pub(super) fn unspread(&mut self) {
        self.filter.clear();
        self.spread = None;
    }

    /// The link as the interface tells it, its speed as the kernel's RDMA half codes it where the interface does not.
    fn told_link(&self) -> Link {
        let mut link = self.netdev.link().unwrap_or_default();
        if let Some(device) = self.device.as_ref().filter(|device| !device.is_gone()) {
            if link.up
                && link.speed_mbps.is_none()
                && let Ok(told) = device.context().query_port(PORT)
            {
                let port = told.legacy_resp;
                (link.speed_mbps, link.lanes) =
                    speed::of(port.active_speed, told.active_speed_ex, port.active_width);
            }
        } else {
            link.up = false;
        }
        link
    }

    fn netdev_error(&self, what: &str) -> impl FnOnce(std::io::Error) -> PortError {
        let name = self.netdev.name();
        let what = format!("{what} of {name}");
        move |error| match error.kind() {
            std::io::ErrorKind::Unsupported => PortError::unsupported("this change", error.to_string()),
            std::io::ErrorKind::PermissionDenied => PortError::device(
                format!("{what}: it needs CAP_NET_ADMIN; run as root, or `setcap cap_net_admin+ep PROGRAM`"),
                error,
            ),
            _ => PortError::device(what, error),
        }
    }

    fn tell_gate(&self, gate: &Gate) -> Result<(), PortError> {
        let gate = gate.clone();
        self.device()?.when_gone(move || gate.set_gone());
        Ok(())
    }
}

/// The port was closed.
#[derive(Debug, thiserror::Error)]
#[error("the port is closed")]
struct Closed;

impl PortDriver for Mlx5Port {
    fn info(&self) -> PortInfo {
        self.info.clone()
    }

    fn configure(&mut self, config: &PortConfig) -> Result<(), PortError> {
        self.rules.clear();
        self.unspread();
        self.destroy_queues();
        self.counted.get_mut().configured(self.backend.as_deref(), &*self.netdev);
        self.queues_mtu = None;
        self.rx_queues = config.rx_queues.len();
        self.tx_queues = config.tx_queues.len();
        let hash_wanted = config.rx_offloads.contains(RxOffloads::RSS_HASH)
            || config.rx_queues.iter().any(|queue| queue.offloads.contains(RxOffloads::RSS_HASH));
        let (hashing, spread) = Hashing::configured(config.rss.as_ref(), self.rx_queues, hash_wanted)?;
        (self.hashing, self.spread_spec) = (hashing, spread);
        if config.rx_offloads.contains(RxOffloads::TCP_LRO) {
            let caps = self.parts()?.1.lro();
            self.spread_spec.merge = caps.map(|caps| MergeSpec {
                timeout_us: plan::lro_timeout(&caps, &self.arguments),
                bytes_max: config.max_lro_bytes.unwrap_or(self.info.max_lro_bytes) as usize,
            });
        }
        self.strips = vec![false; self.rx_queues];
        self.vlans.clear();
        self.wanted.vlans = None;
        let mtu = self.mtu()?;
        let device = self.device()?;
        device.locked().plan(plan::locked_bytes(device, &self.arguments, &self.info, config, mtu));
        let mut slots = self.slots();
        slots.rx.resize_with(self.rx_queues, || None);
        slots.tx.resize_with(self.tx_queues, || None);
        Ok(())
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        self.tell_gate(&setup.gate)?;
        let mtu = self.mtu()?;
        let (device, backend, _) = self.parts()?;
        let plan = RxPlan::new(device, &self.arguments, &**backend, &setup, mtu, self.rx_queues)?;
        self.strips[usize::from(setup.queue.0)] = plan.vlan_strip;
        if let Some(merge) = &mut self.spread_spec.merge {
            merge.bytes_max = merge.bytes_max.min(plan.frame_bytes_max);
        }
        self.counted.get_mut().queue(&setup.counters);
        self.queues_mtu = Some(self.queues_mtu.map_or(mtu, |known| known.min(mtu)));
        self.make_rx(&setup, plan).map_err(|error| PortError::device("set up an rx queue", error))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        self.tell_gate(&setup.gate)?;
        let (device, backend, _) = self.parts()?;
        let plan = TxPlan::new(device, &self.arguments, &**backend, &setup, self.tx_queues)?;
        self.counted.get_mut().sender(&setup.counters);
        self.make_tx(&setup, &plan).map_err(|error| PortError::device("set up a tx queue", error))
    }

    fn start(&mut self) -> Result<(), PortError> {
        self.run_due()?;
        // Rules of applications first: from the first packet on, they have their say.
        self.make_rules()?;
        let started = self.spread_packets();
        match &started {
            Ok(()) => self.started = true,
            Err(_) => self.unmake_rules(),
        }
        started
    }

    fn rx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.run_rx(queue, true)
    }

    fn rx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.run_rx(queue, false)
    }

    fn tx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.run_tx(queue, true)
    }

    fn tx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.run_tx(queue, false)
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.unspread();
        self.unmake_rules();
        self.started = false;
        Ok(())
    }

    fn close(&mut self) -> Result<(), PortError> {
        self.rules.clear();
        self.withdraw();
        self.unspread();
        self.destroy_queues();
        self.watch = None;
        self.watched = None;
        self.clock = None;
        self._pools = None;
        self.registry = None;
        self.backend = None;
        self.uars = None;
        self.device = None;
        Ok(())
    }

    fn reset(&mut self) -> Result<(), PortError> {
        self.rules.clear();
        self.unspread();
        self.destroy_queues();
        self.withdraw();
        let mac = self.mac_address()?;
        self.wanted = Wanted::new(mac, &self.arguments);
        Ok(())
    }

    fn register_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        let (_, _, registry) = self.parts()?;
        registry.add_external(memory).map_err(|error| PortError::device("register memory", error))
    }

    fn unregister_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        let (_, _, registry) = self.parts()?;
        registry.remove_external(memory);
        Ok(())
    }

    fn connect(&mut self, events: &EventSink) {
        if let Some(watched) = &self.watched {
            watched.connect(events);
        }
    }

    fn update_counters(&self) {
        if self.watch.is_none() {
            self.look();
        }
        self.counted.borrow_mut().update(self.backend.as_deref(), &*self.netdev);
    }

    fn dump_queue(&mut self, direction: Direction, queue: QueueId) -> Result<String, PortError> {
        let (slots, at) = (self.slots(), usize::from(queue.0));
        let told = match direction {
            Direction::Rx => slots.rx.get(at).and_then(Option::as_ref).map(|slot| dump::rx(&slot.control)),
            Direction::Tx => slots.tx.get(at).and_then(Option::as_ref).map(|slot| dump::tx(&slot.control)),
        };
        told.ok_or_else(|| PortError::QueueNotSetUp { port: String::new(), direction, queue })
    }

    fn xstats(&self) -> Vec<(Cow<'static, str>, u64)> {
        self.counted.borrow().list(&*self.netdev, &self.slots())
    }

    fn link(&mut self, _started: bool) -> Link {
        if self.watch.is_none() {
            self.look();
        }
        self.told_link()
    }

    fn set_link_up(&mut self, up: bool) -> Result<(), PortError> {
        self.netdev.set_up(up).map_err(self.netdev_error("change the link state"))
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        self.netdev.mtu().map_err(self.netdev_error("read the MTU"))
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        if let Some(most) = self.queues_mtu.filter(|most| mtu > *most) {
            return Err(PortError::Limit {
                port: String::new(),
                what: "MTU for the rx queues as they are set up (configure the port with a larger one)",
                value: mtu.into(),
                min: self.info.min_mtu.into(),
                max: most.into(),
            });
        }
        self.netdev.set_mtu(mtu).map_err(self.netdev_error("change the MTU"))
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        self.wants_promiscuous(on)
    }

    fn set_neighbours_by_kernel(&mut self, on: bool) -> Result<(), PortError> {
        self.want(|wanted| wanted.neighbours_by_kernel = on)
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        self.wants_all_multicast(on)
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        self.netdev.mac().map_err(self.netdev_error("read the address"))
    }

    fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.netdev.set_mac(mac).map_err(self.netdev_error("change the address"))?;
        self.want(|wanted| wanted.mac = mac)
    }

    fn add_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.add_further(mac)
    }

    fn remove_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.remove_further(mac)
    }

    fn set_multicast_list(&mut self, groups: &[MacAddress]) -> Result<(), PortError> {
        self.set_groups(groups)
    }

    fn clock(&mut self) -> Result<&mut dyn ClockDriver, PortError> {
        if self.clock.is_none() {
            let clock = AdapterClock::open(self.device()?)
                .map_err(|error| PortError::device("read the clock", error))?;
            self.clock = clock;
        }
        if self.clock.is_none() {
            return Err(PortError::unsupported("device clock", "the kernel does not tell where it is"));
        }
        Ok(self)
    }

    fn rss(&mut self) -> Result<&mut dyn RssDriver, PortError> {
        Ok(self)
    }

    fn flow(&mut self) -> Result<&mut dyn FlowDriver, PortError> {
        Ok(self)
    }

    fn vlan(&mut self) -> Result<&mut dyn VlanDriver, PortError> {
        Ok(self)
    }
}

impl ClockDriver for Mlx5Port {
    fn read_clock(&mut self) -> Result<DeviceClock, PortError> {
        let closed = || PortError::device("read the device's clock", Closed);
        let Reading { ticks, hz } = self
            .clock
            .as_ref()
            .ok_or_else(closed)?
            .read()
            .map_err(|error| PortError::device("read the clock", error))?;
        Ok(DeviceClock { ticks, hz })
    }
}

impl Drop for Mlx5Port {
    fn drop(&mut self) {
        // Rules before tables before queues; the rest goes in the order of the fields.
        self.rules.clear();
        self.withdraw();
        self.unspread();
        self.destroy_queues();
    }
}

impl fmt::Debug for Mlx5Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mlx5Port")
            .field("device", &self.device)
            .field("netdev", &self.netdev)
            .field("rx_queues", &self.rx_queues)
            .field("tx_queues", &self.tx_queues)
            .finish_non_exhaustive()
    }
}
