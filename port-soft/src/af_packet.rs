//! `net_af_packet`: a port on a Linux interface, by packet sockets with mapped rings.
//!
//! The interface keeps its default offloads. What they leave to be done travels with the frame (`offload`): large
//! frames and open checksums come in, and go out, as they are; tags that the kernel took out are put back. An interface that cuts
//! no large frames, or ceases to (`ethtool -K veth0 tso off`), gets them cut, if the port was told that there may be some
//! ([`PortConfig::open`]); else they are dropped and counted as refused. Names, keys and
//! defaults are those of DPDK's driver (guides/nics/af_packet.rst): `iface`, `qpairs`, `framecnt`, `framesz`, `blocksz`,
//! `qdisc_bypass`, `fanout_mode`.
//!
//! | key | field of [`PacketOptions`] |
//! |---|---|
//! | `iface` | `interface` |
//! | `qpairs` | `queues` |
//! | `framecnt`, `framesz`, `blocksz` | `frames`, `frame_bytes`, `block_bytes` |
//! | `qdisc_bypass` | `qdisc_bypass` |
//! | `fanout_mode` | `fanout` |

mod rx;
mod tx;

use std::borrow::Cow;
use std::cell::Cell;
use std::io;
use std::sync::Arc;

pub use pollux_frame_io::packet_socket::{Fanout, PacketOptions};
use pollux_frame_io::packet_socket::{PacketControl, PacketPort, PacketRx, PacketTx};
use pollux_frame_io::{FrameError, interface};
use pollux_port::driver::{PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::finish::CUT_BYTES_MAX;
use pollux_port::{
    DescriptorLimits, Fec, FecModes, Gate, Link, MacAddress, PortConfig, PortError, PortInfo, RxCounters,
    RxDrop, RxOffloads, SpeedFec, SpeedLanes,
};

use crate::interface::{Mtu, link_of};
use crate::lend::Shelf;
use crate::offload;

pub(crate) use rx::InterfaceRx;
pub(crate) use tx::InterfaceTx;

pub(crate) fn refused(operation: impl Into<String>, error: FrameError) -> PortError {
    PortError::device(operation, error)
}

/// One queue pair's ends, lent to queues.
struct Pair {
    rx: Shelf<PacketRx>,
    tx: Shelf<PacketTx>,
}

/// An interface and its sockets: what a port of this kind, or a pcap port on an interface, has behind it.
pub(crate) struct Wire {
    pub(crate) control: PacketControl,
    pairs: Vec<Pair>,
    pub(crate) mtu: Mtu,
    /// Set by the first queue; tells when the interface disappears.
    gate: Option<Gate>,
    /// Where each queue's losses are counted, and how many the kernel had told of.
    counters: Vec<Option<(Arc<RxCounters>, Cell<u64>)>>,
}

impl Wire {
    pub(crate) fn open(options: &PacketOptions) -> Result<Self, FrameError> {
        let PacketPort { control, queues } = PacketPort::open(options)?;
        let state = control.state().map_err(|source| FrameError::System {
            operation: "reading the state",
            subject: options.interface.clone(),
            source,
        })?;
        if !state.up {
            let interface = &options.interface;
            return Err(FrameError::Interface {
                name: interface.clone(),
                problem: format!("is down: `ip link set {interface} up` brings it up"),
            });
        }
        Ok(Self {
            control,
            counters: queues.iter().map(|_| None).collect(),
            pairs: queues
                .into_iter()
                .map(|(rx, tx)| Pair { rx: Shelf::new(rx), tx: Shelf::new(tx) })
                .collect(),
            mtu: Mtu::new(state.mtu),
            gate: None,
        })
    }

    pub(crate) fn rx(&mut self, pair: usize, setup: RxSetup) -> Result<InterfaceRx, PortError> {
        let rx = self.pairs.get(pair).and_then(|pair| pair.rx.lend()).ok_or_else(in_use)?;
        self.gate.get_or_insert_with(|| setup.gate.clone());
        let dropped = self.control.statistics(pair).dropped;
        self.counters[pair] = Some((setup.counters.clone(), Cell::new(dropped)));
        Ok(InterfaceRx::new(rx, setup, self.control.interface().found_as()))
    }

    pub(crate) fn tx(&mut self, pair: usize, setup: TxSetup) -> Result<InterfaceTx, PortError> {
        let tx = self.pairs.get(pair).and_then(|pair| pair.tx.lend()).ok_or_else(in_use)?;
        self.gate.get_or_insert_with(|| setup.gate.clone());
        InterfaceTx::new(tx, setup, self.mtu.clone(), self.control.interface())
    }

    pub(crate) fn update_counters(&self) {
        for (pair, entry) in self.counters.iter().enumerate() {
            if let Some((counters, seen)) = entry {
                let dropped = self.control.statistics(pair).dropped;
                if dropped > seen.get() {
                    counters.drop_for(RxDrop::Missed, dropped - seen.replace(dropped));
                }
            }
        }
    }

    pub(crate) fn admit(&self, open: bool) -> Result<(), PortError> {
        self.control.admit(open).map_err(|error| refused("open or close the sockets", error))
    }

    pub(crate) fn link(&mut self) -> Link {
        let up = match self.control.state() {
            Ok(state) => {
                self.mtu.set(state.mtu);
                state.running
            }
            Err(error) => {
                let gone = matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO));
                if let (true, Some(gate)) = (gone, &self.gate) {
                    gate.set_gone();
                }
                false
            }
        };
        link_of(self.control.interface(), up)
    }

    pub(crate) fn read_mtu(&mut self) -> Result<u32, PortError> {
        let state = self.control.state().map_err(|error| self.failed("read the MTU of", error))?;
        self.mtu.set(state.mtu);
        Ok(state.mtu)
    }

    pub(crate) fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.control.interface().set_mtu(mtu).map_err(|error| self.failed("set the MTU of", error))?;
        self.mtu.set(mtu);
        Ok(())
    }

    pub(crate) fn mac(&self) -> Result<MacAddress, PortError> {
        let state = self.control.state().map_err(|error| self.failed("read the address of", error))?;
        Ok(MacAddress(state.mac))
    }

    /// The error corrections that the interface can use at the speed it has.
    pub(crate) fn fec_capabilities(&self) -> Result<Vec<SpeedFec>, PortError> {
        let settings = self.control.interface().link_settings();
        let settings = settings.map_err(|error| self.no_fec("FEC capabilities", error))?;
        let modes = modes_of(settings.fec);
        if modes.is_empty() {
            return Err(self.no_fec("FEC capabilities", io::Error::from_raw_os_error(libc::EOPNOTSUPP)));
        }
        Ok(vec![SpeedFec { speed_mbps: settings.speed_mbps, modes }])
    }

    pub(crate) fn fec(&self) -> Result<Fec, PortError> {
        let (configured, active) =
            self.control.interface().fec().map_err(|error| self.no_fec("FEC", error))?;
        Ok(Fec { configured: modes_of(configured), active: modes_of(active) })
    }

    pub(crate) fn set_fec(&self, modes: FecModes) -> Result<(), PortError> {
        let has = |mode| modes.contains(mode);
        let modes = interface::FecModes {
            off: has(FecModes::OFF),
            auto: has(FecModes::AUTO),
            baser: has(FecModes::BASER),
            rs: has(FecModes::RS),
            llrs: has(FecModes::LLRS),
        };
        self.control.interface().set_fec(modes).map_err(|error| self.no_fec("FEC change", error))
    }

    fn no_fec(&self, operation: &'static str, error: io::Error) -> PortError {
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) => {
                let name = self.control.interface().found_as();
                PortError::unsupported(
                    operation,
                    format!("interface {name} has no error correction to choose"),
                )
            }
            _ => self.failed("read or set the error correction of", error),
        }
    }

    pub(crate) fn failed(&self, operation: &str, error: io::Error) -> PortError {
        PortError::device(format!("{operation} interface {}", self.control.interface().found_as()), error)
    }
}

