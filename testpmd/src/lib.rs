//! testpmd: DPDK's packet forwarding test application.
//!
//! ```text
//!   options ---> Session <--- prompt: a line, the grammar's table, a command
//!                 |   ^
//!           start |   | stop: queues come back, statistics
//!                 v   |
//!          lanes, each with an engine, on lcores: forward.rs goes round them
//! ```
//!
//! Called by its `main`; calls `bringup`, `port`, `mempool` and `kit`. Options, commands and output are those of DPDK's
//! `app/test-pmd`, so that scripts and test suites made for it drive this one.
//!
//! - [`engine`]: what becomes of packets; a file each.
//! - [`lane`], [`forward`]: a stream's two queues and its counters; the loop of an lcore.
//! - [`session`], [`ports`]: what is wanted, what is there, start and stop.
//! - [`grammar`], [`command`], [`console`]: the prompt.
//! - [`text`], [`verbose`], [`hash`]: what is printed.

#![forbid(unsafe_code)]

pub mod command;
pub mod console;
pub mod engine;
pub mod forward;
pub mod grammar;
pub mod hash;
pub mod lane;
mod options;
pub mod ports;
mod report;
pub mod session;
mod setup;
pub mod text;
pub mod topology;
pub mod verbose;

use std::time::{Duration, Instant};

use pollux_bringup::BringupError;
use pollux_bringup::program::say;
use pollux_config::CommandLine;
use pollux_kit::{Listener, Screen};
use pollux_port::PortEvent;

pub use options::Options;

use crate::session::Session;

/// Runs testpmd until its end.
///
/// # Errors
/// What was typed wrongly, and what went wrong while running: [`program::main`](pollux_bringup::program::main) turns it into one
/// line and an exit code.
pub fn run(line: &CommandLine, options: Options) -> Result<(), BringupError> {
    if options.interactive && options.watch.screen {
        let why = "cannot be combined with -i, whose prompt has the terminal: leave one of them out";
        return Err(BringupError::Usage(format!("option '--screen': {why}")));
    }
    let listener = options.watch.metrics.map(Listener::bind).transpose()?;
    let mut session = setup::session(line, &options)?;
    let served = listener.map(|listener| listener.serve("testpmd", &session.bringup, &session.meter));
    let _served = served.transpose()?;
    let end = options.duration.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let ran = drive(&mut session, &options, end);
    let closed = finish(&mut session, &options);
    ran.and(closed)
}

/// `--tx-first`.
fn tx_first(session: &mut Session) -> Result<(), String> {
    session.start_tx_first(1)
}

fn drive(session: &mut Session, options: &Options, end: Option<Instant>) -> Result<(), BringupError> {
    let file = options.cmdline_file.as_deref().or(options.cmdline_file_noecho.as_deref());
    if let Some(path) = file {
        console::file(session, path, options.cmdline_file.is_some()).map_err(BringupError::Usage)?;
    }
    let begin = |session: &mut Session| {
        let told = command::start(session, if options.tx_first { tx_first } else { Session::start });
        told.map(|text| session.console.print(&text)).map_err(BringupError::Runtime)
    };
    if options.interactive {
        if session.quit {
            return Ok(());
        }
        if options.auto_start {
            session.console.print("Start automatic packet forwarding\n");
            begin(session)?;
        }
        console::prompt(session, end);
        return Ok(());
    }
    if file.is_some() && (session.quit || session.is_forwarding()) {
        if session.quit {
            return Ok(());
        }
    } else {
        session.console.print("No commandline core given, start packet forwarding\n");
        begin(session)?;
    }
    watch(session, options, end);
    Ok(())
}

/// Without a prompt: statistics now and then, until a signal or the end.
fn watch(session: &mut Session, options: &Options, end: Option<Instant>) {
    /// How often ports are asked whether anything happened to them.
    const LOOK: Duration = Duration::from_millis(200);
    let screen = || Screen::open(session.console, session.sampler());
    let mut screen = if options.watch.screen { screen() } else { None };
    let period = (options.stats_period > 0 && screen.is_none())
        .then(|| Duration::from_secs(options.stats_period.into()));
    let mut due = period.map(|period| Instant::now() + period);
    let stop = session.bringup.eal.stop_flag();
    loop {
        let now = Instant::now();
        if end.is_some_and(|end| end <= now) {
            return;
        }
        if let (Some(at), Some(period)) = (due, period)
            && at <= now
        {
            session.console.print("\nPort statistics ====================================");
            for id in session.settings.ports.clone() {
                if let Ok(text) = text::nic_stats(session, id) {
                    session.console.print(&text);
                }
            }
            due = Some(at + period);
        }
        if screen.as_mut().is_some_and(|screen| !screen.step()) {
            return;
        }
        let wake = [end, due].into_iter().flatten().fold(now + LOOK, Instant::min);
        if stop.wait(wake.saturating_duration_since(Instant::now())) {
            return;
        }
        events(session, |line| match &mut screen {
            Some(screen) => screen.say(line),
            None => say(format_args!("{line}")),
        });
    }
}

/// Tells what happened to ports, a line each.
pub fn events(session: &mut Session, mut tell: impl FnMut(String)) {
    for port in session.bringup.ports.iter_all_mut() {
        while let Some(event) = port.poll_event() {
            match event {
                PortEvent::Link(link) => {
                    tell(format!("Port {}: link state change event: {link}", port.id()));
                }
                PortEvent::Removed => tell(format!("Port {}: device removal event", port.id())),
                _ => {}
            }
        }
    }
}

/// Ends forwarding, reports, closes the ports.
fn finish(session: &mut Session, options: &Options) -> Result<(), BringupError> {
    let mut failed = None;
    if session.is_forwarding() {
        match command::stop(session) {
            Ok(text) => session.console.print(&text),
            Err(why) => failed = Some(BringupError::Runtime(why)),
        }
    }
    let json = options.json.then(|| report::line(session));
    for id in session.ports.slots.iter().map(|slot| slot.id.0).collect::<Vec<_>>() {
        let _ = command::run(session, &format!("port stop {id}"));
        session.console.print(&format!("\nShutting down port {id}...\n"));
        console::obey(session, &format!("port close {id}"));
    }
    session.console.print("\nBye...\n");
    let told = json.map_or(Ok(()), |json| session.console.json(|| json));
    failed.map_or(told, Err)
}
