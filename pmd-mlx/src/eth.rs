//! Ethernet: ports made of RAW_PACKET queues.

pub mod backend;
pub mod bytes;
pub mod devx;
mod dump;
pub mod filter;
pub(crate) mod flow;
mod matching;
pub mod parking;
pub mod parts;
pub mod port;
mod recovery;
pub mod rq;
pub mod rss;
mod rule;
pub mod rx;
mod speed;
pub mod sq;
mod stats;
pub mod tx;
pub mod verbs;
