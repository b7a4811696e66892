//! The program as a user runs it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::tree::Tree;

/// How a run ended.
pub(crate) struct End {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `doctor --root ROOT OPTIONS`.
pub(crate) fn doctor(root: &Path, options: &[String]) -> End {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doctor"));
    let output =
        command.arg("--root").arg(root).args(options).stdin(Stdio::null()).output().expect("it runs");
    End {
        status: output.status.code().expect("no signal ended it"),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
        stderr: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}

fn with(tree: &Tree, options: &[&str]) -> End {
    doctor(tree.path(), &options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
}

#[test]
fn a_card_answers_to_each_of_its_names() {
    let tree = Tree::of("healthy");
    for name in ["mlx5_0", "uverbs0", "0000:81:00.0", "81:00.0", "ens1f0np0"] {
        let end = with(&tree, &["--all", "--card", name]);
        assert_eq!(end.status, 0, "{name}: {}", end.stderr);
        assert!(end.stdout.contains("ok: device.firmware  mlx5_0"), "{name}: {}", end.stdout);
        assert!(!end.stdout.contains("memory.swap"), "of the machine: {}", end.stdout);
    }
}

#[test]
fn a_named_card_keeps_its_problem_and_what_stops_every_card() {
    // One of two cards has no link: advice, unless it is the one that is meant.
    let tree = Tree::of("two-cards");
    assert_eq!(with(&tree, &[]).status, 0);
    assert_eq!(with(&tree, &["--card", "mlx5_0"]).status, 0);
    let end = with(&tree, &["--card", "mlx5_1"]);
    assert!(end.status == 1 && end.stdout.contains("problem: port.link  mlx5_1"), "{}", end.stdout);
    let end = with(&Tree::of("user"), &["--card", "mlx5_0"]);
    assert!(end.status == 1 && end.stdout.contains("problem: memory.locked"), "{}", end.stdout);
}

#[test]
fn mistakes_are_one_line_and_status_2() {
    let (two, none) = (Tree::of("two-cards"), Tree::of("laptop"));
    let cases: [(&Tree, &[&str], &str); 4] = [
        (
            &two,
            &["--card", "mlx5_9"],
            "doctor: --card mlx5_9: no such card; there are mlx5_0 (ConnectX-6 Dx, 0000:81:00.0, ens1f0np0), mlx5_1 \
             (ConnectX-6 Dx, 0000:81:00.1, ens1f1np1)\n",
        ),
        (&none, &["--card", "mlx5_0"], "doctor: --card mlx5_0: no such card; there is none\n"),
        (&none, &["--card", "a\u{1b}[2Jb"], "doctor: --card a\u{fffd}[2Jb: no such card; there is none\n"),
        (&none, &["--card", ""], "doctor: --card : no such card; there is none\n"),
    ];
    for (tree, options, line) in cases {
        let end = with(tree, options);
        assert_eq!((end.status, end.stdout.as_str(), end.stderr.as_str()), (2, "", line));
    }
    let missing = doctor(Path::new("/there/is/none"), &[]);
    assert_eq!(missing.status, 2);
    assert_eq!(
        missing.stderr,
        "doctor: --root /there/is/none: not a directory; name one that holds `sys`, `proc` and `dev`\n"
    );
    let refused: [&[&str]; 6] = [
        &["--lcores", "a"],
        &["--lcores", "3-1x"],
        &["--lcores", "99999"],
        &["--json", "--all"],
        &["--explain", "x"],
        &["y"],
    ];
    for options in refused {
        let end = with(&none, options);
        assert_eq!((end.status, end.stdout.as_str()), (2, ""), "{options:?}");
        assert!(!end.stderr.is_empty(), "{options:?}");
    }
}

#[test]
fn each_check_is_explained() {
    for check in pollux_doctor::checks() {
        let text = pollux_doctor::explain(check.id).expect(check.id);
        assert!(text.starts_with(&format!("{}: {}\n", check.id, check.title)), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
    assert!(pollux_doctor::explain("none").is_err());
}

#[test]
fn this_machine_is_examined() {
    let end = doctor(Path::new("/"), &["--all".to_owned()]);
    assert!(end.status == 0 || end.status == 1, "{}", end.stderr);
    assert!(end.stdout.contains("kernel.version") && end.stdout.contains("cpu.allowed"), "{}", end.stdout);
}
