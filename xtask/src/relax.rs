//! The table of relaxations: each memory ordering that has a name is weakened, and the model that it names must fail.
//!
//! The orderings stand in `order.rs` of each crate (`pollux_atomic::orderings!`). The models are built once; each run is told by
//! `POLLUX_RELAX` which ordering it weakens.

use std::time::{Duration, Instant};

use crate::check::{LOOM_CRATES, loom_cargo};
use crate::interrupt;
use crate::run::{Outcome, output};
use crate::trial::{self, End, Tally, rounded};

/// One way to weaken an ordering, as its crate says.
#[derive(Debug, PartialEq, Eq)]
struct Relaxation {
    package: &'static str,
    name: String,
    strong: String,
    weak: String,
    verdict: Verdict,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// By this test.
    Found(String),
    /// For this reason.
    Survives(String),
}

/// Time for the models of a crate, with what is built of them.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Prints a line for each relaxation, and fails when one survives that should be found, or is found that is said to survive.
pub(crate) fn relaxations() -> Outcome {
    interrupt::listen()?;
    let mut all = Vec::new();
    for package in LOOM_CRATES {
        let text =
            output(loom_cargo(&[package], "relaxations").args(["--", "--nocapture", "--test-threads=1"]))?;
        let before = all.len();
        all.extend(text.lines().filter_map(|line| parse(package, line)));
        if all.len() == before {
            return Err(format!(
                "pollux-{package} names no relaxation: has its `relaxations` test been renamed?"
            ));
        }
    }
    let mut tally = Tally::default();
    for relaxation in &all {
        let Relaxation { package, name, strong, weak, verdict } = relaxation;
        let begin = Instant::now();
        // What is said to survive is held against all models of its crate.
        let test = match verdict {
            Verdict::Found(test) => test.as_str(),
            Verdict::Survives(_) => "loom_tests",
        };
        let end = weakened(package, test, &format!("{name}={weak}"))?;
        let (as_said, why) = match (&end, verdict) {
            // A model that panics while it unwinds ends its program.
            (End::Failed(_) | End::Died(_), Verdict::Found(test)) => (true, format!("by {test}")),
            (End::Passed, Verdict::Survives(reason)) => (true, reason.clone()),
            (End::Passed, Verdict::Found(test)) => (false, format!("WRONG: {test} passes all the same")),
            (End::Failed(failures), Verdict::Survives(_)) => {
                let test = failures.first().map_or("", |failure| failure.test.as_str());
                (false, format!("WRONG: said to survive; name the test that finds it: {test}"))
            }
            (other, _) => (false, format!("WRONG: {test} neither passes nor fails: {other:?}")),
        };
        let word = tally.count(matches!(end, End::Failed(_) | End::Died(_)), as_said);
        let change = format!("{strong} to {weak}");
        println!("{package:<8} {name:<20} {change:<20} {word:<9} {:>6} ms  {why}", rounded(begin.elapsed()));
    }
    println!("{}", tally.told("relaxations"));
    if tally.wrong == 0 {
        Ok(())
    } else {
        Err(format!("{} relaxations are not as their `order.rs` says", tally.wrong))
    }
}

fn parse(package: &'static str, line: &str) -> Option<Relaxation> {
    let mut fields = line.split('\t');
    if fields.next() != Some("relaxation") {
        return None;
    }
    let mut next = || fields.next().map(str::to_owned);
    let (name, strong, weak, word, text) = (next()?, next()?, next()?, next()?, next()?);
    let verdict = if word == "found" { Verdict::Found(text) } else { Verdict::Survives(text) };
    Some(Relaxation { package, name, strong, weak, verdict })
}

/// Runs the tests whose names have `test` in them with one ordering weakened.
fn weakened(package: &str, test: &str, relax: &str) -> Outcome<End> {
    let trial = trial::run(loom_cargo(&[package], test).env("POLLUX_RELAX", relax), PATIENCE)?;
    if !trial.said.contains("running ") {
        return Err(format!("pollux-{package}: no model ran: {}", trial.said));
    }
    if trial.said.contains("running 0 tests") {
        return Err(format!("pollux-{package} has no model named {test}, which its order.rs names"));
    }
    Ok(trial.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_crate_is_read() {
        let line = "relaxation\tspsc_put\tRelease\tRelaxed\tfound\tspsc_in_order";
        let read = parse("ring", line).expect("it is one");
        assert_eq!((read.name.as_str(), read.weak.as_str()), ("spsc_put", "Relaxed"));
        assert_eq!(read.verdict, Verdict::Found("spsc_in_order".into()));
        let kept = parse("eal", "relaxation\ta\tAcqRel\tRelease\tsurvives\tfor a reason");
        assert_eq!(kept.map(|kept| kept.verdict), Some(Verdict::Survives("for a reason".into())));
        assert_eq!(parse("eal", "test loom_tests::relaxations ... ok"), None);
    }
}
