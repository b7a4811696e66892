//! Values that a control thread replaces while lcores read them: rules, routes, a configuration (read-copy-update by quiescent state).
//!
//! ```text
//!   control thread                                        each lcore, once a round
//!   Publisher ── publish(new) ──► current value ◄── pass() ── Reader: &T until the next pass
//!        └─ keeps the old ones until every reader has passed, and frees them itself
//! ```
//!
//! A [`Reader`] looks for a newer value only in [`pass`](Reader::pass), so that what one round reads is of one value, never half
//! old and half new; the borrow checker sees to it that nothing of the old value is held over a pass. It never waits, and it never
//! frees a value while the [`Publisher`] is there: that takes the allocator's time where it does not hurt.
//!
//! Its counterpart in DPDK is `lib/rcu` (`rte_rcu_qsbr`), where readers report to a variable that writers wait for; here a reader
//! that never passes again, as an lcore that sleeps, holds back the one value that it has, and nothing else.
//!
//! ```
//! use pollux_eal::rcu;
//!
//! let (mut rules, mut reader) = rcu::published(vec!["drop tcp 23"]);
//! assert_eq!(reader.pass().len(), 1);
//! rules.publish(vec!["drop tcp 23", "drop udp 19"]);
//! assert_eq!((reader.get().len(), rules.held()), (1, 1)); // until the next round
//! assert_eq!(reader.pass().len(), 2);
//! assert_eq!(rules.held(), 0);
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockWriteGuard, TryLockError};

/// A value and its number; none where the newest value is in the other place.
type Place<T> = RwLock<Option<(u64, Arc<T>)>>;

/// Two places for values, used in turn: the publisher locks only the one in which the newest value is not, so that a reader always finds that
/// value free, whatever becomes of the publisher meanwhile. A place that is found locked or empty means that there is a newer value in the other.
#[derive(Debug)]
struct Shared<T> {
    /// Counts the values: the newest stands in the place of its number's last bit.
    version: AtomicU64,
    /// Only one of them has a value, but while the publisher is at work.
    places: [Place<T>; 2],
}

impl<T> Shared<T> {
    fn place(&self, version: u64) -> &Place<T> {
        &self.places[(version & 1) as usize]
    }

