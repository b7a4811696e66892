//! Files of one crate that need each other.
//!
//! A file uses another when its code, tests left out, names something that the other defines: in a `use`, or as a path that
//! starts at `crate`, `super`, `self`, a module or an import. What is re-exported counts where it is defined, and a module
//! that declares and re-exports the modules in it does not use them for that. A module may name what the modules around it
//! define: it is a part of them. A circle is files each of which uses, directly or over others, each of the others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

mod code;

use crate::run::{Outcome, root};
use code::Name;

/// The names of one file's things that another file's code has, by user and used.
type Uses = BTreeMap<usize, BTreeMap<usize, Vec<Name>>>;

/// Finds the circles of a crate.
pub(super) fn check(crate_name: &str, wrong: &mut Vec<String>) -> Outcome {
    let src = root().join(crate_name).join("src");
    for start in code::roots(&src)? {
        let (files, uses) = code::uses(&start)?;
        let shown: Vec<_> = files.iter().map(|file| stem(&src, file)).collect();
        wrong.extend(circles(&uses).iter().map(|circle| report(crate_name, &shown, &uses, circle)));
    }
    Ok(())
}

fn stem(src: &Path, file: &Path) -> String {
    file.strip_prefix(src).unwrap_or(file).with_extension("").display().to_string()
}

/// A circle in words: its files, and which uses to cut.
fn report(crate_name: &str, shown: &[String], uses: &Uses, circle: &BTreeSet<usize>) -> String {
    let files: Vec<_> = circle.iter().map(|file| shown[*file].as_str()).collect();
    let mut text = format!("{crate_name}/src: {} files use each other: {}", files.len(), files.join(" "));
    for (user, used) in cuts(uses, circle) {
        let names = &uses[&user][&used];
        let words: BTreeSet<&str> = names.iter().map(|name| name.path.as_str()).collect();
        let words: Vec<_> = words.into_iter().collect();
        let line = names.iter().map(|name| name.line).min().unwrap_or_default();
        text += &format!("\n  cut {crate_name}/src/{}.rs:{line}: {}", shown[user], words.join(", "));
    }
    text
}

/// Sets of two files and more that all reach each other.
fn circles(uses: &Uses) -> Vec<BTreeSet<usize>> {
    let reached: BTreeMap<usize, BTreeSet<usize>> =
        uses.keys().map(|file| (*file, ways(uses, *file, |_| true).into_keys().collect())).collect();
    let mut found: Vec<BTreeSet<usize>> = Vec::new();
    for (file, reaches) in &reached {
        let circle: BTreeSet<usize> = reaches
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(file)))
            .copied()
            .collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

/// Every file that `from` reaches over files that `inside` holds, with the one before it on a shortest way.
fn ways(uses: &Uses, from: usize, inside: impl Fn(usize) -> bool) -> BTreeMap<usize, usize> {
    let (mut before, mut queue) = (BTreeMap::new(), VecDeque::from([from]));
    while let Some(file) = queue.pop_front() {
        for used in uses.get(&file).into_iter().flat_map(BTreeMap::keys).filter(|used| inside(**used)) {
            if !before.contains_key(used) {
                before.insert(*used, file);
                queue.push_back(*used);
            }
        }
    }
    before
}

