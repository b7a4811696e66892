//! `-O`: queue pairs at both ports of a device, each port on a wire of its own.

use std::process::Command;

use pollux_tests::program::{Finished, Running, with_default_signals};

use super::place::{LIMIT, Place, TESTS, line, refused, report, said};

/// Programs with their options, and the queue pairs that each end makes: half of them, and half of those of XRC that receive, at either
/// port.
const PAIRS: &[(&str, &str, usize)] = &[
    ("send_bw", "-n 300 -s 3000", 2),
    ("send_bw", "-n 200 -s 500 -c UD -q 2", 4),
    ("send_bw", "-n 200 -s 500 -c UC", 2),
    ("send_bw", "-n 200 -s 64 -b -e", 2),
    ("send_bw", "-n 200 -s 64 --use-srq -q 2", 4),
    ("send_bw", "-n 200 -s 64 -c XRC -b", 4),
    ("send_bw", "-n 100 -s 64 --reversed", 2),
    ("send_bw", "-n 200 -z", 2),
    ("write_bw", "-n 300 -s 64 -l 10 -q 3", 6),
    ("write_bw", "-n 100 -s 64 --write_with_imm", 2),
    ("write_bw", "-n 100 -s 5000 --data_validation", 2),
    ("write_bw", "-n 5 -a --perform_warm_up", 2),
    ("write_bw", "-n 200 -x 0", 2),
    ("read_bw", "-n 200 -s 4096 -b", 2),
    ("atomic_bw", "-n 200", 2),
];

const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

fn program(name: &str) -> &'static str {
    let found = TESTS.iter().find(|(program, _)| program.rsplit('/').next() == Some(name));
    found.expect("one of them").0
}

/// An end on a device with two ports: the server is 0.
fn end(place: &Place, which: usize, name: &str, options: &str) -> Running {
    let ends = if which == 0 { ["a", "b"] } else { ["b", "a"] };
    let [own, other] = ends.map(|name| place.folder.path().join(name).display().to_string());
    let keys = format!(",ip={}/24,wire2=unix:{own}2:{other}2", ADDRESSES[which]);
    let mut command: Command = place.command(program(name), ends, &keys);
    command.args(options.split_whitespace());
    if which == 1 {
        command.arg(if options.contains("-z") { ADDRESSES[0] } else { "127.0.0.1" });
    }
    let mut running = Running::start(with_default_signals(&command));
    if which == 0 {
        running.wait_for("Waiting for client");
    }
    running
}

fn pair(name: &str, options: &str) -> [Finished; 2] {
    let place = Place::new();
    let server = end(&place, 0, name, options);
    let client = end(&place, 1, name, options).finish(LIMIT);
    [server.finish(LIMIT), client]
}

/// The GIDs that an end tells of its queue pairs, or hears of the other's, in their order.
fn gids<'a>(end: &'a Finished, whose: &str) -> Vec<&'a str> {
    let lines = end.stderr.iter().zip(end.stderr.iter().skip(1));
    let own = lines.filter(|(address, _)| address.contains(whose));
    own.map(|(_, gid)| gid.split_once("GID: ").expect("a GID").1).collect()
}

#[test]
fn queue_pairs_are_at_both_ports() {
    for &(name, options, count) in PAIRS {
        let [server, client] = pair(name, &format!("-O {options}"));
        for end in [&server, &client] {
            report(end);
            let text = end.stderr.join("\n");
            assert!(text.contains(" Dual-port       : ON\t\tDevice         : mlx5_model0"), "{text}");
            assert!(text.contains(&format!("Number of qps   : {count}\t")), "{text}");
        }
        let row = report(&client)["results"].as_array().and_then(|rows| rows.last()).expect("a row").clone();
        assert!(row["BW_average"].as_f64().is_some_and(|average| average > 0.0), "{name} {options}: {row}");
        let own = gids(&client, "local address");
        assert_eq!((own.len(), &own), (count, &gids(&server, "remote address")), "{name} {options}");
        // Of those that send, and of those of XRC that receive behind them, the first half is at the first port.
        let group = if options.contains("XRC") { count / 2 } else { count };
        let first = own[0];
        let second = own[count - 1];
        assert_ne!(first, second, "{name} {options}");
        // The address that was given is the first port's.
        assert!(
            first.ends_with("255:255:10:00:00:02") != options.contains("-x 0"),
            "{name} {options}: {first}"
        );
        for (number, gid) in own.iter().enumerate() {
            let expected = if number % group < group / 2 { first } else { second };
            assert_eq!(*gid, expected, "{name} {options}: {number} of {own:?}");
        }
        assert_eq!(said(&client, "GID index2").len(), 1);
    }
}

#[test]
fn each_port_is_told_of_by_itself() {
    for (name, options) in
        [("write_bw", "-s 64"), ("send_bw", "-s 3000 -q 2"), ("read_bw", "-s 64 -b --report_gbits")]
    {
        let [server, client] = pair(name, &format!("-O -D 2 --report-per-port {options}"));
        for end in [&server, &client] {
            let row = &report(end)["results"][0];
            let figure = |key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{name}: no {key} in {row}"));
            for [all, one, two] in [
                ["BW_average", "BW_average_port1", "BW_average_port2"],
                ["MsgRate", "MsgRate_port1", "MsgRate_port2"],
            ] {
                let (all, one, two) = (figure(all), figure(one), figure(two));
                assert!(one > 0.0 && two > 0.0, "{name}: {row}");
                assert!((one + two - all).abs() <= all * 0.001 + 2e-6, "{name}: {row}");
            }
            let text = end.stderr.join("\n");
            assert!(text.contains("BW Port1[") && text.contains("MsgRate Port2[Mpps]"), "{text}");
        }
    }
}

#[test]
fn a_port_that_carries_nothing_is_told_of_by_its_wire() {
    let place = Place::new();
    let server = end(&place, 0, "write_bw", "-O -n 100");
    // The first ports are on one wire; the second one's goes elsewhere.
    let [own, other, nobody] =
        ["b", "a", "nobody"].map(|name| place.folder.path().join(name).display().to_string());
    let keys = format!(",wire2=unix:{own}2:{nobody}");
    let mut command = place.command(program("write_bw"), ["b", "a"], &keys);
    command.args(["-O", "-n", "100", "127.0.0.1"]);
    let client = Running::start(with_default_signals(&command)).finish(LIMIT);
    let said = line(&client);
    assert!(
        said.contains(&format!("port 2 of mlx5_model0 is down: no peer on its wire, unix:{own}2:{nobody}")),
        "{said}"
    );
    assert!(!said.contains(&other), "{said}");
    refused(server, "");
}

#[test]
fn ends_of_one_port_and_of_two_say_so() {
    let place = Place::new();
    let server = end(&place, 0, "send_bw", "-O -n 100");
    let client = end(&place, 1, "send_bw", "-n 100").finish(LIMIT);
    assert!(line(&client).contains("-O differs: off here, on at 127.0.0.1:"), "{}", line(&client));
    refused(server, "-O differs: on here, off at 127.0.0.1:");
}
