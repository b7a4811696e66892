//! l2fwd's loop: a burst in, a burst out.
//!
//! A `Path` joins the rx queue of one port to the tx queue of another. An lcore owns its paths and goes round them ([`go_round`]).

use std::sync::Arc;

use pollux_bringup::BringupError;
use pollux_eal::LcoreContext;
use pollux_eal::clock::Nanos;
use pollux_mempool::{Burst, Mbuf};
use pollux_port::{MacAddress, QueueId, Queues, RxQueue, TxQueue};

use crate::idle::{Idle, Polled};
use crate::pairs::Hop;
use crate::rounds::{Rounds, go_round};
use crate::{Lost, Retry};

/// Packets taken at once, as in DPDK's l2fwd and testpmd.
pub const BURST: usize = 32;

/// What becomes of a packet's Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// They stay (testpmd: io).
    Keep,
    /// Destination, then source: these twelve bytes.
    Rewrite([u8; 12]),
    /// They change places (testpmd: macswap).
    Swap,
}

impl Edit {
    /// What DPDK's l2fwd writes: to `02:00:00:00:00:<port>`, from the address of the port that sends.
    #[must_use]
    pub fn l2fwd(port: u16, address: MacAddress) -> Self {
        let mut head = [2, 0, 0, 0, 0, port.to_le_bytes()[0], 0, 0, 0, 0, 0, 0];
        head[6..].copy_from_slice(&address.0);
        Self::Rewrite(head)
    }

    /// Edits packets. Frames too short to have addresses, or shared with another holder, stay as they are.
    #[inline(always)]
    pub fn apply(self, packets: &mut [Mbuf]) {
        match self {
            Self::Keep => {}
            Self::Rewrite(head) => {
                for mbuf in packets {
                    if let Some(addresses) = mbuf.data_mut().and_then(|data| data.first_chunk_mut::<12>()) {
                        *addresses = head;
                    }
                }
            }
            Self::Swap => {
                for mbuf in packets {
                    if let Some(addresses) = mbuf.data_mut().and_then(|data| data.first_chunk_mut::<12>()) {
                        *addresses = swapped(*addresses);
                    }
                }
            }
        }
    }
}

/// The two halves of twelve bytes exchanged, in two registers: a rotation of 96 bits by 48.
#[inline(always)]
#[must_use]
pub fn swapped(addresses: [u8; 12]) -> [u8; 12] {
    let [a, b, c, d, e, f, g, h, tail @ ..] = addresses;
    let low = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let high = u32::from_le_bytes(tail);
    let new_low = low >> 48 | u64::from(high) << 16 | low << 48;
    let new_high = (low >> 16) as u32;
    let mut new = [0; 12];
    new[..8].copy_from_slice(&new_low.to_le_bytes());
    new[8..].copy_from_slice(&new_high.to_le_bytes());
    new
}

/// What a step consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The driver's receive.
    Receive,
    /// The application's own work.
    Edit,
    /// The driver's send.
    Send,
}

/// Who watches where the time of steps goes. Nobody does as `()`, which costs nothing.
pub trait Laps {
    /// A step begins.
    fn begin(&mut self) {}

    /// A part of it ended, with so many packets; it began where the last one ended.
    fn lap(&mut self, _part: Part, _packets: usize) {}
}

impl Laps for () {}

/// One direction: from a port's rx queue to a port's tx queue.
#[derive(Debug)]
pub struct Path {
    rx: RxQueue,
    tx: TxQueue,
    edit: Edit,
    burst: Burst,
    retry: Retry,
}

impl Path {
    /// A path that holds a burst back for up to `patience` while the destination is full; the source's own
    /// queue holds what comes meanwhile.
    #[must_use]
    pub fn new(rx: RxQueue, tx: TxQueue, edit: Edit, patience: Nanos) -> Self {
        Self { rx, tx, edit, burst: Burst::new(), retry: Retry::new(patience) }
    }

    /// The queue that it polls.
    #[must_use]
    pub fn rx(&self) -> &RxQueue {
        &self.rx
    }

    /// The number of the queue that it polls.
    #[must_use]
    pub fn queue(&self) -> QueueId {
        self.rx.queue()
    }

    /// What it had to let go.
    #[must_use]
    pub fn lost(&self) -> Arc<Lost> {
        self.retry.lost()
    }

    /// Sends packets of its own, such as the first ones of a ring; what does not fit stays in `burst`.
    pub fn send(&mut self, burst: &mut Burst) {
        self.tx.tx_burst(burst);
    }

    /// One burst in, one burst out; how many packets moved. Hot: neither allocates, nor locks, nor calls the system
    /// unless a driver must.
    #[inline]
    pub fn step(&mut self, lcore: &LcoreContext) -> usize {
        self.step_with(lcore, &mut ())
    }

    /// The same, watched.
    #[inline]
    pub fn step_with(&mut self, lcore: &LcoreContext, laps: &mut impl Laps) -> usize {
        if !self.burst.is_empty() {
            return self.retry.send(lcore, &mut self.tx, &mut self.burst);
        }
        laps.begin();
        let received = self.rx.rx_burst(&mut self.burst, BURST);
        if received != 0 {
            laps.lap(Part::Receive, received);
            self.edit.apply(&mut self.burst);
            laps.lap(Part::Edit, received);
            let sent = self.tx.tx_burst(&mut self.burst);
            laps.lap(Part::Send, sent);
        }
        received
    }

