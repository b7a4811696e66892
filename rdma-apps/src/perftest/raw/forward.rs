//! `--mac_fwd`: each frame goes back where it came from, its MAC addresses exchanged.
//!
//! A buffer goes round: received, sent, received again. Source of the course of events: linux-rdma/perftest
//! `src/raw_ethernet_resources.c`, `run_iter_fw`, `switch_smac_dmac`.

use pollux_eal::clock::cycles;
use pollux_verbs::{Buf, Buffers, Cq, CqOptions, Pd, Piece, PostError, Qp, QpKind, QpOptions, WcStatus};

use super::frame::CHECK_BYTES;
use crate::perftest::bandwidth::Run;
use crate::perftest::settings::{Extent, Settings};
use crate::perftest::statistic::Moments;
use crate::rdma::Failure;
use crate::rdma::endless::Watch;
use crate::rdma::queue::Queue;
use pollux_bringup::RdmaDevice;
use pollux_kit::forward::swapped;

/// Completions taken at once.
const TAKEN: usize = 32;

/// The end that forwards.
#[derive(Debug)]
pub struct Forwarder {
    qp: Qp,
    sends: Cq,
    receives: Queue,
    buffers: Buffers,
    depth: usize,
    signal_every: u64,
}

impl Forwarder {
    /// Its queue pair, in state INIT, its receives posted.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(device: &RdmaDevice, settings: &Settings, port: u8) -> Result<Self, Failure> {
        let context = &device.context;
        let pd = Pd::new(context)?;
        let depth = settings.rx_depth.min(settings.tx_depth).max(1);
        // It waits for frames alone, so what was sent raises no event.
        let sends = Cq::new(context, CqOptions::new(depth as u32))?;
        let receives = Queue::new(context, depth as u32, settings.options.events)?;
        let options = QpOptions::new(QpKind::Raw).depth(depth as u32, depth as u32);
        let mut qp = Qp::new(&pd, &sends, &receives.cq, &options)?;
        qp.init(port, pollux_verbs::Access::empty())?;
        let buffers = Buffers::new(&pd, depth, (settings.size - CHECK_BYTES) as usize)?;
        // A frame is sent as soon as it is there; half a queue without a completion would hold too many up.
        let signal_every = (settings.cq_mod as u64).min(depth as u64 / 2).max(1);
        let mut forwarder = Self { qp, sends, receives, buffers, depth, signal_every };
        let all = std::iter::from_fn(|| forwarder.buffers.take()).collect::<Vec<_>>();
        forwarder.post(all)?;
        Ok(forwarder)
    }

    /// The queue pair, to be steered to and made ready.
    pub fn qp(&mut self) -> &mut Qp {
        &mut self.qp
    }

    /// Bytes of memory that frames wait in.
    #[must_use]
    pub fn bytes(&self, settings: &Settings) -> usize {
        self.depth * (settings.size - CHECK_BYTES) as usize
    }

    fn post(&mut self, bufs: impl IntoIterator<Item = Buf>) -> Result<(), PostError> {
        let Some(mut receives) = self.qp.receives() else { return Ok(()) };
        for buf in bufs {
            receives.piece(0, buf);
        }
        receives.ring()?;
        Ok(())
    }

    /// Forwards as many frames as the test has.
    ///
    /// # Errors
    /// A completion that is an error, or a stop.
    pub fn run(&mut self, settings: &Settings, watch: &mut Watch<'_>) -> Result<Run, Failure> {
        let goal = match settings.extent {
            Extent::Iterations(iterations) => iterations,
            _ => u64::MAX,
        };
        let (mut received, mut sent, mut done) = (0_u64, 0_u64, 0_u64);
        let mut moments = Moments::default();
        let mut failed = None;
        // Received and not sent yet; sent and not posted again yet.
        let mut held: Vec<Buf> = Vec::with_capacity(self.depth);
        let mut back: Vec<Buf> = Vec::with_capacity(self.depth);
        while done < goal {
            self.receives.take(TAKEN, watch, |wc| {
                if wc.status() != WcStatus::SUCCESS {
                    failed.get_or_insert((wc.status(), received));
                } else if let Some(mut buf) = wc.take_buf() {
                    if let Some(addresses) = buf.first_chunk_mut::<12>() {
                        *addresses = swapped(*addresses);
                    }
                    held.push(buf);
                    received += 1;
                }
            })?;
            if !held.is_empty() {
                if sent == 0 {
                    moments.begin = cycles::now();
                }
                let mut batch = self.qp.batch();
                for buf in held.drain(..).take((goal - sent) as usize) {
                    sent += 1;
                    batch.send(sent).piece(buf);
                    if sent.is_multiple_of(self.signal_every) || sent == goal {
                        batch.signalled();
                    }
                }
                batch.ring()?;
            }
            self.sends.poll(TAKEN, |wc| {
                if wc.status() != WcStatus::SUCCESS {
                    failed.get_or_insert((wc.status(), wc.id()));
                    return;
                }
                done = wc.id();
                while let Some(piece) = wc.take() {
                    if let Piece::Buf(buf) = piece {
                        back.push(buf);
                    }
                }
            });
            if let Some((status, id)) = failed {
                return Err(Failure::completion(status, id));
            }
            if !back.is_empty() {
                self.post(back.drain(..))?;
            }
        }
        moments.end = cycles::now();
        Ok(Run { moments, messages: done, by_queue: vec![received], by_port: None })
    }
}
