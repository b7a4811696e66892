//! `--metrics` and `--screen` of testpmd: latency as a histogram, and counts that go on when forwarding is started again.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pollux_tests::capture;
use pollux_tests::patience::patient;

const TESTPMD: &str = env!("CARGO_BIN_EXE_testpmd");

/// A testpmd at its prompt, and where it is watched.
struct Watched {
    child: Child,
    address: SocketAddr,
}

impl Watched {
    fn start(devices: &[&str]) -> Self {
        let mut command = Command::new(TESTPMD);
        command.args(["-l", "0", "--no-huge"]).args(devices);
        command.args(["--", "-i", "--no-flush-rx", "--json", "--metrics", "0"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("testpmd");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let address = lines.find_map(|line| {
            line.expect("a line").split_once("live page at http://")?.1.trim_end_matches('/').parse().ok()
        });
        // What is said later is read, too: a pipe that is full would stop the program.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, address: address.expect("an address") }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().expect("a pipe"), "{line}").expect("written");
    }

    fn scrape(&self) -> BTreeMap<String, f64> {
        let mut socket = TcpStream::connect(self.address).expect("connected");
        socket.set_read_timeout(Some(patient(Duration::from_secs(20)))).expect("set");
        write!(socket, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("written");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("an answer");
        let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
        lines.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?))).collect()
    }

    /// Scrapes until what was scraped is as it should be.
    fn until(&self, done: impl Fn(&BTreeMap<String, f64>) -> bool) -> BTreeMap<String, f64> {
        let deadline = Instant::now() + patient(Duration::from_secs(20));
        loop {
            let series = self.scrape();
            if done(&series) {
                return series;
            }
            assert!(Instant::now() < deadline, "{series:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Its report.
    fn quit(mut self) -> serde_json::Value {
        self.line("quit");
        let mut text = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("its output");
        assert!(self.child.wait().expect("its end").success());
        serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON")
    }
}

const LATENCY: &str = "pollux_stream_latency_seconds";
const STREAM: &str = r#"rx_port="0",tx_port="1",queue="0",lcore="0""#;

#[test]
fn each_packets_latency_is_in_the_histogram() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("in.pcap");
    std::fs::write(&file, capture::capture(&vec![vec![7; 60]; 100])).expect("a file");
    let source = format!("net_pcap0,rx_pcap={}", file.display());
    let mut watched = Watched::start(&["--vdev", &source, "--vdev", "net_null1,no-rx=1"]);
    assert!(!watched.scrape().keys().any(|key| key.starts_with(LATENCY)), "nothing is forwarded yet");
    watched.line("start");
    let count = format!("{LATENCY}_count{{{STREAM}}}");
    let series = watched.until(|series| series.get(&count) == Some(&100.0));
    let buckets: Vec<f64> = series
        .iter()
        .filter(|(key, _)| key.starts_with(&format!("{LATENCY}_bucket{{{STREAM}")))
        .map(|(_, packets)| *packets)
        .collect();
    assert!(
        buckets.len() > 10 && buckets.iter().all(|packets| (0.0..=100.0).contains(packets)),
        "{buckets:?}"
    );
    assert_eq!(series[&format!("{LATENCY}_bucket{{{STREAM},le=\"+Inf\"}}")], 100.0);
    assert!(series[&format!("{LATENCY}_sum{{{STREAM}}}")] > 0.0);
    assert_eq!(series["pollux_lcore_packets_total{lcore=\"0\"}"], 100.0);
    let report = watched.quit();
    assert_eq!(
        (&report["streams"][0]["tx_packets"], &report["ports"][1]["tx_packets"]),
        (&100.into(), &100.into())
    );
    assert_eq!(report["lcores"][0]["ports"], serde_json::json!([0, 1]), "{report}");
}

#[test]
fn counts_go_on_when_forwarding_starts_again() {
    let mut watched = Watched::start(&["--vdev", "net_null0", "--vdev", "net_null1"]);
    let packets = "pollux_lcore_packets_total{lcore=\"0\"}";
    let mut before = 0.0;
    for _ in 0..3 {
        watched.line("start");
        let series = watched.until(|series| series.get(packets).is_some_and(|now| *now > before));
        before = series[packets];
        watched.line("stop");
        // The next streams begin at nothing by themselves.
        watched.line("clear fwd stats all");
    }
    assert!(watched.scrape()[packets] >= before);
    watched.quit();
}

/// A device that is attached under the number of one that was detached begins at nothing; its lcore goes on.
#[test]
fn an_attached_device_inherits_no_counts() {
    let mut watched = Watched::start(&["--vdev", "net_null0", "--vdev", "mlx5_model0,wire=null"]);
    let port = r#"port="1",name="mlx5_model0",driver="mlx5_pci""#;
    let dropped = format!("pollux_port_dropped_packets_total{{{port},reason=\"tx_full\"}}");
    let sent = format!("pollux_port_tx_packets_total{{{port}}}");
    let latency = format!("{LATENCY}_count{{{STREAM}}}");
    let packets = "pollux_lcore_packets_total{lcore=\"0\"}";
    watched.line("start");
    watched.until(|series| series.get(&sent).is_some_and(|sent| *sent > 0.0));
    watched.line("port 1 txq 0 stop");
    let before = watched.until(|series| series.get(&dropped).is_some_and(|packets| *packets > 0.0));
    for line in ["stop", "port stop 1", "port detach 1"] {
        watched.line(line);
    }
    watched.until(|series| !series.contains_key(&sent));
    watched.line("port attach mlx5_model0,wire=null");
    let series = watched.until(|series| series.contains_key(&sent));
    assert_eq!((series.get(&dropped), series.get(&latency), series[&sent]), (None, None, 0.0), "{series:?}");
    assert!(series[packets] >= before[packets]);
    watched.quit();
}

#[test]
fn the_screen_and_the_prompt_cannot_share_a_terminal() {
    let refused = Command::new(TESTPMD).args(["-l", "0", "--", "-i", "--screen"]).output().expect("testpmd");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.contains("option '--screen': cannot be combined with -i"), "{said}");
}
