//! Captures of what passes through the queues of running ports.
//!
//! ```text
//!   control thread: Captures::attach ─► published taps, and the gate of each port counts a change; bursts under way are waited for
//!   lcore: the next burst takes the gate's slow path, and from then on
//!          rx: driver, taps, callbacks          tx: callbacks, taps, driver, what it took is shown to the readers
//! ```
//!
//! Without a capture a burst costs what it cost before: what it looks at is the word that says whether there is any callback, and the
//! gate. A packet is captured as the driver gave it, or as the driver is given it: checksums and segmentation that are left to the device
//! are not done yet. VLAN tags that the device took off, or is to put in, are put in.
//!
//! A capture begins and ends exactly, with [`Captures::attach`] and the drop of [`Attached`]. Why no burst goes by the old taps once either
//! has returned: a burst says that it is at work, then reads the gate's word. Either it finds the changed word, and takes the new taps
//! before it does anything else; or it said so before the word was changed, and is waited for, as by [`Port::stop`](crate::Port::stop). A queue
//! that is in no burst needs no waiting for, polled or not. `gate/loom_tests.rs` explores it.

mod frame;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;
use pollux_capture::{Interface, Passage, Reserved, Writer};
use pollux_eal::clock::Clock;
use pollux_eal::rcu::{Publisher, Reader, published};
use pollux_mempool::{Burst, Mbuf};

use crate::burst::{self, BurstLine, STOP_PATIENCE};
use crate::{Gate, PortError, PortId, QueueId};
use frame::Whole;

/// Captures of one port at a time.
pub const CAPTURES_MAX: usize = pollux_capture::CLIENTS_MAX;

// A capture takes the burst of a queue as a whole.
const _: () = assert!(pollux_capture::BURST_MAX == pollux_mempool::BURST_MAX);

/// One capture at one port: where its frames go, and which.
#[derive(Debug)]
pub struct Tap {
    /// Whose queues, all of them, both ways.
    pub port: PortId,
    /// What is kept of what passes there.
    pub interface: Interface,
    /// Where it goes.
    pub writer: Arc<Writer>,
    /// The program's clock, which tells when. It is read once a burst for all captures.
    pub clock: Clock,
}

type Taps = Vec<Arc<Tap>>;
type Line = Arc<CachePadded<BurstLine>>;

/// The captures of the ports of one [`Ports`](crate::Ports). Clones are the same.
#[derive(Clone, Default)]
pub struct Captures(Arc<Mutex<BTreeMap<PortId, AtPort>>>);

/// The captures of one port, as long as it is the same one: they stay while its device is opened again.
struct AtPort {
    publisher: Publisher<Taps>,
    /// None while the device is opened again.
    gate: Option<Gate>,
    /// Of its queues that were set up.
    lines: Vec<Line>,
}

impl Default for AtPort {
    fn default() -> Self {
        let (publisher, _) = published(Taps::new());
        Self { publisher, gate: None, lines: Vec::new() }
    }
}

impl AtPort {
    /// First the taps, then the word that counts the change: see [`Gate::pass`]. Returns the queues whose bursts are to be waited for.
    fn publish(&mut self, taps: Taps) -> impl Iterator<Item = Line> {
        self.publisher.publish(taps);
        if let Some(gate) = &self.gate {
            gate.change_captures();
        }
        self.lines.iter().cloned()
    }

    /// Frees what no queue has any more; whether one still has a tap that ended.
    fn holds_ended(&mut self) -> bool {
        let newest = self.publisher.newest();
        self.publisher.still_held().flatten().any(|tap| !has(&newest, tap))
    }
}

fn has(taps: &[Arc<Tap>], tap: &Arc<Tap>) -> bool {
    taps.iter().any(|other| Arc::ptr_eq(tap, other))
}

/// Returns once no burst goes by taps of before the change.
fn wait_for_bursts(lines: &[Line]) {
    if burst::wait_for_all(lines.iter().map(|line| &***line), STOP_PATIENCE).is_err() {
        tracing::warn!(
            target: "lib.pdump",
            "a burst has not ended within {STOP_PATIENCE:?}: a capture may have more or less than what passed while it ran"
        );
    }
}

/// A capture, for as long as it lives.
#[derive(Debug)]
pub struct Attached {
    captures: Captures,
    taps: Taps,
}

