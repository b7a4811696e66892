//! A frame: its headers, written and shown.
//!
//! Source: linux-rdma/perftest `src/raw_ethernet_resources.c`, `build_pkt_on_buffer`, `gen_*_header`, `print_*_header`.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use pollux_wire::checksum::{pseudo_v4, pseudo_v6};
use pollux_wire::{
    Ether, EtherHeader, EtherRepr, EtherType, IpProtocol, Ipv4, Ipv4Header, Ipv4Repr, Ipv6, Ipv6Header,
    Ipv6Repr, MacAddress, Tci, Tcp, TcpFlags, TcpHeader, TcpRepr, Udp, UdpHeader, UdpRepr, Vlan, VlanHeader,
    VlanRepr, WireError,
};

/// Bytes behind a frame that the device adds.
pub const CHECK_BYTES: u64 = 4;
/// The VLAN of `--vlan_en`.
const VLAN: u16 = 1;
/// TCP's window.
const WINDOW: u16 = 8192;

/// What the headers of a frame say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Whose it is.
    pub source: MacAddress,
    /// Who takes it.
    pub destination: MacAddress,
    /// The type that was chosen.
    pub ethertype: Option<u16>,
    /// Priority of a VLAN tag: 8 is another one in each frame.
    pub vlan: Option<u8>,
    /// IP addresses, from and to.
    pub ip: Option<(IpAddr, IpAddr)>,
    /// Type of service.
    pub tos: u8,
    /// Time to live.
    pub hop_limit: u8,
    /// Flow labels of IPv6, which flows have in turn.
    pub flow_labels: Vec<u32>,
    /// Ports of the first flow, from and to.
    pub ports: Option<(u16, u16)>,
    /// TCP instead of UDP.
    pub tcp: bool,
}

impl Headers {
    /// Bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ip = match self.ip {
            None => 0,
            Some((IpAddr::V4(_), _)) => Ipv4Header::BYTES,
            Some((IpAddr::V6(_), _)) => Ipv6Header::BYTES,
        };
        let ports = match (self.ports, self.tcp) {
            (None, _) => 0,
            (Some(_), false) => UdpHeader::BYTES,
            (Some(_), true) => TcpHeader::BYTES,
        };
        EtherHeader::BYTES + if self.vlan.is_some() { VlanHeader::BYTES } else { 0 } + ip + ports
    }

    /// The flow label of flow `flow`, if it was chosen.
    #[must_use]
    pub fn flow_label(&self, flow: u16) -> Option<u32> {
        let place = usize::from(flow).checked_rem(self.flow_labels.len())?;
        self.flow_labels.get(place).copied()
    }

    fn tag_bytes(&self) -> usize {
        if self.vlan.is_some() { VlanHeader::BYTES } else { 0 }
    }

    fn ethertype(&self, frame_bytes: usize) -> EtherType {
        match (self.ethertype, self.ip) {
            (Some(chosen), _) => EtherType(chosen),
            (None, Some((IpAddr::V4(_), _))) => EtherType::IPV4,
            (None, Some((IpAddr::V6(_), _))) => EtherType::IPV6,
            // A length, as of 802.3.
            (None, None) => EtherType((frame_bytes - EtherHeader::BYTES - self.tag_bytes()) as u16),
        }
    }

    fn priority(&self, number: u64) -> u8 {
        match self.vlan {
            Some(8) => (number % 8) as u8,
            Some(priority) => priority,
            None => 0,
        }
    }

    fn protocol(&self) -> IpProtocol {
        match (self.ports, self.tcp, self.ip) {
            (Some(_), false, _) => IpProtocol::UDP,
            (Some(_), true, _) => IpProtocol::TCP,
            (None, _, Some((IpAddr::V6(_), _))) => IpProtocol::NONE,
            (None, ..) => IpProtocol(0),
        }
    }

    /// Writes them to the front of a frame, whose rest is its payload. Its ports are those of flow `flow`; `number` is the frame's
    /// in its flow.
    ///
    /// # Errors
    /// The frame is too short.
    pub fn write(&self, frame: &mut [u8], flow: u16, number: u64) -> Result<(), WireError> {
        let ethertype = self.ethertype(frame.len());
        let outer = if self.vlan.is_some() { EtherType::VLAN } else { ethertype };
        let ether = EtherRepr { dst: self.destination, src: self.source, ether_type: outer };
        let mut rest = ether.emit(frame)?;
        if self.vlan.is_some() {
            let tci = Tci::new(self.priority(number), false, VLAN);
            rest = VlanRepr { tci, ether_type: ethertype }.emit(rest)?;
        }
        let Some((from, to)) = self.ip else { return Ok(()) };
        let protocol = self.protocol();
        let pseudo = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let bytes = rest.len().saturating_sub(Ipv4Header::BYTES) as u16;
                let (tos, ttl) = (self.tos, self.hop_limit);
                let header = Ipv4Repr { tos, ttl, ..Ipv4Repr::new(from, to, protocol, bytes) };
                rest = header.emit(rest)?;
                pseudo_v4(from, to, protocol, bytes)
            }
            (from, to) => {
                let (from, to) = (v6(from), v6(to));
                let bytes = rest.len().saturating_sub(Ipv6Header::BYTES) as u16;
                let header = Ipv6Repr {
                    traffic_class: self.tos,
                    hop_limit: self.hop_limit,
                    flow_label: self.flow_label(flow).unwrap_or(0),
                    ..Ipv6Repr::new(from, to, protocol, bytes)
                };
                rest = header.emit(rest)?;
                pseudo_v6(from, to, protocol, bytes.into())
            }
        };
        let Some((src_port, dst_port)) = self.ports else { return Ok(()) };
        // A multicast has no port to answer to.
        let of = |port: u16| if port == 0 { 0 } else { port.wrapping_add(flow) };
        let (src_port, dst_port) = (of(src_port), of(dst_port));
        if self.tcp {
            let flags = TcpFlags(0);
            let header = TcpRepr { src_port, dst_port, seq: 0, ack: 0, flags, window: WINDOW, urgent: 0 };
            header.emit(rest, pseudo)?;
        } else {
            UdpRepr { src_port, dst_port }.emit(rest, pseudo)?;
        }
        Ok(())
    }
}

