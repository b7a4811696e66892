//! noisy: what a busy neighbour on the same machine does to a forwarder. Packets are kept in a queue before they leave, and memory
//! is walked over at random, so many reads and writes a packet.

use std::collections::VecDeque;

use pollux_eal::clock::cycles;
use pollux_kit::Noise;
use pollux_kit::forward::Edit;
use pollux_mempool::{BURST_MAX, Mbuf};

use super::{Ends, Engine, FiveTupleSwap, Marks};
use crate::lane::{Count, Lane};

/// What becomes of the packets themselves (`--noisy-forward-mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoisyForward {
    /// Nothing.
    #[default]
    Io,
    /// As `mac`.
    Mac,
    /// As `macswap`.
    MacSwap,
    /// As `5tswap`.
    FiveTupleSwap,
}

impl NoisyForward {
    /// By DPDK's name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "io" => Some(Self::Io),
            "mac" => Some(Self::Mac),
            "macswap" => Some(Self::MacSwap),
            "5tswap" => Some(Self::FiveTupleSwap),
            _ => None,
        }
    }
}

/// How noisy it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoisySettings {
    /// Packets that are kept back (`--noisy-tx-sw-buffer-size`); 0: none.
    pub buffer: usize,
    /// Milliseconds after which they leave all the same (`--noisy-tx-sw-buffer-flushtime`); 0: never.
    pub flush_ms: u64,
    /// Bytes of memory that is walked over (`--noisy-lkup-memory`, in MiB there).
    pub memory_bytes: usize,
    /// Reads a packet.
    pub reads: u32,
    /// Writes a packet.
    pub writes: u32,
    /// Reads with a write each, a packet.
    pub reads_writes: u32,
    /// What becomes of the packets.
    pub forward: NoisyForward,
}

/// The engine `noisy`.
#[derive(Debug)]
pub struct Noisy {
    settings: NoisySettings,
    head: [u8; 12],
    marks: Marks,
    memory: Vec<u8>,
    /// Packets, and when each was received.
    kept: VecDeque<(Mbuf, u64)>,
    /// When those of the burst that is about to be sent were.
    arrived: Vec<u64>,
    noise: Noise,
    /// Cycles after which what is kept leaves.
    patience: u64,
    since: u64,
}

impl Noisy {
    /// For a stream with these ends, on a clock of `hz`.
    #[must_use]
    pub fn new(ends: &Ends, marks: Marks, settings: NoisySettings, hz: u64) -> Self {
        Self {
            settings,
            head: ends.head(),
            marks,
            memory: vec![0; settings.memory_bytes],
            // Room for what comes in one burst beyond.
            kept: VecDeque::with_capacity(settings.buffer + BURST_MAX),
            arrived: Vec::with_capacity(BURST_MAX),
            noise: Noise::new(0x706f_6c6c_7578),
            patience: hz / 1000 * settings.flush_ms,
            since: cycles::now(),
        }
    }

    fn edit(&mut self, packets: &mut [Mbuf]) {
        match self.settings.forward {
            NoisyForward::Io => {}
            NoisyForward::Mac => Edit::Rewrite(self.head).apply(packets),
            NoisyForward::MacSwap => Edit::Swap.apply(packets),
            NoisyForward::FiveTupleSwap => FiveTupleSwap::edit(packets),
        }
        self.marks.put(packets);
    }

    /// Reads and writes, for so many packets.
    fn walk(&mut self, packets: usize) {
        let NoisySettings { reads, writes, reads_writes, .. } = self.settings;
        for _ in 0..packets {
            for _ in 0..writes + reads_writes {
                let (place, value) = (self.place(), self.noise.draw() as u8);
                self.memory[place] = value;
            }
            for _ in 0..reads + reads_writes {
                let place = self.place();
                std::hint::black_box(self.memory[place]);
            }
        }
    }

    #[inline]
    fn place(&mut self) -> usize {
        (self.noise.draw() % self.memory.len() as u64) as usize
    }

    /// Sends up to `count` of those kept the longest.
    fn release(&mut self, lane: &mut Lane, count: usize) -> usize {
        let mut moved = 0;
        while moved < count && !self.kept.is_empty() {
            let burst = (count - moved).min(BURST_MAX).min(self.kept.len());
            self.arrived.clear();
            for (mbuf, at) in self.kept.drain(..burst) {
                lane.burst.push(mbuf);
                self.arrived.push(at);
            }
            moved += burst;
            lane.send_kept(&self.arrived);
        }
        moved
    }
}

impl Engine for Noisy {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        let received = lane.receive();
        if received != 0 {
            self.edit(lane.packets());
            if !self.memory.is_empty() {
                self.walk(received);
            }
        }
        if self.settings.buffer == 0 {
            if received != 0 {
                lane.send();
            }
            return received;
        }
        let at = lane.received_at();
        self.kept.extend(lane.burst.drain(..).map(|mbuf| (mbuf, at)));
        let beyond = self.kept.len().saturating_sub(self.settings.buffer);
        let mut moved = self.release(lane, beyond);
        if moved != 0 {
            self.since = cycles::now();
        } else if self.patience != 0 && cycles::now().wrapping_sub(self.since) >= self.patience {
            moved = self.release(lane, usize::MAX);
            self.since = cycles::now();
        }
        received.max(moved)
    }

    /// What is kept leaves by the clock.
    fn has_work(&self) -> bool {
        self.patience != 0 && !self.kept.is_empty()
    }

    fn finish(&mut self, lane: &mut Lane) {
        // Not sent: whoever stops forwarding wants it stopped.
        lane.counters.add(Count::Dropped, self.kept.len() as u64);
        self.kept.clear();
    }
}
