//! The firmware: commands, and the answers to them.
//!
//! Each command checks its lengths, the function's state, the objects that it names and whether they are the caller's, and
//! every field; what is refused has a status that says how and a syndrome that says where: the opcode in its upper half, the
//! check's number in the lower.

mod caps;
mod completion;
mod dynamic;
mod environment;
mod event;
mod flow;
mod function;
mod hairpin;
mod key;
mod lent;
mod object;
mod paging;
mod port;
mod qp;
mod rate;
mod receive;
mod register;
mod reserved;
mod reserved_number;
mod rewrite;
mod send;
mod signature;
mod spread;
mod srq;
mod work;

use pollux_mlx5_abi::command::{self, Header, opcode as op, status};

use crate::device::bus::Bus;
use crate::device::core::Core;
use crate::device::violation::Violation;

/// Owner of what the kernel makes for every user context. Source: Linux `include/linux/mlx5/driver.h`,
/// `MLX5_SHARED_RESOURCE_UID`.
const SHARED_RESOURCE_UID: u16 = 0xffff;

/// A command is refused: with which status, by which check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct No {
    status: u8,
    check: u16,
}

const fn no(status: u8, check: u16) -> No {
    No { status, check }
}

/// Ends a handler unless something holds.
macro_rules! need {
    ($holds:expr, $status:ident, $check:literal) => {
        if !$holds {
            return Err(crate::firmware::no(pollux_mlx5_abi::command::status::$status, $check));
        }
    };
}
pub(crate) use need;

/// A command on its way through a handler.
pub(crate) struct Call<'c> {
    uid: u16,
    op_mod: u16,
    input: &'c [u8],
    output: &'c mut [u8],
}

impl Call<'_> {
    /// The fixed part of the command.
    fn input<const N: usize>(&self) -> Result<&[u8; N], No> {
        self.input.first_chunk().ok_or(no(status::BAD_INP_LEN_ERR, 1))
    }

    /// What stands behind the fixed part.
    fn behind<const N: usize>(&self) -> &[u8] {
        self.input.get(N..).unwrap_or_default()
    }

    /// The fixed part of the answer.
    fn output<const N: usize>(&mut self) -> Result<&mut [u8; N], No> {
        self.output.first_chunk_mut().ok_or(no(status::BAD_OUTP_LEN_ERR, 2))
    }

    /// A number in the second dword of the answer, where all objects' are.
    fn answer_number(&mut self, number: u32) -> Result<(), No> {
        self.output::<16>()?[8..12].copy_from_slice(&number.to_be_bytes());
        Ok(())
    }

    /// A number of 24 bits in the third dword of the command, where most objects' are.
    fn named(&self) -> Result<u32, No> {
        let head: &[u8; 16] = self.input()?;
        Ok(u32::from_be_bytes([0, head[9], head[10], head[11]]))
    }

    /// Whether an object of this owner may be named: the caller's own, or the kernel's; the kernel names all.
    fn may_name(&self, owner: Option<u16>) -> bool {
        owner.is_some_and(|owner| self.uid == 0 || owner == self.uid || owner == 0)
    }

    /// Whether a queue or key of the caller may be in a protection domain of this owner: its own. In the kernel's are keys for all memory
    /// (Linux `drivers/net/ethernet/mellanox/mlx5/core/en_common.c`, `mlx5e_create_mkey`). That programs have domains of their own:
    /// `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_alloc_pd`; that the firmware keeps them apart: commit a8b92ca1b0e5, "IB/mlx5:
    /// Introduce DEVX".
    fn may_work_in(&self, owner: Option<u16>) -> bool {
        self.may_change(owner)
    }

    /// Whether it may be changed or ended: the caller's own; the kernel's are the kernel's.
    fn may_change(&self, owner: Option<u16>) -> bool {
        owner.is_some_and(|owner| self.uid == 0 || owner == self.uid)
    }
}

