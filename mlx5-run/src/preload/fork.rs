//! What becomes of devices when the program forks.

use std::cell::RefCell;
use std::sync::{Arc, MutexGuard, Once};

use super::opened::{self, Held};
use super::pages::{self, Pages};
use super::parent::{self, Role};
use super::service;

/// What the thread that forks holds meanwhile, in the order in which it is taken.
type Whole = (MutexGuard<'static, Role>, Held, MutexGuard<'static, Pages>);

thread_local! {
    static HELD: RefCell<Option<Whole>> = const { RefCell::new(None) };
}

/// From now on forks are heard of.
pub(super) fn hear() {
    static ONCE: Once = Once::new();
    // SAFETY: functions of this library, which is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
    });
}

extern "C" fn before() {
    HELD.with_borrow_mut(|held| *held = Some((parent::lock(), opened::hold(), pages::lock())));
}

extern "C" fn in_parent() {
    if let Some((mut role, files, pages)) = HELD.take() {
        drop((files, pages));
        let asked = role.forked();
        drop(role);
        asked.into_iter().for_each(service::start);
    }
}

extern "C" fn in_child() {
    let Some((mut role, mut files, pages)) = HELD.take() else { return };
    let mut closed = files.leave_to_parent();
    closed.extend(role.inherit().map(Arc::new));
    drop((role, files, pages));
    drop(closed);
}
