//! Commands on event queues.

use pollux_mlx5_abi::command::eq::{CreateEqIn, EqContext, QueryEqOut, state};
use pollux_mlx5_abi::command::{opcode as op, status};

use super::work::{Place, quantized};
use super::{Call, No, caps, need, no};
use crate::device::core::Core;
use crate::event::{Queue, VECTORS};

impl Core {
    pub(super) fn event_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        if opcode == op::CREATE_EQ {
            return self.create_event_queue(call);
        }
        let number = call.named()? & 0xff;
        let owner = self.events.queues.owner(number);
        if opcode == op::QUERY_EQ {
            need!(call.may_name(owner), BAD_RES_ERR, 16);
            if let Some(queue) = self.events.queues.get(number) {
                let mut context = queue.context;
                EqContext::ST.set(&mut context, if queue.armed { state::ARMED } else { state::FIRED });
                EqContext::CONSUMER_COUNTER.set(&mut context, queue.consumed & 0xff_ffff);
                EqContext::PRODUCER_COUNTER.set(&mut context, queue.produced & 0xff_ffff);
                QueryEqOut::EQ_CONTEXT_ENTRY.set(call.output()?, context);
            }
        } else {
            need!(call.may_change(owner), BAD_RES_ERR, 16);
            need!(self.completions.queues.iter().all(|(_, queue)| queue.eqn != number), RES_BUSY, 17);
            self.events.queues.remove(number);
        }
        Ok(())
    }

    fn create_event_queue(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        let input: &[u8; CreateEqIn::BYTES] = call.input()?;
        let context = CreateEqIn::EQ_CONTEXT_ENTRY.get(input);
        let log = EqContext::LOG_EQ_SIZE.get(&context);
        let (vector, uar) = (EqContext::INTR.get(&context), EqContext::UAR_PAGE.get(&context));
        need!(log <= caps::LOG_EQ, BAD_PARAM_ERR, 16);
        need!(vector < VECTORS, BAD_PARAM_ERR, 17);
        need!(call.may_name(self.uars.owner(uar)), BAD_RES_ERR, 18);
        let place = Place {
            umem: None,
            list: call.behind::<{ CreateEqIn::BYTES }>(),
            log_page: EqContext::LOG_PAGE_SIZE.get(&context) + 12,
            offset: quantized(EqContext::PAGE_OFFSET.get(&context), EqContext::LOG_PAGE_SIZE.get(&context)),
        };
        let queue = Queue {
            ring: self.ring_at(call, &place, 64 << log)?,
            log: log as u8,
            vector,
            mask: CreateEqIn::EVENT_BITMASK.get(input),
            uar,
            produced: 0,
            consumed: 0,
            armed: false,
            lost: 0,
            context,
        };
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 19);
        let number = self.events.queues.insert(call.uid, queue).ok_or(no(status::NO_RES_ERR, 20))?;
        call.answer_number(number)
    }
}
