//! Two model devices on one cable, each with its kernel's half, stepped at each doorbell store and by hand.

use std::sync::Arc;

use pollux_bringup::ModelNetdev;
use pollux_eal::memory::Memory;
use pollux_mempool::{Burst, MbufPool};
use pollux_mlx5_kernel::{DoorProfile, Kernel};
use pollux_mlx5_model::wire::{Altered, Cable, Wire};
use pollux_mlx5_model::{Device, DeviceConfig, Visibility, Watched, watch};
use pollux_pmd_mlx::{Arguments, Mlx5Port, Mlx5Spec, Netdev};
use pollux_port::{Port, PortId, Queues};
use pollux_uverbs::Channel;

/// How the driver's addresses differ from the process's, in pages.
pub(crate) const SHIFT_PAGES: u64 = 0x1_2345;

/// A model device with its kernel's half.
pub(crate) struct Station {
    /// Ends before the registers are unmapped: the next device may have their addresses.
    _watched: Watched,
    pub(crate) device: Arc<Device>,
    pub(crate) kernel: Arc<Kernel>,
}

impl Station {
    pub(crate) fn new(config: DeviceConfig, wire: impl Wire + 'static, profile: DoorProfile) -> Self {
        let device = Device::new(config, Box::new(wire)).expect("registers");
        let memory = Arc::new(device.memory().clone());
        let kernel = Kernel::new(device.clone(), memory, profile).expect("a kernel");
        let watched = watch(&device, |device| {
            device.step(64);
        });
        Self { device, kernel, _watched: watched }
    }

    pub(crate) fn netdev(&self) -> Arc<dyn Netdev> {
        Arc::new(ModelNetdev::of_virtual_function(&self.device, &self.kernel))
    }

    pub(crate) fn spec(&self, arguments: Arguments) -> Mlx5Spec {
        let channel: Arc<dyn Channel> = self.kernel.open();
        Mlx5Spec {
            arguments,
            watch: false,
            address_shift_pages: SHIFT_PAGES,
            ..Mlx5Spec::new(channel, self.netdev(), Memory::ordinary())
        }
    }

    pub(crate) fn open(&self, arguments: Arguments) -> Port {
        let driver = Mlx5Port::open(self.spec(arguments)).expect("a port");
        Port::new(PortId(0), self.device.name(), Box::new(driver))
    }

    /// No rule of doorbells was broken.
    #[track_caller]
    pub(crate) fn assert_orderly(&self) {
        let (first, count) = self.device.violations();
        assert_eq!(count, 0, "{first:?}");
    }
}

/// Whatever a test looks at: a driver that breaks a rule fails it.
impl Drop for Station {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.assert_orderly();
        }
    }
}

/// A name that no other test of this process uses.
pub(crate) fn config(name: &str, last: u8) -> DeviceConfig {
    DeviceConfig { name: name.into(), mac: [2, 0, 0, 0, 0, last], ..DeviceConfig::default() }
}

/// Two devices and the cable between them.
pub(crate) struct Pair {
    pub(crate) a: Station,
    pub(crate) b: Station,
}

impl Pair {
    pub(crate) fn new(profile: DoorProfile) -> Self {
        Self::with(profile, |config| config)
    }

    pub(crate) fn with(profile: DoorProfile, change: impl Fn(DeviceConfig) -> DeviceConfig) -> Self {
        let (left, right) = Cable::pair();
        let a = Station::new(change(config("mlx5_model0", 1)), left, profile);
        let b = Station::new(change(config("mlx5_model1", 2)), right, profile);
        Self { a, b }
    }

    /// Two devices on a cable that waits for nobody: what finds no buffer is lost.
    pub(crate) fn hasty() -> Self {
        let (left, right) = Cable::pair();
        let door = DoorProfile::default();
        let a = Station::new(config("mlx5_model0", 1), Altered::unpaused(Box::new(left)), door);
        let b = Station::new(config("mlx5_model1", 2), Altered::unpaused(Box::new(right)), door);
        Self { a, b }
    }

    /// What both write becomes visible so from now on.
    pub(crate) fn seen(self, visibility: Visibility) -> Self {
        for station in [&self.a, &self.b] {
            station.device.set_visibility(visibility);
        }
        self
    }

    /// Steps both until neither has anything to do.
    pub(crate) fn settle(&self) {
        for _ in 0..1000 {
            if !(self.a.device.step(64) | self.b.device.step(64)) {
                return;
            }
        }
        panic!("the devices do not come to rest");
    }
}

pub(crate) fn pool(name: &str, count: usize) -> MbufPool {
    MbufPool::builder(name, count).cache(0).build_anonymous().expect("a pool")
}

/// A frame from `source` to `destination` whose payload says `number`.
pub(crate) fn frame(destination: [u8; 6], source: [u8; 6], number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = [&destination[..], &source, &[0x88, 0xb5]].concat();
    frame.extend(number.to_be_bytes());
    frame.extend((frame.len()..bytes).map(|at| (at as u8) ^ (number as u8)));
    frame
}

/// Puts frames into mbufs.
pub(crate) fn burst(pool: &MbufPool, frames: &[Vec<u8>]) -> Burst {
    let mut burst = Burst::new();
    for frame in frames {
        let mut mbuf = pool.alloc().expect("an mbuf");
        mbuf.append(frame.len()).expect("room").copy_from_slice(frame);
        burst.push(mbuf);
    }
    burst
}

/// All that the first queue of `queues` has received.
pub(crate) fn received(queues: &mut Queues, queue: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut burst = Burst::new();
        if queues.rx[queue].rx_burst(&mut burst, 32) == 0 {
            return all;
        }
        all.extend(burst.iter().map(|mbuf| mbuf.segments().flatten().copied().collect::<Vec<_>>()));
    }
}

/// The first station's address.
pub(crate) const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The second's.
pub(crate) const B: [u8; 6] = [2, 0, 0, 0, 0, 2];
