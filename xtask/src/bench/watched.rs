//! testpmd while it is watched, against testpmd that nobody looks at: what telemetry, metrics and page cost the packets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

use crate::run::Outcome;

/// Time between questions to telemetry.
const ASKED_EACH: Duration = Duration::from_millis(10);
/// Time between scrapes.
const SCRAPED_EACH: Duration = Duration::from_secs(1);
/// What telemetry is asked in turn.
const QUESTIONS: [&str; 4] = ["/ethdev/stats,0", "/ethdev/xstats,1", "/eal/lcore/usage", "/ethdev/dropped,0"];

/// Who watches, until dropped.
pub(super) struct Watchers {
    stop: Arc<AtomicBool>,
    /// Each gives the number of answers that it had.
    threads: Vec<JoinHandle<Outcome<u32>>>,
    /// The folder of telemetry's socket.
    _runtime: tempfile::TempDir,
}

/// Where a testpmd is to be watched.
pub(super) struct Place {
    runtime: tempfile::TempDir,
    port: u16,
}

impl Place {
    /// A folder for telemetry and a port for metrics that nobody uses.
    pub(super) fn free() -> Outcome<Self> {
        let runtime = tempfile::tempdir().map_err(|why| format!("no folder for telemetry: {why}"))?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = free.map_err(|why| format!("no port for metrics: {why}"))?.port();
        Ok(Self { runtime, port })
    }

    pub(super) fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    pub(super) fn metrics(&self) -> String {
        format!("--metrics={}", self.port)
    }

    /// Watches the program that runs there: telemetry is asked 100 times a second, metrics are scraped and an event is read each second.
    pub(super) fn watch(self) -> Watchers {
        let stop = Arc::<AtomicBool>::default();
        let socket = self.runtime.path().join("dpdk/rte/dpdk_telemetry.v2");
        let port = self.port;
        let threads = vec![
            spawn(&stop, move |stop| ask(&socket, stop)),
            spawn(&stop, move |stop| scrape(port, stop)),
            spawn(&stop, move |stop| listen(port, stop)),
        ];
        Watchers { stop, threads, _runtime: self.runtime }
    }
}

impl Watchers {
    /// Ends them.
    ///
    /// # Errors
    /// Something was not answered.
    pub(super) fn end(mut self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if thread.join().map_err(|_| "a watcher panicked".to_owned())?? == 0 {
                return Err("telemetry, metrics or events never answered".into());
            }
        }
        Ok(())
    }
}

fn spawn(
    stop: &Arc<AtomicBool>,
    watch: impl FnOnce(&AtomicBool) -> Outcome<u32> + Send + 'static,
) -> JoinHandle<Outcome<u32>> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || watch(&stop))
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn ask(path: &Path, stop: &AtomicBool) -> Outcome<u32> {
    let failed = |why| format!("telemetry at {}: {why}", path.display());
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).map_err(failed)?;
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    rustix::net::connect(&socket, &address).map_err(failed)?;
    let mut answer = vec![0; 16 * 1024];
    rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()).map_err(failed)?;
    let mut answers = 0;
    for question in QUESTIONS.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        rustix::net::send(&socket, question.as_bytes(), SendFlags::NOSIGNAL).map_err(failed)?;
        rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()).map_err(failed)?;
        answers += 1;
        std::thread::sleep(ASKED_EACH);
    }
    Ok(answers)
}

fn get(port: u16, path: &str) -> Outcome<TcpStream> {
    let failed = |why| format!("metrics at port {port}: {why}");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
    socket.set_read_timeout(Some(Duration::from_millis(200))).map_err(failed)?;
    write!(socket, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").map_err(failed)?;
    Ok(socket)
}

fn scrape(port: u16, stop: &AtomicBool) -> Outcome<u32> {
    let mut answers = 0;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let mut text = String::new();
        get(port, "/metrics")?.read_to_string(&mut text).map_err(|why| format!("metrics: {why}"))?;
        if !text.contains("pollux_stream_latency_seconds_bucket") {
            return Err(format!("metrics without latency: {text}"));
        }
        answers += 1;
        while begun.elapsed() < SCRAPED_EACH && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(ASKED_EACH);
        }
    }
    Ok(answers)
}

/// A page that is open.
fn listen(port: u16, stop: &AtomicBool) -> Outcome<u32> {
    let mut socket = get(port, "/api/events")?;
    let mut piece = [0; 64 * 1024];
    let mut answers = 0;
    while !stop.load(Ordering::Relaxed) {
        // Nothing within the time-out is no failure.
        answers += u32::from(socket.read(&mut piece).is_ok_and(|bytes| bytes > 0));
    }
    Ok(answers)
}
