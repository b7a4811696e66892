//! What a queue is made of: memory, doorbell page, completion queue, the queue itself; and its data half over them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pollux_mlx5_abi::cqe::MiniFormat;
use pollux_port::driver::{RxBurst, RxSetup, TxBurst, TxSetup};
use pollux_uverbs::event::CompChannel;

use super::Mlx5Port;
use super::plan::{self, RxPlan, TxPlan};
use super::queue::DeviceQueue;
use super::slot::Slot;
use crate::devargs::DoorbellMapping;
use crate::eth::backend::{CqSpec, QueueState, RqSpec, SqSpec};
use crate::eth::parts::{CqParts, RqParts, SqParts, StridingParts};
use crate::eth::rx::RxQueue;
use crate::eth::tx::TxQueue;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::dbrec::DoorbellRecord;
use pollux_mlx5_common::key::Keys;
use pollux_mlx5_common::object::NumberedObject;
use pollux_mlx5_common::uar::Uar;

impl Mlx5Port {
    fn completion_queue(
        &self,
        what: &'static str,
        entries_log2: u8,
        uar: Option<&Uar>,
        (compressed, enhanced): (Option<MiniFormat>, bool),
        channel: Option<&CompChannel>,
    ) -> Result<(CqParts, NumberedObject), MlxError> {
        let device = self.device.as_ref().expect("an open port");
        let backend = self.backend.as_ref().expect("an open port");
        let cqe_bytes = self.arguments.cqe_bytes;
        let ring = device.zone(what, cqe_bytes << entries_log2)?;
        let dbrec = device.record()?;
        let mut parts = CqParts { ring, entries_log2, cqe_bytes, enhanced, dbrec, cqn: 0, arm: None };
        parts.freshen();
        let cq = backend.create_cq(&CqSpec {
            ring: &parts.ring,
            entries_log2,
            cqe_bytes,
            record: &parts.dbrec,
            uar,
            compressed,
            enhanced,
            channel,
            user_handle: 0,
        })?;
        parts.cqn = cq.number;
        Ok((parts, cq))
    }

    pub(super) fn make_rx(&self, setup: &RxSetup, plan: RxPlan) -> Result<Box<dyn RxBurst>, MlxError> {
        let (device, backend) = (self.device.as_ref().expect("open"), self.backend.as_ref().expect("open"));
        let registry = self.registry.as_ref().expect("open");
        registry.add_pool(&setup.pool)?;
        for pool in plan.split.iter().flat_map(|split| &split.parts).filter_map(|part| part.pool.as_ref()) {
            registry.add_pool(pool)?;
        }
        let uars = self.uars.as_ref().expect("open");
        let page = uars.for_completions()?;
        let events = if setup.interrupts {
            let verbs = MlxError::verbs("create a completion channel");
            Some(device.context().create_comp_channel().map_err(verbs)?)
        } else {
            None
        };
        let (mut cq_parts, cq) = self.completion_queue(
            "rx completions",
            plan.cqes_log2,
            page.as_ref(),
            (plan.compressed, plan.enhanced),
            events.as_ref(),
        )?;
        cq_parts.arm = Some(match &page {
            Some(page) => page.arm(),
            None => uars.static_arm()?,
        });
        let ring = device.zone("rx ring", 1 << (plan.wqes_log2 + plan.wqe_bytes_log2))?;
        let record: DoorbellRecord = device.record()?;
        let striding = match &plan.striding {
            None => None,
            Some(striding) => {
                let bytes = striding.count << (striding.strides_log2 + striding.stride_bytes_log2);
                Some(StridingParts {
                    buffers: registry.add_buffers(device.zone("rx buffers", bytes)?)?,
                    count: striding.count,
                    strides_log2: striding.strides_log2,
                    stride_bytes_log2: striding.stride_bytes_log2,
                    two_byte_shift: false,
                    copy_bytes_max: self.arguments.striding_copy_max,
                })
            }
        };
        let rq = backend.create_rq(&RqSpec {
            ring: &ring,
            wqes_log2: plan.wqes_log2,
            wqe_bytes_log2: plan.wqe_bytes_log2,
            record: &record,
            cq: &cq,
            striding: plan
                .striding
                .as_ref()
                .map(|striding| (striding.strides_log2, striding.stride_bytes_log2, false)),
            vlan_strip: plan.vlan_strip,
            keep_crc: plan.keep_crc,
            delay_drop: plan::delay_drop(device, &self.arguments),
            padding: self.arguments.packet_padding,
            user_index: device.user_index(setup.queue.0.into()),
        })?;
        let number = rq.number;
        let queue = DeviceQueue::new(device, backend, rq);
        // No rule leads here yet; from the first entry on that the data half posts, buffers are the device's.
        queue.go(QueueState::Ready)?;
        let parts = RqParts {
            ring,
            wqes_log2: plan.wqes_log2,
            segments_log2: plan.segments_log2,
            dbrec: record,
            number,
            cq: cq_parts,
            compressed: plan.compressed,
            striding,
            split: plan.split,
            features: plan.features,
            simd: plan.simd,
            frame_bytes_max: plan.frame_bytes_max,
            crc_bytes: 0,
            events,
            hold: queue.hold(),
        };
        let data = RxQueue::new(parts, setup, Keys::new(Arc::clone(registry.table())))?;
        let slot = Slot {
            number: setup.queue.0,
            queue,
            control: data.control(),
            deferred: setup.deferred_start,
            failed: AtomicBool::new(false),
            silence: None,
        };
        let mut slots = self.slots();
        let at = usize::from(setup.queue.0);
        if let Some(old) = slots.rx[at].replace(slot) {
            old.queue.destroy();
        }
        Ok(Box::new(data))
    }

