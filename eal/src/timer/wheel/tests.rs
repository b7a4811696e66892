use proptest::prelude::*;

use super::*;

const NANOS: u64 = 1_000_000_000;

fn fire(wheel: &mut Wheel<u64>, now: u64) -> Vec<u64> {
    let mut fired = Vec::new();
    wheel.manage(now, |_, _, payload| fired.push(payload));
    fired
}

#[test]
fn resolution_is_finer_than_a_microsecond() {
    for (hz, units) in [(NANOS, 512), (2_300_000_000, 2048), (1_000_000, 1), (1000, 1), (0, 1)] {
        let wheel = Wheel::<u64>::new(1, hz, 0).unwrap();
        assert_eq!(wheel.resolution(), units);
        assert!(hz < 1_000_000 || units as f64 / hz as f64 <= 1e-6);
    }
    assert_eq!(Wheel::<u64>::new(0, NANOS, 0).unwrap_err(), TimerError::Capacity { capacity: 0 });
}

#[test]
fn a_single_shot_fires_once_and_not_early() {
    let mut wheel = Wheel::new(4, 1_000_000, 0).unwrap();
    let id = wheel.insert(7).unwrap();
    assert!(wheel.arm(id, 1000));
    assert_eq!((wheel.deadline(id), wheel.next().is_some_and(|next| next <= 1000)), (Some(1000), true));
    assert!(fire(&mut wheel, 999).is_empty());
    assert_eq!(fire(&mut wheel, 1000), [7]);
    assert!(fire(&mut wheel, 5000).is_empty());
    assert_eq!((wheel.deadline(id), wheel.next()), (None, None));
    assert_eq!(wheel.disarm(id), Disarmed::Idle);
    assert!(wheel.arm(id, 10), "a deadline in the past");
    assert_eq!(fire(&mut wheel, 5001), [7]);
}

#[test]
fn a_timer_armed_earlier_or_later_fires_at_the_last_word() {
    let mut wheel = Wheel::new(4, 1_000_000, 0).unwrap();
    let id = wheel.insert(1).unwrap();
    for (first, second) in [(100, 100_000), (100_000, 100), (300, 301), (301, 300)] {
        let now = wheel.now();
        wheel.arm(id, now + first);
        wheel.arm(id, now + second);
        assert!(fire(&mut wheel, now + second - 1).is_empty(), "{first} then {second}");
        assert_eq!(fire(&mut wheel, now + second), [1], "{first} then {second}");
        assert!(fire(&mut wheel, now + 200_000).is_empty());
    }
}

#[test]
fn removed_and_disarmed_timers_do_not_fire() {
    let mut wheel = Wheel::new(2, 1_000_000, 0).unwrap();
    let (a, b) = (wheel.insert(1).unwrap(), wheel.insert(2).unwrap());
    assert_eq!(wheel.insert(3), Err(TimerError::Full { capacity: 2 }));
    wheel.arm(a, 10);
    wheel.arm(b, 10);
    assert_eq!(wheel.disarm(a), Disarmed::Prevented);
    assert_eq!(wheel.remove(b), Some(2));
    assert_eq!(wheel.remove(b), None);
    assert_eq!(wheel.disarm(b), Disarmed::Gone);
    assert!(!wheel.arm(b, 10));
    // The place is used again; the old id does not reach it.
    let c = wheel.insert(3).unwrap();
    assert_ne!(b, c);
    assert!(!wheel.arm(b, 5));
    assert!(wheel.payload(b).is_none() && wheel.deadline(b).is_none());
    wheel.arm(c, 20);
    assert_eq!(fire(&mut wheel, 100), [3]);
    assert_eq!(wheel.stats(), WheelStats { timers: 2, armed: 0, capacity: 2, fired: 1, moved: 0 });
}

#[test]
fn callbacks_may_do_anything_to_any_timer() {
    let mut wheel = Wheel::new(8, 1_000_000, 0).unwrap();
    let ids: Vec<_> = (0..4u64).map(|payload| wheel.insert(payload).unwrap()).collect();
    ids.iter().for_each(|&id| assert!(wheel.arm(id, 50)));
    let mut fired = Vec::new();
    wheel.manage(50, |timers, id, payload| {
        fired.push(payload);
        assert_eq!(timers.disarm(id), Disarmed::Idle, "a single shot is idle in its own callback");
        if fired.len() == 1 {
            // Of the three that are due with it: one is stopped, one put off, one removed.
            let others: Vec<_> = ids.iter().copied().filter(|&other| other != id).collect();
            assert_eq!(timers.disarm(others[0]), Disarmed::Prevented);
            assert!(timers.arm(others[1], 60));
            assert!(timers.remove(others[2]).is_some());
            assert!(timers.arm(id, 0), "fires with the next manage, not this one");
        }
    });
    assert_eq!(fired.len(), 1);
    assert_eq!(fire(&mut wheel, 51), fired);
    assert_eq!(fire(&mut wheel, 60).len(), 1);
    assert!(fire(&mut wheel, 1000).is_empty());
}

