//! `set verbose`: packets as DPDK's testpmd prints them.

use std::fmt::Write;

use pollux_mempool::{Mbuf, RxFlags, TxFlags};
use pollux_port::{MacAddress, PortId, QueueId};
use pollux_wire::{PacketType, ptype};

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Received.
    Received,
    /// About to be sent.
    Sent,
}

/// A burst in words.
#[must_use]
pub fn text(burst: &[Mbuf], port: PortId, queue: QueueId, way: Way) -> String {
    let verb = if way == Way::Received { "received" } else { "sent" };
    let mut text = format!("port {port}/queue {queue}: {verb} {} packets\n", burst.len());
    for mbuf in burst {
        let _ = packet(&mut text, mbuf, queue, way);
    }
    text
}

fn packet(text: &mut String, mbuf: &Mbuf, queue: QueueId, way: Way) -> std::fmt::Result {
    let data = mbuf.data();
    let address = |at: usize| {
        data.get(at..).and_then(<[u8]>::first_chunk::<6>).map_or(MacAddress([0; 6]), |mac| MacAddress(*mac))
    };
    let kind = data.get(12..14).map_or(0, |kind| u16::from_be_bytes([kind[0], kind[1]]));
    let pool = mbuf.pool().map(|pool| pool.name().replace(' ', "_")).unwrap_or_default();
    write!(text, "  src={} - dst={}", address(6).to_uppercase(), address(0).to_uppercase())?;
    write!(
        text,
        " - pool={pool} - type=0x{kind:04x} - length={} - nb_segs={}",
        mbuf.pkt_len(),
        mbuf.segment_count()
    )?;
    let rx = mbuf.rx_flags();
    if way == Way::Received {
        if rx.contains(RxFlags::RSS_HASH) {
            write!(text, " - RSS hash=0x{:x} - RSS queue=0x{:x}", mbuf.rss_hash(), queue.0)?;
        }
        if rx.contains(RxFlags::FLOW) {
            write!(text, " - FDIR matched ")?;
            if rx.contains(RxFlags::MARK) {
                write!(text, "ID=0x{:x}", mbuf.mark())?;
            }
        }
    }
    let (qinq, vlan) = match way {
        Way::Received => (rx.contains(RxFlags::QINQ), rx.contains(RxFlags::VLAN)),
        Way::Sent => (mbuf.tx_flags().contains(TxFlags::QINQ), mbuf.tx_flags().contains(TxFlags::VLAN)),
    };
    if qinq {
        write!(
            text,
            " - QinQ VLAN tci=0x{:x}, VLAN tci outer=0x{:x}",
            mbuf.vlan_tci(),
            mbuf.vlan_tci_outer()
        )?;
    } else if vlan {
        write!(text, " - VLAN tci=0x{:x}", mbuf.vlan_tci())?;
    }
    if mbuf.packet_type() != PacketType::default() {
        write!(text, " - hw ptype: {} ", mbuf.packet_type())?;
    }
    let parsed = ptype::parse(data);
    write!(text, " - sw ptype: {} ", parsed.ptype)?;
    let layers = [
        ("l2", parsed.l2_len, parsed.ptype.l2()),
        ("l3", parsed.l3_len, parsed.ptype.l3()),
        ("l4", parsed.l4_len, parsed.ptype.l4()),
    ];
    for (name, bytes, _) in layers.into_iter().filter(|(_, _, known)| *known != 0) {
        write!(text, " - {name}_len={bytes}")?;
    }
    let l4 = usize::from(parsed.l2_len + parsed.l3_len);
    if let Some(port) = data.get(l4 + 2..l4 + 4).filter(|_| parsed.l4_len != 0) {
        let port = u16::from_be_bytes([port[0], port[1]]);
        if parsed.ptype.is_udp() {
            write!(text, " - Destination UDP port={port}")?;
        } else if parsed.ptype.is_tcp() {
            write!(text, " - Destination TCP port={port}")?;
        }
    }
    let name = if way == Way::Received { "Receive" } else { "Send" };
    writeln!(text, " - {name} queue=0x{:x}", queue.0)?;
    let flags = if way == Way::Received { rx_flags(rx) } else { tx_flags(mbuf.tx_flags()) };
    writeln!(text, "  ol_flags: {flags}")?;
    if let Err(flaw) = mbuf.check() {
        writeln!(text, "INVALID mbuf: {flaw:?}")?;
    }
    Ok(())
}

