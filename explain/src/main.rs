//! `explain`: a trace of uverbs calls in words.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use pollux_explain::Explainer;

/// Explain a trace of uverbs calls: each with its attributes by name, the way it takes, what it maps, the states of queue pairs, and,
/// of a device model, send entries, doorbells and completions.
///
/// A program of Pollux writes one where the environment has POLLUX_UVERBS_TRACE=FILE: a file FILE.DEVICE for each device; any other
/// program does under `mlx5-run --trace FILE`. Exit status: 0, or 1 if a line is none of a trace, 2 for a mistake on the command line.
#[derive(Parser)]
#[command(name = "explain", version)]
struct Cli {
    /// Trace to explain; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "program")]
    file: Option<PathBuf>,
    /// Write names in the place of addresses and keys, so that two runs read the same
    #[arg(long)]
    names: bool,
    /// Go on while the file grows, until a signal: of a process that runs
    #[arg(long, short = 'f', conflicts_with = "program")]
    follow: bool,
    /// Run a program of Pollux, and explain what it asked of each device
    #[arg(last = true, value_name = "PROGRAM", conflicts_with = "file")]
    program: Vec<String>,
}

/// No line of a trace is longer: an attribute of 64 KiB each way, and names.
const LINE_MAX: u64 = 1 << 20;
/// Between two looks at a file that grows.
const LOOK: Duration = Duration::from_millis(100);
/// The variables that a program of Pollux is traced by (`bringup/src/driver/mlx5/trace.rs`).
const TRACE: &str = "POLLUX_UVERBS_TRACE";
const FAST_PATH: &str = "POLLUX_UVERBS_TRACE_FAST_PATH";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.file {
        Some(file) => explain(&cli, file).map(|clean| if clean { 0 } else { 1 }),
        None => run(&cli),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        // Whoever reads has read enough.
        Err(Failed::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failed::Output(error)) => fail(&format!("cannot write to standard output: {error}")),
        Err(Failed::Input(why)) => fail(&why),
    }
}

enum Failed {
    Input(String),
    Output(io::Error),
}

fn fail(why: &str) -> ExitCode {
    eprintln!("explain: {why}");
    ExitCode::FAILURE
}

/// Explains one file; whether all of its lines were lines of a trace.
fn explain(cli: &Cli, file: &Path) -> Result<bool, Failed> {
    let cannot = |why: io::Error| Failed::Input(format!("{}: {why}", file.display()));
    let input: Box<dyn Read> = if file.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            eprintln!("explain: reading a trace from the terminal; end it with Ctrl-D");
        }
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(cannot)?)
    };
    let mut input = BufReader::new(input);
    let mut explainer = Explainer::new(cli.names);
    let mut line = Vec::new();
    loop {
        let read =
            input.by_ref().take(LINE_MAX - line.len() as u64).read_until(b'\n', &mut line).map_err(cannot)?;
        let whole = line.ends_with(b"\n");
        if read == 0 && cli.follow {
            std::thread::sleep(LOOK);
            continue;
        }
        if line.is_empty() {
            break;
        }
        // The rest of a line that is being written comes later.
        if !whole && cli.follow && (line.len() as u64) < LINE_MAX {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        write(&explainer.line(text.trim_end_matches('\n')))?;
        line.clear();
    }
    write(&explainer.summary())?;
    Ok(explainer.is_clean())
}

fn write(text: &str) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failed::Output)
}

/// Runs a program and explains its traces; its own status unless that is success.
fn run(cli: &Cli) -> Result<u8, Failed> {
    let folder = tempfile::tempdir().map_err(|why| Failed::Input(format!("cannot make a folder: {why}")))?;
    let [name, arguments @ ..] = &cli.program[..] else {
        return Err(Failed::Input("no program is named".into()));
    };
    let mut command = Command::new(name);
    command.args(arguments).env(TRACE, folder.path().join("calls")).env(FAST_PATH, "1");
    let status = command.status().map_err(|why| Failed::Input(format!("cannot run {name}: {why}")))?;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder.path()).into_iter().flatten().flatten().map(|file| file.path()).collect();
    files.sort();
    let own = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    // It has said itself what went wrong.
    if files.is_empty() && own != 0 {
        return Ok(own);
    }
    if files.is_empty() {
        return Err(Failed::Input(format!(
            "{name} opened no device: name one, or run another project's program under `mlx5-run --trace FILE`"
        )));
    }
    let mut clean = true;
    for file in &files {
        let device = file.extension().unwrap_or_default().to_string_lossy().into_owned();
        write(&format!("device {device}\n"))?;
        clean &= explain(cli, file)?;
    }
    Ok(if own != 0 { own } else { u8::from(!clean) })
}
