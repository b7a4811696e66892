//! How much a test does that has a long form.

use std::str::FromStr;

/// As much as an environment variable says, which `cargo xtask nightly` sets, else so much.
///
/// # Panics
/// The variable is no such number.
#[must_use]
pub fn amount<N: FromStr>(variable: &str, otherwise: N) -> N {
    let Ok(said) = std::env::var(variable) else { return otherwise };
    said.parse().unwrap_or_else(|_| panic!("{variable}={said}: not a number that this test takes"))
}
