//! The lines that perftest prints, as it prints them.
//!
//! Source: linux-rdma/perftest `src/perftest_parameters.{c,h}` (`RESULT_FMT`, `REPORT_FMT`, `ctx_print_test_info`) and
//! `src/perftest_communication.{c,h}` (`BASIC_ADDR_FMT`, `PERF_GID_FMT`).

use std::fmt::Write;

use super::options::Connection;
use super::settings::{Extent, Kind, Settings, Verb};
use super::statistic::Latency;
use crate::exchange::perftest::{Keys, Results};

/// The line between parts.
pub const RULE: &str =
    "---------------------------------------------------------------------------------------\n";

/// The same where each port has columns of its own.
const RULE_PER_PORT: &str = "-------------------------------------------------------------------------------------------------------------------------------------------------------------------\n";

/// The line around the rows of a test.
#[must_use]
pub fn rule(settings: &Settings) -> &'static str {
    if settings.options.report_per_port { RULE_PER_PORT } else { RULE }
}

/// Below this many Gbit/s, more digits are shown.
const SLOW: f64 = 0.1;

/// What the test info tells beside the settings.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The device's name.
    pub device: &'a str,
    /// Whether this end sends.
    pub sends: bool,
    /// Whether this end receives what takes a posted receive.
    pub receives: bool,
    /// Path MTU in bytes.
    pub mtu: u32,
    /// The GID's index, and that at the second port of `-O`.
    pub gid_indices: [u32; 2],
    /// READs or atomics under way at once.
    pub outs: u32,
    /// Bytes of memory that frames wait in to be sent back.
    pub forwarded: Option<usize>,
}

/// What the test is called.
#[must_use]
pub fn title(settings: &Settings) -> String {
    let verb = match (settings.test.verb, settings.imm) {
        (Verb::Send, false) => "Send",
        (Verb::Send, true) => "Send_imm",
        (Verb::Write, false) => "RDMA_Write",
        (Verb::Write, true) => "RDMA_Write_imm",
        (Verb::Read, _) => "RDMA_Read",
        (Verb::Atomic, _) => "Atomic",
    };
    let mut words = vec![verb];
    if settings.test.verb == Verb::Atomic {
        words.push(settings.atomic.name());
    }
    match settings.test.kind {
        Kind::Latency => words.push("Latency"),
        // As the original, which has no word for it.
        Kind::LatencyUnderLoad => {}
        Kind::Bandwidth => {
            if settings.bidirectional {
                words.push("Bidirectional");
            }
            if settings.post_list > 1 {
                words.push("Post List");
            }
            words.push("BW");
        }
    }
    if settings.forwards {
        words.push("forwarding");
    }
    if settings.options.mcg {
        words.push("Multicast");
    }
    words.push("Test");
    words.join(" ")
}

