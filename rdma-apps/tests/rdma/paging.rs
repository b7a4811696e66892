//! Message buffers whose pages come on demand, and cards that cannot.

use std::time::Duration;

use pollux_tests::program::{Finished, Running, with_default_signals};

use super::place::{LIMIT, PINGPONGS, Place, TESTS, report};

const XSRQ: &str = env!("CARGO_BIN_EXE_xsrq_pingpong");

/// Both ends on cards with what `keys` say.
fn pair(program: &str, options: &str, keys: &str) -> [Finished; 2] {
    let place = Place::new();
    let start = |ends: [&str; 2], peer: &[&str]| {
        let mut command = place.command(program, ends, keys);
        command.args(options.split_whitespace()).args(peer);
        Running::start(with_default_signals(&command))
    };
    let mut server = start(["a", "b"], &[]);
    if program != XSRQ {
        server.wait_for(if program.contains("pingpong") { "local address" } else { "Waiting for client" });
    }
    loop {
        let client = start(["b", "a"], &["127.0.0.1"]).finish(LIMIT);
        // Of XRC the server says nothing before a client comes.
        let early = client.stderr.last().is_some_and(|line| line.contains("Connection refused"));
        if !early {
            return [server.finish(LIMIT), client];
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn messages_are_in_memory_on_demand() {
    let [(rc, rc_options), _, _, (srq, srq_options)] = PINGPONGS;
    let pingpongs = [
        (rc, format!("{rc_options} -o")),
        (rc, format!("{rc_options} -O -s 20000")),
        (rc, format!("{rc_options} -o -P -e -s 9000")),
        (rc, format!("{rc_options} -O -P -t")),
        (srq, format!("{srq_options} -o")),
        (XSRQ, "-g 0 -o".into()),
    ];
    let tests = TESTS.map(|(program, options)| (program, format!("{options} --odp")));
    let others = [
        (TESTS[0].0, "-n 100 -c XRC --odp".to_owned()),
        (TESTS[0].0, "-n 100 --use-srq -q 2 --odp -b".into()),
        (TESTS[2].0, "-n 100 -s 5000 --data_validation --odp".into()),
        (TESTS[2].0, "-n 20 -s 300000 --odp -e".into()),
    ];
    for (program, options) in pingpongs.into_iter().chain(tests).chain(others) {
        for end in pair(program, &options, ",has_odp=1") {
            report(&end);
        }
    }
}

#[test]
fn what_a_card_cannot_is_one_line() {
    let device = "mlx5_model0";
    let [(rc, _), ..] = PINGPONGS;
    let (send, write, raw) = (TESTS[0].0, TESTS[2].0, env!("CARGO_BIN_EXE_raw_ethernet_bw"));
    let none = "does not support on-demand paging: leave it out";
    for (program, options, keys, expected) in [
        (rc, "-g 0 -O", "", format!("-O: {device} {none}")),
        (XSRQ, "-g 0 -o", "", format!("-o: {device} {none}")),
        (write, "--odp", "", format!("--odp: {device} {none}")),
        (rc, "-g 0 -P", "", "-P requires -o or -O: only memory on demand is prefetched".into()),
        (rc, "-g 0 -j -o", ",has_odp=1", "-j cannot be combined with -o: ".into()),
        (
            send,
            "-c UD --odp",
            ",has_odp=1",
            format!("--odp: {device} has no on-demand paging for recv on UD QPs: leave it out"),
        ),
        (
            write,
            "-c UC --odp",
            ",has_odp=1",
            format!("--odp: {device} has no on-demand paging for send, write on UC QPs: leave it out"),
        ),
        (
            raw,
            "--server -B 02:00:00:00:00:01 --odp",
            ",has_odp=1",
            "--odp is not supported by raw_ethernet_bw: ".into(),
        ),
    ] {
        let place = Place::new();
        let mut command = place.command(program, ["a", "b"], keys);
        command.args(options.split_whitespace());
        let end = Running::start(with_default_signals(&command)).finish(LIMIT);
        assert_eq!(end.status.code(), Some(2), "{}", end.stderr.join("\n"));
        let said = end.stderr.last().expect("a line");
        assert!(said.contains(&expected), "{program} {options}: {said}");
    }
}
