//! A packet as match parameters, and masks that look at some words of them.

use pollux_mlx5_abi::command::flow::criteria;

use crate::frame::{Gre, Headers, Ip, Labels, Transport, Tunnels, be16, is_tag};

/// Words of 8 bytes in match parameters, and in one part of them.
const WORDS: usize = 64;
const PART: usize = 8;
/// The first words of the parts behind the outer headers that the device fills in: misc, inner headers, misc 2 and 3.
const MISC: usize = 8;
const INNER: usize = 16;
const MISC_2: usize = 24;
const MISC_3: usize = 32;
/// Flags of GRE that are matched, in the misc part as in the header: checksum, key, sequence number.
const GRE_FLAGS: u8 = 0xb0;

/// The bits that a group looks at: words that are not all zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mask {
    words: Vec<(u8, u64)>,
    criteria: u32,
}

/// Criteria that every device can match.
const CRITERIA: u32 = criteria::OUTER_HEADERS
    | criteria::MISC_PARAMETERS
    | criteria::INNER_HEADERS
    | criteria::MISC_PARAMETERS_3;

impl Mask {
    /// The mask in a group's criteria, of the parts that are enabled. `None` when it asks for what the device does not
    /// parse, which depends on the `tunnels` that it knows.
    pub(crate) fn new(enabled: u32, parameters: &[u8; 512], tunnels: &Tunnels) -> Option<Self> {
        let labels = if tunnels.knows_mpls() { criteria::MISC_PARAMETERS_2 } else { 0 };
        if enabled & !(CRITERIA | labels) != 0 {
            return None;
        }
        let mut words = Vec::new();
        for (index, word) in parameters.as_chunks::<8>().0.iter().enumerate() {
            let part = 1_u32 << (index / 8);
            let mask = u64::from_ne_bytes(*word);
            if enabled & part != 0 && mask != 0 {
                words.push((index as u8, mask));
            }
        }
        // Of the miscellaneous parts, only what is filled in below.
        let known = |from: usize, allowed: &[u8; 64]| {
            let allowed = allowed.as_chunks::<8>().0;
            words.iter().all(|(index, mask)| {
                let at = usize::from(*index).wrapping_sub(from);
                allowed.get(at).is_none_or(|allowed| mask & !u64::from_ne_bytes(*allowed) == 0)
            })
        };
        let parts = [(MISC, misc_known(tunnels)), (MISC_2, misc_2_known(tunnels)), (MISC_3, misc_3_known())];
        if !parts.iter().all(|(from, allowed)| known(*from, allowed)) {
            return None;
        }
        Some(Self { words, criteria: enabled })
    }

    /// The words of `parameters` that count.
    pub(crate) fn value(&self, parameters: &[u8; 512]) -> Vec<u64> {
        let all = parameters.as_chunks::<8>().0;
        self.words.iter().map(|(index, mask)| u64::from_ne_bytes(all[usize::from(*index)]) & mask).collect()
    }

    /// Whether the value has bits that the mask does not look at: no packet would match.
    pub(crate) fn is_within(&self, parameters: &[u8; 512], enabled: u32) -> bool {
        parameters.as_chunks::<8>().0.iter().enumerate().all(|(index, word)| {
            let value = u64::from_ne_bytes(*word);
            let mask =
                self.words.iter().find(|(at, _)| usize::from(*at) == index).map_or(0, |(_, mask)| *mask);
            enabled & 1 << (index / 8) == 0 || value & !mask == 0
        })
    }

    /// Has the packet fill in what this mask looks at.
    #[inline]
    fn prepare(&self, packet: &mut Packet<'_>) {
        if self.criteria & criteria::OUTER_HEADERS != 0 {
            packet.look_outside();
        }
        if self.criteria & !criteria::OUTER_HEADERS != 0 {
            packet.look_inside();
        }
    }

    /// Whether a packet has `value` in the words that count.
    #[inline]
    pub(super) fn matches(&self, packet: &mut Packet<'_>, value: &[u64]) -> bool {
        self.prepare(packet);
        self.words.iter().zip(value).all(|((index, mask), value)| packet.word(*index) & mask == *value)
    }

    /// The packet's words that count, for a look-up.
    #[inline]
    pub(super) fn key<'k>(&self, packet: &mut Packet<'_>, room: &'k mut [u64; WORDS]) -> &'k [u64] {
        self.prepare(packet);
        for ((index, mask), place) in self.words.iter().zip(room.iter_mut()) {
            *place = packet.word(*index) & mask;
        }
        &room[..self.words.len()]
    }
}