impl Captures {
    /// Attaches taps, each at the queues of its port, until what is returned is dropped. A port has up to [`CAPTURES_MAX`].
    ///
    /// When this returns, the taps see every burst that begins, on any lcore; those that had begun before have ended. It waits for
    /// them, [`STOP_PATIENCE`] at most, as [`Port::stop`](crate::Port::stop) does: a callback on a queue of one of the ports would wait for itself.
    /// The same holds for the drop of what is returned, after which nothing more is written. A tx queue that is given nothing more keeps the
    /// buffers of what it last captured for.
    ///
    /// Control path: some microseconds, and an interrupt to each running thread of the process.
    ///
    /// # Errors
    /// [`PortError::NoPort`]; [`PortError::Limit`] when a port would have more captures than there may be. Nothing is attached then.
    #[doc(alias = "rte_pdump_enable_bpf")]
    pub fn attach(&self, taps: Vec<Tap>) -> Result<Attached, PortError> {
        let taps: Taps = taps.into_iter().map(Arc::new).collect();
        let mut state = self.state();
        let mut changed: BTreeMap<PortId, Taps> = BTreeMap::new();
        for tap in &taps {
            let at = state.get(&tap.port).ok_or_else(|| PortError::NoPort {
                wanted: tap.port.to_string(),
                present: state.keys().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            })?;
            let all = changed.entry(tap.port).or_insert_with(|| Taps::clone(&at.publisher.newest()));
            all.push(Arc::clone(tap));
            if all.len() > CAPTURES_MAX {
                return Err(PortError::Limit {
                    port: tap.port.to_string(),
                    what: "number of captures",
                    value: all.len() as u64,
                    min: 0,
                    max: CAPTURES_MAX as u64,
                });
            }
        }
        let mut lines = Vec::new();
        for (port, taps) in changed {
            if let Some(at) = state.get_mut(&port) {
                lines.extend(at.publish(taps));
            }
        }
        drop(state);
        wait_for_bursts(&lines);
        Ok(Attached { captures: self.clone(), taps })
    }

    /// Frees what no queue has any more of captures that ended; whether something of them is still held, by queues that had no burst since.
    pub fn collect(&self) -> bool {
        // All of them are looked at.
        self.state().values_mut().fold(false, |any, at| at.holds_ended() | any)
    }

    /// Takes part: the port with this number and its gate. It goes on with the captures of the one that was [suspended](Self::suspend) there.
    pub(crate) fn watch(&self, port: PortId, gate: &Gate) {
        self.state().entry(port).or_default().gate = Some(gate.clone());
    }

    /// The port is about to be opened again under its number: its captures go on with it then.
    pub(crate) fn suspend(&self, port: PortId) {
        if let Some(at) = self.state().get_mut(&port) {
            (at.gate, at.lines) = (None, Vec::new());
        }
    }

    /// The port is gone for good: its captures have ended, and do not begin again at another that gets its number.
    pub(crate) fn forget(&self, port: PortId) {
        let removed = self.state().remove(&port);
        if let Some(mut at) = removed {
            let lines: Vec<Line> = at.publish(Taps::new()).collect();
            wait_for_bursts(&lines);
        }
    }

    /// For a queue that is set up: what it captures for. None at a port that takes no part any more.
    pub(crate) fn taps(&self, port: PortId, queue: QueueId, line: &Line) -> Option<QueueTaps> {
        let mut state = self.state();
        let at = state.get_mut(&port)?;
        // A queue that is set up again has the same line.
        if !at.lines.iter().any(|known| Arc::ptr_eq(known, line)) {
            at.lines.push(Arc::clone(line));
        }
        Some(QueueTaps { reader: at.publisher.reader(), queue: queue.0 })
    }

    fn state(&self) -> MutexGuard<'_, BTreeMap<PortId, AtPort>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut lines = Vec::new();
        // Another port may have a number by now: what is of these taps is found by themselves.
        for at in self.captures.state().values_mut() {
            let newest = at.publisher.newest();
            if newest.iter().any(|tap| has(&self.taps, tap)) {
                let others = newest.iter().filter(|tap| !has(&self.taps, tap)).cloned().collect();
                // Not to be held when it is replaced.
                drop(newest);
                lines.extend(at.publish(others));
            }
        }
        wait_for_bursts(&lines);
    }
}

impl fmt::Debug for Captures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_map().entries(state.iter().map(|(port, at)| (port, at.publisher.newest()))).finish()
    }
}

/// The captures at one queue.
pub(crate) struct QueueTaps {
    reader: Reader<Taps>,
    queue: u16,
}

impl QueueTaps {
    /// Looks for a change, on the gate's slow path.
    pub(crate) fn look(&mut self) {
        self.reader.pass();
    }

    pub(crate) fn any(&self) -> bool {
        !self.reader.get().is_empty()
    }

    /// Its taps, and what they say of a burst that passes now.
    fn now(&self, sent: bool) -> (&[Arc<Tap>], Passage) {
        let taps = self.reader.get();
        let ticks = taps.first().map_or(0, |tap| tap.clock.now().0);
        (taps, Passage { ticks, queue: self.queue, sent })
    }

    /// Captures what was received.
    pub(crate) fn received(&self, mbufs: &[Mbuf]) {
        let (taps, passage) = self.now(false);
        for tap in taps {
            tap.writer
                .reserve(&tap.interface, passage, mbufs.iter().map(Whole::received))
                .commit(mbufs.len());
        }
    }

    /// Captures what the driver is about to be given, in each capture's ring; to be [committed](Reserved::commit) once it is known how many
    /// it took.
    pub(crate) fn sending(&self, burst: &Burst) -> [Option<Reserved<'_>>; CAPTURES_MAX] {
        let (taps, passage) = self.now(true);
        std::array::from_fn(|at| {
            let tap = taps.get(at)?;
            Some(tap.writer.reserve(&tap.interface, passage, burst.iter().map(Whole::to_send)))
        })
    }
}
