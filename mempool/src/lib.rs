//! Object pools over pinned memory with per-lcore caches, and mbufs.
//!
//! ```text
//!  Mbuf, 8 bytes                        one object of the pool, in a region
//!  +---------+     +-----------------------------------------------------------------------------------------+
//!  | address | --> | Header, 64 bytes  | Cold, 64 bytes | private | headroom |      data      | tailroom | guard |
//!  +---------+     +-----------------------------------------------------------------------------------------+
//!                    pool number, kind,   next segment,             ^          ^                ^
//!                    references, lengths, tx offload,               room_at    + data_off       + data_len
//!                    port, flags, hash    dynamic fields            (a distance: no addresses in the region)
//!
//!   alloc ------+                                 +------ free, drop: any thread
//!               |                                 v
//!        +------+---------------------------------+-------+
//!        |  cache of slot 0   cache of slot 1   ...       |   a thread with a slot: its own cache, no atomics
//!        +------+---------------------------------+-------+
//!               ^ refill                          | flush       in bulk, half a cache or more at a time
//!        +------+---------------------------------v-------+
//!        |  back end: a ring or a stack                   |   a thread without a slot comes here directly
//!        +------------------------------------------------+
//! ```
//!
//! - An [`Mbuf`] is owned. It moves into a transmit queue, and goes home when it is dropped, on whatever thread;
//!   [`Mbuf::into_raw`] gives it to a device. A [`Burst`] is up to 64 of them, freed in bulk.
//! - An [`MbufPool`] is made over zones, of an EAL's [`Memory`](pollux_eal::memory::Memory) or others. Its handles are
//!   clones; mbufs that are out when the last handle goes keep the memory until they are home.
//! - An [`ObjectPool`] is the same for objects of any size, handed out as addresses.
//! - What lies in regions has no addresses in it, so that another process can map it one day. Caches, back ends and
//!   callbacks lie in the process's own memory.
//!
//! Ports and drivers call this crate; it calls `eal` for memory and slots, and `ring`.
//!
//! ```
//! use pollux_mempool::{Burst, MbufPool};
//!
//! let pool = MbufPool::builder("doc", 512).build_anonymous()?;
//! let mut burst = Burst::new();
//! assert!(pool.alloc_burst(&mut burst, 32));
//! assert!(burst[0].append_slice(b"hello"));
//! burst[0].prepend(2).expect("a fresh mbuf has headroom").copy_from_slice(b"> ");
//! assert_eq!(burst[0].data(), b"> hello");
//! drop(burst);
//! assert_eq!(pool.available(), 512);
//! # Ok::<(), pollux_mempool::PoolError>(())
//! ```

mod area;
mod audit;
mod backend;
mod builder;
mod burst;
mod cache;
mod copy;
#[cfg(doctest)]
mod doctests;
pub mod dynamic;
mod error;
mod event;
mod external;
mod mbuf;
mod object;
mod objects;
mod order;
mod pool;
mod registry;
mod shared;
mod stats;
mod subscription;
mod user_cache;

#[cfg(all(test, loom))]
mod loom_tests;

pub use area::{Area, PoolRegion};
pub use audit::Fault;
pub use backend::Backend;
pub use builder::{COUNT_MAX, PoolBuilder};
pub use burst::{BURST_MAX, Burst};
pub use cache::CACHE_MAX;
pub use copy::copy_frame;
pub use error::PoolError;
pub use event::{PoolEvent, PoolInfo};
pub use external::{External, ExternalMemory};
pub use mbuf::flag::{RxFlags, TxFlags, TxOffload};
pub use mbuf::{Flaw, Mbuf, Segments};
pub use object::Object;
pub use objects::{OBJECT_BYTES_MAX, ObjectPool, ObjectPoolBuilder, Objects};
pub use pool::{DATA_ROOM, DATA_ROOM_MAX, HEADROOM, MbufPool, MbufPoolBuilder, Mbufs};
pub use registry::POOLS_MAX;
pub use stats::PoolStats;
pub use subscription::{Subscription, subscribe};
pub use user_cache::{MbufCache, UserCache};

/// The kind of a packet, which a port that finds it out puts into the mbuf.
pub use pollux_wire::PacketType;
