//! Memory on the device.

use std::os::fd::OwnedFd;

use crate::abi::id;
use crate::call::Call;
use crate::handle::DmHandle;
use crate::{Context, UverbsError};

impl Context {
    /// Takes memory on the device. `extend` adds the driver's attributes; their answers are read from the call that comes
    /// back beside the handle.
    ///
    /// # Errors
    /// What the kernel says: `ENOMEM` when the device has no more. There is no older form.
    pub fn alloc_dm<'a>(
        &self,
        length: u64,
        log_align: u32,
        extend: impl FnOnce(&mut Call<'a>),
    ) -> Result<(DmHandle, Call<'a>), UverbsError> {
        use id::dm::alloc as a;
        let mut call = Call::new(id::dm::OBJECT, a::METHOD);
        call.new_object(a::HANDLE).u64(a::LENGTH, length).u32(a::ALIGNMENT, log_align);
        extend(&mut call);
        self.call(&mut call)?;
        Ok((DmHandle(call.created(a::HANDLE)?), call))
    }

    /// Makes a dma-buf of what a [mapping](Context::map) at `offset` bytes would show: memory of the device, or a page of its
    /// registers. It outlives neither the memory nor the context: what is done with it then fails. Source: rdma-core
    /// `libibverbs/cmd_dmabuf.c`; Linux `drivers/infiniband/core/uverbs_std_types_dmabuf.c`.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` where nothing is mapped at that offset, `EOPNOTSUPP` from one built without
    /// `CONFIG_PCI_P2PDMA`. There is no older form (before 7.0).
    pub fn export_dmabuf(&self, offset: u64) -> Result<OwnedFd, UverbsError> {
        use id::dmabuf::alloc as a;
        let mut call = Call::new(id::dmabuf::OBJECT, a::METHOD);
        call.new_fd(a::HANDLE).u64(a::PGOFF, offset);
        self.call(&mut call)?;
        call.created_fd(a::HANDLE)
    }

    /// Gives memory back to the device.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while a region is on it.
    pub fn free_dm(&self, dm: DmHandle) -> Result<(), UverbsError> {
        let mut call = Call::new(id::dm::OBJECT, id::dm::free::METHOD);
        call.object(id::dm::free::HANDLE, dm.0);
        self.call(&mut call)
    }
}
