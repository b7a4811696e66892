//! Longest prefix match for IPv4 and IPv6: a flat table over the first 24 bits, groups of 256 entries for each 8 bits behind them.
//!
//! ```text
//!   address  | 24 bits             | 8 bits | 8 bits ...
//!                |                     |        |
//!              table of 2^24 ──────► group ──► group ...      an entry is a next hop, or leads to the next group
//! ```
//!
//! DPDK's `rte_lpm` has the same two steps over 24 and 8 bits, `rte_lpm6` 24 and 8 again and again. Here the table exists twice: readers
//! have that of the published version, the writer changes the other one, which then is the next version. Groups are copied when they change.
//!
//! A change costs what it covers: a prefix of up to 24 bits its share of 2^24 entries, all of them for a default route, which takes tens of
//! milliseconds; a longer one up to 256 entries on each level. The first change after a [`publish`](Lpm::publish) also copies what that had
//! changed, into the writer's table; the first change of a group copies its 1 KiB. Whoever changes many routes publishes once.

use std::collections::HashMap;
use std::marker::PhantomData;

use foldhash::fast::RandomState;

mod address;
mod fill;
mod stale;
mod tables;
pub(crate) mod turns;
mod view;

#[cfg(all(test, not(loom)))]
mod tests;

pub use address::Address;
pub use view::{NO_ROUTE, View};

use crate::LookupError;
use crate::memory::Bytes;
use crate::reader::VersionReader;
use crate::units::Units;
use fill::Owner;
use tables::{ENTRIES, GROUPS_AT, SharedTables, Tables};
use view::GROUP_WORDS;

/// Routes of IPv4.
pub type Lpm4 = Lpm<u32>;
/// Routes of IPv6.
pub type Lpm6 = Lpm<u128>;

/// The largest next hop.
pub const NEXT_HOP_MAX: u32 = (1 << 31) - 2;

/// Most groups of a table.
const GROUPS_MAX: usize = 1 << 22;

/// Routes by prefix: the writer's end. Changes are the writer's own until they are published.
#[derive(Debug)]
pub struct Lpm<A> {
    tables: Tables,
    groups: Units,
    groups_max: usize,
    /// Whose the entries of the newest version are: see `fill`.
    depths: Bytes,
    /// The routes, by prefix and length.
    routes: HashMap<(A, u8), u32, RandomState>,
    /// How many routes there are of each length.
    lengths: [u32; 129],
}

impl<A: Address> Lpm<A> {
    /// No routes. There may be up to `groups` groups: each range of 256 entries behind the first 24 bits, 32, 40 ... in which there are longer
    /// prefixes takes one of 1 KiB.
    ///
    /// Memory is taken as routes need it, in huge pages where the kernel gives some: for a table that is published once up to 80 MiB, and 1.25
    /// KiB for each group; up to 64 MiB more when routes change after that, and as much again when they do so before all readers have passed.
    /// Groups exist up to three times while readers have older ones. Address space is taken for all that at once.
    ///
    /// # Errors
    /// No groups or more than 2^22; no address space.
    #[doc(alias = "rte_lpm_create")]
    #[doc(alias = "rte_lpm6_create")]
    #[doc(alias = "rte_fib_create")]
    #[doc(alias = "rte_fib6_create")]
    pub fn new(groups: usize) -> Result<Self, LookupError> {
        if !(1..=GROUPS_MAX).contains(&groups) {
            return Err(LookupError::Capacity { of: "groups", given: groups, most: GROUPS_MAX });
        }
        let too_large = LookupError::TooLarge { words: usize::MAX };
        let room = Units::room(GROUP_WORDS, groups).ok_or(too_large)?;
        Ok(Self {
            tables: Tables::new(room)?,
            groups: Units::new(GROUPS_AT, GROUP_WORDS, groups),
            groups_max: groups,
            depths: Bytes::new(ENTRIES + room)?,
            routes: HashMap::default(),
            lengths: [0; 129],
        })
    }

    /// Sets the next hop of a prefix: that which it had, if it had one.
    ///
    /// # Errors
    /// A prefix that is none, a next hop above [`NEXT_HOP_MAX`], or no group left for a prefix of more than 24 bits.
    #[doc(alias = "rte_lpm_add")]
    #[doc(alias = "rte_lpm6_add")]
    #[doc(alias = "rte_fib_add")]
    pub fn add(
        &mut self,
        prefix: impl Into<A>,
        length: u8,
        next_hop: u32,
    ) -> Result<Option<u32>, LookupError> {
        let prefix = self.check(prefix.into(), length)?;
        if next_hop > NEXT_HOP_MAX {
            return Err(LookupError::Value { given: next_hop, most: NEXT_HOP_MAX });
        }
        self.fetch(prefix);
        if !self.groups.has_room(self.missing_groups(prefix, length)) {
            let used = self.groups.live();
            return Err(LookupError::Full { of: "groups", used, most: self.groups_max });
        }
        let old = self.routes.insert((prefix, length), next_hop);
        if old.is_none() {
            self.lengths[usize::from(length)] += 1;
        }
        if old != Some(next_hop) {
            self.tables.begin();
            self.cover(prefix, length, Owner::prefix(length, next_hop));
        }
        Ok(old)
    }

