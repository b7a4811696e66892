//! Three networks, a host each, joined only by l3fwd: what is sent from one to another, and routes that change under it.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::program::{Running, app};
use pollux_tests::require::{Need, require};

use crate::{ping, transfer};

/// An address that hosts 1 and 2 both have.
const ANYWHERE: &str = "10.99.0.1";

struct Networks {
    hosts: [Namespace; 3],
    folder: tempfile::TempDir,
    // Declared last: the program ends after the namespaces' names are gone, and the kernel frees them with it.
    middle: Namespace,
}

fn v4(host: usize) -> String {
    format!("10.78.{host}.2")
}

fn v6(host: usize) -> String {
    format!("fd78:{host}::2")
}

impl Networks {
    /// l3fwd answers no ARP and no neighbour discovery, so that each host knows the address of its gateway; and its own is the one that
    /// l3fwd sends to by itself.
    fn new() -> Self {
        let hosts = ["a", "b", "c"].map(Namespace::new);
        let middle = Namespace::new("m");
        for (number, host) in hosts.iter().enumerate() {
            let port = format!("port{number}");
            join(host, "eth0", &middle, &port);
            let gateway = format!("02:00:00:00:aa:0{number}");
            middle.ip(&["link", "set", &port, "address", &gateway]);
            host.quiet_ipv6("eth0");
            host.ip(&["link", "set", "eth0", "address", &format!("02:00:00:00:00:0{number}"), "up"]);
            host.ip(&["address", "add", &format!("{}/24", v4(number)), "dev", "eth0"]);
            host.ip(&["-6", "address", "add", &format!("{}/64", v6(number)), "dev", "eth0", "nodad"]);
            let gateways = [format!("10.78.{number}.1"), format!("fd78:{number}::1")];
            for (family, gateway_ip) in ["-4", "-6"].into_iter().zip(&gateways) {
                let known = ["lladdr", &gateway, "dev", "eth0", "nud", "permanent"];
                host.ip(&[&[family, "neighbour", "replace", gateway_ip], &known[..]].concat());
                host.ip(&[family, "route", "add", "default", "via", gateway_ip]);
            }
        }
        for host in &hosts[1..] {
            host.ip(&["address", "add", &format!("{ANYWHERE}/32"), "dev", "lo"]);
        }
        let made = Self { hosts, folder: tempfile::tempdir().expect("a folder"), middle };
        let routes: Vec<String> = (0..3).map(|host| format!("Rfd78:{host}::/64 {host}")).collect();
        std::fs::write(made.path("v6"), routes.join("\n")).expect("a file");
        made.route_anywhere(1, 0);
        made
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Routes to the hosts, and [`ANYWHERE`] behind one of them; `more` others tell this version of the file from the last.
    fn route_anywhere(&self, host: usize, more: usize) {
        let hosts = (0..3).map(|host| format!("R10.78.{host}.0/24 {host}\n"));
        let others = (0..more).map(|net| format!("R192.0.2.{net}/32 0\n"));
        let all: String = hosts.chain([format!("R{ANYWHERE}/32 {host}\n")]).chain(others).collect();
        // Another file in its place: nobody sees half of one.
        std::fs::write(self.path("new"), all).expect("a file");
        std::fs::rename(self.path("new"), self.path("v4")).expect("renamed");
    }

    fn l3fwd(&self) -> Running {
        let program = app("l3fwd");
        let program = program.to_str().expect("a path in UTF-8");
        let devices = [0, 1, 2].map(|port| format!("net_af_packet{port},iface=port{port}"));
        let mut args = vec!["-l", "0", "--no-telemetry"];
        args.extend(devices.iter().flat_map(|device| ["--vdev", device]));
        let (v4, v6) = (self.path("v4"), self.path("v6"));
        args.extend([
            "--",
            "-T",
            "0",
            "--json",
            "--idle",
            "interrupt",
            "--rule_ipv4",
            &v4,
            "--rule_ipv6",
            &v6,
        ]);
        let mut running = Running::start(self.middle.command(program, &args));
        running.wait_for("forwarding");
        running
    }

    /// The numbers of the datagrams that come to [`ANYWHERE`] at a host, until nobody sends any more.
    fn receive(&self, host: usize, ended: &Arc<AtomicBool>) -> JoinHandle<Vec<u32>> {
        let ended = Arc::clone(ended);
        let (ready, listens) = std::sync::mpsc::channel();
        let receiver = self.hosts[host].enter(move || {
            let socket = UdpSocket::bind((ANYWHERE, 9000)).expect("bind");
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
            ready.send(()).expect("the test waits");
            let (mut numbers, mut datagram) = (Vec::new(), [0; 4]);
            loop {
                match socket.recv(&mut datagram) {
                    Ok(4) => numbers.push(u32::from_be_bytes(datagram)),
                    Ok(other) => panic!("a datagram of {other} bytes"),
                    // What was sent before has arrived by now, or is lost.
                    Err(_) if ended.load(Ordering::SeqCst) => return numbers,
                    Err(_) => {}
                }
            }
        });
        listens.recv().expect("the receiver listens");
        receiver
    }
}

fn dropped(report: &serde_json::Value, port: usize, reason: &str) -> u64 {
    report["ports"][port]["dropped"][reason].as_u64().unwrap_or(0)
}

/// A host's kernel tells of the multicast groups that it is in (IGMP, MLD) with one hop left, when it likes: so often at most.
const OWN_REPORTS: u64 = 8;

#[test]
fn hosts_of_three_networks_reach_each_other() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let networks = Networks::new();
    let running = networks.l3fwd();
    let hosts = &networks.hosts;
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        ping(&hosts[from], &["-4", "-c", "100", "-i", "0.002", &v4(to)], 100);
        ping(&hosts[from], &["-6", "-c", "100", "-i", "0.002", &v6(to)], 100);
        ping(&hosts[from], &["-4", "-c", "10", "-i", "0.01", "-M", "do", "-s", "1472", &v4(to)], 10);
    }
    let done = must(&mut hosts[0].command("ping", &["-c", "1", "-W", "2", &v4(2)]));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("ttl=63"), "one hop was taken off: {said}");
    transfer(&hosts[0], &hosts[2], &format!("{}:7001", v4(2)), 64);
    transfer(&hosts[1], &hosts[0], &format!("[{}]:7002", v6(0)), 16);
    // What has no hop left is dropped, and nobody is told.
    for (family, to) in [("-4", v4(1)), ("-6", v6(1))] {
        let lost =
            hosts[0].command("ping", &[family, "-c", "3", "-i", "0.01", "-W", "1", "-t", "1", &to]).output();
        assert_eq!(lost.expect("it runs").status.code(), Some(1), "{family}: no answer");
    }
    let done = running.interrupt();
    assert!(done.status.success(), "{}", done.stderr.join("\n"));
    let report = done.report();
    let expired = |port| dropped(&report, port, "ttl_expired");
    assert!((6..=6 + OWN_REPORTS).contains(&expired(0)), "{report}");
    assert!((1..3).all(|port| expired(port) <= OWN_REPORTS), "{report}");
    for port in 0..3 {
        assert_eq!(dropped(&report, port, "tx_full"), 0, "{report}");
        assert_eq!(
            dropped(&report, port, "ip_checksum") + dropped(&report, port, "ip_length"),
            0,
            "{report}"
        );
    }
}