/// The longest packet that the kernel joins of several unless told otherwise: an IP datagram, an Ethernet header, a tag
/// (`GRO_LEGACY_MAX_SIZE`, include/linux/netdevice.h).
pub(crate) const JOINED_MAX: u32 = 65_536 + 14 + 4;

fn modes_of(modes: interface::FecModes) -> FecModes {
    let interface::FecModes { off, auto, baser, rs, llrs } = modes;
    let all = [
        (off, FecModes::OFF),
        (auto, FecModes::AUTO),
        (baser, FecModes::BASER),
        (rs, FecModes::RS),
        (llrs, FecModes::LLRS),
    ];
    all.into_iter().filter(|(has, _)| *has).map(|(_, mode)| mode).collect()
}

fn in_use() -> PortError {
    PortError::device("set up the queue", "its socket is in use or was not opened")
}

/// Why there are no lanes.
const LANES: &str = "the kernel's link settings (ETHTOOL_GLINKSETTINGS) have no lanes in them";

/// A packet-socket port's control half.
pub struct AfPacketPort {
    options: PacketOptions,
    /// Socket pairs, and how many of them receive.
    opened: (u16, u16),
    wire: Wire,
}

impl AfPacketPort {
    /// A port on an interface of the calling thread's network namespace, which must be up.
    ///
    /// # Errors
    /// When there is no such interface, or it is down; when the process may not open packet sockets; when a size does not fit.
    pub fn new(options: PacketOptions) -> Result<Self, PortError> {
        let options = PacketOptions { receiving: options.queues, ..options };
        Ok(Self { wire: open(&options)?, opened: (options.queues, options.receiving), options })
    }
}

