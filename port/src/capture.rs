//! Captures of what passes through the queues of running ports.
//!
//! ```text
//!   control thread: Captures::attach ─► published taps, and the gate of each port counts a change
//!   lcore: the next burst takes the gate's slow path, and from then on
//!          rx: driver, taps, callbacks          tx: callbacks, taps, driver, what it took is shown to the readers
//! ```
//!
//! Without a capture a burst costs what it cost before: what it looks at is the word that says whether there is any callback, and the
//! gate. A packet is captured as the driver gave it, or as the driver is given it: checksums and segmentation that are left to the device
//! are not done yet. VLAN tags that the device took off, or is to put in, are put in.

mod frame;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_capture::{Interface, Passage, Reserved, Writer};
use pollux_eal::clock::Clock;
use pollux_eal::rcu::{Publisher, Reader, published};
use pollux_mempool::{Burst, Mbuf};

use crate::{Gate, PortId, QueueId};
use frame::Whole;

/// Captures of one port at a time.
pub const CAPTURES_MAX: usize = pollux_capture::CLIENTS_MAX;

/// One capture at one port: where its frames go, and which.
#[derive(Debug)]
pub struct Tap {
    /// Whose queues, all of them, both ways.
    pub port: PortId,
    /// What is kept of what passes there.
    pub interface: Interface,
    /// Where it goes.
    pub writer: Arc<Writer>,
    /// Tells when.
    pub clock: Clock,
}

type Taps = Vec<Arc<Tap>>;

/// The captures of the ports of one [`Ports`](crate::Ports). Clones are the same.
#[derive(Clone)]
pub struct Captures(Arc<Mutex<State>>);

struct State {
    publisher: Publisher<Taps>,
    /// Of the ports, by their numbers.
    gates: BTreeMap<PortId, Gate>,
}

/// A capture, for as long as it lives.
#[derive(Debug)]
pub struct Attached {
    captures: Captures,
    taps: Taps,
}

impl Default for Captures {
    fn default() -> Self {
        let (publisher, _) = published(Taps::new());
        Self(Arc::new(Mutex::new(State { publisher, gates: BTreeMap::new() })))
    }
}

impl State {
    fn publish(&mut self, taps: Taps) {
        self.publisher.publish(taps);
        self.gates.values().for_each(Gate::change_captures);
    }
}

impl Captures {
    /// Attaches taps, each at the queues of its port, until what is returned is dropped. A port has up to [`CAPTURES_MAX`]; `None` when one
    /// would have more.
    ///
    /// Control path. Queues notice with their next burst; a tx queue that is given nothing more keeps the buffers of what it last captured for.
    #[must_use]
    #[doc(alias = "rte_pdump_enable_bpf")]
    pub fn attach(&self, taps: Vec<Tap>) -> Option<Attached> {
        let taps: Taps = taps.into_iter().map(Arc::new).collect();
        let mut state = self.state();
        let all: Taps = state.publisher.newest().iter().chain(&taps).cloned().collect();
        let count = |port| all.iter().filter(|tap| tap.port == port).count();
        if taps.iter().any(|tap| count(tap.port) > CAPTURES_MAX) {
            return None;
        }
        state.publish(all);
        Some(Attached { captures: self.clone(), taps })
    }

    /// Frees what no queue has any more of captures that ended; whether something is still held, by queues that are not polled.
    pub fn collect(&self) -> bool {
        self.state().publisher.held() > 0
    }

    /// Takes part: the port with this number and its gate.
    pub(crate) fn watch(&self, port: PortId, gate: &Gate) {
        self.state().gates.insert(port, gate.clone());
    }

    pub(crate) fn taps(&self, port: PortId, queue: QueueId) -> QueueTaps {
        QueueTaps { reader: self.state().publisher.reader(), port, queue: queue.0 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut state = self.captures.state();
        let own = |tap: &Arc<Tap>| self.taps.iter().any(|own| Arc::ptr_eq(own, tap));
        let others = state.publisher.newest().iter().filter(|tap| !own(tap)).cloned().collect();
        state.publish(others);
    }
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.state().publisher.newest().iter()).finish()
    }
}

/// The captures at one queue.
pub(crate) struct QueueTaps {
    reader: Reader<Taps>,
    port: PortId,
    queue: u16,
}

impl QueueTaps {
    /// Looks for a change, on the gate's slow path. False: look again.
    pub(crate) fn look(&mut self) -> bool {
        self.reader.pass();
        self.reader.is_newest()
    }

    pub(crate) fn any(&self) -> bool {
        self.own().next().is_some()
    }

    fn own(&self) -> impl Iterator<Item = &Tap> {
        self.reader.get().iter().map(|tap| &**tap).filter(|tap| tap.port == self.port)
    }

    fn passage(&self, sent: bool, clock: &Clock) -> Passage {
        Passage { ticks: clock.now().0, queue: self.queue, sent }
    }

    /// Captures what was received.
    pub(crate) fn received(&self, mbufs: &[Mbuf]) {
        for tap in self.own() {
            let passage = self.passage(false, &tap.clock);
            tap.writer
                .reserve(&tap.interface, passage, mbufs.iter().map(Whole::received))
                .commit(mbufs.len());
        }
    }

    /// Captures what the driver is about to be given, in each capture's ring; to be [committed](Reserved::commit) once it is known how many
    /// it took.
    pub(crate) fn sending(&self, burst: &Burst) -> [Option<Reserved<'_>>; CAPTURES_MAX] {
        let mut own = self.own();
        std::array::from_fn(|_| {
            own.next().map(|tap| {
                let passage = self.passage(true, &tap.clock);
                tap.writer.reserve(&tap.interface, passage, burst.iter().map(Whole::to_send))
            })
        })
    }
}
