//! What the EAL tells of itself: lcores and memory, under DPDK's names and keys. Sources: DPDK `lib/eal/common/eal_common_lcore.c`,
//! `eal_common_memory.c`.
//!
//! A memory heap is what one NUMA node has; its number is the node's. A memory segment list is a region, a segment one of its pages.

use super::{Telemetry, Value, json};
use crate::EalError;
use crate::lcore::{LcoreId, LcoreInfo, LcoreRole, Lcores, Usage};
use crate::memory::{Memory, RegionStats};

/// Registers `/eal/lcore/*`, `/eal/heap_*`, `/eal/memzone_*` and `/eal/memseg_*`.
pub(crate) fn register(telemetry: &Telemetry, lcores: &Lcores, memory: &Memory) -> Result<(), EalError> {
    let of_lcores = |path: &str, help: &str, view: fn(&Lcores, &str) -> Option<Value>| {
        let lcores = lcores.clone();
        telemetry.register(path, help, move |parameters| view(&lcores, parameters).unwrap_or_default())
    };
    of_lcores("/eal/lcore/list", "Returns the lcore IDs. Takes no parameters", lcore_list)?;
    of_lcores("/eal/lcore/info", "Returns information about an lcore. Parameters: int lcore_id", lcore_info)?;
    of_lcores("/eal/lcore/usage", "Returns the cycles of all lcores. Takes no parameters", lcore_usage)?;
    let of_memory = |path: &str, help: &str, view: fn(&Memory, &str) -> Option<Value>| {
        let memory = memory.clone();
        telemetry.register(path, help, move |parameters| view(&memory, parameters).unwrap_or_default())
    };
    of_memory("/eal/heap_list", "Returns the heap IDs, one a NUMA node. Takes no parameters", heap_list)?;
    of_memory("/eal/heap_info", "Returns the statistics of a heap. Parameters: int heap_id", heap_info)?;
    of_memory("/eal/memzone_list", "Returns the memzone IDs. Takes no parameters", memzone_list)?;
    of_memory(
        "/eal/memzone_info",
        "Returns information about a memzone. Parameters: int memzone_id",
        memzone_info,
    )?;
    of_memory(
        "/eal/memseg_lists",
        "Returns the IDs of the memseg lists, one a region. Takes no parameters",
        memseg_lists,
    )?;
    let help = "Returns the memseg IDs of a list. Parameters: int memseg_list_id";
    of_memory("/eal/memseg_list_info", help, memseg_list_info)?;
    let help = "Returns information about a memseg. Parameters: int memseg_list_id, int memseg_id";
    of_memory("/eal/memseg_info", help, memseg_info)
}

fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.trim().parse().ok()
}

fn lcore_list(lcores: &Lcores, _: &str) -> Option<Value> {
    Some(lcores.all().iter().map(|lcore| lcore.id.0).collect())
}

fn lcore_info(lcores: &Lcores, parameters: &str) -> Option<Value> {
    let lcore = lcores.get(LcoreId(number(parameters)?))?;
    let role = match lcore.role {
        LcoreRole::Service => "SERVICE",
        LcoreRole::Dataplane => "RTE",
        _ => "NON_EAL",
    };
    let mut view = json!({
        "lcore_id": lcore.id.0,
        "socket": lcore.socket.0,
        "role": role,
        "cpuset": lcore.cpus.as_slice(),
    });
    if counts(&lcore) {
        view["total_cycles"] = lcore.usage.total.into();
        view["busy_cycles"] = lcore.usage.busy.into();
        view["usage_ratio"] = ratio(lcore.usage).into();
    }
    Some(view)
}

/// An lcore whose loop reports no cycles has none to show.
fn counts(lcore: &LcoreInfo) -> bool {
    lcore.usage.total > 0
}

fn ratio(usage: Usage) -> String {
    format!("{:.2}%", usage.busy as f64 * 100.0 / usage.total.max(1) as f64)
}

