//! What went wrong around the function's vport (QUERY_VNIC_ENV), and whether its port is bonded to another (QUERY_LAG).
//!
//! What the counters mean: Linux `Documentation/networking/devlink/mlx5.rst`, "vnic reporter", and
//! `Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst`, `rx_steer_missed_packets`; who reads them:
//! `drivers/net/ethernet/mellanox/mlx5/core/diag/reporter_vnic.c` and `en_stats.c`.

use pollux_mlx5_abi::command::environment::{
    QueryVnicEnvIn, QueryVnicEnvOut, VnicEnvironment, steering_failures,
};
use pollux_mlx5_abi::command::lag::{LagContext, QueryLagOut};

use super::{Call, No, need};
use crate::device::core::Core;
use crate::device::state::State;
use crate::rdma::state;

/// As many bytes of the block have counters that anybody names.
const COUNTERS_BYTES: usize = 0x70;

impl Core {
    /// The function has one port, and is no master of others: nothing is bonded. Source: Linux
    /// `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_lagc_bits.lag_state`; DPDK `drivers/net/mlx5/linux/mlx5_os.c`, which takes the card's
    /// bond from there.
    pub(super) fn query_lag(&self, call: &mut Call<'_>) -> Result<(), No> {
        let mut context = LagContext::ZERO;
        LagContext::LAG_STATE.set(&mut context, 0);
        QueryLagOut::CTX.set(call.output()?, context);
        Ok(())
    }

    pub(super) fn query_environment(&self, call: &mut Call<'_>) -> Result<(), No> {
        use VnicEnvironment as V;
        let input: &[u8; QueryVnicEnvIn::BYTES] = call.input()?;
        // Other vports are those of virtual functions, which whoever manages the e-switch asks for.
        let other = QueryVnicEnvIn::OTHER_VPORT.is_set(input) || QueryVnicEnvIn::VPORT_NUMBER.get(input) != 0;
        need!(!other, BAD_PARAM_ERR, 16);
        let (port, overruns) = (&self.port.counters, self.events.overruns);
        let mut counters = V::ZERO;
        V::NIC_RECEIVE_STEERING_DISCARD.set(&mut counters, port.steering_discards);
        V::RECEIVE_DISCARD_VPORT_DOWN.set(&mut counters, self.port.kept_out());
        V::TRANSMIT_DISCARD_VPORT_DOWN.set(&mut counters, port.sent_while_down);
        steering_failures::GENERATED.set(&mut counters, port.tx_steering_ended);
        steering_failures::HANDLED.set(&mut counters, port.rx_steering_ended);
        // Counters of 32 bits, which run over.
        for (field, value) in [
            (V::TOTAL_ERROR_QUEUES, self.queues_in_error() as u64),
            (V::SEND_QUEUE_PRIORITY_UPDATE_FLOW, self.senders.priority_changes),
            (V::ASYNC_EQ_OVERRUN, overruns.others),
            (V::COMP_EQ_OVERRUN, overruns.completions),
            (V::INVALID_COMMAND, self.function.refusals),
            (V::INTERNAL_RQ_OUT_OF_BUFFER, self.receivers.hairpin_drops),
            (V::CQ_OVERRUN, self.completions.overruns),
        ] {
            field.set(&mut counters, value as u32);
        }
        // Linux's block got 32 bits shorter in 6.12: of what is reserved at its end, as much as is asked for.
        let room = call.output.get_mut(QueryVnicEnvOut::VPORT_ENV.offset()..).unwrap_or_default();
        need!(room.len() >= COUNTERS_BYTES, BAD_OUTP_LEN_ERR, 17);
        let bytes = room.len().min(counters.len());
        room[..bytes].copy_from_slice(&counters[..bytes]);
        Ok(())
    }

    fn queues_in_error(&self) -> usize {
        let sending = self.senders.queues.iter().filter(|(_, queue)| queue.state == State::Error).count();
        let receiving = self.receivers.queues.iter().filter(|(_, queue)| queue.state == State::Error).count();
        let failed = |state| matches!(state, state::State::Error | state::State::SendError);
        let pairs = self.rdma.pairs.iter().filter(|(_, pair)| failed(pair.state)).count();
        sending + receiving + pairs
    }
}
