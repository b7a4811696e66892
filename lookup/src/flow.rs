//! Flows with ageing: a table of one lcore, of what it keeps for each flow until no packet of it has come for some time.
//!
//! ```text
//!   burst of keys ─► find_burst ─► flow numbers ─► touch, get_mut         the number stays a flow's until it ends
//!                    insert for those that are new
//!                    expire(now, 16): looks at 16 flows a burst, in turn, and ends those whose time is over
//! ```
//!
//! A hit costs the exact match and a store of the deadline. No list is kept in order and no timer set: [`expire`](FlowTable::expire) looks at
//! a few flows on each call. A flow ends at the first look after its deadline: with `n` flows at most and `b` looked at for each burst, at
//! most `n / b` bursts later. Looking a flow up does not end it, so a packet that comes in between keeps it alive.
//!
//! Time is whatever the caller counts that does not run backwards: cycles, or milliseconds.

use crate::LookupError;
use crate::exact::{ExactMatch, Key, NO_VALUE};

/// What [`FlowTable::find_burst`] answers for a flow that is not there.
pub const NO_FLOW: u32 = NO_VALUE;

/// A place for a flow.
#[derive(Clone, Debug)]
enum Place<K, V> {
    /// The next place that is free.
    Free {
        next: u32,
    },
    Taken {
        deadline: u64,
        key: K,
        value: V,
    },
}

/// Flows by key, each with a value and a deadline. For one thread: what several shall share stands in an [`ExactMatch`].
#[derive(Debug)]
pub struct FlowTable<K, V> {
    numbers: ExactMatch<K>,
    places: Box<[Place<K, V>]>,
    /// The first and the last place that is free, where one is: the number of a flow that ended comes back as late as it can.
    free: [u32; 2],
    /// Where `expire` goes on.
    hand: usize,
}

impl<K: Key, V> FlowTable<K, V> {
    /// No flows, and room for `capacity`. All memory is taken here: a third more than keys and 4 bytes, and for each flow its key, its value
    /// and some 16 bytes.
    ///
    /// # Errors
    /// Those of [`ExactMatch::new`].
    pub fn new(capacity: usize) -> Result<Self, LookupError> {
        let numbers = ExactMatch::new(capacity)?;
        let places = (0..capacity as u32).map(|at| Place::Free { next: at + 1 }).collect();
        Ok(Self { numbers, places, free: [0, (capacity as u32).saturating_sub(1)], hand: 0 })
    }

