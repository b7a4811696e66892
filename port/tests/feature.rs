//! What the control handle does with features that a driver has: what it keeps, what it asks the driver, what it undoes.

use pollux_mempool::{Burst, External, ExternalMemory, MbufPool};
use pollux_port::driver::{
    ClockDriver, FlowDriver, InBurst, Moved, PortDriver, RssDriver, RxBurst, RxSetup, TxBurst, TxSetup,
    VlanDriver,
};
use pollux_port::flow::{
    FlowAction, FlowActions, FlowCount, FlowFate, FlowInfo, FlowItems, FlowPart, FlowPlan, FlowRule,
};
use pollux_port::{
    DeviceClock, EventSink, HashAlgorithm, HashFields, Link, MacAddress, Port, PortConfig, PortError,
    PortEvent, PortId, PortInfo, QueueId, RssConfig, RssInfo, RxOffloads,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// What the driver was asked, and what it holds.
#[derive(Default)]
struct Seen {
    calls: Vec<String>,
    rules: BTreeMap<u64, FlowPlan>,
    events: Option<EventSink>,
    /// The next call fails.
    fails: bool,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Seen>>);

impl Log {
    fn with<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.0.lock().expect("nobody panics"))
    }

    fn call(&self, what: String) -> Result<(), PortError> {
        self.with(|seen| {
            if std::mem::take(&mut seen.fails) {
                return Err(PortError::device("do that", "the device said no"));
            }
            seen.calls.push(what);
            Ok(())
        })
    }

    fn calls(&self) -> Vec<String> {
        self.with(|seen| std::mem::take(&mut seen.calls))
    }
}

struct Able {
    log: Log,
    rss: RssConfig,
    table: Vec<QueueId>,
    next: u64,
}

fn able() -> (Port, Log) {
    let log = Log::default();
    let rss = RssConfig { key: Some(vec![0; 40]), ..RssConfig::default() };
    let driver = Able { log: log.clone(), rss, table: vec![QueueId(0); 4], next: 100 };
    (Port::new(PortId(3), "able0", Box::new(driver)), log)
}

impl PortDriver for Able {
    fn info(&self) -> PortInfo {
        PortInfo {
            driver: "able",
            max_rx_queues: 4,
            max_tx_queues: 4,
            rx_offloads: RxOffloads::VLAN_FILTER | RxOffloads::VLAN_STRIP,
            rx_queue_offloads: RxOffloads::VLAN_STRIP,
            rss: Some(RssInfo {
                fields: HashFields::IP,
                key_bytes: 40,
                table_entries: 4,
                algorithms: &[HashAlgorithm::Toeplitz],
            }),
            queue_control: true,
            ..PortInfo::default()
        }
    }
    fn configure(&mut self, _config: &PortConfig) -> Result<(), PortError> {
        self.log.call("configure".into())
    }
    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        self.log
            .call(format!("rx {} {:?} deferred={}", setup.queue, setup.offloads, setup.deferred_start))?;
        Ok(Box::new(Idle))
    }
    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        self.log.call(format!("tx {}", setup.queue))?;
        Ok(Box::new(Idle))
    }
    fn link(&mut self, _started: bool) -> Link {
        Link::fixed(true, 1000)
    }
    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(1500)
    }
    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        Ok(MacAddress([2, 0, 0, 0, 0, 1]))
    }
    fn register_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        self.log.call(format!("register {}", memory.bytes()))
    }

    fn unregister_memory(&mut self, memory: &ExternalMemory) -> Result<(), PortError> {
        self.log.call(format!("unregister {}", memory.bytes()))
    }

    fn connect(&mut self, events: &EventSink) {
        self.log.with(|seen| seen.events = Some(events.clone()));
    }
    fn rx_queue_start(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.log.call(format!("rx start {queue}"))
    }
    fn rx_queue_stop(&mut self, queue: QueueId) -> Result<(), PortError> {
        self.log.call(format!("rx stop {queue}"))
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
    fn clock(&mut self) -> Result<&mut dyn ClockDriver, PortError> {
        Ok(self)
    }
}

