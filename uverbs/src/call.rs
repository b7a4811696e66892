//! A call of a method: what it is about and its attributes, their data borrowed.
//!
//! Whoever asks builds it ([`Call::new`], then a method per attribute) and reads the outputs when the channel has answered
//! ([`Call::get`], [`Call::created`]). Whoever answers reads the inputs ([`Call::input`], [`Call::handle`]) and fills the
//! outputs ([`Call::output`], [`Call::create`]). No address is in it: the kernel's channel turns it into addresses, a model
//! uses it as it is.

use std::borrow::Cow;
use std::os::fd::{BorrowedFd, OwnedFd};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::frame::INLINE_BYTES;
use crate::abi::object;
use crate::{Errno, Operation, UverbsError};

/// Most bytes of an input or output: what its 16-bit length can say.
pub const ATTRIBUTE_BYTES_MAX: usize = u16::MAX as usize;

/// A method of an object, with its attributes.
#[derive(Debug)]
pub struct Call<'a> {
    /// Kind of the object.
    pub object: u16,
    /// What to do with it.
    pub method: u16,
    /// Whose driver attributes are meant; the context fills it in.
    pub driver: u32,
    name: Option<&'static str>,
    attributes: Vec<Attribute<'a>>,
}

/// One attribute of a [`Call`].
#[derive(Debug)]
pub struct Attribute<'a> {
    /// Which one.
    pub id: u16,
    /// Whether a kernel that does not know it must refuse the call.
    pub mandatory: bool,
    /// What it carries.
    pub value: Value<'a>,
}

/// What an attribute carries.
#[derive(Debug)]
pub enum Value<'a> {
    /// An input of up to 8 bytes, kept here.
    Small(Small),
    /// An input of any length; up to 8 bytes it travels in the attribute.
    In(&'a [u8]),
    /// An element of an enumeration with the data that belong to it.
    Element(u8, &'a [u8]),
    /// Room for an output.
    Out(Output<'a>),
    /// An object that exists.
    Handle(u32),
    /// An object that the call makes.
    NewHandle(Option<u32>),
    /// A descriptor that exists.
    Fd(BorrowedFd<'a>),
    /// A descriptor that the call makes.
    NewFd(Option<OwnedFd>),
}

/// Up to 8 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Small {
    bytes: [u8; INLINE_BYTES],
    count: u8,
}

impl Small {
    /// A number as the host writes it.
    #[must_use]
    pub const fn u64(value: u64) -> Self {
        Self { bytes: value.to_ne_bytes(), count: 8 }
    }

    /// A number as the host writes it.
    #[must_use]
    pub const fn u32(value: u32) -> Self {
        let [a, b, c, d] = value.to_ne_bytes();
        Self { bytes: [a, b, c, d, 0, 0, 0, 0], count: 4 }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.count)]
    }
}

/// Room for an output, zero until it is written.
#[derive(Debug)]
pub struct Output<'a> {
    room: Room<'a>,
    written: Option<usize>,
}

#[derive(Debug)]
enum Room<'a> {
    Borrowed(&'a mut [u8]),
    Owned(Vec<u8>),
}

impl<'a> Output<'a> {
    /// Room in the caller's memory, which becomes zero.
    #[must_use]
    pub fn borrowed(room: &'a mut [u8]) -> Self {
        room.fill(0);
        Self { room: Room::Borrowed(room), written: None }
    }

    /// Room of its own.
    #[must_use]
    pub fn owned(bytes: usize) -> Self {
        Self { room: Room::Owned(vec![0; bytes]), written: None }
    }

