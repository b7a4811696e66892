//! What a filter asks of a frame: checks of numbers in it, joined.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// All of them.
    All(Vec<Tree>),
    /// One of them.
    Any(Vec<Tree>),
    Not(Box<Tree>),
    Check(Check),
}

/// A number compared with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) number: Number,
    pub(super) mask: Option<u32>,
    pub(super) relation: Relation,
    pub(super) value: u32,
}

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    /// 1, 2 or 4 bytes at a place of the frame.
    At { at: u32, bytes: u8 },
    /// The same, counted from the end of the IPv4 header that begins at `header`.
    BehindIpv4 { header: u32, at: u32, bytes: u8 },
    /// The length of the frame.
    Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Greater,
    GreaterEqual,
    /// Bits in common.
    Set,
}

/// So many bytes at a place are a value.
pub(super) fn is(at: u32, bytes: u8, value: u32) -> Tree {
    masked(at, bytes, None, value)
}

pub(super) fn masked(at: u32, bytes: u8, mask: Option<u32>, value: u32) -> Tree {
    Tree::Check(Check { number: Number::At { at, bytes }, mask, relation: Relation::Equal, value })
}

pub(super) fn any(trees: impl IntoIterator<Item = Tree>) -> Tree {
    Tree::Any(trees.into_iter().collect())
}

pub(super) fn all(trees: impl IntoIterator<Item = Tree>) -> Tree {
    Tree::All(trees.into_iter().collect())
}

pub(super) fn not(tree: Tree) -> Tree {
    Tree::Not(Box::new(tree))
}
