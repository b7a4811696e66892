//! Headers of mbufs, changed in place, and mbufs made of a template.

use std::net::Ipv4Addr;

use pollux_mempool::{Burst, Mbuf, MbufPool, TxFlags};
use pollux_wire::edit::{self, ArpMut, EtherMut, Ipv4Mut, Ipv6Mut, VlanMut};
use pollux_wire::{MacAddress, arp};

/// Views of the headers at the front of an mbuf, whose setters keep checksums right: whole ones, those that the mbuf's flags leave to
/// the device or to software in front of it, and those that are absent (UDP). Each is `None` when the mbuf has no such header in its
/// first segment, or when somebody else holds the data, too ([`Mbuf::is_sole`]); of IPv6 also where a routing header stands in front of TCP
/// or UDP, whose checksum covers another destination then.
///
/// ```
/// use std::net::Ipv4Addr;
///
/// use pollux_mempool::{Mbuf, MbufPool};
/// use pollux_port::{FrameSource, PacketMut};
/// use pollux_wire::build::Frame;
///
/// /// Source NAT.
/// fn translate(mbuf: &mut Mbuf, to: Ipv4Addr, port: u16) -> Option<()> {
///     // What is neither TCP nor UDP stays as it was.
///     mbuf.ipv4_mut()?.translate_src(to, port).then_some(())
/// }
///
/// let pool = MbufPool::builder("packets", 512).build_anonymous()?;
/// let frame = Frame::ether([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1024, 9).payload(b"hello");
/// let mut mbuf = pool.alloc_frame(&frame).expect("an mbuf");
/// assert!(translate(&mut mbuf, [192, 0, 2, 7].into(), 5000).is_some());
/// assert_eq!(mbuf.data()[26..30], [192, 0, 2, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait PacketMut {
    /// The Ethernet header.
    fn ether_mut(&mut self) -> Option<EtherMut<'_>>;

    /// The outermost VLAN tag among the data. A tag that a device has stripped is no longer there.
    fn vlan_mut(&mut self) -> Option<VlanMut<'_>>;

    /// An ARP packet for IPv4 over Ethernet.
    fn arp_mut(&mut self) -> Option<ArpMut<'_>>;

    /// The IPv4 packet; of one in a tunnel, the outer one. Hot: the headers are looked at on each call.
    fn ipv4_mut(&mut self) -> Option<Ipv4Mut<'_>>;

    /// The IPv6 packet; as [`ipv4_mut`](Self::ipv4_mut).
    fn ipv6_mut(&mut self) -> Option<Ipv6Mut<'_>>;

    /// Turns an ARP request for an address that `is_ours` into the reply of the station at `mac`, to whoever asked. `false`, and nothing
    /// changed: it is none.
    #[inline]
    fn answer_arp(&mut self, is_ours: impl FnOnce(Ipv4Addr) -> bool, mac: impl Into<MacAddress>) -> bool {
        let Some(mut arp) = self.arp_mut() else { return false };
        if arp.operation.get() != arp::REQUEST || !is_ours(arp.target_ip()) {
            return false;
        }
        let mac = mac.into();
        arp.set_reply(mac);
        let Some(mut ether) = self.ether_mut() else { return false };
        ether.swap();
        ether.set_src(mac);
        true
    }
}

/// Whether the checksum of the outermost TCP or UDP header is still to be completed. In a packet with a tunnel the flags of layer 4
/// are of the inner one. Source: DPDK `lib/mbuf/rte_mbuf_core.h`, `RTE_MBUF_F_TX_TUNNEL_MASK`.
#[inline]
fn leaves_sum_open(mbuf: &Mbuf) -> bool {
    let flags = mbuf.tx_flags();
    let upper = TxFlags::L4_MASK | TxFlags::TCP_SEGMENTATION | TxFlags::UDP_SEGMENTATION;
    // Most packets ask for nothing.
    flags.intersects(upper | TxFlags::TUNNEL_MASK)
        && if flags.intersects(TxFlags::TUNNEL_MASK) {
            flags.contains(TxFlags::OUTER_UDP_CHECKSUM)
        } else {
            flags.intersects(upper)
        }
}

impl PacketMut for Mbuf {
    #[inline]
    fn ether_mut(&mut self) -> Option<EtherMut<'_>> {
        edit::ether_mut(self.data_mut()?)
    }

    #[inline]
    fn vlan_mut(&mut self) -> Option<VlanMut<'_>> {
        edit::vlan_mut(self.data_mut()?)
    }

    #[inline]
    fn arp_mut(&mut self) -> Option<ArpMut<'_>> {
        edit::arp_mut(self.data_mut()?)
    }

    #[inline]
    fn ipv4_mut(&mut self) -> Option<Ipv4Mut<'_>> {
        let open = leaves_sum_open(self);
        edit::ipv4_mut(self.data_mut()?, open)
    }

    #[inline]
    fn ipv6_mut(&mut self) -> Option<Ipv6Mut<'_>> {
        let open = leaves_sum_open(self);
        edit::ipv6_mut(self.data_mut()?, open)
    }
}

/// Mbufs that begin as a copy of a frame, such as one of [`build`](pollux_wire::build).
pub trait FrameSource {
    /// One mbuf that holds `frame`; `None`: the pool is empty, or an mbuf of it has less room.
    fn alloc_frame(&self, frame: &[u8]) -> Option<Mbuf>;

    /// Adds up to `count` mbufs that each hold `frame`; tells how many: as many as the pool has and the burst has room for; 0 if an
    /// mbuf has less room than `frame` has bytes.
    fn alloc_frames(&self, burst: &mut Burst, count: usize, frame: &[u8]) -> usize;
}

