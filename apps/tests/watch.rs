//! `--metrics` of a running l2fwd: as Prometheus scrapes it, as a browser shows it, and as nobody should use it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pollux_tests::capture::capture;
use pollux_tests::patience::patient;
use pollux_tests::program::{Running, with_default_signals};
use pollux_tests::require::{Need, require};
use serde_json::{Value, json};

const L2FWD: &str = env!("CARGO_BIN_EXE_l2fwd");
const LIMIT: Duration = Duration::from_secs(20);

/// l2fwd with a server on any free port, when it answers, and where.
fn watched(arguments: &[&str]) -> (Running, SocketAddr) {
    let mut command = Command::new(L2FWD);
    command.args(arguments).args(["-T", "0", "--json", "--metrics", "0"]);
    let mut running = Running::start(with_default_signals(&command));
    let line = running.wait_for("metrics and live page at http://127.0.0.1:");
    let address = line.rsplit("http://").next().and_then(|rest| rest.trim_end_matches('/').parse().ok());
    let address = address.unwrap_or_else(|| panic!("no address in {line}"));
    (running, address)
}

/// An HTTP answer.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect_timeout(&address, patient(LIMIT)).expect("connected");
    socket.set_read_timeout(Some(patient(LIMIT))).expect("set");
    socket
}

fn read(mut socket: impl Read) -> Answer {
    let mut bytes = Vec::new();
    let _reset = socket.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: body.into() }
}

fn ask(address: SocketAddr, request: &str) -> Answer {
    let mut socket = connect(address);
    let _refused = socket.write_all(request.as_bytes());
    read(socket)
}

fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// Series and their values.
type Series = BTreeMap<String, f64>;

/// Reads the text format strictly: each family is announced once, by help and type, and stands together; names, labels and values are
/// such; no series comes twice; counters are called so; buckets of histograms add up.
fn parse(text: &str) -> Series {
    let is_name = |name: &str| {
        let rest = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':');
        rest && !name.is_empty() && !name.as_bytes()[0].is_ascii_digit()
    };
    assert!(text.ends_with('\n'), "the last line ends");
    let (mut series, mut seen) = (Series::new(), BTreeSet::new());
    let (mut helped, mut family) = (String::new(), (String::new(), String::new()));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(seen.insert(name.to_owned()) && is_name(name) && !help.is_empty(), "{line}");
            helped = name.into();
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(name, helped, "{line}");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family = (name.into(), kind.into());
            continue;
        }
        let (key, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let value: f64 = value.parse().unwrap_or_else(|why| panic!("{why}: {line}"));
        let (name, labels) = key.split_once('{').unwrap_or((key, ""));
        let suffix = name.strip_prefix(&family.0).unwrap_or_else(|| panic!("{line} is not of {}", family.0));
        let suffixes: &[&str] = if family.1 == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix) && value >= 0.0, "{line}");
        if !labels.is_empty() {
            let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("{line}"));
            for label in labels.split("\",") {
                let (name, text) = label.split_once("=\"").unwrap_or_else(|| panic!("{label} in {line}"));
                assert!(is_name(name) && !text.trim_end_matches('"').contains('"'), "{line}");
            }
        }
        assert!(series.insert(key.into(), value).is_none(), "{key} comes twice");
    }
    series
}

/// What a family comes to.
fn sum(series: &Series, family: &str) -> f64 {
    series.iter().filter(|(key, _)| key.split('{').next() == Some(family)).map(|(_, value)| value).sum()
}

fn reported(report: &Value, count: &str) -> f64 {
    report["ports"].as_array().expect("ports").iter().map(|port| port[count].as_f64().expect(count)).sum()
}

/// Two models, with traffic, ledgers and two lcores' worth of everything.
const MODELS: [&str; 1] = ["--"];

