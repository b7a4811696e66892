//! Opening: from a channel and an interface to a port without queues.
#![expect(unsafe_code, reason = "opens a device")]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use pollux_eal::memory::Memory;
use pollux_eal::topology::SocketId;
use pollux_port::driver::DriverInfo;
use pollux_port::{PortError, PortInfo};
use pollux_uverbs::Channel;

use super::spread::DEFAULT_KEY;
use super::spread::{LEVELS, SpreadSpec};
use super::{Mlx5Port, plan, tunnels};
use crate::devargs::Arguments;
use crate::eth::backend::Backend;
use crate::eth::devx::Devx;
use crate::eth::filter::{Filter, Wanted};
use crate::eth::flow::Rules;
use crate::eth::recovery::{Watch, Watched};
use crate::eth::rss::{self, Hashing};
use crate::eth::verbs::{self, Verbs};
use crate::info;
use crate::netdev::Netdev;
use crate::patience::PortClock;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::{Device, Opening};
use pollux_mlx5_common::mr::Registry;
use pollux_mlx5_common::processor::gains_from_relaxed_ordering;
use pollux_mlx5_common::uar::Uars;

/// Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`, `mlx5e_build_nic_netdev`, `watchdog_timeo`: 15 s.
const TX_PATIENCE: Duration = Duration::from_secs(15);

/// What a port is opened with.
#[derive(Debug)]
pub struct Mlx5Spec {
    /// The device.
    pub channel: Arc<dyn Channel>,
    /// The interface behind it.
    pub netdev: Arc<dyn Netdev>,
    /// The device's arguments.
    pub arguments: Arguments,
    /// Where rings come from.
    pub memory: Memory,
    /// NUMA node of the device.
    pub socket: Option<SocketId>,
    /// Watch the device on a thread of its own. Without, control calls look: [`Mlx5Port::look`], link, statistics.
    pub watch: bool,
    /// How long nothing may come back of what a send queue was given, before it is kicked, and reset if that is in vain.
    pub tx_patience: Duration,
    /// The clock by which that is. The machine's but in tests.
    pub clock: PortClock,
    /// The limit on locked memory, in bytes, where another than the process's holds.
    pub memlock: Option<u64>,
    /// Pages between the process's addresses and those that the device is told. 0 but in tests.
    pub address_shift_pages: u64,
}

impl Mlx5Spec {
    /// A port over a channel, with default arguments.
    #[must_use]
    pub fn new(channel: Arc<dyn Channel>, netdev: Arc<dyn Netdev>, memory: Memory) -> Self {
        let arguments = Arguments::default();
        Self {
            channel,
            netdev,
            arguments,
            memory,
            socket: None,
            watch: true,
            tx_patience: TX_PATIENCE,
            clock: PortClock::machine(),
            memlock: None,
            address_shift_pages: 0,
        }
    }
}

impl Mlx5Port {
    /// Opens a port.
    ///
    /// # Errors
    /// What the kernel says, a device that is none of this driver's, an interface that does not tell its address.
    pub fn open(spec: Mlx5Spec) -> Result<Self, PortError> {
        DriverInfo::carry(&info::TEXT);
        let opening = Opening {
            devx: spec.arguments.devx,
            relaxed_ordering: spec.arguments.relaxed_ordering && gains_from_relaxed_ordering(),
            address_shift_pages: spec.address_shift_pages,
            memlock: spec.memlock,
            register_regions: spec.arguments.register_regions,
            memory: spec.memory,
            socket: spec.socket,
        };
        let open = |error: MlxError| PortError::device("open the device", error);
        // SAFETY: the port has it for itself: no part of it is handed out.
        let device = unsafe { Device::open(spec.channel, opening) }.map_err(open)?;
        let uars = Arc::new(Uars::new(&device));
        let backend = backend(&uars, spec.arguments.devx);
        let highest = verbs::priorities(&*backend).map_err(open)?;
        let registry = Registry::new(Arc::clone(&device));
        let pools = spec.arguments.register_pools.then(|| registry.follow_pools());
        let name = spec.netdev.name();
        let mac = spec
            .netdev
            .mac()
            .map_err(|error| PortError::device(format!("read the address of {name}"), error))?;
        let slots = Arc::default();
        let watched = Watched::new(&device, &slots, spec.tx_patience, spec.clock);
        let watch = if spec.watch {
            let begun = Watch::begin(Arc::clone(&watched));
            Some(begun.map_err(|error| PortError::device("watch the device", error))?)
        } else {
            None
        };
        let info = PortInfo { rss: Some(rss::INFO), ..plan::info(&device, &*backend, &*spec.netdev) };
        let wanted = Wanted::new(mac, &spec.arguments);
        let labels = tunnels::labels(&device);
        Ok(Self {
            rules: Rules::default(),
            filter: Filter::default(),
            spread: None,
            watch,
            watched: Some(watched),
            slots,
            _pools: pools,
            registry: Some(registry),
            backend: Some(backend),
            uars: Some(uars),
            device: Some(device),
            netdev: spec.netdev,
            arguments: spec.arguments,
            info,
            counted: RefCell::default(),
            clock: None,
            priority: highest + 1 - LEVELS,
            labels,
            wanted,
            spread_spec: SpreadSpec { table: vec![0], key: DEFAULT_KEY, kinds: Vec::new(), merge: None },
            hashing: Hashing::default(),
            told: Vec::new(),
            strips: Vec::new(),
            vlans: Vec::new(),
            started: false,
            queues_mtu: None,
            rx_queues: 0,
            tx_queues: 0,
        })
    }
}

/// The firmware's objects where they were asked for and may be had, else the kernel's.
fn backend(uars: &Arc<Uars>, devx: bool) -> Arc<dyn Backend> {
    let device = uars.device();
    if devx {
        let made = if device.devx {
            Devx::new(uars).map_err(|error| error.to_string())
        } else {
            Err("the device or its kernel gives no right to it".into())
        };
        match made {
            Ok(made) => return Arc::new(made),
            Err(why) => {
                tracing::info!(
                    target: "pmd.net.mlx5", "{}: no DevX ({why}): objects are the kernel's, as with dv_flow_en=0",
                    device.name()
                );
            }
        }
    }
    Arc::new(Verbs::new(Arc::clone(uars)))
}
