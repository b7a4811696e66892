//! txonly: UDP datagrams to the discard port (RFC 863), between test addresses (RFC 2544).

use pollux_kit::Noise;
use pollux_mempool::Mbuf;
use pollux_wire::build::Frame;
use pollux_wire::checksum;

use super::packets::{HEADERS, TxSettings, TxSplit};
use super::{Ends, Engine, Marks};
use crate::lane::Lane;

/// The lowest of the source ports that flows differ in (DPDK: `app/test-pmd/txonly.c`).
const FIRST_FLOW: u16 = 0xc0;

/// The engine `txonly`.
#[derive(Debug)]
pub struct TxOnly {
    settings: TxSettings,
    marks: Marks,
    headers: [u8; HEADERS],
    /// What tells the packets of this stream's lcore apart.
    lcore: u8,
    flow: u16,
    noise: Noise,
}

impl TxOnly {
    /// For a stream with these ends, on an lcore of that number.
    #[must_use]
    pub fn new(ends: &Ends, marks: Marks, settings: TxSettings, lcore: u8) -> Self {
        let (ip, udp) = (settings.plan.ip, settings.plan.udp);
        let payload = vec![0; settings.plan.bytes().saturating_sub(HEADERS)];
        let frame = Frame::ether(ends.source, ends.peer).ipv4(ip.0, ip.1).udp(udp.0, udp.1).payload(&payload);
        let mut headers = [0; HEADERS];
        headers.copy_from_slice(&frame[..HEADERS]);
        // No UDP checksum: none is needed over IPv4 (RFC 768), and flows differ in a port.
        headers[40..42].fill(0);
        Self { settings, marks, headers, lcore, flow: 0, noise: Noise::new(u64::from(lcore) + 1) }
    }

    /// Chains the further segments; false: the pool is empty.
    #[cold]
    fn chain(&mut self, mbuf: &mut Mbuf) -> bool {
        let most = self.settings.plan.segments.len();
        let count = match self.settings.plan.split {
            TxSplit::Off | TxSplit::On => most,
            TxSplit::Random => 1 + (self.noise.draw() % most as u64) as usize,
        };
        for &bytes in &self.settings.plan.segments[1..count] {
            let Some(mut tail) = self.settings.pool.alloc() else { return false };
            if !tail.set_len(usize::from(bytes)) || mbuf.chain(tail).is_err() {
                return false;
            }
        }
        if self.settings.plan.split == TxSplit::Random {
            let bytes = mbuf.pkt_len() as usize;
            if let Some(headers) = mbuf.data_mut().and_then(|data| data.first_chunk_mut::<HEADERS>()) {
                set_length(headers, bytes);
            }
        }
        true
    }

    /// Gives the packet a flow of its own.
    #[inline(always)]
    fn vary(&mut self, headers: &mut [u8; HEADERS], flows: u16) {
        headers[34] = (FIRST_FLOW + self.flow % flows) as u8;
        headers[35] = self.lcore;
        self.flow = self.flow.wrapping_add(1);
    }
}

/// Writes the lengths of a packet of `bytes` bytes, and the sum of the IP header.
fn set_length(headers: &mut [u8; HEADERS], bytes: usize) {
    let (ip, udp) = ((bytes - 14) as u16, (bytes - 34) as u16);
    headers[16..18].copy_from_slice(&ip.to_be_bytes());
    headers[38..40].copy_from_slice(&udp.to_be_bytes());
    headers[24..26].fill(0);
    let sum = checksum::of(&headers[14..34]);
    headers[24..26].copy_from_slice(&sum.to_be_bytes());
}

impl Engine for TxOnly {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        lane.made();
        let first = usize::from(self.settings.plan.segments[0]);
        self.settings.pool.alloc_received(&mut lane.burst, lane.size, first, u16::MAX);
        let mut headers = self.headers;
        let mut whole = 0;
        for at in 0..lane.burst.len() {
            if let Some(flows) = self.settings.plan.multi_flow {
                self.vary(&mut headers, flows);
            }
            let mbuf = &mut lane.burst[at];
            if let Some(front) = mbuf.data_mut().and_then(|data| data.first_chunk_mut::<HEADERS>()) {
                *front = headers;
            }
            if self.settings.plan.segments.len() > 1 && !self.chain(mbuf) {
                break;
            }
            whole += 1;
        }
        while lane.burst.len() > whole {
            drop(lane.burst.pop());
        }
        self.marks.put(lane.packets());
        lane.send()
    }

    fn has_work(&self) -> bool {
        true
    }
}
