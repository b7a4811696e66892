//! What is measured, against which bound, and how it is shown.

use std::io::Write;

use serde::Serialize;

use super::bounds::Bound;
use super::processor;

/// One figure of the plan.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    /// Its name, the same on both sides.
    pub(crate) name: &'static str,
    /// Unit of the printed values.
    pub(crate) unit: &'static str,
    /// The cost ratio to reach; none for a figure that is only printed beside another.
    pub(crate) target: Option<f64>,
    /// The most that ours may be, whatever the peer; none where a ratio counts.
    pub(crate) most: Option<f64>,
    /// Who takes it.
    pub(crate) from: Source,
    /// Runs on both cores: the bare hand-over of a cache line is printed beside it.
    pub(crate) two_cores: bool,
    /// A rate: the cost ratio is peer over ours.
    pub(crate) rate: bool,
}

/// Who takes a figure.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// The two pipe servers.
    Server,
    /// Whole programs, ours and the peer's, by the figure's name.
    App,
    /// A program that runs on device models, with no peer.
    Model(&'static Model),
    /// Programs on device models, ours and the peer's, by [`witness`](super::witness).
    Witness,
}

/// A program on device models, which prints a line a figure: its name and its value.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) program: &'static str,
    pub(crate) args: &'static [&'static str],
    /// It takes the name of a figure behind them, and gives that one alone.
    pub(crate) by_name: bool,
    /// Runs at most, where more trials are asked for; each is a trial of all its figures.
    pub(crate) runs: u32,
}

static RXTX32: Model = Model { program: "mlx5_rxtx32", args: &["--trial"], by_name: true, runs: 5 };
/// A process a trial: what is warm already is not opened for the first time.
static START: Model = Model { program: "mlx5_start", args: &["1"], by_name: false, runs: u32::MAX };
/// Each of five runs of a second; it fails where a packet is lost.
static L2FWD: Model = Model { program: "mlx5_l2fwd", args: &["1"], by_name: false, runs: 3 };
static POST: Model = Model { program: "verbs_post", args: &["--trial"], by_name: true, runs: 5 };

pub(crate) const fn cycles(name: &'static str, unit: &'static str, target: f64) -> Plan {
    Plan { name, unit, target: Some(target), most: None, from: Source::Server, two_cores: false, rate: false }
}

const fn two_cores(name: &'static str, target: f64) -> Plan {
    Plan { two_cores: true, ..cycles(name, "cycles/element", target) }
}

const fn program(name: &'static str, unit: &'static str, target: f64) -> Plan {
    Plan { from: Source::App, ..cycles(name, unit, target) }
}

/// The mlx5 driver on the device model: no peer drives that. Bounds are in `benches/bounds.toml`.
const fn mlx5(name: &'static str) -> Plan {
    Plan { target: None, from: Source::Model(&RXTX32), ..cycles(name, "cycles/packet", 0.0) }
}

/// l2fwd between two device models.
const fn l2fwd(name: &'static str) -> Plan {
    Plan { from: Source::Model(&L2FWD), ..mlx5(name) }
}

/// Posting and polling of RDMA requests, on device models too.
const fn verbs(name: &'static str) -> Plan {
    Plan { unit: "cycles/request", from: Source::Model(&POST), ..mlx5(name) }
}

