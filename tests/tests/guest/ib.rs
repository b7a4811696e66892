//! mlx5_ib and rdma-core's tools on two functions.

use std::path::Path;

use crate::bed::{Drivers, FUNCTIONS, MACS, Pair, here, ibdev, read, run};

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
    let guid = MACS[0].replace(':', "");
    let node = read(format!("/sys/class/infiniband/{}/node_guid", ibdev(FUNCTIONS[0]))).replace(':', "");
    assert!(node.starts_with(&guid[..6]) && node.ends_with(&guid[6..]), "{node} of {guid}");
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
