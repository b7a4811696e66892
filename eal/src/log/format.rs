//! How a line looks: `[time] component: message`.

use std::fmt;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pollux_config::{LogColor, LogSpec, LogTimestamp};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use super::filter::mark;
use crate::clock::Date;

const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// The parts and colours of a line. Colours are DPDK's: green times, yellow components, bold warnings, red errors.
#[derive(Debug)]
pub(super) struct Format {
    timestamp: LogTimestamp,
    color: bool,
    begun: Instant,
    last: Mutex<(Instant, Duration)>,
}

impl Format {
    pub(super) fn new(spec: &LogSpec) -> Self {
        let color = match spec.color {
            LogColor::Always => true,
            LogColor::Never => false,
            LogColor::Auto => std::io::stderr().is_terminal() && wants_color(|name| std::env::var(name).ok()),
        };
        let begun = Instant::now();
        Self { timestamp: spec.timestamp, color, begun, last: Mutex::new((begun, Duration::ZERO)) }
    }

    pub(super) fn color(&self) -> bool {
        self.color
    }

    fn time(&self) -> Option<String> {
        let now = Instant::now();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (last, last_wall) = {
            let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            std::mem::replace(&mut *last, (now, wall))
        };
        let delta = now.saturating_duration_since(last);
        Some(match self.timestamp {
            LogTimestamp::Off => return None,
            LogTimestamp::Seconds => {
                let since = now.saturating_duration_since(self.begun);
                format!("{:6}.{:06}", since.as_secs(), since.subsec_micros())
            }
            LogTimestamp::Delta => format!("<{:6}.{:06}>", delta.as_secs(), delta.subsec_micros()),
            LogTimestamp::Reltime if wall.as_secs() / 60 == last_wall.as_secs() / 60 => {
                format!("+{:3}.{:06}", delta.as_secs(), delta.subsec_micros())
            }
            LogTimestamp::Reltime => Date::new(wall).minute(),
            LogTimestamp::Ctime => Date::new(wall).ctime(),
            LogTimestamp::Iso => Date::new(wall).iso(),
        })
    }
}

/// Whether the user's environment has nothing against colours: `NO_COLOR`, not empty (no-color.org), or a terminal without them.
fn wants_color(variable: impl Fn(&str) -> Option<String>) -> bool {
    variable("NO_COLOR").is_none_or(|text| text.is_empty()) && variable("TERM").as_deref() != Some("dumb")
}

impl<S, N> FormatEvent<S, N> for Format
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        let paint = |code| if self.color { code } else { "" };
        if let Some(time) = self.time() {
            write!(line, "{}[{time}]{} ", paint(GREEN), paint(PLAIN))?;
        }
        let text = match level {
            Level::ERROR => RED,
            Level::WARN => BOLD,
            _ => "",
        };
        write!(line, "{}{}:{} {}", paint(YELLOW), event.metadata().target(), paint(PLAIN), paint(text))?;
        line.write_str(mark(level))?;
        context.field_format().format_fields(line.by_ref(), event)?;
        writeln!(line, "{}", if text.is_empty() { "" } else { paint(PLAIN) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_can_refuse_colors() {
        for (no_color, term, wanted) in [
            (None, None, true),
            (None, Some("xterm"), true),
            (Some(""), Some("xterm"), true),
            (Some("1"), Some("xterm"), false),
            (Some("0"), None, false),
            (None, Some("dumb"), false),
        ] {
            let variable = |name: &str| if name == "NO_COLOR" { no_color } else { term };
            assert_eq!(
                wants_color(|name| variable(name).map(str::to_owned)),
                wanted,
                "{no_color:?} {term:?}"
            );
        }
    }
}
