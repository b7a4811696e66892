//! Whole programs: l2fwd and testpmd against DPDK's testpmd, trial by trial in turn.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::peer::Root;
use super::shared::{Shared, capture};
use super::table::Pair;
use super::testpmd::Testpmd;
use super::turn::{alternate, report};
use super::watched::Place;
use crate::run::{Outcome, must, release_dir};

/// How long each trial forwards.
pub(super) const TRIAL: Duration = Duration::from_millis(400);
/// Packets in the capture file that is replayed once.
const CAPTURE_PACKETS: u32 = 1 << 20;

/// Measures the figure `name`: as many pairs as there are trials, or single values without a peer.
pub(crate) fn measure(name: &str, root: Option<&Root>, trials: u32) -> Outcome<Vec<Pair>> {
    match name {
        "null_io" => forwarding(root, trials, NULLS, &["--no-mac-updating"], "io"),
        "null_macswap" => forwarding(root, trials, NULLS, &[], "macswap"),
        "ring_io" => forwarding(root, trials, RINGS, &["--no-mac-updating"], "io"),
        "pcap_null" => pcap(root, trials.min(7)),
        "af_packet_veth" => kernel(root, trials.min(7), "net_af_packet", &Veth::make()?),
        "af_xdp_veth" => kernel(root, trials.min(7), "net_af_xdp", &Veth::make()?),
        "tap_kernel" => tap(root, trials.min(7)),
        "start" => start(root, trials),
        "testpmd_watched" => watched(trials),
        _ if let Some(mode) = name.strip_prefix("testpmd_") => engine(root, trials, mode),
        _ => Err(format!("no program measures {name}")),
    }
}

pub(super) const NULLS: &[&str] = &["--vdev", "net_null0,size=64", "--vdev", "net_null1,size=64"];
const RINGS: &[&str] = &["--vdev", "net_ring0", "--vdev", "net_ring1"];

/// Runs l2fwd for `time` and gives back its report.
fn l2fwd(lcores: &str, devices: &[&str], options: &[&str], time: Duration) -> Outcome<serde_json::Value> {
    let mut command = Command::new(release_dir().join("l2fwd"));
    command.args(["-l", lcores]).args(devices).args(["--", "-T", "0", "--json", "--duration"]);
    command.arg(time.as_secs_f64().to_string()).args(options);
    report(command.stderr(Stdio::piped()).output(), "l2fwd")
}

pub(super) fn cycles_per_packet(report: &serde_json::Value) -> Outcome<f64> {
    report["lcores"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|lcore| lcore["cycles_per_packet"].as_f64())
        .find(|cycles| *cycles > 0.0)
        .ok_or_else(|| "no lcore moved a packet".into())
}
/// Two ports that never run dry, forwarded by one lcore: busy cycles per packet as each program counts them itself.
fn forwarding(
    root: Option<&Root>,
    trials: u32,
    devices: &[&str],
    options: &[&str],
    mode: &str,
) -> Outcome<Vec<Pair>> {
    let looped = devices == RINGS;
    let options = if looped { [options, &["--prime", "8"]].concat() } else { options.to_vec() };
    let mut testpmd = root.map(|root| Testpmd::start(root, devices, mode)).transpose()?;
    alternate(
        trials,
        || cycles_per_packet(&l2fwd("1", devices, &options, TRIAL)?),
        || {
            let Some(testpmd) = &mut testpmd else { return Ok(None) };
            testpmd.command(if looped { "start tx_first 8" } else { "start" })?;
            std::thread::sleep(TRIAL);
            testpmd.command("stop").and_then(|said| testpmd_cycles(&said)).map(Some)
        },
    )
}

/// An engine of testpmd beside the same of DPDK's, between two null ports on one lcore: busy cycles per packet as each program
/// counts them.
fn engine(root: Option<&Root>, trials: u32, mode: &str) -> Outcome<Vec<Pair>> {
    let trial = |testpmd: &mut Testpmd| {
        testpmd.command("start")?;
        std::thread::sleep(TRIAL);
        testpmd_cycles(&testpmd.command("stop")?)
    };
    let mut ours = Testpmd::ours(NULLS, mode)?;
    let mut theirs = root.map(|root| Testpmd::start(root, NULLS, mode)).transpose()?;
    alternate(trials, || trial(&mut ours), || theirs.as_mut().map(trial).transpose())
}

