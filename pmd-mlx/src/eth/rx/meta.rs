//! What a completion says of its packet: type, checksums, tag, hash, mark, time.

use pollux_mempool::{Mbuf, PacketType, RxFlags};

use super::join::Joined;
use super::{HASH, LRO, MARK, TABLE, TIME, VLAN};
use crate::eth::parts::FLOW_TAG_FLAG;
use crate::eth::rq::Rq;
use pollux_mlx5_common::cq::Entry;

/// What a completion says of its packet besides the length.
#[derive(Clone, Copy, Debug)]
pub(in crate::eth) struct Meta {
    pub(in crate::eth) flags: RxFlags,
    pub(in crate::eth) packet_type: PacketType,
    pub(in crate::eth) hash: u32,
    pub(in crate::eth) mark: u32,
    pub(in crate::eth) vlan: u16,
    pub(in crate::eth) time: u64,
    pub(in crate::eth) joined: Option<Joined>,
}

impl Meta {
    /// Reads what the features in `F` want.
    #[inline(always)]
    pub(in crate::eth) fn read<const F: u32>(rq: &Rq, entry: Entry) -> Self {
        let (flags, packet_type) = if F & TABLE != 0 {
            rq.descriptions.get(entry.pkt_info(), entry.l4_l3_hdr_type(), entry.hds_ip_ext())
        } else {
            (RxFlags::empty(), PacketType::UNKNOWN)
        };
        let mut meta = Self { flags, packet_type, hash: 0, mark: 0, vlan: 0, time: 0, joined: None };
        if F & HASH != 0 {
            meta.hash = entry.rss_hash_result();
            let hashed = if entry.rss_hash_type() == 0 { RxFlags::empty() } else { RxFlags::RSS_HASH };
            meta.flags |= hashed & rq.want;
        }
        if F & VLAN != 0 {
            meta.vlan = entry.vlan_info();
        }
        if F & MARK != 0 {
            meta.tag(rq, entry.number());
        }
        if F & TIME != 0 {
            meta.time = entry.timestamp();
        }
        if F & LRO != 0 {
            meta.joined = Joined::read(entry);
        }
        meta
    }

    /// Puts what follows from other types of headers in the place of what followed from the title's.
    #[inline(always)]
    pub(in crate::eth) fn types(&mut self, rq: &Rq, title: Entry, types: u8) {
        let told = |types| rq.descriptions.get(title.pkt_info(), types, title.hds_ip_ext());
        let ((before, _), (flags, kind)) = (told(title.l4_l3_hdr_type()), told(types));
        self.flags = (self.flags - before) | flags;
        self.packet_type = kind;
    }

    /// Takes a flow tag apart.
    #[inline(always)]
    pub(in crate::eth) fn tag(&mut self, rq: &Rq, tag: u32) {
        let found = match tag {
            0 => RxFlags::empty(),
            FLOW_TAG_FLAG => RxFlags::FLOW,
            _ => RxFlags::FLOW | RxFlags::MARK,
        };
        self.flags = (self.flags - (RxFlags::FLOW | RxFlags::MARK)) | (found & rq.want);
        self.mark = tag.wrapping_sub(1);
    }

    /// Writes what is not in the flags.
    #[inline(always)]
    pub(in crate::eth) fn write<const F: u32>(&self, rq: &Rq, mbuf: &mut Mbuf) {
        if F & HASH != 0 {
            mbuf.set_rss_hash(self.hash);
        }
        if F & MARK != 0 {
            mbuf.set_mark(self.mark);
        }
        if F & VLAN != 0 {
            mbuf.set_vlan_tci(self.vlan);
        }
        if F & TIME != 0
            && let Some((field, flag)) = rq.time
        {
            mbuf.set_field(field, self.time);
            mbuf.set_flag(flag, true);
        }
        if F & LRO != 0
            && let Some(joined) = &self.joined
        {
            joined.mend(mbuf);
        }
    }
}
