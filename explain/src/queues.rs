//! The queues that the calls so far have made, and their states.

use std::collections::BTreeMap;

use pollux_uverbs::abi::flags::{QpState, QpType};

/// A channel and a handle: each channel has handles of its own.
type Key = (usize, u32);

#[derive(Clone, Copy, Debug)]
struct Pair {
    number: u32,
    /// Number that its send entries go by: of one that sends raw frames its send queue's.
    sends: u32,
    state: QpState,
}

/// Queue pairs and send queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pairs: BTreeMap<Key, Pair>,
    /// Kinds of send queues, by the numbers that their entries go by, which are the device's.
    kinds: BTreeMap<u32, QpType>,
}

impl Queues {
    /// A queue pair was made, of an unknown kind perhaps. One of number 0 spreads packets, and sends none.
    pub(crate) fn made(&mut self, key: Key, number: u32, sends: u32, kind: Option<QpType>) {
        let _ = self.pairs.insert(key, Pair { number, sends, state: QpState::RESET });
        if number != 0 {
            let _ = match kind {
                Some(kind) => self.kinds.insert(sends, kind),
                None => self.kinds.remove(&sends),
            };
        }
    }

    /// A send queue takes frames alone.
    pub(crate) fn sends_frames(&mut self, queue: u32) {
        let _ = self.kinds.insert(queue, QpType::RAW_PACKET);
    }

    /// A queue pair goes to a state: its number, and the state before.
    pub(crate) fn modified(&mut self, key: Key, state: QpState) -> Option<(u32, QpState)> {
        let pair = self.pairs.get_mut(&key)?;
        Some((pair.number, std::mem::replace(&mut pair.state, state)))
    }

    pub(crate) fn destroyed(&mut self, key: Key) {
        let _ = self.pairs.remove(&key);
    }

    /// A channel is gone; how many queue pairs with it.
    pub(crate) fn close(&mut self, channel: usize) -> usize {
        let before = self.pairs.len();
        self.pairs.retain(|key, _| key.0 != channel);
        before - self.pairs.len()
    }

    /// The kind of the queue that an entry is sent by, where it is known.
    pub(crate) fn kind_of(&self, queue: u32) -> Option<QpType> {
        self.kinds.get(&queue).copied()
    }

    /// The state of the queue pair with that number, or whose send queue has it.
    pub(crate) fn state_of(&self, queue: u32) -> Option<QpState> {
        self.pairs.values().find(|pair| pair.number == queue || pair.sends == queue).map(|pair| pair.state)
    }

    /// Numbers and states of those that are left.
    pub(crate) fn states(&self) -> impl Iterator<Item = (u32, QpState)> {
        self.pairs.values().map(|pair| (pair.number, pair.state))
    }
}
