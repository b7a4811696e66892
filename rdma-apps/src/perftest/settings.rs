//! What a test will do: the options after their defaults and what follows from each other.
//!
//! Source: linux-rdma/perftest `src/perftest_parameters.c`, `init_perftest_params`, `force_dependecies`, `change_conn_type`,
//! `ctx_set_max_inline`.

mod refused;

use std::time::Duration;

use pollux_verbs::Mtu;

use super::options::{Atomic, Connection, Options, RateLimitType};
use super::statistic::EXCHANGES_MIN;
use crate::exchange::line::Patience;
use refused::refuse;

/// What is done in each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Two-sided.
    Send,
    /// Into the other end's memory.
    Write,
    /// Out of it.
    Read,
    /// On eight bytes of it.
    Atomic,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// How much.
    Bandwidth,
    /// How soon.
    Latency,
    /// How soon while more is under way, in bursts: raw Ethernet alone has it.
    LatencyUnderLoad,
}

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Its verb.
    pub verb: Verb,
    /// What it measures.
    pub kind: Kind,
}

impl Test {
    /// The program's name.
    #[must_use]
    pub fn program(self) -> &'static str {
        match (self.verb, self.kind) {
            (_, Kind::LatencyUnderLoad) => "raw_ethernet_burst_lat",
            (Verb::Send, Kind::Bandwidth) => "send_bw",
            (Verb::Send, Kind::Latency) => "send_lat",
            (Verb::Write, Kind::Bandwidth) => "write_bw",
            (Verb::Write, Kind::Latency) => "write_lat",
            (Verb::Read, Kind::Bandwidth) => "read_bw",
            (Verb::Read, Kind::Latency) => "read_lat",
            (Verb::Atomic, Kind::Bandwidth) => "atomic_bw",
            (Verb::Atomic, Kind::Latency) => "atomic_lat",
        }
    }

    /// Whether each way of a round trip is counted by itself: where both ends send.
    #[must_use]
    pub fn ways(self) -> f64 {
        if matches!(self.verb, Verb::Read | Verb::Atomic) { 1.0 } else { 2.0 }
    }
}

/// How a test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// After so many iterations of each queue pair.
    Iterations(u64),
    /// After so many seconds, the margin at either end not measured.
    Seconds {
        /// In all.
        total: u64,
        /// At either end.
        margin: u64,
    },
    /// Never; a report every so often.
    Forever {
        /// Seconds between reports.
        period: u64,
    },
}

/// A test with all numbers settled that need no device.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which.
    pub test: Test,
    /// Type of queue pair.
    pub connection: Connection,
    /// MTU of the path, if the user chose it; raw Ethernet has none.
    pub mtu: Option<Mtu>,
    /// Bytes of a message; with [`all`](Self::all), of the largest.
    pub size: u64,
    /// Whether the user chose the size.
    pub size_chosen: bool,
    /// All sizes, powers of two.
    pub all: bool,
    /// When it ends.
    pub extent: Extent,
    /// Both ends send.
    pub bidirectional: bool,
    /// What comes is sent back (raw Ethernet).
    pub forwards: bool,
    /// Which atomic operation.
    pub atomic: Atomic,
    /// Messages carry immediate data.
    pub imm: bool,
    /// Queue pairs.
    pub qps: usize,
    /// Sends under way on each.
    pub tx_depth: usize,
    /// Receives posted on each, or on the shared queue.
    pub rx_depth: usize,
    /// One completion for so many sends.
    pub cq_mod: usize,
    /// Sends of one doorbell.
    pub post_list: usize,
    /// Receives posted at once.
    pub recv_post_list: usize,
    /// Largest inline message.
    pub inline: usize,
    /// Whether to look for the peak.
    pub peak: bool,
    /// What was typed, for what needs no settling.
    pub options: Options,
}

/// Largest size of `--all`.
pub const SIZE_MAX: u64 = 8 << 20;
/// Above it, each send completes by itself unless the user says otherwise.
const MODERATED_MAX: u64 = 8192;
/// The most iterations whose peak is looked for.
const PEAK_MAX: u64 = 20_000;

