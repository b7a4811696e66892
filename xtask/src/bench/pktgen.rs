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
/// And those that are taken together, by [`pacing`].
pub(super) const PACING: &str = "pktgen_pacing";

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

/// What `--gaps` tells of a million packets a second for ten seconds: both rows of a trial. DPDK's generators have nothing of the kind.
pub(super) fn pacing(trials: u32) -> Outcome<[(&'static str, Vec<Pair>); 2]> {
    let trial = |_| {
        let mut command = Command::new(release_dir().join("pktgen"));
        command.args(["-l", "1", "--vdev", "net_null0,no-rx=1", "--", "--json", "--wait", "0", "--gaps"]);
        command.args(["--rate", "1mpps", "--duration", "10"]);
        let told = report(command.stderr(Stdio::piped()).output(), "pktgen")?;
        let (stream, gaps) = (&told["streams"][0], &told["streams"][0]["gaps"]);
        let number = |value: &serde_json::Value| value.as_f64().ok_or("pktgen tells of no gaps");
        let left_out = number(&gaps["left_out"])? / number(&stream["sent"])?.max(1.0);
        eprintln!(
            "xtask: {PACING}: {:.3} % of the gaps left out: the lcore was interrupted",
            100.0 * left_out
        );
        let pair = |ours: f64| Pair { ours, peer: None, copy: None };
        Ok([pair(1e6 * number(&gaps["mean_error"])?.abs()), pair(number(&gaps["p99_error_ns"])? / 1e3)])
    };
    let both = (0..trials.min(3)).map(trial).collect::<Outcome<Vec<[Pair; 2]>>>()?;
    let row = |which: usize| both.iter().map(|pairs| pairs[which]).collect();
    Ok([("pktgen_pacing_mean", row(0)), ("pktgen_pacing_p99", row(1))])
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
