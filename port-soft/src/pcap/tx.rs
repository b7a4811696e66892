//! Frames into a file, or nowhere.

use std::sync::{Arc, Mutex, PoisonError};

use arrayvec::ArrayVec;
use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::{PcapWriter, Timestamp};
use pollux_mempool::{BURST_MAX, Burst, Mbuf};
use pollux_port::driver::{Moved, TxBurst, TxSetup};
use pollux_port::{PortError, TxCounters, TxDrop};

use crate::offload::{Finisher, is_plain};

/// A tx queue into a file. The lock is taken once a burst and contended only while the port is stopped, when the control
/// half writes out what is buffered.
#[repr(align(128))]
pub(super) struct FileTx {
    writer: Arc<Mutex<PcapWriter>>,
    counters: Arc<TxCounters>,
    finisher: Finisher,
    /// A full disk is said once.
    told: bool,
    flushed: Timestamp,
}

/// So much of a capture is at most lost when the process is killed.
const FLUSH_NANOS: u64 = 1_000_000_000;

impl FileTx {
    pub(super) fn new(writer: Arc<Mutex<PcapWriter>>, setup: TxSetup) -> Self {
        Self {
            writer,
            counters: setup.counters,
            finisher: Finisher::default(),
            told: false,
            flushed: Timestamp::now(),
        }
    }

    #[cold]
    fn lost(told: &mut bool, error: &FrameError) -> TxDrop {
        if let FrameError::Setting { .. } = error {
            return TxDrop::TooLong;
        }
        if !std::mem::replace(told, true) {
            let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(target: "pmd.net.pcap", %error, %cause, "frames to this file are dropped");
        }
        TxDrop::Refused
    }

    #[inline]
    fn write(writer: &mut PcapWriter, mbuf: &Mbuf, now: Timestamp, told: &mut bool) -> Result<(), TxDrop> {
        let bytes = mbuf.pkt_len() as usize;
        let done = if mbuf.is_contiguous() {
            writer.write(&[mbuf.data()], bytes, now)
        } else {
            let mut pieces = ArrayVec::<&[u8], BURST_MAX>::new();
            for piece in mbuf.segments() {
                pieces.try_push(piece).map_err(|_| TxDrop::TooLong)?;
            }
            writer.write(&pieces, bytes, now)
        };
        done.map_err(|error| Self::lost(told, &error))
    }
}

impl TxBurst for FileTx {
    fn tx_burst(&mut self, burst: &mut Burst) -> Moved {
        if burst.is_empty() {
            return Moved::NONE;
        }
        let Self { writer, counters, finisher, told, flushed } = self;
        let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Timestamp::now();
        let mut moved = Moved::NONE;
        for mbuf in burst.iter_mut() {
            let bytes = u64::from(mbuf.pkt_len());
            let done = if is_plain(mbuf) {
                Self::write(&mut writer, mbuf, now, told)
            } else {
                let mut done = Ok(());
                let finished = finisher.plain(mbuf, |frame| {
                    if let Err(error) = writer.write(&[frame], frame.len(), now) {
                        done = Err(Self::lost(told, &error));
                    }
                });
                finished.map_err(|_| TxDrop::Malformed).and(done)
            };
            match done {
                Ok(()) => {
                    moved.packets += 1;
                    moved.bytes += bytes;
                }
                Err(reason) => counters.drop_for(reason, 1),
            }
        }
        burst.clear();
        if now.nanos().saturating_sub(flushed.nanos()) > FLUSH_NANOS {
            *flushed = now;
            if !writer.has_failed()
                && let Err(error) = writer.flush()
            {
                // The frames are counted as sent by now; those to come will not be.
                Self::lost(told, &error);
            }
        }
        moved
    }

    fn recycle(&mut self, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("recycle", "frames are copied out: mbufs go home within the burst"))
    }

    fn mode(&self) -> &'static str {
        "pcap file"
    }
}

/// A tx queue of a port that only receives.
pub(super) struct DroppingTx;

impl TxBurst for DroppingTx {
    fn tx_burst(&mut self, burst: &mut Burst) -> Moved {
        let moved = Moved::of(burst);
        burst.clear();
        moved
    }

    fn mode(&self) -> &'static str {
        "pcap, no tx"
    }
}
