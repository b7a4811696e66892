//! GRO and GSO of the engine csum: to the byte over files and the device model, and TCP between hosts.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use pollux_tests::capture;
use pollux_tests::netns::{Namespace, join, must};
use pollux_tests::patience::patient;
use pollux_tests::require::{Need, require};
use pollux_wire::TcpFlags;
use pollux_wire::build::Frame;
use pollux_wire::checksum::{self, Sum};
use pollux_wire::segment::{Segments, Transport};

use crate::typist::{Typist, number, two_cpus};

const PEER: [u8; 6] = [2, 0, 0, 0, 0, 0x77];

fn payload(count: usize, seed: u8) -> Vec<u8> {
    (0..count).map(|at| (at * 7 + at / 256) as u8 ^ seed).collect()
}

fn tcp(connection: u16, bytes: usize) -> Vec<u8> {
    let ip = Frame::ether([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 0]).ipv4([10, 0, 0, 1], [10, 1, 0, 9]);
    let flags = TcpFlags(TcpFlags::ACK.0 | TcpFlags::PSH.0);
    ip.tcp(connection, 80).flags(flags).numbers(5, 6).payload(&payload(bytes, connection as u8)).to_vec()
}

/// The same in VXLAN, without an outer sum.
fn vxlan(connection: u16, bytes: usize) -> Vec<u8> {
    let ip = Frame::ether([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 0]).ipv4([10, 0, 0, 1], [10, 1, 0, 9]);
    let mut whole =
        ip.udp(9, 4789).payload(&[&[8, 0, 0, 0, 0, 0, 1, 0], &tcp(connection, bytes)[..]].concat()).to_vec();
    whole[40..42].fill(0);
    whole
}

/// Where TCP begins in these.
const PLAIN: usize = 34;
const INSIDE: usize = 50 + 34;

fn cut(whole: &[u8], transport_at: usize, size: u16) -> Vec<Vec<u8>> {
    let segments = Segments::at(whole, Transport::Tcp, size, transport_at).expect("TCP");
    let one = |index| {
        let mut frame = vec![0; segments.bytes(index)];
        segments.write(index, &mut frame).expect("room");
        frame
    };
    (0..segments.count()).map(one).collect()
}

/// To the peer; the port's own address is a gap.
fn addressed(frame: &[u8]) -> Vec<u8> {
    [&PEER[..], &[0; 6], &frame[12..]].concat()
}

/// Ports that send chains from the start: `gro on` sets up no port anew, which would lose what has come.
const CHAINS: &str = "--tx-offloads=0x8000";

/// What comes out of a second port of what comes into the first, after these commands.
fn through(kind: &str, commands: &[&str], options: &[&str], came: &[Vec<u8>], left: usize) -> Vec<Vec<u8>> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("in"), capture::capture(came)).expect("written");
    std::fs::write(path("none"), capture::capture(&[])).expect("written");
    let device = |number: usize, rx: &str, tx: &str| match kind {
        "net_pcap" => format!("net_pcap{number},rx_pcap={},tx_pcap={}", path(rx), path(tx)),
        _ => format!("mlx5_model{number},wire=pcap:{}:{},mac=02:00:00:00:02:0{number}", path(rx), path(tx)),
    };
    let devices = [device(0, "in", "back"), device(1, "none", "out")];
    let eal = ["-l", "0,1", "--vdev", &devices[0], "--vdev", &devices[1]];
    let mut typist =
        Typist::start(&eal, &[&["--no-flush-rx", "--eth-peer=1,02:00:00:00:00:77"], options].concat());
    for line in commands.iter().chain(&["set fwd csum", "start"]) {
        let said = typist.line(line);
        assert!(!said.contains("Bad arguments") && !said.contains("first"), "{kind}: {line}: {said}");
    }
    typist.until("show fwd stats all", |said| {
        let all = said.split("Accumulated").nth(1).unwrap_or_default();
        number(all, "RX-packets: ") >= came.len() as u64 && number(all, "TX-packets: ") >= left as u64
    });
    let stopped = typist.line("stop");
    let all = stopped.split("Accumulated").nth(1).unwrap_or_default();
    assert_eq!(number(all, "TX-dropped: "), 0, "{kind}: {stopped}");
    typist.quit();
    let mut frames = capture::frames(&std::fs::read(path("out")).expect("written"));
    frames.iter_mut().for_each(|frame| frame[6..12].fill(0));
    frames
}

