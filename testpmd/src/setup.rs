//! From options to a session whose ports are started.

use std::collections::BTreeMap;

use pollux_bringup::program::say;
use pollux_bringup::{Bringup, BringupError, ReceiveRequest};
use pollux_config::CommandLine;
use pollux_eal::lcore::LcoreId;
use pollux_kit::{Console, Meter};
use pollux_port::{HashFields, PortId, RssConfig, RxOffloads, TxOffloads};

use crate::engine::{NoisySettings, TxPlan, TxSplit};
use crate::options::{Options, peers_of_file};
use crate::ports::{PortSlot, Ports, Wants};
use crate::session::{Session, Settings};

/// Bytes of a frame beside its MTU: Ethernet header and check sequence.
const AROUND: u32 = 18;

/// Starts an EAL, opens the ports and brings them up as the options say.
///
/// # Errors
/// What was typed wrongly, what the ports refuse.
pub(crate) fn session(line: &CommandLine, options: &Options) -> Result<Session, BringupError> {
    let console = Console { json: options.json };
    TxPlan::check(&options.txpkts, usize::from(u16::MAX)).map_err(|why| usage("--txpkts", &why))?;
    let noisy = noisy(options)?;
    let peers = peers(options)?;
    let mut bringup = Bringup::new(line)?;
    pollux_bringup::program::warn(line);
    bringup.say_notices();
    let unused = options.unused.given();
    if !unused.is_empty() {
        say(format_args!("testpmd: {}: accepted, without effect here", unused.join(", ")));
    }
    let lcores = lcores(&bringup, options)?;
    let slots = bringup.ports.iter_all().map(|port| PortSlot::new(port.id(), Wants::default()));
    let mut slots: Vec<PortSlot> = slots.collect();
    for slot in &mut slots {
        slot.wants = wants_of(&bringup, slot.id, options)?;
    }
    let ports = forwarding_ports(&slots, options)?;
    // One size is that of all mbufs; several are those of buffer split's segments.
    let split = options.mbuf_size.len() > 1 || !options.rxpkts.is_empty();
    let ports_of_session = Ports {
        slots,
        pool: None,
        mbufs: options.total_num_mbufs,
        mbuf_bytes: if split { 0 } else { options.mbuf_size.first().copied().unwrap_or(0) },
        receive: ReceiveRequest {
            lengths: options.rxpkts.clone(),
            offsets: options.rxoffs.clone(),
            sizes: if split { options.mbuf_size.clone() } else { Vec::new() },
            lro: options.enable_lro,
            lro_bytes: options.max_lro_pkt_size,
        },
        lcores: options.nb_cores,
    };
    let settings = Settings {
        mode: options.forward_mode,
        retry: false,
        retry_delay_us: 1,
        retry_tries: 64,
        burst: options.burst,
        topology: options.port_topology,
        ports,
        nb_cores: options.nb_cores,
        lcores,
        peers,
        tx: TxPlan {
            segments: options.txpkts.clone(),
            split: TxSplit::Off,
            multi_flow: options.txonly_multi_flow.then_some(options.txonly_flows),
            ip: options.tx_ip,
            udp: options.tx_udp,
            flows: options.flowgen_flows,
            clones: options.flowgen_clones,
        },
        noisy,
        gro_flush: 1,
        // An Ethernet frame without its check sequence.
        gso_bytes: 1514,
        verbose: 0,
        record_cycles: options.record_core_cycles,
        record_bursts: options.record_burst_stats,
        flush_rx: !options.no_flush_rx,
        link_check: !options.disable_link_check,
        xstats: options.display_xstats.clone(),
        hide_zero: false,
    };
    for notice in bringup.ports.iter().filter_map(|port| options.idle.notice(port)) {
        say(format_args!("testpmd: {notice}"));
    }
    let mut session = Session::new(bringup, ports_of_session, settings, options.clone(), console)?;
    if options.interactive {
        console.print("Interactive-mode selected\n");
    }
    let ids: Vec<u16> = session.ports.slots.iter().map(|slot| slot.id.0).collect();
    let told = session.ports.start(&mut session.bringup, &ids).map_err(BringupError::Runtime)?;
    console.print(&format!("{told}Checking link statuses...\n"));
    session.wait_for_links();
    console.print("Done\n");
    // Time counts from here.
    session.meter = Meter::of_ports(&session.meter.ports());
    Ok(session)
}

fn usage(option: &str, why: &str) -> BringupError {
    BringupError::Usage(format!("option '{option}': {why}"))
}

fn noisy(options: &Options) -> Result<NoisySettings, BringupError> {
    let touches =
        options.noisy_lkup_num_reads | options.noisy_lkup_num_writes | options.noisy_lkup_num_reads_writes;
    if touches != 0 && options.noisy_lkup_memory == 0 {
        return Err(usage(
            "--noisy-lkup-memory",
            "0 MiB: must be above 0 where reads or writes are asked for",
        ));
    }
    Ok(NoisySettings {
        buffer: options.noisy_tx_sw_buffer_size.into(),
        flush_ms: options.noisy_tx_sw_buffer_flushtime.into(),
        memory_bytes: if touches == 0 { 0 } else { (options.noisy_lkup_memory as usize) << 20 },
        reads: options.noisy_lkup_num_reads.into(),
        writes: options.noisy_lkup_num_writes.into(),
        reads_writes: options.noisy_lkup_num_reads_writes.into(),
        forward: options.noisy_forward_mode,
    })
}

