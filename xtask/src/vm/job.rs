//! What runs in a guest.

mod list;
pub(crate) mod witness;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::run::{self, Outcome, cargo, must, output, target_dir};

/// Commands that run one after the other in a guest of their own, until one fails.
#[derive(Default)]
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// The guest's functions of the device model, by their wires.
    pub(crate) wires: &'static [Wire],
    /// Two of them are a card with two ports: `mlx5-device --dual-port`.
    pub(crate) dual: bool,
    /// What they can beside what all can: `mlx5-device --with`.
    pub(crate) with: &'static [&'static str],
    /// The guest has a network card whose wire ends at the host's own device model, and another one through which TCP
    /// connections come and go.
    pub(crate) across: bool,
    /// Commands that run before the others, those that several jobs begin with.
    setup: &'static [&'static [&'static str]],
    /// Words with `=` in front of the program set its environment.
    commands: &'static [&'static [&'static str]],
    /// Programs of `rdma-apps` that it starts, as the guest has them, and those of [`PACKAGES`].
    apps: &'static [&'static str],
    /// How long its commands may take.
    seconds: u64,
    /// Whether it runs tests, of which some must have passed and none may be skipped.
    pub(crate) tests: bool,
    /// What the kernel's log must have. It may warn of that.
    pub(crate) reports: &'static [&'static str],
    /// Parts of lines that the kernel's log may warn with, beside [`reports`](Self::reports).
    pub(crate) warns: &'static [&'static str],
    /// Debian packages whose files the guest has, with all that they depend on, and a shell.
    pub(crate) packages: &'static [&'static str],
    /// Modules of the kernel beside those that every guest has.
    pub(crate) modules: &'static [&'static str],
    /// Of a witness: its script.
    pub(crate) script: Option<&'static Path>,
    /// The guest ends without its drivers' leave, for they wait for a device that is gone.
    abrupt: bool,
    /// Runs with `--all` or by its name alone, as long as `--minutes` says beside its own time.
    pub(crate) long: bool,
    /// Runs with `--short` too: a minute at most, and no other job tries the same sooner.
    pub(crate) short: bool,
    /// Its tests send records of Linux's answers, see [`super::record`].
    pub(crate) records: bool,
}

/// The wire of a function.
#[derive(Clone, Copy)]
pub(crate) enum Wire {
    /// To the other function with the same name.
    Cable(&'static str),
    /// To the host, which sends and receives there.
    Host,
}

/// What the command line says of how jobs run.
pub(crate) struct Settings<'a> {
    /// Of the tests of `tests/tests/guest`, those alone that this names.
    pub(crate) only: Option<&'a str>,
    /// How long the soak job works.
    pub(crate) minutes: u64,
    /// How many times its usual time a guest may take.
    pub(crate) patience: f64,
    /// Tests write records anew instead of holding Linux against them.
    pub(crate) record: bool,
}

impl Settings<'_> {
    /// How long the commands of a job may take.
    fn seconds(&self, job: &Job) -> u64 {
        let working = if job.long { self.minutes * 60 } else { 0 };
        ((job.seconds + working) as f64 * self.patience).ceil() as u64
    }

    /// How many times their usual limits the steps of a test may take. Less than once is for whole guests alone.
    pub(crate) fn steps(&self) -> f64 {
        self.patience.max(1.0)
    }

    /// How long its guest may take: its job, and a minute to boot and to end.
    pub(crate) fn limit(&self, job: &Job) -> Duration {
        Duration::from_secs_f64(60.0 * self.patience) + Duration::from_secs(self.seconds(job))
    }

    /// The jobs as the guest's first process reads them.
    pub(crate) fn describe(&self, jobs: &[Job]) -> String {
        let words = |command: &&[&'static str]| {
            let mut words: Vec<String> = command.iter().map(|&word| word.to_owned()).collect();
            if let Some(only) = self.only
                && let Some(at) = words.iter().position(|word| word == list::GUEST)
            {
                words[at + 1] = only.to_owned();
            }
            words
        };
        let mut environment = serde_json::json!({
            "POLLUX_PATIENCE": self.steps().to_string(),
            "POLLUX_SOAK_MINUTES": self.minutes.to_string(),
        });
        if self.record {
            environment["POLLUX_RECORD"] = "1".into();
        }
        let jobs: Vec<_> = jobs
            .iter()
            .map(|job| {
                let commands: Vec<_> = job.setup.iter().chain(job.commands).map(words).collect();
                serde_json::json!({
                    "name": job.name,
                    "environment": environment,
                    "commands": commands,
                    "seconds": self.seconds(job),
                    "abrupt": job.abrupt,
                    "functions": job.wires.len(),
                })
            })
            .collect();
        serde_json::Value::from(jobs).to_string()
    }
}

