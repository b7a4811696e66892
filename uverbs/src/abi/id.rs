//! Numbers of objects, methods and attributes, with their names. Source: `rdma/ib_user_ioctl_cmds.h`.
//!
//! Each object is a module with `OBJECT`, each method a module in it with `METHOD` and a constant per attribute:
//! `id::cq::create::COMP_CHANNEL`.

macro_rules! ids {
    ($($object:ident = $object_id:literal, $object_name:literal {
        $($method:ident = $method_id:literal, $method_name:literal { $($attribute:ident = $id:literal),* $(,)? })*
    })*) => {
        $(
            #[doc = concat!("Methods of `", $object_name, "`.")]
            pub mod $object {
                #[doc = concat!("Number of the object `", $object_name, "`.")]
                pub const OBJECT: u16 = $object_id;
                $(
                    #[doc = concat!("Attributes of `", $object_name, "/", $method_name, "`.")]
                    pub mod $method {
                        #[doc = concat!("Number of the method `", $method_name, "`.")]
                        pub const METHOD: u16 = $method_id;
                        $(
                            #[doc = concat!("Attribute `", stringify!($attribute), "`.")]
                            pub const $attribute: u16 = $id;
                        )*
                    }
                )*
            }
        )*

        /// Name of an object, if it is of the core namespace.
        #[must_use]
        pub fn object_name(object: u16) -> Option<&'static str> {
            match object {
                $($object_id => Some($object_name),)*
                _ => None,
            }
        }

        /// Name of a method, as `CQ/CREATE`.
        #[must_use]
        pub fn method_name(object: u16, method: u16) -> Option<&'static str> {
            match (object, method) {
                $($(($object_id, $method_id) => Some(concat!($object_name, "/", $method_name)),)*)*
                _ => None,
            }
        }

        /// Name of an attribute.
        #[must_use]
        pub fn attribute_name(object: u16, method: u16, attribute: u16) -> Option<&'static str> {
            match (object, method, attribute) {
                (_, _, super::object::UHW_IN) if object < super::object::DRIVER_NAMESPACE => Some("UHW_IN"),
                (_, _, super::object::UHW_OUT) if object < super::object::DRIVER_NAMESPACE => Some("UHW_OUT"),
                $($($(($object_id, $method_id, $id) => Some(stringify!($attribute)),)*)*)*
                _ => None,
            }
        }
    };
}

