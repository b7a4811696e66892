//! What stands in the queues, and what comes back from calls. Source: rdma-core
//! `kernel-headers/rdma/rdma_user_rxe.h`; of completions `kernel-headers/rdma/ib_user_verbs.h`, `struct ib_uverbs_wc`.

use std::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A queue to be mapped: `struct mminfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct MapInfo {
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) pad: u32,
}

/// Answer of a queue pair's making: `struct rxe_create_qp_resp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct CreateQpAnswer {
    pub(crate) receive: MapInfo,
    pub(crate) send: MapInfo,
}

/// Answer of a shared receive queue's making: `struct rxe_create_srq_resp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct CreateSrqAnswer {
    pub(crate) queue: MapInfo,
    pub(crate) number: u32,
    pub(crate) reserved: u32,
}

/// Answer of an address handle's making: `struct rxe_create_ah_resp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct CreateAhAnswer {
    pub(crate) ah_num: u32,
    pub(crate) reserved: u32,
}

const _: () = assert!(size_of::<MapInfo>() == 16 && size_of::<CreateQpAnswer>() == 32);
const _: () = assert!(size_of::<CreateSrqAnswer>() == 24 && offset_of!(CreateSrqAnswer, number) == 16);
const _: () = assert!(size_of::<CreateAhAnswer>() == 8);

/// Head of a queue: `struct rxe_queue_buf`.
pub(crate) mod head {
    pub(crate) const LOG_ENTRY_BYTES: usize = 0;
    pub(crate) const INDEX_MASK: usize = 4;
    pub(crate) const PRODUCER: usize = 128;
    pub(crate) const CONSUMER: usize = 256;
    /// The first entry.
    pub(crate) const DATA: usize = 384;
}

/// A send entry up to its pieces: `struct rxe_send_wqe`, in which a `struct rxe_send_wr` and a `struct rxe_dma_info` stand.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct SendEntry {
    pub(crate) wr_id: u64,
    pub(crate) reserved: u32,
    pub(crate) opcode: u32,
    pub(crate) send_flags: u32,
    /// Immediate data in network order, or a key.
    pub(crate) ex: [u8; 4],
    /// What the operation has beside that: one of the structures below.
    pub(crate) operation: [u64; 15],
    pub(crate) status: u32,
    pub(crate) state: u32,
    pub(crate) iova: u64,
    pub(crate) mask: u32,
    pub(crate) first_psn: u32,
    pub(crate) last_psn: u32,
    pub(crate) ack_length: u32,
    pub(crate) ssn: u32,
    pub(crate) has_rd_atomic: u32,
    pub(crate) dma: Dma,
}

/// `struct rxe_dma_info` up to the pieces.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Dma {
    pub(crate) length: u32,
    pub(crate) resid: u32,
    pub(crate) cur_sge: u32,
    pub(crate) num_sge: u32,
    pub(crate) sge_offset: u32,
    pub(crate) reserved: u32,
}

const _: () = assert!(size_of::<SendEntry>() == 208 && offset_of!(SendEntry, operation) == 24);
const _: () = assert!(offset_of!(SendEntry, iova) == 152 && offset_of!(SendEntry, dma) == 184);
const _: () = assert!(size_of::<Dma>() == 24);

/// A receive entry up to its pieces: `struct rxe_recv_wqe`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct ReceiveEntry {
    pub(crate) wr_id: u64,
    pub(crate) reserved: u32,
    pub(crate) padding: u32,
    pub(crate) dma: Dma,
}

const _: () = assert!(size_of::<ReceiveEntry>() == 40 && offset_of!(ReceiveEntry, dma) == 16);

/// A piece of memory: `struct rxe_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

const _: () = assert!(size_of::<Sge>() == 16);

/// Of RDMA: `wr.rdma`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) rkey: u32,
    pub(crate) reserved: u32,
}

/// Of atomics: `wr.atomic`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Atomic {
    pub(crate) address: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
    pub(crate) reserved: u32,
}

/// Of flushes: `wr.flush`, since Linux 6.2. Sources: Linux `include/uapi/rdma/rdma_user_rxe.h`; rdma-core `providers/rxe/rxe.c`,
/// `wr_flush`, which leaves `length` 0: rxe goes by [`Dma::length`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Flush {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) rkey: u32,
    /// Placement type.
    pub(crate) placement: u8,
    /// Selectivity level.
    pub(crate) level: u8,
    pub(crate) reserved: [u8; 6],
}

const _: () = assert!(size_of::<Flush>() == 24 && offset_of!(Flush, rkey) == 12);
const _: () = assert!(offset_of!(Flush, placement) == 16 && offset_of!(Flush, level) == 17);

/// Of datagrams: `wr.ud` up to the vector, which newer kernels find by `ah_num`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Datagram {
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
    pub(crate) pkey_index: u16,
    pub(crate) reserved: u16,
    pub(crate) ah_num: u32,
}

/// Of windows: `wr.mw`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Bind {
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) mr_lkey: u32,
    pub(crate) mw_rkey: u32,
    pub(crate) rkey: u32,
    pub(crate) access: u32,
}

const _: () = assert!(size_of::<Atomic>() == 32 && offset_of!(Atomic, rkey) == 24);
const _: () = assert!(size_of::<Datagram>() == 16 && offset_of!(Datagram, ah_num) == 12);
const _: () = assert!(size_of::<Bind>() == 32 && offset_of!(Bind, access) == 28);

/// A completion: `struct ib_uverbs_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data in network order, or a key.
    pub(crate) ex: [u8; 4],
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
    pub(crate) port_num: u8,
    pub(crate) reserved: u8,
}

const _: () = assert!(size_of::<Completion>() == 48 && offset_of!(Completion, wc_flags) == 36);

/// Operations. Source: rdma-core `kernel-headers/rdma/ib_user_verbs.h`, `enum ib_uverbs_wr_opcode`.
pub(crate) mod opcode {
    pub(crate) const WRITE: u32 = 0;
    pub(crate) const WRITE_IMM: u32 = 1;
    pub(crate) const SEND: u32 = 2;
    pub(crate) const SEND_IMM: u32 = 3;
    pub(crate) const READ: u32 = 4;
    pub(crate) const COMPARE_SWAP: u32 = 5;
    pub(crate) const FETCH_ADD: u32 = 6;
    pub(crate) const LOCAL_INVALIDATE: u32 = 7;
    pub(crate) const BIND: u32 = 8;
    pub(crate) const SEND_INVALIDATE: u32 = 9;
    /// This and the next since Linux 6.2: `include/uapi/rdma/ib_user_verbs.h`, `IB_UVERBS_WR_FLUSH`.
    pub(crate) const FLUSH: u32 = 14;
    pub(crate) const ATOMIC_WRITE: u32 = 15;
}

/// Flags of a request. Source: rdma-core `libibverbs/verbs.h`, `enum ibv_send_flags`.
pub(crate) mod flag {
    pub(crate) const FENCE: u32 = 1 << 0;
    pub(crate) const SIGNALED: u32 = 1 << 1;
    pub(crate) const SOLICITED: u32 = 1 << 2;
    pub(crate) const INLINE: u32 = 1 << 3;
}

/// Flags of a completion. Source: rdma-core `libibverbs/verbs.h`, `enum ibv_wc_flags`.
pub(crate) mod completed {
    pub(crate) const GRH: u32 = 1 << 0;
    pub(crate) const WITH_IMM: u32 = 1 << 1;
    pub(crate) const WITH_INVALIDATE: u32 = 1 << 3;
}
