//! `/mempool/*` and `/ring/*`: the pools that the ports' rx queues take their mbufs from, and the rings behind them. Sources: DPDK
//! `lib/mempool/rte_mempool.c`, `lib/ring/rte_ring.c`.

use pollux_eal::EalError;
use pollux_eal::memory::{Memory, ZoneInfo};
use pollux_eal::telemetry::{Telemetry, Value, json};
use pollux_mempool::{Backend, MbufPool};
use pollux_port::PortViews;

/// How a ring behind a pool is called. Source: DPDK `lib/mempool/rte_mempool.h`, `RTE_MEMPOOL_MZ_PREFIX`.
const RING_PREFIX: &str = "MP_";

pub(super) fn register(telemetry: &Telemetry, ports: &PortViews, memory: &Memory) -> Result<(), EalError> {
    let all = ports.clone();
    telemetry.register(
        "/mempool/list",
        "Returns the names of the mempools. Takes no parameters",
        move |_| pools(&all).iter().map(|pool| pool.name()).collect(),
    )?;
    let (all, zones) = (ports.clone(), memory.clone());
    let help = "Returns information about a mempool. Parameters: string pool_name";
    telemetry.register("/mempool/info", help, move |name| match name {
        "" => Value::Null,
        // DPDK answers an empty object for a name that is nobody's.
        name => find(&all, name).map_or_else(|| json!({}), |pool| pool_info(&pool, &zones)),
    })?;
    let all = ports.clone();
    telemetry.register("/ring/list", "Returns the names of the rings. Takes no parameters", move |_| {
        let with_ring = pools(&all).into_iter().filter(|pool| sync(pool.backend()).is_some());
        with_ring.map(|pool| format!("{RING_PREFIX}{}", pool.name())).collect()
    })?;
    let (all, zones) = (ports.clone(), memory.clone());
    let help = "Returns information about a ring. Parameters: string ring_name";
    telemetry.register("/ring/info", help, move |name| match name {
        "" => Value::Null,
        name => {
            let pool = name.strip_prefix(RING_PREFIX).and_then(|pool| find(&all, pool));
            pool.and_then(|pool| ring_info(&pool, &zones)).unwrap_or_else(|| json!({}))
        }
    })
}

/// The pools of all ports, each once.
pub(crate) fn pools(ports: &PortViews) -> Vec<MbufPool> {
    let mut pools: Vec<MbufPool> = Vec::new();
    for config in ports.list().iter().filter_map(|port| port.config()) {
        for queue in config.rx_queues {
            let parts = queue.segments.into_iter().filter_map(|segment| segment.pool);
            for pool in std::iter::once(queue.pool).chain(parts) {
                if pools.iter().all(|known| known.id() != pool.id()) {
                    pools.push(pool);
                }
            }
        }
    }
    pools
}

fn find(ports: &PortViews, name: &str) -> Option<MbufPool> {
    pools(ports).into_iter().find(|pool| pool.name() == name)
}

/// The NUMA node of a pool's memory; -1: any.
pub(super) fn socket(pool: &MbufPool) -> i64 {
    let regions = pool.regions();
    let socket = regions.first().and_then(|piece| piece.region.as_ref()).and_then(|region| region.socket());
    socket.map_or(-1, |socket| i64::from(socket.0))
}

/// The zone that a pool's mbufs lie in.
fn zone(pool: &MbufPool, memory: &Memory) -> Option<ZoneInfo> {
    let first = pool.regions().first().map(|piece| piece.base.as_ptr().addr())?;
    let zones = memory.stats().zones;
    zones.into_iter().find(|zone| (zone.address..zone.address + zone.bytes).contains(&first))
}

fn add_zone(view: &mut Value, zone: Option<ZoneInfo>, flags: Value) {
    let Some(zone) = zone else { return };
    view["mz_name"] = zone.name.into();
    view["mz_len"] = zone.bytes.into();
    view["mz_hugepage_sz"] = zone.page_size.into();
    view["mz_socket_id"] = zone.socket.map_or(-1, |socket| i64::from(socket.0)).into();
    view["mz_flags"] = flags;
}

fn pool_info(pool: &MbufPool, memory: &Memory) -> Value {
    let stats = pool.stats();
    let bytes: usize = pool.regions().iter().map(|piece| piece.bytes).sum();
    let mut view = json!({
        "name": pool.name(),
        "pool_id": pool.id(),
        "flags": 0,
        "socket_id": socket(pool),
        "size": stats.capacity,
        "cache_size": pool.cache_size(),
        // An mbuf with its header; its place in memory is rounded up to whole cache lines.
        "elt_size": bytes / stats.capacity.max(1),
        "header_size": 0,
        "trailer_size": 0,
        "private_data_size": 0,
        "ops_index": Backend::ALL.iter().position(|backend| *backend == pool.backend()),
        "populated_size": stats.capacity,
        "total_cache_count": stats.cached,
        // A snapshot while lcores are at work: the parts may not add up.
        "common_pool_count": stats.available.saturating_sub(stats.cached),
    });
    add_zone(&mut view, zone(pool, memory), 0.into());
    view
}

/// DPDK's words for the producer's and consumer's side; none for a pool without a ring.
fn sync(backend: Backend) -> Option<(&'static str, &'static str)> {
    match backend {
        Backend::RingMpMc => Some(("MP", "MC")),
        Backend::RingRts => Some(("MP_RTS", "MC_RTS")),
        Backend::RingHts => Some(("MP_HTS", "MC_HTS")),
        Backend::RingSpSc => Some(("SP", "SC")),
        _ => None,
    }
}

fn ring_info(pool: &MbufPool, memory: &Memory) -> Option<Value> {
    let (producer, consumer) = sync(pool.backend())?;
    let stats = pool.stats();
    let size = (stats.capacity + 1).next_power_of_two();
    let mut view = json!({
        "name": format!("{RING_PREFIX}{}", pool.name()),
        "socket": socket(pool),
        "flags": 0,
        "producer_type": producer,
        "consumer_type": consumer,
        "size": size,
        "mask": format!("{:#x}", size - 1),
        "capacity": stats.capacity,
        "used_count": stats.available.saturating_sub(stats.cached),
    });
    add_zone(&mut view, zone(pool, memory), "0x0".into());
    Some(view)
}
