//! l2fwd that sleeps while nothing comes, or pauses, on ports of the device model whose wires end in this test.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_tests::patience::patient;
use pollux_tests::program::Running;
use pollux_tests::thread;

const LIMIT: Duration = Duration::from_secs(20);
/// Of a core, at most, what an idle lcore takes.
const IDLE_SHARE: f64 = 0.02;
/// Longer than an lcore polls before it sleeps.
const PAUSE: Duration = Duration::from_millis(3);
/// Half of the packets take less. An lcore that no packet woke would sleep on, for 17 of its 20 ms.
const HALF: Duration = Duration::from_millis(10);

/// The far end of a port's wire.
struct Wire {
    socket: UnixDatagram,
    near: PathBuf,
    device: String,
}

impl Wire {
    /// Of the port with that number; `more` are keys of its device.
    fn new(folder: &std::path::Path, number: u32, more: &str) -> Self {
        let [near, far] = ["near", "far"].map(|end| folder.join(format!("{end}{number}")));
        let socket = UnixDatagram::bind(&far).expect("a socket");
        socket.set_read_timeout(Some(patient(Duration::from_secs(5)))).expect("a limit");
        let device = format!("mlx5_model{number},wire=unix:{}:{}{more}", near.display(), far.display());
        Self { socket, near, device }
    }

    fn send(&self, frame: &[u8]) {
        // It waits while the device's queue is full.
        let sent = self.socket.send_to(frame, &self.near);
        assert_eq!(sent.expect("the device is there"), frame.len());
    }

    fn receive(&self) -> Vec<u8> {
        let mut room = [0; 2048];
        let bytes = self.socket.recv(&mut room).unwrap_or_else(|why| panic!("no frame came: {why}"));
        room[..bytes].to_vec()
    }
}

/// A frame to nobody in particular that says which one it is: of UDP, from a port of its own.
fn frame(number: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(number.to_be_bytes());
    frame.extend([0, 9, 0, 26, 0, 0]);
    frame.resize(60, number as u8);
    frame
}

fn start(devices: &[&str], options: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_l2fwd"));
    command.args(["-l", "0"]);
    for device in devices {
        command.args(["--vdev", device]);
    }
    command.args(["--", "-P", "--no-mac-updating", "-T", "0", "--json"]).args(options);
    let mut running = Running::start(command);
    running.wait_for("forwarding");
    running
}