impl FrameSource for MbufPool {
    #[inline]
    fn alloc_frame(&self, frame: &[u8]) -> Option<Mbuf> {
        let mut mbuf = self.alloc()?;
        mbuf.append_slice(frame).then_some(mbuf)
    }

    #[inline]
    fn alloc_frames(&self, burst: &mut Burst, count: usize, frame: &[u8]) -> usize {
        let before = burst.len();
        let added = self.alloc_up_to(burst, count);
        // One that has no room stands for all: they are of one pool.
        if burst.iter_mut().skip(before).all(|mbuf| mbuf.append_slice(frame)) {
            return added;
        }
        while burst.len() > before {
            drop(burst.pop());
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pollux_wire::arp::ArpRepr;
    use pollux_wire::build::Frame;
    use pollux_wire::checksum::pseudo_v4;
    use pollux_wire::{IpProtocol, Ipv4, Udp};

    const FROM: [u8; 4] = [10, 0, 0, 1];
    const TO: [u8; 4] = [10, 0, 0, 2];
    const NEW: [u8; 4] = [192, 0, 2, 7];

    fn pool() -> MbufPool {
        MbufPool::builder("packets", 512).build_anonymous().expect("memory")
    }

    fn frame() -> Frame {
        Frame::ether([2; 6], [4; 6]).ipv4(FROM, TO).udp(1024, 9).payload(b"hello")
    }

    #[test]
    fn flags_say_what_the_checksum_is() {
        let pool = pool();
        let outer = TxFlags::TUNNEL_VXLAN | TxFlags::UDP_CHECKSUM;
        for (flags, open) in [
            (TxFlags::empty(), false),
            (TxFlags::IPV4 | TxFlags::IP_CHECKSUM, false),
            (TxFlags::IPV4 | TxFlags::UDP_CHECKSUM, true),
            (TxFlags::IPV4 | TxFlags::UDP_SEGMENTATION, true),
            // The inner packet's.
            (outer, false),
            (outer | TxFlags::OUTER_UDP_CHECKSUM, true),
        ] {
            let mut frame = frame();
            if open {
                let sum = pseudo_v4(FROM.into(), TO.into(), IpProtocol::UDP, 13).fold();
                frame[40..42].copy_from_slice(&sum.to_be_bytes());
            }
            let mut mbuf = pool.alloc_frame(&frame).expect("an mbuf");
            mbuf.set_tx_flags(flags);
            let mut ip = mbuf.ipv4_mut().expect("IPv4");
            ip.set_src(NEW);
            ip.udp_mut().expect("UDP").set_src_port(5000);
            let ip = Ipv4::new(&mbuf.data()[14..]).expect("IPv4");
            let udp = Udp::new(ip.payload()).expect("UDP");
            assert_eq!((ip.src(), udp.src_port.get()), (NEW.into(), 5000));
            if open {
                let sum = pseudo_v4(NEW.into(), TO.into(), IpProtocol::UDP, 13).fold();
                assert_eq!(udp.checksum.get(), sum, "{flags:?}");
            } else {
                assert!(udp.checksum_ok(ip.pseudo_sum()), "{flags:?}");
            }
        }
    }

    #[test]
    fn questions_for_an_address_are_answered_and_nothing_else() {
        let (own, asks) = (MacAddress([2; 6]), MacAddress([4; 6]));
        let question = |target: [u8; 4]| ArpRepr {
            operation: arp::REQUEST,
            sender_mac: asks,
            sender_ip: [10, 0, 0, 1].into(),
            target_mac: MacAddress([0; 6]),
            target_ip: target.into(),
        };
        let mine = question([10, 0, 0, 9]);
        let ours = |address: Ipv4Addr| address == mine.target_ip;
        let asked = |repr: &ArpRepr| Frame::ether(asks, [0xff; 6]).arp(repr);
        let pool = pool();
        let mut mbuf = pool.alloc_frame(&asked(&mine)).expect("an mbuf");
        assert!(mbuf.answer_arp(ours, own));
        assert_eq!(mbuf.data(), &*Frame::ether(own, asks).arp(&mine.reply(own)));
        assert!(!mbuf.answer_arp(ours, own), "an answer is no question");
        for frame in [asked(&question([10, 0, 0, 8])), frame()] {
            let mut mbuf = pool.alloc_frame(&frame).expect("an mbuf");
            assert!(!mbuf.answer_arp(ours, own) && mbuf.data() == &*frame);
        }
    }

    #[test]
    fn shared_data_is_not_changed() {
        let pool = pool();
        let mut mbuf = pool.alloc_frame(&frame()).expect("an mbuf");
        let clone = mbuf.clone_indirect(&pool).expect("a clone");
        assert!(mbuf.ipv4_mut().is_none() && mbuf.ether_mut().is_none());
        drop(clone);
        assert!(mbuf.ipv4_mut().is_some() && mbuf.ipv6_mut().is_none() && mbuf.vlan_mut().is_none());
    }

    #[test]
    fn bursts_are_filled_from_a_template() {
        let pool = pool();
        let (frame, mut burst) = (frame(), Burst::new());
        burst.push(pool.alloc().expect("one before"));
        assert_eq!(pool.alloc_frames(&mut burst, 32, &frame), 32);
        assert!(burst.iter().skip(1).all(|mbuf| mbuf.data() == &frame[..]));
        assert!(burst.iter().next().is_some_and(|first| first.data().is_empty()), "what was there stays");
        let left = pool.alloc_frames(&mut burst, 64, &vec![0; 4000]);
        assert_eq!((left, burst.len()), (0, 33), "no mbuf has that much room");
        assert!(pool.alloc_frame(&[0; 4000]).is_none());
    }
}
