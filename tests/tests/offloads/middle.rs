//! Two hosts and what is between them: ports of a bring-up in this process, so that nothing is built twice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pollux_bringup::{Bringup, PortRequest};
use pollux_config::CommandLine;
use pollux_eal::LcoreContext;
use pollux_eal::clock::Nanos;
use pollux_kit::forward::{self, Edit, Path};
use pollux_port::{PortId, Queues};
use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::patience::patient;

pub(crate) const A4: &str = "10.77.0.1";
pub(crate) const B4: &str = "10.77.0.2";
pub(crate) const A6: &str = "fd77::1";
pub(crate) const B6: &str = "fd77::2";

/// As l2fwd's.
const PATIENCE: Nanos = Nanos(100_000_000);

/// Forwarding under way.
pub(crate) struct Forwarding {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<(String, u64)>>>,
}

impl Forwarding {
    /// Ends it: what was dropped and why, by port.
    pub(crate) fn end(mut self) -> Vec<(String, u64)> {
        drop(self.stop.take());
        self.thread.take().expect("once").join().expect("no panic in the forwarder")
    }
}

/// What an lcore does: paths that it goes round, or any loop.
pub(crate) type Work = Box<dyn FnOnce(&LcoreContext) + Send>;

/// How the ports of a forwarder are set up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    /// As a profile has it; the usual one of each port without.
    pub(crate) mtu: Option<u32>,
    /// Rx queues, and tx queues, of each port; one without.
    pub(crate) queues: Option<u16>,
}

/// Opens `devices` in a namespace and has each lcore do what `work` makes of the ports' queues.
pub(crate) fn start(
    place: &Namespace,
    devices: &[&str],
    setup: Setup,
    work: impl FnOnce(Vec<Queues>) -> Vec<Work> + Send + 'static,
) -> Forwarding {
    let mut args: Vec<String> = ["test", "-l", "0,1", "--no-huge"].map(Into::into).into();
    for device in devices {
        args.extend(["--vdev".into(), (*device).into()]);
    }
    let (ready, started) = channel();
    let (stop, stopped): (_, Receiver<()>) = channel();
    let count = devices.len() as u16;
    let thread = place.enter(move || {
        let mut line = CommandLine::parse(args).expect("a command line");
        for port in &mut line.ports {
            port.mtu = setup.mtu;
            let queues = setup.queues.unwrap_or(1);
            (port.queues.rx_queues, port.queues.tx_queues) = (queues, queues);
        }
        let mut bringup = Bringup::new(&line).unwrap_or_else(|error| panic!("{}", error.line()));
        let ids: Vec<PortId> = (0..count).map(PortId).collect();
        let request = PortRequest::new().lcores(2).promiscuous(true);
        let (queues, _pool) =
            bringup.start_ports(&ids, &request).unwrap_or_else(|error| panic!("{}", error.line()));
        let lcores = bringup.eal.lcores().dataplane();
        let works = work(queues);
        assert!(works.len() <= lcores.len(), "an lcore for each");
        let launched: Vec<_> = lcores
            .iter()
            .zip(works)
            .map(|(&lcore, work)| bringup.eal.launch(lcore, move |lcore| work(lcore)).expect("an lcore"))
            .collect();
        ready.send(()).expect("somebody waits");
        let _ = stopped.recv();
        bringup.eal.stop_flag().set();
        launched.into_iter().for_each(|lcore| lcore.wait().expect("no panic on an lcore"));
        let mut dropped = Vec::new();
        for port in bringup.ports.iter_mut() {
            let name = port.name().to_owned();
            for xstat in port.xstats() {
                // By reason. A tap's other end is down while it is moved to its host, and sums say nothing more.
                let sum = matches!(&*xstat.name, "rx_errors" | "tx_errors") || xstat.name.contains("_q");
                let bad = xstat.name.ends_with("_errors") || xstat.name.ends_with("_drops");
                let expected = sum || xstat.name.contains("missed") || xstat.name == "tx_link_down_errors";
                if bad && xstat.value > 0 && !expected {
                    dropped.push((format!("{name} {}", xstat.name), xstat.value));
                }
            }
        }
        dropped
    });
    started.recv_timeout(patient(Duration::from_secs(30))).expect("the forwarder starts");
    Forwarding { stop: Some(stop), thread: Some(thread) }
}