impl RssDriver for Able {
    fn rss(&self) -> RssConfig {
        self.rss.clone()
    }
    fn set_rss(&mut self, config: &RssConfig) -> Result<(), PortError> {
        self.log.call("set rss".into())?;
        self.rss = RssConfig { key: config.key.clone().or(self.rss.key.take()), ..config.clone() };
        Ok(())
    }
    fn table(&self) -> Vec<QueueId> {
        self.table.clone()
    }
    fn set_table(&mut self, table: &[QueueId]) -> Result<(), PortError> {
        self.log.call("set table".into())?;
        self.table = table.to_vec();
        Ok(())
    }
}

impl FlowDriver for Able {
    fn flow_info(&self) -> FlowInfo {
        let actions = FlowActions::QUEUE | FlowActions::DROP | FlowActions::COUNT | FlowActions::RSS;
        FlowInfo { groups: 1, priorities: 2, items: FlowItems::all(), actions, mark_max: 0 }
    }
    fn validate(&mut self, _plan: &FlowPlan) -> Result<(), PortError> {
        self.log.call("validate".into())
    }
    fn create(&mut self, plan: &FlowPlan) -> Result<u64, PortError> {
        self.log.call("create".into())?;
        self.next += 1;
        self.log.with(|seen| seen.rules.insert(self.next, plan.clone()));
        Ok(self.next)
    }
    fn destroy(&mut self, rule: u64) -> Result<(), PortError> {
        self.log.call(format!("destroy {rule}"))?;
        assert!(self.log.with(|seen| seen.rules.remove(&rule)).is_some(), "a rule that was made");
        Ok(())
    }
    fn query(&mut self, rule: u64, reset: bool) -> Result<FlowCount, PortError> {
        self.log.call(format!("query {rule} {reset}"))?;
        Ok(FlowCount { packets: rule, bytes: 0 })
    }
}

impl VlanDriver for Able {
    fn set_filter(&mut self, vlan: u16, on: bool) -> Result<(), PortError> {
        self.log.call(format!("vlan {vlan} {on}"))
    }
    fn set_offloads(&mut self, on: RxOffloads) -> Result<(), PortError> {
        self.log.call(format!("vlan {on:?}"))
    }
}

impl ClockDriver for Able {
    fn read_clock(&mut self) -> Result<DeviceClock, PortError> {
        Ok(DeviceClock { ticks: 5, hz: 1000 })
    }
}

struct Idle;

impl RxBurst for Idle {
    fn rx_burst(&mut self, _: &InBurst<'_>, _burst: &mut Burst, _max: usize) -> Moved {
        Moved::NONE
    }
    fn mode(&self) -> &'static str {
        "idle"
    }
}

impl TxBurst for Idle {
    fn tx_burst(&mut self, _: &InBurst<'_>, _burst: &mut Burst) -> Moved {
        Moved::NONE
    }
    fn mode(&self) -> &'static str {
        "idle"
    }
}

fn pool() -> MbufPool {
    MbufPool::builder("feature", 2048).build_anonymous().expect("small")
}

fn drop_all() -> FlowRule {
    FlowRule::new().action(FlowAction::Drop)
}