ids! {
    device = 0, "DEVICE" {
        invoke_write = 0, "INVOKE_WRITE" { CORE_IN = 0, CORE_OUT = 1, WRITE_CMD = 2 }
        info_handles = 1, "INFO_HANDLES" { OBJECT_ID = 0, TOTAL_HANDLES = 1, HANDLES_LIST = 2 }
        query_port = 2, "QUERY_PORT" { PORT_NUM = 0, RESP = 1 }
        get_context = 3, "GET_CONTEXT" { NUM_COMP_VECTORS = 0, CORE_SUPPORT = 1, FD_ARR = 2 }
        query_context = 4, "QUERY_CONTEXT" { NUM_COMP_VECTORS = 0, CORE_SUPPORT = 1 }
        query_gid_table = 5, "QUERY_GID_TABLE" { ENTRY_SIZE = 0, FLAGS = 1, RESP_ENTRIES = 2, RESP_NUM_ENTRIES = 3 }
        query_gid_entry = 6, "QUERY_GID_ENTRY" { PORT = 0, GID_INDEX = 1, FLAGS = 2, RESP_ENTRY = 3 }
        query_port_speed = 7, "QUERY_PORT_SPEED" { PORT_NUM = 0, RESP = 1 }
    }
    pd = 1, "PD" {
        destroy = 0, "DESTROY" { HANDLE = 0 }
    }
    comp_channel = 2, "COMP_CHANNEL" {}
    cq = 3, "CQ" {
        create = 0, "CREATE" {
            HANDLE = 0, CQE = 1, USER_HANDLE = 2, COMP_CHANNEL = 3, COMP_VECTOR = 4, FLAGS = 5, RESP_CQE = 6, EVENT_FD = 7,
            BUFFER_VA = 8, BUFFER_LENGTH = 9, BUFFER_FD = 10, BUFFER_OFFSET = 11, BUF_UMEM = 12,
        }
        destroy = 1, "DESTROY" { HANDLE = 0, RESP = 1 }
    }
    qp = 4, "QP" {
        create = 0, "CREATE" {
            HANDLE = 0, XRCD_HANDLE = 1, PD_HANDLE = 2, SRQ_HANDLE = 3, SEND_CQ_HANDLE = 4, RECV_CQ_HANDLE = 5,
            IND_TABLE_HANDLE = 6, USER_HANDLE = 7, CAP = 8, TYPE = 9, FLAGS = 10, SOURCE_QPN = 11, EVENT_FD = 12,
            RESP_CAP = 13, RESP_QP_NUM = 14, BUF_UMEM = 15, RQ_BUF_UMEM = 16, SQ_BUF_UMEM = 17,
        }
        destroy = 1, "DESTROY" { HANDLE = 0, RESP = 1 }
    }
    srq = 5, "SRQ" {
        create = 0, "CREATE" {
            HANDLE = 0, PD_HANDLE = 1, XRCD_HANDLE = 2, CQ_HANDLE = 3, USER_HANDLE = 4, MAX_WR = 5, MAX_SGE = 6, LIMIT = 7,
            MAX_NUM_TAGS = 8, TYPE = 9, EVENT_FD = 10, RESP_MAX_WR = 11, RESP_MAX_SGE = 12, RESP_SRQ_NUM = 13,
        }
        destroy = 1, "DESTROY" { HANDLE = 0, RESP = 1 }
    }
    ah = 6, "AH" {
        destroy = 0, "DESTROY" { HANDLE = 0 }
    }
    mr = 7, "MR" {
        dm_reg = 0, "DM_MR_REG" {
            HANDLE = 0, OFFSET = 1, LENGTH = 2, PD_HANDLE = 3, ACCESS_FLAGS = 4, DM_HANDLE = 5, RESP_LKEY = 6, RESP_RKEY = 7,
        }
        destroy = 1, "MR_DESTROY" { HANDLE = 0 }
        advise = 2, "ADVISE_MR" { PD_HANDLE = 0, ADVICE = 1, FLAGS = 2, SGE_LIST = 3 }
        query = 3, "QUERY_MR" { HANDLE = 0, RESP_LKEY = 1, RESP_RKEY = 2, RESP_LENGTH = 3, RESP_IOVA = 4 }
        reg_dmabuf = 4, "REG_DMABUF_MR" {
            HANDLE = 0, PD_HANDLE = 1, OFFSET = 2, LENGTH = 3, IOVA = 4, FD = 5, ACCESS_FLAGS = 6, RESP_LKEY = 7, RESP_RKEY = 8,
        }
        reg = 5, "REG_MR" {
            HANDLE = 0, PD_HANDLE = 1, DMA_HANDLE = 2, IOVA = 3, ADDR = 4, LENGTH = 5, ACCESS_FLAGS = 6, FD = 7, FD_OFFSET = 8,
            RESP_LKEY = 9, RESP_RKEY = 10,
        }
    }
    mw = 8, "MW" {
        destroy = 0, "DESTROY" { HANDLE = 0 }
    }
    flow = 9, "FLOW" {
        destroy = 0, "DESTROY" { HANDLE = 0 }
    }
    xrcd = 10, "XRCD" {
        destroy = 0, "DESTROY" { HANDLE = 0 }
    }
    rwq_ind_table = 11, "RWQ_IND_TBL" {
        destroy = 0, "DESTROY" { HANDLE = 0 }
    }
    wq = 12, "WQ" {
        create = 0, "CREATE" {
            HANDLE = 0, PD_HANDLE = 1, CQ_HANDLE = 2, USER_HANDLE = 3, TYPE = 4, EVENT_FD = 5, MAX_WR = 6, MAX_SGE = 7,
            FLAGS = 8, RESP_MAX_WR = 9, RESP_MAX_SGE = 10, RESP_WQ_NUM = 11,
        }
        destroy = 1, "DESTROY" { HANDLE = 0, RESP = 1 }
    }
    flow_action = 13, "FLOW_ACTION" {
        destroy = 1, "DESTROY" { HANDLE = 0 }
    }
    dm = 14, "DM" {
        alloc = 0, "ALLOC" { HANDLE = 0, LENGTH = 1, ALIGNMENT = 2 }
        free = 1, "FREE" { HANDLE = 0 }
    }
    counters = 15, "COUNTERS" {
        create = 0, "CREATE" { HANDLE = 0 }
        destroy = 1, "DESTROY" { HANDLE = 0 }
        read = 2, "READ" { HANDLE = 0, BUFF = 1, FLAGS = 2 }
    }
    async_event = 16, "ASYNC_EVENT" {
        alloc = 0, "ALLOC" { FD_HANDLE = 0 }
    }
    dmabuf = 18, "DMABUF" {
        alloc = 0, "ALLOC" { HANDLE = 0, PGOFF = 1 }
    }
}
