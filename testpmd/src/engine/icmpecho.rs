//! icmpecho: answers ARP requests and ICMP echo requests, whatever address they are for; drops all else.

use std::net::Ipv4Addr;

use pollux_mempool::Mbuf;
use pollux_port::{MacAddress, PacketMut};
use pollux_wire::{IpProtocol, icmp};

use super::{Ends, Engine};
use crate::lane::Lane;

/// The engine `icmpecho`.
#[derive(Debug)]
pub struct IcmpEcho {
    address: MacAddress,
}

impl IcmpEcho {
    /// For a stream with these ends.
    #[must_use]
    pub fn new(ends: &Ends) -> Self {
        Self { address: ends.source }
    }
}

impl Engine for IcmpEcho {
    #[inline]
    fn round(&mut self, lane: &mut Lane) -> usize {
        let received = lane.receive();
        if received != 0 {
            let address = self.address;
            lane.burst.retain(|mbuf| mbuf.answer_arp(|_| true, address) || answer_echo(mbuf));
            if !lane.burst.is_empty() {
                lane.send();
            }
        }
        received
    }
}

/// Turns an echo request into its reply; false: it is none.
fn answer_echo(mbuf: &mut Mbuf) -> bool {
    let Some(mut ip) = mbuf.ipv4_mut() else { return false };
    if ip.protocol() != IpProtocol::ICMP {
        return false;
    }
    let (asking, asked) = (ip.src(), ip.dst());
    let Some(mut message) = ip.icmp_mut() else { return false };
    if message.kind != icmp::ECHO_REQUEST || message.code != 0 {
        return false;
    }
    message.set_kind(icmp::ECHO_REPLY, 0);
    ip.set_src(if asked.is_multicast() { neighbour(asking) } else { asked });
    ip.set_dst(asking);
    let Some(mut ether) = mbuf.ether_mut() else { return false };
    ether.swap();
    true
}

/// Nobody answers from a group address: another host of the asking one's network of four (DPDK: `app/test-pmd/icmpecho.c`).
fn neighbour(asking: Ipv4Addr) -> Ipv4Addr {
    let bits = asking.to_bits();
    Ipv4Addr::from_bits(bits & !3 | if bits & 3 == 1 { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use pollux_mempool::MbufPool;
    use pollux_port::FrameSource;
    use pollux_wire::build::Frame;
    use pollux_wire::{Arp, ArpRepr, Icmp, Ipv4};

    use super::*;
    use pollux_wire::arp;

    const ASKING: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);

    fn pool() -> MbufPool {
        MbufPool::builder("echo", 128).build_anonymous().expect("memory")
    }

    #[test]
    fn an_arp_request_is_answered_and_a_reply_is_not() {
        let request = ArpRepr {
            operation: arp::REQUEST,
            sender_mac: ASKING.into(),
            sender_ip: [10, 0, 0, 9].into(),
            target_mac: [0; 6].into(),
            target_ip: [10, 0, 0, 1].into(),
        };
        let frame = Frame::ether(ASKING, [0xff; 6]).arp(&request);
        let mut mbuf = pool().alloc_frame(&frame).expect("an mbuf");
        assert!(mbuf.answer_arp(|_| true, OWN));
        let reply = Arp::new(&mbuf.data()[14..]).expect("ARP").repr();
        assert_eq!(reply, request.reply(OWN));
        assert_eq!((&mbuf.data()[..6], &mbuf.data()[6..12]), (&ASKING[..], &OWN.0[..]));
        assert!(!mbuf.answer_arp(|_| true, OWN), "no answer to an answer");
    }

    #[test]
    fn a_ping_is_answered_with_right_sums() {
        for (asked, answers) in [([10, 0, 0, 1], [10, 0, 0, 1]), ([224, 0, 0, 1], [10, 0, 0, 2])] {
            let frame =
                Frame::ether(ASKING, OWN).ipv4([10, 0, 0, 1], asked).echo_request(7, 3, b"how are you");
            let mut mbuf = pool().alloc_frame(&frame).expect("an mbuf");
            assert!(answer_echo(&mut mbuf));
            let ip = Ipv4::new(&mbuf.data()[14..]).expect("IPv4");
            assert!(ip.checksum_ok());
            assert_eq!((ip.src(), ip.dst()), (answers.into(), [10, 0, 0, 1].into()));
            let message = Icmp::new(ip.payload()).expect("ICMP");
            assert!(message.checksum_ok());
            assert_eq!((message.kind, message.ident.get(), message.seq.get()), (icmp::ECHO_REPLY, 7, 3));
            assert!(!answer_echo(&mut mbuf), "no answer to an answer");
        }
    }
}
