//! Broken rules: the driver with one rule forgotten, against the tests that anyone runs. A rule that can be broken unseen is one
//! that the next change may lose.
//!
//! The rules stand in `xtask/mutants/*.toml`, each with what breaks it and the tests that find it. All are built at once, into a
//! copy of the workspace ([`tree`]); a run is told by `POLLUX_MUTANT` which one is broken. Found is what an assertion or a rule of
//! the device model has words for, in three runs of three: no time-out, no fault of the language, no death by signal.

pub(crate) mod program;
pub(crate) mod table;
pub(crate) mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use self::program::{Programs, Scope};
use self::table::{Mutant, Program, Witness};
use crate::interrupt;
use crate::run::Outcome;
use crate::trial::{End, Failure, Tally, rounded};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Mutants to run [default: all]
    names: Vec<String>,
    /// Run only the subset that every change must pass
    #[arg(long, conflicts_with = "names")]
    named: bool,
    /// List the mutants and exit
    #[arg(long)]
    list: bool,
}

impl Args {
    /// Every one.
    pub(crate) fn all() -> Self {
        Self { names: Vec::new(), named: false, list: false }
    }
}

/// How often a rule has to be found, of as many runs.
const RUNS: usize = 3;

/// Time for the tests that are named for a mutant, and for a whole program of tests. The longest of these takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_WHOLE: Duration = Duration::from_secs(300);

/// What came of a mutant.
#[derive(Debug)]
enum Verdict {
    /// By this test, in these words.
    Found(Witness, String),
    /// By all tests of a table: so many.
    FoundByEvery(Witness, usize, String),
    /// By none: what there was to be seen.
    Survived(String),
}

/// Prints a line for each mutant, and fails when one survives without a reason, or is found that is said to survive.
pub(crate) fn mutants(args: &Args) -> Outcome {
    let all = table::read()?;
    let chosen = choose(&all, args)?;
    if args.list {
        chosen.iter().for_each(|mutant| println!("{:<44} {}", mutant.name, mutant.rule));
        return Ok(());
    }
    interrupt::listen()?;
    tree::write(&all)?;
    let witnesses: BTreeSet<Witness> = chosen.iter().flat_map(|mutant| mutant.witnesses()).collect();
    let programs = Programs::build(&Scope::Of(witnesses.iter().map(|one| one.program.clone()).collect()))?;
    healthy(&programs, &chosen, &witnesses)?;
    let bench = Bench { programs, whole: Mutex::new(None) };
    let tally = bench.try_all(&chosen)?;
    println!("{}", tally.told("mutants"));
    if tally.wrong == 0 {
        Ok(())
    } else {
        Err(format!("{} mutants are not as their table says (xtask/mutants)", tally.wrong))
    }
}

fn choose<'t>(all: &'t [Mutant], args: &Args) -> Outcome<Vec<&'t Mutant>> {
    if let Some(name) = args.names.iter().find(|name| !all.iter().any(|mutant| mutant.name == **name)) {
        return Err(format!("no mutant is called {name}; `cargo xtask mutants --list` says what there is"));
    }
    let wanted = |mutant: &&Mutant| {
        if args.named { mutant.named } else { args.names.is_empty() || args.names.contains(&mutant.name) }
    };
    Ok(all.iter().filter(wanted).collect())
}

/// That the tests pass where no rule is broken: one that fails anyway finds nothing.
fn healthy(programs: &Programs, chosen: &[&Mutant], witnesses: &BTreeSet<Witness>) -> Outcome {
    let mut single: BTreeMap<&Program, Vec<&str>> = BTreeMap::new();
    let tables: BTreeSet<_> = chosen.iter().filter_map(|mutant| mutant.found_by_every.as_ref()).collect();
    for witness in witnesses {
        let is_table = tables.contains(&witness.to_string());
        let names = programs.names(witness, !is_table)?;
        if names.is_empty() {
            return Err(format!("no test is called {witness}, which xtask/mutants names"));
        }
        single.entry(&witness.program).or_default().push(&witness.test);
    }
    for (program, tests) in single {
        let end = programs.run(program, &tests, false, None, PATIENCE_WHOLE)?;
        if end != End::Passed {
            return Err(format!("{program}: its tests do not pass where no rule is broken: {end:?}"));
        }
    }
    Ok(())
}

/// What mutants are tried on.
struct Bench {
    programs: Programs,
    /// All tests that anyone runs, once one mutant needs them.
    whole: Mutex<Option<Programs>>,
}

