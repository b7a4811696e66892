//! TIRs: one queue, or a hash over header fields that picks one from a table.

use std::ops::{BitOr, BitXor};

use pollux_mlx5_abi::command::tir::{TirContext, hash_field, loopback};
use pollux_mlx5_abi::cqe::rss;
use pollux_wire::toeplitz::Toeplitz;

use crate::frame::{Headers, Ip, Transport};
use crate::port::loopback::is_group;
use crate::receive::join::Merge;

/// Which fields are hashed, of which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) ipv6: bool,
    pub(crate) udp: bool,
    /// A mask of `hash_field`.
    pub(crate) selected: u32,
}

/// Where packets go on.
#[derive(Clone, Debug)]
pub(crate) enum Dispatch {
    Queue(u32),
    Table(u32),
}

/// How the selected fields become a number.
#[derive(Clone, Debug)]
pub(crate) enum Function {
    None,
    /// The exclusive or of all bytes, its bits in reverse: Linux turns the numbers of a table's places round to make up for
    /// that. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en/rqt.c`, `mlx5e_calc_indir_rqns`.
    InvertedXor8,
    Toeplitz(Toeplitz),
}

/// A TIR.
#[derive(Clone, Debug)]
pub(crate) struct Tir {
    pub(crate) dispatch: Dispatch,
    pub(crate) function: Function,
    /// Of each pair of fields the first is the or of both sides, the second their exclusive or. Source: Linux
    /// `drivers/net/ethernet/mellanox/mlx5/core/en_ethtool.c`, `RXH_XFRM_SYM_OR_XOR`, and `include/uapi/linux/ethtool.h`.
    pub(crate) symmetric: bool,
    pub(crate) outer: Fields,
    pub(crate) inner: Fields,
    /// Checks and hashes are of the frame inside a tunnel.
    pub(crate) tunneled: bool,
    /// How TCP segments are joined, if they are.
    pub(crate) merge: Option<Merge>,
    pub(crate) context: [u8; 240],
}

impl Tir {
    /// Whether it refuses a frame that a queue of this transport domain of the same function sent: its own, unless it was
    /// told to take those. The field's name says the opposite of what it does. Source: Linux
    /// `drivers/net/ethernet/mellanox/mlx5/core/en_common.c`, `mlx5e_refresh_tirs`, and
    /// `drivers/infiniband/hw/mlx5/qp.c`, `create_raw_packet_qp_tir` (`MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_*`); DPDK
    /// `drivers/net/mlx5/mlx5_devx.c`, `mlx5_devx_tir_attr_set`, under `lpbk_mode`.
    pub(crate) fn refuses(&self, domain: u32, frame: &[u8]) -> bool {
        let taken = TirContext::SELF_LB_BLOCK.get(&self.context);
        let kind = if is_group(frame) { loopback::ALLOW_MULTICAST } else { loopback::ALLOW_UNICAST };
        TirContext::TRANSPORT_DOMAIN.get(&self.context) == domain && taken & kind == 0
    }
}

/// A hash, and what was hashed as a completion says it: 0 for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hash {
    pub(crate) value: u32,
    pub(crate) kind: u8,
}

impl Tir {
    /// The hash of a packet: of the headers inside its tunnel, if there are any and fields of theirs are selected.
    #[inline]
    pub(crate) fn hash(&self, frame: &[u8], outer: &Headers, inner: Option<&Headers>) -> Hash {
        if matches!(self.function, Function::None) {
            return Hash::default();
        }
        // Either way's exclusive or is the same without it, and would be 0 with it.
        let symmetric = self.symmetric && matches!(self.function, Function::Toeplitz(_));
        let (headers, fields) = match inner {
            Some(inner) if self.inner.selected != 0 => (inner, self.inner),
            _ => (outer, self.outer),
        };
        let Some((source, destination)) = headers.addresses(frame) else { return Hash::default() };
        if fields.ipv6 != (headers.ip == Ip::V6) {
            return Hash::default();
        }
        let ports = fields.selected & (hash_field::L4_SPORT | hash_field::L4_DPORT) != 0;
        let transport = if fields.udp { Transport::Udp } else { Transport::Tcp };
        if ports && headers.transport != transport {
            return Hash::default();
        }
        let (source_port, destination_port) = headers.ports(frame);
        let mut input = [0; 36];
        let mut length = 0;
        let mut put = |selected: u32, bytes: &[u8], other: &[u8], join: fn(u8, u8) -> u8| {
            if fields.selected & selected != 0 {
                for (place, (byte, other)) in input[length..].iter_mut().zip(bytes.iter().zip(other)) {
                    *place = if symmetric { join(*byte, *other) } else { *byte };
                }
                length += bytes.len();
            }
        };
        let (source_port, destination_port) = (source_port.to_be_bytes(), destination_port.to_be_bytes());
        put(hash_field::SRC_IP, source, destination, u8::bitor);
        put(hash_field::DST_IP, destination, source, u8::bitxor);
        if ports {
            put(hash_field::L4_SPORT, &source_port, &destination_port, u8::bitor);
            put(hash_field::L4_DPORT, &destination_port, &source_port, u8::bitxor);
        }
        if length == 0 {
            return Hash::default();
        }
        let ip = if fields.ipv6 { 2 } else { 1 } << rss::IP.trailing_zeros();
        let l4 = if !ports {
            0
        } else if fields.udp {
            2
        } else {
            1
        };
        let value = match &self.function {
            Function::None => 0,
            Function::InvertedXor8 => {
                input[..length].iter().fold(0, |sum, byte| sum ^ byte).reverse_bits().into()
            }
            Function::Toeplitz(toeplitz) => toeplitz.hash(&input[..length]),
        };
        Hash { value, kind: ip | l4 << rss::L4.trailing_zeros() }
    }
}