#[test]
fn routes_change_under_a_flow_of_which_nothing_is_lost() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let networks = Networks::new();
    let mut running = networks.l3fwd();
    let ended = Arc::new(AtomicBool::new(false));
    let receivers = [1, 2].map(|host| networks.receive(host, &ended));
    let stop = Arc::new(AtomicBool::new(false));
    let sending = Arc::clone(&stop);
    let sender = networks.hosts[0].enter(move || {
        let socket = UdpSocket::bind((v4(0).as_str(), 0)).expect("bind");
        socket.connect((ANYWHERE, 9000)).expect("connect");
        let mut sent: u32 = 0;
        while !sending.load(Ordering::SeqCst) {
            socket.send(&sent.to_be_bytes()).expect("send");
            sent += 1;
            // A receiver that has no core for a while finds all of them in its queue.
            std::thread::sleep(Duration::from_millis(1));
        }
        sent
    });
    for change in 1..=4 {
        networks.route_anywhere(1 + change % 2, change);
        running.wait_for(&format!("rules taken over: {} IPv4 rules", 4 + change));
        std::thread::sleep(Duration::from_millis(100));
    }
    stop.store(true, Ordering::SeqCst);
    let sent = sender.join().expect("the sender");
    ended.store(true, Ordering::SeqCst);
    let [one, two] = receivers.map(|receiver| receiver.join().expect("a receiver"));
    assert!(one.len() > 50 && two.len() > 50, "{} and {}", one.len(), two.len());
    let mut all = [one, two].concat();
    all.sort_unstable();
    let end = running.interrupt();
    assert!(end.status.success(), "{}", end.stderr.join("\n"));
    let missing: Vec<u32> = (0..sent).filter(|number| all.binary_search(number).is_err()).collect();
    let ends = (missing.first(), missing.last());
    assert!(missing.is_empty(), "{} of {sent} lost, {ends:?}: {}", missing.len(), end.report());
    assert_eq!(all.len(), sent as usize, "none came twice");
}
