//! What the device and its interface count, beside what the queues count themselves.
//!
//! Source of the names: DPDK `drivers/net/mlx5/linux/mlx5_ethdev_os.c`, `mlx5_counters_init`, with the interface's own names
//! beside them.

use std::borrow::Cow;
use std::sync::Arc;

use pollux_port::{RxCounters, RxDrop, TxCounters, TxDrop};

use super::port::slot::Slots;
use crate::eth::backend::Backend;
use crate::netdev::{Losses, Lost, Netdev};

/// Names of statistics, and the interface's for them.
const NAMES: &[(&str, &str)] = &[
    ("rx_unicast_bytes", "rx_vport_unicast_bytes"),
    ("rx_multicast_bytes", "rx_vport_multicast_bytes"),
    ("rx_broadcast_bytes", "rx_vport_broadcast_bytes"),
    ("rx_unicast_packets", "rx_vport_unicast_packets"),
    ("rx_multicast_packets", "rx_vport_multicast_packets"),
    ("rx_broadcast_packets", "rx_vport_broadcast_packets"),
    ("tx_unicast_bytes", "tx_vport_unicast_bytes"),
    ("tx_multicast_bytes", "tx_vport_multicast_bytes"),
    ("tx_broadcast_bytes", "tx_vport_broadcast_bytes"),
    ("tx_unicast_packets", "tx_vport_unicast_packets"),
    ("tx_multicast_packets", "tx_vport_multicast_packets"),
    ("tx_broadcast_packets", "tx_vport_broadcast_packets"),
    ("rx_wqe_errors", "rx_wqe_err"),
    ("rx_phy_crc_errors", "rx_crc_errors_phy"),
    ("rx_phy_in_range_len_errors", "rx_in_range_len_errors_phy"),
    ("rx_phy_symbol_errors", "rx_symbol_err_phy"),
    ("tx_phy_errors", "tx_errors_phy"),
    ("tx_phy_packets", "tx_packets_phy"),
    ("rx_phy_packets", "rx_packets_phy"),
    ("tx_phy_bytes", "tx_bytes_phy"),
    ("rx_phy_bytes", "rx_bytes_phy"),
    ("rx_phy_discard_packets", "rx_discards_phy"),
    ("tx_phy_discard_packets", "tx_discards_phy"),
    ("rx_prio0_buf_discard_packets", "rx_prio0_buf_discard"),
    ("rx_prio0_cong_discard_packets", "rx_prio0_cong_discard"),
];

/// A counter of 32 bits that wraps, taken up into one that does not.
#[derive(Debug, Default)]
struct Wrapping {
    last: Option<u32>,
}

impl Wrapping {
    /// What was added since the last time; nothing the first time.
    fn since(&mut self, now: u64) -> u64 {
        let now = now as u32;
        let added = self.last.map_or(0, |last| now.wrapping_sub(last));
        self.last = Some(now);
        added.into()
    }
}

/// What a port remembers of counters that others keep.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Where to count packets for which there was no buffer: the device tells them for all queues together.
    missed: Option<Arc<RxCounters>>,
    out_of_buffer: Wrapping,
    total: u64,
    /// The send queues, which do not know what becomes of a packet behind them.
    senders: Vec<Arc<TxCounters>>,
    /// What the port had lost when it was last asked.
    losses: Option<Losses>,
    /// Of that, what no queue has counted as sent yet: a burst is counted when it is over.
    owed: [Lost; 2],
    /// Which of [`NAMES`] the interface has.
    named: Vec<usize>,
}

impl Counted {
    /// Begins anew, with a configuration: the list of names stays until the next.
    pub(crate) fn configured(&mut self, backend: Option<&dyn Backend>, netdev: &dyn Netdev) {
        self.update(backend, netdev);
        self.missed = None;
        self.senders.clear();
        let there = netdev.counters().unwrap_or_default();
        let has = |theirs: &str| there.iter().any(|(name, _)| name == theirs);
        self.named = (0..NAMES.len()).filter(|at| has(NAMES[*at].1)).collect();
    }

    /// A receive queue was set up.
    pub(crate) fn queue(&mut self, counters: &Arc<RxCounters>) {
        self.missed.get_or_insert_with(|| Arc::clone(counters));
    }

    /// A send queue was set up.
    pub(crate) fn sender(&mut self, counters: &Arc<TxCounters>) {
        if !self.senders.iter().any(|known| Arc::ptr_eq(known, counters)) {
            self.senders.push(Arc::clone(counters));
        }
    }

    /// Takes over what the device has counted.
    pub(crate) fn update(&mut self, backend: Option<&dyn Backend>, netdev: &dyn Netdev) {
        self.update_losses(netdev.losses());
        self.update_missed(backend, netdev);
    }

