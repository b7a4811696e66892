//! Bits of send entries that mean nothing, and are zero in the entries of every driver: Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/en/txrx.h`, `mlx5e_fetch_wqe`; rdma-core `providers/mlx5/qp.c`, `_common_wqe_init_op`; DPDK
//! `drivers/net/mlx5/mlx5_tx.h`, `mlx5_tx_cseg_init`. Whoever sets one is told of ([`Violation::Reserved`]) and served: what a card makes
//! of it nobody says.
//!
//! The check byte is no part of this: no queue here asks for one, and what stands there is ignored then.
//!
//! [`Violation::Reserved`]: crate::Violation::Reserved

use std::mem::offset_of;

use pollux_mlx5_abi::opcode::send;
use pollux_mlx5_abi::wqe::{Control, Ethernet, INSERT_SVLAN, INSERT_VLAN, SEGMENT_BYTES, checksum};
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
    let frames = matches!(control.opcode(), send::SEND | send::TSO | send::ENHANCED_MPSW);
    let segment = bytes.get(SEGMENT_BYTES..).filter(|_| frames && in_control.is_none());
    let Some((ethernet, _)) = segment.and_then(|rest| Ethernet::ref_from_prefix(rest).ok()) else {
        return in_control;
    };
    if ethernet.cs_flags & !SUMS != 0 {
        return Some(SEGMENT_BYTES + offset_of!(Ethernet, cs_flags));
    }
    // Beside the bit for a tag only the one for a service tag is known.
    let unknown =
        ethernet.vlan().is_some() && ethernet.inline_hdr_sz.get() & !(INSERT_VLAN | INSERT_SVLAN) != 0;
    unknown.then_some(SEGMENT_BYTES + offset_of!(Ethernet, inline_hdr_sz))
}