    /// Empties its hands when the loop ends, with the patience that it has while it goes round.
    pub fn finish(&mut self, lcore: &LcoreContext) {
        self.retry.finish(lcore, &mut self.tx, &mut self.burst);
    }
}

impl Polled for Path {
    fn rx_queue(&mut self) -> &mut RxQueue {
        &mut self.rx
    }

    fn has_work(&self) -> bool {
        !self.burst.is_empty()
    }
}

/// Joins each rx queue to the tx queue of the same number at its port's destination. `queues` are those of the hops' sources, in their
/// order; `edit` says what becomes of the packets of a hop.
///
/// # Errors
/// [`BringupError::Usage`]: a destination has fewer tx queues than its source has rx queues, or no queues here. What `edit` answers.
pub fn paths(
    hops: &[Hop],
    queues: Vec<Queues>,
    patience: Nanos,
    mut edit: impl FnMut(Hop) -> Result<Edit, BringupError>,
) -> Result<Vec<(Path, Hop)>, BringupError> {
    let (rx, mut tx): (Vec<_>, Vec<_>) =
        queues.into_iter().map(|queues| (queues.rx, queues.tx.into_iter())).unzip();
    let mut paths = Vec::new();
    for (&hop, rx) in hops.iter().zip(rx) {
        let edit = edit(hop)?;
        let place = hops.iter().position(|other| other.from == hop.to);
        for rx in rx {
            let Some(tx) = place.and_then(|place| tx[place].next()) else {
                let problem = "has fewer tx queues than its source port has rx queues: set as many with --txq (l2fwd) or in the profile";
                return Err(BringupError::Usage(format!("port {} {problem}", hop.to)));
            };
            paths.push((Path::new(rx, tx, edit, patience), hop));
        }
    }
    Ok(paths)
}

/// Goes round the paths until asked to stop.
pub fn run(lcore: &LcoreContext, paths: &mut [Path]) {
    run_with(lcore, paths, &mut (), &mut ());
}

/// The same, watched, with something else to do than to poll while no packet arrives.
pub fn run_with(lcore: &LcoreContext, paths: &mut [Path], laps: &mut impl Laps, idle: &mut impl Idle) {
    go_round(lcore, &mut Watched { paths, laps }, idle);
}

/// Paths, and who watches their steps.
struct Watched<'a, L> {
    paths: &'a mut [Path],
    laps: &'a mut L,
}

impl<L: Laps> Rounds for Watched<'_, L> {
    type Polled = Path;

    #[inline(always)]
    fn round(&mut self, lcore: &LcoreContext) -> bool {
        let mut packets = 0;
        for path in &mut *self.paths {
            packets += path.step_with(lcore, self.laps);
        }
        packets != 0
    }

    fn polled(&mut self) -> &mut [Path] {
        self.paths
    }

    fn finish(&mut self, lcore: &LcoreContext) {
        self.paths.iter_mut().for_each(|path| path.finish(lcore));
    }
}

#[cfg(test)]
mod tests {
    use pollux_bringup::{Bringup, PortRequest};
    use pollux_config::CommandLine;
    use pollux_port::PortId;

    use super::*;

    #[test]
    fn swapping_exchanges_the_two_addresses() {
        assert_eq!(swapped([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), [7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6]);
        let odd = [0xff, 0x80, 0, 0x7f, 1, 0xfe, 0x55, 0xaa, 0, 0xff, 0x10, 0x01];
        assert_eq!(swapped(swapped(odd)), odd);
    }

    #[test]
    fn rewriting_is_dpdks() {
        let edit = Edit::l2fwd(3, MacAddress([2, 1, 2, 3, 4, 5]));
        assert_eq!(edit, Edit::Rewrite([2, 0, 0, 0, 0, 3, 2, 1, 2, 3, 4, 5]));
    }

    #[test]
    fn no_rx_queue_is_left_without_a_path() {
        let hops = [Hop { from: 0, to: 1 }, Hop { from: 1, to: 0 }];
        let joined = |tx_queues| {
            let line = "paths -l 0 --no-huge --vdev net_null0 --vdev net_null1";
            let line = CommandLine::parse(line.split(' ')).expect("a line");
            let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
            let request = PortRequest::new().queues(2).tx_queues(tx_queues);
            let (queues, _pool) = bringup.start_ports(&[PortId(0), PortId(1)], &request).expect("up");
            let mut asked = Vec::new();
            let paths = paths(&hops, queues, Nanos(1), |hop| {
                asked.push(hop.from);
                Ok(Edit::Keep)
            });
            let paths = paths.map_err(|error| error.line())?;
            assert_eq!(asked, [0, 1], "once a hop");
            Ok::<_, String>(paths.iter().map(|(path, hop)| (hop.from, path.queue().0)).collect::<Vec<_>>())
        };
        assert_eq!(joined(2), Ok(vec![(0, 0), (0, 1), (1, 0), (1, 1)]));
        let refusal = joined(1).expect_err("rx queue 1 has nowhere to send");
        assert!(refusal.starts_with("port 1 has fewer tx queues than its source port"), "{refusal}");
    }
}
