//! Receive-side scaling: a hash over a packet's fields, and a table that turns it into a queue.
//!
//! ```text
//!   fields of the packet --key, algorithm--> hash --low bits--> redirection table (RETA) --> rx queue
//! ```
//!
//! Names and bits are DPDK's (`lib/ethdev/rte_ethdev.h`, `RTE_ETH_RSS_*` and `enum rte_eth_hash_function`).

use crate::{PortError, QueueId, offload};
use bitflags::bitflags;
use std::fmt;

bitflags! {
    /// RSS hash fields (DPDK: `RTE_ETH_RSS_*`). A packet without any of them goes to the queue of hash 0.
    ///
    /// `IPV4`, `FRAG_IPV4` and `NONFRAG_IPV4_OTHER` hash the addresses, those with `TCP`, `UDP` or `SCTP` addresses and
    /// ports; the same for IPv6. The `ONLY` bits narrow that to one side.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct HashFields: u64 {
        /// IPv4, whatever it carries.
        const IPV4 = 1 << 2;
        /// Fragments of IPv4.
        const FRAG_IPV4 = 1 << 3;
        /// TCP over IPv4.
        const NONFRAG_IPV4_TCP = 1 << 4;
        /// UDP over IPv4.
        const NONFRAG_IPV4_UDP = 1 << 5;
        /// SCTP over IPv4.
        const NONFRAG_IPV4_SCTP = 1 << 6;
        /// IPv4 that is no fragment and carries something else.
        const NONFRAG_IPV4_OTHER = 1 << 7;
        /// IPv6, whatever it carries.
        const IPV6 = 1 << 8;
        /// Fragments of IPv6.
        const FRAG_IPV6 = 1 << 9;
        /// TCP over IPv6.
        const NONFRAG_IPV6_TCP = 1 << 10;
        /// UDP over IPv6.
        const NONFRAG_IPV6_UDP = 1 << 11;
        /// SCTP over IPv6.
        const NONFRAG_IPV6_SCTP = 1 << 12;
        /// IPv6 that is no fragment and carries something else.
        const NONFRAG_IPV6_OTHER = 1 << 13;
        /// Anything else, by its Ethernet type.
        const L2_PAYLOAD = 1 << 14;
        /// IPv6 with extension headers.
        const IPV6_EX = 1 << 15;
        /// TCP over IPv6 with extension headers.
        const IPV6_TCP_EX = 1 << 16;
        /// UDP over IPv6 with extension headers.
        const IPV6_UDP_EX = 1 << 17;
        /// Tunnels by their port.
        const PORT = 1 << 18;
        /// VXLAN.
        const VXLAN = 1 << 19;
        /// GENEVE.
        const GENEVE = 1 << 20;
        /// NVGRE.
        const NVGRE = 1 << 21;
        /// GTP.
        const GTPU = 1 << 23;
        /// The Ethernet addresses.
        const ETH = 1 << 24;
        /// The outer VLAN tag.
        const S_VLAN = 1 << 25;
        /// The inner VLAN tag.
        const C_VLAN = 1 << 26;
        /// ESP by its security parameter index.
        const ESP = 1 << 27;
        /// The headers of the outer packet.
        const LEVEL_OUTERMOST = 1 << 50;
        /// The headers of the innermost packet.
        const LEVEL_INNERMOST = 2 << 50;
        /// Of layer 4, the destination alone.
        const L4_DST_ONLY = 1 << 60;
        /// Of layer 4, the source alone.
        const L4_SRC_ONLY = 1 << 61;
        /// Of layer 3, the destination alone.
        const L3_DST_ONLY = 1 << 62;
        /// Of layer 3, the source alone.
        const L3_SRC_ONLY = 1 << 63;
    }
}

impl HashFields {
    /// All kinds of IP by their addresses; `RTE_ETH_RSS_IP`.
    pub const IP: Self = Self::IPV4
        .union(Self::FRAG_IPV4)
        .union(Self::NONFRAG_IPV4_OTHER)
        .union(Self::IPV6)
        .union(Self::FRAG_IPV6)
        .union(Self::NONFRAG_IPV6_OTHER)
        .union(Self::IPV6_EX);
    /// TCP; `RTE_ETH_RSS_TCP`.
    pub const TCP: Self = Self::NONFRAG_IPV4_TCP.union(Self::NONFRAG_IPV6_TCP).union(Self::IPV6_TCP_EX);
    /// UDP; `RTE_ETH_RSS_UDP`.
    pub const UDP: Self = Self::NONFRAG_IPV4_UDP.union(Self::NONFRAG_IPV6_UDP).union(Self::IPV6_UDP_EX);
    /// The bits that narrow layer 3.
    pub const L3_SIDES: Self = Self::L3_SRC_ONLY.union(Self::L3_DST_ONLY);
    /// The bits that narrow layer 4.
    pub const L4_SIDES: Self = Self::L4_SRC_ONLY.union(Self::L4_DST_ONLY);
}

