//! Commands of `/dev/infiniband/rdma_cm` and their answers. Source: Linux `include/uapi/rdma/rdma_user_cm.h`, version 4 of the ABI, and
//! `include/uapi/rdma/ib_user_verbs.h` for what queue pairs are made with.

use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Numbers of commands.
pub(super) mod command {
    pub(in super::super) const CREATE_ID: u32 = 0;
    pub(in super::super) const DESTROY_ID: u32 = 1;
    pub(in super::super) const RESOLVE_ROUTE: u32 = 4;
    pub(in super::super) const CONNECT: u32 = 6;
    pub(in super::super) const LISTEN: u32 = 7;
    pub(in super::super) const ACCEPT: u32 = 8;
    pub(in super::super) const REJECT: u32 = 9;
    pub(in super::super) const DISCONNECT: u32 = 10;
    pub(in super::super) const INIT_QP_ATTR: u32 = 11;
    pub(in super::super) const GET_EVENT: u32 = 12;
    pub(in super::super) const SET_OPTION: u32 = 14;
    pub(in super::super) const MIGRATE_ID: u32 = 18;
    pub(in super::super) const QUERY: u32 = 19;
    pub(in super::super) const BIND: u32 = 20;
    pub(in super::super) const RESOLVE_ADDR: u32 = 21;
}

/// Numbers of events. Source: Linux `include/rdma/rdma_cm.h`, `enum rdma_cm_event_type`.
pub(super) mod event {
    pub(in super::super) const ADDR_RESOLVED: u32 = 0;
    pub(in super::super) const ADDR_ERROR: u32 = 1;
    pub(in super::super) const ROUTE_RESOLVED: u32 = 2;
    pub(in super::super) const ROUTE_ERROR: u32 = 3;
    pub(in super::super) const CONNECT_REQUEST: u32 = 4;
    pub(in super::super) const CONNECT_RESPONSE: u32 = 5;
    pub(in super::super) const CONNECT_ERROR: u32 = 6;
    pub(in super::super) const UNREACHABLE: u32 = 7;
    pub(in super::super) const REJECTED: u32 = 8;
    pub(in super::super) const ESTABLISHED: u32 = 9;
    pub(in super::super) const DISCONNECTED: u32 = 10;
    pub(in super::super) const DEVICE_REMOVAL: u32 = 11;
    pub(in super::super) const ADDR_CHANGE: u32 = 14;
    pub(in super::super) const TIMEWAIT_EXIT: u32 = 15;
}

/// Options of IDs.
pub(super) mod option {
    pub(in super::super) const LEVEL_ID: u32 = 0;
    pub(in super::super) const TOS: u32 = 0;
    pub(in super::super) const REUSEADDR: u32 = 1;
    pub(in super::super) const ACK_TIMEOUT: u32 = 3;
}

/// What [`Query`] asks for: the addresses, and the device that they lead to.
pub(super) const QUERY_ADDR: u32 = 0;

