//! What is logged, and how it looks.

use std::fmt;
use std::str::FromStr;

/// DPDK's log levels, most severe first.
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
    /// All levels, most severe first.
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

    /// Returns DPDK's name of the level.
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

    /// Parses a name, a prefix of one (`warn`), or a number from 1 to 8, as in DPDK.
    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = text.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|level| {
                wanted.parse() == Ok(*level as u8)
                    || (!wanted.is_empty() && level.name().starts_with(&wanted))
            })
            .ok_or_else(|| {
                format!("is not a log level: use one of {}, or 1 to 8", Self::ALL.map(Self::name).join(", "))
            })
    }
}

/// The log components a filter applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPattern {
    /// Every component.
    All,
    /// A shell pattern, `lib.*`: DPDK's `PATTERN:LEVEL`.
    Glob(String),
    /// A regular expression: DPDK's `REGEX,LEVEL`.
    Regex(String),
}

/// One `--log-level` option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// Components the filter applies to.
    pub pattern: LogPattern,
    /// Messages of this level and more severe ones are logged.
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
            return Err("has an empty pattern: write LEVEL, PATTERN:LEVEL or REGEX,LEVEL".into());
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

/// When log output is colored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogColor {
    /// On a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
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

/// Timestamp format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogTimestamp {
    /// None.
    #[default]
    Off,
    /// Seconds since startup.
    Seconds,
    /// Seconds since the previous line.
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

/// Logging options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSpec {
    /// Filters in the order given; later ones override earlier ones.
    pub filters: Vec<LogFilter>,
    /// `--log-color`.
    pub color: LogColor,
    /// `--log-timestamp`.
    pub timestamp: LogTimestamp,
    /// `--log-level help`: list levels and components, then exit.
    pub help: bool,
}
