//! Who may use a port, when several parts of a program share the ports of one [`Ports`](crate::Ports).

use std::fmt;

/// A part of a program that ports can belong to. Made by [`Ports::new_owner`](crate::Ports::new_owner); its number is never
/// used again there, as with DPDK's `rte_eth_dev_owner_new`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub(crate) id: u64,
    pub(crate) name: String,
}

impl Owner {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Its name, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (owner {})", self.name, self.id)
    }
}
