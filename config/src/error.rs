//! Everything that can be wrong with what a user typed.

use std::path::PathBuf;

/// A mistake in options, device arguments or a profile. Each prints as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// An option that neither half of the command line knows.
    #[error("unknown option '{option}': {hint}")]
    UnknownOption {
        /// As typed.
        option: String,
        /// A near miss, or where the options are listed.
        hint: String,
    },
    /// A word that belongs to no option.
    #[error("argument '{text}' belongs to no option: options begin with '-', --help lists them")]
    Stray {
        /// As typed.
        text: String,
    },
    /// A word with bytes that are no text.
    #[error("argument '{text}' is not UTF-8: write it in UTF-8")]
    NotText {
        /// As typed, as far as it can be shown.
        text: String,
    },
    /// An option without its value, given twice, or with a value that it does not take.
    #[error("option '{option}' {problem}")]
    Usage {
        /// The option.
        option: String,
        /// What is wrong and how to mend it.
        problem: String,
    },
    /// An option whose value is not understood.
    #[error("option '{option}': '{value}' {problem}")]
    Value {
        /// The option.
        option: String,
        /// The value as typed.
        value: String,
        /// What is wrong, what is allowed.
        problem: String,
    },
    /// Two options that contradict each other.
    #[error("options '{first}' and '{second}' exclude each other: {mend}")]
    Conflict {
        /// One of them.
        first: String,
        /// The other.
        second: String,
        /// Which to keep.
        mend: String,
    },
    /// A key that the device does not know.
    #[error("device '{device}': unknown key '{key}'{}; allowed: {allowed}", near(.nearest.as_deref()))]
    UnknownKey {
        /// The device, `net_null0`.
        device: String,
        /// The key as typed.
        key: String,
        /// The allowed key that is spelt most like it.
        nearest: Option<String>,
        /// All allowed keys.
        allowed: String,
    },
    /// A device argument whose value is not understood, missing or given twice.
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
    /// A device argument that is needed and was not given.
    #[error("device '{device}': needs {key}=: {mend}")]
    MissingKey {
        /// The device.
        device: String,
        /// The key.
        key: String,
        /// An example.
        mend: String,
    },
    /// A device argument that cannot be taken apart.
    #[error("device '{text}': {problem}")]
    Device {
        /// As typed.
        text: String,
        /// What is wrong.
        problem: String,
    },
    /// A profile that cannot be read.
    #[error("profile '{}': cannot be read", path.display())]
    ProfileRead {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A profile that is not as it should be.
    #[error("profile '{}', line {line}, column {column}: {problem}", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1, in characters.
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
