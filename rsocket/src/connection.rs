//! A connection's queue pair and memory: posts what the [protocol](crate::protocol) says, and tells it what came.
//!
//! ```text
//!   receive buffer    the peer writes data there
//!   table             target SGL, then maps: the peer writes entries there
//!   send buffer       what we write, then a place for each control message
//! ```

use std::ops::Range;
use std::sync::{Arc, Weak};

use pollux_cm::Id;
use pollux_verbs::{
    Access, Buf, CompletionChannel, Cq, CqOptions, Mr, Pd, PostError, Qp, QpKind, QpOptions, VerbsError,
    WcStatus,
};

use crate::error::RsError;
use crate::message::{ConnectData, MAP_BYTES, MapEntry, Message, Order, SGE_BYTES, Sge};
use crate::options::RsOptions;
use crate::protocol::{CONTROLS, CreditUpdate, Heard, Place, Protocol, Sizes, State, TARGETS, Write};

/// Completions that are taken at once, and how often in one call: a peer that sends without end has its turn, and then others.
const BURST: usize = 64;
const BURSTS: usize = 16;
/// A call's first write, and the longest: the device is at work on the first while the next is copied. Source: rdma-core
/// `librdmacm/rsocket.c`, `RS_OLAP_START_SIZE` and `RS_MAX_TRANSFER`.
const WRITES: [usize; 2] = [2048, 65_536];

/// Queue pair and memory of a connection that is not made yet.
#[derive(Debug)]
pub(crate) struct Parts {
    qp: Qp,
    cq: Cq,
    channel: CompletionChannel,
    pd: Pd,
    ring: Mr,
    table: Mr,
    sends: Mr,
    sizes: Sizes,
    maps: u16,
}

impl Parts {
    /// For an ID that leads to a device.
    pub(crate) fn new(id: &Id, options: &RsOptions) -> Result<Self, RsError> {
        let (context, _) = id.device()?.ok_or(RsError::Ended("it leads to no device"))?;
        let pd = Pd::new(&context)?;
        let channel = CompletionChannel::new(&context)?;
        let (sends, receives) = (u32::from(options.sends), u32::from(options.receives));
        let mut cq = Cq::new(&context, CqOptions::new(sends + receives).channel(&channel))?;
        let queue = QpOptions::new(QpKind::Rc).depth(sends, receives).pieces(2, 1).inline(options.inline);
        let qp = id.create_qp(&pd, &cq, &cq, &queue)?;
        qp.make_room(&mut cq)?;
        let sizes = Sizes {
            sends: options.sends,
            receives: options.receives,
            send_bytes: options.send_bytes,
            receive_bytes: options.receive_bytes,
            inline: qp.sizes().inline,
        };
        let remote = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let table = TARGETS * SGE_BYTES + usize::from(options.maps) * MAP_BYTES;
        let control = usize::from(CONTROLS) * SGE_BYTES;
        let mut parts = Self {
            ring: Mr::allocate(&pd, sizes.receive_bytes as usize, remote)?,
            table: Mr::allocate(&pd, table, remote)?,
            sends: Mr::allocate(&pd, sizes.send_bytes as usize + control, Access::LOCAL_WRITE)?,
            qp,
            cq,
            channel,
            pd,
            sizes,
            maps: options.maps,
        };
        receive(&mut parts.qp, receives)?;
        Ok(parts)
    }

    pub(crate) fn qp(&mut self) -> &mut Qp {
        &mut self.qp
    }

    /// The private data for the peer.
    pub(crate) fn private_data(&self) -> [u8; ConnectData::BYTES] {
        let buffer = Sge { length: self.sizes.receive_bytes / 2, ..sge(&self.ring) };
        let targets = Sge { length: TARGETS as u32, ..sge(&self.table) };
        ConnectData { order: Order::HERE, credits: self.sizes.receives, maps: self.maps, targets, buffer }
            .encode()
    }

    /// The connection with a peer, by its private data.
    pub(crate) fn with(self, peer: &ConnectData) -> Connection {
        let protocol = Protocol::new(self.sizes, sge(&self.ring), self.maps, peer);
        Connection { parts: self, protocol, armed: false, maps: Vec::new(), to_tell: Vec::new(), wrong: None }
    }
}

