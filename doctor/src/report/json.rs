//! One object for programs; `docs/doctor.md` describes it.

use serde::Serialize;

use super::Report;
use crate::finding::{Mend, Severity};

/// Version of the form; it grows when a field changes its meaning or goes.
const VERSION: u32 = 1;

/// A report as JSON has it.
#[derive(Debug, Serialize)]
pub struct JsonReport<'a> {
    version: u32,
    root: &'a str,
    cards: &'a [String],
    summary: Summary,
    findings: Vec<JsonFinding<'a>>,
}

#[derive(Debug, Serialize)]
struct Summary {
    problem: usize,
    advice: usize,
    unknown: usize,
    ok: usize,
}

#[derive(Debug, Serialize)]
struct JsonFinding<'a> {
    id: &'static str,
    severity: Severity,
    card: Option<&'a str>,
    what: &'a str,
    why: &'static str,
    mend: Option<&'a Mend>,
}

impl<'a> JsonReport<'a> {
    /// All that a report has, findings that are ok included.
    #[must_use]
    pub fn new(report: &'a Report) -> Self {
        let findings = report.findings.iter().map(|finding| JsonFinding {
            id: finding.check.id,
            severity: finding.severity,
            card: finding.card.as_deref(),
            what: &finding.what,
            why: finding.check.why,
            mend: finding.mend.as_ref(),
        });
        Self {
            version: VERSION,
            root: &report.root,
            cards: &report.cards,
            summary: Summary {
                problem: report.count(Severity::Problem),
                advice: report.count(Severity::Advice),
                unknown: report.count(Severity::Unknown),
                ok: report.count(Severity::Ok),
            },
            findings: findings.collect(),
        }
    }
}
