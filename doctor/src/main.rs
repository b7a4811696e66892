//! `doctor`: says what a machine lacks for the dataplane, why it matters, and the command that mends it.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use pollux_bringup::program::OutputFile;
use pollux_config::LcoreSet;
use pollux_doctor::{
    CardReport, DoctorError, JsonReport, Request, Reservation, Show, Style, Survey, examine, explain, show,
};

/// Check what this machine lacks for the dataplane, or show what it has. Reads only, but for --reserve; `docs/doctor.md` lists the checks.
///
/// Exit status: 0 if nothing stops the dataplane, 1 for a problem, 2 for a mistake on the command line, or for what cannot be shown or
/// reserved.
#[derive(Parser)]
#[command(name = "doctor", version)]
struct Cli {
    /// Findings about this card, and problems that stop every card: mlx5_0, uverbs0, 0000:03:00.0 or an interface; with --report
    /// also a model, such as mlx5_model0,device=cx5
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
    /// Try what the card answers, on objects of its own, and write it to FILE, without addresses and names
    #[arg(long, value_name = "FILE", requires = "card", conflicts_with_all = ["lcores", "all", "json", "root"])]
    report: Option<PathBuf>,
    /// Print what --report would ask of the card, and make nothing
    #[arg(long, requires = "card", conflicts_with_all = ["lcores", "all", "json", "root"])]
    dry_run: bool,
    /// Tell where the device model differs from the card whose report FILE is
    #[arg(long, value_name = "FILE", exclusive = true)]
    differences: Option<PathBuf>,
    /// Judge these lcores: the card's NUMA node, isolation, shared cores
    #[arg(long, short = 'l', value_name = "LIST")]
    lcores: Option<LcoreSet>,
    /// Show what is fine too
    #[arg(long)]
    all: bool,
    /// Print one JSON object, what is fine included
    #[arg(long, conflicts_with = "all")]
    json: bool,
    /// Examine the files of another machine: a directory that holds its sys, proc and dev
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Show huge pages, the processors of each core, or network devices and their drivers, as dpdk-hugepages, cpu_layout and dpdk-devbind do
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with_all = ["card", "lcores", "all", "json"])]
    show: Option<What>,
    /// Reserve so many bytes of huge pages (1G, 512M): the pool becomes as large, or stays as it is if there is no room; 0 gives all back
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_none, conflicts_with_all = ["card", "lcores", "all", "json", "show"])]
    reserve: Option<usize>,
    /// Size of the pages that are reserved (2M, 1G) [default: the machine's]
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "reserve")]
    page_size: Option<usize>,
    /// Reserve on this NUMA node alone
    #[arg(long, value_name = "NODE", requires = "reserve")]
    node: Option<u16>,
    /// Explain a check and name its sources
    #[arg(long, value_name = "ID", exclusive = true)]
    explain: Option<String>,
}

/// What `--show` takes.
#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    Hugepages,
    Cpus,
    Devices,
}

/// The same, or 0.
fn bytes_or_none(text: &str) -> Result<usize, String> {
    if text == "0" { Ok(0) } else { bytes(text) }
}

/// A number of bytes: `2M`, `1G`, `2048K`.
fn bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        _ => return Err("must be a number with K, M or G behind it".into()),
    };
    let count: Option<usize> = digits.parse().ok().filter(|count| *count > 0);
    count
        .and_then(|count| count.checked_mul(1 << shift))
        .ok_or_else(|| "must be a number of bytes above 0".into())
}

/// Status for a mistake on the command line, as clap's.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (text, status) = match output(cli) {
        Ok(done) => done,
        Err(error) => {
            eprintln!("doctor: {error}");
            return ExitCode::from(USAGE);
        }
    };
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("doctor: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => status,
    }
}

fn output(cli: Cli) -> Result<(String, ExitCode), DoctorError> {
    if let Some(id) = &cli.explain {
        return Ok((explain(id)?, ExitCode::SUCCESS));
    }
    if let Some(file) = &cli.differences {
        return differences(file);
    }
    if let Some(card) = cli.card.as_deref().filter(|_| cli.dry_run || cli.report.is_some()) {
        return survey(card, cli.report.as_deref().filter(|_| !cli.dry_run));
    }
    if let Some(what) = cli.show {
        let what = match what {
            What::Hugepages => Show::HugePages,
            What::Cpus => Show::Cpus,
            What::Devices => Show::Devices,
        };
        return Ok((show(what, &cli.root)?, ExitCode::SUCCESS));
    }
    if let Some(bytes) = cli.reserve {
        let reservation = Reservation { bytes, page_bytes: cli.page_size, node: cli.node };
        return Ok((reservation.make(&cli.root)?, ExitCode::SUCCESS));
    }
    let report = examine(&Request { root: cli.root, card: cli.card, lcores: cli.lcores })?;
    let text = if cli.json {
        let json = serde_json::to_string_pretty(&JsonReport::new(&report));
        format!("{}\n", json.unwrap_or_else(|why| unreachable!("a report is plain data: {why}")))
    } else {
        // https://no-color.org
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let colour = io::stdout().is_terminal() && !plain;
        report.text(Style { colour, all: cli.all })
    };
    let status = if report.has_problem() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    Ok((text, status))
}

/// Where the model differs from the card whose report this is. Differences are a problem: the model is to be as the card.
fn differences(file: &Path) -> Result<(String, ExitCode), DoctorError> {
    let report = CardReport::read(file)?;
    let found = report.differences()?;
    let mut text: String = found.iter().map(|line| format!("{line}\n")).collect();
    let status = if found.is_empty() {
        text = format!("no difference from {}\n", report.model());
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    Ok((text, status))
}

/// Makes the checks of a card and writes its report, or prints what would be asked.
fn survey(card: &str, file: Option<&Path>) -> Result<(String, ExitCode), DoctorError> {
    let survey = Survey::of(card)?;
    let Some(file) = file else { return Ok((survey.dry_run()?, ExitCode::SUCCESS)) };
    let refuse = |problem: String| DoctorError::Report { path: file.to_owned(), problem };
    let cannot = |why: io::Error| refuse(format!("cannot be written: {why}"));
    // Before the checks, which take a while.
    let place = OutputFile::at(file).map_err(cannot)?;
    let report = survey.run(|step| eprintln!("doctor: {step}"));
    if let Some(secret) = survey.told_by(&report) {
        return Err(refuse(format!(
            "was not written: it would tell '{secret}', which is a mistake of doctor's"
        )));
    }
    place.write(report.text().as_bytes()).map_err(cannot)?;
    let text = format!(
        "{}: written; `doctor --differences {}` tells where the device model differs\n",
        file.display(),
        file.display()
    );
    Ok((text, ExitCode::SUCCESS))
}
