//! The raw Ethernet tests: frames between two processes, as a capture shows them, and mistakes.

use std::process::Command;

use pollux_tests::program::{Finished, Running};
use pollux_tests::require::{Need, require};

use super::place::{LIMIT, Place, SIGINT, line, report};

const BANDWIDTH: &str = env!("CARGO_BIN_EXE_raw_ethernet_bw");
const LATENCY: &str = env!("CARGO_BIN_EXE_raw_ethernet_lat");
const BURST: &str = env!("CARGO_BIN_EXE_raw_ethernet_burst_lat");
const SERVER: &str = "--server -B 02:00:00:00:00:0a -E 02:00:00:00:00:0b";
const CLIENT: &str = "--client -B 02:00:00:00:00:0b -E 02:00:00:00:00:0a";
const UDP: &str = "-J 10.0.0.1 -j 10.0.0.2 -K 5000 -k 6000";

/// Starts the server, and the client once the server has posted its receives.
fn pair(program: &str, server: &str, client: &str) -> [Finished; 2] {
    pair_on("", program, server, client)
}

/// The same on devices that are made with these keys too.
fn pair_on(keys: &str, program: &str, server: &str, client: &str) -> [Finished; 2] {
    let place = Place::new();
    let start = |ends, words: &str| {
        let mut command = place.command(program, ends, keys);
        command.args(words.split_whitespace());
        Running::start(command)
    };
    let mut server = start(["a", "b"], &format!("{SERVER} {server}"));
    server.wait_for("#bytes");
    let client = start(["b", "a"], &format!("{CLIENT} {client}")).finish(LIMIT);
    [server.finish(LIMIT), client]
}

/// The device itself sends no faster; the program posts what goes into the queue.
#[test]
fn the_device_holds_queue_pairs_to_a_rate() {
    let limit = "--rate_limit 2 --rate_units M --rate_limit_type PP";
    for options in ["-n 1000 -s 1000", "-n 500 -s 1000 -q 2 UDP"] {
        let options = options.replace("UDP", UDP);
        let [server, client] = pair(BANDWIDTH, &options, &format!("{options} {limit}"));
        let pairs = if options.contains("-q 2") { 2.0 } else { 1.0 };
        for end in [&server, &client] {
            let average = report(end)["results"][0]["BW_average"].as_f64().expect("a figure");
            // 2 * 8 * 1024 kbit/s are 1.95 MiB/s; what the first burst has in advance counts as well.
            assert!((1.5..2.4).contains(&(average / pairs)), "{options}: {average}");
        }
    }
    let place = Place::new();
    let mut command = place.command(BANDWIDTH, ["a", "b"], "");
    let beyond = limit.replace("--rate_limit 2", "--rate_limit 1000000");
    command.args(format!("{CLIENT} -n 100 {beyond}").split_whitespace());
    let end = Running::start(command).finish(LIMIT);
    let said = end.stderr.last().expect("a line");
    assert_eq!(end.status.code(), Some(2), "{said}");
    assert!(said.contains("--rate_limit 1000000: mlx5_model0 limits QPs to rates from "), "{said}");
}

#[test]
fn frames_come_to_whom_they_are_for() {
    for (options, iterations) in [
        ("-n 300", 300),
        ("-n 300 -s 200 -I 220 -l 10", 300),
        ("-n 200 -s 128 --vlan_en --vlan_pcp 8 UDP", 200),
        ("-n 200 -s 1000 --tcp --promiscuous UDP", 200),
        ("-n 200 -s 100 --raw_ipv6 -J fd00::1 -j fd00::2 -K 5000 -k 6000", 200),
        ("-n 240 -s 100 --flows 4 --flows_burst 2 UDP", 240),
        ("-n 200 -s 100 --flows 4 --flow_label 9,8,7 --raw_ipv6 -J fd00::1 -j fd00::2 -K 5000 -k 6000", 200),
        ("-n 100 -s 100 -q 2 UDP", 100),
        ("-n 200 -s 100 -Y 0x88b5", 200),
        ("-n 200 -s 100 --raw_mcast -J 239.1.2.3 -j 10.0.0.2 -K 5000 -k 6000", 200),
        ("-n 200 -s 300 -b -e", 200),
    ] {
        let options = options.replace("UDP", UDP);
        let [server, client] = pair(BANDWIDTH, &options, &options);
        let (server, client) = (report(&server), report(&client));
        let queues = if options.contains("-q 2") { 2 } else { 1 };
        for end in [&server, &client] {
            assert_eq!(end["app"], "raw_ethernet_bw");
            assert_eq!(end["results"][0]["n_iterations"], iterations * queues, "{options}: {end}");
            assert!(end["results"][0]["BW_average"].as_f64().is_some_and(|average| average > 0.0), "{end}");
        }
    }
}

