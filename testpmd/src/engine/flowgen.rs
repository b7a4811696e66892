//! flowgen: UDP datagrams of many flows, which differ in their destination. What comes back is counted and dropped.

use pollux_wire::build::Frame;
use pollux_wire::checksum;

use super::packets::{HEADERS, TxSettings};
use super::{Engine, Marks};
use crate::lane::Lane;

/// The first flow's addresses and the ports of all (DPDK: `app/test-pmd/flowgen.c`).
const SOURCE: [u8; 4] = [10, 254, 0, 0];
const DESTINATION: [u8; 4] = [10, 253, 0, 0];
const PORTS: (u16, u16) = (1000, 1001);
const MAC_SOURCE: [u8; 6] = [0, 1, 2, 3, 4, 0];
const MAC_DESTINATION: [u8; 6] = [0, 1, 2, 3, 4, 1];

/// The engine `flowgen`.
#[derive(Debug)]
pub struct Flowgen {
    settings: TxSettings,
    marks: Marks,
    headers: [u8; HEADERS],
    /// The sum of the IP header without its last address.
    sum: checksum::Sum,
    bytes: usize,
    next: u32,
}

impl Flowgen {
    /// For a stream.
    #[must_use]
    pub fn new(marks: Marks, settings: TxSettings) -> Self {
        let bytes = settings.plan.flowgen_bytes();
        let frame = Frame::ether(MAC_SOURCE, MAC_DESTINATION).ipv4(SOURCE, DESTINATION);
        let frame = frame.udp(PORTS.0, PORTS.1).payload(&vec![0; bytes - HEADERS]);
        let mut headers = [0; HEADERS];
        headers.copy_from_slice(&frame[..HEADERS]);
        headers[24..26].fill(0);
        headers[40..42].fill(0);
        let sum = checksum::Sum::of(&headers[14..30]);
        Self { settings, marks, headers, sum, bytes, next: 0 }
    }

    /// Takes the next flow into the headers.
    #[inline(always)]
    fn advance(&mut self) {
        let address = u32::from_be_bytes(DESTINATION).wrapping_add(self.next).to_be_bytes();
        self.headers[30..34].copy_from_slice(&address);
        let sum = !self.sum.add_bytes(&address).fold();
        self.headers[24..26].copy_from_slice(&sum.to_be_bytes());
        self.step(1);
    }

    #[inline(always)]
    fn step(&mut self, count: u32) {
        self.next += count;
        if self.next >= self.settings.plan.flows {
            self.next %= self.settings.plan.flows;
        }
    }
}

impl Engine for Flowgen {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        lane.receive();
        lane.burst.clear();
        lane.made();
        // A packet and its copies.
        let each = (self.settings.plan.clones + 1).min(lane.size);
        let wanted = lane.size.div_ceil(each);
        self.settings.pool.alloc_received(&mut lane.burst, wanted, self.bytes, u16::MAX);
        for at in 0..lane.burst.len() {
            self.advance();
            if let Some(front) = lane.burst[at].data_mut().and_then(|data| data.first_chunk_mut::<HEADERS>())
            {
                *front = self.headers;
            }
        }
        if each > 1 {
            self.copy(lane, each);
        }
        self.marks.put(lane.packets());
        let made = lane.burst.len();
        let sent = lane.send();
        if sent < made {
            // The flows of those that were not taken come again.
            let flows = self.settings.plan.flows;
            self.step(flows - ((made - sent) as u32 / each as u32) % flows);
        }
        sent
    }

    fn has_work(&self) -> bool {
        true
    }
}

impl Flowgen {
    /// Adds the copies: mbufs that share the data of the first.
    #[cold]
    fn copy(&mut self, lane: &mut Lane, each: usize) {
        let originals = lane.burst.len();
        for at in 0..originals {
            for _ in 1..each {
                if lane.burst.len() == lane.size {
                    return;
                }
                let Some(copy) = lane.burst[at].clone_indirect(&self.settings.pool) else { return };
                self.step(1);
                lane.burst.push(copy);
            }
        }
    }
}
