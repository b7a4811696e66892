//! Cutting a packet into fragments.

use pollux_mempool::{Burst, Mbuf, MbufPool, TxFlags};
use pollux_wire::{IpProtocol, Ipv4Header, Ipv6Header, checksum};
use zerocopy::{FromBytes, IntoBytes};

use crate::FragmentError;
use crate::header::{FRAGMENT_BYTES, Packet, Version, look};

/// Most bytes of an IPv4 header's options.
const OPTIONS_MAX: usize = 40;

/// Options of IPv4 that go into every fragment: those with the highest bit of their kind set; the rest stand in the first alone (RFC 791).
struct Options {
    bytes: [u8; OPTIONS_MAX],
    count: usize,
}

impl Options {
    fn copied(mut given: &[u8]) -> Self {
        let mut options = Self { bytes: [0; OPTIONS_MAX], count: 0 };
        // 0 ends the list, 1 is a byte alone, any other has its length behind it.
        while let [kind, rest @ ..] = given
            && *kind != 0
        {
            let length = if *kind == 1 { 1 } else { rest.first().copied().map_or(0, usize::from) };
            if length == 0 || *kind != 1 && length < 2 || length > given.len() {
                break;
            }
            let (option, behind) = given.split_at(length);
            if kind & 0x80 != 0 {
                options.bytes[options.count..][..length].copy_from_slice(option);
                options.count += length;
            }
            given = behind;
        }
        options.count = options.count.next_multiple_of(4);
        options
    }
}

/// Cuts an IP packet that is longer than `mtu`, which counts from the IP header on, into fragments, copied into mbufs of `pool` and put into
/// `into`: how many. 0 where it fits and may go as it is. `ident` is the datagram's identification for IPv6; IPv4 packets have one.
///
/// The checksum of TCP or UDP must be complete, as it is of the whole; a fragment of IPv4 may be cut further. Costs a copy of the packet.
///
/// # Errors
/// The packet is no whole IP packet or must not be cut; the MTU holds no fragment; burst or pool have no room. Nothing is put into `into` then.
#[doc(alias = "rte_ipv4_fragment_packet")]
#[doc(alias = "rte_ipv4_fragment_copy_nonseg_packet")]
#[doc(alias = "rte_ipv6_fragment_packet")]
pub fn fragment(
    packet: &Mbuf,
    mtu: usize,
    ident: u32,
    pool: &MbufPool,
    into: &mut Burst,
) -> Result<usize, FragmentError> {
    let front = packet.data();
    let found = look(front, packet.pkt_len() as usize).ok_or(FragmentError::Malformed)?;
    if found.end - found.l3 <= mtu {
        return Ok(0);
    }
    if found.dont_fragment {
        return Err(FragmentError::DontFragment { mtu });
    }
    if packet.tx_flags().intersects(TxFlags::L4_MASK | TxFlags::TCP_SEGMENTATION | TxFlags::UDP_SEGMENTATION)
    {
        return Err(FragmentError::Open);
    }
    let extra = if found.version == Version::V4 { 0 } else { FRAGMENT_BYTES };
    let headers = found.payload - found.l3 + extra;
    // All but the last carry a multiple of 8 bytes.
    let step = mtu.saturating_sub(headers) & !7;
    if step == 0 {
        return Err(FragmentError::Mtu { mtu, headers, least: headers + 8 });
    }
    let bytes = found.end - found.payload;
    let (needed, room) = (bytes.div_ceil(step), into.remaining_capacity());
    if needed > room {
        return Err(FragmentError::NoRoom { needed, room });
    }
    for at in (0..bytes).step_by(step) {
        let Some(fragment) = piece(packet, &found, at, step.min(bytes - at), ident, pool) else {
            // What was put in so far goes home.
            let before = into.len() - at / step;
            drop(into.drain(before..));
            return Err(FragmentError::NoMbufs { bytes: found.l3 + headers + step });
        };
        into.push(fragment);
    }
    Ok(needed)
}

/// The fragment of `count` bytes from `at` on.
pub(crate) fn piece(
    packet: &Mbuf,
    found: &Packet,
    at: usize,
    count: usize,
    ident: u32,
    pool: &MbufPool,
) -> Option<Mbuf> {
    let front = packet.data();
    let more = found.payload + at + count < found.end;
    let mut fragment = pool.alloc()?;
    fragment.set_port(packet.port());
    match found.version {
        Version::V4 => {
            let options_at = found.l3 + Ipv4Header::BYTES;
            let options = &front[options_at..found.payload];
            let copied = Options::copied(options);
            let options = if at == 0 { options } else { &copied.bytes[..copied.count] };
            if !fragment.append_slice(&front[..options_at]) || !fragment.append_slice(options) {
                return None;
            }
            let before = found.fragment.map_or(0, |fragment| fragment.offset);
            let more = more || found.fragment.is_some_and(|fragment| fragment.more);
            let head = fragment.data_mut()?.get_mut(found.l3..)?;
            let bytes = head.len();
            let (header, _) = Ipv4Header::mut_from_prefix(head).ok()?;
            header.version_ihl = 0x40 | (bytes / 4) as u8;
            header.total_bytes.set((bytes + count) as u16);
            header.fragment.set(((before + at) / 8) as u16 | u16::from(more) << 13);
            header.checksum.set(0);
            let sum = checksum::of(head);
            Ipv4Header::mut_from_prefix(head).ok()?.0.checksum.set(sum);
        }
        Version::V6 { next_at, insert_at } => {
            let [high, low] = (at as u16 | u16::from(more)).to_be_bytes();
            let mut extension = [front[next_at], 0, high, low, 0, 0, 0, 0];
            extension[4..].copy_from_slice(&ident.to_be_bytes());
            if !fragment.append_slice(&front[..insert_at]) || !fragment.append_slice(extension.as_bytes()) {
                return None;
            }
            let data = fragment.data_mut()?;
            data[next_at] = IpProtocol::FRAGMENT.0;
            let behind = insert_at + FRAGMENT_BYTES - found.l3 - Ipv6Header::BYTES + count;
            let (header, _) = Ipv6Header::mut_from_prefix(data.get_mut(found.l3..)?).ok()?;
            header.payload_bytes.set(behind as u16);
        }
    }
    let payload = fragment.append(count)?;
    (packet.read(found.payload + at, payload) == count).then_some(fragment)
}