/// RSS hash function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HashAlgorithm {
    /// Microsoft's Toeplitz hash.
    #[default]
    Toeplitz,
    /// The fields' bytes, exclusive or.
    SimpleXor,
    /// Toeplitz over source and destination joined by exclusive or: both directions of a flow hash alike.
    SymmetricToeplitz,
    /// Toeplitz over source and destination in ascending order: both directions of a flow hash alike.
    SymmetricToeplitzSort,
}

impl fmt::Display for HashAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // DPDK's names (`rte_eth_dev_rss_algo_name`).
        f.write_str(match self {
            Self::Toeplitz => "toeplitz",
            Self::SimpleXor => "simple_xor",
            Self::SymmetricToeplitz => "symmetric_toeplitz",
            Self::SymmetricToeplitzSort => "symmetric_toeplitz_sort",
        })
    }
}

/// RSS configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RssConfig {
    /// Hash fields. Empty disables hashing: all packets go to the queue of the first RETA entry.
    pub fields: HashFields,
    /// The key; `None` leaves it as it is, the driver's own at first. As many bytes as [`RssInfo::key_bytes`].
    pub key: Option<Vec<u8>>,
    /// The algorithm.
    pub algorithm: HashAlgorithm,
}

impl RssConfig {
    /// Creates a configuration with Toeplitz over these fields and the current key.
    #[must_use]
    pub fn new(fields: HashFields) -> Self {
        Self { fields, ..Self::default() }
    }
}

/// RSS capabilities of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RssInfo {
    /// Supported hash fields.
    pub fields: HashFields,
    /// Length of the hash key in bytes.
    pub key_bytes: usize,
    /// Entries of the redirection table; a power of two.
    pub table_entries: usize,
    /// Supported hash functions.
    pub algorithms: &'static [HashAlgorithm],
}

impl RssInfo {
    /// Checks a configuration against what the port can do. The error lacks the port's name.
    ///
    /// # Errors
    /// [`PortError::Argument`], which names what cannot be had and what can.
    pub fn check(&self, config: &RssConfig) -> Result<(), PortError> {
        let bad = |key: &str, value: String, expected: String| PortError::Argument {
            port: String::new(),
            key: key.into(),
            value,
            expected,
        };
        let refused = config.fields - self.fields;
        if !refused.is_empty() {
            let expected = format!("the port hashes {}", offload::names(&self.fields));
            return Err(bad("rss fields", offload::names(&refused), expected));
        }
        if let Some(key) = &config.key
            && key.len() != self.key_bytes
        {
            let expected = format!("the key has {} bytes", self.key_bytes);
            return Err(bad("rss key length", key.len().to_string(), expected));
        }
        if !self.algorithms.contains(&config.algorithm) {
            let names: Vec<String> = self.algorithms.iter().map(ToString::to_string).collect();
            let expected = format!("the port has {}", names.join(", "));
            return Err(bad("rss algorithm", config.algorithm.to_string(), expected));
        }
        Ok(())
    }

    /// Returns a RETA that distributes evenly over queues 0 to `queues` - 1. Empty without queues.
    #[must_use]
    pub fn even_table(&self, queues: u16) -> Vec<QueueId> {
        let all = (0..queues).map(QueueId).cycle();
        if queues == 0 { Vec::new() } else { all.take(self.table_entries).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: RssInfo = RssInfo {
        fields: HashFields::IP.union(HashFields::TCP),
        key_bytes: 40,
        table_entries: 8,
        algorithms: &[HashAlgorithm::Toeplitz],
    };

    #[test]
    fn what_cannot_be_hashed_is_named() {
        let text = |config: RssConfig| INFO.check(&config).expect_err("refused").named("p0").to_string();
        assert_eq!(INFO.check(&RssConfig::new(HashFields::IP)).ok(), Some(()));
        let said = text(RssConfig::new(HashFields::IP | HashFields::ESP));
        assert!(said.starts_with("port p0: rss fields=ESP: the port hashes IPV4, "), "{said}");
        let said = text(RssConfig { key: Some(vec![0; 52]), ..RssConfig::default() });
        assert_eq!(said, "port p0: rss key length=52: the key has 40 bytes");
        let algorithm = HashAlgorithm::SymmetricToeplitz;
        let said = text(RssConfig { algorithm, ..RssConfig::default() });
        assert_eq!(said, "port p0: rss algorithm=symmetric_toeplitz: the port has toeplitz");
    }

    #[test]
    fn an_even_table_counts_round() {
        let numbers: Vec<u16> = INFO.even_table(3).iter().map(|queue| queue.0).collect();
        assert_eq!(numbers, [0, 1, 2, 0, 1, 2, 0, 1]);
        assert!(INFO.even_table(0).is_empty());
    }
}
