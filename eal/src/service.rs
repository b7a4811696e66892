//! Service cores: lcores (`-S`) that run small tasks, each a function that is called over and over.
//!
//! A service is called on every running service core it is mapped to, from [`Services::start`] to [`Services::stop`]. One
//! registered with [`Services::register`] is called on one core at a time; one registered with
//! [`Services::register_shared`] on all of them at once. A core with nothing to run sleeps.
//!
//! ```text
//!   register ─► map to cores ─► start ─► called on each core that was started
//!                                          Work::Done / Work::Idle ─► stats
//! ```

mod call;
mod core;
mod wait;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_utils::CachePadded;

use self::call::{Callback, Service};
use self::core::Core;
use crate::EalError;
use crate::lcore::{LcoreId, LcoreRole, Lcores};
use crate::panic::Reporter;

/// Service ID; never reused within one `Eal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceId(u32);

/// Result of one call of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// The call did work.
    Done,
    /// There was nothing to do.
    Idle,
}

/// Statistics of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceStats {
    /// Number of calls.
    pub calls: u64,
    /// Number of calls without work.
    pub idle_calls: u64,
    /// Cycles spent in calls with work.
    pub cycles: u64,
}

/// Information about a service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceInfo {
    /// Its number.
    pub id: ServiceId,
    /// Its name.
    pub name: String,
    /// Whether it is started.
    pub running: bool,
    /// The cores it is mapped to.
    pub lcores: Vec<LcoreId>,
    /// Statistics.
    pub stats: ServiceStats,
}

struct State {
    services: BTreeMap<u32, Arc<Service>>,
    cores: Vec<Core>,
    number: u32,
    down: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Grows with every change that a core must look at.
    generation: CachePadded<AtomicU64>,
    changed: Condvar,
    reporter: Reporter,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called with the state locked, after the change.
    fn notify(&self) {
        self.generation.fetch_add(1, Ordering::Release);
        self.changed.notify_all();
    }
}

/// The services of one `Eal`. Clones are the same services.
#[derive(Clone)]
pub struct Services(Arc<Shared>);

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

impl Services {
    pub(crate) fn new(lcores: &Lcores, reporter: Reporter) -> Self {
        let service_cores = lcores.0.workers.iter().filter(|worker| worker.member.role == LcoreRole::Service);
        let cores = service_cores.map(|worker| Core::new(Arc::clone(worker))).collect();
        let state = State { services: BTreeMap::new(), cores, number: 0, down: false };
        Self(Arc::new(Shared {
            state: Mutex::new(state),
            generation: CachePadded::default(),
            changed: Condvar::new(),
            reporter,
        }))
    }

    /// Returns the service cores.
    #[must_use]
    pub fn lcores(&self) -> Vec<LcoreId> {
        self.0.state().cores.iter().map(Core::lcore).collect()
    }

    /// Adds a service that is called on one core at a time. It is stopped and not mapped. A panic in it stops it and the
    /// `Eal`, as that of an lcore does.
    ///
    /// # Errors
    /// [`EalError::ShutDown`].
    #[doc(alias = "rte_service_component_register")]
    pub fn register(
        &self,
        name: &str,
        callback: impl FnMut() -> Work + Send + 'static,
    ) -> Result<ServiceId, EalError> {
        self.add(name, Callback::Exclusive(Mutex::new(Box::new(callback))))
    }

    /// Adds a service that may be called on several cores at once.
    ///
    /// # Errors
    /// [`EalError::ShutDown`].
    pub fn register_shared(
        &self,
        name: &str,
        callback: impl Fn() -> Work + Send + Sync + 'static,
    ) -> Result<ServiceId, EalError> {
        self.add(name, Callback::Shared(Box::new(callback)))
    }

    fn add(&self, name: &str, callback: Callback) -> Result<ServiceId, EalError> {
        let mut state = self.0.state();
        if state.down {
            return Err(EalError::ShutDown { subject: "a service" });
        }
        state.number += 1;
        let id = state.number;
        state.services.insert(id, Arc::new(Service::new(id, name.into(), callback)));
        Ok(ServiceId(id))
    }

    /// Stops a service and takes it away; as for the calls under way, see [`stop`](Self::stop).
    ///
    /// # Errors
    /// [`EalError::UnknownService`].
    pub fn unregister(&self, id: ServiceId) -> Result<(), EalError> {
        self.stop(id)?;
        let mut state = self.0.state();
        let service = state.services.remove(&id.0);
        state.cores.iter_mut().for_each(|core| core.unmap(id.0));
        self.0.notify();
        drop(state);
        drop(service);
        Ok(())
    }

    /// Maps a service to a service core, or unmaps it.
    ///
    /// # Errors
    /// [`EalError::UnknownService`], [`EalError::NoServiceCore`].
    #[doc(alias = "rte_service_map_lcore_set")]
    pub fn map(&self, id: ServiceId, lcore: LcoreId, mapped: bool) -> Result<(), EalError> {
        self.get(id)?;
        let mut state = self.0.state();
        let core = core_of(&mut state.cores, lcore)?;
        if mapped {
            core.map(id.0)
        } else {
            core.unmap(id.0)
        }
        self.0.notify();
        Ok(())
    }

    /// Starts a service.
    ///
    /// # Errors
    /// [`EalError::UnknownService`].
    pub fn start(&self, id: ServiceId) -> Result<(), EalError> {
        self.get(id)?.start();
        let _state = self.0.state();
        self.0.notify();
        Ok(())
    }

