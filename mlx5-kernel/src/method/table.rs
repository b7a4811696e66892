//! Which methods there are, what attributes they take, and who carries them out.

use pollux_mlx5_abi::kernel::{attribute as x, method as m, object as o};
use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Errno};

use crate::ah::Ah;
use crate::counters::Counters;
use crate::dm::Dm;
use crate::flow::Flow;
use crate::flow_action::FlowAction;
use crate::handle::ObjectKind;
use crate::matcher::Matcher;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::pd::Pd;
use crate::rwq_table::RwqTable;
use crate::session::Session;
use crate::uar::Uar;
use crate::xrcd::Xrcd;

/// What an attribute carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// An input: at least so many bytes; more are allowed where they are zero or the method reads them itself.
    In(usize),
    /// An input of a number: 8 bytes or fewer.
    Number,
    /// An element of an enumeration with its data.
    Element,
    /// Room for an output of at least so many bytes.
    Out(usize),
    /// An object that exists, of this kind.
    Object(ObjectKind),
    /// An object that exists, of any kind.
    AnyObject,
    /// An object of a kind that nobody can make here.
    NoObject,
    /// An object that is made.
    New,
    /// A descriptor that exists.
    Fd,
    /// A descriptor that is made.
    NewFd,
}

/// An attribute of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeSpec {
    /// Which one.
    pub id: u16,
    /// What it carries.
    pub carries: Carries,
    /// Whether the method fails without it.
    pub mandatory: bool,
}

