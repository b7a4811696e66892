//! The prompt: lines from a terminal, a pipe or a file, one command each.

use std::io::{BufRead, IsTerminal};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use pollux_bringup::program::say;
use pollux_kit::Console;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::{Context, Editor, Helper, Highlighter, Hinter, Validator};

use crate::command::{completions, run};
use crate::session::Session;

/// As DPDK's.
pub const PROMPT: &str = "testpmd> ";

/// How often the prompt looks whether the program is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Completes words from the grammar.
#[derive(Helper, Highlighter, Hinter, Validator)]
struct Completion;

impl Completer for Completion {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..at];
        let begin = before.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        Ok((begin, completions(before).into_iter().map(|word| word + " ").collect()))
    }
}

/// What the thread that reads tells.
enum Input {
    Line(String),
    End,
}

/// The terminal as it was found: a reader that is still waiting when the program ends would leave it in raw mode.
struct Terminal(Option<Termios>);

impl Terminal {
    fn keep() -> Self {
        Self(tcgetattr(std::io::stdin()).ok())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(found) = &self.0 {
            let _gone = tcsetattr(std::io::stdin(), OptionalActions::Now, found);
        }
    }
}

/// Runs a line and prints what comes of it.
pub fn obey(session: &mut Session, line: &str) {
    match run(session, line) {
        Ok(text) => session.console.print(&text),
        Err(why) => session.console.print(&format!("{}\n", why.trim_end())),
    }
}

/// Runs the lines of a file.
///
/// # Errors
/// A line: the file cannot be read.
pub fn file(session: &mut Session, path: &std::path::Path, echo: bool) -> Result<(), String> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("option '--cmdline-file': {}: {error}", path.display()))?;
    for line in text.lines() {
        if echo {
            session.console.print(&format!("{PROMPT}{line}\n"));
        }
        obey(session, line);
        if session.quit {
            break;
        }
    }
    session.console.print(&format!("Read CLI commands from {}\n", path.display()));
    Ok(())
}

/// Reads and runs lines until `quit`, the end of input, a signal, or `end`.
pub fn prompt(session: &mut Session, end: Option<Instant>) {
    let _terminal = Terminal::keep();
    let (ask, asked) = channel();
    let (tell, told) = channel();
    let (terminal, console) = (std::io::stdin().is_terminal(), session.console);
    // It may wait for a line for ever; the program does not wait for it.
    let reader = std::thread::Builder::new()
        .name("prompt".into())
        .spawn(move || if terminal { edit(console, &asked, &tell) } else { pipe(console, &asked, &tell) });
    if let Err(error) = reader {
        say(format_args!("testpmd: the prompt cannot be started: {error}"));
        return;
    }
    let stop = session.bringup.eal.stop_flag();
    while !session.quit && ask.send(()).is_ok() {
        let line = loop {
            match told.recv_timeout(LOOK) {
                Ok(Input::Line(line)) => break Some(line),
                Ok(Input::End) | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break None,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    if stop.is_set() || end.is_some_and(|end| end <= Instant::now()) {
                        return;
                    }
                    crate::events(session, |line| say(format_args!("{line}")));
                }
            }
        };
        let Some(line) = line else { return };
        obey(session, &line);
    }
}

/// Lines of a terminal, with editing, history and completion.
fn edit(console: Console, asked: &Receiver<()>, tell: &Sender<Input>) {
    let Ok(mut editor) = Editor::<Completion, _>::new() else {
        return pipe(console, asked, tell);
    };
    editor.set_helper(Some(Completion));
    while asked.recv().is_ok() {
        let told = match editor.readline(PROMPT) {
            Ok(line) => {
                let _full = editor.add_history_entry(&line);
                tell.send(Input::Line(line))
            }
            // As DPDK's, Ctrl-C and Ctrl-D end the program.
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => tell.send(Input::End),
            Err(error) => {
                say(format_args!("testpmd: the terminal cannot be read: {error}"));
                tell.send(Input::End)
            }
        };
        if told.is_err() {
            break;
        }
    }
}

/// Lines of a pipe or a file; printed behind the prompt, so that a log reads as a session.
fn pipe(console: Console, asked: &Receiver<()>, tell: &Sender<Input>) {
    /// Bytes of the longest line.
    const LONGEST: usize = 64 * 1024;
    let mut input = std::io::stdin().lock();
    while asked.recv().is_ok() {
        console.print(PROMPT);
        let mut line = Vec::new();
        let read = std::io::Read::take(&mut input, LONGEST as u64).read_until(b'\n', &mut line);
        let told = match read {
            Ok(0) | Err(_) => {
                console.print("\n");
                tell.send(Input::End)
            }
            Ok(_) => {
                let line = String::from_utf8_lossy(&line).trim_end().to_owned();
                console.print(&format!("{line}\n"));
                tell.send(Input::Line(line))
            }
        };
        if told.is_err() {
            break;
        }
    }
}