/// Every figure, always in this order.
pub(crate) const PLAN: &[Plan] = &[
    cycles("ring_spsc_same32", "cycles/element", 1.0),
    two_cores("ring_spsc_two1", 0.3),
    two_cores("ring_spsc_two32", 0.8),
    cycles("ring_mpmc_same32", "cycles/element", 1.0),
    two_cores("ring_mpmc_two32", 1.0),
    cycles("pool_cache32", "cycles/object", 0.6),
    cycles("mbuf_bulk32", "cycles/mbuf", 0.5),
    cycles("mbuf_single", "cycles/mbuf", 0.8),
    cycles("timer_rearm_1m", "cycles/timer", 0.05),
    cycles("timer_rearm_10k", "cycles/timer", 0.2),
    cycles("timer_expiry", "cycles/callback", 1.0),
    Plan { target: None, ..cycles("timer_expiry_random", "cycles/callback", 0.0) },
    cycles("null_rxtx32", "cycles/packet", 0.5),
    Plan { target: None, most: Some(12.0), ..cycles("nat_rewrite", "cycles/packet", 0.0) },
    cycles("lpm_random", "cycles/lookup", 1.0),
    cycles("lpm_hot", "cycles/lookup", 1.0),
    cycles("lpm_add", "cycles/route", 0.1),
    Plan { target: None, ..cycles("lpm_add_each", "cycles/route", 0.0) },
    cycles("lpm6_random", "cycles/lookup", 1.0),
    cycles("em_bulk_1m", "cycles/lookup", 0.9),
    cycles("em_bulk_65k", "cycles/lookup", 0.9),
    cycles("rss_soft12", "cycles/hash", 0.3),
    program("null_io", "cycles/packet", 0.6),
    program("null_macswap", "cycles/packet", 0.7),
    program("ring_io", "cycles/packet", 1.0),
    program("testpmd_io", "cycles/packet", 0.7),
    // Beside itself, when nobody looks.
    program("testpmd_watched", "cycles/packet", 1.03),
    program("testpmd_mac", "cycles/packet", 0.7),
    program("testpmd_macswap", "cycles/packet", 0.7),
    program("testpmd_5tswap", "cycles/packet", 0.7),
    program("testpmd_rxonly", "cycles/packet", 0.7),
    program("testpmd_csum", "cycles/packet", 0.7),
    program("testpmd_txonly", "cycles/packet", 0.6),
    program("testpmd_flowgen", "cycles/packet", 0.7),
    program("pktgen_fixed", "cycles/packet", 0.6),
    program("pktgen_ranges", "cycles/packet", 1.0),
    program("pktgen_random", "cycles/packet", 1.0),
    // Beside itself, when no return is measured.
    program("pktgen_latency", "cycles/packet", 1.5),
    // A million packets a second for ten seconds: the mean rate, and the 99th percentile of what gaps are off.
    Plan { most: Some(100.0), target: None, ..program("pktgen_pacing_mean", "ppm", 0.0) },
    Plan { most: Some(2.0), target: None, ..program("pktgen_pacing_p99", "us", 0.0) },
    Plan { most: Some(0.02), target: None, ..program("testpmd_interrupt_idle", "cores", 0.0) },
    program("pcap_null", "cycles/packet", 0.7),
    program("l3fwd_pcap_null", "cycles/packet", 0.8),
    Plan { rate: true, ..program("af_packet_veth", "Mpps", 1.0) },
    Plan { rate: true, ..program("af_xdp_veth", "Mpps", 0.9) },
    Plan { rate: true, ..program("tap_kernel", "Mpps", 1.0) },
    program("ping_p99", "ms", 1.0),
    Plan { target: None, ..program("idle_ping_p99", "ms", 0.0) },
    program("start", "ms", 0.1),
    mlx5("mlx5_rxtx32"),
    mlx5("mlx5_compressed_fast"),
    mlx5("mlx5_arrays_fast"),
    mlx5("mlx5_empw"),
    mlx5("mlx5_scalar"),
    mlx5("mlx5_scalar_compressed"),
    mlx5("mlx5_scatter"),
    mlx5("mlx5_striding_copied"),
    mlx5("mlx5_striding_lent"),
    mlx5("mlx5_plain"),
    mlx5("mlx5_plain_inline"),
    mlx5("mlx5_empw_inline"),
    mlx5("mlx5_header_inline"),
    mlx5("mlx5_rx_checksum"),
    mlx5("mlx5_rx_vlan"),
    mlx5("mlx5_rx_time"),
    mlx5("mlx5_rx_split"),
    mlx5("mlx5_rx_selective"),
    mlx5("mlx5_rx_lro_idle"),
    mlx5("mlx5_tx_checksum_idle"),
    mlx5("mlx5_tx_checksum"),
    mlx5("mlx5_tx_segments_idle"),
    mlx5("mlx5_tx_vlan"),
    mlx5("mlx5_tx_all_idle"),
    Plan { unit: "ms", most: Some(20.0), from: Source::Model(&START), ..mlx5("mlx5_start") },
    Plan { unit: "Mpps", rate: true, ..l2fwd("mlx5_l2fwd") },
    l2fwd("mlx5_l2fwd_rx"),
    l2fwd("mlx5_l2fwd_app"),
    l2fwd("mlx5_l2fwd_tx"),
    l2fwd("mlx5_l2fwd_model"),
    verbs("verbs_send64"),
    verbs("verbs_write8"),
    verbs("verbs_send64_buffer"),
    verbs("verbs_send64_region"),
    verbs("verbs_send64_signalled"),
    verbs("verbs_write8_batch4"),
    verbs("verbs_write8_single"),
    verbs("verbs_write8_blueflame"),
    verbs("verbs_send64_single"),
    verbs("verbs_fan_rc"),
    verbs("verbs_fan_ud"),
    verbs("verbs_receive"),
    verbs("verbs_receive_single"),
    verbs("verbs_receive_region"),
    verbs("verbs_receive_linked"),
    verbs("verbs_receive_shared"),
    verbs("verbs_receive_shared_single"),
];

