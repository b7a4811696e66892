//! How long things may take, on a machine that is slow.

use std::time::Duration;

/// A limit, as many times as `POLLUX_PATIENCE` says, which `cargo xtask vm --patience` sets in its guests; once without that.
#[must_use]
pub fn patient(limit: Duration) -> Duration {
    times(limit, std::env::var("POLLUX_PATIENCE").ok().as_deref())
}

fn times(limit: Duration, said: Option<&str>) -> Duration {
    let factor =
        said.and_then(|said| said.parse::<f64>().ok()).filter(|factor| (1.0..=100.0).contains(factor));
    limit.mul_f64(factor.unwrap_or(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_never_less_than_itself() {
        let limit = Duration::from_secs(10);
        assert_eq!(times(limit, Some("2.5")), Duration::from_secs(25));
        for said in [None, Some("1"), Some("0.1"), Some("inf"), Some("much")] {
            assert_eq!(times(limit, said), limit, "{said:?}");
        }
    }
}
