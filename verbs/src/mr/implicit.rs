//! All memory of a process under one key.

use std::sync::Arc;

use pollux_eal::region::Zone;
use pollux_uverbs::MrHandle;
use pollux_uverbs::abi::flags::{Access, OdpGeneral};
use pollux_uverbs::mr::MrRequest;

use std::mem::ManuallyDrop;

use super::{Memory, Mr};
use crate::VerbsError;
use crate::pd::Pd;

/// All memory of the process, registered once, whose pages come on demand (implicit on-demand paging): zones become regions of it
/// without a call of the kernel. Of this side alone: peers have no rights but through windows. Clones are handles; regions keep it.
///
/// A device model has room for some 60 different GiB in which such regions were used, of all its contexts together; beyond them work fails
/// as if the memory were not there.
#[derive(Clone, Debug)]
pub struct AllMemory(Arc<All>);

#[derive(Debug)]
struct All {
    pd: Pd,
    handle: MrHandle,
    key: u32,
}

impl Drop for All {
    fn drop(&mut self) {
        if let Err(error) = self.pd.context().uverbs().dereg_mr(self.handle) {
            tracing::warn!(target: "lib.verbs", "{}: {error}", self.pd.context().name());
        }
    }
}

/// What it allows.
const ACCESS: Access = Access::LOCAL_WRITE.union(Access::ON_DEMAND);

impl AllMemory {
    /// Registers it.
    ///
    /// # Errors
    /// [`VerbsError::Unsupported`] where the device or its driver cannot, or what the kernel says.
    #[doc(alias = "IBV_ACCESS_ON_DEMAND")]
    pub fn register(pd: &Pd) -> Result<Self, VerbsError> {
        let caps = OdpGeneral::from_bits_retain(pd.context().device()?.odp_caps.general_caps);
        if !caps.contains(OdpGeneral::SUPPORT | OdpGeneral::IMPLICIT) {
            return Err(VerbsError::Unsupported {
                what: "all memory of a process as one region",
                why: "the device has no implicit on-demand paging; register each zone".into(),
            });
        }
        let request = MrRequest { pd: pd.handle(), start: 0, length: u64::MAX, hca_va: 0, access: ACCESS };
        // SAFETY: the device reaches what requests name with its key, which regions alone have: each of them keeps its zone until no
        // queue has it. Peers have no rights.
        let made = unsafe { pd.context().register(&request) };
        let made = made.map_err(VerbsError::kernel("register all memory of the process"))?;
        Ok(Self(Arc::new(All { pd: pd.clone(), handle: made.handle, key: made.lkey })))
    }

    /// A zone as a region. Of its rights peers have none.
    #[must_use]
    pub fn region(&self, zone: Zone) -> Mr {
        let (address, bytes) = (zone.base().as_ptr().addr() as u64, zone.bytes());
        let memory = Memory::Part { zone: ManuallyDrop::new(zone), _all: self.clone() };
        Mr::made(&self.0.pd, memory, None, (self.0.key, self.0.key), address, bytes, ACCESS)
    }

    /// Allocates zeroed memory as a region.
    ///
    /// # Errors
    /// No memory.
    pub fn allocate(&self, bytes: usize) -> Result<Mr, VerbsError> {
        let mut zone = self.0.pd.context().reserve(bytes)?;
        zone.clear();
        Ok(self.region(zone))
    }
}
