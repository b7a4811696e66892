//! All memory of a program under one key: in pieces, each a key of its own from the moment at which one of its pages is needed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use pollux_uverbs::Errno;
use zerocopy::IntoBytes;

use super::key::{self, Grant, LOG_PIECE, PIECES};
use super::pages::{Pages, Reach};
use super::{Answers, Paging};
use crate::adapter::Adapter;
use crate::mkey::destroy_key;

/// Keys of an implicit region.
#[derive(Debug)]
pub(super) struct Implicit {
    grant: Grant,
    reach: Reach,
    /// Index of the key for all of it.
    index: u32,
    /// Index of the key behind pieces that are not there.
    nowhere: u32,
    pieces: BTreeMap<u64, Pages>,
}

impl Implicit {
    /// The region, and its key.
    pub(super) fn new(adapter: &Adapter, grant: Grant, reach: Reach) -> Result<(Self, u32), Errno> {
        let (nowhere, nowhere_key) = key::nowhere(adapter, grant.pdn)?;
        let made = key::of_pieces(adapter, grant, nowhere_key);
        let (index, key) = made.inspect_err(|_| {
            // Nobody has it.
            let _ = destroy_key(adapter, nowhere);
        })?;
        Ok((Self { grant, reach, index, nowhere, pieces: BTreeMap::new() }, key))
    }

    /// Indexes of the keys that the device may ask for.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u32> + '_ {
        [self.nowhere, self.index].into_iter().chain(self.pieces.values().map(|pages| pages.index))
    }

    /// Brings these bytes. `region`, which has this, answers for the keys that it makes.
    pub(super) fn bring(
        &mut self,
        paging: &Paging,
        region: &Arc<dyn Answers>,
        bytes: &Range<u64>,
    ) -> Result<(), Errno> {
        let adapter = &paging.adapter;
        if bytes.end > PIECES << LOG_PIECE {
            return Err(Errno::EFAULT);
        }
        for index in bytes.start >> LOG_PIECE..bytes.end.div_ceil(1 << LOG_PIECE) {
            let place = match self.pieces.entry(index) {
                Entry::Occupied(there) => {
                    there.into_mut().bring(adapter, bytes)?;
                    continue;
                }
                Entry::Vacant(place) => place,
            };
            let all = index << LOG_PIECE..(index + 1) << LOG_PIECE;
            let (made, key) = key::of_pages(adapter, self.grant, all.start, 1 << LOG_PIECE)?;
            let mut pages = Pages::new(made, self.reach, &all);
            let piece = key::piece(key, index);
            let brought = pages.bring(adapter, bytes).and_then(|()| paging.add(made, region));
            let brought = brought.and_then(|()| {
                match adapter.firmware.queue.set_key_entries(self.index, index, piece.as_bytes()) {
                    true => Ok(()),
                    false => Err(Errno::EIO),
                }
            });
            if let Err(errno) = brought {
                paging.remove(made, region.as_ref());
                let _ = destroy_key(adapter, made);
                return Err(errno);
            }
            place.insert(pages);
        }
        Ok(())
    }

    /// Ends its keys, that of all first.
    pub(super) fn end(&self, adapter: &Adapter) -> Result<(), Errno> {
        destroy_key(adapter, self.index)?;
        for index in self.pieces.values().map(|pages| pages.index).chain([self.nowhere]) {
            // Nobody has these.
            let _ = destroy_key(adapter, index);
        }
        Ok(())
    }
}
