//! VLAN tags, single and stacked. Source: IEEE 802.1Q, clause 9.6.

use std::ops::Deref;

use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{EtherHeader, EtherType, Layer, WireError, front, put};

/// Most tags that a parser of this crate follows. More is refused: no real network stacks that many.
pub const TAGS_MAX: usize = 4;

/// Tag control information: priority, drop eligibility and VLAN id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tci(pub u16);

impl Tci {
    /// Puts a tag together. Bits past the 3 of the priority and the 12 of the id are cut.
    #[must_use]
    pub fn new(priority: u8, drop_eligible: bool, id: u16) -> Tci {
        Tci(u16::from(priority & 7) << 13 | u16::from(drop_eligible) << 12 | id & 0xfff)
    }

    /// Priority code point, 0 to 7.
    #[must_use]
    pub fn priority(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// Whether the frame may be dropped first.
    #[must_use]
    pub fn drop_eligible(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// VLAN id, 0 to 4095.
    #[must_use]
    pub fn id(self) -> u16 {
        self.0 & 0xfff
    }
}

/// A tag as it stands behind its own type: control information, then the type of what follows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct VlanHeader {
    /// Tag control information.
    pub tci: U16,
    /// Type of the payload.
    pub ether_type: U16,
}
const _: () = assert!(size_of::<VlanHeader>() == 4);

impl VlanHeader {
    /// Bytes of the header.
    pub const BYTES: usize = size_of::<VlanHeader>();

    /// Tag control information.
    #[must_use]
    pub fn tci(&self) -> Tci {
        Tci(self.tci.get())
    }

    /// What the payload is.
    #[must_use]
    pub fn ether_type(&self) -> EtherType {
        EtherType(self.ether_type.get())
    }
}

/// A checked tag and what follows it.
#[derive(Clone, Copy, Debug)]
pub struct Vlan<'a> {
    header: &'a VlanHeader,
    payload: &'a [u8],
}

impl<'a> Vlan<'a> {
    /// Views `bytes`, which follow a type of 0x8100 or 0x88a8, as a tag.
    ///
    /// # Errors
    /// Fewer than 4 bytes.
    pub fn new(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (header, payload) = front(Layer::Vlan, bytes)?;
        Ok(Vlan { header, payload })
    }

    /// The layout.
    #[must_use]
    pub fn header(&self) -> &'a VlanHeader {
        self.header
    }

    /// What follows the tag.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The tag as plain data.
    #[must_use]
    pub fn repr(&self) -> VlanRepr {
        VlanRepr { tci: self.tci(), ether_type: self.ether_type() }
    }
}

impl Deref for Vlan<'_> {
    type Target = VlanHeader;

    fn deref(&self) -> &VlanHeader {
        self.header
    }
}

/// A tag as plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanRepr {
    /// Tag control information.
    pub tci: Tci,
    /// What the payload is.
    pub ether_type: EtherType,
}

impl VlanRepr {
    /// Writes the tag to the front of `bytes`; gives back what is behind it.
    ///
    /// # Errors
    /// No room.
    pub fn emit<'a>(&self, bytes: &'a mut [u8]) -> Result<&'a mut [u8], WireError> {
        let header = VlanHeader { tci: self.tci.0.into(), ether_type: self.ether_type.0.into() };
        put(Layer::Vlan, &header, bytes)
    }
}

/// Type and offset of the first thing behind the Ethernet header and all tags, and the number of tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BehindTags {
    /// What is there.
    pub ether_type: EtherType,
    /// Where it starts in the frame: the length of layer 2.
    pub offset: usize,
    /// Tags passed.
    pub tags: usize,
}

/// Passes the Ethernet header of `frame` and at most [`TAGS_MAX`] tags.
///
/// # Errors
/// The frame ends inside a header, or has more tags.
pub fn skip_tags(frame: &[u8]) -> Result<BehindTags, WireError> {
    let (ether, mut rest): (&EtherHeader, _) = front(Layer::Ether, frame)?;
    let mut ether_type = ether.ether_type();
    let mut tags = 0;
    while ether_type.is_vlan() {
        if tags == TAGS_MAX {
            return Err(WireError::Field {
                layer: Layer::Vlan,
                field: "number of tags",
                value: TAGS_MAX as u32 + 1,
                allowed: "at most 4",
            });
        }
        let (tag, behind): (&VlanHeader, _) = front(Layer::Vlan, rest)?;
        ether_type = tag.ether_type();
        rest = behind;
        tags += 1;
    }
    Ok(BehindTags { ether_type, offset: EtherHeader::BYTES + tags * VlanHeader::BYTES, tags })
}

