//! Object pools over pinned memory with per-lcore caches, and mbufs.

mod backend;
mod burst;
mod error;
mod mbuf;
mod pool;
mod shared;

pub use backend::Backend;
pub use burst::{BURST_MAX, Burst};
pub use error::PoolError;
pub use mbuf::flag::{RxFlags, TxFlags, TxOffload};
pub use mbuf::packet_type::PacketType;
pub use mbuf::{Mbuf, Segments};
pub use pool::{COUNT_MAX, DATA_ROOM, DATA_ROOM_MAX, HEADROOM, MbufPool, MbufPoolBuilder, PoolRegion};
pub use shared::{CACHE_MAX, POOLS_MAX};
