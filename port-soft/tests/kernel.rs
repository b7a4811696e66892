//! `net_af_packet`, `net_tap` and, in a module, `net_af_xdp` on real interfaces with their default offloads, in network namespaces of their own.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_eal::event::EventSet;
use pollux_frame_io::packet_socket::{PacketOptions, PacketPort};
use pollux_frame_io::vnet::VnetHeader;
use pollux_mempool::{Burst, MbufPool};
use pollux_port::conformance::{Feed, Fixture, Subject, run};
use pollux_port::driver::PortDriver;
use pollux_port::{Port, PortConfig, PortEvent, PortId, PortState, Queues, RxQueue};
use pollux_port_soft::af_packet::AfPacketPort;
use pollux_port_soft::pcap::{PcapOptions, PcapPort};
use pollux_port_soft::tap::{TapOptions, TapPort};
use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::require::{Need, require};

#[path = "kernel/xdp.rs"]
mod xdp;

const PATIENCE: Duration = Duration::from_secs(20);

fn pool() -> MbufPool {
    // Two af_xdp ports have 2048 each in their fill rings.
    MbufPool::builder("kernel", 16_384).build_anonymous().expect("memory")
}

fn af_packet(interface: &str) -> Box<dyn PortDriver> {
    Box::new(AfPacketPort::new(PacketOptions::new(interface)).unwrap_or_else(|error| panic!("{error:?}")))
}

fn tap(interface: &str) -> Box<dyn PortDriver> {
    let options = TapOptions { interface: interface.into(), mac: None };
    Box::new(TapPort::new(&options).unwrap_or_else(|error| panic!("{error:?}")))
}

fn start(name: &str, driver: Box<dyn PortDriver>, queues: usize, pool: &MbufPool) -> (Port, Queues) {
    let mut port = Port::new(PortId(0), name, driver);
    let config = PortConfig { promiscuous: Some(true), ..PortConfig::queues(queues, queues, pool) };
    let queues = port.bring_up(config).unwrap_or_else(|error| panic!("{error:?}"));
    (port, queues)
}

/// A host with the two ends of a link, `va` and `vb`, where nobody else sends. None where that cannot be made.
fn host(name: &str) -> Option<Namespace> {
    if !require(&[Need::Root, Need::Net]) {
        return None;
    }
    let host = Namespace::new(name);
    quiet(&host);
    join(&host, "va", &host, "vb");
    Some(host)
}

fn quiet(host: &Namespace) {
    must(&mut host.command("sysctl", &["-qw", "net.ipv6.conf.default.disable_ipv6=1"]));
}

