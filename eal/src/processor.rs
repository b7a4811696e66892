//! Which processor this is, for choices that its features do not tell.

use std::sync::OnceLock;

/// A processor by its maker's numbers, as Linux prints them in `/proc/cpuinfo` on x86-64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// The maker as CPUID spells it: `GenuineIntel`, `AuthenticAMD`.
    pub vendor: String,
    /// The family, the extended one added.
    pub family: u32,
    /// The model, the extended one in front.
    pub model: u32,
}

impl Processor {
    /// The first processor of the machine; `None` where the kernel does not tell these numbers. Read once.
    #[must_use]
    pub fn first() -> Option<&'static Self> {
        static FIRST: OnceLock<Option<Processor>> = OnceLock::new();
        FIRST.get_or_init(|| Self::parse(&std::fs::read_to_string("/proc/cpuinfo").ok()?)).as_ref()
    }

    /// The first one in the text of `/proc/cpuinfo`.
    #[must_use]
    pub fn parse(cpuinfo: &str) -> Option<Self> {
        let first = cpuinfo.split("\n\n").next()?;
        let value = |key: &str| {
            let named = |line: &&str| line.split(':').next().is_some_and(|name| name.trim() == key);
            first.lines().find(named).and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
        };
        let number = |key| value(key)?.parse().ok();
        Some(Self {
            vendor: value("vendor_id")?.into(),
            family: number("cpu family")?,
            model: number("model")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_processor_is_read() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: any\n\nprocessor\t: 1\nmodel\t: 9\n";
        let zen4 = Processor { vendor: "AuthenticAMD".into(), family: 25, model: 17 };
        assert_eq!(Processor::parse(text), Some(zen4));
        for text in ["", "processor : 0\nmodel : x\n", "processor\t: 0\nBogoMIPS\t: 50.00\n"] {
            assert_eq!(Processor::parse(text), None, "{text}");
        }
    }
}
