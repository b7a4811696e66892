//! `net_pcap`: frames from and into capture files, or a live interface as libpcap would see it.
//!
//! Names, keys and defaults are those of DPDK's driver (guides/nics/pcap_ring.rst). Each `rx_pcap`, `rx_iface`, `rx_iface_in`
//! is an rx queue, each `tx_pcap`, `tx_iface` a tx queue; `iface` is both. Without an rx key nothing is received; without
//! a tx key what is sent is dropped. A file is read once, or for ever with `infinite_rx`, for which it is held in memory.
//! A pipe (`mkfifo`, `/dev/stdin`) is read as it fills, across stops of the port; with `infinite_rx` it is read to its end
//! first.
//! A file that is written holds only frames with nothing left to do: open checksums are completed and large frames cut.
//!
//! A file is looked through when it is opened (if it has up to a gigabyte), so that damage is told before the first frame.
//! One that is cut off inside a record is replayed up to there, and a line says where that is. One that is written has each
//! frame a quarter of a second later at the latest, whether or not others follow.

mod rx;
mod tx;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pollux_frame_io::FrameError;
use pollux_frame_io::packet_socket::PacketOptions;
use pollux_frame_io::pcap::{PcapFormat, PcapReader, PcapWriter};
use pollux_port::driver::{PortDriver, RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_port::finish::{CUT_BYTES_MAX, FINISHED};
use pollux_port::{Link, MacAddress, PortConfig, PortError, PortInfo, RxOffloads, TxOffloads};

use crate::af_packet::{JOINED_MAX, Wire, refused};
use crate::lend::Shelf;
use crate::{mac_from_name, offload};
use rx::{Frames, ReplayRx, Replayed, SilentRx};
use tx::{CaptureFile, DroppingTx, FileTx};

/// Where an rx queue's frames come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PcapSource {
    /// `rx_pcap`: a file.
    File(PathBuf),
    /// `rx_iface`: what passes an interface, either way.
    Interface(String),
    /// `rx_iface_in`: what arrives at an interface.
    InterfaceIn(String),
}

/// Where a tx queue's frames go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PcapSink {
    /// `tx_pcap`: a file, pcapng if it is called so.
    File(PathBuf),
    /// `tx_iface`: an interface.
    Interface(String),
}

/// The device argument's keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcapOptions {
    /// `rx_pcap`, `rx_iface`, `rx_iface_in`, in the order given.
    pub rx: Vec<PcapSource>,
    /// `tx_pcap`, `tx_iface`, in the order given.
    pub tx: Vec<PcapSink>,
    /// `iface`: one interface for both; then `rx` and `tx` are empty.
    pub interface: Option<String>,
    /// `infinite_rx`: files are replayed for ever.
    pub infinite_rx: bool,
    /// `phy_mac`: the port has the address of the interface.
    pub phy_mac: bool,
}

/// Files beyond this are not looked through when they are opened.
const LOOKED_THROUGH: u64 = 1 << 30;
/// Queues of a port where a direction leads nowhere.
const QUEUES_TO_NOWHERE: u16 = 1024;

enum Source {
    File { reader: Shelf<Box<PcapReader>>, looked_through: bool },
    Infinite(Arc<Replayed>),
    Wire(usize),
}

enum Sink {
    File(Arc<CaptureFile>),
    Wire(usize),
}

/// A pcap port's control half.
pub struct PcapPort {
    sources: Vec<Source>,
    sinks: Vec<Sink>,
    wires: Vec<Wire>,
    device: Option<String>,
    mac: MacAddress,
    mtu: u32,
}