#[test]
fn metrics_are_prometheus_and_agree_with_the_report() {
    let (running, address) = watched(&MODELS);
    let first = get(address, "/metrics");
    assert_eq!(first.status, 200);
    assert!(first.head.contains("content-type: text/plain; version=0.0.4"), "{}", first.head);
    let first = parse(&first.body);
    let busy = [
        r#"pollux_build_info{app="l2fwd",version="0.1.0"}"#,
        r#"pollux_port_link_up{port="0",name="mlx5_model0",driver="mlx5_pci"}"#,
        r#"pollux_port_rx_queue_packets_total{port="1",name="mlx5_model1",driver="mlx5_pci",queue="0"}"#,
        r#"pollux_pcie_transfers_total{port="0",name="mlx5_model0",driver="mlx5_pci",kind="doorbell"}"#,
        r#"pollux_lcore_busy_cycles_total{lcore="0"}"#,
    ];
    let deadline = Instant::now() + patient(LIMIT);
    let text = loop {
        let text = get(address, "/metrics").body;
        let series = parse(&text);
        if busy.iter().all(|key| series.get(*key).is_some_and(|value| *value > 0.0)) {
            break text;
        }
        assert!(Instant::now() < deadline, "{busy:?} in\n{text}");
    };
    let second = parse(&text);
    for (key, value) in &second {
        let earlier = first.get(key).copied().unwrap_or(0.0);
        assert!(!key.contains("_total") || *value >= earlier, "{key} fell from {earlier} to {value}");
    }
    assert!(sum(&second, "pollux_mempool_free_mbufs") < sum(&second, "pollux_mempool_mbufs"));
    if require(&[Need::Promtool]) {
        let mut checker = Command::new("promtool");
        checker
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = checker.spawn().expect("promtool");
        child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
        let said = child.wait_with_output().expect("its end");
        assert!(said.status.success() && said.stderr.is_empty(), "{}", String::from_utf8_lossy(&said.stderr));
    }
    let end = running.interrupt();
    assert!(end.status.success(), "{:?}", end.stderr);
    let report = end.report();
    for (metric, count) in
        [("rx_packets", "rx_packets"), ("tx_packets", "tx_packets"), ("rx_bytes", "rx_bytes")]
    {
        let scraped = sum(&second, &format!("pollux_port_{metric}_total"));
        assert!((1.0..=reported(&report, count)).contains(&scraped), "{metric} {scraped}: {report}");
    }
}

/// Traffic that ends: what is scraped then is what the report says, to the packet.
#[test]
fn metrics_json_and_report_are_the_same_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("in.pcap");
    std::fs::write(&file, capture(&vec![vec![7; 60]; 100])).expect("a file");
    let source = format!("net_pcap0,rx_pcap={}", file.display());
    let (running, address) =
        watched(&["-l", "0", "--no-huge", "--vdev", &source, "--vdev", "net_null1,no-rx=1", "--"]);
    let deadline = Instant::now() + patient(LIMIT);
    let counts = loop {
        let answer = get(address, "/api/counts");
        assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
        let counts: Value = serde_json::from_str(&answer.body).expect("JSON");
        if counts["total"]["ports"][1]["tx_packets"] == 100 {
            break counts;
        }
        assert!(Instant::now() < deadline, "{counts}");
    };
    assert_eq!(counts["app"], "l2fwd");
    std::thread::sleep(Duration::from_millis(150));
    let series = parse(&get(address, "/metrics").body);
    let report = running.interrupt().report();
    for (place, port) in report["ports"].as_array().expect("ports").iter().enumerate() {
        for count in ["rx_packets", "tx_packets", "rx_bytes", "tx_bytes"] {
            assert_eq!(counts["total"]["ports"][place][count], port[count], "{count} of {port}");
            let prefix = format!("pollux_port_{count}_total{{port=\"{place}\",");
            let scraped = series.iter().find(|(key, _)| key.starts_with(&prefix)).map(|(_, value)| *value);
            assert_eq!(scraped, port[count].as_f64(), "{prefix}");
        }
    }
    let lcore = &counts["total"]["lcores"][0];
    assert_eq!(
        (&lcore["packets"], series.get("pollux_lcore_packets_total{lcore=\"0\"}")),
        (&json!(100), Some(&100.0))
    );
    assert_eq!(counts["total"]["streams"][0]["packets"], 100);
}

/// The next event of a stream.
fn event(lines: &mut impl BufRead) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a line") > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str(data).expect("JSON");
        }
    }
}