/// Bytes of the misc part that are filled in: the queue that sends, second tags, the network identifier of VXLAN, flow labels of IPv6, and
/// flags, protocol and key of GRE where the device knows it. Source: see
/// [`MatchMisc`](pollux_mlx5_abi::command::matching::MatchMisc).
fn misc_known(tunnels: &Tunnels) -> [u8; 64] {
    let mut known = [0; 64];
    if tunnels.knows_gre() {
        known[0] = GRE_FLAGS;
        known[14..20].fill(0xff);
    }
    known[1..4].fill(0xff);
    known[8..12].fill(0xff);
    known[12] = 0xf0;
    known[20..23].fill(0xff);
    for at in [28, 32] {
        known[at..at + 4].copy_from_slice(&[0, 0x0f, 0xff, 0xff]);
    }
    known
}

/// Bytes of the misc 2 part that are filled in: label stacks, where the device knows MPLS. Source: see
/// [`MatchMisc2`](pollux_mlx5_abi::command::matching::MatchMisc2).
fn misc_2_known(tunnels: &Tunnels) -> [u8; 64] {
    let mut known = [0; 64];
    if tunnels.knows_mpls() {
        known[..16].fill(0xff);
    }
    known
}

/// Bytes of the misc 3 part that are filled in: ICMP type and code.
fn misc_3_known() -> [u8; 64] {
    let mut known = [0; 64];
    known[32..36].fill(0xff);
    known
}

/// A packet's match parameters, filled in as far as tables ask.
pub(crate) struct Packet<'f> {
    frame: &'f [u8],
    headers: &'f Headers,
    tunnels: &'f Tunnels,
    /// Which queue sends it; 0 for one that is received.
    queue: u32,
    outer: Option<[u64; PART]>,
    /// All parts; the first is in `outer`.
    inside: Option<[u64; WORDS]>,
}

fn put(words: &mut [u64], part: &[u8; 64]) {
    for (word, bytes) in words.iter_mut().zip(part.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
}

impl<'f> Packet<'f> {
    #[inline]
    pub(super) fn new(frame: &'f [u8], headers: &'f Headers, tunnels: &'f Tunnels, queue: u32) -> Self {
        Self { frame, headers, tunnels, queue, outer: None, inside: None }
    }

    pub(super) fn frame(&self) -> &'f [u8] {
        self.frame
    }

    pub(super) fn queue(&self) -> u32 {
        self.queue
    }

    #[inline]
    fn word(&self, index: u8) -> u64 {
        let index = usize::from(index);
        match (&self.outer, &self.inside) {
            (Some(outer), _) if index < PART => outer[index],
            (_, Some(inside)) => inside[index],
            _ => 0,
        }
    }

    #[inline]
    fn look_outside(&mut self) {
        if self.outer.is_none() {
            let mut words = [0; PART];
            put(&mut words, &headers_part(self.frame, self.headers));
            self.outer = Some(words);
        }
    }

    /// Fills in what only some groups look at.
    fn look_inside(&mut self) {
        if self.inside.is_some() {
            return;
        }
        let mut words = [0; WORDS];
        let inner = self.tunnels.inside(self.frame, self.headers);
        let vxlan = self.tunnels.is_vxlan(self.frame, self.headers);
        let gre = self.tunnels.gre(self.frame, self.headers);
        let mut misc = misc_part(self.frame, self.headers, inner.as_ref(), vxlan, gre);
        misc[1..4].copy_from_slice(&self.queue.to_be_bytes()[1..]);
        put(&mut words[MISC..], &misc);
        if let Some(inner) = &inner {
            put(&mut words[INNER..], &headers_part(self.frame, inner));
        }
        let labels = self.tunnels.labels(self.frame, self.headers, inner.as_ref(), gre);
        put(&mut words[MISC_2..], &misc_2_part(self.frame, &labels));
        put(&mut words[MISC_3..], &misc_3_part(self.frame, self.headers));
        self.inside = Some(words);
    }
}

fn copy<const N: usize>(part: &mut [u8; 64], at: usize, frame: &[u8], from: usize) {
    if let Some(bytes) = frame.get(from..from + N) {
        part[at..at + N].copy_from_slice(bytes);
    }
}

