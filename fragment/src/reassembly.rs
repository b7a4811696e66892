//! Making packets whole.

use arrayvec::ArrayVec;
use pollux_lookup::{FlowTable, LookupError};
use pollux_mempool::{Mbuf, PacketType, RxFlags};
use pollux_wire::{Ipv4Header, Ipv6Header, checksum};
use zerocopy::FromBytes;

use crate::header::{Datagram, FRAGMENT_BYTES, Fragment, Packet, Version, look};

/// Most fragments of a datagram: 64 KiB over links of 1280 bytes are 53.
pub const PIECES_MAX: usize = 64;

/// Most bytes behind the headers: the length fields of both versions end there.
const BYTES_MAX: usize = 65_535;

/// What became of fragments, each a count of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were made whole.
    pub whole: u64,
    /// Fragments dropped as their lengths contradict the standard.
    pub malformed: u64,
    /// Datagrams dropped as two fragments of them overlap, or disagree about the end.
    pub overlapping: u64,
    /// Fragments dropped as theirs was a datagram that had been dropped.
    pub late: u64,
    /// Fragments dropped that had come before.
    pub duplicate: u64,
    /// Fragments dropped for want of room: too many datagrams, fragments, or fragments of one datagram.
    pub full: u64,
    /// Datagrams dropped as their time was over.
    pub timed_out: u64,
    /// Datagrams dropped that cannot be put together: longer than a packet can be, or of data that other packets share.
    pub unusable: u64,
}

/// A fragment without its headers, but for the first of the datagram.
#[derive(Debug)]
struct Piece {
    offset: usize,
    bytes: usize,
    packet: Mbuf,
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.bytes
    }
}

/// A datagram that is not whole.
#[derive(Debug, Default)]
struct Partial {
    /// By offset; none overlaps another.
    pieces: ArrayVec<Piece, PIECES_MAX>,
    bytes: usize,
    /// Where it ends, once the last fragment is there.
    end: Option<usize>,
    /// What the first fragment says, once it is there.
    first: Option<(Packet, u8)>,
    /// It has been dropped, and so will what comes of it.
    refused: bool,
}

/// What a fragment does to its datagram.
enum Fit {
    Fits(usize),
    Duplicate,
    Contradicts,
    TooMany,
}

impl Partial {
    fn fit(&self, offset: usize, bytes: usize, more: bool) -> Fit {
        let end = offset + bytes;
        let at = self.pieces.partition_point(|piece| piece.offset < offset);
        let (before, behind) = (at.checked_sub(1).map(|before| &self.pieces[before]), self.pieces.get(at));
        if behind.is_some_and(|behind| behind.offset == offset && behind.bytes == bytes) {
            return Fit::Duplicate;
        }
        let overlaps = before.is_some_and(|before| before.end() > offset)
            || behind.is_some_and(|behind| behind.offset < end);
        let ends = if more {
            self.end.is_none_or(|last| end < last)
        } else {
            self.end.is_none() && self.pieces.last().is_none_or(|last| last.end() <= offset)
        };
        if overlaps || !ends {
            Fit::Contradicts
        } else if self.pieces.is_full() {
            Fit::TooMany
        } else {
            Fit::Fits(at)
        }
    }

    fn is_whole(&self) -> bool {
        self.end == Some(self.bytes)
    }
}

/// Fragments until their datagrams are whole. For one thread: fragments of a datagram must all come to it, as they do where the NIC spreads
/// packets by addresses alone.
#[derive(Debug)]
pub struct Reassembler {
    datagrams: FlowTable<Datagram, Partial>,
    fragments: usize,
    fragments_max: usize,
    timeout: u64,
    counts: Counts,
}

impl Reassembler {
    /// Room for so many datagrams at once, and so many fragments of all of them, each an mbuf or a chain that its pool misses meanwhile; a
    /// datagram has `timeout` from its first fragment on, in the unit in which the caller tells the time. The standard says 60 seconds
    /// (RFC 8200); an attacker's fragments take room as long. Memory: some 2 KB a datagram, all taken here.
    ///
    /// # Errors
    /// No datagrams, or no memory for so many.
    #[doc(alias = "rte_ip_frag_table_create")]
    pub fn new(datagrams: usize, fragments: usize, timeout: u64) -> Result<Self, LookupError> {
        let datagrams = FlowTable::new(datagrams)?;
        Ok(Self { datagrams, fragments: 0, fragments_max: fragments, timeout, counts: Counts::default() })
    }

    /// Takes a packet: back comes what is no fragment, as it is, and with the last fragment of a datagram all of it, a chain with the headers of
    /// its first. Fragments are kept or dropped, and counted. Headers must lie in the first mbuf.
    #[doc(alias = "rte_ipv4_frag_reassemble_packet")]
    #[doc(alias = "rte_ipv6_frag_reassemble_packet")]
    pub fn push(&mut self, packet: Mbuf, now: u64) -> Option<Mbuf> {
        let Some(found) = look(packet.data(), packet.pkt_len() as usize) else { return Some(packet) };
        let Some(fragment) = found.fragment else { return Some(packet) };
        self.take(packet, found, fragment, now)
    }