    /// Number of flows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there is no flow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Most flows.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.places.len()
    }

    /// The number of a flow. Hot: see [`View::lookup`](crate::exact::View::lookup).
    #[inline]
    #[must_use]
    pub fn find(&self, key: &K) -> Option<u32> {
        self.numbers.view().lookup(key)
    }

    /// The numbers of flows, [`NO_FLOW`] for each that is not there. Two equal keys that are new are so twice: insert one, and find the other.
    ///
    /// # Panics
    /// If `flows` is shorter than `keys`.
    #[inline]
    pub fn find_burst(&self, keys: &[K], flows: &mut [u32]) {
        self.numbers.view().lookup_burst(keys, flows);
    }

    /// A flow's key and value, by its number.
    #[inline]
    #[must_use]
    pub fn get(&self, flow: u32) -> Option<(&K, &V)> {
        match self.places.get(flow as usize)? {
            Place::Taken { key, value, .. } => Some((key, value)),
            Place::Free { .. } => None,
        }
    }

    /// A flow's value, by its number.
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, flow: u32) -> Option<&mut V> {
        match self.places.get_mut(flow as usize)? {
            Place::Taken { value, .. } => Some(value),
            Place::Free { .. } => None,
        }
    }

    /// A packet of the flow has come: it lives until `deadline` now, later or sooner than before. Its value, if there is such a flow. Hot: a
    /// store.
    #[inline]
    pub fn touch(&mut self, flow: u32, until: u64) -> Option<&mut V> {
        match self.places.get_mut(flow as usize)? {
            Place::Taken { deadline, value, .. } => {
                *deadline = until;
                Some(value)
            }
            Place::Free { .. } => None,
        }
    }

    /// A new flow: its number. One that is there keeps its value, and lives until `deadline`. Costs some hundred cycles, allocates nothing.
    ///
    /// # Errors
    /// As many flows as the capacity, or no room for the key: [`expire`](Self::expire) makes some.
    pub fn insert(&mut self, key: &K, value: V, deadline: u64) -> Result<u32, LookupError> {
        if let Some(flow) = self.find(key) {
            self.touch(flow, deadline);
            return Ok(flow);
        }
        let [flow, _] = self.free;
        // Where no place is free the numbers are as many as they may be, and this fails.
        self.numbers.insert(key, flow)?;
        let taken = Place::Taken { deadline, key: *key, value };
        match std::mem::replace(&mut self.places[flow as usize], taken) {
            Place::Free { next } => self.free[0] = next,
            Place::Taken { .. } => unreachable!("free places are not taken"),
        }
        Ok(flow)
    }

    /// Ends a flow before its time: its value.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let flow = self.numbers.remove(key)?;
        self.end(flow).map(|(_, value)| value)
    }

    /// Looks at the next `count` places and ends each flow whose deadline has come, after telling `ended`. How many it ended. Once a burst, with
    /// a small count: the cost is a cache line a place, and some hundred cycles for each that ends.
    pub fn expire(&mut self, now: u64, count: usize, mut ended: impl FnMut(&K, V)) -> usize {
        let before = self.len();
        for _ in 0..count.min(self.places.len()) {
            let at = self.hand;
            self.hand = if at + 1 == self.places.len() { 0 } else { at + 1 };
            if let Place::Taken { deadline, key, .. } = &self.places[at]
                && *deadline <= now
            {
                let key = *key;
                self.numbers.remove(&key);
                if let Some((key, value)) = self.end(at as u32) {
                    ended(&key, value);
                }
            }
        }
        before - self.len()
    }

    /// Gives a place back.
    fn end(&mut self, flow: u32) -> Option<(K, V)> {
        let none = self.places.len() as u32;
        let place = std::mem::replace(&mut self.places[flow as usize], Place::Free { next: none });
        let [first, last] = self.free;
        if first == none {
            self.free = [flow, flow];
        } else {
            self.places[last as usize] = Place::Free { next: flow };
            self.free[1] = flow;
        }
        match place {
            Place::Taken { key, value, .. } => Some((key, value)),
            Place::Free { .. } => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Packet(u8, u8),
        Remove(u8),
        Wait(u8),
        Expire(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..40u8, any::<u8>()).prop_map(|(key, life)| Step::Packet(key, life)),
            1 => (0..40u8).prop_map(Step::Remove),
            2 => any::<u8>().prop_map(Step::Wait),
            2 => (0..40u8).prop_map(Step::Expire),
        ];
        prop::collection::vec(step, 1..300)
    }

    proptest! {
        /// Against a map: flows keep their values and numbers, end by their deadlines and not before, and all of them do.
        #[test]
        fn flows_live_until_their_deadlines(steps in steps()) {
            let mut table = FlowTable::<[u64; 2], u64>::new(30).unwrap();
            // Key to number, value, deadline.
            let mut oracle: HashMap<[u64; 2], (u32, u64, u64)> = HashMap::new();
            let (mut now, mut made) = (0u64, 0u64);
            for step in steps {
                match step {
                    Step::Packet(key, life) => {
                        let (key, until) = ([key.into(), 7], now + u64::from(life));
                        made += 1;
                        match table.insert(&key, made, until) {
                            Ok(flow) => {
                                let known = oracle.entry(key).or_insert((flow, made, until));
                                known.2 = until;
                                prop_assert_eq!((flow, *table.get(flow).unwrap().1), (known.0, known.1));
                            }
                            // Few buckets: a key's may be full a little before the table is.
                            Err(_) => prop_assert!(oracle.len() > 15 && !oracle.contains_key(&key)),
                        }
                    }
                    Step::Remove(key) => {
                        let key = [key.into(), 7];
                        prop_assert_eq!(table.remove(&key), oracle.remove(&key).map(|(_, value, _)| value));
                    }
                    Step::Wait(time) => now += u64::from(time),
                    Step::Expire(count) => {
                        let before = table.len();
                        let mut ended = Vec::new();
                        let count = table.expire(now, count.into(), |key, value| ended.push((*key, value)));
                        prop_assert_eq!((count, before - count), (ended.len(), table.len()));
                        for (key, value) in ended {
                            let (_, known, deadline) = oracle.remove(&key).unwrap();
                            prop_assert_eq!(known, value);
                            prop_assert!(deadline <= now);
                        }
                    }
                }
                prop_assert_eq!(table.len(), oracle.len());
            }
            for (key, (flow, value, _)) in &oracle {
                prop_assert_eq!(table.find(key), Some(*flow));
                prop_assert_eq!(table.get(*flow), Some((key, value)));
            }
            // One round over all places ends whatever is due.
            table.expire(now, 30, |_, _| ());
            prop_assert!(table.len() == oracle.values().filter(|(_, _, deadline)| *deadline > now).count());
        }
    }

    #[test]
    fn numbers_come_back_as_late_as_they_can() {
        let mut table = FlowTable::new(4).unwrap();
        let mut number = |key: u64, gone: &[u64]| {
            for gone in gone {
                assert_eq!(table.remove(&[*gone, 0]), Some(()));
            }
            table.insert(&[key, 0], (), 1)
        };
        let numbers = [(1, &[][..]), (2, &[]), (3, &[1]), (4, &[2]), (5, &[]), (6, &[]), (7, &[6, 3, 5])];
        let numbers = numbers.map(|(key, gone)| number(key, gone).ok());
        assert_eq!(numbers, [0, 1, 2, 3, 0, 1, 1].map(Some));
        assert_eq!([8, 9].map(|key| number(key, &[]).ok()), [2, 0].map(Some));
        assert!(number(10, &[]).is_err());
    }

    #[test]
    fn a_full_table_has_room_again_when_flows_have_ended() {
        let mut table = FlowTable::new(1000).unwrap();
        let mut inserted = 0u64;
        while table.insert(&[inserted, 0], inserted, 10).is_ok() {
            inserted += 1;
        }
        assert_eq!((inserted, table.len(), table.capacity()), (1000, 1000, 1000));
        assert_eq!(table.expire(9, 1000, |_, _| panic!("none is due")), 0);
        let mut sum = 0;
        assert_eq!(table.expire(10, 300, |_, value| sum += value), 300);
        assert_eq!(sum, (0..300).sum::<u64>());
        assert_eq!(table.expire(10, usize::MAX, |_, _| ()), 700);
        assert!(table.is_empty() && table.insert(&[1, 1], 1, 20).is_ok());
        let mut flows = [0; 2];
        table.find_burst(&[[1, 1], [0, 0]], &mut flows);
        assert_eq!((*table.touch(flows[0], 30).unwrap(), flows[1]), (1, NO_FLOW));
        assert!(table.get_mut(NO_FLOW).is_none() && table.touch(1, 0).is_none());
    }
}
