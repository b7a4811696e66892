//! Memory regions.
#![expect(unsafe_code, reason = "memory that a device reads and writes is told by address")]

use std::os::fd::BorrowedFd;

use zerocopy::IntoBytes;

use crate::abi::flags::{Access, Advice, Rereg};
use crate::abi::ioctl_verbs::Sge;
use crate::abi::memory::{DeregMr, RegMr, RegMrResp, ReregMr, ReregMrResp};
use crate::abi::{id, write};
use crate::call::Call;
use crate::handle::{DmHandle, MrHandle, PdHandle};
use crate::{Context, Driver, UverbsError};

/// What to register.
#[derive(Clone, Copy, Debug)]
pub struct MrRequest {
    /// Protection domain.
    pub pd: PdHandle,
    /// Address of the memory.
    pub start: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Address by which work requests name it. It may differ from `start` by whole pages.
    pub hca_va: u64,
    /// What may be done with it.
    pub access: Access,
}

/// A memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// Its handle.
    pub handle: MrHandle,
    /// The key by which our work requests name it.
    pub lkey: u32,
    /// The key by which the other side names it.
    pub rkey: u32,
}

/// What to change about a memory region: what is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct MrChange {
    /// Address, length and address in work requests.
    pub translation: Option<(u64, u64, u64)>,
    /// Protection domain.
    pub pd: Option<PdHandle>,
    /// Rights.
    pub access: Option<Access>,
}

/// What the kernel knows of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrState {
    /// The key by which our work requests name it.
    pub lkey: u32,
    /// The key by which the other side names it.
    pub rkey: u32,
    /// Its length in bytes.
    pub length: u64,
    /// Address by which work requests name it, where the kernel tells it.
    pub iova: Option<u64>,
}

impl Context {
    /// Registers memory, which stays pinned until it is deregistered.
    ///
    /// Whose memory it is, nobody checks:
    ///
    /// ```compile_fail,E0133
    /// # use pollux_uverbs::{Context, Driver, mr::MrRequest};
    /// fn anybodys(context: &Context, request: &MrRequest) {
    ///     context.reg_mr(request, Driver::none()).unwrap();
    /// }
    /// ```
    ///
    /// # Errors
    /// What the kernel says: `ENOMEM` over the limit on locked memory, `EFAULT` for memory that is not there or cannot be
    /// written though the device shall, `EINVAL` for an `hca_va` at another place in its page.
    ///
    /// # Safety
    /// The memory stays mapped until it is deregistered, and until then nobody has a reference into it that a read of the device, or
    /// of a peer with the key, or a write where `access` allows one, would break.
    pub unsafe fn reg_mr(&self, request: &MrRequest, driver: Driver<'_>) -> Result<Mr, UverbsError> {
        use id::mr::reg as a;
        // The method takes nothing from a driver.
        if driver.is_none() {
            let mut call = Call::new(id::mr::OBJECT, a::METHOD);
            call.new_object(a::HANDLE)
                .object(a::PD_HANDLE, request.pd.0)
                .u64(a::IOVA, request.hca_va)
                .u64(a::ADDR, request.start)
                .u64(a::LENGTH, request.length)
                .u32(a::ACCESS_FLAGS, request.access.bits())
                .answer(a::RESP_LKEY, 4)
                .answer(a::RESP_RKEY, 4);
            if self.native(&mut call, Driver::none())? {
                return registered(&call, a::HANDLE, a::RESP_LKEY, a::RESP_RKEY);
            }
        }
        // SAFETY: as the caller says.
        unsafe { self.reg_mr_by_command(request, driver) }
    }

    /// As [`reg_mr`](Self::reg_mr), by the write command alone. The method leaves address and length out of what the kernel notes of
    /// a region, and rxe checks requests against those: on kernels that have it, nothing registered by it can be reached. Source:
    /// Linux `drivers/infiniband/core/uverbs_cmd.c`, `ib_uverbs_reg_mr`, beside `uverbs_std_types_mr.c`, `UVERBS_METHOD_REG_MR`;
    /// seen with Linux 7.3.4.
    ///
    /// # Errors
    /// As [`reg_mr`](Self::reg_mr).
    ///
    /// # Safety
    /// As for [`reg_mr`](Self::reg_mr).
    pub unsafe fn reg_mr_by_command(
        &self,
        request: &MrRequest,
        driver: Driver<'_>,
    ) -> Result<Mr, UverbsError> {
        let request = RegMr {
            response: 0,
            start: request.start,
            length: request.length,
            hca_va: request.hca_va,
            pd_handle: request.pd.0,
            access_flags: request.access.bits(),
        };
        let answer: RegMrResp = self.write(write::REG_MR, &request, driver)?;
        Ok(Mr { handle: MrHandle(answer.mr_handle), lkey: answer.lkey, rkey: answer.rkey })
    }

