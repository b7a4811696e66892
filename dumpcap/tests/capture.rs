//! `pollux-dumpcap` beside a program that forwards: what is in the files, and what comes of clients and programs that die.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_frame_io::pcap::PcapReader;
use pollux_tests::capture::capture;
use pollux_tests::disk::SmallDisk;
use pollux_tests::patience::patient;
use pollux_tests::program::{Finished, Running, with_default_signals};
use pollux_tests::require::{Need, require};
use pollux_tests::telemetry::connect;
use rustix::net::SendFlags;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(20);
const TERM: i32 = 15;

/// A program that sends on what it reads from a pipe: port 0 receives, port 1 sends.
struct Program {
    base: TempDir,
    running: Option<Running>,
    pipe: Option<File>,
}

impl Program {
    fn start() -> Self {
        let base = tempfile::tempdir().expect("a folder");
        let pipe = base.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
        let rx = format!("net_pcap0,rx_pcap={}", pipe.display());
        let mut program = Self { base, running: None, pipe: None };
        program.running = Some(program.forward(&["--vdev", &rx, "--vdev", "net_null1,no-rx=1"]));
        program.pipe = Some(OpenOptions::new().write(true).open(&pipe).expect("its reader is there"));
        program.pipe().write_all(&capture(&[])).expect("a header");
        program
    }

    fn forward(&self, devices: &[&str]) -> Running {
        let binary = Path::new(env!("CARGO_BIN_EXE_pollux-dumpcap")).with_file_name("examples/forward");
        let mut command = Command::new(binary);
        command.env("RUNTIME_DIRECTORY", self.base.path()).args(["-l", "0", "--no-huge"]).args(devices);
        command.args(["--", "-T", "0", "--no-mac-updating"]);
        let mut running = Running::start(with_default_signals(&command));
        running.wait_for("forwarding on");
        running
    }

    fn pipe(&mut self) -> &mut File {
        self.pipe.as_mut().expect("open")
    }

