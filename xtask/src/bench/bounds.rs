//! The bounds that figures on device models are held to: `benches/bounds.toml`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::run::{Outcome, root};

/// The most that a figure may be, over the plain copy loop in the same run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bound {
    pub(crate) warm: f64,
    pub(crate) cold: f64,
}

/// By the figures' names.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Bounds(BTreeMap<String, Bound>);

impl Bounds {
    /// Reads the file, and sees to it that each name is one of `known`.
    ///
    /// # Errors
    /// One line: the file cannot be read, is no such table, or names a figure that is not there.
    pub(crate) fn read(known: impl Fn(&str) -> bool) -> Outcome<Self> {
        let path = root().join("benches/bounds.toml");
        let text =
            std::fs::read_to_string(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        Self::parse(&text, known).map_err(|why| format!("{}: {why}", path.display()))
    }

    fn parse(text: &str, known: impl Fn(&str) -> bool) -> Outcome<Self> {
        let bounds: Self = toml::from_str(text).map_err(|why| why.to_string().trim().to_owned())?;
        match bounds.0.keys().find(|name| !known(name)) {
            Some(name) => Err(format!("{name}: no figure on device models is called so")),
            None => Ok(bounds),
        }
    }

    pub(crate) fn of(&self, name: &str) -> Option<Bound> {
        self.0.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::is_on_models;
    use super::*;

    #[test]
    fn the_file_names_figures_that_are_there() {
        let bounds = Bounds::read(is_on_models).expect("it is in the tree");
        for name in ["mlx5_rxtx32", "verbs_send64", "verbs_write8"] {
            assert!(bounds.of(name).is_some_and(|bound| bound.warm > 0.0 && bound.cold > 0.0), "{name}");
        }
    }

    #[test]
    fn what_is_not_a_bound_is_refused_in_words() {
        let refused = |text| Bounds::parse(text, |name| name == "a").expect_err("wrong");
        assert_eq!(refused("[b]\nwarm = 1.0\ncold = 1.0\n"), "b: no figure on device models is called so");
        assert!(refused("[a]\nwarm = 1.0\n").contains("missing field `cold`"));
        assert!(refused("[a]\nwarm = 1.0\ncold = 1.0\nhot = 1.0\n").contains("hot"));
    }
}
