//! The command line: options of DPDK's dpdk-dumpcap, and what of Wireshark's dumpcap makes sense here.
//!
//! Source: DPDK `app/dumpcap/main.c`, `parse_opts`; Wireshark `dumpcap.c`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser};
use pollux_capture::{Layout, SNAPLEN_MAX};
use pollux_config::{LcoreSet, ProcessSpec};

/// Captures the packets of a running program, which names it by its file prefix, into pcapng files.
#[derive(Parser, Debug)]
#[command(
    name = "pollux-dumpcap",
    version,
    disable_version_flag = true,
    after_help = "Use Ctrl-C to stop capturing at any time. docs/dumpcap.md has examples."
)]
pub(crate) struct Cli {
    /// Name or number of a port; given several times, captures from all of them [default: the first port]
    #[arg(short = 'i', long, value_name = "INTERFACE", action = ArgAction::Append)]
    interface: Vec<String>,
    /// Packet filter in tcpdump's syntax, of the -i before it, or before the first -i of all
    #[arg(short = 'f', value_name = "FILTER", id = "filter", action = ArgAction::Append)]
    filter: Vec<String>,
    /// File with a filter as `tcpdump -ddd` prints it, in place of -f
    #[arg(long, value_name = "FILE", id = "filter_code", action = ArgAction::Append)]
    filter_code: Vec<PathBuf>,
    /// Name of the -i before it in the capture file
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    ifname: Vec<String>,
    /// Description of the -i before it in the capture file
    #[arg(long, value_name = "TEXT", action = ArgAction::Append)]
    ifdescr: Vec<String>,
    /// Bytes of each packet that are kept, of the -i before it, or before the first -i of all; 0 keeps all [default: 262144]
    #[arg(short = 's', long = "snapshot-length", value_name = "SNAPLEN", id = "snaplen", action = ArgAction::Append, value_parser = snaplen)]
    snaplen: Vec<u32>,
    /// Leave promiscuous mode as it is: always so, a capture changes nothing of a port
    #[arg(short = 'p', long, action = ArgAction::Count)]
    no_promiscuous_mode: u8,
    /// List the ports and exit
    #[arg(short = 'D', long)]
    pub(crate) list_interfaces: bool,
    /// List the link types of a port and exit
    #[arg(short = 'L', long)]
    pub(crate) list_data_link_types: bool,
    /// Print the BPF code of the filters, as `tcpdump -ddd` does, and exit
    #[arg(short = 'd', id = "code")]
    pub(crate) code: bool,
    /// Print statistics of each port once a second, and capture nothing
    #[arg(short = 'S', id = "statistics")]
    pub(crate) statistics: bool,
    /// Size of the buffer between program and capture, in MiB: a power of two from 1 to 256 [default: 16]
    #[arg(short = 'B', long, value_name = "MIB", value_parser = mebibytes)]
    buffer_size: Option<usize>,
    /// The same, as a number of packets of 2 KiB
    #[arg(short = 'N', value_name = "PACKETS", id = "packets", conflicts_with = "buffer_size", value_parser = clap::value_parser!(u32).range(1..))]
    packets: Option<u32>,
    /// Stop after this many packets
    #[arg(short = 'c', value_name = "COUNT", id = "count", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after duration:SECONDS, filesize:KIB, packets:COUNT or files:COUNT
    #[arg(short = 'a', long, value_name = "CONDITION", action = ArgAction::Append, value_parser = limit)]
    autostop: Vec<Limit>,
    /// Begin the next file after duration:SECONDS, filesize:KIB or packets:COUNT, and keep the last files:COUNT
    #[arg(short = 'b', long, value_name = "CONDITION", action = ArgAction::Append, value_parser = limit)]
    ring_buffer: Vec<Limit>,
    /// File to write, - for standard output [default: a file in --temp-dir]
    #[arg(short = 'w', long, value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,
    /// Let the group read the files
    #[arg(short = 'g', id = "group")]
    pub(crate) group: bool,
    /// Write pcapng (the default)
    #[arg(short = 'n', id = "pcapng", conflicts_with = "pcap")]
    pcapng: bool,
    /// Write pcap, with nanoseconds, in place of pcapng
    #[arg(short = 'P', id = "pcap")]
    pub(crate) pcap: bool,
    /// Comment on the capture, in the file
    #[arg(long, value_name = "COMMENT")]
    pub(crate) capture_comment: Option<String>,
    /// Where files without -w go
    #[arg(long, value_name = "DIRECTORY", default_value = "/tmp")]
    pub(crate) temp_dir: PathBuf,
    /// CPUs to run on
    #[arg(long, value_name = "CPUS")]
    pub(crate) lcore: Option<LcoreSet>,
    /// File prefix of the program
    #[arg(long, value_name = "PREFIX", default_value = "rte", value_parser = prefix)]
    pub(crate) file_prefix: String,
    /// Number of the program, where several have one file prefix: the N behind its telemetry socket's name
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(..=32767))]
    pub(crate) instance: u16,
    /// Do not count packets on standard error
    #[arg(short = 'q', id = "quiet")]
    pub(crate) quiet: bool,
    /// Print the version and exit
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
    /// Of Wireshark's dumpcap; nothing here
    #[arg(short = 'I', long, hide = true)]
    monitor_mode: bool,
    /// Of Wireshark's dumpcap; nothing here
    #[arg(short = 't', hide = true, id = "threads")]
    threads: bool,
    /// Of Wireshark's dumpcap; nothing here
    #[arg(short = 'C', hide = true, id = "bytes", value_name = "BYTES")]
    bytes: Option<u64>,
    /// Of Wireshark's dumpcap; Ethernet is all there is
    #[arg(short = 'y', long, hide = true, value_name = "TYPE")]
    linktype: Option<String>,
}

