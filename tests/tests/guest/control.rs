//! Programs by others on two functions with a cable between them: what they are content with is not merely what our own driver
//! happens to expect.

use std::fs;
use std::process::Command;
use std::time::Duration;

use pollux_tests::program::Running;

use crate::bed::{Drivers, FUNCTIONS, MACS, here, ibdev, netdev, read, run, wait};

fn up() -> Drivers {
    let drivers = Drivers::rdma();
    run("modprobe rdma_ucm");
    for function in FUNCTIONS {
        run(&format!("ip link set {} up", netdev(function).expect("an interface")));
        ibdev(function);
    }
    for function in FUNCTIONS {
        let carrier = format!("/sys/class/net/{}/carrier", netdev(function).expect("an interface"));
        wait("a carrier", Duration::from_secs(10), || (read(&carrier) == "1").then_some(()));
    }
    drivers
}

#[test]
fn raw_ethernet_bw_sends_and_receives() {
    if !here() {
        return;
    }
    let drivers = up();
    for bytes in ["64", "1024"] {
        let program = |role: &str, index: usize, count: &str| {
            let mut command = Command::new("raw_ethernet_bw");
            command.args(["-d", &ibdev(FUNCTIONS[index]), role, "-B", MACS[index], "-E", MACS[1 - index]]);
            command.args(["-s", bytes, "-n", count, "-F"]);
            Running::start(command)
        };
        // Nobody tells the client that the server listens, and nobody sends again what it missed.
        let server = program("--server", 1, "1000");
        std::thread::sleep(Duration::from_secs(2));
        let client = program("--client", 0, "4000").finish(Duration::from_secs(30));
        assert!(client.status.success(), "{}{}", client.stdout, client.stderr.join("\n"));
        let server = server.finish(Duration::from_secs(30));
        assert!(server.status.success(), "{}{}", server.stdout, server.stderr.join("\n"));
        assert!(server.stdout.contains("1000"), "{}", server.stdout);
    }
    drop(drivers);
}

/// Has DPDK's testpmd pass frames round between the two ports, and reads its final count.
fn testpmd(keys: &str) {
    let drivers = up();
    fs::write("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "256").expect("huge pages");
    for folder in ["/var/run", "/var/tmp"] {
        fs::create_dir_all(folder).expect("a folder");
    }
    let mut command = Command::new("dpdk-testpmd");
    command.args(["-l", "0,1", "--huge-dir", "/dev/hugepages", "-m", "256"]);
    for function in FUNCTIONS {
        command.args(["-a", &format!("{function}{keys}")]);
    }
    command.args([
        "--",
        "--forward-mode=io",
        "--auto-start",
        "--nb-cores=1",
        "--stats-period=1",
        "--tx-first",
    ]);
    command.args(["--no-flush-rx", "--total-num-mbufs=4096"]);
    let running = Running::start(command);
    std::thread::sleep(Duration::from_secs(10));
    running.signal(libc::SIGINT);
    let done = running.finish(Duration::from_secs(30));
    let said = format!("{}{}", done.stdout, done.stderr.join("\n"));
    assert!(done.status.success(), "{:?}: {said}", done.status);
    let (_, sums) =
        done.stdout.split_once("Accumulated forward statistics").unwrap_or_else(|| panic!("{said}"));
    let count = |name: &str| -> u64 {
        let mut words = sums.split_whitespace().skip_while(|word| *word != name).skip(1);
        words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name}: {said}"))
    };
    assert!(count("RX-packets:") > 10_000, "{said}");
    assert_eq!((count("RX-dropped:"), count("TX-dropped:")), (0, 0), "{sums}");
    println!("testpmd{keys}: {} frames", count("RX-packets:"));
    drop(drivers);
}

#[test]
fn dpdk_with_verbs_objects() {
    if here() {
        testpmd(",dv_flow_en=0");
    }
}

#[test]
fn dpdk_with_devx_objects() {
    if here() {
        testpmd("");
    }
}
