use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::OWNER;

/// A completion of 64 bytes.
///
/// Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_cqe64`; rdma-core `providers/mlx5/mlx5dv.h`; DPDK
/// `drivers/common/mlx5/mlx5_prm.h`, `struct mlx5_cqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Cqe64 {
    /// A mask of [`packet`]: tunnel, outer header, TLS.
    pub pkt_info: u8,
    /// Reserved.
    pub reserved1: u8,
    /// Of a striding ring: the entry whose strides were filled.
    pub wqe_id: U16,
    /// Large receive: TCP flags of the merged packets.
    pub lro_tcppsh_abort_dupack: u8,
    /// Large receive: smallest time to live.
    pub lro_min_ttl: u8,
    /// Large receive: TCP window.
    pub lro_tcp_win: U16,
    /// Large receive: TCP acknowledgement.
    pub lro_ack_seq_num: U32,
    /// The hash that chose the queue.
    pub rss_hash_result: U32,
    /// What was hashed: masks of [`rss`].
    pub rss_hash_type: u8,
    /// Path bits of the destination.
    pub ml_path: u8,
    /// Reserved.
    pub reserved18: [u8; 2],
    /// Ones' complement sum over all that comes after the Ethernet header.
    pub check_sum: U16,
    /// LID of the source.
    pub slid: U16,
    /// [`FLAGS_GRH`], service level (bits 27 to 24), queue pair of the source (23 to 0).
    pub flags_rqpn: U32,
    /// A mask of [`status`] and whether IP had options.
    pub hds_ip_ext: u8,
    /// A mask of [`packet`]: VLAN, layer 3, layer 4, fragment.
    pub l4_l3_hdr_type: u8,
    /// The VLAN tag that was taken off.
    pub vlan_info: U16,
    /// Large receive: packets merged (bits 31 to 24). Shared receive queue, or what the user called the queue (23 to 0).
    pub srqn_uidx: U32,
    /// Immediate data, invalidated key, partition key, or metadata of steering.
    pub imm_inval_pkey: U32,
    /// Which function made it, where not a transport.
    pub app: u8,
    /// What that function did.
    pub app_op: u8,
    /// More of it.
    pub app_info: U16,
    /// Bytes; of a striding ring see [`Strides`]; of a compressed title, packets.
    pub byte_cnt: U32,
    /// When it happened, in ticks of the adapter's clock, or in seconds and nanoseconds of its real-time clock.
    pub timestamp: U64,
    /// Opcode of the work, or drop counter (bits 31 to 24). Queue pair, or tag of the steering rule (23 to 0).
    pub sop_drop_qpn: U32,
    /// Sender: index of the entry's first block. Receiver: index of the entry; of a striding ring, first stride.
    pub wqe_counter: U16,
    /// Check byte, or the pass of the ring where the queue says so.
    pub signature: u8,
    /// Opcode, format, solicited, owner.
    pub op_own: u8,
}

const _: () = assert!(size_of::<Cqe64>() == 64);
const _: () = assert!(offset_of!(Cqe64, wqe_id) == 2 && offset_of!(Cqe64, rss_hash_result) == 12);
const _: () = assert!(offset_of!(Cqe64, check_sum) == 20 && offset_of!(Cqe64, flags_rqpn) == 24);
const _: () = assert!(offset_of!(Cqe64, hds_ip_ext) == 28 && offset_of!(Cqe64, srqn_uidx) == 32);
const _: () = assert!(offset_of!(Cqe64, byte_cnt) == 44 && offset_of!(Cqe64, timestamp) == 48);
const _: () = assert!(offset_of!(Cqe64, sop_drop_qpn) == 56 && offset_of!(Cqe64, op_own) == 63);

/// A completion of 128 bytes: payload or padding first, the entry last.
///
/// Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_cqe128`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct Cqe128 {
    /// Payload of an entry of format 2, or the global header.
    pub inline: [u8; 64],
    /// The completion.
    pub entry: Cqe64,
}

