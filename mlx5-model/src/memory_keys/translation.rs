//! What a key stands for: addresses, pages, or pieces of other keys.

use pollux_mlx5_abi::paging::{PRESENT, READ};

use super::piece::{Piece, pieces_of};
use super::{KeyError, pattern};

/// Pages, or pieces of one size, of a key at most, whatever its context has room for.
const ENTRIES_MAX: usize = 1 << 22;
/// Pieces of any size at most: they are looked for one by one. What the capabilities say (`log_max_klm_list_size`).
const PIECES_MAX: usize = 1 << 16;

/// In the place of a page that is not there: no page begins at the last address.
const ABSENT: u64 = u64::MAX;
/// In the address of a page: it may be read and not written, as if it were not there. Linux hands out such ones, the page of
/// zeros that all programs share among them.
const READ_ONLY: u64 = 1;

/// Where a key's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Translation {
    /// At the very address.
    Physical,
    /// From one device address on.
    Flat(u64),
    /// In pages of one size, the first begun `offset` bytes in.
    Pages { log_page: u8, offset: u64, pages: Vec<u64> },
    /// Under other keys, piece by piece (KLM).
    Pieces(Vec<Piece>),
    /// Under other keys, in pieces of one size, the first begun `offset` bytes in (KSM). What a piece says of its own bytes does not
    /// count.
    Blocks { log_bytes: u8, offset: u64, blocks: Vec<Piece> },
}

/// Entries that are to be written, from the one at `begin` on.
#[derive(Debug)]
pub(super) struct Entries {
    begin: usize,
    list: List,
}

#[derive(Debug)]
enum List {
    Pages(Vec<u64>),
    Pieces(Vec<Piece>),
}

impl Translation {
    /// Pages in a row become one piece.
    pub(crate) fn of_pages(log_page: u8, offset: u64, pages: Vec<u64>) -> Self {
        let step = 1_u64 << log_page;
        match pages.first() {
            Some(first)
                if pages.iter().all(|page| page & READ_ONLY == 0)
                    && first.checked_add(offset).is_some()
                    && pages.windows(2).all(|pair| pair[0].checked_add(step) == Some(pair[1])) =>
            {
                Self::Flat(first + offset)
            }
            _ => Self::Pages { log_page, offset, pages },
        }
    }

    /// The same as [`piece`](Self::piece) of memory that a key covers, where pages may be absent.
    #[inline]
    pub(super) fn reach(&self, start: u64, at: u64, writes: bool) -> Result<(u64, u64), KeyError> {
        let Self::Pages { log_page, offset, pages } = self else {
            return self.piece(start, at).ok_or(KeyError::Bounds);
        };
        let at = at.checked_add(*offset).ok_or(KeyError::Bounds)?;
        let index = usize::try_from(at >> log_page).map_err(|_| KeyError::Bounds)?;
        let page = *pages.get(index).ok_or(KeyError::Bounds)?;
        if page == ABSENT || writes && page & READ_ONLY != 0 {
            return Err(KeyError::Absent);
        }
        let inside = at & ((1 << log_page) - 1);
        let address = (page & !READ_ONLY).checked_add(inside).ok_or(KeyError::Bounds)?;
        Ok((address, (1 << log_page) - inside))
    }

    /// Where the byte at `at` (counted from the key's start, which is at `start`) is, and how many follow in a row.
    #[inline]
    pub(crate) fn piece(&self, start: u64, at: u64) -> Option<(u64, u64)> {
        match self {
            Self::Physical => Some((start.checked_add(at)?, u64::MAX)),
            Self::Flat(base) => Some((base.checked_add(at)?, u64::MAX)),
            Self::Pieces(_) | Self::Blocks { .. } => None,
            Self::Pages { log_page, offset, pages } => {
                let at = at.checked_add(*offset)?;
                let inside = at & ((1 << log_page) - 1);
                let page = pages.get(usize::try_from(at >> log_page).ok()?)?;
                Some((page.checked_add(inside)?, (1 << log_page) - inside))
            }
        }
    }

    /// The piece of another key where the byte at `at` is: what is left of it from there, its key, and where in that it is. `None`
    /// where there is none, or this stands for no keys. `hint` is the piece to look from, on or back, and how many bytes stand before it.
    pub(super) fn under(&self, at: u64, hint: &mut (usize, u64)) -> Option<Piece> {
        match self {
            Self::Pieces(pieces) => {
                while at < hint.1 {
                    let before = hint.0.checked_sub(1)?;
                    *hint = (before, hint.1 - pieces.get(before)?.bytes);
                }
                loop {
                    let piece = pieces.get(hint.0)?;
                    let inside = at - hint.1;
                    if inside < piece.bytes {
                        let at = piece.at.checked_add(inside)?;
                        return Some(Piece { bytes: piece.bytes - inside, key: piece.key, at });
                    }
                    *hint = (hint.0 + 1, hint.1 + piece.bytes);
                }
            }
            Self::Blocks { log_bytes, offset, blocks } => {
                let at = at.checked_add(*offset)?;
                let inside = at & ((1 << log_bytes) - 1);
                let block = blocks.get(usize::try_from(at >> log_bytes).ok()?)?;
                Some(Piece {
                    bytes: (1 << log_bytes) - inside,
                    key: block.key,
                    at: block.at.checked_add(inside)?,
                })
            }
            _ => None,
        }
    }

