//! Commands of the connection manager's file, `/dev/infiniband/rdma_cm`, and their answers. They come by write(2), a [`Head`] in front.
//! Source: `rdma/rdma_user_cm.h`, version 4 of that ABI; of what queue pairs are made with, `rdma/ib_user_verbs.h`.

use super::layout;
use super::memory::AhAttr;

/// The version of the ABI that this is.
pub const ABI_VERSION: u32 = 4;
/// Bytes of `struct __kernel_sockaddr_storage`.
pub const ADDRESS_BYTES: usize = 128;
/// Bytes of `struct sockaddr_in6`.
pub const IP_BYTES: usize = 28;
/// Bytes for private data.
pub const PRIVATE_BYTES: usize = 256;

/// Numbers of commands.
pub mod command {
    /// Makes an ID.
    pub const CREATE_ID: u32 = 0;
    /// Destroys one.
    pub const DESTROY_ID: u32 = 1;
    /// As [`BIND`], with an address of IP alone; older programs say so.
    pub const BIND_IP: u32 = 2;
    /// As [`RESOLVE_ADDR`], likewise.
    pub const RESOLVE_IP: u32 = 3;
    /// Finds the way to an address that is resolved.
    pub const RESOLVE_ROUTE: u32 = 4;
    /// Tells addresses of IP, device, port and paths at once, likewise.
    pub const QUERY_ROUTE: u32 = 5;
    /// Asks for a connection.
    pub const CONNECT: u32 = 6;
    /// Waits for connections.
    pub const LISTEN: u32 = 7;
    /// Agrees to one, or tells that the peer's agreement was heard.
    pub const ACCEPT: u32 = 8;
    /// Says no.
    pub const REJECT: u32 = 9;
    /// Ends a connection.
    pub const DISCONNECT: u32 = 10;
    /// Tells attributes of a queue pair.
    pub const INIT_QP_ATTR: u32 = 11;
    /// Reads an event.
    pub const GET_EVENT: u32 = 12;
    /// Sets an option of an ID.
    pub const SET_OPTION: u32 = 14;
    /// Tells what a queue pair has seen.
    pub const NOTIFY: u32 = 15;
    /// As [`JOIN_MCAST`], to send and receive, likewise.
    pub const JOIN_IP_MCAST: u32 = 16;
    /// Leaves a multicast group.
    pub const LEAVE_MCAST: u32 = 17;
    /// Moves an ID from another file to this one.
    pub const MIGRATE_ID: u32 = 18;
    /// Tells addresses, device and port.
    pub const QUERY: u32 = 19;
    /// Gives an ID an address.
    pub const BIND: u32 = 20;
    /// Finds the device that leads to an address.
    pub const RESOLVE_ADDR: u32 = 21;
    /// Joins a multicast group.
    pub const JOIN_MCAST: u32 = 22;
}

/// Numbers of events. Source: Linux `include/rdma/rdma_cm.h`, `enum rdma_cm_event_type`, which no header for programs has; rdma-core
/// `librdmacm/rdma_cma.h` has the same.
pub mod event {
    /// The address leads somewhere.
    pub const ADDR_RESOLVED: u32 = 0;
    /// It does not.
    pub const ADDR_ERROR: u32 = 1;
    /// The way is known.
    pub const ROUTE_RESOLVED: u32 = 2;
    /// It is not.
    pub const ROUTE_ERROR: u32 = 3;
    /// Somebody asks for a connection.
    pub const CONNECT_REQUEST: u32 = 4;
    /// The peer agrees.
    pub const CONNECT_RESPONSE: u32 = 5;
    /// The connection could not be made.
    pub const CONNECT_ERROR: u32 = 6;
    /// The peer does not answer.
    pub const UNREACHABLE: u32 = 7;
    /// The peer says no.
    pub const REJECTED: u32 = 8;
    /// Both may send.
    pub const ESTABLISHED: u32 = 9;
    /// The connection is over.
    pub const DISCONNECTED: u32 = 10;
    /// The device is gone.
    pub const DEVICE_REMOVAL: u32 = 11;
    /// The multicast group can be sent to.
    pub const MULTICAST_JOIN: u32 = 12;
    /// It cannot.
    pub const MULTICAST_ERROR: u32 = 13;
    /// The interface has another address.
    pub const ADDR_CHANGE: u32 = 14;
    /// All packets of the connection are gone.
    pub const TIMEWAIT_EXIT: u32 = 15;
}

