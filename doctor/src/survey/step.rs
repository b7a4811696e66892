//! What one check of a survey says: the calls it made and their answers, what came of them, what they cost.

use std::collections::BTreeMap;
use std::fmt::Display;

use pollux_eal::clock::cycles;

/// Cycles of something that was done several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) median: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

/// A check as it went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Its name.
    pub(crate) name: String,
    /// Calls and answers in order, in the form of [`pollux_explain::normal`], without what is the owner's alone.
    pub(crate) calls: Vec<String>,
    /// What came of it, by name: a card and its model are to say the same.
    pub(crate) facts: BTreeMap<String, String>,
    /// What depends on the moment: never compared.
    pub(crate) counters: BTreeMap<String, u64>,
    /// What it cost: never compared.
    pub(crate) cycles: BTreeMap<String, Cost>,
}

impl Step {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Notes what came of something.
    pub(crate) fn fact(&mut self, name: impl Into<String>, value: impl Display) {
        let text = value.to_string();
        let text: Vec<&str> = text.split_whitespace().collect();
        let _ = self.facts.insert(name.into().replace(char::is_whitespace, "-"), text.join(" "));
    }

    /// Notes a count.
    pub(crate) fn counter(&mut self, name: impl Into<String>, value: u64) {
        *self.counters.entry(name.into().replace(char::is_whitespace, "-")).or_default() += value;
    }

    /// Notes what something cost, by samples; none is no note.
    pub(crate) fn cost(&mut self, name: impl Into<String>, mut samples: Vec<u64>) {
        samples.sort_unstable();
        if let [least, .., most] = samples[..] {
            let median = samples[samples.len() / 2];
            let _ = self.cycles.insert(name.into(), Cost { median, least, most });
        }
    }
}

/// Cycles that something takes, and what it gave.
pub(crate) fn timed<T>(what: impl FnOnce() -> T) -> (u64, T) {
    let begin = cycles::now_precise();
    let given = what();
    (cycles::now_precise().wrapping_sub(begin), given)
}