    /// Whether it stands for other keys.
    #[inline]
    pub(super) fn is_indirect(&self) -> bool {
        matches!(self, Self::Pieces(_) | Self::Blocks { .. })
    }

    /// The key's first address, or the size of its pages, is another.
    pub(super) fn settle(&mut self, start: u64, log_bytes: Option<u8>) {
        let (log, offset, least) = match self {
            Self::Pages { log_page, offset, .. } => (log_page, offset, 12),
            Self::Blocks { log_bytes, offset, .. } => (log_bytes, offset, 0),
            _ => return,
        };
        *log = log_bytes.unwrap_or(*log).max(least);
        *offset = start & ((1 << *log) - 1);
    }

    /// Entries as they stand in memory, for the place that is so many units of 16 bytes behind the first: pieces, or two pages to a
    /// unit. `None` where the key has no room for them, which was made with so many `units`, or is of no such kind.
    pub(super) fn entries(&self, begin: u64, list: &[u8], units: u64) -> Option<Entries> {
        // Whoever rounds a list up to what an entry can say writes no further than this. Source: Linux
        // `drivers/infiniband/hw/mlx5/umr.h`, `mlx5r_umr_get_xlt_octo`.
        let end = begin.checked_add(list.len() as u64 / 16)?;
        if end > units.next_multiple_of(4) {
            return None;
        }
        let begin = usize::try_from(begin).ok()?;
        let (begin, list) = match self {
            Self::Pieces(_) if pattern::is_one(list) => (0, List::Pieces(pattern::unroll(list)?)),
            Self::Pieces(_) | Self::Blocks { .. } => (begin, List::Pieces(pieces_of(list).collect())),
            Self::Pages { .. } => (begin.checked_mul(2)?, List::Pages(entered(list).collect())),
            // What was made whole is not changed piece by piece.
            Self::Physical | Self::Flat(_) => return None,
        };
        let count = match &list {
            List::Pages(pages) => pages.len(),
            List::Pieces(pieces) => pieces.len(),
        };
        let most = if matches!(self, Self::Pieces(_)) { PIECES_MAX } else { ENTRIES_MAX };
        (begin.checked_add(count)? <= most).then_some(Entries { begin, list })
    }

    /// Entries that it holds.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Pages { pages, .. } => pages.len(),
            Self::Pieces(pieces) | Self::Blocks { blocks: pieces, .. } => pieces.len(),
            Self::Physical | Self::Flat(_) => 0,
        }
    }

    /// Its pieces as they are once entries are written.
    pub(super) fn pieces_with<'a>(&'a self, new: Option<&'a Entries>) -> impl Iterator<Item = Piece> + 'a {
        let old = match self {
            Self::Pieces(pieces) => &pieces[..],
            _ => &[],
        };
        let (begin, new) = match new {
            Some(Entries { begin, list: List::Pieces(pieces) }) => (*begin, &pieces[..]),
            _ => (0, &[][..]),
        };
        let count = old.len().max(begin + new.len());
        (0..count).map(move |index| {
            let of_new = index.checked_sub(begin).and_then(|index| new.get(index));
            *of_new.or(old.get(index)).unwrap_or(&Piece::NONE)
        })
    }

    /// Writes entries that it made.
    /// Forgets the pages behind the first so many.
    pub(super) fn truncate(&mut self, count: usize) {
        if let Self::Pages { pages, .. } = self {
            pages.truncate(count);
        }
    }

    pub(super) fn write(&mut self, Entries { begin, list }: Entries) {
        match (self, list) {
            (Self::Pages { pages, .. }, List::Pages(list)) => put(pages, begin, &list, ABSENT),
            (Self::Pieces(pieces) | Self::Blocks { blocks: pieces, .. }, List::Pieces(list)) => {
                put(pieces, begin, &list, Piece::NONE);
            }
            _ => {}
        }
    }
}

impl Entries {
    /// Where the last of them ends, among those of the key.
    pub(super) fn end(&self) -> usize {
        self.begin
            + match &self.list {
                List::Pages(pages) => pages.len(),
                List::Pieces(pieces) => pieces.len(),
            }
    }

    /// Whether they are addresses of the bus.
    pub(super) fn are_pages(&self) -> bool {
        matches!(self.list, List::Pages(_))
    }
}

fn put<T: Copy>(entries: &mut Vec<T>, begin: usize, list: &[T], none: T) {
    entries.resize(entries.len().max(begin + list.len()), none);
    entries[begin..][..list.len()].copy_from_slice(list);
}

/// Addresses of pages as they stand in memory; the low bits are rights of the page, not address. Source: Linux
/// `drivers/infiniband/hw/mlx5/mlx5_ib.h`, `MLX5_IB_MTT_READ`, `MLX5_IB_MTT_WRITE`.
pub(crate) fn pages_of(list: &[u8]) -> impl Iterator<Item = u64> {
    list.as_chunks::<8>().0.iter().map(|page| u64::from_be_bytes(*page) & !0xfff)
}

/// The same of entries that say which pages are there, those that a queue writes among them: a page without rights is not.
pub(crate) fn entered(list: &[u8]) -> impl Iterator<Item = u64> {
    list.as_chunks::<8>().0.iter().map(|page| {
        let entry = u64::from_be_bytes(*page);
        match entry & PRESENT {
            0 => ABSENT,
            READ => entry & !0xfff | READ_ONLY,
            _ => entry & !0xfff,
        }
    })
}
