//! Flows that spread over the receive queues of a port by its hash (RSS), one for each queue.
//!
//! ```text
//!   networks, ports ──► flow ──key──► Toeplitz ──low bits──► place in the table ──► queue
//! ```
//!
//! The table is the one that ports begin with: queues in turn, until it is full. Addresses and ports are hashed as a card hashes TCP and
//! UDP; without ports, the addresses alone, as of other packets and fragments.
//!
//! ```
//! use pollux_doctor::rss_flows::{FlowSearch, Network};
//!
//! let search = FlowSearch::new(4, "10.0.0.0/24".parse()?, "192.0.2.1".parse()?);
//! let found = search.run()?;
//! assert!(found.without.is_empty());
//! let mut queues: Vec<u16> = found.flows.iter().map(|flow| flow.queue).collect();
//! queues.sort_unstable();
//! assert_eq!(queues, [0, 1, 2, 3]);
//! # Ok::<(), pollux_doctor::rss_flows::FlowError>(())
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::str::FromStr;

use pollux_pmd_mlx::eth::port::spread;
use pollux_wire::toeplitz::{self, Toeplitz};
use serde::Serialize;

/// Flows that are tried at most since the last that had a queue of its own: some seconds' work.
const TRIES_MAX: u32 = 1 << 24;

/// Flows that are listed at most when all are wanted.
const ALL_MAX: u128 = 1 << 32;

/// Why no flows are looked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// A value that is none of its kind.
    #[error("{subject} {value}: {problem}")]
    Value {
        /// What it was to be.
        subject: &'static str,
        /// What was given.
        value: String,
        /// What is allowed.
        problem: String,
    },
    /// Source and destination of two kinds.
    #[error(
        "source {src} and destination {dst}: are not of one IP version; give two IPv4 or two IPv6 networks"
    )]
    Versions {
        /// The source.
        src: IpAddr,
        /// The destination.
        dst: IpAddr,
    },
}

fn bad(subject: &'static str, value: impl ToString, problem: impl Into<String>) -> FlowError {
    FlowError::Value { subject, value: value.to_string(), problem: problem.into() }
}

/// A network or a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

/// Addresses as numbers, by which they are counted.
fn number(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), Ipv4Addr::BITS),
        IpAddr::V6(address) => (address.to_bits(), Ipv6Addr::BITS),
    }
}

impl FromStr for Network {
    type Err = FlowError;

    fn from_str(text: &str) -> Result<Self, FlowError> {
        let fail = |problem: &str| bad("network", text, problem);
        let form = "is no network: write ADDRESS or ADDRESS/BITS, such as 10.0.0.0/24 or 2001:db8::/64";
        let (address, bits) = text.split_once('/').map_or((text, None), |(one, bits)| (one, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| fail(form))?;
        let (all, most) = number(address);
        let bits = match bits {
            None => most,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= most)
                .ok_or_else(|| fail(&format!("the bits behind '/' must be a number from 0 to {most}")))?,
        };
        let network = Self { address, bits };
        let first = all & !network.host_mask();
        if first != all {
            let right = network.nth(first);
            return Err(fail(&format!("has bits set beyond its first {bits}: write {right}/{bits}")));
        }
        Ok(network)
    }
}

impl Network {
    /// The bits that tell its addresses apart.
    fn host_mask(&self) -> u128 {
        let (_, most) = number(self.address);
        u128::MAX.checked_shr(u128::BITS - (most - self.bits)).unwrap_or(0)
    }