    /// Removes a prefix: the next hop that it had. Addresses in it have that of the next shorter one.
    ///
    /// # Errors
    /// A prefix that is none.
    #[doc(alias = "rte_lpm_delete")]
    #[doc(alias = "rte_lpm6_delete")]
    #[doc(alias = "rte_fib_delete")]
    pub fn remove(&mut self, prefix: impl Into<A>, length: u8) -> Result<Option<u32>, LookupError> {
        let prefix = self.check(prefix.into(), length)?;
        let Some(old) = self.routes.remove(&(prefix, length)) else { return Ok(None) };
        self.lengths[usize::from(length)] -= 1;
        let mut shorter = (0..length).rev().filter(|shorter| self.lengths[usize::from(*shorter)] > 0);
        let owner = shorter.find_map(|shorter| {
            let next_hop = self.routes.get(&(prefix.first(shorter.into()), shorter))?;
            Some(Owner::prefix(shorter, *next_hop))
        });
        let owner = owner.unwrap_or(Owner::NOBODY);
        self.tables.begin();
        if !self.collapse(prefix, length, owner) {
            self.cover(prefix, length, owner);
        }
        Ok(Some(old))
    }

    /// The next hop of exactly this prefix.
    #[must_use]
    #[doc(alias = "rte_lpm_is_rule_present")]
    #[doc(alias = "rte_lpm6_is_rule_present")]
    pub fn get(&self, prefix: impl Into<A>, length: u8) -> Option<u32> {
        self.routes.get(&(prefix.into(), length)).copied()
    }

    /// Number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.len()
    }

    /// Whether there is no route.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Number of groups that the routes take.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.live()
    }

    /// All routes, by prefix: prefix, length, next hop. Sorts them first.
    pub fn iter(&self) -> impl Iterator<Item = (A, u8, u32)> + '_ {
        let mut routes: Vec<_> =
            self.routes.iter().map(|((prefix, length), hop)| (*prefix, *length, *hop)).collect();
        routes.sort_unstable();
        routes.into_iter()
    }

    /// Has readers read what was changed, from their next [`pass`](Reader::pass) on. They are not waited for. Costs a lock and some hundred
    /// cycles, and copies at the next change: see [the module](self).
    ///
    /// # Errors
    /// A reader has not passed since the version before was published. What was changed, and what will be, is published by a later call.
    pub fn publish(&mut self) -> Result<(), LookupError> {
        if let Some(taken) = self.tables.publish()? {
            self.groups.reclaim(taken);
            debug_assert!(self.groups.has_spare(), "only one version's groups wait for readers");
        }
        Ok(())
    }

    /// The routes as they are now, with what is not published: for the writer itself.
    #[must_use]
    pub fn view(&self) -> View<'_, A> {
        View::new(self.tables.shared(), self.tables.newest())
    }

    /// A reader of what was published last.
    #[must_use]
    pub fn reader(&self) -> Reader<A> {
        Reader { tables: VersionReader::new(self.tables.shared()), address: PhantomData }
    }

    /// Bytes of memory that the table has written to, its copies among them, in huge pages; the list of routes left out.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let depth = size_of::<u8>();
        self.tables.touched_bytes(depth) + self.groups.touched() * (size_of::<u32>() + depth)
    }

    fn check(&self, prefix: A, length: u8) -> Result<A, LookupError> {
        let address = prefix.ip();
        if u32::from(length) > A::BITS {
            return Err(LookupError::PrefixLength { address, length, most: A::BITS as u8 });
        }
        let network = prefix.first(length.into());
        if network == prefix {
            Ok(prefix)
        } else {
            Err(LookupError::HostBits { address, length, network: network.ip() })
        }
    }
}

/// A thread's end: it reads one version until it passes. A thread that sleeps drops its reader, lest the writer wait for it; a thread that has
/// none takes one by [`Clone`] of another's, or from [`Lpm::reader`].
#[derive(Debug)]
pub struct Reader<A> {
    tables: VersionReader<SharedTables>,
    address: PhantomData<A>,
}

impl<A: Address> Reader<A> {
    /// The newest version, for a burst. Hot: a load and a branch; after a change a store.
    #[inline]
    pub fn pass(&mut self) -> View<'_, A> {
        let (shared, version) = self.tables.pass();
        View::new(shared, version)
    }
}

impl<A: Address> Clone for Reader<A> {
    /// A reader that begins with the newest version.
    fn clone(&self) -> Self {
        Self { tables: self.tables.clone(), address: PhantomData }
    }
}
