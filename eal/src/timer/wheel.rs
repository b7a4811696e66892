//! The wheel of one lcore: timers with a payload, no locks, no allocation after set-up.

use std::ops::{Deref, DerefMut};

use super::TimerError;
use super::bucket::{BUCKETS, Buckets, CHUNK, FINEST, NOTHING, SLOT_BITS};
use crate::barrier::prefetch_write;

/// A timer of one wheel. Stale once the timer was removed, also when its place is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// Result of disarming a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disarmed {
    /// The timer was armed and will not fire.
    Prevented,
    /// It was not armed: never, already disarmed, or a single shot that has fired (or is firing: in its own callback).
    Idle,
    /// There is no such timer; it was removed.
    Gone,
}

/// Counters of a timer wheel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WheelStats {
    /// Number of timers.
    pub timers: usize,
    /// Number of armed timers.
    pub armed: usize,
    /// Maximum number of timers.
    pub capacity: usize,
    /// Number of callbacks run.
    pub fired: u64,
    /// Timers moved to a finer bucket or, re-armed to a later deadline, to where they belong.
    pub moved: u64,
}

/// `Node::bucket` of a timer that is not armed.
const IDLE: u16 = u16::MAX;
/// `Node::bucket` of a place without a timer.
const FREE: u16 = u16::MAX - 1;
const _: () = assert!(BUCKETS < FREE as usize);

/// 32 bytes with a payload of up to 8, and never across a cache line: arming costs one miss.
#[repr(align(32))]
#[derive(Clone, Copy, Debug)]
struct Node<T> {
    /// In the caller's units; not before `Timers::floor` was when it was armed.
    deadline: u64,
    payload: T,
    /// Where in the buckets; the next free node when free.
    pos: u32,
    generation: u32,
    /// Where it is filed: at or before where its deadline belongs.
    bucket: u16,
    periodic: bool,
}
const _: () = assert!(size_of::<Node<u64>>() == 32);

/// Most timers of one wheel; positions in the buckets are 32 bits.
pub const TIMERS_MAX: usize = 1 << 31;

/// Where the firings of a periodic timer belong, however late they are.
#[derive(Clone, Copy, Debug, Default)]
struct Rhythm {
    deadline: u64,
    period: u64,
}

const NONE: u32 = u32::MAX;

/// The timers of a [`Wheel`]: what a callback may use while the wheel turns.
#[derive(Debug)]
pub struct Timers<T> {
    nodes: Vec<Node<T>>,
    /// Of those that are periodic; apart, because single shots need not load it.
    rhythms: Vec<Rhythm>,
    free: u32,
    capacity: usize,
    buckets: Buckets,
    /// `deadline >> shift` is a tick.
    shift: u32,
    /// The tick that the buckets are arranged round: all before it has been handled.
    cursor: u64,
    /// Earliest time that something can be armed for: the tick behind what the running, or last, `manage` handles.
    floor: u64,
    /// No bucket begins before this time, in the caller's units.
    next: u64,
    now: u64,
    /// The bucket being emptied, between calls too if a limit or a panic ended one; the cursor stays in it until it is.
    /// `NOTHING`, which is always empty, if there is none.
    draining: usize,
    stats: WheelStats,
}

/// A hierarchical timing wheel, for one thread.
///
/// See the [module's page](super) for the design and for what is promised.
#[derive(Debug)]
pub struct Wheel<T> {
    timers: Timers<T>,
}

impl<T: Copy> Wheel<T> {
    /// A wheel for `capacity` timers with deadlines counted in units of 1/`hz` s (cycles, nanoseconds), of which `now` is
    /// the present count. Its resolution is the largest power of two of units that is not over 1 us, or one unit.
    ///
    /// Takes about 45 bytes a timer with a payload of 8, allocated here once.
    ///
    /// # Errors
    /// `capacity` is 0 or over [`TIMERS_MAX`].
    pub fn new(capacity: usize, hz: u64, now: u64) -> Result<Self, TimerError> {
        if capacity == 0 || capacity > TIMERS_MAX {
            return Err(TimerError::Capacity { capacity });
        }
        let shift = (hz / 1_000_000).max(1).ilog2();
        let tick = (now >> shift).min((u64::MAX >> shift) - 1);
        Ok(Wheel {
            timers: Timers {
                nodes: Vec::with_capacity(capacity),
                rhythms: Vec::with_capacity(capacity),
                free: NONE,
                capacity,
                buckets: Buckets::new(capacity),
                shift,
                cursor: tick,
                floor: (tick + 1) << shift,
                next: u64::MAX,
                now,
                draining: NOTHING,
                stats: WheelStats { capacity, ..WheelStats::default() },
            },
        })
    }

