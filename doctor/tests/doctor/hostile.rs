//! Trees of files that no kernel makes: every one ends in a report.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pollux_doctor::{JsonReport, Request, Style, examine};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::tree::Tree;

/// What an examination of such a tree may take at most; it takes some milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

fn survives(root: &Path) {
    let begin = Instant::now();
    for lcores in [None, Some("0-3,6".parse().expect("a list"))] {
        let report = examine(&Request { root: root.to_owned(), lcores, card: None }).expect("a folder");
        let text = report.text(Style { all: true, colour: false });
        assert!(!text.chars().any(|one| one.is_control() && one != '\n'), "{text}");
        serde_json::to_string(&JsonReport::new(&report)).expect("JSON");
    }
    assert!(begin.elapsed() < LIMIT, "{:?}", begin.elapsed());
}

/// Every file of a tree, by its own path.
fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

fn replace(path: &Path, with: impl Fn(&Path)) {
    fs::remove_file(path).expect("a file");
    with(path);
}

#[test]
fn nothing_is_there() {
    survives(tempfile::tempdir().expect("a folder").path());
}

/// What takes a file's place, by name, and how it is made.
type Kind = (&'static str, fn(&Path));

#[test]
fn every_file_is_something_else() {
    let kinds: [Kind; 8] = [
        ("garbage", |path| fs::write(path, [0xff, 0x00, 0x1b, 0x5b, 0x32, 0x4a, 0xc3]).expect("a file")),
        ("empty", |path| fs::write(path, "").expect("a file")),
        ("long", |path| fs::write(path, "9".repeat(100_000)).expect("a file")),
        ("huge", |path| fs::File::create(path).and_then(|file| file.set_len(1 << 40)).expect("a file")),
        ("circle", |path| symlink(path.file_name().expect("a name"), path).expect("a link")),
        ("folder", |path| fs::create_dir(path).expect("a folder")),
        ("pipe", |path| {
            rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RUSR).expect("a named pipe");
        }),
        ("zero", |path| symlink("/dev/zero", path).expect("a link")),
    ];
    for (kind, make) in kinds {
        println!("{kind}");
        let tree = Tree::of("healthy");
        files(tree.path()).iter().for_each(|path| replace(path, make));
        survives(tree.path());
    }
}

#[test]
fn any_file_is_missing() {
    let tree = Tree::of("healthy");
    for path in files(tree.path()) {
        let bytes = fs::read(&path).expect("a file");
        fs::remove_file(&path).expect("a file");
        survives(tree.path());
        fs::write(&path, bytes).expect("a file");
    }
}

#[test]
fn folders_lead_in_circles() {
    for folder in [
        "sys/class/net",
        "sys/bus/pci/devices",
        "sys/class/infiniband",
        "proc/self",
        "sys/kernel/mm/hugepages",
    ] {
        let tree = Tree::of("healthy");
        fs::remove_dir_all(tree.path().join(folder)).expect("a folder");
        symlink(".", tree.place(folder)).expect("a link");
        survives(tree.path());
    }
    // A card whose driver, group and parents are itself.
    let tree = Tree::of("healthy");
    symlink(".", tree.place("sys/bus/pci/devices/self")).expect("a link");
    fs::write(tree.place("sys/bus/pci/devices/vendor"), "0x15b3\n").expect("a file");
    fs::write(tree.place("sys/bus/pci/devices/device"), "0x101d\n").expect("a file");
    survives(tree.path());
}

#[test]
fn names_are_no_commands() {
    let tree = Tree::of("link-down");
    let name = "a;reboot\u{1b}[2J";
    let card = tree.path().join("sys/bus/pci/devices/0000:81:00.0/net");
    fs::rename(card.join("ens1f0np0"), card.join(name)).expect("a folder");
    symlink(card.join(name), tree.place(&format!("sys/class/net/{name}"))).expect("a link");
    let report = examine(&Request { root: tree.path().to_owned(), ..Request::default() }).expect("a folder");
    let text = report.text(Style::default());
    assert!(text.contains("# ip link set dev 'a;reboot\u{fffd}[2J' up"), "{text}");
    survives(tree.path());
}

/// Values that files have, and some that none has.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "0",
        "1",
        "-1",
        "255",
        "18446744073709551615",
        "99999999999999999999",
        "0-65535",
        "3-0",
        "0,0",
        "0x",
        "0xffffffff",
        "max",
        "unlimited",
        "[always]",
        "Unknown",
        "16.0 GT/s PCIe",
        "-1.0 GT/s",
        "NaN GT/s",
        "1e308 GT/s",
        "4: ACTIVE",
        "InfiniBand",
        "mlx5_0",
        "../..",
        "0::/../..",
        "22.41",
        "22.41.99999999999",
        ":",
        "=",
        "",
    ]);
    prop_oneof![
        3 => prop::collection::vec(words, 0..4).prop_map(|words| words.join(" ").into_bytes()),
        1 => prop::collection::vec(any::<u8>(), 0..80),
        1 => "[ -~\\n\\t]{0,60}".prop_map(String::into_bytes),
    ]
}

#[test]
fn any_content_of_files_ends_in_a_report() {
    // The same cases in each run.
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[17; 32]);
    let mut runner =
        TestRunner::new_with_rng(Config { cases: 300, failure_persistence: None, ..Config::default() }, seed);
    let tree = Tree::of("healthy");
    let all = files(tree.path());
    let changes = prop::collection::vec((prop::sample::select(all), content()), 1..12);
    let done = runner.run(&changes, |changes| {
        let before: Vec<(PathBuf, Vec<u8>)> =
            changes.iter().map(|(path, _)| (path.clone(), fs::read(path).expect("a file"))).collect();
        for (path, bytes) in &changes {
            fs::write(path, bytes).expect("a file");
        }
        survives(tree.path());
        // Backwards: a file that was changed twice gets its first content.
        for (path, bytes) in before.into_iter().rev() {
            fs::write(path, bytes).expect("a file");
        }
        Ok(())
    });
    if let Err(failure) = done {
        panic!("{failure}");
    }
}
