//! What a port counts.
//!
//! Packets and bytes are counted per queue by the lcore that owns the queue: plain loads and stores on a cache line of
//! its own, read by the control handle at any time. Drops are rare and may be counted by either half. Nothing is ever
//! set back: a reset remembers the values of that moment and subtracts them later.

use crate::burst::{BurstLine, BurstWatch, QueueOwner};
use crossbeam_utils::CachePadded;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! reasons {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal, $xstat:literal;)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns a description of the reason, for reports.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// Returns the name of the xstat.
            #[must_use]
            pub fn xstat_name(self) -> &'static str {
                match self { $(Self::$variant => $xstat,)* }
            }
        }
    };
}

reasons! {
    /// Why a packet that arrived did not reach the application.
    RxDrop {
        /// The device or the kernel had no free descriptor: the application polls too slowly.
        Missed = "queue full", "rx_missed_errors";
        /// The pool was empty.
        NoMbuf = "no mbuf", "rx_mbuf_allocation_errors";
        /// The frame is longer than the buffers or the MTU allow.
        TooLong = "too long", "rx_too_long_errors";
        /// The frame or its descriptor is malformed.
        Malformed = "malformed", "rx_malformed_errors";
        /// The queue splits packets, and all of this one lies in parts that have no pool.
        Unwanted = "in unwanted parts", "rx_unwanted_drops";
        /// A fault layer dropped it.
        Injected = "injected", "rx_injected_drops";
    }
}

reasons! {
    /// Why a packet that was taken for sending did not leave.
    TxDrop {
        /// The frame is longer than the port sends.
        TooLong = "too long", "tx_too_long_errors";
        /// The frame asks for an offload that the port lacks, or makes no sense.
        Malformed = "malformed", "tx_malformed_errors";
        /// The device or the kernel refused it.
        Refused = "refused", "tx_refused_errors";
        /// It lies in memory that the device was not told of: see [`Port::register_memory`](crate::Port::register_memory).
        Unregistered = "unregistered memory", "tx_unregistered_memory_errors";
        /// The link is down.
        LinkDown = "link down", "tx_link_down_errors";
        /// A fault layer dropped it.
        Injected = "injected", "tx_injected_drops";
    }
}

/// Whether a reason has an xstat of its own here: those have not for which DPDK has a basic number.
fn has_own_xstat(reason: RxDrop) -> bool {
    !matches!(reason, RxDrop::Missed | RxDrop::NoMbuf)
}

/// Whether a reason is part of `rx_errors`: what was not wanted is no error.
fn is_rx_error(reason: RxDrop) -> bool {
    has_own_xstat(reason) && reason != RxDrop::Unwanted
}

/// Counters of one rx queue.
#[derive(Debug, Default)]
pub struct RxCounters {
    moved: Arc<CachePadded<BurstLine>>,
    drops: [AtomicU64; RxDrop::ALL.len()],
}

/// Counters of one tx queue.
#[derive(Debug, Default)]
pub struct TxCounters {
    moved: Arc<CachePadded<BurstLine>>,
    drops: [AtomicU64; TxDrop::ALL.len()],
    lost_packets: AtomicU64,
    lost_bytes: AtomicU64,
}

/// What both kinds of counters have.
pub(crate) trait Counters: Default {
    /// What the queue's owner counts on.
    fn line(&self) -> &Arc<CachePadded<BurstLine>>;
}

macro_rules! counters {
    ($name:ident, $reason:ident) => {
        impl Counters for $name {
            fn line(&self) -> &Arc<CachePadded<BurstLine>> {
                &self.moved
            }
        }

        impl $name {
            /// Takes the right to begin bursts that count here; `None` while another has it.
            #[must_use]
            pub fn own(&self) -> Option<QueueOwner> {
                QueueOwner::take(&self.moved)
            }

            /// What tells a driver of bursts under way.
            #[must_use]
            pub fn watch(&self) -> BurstWatch {
                BurstWatch::of(&self.moved)
            }

            /// Counts `n` packets dropped for `reason`. Any thread may call it; it is meant to be rare.
            #[cold]
            pub fn drop_for(&self, reason: $reason, n: u64) {
                self.drops[reason as usize].fetch_add(n, Ordering::Relaxed);
            }

            /// Returns the number of packets dropped for `reason`.
            #[must_use]
            pub fn dropped(&self, reason: $reason) -> u64 {
                self.drops[reason as usize].load(Ordering::Relaxed)
            }
        }
    };
}
counters!(RxCounters, RxDrop);
counters!(TxCounters, TxDrop);

