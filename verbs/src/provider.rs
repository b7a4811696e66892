//! Who does the work of verbs: the rings of a ConnectX adapter (or its model), or those that the kernel's rxe shares.
//!
//! ```text
//!   Context             Side<Hca, Rxe>      create_cq, create_srq, create_qp, address, alloc_pd
//!   Cq, Srq, Qp         a side each         of what the context's provider made
//!   Batch, Receives, Wc a side each         of what those hand out
//! ```
//!
//! Both providers have methods of the same names and shapes: that is the interface, which each use of [`each!`] checks. Which of
//! the two it is costs a comparison where a request or a completion is looked at, and no indirect call; the compiler sees both.

pub(crate) mod mlx5;
pub(crate) mod request;
pub(crate) mod rxe;

use std::sync::Arc;

use pollux_mlx5_common::key::Keys;

use crate::view::Errors;

/// Something of one of the two providers.
#[derive(Debug)]
pub(crate) enum Side<M, R> {
    Mlx5(M),
    Rxe(R),
}

impl<M, R> Side<M, R> {
    /// What mlx5 has of it, for what rxe lacks.
    #[inline(always)]
    pub(crate) fn if_mlx5(&self) -> Option<&M> {
        match self {
            Self::Mlx5(it) => Some(it),
            Self::Rxe(_) => None,
        }
    }

    /// That of mlx5, of what belongs to a context of mlx5.
    ///
    /// # Panics
    /// Where it is of rxe: whoever asks has [admitted](crate::Context::admit) it to its context, which is our mistake.
    pub(crate) fn mlx5(&self) -> &M {
        self.if_mlx5().unwrap_or_else(|| unreachable!("all of a context is of its provider"))
    }

    /// That of rxe, of what belongs to a context of rxe.
    ///
    /// # Panics
    /// As [`mlx5`](Self::mlx5).
    pub(crate) fn rxe(&self) -> &R {
        match self {
            Self::Rxe(it) => it,
            Self::Mlx5(_) => unreachable!("all of a context is of its provider"),
        }
    }
}

/// Does the same with either provider's side of something.
macro_rules! each {
    ($side:expr, $it:ident => $does:expr) => {
        match $side {
            $crate::provider::Side::Mlx5($it) => $does,
            $crate::provider::Side::Rxe($it) => $does,
        }
    };
}

/// The same, where what comes of it is the provider's own again.
macro_rules! each_its_own {
    ($side:expr, $it:ident => $does:expr) => {
        match $side {
            $crate::provider::Side::Mlx5($it) => $crate::provider::Side::Mlx5($does),
            $crate::provider::Side::Rxe($it) => $crate::provider::Side::Rxe($does),
        }
    };
}

pub(crate) use {each, each_its_own};

/// What every queue that is posted to is made with.
pub(crate) struct QueueBase {
    /// Keys of packet memory.
    pub(crate) keys: Keys,
    /// What its events carry.
    pub(crate) user_handle: u64,
    /// Kept until it is destroyed, and for ever if that fails.
    pub(crate) kept: Box<dyn Send>,
    /// Where its completions with errors are counted.
    pub(crate) errors: Arc<Errors>,
}

/// Where a queue pair's work completes, and what it receives through instead of a ring of its own.
pub(crate) struct Ends<'a, C, S> {
    pub(crate) send_cq: Option<&'a C>,
    pub(crate) recv_cq: Option<&'a C>,
    pub(crate) srq: Option<&'a S>,
}
