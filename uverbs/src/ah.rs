//! Addresses.

use crate::abi::memory::{AhAttr, CreateAh, CreateAhResp, DestroyAh};
use crate::abi::{id, write};
use crate::handle::{AhHandle, PdHandle};
use crate::{Context, Driver, UverbsError};

impl Context {
    /// Makes an address handle. A driver may answer what the kernel resolved, such as a MAC address.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for a GID index without an entry, `ETIMEDOUT` when nobody has the destination.
    pub fn create_ah(
        &self,
        pd: PdHandle,
        address: &AhAttr,
        driver: Driver<'_>,
    ) -> Result<AhHandle, UverbsError> {
        let request = CreateAh { pd_handle: pd.0, attr: *address, ..CreateAh::default() };
        let answer: CreateAhResp = self.write(write::CREATE_AH, &request, driver)?;
        Ok(AhHandle(answer.ah_handle))
    }

    /// Destroys an address handle.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn destroy_ah(&self, ah: AhHandle) -> Result<(), UverbsError> {
        let command = (write::DESTROY_AH, DestroyAh { ah_handle: ah.0 });
        self.destroy((id::ah::OBJECT, id::ah::destroy::METHOD), ah.0, command)
    }
}