/// testpmd's engine io between two null ports while it is watched in every way, beside the same when nobody looks.
fn watched(trials: u32) -> Outcome<Vec<Pair>> {
    // Longer than the time between scrapes and events.
    const TRIAL: Duration = Duration::from_millis(1_200);
    let trial = |testpmd: &mut Testpmd| {
        testpmd.command("start")?;
        std::thread::sleep(TRIAL);
        testpmd_cycles(&testpmd.command("stop")?)
    };
    let place = Place::free()?;
    let mut seen = Testpmd::ours_at(&place, NULLS, "io")?;
    let mut unseen = Testpmd::ours(NULLS, "io")?;
    // A stream has to run before there is a latency to scrape.
    trial(&mut seen)?;
    let watchers = place.watch();
    let pairs = alternate(trials, || trial(&mut seen), || trial(&mut unseen).map(Some))?;
    watchers.end().map(|()| pairs)
}

pub(super) fn testpmd_cycles(said: &str) -> Outcome<f64> {
    said.lines()
        .find_map(|line| line.trim().strip_prefix("CPU cycles/packet="))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .ok_or_else(|| "testpmd counted no cycles".into())
}

/// A file replayed once into a null port: busy cycles per packet.
fn pcap(root: Option<&Root>, trials: u32) -> Outcome<Vec<Pair>> {
    let shared = Shared::make(root)?;
    // 64 bytes each.
    let frame = |number: u32| {
        let head = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
        [&head[..], &number.to_be_bytes(), &[0; 46]].concat()
    };
    shared.write("pcap", capture((0..CAPTURE_PACKETS).map(frame)))?;
    let source = format!("net_pcap0,rx_pcap={}/pcap", shared.ours());
    let sink = "net_null0,no-rx=1";
    alternate(
        trials,
        || {
            let devices = ["--vdev", &source, "--vdev", sink];
            cycles_per_packet(&l2fwd("1", &devices, &["--no-mac-updating"], Duration::from_secs(1))?)
        },
        || {
            let Some(root) = root else { return Ok(None) };
            let source = format!("net_pcap0,rx_pcap={}/pcap", shared.theirs());
            let mut testpmd =
                Testpmd::start_with(root, &["--vdev", &source, "--vdev", sink], "io", &["--no-flush-rx"])?;
            testpmd.command("start")?;
            std::thread::sleep(Duration::from_secs(1));
            testpmd.command("stop").and_then(|said| testpmd_cycles(&said)).map(Some)
        },
    )
}

/// Two ends of a veth pair, up, without IPv6 chatter, gone when dropped.
pub(super) struct Veth {
    ends: [String; 2],
}

