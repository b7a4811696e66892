//! The keys of the ports in software: DPDK's names, read into each driver's options.

use pollux_config::{ConfigError, KeyReader, Param};
use pollux_port::driver::DriverInfo;
use pollux_port_soft::af_packet::{AfPacketPort, Fanout, PacketOptions};
use pollux_port_soft::af_xdp::{AfXdpPort, XdpPortOptions};
use pollux_port_soft::null::{self, NullOptions, NullPort};
use pollux_port_soft::pcap::{PcapOptions, PcapPort, PcapSink, PcapSource};
use pollux_port_soft::ring;
use pollux_port_soft::tap::{TapOptions, TapPort};

use super::entry::{Entry, Origin};
use crate::exclusive::Exclusive;

/// What is told of a driver that needs no device of its own.
const fn software(name: &'static str, params: &'static [Param]) -> DriverInfo {
    DriverInfo { name, params, kmod: "", pci_ids: &[] }
}

const NULL: DriverInfo =
    software("net_null", &[Param::number("size"), Param::flag("copy"), Param::flag("no-rx")]);
static NULL_TEXT: [u8; NULL.text_bytes()] = NULL.text();

const RING: DriverInfo = software("net_ring", &[]);
static RING_TEXT: [u8; RING.text_bytes()] = RING.text();

/// The name of an interface, as DPDK's pcap driver writes it.
const INTERFACE: &str = "<ifc>";

const PCAP: DriverInfo = software(
    "net_pcap",
    &[
        Param::text("rx_pcap"),
        Param::new("rx_iface", INTERFACE),
        Param::new("rx_iface_in", INTERFACE),
        Param::text("tx_pcap"),
        Param::new("tx_iface", INTERFACE),
        Param::new("iface", INTERFACE),
        Param::flag("infinite_rx"),
        Param::flag("phy_mac"),
    ],
);
static PCAP_TEXT: [u8; PCAP.text_bytes()] = PCAP.text();

const AF_PACKET: DriverInfo = software(
    "net_af_packet",
    &[
        Param::text("iface"),
        Param::number("qpairs"),
        Param::number("blocksz"),
        Param::number("framesz"),
        Param::number("framecnt"),
        Param::flag("qdisc_bypass"),
        Param::new("fanout_mode", "hash|lb|cpu|rollover|rnd|qm"),
    ],
);
static AF_PACKET_TEXT: [u8; AF_PACKET.text_bytes()] = AF_PACKET.text();

const AF_XDP: DriverInfo = software(
    "net_af_xdp",
    &[
        Param::text("iface"),
        // These four are DPDK's, read to be refused unless they are off.
        Param::text("xdp_prog"),
        Param::flag("use_cni"),
        Param::flag("use_pinned_map"),
        Param::flag("shared_umem"),
        Param::number("start_queue"),
        Param::number("queue_count"),
        Param::number("busy_budget"),
        Param::flag("force_copy"),
    ],
);
static AF_XDP_TEXT: [u8; AF_XDP.text_bytes()] = AF_XDP.text();

const TAP: DriverInfo = software("net_tap", &[Param::text("iface"), Param::new("mac", "xx:xx:xx:xx:xx:xx")]);
static TAP_TEXT: [u8; TAP.text_bytes()] = TAP.text();

