//! Datagram sockets between models of a card, over the connection manager of this process. Their addresses are the machine's own loopback
//! addresses, by which the kernel's UDP carries the control messages.

#[path = "datagrams/bed.rs"]
mod bed;
#[path = "datagrams/faults.rs"]
mod faults;
#[path = "datagrams/hostile.rs"]
mod hostile;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use pollux_rsocket::{PollEntry, RsDatagramSocket, RsOptions, poll};

use bed::{Host, LIMIT, Now, data, exchange, hosts, meet, receive, socket};

#[test]
fn the_first_datagram_goes_by_udp_and_then_the_queue_pairs_do() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(|host| host.socket());
    let [from, to] = [&near, &far].map(|socket| socket.local_addr().expect("an address"));
    assert_eq!(near.send_to(b"first", to).expect("sent"), 5);
    assert_eq!(receive(&far), (b"first".to_vec(), from));
    assert_eq!((near.counts().sent_by_udp, far.counts().received_by_udp), (1, 1));
    meet(&near, &far);
    let [before, behind] = [near.counts(), far.counts()];
    for bytes in [0, 1, 55, 56, 57, 500, near.max_datagram(Some(to)).expect("a limit")] {
        let sent = data(bytes);
        assert_eq!(near.send_to(&sent, to).expect("sent"), bytes);
        assert_eq!(receive(&far), (sent.clone(), from), "{bytes} bytes");
        assert_eq!(far.send_to(&sent, from).expect("sent"), bytes);
        assert_eq!(receive(&near), (sent, to), "{bytes} bytes");
    }
    for (now, before) in [(near.counts(), before), (far.counts(), behind)] {
        assert_eq!((now.sent - before.sent, now.received - before.received), (7, 7));
        assert_eq!((now.sent_by_udp, now.received_by_udp), (before.sent_by_udp, before.received_by_udp));
        assert_eq!((now.malformed, now.unresolved, now.restarts), (0, 0, 0));
    }
}

#[test]
fn datagrams_that_do_not_fit_are_refused_in_one_line() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(|host| host.socket());
    let to = far.local_addr().expect("an address");
    // The model's MTU is 1024; the source header has 8 bytes.
    assert_eq!(near.max_datagram(Some(to)).expect("a limit"), 1016);
    for _ in 0..2 {
        // By UDP, and by the queue pair.
        let error = near.send_to(&data(1017), to).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), "a datagram of 1017 bytes, where at most 1016 fit; send less at once");
        meet(&near, &far);
    }
    exchange(&near, &far, &data(1016));
}

#[test]
fn what_there_is_no_room_for_is_cut_and_peeking_leaves_it() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(|host| host.socket());
    for _ in 0..2 {
        near.send_to(b"datagram", far.local_addr().expect("an address")).expect("sent");
        let mut short = [0; 4];
        let peeked = far.peek_from(&mut short).expect("a datagram");
        assert_eq!((peeked.0, &short), (4, b"data"));
        assert_eq!(far.recv_from(&mut short).expect("the same").0, 4);
        near.send_to(b"next", far.local_addr().expect("an address")).expect("sent");
        assert_eq!(receive(&far).0, b"next");
        meet(&near, &far);
    }
}

#[test]
fn one_socket_answers_many() {
    let hosts = hosts();
    let server = hosts[1].socket();
    let to = server.local_addr().expect("an address");
    let (peers, rounds) = (6, 20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..peers * rounds {
                let (heard, from) = receive(&server);
                server.send_to(&heard, from).expect("sent");
            }
        });
        for peer in 0..peers {
            let client = hosts[0].socket();
            scope.spawn(move || {
                client.connect(to).expect("a device");
                for round in 0..rounds {
                    let sent = [peer as u8, round as u8];
                    client.send(&sent).expect("sent");
                    let mut back = [0; 8];
                    assert_eq!(client.recv(&mut back).expect("an answer"), 2);
                    assert_eq!(back[..2], sent);
                }
                assert!(client.counts().sent > 0, "{:?}", client.counts());
            });
        }
    });
    assert_eq!(server.counts().received + server.counts().received_by_udp, peers * rounds);
}

