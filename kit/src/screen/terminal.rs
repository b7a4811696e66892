//! The terminal as it was found, taken for the screen and given back however the program ends: in order, by a signal that the program
//! hears, or by a panic.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic;
use std::sync::{Arc, Mutex, PoisonError};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetpgrp, tcsetattr,
};

/// Where the screen is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    Stdout,
    /// Standard output is for the JSON line.
    Stderr,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout => io::stdout().write(bytes),
            Self::Stderr => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().flush(),
            Self::Stderr => io::stderr().flush(),
        }
    }
}

impl Output {
    /// Whether a screen can be drawn there now.
    pub(super) fn can_draw(self) -> bool {
        let draws = match self {
            Self::Stdout => io::stdout().is_terminal() && is_foreground(io::stdout().as_fd()),
            Self::Stderr => io::stderr().is_terminal() && is_foreground(io::stderr().as_fd()),
        };
        draws && std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
    }
}

/// A job in the background would be stopped for changing the terminal.
fn is_foreground(terminal: BorrowedFd<'_>) -> bool {
    tcgetpgrp(terminal).map_or(true, |group| group == rustix::process::getpgrp())
}

/// What is to be given back.
struct Found {
    output: Output,
    input: Option<Termios>,
}

/// The process has one terminal.
static FOUND: Mutex<Option<Found>> = Mutex::new(None);

fn give_back(found: Found) {
    let mut output = found.output;
    let _gone = execute!(output, LeaveAlternateScreen, Show);
    if let Some(input) = &found.input {
        let _gone = tcsetattr(io::stdin(), OptionalActions::Now, input);
    }
}

type Hook = Box<dyn Fn(&panic::PanicHookInfo<'_>) + Send + Sync>;

/// The terminal while it shows the screen.
pub(super) struct Taken {
    pub(super) terminal: Terminal<CrosstermBackend<Output>>,
    hook: Arc<Hook>,
}

impl Taken {
    pub(super) fn take(output: Output) -> io::Result<Self> {
        let terminal = Terminal::new(CrosstermBackend::new(output))?;
        let input = if io::stdin().is_terminal() { quiet_input().ok() } else { None };
        *FOUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(Found { output, input });
        // The message of a panic, of an lcore's too, is for the screen that was there before.
        let hook = Arc::new(panic::take_hook());
        let before = Arc::clone(&hook);
        panic::set_hook(Box::new(move |info| {
            if let Some(found) = FOUND.try_lock().ok().and_then(|mut found| found.take()) {
                give_back(found);
            }
            before(info);
        }));
        let mut taken = Self { terminal, hook };
        // Not `Terminal::clear`, which asks the terminal where its cursor is, and waits for two seconds where none answers.
        execute!(taken.terminal.backend_mut(), EnterAlternateScreen, Hide, Clear(ClearType::All))?;
        Ok(taken)
    }

    /// Whether a panic has given the terminal back.
    pub(super) fn is_lost(&self) -> bool {
        FOUND.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let found = FOUND.lock().unwrap_or_else(PoisonError::into_inner).take();
        found.into_iter().for_each(give_back);
        // Hooks may not be changed by a thread that panics.
        if !std::thread::panicking() {
            let before = Arc::clone(&self.hook);
            panic::set_hook(Box::new(move |info| before(info)));
        }
    }
}

/// Keys arrive one by one and unseen; Ctrl-C remains a signal, and nothing stops the program or its output. What was set before.
fn quiet_input() -> rustix::io::Result<Termios> {
    let found = tcgetattr(io::stdin())?;
    let mut quiet = found.clone();
    quiet.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    quiet.input_modes.remove(InputModes::IXON);
    for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
        // _POSIX_VDISABLE
        quiet.special_codes[key] = 0;
    }
    tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
    Ok(found)
}

/// Whether a key was pressed that ends the program. Never waits.
pub(super) fn end_was_pressed() -> bool {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        return false;
    }
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
    if !poll(&mut ready, Some(&now)).is_ok_and(|count| count > 0) {
        return false;
    }
    let mut keys = [0; 64];
    let count = rustix::io::read(&stdin, &mut keys).unwrap_or(0);
    keys[..count].iter().any(|key| matches!(key, b'q' | b'Q'))
}
