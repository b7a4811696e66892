//! One channel: a context and its objects, and how calls reach them.
#![expect(unsafe_code, reason = "the calls of a channel are raw, whoever answers them")]

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Channel, Errno, Page, Protection, Route, WriteCall};

use crate::context::Granted;
use crate::core::{Core, Life};
use crate::event::file::{EventFile, FileKind};
use crate::handle::{Handles, Object, ObjectKind};
use crate::umem::RecordPages;
use crate::{firmware, method, start, write};

/// A channel to the device.
pub(crate) struct Door {
    session: Mutex<Session>,
    life: Arc<Life>,
}

/// What a channel has: its context once it has asked for one, the objects, the descriptors of events.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) core: Arc<Core>,
    pub(crate) granted: Option<Granted>,
    pub(crate) handles: Handles,
    pub(crate) records: RecordPages,
    pub(crate) files: Vec<Arc<EventFile>>,
    /// The first descriptor of asynchronous events, for objects that name none.
    pub(crate) default_file: Option<Arc<EventFile>>,
}

impl Door {
    pub(crate) fn new(life: Arc<Life>) -> Self {
        let session = Session {
            core: Arc::clone(&life.core),
            granted: None,
            handles: Handles::default(),
            records: RecordPages::default(),
            files: Vec::new(),
            default_file: None,
        };
        Self { session: Mutex::new(session), life }
    }

    /// The session, when the device is there.
    fn enter(&self) -> Result<MutexGuard<'_, Session>, Errno> {
        firmware::begin_call();
        let core = &self.life.core;
        if core.firmware.is_gone() {
            return Err(Errno::EIO);
        }
        start::lend_requested(core);
        if let Some(clock) = &core.clock {
            clock.refresh();
        }
        // Calls end before the lock does, with whatever they could not undo given up.
        Ok(self.session.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Channel for Door {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::invoke_write as a;
        if (call.object, call.method) == (id::device::OBJECT, a::METHOD)
            && let (Ok(command), Some(request)) = (call.number(a::WRITE_CMD), call.input(a::CORE_IN))
            && let Ok(command) = u32::try_from(command)
        {
            self.life.core.find_destinations(command, request);
        }
        method::call(&mut *self.enter()?, call)
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        self.life.core.find_destinations(command.command, command.core_in);
        let mut session = self.enter()?;
        if route == Route::Tunnelled && session.core.profile.no_invoke_write {
            return Err(Errno::EPROTONOSUPPORT);
        }
        write::write(&mut session, command)
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        self.enter()?.map(offset, bytes, protection)
    }

    fn describe(&self) -> String {
        let [a, b, c, d, e, f] = self.life.core.port.mac;
        format!("mlx5 function {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}, in process")
    }

    fn words(&self) -> Option<String> {
        Some(self.life.core.firmware.words())
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("mac", &self.life.core.port.mac).finish_non_exhaustive()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.session.get_mut().unwrap_or_else(PoisonError::into_inner).close();
    }
}

impl Session {
    /// The context; `EINVAL` before there is one, as the kernel answers it.
    pub(crate) fn granted(&self) -> Result<&Granted, Errno> {
        self.granted.as_ref().ok_or(Errno::EINVAL)
    }

    /// The context, to be changed.
    pub(crate) fn granted_mut(&mut self) -> Result<&mut Granted, Errno> {
        self.granted.as_mut().ok_or(Errno::EINVAL)
    }

    /// On whose behalf commands of this context go.
    pub(crate) fn uid(&self) -> u16 {
        self.granted.as_ref().map_or(0, |granted| granted.uid)
    }

    /// Makes a descriptor of events.
    pub(crate) fn add_file(&mut self, kind: FileKind) -> Result<(Arc<EventFile>, OwnedFd), Errno> {
        let (file, user) = EventFile::new(kind)?;
        if kind == FileKind::Asynchronous {
            self.core.events.add_file(&file);
            self.default_file.get_or_insert_with(|| Arc::clone(&file));
        }
        self.files.push(Arc::clone(&file));
        Ok((file, user))
    }

