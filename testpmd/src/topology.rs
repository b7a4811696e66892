//! Which port sends what a port receives (`--port-topology`).

/// How forwarding ports are joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// Ports 0 and 1, 2 and 3, ...; a last one without a partner is joined to itself.
    #[default]
    Paired,
    /// Each to the next, the last to the first.
    Chained,
    /// Each to itself.
    Loop,
}

impl Topology {
    /// By DPDK's name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "paired" => Some(Self::Paired),
            "chained" => Some(Self::Chained),
            "loop" => Some(Self::Loop),
            _ => None,
        }
    }

    /// Of `count` ports in order, the place of the one that sends what the one at `from` receives.
    #[must_use]
    pub fn to(self, from: usize, count: usize) -> usize {
        match self {
            Self::Paired if from % 2 == 1 => from - 1,
            Self::Paired if from + 1 < count => from + 1,
            Self::Chained => (from + 1) % count,
            Self::Paired | Self::Loop => from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_port_sends_for_one() {
        let all =
            |topology: Topology, count| (0..count).map(|from| topology.to(from, count)).collect::<Vec<_>>();
        assert_eq!(all(Topology::Paired, 4), [1, 0, 3, 2]);
        assert_eq!(all(Topology::Paired, 3), [1, 0, 2]);
        assert_eq!(all(Topology::Chained, 3), [1, 2, 0]);
        assert_eq!(all(Topology::Loop, 3), [0, 1, 2]);
        assert_eq!(all(Topology::Chained, 1), [0]);
    }
}
