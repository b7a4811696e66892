//! The keys of the ports in software: DPDK's names, read into each driver's options.

use pollux_config::{ConfigError, DeviceArg, KeyReader};
use pollux_port_soft::af_packet::{AfPacketPort, Fanout, PacketOptions};
use pollux_port_soft::null::{self, NullOptions, NullPort};
use pollux_port_soft::pcap::{PcapOptions, PcapPort, PcapSink, PcapSource};
use pollux_port_soft::ring;
use pollux_port_soft::tap::{TapOptions, TapPort};

use pollux_port::driver::PortDriver;

use super::{Open, Opened};

/// A port with no device behind it.
fn opened(driver: impl PortDriver + 'static) -> Opened {
    Opened { driver: Box::new(driver), model: None }
}

pub(super) fn null(device: &DeviceArg) -> Result<Open, ConfigError> {
    let mut keys = device.keys();
    let usual = NullOptions::default();
    let options = NullOptions {
        size: keys.number("size", null::SIZE_MIN as u64..=null::SIZE_MAX as u64)?.unwrap_or(usual.size),
        copy: keys.flag("copy")?.unwrap_or(usual.copy),
        no_rx: keys.flag("no-rx")?.unwrap_or(usual.no_rx),
    };
    keys.finish()?;
    Ok(Box::new(move |name, _| Ok(opened(NullPort::new(name, options)?))))
}

pub(super) fn ring(device: &DeviceArg) -> Result<Open, ConfigError> {
    device.keys().finish()?;
    Ok(Box::new(|name, _| Ok(opened(ring::looped(name)))))
}

pub(super) fn pcap(device: &DeviceArg) -> Result<Open, ConfigError> {
    let mut keys = device.keys();
    let sources = keys.several(&["rx_pcap", "rx_iface", "rx_iface_in"]);
    let sinks = keys.several(&["tx_pcap", "tx_iface"]);
    let interface = interface(&mut keys)?;
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
        let problem = "stands for both directions: leave out the other keys or use rx_iface and tx_iface";
        return Err(keys.bad("iface", interface, problem));
    }
    keys.finish()?;
    if !named && interface.is_none() {
        return Err(ConfigError::MissingKey {
            device: device.name.clone(),
            key: "rx_pcap".into(),
            mend: "such as rx_pcap=in.pcap, tx_pcap=out.pcap or iface=eth0".into(),
        });
    }
    Ok(Box::new(move |name, _| Ok(opened(PcapPort::new(name, &options)?))))
}

pub(super) fn af_packet(device: &DeviceArg) -> Result<Open, ConfigError> {
    const FANOUTS: [(&str, Fanout); 6] = [
        ("hash", Fanout::Hash),
        ("lb", Fanout::LoadBalance),
        ("cpu", Fanout::Cpu),
        ("rollover", Fanout::Rollover),
        ("rnd", Fanout::Random),
        ("qm", Fanout::QueueMapping),
    ];
    let mut keys = device.keys();
    let interface = keys.required("iface", "iface=eth0")?;
    check_interface(&keys, interface)?;
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
    keys.finish()?;
    Ok(Box::new(move |_, _| Ok(opened(AfPacketPort::new(options)?))))
}

pub(super) fn tap(device: &DeviceArg) -> Result<Open, ConfigError> {
    let mut keys = device.keys();
    let usual = TapOptions::default();
    let options = TapOptions {
        interface: interface(&mut keys)?.map_or(usual.interface, str::to_owned),
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
    keys.finish()?;
    Ok(Box::new(move |_, _| Ok(opened(TapPort::new(&options)?))))
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
    Err(keys.bad("iface", name, "is no interface name: up to 15 bytes without '/' and blanks"))
}