/// What `flags` says of a checksum: two bits, good and bad.
fn sum(name: &str, both: &str, good: bool, bad: bool) -> String {
    let state = ["UNKNOWN", "GOOD", "BAD", both][usize::from(good) | usize::from(bad) << 1];
    format!("RTE_MBUF_F_RX_{name}_CKSUM_{state} ")
}

/// DPDK's names, in its order (`lib/mbuf/rte_mbuf.c`, `rte_get_rx_ol_flag_list`).
fn rx_flags(flags: RxFlags) -> String {
    let has = |table: &[(RxFlags, &str)]| -> String {
        let held = table.iter().filter(|(flag, _)| flags.contains(*flag));
        held.map(|(_, name)| format!("RTE_MBUF_F_RX_{name} ")).collect()
    };
    let state = |name: &str, both: &str, good: RxFlags, bad: RxFlags| {
        sum(name, both, flags.contains(good), flags.contains(bad))
    };
    let outer = RxFlags::OUTER_L4_CHECKSUM_GOOD;
    [
        has(&[(RxFlags::VLAN, "VLAN"), (RxFlags::RSS_HASH, "RSS_HASH"), (RxFlags::FLOW, "FDIR")]),
        state("L4", "NONE", RxFlags::L4_CHECKSUM_GOOD, RxFlags::L4_CHECKSUM_BAD),
        state("IP", "NONE", RxFlags::IP_CHECKSUM_GOOD, RxFlags::IP_CHECKSUM_BAD),
        has(&[
            (RxFlags::OUTER_IP_CHECKSUM_BAD, "OUTER_IP_CKSUM_BAD"),
            (RxFlags::VLAN_STRIPPED, "VLAN_STRIPPED"),
            (RxFlags::PTP, "IEEE1588_PTP"),
            (RxFlags::PTP_TIMESTAMP, "IEEE1588_TMST"),
            (RxFlags::MARK, "FDIR_ID"),
            (RxFlags::QINQ_STRIPPED, "QINQ_STRIPPED"),
            (RxFlags::QINQ, "QINQ"),
            (RxFlags::LRO, "LRO"),
        ]),
        state("OUTER_L4", "INVALID", outer, RxFlags::OUTER_L4_CHECKSUM_BAD),
    ]
    .concat()
}

/// DPDK's names, in its order (`rte_get_tx_ol_flag_list`).
fn tx_flags(flags: TxFlags) -> String {
    let l4 = match flags & TxFlags::L4_MASK {
        TxFlags::TCP_CHECKSUM => "TCP_CKSUM",
        TxFlags::UDP_CHECKSUM => "UDP_CKSUM",
        TxFlags::SCTP_CHECKSUM => "SCTP_CKSUM",
        _ => "L4_NO_CKSUM",
    };
    let table = [
        (TxFlags::VLAN, "VLAN"),
        (TxFlags::IP_CHECKSUM, "IP_CKSUM"),
        (TxFlags::empty(), l4),
        (TxFlags::TCP_SEGMENTATION, "TCP_SEG"),
        (TxFlags::IPV4, "IPV4"),
        (TxFlags::IPV6, "IPV6"),
        (TxFlags::OUTER_IP_CHECKSUM, "OUTER_IP_CKSUM"),
        (TxFlags::OUTER_IPV4, "OUTER_IPV4"),
        (TxFlags::OUTER_IPV6, "OUTER_IPV6"),
        (TxFlags::QINQ, "QINQ"),
        (TxFlags::UDP_SEGMENTATION, "UDP_SEG"),
        (TxFlags::OUTER_UDP_CHECKSUM, "OUTER_UDP_CKSUM"),
    ];
    // Nothing is held by every packet.
    let held = table.iter().filter(|(flag, _)| flags.contains(*flag));
    held.map(|(_, name)| format!("RTE_MBUF_F_TX_{name} ")).collect()
}
