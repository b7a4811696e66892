//! How fast a stream is: packets, bits or a share of the link, a second.

use std::str::FromStr;

/// Bytes of a packet on the wire beside its frame: preamble, start of frame and the gap to the next one (IEEE 802.3).
pub(crate) const GAP: f64 = 20.0;

/// A rate as it is typed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Rate {
    /// As fast as it goes.
    #[default]
    Max,
    /// Packets a second.
    Packets(f64),
    /// Bits of frames a second, their check sequences counted.
    Layer2(f64),
    /// Bits on the wire a second: with preamble and gap.
    Layer1(f64),
    /// Per cent of the link, on the wire.
    Percent(f64),
}

impl FromStr for Rate {
    type Err = String;

    /// What is wrong is said behind the text.
    fn from_str(text: &str) -> Result<Self, String> {
        type Unit = (&'static str, f64, fn(f64) -> Rate);
        const UNITS: [Unit; 20] = [
            ("pps", 1.0, Rate::Packets),
            ("kpps", 1e3, Rate::Packets),
            ("mpps", 1e6, Rate::Packets),
            ("gpps", 1e9, Rate::Packets),
            ("bit", 1.0, Rate::Layer2),
            ("kbit", 1e3, Rate::Layer2),
            ("mbit", 1e6, Rate::Layer2),
            ("gbit", 1e9, Rate::Layer2),
            ("bps", 1.0, Rate::Layer2),
            ("kbps", 1e3, Rate::Layer2),
            ("mbps", 1e6, Rate::Layer2),
            ("gbps", 1e9, Rate::Layer2),
            ("bitl1", 1.0, Rate::Layer1),
            ("kbitl1", 1e3, Rate::Layer1),
            ("mbitl1", 1e6, Rate::Layer1),
            ("gbitl1", 1e9, Rate::Layer1),
            ("kbpsl1", 1e3, Rate::Layer1),
            ("mbpsl1", 1e6, Rate::Layer1),
            ("gbpsl1", 1e9, Rate::Layer1),
            ("%", 1.0, Rate::Percent),
        ];
        let wrong = || {
            "is not a rate such as 1000000pps, 1.5mpps, 10gbit (of frames), 10gbitl1 (on the wire), 50% (of the link) or max"
                .to_owned()
        };
        let text = text.trim().to_ascii_lowercase();
        if text == "max" {
            return Ok(Self::Max);
        }
        let end = text.find(|mark: char| !mark.is_ascii_digit() && mark != '.').ok_or_else(wrong)?;
        let (number, unit) = text.split_at(end);
        let (_, times, rate) = UNITS.iter().find(|(name, ..)| *name == unit.trim()).ok_or_else(wrong)?;
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let number = number * times;
        if number <= 0.0 {
            return Err("is not above 0".into());
        }
        if *times == 1.0 && unit.trim() == "%" && number > 10_000.0 {
            return Err("is out of range: at most 10000%".into());
        }
        Ok(rate(number))
    }
}

impl Rate {
    /// Packets a second, of frames of `bytes` bytes on average, check sequence counted, on a link of `mbps`; `None`: as many as it goes.
    pub(crate) fn packets_per_second(self, bytes: f64, mbps: Option<u32>) -> Result<Option<f64>, String> {
        let pps = match self {
            Self::Max => return Ok(None),
            Self::Packets(pps) => pps,
            Self::Layer2(bits) => bits / (8.0 * bytes),
            Self::Layer1(bits) => bits / (8.0 * (bytes + GAP)),
            Self::Percent(percent) => {
                let mbps = mbps.ok_or("the port tells no link speed: give the rate in pps or bits")?;
                percent / 100.0 * f64::from(mbps) * 1e6 / (8.0 * (bytes + GAP))
            }
        };
        Ok(Some(pps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rate_is_what_everybody_knows() {
        let pps = |text: &str, bytes| {
            let rate: Rate = text.parse().expect("a rate");
            rate.packets_per_second(bytes, Some(10_000)).map(|pps| pps.map(f64::round))
        };
        assert_eq!(pps("100%", 64.0), Ok(Some(14_880_952.0)));
        assert_eq!(pps("10gbitl1", 1518.0), Ok(Some(812_744.0)));
        assert_eq!(pps("10gbit", 64.0), Ok(Some(19_531_250.0)));
        assert_eq!(pps("1.5Mpps", 64.0), Ok(Some(1_500_000.0)));
        assert_eq!(pps("7 pps", 64.0), Ok(Some(7.0)));
        assert_eq!(pps("max", 64.0), Ok(None));
        let why = Rate::Percent(50.0).packets_per_second(64.0, None).expect_err("nobody knows");
        assert!(why.starts_with("the port tells no link speed"), "{why}");
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in ["", "10", "pps", "-1pps", "1e6pps", "1.2.3pps", "10 gb", "%", "nanpps", "infpps"] {
            assert!(
                text.parse::<Rate>().is_err_and(|why| why.starts_with("is not a rate such as")),
                "{text}"
            );
        }
        assert_eq!("0pps".parse::<Rate>(), Err("is not above 0".into()));
        assert_eq!("10001%".parse::<Rate>(), Err("is out of range: at most 10000%".into()));
    }
}
