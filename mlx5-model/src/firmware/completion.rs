//! Commands on completion queues.

use pollux_mlx5_abi::command::cq::{CqContext, CreateCqIn, ModifyCqIn, QueryCqOut, modify, stride};
use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::{opcode as op, period_mode, status};
use pollux_mlx5_abi::cqe::{MiniFormat, layout};

use super::work::{Place, quantized};
use super::{Call, No, caps, need, no};
use crate::completion::{Make, Queue};
use crate::device::bus::Bus;
use crate::device::core::Core;

/// op_mod of MODIFY_CQ that asks for another ring. Source: Linux `include/linux/mlx5/cq.h`, `MLX5_CQ_OPMOD_RESIZE`.
const RESIZE: u16 = 1;

impl Core {
    pub(super) fn completion_command(
        &mut self,
        bus: &mut Bus<'_>,
        opcode: u16,
        call: &mut Call<'_>,
    ) -> Result<(), No> {
        use CqContext as C;
        let number = call.named()?;
        let owner = self.completions.queues.owner(number);
        match opcode {
            op::CREATE_CQ => self.create_completion_queue(bus, call),
            op::QUERY_CQ => {
                need!(call.may_name(owner), BAD_RES_ERR, 16);
                let Some(queue) = self.completions.queues.get(number) else { return Ok(()) };
                let mut context = queue.context;
                // Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_CQC_STATUS_CQ_OVERFLOW`.
                C::STATUS.set(&mut context, if queue.dead { 0x9 } else { 0 });
                C::ST.set(&mut context, queue.arm.state());
                C::CQ_PERIOD_MODE.set(&mut context, queue.restarts.into());
                C::CQ_PERIOD.set(&mut context, queue.period_us.into());
                C::CQ_MAX_COUNT.set(&mut context, queue.max_count.into());
                C::CONSUMER_COUNTER.set(&mut context, queue.consumed & 0xff_ffff);
                C::PRODUCER_COUNTER.set(&mut context, queue.produced & 0xff_ffff);
                QueryCqOut::CQ_CONTEXT.set(call.output()?, context);
                Ok(())
            }
            op::MODIFY_CQ => {
                let input: &[u8; ModifyCqIn::BYTES] = call.input()?;
                let (context, fields) = (
                    ModifyCqIn::CQ_CONTEXT.get(input),
                    ModifyCqIn::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.get(input),
                );
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                if call.op_mod == RESIZE && self.traits.cq_resize {
                    return self.resize_completion_queue(bus, call, number, &context, fields);
                }
                need!(call.op_mod == 0, BAD_PARAM_ERR, 17);
                let known = modify::PERIOD | modify::COUNT | modify::OVERRUN | period_mode::PART;
                need!(fields & !known == 0, BAD_PARAM_ERR, 18);
                let mode = C::CQ_PERIOD_MODE.get(&context);
                need!(
                    fields & period_mode::PART == 0 || mode <= period_mode::FROM_COMPLETION,
                    BAD_PARAM_ERR,
                    30
                );
                let Some(queue) = self.completions.queues.get_mut(number) else { return Ok(()) };
                if fields & modify::PERIOD != 0 {
                    queue.period_us = C::CQ_PERIOD.get(&context) as u16;
                }
                if fields & modify::COUNT != 0 {
                    queue.max_count = C::CQ_MAX_COUNT.get(&context) as u16;
                }
                if fields & period_mode::PART != 0 {
                    queue.restarts = mode == period_mode::FROM_COMPLETION;
                }
                if fields & modify::OVERRUN != 0 {
                    queue.ignore_overrun = C::OI.is_set(&context);
                }
                Ok(())
            }
            _ => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                let used = self.senders.queues.iter().any(|(_, queue)| queue.cqn == number)
                    || self.receivers.queues.iter().any(|(_, queue)| queue.cqn == number)
                    || self.receivers.pools.iter().any(|(_, pool)| pool.reports_to(number))
                    || self
                        .rdma
                        .pairs
                        .iter()
                        .any(|(_, pair)| pair.cqn_send == number || pair.cqn_receive == number);
                need!(!used, RES_BUSY, 19);
                self.completions.queues.remove(number);
                Ok(())
            }
        }
    }

    /// The queue goes on in another ring, behind an entry in the old one that says so.
    fn resize_completion_queue(
        &mut self,
        bus: &mut Bus<'_>,
        call: &Call<'_>,
        number: u32,
        context: &[u8; CqContext::BYTES],
        fields: u32,
    ) -> Result<(), No> {
        use CqContext as C;
        // All that says where a ring is.
        need!(fields == modify::RING, BAD_PARAM_ERR, 25);
        let log = C::LOG_CQ_SIZE.get(context);
        need!(log <= caps::LOG_CQ, BAD_PARAM_ERR, 26);
        let Some(bytes) = self.completions.queues.get(number).map(|queue| queue.bytes) else { return Ok(()) };
        let same = (C::CQE_SZ.get(context) == stride::BYTES_64) == (bytes == 64);
        need!(same, BAD_PARAM_ERR, 27);
        let place = Place {
            umem: None,
            list: call.behind::<{ ModifyCqIn::BYTES }>(),
            log_page: C::LOG_PAGE_SIZE.get(context) + 12,
            offset: quantized(C::PAGE_OFFSET.get(context), C::LOG_PAGE_SIZE.get(context)),
        };
        let ring = self.ring_at(call, &place, bytes << log)?;
        let Some(queue) = self.completions.queues.get_mut(number) else { return Ok(()) };
        need!(queue.resize(bus, ring, log as u8), BAD_SIZE_OUTS_CQES_ERR, 28);
        for (to, from) in [(C::LOG_CQ_SIZE, C::LOG_CQ_SIZE), (C::LOG_PAGE_SIZE, C::LOG_PAGE_SIZE)] {
            to.set(&mut queue.context, from.get(context));
        }
        Ok(())
    }

    fn create_completion_queue(&mut self, bus: &Bus<'_>, call: &mut Call<'_>) -> Result<(), No> {
        use CqContext as C;
        let input: &[u8; CreateCqIn::BYTES] = call.input()?;
        let context = CreateCqIn::CQ_CONTEXT.get(input);
        let log = C::LOG_CQ_SIZE.get(&context);
        let (eqn, uar) = (C::C_EQN_OR_APU_ELEMENT.get(&context), C::UAR_PAGE.get(&context));
        let bytes = match C::CQE_SZ.get(&context) {
            stride::BYTES_64 => 64,
            stride::BYTES_128 | stride::BYTES_128_PAD => 128,
            _ => return Err(no(status::BAD_PARAM_ERR, 16)),
        };
        let padded = C::CQE_SZ.get(&context) == stride::BYTES_128_PAD;
        need!(!padded || self.traits.padded_completions, BAD_PARAM_ERR, 29);
        need!(log <= caps::LOG_CQ, BAD_PARAM_ERR, 17);
        need!(call.may_name(self.events.queues.owner(eqn)), BAD_RES_ERR, 18);
        need!(call.may_name(self.uars.owner(uar)), BAD_RES_ERR, 19);
        let mode = C::CQ_PERIOD_MODE.get(&context);
        need!(mode <= period_mode::FROM_COMPLETION, BAD_PARAM_ERR, 31);
        let compress = if C::CQE_COMP_EN.is_set(&context) {
            let upper = place::CQ_MINI_FORMAT_EXT.get(&context);
            let format = MiniFormat::of(C::MINI_CQE_RES_FORMAT.get(&context) | upper << 2);
            need!(format.is_some(), BAD_PARAM_ERR, 25);
            need!(self.traits.cqe_compression && bytes == 64, BAD_PARAM_ERR, 20);
            let strides = matches!(format, Some(MiniFormat::FlowTagStride | MiniFormat::ChecksumStride));
            need!(!strides || self.traits.mini_cqe_stride_index, BAD_PARAM_ERR, 21);
            let tags = matches!(format, Some(MiniFormat::FlowTagStride | MiniFormat::HeaderStride));
            need!(!tags || self.traits.mini_cqe_tags, BAD_PARAM_ERR, 26);
            format
        } else {
            None
        };
        let enhanced = match C::CQE_COMPRESSION_LAYOUT.get(&context) {
            layout::BASIC => false,
            layout::ENHANCED => {
                need!(self.traits.enhanced_cqe_compression && compress.is_some(), BAD_PARAM_ERR, 22);
                true
            }
            _ => return Err(no(status::BAD_PARAM_ERR, 27)),
        };
        let by_umem = CreateCqIn::CQ_UMEM_VALID.is_set(input);
        let place = Place {
            umem: by_umem.then(|| (place::CQ_UMEM.get(input), place::CQ_OFFSET.get(input))),
            list: call.behind::<{ CreateCqIn::BYTES }>(),
            log_page: C::LOG_PAGE_SIZE.get(&context) + 12,
            offset: quantized(C::PAGE_OFFSET.get(&context), C::LOG_PAGE_SIZE.get(&context)),
        };
        let record_umem = C::DBR_UMEM_VALID.is_set(&context).then(|| place::CQ_RECORD_UMEM.get(&context));
        let make = Make {
            ring: self.ring_at(call, &place, bytes << log)?,
            log: log as u8,
            bytes,
            record: self.record_at(call, C::DBR_ADDR.get(&context), record_umem, 8)?,
            eqn,
            uar,
            ignore_overrun: C::OI.is_set(&context),
            compress,
            enhanced,
            max_count: C::CQ_MAX_COUNT.get(&context) as u16,
            period_us: C::CQ_PERIOD.get(&context) as u16,
            restarts: mode == period_mode::FROM_COMPLETION,
            context,
        };
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 23);
        let mut queue = Queue::new(make);
        queue.begin_unarmed(bus);
        let number = self.completions.insert(call.uid, queue).ok_or(no(status::NO_RES_ERR, 24))?;
        call.answer_number(number)
    }
}
