//! Lock-free rings: bounded queues of one fixed capacity between threads, moved through in bursts.
//!
//! ```text
//!            seq runs free, slot = seq & mask
//!                                                   capacity
//!        consumer.tail   consumer.head         <------------------->
//!              v              v
//!   +-----+----+----+----+----+----+----+----+----+----+----+-----+
//!   | free     | being taken  | elements     | being put    | free |    a power of two of slots
//!   +-----+----+----+----+----+----+----+----+----+----+----+-----+
//!                                            ^              ^
//!                                      producer.tail   producer.head
//!
//!   +----------+ +----------+ +----------+ +------------------------+
//!   | identity | | producer | | consumer | | slots ...              |    one piece of memory, no pointers in it
//!   +----------+ +----------+ +----------+ +------------------------+
//! ```
//!
//! | module | threads on a side | what it is for |
//! |---|---|---|
//! | [`spsc`] | one | a queue from lcore to lcore; peek and zero-copy |
//! | [`mpmc`] | many | a pool's back end; each thread has its core |
//! | [`rts`] | many | threads outnumber cores |
//! | [`hts`] | many, one at a time | peek and zero-copy for many threads |
//!
//! `ring(capacity)` makes a ring in memory of its own, [`in_region`](spsc::in_region) in memory that is given and may be
//! mapped by several processes. Both give a producer and a consumer. *Bulk* moves all elements or none, *burst* as many
//! as it can; each call says how many it moved and how much is left. The slots are a power of two, the capacity is
//! exactly what was asked for. Elements left inside are dropped with the last end.
//!
//! Elements are moved bitwise, a burst in one copy: from a [`Source`] (a slice of `Copy` elements, a `Vec`, a burst of
//! mbufs) and to a [`Sink`]. The `_raw` calls take pointers.
//!
//! Pools (`mempool`) and ring ports (`port-soft`) call this crate; it calls nobody.

mod counts;
#[cfg(doctest)]
mod doctests;
mod error;
mod header;
mod hold;
pub mod hts;
mod index;
pub mod mpmc;
mod order;
mod pace;
mod primitive;
pub mod rts;
pub mod shared;
pub mod spsc;
mod storage;
mod transfer;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use error::RingError;
pub use header::Kind;
pub use hold::{Peeked, Reserved};
pub use storage::{Plain, RegionSpan, region_align, region_bytes};
pub use transfer::{Dequeued, Enqueued, Sink, Source};
