//! RDMA: queue pairs, their transport, and RoCEv2 on the wire.
//!
//! ```text
//!   doorbell ──► work: entries ──► requester ── packets ──► port, or back to this device
//!                    keys: UMR, windows     ◄── answers ──┐
//!   completions ◄── responder ◄── packets ── receive ◄────┴── port (before steering), or this device
//! ```
//!
//! Called by the core: doorbells, one turn a step, frames that came in. Packets to the device's own addresses on UDP 4791 end
//! here and go no further, wanted or not.

mod copy;
pub(crate) mod dynamic;
pub(crate) mod ece;
mod flush;
mod packet;
mod paging;
pub(crate) mod path;
mod psn;
mod qp;
mod request;
mod requester;
mod responder;
mod signature;
pub(crate) mod state;
mod work;

use std::collections::{BTreeSet, VecDeque};

use pollux_wire::roce::BthRepr;
use pollux_wire::roce::operation::{self, Class};

use crate::completion::Completions;
use crate::device::bus::Bus;
use crate::device::joint::Joint;
use crate::device::ring::send::Came;
use crate::device::table::Table;
use crate::device::violation::Violation;
use crate::event::Events;
use crate::failure::Failure;
use crate::frame::Headers;
use crate::memory_keys::Keys;
use crate::memory_keys::absent::Absent;
use crate::port::{Origin, Port};
use crate::receive::{Pool, QueueCounters};
use crate::spare::Spare;
pub(crate) use copy::LOG_BYTES_MAX as COPY_LOG_BYTES_MAX;
use packet::{Extension, FRAME_MAX, Incoming};
use path::{Addresses, Path, is_group};
pub(crate) use qp::{Make, Qp, Rights, Source};
use state::{Service, State};

/// Number of the first queue pair: one space with send queues, whose doorbells name them the same way.
const FIRST: u32 = 0x1_0000;
/// Where datagrams to groups are addressed. Source: InfiniBand Architecture Specification, volume 1, 10.5.2.
const GROUP_PAIR: u32 = 0xff_ffff;
/// The queue pair of management.
const MANAGEMENT_PAIR: u32 = 1;
/// Queue pairs of a group at most, and memberships in all: `max_qp_mcg` and `log_max_mcg`.
pub(crate) const MEMBERS_MAX: usize = 240;
pub(crate) const GROUPS_MAX: usize = 1 << 12;
/// Packets on their way back to this device at most.
const LOOPED_MAX: usize = 1024;

/// What else of the device a queue pair works with.
pub(crate) struct Around<'a, 'b> {
    pub(crate) bus: &'a mut Bus<'b>,
    pub(crate) keys: &'a mut Keys,
    pub(crate) completions: &'a mut Completions,
    pub(crate) events: &'a mut Events,
    pub(crate) port: &'a mut Port,
    /// The way to the second port.
    pub(crate) second: Option<&'a Joint>,
    pub(crate) pools: &'a mut Table<Pool>,
    pub(crate) counters: &'a mut Table<QueueCounters>,
}

impl Around<'_, '_> {
    /// Whether a port takes a frame now; a second one that is not there takes all.
    fn is_ready(&mut self, second: bool) -> bool {
        if second { self.second.is_none_or(Joint::is_ready) } else { self.port.is_ready() }
    }

    fn send(&mut self, second: bool, frame: &[u8]) -> bool {
        if second {
            self.second.is_none_or(|joint| joint.send(frame))
        } else {
            self.port.send(frame, Origin::Other)
        }
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Yes,
    /// Not now.
    Busy,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Packets sent, entries completed without one.
    pub(crate) done: usize,
    /// There is more that could go on at once.
    pub(crate) more: bool,
}

/// A packet on its way back.
#[derive(Debug)]
struct Looped {
    frame: Vec<u8>,
    /// Of one to a group, who is not to have it.
    block: Option<u32>,
    /// It left by the second port.
    second: bool,
}

/// What all queue pairs share for sending.
#[derive(Debug)]
struct Desk {
    /// Of the port, and of a second one.
    addresses: [Addresses; 2],
    /// Which queue pairs get what is sent to a group.
    groups: Vec<([u8; 16], u32)>,
    /// Packets to this device itself.
    looped: VecDeque<Looped>,
    spare: Spare,
    frame: Box<[u8; FRAME_MAX]>,
    /// The dynamic connection begun last.
    session: u64,
}

impl Desk {
    /// The number of a new dynamic connection: higher than all before, and than those of a device that was here before.
    fn session(&mut self, now: u64) -> u64 {
        self.session = now.max(self.session.saturating_add(1));
        self.session
    }

