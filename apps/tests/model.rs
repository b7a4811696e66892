//! l2fwd on the ports of the device model: wires inside a process, between processes, into files; mistakes and ends.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pollux_tests::capture::{capture, frames};
use pollux_tests::program::{Finished, Running};
use pollux_tests::require::{Need, require};
use serde_json::Value;

const L2FWD: &str = env!("CARGO_BIN_EXE_l2fwd");
const LIMIT: Duration = Duration::from_secs(20);
const KILL: i32 = 9;

fn l2fwd(devices: &[&str], options: &[&str]) -> Command {
    let mut command = Command::new(L2FWD);
    command.args(["-l", "0"]);
    for device in devices {
        command.args(["--vdev", device]);
    }
    command.args(["--", "-T", "0", "--json"]).args(options);
    command
}

fn start(devices: &[&str], options: &[&str]) -> Running {
    let mut running = Running::start(l2fwd(devices, options));
    running.wait_for("forwarding");
    running
}

fn report(done: &Finished) -> Value {
    assert_eq!(done.status.code(), Some(0), "{}", done.stderr.join("\n"));
    done.report()
}

fn count(report: &Value, port: usize, what: &str) -> u64 {
    report["ports"][port][what].as_u64().unwrap_or_else(|| panic!("no {what} of port {port} in {report}"))
}

#[test]
fn frames_go_round_on_a_cable_and_none_is_lost() {
    for device in ["cx4lx", "cx6dx"] {
        let ends = [0, 1].map(|end| format!("mlx5_model{end},wire=cable:round,device={device}"));
        let options = ["-P", "--no-mac-updating", "--prime", "4", "--duration", "0.5"];
        let report = report(&Running::start(l2fwd(&[&ends[0], &ends[1]], &options)).finish(LIMIT));
        let (rx, tx) = (count(&report, 0, "rx_packets"), count(&report, 1, "tx_packets"));
        assert!(rx > 1_000, "{device}: {report}");
        // 4 bursts of 32 from each end are all that is under way.
        let primed = 2 * 4 * 32;
        let all = |what| count(&report, 0, what) + count(&report, 1, what);
        assert!(all("tx_packets").abs_diff(all("rx_packets")) <= primed, "{report}");
        assert!(tx > 0 && report["ports"][0]["dropped"] == serde_json::json!({}), "{report}");
    }
}

#[test]
fn the_ledger_is_in_the_report() {
    let done = Running::start(l2fwd(
        &["mlx5_model0,wire=source:64", "mlx5_model1,wire=null"],
        &["--duration", "0.3"],
    ))
    .finish(LIMIT);
    let report = report(&done);
    let ports = report["ledger"]["ports"].as_array().expect("both ports are counted");
    assert_eq!(ports.len(), 2);
    let (source, sink) = (&ports[0], &ports[1]);
    assert_eq!(source["name"], "mlx5_model0");
    // Received payload is 64 bytes a packet, sent payload as much, inline or not.
    let received = source["rx_packets"].as_u64().expect("a count");
    assert!(received >= count(&report, 0, "rx_packets") && received > 0, "{report}");
    assert_eq!(source["crossings"]["receive_payload"]["bytes"].as_u64(), Some(received * 64));
    assert!(
        sink["crossings"]["doorbell"]["transfers"].as_u64().is_some_and(|doorbells| doorbells > 0),
        "{report}"
    );
    assert!(
        sink["bytes_to_device"].as_u64() > sink["tx_packets"].as_u64().map(|packets| packets * 64),
        "{report}"
    );
}

