//! What a raw Ethernet test will do: the options after their defaults.
//!
//! Source: linux-rdma/perftest `src/perftest_parameters.c`, `force_dependecies`, `flow_rules_force_dependecies`,
//! `set_raw_eth_parameters`, `set_eth_mtu`.

use std::net::IpAddr;

use pollux_verbs::HashFields;
use pollux_wire::MacAddress;

use super::frame::{CHECK_BYTES, Headers, group};
use super::options::RawOptions;
use crate::perftest::end::Flows;
use crate::perftest::options::{Connection, RateLimitType};
use crate::perftest::refusal::Refusal::{self, Conflict, Requires, Unsupported};
use crate::perftest::settings::{Extent, Kind, Settings, Test, Verb, program};

/// The longest frame when none is chosen, and the bounds of what may be.
const MTU: u64 = 1518;
const MTU_MIN: u64 = 64;
const MTU_MAX: u64 = 9600;
/// The shortest frame of Ethernet, its check sequence included.
const FRAME_MIN: u64 = 64;

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It receives, or answers.
    Server,
    /// It sends, or begins.
    Client,
}

/// A test with all numbers settled that need no device.
#[derive(Clone, Debug)]
pub struct Plan {
    /// As of the other tests; the size is that of a frame with its check sequence.
    pub settings: Settings,
    /// Which end this is.
    pub role: Role,
    /// Longest frame.
    pub mtu: u64,
    /// What this end sends.
    pub headers: Headers,
    /// Our address, which frames for us have.
    pub own: MacAddress,
    /// The server's and the client's IP address.
    pub ips: Option<(IpAddr, IpAddr)>,
    /// The server's and the client's first port.
    pub ports: Option<(u16, u16)>,
    /// Flows of each queue pair.
    pub flows: Flows,
    /// A rule for all that no other one takes.
    pub promiscuous: bool,
    /// A rule for a copy of everything.
    pub sniffer: bool,
    /// What is hashed to spread frames over the queues, if they are.
    pub spread: Option<HashFields>,
    /// The group that the server hears.
    pub multicast: Option<MacAddress>,
    /// What was changed, to be said.
    pub changes: Vec<String>,
}

impl Plan {
    /// Settles the options of one of the tests.
    ///
    /// # Errors
    /// One sentence about options that do not go together.
    pub fn new(kind: Kind, options: RawOptions) -> Result<Self, String> {
        refuse(kind, &options)?;
        let role = match (options.server, options.client) {
            (true, false) => Role::Server,
            (false, true) => Role::Client,
            _ => return Err("choose one of --server and --client".into()),
        };
        let (ips, ports) = ends(role, &options)?;
        let duplex = options.base.bidirectional || options.mac_fwd || kind != Kind::Bandwidth;
        let Some(own) = options.source_mac else {
            return Err("-B is missing: give the source MAC address, such as -B 02:00:00:00:00:01".into());
        };
        if own.0[0] & 1 != 0 {
            return Err(format!(
                "-B {own} is a multicast address: the first byte of a unicast address is even, such as 02"
            ));
        }
        let mut multicast = None;
        let mut to = options.dest_mac;
        if options.raw_mcast {
            let Some((IpAddr::V4(address), _)) = ips else {
                return Err(
                    "--raw_mcast requires -J and -j: the IPv4 addresses of the group and of this end".into(),
                );
            };
            if !address.is_multicast() {
                return Err(format!(
                    "-J {address} is not a multicast address (224.0.0.0 to 239.255.255.255)"
                ));
            }
            to = Some(group(address));
            multicast = to;
        }
        let to = match (to, role) {
            (Some(to), _) => to,
            // It sends nothing.
            (None, Role::Server) if !duplex || options.mac_fwd => MacAddress([0; 6]),
            _ => {
                return Err(
                    "-E is missing: give the destination MAC address, such as -E 02:00:00:00:00:02".into()
                );
            }
        };

        let mtu = options.base.mtu.unwrap_or(MTU);
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
            return Err(format!(
                "-m {mtu}: the maximum frame size must be from {MTU_MIN} to {MTU_MAX} bytes"
            ));
        }
        let mut base = options.base.clone();
        base.connection = Connection::RawEth;
        let spread =
            if options.use_rss { Some(hashed(role, &mut base.qp, ips, ports, options.tcp)?) } else { None };
        // Rules that tell queue pairs apart, not those of one frame alone.
        let forwards = options.mac_fwd;
        base.bidirectional = base.bidirectional || forwards;
        let chosen = base.size;
        let mut settings = Settings::new(Test { verb: Verb::Send, kind }, base)?;
        settings.forwards = forwards;
        let mut changes = Vec::new();
        if settings.size > mtu {
            if let Some(chosen) = chosen {
                return Err(format!(
                    "-s {chosen}: the maximum frame size is {mtu} bytes; raise it with -m, up to {MTU_MAX}"
                ));
            }
            changes.push(format!(" Max msg size in RawEth is MTU {mtu}\n Changing msg size to this MTU"));
            settings.size = mtu;
        } else if settings.size < FRAME_MIN {
            changes.push(format!(
                " Min msg size for RawEth is {FRAME_MIN}B - changing msg size to {FRAME_MIN} "
            ));
            settings.size = FRAME_MIN;
        }

