//! Our layouts and numbers against what a C compiler made of the kernel's headers: `golden/layout.txt`, printed by
//! `golden/layout.c`; its first line names the package and its version.

use std::collections::{BTreeMap, BTreeSet};

use pollux_uverbs::abi::flags::{Access, CoreSupport, GidType, QpFlags, QpType, WqFlags};
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT, driver};
use pollux_uverbs::abi::{
    Described, connection, device, flow, frame, id, ioctl_verbs, memory, queue, queue_pair, write,
};
use pollux_uverbs::discovery;

const GOLDEN: &str = include_str!("../../golden/layout.txt");

/// Lines of one kind, split.
fn golden(kind: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    GOLDEN.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(move |words| words[0] == kind).map(
        |mut words| {
            words.remove(0);
            words
        },
    )
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Size of a struct, then offset and size of each field.
type Layouts = BTreeMap<&'static str, (usize, BTreeMap<&'static str, (usize, usize)>)>;

fn ours() -> Layouts {
    let mut all = Layouts::new();
    macro_rules! layouts {
        ($($module:ident: $($name:ident)*;)*) => { $($(
            let fields = $module::$name::FIELDS.iter().map(|(field, offset, size)| (*field, (*offset, *size)));
            all.insert($module::$name::NAME, ($module::$name::BYTES, fields.collect()));
        )*)* };
    }
    layouts! {
        frame: IoctlHeader IoctlAttribute WriteHeader ExtendedHeader;
        device: GetContext GetContextResp QueryDevice QueryDeviceResp ExQueryDevice OdpCaps RssCaps TmCaps CqModerationCaps
            ExQueryDeviceResp QueryPort QueryPortResp AsyncEventDesc CompEventDesc ClockInfo;
        memory: AllocPd AllocPdResp DeallocPd OpenXrcd OpenXrcdResp CloseXrcd RegMr RegMrResp ReregMr ReregMrResp DeregMr
            AllocMw AllocMwResp DeallocMw GlobalRoute AhAttr CreateAh CreateAhResp DestroyAh AttachMcast;
        queue: CreateCompChannel CreateCompChannelResp CreateCq ExCreateCq CreateCqResp ExCreateCqResp ResizeCq ResizeCqResp
            ReqNotifyCq DestroyCq DestroyCqResp ExModifyCq CreateSrq CreateXsrq CreateSrqResp ModifySrq QuerySrq QuerySrqResp
            DestroySrq DestroySrqResp ExCreateWq ExCreateWqResp ExDestroyWq ExDestroyWqResp ExModifyWq ExCreateRwqIndTable
            ExCreateRwqIndTableResp ExDestroyRwqIndTable;
        queue_pair: QpDest CreateQp ExCreateQp OpenQp CreateQpResp ExCreateQpResp QpCap PostSend PostSendResp QueryQp QueryQpResp ModifyQp ExModifyQp
            ExModifyQpResp DestroyQp DestroyQpResp;
        connection: Head CreateId CreateIdResp DestroyId DestroyIdResp Bind ResolveAddr ResolveRoute Query QueryAddrResp ConnParam UdParam Ece Connect Listen Accept Reject Disconnect InitQpAttr QpAttr GetEvent EventResp SetOption MigrateId
            MigrateResp JoinMcast QueryPathResp PathData BindIp ResolveIp UserPath QueryRouteResp JoinIpMcast;
        ioctl_verbs: QueryPortRespEx GidEntry Sge;
        flow: EthFilter EthSpec Ipv4Filter Ipv4Spec Ipv6Filter Ipv6Spec TcpUdpFilter TcpUdpSpec TunnelSpec EspFilter EspSpec
            GreFilter GreSpec MplsSpec TagSpec DropSpec
            CountSpec FlowAttr CreateFlow CreateFlowResp DestroyFlow;
    }
    all
}

/// Younger than the package: Linux has them since, as rdma-core's copy of its headers shows.
const YOUNGER_FIELDS: &[(&str, &str)] =
    &[("ib_uverbs_query_port_resp_ex", "reserved"), ("ib_uverbs_query_port_resp_ex", "active_speed_ex")];
const YOUNGER_STRUCTS: &[&str] = &["ib_uverbs_clock_info"];

#[test]
fn layouts_are_those_of_the_kernels_headers() {
    let mut theirs = Layouts::new();
    for words in golden("struct") {
        theirs.insert(words[0], (number(words[1]), BTreeMap::new()));
    }
    for words in golden("field") {
        let (name, field) = words[0].split_once('.').expect("NAME.FIELD");
        let fields = &mut theirs.get_mut(name).expect("its struct before it").1;
        fields.insert(field, (number(words[1]), number(words[2])));
    }
    let mut ours = ours();
    for name in YOUNGER_STRUCTS {
        assert!(ours.remove(name).is_some() && !theirs.contains_key(name), "{name}");
    }
    for (name, field) in YOUNGER_FIELDS {
        assert!(ours.get_mut(name).expect("declared").1.remove(field).is_some(), "{name}.{field}");
    }
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (name, (size, fields)) in &ours {
        assert_eq!((size, fields), (&theirs[name].0, &theirs[name].1), "{name}");
    }
    assert!(ours.len() > 90, "{} structs", ours.len());
}

