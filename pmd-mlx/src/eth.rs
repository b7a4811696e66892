//! Ethernet: ports made of RAW_PACKET queues.

pub mod devx;
pub mod filter;
pub(crate) mod flow;
pub mod parking;
pub mod parts;
pub mod port;
mod recovery;
pub mod rq;
pub mod rss;
pub mod rx;
pub mod sq;
pub mod tx;
pub mod verbs;
