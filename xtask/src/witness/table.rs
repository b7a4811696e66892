//! The table of what each test does: a line of `passed NAME`, `skipped NAME: REASON` or `failing NAME: REASON`. Reasons of failures are
//! ours, and stay when the table is written anew.

use std::collections::BTreeMap;
use std::fmt;

use super::report::{Report, Verdict};

/// In front of the version.
const HEAD: &str = "# rdma-core's tests (python3-pyverbs ";

/// Why the suite skips tests on machines that have no memory for them.
const NO_MEMORY: &str = "huge pages";
/// Why it skips tests for an ordinary user, and why one fails: only root gets huge pages by shmget(2).
const NO_RIGHT: &[&str] = &["by root", "Operation not permitted"];

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    /// Debian's, of the package.
    pub(super) version: String,
    tests: BTreeMap<String, Verdict>,
}

/// What ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Every test.
    pub(super) is_whole: bool,
    pub(super) as_root: bool,
}

/// How a run differs from the table.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Tests that passed and do not.
    pub(super) losses: Vec<String>,
    /// Tests that pass now, or are new.
    pub(super) news: Vec<String>,
    /// How many this machine has no room or right for.
    pub(super) excused: usize,
}

impl Table {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut table = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix(HEAD) {
                table.version = rest.split(')').next().unwrap_or_default().into();
            }
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (word, rest) = line.split_once(' ').ok_or_else(|| format!("'{line}' has no test"))?;
            let (name, why) = rest.trim_start().split_once(": ").unwrap_or((rest.trim_start(), ""));
            let verdict = match word {
                "passed" => Verdict::Passed,
                "skipped" => Verdict::Skipped(why.into()),
                "failing" => Verdict::Failing(why.into()),
                _ => return Err(format!("'{word}' is neither passed, skipped nor failing")),
            };
            table.tests.insert(name.into(), verdict);
        }
        Ok(table)
    }

    /// The table of a run, with the reasons of this one.
    pub(super) fn renewed(&self, version: &str, report: &Report) -> Self {
        let tests = report.iter().map(|(name, verdict)| {
            let verdict = match (verdict, self.tests.get(name)) {
                (Verdict::Failing(_), Some(known @ Verdict::Failing(_))) => known,
                (verdict, _) => verdict,
            };
            (name.clone(), verdict.clone())
        });
        Self { version: version.into(), tests: tests.collect() }
    }

    /// How the report differs.
    pub(super) fn compare(&self, report: &Report, run: Run) -> Difference {
        let mut difference = Difference::default();
        for (name, verdict) in report {
            match (self.tests.get(name), verdict) {
                (Some(Verdict::Passed), Verdict::Passed) => {}
                (Some(Verdict::Passed), Verdict::Skipped(why) | Verdict::Failing(why))
                    if why.contains(NO_MEMORY)
                        || !run.as_root && NO_RIGHT.iter().any(|part| why.contains(part)) =>
                {
                    difference.excused += 1;
                }
                (Some(Verdict::Passed), Verdict::Skipped(why)) => {
                    difference.losses.push(format!("{name} is skipped: {why}"));
                }
                (Some(Verdict::Passed), Verdict::Failing(why)) => {
                    difference.losses.push(format!("{name} fails: {why}"));
                }
                (Some(_), Verdict::Passed) => {
                    difference.news.push(format!("{name} passes now: --record writes it down"));
                }
                (Some(_), _) => {}
                (None, _) => difference.news.push(format!("{name} is new: --record writes it down")),
            }
        }
        let gone = self.tests.iter().filter(|(name, verdict)| {
            run.is_whole && **verdict == Verdict::Passed && report.iter().all(|(ran, _)| ran != *name)
        });
        difference.losses.extend(gone.map(|(name, _)| format!("{name} did not run")));
        difference
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count =
            |wanted: fn(&Verdict) -> bool| self.tests.values().filter(|verdict| wanted(verdict)).count();
        let passed = count(|verdict| *verdict == Verdict::Passed);
        let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
        writeln!(f, "{HEAD}{}) under mlx5-run, as `cargo xtask witness --record` wrote them:", self.version)?;
        writeln!(
            f,
            "# {passed} passed, {} failing, {skipped} skipped.",
            self.tests.len() - passed - skipped
        )?;
        for (name, verdict) in &self.tests {
            match verdict {
                Verdict::Passed => writeln!(f, "passed  {name}")?,
                Verdict::Skipped(why) => writeln!(f, "skipped {name}: {why}")?,
                Verdict::Failing(why) => writeln!(f, "failing {name}: {why}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let tests = [
            ("a.b", Verdict::Passed),
            ("a.c", Verdict::Skipped("no: lasers".into())),
            ("a.d", Verdict::Failing("ours".into())),
        ];
        Table { version: "44.0-2".into(), tests: tests.map(|(name, verdict)| (name.into(), verdict)).into() }
    }

    #[test]
    fn a_table_is_read_as_it_is_written() {
        assert_eq!(Table::parse(&table().to_string()), Ok(table()));
        assert!(Table::parse("lost a.b\n").is_err());
        assert!(Table::parse("passed\n").is_err());
    }

    #[test]
    fn only_what_passed_can_be_lost() {
        let root = Run { is_whole: false, as_root: true };
        let told = |name: &str, verdict: &Verdict, run| {
            table().compare(&vec![(name.to_owned(), verdict.clone())], run)
        };
        let failing = Verdict::Failing("something".into());
        let skipped = Verdict::Skipped("something".into());
        for verdict in [&failing, &skipped] {
            assert_eq!(told("a.b", verdict, root).losses.len(), 1);
            let same = told("a.c", verdict, root);
            assert!(same.losses.is_empty() && same.news.is_empty());
            assert!(told("a.d", verdict, root).losses.is_empty());
        }
        let same = told("a.b", &Verdict::Passed, root);
        assert!(same.losses.is_empty() && same.news.is_empty());
        assert_eq!(told("a.d", &Verdict::Passed, root).news.len(), 1);
        assert_eq!(told("a.e", &failing, root).news.len(), 1);
        let whole = Run { is_whole: true, as_root: true };
        assert_eq!(table().compare(&Report::new(), whole).losses, ["a.b did not run"]);
    }

    #[test]
    fn what_the_machine_does_not_give_is_excused() {
        let told = |why: &str, as_root| {
            let report = vec![("a.b".to_owned(), Verdict::Skipped(why.into()))];
            table().compare(&report, Run { is_whole: false, as_root }).excused
        };
        assert_eq!(told("Must be run by root on Ethernet", false), 1);
        assert_eq!(told("Must be run by root on Ethernet", true), 0);
        assert_eq!(told("There are no huge pages of size 2M allocated", true), 1);
    }

    #[test]
    fn our_reasons_stay() {
        let failing = Verdict::Failing("an exception".into());
        let report = vec![("a.b".to_owned(), failing.clone()), ("a.d".to_owned(), failing.clone())];
        let renewed = table().renewed("45", &report);
        assert_eq!(renewed.version, "45");
        assert_eq!(renewed.tests["a.b"], failing);
        assert_eq!(renewed.tests["a.d"], Verdict::Failing("ours".into()));
        assert_eq!(renewed.tests.len(), 2);
    }
}