#[test]
fn rules_are_the_ports_and_go_with_its_configuration() {
    let (mut port, log) = able();
    let pool = pool();
    assert!(matches!(port.flow_create(&drop_all()), Err(PortError::State { .. })), "not configured");
    port.configure(PortConfig::queues(2, 1, &pool)).expect("configures");
    let counted = drop_all().action(FlowAction::Count);
    let first = port.flow_create(&drop_all()).expect("a rule");
    let second = port.flow_create(&counted).expect("a rule");
    assert_eq!(log.with(|seen| seen.rules[&101].fate.clone()), FlowFate::Drop);
    assert_eq!(port.flow_query(second, true).expect("counts").packets, 102);
    let said = port.flow_query(first, false).expect_err("does not count").to_string();
    assert_eq!(said, "port able0: flow rule, as a whole: the rule has no count action");
    log.calls();

    // A rule that the device does not let go of stays the port's.
    log.with(|seen| seen.fails = true);
    assert!(port.flow_destroy(first).is_err());
    assert_eq!(port.flow_rules().map(|(handle, _)| handle).collect::<Vec<_>>(), [first, second]);
    log.with(|seen| seen.fails = true);
    assert!(port.flow_flush().is_err(), "the first refusal is told");
    assert_eq!(port.flow_rules().count(), 1, "the others went");

    port.configure(PortConfig::queues(1, 1, &pool)).expect("configures anew");
    assert!(log.with(|seen| seen.rules.is_empty()), "no rule survives its queues");
    assert_eq!(port.flow_rules().count(), 0);
    assert!(matches!(port.flow_destroy(first), Err(PortError::Flow { part: FlowPart::Rule, .. })));
    let again = port.flow_create(&counted).expect("a rule");
    assert_ne!(again, second, "a handle names one rule for ever");
}

#[test]
fn a_handle_of_another_port_is_refused() {
    let pool = pool();
    let (mut here, _) = able();
    let driver = Able { log: Log::default(), rss: RssConfig::default(), table: Vec::new(), next: 0 };
    let mut there = Port::new(PortId(9), "able9", Box::new(driver));
    for port in [&mut here, &mut there] {
        port.configure(PortConfig::queues(1, 1, &pool)).expect("configures");
    }
    let theirs = there.flow_create(&drop_all()).expect("a rule");
    here.flow_create(&drop_all()).expect("a rule of the same number");
    let said = here.flow_destroy(theirs).expect_err("not ours").to_string();
    assert!(said.contains("port able0: flow rule, as a whole: the port has no rule 0"), "{said}");
    assert_eq!(here.flow_rules().count(), 1);
}

#[test]
fn queues_are_left_out_and_started_and_stopped() {
    let (mut port, log) = able();
    let mut config = PortConfig::queues(2, 1, &pool());
    config.rx_queues[1].deferred_start = true;
    config.rx_queues[1].offloads = RxOffloads::VLAN_STRIP;
    config.rx_offloads = RxOffloads::VLAN_FILTER;
    let queues = port.bring_up(config).expect("comes up");
    let calls = log.calls();
    assert!(calls.contains(&"rx 0 RxOffloads(VLAN_FILTER) deferred=false".to_owned()), "{calls:?}");
    assert!(
        calls.contains(&"rx 1 RxOffloads(VLAN_STRIP | VLAN_FILTER) deferred=true".to_owned()),
        "{calls:?}"
    );
    let running = |port: &Port| [0, 1].map(|queue| port.rx_queue_running(QueueId(queue)).expect("there"));
    assert_eq!(running(&port), [true, false]);
    port.rx_queue_start(QueueId(1)).expect("starts");
    port.rx_queue_start(QueueId(1)).expect("twice is once");
    port.rx_queue_stop(QueueId(0)).expect("stops");
    assert_eq!(running(&port), [false, true]);
    log.with(|seen| seen.fails = true);
    assert!(port.rx_queue_start(QueueId(0)).is_err());
    assert_eq!(running(&port), [false, true], "what failed changed nothing");
    assert_eq!(log.calls(), ["rx start 1", "rx stop 0"]);
    assert!(port.tx_queue_stop(QueueId(0)).expect_err("no such call").is_unsupported());
    port.stop().expect("stops");
    assert_eq!(running(&port), [false, false]);
    assert!(matches!(port.rx_queue_start(QueueId(0)), Err(PortError::State { .. })));
    port.start().expect("starts");
    assert_eq!(running(&port), [true, false], "as configured again");
    drop(queues);
}

