//! `explain`: a trace of uverbs calls in words, or what a process that runs has of its devices.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use clap::Parser;
use pollux_eal::signal::EndSignals;
use pollux_explain::{Explainer, Live, Process, Told, Tracer, Watch, refusal};
use rustix::process::{Pid, Signal, kill_process};

/// Explain a trace of uverbs calls: each with its attributes by name, the way it takes, what it maps, the states of queue pairs, and,
/// of a device model, send entries, doorbells and completions.
///
/// Of a process that runs (--pid) it tells the device files and pages that it has, of a program of Pollux its queues and their
/// states, and with --follow its calls from now on: a program of Pollux tells them itself, any other one is traced by ptrace(2).
///
/// A program of Pollux writes a trace where the environment has POLLUX_UVERBS_TRACE=FILE: a file FILE.DEVICE for each device; any other
/// program does under `mlx5-run --trace FILE`. SIGINT, SIGTERM or SIGHUP end it behind a whole line, with what it was in all; a program
/// that it runs is ended, and what it asked is explained. Exit status: 0, or 1 if a line is none of a trace, 2 for a mistake on the
/// command line.
#[derive(Parser)]
#[command(name = "explain", version)]
struct Cli {
    /// Trace to explain; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["program", "pid"])]
    file: Option<PathBuf>,
    /// Write names in the place of addresses and keys, so that two runs read the same
    #[arg(long)]
    names: bool,
    /// Go on while the file grows, until a signal; with --pid, tell the calls of the process as it makes them
    #[arg(long, short = 'f', conflicts_with = "program")]
    follow: bool,
    /// Tell what this process has of its devices
    #[arg(long, short = 'p', value_name = "PID", conflicts_with_all = ["file", "program"])]
    pid: Option<u32>,
    /// With --pid and --follow: of a device model also doorbells, send entries and completions, as they come
    #[arg(long, requires = "pid", requires = "follow")]
    fast_path: bool,
    /// Run a program of Pollux, and explain what it asked of each device
    #[arg(last = true, value_name = "PROGRAM", conflicts_with = "file")]
    program: Vec<String>,
}

/// No line of a trace is longer: an attribute of 64 KiB each way, and names.
const LINE_MAX: u64 = 1 << 20;
/// Lines that are read ahead.
const AHEAD: usize = 16;
/// Between two looks at a file that grows, and at a program that runs.
const LOOK: Duration = Duration::from_millis(100);
/// The variables that a program of Pollux is traced by (`bringup/src/driver/mlx5/trace.rs`).
const TRACE: &str = "POLLUX_UVERBS_TRACE";
const FAST_PATH: &str = "POLLUX_UVERBS_TRACE_FAST_PATH";

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = Input::new().and_then(|input| match (&cli.file, cli.pid) {
        (Some(file), _) => explain(&cli, file, &input).map(|clean| if clean { 0 } else { 1 }),
        (None, Some(pid)) => running(&cli, pid, &input).map(|()| 0),
        (None, None) => run(&cli, &input),
    });
    match done {
        Ok(status) => ExitCode::from(status),
        // Whoever reads has read enough.
        Err(Failed::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Failed::Output(error)) => fail(&format!("cannot write to standard output: {error}")),
        Err(Failed::Input(why)) => fail(&why),
    }
}

/// What there is to do next.
enum Next {
    /// A line of the trace, with its end where it has one.
    Line(Vec<u8>),
    /// There are no more.
    End,
    /// It cannot be read.
    Failed(io::Error),
    /// A signal came.
    Stop,
}

/// Lines and signals, whichever comes first: a thread of its own reads, since a file may give nothing for as long as it likes.
struct Input {
    sender: SyncSender<Next>,
    next: Receiver<Next>,
    /// A signal came, whatever was read ahead.
    stopped: Arc<AtomicBool>,
}

