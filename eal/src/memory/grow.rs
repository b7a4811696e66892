//! Where new regions come from: the largest huge pages that suit, else ordinary pages.

use std::io;

use super::{Memory, PageLock, ZoneRequest};
use crate::hugepage::{self, HugePool};
use crate::region::{Backing, Mapping, MemoryError, PAGE_BYTES, Refused, Region, THP_BYTES, Wanted, Zone};
use crate::topology::SocketId;

/// The least that memory grows by, so that small zones share a region: a device registers each region.
const GROW_BYTES_MIN: usize = 2 << 20;

impl Memory {
    /// A zone in a new region, on the first of `sockets` that has room.
    pub(super) fn reserve_new(
        &self,
        regions: &mut Vec<Region>,
        name: &str,
        request: &ZoneRequest,
        sockets: &[SocketId],
    ) -> Result<Zone, MemoryError> {
        let &ZoneRequest { bytes, align, bound, huge, .. } = request;
        // A zone aligned to a power of two no smaller than itself crosses no multiple of a larger one.
        let align_region = if bound.is_some() { align.max(bytes.next_power_of_two()) } else { align };
        let mut refused = None;
        for &socket in sockets {
            match self.grow(regions, name, bytes, align_region, socket, huge) {
                Ok(region) => {
                    regions.push(region.clone());
                    let zone = region.take(name, bytes, align, bound);
                    return Ok(zone.expect("the region was made to hold the zone"));
                }
                // The nearest node's reason is the one to tell.
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(refused.expect("there is at least one node"))
    }

    /// A region on `socket` whose free bytes hold `bytes` at a multiple of `align`.
    fn grow(
        &self,
        regions: &[Region],
        name: &str,
        bytes: usize,
        align: usize,
        socket: SocketId,
        huge: bool,
    ) -> Result<Region, MemoryError> {
        let bytes = bytes.max(GROW_BYTES_MIN);
        let mut pools = self.pools(socket);
        // A page larger than what is wanted only if there are no smaller ones: it would be taken from somebody who needs it.
        pools.sort_by_key(|pool| (pool.page_size > bytes, std::cmp::Reverse(pool.page_size)));
        let mut refused = None;
        for pool in &pools {
            let rounded = bytes.next_multiple_of(pool.page_size);
            if rounded / pool.page_size > pool.free {
                continue;
            }
            match self.map_huge(regions, name, rounded, align, socket, pool.page_size) {
                Ok(region) => return Ok(region),
                Err(error) => refused = Some(error),
            }
        }
        if huge {
            return Err(refused.unwrap_or_else(|| self.no_huge(name, bytes, socket)));
        }
        self.demand_huge(name, bytes, socket)?;
        let region = self.map_ordinary(regions, name, bytes.next_multiple_of(THP_BYTES), align, socket)?;
        self.tell_ordinary(bytes, &self.why_ordinary(bytes, socket, refused), region.locked());
        Ok(region)
    }

    /// Why huge pages do not serve, and what would change it.
    pub(super) fn why_ordinary(
        &self,
        bytes: usize,
        socket: SocketId,
        refused: Option<MemoryError>,
    ) -> String {
        let pools = self.pools(socket);
        match refused {
            Some(error) => error.to_string(),
            None => match self.hidden(&pools) {
                Some((what, mend)) => format!("{what}; {mend} allows more"),
                None if pools.is_empty() => hugepage::describe(&pools),
                None => {
                    let mend = hugepage::command_for(&pools, bytes, self.node_to_bind(socket));
                    format!("too few huge pages are free; {mend}, or --no-huge")
                }
            },
        }
    }

    /// Why there seem to be no huge pages, when that is our own fault.
    fn hidden(&self, pools: &[HugePool]) -> Option<(String, String)> {
        let asked = pools.is_empty() && !self.0.options.spec.no_huge;
        asked.then(|| hugepage::hidden(&self.0.options.root)).flatten()
    }

    /// What there is of huge pages, and what would make it enough for `bytes`.
    fn huge_pages_now(&self, pools: &[HugePool], bytes: usize, socket: SocketId) -> (String, String) {
        if self.0.options.spec.no_huge {
            return ("--no-huge forbids them".into(), "leave --no-huge out".into());
        }
        self.hidden(pools).unwrap_or_else(|| {
            let mend = hugepage::command_for(pools, bytes, self.node_to_bind(socket));
            (hugepage::describe(pools), mend)
        })
    }

    /// An error if the user named a directory of huge pages: then nothing else will do.
    pub(super) fn demand_huge(&self, name: &str, bytes: usize, socket: SocketId) -> Result<(), MemoryError> {
        if self.0.dir_page_size.is_none() {
            return Ok(());
        }
        Err(self.no_huge(name, bytes, socket))
    }

    fn no_huge(&self, name: &str, bytes: usize, socket: SocketId) -> MemoryError {
        let pools = self.pools(socket);
        let (free, mend) = self.huge_pages_now(&pools, bytes, socket);
        MemoryError::NoHugePages { name: name.to_owned(), bytes, free, mend }
    }

    /// The pools that may be used for `socket`, largest pages first.
    pub(super) fn pools(&self, socket: SocketId) -> Vec<HugePool> {
        let options = &self.0.options;
        if options.spec.no_huge {
            return Vec::new();
        }
        let mut pools = HugePool::all(&options.root, None);
        if let Some(node) = self.node_to_bind(socket) {
            let there = HugePool::all(&options.root, Some(node));
            // What the node has, as far as it is not promised to others.
            pools.retain_mut(|pool| match there.iter().find(|local| local.page_size == pool.page_size) {
                Some(local) => {
                    *pool = HugePool { free: local.free.min(pool.free), ..*local };
                    true
                }
                None => false,
            });
        }
        pools.retain(|pool| self.0.dir_page_size.is_none_or(|size| size == pool.page_size));
        pools
    }

    /// The node to bind to: where there is only one, nothing is gained by a system call.
    pub(super) fn node_to_bind(&self, socket: SocketId) -> Option<SocketId> {
        (self.0.topology.nodes().len() > 1).then_some(socket)
    }

    pub(super) fn map_huge(
        &self,
        regions: &[Region],
        name: &str,
        bytes: usize,
        align: usize,
        socket: SocketId,
        page_size: usize,
    ) -> Result<Region, MemoryError> {
        let dir = self.0.options.spec.huge_dir.as_deref().filter(|_| self.0.dir_page_size.is_some());
        let backing = dir.map_or(Backing::HugeMemfd, Backing::HugeDir);
        self.map(regions, name, bytes, align, socket, page_size, backing)
    }

    pub(super) fn map_ordinary(
        &self,
        regions: &[Region],
        name: &str,
        bytes: usize,
        align: usize,
        socket: SocketId,
    ) -> Result<Region, MemoryError> {
        if let Some(available) = hugepage::available(&self.0.options.root)
            && available.bytes < bytes
        {
            let (available, source_of_limit) = (available.bytes, available.told_by);
            return Err(MemoryError::NotEnough { name: name.to_owned(), bytes, available, source_of_limit });
        }
        let backing = if self.0.options.share { Backing::Memfd } else { Backing::Anonymous };
        let region = self.map(regions, name, bytes, align.max(THP_BYTES), socket, PAGE_BYTES, backing)?;
        match region.lock_refused() {
            Some(source) if self.0.options.lock == PageLock::Required => {
                let limit = crate::region::lock_limit();
                Err(MemoryError::Lock { name: name.to_owned(), bytes, limit, source })
            }
            _ => Ok(region),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "each is a property of the one mapping that is made here")]
    fn map(
        &self,
        regions: &[Region],
        name: &str,
        bytes: usize,
        align: usize,
        socket: SocketId,
        page_size: usize,
        backing: Backing<'_>,
    ) -> Result<Region, MemoryError> {
        self.check_limit(regions, name, bytes, socket)?;
        let options = &self.0.options;
        let wanted = Wanted {
            label: &format!("pollux:{}:{name}", options.file_prefix),
            backing,
            bytes,
            page_size,
            align,
            node: self.node_to_bind(socket),
            lock: page_size == PAGE_BYTES && options.lock != PageLock::Never,
            keep_fd: options.share,
        };
        let mend = |source: &io::Error| match source.raw_os_error() {
            Some(libc::ENOMEM) if page_size > PAGE_BYTES => {
                let pools = self.pools(socket);
                let (what, mend) = self.huge_pages_now(&pools, bytes, socket);
                format!(": {what}; {mend}")
            }
            // What a fault would have been: a control group's limit on huge pages, or a node's pool that is empty.
            Some(libc::EFAULT) => {
                ": a control group or a NUMA node refuses the pages (see hugetlb.*.max)".into()
            }
            _ => String::new(),
        };
        let name_owned = || name.to_owned();
        let mapping = match Mapping::new(&wanted) {
            // Containers forbid it by default; memory then comes from the node of the thread that populates it.
            Err(Refused::Bind(error)) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                self.tell_unbound(&error);
                Mapping::new(&Wanted { node: None, ..wanted })
            }
            answer => answer,
        };
        match mapping {
            Ok(mapping) => Ok(Region::over(mapping, name, page_size, Some(socket))),
            Err(Refused::Map(source)) => {
                Err(MemoryError::Map { name: name_owned(), bytes, page_size, mend: mend(&source), source })
            }
            Err(Refused::Populate(source)) => Err(MemoryError::Populate {
                name: name_owned(),
                bytes,
                page_size,
                mend: mend(&source),
                source,
            }),
            Err(Refused::Bind(source)) => {
                Err(MemoryError::Bind { name: name_owned(), bytes, socket, source })
            }
        }
    }

    pub(super) fn check_limit(
        &self,
        regions: &[Region],
        name: &str,
        bytes: usize,
        socket: SocketId,
    ) -> Result<(), MemoryError> {
        let limits = &self.0.options.spec.numa_limit_mib;
        let Some(&mib) = limits.get(usize::from(socket.0)).filter(|mib| **mib > 0) else { return Ok(()) };
        let limit = usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(1 << 20);
        let used: usize =
            regions.iter().filter(|region| region.socket() == Some(socket)).map(Region::bytes).sum();
        if used.saturating_add(bytes) > limit {
            return Err(MemoryError::Limit { name: name.to_owned(), bytes, used, limit });
        }
        Ok(())
    }
}
