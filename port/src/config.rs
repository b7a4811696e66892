//! What a port is told and what it says of itself: plain data.
use crate::finish::CUT_BYTES_MAX;
use crate::{MacAddr, RssConfig, RssInfo, RxOffloads, TxOffloads};
use pollux_mempool::MbufPool;

/// How an rx queue is set up.
#[derive(Clone, Debug)]
pub struct RxQueueConfig {
    /// Ring size; 0 takes the driver's default.
    pub descriptors: u16,
    /// Where mbufs come from.
    pub pool: MbufPool,
    /// The parts that each packet is split into, from its beginning on, in place of mbufs of `pool` alone; for queues of
    /// which [`RxOffloads::BUFFER_SPLIT`] is asked. None: packets are not split.
    pub segments: Vec<RxSegment>,
    /// What this queue does besides what [`PortConfig::rx_offloads`] asks of all.
    pub offloads: RxOffloads,
    /// [`Port::start`](crate::Port::start) leaves it stopped; [`Port::rx_queue_start`](crate::Port::rx_queue_start) starts
    /// it. Only where [`PortInfo::queue_control`].
    pub deferred_start: bool,
}

impl RxQueueConfig {
    /// The driver's default ring size, mbufs from `pool`.
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

/// What a port can do to packets that it splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitInfo {
    /// Most parts.
    pub max_segments: u16,
    /// Parts can come from different pools.
    pub multi_pools: bool,
    /// Parts can begin elsewhere than at the beginning of the room.
    pub offsets: bool,
    /// Where they do, a multiple of so many bytes away from it.
    pub offset_align: u16,
    /// Parts can be left out.
    pub selective: bool,
}

/// How a tx queue is set up.
#[derive(Clone, Debug, Default)]
pub struct TxQueueConfig {
    /// Ring size; 0 takes the driver's default.
    pub descriptors: u16,
    /// What this queue does besides what [`PortConfig::tx_offloads`] asks of all.
    pub offloads: TxOffloads,
    /// As [`RxQueueConfig::deferred_start`].
    pub deferred_start: bool,
}

/// How a port is set up: one entry per queue, and options that stay as they are when `None`.
#[derive(Clone, Debug, Default)]
pub struct PortConfig {
    /// Rx queues.
    pub rx_queues: Vec<RxQueueConfig>,
    /// Tx queues.
    pub tx_queues: Vec<TxQueueConfig>,
    /// Largest payload of a frame, in bytes.
    pub mtu: Option<u32>,
    /// Receive whatever the destination. A port without an address filter ignores it, for it does so anyway.
    pub promiscuous: Option<bool>,
    /// Receive all multicast. As above.
    pub all_multicast: Option<bool>,
    /// Leave packets that find the addresses of neighbours (ARP, neighbour discovery) to the kernel, whose RDMA needs them, even where
    /// all others are received. A port whose kernel sees them anyway, or that has none, ignores it.
    pub neighbours_by_kernel: Option<bool>,
    /// What every rx queue does; of [`PortInfo::rx_offloads`].
    pub rx_offloads: RxOffloads,
    /// What every tx queue does; of [`PortInfo::tx_offloads`].
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
    /// How received packets are spread over queues. `None`: as the driver finds best; `Some` with no fields: not at all.
    pub rss: Option<RssConfig>,
    /// Rx queues can tell of arrivals, so that their lcores may sleep; see [`RxQueue::enable_interrupt`](crate::RxQueue).
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

/// Limits on a descriptor count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// Fewest.
    pub min: u16,
    /// Most.
    pub max: u16,
    /// The count is a multiple of this.
    pub align: u16,
    /// Any count inside the limits serves, and the ring has the next power of two.
    pub power_of_two: bool,
    /// What a port takes when not told.
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

    /// True when a port takes this count.
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

/// What a port is and what it can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The driver's name, as in a device argument: `net_null`.
    pub driver: &'static str,
    /// What stands behind the port, where there is something: an interface, a file.
    pub device: Option<String>,
    /// Most rx queues; 0 for a port that only sends.
    pub max_rx_queues: u16,
    /// Most tx queues; 0 for a port that only receives.
    pub max_tx_queues: u16,
    /// Limits on an rx ring.
    pub rx_descriptors: DescriptorLimits,
    /// Limits on a tx ring.
    pub tx_descriptors: DescriptorLimits,
    /// Smallest MTU.
    pub min_mtu: u32,
    /// Largest MTU.
    pub max_mtu: u32,
    /// Fewest bytes an rx mbuf must have after the headroom.
    pub min_rx_room: usize,
    /// An rx queue holds one mbuf a descriptor while it waits, so that its pool must have as many.
    pub rx_holds_mbufs: bool,
    /// Unicast addresses the port can have, its own included.
    pub max_mac_addresses: usize,
    /// Longest list of multicast addresses.
    pub max_multicast_addresses: usize,
    /// The number of the kernel's interface behind the port.
    pub interface_index: Option<u32>,
    /// NUMA node of the device, where that is known.
    pub socket: Option<u32>,
    /// All that the port can do on receive.
    pub rx_offloads: RxOffloads,
    /// Of these, what one rx queue can do while another does not.
    pub rx_queue_offloads: RxOffloads,
    /// All that the port can do on transmit.
    pub tx_offloads: TxOffloads,
    /// Of these, what one tx queue can do while another does not.
    pub tx_queue_offloads: TxOffloads,
    /// The device may cease to do some of `tx_offloads` while the port runs ([`TxBurst::lacks`](crate::driver::TxBurst::lacks)).
    pub tx_offloads_vary: bool,
    /// What received packets may ask of whoever sends them on: checksums that a sender on the same machine left open, packets
    /// that are still to be cut. A port that hands on packets as another one received them has none of its own.
    pub rx_open: TxOffloads,
    /// Most bytes of a packet that the port cuts into segments, headers included; 0 where it cuts none.
    pub max_tso_bytes: u32,
    /// Longest headers, those of a tunnel included, in front of a payload that the device cuts.
    pub max_tso_header_bytes: u16,
    /// Most bytes of a packet that the port joins of segments; 0 where it joins none.
    pub max_lro_bytes: u32,
    /// How packets are split; `None` where they are not ([`RxOffloads::BUFFER_SPLIT`]).
    pub split: Option<SplitInfo>,
    /// Most mbufs of one packet on transmit.
    pub max_tx_segments: u16,
    /// [`TxQueue::tx_prepare`](crate::TxQueue::tx_prepare) writes the sum of the pseudo-header, length included, to where a
    /// TCP or UDP checksum is to be filled in: the port counts on it.
    pub tx_pseudo_sums: bool,
    /// Spreads received packets by a hash; `None`: it has none.
    pub rss: Option<RssInfo>,
    /// Queues stop and start by themselves, and may be left stopped by [`Port::start`](crate::Port::start).
    pub queue_control: bool,
    /// Rx queues can tell of arrivals.
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
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) further: Vec<MacAddr>,
    pub(crate) multicast: Vec<MacAddr>,
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
