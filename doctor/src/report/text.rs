//! Text in 80 columns. A command stands on a line of its own, as long as it is, so that it can be copied.

use std::fmt::Write;

use super::Report;
use crate::finding::{Check, Finding, Mend, Severity};

const COLUMNS: usize = 80;
const INDENT: &str = "  ";

/// How it is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// With colours of a terminal.
    pub colour: bool,
    /// Findings that are ok as well.
    pub all: bool,
}

impl Report {
    /// The report for a person.
    #[must_use]
    pub fn text(&self, style: Style) -> String {
        let mut out = String::new();
        let shown = |finding: &&Finding| style.all || finding.severity != Severity::Ok;
        // Which cards there are, or what works without one.
        if let Some(cards) = self.findings.iter().find(|finding| is_ok(finding, PRESENT) && !style.all) {
            wrap(&mut out, &cards.what, "");
            out.push('\n');
        }
        for finding in self.findings.iter().filter(shown) {
            describe(&mut out, finding, style);
        }
        let mut fine: Vec<&str> = Vec::new();
        for finding in self.findings.iter().filter(|finding| finding.severity == Severity::Ok) {
            if !fine.contains(&finding.check.id) {
                fine.push(finding.check.id);
            }
        }
        let bad = |id: &str| {
            self.findings.iter().any(|finding| finding.check.id == id && finding.severity != Severity::Ok)
        };
        fine.retain(|id| !bad(id) && *id != PRESENT);
        if !style.all && !fine.is_empty() {
            wrap(&mut out, &format!("fine: {}", fine.join(" ")), "      ");
            out.push('\n');
        }
        let word =
            |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        let verdict = if self.has_problem() { "" } else { "; nothing stops the dataplane" };
        let summary = format!(
            "{}, {}, {} unknown, {} ok{verdict}",
            word(self.count(Severity::Problem), "problem", "problems"),
            word(self.count(Severity::Advice), "piece of advice", "pieces of advice"),
            self.count(Severity::Unknown),
            self.count(Severity::Ok),
        );
        wrap(&mut out, &summary, "");
        out
    }
}

/// The check that tells which cards there are.
const PRESENT: &str = "device.present";

fn is_ok(finding: &Finding, id: &str) -> bool {
    finding.check.id == id && finding.severity == Severity::Ok
}

/// What a check is, for `--explain`.
#[must_use]
pub(crate) fn explain(check: &Check) -> String {
    let mut out = format!("{}: {}\n", check.id, check.title);
    indented(&mut out, check.why);
    indented(&mut out, &format!("Sources: {}.", check.source));
    out
}

fn describe(out: &mut String, finding: &Finding, style: Style) {
    let name = finding.severity.name();
    let name =
        if style.colour { format!("\x1b[1;{}m{name}\x1b[0m", colour(finding.severity)) } else { name.into() };
    let card = finding.card.as_ref().map_or_else(String::new, |card| format!("  {card}"));
    let _ = writeln!(out, "{name}: {}{card}", finding.check.id);
    indented(out, &finding.what);
    if finding.severity != Severity::Ok {
        indented(out, finding.check.why);
    }
    match &finding.mend {
        Some(Mend::Command { command, as_root }) => {
            let prompt = if *as_root { '#' } else { '$' };
            let _ = writeln!(out, "{INDENT}{prompt} {command}");
        }
        Some(Mend::Action { action }) => wrap(out, &format!("{INDENT}> {action}"), "    "),
        None => {}
    }
    out.push('\n');
}

/// Colours of a terminal, as numbers of its foreground.
fn colour(severity: Severity) -> u8 {
    match severity {
        Severity::Problem => 31,
        Severity::Advice => 33,
        Severity::Unknown => 36,
        Severity::Ok => 32,
    }
}

fn indented(out: &mut String, text: &str) {
    wrap(out, &format!("{INDENT}{text}"), INDENT);
}

/// Puts a text with its indentation, broken between words, the lines after the first behind `rest`.
fn wrap(out: &mut String, text: &str, rest: &str) {
    let indent: String = text.chars().take_while(|one| *one == ' ').collect();
    let mut width = indent.len();
    out.push_str(&indent);
    let mut first = true;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !first && width + 1 + length > COLUMNS {
            out.push('\n');
            out.push_str(rest);
            width = rest.len();
        } else if !first {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
        first = false;
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        let mut out = String::new();
        let words = "word ".repeat(40);
        wrap(&mut out, &format!("  {words}"), "    ");
        assert!(out.lines().all(|line| line.chars().count() <= COLUMNS), "{out}");
        assert!(out.lines().skip(1).all(|line| line.starts_with("    word")), "{out}");
        let mut out = String::new();
        wrap(&mut out, &"x".repeat(100), "");
        assert_eq!(out.trim_end().len(), 100, "a long word stays whole");
    }
}
