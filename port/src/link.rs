//! What a port says of its link.
use std::fmt;

/// Whether both ends may speak at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Duplex {
    /// One at a time.
    Half,
    /// Both at once.
    #[default]
    Full,
}

/// A link's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// Frames can pass.
    pub up: bool,
    /// Megabits per second; `None` when nobody knows.
    pub speed_mbps: Option<u32>,
    /// Half or full.
    pub duplex: Duplex,
    /// The speed was negotiated rather than fixed.
    pub autoneg: bool,
}

impl Link {
    /// An up, full-duplex link of fixed speed, as soft ports have it.
    #[must_use]
    pub fn fixed(up: bool, speed_mbps: u32) -> Self {
        Self { up, speed_mbps: Some(speed_mbps), duplex: Duplex::Full, autoneg: false }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.up {
            return f.write_str("down");
        }
        match self.speed_mbps {
            Some(speed) if speed % 1000 == 0 => write!(f, "up at {} Gbps", speed / 1000)?,
            Some(speed) => write!(f, "up at {speed} Mbps")?,
            None => f.write_str("up at unknown speed")?,
        }
        f.write_str(match self.duplex {
            Duplex::Half => " half-duplex",
            Duplex::Full => " full-duplex",
        })?;
        f.write_str(if self.autoneg { " autoneg" } else { " fixed" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_reads_well() {
        assert_eq!(Link::fixed(true, 10_000).to_string(), "up at 10 Gbps full-duplex fixed");
        assert_eq!(Link::default().to_string(), "down");
        let odd = Link { up: true, speed_mbps: None, duplex: Duplex::Half, autoneg: true };
        assert_eq!(odd.to_string(), "up at unknown speed half-duplex autoneg");
    }
}
