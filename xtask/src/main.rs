//! Developer tasks, run as `cargo xtask TASK`.
//!
//! - `check`: formatting, clippy with warnings denied, the layout rules, documentation, the tests.
//! - `tidy`: the layout rules alone (dependency table, where unsafe code stands, dead files).
//! - `loom`, `sanitize`: the models of the lock-free code; unit tests under the address and thread sanitizers.
//! - `relaxations`: that each memory ordering is missed by a model when it is weakened.
//! - `mutants`: that tests find each rule of the driver that is broken.
//! - `nightly`: the long forms: seeds, relaxations, Miri, the thread sanitizer with a library of its own, virtual machines.
//! - `unprivileged`, `quiet`: the apps as an ordinary user; no system call while they forward.
//! - `examples`: the programs of `examples/` built as a user builds them, and run.
//! - `outside`: README.md's program and a driver of its own, built and run outside of the workspace without the network.
//! - `golden`: what a C compiler makes of the mlx5 headers, compared with the committed files.
//! - `vm`: jobs in a guest with a Debian kernel, under QEMU without KVM.
//! - `bench`: our figures; `bench peers`: the same beside DPDK in one run.
//! - `build-times`: what builds cost in processor time.

mod bench;
mod build_times;
mod check;
mod debian;
mod example;
mod golden;
mod interrupt;
mod mutant;
mod nightly;
mod observe;
mod outside;
mod relax;
mod run;
mod tidy;
mod trial;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Developer tasks of the workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Formatting, clippy with warnings denied, layout rules, documentation, tests
    Check,
    /// The layout rules alone
    Tidy,
    /// Model-check the lock-free code with loom
    Loom,
    /// Weaken each named memory ordering, and see that its loom model fails
    Relaxations,
    /// Break each rule of the driver in turn, and see that a test finds it
    Mutants(mutant::Args),
    /// The long forms: many seeds, relaxations, mutants, Miri and the thread sanitizer where a toolchain has them, `--vm`
    Nightly(nightly::Args),
    /// Run the unit tests of the unsafe crates under the address sanitizer, of the rings under the thread sanitizer
    Sanitize,
    /// The unit tests and l2fwd as a user with no rights
    Unprivileged,
    /// That no lcore makes a system call while it forwards (strace)
    Quiet,
    /// Build the programs of `examples/`, which are no part of the workspace, and run them
    Examples,
    /// Build and run the skeleton and a driver of one's own outside of the workspace, offline, as README.md and docs/drivers.md say
    Outside,
    /// Compare the golden files of mlx5 and RDMA layouts with the headers that Debian installs
    Golden,
    /// Run the jobs that need a kernel of their own in a virtual machine
    Vm(vm::Args),
    /// Measure: alone, or `bench peers` beside DPDK in the same run
    Bench(bench::Args),
    /// What builds cost in processor time, also beside another commit
    BuildTimes(build_times::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Check => check::check(),
        Task::Tidy => tidy::tidy(),
        Task::Loom => check::loom(),
        Task::Relaxations => relax::relaxations(),
        Task::Mutants(args) => mutant::mutants(&args),
        Task::Nightly(args) => nightly::nightly(&args),
        Task::Sanitize => check::sanitize(),
        Task::Unprivileged => observe::unprivileged(),
        Task::Quiet => observe::quiet(),
        Task::Examples => example::examples(),
        Task::Outside => outside::outside(),
        Task::Golden => golden::golden(),
        Task::Vm(args) => vm::vm(&args),
        Task::Bench(args) => bench::bench(&args),
        Task::BuildTimes(args) => build_times::build_times(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