    pub(super) fn make_tx(&self, setup: &TxSetup, plan: &TxPlan) -> Result<Box<dyn TxBurst>, MlxError> {
        let (device, backend) = (self.device.as_ref().expect("open"), self.backend.as_ref().expect("open"));
        let registry = self.registry.as_ref().expect("open");
        let blueflame = self.arguments.doorbell != DoorbellMapping::NonCached;
        let uars = self.uars.as_ref().expect("open");
        let (page, doorbell) = uars.for_sends(blueflame)?.unzip();
        let (mut cq_parts, cq) =
            self.completion_queue("tx completions", plan.cqes_log2, page.as_ref(), (None, false), None)?;
        let ring = device.zone("tx ring", 64 << plan.wqebbs_log2)?;
        let record = device.record()?;
        let sq = backend.create_sq(&SqSpec {
            ring: &ring,
            wqebbs_log2: plan.wqebbs_log2,
            record: &record,
            cq: &cq,
            uar: page.as_ref(),
            multi_packet: plan.multi_packet,
            tso_bytes_max: plan.tso_bytes_max as u32,
            software_parsing: plan.tunnels.told_sums || plan.tunnels.told_cuts,
            user_index: device.user_index(setup.queue.0.into()),
        })?;
        let doorbell = match doorbell {
            Some(doorbell) => doorbell,
            None => uars.static_doorbell(sq.register, blueflame)?,
        };
        cq_parts.arm = page.as_ref().map(Uar::arm);
        let (number, control_imm) = (sq.number, sq.control_imm);
        let queue = DeviceQueue::new(device, backend, sq);
        queue.go(QueueState::Ready)?;
        let parts = SqParts {
            ring,
            wqebbs_log2: plan.wqebbs_log2,
            dbrec: record,
            doorbell,
            number,
            control_imm,
            cq: cq_parts,
            inline_min: plan.inline_min,
            inline_max: plan.inline_max,
            features: plan.features,
            tso_bytes_max: plan.tso_bytes_max,
            tso_header_max: plan::TSO_HEADER_MAX,
            tunnels: plan.tunnels,
            hold: queue.hold(),
        };
        let data = TxQueue::new(parts, setup, Keys::new(Arc::clone(registry.table())));
        let slot = Slot {
            number: setup.queue.0,
            queue,
            control: data.control(),
            deferred: setup.deferred_start,
            failed: AtomicBool::new(false),
            silence: None,
        };
        let mut slots = self.slots();
        let at = usize::from(setup.queue.0);
        if let Some(old) = slots.tx[at].replace(slot) {
            old.queue.destroy();
        }
        Ok(Box::new(data))
    }
}
