//! The memory of one `Eal`: regions that are set aside at start or grow on demand, and named zones in them.
//!
//! ```text
//!   Memory ── regions ──► Region  [ zone │ hole │ zone │ zone │      hole      ]   one mapping: memfd of huge pages,
//!     │                   Region  [ zone │            hole            ]            or ordinary pages
//!     └─ reserve ──► Zone (owned; holds its region; its bytes go back on drop)
//! ```
//!
//! A mapping is made of the largest huge pages that suit and are free, else of ordinary pages, and one line in the log
//! then says which command would give huge ones. Its pages get their memory before anyone is given an address, so that no
//! later access fails; children of `fork` do not have them; and no file system ever knows a name for them, so that they are
//! freed whatever way the process ends.
//!
//! ```
//! use pollux_eal::memory::Memory;
//! let memory = Memory::ordinary();
//! let mut zone = memory.reserve("flow table", 100_000, 4096, None)?;
//! zone.copy_in(8, b"hello");
//! assert_eq!(memory.lookup("flow table").expect("it lives").bytes, 100_000);
//! drop(zone);
//! assert!(memory.lookup("flow table").is_none());
//! # Ok::<(), pollux_eal::region::MemoryError>(())
//! ```

mod grow;
mod report;
mod start;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_config::{HugeUnlink, MemorySpec};

use crate::hugepage;
use crate::region::{MemoryError, PAGE_BYTES, Region, Zone, current_cpu};
use crate::topology::{SocketId, Topology};
pub use report::{MemoryStats, RegionStats, ZoneInfo};

/// Maximum size of a zone: half of the x86-64 address space with four-level page tables.
const BYTES_MAX: usize = 1 << 46;
/// Maximum alignment and boundary.
const ALIGN_MAX: usize = 1 << 30;

/// Whether regular pages are locked in memory. Hugepages are never swapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageLock {
    /// Lock them where `RLIMIT_MEMLOCK` allows.
    #[default]
    WherePossible,
    /// Lock them, or fail.
    Required,
    /// Do not lock them.
    Never,
}

/// Memory options of an `Eal`.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// Options of the command line.
    pub spec: MemorySpec,
    /// `--file-prefix`: part of the names that `/proc/PID/maps` shows.
    pub file_prefix: String,
    /// Locking of regular pages.
    pub lock: PageLock,
    /// Keep the file behind each region, so that another process can be given it ([`Region::fd`]). Ordinary pages then
    /// come from a memfd, which transparent huge pages seldom back. A forked child holds such files until it ends.
    pub share: bool,
    /// Where `sys` and `proc` are found: `/`, but for tests.
    pub root: PathBuf,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            spec: MemorySpec::default(),
            file_prefix: "rte".into(),
            lock: PageLock::default(),
            share: false,
            root: "/".into(),
        }
    }
}

/// Parameters of a memory zone.
#[derive(Clone, Copy, Debug)]
pub struct ZoneRequest {
    /// Size, at least 1.
    pub bytes: usize,
    /// Its address is a multiple of this power of two. Every zone is aligned to 64.
    pub align: usize,
    /// The zone does not cross a multiple of this power of two, which must be at least the size of the zone.
    pub bound: Option<usize>,
    /// NUMA node; `None`: that of the caller if it has room, else any.
    pub socket: Option<SocketId>,
    /// Whether nothing but huge pages will do.
    pub huge: bool,
}

/// The memory of one `Eal`. A clone is another handle; the mappings live until the last handle, region and zone are
/// dropped. Two values made apart share nothing.
#[derive(Clone, Debug)]
pub struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: MemoryOptions,
    topology: Topology,
    /// The page size of `--huge-dir`, where that is used.
    dir_page_size: Option<usize>,
    regions: Mutex<Vec<Region>>,
    /// That ordinary pages serve has been said.
    told: AtomicBool,
    /// That memory cannot be bound to nodes has been said.
    told_unbound: AtomicBool,
}

impl Memory {
    /// Reserves the memory requested by the options; more is mapped on demand.
    ///
    /// # Errors
    /// When memory asked for at start is not to be had (found out before any of it is mapped, where that can be),
    /// `--huge-dir` is no hugetlbfs, or a node does not exist.
    pub fn new(options: MemoryOptions) -> Result<Self, MemoryError> {
        let topology = Topology::read(&options.root);
        let spec = options.spec.clone();
        let dir = spec.huge_dir.as_ref().filter(|_| !spec.in_memory && !spec.no_huge);
        let dir_page_size = match dir {
            None => None,
            Some(path) => match hugepage::page_size_of_mount(path) {
                Ok(Some(size)) => Some(size),
                Ok(None) => return Err(MemoryError::NotHugetlbfs { path: path.clone() }),
                Err(source) => return Err(MemoryError::HugeDir { path: path.clone(), source }),
            },
        };
        if spec.huge_unlink == HugeUnlink::Never {
            tracing::warn!(target: "lib.eal", "--huge-unlink=never has no effect: these hugepages have no file names");
        }
        let memory = Self::over(options, topology, dir_page_size);
        memory.set_aside()?;
        Ok(memory)
    }

    /// Creates memory of regular pages, mapped on demand and not locked, for tests and programs without an `Eal`.
    #[must_use]
    pub fn ordinary() -> Self {
        let spec = MemorySpec { no_huge: true, ..MemorySpec::default() };
        let options = MemoryOptions { spec, lock: PageLock::Never, ..MemoryOptions::default() };
        let topology = Topology::read(&options.root);
        Self::over(options, topology, None)
    }

