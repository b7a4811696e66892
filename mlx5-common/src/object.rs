//! Objects of the device.
//!
//! An object keeps those that it stands on alive ([`Object::over`]), so that whatever order the owners are dropped in, the
//! device's objects go children first.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pollux_mlx5_abi::kernel::{attribute, method, object};
use pollux_uverbs::{
    Call, CountersHandle, CqHandle, FlowHandle, Operation, QpHandle, RwqIndTableHandle, SrqHandle,
    UverbsError, WqHandle,
};

use crate::context::{Device, Pinning};

/// How the kernel knows an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    /// A completion queue.
    Cq(CqHandle),
    /// A queue pair.
    Qp(QpHandle),
    /// A shared receive queue.
    Srq(SrqHandle),
    /// A work queue.
    Wq(WqHandle),
    /// An indirection table.
    Table(RwqIndTableHandle),
    /// A flow rule.
    Flow(FlowHandle),
    /// A set of counters.
    Counters(CountersHandle),
    /// A doorbell page.
    Uar(u32),
    /// An object of the firmware.
    Devx(u32),
    /// Memory by number.
    Umem(u32),
    /// A mask of flow rules.
    Matcher(u32),
    /// A flow rule of the driver's own kind.
    Mlx5Flow(u32),
}

/// An object of the device. It is destroyed when the last handle of it goes.
#[derive(Clone)]
pub struct Object(Arc<Inner>);

/// A handle that keeps nothing alive.
#[derive(Clone)]
pub(crate) struct WeakObject(Weak<Inner>);

impl WeakObject {
    /// The object, while somebody has a handle of it.
    pub(crate) fn upgrade(&self) -> Option<Object> {
        self.0.upgrade().map(Object)
    }
}

impl fmt::Debug for WeakObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakObject").finish_non_exhaustive()
    }
}

struct Inner {
    device: Arc<Device>,
    id: Id,
    pinned: u64,
    destroyed: AtomicBool,
    /// Dropped after this one is destroyed.
    over: Vec<Object>,
    /// Memory of those, dropped after them.
    memory: Mutex<Option<Box<dyn Send>>>,
}

impl Object {
    /// Takes charge of an object that was just made.
    #[must_use]
    pub fn new(device: &Arc<Device>, id: Id) -> Self {
        Self::over(device, id, Vec::new())
    }

    /// Takes charge of an object that stands on others.
    #[must_use]
    pub fn over(device: &Arc<Device>, id: Id, over: Vec<Self>) -> Self {
        Self::pinning(device, id, over, 0)
    }

    /// Takes charge of an object for which memory was pinned, already counted.
    #[must_use]
    pub fn pinning(device: &Arc<Device>, id: Id, over: Vec<Self>, pinned: u64) -> Self {
        let device = Arc::clone(device);
        let (destroyed, memory) = (AtomicBool::new(false), Mutex::default());
        Self(Arc::new(Inner { device, id, pinned, destroyed, over, memory }))
    }

    /// The same, which keeps memory that those it stands on lie in: what the device may reach until they are destroyed.
    pub fn keeping(self, memory: impl Send + 'static) -> Self {
        *self.0.memory.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(memory));
        self
    }

    /// A handle that keeps nothing alive.
    pub(crate) fn downgrade(&self) -> WeakObject {
        WeakObject(Arc::downgrade(&self.0))
    }

    /// How the kernel knows it.
    #[must_use]
    pub fn id(&self) -> Id {
        self.0.id
    }

    /// Destroys it now, whoever else has a handle. `false` says that the device may have kept it: the kernel refused, or is
    /// gone and takes its objects with its file.
    pub fn destroy_now(&self) -> bool {
        if self.0.destroyed.swap(true, Ordering::AcqRel) {
            return true;
        }
        if self.0.device.is_gone() {
            return false;
        }
        match self.0.destroy() {
            Ok(()) => {
                self.0.device.unpinned(Pinning::Queue, self.0.pinned);
                true
            }
            Err(error) => {
                if !self.0.device.noticed(&error) {
                    tracing::warn!(target: "pmd.common.mlx5", "{}: {:?}: {error}", self.0.device.name(), self.0.id);
                }
                false
            }
        }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.0.device
    }
}

impl Inner {
    fn destroy(&self) -> Result<(), UverbsError> {
        let context = self.device.context();
        let call = |object, method, name, attribute, handle| {
            let mut call = Call::named(object, method, name);
            call.object(attribute, handle);
            context.call(&mut call)
        };
        match self.id {
            Id::Cq(cq) => context.destroy_cq(cq).map(drop),
            Id::Qp(qp) => context.destroy_qp(qp).map(drop),
            Id::Srq(srq) => context.destroy_srq(srq).map(drop),
            Id::Wq(wq) => context.destroy_wq(wq).map(drop),
            Id::Table(table) => context.destroy_rwq_ind_table(table),
            Id::Flow(flow) => context.destroy_flow(flow),
            Id::Counters(counters) => context.destroy_counters(counters),
            Id::Uar(handle) => {
                call(object::UAR, method::uar::DESTROY, "UAR/DESTROY", attribute::uar_destroy::HANDLE, handle)
            }
            Id::Devx(handle) => call(
                object::DEVX_OBJ,
                method::devx_obj::DESTROY,
                "DEVX_OBJ/DESTROY",
                attribute::devx_obj_destroy::HANDLE,
                handle,
            ),
            Id::Umem(handle) => call(
                object::DEVX_UMEM,
                method::devx_umem::DEREG,
                "DEVX_UMEM/DEREG",
                attribute::devx_umem_dereg::HANDLE,
                handle,
            ),
            Id::Matcher(handle) => call(
                object::FLOW_MATCHER,
                method::flow_matcher::DESTROY,
                "FLOW_MATCHER/DESTROY",
                attribute::flow_matcher_destroy::HANDLE,
                handle,
            ),
            Id::Mlx5Flow(handle) => call(
                pollux_uverbs::abi::id::flow::OBJECT,
                method::flow::DESTROY_FLOW,
                "FLOW/DESTROY_FLOW",
                attribute::destroy_flow::HANDLE,
                handle,
            ),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.destroyed.load(Ordering::Relaxed) {
            return;
        }
        if self.device.is_gone() {
            // A device that is gone destroys its objects with its file.
            self.leave_memory();
            return;
        }
        match self.destroy() {
            Ok(()) => self.device.unpinned(Pinning::Queue, self.pinned),
            Err(error) => {
                if !self.device.noticed(&error) {
                    tracing::warn!(target: "pmd.common.mlx5", "{}: {:?}: {error}", self.device.name(), self.id);
                }
                self.leave_memory();
            }
        }
    }
}

impl Inner {
    /// What may not be destroyed keeps its memory until the file is closed.
    fn leave_memory(&mut self) {
        if let Some(memory) = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.device.keep(memory);
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object").field("id", &self.0.id).field("over", &self.0.over).finish()
    }
}

/// An object and the number by which the device knows it.
#[derive(Clone, Debug)]
pub struct NumberedObject {
    /// The object.
    pub object: Object,
    /// Its number.
    pub number: u32,
}

/// For errors about an operation that never reached the kernel.
pub fn other(name: &'static str) -> Operation {
    Operation::Other(name)
}
