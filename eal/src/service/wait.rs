//! Who is inside what and waits for whom, so that two services that stop each other do not wait for ever.
//!
//! A *place* is a service, entered by each call, or a service core, entered by its loop. It becomes free when all have left. A
//! thread that waits for a place keeps those occupied that it is inside of itself. So it must not wait if, from the place it
//! waits for, those that wait lead back to one that it is inside of.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What can be waited for: by its address, which is its alone while somebody is inside or waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

impl Place {
    pub(super) fn of<T>(what: &T) -> Self {
        Self(std::ptr::from_ref(what).addr())
    }
}

thread_local! {
    /// Where the calling thread is, outermost first.
    static INSIDE: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// The calling thread is in a place until this is dropped.
pub(super) struct Inside(());

impl Inside {
    pub(super) fn enter(place: Place) -> Self {
        // A thread at its very end has no list any more; it cannot stop what it is in then.
        let _listed = INSIDE.try_with(|inside| inside.borrow_mut().push(place));
        Self(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _listed = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}

struct Waiter {
    inside: Vec<Place>,
    target: Place,
}

/// Of the process: a service of one `Eal` may stop one of another.
static WAITERS: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());

fn waiters() -> MutexGuard<'static, Vec<Waiter>> {
    WAITERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the end of a wait for `target` would wait for the leaving of one of the places `inside`.
fn leads_back(waiters: &[Waiter], target: Place, inside: &[Place]) -> bool {
    let mut reached = vec![target];
    let mut next = 0;
    while let Some(&place) = reached.get(next) {
        if inside.contains(&place) {
            return true;
        }
        for waiter in waiters.iter().filter(|waiter| waiter.inside.contains(&place)) {
            if !reached.contains(&waiter.target) {
                reached.push(waiter.target);
            }
        }
        next += 1;
    }
    false
}

/// Runs `wait`, which returns when nobody is inside `target`, unless that would be never.
pub(super) fn wait_for(target: Place, wait: impl FnOnce()) {
    let inside = INSIDE.try_with(|inside| inside.borrow().clone()).unwrap_or_default();
    if inside.is_empty() {
        // Nobody waits for this thread.
        return wait();
    }
    let mut all = waiters();
    if leads_back(&all, target, &inside) {
        return;
    }
    all.push(Waiter { inside: inside.clone(), target });
    drop(all);
    wait();
    let mut all = waiters();
    let own = all.iter().position(|waiter| waiter.target == target && waiter.inside == inside);
    own.map(|own| all.swap_remove(own));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(inside: &[usize], target: usize) -> Waiter {
        Waiter { inside: inside.iter().copied().map(Place).collect(), target: Place(target) }
    }

    #[test]
    fn a_wait_that_leads_back_is_found_however_long_the_way() {
        let all = [waiter(&[1, 2], 3), waiter(&[3], 4), waiter(&[4, 9], 5), waiter(&[7], 8), waiter(&[8], 7)];
        let ask = |target, inside: &[usize]| {
            let inside: Vec<Place> = inside.iter().copied().map(Place).collect();
            leads_back(&all, Place(target), &inside)
        };
        assert!(ask(2, &[5]), "2 waits for 3, 3 for 4, 4 for 5");
        assert!(ask(5, &[6, 5]), "itself");
        assert!(!ask(2, &[6]));
        assert!(!ask(5, &[1]), "nobody in 5 waits");
        assert!(!ask(7, &[1]), "a circle of others is not this thread's");
    }
}
