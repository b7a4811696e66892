//! Figures, alone or beside DPDK in the same run on the same machine.
//!
//! Two programs answer the same names: `figures` of `benches/` and `benches/peer/figures.c`, which is compiled against
//! the libdpdk of a Debian sid root made for the purpose. Both wait on a pipe while the other is timed, and trials
//! alternate one by one, because a shared machine drifts by more than the differences that are looked for. Whole
//! programs (l2fwd against testpmd) alternate in the same way. The mlx5 driver, packets and RDMA, is measured on the device
//! model, against bounds in cycles and milliseconds; `bench witness` measures it beside DPDK's driver and libmlx5, which run on the
//! same model.

mod bounds;
mod idle;
mod model;
mod peer;
mod ping;
mod pktgen;
mod processor;
mod program;
mod router;
mod server;
mod shared;
mod table;
mod testpmd;
mod turn;
mod watched;
mod witness;

use std::collections::BTreeMap;

use clap::Subcommand;

use crate::run::{Outcome, build};
use bounds::Bounds;
use peer::Root;
use server::Server;
use table::{Figure, Pair, Plan, Report, Source};

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    beside: Option<Beside>,
    /// Print one line of JSON per figure instead of the table
    #[arg(long, global = true)]
    json: bool,
    /// Run only the figures whose names contain WORD
    #[arg(long, global = true, value_name = "WORD")]
    only: Option<String>,
    /// Trials per side, 5 to 1000 (the million-timer figure always takes 5)
    #[arg(long, global = true, default_value_t = 15, value_parser = clap::value_parser!(u32).range(5..=1000))]
    trials: u32,
    /// Repeat a device-model figure after a pause when it was disturbed: more than one involuntary context switch per 100
    /// rounds, or 1 % steal time
    #[arg(long, global = true)]
    quiet_retry: bool,
    /// Report missed bounds without failing, for another machine or a busy one
    #[arg(long, global = true)]
    report_only: bool,
    /// Take each figure once, to see that it can be taken: what it is means nothing then, and no bound is held
    #[arg(long, global = true, conflicts_with_all = ["trials", "quiet_retry"])]
    once: bool,
}

impl Args {
    fn trials(&self) -> u32 {
        if self.once { 1 } else { self.trials }
    }
}

#[derive(Subcommand)]
enum Beside {
    /// Compare with DPDK 25.11 or newer from Debian sid, in a root cached outside the tree
    Peers,
    /// Compare our mlx5 driver and verbs with DPDK's and libmlx5 on the device model, in the same root
    Witness {
        /// Also compare with a DPDK that is built for this processor, without a bound (the first time this takes some
        /// minutes)
        #[arg(long)]
        native: bool,
    },
}

/// Runs the plan and prints what came of it.
///
/// The task fails when a figure with a bound, or beside a peer one with a target, could not be measured, so that nobody
/// takes a short table for a whole one; and when a bound was missed on a quiet machine, unless it is to report only.
pub(crate) fn bench(args: &Args) -> Outcome {
    if let Some(Beside::Witness { native }) = args.beside {
        return witness::bench(args, native);
    }
    build(&[
        "l2fwd",
        "l3fwd",
        "testpmd",
        "pktgen",
        "figures",
        "mlx5_rxtx32",
        "mlx5_start",
        "verbs_post",
        "mlx5_l2fwd",
    ])?;
    let bounds = Bounds::read(table::is_on_models)?;
    let plan: Vec<Plan> = table::PLAN
        .iter()
        .copied()
        .filter(|plan| args.only.as_deref().is_none_or(|word| plan.name.contains(word)))
        .collect();
    let root = match args.beside {
        Some(Beside::Peers) => Some(Root::prepare()?),
        Some(Beside::Witness { .. }) | None => None,
    };
    let mut report = Report::new(root.as_ref().map(|root| root.version.clone()));
    let mut measured = micro(&plan, root.as_ref(), args.trials(), &mut report)?;
    // What goes wrong there (a packet lost, say) fails the task, after the table.
    let mut failed = Vec::new();
    model::measure(&plan, args.trials(), args.quiet_retry, &mut measured, &mut failed);
    if plan.iter().any(|step| step.name.starts_with(pktgen::PACING)) {
        match pktgen::pacing(args.trials()) {
            Ok(rows) => measured.extend(rows),
            Err(why) => failed.push(format!("{}: {why}", pktgen::PACING)),
        }
    }
    for step in &plan {
        let pairs = match step.from {
            Source::App if step.name.starts_with(pktgen::PACING) => {
                measured.remove(step.name).ok_or_else(|| "not measured".into())
            }
            Source::App if step.name == "ping_p99" => ping::measure(root.as_ref(), args.trials().min(7)),
            Source::App if step.name == "idle_ping_p99" => ping::measure_idle(args.trials().min(7)),
            Source::App if step.name == idle::NAME && !rustix::process::getuid().is_root() => {
                report.skip(step.name, "a veth pair is made for it: it needs root");
                continue;
            }
            Source::App if step.name == idle::NAME => idle::measure(args.trials().min(3)),
            Source::App if step.name.starts_with(pktgen::FAMILY) => {
                pktgen::measure(step.name, root.as_ref(), args.trials())
            }
            Source::App if step.name == router::NAME => router::measure(root.as_ref(), args.trials().min(7)),
            Source::App => program::measure(step.name, root.as_ref(), args.trials()),
            Source::Server | Source::Model(_) | Source::Witness => {
                measured.remove(step.name).ok_or_else(|| "not measured".into())
            }
        };
        match pairs {
            Ok(pairs) => report.add(Figure::new(*step, &pairs, bounds.of(step.name))),
            Err(why) => {
                eprintln!("xtask: {}: {why}", step.name);
                report.add(Figure::new(*step, &[], bounds.of(step.name)));
            }
        }
    }
    report.print(args.json);
    let missing = report.missing();
    if !missing.is_empty() {
        failed.push(format!("not measured: {}", missing.join(", ")));
    }
    let broken = report.broken();
    if !broken.is_empty() && !args.report_only && !args.once {
        failed.push(format!("over their bounds of benches/bounds.toml: {}", broken.join(", ")));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// All figures of the two pipe servers, trial by trial in turn.
fn micro(
    plan: &[Plan],
    root: Option<&Root>,
    trials: u32,
    report: &mut Report,
) -> Outcome<BTreeMap<&'static str, Vec<Pair>>> {
    let mut ours = Server::ours()?;
    let mut theirs = root.map(Server::peer).transpose()?;
    let mut measured = BTreeMap::new();
    for step in plan.iter().filter(|step| matches!(step.from, Source::Server)) {
        let trials = if step.name == "timer_rearm_1m" { trials.min(5) } else { trials };
        let mut pairs = Vec::new();
        // The first of each side warms caches and branch predictors and is not kept.
        for trial in 0..=trials {
            let line_before = if step.two_cores { Some(ours.run("cache_line_one_way")?) } else { None };
            // Who goes first alternates, so that a drift in one direction favours nobody.
            let (mine, other) = if trial % 2 == 0 {
                let mine = ours.run(step.name)?;
                (mine, theirs.as_mut().map(|peer| peer.run(step.name)).transpose()?)
            } else {
                let other = theirs.as_mut().map(|peer| peer.run(step.name)).transpose()?;
                (ours.run(step.name)?, other)
            };
            if trial > 0 {
                pairs.push(Pair { ours: mine, peer: other, copy: None });
                report.lines.extend(line_before);
            }
        }
        measured.insert(step.name, pairs);
    }
    Ok(measured)
}