#[test]
fn a_connected_socket_hears_its_peer_alone() {
    let hosts = hosts();
    let [near, far, other] = [&hosts[0], &hosts[1], &hosts[1]].map(|host| host.socket());
    let at = near.local_addr().expect("an address");
    // The stranger knows the queue pair before.
    meet(&near, &other);
    meet(&near, &far);
    near.connect(far.local_addr().expect("an address")).expect("a device");
    assert_eq!(near.peer_addr().expect("connected"), far.local_addr().expect("an address"));
    let before = near.counts().foreign;
    other.send_to(b"stranger", at).expect("sent");
    bed::until(|| near.recv_now().is_none() && near.counts().foreign > before);
    far.send_to(b"peer", at).expect("sent");
    assert_eq!(receive(&near).0, b"peer");
    near.send(b"answer").expect("sent");
    assert_eq!(receive(&far).0, b"answer");
}

#[test]
fn calls_that_would_wait_say_so_and_poll_waits() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(|host| host.socket());
    far.set_nonblocking(true).expect("set");
    let kind = far.recv_from(&mut [0; 8]).expect_err("nothing there").kind();
    assert_eq!(kind, ErrorKind::WouldBlock);
    let wait = |readable, writable, time| {
        let mut entries = [PollEntry::datagrams(&far, readable, writable)];
        let ready = poll(&mut entries, Some(time)).expect("asked");
        let [entry] = entries;
        (ready, entry.readiness().readable, entry.readiness().writable)
    };
    let begin = Instant::now();
    assert_eq!(wait(true, false, Duration::from_millis(50)), (0, false, false));
    assert!(begin.elapsed() >= Duration::from_millis(50));
    assert_eq!(wait(true, true, Duration::ZERO), (1, false, true));
    // By UDP and by the queue pair, of a thread that sleeps meanwhile.
    for _ in 0..2 {
        std::thread::scope(|scope| {
            let slept = scope.spawn(|| wait(true, false, LIMIT));
            std::thread::sleep(Duration::from_millis(50));
            near.send_to(b"wake", far.local_addr().expect("an address")).expect("sent");
            assert_eq!(slept.join().expect("it ends"), (1, true, false));
        });
        assert_eq!(far.recv_from(&mut [0; 8]).expect("a datagram").0, 4);
        meet(&near, &far);
    }
}

#[test]
fn a_blocked_receiver_sleeps_until_a_datagram_comes() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(|host| host.socket());
    meet(&near, &far);
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..2).map(|_| scope.spawn(|| receive(&far).0)).collect();
        std::thread::sleep(Duration::from_millis(50));
        for word in [b"one", b"two"] {
            near.send_to(word, far.local_addr().expect("an address")).expect("sent");
        }
        let mut heard: Vec<_> = waits.into_iter().map(|wait| wait.join().expect("it ends")).collect();
        heard.sort();
        assert_eq!(heard, [b"one", b"two"]);
    });
}

#[test]
fn bursts_beyond_the_buffers_are_sent_and_what_overruns_is_lost() {
    let hosts = hosts();
    let options = RsOptions::default().send_buffer(8192).receive_buffer(8192);
    let [near, far] = [&hosts[0], &hosts[1]].map(|host| host.socket_with(&options));
    meet(&near, &far);
    let before = near.counts().sent;
    for number in 0_u32..100 {
        near.send_to(&number.to_be_bytes(), far.local_addr().expect("an address")).expect("sent");
    }
    assert_eq!(near.counts().sent - before, 100);
    // The receiver has four buffers: what came first is there, in order, and the socket goes on.
    std::thread::sleep(Duration::from_millis(100));
    let mut heard = Vec::new();
    while let Some((word, _)) = far.recv_now() {
        // One of `meet` may be late.
        if word != b"meet" {
            heard.push(u32::from_be_bytes(word.try_into().expect("a number")));
        }
    }
    assert!((1..100).contains(&heard.len()), "{heard:?}");
    assert!(heard.is_sorted(), "{heard:?}");
    exchange(&near, &far, b"further");
}

