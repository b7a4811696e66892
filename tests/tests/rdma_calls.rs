//! The calls of uverbs that make, change, ask and destroy each object of RDMA, on a device model in process, held against what Linux
//! answered to the same: that was written down by the job `mlx5-record` of `cargo xtask vm`, on the same model behind Linux's own
//! mlx5_ib. The in-process kernel must answer the same, but for what is listed here.

#[path = "rdma_calls/tour.rs"]
mod tour;

use pollux_explain::normal::differences;
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::Model;

/// What may differ: in which call and part, what is said here, what Linux said, and why.
const ALLOWED: &[(&str, &str, &str, &str)] = &[
    (
        "call 0x0000/0x0003 0x0000",
        "0x0000=10000000",
        "0x0000=02000000",
        "a guest of two processors has two completion vectors",
    ),
    (
        "call 0x0000/0x0005 0x0002",
        "0x0002=fe800000000000000e42a1fffe000001000000000100000002{17}ffff0a000001010000000100000002{4039}",
        "0x0002=fe800000000000000e42a1fffe000001000000000100000002000000<interface0>00000000000000000000ffff0a00000101\
         0000000100000002000000<interface0>{4032}",
        NO_INTERFACE,
    ),
    (
        "call 0x0000/0x0006 0x0003",
        "0x0003=fe800000000000000e42a1fffe00000100000000010000000200000000000000",
        "0x0003=fe800000000000000e42a1fffe000001000000000100000002000000<interface0>",
        NO_INTERFACE,
    ),
    (
        "call 0x0000/0x0006 0x0003",
        "0x0003=00000000000000000000ffff0a00000101000000010000000200000000000000",
        "0x0003=00000000000000000000ffff0a000001010000000100000002000000<interface0>",
        NO_INTERFACE,
    ),
];

const NO_INTERFACE: &str = "behind a model's port is no interface of the kernel's";

#[test]
fn this_kernel_answers_as_linux_does() {
    let address = format!("{}/24", tour::ADDRESS);
    let model = Model::builder("mlx5_model0")
        // A wire that is up from the start, as the guest's is.
        .wire("source:64".parse().expect("a wire"))
        .mac([0x0c, 0x42, 0xa1, 0, 0, 1])
        .ip(address.parse().expect("an address"))
        .door(DoorProfile::linux_6_12())
        .build()
        .expect("a model");
    let said = tour::calls(|| model.open());
    let mut found = differences(&said, include_str!("../../mlx5-kernel/tests/golden/rdma.txt"));
    for (place, ours, theirs, why) in ALLOWED {
        let before = found.len();
        found.retain(|line| !(line.starts_with(place) && line.ends_with(&format!(": {ours} for {theirs}"))));
        assert!(found.len() < before, "no such difference any more ({why}): {place}, {ours} for {theirs}");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
