//! Sizes of frames, their check sequences counted: one, several in turn, or a mix.

use std::str::FromStr;

/// Shortest: below it, a wire carries padding (IEEE 802.3).
pub(crate) const SIZE_MIN: u16 = 64;
/// Longest: a jumbo frame, of an MTU of 9000.
pub(crate) const SIZE_MAX: u16 = 9018;
/// The most frames of a turn.
const TURN_MAX: usize = 4096;
/// The usual Internet mix: 7 small, 4 middle, 1 large.
const IMIX: [(u16, usize); 3] = [(64, 7), (594, 4), (1518, 1)];

/// Sizes, one for each packet of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u16>);

impl Default for Sizes {
    fn default() -> Self {
        Self(vec![SIZE_MIN])
    }
}

impl FromStr for Sizes {
    type Err = String;

    /// What is wrong is said behind the text.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "imix" {
            return Ok(Self(mixed(&IMIX)));
        }
        let wrong = || {
            "is not a size such as 64, sizes such as 64x7,594x4,1518, a range such as 64..1518+2, or imix"
                .to_owned()
        };
        let mut parts = Vec::new();
        for part in text.split(',') {
            if let Some((first, rest)) = part.split_once("..") {
                let (last, step) = rest.split_once('+').unwrap_or((rest, "1"));
                let (first, last) = (size(first)?, size(last)?);
                let step: usize = step.trim().parse().ok().filter(|step| *step > 0).ok_or_else(wrong)?;
                if last < first {
                    return Err(wrong());
                }
                parts.extend((first..=last).step_by(step).map(|size| (size, 1)));
            } else {
                let (one, times) = part.split_once('x').unwrap_or((part, "1"));
                let times = times.trim().parse().ok().filter(|times| *times > 0).ok_or_else(wrong)?;
                parts.push((size(one)?, times));
            }
            if parts.iter().map(|(_, times)| *times).fold(0, usize::saturating_add) > TURN_MAX {
                return Err(format!("has too many frames in a turn: at most {TURN_MAX}"));
            }
        }
        Ok(Self(mixed(&parts)))
    }
}

fn size(text: &str) -> Result<u16, String> {
    let size = text.trim().parse().ok().filter(|size| (SIZE_MIN..=SIZE_MAX).contains(size));
    size.ok_or_else(|| {
        format!(
            "has size '{}', which is not a whole number of bytes from {SIZE_MIN} to {SIZE_MAX}, FCS included",
            text.trim()
        )
    })
}

/// Each size as often as it is to come, spread evenly over the turn.
fn mixed(parts: &[(u16, usize)]) -> Vec<u16> {
    let all: usize = parts.iter().map(|(_, times)| times).sum();
    let mut places: Vec<(f64, u16)> = Vec::with_capacity(all);
    for (size, times) in parts {
        let apart = all as f64 / *times as f64;
        places.extend((0..*times).map(|number| ((number as f64 + 0.5) * apart, *size)));
    }
    places.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    places.into_iter().map(|(_, size)| size).collect()
}

impl Sizes {
    /// Bytes of a frame on average.
    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().map(|size| f64::from(*size)).sum::<f64>() / self.0.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let read = |text: &str| text.parse::<Sizes>().map(|sizes| sizes.0);
        assert_eq!(read("64"), Ok(vec![64]));
        assert_eq!(read("64,128"), Ok(vec![64, 128]));
        assert_eq!(read("64..70+3"), Ok(vec![64, 67, 70]));
        let imix = read("imix").expect("sizes");
        let count = |size| imix.iter().filter(|one| **one == size).count();
        assert_eq!([count(64), count(594), count(1518)], [7, 4, 1]);
        assert!(imix.windows(4).all(|four| four.contains(&64)), "{imix:?}");
        assert_eq!(read("1518,594x4,64x7").expect("sizes").iter().filter(|size| **size == 594).count(), 4);
        assert!((361.0..363.0).contains(&"imix".parse::<Sizes>().expect("sizes").mean()));
        for (text, why) in [
            ("63", "has size '63', which is not a whole number of bytes from 64 to 9018, FCS included"),
            ("64,", "has size '', which is not"),
            ("9019", "has size '9019', which is not"),
            ("64x0", "is not a size such as 64"),
            ("128..64", "is not a size such as 64"),
            ("64..128+0", "is not a size such as 64"),
            ("64x5000", "has too many frames in a turn: at most 4096"),
            ("64x18446744073709551615,64x2", "has too many frames"),
        ] {
            assert!(read(text).is_err_and(|refusal| refusal.starts_with(why)), "{text}: {:?}", read(text));
        }
    }
}
