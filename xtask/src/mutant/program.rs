//! The programs of tests, built in the copy of the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use super::table::{Program, Witness};
use super::tree;
use crate::run::{Outcome, TARGET, output, target_dir};
use crate::trial::{self, End};

/// Whose tests are tried: all that stand on the driver and can be run by anyone.
const WHOLE: &[&str] = &["mlx5-kernel", "mlx5-common", "pmd-mlx", "verbs", "bringup"];

/// Which programs are wanted.
pub(super) enum Scope {
    /// These.
    Of(BTreeSet<Program>),
    /// All that anyone runs.
    Whole,
}

/// Programs of tests, built.
#[derive(Clone, Debug)]
pub(super) struct Programs(BTreeMap<Program, PathBuf>);

/// What cargo says of a thing that it built.
#[derive(Deserialize)]
struct Message {
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Programs {
    /// Builds them.
    ///
    /// # Errors
    /// What cargo says.
    pub(super) fn build(scope: &Scope) -> Outcome<Self> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(tree::tree()).args(["test", "--no-run", "--quiet", "--message-format=json"]);
        command.args(["--target", TARGET]);
        match scope {
            Scope::Whole => {
                command.args(WHOLE.iter().map(|name| format!("--package=pollux-{name}")));
                command.args(["--lib", "--tests"]);
            }
            Scope::Of(programs) => {
                let packages: BTreeSet<_> = programs.iter().map(|program| &program.package).collect();
                command.args(packages.iter().map(|name| format!("--package=pollux-{name}")));
                let targets: BTreeSet<_> = programs.iter().map(|program| program.target.as_str()).collect();
                for target in targets {
                    if target == "lib" {
                        command.arg("--lib")
                    } else {
                        command.arg(format!("--test={target}"))
                    };
                }
            }
        }
        command
            // Procedural macros and build scripts are built there already; the flags keep the rest apart.
            .env("CARGO_TARGET_DIR", target_dir())
            // What is quickest to build and run in all.
            .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_TEST_DEBUG", "0")
            // A rule that is broken may leave a name unused.
            .env("RUSTFLAGS", "--cap-lints=allow");
        eprintln!("xtask: mutants: building the tests");
        let text = output(&mut command)?;
        let built: BTreeMap<_, _> = text.lines().filter_map(program).collect();
        if let Scope::Of(wanted) = scope
            && let Some(missing) = wanted.iter().find(|program| !built.contains_key(program))
        {
            return Err(format!("there are no tests {missing}, which xtask/mutants names"));
        }
        Ok(Self(built))
    }

    /// Which there are.
    pub(super) fn all(&self) -> impl Iterator<Item = &Program> {
        self.0.keys()
    }

    fn command(&self, program: &Program) -> Outcome<Command> {
        let path = self.0.get(program).ok_or_else(|| format!("there are no tests {program}"))?;
        let mut command = Command::new(path);
        let folder = tree::tree().join(&program.package);
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder).env_remove("RUST_BACKTRACE");
        command.env_remove(tree::VARIABLE);
        Ok(command)
    }

    /// The tests that a witness means: the one of that name, or all whose names begin so.
    ///
    /// # Errors
    /// The program cannot be run.
    pub(super) fn names(&self, witness: &Witness, exact: bool) -> Outcome<Vec<String>> {
        let text = output(self.command(&witness.program)?.args(["--list", "--format=terse"]))?;
        let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
        let is_meant =
            |name: &&str| if exact { *name == witness.test } else { name.starts_with(&witness.test) };
        Ok(names.filter(is_meant).map(str::to_owned).collect())
    }

    /// Runs some tests of a program, all without names, with a rule broken.
    ///
    /// # Errors
    /// It cannot be run, or is interrupted.
    pub(super) fn run(
        &self,
        program: &Program,
        tests: &[&str],
        exact: bool,
        mutant: Option<&str>,
        patience: Duration,
    ) -> Outcome<End> {
        let mut command = self.command(program)?;
        command.args(tests).args(exact.then_some("--exact"));
        if let Some(mutant) = mutant {
            command.env(tree::VARIABLE, mutant);
        }
        Ok(trial::run(&mut command, patience)?.end)
    }
}

fn program(line: &str) -> Option<(Program, PathBuf)> {
    let message: Message = serde_json::from_str(line).ok()?;
    let target = message.target.filter(|_| message.profile.is_some_and(|profile| profile.test))?;
    let is_lib = target.kind.iter().any(|kind| kind == "lib");
    if !is_lib && !target.kind.iter().any(|kind| kind == "test") {
        return None;
    }
    let manifest = message.manifest_path?;
    let package = manifest.parent().and_then(Path::file_name)?.to_string_lossy().into_owned();
    let target = if is_lib { "lib".to_owned() } else { target.name };
    Some((Program { package, target }, message.executable?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cargo_built_is_read() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/x/pmd-mlx/Cargo.toml","target":{"kind":["test"],
            "name":"port"},"profile":{"test":true},"executable":"/t/port-1"}"#;
        let (program, path) = program(&line.replace('\n', "")).expect("a program");
        assert_eq!((program.to_string().as_str(), path), ("pmd-mlx/port", PathBuf::from("/t/port-1")));
        assert!(super::program(r#"{"reason":"build-finished","success":true}"#).is_none());
    }
}
