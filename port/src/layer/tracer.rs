//! A layer that tells what passes, through `tracing`, target `pollux::port::trace`.

use super::{Layer, pass_rx, pass_tx};
use crate::driver::{InBurst, Moved, RxBurst, RxSetup, TxBurst, TxSetup};
use crate::{Direction, MacAddress, QueueId};
use pollux_mempool::{Burst, Mbuf};
use std::fmt;

/// How much a tracer tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceMode {
    /// One line a packet.
    Packets,
    /// One line a queue, when its value is dropped.
    Summary,
}

/// The layer.
#[derive(Debug)]
pub struct Tracer {
    port: String,
    mode: TraceMode,
}

impl Tracer {
    /// Tells what passes at the port of that name.
    #[must_use]
    pub fn new(port: &str, mode: TraceMode) -> Self {
        Self { port: port.into(), mode }
    }

    fn trace(&self, direction: Direction, queue: QueueId) -> Trace {
        Trace {
            port: self.port.clone(),
            direction,
            queue,
            mode: self.mode,
            bursts: 0,
            moved: Moved::NONE,
            longest: 0,
        }
    }
}

impl Layer for Tracer {
    fn rx(&mut self, setup: &RxSetup, inner: Box<dyn RxBurst>) -> Box<dyn RxBurst> {
        Box::new(TracedRx { inner, trace: self.trace(Direction::Rx, setup.queue) })
    }

    fn tx(&mut self, setup: &TxSetup, inner: Box<dyn TxBurst>) -> Box<dyn TxBurst> {
        Box::new(TracedTx { inner, trace: self.trace(Direction::Tx, setup.queue), lines: Vec::new() })
    }
}

/// What is told of one queue.
struct Trace {
    port: String,
    direction: Direction,
    queue: QueueId,
    mode: TraceMode,
    bursts: u64,
    moved: Moved,
    longest: usize,
}

impl Trace {
    fn burst(&mut self, moved: Moved) {
        self.bursts += u64::from(moved.packets > 0);
        self.moved.packets += moved.packets;
        self.moved.bytes += moved.bytes;
        self.longest = self.longest.max(moved.packets);
    }

    fn tell(&self, line: &PacketLine) {
        tracing::info!(target: "lib.ethdev.trace", "{} {} {}: {line}", self.port, self.direction, self.queue);
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if self.mode == TraceMode::Summary {
            tracing::info!(
                target: "lib.ethdev.trace",
                "{} {} {}: {} packets, {} bytes in {} bursts, the longest of {}",
                self.port, self.direction, self.queue, self.moved.packets, self.moved.bytes, self.bursts, self.longest,
            );
        }
    }
}

/// What a line says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacketLine {
    bytes: u32,
    addresses: Option<(MacAddress, MacAddress, u16)>,
}

impl PacketLine {
    fn of(mbuf: &Mbuf) -> Self {
        let address = |bytes: &[u8; 14], at: usize| MacAddress(std::array::from_fn(|byte| bytes[at + byte]));
        let addresses = mbuf.data().first_chunk::<14>().map(|header| {
            (address(header, 6), address(header, 0), u16::from_be_bytes([header[12], header[13]]))
        });
        Self { bytes: mbuf.pkt_len(), addresses }
    }
}

impl fmt::Display for PacketLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)?;
        match self.addresses {
            Some((from, to, kind)) => write!(f, ", {from} > {to}, type {kind:#06x}"),
            None => f.write_str(", too short for an Ethernet header"),
        }
    }
}

#[repr(align(128))]
struct TracedRx {
    inner: Box<dyn RxBurst>,
    trace: Trace,
}

impl RxBurst for TracedRx {
    fn rx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst, max: usize) -> Moved {
        let before = burst.len();
        let moved = self.inner.rx_burst(inside, burst, max);
        if self.trace.mode == TraceMode::Packets {
            burst[before..].iter().for_each(|mbuf| self.trace.tell(&PacketLine::of(mbuf)));
        }
        self.trace.burst(moved);
        moved
    }

    pass_rx!();
}

#[repr(align(128))]
struct TracedTx {
    inner: Box<dyn TxBurst>,
    trace: Trace,
    lines: Vec<PacketLine>,
}

impl TxBurst for TracedTx {
    fn tx_burst(&mut self, inside: &InBurst<'_>, burst: &mut Burst) -> Moved {
        let before = burst.len();
        if self.trace.mode == TraceMode::Packets {
            self.lines.clear();
            self.lines.extend(burst.iter().map(PacketLine::of));
        }
        let moved = self.inner.tx_burst(inside, burst);
        if self.trace.mode == TraceMode::Packets {
            self.lines[..before - burst.len()].iter().for_each(|line| self.trace.tell(line));
        }
        self.trace.burst(moved);
        moved
    }

    pass_tx!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_who_to_whom_and_what() {
        let line = PacketLine {
            bytes: 64,
            addresses: Some((MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([0xff; 6]), 0x0806)),
        };
        assert_eq!(line.to_string(), "64 bytes, 02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, type 0x0806");
        let short = PacketLine { bytes: 3, addresses: None };
        assert_eq!(short.to_string(), "3 bytes, too short for an Ethernet header");
    }
}
