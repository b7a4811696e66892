//! `net_af_xdp`: a port on queues of a Linux interface, by AF_XDP sockets over the pool's own memory.
//!
//! An XDP program of six instructions hands the frames of the chosen queues to sockets; those of other queues, and all while the port is
//! stopped, go to the kernel. The program is attached by a link and ends with the process, however that ends. Names, keys and defaults
//! are those of DPDK's driver (guides/nics/af_xdp.rst):
//!
//! | key | field of [`XdpPortOptions`] |
//! |---|---|
//! | `iface` | `interface` |
//! | `start_queue`, `queue_count` | `first_queue`, `queues` |
//! | `busy_budget` | `busy_budget` |
//! | `force_copy` | `copy` |
//!
//! Received frames are in mbufs of the queue's pool without a copy of the port's, and mbufs of that pool are sent from where they lie.
//! That takes a pool of one piece of memory whose mbufs have at least 2048 bytes; with another one, and on tx queues without an rx queue of
//! their number, frames are copied from and to memory of the port's own, which a line says. Where the interface's driver cannot reach
//! the memory itself, the kernel copies each frame once, in place of building one of its own (generic and copy mode).
//!
//! The kernel tells nothing of a frame beside its bytes: a checksum that a sender on the same machine left open is not known to be, and
//! leaves as it came. `ethtool -K INTERFACE tx off` on the sender's side makes it close them.

