//! Memory keys over pages that need not be there (on-demand paging), the scheme of memory: the device asks for pages by key
//! and address, and goes on when it is told that they came.
//!
//! Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_odp_cap_bits`, `mlx5_ifc_odp_scheme_cap_bits`,
//! `mlx5_ifc_odp_per_transport_service_cap_bits`, `mlx5_ifc_mem_page_fault_info_bits`; `include/linux/mlx5/device.h`,
//! `struct mlx5_eqe_page_fault`, `MLX5_PFAULT_SUBTYPE_MEMORY`; `drivers/infiniband/hw/mlx5/odp.c`,
//! `mlx5_ib_mr_memory_pfault_handler`. The bits of services: rdma-core `providers/mlx5/mlx5_ifc.h`,
//! `mlx5_ifc_odp_per_transport_service_cap_bits`.

use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::field::Field;

/// In the block of [`kind::ODP`](crate::caps::kind::ODP): the scheme of memory is in use.
pub const BY_MEMORY: Field<256> = Field::new(0xc0, 31, 31);
/// There: what reliable connections can do, of [`service`].
pub const RELIABLE: Field<256> = Field::new(0x50, 31, 0);
/// There: datagrams.
pub const DATAGRAM: Field<256> = Field::new(0x58, 31, 0);
/// There: XRC.
pub const XRC: Field<256> = Field::new(0x5c, 31, 0);

/// In a key's context: the sixth bit of its [`LOG_PAGE_SIZE`](crate::command::mkey::MkeyContext::LOG_PAGE_SIZE), which older headers
/// call reserved. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_mkc_bits` since 6.14.
pub const LOG_PAGE_SIZE_5: Field<64> = Field::new(0x38, 5, 5);

/// What may come upon pages that are not there.
pub mod service {
    /// Sending.
    pub const SEND: u32 = 1 << 31;
    /// Receiving.
    pub const RECEIVE: u32 = 1 << 30;
    /// The peer's writing.
    pub const WRITE: u32 = 1 << 29;
    /// The peer's reading.
    pub const READ: u32 = 1 << 28;
    /// Atomics.
    pub const ATOMIC: u32 = 1 << 27;
    /// Receiving through a shared receive queue.
    pub const SHARED: u32 = 1 << 26;
}

/// Of [`event::PAGE_FAULT`](crate::eqe::event::PAGE_FAULT): by key and address.
pub const SUB_TYPE: u8 = 2;
/// In [`Fault::flags`]: an answer is awaited.
pub const LAST: u8 = 1 << 7;
/// Pages of this size are asked for, whatever the key's size of pages is.
pub const LOG_PAGE: u32 = 12;

/// Data of such an event.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Fault {
    /// [`LAST`].
    pub flags: u8,
    /// Reserved.
    pub reserved1: u8,
    /// Pages behind that may be of use.
    pub post_demand_fault_pages: U16,
    /// Pages in front that may be of use.
    pub pre_demand_fault_pages: U16,
    /// Upper bits of the token.
    pub token47_32: U16,
    /// Lower bits of the token.
    pub token31_0: U32,
    /// Pages needed, in bits 31 to 12.
    pub demand_fault_pages: U32,
    /// Key.
    pub mkey: U32,
    /// First address.
    pub va: U64,
}

const _: () = assert!(size_of::<Fault>() == 28 && core::mem::offset_of!(Fault, va) == 20);

/// In PAGE_FAULT_RESUME: the pages will not come.
pub const RESUME_ERROR: Field<16> = Field::new(0x08, 31, 31);
/// There: upper bits of the token.
pub const RESUME_TOKEN_47_32: Field<16> = Field::new(0x08, 15, 0);
/// There: lower bits of the token.
pub const RESUME_TOKEN_31_0: Field<16> = Field::new(0x0c, 31, 0);

/// In an entry of a translation: the page may be read. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`,
/// `MLX5_IB_MTT_READ`.
pub const READ: u64 = 0b01;
/// In an entry of a translation: the page is there. Source: Linux `drivers/infiniband/hw/mlx5/mlx5_ib.h`,
/// `MLX5_IB_MTT_PRESENT`.
pub const PRESENT: u64 = 0b11;