/// What carries a method out.
pub(super) type Run = fn(&mut Session, &mut Call<'_>) -> Result<(), Errno>;

pub(super) struct Method {
    pub(super) object: u16,
    pub(super) method: u16,
    pub(super) attributes: &'static [AttributeSpec],
    /// Whether it takes the driver's part.
    pub(super) driver: bool,
    pub(super) run: Run,
}

const fn must(id: u16, carries: Carries) -> AttributeSpec {
    AttributeSpec { id, carries, mandatory: true }
}

pub(super) const fn may(id: u16, carries: Carries) -> AttributeSpec {
    AttributeSpec { id, carries, mandatory: false }
}

macro_rules! method {
    ($object:expr, $method:expr, $run:expr, [$($attribute:expr),* $(,)?]) => {
        Method { object: $object, method: $method, attributes: &[$($attribute),*], driver: false, run: $run }
    };
    ($object:expr, $method:expr, $run:expr, [$($attribute:expr),* $(,)?], driver) => {
        Method { object: $object, method: $method, attributes: &[$($attribute),*], driver: true, run: $run }
    };
}

/// Methods that destroy an object and tell nothing: all have the handle as their first attribute.
macro_rules! end {
    ($object:expr, $method:expr, $kind:ident, $id:expr) => {
        method!(
            $object,
            $method,
            |session, call| session.destroy::<$kind>(call.handle($id)?).map(drop),
            [must($id, Carries::Object(ObjectKind::$kind))]
        )
    };
}

/// Methods on what cannot be made here.
macro_rules! lacking {
    ($object:expr, $method:expr) => {
        Method {
            object: $object,
            method: $method,
            attributes: &[],
            driver: true,
            run: |_, _| Err(Errno::EOPNOTSUPP),
        }
    };
}

use Carries::{AnyObject, Element, Fd, In, New, NewFd, NoObject, Number, Object as Obj, Out};
use ObjectKind as K;

pub(super) const METHODS: &[Method] = &[
    method!(
        id::device::OBJECT,
        id::device::invoke_write::METHOD,
        Session::invoke_write,
        [
            may(id::device::invoke_write::CORE_IN, In(4)),
            may(id::device::invoke_write::CORE_OUT, Out(0)),
            must(id::device::invoke_write::WRITE_CMD, Number),
        ],
        driver
    ),
    method!(
        id::device::OBJECT,
        id::device::info_handles::METHOD,
        Session::info_handles,
        [
            must(id::device::info_handles::OBJECT_ID, Number),
            may(id::device::info_handles::TOTAL_HANDLES, Out(4)),
            may(id::device::info_handles::HANDLES_LIST, Out(4)),
        ]
    ),
    method!(
        id::device::OBJECT,
        id::device::query_port::METHOD,
        Session::query_port,
        [must(id::device::query_port::PORT_NUM, Number), must(id::device::query_port::RESP, Out(40)),]
    ),
    method!(
        id::device::OBJECT,
        id::device::get_context::METHOD,
        Session::get_context,
        [
            may(id::device::get_context::NUM_COMP_VECTORS, Out(4)),
            may(id::device::get_context::CORE_SUPPORT, Out(8)),
        ],
        driver
    ),
    method!(
        id::device::OBJECT,
        id::device::query_context::METHOD,
        Session::query_context,
        [
            may(id::device::query_context::NUM_COMP_VECTORS, Out(4)),
            may(id::device::query_context::CORE_SUPPORT, Out(8)),
            may(x::query_context::RESP_UCTX, Out(4)),
        ]
    ),
    method!(
        id::device::OBJECT,
        id::device::query_gid_table::METHOD,
        Session::query_gid_table,
        [
            must(id::device::query_gid_table::ENTRY_SIZE, Number),
            may(id::device::query_gid_table::FLAGS, Number),
            must(id::device::query_gid_table::RESP_ENTRIES, Out(0)),
            must(id::device::query_gid_table::RESP_NUM_ENTRIES, Out(8)),
        ]
    ),
    method!(
        id::device::OBJECT,
        id::device::query_gid_entry::METHOD,
        Session::query_gid_entry,
        [
            must(id::device::query_gid_entry::PORT, Number),
            must(id::device::query_gid_entry::GID_INDEX, Number),
            may(id::device::query_gid_entry::FLAGS, Number),
            must(id::device::query_gid_entry::RESP_ENTRY, Out(32)),
        ]
    ),
    method!(
        id::device::OBJECT,
        id::device::query_port_speed::METHOD,
        Session::query_port_speed,
        [
            must(id::device::query_port_speed::PORT_NUM, Number),
            must(id::device::query_port_speed::RESP, Out(8)),
        ]
    ),
    end!(id::pd::OBJECT, id::pd::destroy::METHOD, Pd, id::pd::destroy::HANDLE),
    method!(
        id::pd::OBJECT,
        m::pd::QUERY,
        Session::query_pd,
        [must(x::query_pd::HANDLE, Obj(K::Pd)), must(x::query_pd::RESP_PDN, Out(4)),]
    ),
    method!(
        id::cq::OBJECT,
        id::cq::create::METHOD,
        Session::create_cq,
        [
            must(id::cq::create::HANDLE, New),
            must(id::cq::create::CQE, In(4)),
            must(id::cq::create::USER_HANDLE, In(8)),
            may(id::cq::create::COMP_CHANNEL, Fd),
            must(id::cq::create::COMP_VECTOR, In(4)),
            may(id::cq::create::FLAGS, Number),
            must(id::cq::create::RESP_CQE, Out(4)),
            may(id::cq::create::EVENT_FD, Fd),
        ],
        driver
    ),
    method!(
        id::cq::OBJECT,
        id::cq::destroy::METHOD,
        Session::destroy_cq,
        [must(id::cq::destroy::HANDLE, Obj(K::Cq)), must(id::cq::destroy::RESP, Out(8)),]
    ),
    method!(
        id::qp::OBJECT,
        id::qp::create::METHOD,
        Session::create_qp,
        [
            must(id::qp::create::HANDLE, New),
            may(id::qp::create::XRCD_HANDLE, Obj(K::Xrcd)),
            may(id::qp::create::PD_HANDLE, Obj(K::Pd)),
            may(id::qp::create::SRQ_HANDLE, Obj(K::Srq)),
            may(id::qp::create::SEND_CQ_HANDLE, Obj(K::Cq)),
            may(id::qp::create::RECV_CQ_HANDLE, Obj(K::Cq)),
            may(id::qp::create::IND_TABLE_HANDLE, Obj(K::RwqTable)),
            must(id::qp::create::USER_HANDLE, In(8)),
            must(id::qp::create::CAP, In(20)),
            must(id::qp::create::TYPE, Number),
            may(id::qp::create::FLAGS, Number),
            may(id::qp::create::SOURCE_QPN, In(4)),
            may(id::qp::create::EVENT_FD, Fd),
            must(id::qp::create::RESP_CAP, Out(20)),
            must(id::qp::create::RESP_QP_NUM, Out(4)),
        ],
        driver
    ),
    method!(
        id::qp::OBJECT,
        id::qp::destroy::METHOD,
        Session::destroy_qp,
        [must(id::qp::destroy::HANDLE, Obj(K::Qp)), must(id::qp::destroy::RESP, Out(4)),]
    ),
    method!(
        id::srq::OBJECT,
        id::srq::create::METHOD,
        Session::create_srq,
        [
            must(id::srq::create::HANDLE, New),
            must(id::srq::create::PD_HANDLE, Obj(K::Pd)),
            may(id::srq::create::XRCD_HANDLE, Obj(K::Xrcd)),
            may(id::srq::create::CQ_HANDLE, Obj(K::Cq)),
            must(id::srq::create::USER_HANDLE, In(8)),
            must(id::srq::create::MAX_WR, In(4)),
            must(id::srq::create::MAX_SGE, In(4)),
            must(id::srq::create::LIMIT, In(4)),
            may(id::srq::create::MAX_NUM_TAGS, In(4)),
            must(id::srq::create::TYPE, Number),
            may(id::srq::create::EVENT_FD, Fd),
            must(id::srq::create::RESP_MAX_WR, Out(4)),
            must(id::srq::create::RESP_MAX_SGE, Out(4)),
            may(id::srq::create::RESP_SRQ_NUM, Out(4)),
        ],
        driver
    ),
    method!(
        id::srq::OBJECT,
        id::srq::destroy::METHOD,
        Session::destroy_srq,
        [must(id::srq::destroy::HANDLE, Obj(K::Srq)), must(id::srq::destroy::RESP, Out(4)),]
    ),
    end!(id::ah::OBJECT, id::ah::destroy::METHOD, Ah, id::ah::destroy::HANDLE),
    method!(
        id::mr::OBJECT,
        id::mr::dm_reg::METHOD,
        Session::reg_dm_mr,
        [
            must(id::mr::dm_reg::HANDLE, New),
            must(id::mr::dm_reg::OFFSET, In(8)),
            must(id::mr::dm_reg::LENGTH, In(8)),
            must(id::mr::dm_reg::PD_HANDLE, Obj(K::Pd)),
            must(id::mr::dm_reg::ACCESS_FLAGS, Number),
            must(id::mr::dm_reg::DM_HANDLE, Obj(K::Dm)),
            must(id::mr::dm_reg::RESP_LKEY, Out(4)),
            must(id::mr::dm_reg::RESP_RKEY, Out(4)),
        ]
    ),
    end!(id::mr::OBJECT, id::mr::destroy::METHOD, Mr, id::mr::destroy::HANDLE),
    method!(
        id::mr::OBJECT,
        id::mr::advise::METHOD,
        Session::advise_mr,
        [
            must(id::mr::advise::PD_HANDLE, Obj(K::Pd)),
            must(id::mr::advise::ADVICE, Number),
            must(id::mr::advise::FLAGS, Number),
            must(id::mr::advise::SGE_LIST, In(16)),
        ]
    ),
    method!(
        id::mr::OBJECT,
        id::mr::query::METHOD,
        Session::query_mr,
        [
            must(id::mr::query::HANDLE, Obj(K::Mr)),
            must(id::mr::query::RESP_LKEY, Out(4)),
            must(id::mr::query::RESP_RKEY, Out(4)),
            must(id::mr::query::RESP_LENGTH, Out(8)),
            may(id::mr::query::RESP_IOVA, Out(8)),
        ]
    ),
    lacking!(id::mr::OBJECT, id::mr::reg_dmabuf::METHOD),
    method!(
        id::mr::OBJECT,
        id::mr::reg::METHOD,
        Session::reg_mr,
        [
            must(id::mr::reg::HANDLE, New),
            must(id::mr::reg::PD_HANDLE, Obj(K::Pd)),
            may(id::mr::reg::DMA_HANDLE, NoObject),
            must(id::mr::reg::IOVA, In(8)),
            must(id::mr::reg::ADDR, In(8)),
            must(id::mr::reg::LENGTH, In(8)),
            must(id::mr::reg::ACCESS_FLAGS, In(4)),
            may(id::mr::reg::FD, Number),
            may(id::mr::reg::FD_OFFSET, In(8)),
            must(id::mr::reg::RESP_LKEY, Out(4)),
            must(id::mr::reg::RESP_RKEY, Out(4)),
        ]
    ),
    end!(id::mw::OBJECT, id::mw::destroy::METHOD, Mw, id::mw::destroy::HANDLE),
    end!(id::flow::OBJECT, id::flow::destroy::METHOD, Flow, id::flow::destroy::HANDLE),
    method!(
        id::flow::OBJECT,
        m::flow::CREATE_FLOW,
        Session::create_raw_flow,
        [
            must(x::create_flow::HANDLE, New),
            must(x::create_flow::MATCH_VALUE, In(1)),
            may(x::create_flow::DEST_QP, Obj(K::Qp)),
            may(x::create_flow::DEST_DEVX, Obj(K::DevxObject)),
            must(x::create_flow::MATCHER, Obj(K::Matcher)),
            may(x::create_flow::ARR_FLOW_ACTIONS, In(0)),
            may(x::create_flow::TAG, In(4)),
            may(x::create_flow::ARR_COUNTERS_DEVX, In(4)),
            may(x::create_flow::ARR_COUNTERS_DEVX_OFFSET, In(4)),
            may(x::create_flow::FLAGS, Number),
        ]
    ),
    end!(id::flow::OBJECT, m::flow::DESTROY_FLOW, Flow, x::destroy_flow::HANDLE),
    end!(id::xrcd::OBJECT, id::xrcd::destroy::METHOD, Xrcd, id::xrcd::destroy::HANDLE),
    end!(
        id::rwq_ind_table::OBJECT,
        id::rwq_ind_table::destroy::METHOD,
        RwqTable,
        id::rwq_ind_table::destroy::HANDLE
    ),
    method!(
        id::wq::OBJECT,
        id::wq::create::METHOD,
        Session::create_wq,
        [
            must(id::wq::create::HANDLE, New),
            must(id::wq::create::PD_HANDLE, Obj(K::Pd)),
            must(id::wq::create::CQ_HANDLE, Obj(K::Cq)),
            must(id::wq::create::USER_HANDLE, In(8)),
            must(id::wq::create::TYPE, Number),
            may(id::wq::create::EVENT_FD, Fd),
            must(id::wq::create::MAX_WR, In(4)),
            must(id::wq::create::MAX_SGE, In(4)),
            may(id::wq::create::FLAGS, Number),
            must(id::wq::create::RESP_MAX_WR, Out(4)),
            must(id::wq::create::RESP_MAX_SGE, Out(4)),
            may(id::wq::create::RESP_WQ_NUM, Out(4)),
        ],
        driver
    ),
    method!(
        id::wq::OBJECT,
        id::wq::destroy::METHOD,
        Session::destroy_wq,
        [must(id::wq::destroy::HANDLE, Obj(K::Wq)), must(id::wq::destroy::RESP, Out(4)),]
    ),
    end!(
        id::flow_action::OBJECT,
        id::flow_action::destroy::METHOD,
        FlowAction,
        id::flow_action::destroy::HANDLE
    ),
    method!(
        id::flow_action::OBJECT,
        m::flow_action::CREATE_MODIFY_HEADER,
        Session::create_modify_header,
        [
            must(x::create_modify_header::HANDLE, New),
            must(x::create_modify_header::ACTIONS_PRM, In(8)),
            must(x::create_modify_header::FT_TYPE, Number),
        ]
    ),
    method!(
        id::flow_action::OBJECT,
        m::flow_action::CREATE_PACKET_REFORMAT,
        Session::create_packet_reformat,
        [
            must(x::create_packet_reformat::HANDLE, New),
            must(x::create_packet_reformat::TYPE, Number),
            must(x::create_packet_reformat::FT_TYPE, Number),
            may(x::create_packet_reformat::DATA_BUF, In(1)),
        ]
    ),
    method!(
        id::dm::OBJECT,
        id::dm::alloc::METHOD,
        Session::alloc_dm,
        [
            must(id::dm::alloc::HANDLE, New),
            must(id::dm::alloc::LENGTH, In(8)),
            must(id::dm::alloc::ALIGNMENT, In(4)),
            must(x::alloc_dm::RESP_START_OFFSET, Out(8)),
            must(x::alloc_dm::RESP_PAGE_INDEX, Out(2)),
            may(x::alloc_dm::REQ_TYPE, Number),
        ]
    ),
    end!(id::dm::OBJECT, id::dm::free::METHOD, Dm, id::dm::free::HANDLE),
    method!(
        id::dmabuf::OBJECT,
        id::dmabuf::alloc::METHOD,
        Session::export_dmabuf,
        [must(id::dmabuf::alloc::HANDLE, NewFd), must(id::dmabuf::alloc::PGOFF, In(8)),]
    ),
    method!(
        id::counters::OBJECT,
        id::counters::create::METHOD,
        Session::create_counters,
        [must(id::counters::create::HANDLE, New),]
    ),
    end!(id::counters::OBJECT, id::counters::destroy::METHOD, Counters, id::counters::destroy::HANDLE),
    method!(
        id::counters::OBJECT,
        id::counters::read::METHOD,
        Session::read_counters,
        [
            must(id::counters::read::HANDLE, Obj(K::Counters)),
            must(id::counters::read::BUFF, Out(0)),
            may(id::counters::read::FLAGS, Number),
        ]
    ),
    method!(
        id::async_event::OBJECT,
        id::async_event::alloc::METHOD,
        Session::alloc_async_event,
        [must(id::async_event::alloc::FD_HANDLE, NewFd),]
    ),
    method!(
        o::UAR,
        m::uar::ALLOC,
        Session::alloc_uar,
        [
            must(x::uar_alloc::HANDLE, New),
            must(x::uar_alloc::TYPE, Number),
            must(x::uar_alloc::MMAP_OFFSET, Out(8)),
            must(x::uar_alloc::MMAP_LENGTH, Out(4)),
            must(x::uar_alloc::PAGE_ID, Out(4)),
        ]
    ),
    end!(o::UAR, m::uar::DESTROY, Uar, x::uar_destroy::HANDLE),
    method!(
        o::DEVX,
        m::devx::OTHER,
        Session::devx_other,
        [must(x::devx_other::CMD_IN, In(16)), must(x::devx_other::CMD_OUT, Out(16)),]
    ),
    method!(
        o::DEVX,
        m::devx::QUERY_UAR,
        Session::devx_query_uar,
        [must(x::devx_query_uar::USER_IDX, In(4)), must(x::devx_query_uar::DEV_IDX, Out(4)),]
    ),
    method!(
        o::DEVX,
        m::devx::QUERY_EQN,
        Session::devx_query_eqn,
        [must(x::devx_query_eqn::USER_VEC, In(4)), must(x::devx_query_eqn::DEV_EQN, Out(4)),]
    ),
    method!(
        o::DEVX,
        m::devx::SUBSCRIBE_EVENT,
        Session::devx_subscribe,
        [
            must(x::devx_subscribe_event::FD_HANDLE, Fd),
            may(x::devx_subscribe_event::OBJ_HANDLE, Obj(K::DevxObject)),
            must(x::devx_subscribe_event::TYPE_NUM_LIST, In(2)),
            may(x::devx_subscribe_event::FD_NUM, In(4)),
            may(x::devx_subscribe_event::COOKIE, In(8)),
        ]
    ),
    method!(
        o::DEVX_OBJ,
        m::devx_obj::CREATE,
        Session::devx_create,
        [
            must(x::devx_obj_create::HANDLE, New),
            must(x::devx_obj_create::CMD_IN, In(16)),
            must(x::devx_obj_create::CMD_OUT, Out(16)),
        ]
    ),
    method!(
        o::DEVX_OBJ,
        m::devx_obj::DESTROY,
        Session::devx_destroy,
        [must(x::devx_obj_destroy::HANDLE, Obj(K::DevxObject)),]
    ),
    method!(
        o::DEVX_OBJ,
        m::devx_obj::MODIFY,
        Session::devx_modify,
        [
            must(x::devx_obj_modify::HANDLE, AnyObject),
            must(x::devx_obj_modify::CMD_IN, In(16)),
            must(x::devx_obj_modify::CMD_OUT, Out(16)),
        ]
    ),
    method!(
        o::DEVX_OBJ,
        m::devx_obj::QUERY,
        Session::devx_query,
        [
            must(x::devx_obj_query::HANDLE, AnyObject),
            must(x::devx_obj_query::CMD_IN, In(16)),
            must(x::devx_obj_query::CMD_OUT, Out(16)),
        ]
    ),
    method!(
        o::DEVX_OBJ,
        m::devx_obj::ASYNC_QUERY,
        Session::devx_query_async,
        [
            must(x::devx_obj_query_async::HANDLE, AnyObject),
            must(x::devx_obj_query_async::CMD_IN, In(16)),
            must(x::devx_obj_query_async::FD, Fd),
            must(x::devx_obj_query_async::WR_ID, In(8)),
            must(x::devx_obj_query_async::OUT_LEN, Number),
        ]
    ),
    method!(
        o::DEVX_UMEM,
        m::devx_umem::REG,
        Session::devx_register,
        [
            must(x::devx_umem_reg::HANDLE, New),
            must(x::devx_umem_reg::ADDR, In(8)),
            must(x::devx_umem_reg::LEN, In(8)),
            may(x::devx_umem_reg::ACCESS, Number),
            must(x::devx_umem_reg::OUT_ID, Out(4)),
            may(x::devx_umem_reg::PGSZ_BITMAP, Number),
            may(x::devx_umem_reg::DMABUF_FD, Number),
        ]
    ),
    method!(
        o::DEVX_UMEM,
        m::devx_umem::DEREG,
        Session::devx_deregister,
        [must(x::devx_umem_dereg::HANDLE, Obj(K::DevxUmem)),]
    ),
    method!(
        o::DEVX_ASYNC_CMD_FD,
        m::devx_async_cmd_fd::ALLOC,
        Session::devx_alloc_command_fd,
        [must(x::devx_async_cmd_fd_alloc::HANDLE, NewFd),]
    ),
    method!(
        o::DEVX_ASYNC_EVENT_FD,
        m::devx_async_event_fd::ALLOC,
        Session::devx_alloc_event_fd,
        [
            must(x::devx_async_event_fd_alloc::HANDLE, NewFd),
            must(x::devx_async_event_fd_alloc::FLAGS, Number),
        ]
    ),
    method!(
        o::FLOW_MATCHER,
        m::flow_matcher::CREATE,
        Session::create_matcher,
        [
            must(x::flow_matcher_create::CREATE_HANDLE, New),
            must(x::flow_matcher_create::MATCH_MASK, In(1)),
            must(x::flow_matcher_create::FLOW_TYPE, Element),
            must(x::flow_matcher_create::MATCH_CRITERIA, In(1)),
            may(x::flow_matcher_create::FLOW_FLAGS, Number),
            may(x::flow_matcher_create::FT_TYPE, Number),
        ]
    ),
    end!(o::FLOW_MATCHER, m::flow_matcher::DESTROY, Matcher, x::flow_matcher_destroy::HANDLE),
    lacking!(o::PP, m::pp::ALLOC),
    lacking!(o::VAR, m::var::ALLOC),
    lacking!(o::STEERING_ANCHOR, m::steering_anchor::CREATE),
];
