//! Our mlx5 driver beside DPDK's, and our verbs beside rdma-core's libmlx5: on the same device model, trial by trial in turn.
//!
//! The peer's programs run under `mlx5-run --stepped` in the peer's root; ours hold the model themselves. On both sides the device works
//! between the timed parts, in the timing thread, and the counter is read in the same way. Which mode is a side's best is found first, by
//! one short run of each.

mod mode;

use std::process::Command;
use std::time::SystemTime;

use super::Args;
use super::peer::{Root, native};
use super::table::{Figure, Pair, Plan, Report, Source, cycles, median};
use super::turn::alternate;
use crate::run::{Outcome, build, output, release_dir};

use mode::{Built, Ours, Theirs};

/// Trials of each mode when the best one is looked for.
const SWEPT: u32 = 3;

/// What a program says of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// Receive a packet, or post a request.
    First,
    /// Send a packet, or poll a completion.
    Second,
    Both,
    /// Bytes on PCIe.
    Bytes,
    /// Milliseconds from before the program began to its first packet.
    Start,
}

impl Part {
    const fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Both => "both",
            Self::Bytes => "bytes",
            Self::Start => "start",
        }
    }

    const fn unit(self, of: &Theirs) -> &'static str {
        match (self, of) {
            (Self::Bytes, Theirs::Dpdk { .. }) => "bytes/packet",
            (Self::Bytes, Theirs::Rdma { .. }) => "bytes/request",
            (Self::Start, _) => "ms",
            (Self::Second, Theirs::Rdma { .. }) => "cycles/completion",
            (_, Theirs::Dpdk { .. }) => "cycles/packet",
            (_, Theirs::Rdma { .. }) => "cycles/request",
        }
    }

    /// The number behind its word.
    fn of(self, said: &str) -> Option<f64> {
        said.split_whitespace().skip_while(|word| *word != self.word()).nth(1)?.parse().ok()
    }
}

/// A figure: the part, and the modes of each side of which the best counts.
struct Row {
    name: &'static str,
    target: Option<f64>,
    part: Part,
    ours: &'static [Ours],
    theirs: &'static [Theirs],
    /// The name of the same figure beside a native build of the peer, which has no bound.
    native: Option<&'static str>,
}

const fn row(
    name: &'static str,
    target: f64,
    part: Part,
    ours: &'static [Ours],
    theirs: &'static [Theirs],
) -> Row {
    Row { name, target: Some(target), part, ours, theirs, native: None }
}

impl Row {
    const fn also_native(self, name: &'static str) -> Self {
        Self { native: Some(name), ..self }
    }

    /// The rows that this one stands for: a name, a bound, the peer's build.
    fn figures(&self, native: bool) -> impl Iterator<Item = (&'static str, Option<f64>, Built)> {
        let beside_native = self.native.filter(|_| native).map(|name| (name, None, Built::Native));
        std::iter::once((self.name, self.target, Built::ForAll)).chain(beside_native)
    }
}

const ROWS: &[Row] = &[
    row("dpdk_mlx5_rx", 0.8, Part::First, mode::OURS, mode::DPDK).also_native("dpdk_mlx5_rx_native"),
    row("dpdk_mlx5_tx", 0.8, Part::Second, mode::OURS, mode::DPDK).also_native("dpdk_mlx5_tx_native"),
    row("dpdk_mlx5_io", 0.8, Part::Both, mode::OURS, mode::DPDK).also_native("dpdk_mlx5_io_native"),
    row("dpdk_mlx5_offloads", 0.8, Part::Both, mode::OURS_OFFLOADS, mode::DPDK_OFFLOADS)
        .also_native("dpdk_mlx5_offloads_native"),
    row("dpdk_mlx5_mprq", 0.9, Part::First, mode::OURS_STRIDING, mode::DPDK_STRIDING)
        .also_native("dpdk_mlx5_mprq_native"),
    row("dpdk_mlx5_cqe_comp", 0.9, Part::First, mode::OURS_COMPRESSED, mode::DPDK_COMPRESSED)
        .also_native("dpdk_mlx5_cqe_comp_native"),
    row("dpdk_mlx5_pcie", 1.0, Part::Bytes, mode::OURS_COMPRESSED, mode::DPDK_COMPRESSED),
    row("dpdk_mlx5_pcie_mprq", 1.0, Part::Bytes, mode::OURS_STRIDING, mode::DPDK_STRIDING),
    row("dpdk_mlx5_start", 0.2, Part::Start, mode::OURS_START, mode::DPDK_START),
    row("libmlx5_send", 0.8, Part::First, &[Ours::verbs("verbs_send64")], &mode::SEND),
    row("libmlx5_send_single", 0.8, Part::First, &[Ours::verbs("verbs_send64_single")], &mode::SEND_SINGLE),
    row("libmlx5_write", 0.8, Part::First, &[Ours::verbs("verbs_write8")], &mode::WRITE),
    row("libmlx5_write_single", 0.8, Part::First, mode::OUR_WRITE_SINGLE, &mode::WRITE_SINGLE),
    row("libmlx5_poll", 0.8, Part::Second, &[Ours::verbs("verbs_send64_signalled")], &mode::POLL),
    row(
        "libmlx5_poll_single",
        0.8,
        Part::Second,
        &[Ours::verbs("verbs_send64_polled_singly")],
        &mode::POLL_SINGLE,
    ),
    Row {
        target: None,
        ..row("libmlx5_pcie", 1.0, Part::Bytes, &[Ours::verbs("verbs_send64")], &mode::SEND)
    },
];

