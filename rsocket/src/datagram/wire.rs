//! Headers of datagram sockets: what stands in front of a datagram, and the control messages over UDP that tell queue pair numbers. Source:
//! rdma-core `librdmacm/rsocket.c`, `struct ds_header`, `struct ds_udp_header` and the constants after each.
//!
//! ```text
//!   source    version 1 | length 1 | port 2 | IPv4 address 4                            the sender's UDP address; then data
//!             version 1 | length 1 | port 2 | flow information 4 | IPv6 address 16
//!   control   tag 4 | version 1 | operation 1 | length 1 | 0 1 | qpn 4 | address 4 or 16    then data, with operation DATA
//! ```
//!
//! All in network byte order. `length` is the header's, `version` is 4 or 6. Of `qpn` the low 24 bits count: the comment in the original says
//! otherwise, its code does this.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::message::operation;

/// Bytes of a receive buffer of the original, and so of a datagram with its header. Source: `librdmacm/rsocket.c`, `RS_SNDLOWAT`,
/// `ds_post_recv`, `udp_svc_process_rs`.
pub(crate) const BUFFER_BYTES: usize = 2048;
/// Bytes of the longer source header. Source: `DS_IPV6_HDR_LEN`.
pub(crate) const SOURCE_BYTES_MAX: usize = 24;
/// The first word of a control message. Source: `DS_UDP_TAG`.
const TAG: u32 = 0x5555_5555;
/// A queue pair number has 24 bits.
const QPN_MASK: u32 = 0xff_ffff;

/// Header bytes of one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    version: u8,
    /// Source: `DS_IPV4_HDR_LEN`, `DS_IPV6_HDR_LEN`.
    source: u8,
    /// Source: `DS_UDP_IPV4_HDR_LEN`, `DS_UDP_IPV6_HDR_LEN`.
    control: u8,
}

const V4: Lengths = Lengths { version: 4, source: 8, control: 16 };
const V6: Lengths = Lengths { version: 6, source: 24, control: 28 };

fn lengths(address: IpAddr) -> Lengths {
    if address.is_ipv4() { V4 } else { V6 }
}

/// The most data that a datagram can have, whichever way it goes: by UDP with the longer header, or in one packet of `mtu` bytes.
pub(crate) fn data_max(address: IpAddr, mtu: usize) -> usize {
    let Lengths { source, control, .. } = lengths(address);
    (BUFFER_BYTES - usize::from(control)).min(mtu.saturating_sub(source.into()))
}

/// A header of either kind, without what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    bytes: [u8; 28],
    length: usize,
}

