//! The provider for rxe, RoCE in the kernel's software: queues are memory that the kernel shares, a doorbell is a call.
//!
//! ```text
//!   Batch, Receives ── entry ──► Queue (send, receive, shared) ──► kernel
//!         │ pieces                   ring: POST_SEND
//!         ▼
//!       Track ◄── completion's word ── Poller ◄── Queue (completion) ◄── kernel
//! ```
//!
//! An entry's word is its number in its queue; the user's own word and the memory that goes along wait in the queue's
//! [`Track`](track::Track). Since the kernel does the transport's work in software, locks and a call a batch are no loss here.
//!
//! Source of the layouts and of the order of things: rdma-core `kernel-headers/rdma/rdma_user_rxe.h`, `providers/rxe/rxe.c`,
//! `rxe_queue.h`; Linux `drivers/infiniband/sw/rxe`.
#![expect(unsafe_code, reason = "opens a device")]

pub(crate) mod abi;
pub(crate) mod cq;
pub(crate) mod post;
pub(crate) mod qp;
mod queue;
pub(crate) mod receive;
pub(crate) mod srq;
mod track;
mod written;

use std::sync::Arc;

use pollux_uverbs::abi::flags::DeviceCaps;
use pollux_uverbs::abi::memory::AhAttr;
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::{AhHandle, Channel, Context, Driver, PdHandle};
use zerocopy::{FromZeros, IntoBytes};

use crate::VerbsError;

/// An open device of rxe.
#[derive(Clone, Debug)]
pub(crate) struct Rxe {
    context: Arc<Context>,
    /// What this kernel's rxe can do.
    caps: DeviceCaps,
}

impl Rxe {
    pub(crate) fn open(channel: Arc<dyn Channel>) -> Result<Self, VerbsError> {
        // SAFETY: it is the device's alone, whose objects name memory of their own.
        let context = unsafe { Context::open(channel, driver::RXE, Driver::none()) }
            .map_err(VerbsError::kernel("open an rxe device"))?;
        // Newer operations stand in the upper half of the flags, which older kernels leave 0.
        let told = context.query_device(Driver::none()).map_err(VerbsError::kernel("query an rxe device"))?;
        let caps = DeviceCaps::from_bits_retain(told.device_cap_flags_ex);
        Ok(Self { context: Arc::new(context), caps })
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn alloc_pd(&self) -> Result<PdHandle, VerbsError> {
        self.context.alloc_pd(Driver::none()).map_err(VerbsError::kernel("allocate a protection domain"))
    }

    /// An address handle, and the number by which requests name it.
    pub(crate) fn address(&self, pd: PdHandle, attributes: &AhAttr) -> Result<(u32, AhHandle), VerbsError> {
        let mut answer = abi::CreateAhAnswer::new_zeroed();
        let handle = self
            .context
            .create_ah(pd, attributes, Driver::new(&[], answer.as_mut_bytes()))
            .map_err(VerbsError::kernel("create an address handle"))?;
        if answer.ah_num == 0 {
            let _ = self.context.destroy_ah(handle);
            return Err(VerbsError::Unsupported {
                what: "address handles",
                why: "this kernel's rxe numbers none; Linux 5.15 and later do".into(),
            });
        }
        Ok((answer.ah_num, handle))
    }
}
