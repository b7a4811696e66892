//! A packet as it is on the wire: its segments, with the tags that it has beside its bytes.

use pollux_capture::Frame;
use pollux_mempool::{Mbuf, RxFlags, TxFlags};
use pollux_wire::EtherType;

/// Bytes before a tag: the two addresses.
const ADDRESSES: usize = 12;

/// A packet and its tags.
pub(super) struct Whole<'a> {
    mbuf: &'a Mbuf,
    tags: [u8; 8],
    tag_bytes: usize,
}

impl<'a> Whole<'a> {
    /// With the tags that the device took off.
    pub(super) fn received(mbuf: &'a Mbuf) -> Self {
        let flags = mbuf.rx_flags();
        let (vlan, qinq) = (flags.contains(RxFlags::VLAN_STRIPPED), flags.contains(RxFlags::QINQ_STRIPPED));
        Self::with(mbuf, vlan, qinq)
    }

    /// With the tags that it is to get.
    pub(super) fn to_send(mbuf: &'a Mbuf) -> Self {
        let flags = mbuf.tx_flags();
        Self::with(mbuf, flags.intersects(TxFlags::VLAN | TxFlags::QINQ), flags.contains(TxFlags::QINQ))
    }

    fn with(mbuf: &'a Mbuf, vlan: bool, qinq: bool) -> Self {
        let mut whole = Self { mbuf, tags: [0; 8], tag_bytes: 0 };
        // A first segment that ends in the addresses has nowhere to put one.
        if (vlan || qinq) && mbuf.data_len() >= ADDRESSES {
            if qinq {
                whole.put(EtherType::QINQ, mbuf.vlan_tci_outer());
            }
            whole.put(EtherType::VLAN, mbuf.vlan_tci());
        }
        whole
    }

    fn put(&mut self, kind: EtherType, tci: u16) {
        let [a, b] = kind.0.to_be_bytes();
        let [c, d] = tci.to_be_bytes();
        self.tags[self.tag_bytes..self.tag_bytes + 4].copy_from_slice(&[a, b, c, d]);
        self.tag_bytes += 4;
    }
}

impl Frame for Whole<'_> {
    fn bytes(&self) -> usize {
        self.mbuf.pkt_len() as usize + self.tag_bytes
    }

    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let cut = if self.tag_bytes > 0 { ADDRESSES } else { self.mbuf.data_len() };
        let (before, behind) = self.mbuf.data().split_at(cut);
        let tagged = [before, &self.tags[..self.tag_bytes], behind];
        tagged.into_iter().filter(|piece| !piece.is_empty()).chain(self.mbuf.segments().skip(1))
    }
}
