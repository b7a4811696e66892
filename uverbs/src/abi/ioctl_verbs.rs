//! Values of native methods. Source: `rdma/ib_user_ioctl_verbs.h`.

use super::device::QueryPortResp;
use super::layout;

layout! {
    /// Answer of the native QUERY_PORT; an older kernel leaves the last field 0.
    QueryPortRespEx = "ib_uverbs_query_port_resp_ex", 48 {
        /// The older answer.
        legacy_resp: QueryPortResp = 0,
        /// More capability flags.
        port_cap_flags2: u16 = 40,
        /// Zero.
        reserved: [u8; 2] = 42,
        /// Speed of a lane, as code, where a byte is too short.
        active_speed_ex: u32 = 44,
    }

    /// An entry of the GID table.
    GidEntry = "ib_uverbs_gid_entry", 32 {
        /// The GID, as its 16 bytes stand.
        gid: [u64; 2] = 0,
        /// Where it stands.
        gid_index: u32 = 16,
        /// The port.
        port_num: u32 = 20,
        /// See [`GidType`](super::flags::GidType).
        gid_type: u32 = 24,
        /// Interface behind it, 0 for none.
        netdev_ifindex: u32 = 28,
    }

    /// A piece of memory.
    Sge = "ib_uverbs_sge", 16 {
        /// Address.
        addr: u64 = 0,
        /// Length.
        length: u32 = 8,
        /// Local key.
        lkey: u32 = 12,
    }
}
