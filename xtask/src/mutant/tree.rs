//! A copy of the workspace in which every rule of the table can be broken, one a run.
//!
//! ```text
//!   the tree:   barrier::to_device();
//!   the copy:   if !crate::mutants::on("send-record-unfenced") { barrier::to_device(); }
//! ```
//!
//! So the code that is shipped has no switches in it, and one build has them all. A file of the copy is written only when it
//! changes, so a second build is short.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::path::{Path, PathBuf};

use super::table::{Edit, Mutant, SWITCH};
use crate::run::{Outcome, root, target_dir};

/// What says which rule is broken in this run.
pub(super) const VARIABLE: &str = "POLLUX_MUTANT";

/// The module that every crate with edits has in the copy.
const MODULE: &str = r#"//! Which rule is broken in this run.

use std::sync::OnceLock;

/// Whether it is this one.
#[inline]
pub(crate) fn on(name: &str) -> bool {
    static ASKED: OnceLock<String> = OnceLock::new();
    ASKED.get_or_init(|| std::env::var("POLLUX_MUTANT").unwrap_or_default()) == name
}
"#;

/// Where all that belongs to mutants stands.
pub(super) fn folder() -> PathBuf {
    target_dir().join("mutants")
}

/// Where the copy stands.
pub(super) fn tree() -> PathBuf {
    folder().join("tree")
}

/// Writes the copy.
///
/// # Errors
/// An edit whose text does not stand where it should, or what the file system says.
pub(super) fn write(mutants: &[Mutant]) -> Outcome {
    let mut files = edited(mutants)?;
    let crates: Vec<_> = files.keys().filter_map(|file| file.split('/').next()).map(str::to_owned).collect();
    for name in crates {
        let lib = format!("{name}/src/lib.rs");
        let text = match files.remove(&lib) {
            Some(text) => text,
            None => source(&lib)?,
        };
        if !text.ends_with(DECLARED) {
            files.insert(lib, text + DECLARED);
        } else {
            files.insert(lib, text);
        }
        files.insert(format!("{name}/src/mutants.rs"), MODULE.to_owned());
    }
    let mut all = Vec::new();
    walk(&root(), Path::new(""), &mut all)?;
    let to = tree();
    for file in &all {
        let bytes = match files.remove(file) {
            Some(text) => text.into_bytes(),
            None => fs::read(root().join(file)).map_err(|why| format!("cannot read {file}: {why}"))?,
        };
        put(&to.join(file), &bytes)?;
    }
    for (file, text) in &files {
        put(&to.join(file), text.as_bytes())?;
    }
    // What is gone from the tree, or was of mutants that are gone, must not be built.
    let mut there = Vec::new();
    walk(&to, Path::new(""), &mut there)?;
    for file in there.iter().filter(|file| !all.contains(file) && !files.contains_key(*file)) {
        fs::remove_file(to.join(file)).map_err(|why| format!("cannot remove {file}: {why}"))?;
    }
    Ok(())
}

const DECLARED: &str = "\nmod mutants;\n";

/// That each edit's text stands in its file; what does not.
pub(crate) fn faults(mutants: &[Mutant]) -> Vec<String> {
    mutants.iter().filter_map(|mutant| edited(std::slice::from_ref(mutant)).err()).collect()
}

/// Of a file, the places that are changed, from where to where: by whom, and to what.
type Places<'t> = BTreeMap<(usize, usize), Vec<(&'t Mutant, &'t Edit)>>;

/// The files that have edits, edited.
fn edited(mutants: &[Mutant]) -> Outcome<BTreeMap<String, String>> {
    let mut places: BTreeMap<&str, Places<'_>> = BTreeMap::new();
    let mut files = BTreeMap::new();
    for mutant in mutants {
        for edit in &mutant.edits {
            let text = match files.entry(edit.file.clone()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(source(&edit.file)?),
            };
            let place = edit.place(text).map_err(|why| format!("mutant {}: {why}", mutant.name))?;
            places.entry(&edit.file).or_default().entry(place).or_default().push((mutant, edit));
        }
    }
    for (file, places) in places {
        let Some(text) = files.get_mut(file) else { continue };
        let mut next = text.len();
        // From the end, so that the places before stay where they are.
        for ((from, to), edits) in places.into_iter().rev() {
            if to > next {
                return Err(format!("mutant {}: its text goes into another's in {file}", edits[0].0.name));
            }
            let whole = nested(&text[from..to], edits)?;
            text.replace_range(from..to, &whole);
            next = from;
        }
    }
    Ok(files)
}

