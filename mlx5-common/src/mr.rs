//! Registration: whole pools, when they are made; memory of the EAL that no pool told of, when a packet brings it; memory of
//! applications, when they tell of it.
//!
//! A region is registered at an address of its own (`hca_va`), at the same place in its page; where it differs from the
//! process's address, the difference goes with the key into every descriptor.
#![expect(unsafe_code, reason = "memory is registered by address")]

use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{fmt, mem};

use pollux_eal::region::{PAGE_BYTES, Region, Zone};
use pollux_mempool::{ExternalMemory, MbufPool, PoolEvent, PoolInfo, PoolRegion, Subscription};
use pollux_uverbs::abi::flags::{Access, CoreSupport};
use pollux_uverbs::mr::MrRequest;
use pollux_uverbs::{Driver, MrHandle};

use crate::MlxError;
use crate::context::{Device, Pinning};
use crate::key::{KeyRange, KeyTable};

/// A region that the device knows.
#[derive(Debug)]
struct Registered {
    handle: MrHandle,
    memory: Range<u64>,
    kind: Pinning,
    /// Who wants it: whoever had it registered, and those who asked for memory that lies inside. It ends with the last.
    claims: Vec<Claim>,
}

/// Somebody wants memory to be registered.
#[derive(Debug)]
struct Claim {
    memory: Range<u64>,
    kept: Kept,
    /// Not given back yet. One of all the memory stays nevertheless, so that it is mapped as long as the device may reach it.
    held: bool,
}

/// Who wants memory to be registered, and what keeps it from being unmapped or freed.
#[derive(Debug)]
pub enum Kept {
    /// A pool's, and the memory of the EAL that it lies in, if it does.
    Pool(Option<Region>),
    /// Memory of the EAL that a packet brought. It is never given back.
    Met(Region),
    /// The buffers of a striding queue, as long as one is in use; they count as the queue does.
    Buffers(Region),
    /// An application's, that it told of.
    External(ExternalMemory),
}

/// The memory of a device's protection domain.
pub struct Registry {
    device: Arc<Device>,
    /// By key.
    registered: Mutex<HashMap<u32, Registered>>,
    table: Arc<KeyTable>,
    /// That memory of a packet could not be registered was said.
    told: AtomicBool,
}

