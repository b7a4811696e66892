//! What the engines that make packets make: `txonly` and `flowgen`.

use std::net::Ipv4Addr;

use pollux_mempool::MbufPool;

/// Bytes of the headers that each packet has: Ethernet, IPv4, UDP.
pub(super) const HEADERS: usize = 14 + 20 + 8;

/// `flowgen` takes the check sequence for a part of the length that `--txpkts` gives.
pub(super) const FCS: usize = 4;

/// How `set txsplit` divides packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxSplit {
    /// All segments of `--txpkts`.
    #[default]
    Off,
    /// The same. DPDK has `csum` send a copy of the headers in a segment of its own, which is not done here.
    On,
    /// A random number of them.
    Random,
}

/// What packets are made of.
#[derive(Clone, Debug)]
pub struct TxPlan {
    /// Bytes of each segment (`--txpkts`).
    pub segments: Vec<u16>,
    /// How many of the segments a packet has.
    pub split: TxSplit,
    /// Different source ports (`--txonly-multi-flow`): their number.
    pub multi_flow: Option<u16>,
    /// Source and destination (`--tx-ip`).
    pub ip: (Ipv4Addr, Ipv4Addr),
    /// Source and destination (`--tx-udp`).
    pub udp: (u16, u16),
    /// Flows of `flowgen` (`--flowgen-flows`).
    pub flows: u32,
    /// Copies of each packet of `flowgen` (`--flowgen-clones`).
    pub clones: usize,
}

impl TxPlan {
    /// Bytes of a whole packet.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.segments.iter().map(|&bytes| usize::from(bytes)).sum()
    }

    /// Bytes of a packet of `flowgen`, which has one segment whatever `--txpkts` says.
    #[must_use]
    pub fn flowgen_bytes(&self) -> usize {
        self.bytes().saturating_sub(FCS).max(HEADERS)
    }

    /// Whether mbufs with room for `room` bytes hold what `txonly` makes: each segment fits into one, the first holds the headers.
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(segments: &[u16], room: usize) -> Result<(), String> {
        const MOST: usize = 255;
        let first = segments.first().copied().unwrap_or(0);
        if usize::from(first) < HEADERS {
            return Err(format!("first segment of {first} bytes: must hold the headers of {HEADERS} bytes"));
        }
        if segments.len() > MOST {
            return Err(format!("{} segments: at most {MOST}", segments.len()));
        }
        if let Some(size) = segments.iter().find(|size| usize::from(**size) > room || **size == 0) {
            return Err(format!(
                "segment of {size} bytes: must be between 1 and {room}, the data room of an mbuf; --mbuf-size sets it"
            ));
        }
        let bytes: usize = segments.iter().map(|&size| usize::from(size)).sum();
        if bytes > usize::from(u16::MAX) {
            return Err(format!("packet of {bytes} bytes: at most {}", u16::MAX));
        }
        Ok(())
    }
}

/// The same with where packets come from.
#[derive(Clone, Debug)]
pub struct TxSettings {
    /// Where packets come from.
    pub pool: MbufPool,
    /// What they are made of.
    pub plan: TxPlan,
}

impl TxSettings {
    /// For packets of `txonly` as planned, out of that pool.
    ///
    /// # Errors
    /// A segment does not fit into an mbuf.
    pub fn txonly(pool: MbufPool, plan: TxPlan) -> Result<Self, String> {
        TxPlan::check(&plan.segments, room(&pool)).map_err(|why| format!("txpkts: {why}"))?;
        Ok(Self { pool, plan })
    }

    /// For packets of `flowgen`, likewise.
    ///
    /// # Errors
    /// A packet does not fit into an mbuf.
    pub fn flowgen(pool: MbufPool, plan: TxPlan) -> Result<Self, String> {
        let (bytes, room) = (plan.flowgen_bytes(), room(&pool));
        if bytes > room {
            return Err(format!(
                "txpkts: packet of {bytes} bytes: flowgen makes one segment, and the data room of an mbuf is {room}; --mbuf-size sets it"
            ));
        }
        Ok(Self { pool, plan })
    }
}

/// Bytes of an mbuf behind its headroom.
pub(crate) fn room(pool: &MbufPool) -> usize {
    pool.data_room().saturating_sub(pool.headroom())
}
