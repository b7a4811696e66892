//! Write commands: their sizes, and who carries them out. Source: Linux `drivers/infiniband/core/uverbs_cmd.c`,
//! `uverbs_def_write_intf`.

use std::mem::offset_of;

use pollux_uverbs::abi::device::{
    ExQueryDevice, ExQueryDeviceResp, GetContext, GetContextResp, QueryDevice, QueryDeviceResp, QueryPort,
    QueryPortResp,
};
use pollux_uverbs::abi::flow::{CreateFlow, CreateFlowResp, DestroyFlow};
use pollux_uverbs::abi::memory::{
    AllocMw, AllocMwResp, AllocPd, AllocPdResp, AttachMcast, CloseXrcd, CreateAh, CreateAhResp, DeallocMw,
    DeallocPd, DeregMr, DestroyAh, OpenXrcd, OpenXrcdResp, RegMr, RegMrResp, ReregMr, ReregMrResp,
};
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};
use pollux_uverbs::abi::queue::{
    CreateCompChannel, CreateCompChannelResp, CreateCq, CreateCqResp, CreateSrq, CreateSrqResp, CreateXsrq,
    DestroyCq, DestroyCqResp, DestroySrq, DestroySrqResp, ExCreateCq, ExCreateCqResp, ExCreateRwqIndTable,
    ExCreateRwqIndTableResp, ExCreateWq, ExCreateWqResp, ExDestroyRwqIndTable, ExDestroyWq, ExDestroyWqResp,
    ExModifyCq, ExModifyWq, ModifySrq, QuerySrq, QuerySrqResp, ResizeCq, ResizeCqResp,
};
use pollux_uverbs::abi::queue_pair::{
    CreateQp, CreateQpResp, DestroyQp, DestroyQpResp, ExCreateQp, ExCreateQpResp, ExModifyQp, ExModifyQpResp,
    ModifyQp, OpenQp, QueryQp, QueryQpResp,
};
use pollux_uverbs::abi::{id, write as w};
use pollux_uverbs::{Call, Errno, Output, WriteCall};

use crate::session::Session;

