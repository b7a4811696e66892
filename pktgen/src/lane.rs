//! The loop: what is due is made and sent, what comes back is measured.
//!
//! ```text
//!   schedule ─ so many ─► stream ─ packets ─► tx queue        rx queue ─► marks ─► trackers
//!      ▲                                        │ full: held, and sent before anything else
//!      └── the clock, once a round ◄────────────┘
//! ```
//!
//! An lcore owns an rx and a tx queue of each of its ports, and goes round them (`pollux_kit::rounds`). It neither allocates, nor locks, nor
//! calls the system unless a driver must.

use std::sync::Arc;

use pollux_eal::LcoreContext;
use pollux_eal::clock::Clock;
use pollux_kit::Polled;
use pollux_kit::rounds::Rounds;
use pollux_mempool::{BURST_MAX, Burst, MbufPool};
use pollux_port::{RxQueue, TxQueue};

use crate::answer::Answerer;
use crate::count::LaneCounters;
use crate::frame::FCS;
use crate::schedule::Schedule;
use crate::task::{Content, Desk, Pace, Start, Task};

/// Packets received and sent at once.
const BURST: usize = 32;

/// Bytes of a burst's frames, check sequences counted.
#[cold]
fn bytes(burst: &Burst) -> u64 {
    burst.iter().map(|mbuf| u64::from(mbuf.pkt_len()) + FCS as u64).sum()
}

/// A port's queues on one lcore, and what is sent and measured there.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) rx: RxQueue,
    tx: TxQueue,
    pool: MbufPool,
    answerer: Option<Answerer>,
    counters: Arc<LaneCounters>,
    start: Start,
    desk: Desk,
    task: Task,
    /// Tasks that were begun.
    tasks: u64,
    /// When the task began, and when it ends.
    begun: u64,
    end: u64,
    sending: bool,
    /// What the tx queue did not take.
    held: Burst,
    /// Whose packets these are; the next one is asked first.
    turn: usize,
    burst: Burst,
}

impl Polled for Lane {
    fn rx_queue(&mut self) -> &mut RxQueue {
        &mut self.rx
    }

    fn has_work(&self) -> bool {
        self.sending || !self.held.is_empty() || self.answerer.as_ref().is_some_and(Answerer::holds)
    }
}

impl Lane {
    /// A lane that waits for its first task.
    pub(crate) fn new(
        (rx, tx): (RxQueue, TxQueue),
        pool: MbufPool,
        answerer: Option<Answerer>,
        counters: Arc<LaneCounters>,
        (start, desk): (Start, Desk),
    ) -> Self {
        Self {
            rx,
            tx,
            pool,
            answerer,
            counters,
            start,
            desk,
            task: Task::default(),
            tasks: 0,
            begun: 0,
            end: 0,
            sending: false,
            held: Burst::new(),
            turn: 0,
            burst: Burst::new(),
        }
    }

    /// Takes the task that was put last and begins with it.
    #[cold]
    fn begin(&mut self, tasks: u64, clock: &Clock, now: u64) {
        self.tasks = tasks;
        self.desk.exchange(&mut self.task);
        // Packets of the last task that were never taken.
        self.held.clear();
        self.turn = 0;
        let Task { senders, time, counters, .. } = &mut self.task;
        (self.begun, self.sending) = (now, !senders.is_empty());
        counters.begun.add(now);
        // Half of the counter's range, to which moments are compared: centuries.
        self.end = now.wrapping_add(time.map_or(u64::MAX / 4, |time| clock.cycles(time).0));
        for sender in senders {
            sender.schedule = Some(Schedule::new(clock, sender.pattern, sender.pps, sender.seed, now));
            if let Content::Replayed(replay) = &mut sender.content {
                replay.begin(now);
            }
        }
        if !self.sending {
            counters.ended.add(1);
        }
    }

    /// No more is sent.
    #[cold]
    fn close(&mut self, now: u64) {
        let until = if self.is_past(now) { self.end } else { now };
        let Task { senders, counters, .. } = &mut self.task;
        for sender in senders {
            if let Some(mut schedule) = sender.schedule.take() {
                let rest = schedule.rest(until).min(sender.left);
                sender.counters.offered.add(rest);
            }
        }
        self.sending = false;
        counters.sending.add(until.wrapping_sub(self.begun));
        counters.ended.add(1);
    }

    /// Sends what was not taken before; whether packets moved.
    #[cold]
    fn send_held(&mut self, now: u64) -> bool {
        let before = bytes(&self.held);
        let sent = self.tx.tx_burst(&mut self.held) as u64;
        self.counters.sent.add(sent);
        if let Some(sender) = self.task.senders.get_mut(self.turn) {
            sender.counters.sent.add(sent);
            if let Some(gaps) = sender.gaps.as_mut().filter(|_| sent > 0) {
                gaps.left(sent, now);
            }
            if let Content::Replayed(_) = sender.content {
                sender.counters.bytes.add(before - bytes(&self.held));
            }
        }
        sent > 0
    }

