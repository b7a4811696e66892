//! Reading a port from another thread while its control handle is at work.

use pollux_mempool::{Burst, MbufPool};
use pollux_port::driver::{InBurst, Moved, PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::{
    Direction, Link, MacAddress, PortConfig, PortError, PortId, PortInfo, PortState, Ports, QueueId,
};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A device without packets. Its start takes as long as `busy` says; `alive` lives as long as the device.
#[derive(Clone)]
struct Device {
    busy: Arc<AtomicBool>,
    starting: Arc<AtomicBool>,
    alive: Arc<()>,
}

impl PortDriver for Device {
    fn info(&self) -> PortInfo {
        PortInfo { driver: "test_device", max_tx_queues: 2, max_mac_addresses: 4, ..PortInfo::default() }
    }

    fn rx_queue_setup(&mut self, _setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        Ok(Box::new(Half))
    }

    fn tx_queue_setup(&mut self, _setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        Ok(Box::new(Half))
    }

    fn start(&mut self) -> Result<(), PortError> {
        self.starting.store(true, Ordering::Relaxed);
        while self.busy.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn xstats(&self) -> Vec<(Cow<'static, str>, u64)> {
        vec![("device_count".into(), 7)]
    }

    fn set_promiscuous(&mut self, _on: bool) -> Result<(), PortError> {
        Ok(())
    }

    fn add_mac_address(&mut self, _mac: MacAddress) -> Result<(), PortError> {
        Ok(())
    }

    fn link(&mut self, started: bool) -> Link {
        Link::fixed(started, 10_000)
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(1500)
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        Ok(MacAddress([2, 0, 0, 0, 0, 1]))
    }
}

/// A queue that moves what it is given nowhere.
struct Half;

impl RxBurst for Half {
    fn rx_burst(&mut self, _: &InBurst<'_>, _burst: &mut Burst, _max: usize) -> Moved {
        Moved { packets: 0, bytes: 0 }
    }

    fn mode(&self) -> &'static str {
        "test"
    }
}

impl TxBurst for Half {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let moved = Moved::of(burst);
        burst.clear();
        moved
    }

    fn mode(&self) -> &'static str {
        "test"
    }
}

fn device() -> Device {
    Device { busy: Arc::default(), starting: Arc::default(), alive: Arc::new(()) }
}

#[test]
fn a_view_shows_what_the_control_handle_set_and_queues_count() {
    let (device, mut ports) = (device(), Ports::new());
    let views = ports.views();
    let id = ports.add("test_device0", Box::new(device.clone())).expect("a name");
    let view = views.get(id).expect("a view");
    assert_eq!((view.id(), view.name(), view.state()), (id, "test_device0", Some(PortState::Unconfigured)));
    assert_eq!(view.queues(Direction::Rx), Some(Vec::new()));

    let pool = MbufPool::builder("view", 64).build_anonymous().expect("memory");
    let port = ports.get_mut(id).expect("a port");
    let mut queues = port.bring_up(PortConfig::queues(1, 2, &pool)).expect("up");
    port.set_promiscuous(true).expect("set");
    let further = MacAddress([2, 0, 0, 0, 0, 9]);
    port.add_mac_address(further).expect("added");
    assert_eq!((view.state(), view.filters()), (Some(PortState::Started), Some((true, false))));
    assert_eq!(view.mac_addresses(), Some(vec![MacAddress([2, 0, 0, 0, 0, 1]), further]));
    assert_eq!((view.mtu(), view.link().map(|link| link.up)), (Some(1500), Some(true)));
    let tx = view.queues(Direction::Tx).expect("queues");
    assert_eq!(
        tx.iter().map(|queue| (queue.queue.0, queue.running, queue.mode)).collect::<Vec<_>>(),
        [(0, true, Some("test")), (1, true, Some("test"))]
    );
    assert_eq!(view.config().map(|config| config.rx_queues.len()), Some(1));
    assert!(view.rss().is_none() && view.dump_queue(Direction::Rx, QueueId(0)).is_none());

    let mut burst = Burst::new();
    pool.alloc_up_to(&mut burst, 3);
    burst.iter_mut().for_each(|mbuf| drop(mbuf.append(60)));
    queues.tx[1].tx_burst(&mut burst);
    let stats = port.stats();
    assert_eq!((stats.opackets, stats.obytes), (3, 180));
    assert_eq!(view.stats(), Some(stats));
    assert_eq!(view.xstats(), Some(port.xstats()));
    port.reset_stats();
    assert_eq!(view.stats().map(|stats| stats.opackets), Some(0), "the reset is seen");
    port.stop().expect("stops");
    assert_eq!(view.state(), Some(PortState::Stopped));
    assert!(view.queues(Direction::Rx).expect("queues").iter().all(|queue| !queue.running));
}

#[test]
fn a_view_keeps_nothing_alive() {
    let (device, mut ports) = (device(), Ports::new());
    let alive = Arc::downgrade(&device.alive);
    let views = ports.views();
    let id = ports.add("test_device0", Box::new(device)).expect("a name");
    let view = views.get(id).expect("a view");
    let pool = MbufPool::builder("view", 64).build_anonymous().expect("memory");
    let queues = ports.get_mut(id).expect("a port").bring_up(PortConfig::queues(1, 1, &pool)).expect("up");
    drop(queues);
    drop(ports.remove(id));
    assert!(alive.upgrade().is_none(), "the driver went with its port");
    assert!(views.list().is_empty() && views.get(PortId(0)).is_none());
    assert!(
        view.state().is_none() && view.stats().is_none() && view.link().is_none() && view.info().is_none()
    );
    assert_eq!(view.name(), "test_device0");
}

#[test]
fn a_control_call_that_does_not_end_holds_no_reader_up() {
    let (device, mut ports) = (device(), Ports::new());
    device.busy.store(true, Ordering::Relaxed);
    let views = ports.views();
    let id = ports.add("test_device0", Box::new(device.clone())).expect("a name");
    let view = views.get(id).expect("a view");
    let pool = MbufPool::builder("view", 64).build_anonymous().expect("memory");
    std::thread::scope(|scope| {
        let port = ports.get_mut(id).expect("a port");
        let starting = scope.spawn(|| port.bring_up(PortConfig::queues(1, 1, &pool)).map(drop));
        while !device.starting.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        assert!(view.stats().is_none());
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        assert!(view.state().is_some(), "what needs no device is told at once");
        device.busy.store(false, Ordering::Relaxed);
        starting.join().expect("no panic").expect("up");
    });
    assert_eq!(view.stats().map(|stats| stats.opackets), Some(0));
}