impl Settings {
    /// How long the other end may be silent. One that works alone has the time of the test as well, or all there is.
    #[must_use]
    pub fn patience(&self) -> Patience {
        let chosen = self.options.peer_timeout;
        let patience = Patience::seconds(chosen);
        match self.extent {
            Extent::Seconds { total, .. } => patience.and_alone(Duration::from_secs(total)),
            Extent::Forever { .. } if chosen.is_none() => Patience { alone: None, ..patience },
            _ => patience,
        }
    }

    /// Settles the options of one of the tests.
    ///
    /// # Errors
    /// One sentence about options that do not go together.
    pub fn new(test: Test, options: Options) -> Result<Self, String> {
        let Test { verb, kind } = test;
        let mut options = options;
        if options.mcg && verb == Verb::Send && options.connection != Connection::RawEth {
            options.connection = Connection::Ud;
        }
        refuse(test, &options)?;
        // A message of XRC is for a shared receive queue, and keys are looked up in that queue's domain: it is there also where nothing
        // is received.
        options.use_srq |= options.connection == Connection::Xrc;
        let bandwidth = kind == Kind::Bandwidth;
        let imm = options.write_with_imm || options.send_with_imm;
        let takes_receives = verb == Verb::Send || imm;
        let period = options.seconds.unwrap_or(5);
        let extent = if options.run_infinitely {
            Extent::Forever { period }
        } else if let Some(total) = options.seconds {
            let margin = options.margin.unwrap_or(total / 4);
            if total <= 2 * margin {
                return Err(format!(
                    "--duration {total} is too short for two margins of {margin} seconds (-f): give more than their sum"
                ));
            }
            Extent::Seconds { total, margin }
        } else {
            let usual = if bandwidth && verb == Verb::Write { 5000 } else { 1000 };
            Extent::Iterations(options.iters.unwrap_or(usual))
        };
        let chosen = options.size;
        let size = match verb {
            Verb::Atomic => 8,
            _ if options.all => SIZE_MAX,
            _ => chosen.unwrap_or(if bandwidth { 65536 } else { 2 }),
        };
        let mut tx_depth = options.tx_depth.unwrap_or(if kind == Kind::Latency { 1 } else { 128 });
        let mut rx_depth = if takes_receives { options.rx_depth.unwrap_or(512) } else { 1 };
        if let Extent::Iterations(iterations) = extent {
            tx_depth = tx_depth.min(iterations);
            rx_depth = rx_depth.min(iterations);
            let reliable = matches!(options.connection, Connection::Rc | Connection::Xrc);
            if takes_receives && !reliable && options.rx_depth.is_none() {
                // Nothing holds the sender back, so all that will come has room, as far as a queue goes.
                rx_depth = iterations.min(16_000);
            }
        }
        let post_list = options.post_list;
        let large =
            size > MODERATED_MAX && options.connection != Connection::Ud && !options.all && !options.events;
        let mut cq_mod = options.cq_mod.unwrap_or(if large { 1 } else { 100 });
        if post_list > 1 {
            cq_mod = options.cq_mod.unwrap_or(post_list);
            if !post_list.is_multiple_of(cq_mod) {
                return Err(format!("-l {post_list} is not a multiple of -Q {cq_mod}"));
            }
            tx_depth = tx_depth.max(post_list);
        }
        for (name, list) in [("-l", post_list), ("--recv_post_list", options.recv_post_list)] {
            if let Extent::Iterations(iterations) = extent
                && !iterations.is_multiple_of(list)
            {
                return Err(format!("-n {iterations} is not a multiple of {name} {list}"));
            }
        }
        if takes_receives && options.recv_post_list > rx_depth {
            return Err(format!(
                "--recv_post_list {} exceeds the receive queue depth, -r {rx_depth}: give at most {rx_depth}",
                options.recv_post_list
            ));
        }
        cq_mod = cq_mod.min(tx_depth);
        let qps = options.qp as usize * if options.dualport { 2 } else { 1 };
        if options.use_srq && takes_receives && (qps as u64) > rx_depth {
            return Err(format!(
                "-r {rx_depth} is too small for {qps} QPs on one shared receive queue: give at least {qps}"
            ));
        }
        let inline = match (options.inline, kind, verb) {
            (_, _, Verb::Read | Verb::Atomic) => 0,
            (Some(bytes), ..) => bytes,
            (None, Kind::Bandwidth | Kind::LatencyUnderLoad, _) => 0,
            (None, Kind::Latency, Verb::Write) => 220,
            (None, Kind::Latency, Verb::Send) if options.connection == Connection::Ud => 188,
            (None, Kind::Latency, Verb::Send) => 236,
        };
        if kind == Kind::LatencyUnderLoad
            && let Extent::Iterations(iterations) = extent
        {
            let least = EXCHANGES_MIN * options.reply_every;
            if iterations < least {
                return Err(format!(
                    "-n {iterations} with --reply_every {} leaves too few answers to measure: give -n at least {least}",
                    options.reply_every
                ));
            }
        }
        let peak = bandwidth
            && !options.no_peak
            && matches!(extent, Extent::Iterations(iterations) if iterations * qps as u64 <= PEAK_MAX);
        Ok(Self {
            test,
            connection: options.connection,
            mtu: options.mtu.and_then(Mtu::from_bytes),
            size,
            size_chosen: chosen.is_some(),
            all: options.all,
            extent,
            bidirectional: options.bidirectional,
            forwards: false,
            atomic: options.atomic_type.unwrap_or_default(),
            imm,
            qps,
            tx_depth: tx_depth as usize,
            rx_depth: rx_depth as usize,
            cq_mod: cq_mod as usize,
            post_list: post_list as usize,
            recv_post_list: options.recv_post_list as usize,
            inline: inline as usize,
            peak,
            options,
        })
    }

