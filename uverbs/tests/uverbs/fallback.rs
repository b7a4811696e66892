//! Older kernels: what they lack is tried once, the older form is used, and nothing else makes a call go another way.
#![expect(unsafe_code, reason = "contexts and regions of a door that plays kernels")]

use std::fs;
use std::sync::Arc;

use pollux_uverbs::abi::flags::{CqFlags, GidType};
use pollux_uverbs::abi::{id, write};
use pollux_uverbs::cq::{Cq, CqRequest};
use pollux_uverbs::mr::Mr;
use pollux_uverbs::qp::QpRequest;
use pollux_uverbs::{
    Call, Channel, Context, CqHandle, Driver, Errno, MrHandle, QpHandle, Route, RwqIndTableHandle,
    UverbsError, WqHandle,
};

use crate::door::{DRIVER_BYTE, Door, NATIVE, Script, WRITTEN};
use crate::every_command::{CQ, DRIVER_IN, cq_request, every_command, mr_request, qp_request, wq_request};

const CQ_CREATE: (u16, u16) = (id::cq::OBJECT, id::cq::create::METHOD);
const QP_CREATE: (u16, u16) = (id::qp::OBJECT, id::qp::create::METHOD);
const WQ_CREATE: (u16, u16) = (id::wq::OBJECT, id::wq::create::METHOD);
const UAR_ALLOC: (u16, u16) = (0x1008, 0x1000);

/// Opens a door and runs every command; the names of those that failed, with why.
fn failures(script: Script) -> Vec<String> {
    let (_door, context) = Door::open(script);
    every_command(&context)
        .into_iter()
        .filter_map(|(name, shown)| Some(format!("{name}: {}", shown.err()?)))
        .collect()
}

#[test]
fn a_new_kernel_does_all_of_it() {
    assert_eq!(failures(Script::default()), Vec::<String>::new());
}

#[test]
fn without_invoke_write_commands_are_written() {
    let script = Script { no_invoke_write: true, ..Script::default() };
    assert_eq!(failures(script.clone()), Vec::<String>::new());
    let (door, context) = Door::open(script);
    assert_eq!(context.route(), Route::Plain);
    assert_eq!(door.asked(), ["DEVICE/INVOKE_WRITE", "DEVICE/GET_CONTEXT", "ASYNC_EVENT/ALLOC"]);
    context.alloc_pd(Driver::none()).expect("pd");
    context.create_cq(&cq_request(), Driver::none()).expect("cq");
    assert_eq!(door.asked(), ["ALLOC_PD Plain", "CQ/CREATE"]);
}

#[test]
fn linux_5_4_lacks_only_what_has_no_older_form() {
    assert_eq!(
        failures(Script::linux_5_4()),
        [
            "query_gid: DEVICE/QUERY_GID_ENTRY: this kernel is too old for a GID query; sysfs was not told",
            "query_gid_table: DEVICE/QUERY_GID_ENTRY: this kernel is too old for a GID query; sysfs was not told",
            "query_mr: MR/QUERY_MR: EPROTONOSUPPORT (the kernel lacks this method, or an attribute of it that was mandatory); a newer kernel or firmware may have it",
            "export_dmabuf: DMABUF/ALLOC: EPROTONOSUPPORT (the kernel lacks this method, or an attribute of it that was mandatory); a newer kernel or firmware may have it",
        ]
    );
}

#[test]
fn linux_5_4_gives_its_context_and_events_by_command() {
    let (door, context) = Door::open(Script::linux_5_4());
    assert_eq!(door.asked(), ["DEVICE/INVOKE_WRITE", "DEVICE/GET_CONTEXT", "GET_CONTEXT Tunnelled"]);
    assert_eq!(context.comp_vectors(), WRITTEN + 1);
    assert!(context.core_support().is_empty());
    assert_eq!(context.events().next().expect("nothing yet"), None);
    // The method is there; that it knows no event descriptor yet does not matter.
    context.create_cq(&cq_request(), Driver::none()).expect("cq");
    assert_eq!(door.asked(), ["CQ/CREATE"]);
}

