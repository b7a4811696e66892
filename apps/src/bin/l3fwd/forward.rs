//! l3fwd's loop: a burst in, one look-up for all of it, bursts out.
//!
//! ```text
//!   rx queue ─► check ─► keys ─► table, of one version ─► places of ports ─► addresses ─► outputs, a tx queue for each port
//!                 └─► drops, by reason                         └─► no route
//! ```
//!
//! An lcore owns its rx queues and a tx queue of every port, and goes round them (`pollux_kit::rounds`). It neither allocates, nor locks, nor
//! calls the system unless a driver must.

use std::sync::Arc;

use pollux_eal::LcoreContext;
use pollux_eal::barrier::prefetch_read;
use pollux_eal::clock::Nanos;
use pollux_eal::rcu::Reader;
use pollux_kit::Polled;
use pollux_kit::rounds::Rounds;
use pollux_mempool::{BURST_MAX, Burst, MbufPool};
use pollux_port::RxQueue;

use crate::count::{QueueCounts, Reason};
use crate::output::Output;
use crate::packet::{self, Ip};
use crate::table::{DENIED, NO_ROUTE, Table};

/// How far ahead of the packet that is checked the data of others is fetched.
const AHEAD: usize = 4;
/// How long full ports are waited for at the end.
const PATIENCE: Nanos = Nanos(100_000_000);
/// In place of a port: the packet is dropped, and counted already.
const DROPPED: u32 = u32::MAX - 2;

/// An rx queue.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) rx: RxQueue,
    pub(crate) counts: Arc<QueueCounts>,
}

impl Polled for Input {
    fn rx_queue(&mut self) -> &mut RxQueue {
        &mut self.rx
    }
}

/// What an lcore forwards between.
pub(crate) struct Lane<T: Table> {
    pub(crate) inputs: Vec<Input>,
    /// By the place of the port.
    pub(crate) outputs: Vec<Output>,
    pub(crate) table: Reader<T>,
    /// For copies of packets that may not be written.
    pub(crate) pool: MbufPool,
    /// What is under way; empty between rounds.
    pub(crate) burst: Burst,
    /// Packets received at once.
    pub(crate) size: usize,
    pub(crate) scratch: Scratch<T>,
}

/// What a burst is looked up with. Only the front of each is ever read, and that is written before.
pub(crate) struct Scratch<T: Table> {
    keys4: [T::Key4; BURST_MAX],
    keys6: [T::Key6; BURST_MAX],
    /// Where in the burst each key is from.
    from4: [u8; BURST_MAX],
    from6: [u8; BURST_MAX],
    found: [u32; BURST_MAX],
    /// By the packets' order: the place of a port, or why there is none.
    hops: [u32; BURST_MAX],
}

impl<T: Table> Default for Scratch<T> {
    fn default() -> Self {
        Self {
            keys4: [T::Key4::default(); BURST_MAX],
            keys6: [T::Key6::default(); BURST_MAX],
            from4: [0; BURST_MAX],
            from6: [0; BURST_MAX],
            found: [0; BURST_MAX],
            hops: [0; BURST_MAX],
        }
    }
}

impl<T: Table> Scratch<T> {
    /// Checks the packets of the usual kind at the front of the burst; how many they are. The key of each is at its packet's place.
    #[inline(always)]
    fn usual(&mut self, burst: &mut Burst) -> usize {
        let mbufs = &mut burst[..];
        for at in 0..mbufs.len().min(BURST_MAX) {
            if let Some(ahead) = mbufs.get(at + AHEAD) {
                prefetch_read(ahead.data_ptr());
            }
            let Some(packet) = packet::usual(&mut mbufs[at]) else { return at };
            self.keys4[at] = T::key4(&packet);
        }
        mbufs.len()
    }

