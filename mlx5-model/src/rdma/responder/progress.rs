//! What came from the peer, and what it is still to be told.

use std::collections::{BTreeMap, VecDeque};

use pollux_wire::roce::{BthRepr, Nak, Syndrome};

use crate::memory_keys::Who;
use crate::rdma::psn::distance;
use crate::receive::Entry;

/// Answers that wait at most; a peer that asks for more is not answered.
const ANSWERS_MAX: usize = 256;

/// The message that packets belong to now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Message {
    /// So many bytes are in the entry held.
    Send {
        done: u64,
    },
    Write {
        key: u32,
        at: u64,
        left: u64,
        bytes: u64,
    },
}

/// What the peer is told.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Say {
        psn: u32,
        syndrome: Syndrome,
        messages: u32,
    },
    Atomic {
        psn: u32,
        original: u64,
        messages: u32,
        again: bool,
    },
    Read {
        psn: u32,
        key: u32,
        at: u64,
        bytes: u64,
        sent: u32,
        packets: u32,
        who: Who,
        messages: u32,
        again: bool,
    },
}

/// What came from the peer, and what it is still to be told.
#[derive(Debug, Default)]
pub(crate) struct Responder {
    pub(super) expected: u32,
    pub(super) messages: u32,
    /// The peer was told that a packet is missing, or that no receive is posted.
    pub(super) told: bool,
    pub(super) message: Option<Message>,
    /// The receive entry of the message, and the pool that it came from.
    pub(super) held: Option<Box<Entry>>,
    pub(super) answers: VecDeque<Answer>,
    /// Atomics done last, to be answered again.
    pub(super) atomics: VecDeque<(u32, u64)>,
    pub(super) early: BTreeMap<u32, (BthRepr, Vec<u8>)>,
    pub(super) established: bool,
}

impl Responder {
    /// Receiving begins.
    pub(crate) fn begin(&mut self, psn: u32) {
        *self = Self { expected: psn, ..Self::default() };
    }

    /// Whether nothing waits to be said.
    pub(crate) fn has_nothing_to_say(&self) -> bool {
        self.answers.is_empty()
    }

    /// Whether no message is under way either.
    pub(crate) fn is_idle(&self) -> bool {
        self.answers.is_empty() && self.message.is_none() && self.held.is_none()
    }

    pub(crate) fn expected(&self) -> u32 {
        self.expected
    }

    /// Messages taken so far.
    pub(crate) fn messages(&self) -> u32 {
        self.messages
    }

    /// The entry of a message that will not end.
    pub(crate) fn take_held(&mut self) -> Option<Box<Entry>> {
        self.message = None;
        self.held.take()
    }

    /// All up to and with `psn` is well: one word for what follows each other.
    pub(super) fn acknowledge(&mut self, psn: u32) {
        let messages = self.messages;
        match self.answers.back_mut() {
            Some(Answer::Say { psn: last, syndrome: Syndrome::Ack(_), messages: count }) => {
                if distance(*last, psn) > 0 {
                    (*last, *count) = (psn, messages);
                }
            }
            _ => self.push(Answer::Say { psn, syndrome: Syndrome::ACK, messages }),
        }
    }

    /// The packet whose turn it is was not taken: it is to come again.
    pub(crate) fn ask_again(&mut self) {
        let (psn, messages) = (self.expected, self.messages);
        self.told = true;
        self.push(Answer::Say { psn, syndrome: Syndrome::Nak(Nak::Sequence), messages });
    }

    pub(super) fn push(&mut self, answer: Answer) {
        if self.answers.len() < ANSWERS_MAX {
            self.answers.push_back(answer);
        }
    }
}
