//! perftest's raw Ethernet on two functions with a cable between them.

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
