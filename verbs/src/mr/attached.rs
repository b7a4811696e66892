//! Regions that queues keep.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Mr, Piece};
use crate::Context;
use crate::pd::Pd;

/// What may be posted to a queue, and the regions that it keeps: all that were ever posted to it.
#[derive(Debug)]
pub(crate) struct Attached {
    /// The [serial](Context::serial) of the queue's context.
    context: u64,
    /// Those met last, by number: no two regions of the process have the same.
    recent: [u64; 4],
    turn: usize,
    all: Arc<Mutex<Vec<Mr>>>,
}

impl Attached {
    /// Nothing yet, for a queue of a context.
    pub(crate) fn new(context: &Context) -> Self {
        Self { context: context.serial(), recent: [0; 4], turn: 0, all: Arc::default() }
    }

    /// What keeps them, and the domain that the queue is of, for whoever destroys the queue.
    pub(crate) fn keeper(&self, pd: Option<&Pd>) -> Box<dyn Send> {
        Box::new((Arc::clone(&self.all), pd.cloned()))
    }

    /// Whether an object of the context with this serial may be named in requests of the queue.
    #[inline(always)]
    pub(crate) fn is_of(&self, context: u64) -> bool {
        self.context == context
    }

    /// Whether a piece may be posted. Hot: a comparison. What an mbuf's memory is called, the queue's own domain tells.
    #[inline(always)]
    pub(crate) fn takes(&self, piece: &Piece) -> bool {
        match piece {
            Piece::Buf(buf) => self.is_of(buf.context()),
            Piece::Mbuf(_) => true,
        }
    }

    /// Keeps a region; `false` for one of another context, whose key is another region's here. Hot: four comparisons for one that
    /// was met lately; a lock, and room for it, the first time.
    #[inline]
    pub(crate) fn keep(&mut self, mr: &Mr) -> bool {
        self.recent.contains(&mr.number()) || self.keep_new(mr)
    }

    #[cold]
    #[inline(never)]
    fn keep_new(&mut self, mr: &Mr) -> bool {
        if !self.is_of(mr.pd().context().serial()) {
            return false;
        }
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| Arc::ptr_eq(&known.0, &mr.0)) {
            all.push(mr.clone());
        }
        self.recent[self.turn % 4] = mr.number();
        self.turn += 1;
        true
    }
}
