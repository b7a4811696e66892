//! An ioctl of the program's, as a call: its attributes read from the program's memory and told apart by what the method takes, its
//! answers put back. Source: Linux `drivers/infiniband/core/uverbs_ioctl.c`, `ib_uverbs_ioctl`, `uverbs_process_attr`.

use std::os::fd::{BorrowedFd, IntoRawFd};

use pollux_mlx5_kernel::{AttributeSpec, Carries, attributes};
use pollux_uverbs::abi::frame::{INLINE_BYTES, IoctlAttribute, IoctlHeader, MANDATORY, VALID_OUTPUT};
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};
use pollux_uverbs::{Call, Channel, Errno, Output, Value};
use zerocopy::IntoBytes;

use super::{arm, client};

const HEADER: u64 = size_of::<IoctlHeader>() as u64;
const ATTRIBUTE: usize = size_of::<IoctlAttribute>();
/// Most bytes of a frame: a page.
const FRAME_MAX: usize = 4096;

/// Carries out the ioctl whose frame is at an address of the program's.
///
/// # Safety
/// What the frame says of memory and objects is the program's word, which [`Channel::call`] believes.
pub(crate) unsafe fn carry_out(channel: &dyn Channel, address: u64) -> Result<(), Errno> {
    let mut header = IoctlHeader::default();
    client::read(address, header.as_mut_bytes())?;
    let count = usize::from(header.num_attrs);
    let length = size_of::<IoctlHeader>() + count * ATTRIBUTE;
    if length > FRAME_MAX || usize::from(header.length) != length {
        return Err(Errno::EINVAL);
    }
    if header.reserved1 != 0 || header.reserved2 != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let mut raw = vec![IoctlAttribute::default(); count];
    client::read(address + HEADER, raw.as_mut_slice().as_mut_bytes())?;
    let specs = attributes(header.object_id, header.method_id).ok_or(Errno::EPROTONOSUPPORT)?;
    // A method that is lacking altogether looks at nothing.
    if specs.is_empty() {
        raw.clear();
    }
    let inputs = raw.iter().map(|raw| input(specs, raw)).collect::<Result<Vec<_>, _>>()?;
    let mut call = Call::new(header.object_id, header.method_id);
    call.driver = header.driver_id;
    for (raw, input) in raw.iter().zip(&inputs) {
        call.attribute(raw.attr_id, value(carries(specs, raw.attr_id), raw, input)?);
        if raw.flags & MANDATORY == 0 {
            call.optional();
        }
    }
    arm::mark(&call);
    // SAFETY: as the caller says.
    let answer = unsafe { channel.call(&mut call) };
    let places = (0_u64..).map(|index| address + HEADER + index * ATTRIBUTE as u64);
    for ((raw, attribute), place) in raw.iter().zip(call.attributes_mut()).zip(places) {
        // Written before a failure counts too: a driver's status stands there.
        if let Value::Out(output) = &attribute.value
            && output.written().is_some()
        {
            client::write(raw.data, output.all())?;
            let flags = raw.flags | VALID_OUTPUT;
            client::write(place + 4, &flags.to_ne_bytes())?;
        }
        let made = match &mut attribute.value {
            Value::NewHandle(handle) => handle.map(u64::from),
            Value::NewFd(fd) if answer.is_ok() => {
                fd.take().map(|fd| u64::from(fd.into_raw_fd().cast_unsigned()))
            }
            _ => None,
        };
        if let Some(made) = made.filter(|_| answer.is_ok()) {
            client::write(place + 8, &made.to_ne_bytes())?;
        }
    }
    answer
}

/// What an attribute carries, if the method or any driver's part has it.
fn carries(specs: &[AttributeSpec], id: u16) -> Option<Carries> {
    let own = specs.iter().find(|spec| spec.id == id).map(|spec| spec.carries);
    own.or(match id {
        UHW_IN => Some(Carries::In(0)),
        UHW_OUT => Some(Carries::Out(0)),
        _ => None,
    })
}

/// The bytes that an attribute brings.
fn input(specs: &[AttributeSpec], raw: &IoctlAttribute) -> Result<Vec<u8>, Errno> {
    let length = usize::from(raw.len);
    match carries(specs, raw.attr_id) {
        Some(Carries::In(_) | Carries::Number | Carries::Element) if length <= INLINE_BYTES => {
            Ok(raw.data.to_ne_bytes()[..length].to_vec())
        }
        Some(Carries::In(_) | Carries::Number | Carries::Element) => {
            let mut bytes = vec![0; length];
            client::read(raw.data, &mut bytes)?;
            Ok(bytes)
        }
        _ => Ok(Vec::new()),
    }
}

/// An attribute, by what it carries. One that nobody knows has no value that counts: the channel refuses it, or looks past it.
fn value<'a>(carries: Option<Carries>, raw: &IoctlAttribute, input: &'a [u8]) -> Result<Value<'a>, Errno> {
    Ok(match carries {
        Some(Carries::In(_) | Carries::Number) | None => Value::In(input),
        Some(Carries::Element) => Value::Element(raw.attr_data[0], input),
        Some(Carries::Out(_)) => Value::Out(Output::owned(raw.len.into())),
        Some(Carries::Object(_) | Carries::AnyObject | Carries::NoObject) => {
            Value::Handle(u32::try_from(raw.data).map_err(|_| Errno::ENOENT)?)
        }
        Some(Carries::New) => Value::NewHandle(None),
        Some(Carries::NewFd) => Value::NewFd(None),
        Some(Carries::Fd) => {
            let fd = i32::try_from(raw.data.cast_signed()).ok().filter(|fd| *fd >= 0).ok_or(Errno::EBADF)?;
            // SAFETY: a number of the program's, which is looked at as long as the call lasts; the channel asks the kernel what file it
            // is, and a number of no file is refused there.
            Value::Fd(unsafe { BorrowedFd::borrow_raw(fd) })
        }
    })
}