impl RxCounters {
    /// Packets that passed.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.moved.packets.get()
    }

    /// Their bytes, without the frame check sequence.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.moved.bytes.get()
    }
}

impl TxCounters {
    /// Packets that passed: those that were taken, without those lost on their way.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.moved.packets.get().saturating_sub(self.lost_packets.load(Ordering::Relaxed))
    }

    /// Their bytes, without the frame check sequence.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.moved.bytes.get().saturating_sub(self.lost_bytes.load(Ordering::Relaxed))
    }

    /// Counts packets that a burst took as sent and that did not leave after all: dropped for `reason`, and sent no more. Any
    /// thread may call it; it is meant to be rare.
    #[cold]
    pub fn lose(&self, reason: TxDrop, packets: u64, bytes: u64) {
        self.drop_for(reason, packets);
        self.lost_packets.fetch_add(packets, Ordering::Relaxed);
        self.lost_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// One queue's numbers since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Packets that passed.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped as errors.
    pub errors: u64,
}

/// A port's numbers since the last reset, under the names of DPDK's `rte_eth_stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received.
    pub ipackets: u64,
    /// Packets sent.
    pub opackets: u64,
    /// Bytes received.
    pub ibytes: u64,
    /// Bytes sent.
    pub obytes: u64,
    /// Packets lost because a queue was full.
    pub imissed: u64,
    /// Packets received and dropped as bad.
    pub ierrors: u64,
    /// Packets taken for sending that did not leave.
    pub oerrors: u64,
    /// Packets lost, or polls that brought nothing, because a pool was empty.
    pub rx_nombuf: u64,
    /// By rx queue.
    pub rx_queues: Vec<QueueStats>,
    /// By tx queue.
    pub tx_queues: Vec<QueueStats>,
}

/// One extended statistic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xstat {
    /// ID: its index in the list, the same until the port is reconfigured.
    pub id: usize,
    /// Its name, unique on the port.
    pub name: Cow<'static, str>,
    /// The count since the last reset.
    pub value: u64,
}

/// A number of dropped packets and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Received or sent.
    pub direction: crate::Direction,
    /// The reason in words.
    pub reason: &'static str,
    /// Number of packets since the last reset.
    pub packets: u64,
}

/// Collects the raw values in the order of the xstats.
pub(crate) fn raw<'a>(
    rx: impl Iterator<Item = &'a RxCounters> + Clone,
    tx: impl Iterator<Item = &'a TxCounters> + Clone,
    driver: Vec<(Cow<'static, str>, u64)>,
) -> Vec<(Cow<'static, str>, u64)> {
    let rx_drop = |reason| rx.clone().map(|queue| queue.dropped(reason)).sum::<u64>();
    let tx_drop = |reason| tx.clone().map(|queue| queue.dropped(reason)).sum::<u64>();
    let rx_errors = |queue: &RxCounters| {
        RxDrop::ALL
            .iter()
            .filter(|reason| is_rx_error(**reason))
            .map(|reason| queue.dropped(*reason))
            .sum::<u64>()
    };
    let tx_errors = |queue: &TxCounters| TxDrop::ALL.iter().map(|reason| queue.dropped(*reason)).sum::<u64>();
    // The names and order of DPDK's `eth_dev_stats_strings`, lib/ethdev/rte_ethdev.c.
    let mut list: Vec<(Cow<'static, str>, u64)> = vec![
        ("rx_good_packets".into(), rx.clone().map(RxCounters::packets).sum()),
        ("tx_good_packets".into(), tx.clone().map(TxCounters::packets).sum()),
        ("rx_good_bytes".into(), rx.clone().map(RxCounters::bytes).sum()),
        ("tx_good_bytes".into(), tx.clone().map(TxCounters::bytes).sum()),
        ("rx_missed_errors".into(), rx_drop(RxDrop::Missed)),
        ("rx_errors".into(), rx.clone().map(rx_errors).sum()),
        ("tx_errors".into(), tx.clone().map(tx_errors).sum()),
        ("rx_mbuf_allocation_errors".into(), rx_drop(RxDrop::NoMbuf)),
    ];
    for (number, queue) in rx.clone().enumerate() {
        list.push((format!("rx_q{number}_packets").into(), queue.packets()));
        list.push((format!("rx_q{number}_bytes").into(), queue.bytes()));
        list.push((format!("rx_q{number}_errors").into(), rx_errors(queue)));
    }
    for (number, queue) in tx.clone().enumerate() {
        list.push((format!("tx_q{number}_packets").into(), queue.packets()));
        list.push((format!("tx_q{number}_bytes").into(), queue.bytes()));
        list.push((format!("tx_q{number}_errors").into(), tx_errors(queue)));
    }
    list.extend(
        RxDrop::ALL
            .iter()
            .filter(|reason| has_own_xstat(**reason))
            .map(|reason| (reason.xstat_name().into(), rx_drop(*reason))),
    );
    list.extend(TxDrop::ALL.iter().map(|reason| (reason.xstat_name().into(), tx_drop(*reason))));
    list.extend(driver);
    list
}