        let (from_to, sent_ports) = match role {
            Role::Server => (ips, ports),
            Role::Client => (ips.map(|(one, two)| (two, one)), ports.map(|(one, two)| (two, one))),
        };
        // Nobody answers a multicast.
        let sent_ports = sent_ports.map(|(from, to)| if options.raw_mcast { (0, to) } else { (from, to) });
        let pcp = options.vlan_pcp.unwrap_or(1) as u8;
        let headers = Headers {
            source: own,
            destination: to,
            ethertype: options.ethertype,
            vlan: (options.vlan || options.vlan_pcp.is_some()).then_some(pcp),
            ip: from_to,
            tos: options.base.tos.unwrap_or(0) as u8,
            hop_limit: options.base.hop_limit.unwrap_or(64) as u8,
            flow_labels: options.base.flow_label.iter().map(|label| *label as u32).collect(),
            ports: sent_ports,
            tcp: options.tcp,
        };
        let least = headers.bytes() as u64 + CHECK_BYTES;
        if settings.size < least {
            return Err(format!(
                "-s {}: the headers alone take {least} bytes: give at least {least}",
                settings.size
            ));
        }
        let flows = Flows { count: options.flows, burst: options.flows_burst };
        check_flows(&settings, flows, ports, spread.is_some())?;
        Ok(Self {
            settings,
            role,
            mtu,
            headers,
            own,
            ips,
            ports,
            flows,
            promiscuous: options.promiscuous,
            sniffer: options.sniffer,
            spread,
            multicast,
            changes,
        })
    }

    /// Whether this end sends.
    #[must_use]
    pub fn sends(&self) -> bool {
        self.role == Role::Client || self.receives_too()
    }

    /// Whether this end receives.
    #[must_use]
    pub fn receives(&self) -> bool {
        self.role == Role::Server || self.receives_too()
    }

    fn receives_too(&self) -> bool {
        self.settings.bidirectional || self.settings.test.kind != Kind::Bandwidth
    }
}

/// The options that give ports.
const PORTS: &str = "-K and -k (or --local_port and --remote_port)";

/// What `-G` hashes, of which the frames that come must have some.
fn hashed(
    role: Role,
    queues: &mut u64,
    ips: Option<(IpAddr, IpAddr)>,
    ports: Option<(u16, u16)>,
    tcp: bool,
) -> Result<HashFields, String> {
    if role == Role::Client {
        return Err("-G is supported only with --server".into());
    }
    let addresses = match ips {
        None => {
            return Err(
                "-G requires IP addresses to hash: give -J and -j, or --local_ip and --remote_ip".into()
            );
        }
        Some((IpAddr::V4(_), _)) => HashFields::SRC_IPV4 | HashFields::DST_IPV4,
        Some((IpAddr::V6(_), _)) => HashFields::SRC_IPV6 | HashFields::DST_IPV6,
    };
    // As the original has it.
    *queues = (*queues).max(2);
    if !queues.is_power_of_two() {
        return Err(format!("-q {queues} with -G: the number of RSS queues must be a power of two"));
    }
    let ports = match (ports, tcp) {
        (None, _) => HashFields::empty(),
        (Some(_), true) => HashFields::SRC_PORT_TCP | HashFields::DST_PORT_TCP,
        (Some(_), false) => HashFields::SRC_PORT_UDP | HashFields::DST_PORT_UDP,
    };
    Ok(addresses | ports)
}

