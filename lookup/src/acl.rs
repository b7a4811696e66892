//! Packet classification: which of many rules with prefixes, port ranges and protocols is the first that a 5-tuple fits.
//!
//! ```text
//!   source ──► routes ──┐
//!   destination ► routes┤  a class each: the set of rules that the      sets of 64 rules in which    the first rule
//!   source port ► table ┼► field fits, as bits in the order of their ─► all five have some ────────► that all five have
//!   dest. port ─► table ┤  priority
//!   protocol ───► table ┘
//! ```
//!
//! What a look-up costs does not depend on what is in the rules, or in the packets: five loads for the classes, and the words of the sets that
//! all fields have some of. Memory is bounded, too: a class takes a bit a rule, and there are at most as many classes of a field as its
//! prefixes, or twice its ranges, and one: below 2 MB for 1000 rules with the port tables, some 200 MB for [`RULES_MAX`] at worst. To that
//! come the routes of each address, 16 KiB for each /12 in which there are longer prefixes ([`Lpm`]). DPDK's `rte_acl` builds tries
//! instead, which rules can make large.
//!
//! A [`Classifier`] does not change. Rules change by another one, built on a control thread and published as a whole, so that no burst sees
//! half of a change (`eal::rcu`: `Publisher::publish`, `Reader::pass`); both exist until the last reader has passed.
//!
//! ```
//! use std::net::Ipv4Addr;
//!
//! use pollux_lookup::acl::{Classifier, FiveTuple, Rule};
//!
//! let web = Rule::<u32>::new(10, 1).destination(Ipv4Addr::new(10, 0, 0, 0), 8).destination_ports(80..=443).protocol(6);
//! let rest = Rule::<u32>::new(0, 2);
//! let rules = Classifier::new(&[web, rest])?;
//! let packet = FiveTuple {
//!     source: Ipv4Addr::new(192, 0, 2, 1).into(),
//!     destination: Ipv4Addr::new(10, 1, 2, 3).into(),
//!     source_port: 40_000,
//!     destination_port: 80,
//!     protocol: 6,
//! };
//! assert_eq!(rules.classify(&packet), Some(1));
//! assert_eq!(rules.classify(&FiveTuple { protocol: 17, ..packet }), Some(2));
//! # Ok::<(), pollux_lookup::LookupError>(())
//! ```

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use crate::LookupError;
use crate::lpm::{Address, Lpm};

/// Most rules of a classifier.
pub const RULES_MAX: usize = 1 << 14;
/// The largest value of a rule.
pub const VALUE_MAX: u32 = u32::MAX - 1;
/// What a burst is answered for a packet that no rule fits.
pub const NO_RULE: u32 = u32::MAX;

/// Rules of a word of a set.
const WORD: usize = 64;

/// What a packet is classified by. Addresses and ports in host order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FiveTuple<A> {
    /// Source address.
    pub source: A,
    /// Destination address.
    pub destination: A,
    /// Source port; 0 where the protocol has none.
    pub source_port: u16,
    /// Destination port; 0 where the protocol has none.
    pub destination_port: u16,
    /// The protocol's number, as the IP header has it.
    pub protocol: u8,
}

impl FiveTuple<u32> {
    /// All of it as bytes: a key of an exact match, or of a table of flows. Hot: no branch.
    ///
    /// ```
    /// use pollux_lookup::acl::FiveTuple;
    ///
    /// let packet =
    ///     FiveTuple { source: 0x0a00_0001, destination: 0x0a00_0002, source_port: 1024, destination_port: 80, protocol: 6 };
    /// assert_eq!(packet.key(), [10, 0, 0, 1, 10, 0, 0, 2, 4, 0, 0, 80, 6]);
    /// ```
    #[inline]
    #[must_use]
    pub fn key(&self) -> [u8; 13] {
        let mut key = [self.protocol; 13];
        key[..4].copy_from_slice(&self.source.to_be_bytes());
        key[4..8].copy_from_slice(&self.destination.to_be_bytes());
        key[8..10].copy_from_slice(&self.source_port.to_be_bytes());
        key[10..12].copy_from_slice(&self.destination_port.to_be_bytes());
        key
    }
}

/// What packets a rule fits: all, until it is told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<A> {
    priority: u32,
    value: u32,
    source: (A, u8),
    destination: (A, u8),
    source_ports: RangeInclusive<u16>,
    destination_ports: RangeInclusive<u16>,
    /// Value and mask.
    protocol: (u8, u8),
}

impl<A: Address> Rule<A> {
    /// A rule that fits every packet. Of several that fit, the one of the highest `priority` counts, of equals the one that came first; `value`
    /// is what a packet is answered.
    #[must_use]
    pub fn new(priority: u32, value: u32) -> Self {
        let any = (A::ZERO, 0);
        Self {
            priority,
            value,
            source: any,
            destination: any,
            source_ports: 0..=u16::MAX,
            destination_ports: 0..=u16::MAX,
            protocol: (0, 0),
        }
    }

