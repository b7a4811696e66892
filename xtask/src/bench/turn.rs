//! Two programs in turn, and what one said.

use super::table::Pair;
use crate::run::Outcome;

pub(super) fn report(done: std::io::Result<std::process::Output>, what: &str) -> Outcome<serde_json::Value> {
    let done = done.map_err(|why| format!("cannot start {what}: {why}"))?;
    let text = String::from_utf8_lossy(&done.stdout);
    text.lines().last().and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| {
        let said = String::from_utf8_lossy(&done.stderr);
        format!("{what} gave no report: {}", said.lines().last().unwrap_or("it said nothing"))
    })
}

/// Alternates the two sides; the first of each is not kept.
pub(super) fn alternate(
    trials: u32,
    mut ours: impl FnMut() -> Outcome<f64>,
    mut peer: impl FnMut() -> Outcome<Option<f64>>,
) -> Outcome<Vec<Pair>> {
    let mut pairs = Vec::new();
    for trial in 0..=trials {
        let pair = if trial % 2 == 0 {
            let ours = ours()?;
            Pair { ours, peer: peer()?, copy: None }
        } else {
            let peer = peer()?;
            Pair { ours: ours()?, peer, copy: None }
        };
        if trial > 0 {
            pairs.push(pair);
        }
    }
    Ok(pairs)
}
