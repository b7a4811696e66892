//! Threads that the EAL did not make, and who wants to hear of threads that come and go.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::id::CURRENT;
use super::{CpuSet, LcoreContext, LcoreId, LcoreInfo, LcoreRole, LcoreState, Lcores, Member};
use crate::EalError;
use crate::slot::SlotLease;

/// Called with each lcore that comes and goes, one call at a time. It may ask about lcores, but a call that registers a
/// thread or a callback would wait for itself.
pub trait ChangeCallback: Send + Sync {
    /// An lcore is there: once for each that exists at registration, then on each thread that registers itself.
    ///
    /// # Errors
    /// A sentence, when the lcore cannot be accepted; the registration under way then fails.
    fn added(&self, lcore: &LcoreInfo) -> Result<(), String>;

    /// An lcore that was accepted goes.
    fn removed(&self, lcore: &LcoreInfo);
}

#[derive(Default)]
pub(super) struct Registry {
    pub(super) threads: Vec<Arc<Member>>,
    callbacks: Vec<Arc<dyn ChangeCallback>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Lcores {
    /// Makes the calling thread an lcore for as long as the value lives, and at most until the thread ends: it gets the lowest
    /// free number and a cache [slot](crate::slot). When all slots are taken it has none, which is logged: its pools work
    /// uncached.
    ///
    /// # Errors
    /// [`EalError::AlreadyLcore`]; [`EalError::TooManyLcores`]; [`EalError::Refused`] when a callback does not accept it;
    /// [`EalError::ShutDown`] from a thread that ends.
    #[doc(alias = "rte_thread_register")]
    pub fn register_this_thread(&self) -> Result<RegisteredThread, EalError> {
        if let Some(lcore) = super::current() {
            return Err(EalError::AlreadyLcore { lcore });
        }
        // A thread at its very end has no place for it any more.
        if REGISTERED.try_with(|_| ()).is_err() {
            return Err(EalError::ShutDown { subject: "the registration of a thread that ends" });
        }
        let cpus = CpuSet::of_this_thread().map_err(|source| EalError::Affinity { source })?;
        let _one_change_at_a_time = self.changing();
        let mut registry = self.registry();
        let taken = |id: LcoreId| {
            let members = self.0.workers.iter().map(|worker| &worker.member).chain(&registry.threads);
            members.map(|member| member.id).any(|member| member == id)
        };
        let free = (0..pollux_config::LCORE_MAX).map(LcoreId).find(|&id| !taken(id));
        let id = free.ok_or(EalError::TooManyLcores { limit: pollux_config::LCORE_MAX })?;
        let member = Arc::new(Member::new(id, LcoreRole::NonEal, cpus, &self.0.topology, &self.0.clock));
        // The number is taken before the callbacks run, and they run unlocked: they may ask about lcores.
        registry.threads.push(Arc::clone(&member));
        let callbacks = registry.callbacks.clone();
        drop(registry);
        let tentative = Tentative { lcores: self, member: &member };
        let info = member.info(LcoreState::Running);
        added_to_all(&callbacks, &info).map_err(|reason| EalError::Refused { lcore: id, reason })?;
        std::mem::forget(tentative);
        let slot = super::lease_slot(id);
        CURRENT.set(Some(id));
        let context = LcoreContext::new(Arc::clone(&member), self.0.reporter.stop.clone());
        REGISTERED.set(Some(Registration { lcores: self.clone(), member }));
        Ok(RegisteredThread { context, _slot: slot })
    }

    /// Has `callback` told of every lcore there is and of all that come and go.
    ///
    /// # Errors
    /// [`EalError::Refused`] when it does not accept one that exists; it is told `removed` for the ones it accepted.
    pub fn on_change(&self, callback: Arc<dyn ChangeCallback>) -> Result<(), EalError> {
        let _one_change_at_a_time = self.changing();
        let mut accepted = Vec::new();
        for lcore in self.all() {
            if let Err(reason) = callback.added(&lcore) {
                accepted.iter().rev().for_each(|lcore| callback.removed(lcore));
                return Err(EalError::Refused { lcore: lcore.id, reason });
            }
            accepted.push(lcore);
        }
        self.registry().callbacks.push(callback);
        Ok(())
    }

    /// Held while callbacks are told, so that none misses a thread that comes or goes meanwhile.
    fn changing(&self) -> MutexGuard<'_, ()> {
        self.0.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, member: &Arc<Member>) {
        self.registry().threads.retain(|other| !Arc::ptr_eq(other, member));
    }

    fn leave(&self, member: &Arc<Member>) {
        let _one_change_at_a_time = self.changing();
        let callbacks = self.registry().callbacks.clone();
        let info = member.info(LcoreState::Finished);
        self.tell_removed(&callbacks, &info);
        self.forget(member);
    }

    /// All are told, whatever one of them does.
    fn tell_removed(&self, callbacks: &[Arc<dyn ChangeCallback>], lcore: &LcoreInfo) {
        for callback in callbacks.iter().rev() {
            let _reported = self.0.reporter.guard(|| callback.removed(lcore));
        }
    }

    /// Tells the callbacks that the lcores which the EAL made are gone.
    pub(crate) fn leave_all(&self) {
        let _one_change_at_a_time = self.changing();
        let callbacks = std::mem::take(&mut self.registry().callbacks);
        for worker in &self.0.workers {
            self.tell_removed(&callbacks, &worker.member.info(LcoreState::Finished));
        }
    }
}

/// All accept, or those that did are told that it is gone.
fn added_to_all(callbacks: &[Arc<dyn ChangeCallback>], lcore: &LcoreInfo) -> Result<(), String> {
    for (index, callback) in callbacks.iter().enumerate() {
        if let Err(reason) = callback.added(lcore) {
            callbacks[..index].iter().rev().for_each(|callback| callback.removed(lcore));
            return Err(reason);
        }
    }
    Ok(())
}

/// A number that is given back, unless this is forgotten.
struct Tentative<'a> {
    lcores: &'a Lcores,
    member: &'a Arc<Member>,
}

impl Drop for Tentative<'_> {
    fn drop(&mut self) {
        self.lcores.forget(self.member);
    }
}

/// Makes the thread an lcore until this is dropped.
struct Registration {
    lcores: Lcores,
    member: Arc<Member>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _reported = self.lcores.0.reporter.guard(|| self.member.timers.end());
        self.lcores.leave(&self.member);
        CURRENT.set(None);
    }
}

thread_local! {
    /// What the calling thread registered itself as. Here and not in its [`RegisteredThread`], which may be forgotten.
    static REGISTERED: RefCell<Option<Registration>> = const { RefCell::new(None) };
}

/// A thread that registered itself; it is an lcore until this is dropped, or the thread ends. It cannot leave its thread.
#[derive(Debug)]
pub struct RegisteredThread {
    context: LcoreContext,
    _slot: Option<SlotLease>,
}

impl RegisteredThread {
    /// What a launched function would be given.
    #[must_use]
    pub fn context(&self) -> &LcoreContext {
        &self.context
    }
}

impl Drop for RegisteredThread {
    fn drop(&mut self) {
        // If the place is gone, so is what was there.
        let registration = REGISTERED.try_with(RefCell::take).unwrap_or_default();
        drop(registration);
    }
}
