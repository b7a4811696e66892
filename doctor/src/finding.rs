//! What was found: one [`Finding`] for each check of each subject.

use serde::Serialize;

use crate::root::Gap;

/// How bad it is, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It stops the dataplane, or a card.
    Problem,
    /// It costs packets, time or comfort.
    Advice,
    /// It could not be read.
    Unknown,
    /// It is as it should be.
    Ok,
}

impl Severity {
    /// All of them, worst first.
    pub const ALL: [Self; 4] = [Self::Problem, Self::Advice, Self::Unknown, Self::Ok];

    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Advice => "advice",
            Self::Unknown => "unknown",
            Self::Ok => "ok",
        }
    }
}

/// A thing that is looked at.
#[derive(Debug, PartialEq, Eq)]
pub struct Check {
    /// What it is called, for ever: `memory.hugepages`.
    pub id: &'static str,
    /// What it looks at, in a few words.
    pub title: &'static str,
    /// Why that matters.
    pub why: &'static str,
    /// Who says so, and what the files mean: repository and path.
    pub source: &'static str,
}

/// What mends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Mend {
    /// A line for a shell.
    Command {
        /// The line.
        command: String,
        /// Whether root has to run it.
        as_root: bool,
    },
    /// What no command does.
    Action {
        /// What to do.
        action: String,
    },
}

impl Mend {
    /// A line that root runs.
    pub(crate) fn root(command: impl Into<String>) -> Self {
        Self::Command { command: command.into(), as_root: true }
    }

    /// A line that anybody runs.
    pub(crate) fn user(command: impl Into<String>) -> Self {
        Self::Command { command: command.into(), as_root: false }
    }

    /// What a person does.
    pub(crate) fn action(action: impl Into<String>) -> Self {
        Self::Action { action: action.into() }
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: &'static Check,
    /// How bad it is.
    pub severity: Severity,
    /// The card that it is about; `None` for the machine and this process.
    pub card: Option<String>,
    /// What is.
    pub what: String,
    /// What mends it, for a problem or an advice.
    pub mend: Option<Mend>,
}

/// Where checks put what they find.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Finding>,
    card: Option<String>,
}

impl Findings {
    /// From here on everything is about this card, or about none.
    pub(crate) fn about(&mut self, card: Option<&str>) {
        self.card = card.map(str::to_owned);
    }

    pub(crate) fn ok(&mut self, check: &'static Check, what: impl AsRef<str>) {
        self.add(check, Severity::Ok, what.as_ref(), None);
    }

    pub(crate) fn advice(&mut self, check: &'static Check, what: impl AsRef<str>, mend: Mend) {
        self.add(check, Severity::Advice, what.as_ref(), Some(mend));
    }

    pub(crate) fn problem(&mut self, check: &'static Check, what: impl AsRef<str>, mend: Mend) {
        self.add(check, Severity::Problem, what.as_ref(), Some(mend));
    }

    pub(crate) fn unknown(&mut self, check: &'static Check, what: impl AsRef<str>) {
        self.add(check, Severity::Unknown, what.as_ref(), None);
    }

    pub(crate) fn gap(&mut self, check: &'static Check, gap: &Gap) {
        self.unknown(check, format!("{gap}."));
    }

    fn add(&mut self, check: &'static Check, severity: Severity, what: &str, mend: Option<Mend>) {
        let mend = mend.map(|mend| match mend {
            Mend::Command { command, as_root } => Mend::Command { command: printable(&command), as_root },
            Mend::Action { action } => Mend::Action { action: printable(&action) },
        });
        let card = self.card.as_deref().map(printable);
        self.list.push(Finding { check, severity, card, what: printable(what), mend });
    }
}

/// Longest text of a finding.
const TEXT_MAX: usize = 600;

/// A text that may hold what stood in a file: no terminal takes it for a command, and it has an end.
pub(crate) fn printable(text: &str) -> String {
    let mut clean: String =
        text.chars().take(TEXT_MAX).map(|one| if one.is_control() { '\u{fffd}' } else { one }).collect();
    if text.chars().nth(TEXT_MAX).is_some() {
        clean.push_str("...");
    }
    clean
}

/// A word of a command that a shell takes as it is.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |one: char| one.is_ascii_alphanumeric() || "_-.,:/@+%=".contains(one);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_hold_reaches_no_terminal_and_no_shell() {
        assert_eq!(printable("eth\u{1b}[2J0\n"), "eth\u{fffd}[2J0\u{fffd}");
        assert_eq!(printable(&"x".repeat(9999)).len(), TEXT_MAX + 3);
        assert_eq!(quoted("ens1f0np0"), "ens1f0np0");
        assert_eq!(quoted("a;rm -rf $HOME"), "'a;rm -rf $HOME'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
