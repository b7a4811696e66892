//! What becomes of devices when the program forks.

use std::cell::RefCell;
use std::sync::MutexGuard;

use super::host::{self, Role};
use super::manager;
use super::netdev::{self, Quiet};
use super::opened::{self, Held};
use super::pages::{self, Pages};
use super::service;
use crate::plan::VARIABLE;

/// What the thread that forks holds meanwhile, in the order in which it is taken.
type Whole = (MutexGuard<'static, Role>, Held, MutexGuard<'static, Pages>, Quiet, manager::Files);

thread_local! {
    static HELD: RefCell<Option<Whole>> = const { RefCell::new(None) };
}

/// Run when the library is loaded, before the program: no call of the program's needs to see to it.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = hear;

/// From now on forks are heard of, in programs of the launcher's.
extern "C" fn hear() {
    if std::env::var_os(VARIABLE).is_some() {
        // SAFETY: functions of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    }
}

extern "C" fn before() {
    HELD.with_borrow_mut(|held| {
        *held = Some((host::lock(), opened::hold(), pages::lock(), netdev::hold(), manager::hold()))
    });
}

extern "C" fn in_parent() {
    if let Some((mut role, files, pages, quiet, managers)) = HELD.take() {
        drop((files, pages, quiet, managers));
        let asked = role.forked();
        drop(role);
        asked.into_iter().for_each(service::start);
    }
}

extern "C" fn in_child() {
    let Some((mut role, mut files, pages, mut quiet, mut managers)) = HELD.take() else { return };
    files.leave_to_host();
    manager::leave(&mut managers);
    let closed = (quiet.leave(), role.inherit());
    drop((role, files, pages, quiet, managers));
    // This library looks at what is closed.
    drop(closed);
}
