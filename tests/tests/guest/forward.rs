//! Our l2fwd on the kernel's uverbs files. The host sends on the far ends of the wires and compares what comes out.

use std::process::Command;
use std::time::Duration;

use pollux_tests::program::Running;

use crate::bed::{Drivers, FUNCTIONS, MACS, ask, here, ibdev, netdev, ours, read, run, wait};

/// Frames of one comparison.
pub(crate) const FRAMES: u32 = 20_000;

/// The drivers with both ports up; their wires go to the host.
pub(crate) fn up() -> Drivers {
    let drivers = Drivers::rdma();
    for function in FUNCTIONS {
        let name = netdev(function).expect("an interface");
        // Nobody here speaks unasked: what the host sees is what was forwarded.
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").expect("a setting");
        run(&format!("ip link set {name} up"));
        wait("a carrier", Duration::from_secs(10), || {
            (crate::bed::read(format!("/sys/class/net/{name}/carrier")) == "1").then_some(())
        });
        wait("an RDMA device", Duration::from_secs(10), || {
            run(&format!("rdma link show {}/1", ibdev(function))).contains("ACTIVE").then_some(())
        });
    }
    drivers
}

pub(crate) fn arguments(devices: [&str; 2], keys: &str, app: &str) -> Vec<String> {
    let mut words: Vec<String> =
        ["--no-huge", "-m", "256", "-l", "0"].iter().map(|&word| word.to_owned()).collect();
    for device in devices {
        words.extend(["-a".to_owned(), format!("{device}{keys}")]);
    }
    words.push("--".into());
    words.extend(app.split_whitespace().map(str::to_owned));
    words
}

pub(crate) fn l2fwd(devices: [&str; 2], keys: &str, app: &str) -> Running {
    let mut command = Command::new(ours("l2fwd"));
    command.args(arguments(devices, keys, app));
    started(command)
}

pub(crate) fn started(command: Command) -> Running {
    let mut running = Running::start(command);
    running.wait_for("forwarding");
    running
}

/// Ends it as a user does; it counted no less than the host sent.
pub(crate) fn ends_well(running: Running, frames: u64) {
    let done = running.interrupt();
    assert!(done.status.success(), "{:?}: {}", done.status, done.stderr.join("\n"));
    let report = done.report();
    let received: u64 =
        report["ports"].as_array().into_iter().flatten().filter_map(|port| port["rx_packets"].as_u64()).sum();
    assert!(received >= frames, "{received} of {frames}: {report}");
}

pub(crate) fn there_and_back(more: &str) {
    ask(&format!("traffic from=0 to=1 frames={FRAMES} {more}"));
    ask(&format!("traffic from=1 to=0 frames={FRAMES} {more}"));
}

/// Objects of a kind that a process has; the kernel's own have none.
fn objects(kind: &str) -> Vec<String> {
    let all = run(&format!("rdma resource show {kind}"));
    all.lines().filter(|line| line.contains(" pid ")).map(str::to_owned).collect()
}

pub(crate) fn nothing_is_left() {
    for kind in ["qp", "mr", "cq", "pd", "ctx"] {
        let left = objects(kind);
        assert!(left.is_empty(), "{kind}: {left:?}");
    }
}

#[test]
fn with_verbs_objects_by_pci_address() {
    if !here() {
        return;
    }
    let _drivers = up();
    let running = l2fwd(FUNCTIONS, ",dv_flow_en=0", "-P --no-mac-updating --json");
    there_and_back("window=128");
    ends_well(running, 2 * u64::from(FRAMES));
    nothing_is_left();
}

#[test]
fn with_devx_objects_by_name() {
    if !here() {
        return;
    }
    let _drivers = up();
    let names = FUNCTIONS.map(ibdev);
    let running = l2fwd([&names[0], &names[1]], ",dv_flow_en=1", "-P --no-mac-updating --json");
    there_and_back("window=128");
    ends_well(running, 2 * u64::from(FRAMES));
    nothing_is_left();
}

