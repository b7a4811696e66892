//! DPDK as it is, on devices of `mlx5-run`: its own mlx5 driver writes the send entries and reads the completions.

mod filter;
mod lane;
mod mode;
mod packet;
mod release;
mod restart;
mod rule;
mod testpmd;

use std::time::Duration;

use testpmd::{Start, Testpmd, number};

/// How DPDK makes queues and rules: by verbs, or by DevX with rules in the root table.
const WAYS: [&str; 2] = ["dv_flow_en=0", "dv_flow_en=1"];
/// Frames that testpmd sends first, from each queue.
const FIRST: u64 = 32;

/// What a port counted between `start` and `stop`: received and sent.
fn forwarded(report: &str, port: usize) -> [u64; 2] {
    let title = format!("Forward statistics for port {port} ");
    let (_, behind) = report.split_once(&title).unwrap_or_else(|| panic!("no {title}in {report}"));
    ["RX-packets:", "TX-packets:"].map(|word| number(behind, word))
}

/// Lets frames go round over a cable, and holds what both ports counted against each other.
fn circulate(card: &str, device: &str, options: &[&str], queues: u64) {
    circulate_on(&Start { card, device, options, ..Start::default() }, queues);
}

/// The same; on what wires is said here.
fn circulate_on(start: &Start<'_>, queues: u64) {
    let Start { card, device, options, .. } = *start;
    let mut testpmd = Testpmd::start(&Start { wires: &["cable:a", "cable:a"], ..*start });
    // Cards from ConnectX-5 on take many packets in a send entry.
    let (queue, packs) = (testpmd.tell("show txq info 0 0"), card != "cx4lx");
    assert_eq!(queue.contains("Burst mode: Enhanced MPW"), packs, "{card}: {queue}");
    testpmd.tell("start tx_first");
    std::thread::sleep(Duration::from_millis(500));
    let report = testpmd.tell("stop");
    let [there, back] = [0, 1].map(|port| forwarded(&report, port));
    // What is under way at the end has been sent, and is not received.
    for ([_, sent], [received, _]) in [(there, back), (back, there)] {
        assert!(received > 10 * FIRST, "{device} {options:?}: {report}");
        assert!((received..=received + 2 * FIRST * queues).contains(&sent), "{device} {options:?}: {report}");
    }
    // The interface tells what the model counted: all that testpmd sent goes onto the cable, which keeps what finds no room yet.
    let ports = [0, 1].map(|port| {
        let sent = forwarded(&report, port)[1];
        let is_sent = |told: &str| number(told, "tx_phy_packets: ") == sent;
        testpmd.tell_until(&format!("show port xstats {port}"), is_sent)
    });
    for (one, other) in [(0, 1), (1, 0)] {
        let [sent, received] = [forwarded(&report, one)[1], number(&ports[other], "rx_phy_packets: ")];
        assert!(received >= forwarded(&report, other)[0], "{}", ports[other]);
        assert!((received..=received + FIRST * queues).contains(&sent), "{sent}: {}", ports[other]);
        assert_eq!(number(&ports[other], "rx_phy_bytes: "), 64 * received, "{}", ports[other]);
        assert_eq!(number(&ports[other], "rx_out_of_buffer: "), 0);
    }
    testpmd.quit();
}

#[test]
fn frames_go_round_over_a_cable() {
    if !release::is_there() {
        return;
    }
    for way in WAYS {
        for card in ["cx4lx", "cx5", "cx6dx", "cx7"] {
            circulate(card, way, &["--forward-mode=io"], 1);
        }
        circulate("", way, &["--forward-mode=macswap", "--rxq=2", "--txq=2"], 2);
    }
}

/// The same where the devices are in another process, which reaches testpmd's memory by system calls.
#[test]
fn frames_go_round_over_a_daemons_cable() {
    if !release::is_there() {
        return;
    }
    for way in WAYS {
        for (options, queues) in
            [(&["--forward-mode=io"][..], 1), (&["--forward-mode=csum", "--rxq=2", "--txq=2"], 2)]
        {
            circulate_on(&Start { device: way, options, attached: true, ..Start::default() }, queues);
        }
    }
}

#[test]
fn many_packets_share_a_receive_entry() {
    if !release::is_there() {
        return;
    }
    for way in WAYS {
        let device = format!("{way},mprq_en=1,rxqs_min_mprq=1");
        circulate("", &device, &["--forward-mode=io"], 1);
        let mut testpmd = Testpmd::start(&Start { wires: &["null"], device: &device, ..Start::default() });
        let queue = testpmd.tell("show rxq info 0 0");
        assert!(queue.contains("Burst mode: MPRQ"), "{queue}");
        testpmd.quit();
    }
}

#[test]
fn flows_spread_over_queues() {
    if !release::is_there() {
        return;
    }
    for way in WAYS {
        let options = ["--forward-mode=rxonly", "--rxq=4", "--txq=4", "--rss-udp"];
        let wires = ["source:64:50000"];
        let mut testpmd =
            Testpmd::start(&Start { wires: &wires, device: way, options: &options, ..Start::default() });
        testpmd.tell("start");
        std::thread::sleep(Duration::from_millis(300));
        testpmd.tell("stop");
        let counts = testpmd.tell("show port xstats 0");
        // The source's 64 flows: each queue has some of them.
        let queues = [0, 1, 2, 3].map(|queue| number(&counts, &format!("rx_q{queue}_packets: ")));
        assert!(queues.into_iter().all(|count| count > 500), "{way}: {counts}");
        assert_eq!(queues.iter().sum::<u64>(), number(&counts, "rx_good_packets: "));
        testpmd.quit();
    }
}

