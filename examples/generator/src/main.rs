//! generator: sends UDP at a rate, and measures what comes back: loss and round trips.
//!
//! Each packet carries its number and when it was sent. Whoever sends it back (an l2fwd, a reflector, a wire that loops) sends these
//! along; port 0 sends and receives.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use pollux::eal::histogram::{self, Recorder};
use pollux::prelude::*;

/// Sends UDP at a rate and measures loss and round trips of what comes back.
#[derive(clap::Parser)]
struct Options {
    /// Packets a second
    #[arg(long, value_name = "PPS", default_value = "100000")]
    rate: u64,
    /// Seconds to send
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u64).range(1..=86400))]
    duration: u64,
    /// Bytes of a frame, without its check sequence
    #[arg(long, value_name = "BYTES", default_value = "60", value_parser = clap::value_parser!(u16).range(60..=1514))]
    size: u16,
    /// Destination MAC address
    #[arg(long, value_name = "MAC", default_value = "ff:ff:ff:ff:ff:ff")]
    mac: MacAddress,
    /// Destination address
    #[arg(long, value_name = "ADDRESS", default_value = "192.0.2.2")]
    address: Ipv4Addr,
}

/// Ethernet, IPv4 and UDP; then a mark, the packet's number and when it was sent: 4, 6 and 8 bytes, all of the shortest payload.
const HEADERS: usize = 14 + 20 + 8;
const MARK: &[u8; 4] = b"plxg";
/// How long what is under way may take to come back when all is sent.
const LAST: Duration = Duration::from_millis(200);
/// Sent at once at most, after a delay.
const BURST: u64 = 32;
/// Of so many packets, the last ones sent, it is known whether they came back: who comes later than that counts as lost.
const RECENT: u64 = 1 << 22;

fn main() -> ExitCode {
    program::main(run)
}

fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    let mut bringup = Bringup::new(line)?;
    let clock = bringup.eal.clock();
    let pacer =
        Pacer::new(&clock, options.rate, BURST).map_err(|why| BringupError::Usage(why.to_string()))?;
    let (mut ports, pool) = bringup.start_ports(&[PortId(0)], &PortRequest::new().lcores(1))?;
    let mac = bringup.mac(PortId(0))?;
    let frame = frame(&options, mac);
    let (recorder, histogram) = histogram::new();
    let Some(mut port) = ports.pop() else { return Ok(()) };
    let seconds = Duration::from_secs(options.duration);
    let main = bringup.eal.lcores().main();
    let (sent, received) = bringup
        .eal
        .launch(main, move |lcore| generate(lcore, &mut port, &pool, &frame, pacer, seconds, recorder))?
        .wait()?;
    let counts = histogram.counts();
    let micros = |of| counts.quantile(of).map_or(0.0, |cycles| clock.nanos(cycles).0 as f64 / 1e3);
    program::tell(format_args!(
        "sent {sent}, received {received}, lost {}; round trip p50 {:.1} us, p99 {:.1} us, max {:.1} us",
        sent.saturating_sub(received),
        micros(0.5),
        micros(0.99),
        micros(1.0)
    ));
    Ok(())
}

/// The template: UDP without a checksum, which each packet's own bytes would change.
fn frame(options: &Options, mac: MacAddress) -> Vec<u8> {
    let payload = vec![0; usize::from(options.size) - HEADERS];
    let ether = Frame::ether(mac.0, options.mac.0);
    let mut frame = ether.ipv4([192, 0, 2, 1], options.address).udp(5000, 5000).payload(&payload).to_vec();
    frame[HEADERS - 2..HEADERS].fill(0);
    frame[HEADERS..HEADERS + MARK.len()].copy_from_slice(MARK);
    frame
}

fn generate(
    lcore: &LcoreContext,
    port: &mut Queues,
    pool: &MbufPool,
    frame: &[u8],
    mut pacer: Pacer,
    seconds: Duration,
    mut recorder: Recorder,
) -> (u64, u64) {
    let (clock, mut burst) = (lcore.clock(), Burst::new());
    let (start, whole) = (clock.now(), clock.cycles(seconds));
    let end = whole + clock.cycles(LAST);
    let (mut sent, mut received) = (0, 0);
    let mut returned = vec![false; RECENT as usize];
    while !lcore.stop_requested() && clock.now() - start < end {
        let now = clock.now();
        if now - start < whole {
            pool.alloc_frames(&mut burst, pacer.take(now, BURST) as usize, frame);
            for (number, mbuf) in (sent..).zip(burst.iter_mut()) {
                let Some(data) = mbuf.data_mut() else { continue };
                data[HEADERS + 4..HEADERS + 10].copy_from_slice(&u64::to_be_bytes(number)[2..]);
                data[HEADERS + 10..HEADERS + 18].copy_from_slice(&now.0.to_be_bytes());
                returned[(number % RECENT) as usize] = false;
            }
            sent += port.tx[0].tx_burst(&mut burst) as u64;
            burst.clear();
        }
        port.rx[0].rx_burst(&mut burst, 32);
        let now = clock.now();
        for mbuf in burst.iter() {
            let Some((number, then)) = mbuf.data().get(HEADERS..).and_then(stamp) else { continue };
            // A copy of one that is here already is not another.
            let is_recent = number < sent && sent - number <= RECENT;
            if is_recent && !std::mem::replace(&mut returned[(number % RECENT) as usize], true) {
                received += 1;
                recorder.record(now.0.saturating_sub(then));
            }
        }
        burst.clear();
    }
    (sent, received)
}

/// The number of a packet of ours, and when it was sent.
fn stamp(payload: &[u8]) -> Option<(u64, u64)> {
    let (MARK, rest) = payload.split_first_chunk()? else { return None };
    let (number, rest) = rest.split_first_chunk::<6>()?;
    let number = number.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    Some((number, u64::from_be_bytes(*rest.first_chunk()?)))
}