    /// Length in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        match &self.room {
            Room::Borrowed(room) => room.len(),
            Room::Owned(room) => room.len(),
        }
    }

    /// Puts an answer there: as much as there is room for, the rest zero. For whoever answers.
    pub fn write(&mut self, answer: &[u8]) {
        let count = answer.len().min(self.room());
        let room = self.room_mut();
        room[..count].copy_from_slice(&answer[..count]);
        room[count..].fill(0);
        self.written = Some(count);
    }

    /// Says that the first `count` bytes were written by other means. For whoever answers.
    pub fn set_written(&mut self, count: usize) {
        self.written = Some(count.min(self.room()));
    }

    /// Bytes of the answer, or nothing if none came.
    #[must_use]
    pub fn written(&self) -> Option<&[u8]> {
        self.written.map(|count| &self.all()[..count])
    }

    /// The whole room.
    #[must_use]
    pub fn all(&self) -> &[u8] {
        match &self.room {
            Room::Borrowed(room) => room,
            Room::Owned(room) => room,
        }
    }

    /// The whole room, to be filled; [`set_written`](Self::set_written) goes with it.
    pub fn room_mut(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::Borrowed(room) => room,
            Room::Owned(room) => room,
        }
    }
}

/// Asking.
impl<'a> Call<'a> {
    /// A call without attributes.
    #[must_use]
    pub fn new(object: u16, method: u16) -> Self {
        Self {
            object,
            method,
            driver: object::driver::UNKNOWN,
            name: None,
            attributes: Vec::with_capacity(16),
        }
    }

    /// A call of a driver's own method, with the name that errors shall give it.
    #[must_use]
    pub fn named(object: u16, method: u16, name: &'static str) -> Self {
        Self { name: Some(name), ..Self::new(object, method) }
    }

    /// Adds an attribute, mandatory.
    pub fn attribute(&mut self, id: u16, value: Value<'a>) -> &mut Self {
        self.attributes.push(Attribute { id, mandatory: true, value });
        self
    }

    /// Makes the attribute that was added last one that a kernel may ignore.
    pub fn optional(&mut self) -> &mut Self {
        if let Some(last) = self.attributes.last_mut() {
            last.mandatory = false;
        }
        self
    }

    /// Adds an input of 4 bytes.
    pub fn u32(&mut self, id: u16, value: u32) -> &mut Self {
        self.attribute(id, Value::Small(Small::u32(value)))
    }

    /// Adds an input of 8 bytes; also what the kernel calls a constant (a code or a small number).
    pub fn u64(&mut self, id: u16, value: u64) -> &mut Self {
        self.attribute(id, Value::Small(Small::u64(value)))
    }

    /// Adds an input.
    pub fn bytes(&mut self, id: u16, bytes: &'a [u8]) -> &mut Self {
        self.attribute(id, Value::In(bytes))
    }

    /// Adds an object that exists.
    pub fn object(&mut self, id: u16, handle: u32) -> &mut Self {
        self.attribute(id, Value::Handle(handle))
    }

    /// Adds an object to be made; [`created`](Self::created) tells its handle.
    pub fn new_object(&mut self, id: u16) -> &mut Self {
        self.attribute(id, Value::NewHandle(None))
    }

    /// Adds a descriptor that exists.
    pub fn fd(&mut self, id: u16, fd: BorrowedFd<'a>) -> &mut Self {
        self.attribute(id, Value::Fd(fd))
    }

    /// Adds a descriptor to be made; [`created_fd`](Self::created_fd) hands it over.
    pub fn new_fd(&mut self, id: u16) -> &mut Self {
        self.attribute(id, Value::NewFd(None))
    }

    /// Adds room for an output in the caller's memory.
    pub fn out(&mut self, id: u16, room: &'a mut [u8]) -> &mut Self {
        self.attribute(id, Value::Out(Output::borrowed(room)))
    }

    /// Adds room for an output; [`get`](Self::get) reads it.
    pub fn answer(&mut self, id: u16, bytes: usize) -> &mut Self {
        self.attribute(id, Value::Out(Output::owned(bytes)))
    }

    /// Reads an output.
    ///
    /// # Errors
    /// [`UverbsError::Unwritten`] when it was not written, [`UverbsError::Short`] when it is shorter than a `T`.
    pub fn get<T: FromBytes + KnownLayout + Immutable>(&self, id: u16) -> Result<T, UverbsError> {
        let bytes = self.answered(id)?;
        match T::read_from_prefix(bytes) {
            Ok((value, _)) => Ok(value),
            Err(_) => Err(UverbsError::Short {
                operation: self.operation(),
                attribute: self.operation().attribute(id),
                bytes: bytes.len(),
                wanted: size_of::<T>(),
            }),
        }
    }

