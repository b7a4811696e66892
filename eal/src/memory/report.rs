//! What a memory holds, for statistics and for people.

use std::fmt;

use crate::hugepage::Bytes;
use crate::region::{Region, RegionId};
use crate::topology::SocketId;

/// Information about an existing zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    /// Its name.
    pub name: String,
    /// Address of its first byte.
    pub address: usize,
    /// Size as requested.
    pub bytes: usize,
    /// The region that contains it.
    pub region: RegionId,
    /// NUMA node of its pages.
    pub socket: Option<SocketId>,
    /// Page size in bytes.
    pub page_size: usize,
}

/// Statistics of one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionStats {
    /// Its number.
    pub id: RegionId,
    /// Address of its first byte.
    pub address: usize,
    /// Size in bytes.
    pub bytes: usize,
    /// Free bytes.
    pub free: usize,
    /// Largest contiguous free block in bytes.
    pub free_run_max: usize,
    /// Number of contiguous free blocks.
    pub free_runs: usize,
    /// Page size in bytes.
    pub page_size: usize,
    /// NUMA node of its pages.
    pub socket: Option<SocketId>,
    /// Whether its pages are locked.
    pub locked: bool,
}

/// Memory statistics. Displays as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes mapped.
    pub bytes: usize,
    /// Bytes in zones, each rounded up to 64.
    pub used: usize,
    /// Free bytes.
    pub free: usize,
    /// All regions in order of creation.
    pub regions: Vec<RegionStats>,
    /// All zones by region and address.
    pub zones: Vec<ZoneInfo>,
}

pub(super) fn zones(regions: &[Region]) -> Vec<ZoneInfo> {
    let mut zones = Vec::new();
    for region in regions {
        for (offset, taken) in region.free_list().taken() {
            zones.push(ZoneInfo {
                name: taken.name.clone(),
                address: region.base().as_ptr() as usize + offset,
                bytes: taken.bytes,
                region: region.id(),
                socket: region.socket(),
                page_size: region.page_size(),
            });
        }
    }
    zones
}

impl MemoryStats {
    pub(super) fn of(regions: &[Region]) -> Self {
        let mut stats = Self { zones: zones(regions), ..Self::default() };
        for region in regions {
            let (free, free_run_max, free_runs) = {
                let list = region.free_list();
                (list.free_bytes(), list.largest_hole(), list.holes())
            };
            stats.bytes += region.bytes();
            stats.free += free;
            stats.regions.push(RegionStats {
                id: region.id(),
                address: region.base().as_ptr() as usize,
                bytes: region.bytes(),
                free,
                free_run_max,
                free_runs,
                page_size: region.page_size(),
                socket: region.socket(),
                locked: region.locked(),
            });
        }
        stats.used = stats.bytes - stats.free;
        stats
    }
}

impl fmt::Display for MemoryStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "memory: {} mapped, {} used, {} free",
            Bytes(self.bytes),
            Bytes(self.used),
            Bytes(self.free)
        )?;
        for region in &self.regions {
            write!(f, "region {}: {:#x}, {}, ", region.id.0, region.address, Bytes(region.bytes))?;
            write!(f, "pages of {}, ", Bytes(region.page_size))?;
            if let Some(socket) = region.socket {
                write!(f, "node {socket}, ")?;
            }
            let locked = if region.locked { "locked" } else { "not locked" };
            writeln!(f, "{locked}, {} free, longest run {}", Bytes(region.free), Bytes(region.free_run_max))?;
            for zone in self.zones.iter().filter(|zone| zone.region == region.id) {
                writeln!(f, "  zone {}: {:#x}, {}", zone.name, zone.address, Bytes(zone.bytes))?;
            }
        }
        Ok(())
    }
}