/// Options of IDs, level [`LEVEL_ID`](option::LEVEL_ID).
pub mod option {
    /// The level.
    pub const LEVEL_ID: u32 = 0;
    /// Type of service, a byte.
    pub const TOS: u32 = 0;
    /// Whether the local port is shared, an int.
    pub const REUSEADDR: u32 = 1;
    /// Whether any address means those of its own family alone, an int.
    pub const AFONLY: u32 = 2;
    /// ACK timeout, a byte.
    pub const ACK_TIMEOUT: u32 = 3;
}

/// Spaces of ports.
pub mod space {
    /// Services of InfiniBand's own.
    pub const IB: u16 = 0x013f;
    /// Connections.
    pub const TCP: u16 = 0x0106;
    /// Datagrams.
    pub const UDP: u16 = 0x0111;
}

/// How a multicast group is joined.
pub mod join {
    /// To send and receive.
    pub const FULLMEMBER: u16 = 0;
    /// To send.
    pub const SENDONLY_FULLMEMBER: u16 = 1;
}

/// What [`Query`] asks for: addresses, device and port.
pub const QUERY_ADDR: u32 = 0;
/// Paths, [`PathData`] each.
pub const QUERY_PATH: u32 = 1;
/// Addresses as GIDs.
pub const QUERY_GID: u32 = 2;

