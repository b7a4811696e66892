//! The table of rates that send queues are held to (SET_PP_RATE_LIMIT).
//!
//! Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/rl.c`, `mlx5_set_pp_rate_limit_cmd`, and `en_main.c`, `mlx5e_modify_sq`, whose
//! index 0 is no limit; DPDK `drivers/common/mlx5/mlx5_prm.h`, `mlx5_ifc_set_pp_rate_limit_context_bits`,
//! `MLX5_MODIFY_SQ_IN_MODIFY_BITMASK_PACKET_PACING_RATE_LIMIT_INDEX`.

use pollux_mlx5_abi::caps::roce::QosCaps;
use pollux_mlx5_abi::command::rate::{RateContext, SetPpRateLimitIn};
use pollux_mlx5_abi::command::sq::SqContext;
use pollux_mlx5_abi::command::status;

use super::{Call, No, need, no};
use crate::card::Traits;
use crate::device::bus::Bus;
use crate::device::core::Core;
use crate::send::{RATES, Rate};

/// The lowest rate, in kbit/s.
const LOWEST: u32 = 1;

impl Traits {
    pub(super) fn qos(&self) -> [u8; QosCaps::BYTES] {
        let mut caps = QosCaps::ZERO;
        QosCaps::PACKET_PACING.set(&mut caps, 1);
        QosCaps::PACKET_PACING_BURST_BOUND.set(&mut caps, 1);
        QosCaps::PACKET_PACING_TYPICAL_SIZE.set(&mut caps, 1);
        QosCaps::PACKET_PACING_MAX_RATE.set(&mut caps, self.speed_kbps());
        QosCaps::PACKET_PACING_MIN_RATE.set(&mut caps, LOWEST);
        QosCaps::PACKET_PACING_RATE_TABLE_SIZE.set(&mut caps, RATES as u32);
        caps
    }
}

impl Core {
    pub(super) fn set_rate(&mut self, bus: &Bus<'_>, call: &Call<'_>) -> Result<(), No> {
        let input: &[u8; SetPpRateLimitIn::BYTES] = call.input()?;
        let index = SetPpRateLimitIn::RATE_LIMIT_INDEX.get(input);
        let context = SetPpRateLimitIn::CTX.of(input);
        let (kbps, burst) =
            (RateContext::RATE_LIMIT.get(context), RateContext::BURST_UPPER_BOUND.get(context));
        need!(call.uid == 0, BAD_RES_ERR, 16);
        need!((1..RATES as u32).contains(&index), BAD_PARAM_ERR, 17);
        need!(kbps == 0 || (LOWEST..=self.traits.speed_kbps()).contains(&kbps), BAD_PARAM_ERR, 18);
        let rate = (kbps != 0).then(|| Rate::new(kbps, burst));
        self.senders.rates[index as usize] = rate;
        // Queues that are held to it are from now on held to the new one.
        for number in self.senders.queues.numbers() {
            if let Some(queue) = self.senders.queues.get_mut(number)
                && SqContext::PACKET_PACING_RATE_LIMIT_INDEX.get(&queue.context) == index
            {
                queue.pace.hold_to(rate, bus.now);
            }
        }
        Ok(())
    }

    /// The rate with this index, which must be in the table; with index 0 there is none.
    pub(super) fn rate(&self, index: u32) -> Result<Option<Rate>, No> {
        match self.senders.rates.get(index as usize) {
            Some(None) if index == 0 => Ok(None),
            Some(Some(rate)) => Ok(Some(*rate)),
            _ => Err(no(status::BAD_PARAM_ERR, 15)),
        }
    }
}