/// Connections whose packets come in turn, and what they were.
fn interleaved(make: fn(u16, usize) -> Vec<u8>, at: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let wholes: Vec<Vec<u8>> = (0..4).map(|connection| make(connection, 1200)).collect();
    let parts: Vec<Vec<Vec<u8>>> = wholes.iter().map(|whole| cut(whole, at, 150)).collect();
    let came = (0..8).flat_map(|index| parts.iter().map(move |parts| parts[index].clone())).collect();
    (came, wholes.iter().map(|whole| addressed(whole)).collect())
}

/// The bytes of each connection, its checksums verified.
fn streams(frames: &[Vec<u8>]) -> BTreeMap<u16, Vec<u8>> {
    let mut pieces: BTreeMap<(u16, u32), Vec<u8>> = BTreeMap::new();
    for frame in frames {
        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        let upper = usize::from(word(16)) - 20;
        assert!(Sum::of(&frame[14..34]).is_valid(), "the header's sum");
        let pseudo = Sum::of(&frame[26..34]).add_word(6).add_word(upper as u16);
        assert!(pseudo.add_bytes(&frame[34..34 + upper]).is_valid(), "TCP's sum");
        let seq = u32::from(word(38)) << 16 | u32::from(word(40));
        pieces.insert((word(34), seq), frame[54..34 + upper].to_vec());
    }
    let mut streams: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    pieces
        .into_iter()
        .for_each(|((connection, _), piece)| streams.entry(connection).or_default().extend(piece));
    streams
}

#[test]
fn gro_joins_what_was_cut() {
    if !two_cpus() {
        return;
    }
    // All that came is one burst of 32 packets.
    for (make, at, more) in
        [(tcp as fn(u16, usize) -> Vec<u8>, PLAIN, None), (vxlan, INSIDE, Some("csum parse-tunnel on 1"))]
    {
        let (came, wholes) = interleaved(make, at);
        let commands: Vec<&str> = more.into_iter().chain(["set port 0 gro on", "set gro flush 1"]).collect();
        assert!(through("net_pcap", &commands, &[CHAINS], &came, 4) == wholes, "{at}");
    }
    // Burst by burst as a device brings them, and held over several.
    let (came, wholes) = interleaved(tcp, PLAIN);
    for flush in ["set gro flush 1", "set gro flush 4"] {
        let left = through("mlx5_model", &["set port 0 gro on", flush], &["--burst=16", CHAINS], &came, 4);
        assert!(left.len() <= came.len() / 2, "{flush}: {}", left.len());
        assert_eq!(streams(&left), streams(&wholes), "{flush}");
    }
    // Sums of joined packets by the port that sends them.
    let by_port =
        ["port stop 1", "csum set ip hw 1", "csum set tcp hw 1", "port start 1", "set port 0 gro on"];
    let left = through("mlx5_model", &by_port, &[CHAINS], &came, 4);
    assert!(left.len() <= came.len() / 2, "{}", left.len());
    assert_eq!(streams(&left), streams(&wholes));
}

