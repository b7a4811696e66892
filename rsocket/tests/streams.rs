//! Streams between models of a card, over the connection manager of this process.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::{Duration, Instant};

use pollux_cm::{
    ConnectionParameters, EventChannel, EventKind, Id, ManagementPort, Manager, PortSpace, RejectReason,
};
use pollux_mlx5_kernel::DoorProfile;
use pollux_mlx5_model::Model;
use pollux_mlx5_model::wire::{Cable, Impairments};
use pollux_rsocket::{PollEntry, RsError, RsListener, RsOptions, RsStream, Violation, poll};
use pollux_verbs::{
    Access, Buf, Context, Cq, CqOptions, Mr, Options, Pd, Provider, Qp, QpAttributes, QpKind, QpOptions,
    QpState,
};

const LIMIT: Duration = Duration::from_secs(30);

/// A device, and the manager over it.
struct Host {
    manager: Manager,
    ip: &'static str,
    /// Goes last, after what is on it.
    _model: Model,
}

impl Host {
    fn new(name: &str, ip: &'static str, plug: Cable, impairments: Impairments) -> Self {
        let door = DoorProfile { management: true, ..DoorProfile::NEWEST };
        let address = format!("{ip}/24").parse().expect("an address");
        let model =
            Model::builder(name).door(door).plugged(plug).impairments(impairments).ip(address).build();
        let model = model.expect("a model");
        let context = Context::open(model.open(), Provider::Mlx5, Options::default()).expect("a context");
        let port = ManagementPort::open(&context, 1).expect("queue pair 1");
        Self { manager: Manager::over(vec![port]), ip, _model: model }
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.ip.parse().expect("an address"), port)
    }

    fn listener(&self, options: &RsOptions) -> RsListener {
        RsListener::bind_with(&self.manager, self.at(7471), 8, options).expect("it listens")
    }

    fn connect(&self, to: SocketAddr, options: &RsOptions) -> RsStream {
        RsStream::connect_with(&self.manager, None, to, options).expect("it connects")
    }
}

fn hosts_on(impairments: Impairments) -> [Host; 2] {
    let (near, far) = Cable::pair();
    [
        Host::new("near", "192.0.2.1", near, impairments),
        Host::new("far", "192.0.2.2", far, Impairments::default()),
    ]
}

fn hosts() -> [Host; 2] {
    hosts_on(Impairments::default())
}

/// A stream of each host, connected with the other.
fn pair(hosts: &[Host; 2], options: [RsOptions; 2]) -> [RsStream; 2] {
    let listener = hosts[1].listener(&options[1]);
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().expect("a connection"));
        let near = hosts[0].connect(hosts[1].at(7471), &options[0]);
        let (far, from) = accepted.join().expect("it ends");
        assert_eq!(near.local_addr().expect("an address"), from);
        [near, far]
    })
}

fn pair_of(hosts: &[Host; 2], options: RsOptions) -> [RsStream; 2] {
    pair(hosts, [options; 2])
}

