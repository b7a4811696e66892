//! Tables that appliances stand on, which change while lcores read them: routes, exact match, flows with ageing, packet classification.
//!
//! ```text
//!   control thread                                            each lcore, once a burst
//!   Lpm4, Lpm6, ExactMatch ── add, remove, publish ──► version ◄── pass() ── Reader ─► View: lookup_burst
//!        └─ what was replaced is used again when every reader has passed
//!
//!   Classifier: rules made ready, replaced as a whole (eal::rcu)        FlowTable: of one lcore, nothing shared
//! ```
//!
//! | table | for | a look-up costs | memory | DPDK |
//! |---|---|---|---|---|
//! | [`Lpm4`] | longest prefix, IPv4 | 1 load, 2 behind prefixes over 24 bits | up to 80 MiB, 1.25 KiB for each /24 with longer prefixes | `rte_lpm`, `rte_fib` |
//! | [`Lpm6`] | longest prefix, IPv6 | 1 load, 1 for each 8 bits after 24 | the same, 1.25 KiB for each level of a prefix over 24 bits | `rte_lpm6`, `rte_fib6` |
//! | [`ExactMatch`] | keys of 1 to 64 bytes | 1 cache line of 16-byte keys, 2 for few | 28 MB for a million keys of 16 bytes | `rte_hash` |
//! | [`FlowTable`] | flows of one lcore, with deadlines | as exact match | the same and the flow's own | |
//! | [`Classifier`] | 5-tuples against rules | some 20 loads and 5 for each 64 rules in question | a bit a rule and class | `rte_acl` |
//!
//! A burst reads under one [`View`](lpm::View), which is of one version: never half of a change. Readers are values that lcores own; they do
//! not wait, lock, or write but for a store after a change. The writer does not wait for them either: it changes what no reader has, and
//! [`publish`](lpm::Lpm::publish) makes that the next version. Routes have a second table for it, of up to 64 MiB, and copies of groups; keys
//! have copies of pages, 16 KiB each. What was replaced is used again when every reader has passed. A reader that sleeps holds its version:
//! `publish` says so when one is behind by a version of routes, or by fourteen of keys, and changes collect until it passes or is dropped.
//! What changed exists twice meanwhile, three times at most; a table that does not change exists once.
//!
//! Errors are [`LookupError`]; a change that fails leaves its table as it was. Uses `atomic`; called by programs, `fragment` and the benches.
//! Figures beside DPDK: `cargo xtask bench peers --only lpm`, `--only em_`.
//!
//! ```
//! use std::net::Ipv4Addr;
//!
//! use pollux_lookup::lpm::NO_ROUTE;
//! use pollux_lookup::{ExactMatch, Lpm4};
//!
//! let mut routes = Lpm4::new(1024)?;
//! routes.add(Ipv4Addr::new(10, 0, 0, 0), 8, 1)?;
//! routes.add(Ipv4Addr::new(10, 1, 0, 0), 16, 2)?;
//! routes.publish()?;
//!
//! // Of an lcore: one version for the whole burst, addresses in host order.
//! let mut reader = routes.reader();
//! let (burst, mut hops) = ([0x0a00_0001, 0x0a01_0001, 0xc000_0201], [0; 3]);
//! reader.pass().lookup_burst(&burst, &mut hops);
//! assert_eq!(hops, [1, 2, NO_ROUTE]);
//!
//! routes.remove(Ipv4Addr::new(10, 1, 0, 0), 16)?;
//! assert_eq!(reader.pass().lookup(0x0a01_0001u32), Some(2)); // not published
//! routes.publish()?;
//! assert_eq!(reader.pass().lookup(0x0a01_0001u32), Some(1));
//!
//! let mut sessions = ExactMatch::<[u8; 16]>::new(1000)?;
//! sessions.insert(b"a key of 16 byte", 7)?;
//! assert_eq!(sessions.view().lookup(b"a key of 16 byte"), Some(7));
//! # Ok::<(), pollux_lookup::LookupError>(())
//! ```

pub mod acl;
mod bits;
pub mod error;
pub mod exact;
pub mod flow;
pub mod lpm;
mod memory;
mod order;
mod paged;
mod reader;
mod simd;
mod units;
mod version;

pub use acl::Classifier;
pub use error::LookupError;
pub use exact::ExactMatch;
pub use flow::FlowTable;
pub use lpm::{Lpm4, Lpm6};

#[cfg(all(test, loom))]
mod loom_tests;
