//! Everything that can be wrong with what a user typed.

use std::path::PathBuf;

/// An error in options, device arguments or a profile. Displays as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Unknown option.
    #[error("unknown option '{option}': {hint}")]
    UnknownOption {
        /// As typed.
        option: String,
        /// The nearest option, or a pointer to `--help`.
        hint: String,
    },
    /// Positional argument where none is allowed.
    #[error("argument '{text}' is not an option: options begin with '-', --help lists them")]
    Stray {
        /// As typed.
        text: String,
    },
    /// Argument that is not valid UTF-8.
    #[error("argument '{text}' is not valid UTF-8")]
    NotText {
        /// As typed, with invalid bytes replaced.
        text: String,
    },
    /// Option without its value, given twice, or with a value that it does not take.
    #[error("option '{option}' {problem}")]
    Usage {
        /// The option.
        option: String,
        /// What is wrong and how to fix it.
        problem: String,
    },
    /// Invalid option value.
    #[error("option '{option}': '{value}' {problem}")]
    Value {
        /// The option.
        option: String,
        /// The value as typed.
        value: String,
        /// What is wrong, what is allowed.
        problem: String,
    },
    /// Options that cannot be combined.
    #[error("options '{first}' and '{second}' cannot be combined: {mend}")]
    Conflict {
        /// First option.
        first: String,
        /// Second option.
        second: String,
        /// How to resolve the conflict.
        mend: String,
    },
    /// Unknown device argument key.
    #[error("device '{device}': unknown key '{key}'{}; allowed: {allowed}", near(.nearest.as_deref()))]
    UnknownKey {
        /// The device, `net_null0`.
        device: String,
        /// The key as typed.
        key: String,
        /// The nearest allowed key.
        nearest: Option<String>,
        /// All allowed keys.
        allowed: String,
    },
    /// Invalid, missing or repeated value of a device argument key.
    #[error("device '{device}': {key}={value}: {problem}")]
    KeyValue {
        /// The device.
        device: String,
        /// The key.
        key: String,
        /// The value as typed.
        value: String,
        /// What is wrong, what is allowed.
        problem: String,
    },
    /// Missing required key.
    #[error("device '{device}': needs {key}=: {mend}")]
    MissingKey {
        /// The device.
        device: String,
        /// The key.
        key: String,
        /// An example.
        mend: String,
    },
    /// Malformed device argument.
    #[error("device '{text}': {problem}")]
    Device {
        /// As typed.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// The profile cannot be read.
    #[error("profile '{}': cannot be read", path.display())]
    ProfileRead {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Invalid profile.
    #[error("profile '{}', line {line}, column {column}: {problem}", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong.
        problem: String,
    },
}

fn near(nearest: Option<&str>) -> String {
    nearest.map(|word| format!(", did you mean '{word}'?")).unwrap_or_default()
}

impl ConfigError {
    pub(crate) fn value(option: &str, value: &str, problem: impl Into<String>) -> Self {
        Self::Value { option: option.into(), value: value.into(), problem: problem.into() }
    }

    pub(crate) fn usage(option: &str, problem: impl Into<String>) -> Self {
        Self::Usage { option: option.into(), problem: problem.into() }
    }

    pub(crate) fn conflict(first: &str, second: &str, mend: &str) -> Self {
        Self::Conflict { first: first.into(), second: second.into(), mend: mend.into() }
    }
}
