//! The table: what is broken, where, and what finds it. `xtask/mutants/*.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;

use crate::run::{Outcome, root};

/// Stands in the text of an edit for the question whether this is the rule that is broken.
pub(super) const SWITCH: &str = "MUTANT";

/// A rule, broken.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    /// What it is called.
    pub(crate) name: String,
    /// The rule that the driver has then forgotten.
    pub(crate) rule: String,
    /// It is tried for every change.
    #[serde(default)]
    pub(crate) named: bool,
    /// How the code breaks it.
    pub(super) edits: Vec<Edit>,
    /// Tests that find it, the best one first: `PACKAGE/PROGRAM TEST`, where the program of a library's own tests is `lib`.
    #[serde(default)]
    pub(crate) found_by: Vec<String>,
    /// Each of the tests whose names begin so finds it.
    #[serde(default)]
    pub(crate) found_by_every: Option<String>,
    /// But these, by the reason.
    #[serde(default)]
    pub(crate) harmless: BTreeMap<String, Vec<String>>,
    /// Why no test can find it.
    #[serde(default)]
    pub(crate) survives: Option<String>,
}

/// A place in a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Edit {
    /// From the workspace's top.
    pub(super) file: String,
    /// What stands there, once; of it the part between « and » is changed, where these are.
    pub(super) find: String,
    /// What stands there then: both ways, with [`SWITCH`] to choose.
    pub(super) put: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mutant: Vec<Mutant>,
}

/// All of them, by the files' names and then as they stand there.
///
/// # Errors
/// The first thing wrong.
pub(crate) fn read() -> Outcome<Vec<Mutant>> {
    let folder = root().join("xtask/mutants");
    let failed = |why: std::io::Error| format!("cannot read {}: {why}", folder.display());
    let entries = fs::read_dir(&folder).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(failed)?;
        let file: File = toml::from_str(&text).map_err(|why| format!("{}: {why}", path.display()))?;
        all.extend(file.mutant);
    }
    let mut names = BTreeSet::new();
    for mutant in &all {
        mutant.check()?;
        if !names.insert(mutant.name.as_str()) {
            return Err(format!("mutant {}: two have this name", mutant.name));
        }
    }
    Ok(all)
}

impl Mutant {
    fn check(&self) -> Outcome {
        let wrong = |what: &str| Err(format!("mutant {}: {what}", self.name));
        let finders = usize::from(!self.found_by.is_empty() || self.found_by_every.is_some());
        if finders + usize::from(self.survives.is_some()) != 1 {
            return wrong("name tests that find it (`found_by`), or say why none can (`survives`)");
        }
        if self.edits.is_empty() || !self.edits.iter().any(|edit| edit.put.contains(SWITCH)) {
            return wrong("its edits have no MUTANT in what they put");
        }
        if self.found_by.iter().chain(&self.found_by_every).any(|witness| Witness::parse(witness).is_none()) {
            return wrong("a test is named as `PACKAGE/PROGRAM TEST`, e.g. `pmd-mlx/port run::queues_stop`");
        }
        Ok(())
    }

    /// Whether a test of the table does not find it, for a reason that is told.
    pub(crate) fn is_harmless(&self, test: &str) -> bool {
        self.harmless.values().flatten().any(|harmless| harmless == test)
    }

    /// The tests that are to find it, all kinds.
    pub(crate) fn witnesses(&self) -> impl Iterator<Item = Witness> {
        self.found_by.iter().chain(&self.found_by_every).filter_map(|text| Witness::parse(text))
    }
}

/// A test, or the beginning of the names of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Witness {
    pub(crate) program: Program,
    pub(crate) test: String,
}

/// A program of tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Program {
    pub(crate) package: String,
    /// `lib`, or the name of a file or folder in `tests`.
    pub(crate) target: String,
}

impl Witness {
    fn parse(text: &str) -> Option<Self> {
        let (program, test) = text.split_once(' ')?;
        let (package, target) = program.split_once('/')?;
        let program = Program { package: package.to_owned(), target: target.to_owned() };
        Some(Self { program, test: test.to_owned() })
    }
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.package, self.target)
    }
}

impl std::fmt::Display for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.program, self.test)
    }
}