    /// The event file behind a user's descriptor.
    pub(crate) fn file(
        &self,
        fd: BorrowedFd<'_>,
        is_kind: impl Fn(FileKind) -> bool,
    ) -> Result<Arc<EventFile>, Errno> {
        let file = self.files.iter().find(|file| file.is(fd)).ok_or(Errno::EBADF)?;
        if is_kind(file.kind) { Ok(Arc::clone(file)) } else { Err(Errno::EINVAL) }
    }

    /// The same for a descriptor's number.
    pub(crate) fn file_by_number(&self, fd: i32, kind: FileKind) -> Result<Arc<EventFile>, Errno> {
        let file = self.files.iter().find(|file| file.is_number(fd)).ok_or(Errno::EBADF)?;
        if file.kind == kind { Ok(Arc::clone(file)) } else { Err(Errno::EINVAL) }
    }

    /// The descriptor that a call names for an object's events, or the first one.
    pub(crate) fn event_file(
        &self,
        call: &Call<'_>,
        attribute: u16,
    ) -> Result<Option<Arc<EventFile>>, Errno> {
        match call.descriptor(attribute) {
            Some(fd) => self.file(fd, |kind| kind == FileKind::Asynchronous).map(Some),
            None => Ok(self.default_file.clone()),
        }
    }

    /// Ends an object: `EBUSY` while others need it, or what the firmware says; then it is still there. The answer is what
    /// it was, for what its kind tells at its end.
    pub(crate) fn destroy(&mut self, handle: u32, kind: ObjectKind) -> Result<Object, Errno> {
        if self.handles.get(handle)?.kind() != kind {
            return Err(Errno::EINVAL);
        }
        if self.handles.is_used(handle)? {
            return Err(Errno::EBUSY);
        }
        let core = Arc::clone(&self.core);
        let uid = self.uid();
        end(&core, uid, self.handles.get_mut(handle)?)?;
        let object = self.handles.remove(handle).ok_or(Errno::ENOENT)?;
        self.unmap_of(&object);
        Ok(object)
    }

    /// Destroys everything, younger objects first, and the context.
    fn close(&mut self) {
        let core = Arc::clone(&self.core);
        let uid = self.uid();
        if !core.firmware.is_gone() {
            core.abandoned.fetch_add(self.handles.count(), Ordering::Relaxed);
        }
        while let Some(handle) = self.handles.next_to_go() {
            if let Ok(object) = self.handles.get_mut(handle) {
                // What the firmware does not end is ended with its user context.
                let _ = end(&core, uid, object);
            }
            self.handles.remove(handle);
        }
        if let Some(granted) = self.granted.take() {
            granted.end(&core);
        }
        self.files.clear();
        self.default_file = None;
    }
}

/// Ends an object on the device.
fn end(core: &Core, uid: u16, object: &mut Object) -> Result<(), Errno> {
    match object {
        Object::Pd(pd) => pd.end(core, uid),
        Object::Mr(mr) => mr.end(core),
        Object::Cq(cq) => cq.end(core, uid),
        Object::Qp(qp) => qp.end(core),
        Object::Srq(srq) => srq.end(core),
        Object::Mw(mw) => mw.end(core),
        Object::Dm(dm) => dm.end(core),
        Object::Xrcd(xrcd) => xrcd.end(core),
        Object::Wq(wq) => wq.end(core),
        Object::RwqTable(table) => table.end(core),
        Object::Flow(flow) => flow.end(core),
        Object::Counters(counters) => counters.end(core),
        Object::Uar(uar) => uar.end(core, uid),
        Object::DevxObject(object) => object.end(core),
        Object::DevxUmem(umem) => umem.end(core, uid),
        Object::Ah(_) | Object::Matcher(_) => Ok(()),
    }
}