#[test]
fn cards_that_want_headers_in_the_entry_send_frames() {
    for options in ["-n 300", "-n 300 -I 220 -s 200", "-n 200 -s 1000 --tcp UDP"] {
        let options = options.replace("UDP", UDP);
        for end in pair_on(",device=cx4lx", BANDWIDTH, &options, &options) {
            let row = &report(&end)["results"][0];
            assert!(row["n_iterations"].as_u64().is_some_and(|count| count >= 200), "{row}");
        }
    }
}

/// A copy of each frame comes beside the frame itself.
#[test]
fn a_sniffer_gets_all_frames_again() {
    let [server, client] = pair_on(",has_sniffer=1", BANDWIDTH, "--sniffer -n 400", "-n 200");
    for (end, count) in [(server, 400), (client, 200)] {
        assert_eq!(report(&end)["results"][0]["n_iterations"], count);
    }
}

#[test]
fn frames_are_spread_over_queues() {
    for (kind, ips) in [("", "-J 10.0.0.1 -j 10.0.0.2"), ("--raw_ipv6 --tcp", "-J fd00::1 -j fd00::2")] {
        let server = format!("-G -q 4 -n 100 -s 128 {kind} {ips} -K 5000 -k 6000");
        // Nobody told the server of these ports.
        let client = format!("-n 400 -s 128 {kind} --flows 40 {ips} -K 5100 -k 6900");
        let [server, client] = pair(BANDWIDTH, &server, &client);
        let row = &report(&server)["results"][0];
        let counts: Vec<u64> = row["frames_by_queue"]
            .as_array()
            .expect("a count each")
            .iter()
            .map(|count| count.as_u64().expect("a number"))
            .collect();
        assert_eq!((counts.len(), counts.iter().sum::<u64>()), (4, 400), "{row}");
        // Flows are of ten frames each, and go to one queue whole. Their two ports rise together, and Linux asks for a hash of
        // source and destination taken together: there are but few.
        let met = counts.iter().filter(|count| **count > 0).count();
        assert!(counts.iter().all(|count| count % 10 == 0) && met > 1, "{counts:?}");
        assert_eq!(report(&client)["results"][0]["n_iterations"], 400);
    }
}

#[test]
fn what_was_sent_comes_back() {
    let [server, client] = pair(BANDWIDTH, "-v -n 200 -s 100", "-b -n 200 -s 100");
    for end in [&server, &client] {
        assert_eq!(report(end)["results"][0]["n_iterations"], 200);
    }
    let text = server.stderr.join("\n");
    assert!(text.contains("Send Bidirectional BW forwarding Test"), "{text}");
    assert!(text.contains(" Connection type : RawEth\t\tUsing SRQ      : OFF"), "{text}");
    assert!(text.contains("MAC attached  : 02:00:00:00:00:0A"), "{text}");

    for options in ["-n 100", "-n 60 -s 300 --flows 3 UDP"] {
        let options = options.replace("UDP", UDP);
        let [server, client] = pair(LATENCY, &options, &options);
        for end in [&server, &client] {
            let row = &report(end)["results"][0];
            assert!(
                row["t_min"].as_f64() > Some(0.0) && row["t_min"].as_f64() <= row["t_max"].as_f64(),
                "{row}"
            );
        }
        assert!(client.stderr.join("\n").contains("Send Latency Test"));
    }
}

