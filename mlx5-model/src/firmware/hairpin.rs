//! Commands on hairpin queues, where they differ from those on others: how they are made, and bound to each other.

use pollux_mlx5_abi::command::hairpin::{DATA_BUFFER_TYPE, INTERNAL_BUFFER, WQ_BUFFER_TYPE};
use pollux_mlx5_abi::command::rq::{RqContext, memory};
use pollux_mlx5_abi::command::sq::SqContext;
use pollux_mlx5_abi::command::status;
use pollux_mlx5_abi::command::wq::{WorkQueue, state};

use super::{Call, No, need, no};
use crate::device::bus::Bus;
use crate::device::core::Core;
use crate::device::ring::send::SendRing;
use crate::hairpin::{Buffer, Egress, LOG_QUEUES, Sizes};
use crate::receive;
use crate::send::{self, Pace, Parsing};

/// Of a queue without completions, registers or memory of the host: objects of this number there are none.
const NONE: u32 = 0;

impl Core {
    fn hairpin_sizes(&self, ring: &[u8; WorkQueue::BYTES]) -> Result<Sizes, No> {
        need!(self.traits.hairpin, BAD_PARAM_ERR, 54);
        let (log_bytes, log_packets) =
            (WorkQueue::LOG_HAIRPIN_DATA_SZ.get(ring), WorkQueue::LOG_HAIRPIN_NUM_PACKETS.get(ring));
        Sizes::of(log_bytes, log_packets).ok_or(no(status::BAD_PARAM_ERR, 55))
    }

