//! The other end, as long as it was not met.

use pollux_eal::LcoreContext;

use super::Failure;
use crate::exchange::{Line, Listener};

/// That two ends will meet. A server waits for its client as long as it takes; so a client that fails before it gets there (its
/// device has no such GID, say) connects nevertheless when this is dropped, and hangs up: then both end.
#[derive(Debug)]
pub struct Appointment {
    /// Who waits for this end.
    host: Option<String>,
    port: u16,
}

impl Appointment {
    /// With `host`, that waits; or, without one, with whoever comes.
    ///
    /// # Panics
    /// With a number that is no port of TCP.
    #[must_use]
    pub fn new(host: Option<&str>, port: u64) -> Self {
        let port = u16::try_from(port).expect("the options allow ports of TCP only");
        Self { host: host.map(str::to_owned), port }
    }

    /// Listens for whoever comes, which may be several.
    ///
    /// # Errors
    /// Another program listens on that port.
    pub fn listen(self) -> Result<Listener, Failure> {
        Ok(Listener::new(self.port)?)
    }

    /// Meets the other end: connects to it, or waits for it. Listens before `ready` is called, which may print where this end is;
    /// so a client may come as soon as that is read.
    ///
    /// # Errors
    /// Nobody to meet.
    pub fn meet(mut self, lcore: &LcoreContext, ready: impl FnOnce()) -> Result<Line, Failure> {
        Ok(match self.host.take() {
            Some(host) => {
                ready();
                Line::connect(&host, self.port)?
            }
            None => {
                let listener = self.listen()?;
                ready();
                listener.accept(&|| lcore.stop_requested())?
            }
        })
    }
}

impl Drop for Appointment {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            // Best effort: why this end fails is what counts.
            drop(Line::connect(&host, self.port));
        }
    }
}
