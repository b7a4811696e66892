//! Frames from a file, or from memory that was filled from one.

use std::sync::Arc;
use std::time::Duration;

use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::PcapReader;
use pollux_mempool::{Burst, Mbuf, MbufPool};
use pollux_port::driver::{InBurst, Moved, RxBurst, RxDescriptor, RxSetup};
use pollux_port::{PortError, PortId, RxCounters, RxDrop};

use crate::chain;
use crate::lend::Lent;

/// How long to sleep at a time while a pipe is read to its end.
const PIPE_WAIT: Duration = Duration::from_secs(1);

/// All frames of a file, one behind the other.
#[derive(Debug)]
pub(super) struct Replayed {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
}

impl Replayed {
    pub(super) fn load(reader: &mut PcapReader) -> Result<Self, FrameError> {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        while !reader.has_ended() {
            match reader.next()? {
                Some(frame) => {
                    bytes.extend_from_slice(frame.data);
                    ends.push(bytes.len());
                }
                // A pipe whose writer is slow.
                None => reader.wait(PIPE_WAIT)?,
            }
        }
        Ok(Self { bytes, ends })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Where frames come from.
#[derive(Debug)]
pub(super) enum Frames {
    /// Read once, from the beginning at each start of the port unless it is a pipe. `told`: the user knows where a file ends
    /// that is cut off.
    File { reader: Lent<Box<PcapReader>>, told: bool },
    /// Again and again.
    Memory { replayed: Arc<Replayed>, next: usize },
}

/// An rx queue that replays a file.
#[repr(align(128))]
pub(super) struct ReplayRx {
    frames: Frames,
    pool: MbufPool,
    scatter: bool,
    port: PortId,
    counters: Arc<RxCounters>,
    ended: bool,
}

impl ReplayRx {
    pub(super) fn new(frames: Frames, setup: RxSetup) -> Self {
        let RxSetup { port, pool, scatter, counters, .. } = setup;
        Self { frames, pool, scatter, port, counters, ended: false }
    }

    /// Called once: after it the file reads as ended.
    #[cold]
    fn failed(counters: &RxCounters, error: &FrameError) {
        counters.drop_for(RxDrop::Malformed, 1);
        tracing::error!(target: "pmd.net.pcap", %error, "the rest of a capture file cannot be read");
    }

    #[cold]
    fn ended(port: PortId, reader: &PcapReader, told: &mut bool) {
        if let Some(end) = reader.truncation()
            && !std::mem::replace(told, true)
        {
            tracing::warn!(target: "pmd.net.pcap", "port {port}: {end}");
        }
    }
}

/// Puts a frame into an empty mbuf.
#[inline]
fn put(pool: &MbufPool, scatter: bool, mbuf: &mut Mbuf, frame: &[u8]) -> Result<(), RxDrop> {
    if mbuf.append_slice(frame) { Ok(()) } else { put_long(pool, scatter, mbuf, frame) }
}

/// One that does not fit.
#[cold]
#[inline(never)]
fn put_long(pool: &MbufPool, scatter: bool, mbuf: &mut Mbuf, frame: &[u8]) -> Result<(), RxDrop> {
    chain::fill(pool, scatter, mbuf, std::iter::once(frame))
}

/// One frame after the other.
trait Source {
    /// `None`: no more for now.
    fn next(&mut self) -> Option<&[u8]>;
}

/// Those of [`Frames::Memory`].
struct Round<'a> {
    bytes: &'a [u8],
    ends: &'a [usize],
    /// The next one, and where it begins.
    next: usize,
    start: usize,
}

impl<'a> Round<'a> {
    fn new(replayed: &'a Replayed, next: usize) -> Self {
        let start = next.checked_sub(1).map_or(0, |before| replayed.ends[before]);
        Self { bytes: &replayed.bytes, ends: &replayed.ends, next, start }
    }
}

impl Source for Round<'_> {
    #[inline(always)]
    fn next(&mut self) -> Option<&[u8]> {
        let end = *self.ends.get(self.next)?;
        let frame = self.bytes.get(self.start..end)?;
        (self.next, self.start) = if self.next + 1 < self.ends.len() { (self.next + 1, end) } else { (0, 0) };
        Some(frame)
    }
}