/// A region as a peer reaches it.
fn sge(mr: &Mr) -> Sge {
    Sge { address: mr.address(), key: mr.rkey(), length: u32::try_from(mr.bytes()).unwrap_or(u32::MAX) }
}

/// Posts receives for messages, which have no bytes of their own.
fn receive(qp: &mut Qp, count: u32) -> Result<(), RsError> {
    let Some(mut receives) = qp.receives() else { return Ok(()) };
    for _ in 0..count {
        receives.pieces(0, std::iter::empty::<Buf>());
    }
    receives.ring().map_err(post)?;
    Ok(())
}

fn post(error: PostError) -> RsError {
    VerbsError::from(error).into()
}

/// Memory of ours that the peer writes by offset.
#[derive(Debug)]
struct Mapped {
    /// Gone when the map is dropped.
    held: Weak<Mr>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    parts: Parts,
    protocol: Protocol,
    /// An event will come at the next completion.
    armed: bool,
    /// By index in the peer's table.
    maps: Vec<Mapped>,
    /// Maps that the peer is to be told of.
    to_tell: Vec<(u16, MapEntry)>,
    /// Why it failed, until it is asked for.
    wrong: Option<RsError>,
}

impl Connection {
    pub(crate) fn qp(&mut self) -> &mut Qp {
        &mut self.parts.qp
    }

    pub(crate) fn protocol(&self) -> &Protocol {
        &self.protocol
    }

    pub(crate) fn channel(&self) -> &CompletionChannel {
        &self.parts.channel
    }

    pub(crate) fn is_software(&self) -> bool {
        self.parts.pd.context().provider().is_software()
    }

    /// Why it failed, once.
    pub(crate) fn take_error(&mut self) -> Option<RsError> {
        self.wrong.take()
    }

    pub(crate) fn has_error(&self) -> bool {
        self.wrong.is_some()
    }

    pub(crate) fn fail(&mut self, error: RsError) {
        if self.protocol.state() == State::Open {
            self.wrong.get_or_insert(error);
        }
        self.protocol.fail();
    }

    pub(crate) fn end(&mut self) {
        self.protocol.end();
    }

    pub(crate) fn shut_down(&mut self, reading: bool, writing: bool) {
        self.protocol.shut_down(reading, writing);
        self.advance();
    }

    /// Takes what completed, answers it and posts what is due. Whether a message came.
    pub(crate) fn advance(&mut self) -> bool {
        self.take(BURSTS, Self::answer)
    }

    /// The same without an answer, while the peer's queue pair may not take one yet. Source: rdma-core `librdmacm/rsocket.c`, where
    /// nothing is sent in the state `rs_accepting`.
    pub(crate) fn listen(&mut self) -> bool {
        self.take(BURSTS, Self::receive_again)
    }

    fn take(&mut self, bursts: usize, mut answer: impl FnMut(&mut Self, u32) -> Result<(), RsError>) -> bool {
        let mut came = false;
        for _ in 0..bursts {
            let (taken, received) = self.take_completions();
            came |= received > 0;
            if let Err(error) = answer(self, received) {
                self.fail(error);
            }
            if taken < BURST {
                break;
            }
        }
        came
    }

    /// Takes all that came before the peer disconnected.
    pub(crate) fn drain(&mut self) {
        // No more than were posted when it did, and as many that were posted anew meanwhile.
        let posted = usize::from(self.parts.sizes.sends) + usize::from(self.parts.sizes.receives);
        self.take(2 * posted / BURST + 1, Self::answer);
    }

    /// How many completions there were, and how many of them are receives to be posted again.
    fn take_completions(&mut self) -> (usize, u32) {
        let Self { parts: Parts { cq, table, .. }, protocol, wrong, .. } = self;
        let mut received = 0;
        let taken = cq.poll(BURST, |wc| {
            let before = protocol.state();
            let mut failure = None;
            if !wc.is_receive() {
                protocol.completed(wc.id(), wc.is_ok());
                failure = (!wc.is_ok()).then(|| RsError::Completion(wc.status()));
            } else if wc.is_ok() {
                received += 1;
                // A send without a word is of nobody who knows the protocol; it says nothing.
                if let Some(message) = wc.imm() {
                    match protocol.heard(Message(message)) {
                        Ok(heard) => look(protocol, table, heard),
                        Err(violation) => failure = Some(violation.into()),
                    }
                }
            } else if wc.status() != WcStatus::WR_FLUSH_ERR {
                protocol.fail();
                failure = Some(RsError::Completion(wc.status()));
            }
            if before == State::Open
                && protocol.state() == State::Failed
                && let Some(failure) = failure
            {
                wrong.get_or_insert(failure);
            }
        });
        (taken, received)
    }

