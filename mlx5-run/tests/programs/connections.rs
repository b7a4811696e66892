//! Programs that connect by address, librdmacm's own and perftest's `-R`, through `/dev/infiniband/rdma_cm`.

use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_tests::require::{Need, require};

use super::bed::{Bed, Ended, start, wait};
use super::ours::ours;

const SERVER: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";

/// A program at one end of a link.
fn end(bed: &Bed, ip: &str, options: &[&str], program: &str) -> Command {
    let address = format!("{ip}/24");
    let program: Vec<&str> = program.split(' ').collect();
    bed.command(&[&["--ip", &address], options].concat(), &program)
}

/// A server, and a client as often as it takes until the server listens. What they said, the client's first.
fn pair(mut server: Command, mut client: impl FnMut() -> Command) -> [Ended; 2] {
    let server = start(&mut server);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(500));
        let client = wait(start(&mut client()));
        let early =
            ["CM_EVENT_REJECTED", "CM_EVENT_UNREACHABLE", "CM_EVENT_ADDR_ERROR", "Connection refused"];
        if client.status == Some(0) || !early.iter().any(|word| client.said.contains(word)) {
            return [client, wait(server)];
        }
    }
    panic!("nobody listens: {:?}", wait(server));
}

fn must(name: &str, ended: [Ended; 2]) -> [String; 2] {
    ended.map(|ended| {
        assert_eq!(ended.status, Some(0), "{name}: {}", ended.said);
        assert!(!ended.said.contains("broke a rule"), "{name}: {}", ended.said);
        ended.said
    })
}

#[test]
fn librdmacms_programs_connect_by_address() {
    if !require(&[Need::RdmaCore, Need::RdmaCm]) {
        return;
    }
    for (server, client, said) in [
        ("rping -s -v -C 5 -a", "rping -c -v -C 5 -a", "server ping data: rdma-ping-4"),
        ("ucmatose -c 5 -b", "ucmatose -c 5 -s", "return status 0"),
        ("ucmatose -m -c 2 -b", "ucmatose -m -c 2 -s", "return status 0"),
        ("udaddy -c 3 -b", "udaddy -c 3 -s", "return status 0"),
        ("rdma_server", "rdma_client -s", "rdma_server: end 0"),
        ("rdma_xserver -c r", "rdma_xclient -c r -s", "end 0"),
        ("rstream -S 65536 -C 50 -b", "rstream -S 65536 -C 50 -s", "custom"),
        ("riostream -S 4096 -C 50 -b", "riostream -S 4096 -C 50 -s", "custom"),
        ("ib_send_bw -R -n 200", "ib_send_bw -R -n 200", "65536"),
        ("ib_write_bw -R -n 200", "ib_write_bw -R -n 200", "65536"),
        ("ib_read_lat -R -n 200", "ib_read_lat -R -n 200", "t_avg"),
        ("ib_send_bw -R -c UD -n 200", "ib_send_bw -R -c UD -n 200", "MsgRate"),
    ] {
        let bed = Bed::new();
        let server = if server.ends_with(['a', 'b']) && !server.contains("server") {
            format!("{server} {SERVER}")
        } else {
            server.to_owned()
        };
        let client = format!("{client} {SERVER}");
        let ended = pair(end(&bed, SERVER, &[], &server), || end(&bed, CLIENT, &[], &client));
        let told = must(&client, ended);
        assert!(told.iter().any(|told| told.contains(said)), "{server}: {told:?}");
    }
}

#[test]
fn messages_that_the_wire_loses_are_said_again() {
    if !require(&[Need::RdmaCore, Need::RdmaCm]) {
        return;
    }
    for seed in ["1", "2", "3"] {
        let bed = Bed::new();
        let options = ["--loss", "0.05", "--duplicate", "0.05", "--seed", seed];
        let client = format!("ucmatose -c 5 -s {SERVER}");
        let server = format!("ucmatose -c 5 -b {SERVER}");
        let ended = pair(end(&bed, SERVER, &options, &server), || end(&bed, CLIENT, &options, &client));
        must(&format!("seed {seed}"), ended);
    }
}

