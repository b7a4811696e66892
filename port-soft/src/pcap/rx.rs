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

    fn frame(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start..end])
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

#[inline]
fn put(pool: &MbufPool, scatter: bool, mbuf: &mut Mbuf, frame: &[u8], port: PortId) -> Result<u64, RxDrop> {
    match mbuf.append(frame.len()) {
        Some(to) => to.copy_from_slice(frame),
        None => chain::fill(pool, scatter, mbuf, [frame].into_iter())?,
    }
    mbuf.set_port(port.0);
    Ok(frame.len() as u64)
}

impl RxBurst for ReplayRx {
    fn rx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        if self.ended {
            return Moved::NONE;
        }
        let Self { frames, pool, scatter, port, counters, ended, .. } = self;
        let first = burst.len();
        // No mbuf, no frame: the file waits. Counted once a burst, so that it shows; no frame is lost.
        let got = pool.alloc_up_to(burst, max);
        if got < max {
            counters.drop_for(RxDrop::NoMbuf, 1);
        }
        let (mut filled, mut bytes) = (0, 0);
        while filled < got {
            let frame = match frames {
                Frames::File { reader, told } => {
                    if reader.has_ended() {
                        *ended = true;
                        Self::ended(*port, reader, told);
                        break;
                    }
                    match reader.next() {
                        Ok(Some(frame)) => frame.data,
                        // The end, as the next burst finds, or a pipe that has no frame now.
                        Ok(None) => break,
                        Err(error) => {
                            *ended = true;
                            Self::failed(counters, &error);
                            break;
                        }
                    }
                }
                Frames::Memory { replayed, next } => {
                    let Some(frame) = replayed.frame(*next) else { break };
                    *next = if *next + 1 == replayed.ends.len() { 0 } else { *next + 1 };
                    frame
                }
            };
            match put(pool, *scatter, &mut burst[first + filled], frame, *port) {
                Ok(count) => {
                    filled += 1;
                    bytes += count;
                }
                Err(reason) => {
                    counters.drop_for(reason, 1);
                    // One loss a burst: were no frame to fit, memory would be replayed without end.
                    break;
                }
            }
        }
        while burst.len() > first + filled {
            drop(burst.pop());
        }
        Moved { packets: filled, bytes }
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