/// A condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    Duration(Duration),
    Bytes(u64),
    Packets(u64),
    Files(u64),
}

/// When something ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    pub(crate) duration: Option<Duration>,
    pub(crate) bytes: Option<u64>,
    pub(crate) packets: Option<u64>,
    pub(crate) files: Option<u64>,
}

impl Limits {
    fn of(limits: &[Limit]) -> Self {
        let mut all = Self::default();
        for limit in limits {
            match *limit {
                Limit::Duration(duration) => all.duration = Some(duration),
                Limit::Bytes(bytes) => all.bytes = Some(bytes),
                Limit::Packets(packets) => all.packets = Some(packets),
                Limit::Files(files) => all.files = Some(files),
            }
        }
        all
    }

    /// Whether there is a condition by which a file ends.
    pub(crate) fn switches(&self) -> bool {
        self.duration.is_some() || self.bytes.is_some() || self.packets.is_some()
    }
}

/// What filters a port.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    /// tcpdump's syntax.
    Text(String),
    /// A file of numbers.
    Code(PathBuf),
}

/// One -i, and the options that belong to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    /// None: the first port.
    pub(crate) port: Option<String>,
    pub(crate) filter: Option<Filter>,
    pub(crate) snaplen: Option<u32>,
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
}

/// All options.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) cli: Cli,
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) stop: Limits,
    pub(crate) next: Limits,
    pub(crate) ring_bytes: usize,
}

impl Options {
    /// Reads the arguments of the process; what clap refuses ends it.
    pub(crate) fn read() -> Result<Self, String> {
        let matches = Cli::command().get_matches();
        let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        Self::new(cli, &matches)
    }

