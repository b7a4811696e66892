//! The frame round an app's `main`: options in, one line and an exit code out.

mod output_file;

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::{CommandFactory, FromArgMatches};
use pollux_config::{CommandLine, Parsed};
use pollux_eal::EalError;
use pollux_eal::signal::StartUp;

use crate::BringupError;

pub use output_file::OutputFile;

/// Reads the command line and runs `app` with both halves of it. Prints help, warnings and the error, each where it
/// belongs; answers 0, 1 for what went wrong while running, 2 for what was typed wrongly.
pub fn main<A, F>(app: F) -> ExitCode
where
    A: CommandFactory + FromArgMatches,
    F: FnOnce(&CommandLine, A) -> Result<(), BringupError>,
{
    if let Err(error) = start_up(&program_name()).map(keep) {
        return fail(&program_name(), &error.into());
    }
    let parsed = CommandLine::parse_with::<A, _, _>(std::env::args_os());
    match parsed.map_err(BringupError::from) {
        Ok(Parsed::Print(text)) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Ok(Parsed::Run(line, options)) => {
            let done = if line.eal.log.help {
                pollux_eal::log::help(&line.eal.log, &crate::log::COMPONENTS)
                    .map(|text| print(&text))
                    .map_err(BringupError::from)
            } else {
                app(&line, options)
            };
            match done {
                Ok(()) => {
                    warn(&line);
                    ExitCode::SUCCESS
                }
                Err(error) => fail(&line.program, &error),
            }
        }
        Err(error) => fail(&program_name(), &error),
    }
}

/// Between the beginning of [`main`] and that of bring-up.
static STARTING: Mutex<Option<StartUp>> = Mutex::new(None);

fn keep(start_up: StartUp) {
    *STARTING.lock().unwrap_or_else(PoisonError::into_inner) = Some(start_up);
}

/// A part of the start-up, which a signal ends at once. It takes over from [`main`] without a gap.
pub(crate) fn start_up(program: &str) -> Result<StartUp, EalError> {
    let begun = STARTING.lock().unwrap_or_else(PoisonError::into_inner).take();
    begun.map_or_else(|| StartUp::new(program), Ok)
}

/// Whether the command line's warnings were printed. Standard error is the process's, and so is this.
static WARNED: AtomicBool = AtomicBool::new(false);

/// Prints the warnings about the command line, once: [`Bringup::start_ports`](crate::Bringup::start_ports) does when ports
/// come up, and [`main`] at the end for an app that has none. What fails before is one line, the error.
pub fn warn(line: &CommandLine) {
    if !WARNED.swap(true, Ordering::Relaxed) {
        for warning in &line.warnings {
            say(format_args!("{}: {warning}", line.program));
        }
    }
}

/// One line on standard error, in one piece, so that lines of several programs do not mix. One that nobody reads is no
/// error.
pub fn say(line: std::fmt::Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Prints one line on standard output. A closed pipe, such as `| head`, is not an error.
pub fn tell(line: std::fmt::Arguments<'_>) {
    print(&format!("{line}\n"));
}

/// Prints whole lines on standard output, in one piece; they end in a newline. As with [`tell`], a closed pipe is not an error.
pub fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn fail(program: &str, error: &BringupError) -> ExitCode {
    say(format_args!("{program}: {}", error.line()));
    ExitCode::from(error.exit_code())
}

fn program_name() -> String {
    let path = std::env::args_os().next().map(std::path::PathBuf::from).unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