/// How many of the jobs run of which none is named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Short,
    Usual,
    All,
}

/// The jobs that are asked for by `text`: the one of that name, else those of the extent whose names contain it, else all whose names
/// contain it.
///
/// # Errors
/// When there is none.
pub(crate) fn chosen(text: &str, extent: Extent) -> Outcome<Vec<Job>> {
    let mut all = list::all();
    all.extend(witness::all()?);
    let exact = |job: &Job| job.name == text;
    let named = |job: &Job| job.name.contains(text);
    let usual = |job: &Job| {
        named(job)
            && match extent {
                Extent::Short => job.short,
                Extent::Usual => !job.long,
                Extent::All => true,
            }
    };
    let choices: [&dyn Fn(&Job) -> bool; 3] = [&exact, &usual, &named];
    let Some(choice) = choices.into_iter().find(|choice| all.iter().any(choice)) else {
        let names: Vec<_> = all.iter().map(|job| job.name).collect();
        return Err(format!("no job's name contains '{text}'; jobs: {}", names.join(", ")));
    };
    all.retain(|job| choice(job));
    Ok(all)
}

/// A program of ours and where the guest has it.
pub(crate) struct Program {
    pub(crate) file: PathBuf,
    pub(crate) inside: &'static str,
}

/// The functions' program, which runs on the host.
pub(crate) const DEVICE: &str = "mlx5-device";

/// How names of programs end that are measured, and built as users build them.
const RELEASE: &str = "-release";

/// Programs whose package has their name.
const PACKAGES: [(&str, &str); 2] = [("explain", "explain"), ("l2fwd", "apps")];

/// Builds every program that the jobs name, as the tests of this machine are built: a build of their own would take longer than the guests
/// do, unless they are to be measured. The guest has a C library, of a release that is not older than the one that they are linked with.
pub(crate) fn build(jobs: &[Job]) -> Outcome<Vec<Program>> {
    let mut targets = vec![Target { folder: "tests", kind: "bin", name: "guest_init", inside: "/init" }];
    if jobs.iter().any(|job| !job.wires.is_empty()) {
        targets.push(Target { folder: "mlx5-model", kind: "bin", name: DEVICE, inside: DEVICE });
    }
    let apps: BTreeSet<&'static str> = jobs.iter().flat_map(|job| job.apps).copied().collect();
    let (released, apps): (Vec<_>, Vec<_>) = apps.into_iter().partition(|inside| inside.ends_with(RELEASE));
    targets.extend(apps.into_iter().map(|inside| {
        let name = inside.trim_start_matches("/ours/");
        let folder =
            PACKAGES.iter().find(|(program, _)| *program == name).map_or("rdma-apps", |(_, folder)| folder);
        Target { folder, kind: "bin", name, inside }
    }));
    let named = |inside: &str| {
        jobs.iter().flat_map(|job| job.commands).flat_map(|words| *words).any(|word| *word == inside)
    };
    let tests = list::TEST_PROGRAMS.iter().filter(|(.., inside)| named(inside));
    targets.extend(tests.map(|&(folder, name, inside)| Target { folder, kind: "test", name, inside }));
    let build = ["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
    let mut messages: Vec<serde_json::Value> = Vec::new();
    // The last is not among what `cargo test` runs.
    for more in [&[][..], &["--test", "guest"]] {
        let said = output(cargo(&build).args(more))?;
        messages.extend(said.lines().filter_map(|line| serde_json::from_str(line).ok()));
    }
    let folder = target_dir().join("guest");
    fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
    let stripped = |built: &Path, inside: &'static str| {
        // What a debugger reads would fill the guest's memory.
        let file = folder.join(inside.trim_start_matches('/').replace('/', "_"));
        must(Command::new("strip").arg("--strip-debug").arg("-o").arg(&file).arg(built))?;
        Ok(Program { file, inside })
    };
    let program = |target: &Target| {
        let built = messages.iter().find_map(|message| target.executable(message));
        let built = built.ok_or_else(|| format!("cargo built no program {}", target.name))?;
        stripped(Path::new(built), target.inside)
    };
    let programs: Outcome<Vec<Program>> = targets.iter().map(program).collect();
    let mut programs = programs?;
    let name = |inside: &'static str| inside.trim_start_matches("/ours/").trim_end_matches(RELEASE);
    let names: Vec<&str> = released.iter().copied().map(name).collect();
    if !names.is_empty() {
        run::build(&names)?;
    }
    for (inside, name) in released.into_iter().zip(names) {
        programs.push(stripped(&run::release_dir().join(name), inside)?);
    }
    Ok(programs)
}

