//! Developer tasks, run as `cargo xtask TASK`.
//!
//! - `check`: formatting, clippy with warnings denied, the layout rules, packages, documentation, the tests.
//! - `tidy`: the layout rules alone (dependency table, where unsafe code stands, dead files).
//! - `loom`, `sanitize`: the models of the lock-free code; unit tests under the address and thread sanitizers.
//! - `relaxations`: that each memory ordering is missed by a model when it is weakened.
//! - `mutants`: that tests find each rule of the driver that is broken.
//! - `nightly`: the long forms: seeds, relaxations, Miri, the thread sanitizer with a library of its own, virtual machines.
//! - `unprivileged`, `quiet`: the apps as an ordinary user; no system call while they forward.
//! - `examples`: the programs of `examples/` built as a user builds them, and run; the pages of the guide done as they are written.
//! - `outside`: README.md's program and a driver of its own, built and run outside of the workspace without the network.
//! - `golden`: what a C compiler makes of the mlx5 headers, compared with the committed files.
//! - `vm`: jobs in a guest with a Debian kernel, under QEMU without KVM.
//! - `witness`: rdma-core's test suite on our devices, under `mlx5-run`.
//! - `bench`: our figures; `bench peers`: the same beside DPDK in one run; `bench witness`: our mlx5 driver and verbs beside DPDK's driver
//!   and libmlx5, on the same device model.
//! - `build-times`: what builds cost in processor time.
//! - `card`: where the device model differs from a card whose owner sent a report; the report becomes a golden.
//! - `lines`: how much source there is outside of tests.

mod bench;
mod build_times;
mod card;
mod check;
mod debian;
mod example;
mod golden;
mod interrupt;
mod lines;
mod mutant;
mod nightly;
mod observe;
mod outside;
mod relax;
mod run;
mod tidy;
mod trial;
mod vm;
mod waiting;
mod witness;

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
    /// Run formatting, clippy with warnings denied, tidy, packaging, documentation and tests
    Check,
    /// Check the workspace rules: dependencies, unsafe code, dead files, words
    Tidy,
    /// Model-check the lock-free code with loom
    Loom {
        /// Explore at most N preemptions of each model [default: as many as the model says]
        #[arg(long, value_name = "N")]
        preemptions: Option<u32>,
    },
    /// Weaken each named memory ordering and check that its loom model fails
    Relaxations,
    /// Apply each mutation of the driver in turn and check that a test fails
    Mutants(mutant::Args),
    /// Run the long tests: many seeds, relaxations, mutants, Miri and the thread sanitizer where the toolchain has them, `--vm`
    Nightly(nightly::Args),
    /// Run the unit tests of crates with unsafe code under the address sanitizer, those of the rings under the thread sanitizer
    Sanitize,
    /// Run the unit tests and l2fwd as an unprivileged user
    Unprivileged,
    /// Check with strace that no lcore makes a system call while it forwards
    Quiet,
    /// Build, test and run the programs of `examples/`, README.md's program and the guide's, outside the workspace and offline
    Examples,
    /// Compare the golden files of mlx5 and RDMA layouts with Debian's installed headers
    Golden,
    /// Run the jobs that need their own kernel in a virtual machine
    Vm(vm::Args),
    /// Run another project's test suite under `mlx5-run`, on devices in software
    Witness(witness::Args),
    /// Run the benchmarks; `bench peers` interleaves them with DPDK's
    Bench(bench::Args),
    /// Measure the processor time of builds, optionally compared with another commit
    BuildTimes(build_times::Args),
    /// Tell where the device model differs from the card of a report (`doctor --card NAME --report FILE`), and keep the report for tests
    Card(card::Args),
    /// How much source there is outside of tests, also beside another commit
    Lines(lines::Args),
    /// Start a program of tests for `check`
    #[command(hide = true)]
    Start(waiting::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Check => check::check(),
        Task::Tidy => tidy::tidy(),
        Task::Loom { preemptions } => check::loom(preemptions),
        Task::Relaxations => relax::relaxations(),
        Task::Mutants(args) => mutant::mutants(&args),
        Task::Nightly(args) => nightly::nightly(&args),
        Task::Sanitize => check::sanitize(),
        Task::Unprivileged => observe::unprivileged(),
        Task::Quiet => observe::quiet(),
        Task::Examples => example::examples(),
        Task::Golden => golden::golden(),
        Task::Vm(args) => vm::vm(&args),
        Task::Witness(args) => witness::witness(&args),
        Task::Bench(args) => bench::bench(&args),
        Task::BuildTimes(args) => build_times::build_times(&args),
        Task::Card(args) => card::card(&args),
        Task::Lines(args) => lines::lines(&args),
        Task::Start(args) => waiting::start(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
