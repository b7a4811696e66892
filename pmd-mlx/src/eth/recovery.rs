//! Queues in error: found, emptied, reset and set to work again; and what else the device tells by itself.
//!
//! ```text
//!   lcore    error completion ──► parked: bursts move nothing
//!   control  queue to ERROR ──► completions drained ──► RESET ──► ring emptied, mbufs home ──► READY ──► refilled ──► runs
//! ```
//!
//! A send queue of which nothing comes back, for as long as the port was opened to be patient
//! ([`Mlx5Spec::tx_patience`](super::port::Mlx5Spec::tx_patience)), is taken from its lcore for a moment and kicked: completions
//! that the lcore did not fetch, because it sends no more, are fetched; what was not asked for is asked for. Where that brings
//! nothing, completions are lost, and the queue goes the same way as one in error. DPDK's driver has nothing like it; the
//! kernel's does: Linux `drivers/net/ethernet/mellanox/mlx5/core/en/reporter_tx.c`, `mlx5e_tx_reporter_timeout_recover`.
//!
//! A thread looks at the queues every [`PERIOD`] and when the device tells something; so do control calls. It makes no
//! system call for the lcores, which pay nothing while all is well.
//! Source of the steps: DPDK `drivers/net/mlx5/mlx5_rx.c`, `mlx5_rx_err_handle`; `mlx5_tx.c`, `mlx5_tx_error_cqe_handle`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_eal::EalError;
use pollux_eal::event::{EventFd, EventSet};
use pollux_port::{EventSink, PortEvent};

use super::dump;
use super::parking::{Control, Trouble};
use super::port::queue::{DeviceQueue, Queue};
use super::port::run;
use super::port::slot::{Slot, Slots};
use super::rq::Rq;
use super::sq::Sq;
use crate::eth::backend::{QueueState, SendQueue};
use crate::patience::PortClock;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Device;
use pollux_mlx5_common::object::NumberedObject;

/// How often the queues are looked at.
const PERIOD: Duration = Duration::from_millis(20);

/// How long flushed work is waited for before the queue is reset. The device flushes in microseconds; what it has not by
/// then goes with the reset.
const PATIENCE: Duration = Duration::from_millis(5);

/// What watching needs, shared by the thread and control calls.
#[derive(Debug)]
pub(crate) struct Watched {
    device: Arc<Device>,
    slots: Arc<Mutex<Slots>>,
    sink: Mutex<Option<EventSink>>,
    tx_patience: Duration,
    clock: PortClock,
}

impl Watched {
    pub(crate) fn new(
        device: &Arc<Device>,
        slots: &Arc<Mutex<Slots>>,
        tx_patience: Duration,
        clock: PortClock,
    ) -> Arc<Self> {
        let (device, slots) = (Arc::clone(device), Arc::clone(slots));
        Arc::new(Self { device, slots, sink: Mutex::default(), tx_patience, clock })
    }

    /// Where to tell what happens.
    pub(crate) fn connect(&self, sink: &EventSink) {
        *self.sink.lock().unwrap_or_else(PoisonError::into_inner) = Some(sink.clone());
    }

    fn tell(&self, event: PortEvent) {
        if let Some(sink) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            sink.post(event);
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what the device tells and mends what is broken.
    pub(crate) fn look(&self) {
        for event in self.device.take_events() {
            tracing::debug!(target: "pmd.net.mlx5", "{}: {} of {:#x}", self.device.name(), event.kind, event.element);
        }
        if self.device.is_gone() {
            return;
        }
        let mut slots = self.slots();
        for slot in slots.rx.iter().flatten() {
            self.mend("rx", slot, dump::rx, recover_rx);
        }
        for slot in slots.tx.iter_mut().flatten() {
            self.listen(slot);
            self.mend("tx", slot, dump::tx, recover_tx);
        }
    }

    /// Rouses a send queue that was silent for too long, and parks it where that is in vain.
    fn listen(&self, slot: &mut Slot<SendQueue, Sq>) {
        let health = slot.control.health();
        let (taken, given) = health.progress();
        let waits = health.runs() && taken != given;
        let now = self.clock.now();
        let Some((_, since)) = slot.silence.filter(|(before, _)| waits && *before == given) else {
            slot.silence = waits.then_some((given, now));
            return;
        };
        if now.saturating_sub(since) < self.tx_patience {
            return;
        }
        slot.silence = None;
        let Some(mut sq) = slot.control.halt(PATIENCE) else { return };
        let kicked = sq.kick();
        let (taken, given) = sq.progress();
        sq.tell(taken, given);
        if kicked {
            sq.run();
        } else {
            // Dropped, it is parked.
            sq.note(sq.trouble.unwrap_or(Trouble::Silent));
        }
    }

    fn mend<Q: Queue, I: Send + 'static>(
        &self,
        half: &str,
        slot: &Slot<Q, I>,
        dump: impl FnOnce(&Control<I>) -> String,
        recover: impl FnOnce(&DeviceQueue<Q>, &Control<I>) -> Result<bool, MlxError>,
    ) {
        let health = slot.control.health();
        let trouble = health.trouble();
        let Some(trouble) = trouble.filter(|_| health.is_parked() && !slot.failed.load(Ordering::Relaxed))
        else {
            return;
        };
        tracing::warn!(target: "pmd.net.mlx5", "{}: {half} queue {}: {trouble}; it is reset; {}", self.device.name(), slot.number, trouble.advice());
        tracing::debug!(target: "pmd.net.mlx5", "{}: {half} queue {}: {}", self.device.name(), slot.number, dump(&slot.control));
        self.tell(PortEvent::Recovering);
        match recover(&slot.queue, &slot.control) {
            Ok(true) => self.tell(PortEvent::Recovered),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(
                    target: "pmd.net.mlx5", "{}: {half} queue {} cannot be set to work again: {error}",
                    self.device.name(),
                    slot.number
                );
                slot.failed.store(true, Ordering::Relaxed);
                self.tell(PortEvent::RecoveryFailed);
            }
        }
    }
}