    /// Posts what is due after something was read. Whether anything was.
    pub(crate) fn due(&mut self) -> bool {
        let before = self.protocol.is_quiet();
        if let Err(error) = self.answer(0) {
            self.fail(error);
        }
        before && !self.protocol.is_quiet()
    }

    fn answer(&mut self, received: u32) -> Result<(), RsError> {
        if self.protocol.state() != State::Open {
            return Ok(());
        }
        self.receive_again(received)?;
        while let Some(update) = self.protocol.credits() {
            self.post_credits(&update)?;
        }
        self.tell_maps()?;
        if let Some(message) = self.protocol.control() {
            let mut batch = self.parts.qp.batch();
            batch.write(message.0.into(), 0, 0).imm(message.0).signalled();
            batch.ring().map_err(post)?;
        }
        Ok(())
    }

    /// Posts as many receives as completed.
    fn receive_again(&mut self, received: u32) -> Result<(), RsError> {
        if received == 0 || self.protocol.state() != State::Open {
            return Ok(());
        }
        receive(&mut self.parts.qp, received)
    }

    fn post_credits(&mut self, update: &CreditUpdate) -> Result<(), RsError> {
        let Parts { qp, sends, sizes, .. } = &mut self.parts;
        let CreditUpdate { message, offer } = update;
        let mut batch = qp.batch();
        let (address, rkey) = offer.as_ref().map_or((0, 0), |offer| (offer.address, offer.rkey));
        batch.write(message.0.into(), address, rkey).imm(message.0).signalled();
        if let Some(offer) = offer {
            if sizes.inline as usize >= offer.entry.len() {
                batch.inline(&offer.entry);
            } else {
                let at = sizes.send_bytes as usize + offer.slot * SGE_BYTES;
                sends.write(at, &offer.entry);
                batch.mr(sends, at..at + SGE_BYTES);
            }
        }
        batch.ring().map_err(post)?;
        Ok(())
    }

    /// Probes whether the peer is there.
    pub(crate) fn keepalive(&mut self) {
        if let Some(message) = self.protocol.keepalive() {
            let mut batch = self.parts.qp.batch();
            batch.write(message.0.into(), 0, 0).signalled();
            if let Err(error) = batch.ring() {
                self.fail(post(error));
            }
        }
    }

    /// Asks for an event at the next completion. Those that are there already make none: call [`advance`](Self::advance) again.
    pub(crate) fn arm(&mut self) -> Result<(), RsError> {
        if !self.armed {
            self.parts.cq.notify(false)?;
            self.armed = true;
        }
        Ok(())
    }

    /// Takes the event, if it came. Whether it did.
    pub(crate) fn disarm(&mut self) -> Result<bool, RsError> {
        let was_armed = self.armed;
        while self.armed && self.parts.channel.next()?.is_some() {
            self.parts.cq.event_taken();
            self.armed = false;
        }
        Ok(was_armed && !self.armed)
    }

    /// Sends what can be sent of it.
    pub(crate) fn send(&mut self, data: &[u8]) -> Result<usize, RsError> {
        self.write(data, |protocol, _, bytes, most| protocol.data(bytes, most))
    }

    /// The same to an offset of what the peer mapped, until where nothing is mapped.
    pub(crate) fn send_at(&mut self, offset: u64, data: &[u8]) -> Result<usize, RsError> {
        self.write(data, |protocol, sent, bytes, most| {
            protocol.data_at(offset.checked_add(sent as u64)?, bytes, most)
        })
    }

