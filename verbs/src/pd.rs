//! Protection domains.
#![expect(unsafe_code, reason = "registers the memory of pools")]

use std::sync::{Arc, Mutex, PoisonError};

use pollux_eal::region::PAGE_BYTES;
use pollux_mempool::MbufPool;
use pollux_mlx5_common::key::{KeyRange, KeyTable, Keys};
use pollux_uverbs::abi::flags::Access;
use pollux_uverbs::mr::MrRequest;
use pollux_uverbs::{MrHandle, PdHandle};

use crate::VerbsError;
use crate::context::Context;
use crate::view::{Listed, MrKind, MrRecord};

/// A protection domain: memory and queues of one go together. Clones are handles; everything made of it keeps it.
///
/// There are no thread domains, which tell a library that it need not lock: every queue has doorbell registers of its own and
/// belongs to one thread at a time, so there is no lock to be saved. Nor are there parent domains, which bring allocators along:
/// queues and buffers take their memory from [`Options::memory`](crate::Options).
#[derive(Clone, Debug)]
pub struct Pd(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    context: Context,
    handle: PdHandle,
    keys: Arc<KeyTable>,
    pools: Mutex<Vec<Pool>>,
    /// Somebody else's, who destroys it.
    imported: bool,
}

/// A pool whose packets can be posted.
#[derive(Debug)]
struct Pool {
    handles: Vec<(MrHandle, Listed<MrRecord>)>,
    pool: MbufPool,
}

impl Pd {
    /// A protection domain of a device.
    ///
    /// # Errors
    /// What the kernel says.
    #[doc(alias = "ibv_alloc_pd")]
    pub fn new(context: &Context) -> Result<Self, VerbsError> {
        Ok(Self::over(context, context.alloc_pd()?, false))
    }

    /// A domain that was made through another handle of the same file ([`Context::import`]). It stays the other's, who destroys it
    /// once all that was made of it here is gone. A handle that there is not is told by whatever is made of it.
    #[must_use]
    pub fn import(context: &Context, handle: PdHandle) -> Self {
        Self::over(context, handle, true)
    }

    fn over(context: &Context, handle: PdHandle, imported: bool) -> Self {
        let (context, keys) = (context.clone(), KeyTable::new(None));
        Self(Arc::new(Inner { context, handle, keys, pools: Mutex::default(), imported }))
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> PdHandle {
        self.0.handle
    }

    /// Whether both are the same domain.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// By how much the device's addresses of memory differ from the process's.
    pub(crate) fn delta(&self) -> u64 {
        self.0.context.options().address_shift_pages.wrapping_mul(PAGE_BYTES as u64)
    }

    pub(crate) fn keys(&self) -> Keys {
        Keys::new(Arc::clone(&self.0.keys))
    }

    /// Registers all of a pool's packet memory, so that its mbufs can be posted. It stays, and the pool too, as long as the
    /// domain. No peer has rights there.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn add_pool(&self, pool: &MbufPool) -> Result<(), VerbsError> {
        let mut pools = self.0.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if pools.iter().any(|known| known.pool.id() == pool.id()) {
            return Ok(());
        }
        let mut handles = Vec::new();
        for region in pool.regions().iter().filter(|region| region.data) {
            let (start, bytes) = (region.base.as_ptr().addr() as u64, region.bytes as u64);
            let delta = self.delta();
            let request = MrRequest {
                pd: self.0.handle,
                start,
                length: bytes,
                hca_va: start.wrapping_add(delta),
                access: Access::LOCAL_WRITE,
            };
            // SAFETY: the domain keeps the pool until it is deregistered. What lies there is owned by mbufs, whose data nobody has
            // references to while a queue has them; peers have no rights.
            match unsafe { self.0.context.register(&request) } {
                Ok(mr) => {
                    let registry = self.0.context.registry();
                    let record = registry.add_memory(MrKind::Packets, bytes, Access::LOCAL_WRITE);
                    handles.push((mr.handle, record));
                    self.0.keys.insert(KeyRange { start, bytes, lkey: mr.lkey, delta });
                }
                Err(error) => {
                    // What was registered so far goes with the domain.
                    pools.push(Pool { handles, pool: pool.clone() });
                    return Err(VerbsError::kernel("register packet memory")(error));
                }
            }
        }
        pools.push(Pool { handles, pool: pool.clone() });
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let context = self.context.uverbs();
        for pool in self.pools.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let mut all = true;
            for (handle, _) in &pool.handles {
                if let Err(error) = context.dereg_mr(*handle) {
                    tracing::warn!(target: "lib.verbs", "{}: {error}", self.context.name());
                    all = false;
                }
            }
            if !all {
                // The device may still reach it: the pool's memory stays.
                std::mem::forget(pool);
            }
        }
        if !self.imported
            && let Err(error) = context.dealloc_pd(self.handle)
        {
            tracing::warn!(target: "lib.verbs", "{}: {error}", self.context.name());
        }
    }
}
