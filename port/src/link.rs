//! What a port says of its link.

use std::fmt;

/// Duplex mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Duplex {
    /// Half duplex.
    Half,
    /// Full duplex.
    #[default]
    Full,
}

/// Link status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// The link is up.
    pub up: bool,
    /// Speed in Mbit/s; `None` if unknown.
    pub speed_mbps: Option<u32>,
    /// Duplex mode.
    pub duplex: Duplex,
    /// The speed was negotiated rather than fixed.
    pub autoneg: bool,
    /// Number of lanes; `None` if unknown.
    pub lanes: Option<u16>,
}

bitflags::bitflags! {
    /// Forward error corrections, under the names of DPDK's `rte_eth_fec_mode` and of ethtool(8).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FecModes: u32 {
        /// None.
        const OFF = 1;
        /// Negotiated with the link partner.
        const AUTO = 2;
        /// Firecode, IEEE 802.3 clause 74.
        const BASER = 4;
        /// Reed-Solomon, clauses 91 and 108.
        const RS = 8;
        /// Reed-Solomon with low latency.
        const LLRS = 16;
    }
}

impl fmt::Display for FecModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
        f.write_str(if names.is_empty() { "unknown".into() } else { names.join(", ") }.as_str())
    }
}

/// A port's forward error correction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fec {
    /// Configured modes, of which the link uses one.
    pub configured: FecModes,
    /// Active mode; empty if the link is down or the mode is unknown.
    pub active: FecModes,
}

/// FEC modes supported at a speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpeedFec {
    /// Speed in Mbit/s; `None` for any speed.
    pub speed_mbps: Option<u32>,
    /// Which.
    pub modes: FecModes,
}

/// Numbers of lanes supported at a speed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpeedLanes {
    /// Megabits per second.
    pub speed_mbps: u32,
    /// Ascending.
    pub lanes: Vec<u16>,
}

impl Link {
    /// Creates the status of a full-duplex link of fixed speed, as for software ports.
    #[must_use]
    pub fn fixed(up: bool, speed_mbps: u32) -> Self {
        Self { up, speed_mbps: Some(speed_mbps), duplex: Duplex::Full, autoneg: false, lanes: None }
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
        f.write_str(if self.autoneg { " autoneg" } else { " fixed" })?;
        match self.lanes {
            None => Ok(()),
            Some(1) => f.write_str(", 1 lane"),
            Some(lanes) => write!(f, ", {lanes} lanes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_reads_well() {
        assert_eq!(Link::fixed(true, 10_000).to_string(), "up at 10 Gbps full-duplex fixed");
        assert_eq!(Link::default().to_string(), "down");
        let odd = Link { up: true, duplex: Duplex::Half, autoneg: true, ..Link::default() };
        assert_eq!(odd.to_string(), "up at unknown speed half-duplex autoneg");
        let wide = Link { lanes: Some(4), ..Link::fixed(true, 100_000) };
        assert_eq!(wide.to_string(), "up at 100 Gbps full-duplex fixed, 4 lanes");
        assert_eq!((FecModes::AUTO | FecModes::RS).to_string(), "auto, rs");
        assert_eq!(FecModes::empty().to_string(), "unknown");
    }
}