    /// The rate that the device holds each queue pair to, in kbit/s, if it shall. Source: linux-rdma/perftest
    /// `src/perftest_parameters.c`, `force_dependecies`: megabytes of which one has 8 * 1024 of these.
    #[must_use]
    pub fn device_rate(&self) -> Option<u32> {
        let paced = self.options.rate_limit_type == RateLimitType::Pacing;
        let megabytes = self.options.rate_limit.filter(|_| paced)?;
        Some((megabytes * 8.0 * 1024.0).ceil() as u32)
    }

    /// Messages of a burst, which holds at least what one doorbell has.
    #[must_use]
    pub fn burst(&self) -> u64 {
        let list = self.post_list as u64;
        let usual = if self.test.kind == Kind::LatencyUnderLoad { self.tx_depth as u64 } else { list };
        self.options.burst_size.unwrap_or(usual).max(list)
    }

    /// Whether what comes takes a receive, and completes where it comes.
    #[must_use]
    pub fn takes_receives(&self) -> bool {
        self.test.verb == Verb::Send || self.imm
    }

    /// Whether each end has queue pairs of XRC that send, and as many that receive: where messages, or answers, go both ways. Source:
    /// linux-rdma/perftest `src/perftest_resources.c`, `ctx_xrc_qp_create`.
    #[must_use]
    pub fn has_halves(&self) -> bool {
        let both_ways = self.bidirectional || self.test.kind == Kind::Latency;
        self.connection == Connection::Xrc && both_ways
    }

    /// Queue pairs that an end makes.
    #[must_use]
    pub fn queue_pairs(&self) -> usize {
        if self.has_halves() { 2 * self.qps } else { self.qps }
    }

    /// Whether a queue pair is at the second port: of those that send, and of those that receive, the later half is. Source:
    /// linux-rdma/perftest `src/perftest_resources.c`, `ctx_modify_qp_to_init`.
    #[must_use]
    pub fn is_at_second(&self, number: usize) -> bool {
        self.options.dualport && number % self.qps >= self.qps / 2
    }