fn lcore_usage(lcores: &Lcores, _: &str) -> Option<Value> {
    let lcores: Vec<LcoreInfo> = lcores.all().into_iter().filter(counts).collect();
    Some(json!({
        "lcore_ids": lcores.iter().map(|lcore| lcore.id.0).collect::<Value>(),
        "total_cycles": lcores.iter().map(|lcore| lcore.usage.total).collect::<Value>(),
        "busy_cycles": lcores.iter().map(|lcore| lcore.usage.busy).collect::<Value>(),
        "usage_ratio": lcores.iter().map(|lcore| ratio(lcore.usage)).collect::<Value>(),
    }))
}

/// The heap that a region is part of: memory of no known node is node 0's.
fn heap_of(region: &RegionStats) -> u32 {
    region.socket.map_or(0, |socket| u32::from(socket.0))
}

fn heap_list(memory: &Memory, _: &str) -> Option<Value> {
    let mut heaps: Vec<u32> = memory.stats().regions.iter().map(heap_of).collect();
    heaps.sort_unstable();
    heaps.dedup();
    Some(heaps.into())
}

fn heap_info(memory: &Memory, parameters: &str) -> Option<Value> {
    let (heap, stats) = (number::<u32>(parameters)?, memory.stats());
    let regions: Vec<&RegionStats> = stats.regions.iter().filter(|region| heap_of(region) == heap).collect();
    if regions.is_empty() {
        return None;
    }
    let sum = |of: fn(&RegionStats) -> usize| regions.iter().map(|region| of(region)).sum::<usize>();
    let zones = stats.zones.iter().filter(|zone| regions.iter().any(|region| region.id == zone.region));
    Some(json!({
        "Heap_id": heap,
        "Name": format!("socket_{heap}"),
        "Heap_size": sum(|region| region.bytes),
        "Free_size": sum(|region| region.free),
        "Alloc_size": sum(|region| region.bytes - region.free),
        "Greatest_free_size": regions.iter().map(|region| region.free_run_max).max().unwrap_or(0),
        "Alloc_count": zones.count(),
        "Free_count": sum(|region| region.free_runs),
    }))
}

fn memzone_list(memory: &Memory, _: &str) -> Option<Value> {
    Some((0..memory.stats().zones.len()).collect())
}

fn memzone_info(memory: &Memory, parameters: &str) -> Option<Value> {
    let place: usize = number(parameters)?;
    let stats = memory.stats();
    let zone = stats.zones.get(place)?;
    let page = zone.address / zone.page_size * zone.page_size;
    Some(json!({
        "Zone": place,
        "Name": zone.name,
        "Length": zone.bytes,
        "Address": format!("{:#x}", zone.address),
        "Socket": zone.socket.map_or(-1, |socket| i64::from(socket.0)),
        "Flags": 0,
        "Hugepage_size": zone.page_size,
        "Hugepage_base": format!("{page:#x}"),
        "Hugepage_used": (zone.address + zone.bytes - page).div_ceil(zone.page_size),
    }))
}

fn memseg_lists(memory: &Memory, _: &str) -> Option<Value> {
    Some((0..memory.stats().regions.len()).collect())
}

fn memseg_list_info(memory: &Memory, parameters: &str) -> Option<Value> {
    let stats = memory.stats();
    let region = stats.regions.get(number::<usize>(parameters)?)?;
    Some((0..region.bytes / region.page_size).collect())
}