#[test]
fn two_processes_are_joined_by_datagrams() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (a, b) = (path("a"), path("b"));
    let taker = start(&[&format!("mlx5_model0,wire=unix:{b}:{a}"), "mlx5_model1,wire=null"], &["-P"]);
    let giver = start(
        &["mlx5_model0,wire=source:128", &format!("mlx5_model1,wire=unix:{a}:{b}")],
        &["-P", "--duration", "1"],
    );
    let given = report(&giver.finish(LIMIT));
    // What still stands in the socket is taken within moments.
    std::thread::sleep(Duration::from_millis(300));
    let taken = report(&taker.interrupt());
    let (sent, got) = (count(&given, 1, "tx_packets"), count(&taken, 0, "rx_packets"));
    assert!(got > 1_000, "{taken}");
    // What the device had not sent yet when it was closed is the only difference.
    assert!(sent >= got && sent - got <= 4096, "{sent} sent, {got} received");
    assert_eq!(count(&taken, 0, "rx_bytes"), got * 128);
    assert_eq!(count(&taken, 1, "tx_packets"), got);
    assert!(!Path::new(&a).exists() && !Path::new(&b).exists(), "sockets go with their processes");
}

#[test]
fn sigkill_leaves_a_socket_and_the_next_one_takes_it_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("a");
    let device = format!("mlx5_model0,wire=unix:{}:{}", socket.display(), folder.path().join("b").display());
    let before = shared_memory();
    let running = start(&[&device, "mlx5_model1,wire=null"], &[]);
    running.signal(KILL);
    let done = running.finish(LIMIT);
    assert_eq!(done.status.code(), None);
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1, "the socket's inode: {left:?}");
    assert_eq!(shared_memory(), before, "nothing in /dev/shm");
    let again =
        Running::start(l2fwd(&[&device, "mlx5_model1,wire=null"], &["--duration", "0.1"])).finish(LIMIT);
    report(&again);
    assert!(!socket.exists());
}

/// How many files stand in /dev/shm under this project's name.
fn shared_memory() -> usize {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().contains("pollux")).count()
}

#[test]
fn a_file_goes_through_two_ports_unaltered() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, sink) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    let sent: Vec<Vec<u8>> = (0..100_u8).map(|n| (0..60 + n).map(|place| place ^ n).collect()).collect();
    std::fs::write(&source, capture(&sent)).expect("written");
    let devices = [
        format!("mlx5_model0,wire=pcap:{}:", source.display()),
        format!("mlx5_model1,wire=pcap::{}", sink.display()),
    ];
    let options = ["-P", "--no-mac-updating", "--duration", "0.5"];
    let report = report(&Running::start(l2fwd(&[&devices[0], &devices[1]], &options)).finish(LIMIT));
    assert_eq!((count(&report, 0, "rx_packets"), count(&report, 1, "tx_packets")), (100, 100));
    assert!(frames(&std::fs::read(&sink).expect("written")) == sent);
}

#[test]
fn a_signal_ends_it_in_order() {
    let running = start(&["mlx5_model0", "mlx5_model1"], &[]);
    std::thread::sleep(Duration::from_millis(200));
    let report = report(&running.interrupt());
    assert!(count(&report, 0, "rx_packets") > 0, "{report}");
}

#[test]
fn a_device_that_is_pulled_out_is_said_and_the_rest_goes_on() {
    let removed = "mlx5_model0,wire=source:64,fault_plan=[remove:20000]";
    let done =
        Running::start(l2fwd(&[removed, "mlx5_model1,wire=source:64"], &["--duration", "1.5"])).finish(LIMIT);
    let report = report(&done);
    let said = done.stderr.join("\n");
    assert!(said.contains("port 0 mlx5_model0 disappeared"), "{said}");
    assert!(said.contains("0 mlx5_model0 (gone)") && said.contains("port gone"), "{said}");
    assert!(count(&report, 0, "rx_packets") > 0, "{report}");
    let dropped: u64 = [0, 1]
        .iter()
        .filter_map(|port| report["ports"][*port]["dropped"].as_object())
        .flatten()
        // What was never received is none of it.
        .filter(|(reason, _)| !reason.starts_with("rx_"))
        .filter_map(|(_, count)| count.as_u64())
        .sum();
    let all = |what| count(&report, 0, what) + count(&report, 1, what);
    assert_eq!(all("rx_packets"), all("tx_packets") + dropped, "counters add up: {report}");
}

