//! Entries that change keys: memory windows are bound, and keys invalidated. Source: rdma-core `providers/mlx5/qp.c`,
//! `set_bind_wr`, `_build_umr_wqe`.

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Klm, MkeyContext, UmrControl, mkey_access, mkey_flag, mkey_mask, umr_flag};
use pollux_uverbs::abi::flags::Access;
use zerocopy::byteorder::big_endian::{U16, U32, U64};

use super::batch::{State, op};
use super::{Batch, Span};
use crate::mr::Held;
use crate::provider::request::Window;

/// Rights as an entry says them.
fn rights(access: Access) -> u8 {
    let pairs = [
        (Access::LOCAL_WRITE, mkey_access::LOCAL_WRITE),
        (Access::REMOTE_WRITE, mkey_access::REMOTE_WRITE),
        (Access::REMOTE_READ, mkey_access::REMOTE_READ),
        (Access::REMOTE_ATOMIC, mkey_access::ATOMIC),
    ];
    pairs.into_iter().filter(|(right, _)| access.contains(*right)).fold(0, |all, (_, bit)| all | bit)
}

impl Batch<'_> {
    /// Opens a window on a region to peers, or closes it where the piece is empty. What comes after it waits for it.
    pub(crate) fn bind(&mut self, id: u64, window: &Window, piece: &Held<'_>) -> &mut Self {
        self.change_key(id, window, piece.span(), false)
    }

    /// Invalidates a key of ours: that of a window of type 2. What comes after it waits for it.
    pub(crate) fn invalidate(&mut self, id: u64, key: u32) -> &mut Self {
        let window = Window { key, next_key: 0, bound_to_queue: true, access: Access::empty() };
        self.change_key(id, &window, Span { address: 0, lkey: 0, bytes: 0 }, true)
    }

    fn change_key(&mut self, id: u64, window: &Window, span: Span, invalidates: bool) -> &mut Self {
        self.begin(id, send::UMR, op::BIND);
        if !self.is_open() {
            return self;
        }
        // Such an entry has no segment that says where it goes.
        (self.segments, self.imm) = (1, window.key);
        let invalidates = if invalidates { State::INVALIDATES } else { 0 };
        self.state.0 &= !State::LACKS;
        self.state.0 |= State::BARE | State::CHANGES_KEY | invalidates;
        let closes = span.bytes == 0;
        let mut control =
            UmrControl { flags: umr_flag::TRANSLATION_OFFSET | umr_flag::INLINE, ..UmrControl::default() };
        let mut mask = mkey_mask::FREE | mkey_mask::KEY;
        let mut context = MkeyContext::default();
        let own = if window.bound_to_queue { self.poster.ring.number() } else { 0xff_ffff };
        if window.bound_to_queue {
            mask |= mkey_mask::QPN;
            control.flags |= if closes { umr_flag::CHECK_QPN } else { umr_flag::CHECK_FREE };
        }
        if closes {
            context.free = mkey_flag::FREE;
            context.qpn_mkey = U32::new(0xff_ffff << 8 | window.next_key & 0xff);
        } else {
            mask |= mkey_mask::LEN
                | mkey_mask::START_ADDR
                | mkey_mask::LW
                | mkey_mask::RR
                | mkey_mask::RW
                | mkey_mask::A;
            // One piece takes up a block of translation.
            control.klm_octowords = U16::new(4);
            context.qpn_mkey = U32::new(own << 8 | window.next_key & 0xff);
            context.access_flags = rights(window.access);
            let zero_based = window.access.contains(Access::ZERO_BASED);
            context.start_addr = U64::new(if zero_based { 0 } else { span.address });
            context.len = U64::new(span.bytes.into());
        }
        control.mkey_mask = U64::new(mask);
        let words: [[u64; 2]; 3] = zerocopy::transmute!(control);
        words.into_iter().for_each(|words| self.push(words));
        let words: [[u64; 2]; 4] = zerocopy::transmute!(context);
        words.into_iter().for_each(|words| self.push(words));
        if !closes {
            let klm = Klm {
                byte_count: U32::new(span.bytes),
                mkey: U32::new(span.lkey),
                address: U64::new(span.address),
            };
            self.push(zerocopy::transmute!(klm));
            (0..3).for_each(|_| self.push([0; 2]));
        }
        self
    }
}
