//! Compressed completions: packets that have most in common become 8 bytes each behind one title.
//!
//! In the basic layout title and arrays are written together. In the enhanced one the title is a completion like others,
//! long written, and each array is written when it is full, or the step ends, or an unlike packet comes.

use pollux_mlx5_abi::cqe::{Cqe64, ENHANCED_MINIS, MINIS, MiniCqe, MiniFormat, format, lro, packet};
use pollux_mlx5_abi::opcode::completion;
use zerocopy::IntoBytes;

use super::{Dead, Queue};
use crate::device::bus::Bus;
use crate::ledger::Crossing;

/// Packets in one block at most: `cqe_compression_max_num`.
pub(crate) const BLOCK_MAX: usize = 64;

/// Packets that wait to be written together.
#[derive(Debug)]
pub(super) struct Block {
    title: Cqe64,
    minis: [MiniCqe; BLOCK_MAX],
    count: usize,
    /// Of the enhanced layout: there is a title, and how many packets the next one is behind it, those that wait here
    /// aside. 0: there is none.
    behind: u16,
}

impl Default for Block {
    fn default() -> Self {
        Self { title: Cqe64::fresh(), minis: [MiniCqe::default(); BLOCK_MAX], count: 0, behind: 0 }
    }
}

impl Block {
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count as u32
    }

    /// What comes next is no continuation of what was.
    pub(super) fn forget_title(&mut self) {
        self.behind = 0;
    }

    /// Whether a completion differs from the title only in what its short form keeps.
    fn takes(&self, entry: &Cqe64, kept: MiniFormat, strides: bool) -> bool {
        let title = &self.title;
        let tag = matches!(kept, MiniFormat::FlowTagStride);
        let headers = matches!(kept, MiniFormat::HeaderStride);
        // Of the byte with the types, the short form has all but the two lowest bits.
        let types = if headers { packet::VLAN_STRIPPED | 2 } else { 0xff };
        let index = if strides {
            entry.wqe_id == title.wqe_id
        } else {
            entry.wqe_counter.get()
                == title.wqe_counter.get().wrapping_add(self.behind).wrapping_add(self.count as u16)
        };
        index
            && entry.pkt_info == title.pkt_info
            && entry.hds_ip_ext == title.hds_ip_ext
            && (entry.l4_l3_hdr_type ^ title.l4_l3_hdr_type) & types == 0
            && entry.vlan_info == title.vlan_info
            && entry.rss_hash_type == title.rss_hash_type
            && entry.srqn_uidx == title.srqn_uidx
            && (tag || entry.sop_drop_qpn == title.sop_drop_qpn)
    }
}

fn mini(entry: &Cqe64, kept: MiniFormat) -> MiniCqe {
    let (bytes, sum, stride) = (entry.byte_cnt.get(), entry.check_sum.get(), entry.wqe_counter.get());
    match kept {
        MiniFormat::Hash => MiniCqe::with_hash(entry.rss_hash_result.get(), bytes),
        MiniFormat::Checksum => MiniCqe::with_checksum(sum, 0, bytes),
        MiniFormat::ChecksumStride => MiniCqe::with_checksum(sum, stride, bytes),
        MiniFormat::FlowTagStride => MiniCqe::with_flow_tag(entry.flow_tag(), stride, bytes),
        MiniFormat::HeaderStride => MiniCqe::with_headers(entry.l4_l3_hdr_type & !3, stride, bytes),
    }
}

/// In a striding queue's completion a count of strides stands above the bytes; a plain one has none.
fn is_striding(entry: &Cqe64) -> bool {
    entry.byte_cnt.get() >> 16 != 0
}

