//! Numbers of the write commands. Source: `rdma/ib_user_verbs.h`.

/// Set in the number of an extended command.
pub const EXTENDED: u32 = 0x8000_0000;

macro_rules! commands {
    ($($name:ident = $number:expr),* $(,)?) => {
        $(
            #[doc = concat!("`", stringify!($name), "`.")]
            pub const $name: u32 = $number;
        )*

        /// Name of a command.
        #[must_use]
        pub fn name(command: u32) -> Option<&'static str> {
            match command {
                $($name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

commands! {
    GET_CONTEXT = 0,
    QUERY_DEVICE = 1,
    QUERY_PORT = 2,
    ALLOC_PD = 3,
    DEALLOC_PD = 4,
    CREATE_AH = 5,
    DESTROY_AH = 8,
    REG_MR = 9,
    REREG_MR = 11,
    DEREG_MR = 13,
    ALLOC_MW = 14,
    DEALLOC_MW = 16,
    CREATE_COMP_CHANNEL = 17,
    CREATE_CQ = 18,
    RESIZE_CQ = 19,
    DESTROY_CQ = 20,
    POLL_CQ = 21,
    REQ_NOTIFY_CQ = 23,
    CREATE_QP = 24,
    QUERY_QP = 25,
    MODIFY_QP = 26,
    DESTROY_QP = 27,
    POST_SEND = 28,
    POST_RECV = 29,
    ATTACH_MCAST = 30,
    DETACH_MCAST = 31,
    CREATE_SRQ = 32,
    MODIFY_SRQ = 33,
    QUERY_SRQ = 34,
    DESTROY_SRQ = 35,
    POST_SRQ_RECV = 36,
    OPEN_XRCD = 37,
    CLOSE_XRCD = 38,
    CREATE_XSRQ = 39,
    OPEN_QP = 40,
    EX_QUERY_DEVICE = EXTENDED | 1,
    EX_CREATE_CQ = EXTENDED | 18,
    EX_CREATE_QP = EXTENDED | 24,
    EX_MODIFY_QP = EXTENDED | 26,
    EX_CREATE_FLOW = EXTENDED | 50,
    EX_DESTROY_FLOW = EXTENDED | 51,
    EX_CREATE_WQ = EXTENDED | 52,
    EX_MODIFY_WQ = EXTENDED | 53,
    EX_DESTROY_WQ = EXTENDED | 54,
    EX_CREATE_RWQ_IND_TBL = EXTENDED | 55,
    EX_DESTROY_RWQ_IND_TBL = EXTENDED | 56,
    EX_MODIFY_CQ = EXTENDED | 57,
}

/// Commands whose answer begins with the number of a new descriptor.
#[must_use]
pub const fn answers_with_descriptor(command: u32) -> bool {
    matches!(command, GET_CONTEXT | CREATE_COMP_CHANNEL)
}
