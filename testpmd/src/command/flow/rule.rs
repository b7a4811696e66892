//! A flow rule from its words, and the words that may stand next.
//!
//! ```text
//!   [group N] [priority N] [ingress] [egress] [transfer]
//!   pattern ITEM [FIELD is VALUE | spec VALUE | mask VALUE | last VALUE | prefix BITS]... / ITEM ... / end
//!   actions ACTION [PARAMETER VALUE]... / ACTION ... / end
//! ```

use pollux_port::flow::{FlowAction, FlowItem, FlowRss, FlowRule, ItemMatch};
use pollux_port::{HashAlgorithm, HashFields, QueueId};

use super::fields::Named;
use crate::grammar::number;
use crate::hash;

const ITEMS: [&str; 13] =
    ["void", "eth", "vlan", "ipv4", "ipv6", "tcp", "udp", "vxlan", "mpls", "gre", "gre_key", "/", "end"];
const ACTIONS: [&str; 14] = [
    "void",
    "queue",
    "rss",
    "drop",
    "jump",
    "passthru",
    "mark",
    "flag",
    "count",
    "age",
    "of_pop_vlan",
    "of_push_vlan",
    "/",
    "end",
];
const RELATIONS: [&str; 5] = ["is", "spec", "last", "mask", "prefix"];

/// Where reading stopped: at which word, and what may stand there.
#[derive(Debug, PartialEq, Eq)]
struct Stop {
    at: usize,
    /// Words that may.
    words: Vec<String>,
    /// In a sentence, if it is not just one of them.
    expected: Option<String>,
}

struct Reader<'a> {
    words: &'a [&'a str],
    at: usize,
}

impl<'a> Reader<'a> {
    fn stop(&self, words: &[&str]) -> Stop {
        Stop { at: self.at, words: words.iter().map(|word| (*word).to_owned()).collect(), expected: None }
    }

    /// The next word, which is one of these.
    fn one_of(&mut self, words: &[&str]) -> Result<&'a str, Stop> {
        match self.words.get(self.at) {
            Some(word) if words.contains(word) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.stop(words)),
        }
    }

    /// The next word, read by `read`.
    fn value<T>(&mut self, what: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<T, Stop> {
        let value = self.words.get(self.at).and_then(|word| read(word));
        match value {
            Some(value) => {
                self.at += 1;
                Ok(value)
            }
            None => Err(Stop { at: self.at, words: Vec::new(), expected: Some(what.into()) }),
        }
    }

    fn number<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T, Stop> {
        self.value(what, |word| number(word).and_then(|number| number.try_into().ok()))
    }

    fn is_next(&self, word: &str) -> bool {
        self.words.get(self.at) == Some(&word)
    }
}

/// Reads a whole rule.
///
/// # Errors
/// DPDK's words, and what should have stood where.
pub(super) fn parse(words: &[&str]) -> Result<FlowRule, String> {
    let mut reader = Reader { words, at: 0 };
    let stopped = match rule(&mut reader) {
        Ok(rule) if reader.at == words.len() => return Ok(rule),
        Ok(_) => Stop { at: reader.at, words: Vec::new(), expected: Some("the end of the line".into()) },
        Err(stop) => stop,
    };
    let before = stopped.at.checked_sub(1).map_or("the port", |at| words[at]);
    let what = match words.get(stopped.at) {
        Some(word) => format!("'{}' after '{before}'", word.chars().take(60).collect::<String>()),
        None => format!("the rule ends after '{before}'"),
    };
    let expected = stopped.expected.unwrap_or_else(|| format!("one of {}", stopped.words.join(", ")));
    Err(format!("Bad arguments\n{what}: expected {expected}"))
}

/// The words that may stand in place of the last one.
pub(super) fn complete(words: &[&str]) -> Vec<String> {
    let before = &words[..words.len().saturating_sub(1)];
    match rule(&mut Reader { words: before, at: 0 }) {
        Err(stop) if stop.at == before.len() => stop.words,
        _ => Vec::new(),
    }
}