fn data(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn small() -> RsOptions {
    RsOptions::default().send_buffer(4096).receive_buffer(4096).depth(16, 16).inline(0)
}

#[test]
fn data_and_their_end_arrive_whatever_the_sizes() {
    for options in [
        [RsOptions::default(); 2],
        [small(), RsOptions::default()],
        [RsOptions::default().send_buffer(1 << 20).receive_buffer(1 << 20), small()],
    ] {
        let hosts = hosts();
        let [mut near, mut far] = pair(&hosts, options);
        assert_eq!(near.peer_addr().expect("an address"), hosts[1].at(7471));
        assert_eq!(far.local_addr().expect("an address"), hosts[1].at(7471));
        let sent = data(300_000);
        let echo = std::thread::spawn(move || {
            let mut heard = Vec::new();
            far.read_to_end(&mut heard).expect("data");
            far.write_all(&heard).expect("sent");
            heard.len()
        });
        near.write_all(&sent).expect("sent");
        near.shutdown(Shutdown::Write).expect("it ends");
        assert_eq!(near.write(b"more").expect_err("it has ended").kind(), ErrorKind::BrokenPipe);
        let mut back = Vec::new();
        near.read_to_end(&mut back).expect("data");
        assert!(back == sent, "{} of {} bytes, or others", back.len(), sent.len());
        assert_eq!(echo.join().expect("it ends"), sent.len());
    }
}

#[test]
fn both_directions_at_once_in_messages_of_any_length() {
    let hosts = hosts();
    let streams = pair_of(&hosts, small());
    let goal = 60_000;
    std::thread::scope(|scope| {
        for stream in &streams {
            scope.spawn(move || {
                let (sent, mut at, mut length) = (data(goal), 0, 1);
                while at < goal {
                    let end = goal.min(at + length);
                    let mut writer = stream;
                    writer.write_all(&sent[at..end]).expect("sent");
                    (at, length) = (end, length % 5000 + 777);
                }
            });
            scope.spawn(move || {
                let mut back = vec![0; goal];
                let mut reader = stream;
                reader.read_exact(&mut back).expect("data");
                assert!(back == data(goal));
            });
        }
    });
}

#[test]
fn a_wire_that_loses_loses_nothing_of_a_stream() {
    for seed in 1..=3 {
        let bad = Impairments { loss: 0.02, dup: 0.02, seed, ..Impairments::default() };
        let hosts = hosts_on(bad);
        let [mut near, mut far] = pair_of(&hosts, RsOptions::default());
        let echo = std::thread::spawn(move || {
            let mut heard = Vec::new();
            far.read_to_end(&mut heard).expect("data");
            heard
        });
        near.write_all(&data(200_000)).expect("sent");
        drop(near);
        assert!(echo.join().expect("it ends") == data(200_000), "seed {seed}");
    }
}

/// Both write, end their direction, and read to the end of the other's: what was lost last is sent again before anyone leaves.
#[test]
fn both_ends_may_end_at_once_on_a_wire_that_loses() {
    for seed in 1..=4 {
        let bad = Impairments { loss: 0.1, seed, ..Impairments::default() };
        let hosts = hosts_on(bad);
        let streams = pair_of(&hosts, RsOptions::default());
        std::thread::scope(|scope| {
            for mut stream in streams {
                scope.spawn(move || {
                    stream.write_all(&data(20_000)).expect("sent");
                    // Late or lost, its end is told when it is dropped.
                    stream.shutdown(Shutdown::Write).ok();
                    let mut heard = Vec::new();
                    stream.read_to_end(&mut heard).expect("data");
                    assert!(heard == data(20_000), "seed {seed}: {} bytes", heard.len());
                });
            }
        });
    }
}

/// More messages than are looked at in one call came before the connection manager's word of the end, whichever is looked at first.
#[test]
fn what_came_before_the_end_is_read() {
    let hosts = hosts();
    let options = RsOptions::default().depth(2048, 2048);
    for looks in 0..64 {
        let [mut near, mut far] = pair_of(&hosts, options);
        for _ in 0..looks {
            poll(&mut [PollEntry::stream(&far, true, false)], Some(Duration::ZERO)).expect("asked");
        }
        for _ in 0..1500 {
            near.write_all(b"x").expect("sent");
        }
        drop(near);
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).expect("data");
        assert_eq!(heard.len(), 1500, "after {looks} looks");
    }
}

/// Two threads that wait for one stream: what one takes is for the other.
#[test]
fn a_reader_and_a_writer_wait_for_one_stream() {
    let hosts = hosts();
    let options = small().spin(Duration::ZERO);
    let [near, far] = pair_of(&hosts, options);
    let goal = 200_000;
    std::thread::scope(|scope| {
        for stream in [&near, &far] {
            scope.spawn(move || (&mut &*stream).write_all(&data(goal)).expect("sent"));
            scope.spawn(move || {
                let mut back = vec![0; goal];
                (&mut &*stream).read_exact(&mut back).expect("data");
                assert!(back == data(goal));
            });
        }
    });
}