/// The drivers.
pub(super) fn entries() -> Vec<Entry> {
    vec![
        Entry::of_port(Origin::BuiltIn(&NULL, &NULL_TEXT), null, |name, options, _| {
            NullPort::new(name, options)
        }),
        Entry::of_port(Origin::BuiltIn(&RING, &RING_TEXT), |_| Ok(()), |name, (), _| Ok(ring::looped(name))),
        Entry::of_port(Origin::BuiltIn(&PCAP, &PCAP_TEXT), pcap, |name, options, _| {
            PcapPort::new(name, &options)
        })
        .exclusive(&[
            ("rx_pcap", Exclusive::READ_FILE),
            ("tx_pcap", Exclusive::WRITTEN_FILE),
            ("iface", Exclusive::INTERFACE),
            ("rx_iface", Exclusive::RX_INTERFACE),
            ("rx_iface_in", Exclusive::RX_INTERFACE),
            ("tx_iface", Exclusive::TX_INTERFACE),
        ]),
        Entry::of_port(Origin::BuiltIn(&AF_PACKET, &AF_PACKET_TEXT), af_packet, |_, options, _| {
            AfPacketPort::new(options)
        })
        .exclusive(&[("iface", Exclusive::INTERFACE)]),
        Entry::of_port(Origin::BuiltIn(&AF_XDP, &AF_XDP_TEXT), af_xdp, |_, options, _| {
            AfXdpPort::new(options)
        })
        .exclusive(&[("iface", Exclusive::INTERFACE)]),
        Entry::of_port(Origin::BuiltIn(&TAP, &TAP_TEXT), tap, |_, options, _| TapPort::new(&options))
            .exclusive(&[("iface", Exclusive::TAP)]),
    ]
}

fn null(keys: &mut KeyReader<'_>) -> Result<NullOptions, ConfigError> {
    let usual = NullOptions::default();
    Ok(NullOptions {
        size: keys.number("size", null::SIZE_MIN as u64..=null::SIZE_MAX as u64)?.unwrap_or(usual.size),
        copy: keys.flag("copy")?.unwrap_or(usual.copy),
        no_rx: keys.flag("no-rx")?.unwrap_or(usual.no_rx),
    })
}

fn pcap(keys: &mut KeyReader<'_>) -> Result<PcapOptions, ConfigError> {
    let sources = keys.several(&["rx_pcap", "rx_iface", "rx_iface_in"]);
    let sinks = keys.several(&["tx_pcap", "tx_iface"]);
    let interface = interface(keys)?;
    let options = PcapOptions {
        rx: sources
            .iter()
            .map(|&(key, value)| match key {
                "rx_pcap" => PcapSource::File(value.into()),
                "rx_iface" => PcapSource::Interface(value.into()),
                _ => PcapSource::InterfaceIn(value.into()),
            })
            .collect(),
        tx: sinks
            .iter()
            .map(|&(key, value)| match key {
                "tx_pcap" => PcapSink::File(value.into()),
                _ => PcapSink::Interface(value.into()),
            })
            .collect(),
        interface: interface.map(str::to_owned),
        infinite_rx: keys.flag("infinite_rx")?.unwrap_or(false),
        phy_mac: keys.flag("phy_mac")?.unwrap_or(false),
    };
    if let Some((key, _)) = sources.iter().chain(&sinks).find(|(_, value)| value.is_empty()) {
        return Err(keys.bad(key, "", format!("has no value: write {key}=VALUE")));
    }
    let named = !sources.is_empty() || !sinks.is_empty();
    if let Some(interface) = interface.filter(|_| named) {
        let problem = "sets both directions: leave out the other keys, or use rx_iface and tx_iface";
        return Err(keys.bad("iface", interface, problem));
    }
    // A key that was meant to be one of these is told of first.
    keys.finish()?;
    if !named && interface.is_none() {
        return Err(keys.missing("rx_pcap", "rx_pcap=in.pcap, tx_pcap=out.pcap or iface=eth0"));
    }
    Ok(options)
}