    /// Says in `hops` where each packet of the burst goes.
    #[inline(always)]
    fn route(&mut self, burst: &mut Burst, table: &T, pool: &MbufPool, counts: &QueueCounts) {
        let all = burst.len();
        let usual = self.usual(burst);
        if usual == all {
            return table.find4(&self.keys4[..all], &mut self.hops);
        }
        let (mut four, mut six) = (usual, 0);
        for (at, from) in self.from4[..usual].iter_mut().enumerate() {
            *from = at as u8;
        }
        for at in usual..all {
            if let Some(ahead) = burst.get(at + AHEAD) {
                prefetch_read(ahead.data_ptr());
            }
            let checked = packet::check(&mut burst[at], pool).and_then(|packet| {
                match packet {
                    Ip::V4(packet) => {
                        self.keys4[four] = T::key4(&packet);
                        self.from4[four] = at as u8;
                        four += 1;
                    }
                    Ip::V6(packet) => {
                        self.keys6[six] = T::key6(&packet)?;
                        self.from6[six] = at as u8;
                        six += 1;
                    }
                }
                Ok(())
            });
            if let Err(reason) = checked {
                counts.dropped(reason);
                self.hops[at] = DROPPED;
            }
        }
        let (found, hops) = (&mut self.found, &mut self.hops);
        find_each(&self.keys4[..four], &self.from4, found, hops, all, |keys, found| table.find4(keys, found));
        find_each(&self.keys6[..six], &self.from6, found, hops, all, |keys, found| table.find6(keys, found));
    }
}

/// Looks up the keys of a family, and puts what is found to the packets that they are of, those at `from` among `all`.
#[inline(always)]
fn find_each<K>(
    keys: &[K],
    from: &[u8; BURST_MAX],
    found: &mut [u32; BURST_MAX],
    hops: &mut [u32; BURST_MAX],
    all: usize,
    look_up: impl FnOnce(&[K], &mut [u32]),
) {
    if keys.is_empty() {
        return;
    }
    if keys.len() == all {
        // Each is where its packet is.
        return look_up(keys, hops);
    }
    look_up(keys, found);
    for (from, found) in from.iter().zip(&found[..keys.len()]) {
        hops[usize::from(*from) % BURST_MAX] = *found;
    }
}

/// Hands a burst to the ports; it is empty afterwards.
#[inline(always)]
fn hand_out(burst: &mut Burst, hops: &[u32], outputs: &mut [Output], counts: &QueueCounts) {
    let Some(first) = hops.first() else { return };
    let differ = hops.iter().fold(0, |differ, hop| differ | (hop ^ first));
    if differ == 0
        && let Some(output) = outputs.get_mut(*first as usize)
    {
        counts.routed(*first as usize, burst.len());
        let lost = output.take(burst);
        if lost > 0 {
            counts.lost(*first as usize, lost, output.is_gone());
        }
        return;
    }
    for (mbuf, hop) in burst.drain(..).zip(hops) {
        let place = *hop as usize;
        if let Some(output) = outputs.get_mut(place) {
            counts.routed(place, 1);
            if !output.push(mbuf) {
                counts.lost(place, 1, output.is_gone());
            }
        } else {
            match *hop {
                NO_ROUTE => counts.dropped(Reason::NoRoute),
                DENIED => counts.dropped(Reason::Denied),
                _ => {}
            }
        }
    }
}

impl<T: Table> Rounds for Lane<T> {
    type Polled = Input;

    /// A burst of each queue in, bursts to the ports out.
    #[inline(always)]
    fn round(&mut self, _: &LcoreContext) -> bool {
        let mut moved = 0;
        for Input { rx, counts } in &mut self.inputs {
            let received = rx.rx_burst(&mut self.burst, self.size);
            if received != 0 {
                self.scratch.route(&mut self.burst, self.table.pass(), &self.pool, counts);
                hand_out(&mut self.burst, &self.scratch.hops[..received], &mut self.outputs, counts);
            }
            moved += received;
        }
        for output in &mut self.outputs {
            moved += output.flush();
        }
        moved != 0
    }

    fn polled(&mut self) -> &mut [Input] {
        &mut self.inputs
    }

    fn holds(&self) -> bool {
        self.outputs.iter().any(Output::holds)
    }

    /// Sends what ports did not take before, or drops it.
    fn finish(&mut self, lcore: &LcoreContext) {
        let begun = lcore.clock().now();
        let patience = lcore.clock().cycles(PATIENCE);
        while self.holds() && lcore.clock().now() - begun < patience {
            for output in &mut self.outputs {
                output.flush();
            }
        }
        for (place, output) in self.outputs.iter_mut().enumerate() {
            let (left, gone) = (output.give_up(), output.is_gone());
            if let (1.., Some(input)) = (left, self.inputs.first()) {
                input.counts.lost(place, left, gone);
            }
        }
    }
}
