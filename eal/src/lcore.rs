//! Lcores: pinned threads that run an application's loops.
//!
//! Every lcore of an [`Eal`](crate::Eal) has one thread, `lcore-N`, made and pinned at `Eal::init` and sleeping until
//! something is launched on it. This holds for the *main* lcore too: the thread that calls `Eal::init` is no lcore.
//! It is the control context, kept off the lcores' CPUs where there are others, and free to wait, report and shut
//! down while all lcores, main included, forward. An application that wants DPDK's `SKIP_MAIN` leaves the main lcore
//! out ([`Main::Skip`]).
//!
//! ```text
//!   control thread                     lcore-1
//!   eal.launch(1, f) ── job ─────────► f(&LcoreContext)   polls ctx.stop_requested()
//!        Launched<R> ◄─── R or panic ──┘                  a panic sets the stop flag
//! ```

mod cpuset;
mod foreign;
mod id;
mod launch;
mod plan;
pub(crate) mod slice;
mod worker;

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;

use crate::clock::{Clock, Cycles, PendingClock};
use crate::panic::Reporter;
use crate::slot::SlotLease;
use crate::timer::{Seat, TimerMaker, WheelStats};
use crate::topology::Topology;
use crate::{EalError, SocketId, StopFlag};

pub use cpuset::CpuSet;
pub use foreign::{ChangeCallback, RegisteredThread};
pub use id::{LcoreId, LcoreRole, current};
pub use launch::{Launched, Main, Scope};
pub(crate) use plan::{Plan, names};
pub(crate) use worker::Worker;

/// What an lcore is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LcoreState {
    /// Idle.
    Wait,
    /// Something that was launched on it; or, a registered thread, whatever its owner made it for.
    Running,
    /// The launched function has returned, and its result was not collected yet.
    Finished,
}

/// Cycles spent by an lcore, as reported by its loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Busy cycles.
    pub busy: u64,
    /// All cycles.
    pub total: u64,
}

#[derive(Debug, Default)]
struct UsageCounters {
    busy: AtomicU64,
    total: AtomicU64,
}

/// Information about an lcore.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LcoreInfo {
    /// Lcore ID.
    pub id: LcoreId,
    /// The role of the lcore.
    pub role: LcoreRole,
    /// CPU affinity.
    pub cpus: CpuSet,
    /// The NUMA node of its first CPU.
    pub socket: SocketId,
    /// What it is doing.
    pub state: LcoreState,
    /// Cycles reported by its loop.
    pub usage: Usage,
}

/// One lcore, whoever made its thread.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: LcoreId,
    pub(crate) role: LcoreRole,
    pub(crate) cpus: CpuSet,
    pub(crate) socket: SocketId,
    timers: Seat,
    // Alone on its line: the lcore writes it each round.
    usage: CachePadded<UsageCounters>,
}

impl Member {
    pub(crate) fn new(
        id: LcoreId,
        role: LcoreRole,
        cpus: CpuSet,
        topology: &Topology,
        clock: &PendingClock,
    ) -> Self {
        let first = cpus.as_slice().first();
        let socket = first.and_then(|&cpu| topology.socket_of(cpu)).unwrap_or_default();
        let timers = Seat::new(clock.clone());
        Self { id, role, cpus, socket, timers, usage: CachePadded::default() }
    }

    fn usage(&self) -> Usage {
        // Busy first: it is written last, so that it never exceeds the total that is read after it.
        let busy = self.usage.busy.load(Ordering::Acquire);
        Usage { busy, total: self.usage.total.load(Ordering::Relaxed) }
    }

    fn info(&self, state: LcoreState) -> LcoreInfo {
        LcoreInfo {
            id: self.id,
            role: self.role,
            cpus: self.cpus.clone(),
            socket: self.socket,
            state,
            usage: self.usage(),
        }
    }
}

/// A cache slot for the calling thread, which is lcore `id`.
fn lease_slot(id: LcoreId) -> Option<SlotLease> {
    let slot = crate::slot::lease();
    if crate::slot::current().is_none() {
        tracing::warn!(
            target: "lib.eal",
            "lcore {id}: all {} cache slots are taken, its pools work uncached; end threads that hold one",
            crate::slot::SLOTS
        );
    }
    slot
}

/// What a function that runs on an lcore is given. It belongs to that thread and cannot leave it:
///
/// ```compile_fail,E0277
/// fn leak(lcore: &pollux_eal::LcoreContext) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| lcore.busy(1)); // a second writer of its counters
///     });
/// }
/// ```
#[derive(Debug)]
pub struct LcoreContext {
    member: Arc<Member>,
    stop: StopFlag,
    slot: Option<usize>,
    /// No timer that the lcore knows of comes due before.
    timers_next: Cell<u64>,
    // Not `Sync`: the counters have one writer.
    _on_this_thread: PhantomData<*const ()>,
}

