//! The ports of a session: what is wanted of each, their queues, and bringing one up.

use std::collections::BTreeMap;
use std::time::Instant;

use pollux_bringup::{Bringup, BringupError, Needs, PoolOptions, ReceiveRequest, needed_for};
use pollux_config::QueueSpec;
use pollux_mempool::MbufPool;
use pollux_port::{
    Port, PortConfig, PortId, PortState, PortStats, QueueId, RssConfig, RxOffloads, RxQueue, RxQueueConfig,
    RxSegment, TxOffloads, TxQueue, TxQueueConfig,
};

use crate::engine::{CsumSettings, Marks};

/// What is wanted of a queue beyond what is wanted of all.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueWants {
    /// Descriptors; 0: as the port's others.
    pub descriptors: u16,
    /// Started by command alone.
    pub deferred: bool,
    /// Rx offloads of its own.
    pub rx: RxOffloads,
    /// Tx offloads of its own.
    pub tx: TxOffloads,
}

/// What is wanted of a port. It becomes so when the port is started the next time.
#[derive(Clone, Debug, Default)]
pub struct Wants {
    /// Rx queues.
    pub rxq: u16,
    /// Tx queues.
    pub txq: u16,
    /// Descriptors of an rx queue; 0: the driver's default.
    pub rxd: u16,
    /// Descriptors of a tx queue.
    pub txd: u16,
    /// Rx offloads.
    pub rx: RxOffloads,
    /// Tx offloads.
    pub tx: TxOffloads,
    /// MTU.
    pub mtu: Option<u32>,
    /// RSS.
    pub rss: Option<RssConfig>,
    /// Promiscuous mode.
    pub promiscuous: bool,
    /// Rx interrupts, where the port supports them.
    pub rx_interrupts: bool,
    /// Single rx queues.
    pub rx_queues: BTreeMap<u16, QueueWants>,
    /// Single tx queues.
    pub tx_queues: BTreeMap<u16, QueueWants>,
}

/// One port.
#[derive(Debug)]
pub struct PortSlot {
    /// Its number.
    pub id: PortId,
    /// What is wanted of it.
    pub wants: Wants,
    /// It differs from what is wanted.
    pub stale: bool,
    /// What packets of all ports could ask of it when it was configured ([`PortConfig::open`]).
    pub open: TxOffloads,
    /// Its rx queues, as far as no stream has them.
    pub rx: Vec<Option<RxQueue>>,
    /// Its tx queues, likewise.
    pub tx: Vec<Option<TxQueue>>,
    /// What `csum` has it do.
    pub csum: CsumSettings,
    /// `csum` joins what it receives (`set port P gro on`).
    pub gro: bool,
    /// `csum` cuts what it sends (`set port P gso on`).
    pub gso: bool,
    /// Tags that it inserts.
    pub marks: Marks,
    /// Its counts when forwarding started.
    pub begun: PortStats,
    /// Its counts when they were shown the last time.
    pub shown: Option<(Instant, PortStats)>,
}

impl PortSlot {
    /// A port that is still to be brought up.
    #[must_use]
    pub fn new(id: PortId, wants: Wants) -> Self {
        Self {
            id,
            wants,
            stale: true,
            open: TxOffloads::empty(),
            rx: Vec::new(),
            tx: Vec::new(),
            csum: CsumSettings::default(),
            gro: false,
            gso: false,
            marks: Marks::default(),
            begun: PortStats::default(),
            shown: None,
        }
    }
}

/// All ports, and what they are fed from.
#[derive(Debug)]
pub struct Ports {
    /// In order of their numbers.
    pub slots: Vec<PortSlot>,
    /// What mbufs come from.
    pub pool: Option<MbufPool>,
    /// `--total-num-mbufs`.
    pub mbufs: Option<usize>,
    /// `--mbuf-size`, where it is one size.
    pub mbuf_bytes: u16,
    /// `--rxpkts` and what goes with it.
    pub receive: ReceiveRequest,
    /// Lcores that forward.
    pub lcores: usize,
}

impl Ports {
    /// The port of that number.
    ///
    /// # Errors
    /// DPDK's line.
    pub fn get(&self, id: u16) -> Result<&PortSlot, String> {
        self.slots.iter().find(|slot| slot.id.0 == id).ok_or_else(|| no_port(id))
    }