mod chunk;
mod pair;
mod rx;
mod tx;

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_frame_io::FrameError;
use pollux_frame_io::interface::{Interface, InterfaceState};
use pollux_frame_io::mode::Modes;
use pollux_frame_io::xdp::{CHUNK_MAX, HEADROOM, XdpOptions, XdpProgram, XdpStatistics};
use pollux_mempool::MbufPool;
use pollux_port::driver::{PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::{
    DescriptorLimits, Gate, Link, MacAddress, PortConfig, PortError, PortInfo, RxCounters, RxDrop,
    RxOffloads, TxOffloads,
};

use crate::interface::{BESIDE_MTU, Longest, Mtu, link_of};
use crate::lend::Shelf;
use chunk::Chunks;
use pair::{RxEnd, Shared, TxEnd};
use rx::XdpQueueRx;
use tx::XdpQueueTx;

/// What a port of this kind is opened with.
#[derive(Clone, Debug)]
pub struct XdpPortOptions {
    /// The interface's name.
    pub interface: String,
    /// The interface's queue that is the port's first.
    pub first_queue: u16,
    /// Queue pairs, each a queue of the interface.
    pub queues: u16,
    /// Packets that a poll may make the interface's driver work on, in place of interrupts; 0: polls do not.
    pub busy_budget: u16,
    /// Copies even where the interface's driver could reach the memory itself.
    pub copy: bool,
}

impl XdpPortOptions {
    /// Queue 0, with DPDK's defaults.
    #[must_use]
    pub fn new(interface: &str) -> Self {
        Self { interface: interface.into(), first_queue: 0, queues: 1, busy_budget: 64, copy: false }
    }
}

/// Ring sizes: DPDK's default (`XSK_RING_CONS__DEFAULT_NUM_DESCS`), and what the kernel finds memory for.
const DESCRIPTORS: DescriptorLimits =
    DescriptorLimits { min: 32, max: 16_384, align: 1, power_of_two: true, default: 2048 };
/// The longest payload that comes and goes, in pieces of the shortest chunk.
const MTU_MAX: u32 = 9_216;

/// A socket, its ends, and where its losses are counted.
struct Pair {
    rx: Option<Shelf<RxEnd>>,
    tx: Shelf<TxEnd>,
    shared: Arc<Shared>,
    counters: Option<Arc<RxCounters>>,
    /// Losses that the kernel had told of.
    seen: Cell<u64>,
}

/// What the port was configured with, as far as sockets need it.
#[derive(Default)]
struct Configured {
    rx: Vec<(MbufPool, u16)>,
    tx: Vec<u16>,
    interrupts: bool,
}

/// An AF_XDP port's control half.
pub struct AfXdpPort {
    options: XdpPortOptions,
    interface: Interface,
    // Before the sockets: no frame is on its way to one that ends.
    program: Option<XdpProgram>,
    pairs: Vec<Option<Pair>>,
    modes: Modes,
    mtu: Mtu,
    configured: Configured,
    /// Set by the first queue; tells when the interface disappears.
    gate: Option<Gate>,
}

fn refused(operation: String, error: FrameError) -> PortError {
    PortError::device(operation, error)
}

impl AfXdpPort {
    /// A port on an interface of the calling thread's network namespace, which must be up.
    ///
    /// # Errors
    /// When there is no such interface, or it is down; when the process may not.
    pub fn new(options: XdpPortOptions) -> Result<Self, PortError> {
        Self::open(options.clone())
            .map_err(|error| refused(format!("open interface {}", options.interface), error))
    }

    fn open(options: XdpPortOptions) -> Result<Self, FrameError> {
        let interface = Interface::find(&options.interface)?;
        let name = options.interface.clone();
        let state = interface.state().map_err(|source| FrameError::System {
            operation: "reading the state",
            subject: name.clone(),
            source,
        })?;
        if !state.up {
            let problem = format!("is down: `ip link set {name} up` brings it up");
            return Err(FrameError::Interface { name, problem });
        }
        let modes = Modes::new(&interface)?;
        let queues = u32::from(options.first_queue) + u32::from(options.queues);
        let program = XdpProgram::load(&interface, queues)?;
        Ok(Self {
            pairs: (0..options.queues).map(|_| None).collect(),
            options,
            interface,
            program: Some(program),
            modes,
            mtu: Mtu::new(state.mtu),
            configured: Configured::default(),
            gate: None,
        })
    }

    fn failed(&self, operation: &str, error: io::Error) -> PortError {
        if let (Some(libc::ENODEV | libc::ENXIO), Some(gate)) = (error.raw_os_error(), &self.gate) {
            gate.set_gone();
        }
        PortError::device(format!("{operation} interface {}", self.interface.found_as()), error)
    }

    fn state(&self, operation: &str) -> Result<InterfaceState, PortError> {
        let state = self.interface.state().map_err(|error| self.failed(operation, error))?;
        self.mtu.set(state.mtu);
        Ok(state)
    }

    /// Puts the program on the interface, unless it is there.
    fn attach(&mut self) -> Result<(), PortError> {
        let name = self.interface.found_as();
        let Some(program) = &mut self.program else { return Ok(()) };
        let before = program.generic().is_some();
        program
            .attach(&self.interface)
            .map_err(|error| refused(format!("receive on interface {name}"), error))?;
        if let (false, Some(reason)) = (before, program.generic()) {
            tracing::warn!(
                target: "pmd.net.af_xdp", interface = %name, %reason,
                "its driver does not run the XDP program: the kernel does, behind it, which is slower"
            );
        }
        Ok(())
    }

    /// Opens the socket of a pair: over `pool`, or memory of the port's own where that cannot be or there is none.
    fn open_pair(&self, queue: u16, pool: Option<&MbufPool>, rx: u16, tx: u16) -> Result<Pair, PortError> {
        let name = self.interface.found_as();
        let given = pool.map(|pool| (pool, Chunks::of(pool)));
        let own;
        let (pool, chunks) = match given {
            Some((pool, Ok(chunks))) => (pool, chunks),
            other => {
                if let Some((pool, Err(reason))) = other {
                    tracing::warn!(
                        target: "pmd.net.af_xdp", interface = %name, queue, pool = pool.name(), reason,
                        "frames are copied: the pool's memory cannot be the socket's"
                    );
                }
                own = own_pool(queue, usize::from(rx) + usize::from(tx)).map_err(|error| {
                    PortError::device(format!("make memory for queue {queue} of interface {name}"), error)
                })?;
                let chunks =
                    Chunks::of(&own).map_err(|reason| PortError::device("lay out memory", reason))?;
                (&own, chunks)
            }
        };
        let copy = self.options.copy || !chunks.suits_devices();
        let polls = self.options.busy_budget > 0 && !self.configured.interrupts;
        let options = XdpOptions {
            queue: u32::from(self.options.first_queue) + u32::from(queue),
            chunk_bytes: chunks.bytes,
            rx_slots: (rx > 0).then_some(rx.into()),
            tx_slots: tx.into(),
            copy,
            busy_budget: polls.then_some(self.options.busy_budget),
        };
        let (shared, rx, tx) = pair::open(&self.interface, pool, chunks, &options)
            .map_err(|error| refused(format!("open queue {queue} of interface {name}"), error))?;
        if let Err(reason) = shared.socket().busy_polls() {
            tracing::warn!(
                target: "pmd.net.af_xdp", interface = %name, queue, %reason,
                "no busy polling: the interface's interrupts bring frames (busy_budget=0 asks for none)"
            );
        }
        self.check_lengths(&shared)?;
        Ok(Pair { rx: rx.map(Shelf::new), tx: Shelf::new(tx), shared, counters: None, seen: Cell::new(0) })
    }

    /// Refuses an MTU whose frames would be dropped.
    fn check_lengths(&self, shared: &Shared) -> Result<(), PortError> {
        let mtu = self.mtu.get();
        let most = shared.chunks.bytes - HEADROOM as u32 - BESIDE_MTU;
        if mtu <= most || shared.socket().takes_pieces() {
            return Ok(());
        }
        let name = self.interface.found_as();
        Err(PortError::device(
            "set up the queue",
            format!(
                "interface {name} has an MTU of {mtu} and an mbuf takes frames of one of {most}: `ip link set {name} mtu {most}`, larger \
                 mbufs (up to {CHUNK_MAX} bytes), or Linux 6.6, which splits frames"
            ),
        ))
    }

    /// The socket of a queue pair, opened if it is not there. One whose pool or size is another is closed first.
    fn pair(
        &mut self,
        queue: u16,
        pool: Option<&MbufPool>,
        rx: u16,
        tx: u16,
    ) -> Result<&mut Pair, PortError> {
        let missing = || PortError::device("set up the queue", "the port is closed");
        let at = usize::from(queue);
        let found = self.pairs.get(at).ok_or_else(missing)?;
        let serves = found.as_ref().is_some_and(|pair| pair.serves(rx, pool));
        if !serves {
            if let Some(old) = self.pairs[at].take() {
                let watch = Arc::downgrade(&old.shared);
                drop(old);
                if watch.strong_count() > 0 {
                    let what = format!(
                        "the other queue {queue} still has the socket over the earlier pool: drop its value first"
                    );
                    return Err(PortError::device("set up the queue", what));
                }
            }
            let pair = self.open_pair(queue, pool, rx, tx)?;
            self.pairs[at] = Some(pair);
        }
        self.pairs[at].as_mut().ok_or_else(missing)
    }
}

impl Pair {
    /// Whether it has the rx ring that is wanted, over that pool.
    fn serves(&self, rx: u16, pool: Option<&MbufPool>) -> bool {
        let Some(pool) = pool else { return true };
        let over = self.shared.pool.id() == pool.id() || Chunks::of(pool).is_err();
        let size = self.rx.as_ref().and_then(Shelf::lend).map(|end| end.ring.slots());
        over && size == Some(rx.into())
    }

    /// Frames that the kernel dropped for want of chunks or of room.
    fn missed(&self) -> u64 {
        let told = self.shared.socket().statistics();
        told.rx_dropped + told.rx_ring_full
    }
}

/// Memory of the port's own, for `mbufs` entries in both rings.
fn own_pool(queue: u16, mbufs: usize) -> Result<MbufPool, pollux_mempool::PoolError> {
    MbufPool::builder(&format!("af_xdp {queue}"), mbufs).data_room(CHUNK_MAX).headroom(0).build_anonymous()
}

impl PortDriver for AfXdpPort {
    fn info(&self) -> PortInfo {
        PortInfo {
            driver: "net_af_xdp",
            device: Some(self.options.interface.clone()),
            max_rx_queues: self.options.queues,
            max_tx_queues: self.options.queues,
            rx_descriptors: DESCRIPTORS,
            tx_descriptors: DESCRIPTORS,
            max_mtu: MTU_MAX,
            rx_holds_mbufs: true,
            interface_index: Some(self.interface.index()),
            // Frames in pieces, and copies into smaller mbufs than the kernel takes.
            rx_offloads: RxOffloads::SCATTER,
            rx_queue_offloads: RxOffloads::SCATTER,
            tx_offloads: TxOffloads::MULTI_SEGS,
            tx_queue_offloads: TxOffloads::MULTI_SEGS,
            rx_interrupts: true,
            ..PortInfo::default()
        }
    }

    fn configure(&mut self, config: &PortConfig) -> Result<(), PortError> {
        if !config.rx_queues.is_empty() {
            self.attach()?;
        }
        self.pairs.iter_mut().for_each(|pair| *pair = None);
        let rx = config.rx_queues.iter();
        self.configured = Configured {
            rx: rx.map(|queue| (queue.pool.clone(), DESCRIPTORS.adjust(queue.descriptors))).collect(),
            tx: config.tx_queues.iter().map(|queue| DESCRIPTORS.adjust(queue.descriptors)).collect(),
            interrupts: config.rx_interrupts,
        };
        Ok(())
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        self.gate.get_or_insert_with(|| setup.gate.clone());
        self.state("look at")?;
        let queue = setup.queue.0;
        let tx = self.configured.tx.get(usize::from(queue)).copied().unwrap_or(DESCRIPTORS.min);
        let name = self.interface.found_as().to_owned();
        let pair = self.pair(queue, Some(&setup.pool), setup.descriptors, tx)?;
        let end = pair.rx.as_ref().and_then(Shelf::lend).ok_or_else(in_use)?;
        pair.seen.set(pair.missed());
        pair.counters = Some(setup.counters.clone());
        Ok(Box::new(XdpQueueRx::new(end, setup, &name)))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        self.gate.get_or_insert_with(|| setup.gate.clone());
        self.state("look at")?;
        let interface = self.interface.try_clone();
        let interface = interface.map_err(|error| self.failed("open a control socket for", error))?;
        let longest = Longest::new(self.mtu.clone(), interface);
        let queue = setup.queue.0;
        let there = self.pairs.get(usize::from(queue)).is_some_and(Option::is_some);
        let receiving = self.configured.rx.get(usize::from(queue)).cloned().filter(|_| !there);
        let (pool, rx) = receiving.map_or((None, 0), |(pool, rx)| (Some(pool), rx));
        let pair = self.pair(queue, pool.as_ref(), rx, setup.descriptors)?;
        let end = pair.tx.lend().ok_or_else(in_use)?;
        Ok(Box::new(XdpQueueTx::new(end, setup, longest)))
    }

    fn start(&mut self) -> Result<(), PortError> {
        let Some(program) = &self.program else { return Ok(()) };
        for pair in self.pairs.iter().flatten().filter(|pair| pair.rx.is_some()) {
            let admitted = program.admit(pair.shared.socket());
            admitted.map_err(|error| self.failed("hand frames over from", error))?;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<(), PortError> {
        let Some(program) = &self.program else { return Ok(()) };
        for pair in self.pairs.iter().flatten() {
            let queue = pair.shared.socket().queue();
            program.refuse(queue).map_err(|error| self.failed("leave to the kernel", error))?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), PortError> {
        self.program = None;
        self.pairs.clear();
        self.configured = Configured::default();
        Ok(())
    }

    fn update_counters(&self) {
        for pair in self.pairs.iter().flatten() {
            if let Some(counters) = &pair.counters {
                let missed = pair.missed();
                if missed > pair.seen.get() {
                    counters.drop_for(RxDrop::Missed, missed - pair.seen.replace(missed));
                }
            }
        }
    }

    fn xstats(&self) -> Vec<(Cow<'static, str>, u64)> {
        let pairs = || self.pairs.iter().flatten();
        // One question to the kernel for each pair.
        let told: Vec<XdpStatistics> = pairs().map(|pair| pair.shared.socket().statistics()).collect();
        let sum = |of: fn(&XdpStatistics) -> u64| told.iter().map(of).sum();
        vec![
            ("rx_kernel_dropped".into(), sum(|told| told.rx_dropped)),
            ("rx_ring_full".into(), sum(|told| told.rx_ring_full)),
            ("rx_fill_ring_empty".into(), sum(|told| told.fill_empty)),
            ("rx_invalid_descriptors".into(), sum(|told| told.rx_invalid)),
            ("tx_invalid_descriptors".into(), sum(|told| told.tx_invalid)),
            ("tx_ring_empty".into(), sum(|told| told.tx_empty)),
            (
                "unknown_addresses".into(),
                pairs().map(|pair| pair.shared.strange.load(Ordering::Relaxed)).sum(),
            ),
        ]
    }

    fn link(&mut self, _started: bool) -> Link {
        link_of(&self.interface, self.state("look at").is_ok_and(|state| state.running))
    }

    fn set_link_up(&mut self, up: bool) -> Result<(), PortError> {
        self.interface.set_up(up).map_err(|error| self.failed("switch", error))
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        Ok(self.state("read the MTU of")?.mtu)
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.interface.set_mtu(mtu).map_err(|error| self.failed("set the MTU of", error))?;
        self.mtu.set(mtu);
        Ok(())
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        let done = self.modes.set_promiscuous(on);
        done.map_err(|error| self.failed("set promiscuous mode of", error))
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        let done = self.modes.set_allmulti(on);
        done.map_err(|error| self.failed("set all-multicast mode of", error))
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        Ok(MacAddress(self.state("read the address of")?.mac))
    }

    fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.interface.set_mac(mac.0).map_err(|error| self.failed("set the address of", error))
    }
}

fn in_use() -> PortError {
    PortError::device("set up the queue", "its socket is in use")
}
