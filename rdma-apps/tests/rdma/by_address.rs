//! perftest's family by address, `-R` and `-z`, between device models.

use std::process::Command;

use pollux_tests::program::{Finished, Running, with_default_signals};

use crate::place::{LIMIT, Place, SIGINT, SIGTERM, TESTS, line, report};

const ADDRESSES: [&str; 2] = ["10.0.0.1", "10.0.0.2"];

/// An end on a model with an address: the server is 0.
fn end(place: &Place, which: usize, program: &str, words: &str) -> Command {
    let ends = if which == 0 { ["a", "b"] } else { ["b", "a"] };
    let mut command = place.command(program, ends, &format!(",ip={}/24", ADDRESSES[which]));
    command.args(words.split_whitespace());
    command
}

fn server(place: &Place, program: &str, words: &str) -> Running {
    let mut running = Running::start(with_default_signals(&end(place, 0, program, words)));
    running.wait_for("Waiting for client");
    running
}

fn client(place: &Place, program: &str, words: &str) -> Running {
    let words = format!("{words} {}", ADDRESSES[0]);
    Running::start(with_default_signals(&end(place, 1, program, &words)))
}

fn pair(program: &str, words: &str) -> [Finished; 2] {
    let place = Place::new();
    let server = server(&place, program, words);
    let client = client(&place, program, words).finish(LIMIT);
    [server.finish(LIMIT), client]
}

#[test]
fn every_test_runs_on_queue_pairs_that_the_manager_connects() {
    let datagrams = (TESTS[1].0, "-c UD -n 100");
    for (program, options) in TESTS.into_iter().chain([datagrams]) {
        let [server, client] = pair(program, &format!("-R {options}"));
        report(&server);
        let row = &report(&client)["results"][0];
        let key = if program.ends_with("_bw") { "BW_average" } else { "t_avg" };
        assert!(row[key].as_f64().is_some_and(|figure| figure > 0.0), "{program}: {row}");
        let text = client.stderr.join("\n");
        assert!(text.contains("rdma_cm QPs\t : ON\n Data ex. method : rdma_cm\n"), "{text}");
        // The address is the GID.
        assert!(text.contains("255:255:10:00:00:02"), "{text}");
    }
}

#[test]
fn other_queue_pairs_and_directions() {
    let [send, _, write, _, read, ..] = TESTS.map(|(program, _)| program);
    for (program, options) in [
        (send, "-R -q 3 -b -n 100 -s 5000"),
        (send, "-R -c UD -n 200 -s 500 -q 2"),
        (send, "-R -c UD -b -n 100 -s 500 -q 2"),
        (send, "-R --use-srq -q 3 -n 100 -s 100"),
        (send, "-R -e -n 50 -s 64 -T 32 -u 16 --retry_count 6"),
        (send, "-R --reversed -n 50 -s 64"),
        (write, "-R -q 2 -n 50 --perform_warm_up -s 64 -t 8"),
        (write, "-R --data_validation -n 70 -s 5000 -t 32"),
        (read, "-R --data_validation -n 70 -s 3000 -t 32 -q 2"),
        (read, "-R -o 4 -n 50 -s 3000"),
        // Only what the ends say goes over a connection of the manager's.
        (send, "-z -c UD -b -n 100 -s 500"),
        (send, "-z -c UC -n 100 -s 5000 -q 2"),
        (read, "-z -n 50 -s 5000"),
        (send, "-z -c XRC -n 100 -s 5000 -q 2 -b"),
        (read, "-z -c XRC -n 50 -s 5000"),
    ] {
        let [server, client] = pair(program, options);
        report(&server);
        let report = report(&client);
        assert!(
            report["results"][0]["BW_average"].as_f64().is_some_and(|average| average > 0.0),
            "{options}"
        );
        if options.contains("--data_validation") {
            assert_eq!(report["results"][0]["bytes_wrong"], 0, "{options}");
        }
        if options.contains("-T 32") {
            let text = client.stderr.join("\n");
            assert!(text.contains("Data ex. method : rdma_cm \tTOS    : 32"), "{text}");
        }
    }
}

#[test]
fn ends_that_differ_or_end_early_say_so() {
    let program = TESTS[0].0;
    for (one, other, expected) in [
        ("-R -s 64", "-R -s 128", "-s differs: 128 here, 64 at 10.0.0.1:"),
        ("-R -n 20", "-z -n 20", "-R differs: off here, on at 10.0.0.1:"),
    ] {
        let place = Place::new();
        let mut server = server(&place, program, one);
        let other = client(&place, program, other).finish(LIMIT);
        assert!(line(&other).contains(expected), "{}", line(&other));
        server.wait_for("; still listening on port ");
        // It does: the next one is served.
        report(&client(&place, program, one).finish(LIMIT));
        report(&server.finish(LIMIT));
    }
    for signal in [SIGINT, SIGTERM] {
        let place = Place::new();
        let waiting = server(&place, program, "-R");
        waiting.signal(signal);
        assert_eq!(waiting.finish(LIMIT).status.code(), Some(0));
        let server = server(&place, program, "-R -D 60 -s 64");
        let mut client = client(&place, program, "-R -D 60 -s 64");
        client.wait_for("#bytes");
        std::thread::sleep(std::time::Duration::from_millis(300));
        client.signal(signal);
        assert_eq!(client.finish(LIMIT).status.code(), Some(0));
        assert_eq!(server.finish(LIMIT).status.code(), Some(1));
    }
}

#[test]
fn mistakes_are_one_line() {
    let program = TESTS[0].0;
    let place = Place::new();
    let alone = client(&place, program, "-R").finish(LIMIT);
    let expected = format!("send_bw: 10.0.0.1:{}: RDMA_CM_EVENT_ADDR_ERROR: ETIMEDOUT", place.port);
    assert!(line(&alone).starts_with(&expected), "{}", line(&alone));
    for (words, expected) in [
        ("-R not.a.host.invalid", "cannot resolve 'not.a.host.invalid': "),
        ("-R -c UC", "-R cannot be combined with -c UC"),
        ("-R --retry_count 9", "option '--retry_count': '9' is not a whole number from 0 to 7"),
        ("--retry_count 3", "--retry_count requires -R"),
        ("-T 300", "option '-T': '300' is not a whole number from 0 to 255"),
    ] {
        let done = Running::start(with_default_signals(&end(&place, 0, program, words))).finish(LIMIT);
        assert_eq!(done.status.code(), Some(2), "{words}: {:?}", done.stderr);
        let said = done.stderr.last().expect("a line");
        assert!(said.contains(expected), "{words}: {said}");
    }
}