    /// Whether a frame to this address is one to the port that it leaves by.
    fn is_own(&self, port: &Port, second: bool, mac: &[u8; 6]) -> bool {
        !second && *mac == port.mac || self.addresses(second).has_mac(mac)
    }

    fn addresses(&self, second: bool) -> &Addresses {
        &self.addresses[usize::from(second)]
    }

    /// Builds a packet and sends it. `block`: a queue pair that does not get its own packets to a group.
    #[expect(clippy::too_many_arguments, reason = "what a packet is made of")]
    fn send(
        &mut self,
        around: &mut Around<'_, '_>,
        path: &Path,
        source_port: u16,
        bth: BthRepr,
        extension: &Extension,
        bytes: usize,
        block: Option<u32>,
        fill: impl FnOnce(&Bus<'_>, &Keys, &mut [u8]) -> Result<(), Failure>,
    ) -> Result<Sent, Failure> {
        let Some(from) = self.addresses(path.second).get(path.own).copied() else {
            return Err(Failure::ADDRESS);
        };
        // IPv4 speaks to IPv4.
        if path::ipv4(&from.gid).is_some() != path::ipv4(&path.gid).is_some() {
            return Err(Failure::ADDRESS);
        }
        let group = is_group(&path.gid);
        let second = path.second;
        let own = !group && self.is_own(around.port, second, &path.mac);
        let comes_back = own || group && self.groups.iter().any(|(gid, _)| *gid == path.gid);
        if comes_back && self.looped.len() >= LOOPED_MAX || !own && !around.is_ready(second) {
            return Ok(Sent::Busy);
        }
        let (bus, keys) = (&*around.bus, &*around.keys);
        let length =
            packet::build(&mut self.frame, &from, path, source_port, bth, extension, bytes, |room| {
                fill(bus, keys, room)
            })?;
        let frame = &self.frame[..length];
        if comes_back {
            let frame = self.spare.copy(frame);
            self.looped.push_back(Looped { frame, block, second });
        }
        if !own && !around.send(second, frame) {
            return Ok(Sent::Busy);
        }
        around.bus.ledger.add_sent(1);
        Ok(Sent::Yes)
    }
}

/// Hands a packet that came to a card's second function to the first, as far as that wants it; whether it alone does.
pub(crate) fn hand_over(joint: &Joint, frame: &[u8], headers: &Headers) -> bool {
    let Some(packet) = Incoming::parse(frame, headers) else { return false };
    if is_group(&packet.destination) {
        // Others may listen to the group too.
        joint.hand_over(frame);
        return false;
    }
    let mac = frame.first_chunk().copied().unwrap_or_default();
    joint.hand_over_to(frame, &packet.destination, &mac, packet.vlan)
}

/// All of RDMA.
#[derive(Debug)]
pub(crate) struct Rdma {
    pub(crate) pairs: Table<Qp>,
    desk: Desk,
    /// Queue pairs that stand for number 1, each at its port; of those at one port the one made last does.
    management: Vec<u32>,
    /// Queue pairs with work, in turn; those in error, whose entries are flushed; timers, by time.
    active: VecDeque<u32>,
    broken: Vec<u32>,
    timers: BTreeSet<(u64, u32)>,
}

impl Rdma {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            pairs: Table::new(FIRST, limit),
            desk: Desk {
                addresses: Default::default(),
                groups: Vec::new(),
                looped: VecDeque::new(),
                spare: Spare::default(),
                frame: Box::new([0; FRAME_MAX]),
                session: 0,
            },
            management: Vec::new(),
            active: VecDeque::new(),
            broken: Vec::new(),
            timers: BTreeSet::new(),
        }
    }

    /// The addresses of the port, or of the second one.
    pub(crate) fn addresses(&mut self, second: bool) -> &mut Addresses {
        &mut self.desk.addresses[usize::from(second)]
    }

    pub(crate) fn groups(&mut self) -> &mut Vec<([u8; 16], u32)> {
        &mut self.desk.groups
    }

    /// A new queue pair's number.
    pub(crate) fn insert(&mut self, owner: u16, pair: Qp) -> Option<u32> {
        let service = pair.service;
        let number = self.pairs.insert(owner, pair)?;
        if let Some(pair) = self.pairs.get_mut(number) {
            pair.number = number;
            if let qp::Source::Own(ring) = &mut pair.source {
                ring.number = number;
            }
        }
        if service == Service::Management {
            self.management.push(number);
        }
        Some(number)
    }

    /// A queue pair ends.
    pub(crate) fn remove(&mut self, number: u32) {
        self.pairs.remove(number);
        self.desk.groups.retain(|(_, member)| *member != number);
        self.management.retain(|other| *other != number);
    }

    /// All of a user context end.
    pub(crate) fn forget(&mut self, owner: u16) {
        for number in self.pairs.owned_by(owner) {
            self.remove(number);
        }
    }

