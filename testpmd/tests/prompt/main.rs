//! testpmd as a user runs it: its prompt, its output, its bad inputs.

mod attach;
mod dts;
mod engines;
mod regroup;
mod telemetry;
mod transcript;
mod typist;

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pollux_tests::{capture, thread};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use typist::{Typist, number, testpmd, two_cpus};

const NULLS: [&str; 6] = ["-l", "0,1", "--vdev", "net_null0", "--vdev", "net_null1"];

/// What it says to these lines, typed at its prompt.
fn typed(eal: &[&str], options: &[&str], lines: &str) -> Output {
    let mut command = testpmd(eal, &[&["-i"], options].concat());
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("testpmd");
    let mut input = child.stdin.take().expect("a pipe");
    let lines = lines.to_owned();
    let writer = std::thread::spawn(move || drop(input.write_all(lines.as_bytes())));
    let output = child.wait_with_output().expect("its end");
    writer.join().expect("a writer");
    output
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_engine_forwards_and_stops_and_the_queues_come_back() {
    if !two_cpus() {
        return;
    }
    let mut typist = Typist::start(&NULLS, &["--record-core-cycles", "--record-burst-stats"]);
    for mode in ["io", "mac", "macswap", "flowgen", "rxonly", "txonly", "csum", "icmpecho", "noisy", "5tswap"]
    {
        let set = typist.line(&format!("set fwd {mode}"));
        assert!(set.contains(&format!("Set {mode} packet forwarding mode")), "{set}");
        for _ in 0..2 {
            let started = typist.line("start");
            assert!(started.contains(&format!("{mode} packet forwarding - ports=2")), "{mode}: {started}");
            assert!(typist.line("start").contains("Packet forwarding already started"));
            typist.until("show fwd stats all", |said| {
                let all = said.split("Accumulated").nth(1).unwrap_or_default();
                number(all, "RX-packets: ") + number(all, "TX-packets: ") > 0
            });
            let stopped = typist.line("stop");
            assert!(
                stopped.contains("Done.") && stopped.contains(&format!("total {mode} packets=")),
                "{stopped}"
            );
        }
    }
    assert!(typist.line("stop").contains("Packet forwarding not started"));
    typist.quit();
}

/// A file received on port 0 leaves port 1 as the engine has it, byte for byte.
#[test]
fn what_leaves_is_what_the_engine_makes_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let frames: Vec<Vec<u8>> = (0..100u8).map(frame).collect();
    std::fs::write(&input, capture::capture(&frames)).expect("a file");
    let peer = [2, 0, 0, 0, 0, 0x77];
    let swapped = |frame: &[u8]| [&frame[6..12], &frame[..6], &frame[12..]].concat();
    type Make<'a> = Box<dyn Fn(&[u8]) -> Vec<u8> + 'a>;
    let table: [(&str, Make<'_>); 4] = [
        ("io", Box::new(|frame| frame.to_vec())),
        ("macswap", Box::new(swapped)),
        ("mac", Box::new(|frame| [&peer[..], &[0xaa; 6], &frame[12..]].concat())),
        (
            "5tswap",
            Box::new(|frame| {
                let mut frame = swapped(frame);
                frame[26..34].rotate_left(4);
                frame[34..38].rotate_left(2);
                frame
            }),
        ),
    ];
    for (mode, make) in &table {
        let device = |file: &std::path::Path, key: &str| format!("{key}={}", file.display());
        let source = format!("net_pcap0,{}", device(&input, "rx_pcap"));
        let sink = format!("net_pcap1,{}", device(&output, "tx_pcap"));
        let options = [
            &format!("--forward-mode={mode}") as &str,
            "--eth-peer=1,02:00:00:00:00:77",
            "--no-flush-rx",
            "--duration=2",
            "--json",
        ];
        let ran =
            testpmd(&["-l", "0", "--vdev", &source, "--vdev", &sink], &options).output().expect("testpmd");
        assert!(ran.status.success(), "{mode}: {}", String::from_utf8_lossy(&ran.stderr));
        let left = capture::frames(&std::fs::read(&output).expect("a file"));
        assert_eq!(left.len(), frames.len(), "{mode}");
        for (frame, left) in frames.iter().zip(&left) {
            let mut wanted = make(frame);
            if *mode == "mac" {
                wanted[6..12].copy_from_slice(&left[6..12]);
                assert_ne!(left[6..12], frame[6..12], "the address of the port");
            }
            assert_eq!(*left, wanted, "{mode}");
        }
        let last = String::from_utf8_lossy(&ran.stdout).into_owned();
        let report: serde_json::Value = serde_json::from_str(last.trim()).expect("one line of JSON alone");
        assert_eq!(report["ports"][0]["rx_packets"], 100, "{report}");
        assert_eq!(report["streams"][0]["tx_packets"], 100, "{report}");
        assert!(report["streams"][0]["latency_ns"]["p99"].as_u64().is_some(), "{report}");
    }
}

/// A UDP datagram with sums that are right.
fn frame(number: u8) -> Vec<u8> {
    use pollux_wire::build::Frame;
    let frame = Frame::ether([2, 0, 0, 0, 0, number], [4, 0, 0, 0, 0, number])
        .ipv4([10, 0, 0, number], [10, 1, 0, 9]);
    frame.udp(1000 + u16::from(number), 9).payload(b"some data").to_vec()
}

#[test]
fn ports_are_configured_anew_between_runs() {
    if !two_cpus() {
        return;
    }
    let lines = "port config all rxq 2\nport stop all\nport config all rxq 2\nport config all txq 2\nport config all rxd 256\n\
                 port start all\nshow config fwd\nshow rxq info 0 1\nstart\nport stop 0\nstop\nport stop 0\nport config 0 txq 1 ring_size 128\n\
                 port start 0\nshow txq info 0 1\nshow txq info 0 0\nstart\nstop\nport close all\nstart\nquit\n";
    let said = text(&typed(&NULLS, &[], lines));
    assert!(said.contains("Please stop all ports first"), "{said}");
    assert!(said.contains("cores=1 - streams=4"), "{said}");
    assert!(said.contains("Number of RXDs: 256"), "{said}");
    assert!(said.contains("Please remove port 0 from forwarding configuration."), "{said}");
    assert!(said.contains("Number of TXDs: 128") && said.contains("Number of TXDs: 1024"), "{said}");
    assert_eq!(said.matches("Done.\n").count(), 2, "{said}");
    assert!(said.contains("No stream:"), "nothing is left to forward between: {said}");
}

/// Between frames that come every 5 ms its lcore sleeps, and still does what is typed. How soon, the session's own tests time.
#[test]
fn an_lcore_that_sleeps_obeys_the_prompt() {
    if !two_cpus() {
        return;
    }
    let eal = ["-l", "0,1", "--vdev", "mlx5_model0,wire=source:64:200", "--vdev", "mlx5_model1,wire=null"];
    let options = ["--idle=interrupt", "--idle-after=0", "--no-flush-rx"];
    let mut typist = Typist::start(&eal, &options);
    let limit = pollux_tests::patience::patient(Duration::from_secs(2));
    let received = |more: u64| {
        move |said: &str| number(said.split("Accumulated").nth(1).unwrap_or_default(), "RX-packets: ") > more
    };
    for mode in ["io", "rxonly", "csum", "noisy"] {
        typist.line(&format!("set fwd {mode}"));
        typist.line("start");
        typist.until("show fwd stats all", received(20));
        let share = thread::share(typist.child.id(), "lcore-1", Duration::from_millis(500));
        assert!(share < 0.1, "{mode}: {share:.3} of a core for 200 packets a second");
        // A queue that is stopped tells of nothing; started again, it is waited for anew.
        for command in ["stop", "start"] {
            typist.line(&format!("port 0 rxq 0 {command}"));
            std::thread::sleep(Duration::from_millis(50));
        }
        let before = number(
            typist.line("show fwd stats all").split("Accumulated").nth(1).unwrap_or_default(),
            "RX-packets: ",
        );
        typist.until("show fwd stats all", received(before + 5));
        let begun = Instant::now();
        let stopped = typist.line("stop");
        assert!(stopped.contains("Done.") && begun.elapsed() < limit, "{:?}: {stopped}", begun.elapsed());
        assert!(typist.line("port stop all").contains("Done") && begun.elapsed() < 2 * limit);
        assert!(typist.line("port start all").contains("Done"));
    }
    // What makes packets has work though nothing arrives.
    typist.line("set fwd txonly");
    typist.line("start");
    typist.until("show fwd stats all", |said| {
        number(said.split("Accumulated").nth(1).unwrap_or_default(), "TX-packets: ") > 10_000
    });
    typist.line("stop");
    typist.quit();
}

/// Datagrams to a tunnel's port, made by one port and matched by the other. Their payload is zeros.
#[test]
fn rules_on_tunnels_count_what_arrives_in_them() {
    if !two_cpus() {
        return;
    }
    for engine in ["dv_flow_en=0", "dv_flow_en=1"] {
        for (port, ours, other) in
            [(4789, "vxlan vni is 0", "vxlan vni is 1"), (6635, "mpls label is 0", "mpls label is 1")]
        {
            let first = format!("mlx5_model0,wire=cable:t,has_mpls=1,{engine}");
            let eal = ["-l", "0,1", "--vdev", &first, "--vdev", "mlx5_model1,wire=cable:t"];
            let udp = format!("--tx-udp=9,{port}");
            let mut typist = Typist::start(&eal, &["--forward-mode=txonly", "--rxq=2", "--txq=2", &udp]);
            for (number, item) in [ours, other].iter().enumerate() {
                let actions = "actions count / queue index 1 / end";
                let line = format!("flow create 0 ingress pattern eth / ipv4 / udp / {item} / end {actions}");
                let said = typist.line(&line);
                assert!(said.contains(&format!("Flow rule #{number} created")), "{said}");
            }
            typist.line("start");
            typist.until("flow query 0 0 count", |said| number(said, " hits: ") > 0);
            typist.line("stop");
            assert_eq!(number(&typist.line("flow query 0 1 count"), " hits: "), 0, "{engine}: {other}");
            typist.quit();
        }
    }
}

/// Flow rules, RSS and checksums by the port, on the device model.
#[test]
fn the_drivers_features_are_reached_by_commands() {
    if !two_cpus() {
        return;
    }
    let eal = ["-l", "0,1", "--vdev", "mlx5_model0,wire=source:64", "--vdev", "mlx5_model1,wire=source:64"];
    let mut typist = Typist::start(&eal, &["--rxq=2", "--txq=2"]);
    let rule = "flow create 0 ingress pattern eth / ipv4 / udp / end actions count / queue index 1 / end";
    for (line, wanted) in [
        (rule, "Flow rule #0 created"),
        ("start", "streams=4"),
        ("flow list 0", "0\t0\t0\ti--\tETH IPV4 UDP => COUNT QUEUE"),
        (
            "flow validate 0 ingress pattern eth / end actions queue index 9 / end",
            "port_flow_complain(): Caught PMD error",
        ),
        ("show port 0 rss-hash", "RSS functions:\n  ipv4"),
        ("show port 0 rss reta 128 (0x3)", "RSS RETA configuration: hash index=1, queue=1"),
    ] {
        let said = typist.line(line);
        assert!(said.contains(wanted), "{line}: {said}");
    }
    typist.until("flow query 0 0 count", |said| number(said, " hits: ") > 0);
    for (line, wanted) in [
        ("stop", "Done."),
        ("flow destroy 0 rule 0", "Flow rule #0 destroyed"),
        ("flow destroy 0 rule 0", "Flow rule #0 not found"),
        ("mac_addr add 0 02:00:00:00:00:99", ""),
        ("show port 0 macs", "Number of MAC address added: 2"),
        ("port stop 0", "Done"),
        ("csum set udp hw 0", "UDP checksum offload is hw"),
        ("tso set 1000 0", "TSO segment size for non-tunneled packets is 1000"),
        ("tx_vlan set 0 5", ""),
        ("port start 0", "Configuring Port 0"),
        ("show port 0 tx_offload configuration", "VLAN_INSERT"),
        ("set fwd csum", "Set csum packet forwarding mode"),
        ("start", "csum packet forwarding"),
        ("stop", "Done."),
        ("port 0 rxq 1 stop", ""),
        ("show rxq info 0 1", "Rx queue state: stopped"),
    ] {
        let said = typist.line(line);
        assert!(said.contains(wanted), "{line}: {said}");
    }
    typist.quit();
}

/// What DPDK's own test suite looks for (`dts/api/testpmd/types.py`, `dts/api/testpmd/__init__.py`).
#[test]
fn output_has_what_dpdks_test_suite_reads() {
    let lines = "show port info all\nshow port stats all\nshow device info all\nset fwd mac\nset verbose 1\nset promisc all on\n\
                 show rxq info 0 0\nshow port 0 rx_offload capabilities\nclear port stats all\nmac_addr add 0 02:00:00:00:00:01:02\nquit\n";
    let said = text(&typed(&["-l", "0", "--vdev", "net_null0"], &[], lines));
    for wanted in [
        "********************* Infos for port 0  *********************",
        "Device name: net_null0\nDriver name: net_null\n",
        "Connect to socket: 0\n",
        "Link status: up\nLink speed: 10 Gbps\nLink duplex: full-duplex\nAutoneg status: Off\n",
        "VLAN offload: \n  strip off, filter off, extend off, qinq strip off\n",
        "Current number of RX queues: 1\nMax possible RX queues: 1024\n",
        "Max segment number per MTU/TSO: ",
        "Device capabilities: 0x0( )",
        "Device error handling mode: none",
        "Device private info:\n",
        "######################## NIC statistics for port 0  ########################",
        "Rx-pps:            0          Rx-bps:            0",
        "Set mac packet forwarding mode",
        "Change verbose level from 0 to 1",
        "Rx queue state: started",
        "Rx Offloading Capabilities of port 0 :\n  Per Queue :",
        "NIC statistics for port 0 cleared",
        "Bad arguments",
        "Port 0 is closed",
        "Bye...",
    ] {
        assert!(said.contains(wanted), "no {wanted:?} in {said}");
    }
}

#[test]
fn options_that_cannot_be_are_one_line() {
    for (options, wanted) in [
        (&["--burst=65"][..], "--burst"),
        (&["--forward-mode=fast"], "io, mac, macswap"),
        (&["--nb-cores=9"], "option '--nb-cores': 9: there are 1"),
        (&["--portmask=0x8"], "option '--portmask': port 3 is not there"),
        (&["--portlist=0,0"], "names port 0 twice"),
        (&["--txpkts=20"], "first segment of 20 bytes: must hold the headers of 42 bytes"),
        (&["--forward-mode=txonly", "--txpkts=4000"], "segment of 4000 bytes: must be between 1 and 2048"),
        (
            &["--forward-mode=flowgen", "--txpkts=2000,1000"],
            "packet of 2996 bytes: flowgen makes one segment",
        ),
        (&["--noisy-lkup-num-reads=1"], "--noisy-lkup-memory"),
        (&["--rxq=0"], "from 1 to 1024"),
        (&["--rxq=2000"], "from 1 to 1024"),
        (&["--eth-peer=0"], "02:00:00:00:00:01"),
        (&["--cmdline-file=/nowhere/at/all"], "/nowhere/at/all"),
        (&["--rx-offloads=0x8000000"], "offload"),
    ] {
        let output = testpmd(&["-l", "0", "--vdev", "net_null0"], options).output().expect("testpmd");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.status.code().is_some(), "{options:?}: {}", output.status);
        assert!(said.contains(wanted), "{options:?}: {said}");
        assert!(!said.contains("panicked"), "{options:?}: {said}");
    }
}

