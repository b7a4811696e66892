//! What is inside: all objects, and one turn of the work on them.

mod order;
mod shared;

use std::collections::BTreeMap;

use pollux_mlx5_abi::doorbell::uar;
use pollux_mlx5_abi::wqe::BLOCK_BYTES;

use super::blue_flame::Turns;
use super::bus::Bus;
use super::function::Function;
use super::joint::{Joint, Side};
use super::lent::Lent;
use super::object::{Tis, Umem};
use super::ring::send::Came;
use super::table::Table;
use super::tap::Tap;
use super::uar::{FIRST_UAR, UARS};
use super::violation::{Violation, Violations};
use crate::card::Traits;
use crate::completion::Completions;
use crate::event::Events;
use crate::frame::{Headers, Tunnels};
use crate::ledger::Crossing;
use crate::memory::Bar;
use crate::memory_keys::Keys;
use crate::port::{HEADER_BYTES_MAX, MTU_MAX, Origin, Port};
use crate::rdma::{self, Rdma};
use crate::receive::join::{Merge, Offer};
use crate::receive::{self, Arrival, Checked, Receivers, Taken};
use crate::send::{self, Senders};
use crate::steering::{Dispatch, Steering, Way};
use crate::time::TICKS_PER_US;
use crate::wire::Wire;
pub use order::Fence;
use order::Order;

/// All of the device but its registers.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) traits: Traits,
    pub(crate) function: Function,
    pub(crate) strict: bool,
    pub(crate) uars: Table<()>,
    pub(crate) domains: Table<()>,
    pub(crate) transport_domains: Table<()>,
    /// Numbers that no queue pair gets.
    pub(crate) reserved_pairs: Table<()>,
    pub(crate) xrc_domains: Table<()>,
    pub(crate) users: Table<u32>,
    pub(crate) umems: Table<Umem>,
    pub(crate) tises: Table<Tis>,
    pub(crate) keys: Keys,
    pub(crate) events: Events,
    pub(crate) completions: Completions,
    pub(crate) senders: Senders,
    pub(crate) receivers: Receivers,
    pub(crate) steering: Steering,
    pub(crate) rdma: Rdma,
    pub(crate) lent: Lent,
    pub(crate) port: Port,
    /// What the card looks into.
    pub(crate) tunnels: Tunnels,
    pub(crate) tap: Tap,
    /// The way to the other function of the card.
    pub(crate) joint: Option<Joint>,
    pub(crate) violations: Violations,
    pub(crate) turns: Turns,
    /// The doorbell that was found in its register last: page, offset, value.
    found: Option<(usize, usize, [u8; 8])>,
    pub(crate) order: Order,
    /// Where a frame from the wire stands.
    room: Box<[u8]>,
    /// Length of a frame there that found no buffer and waits for one, on a wire that waits too.
    held: Option<usize>,
    /// When the last command came, and whether frames that a wire has stored flow.
    pub(crate) last_command: u64,
    begun: bool,
}

/// Ticks without a command after which a driver is taken to have set the device up: 20 ms.
const SET_UP_TICKS: u64 = 20_000 * TICKS_PER_US;

/// Numbers that no queue pair gets: the first, far behind what queue pairs get, and how many there are at a time.
const RESERVED_PAIRS: (u32, usize) = (0x80_0000, 1 << 12);

/// What became of a frame that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrived {
    /// A queue has it.
    Taken,
    /// Nobody wanted it.
    Discarded,
    /// No queue that wants it has a buffer; it was not counted.
    NoBuffer,
}

