//! `mlx5-run --serve`: devices that several programs have together, until a signal ends them.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use pollux_eal::socket_file::SocketFile;
use pollux_mlx5_run::Daemon;
use pollux_mlx5_run::plan::{Plan, device_name};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A second signal is believed after this: some senders signal both a process and its group.
const GRACE: Duration = Duration::from_millis(500);

/// Serves the devices of a plan at a socket, and says so once programs can be attached.
pub(crate) fn run(path: &Path, plan: Plan) -> Result<(), String> {
    allow_descriptors();
    // In front of all that is to be removed at the end.
    let signals =
        Signals::new(if is_ignored(SIGHUP) { &[SIGINT, SIGTERM][..] } else { &[SIGINT, SIGTERM, SIGHUP] });
    let mut signals = signals.map_err(|why| format!("cannot wait for signals: {why}"))?;
    let (listener, file) = SocketFile::packet_listener(path).map_err(|why| chain(&why))?;
    let names: Vec<String> = (0..plan.devices.len()).map(device_name).collect();
    let daemon = Daemon::new(plan)?;
    let stopped = listener.try_clone().map_err(|why| format!("cannot wait for signals: {why}"))?;
    std::thread::spawn(move || {
        let mut first: Option<Instant> = None;
        for signal in &mut signals {
            if first.is_some_and(|first| first.elapsed() >= GRACE) {
                std::process::exit(128 + signal);
            }
            first.get_or_insert_with(Instant::now);
            let _ended = shutdown(&stopped, Shutdown::Both);
        }
    });
    // A reader that has gone is no reason to end.
    let _unread = writeln!(std::io::stdout(), "mlx5-run: serving {} at {}", names.join(", "), path.display());
    daemon.answer(listener);
    // Nobody is attached any more while the devices end.
    drop(file);
    drop(daemon);
    Ok(())
}

/// Each file of a program's is a descriptor here.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _kept = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

/// Whether a signal was ignored when the process began, as nohup(1) leaves it. Source: proc_pid_status(5).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set >> (signal - 1) & 1 == 1)
}

fn chain(why: &dyn Error) -> String {
    let causes = std::iter::successors(Some(why), |&why| why.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
