//! Every command of a context, once each, with a name and a line that shows its result.
#![expect(unsafe_code, reason = "registers memory with a door that plays kernels")]

use pollux_uverbs::abi::flags::{
    Access, Advice, CqFlags, FlowFlags, FlowType, QpFlags, QpMask, QpType, WqFlags, WqState,
};
use pollux_uverbs::abi::ioctl_verbs::Sge;
use pollux_uverbs::abi::memory::AhAttr;
use pollux_uverbs::abi::queue_pair::ModifyQp;
use pollux_uverbs::cq::CqRequest;
use pollux_uverbs::flow::{FlowRule, FlowSpec};
use pollux_uverbs::mr::{MrChange, MrRequest};
use pollux_uverbs::mw::MwType;
use pollux_uverbs::qp::{QpHome, QpRequest};
use pollux_uverbs::srq::{SrqKind, SrqRequest};
use pollux_uverbs::wq::{WqChange, WqRequest};
use pollux_uverbs::xrcd::XrcdRequest;
use pollux_uverbs::{
    AhHandle, Call, Context, CountersHandle, CqHandle, DmHandle, Driver, FlowHandle, MrHandle, MwHandle,
    PdHandle, Protection, QpHandle, RwqIndTableHandle, SrqHandle, UverbsError, WqHandle, XrcdHandle,
};

pub(crate) const PD: PdHandle = PdHandle(1);
pub(crate) const CQ: CqHandle = CqHandle(2);

/// What the driver says in each command that it takes part in.
pub(crate) const DRIVER_IN: [u8; 12] = *b"driver bytes";

type Shown = Result<String, UverbsError>;

fn show<T: std::fmt::Debug>(result: Result<T, UverbsError>) -> Shown {
    result.map(|value| format!("{value:?}"))
}

pub(crate) fn cq_request() -> CqRequest<'static> {
    CqRequest { entries: 64, user_handle: 7, channel: None, vector: 0, flags: CqFlags::empty() }
}

pub(crate) fn qp_request() -> QpRequest {
    QpRequest { send_cq: Some(CQ), recv_cq: Some(CQ), ..QpRequest::new(QpType::RAW_PACKET, QpHome::Pd(PD)) }
}

pub(crate) fn wq_request() -> WqRequest {
    WqRequest { pd: PD, cq: CQ, max_wr: 64, max_sge: 1, flags: WqFlags::empty(), user_handle: 7 }
}

pub(crate) fn mr_request() -> MrRequest {
    MrRequest { pd: PD, start: 0x7000_0000, length: 4096, hca_va: 0x1000, access: Access::LOCAL_WRITE }
}

pub(crate) fn srq_request(kind: SrqKind) -> SrqRequest {
    SrqRequest { pd: PD, kind, max_wr: 64, max_sge: 1, limit: 0, user_handle: 7 }
}

