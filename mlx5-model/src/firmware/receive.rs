//! Commands on receive queues.

use pollux_mlx5_abi::command::rq::{CreateRqIn, ModifyRqIn, QueryRqOut, RqContext, memory, modify};
use pollux_mlx5_abi::command::wq::{WorkQueue, state};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::completion;

use super::{Call, No, hairpin, need, no};
use crate::device::bus::Bus;
use crate::device::core::Core;
use crate::device::state::State;
use crate::device::violation::Violation;
use crate::receive::{Make, Queue, Source};
use crate::steering::Dispatch;

impl Core {
    pub(super) fn receive_command(
        &mut self,
        bus: &Bus<'_>,
        opcode: u16,
        call: &mut Call<'_>,
    ) -> Result<(), No> {
        let number = call.named()?;
        let owner = self.receivers.queues.owner(number);
        match opcode {
            op::CREATE_RQ => self.create_receive_queue(call),
            op::QUERY_RQ => {
                need!(call.may_name(owner), BAD_RES_ERR, 16);
                let Some(queue) = self.receivers.queues.get(number) else { return Ok(()) };
                let mut context = queue.context;
                RqContext::STATE.set(&mut context, queue.state.code());
                WorkQueue::HW_COUNTER.set(RqContext::WQ.of_mut(&mut context), queue.hardware_counter());
                if let Some(buffer) = &queue.hairpin {
                    hairpin::show_sender(&mut context, buffer, self.function.vhca_id);
                }
                QueryRqOut::RQ_CONTEXT.set(call.output()?, context);
                Ok(())
            }
            op::MODIFY_RQ => self.modify_receive_queue(bus, call, number, owner),
            op::DESTROY_RQ => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                let used = self
                    .steering
                    .tirs
                    .iter()
                    .any(|(_, tir)| matches!(tir.dispatch, Dispatch::Queue(queue) if queue == number))
                    || self.steering.queue_tables.iter().any(|(_, table)| table.queues.contains(&number));
                need!(!used, RES_BUSY, 17);
                self.receivers.joins.forget(number);
                self.receivers.queues.remove(number);
                Ok(())
            }
            _ => Err(no(status::BAD_OP_ERR, 16)),
        }
    }

    fn modify_receive_queue(
        &mut self,
        bus: &Bus<'_>,
        call: &mut Call<'_>,
        number: u32,
        owner: Option<u16>,
    ) -> Result<(), No> {
        let input: &[u8; ModifyRqIn::BYTES] = call.input()?;
        let context = ModifyRqIn::CTX.get(input);
        let (from, to) = (ModifyRqIn::RQ_STATE.get(input), RqContext::STATE.get(&context));
        let fields = ModifyRqIn::MODIFY_BITMASK.get(input);
        let set = RqContext::COUNTER_SET_ID.get(&context);
        need!(call.may_change(owner), BAD_RES_ERR, 16);
        let known_set = set == 0 || call.may_name(self.receivers.counters.owner(set));
        need!(fields & modify::COUNTER_SET_ID == 0 || known_set, BAD_RES_ERR, 20);
        let Some(queue) = self.receivers.queues.get_mut(number) else { return Ok(()) };
        need!(queue.state.may_be_called(from, self.traits.believes_ready), BAD_RES_STATE_ERR, 17);
        let Some(to) = State::of(to) else { return Err(no(status::BAD_PARAM_ERR, 18)) };
        need!(queue.state.leads_to(to), BAD_RES_STATE_ERR, 19);
        let leaves_reset = (queue.state, to) == (State::Reset, State::Ready);
        if leaves_reset {
            self.bind_receiver(call, number, &context)?;
        }
        let Some(queue) = self.receivers.queues.get_mut(number) else { return Ok(()) };
        if fields & modify::VSD != 0 {
            queue.keep_tag = RqContext::VSD.is_set(&context);
        }
        if fields & modify::SCATTER_FCS != 0 {
            queue.scatter_fcs = RqContext::SCATTER_FCS.is_set(&context);
        }
        if fields & modify::COUNTER_SET_ID != 0 {
            queue.counter_set = set;
        }
        if queue.state != to {
            queue.become_state(to);
            if leaves_reset && let Some(record) = queue.at_ready(bus) {
                self.violations.note(Violation::RecordAtReady { queue: number, record });
            }
            if to == State::Reset {
                self.receivers.joins.forget(number);
                let (cqn, user_index) = (queue.cqn, queue.user_index);
                self.completions.forget_held(cqn, |entry| {
                    matches!(entry.opcode(), completion::RESPONDER_SEND | completion::RESPONDER_ERROR)
                        && entry.srqn_uidx.get() & 0xff_ffff == user_index
                });
            }
            if to == State::Error {
                self.receivers.flush(number);
            }
        }
        Ok(())
    }

    fn create_receive_queue(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use RqContext as R;
        let context = CreateRqIn::CTX.get(call.input()?);
        if R::HAIRPIN.is_set(&context) {
            return self.create_hairpin_receiver(call, context);
        }
        let (cqn, set) = (R::CQN.get(&context), R::COUNTER_SET_ID.get(&context));
        need!(R::STATE.get(&context) == state::RESET, BAD_PARAM_ERR, 16);
        need!(call.may_name(self.completions.queues.owner(cqn)), BAD_RES_ERR, 17);
        need!(set == 0 || call.may_name(self.receivers.counters.owner(set)), BAD_RES_ERR, 18);
        need!(self.traits.stamps(R::TS_FORMAT.get(&context)), BAD_PARAM_ERR, 25);
        need!(!R::DELAY_DROP_EN.is_set(&context), BAD_PARAM_ERR, 19);
        let (source, ring) = match R::MEM_RQ_TYPE.get(&context) {
            memory::INLINE => {
                let ring =
                    self.receive_ring(call, R::WQ.of(&context), call.behind::<{ CreateRqIn::BYTES }>())?;
                (Source::Own, Some(Box::new(ring)))
            }
            memory::RMP => {
                let pool = R::RMPN.get(&context);
                need!(call.may_name(self.receivers.pools.owner(pool)), BAD_RES_ERR, 21);
                (Source::Pool(pool), None)
            }
            _ => return Err(no(status::BAD_PARAM_ERR, 22)),
        };
        let queue = Queue::new(Make {
            cqn,
            user_index: if self.traits.cqe_version == 0 { 0 } else { R::USER_INDEX.get(&context) },
            source,
            ring,
            hairpin: None,
            keep_tag: R::VSD.is_set(&context),
            scatter_fcs: R::SCATTER_FCS.is_set(&context),
            flush: R::FLUSH_IN_ERROR_EN.is_set(&context),
            counter_set: set,
            context,
        });
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 23);
        let number = self.receivers.queues.insert(call.uid, queue).ok_or(no(status::NO_RES_ERR, 24))?;
        if let Some(queue) = self.receivers.queues.get_mut(number) {
            queue.number = number;
            if let Some(ring) = queue.ring_mut() {
                ring.number = number;
            }
        }
        call.answer_number(number)
    }
}