    fn nth(&self, address: u128) -> IpAddr {
        match self.address {
            // Of an IPv4 network no address has more bits.
            IpAddr::V4(_) => Ipv4Addr::from_bits(address as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(address).into(),
        }
    }

    /// First and last address of a host. An IPv4 network begins with its own address and ends with that of broadcasts (RFC 1812, 4.2.3.1;
    /// RFC 3021 of 31 bits); an IPv6 network begins with that of any router (RFC 4291, 2.6.1; RFC 6164 of 127 bits).
    fn ends(&self) -> (u128, u128) {
        let (first, most) = number(self.address);
        let last = first | self.host_mask();
        match self.address {
            _ if most - self.bits <= 1 => (first, last),
            IpAddr::V4(_) => (first + 1, last - 1),
            IpAddr::V6(_) => (first + 1, last),
        }
    }

    /// The addresses of hosts, in order.
    fn hosts(self) -> impl Iterator<Item = IpAddr> + Clone {
        let (first, last) = self.ends();
        (first..=last).map(move |address| self.nth(address))
    }
}

/// A flow, and the queues of its packets and of those that answer them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Flow {
    /// The queue of its packets.
    pub queue: u16,
    /// The queue of packets with addresses and ports swapped.
    pub queue_reverse: u16,
    /// Source address.
    pub src_ip: IpAddr,
    /// Destination address.
    pub dst_ip: IpAddr,
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// A flow for each queue, as far as there is one.
    pub flows: Vec<Flow>,
    /// The queues that have none.
    pub without: Vec<u16>,
}

/// Who begins with which key and table.
struct Nic {
    name: &'static str,
    key: &'static [u8],
    /// Entries of the table for a number of queues.
    table: fn(u16) -> u32,
}

/// The first is the one that is meant where none is named. Source of the others: DPDK `usertools/dpdk-rss-flows.py`, `DEFAULT_DRIVERS`.
const NICS: &[Nic] = &[
    Nic { name: "pollux", key: &spread::DEFAULT_KEY, table: |_| spread::TABLE_ENTRIES as u32 },
    // DPDK's driver for the same cards, which has another table. Source: DPDK `drivers/net/mlx5/mlx5_ethdev.c`, `mlx5_dev_configure_rss_reta`.
    Nic {
        name: "mlx",
        key: &spread::DEFAULT_KEY,
        table: |queues| if queues.is_power_of_two() { queues.into() } else { 512 },
    },
    // Source: DPDK `drivers/net/intel/ixgbe/ixgbe_rxtx.c`, `rss_intel_key`; it is Microsoft's.
    Nic { name: "intel", key: &toeplitz::DEFAULT_KEY, table: |_| 128 },
    Nic { name: "ixgbe", key: &toeplitz::DEFAULT_KEY, table: |_| 128 },
    Nic { name: "i40e", key: &I40E_KEY, table: |_| 512 },
    Nic { name: "cnxk", key: &CNXK_KEY, table: |_| 64 },
];

/// Source: DPDK `drivers/net/intel/i40e/i40e_ethdev.c`, `rss_key_default`, in the order in which `usertools/dpdk-rss-flows.py` has its bytes.
const I40E_KEY: [u8; toeplitz::KEY_BYTES_MAX] = [
    0x44, 0x39, 0x79, 0x6b, 0xb5, 0x4c, 0x50, 0x23, 0xb6, 0x75, 0xea, 0x5b, 0x12, 0x4f, 0x9f, 0x30, 0xb8,
    0xa2, 0xc0, 0x3d, 0xdf, 0xdc, 0x4d, 0x02, 0xa0, 0x8c, 0x9b, 0x33, 0x4a, 0xf6, 0x4a, 0x4c, 0x05, 0xc6,
    0xfa, 0x34, 0x39, 0x58, 0xd8, 0x55, 0x7d, 0x99, 0x58, 0x3a, 0xe1, 0x38, 0xc9, 0x2e, 0x81, 0x15, 0x03,
    0x66,
];

/// Source: DPDK `drivers/common/cnxk/roc_nix_rss.c`, `roc_nix_rss_key_default_fill`.
const CNXK_KEY: [u8; 48] = {
    let mut key = [0; 48];
    let mut at = 0;
    while at < key.len() {
        key[at] = [0xfe, 0xed, 0x0b, 0xad][at % 4];
        at += 1;
    }
    key
};

/// Entries of a table whose NIC is not known; DPDK's script takes as many.
const USUAL_TABLE: u32 = 128;

/// The key of a hash, and how large a table comes with it.
#[derive(Clone, Debug)]
pub struct Key {
    bytes: Vec<u8>,
    table: fn(u16) -> u32,
}

impl Default for Key {
    /// That of our mlx5 driver.
    fn default() -> Self {
        Self::of(&NICS[0])
    }
}

