//! The kernel's file: calls turned into the bytes of its ioctl and of write(2).
//!
//! All goes through the C library's `open`, `ioctl`, `write`, `mmap`, `read` and `fcntl`, so that a preload library can stand
//! in for the kernel.
#![expect(
    unsafe_code,
    reason = "system calls that read and write memory at addresses inside their arguments"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::frame::{
    ExtendedHeader, INLINE_BYTES, IoctlAttribute, IoctlHeader, MANDATORY, RDMA_VERBS_IOCTL, VALID_OUTPUT,
    WriteHeader,
};
use crate::abi::queue_pair::{PostSend, PostSendResp};
use crate::abi::{id, write};
use crate::call::{Call, Output, Value, WriteCall};
use crate::channel::{Channel, Route};
use crate::page::{Page, Protection};
use crate::{Errno, UverbsError};

const HEADER_BYTES: usize = size_of::<IoctlHeader>();
const ATTRIBUTE_BYTES: usize = size_of::<IoctlAttribute>();

/// `/dev/infiniband/uverbsN`, open. When the last handle of it is dropped the kernel destroys all that was made through it,
/// unless a descriptor of its events or a mapping of it is still there.
#[derive(Debug)]
pub struct KernelFile {
    file: File,
    path: PathBuf,
    /// write(2) was refused: who opened the file had other credentials.
    refuses_write: AtomicBool,
}

/// POST_SEND without requests, with its header.
const RING_BYTES: usize = size_of::<WriteHeader>() + size_of::<PostSend>();

impl KernelFile {
    /// Opens the file of a device, which must be the character device `device` (major, minor) if that is given.
    ///
    /// # Errors
    /// [`UverbsError::Open`] with what mends it, [`UverbsError::WrongFile`] when it is another device.
    pub fn open(path: &Path, device: Option<(u32, u32)>) -> Result<Self, UverbsError> {
        let refused = |error: io::Error| {
            let errno = Errno::from(error);
            UverbsError::Open { path: path.to_owned(), errno, mend: mend(path, errno) }
        };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(refused)?;
        if let Some((major, minor)) = device {
            let found = file.metadata().map_err(refused)?;
            let is_device = found.file_type().is_char_device();
            let (found_major, found_minor) =
                if is_device { (libc::major(found.rdev()), libc::minor(found.rdev())) } else { (0, 0) };
            if (found_major, found_minor) != (major, minor) {
                return Err(UverbsError::WrongFile {
                    path: path.to_owned(),
                    found_major,
                    found_minor,
                    major,
                    minor,
                });
            }
        }
        Ok(Self { file, path: path.to_owned(), refuses_write: AtomicBool::new(false) })
    }

    /// Takes over a descriptor of a device's file that somebody else opened, as it comes from another process.
    ///
    /// # Errors
    /// [`UverbsError::Open`] for what is no character device.
    pub fn adopt(fd: OwnedFd) -> Result<Self, UverbsError> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let path = std::fs::read_link(&path).unwrap_or(path);
        let file = File::from(fd);
        if file.metadata().is_ok_and(|found| found.file_type().is_char_device()) {
            return Ok(Self { file, path, refuses_write: AtomicBool::new(false) });
        }
        let mend = "only a device's file, such as /dev/infiniband/uverbs0, can be taken over".into();
        Err(UverbsError::Open { path, errno: Errno::ENOTTY, mend })
    }

    /// The descriptor.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn ioctl(&self, frame: &mut Frame) -> Result<(), Errno> {
        // SAFETY: the frame has the length that its header says; addresses in it are of slices that the call borrows for its
        // whole life, inputs shared and outputs exclusively, with the lengths beside them.
        let status = unsafe {
            libc::ioctl(self.file.as_raw_fd(), libc::Ioctl::from(RDMA_VERBS_IOCTL), frame.words.as_mut_ptr())
        };
        if status < 0 { Err(io::Error::last_os_error().into()) } else { Ok(()) }
    }
}

