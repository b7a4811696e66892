//! What a port is told and what it says of itself: plain data.

use crate::finish::CUT_BYTES_MAX;
use crate::{MacAddress, RssConfig, RssInfo, RxOffloads, TxOffloads};
use pollux_mempool::MbufPool;

/// Configuration of an rx queue.
#[derive(Clone, Debug)]
pub struct RxQueueConfig {
    /// Number of descriptors; 0 selects the driver's default.
    pub descriptors: u16,
    /// Pool of its mbufs.
    pub pool: MbufPool,
    /// The parts that each packet is split into, from its beginning on, in place of mbufs of `pool` alone; for queues of
    /// which [`RxOffloads::BUFFER_SPLIT`] is asked. None: packets are not split.
    pub segments: Vec<RxSegment>,
    /// Rx offloads of this queue, in addition to [`PortConfig::rx_offloads`].
    pub offloads: RxOffloads,
    /// [`Port::start`](crate::Port::start) leaves it stopped; [`Port::rx_queue_start`](crate::Port::rx_queue_start) starts
    /// it. Only where [`PortInfo::queue_control`].
    pub deferred_start: bool,
}

impl RxQueueConfig {
    /// The driver's default number of descriptors, with mbufs from `pool`.
    #[must_use]
    pub fn new(pool: MbufPool) -> Self {
        let (segments, offloads) = (Vec::new(), RxOffloads::empty());
        Self { descriptors: 0, pool, segments, offloads, deferred_start: false }
    }
}

/// One part of each packet that a queue receives.
///
/// A part takes as many bytes as its length says, if the packet has them; the next part begins behind it. What is left
/// behind the last part goes into whole mbufs of the last pool there is. A packet's first mbuf carries all that is told of it.
/// Names and meanings are DPDK's (`lib/ethdev/rte_ethdev.h`, `struct rte_eth_rxseg_split`).
#[derive(Clone, Debug)]
pub struct RxSegment {
    /// Where the part's mbufs come from; `None`: it is not received, and counts neither in the packet's length nor in
    /// statistics.
    pub pool: Option<MbufPool>,
    /// Its bytes; 0: as many as an mbuf has room for, or all that is left of a packet where there is no pool.
    pub length: u16,
    /// How far into the mbuf's room it begins; in the first part, behind the headroom.
    pub offset: u16,
}

/// Buffer split capabilities of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitInfo {
    /// Maximum number of segments.
    pub max_segments: u16,
    /// Segments can use different pools.
    pub multi_pools: bool,
    /// Segments can have data offsets.
    pub offsets: bool,
    /// Alignment of the data offsets, in bytes.
    pub offset_align: u16,
    /// Segments can be discarded.
    pub selective: bool,
}

/// Configuration of a tx queue.
#[derive(Clone, Debug, Default)]
pub struct TxQueueConfig {
    /// Number of descriptors; 0 selects the driver's default.
    pub descriptors: u16,
    /// Tx offloads of this queue, in addition to [`PortConfig::tx_offloads`].
    pub offloads: TxOffloads,
    /// As [`RxQueueConfig::deferred_start`].
    pub deferred_start: bool,
}

/// Configuration of a port: one entry per queue, and settings that stay unchanged when `None`.
#[derive(Clone, Debug, Default)]
pub struct PortConfig {
    /// Rx queues.
    pub rx_queues: Vec<RxQueueConfig>,
    /// Tx queues.
    pub tx_queues: Vec<TxQueueConfig>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Promiscuous mode. Ports without an address filter ignore it; they always receive all frames.
    pub promiscuous: Option<bool>,
    /// All-multicast mode. Ports without an address filter ignore it.
    pub all_multicast: Option<bool>,
    /// Leave packets that find the addresses of neighbours (ARP, neighbour discovery) to the kernel, whose RDMA needs them, even where
    /// all others are received. A port whose kernel sees them anyway, or that has none, ignores it.
    pub neighbours_by_kernel: Option<bool>,
    /// Rx offloads of all rx queues, out of [`PortInfo::rx_offloads`].
    pub rx_offloads: RxOffloads,
    /// Tx offloads of all tx queues, out of [`PortInfo::tx_offloads`].
    pub tx_offloads: TxOffloads,
    /// What packets to be sent may ask for, whoever received them: the ports' [`PortInfo::rx_open`] together. What of it the port
    /// offers is added to `tx_offloads`; the rest is done in software in front of the driver ([`finish`](crate::finish)), with
    /// mbufs of the packet's own pool. None: packets are taken to ask for no more than `tx_offloads`.
    pub open: TxOffloads,
    /// Frames longer than one buffer arrive as chains ([`RxOffloads::SCATTER`]), or are dropped and counted as too long.
    /// `None`: they arrive where the port can do that.
    pub scatter: Option<bool>,
    /// The longest packet joined of several that is received; a longer one is dropped and counted as too long. `None`: as
    /// long as the port makes them.
    pub max_lro_bytes: Option<u32>,
    /// RSS configuration. `None` selects the driver's default; `Some` without fields disables RSS.
    pub rss: Option<RssConfig>,
    /// Enables rx interrupts, so that lcores may sleep; see [`RxQueue::enable_interrupt`](crate::RxQueue).
    pub rx_interrupts: bool,
}

