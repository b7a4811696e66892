//! Checks whether a machine is fit for the dataplane, and says what mends it.
//!
//! ```text
//!   Root (`/`, or a copy)
//!     │ files of sys, proc, dev; bounded reads, a Gap where one is not known
//!     ▼
//!   Machine ── Process, Topology (eal), HugePool (eal), Card ── Device (uverbs::discovery)
//!     │ check/*: one function a check, each with its source
//!     ▼
//!   Finding: id, severity, card, what, mend ──► Report: text of 80 columns, JSON
//! ```
//!
//! Beside it stand what DPDK's other scripts do: [`rss_flows`] and [`pmdinfo`], each with a program.
//!
//! The program `doctor` calls it; it calls `pollux-eal` for topology and huge pages, `pollux-uverbs` for RDMA devices and
//! `pollux-config` for lists of lcores. It reads and never changes anything, but for [`Reservation`]. Every fact is a file below a root that is an argument,
//! so that a tree of another machine can be examined.
//!
//! ```
//! use pollux_doctor::{Request, Severity, examine};
//!
//! let report = examine(&Request::default())?;
//! for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Problem) {
//!     println!("{}: {}", finding.check.id, finding.what);
//! }
//! # Ok::<(), pollux_doctor::DoctorError>(())
//! ```
#![forbid(unsafe_code)]

mod card;
mod check;
mod finding;
mod machine;
pub mod pmdinfo;
mod process;
mod report;
mod root;
pub mod rss_flows;
mod show;
mod survey;

use std::path::PathBuf;

use pollux_config::LcoreSet;

pub use check::all as checks;
pub use finding::{Check, Finding, Mend, Severity};
pub use report::{JsonReport, Report, Style};
pub use show::{Reservation, Show, show};
pub use survey::{CardReport, Survey};

use machine::Machine;
use root::Root;

/// What is to be examined.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where the machine's `sys`, `proc` and `dev` are.
    pub root: PathBuf,
    /// The card alone: RDMA device, PCI address, `uverbsN` or interface.
    pub card: Option<String>,
    /// Lcores whose processors are judged, each pinned to the processor of its number.
    pub lcores: Option<LcoreSet>,
}

impl Default for Request {
    /// This machine, all of it.
    fn default() -> Self {
        Self { root: "/".into(), card: None, lcores: None }
    }
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoctorError {
    /// The root is no directory.
    #[error("--root {path}: not a directory; name one that holds `sys`, `proc` and `dev`", path = .path.display())]
    Root {
        /// What was named.
        path: PathBuf,
    },

    /// No card of that name.
    #[error("--card {wanted}: no such card; there {present}")]
    Card {
        /// What was named.
        wanted: String,
        /// What there is, ready to be printed.
        present: String,
    },

    /// A card that cannot be surveyed.
    #[error("--card {device}: {problem}")]
    Device {
        /// What was named.
        device: String,
        /// Why not.
        problem: String,
    },

    /// A file that is no report of a card, or not all of one.
    #[error("{path}: {problem}", path = .path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what mends it.
        problem: String,
    },

    /// What cannot be shown or reserved.
    #[error("{problem}")]
    Show {
        /// Why not.
        problem: String,
    },

    /// No check of that name.
    #[error("--explain {wanted}: no such check; there are {present}")]
    Check {
        /// What was named.
        wanted: String,
        /// What there is, ready to be printed.
        present: String,
    },
}

/// Examines a machine. It reads files only, some thousand on a large machine.
///
/// With a card named, findings about other cards are left out, and those about the machine unless they are problems, which stop this
/// card too. With none named, problems of single cards are advice as long as another card has none: an unused port needs no cable.
///
/// # Errors
/// [`DoctorError::Root`], [`DoctorError::Card`].
pub fn examine(request: &Request) -> Result<Report, DoctorError> {
    if !request.root.is_dir() {
        return Err(DoctorError::Root { path: request.root.clone() });
    }
    let machine = Machine::read(Root::new(&request.root), request.lcores.as_ref());
    let card = request.card.as_deref().map(|wanted| named(&machine, wanted)).transpose()?;
    let mut findings = check::run(&machine).list;
    match card {
        Some(card) => findings.retain(|finding| match &finding.card {
            Some(other) => *other == finding::printable(&card),
            None => finding.severity == Severity::Problem,
        }),
        None => spare_idle_cards(&machine, &mut findings),
    }
    // Findings of one severity keep the order of the checks.
    findings.sort_by_key(|finding| finding.severity);
    let cards = machine.cards.iter().map(|card| finding::printable(&card.described(&machine.root))).collect();
    Ok(Report { root: request.root.display().to_string(), cards, findings })
}

/// The name of the card that is meant.
fn named(machine: &Machine, wanted: &str) -> Result<String, DoctorError> {
    let exact = machine.cards.iter().find(|card| card.name == wanted);
    let found = exact.or_else(|| machine.cards.iter().find(|card| card.answers_to(wanted, &machine.root)));
    found.map(|card| card.name.clone()).ok_or_else(|| {
        let cards: Vec<String> = machine.cards.iter().map(|card| card.described(&machine.root)).collect();
        let present = if cards.is_empty() { "is none".into() } else { format!("are {}", cards.join(", ")) };
        DoctorError::Card { wanted: finding::printable(wanted), present: finding::printable(&present) }
    })
}

/// Turns problems of single cards into advice, if another card has none.
fn spare_idle_cards(machine: &Machine, findings: &mut [Finding]) {
    let stopped = |card: &card::Card| {
        let name = finding::printable(&card.name);
        findings.iter().any(|finding| {
            finding.severity == Severity::Problem && finding.card.as_deref() == Some(name.as_str())
        })
    };
    if machine.cards.iter().all(stopped) {
        return;
    }
    for finding in findings.iter_mut().filter(|finding| finding.card.is_some()) {
        finding.severity = finding.severity.max(Severity::Advice);
    }
}

/// What a check is, why it is made and who says so, for a person.
///
/// # Errors
/// [`DoctorError::Check`] with the ids that there are.
pub fn explain(id: &str) -> Result<String, DoctorError> {
    let all = checks();
    all.iter().find(|check| check.id == id).map(|check| report::explain(check)).ok_or_else(|| {
        let present = all.iter().map(|check| check.id).collect::<Vec<_>>().join(", ");
        DoctorError::Check { wanted: finding::printable(id), present }
    })
}