fn peers(options: &Options) -> Result<BTreeMap<u16, pollux_port::MacAddress>, BringupError> {
    let file = options.eth_peers_configfile.as_deref();
    let mut peers = file.map_or(Ok(BTreeMap::new()), peers_of_file).map_err(BringupError::Usage)?;
    peers.extend(options.eth_peer.iter().copied());
    Ok(peers)
}

/// Lcores that may forward: all but the main lcore, as in DPDK; that one where there is no other.
fn lcores(bringup: &Bringup, options: &Options) -> Result<Vec<LcoreId>, BringupError> {
    let (all, main) = (bringup.eal.lcores().dataplane(), bringup.eal.lcores().main());
    let mut lcores: Vec<LcoreId> =
        all.iter().copied().filter(|lcore| *lcore != main || all.len() == 1).collect();
    if let Some(mask) = options.coremask {
        let wanted: Vec<LcoreId> = mask.ports().map(LcoreId).collect();
        if let Some(lcore) = wanted.iter().find(|lcore| !all.contains(lcore)) {
            return Err(usage("--coremask", &format!("lcore {lcore} is not enabled: name it with -l")));
        }
        lcores = wanted;
    }
    if options.nb_cores > lcores.len() {
        let why = format!(
            "{}: there are {} (the main lcore is kept for the prompt); name more with -l",
            options.nb_cores,
            lcores.len()
        );
        return Err(usage("--nb-cores", &why));
    }
    Ok(lcores)
}

fn forwarding_ports(slots: &[PortSlot], options: &Options) -> Result<Vec<u16>, BringupError> {
    let all: Vec<u16> = slots.iter().map(|slot| slot.id.0).collect();
    let (option, mut wanted) = match (&options.portlist, options.portmask) {
        (Some(list), _) => ("--portlist", list.0.clone()),
        (None, Some(mask)) => ("--portmask", mask.ports().collect()),
        (None, None) => ("", all.clone()),
    };
    if let Some(port) = wanted.iter().find(|port| !all.contains(port)) {
        return Err(usage(
            option,
            &format!("port {port} is not there: ports are numbered from 0 to {}", all.len() - 1),
        ));
    }
    if let Some(count) = options.nb_ports {
        if count > wanted.len() {
            return Err(usage("--nb-ports", &format!("{count}: there are {}", wanted.len())));
        }
        wanted.truncate(count);
    }
    Ok(wanted)
}

/// What the options ask of an open port.
pub(crate) fn wants_of(bringup: &Bringup, id: PortId, options: &Options) -> Result<Wants, BringupError> {
    let info = bringup.ports.get(id).map(pollux_port::Port::info).unwrap_or_default();
    Ok(wants(options, &info, bringup.spec(id)?))
}

/// What the options ask of a port, on top of what the profile says.
fn wants(options: &Options, info: &pollux_port::PortInfo, spec: &pollux_config::PortSpec) -> Wants {
    let flags = [
        (options.enable_rx_cksum, RxOffloads::CHECKSUM),
        (options.enable_scatter, RxOffloads::SCATTER),
        (options.enable_rx_timestamp, RxOffloads::TIMESTAMP),
        (options.enable_hw_vlan, RxOffloads::VLAN_FILTER | RxOffloads::VLAN_STRIP | RxOffloads::VLAN_EXTEND),
        (options.enable_hw_vlan_filter, RxOffloads::VLAN_FILTER),
        (options.enable_hw_vlan_strip, RxOffloads::VLAN_STRIP),
        (options.enable_hw_vlan_extend, RxOffloads::VLAN_EXTEND),
        (options.enable_hw_qinq_strip, RxOffloads::QINQ_STRIP),
    ];
    let rx = flags.iter().filter(|(on, _)| *on).fold(RxOffloads::empty(), |all, (_, bits)| all | *bits);
    let rx = rx | RxOffloads::from_bits_retain(options.rx_offloads.unwrap_or(0));
    // As DPDK's: mbufs come from one pool and have one owner, unless told otherwise.
    let fast_free = if options.flowgen_clones == 0 {
        TxOffloads::MBUF_FAST_FREE & info.tx_offloads
    } else {
        TxOffloads::empty()
    };
    let tx = options.tx_offloads.map_or(fast_free, TxOffloads::from_bits_retain);
    let chains = if options.txpkts.len() > 1 {
        TxOffloads::MULTI_SEGS & info.tx_offloads
    } else {
        TxOffloads::empty()
    };
    let fields = if options.rss_udp { HashFields::IP | HashFields::UDP } else { HashFields::IP };
    let or = |option: u16, spec: u16| if option == 0 { spec } else { option };
    Wants {
        rxq: options.rxq.unwrap_or(spec.queues.rx_queues),
        txq: options.txq.unwrap_or(spec.queues.tx_queues),
        rxd: or(options.rxd, spec.queues.rx_descriptors),
        txd: or(options.txd, spec.queues.tx_descriptors),
        rx,
        tx: tx | chains,
        mtu: options.max_pkt_len.map(|bytes| bytes - AROUND).or(spec.mtu),
        rss: (!options.disable_rss).then(|| RssConfig::new(fields)),
        promiscuous: spec.promiscuous.unwrap_or(true),
        rx_interrupts: options.idle.sleeps(),
        ..Wants::default()
    }
}