impl Input {
    /// From now on signals no longer end the process by themselves.
    fn new() -> Result<Self, Failed> {
        let (sender, next) = sync_channel(AHEAD);
        let stopped = Arc::new(AtomicBool::new(false));
        let (wake, set) = (sender.clone(), Arc::clone(&stopped));
        let stop = move || {
            set.store(true, Ordering::Relaxed);
            // Where there is no room, nobody waits.
            let _woken = wake.try_send(Next::Stop);
        };
        let caught = EndSignals::catch().and_then(|signals| signals.call(stop));
        caught.map_err(|why| Failed::Input(format!("cannot handle signals: {why}")))?;
        Ok(Self { sender, next, stopped })
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Has a thread read lines, without end where the file grows.
    fn read(&self, file: Box<dyn Read + Send>, follow: bool) -> io::Result<()> {
        let sender = self.sender.clone();
        let read = move || {
            let end = match lines(file, follow, &sender) {
                Ok(()) => Next::End,
                Err(why) => Next::Failed(why),
            };
            // Nobody waits for what comes behind a signal.
            let _unread = sender.send(end);
        };
        std::thread::Builder::new().name("read".into()).spawn(read).map(drop)
    }
}

/// Sends the lines of a file, cut at the longest that there are.
fn lines(file: Box<dyn Read + Send>, follow: bool, to: &SyncSender<Next>) -> io::Result<()> {
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        let read = file.by_ref().take(LINE_MAX - line.len() as u64).read_until(b'\n', &mut line)?;
        let whole = line.ends_with(b"\n") || line.len() as u64 >= LINE_MAX;
        if read == 0 && follow {
            std::thread::sleep(LOOK);
            continue;
        }
        if line.is_empty() {
            return Ok(());
        }
        // The rest of a line that is being written comes later.
        if !whole && follow {
            continue;
        }
        if to.send(Next::Line(std::mem::take(&mut line))).is_err() {
            return Ok(());
        }
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

/// Explains one file up to its end or a signal; whether all of its lines were lines of a trace.
fn explain(cli: &Cli, file: &Path, input: &Input) -> Result<bool, Failed> {
    let cannot = |why: io::Error| Failed::Input(format!("{}: {why}", file.display()));
    let opened: Box<dyn Read + Send> = if file.as_os_str() == "-" {
        if io::stdin().is_terminal() {
            eprintln!("explain: reading a trace from the terminal; end it with Ctrl-D");
        }
        Box::new(io::stdin())
    } else {
        Box::new(File::open(file).map_err(cannot)?)
    };
    input.read(opened, cli.follow).map_err(cannot)?;
    let mut explainer = Explainer::new(cli.names);
    while !input.is_stopped() {
        match input.next.recv() {
            Ok(Next::Line(line)) => {
                let text = String::from_utf8_lossy(&line);
                write(&explainer.line(text.trim_end_matches('\n')))?;
            }
            Ok(Next::Failed(why)) => return Err(cannot(why)),
            Ok(Next::End | Next::Stop) | Err(_) => break,
        }
    }
    write(&explainer.summary())?;
    Ok(explainer.is_clean())
}

/// What a process has of its devices, and what it asks of them until a signal or its end.
fn running(cli: &Cli, pid: u32, input: &Input) -> Result<(), Failed> {
    let cannot = |why: io::Error| Failed::Input(format!("process {pid}: {}", refusal(pid, why)));
    let process = Process::read(Path::new("/"), pid).map_err(cannot)?;
    write(&process.text())?;
    let told = match process.telemetry().map(|path| answered(path, pid)).transpose() {
        Ok(told) => told,
        // What /proc tells is told.
        Err(why) if !cli.follow => return write(&format!("telemetry does not answer: {why}\n")),
        Err(why) => {
            return Err(Failed::Input(format!("process {pid}: telemetry does not answer: {why}")));
        }
    };
    if let Some((_, text)) = &told {
        write(text)?;
    }
    if !cli.follow {
        return Ok(());
    }
    let told = told.map(|(told, _)| told.tells_calls().map(|tells| tells.then_some(told)));
    match told.transpose().map_err(cannot)?.flatten() {
        Some(told) => {
            follow(&mut Live::begin(told, cli.names, cli.fast_path).map_err(cannot)?, input, cannot)
        }
        None if cli.fast_path => Err(Failed::Input(format!(
            "process {pid}: is no program of Pollux: --fast-path needs one, with a device model; its calls are told without it"
        ))),
        None => follow(&mut Tracer::begin(&process, cli.names).map_err(cannot)?, input, cannot),
    }
}

/// What telemetry tells, and a client to ask more.
fn answered(path: &Path, pid: u32) -> io::Result<(Told, String)> {
    let told = Told::connect(path, pid)?;
    let text = told.text()?;
    Ok((told, text))
}

/// Tells calls as they come, and behind the end what is left of them.
fn follow(live: &mut dyn Watch, input: &Input, cannot: impl Fn(io::Error) -> Failed) -> Result<(), Failed> {
    write("calls from now on:\n")?;
    while !input.is_stopped() && !live.is_over() {
        match live.more().map_err(&cannot)? {
            Some(more) => write(&more)?,
            None => {
                let _stop = input.next.recv_timeout(LOOK);
            }
        }
    }
    live.end();
    while let Some(more) = live.more().map_err(&cannot)? {
        write(&more)?;
    }
    write(&live.summary())
}

fn write(text: &str) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failed::Output)
}

/// Runs a program and explains its traces; its own status unless that is success.
fn run(cli: &Cli, input: &Input) -> Result<u8, Failed> {
    let folder = tempfile::tempdir().map_err(|why| Failed::Input(format!("cannot make a folder: {why}")))?;
    let [name, arguments @ ..] = &cli.program[..] else {
        return Err(Failed::Input("no program is named".into()));
    };
    let mut command = Command::new(name);
    command.args(arguments).env(TRACE, folder.path().join("calls")).env(FAST_PATH, "1");
    let status =
        ended(&mut command, input).map_err(|why| Failed::Input(format!("cannot run {name}: {why}")))?;
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
        if input.is_stopped() {
            break;
        }
        let device = file.extension().unwrap_or_default().to_string_lossy().into_owned();
        write(&format!("device {device}\n"))?;
        clean &= explain(cli, file, input)?;
    }
    Ok(if own != 0 { own } else { u8::from(!clean) })
}

/// Runs a program to its end. A signal is passed on, since the terminal alone sends it to both, and is the program's affair: the
/// next one is ours again.
fn ended(command: &mut Command, input: &Input) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let mut told = false;
    loop {
        if let Some(status) = child.try_wait()? {
            input.stopped.store(false, Ordering::Relaxed);
            while input.next.try_recv().is_ok() {}
            return Ok(status);
        }
        if input.is_stopped() && !told {
            // It is not waited for yet, so the number is still its own.
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _gone = kill_process(pid, Signal::TERM);
            }
            told = true;
        }
        let _stop = input.next.recv_timeout(LOOK);
    }
}