    /// The port of that number.
    ///
    /// # Errors
    /// DPDK's line.
    pub fn get_mut(&mut self, id: u16) -> Result<&mut PortSlot, String> {
        self.slots.iter_mut().find(|slot| slot.id.0 == id).ok_or_else(|| no_port(id))
    }

    /// What the pool needs for all that is wanted.
    fn needs(&self, bringup: &Bringup) -> Needs {
        let mut needs = Needs::for_lcores(self.lcores);
        for slot in &self.slots {
            let Some(port) = bringup.ports.get(slot.id).filter(|port| !is_closed(port)) else { continue };
            let wants = &slot.wants;
            let most = |own: &BTreeMap<u16, QueueWants>, usual: u16| {
                own.values().map(|queue| queue.descriptors).max().unwrap_or(0).max(usual)
            };
            needs.add_port(
                &port.info(),
                &QueueSpec {
                    rx_queues: wants.rxq,
                    tx_queues: wants.txq,
                    rx_descriptors: most(&wants.rx_queues, wants.rxd),
                    tx_descriptors: most(&wants.tx_queues, wants.txd),
                },
            );
        }
        needs
    }

    /// The pool, large enough for all that is wanted, or as large as it was asked to be.
    ///
    /// # Errors
    /// What the pool says.
    fn pool(&mut self, bringup: &Bringup) -> Result<MbufPool, BringupError> {
        let needs = self.needs(bringup);
        let count = self.mbufs.unwrap_or_else(|| needs.mbufs());
        if let Some(pool) = &self.pool
            && pool.capacity() >= count
        {
            return Ok(pool.clone());
        }
        let (options, _) = PoolOptions::new(&bringup.eal.spec().pools)?;
        let pool = needs.pool_of(bringup.eal.memory(), count, self.mbuf_bytes, options)?;
        self.pool = Some(pool.clone());
        Ok(pool)
    }

    /// Brings up the ports with these numbers: configures those of which something else is wanted than they have, and starts
    /// all. A line for each.
    ///
    /// # Errors
    /// The first port that refuses; a port that is started and would have to be configured anew.
    pub fn start(&mut self, bringup: &mut Bringup, ids: &[u16]) -> Result<String, String> {
        let pool = self.pool(bringup).map_err(|error| error.line())?;
        let (mut configs, mut open) = (BTreeMap::new(), TxOffloads::empty());
        if ids.iter().any(|id| self.get(*id).is_ok_and(|slot| slot.stale)) {
            (configs, open) = self.configs(bringup, &pool)?;
            self.widen(bringup, open)?;
        }
        let mut told = String::new();
        for &id in ids {
            let slot = self.get_mut(id)?;
            let port = bringup.ports.get_mut(slot.id).ok_or_else(|| no_port(id))?;
            if port.state() == PortState::Started {
                told += &format!("Port {id} is now not stopped\n");
                continue;
            }
            let configured = slot.stale && configs.contains_key(&slot.id);
            if let Some(mut config) = configs.remove(&slot.id).filter(|_| configured) {
                told += &format!("Configuring Port {id} (socket {})\n", port.info().socket.unwrap_or(0));
                config.open = open;
                slot.configure(port, config)?;
            }
            port.start().map_err(|error| error.to_string())?;
            if let Ok(mac) = port.mac_address() {
                told += &format!("Port {id}: {}\n", mac.to_uppercase());
            }
        }
        Ok(told)
    }
}

impl Ports {
    /// What all ports are to be told, and what packets of any may ask of who sends them.
    fn configs(
        &self,
        bringup: &mut Bringup,
        pool: &MbufPool,
    ) -> Result<(BTreeMap<PortId, PortConfig>, TxOffloads), String> {
        let segments = self.segments(bringup, pool)?;
        let (mut configs, mut open) = (BTreeMap::new(), TxOffloads::empty());
        for slot in &self.slots {
            let Some(port) = bringup.ports.get_mut(slot.id).filter(|port| !is_closed(port)) else { continue };
            let mut config = config(&slot.wants, port, pool);
            self.receive.put(&segments, &mut config);
            if port.state() != PortState::Gone {
                open |= needed_for(port, &config).map_err(|error| error.to_string())?;
            }
            configs.insert(slot.id, config);
        }
        Ok((configs, open))
    }