    /// Of sources that have this prefix.
    #[must_use]
    pub fn source(self, prefix: impl Into<A>, length: u8) -> Self {
        Self { source: (prefix.into(), length), ..self }
    }

    /// To destinations that have this prefix.
    #[must_use]
    pub fn destination(self, prefix: impl Into<A>, length: u8) -> Self {
        Self { destination: (prefix.into(), length), ..self }
    }

    /// From these ports.
    #[must_use]
    pub fn source_ports(self, ports: RangeInclusive<u16>) -> Self {
        Self { source_ports: ports, ..self }
    }

    /// To these ports.
    #[must_use]
    pub fn destination_ports(self, ports: RangeInclusive<u16>) -> Self {
        Self { destination_ports: ports, ..self }
    }

    /// Of this protocol: 6 is TCP, 17 UDP.
    #[must_use]
    pub fn protocol(self, protocol: u8) -> Self {
        self.protocol_masked(protocol, u8::MAX)
    }

    /// Of protocols that have these bits where the mask has ones.
    #[must_use]
    pub fn protocol_masked(self, protocol: u8, mask: u8) -> Self {
        Self { protocol: (protocol, mask), ..self }
    }
}

/// Sets of rules, one for each class of a field's values.
#[derive(Debug)]
struct Classes {
    /// Words of a set, in the order of the rules.
    words: usize,
    sets: Vec<u64>,
    /// For each word of each set, whether any bit of it is set: a bit, in words of its own.
    some: Vec<u64>,
    known: HashMap<Box<[u64]>, u32>,
}

impl Classes {
    fn new(rules: usize) -> Self {
        Self { words: rules.div_ceil(WORD), sets: Vec::new(), some: Vec::new(), known: HashMap::new() }
    }

    /// The class of a set.
    fn of(&mut self, set: &[u64]) -> u32 {
        if let Some(class) = self.known.get(set) {
            return *class;
        }
        let class = self.known.len() as u32;
        self.known.insert(set.into(), class);
        self.sets.extend_from_slice(set);
        let some = |words: &[u64]| {
            words.iter().enumerate().fold(0, |some, (at, word)| some | u64::from(*word != 0) << at)
        };
        self.some.extend(set.chunks(WORD).map(some));
        class
    }

    /// A class's set, and of which of its words there are some.
    #[inline(always)]
    fn set(&self, class: u32) -> (&[u64], &[u64]) {
        let (class, some) = (class as usize, self.words.div_ceil(WORD));
        (&self.sets[class * self.words..][..self.words], &self.some[class * some..][..some])
    }

    /// Building is over.
    fn finish(&mut self) {
        self.known = HashMap::new();
        self.sets.shrink_to_fit();
        self.some.shrink_to_fit();
    }
}

/// Addresses and their classes: the rules of a prefix are those of all that it lies in, and its own.
#[derive(Debug)]
struct Addresses<A> {
    classes: Classes,
    prefixes: Lpm<A>,
}

impl<A: Address> Addresses<A> {
    fn new(rules: &[&Rule<A>], field: fn(&Rule<A>) -> (A, u8)) -> Result<Self, LookupError> {
        let mut classes = Classes::new(rules.len());
        let groups = (rules.len() + 1) * (A::BITS as usize - 24) / 8;
        let mut prefixes = Lpm::new(groups)?;
        let mut of: BTreeMap<(A, u8), Vec<usize>> = BTreeMap::from([((A::ZERO, 0), Vec::new())]);
        for (at, rule) in rules.iter().enumerate() {
            of.entry(field(rule)).or_default().push(at);
        }
        // By prefix, the shorter ones first: those around one are what is left of those before it.
        let mut around: Vec<((A, u8), Vec<u64>)> = Vec::new();
        for ((prefix, length), own) in of {
            while around.last().is_some_and(|((outer, bits), _)| prefix.first((*bits).into()) != *outer) {
                around.pop();
            }
            let mut set = around.last().map_or_else(|| vec![0; classes.words], |(_, set)| set.clone());
            own.iter().for_each(|at| set[at / WORD] |= 1 << (at % WORD));
            prefixes.add(prefix, length, classes.of(&set))?;
            around.push(((prefix, length), set));
        }
        classes.finish();
        Ok(Self { classes, prefixes })
    }

    #[inline(always)]
    fn set(&self, address: A) -> (&[u64], &[u64]) {
        // Every address has the prefix of no bits.
        self.classes.set(self.prefixes.view().lookup(address).unwrap_or_default())
    }
}

/// Small numbers and their classes, by a table.
#[derive(Debug)]
struct Numbers {
    classes: Classes,
    class_of: Box<[u32]>,
}

impl Numbers {
    /// `changes` are, by number, the rules that begin or end to fit there.
    fn new(rules: usize, count: usize, mut changes: Vec<(usize, usize)>) -> Self {
        let (mut classes, mut set) = (Classes::new(rules), vec![0; rules.div_ceil(WORD)]);
        changes.sort_unstable();
        let mut class_of = vec![0; count].into_boxed_slice();
        let (mut changes, mut class) = (changes.into_iter().peekable(), None);
        for (number, entry) in class_of.iter_mut().enumerate() {
            while let Some((_, rule)) = changes.next_if(|(at, _)| *at == number) {
                set[rule / WORD] ^= 1 << (rule % WORD);
                class = None;
            }
            *entry = *class.get_or_insert_with(|| classes.of(&set));
        }
        classes.finish();
        Self { classes, class_of }
    }