    fn over(options: MemoryOptions, topology: Topology, dir_page_size: Option<usize>) -> Self {
        let (told, told_unbound) = (AtomicBool::new(false), AtomicBool::new(false));
        let regions = Mutex::default();
        Self(Arc::new(Shared { options, topology, dir_page_size, regions, told, told_unbound }))
    }

    /// Reserves a zone of `bytes` zeroed bytes, aligned to `align`, under a name unique among the existing zones.
    ///
    /// # Errors
    /// When an argument makes no sense, the name is taken, or the memory is not to be had; see [`MemoryError`].
    #[doc(alias = "rte_memzone_reserve")]
    pub fn reserve(
        &self,
        name: &str,
        bytes: usize,
        align: usize,
        socket: Option<SocketId>,
    ) -> Result<Zone, MemoryError> {
        self.reserve_as(name, &ZoneRequest { bytes, align, bound: None, socket, huge: false })
    }

    /// Like [`reserve`](Self::reserve), with all parameters.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    pub fn reserve_as(&self, name: &str, request: &ZoneRequest) -> Result<Zone, MemoryError> {
        let &ZoneRequest { bytes, align, bound, socket, huge } = request;
        let name_owned = || name.to_owned();
        if bytes == 0 || bytes > BYTES_MAX {
            return Err(MemoryError::Size { name: name_owned(), bytes, max: BYTES_MAX });
        }
        if !align.is_power_of_two() || align > ALIGN_MAX {
            return Err(MemoryError::Align { name: name_owned(), align, max: ALIGN_MAX });
        }
        if let Some(bound) = bound.filter(|bound| !bound.is_power_of_two() || *bound < bytes) {
            return Err(MemoryError::Bound { name: name_owned(), bytes, bound });
        }
        if let Some(socket) = socket {
            self.check_socket(name, socket)?;
        }
        // Held to the end: two threads asking for one name must not both find it free.
        let mut regions = self.regions_locked();
        if let Some(old) = report::zones(&regions).into_iter().find(|zone| zone.name == name) {
            return Err(MemoryError::NameTaken { name: name_owned(), bytes: old.bytes });
        }
        let sockets = socket.map_or_else(|| self.sockets_near(), |socket| vec![socket]);
        for &socket in &sockets {
            let suits = |region: &&Region| {
                region.socket() == Some(socket) && (!huge || region.page_size() > PAGE_BYTES)
            };
            let there = regions.iter().filter(suits);
            if let Some(zone) = there.into_iter().find_map(|region| region.take(name, bytes, align, bound)) {
                return Ok(zone);
            }
        }
        self.reserve_new(&mut regions, name, request, &sockets)
    }

    /// Returns the zone with this name.
    #[must_use]
    #[doc(alias = "rte_memzone_lookup")]
    pub fn lookup(&self, name: &str) -> Option<ZoneInfo> {
        report::zones(&self.regions_locked()).into_iter().find(|zone| zone.name == name)
    }

    /// Visits every living zone, by region and address. The zones are those at the time of the call; `visit` may reserve
    /// and drop.
    #[doc(alias = "rte_memzone_walk")]
    pub fn walk(&self, visit: impl FnMut(&ZoneInfo)) {
        let zones = report::zones(&self.regions_locked());
        zones.iter().for_each(visit);
    }

    /// Returns all regions in order of creation. A device registers each of them once.
    #[must_use]
    pub fn regions(&self) -> Vec<Region> {
        self.regions_locked().clone()
    }

    /// Returns the region that contains an address, if any. Takes a lock, does not allocate.
    #[must_use]
    pub fn region_of(&self, address: usize) -> Option<Region> {
        let holds = |region: &&Region| address.wrapping_sub(region.base().as_ptr().addr()) < region.bytes();
        self.regions_locked().iter().find(holds).cloned()
    }

    /// Returns the memory statistics; they display as a table of regions and zones.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        MemoryStats::of(&self.regions_locked())
    }

    /// Returns the NUMA topology.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.0.topology
    }

    fn check_socket(&self, name: &str, socket: SocketId) -> Result<(), MemoryError> {
        if self.0.topology.nodes().iter().any(|node| node.id == socket) {
            return Ok(());
        }
        Err(MemoryError::NoSocket { name: name.to_owned(), socket, present: self.0.topology.describe() })
    }

    /// Returns all NUMA nodes, the calling thread's first.
    fn sockets_near(&self) -> Vec<SocketId> {
        let mut sockets: Vec<SocketId> = self.0.topology.nodes().iter().map(|node| node.id).collect();
        if sockets.len() > 1
            && let Some(here) = current_cpu().and_then(|cpu| self.0.topology.socket_of(cpu))
        {
            sockets.sort_by_key(|&socket| socket != here);
        }
        sockets
    }

    fn regions_locked(&self) -> MutexGuard<'_, Vec<Region>> {
        // The list only ever has a whole region pushed, so a poisoned lock says nothing against it.
        self.0.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once that memory is not bound to nodes.
    fn tell_unbound(&self, error: &std::io::Error) {
        if !self.0.told_unbound.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "lib.eal",
                "memory is not bound to NUMA nodes: mbind failed: {error}; a container needs CAP_SYS_NICE"
            );
        }
    }

    /// Says once that ordinary pages serve.
    fn tell_ordinary(&self, bytes: usize, why: &str, locked: bool) {
        let asked_for = self.0.options.spec.no_huge;
        if asked_for || self.0.told.swap(true, Ordering::Relaxed) {
            tracing::debug!(target: "lib.eal", bytes, locked, "ordinary pages");
            return;
        }
        let lock = if locked { "" } else { ", unlocked" };
        tracing::warn!(target: "lib.eal", "ordinary pages{lock}: {why}");
    }
}

#[cfg(test)]
mod tests;