impl Core {
    /// `caps`: the capabilities that the firmware tells, by kind.
    pub(crate) fn new(
        traits: Traits,
        caps: BTreeMap<u16, Vec<u8>>,
        mac: [u8; 6],
        mtu: u16,
        strict: bool,
        wire: Box<dyn Wire>,
        joint: Option<Joint>,
    ) -> Self {
        Self {
            function: Function::new(&traits, caps, mac, joint.as_ref()),
            strict,
            uars: Table::new(FIRST_UAR, traits.uars.min(UARS)),
            domains: Table::new(0x10, 1 << 12),
            transport_domains: Table::new(0x10, 1 << 12),
            reserved_pairs: Table::new(RESERVED_PAIRS.0, RESERVED_PAIRS.1),
            xrc_domains: Table::new(1, 1 << 12),
            users: Table::new(1, 1 << 10),
            umems: Table::new(1, 1 << 14),
            tises: Table::new(0x20, 1 << 14),
            keys: Keys::new(1 << 16),
            events: Events::new(),
            completions: Completions::new(1 << 14),
            senders: Senders::new(1 << 14),
            receivers: Receivers::new(1 << 14),
            steering: Steering::new(),
            lent: Lent::default(),
            rdma: Rdma::new(1 << 14),
            port: Port::new(wire, mac, mtu, &traits),
            tunnels: Tunnels::new(&traits),
            tap: Tap::default(),
            joint,
            violations: Violations::default(),
            turns: Turns::default(),
            found: None,
            order: Order::default(),
            room: vec![0; usize::from(MTU_MAX) + HEADER_BYTES_MAX].into_boxed_slice(),
            held: None,
            last_command: 0,
            begun: false,
            traits,
        }
    }

    /// Forgets all that commands made. What was done against the rules stays.
    pub(crate) fn reset(&mut self) {
        let port = &mut self.port;
        let (permanent, mtu, counters) = (port.permanent, port.mtu, port.counters);
        let own = port.loopback.counted;
        let (wire, carrier) = port.take_wire();
        let tap = std::mem::take(&mut self.tap);
        let violations = std::mem::take(&mut self.violations);
        let (base, visibility) = (self.lent.base, self.completions.visibility());
        let caps = std::mem::take(&mut self.function.caps);
        let joint = self.joint.take();
        if let Some(joint) = &joint {
            joint.reset();
        }
        *self = Self::new(self.traits, caps, permanent, mtu, self.strict, wire, joint);
        self.port.counters = counters;
        self.port.loopback.counted = own;
        self.port.carrier = carrier;
        self.tap = tap;
        self.violations = violations;
        self.lent.base = base;
        self.completions.keep_visibility(visibility);
    }

    /// The plan of faults holds the link down, or lets go of it.
    pub(crate) fn flap(&mut self, down: bool) {
        self.port.held_down = down;
    }

    /// One turn.
    pub(crate) fn step(&mut self, bus: &mut Bus<'_>, bar: &Bar, budget: usize) -> bool {
        let mut some = false;
        self.port.copies = self.steering.root(Way::CopyOut).is_some();
        self.check_fresh(bus);
        self.check_held(bus);
        some |= self.port.poll();
        let up = self.port.is_up();
        if up != self.port.told_up {
            self.port.told_up = up;
            self.events.port(bus, up);
            some = true;
        }
        some |= self.scan(bus, bar);
        some |= self.tap.settle(&mut self.port);
        some |= self.carry(bus);
        if self.senders.is_active() {
            let Self { senders, keys, completions, events, port, tunnels, steering, .. } = self;
            let mut around = send::Around { bus, keys, completions, events, port, tunnels, steering };
            some |= senders.run(&mut around, budget) > 0;
        }
        some |= self.receive_own(bus, budget) > 0;
        some |= self.receive(bus, budget) > 0;
        let waits = self.port.waits();
        let Self { receivers, keys, completions, events, .. } = self;
        some |= receivers.deliver_due(&mut receive::Around { bus, keys, completions, events }, waits);
        some |= self.forward(bus, budget) > 0;
        some |= self.with_rdma(bus, |rdma, around| rdma.run(around, budget)) > 0;
        self.copy_sent(bus);
        let Self { receivers, keys, completions, events, .. } = self;
        some |= receivers.settle(&mut receive::Around { bus, keys, completions, events }, budget);
        completions.settle(bus, events);
        some
    }