impl PortConfig {
    /// `rx` queues fed from one pool and `tx` queues, all of the driver's default size.
    #[must_use]
    pub fn queues(rx: usize, tx: usize, pool: &MbufPool) -> Self {
        Self {
            rx_queues: vec![RxQueueConfig::new(pool.clone()); rx],
            tx_queues: vec![TxQueueConfig::default(); tx],
            ..Self::default()
        }
    }
}

/// Limits of a descriptor count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// Minimum.
    pub min: u16,
    /// Maximum.
    pub max: u16,
    /// Alignment: counts are multiples of this.
    pub align: u16,
    /// Any count inside the limits is accepted and rounded up to the next power of two.
    pub power_of_two: bool,
    /// Default.
    pub default: u16,
}

impl Default for DescriptorLimits {
    fn default() -> Self {
        Self { min: 1, max: u16::MAX, align: 1, power_of_two: false, default: 1024 }
    }
}

impl DescriptorLimits {
    /// Descriptors that a ring has where `wanted` were asked for: 0 becomes the default, others are rounded up to the alignment
    /// and moved inside the limits, as DPDK's `rte_eth_dev_adjust_nb_rx_tx_desc` does; then to the power of two.
    #[must_use]
    pub fn adjust(&self, wanted: u16) -> u16 {
        let count = if wanted == 0 { self.default } else { self.inside(wanted) };
        if !self.power_of_two || count == 0 {
            return count;
        }
        let largest = 1 << self.max.max(1).ilog2();
        count.checked_next_power_of_two().map_or(largest, |rounded| rounded.min(largest))
    }

    /// Returns whether the port accepts this count.
    #[must_use]
    pub fn allow(&self, count: u16) -> bool {
        count != 0 && self.inside(count) == count
    }

    fn inside(&self, wanted: u16) -> u16 {
        let align = u32::from(self.align.max(1));
        let largest = u32::from(self.max) / align * align;
        let rounded = u32::from(wanted).next_multiple_of(align);
        let smallest = u32::from(self.min).next_multiple_of(align);
        u16::try_from(rounded.max(smallest).min(largest)).unwrap_or(u16::MAX)
    }
}

/// Capabilities and limits of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Driver name, as in a device argument: `net_null`.
    pub driver: &'static str,
    /// The interface or file behind the port, if any.
    pub device: Option<String>,
    /// Maximum number of rx queues; 0 for a transmit-only port.
    pub max_rx_queues: u16,
    /// Maximum number of tx queues; 0 for a receive-only port.
    pub max_tx_queues: u16,
    /// Limits of the rx descriptor count.
    pub rx_descriptors: DescriptorLimits,
    /// Limits of the tx descriptor count.
    pub tx_descriptors: DescriptorLimits,
    /// Minimum MTU.
    pub min_mtu: u32,
    /// Maximum MTU.
    pub max_mtu: u32,
    /// Minimum data room of an rx mbuf after the headroom, in bytes.
    pub min_rx_room: usize,
    /// An rx queue holds one mbuf a descriptor while it waits, so that its pool must have as many.
    pub rx_holds_mbufs: bool,
    /// Maximum number of MAC addresses, the port's own included.
    pub max_mac_addresses: usize,
    /// Maximum length of the multicast address list.
    pub max_multicast_addresses: usize,
    /// Index of the kernel interface behind the port.
    pub interface_index: Option<u32>,
    /// NUMA node of the device, if known.
    pub socket: Option<u32>,
    /// Rx offload capabilities of the port.
    pub rx_offloads: RxOffloads,
    /// Those of them that can be enabled per rx queue.
    pub rx_queue_offloads: RxOffloads,
    /// Tx offload capabilities of the port.
    pub tx_offloads: TxOffloads,
    /// Those of them that can be enabled per tx queue.
    pub tx_queue_offloads: TxOffloads,
    /// The device may cease to do some of `tx_offloads` while the port runs ([`TxBurst::lacks`](crate::driver::TxBurst::lacks)).
    pub tx_offloads_vary: bool,
    /// What received packets may ask of whoever sends them on: checksums that a sender on the same machine left open, packets
    /// that are still to be cut. A port that hands on packets as another one received them has none of its own.
    pub rx_open: TxOffloads,
    /// Maximum size of a TSO packet in bytes, headers included; 0 without TSO.
    pub max_tso_bytes: u32,
    /// Maximum length of the headers of a TSO packet in bytes, tunnel headers included.
    pub max_tso_header_bytes: u16,
    /// Maximum size of an LRO packet in bytes; 0 without LRO.
    pub max_lro_bytes: u32,
    /// Buffer split capabilities; `None` without [`RxOffloads::BUFFER_SPLIT`].
    pub split: Option<SplitInfo>,
    /// Maximum number of segments (mbufs) of a transmitted packet.
    pub max_tx_segments: u16,
    /// [`TxQueue::tx_prepare`](crate::TxQueue::tx_prepare) writes the sum of the pseudo-header, length included, to where a
    /// TCP or UDP checksum is to be filled in: the port counts on it.
    pub tx_pseudo_sums: bool,
    /// RSS capabilities; `None` without RSS.
    pub rss: Option<RssInfo>,
    /// Queues can be started and stopped individually, and deferred at [`Port::start`](crate::Port::start).
    pub queue_control: bool,
    /// Rx interrupts are supported.
    pub rx_interrupts: bool,
    /// Bytes of the longest received frame besides the MTU's payload: headers, tags, check sequence. `None`: frames come in
    /// whatever their length, as from a file or joined by a kernel.
    pub rx_frame_overhead: Option<u16>,
}

