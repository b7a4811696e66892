//! Addresses and keys as they are, or by names in the order in which they come up: two runs of a program then read the same.

use std::collections::BTreeMap;

/// How addresses and keys are written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    named: bool,
    addresses: BTreeMap<u64, usize>,
    keys: BTreeMap<u64, usize>,
}

impl Names {
    pub(crate) fn new(named: bool) -> Self {
        Self { named, ..Self::default() }
    }

    /// Whether names stand in the place of what differs from run to run.
    pub(crate) fn are_given(&self) -> bool {
        self.named
    }

    /// An address; 0 is none.
    pub(crate) fn address(&mut self, value: u64) -> String {
        written(self.named, &mut self.addresses, "address", value)
    }

    /// A key.
    pub(crate) fn key(&mut self, value: u32) -> String {
        written(self.named, &mut self.keys, "key", value.into())
    }
}

fn written(named: bool, known: &mut BTreeMap<u64, usize>, kind: &str, value: u64) -> String {
    if !named || value == 0 {
        return format!("{value:#x}");
    }
    let next = known.len();
    format!("<{kind}{}>", known.entry(value).or_insert(next))
}
