//! Event queue entries: what the adapter tells the host beside completions.
//!
//! An entry is 64 bytes. It belongs to software when the owner bit of its last byte equals the parity of the pass, as
//! with completions. Its number of [`event`] says which structure its data are.

use std::mem::offset_of;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An event.
///
/// Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_eqe`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Eqe {
    /// Reserved.
    pub reserved0: u8,
    /// What happened: one of [`event`].
    pub kind: u8,
    /// Reserved.
    pub reserved1: u8,
    /// More of it: of a port, one of [`port_change`].
    pub sub_type: u8,
    /// Reserved.
    pub reserved2: [U32; 7],
    /// By kind: [`Completion`], [`Queue`], [`Target`], [`CqError`], [`Port`], [`Commands`], [`PageRequest`], [`VportChange`].
    pub data: [u8; 28],
    /// Reserved.
    pub reserved3: U16,
    /// Check byte.
    pub signature: u8,
    /// Bit 0: whose it is.
    pub owner: u8,
}

const _: () = assert!(size_of::<Eqe>() == 64 && offset_of!(Eqe, kind) == 1 && offset_of!(Eqe, sub_type) == 3);
const _: () = assert!(offset_of!(Eqe, data) == 32 && offset_of!(Eqe, owner) == 63);

/// What software writes into the last byte of every entry of a fresh ring: owned by the adapter. Source: Linux
/// `drivers/net/ethernet/mellanox/mlx5/core/eq.c`, where a ring is filled.
pub const FRESH: u8 = 1;

/// Whether an entry with this last byte is ready at the free-running `index` of a ring of `1 << log_entries`.
#[must_use]
#[inline]
pub const fn is_ready(owner: u8, index: u32, log_entries: u8) -> bool {
    owner & 1 == (index >> log_entries & 1) as u8
}

/// Kinds of events. Source: Linux `include/linux/mlx5/device.h`, `enum mlx5_event`.
pub mod event {
    /// A completion queue that was armed has a completion.
    pub const COMP: u8 = 0x00;
    /// Path migrated.
    pub const PATH_MIG: u8 = 0x01;
    /// A connection is established: a packet came in state RTR.
    pub const COMM_EST: u8 = 0x02;
    /// A send queue is drained.
    pub const SQ_DRAINED: u8 = 0x03;
    /// A completion queue overran or lost its memory.
    pub const CQ_ERROR: u8 = 0x04;
    /// A queue failed for good.
    pub const WQ_CATAS_ERROR: u8 = 0x05;
    /// Path migration failed.
    pub const PATH_MIG_FAILED: u8 = 0x07;
    /// The adapter failed.
    pub const INTERNAL_ERROR: u8 = 0x08;
    /// A port changed.
    pub const PORT_CHANGE: u8 = 0x09;
    /// Commands are done.
    pub const CMD: u8 = 0x0a;
    /// The firmware asks for pages, or offers some.
    pub const PAGE_REQUEST: u8 = 0x0b;
    /// A page is not there.
    pub const PAGE_FAULT: u8 = 0x0c;
    /// The virtual port's context changed.
    pub const NIC_VPORT_CHANGE: u8 = 0x0d;
    /// Functions of the embedded switch changed.
    pub const ESW_FUNCTIONS_CHANGED: u8 = 0x0e;
    /// A request that the queue pair calls invalid.
    pub const WQ_INVAL_REQ_ERROR: u8 = 0x10;
    /// A request that memory refused.
    pub const WQ_ACCESS_ERROR: u8 = 0x11;
    /// A shared receive queue failed for good.
    pub const SRQ_CATAS_ERROR: u8 = 0x12;
    /// The last entry of a shared receive queue was taken by a queue pair in error.
    pub const SRQ_LAST_WQE: u8 = 0x13;
    /// A shared receive queue fell below its limit.
    pub const SRQ_RQ_LIMIT: u8 = 0x14;
    /// A cable module came, went or failed.
    pub const PORT_MODULE_EVENT: u8 = 0x16;
    /// A sensor is too warm.
    pub const TEMP_WARN_EVENT: u8 = 0x17;
    /// Doorbells are congested.
    pub const DB_BF_CONGESTION: u8 = 0x1a;
    /// A dynamically connected target is drained.
    pub const DCT_DRAINED: u8 = 0x1c;
    /// A request named a dynamically connected target with a key that is not its own.
    pub const DCT_KEY_VIOLATION: u8 = 0x1d;
    /// Something of general interest.
    pub const GENERAL_EVENT: u8 = 0x22;
    /// An object changed.
    pub const OBJECT_CHANGE: u8 = 0x27;
}

