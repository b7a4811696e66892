//! Doorbell registers: pages of the device (UARs), mapped, one a queue.
//!
//! ```text
//!   newer kernels   a page is allocated (UAR object), then named when the queue is made
//!   older kernels   the context has pages with two BlueFlame registers each; the kernel chooses one when a send queue is
//!                   made and tells its number; completion queues are armed at page 0
//! ```
//!
//! A BlueFlame register is two buffers of 256 bytes, used in turn. Source: rdma-core `providers/mlx5/verbs.c`,
//! `mlx5_attach_dedicated_uar`, and `providers/mlx5/mlx5.c`, `mlx5_set_context`; Linux `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_alloc_ucontext`,
//! `uar_mmap`.

use std::sync::Arc;

use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::kernel::{attribute, method, mmap, object, verbs};
use pollux_uverbs::{Call, Page, Protection, Registers};

use crate::MlxError;
use crate::context::Device;
use crate::object::{Id, Object};

/// Bytes of a page as the kernel maps it. Source: x86-64, the processor that is claimed.
const HOST_PAGE_BYTES: u64 = 4096;

/// A doorbell page of a queue's own.
#[derive(Debug)]
pub struct Uar {
    /// Its number, by which queues name it.
    pub number: u32,
    /// Mapped write-combining: work may be copied there.
    pub blueflame: bool,
    page: Arc<Page>,
    /// Where in the mapping it begins.
    start: usize,
    /// Ends it. The registers that queues took keep the mapping.
    object: Option<Object>,
}

impl Uar {
    /// Allocates a page, for BlueFlame if that may be had and is wanted. `None`: this kernel has the static kind.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn allocate(device: &Arc<Device>, blueflame: bool) -> Result<Option<Self>, MlxError> {
        if device.answer.tot_bfregs != 0 {
            return Ok(None);
        }
        if blueflame {
            match Self::allocate_as(device, true) {
                Ok(made) => return Ok(Some(made)),
                // No write combining on this bus, or no page left for it.
                Err(error) => {
                    tracing::debug!(target: "pmd.common.mlx5", "{}: no BlueFlame page: {error}", device.name())
                }
            }
        }
        Self::allocate_as(device, false).map(Some)
    }

    fn allocate_as(device: &Arc<Device>, blueflame: bool) -> Result<Self, MlxError> {
        use attribute::uar_alloc as a;
        let mut call = Call::named(object::UAR, method::uar::ALLOC, "UAR/ALLOC");
        call.new_object(a::HANDLE)
            .u64(a::TYPE, if blueflame { verbs::uar_type::BF } else { verbs::uar_type::NC })
            .answer(a::MMAP_OFFSET, 8)
            .answer(a::MMAP_LENGTH, 4)
            .answer(a::PAGE_ID, 4);
        let what = "allocate a doorbell page";
        device.context().call(&mut call).map_err(|error| device.failed(what, error))?;
        let read = |error| device.failed(what, error);
        let object = Object::new(device, Id::Uar(call.created(a::HANDLE).map_err(read)?));
        let offset: u64 = call.get(a::MMAP_OFFSET).map_err(read)?;
        let bytes: u32 = call.get(a::MMAP_LENGTH).map_err(read)?;
        let number = device.number("a doorbell page", call.get(a::PAGE_ID).map_err(read)?)?;
        if (bytes as usize) < uar::PAGE_BYTES {
            let problem = format!("a doorbell page has {bytes} bytes, {} are needed", uar::PAGE_BYTES);
            return Err(MlxError::Device { device: device.name().to_owned(), problem });
        }
        let page = device
            .context()
            .map(offset, bytes as usize, Protection::Write)
            .map_err(|error| device.failed("map a doorbell page", error))?;
        Ok(Self { number, blueflame, page: Arc::new(page), start: 0, object: Some(object) })
    }

    /// Maps the page of the static kind that has BlueFlame register `register`, which the kernel gave a send queue, or with
    /// `None` the page at which completion queues are armed. The second answer is where in the page the register is.
    ///
    /// # Errors
    /// What the kernel says; a register that it cannot have given.
    pub fn of_static(
        device: &Arc<Device>,
        register: Option<u32>,
        blueflame: bool,
    ) -> Result<(Self, usize), MlxError> {
        let register = register.unwrap_or(0);
        let answer = &device.answer;
        // Users count four registers a page, of which the kernel gives out two, and counts these alone in its total. Source:
        // Linux `drivers/infiniband/hw/mlx5/qp.c`, `adjust_bfregn`.
        let (number, within) = (register / uar::REGISTERS_ALL as u32, register as usize % uar::REGISTERS_ALL);
        if number >= answer.tot_bfregs.div_ceil(uar::REGISTERS as u32) || within >= uar::REGISTERS {
            let problem = format!(
                "the kernel gave BlueFlame register {register} of {} on pages of {}",
                answer.tot_bfregs,
                uar::REGISTERS_ALL
            );
            return Err(MlxError::Device { device: device.name().to_owned(), problem });
        }
        let uars = answer.num_uars_per_page.max(1);
        let index = u16::try_from(number / uars).unwrap_or(u16::MAX);
        let start = (number % uars) as usize * uar::PAGE_BYTES;
        let map = |command| {
            let offset = mmap::offset(command, index, HOST_PAGE_BYTES);
            device.context().map(offset, HOST_PAGE_BYTES as usize, Protection::Write)
        };
        // Register 0 is for doorbells alone. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`,
        // `NUM_NON_BLUE_FLAME_BFREGS`.
        let combined = blueflame && register != 0;
        let (page, blueflame) = match combined.then(|| map(mmap::WC_PAGE)) {
            Some(Ok(page)) => (page, true),
            _ => {
                let command = if blueflame { mmap::REGULAR_PAGE } else { mmap::NC_PAGE };
                (map(command).map_err(|error| device.failed("map a doorbell page", error))?, false)
            }
        };
        let at = uar::blue_flame(within, 0);
        Ok((Self { number, blueflame, page: Arc::new(page), start, object: None }, at))
    }

    /// The registers of a send queue: two buffers from `at` on.
    ///
    /// # Errors
    /// When another queue has them.
    pub fn send_registers(&self, at: usize) -> Result<Registers, MlxError> {
        self.take(at, 2 * uar::BLUE_FLAME_BYTES)
    }

    /// The registers at which a completion queue is armed.
    ///
    /// # Errors
    /// When another queue has them.
    pub fn arm_registers(&self) -> Result<Registers, MlxError> {
        self.take(0, 0x40)
    }

    fn take(&self, at: usize, bytes: usize) -> Result<Registers, MlxError> {
        let start = self.start + at;
        self.page.registers(start..start + bytes).map_err(MlxError::verbs("take doorbell registers"))
    }

    /// Whether no other queue has a part of it.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.object.is_some()
    }

    /// What ends it: a queue that names it keeps a handle, for the firmware does not let go of a page that is in use.
    pub fn object(&self) -> Option<Object> {
        self.object.clone()
    }
}

/// The handle that a queue keeps of the page that it names.
pub(crate) fn page(uar: Option<&Uar>) -> impl Iterator<Item = Object> {
    uar.and_then(Uar::object).into_iter()
}
