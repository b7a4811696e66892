//! Pieces of which a key is made that stands for other keys.

use pollux_mlx5_abi::wqe::Klm;
use zerocopy::FromBytes;

/// A piece of a key that stands for other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: u64,
    pub(crate) key: u32,
    pub(crate) at: u64,
}

impl Piece {
    pub(super) const NONE: Self = Self { bytes: 0, key: 0, at: 0 };
}

/// Pieces as they stand in memory.
pub(crate) fn pieces_of(list: &[u8]) -> impl Iterator<Item = Piece> {
    list.as_chunks::<16>().0.iter().map(|bytes| match Klm::ref_from_bytes(bytes) {
        Ok(klm) => Piece { bytes: klm.byte_count.get().into(), key: klm.mkey.get(), at: klm.address.get() },
        Err(_) => Piece::NONE,
    })
}
