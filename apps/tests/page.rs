//! The live page of `--metrics` in a browser, by WebDriver: it fills, fits and follows the program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pollux_tests::patience::patient;
use pollux_tests::program::{Running, with_default_signals};
use pollux_tests::require::{Need, require};
use serde_json::{Value, json};

/// A browser without a window, ended with the test.
struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// One whose page is so wide, as on a telephone if it is narrow.
    fn start(width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let mut driver = Command::new("chromedriver");
        driver.arg("--port=0").env("HOME", profile.path()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().expect("chromedriver");
        let lines = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            line.split_once("started successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
        });
        let address = SocketAddr::from(([127, 0, 0, 1], port.expect("a port")));
        let mut browser = Self { driver, address, session: String::new(), _profile: profile };
        let size = format!("--window-size={width},{height}");
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", size],
            "mobileEmulation": { "deviceMetrics": { "width": width, "height": height, "pixelRatio": 1.0, "mobile": width < 500 } },
        });
        let wanted = json!({ "goog:chromeOptions": options, "goog:loggingPrefs": { "browser": "ALL" } });
        let made = browser.call("POST", "/session", &json!({ "capabilities": { "alwaysMatch": wanted } }));
        browser.session = made["sessionId"].as_str().unwrap_or_else(|| panic!("no session: {made}")).into();
        browser
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut socket = TcpStream::connect(self.address).expect("connected");
        socket.set_read_timeout(Some(patient(Duration::from_secs(60)))).expect("set");
        // The driver refuses a body where there is none to be, and goes on without the browser's end.
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        write!(
            socket,
            "{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("written");
        // The driver keeps connections open, whatever it is told.
        let (mut answer, mut length) = (BufReader::new(socket), 0);
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).expect("a head");
            match line.to_lowercase().split_once(':') {
                Some(("content-length", bytes)) => length = bytes.trim().parse().expect("a length"),
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        answer.read_exact(&mut body).expect("a body");
        let mut answer: Value = serde_json::from_slice(&body).expect("JSON");
        answer["value"].take()
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}/{path}", self.session), body)
    }

    fn script(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    fn until(&self, script: &str) {
        let deadline = Instant::now() + patient(Duration::from_secs(30));
        while self.script(script) != Value::Bool(true) {
            assert!(
                Instant::now() < deadline,
                "never: {script}: {}",
                self.script("return document.body.innerText")
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What the page complained of.
    fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        let entries = log.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Closes the browser, which the driver started.
            let _ended = self.call("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}

#[test]
fn the_page_fills_fits_and_follows_the_program() {
    if !require(&[Need::Browser]) {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_l2fwd"));
    command.args(["-l", "0", "--", "-T", "0", "--metrics", "0"]);
    let mut running = Running::start(with_default_signals(&command));
    let line = running.wait_for("metrics and live page at");
    let url = &line[line.find("http://").expect("an address")..];
    let browsers = [Browser::start(1280, 800), Browser::start(390, 844)];
    for browser in &browsers {
        browser.command("url", &json!({ "url": url }));
        browser.until("return Number(document.getElementById('main').dataset.samples) >= 3");
        let text = browser.script("return document.body.innerText").as_str().expect("text").to_owned();
        for part in
            ["l2fwd", "live", "0 mlx5_model0", "1 mlx5_model1", "lcore 0", "cycles/packet", "doorbell"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        let sizes = browser.script("return [document.documentElement.scrollWidth, window.innerWidth]");
        assert!(sizes[0].as_u64() <= sizes[1].as_u64(), "wider than its window: {sizes}");
        // What has nothing to show takes no room: null latency, no drops.
        browser.until("return document.getElementById('latency').closest('section').hidden");
        assert!(text.contains("pps") && !text.contains("NaN") && !text.contains("undefined"), "{text}");
        assert_eq!(browser.complaints(), Vec::<String>::new());
    }
    assert!(running.interrupt().status.success());
    for browser in &browsers {
        browser.until("return document.getElementById('state').textContent === 'no connection'");
    }
}