    /// Whether the ends meet through a connection manager.
    #[must_use]
    pub fn by_address(&self) -> bool {
        self.options.rdma_cm || self.options.comm_rdma_cm
    }

    /// The multicast group of `-g` that an end hears. Source: linux-rdma/perftest `src/multicast_resources.{c,h}`, `MCG_GID`,
    /// `set_multicast_gid`.
    #[must_use]
    pub fn group(&self, client: bool) -> Option<[u8; 16]> {
        const USUAL: [u8; 16] = [255, 1, 0, 0, 0, 2, 201, 133, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut usual = USUAL;
        usual[15] += u8::from(client);
        self.options.mcg.then(|| self.options.mgid.unwrap_or(usual))
    }

    /// The program's name.
    #[must_use]
    pub fn program(&self) -> &'static str {
        program(self.test, self.connection)
    }

    /// What both ends must have been told alike, by option.
    #[must_use]
    pub fn shared(&self) -> Vec<(&'static str, String)> {
        let on = |on: bool| if on { "on".to_owned() } else { "off".to_owned() };
        let mut all = vec![
            ("the test", self.test.program().to_owned()),
            ("-c", self.connection.name().to_owned()),
            ("-a", on(self.all)),
            ("-s", self.size.to_string()),
            // It doubles the number behind it.
            ("-O", on(self.options.dualport)),
            ("-q", self.qps.to_string()),
            ("-b", on(self.bidirectional)),
            ("--reversed", on(self.options.reversed)),
            ("--report-per-port", on(self.options.report_per_port)),
            ("--report_gbits", on(self.options.report_gbits)),
            ("-g", on(self.options.mcg)),
            ("--data_validation", on(self.options.data_validation)),
            ("-R", on(self.options.rdma_cm)),
            ("--write_with_imm or --send_with_imm", on(self.imm)),
        ];
        let Test { verb, kind } = self.test;
        let both_work =
            self.takes_receives() || self.bidirectional || verb == Verb::Write && kind == Kind::Latency;
        // An end that does nothing need not know how long the other one does it.
        if both_work {
            let extent = match self.extent {
                Extent::Iterations(iterations) => format!("-n {iterations}"),
                Extent::Seconds { total, .. } => format!("-D {total}"),
                Extent::Forever { .. } => "--run_infinitely".into(),
            };
            all.push(("the extent", extent));
        }
        if self.test.verb == Verb::Atomic {
            all.push(("-A", self.atomic.name().to_owned()));
        }
        all
    }

    /// The sizes that are run, in their order; `most` is what one message may hold.
    #[must_use]
    pub fn sizes(&self, most: u64) -> Vec<u64> {
        if self.all {
            (1..=23).map(|power| 1 << power).take_while(|size| *size <= most).collect()
        } else {
            vec![self.size]
        }
    }
}

