//! What telemetry tells of a testpmd while commands change its ports.

use std::path::Path;

use pollux_explain::{Live, Process, Told, Watch};
use pollux_tests::telemetry::Client;
use serde_json::{Value, json};

use crate::typist::{Typist, testpmd};

/// A session whose sockets are below `runtime`.
fn start(runtime: &Path, eal: &[&str]) -> Typist {
    let nulls = ["-l", "0", "--vdev", "net_null0", "--vdev", "net_null1"];
    let mut command = testpmd(&[eal, &nulls[..]].concat(), &["-i"]);
    command.env("RUNTIME_DIRECTORY", runtime);
    Typist::of(command)
}

#[test]
fn ports_are_told_as_commands_leave_them() {
    let base = tempfile::tempdir().expect("a folder");
    let mut testpmd = start(base.path(), &["--file-prefix", "told"]);
    let client = Client::new(&base.path().join("dpdk/told/dpdk_telemetry.v2"));
    assert_eq!(client.ask("/ethdev/list"), json!([0, 1]));
    let info = |port: u16| client.ask(&format!("/ethdev/info,{port}"));
    let is = |port: u16, name: &str, wanted: u64| {
        let info = info(port);
        assert_eq!(info[name], wanted, "{name} of {info}");
    };
    is(0, "dev_started", 1);
    is(0, "nb_rx_queues", 1);
    // One lcore: it forwards by itself, and is asked meanwhile.
    testpmd.line("start");
    let packets = || client.ask("/ethdev/stats,0")["ipackets"].as_u64().expect("a count");
    let first = packets();
    assert!((0..100_000).any(|_| packets() > first), "it counts on");
    testpmd.line("stop");
    testpmd.line("port stop all");
    is(0, "dev_started", 0);
    testpmd.line("port config all rxq 2");
    testpmd.line("port config all txq 2");
    testpmd.line("port config mtu 1 3000");
    testpmd.line("port start all");
    is(0, "dev_started", 1);
    is(0, "nb_rx_queues", 2);
    is(1, "mtu", 3000);
    assert!(client.ask("/ethdev/rx_queue,0,1")["mempool_name"].is_string());
    let pools = client.ask("/mempool/list");
    assert!(!pools.as_array().expect("a list").is_empty(), "{pools}");
    testpmd.line("port stop 1");
    testpmd.line("port close 1");
    assert_eq!(client.ask("/ethdev/stats,1"), Value::Null);
    assert_eq!(client.ask("/ethdev/list"), json!([0]));
    assert!(client.ask("/ethdev/stats,0")["ipackets"].is_u64(), "the other one is there");
    testpmd.quit();
    assert_eq!(std::fs::read_dir(base.path().join("dpdk/told")).expect("a folder").count(), 0);
}

/// `explain --pid PID --follow`: calls from the moment on at which somebody watches.
#[test]
fn calls_are_told_while_somebody_watches() {
    let base = tempfile::tempdir().expect("a folder");
    let eal = ["--no-huge", "-l", "0", "--vdev", "mlx5_model0,wire=null", "--vdev", "mlx5_model1,wire=null"];
    let mut command = testpmd(&eal[1..], &["-i"]);
    command.env("RUNTIME_DIRECTORY", base.path()).env_remove("POLLUX_UVERBS_TRACE");
    let mut testpmd = Typist::of(command);
    let process = Process::read(Path::new("/"), testpmd.child.id()).expect("it runs");
    let socket = process.telemetry().expect("it answers").to_owned();
    assert_eq!(socket, base.path().join("dpdk/rte/dpdk_telemetry.v2"));
    let told = Told::connect(&socket, testpmd.child.id()).expect("it answers");
    let text = told.text().expect("it answers");
    assert!(text.contains("port 0: mlx5_model0\n") && text.contains("  rx queue 0: "), "{text}");
    let mut live = Live::begin(told, true, false).expect("it writes");
    assert_eq!(live.paths().count(), 2);
    assert_eq!(live.more().expect("traces"), None, "nothing is asked meanwhile");
    for line in ["port stop 0", "port config all rxd 256", "port stop 1", "port start all"] {
        testpmd.line(line);
    }
    live.end();
    let said: String = std::iter::from_fn(|| live.more().expect("traces")).collect();
    for part in ["device mlx5_model0\n", "device mlx5_model1\n", "/CREATE, ioctl method -> ok"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(!said.contains("not a line"), "{said}");
    drop(live);
    testpmd.line("port stop all");
    testpmd.quit();
    assert_eq!(std::fs::read_dir(base.path().join("dpdk/rte")).expect("a folder").count(), 0);
}

#[test]
fn a_client_that_asks_all_the_time_disturbs_no_command() {
    let base = tempfile::tempdir().expect("a folder");
    let mut testpmd = start(base.path(), &[]);
    let client = Client::new(&base.path().join("dpdk/rte/dpdk_telemetry.v2"));
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            let mut asked = 0_u64;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                for command in [
                    "/ethdev/list",
                    "/ethdev/info,0",
                    "/ethdev/xstats,0",
                    "/ethdev/rss_info,1",
                    "/mempool/list",
                ] {
                    let _answer = client.ask(command);
                    asked += 1;
                }
            }
            asked
        });
        for _ in 0..20 {
            for line in ["start", "stop", "port stop all", "port reset 0", "port start all"] {
                let said = testpmd.line(line);
                assert!(!said.to_lowercase().contains("error") && !said.contains("fail"), "{line}: {said}");
            }
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(asks.join().expect("it asks") > 0);
    });
    testpmd.quit();
}