    /// Calls `handler(timers, id, payload)` for every timer expired at `now` and returns their number.
    ///
    /// Hot: one comparison when nothing is due. `now` must come from the clock of the deadlines; a `now` before an
    /// earlier one does nothing.
    #[inline(always)]
    pub fn manage(&mut self, now: u64, handler: impl FnMut(&mut Timers<T>, TimerId, T)) -> usize {
        if now < self.timers.next {
            return 0;
        }
        self.timers.turn(now, usize::MAX, handler)
    }

    /// As [`Wheel::manage`], but handles at most about `limit` timers (callbacks and moves between buckets, up to 14
    /// more) and leaves the rest to the next call: for loops that must not stay away from their queues for long.
    #[inline(always)]
    pub fn manage_some(
        &mut self,
        now: u64,
        limit: usize,
        handler: impl FnMut(&mut Timers<T>, TimerId, T),
    ) -> usize {
        if now < self.timers.next {
            return 0;
        }
        self.timers.turn(now, limit, handler)
    }

    /// Returns a time before which no timer expires, up to which a loop may sleep. `None` if no timer is armed.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        (self.timers.stats.armed != 0).then_some(self.timers.next)
    }
}

impl<T> Deref for Wheel<T> {
    type Target = Timers<T>;

    fn deref(&self) -> &Timers<T> {
        &self.timers
    }
}

impl<T> DerefMut for Wheel<T> {
    fn deref_mut(&mut self) -> &mut Timers<T> {
        &mut self.timers
    }
}

impl<T: Copy> Timers<T> {
    /// Adds a disarmed timer.
    ///
    /// # Errors
    /// As many timers exist as the wheel has room for.
    pub fn insert(&mut self, payload: T) -> Result<TimerId, TimerError> {
        let index = if self.free != NONE {
            let index = self.free;
            let node = &mut self.nodes[index as usize];
            self.free = node.pos;
            node.payload = payload;
            node.bucket = IDLE;
            index
        } else if self.nodes.len() < self.capacity {
            self.nodes.push(Node {
                deadline: 0,
                payload,
                pos: 0,
                generation: 0,
                bucket: IDLE,
                periodic: false,
            });
            self.rhythms.push(Rhythm::default());
            self.nodes.len() as u32 - 1
        } else {
            return Err(TimerError::Full { capacity: self.capacity });
        };
        self.stats.timers += 1;
        Ok(TimerId { index, generation: self.nodes[index as usize].generation })
    }

    /// Disarms and removes a timer; gives its payload back, or `None` if there is no such timer.
    pub fn remove(&mut self, id: TimerId) -> Option<T> {
        self.disarm(id);
        let node = self.node(id)?;
        node.generation = node.generation.wrapping_add(1);
        node.bucket = FREE;
        let payload = node.payload;
        let free = self.free;
        self.nodes[id.index as usize].pos = free;
        self.free = id.index;
        self.stats.timers -= 1;
        Some(payload)
    }

    /// Arms a timer to fire once at `deadline`, whatever it was doing before. `false` if there is no such timer.
    ///
    /// Hot: one cache miss for a timer not touched lately; no search, no allocation. A deadline in the past fires with
    /// the next `manage`; armed by a callback, with the one after the running one. `u64::MAX` is never.
    #[inline]
    pub fn arm(&mut self, id: TimerId, deadline: u64) -> bool {
        self.set(id, deadline, false)
    }

    /// Arms a timer to fire at `first` and then every `period` after it (at least 1), whatever it was doing before.
    /// `false` if there is no such timer.
    ///
    /// Deadlines are `first + n * period`: lateness does not add up. A timer that fell behind fires once a `manage`
    /// until it has caught up.
    pub fn arm_periodic(&mut self, id: TimerId, first: u64, period: u64) -> bool {
        let set = self.set(id, first, true);
        if set {
            self.rhythms[id.index as usize] = Rhythm { deadline: first, period: period.max(1) };
        }
        set
    }

    /// Disarms a timer. It stays and can be armed again.
    pub fn disarm(&mut self, id: TimerId) -> Disarmed {
        let Some(node) = self.node(id) else { return Disarmed::Gone };
        let (bucket, pos) = (node.bucket, node.pos);
        if bucket == IDLE {
            return Disarmed::Idle;
        }
        node.bucket = IDLE;
        self.stats.armed -= 1;
        self.unfile(bucket.into(), pos);
        Disarmed::Prevented
    }