impl LcoreContext {
    pub(crate) fn new(member: Arc<Member>, stop: StopFlag) -> Self {
        let slot = crate::slot::current();
        Self { member, stop, slot, timers_next: Cell::new(u64::MAX), _on_this_thread: PhantomData }
    }

    /// Returns the lcore ID.
    #[must_use]
    pub fn id(&self) -> LcoreId {
        self.member.id
    }

    /// Returns the role of the lcore.
    #[must_use]
    pub fn role(&self) -> LcoreRole {
        self.member.role
    }

    /// The NUMA node of its first CPU.
    #[must_use]
    pub fn socket(&self) -> SocketId {
        self.member.socket
    }

    /// Returns the CPU affinity of the lcore.
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.member.cpus
    }

    /// The cache slot that its thread holds; `None` when all were taken.
    #[must_use]
    pub fn slot(&self) -> Option<usize> {
        self.slot
    }

    /// Returns whether the loop should end. Hot: one relaxed load.
    #[inline(always)]
    #[must_use]
    pub fn stop_requested(&self) -> bool {
        self.stop.is_set()
    }

    /// Returns the flag behind [`stop_requested`](Self::stop_requested).
    #[must_use]
    pub fn stop_flag(&self) -> &StopFlag {
        &self.stop
    }

    /// Adds busy cycles. Hot: loads and stores of this thread's own cache line.
    #[inline(always)]
    pub fn busy(&self, cycles: u64) {
        self.idle(cycles);
        let busy = &self.member.usage.busy;
        // Release pairs with the Acquire in `Member::usage`.
        busy.store(busy.load(Ordering::Relaxed).wrapping_add(cycles), Ordering::Release);
    }

    /// Adds idle cycles, spent polling without result.
    #[inline(always)]
    pub fn idle(&self, cycles: u64) {
        let total = &self.member.usage.total;
        total.store(total.load(Ordering::Relaxed).wrapping_add(cycles), Ordering::Relaxed);
    }

    /// Returns the cycles reported so far.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.member.usage()
    }
}

/// Timers of this lcore; what is promised stands in [`timer`](crate::timer).
impl LcoreContext {
    /// The clock of its `Eal`, as [`Eal::clock`](crate::Eal::clock).
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.member.timers.clock()
    }

    /// Returns a maker of timers that run on this lcore, in cycles of this clock.
    #[must_use]
    pub fn timers(&self) -> TimerMaker {
        self.member.timers.maker()
    }

    /// Calls the callbacks of this lcore's timers that are due at `now`, a reading of the clock; tells how many: none when it
    /// is called by such a callback. Hot: two loads and two comparisons when nothing is due.
    #[inline(always)]
    pub fn manage_timers(&self, now: impl Into<Cycles>) -> usize {
        let now = now.into().0;
        if now < self.timers_next.get() && !self.member.timers.is_posted() {
            0
        } else {
            self.call_timers(now)
        }
    }

    /// Like [`manage_timers`](Self::manage_timers), at the current time. Reads the clock only if a timer is armed.
    #[inline(always)]
    #[doc(alias = "rte_timer_manage")]
    pub fn run_timers(&self) -> usize {
        if self.timers_next.get() == u64::MAX && !self.member.timers.is_posted() {
            return 0;
        }
        self.manage_timers(self.clock().now())
    }

    #[cold]
    fn call_timers(&self, now: u64) -> usize {
        // If a callback panics, the next call comes in here again.
        self.timers_next.set(0);
        let Some((called, next)) = self.member.timers.manage(now) else { return 0 };
        self.timers_next.set(next);
        called
    }

    /// A time before which no timer of this lcore that it knows of comes due: how long it may sleep. `None`: none is armed. One that
    /// another thread arms meanwhile the lcore learns of when it manages its timers the next time.
    #[must_use]
    pub fn next_timer(&self) -> Option<Cycles> {
        let next = if self.member.timers.is_posted() { 0 } else { self.timers_next.get() };
        (next != u64::MAX).then_some(Cycles(next))
    }

    /// Counts of this lcore's timers. In a timer's callback: as they were before those that are called with it.
    #[must_use]
    pub fn timer_stats(&self) -> WheelStats {
        self.member.timers.stats()
    }
}

impl Drop for LcoreContext {
    fn drop(&mut self) {
        self.member.timers.end();
    }
}