    /// Has it receive frames.
    fn receive(&mut self, frames: &[Vec<u8>]) {
        let bytes = capture(frames);
        self.pipe().write_all(&bytes[24..]).expect("written");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn dumpcap(&self, args: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pollux-dumpcap"));
        command.env("RUNTIME_DIRECTORY", self.base.path()).args(args);
        Running::start(with_default_signals(&command))
    }

    /// Waits until the program has seen that clients are gone.
    fn wait_for_a_place(&self) {
        let free = (0..1000).any(|_| {
            let args = ["-i", "0", "-a", "duration:0.01", "-w", "/dev/null"];
            self.dumpcap(&args).finish(LIMIT).status.success()
        });
        assert!(free, "places of clients that are gone");
    }

    /// One that captures already.
    fn capturing(&self, args: &[&str], file: &str) -> Running {
        let file = self.file(file);
        let mut running = self.dumpcap(&[args, &["-w", file.to_str().expect("text")]].concat());
        running.wait_for("Capturing on");
        running
    }
}

/// Frames that differ, in lengths that need and need no padding.
fn frames(count: usize) -> Vec<Vec<u8>> {
    let frame = |number: usize| {
        let bytes = 60 + number * 37 % 1400;
        let mut frame: Vec<u8> = (0..bytes).map(|at| (at * 3 + number) as u8).collect();
        frame[12..14].copy_from_slice(&if number.is_multiple_of(2) { [0x08, 0x00] } else { [0x88, 0xb5] });
        frame[14] = 0x45;
        frame
    };
    (0..count).map(frame).collect()
}

/// Interface, bytes and length on the wire of each packet of a file.
fn packets(path: &Path) -> Vec<(u32, Vec<u8>, u32)> {
    let mut reader = PcapReader::open(path).expect("a capture file");
    let mut packets = Vec::new();
    while let Some(frame) = reader.next().expect("whole records") {
        packets.push((frame.interface, frame.data.to_vec(), frame.wire_bytes));
    }
    assert_eq!(reader.truncation(), None);
    packets
}

fn data(path: &Path, interface: u32) -> Vec<Vec<u8>> {
    packets(path).into_iter().filter(|packet| packet.0 == interface).map(|packet| packet.1).collect()
}

fn tool(program: &str, args: &[&str], file: &Path) -> String {
    let output = Command::new(program).args(args).arg(file).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<&str> = errors.lines().filter(|line| !line.contains("Running as user")).collect();
    assert!(output.status.success() && errors.is_empty(), "{text}{errors:?}");
    text
}

fn ended_well(finished: &Finished) {
    assert!(finished.status.success(), "{:?}", finished.stderr);
}

#[test]
fn what_a_port_receives_and_another_sends_is_in_the_file_byte_for_byte() {
    let mut program = Program::start();
    let options = ["-i", "net_pcap0", "-i", "1", "--ifname", "out", "--ifdescr", "to nowhere", "-c", "400"];
    let comment = ["--capture-comment", "of a test"];
    let dumpcap = program.capturing(&[&options[..], &comment].concat(), "a.pcapng");
    let frames = frames(200);
    let before = std::time::SystemTime::now();
    program.receive(&frames);
    let finished = dumpcap.finish(LIMIT);
    let passed = before.elapsed().expect("time goes on");
    ended_well(&finished);
    let file = program.file("a.pcapng");
    assert_eq!(data(&file, 0), frames, "received by port 0");
    assert_eq!(data(&file, 1), frames, "sent by port 1");
    let mut reader = PcapReader::open(&file).expect("a capture file");
    let since = before.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
    let mut last = 0;
    while let Some(frame) = reader.next().expect("whole") {
        let time = frame.timestamp.nanos();
        assert!(
            time + 1_000_000 > since && time < since + passed.as_nanos() as u64 + 1_000_000,
            "{time} {since}"
        );
        assert!(time >= last, "one lcore, so in order");
        last = time;
    }
    let counts: Vec<&String> = finished.stderr.iter().filter(|line| line.starts_with("Packets")).collect();
    let expected = [
        "Packets captured: 400",
        "Packets received/dropped on interface 'net_pcap0': 200/0 (100.0)",
        "Packets received/dropped on interface 'net_null1': 200/0 (100.0)",
    ];
    assert_eq!(counts, expected);
    if require(&[Need::Tshark]) {
        let fields = [
            "-e",
            "frame.interface_name",
            "-e",
            "frame.interface_description",
            "-e",
            "frame.packet_flags_direction",
        ];
        let rows = tool("tshark", &[&["-T", "fields"][..], &fields, &["-r"]].concat(), &file);
        let mut kinds: Vec<&str> = rows.lines().collect();
        assert_eq!(kinds.len(), 400);
        kinds.sort_unstable();
        kinds.dedup();
        let received = format!("net_pcap0\tnet_pcap {}\t0x00000001", program.file("pipe").display());
        assert_eq!(kinds, [&received, "out\tto nowhere\t0x00000002"]);
        let about = tool("capinfos", &[], &file);
        for part in
            ["pcapng", "of a test", "pollux-dumpcap", "Number of packets:   400", "Name = out", "nanoseconds"]
        {
            assert!(about.contains(part), "{part}: {about}");
        }
    }
}

#[test]
fn filters_and_snap_lengths_are_of_each_interface() {
    let mut program = Program::start();
    let code = program.file("code");
    std::fs::write(&code, "4\n40 0 0 12\n21 0 1 34997\n6 0 0 50\n6 0 0 0\n").expect("written");
    let code = code.to_str().expect("text");
    let args = ["-i", "0", "-f", "ip", "-s", "64", "-i", "1", "--filter-code", code];
    let dumpcap = program.capturing(&args, "a.pcapng");
    let frames = frames(100);
    program.receive(&frames);
    // Both are seen whole by one more capture, which knows when all is through.
    let all = program.capturing(&["-i", "1", "-c", "1"], "b.pcapng");
    program.receive(&frames[..1]);
    ended_well(&all.finish(LIMIT));
    ended_well(&dumpcap.interrupt());
    let file = program.file("a.pcapng");
    let cut = |parity: usize, bytes: usize| {
        let own = frames.iter().enumerate().filter(|(number, _)| number % 2 == parity);
        own.map(|(_, frame)| frame[..frame.len().min(bytes)].to_vec()).collect::<Vec<_>>()
    };
    let mut even = cut(0, 64);
    even.push(frames[0][..60].to_vec());
    assert_eq!(data(&file, 0), even);
    assert_eq!(data(&file, 1), cut(1, 50));
    let wire: Vec<u32> =
        packets(&file).iter().filter(|packet| packet.0 == 1).map(|packet| packet.2).collect();
    assert_eq!(wire, frames.iter().skip(1).step_by(2).map(|frame| frame.len() as u32).collect::<Vec<_>>());
}

#[test]
fn a_row_of_files_keeps_the_last_ones_and_ends() {
    let mut program = Program::start();
    let args = ["-i", "0", "-b", "packets:10", "-b", "files:2", "-a", "files:4", "-g"];
    let dumpcap = program.capturing(&args, "row.pcapng");
    let frames = frames(45);
    program.receive(&frames);
    ended_well(&dumpcap.finish(LIMIT));
    let entries = std::fs::read_dir(program.base.path()).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pcapng"));
    files.sort();
    assert_eq!(files.len(), 2, "{files:?}");
    for (number, file) in files.iter().enumerate() {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name.starts_with(&format!("row_0000{}_", number + 3)), "{name}");
        assert_eq!(data(file, 0), frames[(number + 2) * 10..(number + 3) * 10]);
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(file).expect("there").permissions().mode() & 0o777, 0o640);
    }
}

