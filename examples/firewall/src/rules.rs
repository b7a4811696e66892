//! Which flows inner hosts may open: a file such as
//!
//! ```toml
//! address = "192.0.2.1"        # of the NAT
//! default_allow = false        # what no rule fits
//!
//! [[rule]]                     # the first that fits counts
//! name = "web"
//! allow = true
//! protocol = "tcp"             # or udp; where this or one of the next three is missing, all fit
//! from = "10.0.0.0/8"
//! to = "0.0.0.0/0"
//! ports = [80, 443]            # first and last
//! ```

use std::net::Ipv4Addr;
use std::sync::Arc;

use pollux::config::TomlFile;
use pollux::eal::counter::Counter;
use pollux::kit::WatchedFile;
use pollux::lookup::acl::{Classifier, FiveTuple, Rule};
use serde::Deserialize;

/// The largest file.
const BYTES_MAX: u64 = 1 << 20;
/// The most lcores that are used.
pub(crate) const LCORES: usize = 64;

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Protocol {
    Tcp = 6,
    Udp = 17,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    allow: bool,
    protocol: Option<Protocol>,
    from: Option<String>,
    to: Option<String>,
    ports: Option<[u16; 2]>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    address: Ipv4Addr,
    default_allow: bool,
    #[serde(default, rename = "rule")]
    rules: Vec<Entry>,
}

/// Packets and bytes on which a rule decided, of one lcore.
#[derive(Default)]
#[repr(align(64))]
struct Decided(Counter, Counter);

/// A rule's name, whether what fits it passes, and what did by lcore.
struct Case {
    name: String,
    allow: bool,
    decided: Arc<[Decided]>,
}

/// What a file says. It does not change.
pub(crate) struct Rules {
    /// Of the NAT.
    pub(crate) address: Ipv4Addr,
    classifier: Classifier<u32>,
    /// By number of the rule, the default behind them.
    cases: Vec<Case>,
}

/// An address and the length of its prefix, as `10.0.0.0/8`; all if there is none.
fn prefix(text: Option<&str>) -> Result<(Ipv4Addr, u8), String> {
    let text = text.unwrap_or("0.0.0.0/0");
    let (address, length) = text.split_once('/').unwrap_or((text, "32"));
    let length = length.parse().ok().filter(|length| *length <= 32);
    let prefix = address.parse().ok().zip(length);
    prefix.ok_or_else(|| format!("'{text}' is no prefix such as 10.0.0.0/8"))
}

impl Entry {
    fn rule(&self, number: usize, all: usize) -> Result<Rule<u32>, String> {
        let (from, to) = (prefix(self.from.as_deref())?, prefix(self.to.as_deref())?);
        let [first, last] = self.ports.unwrap_or([0, u16::MAX]);
        let rule = Rule::new((all - number) as u32, number as u32).destination_ports(first..=last);
        let rule = rule.source(from.0, from.1).destination(to.0, to.1);
        Ok(self.protocol.map_or(rule.clone(), |protocol| rule.protocol(protocol as u8)))
    }
}

impl Rules {
    /// Reads the file. Rules of one name are counted together, and what was counted by those of `before` goes on.
    pub(crate) fn read(file: &mut WatchedFile, before: Option<&Self>) -> Result<Self, String> {
        let text = file.read(BYTES_MAX)?;
        let content = TomlFile::new(file.path(), text).parse();
        let Content { address, default_allow, rules: entries } = content.map_err(|why| why.to_string())?;
        let told = |why: String| format!("{}: {why}", file.path().display());
        let rule = |(number, entry): (usize, &Entry)| {
            let rule = entry.rule(number, entries.len());
            rule.map_err(|why| told(format!("rule '{}': {why}", entry.name)))
        };
        let rules = entries.iter().enumerate().map(rule).collect::<Result<Vec<_>, _>>()?;
        let classifier = Classifier::new(&rules).map_err(|why| told(why.to_string()))?;
        let named = entries.into_iter().map(|entry| (entry.name, entry.allow));
        let mut cases: Vec<Case> = Vec::new();
        for (name, allow) in named.chain([("default".into(), default_allow)]) {
            let before = before.iter().flat_map(|before| &before.cases);
            let known = cases.iter().chain(before).find(|case| case.name == name);
            let decided = known.map(|case| Arc::clone(&case.decided));
            let decided = decided.unwrap_or_else(|| (0..LCORES).map(|_| Decided::default()).collect());
            cases.push(Case { name, allow, decided });
        }
        Ok(Self { address, classifier, cases })
    }

    /// Whether a packet of a flow may pass; it is counted.
    pub(crate) fn allow(&self, flow: &FiveTuple<u32>, lcore: usize, bytes: u32) -> bool {
        let rule = self.classifier.classify(flow).map_or(self.cases.len() - 1, |rule| rule as usize);
        let Case { allow, decided, .. } = &self.cases[rule];
        decided[lcore].0.add(1);
        decided[lcore].1.add(bytes.into());
        *allow
    }

    /// Names, packets and bytes.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (String, u64, u64)> + '_ {
        self.cases.iter().map(|case| {
            let sum = |which: fn(&Decided) -> &Counter| case.decided.iter().map(|one| which(one).get()).sum();
            (case.name.clone(), sum(|one| &one.0), sum(|one| &one.1))
        })
    }
}