impl Default for PortInfo {
    fn default() -> Self {
        Self {
            driver: "",
            device: None,
            max_rx_queues: 1,
            max_tx_queues: 1,
            rx_descriptors: DescriptorLimits::default(),
            tx_descriptors: DescriptorLimits::default(),
            // RFC 791: every host takes a datagram of 68 bytes.
            min_mtu: 68,
            max_mtu: 65_535,
            min_rx_room: 0,
            rx_holds_mbufs: false,
            max_mac_addresses: 1,
            max_multicast_addresses: 0,
            interface_index: None,
            socket: None,
            rx_offloads: RxOffloads::empty(),
            rx_queue_offloads: RxOffloads::empty(),
            tx_offloads: TxOffloads::empty(),
            tx_queue_offloads: TxOffloads::empty(),
            tx_offloads_vary: false,
            rx_open: TxOffloads::empty(),
            max_tso_bytes: 0,
            max_tso_header_bytes: u16::MAX,
            max_lro_bytes: 0,
            split: None,
            max_tx_segments: u16::MAX,
            tx_pseudo_sums: false,
            rss: None,
            queue_control: false,
            rx_interrupts: false,
            rx_frame_overhead: None,
        }
    }
}

impl PortInfo {
    /// Whether packets that ask for what is in `open` may ask for more than a queue set up for `offloads` does.
    pub(crate) fn leaves_open(&self, open: TxOffloads, offloads: TxOffloads) -> bool {
        let cuts = open.intersects(TxOffloads::TCP_TSO | TxOffloads::UDP_TSO);
        let all_of_any_length = self.max_tso_bytes >= CUT_BYTES_MAX
            && self.max_tso_header_bytes == u16::MAX
            && self.max_tx_segments == u16::MAX;
        let all = offloads.contains(open) && !self.tx_offloads_vary;
        // Chains alone are for the driver to send or refuse.
        !(open - TxOffloads::MULTI_SEGS).is_empty() && !(all && (all_of_any_length || !cuts))
    }
}

/// The addresses a port was given beside its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) further: Vec<MacAddress>,
    pub(crate) multicast: Vec<MacAddress>,
    /// Ascending.
    pub(crate) vlans: Vec<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_count_is_brought_inside_the_limits() {
        let limits = DescriptorLimits { min: 64, max: 1000, align: 32, default: 512, power_of_two: false };
        for (wanted, adjusted) in [(0, 512), (1, 64), (65, 96), (992, 992), (993, 992), (u16::MAX, 992)] {
            assert_eq!(limits.adjust(wanted), adjusted, "{wanted}");
            assert_eq!(limits.allow(wanted), wanted == adjusted && wanted != 0, "{wanted}");
        }
        assert_eq!(DescriptorLimits::default().adjust(u16::MAX), u16::MAX);
    }

    #[test]
    fn a_driver_that_rounds_takes_any_count() {
        let limits =
            DescriptorLimits { min: 8, max: 1000, power_of_two: true, ..DescriptorLimits::default() };
        for (wanted, adjusted) in [(0, 512), (1, 8), (8, 8), (9, 16), (300, 512), (513, 512), (u16::MAX, 512)]
        {
            assert_eq!(limits.adjust(wanted), adjusted, "{wanted}");
            assert_eq!(limits.allow(wanted), (8..=1000).contains(&wanted), "{wanted}");
        }
        let most = DescriptorLimits { power_of_two: true, ..DescriptorLimits::default() };
        assert_eq!(most.adjust(u16::MAX), 32_768);
    }
}
