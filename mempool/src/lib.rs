//! Object pools over pinned memory with per-lcore caches, and mbufs.

mod area;
mod audit;
mod backend;
mod burst;
mod cache;
pub mod dynamic;
mod error;
mod event;
mod external;
mod mbuf;
mod object;
mod objects;
mod pool;
mod registry;
mod shared;
mod stats;
mod user_cache;

pub use area::{Area, PoolRegion};
pub use audit::Fault;
pub use backend::Backend;
pub use burst::{BURST_MAX, Burst};
pub use cache::CACHE_MAX;
pub use error::PoolError;
pub use event::{PoolEvent, PoolInfo, Subscription, subscribe};
pub use external::External;
pub use mbuf::flag::{RxFlags, TxFlags, TxOffload};
pub use mbuf::packet_type::PacketType;
pub use mbuf::{Flaw, Mbuf, Segments};
pub use object::Object;
pub use objects::{OBJECT_BYTES_MAX, ObjectPool, ObjectPoolBuilder};
pub use pool::{COUNT_MAX, DATA_ROOM, DATA_ROOM_MAX, HEADROOM, MbufPool, MbufPoolBuilder};
pub use registry::POOLS_MAX;
pub use stats::PoolStats;
pub use user_cache::{MbufCache, UserCache};