/// The last line of a run without a prompt.
fn report(eal: &[&str], options: &[&str]) -> serde_json::Value {
    let ran = testpmd(eal, &[options, &["--duration=1", "--json"]].concat()).output().expect("testpmd");
    assert!(ran.status.success(), "{options:?}: {}", String::from_utf8_lossy(&ran.stderr));
    serde_json::from_slice(&ran.stdout).expect("one line of JSON alone")
}

#[test]
fn packets_as_long_as_an_mbuf_are_made() {
    for mode in ["txonly", "flowgen"] {
        let mode = format!("--forward-mode={mode}");
        let options = [&mode as &str, "--mbuf-size=8192", "--txpkts=4000"];
        let report = report(&["-l", "0", "--vdev", "net_null0"], &options);
        assert!(report["streams"][0]["tx_packets"].as_u64() > Some(0), "{mode}: {report}");
    }
}

/// Packets that `noisy` keeps wait for as many rounds as it keeps bursts, and their latency says so.
#[test]
fn kept_packets_have_the_latency_of_their_wait() {
    let median = |kept: &str| {
        let options = ["--forward-mode=noisy", "--total-num-mbufs=50000", kept];
        let report = report(&["-l", "0", "--vdev", "net_null0"], &options);
        report["streams"][0]["latency_ns"]["p50"].as_u64().unwrap_or_else(|| panic!("{report}"))
    };
    let (at_once, kept) = (median("--noisy-tx-sw-buffer-size=0"), median("--noisy-tx-sw-buffer-size=32000"));
    assert!(kept > 20 * at_once, "1000 bursts are kept: {kept} ns, {at_once} ns where none are");
}

