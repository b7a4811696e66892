//! Telemetry of a running l2fwd: as DPDK's own script reads it, of several processes, after a kill.

use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_tests::program::{Running, with_default_signals};
use pollux_tests::require::PYTHON;
use pollux_tests::telemetry::{has_script, script};
use serde_json::Value;
use tempfile::TempDir;

const KILL: i32 = 9;

/// l2fwd over two ports without devices, its sockets below `runtime`, when it forwards.
fn l2fwd(runtime: &Path, eal: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_l2fwd"));
    command.env("RUNTIME_DIRECTORY", runtime).args(["-l", "0", "--no-huge"]).args(eal);
    command.args(["--vdev", "net_null0", "--vdev", "net_null1", "--", "-T", "0"]);
    let mut running = Running::start(with_default_signals(&command));
    running.wait_for("forwarding on");
    running
}

fn runtime() -> (TempDir, PathBuf) {
    let base = tempfile::tempdir().expect("a directory");
    let sockets = base.path().join("dpdk/rte");
    (base, sockets)
}

fn sockets(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let mut names: Vec<String> =
        sockets.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn dpdks_script_reads_ports_pools_and_lcores() {
    if !has_script() {
        return;
    }
    let (base, _) = runtime();
    let running = l2fwd(base.path(), &[]);
    let first = script(base.path(), "0", &["/ethdev/stats,0", "/eal/lcore/usage"]);
    let answers = script(
        base.path(),
        "0",
        &[
            "/",
            "/info",
            "/help,/ethdev/stats",
            "/ethdev/list",
            "/ethdev/info,1",
            "/ethdev/stats,0",
            "/ethdev/xstats,0,hide_zero=true",
            "/ethdev/link_status,0",
            "/ethdev/rx_queue,0",
            "/ethdev/tx_queue,0,0",
            "/ethdev/stats,2",
            "/mempool/list",
            "/eal/app_params",
            "/eal/lcore/info,0",
            "/model/ledger",
        ],
    );
    let [commands, info, help, list, port, stats, xstats, link, rx, tx, none, pools, params, lcore, ledger] =
        <[Value; 15]>::try_from(answers).expect("as many as were asked");
    for command in
        ["/", "/help", "/info", "/eal/params", "/ring/info", "/ethdev/rss_info", "/eal/memzone_info"]
    {
        assert!(commands.as_array().expect("a list").contains(&command.into()), "{command} in {commands}");
    }
    assert_eq!(info["pid"], running.pid());
    assert!(help["/ethdev/stats"].is_string(), "{help}");
    assert_eq!(list, serde_json::json!([0, 1]));
    assert_eq!(
        (&port["name"], &port["port_id"], &port["dev_started"]),
        (&"net_null1".into(), &1.into(), &1.into())
    );
    let count =
        |value: &Value, name: &str| value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"));
    assert!(count(&stats, "ipackets") > count(&first[0], "ipackets"), "it counts on: {stats}");
    // The port is at work while it is asked: bytes that are read behind the packets belong to later bursts.
    assert_eq!(count(&stats, "ibytes") % 64, 0, "whole frames: {stats}");
    let later = script(base.path(), "0", &["/ethdev/stats,0"]);
    let between = 64 * count(&first[0], "ipackets")..=64 * count(&later[0], "ipackets");
    assert!(between.contains(&count(&stats, "ibytes")), "{between:?} of {stats}");
    assert!(count(&xstats, "rx_q0_packets") >= count(&stats, "ipackets"), "{xstats}");
    assert_eq!(xstats.get("rx_errors"), None, "zeros are hidden");
    assert_eq!(link["status"], "UP");
    assert_eq!((&rx["mempool_name"], &rx["queue_state"]), (&pools[0], &1.into()));
    assert!(count(&tx, "nb_desc") > 0 && tx["burst_mode"].is_string(), "{tx}");
    assert!(none.is_null());
    assert_eq!(params, serde_json::json!(["-T", "0"]));
    assert!(count(&lcore, "busy_cycles") > first[1]["busy_cycles"][0].as_u64().expect("busy"), "{lcore}");
    assert_eq!(ledger, serde_json::json!({}), "nobody counts for these ports");
    let pool = script(base.path(), "0", &[&format!("/mempool/info,{}", pools[0].as_str().expect("a name"))]);
    assert!(count(&pool[0], "size") > 0 && count(&pool[0], "mz_len") > 0, "{}", pool[0]);
    assert!(running.interrupt().status.success());
}

/// DPDK's exporter is newer than the DPDK that most machines have: `cargo xtask witness` has a root with it.
#[test]
fn dpdks_exporter_serves_what_ports_count() {
    const ROOT: &str = "POLLUX_DPDK_ROOT";
    let Some(root) = std::env::var_os(ROOT).map(PathBuf::from) else {
        println!("skipped: {ROOT} names no Debian root with DPDK's exporter");
        return;
    };
    let (base, directory) = runtime();
    let running = l2fwd(base.path(), &[]);
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its number");
    let mut exporter = Command::new(PYTHON);
    exporter.arg(root.join("usr/bin/dpdk-telemetry-exporter.py"));
    exporter.arg("-p").arg(root.join("usr/share/dpdk/telemetry-endpoints"));
    exporter
        .arg("-s")
        .arg(directory.join("dpdk_telemetry.v2"))
        .args(["-o", &format!("openmetrics://{port}")]);
    let mut exporter = exporter.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut page = String::new();
    while !page.contains("dpdk_memory_used_bytes ") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        page.clear();
        let Ok(mut socket) = std::net::TcpStream::connect(port) else { continue };
        let _asked = socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n");
        let _read = std::io::Read::read_to_string(&mut socket, &mut page);
    }
    let _ended = exporter.kill();
    let _status = exporter.wait();
    for line in [
        "dpdk_counters_rx_packets{port=\"net_null0\"} ",
        "dpdk_counters_tx_bytes{port=\"net_null1\"} ",
        "dpdk_cpu_busy_cycles{cpu=\"0\"",
        "dpdk_memory_total_bytes ",
    ] {
        let value = page
            .lines()
            .find_map(|found| found.strip_prefix(line))
            .unwrap_or_else(|| panic!("no {line}: {page}"));
        let value: f64 =
            value.split(' ').next_back().and_then(|number| number.parse().ok()).expect("a number");
        assert!(value > 0.0, "{line}{value}");
    }
    assert!(running.interrupt().status.success());
}