fn events(address: SocketAddr) -> BufReader<TcpStream> {
    let mut socket = connect(address);
    write!(socket, "GET /api/events HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("written");
    let mut lines = BufReader::new(socket);
    let mut line = String::new();
    while line.trim_end() != "" || line.is_empty() {
        line.clear();
        assert!(lines.read_line(&mut line).expect("a head") > 0, "no head");
        assert!(!line.starts_with("content-type") || line.contains("text/event-stream"), "{line}");
    }
    lines
}

#[test]
fn events_come_each_second_and_end_with_the_program() {
    let (running, address) = watched(&MODELS);
    let mut stream = events(address);
    // The first comes at once, maybe just before the next.
    event(&mut stream);
    let samples: Vec<Value> = (0..4).map(|_| event(&mut stream)).collect();
    for pair in samples.windows(2) {
        let packets = |sample: &Value| sample["total"]["ports"][0]["rx_packets"].as_u64().expect("a count");
        assert!(packets(&pair[1]) > packets(&pair[0]), "{pair:?}");
        assert!(pair[1]["span"]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.5), "{pair:?}");
    }
    assert!(samples[3]["span"]["ports"][0]["rx_packets"].as_u64() > Some(0), "{}", samples[3]);
    assert!(running.interrupt().status.success());
    let mut rest = Vec::new();
    let _ended = stream.read_to_end(&mut rest);
}

/// Open descriptors and threads of a process.
fn held(running: &Running) -> (usize, usize) {
    let count = |folder: &str| {
        let folder = format!("/proc/{}/{folder}", running.pid());
        std::fs::read_dir(folder).expect("a process").count()
    };
    (count("fd"), count("task"))
}