/// What happened to a port. Source: Linux `include/linux/mlx5/device.h`, `MLX5_PORT_CHANGE_SUBTYPE_*`.
pub mod port_change {
    /// It is down.
    pub const DOWN: u8 = 1;
    /// It is up.
    pub const ACTIVE: u8 = 4;
    /// It is initialized.
    pub const INITIALIZED: u8 = 5;
    /// Its LID changed.
    pub const LID: u8 = 6;
    /// Its partition keys changed.
    pub const PKEY: u8 = 7;
    /// Its GUIDs changed.
    pub const GUID: u8 = 8;
    /// Clients must register again.
    pub const CLIENT_REREG: u8 = 9;
}

/// Which queue a [`Queue`] event is about. Source: Linux `include/linux/mlx5/device.h`, `MLX5_EVENT_QUEUE_TYPE_*`.
pub mod queue_kind {
    /// A queue pair.
    pub const QP: u8 = 0;
    /// A receive queue.
    pub const RQ: u8 = 1;
    /// A send queue.
    pub const SQ: u8 = 2;
    /// A dynamically connected target.
    pub const DCT: u8 = 6;
}

/// Data of [`event::COMP`]. Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_eqe_comp`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Completion {
    /// Reserved.
    pub reserved: [U32; 6],
    /// The completion queue.
    pub cqn: U32,
}

const _: () = assert!(size_of::<Completion>() == 28 && offset_of!(Completion, cqn) == 24);

/// Data of events on queue pairs, queues and shared receive queues. Source: Linux `include/linux/mlx5/device.h`,
/// `struct mlx5_eqe_qp_srq`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Queue {
    /// Reserved.
    pub reserved1: [U32; 5],
    /// One of [`queue_kind`].
    pub kind: u8,
    /// Reserved.
    pub reserved2: [u8; 3],
    /// Its number.
    pub qp_srq_n: U32,
}

const _: () = assert!(size_of::<Queue>() == 28 && offset_of!(Queue, kind) == 20);

/// Data of [`event::DCT_DRAINED`] and [`event::DCT_KEY_VIOLATION`]. Source: Linux `include/linux/mlx5/device.h`,
/// `struct mlx5_eqe_dct`, and `include/linux/mlx5/mlx5_ifc.h`, `mlx5_ifc_dct_events_bits`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Target {
    /// Reserved.
    pub reserved: [U32; 6],
    /// Its number.
    pub dctn: U32,
}

const _: () = assert!(size_of::<Target>() == 28 && offset_of!(Target, dctn) == 24);

/// Data of [`event::CQ_ERROR`]. Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_eqe_cq_err`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct CqError {
    /// The completion queue.
    pub cqn: U32,
    /// Reserved.
    pub reserved1: [u8; 7],
    /// 1: it overran; 4: its memory refused.
    pub syndrome: u8,
}

const _: () = assert!(size_of::<CqError>() == 12 && offset_of!(CqError, syndrome) == 11);

/// Data of [`event::PORT_CHANGE`]. Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_eqe_port_state`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Port {
    /// Reserved.
    pub reserved0: [u8; 8],
    /// Bits 7 to 4: the port, from 1.
    pub port: u8,
}

const _: () = assert!(size_of::<Port>() == 9 && offset_of!(Port, port) == 8);

/// Data of [`event::CMD`]. Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_eqe_cmd`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct Commands {
    /// One bit for each entry of the command queue that is done.
    pub vector: U32,
    /// Reserved.
    pub reserved: [U32; 6],
}

const _: () = assert!(size_of::<Commands>() == 28);

/// Data of [`event::PAGE_REQUEST`]. Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_eqe_page_req`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct PageRequest {
    /// Whether it is the embedded processor's function.
    pub ec_function: U16,
    /// The function.
    pub func_id: U16,
    /// How many, in two's complement: fewer than none are offered back.
    pub num_pages: U32,
    /// Reserved.
    pub reserved1: [U32; 5],
}

const _: () = assert!(size_of::<PageRequest>() == 28 && offset_of!(PageRequest, num_pages) == 4);

/// Data of [`event::NIC_VPORT_CHANGE`]. Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_eqe_vport_change`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct VportChange {
    /// Reserved.
    pub reserved0: [u8; 2],
    /// The virtual port.
    pub vport_num: U16,
    /// Reserved.
    pub reserved1: [U32; 6],
}

const _: () = assert!(size_of::<VportChange>() == 28 && offset_of!(VportChange, vport_num) == 2);

/// Data of [`event::PAGE_FAULT`], as far as all its forms agree. Source: Linux `include/linux/mlx5/device.h`,
/// `struct mlx5_eqe_page_fault`.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
pub struct PageFault {
    /// Bytes done before the fault.
    pub bytes_committed: U32,
    /// Key of a remote fault; entry of a local one.
    pub r_key: U32,
    /// Reserved.
    pub reserved1: U16,
    /// Bytes of the packet.
    pub packet_length: U16,
    /// Bytes of the whole operation; token of a local fault.
    pub rdma_op_len: U32,
    /// Address of a remote fault.
    pub rdma_va: U64,
    /// Kind of the fault and token or queue.
    pub pftype_token: U32,
}

const _: () = assert!(size_of::<PageFault>() == 28 && offset_of!(PageFault, rdma_va) == 16);
