//! The memory under a pool, and where in it each object lies.
#![expect(unsafe_code, reason = "reckons with addresses in pinned memory")]

use std::any::Any;
use std::ptr::NonNull;

use pollux_eal::region::{PAGE_BYTES, Region, RegionId, Zone};

/// A piece of memory given to a pool: a zone, or memory of another origin.
#[derive(Debug)]
pub struct Area {
    base: NonNull<u8>,
    bytes: usize,
    page_size: usize,
    keeper: Keeper,
}

#[derive(Debug)]
enum Keeper {
    Zone(Zone),
    Other { _alive: Box<dyn Any + Send + Sync> },
}

// SAFETY: an area is the right to use the bytes, on whatever thread; its keeper is `Send`.
unsafe impl Send for Area {}
// SAFETY: `&Area` gives away only where the bytes are.
unsafe impl Sync for Area {}

impl From<Zone> for Area {
    fn from(zone: Zone) -> Self {
        Self {
            base: zone.base(),
            bytes: zone.bytes(),
            page_size: zone.region().page_size(),
            keeper: Keeper::Zone(zone),
        }
    }
}

impl Area {
    /// Memory of another origin than the EAL's, with ordinary pages. `keeper` is dropped when the pool is done with it.
    ///
    /// # Safety
    /// `bytes` bytes at `base` are mapped, initialised and readable and writable until `keeper` is dropped, do not move,
    /// and nobody else uses them.
    #[must_use]
    pub unsafe fn new(base: NonNull<u8>, bytes: usize, keeper: impl Any + Send + Sync) -> Self {
        let keeper = Keeper::Other { _alive: Box::new(keeper) };
        Self { base, bytes, page_size: PAGE_BYTES, keeper }
    }

    pub(crate) fn describe(&self, data: bool) -> PoolRegion {
        let region = match &self.keeper {
            Keeper::Zone(zone) => Some(zone.region().clone()),
            Keeper::Other { .. } => None,
        };
        PoolRegion { base: self.base, bytes: self.bytes, page_size: self.page_size, region, data }
    }
}

/// A piece of memory that a pool uses. A device that is to reach the pool's data registers it, or the region it is in.
#[derive(Clone, Debug)]
pub struct PoolRegion {
    /// First byte of the piece.
    pub base: NonNull<u8>,
    /// Length of the piece in bytes.
    pub bytes: usize,
    /// Size in bytes of the pages behind it.
    pub page_size: usize,
    /// The region it is part of; `None` for memory that is not the EAL's.
    pub region: Option<Region>,
    /// Whether packet data lies here: everywhere but in the headers of a pool whose data lies apart.
    pub data: bool,
}

impl PoolRegion {
    /// Number of the region it is part of.
    #[must_use]
    pub fn id(&self) -> Option<RegionId> {
        self.region.as_ref().map(Region::id)
    }
}

// SAFETY: names memory, and gives no right to touch it.
unsafe impl Send for PoolRegion {}
// SAFETY: as above.
unsafe impl Sync for PoolRegion {}

/// Places of one stride that lie one after another in some areas.
#[derive(Debug)]
pub(crate) struct Places {
    stride: usize,
    runs: Vec<Run>,
    areas: Vec<Area>,
}

#[derive(Debug)]
struct Run {
    base: NonNull<u8>,
    first: usize,
    count: usize,
}

// SAFETY: the runs lie in the areas, which are `Send` and `Sync`.
unsafe impl Send for Places {}
// SAFETY: as above.
unsafe impl Sync for Places {}

impl Places {
    /// Lays `count` places out over `areas`, the first in each at a multiple of `align`. `Err`: so many fit.
    pub(crate) fn lay(areas: Vec<Area>, count: usize, stride: usize, align: usize) -> Result<Self, usize> {
        let mut runs = Vec::new();
        let mut placed = 0;
        for area in &areas {
            let skip = area.base.as_ptr().align_offset(align).min(area.bytes);
            let fit = ((area.bytes - skip) / stride).min(count - placed);
            if fit > 0 {
                // SAFETY: `skip` is inside the area.
                runs.push(Run { base: unsafe { area.base.add(skip) }, first: placed, count: fit });
                placed += fit;
            }
        }
        if placed < count { Err(placed) } else { Ok(Self { stride, runs, areas }) }
    }

    /// Address of place `index`, which exists.
    pub(crate) fn address(&self, index: usize) -> NonNull<u8> {
        let at = self.runs.partition_point(|run| run.first <= index) - 1;
        let run = &self.runs[at];
        debug_assert!(index - run.first < run.count);
        // SAFETY: `index - first < count` places of `stride` bytes lie in the run's area (`lay`).
        unsafe { run.base.add((index - run.first) * self.stride) }
    }

    /// Index of the place that the byte at `address` is in.
    pub(crate) fn index_of(&self, address: usize) -> Option<usize> {
        self.runs.iter().find_map(|run| {
            let index = address.checked_sub(run.base.as_ptr().addr())? / self.stride;
            (index < run.count).then_some(run.first + index)
        })
    }

    pub(crate) fn describe(&self, data: bool) -> impl Iterator<Item = PoolRegion> {
        self.areas.iter().map(move |area| area.describe(data))
    }
}