#[test]
fn a_link_that_is_down_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let [own, other] = ["own", "other"].map(|name| folder.path().join(name));
    let device = format!("mlx5_model0,wire=unix:{}:{}", own.display(), other.display());
    let done = Running::start(l2fwd(&[&device], &["--duration", "0.3"])).finish(LIMIT);
    let said = done.stderr.join("\n");
    assert!(said.contains("l2fwd: port 0 mlx5_model0: link down"), "{said}");
    assert_eq!(count(&report(&done), 0, "rx_packets"), 0);
}

#[test]
fn mistakes_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "no socket").expect("written");
    let file = file.display();
    for (devices, code, expected) in [
        (vec!["mlx5_model0,wire=wifi".to_owned()], 2, "wire=wifi: there is no such wire".to_owned()),
        (
            vec!["mlx5_model0,wires=null".to_owned()],
            2,
            "unknown key 'wires', did you mean 'wire'?".to_owned(),
        ),
        (
            vec!["mlx5_model0,device=cx9".to_owned()],
            2,
            "device=cx9: is not one of cx4lx, cx5, cx6dx, cx7".to_owned(),
        ),
        (
            vec!["mlx5_model0,wire=iface:nowhere0".to_owned()],
            1,
            "interface \"nowhere0\" does not exist".to_owned(),
        ),
        (
            ["0", "1", "2"].map(|end| format!("mlx5_model{end},wire=cable:three")).to_vec(),
            1,
            "cable 'three' has both its ends in use".to_owned(),
        ),
        (
            vec![format!("mlx5_model0,wire=unix:{file}:/nowhere")],
            1,
            "something that is no socket stands there".to_owned(),
        ),
        (
            vec![format!("mlx5_model0,wire=pcap:/nowhere/in.pcap:")],
            1,
            "cannot open /nowhere/in.pcap".to_owned(),
        ),
        (vec!["mlx5_model0,core=900".to_owned()], 2, "core=900: is not a CPU this process may use: choose one of ".to_owned()),
        (vec!["mlx5_model0,fault_plan=[refuse:0x102/1/0x04]".to_owned()], 1, "INIT_HCA".to_owned()),
        (
            vec!["mlx5_model0,fault_plan=[refuse:0x904/1/0x03/0x1234]".to_owned()],
            1,
            "cannot create a send queue: CREATE_SQ: BAD_PARAM_ERR (0x3), syndrome 0x1234".to_owned(),
        ),
        (
            vec!["mlx5_model0,fault_plan=[refuse:0x908/1/0x0f/0x1234]".to_owned()],
            1,
            "cannot create a receive queue: CREATE_RQ: NO_RES_ERR (0xf), syndrome 0x1234".to_owned(),
        ),
        (
            vec!["mlx5_model0,fault_plan=[memlock:3145728]".to_owned()],
            1,
            "KiB to come), the limit is 3072 KiB; `ulimit -l ".to_owned(),
        ),
        // What a kernel tells only its log, the model tells.
        (
            vec!["mlx5_model0,dv_flow_en=0,fault_plan=[refuse:0x904/1/0x03/0x1234]".to_owned()],
            1,
            "cannot create a send queue of 1024 blocks of 64 bytes: QP/CREATE: EINVAL (a value was not accepted); the firmware \
             said to CREATE_SQ: BAD_PARAM_ERR (0x3), syndrome 0x1234: "
                .to_owned(),
        ),
        (
            vec!["mlx5_model0,dv_flow_en=0,fault_plan=[refuse:0x908/2/0x0f/0x1234]".to_owned()],
            1,
            "WQ/CREATE: EAGAIN (the device, or the kernel, has none left for now); the firmware said to CREATE_RQ: NO_RES_ERR (0xf), syndrome 0x1234: ".to_owned(),
        ),
        (vec!["mlx5_model0,mprq=1".to_owned()], 2, "unknown key 'mprq'; allowed: wire, ".to_owned()),
    ] {
        let devices: Vec<&str> = devices.iter().map(String::as_str).collect();
        let done = Running::start(l2fwd(&devices, &["--duration", "0.1"])).finish(LIMIT);
        assert_eq!(done.messages().len(), 1, "{devices:?}: {}", done.stderr.join("\n"));
        assert!(done.messages()[0].contains(&expected), "{devices:?}: {}", done.messages()[0]);
        assert_eq!(done.status.code(), Some(code), "{devices:?}: {}", done.messages()[0]);
    }
}