#[test]
fn gso_cuts_what_is_too_long() {
    if !two_cpus() {
        return;
    }
    const LONGEST: usize = 700;
    let ip = || Frame::ether([2, 0, 0, 0, 1, 1], [2, 0, 0, 0, 2, 0]).ipv4([10, 0, 0, 1], [10, 1, 0, 9]);
    let udp = ip().udp(7, 9).payload(&payload(5000, 3)).to_vec();
    let short = ip().udp(7, 10).payload(b"short").padded_to(60).to_vec();
    let came = vec![tcp(1, 5000), udp.clone(), short.clone(), vxlan(2, 4000), tcp(3, 700 - 54)];
    let size = |headers: usize| (LONGEST - headers) as u16;
    let mut wanted = cut(&addressed(&came[0]), PLAIN, size(PLAIN + 20));
    let step = (LONGEST - 34) & !7;
    for at in (0..5008).step_by(step) {
        let piece = &udp[34 + at..(34 + at + step).min(udp.len())];
        let mut frame = addressed(&[&udp[..34], piece].concat());
        frame[16..18].copy_from_slice(&((20 + piece.len()) as u16).to_be_bytes());
        let more = u16::from(at + step < 5008) << 13;
        frame[20..22].copy_from_slice(&((at / 8) as u16 | more).to_be_bytes());
        frame[24..26].fill(0);
        let sum = checksum::of(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        wanted.push(frame);
    }
    wanted.push(addressed(&short));
    wanted.extend(cut(&addressed(&came[3]), INSIDE, size(INSIDE + 20)));
    wanted.push(addressed(&came[4]));
    let commands = ["csum parse-tunnel on 1", "set port 1 gso on", "set gso segsz 700"];
    let options = ["--mbuf-size=2176", "--max-pkt-len=9018", "--enable-scatter", "--tx-offloads=0x8000"];
    for kind in ["net_pcap", "mlx5_model"] {
        let left = through(kind, &commands, &options, &came, wanted.len());
        assert_eq!(left.len(), wanted.len(), "{kind}");
        for (at, (left, wanted)) in left.iter().zip(&wanted).enumerate() {
            let first = left.iter().zip(wanted).position(|(one, other)| one != other);
            assert!(
                left == wanted,
                "{kind}: frame {at}: {} and {} bytes, first {first:?}",
                left.len(),
                wanted.len()
            );
        }
    }
}

#[test]
fn commands_answer_as_dpdks() {
    if !two_cpus() {
        return;
    }
    let mut typist = Typist::start(&["-l", "0,1", "--vdev", "net_null0", "--vdev", "net_null1"], &[]);
    let gro = "GRO type: TCP/IPv4\nMax number of packets to perform GRO: 128\nFlushing cycles: 1\n";
    let gso = "Max GSO'd packet size: 900B\nSupported GSO types: TCP/IPv4, UDP/IPv4, VxLAN with inner TCP/IPv4 packet, \
               GRE with inner TCP/IPv4 packet\n";
    for (line, answer) in [
        ("show port 0 gro", "Port 0 doesn't enable GRO.\n"),
        ("set port 0 gro off", "Port 0 has disabled GRO\n"),
        ("set port 0 gro on", ""),
        ("set port 0 gro on", "Port 0 has enabled GRO. Please disable GRO first\n"),
        ("show port 0 gro", gro),
        ("set gro flush 5", "The flushing cycle be in the range of 1 to 4. Revert to the default value 1.\n"),
        ("set gro flush 2", ""),
        ("show port 0 gso", "GSO is not enabled on Port 0\n"),
        ("set gso segsz 54", "gso_size should be larger than 55. Please input a legal value\n"),
        ("set gso segsz 900", ""),
        ("set port 0 gso on", ""),
        ("show port 0 gso", gso),
        ("set port 9 gro on", "Invalid port 9\n"),
    ] {
        let said = typist.line(line);
        assert!(said.contains(answer) && !said.contains("Bad arguments"), "{line}: {said}");
    }
    for (line, answer) in [("set gro flush 256", "Bad arguments"), ("set gso segsz 65536", "Bad arguments")] {
        let said = typist.line(line);
        assert!(said.contains(answer), "{line}: {said}");
    }
    typist.line("set fwd csum");
    typist.line("start");
    for (line, answer) in [
        ("set port 0 gro off", "Before enable/disable GRO, please stop forwarding first"),
        ("set gro flush 1", "Before change flush interval for GRO, please stop forwarding first."),
        ("set gso segsz 800", "Before setting GSO segsz, please first stop forwarding"),
        ("set port 0 gso on", "before enabling GSO, please stop forwarding first"),
        ("set port 0 gso off", "before disabling GSO, please stop forwarding first"),
    ] {
        let said = typist.line(line);
        assert!(said.contains(answer), "{line}: {said}");
    }
    typist.line("stop");
    // Switched off behind GRO's back: joined packets would be dropped.
    for line in ["port stop 1", "port config 1 tx_offload multi_segs off", "port start 1"] {
        typist.line(line);
    }
    let said = typist.line("start");
    assert!(said.contains("port config 1 tx_offload multi_segs on"), "{said}");
    for line in ["port stop 1", "port config 1 tx_offload multi_segs on", "port start 1", "start"] {
        let said = typist.line(line);
        assert!(!said.contains("no packets of several mbufs"), "{line}: {said}");
    }
    typist.line("stop");
    typist.quit();
}

/// Bytes that a host sends to another.
const SENT: usize = 8 << 20;

/// Packets that came to testpmd between two hosts, and left it, while one sent [`SENT`] bytes to the other.
fn between_hosts(mtu: &str, framing: &str, commands: &[&str]) -> (u64, u64) {
    let [a, b, middle] = ["gro-a", "gro-b", "gro-m"].map(Namespace::new);
    join(&a, "eth0", &middle, "west");
    join(&b, "eth0", &middle, "east");
    let mac = |host: &Namespace| {
        let output = must(&mut host.command("cat", &["/sys/class/net/eth0/address"]));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    for (host, interface) in [(&a, "eth0"), (&b, "eth0"), (&middle, "west"), (&middle, "east")] {
        host.ip(&["link", "set", interface, "mtu", mtu]);
    }
    for (host, address) in [(&a, "10.79.0.1"), (&b, "10.79.0.2")] {
        host.ip(&["addr", "add", &format!("{address}/32"), "dev", "eth0"]);
        // Segments that the kernel cuts, as for a link of 1500 bytes: GRO has something to join.
        host.ip(&["route", "add", "10.79.0.0/24", "dev", "eth0", "src", address, "advmss", "1448"]);
        host.ip(&["link", "set", "eth0", "gso_max_segs", "1"]);
    }
    let peers = [format!("--eth-peer=0,{}", mac(&a)), format!("--eth-peer=1,{}", mac(&b))];
    let devices = ["0,iface=west", "1,iface=east"].map(|device| format!("net_af_packet{device},{framing}"));
    let eal = ["-l", "0,1", "--vdev", &devices[0], "--vdev", &devices[1]];
    let frame = format!("--max-pkt-len={}", mtu.parse::<u32>().expect("a number") + 18);
    let options = [&*peers[0], &peers[1], &frame, "--enable-scatter"];
    let mut typist = Typist::inside(&middle, &eal, &options);
    for line in ["set fwd csum"].iter().chain(commands).chain(&["start"]) {
        let said = typist.line(line);
        assert!(!said.contains("first") && !said.contains("Bad arguments"), "{line}: {said}");
    }
    let limit = patient(Duration::from_secs(60));
    let address: SocketAddr = "10.79.0.2:7300".parse().expect("an address");
    let received = b.enter(move || {
        let listener = TcpListener::bind(address).expect("bound");
        listener.set_nonblocking(true).expect("set");
        let end = Instant::now() + limit;
        let mut stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) => assert!(Instant::now() < end, "nobody connects"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.set_nonblocking(false).expect("set");
        stream.set_read_timeout(Some(limit)).expect("set");
        let mut all = Vec::with_capacity(SENT);
        stream.read_to_end(&mut all).expect("all of it");
        stream.write_all(&all[..1000]).expect("an answer");
        all
    });
    let answered = a.enter(move || {
        let end = Instant::now() + limit;
        let mut stream = loop {
            match TcpStream::connect_timeout(&address, Duration::from_secs(5)) {
                Ok(stream) => break stream,
                Err(why) => assert!(Instant::now() < end, "{why}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.set_write_timeout(Some(limit)).expect("set");
        stream.set_read_timeout(Some(limit)).expect("set");
        stream.write_all(&payload(SENT, 9)).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("its end");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        answer
    });
    let (received, answered) = (received.join().expect("no panic"), answered.join().expect("no panic"));
    assert!(received == payload(SENT, 9), "{} bytes", received.len());
    assert_eq!(answered, payload(SENT, 9)[..1000]);
    let stopped = typist.line("stop");
    typist.quit();
    let all = stopped.split("Accumulated").nth(1).unwrap_or_default();
    (number(all, "RX-packets: "), number(all, "TX-packets: "))
}

#[test]
fn hosts_talk_tcp_through_gro_and_gso() {
    if !require(&[Need::Root, Need::Net]) || !two_cpus() {
        return;
    }
    let both = ["set port 0 gro on", "set port 1 gro on", "set gro flush 2", "set gso segsz 800"];
    let gso = ["set port 0 gso on", "set port 1 gso on"];
    let (came, left) = between_hosts("1500", "framesz=16384,blocksz=65536", &[&both[..], &gso].concat());
    // Each full packet is two.
    assert!(left > came + SENT as u64 / 2000, "{came} came, {left} left");
    let (came, left) = between_hosts("65000", "framesz=131072,blocksz=131072,framecnt=64", &both);
    assert!(left < came - came / 20, "{came} came, {left} left");
}