#[test]
fn limits_of_time_and_size_end_it_whole() {
    let mut program = Program::start();
    let dumpcap = program.capturing(&["-i", "0", "-a", "filesize:4", "-P"], "size.pcap");
    program.receive(&frames(100));
    ended_well(&dumpcap.finish(LIMIT));
    let bytes = std::fs::metadata(program.file("size.pcap")).expect("there").len();
    assert!((4096..6000).contains(&bytes), "{bytes}");
    assert!(packets(&program.file("size.pcap")).len() > 3);
    let dumpcap = program.capturing(&["-i", "0", "-a", "duration:0.3", "-q"], "time.pcapng");
    let finished = dumpcap.finish(LIMIT);
    ended_well(&finished);
    assert!(!finished.stderr.iter().any(|line| line.contains("captured")), "{:?}", finished.stderr);
}

#[test]
fn the_end_of_the_program_ends_it_with_all_there_was() {
    for signal in [TERM, 9] {
        let mut program = Program::start();
        let dumpcap = program.capturing(&["-i", "0"], "a.pcapng");
        let second = program.capturing(&["-i", "0", "-c", "50"], "b.pcapng");
        let frames = frames(50);
        program.receive(&frames);
        ended_well(&second.finish(LIMIT));
        let running = program.running.take().expect("it runs");
        if signal == 9 {
            running.kill()
        } else {
            ended_well(&running.interrupt())
        }
        let finished = dumpcap.finish(LIMIT);
        ended_well(&finished);
        assert!(finished.stderr.iter().any(|line| line == "The program has ended"), "{:?}", finished.stderr);
        assert_eq!(data(&program.file("a.pcapng"), 0), frames);
    }
}