/// Calls that do not wait see what came by UDP, whatever lies between them.
#[test]
fn calls_that_do_not_wait_look_everywhere() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
    let to = far.local_addr().expect("an address");
    far.set_nonblocking(true).expect("set");
    near.send_to(b"one", to).expect("sent");
    std::thread::sleep(Duration::from_millis(1));
    let mut bytes = [0; 8];
    assert_eq!(far.recv(&mut bytes).expect("it is there"), 3);
    let near = hosts[0].socket();
    near.send_to(b"two", to).expect("sent");
    let mut entries = [PollEntry::datagrams(&far, true, false)];
    assert_eq!(poll(&mut entries, Some(Duration::ZERO)).expect("asked"), 1);
}

#[test]
fn link_local_addresses_are_refused() {
    let hosts = hosts();
    let near = hosts[0].socket();
    for address in ["[fe80::1]:7", "[fe80::1%3]:7"] {
        let address = bed::socket(address);
        for refused in [near.send_to(b"", address).map(drop), near.connect(address)] {
            let error = refused.expect_err("of one interface alone");
            assert!(error.to_string().contains("link-local address"), "{error}");
        }
    }
    let refused = RsDatagramSocket::bind(&hosts[0].manager, bed::socket("[fe80::1]:0")).expect_err("as well");
    assert!(refused.to_string().contains("link-local address"), "{refused}");
}

/// Two sockets of one device, by IPv6.
#[test]
fn datagrams_over_ipv6() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        println!("skipped: no IPv6 here");
        return;
    }
    let host = Host::alone("alone", "::1/128");
    let [near, far] = [host.socket(), host.socket()];
    meet(&near, &far);
    exchange(&near, &far, &data(1000));
    assert_eq!(near.max_datagram(far.local_addr().ok()).expect("a limit"), 1000);
    assert!(near.counts().sent > 0 && far.counts().received > 0, "{:?}", near.counts());
}

#[test]
fn mistakes_are_one_line() {
    let hosts = hosts();
    let bind = |text: &str| RsDatagramSocket::bind(&hosts[0].manager, socket(text)).expect_err("no socket");
    let foreign = bind("203.0.113.1:0");
    assert_eq!(foreign.kind(), ErrorKind::AddrNotAvailable);
    let line = "203.0.113.1:0: UDP, by which datagram sockets meet: Cannot assign requested address (os error 99); give an address of \
                this machine, to a device model as well, such as ip=127.0.0.2/8";
    assert_eq!(foreign.to_string(), line);
    let without = bind("127.0.0.99:0");
    assert_eq!(without.kind(), ErrorKind::AddrNotAvailable, "{without}");
    assert!(without.to_string().contains("127.0.0.99:0 is the address of no RDMA device here"), "{without}");
    let near = hosts[0].socket();
    assert_eq!(bind(&near.local_addr().expect("an address").to_string()).kind(), ErrorKind::AddrInUse);
    assert_eq!(near.send(b"whom").expect_err("no peer").kind(), ErrorKind::NotConnected);
    assert_eq!(near.peer_addr().expect_err("no peer").kind(), ErrorKind::NotConnected);
    for peer in ["[::1]:5", "[::ffff:127.0.0.1]:5"] {
        let other = near.send_to(b"x", socket(peer)).expect_err("another version");
        let local = near.local_addr().expect("an address");
        assert_eq!(other.kind(), ErrorKind::InvalidInput);
        assert_eq!(
            other.to_string(),
            format!("{peer} is not of the IP version of {local}; bind a socket of that version")
        );
    }
    // Nobody at the port: a connected socket hears of it.
    let nobody = hosts[1].socket().local_addr().expect("an address");
    near.connect(nobody).expect("a device");
    near.send(b"anybody?").expect("sent");
    assert_eq!(near.recv(&mut [0; 8]).expect_err("nobody").kind(), ErrorKind::ConnectionRefused);
}
