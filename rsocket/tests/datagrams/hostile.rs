//! Peers that keep to no rules: by UDP, and by a queue pair.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use pollux_cm::PortSpace;
use pollux_rsocket::RsDatagramSocket;
use pollux_verbs::{Access, Ah, Cq, CqOptions, Mr, Path, Pd, Qp, QpKind, QpOptions};

use crate::bed::{Host, Now, exchange, hosts, meet, receive, until};

/// The key of datagram queue pairs, which is no secret.
const QKEY: u32 = 0x0123_4567;

/// A control message of version 4, by hand.
fn control(operation: u8, qpn: u32, data: &[u8]) -> Vec<u8> {
    [&[0x55, 0x55, 0x55, 0x55, 4, operation, 16, 0][..], &qpn.to_be_bytes(), &[127, 0, 0, 2], data].concat()
}

/// A UDP socket at the far host's address, and where it sends to.
struct Stranger {
    udp: UdpSocket,
    to: SocketAddr,
}

impl Stranger {
    fn of(target: &RsDatagramSocket) -> Self {
        let udp = UdpSocket::bind("127.0.0.2:0").expect("a port");
        udp.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        Self { udp, to: target.local_addr().expect("an address") }
    }

    fn say(&self, message: &[u8]) {
        self.udp.send_to(message, self.to).expect("sent");
    }
}

#[test]
fn control_messages_of_no_form_are_dropped_and_counted() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
    meet(&near, &far);
    let stranger = Stranger::of(&near);
    let good = control(0, 77, b"data");
    let change = |at: usize, byte| {
        let mut message = good.clone();
        message[at] = byte;
        message
    };
    let mut messages: Vec<Vec<u8>> = (0..16).map(|cut| good[..cut].to_vec()).collect();
    messages.extend([
        change(0, 0),
        change(4, 6),
        change(4, 0),
        change(5, 1),
        change(5, 255),
        change(6, 28),
        change(6, 0),
    ]);
    messages.extend([0, 1, 0xff_ffff].map(|qpn| control(0, qpn, b"data")));
    // A byte more than any socket sends, and the longest that UDP has.
    messages.extend([2033, 60_000].map(|bytes| control(0, 77, &vec![7; bytes])));
    for message in &messages {
        stranger.say(message);
    }
    let count = messages.len() as u64;
    until(|| near.recv_now().is_none() && near.counts().malformed == count);
    // One without a device behind it is taken by what it says; nothing comes of its queue pair number.
    stranger.say(&good);
    assert_eq!(receive(&near), (b"data".to_vec(), stranger.udp.local_addr().expect("an address")));
    let mut answer = [0; 64];
    let (bytes, _) = stranger.udp.recv_from(&mut answer).expect("an answer");
    assert_eq!(
        (bytes, &answer[..8], &answer[12..16]),
        (16, &[0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0][..], &[127, 0, 0, 1][..])
    );
    exchange(&near, &far, b"none the worse");
    assert_eq!(near.counts().malformed, count);
}

#[test]
fn a_flood_of_datagrams_by_udp_is_kept_within_bounds() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
    meet(&near, &far);
    let strangers: Vec<Stranger> = (0..40).map(|_| Stranger::of(&near)).collect();
    for round in 0..5_u32 {
        for stranger in &strangers {
            stranger.say(&control(0, 100 + round, b"flood"));
        }
        // The kernel's own buffer has a limit, too: look, but take nothing.
        near.peek_from(&mut [0; 8]).expect("one is there");
        for _ in 0..32 {
            pollux_rsocket::poll(
                &mut [pollux_rsocket::PollEntry::datagrams(&near, false, true)],
                Some(Duration::ZERO),
            )
            .expect("asked");
        }
    }
    until(|| {
        // A call that takes nothing.
        near.peek_from(&mut [0; 8]).expect("one is there");
        near.counts().overrun > 0
    });
    let mut kept = 0;
    while near.recv_now().is_some() {
        kept += 1;
    }
    assert!((1..=200).contains(&kept), "{kept}");
    exchange(&near, &far, b"none the worse");
}

/// A datagram queue pair on a host, and the way to another.
fn queue_pair(host: &Host, peer: &Host) -> (Pd, Cq, Qp, Ah) {
    let channel = host.manager.channel().expect("a channel");
    let id = channel.create_id(PortSpace::Udp).expect("an ID");
    id.bind(host.address).expect("its own");
    let (context, port) = id.device().expect("no error").expect("a device");
    let pd = Pd::new(&context).expect("a domain");
    let cq = Cq::new(&context, CqOptions::new(64)).expect("a queue");
    let qp = id
        .create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Ud).depth(32, 1).inline(64))
        .expect("a queue pair");
    let std::net::IpAddr::V4(peer) = peer.address.ip() else { panic!("IPv4") };
    let own = context.gid_of(port, host.address.ip()).expect("no error").expect("a GID");
    let path = Path::new(peer.to_ipv6_mapped().octets(), own.index as u8);
    let ah = Ah::new(&pd, &path).expect("a way");
    (pd, cq, qp, ah)
}

#[test]
fn datagrams_of_no_form_are_dropped_and_counted_and_fail_no_queue_pair() {
    let hosts = hosts();
    let [near, far] = [&hosts[0], &hosts[1]].map(Host::socket);
    meet(&near, &far);
    // It learns the number as any peer does.
    let stranger = Stranger::of(&near);
    stranger.say(&control(0, 77, b"who?"));
    assert_eq!(receive(&near).0, b"who?");
    let mut answer = [0; 64];
    stranger.udp.recv_from(&mut answer).expect("an answer");
    let qpn = u32::from_be_bytes(answer[8..12].try_into().expect("four bytes"));

    let (pd, mut cq, mut qp, ah) = queue_pair(&hosts[1], &hosts[0]);
    let whole = [4, 8, 0x1c, 0x06, 127, 0, 0, 9];
    let mut v6_cut = vec![6, 24];
    v6_cut.resize(23, 0);
    let cut: Vec<&[u8]> = (0..8).map(|cut| &whole[..cut]).collect();
    let other: [&[u8]; 5] =
        [&[4, 24, 0, 0, 0, 0, 0, 0], &[6, 8, 0, 0, 0, 0, 0, 0], &[0; 8], &[255; 16], &v6_cut];
    let messages: Vec<&[u8]> = cut.into_iter().chain(other).collect();
    let mut post = |message: &[u8]| {
        let mut batch = qp.batch();
        batch.send(1).inline(message).to(&ah, qpn, QKEY).signalled();
        batch.ring().expect("posted");
        let mut done = false;
        until(|| {
            cq.poll(1, |wc| {
                assert!(wc.is_ok(), "{:?}", wc.status());
                done = true;
            });
            done
        });
    };
    for message in &messages {
        post(message);
    }
    let count = messages.len() as u64;
    until(|| near.recv_now().is_none() && near.counts().malformed >= count);
    assert_eq!(near.counts().malformed, count);
    // It may say that it is anybody.
    post(&whole);
    assert_eq!(receive(&near), (Vec::new(), "127.0.0.9:7174".parse().expect("an address")));
    // Packets of the whole MTU, longer than any datagram: there is room for them.
    let long = Mr::allocate(&pd, 1024, Access::LOCAL_WRITE).expect("memory");
    long.write(0, &whole);
    let mut batch = qp.batch();
    batch.send(2).mr(&long, 0..1024).to(&ah, qpn, QKEY).signalled();
    batch.ring().expect("posted");
    assert_eq!(receive(&near).0.len(), 1016);
    exchange(&near, &far, b"none the worse");
    assert_eq!(near.counts().restarts, 0);
}
