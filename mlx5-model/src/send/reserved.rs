//! Bits of send entries that mean nothing, and are zero in the entries of every driver: Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/en/txrx.h`, `mlx5e_fetch_wqe`; rdma-core `providers/mlx5/qp.c`, `_common_wqe_init_op`; DPDK
//! `drivers/net/mlx5/mlx5_tx.h`, `mlx5_tx_cseg_init`. Whoever sets one is told of ([`Violation::Reserved`]) and served: what a card makes
//! of it nobody says.
//!
//! The check byte is no part of this: no queue here asks for one, and what stands there is ignored then. Nor is what rdma-core
//! itself leaves of an older entry: behind the number of an XRC segment (`providers/mlx5/qp.c`, `mlx5_send_wr_set_xrc_srqn`), and
//! fields of a memory key's context that the mask of the entry does not name (`set_umr_mkey_seg`).
//!
//! [`Violation::Reserved`]: crate::Violation::Reserved

use std::mem::offset_of;

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{
    AddressVector, Control, EXTENDED_UD_AV, Ethernet, INSERT_SVLAN, INSERT_VLAN, MkeyContext, RemoteAddress,
    SEGMENT_BYTES, UmrControl, checksum, mkey_flag,
};
use zerocopy::FromBytes;

/// Above the length in segments.
const LENGTH_RESERVED: u32 = 0b1100_0000;
/// Beside fence, completion and solicited.
const FLAGS_RESERVED: u8 = 0b0001_0001;
const SUMS: u8 = checksum::L3_INNER | checksum::L4_INNER | checksum::L3 | checksum::L4;
/// The first byte of a control segment with such bits.
pub(crate) fn in_control(control: &Control) -> Option<usize> {
    if control.qpn_ds.get() & LENGTH_RESERVED != 0 {
        return Some(7);
    }
    if let Some(at) = control.dci_stream_channel_id.iter().position(|byte| *byte != 0) {
        return Some(offset_of!(Control, dci_stream_channel_id) + at);
    }
    let unknown = control.fm_ce_se & FLAGS_RESERVED != 0 || control.fence().is_none();
    unknown.then_some(offset_of!(Control, fm_ce_se))
}

/// The same of an entry of a send queue.
pub(super) fn in_entry(control: &Control, bytes: &[u8]) -> Option<usize> {
    let in_control = in_control(control);
    if control.opcode() == send::UMR {
        return in_control.or_else(|| in_umr(bytes.get(SEGMENT_BYTES..)?));
    }
    let frames = matches!(control.opcode(), send::SEND | send::TSO | send::ENHANCED_MPSW);
    let segment = bytes.get(SEGMENT_BYTES..).filter(|_| frames && in_control.is_none());
    let Some((ethernet, _)) = segment.and_then(|rest| Ethernet::ref_from_prefix(rest).ok()) else {
        return in_control;
    };
    if ethernet.cs_flags & !SUMS != 0 {
        return Some(SEGMENT_BYTES + offset_of!(Ethernet, cs_flags));
    }
    // What to cut a frame into. Nothing is cut here: Linux `drivers/net/ethernet/mellanox/mlx5/core/en_tx.c`, `mlx5e_sq_xmit_wqe`;
    // DPDK `drivers/net/mlx5/mlx5_tx.h`, `mlx5_tx_eseg_none`, which writes it with the sums.
    if control.opcode() != send::TSO
        && let Some(at) = ethernet.mss.to_bytes().iter().position(|byte| *byte != 0)
    {
        return Some(SEGMENT_BYTES + offset_of!(Ethernet, mss) + at);
    }
    // A header's or a tag's place, where neither is: both are zero there in the same two drivers.
    if ethernet.inline_hdr_sz.get() == 0
        && let Some(at) = ethernet.inline_hdr_start.iter().position(|byte| *byte != 0)
    {
        return Some(SEGMENT_BYTES + offset_of!(Ethernet, inline_hdr_start) + at);
    }
    // Beside the bit for a tag only the one for a service tag is known.
    let unknown =
        ethernet.vlan().is_some() && ethernet.inline_hdr_sz.get() & !(INSERT_VLAN | INSERT_SVLAN) != 0;
    unknown.then_some(SEGMENT_BYTES + offset_of!(Ethernet, inline_hdr_sz))
}

/// Below the flags of a change to a memory key. Source: rdma-core `providers/mlx5/mlx5dv.h`, `MLX5_WQE_UMR_CTRL_FLAG_*`; Linux
/// `include/linux/mlx5/device.h`, `MLX5_UMR_*`.
const UMR_RESERVED: u8 = 0b0000_0111;
/// Beside the bit for a free key and the kind of translation, in the first byte of its context. Source: Linux
/// `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_mkc_bits`.
const FREE_RESERVED: u8 = !(mkey_flag::FREE | 0b0001_1100);

/// The same of the segments behind the control segment of an entry that changes a memory key. Zero in rdma-core
/// `providers/mlx5/qp.c`, `set_umr_control_seg`, and in Linux `drivers/infiniband/hw/mlx5/wr.c`, `set_reg_umr_seg`.
pub(crate) fn in_umr(segments: &[u8]) -> Option<usize> {
    let (control, rest) = UmrControl::ref_from_prefix(segments).ok()?;
    let first = |from: usize, bytes: &[u8]| Some(from + bytes.iter().position(|byte| *byte != 0)?);
    let found = if control.flags & UMR_RESERVED != 0 {
        Some(0)
    } else {
        first(offset_of!(UmrControl, reserved0), &control.reserved0)
            .or_else(|| first(offset_of!(UmrControl, reserved1), &control.reserved1))
    };
    let found = found.or_else(|| {
        let (context, _) = MkeyContext::ref_from_prefix(rest).ok()?;
        (context.free & FREE_RESERVED != 0).then_some(size_of::<UmrControl>())
    });
    found.map(|at| SEGMENT_BYTES + at)
}

/// The same of a peer's address, `at` bytes into the entry. Zero in rdma-core `providers/mlx5/qp.c`, `set_raddr_seg`, and in Linux
/// `drivers/infiniband/hw/mlx5/wr.c`, the function of that name.
pub(crate) fn in_remote(at: usize, remote: &RemoteAddress) -> Option<usize> {
    let found = remote.reserved.to_bytes().iter().position(|byte| *byte != 0)?;
    Some(at + offset_of!(RemoteAddress, reserved) + found)
}

/// The same of where a datagram goes: between the bit that says the vector is whole and the peer's number, and in front of its
/// address. Zero in rdma-core `providers/mlx5/verbs.c`, `mlx5_create_ah`, and in Linux `drivers/infiniband/hw/mlx5/ah.c`,
/// `create_ib_ah`.
pub(crate) fn in_vector(at: usize, vector: &AddressVector) -> Option<usize> {
    if vector.dqp_dct.get() & !(EXTENDED_UD_AV | 0xff_ffff) != 0 {
        return Some(at + offset_of!(AddressVector, dqp_dct));
    }
    let found = vector.reserved0.iter().position(|byte| *byte != 0)?;
    Some(at + offset_of!(AddressVector, reserved0) + found)
}