/// Killed at any moment, a client leaves its place and its buffer; there are four places.
#[test]
fn clients_that_are_killed_leave_their_places() {
    let mut program = Program::start();
    for round in 0..3 {
        let args = ["-i", "0", "-i", "1"];
        let killed: Vec<Running> =
            (0..4).map(|at| program.capturing(&args, &format!("{round}{at}"))).collect();
        let refused = program.dumpcap(&["-i", "0", "-w", "/dev/null"]).finish(LIMIT);
        let last = refused.stderr.last().expect("a line");
        assert!(last.ends_with("4 captures run already, which is the most; end one of them"), "{last}");
        assert_eq!(refused.status.code(), Some(1));
        program.receive(&frames(20));
        killed.into_iter().for_each(Running::kill);
        program.wait_for_a_place();
    }
    let pid = program.running.as_ref().expect("it runs").pid();
    let rings = || {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("it lives");
        maps.lines().filter(|line| line.contains("memfd:capture")).count()
    };
    let end = Instant::now() + patient(LIMIT);
    while rings() > 0 {
        // A tx queue lets go with what it is given next.
        program.receive(&frames(1));
        assert!(Instant::now() < end, "their memory is freed: {} rings", rings());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn hostile_clients_harm_nobody() {
    let mut program = Program::start();
    let path = program.file("dpdk/rte/pollux_capture");
    let filter = |instructions: &str| {
        format!(
            "{{\"revision\":1,\"request\":{{\"capture\":{{\"ring_bytes\":1048576,\"interfaces\":[{{\"port\":0,\"snaplen\":9,\"filter\":{instructions}}}]}}}}}}"
        )
    };
    let ask = |message: &[u8]| {
        let socket = connect(&path);
        rustix::net::send(&socket, message, SendFlags::NOSIGNAL).expect("sent");
        let mut answer = vec![0; 1 << 18];
        let (_, bytes) =
            rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty()).expect("an answer");
        let answer: serde_json::Value = serde_json::from_slice(&answer[..bytes]).expect("JSON");
        answer["error"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    };
    for (message, part) in [
        ("\u{0}\u{1}", "not a capture request"),
        ("{\"revision\":1", "not a capture request"),
        ("{\"revision\":9,\"request\":\"ports\"}", "has revision 9"),
        (&filter("[]"), "the filter of port 0: a BPF program has 1 to 4096 instructions, not 0"),
        (&filter("[[5,0,0,4294967295],[6,0,0,1]]"), "jumps behind the end"),
        (&filter("[[0,0,0,1]]"), "does not return"),
        (&filter("null").replace("\"port\":0", "\"port\":7"), "there is no port 7"),
        (&filter("null").replace("\"snaplen\":9", "\"snaplen\":0"), "a snap length of 0"),
        (&filter("null").replace("1048576", "1048577"), "a ring of 1048577 bytes"),
        (&" ".repeat(170_000), "a request has up to 163840 bytes"),
    ] {
        let answer = ask(message.as_bytes());
        assert!(answer.contains(part), "{answer}");
    }
    // Many that connect and say nothing, or ask and go.
    let idle: Vec<OwnedFd> = (0..50).map(|_| connect(&path)).collect();
    for _ in 0..200 {
        let gone = connect(&path);
        rustix::net::send(&gone, filter("null").as_bytes(), SendFlags::NOSIGNAL).expect("sent");
    }
    // One that captures and does not read.
    let deaf = (0..1000).find_map(|_| {
        let socket = connect(&path);
        rustix::net::send(&socket, filter("null").as_bytes(), SendFlags::NOSIGNAL).expect("sent");
        let mut answer = [0; 1000];
        let (_, bytes) =
            rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty()).expect("an answer");
        if answer[..bytes].starts_with(b"{\"capture\"") {
            return Some(socket);
        }
        // The program still gives back the places of those that went.
        std::thread::sleep(Duration::from_millis(1));
        None
    });
    let frames = frames(300);
    program.wait_for_a_place();
    let captured = program.capturing(&["-i", "1", "-c", "300"], "a");
    program.receive(&frames);
    ended_well(&captured.finish(LIMIT));
    assert_eq!(data(&program.file("a"), 0), frames);
    drop((idle, deaf.expect("a place")));
    ended_well(&program.running.take().expect("it runs").interrupt());
    let left = std::fs::read_dir(program.file("dpdk/rte")).expect("a folder").count();
    assert_eq!(left, 0, "nothing is left behind");
}

#[test]
fn a_full_disk_is_one_line_and_the_file_stays_whole() {
    if !require(&[Need::Root]) {
        return;
    }
    let mut program = Program::start();
    let disk = SmallDisk::new(64);
    let file = disk.file("a.pcapng");
    let mut dumpcap = program.dumpcap(&["-i", "0", "-w", file.to_str().expect("text")]);
    dumpcap.wait_for("Capturing on");
    let frames = frames(500);
    program.receive(&frames);
    let finished = dumpcap.finish(LIMIT);
    assert_eq!(finished.status.code(), Some(1));
    let lines: Vec<&String> = finished.stderr.iter().filter(|line| line.contains("No space left")).collect();
    let there = data(&file, 0);
    assert_eq!(there, frames[..there.len()]);
    assert!(there.len() > 20);
    let begin = format!("pollux-dumpcap: the file ends with packet {}: ", there.len());
    assert!(lines.len() == 1 && lines[0].starts_with(&begin), "{:?}", finished.stderr);
    // The program has not noticed.
    ended_well(&program.running.take().expect("it runs").interrupt());
}

#[test]
fn ports_are_listed_and_counted() {
    let mut program = Program::start();
    let listed = program.dumpcap(&["-D"]).finish(LIMIT);
    assert_eq!(listed.stdout, "0. net_pcap0\n1. net_null1\n");
    let one = program.capturing(&["-c", "7"], "a");
    program.receive(&frames(7));
    ended_well(&one.finish(LIMIT));
    let table = program.file("table");
    let mut command = Command::new("sh");
    let binary = env!("CARGO_BIN_EXE_pollux-dumpcap");
    command.args(["-c", "exec \"$0\" -S > \"$1\"", binary]).arg(&table);
    command.env("RUNTIME_DIRECTORY", program.base.path());
    let counting = Running::start(with_default_signals(&command));
    let expected = "Interface          Received     Dropped\nnet_pcap0                 7           0\n";
    let end = Instant::now() + patient(LIMIT);
    while !std::fs::read_to_string(&table).is_ok_and(|said| said.contains(expected)) {
        assert!(Instant::now() < end, "{:?}", std::fs::read_to_string(&table));
        std::thread::sleep(Duration::from_millis(10));
    }
    ended_well(&counting.interrupt());
    let code = program.dumpcap(&["-d", "-f", "ip"]).finish(LIMIT);
    assert_eq!(code.stdout, "4\n40 0 0 12\n21 0 1 2048\n6 0 0 262144\n6 0 0 0\n");
}

#[test]
fn mistakes_cost_one_line() {
    let program = Program::start();
    let long = "x".repeat(20);
    for (args, status, part) in [
        (&["-i", "5"][..], 2, "there is no port '5'; ports: net_pcap0 (0), net_null1 (1)"),
        (&["-i", "0", "-i", "net_pcap0"], 2, "port 0 (net_pcap0) is named twice"),
        (
            &["-f", "host example.org"],
            2,
            "filter 'host example.org': 'example.org' is not an IPv4 or IPv6 address",
        ),
        (&["--filter-code", "/nonexistent"], 1, "cannot read /nonexistent: No such file"),
        (
            &["--file-prefix", &long],
            1,
            "no program with file prefix 'xxxxxxxxxxxxxxxxxxxx' can be captured (",
        ),
        (
            &["--instance", "1"],
            1,
            "pollux_capture:1); start one, or name its prefix with --file-prefix: No such file",
        ),
        (&["-w", "/nonexistent/a"], 1, "cannot create /nonexistent/a: No such file"),
        (&["-b", "files:2"], 2, "option '-b': files:COUNT needs"),
        (&["-c", "x"], 2, "invalid value 'x'"),
    ] {
        let finished = program.dumpcap(args).finish(LIMIT);
        assert_eq!(finished.status.code(), Some(status), "{args:?}: {:?}", finished.stderr);
        assert!(finished.stderr[0].contains(part), "{args:?}: {:?}", finished.stderr);
        assert!(status == 2 || finished.stderr.len() == 1, "{:?}", finished.stderr);
    }
    let idle = program.dumpcap(&["-t", "-I", "-D"]).finish(LIMIT);
    assert_eq!(idle.stderr, ["pollux-dumpcap: -I, -t accepted, of no effect here"]);
}