#[test]
fn a_context_is_imported_where_the_kernel_can() {
    let door = Door::new(Script::default());
    let channel: Arc<dyn Channel> = Arc::<Door>::clone(&door);
    let extend = |call: &mut Call<'_>| {
        call.answer(0x1000, 72);
    };
    // SAFETY: no device is behind it.
    let (context, call) = unsafe { Context::import(channel, 1, extend) }.expect("imported");
    assert_eq!(door.asked(), ["DEVICE/INVOKE_WRITE", "ASYNC_EVENT/ALLOC", "DEVICE/QUERY_CONTEXT"]);
    assert_eq!(context.comp_vectors(), NATIVE);
    assert_eq!(call.answered(0x1000).expect("the driver's answer").len(), 72);
    let channel: Arc<dyn Channel> = Door::new(Script::linux_5_4());
    // SAFETY: as above.
    let error = unsafe { Context::import(channel, 1, |_| {}) }.map(|_| ()).expect_err("too old");
    assert!(error.says_unsupported() && error.to_string().starts_with("ASYNC_EVENT/ALLOC"), "{error}");
}

#[test]
fn a_context_may_be_used_from_any_thread() {
    fn shared<T: Send + Sync>() {}
    shared::<Context>();
    shared::<pollux_uverbs::KernelFile>();
    shared::<pollux_uverbs::Page>();
}

#[test]
fn a_kernel_without_the_ioctl_is_asked_once() {
    let (door, context) = Door::open(Script { no_ioctl: true, ..Script::default() });
    assert_eq!(door.asked(), ["DEVICE/INVOKE_WRITE", "GET_CONTEXT Plain"]);
    context.create_cq(&cq_request(), Driver::none()).expect("cq");
    context.destroy_cq(CQ).expect("destroyed");
    context.query_port(1).expect("port");
    assert_eq!(door.asked(), ["CREATE_CQ Plain", "DESTROY_CQ Plain", "QUERY_PORT Plain"]);
    assert!(context.lacks(id::cq::OBJECT, id::cq::create::METHOD));
    // What has no older form cannot be had.
    let error = context.free_dm(pollux_uverbs::DmHandle(1)).expect_err("no such method");
    assert_eq!((error.errno(), error.says_unsupported()), (Some(Errno::ENOTTY), true));
}

#[test]
fn a_port_speed_that_is_not_told_is_none() {
    let method = (id::device::OBJECT, id::device::query_port_speed::METHOD);
    let (door, context) = Door::open(Script::default().without(&[method]));
    door.asked();
    for _ in 0..2 {
        assert_eq!(context.query_port_speed(1).expect("no speed"), None);
    }
    assert_eq!(door.asked(), ["DEVICE/QUERY_PORT_SPEED"], "tried once");
    let failing = |errno| Script { failing: [(method, errno)].into(), ..Script::default() };
    let (_door, context) = Door::open(failing(Errno::EOPNOTSUPP));
    assert_eq!(context.query_port_speed(1).expect("a driver that does not tell"), None);
    let (_door, context) = Door::open(failing(Errno::EINVAL));
    assert_eq!(context.query_port_speed(9).expect_err("no such port").errno(), Some(Errno::EINVAL));
    let (_door, context) = Door::open(Script::default());
    let words = [NATIVE + 1, NATIVE + 2];
    let told = u64::from(words[0]) | u64::from(words[1]) << 32;
    assert_eq!(context.query_port_speed(1).expect("a speed"), Some(told));
}

#[test]
fn an_absent_method_is_tried_once() {
    let (door, context) = Door::open(Script::default().without(&[CQ_CREATE, QP_CREATE, WQ_CREATE]));
    door.asked();
    assert!(!context.lacks(CQ_CREATE.0, CQ_CREATE.1));
    for _ in 0..3 {
        context.create_cq(&cq_request(), Driver::none()).expect("cq");
        context.create_qp(&qp_request(), Driver::none()).expect("qp");
        context.create_wq(&wq_request(), Driver::none()).expect("wq");
    }
    assert!(context.lacks(CQ_CREATE.0, CQ_CREATE.1));
    let by_command = ["CREATE_CQ Tunnelled", "CREATE_QP Tunnelled", "EX_CREATE_WQ Tunnelled"];
    let first = ["CQ/CREATE", by_command[0], "QP/CREATE", by_command[1], "WQ/CREATE", by_command[2]];
    assert_eq!(door.asked(), [&first[..], &by_command, &by_command].concat());
    // Its other methods are still used.
    context.destroy_cq(CQ).expect("destroyed");
    assert_eq!(door.asked(), ["CQ/DESTROY"]);
}

