//! Timers: a hierarchical wheel per lcore, single and periodic, with callbacks called from the lcore's loop.
//!
//! ```text
//!   any thread --arm, cancel--> Timer ~~inbox~~> LcoreTimers: a closure a timer <--manage_timers-- the lcore's loop
//!                                                   |
//!   lcore's own code --arm, disarm--------------------------------> Wheel<T> --manage(now)--> handler(timers, id, payload)
//! ```
//!
//! [`Wheel`] is the fast form for one thread: a timer carries a small `Copy` payload and one handler gets them all.
//!
//! [`LcoreTimers`] is the full form over it: each timer has a closure, and a [`Timer`] handle arms and cancels it from any
//! thread. What a cancel means at each moment stands there. To have a timer on a certain lcore, make it with that lcore's
//! [`TimerMaker`].
//!
//! # The timers of an `Eal`
//! Every lcore of an [`Eal`](crate::Eal) has timers, in cycles of [`Eal::clock`](crate::Eal::clock), and so has a thread that
//! registered itself; service cores have none. [`Eal::timers`](crate::Eal::timers) gives any thread the maker of any lcore's,
//! [`LcoreContext::timers`](crate::LcoreContext::timers) a loop its own; the first call makes room for
//! [`TIMERS_PER_LCORE`], of which the pages that are used take memory.
//! - What runs on the lcore calls [`LcoreContext::manage_timers`](crate::LcoreContext::manage_timers) in its loop. Timers do not
//!   interrupt: while nothing runs there, or what runs does not call, they wait. They belong to the lcore, not to what was
//!   launched on it, so the next loop that calls finds them, and those overdue come at once, a single shot once, a periodic
//!   timer once a call until it has caught up.
//! - When the `Eal` ends, timers that have not come due are dropped and never called; what their closures captured goes then, or,
//!   where the lcore had not learnt of the timer, with its handle. Until after the exit handlers they can be armed, though nothing runs them any more; then a handle's `arm` says
//!   [`TimerError::Gone`], and its `cancel` answers as ever.
//! - Each `Eal` has its own: two with the same lcore numbers do not meet.
//!
//! # What is promised
//! - Time is an argument, a count of any unit (cycles, nanoseconds). A callback is never called with a `now` before its
//!   deadline, and with the first `manage` that is a resolution (at most 1 us) or more after it.
//! - Within one `manage`, deadlines go in the order of the wheel's ticks; within a tick the order is not defined.
//! - What a callback arms does not fire within the same `manage`, so that none runs for ever.
//! - A callback may do anything to any timer, itself included. Its own single shot is idle by then; its own periodic timer
//!   is already armed for the next time, and to disarm it is to end it.
//! - Nothing is allocated after set-up: not by arming, moving or firing.
//! - A panic in a callback leaves the wheel whole: the next `manage` goes on with the rest.
//!
//! # The wheel
//! Time in ticks is a number of eight bytes, and each byte is a level of 256 buckets. A timer lies at the level of the
//! highest byte in which its tick differs from the cursor's, in the bucket of that byte's value. So the buckets' numbers
//! are in the order of time, and the lowest one that is filled (bitmaps tell) comes next: the cursor jumps there, however
//! far. A bucket of the finest level is one tick and fires; one of a coarser level is emptied into finer ones, but for those of
//! its first tick, which fire from where they are: timeouts that were armed together are touched once, not once a level. `manage`
//! keeps the start of the next filled bucket, and until then is one comparison.
//!
//! With many timers the cost is cache misses, so the wheel is laid out to have few: a timer is 32 bytes on one line, with
//! its payload. A bucket is an array in chunks of a line, not a list, so no miss waits for another one; leaving it is two
//! stores that nothing waits for. A timer that is armed for later than the bucket it lies in stays there, and moves on when
//! that bucket comes up: re-arming a timeout that never fires, the common case, writes only the timer.
//!
//! ```
//! use pollux_eal::timer::Wheel;
//!
//! let mut wheel = Wheel::new(1000, 1_000_000_000, 0)?;
//! let blink = wheel.insert("blink")?;
//! wheel.arm_periodic(blink, 5_000_000, 5_000_000);
//! assert_eq!(wheel.manage(4_999_999, |_, _, _| unreachable!("never early")), 0);
//! assert_eq!(wheel.manage(5_001_000, |_, _, name| assert_eq!(name, "blink")), 1);
//! # Ok::<(), pollux_eal::timer::TimerError>(())
//! ```

mod bucket;
mod firing;
mod handle;
mod inbox;
mod runner;
mod seat;
mod shared;
mod wheel;

pub use firing::Firing;
pub use handle::{Timer, TimerMaker};
pub use runner::LcoreTimers;
pub(crate) use seat::Seat;
pub use shared::Cancelled;
pub use wheel::{Disarmed, TIMERS_MAX, TimerId, Timers, Wheel, WheelStats};

/// Timers that each lcore of an [`Eal`](crate::Eal) has room for. Who needs more, such as one for each of a million flows,
/// has a [`Wheel`] of its own.
pub const TIMERS_PER_LCORE: usize = 1 << 16;

/// Timer errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TimerError {
    /// Capacity out of range.
    #[error("timer wheel capacity {capacity}: must be from 1 to {TIMERS_MAX}")]
    Capacity {
        /// Requested capacity.
        capacity: usize,
    },
    /// The wheel is full.
    #[error("timer wheel is full with {capacity} timers: remove some, or make it larger")]
    Full {
        /// Capacity of the wheel.
        capacity: usize,
    },
    /// The timers of the lcore were dropped.
    #[error("the timers of the lcore no longer exist: its loop has ended")]
    Gone,
}
