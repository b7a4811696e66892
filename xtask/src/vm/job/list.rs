//! The jobs of our own tests, which stand in `tests/tests/guest`. What others' programs do is a folder of `tests/witness`, see
//! [`witness`](super::witness).

use super::{Job, Wire};

/// The tests of `tests/tests/guest`, as the guest has them. The word behind it says which.
pub(super) const GUEST: &str = "/ours/guest";
/// Test programs that jobs start: folder of the package, test, and where the guest has it.
pub(super) const TEST_PROGRAMS: &[(&str, &str, &str)] = &[
    ("uverbs", "uverbs", "/ours/uverbs"),
    ("verbs", "kernel", "/ours/verbs-kernel"),
    ("tests", "guest", GUEST),
];

/// A device of rdma_rxe, rxe0, over one end of a pair of interfaces.
const RXE: &[&[&str]] = &[
    &["modprobe", "ib_uverbs"],
    &["modprobe", "rdma_rxe"],
    &["ip", "link", "set", "lo", "up"],
    &["ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1"],
    &["ip", "address", "add", "10.0.0.1/24", "dev", "v0"],
    &["ip", "link", "set", "v0", "up"],
    &["ip", "link", "set", "v1", "up"],
    &["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "v0"],
    // Until then IPv6 is not sure of its addresses, and resolves none.
    &["sleep", "2"],
];

pub(super) const CABLE: &[Wire] = &[Wire::Cable("a"), Wire::Cable("a")];
/// Of two cards with two ports each.
const CABLES: &[Wire] = &[Wire::Cable("a"), Wire::Cable("b"), Wire::Cable("a"), Wire::Cable("b")];
const HOST: &[Wire] = &[Wire::Host, Wire::Host];

/// The programs whose originals the guest has, and the one that tells what originals do.
const ORIGINALS: &[&str] = &[
    "/ours/explain",
    "/ours/rc_pingpong",
    "/ours/uc_pingpong",
    "/ours/ud_pingpong",
    "/ours/srq_pingpong",
    "/ours/xsrq_pingpong",
    "/ours/send_bw",
    "/ours/send_lat",
    "/ours/write_bw",
    "/ours/write_lat",
    "/ours/read_bw",
    "/ours/read_lat",
    "/ours/atomic_bw",
    "/ours/atomic_lat",
    "/ours/raw_ethernet_bw",
    "/ours/raw_ethernet_lat",
    "/ours/rping",
    "/ours/rstream",
    "/ours/riostream",
    "/ours/ucmatose",
    "/ours/udaddy",
    "/ours/udpong",
    "/ours/cmtime",
    "/ours/rdma_server",
    "/ours/rdma_client",
];

/// A job of tests of `tests/tests/guest`.
macro_rules! tests {
    ($name:literal, $filter:literal, $wires:expr, $seconds:literal) => {
        Job {
            name: $name,
            wires: $wires,
            apps: &["/ours/l2fwd"],
            commands: &[&["POLLUX_REQUIRE=guest", GUEST, $filter, "--test-threads=1"]],
            seconds: $seconds,
            tests: true,
            ..Job::default()
        }
    };
}

/// Every job, in the order in which they run.
pub(crate) fn all() -> Vec<Job> {
    vec![
        Job {
            name: "uverbs-rxe",
            short: true,
            setup: RXE,
            commands: &[
                &["ip", "address", "add", "10.0.0.2/24", "dev", "v1"],
                &["POLLUX_REQUIRE=rxe", "/ours/uverbs", "kernel::", "--test-threads=1"],
            ],
            seconds: 120,
            tests: true,
            ..Job::default()
        },
        Job {
            name: "verbs-rxe",
            short: true,
            setup: RXE,
            commands: &[&[
                "POLLUX_REQUIRE=rxe",
                "/ours/verbs-kernel",
                "--skip",
                "mlx5::",
                "--test-threads=1",
            ]],
            seconds: 180,
            tests: true,
            ..Job::default()
        },
        Job {
            name: "verbs-mlx5",
            short: true,
            wires: CABLE,
            commands: &[
                &["modprobe", "ib_uverbs"],
                &["modprobe", "mlx5_core"],
                &["modprobe", "mlx5_ib"],
                &["ip", "link", "set", "lo", "up"],
                // Both ends of the cable.
                &["ip", "link", "set", "eth1", "up"],
                &["ip", "link", "set", "eth0", "up"],
                &["ip", "address", "add", "10.0.0.1/24", "dev", "eth0"],
                &["sleep", "2"],
                &["POLLUX_REQUIRE=mlx5", "/ours/verbs-kernel", "--skip", "rxe::", "--test-threads=1"],
            ],
            seconds: 180,
            tests: true,
            ..Job::default()
        },
        Job {
            name: "originals-rxe",
            setup: RXE,
            commands: &[
                &["modprobe", "rdma_ucm"],
                &["POLLUX_REQUIRE=guest", GUEST, "originals::rxe::", "--test-threads=1"],
            ],
            apps: ORIGINALS,
            // Of write(2) by a thread with another user.
            warns: &["changed security contexts after opening"],
            seconds: 600,
            tests: true,
            ..Job::default()
        },
        // Figures, which its log tells.
        Job {
            name: "figures-rxe",
            setup: RXE,
            commands: &[
                &["modprobe", "rdma_ucm"],
                &["POLLUX_REQUIRE=guest", GUEST, "originals::figures::", "--test-threads=1", "--nocapture"],
            ],
            apps: &["/ours/rstream-release", "/ours/cmtime-release"],
            seconds: 600,
            tests: true,
            long: true,
            ..Job::default()
        },
        Job {
            name: "originals-across",
            across: true,
            commands: &[
                &["modprobe", "ib_uverbs"],
                &["modprobe", "rdma_rxe"],
                &["modprobe", "virtio_net"],
                &["ip", "link", "set", "lo", "up"],
                // The wire, and the way of TCP: in the order in which the host has them.
                &["ip", "address", "add", "10.1.0.2/24", "dev", "eth0"],
                &["ip", "link", "set", "eth0", "up"],
                &["ip", "address", "add", "10.0.2.15/24", "dev", "eth1"],
                &["ip", "link", "set", "eth1", "up"],
                &["rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"],
                &["modprobe", "rdma_ucm"],
                &["sleep", "2"],
                &["POLLUX_REQUIRE=guest", GUEST, "originals::across::", "--test-threads=1"],
            ],
            apps: ORIGINALS,
            seconds: 600,
            tests: true,
            ..Job::default()
        },
        Job {
            apps: ORIGINALS,
            with: &["on-demand-paging", "sniffer"],
            ..tests!("originals-mlx5", "originals::mlx5::", CABLE, 480)
        },
        Job { apps: ORIGINALS, dual: true, ..tests!("originals-dual", "originals::dual::", CABLES, 300) },
        tests!("mlx5-net", "net::", CABLE, 240),
        Job { records: true, ..tests!("mlx5-ib", "ib::", CABLE, 120) },
        tests!("mlx5-forward", "forward::", HOST, 240),
        Job {
            records: true,
            short: true,
            // What the kernel or the firmware refuses.
            warns: &[
                "create_qp:",
                "mlx5_cmd_out_err:",
                "mlx5_ib_create_srq:",
                "mlx5_ib_mcg_attach:",
                "mlx5_ib_resize_cq:",
                "set_user_buf_size:",
            ],
            ..tests!("mlx5-record", "record::", HOST, 120)
        },
        Job { short: true, ..tests!("mlx5-control", "control::", CABLE, 240) },
        Job { reports: &["health recovery"], warns: &["mlx5"], ..tests!("mlx5-reset", "reset::", HOST, 300) },
        Job {
            reports: &["Fatal error"],
            warns: &["mlx5"],
            abrupt: true,
            short: true,
            ..tests!("mlx5-gone", "gone::", CABLE, 60)
        },
        Job { long: true, ..tests!("mlx5-soak", "soak::", HOST, 180) },
    ]
}
