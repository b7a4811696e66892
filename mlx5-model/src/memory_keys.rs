//! Memory keys: which memory a number stands for, and what may be done with it.
//!
//! A key is 32 bits: the index of its context and 8 bits that its maker chose. An access names a key, an address in the
//! key's own space (which begins wherever its maker said, not where the memory is) and a length; it is refused unless all of
//! it is covered, allowed, and of the queue's protection domain.

use crate::device::table::Table;

/// Why a key refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyError {
    /// No such key, or its variable bits differ.
    Unknown,
    /// Of another protection domain.
    Domain,
    /// Not all of it is covered.
    Bounds,
    /// Not for that.
    Right,
    /// The memory behind it is not pinned.
    Unpinned,
}

impl KeyError {
    /// The vendor's byte of the error completion: the model's own numbers.
    pub(crate) fn vendor(self) -> u8 {
        match self {
            Self::Unknown => 0x51,
            Self::Domain => 0x52,
            Self::Bounds => 0x53,
            Self::Right => 0x54,
            Self::Unpinned => 0x55,
        }
    }
}

/// What is done with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read, for sending.
    Read,
    /// Written, by receiving.
    Write,
}

/// Where a key's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Translation {
    /// At the very address.
    Physical,
    /// From one device address on.
    Flat(u64),
    /// In pages of one size, the first begun `offset` bytes in.
    Pages { log_page: u8, offset: u64, pages: Vec<u64> },
}

impl Translation {
    /// Pages in a row become one piece.
    pub(crate) fn of_pages(log_page: u8, offset: u64, pages: Vec<u64>) -> Self {
        let step = 1_u64 << log_page;
        match pages.first() {
            Some(first)
                if first.checked_add(offset).is_some()
                    && pages.windows(2).all(|pair| pair[0].checked_add(step) == Some(pair[1])) =>
            {
                Self::Flat(first + offset)
            }
            _ => Self::Pages { log_page, offset, pages },
        }
    }

    /// Where the byte at `at` (counted from the key's start, which is at `start`) is, and how many follow in a row.
    #[inline]
    pub(crate) fn piece(&self, start: u64, at: u64) -> Option<(u64, u64)> {
        match self {
            Self::Physical => Some((start.checked_add(at)?, u64::MAX)),
            Self::Flat(base) => Some((base.checked_add(at)?, u64::MAX)),
            Self::Pages { log_page, offset, pages } => {
                let at = at.checked_add(*offset)?;
                let inside = at & ((1 << log_page) - 1);
                let page = pages.get(usize::try_from(at >> log_page).ok()?)?;
                Some((page.checked_add(inside)?, (1 << log_page) - inside))
            }
        }
    }
}

/// A key's context.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub(crate) variable: u8,
    pub(crate) domain: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
    pub(crate) local_read: bool,
    pub(crate) local_write: bool,
    /// Bound to one queue, or to none.
    pub(crate) queue: Option<u32>,
    pub(crate) translation: Translation,
    /// The context as it was made, for queries.
    pub(crate) context: [u8; 64],
}

/// The key that reads as zeros and swallows writes; given out by QUERY_SPECIAL_CONTEXTS, not made to order.
pub(crate) const NULL_KEY: u32 = 0x0000_0200;
/// The key of the kernel for any address, 0 where software has no such privilege.
pub(crate) const RESERVED_KEY: u32 = 0x0000_0300;

/// All keys.
#[derive(Debug)]
pub(crate) struct Keys {
    table: Table<Key>,
}

impl Keys {
    pub(crate) fn new(limit: usize) -> Self {
        Self { table: Table::new(0x10, limit) }
    }

    pub(crate) fn table(&self) -> &Table<Key> {
        &self.table
    }

    pub(crate) fn table_mut(&mut self) -> &mut Table<Key> {
        &mut self.table
    }

