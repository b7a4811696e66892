//! How packets are forwarded: streams, what engines make, checksums.

use std::fmt::Write;

use super::port;
use crate::engine::{Mode, TxSplit};
use crate::session::Session;

/// `show config fwd`, and what `start` says: the streams, and who forwards them.
#[must_use]
pub fn streams(session: &mut Session, mode: Mode) -> String {
    let plans = session.plan(mode);
    let cores = plans.iter().map(|plan| plan.lcore + 1).max().unwrap_or(0);
    let retry = if session.settings.retry { " with retry" } else { "" };
    let mut text = format!(
        "{} packet forwarding{retry} - ports={} - cores={cores} - streams={} - NUMA support enabled, MP allocation mode: native\n",
        mode.name(),
        session.settings.ports.len(),
        plans.len()
    );
    if session.settings.retry {
        let _ = writeln!(
            text,
            "TX retry num: {}, delay between TX retries: {}us",
            session.settings.retry_tries, session.settings.retry_delay_us
        );
    }
    for lcore in 0..cores {
        let own: Vec<_> = plans.iter().filter(|plan| plan.lcore == lcore).collect();
        let _ = writeln!(
            text,
            "Logical Core {} (socket 0) forwards packets on {} streams:",
            session.settings.lcores[lcore],
            own.len()
        );
        for plan in own {
            let (from, to) = plan.ports;
            let _ = writeln!(
                text,
                "  RX P={from}/Q={0} (socket 0) -> TX P={to}/Q={0} (socket 0) peer={1}",
                plan.queue,
                session.peer(to).to_uppercase()
            );
        }
    }
    text.push('\n');
    if session.is_forwarding() {
        return text;
    }
    text + &rxtx(session, mode)
}

/// `show config rxtx`.
#[must_use]
pub fn rxtx(session: &mut Session, mode: Mode) -> String {
    let settings = &session.settings;
    let mut text = format!("  {} packet forwarding packets/burst={}\n", mode.name(), settings.burst);
    if matches!(mode, Mode::TxOnly | Mode::Flowgen) {
        let bytes: u32 = settings.tx.segments.iter().map(|&bytes| u32::from(bytes)).sum();
        let _ = writeln!(text, "  packet len={bytes} - nb packet segments={}", settings.tx.segments.len());
    }
    let cores = session.forwarding_lcores();
    let _ = writeln!(
        text,
        "  nb forwarding cores={cores} - nb forwarding ports={}",
        session.settings.ports.len()
    );
    for id in session.settings.ports.clone() {
        let Ok(port) = port(session, id) else { continue };
        let (info, config) = (port.info(), port.config());
        let _ = writeln!(
            text,
            "  port {id}: RX queue number: {} Tx queue number: {}",
            config.rx_queues.len(),
            config.tx_queues.len()
        );
        let _ = writeln!(
            text,
            "    Rx offloads=0x{:x} Tx offloads=0x{:x}",
            config.rx_offloads.bits(),
            config.tx_offloads.bits()
        );
        for (at, queue) in config.rx_queues.iter().enumerate() {
            let _ = writeln!(
                text,
                "    RX queue: {at}\n      RX desc={} - RX free threshold=0",
                info.rx_descriptors.adjust(queue.descriptors)
            );
            text += "      RX threshold registers: pthresh=0 hthresh=0  wthresh=0\n";
            let _ = writeln!(text, "      RX Offloads=0x{:x}", (queue.offloads | config.rx_offloads).bits());
        }
        for (at, queue) in config.tx_queues.iter().enumerate() {
            let _ = writeln!(
                text,
                "    TX queue: {at}\n      TX desc={} - TX free threshold=0",
                info.tx_descriptors.adjust(queue.descriptors)
            );
            text += "      TX threshold registers: pthresh=0 hthresh=0  wthresh=0\n";
            let _ = writeln!(
                text,
                "      TX offloads=0x{:x} - TX RS bit threshold=0",
                (queue.offloads | config.tx_offloads).bits()
            );
        }
    }
    text
}

/// `show config txpkts`.
#[must_use]
pub fn txpkts(session: &Session) -> String {
    let tx = &session.settings.tx;
    let sizes: Vec<String> = tx.segments.iter().map(u16::to_string).collect();
    let split = match tx.split {
        TxSplit::Off => "off",
        TxSplit::On => "on",
        TxSplit::Random => "rand",
    };
    format!(
        "Number of segments: {}\nSegment sizes: {}\nSplit packet: {split}\n",
        sizes.len(),
        sizes.join(",")
    )
}

/// `show csum`, and what `csum set` ends with.
///
/// # Errors
/// There is no such port.
pub fn csum(session: &Session, id: u16) -> Result<String, String> {
    let csum = session.ports.get(id)?.csum;
    let mut text = format!("Parse tunnel is {}\n", if csum.tunnels { "on" } else { "off" });
    for (name, hw) in [
        ("IP", csum.ip),
        ("UDP", csum.udp),
        ("TCP", csum.tcp),
        ("SCTP", csum.sctp),
        ("Outer-Ip", csum.outer_ip),
        ("Outer-Udp", csum.outer_udp),
    ] {
        text += &format!("{name} checksum offload is {}\n", if hw { "hw" } else { "sw" });
    }
    Ok(text)
}