impl Core {
    /// Executes a command.
    pub(crate) fn execute(&mut self, bus: &mut Bus<'_>, input: &[u8], output: &mut [u8]) {
        if output.len() < 8 {
            return;
        }
        let Some(Header { opcode, uid, op_mod }) = command::header(input) else {
            command::answer(output, status::BAD_INP_LEN_ERR, 0);
            return;
        };
        if let Some(bit) = reserved::in_command(opcode, input) {
            self.violations.note(Violation::ReservedInCommand { opcode, bit });
        }
        if let Some(refusal) = bus.faults.command(opcode) {
            command::answer(output, refusal.status, refusal.syndrome);
            self.function.refusals += 1;
            return;
        }
        // What the kernel makes for all contexts: in number the kernel's own, as everybody may name those.
        let uid = if uid == SHARED_RESOURCE_UID { 0 } else { uid };
        let mut call = Call { uid, op_mod, input, output };
        let outcome = self.dispatch(bus, opcode, &mut call);
        match outcome {
            Ok(()) => {
                self.check_made(opcode, output);
                command::answer(output, status::OK, 0);
            }
            Err(No { status, check }) => {
                self.function.refusals += 1;
                output.fill(0);
                command::answer(output, status, u32::from(opcode) << 16 | u32::from(check));
            }
        }
    }

    /// A command was carried out, and answers so.
    fn check_made(&mut self, opcode: u16, output: &[u8]) {
        let makes_queue = matches!(
            opcode,
            op::CREATE_CQ
                | op::CREATE_SQ
                | op::CREATE_RQ
                | op::CREATE_RMP
                | op::CREATE_SRQ
                | op::CREATE_XRC_SRQ
                | op::CREATE_QP
        );
        if makes_queue && let Some(&[_, high, middle, low]) = output.get(8..12) {
            self.check_record(opcode, u32::from_be_bytes([0, high, middle, low]));
        }
    }