/// How many samples `-U` shows.
fn samples(end: &Finished) -> usize {
    let lines = end.stderr.iter().skip_while(|line| !line.starts_with("#, usec")).skip(1);
    lines.take_while(|line| line.split_once(", ").is_some()).count()
}

#[test]
fn frames_of_bursts_are_answered() {
    for (options, iterations, answers) in [
        ("-n 300", 300, 300),
        // More than is under way at once, and answers that wait for room.
        ("-n 2000 -t 8 -I 64", 2000, 2000),
        ("-n 305 -s 200 --reply_every 10", 305, 30),
        ("-n 300 -t 4 --burst_size 3 --reply_every 7 -s 1000 UDP", 300, 42),
        ("-n 320 -l 8 -t 32 --recv_post_list 4 --burst_size 16", 320, 320),
        ("-n 200 --burst_size 20 --rate_limit 5000 --rate_units p", 200, 200),
        ("-n 60 -s 300 --flows 3 UDP", 60, 60),
    ] {
        let options = options.replace("UDP", UDP);
        let [server, client] = pair(BURST, &options, &format!("{options} -U"));
        let row = &report(&client)["results"][0];
        assert_eq!(row["n_iterations"], iterations, "{options}: {row}");
        assert!(row["t_min"].as_f64() > Some(0.0) && row["t_min"].as_f64() <= row["t_max"].as_f64(), "{row}");
        assert_eq!(samples(&client), answers, "{options}: {}", client.stderr.join("\n"));
        // Who answers measures nothing.
        assert_eq!(report(&server)["results"], serde_json::json!([]), "{options}");
        for end in [&server, &client] {
            let text = end.stderr.join("\n");
            // As the original, which has neither a word for the test nor its moderation.
            assert!(text.contains("                    Send Test"), "{text}");
            assert!(text.contains(" TX depth        : ") && !text.contains("CQ Moderation"), "{text}");
        }
    }
}

#[test]
fn a_burst_goes_at_once_and_the_next_one_when_the_rate_allows() {
    let options = "-n 20 --burst_size 10 --rate_limit 10 --rate_units p";
    let [_, client] = pair(BURST, "-n 20", options);
    let seconds = report(&client)["seconds"].as_f64().expect("a number");
    // Two bursts, a second apart; frames that go one by one take 1.9.
    assert!((0.99..1.8).contains(&seconds), "{seconds}");
}

#[test]
fn ends_that_differ_about_answers_end_in_one_line() {
    for (server, client, expected) in [
        (
            "",
            // Slowly: a client that has sent all frames ends with as many answers as it asked for, and sees none too many.
            "--reply_every 10 --burst_size 10 --rate_limit 1000 --rate_units p",
            "more answers than --reply_every 10 asks for: give both ends the same --reply_every",
        ),
        // Too few of them: the client waits as long as it was told to.
        ("--reply_every 10", "--peer-timeout 1", "nothing received for 1 seconds"),
    ] {
        let place = Place::new();
        let start = |ends, words: &str| {
            let mut command = place.command(BURST, ends, "");
            command.args(format!("-n 400 {words}").split_whitespace());
            Running::start(command)
        };
        let mut server = start(["a", "b"], &format!("{SERVER} {server}"));
        server.wait_for("#bytes");
        let client = start(["b", "a"], &format!("{CLIENT} {client}")).finish(LIMIT);
        assert!(line(&client).contains(expected), "{}", line(&client));
    }
}

#[test]
fn a_client_without_a_peer_prints_that_alone() {
    for (program, options) in [
        (BANDWIDTH, ""),
        (BANDWIDTH, "-s 1500 -J 10.0.0.1 -j 10.0.0.2"),
        (LATENCY, ""),
        (BURST, "-s 1500 --rate_limit 1"),
    ] {
        let place = Place::new();
        let mut command = place.command(program, ["a", "b"], "");
        command.args(format!("{CLIENT} {options}").split_whitespace());
        let end = Running::start(command).finish(LIMIT);
        assert!(line(&end).contains("port 1 of mlx5_model0 is down: no peer on its wire"), "{}", line(&end));
        assert_eq!(end.messages().len(), 1, "{}", end.stderr.join("\n"));
    }
}

