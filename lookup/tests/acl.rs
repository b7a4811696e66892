//! Rules against a plain list of them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use pollux_lookup::acl::{Classifier, FiveTuple, NO_RULE, RULES_MAX, Rule};
use pollux_lookup::lpm::Address;
use proptest::prelude::*;

/// A rule as plain numbers: priority, prefixes, ports, protocol with its mask.
type Plain = (u32, (u128, u8), (u128, u8), RangeInclusive<u16>, RangeInclusive<u16>, (u8, u8));

fn network(address: u128, length: u8, bits: u32) -> u128 {
    address & u128::MAX.unbounded_shl(bits - u32::from(length))
}

fn addresses(bits: u32) -> impl Strategy<Value = u128> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(10), Just(255)], 16).prop_map(move |bytes| {
        let bytes: [u8; 16] = bytes.try_into().expect("16");
        u128::from_be_bytes(bytes) >> (128 - bits)
    })
}

fn ports() -> impl Strategy<Value = RangeInclusive<u16>> {
    let port = || prop_oneof![Just(0u16), Just(80), Just(u16::MAX), any::<u16>()];
    prop_oneof![Just(0..=u16::MAX), (port(), port()).prop_map(|(one, other)| one.min(other)..=one.max(other))]
}

fn rules(bits: u32) -> impl Strategy<Value = Vec<Plain>> {
    let prefix = move || {
        (addresses(bits), 0..=bits as u8)
            .prop_map(move |(address, length)| (network(address, length, bits), length))
    };
    let protocol =
        (prop_oneof![Just(6u8), Just(17), any::<u8>()], prop_oneof![Just(255u8), Just(0), any::<u8>()]);
    prop::collection::vec((0..5u32, prefix(), prefix(), ports(), ports(), protocol), 0..150)
}

type Packet = (u128, u128, u16, u16, u8);

fn packets(bits: u32) -> impl Strategy<Value = Vec<Packet>> {
    let port = || prop_oneof![Just(0u16), Just(80), Just(81), any::<u16>()];
    prop::collection::vec(
        (addresses(bits), addresses(bits), port(), port(), prop_oneof![Just(6u8), any::<u8>()]),
        1..50,
    )
}

/// The first of the highest priority that fits.
fn oracle(rules: &[Plain], packet: &Packet, bits: u32) -> Option<u32> {
    let (source, destination, source_port, destination_port, protocol) = *packet;
    let fits = |(_, from, to, from_ports, to_ports, (value, mask)): &Plain| {
        network(source, from.1, bits) == from.0
            && network(destination, to.1, bits) == to.0
            && from_ports.contains(&source_port)
            && to_ports.contains(&destination_port)
            && protocol & mask == value & mask
    };
    let best = rules.iter().filter(|rule| fits(rule)).map(|rule| rule.0).max()?;
    rules.iter().position(|rule| rule.0 == best && fits(rule)).map(|at| at as u32)
}

fn agrees<A: Address>(rules: &[Plain], packets: &[Packet], of: fn(u128) -> A) {
    let made: Vec<Rule<A>> = rules
        .iter()
        .enumerate()
        .map(|(at, (priority, from, to, from_ports, to_ports, (protocol, mask)))| {
            Rule::new(*priority, at as u32)
                .source(of(from.0), from.1)
                .destination(of(to.0), to.1)
                .source_ports(from_ports.clone())
                .destination_ports(to_ports.clone())
                .protocol_masked(*protocol, *mask)
        })
        .collect();
    let classifier = Classifier::new(&made).expect("rules");
    let tuples: Vec<_> = packets
        .iter()
        .map(|(source, destination, source_port, destination_port, protocol)| FiveTuple {
            source: of(*source),
            destination: of(*destination),
            source_port: *source_port,
            destination_port: *destination_port,
            protocol: *protocol,
        })
        .collect();
    let mut values = vec![0; tuples.len()];
    classifier.classify_burst(&tuples, &mut values);
    for (packet, value) in packets.iter().zip(values) {
        assert_eq!((value != NO_RULE).then_some(value), oracle(rules, packet, A::BITS), "{packet:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn ipv4_agrees_with_a_list(rules in rules(32), packets in packets(32)) {
        agrees::<u32>(&rules, &packets, |address| address as u32);
    }

    #[test]
    fn ipv6_agrees_with_a_list(rules in rules(128), packets in packets(128)) {
        agrees::<u128>(&rules, &packets, |address| address);
    }
}

/// More rules than one word of words has, the last of which fits alone.
#[test]
fn the_last_of_many_rules_is_found() {
    let mut rules: Vec<Rule<u32>> = (0..5000)
        .map(|at| Rule::new(1, at).source(Ipv4Addr::from(0x0a00_0000 + at), 32).protocol(6))
        .collect();
    rules.push(Rule::new(0, 5000));
    let classifier = Classifier::new(&rules).expect("rules");
    let packet = |source, protocol| FiveTuple {
        source,
        destination: 1,
        source_port: 2,
        destination_port: 3,
        protocol,
    };
    for at in [0, 63, 64, 4095, 4096, 4999] {
        assert_eq!(classifier.classify(&packet(0x0a00_0000 + at, 6)), Some(at));
        assert_eq!(classifier.classify(&packet(0x0a00_0000 + at, 17)), Some(5000));
    }
    assert_eq!((classifier.len(), classifier.classify(&packet(0x0a00_1388, 6))), (5001, Some(5000)));
    assert_eq!(Classifier::<u32>::new(&[]).expect("no rules").classify(&packet(1, 6)), None);
}

#[test]
fn what_is_no_rule_is_refused_in_words() {
    let said = |rule: Rule<u32>| Classifier::new(&[Rule::new(0, 0), rule]).expect_err("refused").to_string();
    let rule = || Rule::new(0, 0);
    #[expect(clippy::reversed_empty_ranges, reason = "it is what is refused")]
    let ports = said(rule().source_ports(2..=1));
    assert_eq!(ports, "rule 1: source port from 2 to 1 is no range: the first must not be above the last");
    let why = said(rule().source(Ipv4Addr::new(10, 0, 0, 1), 8));
    assert_eq!(why, "prefix 10.0.0.1/8 has bits set behind the prefix: write 10.0.0.0/8");
    assert_eq!(said(Rule::new(0, u32::MAX)), "value 4294967295 is too large: at most 4294967294");
    let why = Classifier::new(&vec![Rule::<u128>::new(0, 0).source(Ipv6Addr::LOCALHOST, 128); RULES_MAX + 1]);
    assert_eq!(
        why.expect_err("refused").to_string(),
        "capacity of 16385 rules is out of range: must be from 1 to 16384"
    );
}
