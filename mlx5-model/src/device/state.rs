//! The states of a work queue, which send and receive queues share.

use pollux_mlx5_abi::command::wq::state;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Reset,
    Ready,
    Error,
}

impl State {
    /// As contexts of both kinds of queue say it.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Reset => state::RESET,
            Self::Ready => state::READY,
            Self::Error => state::ERROR,
        }
    }

    /// Whether a command may name `code` as the state that the queue has: its own; or READY, of a queue that failed by itself,
    /// on a card that believes that.
    pub(crate) fn may_be_called(self, code: u32, believes_ready: bool) -> bool {
        code == self.code() || believes_ready && self == Self::Error && code == Self::Ready.code()
    }

    /// Whether a command takes a queue in this state to `to`.
    pub(crate) fn leads_to(self, to: Self) -> bool {
        matches!(
            (self, to),
            (Self::Reset, Self::Ready | Self::Reset)
                | (Self::Ready, Self::Ready | Self::Error | Self::Reset)
                | (Self::Error, Self::Reset | Self::Error)
        )
    }

    pub(crate) fn of(code: u32) -> Option<Self> {
        [Self::Reset, Self::Ready, Self::Error].into_iter().find(|state| state.code() == code)
    }
}
