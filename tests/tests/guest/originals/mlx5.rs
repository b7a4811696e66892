//! An end on each of two functions of the device model, on the kernel's own uverbs files.

mod raw;

use std::sync::OnceLock;

use pollux_tests::program::Finished;

use super::{Device, Meeting, Program, Within, paging, run};
use crate::bed::{Drivers, FUNCTIONS, Pair, here, ibdev};

/// The functions' devices. They stay to the end, since loading the drivers takes longer than a test.
fn devices() -> &'static [Device; 2] {
    static DEVICES: OnceLock<[Device; 2]> = OnceLock::new();
    DEVICES.get_or_init(|| {
        crate::bed::run("ip link set lo up");
        let pair = Pair::on(Drivers::rdma());
        let devices = FUNCTIONS.map(|function| Device::new(&ibdev(function)));
        std::mem::forget(pair);
        devices
    })
}

/// Runs a test with our end at the first function, and once more with it at the second if `swapped`.
fn on_functions(swapped: bool, test: impl Fn(&dyn Meeting)) {
    if here() {
        let [first, second] = devices();
        test(&Within { ours: first, theirs: second });
        if swapped {
            test(&Within { ours: second, theirs: first });
        }
    }
}

fn pingpong(name: &str, sizes: &[usize], more: &[&str]) {
    on_functions(false, |meeting| super::pingpong(meeting, name, sizes, more));
}

fn perftest(name: &str, sizes: &[usize], more: &[&str], reports: usize) {
    on_functions(false, |meeting| super::perftest(meeting, name, sizes, more, reports));
}

#[test]
fn rc_pingpong() {
    on_functions(true, |meeting| super::pingpong(meeting, "rc_pingpong", &[32, 4096], &["-c"]));
}

#[test]
fn rc_pingpong_that_sleeps() {
    pingpong("rc_pingpong", &[1024], &["-e"]);
}

#[test]
fn rc_pingpong_with_itself() {
    if here() {
        let [first, _] = devices();
        super::pingpong(&Within { ours: first, theirs: first }, "rc_pingpong", &[4096], &["-c"]);
    }
}

/// Linux 6.12 knows the scheme by which the cards ask for pages. Most pages are there before they are registered: those of all
/// memory of a program are asked for.
fn on_demand(swapped: bool, test: impl Fn(&dyn Meeting)) {
    if here() && paging::is_had(&devices()[0], [6, 12], "ODP_SUPPORT_IMPLICIT") {
        on_functions(swapped, test);
    }
}

#[test]
fn pingpongs_on_demand() {
    on_demand(true, |meeting| {
        super::pingpong(meeting, "rc_pingpong", &[4096, 20000], &["-c", "-o"]);
        super::pingpong(meeting, "rc_pingpong", &[4096], &["-c", "-O"]);
        super::pingpong(meeting, "rc_pingpong", &[4096], &["-o", "-P"]);
        super::pingpong(meeting, "rc_pingpong", &[4096], &["-O", "-P"]);
        super::pingpong(meeting, "srq_pingpong", &[4096], &["-q", "4", "-o"]);
    });
}

#[test]
fn perftest_on_demand() {
    on_demand(false, |meeting| {
        super::perftest(meeting, "send_bw", &[20000], &["--odp"], 2);
        super::perftest(meeting, "write_bw", &[20000], &["--odp"], 1);
        super::perftest(meeting, "read_bw", &[20000], &["--odp"], 1);
    });
}

#[test]
fn uc_pingpong() {
    pingpong("uc_pingpong", &[1024, 4096], &["-c"]);
}

#[test]
fn ud_pingpong() {
    pingpong("ud_pingpong", &[32, 1024], &["-c"]);
}

#[test]
fn srq_pingpong() {
    pingpong("srq_pingpong", &[4096], &["-q", "4"]);
}

/// XRC: each end names the other's receive queue in its messages.
#[test]
fn xsrq_pingpong() {
    on_functions(true, |meeting| {
        let runs =
            meeting.both_roles("xsrq_pingpong", "ibv_xsrq_pingpong", "-g", &["-n", "50", "-s", "1024"]);
        // What each said of itself the other one heard.
        let said = |end: &Finished, whose: &str| {
            let line = end.stdout.lines().find_map(|line| line.trim().strip_prefix(whose));
            line.unwrap_or_else(|| panic!("no {whose} in {}", end.stdout)).trim().to_owned()
        };
        for [server, client] in &runs {
            assert_eq!(said(server, "local:"), said(client, "remote:"));
            assert_eq!(said(client, "local:"), said(server, "remote:"));
        }
    });
}

