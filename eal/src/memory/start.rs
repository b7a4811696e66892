//! What the options have set aside at start, before anything asks for a zone.

use super::Memory;
use crate::SocketId;
use crate::hugepage;
use crate::region::{MemoryError, PAGE_BYTES, THP_BYTES};

const NAME: &str = "the memory reserved at startup";

/// A node, and how many bytes it is to give.
type Share = (SocketId, usize);

impl Memory {
    /// Maps what `-m` or `--numa-mem` asks for.
    pub(super) fn set_aside(&self) -> Result<(), MemoryError> {
        let shares = self.shares()?;
        if shares.is_empty() {
            return Ok(());
        }
        // To populate memory takes time, 50 ms a GiB and more: what cannot end well is not begun.
        self.check_shares(&shares)?;
        shares.into_iter().try_for_each(|(socket, bytes)| self.set_aside_on(socket, bytes))
    }

    fn shares(&self) -> Result<Vec<Share>, MemoryError> {
        let spec = &self.0.options.spec;
        let bytes = |mib: u64| usize::try_from(mib).unwrap_or(usize::MAX).saturating_mul(1 << 20);
        let mut shares = Vec::new();
        if spec.numa_mib.iter().any(|&mib| mib > 0) {
            for (index, &mib) in spec.numa_mib.iter().enumerate().filter(|(_, mib)| **mib > 0) {
                let socket = SocketId(u16::try_from(index).unwrap_or(u16::MAX));
                self.check_socket("--numa-mem", socket)?;
                shares.push((socket, bytes(mib)));
            }
        } else if let Some(mib) = spec.initial_mib {
            // In equal shares, the first node taking what does not divide.
            let nodes = self.0.topology.nodes();
            let (share, mut rest) = (mib / nodes.len() as u64, mib % nodes.len() as u64);
            for node in nodes {
                shares.push((node.id, bytes(share + std::mem::take(&mut rest))));
            }
        }
        Ok(shares)
    }

    /// Whether the machine has all of it now.
    fn check_shares(&self, shares: &[Share]) -> Result<(), MemoryError> {
        let total = shares.iter().fold(0_usize, |sum, share| sum.saturating_add(share.1));
        let (mut huge, mut ordinary) = (0_usize, 0_usize);
        for &(socket, bytes) in shares {
            self.check_limit(&[], NAME, bytes, socket)?;
            let pools = self.pools(socket);
            let free = pools
                .iter()
                .fold(0_usize, |sum, pool| sum.saturating_add(pool.free.saturating_mul(pool.page_size)));
            if free < bytes {
                self.demand_huge(NAME, bytes, socket)?;
            }
            huge = huge.saturating_add(free);
            ordinary = ordinary.saturating_add(bytes.saturating_sub(free));
        }
        let not_enough = |available, source_of_limit| {
            Err(MemoryError::NotEnough { name: NAME.into(), bytes: total, available, source_of_limit })
        };
        let root = &self.0.options.root;
        if let Some(space) = hugepage::address_space(root)
            && space.bytes < total
        {
            return not_enough(space.bytes, space.told_by);
        }
        match hugepage::available(root) {
            Some(left) if left.bytes < ordinary => {
                let told_by = match huge {
                    0 => left.told_by,
                    _ => format!("free huge pages, and {}", left.told_by),
                };
                not_enough(left.bytes.saturating_add(huge), told_by)
            }
            _ => Ok(()),
        }
    }

    /// Maps `bytes` on `socket` now: whole huge pages as long as there are any, the rest ordinary.
    fn set_aside_on(&self, socket: SocketId, bytes: usize) -> Result<(), MemoryError> {
        let mut regions = self.regions_locked();
        let mut left = bytes;
        let mut refused = None;
        let pools = self.pools(socket);
        for (index, pool) in pools.iter().enumerate() {
            let smallest = index + 1 == pools.len();
            let pages = if smallest { left.div_ceil(pool.page_size) } else { left / pool.page_size };
            let pages = pages.min(pool.free);
            if pages == 0 {
                continue;
            }
            let take = pages.saturating_mul(pool.page_size);
            match self.map_huge(&regions, NAME, take, pool.page_size, socket, pool.page_size) {
                Ok(region) => {
                    regions.push(region);
                    left = left.saturating_sub(take);
                }
                Err(error) => refused = Some(error),
            }
        }
        if left > 0 {
            self.demand_huge(NAME, left, socket)?;
            let rounded = left.checked_next_multiple_of(PAGE_BYTES).unwrap_or(left);
            let region = self.map_ordinary(&regions, NAME, rounded, THP_BYTES, socket)?;
            self.tell_ordinary(left, &self.why_ordinary(left, socket, refused), region.locked());
            regions.push(region);
        }
        Ok(())
    }
}