/// What the lcores of one `Eal` share.
#[derive(Debug)]
pub(crate) struct Crew {
    pub(crate) main: LcoreId,
    pub(crate) workers: Vec<Arc<Worker>>,
    pub(crate) reporter: Reporter,
    topology: Topology,
    clock: PendingClock,
    registry: Mutex<foreign::Registry>,
    changing: Mutex<()>,
}

/// All lcores of one `Eal`. Clones are the same lcores.
#[derive(Clone, Debug)]
pub struct Lcores(pub(crate) Arc<Crew>);

impl Lcores {
    /// Makes and pins all threads, and waits until each is where it belongs.
    pub(crate) fn start(
        plan: Plan,
        topology: &Topology,
        clock: &PendingClock,
        reporter: Reporter,
        logs: &tracing::Dispatch,
    ) -> Result<Self, EalError> {
        let main = plan.main;
        let member = |lcore: plan::Planned| Member::new(lcore.id, lcore.role, lcore.cpus, topology, clock);
        let workers = worker::start_all(plan.lcores.into_iter().map(member), &reporter, logs)?;
        let (topology, clock) = (topology.clone(), clock.clone());
        Ok(Self(Arc::new(Crew {
            main,
            workers,
            reporter,
            topology,
            clock,
            registry: Mutex::default(),
            changing: Mutex::default(),
        })))
    }

    /// Lets all threads end once they have nothing to run, and waits for that.
    pub(crate) fn join(&self) {
        self.0.workers.iter().for_each(|worker| worker.quit());
        self.0.workers.iter().for_each(|worker| worker.join());
    }

    /// Returns the main lcore.
    #[must_use]
    #[doc(alias = "rte_get_main_lcore")]
    pub fn main(&self) -> LcoreId {
        self.0.main
    }

    /// Returns the number of lcores of all roles.
    #[must_use]
    #[doc(alias = "rte_lcore_count")]
    pub fn count(&self) -> usize {
        self.0.workers.len() + self.registry().threads.len()
    }

    /// Returns all lcores in ascending order, with registered threads last.
    #[must_use]
    pub fn all(&self) -> Vec<LcoreInfo> {
        let made = self.0.workers.iter().map(|worker| worker.member.info(worker.state()));
        let registered = self.registry().threads.clone();
        made.chain(registered.iter().map(|member| member.info(LcoreState::Running))).collect()
    }

    /// Returns the lcores of one role in ascending order.
    #[must_use]
    pub fn with_role(&self, role: LcoreRole) -> Vec<LcoreId> {
        self.all().into_iter().filter(|lcore| lcore.role == role).map(|lcore| lcore.id).collect()
    }

    /// Returns the dataplane lcores, main lcore included, in ascending order.
    #[must_use]
    #[doc(alias = "RTE_LCORE_FOREACH")]
    pub fn dataplane(&self) -> Vec<LcoreId> {
        self.with_role(LcoreRole::Dataplane)
    }

    /// Returns information about one lcore.
    #[must_use]
    pub fn get(&self, id: LcoreId) -> Option<LcoreInfo> {
        self.all().into_iter().find(|lcore| lcore.id == id)
    }

    /// Returns the cycles reported by the loop of an lcore.
    #[must_use]
    pub fn usage(&self, id: LcoreId) -> Option<Usage> {
        self.get(id).map(|lcore| lcore.usage)
    }

    /// Makes timers that run on that lcore, a dataplane lcore or a registered thread, in cycles of
    /// [`Eal::clock`](crate::Eal::clock). They run when the lcore's loop manages them; see [`timer`](crate::timer). After the
    /// end of the `Eal`, the maker refuses.
    ///
    /// # Errors
    /// [`EalError::UnknownLcore`]; [`EalError::WrongRole`] for a service core, whose loop runs services only.
    pub fn timers(&self, lcore: LcoreId) -> Result<TimerMaker, EalError> {
        let registered = self.registry().threads.iter().find(|member| member.id == lcore).cloned();
        let member = match registered {
            Some(member) => member,
            None => Arc::clone(&self.worker(lcore)?.member),
        };
        match member.role {
            role @ LcoreRole::Service => Err(EalError::WrongRole { lcore, role, action: "have timers" }),
            _ => Ok(member.timers.maker()),
        }
    }

    pub(crate) fn worker(&self, lcore: LcoreId) -> Result<&Arc<Worker>, EalError> {
        let unknown =
            || EalError::UnknownLcore { lcore, lcores: names(self.0.workers.iter().map(|w| w.member.id)) };
        self.0.workers.iter().find(|worker| worker.member.id == lcore).ok_or_else(unknown)
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, foreign::Registry> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
