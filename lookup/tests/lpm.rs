//! Routes against a plain list of them, and readers on other threads.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_lookup::lpm::{Address, Lpm, NEXT_HOP_MAX, NO_ROUTE, View};
use pollux_lookup::{LookupError, Lpm4, Lpm6};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};

/// What the tests do with an address of either kind.
trait Bits: Address + Into<u128> {
    fn of(value: u128) -> Self;
}

impl Bits for u32 {
    fn of(value: u128) -> Self {
        value as u32
    }
}

impl Bits for u128 {
    fn of(value: u128) -> Self {
        value
    }
}

fn network<A: Bits>(address: A, length: u8) -> A {
    let host = A::BITS - u32::from(length);
    A::of(address.into() & u128::MAX.unbounded_shl(host))
}

/// The routes as a list: the longest that matches.
#[derive(Clone)]
struct Oracle<A>(BTreeMap<(A, u8), u32>);

impl<A: Bits> Oracle<A> {
    fn lookup(&self, address: A) -> Option<u32> {
        let lengths = (0..=A::BITS as u8).rev();
        lengths.filter_map(|length| self.0.get(&(network(address, length), length))).next().copied()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add { address: u128, length: u8, hop: u32 },
    Remove { which: usize },
    Publish,
}

/// Prefixes that lie in each other: few values of each byte, lengths of every kind.
fn steps(bits: u32) -> impl Strategy<Value = Vec<Step>> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(127), Just(128), Just(255), any::<u8>()];
    let address = prop::collection::vec(byte, 16).prop_map(move |bytes| {
        let bytes: [u8; 16] = bytes.try_into().expect("16");
        u128::from_be_bytes(bytes) >> (128 - bits)
    });
    let hop = prop_oneof![0..4u32, Just(NEXT_HOP_MAX)];
    let step = prop_oneof![
        6 => (address, 0..=bits as u8, hop).prop_map(|(address, length, hop)| Step::Add { address, length, hop }),
        4 => any::<usize>().prop_map(|which| Step::Remove { which }),
        1 => Just(Step::Publish),
    ];
    prop::collection::vec(step, 1..60)
}

/// Each step's outcome is the oracle's, what a reader has is what was published, and so are addresses around each prefix.
fn agrees<A: Bits>(steps: Vec<Step>) {
    let mut table = Lpm::<A>::new(2000).expect("a table");
    let mut reader = table.reader();
    let (mut oracle, mut published) = (Oracle::<A>(BTreeMap::new()), Oracle(BTreeMap::new()));
    let mut probes: Vec<A> = vec![A::of(0), A::of(u128::MAX >> (128 - A::BITS))];
    for step in steps {
        match step {
            Step::Add { address, length, hop } => {
                let prefix = network(A::of(address), length);
                assert_eq!(
                    table.add(prefix, length, hop).expect("room"),
                    oracle.0.insert((prefix, length), hop)
                );
                let first: u128 = prefix.into();
                let last = first | (u128::MAX >> (128 - A::BITS)).unbounded_shr(length.into());
                probes.extend([first, last, first.wrapping_sub(1), last.wrapping_add(1)].map(A::of));
            }
            Step::Remove { which } => {
                let Some((prefix, length)) = oracle.0.keys().nth(which % (oracle.0.len() + 1)).copied()
                else {
                    assert_eq!(
                        table.remove(A::of(0), A::BITS as u8).expect("a prefix"),
                        oracle.0.remove(&(A::of(0), A::BITS as u8))
                    );
                    continue;
                };
                assert_eq!(
                    table.remove(prefix, length).expect("a prefix"),
                    oracle.0.remove(&(prefix, length))
                );
            }
            Step::Publish => {
                table.publish().expect("the reader has passed");
                reader.pass();
                published = oracle.clone();
            }
        }
        assert_eq!(table.len(), oracle.0.len());
    }
    check(table.view(), &oracle, &probes);
    check(reader.pass(), &published, &probes);
    for (prefix, length) in oracle.0.keys().copied().collect::<Vec<_>>() {
        assert!(table.remove(prefix, length).expect("a prefix").is_some());
    }
    check(table.view(), &Oracle(BTreeMap::new()), &probes);
    assert_eq!(table.groups(), 0, "the groups of routes that are gone");
}

