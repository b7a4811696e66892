//! Wires that lose, peers that begin anew, devices that fail.

use std::time::{Duration, Instant};

use pollux_mlx5_model::wire::{Cable, Impairments};
use pollux_rsocket::{PollEntry, RsDatagramSocket, RsOptions, poll};

use crate::bed::{Host, LIMIT, Now, data, exchange, hosts, hosts_on, meet, receive, until};

#[test]
fn lost_datagrams_hold_up_nobody() {
    for seed in 1..=3 {
        let bad = Impairments { loss: 0.2, dup: 0.05, seed, ..Impairments::default() };
        let hosts = hosts_on(bad);
        let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
        let to = far.local_addr().expect("an address");
        meet(&near, &far);
        let begin = Instant::now();
        let mut heard = 0;
        for number in 0..300_u32 {
            near.send_to(&[&number.to_be_bytes()[..], &data(200)].concat(), to).expect("sent");
            while let Some((bytes, _)) = far.recv_now() {
                if bytes != b"meet" {
                    assert_eq!((bytes.len(), &bytes[4..]), (204, &data(200)[..]), "whole, or not at all");
                    heard += 1;
                }
            }
        }
        assert!((100..330).contains(&heard), "seed {seed}: {heard}");
        assert!(begin.elapsed() < LIMIT);
        // Who asks again has an answer.
        let begin = Instant::now();
        loop {
            near.send_to(b"again", to).expect("sent");
            if far.recv_now().is_some_and(|(bytes, _)| bytes == b"again") {
                break;
            }
            assert!(begin.elapsed() < LIMIT, "seed {seed}");
        }
    }
}

/// The address is never resolved: datagrams go by UDP as long as that lasts.
#[test]
fn without_a_wire_udp_carries_them() {
    let [near, far] =
        [("near", "127.0.0.1/8"), ("far", "127.0.0.2/8")].map(|(name, ip)| Host::alone(name, ip));
    let [near, far] = [&near, &far].map(Host::socket);
    for _ in 0..3 {
        exchange(&near, &far, b"by UDP");
    }
    until(|| near.recv_now().is_none() && far.recv_now().is_none() && near.counts().unresolved > 0);
    exchange(&near, &far, b"still by UDP");
    assert_eq!((near.counts().sent, near.counts().sent_by_udp), (0, 4));
}

#[test]
fn a_peer_that_begins_anew_is_met_again() {
    let hosts = hosts();
    let near = hosts[0].socket();
    let mut at = hosts[1].address;
    for round in 0..3 {
        let far = RsDatagramSocket::bind(&hosts[1].manager, at).expect("a socket");
        at = far.local_addr().expect("an address");
        if round > 0 {
            // What goes to the queue pair that is gone is lost, and the new one is asked for by nobody: its first word tells it.
            far.send_to(b"anew", near.local_addr().expect("an address")).expect("sent");
            assert_eq!(receive(&near), (b"anew".to_vec(), at));
        }
        meet(&near, &far);
        exchange(&near, &far, b"met");
    }
}

#[test]
fn a_queue_pair_that_fails_is_made_anew() {
    let (near, far) = Cable::pair();
    let plan = "send-error:20/0x04".parse().expect("a plan");
    let hosts = [
        Host::new("near", "127.0.0.1/8", |model| model.plugged(near).faults(plan)),
        Host::new("far", "127.0.0.2/8", |model| model.plugged(far)),
    ];
    let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
    meet(&near, &far);
    for _ in 0..40 {
        near.send_to(b"maybe lost", far.local_addr().expect("an address")).expect("sent");
        near.recv_now();
        while far.recv_now().is_some() {}
    }
    assert_eq!(near.counts().restarts, 1, "{:?}", near.counts());
    // The peer was told the new number: it sends there, though it was sent nothing by UDP.
    while far.recv_now().is_some() {}
    until(|| {
        far.send_to(b"told", near.local_addr().expect("an address")).expect("sent");
        near.recv_now().is_some_and(|(bytes, _)| bytes == b"told")
    });
    meet(&near, &far);
    exchange(&near, &far, b"as before");
}