/// The head of a test's output.
#[must_use]
pub fn test_info(settings: &Settings, facts: &Facts<'_>) -> String {
    let on = |on: bool| if on { "ON" } else { "OFF" };
    let mut text = format!("{RULE}                    {}\n", title(settings));
    let mut line = |line: std::fmt::Arguments<'_>| {
        let _ = writeln!(text, " {line}");
    };
    if settings.options.events {
        line(format_args!("Test with events. Using {}_comp0", facts.device));
    }
    if settings.options.mcg {
        line(format_args!("MultiCast runs on UD!"));
    }
    let dual = on(settings.options.dualport);
    line(format_args!("Dual-port       : {dual}\t\tDevice         : {}", facts.device));
    line(format_args!("Number of qps   : {}\t\tTransport type : IB", settings.queue_pairs()));
    let (connection, srq) = (settings.connection.name(), on(settings.options.use_srq));
    line(format_args!("Connection type : {connection}\t\tUsing SRQ      : {srq}"));
    line(format_args!("PCIe relax order: OFF\t\tLock-free      : ON"));
    // As the original, which posts frames in the older way.
    let newer = on(settings.connection != Connection::RawEth);
    line(format_args!("ibv_wr* API     : {newer}\t\tUsing Enhanced Reorder      : OFF"));
    if facts.sends {
        line(format_args!("TX depth        : {}", settings.tx_depth));
    }
    if settings.post_list > 1 {
        line(format_args!("Post List       : {}", settings.post_list));
    }
    if settings.recv_post_list > 1 {
        line(format_args!("Recv Post List  : {}", settings.recv_post_list));
    }
    if facts.receives {
        line(format_args!("RX depth        : {}", settings.rx_depth));
    }
    if settings.test.kind == Kind::Bandwidth {
        line(format_args!("CQ Moderation   : {}", settings.cq_mod));
    }
    line(format_args!("Mtu             : {}[B]", facts.mtu));
    line(format_args!("Link type       : Ethernet"));
    if let Some(bytes) = facts.forwarded {
        line(format_args!("Buffer size     : {bytes}[B]"));
    }
    line(format_args!("GID index       : {}", facts.gid_indices[0]));
    if settings.options.dualport {
        line(format_args!("GID index2      : {}", facts.gid_indices[1]));
    }
    if matches!(settings.test.verb, Verb::Read | Verb::Atomic) {
        line(format_args!("Outstand reads  : {}", facts.outs));
    } else {
        line(format_args!("Max inline data : {}[B]", settings.inline));
    }
    line(format_args!("rdma_cm QPs\t : {}", if settings.options.rdma_cm { "ON" } else { "OFF" }));
    let exchange = if settings.by_address() { "rdma_cm" } else { "Ethernet" };
    match settings.options.tos.filter(|_| settings.options.rdma_cm) {
        Some(tos) => line(format_args!("Data ex. method : {exchange} \tTOS    : {tos}")),
        None => line(format_args!("Data ex. method : {exchange}")),
    }
    text.push_str(RULE);
    text
}

/// C's `%#0WIDTHx`: a zero has no `0x`.
fn hexadecimal(value: u64, width: usize) -> String {
    if value == 0 { format!("{value:0width$}") } else { format!("{value:#0width$x}") }
}

/// One end of a queue pair; `whose` is `local` or `remote`.
#[must_use]
pub fn address(whose: &str, verb: Verb, connection: Connection, keys: &Keys) -> String {
    let number = |value: u32| hexadecimal(value.into(), 6);
    let mut text = format!(
        " {whose} address: LID {} QPN {} PSN {}",
        hexadecimal(keys.lid.into(), 4),
        number(keys.qpn),
        number(keys.psn)
    );
    let _ = match verb {
        Verb::Read => write!(text, " OUT {}", hexadecimal(keys.out_reads.into(), 4)),
        Verb::Write => {
            write!(text, " RKey {} VAddr {}", hexadecimal(keys.rkey.into(), 8), hexadecimal(keys.address, 16))
        }
        Verb::Send | Verb::Atomic => Ok(()),
    };
    if connection == Connection::Xrc {
        let _ = write!(text, " SRQn {}", hexadecimal(keys.srqn.into(), 8));
    }
    text.push('\n');
    if let Some(gid) = keys.gid {
        let bytes: Vec<String> = gid.iter().map(|byte| format!("{byte:02}")).collect();
        let _ = writeln!(text, " GID: {}", bytes.join(":"));
    }
    text
}

/// The columns' names.
#[must_use]
pub fn columns(settings: &Settings) -> String {
    let names = match (settings.test.kind, settings.extent) {
        (Kind::Bandwidth, _) if settings.options.report_gbits => {
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
        }
        (Kind::Bandwidth, _) => {
            " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]"
        }
        (Kind::Latency | Kind::LatencyUnderLoad, Extent::Iterations(_)) => {
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% \
             percentile[usec]   99.9% percentile[usec] "
        }
        (Kind::Latency | Kind::LatencyUnderLoad, _) => {
            " #bytes        #iterations       t_avg[usec]    tps average"
        }
    };
    let names =
        if settings.options.report_cycles { names.replace("[usec]", "[cycles]") } else { names.into() };
    let cpu = if settings.options.cpu_util { "    CPU_Util[%]" } else { "" };
    let per_port = match (settings.options.report_per_port, settings.options.report_gbits) {
        (false, _) => "",
        (true, false) => {
            "   BW Port1[MiB/sec]   MsgRate Port1[Mpps]   BW Port2[MiB/sec]   MsgRate Port2[Mpps]"
        }
        (true, true) => "   BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]",
    };
    format!("{names}{per_port}{cpu}\n")
}