/// Puts a tag into a frame that starts 4 bytes into `bytes`: the addresses move to the front, the tag goes behind them.
///
/// `tag_type` is [`EtherType::VLAN`] or [`EtherType::QINQ`].
///
/// # Errors
/// Fewer than 4 + 14 bytes.
pub fn push(bytes: &mut [u8], tag_type: EtherType, tci: Tci) -> Result<(), WireError> {
    const NEEDED: usize = VlanHeader::BYTES + EtherHeader::BYTES;
    if bytes.len() < NEEDED {
        return Err(WireError::truncated(Layer::Ether, NEEDED, bytes.len()));
    }
    bytes.copy_within(4..16, 0);
    bytes[12..14].copy_from_slice(&tag_type.0.to_be_bytes());
    bytes[14..16].copy_from_slice(&tci.0.to_be_bytes());
    Ok(())
}

/// Takes the outer tag out of the frame `bytes`: afterwards the frame starts 4 bytes in. `None`, and nothing changed,
/// when there is no tag.
pub fn pop(bytes: &mut [u8]) -> Option<(EtherType, Tci)> {
    const NEEDED: usize = VlanHeader::BYTES + EtherHeader::BYTES;
    if bytes.len() < NEEDED {
        return None;
    }
    let tag_type = EtherType(u16::from_be_bytes([bytes[12], bytes[13]]));
    let tci = Tci(u16::from_be_bytes([bytes[14], bytes[15]]));
    if !tag_type.is_vlan() {
        return None;
    }
    bytes.copy_within(0..12, 4);
    Some((tag_type, tci))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QINQ: [u8; 24] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xa8, 0x70, 0x64, 0x81, 0x00, 0xbf, 0xff, 0x08, 0x00, 0x45,
        0x00,
    ];

    #[test]
    fn golden_stacked_tags() {
        let outer = Vlan::new(&QINQ[14..]).unwrap();
        assert_eq!((outer.tci().priority(), outer.tci().drop_eligible(), outer.tci().id()), (3, true, 100));
        assert_eq!(outer.ether_type(), EtherType::VLAN);
        let inner = Vlan::new(outer.payload()).unwrap();
        assert_eq!((inner.tci().priority(), inner.tci().drop_eligible(), inner.tci().id()), (5, true, 4095));
        assert_eq!(inner.tci(), Tci::new(5, true, 4095));
        assert_eq!(inner.payload(), [0x45, 0]);
        let mut out = [0; 10];
        let rest = outer.repr().emit(&mut out).unwrap();
        inner.repr().emit(rest).unwrap().copy_from_slice(&[0x45, 0]);
        assert_eq!(out, QINQ[14..]);
        assert_eq!(
            skip_tags(&QINQ).unwrap(),
            BehindTags { ether_type: EtherType::IPV4, offset: 22, tags: 2 }
        );
    }

    #[test]
    fn too_many_tags_and_cut_tags_are_refused() {
        let mut frame = [0x81, 0x00].repeat(40);
        assert_eq!(
            skip_tags(&frame).unwrap_err().to_string(),
            "VLAN: number of tags is 5, allowed is at most 4"
        );
        frame.truncate(16);
        assert_eq!(skip_tags(&frame), Err(WireError::Truncated { layer: Layer::Vlan, needed: 4, given: 2 }));
    }

    #[test]
    fn push_and_pop_undo_each_other() {
        let mut room = [0u8; 24];
        room[4..].copy_from_slice(&QINQ[..20]);
        push(&mut room, EtherType::VLAN, Tci::new(1, false, 7)).unwrap();
        assert_eq!(room[..12], QINQ[..12]);
        assert_eq!(room[12..16], [0x81, 0x00, 0x20, 0x07]);
        assert_eq!(room[16..], QINQ[12..20]);
        assert_eq!(pop(&mut room), Some((EtherType::VLAN, Tci(0x2007))));
        assert_eq!(room[4..], QINQ[..20]);
        let mut plain = [0u8; 64];
        assert_eq!(pop(&mut plain), None);
        assert!(push(&mut [0; 17], EtherType::VLAN, Tci(0)).is_err());
    }
}
