//! Every uverbs call of l2fwd, and of a tour of RDMA's objects, and what Linux answered, held against the record; the in-process
//! kernel is held against the same (`apps/tests/calls.rs`, `tests/rdma_calls.rs`); so are the commands of the connection manager's file
//! (`tests/connection_calls.rs`). `cargo xtask vm --record` writes the record anew.

#[path = "../connection_calls/tour.rs"]
mod connections;
#[path = "../rdma_calls/tour.rs"]
mod tour;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pollux_explain::normal::{self, differences};
use pollux_verbs::{Context, Device, Errno, Options};

use crate::bed::{
    Drivers, FUNCTIONS, ask, here, ibdev, is_recorded_kernel, keep, netdev, ours, recording, run, wait,
};
use crate::forward::{arguments, ends_well, started, up};

/// What l2fwd with these keys asked of the first function.
fn calls_of(keys: &str) -> String {
    let drivers = up();
    let name = ibdev(FUNCTIONS[0]);
    let path = format!("/tmp/calls.{name}");
    // A file that is there grows; this run is to have its own.
    drop(fs::remove_file(&path));
    let mut command = Command::new(ours("l2fwd"));
    command.env("POLLUX_UVERBS_TRACE", "/tmp/calls").args(arguments(
        FUNCTIONS,
        keys,
        "-P --no-mac-updating --json",
    ));
    let running = started(command);
    ask("traffic from=0 to=1 frames=200");
    ends_well(running, 200);
    let said = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"));
    drivers.unload();
    normal::normal(&said, normal::MLX5)
}

/// How often the drivers are loaded until the kernel finds that writes combine.
const LOADS: usize = 5;

/// Whether the kernel tells of a buffer for BlueFlame: the second word of what mlx5_ib answers about a context. Without one the driver asks
/// for other pages. Linux tries for 100 ms when it loads whether writes combine (`drivers/net/ethernet/mellanox/mlx5/core/wc.c`,
/// `mlx5_wc_support_get`), and a guest without a processor of its own may not be done by then.
fn has_blue_flame(calls: &str) -> bool {
    let context = calls.lines().find(|line| line.starts_with("call 0x0000/0x0003 "));
    let (_, answers) = context.and_then(|line| line.split_once(" -> ok ")).expect("a context");
    let (_, words) = answers.split_once("0x1001=").expect("mlx5_ib's answer");
    words.get(8..16).is_some_and(|size| size != "00000000")
}

/// The drivers, and the first function's device once its port has an address.
fn up_with(address: &str) -> (Drivers, Device) {
    let drivers = up();
    let near = netdev(FUNCTIONS[0]).expect("an interface");
    run(&format!("ip address add {address}/24 dev {near}"));
    let device = pollux_verbs::find(Path::new("/"), FUNCTIONS[0]).expect("a device");
    let address = address.parse().expect("an address");
    wait("a GID of the address", Duration::from_secs(10), || {
        let context = Context::open_device(&device, Options::default()).expect("a context");
        context.gid_of(1, address).expect("a table")
    });
    (drivers, device)
}

/// What RDMA's objects on the first function asked.
fn rdma_calls() -> String {
    let (drivers, device) = up_with(tour::ADDRESS);
    let said = tour::calls(|| device.open().expect("the device's file"));
    drivers.unload();
    said
}

fn agrees(name: &str, recorded: &str, calls: impl Fn() -> String) {
    if !here() {
        return;
    }
    let mut said = calls();
    for _ in 1..LOADS {
        if has_blue_flame(&said) {
            break;
        }
        said = calls();
    }
    if recording() {
        keep(name, &said);
        return;
    }
    // Other kernels may answer more or otherwise; what they are asked is the same.
    let (said, recorded) = if is_recorded_kernel() {
        (said, recorded.to_owned())
    } else {
        let ways = ways(recorded);
        (asked(&said, &ways), asked(recorded, &ways))
    };
    let found = differences(&said, &recorded);
    assert!(
        found.is_empty(),
        "this is the record of another kernel, model or driver:\n{}\n{said}",
        found.join("\n")
    );
}

/// What was asked of objects as programs make them. Behind that a tour asks for what one kernel refuses and another may take, and gives back
/// what it was given.
fn asked(calls: &str, ways: &[String]) -> String {
    let context = |line: &str| line.starts_with("call 0x0000/0x0003 ");
    let mut contexts = 0;
    let mut out = String::new();
    for line in calls.lines() {
        contexts += usize::from(context(line));
        let (asked, _) = line.split_once(" -> ").unwrap_or((line, ""));
        if contexts < 2 && !ways.contains(&call(asked)) {
            out.push_str(asked);
            out.push('\n');
        }
    }
    out
}

/// The calls that the recorded kernel lacks, and those that were made instead: a kernel that has the first is not asked for the others.
fn ways(recorded: &str) -> Vec<String> {
    let lines: Vec<&str> = recorded.lines().collect();
    let lacks = |pair: &&[&str]| pair[0].ends_with(" -> EPROTONOSUPPORT");
    lines.windows(2).filter(lacks).flatten().map(|line| call(line)).collect()
}

/// The call of a line.
fn call(line: &str) -> String {
    line.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn l2fwd_with_verbs_objects() {
    agrees("l2fwd-verbs.txt", include_str!("../../../mlx5-kernel/tests/golden/l2fwd-verbs.txt"), || {
        calls_of(",dv_flow_en=0")
    });
}

#[test]
fn l2fwd_with_devx_objects() {
    agrees("l2fwd-devx.txt", include_str!("../../../mlx5-kernel/tests/golden/l2fwd-devx.txt"), || {
        calls_of(",dv_flow_en=1")
    });
}

#[test]
fn objects_of_rdma() {
    agrees("rdma.txt", include_str!("../../../mlx5-kernel/tests/golden/rdma.txt"), rdma_calls);
}

/// A file of Linux's connection manager.
struct CmFile(File);

impl connections::Commands for CmFile {
    fn write(&self, _room: &connections::Room, bytes: &[u8]) -> Result<(), Errno> {
        (&self.0).write(bytes).map(drop).map_err(Errno::from)
    }

    fn descriptor(&self) -> u32 {
        self.0.as_raw_fd() as u32
    }
}

/// What connections of the first function's with itself asked.
fn connection_calls() -> String {
    let (drivers, _) = up_with(connections::ADDRESS);
    run("modprobe rdma_ucm");
    run("ip link set lo up");
    let open = || {
        let flags = libc::O_NONBLOCK;
        let path = "/dev/infiniband/rdma_cm";
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        CmFile(file.expect("the manager's file"))
    };
    let said = connections::calls(open);
    run("rmmod rdma_ucm");
    drivers.unload();
    said
}

#[test]
fn connections_by_the_manager() {
    if !here() {
        return;
    }
    let said = connection_calls();
    if recording() {
        keep("rdma-cm.txt", &said);
        return;
    }
    let recorded = include_str!("../../../mlx5-kernel/tests/golden/rdma-cm.txt");
    // Other kernels may answer more or otherwise; what they are asked is the same.
    let lines = |text: &str| -> Vec<String> {
        let asked = |line: &str| line.split(" -> ").next().unwrap_or(line).to_owned();
        text.lines().map(|line| if is_recorded_kernel() { line.to_owned() } else { asked(line) }).collect()
    };
    let (said, recorded) = (lines(&said), lines(recorded));
    let other: Vec<_> = said.iter().zip(&recorded).filter(|(said, recorded)| said != recorded).collect();
    assert!(
        other.is_empty() && said.len() == recorded.len(),
        "this is the record of another kernel: {other:#?}"
    );
}