    /// Looks at the registers of all pages that are given out.
    pub(super) fn scan(&mut self, bus: &mut Bus<'_>, bar: &Bar) -> bool {
        let mut some = false;
        for number in self.uars.numbers() {
            if self.uars.get(number).is_none() {
                continue;
            }
            let page = (number - FIRST_UAR) as usize + 1;
            for offset in (uar::BLUE_FLAME..uar::PAGE_BYTES).step_by(self.traits.buffer_bytes()) {
                if let Some(value) = bar.take64(page, offset) {
                    bus.ledger.add(Crossing::Doorbell, 8);
                    self.found = Some((page, offset, value));
                    if let Some(seen) = bus.fast_path {
                        seen.ring(number, offset, &value);
                    }
                    self.ring_send(bus, number, value, Came::Found, &[]);
                    self.catch_up_sends(bus, number, u32::from_be_bytes([0, value[4], value[5], value[6]]));
                    some = true;
                }
            }
            if let Some(value) = bar.take64(page, uar::CQ_ARM) {
                bus.ledger.add(Crossing::Arm, 8);
                if let Some(seen) = bus.fast_path {
                    seen.ring(number, uar::CQ_ARM, &value);
                }
                self.ring_arm(bus, number, value, false);
                self.catch_up_arms(bus, number, u32::from_be_bytes([0, value[5], value[6], value[7]]));
                some = true;
            }
            for (offset, arm) in [(uar::EQ_ARM, true), (uar::EQ_CONSUMER, false)] {
                if let Some(value) = bar.take32(page, offset) {
                    bus.ledger.add(Crossing::Arm, 4);
                    self.events.consumed(bus, number, value, arm);
                    some = true;
                }
            }
        }
        some
    }

    /// A store that was seen as it was made.
    pub(crate) fn store(&mut self, bus: &mut Bus<'_>, bar: &Bar, number: u32, offset: usize, bytes: &[u8]) {
        if self.uars.get(number).is_none() {
            return;
        }
        if let Some(seen) = bus.fast_path {
            seen.ring(number, offset, bytes);
        }
        let page = (number - FIRST_UAR) as usize + 1;
        if offset >= uar::BLUE_FLAME
            && offset.is_multiple_of(self.traits.buffer_bytes())
            && let Some(value) = bytes.first_chunk::<8>()
        {
            let is_taken = bar.take64(page, offset).is_none();
            let blue_flame = bytes.len() >= BLOCK_BYTES;
            // A command of another thread looks at the registers, and may have found it before it was told of.
            let was_found = is_taken && self.found.take() == Some((page, offset, *value));
            if blue_flame || !was_found {
                bus.ledger
                    .add(if blue_flame { Crossing::BlueFlame } else { Crossing::Doorbell }, bytes.len());
            }
            self.take_turns(bus, number, offset, *value, blue_flame);
            let came = if was_found { Came::SeenLate } else { Came::Seen };
            self.ring_send(bus, number, *value, came, if blue_flame { bytes } else { &[] });
        } else if offset > uar::BLUE_FLAME && bytes.len() == BLOCK_BYTES {
            // More of an entry that is copied block by block.
            bus.ledger.add(Crossing::BlueFlame, bytes.len());
        } else if offset == uar::CQ_ARM
            && let Some(value) = bytes.first_chunk::<8>()
        {
            bar.take64(page, offset);
            bus.ledger.add(Crossing::Arm, 8);
            self.ring_arm(bus, number, *value, true);
        } else if let (uar::EQ_ARM | uar::EQ_CONSUMER, Some(value)) = (offset, bytes.first_chunk::<4>()) {
            bar.take32(page, offset);
            bus.ledger.add(Crossing::Arm, 4);
            self.events.consumed(bus, number, *value, offset == uar::EQ_ARM);
        }
    }

    fn with_rdma<T>(
        &mut self,
        bus: &mut Bus<'_>,
        act: impl FnOnce(&mut Rdma, &mut rdma::Around<'_, '_>) -> T,
    ) -> T {
        let Self { rdma, receivers, keys, completions, events, port, joint, .. } = self;
        let Receivers { pools, counters, .. } = receivers;
        let second = joint.as_ref().filter(|joint| joint.side == Side::First);
        act(rdma, &mut rdma::Around { bus, keys, completions, events, port, second, pools, counters })
    }

    /// What goes over the joint: frames of the other function's for this one's wire, packets from the other's wire.
    fn carry(&mut self, bus: &mut Bus<'_>) -> bool {
        let Some(side) = self.joint.as_ref().map(|joint| joint.side) else { return false };
        let mut some = false;
        while let Some(frame) = self.next_carried(side) {
            match side {
                Side::First => {
                    let headers = Headers::parse(&frame, 0);
                    self.with_rdma(bus, |rdma, around| rdma.receive(around, &frame, &headers, true));
                }
                Side::Second => {
                    self.port.send(&frame, Origin::Other);
                }
            }
            if let Some(joint) = &self.joint {
                joint.give_back(frame);
            }
            some = true;
        }
        some
    }

