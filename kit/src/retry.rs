//! A burst that its destination did not take whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pollux_eal::LcoreContext;
use pollux_eal::clock::{Cycles, Nanos};
use pollux_mempool::Burst;
use pollux_port::TxQueue;

use crate::meter::StreamCounters;

/// Packets that had to be let go. Written by the lcore that sends, read by the report.
#[derive(Debug, Default)]
pub struct Lost {
    tx_full: AtomicU64,
    port_gone: AtomicU64,
}

impl Lost {
    /// By reason: the destination took nothing for too long; it disappeared.
    #[must_use]
    pub fn by_reason(&self) -> [(&'static str, u64); 2] {
        [
            ("tx full", self.tx_full.load(Ordering::Relaxed)),
            ("port gone", self.port_gone.load(Ordering::Relaxed)),
        ]
    }
}

impl StreamCounters for Lost {
    fn lost(&self) -> Vec<(&'static str, u64)> {
        self.by_reason().into()
    }
}

/// Tries a burst again that its destination did not take, and lets it go when it never will: after a time in which nothing was
/// taken, or when the port is gone. Meanwhile the source's own queue holds what comes. One for each destination and its burst.
///
/// ```no_run
/// # use pollux_eal::LcoreContext;
/// # use pollux_kit::Retry;
/// # use pollux_mempool::Burst;
/// # use pollux_port::{RxQueue, TxQueue};
/// /// One burst in, one burst out; called round after round.
/// fn step(lcore: &LcoreContext, rx: &mut RxQueue, tx: &mut TxQueue, burst: &mut Burst, retry: &mut Retry) {
///     if !burst.is_empty() {
///         retry.send(lcore, tx, burst);
///     } else {
///         rx.rx_burst(burst, 32);
///         tx.tx_burst(burst);
///     }
/// }
/// ```
#[derive(Debug)]
pub struct Retry {
    /// When the destination first refused what is in the burst.
    held_since: Option<Cycles>,
    patience: Nanos,
    lost: Arc<Lost>,
}

impl Retry {
    /// One that holds a burst back for up to `patience` while nothing of it is taken.
    #[must_use]
    pub fn new(patience: Nanos) -> Self {
        Self { held_since: None, patience, lost: Arc::default() }
    }

    /// What it had to let go.
    #[must_use]
    pub fn lost(&self) -> Arc<Lost> {
        Arc::clone(&self.lost)
    }

    /// Sends what was not taken before; how many packets were taken now. After the patience the burst is emptied.
    ///
    /// An empty burst ends the wait, and the next one has the whole patience: who empties a burst that is held back calls this once
    /// more.
    ///
    /// Neither allocates nor locks; meant for the rare round in which something was left.
    #[cold]
    pub fn send(&mut self, lcore: &LcoreContext, tx: &mut TxQueue, burst: &mut Burst) -> usize {
        if burst.is_empty() {
            self.held_since = None;
            return 0;
        }
        let sent = tx.tx_burst(burst);
        if sent > 0 {
            self.held_since = None;
            return sent;
        }
        let clock = lcore.clock();
        let now = clock.now();
        let since = *self.held_since.get_or_insert(now);
        if tx.is_gone() {
            self.let_go(burst, |lost| &lost.port_gone);
        } else if now - since > clock.cycles(self.patience) {
            self.let_go(burst, |lost| &lost.tx_full);
        }
        0
    }

    /// Sends all that is left, or lets it go, at the end of a loop.
    pub fn finish(&mut self, lcore: &LcoreContext, tx: &mut TxQueue, burst: &mut Burst) {
        while !burst.is_empty() {
            self.send(lcore, tx, burst);
        }
    }

    fn let_go(&mut self, burst: &mut Burst, reason: impl Fn(&Lost) -> &AtomicU64) {
        reason(&self.lost).fetch_add(burst.len() as u64, Ordering::Relaxed);
        burst.clear();
        self.held_since = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use pollux_bringup::{Bringup, PortRequest};
    use pollux_config::CommandLine;
    use pollux_mempool::MbufPool;
    use pollux_port::PortId;

    use super::*;

    /// A tx queue that takes nothing: its port stands still.
    fn standing_still() -> (Bringup, TxQueue, MbufPool) {
        let line = ["retry", "-l", "0", "--no-huge", "--vdev", "net_null0"];
        let line = CommandLine::parse(line).expect("a line");
        let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let (mut queues, pool) = bringup.start_ports(&[PortId(0)], &PortRequest::new()).expect("up");
        bringup.ports.get_mut(PortId(0)).expect("a port").stop().expect("stops");
        (bringup, queues.remove(0).tx.remove(0), pool)
    }

    #[test]
    fn a_burst_waits_for_its_destination_and_no_longer_than_allowed() {
        let (mut bringup, mut tx, pool) = standing_still();
        let mut retry = Retry::new(Nanos(20_000_000));
        let lost = retry.lost();
        let main = bringup.eal.lcores().main();
        let work = move |lcore: &LcoreContext| {
            let mut burst = Burst::new();
            pool.alloc_up_to(&mut burst, 5);
            let begin = Instant::now();
            assert_eq!((retry.send(lcore, &mut tx, &mut burst), burst.len()), (0, 5), "held back");
            retry.finish(lcore, &mut tx, &mut burst);
            (begin.elapsed(), retry, tx, pool)
        };
        let (waited, mut retry, mut tx, pool) =
            bringup.eal.launch(main, work).expect("launched").wait().expect("no panic");
        assert!(waited >= Duration::from_millis(20), "{waited:?}");
        assert_eq!(lost.by_reason(), [("tx full", 5), ("port gone", 0)]);
        bringup.ports.get_mut(PortId(0)).expect("a port").start().expect("starts");
        let work = move |lcore: &LcoreContext| {
            let mut burst = Burst::new();
            pool.alloc_up_to(&mut burst, 3);
            (retry.send(lcore, &mut tx, &mut burst), burst.len())
        };
        let sent = bringup.eal.launch(main, work).expect("launched").wait().expect("no panic");
        assert_eq!(sent, (3, 0));
        assert_eq!(lost.by_reason(), [("tx full", 5), ("port gone", 0)], "nothing more");
    }

    #[test]
    fn a_burst_after_one_that_was_emptied_has_the_whole_patience() {
        let (bringup, mut tx, pool) = standing_still();
        let patience = Duration::from_millis(50);
        let mut retry = Retry::new(patience.into());
        let lost = retry.lost();
        let main = bringup.eal.lcores().main();
        let work = move |lcore: &LcoreContext| {
            let mut burst = Burst::new();
            pool.alloc_up_to(&mut burst, 5);
            let first = (retry.send(lcore, &mut tx, &mut burst), burst.len());
            burst.clear();
            let none = retry.send(lcore, &mut tx, &mut burst);
            std::thread::sleep(2 * patience);
            pool.alloc_up_to(&mut burst, 3);
            (first, none, retry.send(lcore, &mut tx, &mut burst), burst.len())
        };
        let done = bringup.eal.launch(main, work).expect("launched").wait().expect("no panic");
        assert_eq!(done, ((0, 5), 0, 0, 3), "the second is held back, too");
        assert_eq!(lost.by_reason(), [("tx full", 0), ("port gone", 0)]);
    }
}