/// Two ports joined, in a namespace, until the end of the value.
struct Patch {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

type Make = fn(&str) -> Box<dyn PortDriver>;

impl Patch {
    fn new(host: &Namespace, kinds: [(&'static str, Make); 2], queues: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, ready) = (stop.clone(), Arc::new(AtomicBool::new(false)));
        let told = ready.clone();
        let thread = host.enter(move || {
            let pool = pool();
            let [(port_a, mut a), (port_b, mut b)] =
                kinds.map(|(name, make)| start(name, make(name), queues, &pool));
            told.store(true, Ordering::Release);
            let mut burst = Burst::new();
            while !flag.load(Ordering::Relaxed) {
                for (from, to) in [(&mut a.rx, &mut b.tx), (&mut b.rx, &mut a.tx)] {
                    for (from, to) in from.iter_mut().zip(to) {
                        if from.rx_burst(&mut burst, 32) > 0 {
                            to.tx_burst(&mut burst);
                            burst.clear();
                        }
                    }
                }
                std::thread::yield_now();
            }
            // Shown when the test fails.
            for port in [port_a, port_b] {
                let counts = port.xstats().into_iter().filter(|xstat| xstat.value > 0);
                println!(
                    "{}: {:?}",
                    port.name(),
                    counts.map(|one| (one.name, one.value)).collect::<Vec<_>>()
                );
            }
        });
        let end = Instant::now() + PATIENCE;
        while !ready.load(Ordering::Acquire) {
            assert!(Instant::now() < end && !thread.is_finished(), "the ports did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Patch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the patch panicked");
        }
    }
}

fn ping(from: &Namespace, to: &str, size: &str) {
    let done = must(&mut from.command("ping", &["-c", "20", "-i", "0.01", "-W", "5", "-q", "-s", size, to]));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.contains("20 received"), "{text}");
}

/// A file of pseudo-random bytes from one host to the other, over TCP; both ends' idea of its contents must agree.
fn transfer(from: &Namespace, to: &Namespace, address: &str) {
    const BYTES: usize = 24 << 20;
    fn next(state: &mut u64) -> [u8; 8] {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_le_bytes()
    }
    let bound = format!("{address}:7007");
    let (ready, listening) = std::sync::mpsc::channel();
    let receiver = to.enter({
        let bound = bound.clone();
        move || {
            use std::io::Read;
            let listener = std::net::TcpListener::bind(bound).expect("binds");
            ready.send(()).expect("the sender waits");
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
            let (mut state, mut got) = (1, 0);
            let mut buffer = vec![0; 1 << 16];
            while got < BYTES {
                stream.read_exact(&mut buffer).expect("more to come");
                for (at, piece) in buffer.chunks(8).enumerate() {
                    assert!(piece == next(&mut state), "byte {} is wrong", got + 8 * at);
                }
                got += buffer.len();
                // Slow now and then: what waits in the receiver's queue must not change.
                if got % (4 << 20) == 0 {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    });
    listening.recv().expect("it listens");
    let sender = from.enter(move || {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(bound).expect("connects");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        let mut state = 1;
        for _ in 0..BYTES / (1 << 16) {
            let piece: Vec<u8> = (0..1 << 13).flat_map(|_| next(&mut state)).collect();
            stream.write_all(&piece).expect("written");
        }
    });
    sender.join().expect("the sender");
    receiver.join().expect("the receiver");
}

#[test]
fn two_hosts_talk_through_packet_sockets() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let (a, b, middle) = (Namespace::new("a"), Namespace::new("b"), Namespace::new("mid"));
    quiet(&middle);
    join(&a, "va", &middle, "xa");
    join(&b, "vb", &middle, "xb");
    a.ip(&["addr", "add", "10.7.0.1/24", "dev", "va"]);
    b.ip(&["addr", "add", "10.7.0.2/24", "dev", "vb"]);
    let kinds: [(&'static str, Make); 2] = [("xa", af_packet), ("xb", af_packet)];
    for queues in [1, 2] {
        let patch = Patch::new(
            &middle,
            if queues == 1 { kinds } else { kinds.map(|(name, _)| (name, two_queues as Make)) },
            queues,
        );
        ping(&a, "10.7.0.2", "56");
        // Cut into fragments by the sender.
        ping(&b, "10.7.0.1", "20000");
        transfer(&a, &b, "10.7.0.2");
        transfer(&b, &a, "10.7.0.1");
        drop(patch);
    }
}

fn two_queues(interface: &str) -> Box<dyn PortDriver> {
    let options = PacketOptions { queues: 2, ..PacketOptions::new(interface) };
    Box::new(AfPacketPort::new(options).unwrap_or_else(|error| panic!("{error:?}")))
}

fn live_pcap(interface: &str) -> Box<dyn PortDriver> {
    let options = PcapOptions { interface: Some(interface.into()), phy_mac: true, ..PcapOptions::default() };
    Box::new(PcapPort::new("net_pcap0", &options).unwrap_or_else(|error| panic!("{error:?}")))
}

#[test]
fn two_hosts_talk_through_taps_that_move_and_through_mixed_ports() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let (a, b, middle) = (Namespace::new("a"), Namespace::new("b"), Namespace::new("mid"));
    quiet(&middle);
    let patch = Patch::new(&middle, [("plxta", tap), ("plxtb", tap)], 2);
    for (host, name, address) in [(&a, "plxta", "10.8.0.1/24"), (&b, "plxtb", "10.8.0.2/24")] {
        // The interfaces move while the ports run.
        middle.ip(&["link", "set", name, "netns", host.name()]);
        host.ip(&["link", "set", name, "up"]);
        host.ip(&["addr", "add", address, "dev", name]);
    }
    ping(&a, "10.8.0.2", "56");
    ping(&b, "10.8.0.1", "20000");
    transfer(&a, &b, "10.8.0.2");
    transfer(&b, &a, "10.8.0.1");
    drop(patch);
    let shown = a.command("ip", &["link", "show", "plxta"]).output().expect("ip");
    assert!(!shown.status.success(), "the interface has ended with the port");

    // A tap on one side, an interface as pcap sees it on the other.
    join(&b, "vb", &middle, "xb");
    b.ip(&["addr", "add", "10.9.0.2/24", "dev", "vb"]);
    let _patch = Patch::new(&middle, [("plxta", tap), ("xb", live_pcap)], 1);
    middle.ip(&["link", "set", "plxta", "netns", a.name()]);
    a.ip(&["link", "set", "plxta", "up"]);
    a.ip(&["addr", "add", "10.9.0.1/24", "dev", "plxta"]);
    ping(&a, "10.9.0.2", "56");
    transfer(&a, &b, "10.9.0.2");
    transfer(&b, &a, "10.9.0.1");
}

#[test]
fn tags_and_long_frames_are_whole_in_mbufs() {
    let Some(host) = host("tag") else { return };
    for end in ["va", "vb"] {
        host.ip(&["link", "set", end, "mtu", "9000"]);
    }
    let names = host.name().to_owned();
    let work = host.enter(|| {
        let pool = pool();
        let (mut out, mut a) = start("va", af_packet("va"), 1, &pool);
        let (port, mut b) = start("vb", af_packet("vb"), 1, &pool);
        assert_eq!(out.mtu().expect("there"), 9000);
        let mut burst = Burst::new();
        for (number, bytes) in [60usize, 1514, 3000, 9006].into_iter().enumerate() {
            for tags in [&[][..], &[0x81, 0, 0x20, 9], &[0x88, 0xa8, 0, 1, 0x81, 0, 0xe0, 2]] {
                let mut frame = vec![0xff; 6];
                frame.extend([2, 0, 0, 0, 0, number as u8]);
                frame.extend(tags);
                frame.extend([0x88, 0xb5]);
                frame.resize(bytes + tags.len(), number as u8);
                let mut mbuf = pool.alloc().expect("full");
                for piece in frame.chunks(1000) {
                    let mut part = pool.alloc().expect("full");
                    assert!(part.append_slice(piece));
                    if mbuf.data_len() == 0 { mbuf = part } else { mbuf.chain(part).expect("short") }
                }
                let mut sending = Burst::new();
                sending.push(mbuf);
                assert_eq!(a.tx[0].tx_burst(&mut sending), 1);
                let end = Instant::now() + PATIENCE;
                while b.rx[0].rx_burst(&mut burst, 32) == 0 {
                    assert!(Instant::now() < end, "{bytes} bytes, tags {tags:02x?}: {:?}", out.dropped());
                }
                assert_eq!(burst.len(), 1);
                let mut got = vec![0; burst[0].pkt_len() as usize];
                burst[0].read(0, &mut got);
                assert!(got == frame, "{bytes} bytes, tags {tags:02x?}");
                burst.clear();
            }
        }
        // Longer than the link takes: counted, not sent.
        let mut mbuf = pool.alloc().expect("full");
        for _ in 0..5 {
            let mut part = pool.alloc().expect("full");
            assert!(part.append_slice(&[0xff; 2000]));
            if mbuf.data_len() == 0 { mbuf = part } else { mbuf.chain(part).expect("short") }
        }
        burst.push(mbuf);
        a.tx[0].tx_burst(&mut burst);
        assert!(burst.is_empty());
        let dropped: Vec<_> =
            out.xstats().into_iter().filter(|xstat| xstat.name == "tx_too_long_errors").collect();
        assert_eq!(dropped[0].value, 1);
        assert_eq!(port.stats().imissed, 0);
        assert_eq!(pool.in_use(), 0);
    });
    work.join().unwrap_or_else(|_| panic!("the test in {names}"));
}

#[test]
fn what_the_kernel_knows_of_a_link_is_told() {
    let Some(host) = host("link") else { return };
    let work = host.enter(|| {
        let pool = pool();
        let (mut port, _queues) = start("vb", af_packet("vb"), 1, &pool);
        // What veth says of itself: drivers/net/veth.c, veth_get_link_ksettings.
        assert_eq!(port.link(), pollux_port::Link::fixed(true, 10_000));
        let shown = must(Command::new("ip").args(["-d", "link", "show", "vb"]));
        assert!(String::from_utf8_lossy(&shown.stdout).contains("veth"), "the test's own premise");
        for refused in [
            port.fec().map(drop),
            port.fec_capabilities().map(drop),
            port.set_fec(pollux_port::FecModes::RS),
            port.lane_capabilities().map(drop),
            port.set_lanes(2),
        ] {
            let error = refused.expect_err("a veth has neither lanes nor error correction");
            assert!(error.is_unsupported(), "{error}");
        }
        let error = port.fec().expect_err("as before").to_string();
        assert_eq!(error, "port vb: FEC is not supported: interface vb has no error correction to choose");
    });
    work.join().expect("the test in its namespace");
}

/// A packet that the kernel has joined is longer than any frame; one longer than wanted is dropped and counted.
#[test]
fn a_joined_packet_past_the_limit_is_dropped_and_counted() {
    use pollux_frame_io::vnet::{PartialChecksum, Segmentation};
    let Some(host) = host("lro") else { return };
    let work = host.enter(|| {
        let pool = pool();
        for (limit, arrives) in [(None, true), (Some(5000), true), (Some(2000), false)] {
            let mut port = Port::new(PortId(0), "vb", af_packet("vb"));
            let config = PortConfig { max_lro_bytes: limit, ..PortConfig::queues(1, 1, &pool) };
            let mut queues = port.bring_up(config).expect("inside the limits");
            // A TCP packet of 4014 bytes to be cut into pieces of 1000, as a joined one looks from inside the machine.
            let mut frame = vec![0xff; 6];
            frame.extend([2, 0, 0, 0, 0, 9, 0x08, 0x00]);
            frame.extend([0x45, 0, 0x0f, 0xa0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend([0, 7, 0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0x10, 0, 0, 0, 0, 0]);
            frame.resize(14 + 4000, 0x5a);
            let header = VnetHeader {
                segmentation: Segmentation::Tcp4,
                segment_bytes: 1000,
                header_bytes: 54,
                checksum: Some(PartialChecksum { start: 34, offset: 16 }),
                ..VnetHeader::default()
            };
            let mut far = PacketPort::open(&PacketOptions::new("va")).expect("opens");
            far.queues[0].1.send(&header, &[std::io::IoSlice::new(&frame)]).expect("sent");
            let mut burst = Burst::new();
            let end = Instant::now() + PATIENCE;
            let dropped = |port: &mut Port| port.xstat("rx_too_long_errors").expect("there").value;
            while burst.is_empty() && dropped(&mut port) == 0 {
                queues.rx[0].rx_burst(&mut burst, 1);
                assert!(Instant::now() < end, "{limit:?}: neither here nor dropped");
            }
            assert_eq!((burst.len(), dropped(&mut port)), if arrives { (1, 0) } else { (0, 1) }, "{limit:?}");
        }
    });
    work.join().expect("the test in its namespace");
}

#[test]
fn a_port_whose_interface_disappears_tells_and_stays_quiet() {
    let Some(host) = host("gone") else { return };
    let work = host.enter(|| {
        let ip = |args: &[&str]| drop(must(Command::new("ip").args(args)));
        let pool = pool();
        for (name, peer, driver) in [("vb", "va", af_packet("vb")), ("plxg", "plxg", tap("plxg"))] {
            let (mut port, mut queues) = start(name, driver, 1, &pool);
            assert_eq!(port.poll_event(), None);
            let mut burst = Burst::new();
            if name == "vb" {
                ip(&["link", "set", "vb", "down"]);
                let end = Instant::now() + PATIENCE;
                while !matches!(port.poll_event(), Some(PortEvent::Link(link)) if !link.up) {
                    queues.rx[0].rx_burst(&mut burst, 32);
                    assert!(Instant::now() < end, "the link goes down");
                }
                ip(&["link", "set", "vb", "up"]);
                while !matches!(port.poll_event(), Some(PortEvent::Link(link)) if link.up) {
                    assert!(Instant::now() < end, "the link comes back");
                }
            }
            ip(&["link", "delete", peer]);
            let end = Instant::now() + PATIENCE;
            while !queues.rx[0].is_gone() {
                queues.rx[0].rx_burst(&mut burst, 32);
                burst.clear();
                assert!(Instant::now() < end, "{name}: nobody noticed");
            }
            assert_eq!(port.state(), PortState::Gone);
            assert_eq!(port.poll_event(), Some(PortEvent::Removed));
            assert_eq!(port.poll_event(), None);
            assert!(!port.link().up);
            assert!(pool.alloc_burst(&mut burst, 4));
            assert_eq!(queues.tx[0].tx_burst(&mut burst), 0);
            assert_eq!(burst.len(), 4, "they stay with the caller");
            burst.clear();
            assert_eq!(queues.rx[0].rx_burst(&mut burst, 32), 0);
            port.stop().expect("stops");
            port.close().expect("closes");
        }
        assert_eq!(pool.in_use(), 0);
    });
    work.join().expect("the test");
}

#[test]
fn what_cannot_be_opened_is_said() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("bad");
    host.ip(&["link", "add", "va", "type", "veth", "peer", "name", "vb"]);
    let work = host.enter(|| {
        let said = |interface: &str| {
            let error = AfPacketPort::new(PacketOptions::new(interface)).err().expect("refused");
            let source = std::error::Error::source(&error).expect("a reason");
            source.to_string()
        };
        assert!(said("nope").starts_with("interface \"nope\" does not exist"));
        assert_eq!(said("va"), "interface va: is down: `ip link set va up` brings it up");
        let taken = TapOptions { interface: "va".into(), mac: None };
        let error = TapPort::new(&taken).err().expect("refused");
        let source = std::error::Error::source(&error).expect("a reason").to_string();
        assert!(source.starts_with("interface va: exists and is not a tap"), "{source}");
    });
    work.join().expect("the test");
}

/// Frames in and out by a packet socket on the other side.
fn outside(interface: &str) -> (Feed, Option<pollux_port::conformance::Sent>) {
    let socket = PacketPort::open(&PacketOptions::new(interface)).unwrap_or_else(|error| panic!("{error}"));
    socket.control.admit(true).expect("open");
    let socket = Arc::new(Mutex::new(socket));
    let far = socket.clone();
    let feed = move |frame: &[u8]| {
        let mut far = far.lock().expect("no panic");
        assert!(far.queues[0].1.push(&VnetHeader::default(), [frame].into_iter()), "room");
        // Opened while the interface was down, the socket says so once.
        let _ = far.queues[0].1.kick();
        far.queues[0].1.kick().expect("up");
    };
    let sent = move || {
        let mut socket = socket.lock().expect("no panic");
        let mut frames = Vec::new();
        while let Some(frame) = socket.queues[0].0.next() {
            frames.push(frame.data().to_vec());
        }
        frames
    };
    (Feed::Given(Box::new(feed)), Some(Box::new(sent)))
}

/// Whether the descriptor of a queue is readable, or becomes so in time.
fn readable(queue: &RxQueue, longest: Duration) -> bool {
    let mut set = EventSet::new().expect("a set");
    set.add(queue.interrupt_fd().expect("configured"), 0).expect("added");
    set.wait(Some(longest)).expect("waits").count() > 0
}

/// Each of fifty frames from the other side makes the descriptor of an armed queue readable, and nothing else does.
fn wakes_who_sleeps(queue: &mut RxQueue, far: &str) {
    let (Feed::Given(mut feed), _) = outside(far) else { panic!("frames are given") };
    let mut burst = Burst::new();
    for _ in 0..50 {
        queue.enable_interrupt().expect("configured");
        assert!(!readable(queue, Duration::ZERO), "{far}: nothing has come");
        feed(&[0xff; 60]);
        assert!(readable(queue, PATIENCE), "{far}: a frame has");
        let end = Instant::now() + PATIENCE;
        while queue.rx_burst(&mut burst, 32) == 0 {
            assert!(Instant::now() < end, "{far}: it is there");
        }
        burst.clear();
        queue.disable_interrupt().expect("configured");
    }
}

#[test]
fn an_arrival_wakes_who_sleeps_and_so_does_the_end_of_the_interface() {
    let Some(host) = host("intr") else { return };
    let name = host.name().to_owned();
    let work = host.enter(move || {
        let pool = pool();
        for (driver, far) in [(af_packet("vb"), "va"), (tap("tb"), "tb")] {
            let mut port = Port::new(PortId(0), far, driver);
            assert!(port.info().rx_interrupts, "{far}");
            let config = PortConfig { rx_interrupts: true, ..PortConfig::queues(1, 1, &pool) };
            let mut queues = port.bring_up(config).unwrap_or_else(|error| panic!("{error:?}"));
            let queue = &mut queues.rx[0];
            wakes_who_sleeps(queue, far);
            must(Command::new("ip").args(["-n", &name, "link", "delete", far]));
            assert!(readable(queue, PATIENCE), "{far}: the interface is gone");
            let (mut burst, end) = (Burst::new(), Instant::now() + PATIENCE);
            while !queue.is_gone() {
                assert!(Instant::now() < end, "{far}: that is found");
                queue.enable_interrupt().expect("configured");
                queue.rx_burst(&mut burst, 32);
            }
        }
        assert_eq!(pool.in_use(), 0);
    });
    work.join().expect("the test");
}

/// A driver on `vb`, seen from `va`.
struct OnLink(&'static str, fn(&str) -> Box<dyn PortDriver>);

impl Fixture for OnLink {
    fn open(&self) -> Subject {
        let (feed, sent) = outside("va");
        Subject { name: self.0.into(), driver: (self.1)("vb"), feed, sent }
    }
}

#[test]
fn af_packet_conforms() {
    let Some(host) = host("conf") else { return };
    host.enter(|| run(&OnLink("net_af_packet0", two_queues))).join().expect("the list");
}

struct OwnInterface;

impl Fixture for OwnInterface {
    fn open(&self) -> Subject {
        let port = TapPort::new(&TapOptions::default()).unwrap_or_else(|error| panic!("{error:?}"));
        let (feed, sent) = outside(port.interface());
        Subject { name: "net_tap0".into(), driver: Box::new(port), feed, sent }
    }
}

#[test]
fn tap_conforms() {
    if !require(&[Need::Root, Need::Net]) {
        return;
    }
    let host = Namespace::new("conf");
    quiet(&host);
    host.enter(|| run(&OwnInterface)).join().expect("the list");
}
