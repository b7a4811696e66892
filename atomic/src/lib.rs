//! Atomics that loom can explore, and memory orderings with names, which a run of loom can weaken.
//!
//! ```text
//!   order.rs of a crate                          its lock-free code
//!   orderings! {                                 word.store(seq, order::publish())
//!       publish = Release {                           |
//!           Relaxed => Found("a_loom_test"),          |   built as ever: the constant Release
//!       }                                             |   --cfg loom:    Relaxed, if POLLUX_RELAX=publish=Relaxed
//!   }                                                 v
//!       ^ the table of `cargo xtask nightly`: for each relaxation the test that must fail by it
//! ```
//!
//! A release or acquire that no test would miss is one that the next change may lose. So each is named once, beside what it pairs
//! with, and each way to weaken it names the model that finds it, or says why none can. [`orderings!`] makes a function of each
//! name; that is the constant in every build but loom's.
//!
//! `ring`, `eal`, `mempool` and `port` call this crate; it calls nobody.
//!
//! ```
//! mod order {
//!     pollux_atomic::orderings! {
//!         /// Pairs with the acquire of whoever finds the flag set.
//!         raise = Release { Relaxed => Found("flag_brings_the_value") }
//!     }
//! }
//! let flag = std::sync::atomic::AtomicBool::new(false);
//! flag.store(true, order::raise());
//! ```

#[cfg(loom)]
mod weaken;

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, fence};

pub use std::sync::atomic::Ordering;
#[cfg(loom)]
pub use weaken::{explore, named, print};

/// The ordering that the code asks for by `name`: under loom a weaker one, if the run asks for that.
#[cfg(not(loom))]
#[doc(hidden)]
#[inline(always)]
#[must_use]
pub const fn named(_name: &str, strong: Ordering) -> Ordering {
    strong
}

/// A way to weaken an ordering, and what becomes of it.
#[derive(Clone, Copy, Debug)]
pub struct Relaxation {
    /// The ordering's name.
    pub name: &'static str,
    /// What it is.
    pub strong: &'static str,
    /// What it is weakened to.
    pub weak: &'static str,
    /// What the models make of it.
    pub verdict: Verdict,
}

/// What the models of a crate make of a relaxation.
#[derive(Clone, Copy, Debug)]
pub enum Verdict {
    /// This test fails by it.
    Found(&'static str),
    /// No test can: for this reason.
    Survives(&'static str),
}

/// Names memory orderings: a function for each, and the table of what weakening it does.
#[macro_export]
macro_rules! orderings {
    ($(
        $(#[$doc:meta])*
        $name:ident = $strong:ident { $($weak:ident => $verdict:ident($text:literal)),+ $(,)? }
    )*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub(crate) fn $name() -> $crate::Ordering {
                $crate::named(stringify!($name), $crate::Ordering::$strong)
            }
        )*

        /// What is found when one of these is weakened.
        #[cfg(all(test, loom))]
        pub(crate) const RELAXATIONS: &[$crate::Relaxation] = &[$($(
            $crate::Relaxation {
                name: stringify!($name),
                strong: stringify!($strong),
                weak: stringify!($weak),
                verdict: $crate::Verdict::$verdict($text),
            },
        )+)*];
    };
}