    fn update_losses(&mut self, now: Losses) {
        // What was lost before the port was there is not its own.
        let last = self.losses.replace(now).unwrap_or(now);
        let too_long = now.rx_too_long.saturating_sub(last.rx_too_long);
        if too_long > 0
            && let Some(counters) = &self.missed
        {
            counters.drop_for(RxDrop::TooLong, too_long);
        }
        let kinds = [
            (TxDrop::LinkDown, now.tx_link_down, last.tx_link_down),
            (TxDrop::Refused, now.tx_refused, last.tx_refused),
        ];
        for (at, (reason, now, last)) in kinds.into_iter().enumerate() {
            let owed = &mut self.owed[at];
            owed.packets += now.packets.saturating_sub(last.packets);
            owed.bytes += now.bytes.saturating_sub(last.bytes);
            // The device does not tell whose they were: the queues share them, none more than it sent.
            for queue in &self.senders {
                let packets = owed.packets.min(queue.packets());
                if packets > 0 {
                    let all = packets == owed.packets;
                    let bytes = if all { owed.bytes } else { owed.bytes / owed.packets * packets };
                    queue.lose(reason, packets, bytes);
                    *owed = Lost { packets: owed.packets - packets, bytes: owed.bytes - bytes };
                }
            }
        }
    }

    fn update_missed(&mut self, backend: Option<&dyn Backend>, netdev: &dyn Netdev) {
        let told = backend.and_then(|backend| backend.out_of_buffer().ok().flatten());
        let Some(now) = told.or_else(|| netdev.out_of_buffer()) else { return };
        let added = self.out_of_buffer.since(now);
        self.total += added;
        if added > 0
            && let Some(missed) = &self.missed
        {
            missed.drop_for(RxDrop::Missed, added);
        }
    }

    /// All statistics of the driver's own.
    pub(crate) fn list(&self, netdev: &dyn Netdev, slots: &Slots) -> Vec<(Cow<'static, str>, u64)> {
        let mut list: Vec<(Cow<'static, str>, u64)> = vec![("rx_out_of_buffer".into(), self.total)];
        let theirs = if self.named.is_empty() { Vec::new() } else { netdev.counters().unwrap_or_default() };
        for at in &self.named {
            let (ours, name) = NAMES[*at];
            let value = theirs.iter().find(|(theirs, _)| theirs == name).map_or(0, |(_, value)| *value);
            list.push((ours.into(), value));
        }
        let rx = slots.rx.iter().map(|slot| slot.as_ref().map(|slot| slot.control.health()));
        let tx = slots.tx.iter().map(|slot| slot.as_ref().map(|slot| slot.control.health()));
        let halves = rx.enumerate().map(|it| ("rx", it)).chain(tx.enumerate().map(|it| ("tx", it)));
        for (half, (queue, health)) in halves {
            for (name, value) in [
                ("error_completions", health.map_or(0, |health| health.failed())),
                ("bad_completions", health.map_or(0, |health| health.malformed())),
                ("recoveries", health.map_or(0, |health| health.recovered())),
            ] {
                list.push((format!("{half}_q{queue}_{name}").into(), value));
            }
            if half == "tx" {
                let silent = health.map_or(0, |health| health.silent());
                list.push((format!("tx_q{queue}_timeouts").into(), silent));
            }
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_of_the_device_may_wrap() {
        let mut counter = Wrapping::default();
        let seen: Vec<u64> = [0xffff_fff0, 0xffff_fff0, 0xffff_ffff, 3, 3, 0x1_0000_0005]
            .into_iter()
            .map(|now| counter.since(now))
            .collect();
        assert_eq!(seen, [0, 0, 15, 4, 0, 2]);
    }

    #[test]
    fn what_the_port_loses_is_dropped_by_its_queues() {
        let lost = |packets, bytes| Lost { packets, bytes };
        let queues: [Arc<TxCounters>; 2] = Default::default();
        let receiver = Arc::default();
        let mut counted = Counted::default();
        counted.update_losses(Losses { tx_link_down: lost(9, 900), rx_too_long: 4, ..Losses::default() });
        counted.queue(&receiver);
        queues.iter().for_each(|queue| counted.sender(queue));
        let now = Losses { tx_link_down: lost(12, 1200), tx_refused: lost(2, 128), rx_too_long: 9 };
        counted.update_losses(now);
        assert_eq!(receiver.dropped(RxDrop::TooLong), 5, "those from before the port are not its own");
        // Neither queue has counted anything as sent that could be taken back: that is still to come.
        assert_eq!(counted.owed, [lost(3, 300), lost(2, 128)]);
        assert!(queues.iter().all(|queue| queue.dropped(TxDrop::LinkDown) == 0 && queue.packets() == 0));
    }

    #[test]
    fn names_are_there_once() {
        let ours: std::collections::HashSet<&str> = NAMES.iter().map(|(ours, _)| *ours).collect();
        assert_eq!(ours.len(), NAMES.len());
    }
}