fn rule(reader: &mut Reader<'_>) -> Result<FlowRule, Stop> {
    let mut rule = FlowRule::new();
    let attributes = &mut rule.attributes;
    // As in DPDK, a rule is for what it says it is for.
    attributes.ingress = false;
    loop {
        match reader.one_of(&["group", "priority", "ingress", "egress", "transfer", "pattern"])? {
            "group" => attributes.group = reader.number("the number of a group")?,
            "priority" => attributes.priority = reader.number("a priority")?,
            "ingress" => attributes.ingress = true,
            "egress" => attributes.egress = true,
            "transfer" => attributes.transfer = true,
            _ => break,
        }
    }
    loop {
        match reader.one_of(&ITEMS)? {
            "end" => break,
            "/" => continue,
            "void" => {}
            "eth" => rule.pattern.push(FlowItem::Eth(item(reader)?)),
            "vlan" => rule.pattern.push(FlowItem::Vlan(item(reader)?)),
            "ipv4" => rule.pattern.push(FlowItem::Ipv4(item(reader)?)),
            "ipv6" => rule.pattern.push(FlowItem::Ipv6(item(reader)?)),
            "tcp" => rule.pattern.push(FlowItem::Tcp(item(reader)?)),
            "udp" => rule.pattern.push(FlowItem::Udp(item(reader)?)),
            "vxlan" => rule.pattern.push(FlowItem::Vxlan(item(reader)?)),
            "mpls" => rule.pattern.push(FlowItem::Mpls(item(reader)?)),
            "gre" => rule.pattern.push(FlowItem::Gre(item(reader)?)),
            _ => rule.pattern.push(FlowItem::GreKey(item(reader)?)),
        }
        reader.one_of(&["/"])?;
    }
    reader.one_of(&["actions"])?;
    loop {
        let action = match reader.one_of(&ACTIONS)? {
            "end" => break,
            "/" => continue,
            "void" => None,
            name => Some(action(reader, name)?),
        };
        rule.actions.extend(action);
        reader.one_of(&["/"])?;
    }
    Ok(rule)
}

/// The fields of an item, up to the slash behind it.
fn item<T: Named>(reader: &mut Reader<'_>) -> Result<ItemMatch<T>, Stop> {
    let mut matched: ItemMatch<T> = ItemMatch::any();
    let names: Vec<&str> = T::NAMES.iter().copied().chain(["/"]).collect();
    while !reader.is_next("/") {
        let field = reader.one_of(&names)?;
        let relation = reader.one_of(&RELATIONS)?;
        let (spec, last, mask) = (&mut matched.spec, &mut matched.last, &mut matched.mask);
        let at = reader.at;
        let Some(word) = reader.words.get(at) else {
            return Err(Stop { at, words: Vec::new(), expected: Some(format!("a value of {field}")) });
        };
        let set = match relation {
            "is" => {
                let done = spec.get_or_insert_default().set(field, word);
                done.and_then(|()| mask.get_or_insert_default().set_prefix(field, None))
            }
            "spec" => spec.get_or_insert_default().set(field, word),
            "last" => last.get_or_insert_default().set(field, word),
            "mask" => mask.get_or_insert_default().set(field, word),
            _ => {
                let bits = number(word).and_then(|bits| u32::try_from(bits).ok()).unwrap_or(u32::MAX);
                mask.get_or_insert_default().set_prefix(field, Some(bits))
            }
        };
        set.map_err(|wrong| Stop { at, words: Vec::new(), expected: Some(wrong) })?;
        reader.at += 1;
    }
    Ok(matched)
}

fn action(reader: &mut Reader<'_>, name: &str) -> Result<FlowAction, Stop> {
    let parameter = |reader: &mut Reader<'_>, name: &str| reader.one_of(&[name]).map(drop);
    Ok(match name {
        "queue" => {
            parameter(reader, "index")?;
            FlowAction::Queue(QueueId(reader.number("the number of a queue")?))
        }
        "rss" => FlowAction::Rss(rss(reader)?),
        "drop" => FlowAction::Drop,
        "jump" => {
            parameter(reader, "group")?;
            FlowAction::Jump(reader.number("the number of a group")?)
        }
        "passthru" => FlowAction::PassThru,
        "mark" => {
            parameter(reader, "id")?;
            FlowAction::Mark(reader.number("a mark")?)
        }
        "flag" => FlowAction::Flag,
        "count" => FlowAction::Count,
        "age" => {
            parameter(reader, "timeout")?;
            FlowAction::Age(reader.number("a number of seconds")?)
        }
        "of_pop_vlan" => FlowAction::PopVlan,
        _ => {
            parameter(reader, "ethertype")?;
            FlowAction::PushVlan(reader.number("an EtherType")?)
        }
    })
}