    fn dispatch(&mut self, bus: &mut Bus<'_>, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        self.function.allows(opcode)?;
        need!(call.uid == 0 || self.users.get(call.uid.into()).is_some(), BAD_RES_ERR, 3);
        match opcode {
            op::ENABLE_HCA
            | op::DISABLE_HCA
            | op::INIT_HCA
            | op::TEARDOWN_HCA
            | op::QUERY_ISSI
            | op::SET_ISSI
            | op::QUERY_PAGES
            | op::MANAGE_PAGES
            | op::QUERY_ADAPTER
            | op::SET_DRIVER_VERSION
            | op::NOP
            | op::QUERY_SPECIAL_CONTEXTS => self.function_command(opcode, call),
            op::QUERY_HCA_CAP | op::SET_HCA_CAP => self.caps_command(opcode, call),
            op::ALLOC_UAR
            | op::DEALLOC_UAR
            | op::ALLOC_PD
            | op::DEALLOC_PD
            | op::ALLOC_TRANSPORT_DOMAIN
            | op::DEALLOC_TRANSPORT_DOMAIN
            | op::ALLOC_XRCD
            | op::DEALLOC_XRCD
            | op::CREATE_UCTX
            | op::DESTROY_UCTX
            | op::CREATE_UMEM
            | op::DESTROY_UMEM
            | op::CREATE_TIS
            | op::MODIFY_TIS
            | op::DESTROY_TIS
            | op::QUERY_TIS
            | op::ALLOC_Q_COUNTER
            | op::DEALLOC_Q_COUNTER
            | op::QUERY_Q_COUNTER => self.object_command(opcode, call),
            op::CREATE_MKEY | op::QUERY_MKEY | op::DESTROY_MKEY => self.key_command(opcode, call),
            op::CREATE_GENERAL_OBJECT | op::DESTROY_GENERAL_OBJECT => {
                self.general_object_command(opcode, call)
            }
            op::PAGE_FAULT_RESUME => self.paging_command(call),
            op::ALLOC_MEMIC | op::DEALLOC_MEMIC => self.lent_command(opcode, call),
            op::CREATE_EQ | op::QUERY_EQ | op::DESTROY_EQ => self.event_command(opcode, call),
            op::CREATE_CQ | op::QUERY_CQ | op::MODIFY_CQ | op::DESTROY_CQ => {
                self.completion_command(bus, opcode, call)
            }
            op::CREATE_SQ | op::QUERY_SQ | op::MODIFY_SQ | op::DESTROY_SQ => {
                self.send_command(bus, opcode, call)
            }
            op::CREATE_RQ | op::QUERY_RQ | op::MODIFY_RQ | op::DESTROY_RQ => {
                self.receive_command(bus, opcode, call)
            }
            op::CREATE_RMP
            | op::QUERY_RMP
            | op::MODIFY_RMP
            | op::DESTROY_RMP
            | op::CREATE_SRQ
            | op::QUERY_SRQ
            | op::ARM_RQ
            | op::DESTROY_SRQ
            | op::CREATE_XRC_SRQ
            | op::QUERY_XRC_SRQ
            | op::ARM_XRC_SRQ
            | op::DESTROY_XRC_SRQ => self.pool_command(bus, opcode, call),
            op::CREATE_QP
            | op::QUERY_QP
            | op::RST2INIT_QP
            | op::INIT2INIT_QP
            | op::INIT2RTR_QP
            | op::RTR2RTS_QP
            | op::RTS2RTS_QP
            | op::SQERR2RTS_QP
            | op::RTS2SQD_QP
            | op::SQD_RTS_QP
            | op::TO_ERR_QP
            | op::TO_RST_QP
            | op::DESTROY_QP
            | op::ATTACH_TO_MCG
            | op::DETACH_FROM_MCG => self.pair_command(bus, opcode, call),
            op::CREATE_DCT
            | op::DRAIN_DCT
            | op::QUERY_DCT
            | op::ARM_DCT_FOR_KEY_VIOLATION
            | op::DESTROY_DCT => self.target_command(opcode, call),
            op::CREATE_PSV | op::DESTROY_PSV => self.signature_command(opcode, call),
            op::CREATE_TIR
            | op::QUERY_TIR
            | op::MODIFY_TIR
            | op::DESTROY_TIR
            | op::CREATE_RQT
            | op::QUERY_RQT
            | op::MODIFY_RQT
            | op::DESTROY_RQT => self.spread_command(opcode, call),
            op::CREATE_FLOW_TABLE
            | op::MODIFY_FLOW_TABLE
            | op::QUERY_FLOW_TABLE
            | op::DESTROY_FLOW_TABLE
            | op::SET_FLOW_TABLE_ROOT
            | op::CREATE_FLOW_GROUP
            | op::DESTROY_FLOW_GROUP
            | op::SET_FLOW_TABLE_ENTRY
            | op::QUERY_FLOW_TABLE_ENTRY
            | op::DELETE_FLOW_TABLE_ENTRY
            | op::ALLOC_FLOW_COUNTER
            | op::DEALLOC_FLOW_COUNTER
            | op::QUERY_FLOW_COUNTER => self.flow_command(opcode, call),
            op::ALLOC_MODIFY_HEADER_CONTEXT
            | op::DEALLOC_MODIFY_HEADER_CONTEXT
            | op::ALLOC_PACKET_REFORMAT_CONTEXT
            | op::DEALLOC_PACKET_REFORMAT_CONTEXT => self.rewrite_command(opcode, call),
            op::QUERY_VPORT_STATE
            | op::MODIFY_VPORT_STATE
            | op::QUERY_NIC_VPORT_CONTEXT
            | op::MODIFY_NIC_VPORT_CONTEXT
            | op::QUERY_VPORT_COUNTER
            | op::SET_ROCE_ADDRESS
            | op::QUERY_ROCE_ADDRESS
            | op::QUERY_HCA_VPORT_PKEY
            | op::SET_L2_TABLE_ENTRY
            | op::DELETE_L2_TABLE_ENTRY
            | op::ADD_VXLAN_UDP_DPORT
            | op::DELETE_VXLAN_UDP_DPORT => self.port_command(opcode, call),
            op::QUERY_VNIC_ENV => self.query_environment(call),
            op::SET_PP_RATE_LIMIT => self.set_rate(bus, call),
            op::QUERY_LAG => self.query_lag(call),
            op::ACCESS_REG => self.register_command(bus, call),
            _ => Err(no(status::BAD_OP_ERR, 4)),
        }
    }
}
