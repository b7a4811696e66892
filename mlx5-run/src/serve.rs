//! `mlx5-run --serve`: devices that several programs have together, until a signal ends them.

use std::io::{self, Write};
use std::path::Path;

use pollux_eal::signal::EndSignals;
use pollux_eal::socket_file::SocketFile;
use pollux_eal::with_causes;
use pollux_mlx5_run::Daemon;
use pollux_mlx5_run::plan::{Plan, device_name};
use pollux_preload::descriptors;
use rustix::net::{Shutdown, shutdown};

/// Serves the devices of a plan at a socket, and says so once programs can be attached.
pub(crate) fn run(path: &Path, plan: Plan) -> Result<(), String> {
    // Each file of a program's is one here.
    descriptors::raise();
    let no_signals = |why: io::Error| format!("cannot wait for signals: {why}");
    // In front of all that is to be removed at the end.
    let signals = EndSignals::catch().map_err(no_signals)?;
    let (listener, file) = SocketFile::packet_listener(path).map_err(|why| with_causes(&why))?;
    let names: Vec<String> = (0..plan.devices.len()).map(device_name).collect();
    let daemon = Daemon::new(plan)?;
    let stopped = listener.try_clone().map_err(no_signals)?;
    let stop = move || {
        let _ended = shutdown(&stopped, Shutdown::Both);
    };
    signals.call(stop).map_err(no_signals)?;
    // A reader that has gone is no reason to end.
    let _unread = writeln!(std::io::stdout(), "mlx5-run: serving {} at {}", names.join(", "), path.display());
    daemon.answer(listener);
    // Nobody is attached any more while the devices end.
    drop(file);
    drop(daemon);
    Ok(())
}
