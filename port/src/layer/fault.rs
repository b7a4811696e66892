//! A layer that does to packets what bad wires do. From a seed: the same calls meet the same faults.

use super::{Layer, pass_rx, pass_tx};
use crate::driver::{InBurst, Moved, RxBurst, RxSetup, TxBurst, TxSetup};
use crate::{Direction, QueueId, RxDrop, TxDrop};
use pollux_mempool::{BURST_MAX, Burst, Mbuf, MbufPool};
use std::collections::VecDeque;

/// Most packets a queue holds back at once; beyond it they pass undelayed.
const HELD_MAX: usize = 1024;

/// What happens to packets, as shares from 0 to 1 of those that pass.
///
/// As text: `drop:0.01,duplicate:0.01,reorder:0.1,corrupt:0.001,delay:0.05,bursts:3,pool-empty:1000/500,seed:7,on:rx`, each part
/// optional, with or without square brackets around.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultPlan {
    /// Lost, and counted as such.
    pub drop: f64,
    /// Followed by a copy.
    pub duplicate: f64,
    /// Overtaken by the packet behind.
    pub reorder: f64,
    /// One bit turned.
    pub corrupt: f64,
    /// Held back for `bursts` calls.
    pub delay: f64,
    /// How long a delay is.
    pub bursts: u32,
    /// From this rx call of a queue on (from 1), for so many calls, its pool is empty: what is free there is held.
    pub pool_empty: Option<(u64, u64)>,
    /// From where all dice start. Each queue and direction has dice of its own.
    pub seed: u64,
    /// Faults on rx.
    pub rx: bool,
    /// Faults on tx.
    pub tx: bool,
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self {
            drop: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            delay: 0.0,
            bursts: 1,
            pool_empty: None,
            seed: 1,
            rx: true,
            tx: true,
        }
    }
}

/// What a fault's text is made of.
const ALLOWED: &str = "allowed are drop, duplicate, reorder, corrupt and delay (between 0 and 1), bursts, pool-empty \
                       (rx calls AT/FOR), seed and on (rx, tx, both), such as [drop:0.01,seed:7]";

impl FaultPlan {
    /// Reads the text form.
    ///
    /// # Errors
    /// What is wrong, as the end of a sentence that begins with the value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        for part in inside.split(',') {
            let (key, value) = part
                .split_once(':')
                .ok_or_else(|| format!("has a part \"{part}\" without ':'; {ALLOWED}"))?;
            let share = || {
                let share: Option<f64> = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                share.ok_or_else(|| format!("gives {key} as \"{value}\"; it must be between 0 and 1"))
            };
            match key {
                "drop" => plan.drop = share()?,
                "duplicate" => plan.duplicate = share()?,
                "reorder" => plan.reorder = share()?,
                "corrupt" => plan.corrupt = share()?,
                "delay" => plan.delay = share()?,
                "bursts" => {
                    let bursts = value.parse().ok().filter(|bursts| (1..=1_000_000).contains(bursts));
                    plan.bursts = bursts
                        .ok_or_else(|| format!("gives bursts as \"{value}\"; 1 to 1000000 are allowed"))?;
                }
                "pool-empty" => plan.pool_empty = Some(stretch(value)?),
                "seed" => {
                    plan.seed = value
                        .parse()
                        .map_err(|_| format!("gives seed as \"{value}\", which is not a whole number"))?;
                }
                "on" => {
                    (plan.rx, plan.tx) = match value {
                        "rx" => (true, false),
                        "tx" => (false, true),
                        "both" => (true, true),
                        _ => return Err(format!("gives on as \"{value}\"; rx, tx and both are allowed")),
                    }
                }
                _ => {
                    return Err(format!("has a part \"{key}\"; {ALLOWED}"));
                }
            }
        }
        Ok(plan)
    }
}

/// A stretch of calls.
fn stretch(text: &str) -> Result<(u64, u64), String> {
    let read = |text: &str| text.parse::<u64>().ok().filter(|calls| (1..=1_000_000_000).contains(calls));
    let both = text.split_once('/').and_then(|(at, calls)| Some((read(at)?, read(calls)?)));
    both.ok_or_else(|| {
        format!("gives pool-empty as \"{text}\"; write it as AT/FOR, two counts of rx calls from 1, such as pool-empty:1000/500")
    })
}

/// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014, figure 17): short, and the
/// same on every machine.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// True in that share of calls. Always draws, so that changing one share does not move the others' dice.
    fn falls(&mut self, share: f64) -> bool {
        // 53 bits are what an f64 holds exactly.
        ((self.next() >> 11) as f64) < share * (1_u64 << 53) as f64
    }

    fn below(&mut self, bound: usize) -> usize {
        // The bias is below 2^-32 for any frame's length.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

/// The layer.
#[derive(Debug)]
pub struct Faults {
    plan: FaultPlan,
}

impl Faults {
    /// Faults as planned.
    #[must_use]
    pub fn new(plan: FaultPlan) -> Self {
        Self { plan }
    }

    fn mischief(&self, direction: Direction, queue: QueueId) -> Mischief {
        let lane = u64::from(queue.0) << 1 | u64::from(direction == Direction::Tx);
        let mut dice = Dice(self.plan.seed);
        // A jump of one draw per lane would let neighbours follow each other; a drawn start does not.
        dice.0 = dice.next() ^ Dice(lane).next();
        Mischief {
            plan: self.plan.clone(),
            dice,
            now: 0,
            held: VecDeque::with_capacity(HELD_MAX),
            dropped: 0,
        }
    }
}

impl Layer for Faults {
    fn rx(&mut self, setup: &RxSetup, inner: Box<dyn RxBurst>) -> Box<dyn RxBurst> {
        if !self.plan.rx {
            return inner;
        }
        let mischief = self.mischief(Direction::Rx, setup.queue);
        let drought = self.plan.pool_empty.map(|(from, calls)| Drought::new(setup.pool.clone(), from, calls));
        Box::new(FaultyRx { inner, mischief, drought, fresh: Burst::new(), counters: setup.counters.clone() })
    }

    fn tx(&mut self, setup: &TxSetup, inner: Box<dyn TxBurst>) -> Box<dyn TxBurst> {
        if !self.plan.tx {
            return inner;
        }
        let mischief = self.mischief(Direction::Tx, setup.queue);
        Box::new(FaultyTx { inner, mischief, ready: Burst::new(), counters: setup.counters.clone() })
    }
}

/// What one queue does to its packets.
struct Mischief {
    plan: FaultPlan,
    dice: Dice,
    /// Calls so far.
    now: u64,
    /// Packets held back, each with the call at which it is due. Not sorted: delays and reorders differ in length.
    held: VecDeque<(u64, Mbuf)>,
    dropped: u64,
}

impl Mischief {
    /// Begins a call: what is due goes out first, as far as there is room.
    fn release(&mut self, out: &mut Burst, limit: usize) {
        self.now += 1;
        let mut place = 0;
        while place < self.held.len() && out.len() < limit {
            if self.held[place].0 <= self.now {
                let (_, mbuf) = self.held.remove(place).expect("the place is below the length");
                out.push(mbuf);
            } else {
                place += 1;
            }
        }
    }

    /// Passes one packet on, or not. There is room for one in `out`.
    fn pass(&mut self, mut mbuf: Mbuf, out: &mut Burst, first: usize, limit: usize) {
        let drop = self.dice.falls(self.plan.drop);
        let corrupt = self.dice.falls(self.plan.corrupt);
        let duplicate = self.dice.falls(self.plan.duplicate);
        let delay = self.dice.falls(self.plan.delay);
        let reorder = self.dice.falls(self.plan.reorder);
        if drop {
            self.dropped += 1;
            return;
        }
        if corrupt {
            self.corrupt(&mut mbuf);
        }
        let copy = if duplicate { mbuf.pool().and_then(|pool| mbuf.copy(&pool)) } else { None };
        if delay {
            self.hold(mbuf, u64::from(self.plan.bursts), out, limit);
        } else if reorder && out.len() > first {
            // The packet before this one is overtaken.
            let before = out.pop().expect("longer than `first`");
            out.push(mbuf);
            if out.len() < limit { out.push(before) } else { self.hold(before, 1, out, limit) }
        } else {
            out.push(mbuf);
        }
        if let Some(copy) = copy {
            if out.len() < limit { out.push(copy) } else { self.hold(copy, 1, out, limit) }
        }
    }

    /// Holds a packet back for some calls; when too many are held, it goes out if it can, and else is lost.
    fn hold(&mut self, mbuf: Mbuf, calls: u64, out: &mut Burst, limit: usize) {
        if self.held.len() < HELD_MAX {
            self.held.push_back((self.now + calls, mbuf));
        } else if out.len() < limit {
            out.push(mbuf);
        } else {
            self.dropped += 1;
        }
    }

    fn corrupt(&mut self, mbuf: &mut Mbuf) {
        // Bytes that somebody else sees as well stay as they are.
        let Some(data) = mbuf.data_mut().filter(|data| !data.is_empty()) else { return };
        let bit = self.dice.below(data.len() * 8);
        data[bit / 8] ^= 1 << (bit % 8);
    }
}

/// Holds what is free in a queue's pool, for a stretch of calls.
struct Drought {
    pool: MbufPool,
    from: u64,
    to: u64,
    held: Vec<Mbuf>,
}

impl Drought {
    fn new(pool: MbufPool, from: u64, calls: u64) -> Self {
        let held = Vec::with_capacity(pool.capacity());
        Self { pool, from, to: from.saturating_add(calls), held }
    }

    /// Begins a call.
    fn begin(&mut self, now: u64) {
        if now >= self.to {
            self.held.clear();
        } else if now >= self.from {
            let room = self.held.capacity() - self.held.len();
            self.held.extend(std::iter::from_fn(|| self.pool.alloc()).take(room));
        }
    }
}

#[repr(align(128))]
struct FaultyRx {
    inner: Box<dyn RxBurst>,
    mischief: Mischief,
    drought: Option<Drought>,
    fresh: Burst,
    counters: std::sync::Arc<crate::RxCounters>,
}

impl RxBurst for FaultyRx {
    fn rx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let first = burst.len();
        let limit = first + max;
        self.mischief.release(burst, limit);
        if let Some(drought) = &mut self.drought {
            drought.begin(self.mischief.now);
        }
        self.inner.rx_burst(inside, &mut self.fresh, limit - burst.len());
        for mbuf in self.fresh.drain(..) {
            // A duplicate may have taken the last place.
            if burst.len() < limit {
                self.mischief.pass(mbuf, burst, first, limit);
            } else {
                self.mischief.hold(mbuf, 1, burst, limit);
            }
        }
        let dropped = std::mem::take(&mut self.mischief.dropped);
        if dropped > 0 {
            self.counters.drop_for(RxDrop::Injected, dropped);
        }
        Moved::of(&burst[first..])
    }

    pass_rx!();
}