/// Methods and attributes that are younger than the package.
const YOUNGER: &[&str] = &[
    "DEVICE/GET_CONTEXT FD_ARR",
    "DEVICE/QUERY_PORT_SPEED",
    "DEVICE/QUERY_PORT_SPEED PORT_NUM",
    "DEVICE/QUERY_PORT_SPEED RESP",
    "DMABUF/ALLOC",
    "DMABUF/ALLOC HANDLE",
    "DMABUF/ALLOC PGOFF",
    "CQ/CREATE BUFFER_VA",
    "CQ/CREATE BUFFER_LENGTH",
    "CQ/CREATE BUFFER_FD",
    "CQ/CREATE BUFFER_OFFSET",
    "CQ/CREATE BUF_UMEM",
    "QP/CREATE BUF_UMEM",
    "QP/CREATE RQ_BUF_UMEM",
    "QP/CREATE SQ_BUF_UMEM",
    "MR/REG_MR",
    "MR/REG_MR HANDLE",
    "MR/REG_MR PD_HANDLE",
    "MR/REG_MR DMA_HANDLE",
    "MR/REG_MR IOVA",
    "MR/REG_MR ADDR",
    "MR/REG_MR LENGTH",
    "MR/REG_MR ACCESS_FLAGS",
    "MR/REG_MR FD",
    "MR/REG_MR FD_OFFSET",
    "MR/REG_MR RESP_LKEY",
    "MR/REG_MR RESP_RKEY",
];

#[test]
fn methods_and_attributes_have_the_kernels_numbers() {
    let mut theirs = BTreeSet::new();
    let mut names = BTreeMap::new();
    for words in golden("method") {
        let (object, method): (u16, u16) = (number(words[0]), number(words[1]));
        names.insert((object, method), words[2]);
        theirs.insert((words[2].to_owned(), vec![object, method]));
    }
    for words in golden("attribute") {
        let (object, method): (u16, u16) = (number(words[0]), number(words[1]));
        theirs.insert((
            format!("{} {}", names[&(object, method)], words[3]),
            vec![object, method, number(words[2])],
        ));
    }
    let mut ours = BTreeSet::new();
    for (object, method) in (0..64).flat_map(|object| (0..32).map(move |method| (object, method))) {
        let Some(name) = id::method_name(object, method) else { continue };
        ours.insert((name.to_owned(), vec![object, method]));
        for attribute in 0..64 {
            if let Some(attribute_name) = id::attribute_name(object, method, attribute) {
                ours.insert((format!("{name} {attribute_name}"), vec![object, method, attribute]));
            }
        }
    }
    let younger: BTreeSet<_> = ours.difference(&theirs).map(|(name, _)| name.as_str()).collect();
    assert_eq!(younger, YOUNGER.iter().copied().collect());
    assert_eq!(theirs.difference(&ours).collect::<Vec<_>>(), Vec::<&(String, Vec<u16>)>::new());
    assert!(theirs.len() > 140, "{} numbers", theirs.len());
}

#[test]
fn write_commands_have_the_kernels_numbers() {
    let mut count = 0;
    for words in golden("command") {
        assert_eq!(write::name(number(words[0])), Some(words[1]));
        count += 1;
    }
    let ours = (0..64).filter(|number| write::name(*number).is_some()).count()
        + (0..64).filter(|number| write::name(number | write::EXTENDED).is_some()).count();
    assert_eq!(count, ours);
}

