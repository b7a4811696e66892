//! The RDMA programs, two processes each, on device models joined by a unix wire; mistakes and ends.

mod by_address;
mod connections;
mod dual_port;
mod explain;
mod hugepages;
mod mistakes;
mod paging;
mod place;
mod raw_ethernet;
mod strangers;
mod telemetry;
mod udpong;
mod xrc;

use std::process::Command;
use std::time::Duration;

use place::{Between, LIMIT, PINGPONGS, Place, SIGHUP, SIGINT, SIGTERM, TESTS, line, refused, report, said};
use pollux_tests::program::{Finished, Running};
use serde_json::Value;

#[test]
fn pingpongs_meet_and_every_byte_comes_back() {
    for (program, options) in PINGPONGS {
        let [server, client] = Place::new().pair(program, options, options);
        for end in [&server, &client] {
            let report = report(end);
            let asked = if options.contains("-n 300") { 300 } else { 200 };
            assert_eq!(report["iterations"], asked, "{program}: {report}");
            assert!(report["microseconds_per_iteration"].as_f64().is_some_and(|each| each > 0.0), "{report}");
        }
        // Each end's other end is the other one. UD's own line has a colon before the GID.
        let plain =
            |lines: Vec<&str>| lines.iter().map(|line| line.replace(": GID", ", GID")).collect::<Vec<_>>();
        assert_eq!(
            plain(said(&server, "remote address")),
            plain(said(&client, "local address")),
            "{program}"
        );
        assert_eq!(
            plain(said(&client, "remote address")),
            plain(said(&server, "local address")),
            "{program}"
        );
    }
}

