//! What stands before a value in a filter: `tcp src port`.

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Source,
    Destination,
    Either,
    Both,
}

/// What stands before a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Qualifiers {
    pub(super) protocol: Option<String>,
    pub(super) way: Way,
    pub(super) kind: Kind,
}
