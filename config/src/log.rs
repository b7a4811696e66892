//! What is logged, and how it looks.

use std::fmt;
use std::str::FromStr;

/// DPDK's log levels, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LogLevel {
    /// 1
    Emergency = 1,
    /// 2
    Alert = 2,
    /// 3
    Critical = 3,
    /// 4
    Error = 4,
    /// 5
    Warning = 5,
    /// 6
    Notice = 6,
    /// 7
    Info = 7,
    /// 8
    Debug = 8,
}

impl LogLevel {
    /// All levels, the most urgent first.
    pub const ALL: [Self; 8] = [
        Self::Emergency,
        Self::Alert,
        Self::Critical,
        Self::Error,
        Self::Warning,
        Self::Notice,
        Self::Info,
        Self::Debug,
    ];

    /// DPDK's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Emergency => "emergency",
            Self::Alert => "alert",
            Self::Critical => "critical",
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

impl FromStr for LogLevel {
    type Err = String;

    /// A name, the beginning of one (`warn`), or a number from 1 to 8, as in DPDK.
    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|level| {
                wanted.parse() == Ok(*level as u8)
                    || (!wanted.is_empty() && level.name().starts_with(&wanted))
            })
            .ok_or_else(|| {
                format!("is no level: use one of {}, or 1 to 8", Self::ALL.map(Self::name).join(", "))
            })
    }
}

/// The components that a filter speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPattern {
    /// Every component.
    All,
    /// A shell pattern, `lib.*`: DPDK's `PATTERN:LEVEL`.
    Glob(String),
    /// A regular expression: DPDK's `REGEX,LEVEL`.
    Regex(String),
}

/// One `--log-level`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// Whom it concerns.
    pub pattern: LogPattern,
    /// This level and the more urgent ones are logged.
    pub level: LogLevel,
}

impl FromStr for LogFilter {
    type Err = String;

    /// `LEVEL`, `PATTERN:LEVEL` or `REGEX,LEVEL`.
    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.rsplit_once([':', ',']);
        let Some((pattern, level)) = split else {
            return Ok(Self { pattern: LogPattern::All, level: text.parse()? });
        };
        if pattern.is_empty() {
            return Err("names no component: write LEVEL, PATTERN:LEVEL or REGEX,LEVEL".into());
        }
        let comma = text.as_bytes()[pattern.len()] == b',';
        let pattern =
            if comma { LogPattern::Regex(pattern.into()) } else { LogPattern::Glob(pattern.into()) };
        Ok(Self { pattern, level: level.parse()? })
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            LogPattern::All => write!(out, "{}", self.level),
            LogPattern::Glob(glob) => write!(out, "{glob}:{}", self.level),
            LogPattern::Regex(regex) => write!(out, "{regex},{}", self.level),
        }
    }
}

/// Colours in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogColor {
    /// When it goes to a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Yes.
    Always,
    /// No.
    Never,
}

impl FromStr for LogColor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err("is not one of auto, always, never".into()),
        }
    }
}

/// The time in front of each line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogTimestamp {
    /// None.
    #[default]
    Off,
    /// Seconds since the start.
    Seconds,
    /// Seconds since the line before.
    Delta,
    /// Wall clock, hours and minutes at each change and the delta in between.
    Reltime,
    /// Wall clock, the C locale's date.
    Ctime,
    /// Wall clock, ISO 8601.
    Iso,
}

impl FromStr for LogTimestamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "notime" => Ok(Self::Off),
            "time" => Ok(Self::Seconds),
            "delta" => Ok(Self::Delta),
            "reltime" => Ok(Self::Reltime),
            "ctime" => Ok(Self::Ctime),
            "iso" => Ok(Self::Iso),
            _ => Err("is not one of notime, time, delta, reltime, ctime, iso".into()),
        }
    }
}

/// The log of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSpec {
    /// In the order given; later ones win.
    pub filters: Vec<LogFilter>,
    /// Colours.
    pub color: LogColor,
    /// Times.
    pub timestamp: LogTimestamp,
    /// `--log-level help`: list the components and stop.
    pub help: bool,
}