fn check_flows(
    settings: &Settings,
    flows: Flows,
    ports: Option<(u16, u16)>,
    spread: bool,
) -> Result<(), String> {
    let qps = settings.qps as u64;
    if flows.count == 1 && flows.burst > 1 {
        return Err("--flows_burst requires --flows".into());
    }
    if qps > 1 && ports.is_none() && !spread {
        return Err(format!("-q {qps} requires {PORTS}: steering rules select the QP by port"));
    }
    if flows.count > 1 {
        if ports.is_none() {
            return Err(format!("--flows {} requires {PORTS}: flows differ in their ports", flows.count));
        }
        if settings.bidirectional {
            return Err("--flows with -b: flows are one-way; give only one of them".into());
        }
        if let Extent::Iterations(iterations) = settings.extent
            && iterations < flows.count * flows.burst
        {
            return Err(format!(
                "-n {iterations} is less than one round of --flows {} x --flows_burst {}: give at least their product",
                flows.count, flows.burst
            ));
        }
    }
    if let Some((server, client)) = ports {
        let last = u64::from(server.max(client)) + flows.count * qps - 1;
        if last > 65535 {
            return Err(format!(
                "--flows {} and -q {qps} need ports up to {last}, above 65535: lower them, or -K and -k",
                flows.count
            ));
        }
    }
    Ok(())
}

/// The server's and the client's addresses and ports.
type Ends = (Option<(IpAddr, IpAddr)>, Option<(u16, u16)>);

fn ends(role: Role, options: &RawOptions) -> Result<Ends, String> {
    let named = options.local_ip.is_some()
        || options.remote_ip.is_some()
        || options.local_port.is_some()
        || options.remote_port.is_some();
    let sided = options.dest_ip.is_some()
        || options.source_ip.is_some()
        || options.dest_port.is_some()
        || options.source_port.is_some();
    if named && sided {
        return Err("give --local_ip, --remote_ip and their ports, or -J, -j, -K and -k, but not both".into());
    }
    let turned = named && role == Role::Client;
    let (whose, ip_names, port_names, ips, ports) = if named {
        let ips = (options.local_ip, options.remote_ip);
        let ports = (options.local_port, options.remote_port);
        (
            ["this end's", "the other end's"],
            ["--local_ip", "--remote_ip"],
            ["--local_port", "--remote_port"],
            ips,
            ports,
        )
    } else {
        let ips = (options.dest_ip, options.source_ip);
        let ports = (options.dest_port, options.source_port);
        (["the server's", "the client's"], ["-J", "-j"], ["-K", "-k"], ips, ports)
    };
    let examples = if options.raw_ipv6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
    let ips = both(ip_names, turned, ips, whose.map(|whose| format!("{whose} IP address")), examples)?;
    for address in ips.iter().flat_map(|(one, two)| [one, two]) {
        match (address, options.raw_ipv6) {
            (IpAddr::V6(_), false) => {
                return Err(format!("{address} is an IPv6 address: give --raw_ipv6 too"));
            }
            (IpAddr::V4(_), true) => {
                return Err(format!("{address} is an IPv4 address, but --raw_ipv6 requires IPv6"));
            }
            _ => {}
        }
    }
    let ports =
        both(port_names, turned, ports, whose.map(|whose| format!("{whose} port")), ["5000", "6000"])?;
    if ports.is_some() && ips.is_none() {
        let ([one, two], [ip, other_ip]) = (port_names, ip_names);
        return Err(format!("{one} and {two} require IP addresses: give {ip} and {other_ip}"));
    }
    Ok((ips, ports))
}

/// Two options that are of use together alone, and what each is; `turned`, the second first.
fn both<T: std::fmt::Display>(
    names: [&str; 2],
    turned: bool,
    options: (Option<T>, Option<T>),
    whats: [String; 2],
    examples: [&str; 2],
) -> Result<Option<(T, T)>, String> {
    let missing = |there: usize, value: T| {
        let (has, lacks) = (names[there], names[1 - there]);
        let (what, example) = (&whats[1 - there], examples[1 - there]);
        Err(format!("{has} {value} requires {lacks}, {what}: give both, such as {lacks} {example}"))
    };
    match options {
        (None, None) => Ok(None),
        (Some(one), Some(two)) => Ok(Some(if turned { (two, one) } else { (one, two) })),
        (Some(value), None) => missing(0, value),
        (None, Some(value)) => missing(1, value),
    }
}

