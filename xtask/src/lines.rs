//! How much source there is, outside of tests: lines that are neither blank nor comments.

use std::collections::BTreeMap;

use crate::run::{Outcome, output, root};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A commit that is counted beside this one
    #[arg(long, value_name = "COMMIT")]
    beside: Option<String>,
}

/// Prints files, lines, the median and the largest file of each crate's `src`, as committed.
pub(crate) fn lines(args: &Args) -> Outcome {
    let here = count("HEAD")?;
    let beside = args.beside.as_deref().map(count).transpose()?;
    println!(
        "{:<14} {:>6} {:>8} {:>8} {:>8}  {:<40} beside",
        "crate", "files", "lines", "median", "largest", ""
    );
    let mut names: Vec<&String> = here.keys().chain(beside.iter().flat_map(BTreeMap::keys)).collect();
    names.sort();
    names.dedup();
    let (mut all, mut other_all) = (Vec::new(), Vec::new());
    for name in names {
        let files = here.get(name).map_or(&[][..], Vec::as_slice);
        let other = beside.as_ref().map(|beside| beside.get(name).map_or(&[][..], Vec::as_slice));
        print(name, files, other);
        all.extend_from_slice(files);
        other_all.extend_from_slice(other.unwrap_or_default());
    }
    print("all", &all, beside.is_some().then_some(&other_all));
    Ok(())
}

/// A file's name and its lines.
type File = (String, usize);

fn print(name: &str, files: &[File], beside: Option<&[File]>) {
    let total = |files: &[File]| files.iter().map(|(_, lines)| lines).sum::<usize>();
    let mut sizes: Vec<usize> = files.iter().map(|(_, lines)| *lines).collect();
    sizes.sort_unstable();
    let median = sizes.get(sizes.len() / 2).copied().unwrap_or(0);
    let (largest, most) = files.iter().max_by_key(|(_, lines)| *lines).cloned().unwrap_or_default();
    let other =
        beside.map(|beside| format!("{} files, {} lines", beside.len(), total(beside))).unwrap_or_default();
    println!(
        "{name:<14} {:>6} {:>8} {median:>8} {most:>8}  {largest:<40} {other}",
        files.len(),
        total(files)
    );
}

/// The files of each crate's `src` in a commit; tests left out.
fn count(commit: &str) -> Outcome<BTreeMap<String, Vec<File>>> {
    let git = |args: &[&str]| output(std::process::Command::new("git").current_dir(root()).args(args));
    let mut crates: BTreeMap<String, Vec<File>> = BTreeMap::new();
    for path in git(&["ls-tree", "-r", "--name-only", commit])?.lines() {
        let Some((name, file)) = path.split_once("/src/") else { continue };
        if file.ends_with(".rs") && !is_test(file) && !name.contains('/') {
            let text = git(&["show", &format!("{commit}:{path}")])?;
            crates.entry(name.to_owned()).or_default().push((file.to_owned(), of(&text)));
        }
    }
    Ok(crates)
}

fn is_test(file: &str) -> bool {
    file.split('/').any(|part| matches!(part.trim_end_matches(".rs"), "tests" | "loom_tests" | "doctests"))
}

/// Tests in a file stand at its end.
fn of(text: &str) -> usize {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_tests_do_not_count() {
        let text = "//! Doc.\n\nuse a;\n// why\nfn f() {\n}\n#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(of(text), 3);
        assert_eq!(of("#[cfg(test)]\nmod tests;\nfn f() {}\n"), 3);
        assert!(
            is_test("a/tests.rs") && is_test("loom_tests.rs") && is_test("tests/b.rs") && !is_test("test.rs")
        );
    }
}