impl Bench {
    fn try_all(&self, chosen: &[&Mutant]) -> Outcome<Tally> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(chosen.len());
        let (next, given_up) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (done, results) = mpsc::channel();
        let mut tally = Tally::default();
        let mut waiting = BTreeMap::new();
        let mut at = 0;
        let mut failed = None;
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let (done, next, given_up) = (done.clone(), &next, &given_up);
                scope.spawn(move || {
                    while !given_up.load(Ordering::Relaxed) {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(mutant) = chosen.get(index) else { break };
                        let begin = Instant::now();
                        let outcome = self.try_one(mutant);
                        given_up.fetch_or(outcome.is_err(), Ordering::Relaxed);
                        if done.send((index, outcome, begin.elapsed())).is_err() {
                            break;
                        }
                    }
                });
            }
            drop(done);
            for (index, outcome, time) in results {
                match outcome {
                    Ok(verdict) => drop(waiting.insert(index, (verdict, time))),
                    Err(why) => drop(failed.get_or_insert(why)),
                }
                // In the table's order.
                while let Some((verdict, time)) = waiting.remove(&at) {
                    tell(chosen[at], &verdict, time, &mut tally);
                    at += 1;
                }
            }
        });
        failed.map_or(Ok(tally), Err)
    }

    fn try_one(&self, mutant: &Mutant) -> Outcome<Verdict> {
        let mut seen = Vec::new();
        for witness in mutant.witnesses() {
            if Some(witness.to_string()) == mutant.found_by_every {
                return self.try_table(mutant, &witness);
            }
            match self.found(mutant, &witness)? {
                Ok(words) => return Ok(Verdict::Found(witness, words)),
                Err(why) => seen.push(format!("{witness} {why}")),
            }
        }
        self.try_whole(mutant, seen)
    }

    /// Whether one test finds it each time: its words, or what happens instead.
    fn found(&self, mutant: &Mutant, witness: &Witness) -> Outcome<Result<String, String>> {
        let mut words = None;
        for run in 1..=RUNS {
            let programs = &self.programs;
            let end = programs.run(&witness.program, &[&witness.test], true, Some(&mutant.name), PATIENCE)?;
            match end {
                End::Failed(failures) => match failures.first() {
                    Some(failure) if failure.is_named() => drop(words.get_or_insert(failure.brief())),
                    failure => return Ok(Err(format!("fails by no assertion: {failure:?}"))),
                },
                End::Passed if run == 1 => return Ok(Err("passes".into())),
                End::Passed => return Ok(Err(format!("fails {} times and then passes", run - 1))),
                End::Hung => return Ok(Err(format!("hangs for {PATIENCE:?}"))),
                End::Died(how) => return Ok(Err(format!("dies: {how}"))),
            }
        }
        Ok(Ok(words.unwrap_or_default()))
    }

    /// A table of tests, each of which finds it.
    fn try_table(&self, mutant: &Mutant, witness: &Witness) -> Outcome<Verdict> {
        let names = self.programs.names(witness, false)?;
        let stranger = mutant.harmless.values().flatten().find(|name| !names.contains(*name));
        if let Some(name) = stranger {
            return Err(format!("mutant {}: no test is called {name} of {witness}", mutant.name));
        }
        let mut first = String::new();
        for _ in 0..RUNS {
            let programs = &self.programs;
            let failures = match programs.run(
                &witness.program,
                &[&witness.test],
                false,
                Some(&mutant.name),
                PATIENCE_WHOLE,
            )? {
                End::Passed => Vec::new(),
                End::Failed(failures) => failures,
                other => return Ok(Verdict::Survived(format!("{witness}: {other:?}"))),
            };
            for name in &names {
                let failure = failures.iter().find(|failure| failure.test == *name);
                let named = failure.filter(|failure| failure.is_named());
                match (named, mutant.is_harmless(name)) {
                    (Some(failure), false) if first.is_empty() => first = failure.brief(),
                    (Some(_), false) => {}
                    (None, true) if failure.is_none() => {}
                    (_, true) => {
                        return Ok(Verdict::Survived(format!(
                            "{name} finds it, where it is said to be harmless"
                        )));
                    }
                    (None, false) => {
                        return Ok(Verdict::Survived(format!("{name} does not find it: {failure:?}")));
                    }
                }
            }
        }
        Ok(Verdict::FoundByEvery(
            witness.clone(),
            names.iter().filter(|name| !mutant.is_harmless(name)).count(),
            first,
        ))
    }

    /// All tests that anyone runs.
    fn try_whole(&self, mutant: &Mutant, mut seen: Vec<String>) -> Outcome<Verdict> {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let programs = match &mut *whole {
            Some(programs) => programs.clone(),
            none => none.insert(Programs::build(&Scope::Whole)?).clone(),
        };
        drop(whole);
        for program in programs.all() {
            let end = programs.run(program, &[], false, Some(&mutant.name), PATIENCE_WHOLE)?;
            let failures = match end {
                End::Passed => continue,
                End::Failed(failures) => failures,
                End::Hung => {
                    seen.push(format!("{program} hangs"));
                    continue;
                }
                End::Died(how) => {
                    seen.push(format!("{program} dies: {how}"));
                    continue;
                }
            };
            let named: Vec<&Failure> = failures.iter().filter(|failure| failure.is_named()).collect();
            for failure in named.into_iter().take(3) {
                let witness = Witness { program: program.clone(), test: failure.test.clone() };
                let bench = Bench { programs: programs.clone(), whole: Mutex::new(None) };
                if let Ok(words) = bench.found(mutant, &witness)? {
                    return Ok(Verdict::Found(witness, words));
                }
                seen.push(format!("{witness} fails now and then"));
            }
        }
        Ok(Verdict::Survived(seen.join("; ")))
    }
}

fn tell(mutant: &Mutant, verdict: &Verdict, time: Duration, tally: &mut Tally) {
    let (found, as_said, why) = match (verdict, &mutant.survives) {
        (Verdict::Found(witness, words), None) => (true, true, format!("by {witness}: {words}")),
        (Verdict::FoundByEvery(witness, count, words), None) => {
            (true, true, format!("by each of {count} tests {witness}*: {words}"))
        }
        (Verdict::Found(witness, words), Some(_)) => {
            (true, false, format!("WRONG: said to survive; name the test that finds it: {witness}: {words}"))
        }
        (Verdict::FoundByEvery(witness, ..), Some(_)) => {
            (true, false, format!("WRONG: said to survive; {witness}"))
        }
        (Verdict::Survived(_), Some(reason)) => (false, true, reason.clone()),
        (Verdict::Survived(seen), None) => (false, false, format!("WRONG: no test finds it: {seen}")),
    };
    let word = tally.count(found, as_said);
    println!("{:<44} {word:<9} {:>6} ms  {why}", mutant.name, rounded(time));
}