    /// Walks the pieces of device memory behind `bytes` bytes at `at` of `key`, in order: address and length of each.
    /// Nothing is walked unless all of it may be.
    #[inline]
    pub(crate) fn walk(
        &self,
        key: u32,
        domain: u32,
        at: u64,
        bytes: u32,
        access: Access,
        mut each: impl FnMut(u64, usize) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        let context = self.table.get(key >> 8).ok_or(KeyError::Unknown)?;
        if context.variable != key as u8 || context.queue.is_some() {
            return Err(KeyError::Unknown);
        }
        if context.domain != domain {
            return Err(KeyError::Domain);
        }
        let allowed = match access {
            Access::Read => context.local_read,
            Access::Write => context.local_write,
        };
        if !allowed {
            return Err(KeyError::Right);
        }
        let from = at.checked_sub(context.start).ok_or(KeyError::Bounds)?;
        let end = from.checked_add(bytes.into()).ok_or(KeyError::Bounds)?;
        if end > context.length {
            return Err(KeyError::Bounds);
        }
        let mut from = from;
        while from < end {
            let (address, run) = context.translation.piece(context.start, from).ok_or(KeyError::Bounds)?;
            let run = run.min(end - from);
            each(address, run as usize)?;
            from += run;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (Keys, u32) {
        let mut keys = Keys::new(8);
        let key = Key {
            variable: 0x77,
            domain: 3,
            start: 0x10_0800,
            length: 0x2000,
            local_read: true,
            local_write: false,
            queue: None,
            translation: Translation::of_pages(12, 0x800, vec![0x7000, 0x9000, 0xa000]),
            context: [0; 64],
        };
        let index = keys.table_mut().insert(0, key).expect("room");
        (keys, index << 8 | 0x77)
    }

    fn walk(
        keys: &Keys,
        key: u32,
        domain: u32,
        at: u64,
        bytes: u32,
        access: Access,
    ) -> Result<Vec<(u64, usize)>, KeyError> {
        let mut pieces = Vec::new();
        keys.walk(key, domain, at, bytes, access, |address, bytes| {
            pieces.push((address, bytes));
            Ok(())
        })?;
        Ok(pieces)
    }

    #[test]
    fn addresses_lead_to_pages() {
        let (keys, key) = keys();
        let pieces = walk(&keys, key, 3, 0x10_0800, 0x2000, Access::Read).expect("covered");
        assert_eq!(pieces, [(0x7800, 0x800), (0x9000, 0x1000), (0xa000, 0x800)]);
        assert_eq!(walk(&keys, key, 3, 0x10_0fff, 2, Access::Read), Ok(vec![(0x7fff, 1), (0x9000, 1)]));
    }

    #[test]
    fn pages_in_a_row_are_one_piece() {
        let flat = Translation::of_pages(12, 4, vec![0x7000, 0x8000]);
        assert!(matches!(flat, Translation::Flat(0x7004)));
        assert!(matches!(Translation::of_pages(12, 0, vec![]), Translation::Pages { .. }));
        let wraps = Translation::of_pages(12, 1, vec![u64::MAX]);
        assert!(wraps.piece(0, 0).is_none());
    }

    #[test]
    fn what_is_not_covered_or_allowed_is_refused() {
        let (keys, key) = keys();
        let cases = [
            (key ^ 1, 3, 0x10_0800, 1, Access::Read, KeyError::Unknown),
            (key + 256, 3, 0x10_0800, 1, Access::Read, KeyError::Unknown),
            (0, 3, 0x10_0800, 1, Access::Read, KeyError::Unknown),
            (key, 4, 0x10_0800, 1, Access::Read, KeyError::Domain),
            (key, 3, 0x10_0800, 1, Access::Write, KeyError::Right),
            (key, 3, 0x10_07ff, 1, Access::Read, KeyError::Bounds),
            (key, 3, 0x10_2800, 1, Access::Read, KeyError::Bounds),
            (key, 3, 0x10_0800, 0x2001, Access::Read, KeyError::Bounds),
            // The memory's own address is no address of the key.
            (key, 3, 0x7800, 1, Access::Read, KeyError::Bounds),
            (key, 3, u64::MAX, 2, Access::Read, KeyError::Bounds),
        ];
        for (key, domain, at, bytes, access, expected) in cases {
            assert_eq!(walk(&keys, key, domain, at, bytes, access), Err(expected), "{at:#x}");
        }
    }
}
