//! `pmdinfo`: the drivers in a program or library, as JSON.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use pollux_doctor::pmdinfo;

/// Print the drivers in programs and libraries of Pollux and DPDK: keys of device arguments, kernel modules, PCI functions.
///
/// Options and output are those of DPDK's dpdk-pmdinfo.py. Exit status: 0, 1 for a file that cannot be read, 2 for a mistake on the command
/// line.
#[derive(Parser)]
#[command(name = "pmdinfo", version, infer_long_args = true)]
struct Cli {
    /// Programs or shared libraries
    #[arg(required = true, value_name = "ELF_FILE")]
    elf_files: Vec<PathBuf>,
    /// Look into DPDK's folder of plugins, too
    #[arg(long, short = 'p')]
    search_plugins: bool,
    /// Tell what could not be read of libraries
    #[arg(long, short, action = clap::ArgAction::Count)]
    verbose: u8,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let found = match pmdinfo::read(&cli.elf_files, cli.search_plugins) {
        Ok(found) => found,
        Err(error) => {
            eprintln!("pmdinfo: {error}");
            return ExitCode::FAILURE;
        }
    };
    for warning in found.warnings.iter().filter(|_| cli.verbose > 0) {
        eprintln!("pmdinfo: {warning}");
    }
    let json = serde_json::to_string_pretty(&found.drivers);
    let json = json.unwrap_or_else(|why| unreachable!("drivers are plain data: {why}"));
    match writeln!(io::stdout(), "{json}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("pmdinfo: cannot write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}
