//! Completion queues: made, resized, and destroyed after the last queue pair that completes there.

use std::sync::Arc;

use pollux_eal::region::PAGE_BYTES;
use pollux_mlx5_abi::kernel::completion_queue::{self, CreateCqAnswer, ResizeCq, cq_flag};
use pollux_uverbs::cq::CqRequest;
use pollux_uverbs::{CqHandle, Driver};
use zerocopy::{FromZeros, IntoBytes};

use super::hca::Hca;
use super::poll::Poller;
use super::poll::home::Home;
use crate::view::Gauge;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Pinning;
use pollux_mlx5_common::cq::{Cq, CqParts};
use pollux_mlx5_common::object::{Id, Object};
use pollux_mlx5_common::uar::{Uar, page as page_of};

fn entries_log2(hca: &Hca, entries: u32) -> Result<u8, MlxError> {
    let limit = hca.device.attributes.base.max_cqe.clamp(1, (1 << 22) - 1);
    if entries == 0 || entries > limit {
        return Err(MlxError::Queue {
            queue: "completion queue".into(),
            problem: format!("{entries} entries; the device allows 1 to {limit}"),
        });
    }
    // One more than asked for, as the kernel counts.
    Ok((entries + 1).next_power_of_two().trailing_zeros().max(2) as u8)
}

impl Hca {
    /// Makes a completion queue, with completions of 128 bytes or of 64.
    ///
    /// # Errors
    /// More entries than the device has, no memory, or what the kernel says.
    pub(crate) fn create_cq(&self, request: &CqRequest<'_>, wide: bool) -> Result<Poller, MlxError> {
        let device = &self.device;
        let log = entries_log2(self, request.entries)?;
        let cqe_bytes = if wide { 128 } else { 64 };
        let ring = device.zone("completions", (cqe_bytes << log).max(PAGE_BYTES))?;
        let page = self.uars.for_completions()?;
        let mut parts = CqParts {
            ring,
            entries_log2: log,
            cqe_bytes,
            enhanced: false,
            dbrec: device.record()?,
            cqn: 0,
            arm: None,
        };
        parts.freshen();
        let driver = completion_queue::CreateCq {
            buf_addr: parts.ring.base().as_ptr().addr() as u64,
            db_addr: parts.dbrec.address(),
            cqe_size: cqe_bytes as u32,
            flags: if page.is_some() { cq_flag::UAR_PAGE_INDEX } else { 0 },
            uar_page_index: page.as_ref().map_or(0, Uar::number) as u16,
            ..completion_queue::CreateCq::default()
        };
        // The kernel adds one and rounds up to a power of two.
        let request = CqRequest { entries: (1 << log) - 1, ..*request };
        let bytes = parts.ring.bytes() as u64;
        let mut answer = CreateCqAnswer::new_zeroed();
        let made = device.pinning("create a completion queue", Pinning::Queue, bytes, |context| {
            context.create_cq(&request, Driver::new(driver.as_bytes(), answer.as_mut_bytes()))
        });
        let object = Object::pinning(device, Id::Cq(made?.handle), page_of(page.as_ref()).collect(), bytes);
        parts.cqn = answer.cqn;
        parts.arm = Some(match &page {
            Some(page) => page.arm(),
            None => self.uars.static_arm()?,
        });
        let cq = Cq::new(parts);
        let home = Arc::new(Home::new(object, cq.view()));
        Ok(Poller::new(cq, home, self.indexed()))
    }
}

impl Poller {
    /// The kernel's handle.
    #[must_use]
    pub(crate) fn handle(&self) -> CqHandle {
        self.home().handle()
    }

    /// What is written and not polled, for other threads.
    pub(crate) fn gauge(&self) -> Arc<dyn Gauge> {
        Arc::clone(self.home()) as Arc<dyn Gauge>
    }

    /// The device's number.
    pub(crate) fn number(&self) -> u32 {
        self.cq.number()
    }

    /// Completions that it has room for.
    #[must_use]
    pub(crate) fn capacity(&self) -> u32 {
        self.cq.entries() - 1
    }

    /// Changes how many completions it has room for.
    ///
    /// # Errors
    /// Too few for those that are there, too many for the device, or what the kernel says.
    pub(crate) fn resize(&mut self, hca: &Hca, entries: u32) -> Result<(), MlxError> {
        let log = entries_log2(hca, entries)?;
        let (bytes, stride) = (self.cq.stride() << log, self.cq.stride());
        let mut ring = hca.device.zone("completions", bytes.max(PAGE_BYTES))?;
        for entry in 1..=1_usize << log {
            ring.copy_in(entry * stride - 1, &[pollux_mlx5_abi::cqe::FRESH]);
        }
        let driver = ResizeCq {
            buf_addr: ring.base().as_ptr().addr() as u64,
            cqe_size: stride as u16,
            ..ResizeCq::default()
        };
        hca.device
            .context()
            .resize_cq(self.handle(), (1 << log) - 1, Driver::new(driver.as_bytes(), &mut []))
            .map_err(|error| {
                hca.device.pinning_failed("resize a completion queue", Pinning::Queue, bytes as u64, error)
            })?;
        let home = Arc::clone(self.home());
        let mut view = home.view();
        match self.cq.move_to(ring, log) {
            Ok(_old) => {
                *view = self.cq.view();
                Ok(())
            }
            Err(ring) => {
                // Which of the two rings the device writes nobody knows: neither is freed. Queues on it end with an error.
                std::mem::forget(ring);
                Err(MlxError::Queue {
                    queue: "completion queue".into(),
                    problem: "the device did not say that it goes on in the new ring".into(),
                })
            }
        }
    }
}
