//! The parts of a rule, as errors name them.

use std::fmt;

/// The part of a rule that is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowPart {
    /// An attribute and its value.
    Attribute(&'static str, u32),
    /// An item, by its place from 0 where that is known, and its kind.
    Item(Option<usize>, &'static str),
    /// An action, likewise.
    Action(Option<usize>, &'static str),
    /// The rule as a whole.
    Rule,
}

impl fmt::Display for FlowPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |at: &Option<usize>| at.map(|at| format!(" {at}")).unwrap_or_default();
        match self {
            Self::Attribute(name, value) => write!(f, "{name} {value}"),
            Self::Item(at, name) => write!(f, "item{} ({name})", place(at)),
            Self::Action(at, name) => write!(f, "action{} ({name})", place(at)),
            Self::Rule => f.write_str("as a whole"),
        }
    }
}