    /// Has ports configured anew of which packets may ask more than when they were configured, when they start the next time.
    ///
    /// # Errors
    /// A port is started from which such packets would leave unfinished. Chains alone are for it to send or refuse.
    fn widen(&mut self, bringup: &Bringup, open: TxOffloads) -> Result<(), String> {
        for slot in self.slots.iter_mut().filter(|slot| !slot.open.contains(open)) {
            let more = open - slot.open - TxOffloads::MULTI_SEGS;
            let started = bringup.ports.get(slot.id).is_some_and(|port| port.state() == PortState::Started);
            if started && !more.is_empty() {
                let more: Vec<&str> = more.iter_names().map(|(name, _)| name).collect();
                return Err(format!(
                    "Please stop port {} first: packets of other ports need {} of it",
                    slot.id,
                    more.join(", ")
                ));
            }
            slot.stale = true;
        }
        Ok(())
    }

    /// What buffer split receives into.
    fn segments(&self, bringup: &Bringup, pool: &MbufPool) -> Result<Vec<RxSegment>, String> {
        let (options, _) = PoolOptions::new(&bringup.eal.spec().pools).map_err(|error| error.to_string())?;
        self.receive.segments(bringup.eal.memory(), pool, options).map_err(|error| error.line())
    }
}

/// Closed for good.
pub(crate) fn is_closed(port: &Port) -> bool {
    port.state() == PortState::Closed
}

impl PortSlot {
    /// Lets go of the queues, configures the port and sets up new ones.
    fn configure(&mut self, port: &mut Port, config: PortConfig) -> Result<(), String> {
        (self.rx, self.tx) = (Vec::new(), Vec::new());
        let (rx, tx, open) = (config.rx_queues.len(), config.tx_queues.len(), config.open);
        port.configure(config).map_err(|error| error.to_string())?;
        let number = |at: usize| QueueId(u16::try_from(at).unwrap_or(u16::MAX));
        self.rx = (0..rx)
            .map(|at| port.rx_queue_setup(number(at)).map(Some))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        self.tx = (0..tx)
            .map(|at| port.tx_queue_setup(number(at)).map(Some))
            .collect::<Result<_, _>>()
            .map_err(|error| error.to_string())?;
        (self.stale, self.open) = (false, open);
        Ok(())
    }
}

/// What a port is told, without what packets of others ask of it.
fn config(wants: &Wants, port: &Port, pool: &MbufPool) -> PortConfig {
    let info = port.info();
    let own = |queues: &BTreeMap<u16, QueueWants>, at: u16| queues.get(&at).copied().unwrap_or_default();
    let or = |own: u16, usual: u16| if own == 0 { usual } else { own };
    let rx_queues = (0..wants.rxq).map(|at| {
        let queue = own(&wants.rx_queues, at);
        RxQueueConfig {
            descriptors: or(queue.descriptors, wants.rxd),
            offloads: queue.rx,
            deferred_start: queue.deferred,
            ..RxQueueConfig::new(pool.clone())
        }
    });
    let tx_queues = (0..wants.txq).map(|at| {
        let queue = own(&wants.tx_queues, at);
        TxQueueConfig {
            descriptors: or(queue.descriptors, wants.txd),
            offloads: queue.tx,
            deferred_start: queue.deferred,
        }
    });
    // Several queues are filled by RSS; DPDK's testpmd hashes addresses unless told otherwise.
    let rss = match (&wants.rss, info.rss) {
        (Some(rss), Some(info)) => Some(RssConfig { fields: rss.fields & info.fields, ..rss.clone() }),
        _ => None,
    };
    PortConfig {
        rx_queues: rx_queues.collect(),
        tx_queues: tx_queues.collect(),
        mtu: wants.mtu,
        promiscuous: Some(wants.promiscuous),
        rx_offloads: wants.rx,
        tx_offloads: wants.tx,
        rx_interrupts: wants.rx_interrupts && info.rx_interrupts,
        rss: rss.filter(|_| wants.rxq > 1),
        ..PortConfig::default()
    }
}

/// DPDK's line for a number that no port has.
#[must_use]
pub fn no_port(id: u16) -> String {
    format!("Invalid port {id}")
}