/// What other tests have and these have not.
fn refuse(kind: Kind, options: &RawOptions) -> Result<(), String> {
    let name = program(Test { verb: Verb::Send, kind }, Connection::RawEth);
    let base = &options.base;
    let latency = kind != Kind::Bandwidth;
    let wrong = [
        (
            base.host.is_some(),
            Unsupported("a host name", "the two ends do not connect; give --server or --client instead"),
        ),
        (base.all, Unsupported("-a", "only one frame size per run is supported")),
        (base.connection != Connection::Rc, Unsupported("-c", "it always uses raw packet QPs")),
        (
            base.gid_index.is_some() || base.ipv6,
            Unsupported("-x or --ipv6", "raw frames have no GID; use --raw_ipv6 for IPv6 headers"),
        ),
        (base.use_srq, Unsupported("--use-srq", "raw packet QPs have no shared receive queue")),
        (base.reversed, Unsupported("--reversed", "--client sends and --server receives")),
        (base.report_both, Unsupported("--report-both", "the two ends do not exchange results")),
        (
            base.pin_cores.is_some() || base.numa_node.is_some(),
            Unsupported("--pin_cores or --numa_node", "the CPUs are chosen by the EAL option -l"),
        ),
        (
            !base.flow_label.is_empty() && !options.raw_ipv6,
            Requires("--flow_label", "IPv6 headers, --raw_ipv6"),
        ),
        (base.odp, Unsupported("--odp", "raw packet QPs use pinned memory alone")),
        (base.dont_xchg_versions, Unsupported("--dont_xchg_versions", "the two ends exchange no settings")),
        (options.use_rss && latency, Unsupported("-G", "only bandwidth tests support it")),
        (
            options.use_rss && (base.bidirectional || options.mac_fwd),
            Conflict("-G", "-b or -v", "it only receives"),
        ),
        (options.raw_mcast && latency, Unsupported("--raw_mcast", "only bandwidth tests support it")),
        (
            options.raw_mcast && (base.bidirectional || options.mac_fwd),
            Conflict("--raw_mcast", "-b or -v", "multicast is one-way"),
        ),
        (
            options.mac_fwd && base.use_hugepages,
            Conflict("-v", "--use_hugepages", "frames wait in memory of another kind to be forwarded"),
        ),
        (options.mac_fwd && latency, Unsupported("-v", "only bandwidth tests support it")),
        (
            options.mac_fwd && (base.seconds.is_some() || base.run_infinitely),
            Conflict("-v", "-D", "it forwards a fixed number of frames, -n"),
        ),
        (
            options.mac_fwd && base.rate_limit_type == RateLimitType::Pacing,
            Conflict("-v", "--rate_limit_type PP", "it forwards what comes"),
        ),
        (options.mac_fwd && base.qp > 1, Conflict("-v", "-q", "it forwards on one QP")),
        (
            options.tcp && options.dest_port.or(options.local_port).is_none(),
            Requires("--tcp", "ports: -K and -k, or --local_port and --remote_port"),
        ),
        (
            options.ethertype.is_some() && (options.dest_ip.is_some() || options.local_ip.is_some()),
            Conflict("-Y", "IP addresses", "the EtherType is that of IP"),
        ),
    ];
    Refusal::first(name, wrong)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use pollux_verbs::FlowSpec;

    use super::*;
    use crate::perftest::raw::rule;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: RawOptions,
    }

    fn planned(kind: Kind, line: &str) -> Result<Plan, String> {
        let words = std::iter::once("test").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        Plan::new(kind, line.options)
    }

    const MACS: &str = "-B 02:00:00:00:00:01 -E 02:00:00:00:00:02";

    #[test]
    fn defaults_are_perftests() {
        let plan = planned(Kind::Bandwidth, &format!("--client {MACS}")).unwrap();
        let settings = &plan.settings;
        assert_eq!((settings.size, settings.tx_depth, settings.cq_mod, plan.mtu), (1518, 128, 1, 1518));
        assert_eq!(settings.program(), "raw_ethernet_bw");
        assert!(plan.sends() && !plan.receives() && plan.changes.len() == 1);
        let plan = planned(Kind::Latency, &format!("--server {MACS}")).unwrap();
        assert_eq!((plan.settings.size, plan.settings.inline, plan.settings.tx_depth), (64, 236, 1));
        assert!(plan.sends() && plan.receives());
        let plan = planned(Kind::LatencyUnderLoad, &format!("--client {MACS}")).unwrap();
        let settings = &plan.settings;
        assert_eq!((settings.size, settings.inline, settings.tx_depth), (64, 0, 128));
        assert_eq!((settings.burst(), settings.options.reply_every), (128, 1));
        assert_eq!(settings.program(), "raw_ethernet_burst_lat");
        assert!(plan.sends() && plan.receives());
    }

    #[test]
    fn local_and_remote_are_the_same_ends() {
        let sides = "-J 10.0.0.1 -j 10.0.0.2 -K 1000 -k 2000";
        for (role, names) in [
            ("--server", "--local_ip 10.0.0.1 --remote_ip 10.0.0.2 --local_port 1000 --remote_port 2000"),
            ("--client", "--local_ip 10.0.0.2 --remote_ip 10.0.0.1 --local_port 2000 --remote_port 1000"),
        ] {
            let one = planned(Kind::Bandwidth, &format!("{role} {MACS} {sides}")).unwrap();
            let two = planned(Kind::Bandwidth, &format!("{role} {MACS} {names}")).unwrap();
            assert_eq!((one.ips, one.ports, one.headers), (two.ips, two.ports, two.headers), "{role}");
        }
    }

    #[test]
    fn a_server_takes_frames_of_its_flow_labels_alone() {
        let line = format!("{MACS} --raw_ipv6 -J ::1 -j ::2 -K 1 -k 2 --flows 3 --flow_label 5,0x12345");
        let labels = |role: &str, flow| {
            let plan = planned(Kind::Bandwidth, &format!("{role} {line}")).unwrap();
            let specs = rule::specs(&plan, flow);
            let found = specs.iter().find_map(|spec| match spec {
                FlowSpec::Ipv6 { value, mask, .. } => Some((value.flow_label.get(), mask.flow_label.get())),
                _ => None,
            });
            (found.expect("IPv6"), plan.headers.flow_label(flow))
        };
        assert_eq!(labels("--server", 0), ((5, 0xf_ffff), Some(5)));
        assert_eq!(labels("--server", 1), ((0x12345, 0xf_ffff), Some(0x12345)));
        assert_eq!(labels("--server", 2), ((5, 0xf_ffff), Some(5)));
        // Of two that both send, the client looks at the addresses' kind alone.
        assert_eq!(labels("--client", 1), ((0, 0), Some(0x12345)));
    }

    #[test]
    fn what_does_not_go_together_is_one_line() {
        use Kind::{Bandwidth, Latency, LatencyUnderLoad};
        for (kind, line, expected) in [
            (Bandwidth, "-B 02:00:00:00:00:01", "choose one of --server and --client"),
            (Bandwidth, "--server --client -B 02:00:00:00:00:01", "choose one of --server and --client"),
            (Bandwidth, "--client -E 02:00:00:00:00:01", "-B is missing"),
            (Bandwidth, "--client -B 02:00:00:00:00:01", "-E is missing"),
            (Latency, "--server -B 02:00:00:00:00:01", "-E is missing"),
            (Bandwidth, "--client -B 02:00:00:00:00 -E 1", "is not a MAC address, such as 02:00"),
            (
                Bandwidth,
                "--client MACS -J 10.0.0.1",
                "-J 10.0.0.1 requires -j, the client's IP address: give both, such as -j 10.0.0.2",
            ),
            (Bandwidth, "--client MACS -K 5 -k 6", "-K and -k require IP addresses: give -J and -j"),
            (
                Bandwidth,
                "--client MACS --remote_ip 10.0.0.1",
                "--remote_ip 10.0.0.1 requires --local_ip, this end's IP address: give both, such as --local_ip 10.0.0.1",
            ),
            (
                Bandwidth,
                "--client MACS --local_port 5 --remote_port 6",
                "--local_port and --remote_port require IP addresses: give --local_ip and --remote_ip",
            ),
            (Bandwidth, "--client MACS --local_ip 1.1.1.1 -J 1.1.1.1", "but not both"),
            (Bandwidth, "--client MACS -J 10.0.0.1 -j ::1", "::1 is an IPv6 address: give --raw_ipv6 too"),
            (Bandwidth, "--client MACS --raw_ipv6 -J 10.0.0.1 -j ::1", "10.0.0.1 is an IPv4 address"),
            (Bandwidth, "--client MACS --tcp", "--tcp requires ports: -K and -k"),
            (Bandwidth, "--client MACS -s 2000", "-s 2000: the maximum frame size is 1518"),
            (Bandwidth, "--client MACS -m 20000", "-m 20000: the maximum frame size must be from 64 to 9600"),
            (Bandwidth, "--client MACS -q 2", "-q 2 requires -K and -k"),
            (Bandwidth, "--client MACS --flows 4", "--flows 4 requires -K and -k"),
            (Bandwidth, "--client MACS --flows_burst 4", "--flows_burst requires --flows"),
            (
                Bandwidth,
                "--client MACS -J 1.1.1.1 -j 1.1.1.2 -K 65535 -k 1 --flows 2",
                "need ports up to 65536",
            ),
            (Bandwidth, "--client MACS -a", "-a is not supported by raw_ethernet_bw"),
            (Bandwidth, "--client MACS --flow_label 5", "--flow_label requires IPv6 headers, --raw_ipv6"),
            (
                Latency,
                "--client MACS --reply_every 2",
                "--reply_every is not supported by raw_ethernet_lat: every",
            ),
            (Bandwidth, "--client MACS -G", "-G is supported only with --server"),
            (Bandwidth, "--server MACS -G", "-G requires IP addresses to hash: give -J and -j"),
            (
                Bandwidth,
                "--server MACS -G -q 3 -J 1.1.1.1 -j 1.1.1.2",
                "-q 3 with -G: the number of RSS queues must be a power of two",
            ),
            (Bandwidth, "--server MACS -G -b", "-G cannot be combined with -b or -v: it only receives"),
            (Latency, "--server MACS -G", "-G is not supported by raw_ethernet_lat"),
            (Bandwidth, "--client MACS -Y 0x12", "is not an ethertype"),
            (Bandwidth, "--client MACS --raw_mcast", "--raw_mcast requires -J and -j"),
            (
                Bandwidth,
                "--client MACS --raw_mcast -J 10.0.0.1 -j 10.0.0.2",
                "-J 10.0.0.1 is not a multicast",
            ),
            (Latency, "--client MACS -v", "-v is not supported by raw_ethernet_lat: only bandwidth"),
            (
                Bandwidth,
                "--client MACS -s 64 --raw_ipv6 -J ::1 -j ::2 -K 1 -k 2 --tcp",
                "-s 64: the headers alone take 78 bytes",
            ),
            (Bandwidth, "--client MACS 127.0.0.1", "a host name is not supported by raw_ethernet_bw"),
            (Bandwidth, "--client MACS --local_port 5 -K 6", "but not both"),
            (LatencyUnderLoad, "--server -B 02:00:00:00:00:01", "-E is missing"),
            (LatencyUnderLoad, "--client MACS -b", "-b is not supported by raw_ethernet_burst_lat"),
            (LatencyUnderLoad, "--client MACS -q 2", "-q is not supported by raw_ethernet_burst_lat"),
            (LatencyUnderLoad, "--server MACS -v", "-v is not supported by raw_ethernet_burst_lat"),
            (
                LatencyUnderLoad,
                "--client MACS -D 5",
                "-D is not supported by raw_ethernet_burst_lat: it sends",
            ),
            (LatencyUnderLoad, "--client MACS -e", "-e is not supported by raw_ethernet_burst_lat: it polls"),
            (LatencyUnderLoad, "--client MACS --latency_gap 1", "--latency_gap is not supported by"),
            (LatencyUnderLoad, "--client MACS --cpu_util", "--cpu_util is not supported by"),
            (
                LatencyUnderLoad,
                "--client MACS --rate_limit 1 --rate_limit_type HW",
                "--rate_limit_type HW is not supported by raw_ethernet_burst_lat: Ethernet ports",
            ),
            (
                LatencyUnderLoad,
                "--client MACS --rate_limit 1 --rate_limit_type PP",
                "--rate_limit_type PP requires --rate_units M",
            ),
            (Bandwidth, "--client MACS --rate_limit_type PP", "--rate_limit_type PP requires --rate_limit"),
            (
                Bandwidth,
                "--client MACS --rate_limit 1 --rate_units M --rate_limit_type PP --burst_size 4",
                "--rate_limit_type PP cannot be combined with --burst_size: the device",
            ),
            (
                Bandwidth,
                "--client MACS -v --rate_limit 1 --rate_units M --rate_limit_type PP",
                "-v cannot be combined with --rate_limit_type PP: it forwards what comes",
            ),
            (
                LatencyUnderLoad,
                "--client MACS -n 39 --reply_every 10",
                "-n 39 with --reply_every 10 leaves too few answers to measure: give -n at least 40",
            ),
            (LatencyUnderLoad, "--client MACS -w 1", "-w or -y is not supported by raw_ethernet_burst_lat"),
            (Bandwidth, "--client MACS --burst_size 4", "--burst_size requires --rate_limit"),
        ] {
            let error = planned(kind, &line.replace("MACS", MACS)).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