/// Layers 2 to 4, as [`MatchHeaders`](pollux_mlx5_abi::command::matching::MatchHeaders) has them.
#[inline]
fn headers_part(frame: &[u8], headers: &Headers) -> [u8; 64] {
    let mut part = [0; 64];
    copy::<6>(&mut part, 0x00, frame, headers.l2 + 6);
    part[6..8].copy_from_slice(&headers.ether_type.to_be_bytes());
    copy::<6>(&mut part, 0x08, frame, headers.l2);
    let mut bits = 0_u16;
    if headers.tags > 0 {
        copy::<2>(&mut part, 0x0e, frame, headers.l2 + 14);
        bits |= if be16(frame, headers.l2 + 12) == 0x88a8 { 1 << 14 } else { 1 << 15 };
    }
    match headers.ip {
        Ip::None => {}
        Ip::V4 => {
            part[0x10] = headers.protocol;
            copy::<1>(&mut part, 0x11, frame, headers.l3 + 1);
            bits |= 4 << 9;
            part[0x1a] = frame.get(headers.l3).map_or(0, |byte| byte << 4);
            copy::<1>(&mut part, 0x1b, frame, headers.l3 + 8);
            copy::<4>(&mut part, 0x2c, frame, headers.l3 + 12);
            copy::<4>(&mut part, 0x3c, frame, headers.l3 + 16);
        }
        Ip::V6 => {
            part[0x10] = headers.protocol;
            part[0x11] = (be16(frame, headers.l3) >> 4) as u8;
            bits |= 6 << 9;
            copy::<1>(&mut part, 0x1b, frame, headers.l3 + 7);
            copy::<16>(&mut part, 0x20, frame, headers.l3 + 8);
            copy::<16>(&mut part, 0x30, frame, headers.l3 + 24);
        }
    }
    bits |= u16::from(headers.fragment) << 13;
    match headers.transport {
        Transport::None => {}
        Transport::Tcp => {
            bits |= be16(frame, headers.l4 + 12) & 0x1ff;
            copy::<4>(&mut part, 0x14, frame, headers.l4);
        }
        Transport::Udp => copy::<4>(&mut part, 0x1c, frame, headers.l4),
    }
    part[0x12..0x14].copy_from_slice(&bits.to_be_bytes());
    part
}

/// Second tags, the tunnel and flow labels.
fn misc_part(
    frame: &[u8],
    headers: &Headers,
    inner: Option<&Headers>,
    vxlan: bool,
    gre: Option<Gre>,
) -> [u8; 64] {
    let mut part = [0; 64];
    // Priority, CFI and VLAN of the outer frame stand where a tag has them; those of the inner one 16 bits on.
    for (headers, at, shift) in [(Some(headers), 8, 0), (inner, 10, 1)] {
        if let Some(headers) = headers.filter(|headers| headers.tags > 1) {
            copy::<2>(&mut part, at, frame, headers.l2 + 18);
            let kind = be16(frame, headers.l2 + 16);
            if is_tag(kind) {
                part[12] |= if kind == 0x8100 { 0x80 } else { 0x20 } >> shift;
            }
        }
    }
    if vxlan {
        copy::<3>(&mut part, 0x14, frame, headers.payload + 4);
    }
    if let Some(gre) = gre {
        part[0] = (gre.flags >> 8) as u8 & GRE_FLAGS;
        part[14..16].copy_from_slice(&gre.protocol.to_be_bytes());
        if let Some(key) = gre.key {
            copy::<4>(&mut part, 16, frame, key);
        }
    }
    for (headers, at) in [(Some(headers), 0x1c), (inner, 0x20)] {
        if let Some(headers) = headers.filter(|headers| matches!(headers.ip, Ip::V6)) {
            // The lower 20 bits of the header's first word.
            copy::<3>(&mut part, at + 1, frame, headers.l3 + 1);
            part[at + 1] &= 0x0f;
        }
    }
    part
}

/// First entries of label stacks.
fn misc_2_part(frame: &[u8], labels: &Labels) -> [u8; 64] {
    let mut part = [0; 64];
    let places = [labels.outer, labels.inner, labels.in_gre, labels.in_udp];
    for (index, place) in places.into_iter().enumerate() {
        if let Some(place) = place {
            copy::<4>(&mut part, 4 * index, frame, place);
        }
    }
    part
}

/// Type and code of ICMP and ICMPv6. Source: RFC 792, RFC 4443.
fn misc_3_part(frame: &[u8], headers: &Headers) -> [u8; 64] {
    let mut part = [0; 64];
    match (headers.ip, headers.protocol, headers.fragment) {
        (Ip::V4, 1, false) => copy::<2>(&mut part, 0x20, frame, headers.l4),
        (Ip::V6, 58, false) => copy::<2>(&mut part, 0x22, frame, headers.l4),
        _ => {}
    }
    part
}
