//! Hosts with a device and a manager each, and what the tests do over and over.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use pollux_cm::{ManagementPort, Manager};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::wire::{Cable, Impairments};
use pollux_mlx5_model::{Builder, Model};
use pollux_rsocket::{PollEntry, RsDatagramSocket, RsOptions, poll};
use pollux_verbs::{Context, Options, Provider};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A device, and the manager over it.
pub(crate) struct Host {
    pub(crate) manager: Manager,
    pub(crate) address: SocketAddr,
    /// Goes last, after what is on it.
    model: Model,
}

impl Host {
    pub(crate) fn new(name: &str, ip: &str, change: impl FnOnce(Builder) -> Builder) -> Self {
        let door = DoorProfile { management: true, ..DoorProfile::NEWEST };
        let model = change(Model::builder(name).door(door).ip(ip.parse().expect("an address")));
        let model = model.build().expect("a model");
        let context = Context::open(model.open(), Provider::Mlx5, Options::default()).expect("a context");
        let port = ManagementPort::open(&context, 1).expect("queue pair 1");
        let (ip, _) = ip.split_once('/').expect("a prefix");
        let address = SocketAddr::new(ip.parse().expect("an address"), 0);
        Self { manager: Manager::over(vec![port]), address, model }
    }

    /// One without a cable.
    pub(crate) fn alone(name: &str, ip: &str) -> Self {
        Self::new(name, ip, |model| model)
    }

    /// Lets a device work that does so only when it is told to.
    pub(crate) fn step(&self) {
        self.model.settle();
    }

    pub(crate) fn socket(&self) -> RsDatagramSocket {
        self.socket_with(&RsOptions::default())
    }

    pub(crate) fn socket_with(&self, options: &RsOptions) -> RsDatagramSocket {
        RsDatagramSocket::bind_with(&self.manager, self.address, options).expect("a socket")
    }
}

/// Two at a cable; the first sends and receives with impairments.
pub(crate) fn hosts_on(impairments: Impairments) -> [Host; 2] {
    let (near, far) = Cable::pair();
    [
        Host::new("near", "127.0.0.1/8", |model| model.plugged(near).impairments(impairments)),
        Host::new("far", "127.0.0.2/8", |model| model.plugged(far)),
    ]
}

pub(crate) fn hosts() -> [Host; 2] {
    hosts_on(Impairments::default())
}

pub(crate) fn socket(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

pub(crate) fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// The next datagram, which has to come, but for those of [`meet`] that are late.
pub(crate) fn receive(socket: &RsDatagramSocket) -> (Vec<u8>, SocketAddr) {
    loop {
        let next = next(socket);
        if next.0 != b"meet" {
            return next;
        }
    }
}

fn next(socket: &RsDatagramSocket) -> (Vec<u8>, SocketAddr) {
    let mut entries = [PollEntry::datagrams(socket, true, false)];
    assert_eq!(poll(&mut entries, Some(LIMIT)).expect("asked"), 1, "no datagram: {:?}", socket.counts());
    let mut bytes = vec![0; 4096];
    let (length, from) = socket.recv_from(&mut bytes).expect("a datagram");
    bytes.truncate(length);
    (bytes, from)
}

/// What a test looks at without waiting.
pub(crate) trait Now {
    /// The next datagram, if it is there.
    fn recv_now(&self) -> Option<(Vec<u8>, SocketAddr)>;
}

impl Now for RsDatagramSocket {
    fn recv_now(&self) -> Option<(Vec<u8>, SocketAddr)> {
        let mut entries = [PollEntry::datagrams(self, true, false)];
        // Long enough for the UDP socket and the manager to be looked at.
        (poll(&mut entries, Some(Duration::from_millis(2))).expect("asked") == 1).then(|| next(self))
    }
}

/// Tries until something is so.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LIMIT, "it never came");
        std::thread::yield_now();
    }
}

/// Sends back and forth until both ends know each other's queue pair.
pub(crate) fn meet(near: &RsDatagramSocket, far: &RsDatagramSocket) {
    let [from, to] = [near, far].map(|socket| socket.local_addr().expect("an address"));
    until(|| {
        let before = [near, far].map(|socket| socket.counts().sent);
        for (socket, peer) in [(near, to), (far, from)] {
            match socket.send_to(b"meet", peer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                sent => assert_eq!(sent.expect("sent"), 4),
            }
        }
        let after = [near, far].map(|socket| socket.counts().sent);
        while near.recv_now().is_some() || far.recv_now().is_some() {}
        before[0] < after[0] && before[1] < after[1]
    });
}

/// A datagram there, and back.
pub(crate) fn exchange(near: &RsDatagramSocket, far: &RsDatagramSocket, bytes: &[u8]) {
    let [from, to] = [near, far].map(|socket| socket.local_addr().expect("an address"));
    near.send_to(bytes, to).expect("sent");
    assert_eq!(receive(far), (bytes.to_vec(), from));
    far.send_to(bytes, from).expect("sent");
    assert_eq!(receive(near), (bytes.to_vec(), to));
}
