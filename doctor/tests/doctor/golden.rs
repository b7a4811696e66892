//! What doctor prints of each machine in `tests/machines`, against `tests/golden`. `BLESS=1 cargo test -p pollux-doctor` writes
//! them; look at the difference before it is committed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::program::doctor;
use crate::tree::{Tree, machines};

/// Machines whose JSON is compared too.
const JSON: [&str; 3] = ["ready", "container", "laptop"];

fn names() -> Vec<String> {
    let files = fs::read_dir(machines()).expect("machines are there");
    let mut names: Vec<String> = files
        .map(|file| file.expect("an entry").file_name().into_string().expect("UTF-8"))
        .map(|file| file.strip_suffix(".txt").expect("a text file").to_owned())
        .collect();
    names.sort();
    names
}

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, text).expect("a golden");
    }
    let golden = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    assert_eq!(golden, text, "{name}");
}

#[test]
fn each_machine_is_described_as_before() {
    for name in names() {
        let tree = Tree::of(&name);
        let end = doctor(tree.path(), &tree.options);
        let shown = format!("$ doctor {}\n{}status {}\n", tree.options.join(" "), end.stdout, end.status);
        let shown = shown.replace("doctor \n", "doctor\n");
        assert_eq!(end.stderr, "", "{name}");
        compare(&format!("{name}.txt"), &shown);
        // A command is one line, however long; prose keeps to the terminal, and no byte steers it.
        for line in end.stdout.lines().filter(|line| !line.starts_with("  # ") && !line.starts_with("  $ ")) {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
        assert!(!end.stdout.chars().any(|one| one.is_control() && one != '\n'), "{name}");
    }
}

#[test]
fn json_says_the_same() {
    for name in names() {
        let tree = Tree::of(&name);
        let options = tree.options.iter().filter(|option| *option != "--all").cloned();
        let options: Vec<String> = options.chain(["--json".to_owned()]).collect();
        let end = doctor(tree.path(), &options);
        let root = tree.path().to_str().expect("UTF-8");
        if JSON.contains(&name.as_str()) {
            compare(&format!("{name}.json"), &end.stdout.replace(root, "ROOT"));
        }
        let json: serde_json::Value = serde_json::from_str(&end.stdout).expect(&name);
        let findings = json["findings"].as_array().expect("a list");
        let problems = findings.iter().filter(|finding| finding["severity"] == "problem").count();
        assert_eq!(end.status, i32::from(problems > 0), "{name}");
        assert_eq!(json["summary"]["problem"], problems, "{name}");
        for finding in findings {
            let bad = finding["severity"] == "problem" || finding["severity"] == "advice";
            assert_eq!(finding["mend"].is_object(), bad, "{name}: {finding}");
        }
    }
}

/// Checks that only tell what is.
const FACTS: [&str; 4] = ["device.present", "port.mtu", "cpu.idle", "system.container"];

#[test]
fn each_check_fails_on_some_machine() {
    let goldens: String = names()
        .iter()
        .map(|name| {
            let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
            fs::read_to_string(path).expect("a golden")
        })
        .collect();
    let found: BTreeSet<(&str, &str)> = goldens
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(severity, rest)| (severity, rest.split(' ').next().unwrap_or_default()))
        .collect();
    for check in pollux_doctor::checks() {
        let wanted: &[&str] = if FACTS.contains(&check.id) { &["ok"] } else { &["problem", "advice"] };
        assert!(
            wanted.iter().any(|severity| found.contains(&(severity, check.id))),
            "{} in no golden",
            check.id
        );
    }
}

#[test]
fn the_page_lists_each_check() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/doctor.md")).expect("a page");
    let listed: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |").map(|(id, _)| id))
        .collect();
    let checks: Vec<&str> = pollux_doctor::checks().iter().map(|check| check.id).collect();
    assert_eq!(listed, checks, "docs/doctor.md");
}