/// Measures all rows, or those whose names have the word.
///
/// # Errors
/// One line: the root cannot be made, a row was not measured, or one missed its bound (not with `--report-only` or `--once`).
pub(super) fn bench(args: &Args, native: bool) -> Outcome {
    let root = Root::prepare()?;
    if native {
        native::prepare(&root)?;
    }
    build(&["mlx5_rxtx32", "mlx5_start", "verbs_post", "mlx5-run"])?;
    for file in ["mlx5-run", "libpollux_mlx5_run.so"] {
        root.take(&release_dir().join(file))?;
    }
    let mut report = Report::new(Some(root.version.clone()));
    let mut failed = Vec::new();
    for row in ROWS.iter().filter(|row| args.only.as_deref().is_none_or(|word| row.name.contains(word))) {
        for (name, target, built) in row.figures(native) {
            let pairs = measure(row, &root, built, args).unwrap_or_else(|why| {
                failed.push(format!("{name}: {why}"));
                Vec::new()
            });
            let plan = Plan {
                target,
                from: Source::Witness,
                ..cycles(name, row.theirs.first().map_or("", |theirs| row.part.unit(theirs)), 0.0)
            };
            report.add(Figure::new(plan, &pairs, None));
        }
    }
    report.print(args.json);
    let behind = report.behind();
    if !behind.is_empty() && !args.report_only && !args.once {
        failed.push(format!("over their bounds: {}", behind.join(", ")));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn measure(row: &Row, root: &Root, built: Built, args: &Args) -> Outcome<Vec<Pair>> {
    // Once: no mode is looked for, the first is taken.
    let sweep = if args.once { 0 } else { SWEPT };
    let ours = best(row, "ours", row.ours, sweep, |mode| said(mode.command(row.part), row.part))?;
    let peer = if built == Built::Native { "native peer" } else { "peer" };
    let theirs =
        best(row, peer, row.theirs, sweep, |mode| said(mode.command(root, built, row.part), row.part))?;
    alternate(
        args.trials(),
        || said(ours.command(row.part), row.part),
        || said(theirs.command(root, built, row.part), row.part).map(Some),
    )
}

/// The mode with the least median; all are printed where there are several.
fn best<'a, T: std::fmt::Display>(
    row: &Row,
    side: &str,
    modes: &'a [T],
    trials: u32,
    mut run: impl FnMut(&T) -> Outcome<f64>,
) -> Outcome<&'a T> {
    let [first, others @ ..] = modes else { return Err("no mode".into()) };
    if others.is_empty() || trials == 0 {
        return Ok(first);
    }
    let mut best = None;
    for mode in modes {
        let taken = (0..trials).map(|_| run(mode)).collect::<Outcome<Vec<f64>>>();
        let value = taken.map_err(|why| format!("{mode}: {why}"))?;
        let value = median(&value).ok_or("no trial")?;
        eprintln!("{}, {side}: {value:.2} by {mode}", row.name);
        if best.is_none_or(|(least, _)| value < least) {
            best = Some((value, mode));
        }
    }
    best.map(|(_, mode)| mode).ok_or_else(|| "no mode".into())
}

/// One trial.
fn said(mut command: Command, part: Part) -> Outcome<f64> {
    let said = output(&mut command)?;
    said.lines().last().and_then(|line| part.of(line)).ok_or_else(|| format!("it said {said:?}"))
}

/// A program with the time before it in its environment.
fn timed(mut command: Command) -> Command {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    command.env("FIRST_PACKET_FROM", now.as_nanos().to_string());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_number_behind_its_word() {
        let line = "first 20.5 second 11.25 both 31.75 bytes 305.1 modes Vector SSE / Enhanced MPW";
        let parts = [Part::First, Part::Second, Part::Both, Part::Bytes, Part::Start];
        assert_eq!(
            parts.map(|part| part.of(line)),
            [Some(20.5), Some(11.25), Some(31.75), Some(305.1), None]
        );
    }

    #[test]
    fn the_best_mode_has_the_least_median() {
        let mut values = [3.0, 9.0, 3.0, 2.0, 4.0, 2.0, 1.0, 5.0, 5.0].into_iter();
        let found = best(&ROWS[0], "ours", &["a", "b", "c"], 3, |_| values.next().ok_or("no more".into()));
        assert_eq!(found.map(ToString::to_string), Ok("b".to_owned()));
        assert!(best(&ROWS[0], "ours", &["a", "b"], 1, |_| Err("it failed".into())).is_err());
    }
}
