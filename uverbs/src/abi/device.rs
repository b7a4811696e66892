//! Commands and answers about a context, its device and ports; events; the page of the clock. Source:
//! `rdma/ib_user_verbs.h`.
//!
//! A field `response` holds the address for the answer when write(2) is used; whoever makes a call leaves it 0.

use zerocopy::big_endian::U64 as BeU64;

use super::layout;

layout! {
    /// GET_CONTEXT.
    GetContext = "ib_uverbs_get_context", 8 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
    }

    /// Answer of GET_CONTEXT.
    GetContextResp = "ib_uverbs_get_context_resp", 8 {
        /// Descriptor of the asynchronous events.
        async_fd: u32 = 0,
        /// Completion vectors (interrupts) to choose from.
        num_comp_vectors: u32 = 4,
    }

    /// QUERY_DEVICE.
    QueryDevice = "ib_uverbs_query_device", 8 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
    }

    /// Answer of QUERY_DEVICE.
    QueryDeviceResp = "ib_uverbs_query_device_resp", 176 {
        /// Firmware version, in the vendor's form.
        fw_ver: u64 = 0,
        /// GUID of the node.
        node_guid: BeU64 = 8,
        /// GUID that devices of one system share.
        sys_image_guid: BeU64 = 16,
        /// Longest memory region.
        max_mr_size: u64 = 24,
        /// Page sizes that a region may have, a bit each.
        page_size_cap: u64 = 32,
        /// IEEE number of the vendor.
        vendor_id: u32 = 40,
        /// The vendor's number of the part; for ConnectX the PCI device.
        vendor_part_id: u32 = 44,
        /// Hardware revision.
        hw_ver: u32 = 48,
        /// Queue pairs.
        max_qp: u32 = 52,
        /// Work requests of a queue.
        max_qp_wr: u32 = 56,
        /// Lower half of the capability flags, see [`DeviceCaps`](super::flags::DeviceCaps).
        device_cap_flags: u32 = 60,
        /// Pieces of a work request.
        max_sge: u32 = 64,
        /// Pieces of an RDMA READ.
        max_sge_rd: u32 = 68,
        /// Completion queues.
        max_cq: u32 = 72,
        /// Entries of a completion queue.
        max_cqe: u32 = 76,
        /// Memory regions.
        max_mr: u32 = 80,
        /// Protection domains.
        max_pd: u32 = 84,
        /// RDMA READs and atomics that a queue pair serves at once.
        max_qp_rd_atom: u32 = 88,
        /// The same of an end-to-end context; 0.
        max_ee_rd_atom: u32 = 92,
        /// Resources for those in all.
        max_res_rd_atom: u32 = 96,
        /// RDMA READs and atomics that a queue pair has under way.
        max_qp_init_rd_atom: u32 = 100,
        /// The same of an end-to-end context; 0.
        max_ee_init_rd_atom: u32 = 104,
        /// How far atomics are atomic.
        atomic_cap: u32 = 108,
        /// End-to-end contexts; 0.
        max_ee: u32 = 112,
        /// Reliable datagram domains; 0.
        max_rdd: u32 = 116,
        /// Memory windows.
        max_mw: u32 = 120,
        /// Raw IPv6 queue pairs.
        max_raw_ipv6_qp: u32 = 124,
        /// Raw Ethertype queue pairs.
        max_raw_ethy_qp: u32 = 128,
        /// Multicast groups.
        max_mcast_grp: u32 = 132,
        /// Queue pairs of a multicast group.
        max_mcast_qp_attach: u32 = 136,
        /// Those of all groups.
        max_total_mcast_qp_attach: u32 = 140,
        /// Address handles.
        max_ah: u32 = 144,
        /// Fast memory regions; 0.
        max_fmr: u32 = 148,
        /// Maps of one of those; 0.
        max_map_per_fmr: u32 = 152,
        /// Shared receive queues.
        max_srq: u32 = 156,
        /// Work requests of one.
        max_srq_wr: u32 = 160,
        /// Pieces of a work request of one.
        max_srq_sge: u32 = 164,
        /// Partitions.
        max_pkeys: u16 = 168,
        /// Longest delay of an acknowledge, as exponent.
        local_ca_ack_delay: u8 = 170,
        /// Ports.
        phys_port_cnt: u8 = 171,
        /// Zero.
        reserved: [u8; 4] = 172,
    }

    /// EX_QUERY_DEVICE.
    ExQueryDevice = "ib_uverbs_ex_query_device", 8 {
        /// Zero.
        comp_mask: u32 = 0,
        /// Zero.
        reserved: u32 = 4,
    }

    /// Paging on demand.
    OdpCaps = "ib_uverbs_odp_caps", 24 {
        /// Whether there is any.
        general_caps: u64 = 0,
        /// Operations of RC, UC and UD.
        per_transport_caps: [u32; 3] = 8,
        /// Zero.
        reserved: u32 = 20,
    }

    /// Receive-side scaling.
    RssCaps = "ib_uverbs_rss_caps", 16 {
        /// Queue pair types that can hash, a bit each.
        supported_qpts: u32 = 0,
        /// Indirection tables.
        max_rwq_indirection_tables: u32 = 4,
        /// Entries of one.
        max_rwq_indirection_table_size: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// Tag matching.
    TmCaps = "ib_uverbs_tm_caps", 24 {
        /// Longest rendezvous header.
        max_rndv_hdr_size: u32 = 0,
        /// Tags of a list.
        max_num_tags: u32 = 4,
        /// What is supported.
        flags: u32 = 8,
        /// List operations under way.
        max_ops: u32 = 12,
        /// Pieces of a buffer.
        max_sge: u32 = 16,
        /// Zero.
        reserved: u32 = 20,
    }

    /// Moderation of completion events.
    CqModerationCaps = "ib_uverbs_cq_moderation_caps", 8 {
        /// Completions an event.
        max_cq_moderation_count: u16 = 0,
        /// Microseconds an event waits.
        max_cq_moderation_period: u16 = 2,
        /// Zero.
        reserved: u32 = 4,
    }

    /// Answer of EX_QUERY_DEVICE; a kernel fills `response_length` bytes of it.
    ExQueryDeviceResp = "ib_uverbs_ex_query_device_resp", 304 {
        /// The older answer.
        base: QueryDeviceResp = 0,
        /// Zero.
        comp_mask: u32 = 176,
        /// Bytes that the kernel filled.
        response_length: u32 = 180,
        /// Paging on demand.
        odp_caps: OdpCaps = 184,
        /// Bits of a completion's time stamp.
        timestamp_mask: u64 = 208,
        /// Its frequency in kHz.
        hca_core_clock: u64 = 216,
        /// All capability flags, see [`DeviceCaps`](super::flags::DeviceCaps).
        device_cap_flags_ex: u64 = 224,
        /// Receive-side scaling.
        rss_caps: RssCaps = 232,
        /// Receive work queues.
        max_wq_type_rq: u32 = 248,
        /// What raw packet queues can, see [`RawPacketCaps`](super::flags::RawPacketCaps).
        raw_packet_caps: u32 = 252,
        /// Tag matching.
        tm_caps: TmCaps = 256,
        /// Moderation of completion events.
        cq_moderation_caps: CqModerationCaps = 280,
        /// Bytes of device memory.
        max_dm_size: u64 = 288,
        /// Paging on demand for XRC.
        xrc_odp_caps: u32 = 296,
        /// Zero.
        reserved: u32 = 300,
    }

    /// QUERY_PORT.
    QueryPort = "ib_uverbs_query_port", 16 {
        /// Address for the answer, filled in by the door.
        response: u64 = 0,
        /// The port, from 1.
        port_num: u8 = 8,
        /// Zero.
        reserved: [u8; 7] = 9,
    }

    /// Answer of QUERY_PORT.
    QueryPortResp = "ib_uverbs_query_port_resp", 40 {
        /// Capability flags.
        port_cap_flags: u32 = 0,
        /// Longest message.
        max_msg_sz: u32 = 4,
        /// Messages of a wrong partition.
        bad_pkey_cntr: u32 = 8,
        /// Messages with a wrong queue key.
        qkey_viol_cntr: u32 = 12,
        /// Entries of the GID table.
        gid_tbl_len: u32 = 16,
        /// Entries of the partition table.
        pkey_tbl_len: u16 = 20,
        /// Local identifier; 0 on Ethernet.
        lid: u16 = 22,
        /// The subnet manager's.
        sm_lid: u16 = 24,
        /// Logical state, see [`PortState`](super::flags::PortState).
        state: u8 = 26,
        /// Largest MTU, as code.
        max_mtu: u8 = 27,
        /// MTU in use, as code.
        active_mtu: u8 = 28,
        /// Bits of the local identifier that select a path.
        lmc: u8 = 29,
        /// Virtual lanes.
        max_vl_num: u8 = 30,
        /// The subnet manager's service level.
        sm_sl: u8 = 31,
        /// Its timeout.
        subnet_timeout: u8 = 32,
        /// How it initialised the port.
        init_type_reply: u8 = 33,
        /// Lanes, as code.
        active_width: u8 = 34,
        /// Speed of a lane, as code.
        active_speed: u8 = 35,
        /// Physical state, as code.
        phys_state: u8 = 36,
        /// 1 InfiniBand, 2 Ethernet.
        link_layer: u8 = 37,
        /// Bit 0: addresses must be global.
        flags: u8 = 38,
        /// Zero.
        reserved: u8 = 39,
    }

    /// What is read from the descriptor of asynchronous events.
    AsyncEventDesc = "ib_uverbs_async_event_desc", 16 {
        /// The user handle of the object, or the port.
        element: u64 = 0,
        /// See [`AsyncKind`](crate::event::AsyncKind).
        event_type: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// What is read from a completion channel.
    CompEventDesc = "ib_uverbs_comp_event_desc", 8 {
        /// The user handle of the completion queue.
        cq_handle: u64 = 0,
    }

    /// What a driver keeps in the page of the clock, for turning time stamps into time.
    ClockInfo = "ib_uverbs_clock_info", 56 {
        /// Odd while the kernel changes the rest; another value when it has.
        sign: u32 = 0,
        /// Zero.
        resv: u32 = 4,
        /// Nanoseconds at the last update.
        nsec: u64 = 8,
        /// Counter at the last update.
        cycles: u64 = 16,
        /// Fraction of a nanosecond at the last update.
        frac: u64 = 24,
        /// Multiplier from cycles.
        mult: u32 = 32,
        /// Shift after it.
        shift: u32 = 36,
        /// Bits of the counter.
        mask: u64 = 40,
        /// Longest time between two readings.
        overflow_period: u64 = 48,
    }
}
