//! Queues that stop and start one by one, while others go on.
//!
//! A stopped queue is in state RESET on the device: its buffers are at home, and what the hash or a rule sends to it is
//! dropped by the device, as with DPDK. Tables and rules stay as they are.
//! Source of the steps: DPDK `drivers/net/mlx5/mlx5_rxq.c`, `mlx5_rx_queue_stop_primary`, `mlx5_rx_queue_start_primary`;
//! `drivers/net/mlx5/mlx5_txq.c`, `mlx5_tx_queue_stop_primary`, `mlx5_tx_queue_start_primary`.

use std::fmt;
use std::sync::atomic::Ordering;

use pollux_port::STOP_PATIENCE;
use pollux_port::{Direction, PortError, QueueId};

use super::Mlx5Port;
use super::queue::{DeviceQueue, Queue};
use super::slot::Slot;
use crate::eth::backend::QueueState;
use crate::eth::parking::Parked;
use crate::eth::rq::Rq;
use crate::eth::sq::Sq;
use pollux_mlx5_common::MlxError;

/// The data half of a queue, empty and filled.
pub(crate) trait Inside: Send + 'static {
    /// What there is to be fetched before the device is stopped.
    fn before(&mut self) {}

    /// The device is stopped: buffers go home, indices begin at zero.
    fn empty(&mut self);

    /// The device is ready: what it needs is posted.
    fn fill(&mut self) {}
}

impl Inside for Rq {
    fn empty(&mut self) {
        self.drain();
        self.reset();
    }

    fn fill(&mut self) {
        self.refill();
    }
}

impl Inside for Sq {
    fn before(&mut self) {
        self.reap();
    }

    fn empty(&mut self) {
        // What was sent meanwhile counts as sent.
        self.reap();
        self.drain();
        self.reset();
    }
}

/// Takes a queue to RESET and empties it.
pub(crate) fn reset<Q: Queue, I: Inside>(
    queue: &DeviceQueue<Q>,
    inside: &mut Parked<'_, I>,
) -> Result<(), MlxError> {
    inside.before();
    queue.go(QueueState::Reset)?;
    inside.empty();
    Ok(())
}

/// Makes a queue that is in RESET ready and fills it.
pub(crate) fn ready<Q: Queue, I: Inside>(
    queue: &DeviceQueue<Q>,
    inside: &mut Parked<'_, I>,
) -> Result<(), MlxError> {
    queue.go(QueueState::Ready)?;
    inside.fill();
    Ok(())
}

/// Why a queue was not stopped or started.
enum Refused {
    Device(MlxError),
    /// A burst does not end.
    Busy,
}

impl<Q: Queue, I: Inside + fmt::Debug> Slot<Q, I> {
    /// Stops or starts the queue. Nothing happens where it does that already, or its value was dropped.
    fn run(&self, run: bool) -> Result<(), Refused> {
        let health = self.control.health();
        if self.control.is_left() || health.is_stopped() != run {
            return Ok(());
        }
        let Some(mut inside) = self.control.halt(STOP_PATIENCE) else {
            return if self.control.is_left() { Ok(()) } else { Err(Refused::Busy) };
        };
        if run {
            let ready = ready(&self.queue, &mut inside);
            // One that fails to start is as stopped as before.
            if let Err(error) = ready {
                inside.stop();
                return Err(Refused::Device(error));
            }
            self.failed.store(false, Ordering::Relaxed);
            inside.run();
        } else {
            let reset = reset(&self.queue, &mut inside);
            // No burst reaches it any more, whatever the device says.
            inside.stop();
            reset.map_err(Refused::Device)?;
        }
        Ok(())
    }
}

impl Mlx5Port {
    pub(super) fn run_rx(&self, queue: QueueId, run: bool) -> Result<(), PortError> {
        let slots = self.slots();
        let slot = slots.rx.get(usize::from(queue.0)).and_then(Option::as_ref);
        slot.map_or(Ok(()), |slot| slot.run(run)).map_err(|why| told(why, Direction::Rx, queue, run))
    }

    pub(super) fn run_tx(&self, queue: QueueId, run: bool) -> Result<(), PortError> {
        let slots = self.slots();
        let slot = slots.tx.get(usize::from(queue.0)).and_then(Option::as_ref);
        slot.map_or(Ok(()), |slot| slot.run(run)).map_err(|why| told(why, Direction::Tx, queue, run))
    }

    /// As the port starts: queues that are deferred stand still, all others run.
    pub(super) fn run_due(&self) -> Result<(), PortError> {
        let slots = self.slots();
        for slot in slots.rx.iter().flatten() {
            slot.run(!slot.deferred)
                .map_err(|why| told(why, Direction::Rx, QueueId(slot.number), !slot.deferred))?;
        }
        for slot in slots.tx.iter().flatten() {
            slot.run(!slot.deferred)
                .map_err(|why| told(why, Direction::Tx, QueueId(slot.number), !slot.deferred))?;
        }
        Ok(())
    }
}

fn told(why: Refused, direction: Direction, queue: QueueId, run: bool) -> PortError {
    match why {
        Refused::Busy => {
            PortError::BurstUnderWay { port: String::new(), direction, queue, waited: STOP_PATIENCE }
        }
        Refused::Device(error) => {
            let verb = if run { "start" } else { "stop" };
            PortError::device(format!("{verb} {direction} queue {queue}"), error)
        }
    }
}