#[test]
fn hardware_that_is_not_there_is_one_line() {
    for device in ["mlx5_999", "0000:ff:1f.7", "nonsense", "rocep255s31f7"] {
        let mut command = Command::new(L2FWD);
        command.args(["-l", "0", "-a", device, "--", "--duration", "0.1"]);
        let done = Running::start(command).finish(LIMIT);
        assert_eq!(done.status.code(), Some(1), "{}", done.stderr.join("\n"));
        assert_eq!(done.messages().len(), 1, "{}", done.stderr.join("\n"));
        assert!(done.messages()[0].contains("cannot find the device"), "{}", done.messages()[0]);
    }
}

#[test]
fn packets_are_split_and_parts_dropped_as_the_options_say() {
    let devices = ["mlx5_model0,wire=source:200", "mlx5_model1,wire=null"];
    for (options, bytes) in [
        (["--rxpkts", "64,0", "--mbuf-size", "256,2176"], 200),
        (["--rxpkts", "64,0", "--mbuf-size", "2176,0"], 64),
    ] {
        let options = [&["--duration", "0.3"][..], &options].concat();
        let report = report(&Running::start(l2fwd(&devices, &options)).finish(LIMIT));
        let sent = count(&report, 1, "tx_packets");
        assert!(sent > 100, "{report}");
        assert_eq!(count(&report, 1, "tx_bytes"), bytes * sent, "{report}");
    }
}

#[test]
fn joining_goes_on_beside_what_cannot_be_joined() {
    let devices = ["mlx5_model0,wire=source:200,lro_timeout_usec=32", "mlx5_model1,wire=null"];
    // Bytes that the device reads for a received packet: of its entry, above all.
    let entry = |options: &[&str]| {
        let options = [&["--duration", "0.3"], options].concat();
        let report = report(&Running::start(l2fwd(&devices, &options)).finish(LIMIT));
        assert!(count(&report, 1, "tx_packets") > 100, "{report}");
        let port = &report["ledger"]["ports"][0];
        let number = |what: &str| port[what].as_f64().unwrap_or_else(|| panic!("no {what} in {report}"));
        number("bytes_to_device") / number("rx_packets")
    };
    // Where packets are joined it has room for 64 KiB in pieces of 16 bytes each, which the device reads whole.
    let (single, joined) = (entry(&[]), entry(&["--enable-lro"]));
    assert!(joined > single + 256.0, "{single} without, {joined} with joining");
}

#[test]
fn ways_of_receiving_that_a_port_lacks_are_one_line() {
    for (device, options, problem) in [
        ("net_null0", &["--rxpkts", "64,0"][..], "BUFFER_SPLIT"),
        ("net_null0", &["--enable-lro"], "TCP_LRO"),
        ("mlx5_model0,dv_flow_en=0", &["--enable-lro"], "TCP_LRO"),
        ("mlx5_model0,device=cx4lx", &["--enable-lro"], "TCP_LRO"),
        ("mlx5_model0,has_null_key=0", &["--rxpkts", "64,0", "--mbuf-size", "2176,0"], "without a pool"),
        ("mlx5_model0", &["--mbuf-size", "256"], "--rxpkts"),
        ("mlx5_model0", &["--rxpkts", "64,0", "--mbuf-size", "64,0"], "headroom"),
    ] {
        let done = Running::start(l2fwd(&[device], options)).finish(LIMIT);
        assert!(matches!(done.status.code(), Some(1 | 2)), "{device}: {}", done.stderr.join("\n"));
        let line = done.messages()[0];
        assert!(done.messages().len() == 1 && line.contains(problem), "{device}: {}", done.stderr.join("\n"));
    }
}