/// Messages in the device's own memory, which programs map: each word that is read there crosses the bus.
#[test]
fn rc_pingpong_in_memory_of_the_device() {
    pingpong("rc_pingpong", &[64], &["-j", "-c"]);
}

#[test]
fn rc_pingpong_with_times_of_the_device() {
    if here() {
        let [first, second] = devices();
        let ends = [(Program::ours("rc_pingpong"), first), (Program::ours("rc_pingpong"), second)];
        for end in run(ends, "-g", &["-n", "200", "-t"]) {
            assert!(end.stdout.contains("200 iters in "), "{}", end.stdout);
        }
    }
}

#[test]
fn both_ends_are_ours() {
    if !here() {
        return;
    }
    let [first, second] = devices();
    let ends = |name: &str| [(Program::ours(name), first), (Program::ours(name), second)];
    run(ends("rc_pingpong"), "-g", &["-n", "200", "-c"]);
    run(ends("xsrq_pingpong"), "-g", &["-n", "50"]);
    run(ends("send_bw"), "-x", &["-n", "200", "-s", "4096", "--use-srq", "-q", "2"]);
}

#[test]
fn send_bw() {
    perftest("send_bw", &[64, 4096], &[], 2);
    perftest("send_bw", &[4096], &["-b"], 2);
}

#[test]
fn send_bw_of_datagrams() {
    perftest("send_bw", &[1024], &["-c", "UD", "-t", "8"], 2);
}

/// A group hears the messages of `send_bw`; of `send_lat` each end hears a group of its own. The original wants the group's kind
/// of address from the other end, and its groups' are of IPv6.
#[test]
fn multicast() {
    if here() {
        let [first, second] = devices();
        let [ours, theirs] = [first, second].map(Device::of_ipv6);
        let meeting = Within { ours: &ours, theirs: &theirs };
        super::perftest(&meeting, "send_bw", &[1024], &["-g", "-t", "8"], 2);
        super::perftest(&meeting, "send_lat", &[64], &["-g"], 2);
    }
}

/// What comes before the measurement, and where packets say that they come from. The original of 6.24 waits for a completion of
/// each message of its warm-up, whether or not it asked for one.
#[test]
fn warm_up_and_flow_labels() {
    let words = |more: &[&'static str]| [&["--perform_warm_up", "-Q", "1"], more].concat();
    perftest("write_bw", &[1024], &words(&["--flow_label", "0x12345"]), 2);
    perftest("read_bw", &[1024], &words(&["-q", "2", "--flow_label", "7"]), 2);
    perftest("atomic_bw", &[8], &words(&[]), 2);
    perftest("write_bw", &[1024], &words(&["-b"]), 2);
}

#[test]
fn send_lat() {
    perftest("send_lat", &[64, 4096], &[], 2);
    perftest("send_lat", &[64], &["-c", "UD"], 2);
}

#[test]
fn write_bw() {
    perftest("write_bw", &[64, 4096], &[], 2);
    perftest("write_bw", &[1024], &["-b", "-q", "2"], 2);
}

#[test]
fn write_lat() {
    perftest("write_lat", &[8, 4096], &[], 2);
}

#[test]
fn unreliable_connections() {
    perftest("send_bw", &[1024], &["-c", "UC", "-t", "8"], 2);
    perftest("send_lat", &[64], &["-c", "UC"], 2);
    perftest("write_bw", &[1024], &["-c", "UC"], 2);
    perftest("write_lat", &[64], &["-c", "UC"], 2);
}

#[test]
fn read_bw() {
    perftest("read_bw", &[64, 4096], &[], 2);
}

#[test]
fn read_lat() {
    perftest("read_lat", &[64, 4096], &[], 1);
}

#[test]
fn atomic_bw() {
    perftest("atomic_bw", &[8], &[], 2);
}

#[test]
fn atomic_lat() {
    perftest("atomic_lat", &[8], &["-A", "CMP_AND_SWAP"], 1);
}
