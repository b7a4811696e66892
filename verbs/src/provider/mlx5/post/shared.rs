//! What was posted to a shared receive queue: one writes, several take, in any order.
//!
//! Each place has a state. The side that posts sets it with release when tokens stand behind it; a completion takes the place
//! by swapping the state, so that no two do, and gives it back on a list that the side that posts takes as a whole.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pollux_eal::counter::Counter;

use crate::view::{Fill, Gauge};

#[derive(Debug, Default)]
struct Place {
    /// 0: not the device's. Otherwise one more than its tokens.
    state: AtomicU32,
    /// Of a place that was given back: one more than the one given back before it.
    next: AtomicU32,
    id: UnsafeCell<u64>,
}

/// Places posted in all. Stored by the side that posts with each doorbell, so not where those that take look; read by views alone.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Posted(Counter);

struct Places<T> {
    places: Box<[Place]>,
    tokens: Box<[UnsafeCell<MaybeUninit<T>>]>,
    pieces: usize,
    /// One more than the place given back last.
    freed: AtomicU32,
    posted: Posted,
    let_go: AtomicBool,
}

// SAFETY: a place's word and tokens belong to the producer while it is free, and to whoever swapped its state otherwise.
unsafe impl<T: Send> Sync for Places<T> {}

impl<T> Places<T> {
    fn token(&self, place: usize, at: usize) -> *mut MaybeUninit<T> {
        self.tokens[place * self.pieces + at].get()
    }
}

impl<T: Send> Gauge for Places<T> {
    fn fill(&self) -> Fill {
        let posted = self.posted.0.get();
        let used = self.places.iter().filter(|place| place.state.load(Ordering::Relaxed) != 0).count();
        // One stays free: see `srq`.
        let places = (self.places.len() as u32).saturating_sub(1);
        Fill { places, used: (used as u32).min(places), posted }
    }
}

impl<T> Drop for Places<T> {
    fn drop(&mut self) {
        if !*self.let_go.get_mut() {
            return;
        }
        for place in 0..self.places.len() {
            let state = *self.places[place].state.get_mut();
            for at in 0..state.saturating_sub(1) as usize {
                // SAFETY: so many tokens stand there, and all sides are gone.
                unsafe { (*self.token(place, at)).assume_init_drop() };
            }
        }
    }
}

/// The side that posts. There is one of it.
pub(crate) struct SharedProducer<T>(Arc<Places<T>>);

/// The side that takes; each completion queue that may get completions has one.
pub(crate) struct SharedConsumer<T>(Arc<Places<T>>);

impl<T> Clone for SharedConsumer<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> std::fmt::Debug for SharedConsumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedConsumer").finish_non_exhaustive()
    }
}

/// `entries` places of up to `pieces` tokens.
pub(crate) fn shared<T>(entries: usize, pieces: usize) -> (SharedProducer<T>, SharedConsumer<T>) {
    let places = Arc::new(Places {
        places: (0..entries).map(|_| Place::default()).collect(),
        tokens: (0..entries * pieces).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        pieces,
        freed: AtomicU32::new(0),
        posted: Posted::default(),
        let_go: AtomicBool::new(false),
    });
    (SharedProducer(Arc::clone(&places)), SharedConsumer(places))
}

impl<T: Send + 'static> SharedProducer<T> {
    /// What is posted and done, for other threads.
    pub(crate) fn gauge(&self) -> Arc<dyn Gauge> {
        Arc::clone(&self.0) as Arc<dyn Gauge>
    }
}

impl<T> SharedProducer<T> {
    /// Counts places of which the device was told.
    pub(crate) fn count(&mut self, places: u32) {
        self.0.posted.0.add(places.into());
    }

    /// Keeps a token of a free place. It is lost unless the place is [posted](Self::post) with it.
    #[inline(always)]
    pub(crate) fn keep(&mut self, place: usize, at: usize, token: T) {
        // SAFETY: the place is free, so nobody else looks there.
        unsafe { (*self.0.token(place, at)).write(token) };
    }

    /// Posts a free place with the tokens kept there. Comes before the doorbell record.
    #[inline(always)]
    pub(crate) fn post(&mut self, place: usize, id: u64, tokens: usize) {
        // SAFETY: the place is free, so nobody else looks there.
        unsafe { *self.0.places[place].id.get() = id };
        // Release pairs with the Acquire in `claim`.
        self.0.places[place].state.store(tokens as u32 + 1, Ordering::Release);
    }

    /// Takes back what was posted at a place of which the device was not told. Nothing if it reports it done all the same.
    pub(crate) fn unpost(&mut self, place: usize, mut each: impl FnMut(T)) {
        let tokens = self.0.places[place].state.swap(0, Ordering::Acquire).saturating_sub(1);
        for at in 0..tokens as usize {
            // SAFETY: so many tokens stand there, and whoever swapped the state has them.
            each(unsafe { (*self.0.token(place, at)).assume_init_read() });
        }
    }

    /// Calls `each` with the places given back since the last call, the last one first.
    pub(crate) fn take_freed(&mut self, mut each: impl FnMut(usize)) {
        // Acquire pairs with the Release in `Claim`.
        let mut link = self.0.freed.swap(0, Ordering::Acquire);
        while link != 0 {
            let place = link as usize - 1;
            link = self.0.places[place].next.load(Ordering::Relaxed);
            each(place);
        }
    }

    /// Says that the device has no more to do with any of it.
    pub(crate) fn let_go(&self) {
        self.0.let_go.store(true, Ordering::Release);
    }
}

impl<T> SharedConsumer<T> {
    /// Takes the entry at `place`, if one is posted there.
    #[inline(always)]
    pub(crate) fn claim(&self, place: u16) -> Option<Claim<'_, T>> {
        let slot = self.0.places.get(usize::from(place))?;
        // Acquire pairs with the Release in `post`.
        let tokens = slot.state.swap(0, Ordering::Acquire).checked_sub(1)?;
        // SAFETY: the place is ours until it is given back.
        let id = unsafe { *slot.id.get() };
        Some(Claim { places: &self.0, place: usize::from(place), at: 0, tokens: tokens as usize, id })
    }
}

/// An entry that is done. What is not taken is dropped.
pub(crate) struct Claim<'c, T> {
    places: &'c Places<T>,
    place: usize,
    at: usize,
    tokens: usize,
    pub(crate) id: u64,
}

impl<T> Claim<'_, T> {
    /// How many tokens are left.
    pub(crate) fn left(&self) -> u32 {
        (self.tokens - self.at) as u32
    }

    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.at == self.tokens {
            return None;
        }
        self.at += 1;
        // SAFETY: so many tokens stand there, each read once; the place is ours until it is given back.
        Some(unsafe { (*self.places.token(self.place, self.at - 1)).assume_init_read() })
    }
}

impl<T> Drop for Claim<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        while let Some(token) = self.next() {
            drop(token);
        }
        let freed = &self.places.freed;
        let mut head = freed.load(Ordering::Relaxed);
        loop {
            self.places.places[self.place].next.store(head, Ordering::Relaxed);
            // Release pairs with the Acquire in `take_freed`. The list is only ever taken whole, so a head that is seen again
            // is the same list.
            match freed.compare_exchange_weak(
                head,
                self.place as u32 + 1,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(seen) => head = seen,
            }
        }
    }
}
