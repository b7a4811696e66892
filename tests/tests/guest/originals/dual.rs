//! Two cards of two functions each: of either one Linux makes an RDMA device with two ports, whose peers are the other one's.

use std::sync::OnceLock;
use std::time::Duration;

use pollux_tests::netns::Namespace;

use super::{Device, End, Meeting, Program, Within, measured, row, run};
use crate::bed::{Drivers, here, ibdev, netdev, read, wait};

/// The functions of each card, as the host puts them behind root ports 1 to 4: the first one has port 1, the second one port 2.
const CARDS: [[&str; 2]; 2] = [["0000:01:00.0", "0000:02:00.0"], ["0000:03:00.0", "0000:04:00.0"]];

/// The cards' devices, and the interface of the first one's port 2. They stay to the end, since loading the drivers takes longer than a
/// test.
fn devices() -> &'static ([Device; 2], String) {
    static DEVICES: OnceLock<([Device; 2], String)> = OnceLock::new();
    DEVICES.get_or_init(|| {
        crate::bed::run("ip link set lo up");
        std::mem::forget(Drivers::rdma());
        let there = Namespace::new("far");
        let interfaces = CARDS.map(|functions| {
            functions.map(|function| wait("an interface", Duration::from_secs(20), || netdev(function)))
        });
        // Each port in a subnet of its own; the second card's are of another host.
        for (port, name) in interfaces[0].iter().enumerate() {
            crate::bed::run(&format!("ip address add 10.0.{port}.1/24 dev {name}"));
            crate::bed::run(&format!("ip link set {name} up"));
        }
        for (port, name) in interfaces[1].iter().enumerate() {
            crate::bed::run(&format!("ip link set {name} netns {}", there.name()));
            there.ip(&["address", "add", &format!("10.0.{port}.2/24"), "dev", name]);
            there.ip(&["link", "set", name, "up"]);
        }
        let devices = CARDS.map(|[first, _]| Device::new(&ibdev(first)));
        for device in &devices {
            // The option for a GID is the same for both ports.
            wait("a GID at port 2", Duration::from_secs(10), || {
                read(at(device, 2, &format!("gids/{}", device.gid))).contains(":ffff:").then_some(())
            });
            for port in [1, 2] {
                wait("a link", Duration::from_secs(10), || {
                    read(at(device, port, "state")).contains("ACTIVE").then_some(())
                });
            }
        }
        std::mem::forget(there);
        let [[_, second], _] = interfaces;
        (devices, second)
    })
}

/// A file that tells of a device's port.
fn at(device: &Device, port: u8, file: &str) -> String {
    format!("/sys/class/infiniband/{}/ports/{port}/{file}", device.name)
}

/// Runs of our end at one card and the original at the other.
fn meet(name: &str, sizes: &[usize], more: &[&str], reports: usize) {
    if here() {
        let ([first, second], _) = devices();
        let meeting: &dyn Meeting = &Within { ours: first, theirs: second };
        super::perftest(meeting, name, sizes, &[&["-O"], more].concat(), reports);
    }
}

#[test]
fn linux_makes_one_device_of_two_functions() {
    if !here() {
        return;
    }
    let ([first, _], interface) = devices();
    let devices = std::fs::read_dir("/sys/class/infiniband").expect("devices").count();
    assert_eq!(devices, 2, "of four functions");
    let said = crate::bed::run(&format!("ibv_devinfo -d {}", first.name));
    assert!(said.contains("phys_port_cnt:\t\t\t2"), "{said}");
    assert_eq!(said.matches("PORT_ACTIVE").count(), 2, "{said}");
    let state = |port| read(at(first, port, "state"));
    crate::bed::run(&format!("ip link set {interface} down"));
    wait("a port that is down", Duration::from_secs(10), || state(2).contains("DOWN").then_some(()));
    assert!(state(1).contains("ACTIVE"));
    crate::bed::run(&format!("ip link set {interface} up"));
    wait("a port that is up", Duration::from_secs(20), || state(2).contains("ACTIVE").then_some(()));
    wait("its GID", Duration::from_secs(20), || {
        read(at(first, 2, &format!("gids/{}", first.gid))).contains(":ffff:").then_some(())
    });
}

/// Nothing of ours but the card: what the originals and Linux's drivers do with two ports.
#[test]
fn originals_use_both_ports() {
    if !here() {
        return;
    }
    let ([first, second], _) = devices();
    for (name, words) in [
        ("ib_write_bw", &["-O", "-F", "-n", "200", "-s", "4096"][..]),
        ("ib_send_bw", &["-O", "-F", "-n", "200", "-s", "1000", "-c", "UD"]),
        ("ib_read_bw", &["-O", "-F", "-n", "200", "-s", "4096", "-b"]),
    ] {
        let end = |device| -> End<'_> { (Program::original(name), device) };
        let size = words[5].parse().expect("a size");
        let [_, client] = measured(|| run([end(first), end(second)], "-x", words));
        assert!(row(&client, size, 400)[3] > 0.0, "{}", client.stdout);
    }
}

#[test]
fn send_bw() {
    meet("send_bw", &[4096], &[], 2);
}

#[test]
fn send_bw_of_datagrams() {
    meet("send_bw", &[1000], &["-c", "UD"], 2);
}

#[test]
fn send_bw_by_xrc_both_ways() {
    meet("send_bw", &[1000], &["-c", "XRC", "-b"], 2);
}

#[test]
fn write_bw() {
    meet("write_bw", &[64, 20000], &[], 1);
}

#[test]
fn read_bw() {
    meet("read_bw", &[4096], &[], 1);
}

/// Each port's share, as both ends tell it.
#[test]
fn write_bw_by_port() {
    if !here() {
        return;
    }
    let ([first, second], _) = devices();
    let meeting = Within { ours: first, theirs: second };
    let words = ["-O", "-F", "-D", "2", "-s", "4096", "--report-per-port"];
    for [server, client] in meeting.both_roles("write_bw", "ib_write_bw", "-x", &words) {
        for end in [server, client] {
            let numbers = |line: &str| {
                let numbers = line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>();
                numbers.ok().filter(|row| row.len() == 9)
            };
            let row = end.stdout.lines().find_map(numbers);
            let row = row.unwrap_or_else(|| panic!("no shares of ports in {}", end.stdout));
            assert!(row[5] > 0.0 && row[7] > 0.0, "{}", end.stdout);
            assert!((row[5] + row[7] - row[3]).abs() <= row[3] * 0.02, "{}", end.stdout);
        }
    }
}
