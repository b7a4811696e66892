//! The other end, as long as it was not met.

use std::cell::OnceCell;
use std::time::Duration;

use pollux_bringup::program::say;
use pollux_eal::LcoreContext;

use super::Failure;
use crate::exchange::line::Patience;
use crate::exchange::{Line, Listener};

/// How long a server waits for the first word of whoever connected, at most: a client speaks at once, a stranger may never.
const GREETING: Duration = Duration::from_secs(10);

/// That two ends will meet. A server waits for its client as long as it takes, and whoever connects and does not become one is named in a
/// line: it goes on listening.
#[derive(Debug)]
pub struct Appointment {
    /// Who waits for this end.
    host: Option<String>,
    port: u16,
    patience: Patience,
    listener: OnceCell<Listener>,
}

impl Appointment {
    /// With `host`, that waits; or, without one, with whoever comes.
    ///
    /// # Panics
    /// With a number that is no port of TCP.
    #[must_use]
    pub fn new(host: Option<&str>, port: u64, patience: Patience) -> Self {
        let port = u16::try_from(port).expect("the options allow ports of TCP only");
        Self { host: host.map(str::to_owned), port, patience, listener: OnceCell::new() }
    }

    /// Whether the host that was typed has an address, before anything is made for it.
    ///
    /// # Errors
    /// It has none.
    pub fn check(&self) -> Result<(), Failure> {
        if let Some(host) = &self.host {
            Line::addresses(host, self.port)?;
        }
        Ok(())
    }

    /// Begins to listen, if this end does: a client that comes from now on waits.
    ///
    /// # Errors
    /// Another program listens on that port.
    pub fn listen(&self) -> Result<Option<&Listener>, Failure> {
        if self.host.is_some() {
            return Ok(None);
        }
        if let Some(listener) = self.listener.get() {
            return Ok(Some(listener));
        }
        let listener = Listener::new(self.port)?;
        Ok(Some(self.listener.get_or_init(|| listener)))
    }

    /// Connects to the other end, or waits for one.
    ///
    /// # Errors
    /// Nobody to meet.
    pub fn line(&self, lcore: &LcoreContext) -> Result<Line, Failure> {
        let line = match (&self.host, self.listen()?) {
            (Some(host), _) => Line::connect(host, self.port)?,
            (None, Some(listener)) => listener.accept(&|| lcore.stop_requested())?.greeted_within(GREETING),
            (None, None) => unreachable!("an end without a host listens"),
        };
        Ok(line.with(self.patience))
    }

    /// Meets the other end: `attempt` makes what an end needs, takes a [line](Self::line) and goes through the exchange. A server
    /// attempts again while those who came do not complete it, so nothing of an attempt may stay.
    ///
    /// # Errors
    /// What the attempt says, of a client or where the other end is not to blame.
    pub fn meet<T>(&self, mut attempt: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        self.listen()?;
        loop {
            match attempt() {
                Err(Failure::Peer(line)) if self.host.is_none() => self.refuse(&line),
                outcome => return outcome,
            }
        }
    }

    /// Names who was no other end.
    fn refuse(&self, line: &str) {
        say(format_args!("{line}; still listening on TCP port {}", self.port));
    }
}