impl Channel for KernelFile {
    unsafe fn call(&self, call: &mut Call<'_>) -> Result<(), Errno> {
        let mut frame = Frame::lower(call)?;
        let answer = self.ioctl(&mut frame);
        for (attribute, raw) in call.attributes_mut().iter_mut().zip(frame.attributes()) {
            let answered = raw.flags & VALID_OUTPUT != 0;
            match &mut attribute.value {
                // Written before a failure counts too: a driver's status stands there.
                Value::Out(output) if answered => output.set_written(output.room()),
                Value::NewHandle(handle) if answer.is_ok() => *handle = u32::try_from(raw.data).ok(),
                // SAFETY: on success the kernel has put a descriptor there that it made for this call.
                Value::NewFd(fd) if answer.is_ok() => *fd = unsafe { adopt(raw.data) },
                _ => {}
            }
        }
        answer
    }

    unsafe fn write(&self, command: &mut WriteCall<'_>, route: Route) -> Result<(), Errno> {
        match route {
            Route::Tunnelled => self.tunnelled(command)?,
            Route::Plain => self.plain(command)?,
        }
        if write::answers_with_descriptor(command.command) {
            let number = command.core_out.written().and_then(|bytes| u32::read_from_prefix(bytes).ok());
            // SAFETY: the answer of these commands begins with a descriptor that the kernel made for this command.
            command.fd = number.and_then(|(number, _)| unsafe { adopt(u64::from(number)) });
        }
        Ok(())
    }