/// The headers of a frame, as the original prints them.
#[must_use]
pub fn text(frame: &[u8]) -> String {
    let mut text = String::from("**raw ethernet header****************************************\n\n");
    let Ok(ether) = Ether::new(frame) else { return text };
    let mac = |mac: MacAddress| mac.0.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":");
    let (to, from) = (mac(ether.dst), mac(ether.src));
    let (kind, ip) = match Vlan::new(ether.payload()) {
        Ok(vlan) if ether.ether_type() == EtherType::VLAN => {
            let rule = format!("|{}|\n", "-".repeat(74));
            let tag = u32::from(EtherType::VLAN.0) << 16 | u32::from(vlan.tci().0);
            let name = if vlan.ether_type() == EtherType::IPV4 { "IP" } else { "DEFAULT" };
            let _ = writeln!(text, "{}", "-".repeat(76));
            text.push_str("| Dest MAC         | Src MAC          |    vlan tag    |   Packet Type     |\n");
            let _ = writeln!(text, "{rule}| {to}| {from}|   0x{tag:08x}   |{name:<19}|\n{rule}");
            (vlan.ether_type(), vlan.payload())
        }
        _ => {
            let rule = format!("|{}|\n", "-".repeat(60));
            let name = match ether.ether_type() {
                EtherType::IPV4 => "IPv4",
                EtherType::IPV6 => "IPv6",
                _ => "DEFAULT",
            };
            let _ = writeln!(text, "{}", "-".repeat(62));
            text.push_str("| Dest MAC         | Src MAC          | Packet Type          |\n");
            let _ = writeln!(text, "{rule}| {to}| {from}|{name:<22}|\n{rule}");
            (ether.ether_type(), ether.payload())
        }
    };
    // What the original calls what is neither nothing nor UDP.
    let name = |protocol: IpProtocol| match protocol {
        IpProtocol(0) => "EMPTY",
        IpProtocol::UDP => "UDP",
        _ => "TCP",
    };
    let (protocol, upper) = if let (EtherType::IPV4, Ok(packet)) = (kind, Ipv4::new(ip)) {
        text.push_str("**IP header**************\n|-----------------------|\n");
        for (what, value) in [
            ("Version", packet.version().to_string()),
            ("Ihl", (packet.header_bytes() / 4).to_string()),
            ("TOS", packet.tos.to_string()),
            ("TOT LEN", packet.total_bytes.get().to_string()),
            ("ID", packet.ident.get().to_string()),
            ("Frag", packet.fragment_offset().to_string()),
            ("TTL", packet.ttl.to_string()),
            ("protocol", name(packet.protocol()).to_owned()),
            ("Check sum", format!("{:X}", packet.checksum.get())),
            ("Source IP", packet.src().to_string()),
            ("Dest IP", packet.dst().to_string()),
        ] {
            let _ = writeln!(text, "|{what:<10}|{value:<12}|");
        }
        text.push_str("|-----------------------|\n\n");
        (packet.protocol(), packet.payload())
    } else if let (EtherType::IPV6, Ok(packet)) = (kind, Ipv6::new(ip)) {
        text.push_str("***************IPv6 header*************\n|-------------------------------------|\n");
        for (what, value) in [
            ("Version", packet.version().to_string()),
            ("Hop Limit", packet.hop_limit.to_string()),
            ("protocol", name(packet.next_header()).to_owned()),
            ("Source IP", packet.src().to_string()),
            ("Dest IP", packet.dst().to_string()),
        ] {
            let _ = writeln!(text, "|{what:<10}|{value:<26}|");
        }
        text.push_str("|-------------------------------------|\n\n");
        (packet.next_header(), packet.payload())
    } else {
        return text;
    };
    let rows = match protocol {
        IpProtocol::UDP => Udp::new(upper).ok().map(|packet| {
            let rows = vec![
                ("Src  Port", packet.src_port.get()),
                ("Dest Port", packet.dst_port.get()),
                ("Len", packet.bytes.get()),
                ("check sum", packet.checksum.get()),
            ];
            ("UDP", rows)
        }),
        IpProtocol::TCP => Tcp::new(upper).ok().map(|packet| {
            let rows = vec![
                ("Src  Port", packet.src_port.get()),
                ("Dest Port", packet.dst_port.get()),
                ("offset", (packet.header_bytes() / 4) as u16),
                ("window", packet.window.get()),
            ];
            ("TCP", rows)
        }),
        _ => None,
    };
    if let Some((name, rows)) = rows {
        let _ = writeln!(text, "**{name} header***********\n|---------------------|");
        for (what, value) in rows {
            let _ = writeln!(text, "|{what:<10}|{value:<10}|");
        }
        text.push_str("|---------------------|\n");
    }
    text
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The MAC address of a group: the low 23 bits of its IP address behind `01:00:5e`. Source: RFC 1112, 6.4.
#[must_use]
pub fn group(address: Ipv4Addr) -> MacAddress {
    let [_, b, c, d] = address.octets();
    MacAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}
