//! Which commands a program may send, and by which call. Source: Linux `drivers/infiniband/hw/mlx5/devx.c`,
//! `devx_is_obj_create_cmd` and around.

use pollux_mlx5_abi::command::opcode::*;
use pollux_mlx5_abi::command::psv::CreatePsvOut;
use pollux_mlx5_abi::command::{self};

/// First and last-but-one of the commands that no list names. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `MLX5_CMD_OP_GENERAL_START`, `MLX5_CMD_OP_GENERAL_END`.
const GENERAL: std::ops::Range<u16> = 0xb00..0xd00;

/// How the object that a command makes is ended, and how the command that makes it is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By a command of 16 bytes with its number in the third dword.
    Short(u16),
    /// By one that also names the table's kind, and with it what the creation said of the virtual port.
    Table,
    Group,
    Entry,
    /// By one that names the kind of the object.
    General,
}

/// How an object is ended that `code` makes; `None` when it makes none, or none that programs may make.
pub(crate) fn ending(code: u16, op_mod: u16) -> Option<Ending> {
    Some(match code {
        CREATE_GENERAL_OBJECT => Ending::General,
        CREATE_MKEY => Ending::Short(DESTROY_MKEY),
        CREATE_CQ => Ending::Short(DESTROY_CQ),
        ALLOC_PD => Ending::Short(DEALLOC_PD),
        ALLOC_TRANSPORT_DOMAIN => Ending::Short(DEALLOC_TRANSPORT_DOMAIN),
        CREATE_RMP => Ending::Short(DESTROY_RMP),
        CREATE_SQ => Ending::Short(DESTROY_SQ),
        CREATE_RQ => Ending::Short(DESTROY_RQ),
        CREATE_RQT => Ending::Short(DESTROY_RQT),
        CREATE_TIR => Ending::Short(DESTROY_TIR),
        CREATE_TIS => Ending::Short(DESTROY_TIS),
        ALLOC_Q_COUNTER => Ending::Short(DEALLOC_Q_COUNTER),
        ALLOC_FLOW_COUNTER => Ending::Short(DEALLOC_FLOW_COUNTER),
        ALLOC_PACKET_REFORMAT_CONTEXT => Ending::Short(DEALLOC_PACKET_REFORMAT_CONTEXT),
        ALLOC_MODIFY_HEADER_CONTEXT => Ending::Short(DEALLOC_MODIFY_HEADER_CONTEXT),
        CREATE_QP => Ending::Short(DESTROY_QP),
        CREATE_SRQ => Ending::Short(DESTROY_SRQ),
        CREATE_XRC_SRQ => Ending::Short(DESTROY_XRC_SRQ),
        ALLOC_XRCD => Ending::Short(DEALLOC_XRCD),
        CREATE_PSV => Ending::Short(DESTROY_PSV),
        CREATE_FLOW_TABLE => Ending::Table,
        CREATE_FLOW_GROUP => Ending::Group,
        SET_FLOW_TABLE_ENTRY if op_mod == 0 => Ending::Entry,
        _ => return None,
    })
}

