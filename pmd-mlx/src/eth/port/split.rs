//! Which parts an entry has on a queue that splits packets.

use pollux_mlx5_abi::kernel::context;
use pollux_mlx5_abi::wqe::INVALID_LKEY;
use pollux_port::driver::RxSetup;
use pollux_port::{PortError, SplitInfo};

use crate::eth::parts::{SplitPart, SplitParts};
use crate::eth::rq::SEGMENTS_LOG2_MAX;
use pollux_mlx5_common::context::Device;

/// Most parts of a packet: data segments of an entry.
const PARTS_MAX: usize = 1 << SEGMENTS_LOG2_MAX;

/// The key of no memory, where the device has one. Source: rdma-core `providers/mlx5/verbs.c`, `mlx5_alloc_null_mr`.
fn null_key(device: &Device) -> Option<u32> {
    let answer = &device.answer;
    let told = answer.comp_mask & context::answer::DUMP_FILL_MKEY != 0;
    (told && answer.dump_fill_mkey != INVALID_LKEY).then_some(answer.dump_fill_mkey)
}

/// What the port says of it. Source: DPDK `drivers/net/mlx5/mlx5_ethdev.c`, `mlx5_dev_infos_get`.
pub(super) fn info(device: &Device) -> SplitInfo {
    SplitInfo {
        max_segments: PARTS_MAX as u16,
        multi_pools: true,
        offsets: true,
        offset_align: 1,
        selective: null_key(device).is_some(),
    }
}

/// The parts that were asked for, and as many more of the last pool as the longest frame needs. `None`: packets are not
/// split. Source: DPDK `lib/ethdev/rte_ethdev.h`, `struct rte_eth_rxseg_split`.
pub(super) fn parts(device: &Device, setup: &RxSetup, frame: usize) -> Result<Option<SplitParts>, PortError> {
    if setup.segments.is_empty() {
        return Ok(None);
    }
    let last = setup.segments.iter().rev().find_map(|segment| segment.pool.as_ref());
    let mut parts = Vec::new();
    let mut left = frame as u32;
    while left > 0 {
        let asked = setup.segments.get(parts.len());
        let pool = asked.map_or(last, |segment| segment.pool.as_ref());
        let headroom = if parts.is_empty() { pool.map_or(0, |pool| pool.headroom()) as u32 } else { 0 };
        let offset = headroom + asked.map_or(0, |segment| segment.offset.into());
        let bytes = match (asked.map_or(0, |segment| u32::from(segment.length)), pool) {
            (0, Some(pool)) => (pool.data_room() as u32).saturating_sub(offset),
            (0, None) => left,
            (length, _) => length,
        };
        if parts.len() == PARTS_MAX || bytes == 0 {
            return Err(PortError::Argument {
                port: String::new(),
                key: "rx segments".into(),
                value: setup.segments.len().to_string(),
                expected: format!(
                    "a frame of {frame} bytes must fit into {PARTS_MAX} parts: make them longer, take a pool of larger \
                     mbufs, or lower the MTU"
                ),
            });
        }
        left = left.saturating_sub(bytes);
        parts.push(SplitPart { pool: pool.cloned(), offset, bytes });
    }
    let selective = parts.iter().any(|part| part.pool.is_none());
    let null_key = null_key(device);
    if selective && null_key.is_none() {
        return Err(PortError::unsupported(
            "rx segment without a pool",
            "the device has no key of no memory",
        ));
    }
    // A ring is always full.
    let entries = usize::from(setup.descriptors) / parts.len().next_power_of_two();
    for part in &parts {
        let Some(pool) = &part.pool else { continue };
        let same = |other: &&SplitPart| other.pool.as_ref().is_some_and(|other| other.name() == pool.name());
        let needs = entries.max(2) * parts.iter().filter(same).count();
        if pool.capacity() < needs {
            return Err(PortError::PoolTooSmall {
                port: String::new(),
                queue: setup.queue,
                pool: pool.name().to_owned(),
                has: pool.capacity(),
                needs,
            });
        }
    }
    Ok(Some(SplitParts { parts, null_key: null_key.unwrap_or(INVALID_LKEY) }))
}
