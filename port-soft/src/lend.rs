//! Things that queues borrow from their port's control half and give back when they are dropped.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Where a thing lies while no queue has it.
#[derive(Debug)]
pub(crate) struct Shelf<T>(Arc<Mutex<Option<T>>>);

impl<T> Shelf<T> {
    pub(crate) fn new(thing: T) -> Self {
        Self(Arc::new(Mutex::new(Some(thing))))
    }

    /// Takes it, unless a queue has it.
    pub(crate) fn lend(&self) -> Option<Lent<T>> {
        let thing = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(Lent { thing: Some(thing), shelf: self.0.clone() })
    }
}

/// A thing on loan; it goes back on drop.
#[derive(Debug)]
pub(crate) struct Lent<T> {
    thing: Option<T>,
    shelf: Arc<Mutex<Option<T>>>,
}

impl<T> Deref for Lent<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.thing.as_ref().expect("held until drop")
    }
}

impl<T> DerefMut for Lent<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("held until drop")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        *self.shelf.lock().unwrap_or_else(PoisonError::into_inner) = self.thing.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_back_again() {
        let shelf = Shelf::new(7);
        let mut lent = shelf.lend().expect("there");
        assert!(shelf.lend().is_none());
        *lent += 1;
        drop(lent);
        assert_eq!(shelf.lend().map(|lent| *lent), Some(8));
    }
}
