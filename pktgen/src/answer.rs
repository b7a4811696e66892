//! Answers to ARP, neighbour discovery and pings for the addresses of a port, so that a device under test finds it.
//!
//! A question is turned into its answer where it lies. What does not fit into the next burst is left out and counted: however many
//! questions come, they take no memory. Sources: RFC 826, RFC 4861, RFC 792, RFC 4443.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use pollux_eal::counter::Counter;
use pollux_mempool::{Burst, Mbuf};
use pollux_port::{PacketMut, TxQueue};
use pollux_wire::checksum::pseudo_v6;
use pollux_wire::{EtherType, Icmpv6Repr, IpProtocol, MacAddress, icmp, icmpv6};
use serde::Serialize;

/// `--ip`: an address of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnAddress {
    pub(crate) port: u16,
    pub(crate) address: IpAddr,
}

impl FromStr for OwnAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is not an address such as 198.18.0.1, or with its port 1=2001:2::1".to_owned();
        let (port, address) = text.split_once('=').unwrap_or(("0", text));
        let plain = !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit());
        let port = port.parse().ok().filter(|_| plain).ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        if address.is_multicast() || address.is_unspecified() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return Err("is no address that one port can have".into());
        }
        Ok(Self { port, address })
    }
}

/// What was answered. The lcore writes it.
#[derive(Debug, Default)]
pub(crate) struct AnswerCounters(CachePadded<Answered>);

#[derive(Debug, Default)]
struct Answered {
    arp: Counter,
    neighbour: Counter,
    echo: Counter,
    left_out: Counter,
}

/// The same as numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Answers {
    /// ARP requests.
    pub(crate) arp: u64,
    /// Neighbour solicitations.
    pub(crate) neighbour: u64,
    /// Pings, of both versions.
    pub(crate) echo: u64,
    /// Questions, of those that were counted, for whose answers there was no room.
    pub(crate) left_out: u64,
}

impl AnswerCounters {
    pub(crate) fn read(&self) -> Answers {
        let Answered { arp, neighbour, echo, left_out } = &*self.0;
        Answers { arp: arp.get(), neighbour: neighbour.get(), echo: echo.get(), left_out: left_out.get() }
    }
}

/// Answers for one port on one lcore.
#[derive(Debug)]
pub(crate) struct Answerer {
    mac: MacAddress,
    v4: Vec<Ipv4Addr>,
    v6: Vec<Ipv6Addr>,
    counters: Arc<AnswerCounters>,
    /// Answers that are to be sent.
    ready: Burst,
}

