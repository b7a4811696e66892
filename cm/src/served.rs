//! The kernel's half of `/dev/infiniband/rdma_cm`, in this process: commands that programs write to it, carried out by the manager over
//! queue pair 1. Who stands for the kernel, as `mlx5-run` does, gives programs the file. Source: Linux `drivers/infiniband/core/ucma.c`.

mod answer;
mod command;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_uverbs::abi::connection::Head;
use pollux_verbs::Errno;
use zerocopy::FromBytes;

use crate::agent::Timing;
use crate::error::CmError;
use crate::management::ManagementPort;
use crate::parameters::IdOptions;
use crate::service::PortSpace;
use crate::software::Software;

/// The memory of the program that writes a command, where its answers go.
pub trait ClientMemory {
    /// Copies from it.
    ///
    /// # Errors
    /// `EFAULT`: there is none.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies to it.
    ///
    /// # Errors
    /// `EFAULT`: there is none.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Errno>;
}

/// An ID of a program's.
#[derive(Debug)]
struct Entry {
    /// What events about it carry; 0 until a request is accepted.
    uid: u64,
    /// The channel of its file.
    file: u64,
    /// `None` of an ID of InfiniBand's own services, which can be made, bound and looked at, and nothing else: libraries
    /// find out that way whether commands take addresses of every family.
    space: Option<PortSpace>,
    options: IdOptions,
    /// Events about it that were read.
    reported: u32,
}

/// An ID in a multicast group.
#[derive(Debug)]
struct Membership {
    id: u32,
    group: std::net::IpAddr,
    uid: u64,
    reported: u32,
}

#[derive(Debug)]
struct State {
    software: Software,
    ids: HashMap<u32, Entry>,
    memberships: HashMap<u32, Membership>,
    last_membership: u32,
}

/// A connection manager, as programs find the kernel's. Clones are handles.
#[derive(Clone, Debug)]
pub struct Served(Arc<Mutex<State>>);

/// An open file of it. Dropped, its IDs go, and their peers are told.
#[derive(Debug)]
pub struct ServedFile {
    served: Served,
    channel: u64,
}

impl Served {
    /// The manager of these ports.
    #[must_use]
    pub fn over(ports: Vec<ManagementPort>) -> Self {
        let software = Software::new(ports, Timing::default());
        let (ids, memberships) = (HashMap::new(), HashMap::new());
        Self(Arc::new(Mutex::new(State { software, ids, memberships, last_membership: 0 })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A command leaves no change half done that another would believe.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what came in, and does what is due: to be called every few hundred microseconds while programs connect, and every few
    /// milliseconds else, without files too: peers are told then that nobody listens. Whether anything came of it.
    pub fn work(&self) -> bool {
        self.lock().software.work()
    }

    /// Files for which something happened since this was called last, by [their numbers](ServedFile::number).
    #[must_use]
    pub fn take_eventful(&self) -> Vec<u64> {
        self.lock().software.take_eventful()
    }

    /// Opens its file.
    #[must_use]
    pub fn open(&self) -> ServedFile {
        let channel = self.lock().software.channel();
        ServedFile { served: self.clone(), channel }
    }
}

impl ServedFile {
    /// Carries out a command, as it was written to the file. Nothing waits: where there is no event, that is `EAGAIN`.
    ///
    /// # Errors
    /// What the kernel would say; `ENOSYS` for commands that are absent here.
    pub fn command(&self, memory: &dyn ClientMemory, bytes: &[u8]) -> Result<(), Errno> {
        let (head, body) = Head::read_from_prefix(bytes).map_err(|_| Errno::EINVAL)?;
        let body = body.get(..head.r#in.into()).ok_or(Errno::EINVAL)?;
        let mut state = self.served.lock();
        command::carry_out(
            &mut state,
            self.channel,
            (head.cmd, body),
            &answer::Room { memory, bytes: head.out.into() },
        )
    }

    /// By which [`Served::take_eventful`] names it.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.channel
    }

    /// Whether an event waits.
    #[must_use]
    pub fn has_events(&self) -> bool {
        let mut state = self.served.lock();
        answer::skip_untold(&mut state, self.channel);
        state.software.has_events(self.channel)
    }
}

impl Drop for ServedFile {
    fn drop(&mut self) {
        let mut state = self.served.lock();
        let own = |(id, entry): (&u32, &Entry)| (entry.file == self.channel).then_some(*id);
        let ids: Vec<u32> = state.ids.iter().filter_map(own).collect();
        for id in ids {
            state.forget(id);
        }
        state.software.end_channel(self.channel);
    }
}

impl State {
    /// Ends an ID: how many events about it were read.
    fn forget(&mut self, id: u32) -> u32 {
        self.software.destroy(id.into());
        self.memberships.retain(|_, membership| membership.id != id);
        self.ids.remove(&id).map_or(0, |entry| entry.reported)
    }
}

/// What the kernel would say.
fn errno(error: CmError) -> Errno {
    match error {
        // It is the port of nothing here, thus none of this host's.
        CmError::NoDevice { .. } => Errno::EADDRNOTAVAIL,
        CmError::PortInUse { .. } => Errno::EADDRINUSE,
        CmError::Kernel { errno, .. } => errno,
        CmError::Verbs(error) => error.errno().unwrap_or(Errno::EIO),
        CmError::Unsupported { .. } => Errno::EOPNOTSUPP,
        _ => Errno::EINVAL,
    }
}