impl PcapPort {
    /// A port of that name; the name gives it its address unless `phy_mac` is set. Files to be written are emptied.
    ///
    /// # Errors
    /// When a file cannot be opened, is no capture or is damaged; when an interface is missing, down or not to be opened.
    pub fn new(name: &str, options: &PcapOptions) -> Result<Self, PortError> {
        let mut port = Self {
            sources: Vec::new(),
            sinks: Vec::new(),
            wires: Vec::new(),
            device: None,
            mac: mac_from_name(name),
            mtu: 1500,
        };
        if let Some(interface) = &options.interface {
            let wire = port.open_wire(interface, 1, false)?;
            port.sources.push(Source::Wire(wire));
            port.sinks.push(Sink::Wire(wire));
        }
        for source in &options.rx {
            let source = match source {
                PcapSource::File(path) => port.open_file(name, path, options.infinite_rx)?,
                PcapSource::Interface(name) => Source::Wire(port.open_wire(name, 1, true)?),
                PcapSource::InterfaceIn(name) => Source::Wire(port.open_wire(name, 1, false)?),
            };
            port.sources.push(source);
        }
        for sink in &options.tx {
            let sink = match sink {
                PcapSink::File(path) => {
                    let writer = PcapWriter::create(path, PcapFormat::of(path)).map_err(opening)?;
                    port.device.get_or_insert_with(|| path.display().to_string());
                    Sink::File(Arc::new(CaptureFile::new(name, writer)))
                }
                PcapSink::Interface(name) => Sink::Wire(port.open_wire(name, 0, false)?),
            };
            port.sinks.push(sink);
        }
        if options.phy_mac {
            let wire = port.wires.first().ok_or_else(|| PortError::Argument {
                port: name.into(),
                key: "phy_mac".into(),
                value: "1".into(),
                expected: "needs an interface (iface=, rx_iface= or tx_iface=) to take the address from"
                    .into(),
            })?;
            port.mac = wire.mac()?;
        }
        Ok(port)
    }

    fn open_wire(&mut self, interface: &str, receiving: u16, outgoing: bool) -> Result<usize, PortError> {
        let options = PacketOptions { receiving, outgoing, ..PacketOptions::new(interface) };
        let wire =
            Wire::open(&options).map_err(|error| refused(format!("open interface {interface}"), error))?;
        self.device.get_or_insert_with(|| interface.into());
        self.wires.push(wire);
        Ok(self.wires.len() - 1)
    }

    fn open_file(&mut self, name: &str, path: &Path, infinite: bool) -> Result<Source, PortError> {
        self.device.get_or_insert_with(|| path.display().to_string());
        let mut reader = PcapReader::open(path).map_err(opening)?;
        if infinite {
            if reader.is_pipe() {
                tracing::warn!(target: "pmd.net.pcap", "port {name}: {} is read to its end first (infinite_rx=1)", path.display());
            }
            let replayed = Replayed::load(&mut reader).map_err(opening)?;
            if let Some(end) = reader.truncation() {
                tracing::warn!(target: "pmd.net.pcap", "port {name}: {end}");
            }
            if replayed.is_empty() {
                return Err(PortError::Argument {
                    port: name.into(),
                    key: "infinite_rx".into(),
                    value: "1".into(),
                    expected: format!("repeats a file's frames, and {} holds none", path.display()),
                });
            }
            return Ok(Source::Infinite(Arc::new(replayed)));
        }
        let looked_through =
            std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() <= LOOKED_THROUGH);
        if looked_through {
            while reader.next().map_err(opening)?.is_some() {}
            if let Some(end) = reader.truncation() {
                tracing::warn!(target: "pmd.net.pcap", "port {name}: {end}");
            }
        }
        Ok(Source::File { reader: Shelf::new(Box::new(reader)), looked_through })
    }

    fn files(&self) -> impl Iterator<Item = &CaptureFile> {
        self.sinks.iter().filter_map(|sink| match sink {
            Sink::File(file) => Some(&**file),
            Sink::Wire(_) => None,
        })
    }

    fn has_tx_wire(&self) -> bool {
        self.sinks.iter().any(|sink| matches!(sink, Sink::Wire(_)))
    }

    fn wires(&mut self) -> impl Iterator<Item = &mut Wire> {
        self.wires.iter_mut()
    }
}

fn opening(error: FrameError) -> PortError {
    refused("use a capture file", error)
}

impl PortDriver for PcapPort {
    fn info(&self) -> PortInfo {
        let queues = |count: usize| if count == 0 { QUEUES_TO_NOWHERE } else { count as u16 };
        PortInfo {
            driver: "net_pcap",
            device: self.device.clone(),
            max_rx_queues: queues(self.sources.len()),
            max_tx_queues: queues(self.sinks.len()),
            rx_offloads: if self.wires.is_empty() {
                RxOffloads::SCATTER
            } else {
                RxOffloads::SCATTER | RxOffloads::TCP_LRO
            },
            rx_queue_offloads: RxOffloads::SCATTER,
            tx_offloads: if self.has_tx_wire() { offload::OFFERED } else { FINISHED },
            tx_queue_offloads: if self.has_tx_wire() { offload::OFFERED } else { FINISHED },
            tx_offloads_vary: self.has_tx_wire(),
            rx_open: if self.wires.is_empty() { TxOffloads::MULTI_SEGS } else { offload::OPEN_IN_TUNNELS },
            max_tso_bytes: CUT_BYTES_MAX,
            max_lro_bytes: if self.wires.is_empty() { 0 } else { JOINED_MAX },
            tx_pseudo_sums: true,
            ..PortInfo::default()
        }
    }

