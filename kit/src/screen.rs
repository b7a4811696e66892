//! `--screen`: what the program counts, on the terminal, as page and metrics show it.
//!
//! Drawn by ratatui, which tells what has changed since the last picture and sends that alone. Where there is no terminal, or one that is
//! `dumb`, there are plain tables instead. `NO_COLOR` is honoured.

mod draw;
mod terminal;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::console::Console;
use crate::sample::{Sample, Sampler};
use draw::Palette;
use terminal::{Output, Taken, end_was_pressed};

/// Time between pictures.
const PERIOD: Duration = Duration::from_secs(1);
/// Seconds of history: a column each on a wide terminal.
const HISTORY: usize = 512;
/// Lines that were said while the screen was up, the last ones of them.
const NOTES: usize = 3;

/// What is drawn.
struct Picture {
    sample: Sample,
    /// Packets a second, the newest first.
    rx: VecDeque<u64>,
    tx: VecDeque<u64>,
    notes: VecDeque<String>,
}

/// A screen on the terminal, which is given back when it is dropped.
pub struct Screen {
    taken: Taken,
    sampler: Sampler,
    picture: Picture,
    due: Instant,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen").finish_non_exhaustive()
    }
}

impl Screen {
    /// Takes the terminal that lines of `console` go to; `None` where there is none that can be drawn on.
    #[must_use]
    pub fn open(console: Console, mut sampler: Sampler) -> Option<Self> {
        let output = if console.json { Output::Stderr } else { Output::Stdout };
        if !output.can_draw() {
            return None;
        }
        let taken = Taken::take(output).ok()?;
        let sample = sampler.sample();
        let picture = Picture { sample, rx: VecDeque::new(), tx: VecDeque::new(), notes: VecDeque::new() };
        Some(Self { taken, sampler, picture, due: Instant::now() })
    }

    /// Draws what is due and looks for keys; called several times a second. False: the screen is at its end, by a key or for want of a
    /// terminal.
    pub fn step(&mut self) -> bool {
        if self.taken.is_lost() || end_was_pressed() {
            return false;
        }
        let now = Instant::now();
        if now < self.due {
            return true;
        }
        self.due = now + PERIOD;
        self.picture.advance(self.sampler.sample());
        let picture = &self.picture;
        self.taken.terminal.draw(|frame| draw::draw(frame, picture, Palette::of_environment())).is_ok()
    }

    /// Shows a line, as long as there is room for it.
    pub fn say(&mut self, line: String) {
        self.picture.notes.push_back(line);
        if self.picture.notes.len() > NOTES {
            self.picture.notes.pop_front();
        }
        self.due = Instant::now();
    }
}

impl Picture {
    fn advance(&mut self, sample: Sample) {
        let span = &sample.span;
        let rate = |count: u64| span.per_second(count) as u64;
        let rx = rate(span.ports.iter().map(|port| port.rx_packets).sum());
        let tx = rate(span.ports.iter().map(|port| port.tx_packets).sum());
        for (history, value) in [(&mut self.rx, rx), (&mut self.tx, tx)] {
            history.push_front(value);
            history.truncate(HISTORY);
        }
        self.sample = sample;
    }
}
