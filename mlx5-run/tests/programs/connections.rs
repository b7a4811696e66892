//! Programs that connect by address, librdmacm's own and perftest's `-R`, through `/dev/infiniband/rdma_cm`.

#![expect(unsafe_code, reason = "fork(2)")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pollux_cm::{ConnectionParameters, EventChannel, EventKind, Id, Manager, PortSpace, RejectReason};
use pollux_tests::require::{Need, require};
use pollux_verbs::{Cq, CqOptions, Options, Pd, QpKind, QpOptions};

use super::bed::{Bed, Ended, start, stop, wait};
use super::client::is_client_with;
use super::ours::ours;

const SERVER: &str = "10.9.0.1";
const CLIENT: &str = "10.9.0.2";

/// What a client says whose server does not listen yet. perftest's has the event's number: rejected.
const EARLY: [&str; 6] = [
    "CM_EVENT_REJECTED",
    "CM_EVENT_UNREACHABLE",
    "CM_EVENT_ADDR_ERROR",
    "Connection refused",
    "Unexpected CM event bl blka 8",
    "start the server first",
];

/// A program at one end of a link.
fn end(bed: &Bed, ip: &str, options: &[&str], program: &str) -> Command {
    let address = format!("{ip}/24");
    let program: Vec<&str> = program.split(' ').collect();
    bed.command(&[&["--ip", &address], options].concat(), &program)
}

/// How long a server is given to listen, at first.
const HEAD_START: Duration = Duration::from_secs(1);

