//! Jobs that need a kernel of their own: a guest with a Debian kernel under QEMU, without KVM.
//!
//! ```text
//!   cache (outside the tree)      a Debian root with QEMU and the guest's tools; kernel packages unpacked in it
//!        │
//!   initramfs                     tools, modules, our own programs (linked statically), jobs.json
//!        │
//!   machine ─── bed               a guest a job: boots, writes two logs, always ends: it powers off, or its time is over;
//!        │                        the job's devices (`mlx5-device`), the host's ends of their wires, a line to the tests
//!   report                        per job: its commands' status, how many tests passed, what its kernel complained of
//! ```
//!
//! Nothing of Debian's goes into the repository; logs stand in `target/vm/KERNEL/JOB/WHEN/`, the last few runs of each job.

mod bed;
mod guest;
mod history;
mod initramfs;
mod job;
mod kernel;
mod machine;
mod record;
mod report;
mod rules;

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::interrupt;
use crate::run::{Outcome, cargo, must, target_dir};
use bed::Bed;
use guest::Guest;
use job::{Extent, Job, Settings};
use kernel::Kernel;

/// What a hostile driver does with `--all`.
const HOSTILE_ROUNDS: &str = "10000000";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run on every kernel (the release's and the newest in the archive), with the long jobs and ten million fuzzing steps
    #[arg(long)]
    all: bool,
    /// Run the shortest job of each kind only
    #[arg(long, conflicts_with_all = ["all", "record"])]
    short: bool,
    /// Run on the newest kernel in the archive only
    #[arg(long, conflicts_with_all = ["all", "record"])]
    newest: bool,
    /// Run only the job named TEXT, or the jobs whose names contain it
    #[arg(long, value_name = "TEXT", default_value = "")]
    job: String,
    /// Run only the tests in `tests/tests/guest` whose names contain TEXT
    #[arg(long, value_name = "TEXT")]
    test: Option<String>,
    /// Log every command of the device models; given twice, also every doorbell and interrupt
    #[arg(long, action = clap::ArgAction::Count)]
    trace: u8,
    /// Duration of the job `mlx5-soak`, in minutes (with `--all` or by name)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: u64,
    /// Multiply all timeouts of guests and their tests by FACTOR, for slow machines
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = patience)]
    patience: f64,
    /// Record Linux's answers in `mlx5-kernel/tests/golden` instead of comparing them
    #[arg(long, conflicts_with_all = ["all", "job", "test"])]
    record: bool,
}

impl Args {
    /// Every kernel and the long jobs.
    pub(crate) fn all() -> Self {
        Self {
            all: true,
            short: false,
            newest: false,
            job: String::new(),
            test: None,
            trace: 0,
            minutes: 10,
            patience: 1.0,
            record: false,
        }
    }
}

fn patience(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.01..=100.0).contains(factor));
    factor.ok_or_else(|| "is not a number from 0.01 to 100".into())
}

/// Runs the jobs on each kernel.
///
/// # Errors
/// One line: what could not be prepared, or how many jobs failed.
pub(crate) fn vm(args: &Args) -> Outcome {
    crate::debian::needs_root("vm")?;
    interrupt::listen()?;
    let done = jobs(args);
    // Whatever a signal broke, it is the cause.
    interrupt::check().and(done)
}

fn jobs(args: &Args) -> Outcome {
    let begin = Instant::now();
    let extent = match (args.short, args.all) {
        (true, _) => Extent::Short,
        (_, true) => Extent::All,
        _ => Extent::Usual,
    };
    let mut jobs = job::chosen(&args.job, extent)?;
    if args.record {
        jobs.retain(|job| job.records);
    }
    if args.all && args.job.is_empty() {
        // A guest's driver that means harm needs no guest: the device's door is tried in process.
        must(
            cargo(&["test", "--package", "pollux-mlx5-model", "--lib", "--", "a_hostile_driver_is_borne"])
                .env("POLLUX_HOSTILE_ROUNDS", HOSTILE_ROUNDS),
        )?;
    }
    let programs = job::build(&jobs)?;
    let guest = Guest::prepare()?;
    for job in jobs.iter().filter(|job| job.script.is_some()) {
        guest.provide(job.packages)?;
    }
    let settings = Settings {
        only: args.test.as_deref(),
        minutes: args.minutes,
        patience: args.patience,
        record: args.record,
    };
    let described = settings.describe(&jobs);
    let mut kernels = Vec::new();
    if !args.newest {
        kernels.push(Kernel::of_the_release(&guest)?);
    }
    if args.newest || args.all {
        kernels.push(Kernel::newest(&guest)?);
    }
    let mut whole = report::Sum::default();
    for kernel in &kernels {
        let folder = logs_of(kernel);
        let make = |path: &PathBuf| {
            std::fs::create_dir_all(path).map_err(|why| format!("cannot write {}: {why}", path.display()))
        };
        make(&folder)?;
        let image = folder.join("initramfs");
        let write = |path: &Path, witness: Option<&Job>| {
            initramfs::write(path, &guest, kernel, &programs, described.as_bytes(), witness)
        };
        write(&image, None)?;
        eprintln!("xtask: vm: Linux {}; logs in {}", kernel.version, folder.display());
        for job in &jobs {
            let logs = history::begin(&folder.join(job.name))?;
            let begin = Instant::now();
            // A witness has packages that no other job needs.
            let own = folder.join("initramfs.witness");
            let image = if job.script.is_some() {
                write(&own, Some(job))?;
                &own
            } else {
                &image
            };
            let bed = Bed::start(job, &programs, &logs, args.trace, settings.steps())?;
            let ended = machine::run(&guest, kernel, image, &logs, job, &settings, &bed)?;
            let lost = bed.end();
            let sum = report::of(&kernel.version, job, &ended, lost, &logs, begin.elapsed())?;
            whole.add(&sum);
            if args.record {
                sum.outcome()?;
                record::keep(&logs)?;
            }
        }
    }
    println!("xtask: vm: {whole}, {} kernels, {} s", kernels.len(), begin.elapsed().as_secs());
    whole.outcome()
}

fn logs_of(kernel: &Kernel) -> PathBuf {
    target_dir().join("vm").join(&kernel.version)
}
