//! Stopping a port while another lcore is inside a burst.

use pollux_mempool::{Burst, MbufPool};
use pollux_port::driver::{InBurst, Moved, PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::{
    Direction, Link, MacAddress, Port, PortConfig, PortError, PortId, PortInfo, PortState, Queues,
    STOP_PATIENCE,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A device that knows whether a burst is inside it, and whether one was when it was stopped.
#[derive(Clone, Default)]
struct Device {
    inside: Arc<AtomicU32>,
    bursts: Arc<AtomicU64>,
    /// A burst stays until this is cleared.
    hold: Arc<AtomicBool>,
    stopped_under_a_burst: Arc<AtomicBool>,
}

impl Device {
    fn burst(&self) {
        self.inside.fetch_add(1, Ordering::Relaxed);
        self.bursts.fetch_add(1, Ordering::Relaxed);
        while self.hold.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PortDriver for Device {
    fn info(&self) -> PortInfo {
        PortInfo { driver: "test_device", ..PortInfo::default() }
    }

    fn rx_queue_setup(&mut self, _setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        Ok(Box::new(self.clone()))
    }

    fn tx_queue_setup(&mut self, _setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        Ok(Box::new(self.clone()))
    }

    fn stop(&mut self) -> Result<(), PortError> {
        if self.inside.load(Ordering::Relaxed) != 0 {
            self.stopped_under_a_burst.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn link(&mut self, _started: bool) -> Link {
        Link::default()
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(1500)
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        Ok(MacAddress([2, 0, 0, 0, 0, 1]))
    }
}

impl RxBurst for Device {
    fn rx_burst(&mut self, _: &InBurst<'_>, _burst: &mut Burst, _max: usize) -> Moved {
        self.burst();
        Moved::NONE
    }

    fn mode(&self) -> &'static str {
        "test"
    }
}

impl TxBurst for Device {
    fn tx_burst(&mut self, _: &InBurst<'_>, _burst: &mut Burst) -> Moved {
        self.burst();
        Moved::NONE
    }

    fn recycle(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        self.burst();
        Ok(0)
    }

    fn mode(&self) -> &'static str {
        "test"
    }
}

fn up(device: &Device) -> (Port, Queues) {
    let pool = MbufPool::builder("stop", 64).build_anonymous().expect("memory");
    let mut port = Port::new(PortId(0), "test_device0", Box::new(device.clone()));
    let queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up");
    (port, queues)
}

/// What each kind of call into the driver does, for the tests below.
type Call = fn(&mut Queues, &mut Burst) -> usize;

const CALLS: [(&str, Call); 3] = [
    ("rx_burst", |queues, burst| queues.rx[0].rx_burst(burst, 1)),
    ("tx_burst", |queues, burst| queues.tx[0].tx_burst(burst)),
    ("recycle", |queues, burst| queues.tx[0].recycle(burst).unwrap_or_default()),
];

#[test]
fn stop_waits_for_a_burst_on_another_lcore() {
    for (name, call) in CALLS {
        let device = Device::default();
        let (mut port, mut queues) = up(&device);
        device.hold.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| call(&mut queues, &mut Burst::new()));
            while device.inside.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                device.hold.store(false, Ordering::Relaxed);
            });
            let start = Instant::now();
            port.stop().expect("the burst ends");
            assert!(start.elapsed() >= Duration::from_millis(40), "{name}: stop did not wait");
            assert_eq!(device.inside.load(Ordering::Relaxed), 0, "{name}");
        });
        assert!(
            !device.stopped_under_a_burst.load(Ordering::Relaxed),
            "{name}: the driver was stopped too early"
        );
    }
}

#[test]
fn a_burst_that_does_not_end_is_named_and_the_port_is_stopped_all_the_same() {
    let device = Device::default();
    let (mut port, mut queues) = up(&device);
    device.hold.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| queues.tx[0].tx_burst(&mut Burst::new()));
        while device.inside.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        let refused = port.stop();
        assert!(start.elapsed() >= STOP_PATIENCE && start.elapsed() < 10 * STOP_PATIENCE);
        assert!(
            matches!(refused, Err(PortError::BurstUnderWay { direction: Direction::Tx, .. })),
            "{refused:?}"
        );
        assert_eq!(port.state(), PortState::Stopped);
        device.hold.store(false, Ordering::Relaxed);
    });
    port.start().expect("starts again");
    port.stop().expect("nobody is inside");
}

/// A burst that panics, in a callback say, has ended.
#[test]
fn a_burst_that_panics_does_not_hold_the_stop() {
    let device = Device::default();
    let (mut port, mut queues) = up(&device);
    queues.tx[0].add_callback(Box::new(|_| std::panic::resume_unwind(Box::new("a callback's panic"))));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        queues.tx[0].tx_burst(&mut Burst::new());
    }));
    assert!(panicked.is_err());
    let start = Instant::now();
    port.stop().expect("nobody is inside");
    assert!(start.elapsed() < STOP_PATIENCE / 2);
}

/// Many stops against queues that never pause: the driver is never stopped under a burst.
#[test]
fn stress_the_driver_is_never_stopped_under_a_burst() {
    let device = Device::default();
    let (mut port, mut queues) = up(&device);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let Queues { rx, tx } = &mut queues;
        scope.spawn(|| {
            let mut burst = Burst::new();
            while !end.load(Ordering::Relaxed) {
                rx[0].rx_burst(&mut burst, 1);
                tx[0].tx_burst(&mut burst);
            }
        });
        for round in 0..2000 {
            let before = device.bursts.load(Ordering::Relaxed);
            // Some rounds stop at once, others when the lcore is in full swing.
            let patience = Instant::now() + Duration::from_millis(20);
            while round % 2 == 0
                && device.bursts.load(Ordering::Relaxed) == before
                && Instant::now() < patience
            {
                std::thread::yield_now();
            }
            port.stop().expect("bursts are short");
            let stopped_at = device.bursts.load(Ordering::Relaxed);
            assert!(!device.stopped_under_a_burst.load(Ordering::Relaxed), "round {round}");
            assert_eq!(device.inside.load(Ordering::Relaxed), 0, "round {round}");
            assert_eq!(
                device.bursts.load(Ordering::Relaxed),
                stopped_at,
                "round {round}: a burst after the stop"
            );
            port.start().expect("starts");
        }
        end.store(true, Ordering::Relaxed);
    });
    assert!(device.bursts.load(Ordering::Relaxed) > 0, "the lcore ran");
}
