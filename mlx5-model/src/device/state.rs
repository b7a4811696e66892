//! The states of a work queue, which send and receive queues share.

use pollux_mlx5_abi::command::{rq, sq};

/// Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_SQC_STATE_*` and `MLX5_RQC_STATE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Reset,
    Ready,
    Error,
}

const _: () = assert!(
    sq::state::RESET == rq::state::RESET
        && sq::state::READY == rq::state::READY
        && sq::state::ERROR == rq::state::ERROR
);

impl State {
    /// As contexts of both kinds of queue say it.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Reset => sq::state::RESET,
            Self::Ready => sq::state::READY,
            Self::Error => sq::state::ERROR,
        }
    }

    /// Whether a command may name `code` as the state that the queue has: its own; or READY, of a queue that failed by itself,
    /// on a card that believes that.
    pub(crate) fn may_be_called(self, code: u32, believes_ready: bool) -> bool {
        code == self.code() || believes_ready && self == Self::Error && code == Self::Ready.code()
    }

    pub(crate) fn of(code: u32) -> Option<Self> {
        [Self::Reset, Self::Ready, Self::Error].into_iter().find(|state| state.code() == code)
    }
}