fn open(options: &PacketOptions) -> Result<Wire, PortError> {
    Wire::open(options).map_err(|error| refused(format!("open interface {}", options.interface), error))
}

impl PortDriver for AfPacketPort {
    fn info(&self) -> PortInfo {
        let frames = u16::try_from(self.options.frames).unwrap_or(u16::MAX);
        // The rings are made when the port is opened (`framecnt`), whatever is asked for later.
        let descriptors = DescriptorLimits { default: frames, ..DescriptorLimits::default() };
        PortInfo {
            driver: "net_af_packet",
            device: Some(self.options.interface.clone()),
            max_rx_queues: self.options.queues,
            max_tx_queues: self.options.queues,
            rx_descriptors: descriptors,
            tx_descriptors: descriptors,
            max_lro_bytes: JOINED_MAX,
            interface_index: Some(self.wire.control.interface().index()),
            // The kernel joins, unasked, what it can.
            rx_offloads: RxOffloads::SCATTER | RxOffloads::TCP_LRO,
            rx_queue_offloads: RxOffloads::SCATTER,
            tx_offloads: offload::OFFERED,
            tx_queue_offloads: offload::OFFERED,
            tx_offloads_vary: true,
            rx_open: offload::OPEN_IN_TUNNELS,
            max_tso_bytes: CUT_BYTES_MAX,
            tx_pseudo_sums: true,
            rx_interrupts: true,
            ..PortInfo::default()
        }
    }

    fn configure(&mut self, config: &PortConfig) -> Result<(), PortError> {
        // A socket that receives and is not polled would swallow its share of the frames.
        let receiving = config.rx_queues.len() as u16;
        let queues = receiving.max(config.tx_queues.len() as u16).max(1);
        if self.opened != (queues, receiving) {
            let (promiscuous, allmulti) = self.wire.control.modes().asked();
            self.wire = open(&PacketOptions { queues, receiving, ..self.options.clone() })?;
            self.opened = (queues, receiving);
            if promiscuous {
                self.set_promiscuous(true)?;
            }
            if allmulti {
                self.set_all_multicast(true)?;
            }
        }
        Ok(())
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        Ok(Box::new(self.wire.rx(setup.queue.0.into(), setup)?))
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        Ok(Box::new(self.wire.tx(setup.queue.0.into(), setup)?))
    }

    fn start(&mut self) -> Result<(), PortError> {
        self.wire.admit(true)
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.wire.admit(false)
    }

    fn update_counters(&self) {
        self.wire.update_counters();
    }

    fn xstats(&self) -> Vec<(Cow<'static, str>, u64)> {
        let offered = (0..self.wire.pairs.len()).map(|pair| self.wire.control.statistics(pair).offered);
        vec![("rx_kernel_packets".into(), offered.sum())]
    }

    fn link(&mut self, _started: bool) -> Link {
        self.wire.link()
    }

    fn set_link_up(&mut self, up: bool) -> Result<(), PortError> {
        let done = self.wire.control.interface().set_up(up);
        done.map_err(|error| self.wire.failed("switch", error))
    }

    fn lane_capabilities(&mut self) -> Result<Vec<SpeedLanes>, PortError> {
        Err(PortError::unsupported("lane capabilities", LANES))
    }

    fn set_lanes(&mut self, _lanes: u16) -> Result<(), PortError> {
        Err(PortError::unsupported("lane change", LANES))
    }

    fn fec_capabilities(&mut self) -> Result<Vec<SpeedFec>, PortError> {
        self.wire.fec_capabilities()
    }

    fn fec(&mut self) -> Result<Fec, PortError> {
        self.wire.fec()
    }

    fn set_fec(&mut self, modes: FecModes) -> Result<(), PortError> {
        self.wire.set_fec(modes)
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        self.wire.read_mtu()
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.wire.set_mtu(mtu)
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        let done = self.wire.control.modes().set_promiscuous(on);
        done.map_err(|error| self.wire.failed("set promiscuous mode of", error))
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        let done = self.wire.control.modes().set_allmulti(on);
        done.map_err(|error| self.wire.failed("set all-multicast mode of", error))
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        self.wire.mac()
    }

    fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        let done = self.wire.control.interface().set_mac(mac.0);
        done.map_err(|error| self.wire.failed("set the address of", error))
    }
}