#[repr(align(128))]
struct FaultyTx {
    inner: Box<dyn TxBurst>,
    mischief: Mischief,
    /// Taken from the caller, and past the faults; what the driver does not take waits here.
    ready: Burst,
    counters: std::sync::Arc<crate::TxCounters>,
}

impl TxBurst for FaultyTx {
    fn tx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let mut moved = Moved::NONE;
        if !self.ready.is_empty() {
            moved = self.inner.tx_burst(inside, &mut self.ready);
        }
        if self.ready.is_empty() {
            self.mischief.release(&mut self.ready, BURST_MAX);
            let take = burst.len().min(self.ready.remaining_capacity());
            for mbuf in burst.drain(..take) {
                if self.ready.len() < BURST_MAX {
                    self.mischief.pass(mbuf, &mut self.ready, 0, BURST_MAX);
                } else {
                    self.mischief.hold(mbuf, 1, &mut self.ready, BURST_MAX);
                }
            }
            let more = self.inner.tx_burst(inside, &mut self.ready);
            moved = Moved { packets: moved.packets + more.packets, bytes: moved.bytes + more.bytes };
        }
        let dropped = std::mem::take(&mut self.mischief.dropped);
        if dropped > 0 {
            self.counters.drop_for(TxDrop::Injected, dropped);
        }
        moved
    }

    pass_tx!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_is_read_and_nonsense_refused() {
        let plan = FaultPlan::parse(
            "[drop:0.25,duplicate:0.5,reorder:1,corrupt:0,delay:0.1,bursts:9,pool-empty:3/4,seed:42,on:tx]",
        );
        let wanted = FaultPlan {
            drop: 0.25,
            duplicate: 0.5,
            reorder: 1.0,
            corrupt: 0.0,
            delay: 0.1,
            bursts: 9,
            pool_empty: Some((3, 4)),
            seed: 42,
            rx: false,
            tx: true,
        };
        assert_eq!(plan, Ok(wanted));
        assert_eq!(FaultPlan::parse("seed:3").map(|plan| plan.seed), Ok(3));
        for bad in [
            "",
            "drop",
            "drop:",
            "drop:1.01",
            "drop:-0.1",
            "drop:NaN",
            "bursts:0",
            "pool-empty:5",
            "pool-empty:0/5",
            "pool-empty:5/x",
            "seed:x",
            "on:up",
            "dorp:1",
        ] {
            assert!(FaultPlan::parse(bad).is_err(), "{bad}");
        }
        for (bad, said) in [("x", "has a part \"x\" without ':'; "), ("dorp:1", "has a part \"dorp\"; ")] {
            assert_eq!(FaultPlan::parse(bad), Err(format!("{said}{ALLOWED}")));
        }
    }

    #[test]
    fn dice_are_fair_and_repeat() {
        let count = |seed| {
            let mut dice = Dice(seed);
            (0..100_000).filter(|_| dice.falls(0.01)).count()
        };
        assert!((800..1200).contains(&count(7)), "{}", count(7));
        assert_eq!(count(7), count(7));
        let mut dice = Dice(3);
        assert!((0..1000).all(|_| dice.below(3) < 3));
        assert!(!(0..1000).any(|_| dice.falls(0.0)));
        assert!((0..1000).all(|_| dice.falls(1.0)));
    }

    #[test]
    fn queues_and_directions_have_dice_of_their_own() {
        let faults = Faults::new(FaultPlan::default());
        let starts: std::collections::HashSet<u64> = (0..8)
            .flat_map(|queue| [Direction::Rx, Direction::Tx].map(|direction| (direction, QueueId(queue))))
            .map(|(direction, queue)| faults.mischief(direction, queue).dice.0)
            .collect();
        assert_eq!(starts.len(), 16);
    }
}