const _: () = assert!(size_of::<Cqe128>() == 128 && offset_of!(Cqe128, entry) == 64);

/// What stands in parts of an entry's fields, for who reads those one by one. Source: Linux `include/linux/mlx5/device.h`,
/// `struct mlx5_cqe64` and what reads it; `drivers/infiniband/hw/mlx5/cq.c`, `handle_responder`.
pub mod part {
    /// In `op_own`: what the entry reports, one of [`completion`](crate::opcode::completion).
    #[must_use]
    #[inline]
    pub const fn opcode(op_own: u8) -> u8 {
        op_own >> 4
    }

    /// In `op_own`: one of [`format`](mod@super::format).
    #[must_use]
    #[inline]
    pub const fn format(op_own: u8) -> u8 {
        op_own >> 2 & 3
    }

    /// In `op_own`: whether an event was asked for.
    #[must_use]
    #[inline]
    pub const fn solicited(op_own: u8) -> bool {
        op_own & 2 != 0
    }

    /// In `sop_drop_qpn`: the queue pair or send queue, or the tag that a steering rule gave the frame; 0 where no rule did.
    #[must_use]
    #[inline]
    pub const fn number(sop_drop_qpn: u32) -> u32 {
        sop_drop_qpn & 0xff_ffff
    }

    /// In `sop_drop_qpn`: the opcode of the work that is done, one of [`send`](crate::opcode::send).
    #[must_use]
    #[inline]
    pub const fn send_opcode(sop_drop_qpn: u32) -> u8 {
        (sop_drop_qpn >> 24) as u8
    }

    /// In `srqn_uidx`: the shared receive queue, or what the user called the queue.
    #[must_use]
    #[inline]
    pub const fn user_index(srqn_uidx: u32) -> u32 {
        srqn_uidx & 0xff_ffff
    }

    /// In `flags_rqpn`: the sender's queue pair.
    #[must_use]
    #[inline]
    pub const fn source(flags_rqpn: u32) -> u32 {
        flags_rqpn & 0xff_ffff
    }

    /// In `flags_rqpn`: the service level.
    #[must_use]
    #[inline]
    pub const fn service_level(flags_rqpn: u32) -> u8 {
        (flags_rqpn >> 24 & 0xf) as u8
    }
}

/// In `flags_rqpn`: which header stands before the payload, 2 bits from bit 28 on. Source: Linux
/// `drivers/infiniband/hw/mlx5/cq.c`, where a receive completion is read.
pub const FLAGS_GRH: u32 = 3 << 28;

/// Bits 3 and 2 of the last byte. Source: Linux `include/linux/mlx5/device.h`, `MLX5_NO_INLINE_DATA` and its
/// neighbours.
pub mod format {
    /// The entry as it is.
    pub const PLAIN: u8 = 0;
    /// Payload in the first 32 bytes.
    pub const INLINE_32: u8 = 1;
    /// Payload in the 64 bytes before.
    pub const INLINE_64: u8 = 2;
    /// Compressed.
    pub const COMPRESSED: u8 = 3;
}

/// Of packets that were joined of TCP segments. Source: DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_CQE_LRO_PUSH_MASK`,
/// `struct mlx5_cqe`, where the number of segments is the first byte of `srqn_uidx`.
pub mod lro {
    /// In `lro_tcppsh_abort_dupack`: one of them had the push flag.
    pub const PUSH: u8 = 0x40;

    /// How many there were: 0 or 1 for a packet as it came.
    #[must_use]
    #[inline]
    pub const fn segments(srqn_uidx: u32) -> u8 {
        (srqn_uidx >> 24) as u8
    }
}