/// Uses without which `circle` is none: of the shortest way around, the one with the fewest names; and so on.
fn cuts(uses: &Uses, circle: &BTreeSet<usize>) -> Vec<(usize, usize)> {
    let mut left: Uses = uses.clone();
    let mut cuts = Vec::new();
    loop {
        let around = circle.iter().filter_map(|start| {
            let before = ways(&left, *start, |file| circle.contains(&file));
            let mut way = vec![(*before.get(start)?, *start)];
            while way[way.len() - 1].0 != *start {
                let (user, _) = way[way.len() - 1];
                way.push((before[&user], user));
            }
            Some(way)
        });
        let Some(way) = around.min_by_key(Vec::len) else { return cuts };
        let fewest = way.into_iter().min_by_key(|(user, used)| left[user][used].len());
        let Some((user, used)) = fewest else { return cuts };
        if let Some(of) = left.get_mut(&user) {
            of.remove(&used);
        }
        cuts.push((user, used));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate in a folder of its own, and its uses as `user -> used: names`.
    fn crate_of(files: &[(&str, &str)]) -> (tempfile::TempDir, Vec<String>, Uses) {
        let src = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = src.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let (files, uses) = code::uses(&src.path().join("lib.rs")).expect("a crate");
        let shown = files.iter().map(|file| stem(src.path(), file)).collect();
        (src, shown, uses)
    }

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let (_src, shown, uses) = crate_of(files);
        let of = |(user, used): (&usize, &BTreeMap<usize, Vec<Name>>)| {
            let user = shown[*user].clone();
            used.iter()
                .map(|(used, names)| format!("{user}:{} -> {}", names[0].line, shown[*used]))
                .collect::<Vec<_>>()
        };
        uses.iter().flat_map(of).collect()
    }

    const LIB: (&str, &str) = ("lib.rs", "mod a;\nmod b;\npub use a::A;\n");

    #[test]
    fn a_use_counts_where_the_thing_is_defined() {
        let b = ("b.rs", "pub struct B;\n");
        for text in [
            "use crate::b::B;\n",
            "use crate::{b, Other};\nfn f(x: b::B) {}\n",
            "fn f(x: super::b::B) {}\n",
            "fn f() { call!(crate::b::B, 1) }\n",
            "use crate::b::*;\n",
            "mod inner {\n    use super::super::b::{self, B as Bee};\n}\n",
        ] {
            let got = edges(&[LIB, ("a.rs", text), b]);
            assert!(matches!(got.as_slice(), [one] if one.ends_with("-> b")), "{text}: {got:?}");
        }
        // Over a re-export, which is no use by itself.
        assert_eq!(edges(&[LIB, ("a.rs", "pub struct A;\n"), ("b.rs", "\nuse crate::A;\n")]), ["b:2 -> a"]);
        // A re-export that the file itself needs is one.
        let both = [("a.rs", "pub use crate::b::B;\nfn f(x: B) {}\n"), ("b.rs", "pub struct B;\n")];
        assert_eq!(edges(&[LIB, both[0], both[1]]), ["a:1 -> b"]);
        assert!(edges(&[LIB, ("a.rs", "pub use crate::b::B;\n"), b]).is_empty());
    }

    #[test]
    fn tests_comments_and_other_crates_do_not_count() {
        let text = "//! [`crate::b::B`]\nuse std::fmt;\nuse b_other::B;\nfn f(b: &str) { \"crate::b::B\" }\n\
                    #[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n#[cfg(all(test, not(loom)))]\nuse crate::b::B;\n";
        assert!(edges(&[LIB, ("a.rs", text), ("b.rs", "pub struct B;\n")]).is_empty());
        let kept = "#[cfg(not(test))]\nuse crate::b::B;\n";
        assert_eq!(edges(&[LIB, ("a.rs", kept), ("b.rs", "pub struct B;\n")]), ["a:2 -> b"]);
    }

    #[test]
    fn a_part_may_name_what_it_is_part_of() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\n"),
            ("a.rs", "mod part;\npub struct A;\nfn f() { part::go() }\n"),
            ("a/part.rs", "use super::A;\nuse crate::b::B;\npub fn go() {}\n"),
            ("b.rs", "use crate::a::A;\npub struct B;\n"),
        ];
        assert_eq!(edges(&files), ["a:3 -> a/part", "a/part:2 -> b", "b:1 -> a"]);
        let (_src, shown, uses) = crate_of(&files);
        let circles = circles(&uses);
        assert_eq!(circles.len(), 1);
        let names: Vec<_> = circles[0].iter().map(|file| shown[*file].as_str()).collect();
        assert_eq!(names, ["a", "a/part", "b"]);
    }

    #[test]
    fn the_report_names_the_files_and_the_lightest_use() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "use crate::b::{B, C};\npub struct A;\n"),
            ("b.rs", "use crate::c::D;\npub struct B;\npub struct C;\n"),
            ("c.rs", "use crate::b::B;\nuse crate::b::C;\n\npub struct D;\n"),
        ];
        let (_src, shown, uses) = crate_of(&files);
        let circles = circles(&uses);
        assert_eq!(circles.len(), 1);
        let text = report("it", &shown, &uses, &circles[0]);
        assert_eq!(text, "it/src: 2 files use each other: b c\n  cut it/src/b.rs:1: crate::c::D");
    }
}