    /// The bytes of an output that were written.
    ///
    /// # Errors
    /// [`UverbsError::Unwritten`] when none were.
    pub fn answered(&self, id: u16) -> Result<&[u8], UverbsError> {
        let output = self.find(id).and_then(|attribute| match &attribute.value {
            Value::Out(output) => output.written(),
            _ => None,
        });
        output.ok_or_else(|| self.unwritten(id))
    }

    /// The handle of the object that was made.
    ///
    /// # Errors
    /// [`UverbsError::Unwritten`] when none was told.
    pub fn created(&self, id: u16) -> Result<u32, UverbsError> {
        match self.find(id).map(|attribute| &attribute.value) {
            Some(Value::NewHandle(Some(handle))) => Ok(*handle),
            _ => Err(self.unwritten(id)),
        }
    }

    /// The descriptor that was made.
    ///
    /// # Errors
    /// [`UverbsError::Unwritten`] when none was.
    pub fn created_fd(&mut self, id: u16) -> Result<OwnedFd, UverbsError> {
        let fd = match self.find_mut(id).map(|attribute| &mut attribute.value) {
            Some(Value::NewFd(fd)) => fd.take(),
            _ => None,
        };
        fd.ok_or_else(|| self.unwritten(id))
    }

    /// What errors about it say.
    #[must_use]
    pub fn operation(&self) -> Operation {
        Operation::Method { object: self.object, method: self.method, name: self.name }
    }

    /// Whether the ABI can carry it.
    pub(crate) fn check(&self) -> Result<(), UverbsError> {
        for attribute in &self.attributes {
            let bytes = match &attribute.value {
                Value::In(bytes) | Value::Element(_, bytes) => bytes.len(),
                Value::Out(output) => output.room(),
                _ => 0,
            };
            if bytes > ATTRIBUTE_BYTES_MAX {
                return Err(UverbsError::TooLarge {
                    operation: self.operation(),
                    attribute: self.attribute_name(attribute.id),
                    value: bytes as u64,
                    limit: ATTRIBUTE_BYTES_MAX as u64,
                });
            }
        }
        Ok(())
    }

    fn unwritten(&self, id: u16) -> UverbsError {
        UverbsError::Unwritten { operation: self.operation(), attribute: self.attribute_name(id) }
    }

    fn attribute_name(&self, id: u16) -> Cow<'static, str> {
        self.operation().attribute(id)
    }
}

/// Answering. What is missing or of another kind is `EINVAL`, as the kernel answers it.
impl<'a> Call<'a> {
    /// All attributes, in the order in which they were added.
    #[must_use]
    pub fn attributes(&self) -> &[Attribute<'a>] {
        &self.attributes
    }

    /// All attributes.
    pub fn attributes_mut(&mut self) -> &mut [Attribute<'a>] {
        &mut self.attributes
    }