impl Header {
    fn new(length: u8) -> Self {
        Self { bytes: [0; 28], length: length.into() }
    }

    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        self.bytes[at..at + N].copy_from_slice(&bytes);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The header in front of a datagram from `sender`.
pub(crate) fn source(sender: SocketAddr) -> Header {
    let lengths = lengths(sender.ip());
    let mut header = Header::new(lengths.source);
    header.put(0, [lengths.version, lengths.source]);
    header.put(2, sender.port().to_be_bytes());
    match sender.ip() {
        IpAddr::V4(address) => header.put(4, address.octets()),
        // Flow information stays 0: it is no part of the address.
        IpAddr::V6(address) => header.put(8, address.octets()),
    }
    header
}

/// The sender of a datagram, and the length of the header. `None`: it is cut, or no header.
pub(crate) fn read_source(bytes: &[u8]) -> Option<(SocketAddr, usize)> {
    let (&[version, length], rest) = bytes.split_first_chunk()?;
    let (&port, rest) = rest.split_first_chunk()?;
    let address: IpAddr = match (version, length) {
        (4, 8) => Ipv4Addr::from(*rest.first_chunk::<4>()?).into(),
        (6, 24) => Ipv6Addr::from(*rest.get(4..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some((SocketAddr::new(address, u16::from_be_bytes(port)), length.into()))
}

/// What a control message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// It carries a datagram, and asks for the receiver's queue pair number.
    Data,
    /// The answer, without data.
    Control,
}

impl Operation {
    const fn code(self) -> u8 {
        match self {
            Self::Data => operation::DATA as u8,
            Self::Control => operation::CONTROL as u8,
        }
    }
}

/// A control message without its data: it tells that `qpn` takes datagrams at `address`.
pub(crate) fn control(operation: Operation, qpn: u32, address: IpAddr) -> Header {
    let lengths = lengths(address);
    let mut header = Header::new(lengths.control);
    header.put(0, TAG.to_be_bytes());
    header.put(4, [lengths.version, operation.code(), lengths.control, 0]);
    header.put(8, (qpn & QPN_MASK).to_be_bytes());
    match address {
        IpAddr::V4(address) => header.put(12, address.octets()),
        IpAddr::V6(address) => header.put(12, address.octets()),
    }
    header
}

/// A control message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control<'a> {
    pub(crate) operation: Operation,
    /// The sender's queue pair.
    pub(crate) qpn: u32,
    pub(crate) data: &'a [u8],
}

/// Reads a control message from `sender`. `None`: it is cut, has another tag, operation or length, the version of another family than the
/// packet, or a number that no datagram queue pair has (0 and 1 are the port's own, all ones stands for a multicast group). The address in it
/// is not looked at: the packet's counts. Source: `librdmacm/rsocket.c`, `udp_svc_valid_udp_hdr` and `udp_svc_process_rs`.
pub(crate) fn read_control(bytes: &[u8], sender: IpAddr) -> Option<Control<'_>> {
    let lengths = lengths(sender);
    let (tag, rest) = bytes.split_first_chunk()?;
    let (&[version, operation, length, _], rest) = rest.split_first_chunk()?;
    let (qpn, _) = rest.split_first_chunk()?;
    let data = bytes.get(lengths.control.into()..)?;
    let operation =
        [Operation::Data, Operation::Control].into_iter().find(|known| known.code() == operation)?;
    let qpn = u32::from_be_bytes(*qpn) & QPN_MASK;
    let is_ours = u32::from_be_bytes(*tag) == TAG && (version, length) == (lengths.version, lengths.control);
    (is_ours && (2..QPN_MASK).contains(&qpn)).then_some(Control { operation, qpn, data })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// By hand from the C structs.
    #[test]
    fn source_headers_are_the_originals_bytes() {
        let v4 = [4, 8, 0x1c, 0x06, 192, 0, 2, 1];
        let v6 = [6, 24, 0x1c, 0x06, 0, 0, 0, 0, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        for (address, bytes) in [("192.0.2.1:7174", &v4[..]), ("[2001:db8::1]:7174", &v6)] {
            assert_eq!(source(socket(address)).bytes(), bytes);
            let whole = [bytes, b"data"].concat();
            assert_eq!(read_source(&whole), Some((socket(address), bytes.len())));
            assert!((0..bytes.len()).all(|cut| read_source(&bytes[..cut]).is_none()));
        }
        // A peer's flow information is no part of its address.
        let mut flow = v6;
        flow[4..8].copy_from_slice(&[0, 1, 2, 3]);
        assert_eq!(read_source(&flow), Some((socket("[2001:db8::1]:7174"), 24)));
    }

    #[test]
    fn source_headers_of_another_version_or_length_are_none() {
        for start in [[4, 24], [6, 8], [4, 9], [0, 8], [5, 8], [4, 0], [255, 255]] {
            let mut bytes = [0; 64];
            bytes[..2].copy_from_slice(&start);
            assert_eq!(read_source(&bytes), None, "{start:?}");
        }
    }

    /// By hand from the C structs: `RS_OP_DATA` is 0, `RS_OP_CTRL` 7.
    #[test]
    fn control_messages_are_the_originals_bytes() {
        let v4 = [0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0x12, 0x34, 0x56, 192, 0, 2, 1];
        let address = IpAddr::from([192, 0, 2, 1]);
        assert_eq!(control(Operation::Control, 0x12_3456, address).bytes(), v4);
        // Numbers have 24 bits.
        assert_eq!(control(Operation::Control, 0xff12_3456, address).bytes(), v4);
        let v6 = [
            0x55, 0x55, 0x55, 0x55, 6, 0, 28, 0, 0, 0, 0, 0x40, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0,
            0, 0, 0, 0, 1,
        ];
        let address6: IpAddr = "2001:db8::1".parse().expect("an address");
        assert_eq!(control(Operation::Data, 0x40, address6).bytes(), v6);
        let told = |operation, qpn, data| Some(Control { operation, qpn, data });
        assert_eq!(read_control(&v4, address), told(Operation::Control, 0x12_3456, &[]));
        let whole = [&v6[..], b"data"].concat();
        assert_eq!(read_control(&whole, address6), told(Operation::Data, 0x40, b"data"));
        for (bytes, sender, other) in [(&v4[..], address, address6), (&v6, address6, address)] {
            assert!((0..bytes.len()).all(|cut| read_control(&bytes[..cut], sender).is_none()));
            assert_eq!(
                read_control(&[bytes, &[0; 32]].concat(), other),
                None,
                "a packet of the other family"
            );
            let changed = |at: usize, byte| {
                let mut bytes = [bytes, b"data"].concat();
                bytes[at] = byte;
                read_control(&bytes, sender).is_some()
            };
            assert!(changed(7, 9), "the reserved byte is not looked at");
            assert!(
                [(0, 0x54), (3, 0), (4, 5), (5, 4), (5, 255), (6, 8), (6, 255)]
                    .iter()
                    .all(|&(at, byte)| !changed(at, byte))
            );
        }
    }

    #[test]
    fn numbers_of_no_datagram_queue_pair_are_refused() {
        let address = IpAddr::from([192, 0, 2, 1]);
        for (qpn, taken) in [(0, false), (1, false), (2, true), (0xff_fffe, true), (0xff_ffff, false)] {
            let header = control(Operation::Data, qpn, address);
            assert_eq!(read_control(header.bytes(), address).is_some(), taken, "{qpn:#x}");
        }
    }

    #[test]
    fn data_fit_whichever_way_they_go() {
        let [v4, v6] = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().expect("an address"));
        let most = [(v4, 1024), (v6, 1024), (v4, 4096), (v6, 4096), (v6, 16)];
        assert_eq!(most.map(|(address, mtu)| data_max(address, mtu)), [1016, 1000, 2032, 2020, 0]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), v6 in any::<bool>()) {
            let sender = if v6 { IpAddr::from([1_u16; 8]) } else { IpAddr::from([1_u8; 4]) };
            if let Some((_, length)) = read_source(&bytes) {
                prop_assert!(length <= bytes.len());
            }
            if let Some(told) = read_control(&bytes, sender) {
                prop_assert!(told.data.len() < bytes.len());
            }
        }
    }
}
