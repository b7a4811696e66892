//! Findings for a person, and for a program.

mod json;
mod text;

pub use json::JsonReport;
pub use text::Style;
pub(crate) use text::explain;

use crate::finding::{Finding, Severity};

/// What was found, worst first.
#[derive(Debug)]
pub struct Report {
    /// The directory that was looked at.
    pub root: String,
    /// Cards in a few words: `mlx5_0 (ConnectX-6 Dx, 0000:03:00.0, eth0)`.
    pub cards: Vec<String>,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings have a severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Whether something stops the dataplane.
    #[must_use]
    pub fn has_problem(&self) -> bool {
        self.count(Severity::Problem) > 0
    }
}