#[test]
fn vlans_and_hash_keep_what_was_set_and_nothing_that_failed() {
    let (mut port, log) = able();
    let config = PortConfig { rx_offloads: RxOffloads::VLAN_FILTER, ..PortConfig::queues(2, 1, &pool()) };
    port.configure(config.clone()).expect("configures");
    port.set_vlan_filter(9, true).expect("adds");
    log.with(|seen| seen.fails = true);
    assert!(port.set_vlan_filter(4, true).is_err());
    log.with(|seen| seen.fails = true);
    assert!(port.set_vlan_filter(9, false).is_err());
    assert_eq!(port.vlan_filters(), [9]);
    port.set_vlan_offloads(RxOffloads::VLAN_STRIP).expect("changes");
    let said = port.set_vlan_filter(3, true).expect_err("the filter is off").to_string();
    assert!(said.contains("VLAN_FILTER is off"), "{said}");
    assert!(matches!(port.set_vlan_offloads(RxOffloads::QINQ_STRIP), Err(PortError::Offload { .. })));
    assert_eq!(port.vlan_offloads(), RxOffloads::VLAN_STRIP);

    port.update_rss_table(&[(3, QueueId(1))]).expect("changes");
    log.with(|seen| seen.fails = true);
    assert!(port.update_rss_table(&[(0, QueueId(1))]).is_err());
    assert_eq!(port.rss_table().expect("reads"), [0, 0, 0, 1].map(QueueId));
    port.set_rss(&RssConfig { key: Some(vec![7; 40]), ..RssConfig::new(HashFields::IPV4) }).expect("changes");
    port.set_rss(&RssConfig::new(HashFields::IPV6)).expect("changes");
    let now = port.rss().expect("reads");
    assert_eq!((now.fields, now.key), (HashFields::IPV6, Some(vec![7; 40])));

    let bad = PortConfig { rss: Some(RssConfig::new(HashFields::TCP)), ..config.clone() };
    assert!(matches!(port.configure(bad), Err(PortError::Argument { .. })));
    port.configure(config).expect("configures anew");
    assert!(port.vlan_filters().is_empty(), "the list begins anew");
    assert_eq!(port.read_clock().expect("reads").hz, 1000);
    assert!(port.time().expect_err("free-running").is_unsupported());
}

#[test]
fn what_the_driver_tells_comes_before_what_is_found_out() {
    let (mut port, log) = able();
    let told = Arc::new(Mutex::new(0));
    let count = Arc::clone(&told);
    port.add_event_callback(Box::new(move |port, _| {
        assert_eq!(port, PortId(3));
        *count.lock().expect("nobody panics") += 1;
    }));
    let sink = log.with(|seen| seen.events.clone()).expect("connected when the port was made");
    sink.post(PortEvent::Recovering);
    sink.post(PortEvent::Recovered);
    assert_eq!(port.poll_event(), Some(PortEvent::Recovering));
    assert_eq!(port.poll_event(), Some(PortEvent::Recovered));
    assert_eq!(port.poll_event(), None);
    assert_eq!(*told.lock().expect("nobody panics"), 2);
    sink.post(PortEvent::ResetWanted);
    port.close().expect("closes");
    assert_eq!(port.poll_event(), None, "a closed port tells nothing");
}

#[test]
fn memory_is_registered_once_and_unregistered_once() {
    let (mut port, log) = able();
    let buffers = [External::from(vec![0; 100]), External::from(vec![0; 200])];
    let [one, other] = buffers.each_ref().map(External::memory);
    log.with(|seen| seen.fails = true);
    port.register_memory(&one).expect_err("the device says no");
    port.register_memory(&one).expect("registered");
    let said = port.register_memory(&one).expect_err("twice").to_string();
    assert!(said.contains("able0") && said.contains("100 bytes at"), "{said}");
    port.unregister_memory(&other).expect_err("never registered");
    port.register_memory(&other).expect("registered");
    port.unregister_memory(&one).expect("unregistered");
    port.unregister_memory(&one).expect_err("twice");
    assert_eq!(log.calls(), ["register 100", "register 200", "unregister 100"]);
    port.close().expect("closed");
    port.register_memory(&one).expect_err("closed");
}
