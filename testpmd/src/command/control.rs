//! Start, stop, help and the end.

use crate::engine::Mode;
use crate::grammar::{Args, Command, Section, help};
use crate::session::Session;
use crate::text;

const fn command(syntax: &'static str, help: &'static str, run: crate::grammar::Handler) -> Command {
    Command { syntax, help, section: Section::Control, run, rest: None }
}

pub(super) const COMMANDS: &[Command] = &[
    command("start", "Start packet forwarding.", |session, _| start(session, Session::start)),
    command("start tx_first", "Send one burst of packets, then start packet forwarding.", |session, _| {
        start(session, |session| session.start_tx_first(1))
    }),
    command(
        "start tx_first <bursts>",
        "Send so many bursts of packets, then start packet forwarding.",
        tx_first,
    ),
    command("stop", "Stop packet forwarding and show its statistics.", |session, _| stop(session)),
    command("quit", "Stop forwarding, close all ports and end the program.", |session, _| {
        session.quit = true;
        Ok(String::new())
    }),
    command("load <name>", "Run the commands of a file.", load),
    command("help", "Show the sections of help.", |_, _| Ok(help(&super::table(), None))),
    command(
        "help (all|control|display|config|ports|filters)",
        "Show the commands of a section.",
        |_, args| Ok(help(&super::table(), Some(args.word(0)))),
    ),
    command("show modes", "Show the forwarding modes.", |_, _| {
        Ok(format!("{}\n", Mode::ALL.map(Mode::name).join(" ")))
    }),
];

/// Starts forwarding in one of the ways; the lines that say what.
///
/// # Errors
/// A line: it runs already, a port is not started, there is nothing to forward between.
pub(crate) fn start(
    session: &mut Session,
    begin: impl FnOnce(&mut Session) -> Result<(), String>,
) -> Result<String, String> {
    let told = text::streams(session, session.settings.mode);
    begin(session).map(|()| told)
}

/// Stops forwarding; the lines that say what was forwarded.
///
/// # Errors
/// A line: nothing is being forwarded, an lcore panicked.
pub(crate) fn stop(session: &mut Session) -> Result<String, String> {
    session.stop()?;
    let stats = text::forward_stats(session);
    Ok(format!("Telling cores to stop...\nWaiting for lcores to finish...\n{stats}\nDone.\n"))
}

fn tx_first(session: &mut Session, args: &Args) -> Result<String, String> {
    // More than this only delays the prompt.
    const MOST: u64 = 100_000;
    match args.number(0) {
        bursts @ 1..=MOST => start(session, |session| session.start_tx_first(bursts as u32)),
        bursts => Err(format!("start tx_first: {bursts} bursts: give 1 to {MOST}")),
    }
}

/// Nested files are refused: one that loads itself would never end.
fn load(session: &mut Session, args: &Args) -> Result<String, String> {
    let path = args.word(0);
    let text = std::fs::read_to_string(path).map_err(|error| format!("load: {path}: {error}"))?;
    let mut told = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("load ") {
            return Err(format!("{told}load: {path}: a file that is loaded cannot load another"));
        }
        told += &format!("{line}\n");
        match super::run(session, line) {
            Ok(text) => told += &text,
            Err(why) => told += &format!("{why}\n"),
        }
        if session.quit {
            break;
        }
    }
    Ok(told)
}
