//! In which order the data of messages is written, for programs that look at memory before the completion comes.
//!
//! Source: rdma-core `libibverbs/verbs.c`, `ibv_query_qp_data_in_order`, and its page in `libibverbs/man`;
//! `providers/mlx5/verbs.c`, `mlx5_query_qp_data_in_order`. The originals take an operation too, which neither mlx5 nor rxe looks at.

use super::Qp;
use crate::QpState;
use crate::provider::mlx5::qp as mlx5;

/// What is promised of the data that messages bring; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataOrder {
    /// Each message is written from its first byte to its last.
    pub whole_message: bool,
    /// So is each block of 128 bytes at a multiple of 128; what is promised of a whole message is promised of these.
    pub aligned_128: bool,
}

impl Qp {
    /// What device and host together promise of the data that comes to it. It is asked in RTS; before, nothing is promised. Where
    /// the device, the kernel or the driver does not tell (rxe, no firmware commands), nor on processors other than x86, nothing is.
    #[must_use]
    pub fn data_in_order(&self) -> DataOrder {
        if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
            self.device_data_in_order()
        } else {
            DataOrder::default()
        }
    }

    /// What the device alone promises, whatever the processor and what lies between them do.
    #[must_use]
    pub fn device_data_in_order(&self) -> DataOrder {
        let asked = |qp: &mlx5::Qp| self.state == QpState::RTS && qp.is_in_order();
        let whole = self.side.if_mlx5().is_some_and(asked);
        DataOrder { whole_message: whole, aligned_128: whole }
    }
}
