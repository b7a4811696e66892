//! Control threads: all that an `Eal` runs beside its lcores, kept off the lcores' CPUs.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use crate::EalError;
use crate::lcore::CpuSet;

/// Where one living `Eal` put the thread that made it.
struct Narrowed {
    thread: ThreadId,
    control: CpuSet,
    allowed: CpuSet,
}

// A fact about the process, not about one `Eal`: without it a second `Eal` would take the CPUs that the first left to
// its maker for all that the process has.
static NARROWED: Mutex<Vec<Narrowed>> = Mutex::new(Vec::new());

fn narrowed() -> MutexGuard<'static, Vec<Narrowed>> {
    NARROWED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The CPUs that the process may use: the calling thread's, unless a living `Eal` narrowed those.
pub(crate) fn process_affinity() -> Result<CpuSet, EalError> {
    let mine = CpuSet::of_this_thread().map_err(|source| EalError::Affinity { source })?;
    let known = narrowed().iter().find(|eal| eal.control == mine).map(|eal| eal.allowed.clone());
    Ok(known.unwrap_or(mine))
}

/// Holds the thread that made an `Eal` off its lcores.
#[derive(Debug)]
pub(crate) struct OffLcores {
    thread: ThreadId,
    control: CpuSet,
}

impl OffLcores {
    /// Moves the calling thread.
    pub(crate) fn this_thread(control: &CpuSet, allowed: &CpuSet) -> Result<Self, EalError> {
        let thread = std::thread::current().id();
        let pin =
            |source| EalError::Pin { thread: "the control thread".into(), cpus: control.clone(), source };
        control.pin_this_thread().map_err(pin)?;
        narrowed().push(Narrowed { thread, control: control.clone(), allowed: allowed.clone() });
        Ok(Self { thread, control: control.clone() })
    }
}

impl Drop for OffLcores {
    fn drop(&mut self) {
        let mut all = narrowed();
        let Some(index) = all.iter().position(|eal| eal.thread == self.thread && eal.control == self.control)
        else {
            return;
        };
        let gone = all.remove(index);
        if self.thread == std::thread::current().id() {
            let last = all.iter().rev().find(|eal| eal.thread == self.thread);
            // Not worth an error on the way out: the thread keeps running where it is.
            let _kept = last.map_or(&gone.allowed, |eal| &eal.control).pin_this_thread();
        }
    }
}
