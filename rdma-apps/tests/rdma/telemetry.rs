//! What telemetry tells of an RDMA program at work: its queues, its memory, its counters, and no key.

use std::path::Path;
use std::time::{Duration, Instant};

use pollux_explain::{Live, Process, Told, Watch};
use pollux_tests::patience::patient;
use pollux_tests::program::{Running, with_default_signals};
use pollux_tests::telemetry::{Client, has_script, script};
use serde_json::{Value, json};

use super::place::{LIMIT, Place, SIGINT};

const DEVICE: &str = "mlx5_model0";

/// An end that runs until it is stopped, its telemetry below a folder of its own name.
fn end(place: &Place, program: &str, ends: [&str; 2], keys: &str, options: &[&str]) -> Running {
    let mut command = place.command(program, ends, keys);
    let runtime = runtime(place, ends[0]);
    std::fs::create_dir(&runtime).expect("a folder");
    command.env("RUNTIME_DIRECTORY", runtime).args(options);
    Running::start(with_default_signals(&command))
}

/// A client of an end, once that has its socket.
fn client_of(place: &Place, end: &str) -> Client {
    let socket = runtime(place, end).join("dpdk/rte/dpdk_telemetry.v2");
    let limit = Instant::now() + patient(Duration::from_secs(20));
    while !socket.exists() {
        assert!(Instant::now() < limit, "no {}", socket.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    Client::new(&socket)
}

fn runtime(place: &Place, end: &str) -> std::path::PathBuf {
    place.folder.path().join(format!("run-{end}"))
}

/// Asks until the answer is as it should be: ends connect and work in their own time.
fn until(client: &Client, command: &str, done: impl Fn(&Value) -> bool) -> Value {
    let limit = Instant::now() + patient(Duration::from_secs(30));
    loop {
        let answer = client.ask(command);
        if done(&answer) {
            return answer;
        }
        assert!(Instant::now() < limit, "{command}: {answer}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Stops both; whoever of them hears of the other's end first may say so.
fn stop(ends: [Running; 2]) {
    ends.iter().for_each(|end| end.signal(SIGINT));
    for end in ends {
        let end = end.finish(LIMIT);
        assert!(end.status.code().is_some(), "{}", end.stderr.join("\n"));
    }
}

fn count(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

#[test]
fn a_bandwidth_test_tells_its_queues_its_memory_and_its_counters() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_send_bw");
    let options = ["--run_infinitely", "-D", "1", "-s", "3000", "-q", "2"];
    let mut server = end(&place, program, ["a", "b"], "", &options);
    server.wait_for("Waiting for client");
    let client = end(&place, program, ["b", "a"], "", &[&options[..], &["127.0.0.1"]].concat());
    let (here, there) = (client_of(&place, "a"), client_of(&place, "b"));
    let stats = format!("/rdma/stats,{DEVICE}");
    until(&here, &stats, |stats| stats["receives_completed"].as_u64() > Some(100));
    until(&there, &stats, |stats| stats["sends_posted"].as_u64() > Some(100));
    assert_eq!(here.ask("/rdma/list"), json!([DEVICE]));
    // Each end's queue pairs know those of the other end.
    let pairs = |client: &Client| -> Vec<Value> {
        let numbers = client.ask(&format!("/rdma/qp_list,{DEVICE}"));
        let numbers = numbers.as_array().expect("a list").clone();
        assert_eq!(numbers.len(), 2);
        numbers.iter().map(|number| client.ask(&format!("/rdma/qp,{DEVICE},{number}"))).collect()
    };
    let (receivers, senders) = (pairs(&here), pairs(&there));
    for (receiver, sender) in receivers.iter().zip(&senders) {
        assert_eq!((&receiver["type"], &receiver["state"]), (&json!("RC"), &json!("RTS")), "{receiver}");
        assert_eq!((&receiver["lqpn"], &sender["lqpn"]), (&sender["rqpn"], &receiver["rqpn"]));
        assert!(count(sender, "sq_posted") > 0 && count(sender, "sq_used") <= count(sender, "sq_places"));
        assert!(count(receiver, "rq_used") <= count(receiver, "rq_depth"), "{receiver}");
        assert!(count(receiver, "rq_completed") <= count(receiver, "rq_posted"), "{receiver}");
        assert_eq!(receiver["errors"], json!({}));
        // As perftest prints numbers.
        let hexadecimal = format!("/rdma/qp,{DEVICE},0x{:06x}", count(receiver, "lqpn"));
        assert_eq!(here.ask(&hexadecimal)["lqpn"], receiver["lqpn"]);
    }
    let queues = here.ask(&format!("/rdma/cq_list,{DEVICE}"));
    let queue = here.ask(&format!("/rdma/cq,{DEVICE},{}", queues[0]));
    assert!(count(&queue, "cqe") > 0 && count(&queue, "used") <= count(&queue, "cqe"), "{queue}");
    assert_eq!((&queue["armed"], &queue["comp_channel"]), (&json!("no"), &json!(false)), "{queue}");
    let info = here.ask(&format!("/rdma/info,{DEVICE}"));
    let regions = here.ask(&format!("/rdma/mr_list,{DEVICE}"));
    let regions = regions.as_array().expect("a list");
    assert_eq!(count(&info, "mr"), regions.len() as u64, "{info}");
    assert!(count(&info, "mr_bytes") >= 3000, "{info}");
    let region = here.ask(&format!("/rdma/mr,{DEVICE},{}", regions[0]));
    assert!(region["access"].as_array().expect("rights").contains(&json!("local_write")), "{region}");
    let keys: Vec<&String> = region.as_object().expect("a region").keys().collect();
    assert!(!keys.iter().any(|key| key.contains("key")), "a key lets others in: {keys:?}");
    for nothing in [
        "/rdma/qp",
        "/rdma/qp,none,1",
        "/rdma/qp,mlx5_model0,x",
        "/rdma/mr,mlx5_model0,99999",
        "/rdma/stats,",
    ] {
        assert_eq!(here.ask(nothing), Value::Null, "{nothing}");
    }
    if has_script() {
        let answers = script(&runtime(&place, "a"), "0", &["/rdma/list", &stats, "/help,/rdma/qp"]);
        assert_eq!(answers[0], json!([DEVICE]));
        assert!(count(&answers[1], "receives_completed") > 100, "{}", answers[1]);
        assert!(answers[2].to_string().contains("queue pair"), "{}", answers[2]);
    }
    stop([client, server]);
    assert!(!Path::new(&runtime(&place, "a").join("dpdk/rte/dpdk_telemetry.v2")).exists());
}

/// `explain --pid`: what the process has, and what it does while somebody watches.
#[test]
fn a_process_at_work_is_explained() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_write_bw");
    let options = ["--run_infinitely", "-D", "1", "-s", "2000"];
    let mut server = end(&place, program, ["a", "b"], "", &options);
    server.wait_for("Waiting for client");
    let client = end(&place, program, ["b", "a"], "", &[&options[..], &["127.0.0.1"]].concat());
    let there = client_of(&place, "b");
    until(&there, &format!("/rdma/stats,{DEVICE}"), |stats| stats["sends_posted"].as_u64() > Some(100));
    let process = Process::read(Path::new("/"), client.pid()).expect("it runs");
    let socket = runtime(&place, "b").join("dpdk/rte/dpdk_telemetry.v2");
    assert_eq!(process.telemetry(), Some(&*socket), "{}", process.text());
    assert!(process.text().contains("write_bw") && !process.has_device(), "{}", process.text());
    assert!(Told::connect(&socket, server.pid()).is_err(), "that is another process");
    let told = Told::connect(&socket, client.pid()).expect("it answers");
    let text = told.text().expect("it answers");
    for part in [
        &format!("RDMA device {DEVICE}: "),
        "type=RC state=RTS ",
        "\n  cq 0x",
        "\n  mr 0x",
        "which is a model",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let mut live = Live::begin(told, true, true).expect("it writes");
    let path = live.paths().next().expect("a file").to_owned();
    assert_eq!(there.ask("/uverbs/trace"), json!({ DEVICE: true }));
    let (mut said, limit) = (String::new(), Instant::now() + patient(Duration::from_secs(20)));
    while !(said.contains("post_send, fast path") && said.contains("poll_cq, fast path")) {
        said += &live.more().expect("a trace").unwrap_or_default();
        assert!(Instant::now() < limit && said.len() < 1 << 26, "{said}");
    }
    live.end();
    assert!(live.summary().contains("in all: "), "{}", live.summary());
    assert!(!path.exists());
    assert_eq!(there.ask("/uverbs/trace"), json!({ DEVICE: false }));
    for nothing in
        ["/uverbs/trace,none,on", "/uverbs/trace,mlx5_model0,x", "/uverbs/trace,,", "/uverbs/trace,on"]
    {
        assert_eq!(there.ask(nothing), Value::Null, "{nothing}");
    }
    stop([client, server]);
}

/// A lossy wire: retries show in the counters of the device, as the kernel names them.
#[test]
fn what_is_lost_on_the_wire_shows_in_the_devices_counters() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_write_bw");
    let options = ["--run_infinitely", "-D", "1", "-s", "2000"];
    let mut server = end(&place, program, ["a", "b"], ",loss=0.02,seed=5", &options);
    server.wait_for("Waiting for client");
    let client =
        end(&place, program, ["b", "a"], ",loss=0.02,seed=6", &[&options[..], &["127.0.0.1"]].concat());
    let there = client_of(&place, "b");
    let stats = until(&there, &format!("/rdma/stats,{DEVICE}"), |stats| {
        let counters = &stats["hw_counters"];
        counters["local_ack_timeout_err"].as_u64() > Some(0) || counters["packet_seq_err"].as_u64() > Some(0)
    });
    assert!(stats["hw_counters"]["rnr_nak_retry_err"].is_u64(), "{stats}");
    assert_eq!(there.ask(&format!("/rdma/stats,{DEVICE},2")).get("hw_counters"), None, "it has one port");
    stop([client, server]);
}

/// A pingpong by events arms its queue; a shared receive queue holds what none of its queue pairs does.
#[test]
fn events_and_shared_receive_queues_are_told() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_srq_pingpong");
    let options = ["-g", "0", "-n", "100000000", "-q", "3", "-e"];
    let mut server = end(&place, program, ["a", "b"], "", &options);
    server.wait_for("local address");
    let client = end(&place, program, ["b", "a"], "", &[&options[..], &["127.0.0.1"]].concat());
    let here = client_of(&place, "a");
    let shared = until(&here, &format!("/rdma/srq_list,{DEVICE}"), |list| list.get(0).is_some())[0].clone();
    let queue = until(&here, &format!("/rdma/srq,{DEVICE},{shared}"), |queue| {
        queue["completed"].as_u64() > Some(10) && queue["used"].as_u64() > Some(0)
    });
    assert!(count(&queue, "used") <= count(&queue, "depth"), "{queue}");
    let pair = here.ask(&format!("/rdma/qp_list,{DEVICE}"))[0].clone();
    let pair = here.ask(&format!("/rdma/qp,{DEVICE},{pair}"));
    assert_eq!(pair.get("rq_depth"), None, "it receives through the shared queue: {pair}");
    let number = here.ask(&format!("/rdma/cq_list,{DEVICE}"))[0].clone();
    let number = format!("/rdma/cq,{DEVICE},{number}");
    until(&here, &number, |queue| queue["armed"] == "next" && queue["comp_channel"] == true);
    stop([client, server]);
}