#[test]
fn a_stream_that_is_not_to_wait_says_so() {
    let hosts = hosts();
    let listener = hosts[1].listener(&RsOptions::default());
    listener.set_nonblocking(true).expect("set");
    assert_eq!(listener.accept().expect_err("nobody yet").kind(), ErrorKind::WouldBlock);
    let options = small().nonblocking(true);
    let mut near =
        RsStream::start_connect(&hosts[0].manager, None, hosts[1].at(7471), &options).expect("it begins");
    assert_eq!(near.read(&mut [0]).expect_err("not connected yet").kind(), ErrorKind::WouldBlock);
    // One thread has both ends: whichever can go on does.
    let mut far = None;
    let begin = Instant::now();
    while !writable(&near) || far.is_none() {
        far = far.or_else(|| listener.accept().ok());
        assert!(begin.elapsed() < LIMIT, "no connection: {:?}", near.take_error());
    }
    let (mut far, _) = far.expect("accepted");
    assert!(near.take_error().expect("asked").is_none());
    assert_eq!(near.read(&mut [0]).expect_err("nothing there").kind(), ErrorKind::WouldBlock);
    // As much as both buffers have room for, then no more until it is read.
    let sent = data(200_000);
    let mut at = 0;
    let begin = Instant::now();
    loop {
        match near.write(&sent[at..]) {
            Ok(bytes) => at += bytes,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                // The peer has had time to offer all it has.
                let mut entries = [PollEntry::stream(&far, false, true)];
                poll(&mut entries, Some(Duration::ZERO)).expect("asked");
                if begin.elapsed() > Duration::from_millis(300) {
                    break;
                }
            }
        }
        assert!(at < sent.len());
    }
    assert_eq!(at, 1 << 17, "both halves");
    far.set_nonblocking(true).expect("set");
    let mut back = Vec::new();
    let mut buffer = [0; 5000];
    let begin = Instant::now();
    while back.len() < sent.len() {
        match far.read(&mut buffer) {
            Ok(bytes) => back.extend_from_slice(&buffer[..bytes]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        if at < sent.len() {
            at += near.write(&sent[at..]).unwrap_or(0);
        }
        assert!(begin.elapsed() < LIMIT, "{} bytes came", back.len());
    }
    assert!(back == sent);
}

fn writable(stream: &RsStream) -> bool {
    let mut entries = [PollEntry::stream(stream, false, true)];
    poll(&mut entries, Some(Duration::ZERO)).expect("asked");
    let [entry] = entries;
    entry.readiness().writable
}

#[test]
fn poll_waits_for_several() {
    let hosts = hosts();
    let [mut near, far] = pair_of(&hosts, RsOptions::default());
    let listener = RsListener::bind(&hosts[1].manager, hosts[1].at(0)).expect("any port");
    let port = listener.local_addr().expect("an address").port();
    assert_ne!(port, 0);
    let wait = |timeout| {
        let mut entries = [PollEntry::stream(&far, true, false), PollEntry::listener(&listener)];
        let ready = poll(&mut entries, Some(timeout)).expect("asked");
        (ready, entries.map(|entry| entry.readiness().readable))
    };
    let begin = Instant::now();
    assert_eq!(wait(Duration::from_millis(100)), (0, [false, false]));
    assert!(begin.elapsed() >= Duration::from_millis(100));
    near.write_all(b"one").expect("sent");
    assert_eq!(wait(LIMIT), (1, [true, false]));
    let mut seen = [0; 8];
    assert_eq!(far.peek(&mut seen).expect("data"), 3);
    assert_eq!((&far).read(&mut seen).expect("data"), 3);
    assert_eq!(&seen[..3], b"one");
    assert_eq!(wait(Duration::from_millis(10)), (0, [false, false]));
    let (manager, to) = (hosts[0].manager.clone(), hosts[1].at(port));
    let second = std::thread::spawn(move || RsStream::connect(&manager, to).expect("it connects"));
    assert_eq!(wait(LIMIT), (1, [false, true]));
    let (accepted, _) = listener.accept().expect("a connection");
    drop((second.join().expect("it ends"), accepted));
    // The end of a stream is something that can be read.
    drop(near);
    assert_eq!(wait(LIMIT), (1, [true, false]));
    assert_eq!((&far).read(&mut seen).expect("the end"), 0);
}

#[test]
fn many_connections_of_one_listener() {
    let hosts = hosts();
    let listener = hosts[1].listener(&small());
    let server = std::thread::spawn(move || {
        let echo = |(mut stream, _): (RsStream, SocketAddr)| {
            std::thread::spawn(move || {
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).expect("data");
                stream.write_all(&heard).expect("sent");
            })
        };
        let threads: Vec<_> = (0..8).map(|_| echo(listener.accept().expect("a connection"))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
    });
    let mut streams: Vec<RsStream> = (0..8).map(|_| hosts[0].connect(hosts[1].at(7471), &small())).collect();
    for (length, stream) in (1..).zip(&mut streams) {
        stream.write_all(&data(length * 1000)).expect("sent");
        stream.shutdown(Shutdown::Write).expect("ended");
    }
    for (length, mut stream) in (1..).zip(streams) {
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("data");
        assert!(back == data(length * 1000));
    }
    server.join().expect("it ends");
}

#[test]
fn maps_are_written_past_the_program() {
    let hosts = hosts();
    let options = RsOptions::default().maps(2);
    for small in [false, true] {
        // Entries and data that go along, and that go by the send buffer.
        let options = if small { options.inline(0).depth(16, 16) } else { options };
        let [mut near, mut far] = pair_of(&hosts, options);
        let first = near.map(100_000, 5000).expect("there is room");
        let second = near.map(64, 1 << 40).expect("there is room");
        let full = near.map(64, 0).expect_err("there is none");
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
        near.write_all(b"mapped").expect("sent");
        far.read_exact(&mut [0; 6]).expect("it knows");
        let sent = data(100_000);
        let mut at = 0;
        while at < sent.len() {
            at += far.write_at(&sent[at..], 5000 + at as u64).expect("it is mapped");
        }
        assert_eq!(far.write_at(&sent[..100], (1 << 40) + 60).expect("it is mapped"), 4, "to its end");
        for nowhere in [4999, 105_000, (1 << 40) + 64, u64::MAX] {
            let error = far.write_at(b"x", nowhere).expect_err("nothing there");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        far.write_all(b"written").expect("sent");
        near.read_exact(&mut [0; 7]).expect("it knows");
        let mut found = vec![0; first.bytes()];
        first.read(0, &mut found);
        assert!(found == sent);
        let mut found = [0; 64];
        second.read(0, &mut found);
        assert_eq!((&found[..60], &found[60..]), (&[0; 60][..], &sent[..4]));
        assert_eq!([59, 60, 63].map(|at| second.load8(at)), [0, sent[0], sent[3]]);
        second.write(59, &[7, 8]);
        assert_eq!([58, 59, 60, 61].map(|at| second.load8(at)), [0, 7, 8, sent[1]]);
        assert_eq!((first.offset(), second.offset()), (5000, 1 << 40));
        // A map that is gone makes room for another.
        drop(second);
        let third = near.map(8, 7).expect("there is room");
        near.write_all(b"again").expect("sent");
        far.read_exact(&mut [0; 5]).expect("it knows");
        assert_eq!(far.write_at(b"third", 7).expect("it is mapped"), 5);
        far.write_all(b"!").expect("sent");
        near.read_exact(&mut [0]).expect("it knows");
        let mut found = [0; 5];
        third.read(0, &mut found);
        assert_eq!(&found, b"third");
    }
}

#[test]
fn who_cannot_connect_is_told_why() {
    let hosts = hosts();
    let connect = |to| RsStream::connect(&hosts[0].manager, to).expect_err("nobody there");
    let far = hosts[1].manager.channel().expect("a channel");
    std::thread::scope(|scope| {
        // The manager there works while it is asked.
        let asked = scope.spawn(|| far.wait(Duration::from_secs(2)));
        let refused = connect(hosts[1].at(1));
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert_eq!(refused.to_string(), "192.0.2.2:1 refused the connection: invalid service ID (8)");
        let nowhere = connect("198.51.100.1:1".parse().expect("an address"));
        assert_eq!(nowhere.kind(), ErrorKind::NetworkUnreachable);
        asked.join().expect("it ends").expect("no error");
    });
    let taken = hosts[1].listener(&RsOptions::default());
    let line = RsListener::bind(&hosts[1].manager, hosts[1].at(7471)).expect_err("in use");
    assert_eq!(line.kind(), ErrorKind::AddrInUse, "{line}");
    drop(taken);
}

/// A peer that keeps to the connection manager's rules alone.
struct Stranger {
    qp: Qp,
    cq: Cq,
    mr: Mr,
    id: Id,
    channel: EventChannel,
    /// A message came.
    heard: bool,
}

impl Stranger {
    /// Asks for a connection with private data, and says what came of it.
    fn ask(host: &Host, to: SocketAddr, private: impl Fn(&Mr) -> Vec<u8>) -> (Self, EventKind) {
        let channel = host.manager.channel().expect("a channel");
        let id = channel.create_id(PortSpace::Tcp).expect("an ID");
        id.resolve_address(None, to, LIMIT).expect("asked");
        let next = || channel.wait(LIMIT).expect("no error").expect("an event").kind;
        assert!(matches!(next(), EventKind::AddressResolved));
        id.resolve_route(LIMIT).expect("asked");
        assert!(matches!(next(), EventKind::RouteResolved));
        let (context, _) = id.device().expect("a device").expect("a device");
        let pd = Pd::new(&context).expect("a domain");
        let cq = Cq::new(&context, CqOptions::new(256)).expect("a queue");
        let options = QpOptions::new(QpKind::Rc).depth(64, 64).inline(64);
        let mut qp = id.create_qp(&pd, &cq, &cq, &options).expect("a queue pair");
        let mut receives = qp.receives().expect("a ring");
        for _ in 0..32 {
            receives.pieces(0, std::iter::empty::<Buf>());
        }
        receives.ring().expect("posted");
        let mr = Mr::allocate(&pd, 65_536, Access::LOCAL_WRITE | Access::REMOTE_WRITE).expect("memory");
        let ask = ConnectionParameters::default().private_data(private(&mr));
        id.connect(&qp, &ask).expect("asked");
        let answer = next();
        if matches!(answer, EventKind::ConnectResponse(_)) {
            id.establish(&mut qp).expect("established");
        }
        (Self { qp, cq, mr, id, channel, heard: false }, answer)
    }

    /// What a stream socket says whose table and receive buffer are at the ends of a region.
    fn honest(mr: &Mr) -> Vec<u8> {
        let mut bytes = vec![1, 2, 0, 32, 0, 0, 0, 0];
        for (address, length) in [(mr.address(), 2u32), (mr.address() + 32_768, 16_384)] {
            bytes.extend_from_slice(&address.to_be_bytes());
            bytes.extend_from_slice(&mr.rkey().to_be_bytes());
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        bytes
    }

    /// Waits for a message.
    fn hear(&mut self) {
        let begin = Instant::now();
        while !self.heard {
            self.look();
            assert!(begin.elapsed() < LIMIT, "it says nothing");
        }
    }

    /// Takes completions, and says whether one was of a send.
    fn look(&mut self) -> bool {
        let mut sent = false;
        self.cq.poll(8, |wc| if wc.is_receive() { self.heard = true } else { sent = true });
        self.channel.next().expect("no error");
        sent
    }

    /// Sends a message, and an entry into the other's table.
    fn say(&mut self, message: u32, entry: Option<(u64, u32, [u8; 16])>) {
        let mut batch = self.qp.batch();
        let (address, rkey) = entry.map_or((0, 0), |(address, rkey, _)| (address, rkey));
        batch.write(1, address, rkey).imm(message).signalled();
        if let Some((.., bytes)) = &entry {
            batch.inline(bytes);
        }
        batch.ring().expect("posted");
        let begin = Instant::now();
        while !self.look() && begin.elapsed() < Duration::from_secs(2) {}
    }
}

#[test]
fn who_is_no_stream_socket_is_rejected() {
    let hosts = hosts();
    let listener = hosts[1].listener(&RsOptions::default());
    let to = hosts[1].at(7471);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the honest one");
        let mut heard = [0; 2];
        stream.read_exact(&mut heard).expect("data");
        heard
    });
    let none = |_: &Mr| Vec::new();
    let version = |mr: &Mr| [&[2], &Stranger::honest(mr)[1..]].concat();
    let targets = |mr: &Mr| [&Stranger::honest(mr)[..20], &[0; 20][..]].concat();
    let mut answers = vec![Stranger::ask(&hosts[0], to, none).1];
    answers.push(Stranger::ask(&hosts[0], to, version).1);
    answers.push(Stranger::ask(&hosts[0], to, targets).1);
    for answer in answers {
        let EventKind::Rejected { reason, .. } = answer else { panic!("{answer}") };
        assert_eq!(reason, RejectReason::CONSUMER_DEFINED);
    }
    hosts[0].connect(to, &RsOptions::default()).write_all(b"ok").expect("sent");
    assert_eq!(&server.join().expect("it ends"), b"ok");
    // Nor is who accepts without a word.
    let channel = hosts[1].manager.channel().expect("a channel");
    let id = channel.create_id(PortSpace::Tcp).expect("an ID");
    id.bind(hosts[1].at(9)).expect("bound");
    id.listen(1).expect("it listens");
    let to = hosts[1].at(9);
    std::thread::scope(|scope| {
        let deaf = scope.spawn(|| {
            let EventKind::ConnectRequest { id, parameters } =
                channel.wait(LIMIT).expect("no error").expect("an event").kind
            else {
                panic!("a request")
            };
            let (context, _) = id.device().expect("a device").expect("a device");
            let pd = Pd::new(&context).expect("a domain");
            let cq = Cq::new(&context, CqOptions::new(64)).expect("a queue");
            let mut qp = id.create_qp(&pd, &cq, &cq, &QpOptions::new(QpKind::Rc)).expect("a queue pair");
            let answer = ConnectionParameters { private_data: vec![0; 40], ..parameters };
            id.accept(&mut qp, &answer).expect("accepted");
            channel.wait(Duration::from_secs(2)).expect("no error");
        });
        let error = RsStream::connect(&hosts[0].manager, to).expect_err("no stream socket");
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        deaf.join().expect("it ends");
    });
}

/// Lies end the connection, and nothing else.
#[test]
fn a_peer_that_breaks_the_protocol_is_cut_off() {
    let hosts = hosts();
    let listener = hosts[1].listener(&RsOptions::default().maps(1));
    let lies: [(u32, Violation); 4] = [
        (0x1fff_ffff, Violation::Data { bytes: 0x1fff_ffff, offered: 131_072 }),
        (0xc000_0001, Violation::Map { index: 1, maps: 1 }),
        (0xe000_0009, Violation::Reserved(0xe000_0009)),
        (0x4000_0000, Violation::Reserved(0x4000_0000)),
    ];
    for (lie, expected) in lies {
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let (mut stream, _) = listener.accept().expect("a connection");
                let error = stream.read(&mut [0; 8]).expect_err("a lie");
                assert_eq!(stream.read(&mut [0; 8]).expect("it has ended"), 0);
                assert_eq!(stream.write(b"x").expect_err("it has ended").kind(), ErrorKind::BrokenPipe);
                error
            });
            let (mut stranger, answer) = Stranger::ask(&hosts[0], hosts[1].at(7471), Stranger::honest);
            assert!(matches!(answer, EventKind::ConnectResponse(_)), "{answer}");
            // It had room for both halves after the first update.
            stranger.say(0xe000_0001, None);
            std::thread::sleep(Duration::from_millis(50));
            stranger.say(lie, None);
            let error = server.join().expect("it ends");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            let source = error.get_ref().and_then(|source| source.downcast_ref::<RsError>());
            assert!(
                matches!(source, Some(RsError::Violation(found)) if *found == expected),
                "{error} in place of {expected}"
            );
        });
    }
}