impl Veth {
    pub(super) fn make() -> Outcome<Self> {
        let id = std::process::id() % 100_000;
        let ends = [format!("plxa{id}"), format!("plxb{id}")];
        must(Command::new("ip").args(["link", "add", &ends[0], "type", "veth", "peer", "name", &ends[1]]))?;
        let made = Self { ends };
        for end in &made.ends {
            drop(std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1"));
            must(Command::new("ip").args(["link", "set", end, "up"]))?;
        }
        Ok(made)
    }

    /// A port on each end.
    pub(super) fn devices(&self) -> [String; 2] {
        [0, 1].map(|end| format!("net_af_packet{end},iface={}", self.ends[end]))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        drop(must(Command::new("ip").args(["link", "delete", &self.ends[0]])));
    }
}

/// 64-byte frames from one end of a veth pair to the other, a sender on CPU 0 and a receiver on CPU 1: millions of
/// packets per second that the receiver counted.
fn kernel(root: Option<&Root>, trials: u32, driver: &str, veth: &Veth) -> Outcome<Vec<Pair>> {
    let [from, to] = [0, 1].map(|end| format!("{driver}0,iface={}", veth.ends[end]));
    let time = Duration::from_secs(1);
    alternate(
        trials,
        || {
            let options = ["--no-mac-updating"];
            std::thread::scope(|scope| {
                let receiver = scope.spawn(|| {
                    l2fwd(
                        "1",
                        &["--vdev", &to, "--vdev", "net_null0,no-rx=1"],
                        &options,
                        time + Duration::from_millis(300),
                    )
                });
                std::thread::sleep(Duration::from_millis(100));
                l2fwd("0", &["--vdev", "net_null0,size=64", "--vdev", &from], &options, time)?;
                let report = receiver.join().map_err(|_| "the receiver panicked")??;
                Ok(packets(&report, driver, "rx_packets")? / time.as_secs_f64() / 1e6)
            })
        },
        || {
            let Some(root) = root else { return Ok(None) };
            let mut receiver = Testpmd::two_on_one(root, "1", &["--vdev", &to], &["--forward-mode=rxonly"])?;
            let mut sender = Testpmd::two_on_one(
                root,
                "0",
                &["--vdev", &from],
                &["--forward-mode=txonly", "--txpkts=64"],
            )?;
            receiver.command("start")?;
            let begin = Instant::now();
            sender.command("start")?;
            std::thread::sleep(time);
            sender.command("stop")?;
            let seconds = begin.elapsed().as_secs_f64();
            let said = receiver.command("stop")?;
            Ok(Some(testpmd_packets(&said, "RX-packets:")? / seconds / 1e6))
        },
    )
}

/// 64-byte frames into the kernel through a tap interface: millions of packets per second sent.
fn tap(root: Option<&Root>, trials: u32) -> Outcome<Vec<Pair>> {
    let name = format!("plxt{}", std::process::id() % 100_000);
    let device = format!("net_tap0,iface={name}");
    let time = Duration::from_secs(1);
    alternate(
        trials,
        || {
            let report = l2fwd(
                "1",
                &["--vdev", "net_null0,size=64", "--vdev", &device],
                &["--no-mac-updating"],
                time,
            )?;
            let seconds = report["seconds"].as_f64().unwrap_or(time.as_secs_f64());
            Ok(packets(&report, "net_tap", "tx_packets")? / seconds / 1e6)
        },
        || {
            let Some(root) = root else { return Ok(None) };
            let mut sender = Testpmd::two_on_one(
                root,
                "1",
                &["--vdev", &device],
                &["--forward-mode=txonly", "--txpkts=64"],
            )?;
            let begin = Instant::now();
            sender.command("start")?;
            std::thread::sleep(time);
            let said = sender.command("stop")?;
            Ok(Some(testpmd_packets(&said, "TX-packets:")? / begin.elapsed().as_secs_f64() / 1e6))
        },
    )
}

fn packets(report: &serde_json::Value, driver: &str, count: &str) -> Outcome<f64> {
    report["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|port| port["driver"].as_str() == Some(driver))
        .and_then(|port| port[count].as_f64())
        .ok_or_else(|| format!("l2fwd reports no {count} of {driver}"))
}

fn testpmd_packets(said: &str, label: &str) -> Outcome<f64> {
    said.lines()
        .filter_map(|line| line.split_once(label))
        .filter_map(|(_, rest)| rest.split_whitespace().next()?.parse::<f64>().ok())
        .next_back()
        .ok_or_else(|| format!("testpmd printed no {label}"))
}

/// From the start of the process to its first packet, two lcores, huge pages: milliseconds.
fn start(root: Option<&Root>, trials: u32) -> Outcome<Vec<Pair>> {
    let timed = |mut command: Command| {
        let from = wall_clock();
        let done = command
            .env("FIRST_PACKET_FROM", from.to_string())
            .stderr(Stdio::null())
            .output()
            .map_err(|why| format!("cannot start the start-up trial: {why}"))?;
        let text = String::from_utf8_lossy(&done.stdout);
        text.lines()
            .find_map(|line| line.strip_prefix("start ")?.trim().parse::<f64>().ok())
            .ok_or_else(|| "the start-up trial printed no time".to_owned())
    };
    alternate(
        trials,
        || {
            let mut command = Command::new(release_dir().join("figures"));
            command.args(["-l", "0,1", "--vdev", "net_null0"]);
            timed(command)
        },
        || root.map(|root| timed(root.figures())).transpose(),
    )
}

/// Wall-clock nanoseconds since 1970: the one clock that a parent and a child in C read alike without unsafe code here.
fn wall_clock() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos())
}
