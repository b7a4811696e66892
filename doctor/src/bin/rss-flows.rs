//! `rss-flows`: flows that spread over the receive queues of a port, one for each.

use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use pollux_doctor::rss_flows::{self, Flow, FlowError, FlowSearch, Key, Network};
use serde::Serializer;

/// Print flows that spread over the receive queues of a port (RSS), one for each queue.
///
/// Options and output are those of DPDK's dpdk-rss-flows.py, but for the default key: that of Pollux's mlx5 driver. Exit status: 0 if each queue
/// has a flow, 1 if one has none, 2 for a mistake on the command line.
#[derive(Parser)]
#[command(name = "rss-flows", version, infer_long_args = true)]
struct Cli {
    /// Number of receive queues
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    rx_queues: u16,
    /// Source address or network: 10.0.0.1, 10.0.0.0/24, 2001:db8::/64
    src: Network,
    /// Destination address or network
    dst: Network,
    /// Source port of TCP or UDP, or a range of them, END left out. Without ports, the addresses alone are hashed
    #[arg(long, short, value_name = "PORT|START-END", value_parser = rss_flows::ports, default_value = "0")]
    sport_range: Range<u32>,
    /// Destination port of TCP or UDP, or a range of them, END left out
    #[arg(long, short, value_name = "PORT|START-END", value_parser = rss_flows::ports, default_value = "0")]
    dport_range: Range<u32>,
    /// Packets that answer get one queue each, too
    #[arg(long, short = 'r')]
    check_reverse_traffic: bool,
    /// Key of the hash, and with it the size of the table: of a driver (pollux, its mlx5; mlx, intel, ixgbe, i40e, cnxk, DPDK's), or 40 to 52 bytes
    /// in hexadecimal digits, with a table of 128
    #[arg(long, short = 'k', value_name = "KEY", default_value = "pollux")]
    rss_key: Key,
    /// Entries of the redirection table (RETA), a power of two [default: as the driver has]
    #[arg(long, short = 't', value_name = "ENTRIES")]
    reta_size: Option<u32>,
    /// Print all flows of these addresses and ports, each with its queue
    #[arg(long, short)]
    all_flows: bool,
    /// Print JSON
    #[arg(long, short)]
    json: bool,
    /// Print key and size of the table first
    #[arg(long, short, conflicts_with = "json")]
    info: bool,
}

/// Status for a mistake on the command line, as clap's.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let search = FlowSearch {
        src_ports: cli.sport_range.clone(),
        dst_ports: cli.dport_range.clone(),
        both_ways: cli.check_reverse_traffic,
        table: cli.reta_size.unwrap_or_else(|| cli.rss_key.table(cli.rx_queues)),
        key: cli.rss_key,
        ..FlowSearch::new(cli.rx_queues, cli.src, cli.dst)
    };
    let info = cli.info.then(|| format!("RSS key:     {}\nRETA size:   {}\n\n", search.key, search.table));
    let form = Form {
        json: cli.json,
        info: info.unwrap_or_default(),
        columns: Columns { ports: search.hashes_ports(), reverse: cli.check_reverse_traffic },
    };
    let refused = |error: FlowError| {
        eprintln!("rss-flows: {error}");
        ExitCode::from(USAGE)
    };
    let mut without = Vec::new();
    let written = if cli.all_flows {
        match search.all() {
            Ok(flows) => print(flows, &form),
            Err(error) => return refused(error),
        }
    } else {
        match search.run() {
            Ok(found) => {
                without = found.without;
                print(found.flows.into_iter(), &form)
            }
            Err(error) => return refused(error),
        }
    };
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("rss-flows: cannot write to standard output: {error}");
            return ExitCode::FAILURE;
        }
        Err(_) => return ExitCode::SUCCESS,
        Ok(()) => {}
    }
    if without.is_empty() {
        return ExitCode::SUCCESS;
    }
    let without = without.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    eprintln!(
        "rss-flows: no flow found for queues {without}: give larger networks, or ranges of ports (-s, -d)"
    );
    ExitCode::FAILURE
}

/// What of a flow the table shows.
#[derive(Clone, Copy)]
struct Columns {
    ports: bool,
    reverse: bool,
}

impl Columns {
    /// A row of the words that are shown, in their order.
    fn pick(
        self,
        src: String,
        sport: String,
        dst: String,
        dport: String,
        queue: String,
        back: String,
    ) -> Vec<String> {
        let ports = |port: String| self.ports.then_some(port);
        let all =
            [Some(src), ports(sport), Some(dst), ports(dport), Some(queue), self.reverse.then_some(back)];
        all.into_iter().flatten().collect()
    }

    fn head(self) -> Vec<String> {
        let [src, sport, dst, dport, queue, back] =
            ["SRC_IP", "SPORT", "DST_IP", "DPORT", "QUEUE", "QUEUE_REVERSE"].map(str::to_owned);
        self.pick(src, sport, dst, dport, queue, back)
    }

    fn row(self, flow: &Flow) -> Vec<String> {
        self.pick(
            flow.src_ip.to_string(),
            flow.src_port.to_string(),
            flow.dst_ip.to_string(),
            flow.dst_port.to_string(),
            flow.queue.to_string(),
            flow.queue_reverse.to_string(),
        )
    }
}

/// How flows are printed.
struct Form {
    json: bool,
    /// What stands before a table.
    info: String,
    columns: Columns,
}

fn print(flows: impl Iterator<Item = Flow> + Clone, form: &Form) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if form.json {
        serde_json::Serializer::pretty(&mut out).collect_seq(flows)?;
        writeln!(out)?;
    } else {
        out.write_all(form.info.as_bytes())?;
        table(&mut out, flows, form.columns)?;
    }
    out.flush()
}

/// Columns as wide as their widest word, with four spaces between them.
fn table(
    out: &mut impl Write,
    flows: impl Iterator<Item = Flow> + Clone,
    columns: Columns,
) -> io::Result<()> {
    let head = columns.head();
    // Looked at twice, and not kept: there may be millions.
    let mut widths: Vec<usize> = head.iter().map(String::len).collect();
    for flow in flows.clone() {
        for (width, word) in widths.iter_mut().zip(columns.row(&flow)) {
            *width = word.len().max(*width);
        }
    }
    // Nothing behind the last word.
    if let Some(last) = widths.last_mut() {
        *last = 0;
    }
    for row in [head].into_iter().chain(flows.map(|flow| columns.row(&flow))) {
        let words: Vec<String> =
            row.iter().zip(&widths).map(|(word, &width)| format!("{word:<width$}")).collect();
        writeln!(out, "{}", words.join("    "))?;
    }
    Ok(())
}