#[test]
fn beside_the_kernels_own_interface() {
    if !here() {
        return;
    }
    run("modprobe macvlan");
    let _drivers = up();
    let near = netdev(FUNCTIONS[0]).expect("an interface");
    // An address of the kernel's own on the same port; the host is .254.
    run(&format!("ip link add link {near} name mac0 address 02:00:00:00:01:01 type macvlan mode private"));
    run("ip address add 10.9.0.1/24 dev mac0");
    run("ip link set mac0 up");
    run("ip neigh add 10.9.0.254 lladdr 02:00:00:00:00:fe dev mac0 nud permanent");
    let running = l2fwd(FUNCTIONS, "", "--json");
    // What is sent to the port's address is ours, what is sent to the other is the kernel's.
    let said = ask(&format!(
        "traffic from=0 to=1 frames={FRAMES} window=64 target={} source={} ping=02:00:00:00:01:01,10.9.0.1",
        MACS[0], MACS[1]
    ));
    assert!(said.ends_with(&format!("pings={}", FRAMES.div_ceil(100))), "{said}");
    ends_well(running, FRAMES.into());
    run("ip link delete mac0");
}

#[test]
fn as_a_user_with_one_capability() {
    if !here() {
        return;
    }
    let _drivers = up();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--no-new-privs"])
        .args([
            "--bounding-set",
            "-all,+net_raw",
            "--inh-caps",
            "-all,+net_raw",
            "--ambient-caps",
            "-all,+net_raw",
        ])
        .arg(ours("l2fwd"))
        .args(arguments(FUNCTIONS, "", "--no-mac-updating --json"));
    let mut limited = Command::new("prlimit");
    limited.arg("--memlock=1073741824").arg(command.get_program()).args(command.get_args());
    let running = started(limited);
    // The process is what prlimit and setpriv became.
    let status = read(format!("/proc/{}/status", running.pid()));
    for line in ["Uid:\t1000\t1000\t1000\t1000", "CapEff:\t0000000000002000", "CapBnd:\t0000000000002000"] {
        assert!(status.contains(line), "{line:?}: {status}");
    }
    ask(&format!("traffic from=0 to=1 frames={FRAMES} target={}", MACS[0]));
    ends_well(running, FRAMES.into());
    nothing_is_left();
}

#[test]
fn too_little_memlock_is_said_with_its_remedy() {
    if !here() {
        return;
    }
    let _drivers = up();
    let mut command = Command::new("prlimit");
    command
        .args([
            "--memlock=65536",
            "setpriv",
            "--reuid",
            "1000",
            "--regid",
            "1000",
            "--clear-groups",
            "--no-new-privs",
        ])
        .args([
            "--bounding-set",
            "-all,+net_raw",
            "--inh-caps",
            "-all,+net_raw",
            "--ambient-caps",
            "-all,+net_raw",
        ])
        .arg(ours("l2fwd"))
        .args(arguments(FUNCTIONS, "", "--duration 5"));
    let done = Running::start(command).finish(Duration::from_secs(20));
    assert_eq!(done.status.code(), Some(1), "{}", done.stderr.join("\n"));
    let said = done.stderr.join("\n");
    assert!(said.contains("ulimit -l"), "{said}");
    nothing_is_left();
}

#[test]
fn killed_and_started_ten_times() {
    if !here() {
        return;
    }
    let _drivers = up();
    for round in 0..10 {
        let keys = [",dv_flow_en=0", ",dv_flow_en=1"][round % 2];
        let running = l2fwd(FUNCTIONS, keys, "-P --no-mac-updating --json");
        ask("traffic from=0 to=1 frames=500");
        // What is looked for below is there now.
        let held: usize = ["qp", "mr", "cq"].map(|kind| objects(kind).len()).iter().sum();
        assert!(held > 0, "the kernel lists nothing of l2fwd's: {}", run("rdma resource show"));
        running.signal(libc::SIGKILL);
        let done = running.finish(Duration::from_secs(10));
        assert!(!done.status.success());
        wait("the kernel's tidying up", Duration::from_secs(5), || objects("ctx").is_empty().then_some(()));
        nothing_is_left();
    }
}