/// A server, and a client behind it. Whoever comes before it listens makes both start again, with more time between: a client of several
/// connections can have come too early for some of them only. What they said, the client's first.
fn pair(
    head_start: Duration,
    mut server: impl FnMut() -> Command,
    mut client: impl FnMut() -> Command,
) -> [Ended; 2] {
    for round in 0..5 {
        let server = start(&mut server());
        std::thread::sleep(head_start * (1 << round));
        let client = wait(start(&mut client()));
        if client.status == Some(0) || !EARLY.iter().any(|word| client.said.contains(word)) {
            return [client, wait(server)];
        }
        let _said = stop(server);
    }
    panic!("nobody listens");
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
        let ended = pair(HEAD_START, || end(&bed, SERVER, &[], &server), || end(&bed, CLIENT, &[], &client));
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
        // The original waits for ever if only some of its connections came too early.
        let ended = pair(
            2 * HEAD_START,
            || end(&bed, SERVER, &options, &server),
            || end(&bed, CLIENT, &options, &client),
        );
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
        ("riostream -S 64 -C 1 -I 200 -T v -b 10.9.0.1", "riostream -S 64 -C 1 -I 200 -T v -s 10.9.0.1"),
        (
            "riostream -S 5 -C 2 -I 150 -T v -i 0 -b 10.9.0.1",
            "riostream -S 5 -C 2 -I 150 -T v -i 0 -s 10.9.0.1",
        ),
        (
            "riostream -S 5000 -C 40 -I 4 -T v -T b -b 10.9.0.1",
            "riostream -S 5000 -C 40 -I 4 -T v -T b -s 10.9.0.1",
        ),
        (
            "riostream -S 300000 -C 4 -I 2 -T v -B 16384 -b 10.9.0.1",
            "riostream -S 300000 -C 4 -I 2 -T v -B 16384 -s 10.9.0.1",
        ),
        ("riostream -S 4096 -C 50 -T a -T v -b 10.9.0.1", "riostream -S 4096 -C 50 -T a -T v -s 10.9.0.1"),
        ("ib_send_bw -R -n 100", "ib_send_bw -R -n 100 10.9.0.1"),
        ("ib_write_lat -R -n 100", "ib_write_lat -R -n 100 10.9.0.1"),
        ("ib_send_lat -R -c UD -n 100", "ib_send_lat -R -c UD -n 100 10.9.0.1"),
    ] {
        // The original's sender ends as soon as it has posted: what the device has not sent by then is lost.
        // Nor does it find out whether anybody has joined.
        let (roles, head_start) = if server.starts_with("mckey") {
            (&[false][..], 3 * HEAD_START)
        } else {
            (&[true, false][..], HEAD_START)
        };
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
                pair(head_start, || ours(SERVER, server).expect("built"), || theirs(CLIENT, client))
            } else {
                pair(head_start, || theirs(SERVER, server), || ours(CLIENT, client).expect("built"))
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
        ("rping -s -a 203.0.113.1", "rdma_bind_addr: Cannot assign requested address"),
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

/// A client of this test's own, by the kernel's manager as `cm` knows it: IDs with a file each, more than there are of devices; a connection
/// between two ports; and a child of the process, which has no manager.
#[test]
fn our_own_client_finds_the_kernels_manager() {
    let options = [
        "--ports",
        "2",
        "--wire",
        "cable:a",
        "--wire",
        "cable:a",
        "--ip",
        "10.9.0.1/24",
        "--ip",
        "10.9.0.2/24",
    ];
    if !is_client_with(&options, "connections::our_own_client_finds_the_kernels_manager") {
        return;
    }
    let manager = Manager::kernel(Path::new("/"), Options::default()).expect("it is there");
    let many: Vec<_> = (0..300)
        .map(|_| {
            let channel = manager.channel().expect("a file");
            let id = channel.create_id(PortSpace::Tcp).expect("an ID");
            id.bind("10.9.0.1:0".parse().expect("an address")).expect("a port of its own");
            (channel, id)
        })
        .collect();
    let mut ports: Vec<_> = many.iter().map(|(_, id)| id.local_address().expect("bound").port()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 300);
    drop(many);
    let next = |channel: &EventChannel| {
        let event = channel.wait(Duration::from_secs(10)).expect("no error").expect("an event in time");
        event.kind
    };
    let (near, far) = (manager.channel().expect("a file"), manager.channel().expect("a file"));
    let listener = far.create_id(PortSpace::Tcp).expect("an ID");
    let to = "10.9.0.1:7174".parse().expect("an address");
    listener.bind(to).expect("its own");
    listener.listen(1).expect("it listens");
    let id = near.create_id(PortSpace::Tcp).expect("an ID");
    let from = "10.9.0.2:0".parse().expect("an address");
    id.resolve_address(Some(from), to, Duration::from_secs(2)).expect("asked");
    assert!(matches!(next(&near), EventKind::AddressResolved));
    id.resolve_route(Duration::from_secs(2)).expect("asked");
    assert!(matches!(next(&near), EventKind::RouteResolved));
    let queue = |id: &Id| {
        let (context, _) = id.device().expect("no error").expect("a device");
        let (pd, cq) =
            (Pd::new(&context).expect("a domain"), Cq::new(&context, CqOptions::new(64)).expect("one"));
        id.create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair")
    };
    let mut ours = queue(&id);
    id.connect(&ours, &ConnectionParameters::default().private_data(*b"hello")).expect("asked");
    let EventKind::ConnectRequest { id: request, parameters } = next(&far) else { panic!("a request") };
    assert_eq!(&parameters.private_data[..6], b"hello\0");
    assert_eq!(request.peer_address().map(|peer| peer.ip().to_string()).as_deref(), Some("10.9.0.2"));
    let mut theirs = queue(&request);
    request.accept(&mut theirs, &parameters.private_data(*b"welcome")).expect("accepted");
    let EventKind::ConnectResponse(parameters) = next(&near) else { panic!("a response") };
    assert_eq!(&parameters.private_data[..8], b"welcome\0");
    id.establish(&mut ours).expect("established");
    assert!(matches!(next(&far), EventKind::Established(_)));
    // A child has no manager, and leaves its parent's alone.
    // SAFETY: the child does nothing but one call, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = id.resolve_route(Duration::ZERO).is_err();
        // SAFETY: it ends this process.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: room for a number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child was refused");
    id.disconnect(&mut ours).expect("asked");
    assert!(matches!(next(&far), EventKind::Disconnected));
    // Nobody takes datagrams there: the kernel tells that as `UNREACHABLE`, with a status that is no errno.
    let near = manager.channel().expect("a file");
    let id = near.create_id(PortSpace::Udp).expect("an ID");
    id.resolve_address(Some(from), to, Duration::from_secs(2)).expect("asked");
    assert!(matches!(next(&near), EventKind::AddressResolved));
    id.resolve_route(Duration::from_secs(2)).expect("asked");
    assert!(matches!(next(&near), EventKind::RouteResolved));
    id.connect_datagrams(b"hello").expect("asked");
    let refused = next(&near);
    assert!(matches!(refused, EventKind::Rejected { reason: RejectReason(1), .. }), "{refused}");
}

#[test]
fn programs_of_a_daemon_have_no_manager() {
    let bed = Bed::new();
    let socket = bed.path().join("cards").display().to_string();
    let mut daemon = bed.launcher(&["--serve", &socket]);
    let mut daemon = start(&mut daemon);
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let ended = loop {
        let ended =
            wait(start(&mut bed.command(&["--attach", &socket], &["cat", "/dev/infiniband/rdma_cm"])));
        if ended.said.contains("rdma_cm") || std::time::Instant::now() > deadline {
            break ended;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let line = "mlx5-run: /dev/infiniband/rdma_cm: devices of a daemon's, or of a parent's, have no connection manager";
    assert!(ended.said.contains(line), "{}", ended.said);
    assert_ne!(ended.status, Some(0));
    let _ended = Command::new("kill").arg(daemon.id().to_string()).status();
    daemon.wait().expect("a child");
}