    fn ports<A>(rules: &[&Rule<A>], field: fn(&Rule<A>) -> &RangeInclusive<u16>) -> Self {
        let ends = |(at, rule): (usize, &&Rule<A>)| {
            let ports = field(rule);
            [(usize::from(*ports.start()), at), (usize::from(*ports.end()) + 1, at)]
        };
        Self::new(rules.len(), 1 << 16, rules.iter().enumerate().flat_map(ends).collect())
    }

    fn protocols<A>(rules: &[&Rule<A>]) -> Self {
        let changes = |(at, rule): (usize, &&Rule<A>)| {
            let (protocol, mask) = rule.protocol;
            let fits = move |number: usize| (number as u8 ^ protocol) & mask == 0;
            let differs = move |number: &usize| fits(*number) != (*number > 0 && fits(number - 1));
            (0..256).filter(differs).map(move |number| (number, at))
        };
        Self::new(rules.len(), 256, rules.iter().enumerate().flat_map(changes).collect())
    }

    #[inline(always)]
    fn set(&self, number: u16) -> (&[u64], &[u64]) {
        self.classes.set(self.class_of[usize::from(number)])
    }
}

/// Rules, ready for packets.
#[derive(Debug)]
pub struct Classifier<A> {
    source: Addresses<A>,
    destination: Addresses<A>,
    source_port: Numbers,
    destination_port: Numbers,
    protocol: Numbers,
    /// By priority.
    values: Box<[u32]>,
}

impl<A: Address> Classifier<A> {
    /// Makes rules ready. Costs milliseconds for thousands of rules, on a control thread.
    ///
    /// # Errors
    /// A rule that can fit no packet: a prefix that is none, a range whose first port is above its last; a value above [`VALUE_MAX`]; more than
    /// [`RULES_MAX`] rules.
    #[doc(alias = "rte_acl_add_rules")]
    #[doc(alias = "rte_acl_build")]
    pub fn new(rules: &[Rule<A>]) -> Result<Self, LookupError> {
        if rules.len() > RULES_MAX {
            return Err(LookupError::Capacity { of: "rules", given: rules.len(), most: RULES_MAX });
        }
        for (at, rule) in rules.iter().enumerate() {
            for (field, ports) in
                [("source port", &rule.source_ports), ("destination port", &rule.destination_ports)]
            {
                if ports.is_empty() {
                    return Err(LookupError::Range {
                        rule: at,
                        field,
                        first: *ports.start(),
                        last: *ports.end(),
                    });
                }
            }
            if rule.value > VALUE_MAX {
                return Err(LookupError::Value { given: rule.value, most: VALUE_MAX });
            }
        }
        let mut ordered: Vec<&Rule<A>> = rules.iter().collect();
        ordered.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        Ok(Self {
            source: Addresses::new(&ordered, |rule| rule.source)?,
            destination: Addresses::new(&ordered, |rule| rule.destination)?,
            source_port: Numbers::ports(&ordered, |rule| &rule.source_ports),
            destination_port: Numbers::ports(&ordered, |rule| &rule.destination_ports),
            protocol: Numbers::protocols(&ordered),
            values: ordered.iter().map(|rule| rule.value).collect(),
        })
    }

    /// The value of the rule that fits a packet. Hot: some 20 loads, and five for each 64 rules some of which fit in every field.
    #[inline]
    #[must_use]
    pub fn classify(&self, packet: &FiveTuple<A>) -> Option<u32> {
        let fields = [
            self.source.set(packet.source),
            self.destination.set(packet.destination),
            self.source_port.set(packet.source_port),
            self.destination_port.set(packet.destination_port),
            self.protocol.set(packet.protocol.into()),
        ];
        for at in 0..self.values.len().div_ceil(WORD * WORD) {
            let mut words = fields.iter().fold(u64::MAX, |words, (_, some)| words & some[at]);
            while words != 0 {
                let word = at * WORD + words.trailing_zeros() as usize;
                let rules = fields.iter().fold(u64::MAX, |rules, (set, _)| rules & set[word]);
                if rules != 0 {
                    return Some(self.values[word * WORD + rules.trailing_zeros() as usize]);
                }
                words &= words - 1;
            }
        }
        None
    }

    /// Classifies each of `packets`: values, or [`NO_RULE`], into `values`.
    ///
    /// # Panics
    /// If `values` is shorter than `packets`.
    #[doc(alias = "rte_acl_classify")]
    pub fn classify_burst(&self, packets: &[FiveTuple<A>], values: &mut [u32]) {
        let values = &mut values[..packets.len()];
        for (packet, value) in packets.iter().zip(values) {
            *value = self.classify(packet).unwrap_or(NO_RULE);
        }
    }

    /// Number of rules.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}
