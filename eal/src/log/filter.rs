//! Which events are logged.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use pollux_config::{LogFilter, LogLevel, LogPattern};
use regex_lite::Regex;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::EalError;

/// What a component logs unless told otherwise.
const DEFAULT: LogLevel = LogLevel::Info;

#[derive(Debug)]
struct Rule {
    /// `None`: every component.
    pattern: Option<Regex>,
    level: LogLevel,
}

#[derive(Debug, Default)]
struct Rules {
    rules: Vec<Rule>,
    /// Answers given before, by target.
    known: HashMap<String, LogLevel>,
}

/// The thresholds of all components.
#[derive(Debug, Default)]
pub(super) struct Thresholds(RwLock<Rules>);

impl Thresholds {
    pub(super) fn new(filters: &[LogFilter]) -> Result<Self, EalError> {
        let thresholds = Self::default();
        filters.iter().try_for_each(|filter| thresholds.add(filter))?;
        Ok(thresholds)
    }

    /// Later rules win.
    pub(super) fn add(&self, filter: &LogFilter) -> Result<(), EalError> {
        let (text, regex) = match &filter.pattern {
            LogPattern::All => (None, String::new()),
            LogPattern::Glob(glob) => (Some(glob), regex_of(glob)),
            LogPattern::Regex(regex) => (Some(regex), regex.clone()),
        };
        let pattern = match text {
            None => None,
            Some(text) => Some(
                Regex::new(&regex)
                    .map_err(|source| EalError::LogPattern { pattern: text.clone(), source })?,
            ),
        };
        let mut rules = self.0.write().unwrap_or_else(PoisonError::into_inner);
        rules.rules.push(Rule { pattern, level: filter.level });
        rules.known.clear();
        Ok(())
    }

    pub(super) fn level(&self, target: &str) -> LogLevel {
        let rules = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(level) = rules.known.get(target) {
            return *level;
        }
        drop(rules);
        let mut rules = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let matches = |rule: &&Rule| rule.pattern.as_ref().is_none_or(|pattern| pattern.is_match(target));
        let level = rules.rules.iter().rev().find(matches).map_or(DEFAULT, |rule| rule.level);
        rules.known.insert(target.into(), level);
        level
    }

    fn allows(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= allowed(self.level(metadata.target()))
    }
}

/// The most talkative level under a threshold.
fn allowed(threshold: LogLevel) -> LevelFilter {
    match threshold {
        LogLevel::Emergency | LogLevel::Alert | LogLevel::Critical => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warning | LogLevel::Notice => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::TRACE,
    }
}

/// A shell pattern as an anchored regular expression: `*`, `?` and `[...]`.
fn regex_of(glob: &str) -> String {
    let mut regex = String::from("^");
    let mut rest = glob.chars();
    while let Some(next) = rest.next() {
        match next {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' if rest.as_str().contains(']') => {
                regex.push('[');
                let inside = rest.by_ref().take_while(|&inner| inner != ']');
                inside.enumerate().for_each(|(place, inner)| match (place, inner) {
                    (0, '!') => regex.push('^'),
                    (_, '\\' | '[' | '&' | '~') => regex.extend(['\\', inner]),
                    _ => regex.push(inner),
                });
                regex.push(']');
            }
            plain => regex.push_str(&regex_lite::escape(plain.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push('$');
    regex
}

/// The gate in front of the lines.
#[derive(Debug)]
pub(super) struct Components(pub(super) std::sync::Arc<Thresholds>);

impl<S: Subscriber> Layer<S> for Components {
    /// Asked once for each place that logs, and again after a threshold has changed: what is never logged is not asked about
    /// any more.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.0.allows(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.0.allows(metadata)
    }
}

/// DPDK's name for an event's level, where a line should carry it.
pub(super) fn mark(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        _ => "",
    }
}