    /// A queue pair forgets all that it was.
    pub(crate) fn reset_pair(&mut self, number: u32) {
        if let Some(pair) = self.pairs.get_mut(number) {
            pair.reset();
        }
    }

    /// A queue pair is in error; what is posted is flushed.
    pub(crate) fn fail_pair(&mut self, number: u32) {
        if let Some(pair) = self.pairs.get_mut(number) {
            pair.state = State::Error;
        }
        self.wake(number);
    }

    /// The host answered queue pairs that wait for a page.
    pub(crate) fn paged(&mut self, pairs: &[u32], absent: Absent, refused: bool) {
        for &number in pairs {
            let Some(pair) = self.pairs.get_mut(number) else { continue };
            if pair.paging.answered(absent, refused) && pair.state.receives() {
                pair.responder.ask_again();
            }
            self.wake(number);
        }
    }

    /// There may be work on a queue pair.
    pub(crate) fn wake(&mut self, number: u32) {
        if !self.active.contains(&number) {
            self.active.push_back(number);
        }
    }

    /// Whether a timer runs, or a packet is on its way back.
    pub(crate) fn is_pending(&self) -> bool {
        !self.timers.is_empty() || !self.desk.looped.is_empty() || !self.active.is_empty()
    }

    /// A doorbell of a queue pair: as [`SendRing::rung`](crate::device::ring::send::SendRing::rung).
    pub(crate) fn doorbell(
        &mut self,
        bus: &Bus<'_>,
        number: u32,
        value: [u8; 8],
        came: Came,
        strict: bool,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        let Some(pair) = self.pairs.get_mut(number) else { return Ok(()) };
        if matches!(pair.state, State::Reset | State::Init) {
            return Err(Violation::NotReady { queue: number });
        }
        let Some(ring) = &mut pair.send else { return Err(Violation::NotReady { queue: number }) };
        ring.rung(bus, number, value, came, strict, bytes)?;
        self.wake(number);
        Ok(())
    }

    /// A doorbell broke the rules: the queue pair fails.
    pub(crate) fn break_down(&mut self, around: &mut Around<'_, '_>, number: u32) {
        if let Some(pair) = self.pairs.get_mut(number)
            && matches!(pair.state, State::Send | State::Draining)
        {
            pair.state = State::Error;
            let kind = pollux_mlx5_abi::eqe::event::WQ_INVAL_REQ_ERROR;
            let pair_kind = pollux_mlx5_abi::eqe::queue_kind::QP;
            around.events.queue_error(around.bus, kind, pair_kind, number);
            self.wake(number);
        }
    }

    /// One turn; how much was done.
    pub(crate) fn run(&mut self, around: &mut Around<'_, '_>, budget: usize) -> usize {
        let mut done = 0;
        while let Some((due, number)) = self.timers.first().copied().filter(|(due, _)| *due <= around.bus.now)
        {
            self.timers.remove(&(due, number));
            if let Some(pair) = self.pairs.get_mut(number).filter(|pair| pair.timed == Some(due)) {
                pair.timed = None;
                requester::time(pair, around);
                self.wake(number);
            }
        }
        for _ in 0..self.active.len() {
            if done >= budget {
                break;
            }
            let Some(number) = self.active.pop_front() else { break };
            let turn = self.turn(around, number, budget - done);
            done += turn.done;
            if turn.more {
                self.active.push_back(number);
            }
        }
        for index in (0..self.broken.len()).rev() {
            let number = self.broken[index];
            let Some(pair) = self.pairs.get_mut(number).filter(|pair| pair.is_broken()) else {
                self.broken.swap_remove(index);
                continue;
            };
            done += pair.flush(around, budget);
        }
        let mut looped = 0;
        while looped < budget
            && let Some(Looped { frame, block, second }) = self.desk.looped.pop_front()
        {
            let headers = Headers::parse(&frame, 0);
            if let Some(packet) = Incoming::parse(&frame, &headers) {
                self.take(around, &packet, second, block);
            }
            self.desk.spare.give_back(frame);
            looped += 1;
        }
        done + looped
    }

    /// One queue pair's turn.
    fn turn(&mut self, around: &mut Around<'_, '_>, number: u32, budget: usize) -> Turn {
        let Some(pair) = self.pairs.get_mut(number) else { return Turn::default() };
        if pair.state == State::Reset {
            return Turn::default();
        }
        if pair.service == Service::Target {
            return dynamic::target::run(pair, around, &mut self.desk, budget);
        }
        let told = responder::run(pair, around, &mut self.desk, budget);
        let asked = requester::run(pair, around, &mut self.desk, budget.saturating_sub(told.done));
        let done = told.done + asked.done;
        self.note(number);
        Turn { done, more: told.more || asked.more }
    }

