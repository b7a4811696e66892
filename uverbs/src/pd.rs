//! Protection domains.

use crate::abi::memory::{AllocPd, AllocPdResp, DeallocPd};
use crate::abi::{id, write};
use crate::handle::PdHandle;
use crate::{Context, Driver, UverbsError};

impl Context {
    /// Makes a protection domain.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn alloc_pd(&self, driver: Driver<'_>) -> Result<PdHandle, UverbsError> {
        let answer: AllocPdResp = self.write(write::ALLOC_PD, &AllocPd::default(), driver)?;
        Ok(PdHandle(answer.pd_handle))
    }

    /// Destroys a protection domain.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while something is in it.
    pub fn dealloc_pd(&self, pd: PdHandle) -> Result<(), UverbsError> {
        let command = (write::DEALLOC_PD, DeallocPd { pd_handle: pd.0 });
        self.destroy((id::pd::OBJECT, id::pd::destroy::METHOD), pd.0, command)
    }
}
