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

/// A moment in UTC. The local time zone is not looked up: a log is read far from where it was written.
struct Date {
    year: u64,
    month: usize,
    day: u64,
    weekday: usize,
    hour: u64,
    minute: u64,
    second: u64,
    micros: u32,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// 1 January 1970 was a Thursday.
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

impl Date {
    fn new(since_1970: Duration) -> Self {
        let seconds = since_1970.as_secs();
        let days = seconds / 86_400;
        let mut left = days;
        let mut year = 1970;
        while left >= days_in_year(year) {
            left -= days_in_year(year);
            year += 1;
        }
        let mut month = 0;
        while left >= days_in_month(year, month) {
            left -= days_in_month(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: left + 1,
            weekday: (days % 7) as usize,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: since_1970.subsec_micros(),
        }
    }

    fn minute(&self) -> String {
        format!("{}{:02} {:02}:{:02}", MONTHS[self.month], self.day, self.hour, self.minute)
    }

    fn ctime(&self) -> String {
        let (weekday, month) = (WEEKDAYS[self.weekday], MONTHS[self.month]);
        format!(
            "{weekday} {month} {:2} {:02}:{:02}:{:02} {}",
            self.day, self.hour, self.minute, self.second, self.year
        )
    }

    fn iso(&self) -> String {
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02},{:06}+00:00",
            self.year,
            self.month + 1,
            self.day,
            self.hour,
            self.minute,
            self.second,
            self.micros
        )
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_in_year(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn days_in_month(year: u64, month: usize) -> u64 {
    const DAYS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    DAYS[month] + u64::from(month == 1 && is_leap(year))
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

    #[test]
    fn dates_are_right() {
        // Each checked with `date -u -d @N`.
        for (seconds, iso, ctime) in [
            (0, "1970-01-01T00:00:00,000007+00:00", "Thu Jan  1 00:00:00 1970"),
            (951_827_696, "2000-02-29T12:34:56,000007+00:00", "Tue Feb 29 12:34:56 2000"),
            (1_735_689_599, "2024-12-31T23:59:59,000007+00:00", "Tue Dec 31 23:59:59 2024"),
            (4_107_542_400, "2100-03-01T00:00:00,000007+00:00", "Mon Mar  1 00:00:00 2100"),
        ] {
            let date = Date::new(Duration::new(seconds, 7_000));
            assert_eq!(date.iso(), iso);
            assert_eq!(date.ctime(), ctime);
        }
        assert_eq!(Date::new(Duration::from_secs(951_827_696)).minute(), "Feb29 12:34");
    }
}
