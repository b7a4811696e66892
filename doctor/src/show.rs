//! What a machine has, as tables: huge pages, processors, network devices; and reserving huge pages. What DPDK's `dpdk-hugepages.py`, `cpu_layout.py` and
//! `dpdk-devbind.py --status` show, in their form.

mod cpus;
mod devices;
mod hugepages;
mod reserve;

use std::path::Path;

use crate::DoctorError;
use crate::root::Root;

pub use reserve::Reservation;

/// What is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Pools of huge pages of each node, and where they are mounted.
    HugePages,
    /// Cores of each socket and their processors.
    Cpus,
    /// Network and RDMA devices, and their drivers.
    Devices,
}

/// The table of a machine whose `sys` and `proc` are below `root`.
///
/// # Errors
/// [`DoctorError::Root`]; [`DoctorError::Show`]: the files are not there.
pub fn show(what: Show, root: &Path) -> Result<String, DoctorError> {
    if !root.is_dir() {
        return Err(DoctorError::Root { path: root.to_owned() });
    }
    let root = Root::new(root);
    match what {
        Show::HugePages => hugepages::text(&root),
        Show::Cpus => cpus::text(&root),
        Show::Devices => devices::text(&root),
    }
    .map_err(|gap| DoctorError::Show { problem: gap.to_string() })
}
