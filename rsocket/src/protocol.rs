//! The protocol of a stream over a reliable connection, without device, memory and clock: it says what to post, and is told what came.
//!
//! ```text
//!   Sending     credits and target SGL of the peer, our requests and send buffer     data() ─► Write
//!   Receiving   our receive buffer, offered to the peer in halves                    heard(), read(), credits() ─► CreditUpdate
//! ```
//!
//! Each end has a receive buffer, whose halves it offers to the peer in turn: the first by the private data of the connection, then
//! each by an RDMA write into the peer's target SGL. Data are an RDMA write into what is offered, with immediate data that tell how
//! much. A data message takes a receive of the peer's, so there are credits: how many data messages may be sent in all. Control messages
//! take none; a few receives that are short are waited for by RNR retry.
//!
//! Nothing that the peer says is believed: what it says to have written is not more than it was offered, and what it offers is memory
//! of its own.

mod receiving;
mod sending;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::message::{ConnectData, Control, MapEntry, Message, Order, SGE_BYTES, Sge, operation};
use receiving::Receiving;
use sending::Sending;

/// Entries of our target SGL. Source: rdma-core `librdmacm/rsocket.c`, `RS_SGL_SIZE`.
pub(crate) const TARGETS: usize = 2;
/// Requests that are kept free for control messages. Source: rdma-core `librdmacm/rsocket.c`, `RS_QP_CTRL_SIZE`.
pub(crate) const CONTROLS: u16 = 4;

/// Sizes of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Requests that may be under way, those for control messages among them.
    pub(crate) sends: u16,
    /// Receives that are posted.
    pub(crate) receives: u16,
    /// Bytes of the send buffer.
    pub(crate) send_bytes: u32,
    /// Bytes of the receive buffer, an even number.
    pub(crate) receive_bytes: u32,
    /// Most bytes of inline data.
    pub(crate) inline: u32,
}

/// Where the bytes of a write are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the request.
    Inline,
    /// In the send buffer: two parts where its end is in between, else the second is empty.
    Ring([Range<usize>; 2]),
}

/// An RDMA write to be posted, in the order in which they are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The number of its request, for [`Protocol::completed`].
    pub(crate) id: u64,
    pub(crate) bytes: usize,
    pub(crate) place: Place,
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    /// Immediate data.
    pub(crate) message: Option<Message>,
}

/// A credit update to be posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreditUpdate {
    pub(crate) message: Message,
    pub(crate) offer: Option<Offer>,
}

/// The next half of the receive buffer, for the peer's target SGL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) entry: [u8; SGE_BYTES],
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    /// Which of the [`CONTROLS`] buffers it may stand in until the request completes.
    pub(crate) slot: usize,
}

/// What a message asks of whoever has the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Nothing,
    /// An entry of our target SGL may be new: [`Protocol::awaited_target`].
    Targets,
    /// That entry of our table of maps is.
    Map(u16),
}

/// What a peer did against the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// More data than it had room for.
    #[error("{bytes} bytes of data where {offered} were offered")]
    Data {
        /// What it said.
        bytes: u32,
        /// What it had.
        offered: u32,
    },
    /// More messages than it had credits for.
    #[error("more than {0} data messages without credits")]
    Credits(usize),
    /// An entry of a table of maps that is not there.
    #[error("map {index} of {maps}")]
    Map {
        /// What it said.
        index: u32,
        /// How many there are.
        maps: u16,
    },
    /// An operation that no version of the protocol has.
    #[error("message {0:#010x}, whose operation is reserved")]
    Reserved(u32),
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Open,
    /// Both directions ended.
    Ended,
    Failed,
}

/// A stream's end.
#[derive(Debug)]
pub(crate) struct Protocol {
    state: State,
    /// We may send.
    writing: bool,
    /// The peer may send.
    reading: bool,
    /// A control message that waits for a request to be free.
    owed: Option<Control>,
    sending: Sending,
    receiving: Receiving,
    /// What the peer mapped for us.
    maps: Vec<Option<MapEntry>>,
    /// The peer's table of maps: its address and key, and how many it has.
    peer_maps: (u64, u32, u16),
    /// How the peer reads what is written into its tables.
    peer_order: Order,
}