#[test]
fn what_the_port_found_out_about_packets_is_told() {
    if !release::is_there() {
        return;
    }
    let bed = tempfile::tempdir().expect("a folder");
    let path = bed.path().join("in.pcap");
    packet::write(&path, &packet::all());
    let wire = format!("pcap:{}:", path.display());
    for way in WAYS {
        let options = ["--forward-mode=rxonly", "--enable-rx-cksum", "--enable-hw-vlan-strip"];
        let mut testpmd =
            Testpmd::start(&Start { wires: &[&wire], device: way, options: &options, ..Start::default() });
        testpmd.tell("set verbose 1");
        // The other lcore talks between the words of the prompt.
        testpmd.give("start");
        testpmd.until("type=0x0806");
        testpmd.until("  ol_flags: RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN ");
        testpmd.tell("stop");
        let said = testpmd.quit();
        let packets: Vec<&str> = said.split("src=").skip(1).collect();
        let [plain, tagged, bad_header, bad_data, other] = packets[..] else { panic!("{way}: {said}") };
        let says = |packet: &str, words: &[&str]| {
            for word in words {
                assert!(packet.contains(word), "{way}: no {word} in {packet}");
            }
        };
        let (ip, l4) = ("RTE_MBUF_F_RX_IP_CKSUM_", "RTE_MBUF_F_RX_L4_CKSUM_");
        let marks = |ip_is: &str, l4_is: &str| [format!("{ip}{ip_is} "), format!("{l4}{l4_is} ")];
        for (packet, ip_is, l4_is) in [
            (plain, "GOOD", "GOOD"),
            (tagged, "GOOD", "GOOD"),
            // The driver knows of good ones only.
            (bad_header, "UNKNOWN", "GOOD"),
            (bad_data, "GOOD", "UNKNOWN"),
            (other, "UNKNOWN", "UNKNOWN"),
        ] {
            let [ip_mark, l4_mark] = marks(ip_is, l4_is);
            says(packet, &[&ip_mark, &l4_mark]);
        }
        says(plain, &["02:00:00:00:00:09 - dst=02:11:22:33:44:55", "type=0x0800 - length=106 ", "L4_UDP"]);
        // The tag is taken off, and told.
        says(tagged, &["VLAN tci=0x2005", "RTE_MBUF_F_RX_VLAN_STRIPPED", "type=0x0800 - length=106 "]);
        says(other, &["type=0x0806 - length=60 "]);
    }
}

#[test]
fn checksums_are_made_on_the_way_out() {
    if !release::is_there() {
        return;
    }
    let bed = tempfile::tempdir().expect("a folder");
    let [from, to] = ["in.pcap", "out.pcap"].map(|name| bed.path().join(name));
    packet::write(&from, &packet::all());
    let wires = [format!("pcap:{}:", from.display()), format!("pcap::{}", to.display())];
    for way in WAYS {
        // IPv4's checksum, and UDP's and TCP's.
        let options = ["--forward-mode=csum", "--enable-rx-cksum", "--tx-offloads=0xe"];
        let start =
            Start { wires: &[&wires[0], &wires[1]], device: way, options: &options, ..Start::default() };
        let mut testpmd = Testpmd::start(&start);
        testpmd.tell("start");
        testpmd.tell_until("show port stats 1", |told| number(told, "TX-packets:") == 5);
        testpmd.tell("stop");
        testpmd.quit();
        let sent = packet::read(&to);
        // What was wrong is right; the addresses are testpmd's own.
        let wanted = [packet::udp(), packet::tagged(), packet::udp(), packet::udp(), packet::other()];
        assert_eq!(sent.len(), wanted.len(), "{way}");
        for (sent, wanted) in sent.iter().zip(&wanted) {
            assert_eq!(sent[12..], wanted[12..], "{way}");
        }
    }
}

#[test]
fn the_interface_tells_of_the_port_and_changes_it() {
    if !release::is_there() {
        return;
    }
    let start = Start { wires: &["cable:a", "cable:a"], device: WAYS[0], ..Start::default() };
    let mut testpmd = Testpmd::start(&start);
    let up =
        |port: usize| move |told: &str| told.lines().any(|line| is_port(line, port, "up       100 Gbps"));
    let down = |port: usize| move |told: &str| told.lines().any(|line| is_port(line, port, "down     "));
    testpmd.tell_until("show port summary all", |told| up(0)(told) && up(1)(told));
    // The driver goes by what it is told of, without asking.
    testpmd.tell("set link-down port 1");
    testpmd.tell_until("show port summary all", |told| up(0)(told) && down(1)(told));
    testpmd.tell("set link-up port 1");
    testpmd.tell_until("show port summary all", |told| up(0)(told) && up(1)(told));
    testpmd.tell("port stop 0");
    testpmd.tell("port config mtu 0 3000");
    testpmd.tell("port start 0");
    let told = testpmd.tell("show port info 0");
    assert!(told.contains("MTU: 3000") && told.contains("Firmware-version: 22.41.1000"), "{told}");
    let refused = testpmd.tell("port config mtu 1 9979");
    assert!(
        !refused.contains("MTU: 9979") && testpmd.tell("show port info 1").contains("MTU: 1500"),
        "{refused}"
    );
    let said = testpmd.quit();
    assert_eq!(said.matches("Port 1: link state change event").count(), 2, "{said}");
    assert!(!said.contains("Port 0: link state change event"), "{said}");
}

fn is_port(line: &str, port: usize, state: &str) -> bool {
    line.starts_with(&format!("{port} ")) && line.contains(state)
}