    /// Notes what a queue pair waits for.
    fn note(&mut self, number: u32) {
        let Some(pair) = self.pairs.get_mut(number) else { return };
        let due = if pair.state.sends() { pair.requester.due() } else { None };
        if due != pair.timed {
            if let Some(old) = pair.timed.take() {
                self.timers.remove(&(old, number));
            }
            if let Some(due) = due {
                self.timers.insert((due, number));
            }
            pair.timed = due;
        }
        if pair.is_broken() && !self.broken.contains(&number) {
            self.broken.push(number);
        }
    }

    /// A frame came from the wire of the port, or of the second one. True when it is RoCE to one of the port's addresses, whatever
    /// became of it.
    pub(crate) fn receive(
        &mut self,
        around: &mut Around<'_, '_>,
        frame: &[u8],
        headers: &Headers,
        second: bool,
    ) -> bool {
        if self.desk.addresses(second).is_empty() {
            return false;
        }
        let Some(packet) = Incoming::parse(frame, headers) else { return false };
        if is_group(&packet.destination) {
            // Others may listen to the group too.
            if self.desk.groups.iter().any(|(gid, _)| *gid == packet.destination) {
                self.take(around, &packet, second, None);
            }
            return false;
        }
        let ours = frame.first_chunk::<6>().is_some_and(|mac| self.desk.is_own(around.port, second, mac));
        if !ours || !self.desk.addresses(second).has(&packet.destination, packet.vlan) {
            return false;
        }
        self.take(around, &packet, second, None);
        true
    }

    /// A packet for this device, at its second port or not. `block`: of one to a group, a queue pair that is not to have it.
    fn take(&mut self, around: &mut Around<'_, '_>, packet: &Incoming<'_>, second: bool, block: Option<u32>) {
        if !packet.sound {
            around.port.counters.roce_damaged += 1;
            return;
        }
        // Membership aside, the partition is one.
        if packet.bth.partition & 0x7fff != packet::PARTITION & 0x7fff {
            return;
        }
        around.bus.ledger.add_received(1);
        if packet.bth.qp == GROUP_PAIR {
            for index in 0..self.desk.groups.len() {
                let (gid, member) = self.desk.groups[index];
                if gid == packet.destination && Some(member) != block {
                    self.give(around, packet, second, member);
                }
            }
            return;
        }
        let number = match packet.bth.qp {
            MANAGEMENT_PAIR => self.management_at(second).unwrap_or(MANAGEMENT_PAIR),
            number => number,
        };
        self.give(around, packet, second, number);
    }

    fn management_at(&self, second: bool) -> Option<u32> {
        // One that was only made has no port yet.
        let is_there = |number: u32| {
            let pair = self.pairs.get(number).filter(|pair| pair.state != State::Reset);
            pair.is_some_and(|pair| pair.path.second == second)
        };
        self.management.iter().rev().copied().find(|number| is_there(*number))
    }

    /// A packet for a queue pair, which hears what comes to its port.
    fn give(&mut self, around: &mut Around<'_, '_>, packet: &Incoming<'_>, second: bool, number: u32) {
        let Some(pair) = self.pairs.get_mut(number).filter(|pair| pair.path.second == second) else { return };
        let transport = packet.bth.opcode & operation::TRANSPORT;
        let fits = match pair.service {
            Service::Reliable => transport == operation::RC,
            Service::Unreliable => transport == operation::UC,
            Service::Datagram | Service::Management => transport == operation::UD,
            Service::Xrc => transport == operation::XRC,
            Service::Initiator | Service::Target => transport == dynamic::TRANSPORT,
            Service::Keys => false,
        };
        if !fits || !pair.state.receives() {
            return;
        }
        if pair.service.is_datagram() {
            responder::datagram(pair, around, packet);
        } else if pair.service == Service::Target {
            // It takes requests of anybody who knows its key, at its address.
            if pair.state != State::Receive
                || !self.desk.addresses(second).is_at(pair.path.own, &packet.destination)
            {
                return;
            }
            dynamic::target::request(pair, around, packet);
        } else {
            // Connections hear their peer alone.
            if packet.source != pair.path.gid
                || !self.desk.addresses(second).is_at(pair.path.own, &packet.destination)
            {
                return;
            }
            let class = operation::shape(packet.bth.opcode).map(|shape| shape.class);
            match class {
                Some(Class::ReadResponse | Class::Acknowledge) => {
                    requester::answer(pair, around, packet);
                }
                _ if pair.service == Service::Initiator => return,
                _ => responder::request(pair, around, packet),
            }
        }
        self.note(number);
        self.wake(number);
    }
}