    /// Locks a place that has not the newest value: its readers are about to leave it. It does not sleep on the lock: a reader that has it would
    /// have to wake it, by a system call. Nothing panics while it is locked.
    fn lock(&self, version: u64) -> RwLockWriteGuard<'_, Option<(u64, Arc<T>)>> {
        loop {
            match self.place(version).try_write() {
                Ok(place) => return place,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }

    /// The newest value and its number. Waits for nobody: it looks again only when another value was published since it looked.
    fn newest(&self) -> (u64, Arc<T>) {
        loop {
            // Pairs with the release in `publish`: the value of that number was put in its place before.
            let version = self.version.load(Ordering::Acquire);
            let found = match self.place(version).try_read() {
                Ok(place) => place.clone(),
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(newest) = found {
                return newest;
            }
        }
    }
}

/// The writer's end.
#[derive(Debug)]
pub struct Publisher<T> {
    shared: Arc<Shared<T>>,
    /// Replaced, and held by a reader when that was last looked at.
    replaced: Vec<Arc<T>>,
}

/// A reader's end: one for each thread, made by `clone`.
#[derive(Debug)]
pub struct Reader<T> {
    shared: Arc<Shared<T>>,
    version: u64,
    value: Arc<T>,
}

/// Publishes a first value.
#[must_use]
#[doc(alias = "rte_rcu_qsbr_init")]
pub fn published<T>(value: T) -> (Publisher<T>, Reader<T>) {
    let value = Arc::new(value);
    let places = [RwLock::new(Some((0, Arc::clone(&value)))), RwLock::new(None)];
    let shared = Arc::new(Shared { version: AtomicU64::new(0), places });
    let reader = Reader { shared: Arc::clone(&shared), version: 0, value };
    (Publisher { shared, replaced: Vec::new() }, reader)
}

impl<T> Publisher<T> {
    /// Replaces the value, and frees what no reader has any more. What a reader learns from this thread after it comes with the new value.
    pub fn publish(&mut self, value: T) {
        // Nobody else changes it.
        let old = self.shared.version.load(Ordering::Relaxed);
        let new = old.wrapping_add(1);
        *self.shared.lock(new) = Some((new, Arc::new(value)));
        self.shared.version.store(new, Ordering::Release);
        let replaced = self.shared.lock(old).take();
        self.replaced.extend(replaced.map(|(_, value)| value));
        self.held();
    }

    /// Frees what no reader has any more. How many old values are still held: by readers, one each, two while one passes, and none once
    /// every one has passed; and by whoever asked for the [`newest`](Self::newest).
    #[doc(alias = "rte_rcu_qsbr_check")]
    pub fn held(&mut self) -> usize {
        self.still_held().count()
    }

    /// Frees what no reader has any more, as [`held`](Self::held), and returns the old values that are left.
    pub fn still_held(&mut self) -> impl Iterator<Item = &T> {
        self.replaced.retain_mut(|value| Arc::get_mut(value).is_none());
        self.replaced.iter().map(|value| &**value)
    }

    /// Another reader, which begins with the newest value.
    #[must_use]
    #[doc(alias = "rte_rcu_qsbr_thread_register")]
    pub fn reader(&self) -> Reader<T> {
        let (version, value) = self.shared.newest();
        Reader { shared: Arc::clone(&self.shared), version, value }
    }

    /// The newest value.
    #[must_use]
    pub fn newest(&self) -> Arc<T> {
        self.shared.newest().1
    }
}

impl<T> Reader<T> {
    /// Takes the newest value, if there is one newer than it has: what it had is done with. Once a round, where nothing of it is
    /// held any more. Hot: a load and a branch; after a change some tens of cycles more. It waits for nobody.
    #[inline]
    #[doc(alias = "rte_rcu_qsbr_quiescent")]
    pub fn pass(&mut self) -> &T {
        if self.shared.version.load(Ordering::Relaxed) != self.version {
            self.take();
        }
        &self.value
    }

    /// The value of this round.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &T {
        &self.value
    }

    #[cold]
    fn take(&mut self) {
        (self.version, self.value) = self.shared.newest();
    }
}

impl<T> Clone for Reader<T> {
    /// A reader that begins with the same value.
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), version: self.version, value: Arc::clone(&self.value) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    /// Counts how many there are, and the threads in which they end.
    struct Counted(u64, Arc<AtomicUsize>, thread::ThreadId);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_sub(1, Ordering::Relaxed);
            assert_eq!(thread::current().id(), self.2, "freed by a reader");
        }
    }

    fn counted(value: u64, all: &Arc<AtomicUsize>) -> Counted {
        all.fetch_add(1, Ordering::Relaxed);
        Counted(value, Arc::clone(all), thread::current().id())
    }

    #[test]
    fn an_old_value_lives_until_every_reader_has_passed() {
        let all = Arc::default();
        let (mut publisher, mut one) = published(counted(0, &all));
        let mut other = one.clone();
        publisher.publish(counted(1, &all));
        assert_eq!((one.get().0, one.pass().0, other.get().0), (0, 1, 0));
        assert_eq!((publisher.held(), all.load(Ordering::Relaxed)), (1, 2));
        assert_eq!(other.pass().0, 1);
        assert_eq!((publisher.held(), all.load(Ordering::Relaxed)), (0, 1));
    }

    #[test]
    fn a_reader_that_sleeps_holds_back_one_value() {
        let all = Arc::default();
        let (mut publisher, mut reader) = published(counted(0, &all));
        for value in 1..=100 {
            publisher.publish(counted(value, &all));
        }
        assert_eq!((publisher.held(), all.load(Ordering::Relaxed)), (1, 2));
        assert_eq!(publisher.reader().get().0, 100);
        assert_eq!((reader.get().0, reader.pass().0, publisher.newest().0), (0, 100, 100));
        drop(reader);
        assert_eq!((publisher.held(), all.load(Ordering::Relaxed)), (0, 1));
    }

    #[test]
    fn readers_see_whole_values_in_their_order_while_they_change() {
        let all = Arc::default();
        let (mut publisher, reader) = published(counted(0, &all));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let mut reader = reader.clone();
                thread::spawn(move || {
                    let mut last = 0;
                    while last < 10_000 {
                        let now = reader.pass().0;
                        assert!(now >= last && reader.get().0 == now);
                        last = now;
                    }
                    reader
                })
            })
            .collect();
        drop(reader);
        for value in 1..=10_000 {
            publisher.publish(counted(value, &all));
            // Two of each reader: the one that it leaves, and the one that it takes meanwhile.
            assert!(publisher.held() <= 4);
        }
        for reader in readers {
            assert_eq!(reader.join().expect("no panic").get().0, 10_000);
        }
        assert_eq!((publisher.held(), all.load(Ordering::Relaxed)), (0, 1));
    }

    /// As when it is preempted there: readers neither wait nor miss what was published.
    #[test]
    fn a_publisher_that_stands_still_holds_nobody_up() {
        let (mut publisher, mut reader) = published(0);
        publisher.publish(1);
        // About to put the next value, and about to take away the last one.
        let putting = publisher.shared.lock(2);
        assert_eq!((*reader.pass(), publisher.newest()), (1, Arc::new(1)));
        drop(putting);
        *publisher.shared.lock(2) = Some((2, Arc::new(2)));
        publisher.shared.version.store(2, Ordering::Release);
        let _taking = publisher.shared.lock(1);
        assert_eq!((*reader.pass(), publisher.newest()), (2, Arc::new(2)));
    }

    #[test]
    fn readers_outlive_the_publisher() {
        let (publisher, mut reader) = published(7);
        drop(publisher);
        assert_eq!((*reader.pass(), *reader.get()), (7, 7));
    }
}
