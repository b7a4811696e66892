//! Whether what a queue pair's messages bring is written in order. Source: rdma-core `providers/mlx5/verbs.c`,
//! `mlx5_query_qp_data_in_order` and `get_hca_general_caps`.

use pollux_mlx5_abi::caps::kind;
use pollux_mlx5_abi::command::qp::{QueryQpIn, QueryQpOut};
use pollux_mlx5_abi::command::{opcode, order, start};

use super::qp::Qp;
use pollux_mlx5_common::firmware::Firmware;

impl Qp {
    /// Whether the device writes the data of each message from its first byte to its last. It is asked by firmware commands;
    /// where they may not be given, or the device does not tell, nothing is promised (`false`).
    #[must_use]
    pub(crate) fn is_in_order(&self) -> bool {
        let device = self.object().device();
        if !device.devx {
            return false;
        }
        let firmware = Firmware::new(device);
        if !firmware.capabilities(kind::GENERAL).is_ok_and(|caps| order::CAP.is_set(&caps)) {
            return false;
        }
        let (mut input, mut output) = (QueryQpIn::ZERO, QueryQpOut::ZERO);
        start(&mut input, opcode::QUERY_QP, 0, 0);
        QueryQpIn::QPN.set(&mut input, self.number());
        let told = firmware.query("query the context of a queue pair", self.object(), &input, &mut output);
        told.is_ok() && order::QPC.is_set(QueryQpOut::QPC.of(&output))
    }
}