#[test]
fn xrc_messages_find_the_queue_that_they_name() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_xsrq_pingpong");
    let mut command = place.command(program, ["a", "b"], "");
    command.args(["-g", "0", "-n", "40", "-s", "3000"]);
    let server = Running::start(command);
    // Its own address depends on the client: nothing is said before one comes.
    let client = loop {
        let client = place.client(program, "-g 0 -n 40 -s 3000").finish(LIMIT);
        let early = client.stderr.last().is_some_and(|line| line.contains("Connection refused"));
        if !early {
            break client;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    for end in [&client, &server.finish(LIMIT)] {
        assert_eq!(report(end)["messages"], 40);
        assert!(end.stderr.iter().any(|line| line == "success"), "{}", end.stderr.join("\n"));
    }
}

#[test]
fn events_timestamps_and_odd_sizes_change_nothing_else() {
    let program = PINGPONGS[0].0;
    for options in ["-g 0 -n 50 -e -c", "-g 0 -n 50 -t", "-g 0 -n 50 -s 1 -c", "-g 0 -n 20 -s 70001 -c -r 2"]
    {
        let [server, client] = Place::new().pair(program, options, options);
        assert_eq!(report(&server)["iterations"], report(&client)["iterations"], "{options}");
        let cycles = said(&client, "Average receive completion clock cycles").len();
        assert_eq!(cycles, usize::from(options.contains("-t")), "{options}");
    }
}

#[test]
fn tests_of_perftest_give_their_rows() {
    for (program, options) in TESTS {
        let [server, client] = Place::new().pair(program, options, options);
        let name = program.rsplit('/').next().expect("a name");
        let (server, client) = (report(&server), report(&client));
        assert_eq!(client["app"], name);
        let row = &client["results"][0];
        if name.ends_with("_bw") {
            assert!(row["BW_average"].as_f64().is_some_and(|average| average > 0.0), "{name}: {client}");
            assert!(row["BW_peak"].as_f64() >= row["BW_average"].as_f64(), "{name}: {client}");
            // Where the server does nothing it shows what the client tells it.
            if !name.starts_with("send") {
                assert_eq!(server["results"][0]["MsgRate"], row["MsgRate"], "{name}: {server} {client}");
            }
        } else {
            let of = |name: &str| row[name].as_f64().expect("a number");
            assert!(0.0 < of("t_min") && of("t_min") <= of("t_typical"), "{name}: {client}");
            assert!(
                of("t_typical") <= of("percentile_99") && of("percentile_99") <= of("t_max"),
                "{name}: {client}"
            );
        }
    }
}

/// A model's counters are its kernel's, which sysfs would have.
#[test]
fn counters_of_a_port_rise() {
    let options = "-n 300 -s 64 -W hw_counters/rx_write_requests,hw_counters/out_of_buffer";
    let [server, client] = Place::new().pair(TESTS[2].0, options, options);
    report(&client);
    report(&server);
    let rise = |end: &Finished, name: &str| -> Vec<u64> {
        said(end, name).iter().map(|rest| rest.trim_start_matches('=').parse().expect("a number")).collect()
    };
    assert_eq!(rise(&server, "hw_counters/rx_write_requests"), [300]);
    assert_eq!(rise(&client, "hw_counters/rx_write_requests"), [0]);
    assert_eq!(rise(&server, "hw_counters/out_of_buffer"), [0]);
    for name in ["hw_counters/none", "counters/port_xmit_data"] {
        let place = Place::new();
        let mut command = place.command(TESTS[2].0, ["a", "b"], "");
        command.args(["-n", "300", "-W", name]);
        let end = Running::start(command).finish(LIMIT);
        let line = end.stderr.last().expect("a line");
        assert_eq!(end.status.code(), Some(2), "{line}");
        let expected = format!("-W {name}: no such counter, mlx5_model0 has hw_counters/rx_write_requests, ");
        assert!(line.contains(&expected), "{line}");
    }
}

#[test]
fn the_ways_of_a_bandwidth_test() {
    let program = TESTS[0].0;
    let one_way = [
        "-c UD -n 200 -s 500",
        "-c UC -n 200 -s 3000",
        "--use-srq -q 3 -n 100 -s 100",
        "-n 100 -s 64 -e",
        "--reversed -n 100 -s 64",
    ];
    for options in one_way {
        let [server, client] = Place::new().pair(program, options, options);
        assert_eq!(
            report(&server)["results"][0]["n_iterations"],
            report(&client)["results"][0]["n_iterations"],
            "{options}"
        );
    }
    let [server, client] =
        Place::new().pair(program, "-b -n 200 -s 2000 -q 2", "-b -n 200 -s 2000 -q 2 -t 16");
    assert_eq!(
        report(&server)["results"][0]["BW_average"],
        report(&client)["results"][0]["BW_average"],
        "one sum"
    );
    let [server, client] = Place::new().pair(program, "-a -n 20", "-a -n 20");
    for end in [server, client] {
        assert_eq!(report(&end)["results"].as_array().map(Vec::len), Some(23));
    }
    let [server, client] = Place::new().pair(program, "-D 2 -s 64 -f 0", "-D 2 -s 64 -f 0 --cpu_util");
    assert!(report(&client)["results"][0]["n_iterations"].as_u64().is_some_and(|count| count > 100));
    assert!(report(&server)["results"][0]["MsgRate"].as_f64().is_some_and(|rate| rate > 0.0));
    let [_, client] = Place::new().pair(program, "-n 200 -s 64", "-n 200 -s 64 -w 1000000");
    assert!(line(&client).contains("is below -w 1000000"), "{}", line(&client));
}

/// All receives of one size are taken when the next one begins, whose messages are longer.
#[test]
fn no_receive_is_left_for_the_next_size() {
    let program = TESTS[0].0;
    for options in [
        "--use-srq -a -n 5 -q 3",
        "--use-srq -a -n 6 -r 4 --recv_post_list 3 -b",
        "-a -n 6 -r 4 --recv_post_list 3",
    ] {
        let [server, client] = Place::new().pair(program, options, options);
        for end in [server, client] {
            assert_eq!(report(&end)["results"].as_array().map(Vec::len), Some(23), "{options}");
        }
    }
}

#[test]
fn columns_are_perftests_and_the_file_is_written() {
    let place = Place::new();
    let program = TESTS[1].0;
    let server = place.server(program, "-n 50");
    let file = place.folder.path().join("out.json");
    let mut command = place.command(program, ["b", "a"], "");
    command.args(["-n", "50", "-H", "--out_json", "--out_json_file"]).arg(&file).arg("127.0.0.1");
    let client = Running::start(command).finish(LIMIT);
    report(&client);
    report(&server.finish(LIMIT));
    let text = client.stderr.join("\n");
    assert!(
        text.contains(
            "                    Send Latency Test\n Dual-port       : OFF\t\tDevice         : mlx5_model0\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"),
        "{text}"
    );
    assert_eq!(
        client
            .stderr
            .iter()
            .filter(|line| line.split(", ").count() == 2 && line.as_bytes()[0].is_ascii_digit())
            .count(),
        49
    );
    let saved: Value = serde_json::from_slice(&std::fs::read(file).expect("saved")).expect("JSON");
    assert_eq!(saved["test_info"]["Connection_type"], "RC");
    assert_eq!(saved["results"]["n_iterations"], 50);
}

#[test]
fn a_message_longer_than_the_receive_ends_both() {
    let [server, client] = Place::new().pair(PINGPONGS[0].0, "-g 0 -s 1000", "-g 0 -s 2000");
    assert!(
        line(&server).contains("Failed status local length error (1) for wr_id 1: a message was longer"),
        "{}",
        line(&server)
    );
    assert!(line(&client).contains("Failed status remote invalid request error (9)"), "{}", line(&client));
}

#[test]
fn ends_with_different_options_both_say_so() {
    for ((program, _), one, two, here, there) in [
        (
            TESTS[0],
            "-s 64",
            "-s 128",
            "-s differs: 64 here, 128 at 127.0.0.1",
            "-s differs: 128 here, 64 at 127.0.0.1",
        ),
        (PINGPONGS[3], "-g 0 -q 4", "-g 0 -q 5", "the peer uses 5 QPs, this end 4", ""),
        (PINGPONGS[2], "-g 0 -n 1000000", "-g 0 -n 10", "-n differs", "-n differs"),
        (PINGPONGS[0], "-g 0 -n 20", "-g 0 -n 10", "-n differs", "-n differs"),
        (PINGPONGS[3], "-g 0 -n 20", "-g 0 -n 30", "-n differs", "-n differs"),
    ] {
        let place = Place::new();
        let server = place.server(program, one);
        let client = place.client(program, two).finish(LIMIT);
        assert!(line(&client).contains(there), "{}", line(&client));
        refused(server, here);
    }
}

#[test]
fn every_byte_is_compared_where_that_is_wanted() {
    for (program, options) in [
        (TESTS[2].0, "--data_validation -n 70 -s 5000 -t 32"),
        (TESTS[4].0, "--data_validation -n 70 -s 3000 -t 32 -q 2"),
    ] {
        let [server, client] = Place::new().pair(program, options, options);
        report(&server);
        let row = report(&client)["results"][0].clone();
        let bytes = row["n_iterations"].as_u64().and_then(|count| Some(count * row["MsgSize"].as_u64()?));
        assert_eq!((row["bytes_validated"].as_u64(), &row["bytes_wrong"]), (bytes, &Value::from(0)), "{row}");
        assert!(row["BW_average"].as_f64().is_some_and(|average| average > 0.0), "{row}");
    }
    let place = Place::new();
    let server = place.server(TESTS[4].0, "-n 70");
    let client = place.client(TESTS[4].0, "--data_validation -n 70").finish(LIMIT);
    let expected = "--data_validation differs";
    assert!(line(&client).contains(expected), "{}", line(&client));
    refused(server, expected);
}

/// A WRITE with it takes a receive of the peer and completes there: what is said of receives is true of it, too.
#[test]
fn messages_carry_immediate_data() {
    let [(send_bw, _), (send_lat, _), (write_bw, _), (write_lat, _), ..] = TESTS;
    for (program, options, title) in [
        (write_bw, "--write_with_imm -n 300 -s 3000", "RDMA_Write_imm BW Test"),
        (write_bw, "--write_with_imm -n 300 -s 64 -b -q 2 -r 16", "RDMA_Write_imm Bidirectional BW Test"),
        (write_bw, "--write_with_imm -n 300 -s 64 -q 3 --use-srq", "RDMA_Write_imm BW Test"),
        (
            write_bw,
            "--write_with_imm -n 320 -s 64 -l 8 --recv_post_list 4 -e",
            "RDMA_Write_imm Post List BW Test",
        ),
        (write_bw, "--write_with_imm -n 100 -a -c UC", "RDMA_Write_imm BW Test"),
        (write_bw, "--write_with_imm -s 64 -D 1 -f 0 --reversed", "RDMA_Write_imm BW Test"),
        (write_lat, "--write_with_imm -n 700 -s 64", "RDMA_Write_imm Latency Test"),
        (write_lat, "--write_with_imm -n 100 -s 3000 -e -c UC", "RDMA_Write_imm Latency Test"),
        (send_bw, "--send_with_imm -n 300 -s 500 -c UD", "Send_imm BW Test"),
        (send_lat, "--send_with_imm -n 200 -s 64", "Send_imm Latency Test"),
    ] {
        let [server, client] = Place::new().pair(program, options, options);
        for end in [&server, &client] {
            let rows = &report(end)["results"];
            let row = rows.as_array().and_then(|rows| rows.last()).expect("a row");
            let key = if program.ends_with("_bw") { "BW_average" } else { "t_avg" };
            assert!(row[key].as_f64().is_some_and(|figure| figure > 0.0), "{options}: {rows}");
            assert!(end.stderr.join("\n").contains(title), "{options}");
        }
        // Receives are told of where they are posted, whichever end that is.
        let told = [&server, &client].map(|end| !said(end, "RX depth").is_empty());
        let both = options.contains("-b") || program.ends_with("_lat");
        assert_eq!(
            told,
            [both || !options.contains("--reversed"), both || options.contains("--reversed")],
            "{options}"
        );
    }
    for (program, option) in [(write_lat, "--write_with_imm"), (send_bw, "--send_with_imm")] {
        let place = Place::new();
        let server = place.server(program, "-n 70");
        let client = place.client(program, &format!("-n 70 {option}")).finish(LIMIT);
        let expected = "--write_with_imm or --send_with_imm differs";
        assert!(line(&client).contains(expected), "{}", line(&client));
        refused(server, expected);
    }
}

#[test]
fn a_group_hears_what_is_sent_to_it() {
    let program = TESTS[0].0;
    for options in ["-g -n 200 -s 500", "-g -M 255:14:0:0:0:0:0:0:0:0:0:0:0:0:1:5 -n 100 -s 64"] {
        let [server, client] = Place::new().pair(program, options, options);
        let count = report(&client)["results"][0]["n_iterations"].clone();
        assert_eq!(report(&server)["results"][0]["n_iterations"], count, "{options}");
        let text = server.stderr.join("\n");
        assert!(text.contains("Send BW Multicast Test\n MultiCast runs on UD!\n"), "{text}");
        assert!(text.contains(" local address: LID 0000 QPN 0xffffff"), "{text}");
    }
    // To and fro: each end hears a group of its own.
    let group = |last| format!("-g -n 100 -s 64 -M 255:14:0:0:0:0:0:0:0:0:0:0:0:0:1:{last}");
    for (one, two) in [("-g -n 200 -s 64".to_owned(), "-g -n 200 -s 64".to_owned()), (group(5), group(6))] {
        let [server, client] = Place::new().pair(TESTS[1].0, &one, &two);
        for end in [&server, &client] {
            assert!(report(end)["results"][0]["t_avg"].as_f64() > Some(0.0));
            assert!(end.stderr.join("\n").contains("Send Latency Multicast Test\n MultiCast runs on UD!\n"));
        }
        assert_eq!(said(&server, "remote address"), said(&client, "local address"));
        let gids = [&server, &client].map(|end| said(end, " GID: ").first().map(|gid| (*gid).to_owned()));
        assert_ne!(gids[0], gids[1]);
    }
    let place = Place::new();
    let server = place.server(TESTS[1].0, &group(5));
    let client = place.client(TESTS[1].0, &group(5)).finish(LIMIT);
    assert!(line(&client).contains("both ends use the same multicast group"), "{}", line(&client));
    refused(server, "both ends use the same multicast group");
}

/// What goes before the measurement crosses the bus and is not counted.
#[test]
fn a_warm_up_is_sent_and_not_measured() {
    for (program, options, messages, size) in [
        (TESTS[2].0, "-n 20 -t 8 -s 4096 -q 2", 2 * 8, 4096),
        (TESTS[2].0, "-n 20 -l 4 -t 8 -s 4096", 4, 4096),
        (TESTS[2].0, "-n 20 -t 8 -s 4096 -b", 2 * 8, 4096),
        (TESTS[4].0, "-n 20 -t 8 -s 4096", 8, 4096),
        (TESTS[6].0, "-n 20 -t 8", 8, 8),
    ] {
        let [cold, warm] = ["", " --perform_warm_up"].map(|warm| {
            let options = format!("{options}{warm}");
            let [server, client] = Place::new().pair(program, &options, &options);
            report(&server);
            let report = report(&client);
            let bytes = |key: &str| report["ledger"][key].as_u64().expect("bytes");
            let count = report["results"][0]["n_iterations"].clone();
            (count, bytes("bytes_to_device") + bytes("bytes_from_device"))
        });
        assert_eq!(cold.0, warm.0, "{program} {options}");
        // Each takes its entry, its completion and doorbells across as well.
        let each = (warm.1.saturating_sub(cold.1)) / messages;
        assert!((size..size + 1024).contains(&each), "{program} {options}: {each} bytes a message");
    }
}

/// What the wire carries, seen by whoever stands between the ends.
#[test]
fn flow_labels_are_on_the_wire() {
    for (program, options, labels, expected) in [
        // By hand: the label's lower 14 bits, its upper 6 among them exclusively, from 0xc000 on.
        (TESTS[2].0, "-n 20 -s 64 -x 0", "0x12345", vec![(0x12345, 0xe341)]),
        (TESTS[0].0, "-n 20 -s 64 -x 0 -c UD", "0x4000", vec![(0x4000, 0xc001)]),
        (TESTS[4].0, "-n 20 -s 64 -x 1 -q 2", "1,0xfffff", vec![(0, 0xc001), (0, 0xffc0)]),
    ] {
        let place = Place::new();
        let seen = Between::start(place.folder.path());
        let start = |own: &str, other: &str, host: &[&str]| {
            let mut command = place.command(program, [own, &format!("between-{other}")], "");
            command.args(options.split_whitespace()).args(["--flow_label", labels]).args(host);
            Running::start(command)
        };
        let mut server = start("a", "b", &[]);
        server.wait_for("Waiting for client");
        let client = start("b", "a", &["127.0.0.1"]).finish(LIMIT);
        report(&client);
        report(&server.finish(LIMIT));
        assert_eq!(seen.flows(), expected, "{program} {options}");
    }
}

/// The rows of a run without an end.
fn rows(end: &Finished) -> usize {
    end.stderr.iter().filter(|line| line.starts_with(" 512 ")).count()
}

#[test]
fn a_run_without_an_end_tells_of_one_period_after_the_other() {
    let [send, write, read, atomic] = [0, 2, 4, 6].map(|number: usize| TESTS[number].0);
    let variants: [(&str, &str, bool); 11] = [
        (send, "-s 512", true),
        (send, "-s 512 -t 16 -Q 4", true),
        (send, "-s 512 -c UC -t 32 -q 3", true),
        (send, "-s 512 -l 8 -Q 1", true),
        (write, "-s 512", false),
        (write, "-s 512 -t 8 -Q 8 -q 2", false),
        (write, "-s 512 -b -t 16", false),
        (read, "-s 512 -t 4 -Q 2", false),
        (read, "-s 512 -Q 64", false),
        (atomic, "-t 16 -Q 3", false),
        (atomic, "", false),
    ];
    for some in variants.chunks(3) {
        std::thread::scope(|scope| {
            for &(program, options, receives) in some {
                scope.spawn(move || {
                    let place = Place::new();
                    let options = format!("{options} --run_infinitely -D 1");
                    let server = place.server(program, &options);
                    let mut client = place.client(program, &options);
                    client.wait_for("#bytes");
                    std::thread::sleep(Duration::from_millis(4500));
                    client.signal(SIGINT);
                    let (client, server) = (client.finish(LIMIT), server.finish(LIMIT));
                    assert_eq!(client.status.code(), Some(0), "{program} {options}: {:#?}", client.stderr);
                    let eights = client.stderr.iter().filter(|line| line.starts_with(" 8 ")).count();
                    assert!(rows(&client) + eights >= 3, "{program} {options}: {:#?}", client.stderr);
                    assert!(!receives || rows(&server) >= 3, "{program} {options}: {:#?}", server.stderr);
                    let all = [client.stderr, server.stderr].concat().join("\n");
                    assert!(!all.contains("queue is full"), "{program} {options}: {all}");
                });
            }
        });
    }
}

#[test]
fn signals_end_an_end_and_then_the_other() {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let place = Place::new();
        let waiting = place.server(PINGPONGS[0].0, "-g 0");
        waiting.signal(signal);
        assert_eq!(waiting.finish(LIMIT).status.code(), Some(0), "while waiting for a client");

        let server = place.server(PINGPONGS[0].0, "-g 0 -n 100000000");
        let mut client = place.client(PINGPONGS[0].0, "-g 0 -n 100000000");
        client.wait_for("remote address");
        std::thread::sleep(Duration::from_millis(200));
        client.signal(signal);
        let client = client.finish(LIMIT);
        assert_eq!(client.status.code(), Some(0), "{}", client.stderr.join("\n"));
        assert!(
            client.stderr.iter().any(|line| line.starts_with("stopped after ")),
            "{}",
            client.stderr.join("\n")
        );
        let server = server.finish(LIMIT);
        assert_eq!(server.status.code(), Some(1), "{}", server.stderr.join("\n"));
    }
    let place = Place::new();
    let server = place.server(TESTS[0].0, "-D 60 -s 64");
    let mut client = place.client(TESTS[0].0, "-D 60 -s 64");
    client.wait_for("#bytes");
    std::thread::sleep(Duration::from_millis(200));
    client.signal(SIGTERM);
    assert_eq!(client.finish(LIMIT).status.code(), Some(0));
    assert_eq!(server.finish(LIMIT).status.code(), Some(1));
}