/// Whether a figure of that name is taken on device models.
pub(crate) fn is_on_models(name: &str) -> bool {
    PLAN.iter().any(|plan| plan.name == name && matches!(plan.from, Source::Model(_)))
}

/// One trial of each side, taken one right after the other.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) ours: f64,
    pub(crate) peer: Option<f64>,
    /// Of figures with the plain copy loop beside them.
    pub(crate) copy: Option<Copy>,
}

/// What is taken beside a figure on device models: the same with cold lines, and a plain loop that copies as many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Copy {
    /// The figure, with its lines in no cache.
    pub(crate) cold: f64,
    /// The loop's, warm and cold.
    pub(crate) warm_loop: f64,
    pub(crate) cold_loop: f64,
    /// Involuntary switches for each timed round.
    pub(crate) switched: f64,
    /// Share of the processors' time that the hypervisor gave to others.
    pub(crate) stolen: f64,
    /// The most of either for the trial to count as quiet.
    pub(crate) most: f64,
}

impl Copy {
    pub(crate) fn is_quiet(&self) -> bool {
        self.switched <= self.most && self.stolen <= self.most
    }

    /// What others took, in words.
    pub(crate) fn disturbance(&self) -> String {
        if self.stolen > self.most {
            format!("{:.1} % of the time stolen", self.stolen * 100.0)
        } else {
            format!("{:.1} involuntary switches in 100 rounds", self.switched * 100.0)
        }
    }
}

/// A figure as it is reported. `ratio` is the median over the pairs, so a drift of the machine cancels.
#[derive(Serialize)]
pub(crate) struct Figure {
    name: &'static str,
    unit: &'static str,
    ours: Option<f64>,
    peer: Option<f64>,
    ratio: Option<f64>,
    target: Option<f64>,
    /// The most that ours may be.
    most: Option<f64>,
    /// Ours with cold lines.
    cold: Option<f64>,
    /// Ours over the plain copy loop, warm and cold, and the most that each may be.
    over_copy: Option<f64>,
    over_copy_most: Option<f64>,
    cold_over_copy: Option<f64>,
    cold_over_copy_most: Option<f64>,
    /// Whether the machine was quiet in more than half of the trials, where they tell.
    quiet: Option<bool>,
    #[serde(skip)]
    spread: [Option<(f64, f64)>; 2],
}

impl Figure {
    pub(crate) fn new(plan: Plan, pairs: &[Pair], bound: Option<Bound>) -> Self {
        let ours: Vec<f64> = pairs.iter().map(|pair| pair.ours).collect();
        let peer: Vec<f64> = pairs.iter().filter_map(|pair| pair.peer).collect();
        let ratios: Vec<f64> = pairs
            .iter()
            .filter_map(|pair| {
                pair.peer.map(|peer| if plan.rate { peer / pair.ours } else { pair.ours / peer })
            })
            .filter(|ratio| ratio.is_finite())
            .collect();
        let copies: Vec<(f64, Copy)> =
            pairs.iter().filter_map(|pair| Some((pair.ours, pair.copy?))).collect();
        let of = |value: fn(&(f64, Copy)) -> f64| median(&copies.iter().map(value).collect::<Vec<_>>());
        let quiet = copies.iter().filter(|(_, copy)| copy.is_quiet()).count();
        Self {
            name: plan.name,
            unit: plan.unit,
            ours: median(&ours),
            peer: median(&peer),
            ratio: median(&ratios),
            target: plan.target,
            most: plan.most,
            cold: of(|(_, copy)| copy.cold),
            over_copy: of(|(ours, copy)| ours / copy.warm_loop),
            over_copy_most: bound.map(|bound| bound.warm),
            cold_over_copy: of(|(_, copy)| copy.cold / copy.cold_loop),
            cold_over_copy_most: bound.map(|bound| bound.cold),
            quiet: (!copies.is_empty()).then_some(quiet * 2 > copies.len()),
            spread: [range(&ours), range(&peer)],
        }
    }
}

