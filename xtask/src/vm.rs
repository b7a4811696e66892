//! Jobs that need a kernel of their own: a guest with a Debian kernel under QEMU, without KVM.
//!
//! ```text
//!   cache (outside the tree)      a Debian root with QEMU and the guest's tools; kernel packages unpacked in it
//!        │
//!   initramfs                     tools, modules, our own programs (linked statically), jobs.json
//!        │
//!   machine                       boots, writes two logs, always ends: the guest powers off, or its time is over
//!        │
//!   report                        per job: its commands' status and how many tests passed
//! ```
//!
//! Nothing of Debian's goes into the repository; logs stand in `target/vm/KERNEL/`.

mod guest;
mod initramfs;
mod job;
mod kernel;
mod machine;
mod report;

use std::path::PathBuf;
use std::time::Instant;

use crate::run::{Outcome, root};
use guest::Guest;
use job::Job;
use kernel::Kernel;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Every kernel: the release's own and the newest of the archive
    #[arg(long)]
    all: bool,
    /// Only the jobs whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    job: String,
}

/// Runs the jobs on each kernel.
///
/// # Errors
/// One line: what could not be prepared, or how many jobs failed.
pub(crate) fn vm(args: &Args) -> Outcome {
    crate::debian::needs_root("vm")?;
    let begin = Instant::now();
    let jobs: Vec<Job> = job::all().into_iter().filter(|job| job.name.contains(&args.job)).collect();
    if jobs.is_empty() {
        let names: Vec<_> = job::all().into_iter().map(|job| job.name).collect();
        return Err(format!("no job's name contains '{}'; jobs: {}", args.job, names.join(", ")));
    }
    let programs = job::build(&jobs)?;
    let guest = Guest::prepare()?;
    let kernels = if args.all { &["trixie", "trixie-backports"][..] } else { &["trixie"][..] };
    let mut whole = report::Sum::default();
    for suite in kernels {
        let kernel = Kernel::prepare(&guest, suite)?;
        let logs = logs_of(&kernel);
        std::fs::create_dir_all(&logs).map_err(|why| format!("cannot write {}: {why}", logs.display()))?;
        let image = logs.join("initramfs");
        initramfs::write(&image, &guest, &kernel, &programs, &jobs)?;
        let ended = machine::run(&guest, &kernel, &image, &logs, job::limit(&jobs))?;
        whole.add(&report::of(&kernel.version, &jobs, &ended, &logs)?);
    }
    println!("xtask: vm: {whole}, {} kernels, {} s", kernels.len(), begin.elapsed().as_secs());
    whole.outcome()
}

fn logs_of(kernel: &Kernel) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("vm").join(&kernel.version)
}