/// Where it says that its memory is, nothing of it is: the device says no, and the stream is lost. Nothing of ours is touched.
#[test]
fn a_peer_whose_addresses_lie_loses_its_connection() {
    let hosts = hosts();
    let listener = hosts[1].listener(&RsOptions::default());
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let begin = Instant::now();
            loop {
                match stream.write(&data(3000)) {
                    Ok(_) => {}
                    Err(error) => return error,
                }
                assert!(begin.elapsed() < LIMIT, "it goes on");
            }
        });
        let lie = |mr: &Mr| {
            let mut bytes = Stranger::honest(mr);
            bytes[24..32].copy_from_slice(&0xdead_0000_u64.to_be_bytes());
            bytes
        };
        let (mut stranger, answer) = Stranger::ask(&hosts[0], hosts[1].at(7471), lie);
        assert!(matches!(answer, EventKind::ConnectResponse(_)), "{answer}");
        let error = server.join().expect("it ends");
        let source = error.get_ref().and_then(|source| source.downcast_ref::<RsError>());
        assert!(matches!(source, Some(RsError::Completion(_)) | None), "{error}");
        let mut untouched = [1; 64];
        stranger.mr.read(32_768, &mut untouched);
        assert_eq!(untouched, [0; 64]);
        stranger.id.disconnect(&mut stranger.qp).ok();
    });
}