/// Frames go from one wire to the other, each after a pause: how long they took, sorted.
fn singles(from: &Wire, to: &Wire, count: u16, pause: Duration) -> Vec<Duration> {
    let mut times: Vec<Duration> = (0..count)
        .map(|number| {
            std::thread::sleep(pause);
            let begun = Instant::now();
            from.send(&frame(number));
            assert_eq!(to.receive(), frame(number), "frame {number} is the next");
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

/// Many frames at once after each pause: all arrive, in order.
fn bursts(from: &Wire, to: &Wire, count: u16, frames: u16) {
    for _ in 0..count {
        std::thread::sleep(PAUSE);
        (0..frames).for_each(|number| from.send(&frame(number)));
        for number in 0..frames {
            assert_eq!(to.receive(), frame(number));
        }
    }
}

/// The report, after an end by a signal.
fn ends_well(running: Running, frames: u64) -> serde_json::Value {
    let done = running.interrupt();
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr.join("\n"));
    let report = done.report();
    let ports = report["ports"].as_array().expect("ports");
    let sum = |what: &str| ports.iter().filter_map(|port| port[what].as_u64()).sum::<u64>();
    assert_eq!((sum("rx_packets"), sum("tx_packets")), (frames, frames), "{report}");
    assert!(ports.iter().all(|port| port["dropped"] == serde_json::json!({})), "{report}");
    report
}

/// Packets arrive whatever an idle lcore does, and the times until they do are printed.
#[test]
fn packets_pass_an_idle_forwarder_in_every_mode() {
    for mode in ["poll", "pause", "interrupt"] {
        let folder = tempfile::tempdir().expect("a folder");
        let wires = [0, 1].map(|number| Wire::new(folder.path(), number, ""));
        let running = start(&[&wires[0].device, &wires[1].device], &["--idle", mode]);
        let idle = thread::share(running.pid(), "lcore-", Duration::from_secs(2));
        let times = singles(&wires[0], &wires[1], 300, PAUSE);
        bursts(&wires[1], &wires[0], 50, 200);
        let at = |share: usize| times[times.len() * share / 100];
        println!("{mode}: idle {:.3} of a core, p50 {:?}, p99 {:?}", idle, at(50), at(99));
        let report = ends_well(running, 300 + 50 * 200);
        let busy = report["lcores"][0]["busy"].as_f64().expect("a share");
        assert!(busy < 0.5, "{mode}: {report}");
        if mode == "interrupt" {
            assert!(idle <= IDLE_SHARE, "an idle lcore takes {idle:.4} of a core");
            assert!(at(50) < patient(HALF), "half of the packets took {:?}", at(50));
        }
    }
}

#[test]
fn several_queues_wake_one_lcore() {
    let folder = tempfile::tempdir().expect("a folder");
    let wires = [0, 1].map(|number| Wire::new(folder.path(), number, ""));
    let running = start(&[&wires[0].device, &wires[1].device], &["--idle", "interrupt", "--rxq", "4"]);
    let times = singles(&wires[0], &wires[1], 200, PAUSE);
    let half = times[100];
    assert!(half < patient(HALF), "half of the packets took {half:?}");
    let idle = thread::share(running.pid(), "lcore-", Duration::from_secs(1));
    assert!(idle <= IDLE_SHARE, "{idle:.4} of a core");
    ends_well(running, 200);
}

/// A ring has no interrupt: its lcore looks at it every millisecond, and still wakes for the other port.
#[test]
fn a_port_without_interrupts_is_named_and_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let wire = Wire::new(folder.path(), 0, "");
    let mut running = start(&[&wire.device, "net_ring0"], &["--idle", "interrupt", "--idle-after", "0"]);
    running.wait_for("port 1 net_ring0 has no rx interrupt: an idle lcore polls it every 1 ms; --idle pause");
    let times = singles(&wire, &wire, 200, PAUSE);
    assert!(times[100] < patient(HALF), "{:?}", times[100]);
    let idle = thread::share(running.pid(), "lcore-", Duration::from_secs(1));
    assert!(idle < 0.1, "{idle:.4} of a core");
    ends_well(running, 400);
}

/// A device that is pulled out while its lcore sleeps, and a link that goes and comes back.
#[test]
fn what_happens_to_a_port_meanwhile_neither_keeps_the_lcore_busy_nor_asleep() {
    let folder = tempfile::tempdir().expect("a folder");
    let plans = ["", "", ",fault_plan=[flap:500ms/500ms]", ",fault_plan=[remove:1500ms]"];
    let wires: Vec<Wire> =
        plans.iter().zip(0..).map(|(plan, number)| Wire::new(folder.path(), number, plan)).collect();
    let devices: Vec<&str> = wires.iter().map(|wire| wire.device.as_str()).collect();
    let mut running = start(&devices, &["--idle", "interrupt"]);
    running.wait_for("port 2 mlx5_model2: link down");
    running.wait_for("port 2 mlx5_model2: link up");
    running.wait_for("port 3 mlx5_model3 disappeared");
    let idle = thread::share(running.pid(), "lcore-", Duration::from_secs(1));
    assert!(idle <= IDLE_SHARE, "{idle:.4} of a core");
    assert!(singles(&wires[0], &wires[1], 50, PAUSE)[25] < patient(HALF));
    wires[2].send(&frame(7));
    let begun = Instant::now();
    let done = running.interrupt();
    assert!(begun.elapsed() < LIMIT && done.status.success(), "{}", done.stderr.join("\n"));
    let report = done.report();
    assert_eq!(
        (report["ports"][0]["rx_packets"].as_u64(), report["ports"][1]["tx_packets"].as_u64()),
        (Some(50), Some(50)),
        "{report}"
    );
}

/// The end comes at once though nothing arrives: by the clock, and by a signal.
#[test]
fn a_sleeper_ends_with_the_time_or_a_signal() {
    let devices = ["mlx5_model0,wire=null", "mlx5_model1,wire=null"];
    let running = start(&devices, &["--idle", "interrupt", "--duration", "0.7"]);
    let report = running.finish(LIMIT).report();
    let seconds = report["seconds"].as_f64().expect("a time");
    assert!(seconds < patient(Duration::from_secs(2)).as_secs_f64(), "{report}");
    let busy = report["lcores"][0]["busy"].as_f64().expect("a share");
    assert!(busy < 0.01, "{report}");
    let running = start(&devices, &["--idle", "interrupt"]);
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    ends_well(running, 0);
    assert!(begun.elapsed() < patient(Duration::from_secs(5)), "{:?}", begun.elapsed());
}