/// Our programs, on models of their own, and the originals, each as the server and as the client.
#[test]
fn our_programs_connect_to_their_originals() {
    if !require(&[Need::RdmaCore, Need::RdmaCm]) {
        return;
    }
    for (server, client) in [
        ("rping -s -v -C 5 -a 10.9.0.1", "rping -c -v -C 5 -a 10.9.0.1"),
        ("ucmatose -c 3 -b 10.9.0.1", "ucmatose -c 3 -s 10.9.0.1"),
        ("udaddy -c 3 -b 10.9.0.1", "udaddy -c 3 -s 10.9.0.1"),
        ("rdma_server -s 10.9.0.1", "rdma_client -s 10.9.0.1"),
        ("mckey -m 239.1.2.3 -b 10.9.0.1", "mckey -s -m 239.1.2.3 -b 10.9.0.2"),
        ("ib_send_bw -R -n 100", "ib_send_bw -R -n 100 10.9.0.1"),
        ("ib_write_lat -R -n 100", "ib_write_lat -R -n 100 10.9.0.1"),
        ("ib_send_lat -R -c UD -n 100", "ib_send_lat -R -c UD -n 100 10.9.0.1"),
    ] {
        // The original's sender ends as soon as it has posted: what the device has not sent by then is lost.
        let roles = if server.starts_with("mckey") { &[false][..] } else { &[true, false] };
        for &we_serve in roles {
            let bed = Bed::new();
            let socket = |name: &str| bed.path().join(name).display().to_string();
            let their_wire = format!("unix:{}:{}", socket("theirs"), socket("ours"));
            let vdev = format!("mlx5_model0,wire=unix:{}:{}", socket("ours"), socket("theirs"));
            let theirs = |ip: &str, line: &str| end(&bed, ip, &["--wire", &their_wire], line);
            let ours = |ip: &str, line: &str| {
                let mut words = line.split(' ');
                let name = words.next().map_or("", |name| name.trim_start_matches("ib_"));
                let mut ours = Command::new(ours(name)?);
                ours.args(["-l", "0", "--no-huge", "--vdev", &format!("{vdev},ip={ip}/24"), "--"]);
                ours.args(words).stdin(Stdio::null());
                Some(ours)
            };
            let ends = if we_serve { ours(SERVER, server) } else { ours(CLIENT, client) };
            if ends.is_none() {
                return;
            }
            let ended = if we_serve {
                pair(ours(SERVER, server).expect("built"), || theirs(CLIENT, client))
            } else {
                pair(theirs(SERVER, server), || ours(CLIENT, client).expect("built"))
            };
            must(&format!("{client}, we serve: {we_serve}"), ended);
        }
    }
}

#[test]
fn what_cannot_be_is_one_line_or_the_kernels_errno() {
    if !require(&[Need::RdmaCore, Need::RdmaCm]) {
        return;
    }
    let bed = Bed::new();
    for (program, line) in [
        // Not our address; nobody's address; nobody there.
        ("rping -s -a 203.0.113.1", "rdma_bind_addr: No such device"),
        ("rping -c -a 203.0.113.1", "RDMA_CM_EVENT_ADDR_ERROR"),
        ("rping -c -a 10.9.0.77", "RDMA_CM_EVENT_ADDR_ERROR"),
    ] {
        let ended = wait(start(&mut end(&bed, SERVER, &[], program)));
        assert_ne!(ended.status, Some(0), "{program}: {}", ended.said);
        assert!(ended.said.contains(line), "{program}: {}", ended.said);
    }
    let ended = bed.run(&["--ip", "10.0.0.1"], &["true"]);
    assert_eq!(ended.status, Some(2), "{}", ended.said);
    assert!(ended.said.contains("--ip"), "{}", ended.said);
    let ended = bed.run(&["--ports", "2", "--ip", "10.0.0.1/24"], &["true"]);
    assert!(ended.said.contains("1 of --ip for 2 ports: give one for each, or none"), "{}", ended.said);
}