    fn configure(&mut self, config: &PortConfig) -> Result<(), PortError> {
        for (way, named, queues) in [
            ("rx", self.sources.len(), config.rx_queues.len()),
            ("tx", self.sinks.len(), config.tx_queues.len()),
        ] {
            if named > queues {
                tracing::warn!(
                    target: "pmd.net.pcap", "{named} {way} files or interfaces for {queues} {way} queues: only the first {queues} are used; \
                     give each a port of its own, or {way}-queues = {named} in a profile"
                );
            }
        }
        Ok(())
    }

    fn rx_queue_setup(&mut self, setup: RxSetup) -> Result<Box<dyn RxBurst>, PortError> {
        Ok(match self.sources.get(usize::from(setup.queue.0)) {
            None => Box::new(SilentRx),
            Some(Source::File { reader, looked_through }) => {
                let reader = reader.lend();
                let reader =
                    reader.ok_or_else(|| PortError::device("set up the queue", "its file is in use"))?;
                Box::new(ReplayRx::new(Frames::File { reader, told: *looked_through }, setup))
            }
            Some(Source::Infinite(replayed)) => {
                Box::new(ReplayRx::new(Frames::Memory { replayed: replayed.clone(), next: 0 }, setup))
            }
            Some(&Source::Wire(wire)) => Box::new(self.wires[wire].rx(0, setup)?),
        })
    }

    fn tx_queue_setup(&mut self, setup: TxSetup) -> Result<Box<dyn TxBurst>, PortError> {
        Ok(match self.sinks.get(usize::from(setup.queue.0)) {
            None => Box::new(DroppingTx),
            Some(Sink::File(file)) => Box::new(FileTx::new(file.clone(), setup)),
            Some(&Sink::Wire(wire)) => Box::new(self.wires[wire].tx(0, setup)?),
        })
    }

    fn start(&mut self) -> Result<(), PortError> {
        self.wires().try_for_each(|wire| wire.admit(true))
    }

    fn stop(&mut self) -> Result<(), PortError> {
        self.wires().try_for_each(|wire| wire.admit(false))?;
        // A file that takes no more is told of, and no reason not to stop.
        self.files().for_each(CaptureFile::flush);
        Ok(())
    }

    fn close(&mut self) -> Result<(), PortError> {
        // What queues still hold of a file is flushed when they are dropped.
        self.sources.clear();
        self.sinks.clear();
        Ok(())
    }

    fn update_counters(&self) {
        self.wires.iter().for_each(Wire::update_counters);
        self.files().for_each(CaptureFile::settle);
    }

    fn link(&mut self, started: bool) -> Link {
        match self.wires.first_mut() {
            Some(wire) => wire.link(),
            None => Link::fixed(started, 10_000),
        }
    }

    fn mtu(&mut self) -> Result<u32, PortError> {
        let mtu = self.mtu;
        self.wires.first_mut().map_or(Ok(mtu), Wire::read_mtu)
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), PortError> {
        self.mtu = mtu;
        self.wires().try_for_each(|wire| wire.set_mtu(mtu))
    }

    fn set_promiscuous(&mut self, on: bool) -> Result<(), PortError> {
        self.wires().try_for_each(|wire| {
            let done = wire.control.modes().set_promiscuous(on);
            done.map_err(|error| wire.failed("set promiscuous mode of", error))
        })
    }

    fn set_all_multicast(&mut self, on: bool) -> Result<(), PortError> {
        self.wires().try_for_each(|wire| {
            let done = wire.control.modes().set_allmulti(on);
            done.map_err(|error| wire.failed("set all-multicast mode of", error))
        })
    }

    fn mac_address(&mut self) -> Result<MacAddress, PortError> {
        Ok(self.mac)
    }

    fn set_mac_address(&mut self, mac: MacAddress) -> Result<(), PortError> {
        self.mac = mac;
        Ok(())
    }
}
