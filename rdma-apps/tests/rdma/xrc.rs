//! `-c XRC`: queue pairs that send or receive, and a shared receive queue that every message names.

use super::place::{LIMIT, Place, TESTS, line, refused, report, said};

/// Programs with their options, and the queue pairs that each end makes: where both ends send, one that receives beside each that sends.
const PAIRS: &[(&str, &str, usize)] = &[
    ("send_bw", "-n 300 -s 3000", 1),
    ("send_bw", "-n 300 -s 64 -q 3", 3),
    ("send_bw", "-n 200 -s 2000 -b", 2),
    ("send_bw", "-n 200 -s 64 -b -q 2 -e", 4),
    ("send_bw", "-n 100 -s 64 -e", 1),
    ("send_bw", "-n 100 -s 100000 -q 2 -e", 2),
    ("send_bw", "-n 320 -s 64 -l 8 --recv_post_list 4 -q 2 -r 10", 2),
    ("send_bw", "-n 100 -s 64 --reversed", 1),
    ("send_bw", "-n 100 -s 32 -I 64 -b", 2),
    ("send_bw", "-a -n 5 -q 2", 2),
    ("send_bw", "-a -n 5 -b", 2),
    ("send_bw", "-n 100 -s 64 --send_with_imm -q 2", 2),
    ("send_bw", "-D 1 -f 0 -s 64 -q 2", 2),
    ("send_lat", "-n 200", 2),
    ("send_lat", "-n 200 -s 3000 -e -r 8", 2),
    ("send_lat", "-a -n 5", 2),
    ("write_bw", "-n 300 -s 4096 -q 2", 2),
    ("write_bw", "-n 200 -s 64 -b -q 2", 4),
    ("write_bw", "-n 200 -s 64 -q 2 --write_with_imm -b", 4),
    ("write_bw", "-n 5 -a --perform_warm_up", 1),
    ("write_lat", "-n 200", 2),
    ("write_lat", "-n 200 -s 3000", 2),
    ("write_lat", "-n 200 -s 64 --write_with_imm -e", 2),
    ("read_bw", "-n 200 -s 4096 -q 2", 2),
    ("read_bw", "-n 100 -s 3000 -b -e", 2),
    ("read_lat", "-n 100", 2),
    ("atomic_bw", "-n 200 -q 2", 2),
    ("atomic_bw", "-n 200 -b -A CMP_AND_SWAP", 2),
    ("atomic_lat", "-n 100", 2),
];

/// The program of that name.
fn program(name: &str) -> &'static str {
    let found = TESTS.iter().find(|(program, _)| program.rsplit('/').next() == Some(name));
    found.expect("one of them").0
}

#[test]
fn messages_find_the_queue_that_they_name() {
    for &(name, options, count) in PAIRS {
        let options = format!("-c XRC {options}");
        let [server, client] = Place::new().pair(program(name), &options, &options);
        report(&server);
        let results = &report(&client)["results"];
        let row = results.as_array().and_then(|rows| rows.last()).expect("a row");
        let key = if name.ends_with("_bw") { "BW_average" } else { "t_avg" };
        assert!(row[key].as_f64().is_some_and(|figure| figure > 0.0), "{name} {options}: {results}");
        for (one, other) in [(&server, &client), (&client, &server)] {
            let locals = said(one, "local address");
            assert_eq!(locals, said(other, "remote address"), "{name} {options}");
            assert_eq!(locals.len(), count, "{name} {options}");
            let numbers = locals.iter().map(|address| address.rsplit_once(" SRQn 0x").expect("a number").1);
            assert!(numbers.clone().all(|number| number != "000000"), "{locals:?}");
            assert!(numbers.clone().zip(numbers.skip(1)).all(|(one, next)| one == next), "{locals:?}");
            let text = one.stderr.join("\n");
            assert!(text.contains("Connection type : XRC\t\tUsing SRQ      : ON"), "{text}");
            assert!(text.contains(&format!("Number of qps   : {count}\t")), "{text}");
        }
    }
}

#[test]
fn ends_of_two_kinds_say_so() {
    let place = Place::new();
    let server = place.server(program("send_bw"), "-n 100 -c XRC");
    let client = place.client(program("send_bw"), "-n 100").finish(LIMIT);
    assert!(line(&client).contains("-c differs: RC here, XRC at 127.0.0.1:"), "{}", line(&client));
    refused(server, "-c differs: XRC here, RC at 127.0.0.1:");
}