layout! {
    /// In front of every command.
    Head = "rdma_ucm_cmd_hdr", 8 {
        /// Number of the command.
        cmd: u32 = 0,
        /// Bytes behind this.
        r#in: u16 = 4,
        /// Bytes of the answer.
        out: u16 = 6,
    }

    /// CREATE_ID.
    CreateId = "rdma_ucm_create_id", 24 {
        /// What events about it carry.
        uid: u64 = 0,
        /// Address for the answer.
        response: u64 = 8,
        /// Space of ports.
        ps: u16 = 16,
        /// Kind of its queue pair.
        qp_type: u8 = 18,
        /// Zero.
        reserved: [u8; 5] = 19,
    }

    /// Answer of CREATE_ID.
    CreateIdResp = "rdma_ucm_create_id_resp", 4 {
        /// The ID.
        id: u32 = 0,
    }

    /// DESTROY_ID.
    DestroyId = "rdma_ucm_destroy_id", 16 {
        /// Address for the answer.
        response: u64 = 0,
        /// The ID.
        id: u32 = 8,
        /// Zero.
        reserved: u32 = 12,
    }

    /// Answer of DESTROY_ID.
    DestroyIdResp = "rdma_ucm_destroy_id_resp", 4 {
        /// Events about it that were read.
        events_reported: u32 = 0,
    }

    /// BIND.
    Bind = "rdma_ucm_bind", 136 {
        /// The ID.
        id: u32 = 0,
        /// Bytes of the address that count.
        addr_size: u16 = 4,
        /// Zero.
        reserved: u16 = 6,
        /// The address.
        addr: [u8; ADDRESS_BYTES] = 8,
    }

    /// BIND_IP.
    BindIp = "rdma_ucm_bind_ip", 40 {
        /// Nothing is answered.
        response: u64 = 0,
        /// The address.
        addr: [u8; IP_BYTES] = 8,
        /// The ID.
        id: u32 = 36,
    }

    /// RESOLVE_IP.
    ResolveIp = "rdma_ucm_resolve_ip", 64 {
        /// Our address; of no family for none.
        src_addr: [u8; IP_BYTES] = 0,
        /// The peer's.
        dst_addr: [u8; IP_BYTES] = 28,
        /// The ID.
        id: u32 = 56,
        /// How long it may take.
        timeout_ms: u32 = 60,
    }

    /// RESOLVE_ADDR.
    ResolveAddr = "rdma_ucm_resolve_addr", 272 {
        /// The ID.
        id: u32 = 0,
        /// How long it may take.
        timeout_ms: u32 = 4,
        /// Bytes of the source that count; 0 for none.
        src_size: u16 = 8,
        /// Bytes of the destination that count.
        dst_size: u16 = 10,
        /// Zero.
        reserved: u32 = 12,
        /// Our address.
        src_addr: [u8; ADDRESS_BYTES] = 16,
        /// The peer's.
        dst_addr: [u8; ADDRESS_BYTES] = 144,
    }

    /// RESOLVE_ROUTE.
    ResolveRoute = "rdma_ucm_resolve_route", 8 {
        /// The ID.
        id: u32 = 0,
        /// How long it may take.
        timeout_ms: u32 = 4,
    }

    /// QUERY.
    Query = "rdma_ucm_query", 16 {
        /// Address for the answer.
        response: u64 = 0,
        /// The ID.
        id: u32 = 8,
        /// What.
        option: u32 = 12,
    }

    /// Answer of QUERY for addresses.
    QueryAddrResp = "rdma_ucm_query_addr_resp", 280 {
        /// GUID of the device's node, in the order of the network; 0 for none.
        node_guid: [u8; 8] = 0,
        /// The device's port.
        port_num: u8 = 8,
        /// Zero.
        reserved: u8 = 9,
        /// Partition key.
        pkey: u16 = 10,
        /// Bytes of our address that count.
        src_size: u16 = 12,
        /// Bytes of the peer's that count.
        dst_size: u16 = 14,
        /// Our address.
        src_addr: [u8; ADDRESS_BYTES] = 16,
        /// The peer's.
        dst_addr: [u8; ADDRESS_BYTES] = 144,
        /// The device, by its number.
        ibdev_index: u32 = 272,
        /// Zero.
        reserved1: u32 = 276,
    }

    /// Answer of QUERY for paths, in front of them.
    QueryPathResp = "rdma_ucm_query_path_resp", 8 {
        /// How many.
        num_paths: u32 = 0,
        /// Zero.
        reserved: u32 = 4,
    }

    /// A path, as the subnet's administration would tell it.
    PathData = "ib_path_rec_data", 72 {
        /// What it is a path for.
        flags: u32 = 0,
        /// Zero.
        reserved: u32 = 4,
        /// The record: `struct ibv_path_record` of rdma-core `libibverbs/sa.h`.
        path_rec: [u8; 64] = 8,
    }

    /// A path, as QUERY_ROUTE tells it.
    UserPath = "ib_user_path_rec", 64 {
        /// The peer's GID.
        dgid: [u8; 16] = 0,
        /// Ours.
        sgid: [u8; 16] = 16,
        /// The peer's LID.
        dlid: u16 = 32,
        /// Ours.
        slid: u16 = 34,
        /// Whether it leads out of the subnet without a header for that.
        raw_traffic: u32 = 36,
        /// Flow label, in the order of the network.
        flow_label: [u8; 4] = 40,
        /// Whether it leads back as well.
        reversible: u32 = 44,
        /// MTU, as code.
        mtu: u32 = 48,
        /// Partition key, in the order of the network.
        pkey: [u8; 2] = 52,
        /// Hop limit.
        hop_limit: u8 = 54,
        /// Traffic class.
        traffic_class: u8 = 55,
        /// How many paths there are.
        numb_path: u8 = 56,
        /// Service level.
        sl: u8 = 57,
        /// How the MTU is meant.
        mtu_selector: u8 = 58,
        /// How the rate is meant.
        rate_selector: u8 = 59,
        /// Rate, as code.
        rate: u8 = 60,
        /// How the lifetime is meant.
        packet_life_time_selector: u8 = 61,
        /// How long packets live, as code.
        packet_life_time: u8 = 62,
        /// Which path is preferred.
        preference: u8 = 63,
    }

    /// Answer of QUERY_ROUTE.
    QueryRouteResp = "rdma_ucm_query_route_resp", 208 {
        /// GUID of the device's node, in the order of the network; 0 for none.
        node_guid: [u8; 8] = 0,
        /// The path, and another.
        ib_route: [UserPath; 2] = 8,
        /// Our address.
        src_addr: [u8; IP_BYTES] = 136,
        /// The peer's.
        dst_addr: [u8; IP_BYTES] = 164,
        /// How many paths count.
        num_paths: u32 = 192,
        /// The device's port.
        port_num: u8 = 196,
        /// Zero.
        reserved: [u8; 3] = 197,
        /// The device, by its number.
        ibdev_index: u32 = 200,
        /// Zero.
        reserved1: u32 = 204,
    }

    /// What a side says of a connection.
    ConnParam = "rdma_ucm_conn_param", 272 {
        /// Its queue pair.
        qp_num: u32 = 0,
        /// Its key.
        qkey: u32 = 4,
        /// Data for the peer's program.
        private_data: [u8; PRIVATE_BYTES] = 8,
        /// How much of it.
        private_data_len: u8 = 264,
        /// Whether it receives from a shared queue.
        srq: u8 = 265,
        /// Reads that it answers at once.
        responder_resources: u8 = 266,
        /// Reads that it has under way at once.
        initiator_depth: u8 = 267,
        /// End-to-end flow control.
        flow_control: u8 = 268,
        /// Retry count.
        retry_count: u8 = 269,
        /// RNR retry count.
        rnr_retry_count: u8 = 270,
        /// Whether the rest counts.
        valid: u8 = 271,
    }

    /// What is heard of a queue pair of datagrams.
    UdParam = "rdma_ucm_ud_param", 304 {
        /// The queue pair.
        qp_num: u32 = 0,
        /// Its key.
        qkey: u32 = 4,
        /// The way to it.
        ah_attr: AhAttr = 8,
        /// Data of the peer's program.
        private_data: [u8; PRIVATE_BYTES] = 40,
        /// How much of it.
        private_data_len: u8 = 296,
        /// Zero.
        reserved: [u8; 7] = 297,
    }

    /// Options of a connection.
    Ece = "rdma_ucm_ece", 8 {
        /// Whose they are.
        vendor_id: u32 = 0,
        /// Which.
        attr_mod: u32 = 4,
    }

    /// CONNECT.
    Connect = "rdma_ucm_connect", 288 {
        /// What is said.
        conn_param: ConnParam = 0,
        /// The ID.
        id: u32 = 272,
        /// Zero.
        reserved: u32 = 276,
        /// Options of the connection.
        ece: Ece = 280,
    }

    /// LISTEN.
    Listen = "rdma_ucm_listen", 8 {
        /// The ID.
        id: u32 = 0,
        /// Requests that may wait.
        backlog: u32 = 4,
    }

    /// ACCEPT.
    Accept = "rdma_ucm_accept", 296 {
        /// What events about it carry from now on.
        uid: u64 = 0,
        /// What is said.
        conn_param: ConnParam = 8,
        /// The ID.
        id: u32 = 280,
        /// Zero.
        reserved: u32 = 284,
        /// Options of the connection.
        ece: Ece = 288,
    }

    /// REJECT.
    Reject = "rdma_ucm_reject", 264 {
        /// The ID.
        id: u32 = 0,
        /// Bytes of private data.
        private_data_len: u8 = 4,
        /// Why; 0 is the program's own reason.
        reason: u8 = 5,
        /// Zero.
        reserved: [u8; 2] = 6,
        /// Data for the peer's program.
        private_data: [u8; PRIVATE_BYTES] = 8,
    }

    /// DISCONNECT.
    Disconnect = "rdma_ucm_disconnect", 4 {
        /// The ID.
        id: u32 = 0,
    }

    /// INIT_QP_ATTR.
    InitQpAttr = "rdma_ucm_init_qp_attr", 16 {
        /// Address for the answer.
        response: u64 = 0,
        /// The ID.
        id: u32 = 8,
        /// The state that the queue pair is to have.
        qp_state: u32 = 12,
    }

    /// Answer of INIT_QP_ATTR.
    QpAttr = "ib_uverbs_qp_attr", 144 {
        /// Which of them count.
        qp_attr_mask: u32 = 0,
        /// Next state.
        qp_state: u32 = 4,
        /// Current state.
        cur_qp_state: u32 = 8,
        /// Path MTU, as code.
        path_mtu: u32 = 12,
        /// Path migration state.
        path_mig_state: u32 = 16,
        /// Q_Key.
        qkey: u32 = 20,
        /// PSN expected.
        rq_psn: u32 = 24,
        /// PSN to begin with.
        sq_psn: u32 = 28,
        /// The peer's queue pair.
        dest_qp_num: u32 = 32,
        /// Rights of the peer.
        qp_access_flags: u32 = 36,
        /// The way to the peer.
        ah_attr: AhAttr = 40,
        /// Another.
        alt_ah_attr: AhAttr = 72,
        /// Sends.
        max_send_wr: u32 = 104,
        /// Receives.
        max_recv_wr: u32 = 108,
        /// SGEs of a send.
        max_send_sge: u32 = 112,
        /// SGEs of a receive.
        max_recv_sge: u32 = 116,
        /// Inline data.
        max_inline_data: u32 = 120,
        /// P_Key, by index.
        pkey_index: u16 = 124,
        /// That of the other path.
        alt_pkey_index: u16 = 126,
        /// Whether an event tells that it is drained.
        en_sqd_async_notify: u8 = 128,
        /// Whether it drains.
        sq_draining: u8 = 129,
        /// Reads as initiator.
        max_rd_atomic: u8 = 130,
        /// Reads as responder.
        max_dest_rd_atomic: u8 = 131,
        /// RNR NAK timer.
        min_rnr_timer: u8 = 132,
        /// Port.
        port_num: u8 = 133,
        /// ACK timeout.
        timeout: u8 = 134,
        /// Retry count.
        retry_cnt: u8 = 135,
        /// RNR retry count.
        rnr_retry: u8 = 136,
        /// Port of the other path.
        alt_port_num: u8 = 137,
        /// ACK timeout of the other path.
        alt_timeout: u8 = 138,
        /// Zero.
        reserved: [u8; 5] = 139,
    }

    /// JOIN_IP_MCAST, which is answered as JOIN_MCAST.
    JoinIpMcast = "rdma_ucm_join_ip_mcast", 48 {
        /// Address for the answer.
        response: u64 = 0,
        /// What the event about it carries.
        uid: u64 = 8,
        /// The group.
        addr: [u8; IP_BYTES] = 16,
        /// The ID.
        id: u32 = 44,
    }

    /// JOIN_MCAST, which is answered by [`CreateIdResp`]: the number of the membership. It is left as an ID is destroyed.
    JoinMcast = "rdma_ucm_join_mcast", 152 {
        /// Address for the answer.
        response: u64 = 0,
        /// What the event about it carries.
        uid: u64 = 8,
        /// The ID.
        id: u32 = 16,
        /// Bytes of the address that count.
        addr_size: u16 = 20,
        /// How: [`join`].
        join_flags: u16 = 22,
        /// The group.
        addr: [u8; ADDRESS_BYTES] = 24,
    }

    /// GET_EVENT.
    GetEvent = "rdma_ucm_get_event", 8 {
        /// Address for the answer.
        response: u64 = 0,
    }

    /// Answer of GET_EVENT.
    EventResp = "rdma_ucm_event_resp", 336 {
        /// What its ID carries; 0 of one that nobody accepted.
        uid: u64 = 0,
        /// The ID.
        id: u32 = 8,
        /// Which event.
        event: u32 = 12,
        /// Why: an errno below 0, or a reason.
        status: u32 = 16,
        /// [`ConnParam`] or [`UdParam`].
        param: [u8; 304] = 20,
        /// Zero.
        reserved: u32 = 324,
        /// Options of the connection.
        ece: Ece = 328,
    }

    /// SET_OPTION.
    SetOption = "rdma_ucm_set_option", 24 {
        /// Address of the value.
        optval: u64 = 0,
        /// The ID.
        id: u32 = 8,
        /// Level of the option.
        level: u32 = 12,
        /// The option.
        optname: u32 = 16,
        /// Bytes of the value.
        optlen: u32 = 20,
    }

    /// NOTIFY.
    Notify = "rdma_ucm_notify", 8 {
        /// The ID.
        id: u32 = 0,
        /// An event of `enum ib_event_type`.
        event: u32 = 4,
    }

    /// MIGRATE_ID.
    MigrateId = "rdma_ucm_migrate_id", 16 {
        /// Address for the answer.
        response: u64 = 0,
        /// The ID.
        id: u32 = 8,
        /// The file that it is of.
        fd: u32 = 12,
    }

    /// Answer of MIGRATE_ID.
    MigrateResp = "rdma_ucm_migrate_resp", 4 {
        /// Events about it that were read.
        events_reported: u32 = 0,
    }
}
