//! Whose connection manager it is: the kernel's, or one in this process.

use std::path::Path as FilePath;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_verbs::Options;

use crate::agent::{Counts, Timing};
use crate::error::CmError;
use crate::kernel::Kernel;
use crate::management::ManagementPort;
use crate::software::Software;

/// Whose connection manager it is.
#[derive(Debug)]
pub(crate) enum Side {
    Software(Mutex<Software>),
    Kernel(Kernel),
}

impl Side {
    pub(crate) fn within<T>(software: &Mutex<Software>, work: impl FnOnce(&mut Software) -> T) -> T {
        work(&mut Self::locked(software))
    }

    pub(crate) fn locked(software: &Mutex<Software>) -> MutexGuard<'_, Software> {
        // A call leaves no change half done that another would believe.
        software.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does the same with either side.
macro_rules! either {
    ($manager:expr, $software:ident => $one:expr, $kernel:ident => $other:expr) => {
        match &*$manager.0 {
            $crate::manager::Side::Software(software) => {
                $crate::manager::Side::within(software, |$software| $one)
            }
            $crate::manager::Side::Kernel($kernel) => $other,
        }
    };
}

pub(crate) use either;

/// A connection manager: the kernel's, or one in this process. Clones are handles; IDs and channels keep it.
#[derive(Clone, Debug)]
pub struct Manager(pub(crate) Arc<Side>);

impl Manager {
    /// The manager of these ports, in this process. It works while its channels are asked for events, and has no thread.
    #[must_use]
    pub fn over(ports: Vec<ManagementPort>) -> Self {
        Self::with_timing(ports, Timing::default())
    }

    /// The same with other times.
    #[must_use]
    pub fn with_timing(ports: Vec<ManagementPort>, timing: Timing) -> Self {
        Self(Arc::new(Side::Software(Mutex::new(Software::new(ports, timing)))))
    }

    /// The kernel's, below a root: `/` but in tests. Devices that IDs lead to are opened with `options`.
    ///
    /// # Errors
    /// [`CmError::Open`]: the kernel has none, or no right to open it.
    pub fn kernel(root: &FilePath, options: Options) -> Result<Self, CmError> {
        Ok(Self(Arc::new(Side::Kernel(Kernel::open(root, options)?))))
    }

    /// What was heard and said; of the kernel's nobody knows it.
    #[must_use]
    pub fn counts(&self) -> Option<Counts> {
        either!(self, software => Some(software.counts()), _kernel => None)
    }

    /// Whether it is one in this process, which works while it is asked. Takes no lock.
    #[must_use]
    pub fn is_in_process(&self) -> bool {
        matches!(&*self.0, Side::Software(_))
    }

    pub(crate) fn destroy(&self, id: u64) {
        either!(self, software => software.destroy(id), kernel => kernel.destroy(id));
    }
}