#[test]
fn a_ring_out_of_range_is_one_line() {
    for (option, count, direction) in [("--rxd", "63", "rx"), ("--txd", "40000", "tx")] {
        let done = Running::start(l2fwd(&["mlx5_model0"], &[option, count])).finish(LIMIT);
        assert_eq!(done.status.code(), Some(2), "{}", done.stderr.join("\n"));
        let expected =
            format!("port mlx5_model0: {direction} descriptor count {count} is outside 64 to 32768");
        assert!(
            done.messages().len() == 1 && done.messages()[0].contains(&expected),
            "{}",
            done.stderr.join("\n")
        );
    }
}

/// What a line on too little locked memory says is needed, in KiB.
fn needed(said: &str) -> u64 {
    let before =
        said.split(" KiB of locked memory are needed").next().and_then(|start| start.rsplit(' ').next());
    before.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no sum in: {said}"))
}

#[test]
fn as_much_locked_memory_as_is_said_to_be_needed_is_enough() {
    for mode in
        ["dv_flow_en=1", "dv_flow_en=0", "mprq_en=1,rxqs_min_mprq=1", "cqe_size=128,txqs_min_inline=1"]
    {
        let run = |kib: u64| {
            let device = format!("mlx5_model0,{mode},memlock={}", kib << 10);
            Running::start(l2fwd(&[&device], &["--duration", "0.1"])).finish(LIMIT)
        };
        // Too little for the pool, and too little for a queue.
        let said = run(512);
        assert_eq!(
            (said.status.code(), said.messages().len()),
            (Some(1), 1),
            "{mode}: {}",
            said.stderr.join("\n")
        );
        let kib = needed(said.messages()[0]);
        report(&run(kib));
        let queue = run(kib / 10 * 9);
        assert_eq!(
            queue.status.code(),
            Some(1),
            "{mode}: {kib} KiB are too many: {}",
            queue.stderr.join("\n")
        );
        assert!(
            needed(queue.messages()[0]).abs_diff(kib) <= kib / 20,
            "{mode}: {kib}, then {}",
            queue.messages()[0]
        );
    }
}

#[test]
fn a_model_goes_by_the_limit_of_its_process_if_told_to() {
    // Others may not give up what they do not have.
    if !require(&[Need::Root]) {
        return;
    }
    let run = |memlock: &str, ports: usize, kib: u64| {
        let devices: Vec<String> =
            (0..ports).map(|end| format!("--vdev mlx5_model{end},memlock={memlock}")).collect();
        // Root is exempt by CAP_IPC_LOCK, as with a real device.
        let script = format!(
            "ulimit -S -l {kib} && exec setpriv --bounding-set -ipc_lock {L2FWD} -l 0 {} -- --rxd 64 --txd 64 -T 0 --json \
             --duration 0.1",
            devices.join(" ")
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]);
        Running::start(shell).finish(LIMIT)
    };
    report(&run("none", 2, 64));
    for kib in [0, 1024] {
        let done = run("process", 1, kib);
        assert_eq!((done.status.code(), done.messages().len()), (Some(1), 1), "{}", done.stderr.join("\n"));
        assert!(done.messages()[0].contains(&format!("the limit is {kib} KiB")), "{}", done.messages()[0]);
    }
    let one = needed(run("process", 1, 1024).messages()[0]);
    report(&run("process", 1, one));
    // Another device of the same process counts with it, its pool and its queues.
    let done = run("process", 2, one);
    assert_eq!((done.status.code(), done.messages().len()), (Some(1), 1), "{}", done.stderr.join("\n"));
    let two = needed(done.messages()[0]);
    assert!((one * 3 / 2..one * 4).contains(&two), "{one} KiB for one, for two {}", done.messages()[0]);
}

