//! Memory windows.

use crate::abi::memory::{AllocMw, AllocMwResp, DeallocMw};
use crate::abi::{id, write};
use crate::handle::{MwHandle, PdHandle};
use crate::{Context, Driver, UverbsError};

/// Kind of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwType {
    /// Bound by a verb.
    Type1 = 1,
    /// Bound by a work request.
    Type2 = 2,
}

/// A memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mw {
    /// Its handle.
    pub handle: MwHandle,
    /// Its key, until it is bound.
    pub rkey: u32,
}

impl Context {
    /// Makes a memory window.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn alloc_mw(&self, pd: PdHandle, kind: MwType, driver: Driver<'_>) -> Result<Mw, UverbsError> {
        let request = AllocMw { pd_handle: pd.0, mw_type: kind as u8, ..AllocMw::default() };
        let answer: AllocMwResp = self.write(write::ALLOC_MW, &request, driver)?;
        Ok(Mw { handle: MwHandle(answer.mw_handle), rkey: answer.rkey })
    }

    /// Destroys a memory window.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn dealloc_mw(&self, mw: MwHandle) -> Result<(), UverbsError> {
        let command = (write::DEALLOC_MW, DeallocMw { mw_handle: mw.0 });
        self.destroy((id::mw::OBJECT, id::mw::destroy::METHOD), mw.0, command)
    }
}
