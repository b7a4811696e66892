//! What requests take along.

use crate::provider::request::{Span, Use};
use pollux_mempool::Mbuf;
use pollux_mlx5_common::key::Keys;

use super::Buf;

/// What goes along with a request: a buffer or a packet's memory.
#[derive(Debug)]
pub enum Piece {
    /// A buffer.
    Buf(Buf),
    /// An mbuf of one segment, of a pool that the domain [knows](crate::pd::Pd::add_pool); of a longer one each is a [piece](Piece::segments).
    Mbuf(Mbuf),
}

impl Piece {
    /// The mbuf, if it is one.
    #[must_use]
    pub fn into_mbuf(self) -> Option<Mbuf> {
        match self {
            Self::Buf(_) => None,
            Self::Mbuf(mbuf) => Some(mbuf),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Buf(buf) => buf,
            Self::Mbuf(mbuf) => mbuf.data(),
        }
    }
}

impl From<Buf> for Piece {
    fn from(buf: Buf) -> Self {
        Self::Buf(buf)
    }
}

impl From<Mbuf> for Piece {
    fn from(mbuf: Mbuf) -> Self {
        Self::Mbuf(mbuf)
    }
}

/// What the device does with it. The span that is told stays mapped, registered and unused by anybody else until the piece is
/// dropped or used again, for which unsafe code of the rings relies on this: a buffer is the one owner of its bytes, registered as
/// long as it exists, and without rights for peers. An mbuf owns its data room, which its pool's registration covers as long as the
/// domain's key table says so, and the domain outlives the queue; where others share the data they may only read it, so it is only
/// read by the device as well (`is_sole`). A piece that is leaked leaves the memory so for ever.
impl Piece {
    /// Where the device finds it; `None` if no key covers it, or it may not be used so.
    #[inline(always)]
    pub(crate) fn span(&mut self, keys: &mut Keys, what_for: Use) -> Option<Span> {
        match self {
            Self::Buf(buf) => Some(buf.span(what_for == Use::Fill)),
            Self::Mbuf(mbuf) => packet_span(mbuf, keys, what_for),
        }
    }

    /// Says that the device filled in the first `bytes` bytes of what was told for [`Use::Fill`].
    #[inline(always)]
    pub(crate) fn filled(&mut self, bytes: u32) {
        match self {
            Self::Buf(buf) => {
                buf.set_len(bytes as usize);
            }
            Self::Mbuf(mbuf) => {
                mbuf.set_len(bytes as usize);
            }
        }
    }

    /// Bytes that [`filled`](Self::filled) can take.
    #[inline(always)]
    pub(crate) fn room(&self) -> u32 {
        match self {
            Self::Buf(buf) => buf.room() as u32,
            Self::Mbuf(mbuf) => (mbuf.room_bytes() - mbuf.headroom()) as u32,
        }
    }
}

fn packet_span(mbuf: &mut Mbuf, keys: &mut Keys, what_for: Use) -> Option<Span> {
    if !mbuf.is_contiguous() || what_for != Use::Read && !mbuf.is_sole() {
        return None;
    }
    let bytes = match what_for {
        Use::Fill => mbuf.room_bytes() - mbuf.headroom(),
        _ => mbuf.data_len(),
    };
    let address = mbuf.data_ptr().addr() as u64;
    let key = keys.find(address, bytes as u64)?;
    Some(Span {
        address: address.wrapping_add(key.delta),
        lkey: u32::from_be(key.lkey_be),
        bytes: u32::try_from(bytes).ok()?,
    })
}
