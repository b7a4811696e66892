//! `rsock-run`: runs TCP programs as they are over RDMA. The loop is in `rsock-run/src/launcher.rs`, the copying in `pair.rs`.

mod client;
mod connecting;
mod device;
mod events;
mod folder;
mod kernel;
mod launcher;
mod listening;
mod name;
mod notice;
mod pair;

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::sync::mpsc::{Sender, channel};

use pollux_bringup::program::{print, say};
use pollux_bringup::{BringupError, RdmaBringup};
use pollux_config::{CommandLine, Parsed};
use pollux_eal::signal::PassedOn;
use pollux_eal::{StopFlag, StopReason};
use pollux_preload::program::{self, Refusal};
use pollux_preload::running::{self, Program};
use pollux_preload::{descriptors, library};
use pollux_rsock_run::control::VARIABLE;
use pollux_rsock_run::loopback::{self, Network};

use device::Devices;
use folder::Folder;
use launcher::Launcher;

const LIBRARY: &str = "libpollux_rsock_run.so";

/// rsock-run: runs a TCP program as it is, with connections over RDMA in librdmacm's rsocket protocol. Its peers run under rsock-run too, or
/// use rsockets; connections to others are the kernel's TCP.
#[derive(clap::Parser, Clone, Debug)]
#[command(after_help = "\
Example, in two shells:
  rsock-run -l 0 --vdev mlx5_model0,wire=unix:/tmp/a:/tmp/b,ip=10.0.0.1/24 -- redis-server --bind 10.0.0.1
  rsock-run -l 1 --vdev mlx5_model0,wire=unix:/tmp/b:/tmp/a,ip=10.0.0.2/24 -- redis-cli -h 10.0.0.1")]
struct Options {
    /// Program to run, with its arguments
    #[arg(value_name = "PROGRAM")]
    program: Vec<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => ExitCode::from(code),
        Err((line, code)) => {
            say(format_args!("rsock-run: {line}"));
            ExitCode::from(code)
        }
    }
}

fn refusal(error: &BringupError) -> Refusal {
    (error.line(), error.exit_code())
}

fn run() -> Result<u8, Refusal> {
    // What is behind the first `--` is the program's, its `-h` as well.
    let mut arguments = std::env::args_os();
    let own: Vec<OsString> = arguments.by_ref().take_while(|argument| argument != "--").collect();
    let line = match CommandLine::parse_with::<Options, _, _>(own) {
        Ok(Parsed::Print(text)) => {
            print(&text);
            return Ok(0);
        }
        Ok(Parsed::Run(line, _)) => line,
        Err(error) => return Err(refusal(&error.into())),
    };
    let Some(name) = arguments.next() else {
        let line = "no program given: rsock-run [EAL options] -- PROGRAM [ARGUMENTS], such as -- iperf3 -s";
        return Err((line.into(), 2));
    };
    let path = program::find(&name.to_string_lossy())?;
    program::takes_libraries(&path)?;
    let library = library::find(LIBRARY, "pollux-rsock-run").map_err(|why| (why, 1))?;
    // Before the EAL has taken some for its lcores.
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new(path);
    command.args(arguments);
    start(&line, Starter::new(), command, &library, processors)
}

/// Brings up the devices, runs the program, and works for it until it has ended.
fn start(
    line: &CommandLine,
    starter: Starter,
    mut command: Command,
    library: &Path,
    processors: usize,
) -> Result<u8, Refusal> {
    let RdmaBringup { devices, eal, .. } =
        &mut RdmaBringup::by_address(line).map_err(|error| refusal(&error))?;
    let failed = |why: String| (why, 1);
    let opened = Devices::open(devices, eal.memory());
    let mut signals = PassedOn::catch().map_err(|error| refusal(&error.into()))?;
    eal.leave_signals();
    let opened = match opened {
        Ok(opened) => opened,
        Err(why) if line.ports.is_empty() => {
            let advice = "name a device, such as --vdev mlx5_model0,wire=unix:/tmp/a:/tmp/b,ip=10.0.0.1/24";
            say(format_args!(
                "rsock-run: no RDMA device: {why}; all connections are the kernel's TCP; {advice}"
            ));
            if let Some(status) = ended_early(&eal.stop_flag(), &mut signals) {
                return Ok(status);
            }
            return Ok(Program::new(starter.start(command)?, signals).wait());
        }
        Err(why) => return Err(failed(why)),
    };
    let made = Folder::make();
    let (folder, control) = made.map_err(|why| failed(format!("cannot make the control socket: {why}")))?;
    let network = Network::of(std::process::id());
    let launcher = Launcher::new(opened, control, network, processors);
    let launcher = launcher.map_err(|why| failed(format!("cannot listen on loopback: {why}")))?;
    command.env(VARIABLE, folder.socket()).env(loopback::VARIABLE, network.text());
    command.env("LD_PRELOAD", library::preloaded(library));
    if let Some(status) = ended_early(&eal.stop_flag(), &mut signals) {
        return Ok(status);
    }
    let program = Program::new(starter.start(command)?, signals);
    // One for each connection of the program's, which has the limit that this process was given.
    descriptors::raise();
    let running = eal.launch(eal.lcores().main(), move |_lcore| launcher.run(program));
    let running = running.map_err(|error| refusal(&error.into()))?;
    running.wait().map_err(|panicked| failed(panicked.to_string()))
}

/// The status, if a signal came before there was a program to pass it on to.
fn ended_early(stop: &StopFlag, signals: &mut PassedOn) -> Option<u8> {
    let before = match stop.reason() {
        Some(StopReason::Signal(signal)) => Some(signal),
        _ => signals.pending().next(),
    };
    before.map(|signal| u8::try_from(128 + signal).unwrap_or(1))
}

/// A thread that starts the program: it has the processors and the scheduling that this process was given, not those of the EAL's threads.
struct Starter(Sender<(Command, Sender<Result<Child, Refusal>>)>);

impl Starter {
    fn new() -> Self {
        let (tell, told) = channel::<(Command, Sender<Result<Child, Refusal>>)>();
        std::thread::spawn(move || {
            if let Ok((mut command, answer)) = told.recv() {
                answer.send(running::start(&mut command)).ok();
            }
        });
        Self(tell)
    }

    fn start(self, command: Command) -> Result<Child, Refusal> {
        let name = command.get_program().to_string_lossy().into_owned();
        let (answer, started) = channel();
        self.0.send((command, answer)).ok();
        started.recv().unwrap_or_else(|_| Err((format!("cannot run {name}: no thread to start it"), 1)))
    }
}