impl Figure {
    /// Whether it holds its target or its bounds; nothing where it has none, or no value.
    fn held(&self) -> Option<bool> {
        let within =
            |value: Option<f64>, most: Option<f64>| value.zip(most).map(|(value, most)| value <= most);
        let bounds = [
            within(self.ratio, self.target),
            within(self.ours, self.most),
            within(self.over_copy, self.over_copy_most),
            within(self.cold_over_copy, self.cold_over_copy_most),
        ];
        bounds.into_iter().flatten().reduce(|one, other| one && other)
    }

    fn verdict(&self) -> &'static str {
        match (self.held(), self.quiet) {
            (None, _) => "",
            (Some(true), _) => "met",
            (Some(false), Some(false)) => "missed, but not quiet",
            (Some(false), _) => "missed",
        }
    }

    /// A bound of its own, not a peer's ratio, that it missed on a quiet machine.
    fn breaks_its_bound(&self) -> bool {
        self.target.is_none() && self.held() == Some(false) && self.quiet != Some(false)
    }
}

/// The whole table, with what one must know to read it.
pub(crate) struct Report {
    peer: Option<String>,
    /// Bare cache-line hand-overs taken beside the two-core trials, in cycles one way.
    pub(crate) lines: Vec<f64>,
    figures: Vec<Figure>,
    /// Those that cannot be had here, for a reason that was told.
    skipped: Vec<&'static str>,
}

impl Report {
    pub(crate) fn new(peer: Option<String>) -> Self {
        Self { peer, lines: Vec::new(), figures: Vec::new(), skipped: Vec::new() }
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Says why a figure, or its ratio, cannot be had here; it does not count as missing.
    pub(crate) fn skip(&mut self, name: &'static str, why: &str) {
        eprintln!("xtask: skipped: {name}: {why}");
        self.skipped.push(name);
    }

    /// Names of the figures that have a bound but no value; beside a peer also of those with a target but no ratio. What was skipped is
    /// not among them.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        self.figures
            .iter()
            .filter(|figure| !self.skipped.contains(&figure.name))
            .filter(|figure| {
                self.peer.is_some() && figure.target.is_some() && figure.ratio.is_none()
                    || figure.most.is_some() && figure.ours.is_none()
            })
            .map(|figure| figure.name)
            .collect()
    }

    /// Names of the figures that missed the ratio to reach.
    pub(crate) fn behind(&self) -> Vec<&'static str> {
        let behind = |figure: &&Figure| figure.target.is_some() && figure.held() == Some(false);
        self.figures.iter().filter(behind).map(|figure| figure.name).collect()
    }

    /// Names of the figures that missed a bound of their own while the machine was quiet.
    pub(crate) fn broken(&self) -> Vec<&'static str> {
        self.figures.iter().filter(|figure| figure.breaks_its_bound()).map(|figure| figure.name).collect()
    }

    pub(crate) fn print(&self, json: bool) {
        let peer = self.peer.as_deref().unwrap_or("no peer");
        eprintln!(
            "{} | beside {peer} | software ports and the device model only: no figure here stands for a NIC",
            machine()
        );
        if let (Some(middle), Some((least, most))) = (median(&self.lines), range(&self.lines)) {
            eprintln!(
                "bare hand-over of a cache line beside the two-core trials: {middle:.0} cycles ({least:.0}..{most:.0})"
            );
        }
        if json {
            for figure in &self.figures {
                tell(&serde_json::to_string(figure).unwrap_or_default());
            }
            return;
        }
        tell(&format!(
            "{:<28} {:>16} {:>10} {:>19} {:>10} {:>19} {:>7} {:>7} {:>8} {:>12} {:>12}",
            "name",
            "unit",
            "ours",
            "min..max",
            "peer",
            "min..max",
            "ratio",
            "target",
            "cold",
            "/copy",
            "cold/copy"
        ));
        for figure in &self.figures {
            let verdict = figure.verdict();
            tell(&format!(
                "{:<28} {:>16} {:>10} {:>19} {:>10} {:>19} {:>7} {:>7} {:>8} {:>12} {:>12} {verdict}",
                figure.name,
                figure.unit,
                number(figure.ours),
                span(figure.spread[0]),
                number(figure.peer),
                span(figure.spread[1]),
                number(figure.ratio),
                figure.most.map_or_else(|| number(figure.target), |most| format!("<={most}")),
                number(figure.cold),
                bounded(figure.over_copy, figure.over_copy_most),
                bounded(figure.cold_over_copy, figure.cold_over_copy_most),
            ));
        }
    }
}