macro_rules! layouts {
    ($($(#[$outer:meta])* $name:ident, $bytes:literal { $($(#[$inner:meta])* $field:ident: $type:ty = $offset:literal,)* })*) => { $(
        $(#[$outer])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(super) struct $name {
            $($(#[$inner])* pub(super) $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $bytes $(&& offset_of!($name, $field) == $offset)*);

        impl Default for $name {
            fn default() -> Self {
                Self::new_zeroed()
            }
        }
    )* };
}

layouts! {
    /// In front of every command.
    Head, 8 {
        command: u32 = 0,
        /// Bytes behind it, and bytes of the answer.
        input: u16 = 4,
        output: u16 = 6,
    }

    /// `struct rdma_ucm_create_id`.
    CreateId, 24 {
        uid: u64 = 0,
        response: u64 = 8,
        space: u16 = 16,
        qp_type: u8 = 18,
        _reserved: [u8; 5] = 19,
    }

    /// `struct rdma_ucm_create_id_resp`.
    CreateIdResp, 4 {
        id: u32 = 0,
    }

    /// `struct rdma_ucm_destroy_id`.
    DestroyId, 16 {
        response: u64 = 0,
        id: u32 = 8,
        _reserved: u32 = 12,
    }

    /// `struct rdma_ucm_destroy_id_resp` and `struct rdma_ucm_migrate_resp`.
    EventsReported, 4 {
        events: u32 = 0,
    }

    /// `struct __kernel_sockaddr_storage`.
    Address, 128 {
        family: u16 = 0,
        /// In the order of the network.
        port: [u8; 2] = 2,
        /// Of IPv4; the flow of IPv6.
        ipv4: [u8; 4] = 4,
        ipv6: [u8; 16] = 8,
        scope: u32 = 24,
        _rest: [u8; 100] = 28,
    }

    /// `struct rdma_ucm_bind`.
    Bind, 136 {
        id: u32 = 0,
        bytes: u16 = 4,
        _reserved: u16 = 6,
        address: Address = 8,
    }

    /// `struct rdma_ucm_resolve_addr`.
    ResolveAddr, 272 {
        id: u32 = 0,
        timeout_ms: u32 = 4,
        source_bytes: u16 = 8,
        destination_bytes: u16 = 10,
        _reserved: u32 = 12,
        source: Address = 16,
        destination: Address = 144,
    }

    /// `struct rdma_ucm_resolve_route`.
    ResolveRoute, 8 {
        id: u32 = 0,
        timeout_ms: u32 = 4,
    }

    /// `struct rdma_ucm_query`.
    Query, 16 {
        response: u64 = 0,
        id: u32 = 8,
        option: u32 = 12,
    }

    /// `struct rdma_ucm_query_addr_resp`.
    QueryAddrResp, 280 {
        /// In the order of the network.
        node_guid: [u8; 8] = 0,
        port: u8 = 8,
        _reserved: u8 = 9,
        pkey: u16 = 10,
        source_bytes: u16 = 12,
        destination_bytes: u16 = 14,
        source: Address = 16,
        destination: Address = 144,
        ibdev_index: u32 = 272,
        _reserved_too: u32 = 276,
    }

    /// `struct rdma_ucm_conn_param`.
    ConnParam, 272 {
        qpn: u32 = 0,
        qkey: u32 = 4,
        private: [u8; 256] = 8,
        private_bytes: u8 = 264,
        srq: u8 = 265,
        resources: u8 = 266,
        depth: u8 = 267,
        flow_control: u8 = 268,
        retries: u8 = 269,
        rnr_retries: u8 = 270,
        valid: u8 = 271,
    }

    /// `struct ib_uverbs_ah_attr`.
    AhAttr, 32 {
        dgid: [u8; 16] = 0,
        flow_label: u32 = 16,
        sgid_index: u8 = 20,
        hop_limit: u8 = 21,
        traffic_class: u8 = 22,
        _reserved: u8 = 23,
        dlid: u16 = 24,
        service_level: u8 = 26,
        source_bits: u8 = 27,
        rate: u8 = 28,
        is_global: u8 = 29,
        port: u8 = 30,
        _reserved_too: u8 = 31,
    }

    /// `struct rdma_ucm_ud_param`.
    UdParam, 304 {
        qpn: u32 = 0,
        qkey: u32 = 4,
        path: AhAttr = 8,
        private: [u8; 256] = 40,
        private_bytes: u8 = 296,
        _reserved: [u8; 7] = 297,
    }

    /// `struct rdma_ucm_connect`.
    Connect, 288 {
        parameters: ConnParam = 0,
        id: u32 = 272,
        _reserved: u32 = 276,
        ece_vendor: u32 = 280,
        ece_options: u32 = 284,
    }

    /// `struct rdma_ucm_listen`.
    Listen, 8 {
        id: u32 = 0,
        backlog: u32 = 4,
    }

    /// `struct rdma_ucm_accept`.
    Accept, 296 {
        uid: u64 = 0,
        parameters: ConnParam = 8,
        id: u32 = 280,
        _reserved: u32 = 284,
        ece_vendor: u32 = 288,
        ece_options: u32 = 292,
    }

    /// `struct rdma_ucm_reject`.
    Reject, 264 {
        id: u32 = 0,
        private_bytes: u8 = 4,
        reason: u8 = 5,
        _reserved: [u8; 2] = 6,
        private: [u8; 256] = 8,
    }

    /// `struct rdma_ucm_disconnect`.
    Disconnect, 4 {
        id: u32 = 0,
    }

    /// `struct rdma_ucm_init_qp_attr`.
    InitQpAttr, 16 {
        response: u64 = 0,
        id: u32 = 8,
        state: u32 = 12,
    }

    /// `struct ib_uverbs_qp_attr`.
    QpAttr, 144 {
        mask: u32 = 0,
        state: u32 = 4,
        current: u32 = 8,
        mtu: u32 = 12,
        migration: u32 = 16,
        qkey: u32 = 20,
        rq_psn: u32 = 24,
        sq_psn: u32 = 28,
        dest_qpn: u32 = 32,
        access: u32 = 36,
        path: AhAttr = 40,
        alternate: AhAttr = 72,
        caps: [u32; 5] = 104,
        pkey_index: u16 = 124,
        alternate_pkey_index: u16 = 126,
        notify_drained: u8 = 128,
        draining: u8 = 129,
        max_rd_atomic: u8 = 130,
        max_dest_rd_atomic: u8 = 131,
        min_rnr_timer: u8 = 132,
        port: u8 = 133,
        timeout: u8 = 134,
        retries: u8 = 135,
        rnr_retries: u8 = 136,
        alternate_port: u8 = 137,
        alternate_timeout: u8 = 138,
        _reserved: [u8; 5] = 139,
    }

    /// `struct rdma_ucm_get_event`.
    GetEvent, 8 {
        response: u64 = 0,
    }

    /// `struct rdma_ucm_event_resp`, its parameters as bytes.
    EventResp, 336 {
        uid: u64 = 0,
        id: u32 = 8,
        event: u32 = 12,
        status: u32 = 16,
        parameters: [u8; 304] = 20,
        _reserved: u32 = 324,
        ece_vendor: u32 = 328,
        ece_options: u32 = 332,
    }

    /// `struct rdma_ucm_set_option`.
    SetOption, 24 {
        value: u64 = 0,
        id: u32 = 8,
        level: u32 = 12,
        name: u32 = 16,
        bytes: u32 = 20,
    }

    /// `struct rdma_ucm_migrate_id`.
    MigrateId, 16 {
        response: u64 = 0,
        id: u32 = 8,
        file: u32 = 12,
    }
}

/// Source: Linux `include/linux/socket.h`, `AF_INET`, `AF_INET6`.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

impl Address {
    /// An address, and how many bytes of it count.
    pub(super) fn of(address: SocketAddr) -> (Self, u16) {
        let mut storage = Self { port: address.port().to_be_bytes(), ..Self::default() };
        match address {
            SocketAddr::V4(address) => {
                (storage.family, storage.ipv4) = (AF_INET, address.ip().octets());
                (storage, 16)
            }
            SocketAddr::V6(address) => {
                (storage.family, storage.ipv6) = (AF_INET6, address.ip().octets());
                storage.scope = address.scope_id();
                (storage, 28)
            }
        }
    }

    /// The address; `None` of another family.
    pub(super) fn read(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.port);
        match self.family {
            AF_INET => Some(SocketAddr::new(IpAddr::from(self.ipv4), port)),
            AF_INET6 => Some(SocketAddr::new(IpAddr::from(self.ipv6), port)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_and_read() {
        for (text, bytes, family) in [("192.0.2.1:7174", 16, 2u16), ("[2001:db8::1]:1", 28, 10)] {
            let address: SocketAddr = text.parse().expect("an address");
            let (storage, told) = Address::of(address);
            assert_eq!((told, storage.read()), (bytes, Some(address)));
            assert_eq!(storage.as_bytes()[..2], family.to_ne_bytes());
        }
        let (storage, _) = Address::of("192.0.2.1:7174".parse().expect("an address"));
        assert_eq!(storage.as_bytes()[2..8], [0x1c, 0x06, 192, 0, 2, 1]);
        assert_eq!(Address::default().read(), None);
    }
}
