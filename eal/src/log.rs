//! The log of one `Eal`: events of [`tracing`], told apart by component, to standard error.
//!
//! The component is the event's target, in DPDK's manner: `lib.eal`, `pmd.net.tap`, `user1`.
//! Levels are DPDK's. Those that [`tracing`] has are error (4), warn (5), info (7) and debug (8, trace included); a
//! threshold in between acts like the next lower one. A threshold is set for components by name, with `*` and `?`, or by
//! regular expression; a later setting wins, and info is the default.
//!
//! Every thread that an `Eal` makes logs to that `Eal`; another thread does so while it holds what [`Logs::enter`] returns.
//! A level that no `Eal` of the process has switched on costs one load where it is used.

mod filter;
mod format;

use std::io;
use std::sync::Arc;

use pollux_config::{LogFilter, LogLevel, LogSpec};
use tracing::Dispatch;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::Layer as _;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::EalError;
use filter::{Components, Thresholds};
use format::Format;

/// The log of one `Eal`. Clones are the same log.
#[derive(Clone, Debug)]
pub struct Logs {
    dispatch: Dispatch,
    thresholds: Arc<Thresholds>,
}

impl Logs {
    /// A log to standard error.
    ///
    /// # Errors
    /// [`EalError::LogPattern`] when a pattern cannot be understood.
    pub fn new(spec: &LogSpec) -> Result<Self, EalError> {
        Self::to(spec, io::stderr)
    }

    /// A log to what `writer` makes.
    ///
    /// # Errors
    /// [`EalError::LogPattern`] when a pattern cannot be understood.
    pub fn to<W>(spec: &LogSpec, writer: W) -> Result<Self, EalError>
    where
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let thresholds = Arc::new(Thresholds::new(&spec.filters)?);
        let format = Format::new(spec);
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(format.color())
            .log_internal_errors(false)
            .event_format(format)
            .with_writer(writer);
        let lines = Components(Arc::clone(&thresholds)).and_then(lines);
        Ok(Self { dispatch: Dispatch::new(tracing_subscriber::registry().with(lines)), thresholds })
    }

    /// The calling thread logs here until the guard is dropped.
    #[must_use]
    pub fn enter(&self) -> DefaultGuard {
        tracing::dispatcher::set_default(&self.dispatch)
    }

    /// Changes a threshold while running.
    ///
    /// # Errors
    /// [`EalError::LogPattern`] when the pattern cannot be understood.
    pub fn set_level(&self, filter: &LogFilter) -> Result<(), EalError> {
        self.thresholds.add(filter)?;
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    }

    /// The threshold of a component.
    #[must_use]
    pub fn level(&self, component: &str) -> LogLevel {
        self.thresholds.level(component)
    }

    pub(crate) fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }
}

/// What `--log-level help` prints: the levels, and `components` with their thresholds.
///
/// # Errors
/// [`EalError::LogPattern`] when a pattern of `spec` cannot be understood.
pub fn help(spec: &LogSpec, components: &[&str]) -> Result<String, EalError> {
    let thresholds = Thresholds::new(&spec.filters)?;
    let mut names = components.to_vec();
    names.sort_unstable();
    names.dedup();
    let mut text = String::from("Levels, the most urgent first (a name, its beginning, or the number):\n");
    LogLevel::ALL.iter().for_each(|level| text.push_str(&format!("  {} {level}\n", *level as u8)));
    text.push_str("Components (--log-level LEVEL, PATTERN:LEVEL or REGEX,LEVEL):\n");
    names.iter().for_each(|name| text.push_str(&format!("  {name}: {}\n", thresholds.level(name))));
    Ok(text)
}

#[cfg(test)]
mod tests;