    fn next_carried(&mut self, side: Side) -> Option<Vec<u8>> {
        let joint = self.joint.as_ref()?;
        match side {
            Side::First => joint.take_received(),
            Side::Second if self.port.is_ready() => joint.take_sent(),
            Side::Second => None,
        }
    }

    /// The buffers of a BlueFlame register take turns; a queue that uses one twice in a row fails.
    fn take_turns(&mut self, bus: &mut Bus<'_>, page: u32, offset: usize, value: [u8; 8], copied: bool) {
        let queue = u32::from_be_bytes([0, value[4], value[5], value[6]]);
        let register = (offset - uar::BLUE_FLAME) / (2 * self.traits.buffer_bytes());
        let Self { turns, rdma, senders, .. } = self;
        let lives = |queue| rdma.pairs.get(queue).is_some() || senders.queues.get(queue).is_some();
        if !turns.ring((page, register), offset, copied, queue, lives) && self.strict {
            self.violate(bus, queue, Violation::Buffer { queue, offset });
        }
    }

    /// A rule was broken by a queue that sends, which fails.
    pub(super) fn violate(&mut self, bus: &mut Bus<'_>, number: u32, violation: Violation) {
        self.violations.note(violation);
        if self.rdma.pairs.get(number).is_some() {
            self.with_rdma(bus, |rdma, around| rdma.break_down(around, number));
            return;
        }
        let Self { senders, keys, completions, events, port, tunnels, steering, .. } = self;
        if let Some(queue) = senders.queues.get_mut(number) {
            queue.break_down(&mut send::Around { bus, keys, completions, events, port, tunnels, steering });
        }
    }

    fn ring_send(&mut self, bus: &mut Bus<'_>, page: u32, value: [u8; 8], came: Came, bytes: &[u8]) {
        let number = u32::from_be_bytes([0, value[4], value[5], value[6]]);
        let strict = self.strict;
        if self.rdma.pairs.get(number).is_some_and(|pair| pair.uar == page) {
            if let Err(violation) = self.rdma.doorbell(bus, number, value, came, strict, bytes) {
                self.violations.note(violation);
                self.with_rdma(bus, |rdma, around| rdma.break_down(around, number));
            }
            return;
        }
        let Self { senders, keys, completions, events, port, tunnels, steering, violations, .. } = self;
        let Some(queue) = senders.queues.get_mut(number).filter(|queue| queue.uar == page) else {
            violations.note(Violation::Unknown { uar: page, rung: value });
            return;
        };
        let mut around = send::Around { bus, keys, completions, events, port, tunnels, steering };
        if let Err(violation) = queue.doorbell(&mut around, value, came, self.strict, bytes) {
            violations.note(violation);
            queue.break_down(&mut around);
        }
        if queue.has_work() {
            senders.wake(number);
        }
    }

    fn ring_arm(&mut self, bus: &mut Bus<'_>, page: u32, value: [u8; 8], exact: bool) {
        let word = u32::from_be_bytes([value[0], value[1], value[2], value[3]]);
        let number = u32::from_be_bytes([0, value[5], value[6], value[7]]);
        let Self { completions, events, violations, strict, .. } = self;
        let armed = match completions.queues.get_mut(number).filter(|queue| queue.uar == page) {
            // Stores of guests are posted, and meet the record of one behind them, which arms. Source: QEMU `hw/vfio-user/pci.c`,
            // `x-no-posted-writes`.
            Some(queue) => queue.arm(bus, events, number, word) || !exact || !*strict,
            None => false,
        };
        if !armed {
            violations.note(Violation::Arm { queue: number });
        }
    }

    /// Takes frames from the wire. One that finds no buffer is dropped, or kept until there is one where the wire's other
    /// end can be made to wait. On a wire without end a frame that nobody takes ends the turn and is no work, so that a
    /// device that nobody uses comes to rest.
    fn receive(&mut self, bus: &mut Bus<'_>, budget: usize) -> usize {
        let mut room = std::mem::take(&mut self.room);
        let count = self.receive_into(bus, budget, &mut room);
        self.room = room;
        count
    }