    /// Makes and sends what is due; whether packets moved.
    #[inline(always)]
    fn send(&mut self, clock: &Clock, now: u64) -> bool {
        let mut moved = false;
        // Nothing is due behind the end.
        let until = if self.is_past(now) { self.end } else { now };
        let count = self.task.senders.len();
        for _ in 0..count {
            self.turn = if self.turn + 1 >= count { 0 } else { self.turn + 1 };
            let Some(sender) = self.task.senders.get_mut(self.turn) else { return moved };
            if let Some(pps) = sender.pace.as_mut().and_then(Pace::changed) {
                sender.go_on_at(pps, clock, until);
            }
            let Some(schedule) = &mut sender.schedule else { continue };
            let (due, missed) = schedule.due(until, sender.left.min(BURST as u64));
            if due + missed == 0 {
                continue;
            }
            // Of a stream with a count none is given up: it only comes later.
            let missed = if sender.counted { 0 } else { missed };
            let (made, over) = match &mut sender.content {
                Content::Made(stream) => {
                    (stream.make(&self.pool, &mut self.burst, due as usize, now) as u64, false)
                }
                Content::Replayed(replay) => {
                    // Without a rate, at the times of the file.
                    let moment = sender.pps.is_none().then_some(now);
                    let taken = replay.take(&mut self.burst, due as usize, moment) as u64;
                    (taken, taken < due && replay.is_over())
                }
            };
            sender.left = if over { 0 } else { sender.left - made };
            // Behind the last packet of a file none is due.
            sender.counters.offered.add(if over { made } else { due + missed });
            if made == 0 {
                continue;
            }
            let replayed = matches!(sender.content, Content::Replayed(_));
            let before = if replayed { bytes(&self.burst) } else { 0 };
            let sent = self.tx.tx_burst(&mut self.burst) as u64;
            sender.counters.sent.add(sent);
            if let Some(gaps) = sender.gaps.as_mut().filter(|_| sent > 0) {
                gaps.left(sent, clock.now().0);
            }
            if replayed {
                sender.counters.bytes.add(before - bytes(&self.burst));
            }
            self.counters.sent.add(sent);
            moved |= sent > 0;
            if !self.burst.is_empty() {
                // This stream goes on when they are gone, and no other overtakes it.
                self.burst.move_front(BURST_MAX, &mut self.held);
                return moved;
            }
        }
        moved
    }

    #[inline(always)]
    fn is_past(&self, now: u64) -> bool {
        self.end.wrapping_sub(now) > u64::MAX / 2
    }

    /// Whether nothing is left to be sent.
    fn is_done(&self, now: u64) -> bool {
        self.is_past(now)
            || self.task.is_halted()
            || self.task.senders.iter().all(|sender| sender.left == 0) && self.held.is_empty()
    }

    #[inline(always)]
    fn step(&mut self, clock: &Clock) -> bool {
        let now = clock.now().0;
        let tasks = self.start.given();
        if tasks != self.tasks {
            self.begin(tasks, clock, now);
        }
        let mut moved = false;
        if !self.held.is_empty() {
            moved = self.send_held(now);
        }
        if self.sending && self.held.is_empty() {
            moved |= self.send(clock, now);
        }
        if self.sending && self.is_done(now) {
            self.close(now);
        }
        if self.rx.rx_burst(&mut self.burst, BURST) != 0 {
            moved = true;
            if let Some(receiver) = &mut self.task.receiver {
                receiver.measure(&self.burst, clock.now().0);
            }
            if let Some(answerer) = &mut self.answerer {
                answerer.take(&mut self.burst);
            }
            self.burst.clear();
        }
        if let Some(answerer) = &mut self.answerer {
            moved |= answerer.send(&mut self.tx);
        }
        moved
    }
}

/// All that an lcore does.
#[derive(Debug)]
pub(crate) struct Lanes(pub(crate) Vec<Lane>);

impl Rounds for Lanes {
    type Polled = Lane;

    #[inline(always)]
    fn round(&mut self, lcore: &LcoreContext) -> bool {
        let clock = lcore.clock();
        let mut moved = false;
        for lane in &mut self.0 {
            moved |= lane.step(&clock);
        }
        moved
    }

    fn polled(&mut self) -> &mut [Lane] {
        &mut self.0
    }

    fn finish(&mut self, lcore: &LcoreContext) {
        let now = lcore.clock().now().0;
        for lane in &mut self.0 {
            if lane.sending {
                lane.close(now);
            }
        }
    }
}
