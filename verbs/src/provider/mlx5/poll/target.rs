//! Queue pairs and shared receive queues as the half that polls knows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mr::Piece;
use crate::provider::mlx5::hca::Index;
use crate::provider::mlx5::post::shared::SharedConsumer;
use crate::provider::mlx5::post::track::Consumer;
use crate::view::Errors;

/// The receive side of a queue pair, as its completion queue sees it.
#[derive(Debug)]
pub(crate) enum Receiver {
    /// It completes elsewhere, or does not receive.
    None,
    /// Its own.
    Own(Consumer<Piece>),
    /// A shared one.
    Shared(SharedConsumer<Piece>),
}

/// A queue pair or shared receive queue that completes here.
#[derive(Debug)]
pub(crate) struct Target {
    /// What completions call it.
    pub(crate) key: u32,
    /// Never used twice.
    pub(crate) serial: u64,
    /// Its number; 0 of a shared receive queue.
    pub(crate) number: u32,
    pub(crate) send: Option<Consumer<Piece>>,
    pub(crate) recv: Receiver,
    pub(crate) errors: Arc<Errors>,
    /// It is gone, and known only up to here.
    pub(crate) until: Option<u32>,
    /// The name stays taken as long as it is known.
    pub(crate) _index: Option<Arc<Index>>,
}

/// In the key of a shared receive queue, where completions give its number.
pub(crate) const SRQ_KEY: u32 = 1 << 31;

/// The number of the target that is made next.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// A number never given before.
pub(crate) fn serial() -> u64 {
    SERIAL.fetch_add(1, Ordering::Relaxed)
}