#[test]
fn another_error_is_the_answer() {
    for errno in [Errno::EINVAL, Errno::EOPNOTSUPP, Errno::ENOMEM, Errno::EPERM, Errno::ENOSYS] {
        let (door, context) =
            Door::open(Script { failing: [(CQ_CREATE, errno)].into(), ..Script::default() });
        door.asked();
        for _ in 0..2 {
            let error = context.create_cq(&cq_request(), Driver::none()).expect_err("refused");
            assert_eq!(error.errno(), Some(errno));
        }
        assert_eq!(door.asked(), ["CQ/CREATE", "CQ/CREATE"], "{errno:?}");
    }
}

#[test]
fn answers_are_read_from_the_way_they_came() {
    let (_door, context) = Door::open(Script::default());
    let cq = context.create_cq(&cq_request(), Driver::none()).expect("cq");
    assert_eq!(cq, Cq { handle: CqHandle(NATIVE), entries: NATIVE + 6 });
    // SAFETY: no device is behind it.
    let mr = unsafe { context.reg_mr(&mr_request(), Driver::none()) }.expect("mr");
    assert_eq!(mr, Mr { handle: MrHandle(NATIVE), lkey: NATIVE + 9, rkey: NATIVE + 10 });
    let qp = context.create_qp(&qp_request(), Driver::none()).expect("qp");
    assert_eq!((qp.handle, qp.qpn, qp.cap.max_inline_data), (QpHandle(NATIVE), NATIVE + 14, NATIVE + 13 + 4));
    let wq = context.create_wq(&wq_request(), Driver::none()).expect("wq");
    assert_eq!((wq.handle, wq.wqn, wq.max_wr), (WqHandle(NATIVE), NATIVE + 11, NATIVE + 9));
    assert_eq!(context.destroy_wq(wq.handle).expect("destroyed"), NATIVE + 1);

    let (_door, context) = Door::open(Script { no_ioctl: true, ..Script::default() });
    let cq = context.create_cq(&cq_request(), Driver::none()).expect("cq");
    assert_eq!(cq, Cq { handle: CqHandle(WRITTEN), entries: WRITTEN + 1 });
    // SAFETY: no device is behind it.
    let mr = unsafe { context.reg_mr(&mr_request(), Driver::none()) }.expect("mr");
    assert_eq!(mr, Mr { handle: MrHandle(WRITTEN), lkey: WRITTEN + 1, rkey: WRITTEN + 2 });
    let qp = context.create_qp(&qp_request(), Driver::none()).expect("qp");
    assert_eq!((qp.handle, qp.qpn, qp.cap.max_inline_data), (QpHandle(WRITTEN), WRITTEN + 1, WRITTEN + 6));
    let wq = context.create_wq(&wq_request(), Driver::none()).expect("wq");
    assert_eq!((wq.handle, wq.wqn, wq.max_wr), (WqHandle(WRITTEN + 2), WRITTEN + 5, WRITTEN + 3));
    assert_eq!(context.destroy_wq(wq.handle).expect("destroyed"), WRITTEN + 2);
    let table = context.create_rwq_ind_table(&[wq.handle; 2], Driver::none()).expect("table");
    assert_eq!((table.handle, table.number), (RwqIndTableHandle(WRITTEN + 2), WRITTEN + 3));
}

#[test]
fn the_drivers_part_travels_both_ways_and_survives_a_refusal() {
    for script in [
        Script::default(),
        Script::default().without(&[CQ_CREATE]),
        Script { no_ioctl: true, ..Script::default() },
    ] {
        let (door, context) = Door::open(script);
        let mut out = [0; 16];
        context.create_cq(&cq_request(), Driver::new(&DRIVER_IN, &mut out)).expect("cq");
        assert_eq!(door.driver_bytes(), [DRIVER_IN.to_vec()]);
        assert_eq!(out, [DRIVER_BYTE; 16]);
    }
}

#[test]
fn options_need_the_extended_command() {
    let (door, context) = Door::open(Script { no_ioctl: true, ..Script::default() });
    door.asked();
    let request = CqRequest { flags: CqFlags::TIMESTAMP_COMPLETION, ..cq_request() };
    context.create_cq(&request, Driver::none()).expect("cq");
    context
        .create_qp(&QpRequest { ind_table: Some(RwqIndTableHandle(1)), ..qp_request() }, Driver::none())
        .expect("qp");
    context.create_qp(&QpRequest { sq_sig_all: true, ..qp_request() }, Driver::none()).expect("qp");
    assert_eq!(door.asked(), ["EX_CREATE_CQ Plain", "EX_CREATE_QP Plain", "CREATE_QP Plain"]);
}