fn af_packet(keys: &mut KeyReader<'_>) -> Result<PacketOptions, ConfigError> {
    const FANOUTS: [(&str, Fanout); 6] = [
        ("hash", Fanout::Hash),
        ("lb", Fanout::LoadBalance),
        ("cpu", Fanout::Cpu),
        ("rollover", Fanout::Rollover),
        ("rnd", Fanout::Random),
        ("qm", Fanout::QueueMapping),
    ];
    let interface = keys.required("iface", "iface=eth0")?;
    check_interface(keys, interface)?;
    let usual = PacketOptions::new(interface);
    let queues = keys.number("qpairs", 1..=256)?.unwrap_or(usual.queues);
    let options = PacketOptions {
        queues,
        receiving: queues,
        block_bytes: keys.number("blocksz", 4096..=1 << 30)?.unwrap_or(usual.block_bytes),
        frame_bytes: keys.number("framesz", 64..=1 << 20)?.unwrap_or(usual.frame_bytes),
        frames: keys.number("framecnt", 1..=1 << 20)?.unwrap_or(usual.frames),
        qdisc_bypass: keys.flag("qdisc_bypass")?.unwrap_or(usual.qdisc_bypass),
        fanout: keys
            .choice("fanout_mode", &FANOUTS.map(|(word, _)| word))?
            .map_or(usual.fanout, |place| FANOUTS[place].1),
        ..usual
    };
    if !options.frame_bytes.is_multiple_of(16) {
        return Err(keys.bad("framesz", &options.frame_bytes.to_string(), "is not a multiple of 16"));
    }
    // PACKET_RX_RING wants whole pages (Linux `Documentation/networking/packet_mmap.rst`).
    let blocks = options.frame_bytes.next_multiple_of(4096);
    let fits = options.block_bytes.is_multiple_of(4096) && options.block_bytes >= blocks;
    if options.block_bytes != usual.block_bytes && !fits {
        let problem = format!("is not a multiple of 4096 with room for a frame (framesz): at least {blocks}");
        return Err(keys.bad("blocksz", &options.block_bytes.to_string(), problem));
    }
    Ok(options)
}

/// Queues that the kernel's socket maps are made for at most.
const XDP_QUEUES_MAX: u64 = 1 << 12;

fn af_xdp(keys: &mut KeyReader<'_>) -> Result<XdpPortOptions, ConfigError> {
    let interface = keys.required("iface", "iface=eth0")?;
    check_interface(keys, interface)?;
    // DPDK's driver loads a program from a file, or takes the socket map of a Kubernetes device plugin.
    let own = "is not supported: the port brings its own XDP program; leave the key out";
    if let Some(file) = keys.text("xdp_prog")? {
        return Err(keys.bad("xdp_prog", file, own));
    }
    for key in ["use_cni", "use_pinned_map", "shared_umem"] {
        if keys.flag(key)? == Some(true) {
            let problem = match key {
                "shared_umem" => "is not supported: each queue registers its own pool; leave the key out",
                _ => own,
            };
            return Err(keys.bad(key, "1", problem));
        }
    }
    let usual = XdpPortOptions::new(interface);
    Ok(XdpPortOptions {
        first_queue: keys.number("start_queue", 0..=XDP_QUEUES_MAX)?.unwrap_or(usual.first_queue),
        queues: keys.number("queue_count", 1..=256)?.unwrap_or(usual.queues),
        busy_budget: keys.number("busy_budget", 0..=u64::from(u16::MAX))?.unwrap_or(usual.busy_budget),
        copy: keys.flag("force_copy")?.unwrap_or(usual.copy),
        ..usual
    })
}

fn tap(keys: &mut KeyReader<'_>) -> Result<TapOptions, ConfigError> {
    let usual = TapOptions::default();
    let options = TapOptions {
        interface: interface(keys)?.map_or(usual.interface, str::to_owned),
        mac: keys.mac("mac")?,
    };
    // The first byte's lowest bit says that an address stands for several stations (IEEE 802).
    if let Some(mac) = options.mac.filter(|mac| mac[0] & 1 == 1) {
        let text = mac.map(|byte| format!("{byte:02x}")).join(":");
        return Err(keys.bad(
            "mac",
            &text,
            "is a multicast address: the first byte must be even, such as 02",
        ));
    }
    Ok(options)
}

fn interface<'a>(keys: &mut KeyReader<'a>) -> Result<Option<&'a str>, ConfigError> {
    let name = keys.text("iface")?;
    name.map_or(Ok(()), |name| check_interface(keys, name))?;
    Ok(name)
}

/// What the kernel takes for a name (`dev_valid_name`, IFNAMSIZ 16 with the closing zero).
fn check_interface(keys: &KeyReader<'_>, name: &str) -> Result<(), ConfigError> {
    let plain = name.len() < 16 && !name.contains(|mark: char| mark == '/' || mark.is_whitespace());
    if plain {
        return Ok(());
    }
    Err(keys.bad("iface", name, "is not an interface name: give up to 15 bytes without '/' and spaces"))
}
