//! The raw Ethernet tests: their ends do not meet before, so who receives has to be ready when the other one begins.

use std::time::Duration;

use super::super::{Device, LIMIT, Program, measured, row};
use super::devices;
use crate::bed::{here, read, run, wait};

/// Headers of UDP, whose addresses and ports are nobody else's here.
const UDP: &[&str] = &["-J", "10.0.9.1", "-j", "10.0.9.2", "-K", "5000", "-k", "6000"];

/// A server that gets each frame by its rule, and a copy.
const SNIFFER: &[&str] = &["--sniffer"];

/// The MAC address of a device's port, whose interface may be in another namespace: of its first GID, which Linux makes of it.
fn mac(device: &Device) -> String {
    let gid = read(format!("/sys/class/infiniband/{}/ports/1/gids/0", device.name));
    let gid: std::net::Ipv6Addr = gid.parse().expect("a GID");
    let [.., a, b, c, 0xff, 0xfe, d, e, f] = gid.octets() else {
        panic!("{gid} is not made of a MAC address")
    };
    [a ^ 2, b, c, d, e, f].map(|byte| format!("{byte:02x}")).join(":")
}

/// Whether a raw queue pair of a device receives, as the kernel tells.
fn receives(device: &Device) -> bool {
    let told = run(&format!("rdma resource show qp link {}/1", device.name));
    told.lines().any(|line| line.contains("type RAW_PACKET") && line.contains("state RT"))
}

/// Our program and the original, in both roles: frames of `size` bytes, 200 from each end that sends.
fn meet(name: &str, size: usize, more: &[&str]) {
    let (ours, theirs) = (|| Program::ours(name), || Program::original(name));
    run_pair([(ours(), more), (theirs(), more)], size);
    run_pair([(theirs(), more), (ours(), more)], size);
}

/// One run: the server and the client, each with words of its own.
fn run_pair([(server, to_server), (client, to_client)]: [(Program, &[&str]); 2], size: usize) {
    if !here() {
        return;
    }
    let [first, second] = devices();
    let bytes = size.to_string();
    let (near, far) = (mac(first), mac(second));
    let count = |more: &[&str]| if more == SNIFFER { ["-n", "400"] } else { ["-n", "200"] };
    let usual = ["-F", "-s", &bytes];
    let to_receive = ["--server", "-B", &near, "-E", &far];
    let to_send = ["--client", "-B", &far, "-E", &near];
    let ends = measured(|| {
        let receiver =
            server.start(first, &[&to_receive[..], &usual, &count(to_server)[..], to_server].concat(), None);
        wait("a queue pair that receives", LIMIT, || receives(first).then_some(()));
        // The original posts its receives right after that.
        std::thread::sleep(Duration::from_millis(500));
        let sender =
            client.start(second, &[&to_send[..], &usual, &count(to_client)[..], to_client].concat(), None);
        [sender, receiver].map(|end| end.finish(LIMIT))
    });
    for (end, (program, more)) in ends.iter().zip([(&client, to_client), (&server, to_server)]) {
        let path = program.0.display();
        println!("{path} {more:?}: {}\n{}{}", end.status, end.stdout, end.stderr.join("\n"));
    }
    for (end, more) in ends.iter().zip([to_client, to_server]) {
        assert!(end.status.success(), "an end did not end well");
        let row = row(end, size, if more == SNIFFER { 400 } else { 200 });
        let is_latency = server.0.to_string_lossy().ends_with("_lat");
        let average = if is_latency { row[5] } else { row[3] };
        assert!(average > 0.0, "{}", end.stdout);
    }
}

#[test]
fn raw_ethernet_bw() {
    meet("raw_ethernet_bw", 1024, &[]);
    meet("raw_ethernet_bw", 128, UDP);
}

#[test]
fn raw_ethernet_bw_of_several_flows() {
    meet("raw_ethernet_bw", 128, &[UDP, &["--flows", "4"]].concat());
}

#[test]
fn raw_ethernet_bw_both_ways() {
    meet("raw_ethernet_bw", 256, &[UDP, &["-b"]].concat());
}

/// Headers of other kinds, and a tag.
#[test]
fn raw_ethernet_bw_of_other_headers() {
    meet("raw_ethernet_bw", 128, &[UDP, &["--tcp"]].concat());
    meet("raw_ethernet_bw", 128, &[UDP, &["--vlan_en", "--vlan_pcp", "3"]].concat());
    let six = ["--raw_ipv6", "-J", "fd00::1", "-j", "fd00::2", "-K", "5000", "-k", "6000"];
    meet("raw_ethernet_bw", 128, &six);
    meet("raw_ethernet_bw", 128, &["--ethertype", "0x88b5"]);
}

/// The device's sniffer tables, as Linux makes them.
#[test]
fn raw_ethernet_bw_with_a_sniffer() {
    let name = "raw_ethernet_bw";
    run_pair([(Program::ours(name), SNIFFER), (Program::original(name), &[])], 256);
    run_pair([(Program::original(name), SNIFFER), (Program::ours(name), &[])], 256);
}

/// Ours sends back what the original sends. The original goes round in a few places that later frames overwrite before it has sent
/// them back, so it is no such end for ours.
#[test]
fn raw_ethernet_bw_that_forwards() {
    let name = "raw_ethernet_bw";
    run_pair([(Program::ours(name), &["-v"]), (Program::original(name), &["-b"])], 256);
}

#[test]
fn raw_ethernet_lat() {
    meet("raw_ethernet_lat", 64, UDP);
    meet("raw_ethernet_lat", 512, UDP);
}
