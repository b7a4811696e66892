//! l3fwd beside DPDK's: packets of a capture that is replayed without end, routed by longest prefix into a null port.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::peer::{EAL, Root, router};
use super::shared::{Shared, capture};
use super::table::Pair;
use super::turn::{alternate, report};
use crate::run::{Outcome, release_dir};

/// Its row.
pub(super) const NAME: &str = "l3fwd_pcap_null";
/// How long each trial forwards.
const TRIAL: Duration = Duration::from_millis(600);
/// Routes, of 24 bits: about as many as DPDK's l3fwd has room for (`IPV4_L3FWD_LPM_MAX_RULES`).
const ROUTES: u16 = 1000;
/// Packets that are replayed, to as many networks in turn.
const PACKETS: u16 = 512;

/// The source of packets and the rules, for the side that sees them in `folder`.
fn args(folder: &str) -> [String; 3] {
    let source = format!("net_pcap0,rx_pcap={folder}/pcap,infinite_rx=1");
    [source, format!("--rule_ipv4={folder}/v4"), format!("--rule_ipv6={folder}/v6")]
}

fn network(number: u16) -> [u8; 3] {
    let [high, low] = number.to_be_bytes();
    [10, high, low]
}

fn routes() -> String {
    let route = |number| {
        let [a, b, c] = network(number);
        format!("R{a}.{b}.{c}.0/24 1\n")
    };
    (0..ROUTES).map(route).collect()
}

/// UDP packets of 60 bytes. Source of the layout: RFC 791.
fn packet(number: u16) -> Vec<u8> {
    // Networks far from each other, in turn.
    let [a, b, c] = network((u32::from(number) * 389 % u32::from(ROUTES)) as u16);
    let mut header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 198, 18, 0, 1, a, b, c, 7];
    let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let ether = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    [&ether[..], &header, &[4, 0, 0, 9, 0, 26, 0, 0], &[0; 18]].concat()
}

/// Cycles a packet: as ours counts them itself, and as DPDK's takes them, whose lcore is never idle.
pub(super) fn measure(root: Option<&Root>, trials: u32) -> Outcome<Vec<Pair>> {
    root.map(router::prepare).transpose()?;
    let shared = Shared::make(root)?;
    shared.write("v4", routes())?;
    shared.write("v6", "R2001:200::/64 1\n")?;
    shared.write("pcap", capture((0..PACKETS).map(packet)))?;
    let theirs = || root.map(|root| theirs(root, &shared.theirs())).transpose();
    alternate(trials, || ours(&shared.ours()), theirs)
}

fn ours(folder: &str) -> Outcome<f64> {
    let [source, v4, v6] = args(folder);
    let mut command = Command::new(release_dir().join("l3fwd"));
    command.args(["-l", "1", "--no-telemetry", "--vdev", &source, "--vdev", "net_null1"]);
    command.args(["--", "-T", "0", "--json", "--config", "(0,0,1)", &v4, &v6, "--duration"]);
    command.arg(TRIAL.as_secs_f64().to_string());
    let report = report(command.stderr(Stdio::piped()).output(), "l3fwd")?;
    let dropped =
        report["ports"].as_array().into_iter().flatten().any(|port| port["dropped"] != serde_json::json!({}));
    if dropped {
        return Err(format!("l3fwd dropped packets: {report}"));
    }
    let cycles = report["lcores"][0]["cycles_per_packet"].as_f64().filter(|cycles| *cycles > 0.0);
    cycles.ok_or_else(|| "l3fwd forwarded nothing".into())
}

/// A child that ends with its trial.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn theirs(root: &Root, folder: &str) -> Outcome<f64> {
    let [source, v4, v6] = args(folder);
    let devices = ["-l", "1", "--vdev", &source, "--vdev", "net_null1"];
    let options = [
        "--",
        "-p",
        "3",
        "-P",
        "--lookup=lpm",
        "--parse-ptype",
        "--relax-rx-offload",
        "--config=(0,0,1)",
        &v4,
        &v6,
    ];
    let mut command = root.command(router::PROGRAM, &[EAL, &devices, &options].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = Ended(child.map_err(|why| format!("cannot start DPDK's l3fwd: {why}"))?);
    let stdout = child.0.stdout.take().ok_or("DPDK's l3fwd has no output")?;
    let (mut first, mut last): (Option<[f64; 2]>, Option<[f64; 2]>) = (None, None);
    let mut begun = None;
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let Some(counts) = line.strip_prefix("sent ") else { continue };
        let mut numbers = counts.split(' ').filter_map(|number| number.parse::<f64>().ok());
        let (Some(packets), Some(cycles)) = (numbers.next(), numbers.next()) else { continue };
        first.get_or_insert([packets, cycles]);
        last = Some([packets, cycles]);
        if begun.get_or_insert_with(Instant::now).elapsed() >= TRIAL {
            break;
        }
    }
    match (first, last) {
        (Some([packets, cycles]), Some([more, later])) if more > packets => {
            Ok((later - cycles) / (more - packets))
        }
        _ => Err("DPDK's l3fwd sent nothing".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_has_a_route_and_a_right_checksum() {
        for packet in (0..PACKETS).map(packet) {
            assert_eq!(packet.len(), 60);
            let header = &packet[14..][..20];
            let sum: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
            let [a, b, c] = [header[16], header[17], header[18]];
            assert!(routes().contains(&format!("R{a}.{b}.{c}.0/24 1\n")));
        }
    }
}
