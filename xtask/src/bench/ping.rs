//! Round trips through a forwarder on two lcores, a CPU each: the time that 99 of 100 pings stay below.

use std::process::{Command, Stdio};

use super::peer::Root;
use super::table::Pair;
use super::testpmd::Testpmd;
use super::turn::{alternate, report};
use crate::run::{Outcome, must, release_dir};

/// Pings of a trial, and seconds between two.
const PINGS: usize = 3000;
const INTERVAL: &str = "0.001";
/// The same for a forwarder that is to be asleep before each.
const IDLE_PINGS: usize = 200;
const IDLE_INTERVAL: &str = "0.01";
/// What a ping without an answer counts, in milliseconds.
const LOST: f64 = 1000.0;
/// Of l2fwd, at most: it is told to end.
const LONGEST: &str = "60";

const A: &str = "10.177.0.1/24";
const B: &str = "10.177.0.2/24";

/// Two hosts, each in a namespace of its own, whose links end here.
struct Hosts {
    names: [String; 2],
    links: [String; 2],
}

impl Hosts {
    fn make() -> Outcome<Self> {
        let id = std::process::id() % 100_000;
        let hosts = Self {
            names: ["a", "b"].map(|end| format!("plxh{end}{id}")),
            links: ["a", "b"].map(|end| format!("plxl{end}{id}")),
        };
        for ((name, link), address) in hosts.names.iter().zip(&hosts.links).zip([A, B]) {
            let ip = |args: &[&str]| must(Command::new("ip").args(args));
            ip(&["netns", "add", name])?;
            ip(&["link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name])?;
            ip(&["link", "set", link, "up"])?;
            ip(&["-n", name, "addr", "add", address, "dev", "eth0"])?;
            ip(&["-n", name, "link", "set", "eth0", "up"])?;
        }
        Ok(hosts)
    }

    fn devices(&self) -> [String; 2] {
        [0, 1].map(|end| format!("net_af_packet{end},iface={}", self.links[end]))
    }

    fn ping(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[0], "ping"]).args(args).arg(B.trim_end_matches("/24"));
        command
    }

    /// Waits until the other host answers, then pings it. Milliseconds.
    fn p99(&self, pings: usize, interval: &str) -> Outcome<f64> {
        let answered = (0..5).any(|_| {
            self.ping(&["-c", "1", "-W", "1", "-q"]).output().is_ok_and(|done| done.status.success())
        });
        if !answered {
            return Err("no ping came back through the forwarder".into());
        }
        // Its status is 1 where one was lost.
        let done = self.ping(&["-i", interval, "-c", &pings.to_string()]).output();
        let said = done.map_err(|why| format!("cannot start ping: {why}"))?.stdout;
        Ok(percentile(&String::from_utf8_lossy(&said), pings, 99))
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // A link would go with its namespace, and some time later: its name is free at once this way.
        for link in &self.links {
            drop(Command::new("ip").args(["link", "delete", link]).stderr(Stdio::null()).status());
        }
        for name in &self.names {
            drop(Command::new("ip").args(["netns", "delete", name]).stderr(Stdio::null()).status());
        }
    }
}

/// Of what ping printed of so many pings: the time that so many of 100 stayed below.
fn percentile(said: &str, pings: usize, of_100: usize) -> f64 {
    let times =
        said.lines().filter_map(|line| line.split_once("time=")?.1.split_whitespace().next()?.parse().ok());
    let mut times: Vec<f64> = times.collect();
    times.resize(pings.max(times.len()), LOST);
    times.sort_by(f64::total_cmp);
    times[(times.len() * of_100).div_ceil(100) - 1]
}

/// Through l2fwd with that `--idle`.
fn through_l2fwd(hosts: &Hosts, idle: &str, pings: usize, interval: &str) -> Outcome<f64> {
    let devices = hosts.devices();
    let mut command = Command::new(release_dir().join("l2fwd"));
    command.args([
        "-l",
        "0,1",
        "--vdev",
        &devices[0],
        "--vdev",
        &devices[1],
        "--",
        "-P",
        "-T",
        "0",
        "--json",
    ]);
    command.args(["--no-mac-updating", "--idle", idle, "--duration", LONGEST]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let l2fwd = command.spawn().map_err(|why| format!("cannot start l2fwd: {why}"))?;
    let p99 = hosts.p99(pings, interval);
    must(Command::new("kill").args(["-INT", &l2fwd.id().to_string()]))?;
    report(l2fwd.wait_with_output(), "l2fwd")?;
    p99
}

pub(super) fn measure(root: Option<&Root>, trials: u32) -> Outcome<Vec<Pair>> {
    let hosts = Hosts::make()?;
    let devices = hosts.devices();
    let devices = ["--vdev", &devices[0], "--vdev", &devices[1]];
    alternate(
        trials,
        || through_l2fwd(&hosts, "poll", PINGS, INTERVAL),
        || {
            let Some(root) = root else { return Ok(None) };
            let mut testpmd = Testpmd::on_two(root, &devices, &["--forward-mode=io"])?;
            testpmd.command("start")?;
            hosts.p99(PINGS, INTERVAL).map(Some)
        },
    )
}

/// Pings that find the forwarder asleep.
pub(super) fn measure_idle(trials: u32) -> Outcome<Vec<Pair>> {
    let hosts = Hosts::make()?;
    alternate(trials, || through_l2fwd(&hosts, "interrupt", IDLE_PINGS, IDLE_INTERVAL), || Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_come_back_counts() {
        let line = |n: usize| format!("64 bytes from 10.177.0.2: icmp_seq={n} ttl=64 time=0.{n:04} ms\n");
        let all: String = (1..=PINGS).map(line).collect();
        assert_eq!(percentile(&all, PINGS, 99), 0.2970);
        let some: String = (1..=PINGS * 98 / 100).map(line).collect();
        assert_eq!((percentile(&some, PINGS, 99), percentile(&some, PINGS, 98)), (LOST, 0.2940));
        assert_eq!(percentile("", PINGS, 50), LOST);
    }
}