impl Registry {
    /// An empty one, whose table knows how to ask for more.
    #[must_use]
    pub fn new(device: Arc<Device>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let this = this.clone();
            let ask = move |address, bytes| match this.upgrade() {
                Some(this) => this.met(address, bytes),
                None => Err(0..0),
            };
            let table = KeyTable::new(Some(Box::new(ask)));
            Self { device, registered: Mutex::default(), table, told: AtomicBool::new(false) }
        })
    }

    /// What queues look keys up in.
    #[must_use]
    pub fn table(&self) -> &Arc<KeyTable> {
        &self.table
    }

    /// Registers all of a pool's data.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add_pool(&self, pool: &MbufPool) -> Result<(), MlxError> {
        self.device.locked().asked_again();
        self.add_regions(&pool.regions())
    }

    fn add_regions(&self, regions: &[PoolRegion]) -> Result<(), MlxError> {
        for region in regions.iter().filter(|region| region.data) {
            let start = region.base.as_ptr().addr() as u64;
            self.add(start..start + region.bytes as u64, Kept::Pool(region.region.clone()))?;
        }
        Ok(())
    }

    fn remove_regions(&self, regions: &[PoolRegion]) {
        for region in regions.iter().filter(|region| region.data) {
            let start = region.base.as_ptr().addr() as u64;
            self.release(&(start..start + region.bytes as u64), &Kept::Pool(None));
        }
    }

    /// Has every pool registered when it is made and deregistered when it ends, those that live now included, until the
    /// answer is dropped.
    pub fn follow_pools(self: &Arc<Self>) -> Subscription {
        let this = Arc::downgrade(self);
        pollux_mempool::subscribe(move |event| {
            let Some(this) = this.upgrade() else { return };
            match event {
                PoolEvent::Created(pool) => this.pool_created(pool),
                PoolEvent::Destroyed(pool) => this.remove_regions(&pool.regions),
                _ => {}
            }
        })
    }

    fn pool_created(&self, pool: &PoolInfo) {
        if !pool.mbufs || self.device.is_gone() {
            return;
        }
        if let Err(error) = self.add_regions(&pool.regions) {
            if let MlxError::Memlock { shortage, .. } = &error {
                self.device.locked().lack(shortage.wanted);
            }
            // Whoever sets up a queue with it is told, as an error.
            tracing::debug!(target: "pmd.common.mlx5", "{}: pool {}: {error}", self.device.name(), pool.name);
        }
    }

    /// Registers memory, unless it lies inside what is registered: then that stays as long as this is wanted.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add(&self, memory: Range<u64>, kept: Kept) -> Result<KeyRange, MlxError> {
        let mut registered = self.registered();
        let bytes = memory.end - memory.start;
        if let Some(known) = self.table.find(memory.start, bytes) {
            if let Some(entry) = registered.get_mut(&known.lkey) {
                entry.claim(memory, kept);
            }
            return Ok(known);
        }
        let opening = self.device.opening();
        let delta = opening.address_shift_pages.wrapping_mul(PAGE_BYTES as u64);
        let mut access = Access::LOCAL_WRITE;
        // Kernels that know no optional rights refuse what they do not know.
        let optional = self.device.context().core_support().contains(CoreSupport::OPTIONAL_MR_ACCESS);
        access.set(Access::RELAXED_ORDERING, opening.relaxed_ordering && optional);
        let request = MrRequest {
            pd: self.device.pd,
            start: memory.start,
            length: bytes,
            hca_va: memory.start.wrapping_add(delta),
            access,
        };
        let kind = if let Kept::Buffers(_) = kept { Pinning::Queue } else { Pinning::Pool };
        let mr = self.device.pinning("register packet memory", kind, bytes, |context| {
            // SAFETY: an entry keeps what it is of, pool, region or buffers, until it is deregistered. What lies there is owned by
            // mbufs, whose data nobody has references to while a queue has them; peers have no rights.
            unsafe { context.reg_mr(&request, Driver::none()) }
        })?;
        let range = KeyRange { start: memory.start, bytes, lkey: mr.lkey, delta };
        let claims = vec![Claim { memory: memory.clone(), kept, held: true }];
        registered.insert(mr.lkey, Registered { handle: mr.handle, memory, kind, claims });
        self.table.insert(range);
        Ok(range)
    }

    /// Registers the buffers of a striding queue, as long as they live.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add_buffers(self: &Arc<Self>, zone: Zone) -> Result<Buffers, MlxError> {
        let mut buffers = Buffers::from(zone);
        self.add(buffers.memory(), buffers.kept())?;
        buffers.registry = Arc::downgrade(self);
        Ok(buffers)
    }

    /// A packet lies where nobody registered: if the EAL knows the memory, all of its region is registered, or the packet's
    /// pages alone. Where the kernel refuses that, no packet of the region is to be asked for until another registration comes
    /// or goes; of memory that nobody knows, each is: the EAL may have more by then.
    fn met(&self, address: u64, bytes: u64) -> Result<KeyRange, Range<u64>> {
        let unknown = 0..0;
        let region = self.device.opening().memory.region_of(address as usize).ok_or(unknown.clone())?;
        let start = region.base().as_ptr().addr() as u64;
        let all = start..start + region.bytes() as u64;
        let range = if self.device.opening().register_regions {
            all.clone()
        } else {
            let page = region.page_size() as u64;
            let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page));
            let end = end.ok_or(unknown)?;
            address / page * page..end.min(all.end)
        };
        self.add(range, Kept::Met(region)).map_err(|error| {
            if self.told.swap(true, Ordering::Relaxed) {
                tracing::debug!(target: "pmd.common.mlx5", "{}: {error}", self.device.name());
            } else {
                tracing::warn!(target: "pmd.common.mlx5", "{}: {error}; its packets are dropped", self.device.name());
            }
            all
        })
    }

    /// Registers memory of an application's.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add_external(&self, memory: &ExternalMemory) -> Result<(), MlxError> {
        self.add(range_of(memory), Kept::External(memory.clone())).map(drop)
    }

    /// The device reaches it no more, unless others want memory that was registered together with it.
    pub fn remove_external(&self, memory: &ExternalMemory) {
        self.release(&range_of(memory), &Kept::External(memory.clone()));
    }

    /// One of this kind wants this memory no more.
    fn release(&self, memory: &Range<u64>, kind: &Kept) {
        let mut registered = self.registered();
        let unclaimed = registered
            .iter_mut()
            .find_map(|(lkey, entry)| entry.release(memory, kind).map(|held| (*lkey, held)));
        let Some((lkey, false)) = unclaimed else { return };
        let gone = registered.remove(&lkey);
        drop(registered);
        if let Some(gone) = gone {
            self.table.remove(lkey);
            self.deregister(gone);
        }
    }

    /// What the device does not give back stays with it, memory and all, until its file is closed.
    fn deregister(&self, entry: Registered) {
        if self.device.is_gone() {
            // The device may still reach it until its file is closed.
            self.device.keep(Box::new(entry));
            return;
        }
        match self.device.context().dereg_mr(entry.handle) {
            Ok(()) => self.device.unpinned(entry.kind, entry.memory.end - entry.memory.start),
            Err(error) => {
                if !self.device.noticed(&error) {
                    tracing::warn!(target: "pmd.common.mlx5", "{}: {error}", self.device.name());
                }
                self.device.keep(Box::new(entry));
            }
        }
    }

    fn registered(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Registered>> {
        self.registered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// Somebody wants memory that lies inside.
    fn claim(&mut self, memory: Range<u64>, kept: Kept) {
        if let Some(known) = self.claims.iter_mut().find(|claim| claim.is(&memory, &kept)) {
            known.held = true;
        } else if !matches!(kept, Kept::Met(_)) {
            // What a packet brought is no more than what is registered already.
            self.claims.push(Claim { memory, kept, held: true });
        }
    }

    /// Takes a claim back, if it is one here; then whether others are left.
    fn release(&mut self, memory: &Range<u64>, kind: &Kept) -> Option<bool> {
        let at = self.claims.iter().position(|claim| claim.held && claim.is(memory, kind))?;
        if *memory == self.memory {
            self.claims[at].held = false;
        } else {
            self.claims.remove(at);
        }
        Some(self.claims.iter().any(|claim| claim.held))
    }
}

impl Claim {
    fn is(&self, memory: &Range<u64>, kind: &Kept) -> bool {
        self.memory == *memory && mem::discriminant(&self.kept) == mem::discriminant(kind)
    }
}

/// The buffers of a striding queue. They are deregistered with the last of them: mbufs that show some may be on their way out
/// after the queue is gone. After their port they are memory, and no more.
#[derive(Debug)]
pub struct Buffers {
    /// Where they are registered, if they are.
    registry: Weak<Registry>,
    zone: Zone,
}

impl Buffers {
    fn memory(&self) -> Range<u64> {
        let start = self.zone.base().as_ptr().addr() as u64;
        start..start + self.zone.bytes() as u64
    }

    fn kept(&self) -> Kept {
        Kept::Buffers(self.zone.region().clone())
    }
}

impl Deref for Buffers {
    type Target = Zone;

    fn deref(&self) -> &Zone {
        &self.zone
    }
}

impl From<Zone> for Buffers {
    /// Buffers that no device knows.
    fn from(zone: Zone) -> Self {
        Self { registry: Weak::new(), zone }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.release(&self.memory(), &self.kept());
        }
    }
}