#[test]
fn a_thousand_hostile_clients_harm_nobody() {
    let (running, address) =
        watched(&["-l", "0", "--no-huge", "--vdev", "net_null0", "--vdev", "net_null1", "--"]);
    let mut stream = events(address);
    let before = held(&running);
    let megabyte = format!("GET / HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("GET / HTTP/1.1\r\nHost: {address}\r\n{}\r\n", "A: b\r\n".repeat(10_000));
    let requests: [&[u8]; 10] = [
        b"",
        b"\xff\x00\x17garbage\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: 127.0",
        b"GET / HTTP/9.9\r\n\r\n",
        megabyte.as_bytes(),
        many.as_bytes(),
        // None of them reads what it asked for.
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nx",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n",
    ];
    for round in 0..4 {
        // All of a round are open at a time, and none of them reads.
        let hostile: Vec<TcpStream> = (0..250)
            .map(|number| {
                let mut socket = connect(address);
                socket.set_write_timeout(Some(Duration::from_millis(500))).expect("set");
                let _refused = socket.write_all(requests[number % requests.len()]);
                socket
            })
            .collect();
        let answer = get(address, "/metrics");
        assert_eq!(answer.status, 200, "round {round}: {}", answer.head);
        parse(&answer.body);
        event(&mut stream);
        drop(hostile);
    }
    let deadline = Instant::now() + patient(LIMIT);
    loop {
        let after = held(&running);
        if after.0 <= before.0 + 2 && after.1 <= before.1 {
            break;
        }
        assert!(Instant::now() < deadline, "descriptors and threads: {before:?}, then {after:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    event(&mut stream);
    let end = running.interrupt();
    assert!(end.status.success() && reported(&end.report(), "tx_packets") > 1_000.0, "{:?}", end.stderr);
    assert!(!end.stderr.iter().any(|line| line.contains("panicked")), "{:?}", end.stderr);
}

#[test]
fn requests_are_refused_with_a_reason() {
    let (running, address) = watched(&["-l", "0", "--no-huge", "--vdev", "net_null0", "--"]);
    let of_host = |host: &str| ask(address, &format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n")).status;
    assert_eq!((of_host("evil.example"), of_host("localhost:1")), (421, 200), "DNS rebinding");
    let without = ask(address, "GET /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(without.status, 200, "a client that is no browser");
    let post = ask(address, &format!("POST / HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\n\r\n"));
    assert!(post.status == 405 && post.head.contains("allow: get, head"), "{}", post.head);
    let lost = get(address, "/../../etc/passwd");
    assert!(lost.status == 404 && lost.body.contains("/metrics"), "{}", lost.body);
    let head = ask(address, &format!("HEAD /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    assert!(head.status == 200 && head.body.is_empty(), "{}", head.body);
    let long =
        ask(address, &format!("GET / HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n", "x".repeat(40_000)));
    assert!([0, 431].contains(&long.status), "{}", long.head);
    let page = get(address, "/");
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    for outside in ["http://", "https://", "//cdn"] {
        let allowed = page.body.matches("http://www.w3.org/2000/svg").count();
        let found = page.body.matches(outside).count();
        assert!(found == 0 || (outside == "http://" && found == allowed), "the page loads from {outside}");
    }
    let streams: Vec<_> = (0..32).map(|_| events(address)).collect();
    assert_eq!(get(address, "/api/events").status, 503);
    assert_eq!(get(address, "/metrics").status, 200);
    drop(streams);
    assert!(running.interrupt().status.success());
}

#[test]
fn a_request_that_does_not_end_is_given_up() {
    let (running, address) = watched(&["-l", "0", "--no-huge", "--vdev", "net_null0", "--"]);
    let mut half = connect(address);
    half.write_all(b"GET /metrics HTTP/1.1\r\nHost: local").expect("written");
    let begun = Instant::now();
    let mut rest = Vec::new();
    let _reset = half.read_to_end(&mut rest);
    assert!(rest.is_empty() && begun.elapsed() < patient(LIMIT), "still open after {:?}", begun.elapsed());
    assert!(running.interrupt().status.success());
}

#[test]
fn an_address_that_cannot_be_had_is_one_line_before_anything_is_opened() {
    let (running, address) = watched(&["-l", "0", "--no-huge", "--vdev", "net_null0", "--"]);
    let refused = |metrics: &str| {
        let done =
            Command::new(L2FWD).args(["-l", "0", "--vdev", "net_null0", "--", "--metrics", metrics]).output();
        let done = done.expect("l2fwd");
        assert_eq!(done.status.code(), Some(2), "{metrics}");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    };
    let taken = refused(&address.to_string());
    assert!(
        taken.contains(&format!("option '--metrics': {address} is in use by another program")),
        "{taken}"
    );
    let foreign = refused("192.0.2.1:9100");
    assert!(foreign.contains("is not an address of this machine: give 9100 alone"), "{foreign}");
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    let is_root = std::fs::metadata("/proc/self").expect("proc").uid() == 0;
    if !is_root && first.trim().parse::<u16>().is_ok_and(|first| first > 80) {
        let low = refused("80");
        assert!(low.contains("127.0.0.1:80 may not be opened: port 80 needs root"), "{low}");
    }
    for wrong in ["x", "70000", "127.0.0.1", "evil.example:1"] {
        let said = refused(wrong);
        assert!(said.contains("--metrics") && said.contains("such as 9100"), "{said}");
    }
    assert!(running.interrupt().status.success());
}

/// Where the screen is not drawn, there are tables.
#[test]
fn a_screen_that_cannot_be_drawn_is_a_table() {
    let mut command = Command::new(L2FWD);
    command.args(["-l", "0", "--no-huge", "--vdev", "net_null0", "--", "--screen", "--duration", "1.2"]);
    let end = Running::start(with_default_signals(&command)).finish(LIMIT);
    assert!(end.status.success() && end.stdout.starts_with("l2fwd after 1.0 s"), "{}", end.stdout);
    assert!(!end.stdout.contains('\x1b'), "{:?}", end.stdout);
}

#[test]
fn the_screen_ends_by_signals_and_keys_and_the_report_follows() {
    use pollux_tests::terminal::OnTerminal;
    const INTERRUPT: &[u8] = b"\x03";
    const TERMINATE: i32 = 15;
    for end in ["Ctrl-C", "SIGTERM", "q", "duration"] {
        let mut command = Command::new(L2FWD);
        command.env("TERM", "xterm-256color").args(["-l", "0", "--no-huge"]);
        command.args(["--vdev", "net_null0", "--vdev", "net_null1", "--", "--screen"]);
        if end == "duration" {
            command.args(["--duration", "1.5"]);
        }
        let mut running = OnTerminal::start(&command, 80, 24);
        let modes = running.modes();
        running.wait_for("\x1b[?1049h");
        running.wait_for("net_null1");
        match end {
            "Ctrl-C" => running.keys(INTERRUPT),
            "SIGTERM" => running.signal(TERMINATE),
            "q" => running.keys(b"q"),
            _ => {}
        }
        let status = running.end();
        let sent = running.sent();
        assert!(status.success(), "{end}: {status} {sent:?}");
        let (_, after) = sent.rsplit_once("\x1b[?1049l").unwrap_or_else(|| panic!("{end}: {sent:?}"));
        assert!(after.contains("\x1b[?25h") && after.contains("l2fwd after"), "{end}: {after:?}");
        assert_eq!(running.modes(), modes, "{end}");
    }
}
