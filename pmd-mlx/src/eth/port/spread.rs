//! How what arrives is spread over the receive queues: a hash queue per kind of packet, over one table.
//!
//! The kernel refuses IPv4 together with IPv6, and TCP together with UDP, in one hash queue; so each kind has its own, and
//! rules lead each kind there, the narrower kind looked at first.

use pollux_mlx5_abi::kernel::queue_pair::hash_field as field;
use pollux_uverbs::abi::flow::{EthFilter, Ipv4Filter, TcpUdpFilter};
use pollux_uverbs::flow::FlowSpec;

use crate::eth::backend::{Backend, HashSpec, MergeSpec};
use pollux_mlx5_abi::kernel::queue_pair::HASH_KEY_BYTES;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::object::{NumberedObject, Object};

/// Entries of the table that packets are spread over. Source: DPDK's default for this driver is as many; every device
/// has room for them.
pub const TABLE_ENTRIES: usize = 128;

/// The key that packets are hashed with at first. Source: DPDK `drivers/net/mlx5/mlx5_rxq.c`, `mlx5_rss_hash_default_key`.
pub const DEFAULT_KEY: [u8; HASH_KEY_BYTES] = [
    0x2c, 0xc6, 0x81, 0xd1, 0x5b, 0xdb, 0xf4, 0xf7, 0xfc, 0xa2, 0x83, 0x19, 0xdb, 0x1a, 0x3e, 0x94, 0x6b,
    0x9e, 0x38, 0xd9, 0x2c, 0x9c, 0x03, 0xd1, 0xad, 0x99, 0x44, 0xa7, 0xd9, 0x56, 0x3d, 0x59, 0x06, 0x3c,
    0x25, 0xf3, 0xfc, 0x1f, 0xdc, 0x2a,
];

/// A kind of packet, as far as hashing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Anything.
    Any,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// TCP over IPv4.
    Ipv4Tcp,
    /// UDP over IPv4.
    Ipv4Udp,
    /// TCP over IPv6.
    Ipv6Tcp,
    /// UDP over IPv6.
    Ipv6Udp,
}

/// Levels of [`Kind::level`]: as many priorities as the default rules take up.
pub const LEVELS: u16 = 3;

impl Kind {
    /// All, the widest last.
    pub const ALL: [Self; 7] =
        [Self::Ipv4Tcp, Self::Ipv4Udp, Self::Ipv6Tcp, Self::Ipv6Udp, Self::Ipv4, Self::Ipv6, Self::Any];

    /// Which of the priorities of one rule it takes: the narrowest kind comes first.
    #[must_use]
    pub fn level(self) -> u16 {
        match self {
            Self::Any => 2,
            Self::Ipv4 | Self::Ipv6 => 1,
            _ => 0,
        }
    }

    /// What a rule matches after the Ethernet header. The network's kind stands in the Ethernet spec's type.
    #[must_use]
    pub fn items(self, eth: (EthFilter, EthFilter)) -> Vec<FlowSpec> {
        let (mut value, mut mask) = eth;
        let ports = TcpUdpFilter::default();
        let tcp = FlowSpec::Tcp { value: ports, mask: ports, inner: false };
        let udp = FlowSpec::Udp { value: ports, mask: ports, inner: false };
        let ipv4 = FlowSpec::Ipv4 { value: Ipv4Filter::default(), mask: Ipv4Filter::default(), inner: false };
        let ipv6 = FlowSpec::Ipv6 { value: Default::default(), mask: Default::default(), inner: false };
        if let Some(kind) = self.ether_type() {
            value.ether_type = kind.into();
            mask.ether_type = 0xffff.into();
        }
        let eth = FlowSpec::Eth { value, mask, inner: false };
        match self {
            Self::Any => vec![eth],
            Self::Ipv4 => vec![eth, ipv4],
            Self::Ipv6 => vec![eth, ipv6],
            Self::Ipv4Tcp => vec![eth, ipv4, tcp],
            Self::Ipv4Udp => vec![eth, ipv4, udp],
            Self::Ipv6Tcp => vec![eth, ipv6, tcp],
            Self::Ipv6Udp => vec![eth, ipv6, udp],
        }
    }

    fn ether_type(self) -> Option<u16> {
        match self {
            Self::Any => None,
            Self::Ipv4 | Self::Ipv4Tcp | Self::Ipv4Udp => Some(0x0800),
            Self::Ipv6 | Self::Ipv6Tcp | Self::Ipv6Udp => Some(0x86dd),
        }
    }

    /// All the fields that it can be hashed by.
    #[must_use]
    pub fn fields(self) -> u64 {
        let ipv4 = field::SRC_IPV4 | field::DST_IPV4;
        let ipv6 = field::SRC_IPV6 | field::DST_IPV6;
        let (tcp, udp) =
            (field::SRC_PORT_TCP | field::DST_PORT_TCP, field::SRC_PORT_UDP | field::DST_PORT_UDP);
        match self {
            Self::Any => 0,
            Self::Ipv4 => ipv4,
            Self::Ipv6 => ipv6,
            Self::Ipv4Tcp => ipv4 | tcp,
            Self::Ipv4Udp => ipv4 | udp,
            Self::Ipv6Tcp => ipv6 | tcp,
            Self::Ipv6Udp => ipv6 | udp,
        }
    }
}

/// What to spread by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadSpec {
    /// The table: queue numbers, a power of two of them.
    pub table: Vec<u16>,
    /// The key.
    pub key: [u8; HASH_KEY_BYTES],
    /// The kinds that are hashed, each with its fields. Others go to the table's first queue.
    pub kinds: Vec<(Kind, u64)>,
    /// How TCP segments are joined.
    pub merge: Option<MergeSpec>,
}

/// Hash queues over a table. Rules lead to them.
#[derive(Debug)]
pub struct Spread {
    hashes: Vec<(Kind, Object)>,
}

impl Spread {
    /// Makes them over these receive queues.
    ///
    /// # Errors
    /// What the device says.
    ///
    /// # Panics
    /// When the table names a queue that is not there, or has no entry.
    pub fn new(
        backend: &dyn Backend,
        spec: &SpreadSpec,
        queues: &[NumberedObject],
    ) -> Result<Self, MlxError> {
        let first = &queues[usize::from(spec.table[0])];
        let single = backend.create_table(&[first])?;
        let plain =
            backend.create_hash(&HashSpec { fields: 0, key: spec.key, merge: spec.merge }, &single, 0)?;
        let mut hashes = Vec::new();
        if spec.table.iter().any(|queue| *queue != spec.table[0]) || !spec.kinds.is_empty() {
            let entries: Vec<&NumberedObject> =
                spec.table.iter().map(|queue| &queues[usize::from(*queue)]).collect();
            let table = backend.create_table(&entries)?;
            let log2 = entries.len().ilog2() as u8;
            for (kind, fields) in spec.kinds.iter().filter(|(_, fields)| *fields != 0) {
                let hash = HashSpec { fields: *fields, key: spec.key, merge: spec.merge };
                hashes.push((*kind, backend.create_hash(&hash, &table, log2)?.object));
            }
        }
        hashes.push((Kind::Any, plain.object));
        Ok(Self { hashes })
    }

    /// Each kind with the queue that its packets go to, the widest last.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, &Object)> {
        self.hashes.iter().map(|(kind, hash)| (*kind, hash))
    }
}
