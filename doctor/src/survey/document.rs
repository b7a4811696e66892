//! A report as a file: lines of text, the version in the first, how many there are and their sum in the last.
//!
//! ```text
//! pollux card report 2
//! about KEY VALUE           which card, kernel and processor
//! step NAME                 a check; its lines follow
//! call ... -> ...           a call and its answer, in the form of `pollux_explain::normal` (also `write`, `map`)
//! fact NAME VALUE           what came of it; compared with the model's
//! said NAME TEXT            that fact, a refusal, in words; not compared, as all that follows
//! counter NAME NUMBER
//! cycles NAME MEDIAN LEAST MOST
//! end LINES SUM
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;

use super::step::{Cost, Step};
use crate::DoctorError;

const TITLE: &str = "pollux card report";
/// Of the form and of the list of checks: reports of different ones are not compared.
pub(crate) const VERSION: u32 = 2;
/// No report is longer.
const BYTES_MAX: u64 = 16 << 20;

/// A report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Document {
    /// Which card, kernel and processor.
    pub(crate) about: BTreeMap<String, String>,
    /// The checks in order.
    pub(crate) steps: Vec<Step>,
}

impl Document {
    /// The file's text.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        let mut out = format!("{TITLE} {VERSION}\n");
        for (key, value) in &self.about {
            let _ = writeln!(out, "about {key} {value}");
        }
        for step in &self.steps {
            let _ = writeln!(out, "step {}", step.name);
            for call in &step.calls {
                let _ = writeln!(out, "{call}");
            }
            for (name, value) in &step.facts {
                let _ = writeln!(out, "fact {name} {value}");
            }
            for (name, value) in &step.said {
                let _ = writeln!(out, "said {name} {value}");
            }
            for (name, value) in &step.counters {
                let _ = writeln!(out, "counter {name} {value}");
            }
            for (name, Cost { median, least, most }) in &step.cycles {
                let _ = writeln!(out, "cycles {name} {median} {least} {most}");
            }
        }
        let (lines, sum) = (out.lines().count(), crc32fast::hash(out.as_bytes()));
        let _ = writeln!(out, "end {lines} {sum:08x}");
        out
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`DoctorError::Report`]: not there, no report, of another version, cut short, changed.
    pub(crate) fn read(path: &Path) -> Result<Self, DoctorError> {
        let refuse = |problem: String| DoctorError::Report { path: path.to_owned(), problem };
        let file = std::fs::File::open(path).map_err(|why| refuse(format!("cannot be read: {why}")))?;
        let mut bytes = Vec::new();
        let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|why| refuse(format!("cannot be read: {why}")))?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(refuse(format!("is longer than {BYTES_MAX} bytes, which no report is")));
        }
        let text =
            String::from_utf8(bytes).map_err(|_| refuse("is no text, so no report of a card".into()))?;
        Self::parse(&text).map_err(refuse)
    }

    /// Reads a file's text; what is wrong with it in one line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let first = text.lines().next().unwrap_or_default();
        let version = first.strip_prefix(TITLE).map(str::trim);
        let version = version.ok_or_else(|| {
            format!(
                "is no report of a card: its first line is not '{TITLE} {VERSION}'; make one with --report"
            )
        })?;
        if version != VERSION.to_string() {
            let version: String = version.escape_default().take(20).collect();
            return Err(format!(
                "is of version {version}, and this doctor reads version {VERSION}: make it anew with this one"
            ));
        }
        let short = || "is cut short: its last line is not 'end LINES SUM'; copy it again".to_owned();
        let body = text.strip_suffix('\n').ok_or_else(short)?;
        let (body, last) = body.rsplit_once('\n').ok_or_else(short)?;
        let body = &text[..body.len() + 1];
        let (lines, sum) =
            last.strip_prefix("end ").and_then(|rest| rest.split_once(' ')).ok_or_else(short)?;
        let lines = lines.parse::<usize>().map_err(|_| short())?;
        let sum = u32::from_str_radix(sum, 16).map_err(|_| short())?;
        if body.lines().count() != lines || crc32fast::hash(body.as_bytes()) != sum {
            return Err("was changed or damaged: it does not have the sum that its last line tells".into());
        }
        let mut document = Self::default();
        for (number, line) in body.lines().enumerate().skip(1) {
            document
                .line(line)
                .ok_or_else(|| format!("has a line {} that is none of a report", number + 1))?;
        }
        Ok(document)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        if kind == "about" {
            let (key, value) = rest.split_once(' ')?;
            let _ = self.about.insert(key.into(), value.into());
            return Some(());
        }
        if kind == "step" {
            self.steps.push(Step::new(rest));
            return Some(());
        }
        let step = self.steps.last_mut()?;
        let mut words = rest.split(' ');
        match kind {
            "call" | "write" | "map" => step.calls.push(line.to_owned()),
            "fact" | "said" => {
                let (name, value) = rest.split_once(' ')?;
                let told = if kind == "fact" { &mut step.facts } else { &mut step.said };
                let _ = told.insert(name.into(), value.into());
            }
            "counter" => {
                let _ = step.counters.insert(words.next()?.into(), words.next()?.parse().ok()?);
            }
            "cycles" => {
                let name = words.next()?;
                let mut number = || words.next()?.parse().ok();
                let cost = Cost { median: number()?, least: number()?, most: number()? };
                let _ = step.cycles.insert(name.into(), cost);
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::step::Refusal;
    use super::*;

    fn document() -> Document {
        let mut step = Step::new("device");
        step.calls = vec![
            "call 0x0000/0x0003 0x0000=out:4 -> ok 0x0000=02000000".into(),
            "map 4096 Read -> ok".into(),
        ];
        step.fact("port 1", "gid_tbl_len=256  two");
        step.refusal("mw", Refusal { fact: "EINVAL".into(), said: "mlx5_0: no  window".into() });
        step.counter("drops", 3);
        step.cost("query", vec![3, 1, 2]);
        let about = BTreeMap::from([("card".to_owned(), "ConnectX-5".to_owned())]);
        Document { about, steps: vec![step, Step::new("capabilities")] }
    }

    #[test]
    fn what_is_written_is_read() {
        let text = document().text();
        assert_eq!(Document::parse(&text), Ok(document()), "{text}");
        assert!(
            text.contains("fact port-1 gid_tbl_len=256 two\nsaid mw mlx5_0: no window\ncounter drops 3\ncycles query 2 1 3\n"),
            "{text}"
        );
    }

    #[test]
    fn a_file_that_is_cut_short_is_refused() {
        let text = document().text();
        for end in 0..text.len() {
            let why = Document::parse(&text[..end]).expect_err("cut short");
            assert!(!why.contains('\n') && !why.is_empty(), "{end}: {why}");
        }
        assert!(Document::parse(&text[..text.len() - 1]).expect_err("no end of line").contains("cut short"));
    }

    #[test]
    fn a_file_that_was_changed_or_is_another_is_refused() {
        let text = document().text();
        let why = |text: &str| Document::parse(text).expect_err("refused");
        assert!(why(&text.replace("drops 3", "drops 4")).contains("changed or damaged"));
        assert!(why(&text.replacen("report 2", "report 1", 1)).contains("is of version 1"));
        assert!(why("").contains("no report of a card") && why("GIF89a").contains("no report of a card"));
        let strange = |line: &str| {
            let body = format!("{TITLE} {VERSION}\n{line}\n");
            let (lines, sum) = (body.lines().count(), crc32fast::hash(body.as_bytes()));
            why(&format!("{body}end {lines} {sum:08x}\n"))
        };
        for line in ["fact a b", "step", "nonsense is here", "about", "x"] {
            assert!(strange(line).contains("line 2"), "{line}");
        }
        assert!(strange("step a\ncycles b 1 2").contains("line 3"));
        assert!(strange("step a\ncounter b 99999999999999999999999").contains("line 3"));
    }
}
