//! Commands and answers about protection domains, memory, windows, XRC domains and addresses. Source:
//! `rdma/ib_user_verbs.h`.

use super::layout;

layout! {
    /// ALLOC_PD.
    AllocPd = "ib_uverbs_alloc_pd", 8 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
    }

    /// Answer of ALLOC_PD.
    AllocPdResp = "ib_uverbs_alloc_pd_resp", 4 {
        /// The protection domain.
        pd_handle: u32 = 0,
    }

    /// DEALLOC_PD.
    DeallocPd = "ib_uverbs_dealloc_pd", 4 {
        /// The protection domain.
        pd_handle: u32 = 0,
    }

    /// OPEN_XRCD.
    OpenXrcd = "ib_uverbs_open_xrcd", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// File that names the domain among processes; all ones for none.
        fd: u32 = 8,
        /// O_CREAT, O_EXCL.
        oflags: u32 = 12,
    }

    /// Answer of OPEN_XRCD.
    OpenXrcdResp = "ib_uverbs_open_xrcd_resp", 4 {
        /// The domain.
        xrcd_handle: u32 = 0,
    }

    /// CLOSE_XRCD.
    CloseXrcd = "ib_uverbs_close_xrcd", 4 {
        /// The domain.
        xrcd_handle: u32 = 0,
    }

    /// REG_MR.
    RegMr = "ib_uverbs_reg_mr", 40 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// Address of the memory.
        start: u64 = 8,
        /// Its length.
        length: u64 = 16,
        /// Address by which work requests name it; same place in a page as `start`.
        hca_va: u64 = 24,
        /// Protection domain.
        pd_handle: u32 = 32,
        /// See [`Access`](super::flags::Access).
        access_flags: u32 = 36,
    }

    /// Answer of REG_MR.
    RegMrResp = "ib_uverbs_reg_mr_resp", 12 {
        /// The region.
        mr_handle: u32 = 0,
        /// Its local key.
        lkey: u32 = 4,
        /// Its remote key.
        rkey: u32 = 8,
    }

    /// REREG_MR.
    ReregMr = "ib_uverbs_rereg_mr", 48 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The region.
        mr_handle: u32 = 8,
        /// What to change, see [`Rereg`](super::flags::Rereg).
        flags: u32 = 12,
        /// Address of the memory.
        start: u64 = 16,
        /// Its length.
        length: u64 = 24,
        /// Address by which work requests name it.
        hca_va: u64 = 32,
        /// Protection domain.
        pd_handle: u32 = 40,
        /// See [`Access`](super::flags::Access).
        access_flags: u32 = 44,
    }

    /// Answer of REREG_MR.
    ReregMrResp = "ib_uverbs_rereg_mr_resp", 8 {
        /// The local key now.
        lkey: u32 = 0,
        /// The remote key now.
        rkey: u32 = 4,
    }

    /// DEREG_MR.
    DeregMr = "ib_uverbs_dereg_mr", 4 {
        /// The region.
        mr_handle: u32 = 0,
    }

    /// ALLOC_MW.
    AllocMw = "ib_uverbs_alloc_mw", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// Protection domain.
        pd_handle: u32 = 8,
        /// 1 or 2.
        mw_type: u8 = 12,
        /// Zero.
        reserved: [u8; 3] = 13,
    }

    /// Answer of ALLOC_MW.
    AllocMwResp = "ib_uverbs_alloc_mw_resp", 8 {
        /// The window.
        mw_handle: u32 = 0,
        /// Its key.
        rkey: u32 = 4,
    }

    /// DEALLOC_MW.
    DeallocMw = "ib_uverbs_dealloc_mw", 4 {
        /// The window.
        mw_handle: u32 = 0,
    }

    /// Global part of an address.
    GlobalRoute = "ib_uverbs_global_route", 24 {
        /// GID of the destination.
        dgid: [u8; 16] = 0,
        /// Flow label.
        flow_label: u32 = 16,
        /// Our GID, by index.
        sgid_index: u8 = 20,
        /// Hop limit.
        hop_limit: u8 = 21,
        /// Traffic class.
        traffic_class: u8 = 22,
        /// Zero.
        reserved: u8 = 23,
    }

    /// An address.
    AhAttr = "ib_uverbs_ah_attr", 32 {
        /// Global part.
        grh: GlobalRoute = 0,
        /// Local identifier of the destination.
        dlid: u16 = 24,
        /// Service level.
        sl: u8 = 26,
        /// Which of our paths.
        src_path_bits: u8 = 27,
        /// Rate, as code.
        static_rate: u8 = 28,
        /// Whether the global part counts.
        is_global: u8 = 29,
        /// Our port.
        port_num: u8 = 30,
        /// Zero.
        reserved: u8 = 31,
    }

    /// CREATE_AH.
    CreateAh = "ib_uverbs_create_ah", 56 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// Not used by kernels.
        user_handle: u64 = 8,
        /// Protection domain.
        pd_handle: u32 = 16,
        /// Zero.
        reserved: u32 = 20,
        /// The address.
        attr: AhAttr = 24,
    }

    /// Answer of CREATE_AH.
    CreateAhResp = "ib_uverbs_create_ah_resp", 4 {
        /// The address handle.
        ah_handle: u32 = 0,
    }

    /// DESTROY_AH.
    DestroyAh = "ib_uverbs_destroy_ah", 4 {
        /// The address handle.
        ah_handle: u32 = 0,
    }

    /// ATTACH_MCAST and DETACH_MCAST.
    AttachMcast = "ib_uverbs_attach_mcast", 24 {
        /// The group.
        gid: [u8; 16] = 0,
        /// The queue pair.
        qp_handle: u32 = 16,
        /// The group's local identifier.
        mlid: u16 = 20,
        /// Zero.
        reserved: u16 = 22,
    }
}
