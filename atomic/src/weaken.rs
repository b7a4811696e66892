//! What a run of loom asks for.

use std::sync::OnceLock;

use crate::{Ordering, Relaxation, Verdict};

/// `NAME=ORDERING`: the one ordering that this run weakens.
const VARIABLE: &str = "POLLUX_RELAX";

/// See the crate's head.
#[must_use]
pub fn named(name: &str, strong: Ordering) -> Ordering {
    static ASKED: OnceLock<Option<(String, Ordering)>> = OnceLock::new();
    match ASKED.get_or_init(asked) {
        Some((weakened, weak)) if weakened == name => *weak,
        _ => strong,
    }
}

fn asked() -> Option<(String, Ordering)> {
    let text = std::env::var(VARIABLE).ok().filter(|text| !text.is_empty())?;
    let Some((name, weak)) = text.split_once('=') else { panic!("{VARIABLE}={text}: must be NAME=ORDERING") };
    let weak = match weak {
        "Relaxed" => Ordering::Relaxed,
        "Acquire" => Ordering::Acquire,
        "Release" => Ordering::Release,
        "AcqRel" => Ordering::AcqRel,
        _ => panic!("{VARIABLE}={text}: {weak} is none of Relaxed, Acquire, Release, AcqRel"),
    };
    Some((name.to_owned(), weak))
}

/// Writes a crate's table for `cargo xtask relaxations`, a line each: name, strong, weak, `found` or `survives`, test or reason.
pub fn print(table: &[Relaxation]) {
    for Relaxation { name, strong, weak, verdict } in table {
        let (word, text) = match verdict {
            Verdict::Found(test) => ("found", test),
            Verdict::Survives(reason) => ("survives", reason),
        };
        println!("\nrelaxation\t{name}\t{strong}\t{weak}\t{word}\t{text}");
    }
}

/// All interleavings of a scene, up to so many preemptions: enough for every bug known to need few. `POLLUX_PREEMPTIONS` lowers the bound of
/// all scenes: each preemption more takes some five times as long.
///
/// # Panics
/// The variable is not a number.
pub fn explore(preemptions: usize, scene: impl Fn() + Sync + Send + 'static) {
    let most =
        std::env::var("POLLUX_PREEMPTIONS").map(|text| text.parse().expect("POLLUX_PREEMPTIONS is a number"));
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(most.map_or(preemptions, |most| preemptions.min(most)));
    model.check(scene);
}
