//! Device events for DevX.

use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pollux_mlx5_abi::eqe::event;
use pollux_mlx5_abi::kernel::attribute::{devx_async_event_fd_alloc as alloc, devx_subscribe_event as a};
use pollux_mlx5_abi::kernel::verbs::event_channel;
use pollux_uverbs::{Call, Errno};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

use crate::device::DmaMemory;
use crate::devx::object::DevxObject;
use crate::event::Subscription;
use crate::event::file::{Count, FileKind};
use crate::session::Session;

/// Most kinds of events in one call. Source: Linux `drivers/infiniband/hw/mlx5/devx.c`, `MAX_NUM_EVENTS`.
const KINDS_MAX: usize = 16;

/// Kinds of events that belong to objects. Source: Linux `drivers/infiniband/hw/mlx5/devx.c`, `is_legacy_obj_event_num`.
const OF_OBJECTS: &[u8] = &[
    event::COMP,
    event::PATH_MIG,
    event::COMM_EST,
    event::SQ_DRAINED,
    event::SRQ_LAST_WQE,
    event::SRQ_RQ_LIMIT,
    event::CQ_ERROR,
    event::WQ_CATAS_ERROR,
    event::PATH_MIG_FAILED,
    event::WQ_INVAL_REQ_ERROR,
    event::WQ_ACCESS_ERROR,
    event::SRQ_CATAS_ERROR,
    event::DCT_DRAINED,
];

/// Kinds of events that belong to none.
const OF_NONE: &[u8] = &[event::PORT_CHANGE];

impl Session {
    /// `DEVX_ASYNC_EVENT_FD/ALLOC`.
    pub(crate) fn devx_alloc_event_fd(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let flags = call.number(alloc::FLAGS)?;
        if flags & !u64::from(event_channel::OMIT_DATA) != 0 {
            return Err(Errno::EINVAL);
        }
        let omit_data = flags & u64::from(event_channel::OMIT_DATA) != 0;
        let (_, user) = self.add_file(FileKind::DevxEvent { omit_data })?;
        call.create_fd(alloc::HANDLE, user)
    }

    /// `DEVX/SUBSCRIBE_EVENT`.
    pub(crate) fn devx_subscribe(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        if self.granted()?.uid == 0 {
            return Err(Errno::EINVAL);
        }
        let object = match call.find(a::OBJ_HANDLE) {
            Some(_) => Some(self.handles.get::<DevxObject>(call.handle(a::OBJ_HANDLE)?)?.identity()),
            None => None,
        };
        let fd = call.descriptor(a::FD_HANDLE).ok_or(Errno::EINVAL)?;
        let file = self.file(fd, |kind| matches!(kind, FileKind::DevxEvent { .. }))?;
        let redirect = match call.find(a::FD_NUM) {
            Some(_) => Some(counter(self.core.memory.as_ref(), call.input_as(a::FD_NUM)?)?),
            None => None,
        };
        let cookie = match call.find(a::COOKIE) {
            Some(_) if redirect.is_some() => return Err(Errno::EINVAL),
            Some(_) => call.number(a::COOKIE)?,
            None => 0,
        };
        let list = call.input(a::TYPE_NUM_LIST).unwrap_or_default();
        let (kinds, rest) = list.as_chunks::<2>();
        if !rest.is_empty() || kinds.len() > KINDS_MAX {
            return Err(Errno::EINVAL);
        }
        let kinds: Vec<u16> = kinds.iter().map(|kind| u16::from_ne_bytes(*kind)).collect();
        let allowed = if object.is_some() { OF_OBJECTS } else { OF_NONE };
        if !kinds.iter().all(|kind| allowed.iter().any(|known| u16::from(*known) == *kind)) {
            return Err(Errno::EINVAL);
        }
        for kind in kinds {
            let redirect = redirect.as_ref().map(OwnedFd::try_clone).transpose().map_err(Errno::from)?;
            self.core.events.subscribe(Subscription {
                file: Arc::downgrade(&file),
                event: kind,
                object,
                cookie,
                redirect,
                count: Count::default(),
            });
        }
        Ok(())
    }
}

/// A handle of the counter behind a descriptor of the process that calls.
fn counter(memory: &dyn DmaMemory, fd: i32) -> Result<OwnedFd, Errno> {
    let link = fs::read_link(format!("{}/fd/{fd}", memory.caller_folder())).map_err(|_| Errno::EBADF)?;
    if link.to_str() != Some("anon_inode:[eventfd]") {
        return Err(Errno::EINVAL);
    }
    // A number is all that the call has; the kernel's way to another process's descriptor serves for one's own.
    let errno = |error: rustix::io::Errno| Errno(error.raw_os_error());
    let caller =
        memory.caller().and_then(|process| Pid::from_raw(process.cast_signed())).unwrap_or_else(getpid);
    let process = pidfd_open(caller, PidfdFlags::empty()).map_err(errno)?;
    pidfd_getfd(process, fd, PidfdGetfdFlags::empty()).map_err(errno)
}