#[test]
fn values_are_the_kernels() {
    use connection::command;
    let ours: BTreeMap<&str, u64> = [
        ("RDMA_VERBS_IOCTL", u64::from(frame::RDMA_VERBS_IOCTL)),
        ("UVERBS_ATTR_F_MANDATORY", u64::from(frame::MANDATORY)),
        ("UVERBS_ATTR_F_VALID_OUTPUT", u64::from(frame::VALID_OUTPUT)),
        ("UVERBS_ATTR_UHW_IN", u64::from(UHW_IN)),
        ("UVERBS_ATTR_UHW_OUT", u64::from(UHW_OUT)),
        ("RDMA_DRIVER_MLX5", u64::from(driver::MLX5)),
        ("RDMA_DRIVER_RXE", u64::from(driver::RXE)),
        ("IB_USER_VERBS_ABI_VERSION", u64::from(discovery::ABI_VERSION)),
        ("IB_USER_VERBS_MAX_LOG_IND_TBL_SIZE", u64::from(pollux_uverbs::wq::LOG_IND_TABLE_MAX)),
        ("IB_UVERBS_ACCESS_RELAXED_ORDERING", u64::from(Access::RELAXED_ORDERING.bits())),
        ("IB_UVERBS_ACCESS_ZERO_BASED", u64::from(Access::ZERO_BASED.bits())),
        ("IB_UVERBS_QPT_RAW_PACKET", u64::from(QpType::RAW_PACKET.0)),
        ("IB_UVERBS_QPT_XRC_TGT", u64::from(QpType::XRC_TGT.0)),
        ("IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING", u64::from(WqFlags::PCI_WRITE_END_PADDING.bits())),
        ("IB_UVERBS_QP_CREATE_SQ_SIG_ALL", u64::from(QpFlags::SQ_SIG_ALL.bits())),
        ("IB_UVERBS_GID_TYPE_ROCE_V2", u64::from(GidType::ROCE_V2.0)),
        ("IB_UVERBS_CREATE_QP_MASK_IND_TABLE", 1),
        ("IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS", CoreSupport::OPTIONAL_MR_ACCESS.bits()),
        ("RDMA_USER_CM_ABI_VERSION", connection::ABI_VERSION.into()),
        ("RDMA_USER_CM_CMD_CREATE_ID", command::CREATE_ID.into()),
        ("RDMA_USER_CM_CMD_DESTROY_ID", command::DESTROY_ID.into()),
        ("RDMA_USER_CM_CMD_RESOLVE_ROUTE", command::RESOLVE_ROUTE.into()),
        ("RDMA_USER_CM_CMD_CONNECT", command::CONNECT.into()),
        ("RDMA_USER_CM_CMD_LISTEN", command::LISTEN.into()),
        ("RDMA_USER_CM_CMD_ACCEPT", command::ACCEPT.into()),
        ("RDMA_USER_CM_CMD_REJECT", command::REJECT.into()),
        ("RDMA_USER_CM_CMD_DISCONNECT", command::DISCONNECT.into()),
        ("RDMA_USER_CM_CMD_INIT_QP_ATTR", command::INIT_QP_ATTR.into()),
        ("RDMA_USER_CM_CMD_GET_EVENT", command::GET_EVENT.into()),
        ("RDMA_USER_CM_CMD_SET_OPTION", command::SET_OPTION.into()),
        ("RDMA_USER_CM_CMD_LEAVE_MCAST", command::LEAVE_MCAST.into()),
        ("RDMA_USER_CM_CMD_JOIN_MCAST", command::JOIN_MCAST.into()),
        ("RDMA_MC_JOIN_FLAG_FULLMEMBER", connection::join::FULLMEMBER.into()),
        ("RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER", connection::join::SENDONLY_FULLMEMBER.into()),
        ("RDMA_USER_CM_CMD_MIGRATE_ID", command::MIGRATE_ID.into()),
        ("RDMA_USER_CM_CMD_QUERY", command::QUERY.into()),
        ("RDMA_USER_CM_CMD_BIND", command::BIND.into()),
        ("RDMA_USER_CM_CMD_RESOLVE_ADDR", command::RESOLVE_ADDR.into()),
        ("RDMA_MAX_PRIVATE_DATA", connection::PRIVATE_BYTES as u64),
        ("RDMA_PS_TCP", connection::space::TCP.into()),
        ("RDMA_PS_UDP", connection::space::UDP.into()),
        ("RDMA_OPTION_ID", connection::option::LEVEL_ID.into()),
        ("RDMA_OPTION_ID_TOS", connection::option::TOS.into()),
        ("RDMA_OPTION_ID_REUSEADDR", connection::option::REUSEADDR.into()),
        ("RDMA_OPTION_ID_ACK_TIMEOUT", connection::option::ACK_TIMEOUT.into()),
        ("RDMA_USER_CM_QUERY_ADDR", connection::QUERY_ADDR.into()),
        ("RDMA_USER_CM_QUERY_PATH", connection::QUERY_PATH.into()),
        ("RDMA_USER_CM_QUERY_GID", connection::QUERY_GID.into()),
        ("RDMA_PS_IB", connection::space::IB.into()),
    ]
    .into();
    let theirs: BTreeMap<&str, u64> = golden("value").map(|words| (words[0], number(words[1]))).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn the_golden_file_names_its_source() {
    let first = GOLDEN.lines().next().expect("a first line");
    assert!(first.starts_with("# Printed by uverbs/golden/layout.c: gcc "), "{first}");
    assert!(first.contains(", linux-libc-dev "), "{first}");
}