/// Whether a command changes an object, and of which command's making; likewise whether it asks about one.
pub(crate) fn subject(code: u16, op_mod: u16) -> Option<(Use, u16)> {
    Some(match code {
        MODIFY_GENERAL_OBJECT => (Use::Change, CREATE_GENERAL_OBJECT),
        MODIFY_CQ => (Use::Change, CREATE_CQ),
        MODIFY_RMP => (Use::Change, CREATE_RMP),
        MODIFY_SQ => (Use::Change, CREATE_SQ),
        MODIFY_RQ => (Use::Change, CREATE_RQ),
        MODIFY_RQT => (Use::Change, CREATE_RQT),
        MODIFY_TIR => (Use::Change, CREATE_TIR),
        MODIFY_TIS => (Use::Change, CREATE_TIS),
        MODIFY_FLOW_TABLE => (Use::Change, CREATE_FLOW_TABLE),
        RST2INIT_QP | INIT2RTR_QP | INIT2INIT_QP | RTR2RTS_QP | RTS2RTS_QP | SQERR2RTS_QP | TO_ERR_QP
        | TO_RST_QP => (Use::Change, CREATE_QP),
        ARM_XRC_SRQ => (Use::Change, CREATE_XRC_SRQ),
        ARM_RQ => (Use::Change, CREATE_RQ),
        SET_FLOW_TABLE_ENTRY if op_mod == 1 => (Use::Change, SET_FLOW_TABLE_ENTRY),
        QUERY_GENERAL_OBJECT => (Use::Ask, CREATE_GENERAL_OBJECT),
        QUERY_MKEY => (Use::Ask, CREATE_MKEY),
        QUERY_CQ => (Use::Ask, CREATE_CQ),
        QUERY_RMP => (Use::Ask, CREATE_RMP),
        QUERY_SQ => (Use::Ask, CREATE_SQ),
        QUERY_RQ => (Use::Ask, CREATE_RQ),
        QUERY_RQT => (Use::Ask, CREATE_RQT),
        QUERY_TIR => (Use::Ask, CREATE_TIR),
        QUERY_TIS => (Use::Ask, CREATE_TIS),
        QUERY_Q_COUNTER => (Use::Ask, ALLOC_Q_COUNTER),
        QUERY_FLOW_TABLE => (Use::Ask, CREATE_FLOW_TABLE),
        QUERY_FLOW_GROUP => (Use::Ask, CREATE_FLOW_GROUP),
        QUERY_FLOW_TABLE_ENTRY => (Use::Ask, SET_FLOW_TABLE_ENTRY),
        QUERY_FLOW_COUNTER => (Use::Ask, ALLOC_FLOW_COUNTER),
        QUERY_MODIFY_HEADER_CONTEXT => (Use::Ask, ALLOC_MODIFY_HEADER_CONTEXT),
        QUERY_PACKET_REFORMAT_CONTEXT => (Use::Ask, ALLOC_PACKET_REFORMAT_CONTEXT),
        QUERY_QP => (Use::Ask, CREATE_QP),
        QUERY_SRQ => (Use::Ask, CREATE_SRQ),
        QUERY_XRC_SRQ => (Use::Ask, CREATE_XRC_SRQ),
        _ => return None,
    })
}

/// What a command does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Change,
    Ask,
}

/// The number of the object that a changing or asking command names.
pub(crate) fn number_named(code: u16, input: &[u8]) -> Option<u32> {
    let (at, bits) = match code {
        // Numbers of 24 bits in the third dword, but for those that have all 32, and those that stand elsewhere.
        MODIFY_GENERAL_OBJECT
        | QUERY_GENERAL_OBJECT
        | QUERY_MODIFY_HEADER_CONTEXT
        | QUERY_PACKET_REFORMAT_CONTEXT => (8, u32::MAX),
        QUERY_Q_COUNTER => (0x1c, 0xff),
        QUERY_FLOW_COUNTER => (0x1c, u32::MAX),
        MODIFY_FLOW_TABLE | QUERY_FLOW_TABLE => (0x14, 0xff_ffff),
        QUERY_FLOW_GROUP => (0x18, u32::MAX),
        SET_FLOW_TABLE_ENTRY | QUERY_FLOW_TABLE_ENTRY => (0x20, u32::MAX),
        _ => (8, 0xff_ffff),
    };
    dword(input, at).map(|word| word & bits)
}

/// The number of the object that a command made, from its answer or, for entries, from itself.
pub(crate) fn number_made(code: u16, input: &[u8], output: &[u8]) -> Option<u32> {
    match code {
        SET_FLOW_TABLE_ENTRY => dword(input, 0x20),
        CREATE_GENERAL_OBJECT
        | ALLOC_FLOW_COUNTER
        | ALLOC_PACKET_REFORMAT_CONTEXT
        | ALLOC_MODIFY_HEADER_CONTEXT => dword(output, 8),
        ALLOC_Q_COUNTER => dword(output, 8).map(|word| word & 0xff),
        CREATE_PSV => output.first_chunk().map(|output| CreatePsvOut::PSV0_INDEX.get(output)),
        _ => dword(output, 8).map(|word| word & 0xff_ffff),
    }
}

/// A big-endian dword of a block.
pub(crate) fn dword(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>()).map(|bytes| u32::from_be_bytes(*bytes))
}

/// Whether contexts without DevX may send it.
pub(crate) const fn is_open(code: u16) -> bool {
    matches!(code, QUERY_HCA_CAP | QUERY_HCA_VPORT_CONTEXT | QUERY_ESW_VPORT_CONTEXT)
}

