//! mlx5_ib and rdma-core's tools on two functions.

use std::path::Path;

use pollux_mlx5_abi::kernel::context::{ContextAnswer, ContextRequest, context_flag, library};
use pollux_mlx5_abi::kernel::device::DeviceAnswer;
use pollux_uverbs::abi::object::driver;
use pollux_uverbs::trace::survey;
use zerocopy::IntoBytes;

use crate::bed::{
    Drivers, FUNCTIONS, MACS, Pair, here, ibdev, is_recorded_kernel, keep, read, recording, run,
};

/// What Linux 6.12 answered when this was written; the in-process door is held against the same lines.
const RECORDED: &str = include_str!("../../../mlx5-kernel/tests/golden/linux-6.12.txt");

#[test]
fn rdma_devices_are_sane() {
    if !here() {
        return;
    }
    let pair = Pair::on(Drivers::rdma());
    for function in FUNCTIONS {
        let device = ibdev(function);
        let link = run(&format!("rdma link show {device}/1"));
        assert!(link.contains("state ACTIVE") && link.contains("physical_state LINK_UP"), "{link}");
        let all = run(&format!("ibv_devinfo -v -d {device}"));
        for (name, wanted) in [
            ("transport", "InfiniBand (0)"),
            ("vendor_id", "0x02c9"),
            ("vendor_part_id", "4125"),
            ("phys_port_cnt", "1"),
            ("link_layer", "Ethernet"),
            ("state", "PORT_ACTIVE (4)"),
            ("active_mtu", "1024 (3)"),
        ] {
            assert_eq!(value(&all, name), wanted, "{name} in {all}");
        }
        for name in ["max_qp", "max_cq", "max_mr", "max_pd", "max_sge", "max_cqe", "num_comp_vectors"] {
            let number: u64 = value(&all, name).parse().unwrap_or(0);
            assert!(number > 0, "{name} in {all}");
        }
        assert!(all.contains("GID[  0]") && all.contains("RoCE v2"), "{all}");
        assert!(value(&all, "fw_ver").starts_with("22."), "{all}");
    }
    // The address as an EUI-64, whose second bit says that it is the world's.
    let (first, rest) = MACS[0].split_once(':').expect("an address");
    let rest = rest.replace(':', "");
    let first = u8::from_str_radix(first, 16).expect("a byte") ^ 2;
    let node = read(format!("/sys/class/infiniband/{}/node_guid", ibdev(FUNCTIONS[0]))).replace(':', "");
    assert_eq!(node, format!("{first:02x}{}fffe{}", &rest[..4], &rest[4..]));
    drop(pair);
}

#[test]
fn ten_loads_leave_nothing() {
    if !here() {
        return;
    }
    for _ in 0..10 {
        let drivers = Drivers::rdma();
        ibdev(FUNCTIONS[0]);
        drivers.unload();
        assert!(!Path::new("/sys/module/mlx5_ib").exists() && !Path::new("/sys/module/mlx5_core").exists());
    }
}

fn value<'a>(text: &'a str, name: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {name} in {text}"))
        .trim()
}

#[test]
fn the_kernel_answers_as_recorded() {
    if !here() {
        return;
    }
    let pair = Pair::on(Drivers::rdma());
    let device = pollux_uverbs::discovery::find(Path::new("/"), FUNCTIONS[0]).expect("a device");
    let request = ContextRequest {
        total_num_bfregs: 16,
        num_low_latency_bfregs: 4,
        flags: context_flag::DEVX,
        max_cqe_version: 1,
        lib_caps: library::UAR_4K | library::DYN_UAR,
        ..ContextRequest::default()
    };
    let sizes = (size_of::<ContextAnswer>(), size_of::<DeviceAnswer>());
    let channel = device.open().expect("a context's file");
    let said = survey(channel, driver::MLX5, request.as_bytes(), sizes.0, sizes.1).expect("answers");
    // Linux tries write combining for 100 ms when it loads (`mlx5_wc_support_get`); a guest without a processor of its own may
    // not be done by then, and the size of BlueFlame's buffer, the second word of the answer, is 0.
    let said = said.replacen("0x1001=0040000000000000", "0x1001=0040000000020000", 1);
    if recording() {
        keep("linux-6.12.txt", &said);
        return;
    }
    // Another kernel may answer more, or otherwise; what works on the one works on the other.
    let (said, recorded) = if is_recorded_kernel() {
        (said, RECORDED.to_owned())
    } else {
        (outcomes(&said), outcomes(RECORDED))
    };
    assert_eq!(said, recorded, "this is the record of another kernel or another model");
    drop(pair);
}

/// What was asked, and whether it was done.
fn outcomes(calls: &str) -> String {
    let short = |line: &str| {
        let (asked, answered) = line.split_once(" -> ").unwrap_or((line, ""));
        format!("{asked} -> {}\n", answered.split(' ').next().unwrap_or_default())
    };
    calls.lines().map(short).collect()
}
