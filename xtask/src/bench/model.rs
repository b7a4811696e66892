//! Figures on device models: programs that print a line a figure.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::table::{Copy, Model, Pair, Plan, Source};
use crate::run::{Outcome, release_dir};

/// The most of a timed part that may be lost to others for it to count as quiet: involuntary switches a round, and the share of
/// the processors' time that the hypervisor gave away.
const DISTURBED_MOST: f64 = 0.01;
/// How often a run that was disturbed is taken again where that is wanted, and the pause before.
const RETRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(15);

/// The figures of the plan that programs on device models take. A program that fails is an error beside what its runs before, and
/// the other programs, gave.
pub(crate) fn measure(
    plan: &[Plan],
    trials: u32,
    quiet_retry: bool,
    measured: &mut BTreeMap<&'static str, Vec<Pair>>,
    failed: &mut Vec<String>,
) {
    let mut retries = if quiet_retry { RETRIES } else { 0 };
    let patient = |program, args: &[&'static str]| loop {
        let said = run(program, args)?;
        let Some(disturbed) = most_disturbed(&said).filter(|_| quiet_retry) else { return Ok(said) };
        if retries == 0 {
            return Err(format!("no quiet run: {disturbed} in {program}; end what else runs here"));
        }
        retries -= 1;
        eprintln!("xtask: not quiet: {disturbed} in {program}; again in {} s", PAUSE.as_secs());
        std::thread::sleep(PAUSE);
    };
    by(plan, trials, patient, measured, failed);
}

/// The first line that tells of a part that others disturbed, in words.
fn most_disturbed(said: &str) -> Option<String> {
    said.lines().find_map(|line| {
        let copy = copy_of(line)?;
        (!copy.is_quiet())
            .then(|| format!("{} of {}", copy.disturbance(), line.split_whitespace().next().unwrap_or("?")))
    })
}

fn by(
    plan: &[Plan],
    trials: u32,
    mut run: impl FnMut(&'static str, &[&'static str]) -> Outcome<String>,
    measured: &mut BTreeMap<&'static str, Vec<Pair>>,
    failed: &mut Vec<String>,
) {
    let mut programs: BTreeMap<&str, (&Model, Vec<&'static str>)> = BTreeMap::new();
    for step in plan {
        if let Source::Model(model) = step.from {
            programs.entry(model.program).or_insert((model, Vec::new())).1.push(step.name);
        }
    }
    for (model, figures) in programs.into_values() {
        // One figure alone is asked for by its name; of several, all are run.
        let only = if model.by_name && figures.len() == 1 { &figures[..] } else { &[] };
        let args = [model.args, only].concat();
        for _ in 0..trials.min(model.runs) {
            match run(model.program, &args) {
                Ok(said) => take(&said, &figures, measured),
                Err(why) => {
                    failed.push(format!("{}: {why}", model.program));
                    break;
                }
            }
        }
    }
}

fn run(program: &'static str, args: &[&'static str]) -> Outcome<String> {
    let done = Command::new(release_dir().join(program)).args(args).stderr(Stdio::piped()).output();
    let done = done.map_err(|why| format!("cannot be started: {why}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(format!("ended with {}: {}", done.status, said.trim()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// Reads lines of a figure's name and its value; there are others.
fn take(said: &str, figures: &[&'static str], measured: &mut BTreeMap<&'static str, Vec<Pair>>) {
    for line in said.lines() {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next(), words.next().and_then(|value| value.parse().ok()));
        let figure = figures.iter().find(|figure| Some(**figure) == name);
        if let (Some(figure), Some(ours)) = (figure, value) {
            measured.entry(figure).or_default().push(Pair { ours, peer: None, copy: copy_of(line) });
        }
    }
}

/// What stands behind name and value, as the programs' `Trial` is printed, where the figure has a copy loop beside it.
fn copy_of(line: &str) -> Option<Copy> {
    let of = |key: &str| -> Option<f64> {
        line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
    };
    Some(Copy {
        cold: of("cold")?,
        warm_loop: of("copy")?,
        cold_loop: of("copy_cold")?,
        switched: of("switched")?,
        stolen: of("stolen")?,
        most: DISTURBED_MOST,
    })
}

#[cfg(test)]
mod tests {
    use super::super::table::PLAN;
    use super::*;

    #[test]
    fn a_program_that_fails_takes_no_other_figure_along() {
        let (mut measured, mut failed) = (BTreeMap::new(), Vec::new());
        let mut l2fwds = 0;
        let run = |program: &'static str, args: &[&'static str]| match program {
            "mlx5_l2fwd" => {
                l2fwds += 1;
                if l2fwds > 1 { Err("1 packet lost".into()) } else { Ok("mlx5_l2fwd 2.25\n".into()) }
            }
            "verbs_post" => Err("no memory".into()),
            "mlx5_start" => Ok("mlx5_start 2.5\n".into()),
            _ => {
                assert_eq!((program, args), ("mlx5_rxtx32", &["--trial"][..]));
                Ok("way rx tx\nmlx5_rxtx32 32.6 PCIe\nmlx5_empw 34.6\nnull_io 1\n".into())
            }
        };
        by(PLAN, 7, run, &mut measured, &mut failed);
        let taken = |name: &str| measured.get(name).map_or(0, Vec::len);
        assert_eq!(["mlx5_rxtx32", "mlx5_empw", "mlx5_start", "mlx5_l2fwd"].map(taken), [5, 5, 7, 1]);
        assert_eq!(measured.len(), 4, "{:?}", measured.keys());
        assert_eq!(failed, ["mlx5_l2fwd: 1 packet lost", "verbs_post: no memory"]);
    }

    #[test]
    fn a_disturbed_line_is_told_and_a_quiet_one_is_not() {
        let line = |switched, stolen| {
            format!(
                "mlx5_rxtx32 40.5 cold=120.0 copy=20.0 copy_cold=80.0 switched={switched} stolen={stolen}\n"
            )
        };
        assert_eq!(most_disturbed(&line(0.01, 0.0)), None);
        assert_eq!(most_disturbed("mlx5_start 2.5 model=1.0\n"), None);
        let loud = |switched, stolen| most_disturbed(&line(switched, stolen)).unwrap_or_default();
        assert_eq!(loud(0.02, 0.0), "2.0 involuntary switches in 100 rounds of mlx5_rxtx32");
        assert_eq!(loud(0.0, 0.05), "5.0 % of the time stolen of mlx5_rxtx32");
    }

    #[test]
    fn one_figure_is_asked_for_by_its_name_where_the_program_knows_names() {
        for (name, expected) in
            [("mlx5_scalar", &["--trial", "mlx5_scalar"][..]), ("mlx5_l2fwd_rx", &["1"]), ("null_io", &[])]
        {
            let mut asked = Vec::new();
            let plan: Vec<Plan> = PLAN.iter().copied().filter(|step| step.name == name).collect();
            let run = |_: &'static str, args: &[&'static str]| {
                asked = args.to_vec();
                Ok(String::new())
            };
            by(&plan, 1, run, &mut BTreeMap::new(), &mut Vec::new());
            assert_eq!(asked, expected, "{name}");
        }
    }
}