fn memseg_info(memory: &Memory, parameters: &str) -> Option<Value> {
    let (list, segment) = parameters.split_once(',')?;
    let (list, segment): (usize, usize) = (number(list)?, number(segment)?);
    let stats = memory.stats();
    let region = stats.regions.get(list).filter(|region| segment < region.bytes / region.page_size)?;
    let start = region.address + segment * region.page_size;
    Some(json!({
        "Memseg_list_index": list,
        "Memseg_index": segment,
        // The address that devices use is the process's own: see `iova`.
        "IOVA_addr": format!("{start:#x}"),
        "Start_addr": format!("{start:#x}"),
        "End_addr": format!("{:#x}", start + region.page_size),
        "Size": region.page_size,
        "Hugepage_size": region.page_size,
        "Socket_id": region.socket.map_or(-1, |socket| i64::from(socket.0)),
        "flags": 0,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Eal;
    use crate::lcore::Main;
    use pollux_config::EalSpec;

    fn eal() -> Eal {
        let mut spec = EalSpec { lcores: Some("0".parse().expect("an lcore")), ..EalSpec::default() };
        spec.memory.no_huge = true;
        Eal::init(spec).expect("an EAL")
    }

    fn ask(eal: &Eal, path: &str, parameters: &str) -> Value {
        eal.telemetry().call(path, parameters).expect("a command")
    }

    #[test]
    fn lcores_are_listed_with_the_cycles_that_they_report() {
        let eal = eal();
        assert_eq!(ask(&eal, "/eal/lcore/list", ""), json!([0]));
        assert_eq!(ask(&eal, "/eal/lcore/usage", "")["lcore_ids"], json!([]), "nothing reported yet");
        assert_eq!(ask(&eal, "/eal/lcore/info", "0").get("total_cycles"), None);
        for launched in
            eal.launch_all(Main::Call, |lcore| (lcore.busy(25), lcore.idle(75))).expect("launched")
        {
            launched.wait().expect("no panic");
        }
        let usage = ask(&eal, "/eal/lcore/usage", "");
        let expected =
            json!({"lcore_ids": [0], "total_cycles": [100], "busy_cycles": [25], "usage_ratio": ["25.00%"]});
        assert_eq!(usage, expected);
        let info = ask(&eal, "/eal/lcore/info", "0");
        assert_eq!(
            (&info["lcore_id"], &info["role"], &info["usage_ratio"]),
            (&json!(0), &json!("RTE"), &json!("25.00%"))
        );
        assert_eq!(info["cpuset"], json!([0]));
        for wrong in ["", "1", "x", "-1", "99999999999999999999", "0,0"] {
            assert_eq!(ask(&eal, "/eal/lcore/info", wrong), Value::Null, "{wrong}");
        }
    }

    #[test]
    fn zones_heaps_and_segments_fit_together() {
        let eal = eal();
        let zone = eal.memory().reserve("table", 10_000, 4096, None).expect("memory");
        let numbers = ask(&eal, "/eal/memzone_list", "");
        let zones: Vec<Value> = numbers
            .as_array()
            .expect("a list")
            .iter()
            .map(|number| ask(&eal, "/eal/memzone_info", &number.to_string()))
            .collect();
        let table = zones.iter().find(|zone| zone["Name"] == "table").expect("the zone");
        assert_eq!(
            (&table["Length"], &table["Hugepage_size"], &table["Hugepage_used"]),
            (&json!(10_000), &json!(4096), &json!(3))
        );
        assert_eq!(table["Address"], table["Hugepage_base"]);
        let heap = ask(&eal, "/eal/heap_list", "")[0].to_string();
        let heap = ask(&eal, "/eal/heap_info", &heap);
        let number = |name: &str| heap[name].as_u64().unwrap_or_else(|| panic!("{name} in {heap}"));
        assert_eq!(number("Heap_size"), number("Free_size") + number("Alloc_size"));
        assert!(
            number("Alloc_size") >= 10_000 && number("Greatest_free_size") <= number("Free_size"),
            "{heap}"
        );
        assert!(number("Alloc_count") >= 1 && number("Free_count") >= 1, "{heap}");
        let segments = ask(&eal, "/eal/memseg_list_info", "0");
        let last = segments.as_array().expect("a list").len() - 1;
        assert_eq!(ask(&eal, "/eal/memseg_info", &format!("0,{last}"))["Size"], json!(4096));
        assert_eq!(ask(&eal, "/eal/memseg_info", &format!("0,{}", last + 1)), Value::Null);
        for path in ["/eal/memzone_info", "/eal/heap_info", "/eal/memseg_list_info", "/eal/memseg_info"] {
            for wrong in ["", "x", "77", "-1", "99999999999999999999,1", "0,x"] {
                assert_eq!(ask(&eal, path, wrong), Value::Null, "{path},{wrong}");
            }
        }
        drop(zone);
    }
}
