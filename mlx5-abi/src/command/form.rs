//! Which layouts the input and the output of a command have, to print them by name.

use super::opcode::*;
use super::{CommandIn, CommandOut};
use super::{
    counter, cq, dct, environment, eq, flow, group, lag, memory, mkey, object, psv, qp, rate, register, rq,
    rqt, sq, srq, start, tir, user, vport,
};
use crate::caps;
use crate::layout::Layout;

/// Layouts of input and output; of a command that has only a header there, or is not known here, the header's.
#[must_use]
pub fn form(opcode: u16) -> (&'static Layout, &'static Layout) {
    const IN: &Layout = &CommandIn::LAYOUT;
    const OUT: &Layout = &CommandOut::LAYOUT;
    match opcode {
        ENABLE_HCA => (&start::EnableHcaIn::LAYOUT, OUT),
        DISABLE_HCA => (&start::DisableHcaIn::LAYOUT, OUT),
        QUERY_ISSI => (IN, &start::QueryIssiOut::LAYOUT),
        SET_ISSI => (&start::SetIssiIn::LAYOUT, OUT),
        QUERY_PAGES => (&start::QueryPagesIn::LAYOUT, &start::QueryPagesOut::LAYOUT),
        MANAGE_PAGES => (&start::ManagePagesIn::LAYOUT, &start::ManagePagesOut::LAYOUT),
        INIT_HCA => (&start::InitHcaIn::LAYOUT, OUT),
        TEARDOWN_HCA => (&start::TeardownHcaIn::LAYOUT, &start::TeardownHcaOut::LAYOUT),
        QUERY_ADAPTER => (IN, &start::QueryAdapterOut::LAYOUT),
        QUERY_SPECIAL_CONTEXTS => (IN, &start::QuerySpecialContextsOut::LAYOUT),
        ALLOC_UAR => (IN, &object::AllocUarOut::LAYOUT),
        DEALLOC_UAR => (&object::DeallocUarIn::LAYOUT, OUT),
        ALLOC_PD => (IN, &object::AllocPdOut::LAYOUT),
        DEALLOC_PD => (&object::DeallocPdIn::LAYOUT, OUT),
        ALLOC_TRANSPORT_DOMAIN => (IN, &object::AllocTransportDomainOut::LAYOUT),
        DEALLOC_TRANSPORT_DOMAIN => (&object::DeallocTransportDomainIn::LAYOUT, OUT),
        ALLOC_XRCD => (IN, &object::AllocXrcdOut::LAYOUT),
        DEALLOC_XRCD => (&object::DeallocXrcdIn::LAYOUT, OUT),
        ATTACH_TO_MCG => (&group::AttachToMcgIn::LAYOUT, OUT),
        DETACH_FROM_MCG => (&group::DetachFromMcgIn::LAYOUT, OUT),
        ALLOC_MEMIC => (&memory::AllocMemicIn::LAYOUT, &memory::AllocMemicOut::LAYOUT),
        DEALLOC_MEMIC => (&memory::DeallocMemicIn::LAYOUT, OUT),
        CREATE_MKEY => (&mkey::CreateMkeyIn::LAYOUT, &mkey::CreateMkeyOut::LAYOUT),
        QUERY_MKEY => (&mkey::QueryMkeyIn::LAYOUT, &mkey::QueryMkeyOut::LAYOUT),
        DESTROY_MKEY => (&mkey::DestroyMkeyIn::LAYOUT, OUT),
        CREATE_EQ => (&eq::CreateEqIn::LAYOUT, &eq::CreateEqOut::LAYOUT),
        QUERY_EQ => (&eq::QueryEqIn::LAYOUT, &eq::QueryEqOut::LAYOUT),
        DESTROY_EQ => (&eq::DestroyEqIn::LAYOUT, OUT),
        CREATE_CQ => (&cq::CreateCqIn::LAYOUT, &cq::CreateCqOut::LAYOUT),
        MODIFY_CQ => (&cq::ModifyCqIn::LAYOUT, OUT),
        QUERY_CQ => (&cq::QueryCqIn::LAYOUT, &cq::QueryCqOut::LAYOUT),
        DESTROY_CQ => (&cq::DestroyCqIn::LAYOUT, OUT),
        CREATE_SQ => (&sq::CreateSqIn::LAYOUT, &sq::CreateSqOut::LAYOUT),
        MODIFY_SQ => (&sq::ModifySqIn::LAYOUT, OUT),
        QUERY_SQ => (&sq::QuerySqIn::LAYOUT, &sq::QuerySqOut::LAYOUT),
        DESTROY_SQ => (&sq::DestroySqIn::LAYOUT, OUT),
        CREATE_RQ => (&rq::CreateRqIn::LAYOUT, &rq::CreateRqOut::LAYOUT),
        MODIFY_RQ => (&rq::ModifyRqIn::LAYOUT, OUT),
        QUERY_RQ => (&rq::QueryRqIn::LAYOUT, &rq::QueryRqOut::LAYOUT),
        DESTROY_RQ => (&rq::DestroyRqIn::LAYOUT, OUT),
        CREATE_RMP => (&rq::CreateRmpIn::LAYOUT, &rq::CreateRmpOut::LAYOUT),
        MODIFY_RMP => (&rq::ModifyRmpIn::LAYOUT, OUT),
        QUERY_RMP => (&rq::QueryRmpIn::LAYOUT, &rq::QueryRmpOut::LAYOUT),
        DESTROY_RMP => (&rq::DestroyRmpIn::LAYOUT, OUT),
        CREATE_TIR => (&tir::CreateTirIn::LAYOUT, &tir::CreateTirOut::LAYOUT),
        MODIFY_TIR => (&tir::ModifyTirIn::LAYOUT, OUT),
        QUERY_TIR => (&tir::QueryTirIn::LAYOUT, &tir::QueryTirOut::LAYOUT),
        DESTROY_TIR => (&tir::DestroyTirIn::LAYOUT, OUT),
        CREATE_TIS => (&tir::CreateTisIn::LAYOUT, &tir::CreateTisOut::LAYOUT),
        MODIFY_TIS => (&tir::ModifyTisIn::LAYOUT, OUT),
        QUERY_TIS => (&tir::QueryTisIn::LAYOUT, &tir::QueryTisOut::LAYOUT),
        DESTROY_TIS => (&tir::DestroyTisIn::LAYOUT, OUT),
        CREATE_RQT => (&rqt::CreateRqtIn::LAYOUT, &rqt::CreateRqtOut::LAYOUT),
        MODIFY_RQT => (&rqt::ModifyRqtIn::LAYOUT, OUT),
        QUERY_RQT => (&rqt::QueryRqtIn::LAYOUT, &rqt::QueryRqtOut::LAYOUT),
        DESTROY_RQT => (&rqt::DestroyRqtIn::LAYOUT, OUT),
        CREATE_QP => (&qp::CreateQpIn::LAYOUT, &qp::CreateQpOut::LAYOUT),
        RST2INIT_QP | INIT2RTR_QP | RTR2RTS_QP | RTS2RTS_QP | SQERR2RTS_QP | INIT2INIT_QP | SQD_RTS_QP => {
            (&qp::TransitionIn::LAYOUT, &qp::TransitionOut::LAYOUT)
        }
        TO_ERR_QP | TO_RST_QP | DESTROY_QP => (&qp::QpIn::LAYOUT, OUT),
        QUERY_QP => (&qp::QueryQpIn::LAYOUT, &qp::QueryQpOut::LAYOUT),
        CREATE_SRQ => (&srq::CreateSrqIn::LAYOUT, &srq::CreateSrqOut::LAYOUT),
        QUERY_SRQ => (&srq::QuerySrqIn::LAYOUT, &srq::QuerySrqOut::LAYOUT),
        ARM_RQ => (&srq::ArmRqIn::LAYOUT, OUT),
        DESTROY_SRQ => (&srq::DestroySrqIn::LAYOUT, OUT),
        CREATE_XRC_SRQ => (&srq::CreateXrcSrqIn::LAYOUT, &srq::CreateXrcSrqOut::LAYOUT),
        QUERY_XRC_SRQ => (&srq::QueryXrcSrqIn::LAYOUT, &srq::QueryXrcSrqOut::LAYOUT),
        ARM_XRC_SRQ => (&srq::ArmXrcSrqIn::LAYOUT, OUT),
        DESTROY_XRC_SRQ => (&srq::DestroyXrcSrqIn::LAYOUT, OUT),
        CREATE_PSV => (&psv::CreatePsvIn::LAYOUT, &psv::CreatePsvOut::LAYOUT),
        DESTROY_PSV => (&psv::DestroyPsvIn::LAYOUT, OUT),
        CREATE_DCT => (&dct::CreateDctIn::LAYOUT, &dct::CreateDctOut::LAYOUT),
        DRAIN_DCT => (&dct::DrainDctIn::LAYOUT, OUT),
        DESTROY_DCT => (&dct::DestroyDctIn::LAYOUT, OUT),
        QUERY_DCT => (&dct::QueryDctIn::LAYOUT, &dct::QueryDctOut::LAYOUT),
        ARM_DCT_FOR_KEY_VIOLATION => (&dct::ArmDctIn::LAYOUT, OUT),
        CREATE_FLOW_TABLE => (&flow::CreateFlowTableIn::LAYOUT, &flow::CreateFlowTableOut::LAYOUT),
        MODIFY_FLOW_TABLE => (&flow::ModifyFlowTableIn::LAYOUT, OUT),
        QUERY_FLOW_TABLE => (&flow::QueryFlowTableIn::LAYOUT, &flow::QueryFlowTableOut::LAYOUT),
        DESTROY_FLOW_TABLE => (&flow::DestroyFlowTableIn::LAYOUT, OUT),
        SET_FLOW_TABLE_ROOT => (&flow::SetFlowTableRootIn::LAYOUT, OUT),
        CREATE_FLOW_GROUP => (&flow::CreateFlowGroupIn::LAYOUT, &flow::CreateFlowGroupOut::LAYOUT),
        DESTROY_FLOW_GROUP => (&flow::DestroyFlowGroupIn::LAYOUT, OUT),
        SET_FLOW_TABLE_ENTRY => (&flow::SetFlowEntryIn::LAYOUT, OUT),
        QUERY_FLOW_TABLE_ENTRY => (&flow::QueryFlowEntryIn::LAYOUT, &flow::QueryFlowEntryOut::LAYOUT),
        DELETE_FLOW_TABLE_ENTRY => (&flow::DeleteFlowEntryIn::LAYOUT, OUT),
        ALLOC_Q_COUNTER => (IN, &counter::AllocQCounterOut::LAYOUT),
        DEALLOC_Q_COUNTER => (&counter::DeallocQCounterIn::LAYOUT, OUT),
        QUERY_Q_COUNTER => (&counter::QueryQCounterIn::LAYOUT, &counter::QueryQCounterOut::LAYOUT),
        ALLOC_FLOW_COUNTER => (&counter::AllocFlowCounterIn::LAYOUT, &counter::AllocFlowCounterOut::LAYOUT),
        DEALLOC_FLOW_COUNTER => (&counter::DeallocFlowCounterIn::LAYOUT, OUT),
        QUERY_FLOW_COUNTER => (&counter::QueryFlowCounterIn::LAYOUT, &counter::QueryFlowCounterOut::LAYOUT),
        QUERY_VPORT_COUNTER => {
            (&counter::QueryVportCounterIn::LAYOUT, &counter::QueryVportCounterOut::LAYOUT)
        }
        QUERY_VPORT_STATE => (&vport::QueryVportStateIn::LAYOUT, &vport::QueryVportStateOut::LAYOUT),
        MODIFY_VPORT_STATE => (&vport::ModifyVportStateIn::LAYOUT, OUT),
        QUERY_NIC_VPORT_CONTEXT => {
            (&vport::QueryNicVportContextIn::LAYOUT, &vport::QueryNicVportContextOut::LAYOUT)
        }
        MODIFY_NIC_VPORT_CONTEXT => (&vport::ModifyNicVportContextIn::LAYOUT, OUT),
        SET_ROCE_ADDRESS => (&vport::SetRoceAddressIn::LAYOUT, OUT),
        QUERY_ROCE_ADDRESS => (&vport::QueryRoceAddressIn::LAYOUT, &vport::QueryRoceAddressOut::LAYOUT),
        QUERY_HCA_VPORT_PKEY => (&vport::QueryHcaVportPkeyIn::LAYOUT, &vport::QueryHcaVportPkeyOut::LAYOUT),
        QUERY_VNIC_ENV => (&environment::QueryVnicEnvIn::LAYOUT, &environment::QueryVnicEnvOut::LAYOUT),
        SET_PP_RATE_LIMIT => (&rate::SetPpRateLimitIn::LAYOUT, OUT),
        QUERY_LAG => (IN, &lag::QueryLagOut::LAYOUT),
        ACCESS_REG => (&register::AccessRegisterIn::LAYOUT, &register::AccessRegisterOut::LAYOUT),
        CREATE_UCTX => (&user::CreateUctxIn::LAYOUT, &user::CreateUctxOut::LAYOUT),
        DESTROY_UCTX => (&user::DestroyUctxIn::LAYOUT, OUT),
        CREATE_UMEM => (&user::CreateUmemIn::LAYOUT, &user::CreateUmemOut::LAYOUT),
        DESTROY_UMEM => (&user::DestroyUmemIn::LAYOUT, OUT),
        CREATE_GENERAL_OBJECT | MODIFY_GENERAL_OBJECT | QUERY_GENERAL_OBJECT | DESTROY_GENERAL_OBJECT => {
            (&user::GeneralObjectIn::LAYOUT, &user::GeneralObjectOut::LAYOUT)
        }
        QUERY_HCA_CAP => (&caps::QueryHcaCapIn::LAYOUT, &caps::QueryHcaCapOut::LAYOUT),
        SET_HCA_CAP => (&caps::SetHcaCapIn::LAYOUT, OUT),
        _ => (IN, OUT),
    }
}

