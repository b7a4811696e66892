//! `pollux-dumpcap`: captures the packets of a running program, as dpdk-dumpcap does of a DPDK application.
//!
//! ```text
//!   options ─► Client::ports ─► interface (ports, filters) ─► Client::capture ─► run: ring ─► output (files)
//! ```
//!
//! It connects to the program's socket; the program puts what its filters accept into a ring that both share, and never waits for it.

#![forbid(unsafe_code)]

mod client;
mod error;
mod filter;
mod interface;
mod options;
mod output;
mod run;
mod wall;

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pollux_eal::signal::EndSignals;
use pollux_eal::with_causes;
use rustix::thread::{CpuSet, sched_setaffinity};

use client::Client;
use error::DumpcapError;
use interface::Interface;
use options::Options;

/// Status for a mistake on the command line, as clap's.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let done = Options::read().map_err(DumpcapError::Usage).and_then(|options| run(&options));
    let Err(error) = done else { return ExitCode::SUCCESS };
    if let DumpcapError::File { operation: "write", source, .. } = &error
        && source.kind() == io::ErrorKind::BrokenPipe
    {
        // Whoever read the list has enough.
        return ExitCode::SUCCESS;
    }
    eprintln!("pollux-dumpcap: {}", with_causes(&error));
    match error {
        DumpcapError::Usage(_) => ExitCode::from(USAGE),
        _ => ExitCode::FAILURE,
    }
}

fn run(options: &Options) -> Result<(), DumpcapError> {
    let cli = &options.cli;
    let idle = options.idle();
    if !idle.is_empty() {
        eprintln!("pollux-dumpcap: {} accepted, of no effect here", idle.join(", "));
    }
    if cli.code {
        return print_code(options);
    }
    pin(options)?;
    if cli.list_data_link_types {
        return print("Data link types (use option -y to set):\n  EN10MB (Ethernet)\n");
    }
    let stopped = catch_signals()?;
    let client = Client::connect(&cli.file_prefix, cli.instance)?;
    let ports = client.ports()?;
    if cli.list_interfaces {
        let lines = ports.iter().map(|port| format!("{}. {}\n", port.id, port.name));
        return print(&lines.collect::<String>());
    }
    if cli.statistics {
        return print_statistics(&client, &stopped);
    }
    let interfaces = Interface::find(&options.wanted, &ports)?;
    run::capture(&client, options, &interfaces, &stopped)
}

/// SIGINT, SIGTERM and SIGHUP end a capture, which then is whole.
fn catch_signals() -> Result<Arc<AtomicBool>, DumpcapError> {
    let stopped = Arc::new(AtomicBool::new(false));
    let set = Arc::clone(&stopped);
    let caught =
        EndSignals::catch().and_then(|signals| signals.call(move || set.store(true, Ordering::Relaxed)));
    caught.map_err(|source| DumpcapError::System { what: "handle signals", source })?;
    Ok(stopped)
}

fn pin(options: &Options) -> Result<(), DumpcapError> {
    let Some(lcores) = &options.cli.lcore else { return Ok(()) };
    let mut cpus = CpuSet::new();
    for lcore in lcores.as_slice() {
        // Below 1024, as all that is in such a set: `CpuSet::MAX_CPU`.
        cpus.set((*lcore).into());
    }
    sched_setaffinity(None, &cpus).map_err(|source| DumpcapError::System {
        what: "run on the CPUs of '--lcore'",
        source: source.into(),
    })
}

fn print(text: &str) -> Result<(), DumpcapError> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|source| DumpcapError::File {
        operation: "write",
        path: "standard output".into(),
        source,
    })
}

fn print_code(options: &Options) -> Result<(), DumpcapError> {
    let mut text = String::new();
    for wanted in &options.wanted {
        // All frames: what libpcap makes of no filter.
        let code = interface::compile(wanted)?
            .map_or_else(|| "1\n6 0 0 262144\n".into(), |program| filter::to_numbers(&program));
        text += &code;
    }
    print(&text)
}

/// A table, and its next lines once a second until a signal or the program's end.
fn print_statistics(client: &Client, stopped: &AtomicBool) -> Result<(), DumpcapError> {
    print(&format!("{:<15}  {:>10}  {:>10}\n", "Interface", "Received", "Dropped"))?;
    while !stopped.load(Ordering::Relaxed) {
        let mut text = String::new();
        for port in client.ports()? {
            // A String takes all.
            let _all = writeln!(text, "{:<15}  {:>10}  {:>10}", port.name, port.received, port.missed);
        }
        print(&text)?;
        for _ in 0..20 {
            if stopped.load(Ordering::Relaxed) || client.ended(Duration::from_millis(50)) {
                return Ok(());
            }
        }
    }
    Ok(())
}
