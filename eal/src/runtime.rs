//! The [`Eal`] value: what is made at start, and the order in which it goes.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use pollux_config::{EalSpec, LogSpec};
use tracing::subscriber::DefaultGuard;

use crate::alarm::Alarms;
use crate::clock::{Clock, PendingClock};
use crate::control::{self, ControlThread, Controls, OffLcores};
use crate::interrupt::Interrupts;
use crate::iova;
use crate::lcore::{Launched, LcoreContext, LcoreId, LcoreState, Lcores, Main, Plan, Scope};
use crate::log::Logs;
use crate::memory::{Memory, MemoryOptions};
use crate::panic::Reporter;
use crate::prefix_socket;
use crate::service::Services;
use crate::signal::Subscription;
use crate::stop::StopReason;
use crate::telemetry::{self, Telemetry};
use crate::timer::TimerMaker;
use crate::{EalError, Panicked, StopFlag};

type ExitHandler = (String, Box<dyn FnOnce() + Send>);

/// An environment: lcores, memory, clock, timers, logs. It is a value; several can exist in one process and share nothing.
pub struct Eal {
    spec: EalSpec,
    reporter: Reporter,
    lcores: Lcores,
    controls: Controls,
    services: Services,
    alarms: Alarms,
    interrupts: Interrupts,
    telemetry: Telemetry,
    exit_handlers: Mutex<Vec<ExitHandler>>,
    signals: Mutex<Option<Subscription>>,
    off_lcores: Option<OffLcores>,
    logs: Logs,
    clock: PendingClock,
    memory: Memory,
}

impl fmt::Debug for Eal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eal")
            .field("lcores", &self.lcores)
            .field("stop", &self.reporter.stop)
            .finish_non_exhaustive()
    }
}

/// Result of shutting down an `Eal`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exit {
    /// Why it was stopped; `None` after a plain shutdown. A panic takes precedence over other reasons.
    pub reason: Option<StopReason>,
    /// The panics, in order.
    pub panics: Vec<Panicked>,
}

impl Exit {
    /// Returns the exit status for the process: 0, or 1 after a panic. A signal is a normal exit.
    #[must_use]
    pub fn code(&self) -> u8 {
        u8::from(!self.panics.is_empty())
    }
}

impl Eal {
    /// Initializes the environment from `spec`. The calling thread becomes the control thread and is moved off the
    /// lcores' CPUs, if the process may use others.
    ///
    /// # Errors
    /// What cannot be had, in one line; nothing is left behind then.
    #[doc(alias = "rte_eal_init")]
    pub fn init(spec: EalSpec) -> Result<Self, EalError> {
        Self::init_with_logs(spec, Logs::new)
    }

    /// Like [`Eal::init`], with log output other than standard error; see [`Logs::to`].
    ///
    /// # Errors
    /// As [`Eal::init`].
    pub fn init_with_logs(
        spec: EalSpec,
        logs: impl FnOnce(&LogSpec) -> Result<Logs, EalError>,
    ) -> Result<Self, EalError> {
        let logs = logs(&spec.log)?;
        let guard = logs.enter();
        let allowed = control::process_affinity()?;
        let plan = Plan::new(&spec, &allowed)?;
        let reporter = Reporter::new(StopFlag::new()?);
        iova::require_virtual(spec.iova)?;
        // Where the counter has to be measured, that goes on while all else is set up; `clock` finishes it.
        let clock = PendingClock::begin();
        let memory = Memory::new(MemoryOptions {
            spec: spec.memory.clone(),
            file_prefix: spec.process.file_prefix.clone(),
            ..MemoryOptions::default()
        })?;
        let controls = Controls::new(plan.control.clone(), logs.dispatch().clone(), reporter.clone());
        let interrupts = Interrupts::new(controls.clone())?;
        let lcore_ids = crate::lcore::names(plan.lcores.iter().map(|lcore| lcore.id));
        tracing::debug!(
            target: "lib.eal",
            "lcores {lcore_ids}, main {}, other threads on CPUs {}",
            plan.main,
            plan.control
        );
        let off_lcores = OffLcores::this_thread(&plan.control, &allowed)?;
        let lcores = Lcores::start(plan, memory.topology(), &clock, reporter.clone(), logs.dispatch())?;
        let telemetry = Telemetry::new(controls.clone());
        telemetry::register_views(&telemetry, &lcores, &memory)?;
        let eal = Self {
            services: Services::new(&lcores, reporter.clone()),
            alarms: Alarms::new(controls.clone()),
            interrupts,
            telemetry,
            reporter,
            lcores,
            controls,
            exit_handlers: Mutex::default(),
            signals: Mutex::default(),
            off_lcores: Some(off_lcores),
            logs,
            clock,
            memory,
            spec,
        };
        if eal.spec.telemetry == Some(true) {
            eal.serve_telemetry();
        }
        drop(guard);
        Ok(eal)
    }