/// Bits of `hds_ip_ext`. Source: Linux `include/linux/mlx5/device.h`, `CQE_L2_OK` and its neighbours; DPDK
/// `drivers/common/mlx5/mlx5_prm.h`, `MLX5_CQE_RX_L2_HDR_VALID` and its neighbours, where both bytes are one word.
pub mod status {
    /// Layer 2 was understood.
    pub const L2_OK: u8 = 1 << 0;
    /// The IPv4 header's checksum is right, or it is IPv6.
    pub const L3_OK: u8 = 1 << 1;
    /// The TCP or UDP checksum is right.
    pub const L4_OK: u8 = 1 << 2;
}

/// Bits of `l4_l3_hdr_type` and `pkt_info`. Source: Linux `include/linux/mlx5/device.h`, `cqe_has_vlan`,
/// `get_cqe_l4_hdr_type`, `cqe_is_tunneled`; DPDK `drivers/common/mlx5/mlx5_prm.h`, `MLX5_CQE_RX_*`.
pub mod packet {
    /// In `l4_l3_hdr_type`: a VLAN tag was taken off.
    pub const VLAN_STRIPPED: u8 = 1 << 0;
    /// In `l4_l3_hdr_type`: IP options or extension headers.
    pub const IP_EXTENSIONS: u8 = 1 << 1;
    /// In `l4_l3_hdr_type`: [`Layer3`](super::Layer3), shifted so far.
    pub const L3_SHIFT: u8 = 2;
    /// Its bits, shifted down.
    pub const L3_MASK: u8 = 3;
    /// In `l4_l3_hdr_type`: [`Layer4`](super::Layer4), shifted so far.
    pub const L4_SHIFT: u8 = 4;
    /// In `l4_l3_hdr_type`: a fragment.
    pub const IP_FRAGMENT: u8 = 1 << 7;
    /// In `pkt_info`: the headers are those inside a tunnel.
    pub const TUNNELED: u8 = 1 << 0;
    /// In `pkt_info`: the tunnel's own header is IPv6, not IPv4.
    pub const OUTER_IPV6: u8 = 1 << 1;
}

/// Parts of `rss_hash_type`. Source: Linux `include/linux/mlx5/device.h`, `CQE_RSS_HTYPE_IP`, `CQE_RSS_HTYPE_L4`.
pub mod rss {
    /// Which IP was hashed: 0 none, 1 IPv4, 2 IPv6, shifted by 2.
    pub const IP: u8 = 3 << 2;
    /// Which layer 4: 0 none, 1 TCP, 2 UDP, 3 IPsec, shifted by 6.
    pub const L4: u8 = 3 << 6;
}

/// Layer 3 of a received frame.
///
/// Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_CQE_L3_HDR_TYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layer3 {
    /// Not IP.
    None = 0,
    /// IPv6.
    Ipv6 = 1,
    /// IPv4.
    Ipv4 = 2,
}

/// Layer 4 of a received frame.
///
/// Source: Linux `include/linux/mlx5/device.h`, `CQE_L4_HDR_TYPE_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Layer4 {
    /// Neither TCP nor UDP.
    None = 0,
    /// TCP without acknowledgement.
    Tcp = 1,
    /// UDP.
    Udp = 2,
    /// TCP, an acknowledgement alone.
    TcpAckNoData = 3,
    /// TCP with data and acknowledgement.
    TcpAckAndData = 4,
}

/// What a completion of a striding ring has in the place of the byte count.
///
/// Source: Linux `include/linux/mlx5/device.h`, `struct mpwrq_cqe_bc`; DPDK `drivers/common/mlx5/mlx5_prm.h`,
/// `MLX5_MPRQ_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// Bytes of the packet.
    pub bytes: u16,
    /// Strides it used up.
    pub count: u16,
    /// No packet: strides left over at the entry's end.
    pub filler: bool,
}

impl Strides {
    /// Takes the byte count apart.
    #[must_use]
    #[inline]
    pub const fn of(byte_cnt: u32) -> Self {
        Self { bytes: byte_cnt as u16, count: (byte_cnt >> 16) as u16 & 0x7fff, filler: byte_cnt >> 31 != 0 }
    }

