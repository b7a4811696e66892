//! A client that says what is sent, and when.

use std::os::fd::OwnedFd;
use std::process::Command;
use std::time::{Duration, Instant};

use pollux_tests::patience::patient;
use pollux_tests::program::{Running, with_default_signals};
use pollux_tests::telemetry::connect;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{LIMIT, PKTGEN, count, number, refused};

struct Session {
    running: Running,
    client: OwnedFd,
    base: TempDir,
}

impl Session {
    fn start(args: &[&str]) -> Self {
        let base = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(PKTGEN);
        command.env("RUNTIME_DIRECTORY", base.path()).args([
            "-l",
            "0",
            "--no-huge",
            "--vdev",
            "net_ring0",
            "--",
        ]);
        command.args(["--rpc", "--json"]).args(args);
        let mut running = Running::start(with_default_signals(&command));
        running.wait_for("waiting for commands at");
        let client = connect(&base.path().join("dpdk/rte/pollux_pktgen"));
        Self { running, client, base }
    }

    fn exchange(&self, message: &str) -> Value {
        send(&self.client, message.as_bytes(), SendFlags::NOSIGNAL).expect("sent");
        let mut answer = vec![0; 1 << 18];
        let (_, bytes) = recv(&self.client, &mut answer, RecvFlags::empty()).expect("an answer");
        serde_json::from_slice(&answer[..bytes]).expect("JSON")
    }

    fn ask(&self, method: &str, params: Value) -> Result<Value, String> {
        let answer = self
            .exchange(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string());
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer}");
        match answer.get("error") {
            Some(error) => Err(error["message"].as_str().expect("text").to_owned()),
            None => Ok(answer["result"].clone()),
        }
    }

    fn stats(&self) -> Value {
        self.ask("stats", json!({})).expect("counts")
    }

    /// Looks at the counts until they are as wanted.
    fn until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + patient(LIMIT);
        loop {
            let stats = self.stats();
            if wanted(&stats) {
                return stats;
            }
            assert!(Instant::now() < end, "{stats}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn streams_are_started_stopped_and_started_again() {
    let session = Session::start(&["--rate", "20kpps", "--latency"]);
    assert_eq!(session.stats(), json!({"sending": false, "streams": []}));
    session.ask("stop", Value::Null).expect("nothing to stop is no error");
    session.ask("start", json!({})).expect("started");
    let stats = session.until(|stats| count(&stats["streams"][0]["sent"]) > 1000);
    assert_eq!(stats["sending"], true, "{stats}");
    assert!(number(&stats["streams"][0]["seconds"]) > 0.0, "of what is under way: {stats}");
    let why = session.ask("start", json!({})).expect_err("it sends");
    assert_eq!(why, "packets are being sent: stop them first");
    session.ask("stop", json!([])).expect("stopped");
    let stats = session.stats();
    assert_eq!(stats["sending"], false, "{stats}");
    let sent = count(&stats["streams"][0]["sent"]);
    let returned = session.until(|stats| count(&stats["streams"][0]["latency"]["received"]) >= sent);
    assert_eq!(count(&returned["streams"][0]["sent"]), sent, "nothing is sent any more");

    session.ask("start", json!({"duration": 0.1})).expect("started");
    let stats = session.until(|stats| stats["sending"] == false);
    let again = count(&stats["streams"][0]["sent"]);
    assert!((1..=2001).contains(&again), "counted from 0: {stats}");
    session.ask("quit", json!({})).expect("an answer");
    let end = session.running.finish(LIMIT);
    assert!(end.status.success(), "{}", end.stderr.join("\n"));
    assert_eq!(count(&end.report()["streams"][0]["sent"]), again, "the last start is reported");
    assert!(!session.base.path().join("dpdk/rte/pollux_pktgen").exists(), "the socket is gone");
}

#[test]
fn rates_change_while_packets_are_sent() {
    let session = Session::start(&["--rate", "1pps"]);
    session.ask("start", json!({})).expect("started");
    session.ask("rate", json!({"rate": "50kpps", "stream": "0"})).expect("changed");
    session.until(|stats| count(&stats["streams"][0]["offered"]) > 2000);
    session.ask("rate", json!({"rate": "1pps"})).expect("changed");
    let before = count(&session.stats()["streams"][0]["offered"]);
    std::thread::sleep(Duration::from_millis(100));
    let after = count(&session.stats()["streams"][0]["offered"]);
    assert!(after <= before + 1500, "{before} {after}: 5000 at the rate of before");
    let why = session.ask("rate", json!({"rate": "max"})).expect_err("it sends");
    assert!(why.contains("stop first"), "{why}");
    session.ask("stop", json!({})).expect("stopped");
    session.ask("rate", json!({"rate": "max"})).expect("for the next start");
    session.ask("start", json!({"duration": 0.05})).expect("started");
    let stats = session.until(|stats| stats["sending"] == false);
    assert_eq!(stats["streams"][0]["offered"], Value::Null, "{stats}");
    assert!(count(&stats["streams"][0]["sent"]) > 100, "{stats}");
    assert!(session.running.interrupt().status.success());
}

#[test]
fn what_cannot_be_asked_for_is_told_and_nothing_ends() {
    let session = Session::start(&["--rate", "1kpps"]);
    for (method, params, why) in [
        ("begin", json!({}), "no method 'begin': there are start, stop, rate, stats and quit"),
        ("start", json!({"time": 1}), "no parameter 'time': there are duration"),
        ("start", json!({"duration": -1}), "duration -1 is no time in seconds"),
        ("start", json!({"duration": "1"}), "duration \"1\" is no time in seconds"),
        ("start", json!([1]), "parameters have names: duration"),
        ("stop", json!({"now": true}), "no parameter 'now': there are none"),
        ("rate", json!({}), "rate, such as \"1mpps\", is missing"),
        ("rate", json!({"rate": "fast"}), "rate 'fast' is not a rate such as"),
        ("rate", json!({"rate": "1pps", "stream": "web"}), "stream \"web\" is not there: there are 0"),
        ("stats", json!({"stream": 0}), "stream 0 is not there: there are 0"),
    ] {
        let told = session.ask(method, params).expect_err(method);
        assert!(told.contains(why), "{method}: {told}");
    }
    assert_eq!(session.exchange("{")["error"]["code"], -32_700);
    assert_eq!(session.exchange(&" ".repeat(70_000))["error"]["code"], -32_600);
    assert_eq!(session.stats()["sending"], false);
    assert!(session.running.interrupt().status.success());
    let (code, line) = refused(&["--vdev", "net_null0", "--", "--rpc"]);
    assert!(line.contains("--rpc: its socket stands beside that of telemetry"), "{line}");
    assert_eq!(code, Some(2));
}