    /// An attribute, if it is there.
    #[must_use]
    pub fn find(&self, id: u16) -> Option<&Attribute<'a>> {
        self.attributes.iter().find(|attribute| attribute.id == id)
    }

    /// An attribute, if it is there.
    pub fn find_mut(&mut self, id: u16) -> Option<&mut Attribute<'a>> {
        self.attributes.iter_mut().find(|attribute| attribute.id == id)
    }

    /// The bytes of an input, if it is there.
    #[must_use]
    pub fn input(&self, id: u16) -> Option<&[u8]> {
        match &self.find(id)?.value {
            Value::Small(small) => Some(small.bytes()),
            Value::In(bytes) | Value::Element(_, bytes) => Some(bytes),
            _ => None,
        }
    }

    /// An input as a `T`, whose bytes may be longer.
    ///
    /// # Errors
    /// `EINVAL` when it is missing or shorter.
    pub fn input_as<T: FromBytes + KnownLayout + Immutable>(&self, id: u16) -> Result<T, Errno> {
        let bytes = self.input(id).ok_or(Errno::EINVAL)?;
        T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| Errno::EINVAL)
    }

    /// An input number of 4 or 8 bytes.
    ///
    /// # Errors
    /// `EINVAL` when it is missing or of another length.
    pub fn number(&self, id: u16) -> Result<u64, Errno> {
        match self.input(id).ok_or(Errno::EINVAL)? {
            bytes if bytes.len() == 8 => self.input_as::<u64>(id),
            bytes if bytes.len() == 4 => self.input_as::<u32>(id).map(u64::from),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The handle of an object that exists.
    ///
    /// # Errors
    /// `EINVAL` when it is missing.
    pub fn handle(&self, id: u16) -> Result<u32, Errno> {
        match self.find(id).map(|attribute| &attribute.value) {
            Some(Value::Handle(handle)) => Ok(*handle),
            _ => Err(Errno::EINVAL),
        }
    }

    /// A descriptor, if it is there.
    #[must_use]
    pub fn descriptor(&self, id: u16) -> Option<BorrowedFd<'a>> {
        match self.find(id)?.value {
            Value::Fd(fd) => Some(fd),
            _ => None,
        }
    }

    /// Room for an output, if there is any.
    pub fn output(&mut self, id: u16) -> Option<&mut Output<'a>> {
        match &mut self.find_mut(id)?.value {
            Value::Out(output) => Some(output),
            _ => None,
        }
    }

    /// Writes an output that must be there.
    ///
    /// # Errors
    /// `EINVAL` when there is no room for it at all.
    pub fn reply<T: IntoBytes + Immutable + ?Sized>(&mut self, id: u16, answer: &T) -> Result<(), Errno> {
        self.output(id).ok_or(Errno::EINVAL)?.write(answer.as_bytes());
        Ok(())
    }

    /// Tells the handle of the object that was made.
    ///
    /// # Errors
    /// `EINVAL` when nobody asked for one there.
    pub fn create(&mut self, id: u16, handle: u32) -> Result<(), Errno> {
        match self.find_mut(id).map(|attribute| &mut attribute.value) {
            Some(Value::NewHandle(new)) => *new = Some(handle),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }

    /// Hands over the descriptor that was made.
    ///
    /// # Errors
    /// `EINVAL` when nobody asked for one there.
    pub fn create_fd(&mut self, id: u16, fd: OwnedFd) -> Result<(), Errno> {
        match self.find_mut(id).map(|attribute| &mut attribute.value) {
            Some(Value::NewFd(new)) => *new = Some(fd),
            _ => return Err(Errno::EINVAL),
        }
        Ok(())
    }
}

/// A write command: what older kernels take instead of methods, and some things have no other form.
#[derive(Debug)]
pub struct WriteCall<'a> {
    /// Number of the command, with [`EXTENDED`](crate::abi::write::EXTENDED) for that kind.
    pub command: u32,
    /// Whose driver parts are meant; see [`driver`](object::driver).
    pub driver: u32,
    /// The command's struct.
    pub core_in: &'a [u8],
    /// Room for the answer's struct; none when the command has no answer.
    pub core_out: Output<'a>,
    /// The driver's part.
    pub driver_in: &'a [u8],
    /// Room for the driver's part of the answer.
    pub driver_out: Output<'a>,
    /// The descriptor that the command made, for those whose answer begins with its number.
    pub fd: Option<OwnedFd>,
}

impl WriteCall<'_> {
    /// What errors about it say.
    #[must_use]
    pub fn operation(&self) -> Operation {
        Operation::Write { command: self.command }
    }

    /// The command's struct, whose bytes may be longer. For whoever answers.
    ///
    /// # Errors
    /// `EINVAL` when it is shorter.
    pub fn request<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.core_in).map(|(value, _)| value).map_err(|_| Errno::EINVAL)
    }
}
