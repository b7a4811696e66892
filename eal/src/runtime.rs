//! The [`Eal`] value: what is made at start, and the order in which it goes.

use pollux_config::EalSpec;

use crate::control::{self, OffLcores};
use crate::lcore::{Launched, LcoreContext, LcoreId, LcorePanic, LcoreState, Lcores, Main, Plan, Scope};
use crate::stop::StopReason;
use crate::{EalError, StopFlag};

/// One environment: lcores, memory, clock, timers, logs. A value: several may live in one process and share nothing.
#[derive(Debug)]
pub struct Eal {
    stop: StopFlag,
    lcores: Lcores,
    off_lcores: Option<OffLcores>,
}

/// How an `Eal` ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Why it was asked to stop; `None` when it was simply shut down.
    pub reason: Option<StopReason>,
    /// The lcores that panicked, in order.
    pub panics: Vec<LcorePanic>,
}

impl Exit {
    /// What the process should exit with: 0, or 1 after a panic. A signal is an ordinary end.
    #[must_use]
    pub fn code(&self) -> u8 {
        u8::from(self.reason == Some(StopReason::Panic))
    }
}

impl Eal {
    /// Makes everything that `spec` asks for. The calling thread becomes the control context and is moved off the
    /// lcores' CPUs, if the process may use others.
    ///
    /// # Errors
    /// What cannot be had, in one line; nothing is left behind then.
    pub fn init(spec: EalSpec) -> Result<Self, EalError> {
        let allowed = control::process_affinity()?;
        let plan = Plan::new(&spec, &allowed)?;
        let stop = StopFlag::new()?;
        let logs = tracing::Dispatch::none();
        let control = plan.control.clone();
        let lcores = Lcores::start(plan, stop.clone(), logs)?;
        let mut eal = Self { stop, lcores, off_lcores: None };
        eal.off_lcores = Some(OffLcores::this_thread(&control, &allowed)?);
        Ok(eal)
    }

    /// The flag that tells all threads to finish. It is set by code, by the panic of a thread, and by signals after
    /// [`Eal::handle_signals`].
    #[must_use]
    pub fn stop_flag(&self) -> StopFlag {
        self.stop.clone()
    }

    /// The lcores.
    #[must_use]
    pub fn lcores(&self) -> &Lcores {
        &self.lcores
    }

    /// Runs `work` on an lcore. See [`Lcores::launch`].
    ///
    /// # Errors
    /// As [`Lcores::launch`].
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

    /// What an lcore is doing.
    ///
    /// # Errors
    /// [`EalError::UnknownLcore`].
    pub fn state(&self, lcore: LcoreId) -> Result<LcoreState, EalError> {
        self.lcores.state(lcore)
    }

    /// Sleeps until nothing runs on an lcore.
    ///
    /// # Errors
    /// As [`Lcores::wait`].
    pub fn wait(&self, lcore: LcoreId) -> Result<(), EalError> {
        self.lcores.wait(lcore)
    }

    /// Sleeps until nothing runs on any dataplane lcore.
    pub fn wait_all(&self) {
        self.lcores.wait_all();
    }

    /// Stops everything in order and says how it ended. Dropping an `Eal` does the same.
    pub fn shutdown(mut self) -> Exit {
        let exit = Exit { reason: self.stop.reason(), panics: Vec::new() };
        self.end();
        // A panic may come while the lcores finish.
        let panics = self.lcores.panics();
        let reason = if panics.is_empty() { exit.reason } else { Some(StopReason::Panic) };
        Exit { reason, panics }
    }

    fn end(&mut self) {
        self.stop.set();
        self.lcores.join();
        self.lcores.leave_all();
        self.off_lcores = None;
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        self.end();
    }
}
