//! The search for the highest value at which a device holds.

/// The highest of values up to `most` at which `holds` says yes, to within `step`; 0 if there is none above that. What holds is taken to hold at
/// every lower value, too.
pub(super) fn highest<E>(
    most: f64,
    step: f64,
    mut holds: impl FnMut(f64) -> Result<bool, E>,
) -> Result<f64, E> {
    if holds(most)? {
        return Ok(most);
    }
    let (mut good, mut bad) = (0.0, most);
    while bad - good > step {
        let middle = f64::midpoint(good, bad);
        // Of neighbours none is between.
        if middle <= good || middle >= bad {
            break;
        }
        if holds(middle)? { good = middle } else { bad = middle }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    fn found(most: f64, step: f64, limit: f64) -> (f64, u32) {
        let mut trials = 0;
        let found = highest(most, step, |value| {
            trials += 1;
            Ok::<_, Infallible>(value <= limit)
        });
        (found.unwrap_or_else(|never| match never {}), trials)
    }

    #[test]
    fn ends_are_found_at_once_or_by_halves() {
        assert_eq!(found(1000.0, 1.0, 1000.0), (1000.0, 1));
        assert_eq!(found(1000.0, 1.0, f64::MAX), (1000.0, 1));
        // Of a device that holds nothing: 1000 halved until less than a step is left.
        assert_eq!(found(1000.0, 1.0, -1.0), (0.0, 11));
        // A step of nothing ends, too.
        assert!(found(1000.0, 0.0, 333.3).1 < 80);
        assert_eq!(highest(1.0, 0.1, |_| Err::<bool, _>("stopped")), Err("stopped"));
    }

    proptest! {
        #[test]
        fn the_highest_is_found_to_within_a_step(most in 1.0..1e9_f64, limit in 0.0..1.0_f64, step in 1e-4..0.5_f64) {
            let (found, trials) = found(most, most * step, most * limit);
            prop_assert!(found <= most * limit && found + most * step >= most * limit);
            prop_assert!(trials <= 16);
        }
    }
}
