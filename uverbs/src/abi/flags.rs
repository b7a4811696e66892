//! Flags and codes inside the layouts. Source: `rdma/ib_user_verbs.h`, `rdma/ib_user_ioctl_verbs.h`, and rdma-core
//! `libibverbs/verbs.h` where the kernel's header names none.

use bitflags::bitflags;

bitflags! {
    /// What may be done with memory.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The device may write it for us.
        const LOCAL_WRITE = 1;
        /// The other side may write it.
        const REMOTE_WRITE = 1 << 1;
        /// The other side may read it.
        const REMOTE_READ = 1 << 2;
        /// The other side may do atomics on it.
        const REMOTE_ATOMIC = 1 << 3;
        /// Windows may be bound to it.
        const MW_BIND = 1 << 4;
        /// Addresses in it count from 0.
        const ZERO_BASED = 1 << 5;
        /// Pages come in when the device wants them.
        const ON_DEMAND = 1 << 6;
        /// It is of huge pages.
        const HUGETLB = 1 << 7;
        /// The other side may flush it until all of this host see it. Since Linux 6.2: `include/uapi/rdma/ib_user_ioctl_verbs.h`,
        /// `enum ib_uverbs_access_flags`; rdma-core `libibverbs/verbs.h`, `enum ibv_access_flags`.
        const FLUSH_GLOBAL = 1 << 8;
        /// The other side may flush it until it outlasts a loss of power: persistent memory alone.
        const FLUSH_PERSISTENT = 1 << 9;
        /// The device may write it out of order. Optional: an older kernel that knows optional flags ignores it.
        const RELAXED_ORDERING = 1 << 20;
        const _ = !0;
    }

    /// What [`ReregMr`](super::memory::ReregMr) changes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Rereg: u32 {
        /// Address, length and `hca_va`.
        const TRANSLATION = 1;
        /// The protection domain.
        const PD = 1 << 1;
        /// The rights.
        const ACCESS = 1 << 2;
    }

    /// What the kernel's core adds, told with the context.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CoreSupport: u64 {
        /// Unknown optional rights of memory are ignored, not refused.
        const OPTIONAL_MR_ACCESS = 1;
        /// Drivers refuse bytes of theirs that they do not know.
        const ROBUST_UDATA = 1 << 1;
        const _ = !0;
    }

    /// Options of a completion queue.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CqFlags: u32 {
        /// Completions carry a time stamp.
        const TIMESTAMP_COMPLETION = 1;
        /// A full queue is overwritten, not an error.
        const IGNORE_OVERRUN = 1 << 1;
        const _ = !0;
    }

    /// Options of a work queue.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WqFlags: u32 {
        /// Takes the VLAN tag out.
        const CVLAN_STRIPPING = 1;
        /// Leaves the frame check sequence in.
        const SCATTER_FCS = 1 << 1;
        /// Waits with dropping when there is no buffer.
        const DELAY_DROP = 1 << 2;
        /// Fills cache lines when it writes.
        const PCI_WRITE_END_PADDING = 1 << 3;
        const _ = !0;
    }

    /// Options of a queue pair.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpFlags: u32 {
        /// Does not hear its own multicasts.
        const BLOCK_MULTICAST_LOOPBACK = 1 << 1;
        /// Leaves the frame check sequence in.
        const SCATTER_FCS = 1 << 8;
        /// Takes the VLAN tag out.
        const CVLAN_STRIPPING = 1 << 9;
        /// Extended command only: `source_qpn` counts.
        const SOURCE_QPN = 1 << 10;
        /// Fills cache lines when it writes.
        const PCI_WRITE_END_PADDING = 1 << 11;
        /// Native method only: each send completes.
        const SQ_SIG_ALL = 1 << 12;
        const _ = !0;
    }

    /// Which fields of [`ModifyQp`](super::queue_pair::ModifyQp) count.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QpMask: u32 {
        /// `qp_state`.
        const STATE = 1;
        /// `cur_qp_state`.
        const CUR_STATE = 1 << 1;
        /// `en_sqd_async_notify`.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// `qp_access_flags`.
        const ACCESS_FLAGS = 1 << 3;
        /// `pkey_index`.
        const PKEY_INDEX = 1 << 4;
        /// `port_num`.
        const PORT = 1 << 5;
        /// `qkey`.
        const QKEY = 1 << 6;
        /// `dest`.
        const AV = 1 << 7;
        /// `path_mtu`.
        const PATH_MTU = 1 << 8;
        /// `timeout`.
        const TIMEOUT = 1 << 9;
        /// `retry_cnt`.
        const RETRY_CNT = 1 << 10;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 11;
        /// `rq_psn`.
        const RQ_PSN = 1 << 12;
        /// `max_rd_atomic`.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// `alt_dest` and what else has `alt_` before it.
        const ALT_PATH = 1 << 14;
        /// `min_rnr_timer`.
        const MIN_RNR_TIMER = 1 << 15;
        /// `sq_psn`.
        const SQ_PSN = 1 << 16;
        /// `max_dest_rd_atomic`.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// `path_mig_state`.
        const PATH_MIG_STATE = 1 << 18;
        /// The sizes (query alone).
        const CAP = 1 << 19;
        /// `dest_qp_num`.
        const DEST_QPN = 1 << 20;
        /// `rate_limit`, in the extended command.
        const RATE_LIMIT = 1 << 25;
        const _ = !0;
    }

    /// Which fields of [`ExModifyWq`](super::queue::ExModifyWq) count.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct WqMask: u32 {
        /// `wq_state`.
        const STATE = 1;
        /// `curr_wq_state`.
        const CURR_STATE = 1 << 1;
        /// `flags` and `flags_mask`.
        const FLAGS = 1 << 2;
    }

    /// What raw packet queues can.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RawPacketCaps: u32 {
        /// Take the VLAN tag out.
        const CVLAN_STRIPPING = 1;
        /// Leave the frame check sequence in.
        const SCATTER_FCS = 1 << 1;
        /// Checksums.
        const IP_CSUM = 1 << 2;
        /// Wait with dropping when there is no buffer.
        const DELAY_DROP = 1 << 3;
        const _ = !0;
    }

    /// Whether memory can be registered [on demand](Access::ON_DEMAND). Source: Linux `include/uapi/rdma/ib_user_ioctl_verbs.h`, and
    /// `include/rdma/ib_verbs.h`, `enum ib_odp_general_cap_bits`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OdpGeneral: u64 {
        /// It can.
        const SUPPORT = 1;
        /// All memory of a program at once can, too.
        const IMPLICIT = 1 << 1;
        const _ = !0;
    }

    /// What a transport may do that comes upon pages which are not there. Source: Linux `include/rdma/ib_verbs.h`,
    /// `enum ib_odp_transport_cap_bits`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OdpService: u32 {
        /// Send.
        const SEND = 1;
        /// Receive.
        const RECV = 1 << 1;
        /// Be written to.
        const WRITE = 1 << 2;
        /// Be read from.
        const READ = 1 << 3;
        /// Atomics.
        const ATOMIC = 1 << 4;
        /// Receive through a shared receive queue.
        const SRQ_RECV = 1 << 5;
        /// Flushes.
        const FLUSH = 1 << 6;
        /// Atomic writes.
        const ATOMIC_WRITE = 1 << 7;
        const _ = !0;
    }

    /// What a device can; those of the 64 bits that matter here.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DeviceCaps: u64 {
        /// Queues can be resized.
        const RESIZE_MAX_WR = 1;
        /// Shared receive queues can be resized.
        const SRQ_RESIZE = 1 << 13;
        /// Memory windows of type 1.
        const MEM_WINDOW = 1 << 17;
        /// XRC.
        const XRC = 1 << 20;
        /// Local invalidate and such.
        const MEM_MGT_EXTENSIONS = 1 << 21;
        /// Memory windows of type 2A.
        const MEM_WINDOW_TYPE_2A = 1 << 23;
        /// Memory windows of type 2B.
        const MEM_WINDOW_TYPE_2B = 1 << 24;
        /// Checksums of raw packets; older than [`RawPacketCaps::IP_CSUM`].
        const RAW_IP_CSUM = 1 << 26;
        /// Flow rules.
        const MANAGED_FLOW_STEERING = 1 << 29;
        /// Flushes with [`Placement::GLOBAL`]. This and what follows since Linux 6.2: `include/uapi/rdma/ib_user_verbs.h`,
        /// `enum ib_uverbs_device_cap_flags`; rdma-core `kernel-headers/rdma/ib_user_verbs.h`. Above the 32 bits of the older query.
        const FLUSH_GLOBAL = 1 << 38;
        /// Flushes with [`Placement::PERSISTENT`].
        const FLUSH_PERSISTENT = 1 << 39;
        /// Atomic writes.
        const ATOMIC_WRITE = 1 << 40;
        const _ = !0;
    }

    /// How far a flush takes what was written (placement type). Source: Linux `include/uapi/rdma/ib_user_verbs.h`, `enum
    /// ib_placement_type`, which names InfiniBand's A19.4.1.1; rdma-core `libibverbs/verbs.h`, `enum ibv_placement_type`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Placement: u8 {
        /// All of the other side's host see it.
        const GLOBAL = 1;
        /// It outlasts a loss of power.
        const PERSISTENT = 1 << 1;
    }

    /// Options of a flow rule.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FlowFlags: u32 {
        /// What matches is also looked at by later rules.
        const DONT_TRAP = 1 << 1;
        /// Matches what is sent.
        const EGRESS = 1 << 2;
    }
}

