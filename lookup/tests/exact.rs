//! Keys against the standard library's map, and readers on other threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_lookup::ExactMatch;
use pollux_lookup::exact::{Key, NO_VALUE, VALUE_MAX};
use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Debug)]
enum Step {
    Insert(u8, u32),
    Remove(u8),
    Publish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (any::<u8>(), prop_oneof![0..9u32, Just(VALUE_MAX)]).prop_map(|(key, value)| Step::Insert(key, value)),
        3 => any::<u8>().prop_map(Step::Remove),
        1 => Just(Step::Publish),
    ];
    prop::collection::vec(step, 1..400)
}

fn agrees<K: Key + FromBytes + std::fmt::Debug + Eq + std::hash::Hash>(
    steps: Vec<Step>,
    key: fn(u8) -> K,
    capacity: usize,
) {
    let mut table = ExactMatch::<K>::new(capacity).expect("a table");
    let mut reader = table.reader();
    let (mut oracle, mut published) = (HashMap::new(), HashMap::new());
    for step in steps {
        match step {
            Step::Insert(seed, value) => match table.insert(&key(seed), value) {
                Ok(old) => assert_eq!(old, oracle.insert(key(seed), value)),
                Err(why) => {
                    assert!(why.to_string().starts_with("the table is full"), "{why}");
                    // In tables this small the few buckets of a key may all be full before.
                    assert!(
                        oracle.len() * 2 >= capacity && !oracle.contains_key(&key(seed)),
                        "{} of {capacity}",
                        oracle.len()
                    );
                }
            },
            Step::Remove(seed) => assert_eq!(table.remove(&key(seed)), oracle.remove(&key(seed))),
            Step::Publish => {
                table.publish().expect("the reader has passed");
                reader.pass();
                published = oracle.clone();
            }
        }
        assert_eq!(table.len(), oracle.len());
    }
    assert_eq!(table.iter().collect::<HashMap<_, _>>(), oracle);
    let keys: Vec<K> = (0..=255).map(key).collect();
    for (view, oracle) in [(table.view(), &oracle), (reader.pass(), &published)] {
        let mut values = vec![1; keys.len()];
        view.lookup_burst(&keys, &mut values);
        for (key, value) in keys.iter().zip(values) {
            assert_eq!((value != NO_VALUE).then_some(value), oracle.get(key).copied(), "{key:?}");
            assert_eq!(view.lookup(key), oracle.get(key).copied());
        }
    }
}

/// A key of an odd size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Odd([u8; 37]);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn keys_of_every_size_agree_with_a_map(steps in steps(), capacity in prop_oneof![Just(1usize), Just(8), Just(100), Just(1000)]) {
        agrees::<[u8; 16]>(steps.clone(), |seed| [seed; 16], capacity);
        agrees::<u64>(steps.clone(), |seed| u64::from(seed) << 56, capacity);
        agrees::<u8>(steps.clone(), |seed| seed, capacity);
        agrees::<[u8; 24]>(steps.clone(), |seed| [seed; 24], capacity);
        agrees::<[u32; 7]>(steps.clone(), |seed| [0, 0, 0, 0, 0, 0, seed.into()], capacity);
        agrees::<Odd>(steps.clone(), |seed| { let mut key = [0; 37]; key[36] = seed; Odd(key) }, capacity);
        agrees::<[u64; 8]>(steps, |seed| [seed.into(); 8], capacity);
    }
}

#[test]
fn a_table_takes_all_the_keys_of_its_capacity() {
    for capacity in [1000, 100_000] {
        let mut table = ExactMatch::<[u64; 2]>::new(capacity).expect("a table");
        let keys: Vec<[u64; 2]> =
            (0..capacity as u64).map(|key| [key, key.wrapping_mul(0x9e37_79b9_7f4a_7c15)]).collect();
        for (value, key) in keys.iter().enumerate() {
            assert_eq!(table.insert(key, value as u32).expect("room"), None);
        }
        let why = table.insert(&[u64::MAX; 2], 0).expect_err("it is full").to_string();
        assert_eq!(
            why,
            format!(
                "the table is full: it has {capacity} keys of {capacity}; make it with a larger capacity"
            )
        );
        assert_eq!(table.insert(&keys[0], 7).expect("it is there"), Some(0));
        assert_eq!(table.insert(&keys[0], 0).expect("it is there"), Some(7));
        let mut values = vec![0; capacity];
        table.view().lookup_burst(&keys, &mut values);
        assert!(values.iter().enumerate().all(|(at, value)| *value == at as u32));
        for key in &keys {
            assert!(table.remove(key).is_some());
        }
        table.view().lookup_burst(&keys, &mut values);
        assert!(table.is_empty() && values.iter().all(|value| *value == NO_VALUE));
    }
}

/// Two keys move from bucket to bucket with every change, and are always there once.
#[test]
fn a_burst_reads_one_version_while_keys_change() {
    const KEYS: u64 = 3000;
    let key = |key: u64| [key, !key];
    let mut table = ExactMatch::<[u64; 2]>::new(KEYS as usize + 2).expect("a table");
    for value in 0..KEYS {
        table.insert(&key(value), 0).expect("room");
    }
    table.publish().expect("no reader");
    let (reader, stop) = (table.reader(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (mut reader, stop) = (reader.clone(), &stop);
                scope.spawn(move || {
                    let keys: Vec<_> = (0..64).map(|at| key(at * (KEYS / 64))).collect();
                    let (mut values, mut last, mut seen) = (vec![0; 64], 0, 0);
                    while !stop.load(Ordering::Relaxed) {
                        reader.pass().lookup_burst(&keys, &mut values);
                        assert!(
                            values.iter().all(|value| *value == values[0]),
                            "{values:?}: two versions in one burst"
                        );
                        assert!(values[0] >= last, "an older version after a newer one");
                        seen += u32::from(values[0] != last);
                        last = values[0];
                    }
                    seen
                })
            })
            .collect();
        drop(reader);
        for value in 1..1000 {
            for at in 0..64 {
                table.insert(&key(at * (KEYS / 64)), value).expect("it is there");
            }
            // Others come and go beside them, and have them move.
            table.remove(&key(KEYS + u64::from(value) - 1));
            table.insert(&key(KEYS + u64::from(value)), 1).expect("room");
            while table.publish().is_err() {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        let seen: u32 = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
        assert!(seen > 0, "no reader saw a change");
    });
}

#[test]
fn what_is_no_entry_is_refused_in_words() {
    let mut table = ExactMatch::<u64>::new(1).expect("a table");
    let why = table.insert(&1, u32::MAX).expect_err("refused").to_string();
    assert_eq!(why, "value 4294967295 is too large: at most 4294967294");
    let why = ExactMatch::<u64>::new(0).expect_err("refused").to_string();
    assert_eq!(why, "capacity of 0 keys is out of range: must be from 1 to 268435456");
    assert!(ExactMatch::<u64>::new(usize::MAX).is_err());
}