/// A command: how long it and its answer must be at least, and what does it.
struct Command {
    number: u32,
    request: usize,
    answer: usize,
    run: fn(&mut Session, &mut WriteCall<'_>) -> Result<(), Errno>,
}

macro_rules! command {
    ($number:ident, $request:ty, $answer:ty, $run:ident) => {
        Command {
            number: w::$number,
            request: size_of::<$request>(),
            answer: size_of::<$answer>(),
            run: Session::$run,
        }
    };
    ($number:ident, $request:ty [$end:ident], $answer:ty [$answer_end:ident], $run:ident) => {
        Command {
            number: w::$number,
            request: offset_of!($request, $end) + 4,
            answer: offset_of!($answer, $answer_end) + 4,
            run: Session::$run,
        }
    };
}

const COMMANDS: &[Command] = &[
    command!(GET_CONTEXT, GetContext, GetContextResp, write_get_context),
    command!(QUERY_DEVICE, QueryDevice, QueryDeviceResp, query_device),
    command!(EX_QUERY_DEVICE, ExQueryDevice[reserved], ExQueryDeviceResp[response_length], ex_query_device),
    command!(QUERY_PORT, QueryPort, QueryPortResp, write_query_port),
    command!(ALLOC_PD, AllocPd, AllocPdResp, alloc_pd),
    command!(DEALLOC_PD, DeallocPd, (), dealloc_pd),
    command!(REG_MR, RegMr, RegMrResp, write_reg_mr),
    command!(REREG_MR, ReregMr, ReregMrResp, rereg_mr),
    command!(DEREG_MR, DeregMr, (), dereg_mr),
    command!(ALLOC_MW, AllocMw, AllocMwResp, alloc_mw),
    command!(DEALLOC_MW, DeallocMw, (), dealloc_mw),
    command!(CREATE_AH, CreateAh, CreateAhResp, create_ah),
    command!(DESTROY_AH, DestroyAh, (), destroy_ah),
    command!(OPEN_XRCD, OpenXrcd, OpenXrcdResp, open_xrcd),
    command!(CLOSE_XRCD, CloseXrcd, (), close_xrcd),
    command!(CREATE_COMP_CHANNEL, CreateCompChannel, CreateCompChannelResp, create_comp_channel),
    command!(CREATE_CQ, CreateCq, CreateCqResp, write_create_cq),
    command!(EX_CREATE_CQ, ExCreateCq[reserved], ExCreateCqResp[response_length], ex_create_cq),
    command!(RESIZE_CQ, ResizeCq, ResizeCqResp, resize_cq),
    command!(EX_MODIFY_CQ, ExModifyCq, (), modify_cq),
    command!(DESTROY_CQ, DestroyCq, DestroyCqResp, write_destroy_cq),
    command!(CREATE_QP, CreateQp, CreateQpResp, write_create_qp),
    command!(EX_CREATE_QP, ExCreateQp[comp_mask], ExCreateQpResp[response_length], ex_create_qp),
    command!(OPEN_QP, OpenQp, CreateQpResp, open_qp),
    command!(ATTACH_MCAST, AttachMcast, (), attach_mcast),
    command!(DETACH_MCAST, AttachMcast, (), detach_mcast),
    command!(CREATE_SRQ, CreateSrq, CreateSrqResp, write_create_srq),
    command!(CREATE_XSRQ, CreateXsrq, CreateSrqResp, create_xsrq),
    command!(MODIFY_SRQ, ModifySrq, (), modify_srq),
    command!(QUERY_SRQ, QuerySrq, QuerySrqResp, query_srq),
    command!(DESTROY_SRQ, DestroySrq, DestroySrqResp, write_destroy_srq),
    command!(MODIFY_QP, ModifyQp, (), modify_qp),
    Command {
        number: w::EX_MODIFY_QP,
        request: offset_of!(ExModifyQp, rate_limit),
        answer: size_of::<ExModifyQpResp>(),
        run: Session::ex_modify_qp,
    },
    command!(QUERY_QP, QueryQp, QueryQpResp, query_qp),
    command!(DESTROY_QP, DestroyQp, DestroyQpResp, write_destroy_qp),
    command!(EX_CREATE_WQ, ExCreateWq[max_sge], ExCreateWqResp[wqn], ex_create_wq),
    Command {
        number: w::EX_MODIFY_WQ,
        request: offset_of!(ExModifyWq, flags),
        answer: 0,
        run: Session::modify_wq,
    },
    command!(EX_DESTROY_WQ, ExDestroyWq[wq_handle], ExDestroyWqResp[reserved], ex_destroy_wq),
    command!(
        EX_CREATE_RWQ_IND_TBL,
        ExCreateRwqIndTable[log_ind_tbl_size],
        ExCreateRwqIndTableResp[ind_tbl_num],
        create_rwq_table
    ),
    command!(EX_DESTROY_RWQ_IND_TBL, ExDestroyRwqIndTable, (), destroy_rwq_table),
    command!(EX_CREATE_FLOW, CreateFlow, CreateFlowResp, create_flow),
    command!(EX_DESTROY_FLOW, DestroyFlow, (), write_destroy_flow),
];

/// Carries out a command.
pub(crate) fn write(session: &mut Session, command: &mut WriteCall<'_>) -> Result<(), Errno> {
    let Some(entry) = COMMANDS.iter().find(|entry| entry.number == command.command) else {
        // What the ABI has and this driver lacks, and what nobody knows.
        let known = w::name(command.command).is_some();
        return Err(if known { Errno::EOPNOTSUPP } else { Errno::EINVAL });
    };
    if command.core_in.len() < entry.request || command.core_out.room() < entry.answer {
        return Err(Errno::ENOSPC);
    }
    if command.command != w::GET_CONTEXT {
        session.granted()?;
    }
    (entry.run)(session, command)
}

impl Session {
    /// `DEVICE/INVOKE_WRITE`: a command inside a call.
    pub(crate) fn invoke_write(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::invoke_write as a;
        let number = u32::try_from(call.number(a::WRITE_CMD)?).map_err(|_| Errno::EINVAL)?;
        let room = |call: &mut Call<'_>, id| call.output(id).map_or(0, |output| output.room());
        let (core_room, driver_room) = (room(call, a::CORE_OUT), room(call, UHW_OUT));
        let core_in = call.input(a::CORE_IN).unwrap_or_default().to_vec();
        let driver_in = call.input(UHW_IN).unwrap_or_default().to_vec();
        let mut command = WriteCall {
            command: number,
            driver: call.driver,
            core_in: &core_in,
            core_out: Output::owned(core_room),
            driver_in: &driver_in,
            driver_out: Output::owned(driver_room),
            fd: None,
        };
        write(self, &mut command)?;
        // A descriptor that was made is in the answer by number: it stays open for whoever reads it there.
        if let Some(fd) = command.fd.take() {
            let _ = std::os::fd::IntoRawFd::into_raw_fd(fd);
        }
        let answers = [(a::CORE_OUT, &command.core_out), (UHW_OUT, &command.driver_out)];
        for (id, from) in answers {
            if let (Some(written), Some(output)) = (from.written(), call.output(id)) {
                output.write(written);
            }
        }
        Ok(())
    }
}
