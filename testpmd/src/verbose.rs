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
    write!(text, "  src={} - dst={}", upper(address(6)), upper(address(0)))?;
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

/// As DPDK writes addresses.
#[must_use]
pub fn upper(mac: MacAddress) -> String {
    mac.to_string().to_uppercase()
}

/// DPDK's names (`lib/mbuf/rte_mbuf.c`, `rte_get_rx_ol_flag_list`).
fn rx_flags(flags: RxFlags) -> String {
    let sum = |good: RxFlags, bad: RxFlags, name: &'static [&'static str; 4]| {
        name[usize::from(flags.contains(good)) | usize::from(flags.contains(bad)) << 1]
    };
    let has = |flag: RxFlags, name: &'static str| if flags.contains(flag) { name } else { "" };
    let names = [
        has(RxFlags::VLAN, "RTE_MBUF_F_RX_VLAN"),
        has(RxFlags::RSS_HASH, "RTE_MBUF_F_RX_RSS_HASH"),
        has(RxFlags::FLOW, "RTE_MBUF_F_RX_FDIR"),
        sum(
            RxFlags::L4_CHECKSUM_GOOD,
            RxFlags::L4_CHECKSUM_BAD,
            &[
                "RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN",
                "RTE_MBUF_F_RX_L4_CKSUM_GOOD",
                "RTE_MBUF_F_RX_L4_CKSUM_BAD",
                "RTE_MBUF_F_RX_L4_CKSUM_NONE",
            ],
        ),
        sum(
            RxFlags::IP_CHECKSUM_GOOD,
            RxFlags::IP_CHECKSUM_BAD,
            &[
                "RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN",
                "RTE_MBUF_F_RX_IP_CKSUM_GOOD",
                "RTE_MBUF_F_RX_IP_CKSUM_BAD",
                "RTE_MBUF_F_RX_IP_CKSUM_NONE",
            ],
        ),
        has(RxFlags::OUTER_IP_CHECKSUM_BAD, "RTE_MBUF_F_RX_OUTER_IP_CKSUM_BAD"),
        has(RxFlags::VLAN_STRIPPED, "RTE_MBUF_F_RX_VLAN_STRIPPED"),
        has(RxFlags::PTP, "RTE_MBUF_F_RX_IEEE1588_PTP"),
        has(RxFlags::PTP_TIMESTAMP, "RTE_MBUF_F_RX_IEEE1588_TMST"),
        has(RxFlags::MARK, "RTE_MBUF_F_RX_FDIR_ID"),
        has(RxFlags::QINQ_STRIPPED, "RTE_MBUF_F_RX_QINQ_STRIPPED"),
        has(RxFlags::QINQ, "RTE_MBUF_F_RX_QINQ"),
        has(RxFlags::LRO, "RTE_MBUF_F_RX_LRO"),
        sum(
            RxFlags::OUTER_L4_CHECKSUM_GOOD,
            RxFlags::OUTER_L4_CHECKSUM_BAD,
            &[
                "RTE_MBUF_F_RX_OUTER_L4_CKSUM_UNKNOWN",
                "RTE_MBUF_F_RX_OUTER_L4_CKSUM_GOOD",
                "RTE_MBUF_F_RX_OUTER_L4_CKSUM_BAD",
                "RTE_MBUF_F_RX_OUTER_L4_CKSUM_INVALID",
            ],
        ),
    ];
    joined(&names)
}

/// DPDK's names (`rte_get_tx_ol_flag_list`).
fn tx_flags(flags: TxFlags) -> String {
    let has = |flag: TxFlags, name: &'static str| if flags.contains(flag) { name } else { "" };
    let l4 = match flags & TxFlags::L4_MASK {
        TxFlags::TCP_CHECKSUM => "RTE_MBUF_F_TX_TCP_CKSUM",
        TxFlags::UDP_CHECKSUM => "RTE_MBUF_F_TX_UDP_CKSUM",
        TxFlags::SCTP_CHECKSUM => "RTE_MBUF_F_TX_SCTP_CKSUM",
        _ => "RTE_MBUF_F_TX_L4_NO_CKSUM",
    };
    let names = [
        has(TxFlags::VLAN, "RTE_MBUF_F_TX_VLAN"),
        has(TxFlags::IP_CHECKSUM, "RTE_MBUF_F_TX_IP_CKSUM"),
        l4,
        has(TxFlags::TCP_SEGMENTATION, "RTE_MBUF_F_TX_TCP_SEG"),
        has(TxFlags::IPV4, "RTE_MBUF_F_TX_IPV4"),
        has(TxFlags::IPV6, "RTE_MBUF_F_TX_IPV6"),
        has(TxFlags::OUTER_IP_CHECKSUM, "RTE_MBUF_F_TX_OUTER_IP_CKSUM"),
        has(TxFlags::OUTER_IPV4, "RTE_MBUF_F_TX_OUTER_IPV4"),
        has(TxFlags::OUTER_IPV6, "RTE_MBUF_F_TX_OUTER_IPV6"),
        has(TxFlags::QINQ, "RTE_MBUF_F_TX_QINQ"),
        has(TxFlags::UDP_SEGMENTATION, "RTE_MBUF_F_TX_UDP_SEG"),
        has(TxFlags::OUTER_UDP_CHECKSUM, "RTE_MBUF_F_TX_OUTER_UDP_CKSUM"),
    ];
    joined(&names)
}

fn joined(names: &[&str]) -> String {
    names.iter().filter(|name| !name.is_empty()).map(|name| format!("{name} ")).collect()
}