/// Takes a queue to the error state, in which the device gives everything back. Mostly it is there by itself already, so the
/// device is asked first: commands name the state that a queue has. The reset that follows depends on neither.
fn flush<Q: Queue>(queue: &DeviceQueue<Q>) {
    if let Err(error) = queue.observe().and_then(|()| queue.go(QueueState::Error)) {
        tracing::debug!(target: "pmd.net.mlx5", "{error}");
    }
}

/// Waits until `drain` has seen `pending` completions, or nothing comes any more.
fn drained(pending: u32, mut drain: impl FnMut() -> u32) {
    let (mut seen, since) = (0, Instant::now());
    while seen < pending && since.elapsed() < PATIENCE {
        seen += drain();
        std::thread::yield_now();
    }
}

/// Takes a parked receive queue through its reset; false when its lcore's half is gone meanwhile.
pub(crate) fn recover_rx(
    queue: &DeviceQueue<NumberedObject>,
    control: &Control<Rq>,
) -> Result<bool, MlxError> {
    let Some(mut rq) = control.take() else { return Ok(false) };
    flush(queue);
    let (posted, taken) = rq.indices();
    drained(posted.wrapping_sub(taken), || rq.drain());
    run::reset(queue, &mut rq)?;
    run::ready(queue, &mut rq)?;
    rq.resume();
    Ok(true)
}

/// Takes a parked send queue through its reset; false when its lcore's half is gone meanwhile.
pub(crate) fn recover_tx(queue: &DeviceQueue<SendQueue>, control: &Control<Sq>) -> Result<bool, MlxError> {
    let Some(mut sq) = control.take() else { return Ok(false) };
    flush(queue);
    drained(1, || sq.drain());
    queue.go(QueueState::Reset)?;
    sq.drain();
    sq.reset();
    queue.go(QueueState::Ready)?;
    sq.resume();
    Ok(true)
}

/// The thread that watches a port. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to watch.
    ///
    /// # Errors
    /// No thread or no descriptor is to be had.
    pub(crate) fn begin(watched: Arc<Watched>) -> std::io::Result<Self> {
        let failed = std::io::Error::other;
        let stop = Arc::new(EventFd::new().map_err(failed)?);
        let ending = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("control-mlx5".into()).spawn(move || {
            // Signals are for the threads that wait for them.
            let _unchanged = pollux_eal::signal::keep_off_this_thread();
            if let Err(error) = watch(&watched, &ending) {
                tracing::error!(target: "pmd.net.mlx5", "{}: the event thread has stopped: {error}", watched.device.name());
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

fn watch(watched: &Watched, stop: &EventFd) -> Result<(), EalError> {
    let mut set = EventSet::new()?;
    set.add(stop, 0)?;
    let mut listening = set.add(watched.device.context().events(), 1).is_ok();
    loop {
        set.wait(Some(PERIOD))?.for_each(drop);
        if stop.drain() != 0 {
            return Ok(());
        }
        watched.look();
        if listening && watched.device.is_gone() {
            // The descriptor of a device that is gone is readable for ever.
            set.remove(watched.device.context().events())?;
            listening = false;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.signal();
        if let Some(thread) = self.thread.take() {
            // A panic there was printed; it took nothing with it that the port needs.
            let _panicked = thread.join();
        }
    }
}
