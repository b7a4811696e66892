//! Two programs on device models that a unix wire joins: where they meet, and what came of it.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pollux_tests::program::{Finished, Running, with_default_signals};
use pollux_wire::{Ether, EtherType, Ipv4, Ipv6, Udp};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGTERM: i32 = 15;
pub(crate) const SIGHUP: i32 = 1;

/// Where two ends meet: sockets of the wire, and a TCP port.
pub(crate) struct Place {
    pub(crate) folder: TempDir,
    pub(crate) port: u16,
}

impl Place {
    pub(crate) fn new() -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|socket| socket.local_addr())
            .expect("a free port")
            .port();
        Self { folder: tempfile::tempdir().expect("a folder"), port }
    }

    pub(crate) fn command(&self, program: &str, ends: [&str; 2], keys: &str) -> Command {
        let [own, other] = ends.map(|name| self.folder.path().join(name).display().to_string());
        let mut command = Command::new(program);
        let device = format!("mlx5_model0,wire=unix:{own}:{other}{keys}");
        command.args(["-l", "0", "--vdev", &device, "--", "--json", "-p", &self.port.to_string()]);
        command
    }

    /// Starts the end that waits, and waits until it does.
    pub(crate) fn server(&self, program: &str, options: &str) -> Running {
        let mut command = self.command(program, ["a", "b"], "");
        command.args(options.split_whitespace());
        let mut running = Running::start(with_default_signals(&command));
        running.wait_for(if program.contains("pingpong") { "local address" } else { "Waiting for client" });
        running
    }

    pub(crate) fn client(&self, program: &str, options: &str) -> Running {
        let mut command = self.command(program, ["b", "a"], "");
        command.args(options.split_whitespace()).arg("127.0.0.1");
        Running::start(with_default_signals(&command))
    }

    /// Runs both ends to their end.
    pub(crate) fn pair(&self, program: &str, server: &str, client: &str) -> [Finished; 2] {
        let server = self.server(program, server);
        let client = self.client(program, client);
        [client, server]
            .map(|end| end.finish(LIMIT))
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .try_into()
            .expect("two")
    }
}

/// Who stands between the ends `a` and `b`, whose peers' sockets are `between-b` and `between-a`: it hands on frames, and keeps them.
pub(crate) struct Between {
    frames: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Between {
    pub(crate) fn start(folder: &Path) -> Self {
        let (frames, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let [a, b] = ["a", "b"].map(|end| {
            let socket = UnixDatagram::bind(folder.join(format!("between-{end}"))).expect("a socket");
            socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a time");
            socket
        });
        let threads = [(&a, &b, "a"), (&b, &a, "b")].map(|(own, other, end)| {
            let (own, other) = (own.try_clone().expect("it"), other.try_clone().expect("it"));
            let (frames, stop): (Arc<Mutex<Vec<Vec<u8>>>>, _) = (Arc::clone(&frames), Arc::clone(&stop));
            let to = folder.join(end);
            std::thread::spawn(move || {
                let mut room = vec![0; 1 << 16];
                while !stop.load(Ordering::Relaxed) {
                    // What is for `a` comes to the socket that `b` takes for it, and goes on by the one that `a` takes for `b`.
                    let Ok(bytes) = own.recv(&mut room) else { continue };
                    frames.lock().expect("alive").push(room[..bytes].to_vec());
                    // Whoever has ended hears no more.
                    let _ = other.send_to(&room[..bytes], &to);
                }
            })
        });
        Self { frames, stop, threads: threads.into() }
    }

    /// Flow labels of IPv6 and source ports of RoCE packets, each once.
    pub(crate) fn flows(self) -> Vec<(u32, u16)> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("it ran");
        }
        let frames = self.frames.lock().expect("alive");
        let flows: BTreeSet<_> = frames
            .iter()
            .filter_map(|frame| {
                let ether = Ether::new(frame).ok()?;
                let (label, datagram) = match ether.ether_type() {
                    EtherType::IPV4 => (0, Ipv4::new(ether.payload()).ok()?.payload()),
                    EtherType::IPV6 => {
                        let packet = Ipv6::new(ether.payload()).ok()?;
                        (packet.flow_label(), packet.payload())
                    }
                    _ => return None,
                };
                let udp = Udp::new(datagram).ok()?;
                (udp.dst_port.get() == 4791).then(|| (label, udp.src_port.get()))
            })
            .collect();
        flows.into_iter().collect()
    }
}

pub(crate) fn report(end: &Finished) -> Value {
    assert_eq!(end.status.code(), Some(0), "{}", end.stderr.join("\n"));
    end.report()
}

/// The line that an end failed with.
pub(crate) fn line(end: &Finished) -> &str {
    assert_eq!(end.status.code(), Some(1), "{}", end.stderr.join("\n"));
    end.stderr.last().expect("a line")
}

/// Stops an end that went on listening, and looks for the line that says why it did.
pub(crate) fn refused(mut server: Running, expected: &str) {
    server.wait_for("; still listening on TCP port ");
    server.signal(SIGINT);
    let server = server.finish(LIMIT);
    assert_eq!(server.status.code(), Some(0), "{}", server.stderr.join("\n"));
    let lines: Vec<&String> =
        server.stderr.iter().filter(|line| line.contains("; still listening")).collect();
    assert!(lines.len() == 1 && lines[0].contains(expected), "{expected}: {lines:?}");
}

pub(crate) fn said<'a>(end: &'a Finished, word: &str) -> Vec<&'a str> {
    let lines = end.stderr.iter().filter_map(|line| line.split_once(word));
    lines.map(|(_, rest)| rest.trim_start_matches([':', ' '])).collect()
}

pub(crate) const PINGPONGS: [(&str, &str); 4] = [
    (env!("CARGO_BIN_EXE_rc_pingpong"), "-g 0 -n 300 -c"),
    (env!("CARGO_BIN_EXE_uc_pingpong"), "-g 1 -n 200 -c -s 5000 -m 512"),
    (env!("CARGO_BIN_EXE_ud_pingpong"), "-g 0 -n 200 -c -s 1000"),
    (env!("CARGO_BIN_EXE_srq_pingpong"), "-g 0 -n 300 -c -q 4"),
];

pub(crate) const TESTS: [(&str, &str); 8] = [
    (env!("CARGO_BIN_EXE_send_bw"), "-n 300 -s 3000"),
    (env!("CARGO_BIN_EXE_send_lat"), "-n 200"),
    (env!("CARGO_BIN_EXE_write_bw"), "-n 300 -s 64 -l 10"),
    (env!("CARGO_BIN_EXE_write_lat"), "-n 200"),
    (env!("CARGO_BIN_EXE_read_bw"), "-n 200 -s 4096"),
    (env!("CARGO_BIN_EXE_read_lat"), "-n 100"),
    (env!("CARGO_BIN_EXE_atomic_bw"), "-n 200 -q 2"),
    (env!("CARGO_BIN_EXE_atomic_lat"), "-n 100"),
];
