//! `doctor`: says what a machine lacks for the dataplane, why it matters, and the command that mends it.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use pollux_config::LcoreSet;
use pollux_doctor::{DoctorError, JsonReport, Request, Style, examine, explain};

/// Check what this machine lacks for the dataplane. Reads only; `docs/doctor.md` lists the checks.
///
/// Exit status: 0 if nothing stops the dataplane, 1 for a problem, 2 for a mistake on the command line.
#[derive(Parser)]
#[command(name = "doctor", version)]
struct Cli {
    /// Findings about this card, and problems that stop every card: mlx5_0, uverbs0, 0000:03:00.0 or an interface
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
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
    /// Explain a check and name its sources
    #[arg(long, value_name = "ID", exclusive = true)]
    explain: Option<String>,
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