/// The values at the last reset and those of numbers that are switched off, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Baseline {
    zero: HashMap<Cow<'static, str>, u64>,
    /// The raw value at which each has stood still since.
    off: HashMap<Cow<'static, str>, u64>,
}

impl Baseline {
    pub(crate) fn set(&mut self, raw: Vec<(Cow<'static, str>, u64)>) {
        let off = &self.off;
        self.zero = raw
            .into_iter()
            .map(|(name, value)| {
                let value = off.get(&name).copied().unwrap_or(value);
                (name, value)
            })
            .collect();
    }

    pub(crate) fn apply(&self, raw: Vec<(Cow<'static, str>, u64)>) -> Vec<Xstat> {
        raw.into_iter()
            .enumerate()
            .map(|(id, (name, value))| {
                let value = self.off.get(&name).copied().unwrap_or(value);
                let value = value.wrapping_sub(self.zero.get(&name).copied().unwrap_or(0));
                Xstat { id, name, value }
            })
            .collect()
    }

    /// Lets a number whose raw value is `value` stand still, or go on from where it stood: what happened meanwhile is
    /// never counted.
    pub(crate) fn switch(&mut self, name: Cow<'static, str>, value: u64, on: bool) {
        if !on {
            self.off.entry(name).or_insert(value);
        } else if let Some(stood) = self.off.remove(&name) {
            let zero = self.zero.entry(name).or_insert(0);
            *zero = zero.wrapping_add(value.wrapping_sub(stood));
        }
    }

    pub(crate) fn is_on(&self, name: &str) -> bool {
        !self.off.contains_key(name)
    }
}

/// Whether a number is one of those that [`PortStats`] is read from.
pub(crate) fn is_basic(name: &str) -> bool {
    const WHOLE: [&str; 8] = [
        "rx_good_packets",
        "tx_good_packets",
        "rx_good_bytes",
        "tx_good_bytes",
        "rx_missed_errors",
        "rx_errors",
        "tx_errors",
        "rx_mbuf_allocation_errors",
    ];
    let of_a_queue = || {
        let rest = name.strip_prefix("rx_q").or_else(|| name.strip_prefix("tx_q"))?;
        let (number, what) = rest.split_once('_')?;
        (number.parse::<u16>().is_ok() && ["packets", "bytes", "errors"].contains(&what)).then_some(())
    };
    WHOLE.contains(&name) || of_a_queue().is_some()
}

/// Reads the basic numbers out of the xstats, so that the two can never disagree.
pub(crate) fn basic(xstats: &[Xstat], rx_queues: usize, tx_queues: usize) -> PortStats {
    let by_name: HashMap<&str, u64> = xstats.iter().map(|xstat| (xstat.name.as_ref(), xstat.value)).collect();
    let get = |name: &str| by_name.get(name).copied().unwrap_or(0);
    let queue = |half: &str, number: usize| QueueStats {
        packets: get(&format!("{half}_q{number}_packets")),
        bytes: get(&format!("{half}_q{number}_bytes")),
        errors: get(&format!("{half}_q{number}_errors")),
    };
    PortStats {
        ipackets: get("rx_good_packets"),
        opackets: get("tx_good_packets"),
        ibytes: get("rx_good_bytes"),
        obytes: get("tx_good_bytes"),
        imissed: get("rx_missed_errors"),
        ierrors: get("rx_errors"),
        oerrors: get("tx_errors"),
        rx_nombuf: get("rx_mbuf_allocation_errors"),
        rx_queues: (0..rx_queues).map(|number| queue("rx", number)).collect(),
        tx_queues: (0..tx_queues).map(|number| queue("tx", number)).collect(),
    }
}

/// What was dropped, by reason, without those that stand at zero.
pub(crate) fn dropped(xstats: &[Xstat]) -> Vec<Dropped> {
    let get = |name: &str| xstats.iter().find(|xstat| xstat.name == name).map_or(0, |xstat| xstat.value);
    let rx = RxDrop::ALL.iter().map(|r| (crate::Direction::Rx, r.text(), get(r.xstat_name())));
    let tx = TxDrop::ALL.iter().map(|r| (crate::Direction::Tx, r.text(), get(r.xstat_name())));
    rx.chain(tx)
        .filter(|(_, _, packets)| *packets > 0)
        .map(|(direction, reason, packets)| Dropped { direction, reason, packets })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_sum_of_their_reasons_and_a_reset_subtracts() {
        let (rx, tx) = (RxCounters::default(), TxCounters::default());
        rx.own().expect("free").enter().count(3, 180);
        rx.drop_for(RxDrop::NoMbuf, 2);
        rx.drop_for(RxDrop::Missed, 4);
        rx.drop_for(RxDrop::TooLong, 5);
        rx.drop_for(RxDrop::Malformed, 6);
        rx.drop_for(RxDrop::Unwanted, 8);
        tx.drop_for(TxDrop::Refused, 7);
        let read = || raw([&rx].into_iter(), [&tx].into_iter(), vec![("device_thing".into(), 9)]);
        let mut base = Baseline::default();
        let all = base.apply(read());
        let stats = basic(&all, 1, 1);
        assert_eq!((stats.ipackets, stats.ibytes, stats.imissed, stats.rx_nombuf), (3, 180, 4, 2));
        assert_eq!(
            (stats.ierrors, stats.oerrors, stats.rx_queues[0].errors),
            (11, 7, 11),
            "unwanted is no error"
        );
        assert_eq!(dropped(&all).iter().map(|d| d.packets).sum::<u64>(), 2 + 4 + 5 + 6 + 8 + 7);
        base.set(read());
        rx.own().expect("free").enter().count(1, 60);
        let stats = basic(&base.apply(read()), 1, 1);
        assert_eq!((stats.ipackets, stats.ibytes, stats.ierrors, stats.oerrors), (1, 60, 0, 0));
    }

    #[test]
    fn what_was_lost_on_its_way_was_not_sent() {
        let tx = TxCounters::default();
        tx.own().expect("free").enter().count(5, 500);
        tx.lose(TxDrop::Refused, 2, 160);
        assert_eq!((tx.packets(), tx.bytes(), tx.dropped(TxDrop::Refused)), (3, 340, 2));
    }

    #[test]
    fn a_number_that_is_off_stands_still_and_goes_on_from_there() {
        let at = |value: u64| vec![(Cow::from("device_thing"), value)];
        let mut base = Baseline::default();
        base.set(at(100));
        let read = |base: &Baseline, value| base.apply(at(value))[0].value;
        assert_eq!(read(&base, 107), 7);
        base.switch("device_thing".into(), 107, false);
        assert!(!base.is_on("device_thing"));
        base.switch("device_thing".into(), 110, false);
        assert_eq!(read(&base, 150), 7, "switched off twice is switched off once");
        base.switch("device_thing".into(), 150, true);
        assert!(base.is_on("device_thing"));
        assert_eq!((read(&base, 150), read(&base, 153)), (7, 10));
        base.switch("device_thing".into(), 153, false);
        base.set(at(160));
        assert_eq!(read(&base, 170), 0, "a reset while off");
        base.switch("device_thing".into(), 180, true);
        assert_eq!(read(&base, 182), 2);
    }

    #[test]
    fn every_number_of_the_basic_ones_is_known_as_such() {
        let (rx, tx) = ([RxCounters::default(), RxCounters::default()], [TxCounters::default()]);
        let list = raw(rx.iter(), tx.iter(), vec![("rx_q0_ring_full".into(), 1)]);
        let other: Vec<&str> =
            list.iter().map(|(name, _)| name.as_ref()).filter(|name| !is_basic(name)).collect();
        let reasons =
            RxDrop::ALL.iter().filter(|reason| has_own_xstat(**reason)).map(|reason| reason.xstat_name());
        let mut wanted: Vec<&str> = reasons.collect();
        wanted.extend(TxDrop::ALL.iter().map(|reason| reason.xstat_name()));
        wanted.push("rx_q0_ring_full");
        assert_eq!(other, wanted);
    }

    #[test]
    fn names_are_unique_and_spelt_as_dpdk_has_them() {
        let (rx, tx) = ([RxCounters::default(), RxCounters::default()], [TxCounters::default()]);
        let list = raw(rx.iter(), tx.iter(), Vec::new());
        let names: std::collections::HashSet<&str> = list.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(names.len(), list.len());
        for name in
            ["rx_good_packets", "tx_good_bytes", "rx_q1_packets", "tx_q0_bytes", "rx_mbuf_allocation_errors"]
        {
            assert!(names.contains(name), "{name}");
        }
    }
}
