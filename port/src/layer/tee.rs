//! A layer that writes a copy of what passes, to a pcapng file say.
//!
//! The writer is somebody else's: a [`FrameSink`], one a port, shared by the port's queues under a lock. Frames are
//! written as they pass between application and driver: on rx after the driver gave them, on tx once the driver took
//! them. What a packet leaves to whoever sends it is done in the copy: checksums are complete and large packets cut, as on a
//! wire.

use super::{Layer, pass_rx, pass_tx};
use crate::driver::{InBurst, Moved, RxBurst, RxSetup, TxBurst, TxSetup};
use crate::finish::Finisher;
use crate::{Direction, QueueId};
use pollux_mempool::{Burst, Mbuf};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// A frame on its way.
#[derive(Clone, Copy, Debug)]
pub struct SeenFrame<'a> {
    /// Which way it goes.
    pub direction: Direction,
    /// Through which queue.
    pub queue: QueueId,
    /// When its burst passed, since 1970.
    pub time: Duration,
    /// Its bytes, without the frame check sequence.
    pub data: &'a [u8],
}

/// Takes copies of frames.
pub trait FrameSink: Send {
    /// Takes one.
    ///
    /// # Errors
    /// What the file says. The tee goes on with the next frame, counts the failure and logs the first.
    fn frame(&mut self, frame: SeenFrame<'_>) -> std::io::Result<()>;

    /// Frames that were taken since the last call and are lost after all: a file may find out late that its disk is full.
    fn lost(&mut self) -> u64 {
        0
    }

    /// Called when a queue goes: what was taken is to be where it belongs.
    ///
    /// # Errors
    /// As [`FrameSink::frame`].
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// One sink for all queues of a port.
pub type SharedSink = Arc<Mutex<dyn FrameSink>>;

/// The layer.
pub struct Tee {
    shared: Shared,
}

#[derive(Clone)]
struct Shared {
    port: Arc<str>,
    sink: SharedSink,
    clock: fn() -> Duration,
    written: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    /// A failure was logged, and no other will be.
    told: Arc<AtomicBool>,
}

impl Shared {
    fn sink(&self) -> MutexGuard<'_, dyn FrameSink + 'static> {
        self.sink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn tell(&self, error: &std::io::Error) {
        if !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(target: "lib.ethdev", "port {}: tee: {error}", self.port);
        }
    }

    /// Counts what was taken and lost as not written.
    fn settle(&self, sink: &mut dyn FrameSink) {
        let lost = sink.lost();
        self.written.fetch_sub(lost, Ordering::Relaxed);
        self.failed.fetch_add(lost, Ordering::Relaxed);
    }
}

impl Tee {
    /// Writes what passes at the port of that name to `sink`, with the system's time.
    #[must_use]
    pub fn new(port: &str, sink: SharedSink) -> Self {
        Self::with_clock(port, sink, || SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
    }

    /// The same with another clock.
    #[must_use]
    pub fn with_clock(port: &str, sink: SharedSink, clock: fn() -> Duration) -> Self {
        let (written, failed, told) = Default::default();
        Self { shared: Shared { port: port.into(), sink, clock, written, failed, told } }
    }
}

impl Layer for Tee {
    fn rx(&mut self, setup: &RxSetup, inner: Box<dyn RxBurst>) -> Box<dyn RxBurst> {
        let copier = Copier::new(self.shared.clone(), Direction::Rx, setup.queue);
        Box::new(TeeRx { inner, copier })
    }

    fn tx(&mut self, setup: &TxSetup, inner: Box<dyn TxBurst>) -> Box<dyn TxBurst> {
        let copier = Copier::new(self.shared.clone(), Direction::Tx, setup.queue);
        Box::new(TeeTx { inner, copier })
    }

    fn xstats(&self) -> Vec<(Cow<'static, str>, u64)> {
        self.shared.settle(&mut *self.shared.sink());
        vec![
            ("tee_frames".into(), self.shared.written.load(Ordering::Relaxed)),
            ("tee_errors".into(), self.shared.failed.load(Ordering::Relaxed)),
        ]
    }
}

/// Copies frames out of mbufs: a run of bytes, where each frame ends in it, and how many frames there are up to each mbuf's end.
struct Copier {
    shared: Shared,
    direction: Direction,
    queue: QueueId,
    bytes: Vec<u8>,
    ends: Vec<usize>,
    frames: Vec<usize>,
    finisher: Finisher,
}

impl Copier {
    fn new(shared: Shared, direction: Direction, queue: QueueId) -> Self {
        let (bytes, ends, frames) = (Vec::new(), Vec::new(), Vec::new());
        Self { shared, direction, queue, bytes, ends, frames, finisher: Finisher::default() }
    }

    fn gather(&mut self, mbufs: &[Mbuf]) {
        let Self { bytes, ends, frames, finisher, .. } = self;
        bytes.clear();
        ends.clear();
        frames.clear();
        for mbuf in mbufs {
            let take = |frame: &[u8]| {
                bytes.extend_from_slice(frame);
                ends.push(bytes.len());
            };
            // What asks for nothing is not gathered first; what cannot be finished shows as it is.
            if mbuf.tx_flags().is_empty() || finisher.plain(mbuf, take).is_err() {
                mbuf.segments().for_each(|segment| bytes.extend_from_slice(segment));
                ends.push(bytes.len());
            }
            frames.push(ends.len());
        }
    }

    fn write(&self, count: usize) {
        let Some(last) = count.checked_sub(1) else { return };
        let time = (self.shared.clock)();
        let mut sink = self.shared.sink();
        let mut start = 0;
        for end in &self.ends[..self.frames[last]] {
            let data = &self.bytes[start..*end];
            start = *end;
            match sink.frame(SeenFrame { direction: self.direction, queue: self.queue, time, data }) {
                Ok(()) => {
                    self.shared.written.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => {
                    self.shared.failed.fetch_add(1, Ordering::Relaxed);
                    self.shared.tell(&error);
                }
            }
        }
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        let mut sink = self.shared.sink();
        if let Err(error) = sink.flush() {
            self.shared.tell(&error);
        }
        self.shared.settle(&mut *sink);
    }
}

#[repr(align(128))]
struct TeeRx {
    inner: Box<dyn RxBurst>,
    copier: Copier,
}

impl RxBurst for TeeRx {
    fn rx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let before = burst.len();
        let moved = self.inner.rx_burst(inside, burst, max);
        self.copier.gather(&burst[before..]);
        self.copier.write(moved.packets);
        moved
    }

    pass_rx!();
}

#[repr(align(128))]
struct TeeTx {
    inner: Box<dyn TxBurst>,
    copier: Copier,
}

impl TxBurst for TeeTx {
    fn tx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let before = burst.len();
        // Once the driver has them they are out of reach.
        self.copier.gather(burst);
        let moved = self.inner.tx_burst(inside, burst);
        self.copier.write(before - burst.len());
        moved
    }

    pass_tx!();
}
