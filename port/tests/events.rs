//! What happens to a port by itself: the device goes, the link changes.

use pollux_mempool::{Burst, MbufPool};
use pollux_port::driver::{InBurst, Moved, PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::{
    Gate, Link, MacAddress, Port, PortConfig, PortError, PortEvent, PortId, PortInfo, PortState, Ports,
    Queues,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A device that gives one mbuf a burst, and that the test takes away.
#[derive(Clone, Default)]
struct Device {
    unplugged: Arc<AtomicBool>,
    link_up: Arc<AtomicBool>,
    resumed: Arc<AtomicUsize>,
}

struct Half {
    device: Device,
    pool: Option<MbufPool>,
    gate: Gate,
}

impl PortDriver for Device {
    fn info(&self) -> PortInfo {
        PortInfo { driver: "test_device", ..PortInfo::default() }
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        Ok(Box::new(Half { device: self.clone(), pool: Some(setup.pool), gate: setup.gate }))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        Ok(Box::new(Half { device: self.clone(), pool: None, gate: setup.gate }))
    }

    fn link(&mut self, _started: bool) -> Link {
        Link::fixed(self.link_up.load(Ordering::Relaxed), 1000)
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(1500)
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        Ok(MacAddress([2, 0, 0, 0, 0, 1]))
    }
}

impl RxBurst for Half {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, _max: usize) -> Moved {
        if self.device.unplugged.load(Ordering::Relaxed) {
            self.gate.set_gone();
            return Moved::NONE;
        }
        let pool = self.pool.as_ref().expect("the rx half has a pool");
        let got = pool.alloc_received(burst, 1, 60, 0);
        Moved { packets: got, bytes: got as u64 * 60 }
    }

    fn resume(&mut self) {
        self.device.resumed.fetch_add(1, Ordering::Relaxed);
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

fn up(device: &Device) -> (Port, Queues) {
    let pool = MbufPool::builder("events", 64).build_anonymous().expect("memory");
    let mut port = Port::new(PortId(0), "test_device0", Box::new(device.clone()));
    let queues = port.bring_up(PortConfig::queues(1, 1, &pool)).expect("comes up");
    (port, queues)
}

#[test]
fn a_device_that_disappears_is_told_once_and_ends_the_traffic() {
    let device = Device::default();
    let (mut port, Queues { mut rx, mut tx }) = up(&device);
    let mut burst = Burst::new();
    assert_eq!(rx[0].rx_burst(&mut burst, 32), 1);
    assert_eq!(port.poll_event(), None);

    device.unplugged.store(true, Ordering::Relaxed);
    let before = rx[0].rx_burst(&mut burst, 32);
    assert_eq!((before, port.state()), (0, PortState::Gone));
    assert_eq!(port.poll_event(), Some(PortEvent::Removed));
    assert_eq!(port.poll_event(), None, "told once");
    assert!(rx[0].is_gone() && tx[0].is_gone());

    // The device coming back changes nothing: this port is over.
    device.unplugged.store(false, Ordering::Relaxed);
    assert_eq!(rx[0].rx_burst(&mut burst, 32), 0);
    assert_eq!(tx[0].tx_burst(&mut burst), 0);
    assert_eq!(burst.len(), 1, "the caller keeps what was not sent");
    assert!(matches!(port.set_mtu(1400), Err(PortError::State { state: PortState::Gone, .. })));
    port.stop().expect("a gone port stops");
    assert!(matches!(port.start(), Err(PortError::State { state: PortState::Gone, .. })));
    assert_eq!(port.stats().ipackets, 1, "what was counted stays");
    port.close().expect("a gone port closes");
    assert_eq!(port.state(), PortState::Closed);
}

#[test]
fn a_link_change_is_an_event() {
    let device = Device::default();
    let (mut port, _queues) = up(&device);
    assert_eq!(port.poll_event(), None);
    device.link_up.store(true, Ordering::Relaxed);
    assert_eq!(port.poll_event(), Some(PortEvent::Link(Link::fixed(true, 1000))));
    assert_eq!(port.poll_event(), None);
}

#[test]
fn each_start_wakes_a_queue_once() {
    let device = Device::default();
    let (mut port, Queues { mut rx, .. }) = up(&device);
    let mut burst = Burst::new();
    for starts in 1..=3 {
        (0..5).for_each(|_| assert_eq!(rx[0].rx_burst(&mut burst, 1), 1));
        assert_eq!(device.resumed.load(Ordering::Relaxed), starts);
        port.stop().expect("stops");
        assert_eq!(rx[0].rx_burst(&mut burst, 1), 0);
        port.start().expect("starts");
    }
}

#[test]
fn what_a_driver_lacks_is_refused_with_the_reason_and_the_ports_name() {
    let (mut port, _queues) = up(&Device::default());
    let text = port.set_promiscuous(true).expect_err("the driver lacks it").to_string();
    assert_eq!(
        text,
        "port test_device0: promiscuous mode is not supported: the device has no address filter"
    );
    let pool = MbufPool::builder("asked", 64).build_anonymous().expect("memory");
    port.stop().expect("stops");
    drop(_queues);
    port.configure(PortConfig { promiscuous: Some(true), ..PortConfig::queues(1, 1, &pool) })
        .expect("a wish for what is so anyway is no error");
}

#[test]
fn ports_are_found_by_name_and_number_and_numbers_are_not_reused() {
    let mut ports = Ports::new();
    let device = || Box::new(Device::default());
    let first = ports.add("a0", device()).expect("a new name");
    let second = ports.add("b0", device()).expect("a new name");
    assert_eq!((first, second), (PortId(0), PortId(1)));
    assert!(matches!(ports.add("a0", device()), Err(PortError::NameTaken { .. })));
    assert_eq!(ports.find("b0").ok(), Some(second));
    assert_eq!(ports.find("0").ok(), Some(first));
    let text = ports.find("c0").expect_err("no such port").to_string();
    assert_eq!(text, "no port c0; ports: a0, b0");
    drop(ports.remove(first));
    assert!(ports.get(first).is_none() && ports.by_name("a0").is_none());
    assert_eq!(ports.add("a0", device()).ok(), Some(PortId(2)));
    assert_eq!(ports.iter().map(|port| port.id().0).collect::<Vec<_>>(), [1, 2]);
    let text = ports.put_back(second, "d0", device()).expect_err("b0 has it").to_string();
    assert_eq!(text, "number 1 is that of port b0; remove that port first");
    assert!(matches!(ports.put_back(first, "b0", device()), Err(PortError::NameTaken { .. })));
    ports.put_back(first, "d0", device()).expect("both are free");
    assert_eq!(ports.iter().map(|port| port.id().0).collect::<Vec<_>>(), [0, 1, 2]);
}