/// A device that does not work takes no more than there are buffers.
#[test]
fn sends_wait_for_buffers_and_poll_tells_of_them() {
    // Both on one device, which needs no wire for that.
    let host = Host::new("near", "127.0.0.1/8", |model| model.stepped());
    let options = RsOptions::default().send_buffer(8192).nonblocking(true);
    let [near, far] = [host.socket_with(&options), host.socket_with(&options)];
    let to = far.local_addr().expect("an address");
    let begin = Instant::now();
    while near.counts().sent == 0 {
        host.step();
        near.send_to(b"meet", to).expect("sent");
        host.step();
        near.recv_now();
        far.recv_now();
        assert!(begin.elapsed() < LIMIT, "{:?} {:?}", near.counts(), far.counts());
    }
    host.step();
    near.recv_now();
    let mut sent = 0;
    let full = loop {
        match near.send_to(b"full", to) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 100);
    };
    assert_eq!((sent, full.kind()), (4, std::io::ErrorKind::WouldBlock));
    let writable = || {
        let mut entries = [PollEntry::datagrams(&near, false, true)];
        poll(&mut entries, Some(Duration::from_millis(1))).expect("asked") == 1
    };
    assert!(!writable());
    host.step();
    assert!(writable());
    near.send_to(b"more", to).expect("there is room");
    host.step();
}

/// One that answers to its old name after it began anew is met again by whoever connects again.
#[test]
fn a_silent_peer_that_began_anew_is_met_by_connecting_again() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
    let to = far.local_addr().expect("an address");
    near.connect(to).expect("known");
    meet(&near, &far);
    drop(far);
    let far = RsDatagramSocket::bind(&hosts[1].manager, to).expect("a socket");
    near.connect(to).expect("known");
    until(|| {
        near.send(b"anew").expect("sent");
        far.recv_now().is_some_and(|(bytes, _)| bytes == b"anew")
    });
}

/// What came of others before is not the peer's.
#[test]
fn strangers_are_forgotten_when_a_peer_is_chosen() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
    let stranger = hosts[1].socket();
    let [here, there] = [&near, &far].map(|socket| socket.local_addr().expect("an address"));
    meet(&near, &stranger);
    // By the queue pair, and by UDP.
    stranger.send_to(b"stranger", here).expect("sent");
    hosts[1].socket().send_to(b"another", here).expect("sent");
    until(|| near.peek_from(&mut [0; 64]).is_ok_and(|(_, from)| from != there));
    let before = near.counts().foreign;
    near.connect(there).expect("known");
    assert!(near.counts().foreign > before);
    far.send_to(b"peer", here).expect("sent");
    assert_eq!(receive(&near), (b"peer".to_vec(), there));
}

/// Its queue pair fails, and the next one is refused: what comes by UDP goes on coming, and makes the one after it, of which the peer is
/// told that only sends.
#[test]
fn a_queue_pair_that_cannot_be_made_anew_is_made_later() {
    let (near, far) = Cable::pair();
    // The third queue pair of this host: one is the manager's.
    let plan = "[send-error:20/0x04,refuse:0x500/3/0x0f]".parse().expect("a plan");
    let hosts = [
        Host::new("near", "127.0.0.1/8", |model| model.plugged(near).faults(plan)),
        Host::new("far", "127.0.0.2/8", |model| model.plugged(far)),
    ];
    let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
    let here = near.local_addr().expect("an address");
    meet(&near, &far);
    let told = (0..40).find_map(|_| {
        let sent = near.send_to(b"maybe lost", far.local_addr().expect("an address"));
        while far.recv_now().is_some() {}
        sent.err().or_else(|| near.take_error().expect("asked"))
    });
    assert!(told.is_some(), "the refusal is told: {:?}", near.counts());
    assert_eq!(near.counts().restarts, 0);
    // From here on it only receives. A stranger's first datagram comes by UDP.
    let stranger = hosts[1].socket();
    stranger.send_to(b"by UDP", here).expect("sent");
    until(|| near.recv_now().is_some_and(|(bytes, _)| bytes == b"by UDP"));
    until(|| {
        near.recv_now();
        stranger.send_to(b"again", here).expect("sent");
        near.counts().restarts == 1
    });
    until(|| {
        far.send_to(b"told", here).expect("sent");
        near.recv_now().is_some_and(|(bytes, _)| bytes == b"told")
    });
}