#[test]
fn a_device_is_listed_and_described() {
    let run = |program: &str, options: &[&str]| {
        let mut command = Command::new(program);
        command.args(["--vdev", "mlx5_model0,wire=null"]).args(options);
        let end = Running::start(command).finish(LIMIT);
        assert_eq!(end.status.code(), Some(0), "{}", end.stderr.join("\n"));
        end.stdout
    };
    let list = run(env!("CARGO_BIN_EXE_device_list"), &[]);
    assert!(
        list.starts_with("    device          \t   node GUID\n    ------          \t----------------\n"),
        "{list}"
    );
    assert!(list.contains("\n    mlx5_model0     \t"), "{list}");
    let devinfo = env!("CARGO_BIN_EXE_devinfo");
    let short = run(devinfo, &[]);
    assert!(
        short.starts_with("hca_id:\tmlx5_model0\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t22."),
        "{short}"
    );
    let long = run(devinfo, &["--", "-v"]);
    for line in [
        "\tmax_qp:\t\t\t\t",
        "\tatomic_cap:\t\t\tATOMIC_HCA (1)\n",
        "\t\t\tGID[  0]:\t\tfe80::",
        "\t\t\tlink_layer:\t\tEthernet\n",
        "\t\t\tactive_speed:\t\t25.0 Gbps (32)\n\t\t\teffective_speed:\t100.0 Gbps\n\t\t\tphys_state:",
        "\ttso_caps:\n\t\tmax_tso:\t\t\t65536\n\t\tsupported_qp:\n\t\t\t\t\tSUPPORT_RAW_PACKET\n",
        "\tpacket_pacing_caps:\n\t\tqp_rate_limit_min:\t",
    ] {
        assert!(long.contains(line), "{line:?} in {long}");
    }
    assert!(run(devinfo, &["--", "-l"]).ends_with("\tmlx5_model0\n\n"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_asyncwatch"));
    command.args(["--vdev", "mlx5_model0,wire=null"]);
    let watching = Running::start(command);
    std::thread::sleep(Duration::from_millis(500));
    let watched = watching.interrupt();
    assert_eq!(watched.status.code(), Some(0), "{}", watched.stderr.join("\n"));
    assert!(watched.stdout.starts_with("mlx5_model0: async event FD "), "{}", watched.stdout);
    // A device that is pulled out ends it.
    let mut command = Command::new(env!("CARGO_BIN_EXE_asyncwatch"));
    command.args(["--vdev", "mlx5_model0,wire=null,fault_plan=[remove:500ms]"]);
    let ended = Running::start(command).finish(LIMIT);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.stdout);
    assert!(ended.stdout.starts_with("mlx5_model0: async event FD "), "{}", ended.stdout);
}

#[test]
fn one_process_forwards_packets_and_answers_reads_on_one_port() {
    for (what, program) in [("read", TESTS[4].0), ("write", TESTS[2].0)] {
        let place = Place::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_forward_and_serve"));
        let [a, b] = ["a", "b"].map(|name| place.folder.path().join(name).display().to_string());
        let device = format!("mlx5_model0,wire=unix:{a}:{b}");
        command.args(["-l", "0,1", "--vdev", &device, "--vdev", "mlx5_model1,wire=source:64", "--"]);
        command.args(["--json", "--serve", what, "-s", "4096", "-p", &place.port.to_string()]);
        let mut both = Running::start(command);
        both.wait_for("serving clients of mlx5_model0");
        for _ in 0..2 {
            let client = place.client(program, "-s 4096 -n 100").finish(LIMIT);
            assert_eq!(report(&client)["results"][0]["n_iterations"], 100);
        }
        both.wait_for("served a client: 100 messages of 4096 bytes");
        let report = report(&both.interrupt());
        // What the source sent to port 1 went out of port 0, beside what was read.
        assert!(report["ports"][0]["tx_packets"].as_u64().is_some_and(|sent| sent > 0), "{report}");
    }
}