#[test]
fn two_processes_of_one_prefix_are_both_asked() {
    let (base, directory) = runtime();
    let (first, second) = (l2fwd(base.path(), &[]), l2fwd(base.path(), &[]));
    assert_eq!(
        sockets(&directory),
        ["dpdk_telemetry.v2", "dpdk_telemetry.v2:1", "pollux_capture", "pollux_capture:1"]
    );
    if has_script() {
        for (instance, running) in [("0", &first), ("1", &second)] {
            assert_eq!(script(base.path(), instance, &["/info"])[0]["pid"], running.pid());
        }
    }
    assert!(first.interrupt().status.success());
    assert_eq!(sockets(&directory), ["dpdk_telemetry.v2:1", "pollux_capture:1"], "each removes its own");
    assert!(second.interrupt().status.success());
    assert_eq!(sockets(&directory), [""; 0]);
}

#[test]
fn the_socket_of_a_killed_process_is_taken_over() {
    let (base, directory) = runtime();
    let killed = l2fwd(base.path(), &[]);
    killed.signal(KILL);
    assert!(!killed.finish(Duration::from_secs(10)).status.success());
    assert_eq!(sockets(&directory), ["dpdk_telemetry.v2", "pollux_capture"], "a kill leaves them");
    let next = l2fwd(base.path(), &[]);
    assert_eq!(sockets(&directory), ["dpdk_telemetry.v2", "pollux_capture"]);
    assert!(next.interrupt().status.success());
    assert_eq!(sockets(&directory), [""; 0]);
}

#[test]
fn no_telemetry_makes_no_socket_and_a_bad_directory_is_one_line() {
    let (base, directory) = runtime();
    let silent = l2fwd(base.path(), &["--no-telemetry"]);
    assert!(!directory.exists());
    assert!(silent.interrupt().status.success());
    let begun = Instant::now();
    let without = l2fwd(Path::new("/proc/1/nowhere"), &[]).interrupt();
    assert!(without.status.success(), "it forwards all the same");
    let said: Vec<&String> = without.stderr.iter().filter(|line| line.contains("no telemetry:")).collect();
    assert_eq!(said.len(), 1, "{:?}", without.stderr);
    assert!(said[0].contains("/proc/1/nowhere/dpdk") && said[0].contains("--no-telemetry"), "{}", said[0]);
    assert!(begun.elapsed() < Duration::from_secs(60));
}