/// The name of a test's program.
pub(super) fn program(test: Test, connection: Connection) -> &'static str {
    match (connection, test.kind) {
        (Connection::RawEth, Kind::Bandwidth) => "raw_ethernet_bw",
        (Connection::RawEth, Kind::Latency) => "raw_ethernet_lat",
        _ => test.program(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn settled(verb: Verb, kind: Kind, line: &str) -> Result<Settings, String> {
        let words = std::iter::once("test").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Settings::new(Test { verb, kind }, line.options)
    }

    #[test]
    fn defaults_are_perftests() {
        use Kind::{Bandwidth, Latency};
        use Verb::{Atomic, Read, Send, Write};
        for (verb, kind, line, size, iterations, tx, rx, moderation, inline) in [
            (Send, Bandwidth, "", 65536, 1000, 128, 512, 1, 0),
            (Write, Bandwidth, "", 65536, 5000, 128, 1, 1, 0),
            (Read, Bandwidth, "", 65536, 1000, 128, 1, 1, 0),
            (Atomic, Bandwidth, "", 8, 1000, 128, 1, 100, 0),
            (Send, Latency, "", 2, 1000, 1, 512, 1, 236),
            (Write, Latency, "", 2, 1000, 1, 1, 1, 220),
            (Send, Latency, "-c UD", 2, 1000, 1, 1000, 1, 188),
            (Send, Bandwidth, "-s 4K -n 100", 4096, 100, 100, 100, 100, 0),
            (Send, Bandwidth, "-c UC -n 50000 -s 64", 64, 50000, 128, 16000, 100, 0),
            (Send, Bandwidth, "-c XRC -n 50000 -s 64", 64, 50000, 128, 512, 100, 0),
            (Send, Latency, "-c XRC", 2, 1000, 1, 512, 1, 236),
            (Read, Bandwidth, "-c XRC -q 4", 65536, 1000, 128, 1, 1, 0),
            (Write, Bandwidth, "-l 32 -s 64 -n 64", 64, 64, 64, 1, 32, 0),
        ] {
            let found = settled(verb, kind, line).unwrap();
            let name = found.test.program();
            let seen = (found.size, found.extent, found.tx_depth, found.rx_depth, found.cq_mod, found.inline);
            assert_eq!(
                seen,
                (size, Extent::Iterations(iterations), tx, rx, moderation, inline),
                "{name} {line}"
            );
        }
        let found = settled(Send, Bandwidth, "-D 8").unwrap();
        assert_eq!((found.extent, found.peak), (Extent::Seconds { total: 8, margin: 2 }, false));
        let found = settled(Send, Bandwidth, "-a").unwrap();
        assert_eq!(found.sizes(u64::MAX).len(), 23);
        assert_eq!(found.sizes(4096).last(), Some(&4096));
    }

    #[test]
    fn what_does_not_go_together_is_one_line() {
        const ATOMIC_BW: Test = Test { verb: Verb::Atomic, kind: Kind::Bandwidth };
        const READ_BW: Test = Test { verb: Verb::Read, kind: Kind::Bandwidth };
        const READ_LAT: Test = Test { verb: Verb::Read, kind: Kind::Latency };
        const SEND_BW: Test = Test { verb: Verb::Send, kind: Kind::Bandwidth };
        const SEND_LAT: Test = Test { verb: Verb::Send, kind: Kind::Latency };
        const WRITE_BW: Test = Test { verb: Verb::Write, kind: Kind::Bandwidth };
        for (test, line, expected) in [
            (
                ATOMIC_BW,
                "-s 16",
                "-s is not supported by atomic_bw: the size of an atomic operation is 8 bytes",
            ),
            (READ_BW, "-c UC", "-c UC is not supported by read_bw: reads and atomics require RC"),
            (WRITE_BW, "-c UD", "-c UD is not supported by write_bw"),
            (SEND_LAT, "-q 2", "-q is not supported by send_lat: latency tests use one QP"),
            (SEND_BW, "-n 1000 -l 3", "-n 1000 is not a multiple of -l 3"),
            (SEND_BW, "-l 4 -Q 3", "-l 4 is not a multiple of -Q 3"),
            (SEND_BW, "-m 1500", "-m 1500 is not an RDMA MTU"),
            (SEND_BW, "-D 4 -f 2", "--duration 4 is too short for two margins of 2 seconds"),
            (SEND_BW, "--use-srq -q 8 -r 4", "-r 4 is too small for 8 QPs on one shared receive queue"),
            (SEND_BW, "--use-srq -O -q 4 -r 4", "-r 4 is too small for 8 QPs on one shared receive queue"),
            (SEND_BW, "-n 4", "is not a whole number from 5 to"),
            (SEND_BW, "--peer-version 6.28", "accept 6.27"),
            (
                SEND_BW,
                "--rate_limit 1 --rate_limit_type PP",
                "--rate_limit_type PP is not supported by send_bw: the device limits only raw packet QPs",
            ),
            (
                WRITE_BW,
                "--rate_limit 1 --rate_limit_type HW",
                "--rate_limit_type HW is not supported by write_bw: ",
            ),
            (WRITE_BW, "-R -c UC", "-R cannot be combined with -c UC: RDMA CM connects RC and UD"),
            (SEND_BW, "-c XRC -R", "-R cannot be combined with -c XRC: RDMA CM connects RC and UD"),
            (SEND_BW, "-c XRC -q 8 -r 4", "-r 4 is too small for 8 QPs on one shared receive queue"),
            (WRITE_BW, "-c XRC --use-srq", "--use-srq is not supported by write_bw: only send tests"),
            (WRITE_BW, "-c XRC -r 16", "-r is not supported by write_bw: only send tests"),
            (WRITE_BW, "-c XRC --data_validation", "--data_validation requires -c RC"),
            (SEND_BW, "-R -g", "-R cannot be combined with -g: a multicast group has no connection"),
            (SEND_BW, "-R -x 1", "-R cannot be combined with -x or --ipv6: the address chooses the GID"),
            (SEND_BW, "-R -m 512", "-R cannot be combined with -m: RDMA CM chooses the MTU"),
            (READ_LAT, "-R --tclass 4", "-R cannot be combined with -S, --tclass or --flow_label: "),
            (READ_LAT, "--retry_count 3", "--retry_count requires -R"),
            (WRITE_BW, "-g", "-g is not supported by write_bw: only send tests support it"),
            (SEND_BW, "-g -q 2", "-g cannot be combined with -q: multicast"),
            (SEND_BW, "--perform_warm_up", "--perform_warm_up is not supported by send_bw: only write_bw"),
            (READ_LAT, "--perform_warm_up", "--perform_warm_up is not supported by read_lat"),
            (
                READ_BW,
                "--perform_warm_up --run_infinitely",
                "cannot be combined with --data_validation or --run_infinitely",
            ),
            (SEND_BW, "--flow_label 1,1048576", "is not a whole number from 0 to 1048575"),
            (SEND_BW, "-T 4", "-T requires -R; without, --tclass sets the traffic class"),
            (WRITE_BW, "-L 4", "-L is not supported by write_bw: only raw Ethernet"),
            (SEND_LAT, "-O", "-O is not supported by send_lat: only bandwidth tests use two ports"),
            (SEND_BW, "-O -g", "-O cannot be combined with -g: a multicast group is joined at one port"),
            (WRITE_BW, "-O -R", "-O cannot be combined with -R: RDMA CM connects by one address"),
            (WRITE_BW, "-O -i 2", "-O cannot be combined with -i: it uses ports 1 and 2"),
            (WRITE_BW, "-O --report-per-port", "--report-per-port requires -O and -D"),
            (WRITE_BW, "-D 4 --report-per-port", "--report-per-port requires -O and -D"),
            (
                WRITE_BW,
                "-O -D 4 --run_infinitely --report-per-port",
                "--report-per-port cannot be combined with --run_infinitely: ",
            ),
            (WRITE_BW, "--mmap=/dev/zero", "--mmap is not supported by write_bw: "),
            (SEND_LAT, "--use_cuda 0", "--use_cuda is not supported by send_lat: accelerator memory"),
            (SEND_BW, "-M 255:1:0:0:0:2:201:133:0:0:0:0:0:0:0:9", "-M requires -g"),
            (SEND_BW, "-g -M 1:2", "is not a multicast GID: give 16 decimal bytes"),
        ] {
            let error = settled(test.verb, test.kind, line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn both_ends_compare_what_must_be_alike() {
        let one = settled(Verb::Send, Kind::Bandwidth, "-s 64").unwrap().shared();
        let other = settled(Verb::Send, Kind::Bandwidth, "-s 128 -t 4").unwrap().shared();
        let differing: Vec<_> = one.iter().zip(&other).filter(|(one, other)| one != other).collect();
        assert_eq!(differing.len(), 1, "{differing:?}");
    }
}