impl Key {
    fn of(nic: &Nic) -> Self {
        Self { bytes: nic.key.to_vec(), table: nic.table }
    }

    /// Entries of the table that its NIC has for so many queues.
    #[must_use]
    pub fn table(&self, queues: u16) -> u32 {
        (self.table)(queues)
    }
}

impl fmt::Display for Key {
    /// In hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Key {
    type Err = FlowError;

    /// The name of a NIC, or hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, FlowError> {
        if let Some(nic) = NICS.iter().find(|nic| nic.name == text) {
            return Ok(Self::of(nic));
        }
        let fail = |problem: String| {
            let names = NICS.iter().map(|nic| nic.name).collect::<Vec<_>>().join(", ");
            bad("key", text, format!("{problem}; give 80 to 104 hexadecimal digits, or one of {names}"))
        };
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
        let digits = digits.ok_or_else(|| fail("is no key".into()))?;
        let (pairs, []) = digits.as_chunks::<2>() else { return Err(fail("has half a byte".into())) };
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        if !(toeplitz::KEY_BYTES_MIN..=toeplitz::KEY_BYTES_MAX).contains(&bytes.len()) {
            return Err(fail(format!("has {} bytes", bytes.len())));
        }
        Ok(Self { bytes, table: |_| USUAL_TABLE })
    }
}

/// Reads a port, or a range of them without its end: `1000-1004` are four.
///
/// # Errors
/// [`FlowError::Value`].
pub fn ports(text: &str) -> Result<Range<u32>, FlowError> {
    const PORTS: u32 = 1 << 16;
    let form = "write a port from 0 to 65535, or a range START-END, END left out, such as 1000-1004";
    let number = |digits: &str| digits.parse::<u32>().ok().filter(|port| *port <= PORTS);
    let range = match text.split_once('-') {
        None => number(text).map(|port| port..port + 1),
        Some((start, end)) => number(start).zip(number(end)).map(|(start, end)| start..end),
    };
    let range = range
        .filter(|range| range.end <= PORTS)
        .ok_or_else(|| bad("ports", text, format!("are none: {form}")))?;
    if range.is_empty() {
        return Err(bad("ports", text, format!("is an empty range: {form}")));
    }
    Ok(range)
}

/// No ports: the addresses alone are hashed.
pub const NO_PORTS: Range<u32> = 0..1;

/// What is looked for.
#[derive(Clone, Debug)]
pub struct FlowSearch {
    /// Receive queues, at least 1.
    pub queues: u16,
    /// Where flows come from.
    pub src: Network,
    /// Where they go.
    pub dst: Network,
    /// Source ports. With [`NO_PORTS`] in both, no ports are hashed.
    pub src_ports: Range<u32>,
    /// Destination ports.
    pub dst_ports: Range<u32>,
    /// The answers have queues of their own, too.
    pub both_ways: bool,
    /// The key of the hash.
    pub key: Key,
    /// Entries of the table, a power of two, at least as many as queues.
    pub table: u32,
}

impl FlowSearch {
    /// A search by key and table of our mlx5 driver, without ports.
    #[must_use]
    pub fn new(queues: u16, src: Network, dst: Network) -> Self {
        let key = Key::default();
        Self {
            queues,
            src,
            dst,
            src_ports: NO_PORTS,
            dst_ports: NO_PORTS,
            both_ways: false,
            table: key.table(queues),
            key,
        }
    }

    /// Whether ports are hashed.
    #[must_use]
    pub fn hashes_ports(&self) -> bool {
        self.src_ports != NO_PORTS || self.dst_ports != NO_PORTS
    }

    /// Finds a flow for each queue, in the order of addresses and ports.
    ///
    /// # Errors
    /// [`FlowError`] for what cannot be looked for.
    pub fn run(&self) -> Result<Found, FlowError> {
        let queues = usize::from(self.queues);
        let (mut taken, mut taken_back) = (vec![false; queues], vec![false; queues]);
        let mut flows = Vec::with_capacity(queues);
        let mut tries = 0;
        for flow in self.candidates()? {
            let (queue, back) = (usize::from(flow.queue), usize::from(flow.queue_reverse));
            let has_queue = taken[queue] || self.both_ways && taken_back[back];
            if !has_queue {
                (taken[queue], taken_back[back]) = (true, true);
                flows.push(flow);
                tries = 0;
            }
            tries += 1;
            if flows.len() == queues || tries > TRIES_MAX {
                break;
            }
        }
        let without = (0..self.queues).filter(|queue| !taken[usize::from(*queue)]).collect();
        Ok(Found { flows, without })
    }

