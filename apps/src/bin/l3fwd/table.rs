//! What packets are looked up in, by kind of look-up.
//!
//! A table is made of the rule files as a whole and does not change. New rules are another table, which lcores take with their next burst
//! (`eal::rcu`): a burst is of one version, for IPv4 and IPv6, and no packet waits.

pub(crate) mod acl;
pub(crate) mod exact;
pub(crate) mod lpm;

use crate::assignment::Ports;
use crate::count::Reason;
use crate::packet::{V4, V6};
use crate::rule::Rules;

/// In place of a port: nothing matches.
pub(crate) const NO_ROUTE: u32 = u32::MAX;
/// In place of a port: a rule forbids the packet.
pub(crate) const DENIED: u32 = u32::MAX - 1;

/// Rules by which packets find the places of ports.
pub(crate) trait Table: Sized + Send + Sync + 'static {
    /// What a packet of IPv4 is found by.
    type Key4: Copy + Default + Send;
    /// The same of IPv6.
    type Key6: Copy + Default + Send;

    /// Makes one of both families' rules.
    ///
    /// # Errors
    /// A line that says which rule of which file is wrong.
    fn build(v4: &Rules, v6: &Rules, ports: &Ports) -> Result<Self, String>;

    /// The lines that lead to a port where there is no file, of IPv4 and IPv6: those of DPDK's l3fwd. None where a file has to be given.
    fn default_rules(port: u16) -> Option<[String; 2]>;

    /// How many rules there are of each family.
    fn lens(&self) -> [usize; 2];

    /// The key of a packet.
    fn key4(packet: &V4<'_>) -> Self::Key4;

    /// The key of a packet.
    ///
    /// # Errors
    /// It cannot be found.
    fn key6(packet: &V6<'_>) -> Result<Self::Key6, Reason>;

    /// Looks up a burst: places of ports, [`NO_ROUTE`] or [`DENIED`], into the front of `found`. Hot.
    fn find4(&self, keys: &[Self::Key4], found: &mut [u32]);

    /// The same.
    fn find6(&self, keys: &[Self::Key6], found: &mut [u32]);
}
