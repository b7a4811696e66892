//! Telemetry: what scripts ask of a running program, in the protocol and under the paths of DPDK's, version 2.
//!
//! ```text
//!   dpdk-telemetry.py ──► /run/dpdk/PREFIX/dpdk_telemetry.v2 ──► control-telemetry ──► handlers: Fn(&str) -> Value
//!     "/ethdev/stats,0"     SOCK_SEQPACKET, mode 0600              one thread          registered by the EAL,
//!     {"/ethdev/stats":{..}}                                       for all clients     bring-up and the application
//! ```
//!
//! A message is a command, or a command, a comma and its parameters; the answer is one JSON object, `{"/command": value}`, of
//! [`OUTPUT_MAX`] bytes at most. The protocol: DPDK `lib/telemetry/telemetry.c`; the path: `lib/eal/unix/eal_filesystem.c`.
//!
//! Called by `bringup` and applications, which register commands; calls handlers, on its own thread, never on an lcore.
//!
//! ```
//! use pollux_config::EalSpec;
//! use pollux_eal::Eal;
//! use pollux_eal::telemetry::Value;
//!
//! let eal = Eal::init(EalSpec::default())?;
//! eal.telemetry().register("/app/greeting", "Returns a greeting. Parameters: string name", |name| match name {
//!     "" => Value::Null,
//!     name => Value::from(format!("hello {name}")),
//! })?;
//! // As a client would ask, without a socket:
//! assert_eq!(eal.telemetry().ask("/app/greeting,world"), r#"{"/app/greeting":"hello world"}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod command;
mod reply;
mod server;
mod views;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

pub use serde_json::{Value, json};

use crate::control::{Controls, join_other};
use crate::event::EventFd;
use crate::prefix_socket::PrefixSocket;
use crate::{EalError, Panicked};
use command::Commands;

/// Maximum length of an answer in bytes, as clients are told in the greeting. Source: DPDK `lib/telemetry/telemetry.c`,
/// `MAX_OUTPUT_LEN`.
pub const OUTPUT_MAX: usize = 16 * 1024;

/// Maximum number of clients at a time. Source: DPDK `lib/telemetry/telemetry.c`, `MAX_CONNECTIONS`.
pub const CLIENTS_MAX: usize = 10;

/// The socket's name. Source: DPDK `lib/telemetry/telemetry.c`, `get_socket_path`.
const NAME: &str = "dpdk_telemetry.v2";

/// Length that a command's path stays below. Source: DPDK `lib/telemetry/telemetry.c`, `MAX_CMD_LEN`.
pub const COMMAND_MAX: usize = 56;

/// The commands of one `Eal` and the socket on which they are answered. Clones are the same.
#[derive(Clone, Debug)]
pub struct Telemetry(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    commands: Commands,
    controls: Controls,
    serving: Mutex<Option<Serving>>,
}

/// The thread that answers, and how it is ended.
#[derive(Debug)]
struct Serving {
    path: PathBuf,
    end: Arc<EventFd>,
    thread: JoinHandle<Result<(), Panicked>>,
}

impl Telemetry {
    pub(crate) fn new(controls: Controls) -> Self {
        Self(Arc::new(Shared { commands: Commands::new(), controls, serving: Mutex::default() }))
    }

    /// Registers a command. `handler` is given what follows the comma, `""` without parameters, and runs on the telemetry thread, or
    /// on that which calls [`ask`](Self::ask); a parameter that makes no sense is answered by [`Value::Null`]. All clients wait for it, so it
    /// must not block. A panic in it stops the `Eal`, as that of an lcore does. It is dropped at the end of the `Eal`, when it is called no
    /// more and before memory goes.
    ///
    /// # Errors
    /// [`EalError::TelemetryCommand`]: the path does not begin with `/`, has a character other than ASCII letters, digits, `_` and `/`,
    /// is not shorter than [`COMMAND_MAX`], or is registered already.
    #[doc(alias = "rte_telemetry_register_cmd")]
    pub fn register(
        &self,
        path: &str,
        help: &str,
        handler: impl Fn(&str) -> Value + Send + Sync + 'static,
    ) -> Result<(), EalError> {
        self.0.commands.add(path, help, Arc::new(handler))
    }

    /// Removes a command; whether there was one. A call of its handler may still be under way.
    pub fn unregister(&self, path: &str) -> bool {
        self.0.commands.remove(path)
    }

    /// Answers a message as a client's is answered: one JSON object.
    #[must_use]
    pub fn ask(&self, message: &str) -> String {
        self.0.commands.answer(message.as_bytes(), &self.0.controls.reporter)
    }

    /// Calls the handler of a command and returns its whole answer, however long; `None`: there is no such command, or it panicked.
    #[cfg(test)]
    fn call(&self, path: &str, parameters: &str) -> Option<Value> {
        self.0.commands.call(path, parameters, &self.0.controls.reporter)
    }

    /// Returns the path of the socket; `None` while there is none.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        self.serving().as_ref().map(|serving| serving.path.clone())
    }

    /// Makes the socket in a directory, which is made if need be, and starts the thread.
    pub(crate) fn serve(&self, directory: &Path) -> Result<(), EalError> {
        let listener = PrefixSocket::bind(directory, NAME)?;
        let path = listener.path().to_owned();
        let end = Arc::new(EventFd::new()?);
        let (ended, telemetry) = (Arc::clone(&end), self.clone());
        let reporter = self.0.controls.reporter.clone();
        let answer = move |message: &[u8]| telemetry.0.commands.answer(message, &reporter);
        let thread = self.0.controls.spawn("telemetry", move || server::run(&listener, &ended, answer))?;
        tracing::debug!(target: "lib.telemetry", "telemetry at {}", path.display());
        *self.serving() = Some(Serving { path, end, thread });
        Ok(())
    }

    /// Answers no more: the socket goes, then the commands with all that they hold.
    pub(crate) fn end(&self) {
        let serving = self.serving().take();
        if let Some(serving) = serving {
            serving.end.signal();
            join_other(serving.thread);
        }
        self.0.controls.reporter.let_go(self.0.commands.clear());
    }

    fn serving(&self) -> MutexGuard<'_, Option<Serving>> {
        self.0.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) use views::register as register_views;