    fn new(cli: Cli, matches: &ArgMatches) -> Result<Self, String> {
        let wanted = wanted(&cli, matches)?;
        let mut stop = Limits::of(&cli.autostop);
        stop.packets = cli.count.or(stop.packets);
        let next = Limits::of(&cli.ring_buffer);
        if next.files.is_some() && !next.switches() {
            return Err("option '-b': files:COUNT needs duration:, filesize: or packets: beside it".into());
        }
        if stop.files.is_some() && !next.switches() {
            return Err("option '-a': files:COUNT needs '-b' with duration:, filesize: or packets:".into());
        }
        let to_stdout = cli.output_file.as_ref().is_some_and(|path| path.as_os_str() == "-");
        if next.switches() && to_stdout {
            return Err(
                "option '-b': several files cannot go to standard output; name a file with '-w'".into()
            );
        }
        let packets = cli.packets.map(|packets| (packets as usize).saturating_mul(2048));
        let packets =
            packets.map(|bytes| bytes.clamp(Layout::BYTES_MIN, Layout::BYTES_MAX).next_power_of_two());
        let ring_bytes = packets.or(cli.buffer_size).unwrap_or(16 << 20);
        Ok(Self { cli, wanted, stop, next, ring_bytes })
    }

    /// Options that were accepted and mean nothing here.
    pub(crate) fn idle(&self) -> Vec<&'static str> {
        let cli = &self.cli;
        let all = [
            (cli.monitor_mode, "-I"),
            (cli.threads, "-t"),
            (cli.bytes.is_some(), "-C"),
            (cli.linktype.is_some(), "-y"),
        ];
        all.into_iter().filter(|(given, _)| *given).map(|(_, name)| name).collect()
    }
}

/// Gives each option to the -i before it; those before the first are of all.
fn wanted(cli: &Cli, matches: &ArgMatches) -> Result<Vec<Wanted>, String> {
    let places = |id: &str| matches.indices_of(id).into_iter().flatten().collect::<Vec<_>>();
    let interfaces = places("interface");
    let mut common = Wanted::default();
    let mut own: Vec<Wanted> =
        cli.interface.iter().map(|port| Wanted { port: Some(port.clone()), ..Wanted::default() }).collect();
    let of = |place: usize| interfaces.iter().rposition(|interface| *interface < place);
    let filters = cli.filter.iter().cloned().map(Filter::Text).zip(places("filter"));
    let codes = cli.filter_code.iter().cloned().map(Filter::Code).zip(places("filter_code"));
    for (filter, place) in filters.chain(codes) {
        let owner = match of(place) {
            Some(at) => &mut own[at],
            None => &mut common,
        };
        owner.filter = Some(filter);
    }
    for (snaplen, place) in cli.snaplen.iter().zip(places("snaplen")) {
        let owner = match of(place) {
            Some(at) => &mut own[at],
            None => &mut common,
        };
        owner.snaplen = Some(*snaplen);
    }
    for (name, place) in cli.ifname.iter().zip(places("ifname")) {
        let at = of(place).ok_or("option '--ifname' must stand behind the '-i' that it names")?;
        own[at].name = Some(name.clone());
    }
    for (description, place) in cli.ifdescr.iter().zip(places("ifdescr")) {
        let at = of(place).ok_or("option '--ifdescr' must stand behind the '-i' that it describes")?;
        own[at].description = Some(description.clone());
    }
    if own.is_empty() {
        return Ok(vec![common]);
    }
    for wanted in &mut own {
        wanted.filter = wanted.filter.take().or_else(|| common.filter.clone());
        wanted.snaplen = wanted.snaplen.or(common.snaplen);
    }
    Ok(own)
}

fn snaplen(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<u32>().ok().filter(|bytes| *bytes <= SNAPLEN_MAX);
    let bytes = bytes.ok_or_else(|| format!("is not a number of bytes from 0 to {SNAPLEN_MAX}"))?;
    Ok(if bytes == 0 { SNAPLEN_MAX } else { bytes })
}

fn mebibytes(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().and_then(|count: usize| count.checked_mul(1 << 20));
    let bytes = bytes.filter(|bytes| Layout::of_bytes(*bytes).is_some());
    bytes.ok_or_else(|| "is not a power of two from 1 to 256".into())
}

fn prefix(text: &str) -> Result<String, &'static str> {
    ProcessSpec::check_file_prefix(text)?;
    Ok(text.into())
}

