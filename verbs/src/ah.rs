//! Addresses: where datagrams go.

use crate::provider::mlx5::post::Address as Mlx5Address;
use pollux_uverbs::AhHandle;
use pollux_uverbs::abi::memory::{AhAttr, GlobalRoute};

use crate::pd::Pd;
use crate::provider::Side;
use crate::{VerbsError, Wc};

/// A path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// GID of the destination.
    pub gid: [u8; 16],
    /// Our GID, by index.
    pub gid_index: u8,
    /// Our port, from 1.
    pub port: u8,
    /// Service level.
    pub service_level: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Flow label, of which the UDP port of the sender follows.
    pub flow_label: u32,
    /// Rate, as code; 0 is the port's.
    pub rate: u8,
    /// Local identifier of the destination; nothing with Ethernet.
    pub lid: u16,
}

impl Path {
    /// To a GID, from our GID of that index.
    #[must_use]
    pub fn new(gid: [u8; 16], gid_index: u8) -> Self {
        Self {
            gid,
            gid_index,
            port: 1,
            service_level: 0,
            traffic_class: 0,
            hop_limit: 64,
            flow_label: 0,
            rate: 0,
            lid: 0,
        }
    }

    /// Back to whom a datagram came from; `header` is the 40 bytes before its data. `None` where they are no header.
    /// Source: rdma-core `libibverbs/verbs.c`, `ibv_init_ah_from_wc`; with RoCE v2 over IPv4 the last 20 of the 40 bytes are
    /// its header.
    #[must_use]
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn back(wc: &Wc<'_, '_>, header: &[u8], gid_index: u8) -> Option<Self> {
        let header: &[u8; 40] = header.first_chunk()?;
        if !wc.has_global_header() {
            return None;
        }
        let mut path = Self { service_level: wc.service_level(), ..Self::new([0; 16], gid_index) };
        match IpHeader::of(header)? {
            IpHeader::V6(header) => {
                path.gid.copy_from_slice(&header[8..24]);
                let word = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
                path.flow_label = word & 0xf_ffff;
                path.traffic_class = (word >> 20) as u8;
            }
            IpHeader::V4(header) => {
                path.gid = mapped(&header[12..16])?;
                path.traffic_class = header[1];
            }
        }
        Some(path)
    }

    /// To which of our GIDs a datagram came; `header` is the 40 bytes before its data. `None` where they are no header.
    #[must_use]
    pub fn destination_gid(header: &[u8]) -> Option<[u8; 16]> {
        match IpHeader::of(header.first_chunk()?)? {
            IpHeader::V6(header) => header[24..40].try_into().ok(),
            IpHeader::V4(header) => mapped(&header[16..20]),
        }
    }

    /// As commands carry it.
    #[must_use]
    pub fn attributes(&self) -> AhAttr {
        AhAttr {
            grh: GlobalRoute {
                dgid: self.gid,
                flow_label: self.flow_label,
                sgid_index: self.gid_index,
                hop_limit: self.hop_limit,
                traffic_class: self.traffic_class,
                ..GlobalRoute::default()
            },
            dlid: self.lid,
            sl: self.service_level,
            static_rate: self.rate,
            is_global: 1,
            port_num: self.port,
            ..AhAttr::default()
        }
    }
}

/// What stands in the 40 bytes before a datagram's data: of RoCE v2 over IPv4 the last 20 of them.
enum IpHeader<'a> {
    V4(&'a [u8; 20]),
    V6(&'a [u8; 40]),
}

impl<'a> IpHeader<'a> {
    fn of(header: &'a [u8; 40]) -> Option<Self> {
        let last: &[u8; 20] = header.last_chunk()?;
        match (header[0] >> 4, last[0] >> 4) {
            (6, _) => Some(Self::V6(header)),
            (_, 4) => Some(Self::V4(last)),
            _ => None,
        }
    }
}

/// An address of IPv4 as a GID.
fn mapped(address: &[u8]) -> Option<[u8; 16]> {
    let address: [u8; 4] = address.try_into().ok()?;
    Some(std::net::Ipv4Addr::from(address).to_ipv6_mapped().octets())
}

/// An address handle: a path, ready to be posted.
#[derive(Debug)]
pub struct Ah {
    /// As requests carry it: of rxe the kernel's number.
    pub(crate) address: Side<Mlx5Address, u32>,
    /// The [serial](crate::Context::serial) of its context.
    pub(crate) context: u64,
    handle: Option<AhHandle>,
    pd: Pd,
}

impl Ah {
    /// Makes an address handle; the kernel finds the MAC of the destination.
    ///
    /// # Errors
    /// A GID index without an entry, nobody who has the destination, or what the kernel says.
    #[doc(alias = "ibv_create_ah")]
    pub fn new(pd: &Pd, path: &Path) -> Result<Self, VerbsError> {
        let (address, handle) = match pd.context().driver() {
            Side::Mlx5(hca) => {
                let (address, handle) = hca.address(pd.handle(), &path.attributes())?;
                (Side::Mlx5(address), handle)
            }
            Side::Rxe(rxe) => {
                let (number, handle) = rxe.address(pd.handle(), &path.attributes())?;
                (Side::Rxe(number), Some(handle))
            }
        };
        Ok(Self { address, context: pd.context().serial(), handle, pd: pd.clone() })
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if let Some(handle) = self.handle
            && let Err(error) = self.pd.context().uverbs().destroy_ah(handle)
        {
            tracing::warn!(target: "lib.verbs", "{}: {error}", self.pd.context().name());
        }
    }
}