/// What stands in a place that several may change: each as the others' "as it is".
fn nested(target: &str, mut edits: Vec<(&Mutant, &Edit)>) -> Outcome<String> {
    edits.sort_by_key(|(_, edit)| edit.put.contains(target));
    let mut text = target.to_owned();
    for (at, (mutant, edit)) in edits.into_iter().enumerate() {
        let put = edit.put.replace(SWITCH, &format!("crate::mutants::on({:?})", mutant.name));
        if at > 0 && !put.contains(target) {
            return Err(format!(
                "mutant {}: what it puts has not {target:?} in it, which others change too",
                mutant.name
            ));
        }
        text = put.replace(target, &text);
    }
    Ok(text)
}

impl Edit {
    /// From where to where it stands in a file.
    fn place(&self, text: &str) -> Outcome<(usize, usize)> {
        let Self { file, find, .. } = self;
        let (before, rest) = find.split_once('«').unwrap_or(("", find));
        let (target, after) = rest.split_once('»').unwrap_or((rest, ""));
        let whole = [before, target, after].concat();
        let count = text.matches(&whole).count();
        match text.find(&whole) {
            Some(at) if count == 1 => Ok((at + before.len(), at + before.len() + target.len())),
            _ => Err(format!(
                "its text stands {count} times in {file}, and should once; say it as it stands there now (xtask/mutants), with more \
                 around it: {find:?}"
            )),
        }
    }
}

fn source(file: &str) -> Outcome<String> {
    fs::read_to_string(root().join(file)).map_err(|why| format!("cannot read {file}: {why}"))
}

/// Writes a file unless it has these bytes.
fn put(path: &Path, bytes: &[u8]) -> Outcome {
    if fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .map_err(|why| format!("cannot write {}: {why}", path.display()))
}

/// All files below a folder, but what is hidden and what cargo built.
fn walk(top: &Path, folder: &Path, into: &mut Vec<String>) -> Outcome {
    let failed = |why: std::io::Error| format!("cannot read {}: {why}", top.join(folder).display());
    for entry in fs::read_dir(top.join(folder)).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (name, kind) = (entry.file_name(), entry.file_type().map_err(failed)?);
        let shown = name.to_string_lossy();
        let path = folder.join(&name);
        if kind.is_dir() && !shown.starts_with('.') && !shown.starts_with("target") {
            walk(top, &path, into)?;
        } else if kind.is_file() {
            into.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(name: &str, find: &str, put: &str) -> Mutant {
        let text = format!(
            "name = {name:?}\nrule = \"a\"\nsurvives = \"b\"\nedits = [{{ file = \"xtask/src/mutant/tree.rs\", find = {find:?}, \
             put = {put:?} }}]"
        );
        toml::from_str(&text).expect("a mutant")
    }

    #[test]
    fn an_edit_asks_by_name_and_two_may_share_a_place() {
        let file = "xtask/src/mutant/tree.rs";
        let find = concat!("const «DECL", "ARED»: &str");
        let one = mutant("one", find, "/* MUTANT */ DECLARED");
        let two = mutant("two", find, "/* MUTANT, too */ DECLARED");
        let files = edited(&[one, two]).expect("edited");
        let asked = concat!(
            "const /* crate::mutants::on(\"two\"), too */ /* crate::mutants::on(\"one\") */ DECL",
            "ARED: &str"
        );
        assert!(files[file].contains(asked));
    }

    #[test]
    fn edits_that_overlap_are_told() {
        let one = mutant("one", concat!("const DECL", "ARED: &str"), "MUTANT");
        let two = mutant("two", concat!("DECL", "ARED: &str = "), "MUTANT");
        let why = edited(&[one, two]).expect_err("they overlap");
        assert!(why.contains("goes into another's"), "{why}");
    }

    #[test]
    fn text_that_is_not_there_is_told_with_its_mutant() {
        let gone = mutant("gone", concat!("no such ", "text"), "MUTANT");
        let faults = faults(&[gone]);
        assert!(
            faults.len() == 1 && faults[0].starts_with("mutant gone: its text stands 0 times"),
            "{faults:?}"
        );
    }
}
