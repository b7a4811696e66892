//! Commands on send queues.

use pollux_mlx5_abi::caps::ethernet::min_inline;
use pollux_mlx5_abi::command::sq::{CreateSqIn, ModifySqIn, QuerySqOut, SqContext, modify};
use pollux_mlx5_abi::command::wq::{WorkQueue, state};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_mlx5_abi::opcode::completion;

use super::{Call, No, hairpin, need, no};
use crate::device::bus::Bus;
use crate::device::core::Core;
use crate::device::ring::send::SendRing;
use crate::device::state::State;
use crate::send::{self, Make, Pace, Parsing, Queue};

impl Core {
    pub(super) fn send_command(
        &mut self,
        bus: &mut Bus<'_>,
        opcode: u16,
        call: &mut Call<'_>,
    ) -> Result<(), No> {
        let number = call.named()?;
        let owner = self.senders.queues.owner(number);
        match opcode {
            op::CREATE_SQ => self.create_send_queue(bus, call),
            op::QUERY_SQ => {
                need!(call.may_name(owner), BAD_RES_ERR, 16);
                let Some(queue) = self.senders.queues.get(number) else { return Ok(()) };
                let mut context = queue.context;
                SqContext::STATE.set(&mut context, queue.state.code());
                let ring = SqContext::WQ.of_mut(&mut context);
                WorkQueue::HW_COUNTER.set(ring, queue.ring.next().into());
                WorkQueue::SW_COUNTER.set(ring, queue.ring.posted().into());
                if let Some(egress) = queue.hairpin {
                    hairpin::show_receiver(&mut context, egress, self.function.vhca_id);
                }
                QuerySqOut::SQ_CONTEXT.set(call.output()?, context);
                Ok(())
            }
            op::MODIFY_SQ => self.modify_send_queue(bus, call, number, owner),
            _ => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                self.senders.queues.remove(number);
                Ok(())
            }
        }
    }

    fn modify_send_queue(
        &mut self,
        bus: &mut Bus<'_>,
        call: &mut Call<'_>,
        number: u32,
        owner: Option<u16>,
    ) -> Result<(), No> {
        let input: &[u8; ModifySqIn::BYTES] = call.input()?;
        let context = ModifySqIn::CTX.get(input);
        let (from, to) = (ModifySqIn::SQ_STATE.get(input), SqContext::STATE.get(&context));
        need!(call.may_change(owner), BAD_RES_ERR, 16);
        let held = ModifySqIn::MODIFY_BITMASK.get(input) & modify::RATE_LIMIT_INDEX != 0;
        let index = SqContext::PACKET_PACING_RATE_LIMIT_INDEX.get(&context);
        let rate = if held { self.rate(index)? } else { None };
        let Some(queue) = self.senders.queues.get_mut(number) else { return Ok(()) };
        need!(queue.state.may_be_called(from, self.traits.believes_ready), BAD_RES_STATE_ERR, 17);
        let Some(to) = State::of(to) else { return Err(no(status::BAD_PARAM_ERR, 18)) };
        need!(queue.state.leads_to(to), BAD_RES_STATE_ERR, 19);
        let leaves_reset = (queue.state, to) == (State::Reset, State::Ready);
        if leaves_reset {
            self.bind_sender(call, number, &context)?;
        }
        let Some(queue) = self.senders.queues.get_mut(number) else { return Ok(()) };
        if held {
            SqContext::PACKET_PACING_RATE_LIMIT_INDEX.set(&mut queue.context, index);
            queue.pace.hold_to(rate, bus.now);
        }
        if queue.state != to {
            queue.become_state(to);
            if to == State::Reset {
                self.completions.forget_held(queue.cqn, |entry| {
                    matches!(entry.opcode(), completion::REQUESTER | completion::REQUESTER_ERROR)
                        && entry.sop_drop_qpn.get() & 0xff_ffff == number
                });
            }
        }
        if leaves_reset
            && queue.hairpin.is_none()
            && self.traits.send_record_at_ready
            && let Err(violation) = queue.ring.at_ready(bus, number)
        {
            self.violations.note(violation);
            let Self { keys, completions, events, port, tunnels, steering, .. } = self;
            queue.break_down(&mut send::Around { bus, keys, completions, events, port, tunnels, steering });
        }
        if queue.has_work() {
            self.senders.wake(number);
        }
        Ok(())
    }

    fn create_send_queue(&mut self, bus: &Bus<'_>, call: &mut Call<'_>) -> Result<(), No> {
        use SqContext as S;
        let context = CreateSqIn::CTX.get(call.input()?);
        if S::HAIRPIN.is_set(&context) {
            return self.create_hairpin_sender(bus, call, context);
        }
        let (cqn, tis) = (S::CQN.get(&context), S::TIS_NUM_0.get(&context));
        let ring = S::WQ.of(&context);
        let (domain, uar) = (WorkQueue::PD.get(ring), WorkQueue::UAR_PAGE.get(ring));
        need!(S::STATE.get(&context) == state::RESET, BAD_PARAM_ERR, 16);
        need!(call.may_name(self.completions.queues.owner(cqn)), BAD_RES_ERR, 17);
        // A queue for control work alone has no TIS.
        let tises = S::TIS_LST_SZ.get(&context);
        need!(tises <= 1, BAD_PARAM_ERR, 18);
        need!(tises == 0 || call.may_name(self.tises.owner(tis)), BAD_RES_ERR, 19);
        need!(call.may_work_in(self.domains.owner(domain)), BAD_RES_ERR, 20);
        need!(call.may_name(self.uars.owner(uar)), BAD_RES_ERR, 21);
        // The flag is for the older form of such entries, which no card here has; Linux's network driver posts the
        // enhanced form to queues without it.
        let multi = self.traits.enhanced_multi_packet;
        need!(multi || !S::ALLOW_MULTI_PKT_SEND_WQE.is_set(&context), BAD_PARAM_ERR, 22);
        need!(self.traits.change_keys || !S::REG_UMR.is_set(&context), BAD_PARAM_ERR, 23);
        need!(self.traits.stamps(S::TS_FORMAT.get(&context)), BAD_PARAM_ERR, 27);
        need!(self.traits.software_parsing || !S::ALLOW_SWP.is_set(&context), BAD_PARAM_ERR, 28);
        // The key for any memory is the kernel's.
        need!(call.uid == 0 || !S::RLKY.is_set(&context), BAD_PARAM_ERR, 29);
        let inline = S::MIN_WQE_INLINE_MODE.get(&context);
        need!(inline <= min_inline::TCP_UDP, BAD_PARAM_ERR, 24);
        let mut pace = Pace::default();
        pace.hold_to(self.rate(S::PACKET_PACING_RATE_LIMIT_INDEX.get(&context))?, bus.now);
        let (memory, log_blocks) = self.send_ring(call, ring, call.behind::<{ CreateSqIn::BYTES }>())?;
        let mut queue = Queue::new(Make {
            cqn,
            user_index: if self.traits.cqe_version == 0 { 0 } else { S::USER_INDEX.get(&context) },
            domain,
            tis: (tises == 1).then_some(tis),
            transport_domain: self.tises.get(tis).map_or(0, |tis| tis.transport_domain),
            uar,
            // The record of a queue pair: receive first, send second.
            ring: SendRing::new(memory.ring, log_blocks, memory.record + 4),
            min_inline: inline.max(self.function.min_inline),
            multi,
            inserts_tags: self.traits.vlan_insert,
            parsing: Parsing {
                allowed: S::ALLOW_SWP.is_set(&context),
                complemented: self.traits.parser_complements,
            },
            changes_keys: S::REG_UMR.is_set(&context),
            reserved_key: S::RLKY.is_set(&context),
            kernel: call.uid == 0,
            flush: S::FLUSH_IN_ERROR_EN.is_set(&context),
            pace,
            hairpin: None,
            context,
        });
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 25);
        queue.number = 0;
        let number = self.senders.queues.insert(call.uid, queue).ok_or(no(status::NO_RES_ERR, 26))?;
        if let Some(queue) = self.senders.queues.get_mut(number) {
            queue.number = number;
        }
        call.answer_number(number)
    }
}