    /// Puts it together again; a count of 2^15 or more is cut.
    #[must_use]
    #[inline]
    pub const fn byte_cnt(self) -> u32 {
        (self.filler as u32) << 31 | (self.count as u32 & 0x7fff) << 16 | self.bytes as u32
    }
}

impl Cqe64 {
    /// An entry as software leaves it in a fresh ring.
    #[must_use]
    pub fn fresh() -> Self {
        let mut bytes = [0_u8; 64];
        bytes[63] = super::FRESH;
        zerocopy::transmute!(bytes)
    }

    /// Its last two bytes, by which it is [ready](super::Validity): `op_own` above.
    #[must_use]
    #[inline]
    pub const fn last_word(&self) -> u16 {
        u16::from_le_bytes([self.signature, self.op_own])
    }

    /// What it reports: one of [`completion`](crate::opcode::completion).
    #[must_use]
    #[inline]
    pub const fn opcode(&self) -> u8 {
        part::opcode(self.op_own)
    }

    /// One of [`format`](mod@format).
    #[must_use]
    #[inline]
    pub const fn format(&self) -> u8 {
        part::format(self.op_own)
    }

    /// Whether an event was asked for.
    #[must_use]
    #[inline]
    pub const fn solicited(&self) -> bool {
        part::solicited(self.op_own)
    }

    /// The owner bit.
    #[must_use]
    #[inline]
    pub const fn owner(&self) -> bool {
        self.op_own & OWNER != 0
    }

    /// Queue pair or send queue that it belongs to.
    #[must_use]
    #[inline]
    pub const fn qpn(&self) -> u32 {
        part::number(self.sop_drop_qpn.get())
    }

    /// The tag that a steering rule gave the frame; 0 where no rule did.
    #[must_use]
    #[inline]
    pub const fn flow_tag(&self) -> u32 {
        part::number(self.sop_drop_qpn.get())
    }

    /// Opcode of the work that is done: one of [`send`](crate::opcode::send).
    #[must_use]
    #[inline]
    pub const fn send_opcode(&self) -> u8 {
        part::send_opcode(self.sop_drop_qpn.get())
    }

    /// Shared receive queue, or what the user called the queue.
    #[must_use]
    #[inline]
    pub const fn user_index(&self) -> u32 {
        part::user_index(self.srqn_uidx.get())
    }

    /// Layer 3; `None` is a code that does not exist.
    #[must_use]
    #[inline]
    pub const fn layer3(&self) -> Option<Layer3> {
        match self.l4_l3_hdr_type >> packet::L3_SHIFT & packet::L3_MASK {
            0 => Some(Layer3::None),
            1 => Some(Layer3::Ipv6),
            2 => Some(Layer3::Ipv4),
            _ => None,
        }
    }

    /// Layer 4; `None` is a code that does not exist.
    #[must_use]
    #[inline]
    pub const fn layer4(&self) -> Option<Layer4> {
        match self.l4_l3_hdr_type >> packet::L4_SHIFT & 7 {
            0 => Some(Layer4::None),
            1 => Some(Layer4::Tcp),
            2 => Some(Layer4::Udp),
            3 => Some(Layer4::TcpAckNoData),
            4 => Some(Layer4::TcpAckAndData),
            _ => None,
        }
    }

    /// The VLAN tag that was taken off.
    #[must_use]
    #[inline]
    pub const fn vlan(&self) -> Option<u16> {
        if self.l4_l3_hdr_type & packet::VLAN_STRIPPED == 0 { None } else { Some(self.vlan_info.get()) }
    }

    /// The byte count of a striding ring, taken apart.
    #[must_use]
    #[inline]
    pub const fn strides(&self) -> Strides {
        Strides::of(self.byte_cnt.get())
    }
}