#[test]
fn a_signal_ends_the_prompt_with_the_statistics() {
    let mut typist = Typist::start(&["-l", "0", "--vdev", "net_null0"], &["-a"]);
    let killed = Command::new("kill").args(["-TERM", &typist.child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    // Its input stays open: it must not wait for that.
    let mut said = String::new();
    typist.output.read_to_string(&mut said).expect("a pipe");
    assert!(typist.child.wait().expect("its end").success());
    assert!(said.contains("Accumulated forward statistics") && said.contains("Bye..."), "{said}");
}

/// Words of the grammar in any order, and things that are none.
#[test]
fn ten_thousand_lines_are_obeyed_or_refused() {
    let words: Vec<String> = {
        let table = pollux_testpmd::command::table();
        let syntax = table.iter().flat_map(|command| command.syntax.split([' ', '|', '(', ')']));
        let mut words: Vec<String> = syntax.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        words.extend(
            [
                "0",
                "1",
                "9",
                "-1",
                "65536",
                "0x3",
                "18446744073709551616",
                "all",
                "\u{1f980}",
                "(0,1)",
                "((",
                "02:00:00:00:00:01",
                "end",
                "/",
                "eth",
                "ipv4",
                "is",
                "drop",
                "64,64",
                "#",
                "10.0.0.1",
            ]
            .map(str::to_owned),
        );
        // These end the session, or read files; they have tests of their own.
        words.retain(|word| !matches!(word.as_str(), "quit" | "load" | "close"));
        words
    };
    let mut runner =
        TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]));
    let any = proptest::collection::vec(proptest::sample::select(words), 1..8);
    // Whole commands, some words of which are others.
    let table = pollux_testpmd::command::table();
    let whole: Vec<String> = table
        .iter()
        .filter(|command| !["quit", "load", "close"].iter().any(|word| command.syntax.contains(word)))
        .map(|command| {
            let words = command.syntax.split(' ').map(|word| match word.as_bytes()[0] {
                b'(' => word.trim_matches(['(', ')']).split('|').next().unwrap_or_default(),
                b'<' => "1",
                _ => word,
            });
            words.collect::<Vec<_>>().join(" ")
        })
        .collect();
    let mutated = (
        proptest::sample::select(whole),
        0..12usize,
        proptest::sample::select(vec!["", "0", "all", "x", "99999999999", "(", "on"]),
    )
        .prop_map(|(line, place, word)| {
            let words = line.split(' ').enumerate().map(|(at, own)| if at == place { word } else { own });
            words.collect::<Vec<_>>().join(" ")
        });
    let (mut lines, mut count) = (String::new(), 0);
    while count < 10_000 {
        let line = match count % 2 {
            0 => any.new_tree(&mut runner).expect("words").current().join(" "),
            _ => mutated.new_tree(&mut runner).expect("a line").current(),
        };
        // Bursts without number would only take time.
        if line.starts_with("start tx_first") || line.contains("vlan add all") || line.contains("vlan rm all")
        {
            continue;
        }
        lines += &line;
        lines.push('\n');
        count += 1;
    }
    let begin = Instant::now();
    let output = typed(
        &["-l", "0", "--vdev", "net_null0", "--vdev", "net_null1"],
        &[],
        &(lines + "stop\nstart\nstop\nquit\n"),
    );
    let said = text(&output);
    assert!(begin.elapsed() < Duration::from_secs(300));
    assert!(!said.contains("panicked") && !String::from_utf8_lossy(&output.stderr).contains("panicked"));
    assert!(said.matches("testpmd> ").count() >= 10_000);
    assert!(said.trim_end().ends_with("Bye..."));
}