/// What is hashed, and over which queues it is spread.
fn rss(reader: &mut Reader<'_>) -> Result<FlowRss, Stop> {
    let mut rss = FlowRss::default();
    while !reader.is_next("/") {
        match reader.one_of(&["queues", "types", "func", "key", "level", "/"])? {
            "queues" => {
                while !reader.is_next("end") {
                    rss.queues.push(QueueId(reader.number("the number of a queue, or end")?));
                }
                reader.one_of(&["end"])?;
            }
            "types" => {
                let names = hash::GROUPS.iter().chain(&hash::NAMES).map(|(name, _)| *name);
                let names: Vec<&str> = names.chain(["end"]).collect();
                loop {
                    match reader.one_of(&names)? {
                        "end" => break,
                        name => rss.fields |= hash::by_name(name).unwrap_or_default(),
                    }
                }
            }
            "func" => {
                rss.algorithm = match reader.one_of(&[
                    "default",
                    "toeplitz",
                    "simple_xor",
                    "symmetric_toeplitz",
                    "symmetric_toeplitz_sort",
                ])? {
                    "simple_xor" => HashAlgorithm::SimpleXor,
                    "symmetric_toeplitz" => HashAlgorithm::SymmetricToeplitz,
                    "symmetric_toeplitz_sort" => HashAlgorithm::SymmetricToeplitzSort,
                    _ => HashAlgorithm::Toeplitz,
                };
            }
            "key" => rss.key = Some(reader.value("a key in hexadecimal", hexadecimal)?),
            "level" => {
                rss.fields |= match reader.number::<u32>("0, the outermost headers 1, or the innermost 2")? {
                    1 => HashFields::LEVEL_OUTERMOST,
                    2 => HashFields::LEVEL_INNERMOST,
                    _ => HashFields::empty(),
                };
            }
            _ => break,
        }
    }
    Ok(rss)
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let plain = !digits.is_empty()
        && digits.len().is_multiple_of(2)
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    plain.then(|| {
        (0..digits.len())
            .step_by(2)
            .filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use pollux_port::MacAddress;
    use pollux_port::flow::{
        EthFields, FlowAttributes, GreFields, GreKeyFields, Ipv4Fields, MplsFields, UdpFields, VxlanFields,
    };

    use super::*;

    fn read(text: &str) -> Result<FlowRule, String> {
        parse(&text.split(' ').collect::<Vec<_>>())
    }

    #[test]
    fn a_rule_of_dpdks_guide_is_read() {
        let text = "group 2 priority 4 ingress pattern eth / ipv4 src is 10.2.3.4 dst spec 10.0.0.0 dst prefix 8 / \
                    udp dst is 0x35 / end actions mark id 7 / count / queue index 1 / end";
        let rule = read(text).expect("a rule");
        let v4 = ItemMatch {
            spec: Some(Ipv4Fields {
                src: [10, 2, 3, 4].into(),
                dst: [10, 0, 0, 0].into(),
                ..Ipv4Fields::default()
            }),
            last: None,
            mask: Some(Ipv4Fields {
                src: [255; 4].into(),
                dst: [255, 0, 0, 0].into(),
                ..Ipv4Fields::default()
            }),
        };
        let udp = ItemMatch {
            spec: Some(UdpFields { dst: 53, ..UdpFields::default() }),
            last: None,
            mask: Some(UdpFields { dst: 0xffff, ..UdpFields::default() }),
        };
        let wanted = FlowRule {
            attributes: FlowAttributes { group: 2, priority: 4, ..FlowAttributes::default() },
            pattern: vec![FlowItem::Eth(ItemMatch::any()), FlowItem::Ipv4(v4), FlowItem::Udp(udp)],
            actions: vec![FlowAction::Mark(7), FlowAction::Count, FlowAction::Queue(QueueId(1))],
        };
        assert_eq!(rule, wanted);
    }

    #[test]
    fn spec_alone_leaves_the_default_mask() {
        let rule =
            read("ingress pattern eth dst spec 02:00:00:00:00:01 / end actions drop / end").expect("a rule");
        let dst = EthFields { dst: MacAddress([2, 0, 0, 0, 0, 1]), ..EthFields::default() };
        assert_eq!(rule.pattern, [FlowItem::Eth(ItemMatch::exactly(dst))]);
    }

    #[test]
    fn tunnels_are_read() {
        let items = |text: &str| {
            read(&format!("ingress pattern {text} / end actions drop / end")).expect(text).pattern
        };
        let vxlan =
            |vni, mask| FlowItem::Vxlan(ItemMatch::masked(VxlanFields { vni }, VxlanFields { vni: mask }));
        assert_eq!(items("vxlan vni is 0x123456"), [vxlan(0x12_3456, 0xff_ffff)]);
        assert_eq!(items("vxlan vni spec 5 vni prefix 8"), [vxlan(5, 0xff_0000)]);
        assert_eq!(items("vxlan vni spec 5"), [FlowItem::Vxlan(ItemMatch::exactly(VxlanFields { vni: 5 }))]);
        assert_eq!(items("vxlan"), [FlowItem::Vxlan(ItemMatch::any())]);
        let gre = |of: [u16; 2], mask: [u16; 2]| {
            let fields = |[flags, protocol]: [u16; 2]| GreFields { flags, protocol };
            FlowItem::Gre(ItemMatch::masked(fields(of), fields(mask)))
        };
        let key = GreKeyFields { key: 7 };
        let key = FlowItem::GreKey(ItemMatch::masked(key, GreKeyFields { key: u32::MAX }));
        assert_eq!(
            items("gre protocol is 0x0800 k_bit is 1 s_bit is 0 / gre_key value is 7"),
            [gre([0x2000, 0x0800], [0x3000, 0xffff]), key]
        );
        assert_eq!(
            items("gre c_rsvd0_ver spec 0x8000 c_rsvd0_ver mask 0xb000"),
            [gre([0x8000, 0], [0xb000, 0])]
        );
        let mpls =
            |entry, mask| FlowItem::Mpls(ItemMatch::masked(MplsFields { entry }, MplsFields { entry: mask }));
        assert_eq!(items("mpls label is 16 s is 1"), [mpls(16 << 12 | 1 << 8, 0xffff_f100)]);
        assert_eq!(items("mpls tc is 3 ttl is 64"), [mpls(3 << 9 | 64, 0xeff)]);
    }

    #[test]
    fn rss_takes_queues_fields_and_a_key() {
        let text = "ingress pattern eth / end actions rss queues 0 2 end types ipv4 udp end func toeplitz key 0aff / end";
        let rule = read(text).expect("a rule");
        let fields = HashFields::IPV4 | HashFields::UDP;
        let (queues, key) = (vec![QueueId(0), QueueId(2)], Some(vec![10, 255]));
        assert_eq!(rule.actions, [FlowAction::Rss(FlowRss { queues, fields, key, ..FlowRss::default() })]);
    }

    #[test]
    fn what_is_wrong_is_told_where() {
        for (text, wanted) in [
            ("ingress pattern eth / bogus", "'bogus' after '/': expected one of void, eth,"),
            ("ingress pattern eth", "the rule ends after 'eth': expected one of dst, src, type, /"),
            (
                "ingress pattern ipv4 src is here / end",
                "'here' after 'is': expected src: expected an IPv4 address",
            ),
            ("ingress pattern ipv4 src prefix 33 / end", "'33' after 'prefix': expected src"),
            (
                "ingress pattern udp / vxlan vni is 0x1000000 / end",
                "'0x1000000' after 'is': expected vni: expected a number of 24 bits",
            ),
            (
                "ingress pattern mpls label is 0x100000",
                "'0x100000' after 'is': expected label: expected a number of 20",
            ),
            (
                "ingress pattern gre key is 5",
                "'key' after 'gre': expected one of protocol, c_rsvd0_ver, c_bit,",
            ),
            (
                "ingress pattern end actions queue index -1 / end",
                "'-1' after 'index': expected the number of a queue",
            ),
            (
                "ingress pattern end actions drop / end more",
                "'more' after 'end': expected the end of the line",
            ),
            ("", "'' after 'the port': expected one of group,"),
        ] {
            let told = read(text).expect_err(text);
            assert!(told.starts_with(&format!("Bad arguments\n{wanted}")), "{text}: {told}");
        }
    }

    #[test]
    fn what_may_stand_next_is_known() {
        let next = |text: &str| complete(&text.split(' ').collect::<Vec<_>>());
        assert_eq!(next("ingress pattern udp "), ["src", "dst", "/"]);
        assert_eq!(next("ingress pattern udp src "), RELATIONS);
        assert_eq!(next("ingress pattern udp / end "), ["actions"]);
        assert_eq!(next("ingress pattern "), ITEMS);
        assert_eq!(next("ingress pattern vxlan "), ["vni", "/"]);
        assert_eq!(next("ingress pattern mpls "), ["label", "tc", "s", "ttl", "/"]);
        assert_eq!(next("ingress pattern gre "), ["protocol", "c_rsvd0_ver", "c_bit", "k_bit", "s_bit", "/"]);
        assert_eq!(next("ingress pattern gre / gre_key "), ["value", "/"]);
        assert!(next("ingress pattern udp src is ").is_empty(), "a value");
    }
}
