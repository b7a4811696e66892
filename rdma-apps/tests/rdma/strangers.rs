//! Servers and who comes to them: other programs, strangers, and ends that fall silent or cannot begin.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use pollux_tests::program::Running;

use super::place::{LIMIT, PINGPONGS, Place, TESTS, line, refused};

#[test]
fn a_test_of_another_kind_is_no_peer() {
    let place = Place::new();
    let server = place.server(TESTS[0].0, "");
    let client = place.client(TESTS[1].0, "").finish(LIMIT);
    assert!(line(&client).contains("the test differs: send_lat here, send_bw at"), "{}", line(&client));
    refused(server, "the test differs");
}

/// What strangers say to a port that is open; then they hang up, or, with nothing to say, stay.
const STRANGERS: [&[u8]; 5] = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8.5.0\r\n\r\nand so on, until an address would be there",
    b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
    &[0xff; 700],
    b"\0",
    b"",
];

#[test]
fn strangers_are_named_and_the_server_goes_on_listening() {
    let xsrq = (env!("CARGO_BIN_EXE_xsrq_pingpong"), "-g 0");
    for (program, options) in
        [PINGPONGS[0], PINGPONGS[2], PINGPONGS[3], xsrq, TESTS[0], TESTS[3], TESTS[4], TESTS[7]]
    {
        let place = Place::new();
        let mut command = place.command(program, ["a", "b"], "");
        command.args(format!("{options} --peer-timeout 1").split_whitespace());
        let server = Running::start(command);
        let connect = || {
            let begun = std::time::Instant::now();
            loop {
                match TcpStream::connect(("127.0.0.1", place.port)) {
                    Ok(stream) => return stream,
                    Err(why) => assert!(begun.elapsed() < LIMIT, "{program}: {why}"),
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        let mut silent = Vec::new();
        for said in STRANGERS {
            let mut stream = connect();
            // One that hung up already is met all the same.
            let _ = stream.write_all(said);
            if said.is_empty() {
                silent.push(stream);
            }
        }
        // A scanner of ports.
        drop(connect());
        let client = place.client(program, options).finish(LIMIT);
        assert_eq!(client.status.code(), Some(0), "{program}: {}", client.stderr.join("\n"));
        let server = server.finish(LIMIT);
        assert_eq!(server.status.code(), Some(0), "{program}: {}", server.stderr.join("\n"));
        let named: Vec<&String> =
            server.stderr.iter().filter(|line| line.contains("; still listening on TCP port")).collect();
        assert_eq!(named.len(), STRANGERS.len() + 1, "{program}: {named:#?}");
        assert!(named.iter().all(|line| line.contains("127.0.0.1:")), "{program}: {named:#?}");
        assert!(named[0].contains(r#"unexpected message "GET / HTTP/1.1"#), "{program}: {}", named[0]);
        assert!(named[4].contains("no answer from "), "{program}: {}", named[4]);
        assert!(named[5].contains(" closed the connection while "), "{program}: {}", named[5]);
    }
    // An end of perftest before 5.70.
    let place = Place::new();
    let server = place.server(TESTS[0].0, "");
    let mut old = TcpStream::connect(("127.0.0.1", place.port)).expect("it listens");
    old.write_all(b"5.33\0\0\0\0\0\0\0\0\0\0\0\0").expect("written");
    refused(server, "perftest 5.33 is incompatible with 6.27");
    let place = Place::new();
    let nobody = place.client(PINGPONGS[0].0, "-g 0").finish(LIMIT);
    assert!(line(&nobody).contains("Connection refused"), "{}", line(&nobody));
}

#[test]
fn an_end_that_falls_silent_is_given_up() {
    const SIGSTOP: i32 = 19;
    for (program, options, expected) in [
        (PINGPONGS[1].0, "-g 1 -n 100000000", "nothing received from 127.0.0.1:"),
        (TESTS[0].0, "-c UC -n 100000000 -s 64 -r 512", "nothing received from 127.0.0.1:"),
        (TESTS[2].0, "-n 100000000 -s 64", "for 2 seconds while waiting for the peer to finish its part"),
        (TESTS[5].0, "-n 100000000 -s 64", "for 2 seconds while waiting for the peer to finish its part"),
    ] {
        let place = Place::new();
        let server = place.server(program, &format!("{options} --peer-timeout 2"));
        let mut client = place.client(program, options);
        client.wait_for("remote address");
        std::thread::sleep(Duration::from_millis(300));
        client.signal(SIGSTOP);
        let server = server.finish(LIMIT);
        assert!(line(&server).contains(expected), "{program}: {}", line(&server));
    }
}

#[test]
fn a_client_that_cannot_begin_leaves_its_server_listening() {
    for (program, server, client, expected) in [
        (PINGPONGS[0].0, "-g 0 -n 10", "-g 9", "has no such GID"),
        (PINGPONGS[3].0, "-g 0 -n 10", "-g 0 -i 2", "has one port"),
        (TESTS[0].0, "-n 10", "-x 77", "has no such GID"),
        (TESTS[0].0, "-n 10", "-f 3 -D 4", "is too short for two margins"),
    ] {
        let place = Place::new();
        let running = place.server(program, server);
        let failed = place.client(program, client).finish(LIMIT);
        assert_ne!(failed.status.code(), Some(0));
        assert!(failed.stderr.last().is_some_and(|line| line.contains(expected)), "{:?}", failed.stderr);
        let client = place.client(program, server).finish(LIMIT);
        assert_eq!(client.status.code(), Some(0), "{}", client.stderr.join("\n"));
        assert_eq!(running.finish(LIMIT).status.code(), Some(0));
    }
}

#[test]
fn a_wire_that_leads_nowhere_is_a_port_that_is_down() {
    let place = Place::new();
    let server = place.server(PINGPONGS[0].0, "-g 0");
    let mut command = place.command(PINGPONGS[0].0, ["c", "d"], "");
    command.args(["-g", "0", "127.0.0.1"]);
    let client = Running::start(command).finish(LIMIT);
    assert_eq!(client.status.code(), Some(1));
    refused(server, "port 1 of mlx5_model0 is down: no peer on its wire");
}
