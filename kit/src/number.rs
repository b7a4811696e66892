//! Numbers that options take; each refusal is what clap puts behind the option.

/// A time above zero.
///
/// # Errors
/// A sentence when it is none.
pub fn seconds(text: &str) -> Result<f64, String> {
    // The longest time: a thousand years, well inside what the clock counts.
    let time = text.parse().ok().filter(|time| (1e-6..3e10).contains(time));
    time.ok_or_else(|| "is not a time in seconds above 0, such as 10 or 0.5".into())
}

/// A count from 1 to what no machine has.
///
/// # Errors
/// A sentence when it is none.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    const MOST: usize = 1 << 31;
    let count = text.parse().ok().filter(|count| (1..=MOST).contains(count));
    count.ok_or_else(|| format!("is not a whole number from 1 to {MOST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_none_is_refused() {
        assert_eq!((seconds("0.5"), at_least_one("1")), (Ok(0.5), Ok(1)));
        assert!(["0", "-1", "inf", "nan", "", "1e11"].iter().all(|text| seconds(text).is_err()));
        assert!(["0", "-1", "1.5", "", "99999999999"].iter().all(|text| at_least_one(text).is_err()));
    }
}