    /// Returns the payload of a timer.
    pub fn payload(&mut self, id: TimerId) -> Option<&mut T> {
        self.node(id).map(|node| &mut node.payload)
    }

    /// Returns the next deadline of an armed timer.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<u64> {
        let node = self.nodes.get(id.index as usize)?;
        let deadline = if node.periodic { self.rhythms[id.index as usize].deadline } else { node.deadline };
        (node.generation == id.generation && node.bucket != IDLE).then_some(deadline)
    }

    /// Returns the `now` of the current or the last `manage`.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Units of time in which deadlines are told apart: never early, and late by less than this.
    #[must_use]
    pub fn resolution(&self) -> u64 {
        1 << self.shift
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> WheelStats {
        self.stats
    }

    #[inline(always)]
    fn node(&mut self, id: TimerId) -> Option<&mut Node<T>> {
        // A free place has a generation that no id has yet.
        self.nodes.get_mut(id.index as usize).filter(|node| node.generation == id.generation)
    }

    #[inline(always)]
    fn set(&mut self, id: TimerId, deadline: u64, periodic: bool) -> bool {
        let deadline = deadline.clamp(self.floor, self.never());
        let tick = self.tick(deadline);
        let to = self.bucket(tick);
        let Some(node) = self.node(id) else { return false };
        node.deadline = deadline;
        node.periodic = periodic;
        let from = node.bucket;
        // Buckets are numbered in the order of time. Filed at or before where it now belongs, it stays there: when that
        // bucket comes up, it moves on.
        if usize::from(from) <= to {
            // Where it belongs elsewhere, that is later than all of this bucket, which is cheaper to note than to tell apart.
            self.buckets.note(from.into(), tick);
            return true;
        }
        if usize::from(from) < BUCKETS {
            let pos = node.pos;
            self.unfile(from.into(), pos);
        } else {
            self.stats.armed += 1;
        }
        self.file(id.index, tick, to);
        true
    }

    /// The last tick's time. That tick is not reached, so that no sum above it can overflow.
    #[inline(always)]
    fn never(&self) -> u64 {
        u64::MAX >> self.shift << self.shift
    }

    /// The first tick that is not before `deadline`, which is not after `never`.
    #[inline(always)]
    fn tick(&self, deadline: u64) -> u64 {
        let tick = deadline >> self.shift;
        tick + u64::from(tick << self.shift != deadline)
    }

    /// The bucket of a tick not before the cursor: the level is the highest byte in which they differ.
    #[inline(always)]
    fn bucket(&self, tick: u64) -> usize {
        let level = ((tick ^ self.cursor) | 1).ilog2() / SLOT_BITS;
        let slot = tick >> (level * SLOT_BITS) & ((1 << SLOT_BITS) - 1);
        ((level << SLOT_BITS) as usize) | slot as usize
    }

    /// The first tick of a bucket: the cursor with the level's byte replaced and those below it zero.
    #[inline(always)]
    fn start(&self, bucket: usize) -> u64 {
        let (level, slot) = (bucket as u32 >> SLOT_BITS, (bucket & ((1 << SLOT_BITS) - 1)) as u64);
        let low = level * SLOT_BITS;
        let above = u64::MAX.checked_shl(low + SLOT_BITS).unwrap_or(0);
        self.cursor & above | slot << low
    }

    #[inline(always)]
    fn file(&mut self, index: u32, tick: u64, bucket: usize) {
        let pos = self.buckets.push(bucket, index, tick);
        let node = &mut self.nodes[index as usize];
        node.bucket = bucket as u16;
        node.pos = pos;
        let low = (bucket as u32 >> SLOT_BITS) * SLOT_BITS;
        self.next = self.next.min((tick >> low << low) << self.shift);
    }

    #[inline(always)]
    fn unfile(&mut self, bucket: usize, pos: u32) {
        if let Some(moved) = self.buckets.remove(bucket, pos) {
            self.nodes[moved as usize].pos = pos;
        }
    }

    fn turn(&mut self, now: u64, limit: usize, mut handler: impl FnMut(&mut Timers<T>, TimerId, T)) -> usize {
        let target = (now >> self.shift).min((u64::MAX >> self.shift) - 1);
        self.now = self.now.max(now);
        self.floor = self.floor.max((target + 1) << self.shift);
        // Until the end is reached, the next call must come in again: also after a panic of the handler.
        self.next = 0;
        let (mut fired, mut handled) = (0, 0);
        loop {
            if self.buckets.is_empty(self.draining) {
                let first = self.buckets.first();
                let start = first.map(|bucket| self.start(bucket));
                match (first, start) {
                    (Some(bucket), Some(start)) if start <= target => {
                        self.draining = bucket;
                        // At the first tick that has timers they are called from here, rather than moved to that tick first.
                        // All finer buckets are empty, so that they stay right when the cursor goes there.
                        let earliest = self.buckets.earliest(bucket).max(start);
                        self.cursor = if earliest <= target { earliest } else { start };
                    }
                    _ => {
                        // Nothing begins up to `target`, so every bucket stays right when the cursor goes there.
                        self.cursor = self.cursor.max(target);
                        self.draining = NOTHING;
                        self.next = start.map_or(u64::MAX, |start| start << self.shift);
                        return fired;
                    }
                }
            }
            if handled >= limit {
                return fired;
            }
            if self.is_due_next() {
                let (calls, moves) = self.fire_chunk(&mut handler);
                fired += calls;
                handled += calls + moves;
            } else {
                handled += self.cascade_chunk();
            }
        }
    }

    /// Whether the last timer of the bucket that is being emptied belongs to the cursor's tick, as all do of the finest level
    /// but those armed for later since.
    #[inline(always)]
    fn is_due_next(&self) -> bool {
        let is_due = |index: u32| self.nodes[index as usize].deadline <= self.cursor << self.shift;
        self.draining < FINEST || self.buckets.last(self.draining).is_some_and(is_due)
    }

    /// Empties the last chunk of a bucket, calling those that belong to the cursor's tick and moving others on. Tells how many
    /// callbacks it called and timers it moved.
    ///
    /// Each timer leaves the bucket just before its callback, so the callbacks find all others filed as ever.
    fn fire_chunk(&mut self, handler: &mut impl FnMut(&mut Timers<T>, TimerId, T)) -> (usize, usize) {
        let (bucket, time) = (self.draining, self.cursor << self.shift);
        let count = self.warm(bucket);
        let (mut calls, mut moves) = (0, 0);
        for _ in 0..count {
            let Some(index) = self.buckets.pop(bucket) else { break };
            let node = &mut self.nodes[index as usize];
            if node.deadline > time {
                moves += 1;
                self.refile(index);
                continue;
            }
            let (id, payload) = (TimerId { index, generation: node.generation }, node.payload);
            if node.periodic {
                self.file_next_period(index);
            } else {
                node.bucket = IDLE;
                self.stats.armed -= 1;
            }
            self.stats.fired += 1;
            calls += 1;
            handler(self, id, payload);
        }
        self.stats.moved += moves as u64;
        (calls, moves)
    }

    /// Asks for the timers of the chunk that comes two after the last one, so that the misses on them overlap with one another
    /// and with the work on the last one. Tells how many the last one has.
    #[inline(always)]
    fn warm(&self, bucket: usize) -> usize {
        let (count, next) = self.buckets.look_ahead(bucket);
        for &index in next {
            prefetch_write(&raw const self.nodes[index as usize]);
        }
        count
    }

    /// Moves the last chunk of a coarser bucket on to finer ones. Tells how many timers it moved.
    fn cascade_chunk(&mut self) -> usize {
        let mut chunk = [0; CHUNK];
        self.warm(self.draining);
        let count = self.buckets.take_chunk(self.draining, &mut chunk);
        for &index in &chunk[..count] {
            self.refile(index);
        }
        self.stats.moved += count as u64;
        count
    }

    /// Files a timer, which is in no bucket now, where its deadline belongs: in the cursor's own tick if it is due.
    #[inline(always)]
    fn refile(&mut self, index: u32) {
        let tick = self.tick(self.nodes[index as usize].deadline).max(self.cursor);
        self.file(index, tick, self.bucket(tick));
    }

    #[cold]
    fn file_next_period(&mut self, index: u32) {
        let rhythm = &mut self.rhythms[index as usize];
        rhythm.deadline = rhythm.deadline.saturating_add(rhythm.period);
        let deadline = rhythm.deadline.clamp(self.floor, self.never());
        self.nodes[index as usize].deadline = deadline;
        let tick = self.tick(deadline);
        self.file(index, tick, self.bucket(tick));
    }
}

#[cfg(test)]
mod tests;
