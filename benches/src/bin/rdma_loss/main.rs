//! Go-back-N against selective repeat, by loss rate and delay, on a modelled network: goodput and the 99th percentile of latency.
//!
//! Two device models and the wire between them go by a clock of steps of a microsecond, so a run depends on its seed alone: the
//! same figures come out on any machine, in any build, under any load. The wire carries 100 Gbit/s each way, each frame with its
//! 24 bytes of preamble, check sequence and gap, and loses frames of both ways alike. The sender keeps [`run::DEPTH`] WRITEs under
//! way on one RC queue pair; latency is from the post to the completion, and so holds the wait behind what was posted before.
//!
//! `cargo run --release -p pollux-benches --bin rdma_loss [-- --svg FILE]`: the table, and the plot to FILE.

mod link;
mod plot;
mod run;

use std::error::Error;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use pollux_bringup::program::tell;
use run::{Found, Way};

/// Shares of frames that are lost.
const LOSSES: [f64; 4] = [0.0, 0.0001, 0.001, 0.01];
/// One way.
const DELAYS: [Duration; 3] =
    [Duration::from_micros(1), Duration::from_micros(10), Duration::from_micros(100)];
/// Each cell is the median of so many runs by goodput, and of all their messages by latency.
const SEEDS: [u64; 3] = [1, 2, 3];
/// Messages of a run.
const MESSAGES: usize = 4096;

/// A cell of the table.
#[derive(Clone, Debug)]
struct Cell {
    way: Way,
    loss: f64,
    delay: Duration,
    found: Found,
}

fn cells() -> Result<Vec<Cell>, Box<dyn Error>> {
    let mut cells = Vec::new();
    for delay in DELAYS {
        for loss in LOSSES {
            for way in [Way::GoBackN, Way::SelectiveRepeat] {
                // Without loss there is nothing that a seed could change.
                let seeds = if loss == 0.0 { &SEEDS[..1] } else { &SEEDS };
                let runs = seeds.iter().map(|seed| run::run(way, loss, delay, *seed, MESSAGES));
                let found = Found::of(runs.collect::<Result<Vec<_>, _>>()?);
                cells.push(Cell { way, loss, delay, found });
            }
        }
    }
    Ok(cells)
}

fn percent(share: f64) -> String {
    format!("{} %", share * 100.0)
}

fn table(cells: &[Cell]) -> String {
    let mut text = String::from(
        "| delay, one way | loss | go-back-N: Gbit/s | 99 %, us | sent again | selective repeat: Gbit/s | 99 %, us | sent again |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for pair in cells.chunks(2) {
        let [one, two] = pair else { continue };
        let _ = write!(text, "| {} us | {} |", one.delay.as_micros(), percent(one.loss));
        for cell in [one, two] {
            let Found { goodput, p99, again, .. } = &cell.found;
            let _ = write!(text, " {goodput:.1} | {:.0} | {:.2} % |", p99 / 1e3, again * 100.0);
        }
        text.push('\n');
    }
    text
}

fn study() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let svg = match (words.next().as_deref(), words.next()) {
        (None, _) => None,
        (Some("--svg"), Some(file)) => Some(file),
        _ => return Err("allowed is --svg FILE, or nothing".into()),
    };
    let cells = cells()?;
    if let Some(file) = svg {
        std::fs::write(&file, plot::svg(&cells)).map_err(|error| format!("cannot write {file}: {error}"))?;
    }
    tell(format_args!("{}", table(&cells).trim_end()));
    Ok(())
}

fn main() -> ExitCode {
    match study() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("rdma_loss: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_run_and_another_one_another() {
        let once = |seed| run::run(Way::SelectiveRepeat, 0.01, DELAYS[1], seed, 200).expect("a run");
        assert_eq!(once(1), once(1));
        assert_ne!(once(1).latencies, once(2).latencies);
    }

    #[test]
    fn nothing_is_sent_again_without_loss_and_less_with_selective_repeat() {
        let run = |way, loss| Found::of(vec![run::run(way, loss, DELAYS[1], 1, 500).expect("a run")]);
        for way in [Way::GoBackN, Way::SelectiveRepeat] {
            let found = run(way, 0.0);
            assert!(found.again == 0.0 && (80.0..100.0).contains(&found.goodput), "{way:?}: {found:?}");
        }
        let (back, selective) = (run(Way::GoBackN, 0.01), run(Way::SelectiveRepeat, 0.01));
        assert!(back.again > 2.0 * selective.again && selective.again > 0.0, "{back:?} {selective:?}");
        assert!(selective.goodput > back.goodput, "{back:?} {selective:?}");
    }

    #[test]
    fn table_and_plot_have_every_cell() {
        let found = Found { goodput: 90.0, p99: 1000.0, again: 0.5 };
        let cell = |way, loss, delay| Cell { way, loss, delay, found: found.clone() };
        let cells: Vec<Cell> = DELAYS
            .iter()
            .flat_map(|delay| LOSSES.map(|loss| (loss, *delay)))
            .flat_map(|(loss, delay)| [Way::GoBackN, Way::SelectiveRepeat].map(|way| cell(way, loss, delay)))
            .collect();
        assert_eq!(table(&cells).lines().count(), 2 + LOSSES.len() * DELAYS.len());
        let svg = plot::svg(&cells);
        assert_eq!(svg.matches("<polyline").count(), 2 * 2 * DELAYS.len());
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