#[test]
fn an_older_device_query_is_used_where_the_extended_is_missing() {
    let failing_writes = [(write::EX_QUERY_DEVICE, Errno::EOPNOTSUPP)].into();
    let (door, context) = Door::open(Script { failing_writes, ..Script::default() });
    door.asked();
    let answer = context.query_device(Driver::none()).expect("answer");
    assert_eq!(door.asked(), ["EX_QUERY_DEVICE Tunnelled", "QUERY_DEVICE Tunnelled"]);
    assert_eq!((answer.response_length, answer.raw_packet_caps), (176, 0));
    assert_ne!(answer.base.max_qp, 0);
}

#[test]
fn a_drivers_method_that_is_absent_says_so_by_its_name() {
    let (_door, context) = Door::open(Script::default().without(&[UAR_ALLOC]));
    let mut call = Call::named(UAR_ALLOC.0, UAR_ALLOC.1, "UAR/OBJ_ALLOC");
    call.new_object(0x1000);
    let error = context.call(&mut call).expect_err("absent");
    assert!(error.says_unsupported());
    assert!(error.to_string().starts_with("UAR/OBJ_ALLOC: EPROTONOSUPPORT"), "{error}");
}

#[test]
fn gids_come_from_sysfs_where_the_method_is_absent() {
    let root = tempfile::tempdir().expect("folder");
    let device = root.path().join("class/infiniband/mlx5_0");
    let files = [
        ("gids/0", "fe80:0000:0000:0000:0242:acff:fe11:0002"),
        ("gids/1", "fe80:0000:0000:0000:0242:acff:fe11:0002"),
        ("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"),
        ("gids/3", "not a gid"),
        ("gid_attrs/types/0", "IB/RoCE v1"),
        ("gid_attrs/types/1", "RoCE v2"),
        ("gid_attrs/ndevs/1", "eth0"),
    ];
    for (name, text) in files {
        let path = device.join("ports/1").join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        fs::write(path, format!("{text}\n")).expect("file");
    }
    let net = root.path().join("class/net/eth0");
    fs::create_dir_all(&net).expect("folder");
    fs::write(net.join("ifindex"), "5\n").expect("file");

    let (_door, context) = Door::open(Script::linux_5_4());
    let context = context.with_sysfs(device);
    let first = context.query_gid(1, 0).expect("read").expect("there");
    assert_eq!((first.gid[..2].to_vec(), first.gid[15], first.ifindex), (vec![0xfe, 0x80], 2, None));
    let second = context.query_gid(1, 1).expect("read").expect("there");
    assert_eq!((second.kind, second.ifindex, second.index), (GidType::ROCE_V2, Some(5), 1));
    assert_eq!(context.query_gid(1, 2).expect("read"), None);
    let error = context.query_gid(1, 3).expect_err("no GID");
    assert!(matches!(error, UverbsError::Sysfs { .. }), "{error}");
    assert_eq!(context.query_gid(1, 9).expect_err("no entry").errno(), Some(Errno::EINVAL));
}

#[test]
fn what_the_abi_cannot_carry_is_refused_before_it_is_asked() {
    let (door, context) = Door::open(Script::default());
    door.asked();
    let long = vec![0; 65536];
    let error = context.create_cq(&cq_request(), Driver::new(&long, &mut [])).expect_err("too long");
    assert_eq!(error.to_string(), "CQ/CREATE: UHW_IN is 65536, at most 65535 can be said");
    let error = context.alloc_pd(Driver::new(&long, &mut [])).expect_err("too long");
    assert_eq!(error.to_string(), "ALLOC_PD: driver's part is 65536, at most 65535 can be said");
    let error = context.create_rwq_ind_table(&[WqHandle(1); 3], Driver::none()).expect_err("no power of two");
    assert_eq!(
        error.to_string(),
        "EX_CREATE_RWQ_IND_TBL: count of work queues is 0x3, a power of two expected"
    );
    context.create_rwq_ind_table(&[], Driver::none()).expect_err("no power of two");
    let error = context.create_rwq_ind_table(&[WqHandle(1); 1 << 14], Driver::none()).expect_err("too many");
    assert_eq!(
        error.to_string(),
        "EX_CREATE_RWQ_IND_TBL: count of work queues is 16384, at most 8192 can be said"
    );
    assert_eq!(door.asked(), Vec::<String>::new());
}
