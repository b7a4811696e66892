//! Compressed completions: a title, and for each packet 8 bytes in arrays of 8 behind it.
//!
//! The title's place stays ours until the last packet has been fetched, perhaps bursts later; then all places go back at
//! once, marked so that nothing in them can be taken for a completion of the next pass. In the enhanced layout each array
//! is a session of its own, and the title a plain completion that came before: a copy of it is kept ([`Title`]). Nothing
//! is marked there, but in one pass of 128: a pass has 8 bits, and a hole that was written 256 passes ago must not look
//! like news. Layout: see [`pollux_mlx5_abi::cqe`]. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_rx.c`,
//! `mlx5e_decompress_cqes_cont`.
#![expect(unsafe_code, reason = "reads arrays that a device writes, and takes mbufs by their addresses")]

use std::ptr::NonNull;

use pollux_mempool::Mbuf;
use pollux_mlx5_abi::cqe::{ENHANCED_MINIS, MINIS, MiniCqe, MiniFormat, enhanced_minis, format};
use pollux_mlx5_abi::opcode::completion;

use super::meta::Meta;
use super::title::{Kept, Title, Zip};
use super::{HASH, MARK, Out, TABLE};
use crate::eth::parking::MalformedCqe;
use crate::eth::rq::Rq;
use pollux_mlx5_common::cq::{Cq, Entry};

#[cfg(target_arch = "x86_64")]
pub(super) mod vector;

/// Of the enhanced layout: holes are marked in one pass out of so many.
const MARKED_PASSES: u32 = 128;

/// One compressed packet.
#[derive(Clone, Copy, Debug)]
pub(in crate::eth) struct Mini(MiniCqe);

impl Mini {
    /// Packet `at` of the session whose title is the next entry of `cq`.
    #[inline(always)]
    pub(in crate::eth) fn read(cq: &Cq, at: u32) -> Self {
        // SAFETY: inside an array; volatile loads bear a device that does what it must not.
        let words = unsafe {
            let mini = Self::place(cq, at).cast::<u32>();
            [mini.read_volatile(), mini.add(1).read_volatile()]
        };
        Self(zerocopy::transmute!(words))
    }

    /// Where it stands, up to 7 more behind it, those of its array.
    #[inline(always)]
    fn place(cq: &Cq, at: u32) -> NonNull<u8> {
        let array = if at < MINIS as u32 { u32::from(!cq.is_enhanced()) } else { at & !(MINIS as u32 - 1) };
        let place = cq.place(cq.consumer().wrapping_add(array));
        // SAFETY: an array fills the 64 bytes of a place.
        unsafe { place.add((at as usize % MINIS) * size_of::<MiniCqe>()) }
    }

    /// The hash, where the format has it.
    #[inline(always)]
    fn hash(self) -> u32 {
        self.0.rx_hash()
    }

    /// The byte count, as a full completion has it.
    #[inline(always)]
    pub(in crate::eth) fn byte_cnt(self, format: MiniFormat) -> u32 {
        if format == MiniFormat::FlowTagStride { self.0.bytes_below_tag() } else { self.0.byte_cnt.get() }
    }

    /// The first stride, where the format has it.
    #[inline(always)]
    pub(in crate::eth) fn stride(self, format: MiniFormat) -> Option<u32> {
        (!matches!(format, MiniFormat::Hash | MiniFormat::Checksum)).then_some(self.0.stride_index().into())
    }

    /// Puts what differs from the title in its place.
    #[inline(always)]
    pub(in crate::eth) fn describe<const F: u32>(
        self,
        rq: &Rq,
        title: Entry,
        format: MiniFormat,
        meta: &mut Meta,
    ) {
        if F & HASH != 0 && format == MiniFormat::Hash {
            meta.hash = self.hash();
        }
        if F & MARK != 0 && format == MiniFormat::FlowTagStride {
            meta.tag(rq, self.0.flow_tag());
        }
        if F & TABLE != 0 && format == MiniFormat::HeaderStride {
            // All but the two lowest bits of the byte; the rest is the title's.
            let types = self.0.header_types() & !3 | title.l4_l3_hdr_type() & 3;
            meta.types(rq, title, types);
        }
    }
}

