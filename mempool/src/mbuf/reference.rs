//! How many refer to an mbuf's data: the lower half of the word in its header that says where it is at home.

use pollux_atomic::{AtomicU64, Ordering};

use super::header::REFERENCES;
use crate::order;

/// The word, for whoever asks whether it is the only one: what the others did with the data is over.
#[inline(always)]
pub(crate) fn settled(home: &AtomicU64) -> u64 {
    home.load(order::reference_sole())
}

/// One reference more; false when there are as many as can be counted. The caller has one, or one that nobody can end meanwhile.
pub(crate) fn share(home: &AtomicU64) -> bool {
    let counted = home.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |word| {
        (word & REFERENCES < REFERENCES).then_some(word + 1)
    });
    counted.is_ok()
}

/// Ends the caller's reference. The last one gets the word: all use of the data is over.
pub(crate) fn end(home: &AtomicU64) -> Option<u64> {
    let word = settled(home);
    if word & REFERENCES == 1 {
        return Some(word);
    }
    let word = home.fetch_sub(1, order::reference_end());
    (word & REFERENCES == 1).then_some(word)
}
