//! Functions on vfio-user sockets, for machines that plug them into their guests.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pollux_eal::socket_file::{SocketFile, SocketFileError};
use rustix::net::{Shutdown, shutdown};

use super::function::{Function, Health};
use super::session::Session;
use super::step::All;
use super::vfio_user::{Broken, Connection};
use crate::ModelError;
use crate::device::Device;
use crate::memory::GuestMemory;
use crate::time::worker;

/// Why functions are not served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// A socket cannot be made.
    #[error(transparent)]
    Socket(#[from] SocketFileError),
    /// A socket or a thread could not be set up.
    #[error("cannot {operation} for the device on {}", path.display())]
    Start {
        /// What was tried.
        operation: &'static str,
        /// The device's socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The devices' thread could not be started.
    #[error(transparent)]
    Thread(ModelError),
    /// A device's thread panicked; the others were served to their end.
    #[error("the device on {} failed by a fault of ours: its standard error says where", path.display())]
    Panic {
        /// The device's socket.
        path: PathBuf,
    },
}

/// A device, and the socket on which a machine finds it.
#[derive(Debug)]
pub struct Slot {
    /// The socket, for this user alone. A stale one is taken over; anything else that stands there is left alone.
    pub path: PathBuf,
    /// The device; made by [`Device::in_guest`].
    pub device: Arc<Device>,
    /// Its memory.
    pub memory: Arc<GuestMemory>,
    /// Device number on the bus: which card it is to its driver.
    pub pci_device: u16,
    /// Its firmware's health.
    pub health: Health,
}

/// How long a connection may take to say which protocol it speaks.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends [`serve`] from another thread. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<Mutex<Sockets>>);

/// What is waited on.
#[derive(Debug, Default)]
struct Sockets {
    stopped: bool,
    next: u64,
    open: BTreeMap<u64, OwnedFd>,
}

impl Stop {
    fn lock(&self) -> std::sync::MutexGuard<'_, Sockets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends it: all connections are closed, all sockets removed. A later [`serve`] ends at once.
    pub fn stop(&self) {
        let mut sockets = self.lock();
        sockets.stopped = true;
        for socket in sockets.open.values() {
            // One that nobody is connected to needs none.
            let _ended = shutdown(socket, Shutdown::Both);
        }
    }

    fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    /// Has calls that wait on `socket` return when it is stopped, as long as what this gives lives.
    fn watch(&self, socket: impl AsFd) -> io::Result<Watched<'_>> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let mut sockets = self.lock();
        if sockets.stopped {
            let _ended = shutdown(&socket, Shutdown::Both);
        }
        let id = sockets.next;
        sockets.next += 1;
        sockets.open.insert(id, socket);
        Ok(Watched { stop: self, id })
    }
}

struct Watched<'a> {
    stop: &'a Stop,
    id: u64,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.stop.lock().open.remove(&self.id);
    }
}

/// Serves each slot to one machine, until all machines have ended their connections or `stop` is called; the sockets are
/// removed then. A store to a register has every device stepped until none has work, so that a frame sent by one is at once at the
/// other: before a store is answered that is waited for, else when no more stores have come. A thread steps them besides, for what comes
/// from elsewhere.
///
/// A connection that breaks the protocol is closed and its device reset; the socket waits for the next one. The other devices do
/// not notice.
///
/// # Errors
/// [`ServeError`], before any device is served; or [`ServeError::Panic`] when all have ended.
pub fn serve(slots: Vec<Slot>, stop: &Stop) -> Result<(), ServeError> {
    let mut doors = Vec::new();
    for slot in &slots {
        doors.push(SocketFile::listener(&slot.path)?);
    }
    let functions: Vec<_> = slots
        .into_iter()
        .map(|slot| {
            let function = Function::new(slot.device, slot.pci_device).with_health(slot.health);
            (function, slot.memory)
        })
        .collect();
    let all = All::new(functions.iter().map(|(function, _)| function));
    let _running = worker::run(Arc::new(all.clone()), None).map_err(ServeError::Thread)?;
    // When one cannot be started, those that were are stopped.
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut started = Ok(());
        for (index, ((function, memory), (listener, file))) in functions.into_iter().zip(&doors).enumerate() {
            let session = Session::new(function, memory, all.clone());
            let thread = std::thread::Builder::new()
                .name(format!("control-pci-{index}"))
                .spawn_scoped(scope, move || serve_one(session, listener, file, stop));
            match thread {
                Ok(thread) => threads.push((file, thread)),
                Err(source) => {
                    let path = file.path().to_owned();
                    started = Err(ServeError::Start { operation: "start a thread", path, source });
                    stop.stop();
                    break;
                }
            }
        }
        threads.into_iter().fold(started, |outcome, (file, thread)| {
            let ended = thread.join().unwrap_or_else(|_| {
                // The panic's own message went to standard error.
                Err(ServeError::Panic { path: file.path().to_owned() })
            });
            outcome.and(ended)
        })
    })
}

/// Serves one function until a machine has used and left it.
fn serve_one(
    mut session: Session,
    listener: &UnixListener,
    file: &SocketFile,
    stop: &Stop,
) -> Result<(), ServeError> {
    let socket = file.path().display();
    let failed =
        |operation| move |source| ServeError::Start { operation, path: file.path().to_owned(), source };
    let _listening = stop.watch(listener).map_err(failed("watch a socket"))?;
    while !stop.is_stopped() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if stop.is_stopped() => break,
            // The connection's own fault, or one of the moment: descriptors may be free again soon.
            Err(why) => {
                tracing::warn!(target: "model.pci", "{socket}: no connection: {why}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let watched = stream.try_clone().map_err(failed("watch a connection"))?;
        let _connected = stop.watch(&watched).map_err(failed("watch a connection"))?;
        let mut connection = Connection::new(stream);
        match meet(&mut connection) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                tracing::warn!(target: "model.pci", "{socket}: {why}; waiting for another connection");
                continue;
            }
        }
        let outcome = session.run(&mut connection);
        // The guest is gone, and its memory with it.
        session.clear();
        match outcome {
            Ok(()) => break,
            Err(why @ Broken::Protocol(_)) => {
                tracing::warn!(target: "model.pci", "{socket}: {why}; waiting for another connection");
            }
            // The machine was killed while it was answered.
            Err(why @ Broken::Socket(_)) => {
                tracing::warn!(target: "model.pci", "{socket}: {why}");
                break;
            }
        }
    }
    Ok(())
}

/// Agrees with a machine on the protocol. `false` when nobody wanted to talk. Until then others wait behind it, but not for long.
fn meet(connection: &mut Connection) -> Result<bool, Broken> {
    connection.set_patience(Some(PATIENCE))?;
    let met = Session::meet(connection)?;
    connection.set_patience(None)?;
    Ok(met)
}
