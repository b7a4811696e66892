//! The control thread of an app: waits, tells what happens to ports, prints the table, ends with the report.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use pollux_bringup::program::say;
use pollux_bringup::{Bringup, BringupError};
use pollux_port::{PortEvent, PortState};

use crate::console::{self, Console};
use crate::counts::Counts;
use crate::http::Listener;
use crate::meter::Meter;
use crate::options::RunOptions;
use crate::report::json;
use crate::sample::Sampler;
use crate::screen::Screen;
use crate::table::table;

/// How often ports are asked whether anything happened to them.
const EVENT_PERIOD: Duration = Duration::from_millis(200);
/// The first table comes early, so that packets are seen to move.
const FIRST_TABLE: Duration = Duration::from_secs(1);

/// Until when to wait, and what to show meanwhile.
#[derive(Debug)]
pub struct Watch<'a> {
    app: &'a str,
    options: &'a RunOptions,
    period: Option<Duration>,
    listener: Option<Listener>,
}

impl<'a> Watch<'a> {
    /// Takes the address of `--metrics`, so that one that cannot be had is told of before anything is opened. There is no table but the
    /// last.
    ///
    /// # Errors
    /// As [`Listener::bind`].
    pub fn new(app: &'a str, options: &'a RunOptions) -> Result<Self, BringupError> {
        let listener = options.watch.metrics.map(Listener::bind).transpose()?;
        Ok(Self { app, options, period: None, listener })
    }

    /// Prints a table after a second and then each `period`, if there is one.
    #[must_use]
    pub fn every(mut self, period: Option<Duration>) -> Self {
        self.period = period;
        self
    }

    /// Waits for the end: the duration, a signal, the panic of an lcore, the loss of the last port. Meanwhile metrics are served and the
    /// screen, or tables, are shown, as the options say.
    ///
    /// # Errors
    /// [`BringupError::Runtime`] when no port is left, or metrics cannot be served.
    pub fn until_end(&mut self, bringup: &mut Bringup, meter: &Meter) -> Result<(), BringupError> {
        self.until_end_with(bringup, meter, Vec::new)
    }

    /// The same, with something else to look at: `meanwhile` is called some five times a second, and each line that it answers is shown.
    ///
    /// # Errors
    /// As [`until_end`](Self::until_end).
    pub fn until_end_with(
        &mut self,
        bringup: &mut Bringup,
        meter: &Meter,
        mut meanwhile: impl FnMut() -> Vec<String>,
    ) -> Result<(), BringupError> {
        let view = bringup.view();
        let served = self.listener.take().map(|listener| listener.serve(self.app, bringup, meter));
        let _served = served.transpose()?;
        let console = Console { json: self.options.json };
        let screen = || Screen::open(console, Sampler::new(self.app, meter, view.clone()));
        let mut screen = if self.options.watch.screen { screen() } else { None };
        let stop = bringup.eal.stop_flag();
        let start = Instant::now();
        let end = self.options.duration.map(|seconds| start + Duration::from_secs_f64(seconds));
        let tables = self.period.filter(|_| screen.is_none());
        let mut next_table = tables.map(|period| start + period.min(FIRST_TABLE));
        let mut before = meter.read(&view);
        self.links_down(bringup, meter, &mut screen);
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| end <= now) {
                return Ok(());
            }
            if let (Some(due), Some(period)) = (next_table, self.period)
                && due <= now
            {
                let counts = meter.read(&view);
                // One table that nobody took is no reason to stop forwarding; the report will tell.
                let _ = self.show(&table(self.app, &counts, &counts.since(&before)));
                before = counts;
                next_table = Some(due + if due < start + period { period - (due - start) } else { period });
            }
            if screen.as_mut().is_some_and(|screen| !screen.step()) {
                return Ok(());
            }
            let wake = [end, next_table].into_iter().flatten().fold(now + EVENT_PERIOD, Instant::min);
            if stop.wait(wake.saturating_duration_since(Instant::now())) {
                return Ok(());
            }
            self.events(bringup, meter, &mut screen)?;
            for line in meanwhile() {
                self.tell(&mut screen, line);
            }
        }
    }

    /// Says which links are down from the beginning: a change there is none to tell of.
    fn links_down(&self, bringup: &mut Bringup, meter: &Meter, screen: &mut Option<Screen>) {
        for &id in &*meter.ports() {
            let Some(port) = bringup.ports.get_mut(id) else { continue };
            let link = port.link();
            if !link.up {
                self.tell(screen, format!("port {id} {}: link {link}", port.name()));
            }
        }
    }

    /// One line, where it is seen.
    fn tell(&self, screen: &mut Option<Screen>, line: String) {
        match screen {
            Some(screen) => screen.say(line),
            None => say(format_args!("{}: {line}", self.app)),
        }
    }

    /// Says what happened to ports.
    fn events(
        &self,
        bringup: &mut Bringup,
        meter: &Meter,
        screen: &mut Option<Screen>,
    ) -> Result<(), BringupError> {
        let mut left = 0;
        for &id in &*meter.ports() {
            let Some(port) = bringup.ports.get_mut(id) else { continue };
            while let Some(event) = port.poll_event() {
                match event {
                    PortEvent::Link(link) => {
                        self.tell(screen, format!("port {id} {}: link {link}", port.name()));
                    }
                    PortEvent::Removed => {
                        let name = port.name();
                        self.tell(screen, format!("port {id} {name} disappeared; going on without it"));
                    }
                    _ => {}
                }
            }
            left += usize::from(port.state() != PortState::Gone);
        }
        if left == 0 { Err(BringupError::Runtime("no port is left".into())) } else { Ok(()) }
    }

    /// The last word: a table with the rates of the whole run, and the JSON line if that is asked for.
    ///
    /// # Errors
    /// [`BringupError::Runtime`] when standard output does not take it, as on a full disk.
    pub fn report(&self, counts: &Counts) -> Result<(), BringupError> {
        let shown = self.show(&table(self.app, counts, counts));
        // With a JSON line the table went to standard error, which need not be read.
        console::told(if self.options.json { console::line(&json(self.app, counts)) } else { shown })
    }

    /// Standard output belongs to the JSON line when there is one.
    fn show(&self, text: &str) -> std::io::Result<()> {
        let console = Console { json: self.options.json };
        let gap = if !console.json && std::io::stdout().is_terminal() { "\n" } else { "" };
        console.write(&format!("{gap}{text}"))
    }
}
