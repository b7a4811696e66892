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
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

#[derive(Debug)]
struct Shared<T> {
    /// Counts the values. A hint alone: what a reader takes, it takes under the lock.
    version: AtomicU64,
    current: Mutex<Arc<T>>,
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
    let current = Mutex::new(Arc::clone(&value));
    let shared = Arc::new(Shared { version: AtomicU64::new(0), current });
    let reader = Reader { shared: Arc::clone(&shared), version: 0, value };
    (Publisher { shared, replaced: Vec::new() }, reader)
}

impl<T> Publisher<T> {
    /// Replaces the value, and frees what no reader has any more.
    pub fn publish(&mut self, value: T) {
        let value = Arc::new(value);
        let old = {
            let mut current = self.current();
            self.shared.version.fetch_add(1, Ordering::Relaxed);
            std::mem::replace(&mut *current, value)
        };
        self.replaced.push(old);
        self.held();
    }

    /// Frees what no reader has any more. How many old values are still held: by readers, one each, two while one passes, and none once
    /// every one has passed; and by whoever asked for the [`newest`](Self::newest).
    #[doc(alias = "rte_rcu_qsbr_check")]
    pub fn held(&mut self) -> usize {
        self.replaced.retain_mut(|value| Arc::get_mut(value).is_none());
        self.replaced.len()
    }

    /// Another reader, which begins with the newest value.
    #[must_use]
    #[doc(alias = "rte_rcu_qsbr_thread_register")]
    pub fn reader(&self) -> Reader<T> {
        let current = self.current();
        let (version, value) = (self.shared.version.load(Ordering::Relaxed), Arc::clone(&current));
        Reader { shared: Arc::clone(&self.shared), version, value }
    }

    /// The newest value.
    #[must_use]
    pub fn newest(&self) -> Arc<T> {
        Arc::clone(&self.current())
    }

    /// Nothing panics while it is locked. It does not sleep on the lock: a reader that has it would have to wake it, by a system call.
    fn current(&self) -> MutexGuard<'_, Arc<T>> {
        loop {
            match self.shared.current.try_lock() {
                Ok(current) => return current,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            }
        }
    }
}

impl<T> Reader<T> {
    /// Takes the newest value, if there is one newer than it has: what it had is done with. Once a round, where nothing of it is
    /// held any more. Hot: a load and a branch; after a change a lock that it does not wait for, so that it may take the value a
    /// round later.
    #[inline]
    #[doc(alias = "rte_rcu_qsbr_quiescent")]
    pub fn pass(&mut self) -> &T {
        if self.shared.version.load(Ordering::Relaxed) != self.version {
            self.take();
        }
        &self.value
    }

    /// Whether the value is the newest: [`pass`](Self::pass) takes it a round later when another thread is at it just then.
    #[inline]
    #[must_use]
    pub fn is_newest(&self) -> bool {
        self.shared.version.load(Ordering::Relaxed) == self.version
    }

    /// The value of this round.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &T {
        &self.value
    }

    #[cold]
    fn take(&mut self) {
        let current = match self.shared.current.try_lock() {
            Ok(current) => current,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        self.version = self.shared.version.load(Ordering::Relaxed);
        let newest = Arc::clone(&current);
        drop(current);
        self.value = newest;
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
        assert_eq!((one.is_newest(), other.is_newest()), (true, false));
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

    #[test]
    fn readers_outlive_the_publisher() {
        let (publisher, mut reader) = published(7);
        drop(publisher);
        assert_eq!((*reader.pass(), *reader.get()), (7, 7));
    }
}