impl Rq {
    /// Begins the session whose title is the next entry. `false` and trouble when it makes no sense.
    pub(in crate::eth) fn open_zip(&mut self, title: Entry) -> bool {
        let count = if self.cq.is_enhanced() {
            match enhanced_minis(title.op_own()) {
                count if count <= ENHANCED_MINIS as u32 => count,
                _ => 0,
            }
        } else {
            title.byte_cnt()
        };
        if self.compressed.is_none() {
            self.malformed(MalformedCqe::Format);
            return false;
        }
        if self.cq.is_enhanced() && self.title.is_none() {
            self.malformed(MalformedCqe::Untitled);
            return false;
        }
        let posted = self.posted.wrapping_sub(self.taken);
        let most = if self.striding.is_some() { self.cq.entries() } else { posted };
        if count == 0 || count > most.min(self.cq.entries()) {
            self.malformed(MalformedCqe::Minis);
            return false;
        }
        self.zip = Zip { count, done: 0 };
        true
    }

    /// Ends a session of which all packets were fetched.
    pub(in crate::eth) fn close_zip(&mut self) {
        let (from, count) = (self.cq.consumer(), self.zip.count);
        let in_marked_pass = |index: u32| (index >> self.cq.log()).is_multiple_of(MARKED_PASSES);
        let marked = !self.cq.is_enhanced()
            || in_marked_pass(from)
            || in_marked_pass(from.wrapping_add(count).wrapping_sub(1));
        if marked {
            self.cq.invalidate(from, from.wrapping_add(count));
        }
        self.cq.consume(count);
        self.zip = Zip::default();
    }

    /// The title of the open session.
    #[inline(always)]
    pub(in crate::eth) fn session_title(&self) -> Title {
        match self.title {
            Some(copy) => Title::Kept(copy),
            // SAFETY: a place of the queue's own ring.
            None => Title::Ring(unsafe { Entry::at(self.cq.place(self.cq.consumer())) }),
        }
    }

    /// Plain completions from `from` on were consumed: the last one may be the title of arrays to come.
    #[inline(always)]
    pub(in crate::eth) fn keep_title(&mut self, from: u32) {
        if self.cq.is_enhanced() && self.cq.consumer() != from {
            // Its place has not gone back yet.
            let last = self.cq.place(self.cq.consumer().wrapping_sub(1));
            // SAFETY: a place of the queue's own ring, read at once.
            self.title = Some(Kept(unsafe { Entry::at(last) }.copy()));
        }
    }

    /// Whether an entry is an array of the enhanced layout. Its upper four bits are then no opcode.
    #[inline(always)]
    pub(in crate::eth) fn is_array(&self, entry: Entry) -> bool {
        self.cq.is_enhanced() && entry.format() == format::COMPRESSED
    }

    /// Packets that an entry stands for: 0 for a failure.
    pub(in crate::eth) fn packets(&self, entry: Entry) -> u32 {
        let received = self.is_array(entry) || entry.opcode() == completion::RESPONDER_SEND;
        if received { self.cq.places(entry) } else { 0 }
    }

    /// Fetches packets of the open session, an mbuf each.
    pub(super) fn unzip<const F: u32>(&mut self, out: &mut Out<'_>) {
        let Some(format) = self.compressed else { return };
        let title = self.session_title();
        let title = title.entry();
        let common = Meta::read::<F>(self, title);
        // As many entries are posted as the session has packets (`open_zip`).
        let Zip { done, count } = self.zip;
        let most = (out.left() as u32).min(count - done);
        let mut trouble = None;
        let mut ahead = 0;
        while ahead < most {
            let mini = Mini::read(&self.cq, done + ahead);
            let bytes = mini.byte_cnt(format);
            // SAFETY: posted, and left behind below.
            let raw = unsafe { self.raw(ahead) };
            if bytes.wrapping_sub(1) >= self.longest {
                if bytes.wrapping_sub(1) >= self.capacity {
                    trouble = Some(MalformedCqe::Length);
                    break;
                }
                // SAFETY: the mbuf's slot is left behind below.
                unsafe { Mbuf::free_raw(&[raw]) };
                self.too_long();
            } else {
                let mut meta = common;
                mini.describe::<F>(self, title, format, &mut meta);
                // SAFETY: the mbuf came of the pool by `alloc_raw`, and the data is inside the room, as just checked.
                unsafe { out.push::<F>(self, raw, bytes, &meta) };
            }
            ahead += 1;
        }
        self.taken = self.taken.wrapping_add(ahead);
        self.zip.done += ahead;
        if let Some(trouble) = trouble {
            return self.malformed(trouble);
        }
        if self.zip.done == self.zip.count {
            self.close_zip();
        }
    }
}
