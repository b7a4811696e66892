//! What one channel has: a context and its objects.

use std::any::Any;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pollux_uverbs::{Call, Errno};

use crate::context::granted::Granted;
use crate::core::Core;
use crate::event::file::{EventFile, FileKind};
use crate::handle::{Handles, Object};
use crate::umem::RecordPages;

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
    /// It may have queue pair 1.
    pub(crate) has_management: bool,
    /// The domain of the queue pair 1 that it made last.
    pub(crate) management_domain: Option<u32>,
}

impl Session {
    pub(crate) fn new(core: Arc<Core>, has_management: bool) -> Self {
        let handles = Handles::counted(&core.objects);
        Self {
            core,
            granted: None,
            handles,
            records: RecordPages::default(),
            files: Vec::new(),
            default_file: None,
            has_management,
            management_domain: None,
        }
    }

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
        let process = self.core.memory.caller_folder();
        let file = self.files.iter().find(|file| file.is_number(&process, fd)).ok_or(Errno::EBADF)?;
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
    pub(crate) fn destroy<T: Object>(&mut self, handle: u32) -> Result<Box<T>, Errno> {
        self.handles.get::<T>(handle)?;
        if self.handles.is_used(handle)? {
            return Err(Errno::EBUSY);
        }
        let core = Arc::clone(&self.core);
        let uid = self.uid();
        self.handles.any_mut(handle)?.end(&core, uid)?;
        let object = self.handles.remove(handle).ok_or(Errno::ENOENT)?;
        if let (Some(offset), Some(granted)) = (object.offset(), &mut self.granted) {
            granted.maps.remove(offset);
        }
        let object: Box<dyn Any> = object;
        object.downcast().map_err(|_| Errno::EINVAL)
    }

    /// Destroys everything, younger objects first, and the context.
    pub(crate) fn close(&mut self) {
        let core = Arc::clone(&self.core);
        let uid = self.uid();
        if !core.firmware.is_gone() {
            core.abandoned.fetch_add(self.handles.count(), Ordering::Relaxed);
        }
        while let Some(handle) = self.handles.next_to_go() {
            if let Ok(object) = self.handles.any_mut(handle) {
                // What the firmware does not end is ended with its user context.
                let _ = object.end(&core, uid);
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