/// What is looked up, in a burst and by itself, is what the oracle has.
fn check<A: Bits>(view: View<'_, A>, oracle: &Oracle<A>, probes: &[A]) {
    let mut hops = vec![7; probes.len()];
    view.lookup_burst(probes, &mut hops);
    for (probe, hop) in probes.iter().zip(hops) {
        let wanted = oracle.lookup(*probe);
        assert_eq!((hop != NO_ROUTE).then_some(hop), wanted, "{probe:x?}");
        assert_eq!(view.lookup(*probe), wanted, "{probe:x?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn ipv4_agrees_with_a_list(steps in steps(32)) {
        agrees::<u32>(steps);
    }

    #[test]
    fn ipv6_agrees_with_a_list(steps in steps(128)) {
        agrees::<u128>(steps);
    }
}

/// A reader passes once in 200 changes, additions and removals; these are published as far as they can be.
fn lags<A: Bits>() {
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut table = Lpm::<A>::new(4000).expect("a table");
    let mut reader = table.reader();
    let (mut oracle, mut published) = (Oracle::<A>(BTreeMap::new()), Oracle(BTreeMap::new()));
    let mut refused = 0;
    for _ in 0..40 {
        let (view, taken) = (reader.pass(), published.clone());
        let mut probes = Vec::new();
        for change in 0..200 {
            let last = match oracle.0.keys().nth(random.next_u64() as usize % 1000).copied() {
                Some((prefix, length)) => {
                    assert_eq!(
                        table.remove(prefix, length).expect("a prefix"),
                        oracle.0.remove(&(prefix, length))
                    );
                    prefix.into() | (u128::MAX >> (128 - A::BITS)).unbounded_shr(length.into())
                }
                None => {
                    // Few bits that differ, so that prefixes lie in each other.
                    let address = 0x0a << 120 | u128::from(random.next_u64() & 0x3_83c1) << 96;
                    let address = address | u128::from(random.next_u64() & 0x8100_8001_0080) << 48;
                    let length = 12 + (random.next_u64() % u64::from(A::BITS - 11)) as u8;
                    let prefix = network(A::of(address >> (128 - A::BITS)), length);
                    let hop = random.next_u64() as u32 % 1000;
                    assert_eq!(
                        table.add(prefix, length, hop).expect("room"),
                        oracle.0.insert((prefix, length), hop)
                    );
                    prefix.into() | (u128::MAX >> (128 - A::BITS)).unbounded_shr(length.into())
                }
            };
            probes.extend([last, last.wrapping_add(1)].map(A::of));
            if change % 16 == 0 {
                match table.publish() {
                    Ok(()) => published = oracle.clone(),
                    Err(why) => {
                        assert!(matches!(why, LookupError::ReadersBehind { behind: 1 }), "{why}");
                        refused += 1;
                    }
                }
            }
        }
        check(view, &taken, &probes);
        check(table.reader().pass(), &published, &probes);
        check(table.view(), &oracle, &probes);
    }
    assert!(refused > 100, "the reader was never behind");
    let routes = oracle.0.len();
    assert!(routes > 200 && table.groups() > 30, "{routes} routes, {} groups", table.groups());
    let sorted: Vec<_> = oracle.0.iter().map(|((prefix, length), hop)| (*prefix, *length, *hop)).collect();
    assert_eq!(table.iter().collect::<Vec<_>>(), sorted);
}

#[test]
fn a_reader_that_lags_has_its_version_while_thousands_of_routes_change() {
    lags::<u32>();
    lags::<u128>();
}

/// The groups behind a prefix go when the longer ones have; that in which the prefix itself is stays.
#[test]
fn a_prefix_of_one_entry_keeps_the_group_that_it_is_in() {
    let mut table = Lpm6::new(13).expect("a table");
    let network = 0x2001_0db8u128 << 96;
    table.add(network, 32, 1).expect("room");
    table.add(network, 48, 2).expect("room");
    assert_eq!(table.groups(), 3);
    table.remove(network, 48).expect("a prefix");
    let view = table.view();
    assert_eq!((view.lookup(network), view.lookup(network + (1 << 96))), (Some(1), None));
    assert_eq!(table.groups(), 1);
}

#[test]
fn a_burst_reads_one_version_while_routes_change() {
    let mut table = Lpm4::new(64).expect("a table");
    // All of these change in each version: many entries, one, entries behind groups.
    let prefixes = [
        (0x0000_0000u32, 8u8),
        (0x8000_0000, 12),
        (0xc0a8_0000, 16),
        (0xc0a9_0100, 24),
        (0xc0aa_0040, 26),
        (0xc0aa_0081, 32),
    ];
    let write = |table: &mut Lpm4, hop| {
        for (prefix, length) in prefixes {
            table.add(prefix, length, hop).expect("room");
        }
    };
    write(&mut table, 0);
    table.publish().expect("no reader");
    let (reader, stop) = (table.reader(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (mut reader, stop) = (reader.clone(), &stop);
                scope.spawn(move || {
                    let (addresses, mut hops) = (prefixes.map(|(prefix, _)| prefix), [0; 6]);
                    let (mut last, mut seen) = (0, 0);
                    while !stop.load(Ordering::Relaxed) {
                        reader.pass().lookup_burst(&addresses, &mut hops);
                        assert!(
                            hops.iter().all(|hop| *hop == hops[0]),
                            "{hops:?}: two versions in one burst"
                        );
                        assert!(hops[0] >= last, "an older version after a newer one");
                        seen += u32::from(hops[0] != last);
                        last = hops[0];
                    }
                    seen
                })
            })
            .collect();
        drop(reader);
        for hop in 1..3000 {
            write(&mut table, hop);
            // A reader that others keep from its processor is waited for, here alone.
            while table.publish().is_err() {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
        let seen: u32 = readers.into_iter().map(|reader| reader.join().expect("no panic")).sum();
        assert!(seen > 0, "no reader saw a change");
    });
    assert!(table.memory_bytes() < 64 << 20, "memory of old versions comes back");
}

#[test]
fn a_reader_that_sleeps_holds_its_version_and_nothing_is_lost() {
    let mut table = Lpm4::new(64).expect("a table");
    let mut sleeper = table.reader();
    let mut refused = None;
    for hop in 0..100 {
        table.add(Ipv4Addr::new(10, 0, 0, 0), 8, hop).expect("room");
        table.add(Ipv4Addr::new(10, 1, 2, 192), 26, hop).expect("room");
        if let Err(why) = table.publish() {
            refused.get_or_insert((hop, why.to_string()));
        }
    }
    let (hop, why) = refused.expect("versions are limited");
    assert_eq!(hop, 1);
    assert!(why.starts_with("cannot publish: a reader is 1 version behind;"), "{why}");
    assert_eq!(table.view().lookup(Ipv4Addr::new(10, 1, 2, 200)), Some(99));
    assert_eq!(table.reader().pass().lookup(Ipv4Addr::new(10, 1, 2, 200)), Some(0));
    // It takes what was published; then the writer goes on.
    assert_eq!(sleeper.pass().lookup(Ipv4Addr::new(10, 1, 2, 200)), Some(0));
    table.publish().expect("the reader has passed");
    assert_eq!(sleeper.pass().lookup(Ipv4Addr::new(10, 1, 2, 200)), Some(99));
    drop(sleeper);
    for hop in 0..100 {
        table.add(Ipv4Addr::new(10, 0, 0, 0), 8, hop).expect("room");
        table.publish().expect("nobody reads");
    }
}

#[test]
fn what_is_no_route_is_refused_in_words() {
    let mut table = Lpm4::new(1).expect("a table");
    let said = |outcome: Result<Option<u32>, LookupError>| outcome.expect_err("refused").to_string();
    let ten = Ipv4Addr::new(10, 0, 0, 1);
    assert_eq!(
        said(table.add(ten, 8, 1)),
        "prefix 10.0.0.1/8 has bits set behind the prefix: write 10.0.0.0/8"
    );
    assert_eq!(said(table.add(ten, 33, 1)), "prefix 10.0.0.1/33 is longer than an address: at most 32 bits");
    assert_eq!(
        said(table.remove(ten, 8)),
        "prefix 10.0.0.1/8 has bits set behind the prefix: write 10.0.0.0/8"
    );
    assert_eq!(said(table.add(ten, 32, u32::MAX)), "value 4294967295 is too large: at most 2147483646");
    table.add(ten, 32, 1).expect("the one group");
    table.add(Ipv4Addr::new(10, 0, 0, 2), 32, 1).expect("the same group");
    let full = "the table is full: it has 1 groups of 1; make it with a larger capacity";
    assert_eq!(said(table.add(Ipv4Addr::new(10, 0, 1, 1), 32, 1)), full);
    assert_eq!((table.len(), table.view().lookup(Ipv4Addr::new(10, 0, 1, 1))), (2, None));
    assert!(Lpm4::new(0).is_err() && Lpm6::new(usize::MAX).is_err());
    let mut six = Lpm6::new(16).expect("a table");
    let why = six.add(Ipv6Addr::LOCALHOST, 64, 1).expect_err("refused").to_string();
    assert_eq!(why, "prefix ::1/64 has bits set behind the prefix: write ::/64");
}

#[test]
fn a_default_route_over_many_others_fits_while_a_reader_sleeps() {
    let mut table = Lpm4::new(4096).expect("a table");
    for page in 0..4096u32 {
        table.add(page << 20 | 0x100, 24, page).expect("room");
        table.add(page << 20 | 0x200, 32, page).expect("room");
    }
    table.publish().expect("no reader");
    let mut sleeper = table.reader();
    for hop in 7..9 {
        table.add(0u32, 0, hop).expect("room");
    }
    table.publish().expect("a version of room");
    assert_eq!(
        (table.view().lookup(0xffff_ffffu32), table.view().lookup(0x0010_0100u32)),
        (Some(8), Some(1))
    );
    // All is copied once more, and the reader still has what it had.
    table.remove(0u32, 0).expect("a prefix");
    assert!(table.publish().is_err(), "the reader has the version before");
    let view = sleeper.pass();
    assert_eq!((view.lookup(0xffff_ffffu32), view.lookup(0x0010_0100u32)), (Some(8), Some(1)));
    table.publish().expect("the reader has passed");
    let view = sleeper.pass();
    assert_eq!((view.lookup(0xffff_ffffu32), view.lookup(0x0010_0100u32)), (None, Some(1)));
}