/// Joins the queues of ports by these hops, each queue to that of the same number, dealt out to `lcores` lcores in turn.
pub(crate) fn forward(
    place: &Namespace,
    devices: &[&str],
    setup: Setup,
    hops: &[(usize, usize)],
    lcores: usize,
) -> Forwarding {
    let hops = hops.to_vec();
    start(place, devices, setup, move |queues| {
        let (mut rx, mut tx): (Vec<_>, Vec<_>) =
            queues.into_iter().map(|queues| (queues.rx.into_iter(), queues.tx.into_iter())).unzip();
        let mut shares: Vec<Vec<Path>> = (0..lcores).map(|_| Vec::new()).collect();
        let queues = usize::from(setup.queues.unwrap_or(1));
        let paths = (0..queues).flat_map(|_| hops.iter());
        for (at, &(from, to)) in paths.enumerate() {
            let (rx, tx) = (rx[from].next().expect("a queue"), tx[to].next().expect("a queue"));
            shares[at % lcores].push(Path::new(rx, tx, Edit::Keep, PATIENCE));
        }
        let run = |mut paths: Vec<Path>| -> Work { Box::new(move |lcore| forward::run(lcore, &mut paths)) };
        shares.into_iter().map(run).collect()
    })
}

/// Two hosts, `a` and `b`, with `eth0` each, and the place between them.
pub(crate) struct Hosts {
    pub(crate) a: Namespace,
    pub(crate) b: Namespace,
    pub(crate) middle: Namespace,
}

impl Hosts {
    pub(crate) fn new() -> Self {
        Self { a: Namespace::new("h2a"), b: Namespace::new("h2b"), middle: Namespace::new("h2m") }
    }

    /// Makes a veth pair from the host to `end` in the middle.
    pub(crate) fn veth(&self, host: &Namespace, end: &str, mtu: &str) {
        join(host, "eth0", &self.middle, end);
        self.middle.ip(&["link", "set", end, "mtu", mtu]);
    }

    /// Moves a tap out of the middle to the host, once its port has made it.
    pub(crate) fn tap(&self, host: &Namespace, end: &str) {
        self.middle.ip(&["link", "set", end, "netns", host.name(), "name", "eth0"]);
    }

    pub(crate) fn addresses(&self, mtu: &str) {
        for (host, v4, v6) in [(&self.a, A4, A6), (&self.b, B4, B6)] {
            host.quiet_ipv6("eth0");
            host.ip(&["link", "set", "eth0", "mtu", mtu, "up"]);
            host.ip(&["address", "add", &format!("{v4}/24"), "dev", "eth0"]);
            host.ip(&["-6", "address", "add", &format!("{v6}/64"), "dev", "eth0", "nodad"]);
        }
    }
}

/// Sets features of an interface (`ethtool -K`).
pub(crate) fn features(host: &Namespace, interface: &str, set: &[&str]) {
    must(&mut host.command("ethtool", &[&["-K", interface], set].concat()));
}

/// Slowest that counts as moving, in Mbit/s, on a machine whose processors others use as well. Where frames are taken for busy or lost
/// it is some hundred kbit/s. How fast it can be is for the benches to say.
pub(crate) const FLOOR: f64 = 20.0;

/// Sends so many MiB over TCP and checks them; in Mbit/s. Where the machine has other things to do, the best of three counts.
pub(crate) fn tcp(from: &Namespace, to: &Namespace, address: &str, mebibytes: usize) -> f64 {
    let mut best = 0.0;
    for _ in 0..3 {
        best = tcp_once(from, to, address, mebibytes).max(best);
        if best > FLOOR {
            break;
        }
    }
    best
}