fn limit(text: &str) -> Result<Limit, String> {
    let forms = "must be duration:SECONDS, filesize:KIB, packets:COUNT or files:COUNT";
    let (what, value) = text.split_once(':').ok_or(forms)?;
    let count = || {
        let count = value.parse::<u64>().ok().filter(|count| (1..=u64::MAX / 1024).contains(count));
        count.ok_or_else(|| format!("{what} must be a whole number from 1 on"))
    };
    match what {
        "duration" => {
            let seconds = value.parse::<f64>().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 1e9);
            let seconds = seconds.ok_or("duration must be a number of seconds above 0, up to 1000000000")?;
            Ok(Limit::Duration(Duration::from_secs_f64(seconds)))
        }
        "filesize" => Ok(Limit::Bytes(count()? * 1024)),
        "packets" => Ok(Limit::Packets(count()?)),
        "files" => Ok(Limit::Files(count()?)),
        _ => Err(forms.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, String> {
        let words = std::iter::once("pollux-dumpcap").chain(line.split_whitespace());
        let matches = Cli::command().try_get_matches_from(words).map_err(|error| error.to_string())?;
        let cli = Cli::from_arg_matches(&matches).map_err(|error| error.to_string())?;
        Options::new(cli, &matches)
    }

    #[test]
    fn options_belong_to_the_interface_before_them() {
        let options = options(
            "-f tcp -s 96 -p -i 0 -i net_null1 -f udp -s 0 --ifname out --ifdescr x -p -i 2 --filter-code f",
        );
        let wanted = options.expect("good").wanted;
        let text = |text: &str| Some(Filter::Text(text.into()));
        let ports: Vec<_> = wanted.iter().map(|wanted| wanted.port.as_deref().expect("named")).collect();
        assert_eq!(ports, ["0", "net_null1", "2"]);
        assert_eq!((&wanted[0].filter, wanted[0].snaplen), (&text("tcp"), Some(96)));
        assert_eq!((&wanted[1].filter, wanted[1].snaplen), (&text("udp"), Some(SNAPLEN_MAX)));
        assert_eq!((wanted[1].name.as_deref(), wanted[1].description.as_deref()), (Some("out"), Some("x")));
        assert_eq!((&wanted[2].filter, wanted[2].snaplen), (&Some(Filter::Code("f".into())), Some(96)));
    }

    #[test]
    fn without_an_interface_it_is_the_first() {
        let wanted = options("-f arp").expect("good").wanted;
        let expected = Wanted { filter: Some(Filter::Text("arp".into())), ..Wanted::default() };
        assert_eq!(wanted, [expected]);
    }

    #[test]
    fn limits_are_read() {
        let options =
            options("-c 5 -a duration:1.5 -a filesize:2 -b files:3 -b packets:7 -B 4").expect("good");
        let stop = Limits {
            duration: Some(Duration::from_millis(1500)),
            bytes: Some(2048),
            packets: Some(5),
            files: None,
        };
        assert_eq!(options.stop, stop);
        assert_eq!(options.next, Limits { files: Some(3), packets: Some(7), ..Limits::default() });
        assert_eq!(options.ring_bytes, 4 << 20);
        assert_eq!(self::options("-N 1000").expect("good").ring_bytes, 2 << 20);
    }

    #[test]
    fn mistakes_are_told() {
        for (line, part) in [
            ("-b files:3", "needs duration:"),
            ("-a files:3", "needs '-b'"),
            ("-b packets:3 -w -", "standard output"),
            ("--ifname x -i 0", "behind the '-i'"),
            ("--ifdescr x", "behind the '-i'"),
            ("-a speed:3", "must be duration:SECONDS"),
            ("-a duration:0", "above 0"),
            ("-a duration:nan", "above 0"),
            ("-a packets:0", "from 1 on"),
            ("-s 262145", "from 0 to 262144"),
            ("-B 3", "power of two"),
            ("-B 1 -N 5", "cannot be used with"),
            ("--file-prefix a/b", "becomes a file name"),
            ("-c 0", "0 is not in"),
            ("-n -P", "cannot be used with"),
        ] {
            let error = options(line).expect_err("refused");
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
