//! pktgen beside the engines of DPDK's testpmd that make packets, into a null port: busy cycles per packet as each program counts them.

use std::process::{Command, Stdio};

use super::peer::Root;
use super::program::{NULLS, TRIAL, cycles_per_packet, testpmd_cycles};
use super::table::Pair;
use super::testpmd::Testpmd;
use super::turn::{alternate, report};
use crate::run::{Outcome, release_dir};

/// How its figures begin.
pub(super) const FAMILY: &str = "pktgen_";

/// What varies in four fields.
const RANGES: &str =
    "ether/ipv4(src=10.0.0.1..10.0.255.254,dst=10.1.0.1..10.1.255.254)/udp(src=1024..65535,dst=1..9)";
/// The same at random.
const RANDOM: &str = "ether/ipv4(src=random,dst=random)/udp(src=random,dst=random)";

/// Measures the figure `name`.
pub(super) fn measure(name: &str, root: Option<&Root>, trials: u32) -> Outcome<Vec<Pair>> {
    match name.trim_start_matches(FAMILY) {
        "fixed" => beside(root, trials, &[], "txonly"),
        "ranges" => beside(root, trials, &["--packet", RANGES], "txonly"),
        "random" => beside(root, trials, &["--packet", RANDOM], "flowgen"),
        "latency" => {
            alternate(trials, || cycles(&["--latency"], "net_ring0"), || cycles(&[], "net_ring0").map(Some))
        }
        "pacing_mean" => alone(trials, |gaps| gaps["mean_error"].as_f64().map(|part| 1e6 * part.abs())),
        "pacing_p99" => alone(trials, |gaps| gaps["p99_error_ns"].as_f64().map(|nanos| nanos / 1e3)),
        what => Err(format!("pktgen has no figure {what}")),
    }
}

/// 64 bytes in the mbuf, as the peer's packets have.
fn cycles(options: &[&str], device: &str) -> Outcome<f64> {
    let mut command = Command::new(release_dir().join("pktgen"));
    command.args(["-l", "1", "--vdev", device, "--", "--json", "--wait", "0", "--size", "68", "--duration"]);
    command.arg(TRIAL.as_secs_f64().to_string()).args(options);
    cycles_per_packet(&report(command.stderr(Stdio::piped()).output(), "pktgen")?)
}

/// What `--gaps` tells of a million packets a second for ten seconds. DPDK's generators have nothing of the kind.
fn alone(trials: u32, figure: impl Fn(&serde_json::Value) -> Option<f64>) -> Outcome<Vec<Pair>> {
    let trial = |_| {
        let mut command = Command::new(release_dir().join("pktgen"));
        command.args(["-l", "1", "--vdev", "net_null0,no-rx=1", "--", "--json", "--wait", "0", "--gaps"]);
        command.args(["--rate", "1mpps", "--duration", "10"]);
        let told = report(command.stderr(Stdio::piped()).output(), "pktgen")?;
        let stream = &told["streams"][0];
        let part =
            stream["gaps"]["left_out"].as_f64().unwrap_or(0.0) / stream["sent"].as_f64().unwrap_or(1.0);
        eprintln!(
            "xtask: pktgen_pacing: {:.3} % of the gaps left out: the lcore was interrupted",
            100.0 * part
        );
        let ours = figure(&stream["gaps"]).ok_or("pktgen tells of no gaps")?;
        Ok(Pair { ours, peer: None, copy: None })
    };
    (0..trials.min(3)).map(trial).collect()
}

fn beside(root: Option<&Root>, trials: u32, options: &[&str], mode: &str) -> Outcome<Vec<Pair>> {
    let mut theirs = root.map(|root| Testpmd::start(root, NULLS, mode)).transpose()?;
    let trial = |testpmd: &mut Testpmd| {
        testpmd.command("start")?;
        std::thread::sleep(TRIAL);
        testpmd_cycles(&testpmd.command("stop")?)
    };
    alternate(trials, || cycles(options, "net_null0,no-rx=1"), || theirs.as_mut().map(trial).transpose())
}