    /// By write(2), which costs about 0.6 of the ioctl around the same command, while it is allowed: not to who has other credentials than who
    /// opened the file. Source: Linux `drivers/infiniband/core/uverbs_main.c`, `ib_uverbs_write`; `include/rdma/ib.h`, `ib_safe_file_access`.
    fn ring(&self, qp: u32) -> Option<Result<(), Errno>> {
        if self.refuses_write.load(Ordering::Relaxed) {
            return None;
        }
        let mut answer = PostSendResp::default();
        let response = std::ptr::from_mut(&mut answer).expose_provenance() as u64;
        // In words of four bytes.
        let header = WriteHeader {
            command: write::POST_SEND,
            in_words: (RING_BYTES / 4) as u16,
            out_words: (size_of::<PostSendResp>() / 4) as u16,
        };
        let mut bytes = [0; RING_BYTES];
        let (front, rest) = bytes.split_at_mut(size_of::<WriteHeader>());
        front.copy_from_slice(header.as_bytes());
        rest.copy_from_slice(PostSend { response, ..PostSend::bell(qp) }.as_bytes());
        // SAFETY: the request is read in its length; the address inside it is of `answer`, which is ours alone and has the length that the
        // header says.
        let count = unsafe { libc::write(self.file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        if count >= 0 {
            return Some(Ok(()));
        }
        match Errno::from(io::Error::last_os_error()) {
            Errno::EACCES => {
                self.refuses_write.store(true, Ordering::Relaxed);
                None
            }
            errno => Some(Err(errno)),
        }
    }

    fn map(&self, offset: u64, bytes: usize, protection: Protection) -> Result<Page, Errno> {
        Page::map(self.fd(), offset, bytes, protection)
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

impl KernelFile {
    fn tunnelled(&self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let mut call = Call::new(id::device::OBJECT, id::device::invoke_write::METHOD);
        call.driver = command.driver;
        call.u64(id::device::invoke_write::WRITE_CMD, u64::from(command.command));
        if !command.core_in.is_empty() {
            call.bytes(id::device::invoke_write::CORE_IN, command.core_in);
        }
        if command.core_out.room() > 0 {
            call.out(id::device::invoke_write::CORE_OUT, command.core_out.room_mut());
        }
        if !command.driver_in.is_empty() {
            call.bytes(crate::abi::object::UHW_IN, command.driver_in);
        }
        if command.driver_out.room() > 0 {
            call.out(crate::abi::object::UHW_OUT, command.driver_out.room_mut());
        }
        // SAFETY: the command of the caller's, in another frame.
        let answer = unsafe { self.call(&mut call) };
        let written = |id| call.answered(id).map(<[u8]>::len).ok();
        let (core, driver) =
            (written(id::device::invoke_write::CORE_OUT), written(crate::abi::object::UHW_OUT));
        drop(call);
        set_written(&mut command.core_out, core);
        set_written(&mut command.driver_out, driver);
        answer
    }

    fn plain(&self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let lowered = Lowered::new(command)?;
        let (request, mut answer) = (lowered.request, lowered.answer);
        let bytes = request.as_bytes();
        // SAFETY: the request is read in its length; the address inside it is of `answer`, which is ours alone and has at
        // least the length that the header says.
        let count = unsafe { libc::write(self.file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        if count < 0 {
            return Err(io::Error::last_os_error().into());
        }
        if usize::try_from(count) != Ok(bytes.len()) {
            return Err(Errno::EIO);
        }
        let answer = answer.as_mut_bytes();
        let (core, driver) = answer.split_at(command.core_out.room());
        if !core.is_empty() {
            command.core_out.write(core);
        }
        if command.driver_out.room() > 0 {
            let room = command.driver_out.room();
            command.driver_out.write(&driver[..room]);
        }
        Ok(())
    }
}

fn set_written(output: &mut Output<'_>, written: Option<usize>) {
    if let Some(count) = written {
        output.set_written(count);
    }
}

/// The bytes of an ioctl.
pub(crate) struct Frame {
    words: Vec<u64>,
}

impl Frame {
    /// Turns a call into bytes, with the addresses of its data.
    pub(crate) fn lower(call: &mut Call<'_>) -> Result<Self, Errno> {
        let count = call.attributes().len();
        let length = u16::try_from(HEADER_BYTES + count * ATTRIBUTE_BYTES).map_err(|_| Errno::E2BIG)?;
        let header = IoctlHeader {
            length,
            object_id: call.object,
            method_id: call.method,
            num_attrs: u16::try_from(count).map_err(|_| Errno::E2BIG)?,
            driver_id: call.driver,
            ..IoctlHeader::default()
        };
        let mut words = vec![0u64; usize::from(length) / 8];
        let (head, mut rest) = words.as_mut_bytes().split_at_mut(HEADER_BYTES);
        head.copy_from_slice(header.as_bytes());
        for attribute in call.attributes_mut() {
            let (place, after) = rest.split_at_mut(ATTRIBUTE_BYTES);
            place.copy_from_slice(lower(attribute.id, attribute.mandatory, &mut attribute.value)?.as_bytes());
            rest = after;
        }
        Ok(Self { words })
    }

    /// The attributes, as the kernel left them.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = IoctlAttribute> {
        let (raw, _) = self.words.as_bytes()[HEADER_BYTES..].as_chunks::<ATTRIBUTE_BYTES>();
        raw.iter().map(|raw| zerocopy::transmute!(*raw))
    }

    /// The bytes, as they go to the kernel.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.words.as_bytes()
    }
}

fn lower(id: u16, mandatory: bool, value: &mut Value<'_>) -> Result<IoctlAttribute, Errno> {
    let mut raw = IoctlAttribute {
        attr_id: id,
        flags: if mandatory { MANDATORY } else { 0 },
        ..IoctlAttribute::default()
    };
    match value {
        Value::Small(small) => input(&mut raw, small.bytes())?,
        Value::In(bytes) => input(&mut raw, bytes)?,
        Value::Element(element, bytes) => {
            raw.attr_data[0] = *element;
            input(&mut raw, bytes)?;
        }
        Value::Out(output) => {
            raw.len = u16::try_from(output.room()).map_err(|_| Errno::E2BIG)?;
            raw.data = output.room_mut().as_mut_ptr().expose_provenance() as u64;
        }
        Value::Handle(handle) => raw.data = u64::from(*handle),
        Value::Fd(fd) => raw.data = u64::from(fd.as_raw_fd().cast_unsigned()),
        Value::NewHandle(_) | Value::NewFd(_) => {}
    }
    Ok(raw)
}

fn input(raw: &mut IoctlAttribute, bytes: &[u8]) -> Result<(), Errno> {
    raw.len = u16::try_from(bytes.len()).map_err(|_| Errno::E2BIG)?;
    if bytes.len() <= INLINE_BYTES {
        let mut value = [0; INLINE_BYTES];
        value[..bytes.len()].copy_from_slice(bytes);
        raw.data = u64::from_ne_bytes(value);
    } else {
        raw.data = bytes.as_ptr().expose_provenance() as u64;
    }
    Ok(())
}

/// The bytes of a write command, and room for what the kernel answers.
pub(crate) struct Lowered {
    pub(crate) request: Vec<u8>,
    answer: Vec<u64>,
}

impl Lowered {
    /// Lengths are told in words: of 4 bytes, for extended commands of 8. The driver's parts are padded to that.
    pub(crate) fn new(command: &WriteCall<'_>) -> Result<Self, Errno> {
        let extended = command.command & write::EXTENDED != 0;
        let word = if extended { 8 } else { 4 };
        let words = |bytes: usize| u16::try_from(bytes.div_ceil(word)).map_err(|_| Errno::E2BIG);
        let (core_out, driver_out) = (command.core_out.room(), command.driver_out.room());
        if !core_out.is_multiple_of(word) {
            // The driver's part follows at once, so the core part cannot be padded.
            return Err(Errno::EINVAL);
        }
        let mut answer = vec![0u64; (core_out + driver_out).div_ceil(8) + 1];
        let address =
            if core_out + driver_out > 0 { answer.as_mut_ptr().expose_provenance() as u64 } else { 0 };
        let head = if extended {
            size_of::<WriteHeader>() + size_of::<ExtendedHeader>()
        } else {
            size_of::<WriteHeader>()
        };
        let mut request = vec![0; head];
        request.extend_from_slice(command.core_in);
        request.resize(request.len().next_multiple_of(word), 0);
        let core_in = request.len() - head;
        request.extend_from_slice(command.driver_in);
        request.resize(request.len().next_multiple_of(word), 0);
        if extended {
            let header = WriteHeader {
                command: command.command,
                in_words: words(core_in)?,
                out_words: words(core_out)?,
            };
            let more = ExtendedHeader {
                response: address,
                provider_in_words: words(request.len() - head - core_in)?,
                provider_out_words: words(driver_out)?,
                cmd_hdr_reserved: 0,
            };
            request[..8].copy_from_slice(header.as_bytes());
            request[8..24].copy_from_slice(more.as_bytes());
        } else {
            let header = WriteHeader {
                command: command.command,
                in_words: words(request.len())?,
                out_words: words(core_out + driver_out)?,
            };
            request[..8].copy_from_slice(header.as_bytes());
            if address != 0 {
                // Commands that answer begin with the address for it.
                request.get_mut(8..16).ok_or(Errno::EINVAL)?.copy_from_slice(&address.to_ne_bytes());
            }
        }
        Ok(Self { request, answer })
    }
}

/// Takes over a descriptor by number. `None` when it is none.
///
/// # Safety
/// The descriptor, if it is one, was made for the caller and nobody else will close it.
unsafe fn adopt(number: u64) -> Option<OwnedFd> {
    let number = i32::try_from(number.cast_signed()).ok().filter(|number| *number >= 0)?;
    // SAFETY: by the caller; the number is not -1.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Makes reads of a descriptor return at once when there is nothing.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: flags are read and set; no memory is involved.
    let status = unsafe {
        match libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) {
            flags if flags >= 0 => libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK),
            failed => failed,
        }
    };
    if status < 0 { Err(io::Error::last_os_error().into()) } else { Ok(()) }
}

/// What to do when the file cannot be opened.
fn mend(path: &Path, errno: Errno) -> String {
    let path = path.display();
    match errno {
        Errno::EACCES | Errno::EPERM => format!(
            "`sudo setfacl -m u:$USER:rw {path}` lets this user in until the next boot; in a container the device must be passed in"
        ),
        Errno::ENOENT => {
            "the device has no file: udev is not running, or the container was not given /dev/infiniband"
                .into()
        }
        Errno::ENXIO | Errno::ENODEV => "the device is being removed".into(),
        Errno::EMFILE | Errno::ENFILE => "too many open files; `ulimit -n` tells the limit".into(),
        Errno::EBUSY => "another process has it exclusively".into(),
        _ => format!("`ls -l {path}` and the kernel's log say more"),
    }
}

#[cfg(test)]
mod tests;