/// A program as cargo knows it, and where the guest has it.
struct Target {
    folder: &'static str,
    kind: &'static str,
    name: &'static str,
    inside: &'static str,
}

impl Target {
    /// Where it stands, if a message of cargo is of it.
    fn executable<'m>(&self, message: &'m serde_json::Value) -> Option<&'m str> {
        let target = &message["target"];
        // A program's unit tests have its name and kind.
        let is_tests = message["profile"]["test"] == true;
        let is_it = target["name"] == self.name
            && target["kind"][0] == self.kind
            && is_tests == (self.kind == "test");
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.file_name()?;
        (is_it && folder == self.folder).then(|| message["executable"].as_str())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::root;

    const USUAL: Settings<'_> = Settings { only: None, minutes: 3, patience: 1.0, record: false };

    #[test]
    fn a_name_is_that_job_and_else_a_part_of_names() {
        let names = |text: &str, extent| -> Vec<&str> {
            chosen(text, extent).expect("some").iter().map(|job| job.name).collect()
        };
        assert_eq!(names("verbs-rxe", Extent::Usual), ["verbs-rxe"]);
        assert!(names("rxe", Extent::Usual).len() > 2);
        assert!(!names("", Extent::Usual).contains(&"mlx5-soak"));
        assert!(names("", Extent::All).contains(&"mlx5-soak"));
        let short = names("", Extent::Short);
        assert!(
            short.contains(&"verbs-rxe") && !short.contains(&"mlx5-soak") && short.len() < 12,
            "{short:?}"
        );
        assert_eq!(names("mlx5-soak", Extent::Usual), ["mlx5-soak"], "who asks by name means it");
        assert_eq!(names("soak", Extent::Usual), ["mlx5-soak"], "by a part of it, too");
        assert!(!names("mlx5", Extent::Usual).contains(&"mlx5-soak"), "not among others");
        let why = chosen("verbs-on-the-moon", Extent::All).err().expect("none");
        assert!(why.starts_with("no job's name contains 'verbs-on-the-moon'; jobs: uverbs-rxe, "), "{why}");
    }

    #[test]
    fn names_are_unique_and_so_are_the_tests_of_a_long_job() {
        let all = list::all();
        let names: BTreeSet<_> = all.iter().map(|job| job.name).collect();
        assert_eq!(names.len(), all.len());
        // What no job names would never run.
        for module in
            std::fs::read_to_string(root().join("tests/tests/guest/main.rs")).expect("the tests").lines()
        {
            let Some(module) = module.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) else {
                continue;
            };
            let filter = format!("{module}::");
            let named = all
                .iter()
                .flat_map(|job| job.commands)
                .any(|words| words.iter().any(|word| word.starts_with(&filter)));
            assert!(named || module == "bed", "no job runs the tests of tests/tests/guest/{module}.rs");
        }
    }

    #[test]
    fn what_a_job_begins_with_comes_first() {
        let jobs = chosen("verbs-rxe", Extent::Usual).expect("it");
        let said: serde_json::Value = serde_json::from_str(&USUAL.describe(&jobs)).expect("JSON");
        let commands = said[0]["commands"].as_array().expect("commands");
        assert_eq!(commands.len(), jobs[0].setup.len() + jobs[0].commands.len());
        assert_eq!(commands[0], serde_json::json!(["modprobe", "ib_uverbs"]));
        assert!(
            commands.last().is_some_and(|last| last.to_string().contains("/ours/verbs-kernel")),
            "{said}"
        );
    }

    #[test]
    fn settings_reach_the_guest() {
        let jobs = chosen("mlx5-soak", Extent::All).expect("it");
        let said = USUAL.describe(&jobs);
        assert!(said.contains("\"POLLUX_SOAK_MINUTES\":\"3\"") && !said.contains("POLLUX_RECORD"), "{said}");
        assert!(said.contains("\"POLLUX_PATIENCE\":\"1\""), "{said}");
        let patient = Settings { patience: 2.0, record: true, only: Some("one"), ..USUAL };
        let said = patient.describe(&jobs);
        assert!(said.contains("\"POLLUX_RECORD\":\"1\"") && said.contains("\"one\""), "{said}");
        assert!(said.contains("\"POLLUX_PATIENCE\":\"2\""), "{said}");
        assert_eq!(patient.limit(&jobs[0]), USUAL.limit(&jobs[0]) * 2);
        assert!(USUAL.limit(&jobs[0]) > Duration::from_secs(240));
    }
}
