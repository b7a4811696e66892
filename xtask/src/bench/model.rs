//! Figures on device models: programs that print a line a figure.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use super::table::{Model, Pair, Plan, Source};
use crate::run::{Outcome, release_dir};

/// The figures of the plan that programs on device models take. A program that fails is an error beside what its runs before, and
/// the other programs, gave.
pub(crate) fn measure(
    plan: &[Plan],
    trials: u32,
    measured: &mut BTreeMap<&'static str, Vec<Pair>>,
    failed: &mut Vec<String>,
) {
    by(plan, trials, run, measured, failed);
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
            measured.entry(figure).or_default().push(Pair { ours, peer: None });
        }
    }
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