/// Whether it may be sent without an object.
pub(crate) fn is_general(code: u16) -> bool {
    /// `GET_DROPPED_PACKET_LOG`.
    const DROPPED_PACKET_LOG: u16 = 0x80b;
    GENERAL.contains(&code)
        || is_open(code)
        || matches!(
            code,
            QUERY_VPORT_STATE
                | QUERY_ADAPTER
                | QUERY_ISSI
                | QUERY_NIC_VPORT_CONTEXT
                | QUERY_ROCE_ADDRESS
                | QUERY_VNIC_ENV
                | QUERY_VPORT_COUNTER
                | DROPPED_PACKET_LOG
                | NOP
                | QUERY_CONG_STATUS
                | QUERY_CONG_PARAMS
                | QUERY_CONG_STATISTICS
                | QUERY_LAG
        )
}

/// Says in a command that its rings and records are given by number of a registered piece of memory: programs may give no
/// addresses. Source: Linux `drivers/infiniband/hw/mlx5/devx.c`, `devx_set_umem_valid`.
pub(crate) fn set_umem_valid(input: &mut [u8]) {
    use pollux_mlx5_abi::command::{cq, mkey, qp, rq, sq, srq, wq};
    let Some(head) = command::header(input) else { return };
    /// Both bits of a ring inside a queue's context that begins at 0x20.
    fn ring(input: &mut [u8], place: usize) {
        if let Some(ring) =
            input.get_mut(place..).and_then(|rest| rest.first_chunk_mut::<{ wq::WorkQueue::BYTES }>())
        {
            wq::WorkQueue::DBR_UMEM_VALID.set(ring, 1);
            wq::WorkQueue::WQ_UMEM_VALID.set(ring, 1);
        }
    }
    match head.opcode {
        CREATE_MKEY => {
            // Lists of other keys carry no addresses.
            if let Some(input) = input.first_chunk_mut::<{ mkey::CreateMkeyIn::BYTES }>() {
                let context = mkey::CreateMkeyIn::MEMORY_KEY_MKEY_ENTRY.of(input);
                let mode = mkey::MkeyContext::ACCESS_MODE_1_0.get(context)
                    | mkey::MkeyContext::ACCESS_MODE_4_2.get(context) << 2;
                if mode != mkey::access_mode::KLM && mode != mkey::access_mode::KSM {
                    mkey::CreateMkeyIn::MKEY_UMEM_VALID.set(input, 1);
                }
            }
        }
        CREATE_CQ => {
            if let Some(input) = input.first_chunk_mut::<{ cq::CreateCqIn::BYTES }>() {
                cq::CreateCqIn::CQ_UMEM_VALID.set(input, 1);
                cq::CqContext::DBR_UMEM_VALID.set(cq::CreateCqIn::CQ_CONTEXT.of_mut(input), 1);
            }
        }
        MODIFY_CQ => {
            // The same place as in CREATE_CQ.
            if let Some(input) = input.first_chunk_mut::<{ cq::CreateCqIn::BYTES }>() {
                cq::CreateCqIn::CQ_UMEM_VALID.set(input, 1);
            }
        }
        CREATE_QP => {
            if let Some(input) = input.first_chunk_mut::<{ qp::CreateQpIn::BYTES }>() {
                qp::CreateQpIn::WQ_UMEM_VALID.set(input, 1);
                let context = qp::CreateQpIn::QPC.of_mut(input);
                qp::context::QpContext::DBR_UMEM_VALID.set(context, 1);
            }
        }
        CREATE_RQ => ring(input, rq::CreateRqIn::CTX.offset() + rq::RqContext::WQ.offset()),
        CREATE_SQ => ring(input, sq::CreateSqIn::CTX.offset() + sq::SqContext::WQ.offset()),
        CREATE_RMP => ring(input, rq::CreateRmpIn::CTX.offset() + rq::RmpContext::WQ.offset()),
        CREATE_XRC_SRQ => {
            if let Some(input) = input.first_chunk_mut::<{ srq::CreateXrcSrqIn::BYTES }>() {
                srq::CreateXrcSrqIn::XRC_SRQ_UMEM_VALID.set(input, 1);
                let context = srq::CreateXrcSrqIn::XRC_SRQ_CONTEXT_ENTRY.of_mut(input);
                srq::XrcSrqContext::DBR_UMEM_VALID.set(context, 1);
            }
        }
        _ => {}
    }
}