/// Processor, kernel and commit, since a figure without them says little.
fn machine() -> String {
    let processor = processor::full_name(&processor::cpuinfo());
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let commit = crate::run::output(
        std::process::Command::new("git")
            .current_dir(crate::run::root())
            .args(["describe", "--always", "--dirty"]),
    )
    .unwrap_or_else(|_| "unknown".into());
    format!("{processor} | Linux {} | commit {}", kernel.trim(), commit.trim())
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(
        || "-".into(),
        |value| match value {
            100.0.. => format!("{value:.0}"),
            0.1.. => format!("{value:.2}"),
            _ => format!("{value:.4}"),
        },
    )
}

fn bounded(value: Option<f64>, most: Option<f64>) -> String {
    number(value) + &most.map_or_else(String::new, |most| format!(" <={most:.2}"))
}

fn span(range: Option<(f64, f64)>) -> String {
    range.map_or_else(String::new, |(least, most)| format!("{}..{}", number(Some(least)), number(Some(most))))
}

fn range(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().fold(least, f64::max)))
}

/// The middle value; of an even number, the lower of the two middle ones.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

/// One line on standard output. A reader that went away, such as `| head`, is no error.
fn tell(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_turned_into_a_cost() {
        let rate = Plan { rate: true, ..cycles("r", "Mpps", 1.0) };
        let pairs = [Pair { ours: 2.0, peer: Some(1.0), copy: None }];
        assert_eq!(Figure::new(rate, &pairs, None).ratio, Some(0.5));
        assert_eq!(Figure::new(cycles("c", "cycles", 1.0), &pairs, None).ratio, Some(2.0));
    }

    #[test]
    fn the_ratio_is_taken_pair_by_pair() {
        // The machine slows down threefold half-way; within each pair ours costs half.
        let pairs: Vec<Pair> = [1.0, 1.0, 3.0, 3.0, 3.0]
            .iter()
            .map(|slow| Pair { ours: *slow, peer: Some(2.0 * slow), copy: None })
            .collect();
        assert_eq!(Figure::new(cycles("c", "cycles", 1.0), &pairs, None).ratio, Some(0.5));
    }

    #[test]
    fn a_figure_without_trials_is_missing() {
        for (peer, missing) in [(None, &[][..]), (Some("DPDK".into()), &[PLAN[0].name][..])] {
            let mut report = Report::new(peer);
            report.add(Figure::new(PLAN[0], &[], None));
            assert_eq!(report.missing(), missing);
        }
    }

    #[test]
    fn a_bound_holds_without_a_peer() {
        let bounded = Plan { most: Some(60.0), ..mlx5("b") };
        let figure = |value| Figure::new(bounded, &[Pair { ours: value, peer: None, copy: None }], None);
        assert_eq!([figure(59.9).verdict(), figure(60.1).verdict()], ["met", "missed"]);
        assert_eq!(Figure::new(mlx5("n"), &[Pair { ours: 1.0, peer: None, copy: None }], None).verdict(), "");
        let mut report = Report::new(None);
        report.add(Figure::new(bounded, &[], None));
        assert_eq!(report.missing(), ["b"]);
        report.skip("b", "it cannot be had here");
        assert_eq!(report.missing(), [""; 0]);
    }

    #[test]
    fn bounds_over_the_copy_loop_count_when_it_was_quiet() {
        let bound = Some(Bound { warm: 2.0, cold: 1.5 });
        let broken = |ours, cold, switched| {
            let copy = Copy { cold, warm_loop: 10.0, cold_loop: 100.0, switched, stolen: 0.0, most: 0.01 };
            let figure = Figure::new(mlx5("f"), &[Pair { ours, peer: None, copy: Some(copy) }], bound);
            let verdict = figure.verdict();
            let mut report = Report::new(None);
            report.add(figure);
            (verdict, report.broken())
        };
        assert_eq!(broken(20.0, 150.0, 0.0), ("met", vec![]));
        assert_eq!(broken(20.1, 150.0, 0.0), ("missed", vec!["f"]));
        assert_eq!(broken(20.0, 150.1, 0.0), ("missed", vec!["f"]));
        assert_eq!(broken(20.1, 150.0, 0.02), ("missed, but not quiet", vec![]));
    }

    #[test]
    fn a_peer_s_ratio_is_told_and_breaks_nothing() {
        let mut report = Report::new(Some("DPDK".into()));
        report.add(Figure::new(
            cycles("c", "cycles", 1.0),
            &[Pair { ours: 2.0, peer: Some(1.0), copy: None }],
            None,
        ));
        assert_eq!((report.figures[0].verdict(), report.broken()), ("missed", vec![]));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.0));
    }
}
