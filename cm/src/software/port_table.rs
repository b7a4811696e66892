//! Local ports, and who holds them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::service::PortSpace;

/// Ports that are given to who asks for none. Source: RFC 6335, section 6.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// See the module.
#[derive(Debug)]
pub(super) struct PortTable {
    holders: HashMap<(PortSpace, u16), Vec<u64>>,
    /// The one of [`EPHEMERAL`] that was given last.
    last: u16,
}

impl Default for PortTable {
    fn default() -> Self {
        let first = RandomState::new().hash_one(()) % EPHEMERAL.len() as u64;
        Self { holders: HashMap::new(), last: EPHEMERAL.start() + first as u16 }
    }
}

impl PortTable {
    /// Takes a port, any for 0. One that others hold is taken if each of them `shares` it. `None`: there is none.
    pub(super) fn take(
        &mut self,
        space: PortSpace,
        port: u16,
        id: u64,
        shares: impl Fn(&u64) -> bool,
    ) -> Option<u16> {
        let port = if port == 0 { self.free(space)? } else { port };
        if !self.holders(space, port).iter().all(shares) {
            return None;
        }
        self.holders.entry((space, port)).or_default().push(id);
        Some(port)
    }

    /// A port that nobody holds.
    fn free(&mut self, space: PortSpace) -> Option<u16> {
        for _ in EPHEMERAL {
            self.last = if self.last == *EPHEMERAL.end() { *EPHEMERAL.start() } else { self.last + 1 };
            if !self.holders.contains_key(&(space, self.last)) {
                return Some(self.last);
            }
        }
        None
    }

    /// Who holds a port.
    pub(super) fn holders(&self, space: PortSpace, port: u16) -> &[u64] {
        self.holders.get(&(space, port)).map_or(&[], Vec::as_slice)
    }

    /// The ID holds the port no more; nothing happens if it never did.
    pub(super) fn release(&mut self, space: PortSpace, port: u16, id: u64) {
        if let Some(holders) = self.holders.get_mut(&(space, port)) {
            holders.retain(|holder| *holder != id);
            if holders.is_empty() {
                self.holders.remove(&(space, port));
            }
        }
    }
}
