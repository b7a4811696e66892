//! Registers that several queues ring, looked at from time to time: what one queue stored is gone when another has stored there
//! since. A card sees each store. So, where a register is found rung, the records of the other queues of its page are looked at too:
//! they were written before the doorbell was, and tell the same. A queue
//! whose doorbell is still to come begins a little early by that.

use super::Core;
use crate::device::bus::Bus;
use crate::device::state::State;

impl Core {
    /// Queue `rung` was found rung on a page: the others that send there.
    pub(super) fn catch_up_sends(&mut self, bus: &mut Bus<'_>, page: u32, rung: u32) {
        let Self { senders, rdma, .. } = self;
        let is_other = |uar: u32, number: u32| uar == page && number != rung;
        let queues: Vec<u32> = senders
            .queues
            .iter()
            .filter(|(number, queue)| is_other(queue.uar, *number) && queue.state != State::Reset)
            .map(|(number, _)| number)
            .collect();
        for number in queues {
            if senders.queues.get_mut(number).is_some_and(|queue| queue.ring.catch_up(bus)) {
                senders.wake(number);
            }
        }
        let pairs: Vec<u32> = rdma
            .pairs
            .iter()
            .filter(|(number, pair)| is_other(pair.uar, *number) && pair.state.sends())
            .map(|(number, _)| number)
            .collect();
        for number in pairs {
            let ring = rdma.pairs.get_mut(number).and_then(|pair| pair.send.as_mut());
            if ring.is_some_and(|ring| ring.catch_up(bus)) {
                rdma.wake(number);
            }
        }
    }

    /// Completion queue `armed` was found armed on a page: the others there.
    pub(super) fn catch_up_arms(&mut self, bus: &mut Bus<'_>, page: u32, armed: u32) {
        let Self { completions, events, .. } = self;
        let others: Vec<u32> = completions
            .queues
            .iter()
            .filter(|(number, queue)| queue.uar == page && *number != armed)
            .map(|(number, _)| number)
            .collect();
        for number in others {
            if let Some(queue) = completions.queues.get_mut(number) {
                queue.catch_up_arm(bus, events, number);
            }
        }
    }
}
