//! Sets of CPUs, and pinning the calling thread to one.

use std::fmt;
use std::io;

use core_affinity::CoreId;
use pollux_config::LcoreSet;

/// A set of CPU numbers. Prints as the kernel prints it: `0-3,7`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(LcoreSet);

impl CpuSet {
    /// Returns the CPU affinity of the calling thread.
    ///
    /// # Errors
    /// The kernel's answer; it refuses when the machine has more CPUs than [`pollux_config::CPU_MAX`].
    pub fn of_this_thread() -> io::Result<Self> {
        let cpus = core_affinity::get_core_ids().ok_or_else(io::Error::last_os_error)?;
        Ok(cpus.into_iter().filter_map(|cpu| u16::try_from(cpu.id).ok()).collect())
    }

    /// Pins the calling thread to these CPUs.
    ///
    /// # Errors
    /// The kernel's answer, when no CPU of the set exists or none is allowed to the process.
    pub fn pin_this_thread(&self) -> io::Result<()> {
        match self.as_slice() {
            cpus if cpus.iter().any(|&cpu| cpu >= pollux_config::CPU_MAX) => {
                Err(io::ErrorKind::InvalidInput.into())
            }
            &[cpu] => {
                let pinned = core_affinity::set_for_current(CoreId { id: usize::from(cpu) });
                if pinned { Ok(()) } else { Err(io::Error::last_os_error()) }
            }
            cpus => hold_to_set(cpus),
        }
    }

    /// Returns the CPUs in ascending order.
    #[must_use]
    pub fn as_slice(&self) -> &[u16] {
        self.0.as_slice()
    }

    /// Returns whether the CPU is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u16) -> bool {
        self.0.contains(cpu)
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the CPUs that are in this set but not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.as_slice().iter().copied().filter(|&cpu| !other.contains(cpu)).collect()
    }
}

/// With rustix: `core_affinity` pins to one CPU, and lcores such as `0@(2-3)` and control threads have several.
fn hold_to_set(cpus: &[u16]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(usize::from(cpu)));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

impl FromIterator<u16> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u16>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl From<&LcoreSet> for CpuSet {
    fn from(set: &LcoreSet) -> Self {
        Self(set.clone())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_cannot_be() {
        let last = pollux_config::CPU_MAX - 1;
        assert!(
            CpuSet::from_iter([last]).pin_this_thread().is_err(),
            "a machine of that size has no such CPU"
        );
        assert!(CpuSet::from_iter([last + 1]).pin_this_thread().is_err());
        assert!(CpuSet::from_iter([last, last + 1]).pin_this_thread().is_err());
        assert!(CpuSet::default().pin_this_thread().is_err());
    }

    #[test]
    fn a_pinned_thread_stays_where_it_was_put() {
        std::thread::spawn(|| {
            let all = CpuSet::of_this_thread().expect("an affinity");
            let one: CpuSet = all.as_slice().iter().copied().take(1).collect();
            one.pin_this_thread().expect("pinned to one CPU");
            assert_eq!(CpuSet::of_this_thread().expect("an affinity"), one);
            all.pin_this_thread().expect("widened again");
            assert_eq!(CpuSet::of_this_thread().expect("an affinity"), all);
            assert_eq!(all.without(&one).len(), all.len() - 1);
        })
        .join()
        .expect("the thread ends well");
    }
}