impl Protocol {
    /// `ring` is our receive buffer as the peer reaches it, `maps` how many maps our table has room for, `peer` what the peer said.
    pub(crate) fn new(sizes: Sizes, ring: Sge, maps: u16, peer: &ConnectData) -> Self {
        let behind = (SGE_BYTES as u64).wrapping_mul(peer.targets.length.into());
        Self {
            state: State::Open,
            writing: true,
            reading: true,
            owed: None,
            sending: Sending::new(&sizes, peer),
            receiving: Receiving::new(&sizes, ring, peer.targets),
            maps: vec![None; maps.into()],
            peer_maps: (peer.targets.address.wrapping_add(behind), peer.targets.key, peer.maps),
            peer_order: peer.order,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// The connection cannot be used any more.
    pub(crate) fn fail(&mut self) {
        self.state = State::Failed;
    }

    /// The connection manager says that the peer is gone.
    pub(crate) fn end(&mut self) {
        if self.state == State::Open {
            self.state = State::Ended;
        }
    }

    /// We may send, as far as the connection is concerned.
    pub(crate) fn is_writing(&self) -> bool {
        self.state == State::Open && self.writing
    }

    /// The peer may send more than has come.
    pub(crate) fn is_reading(&self) -> bool {
        self.state == State::Open && self.reading
    }

    /// Data can be sent now.
    pub(crate) fn can_send(&self) -> bool {
        self.is_writing() && self.sending.can_send()
    }

    /// Bytes that can be read.
    pub(crate) fn unread(&self) -> usize {
        self.receiving.unread()
    }

    /// The next write of data, of which there are `bytes`; not more than `most` go at once.
    pub(crate) fn data(&mut self, bytes: usize, most: usize) -> Option<Write> {
        if !self.is_writing() {
            return None;
        }
        self.sending.data(bytes.min(most))
    }

    /// The next write at an offset of what the peer mapped. `None`: nothing can be sent now, or nothing is mapped there
    /// ([`is_mapped`](Self::is_mapped)).
    pub(crate) fn data_at(&mut self, offset: u64, bytes: usize, most: usize) -> Option<Write> {
        let map = self.map_at(offset)?;
        if !self.is_writing() {
            return None;
        }
        let (address, left) = map.place(offset)?;
        self.sending.direct(bytes.min(most).min(left as usize), address, map.memory.key)
    }

    /// Whether the peer mapped something there.
    pub(crate) fn is_mapped(&self, offset: u64) -> bool {
        self.map_at(offset).is_some()
    }

    fn map_at(&self, offset: u64) -> Option<MapEntry> {
        self.maps.iter().flatten().copied().find(|map| map.place(offset).is_some())
    }

    /// How many maps the peer has room for.
    pub(crate) fn peer_maps(&self) -> u16 {
        self.peer_maps.2
    }

    /// The write that tells the peer of a map, with its bytes.
    pub(crate) fn map(
        &mut self,
        index: u16,
        entry: MapEntry,
    ) -> Option<(Write, [u8; crate::message::MAP_BYTES])> {
        let (address, rkey, maps) = self.peer_maps;
        if !self.is_writing() || index >= maps {
            return None;
        }
        let at = address.wrapping_add(u64::from(index) * crate::message::MAP_BYTES as u64);
        let write = self.sending.map(index, at, rkey)?;
        Some((write, entry.encode(self.peer_order)))
    }

    /// The next credit update, if one is due and can be sent.
    pub(crate) fn credits(&mut self) -> Option<CreditUpdate> {
        if self.state != State::Open || !self.receiving.is_update_due() {
            return None;
        }
        let slot = self.sending.take_control()?;
        let (message, offer) = self.receiving.update();
        let offer = offer.map(|(sge, address, rkey)| Offer {
            entry: sge.encode(self.peer_order),
            address,
            rkey,
            slot,
        });
        Some(CreditUpdate { message, offer })
    }

    /// The next control message, if one is due and can be sent.
    pub(crate) fn control(&mut self) -> Option<Message> {
        let owed = self.owed.filter(|_| self.state == State::Open)?;
        self.sending.take_control()?;
        self.owed = None;
        Some(owed.message())
    }

    /// Takes a request for a keepalive, a write that sends no message.
    pub(crate) fn keepalive(&mut self) -> Option<Message> {
        if self.state != State::Open {
            return None;
        }
        self.sending.take_control()?;
        Some(Control::Keepalive.message())
    }

    /// Ends our side of one direction or both; [`control`](Self::control) has what the peer is to be told.
    pub(crate) fn shut_down(&mut self, reading: bool, writing: bool) {
        let before = (self.reading, self.writing);
        self.reading &= !reading;
        self.writing &= !writing;
        if (self.reading, self.writing) == before || self.state != State::Open {
            return;
        }
        match (self.reading, self.writing) {
            (false, false) => self.owed = Some(Control::Disconnect),
            (true, false) => self.owed = Some(Control::Shutdown),
            // The peer may go on: what it sends is offered no room.
            (_, true) => {}
        }
    }

    /// Everything that was to be sent has been, and what is owed.
    pub(crate) fn is_quiet(&self) -> bool {
        self.state != State::Open || (self.owed.is_none() && self.sending.is_quiet())
    }

    /// A request completed: its number.
    pub(crate) fn completed(&mut self, id: u64, well: bool) {
        // Numbers are ours, of 32 bits.
        let message = Message(id as u32);
        self.sending.completed(message);
        if self.state != State::Open {
            return;
        }
        if !well {
            self.state = State::Failed;
        } else if message == Control::Disconnect.message() {
            self.state = State::Ended;
        } else {
            self.settle();
        }
    }

    /// Where each side has ended its own direction, the connection has ended once all that we sent has arrived: the peer may have
    /// ended its direction before it had what we sent last.
    fn settle(&mut self) {
        if !self.reading && !self.writing && self.is_quiet() {
            self.state = State::Ended;
        }
    }

    /// A message came.
    ///
    /// # Errors
    /// It is against the protocol: the stream has failed.
    pub(crate) fn heard(&mut self, message: Message) -> Result<Heard, Violation> {
        if self.state != State::Open {
            return Ok(Heard::Nothing);
        }
        let heard = self.take(message);
        if heard.is_err() {
            self.state = State::Failed;
        }
        heard
    }

    fn take(&mut self, message: Message) -> Result<Heard, Violation> {
        let value = message.value();
        match message.operation() {
            operation::DATA => self.receiving.data(value)?,
            operation::CREDITS => {
                self.sending.credits(value as u16);
                return Ok(Heard::Targets);
            }
            operation::MAP => {
                let maps = self.maps.len() as u16;
                let index = u16::try_from(value).ok().filter(|index| *index < maps);
                let index = index.ok_or(Violation::Map { index: value, maps })?;
                self.receiving.empty();
                return Ok(Heard::Map(index));
            }
            operation::CONTROL => match Control::of(value) {
                Some(Control::Shutdown) => {
                    self.reading = false;
                    self.settle();
                }
                // It does not read any more.
                Some(Control::Disconnect) => self.state = State::Ended,
                Some(Control::Keepalive) => {}
                None => return Err(Violation::Reserved(message.0)),
            },
            _ => return Err(Violation::Reserved(message.0)),
        }
        Ok(Heard::Nothing)
    }

    /// Which entry of our target SGL is to be looked at after [`Heard::Targets`], if one can be new.
    pub(crate) fn awaited_target(&self) -> Option<usize> {
        self.sending.awaited_target()
    }

    /// That entry's content. It is kept, so that the memory can be cleared: the peer does not write there until it is used up.
    pub(crate) fn target(&mut self, entry: Sge) {
        self.sending.target(entry);
    }

    /// What our table of maps has there now.
    pub(crate) fn mapped(&mut self, index: u16, entry: MapEntry) {
        if let Some(map) = self.maps.get_mut(usize::from(index)) {
            *map = Some(entry);
        }
    }

    /// Where the next bytes are in the receive buffer, in two parts where its end is in between. They are read, and their room may be
    /// offered again, unless they are only looked at.
    pub(crate) fn read(&mut self, bytes: usize, peek: bool) -> [Range<usize>; 2] {
        self.receiving.read(bytes, peek)
    }
}