fn range_of(memory: &ExternalMemory) -> Range<u64> {
    let start = memory.base().as_ptr().addr() as u64;
    start..start + memory.bytes() as u64
}

impl Drop for Registry {
    fn drop(&mut self) {
        let all: Vec<(u32, Registered)> = self.registered().drain().collect();
        for (lkey, entry) in all {
            self.table.remove(lkey);
            self.deregister(entry);
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("regions", &self.registered().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use pollux_mempool::External;

    use super::*;

    #[test]
    fn a_registration_ends_with_the_last_who_wants_it() {
        let external = External::from(vec![0; 64]).memory();
        let (pool, external) = (|| Kept::Pool(None), || Kept::External(external.clone()));
        let kinds: [&dyn Fn() -> Kept; 2] = [&pool, &external];
        let all = 0x1000..0x3000;
        for (first, second) in [(0, 1), (1, 0)] {
            for inside in [all.clone(), 0x1800..0x2000] {
                for order in [[0, 1], [1, 0]] {
                    let (first, second) = (kinds[first], kinds[second]);
                    let claims = vec![Claim { memory: all.clone(), kept: first(), held: true }];
                    let mut entry =
                        Registered { handle: MrHandle(0), memory: all.clone(), kind: Pinning::Pool, claims };
                    entry.claim(inside.clone(), second());
                    entry.claim(inside.clone(), second());
                    let release = [(&all, first()), (&inside, second())];
                    assert_eq!(entry.release(&(0x1000..0x2000), &first()), None, "nobody's");
                    let (memory, kind) = &release[order[0]];
                    assert_eq!(entry.release(memory, kind), Some(true));
                    assert_eq!(entry.release(memory, kind), None, "given back");
                    assert!(entry.claims.iter().any(|claim| claim.memory == all), "mapped, held or not");
                    let (memory, kind) = &release[order[1]];
                    assert_eq!(entry.release(memory, kind), Some(false));
                }
            }
        }
    }
}
