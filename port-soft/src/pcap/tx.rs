//! Frames into a file, or nowhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrayvec::ArrayVec;
use pollux_frame_io::FrameError;
use pollux_frame_io::pcap::{PcapBatch, PcapWriter, Timestamp};
use pollux_mempool::{BURST_MAX, Burst, Mbuf};
use pollux_port::driver::{InBurst, Moved, TxBurst, TxSetup};
use pollux_port::{PortError, TxCounters, TxDrop};

use pollux_port::finish::Finisher;

use crate::offload::is_plain;

/// A file that a queue writes, and the control half looks after.
#[derive(Debug)]
pub(super) struct CaptureFile {
    port: String,
    writer: PcapWriter,
    /// Of the queue that writes it.
    counters: Mutex<Option<Arc<TxCounters>>>,
    /// A full disk is said once.
    told: AtomicBool,
}

impl CaptureFile {
    pub(super) fn new(port: &str, writer: PcapWriter) -> Self {
        Self { port: port.into(), writer, counters: Mutex::default(), told: AtomicBool::new(false) }
    }

    /// Hands over what is buffered.
    pub(super) fn flush(&self) {
        if let Err(error) = self.writer.flush() {
            self.lost(&error);
        }
    }

    /// Counts frames that were taken and did not reach the file: they are dropped, and not sent.
    #[cold]
    pub(super) fn settle(&self) {
        if self.writer.has_failed() {
            self.flush();
        }
    }

    #[cold]
    fn lost(&self, error: &FrameError) {
        let lost = self.writer.take_lost();
        if let Some(counters) = &*self.counters.lock().unwrap_or_else(PoisonError::into_inner) {
            counters.lose(TxDrop::Refused, lost.frames, lost.bytes);
        }
        if !self.told.swap(true, Ordering::Relaxed) {
            let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(target: "pmd.net.pcap", "port {}: {error}: {cause}; frames to it are dropped", self.port);
        }
    }
}

/// A tx queue into a file. The lock is taken once a burst. Contended it is four times a second, for as long as it takes to
/// change buffers, and while the control half writes out what is buffered.
#[repr(align(128))]
pub(super) struct FileTx {
    file: Arc<CaptureFile>,
    counters: Arc<TxCounters>,
    finisher: Finisher,
}

impl FileTx {
    pub(super) fn new(file: Arc<CaptureFile>, setup: TxSetup) -> Self {
        *file.counters.lock().unwrap_or_else(PoisonError::into_inner) = Some(setup.counters.clone());
        Self { file, counters: setup.counters, finisher: Finisher::default() }
    }

    #[cold]
    fn lost(failed: &mut Option<FrameError>, error: FrameError) -> TxDrop {
        if let FrameError::Setting { .. } = error {
            return TxDrop::TooLong;
        }
        failed.get_or_insert(error);
        TxDrop::Refused
    }

    #[inline]
    fn write(
        batch: &mut PcapBatch<'_>,
        mbuf: &Mbuf,
        now: Timestamp,
        failed: &mut Option<FrameError>,
    ) -> Result<(), TxDrop> {
        let bytes = mbuf.pkt_len() as usize;
        let done = if mbuf.is_contiguous() {
            batch.write(&[mbuf.data()], bytes, now)
        } else {
            let mut pieces = ArrayVec::<&[u8], BURST_MAX>::new();
            for piece in mbuf.segments() {
                pieces.try_push(piece).map_err(|_| TxDrop::TooLong)?;
            }
            batch.write(&pieces, bytes, now)
        };
        done.map_err(|error| Self::lost(failed, error))
    }
}

impl TxBurst for FileTx {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        if burst.is_empty() {
            return Moved::NONE;
        }
        let Self { file, counters, finisher } = self;
        let mut batch = file.writer.batch();
        let now = Timestamp::now();
        let mut moved = Moved::NONE;
        let mut failed = None;
        for mbuf in burst.iter_mut() {
            let bytes = u64::from(mbuf.pkt_len());
            let done = if is_plain(mbuf) {
                Self::write(&mut batch, mbuf, now, &mut failed)
            } else {
                let mut done = Ok(());
                let finished = finisher.plain(mbuf, |frame| {
                    if let Err(error) = batch.write(&[frame], frame.len(), now) {
                        done = Err(Self::lost(&mut failed, error));
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
        drop(batch);
        burst.clear();
        if let Some(error) = failed {
            file.lost(&error);
        }
        moved
    }

    fn recycle(&mut self, _: &InBurst<'_>, _spare: &mut Burst) -> Result<usize, PortError> {
        Err(PortError::unsupported("recycle", "frames are copied out: mbufs go home within the burst"))
    }

    fn mode(&self) -> &'static str {
        "pcap file"
    }
}

/// A tx queue of a port that only receives.
pub(super) struct DroppingTx;

impl TxBurst for DroppingTx {
    fn tx_burst(&mut self, _: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let moved = Moved::of(burst);
        burst.clear();
        moved
    }

    fn mode(&self) -> &'static str {
        "pcap, no tx"
    }
}