#[test]
fn periodic_timers_do_not_drift_and_catch_up_one_by_one() {
    let mut wheel = Wheel::new(1, NANOS, 0).unwrap();
    let id = wheel.insert(0).unwrap();
    wheel.arm_periodic(id, 1_000_003, 1_000_003);
    // Always late by half a period or so; ten thousand periods later, still on the grid.
    let (mut now, mut count) = (0, 0u64);
    while count < 10_000 {
        now += 1_500_007;
        let fired = fire(&mut wheel, now).len() as u64;
        assert!(fired <= 1);
        count += fired;
        assert_eq!(wheel.deadline(id), Some((count + 1) * 1_000_003));
    }
    // Five thousand periods behind: it catches up one a call.
    while wheel.deadline(id).unwrap() <= now {
        now += wheel.resolution();
        assert_eq!(fire(&mut wheel, now).len(), 1);
    }
    // From its own callback it can be stopped, or given another rhythm.
    now = wheel.deadline(id).unwrap() + 1000;
    wheel.manage(now, |timers, id, _| assert!(timers.arm_periodic(id, now + 5_000, 5_000)));
    wheel.manage(now + 6_000, |timers, id, _| assert_eq!(timers.disarm(id), Disarmed::Prevented));
    assert!(fire(&mut wheel, now + NANOS).is_empty());
}

#[test]
fn a_panicking_callback_loses_no_other_timer() {
    let mut wheel = Wheel::new(100, 1_000_000, 0).unwrap();
    for payload in 0..100u64 {
        let id = wheel.insert(payload).unwrap();
        wheel.arm(id, 10 + payload % 2);
    }
    let mut fired = Vec::new();
    for _ in 0..2 {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wheel.manage(100, |_, _, payload| {
                fired.push(payload);
                assert!(fired.len() != 40, "the fortieth callback panics");
            })
        }));
        assert_eq!(result.is_err(), fired.len() == 40);
    }
    fired.sort_unstable();
    assert_eq!(fired, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_limit_spreads_work_over_calls() {
    let mut wheel = Wheel::new(1000, 1_000_000, 0).unwrap();
    for payload in 0..1000u64 {
        let id = wheel.insert(payload).unwrap();
        wheel.arm(id, 70_000 + payload % 10);
    }
    let (mut fired, mut calls) = (0, 0);
    while fired < 1000 {
        fired += wheel.manage_some(80_000, 50, |_, _, _| {});
        calls += 1;
        assert!(calls < 200);
    }
    // Each but those of a bucket's first tick was moved, some twice, and all fired once; a call handles 50 to 64.
    assert!(calls >= 2000 / 64, "{calls} calls");
}

#[test]
fn timers_of_one_tick_fire_from_the_bucket_they_were_filed_in() {
    // Far enough to be filed two levels up; those of one tick come first, in any order, and are not moved on the way.
    let mut wheel = Wheel::new(300, 1_000_000, 0).unwrap();
    let ids: Vec<_> = (0..300u64).map(|payload| wheel.insert(payload).unwrap()).collect();
    for (&id, payload) in ids.iter().zip(0u64..) {
        wheel.arm(id, if payload < 200 { 70_000 } else { 70_001 + payload });
    }
    // One is armed for earlier and one for later, both within the bucket they are in.
    wheel.arm(ids[7], 69_999);
    wheel.arm(ids[8], 70_123);
    let mut order = Vec::new();
    wheel.manage(80_000, |_, _, payload| order.push(payload));
    assert_eq!(order.len(), 300);
    assert_eq!(order[0], 7);
    assert!(order[1..199].iter().all(|&payload| payload < 200 && payload != 8));
    assert_eq!(order[199], 8);
    assert!(order[200..].iter().copied().eq(200..300));
    assert!(wheel.stats().moved < 700, "{:?}", wheel.stats());
}

#[test]
fn timers_armed_together_are_moved_no_more() {
    let mut wheel = Wheel::new(1000, 1_000_000, 0).unwrap();
    for payload in 0..1000u64 {
        let id = wheel.insert(payload).unwrap();
        wheel.arm(id, 70_000);
    }
    assert_eq!(wheel.manage(80_000, |_, _, _| {}), 1000);
    assert_eq!(wheel.stats().moved, 0);
}

#[test]
fn the_end_of_time() {
    for (hz, start) in [(1_000_000, u64::MAX - 1000), (NANOS, u64::MAX - 1_000_000), (NANOS, u64::MAX)] {
        let mut wheel = Wheel::new(3, hz, start).unwrap();
        let (soon, never, past) =
            (wheel.insert(0).unwrap(), wheel.insert(1).unwrap(), wheel.insert(2).unwrap());
        wheel.arm(soon, u64::MAX - 700_000 / (NANOS / hz));
        wheel.arm(never, u64::MAX);
        wheel.arm_periodic(past, 0, u64::MAX);
        let mut fired = fire(&mut wheel, u64::MAX - 10);
        fired.extend(fire(&mut wheel, u64::MAX));
        assert!(!fired.contains(&1), "u64::MAX is never");
        assert_eq!(fired.len(), if start == u64::MAX { 0 } else { 2 });
    }
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Reaction),
    Arm(usize, u64),
    ArmPeriodic(usize, u64, u64),
    Disarm(usize),
    Remove(usize),
    Manage(u64),
    ManageSome(u64, usize),
}

