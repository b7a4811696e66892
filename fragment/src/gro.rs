//! GRO: joining packets of TCP that carry on from each other.

mod shape;

use pollux_mempool::Mbuf;

use crate::gro::shape::{Look, Segment};

bitflags::bitflags! {
    /// What is joined.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct GroKinds: u8 {
        /// TCP over IPv4.
        const TCP_IPV4 = 1;
        /// TCP over IPv6.
        const TCP_IPV6 = 1 << 1;
        /// The same inside VXLAN, VXLAN-GPE, GENEVE, GRE and IP in IP.
        const TUNNELS = 1 << 2;
    }
}

/// Joins packets of TCP connections as their payload follows, in order of arrival or not. What it gives back is what a sender whose packets
/// are not cut would have sent: cut again into pieces of that size, it becomes the same packets, if these were all of one size.
///
/// Joined are packets that differ in nothing but lengths, sequence numbers, checksums and identification: addresses, ports, acknowledged
/// sequence, window, options, traffic class, hop limit and tags are equal. Further,
///
/// - nothing is joined behind PSH or FIN, nor a packet with CWR to one before it; SYN, RST and URG, and packets without payload, are
///   not joined and let go first what is held of their connection, so that it keeps its order;
/// - IPv4 identification counts up from packet to packet, unless the don't-fragment bit is set (RFC 6864);
/// - no packet becomes longer than its length field can say.
///
/// TCP with options of IP, extension headers or in fragments is not looked into: it goes before what is held of its connection.
///
/// Payload is not read. The checksum of TCP is made of those of its pieces, so one that was wrong leaves a wrong one; a packet whose IPv4
/// header checksum is wrong is not joined. Open checksums stay open, and are joined with each other alone.
///
/// Memory: room for the packets that are held, taken at the start. Each packet costs a look at those that are held, and bounded work.
#[derive(Debug)]
pub struct Gro {
    kinds: GroKinds,
    packets: usize,
    segments: usize,
    held: Vec<Held>,
    joined: u64,
}

#[derive(Debug)]
struct Held {
    segment: Segment,
    since: u64,
    /// It goes at the next [`Gro::flush`], however old.
    ripe: bool,
}

impl Gro {
    /// Holds at most `packets` at once, each of at most `segments` mbufs (ports send chains of a limited length).
    #[must_use]
    #[doc(alias = "rte_gro_ctx_create")]
    pub fn new(kinds: GroKinds, packets: usize, segments: usize) -> Self {
        Self { kinds, packets, segments, held: Vec::with_capacity(packets), joined: 0 }
    }

    /// Takes a packet, at a time in a unit of the caller's. It is held, joined to one that is, or put into `out`, as is what has to go
    /// before it: at most one more than are held. Headers must lie in the first mbuf.
    #[doc(alias = "rte_gro_reassemble")]
    pub fn push(&mut self, packet: Mbuf, now: u64, out: &mut Vec<Mbuf>) {
        let segment = match shape::look(packet, self.kinds) {
            Look::Other(packet) => return out.push(packet),
            Look::Apart(packet, flow) => {
                self.release(|held| held.segment.flow == flow, out);
                return out.push(packet);
            }
            Look::Segment(segment) => segment,
        };
        let (flow, ripe) = (segment.flow, segment.ends());
        let most = self.segments;
        let before = self.held.iter().position(|held| held.segment.carries_on_with(&segment, most));
        let at = match before {
            Some(at) => {
                self.held[at].segment.join(segment);
                self.joined += 1;
                at
            }
            None if self.packets == 0 => return out.push(segment.finish()),
            None => {
                if self.held.len() == self.packets {
                    // The oldest makes room.
                    out.push(self.held.remove(0).segment.finish());
                }
                self.held.push(Held { segment, since: now, ripe });
                self.held.len() - 1
            }
        };
        // A gap may be filled.
        let behind =
            self.held.iter().position(|held| self.held[at].segment.carries_on_with(&held.segment, most));
        if let Some(behind) = behind {
            let tail = self.held.remove(behind);
            // What stood before the removed one kept its place.
            let head = &mut self.held[at - usize::from(behind < at)];
            head.since = head.since.min(tail.since);
            head.ripe |= tail.ripe;
            head.segment.join(tail.segment);
            self.joined += 1;
        }
        if ripe {
            self.held.iter_mut().filter(|held| held.segment.flow == flow).for_each(|held| held.ripe = true);
        }
    }

    /// Puts what was first held at `until` or before into `out`, and connections of which PSH or FIN came: how many packets. In the order in
    /// which they came; `u64::MAX` takes all.
    #[doc(alias = "rte_gro_timeout_flush")]
    pub fn flush(&mut self, until: u64, out: &mut Vec<Mbuf>) -> usize {
        self.release(|held| held.ripe || held.since <= until, out)
    }

    fn release(&mut self, mut goes: impl FnMut(&Held) -> bool, out: &mut Vec<Mbuf>) -> usize {
        let before = out.len();
        out.extend(self.held.extract_if(.., |held| goes(held)).map(|held| held.segment.finish()));
        out.len() - before
    }

    /// Packets that are held.
    #[must_use]
    #[doc(alias = "rte_gro_get_pkt_count")]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Packets that were joined to others so far.
    #[must_use]
    pub fn joined(&self) -> u64 {
        self.joined
    }
}

#[cfg(test)]
mod tests;