/// The layout of a block of `bytes` bytes inside `outer`, which calls it `field`: a context of a command, the ring of a context.
/// `None` where no layout is known.
#[must_use]
pub fn nested(outer: &Layout, field: &str, bytes: usize) -> Option<&'static Layout> {
    let name = match field {
        "cq_context" => "cqc",
        "eq_context_entry" => "eqc",
        "memory_key_mkey_entry" => "mkc",
        "srq_context_entry" => "srqc",
        "dct_context_entry" => "dctc",
        "xrc_srq_context_entry" => "xrc_srqc",
        "sq_context" => "sqc",
        "rq_context" => "rqc",
        "rmp_context" => "rmpc",
        "rqt_context" => "rqtc",
        "tir_context" => "tirc",
        "tis_context" => "tisc",
        "primary_address_path" | "secondary_address_path" => "ads",
        "match_criteria" | "match_value" => "fte_match_param",
        "outer_headers" | "inner_headers" => "fte_match_set_lyr_2_4",
        "misc_parameters" => "fte_match_set_misc",
        "misc_parameters_2" => "fte_match_set_misc2",
        "misc_parameters_3" => "fte_match_set_misc3",
        "ctx" => match outer.name {
            "create_sq_in" | "modify_sq_in" => "sqc",
            "create_rq_in" | "modify_rq_in" => "rqc",
            "create_rmp_in" | "modify_rmp_in" => "rmpc",
            "create_rqt_in" | "modify_rqt_in" => "rqtc",
            "create_tir_in" | "modify_tir_in" => "tirc",
            "create_tis_in" | "modify_tis_in" => "tisc",
            "query_lag_out" => "lagc",
            "set_pp_rate_limit_in" => "set_pp_rate_limit_context",
            _ => return None,
        },
        "vport_env" => "vnic_diagnostic_statistics",
        other => other,
    };
    super::LAYOUTS.iter().copied().flatten().find(|layout| layout.name == name && layout.bytes == bytes)
}