    fn receive_into(&mut self, bus: &mut Bus<'_>, budget: usize, room: &mut [u8]) -> usize {
        let (waits, endless) = (self.port.waits(), self.port.is_endless());
        if !self.begun {
            let set_up = [Way::In, Way::CopyIn].iter().any(|way| self.steering.root(*way).is_some())
                && bus.now.saturating_sub(self.last_command) >= SET_UP_TICKS;
            self.begun = set_up || !self.port.is_stored();
            if !self.begun {
                return 0;
            }
        }
        let mut count = 0;
        while count < budget {
            let bytes = match self.held.take() {
                Some(bytes) => bytes,
                None => match self.port.receive(room) {
                    None => break,
                    Some(None) if endless => break,
                    Some(None) => {
                        count += 1;
                        continue;
                    }
                    Some(Some(bytes)) => bytes,
                },
            };
            match self.arrive(bus, &room[..bytes], waits, None) {
                Arrived::NoBuffer => {
                    self.held = Some(bytes);
                    break;
                }
                arrived => {
                    let copied = self.steering.root(Way::CopyIn).is_some()
                        && self.copy(bus, Way::CopyIn, &room[..bytes]);
                    if arrived == Arrived::Discarded && !copied && endless {
                        break;
                    }
                    count += 1;
                }
            }
        }
        count
    }

    /// Hands a copy of a frame that was received, or sent, to sniffers; whether one was there. One that finds no buffer is lost, and so is one
    /// for a hairpin queue, which would send it again.
    #[cold]
    fn copy(&mut self, bus: &mut Bus<'_>, way: Way, frame: &[u8]) -> bool {
        let headers = Headers::parse(frame, 0);
        self.steering.classify(way, frame, &headers, &self.tunnels);
        let (Steering { deliveries, tirs, .. }, receivers) = (&mut self.steering, &self.receivers);
        deliveries.retain(|delivery| {
            let dispatch = tirs.get(delivery.tir).map(|tir| &tir.dispatch);
            !matches!(dispatch, Some(Dispatch::Queue(queue)) if receivers.is_hairpin(*queue))
        });
        let (taken, _) = self.deliver(bus, frame, &headers, false, None);
        self.steering.count(frame.len(), &mut self.port.counters);
        taken
    }

    /// The same with all that was sent in this step.
    fn copy_sent(&mut self, bus: &mut Bus<'_>) {
        for frame in self.port.take_sent() {
            self.copy(bus, Way::CopyOut, &frame);
        }
    }

    /// Takes frames that come back to the function that sent them. Nobody waits for a buffer: one that finds none is dropped.
    fn receive_own(&mut self, bus: &mut Bus<'_>, budget: usize) -> usize {
        let mut count = 0;
        while count < budget
            && let Some((frame, domain)) = self.port.loopback.take()
        {
            self.arrive(bus, &frame, false, Some(domain));
            self.port.loopback.give_back(frame);
            count += 1;
        }
        count
    }

    /// Sends what waits between hairpin queues.
    fn forward(&mut self, bus: &mut Bus<'_>, budget: usize) -> usize {
        if !self.receivers.has_forwards() {
            return 0;
        }
        let Self { receivers, senders, keys, completions, events, port, tunnels, steering, .. } = self;
        let mut around = send::Around { bus, keys, completions, events, port, tunnels, steering };
        receivers.forward(senders, &mut around, budget)
    }

    /// Hands RoCE to the other function, where this one's port is that one's second; whether nobody else is to have it.
    #[inline]
    fn hand_over(&self, frame: &[u8], headers: &Headers) -> bool {
        match &self.joint {
            Some(joint) if joint.side == Side::Second => rdma::hand_over(joint, frame, headers),
            _ => false,
        }
    }

    /// A frame was let in; `domain` is the transport domain of its sender if that is of this function.
    fn arrive(&mut self, bus: &mut Bus<'_>, frame: &[u8], waits: bool, domain: Option<u32>) -> Arrived {
        let headers = Headers::parse(frame, 0);
        if self.with_rdma(bus, |rdma, around| rdma.receive(around, frame, &headers, false))
            || domain.is_none() && self.hand_over(frame, &headers)
        {
            return Arrived::Taken;
        }
        self.steering.classify(Way::In, frame, &headers, &self.tunnels);
        let (taken, lacks) = self.deliver(bus, frame, &headers, waits, domain);
        if lacks {
            return Arrived::NoBuffer;
        }
        self.steering.count(frame.len(), &mut self.port.counters);
        let heard = domain.is_none() && self.steering.came_through && self.tap.see(frame);
        if !taken && !heard {
            // What goes out to a group is for others first.
            self.port.counters.steering_discards += u64::from(domain.is_none());
            return Arrived::Discarded;
        }
        Arrived::Taken
    }