#[test]
fn what_leaves_into_a_link_that_is_down_is_dropped_and_not_sent() {
    /// Descriptors of a tx queue, where nobody says how many.
    const RING: u64 = 1024;
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let unix = format!("wire=unix:{}:{}", path("own"), path("peer"));
    let dark = require(&[Need::Net]).then(Dark::new);
    let mut wires = vec![
        unix.clone(),
        format!("{unix},txq_mpw_en=0"),
        format!("{unix},device=cx4lx,dv_flow_en=0"),
        "wire=cable:loose".to_owned(),
    ];
    wires.extend(dark.as_ref().map(|dark| format!("wire=iface:{}", dark.0)));
    for wire in wires {
        let device = format!("mlx5_model1,{wire}");
        let devices = ["mlx5_model0,wire=source:1000:20000", &device];
        let report = report(&Running::start(l2fwd(&devices, &["--duration", "1"])).finish(LIMIT));
        let (received, sent) = (count(&report, 0, "rx_packets"), count(&report, 1, "tx_packets"));
        let dropped = report["ports"][1]["dropped"]["tx_link_down"].as_u64().unwrap_or(0);
        // What is still in the ring when the report is made counts as sent: a whole ring of it where others use the machine.
        assert!(received > 2 * RING && sent <= RING && received - dropped <= RING, "{device}: {report}");
    }
}

/// An interface whose other end is down.
struct Dark(String);

impl Dark {
    fn new() -> Self {
        let (own, peer) = (format!("dark{}", std::process::id()), format!("lost{}", std::process::id()));
        for words in
            [&["link", "add", &own, "type", "veth", "peer", "name", &peer][..], &["link", "set", &own, "up"]]
        {
            assert!(Command::new("ip").args(words).status().expect("ip runs").success(), "{words:?}");
        }
        Self(own)
    }
}

impl Drop for Dark {
    fn drop(&mut self) {
        // With its other end.
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

#[test]
fn a_full_disk_under_a_wire_is_told_once_and_its_frames_are_not_sent() {
    if !require(&[Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mount = |words: &[&str]| {
        let done = Command::new(words[0]).args(&words[1..]).arg(folder.path()).status().expect("runs");
        assert!(done.success(), "{words:?}");
    };
    mount(&["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
    let file = folder.path().join("out.pcap");
    let wire = format!("mlx5_model1,wire=pcap::{}", file.display());
    // The disk is full after a thousand frames, which a busy machine takes a while for.
    let options = ["--duration", "3"];
    let done = Running::start(l2fwd(&["mlx5_model0,wire=source:1000:20000", &wire], &options)).finish(LIMIT);
    let written = std::fs::metadata(&file).map(|file| file.len());
    mount(&["umount"]);
    let told: Vec<_> =
        done.stderr.iter().filter(|line| line.contains("out.pcap") && line.contains("error")).collect();
    assert!(told.len() == 1 && told[0].contains("No space left on device"), "{:?}", done.stderr);
    let report = report(&done);
    let (received, sent) = (count(&report, 0, "rx_packets"), count(&report, 1, "tx_packets"));
    let dropped = report["ports"][1]["dropped"]["tx_refused"].as_u64().unwrap_or(0);
    assert!(sent + dropped <= received && received - sent - dropped <= 64, "{report}");
    // What the device had not taken from the ring at the end counts as sent, and was neither written nor refused.
    let taken = report["ledger"]["ports"][1]["tx_packets"].as_u64().unwrap_or(0);
    let left = (sent + dropped).saturating_sub(taken);
    assert!(left <= 1024, "{report}");
    // 1016 bytes in the file for each frame.
    assert!(sent <= written.expect("a file") / 1016 + left && dropped > 0 && received > 2_000, "{report}");
}
