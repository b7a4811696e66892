//! The keys that a driver's device arguments have, as a table: what the reader takes, and what is told of the driver.

/// A key of device arguments (DPDK: a word of `RTE_PMD_REGISTER_PARAM_STRING`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// The key: `iface`.
    pub key: &'static str,
    /// How its value is written: `<string>`, `<int>`, `<0|1>`, or the words that are allowed, `hash|lb|cpu`.
    pub form: &'static str,
}

impl Param {
    /// Any text.
    #[must_use]
    pub const fn text(key: &'static str) -> Self {
        Self::new(key, "<string>")
    }

    /// A whole number.
    #[must_use]
    pub const fn number(key: &'static str) -> Self {
        Self::new(key, "<int>")
    }

    /// A boolean.
    #[must_use]
    pub const fn flag(key: &'static str) -> Self {
        Self::new(key, "<0|1>")
    }

    /// A value of this form.
    #[must_use]
    pub const fn new(key: &'static str, form: &'static str) -> Self {
        Self { key, form }
    }
}
