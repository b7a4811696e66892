//! Clients that say what is sent and when: JSON-RPC 2.0, a message each way, on a socket beside that of telemetry.
//!
//! ```text
//!   client ── {"jsonrpc":"2.0","id":1,"method":"start"} ──► Clients (the thread that serves) ──► Rig::begin ──► lanes
//!          ◄── {"jsonrpc":"2.0","id":1,"result":...} ─────┘        └── Session: streams, rates, what is being sent
//! ```

mod message;
mod session;

use std::sync::Arc;
use std::time::Duration;

use pollux_bringup::BringupError;
use pollux_bringup::program::say;
use pollux_eal::event::EventFd;
use pollux_eal::prefix_socket::{Messages, PrefixSocket, beside, serve};
use pollux_eal::{ControlThread, Eal};

use crate::report::Reported;
use crate::setup::Rig;
use crate::spec::StreamSpec;
use message::Clients;
use session::Session;

/// The name of the socket.
const SOCKET: &str = "pollux_pktgen";

/// What clients will be served with.
pub(crate) struct Remote {
    listener: PrefixSocket,
    session: Session,
}

/// A thread that serves clients.
pub(crate) struct Served {
    end: Arc<EventFd>,
    thread: ControlThread<Session>,
}

impl Remote {
    /// Makes the socket.
    pub(crate) fn new(
        eal: &Eal,
        rig: Rig,
        specs: Vec<StreamSpec>,
        time: Option<Duration>,
    ) -> Result<Self, BringupError> {
        let telemetry = eal.telemetry().path().ok_or_else(|| {
            BringupError::Usage(
                "--rpc: its socket stands beside that of telemetry: leave --no-telemetry out".into(),
            )
        })?;
        let listener = PrefixSocket::at(&beside(&telemetry, SOCKET))?;
        Ok(Self { listener, session: Session::new(rig, specs, time, eal.clock(), eal.stop_flag()) })
    }

    /// Begins to serve.
    pub(crate) fn serve(self, eal: &Eal) -> Result<Served, BringupError> {
        let Self { listener, session } = self;
        say(format_args!("pktgen: waiting for commands at {}", listener.path().display()));
        let end = Arc::new(EventFd::new()?);
        let ended = Arc::clone(&end);
        let thread = eal.control_thread("rpc", move |_| {
            let mut clients = Messages::new(Clients(session));
            if let Err(error) = serve(&listener, &ended, &mut clients) {
                say(format_args!("pktgen: cannot wait for clients: {error}; no more commands are taken"));
            }
            clients.into_inner().0
        })?;
        Ok(Served { end, thread })
    }
}

impl Served {
    /// Ends it; what was sent last.
    pub(crate) fn end(self) -> Result<Vec<Reported>, BringupError> {
        self.end.signal();
        Ok(self.thread.wait()?.into_streams())
    }
}