    fn take(&mut self, mut packet: Mbuf, found: Packet, fragment: Fragment, now: u64) -> Option<Mbuf> {
        let Fragment { of, offset, more, next } = fragment;
        let bytes = found.end - found.payload;
        let right = bytes > 0 && (!more || bytes.is_multiple_of(8)) && offset + bytes <= BYTES_MAX;
        let padding = packet.pkt_len() as usize - found.end;
        if !right || padding > 0 && !packet.trim(padding) || offset > 0 && !packet.adj(found.payload) {
            self.counts.malformed += 1;
            return None;
        }
        let piece = Piece { offset, bytes, packet };
        if offset == 0 && !more {
            // A whole datagram with a fragment header, which has nothing to do with others (RFC 6946).
            let pieces = ArrayVec::from_iter([piece]);
            return self.join(Partial { pieces, bytes, first: Some((found, next)), ..Partial::default() });
        }
        let datagram = self.datagrams.find(&of).map_or_else(
            || self.datagrams.insert(&of, Partial::default(), now.saturating_add(self.timeout)),
            Ok,
        );
        let Ok(datagram) = datagram else {
            self.counts.full += 1;
            return None;
        };
        let partial = self.datagrams.get_mut(datagram)?;
        if partial.refused {
            self.counts.late += 1;
            return None;
        }
        match partial.fit(offset, bytes, more) {
            Fit::Fits(_) if self.fragments == self.fragments_max => {
                self.counts.full += 1;
                return None;
            }
            Fit::Fits(at) => partial.pieces.insert(at, piece),
            Fit::Duplicate => {
                self.counts.duplicate += 1;
                return None;
            }
            refused @ (Fit::Contradicts | Fit::TooMany) => {
                let count = if matches!(refused, Fit::TooMany) {
                    &mut self.counts.full
                } else {
                    &mut self.counts.overlapping
                };
                *count += 1;
                self.fragments -= partial.pieces.len();
                *partial = Partial { refused: true, ..Partial::default() };
                return None;
            }
        }
        self.fragments += 1;
        partial.bytes += bytes;
        if !more {
            partial.end = Some(offset + bytes);
        }
        if offset == 0 {
            partial.first = Some((found, next));
        }
        if !partial.is_whole() {
            return None;
        }
        let partial = self.datagrams.remove(&of)?;
        self.fragments -= partial.pieces.len();
        self.join(partial)
    }

    /// Puts the pieces of a whole datagram together.
    fn join(&mut self, partial: Partial) -> Option<Mbuf> {
        let whole = whole(partial);
        match whole {
            Some(_) => self.counts.whole += 1,
            None => self.counts.unusable += 1,
        }
        whole
    }

    /// Looks at the next `count` places for datagrams and drops those whose time is over: how many. Once a burst, with a small count.
    #[doc(alias = "rte_frag_table_del_expired_entries")]
    pub fn expire(&mut self, now: u64, count: usize) -> usize {
        let Self { datagrams, fragments, counts, .. } = self;
        datagrams.expire(now, count, |_, partial| {
            *fragments -= partial.pieces.len();
            counts.timed_out += u64::from(!partial.refused);
        })
    }

    /// Datagrams that are not whole, with those that were dropped and are remembered as such until their time is over.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.datagrams.len()
    }

    /// Fragments that wait for others.
    #[must_use]
    pub fn fragments(&self) -> usize {
        self.fragments
    }

    /// What became of all fragments so far.
    #[must_use]
    #[doc(alias = "rte_ip_frag_table_statistics_dump")]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// The first piece with the others behind it, and its headers made those of the whole.
fn whole(partial: Partial) -> Option<Mbuf> {
    let Partial { pieces, bytes, first, .. } = partial;
    let (found, next) = first?;
    let mut pieces = pieces.into_iter();
    let mut packet = pieces.next()?.packet;
    let data = packet.data_mut()?;
    match found.version {
        Version::V4 => {
            let head = data.get_mut(found.l3..found.payload)?;
            let total = u16::try_from(head.len() + bytes).ok()?;
            let (header, _) = Ipv4Header::mut_from_prefix(head).ok()?;
            header.total_bytes.set(total);
            // Of the flags, what says that it must not be cut is kept.
            header.fragment.set(header.fragment.get() & 0x4000);
            header.checksum.set(0);
            let sum = checksum::of(head);
            Ipv4Header::mut_from_prefix(head).ok()?.0.checksum.set(sum);
        }
        Version::V6 { next_at, insert_at } => {
            let behind = u16::try_from(insert_at - found.l3 - Ipv6Header::BYTES + bytes).ok()?;
            *data.get_mut(next_at)? = next;
            let (header, _) = Ipv6Header::mut_from_prefix(data.get_mut(found.l3..)?).ok()?;
            header.payload_bytes.set(behind);
            // The headers in front close up over the fragment header.
            data.copy_within(..insert_at, FRAGMENT_BYTES);
            if !packet.adj(FRAGMENT_BYTES) {
                return None;
            }
        }
    }
    for piece in pieces {
        packet.chain(piece.packet).ok()?;
    }
    let of_the_first = RxFlags::IP_CHECKSUM_NONE | RxFlags::L4_CHECKSUM_NONE;
    packet.set_rx_flags(packet.rx_flags().difference(of_the_first));
    packet.set_packet_type(PacketType::UNKNOWN);
    Some(packet)
}