    /// All flows between the networks.
    ///
    /// # Errors
    /// [`FlowError`] for what cannot be looked for, and for more flows than anybody reads.
    pub fn all(&self) -> Result<impl Iterator<Item = Flow> + Clone, FlowError> {
        let hosts = |network: &Network| {
            let (first, last) = network.ends();
            (last - first).saturating_add(1)
        };
        let counts =
            [hosts(&self.src), hosts(&self.dst), self.src_ports.len() as u128, self.dst_ports.len() as u128];
        let count = counts.into_iter().fold(1, u128::saturating_mul);
        if count > ALL_MAX {
            let problem =
                format!("are more than the {ALL_MAX} that are listed: give smaller networks or ranges");
            return Err(bad("flows", count, problem));
        }
        self.candidates()
    }

    fn candidates(&self) -> Result<impl Iterator<Item = Flow> + Clone, FlowError> {
        let (src, dst) = (self.src, self.dst);
        if src.address.is_ipv4() != dst.address.is_ipv4() {
            return Err(FlowError::Versions { src: src.address, dst: dst.address });
        }
        if self.queues == 0 {
            return Err(bad("queues", 0, "must be at least 1"));
        }
        if !self.table.is_power_of_two() || self.table < self.queues.into() {
            let problem =
                format!("must be a power of two, and at least the number of queues ({})", self.queues);
            return Err(bad("entries of the table", self.table, problem));
        }
        let key = Toeplitz::new(&self.key.bytes).map_err(|error| bad("key", &self.key, error.to_string()))?;
        let hasher =
            Hasher { key, mask: self.table - 1, queues: self.queues.into(), ports: self.hashes_ports() };
        let hasher = std::rc::Rc::new(hasher);
        let (sources, destinations) = (self.src_ports.clone(), self.dst_ports.clone());
        let pairs = src.hosts().flat_map(move |from| dst.hosts().map(move |to| (from, to)));
        let ends = pairs.filter(|(from, to)| from != to).flat_map(move |(from, to)| {
            let destinations = destinations.clone();
            sources.clone().flat_map(move |source| {
                destinations.clone().map(move |destination| (from, to, source as u16, destination as u16))
            })
        });
        Ok(ends.map(move |(src_ip, dst_ip, src_port, dst_port)| Flow {
            queue: hasher.queue(src_ip, dst_ip, src_port, dst_port),
            queue_reverse: hasher.queue(dst_ip, src_ip, dst_port, src_port),
            src_ip,
            dst_ip,
            src_port,
            dst_port,
        }))
    }
}

/// What makes a queue of a flow.
struct Hasher {
    key: Toeplitz,
    mask: u32,
    queues: u32,
    ports: bool,
}