    /// A receive queue. Of its context only the set of counters and the sizes count.
    pub(super) fn create_hairpin_receiver(
        &mut self,
        call: &mut Call<'_>,
        context: [u8; RqContext::BYTES],
    ) -> Result<(), No> {
        use RqContext as R;
        let set = R::COUNTER_SET_ID.get(&context);
        let sizes = self.hairpin_sizes(R::WQ.of(&context))?;
        need!(R::STATE.get(&context) == state::RESET, BAD_PARAM_ERR, 56);
        need!(R::MEM_RQ_TYPE.get(&context) == memory::INLINE, BAD_PARAM_ERR, 57);
        need!(DATA_BUFFER_TYPE.get(&context) == INTERNAL_BUFFER, BAD_PARAM_ERR, 58);
        need!(!R::DELAY_DROP_EN.is_set(&context), BAD_PARAM_ERR, 59);
        need!(set == 0 || call.may_name(self.receivers.counters.owner(set)), BAD_RES_ERR, 60);
        let others = self.receivers.queues.iter().filter(|(_, queue)| queue.hairpin.is_some()).count();
        need!(others < 1 << LOG_QUEUES, NO_RES_ERR, 61);
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 62);
        let queue = receive::Queue::new(receive::Make {
            cqn: NONE,
            user_index: 0,
            source: receive::Source::Own,
            ring: None,
            hairpin: Some(Box::new(Buffer::new(sizes))),
            keep_tag: R::VSD.is_set(&context),
            scatter_fcs: false,
            flush: false,
            counter_set: set,
            context,
        });
        let number = self.receivers.queues.insert(call.uid, queue).ok_or(no(status::NO_RES_ERR, 63))?;
        if let Some(queue) = self.receivers.queues.get_mut(number) {
            queue.number = number;
        }
        call.answer_number(number)
    }

    /// A send queue. Of its context only the TIS, the rate and the sizes count.
    pub(super) fn create_hairpin_sender(
        &mut self,
        bus: &Bus<'_>,
        call: &mut Call<'_>,
        context: [u8; SqContext::BYTES],
    ) -> Result<(), No> {
        use SqContext as S;
        self.hairpin_sizes(S::WQ.of(&context))?;
        let (tises, tis) = (S::TIS_LST_SZ.get(&context), S::TIS_NUM_0.get(&context));
        need!(S::STATE.get(&context) == state::RESET, BAD_PARAM_ERR, 56);
        need!(WQ_BUFFER_TYPE.get(&context) == INTERNAL_BUFFER, BAD_PARAM_ERR, 58);
        need!(tises <= 1, BAD_PARAM_ERR, 64);
        need!(tises == 0 || call.may_name(self.tises.owner(tis)), BAD_RES_ERR, 65);
        let others = self.senders.queues.iter().filter(|(_, queue)| queue.hairpin.is_some()).count();
        need!(others < 1 << LOG_QUEUES, NO_RES_ERR, 61);
        let mut pace = Pace::default();
        pace.hold_to(self.rate(S::PACKET_PACING_RATE_LIMIT_INDEX.get(&context))?, bus.now);
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 62);
        let queue = send::Queue::new(send::Make {
            cqn: NONE,
            user_index: 0,
            domain: NONE,
            tis: (tises == 1).then_some(tis),
            transport_domain: if tises == 1 {
                self.tises.get(tis).map_or(0, |tis| tis.transport_domain)
            } else {
                0
            },
            uar: NONE,
            ring: SendRing::none(),
            min_inline: 0,
            multi: false,
            inserts_tags: false,
            parsing: Parsing { allowed: false, complemented: false },
            changes_keys: false,
            reserved_key: false,
            kernel: call.uid == 0,
            flush: false,
            pace,
            hairpin: Some(Egress::default()),
            context,
        });
        let number = self.senders.queues.insert(call.uid, queue).ok_or(no(status::NO_RES_ERR, 63))?;
        if let Some(queue) = self.senders.queues.get_mut(number) {
            queue.number = number;
        }
        call.answer_number(number)
    }

    /// Binds receive queue `number`, if it is a hairpin's, to the send queue that the context names. Whoever binds two queues has the
    /// right to both: what one is given the other sends.
    pub(super) fn bind_receiver(
        &mut self,
        call: &Call<'_>,
        number: u32,
        context: &[u8; RqContext::BYTES],
    ) -> Result<(), No> {
        let buffer = self.receivers.queues.get_mut(number).and_then(|queue| queue.hairpin.as_deref_mut());
        let Some(buffer) = buffer else { return Ok(()) };
        let peer = RqContext::HAIRPIN_PEER_SQ.get(context);
        need!(RqContext::HAIRPIN_PEER_VHCA.get(context) == self.function.vhca_id, BAD_PARAM_ERR, 66);
        need!(call.may_change(self.senders.queues.owner(peer)), BAD_RES_ERR, 67);
        let egress = self.senders.queues.get(peer).and_then(|queue| queue.hairpin);
        let egress = egress.ok_or(no(status::BAD_PARAM_ERR, 68))?;
        need!(egress.peer.is_none_or(|bound| bound == number), BAD_RES_STATE_ERR, 69);
        buffer.peer = Some(peer);
        Ok(())
    }

    /// Binds send queue `number` to the receive queue that the context names, likewise.
    pub(super) fn bind_sender(
        &mut self,
        call: &Call<'_>,
        number: u32,
        context: &[u8; SqContext::BYTES],
    ) -> Result<(), No> {
        let egress = self.senders.queues.get_mut(number).and_then(|queue| queue.hairpin.as_mut());
        let Some(egress) = egress else { return Ok(()) };
        let peer = SqContext::HAIRPIN_PEER_RQ.get(context);
        need!(SqContext::HAIRPIN_PEER_VHCA.get(context) == self.function.vhca_id, BAD_PARAM_ERR, 66);
        need!(call.may_change(self.receivers.queues.owner(peer)), BAD_RES_ERR, 67);
        let buffer = self.receivers.queues.get(peer).and_then(|queue| queue.hairpin.as_deref());
        let buffer = buffer.ok_or(no(status::BAD_PARAM_ERR, 68))?;
        need!(buffer.peer.is_none_or(|bound| bound == number), BAD_RES_STATE_ERR, 69);
        egress.peer = Some(peer);
        Ok(())
    }
}

/// What a receive queue's context says of its peer.
pub(super) fn show_sender(context: &mut [u8; RqContext::BYTES], buffer: &Buffer, vhca_id: u32) {
    RqContext::HAIRPIN_PEER_SQ.set(context, buffer.peer.unwrap_or(NONE));
    RqContext::HAIRPIN_PEER_VHCA.set(context, if buffer.peer.is_some() { vhca_id } else { 0 });
}

/// What a send queue's context says of its peer.
pub(super) fn show_receiver(context: &mut [u8; SqContext::BYTES], egress: Egress, vhca_id: u32) {
    SqContext::HAIRPIN_PEER_RQ.set(context, egress.peer.unwrap_or(NONE));
    SqContext::HAIRPIN_PEER_VHCA.set(context, if egress.peer.is_some() { vhca_id } else { 0 });
}
