//! The bounds that figures on device models are held to: `benches/bounds.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::processor;
use crate::run::{Outcome, root};

/// The most that a figure may be, over the plain copy loop in the same run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bound {
    pub(crate) warm: f64,
    pub(crate) cold: f64,
}

/// Of one processor, by the figures' names.
#[derive(Debug, Default)]
pub(crate) struct Bounds(BTreeMap<String, Bound>);

/// What stands in the file, by [`processor::name`]: the copy loop gains more from a wider core than the figures do, so the ratio
/// of one processor says nothing about another's.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Table(BTreeMap<String, BTreeMap<String, Bound>>);

impl Bounds {
    /// Reads those of this machine's processor, and sees to it that each name is one of `known`. None where the file does not have
    /// the processor, which is said.
    ///
    /// # Errors
    /// One line: the file cannot be read, is no such table, or names a figure that is not there.
    pub(crate) fn read(known: impl Fn(&str) -> bool) -> Outcome<Self> {
        let path = root().join("benches/bounds.toml");
        let text =
            std::fs::read_to_string(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        let table = Table::parse(&text, known).map_err(|why| format!("{}: {why}", path.display()))?;
        let here = processor::name(&processor::cpuinfo());
        let processors = table.0.keys().cloned().collect::<Vec<_>>().join(", ");
        Ok(table.of(&here).unwrap_or_else(|| {
            eprintln!(
                "xtask: no bounds for {here}, figures are told alone; benches/bounds.toml has {processors}"
            );
            Self::default()
        }))
    }

    pub(crate) fn of(&self, name: &str) -> Option<Bound> {
        self.0.get(name).copied()
    }
}

impl Table {
    fn parse(text: &str, known: impl Fn(&str) -> bool) -> Outcome<Self> {
        let table: Self = toml::from_str(text).map_err(|why| why.to_string().trim().to_owned())?;
        match table.0.values().flat_map(BTreeMap::keys).find(|name| !known(name)) {
            Some(name) => Err(format!("{name}: no figure on device models is called so")),
            None => Ok(table),
        }
    }

    fn of(mut self, processor: &str) -> Option<Bounds> {
        self.0.remove(processor).map(Bounds)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::is_on_models;
    use super::*;

    #[test]
    fn the_file_names_figures_that_are_there() {
        let text = std::fs::read_to_string(root().join("benches/bounds.toml")).expect("it is in the tree");
        let table = Table::parse(&text, is_on_models).expect("it is a table");
        assert!(!table.0.is_empty());
        for (processor, bounds) in &table.0 {
            for name in ["mlx5_rxtx32", "verbs_send64", "verbs_write8"] {
                let there = bounds.get(name).is_some_and(|bound| bound.warm > 0.0 && bound.cold > 0.0);
                assert!(there, "{name} of {processor}");
            }
        }
    }

    #[test]
    fn a_processor_has_its_own_bounds_and_another_none() {
        let text = "['one']\na = { warm = 1.0, cold = 2.0 }\n['two']\na = { warm = 3.0, cold = 4.0 }\n";
        let of = |processor| Table::parse(text, |name| name == "a").expect("right").of(processor);
        assert_eq!(of("two").and_then(|two| two.of("a")), Some(Bound { warm: 3.0, cold: 4.0 }));
        assert!(of("three").is_none());
    }

    #[test]
    fn what_is_not_a_bound_is_refused_in_words() {
        let refused = |text| Table::parse(text, |name| name == "a").expect_err("wrong");
        let unknown = "[p]\nb = { warm = 1.0, cold = 1.0 }\n";
        assert_eq!(refused(unknown), "b: no figure on device models is called so");
        assert!(refused("[p]\na = { warm = 1.0 }\n").contains("missing field `cold`"));
        assert!(refused("[p]\na = { warm = 1.0, cold = 1.0, hot = 1.0 }\n").contains("hot"));
    }
}
