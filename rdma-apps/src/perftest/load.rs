//! How busy this machine's CPUs are: `--cpu_util`.

/// Time that the CPUs spent, in ticks, from `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    user: u64,
    idle: u64,
}

impl Load {
    /// So far; zero where there is no `/proc`.
    #[must_use]
    pub fn now() -> Self {
        std::fs::read_to_string("/proc/stat").ok().and_then(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// Linux `Documentation/filesystems/proc.rst`: the first line is `cpu user nice system idle ...`.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().map(str::parse);
        let user = fields.next()?.ok()?;
        let idle = fields.nth(2)?.ok()?;
        Some(Self { user, idle })
    }

    /// The share of 100 that programs had since, of what they and nobody had. As perftest counts it, the kernel's own time is left out.
    /// Source: linux-rdma/perftest `src/perftest_parameters.c`, `calc_cpu_util`.
    #[must_use]
    pub fn since(self, before: Self) -> f64 {
        let (user, idle) = (self.user.saturating_sub(before.user), self.idle.saturating_sub(before.idle));
        if user + idle == 0 { 0.0 } else { user as f64 / (user + idle) as f64 * 100.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells() {
        let one = Load::parse("cpu  100 1 50 1000 5 0 0 0 0 0\ncpu0 1 2 3 4\n").expect("a line of Linux");
        assert_eq!(one, Load { user: 100, idle: 1000 });
        assert_eq!(Load { user: 130, idle: 1010 }.since(one), 75.0);
        assert_eq!(one.since(one), 0.0);
        assert_eq!(Load::parse(""), None);
    }
}