impl Queue {
    /// Writes a completion, or puts it into the open block.
    pub(super) fn append(&mut self, bus: &Bus<'_>, entry: &Cqe64) -> Result<(), Dead> {
        let mut entry = *entry;
        let kept = match self.compress {
            // What was joined of segments has more to say than a short form holds.
            Some(kept)
                if entry.opcode() == completion::RESPONDER_SEND
                    && lro::segments(entry.srqn_uidx.get()) < 2 =>
            {
                kept
            }
            _ => {
                self.close(bus)?;
                self.block.forget_title();
                return self.write(bus, &mut entry);
            }
        };
        let strides = is_striding(&entry);
        // Without the stride in the short form, the packets of a striding queue cannot be told apart; above 2^24 bytes
        // there is no room for the tag.
        let no_stride = matches!(kept, MiniFormat::Hash | MiniFormat::Checksum);
        if strides && (no_stride || entry.strides().filler) {
            self.close(bus)?;
            self.block.forget_title();
            return self.write(bus, &mut entry);
        }
        if self.enhanced {
            return self.append_enhanced(bus, entry, kept, strides);
        }
        // No block goes on over the ring's end. That is gathered from DPDK `drivers/net/mlx5/mlx5_rxtx_vec_sse.h`,
        // `rxq_cq_decompress_v`: it looks for the array right behind the title, wherever that stands.
        let to_the_end = self.entries() - (self.produced & (self.entries() - 1));
        let full = self.block.count == BLOCK_MAX.min(to_the_end as usize);
        if self.block.count > 0 && (full || !self.block.takes(&entry, kept, strides)) {
            self.close(bus)?;
        }
        if self.block.count == 0 {
            self.block.title = entry;
        }
        self.block.minis[self.block.count] = mini(&entry, kept);
        self.block.count += 1;
        Ok(())
    }

    /// The same in the enhanced layout: into the open array, or as the title of those to come.
    fn append_enhanced(
        &mut self,
        bus: &Bus<'_>,
        mut entry: Cqe64,
        kept: MiniFormat,
        strides: bool,
    ) -> Result<(), Dead> {
        let most = ENHANCED_MINIS.min(self.entries() as usize);
        let takes = self.block.behind > 0 && self.block.takes(&entry, kept, strides);
        if !takes || self.block.count == most {
            self.close(bus)?;
        }
        if !takes {
            self.write(bus, &mut entry)?;
            (self.block.title, self.block.behind) = (entry, 1);
            return Ok(());
        }
        self.block.minis[self.block.count] = mini(&entry, kept);
        self.block.count += 1;
        Ok(())
    }

    /// Writes the open array of the enhanced layout.
    fn close_enhanced(&mut self, bus: &Bus<'_>, count: usize) -> Result<(), Dead> {
        let mut whole = [MiniCqe::default(); MINIS];
        whole[..count].copy_from_slice(&self.block.minis[..count]);
        let mut entry: Cqe64 = zerocopy::transmute!(whole);
        entry.op_own = (count as u8 - 1) << 4 | format::COMPRESSED << 2;
        self.write(bus, &mut entry)?;
        self.produced = self.produced.wrapping_add(count as u32 - 1);
        // The index has 16 bits, and a title serves no longer than it can tell.
        self.block.behind = self.block.behind.saturating_add(count as u16);
        if self.block.behind == u16::MAX {
            self.block.forget_title();
        }
        Ok(())
    }

    /// Writes the open block: the arrays first, then the title, which makes them all visible.
    pub(super) fn close(&mut self, bus: &Bus<'_>) -> Result<(), Dead> {
        let count = std::mem::take(&mut self.block.count);
        if count == 0 {
            return Ok(());
        }
        if self.enhanced {
            return self.close_enhanced(bus, count);
        }
        let mut title = self.block.title;
        if count == 1 {
            return self.write(bus, &mut title);
        }
        for (index, array) in self.block.minis[..count].chunks(MINIS).enumerate() {
            let mut whole = [MiniCqe::default(); MINIS];
            whole[..array.len()].copy_from_slice(array);
            let behind = if index == 0 { 1 } else { (index * MINIS) as u32 };
            let slot = self.slot(self.produced.wrapping_add(behind));
            let (at, _) = self.ring.place(slot).map_err(|_| Dead)?;
            match &mut self.unseen {
                None => bus.write(Crossing::Completion, at, whole.as_bytes()),
                Some(unseen) => unseen.publish(bus, at, &zerocopy::transmute!(whole)),
            }
            .map_err(|_| Dead)?;
        }
        title.byte_cnt.set(count as u32);
        title.op_own = title.op_own & 0xf0 | format::COMPRESSED << 2;
        self.write(bus, &mut title)?;
        self.produced = self.produced.wrapping_add(count as u32 - 1);
        Ok(())
    }
}