/// Declares codes: a number with names for the values that are known.
macro_rules! codes {
    ($($(#[$outer:meta])* $name:ident: $type:ty { $($(#[$inner:meta])* $code:ident = $value:literal $text:literal),* $(,)? })*) => { $(
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $type);

        impl $name {
            $(
                #[doc = concat!($text, ".")]
                $(#[$inner])*
                pub const $code: Self = Self($value);
            )*

            /// Its name, if the value is a known one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "unknown ({})", self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    )* };
}

codes! {
    /// State of a port.
    PortState: u8 {
        NOP = 0 "no change", DOWN = 1 "down", INIT = 2 "init", ARMED = 3 "armed", ACTIVE = 4 "active",
        ACTIVE_DEFER = 5 "active, deferred",
    }

    /// What a port is plugged into.
    LinkLayer: u8 {
        UNSPECIFIED = 0 "unspecified", INFINIBAND = 1 "InfiniBand", ETHERNET = 2 "Ethernet",
    }

    /// Kind of a queue pair.
    QpType: u8 {
        GSI = 1 "GSI", RC = 2 "RC", UC = 3 "UC", UD = 4 "UD", RAW_PACKET = 8 "RAW_PACKET", XRC_INI = 9 "XRC_INI", XRC_TGT = 10 "XRC_TGT",
        DRIVER = 255 "DRIVER",
    }

    /// State of a queue pair.
    QpState: u8 {
        RESET = 0 "RESET", INIT = 1 "INIT", RTR = 2 "RTR", RTS = 3 "RTS", SQD = 4 "SQD", SQE = 5 "SQE", ERR = 6 "ERR",
    }

    /// State of a work queue.
    WqState: u32 {
        RESET = 0 "RESET", RDY = 1 "RDY", ERR = 2 "ERR",
    }

    /// Kind of a shared receive queue.
    SrqType: u32 {
        BASIC = 0 "basic", XRC = 1 "XRC", TM = 2 "tag matching",
    }

    /// Kind of a GID.
    GidType: u32 {
        IB = 0 "IB", ROCE_V1 = 1 "RoCE v1", ROCE_V2 = 2 "RoCE v2",
    }

    /// Kind of a flow rule.
    FlowType: u32 {
        NORMAL = 0 "as its specs say", ALL_DEFAULT = 1 "all that no other rule takes",
        MC_DEFAULT = 2 "multicasts that no other rule takes", SNIFFER = 3 "a copy of everything",
    }

    /// What [`advise_mr`](crate::Context::advise_mr) advises.
    Advice: u32 {
        PREFETCH = 0 "fetch for reading", PREFETCH_WRITE = 1 "fetch for writing", PREFETCH_NO_FAULT = 2 "fetch what is present",
    }
}

/// What a flush covers (selectivity level). Source: Linux `include/uapi/rdma/ib_user_verbs.h`, `enum ib_selectivity_level`, which
/// names InfiniBand's A19.4.1.2; rdma-core `libibverbs/verbs.h`, `enum ibv_selectivity_level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Selectivity {
    /// The bytes that it names.
    Range = 0,
    /// All of the memory region; address and length say nothing.
    Region = 1,
}

impl QpType {
    /// Whether a mask of kinds, a bit each, has this one.
    #[must_use]
    pub fn is_in(self, mask: u32) -> bool {
        mask.checked_shr(self.0.into()).unwrap_or(0) & 1 != 0
    }
}