    /// A program that cannot be asked runs all the same, and says why in one line.
    fn serve_telemetry(&self) {
        let directory = prefix_socket::directory(&self.spec.process.file_prefix);
        if let Err(error) = self.telemetry.serve(&directory) {
            let cause =
                std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            tracing::warn!(target: "lib.telemetry", "no telemetry: {error}{cause} (--no-telemetry does without)");
        }
    }

    /// Returns the specification it was initialized from.
    #[must_use]
    pub fn spec(&self) -> &EalSpec {
        &self.spec
    }

    /// Returns the memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The clock. Where its frequency has to be measured, the first call waits until 3 ms have passed since
    /// [`Eal::init`]; all calls give the same clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock.get()
    }

    /// Returns a maker of timers that run on an lcore, usable on any thread. See [`Lcores::timers`].
    ///
    /// # Errors
    /// As [`Lcores::timers`].
    pub fn timers(&self, lcore: LcoreId) -> Result<TimerMaker, EalError> {
        self.lcores.timers(lcore)
    }

    /// Returns the alarms, whose callbacks run on the thread `control-alarm`.
    #[must_use]
    pub fn alarms(&self) -> &Alarms {
        &self.alarms
    }

    /// Returns the interrupts, whose callbacks run on the thread `control-intr`.
    #[must_use]
    pub fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// Returns the telemetry: commands by which scripts ask this `Eal`, on a socket if [`EalSpec::telemetry`] asks for one.
    #[must_use]
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Returns the services and the service cores that run them.
    #[must_use]
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Returns the logs.
    #[must_use]
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// The calling thread logs to this `Eal` until the guard is dropped. The `Eal`'s own threads do so anyway.
    #[must_use]
    pub fn enter_logs(&self) -> DefaultGuard {
        self.logs.enter()
    }

    /// Starts a thread `control-NAME` beside the lcores, on CPUs that they leave, if any. Linux keeps 15 bytes of the name.
    /// It must end when the stop flag, which it is given, is set: the `Eal` waits for it at its end.
    ///
    /// # Errors
    /// [`EalError::Thread`].
    #[doc(alias = "rte_thread_create_internal_control")]
    pub fn control_thread<F, R>(&self, name: &str, work: F) -> Result<ControlThread<R>, EalError>
    where
        F: FnOnce(&StopFlag) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.controls.spawn_counted(name, work)
    }

    /// From now on SIGINT, SIGTERM and, unless the parent had it ignored, SIGHUP set the stop flag, as the module documentation of [`signal`](crate::signal) says.
    ///
    /// # Errors
    /// [`EalError::Signal`].
    pub fn handle_signals(&self) -> Result<(), EalError> {
        let mut signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner);
        if signals.is_none() {
            *signals = Some(Subscription::new(&self.reporter.stop)?);
        }
        Ok(())
    }

    /// Takes [`handle_signals`](Self::handle_signals) back, for a program that passes signals on
    /// ([`PassedOn`](crate::signal::PassedOn)): they set the stop flag no more.
    pub fn leave_signals(&self) {
        *self.signals.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Has `handler` called at the end, when nothing runs on lcores any more and memory, alarms and interrupts are still
    /// there. Handlers are called in reverse order.
    pub fn at_exit(&self, name: &str, handler: impl FnOnce() + Send + 'static) {
        let mut handlers = self.exit_handlers.lock().unwrap_or_else(PoisonError::into_inner);
        handlers.push((name.into(), Box::new(handler)));
    }

    /// The flag that tells all threads to finish. It is set by code, by the panic of a thread, and by signals after
    /// [`Eal::handle_signals`].
    #[must_use]
    pub fn stop_flag(&self) -> StopFlag {
        self.reporter.stop.clone()
    }

    /// Returns the lcores.
    #[must_use]
    pub fn lcores(&self) -> &Lcores {
        &self.lcores
    }

    /// Runs `work` on an lcore. See [`Lcores::launch`].
    ///
    /// # Errors
    /// As [`Lcores::launch`].
    #[doc(alias = "rte_eal_remote_launch")]
    pub fn launch<F, R>(&self, lcore: LcoreId, work: F) -> Result<Launched<R>, EalError>
    where
        F: FnOnce(&LcoreContext) -> R + Send + 'static,
        R: Send + 'static,
    {
        self.lcores.launch(lcore, work)
    }

    /// Runs `work` on all dataplane lcores. See [`Lcores::launch_all`].
    ///
    /// # Errors
    /// As [`Lcores::launch_all`].
    #[doc(alias = "rte_eal_mp_remote_launch")]
    pub fn launch_all<F, R>(&self, main: Main, work: F) -> Result<Vec<Launched<R>>, EalError>
    where
        F: Fn(&LcoreContext) -> R + Send + Sync + 'static,
        R: Send + 'static,
    {
        self.lcores.launch_all(main, work)
    }

    /// Launches work that borrows from the caller. See [`Lcores::scope`].
    pub fn scope<'env, F, T>(&'env self, body: F) -> T
    where
        F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
    {
        self.lcores.scope(body)
    }

    /// Returns the state of an lcore.
    ///
    /// # Errors
    /// [`EalError::UnknownLcore`].
    pub fn state(&self, lcore: LcoreId) -> Result<LcoreState, EalError> {
        self.lcores.state(lcore)
    }

    /// Waits until an lcore is idle.
    ///
    /// # Errors
    /// As [`Lcores::wait`].
    pub fn wait(&self, lcore: LcoreId) -> Result<(), EalError> {
        self.lcores.wait(lcore)
    }

    /// Waits until all dataplane lcores are idle.
    #[doc(alias = "rte_eal_mp_wait_lcore")]
    pub fn wait_all(&self) {
        self.lcores.wait_all();
    }

    /// Stops everything and says how it ended. Dropping an `Eal` does the same, on any thread. On a thread of its own, as a
    /// callback that holds the last of several owners does it, that thread alone is not waited for: it ends when it returns.
    ///
    /// In order: the stop flag is set; lcores and control threads have returned; service cores stop; telemetry ends; exit handlers run, the
    /// last one first; alarms and interrupts end; all threads are joined, and with each lcore its timers go, uncalled; signals and the caller's CPUs are as before; memory
    /// goes with its last user.
    #[doc(alias = "rte_eal_cleanup")]
    pub fn shutdown(mut self) -> Exit {
        let reason = self.reporter.stop.reason();
        self.end();
        // A panic may come while the lcores finish.
        let panics = self.reporter.seen();
        Exit { reason: if panics.is_empty() { reason } else { Some(StopReason::Panic) }, panics }
    }

    fn end(&mut self) {
        let logs = self.logs.enter();
        self.reporter.stop.set();
        self.lcores.wait_all();
        self.controls.wait_all();
        self.services.end();
        self.telemetry.end();
        while let Some((name, handler)) = self.next_exit_handler() {
            if self.reporter.guard(handler).is_err() {
                tracing::error!(target: "lib.eal", "exit handler {name} did not finish; going on with the next");
            }
        }
        self.alarms.end();
        self.interrupts.end();
        self.lcores.join();
        self.lcores.leave_all();
        *self.signals.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.off_lcores = None;
        drop(logs);
    }

    /// One at a time: a handler may register another.
    fn next_exit_handler(&self) -> Option<ExitHandler> {
        self.exit_handlers.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        self.end();
    }
}