/// Those of [`Frames::File`].
struct Once<'a> {
    reader: &'a mut PcapReader,
    told: &'a mut bool,
    port: PortId,
    counters: &'a RxCounters,
    ended: &'a mut bool,
}

impl Source for Once<'_> {
    fn next(&mut self) -> Option<&[u8]> {
        if self.reader.has_ended() {
            *self.ended = true;
            ReplayRx::ended(self.port, self.reader, self.told);
            return None;
        }
        match self.reader.next() {
            // `None` is the end, as the next burst finds, or a pipe that has no frame now.
            Ok(frame) => frame.map(|frame| frame.data),
            Err(error) => {
                *self.ended = true;
                ReplayRx::failed(self.counters, &error);
                None
            }
        }
    }
}

/// Puts frames into empty mbufs, until one of both has no more.
#[inline(always)]
fn fill(
    mbufs: &mut [Mbuf],
    pool: &MbufPool,
    scatter: bool,
    counters: &RxCounters,
    source: &mut impl Source,
) -> Moved {
    let mut moved = Moved::NONE;
    for mbuf in mbufs {
        let Some(frame) = source.next() else { break };
        if let Err(reason) = put(pool, scatter, mbuf, frame) {
            counters.drop_for(reason, 1);
            // One loss a burst: were no frame to fit, memory would be replayed without end.
            break;
        }
        moved.packets += 1;
        moved.bytes += frame.len() as u64;
    }
    moved
}

impl RxBurst for ReplayRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        if self.ended {
            return Moved::NONE;
        }
        let Self { frames, pool, scatter, port, counters, ended, .. } = self;
        let first = burst.len();
        // No mbuf, no frame: the file waits. Counted once a burst, so that it shows; no frame is lost.
        let got = pool.alloc_received(burst, max, 0, port.0);
        if got < max {
            counters.drop_for(RxDrop::NoMbuf, 1);
        }
        let mbufs = &mut burst[first..];
        let moved = match frames {
            Frames::File { reader, told } => fill(
                mbufs,
                pool,
                *scatter,
                counters,
                &mut Once { reader, told, port: *port, counters, ended },
            ),
            Frames::Memory { replayed, next } => {
                let mut round = Round::new(replayed, *next);
                let moved = fill(mbufs, pool, *scatter, counters, &mut round);
                *next = round.next;
                moved
            }
        };
        while burst.len() > first + moved.packets {
            drop(burst.pop());
        }
        moved
    }

    fn resume(&mut self) {
        if let Frames::File { reader, .. } = &mut self.frames
            && !reader.is_pipe()
        {
            let rewound = reader.rewind();
            self.ended = rewound.is_err();
            if let Err(error) = rewound {
                Self::failed(&self.counters, &error);
            }
        }
    }

    fn refill(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("refill", "frames are copied into mbufs as they come: none waits for one"))
    }

    fn mode(&self) -> &'static str {
        match &self.frames {
            Frames::File { reader, .. } if reader.is_pipe() => "pcap pipe",
            Frames::File { .. } => "pcap file",
            Frames::Memory { .. } => "pcap in memory",
        }
    }
}

/// An rx queue of a port that only sends.
pub(super) struct SilentRx;

impl RxBurst for SilentRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, _burst: &mut Burst, _max: usize) -> Moved {
        Moved::NONE
    }

    fn mode(&self) -> &'static str {
        "pcap, no rx"
    }

    fn queue_count(&self) -> Result<usize, PortError> {
        Ok(0)
    }

    fn descriptor_status(&self, _offset: usize) -> Result<RxDescriptor, PortError> {
        Ok(RxDescriptor::Available)
    }
}