impl Hasher {
    fn queue(&self, src: IpAddr, dst: IpAddr, src_port: u16, dst_port: u16) -> u16 {
        let hash = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let input = toeplitz::input_v4(src, dst, src_port, dst_port);
                self.key.hash(if self.ports { &input } else { &input[..8] })
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let input = toeplitz::input_v6(src, dst, src_port, dst_port);
                self.key.hash(if self.ports { &input } else { &input[..32] })
            }
            _ => unreachable!("both ends of a flow are of one IP version"),
        };
        ((hash & self.mask) % self.queues) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str) -> Vec<String> {
        text.parse::<Network>().expect(text).hosts().map(|host| host.to_string()).collect()
    }

    #[test]
    fn networks_have_hosts() {
        assert_eq!(hosts("10.0.0.0/30"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(hosts("10.0.0.4/31"), ["10.0.0.4", "10.0.0.5"]);
        assert_eq!(hosts("10.0.0.1"), ["10.0.0.1"]);
        assert_eq!(hosts("2001:db8::/126"), ["2001:db8::1", "2001:db8::2", "2001:db8::3"]);
        assert_eq!(hosts("2001:db8::/127"), ["2001:db8::", "2001:db8::1"]);
        assert_eq!(hosts("::1/128"), ["::1"]);
        let first =
            |text: &str| text.parse::<Network>().expect(text).hosts().next().map(|host| host.to_string());
        assert_eq!((first("0.0.0.0/0"), first("::/0")), (Some("0.0.0.1".into()), Some("::1".into())));
    }

    #[test]
    fn what_is_no_network_says_what_is() {
        let said = |text: &str| text.parse::<Network>().expect_err(text).to_string();
        assert_eq!(
            said("10.0.0.1/24"),
            "network 10.0.0.1/24: has bits set beyond its first 24: write 10.0.0.0/24"
        );
        assert!(said("10.0.0.0/33").ends_with("must be a number from 0 to 32"));
        assert!(said("::/129").ends_with("must be a number from 0 to 128"));
        for wrong in ["", "10.0.0", "10.0.0.0/", "a", "1.2.3.4/-1", "::/64/64"] {
            assert!(said(wrong).starts_with(&format!("network {wrong}: ")), "{wrong}");
        }
    }

    #[test]
    fn keys_have_names_and_digits() {
        let key = |text: &str| text.parse::<Key>();
        let tables = |text: &str| [1, 3, 4, 16].map(|queues| key(text).expect(text).table(queues));
        assert_eq!(key("pollux").expect("a name").bytes, spread::DEFAULT_KEY);
        assert_eq!((tables("pollux"), tables("mlx")), ([128; 4], [1, 512, 4, 16]));
        assert_eq!((tables("i40e"), tables("cnxk"), tables("ixgbe")), ([512; 4], [64; 4], [128; 4]));
        let given = key(&"6D5a".repeat(20)).expect("digits");
        assert_eq!(
            (given.bytes.as_slice(), given.to_string()),
            (&toeplitz::SYMMETRIC_KEY[..], "6d5a".repeat(20))
        );
        for (wrong, why) in
            [("6d5", "has half a byte"), ("6d5a", "has 2 bytes"), ("ice", "is no key"), ("", "has 0 bytes")]
        {
            let said = key(wrong).expect_err(wrong).to_string();
            assert!(said.starts_with(&format!("key {wrong}: {why}; give 80 to 104")), "{said}");
        }
    }

    #[test]
    fn ranges_of_ports_lack_their_end() {
        assert_eq!(ports("53").expect("one"), 53..54);
        assert_eq!(ports("1000-1003").expect("three"), 1000..1003);
        assert_eq!(ports("65535-65536").expect("the last"), 65535..65536);
        for wrong in ["", "-", "65536", "1-65537", "5-5", "6-5", "a-b", "1-2-3", "+-1"] {
            let said = ports(wrong).expect_err(wrong).to_string();
            assert!(said.starts_with(&format!("ports {wrong}: ")), "{said}");
        }
    }

    #[test]
    fn what_cannot_be_looked_for_is_said() {
        let net = |text: &str| text.parse::<Network>().expect(text);
        let search = FlowSearch::new(4, net("10.0.0.0/8"), net("10.0.0.0/8"));
        let said = |search: FlowSearch| search.run().expect_err("refused").to_string();
        assert!(
            said(FlowSearch { table: 2, ..search.clone() }).contains("at least the number of queues (4)")
        );
        assert!(said(FlowSearch { table: 12, ..search.clone() }).contains("must be a power of two"));
        assert!(said(FlowSearch { queues: 0, ..search.clone() }).contains("at least 1"));
        assert!(said(FlowSearch { dst: net("::/64"), ..search.clone() }).contains("not of one IP version"));
        assert!(search.all().err().expect("too many").to_string().contains("are more than"));
    }

    #[test]
    fn a_hash_that_never_differs_ends() {
        let net = |text: &str| text.parse::<Network>().expect(text);
        let search = FlowSearch {
            key: "00".repeat(40).parse().expect("a key"),
            ..FlowSearch::new(2, net("10.0.0.0/16"), net("11.0.0.1"))
        };
        let found = search.run().expect("looked for");
        assert_eq!((found.flows.len(), found.without), (1, vec![1]));
    }
}