#[test]
fn a_peer_that_goes_away_is_noticed() {
    let hosts = hosts();
    let listener = hosts[1].listener(&RsOptions::default());
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.read(&mut [0; 8]).expect("the end, not an error")
        });
        let (mut stranger, answer) = Stranger::ask(&hosts[0], hosts[1].at(7471), Stranger::honest);
        assert!(matches!(answer, EventKind::ConnectResponse(_)), "{answer}");
        // By the connection manager alone, without the stream's own word.
        stranger.say(0xe000_0001, None);
        stranger.id.disconnect(&mut stranger.qp).expect("asked");
        assert_eq!(server.join().expect("it ends"), 0);
    });
}

#[test]
fn keepalives_tell_the_peer_nothing_and_find_out_that_nobody_is_there() {
    let hosts = hosts();
    let options = RsOptions::default().keepalive(Some(Duration::from_millis(50)));
    let [mut near, mut far] = pair_of(&hosts, options);
    let mut entries = [PollEntry::stream(&near, true, false), PollEntry::stream(&far, true, false)];
    assert_eq!(poll(&mut entries, Some(Duration::from_millis(300))).expect("asked"), 0);
    near.write_all(b"still there").expect("sent");
    let mut heard = [0; 11];
    far.read_exact(&mut heard).expect("data");
    assert_eq!(&heard, b"still there");
    drop((near, far));
    // A queue pair that ends without a word of its connection manager.
    let listener = hosts[1].listener(&options);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.read(&mut [0; 8]).expect_err("nobody is there")
        });
        let (mut stranger, answer) = Stranger::ask(&hosts[0], hosts[1].at(7471), Stranger::honest);
        assert!(matches!(answer, EventKind::ConnectResponse(_)), "{answer}");
        stranger.say(0xe000_0001, None);
        // Its offer is the last that it sends by itself.
        stranger.hear();
        stranger.qp.modify(&QpAttributes::state(QpState::ERR)).expect("it ends");
        let error = server.join().expect("it ends");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    });
}
