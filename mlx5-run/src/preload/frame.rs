//! An ioctl of a process's, as a call: its attributes read from the process's memory and told apart by what the method takes, its
//! answers put back. Source: Linux `drivers/infiniband/core/uverbs_ioctl.c`, `ib_uverbs_ioctl`, `uverbs_process_attr`.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use pollux_mlx5_kernel::{AttributeSpec, Carries, attributes};
use pollux_uverbs::abi::frame::{INLINE_BYTES, IoctlAttribute, IoctlHeader, MANDATORY, VALID_OUTPUT};
use pollux_uverbs::abi::id::device::invoke_write as tunnelled;
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};
use pollux_uverbs::abi::{id, write};
use pollux_uverbs::{Call, Channel, Errno, Output, Value};
use zerocopy::IntoBytes;

use super::arm;
use super::client::Client;

const HEADER: u64 = size_of::<IoctlHeader>() as u64;
const ATTRIBUTE: usize = size_of::<IoctlAttribute>();
/// Most bytes of a frame: a page.
const FRAME_MAX: usize = 4096;

/// A descriptor that a call has made, and where its number of 4 bytes goes.
pub(crate) type Made = (u64, OwnedFd);

/// Carries out the ioctl whose frame is at an address of the client's. The descriptors that it makes are the client's to number, also
/// beside an error.
///
/// # Safety
/// What the frame says of memory and objects is the client's word, which [`Channel::call`] believes.
pub(crate) unsafe fn carry_out(
    channel: &dyn Channel,
    client: Client,
    address: u64,
    descriptors: &mut Vec<Made>,
) -> Result<(), Errno> {
    let mut header = IoctlHeader::default();
    client.read(address, header.as_mut_bytes())?;
    let count = usize::from(header.num_attrs);
    let length = size_of::<IoctlHeader>() + count * ATTRIBUTE;
    if length > FRAME_MAX || usize::from(header.length) != length {
        return Err(Errno::EINVAL);
    }
    if header.reserved1 != 0 || header.reserved2 != 0 {
        return Err(Errno::EPROTONOSUPPORT);
    }
    let mut raw = vec![IoctlAttribute::default(); count];
    client.read(address + HEADER, raw.as_mut_slice().as_mut_bytes())?;
    let specs = attributes(header.object_id, header.method_id).ok_or(Errno::EPROTONOSUPPORT)?;
    // A method that is lacking altogether looks at nothing.
    if specs.is_empty() {
        raw.clear();
    }
    let inputs = raw.iter().map(|raw| input(specs, client, raw)).collect::<Result<Vec<_>, _>>()?;
    let mut call = Call::new(header.object_id, header.method_id);
    call.driver = header.driver_id;
    for (raw, input) in raw.iter().zip(&inputs) {
        call.attribute(raw.attr_id, value(carries(specs, raw.attr_id), raw, input)?);
        if raw.flags & MANDATORY == 0 {
            call.optional();
        }
    }
    arm::mark(client, &call);
    let makes_descriptor = makes_descriptor(&call);
    // SAFETY: as the caller says.
    let answer = unsafe { channel.call(&mut call) };
    let places = (0_u64..).map(|index| address + HEADER + index * ATTRIBUTE as u64);
    for ((raw, attribute), place) in raw.iter().zip(call.attributes_mut()).zip(places) {
        // Written before a failure counts too: a driver's status stands there.
        if let Value::Out(output) = &attribute.value
            && output.written().is_some()
        {
            client.write(raw.data, output.all())?;
            let flags = raw.flags | VALID_OUTPUT;
            client.write(place + 4, &flags.to_ne_bytes())?;
        }
        match &mut attribute.value {
            Value::NewHandle(Some(handle)) if answer.is_ok() => {
                client.write(place + 8, &u64::from(*handle).to_ne_bytes())?;
            }
            Value::NewFd(fd) if answer.is_ok() => {
                client.write(place + 8, &[0; 8])?;
                descriptors.extend(fd.take().map(|fd| (place + 8, fd)));
            }
            Value::Out(output)
                if answer.is_ok() && makes_descriptor && raw.attr_id == tunnelled::CORE_OUT =>
            {
                let number = output.written().and_then(|answer| answer.first_chunk::<4>());
                let number = number.map_or(-1, |number| i32::from_ne_bytes(*number));
                if number >= 0 {
                    // SAFETY: made by this call, for whoever reads its number there.
                    descriptors.push((raw.data, unsafe { OwnedFd::from_raw_fd(number) }));
                }
            }
            _ => {}
        }
    }
    answer
}

/// Whether a call is a write command whose answer begins with the number of a descriptor that it made. Source: Linux
/// `include/uapi/rdma/ib_user_verbs.h`, `ib_uverbs_get_context_resp`, `ib_uverbs_create_comp_channel_resp`.
fn makes_descriptor(call: &Call<'_>) -> bool {
    let commands = [write::GET_CONTEXT, write::CREATE_COMP_CHANNEL].map(u64::from);
    (call.object, call.method) == (id::device::OBJECT, tunnelled::METHOD)
        && call.number(tunnelled::WRITE_CMD).is_ok_and(|command| commands.contains(&command))
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

/// What an attribute brings that is not in the frame.
enum Input {
    Bytes(Vec<u8>),
    File(OwnedFd),
}

impl Input {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::File(_) => &[],
        }
    }
}

fn input(specs: &[AttributeSpec], client: Client, raw: &IoctlAttribute) -> Result<Input, Errno> {
    let length = usize::from(raw.len);
    let bytes = match carries(specs, raw.attr_id) {
        Some(Carries::Fd) => {
            let fd = i32::try_from(raw.data.cast_signed()).ok().filter(|fd| *fd >= 0).ok_or(Errno::EBADF)?;
            return client.descriptor(fd).map(Input::File);
        }
        Some(Carries::In(_) | Carries::Number | Carries::Element) if length <= INLINE_BYTES => {
            raw.data.to_ne_bytes()[..length].to_vec()
        }
        Some(Carries::In(_) | Carries::Number | Carries::Element) => {
            let mut bytes = vec![0; length];
            client.read(raw.data, &mut bytes)?;
            bytes
        }
        _ => Vec::new(),
    };
    Ok(Input::Bytes(bytes))
}

/// An attribute, by what it carries. One that nobody knows has no value that counts: the channel refuses it, or looks past it.
fn value<'a>(carries: Option<Carries>, raw: &IoctlAttribute, input: &'a Input) -> Result<Value<'a>, Errno> {
    Ok(match carries {
        Some(Carries::In(_) | Carries::Number) | None => Value::In(input.bytes()),
        Some(Carries::Element) => Value::Element(raw.attr_data[0], input.bytes()),
        Some(Carries::Out(_)) => Value::Out(Output::owned(raw.len.into())),
        Some(Carries::Object(_) | Carries::AnyObject | Carries::NoObject) => {
            Value::Handle(u32::try_from(raw.data).map_err(|_| Errno::ENOENT)?)
        }
        Some(Carries::New) => Value::NewHandle(None),
        Some(Carries::NewFd) => Value::NewFd(None),
        Some(Carries::Fd) => match input {
            Input::File(file) => Value::Fd(file.as_fd()),
            Input::Bytes(_) => return Err(Errno::EBADF),
        },
    })
}
