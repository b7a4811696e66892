//! The calls of any process as it makes them: `explain` traces it by ptrace(2), and makes of its calls on RDMA devices the lines that a
//! program of Pollux writes of its own.
//!
//! ```text
//!   the process's threads ── stops ──► threads ── calls ──► frame, command, files ──► lines ──► Explainer
//!                                      signals go on       memory in front of the call and behind it
//! ```
//!
//! A thread of `explain` does it. A stop is first looked at and left as it is, and taken only in its turn; in a turn nothing waits for
//! anybody, and at its end every thread of the process runs again. So `explain` may end between two turns: the kernel then lets go of the
//! process without disturbing a call that it is in, and the signals that were on their way arrive.

mod attribute;
mod calls;
mod command;
mod driver;
mod files;
mod frame;
mod memory;
pub(crate) mod refused;
mod threads;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pollux_uverbs::trace::hex;

use super::{Process, Watch, plain};
use crate::Explainer;

/// How long threads may take to stop for the first time: one that waits for a disk stops later.
const BEGIN: Duration = Duration::from_secs(2);
/// How long a turn may take at the end; more only where a process has memory that nobody fills (userfaultfd).
const TURN: Duration = Duration::from_secs(1);
/// Bytes that are told and not read yet. Then the process waits.
const AHEAD: usize = 4 << 20;

/// What is told of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// A line of a trace.
    Line(String),
    /// A line of its own.
    Word(String),
    /// A channel is to a device of another driver than mlx5's.
    Other(String),
}

impl Said {
    fn word(text: String) -> Self {
        Self::Word(plain(&text))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Line(text) | Self::Word(text) | Self::Other(text) => text.len(),
        }
    }
}

/// Bytes in a line; of those that could not be read, that.
fn word(bytes: Option<&[u8]>) -> String {
    match bytes {
        // No part of a call is longer.
        Some(bytes) if bytes.len() > usize::from(u16::MAX) => "long".into(),
        Some(bytes) => hex(bytes),
        None => "unreadable".into(),
    }
}

/// What the tracing thread and the others share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// The state is another one.
    changed: Condvar,
    /// Held while stops are taken, and by who ends it all.
    turn: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    said: Vec<Said>,
    bytes: usize,
    /// Every thread that there was has stopped once.
    begun: bool,
    /// No more will come.
    over: bool,
    /// No more is wanted.
    stopped: bool,
    refused: Option<io::Error>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    fn say(&self, said: Vec<Said>) {
        self.change(|state| {
            state.bytes += said.iter().map(Said::bytes).sum::<usize>();
            state.said.extend(said);
        });
    }

    /// Waits until there is room for more.
    fn wait_for_room(&self) {
        let full = |state: &mut State| state.bytes > AHEAD && !state.stopped;
        drop(self.changed.wait_while(self.state(), full));
    }
}

/// A process that is traced. It is let go when this is dropped and `explain` ends: until then its next call may be held.
#[derive(Debug)]
pub struct Tracer {
    shared: Arc<Shared>,
    explainer: Explainer,
}

impl Tracer {
    /// Begins to trace a process; with `names` addresses and keys are named.
    ///
    /// # Errors
    /// There is no such process, or it cannot be traced, with the reason.
    pub fn begin(process: &Process, names: bool) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (own, process) = (Arc::clone(&shared), process.clone());
        let trace = move || {
            let over = Over(own);
            if let Err(why) = threads::watch(&process, &over.0) {
                over.0.change(|state| state.refused = Some(why));
            }
        };
        let _thread = std::thread::Builder::new().name("trace".into()).spawn(trace)?;
        let tracer = Self { shared, explainer: Explainer::new(names) };
        let waits = |state: &mut State| !state.begun && !state.over;
        let begun = tracer.shared.changed.wait_timeout_while(tracer.shared.state(), BEGIN, waits);
        let (mut state, _) = begun.unwrap_or_else(PoisonError::into_inner);
        let refused = state.refused.take();
        drop(state);
        refused.map_or(Ok(tracer), Err)
    }
}

impl Watch for Tracer {
    fn more(&mut self) -> io::Result<Option<String>> {
        let (said, refused) = {
            let mut state = self.shared.state();
            state.bytes = 0;
            (std::mem::take(&mut state.said), state.refused.take())
        };
        self.shared.changed.notify_all();
        if let Some(why) = refused {
            return Err(why);
        }
        let mut out = String::new();
        let is_new = !said.is_empty();
        for said in said {
            match said {
                Said::Line(line) => out += &self.explainer.line(&line),
                Said::Word(word) => {
                    out += &word;
                    out.push('\n');
                }
                Said::Other(channel) => self.explainer.of_other_driver(&channel),
            }
        }
        Ok(is_new.then_some(out))
    }

    fn is_over(&self) -> bool {
        self.shared.state().over
    }

    fn summary(&self) -> String {
        self.explainer.summary()
    }

    fn end(&mut self) {
        self.shared.change(|state| state.stopped = true);
        let begun = Instant::now();
        // Behind it no turn begins.
        while self.shared.turn.try_lock().is_err() && begun.elapsed() < TURN {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says that it is over, however the thread ends.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.change(|state| state.over = true);
    }
}