impl Answerer {
    /// For the port at `mac` with these addresses.
    pub(crate) fn new(mac: MacAddress, addresses: &[IpAddr], counters: Arc<AnswerCounters>) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for address in addresses {
            match address {
                IpAddr::V4(address) => v4.push(*address),
                IpAddr::V6(address) => v6.push(*address),
            }
        }
        Self { mac, v4, v6, counters, ready: Burst::new() }
    }

    /// Takes the questions out of a burst.
    #[inline]
    pub(crate) fn take(&mut self, burst: &mut Burst) {
        let mut at = 0;
        while at < burst.len() {
            if !self.turn(&mut burst[at]) {
                at += 1;
            } else if let Some(answer) = burst.swap_remove(at)
                && self.ready.try_push(answer).is_err()
            {
                self.counters.0.left_out.add(1);
            }
        }
    }

    /// Sends what is ready; the rest waits for the next round.
    #[inline]
    pub(crate) fn send(&mut self, tx: &mut TxQueue) -> bool {
        !self.ready.is_empty() && tx.tx_burst(&mut self.ready) > 0
    }

    /// Whether answers wait to be sent.
    pub(crate) fn holds(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Turns a question into its answer; false: it is none for us.
    #[inline]
    fn turn(&self, mbuf: &mut Mbuf) -> bool {
        let Some(&[_, _, _, _, _, _, from, _, _, _, _, _, high, low]) = mbuf.data().first_chunk::<14>()
        else {
            return false;
        };
        // Nobody asks from a group address.
        if from & 1 != 0 {
            return false;
        }
        let counters = &*self.counters.0;
        let (answered, count) = match EtherType(u16::from_be_bytes([high, low])) {
            EtherType::ARP => (self.arp(mbuf), &counters.arp),
            EtherType::IPV4 => (self.echo4(mbuf), &counters.echo),
            EtherType::IPV6 => match mbuf.data().get(54) {
                Some(&icmpv6::NEIGHBOR_SOLICITATION) => (self.neighbour(mbuf), &counters.neighbour),
                Some(&icmpv6::ECHO_REQUEST) => (self.echo6(mbuf), &counters.echo),
                _ => return false,
            },
            _ => return false,
        };
        if answered.is_some() {
            count.add(1);
        }
        answered.is_some()
    }

    fn arp(&self, mbuf: &mut Mbuf) -> Option<()> {
        mbuf.answer_arp(|address| self.v4.contains(&address), self.mac).then_some(())
    }

    fn echo4(&self, mbuf: &mut Mbuf) -> Option<()> {
        let mut ip = mbuf.ipv4_mut()?;
        let (asking, asked) = (ip.src(), ip.dst());
        let is_one = asking.is_multicast() || asking.is_broadcast() || asking.is_unspecified();
        if ip.protocol() != IpProtocol::ICMP || is_one || !self.v4.contains(&asked) {
            return None;
        }
        let mut message = ip.icmp_mut()?;
        if message.kind != icmp::ECHO_REQUEST || message.code != 0 {
            return None;
        }
        message.set_kind(icmp::ECHO_REPLY, 0);
        ip.set_src(asked);
        ip.set_dst(asking);
        ip.set_ttl(64);
        self.back(mbuf)
    }

    fn echo6(&self, mbuf: &mut Mbuf) -> Option<()> {
        let mut ip = mbuf.ipv6_mut()?;
        let (asking, asked) = (ip.src(), ip.dst());
        if asking.is_multicast() || asking.is_unspecified() || !self.v6.contains(&asked) {
            return None;
        }
        let mut message = ip.icmpv6_mut()?;
        if message.kind != icmpv6::ECHO_REQUEST || message.code != 0 {
            return None;
        }
        message.set_kind(icmpv6::ECHO_REPLY, 0);
        ip.set_src(asked);
        ip.set_dst(asking);
        ip.set_hop_limit(64);
        self.back(mbuf)
    }

    /// A neighbour solicitation, without extension headers (RFC 4861, sections 4.3, 4.4 and 7.2.4).
    fn neighbour(&self, mbuf: &mut Mbuf) -> Option<()> {
        /// Ethernet, IPv6, and the advertisement with its option.
        const BYTES: usize = 14 + 40 + 32;
        const SOLICITED: u32 = 0x4000_0000;
        const OVERRIDE: u32 = 0x2000_0000;
        let data = mbuf.data();
        let target: Ipv6Addr = data.get(62..78)?.first_chunk::<16>().copied()?.into();
        let asking: Ipv6Addr = data.get(22..38)?.first_chunk::<16>().copied()?.into();
        let (next, hops, code) = (data[20], data[21], data[55]);
        if next != IpProtocol::ICMPV6.0
            || hops != 255
            || code != 0
            || asking.is_multicast()
            || !self.v6.contains(&target)
        {
            return None;
        }
        // Who has no address yet asks whether it may have ours: all nodes are told (section 7.2.4).
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let (to, flags) =
            if asking.is_unspecified() { (all_nodes, OVERRIDE) } else { (asking, SOLICITED | OVERRIDE) };
        if !mbuf.is_contiguous() || !mbuf.is_sole() || !mbuf.set_len(BYTES) {
            return None;
        }
        let data = mbuf.data_mut()?;
        let message = 32_u16;
        data[18..20].copy_from_slice(&message.to_be_bytes());
        data[22..38].copy_from_slice(&target.octets());
        data[38..54].copy_from_slice(&to.octets());
        data[62..78].copy_from_slice(&target.octets());
        data[78..80].copy_from_slice(&[icmpv6::OPTION_TARGET_ADDRESS, 1]);
        data[80..86].copy_from_slice(&self.mac.0);
        let pseudo = pseudo_v6(target, to, IpProtocol::ICMPV6, message.into());
        let header = Icmpv6Repr { kind: icmpv6::NEIGHBOR_ADVERTISEMENT, code: 0, word: flags };
        header.emit(&mut data[54..], pseudo).ok()?;
        self.back(mbuf)?;
        if to == all_nodes {
            mbuf.ether_mut()?.set_dst([0x33, 0x33, 0, 0, 0, 1]);
        }
        Some(())
    }

    /// To where it came from.
    fn back(&self, mbuf: &mut Mbuf) -> Option<()> {
        let mut ether = mbuf.ether_mut()?;
        let from = ether.src;
        ether.set_dst(from);
        ether.set_src(self.mac);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use pollux_mempool::MbufPool;
    use pollux_port::FrameSource;
    use pollux_wire::build::Frame;
    use pollux_wire::{Arp, ArpRepr, Icmp, Icmpv6, Ipv4, Ipv6};

    use super::*;
    use pollux_wire::arp;

    const ASKING: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const V6: u128 = 0xfd00 << 112 | 1;

    fn answerer() -> Answerer {
        let addresses = ["10.0.0.1".parse().expect("one"), IpAddr::V6(Ipv6Addr::from_bits(V6))];
        Answerer::new(OWN, &addresses, Arc::default())
    }

    /// What a frame becomes; none: it is no question.
    fn answer(frame: &[u8]) -> Option<Vec<u8>> {
        let pool = MbufPool::builder("answers", 64).build_anonymous().expect("a pool");
        let mut mbuf = pool.alloc_frame(frame).expect("an mbuf");
        answerer().turn(&mut mbuf).then(|| mbuf.data().to_vec())
    }

    fn request(target: [u8; 4]) -> ArpRepr {
        ArpRepr {
            operation: arp::REQUEST,
            sender_mac: ASKING.into(),
            sender_ip: [10, 0, 0, 9].into(),
            target_mac: [0; 6].into(),
            target_ip: target.into(),
        }
    }

    /// A neighbour solicitation.
    fn solicitation(from: u128, target: u128, hops: u8, option: bool) -> Vec<u8> {
        let to = 0xff02 << 112 | 1 << 32 | 0xff << 24 | target & 0xff_ffff;
        let mut body = vec![0; 8];
        body.extend(target.to_be_bytes());
        if option {
            body.extend([1, 1]);
            body.extend(ASKING);
        }
        let pseudo = pseudo_v6(from.into(), to.into(), IpProtocol::ICMPV6, body.len() as u32);
        let header = Icmpv6Repr { kind: icmpv6::NEIGHBOR_SOLICITATION, code: 0, word: 0 };
        header.emit(&mut body, pseudo).expect("room");
        Frame::ether(ASKING, [0x33, 0x33, 0xff, 0, 0, 1])
            .ipv6(from, to)
            .ttl(hops)
            .payload(IpProtocol::ICMPV6, &body)
            .to_vec()
    }

    #[test]
    fn arp_is_answered_for_own_addresses() {
        let frame = answer(&Frame::ether(ASKING, [0xff; 6]).arp(&request([10, 0, 0, 1]))).expect("an answer");
        assert_eq!(Arp::new(&frame[14..]).expect("ARP").repr(), request([10, 0, 0, 1]).reply(OWN));
        assert_eq!((&frame[..6], &frame[6..12]), (&ASKING[..], &OWN.0[..]));
        assert_eq!(answer(&frame), None, "no answer to an answer");
        assert_eq!(answer(&Frame::ether(ASKING, [0xff; 6]).arp(&request([10, 0, 0, 2]))), None, "another's");
        assert_eq!(answer(&Frame::ether([0xff; 6], OWN).arp(&request([10, 0, 0, 1]))), None, "from a group");
    }

    #[test]
    fn pings_are_answered_with_right_sums() {
        let ping = |from: [u8; 4], to: [u8; 4]| {
            Frame::ether(ASKING, OWN).ipv4(from, to).echo_request(7, 3, b"how are you")
        };
        let frame = answer(&ping([10, 0, 0, 9], [10, 0, 0, 1])).expect("an answer");
        let ip = Ipv4::new(&frame[14..]).expect("IPv4");
        assert!(ip.checksum_ok() && (ip.src(), ip.dst()) == ([10, 0, 0, 1].into(), [10, 0, 0, 9].into()));
        let message = Icmp::new(ip.payload()).expect("ICMP");
        assert!(message.checksum_ok() && (message.kind, message.seq.get()) == (icmp::ECHO_REPLY, 3));
        assert_eq!(
            (answer(&ping([10, 0, 0, 9], [10, 0, 0, 2])), answer(&ping([224, 0, 0, 1], [10, 0, 0, 1]))),
            (None, None)
        );

        let frame = answer(&Frame::ether(ASKING, OWN).ipv6(V6 + 1, V6).echo_request(7, 3, b"and you?"))
            .expect("an answer");
        let ip = Ipv6::new(&frame[14..]).expect("IPv6");
        assert_eq!((ip.src().to_bits(), ip.dst().to_bits()), (V6, V6 + 1));
        let message = Icmpv6::new(ip.payload()).expect("ICMPv6");
        let sum = pseudo_v6(ip.src(), ip.dst(), IpProtocol::ICMPV6, ip.payload().len() as u32);
        assert!(message.checksum_ok(sum) && message.kind == icmpv6::ECHO_REPLY);
    }

    #[test]
    fn neighbours_are_told_the_address() {
        for (from, to, mac, flags) in
            [(V6 + 9, V6 + 9, ASKING, 0x60), (0, 0xff02 << 112 | 1, [0x33, 0x33, 0, 0, 0, 1], 0x20)]
        {
            let frame = answer(&solicitation(from, V6, 255, from != 0)).expect("an answer");
            assert_eq!((frame.len(), &frame[..6], &frame[6..12]), (86, &mac[..], &OWN.0[..]));
            let ip = Ipv6::new(&frame[14..]).expect("IPv6");
            assert_eq!((ip.src().to_bits(), ip.dst().to_bits(), ip.hop_limit), (V6, to, 255));
            let message = Icmpv6::new(ip.payload()).expect("ICMPv6");
            assert!(message.checksum_ok(pseudo_v6(ip.src(), ip.dst(), IpProtocol::ICMPV6, 32)));
            assert_eq!((message.kind, frame[58]), (icmpv6::NEIGHBOR_ADVERTISEMENT, flags));
            assert_eq!(
                (&frame[62..78], &frame[78..80], &frame[80..86]),
                (&V6.to_be_bytes()[..], &[2, 1][..], &OWN.0[..])
            );
        }
        assert_eq!(answer(&solicitation(V6 + 9, V6, 254, true)), None, "from beyond a router");
        assert_eq!(answer(&solicitation(V6 + 9, V6 + 1, 255, true)), None, "another's");
    }

    #[test]
    fn a_flood_takes_no_more_than_a_burst() {
        let pool = MbufPool::builder("flood", 512).build_anonymous().expect("a pool");
        let counters: Arc<AnswerCounters> = Arc::default();
        let mut answerer = Answerer { counters: Arc::clone(&counters), ..answerer() };
        let frame = Frame::ether(ASKING, [0xff; 6]).arp(&request([10, 0, 0, 1]));
        let mut burst = Burst::new();
        for _ in 0..4 {
            assert_eq!(pool.alloc_frames(&mut burst, 32, &frame), 32);
            answerer.take(&mut burst);
            assert!(burst.is_empty());
        }
        assert_eq!(counters.read(), Answers { arp: 128, left_out: 64, ..Answers::default() });
        assert_eq!(pool.in_use(), 64);
    }

    #[test]
    fn every_frame_of_any_length_is_survived() {
        let mut noise = pollux_kit::Noise::new(7);
        let kinds = [[8, 6], [8, 0], [0x86, 0xdd]];
        for number in 0..20_000_usize {
            let mut frame: Vec<u8> = (0..number % 120).map(|_| noise.draw() as u8).collect();
            if let Some(kind) = frame.get_mut(12..14) {
                kind.copy_from_slice(&kinds[number % 3]);
            }
            let _ = answer_in(&mut frame);
        }
    }

    fn answer_in(frame: &mut [u8]) -> Option<Vec<u8>> {
        thread_local!(static POOL: MbufPool = MbufPool::builder("any", 64).build_anonymous().expect("a pool"));
        POOL.with(|pool| {
            let mut mbuf = pool.alloc_frame(frame)?;
            answerer().turn(&mut mbuf).then(|| mbuf.data().to_vec())
        })
    }

    #[test]
    fn addresses_are_read() {
        let own = |port, address: &str| Ok(OwnAddress { port, address: address.parse().expect("one") });
        assert_eq!(("10.0.0.1".parse(), "3=::5".parse()), (own(0, "10.0.0.1"), own(3, "::5")));
        for wrong in ["", "10.0.0", "=10.0.0.1", "+1=10.0.0.1", "65536=::1", "10.0.0.1/8"] {
            assert!(
                wrong.parse::<OwnAddress>().is_err_and(|why| why.starts_with("is not an address")),
                "{wrong}"
            );
        }
        for wrong in ["224.0.0.1", "0.0.0.0", "::", "ff02::1", "255.255.255.255"] {
            assert!(
                wrong.parse::<OwnAddress>().is_err_and(|why| why.starts_with("is no address")),
                "{wrong}"
            );
        }
    }
}