#[test]
fn a_run_without_an_end_tells_of_one_period_after_the_other() {
    for options in
        ["-s 512", "-s 512 -t 16 -Q 4", "-s 512 -l 8 -t 32 -q 2 -J 10.0.0.1 -j 10.0.0.2 -K 5000 -k 6000"]
    {
        let place = Place::new();
        let start = |ends, words: &str| {
            let mut command = place.command(BANDWIDTH, ends, "");
            command.args(format!("{words} {options} --run_infinitely -D 1").split_whitespace());
            Running::start(command)
        };
        let mut server = start(["a", "b"], SERVER);
        server.wait_for("#bytes");
        let mut client = start(["b", "a"], CLIENT);
        client.wait_for("#bytes");
        std::thread::sleep(std::time::Duration::from_millis(4500));
        for end in [client, server] {
            end.signal(SIGINT);
            let end = end.finish(LIMIT);
            assert_eq!(end.status.code(), Some(0), "{options}: {:#?}", end.stderr);
            assert!(super::rows(&end) >= 3, "{options}: {:#?}", end.stderr);
        }
    }
}

#[test]
fn a_server_gives_up_where_it_was_told_to() {
    let place = Place::new();
    let mut command = place.command(BANDWIDTH, ["a", "b"], "");
    command.args(format!("{SERVER} --peer-timeout 1").split_whitespace());
    let mut server = Running::start(command);
    server.wait_for("#bytes");
    let mut command = place.command(LATENCY, ["b", "a"], "");
    command.args(SERVER.split_whitespace());
    // Somebody is on the wire, and says nothing.
    let _other = Running::start(command);
    let server = server.finish(LIMIT);
    assert!(line(&server).contains("nothing received for 1 seconds"), "{}", line(&server));
}

#[test]
fn a_server_waits_until_it_is_stopped() {
    let place = Place::new();
    let mut command = place.command(BANDWIDTH, ["a", "b"], "");
    command.args(SERVER.split_whitespace());
    let mut server = Running::start(command);
    server.wait_for("#bytes");
    server.signal(SIGINT);
    assert_eq!(server.finish(LIMIT).status.code(), Some(0));
}

