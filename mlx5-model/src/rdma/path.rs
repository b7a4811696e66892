//! Addresses: the device's own, by index, and the way from one of them to a peer.

use pollux_mlx5_abi::command::qp::context::AddressPath;
use pollux_mlx5_abi::command::vport::{RoceAddress, roce_version};
use pollux_mlx5_abi::wqe::AddressVector;

/// Entries of the table of addresses: `roce_address_table_size`.
pub(crate) const ADDRESSES: usize = 128;

/// An address of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// IPv6, or IPv4 in the last four bytes behind `::ffff:`.
    pub(crate) gid: [u8; 16],
    pub(crate) mac: [u8; 6],
    pub(crate) vlan: Option<u16>,
}

/// Whether a GID stands for an IPv4 address. Source: RFC 4291, section 2.5.5.2.
pub(crate) fn ipv4(gid: &[u8; 16]) -> Option<[u8; 4]> {
    let (head, tail) = gid.split_at(12);
    (head == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]).then(|| tail.try_into().unwrap_or_default())
}

/// The GID of an IPv4 address.
pub(crate) fn mapped(ip: &[u8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(ip);
    gid
}

/// Whether a GID names a group.
pub(crate) fn is_group(gid: &[u8; 16]) -> bool {
    gid[0] == 0xff || ipv4(gid).is_some_and(|ip| ip[0] & 0xf0 == 0xe0)
}

/// The addresses of a port.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    blocks: Vec<[u8; 32]>,
    known: Vec<Option<Address>>,
    /// Those that are there, one behind the other: looked through for every packet.
    list: Vec<Address>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { blocks: vec![[0; 32]; ADDRESSES], known: vec![None; ADDRESSES], list: Vec::new() }
    }
}

impl Addresses {
    /// An entry as software wrote it.
    pub(crate) fn block(&self, index: usize) -> Option<[u8; 32]> {
        self.blocks.get(index).copied()
    }

    /// Writes an entry; false where there is none. Addresses of the older version, by Ethernet type, are kept and not used.
    pub(crate) fn set(&mut self, index: usize, block: [u8; 32]) -> bool {
        let (Some(place), Some(known)) = (self.blocks.get_mut(index), self.known.get_mut(index)) else {
            return false;
        };
        *place = block;
        let gid = RoceAddress::SOURCE_L3_ADDRESS.get(&block);
        let [_, _, mac @ ..] = RoceAddress::SOURCE_MAC.get(&block).to_be_bytes();
        let version = RoceAddress::ROCE_VERSION.get(&block);
        let vlan = RoceAddress::VLAN_VALID.is_set(&block).then(|| RoceAddress::VLAN_ID.get(&block) as u16);
        *known = (version == roce_version::V2 && gid != [0; 16]).then_some(Address { gid, mac, vlan });
        self.list = self.known.iter().flatten().copied().collect();
        true
    }

    pub(crate) fn get(&self, index: u8) -> Option<&Address> {
        self.known.get(usize::from(index))?.as_ref()
    }

    /// Whether a GID is one of the device's, on this VLAN.
    pub(crate) fn has(&self, gid: &[u8; 16], vlan: Option<u16>) -> bool {
        self.list.iter().any(|address| address.gid == *gid && address.vlan == vlan)
    }

    /// Whether a MAC is that of one of the addresses.
    pub(crate) fn has_mac(&self, mac: &[u8]) -> bool {
        self.list.iter().any(|address| address.mac == mac)
    }

    /// Whether the address at `index` is this GID.
    pub(crate) fn is_at(&self, index: u8, gid: &[u8; 16]) -> bool {
        self.get(index).is_some_and(|address| address.gid == *gid)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The number of a function's second port.
pub(crate) const SECOND_PORT: u32 = 2;

/// Whether a path begins at the function's second port.
pub(super) fn is_at_second(block: &[u8; AddressPath::BYTES]) -> bool {
    AddressPath::VHCA_PORT_NUM.get(block) == SECOND_PORT
}

/// The way to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// Which own address packets come from.
    pub(crate) own: u8,
    pub(crate) mac: [u8; 6],
    pub(crate) gid: [u8; 16],
    pub(crate) hop_limit: u8,
    /// Traffic class, or type of service; ECN bits are its lower two.
    pub(crate) class: u8,
    pub(crate) flow_label: u32,
    /// 0: made from the flow.
    pub(crate) source_port: u16,
    /// Priority in a VLAN tag.
    pub(crate) priority: u8,
    /// It begins at the function's second port.
    pub(crate) second: bool,
}

impl Path {
    /// From a queue pair's context. The class's upper bits stand in `dscp` too, ECN where it is forced.
    pub(crate) fn of(block: &[u8; 44]) -> Self {
        use AddressPath as A;
        let [_, _, mac @ ..] = A::RMAC.get(block).to_be_bytes();
        let mut class = A::TCLASS.get(block) as u8;
        if A::F_DSCP.is_set(block) || class == 0 {
            class = class & 3 | (A::DSCP.get(block) as u8) << 2;
        }
        if A::F_ECN.is_set(block) {
            class = class & !3 | A::ECN.get(block) as u8;
        }
        Self {
            own: A::SRC_ADDR_INDEX.get(block) as u8,
            mac,
            gid: A::RGID_RIP.get(block),
            hop_limit: A::HOP_LIMIT.get(block) as u8,
            class,
            flow_label: A::FLOW_LABEL.get(block),
            source_port: A::UDP_SPORT.get(block) as u16,
            priority: A::ETH_PRIO.get(block) as u8,
            second: is_at_second(block),
        }
    }

    /// From a send entry. The index of the own address and the flow label share a word; the port is the queue pair's.
    pub(crate) fn of_vector(vector: &AddressVector, second: bool) -> Self {
        let word = vector.grh_gid_fl.get();
        Self {
            own: (word >> 20) as u8,
            mac: vector.rmac,
            gid: vector.rgid,
            hop_limit: vector.hop_limit,
            class: vector.tclass,
            flow_label: word & 0xf_ffff,
            source_port: vector.rlid.get(),
            priority: vector.stat_rate_sl >> 1 & 7,
            second,
        }
    }
}
