//! A wire that has a rate, a delay and losses, in a time of its own.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pollux_mlx5_model::random::Random;
use pollux_mlx5_model::wire::{Sent, Wire};

/// Bits a nanosecond.
const RATE: f64 = 100.0;
/// Preamble, check sequence and gap of each frame.
const OVERHEAD: usize = 24;
/// A shorter frame is no data packet of 1024 bytes.
const DATA_MIN: usize = 1024;
/// How far ahead of the wire a card may be: one step.
const AHEAD: u64 = 1000;

/// One direction.
#[derive(Debug)]
struct Lane {
    /// When each frame arrives, in nanoseconds.
    queue: VecDeque<(u64, Vec<u8>)>,
    /// When the wire is free for the next one.
    free: u64,
    random: Random,
    data: u64,
}

#[derive(Debug)]
struct Shared {
    now: AtomicU64,
    loss: f64,
    delay: u64,
    /// Lane *n* leads to end *n*.
    lanes: [Mutex<Lane>; 2],
}

/// The wire as the study sees it.
#[derive(Clone, Debug)]
pub(crate) struct Link(Arc<Shared>);

impl Link {
    /// A wire that loses that share of frames, each way by a sequence of its own.
    pub(crate) fn new(loss: f64, delay: Duration, seed: u64) -> Self {
        let lane = |end: u64| {
            let random =
                Random::new(seed.wrapping_mul(2).wrapping_add(end).wrapping_mul(0x2545_f491_4f6c_dd1d));
            Mutex::new(Lane { queue: VecDeque::new(), free: 0, random, data: 0 })
        };
        let delay = delay.as_nanos() as u64;
        Self(Arc::new(Shared { now: AtomicU64::new(0), loss, delay, lanes: [lane(0), lane(1)] }))
    }

    /// One of its two ends.
    pub(crate) fn end(&self, end: usize) -> End {
        End { shared: Arc::clone(&self.0), end }
    }

    /// Moves its clock on.
    pub(crate) fn advance(&self, by: Duration) {
        self.0.now.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Its clock, in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        self.0.now.load(Ordering::Relaxed)
    }

    /// Frames that carried data to an end, lost ones included.
    pub(crate) fn data_to(&self, end: usize) -> u64 {
        self.0.lanes[end].lock().unwrap_or_else(PoisonError::into_inner).data
    }
}

/// An end, for a model.
#[derive(Debug)]
pub(crate) struct End {
    shared: Arc<Shared>,
    end: usize,
}

impl Wire for End {
    fn send(&mut self, frame: &[u8]) -> Sent {
        let now = self.shared.now.load(Ordering::Relaxed);
        let mut lane = self.shared.lanes[1 - self.end].lock().unwrap_or_else(PoisonError::into_inner);
        if lane.free > now + AHEAD {
            return Sent::Busy;
        }
        let begin = lane.free.max(now);
        lane.free = begin + (((frame.len() + OVERHEAD) * 8) as f64 / RATE) as u64;
        lane.data += u64::from(frame.len() >= DATA_MIN);
        if !lane.random.chance(self.shared.loss) {
            let due = lane.free + self.shared.delay;
            lane.queue.push_back((due, frame.to_vec()));
        }
        Sent::Yes
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        let now = self.shared.now.load(Ordering::Relaxed);
        let mut lane = self.shared.lanes[self.end].lock().unwrap_or_else(PoisonError::into_inner);
        if lane.queue.front().is_none_or(|(due, _)| *due > now) {
            return None;
        }
        let (_, frame) = lane.queue.pop_front()?;
        let bytes = frame.len().min(room.len());
        room[..bytes].copy_from_slice(&frame[..bytes]);
        Some(frame.len())
    }

    fn is_up(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("link:{}", self.end)
    }
}