fn ended(row: String, cpu: Option<f64>) -> String {
    match cpu {
        Some(share) => format!("{row}\t    {share:<3.2}\n"),
        None => row + "\n",
    }
}

/// A row of a bandwidth test. `cpu` is a share of 100.
#[must_use]
pub fn bandwidth(results: &Results, gigabits: bool, cpu: Option<f64>) -> String {
    let Results { size, iterations, peak, average, rate, by_port } = results;
    ended(
        if let Some([one, two]) = by_port {
            format!(
                " {size:<7}    {iterations:<10}     {peak:<7.2}            {average:<7.2}\t\t   {rate:<7.6}        {:<7.2}            \
                 {:<7.6}              {:<7.2}            {:<7.6}",
                one.average, one.rate, two.average, two.rate
            )
        } else if *average < SLOW && gigabits {
            format!(
                " {size:<7}    {iterations}           {peak:<7.6}            {average:<7.6}            {rate:<7.6}"
            )
        } else {
            format!(
                " {size:<7}    {iterations:<10}       {peak:<7.2}            {average:<7.2}\t\t     {rate:<7.6}"
            )
        },
        cpu,
    )
}

/// A row of a latency test.
#[must_use]
pub fn latency(size: u64, iterations: u64, found: &Latency, cpu: Option<f64>) -> String {
    let Latency { min, max, typical, average, stdev, percentile_99, percentile_99_9 } = found;
    ended(
        format!(
            " {size:<7} {iterations}          {min:<7.2}        {max:<7.2}      {typical:<7.2}  \t       {average:<7.2}     \
             \t{stdev:<7.2}\t\t{percentile_99:<7.2} \t\t{percentile_99_9:<7.2}"
        ),
        cpu,
    )
}

/// A row of a latency test that ran for a time.
#[must_use]
pub fn latency_over_time(
    size: u64,
    iterations: u64,
    average: f64,
    per_second: f64,
    cpu: Option<f64>,
) -> String {
    ended(format!(" {size:<7}       {iterations}            {average:<7.2}        {per_second:<7.2}"), cpu)
}

/// All single results of a latency test.
#[must_use]
pub fn each(durations: &[f64], unit: &str) -> String {
    let mut text = format!("#, {unit}\n");
    for (number, duration) in durations.iter().enumerate() {
        let _ = writeln!(text, "{}, {}", number + 1, general(*duration));
    }
    text
}

