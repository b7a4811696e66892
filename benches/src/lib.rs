//! What the programs of figures share: cold cache lines, a plain copy loop as the yardstick of a machine, and whether the
//! machine was quiet while they timed.

mod beside;
mod cold;
mod column;
mod copy;
mod quiet;
mod trial;

pub use beside::Means;
pub use cold::Cold;
pub use column::{Column, Plan, Timed, columns};
pub use copy::CopyLoop;
pub use quiet::{Disturbance, Watch};
pub use trial::Trial;

use pollux_eal::clock::cycles::now_precise;

/// What two reads of the time-stamp counter in a row say: the part of each figure that is not the work's.
#[must_use]
pub fn two_reads() -> u64 {
    (0..10_000)
        .map(|_| {
            let start = now_precise();
            now_precise() - start
        })
        .min()
        .unwrap_or(0)
}