/// An independent reader sees what was asked for.
#[test]
fn frames_are_what_tshark_says() {
    if !require(&[Need::Tshark]) {
        return;
    }
    let place = Place::new();
    let file = place.folder.path().join("sent.pcap");
    let read = |options: &str, fields: &[&str]| {
        let mut command = Command::new(BANDWIDTH);
        let device = format!("mlx5_model0,wire=pcap::{}", file.display());
        command.args(["-l", "0", "--vdev", &device, "--"]);
        command.args(format!("{CLIENT} {options}").split_whitespace());
        let end = Running::start(command).finish(LIMIT);
        assert_eq!(end.status.code(), Some(0), "{}", end.stderr.join("\n"));
        let mut tshark = Command::new("tshark");
        tshark.args(["-r"]).arg(&file).args([
            "-o",
            "udp.check_checksum:TRUE",
            "-o",
            "tcp.check_checksum:TRUE",
        ]);
        tshark.args(["-o", "ip.check_checksum:TRUE", "-T", "fields"]);
        for field in fields {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().expect("tshark runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let lines = read(
        &format!("-n 8 -s 128 --vlan_pcp 8 --flows 2 --hop_limit 9 -T 16 {UDP}"),
        &[
            "eth.src",
            "eth.dst",
            "vlan.priority",
            "vlan.id",
            "ip.src",
            "ip.dst",
            "ip.ttl",
            "udp.srcport",
            "udp.dstport",
            "frame.len",
            "udp.checksum.status",
            "ip.checksum.status",
            "_ws.malformed",
        ],
    );
    assert_eq!(lines.len(), 8);
    for (number, line) in lines.iter().enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let flow = number % 2;
        assert_eq!(fields[..2], ["02:00:00:00:00:0b", "02:00:00:00:00:0a"]);
        assert_eq!(fields[2], (number % 8).to_string(), "another priority each");
        assert_eq!(fields[3..7], ["1", "10.0.0.2", "10.0.0.1", "9"]);
        assert_eq!(fields[7..9], [(6000 + flow).to_string(), (5000 + flow).to_string()]);
        // Without the check sequence; checksums are good.
        assert_eq!(fields[9..13], ["124", "1", "1", ""], "{line}");
    }
    let lines = read(
        "-n 5 -s 128 --tcp --raw_ipv6 -J fd00::1 -j fd00::2 -K 40001 -k 40002",
        &["ipv6.dst", "tcp.dstport", "tcp.window_size_value", "tcp.checksum.status", "_ws.malformed"],
    );
    assert!(lines.len() == 5 && lines.iter().all(|line| line == "fd00::1\t40001\t8192\t1\t"), "{lines:?}");
    let lines = read(
        "-n 6 -s 128 --flows 3 --flow_label 0x12345,7 --raw_ipv6 -J fd00::1 -j fd00::2 -K 5 -k 6",
        &["ipv6.flow", "udp.dstport", "udp.checksum.status"],
    );
    let three = ["0x012345\t5\t1", "0x000007\t6\t1", "0x012345\t7\t1"];
    assert_eq!(lines, [three, three].concat());
    let lines = read(
        "-n 5 -s 100 --raw_mcast -J 239.129.2.3 -j 10.0.0.2 -K 5000 -k 6000",
        &["eth.dst", "ip.dst", "udp.srcport", "udp.dstport"],
    );
    let one = "01:00:5e:01:02:03\t239.129.2.3\t0\t5000";
    assert!(lines.len() == 5 && lines.iter().all(|line| line == one), "{lines:?}");
}

#[test]
fn mistakes_are_one_line() {
    for (options, code, expected) in [
        ("", 2, "choose one of --server and --client"),
        ("--client -B 02:00:00:00:00:0b", 2, "-E is missing: give the destination MAC address"),
        ("--client -B 02:00", 2, "is not a MAC address, such as 02:00:00:00:00:01"),
        ("CLIENT -s 2000", 2, "-s 2000: the maximum frame size is 1518 bytes"),
        ("CLIENT -K 5 -k 6", 2, "-K and -k require IP addresses"),
        (
            "CLIENT -j 300.0.0.1",
            2,
            "option '-j': '300.0.0.1' is not an IP address, such as 10.0.0.1, or fd00::1 with --raw_ipv6",
        ),
        (
            "CLIENT -J 10.0.0.1",
            2,
            "-J 10.0.0.1 requires -j, the client's IP address: give both, such as -j 10.0.0.2",
        ),
        ("CLIENT -R", 2, "-R"),
        ("CLIENT -i 3", 2, "-i 3: mlx5_model0 has one port, -i 1"),
        ("SERVER --sniffer", 1, "--sniffer: mlx5_model0 does not support this steering rule; leave it out"),
        ("CLIENT", 1, "port 1 of mlx5_model0 is down: no peer on its wire"),
    ] {
        let place = Place::new();
        let mut command = place.command(BANDWIDTH, ["a", "b"], "");
        let options = options.replace("CLIENT", CLIENT).replace("SERVER", SERVER);
        command.args(format!("--output bandwidth {options}").split_whitespace());
        let end = Running::start(command).finish(LIMIT);
        assert_eq!(end.status.code(), Some(code), "{options}: {}", end.stderr.join("\n"));
        let said = if code == 1 { line(&end) } else { end.stderr.last().expect("a line") };
        assert!(said.contains(expected), "{options}: {said}");
        assert_eq!(end.messages().len(), 1, "{options}: {}", end.stderr.join("\n"));
    }
}
