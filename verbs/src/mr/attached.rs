//! Regions that queues keep.

use std::sync::{Arc, Mutex, PoisonError};

use super::Mr;
use crate::pd::Pd;

/// Regions that a queue keeps: all that were ever posted to it.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    /// Those met last.
    recent: [u64; 4],
    turn: usize,
    all: Arc<Mutex<Vec<Mr>>>,
}

impl Attached {
    /// What keeps them, and the domain that the queue is of, for whoever destroys the queue.
    pub(crate) fn keeper(&self, pd: Option<&Pd>) -> Box<dyn Send> {
        Box::new((Arc::clone(&self.all), pd.cloned()))
    }

    /// Keeps a region. Hot: four comparisons for one that was met lately; a lock, and room for it, the first time.
    #[inline]
    pub(crate) fn keep(&mut self, mr: &Mr) {
        if !self.recent.contains(&mr.number()) {
            self.keep_new(mr);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep_new(&mut self, mr: &Mr) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.iter().any(|known| Arc::ptr_eq(&known.0, &mr.0)) {
            all.push(mr.clone());
        }
        self.recent[self.turn % 4] = mr.number();
        self.turn += 1;
    }
}