/// What a timer's callback does.
#[derive(Clone, Copy, Debug)]
enum Reaction {
    Nothing,
    RearmSelf(u64),
    RearmOther(u8, u64),
    DisarmOther(u8),
    RemoveOther(u8),
}

/// Spans of all magnitudes that the wheel's levels tell apart.
fn span() -> impl Strategy<Value = u64> {
    (any::<u64>(), 16u32..64).prop_map(|(bits, shift)| bits >> shift)
}

fn reaction() -> impl Strategy<Value = Reaction> {
    prop_oneof![
        4 => Just(Reaction::Nothing),
        1 => span().prop_map(Reaction::RearmSelf),
        1 => (any::<u8>(), span()).prop_map(|(other, span)| Reaction::RearmOther(other, span)),
        1 => any::<u8>().prop_map(Reaction::DisarmOther),
        1 => any::<u8>().prop_map(Reaction::RemoveOther),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => reaction().prop_map(Op::Insert),
        6 => (any::<usize>(), span()).prop_map(|(at, span)| Op::Arm(at, span)),
        1 => (any::<usize>(), span(), span()).prop_map(|(at, span, period)| Op::ArmPeriodic(at, span, period)),
        1 => any::<usize>().prop_map(Op::Disarm),
        1 => any::<usize>().prop_map(Op::Remove),
        4 => span().prop_map(Op::Manage),
        1 => (span(), 0usize..40).prop_map(|(span, limit)| Op::ManageSome(span, limit)),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Armed {
    deadline: u64,
    period: Option<u64>,
    /// The time when it was armed: a deadline in the past cannot be met.
    at: u64,
}

#[derive(Default)]
struct Oracle {
    ids: Vec<TimerId>,
    reactions: std::collections::BTreeMap<usize, Reaction>,
    armed: std::collections::BTreeMap<usize, Armed>,
}

impl Oracle {
    fn pick(&self, at: usize) -> Option<usize> {
        (!self.ids.is_empty()).then(|| at % self.ids.len())
    }

    fn arm(&mut self, timers: &mut Timers<usize>, at: usize, deadline: u64, period: Option<u64>, now: u64) {
        let Some(at) = self.pick(at) else { return };
        let id = self.ids[at];
        let known = match period {
            Some(period) => timers.arm_periodic(id, deadline, period),
            None => timers.arm(id, deadline),
        };
        assert_eq!(known, self.reactions.contains_key(&at));
        if known {
            self.armed.insert(at, Armed { deadline, period, at: now });
        }
    }

    fn disarm(&mut self, timers: &mut Timers<usize>, at: usize) {
        let Some(at) = self.pick(at) else { return };
        let expected = match (self.reactions.contains_key(&at), self.armed.remove(&at)) {
            (false, _) => Disarmed::Gone,
            (true, None) => Disarmed::Idle,
            (true, Some(_)) => Disarmed::Prevented,
        };
        assert_eq!(timers.disarm(self.ids[at]), expected);
    }

    fn remove(&mut self, timers: &mut Timers<usize>, at: usize) {
        let Some(at) = self.pick(at) else { return };
        self.armed.remove(&at);
        assert_eq!(timers.remove(self.ids[at]), self.reactions.remove(&at).map(|_| at));
    }

    fn on_fire(&mut self, timers: &mut Timers<usize>, id: TimerId, at: usize, now: u64, last: &mut u64) {
        assert_eq!(id, self.ids[at]);
        let was = self.armed.remove(&at).expect("only what is armed fires");
        assert!(was.deadline <= now, "never early");
        // In the order of ticks; what was armed into the past counts from when it was armed.
        let tick = was.deadline.max(was.at).div_ceil(timers.resolution());
        assert!(tick + 1 >= *last, "tick {tick} after {last}");
        *last = tick.max(*last);
        if let Some(period) = was.period {
            self.armed.insert(at, Armed { deadline: was.deadline + period.max(1), at: now, ..was });
        }
        match self.reactions[&at] {
            Reaction::Nothing => {}
            Reaction::RearmSelf(span) => self.arm(timers, at, now.saturating_add(span), None, now),
            Reaction::RearmOther(other, span) => self.arm(timers, other.into(), now + span, None, now),
            Reaction::DisarmOther(other) => self.disarm(timers, other.into()),
            Reaction::RemoveOther(other) if usize::from(other) % self.ids.len() != at => {
                self.remove(timers, other.into());
            }
            Reaction::RemoveOther(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn agrees_with_an_oracle(
        ops in prop::collection::vec(op(), 1..150), hz in prop::sample::select(vec![1_000_000, NANOS, 2_300_000_000]),
        start in any::<u64>(), start_shift in 2u32..64,
    ) {
        // A start just under a power of two crosses the borders of many levels at once.
        let mut now = (start >> start_shift).next_power_of_two() - 1 + (start & 1) * (start >> 33);
        let mut wheel = Wheel::<usize>::new(40, hz, now).unwrap();
        let chunks = wheel.buckets.free_chunks();
        let resolution = wheel.resolution();
        let mut oracle = Oracle::default();
        for op in ops {
            match op {
                Op::Insert(reaction) => {
                    let at = oracle.ids.len();
                    match wheel.insert(at) {
                        Ok(id) => {
                            oracle.ids.push(id);
                            oracle.reactions.insert(at, reaction);
                        }
                        Err(error) => {
                            prop_assert_eq!(error, TimerError::Full { capacity: 40 });
                            prop_assert_eq!(oracle.reactions.len(), 40);
                        }
                    }
                }
                Op::Arm(at, span) => oracle.arm(&mut wheel, at, now + span, None, now),
                Op::ArmPeriodic(at, span, period) => oracle.arm(&mut wheel, at, now + span, Some(period), now),
                Op::Disarm(at) => oracle.disarm(&mut wheel, at),
                Op::Remove(at) => oracle.remove(&mut wheel, at),
                Op::Manage(span) => {
                    now += span;
                    let mut last = 0;
                    let mut calls = 0;
                    let fired = wheel.manage(now, |timers, id, at| {
                        calls += 1;
                        oracle.on_fire(timers, id, at, now, &mut last);
                    });
                    prop_assert_eq!(fired, calls);
                    for armed in oracle.armed.values() {
                        let latest = (armed.deadline + resolution - 1).max(armed.at + resolution);
                        prop_assert!(latest > now, "late: {:?} at {}", armed, now);
                    }
                }
                Op::ManageSome(span, limit) => {
                    now += span;
                    let mut last = 0;
                    let fired = wheel.manage_some(now, limit, |timers, id, at| {
                        oracle.on_fire(timers, id, at, now, &mut last);
                    });
                    prop_assert!(fired <= limit + 14);
                }
            }
            let stats = wheel.stats();
            prop_assert_eq!((stats.timers, stats.armed), (oracle.reactions.len(), oracle.armed.len()));
            if let Some(earliest) = oracle.armed.values().map(|armed| armed.deadline.max(now) + resolution).min() {
                prop_assert!(wheel.next().is_some_and(|next| next <= earliest));
            } else {
                prop_assert_eq!(wheel.next(), None);
            }
        }
        for at in 0..oracle.ids.len() {
            oracle.remove(&mut wheel, at);
        }
        prop_assert_eq!(wheel.buckets.free_chunks(), chunks, "every chunk came back");
        prop_assert_eq!(wheel.buckets.first(), None);
    }
}