/// All of them.
pub(crate) fn every_command(context: &Context) -> Vec<(&'static str, Shown)> {
    let mut out = [0; 16];
    let mut shown: Vec<(&'static str, Shown)> = Vec::new();
    macro_rules! with_driver {
        ($($name:literal => |$driver:ident| $call:expr;)*) => { $({
            let $driver = Driver::new(&DRIVER_IN, &mut out);
            shown.push(($name, show($call)));
        })* };
    }
    with_driver! {
        "query_device" => |driver| context.query_device(driver).map(|answer| answer.base.max_qp);
        "alloc_pd" => |driver| context.alloc_pd(driver);
        // SAFETY: no device is behind it.
        "reg_mr, driver" => |driver| unsafe { context.reg_mr(&mr_request(), driver) };
        "rereg_mr" => |driver| {
            let change = MrChange { access: Some(Access::empty()), pd: Some(PD), translation: Some((0, 1, 2)) };
            // SAFETY: as above.
            unsafe { context.rereg_mr(MrHandle(3), &change, driver) }
        };
        "alloc_mw" => |driver| context.alloc_mw(PD, MwType::Type2, driver);
        "open_xrcd" => |driver| context.open_xrcd(&XrcdRequest::default(), driver);
        "create_cq" => |driver| context.create_cq(&cq_request(), driver);
        "create_cq, flags" => |driver| {
            context.create_cq(&CqRequest { flags: CqFlags::TIMESTAMP_COMPLETION, ..cq_request() }, driver)
        };
        "resize_cq" => |driver| context.resize_cq(CQ, 128, driver);
        "create_qp" => |driver| context.create_qp(&qp_request(), driver);
        "create_qp, flags" => |driver| {
            context.create_qp(&QpRequest { flags: QpFlags::SCATTER_FCS, source_qpn: Some(1), ..qp_request() }, driver)
        };
        "create_qp, RSS" => |driver| {
            let plain = QpRequest::new(QpType::RAW_PACKET, QpHome::Pd(PD));
            context.create_qp(&QpRequest { ind_table: Some(RwqIndTableHandle(4)), ..plain }, driver)
        };
        "create_qp, XRC" => |driver| {
            context.create_qp(&QpRequest::new(QpType::XRC_TGT, QpHome::Xrcd(XrcdHandle(5))), driver)
        };
        "open_qp" => |driver| context.open_qp(XrcdHandle(5), 6, QpType::XRC_TGT, 7, driver);
        "modify_qp" => |driver| context.modify_qp(QpHandle(8), QpMask::STATE, &ModifyQp::default(), driver);
        "modify_qp, extended" => |driver| {
            context.modify_qp_extended(QpHandle(8), QpMask::STATE, &ModifyQp::default(), Some(1000), driver)
        };
        "create_wq" => |driver| context.create_wq(&wq_request(), driver);
        "modify_wq" => |driver| {
            let change = WqChange { state: Some(WqState::RDY), current: Some(WqState::RESET), flags: None };
            context.modify_wq(WqHandle(9), &change, driver)
        };
        "create_rwq_ind_table" => |driver| context.create_rwq_ind_table(&[WqHandle(9); 4], driver);
        "create_srq" => |driver| context.create_srq(&srq_request(SrqKind::Basic), driver);
        "create_srq, XRC" => |driver| {
            context.create_srq(&srq_request(SrqKind::Xrc { xrcd: XrcdHandle(5), cq: CQ }), driver)
        };
        "create_srq, tags" => |driver| {
            context.create_srq(&srq_request(SrqKind::TagMatching { cq: CQ, max_tags: 64 }), driver)
        };
        "modify_srq" => |driver| context.modify_srq(SrqHandle(10), None, Some(3), driver);
        "create_ah" => |driver| context.create_ah(PD, &AhAttr::default(), driver);
        "create_flow" => |driver| {
            let rule = FlowRule {
                qp: QpHandle(8), port: 1, priority: 0, kind: FlowType::NORMAL, flags: FlowFlags::empty(),
                specs: &[FlowSpec::Drop],
            };
            context.create_flow(&rule, driver)
        };
    }
    let mut counters = [0; 4];
    let piece = Sge { addr: 0, length: 4096, lkey: 1 };
    shown.extend([
        ("query_port", show(context.query_port(1).map(|port| port.legacy_resp.max_msg_sz))),
        ("query_port_speed", show(context.query_port_speed(1))),
        ("query_gid", show(context.query_gid(1, 0))),
        ("query_gid_table", show(context.query_gid_table())),
        // SAFETY: as above.
        ("reg_mr", show(unsafe { context.reg_mr(&mr_request(), Driver::none()) })),
        ("reg_dm_mr", show(context.reg_dm_mr(PD, DmHandle(11), 0, 64, Access::LOCAL_WRITE))),
        ("query_mr", show(context.query_mr(MrHandle(3)))),
        ("advise_mr", show(context.advise_mr(PD, Advice::PREFETCH, true, &[piece]))),
        ("create_comp_channel", context.create_comp_channel().map(|_| "a channel".into())),
        ("moderate_cq", show(context.moderate_cq(CQ, 16, 100))),
        ("req_notify_cq", show(context.req_notify_cq(CQ, false))),
        ("query_qp", show(context.query_qp(QpHandle(8), QpMask::STATE).map(|answer| answer.max_send_wr))),
        ("query_srq", show(context.query_srq(SrqHandle(10)).map(|answer| answer.max_wr))),
        ("attach_mcast", show(context.attach_mcast(QpHandle(8), [0xff; 16], 0))),
        ("detach_mcast", show(context.detach_mcast(QpHandle(8), [0xff; 16], 0))),
        ("alloc_dm", show(context.alloc_dm(64, 0, |_| {}).map(|(dm, _)| dm))),
        ("export_dmabuf", show(context.export_dmabuf(4096).map(|_| "a dma-buf"))),
        ("free_dm", show(context.free_dm(DmHandle(11)))),
        ("create_counters", show(context.create_counters(|_| {}))),
        ("read_counters", show(context.read_counters(CountersHandle(12), false, &mut counters))),
        ("destroy_counters", show(context.destroy_counters(CountersHandle(12)))),
        ("destroy_flow", show(context.destroy_flow(FlowHandle(13)))),
        ("destroy_ah", show(context.destroy_ah(AhHandle(14)))),
        ("destroy_qp", show(context.destroy_qp(QpHandle(8)))),
        ("destroy_rwq_ind_table", show(context.destroy_rwq_ind_table(RwqIndTableHandle(4)))),
        ("destroy_wq", show(context.destroy_wq(WqHandle(9)))),
        ("destroy_srq", show(context.destroy_srq(SrqHandle(10)))),
        ("destroy_cq", show(context.destroy_cq(CQ))),
        ("dealloc_mw", show(context.dealloc_mw(MwHandle(15)))),
        ("dereg_mr", show(context.dereg_mr(MrHandle(3)))),
        ("close_xrcd", show(context.close_xrcd(XrcdHandle(5)))),
        ("dealloc_pd", show(context.dealloc_pd(PD))),
        ("a driver's method", {
            let mut call = Call::named(0x1008, 0x1000, "UAR/OBJ_ALLOC");
            call.new_object(0x1000).u64(0x1001, 0).answer(0x1002, 8).answer(0x1003, 4).answer(0x1004, 4);
            show(context.call(&mut call).and_then(|()| call.get::<u64>(0x1002)))
        }),
        ("map", show(context.map(0x10_0000, 4096, Protection::Write).map(|page| page.bytes()))),
        ("events", show(context.events().next())),
    ]);
    shown
}