/// C's `%g`: six significant digits, no trailing zeros.
fn general(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("digits");
    let trim = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if (-4..6).contains(&exponent) {
        let decimals = usize::try_from(5 - exponent).expect("exponent below six");
        trim(&format!("{value:.decimals$}"))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(digits), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::Options;
    use super::super::settings::Test;
    use super::*;
    use crate::exchange::perftest::PortShare;

    // The expected texts are what C's printf makes of perftest's formats.

    #[test]
    fn rows_are_perftests() {
        let results = Results {
            size: 65536,
            iterations: 1000,
            peak: 1234.5678,
            average: 987.654,
            rate: 0.015802,
            by_port: None,
        };
        assert_eq!(
            bandwidth(&results, false, None),
            " 65536      1000             1234.57            987.65 \t\t     0.015802\n"
        );
        let shares = [(500.0, 0.008), (487.654, 0.007802)];
        let by_port = Some(shares.map(|(average, rate)| PortShare { average, rate }));
        assert_eq!(
            bandwidth(&Results { by_port, ..results }, false, None),
            " 65536      1000           1234.57            987.65 \t\t   0.015802        500.00             0.008000              \
             487.65             0.007802\n"
        );
        let slow = Results {
            size: 2,
            iterations: 1000,
            peak: 0.05,
            average: 0.0412345,
            rate: 2.577156,
            by_port: None,
        };
        assert_eq!(
            bandwidth(&slow, true, Some(12.5)),
            " 2          1000           0.050000            0.041235            2.577156\t    12.50\n"
        );
        let found = Latency {
            min: 1.2,
            max: 10.0,
            typical: 1.31,
            average: 1.4,
            stdev: 0.25,
            percentile_99: 2.0,
            percentile_99_9: 10.0,
        };
        assert_eq!(
            latency(2, 1000, &found, None),
            " 2       1000          1.20           10.00        1.31     \t       1.40        \t0.25   \t\t2.00    \t\t10.00  \n"
        );
        assert_eq!(
            latency_over_time(2, 123_456, 1.5, 333_333.333, None),
            " 2             123456            1.50           333333.33\n"
        );
    }

    #[test]
    fn addresses_are_perftests() {
        let gid = Some([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 2]);
        let keys = Keys {
            qpn: 0x11,
            psn: 0xa3_c9f0,
            rkey: 0x1234,
            address: 0x7f12_a000_1000,
            out_reads: 16,
            gid,
            ..Keys::default()
        };
        let tail = " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:00:00:02\n";
        assert_eq!(
            address("local", Verb::Send, Connection::Rc, &keys),
            format!(" local address: LID 0000 QPN 0x0011 PSN 0xa3c9f0\n{tail}")
        );
        assert_eq!(
            address("remote", Verb::Write, Connection::Uc, &keys),
            format!(
                " remote address: LID 0000 QPN 0x0011 PSN 0xa3c9f0 RKey 0x001234 VAddr 0x007f12a0001000\n{tail}"
            )
        );
        let keys = Keys { gid: None, srqn: 0x21, ..keys };
        assert_eq!(
            address("local", Verb::Send, Connection::Xrc, &keys),
            " local address: LID 0000 QPN 0x0011 PSN 0xa3c9f0 SRQn 0x000021\n"
        );
        assert_eq!(
            address("local", Verb::Read, Connection::Rc, &keys),
            " local address: LID 0000 QPN 0x0011 PSN 0xa3c9f0 OUT 0x10\n"
        );
    }

    #[test]
    fn single_results_are_printed_with_six_digits() {
        // C: printf("%g") of the same values.
        for (value, text) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (1234.5678, "1234.57"),
            (123_456.7, "123457"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_012_345, "1.2345e-05"),
            (999_999.6, "1e+06"),
            (100.0, "100"),
        ] {
            assert_eq!(general(value), text);
        }
        assert_eq!(each(&[1.5, 2.0], "usec"), "#, usec\n1, 1.5\n2, 2\n");
    }

    #[test]
    fn the_head_names_what_runs() {
        let test = Test { verb: Verb::Send, kind: Kind::Bandwidth };
        let options = Options::usual();
        let settings = Settings::new(test, options).expect("nothing typed");
        let facts = Facts {
            device: "mlx5_model0",
            sends: true,
            receives: false,
            mtu: 1024,
            gid_indices: [1, 3],
            outs: 0,
            forwarded: None,
        };
        let text = test_info(&settings, &facts);
        assert!(text.starts_with(&format!(
            "{RULE}                    Send BW Test\n Dual-port       : OFF\t\tDevice"
        )));
        assert!(
            text.contains("\n TX depth        : 128\n CQ Moderation   : 1\n Mtu             : 1024[B]\n"),
            "{text}"
        );
        assert!(columns(&settings).starts_with(" #bytes     #iterations    BW peak[MiB/sec]"));
        assert!(!text.contains("GID index2") && rule(&settings) == RULE);
        let options = Options { dualport: true, report_per_port: true, seconds: Some(4), ..Options::usual() };
        let both = Settings::new(test, options).expect("they go together");
        let text = test_info(&both, &facts);
        assert!(
            text.contains("\n Dual-port       : ON\t\tDevice         : mlx5_model0\n Number of qps   : 2\t")
        );
        assert!(text.contains("\n GID index       : 1\n GID index2      : 3\n"), "{text}");
        assert!(columns(&both).ends_with("   BW Port2[MiB/sec]   MsgRate Port2[Mpps]\n"));
        assert!(rule(&both).len() > RULE.len());
    }
}
