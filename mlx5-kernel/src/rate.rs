//! Rates that the send queues of raw packet queue pairs are held to: entries of the device's table, which queues that want the same
//! share.
//!
//! Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/rl.c`, `mlx5_rl_add_rate_raw`, `mlx5_rl_remove_rate`;
//! `drivers/infiniband/hw/mlx5/qp.c`, `__mlx5_ib_modify_qp`, `modify_raw_packet_qp_sq`.

use std::sync::{Mutex, PoisonError};

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::QosCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::rate::{RateContext, SetPpRateLimitIn};
use pollux_mlx5_abi::kernel::queue_pair::BurstInfo;
use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::firmware::{SHORT, begin};

/// What a queue is held to; nothing but zeros is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateLimit {
    kbps: u32,
    burst_bytes: u32,
    packet_bytes: u16,
}

impl RateLimit {
    /// What a program asks for.
    pub(crate) fn asked(adapter: &Adapter, kbps: u32, burst: &BurstInfo) -> Result<Self, Errno> {
        let refused = |asked, has| asked && (kbps == 0 || adapter.caps.qos(has) == 0);
        if refused(burst.max_burst_sz != 0, QosCaps::PACKET_PACING_BURST_BOUND)
            || refused(burst.typical_pkt_sz != 0, QosCaps::PACKET_PACING_TYPICAL_SIZE)
        {
            return Err(Errno::EINVAL);
        }
        Ok(Self { kbps, burst_bytes: burst.max_burst_sz, packet_bytes: burst.typical_pkt_sz })
    }

    pub(crate) fn is_none(self) -> bool {
        self.kbps == 0
    }
}

/// The entries in use, from index 1 on, and by how many queues.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<Vec<(RateLimit, usize)>>);

impl Rates {
    /// Has the device keep a rate; returns its index.
    pub(crate) fn take(&self, adapter: &Adapter, wanted: RateLimit) -> Result<u32, Errno> {
        let qos = |field| adapter.caps.qos(field);
        if !adapter.caps.has(GeneralCaps::QOS) || qos(QosCaps::PACKET_PACING) == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let range = qos(QosCaps::PACKET_PACING_MIN_RATE)..=qos(QosCaps::PACKET_PACING_MAX_RATE);
        if !range.contains(&wanted.kbps) {
            return Err(Errno::EINVAL);
        }
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = entries.iter().position(|(rate, users)| *users > 0 && *rate == wanted);
        let slot = match shared.or_else(|| entries.iter().position(|(_, users)| *users == 0)) {
            Some(slot) => slot,
            // Index 0 counts to the table, too.
            None if entries.len() as u32 + 1 < qos(QosCaps::PACKET_PACING_RATE_TABLE_SIZE) => {
                entries.push((wanted, 0));
                entries.len() - 1
            }
            None => return Err(Errno::ENOSPC),
        };
        let index = slot as u32 + 1;
        if shared.is_none() {
            set(adapter, index, wanted)?;
        }
        let (rate, users) = &mut entries[slot];
        *rate = wanted;
        *users += 1;
        Ok(index)
    }

    /// A queue is not held to it any more.
    pub(crate) fn give_back(&self, adapter: &Adapter, old: RateLimit) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(slot) = entries.iter().position(|(rate, users)| *users > 0 && *rate == old) else { return };
        entries[slot].1 -= 1;
        if entries[slot].1 == 0 {
            let _ = set(adapter, slot as u32 + 1, RateLimit::default());
        }
    }
}

fn set(adapter: &Adapter, index: u32, rate: RateLimit) -> Result<(), Errno> {
    let mut input: [u8; SetPpRateLimitIn::BYTES] = begin(opcode::SET_PP_RATE_LIMIT, 0, 0);
    SetPpRateLimitIn::RATE_LIMIT_INDEX.set(&mut input, index);
    let context = SetPpRateLimitIn::CTX.of_mut(&mut input);
    RateContext::RATE_LIMIT.set(context, rate.kbps);
    RateContext::BURST_UPPER_BOUND.set(context, rate.burst_bytes);
    RateContext::TYPICAL_PACKET_SIZE.set(context, rate.packet_bytes.into());
    adapter.execute(&input, &mut [0; SHORT])
}