    /// Registers memory of another device.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reg_dmabuf_mr(
        &self,
        request: &MrRequest,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<Mr, UverbsError> {
        use std::os::fd::AsRawFd;

        use id::mr::reg_dmabuf as a;
        let mut call = Call::new(id::mr::OBJECT, a::METHOD);
        call.new_object(a::HANDLE)
            .object(a::PD_HANDLE, request.pd.0)
            .u64(a::OFFSET, offset)
            .u64(a::LENGTH, request.length)
            .u64(a::IOVA, request.hca_va)
            // A number here, not an attribute of a descriptor's kind.
            .u32(a::FD, dmabuf.as_raw_fd().cast_unsigned())
            .u32(a::ACCESS_FLAGS, request.access.bits())
            .answer(a::RESP_LKEY, 4)
            .answer(a::RESP_RKEY, 4);
        self.call(&mut call)?;
        registered(&call, a::HANDLE, a::RESP_LKEY, a::RESP_RKEY)
    }

    /// Registers device memory; addresses in it count from 0.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn reg_dm_mr(
        &self,
        pd: PdHandle,
        dm: DmHandle,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<Mr, UverbsError> {
        use id::mr::dm_reg as a;
        let mut call = Call::new(id::mr::OBJECT, a::METHOD);
        call.new_object(a::HANDLE)
            .u64(a::OFFSET, offset)
            .u64(a::LENGTH, length)
            .object(a::PD_HANDLE, pd.0)
            .u32(a::ACCESS_FLAGS, (access | Access::ZERO_BASED).bits())
            .object(a::DM_HANDLE, dm.0)
            .answer(a::RESP_LKEY, 4)
            .answer(a::RESP_RKEY, 4);
        self.call(&mut call)?;
        registered(&call, a::HANDLE, a::RESP_LKEY, a::RESP_RKEY)
    }

    /// Changes a memory region. The keys may be new.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Safety
    /// For the memory that it shall be, as for [`reg_mr`](Self::reg_mr); nothing that was posted names the region.
    pub unsafe fn rereg_mr(
        &self,
        mr: MrHandle,
        change: &MrChange,
        driver: Driver<'_>,
    ) -> Result<Mr, UverbsError> {
        let mut flags = Rereg::empty();
        flags.set(Rereg::TRANSLATION, change.translation.is_some());
        flags.set(Rereg::PD, change.pd.is_some());
        flags.set(Rereg::ACCESS, change.access.is_some());
        let (start, length, hca_va) = change.translation.unwrap_or_default();
        let request = ReregMr {
            response: 0,
            mr_handle: mr.0,
            flags: flags.bits(),
            start,
            length,
            hca_va,
            pd_handle: change.pd.map_or(0, |pd| pd.0),
            access_flags: change.access.unwrap_or_default().bits(),
        };
        let answer: ReregMrResp = self.write(write::REREG_MR, &request, driver)?;
        Ok(Mr { handle: mr, lkey: answer.lkey, rkey: answer.rkey })
    }

    /// Asks what the kernel knows of a memory region.
    ///
    /// # Errors
    /// What the kernel says; the method has no older form.
    pub fn query_mr(&self, mr: MrHandle) -> Result<MrState, UverbsError> {
        use id::mr::query as a;
        let mut call = Call::new(id::mr::OBJECT, a::METHOD);
        call.object(a::HANDLE, mr.0)
            .answer(a::RESP_LKEY, 4)
            .answer(a::RESP_RKEY, 4)
            .answer(a::RESP_LENGTH, 8)
            .answer(a::RESP_IOVA, 8)
            .optional();
        self.call(&mut call)?;
        Ok(MrState {
            lkey: call.get(a::RESP_LKEY)?,
            rkey: call.get(a::RESP_RKEY)?,
            length: call.get(a::RESP_LENGTH)?,
            iova: call.get(a::RESP_IOVA).ok(),
        })
    }

    /// Advises the kernel what to do with pages that come on demand.
    ///
    /// # Errors
    /// What the kernel says; the method has no older form. [`UverbsError::TooLarge`] for more pieces than fit.
    pub fn advise_mr(
        &self,
        pd: PdHandle,
        advice: Advice,
        flush: bool,
        pieces: &[Sge],
    ) -> Result<(), UverbsError> {
        use id::mr::advise as a;
        let mut call = Call::new(id::mr::OBJECT, a::METHOD);
        call.object(a::PD_HANDLE, pd.0)
            .u64(a::ADVICE, u64::from(advice.0))
            .u32(a::FLAGS, u32::from(flush))
            .bytes(a::SGE_LIST, pieces.as_bytes());
        self.call(&mut call)
    }

    /// Deregisters memory: the device will not touch it any more.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while a window is bound to it.
    pub fn dereg_mr(&self, mr: MrHandle) -> Result<(), UverbsError> {
        let command = (write::DEREG_MR, DeregMr { mr_handle: mr.0 });
        self.destroy((id::mr::OBJECT, id::mr::destroy::METHOD), mr.0, command)
    }
}

fn registered(call: &Call<'_>, handle: u16, lkey: u16, rkey: u16) -> Result<Mr, UverbsError> {
    Ok(Mr { handle: MrHandle(call.created(handle)?), lkey: call.get(lkey)?, rkey: call.get(rkey)? })
}