    fn write(
        &mut self,
        data: &[u8],
        mut next: impl FnMut(&mut Protocol, usize, usize, usize) -> Option<Write>,
    ) -> Result<usize, RsError> {
        let [mut most, longest] = WRITES;
        let mut sent = 0;
        while let Some(write) = next(&mut self.protocol, sent, data.len() - sent, most) {
            let part = &data[sent..sent + write.bytes];
            if let Err(error) = post_write(&mut self.parts, &write, part) {
                self.fail(error);
                break;
            }
            sent += write.bytes;
            most = (2 * most).min(longest);
        }
        Ok(sent)
    }

    /// Reads what is there.
    pub(crate) fn receive(&mut self, into: &mut [u8], peek: bool) -> usize {
        let [first, second] = self.protocol.read(into.len(), peek);
        let (head, rest) = into.split_at_mut(first.len());
        self.parts.ring.read(first.start, head);
        let bytes = first.len() + second.len();
        self.parts.ring.read(second.start, &mut rest[..second.len()]);
        bytes
    }

    /// Maps memory of ours for the peer to write to.
    pub(crate) fn map(&mut self, bytes: usize, offset: u64) -> Result<Arc<Mr>, RsError> {
        let limit = self.protocol.peer_maps();
        let free = self.maps.iter().position(|map| map.held.strong_count() == 0);
        let index = free.unwrap_or(self.maps.len());
        let index =
            u16::try_from(index).ok().filter(|index| *index < limit).ok_or(RsError::MapsFull(limit))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mr = Arc::new(Mr::allocate(&self.parts.pd, bytes, access)?);
        let mapped = Mapped { held: Arc::downgrade(&mr) };
        match self.maps.get_mut(usize::from(index)) {
            Some(map) => *map = mapped,
            None => self.maps.push(mapped),
        }
        self.to_tell.push((index, MapEntry { offset, memory: sge(&mr) }));
        self.tell_maps()?;
        Ok(mr)
    }

    /// Tells the peer of what was mapped, as far as it can be told now.
    fn tell_maps(&mut self) -> Result<(), RsError> {
        while let Some(&(index, entry)) = self.to_tell.first() {
            let Some((write, bytes)) = self.protocol.map(index, entry) else { break };
            post_write(&mut self.parts, &write, &bytes)?;
            self.to_tell.remove(0);
        }
        Ok(())
    }

    /// The peer was told of all maps.
    pub(crate) fn are_maps_told(&self) -> bool {
        self.to_tell.is_empty()
    }
}

/// Looks at what a message is about.
fn look(protocol: &mut Protocol, table: &Mr, heard: Heard) {
    match heard {
        Heard::Nothing => {}
        Heard::Targets => {
            let Some(index) = protocol.awaited_target() else { return };
            let at = index * SGE_BYTES;
            let mut bytes = [0; SGE_BYTES];
            table.read(at, &mut bytes);
            let entry = Sge::decode(&bytes, Order::HERE);
            if entry.length > 0 {
                // The peer writes there again when this one is used up.
                table.store64(at + 8, 0);
                protocol.target(entry);
            }
        }
        Heard::Map(index) => {
            let mut bytes = [0; MAP_BYTES];
            table.read(TARGETS * SGE_BYTES + usize::from(index) * MAP_BYTES, &mut bytes);
            protocol.mapped(index, MapEntry::decode(&bytes, Order::HERE));
        }
    }
}

fn post_write(parts: &mut Parts, write: &Write, data: &[u8]) -> Result<(), RsError> {
    let Parts { qp, sends, .. } = parts;
    if let Place::Ring([first, second]) = &write.place {
        sends.write(first.start, &data[..first.len()]);
        sends.write(second.start, &data[first.len()..]);
    }
    let mut batch = qp.batch();
    batch.write(write.id, write.address, write.rkey).signalled();
    if let Some(message) = write.message {
        batch.imm(message.0);
    }
    match &write.place {
        Place::Inline => {
            batch.inline(data);
        }
        Place::Ring(ranges) => {
            let parts = ranges.iter().filter(|range| !range.is_empty());
            parts.for_each(|range: &Range<usize>| {
                batch.mr(sends, range.clone());
            });
        }
    }
    batch.ring().map_err(post)?;
    Ok(())
}