    /// Ends that, and sleeps until it is not being called, with three exceptions: the caller is in a call of it; such a call
    /// waits, through a stop of its own, for a service or a core that the caller is in, so that the two would wait for each
    /// other; or it was started again meanwhile.
    ///
    /// # Errors
    /// [`EalError::UnknownService`].
    pub fn stop(&self, id: ServiceId) -> Result<(), EalError> {
        self.get(id)?.stop();
        Ok(())
    }

    /// Starts a service core.
    ///
    /// # Errors
    /// [`EalError::NoServiceCore`], [`EalError::ShutDown`].
    #[doc(alias = "rte_service_lcore_start")]
    pub fn start_lcore(&self, lcore: LcoreId) -> Result<(), EalError> {
        let mut state = self.0.state();
        if state.down {
            return Err(EalError::ShutDown { subject: "a service core" });
        }
        core_of(&mut state.cores, lcore)?.start(self)
    }

    /// Ends that, and waits for it, unless the caller is that core, or that core waits for the caller, as in
    /// [`stop`](Self::stop).
    ///
    /// # Errors
    /// [`EalError::NoServiceCore`].
    pub fn stop_lcore(&self, lcore: LcoreId) -> Result<(), EalError> {
        let mut state = self.0.state();
        let stopping = core_of(&mut state.cores, lcore)?.stop();
        self.0.notify();
        drop(state);
        stopping.wait();
        Ok(())
    }

    /// Maps each service that is on no core to the next one in turn, and starts all services and cores.
    ///
    /// # Errors
    /// [`EalError::NoServiceCore`] when there are services and no cores; [`EalError::ShutDown`].
    pub fn start_all(&self) -> Result<(), EalError> {
        let mut state = self.0.state();
        let State { services, cores, .. } = &mut *state;
        let homeless: Vec<u32> =
            services.keys().copied().filter(|id| !cores.iter().any(|core| core.has(*id))).collect();
        if cores.is_empty() && !homeless.is_empty() {
            return Err(EalError::NoServiceCore {
                asked: "a service".into(),
                cores: "none, name some with -S".into(),
            });
        }
        let count = cores.len().max(1);
        homeless.into_iter().enumerate().for_each(|(turn, id)| cores[turn % count].map(id));
        services.values().for_each(|service| service.start());
        let lcores: Vec<LcoreId> = cores.iter().map(Core::lcore).collect();
        self.0.notify();
        drop(state);
        lcores.into_iter().try_for_each(|lcore| self.start_lcore(lcore))
    }

    /// Returns whether a service is started and mapped to a running core.
    ///
    /// # Errors
    /// [`EalError::UnknownService`].
    pub fn may_be_active(&self, id: ServiceId) -> Result<bool, EalError> {
        let running = self.get(id)?.is_running();
        Ok(running && self.0.state().cores.iter().any(|core| core.has(id.0) && core.is_running()))
    }

    /// Calls a service once on the calling thread, core or not, from within a service too. `None` when it is stopped, or
    /// exclusive and being called.
    ///
    /// # Errors
    /// [`EalError::UnknownService`].
    pub fn run_once(&self, id: ServiceId) -> Result<Option<Work>, EalError> {
        Ok(self.get(id)?.call_once(&self.0.reporter))
    }

    /// Returns the statistics of a service.
    ///
    /// # Errors
    /// [`EalError::UnknownService`].
    pub fn stats(&self, id: ServiceId) -> Result<ServiceStats, EalError> {
        Ok(self.get(id)?.stats())
    }

    /// Returns the number of loops of a service core.
    ///
    /// # Errors
    /// [`EalError::NoServiceCore`].
    pub fn rounds(&self, lcore: LcoreId) -> Result<u64, EalError> {
        Ok(core_of(&mut self.0.state().cores, lcore)?.rounds())
    }

    /// Returns all services.
    #[must_use]
    pub fn list(&self) -> Vec<ServiceInfo> {
        let state = self.0.state();
        let info = |service: &Arc<Service>| ServiceInfo {
            id: ServiceId(service.id),
            name: service.name.clone(),
            running: service.is_running(),
            lcores: state.cores.iter().filter(|core| core.has(service.id)).map(Core::lcore).collect(),
            stats: service.stats(),
        };
        state.services.values().map(info).collect()
    }

    /// Stops all cores, then lets the services go.
    pub(crate) fn end(&self) {
        let mut state = self.0.state();
        state.down = true;
        let stopping: Vec<_> = state.cores.iter_mut().map(Core::stop).collect();
        let services = std::mem::take(&mut state.services);
        self.0.notify();
        drop(state);
        stopping.into_iter().for_each(core::Stopping::wait);
        services.into_values().for_each(|service| self.0.reporter.let_go(service));
    }

    fn get(&self, id: ServiceId) -> Result<Arc<Service>, EalError> {
        self.0.state().services.get(&id.0).cloned().ok_or(EalError::UnknownService { number: id.0 })
    }
}

fn core_of(cores: &mut [Core], lcore: LcoreId) -> Result<&mut Core, EalError> {
    let names = crate::lcore::names(cores.iter().map(Core::lcore));
    let known = if names.is_empty() { "none, name some with -S".into() } else { names };
    let missing = || EalError::NoServiceCore { asked: format!("lcore {lcore}"), cores: known };
    cores.iter_mut().find(|core| core.lcore() == lcore).ok_or_else(missing)
}