    /// Hands a frame that was classified to the queues that are to have it: whether one took it, and whether it waits for a buffer.
    #[inline]
    fn deliver(
        &mut self,
        bus: &mut Bus<'_>,
        frame: &[u8],
        headers: &Headers,
        waits: bool,
        domain: Option<u32>,
    ) -> (bool, bool) {
        let Self { steering, receivers, keys, completions, events, tunnels, .. } = self;
        let mut around = receive::Around { bus, keys, completions, events };
        let (mut taken, mut lacks) = (false, false);
        let mut plain = None;
        for index in 0..steering.deliveries.len() {
            let delivery = &steering.deliveries[index];
            let Some(tir) = steering.tirs.get(delivery.tir) else { continue };
            if domain.is_some_and(|domain| tir.refuses(domain, frame)) {
                continue;
            }
            let changed = delivery.changed.as_deref().map(|frame| (frame, Headers::parse(frame, 0)));
            let (frame, headers) =
                changed.as_ref().map_or((frame, headers), |(frame, headers)| (*frame, headers));
            let headers = *headers;
            let inner = if tir.tunneled { tunnels.inside(frame, &headers) } else { None };
            let checked = match &inner {
                Some(inner) => Checked::of(frame, &headers, Some(inner)),
                None if changed.is_some() => Checked::of(frame, &headers, None),
                None => *plain.get_or_insert_with(|| Checked::of(frame, &headers, None)),
            };
            let hash = tir.hash(frame, &headers, inner.as_ref());
            let queue = match tir.dispatch {
                Dispatch::Queue(queue) => queue,
                Dispatch::Table(table) => {
                    let Some(table) = steering.queue_tables.get(table) else { continue };
                    let Some(slot) = (hash.value as usize).checked_rem(table.queues.len()) else { continue };
                    table.queues[slot]
                }
            };
            let arrival = Arrival {
                frame,
                headers: &headers,
                checked: &checked,
                tag: delivery.tag,
                hash: hash.value,
                hash_kind: hash.kind,
                joined: None,
            };
            if let Some(merge) = tir.merge
                && !receivers.is_hairpin(queue)
            {
                match keep(receivers, &mut around, (delivery.tir, queue), &arrival, &merge, waits) {
                    Kept::Yes => {
                        taken = true;
                        continue;
                    }
                    Kept::Waits if !taken && steering.deliveries.len() == 1 => {
                        lacks = true;
                        continue;
                    }
                    Kept::Waits | Kept::No => {}
                }
            }
            match receivers.deliver(&mut around, queue, &arrival) {
                Taken::Yes => taken = true,
                Taken::NoBuffer if waits && !taken && steering.deliveries.len() == 1 => lacks = true,
                Taken::NoBuffer => {
                    receivers.out_of_buffer(queue);
                    taken = true;
                }
                Taken::No => {}
            }
        }
        (taken, lacks)
    }
}

/// Whether a frame was joined to others.
enum Kept {
    Yes,
    No,
    /// What came before it finds no buffer, and it waits behind that.
    Waits,
}

/// Offers a frame for a queue of a TIR that joins.
fn keep(
    receivers: &mut Receivers,
    around: &mut receive::Around<'_, '_>,
    (tir, queue): (u32, u32),
    arrival: &Arrival<'_>,
    merge: &Merge,
    waits: bool,
) -> Kept {
    loop {
        match receivers.joins.offer(around.bus.now, tir, queue, arrival, merge) {
            Offer::Passes => return Kept::No,
            // One that a push ends is delivered when the frames of this step are in.
            Offer::Kept => return Kept::Yes,
            Offer::After(at) => {
                if !receivers.deliver_session(around, at, waits) {
                    return Kept::Waits;
                }
            }
        }
    }
}