fn tcp_once(from: &Namespace, to: &Namespace, address: &str, mebibytes: usize) -> f64 {
    let address: SocketAddr = address.parse().expect("an address");
    let limit = patient(Duration::from_secs(10));
    let (listening, is_listening) = channel();
    let receiver = to.enter(move || {
        let listener = TcpListener::bind(address).expect("bind");
        listening.send(()).expect("somebody waits");
        let (mut stream, _) = listener.accept().expect("accept");
        stream.set_read_timeout(Some(limit)).expect("a time");
        let mut piece = vec![0; 1 << 20];
        let mut total = 0_usize;
        loop {
            match stream.read(&mut piece) {
                Ok(0) => return Ok(total),
                Ok(got) => {
                    let wrong =
                        piece[..got].iter().enumerate().find(|(at, byte)| **byte != byte_at(total + at));
                    if let Some((at, byte)) = wrong {
                        return Err(format!("byte {} is {byte}", total + at));
                    }
                    total += got;
                }
                Err(why) => return Err(format!("after {total} bytes: {why}")),
            }
        }
    });
    is_listening.recv_timeout(limit).expect("a listener");
    let sender = from.enter(move || {
        let begin = Instant::now();
        let mut stream =
            TcpStream::connect_timeout(&address, limit).map_err(|why| format!("connect: {why}"))?;
        stream.set_write_timeout(Some(limit)).expect("a time");
        let bytes: Vec<u8> = (0..PERIOD * 4096).map(byte_at).collect();
        let mut left = mebibytes << 20;
        while left > 0 {
            let count = left.min(bytes.len());
            stream.write_all(&bytes[..count]).map_err(|why| format!("{left} bytes left: {why}"))?;
            left -= count;
        }
        Ok::<_, String>(begin)
    });
    let begin = match sender.join().expect("the sender") {
        Ok(begin) => begin,
        // A receiver that nobody reached waits for ever; it goes with the process.
        Err(why) => panic!("{address}: {why}"),
    };
    let total = receiver.join().expect("the receiver").unwrap_or_else(|why| panic!("{address}: {why}"));
    assert_eq!(total, mebibytes << 20, "{address}");
    (total * 8) as f64 / begin.elapsed().as_secs_f64() / 1e6
}

/// Length after which the bytes of a stream repeat: a prime, so that no two segments are alike.
const PERIOD: usize = 251;

fn byte_at(at: usize) -> u8 {
    (at % PERIOD) as u8
}

/// Datagrams of several lengths up to `longest`, each answered.
pub(crate) fn udp(from: &Namespace, to: &Namespace, address: &str, longest: usize) {
    let address: SocketAddr = address.parse().expect("an address");
    let (listening, is_listening) = channel();
    let echo = to.enter(move || {
        let socket = UdpSocket::bind(address).expect("bind");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a time");
        listening.send(()).expect("somebody waits");
        let mut bytes = [0; 9000];
        while let Ok((count, peer)) = socket.recv_from(&mut bytes) {
            socket.send_to(&bytes[..count], peer).expect("an answer");
            if count == 0 {
                break;
            }
        }
    });
    is_listening.recv().expect("a listener");
    let asked = from.enter(move || {
        let socket = UdpSocket::bind((if address.is_ipv4() { "0.0.0.0" } else { "::" }, 0)).expect("bind");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
        socket.connect(address).expect("connect");
        for count in [1, 2, 3, 17, 18, 19, 512, longest - 1, longest, 0] {
            let sent: Vec<u8> = (0..count).map(byte_at).collect();
            let mut bytes = [0; 9000];
            // The first may wait for who is who.
            let answered = (0..3).any(|_| {
                socket.send(&sent).expect("sent");
                socket.recv(&mut bytes).is_ok_and(|got| bytes[..got] == sent)
            });
            assert!(answered, "{address}: {count} bytes were not answered");
        }
    });
    asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    echo.join().expect("the echo");
}

/// Whether the kernel makes such a tunnel; says so where it does not.
pub(crate) fn makes(host: &Namespace, args: &[&str]) -> bool {
    let done = Command::new("ip").args(["-n", host.name()]).args(args).output().expect("ip");
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        assert!(why.contains("Unknown device type") || why.contains("not supported"), "{args:?}: {why}");
        println!("left out, this kernel has no such tunnel: ip {}", args.join(" "));
    }
    done.status.success()
}
