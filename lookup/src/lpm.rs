//! Longest prefix match for IPv4 and IPv6: a page table over the first 24 bits, groups of 256 entries for each 8 bits behind them.
//!
//! ```text
//!   address  | 12 bits | 12 bits | 8 bits | 8 bits ...
//!                |         |         |        |
//!              root ──► page ──► group ──► group ...      an entry is a next hop, or leads to the next group
//!             4096      4096      256       256
//! ```
//!
//! DPDK's `rte_lpm` has the same two steps over 24 and 8 bits, `rte_lpm6` 24 and 8 again and again. Here the first 24 bits are paged, so that
//! readers have the old pages while new ones are written, and pages that are one next hop, or none, exist once.
//!
//! A change costs what it covers: a prefix of up to 24 bits writes its share of 2^24 entries, less those of longer prefixes in it; whole
//! pages are one store. A longer prefix writes up to 256 entries on each level. The first change of a page after each
//! [`publish`](Lpm::publish) copies its 16 KiB, the first of a group its 1 KiB; whoever changes many routes publishes once.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU32;

mod address;
mod fill;
mod view;

pub use address::Address;
pub use view::{NO_ROUTE, View};

use crate::LookupError;
use crate::paged::{PageReader, Paged};
use crate::units::Units;
use view::{ENTRY_BITS, GROUP_WORDS, PAGE_BITS};

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
    paged: Paged<AtomicU32>,
    groups: Units,
    groups_max: usize,
    /// The routes, by prefix and length.
    routes: BTreeMap<(A, u8), u32>,
    /// How many routes there are of each length.
    lengths: [u32; 129],
}

impl<A: Address> Lpm<A> {
    /// No routes. There may be up to `groups` groups: each range of 256 entries behind the first 24 bits, 32, 40 ... in which there are longer
    /// prefixes takes one of 1 KiB.
    ///
    /// Memory is taken as routes need it, in huge pages where the kernel gives some: up to 64 MiB of pages and 1 KiB for each group, twice that
    /// while readers have an older version of all of it, three times at most; address space is taken for that at once.
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
        let (paged, units) = Paged::new(1 << PAGE_BITS, 1 << ENTRY_BITS, Some((GROUP_WORDS, groups)))?;
        Ok(Self { paged, groups: units, groups_max: groups, routes: BTreeMap::new(), lengths: [0; 129] })
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
        let levels = (A::BITS as usize - 24) / 8;
        if length > 24 && !self.groups.has_room(levels) {
            let used = self.groups.live();
            return Err(LookupError::Full { of: "groups", used, most: self.groups_max });
        }
        let old = self.routes.insert((prefix, length), next_hop);
        if old.is_none() {
            self.lengths[usize::from(length)] += 1;
        }
        if old != Some(next_hop) {
            self.cover(prefix, length, next_hop + 1);
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
        let shorter = (0..length).rev().filter(|shorter| self.lengths[usize::from(*shorter)] > 0);
        let shorter = shorter.filter_map(|shorter| self.routes.get(&(prefix.first(shorter.into()), shorter)));
        let entry = shorter.map(|hop| hop + 1).next().unwrap_or(0);
        if !self.collapse(prefix, length, entry) {
            self.cover(prefix, length, entry);
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

    /// All routes, by prefix: prefix, length, next hop.
    pub fn iter(&self) -> impl Iterator<Item = (A, u8, u32)> + '_ {
        self.routes.iter().map(|((prefix, length), hop)| (*prefix, *length, *hop))
    }

    /// Has readers read what was changed, from their next [`pass`](Reader::pass) on. They are not waited for. Costs a lock and some hundred
    /// cycles, and copies afterwards: see [the module](self).
    ///
    /// # Errors
    /// A reader is so far behind that there is no memory for another version; what was changed is published by a later call.
    pub fn publish(&mut self) -> Result<(), LookupError> {
        self.paged.publish(&mut self.groups)
    }

    /// The routes as they are now, with what is not published: for the writer itself.
    #[must_use]
    pub fn view(&self) -> View<'_, A> {
        View::new(self.paged.shared(), self.paged.working())
    }

    /// A reader of what was published last.
    #[must_use]
    pub fn reader(&self) -> Reader<A> {
        Reader { pages: PageReader::new(self.paged.shared()), address: PhantomData }
    }

    /// Bytes of memory that the table has written to, its copies among them; routes, which are the writer's alone, left out.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.paged.touched_bytes() + self.groups.touched() * size_of::<u32>()
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
    pages: PageReader<AtomicU32>,
    address: PhantomData<A>,
}

impl<A: Address> Reader<A> {
    /// The newest version, for a burst. Hot: a load and a branch; after a change a store.
    #[inline]
    pub fn pass(&mut self) -> View<'_, A> {
        let (shared, version) = self.pages.pass();
        View::new(shared, version)
    }
}

impl<A: Address> Clone for Reader<A> {
    /// A reader that begins with the newest version.
    fn clone(&self) -> Self {
        Self { pages: PageReader::new(self.pages.shared()), address: PhantomData }
    }
}
