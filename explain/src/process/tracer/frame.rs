//! An ioctl as a line of a trace: its frame and what it points to, read in front of the call, and its answers, read behind it. Source:
//! Linux `drivers/infiniband/core/uverbs_ioctl.c`, `ib_uverbs_ioctl`, `uverbs_process_attr`.

use std::fmt::Write;

use pollux_uverbs::abi::frame::{INLINE_BYTES, IoctlAttribute, IoctlHeader, VALID_OUTPUT};
use pollux_uverbs::abi::id::device::{self, invoke_write};
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};
use zerocopy::FromBytes;

use super::attribute::{Role, role};
use super::command::tunnelled;
use super::memory::Memory;
use super::word;

const HEADER: usize = size_of::<IoctlHeader>();
const ATTRIBUTE: usize = size_of::<IoctlAttribute>();

/// An attribute as it went into the call.
#[derive(Debug)]
struct Asked {
    raw: IoctlAttribute,
    role: Option<Role>,
    /// What it brings, where that is bytes; `None` if they cannot be read.
    input: Option<Vec<u8>>,
}

/// A frame as it went into the call.
#[derive(Debug)]
pub(super) struct Frame {
    address: u64,
    object: u16,
    method: u16,
    attributes: Vec<Asked>,
}

impl Frame {
    /// Reads the frame at an address of the process.
    ///
    /// # Errors
    /// What is no frame, in words.
    pub(super) fn read(memory: &Memory, address: u64) -> Result<Self, String> {
        let unreadable = || format!("a call whose frame at {address:#x} cannot be read");
        let header = memory.read(address, HEADER).ok_or_else(unreadable)?;
        let (header, _) = IoctlHeader::read_from_prefix(&header).map_err(|_| unreadable())?;
        let count = usize::from(header.num_attrs);
        let length = HEADER + count * ATTRIBUTE;
        let (object, method) = (header.object_id, header.method_id);
        // The kernel refuses such a frame, too.
        if usize::from(header.length) != length {
            let told = header.length;
            return Err(format!(
                "a call {object:#06x}/{method:#06x} whose frame says {told} bytes and {count} attributes, which are {length}"
            ));
        }
        let raw =
            memory.read(address.wrapping_add(HEADER as u64), count * ATTRIBUTE).ok_or_else(unreadable)?;
        let attributes = raw.as_chunks::<ATTRIBUTE>().0.iter().map(|raw| {
            let raw: IoctlAttribute = zerocopy::transmute!(*raw);
            asked(memory, role(object, method, raw.attr_id), raw)
        });
        Ok(Self { address, object, method, attributes: attributes.collect() })
    }

    /// The line of the call, once it is answered.
    pub(super) fn line(&self, memory: &Memory, outcome: &str) -> String {
        let bytes = self.attributes.len() * ATTRIBUTE;
        let raw = memory.read(self.address.wrapping_add(HEADER as u64), bytes).unwrap_or_default();
        let behind: Vec<IoctlAttribute> =
            raw.as_chunks::<ATTRIBUTE>().0.iter().map(|raw| zerocopy::transmute!(*raw)).collect();
        if (self.object, self.method) == (device::OBJECT, invoke_write::METHOD) {
            return self.tunnelled(memory, outcome);
        }
        let mut asked = format!("call {:#06x}/{:#06x}", self.object, self.method);
        let mut answered = String::new();
        for (index, attribute) in self.attributes.iter().enumerate() {
            let Asked { raw, role, input } = attribute;
            let behind = behind.get(index).copied().unwrap_or(*raw);
            // What was written before a failure counts too: a driver's status stands there.
            let is_output = *role == Some(Role::Out) || raw.flags & VALID_OUTPUT == 0;
            let written = behind.flags & VALID_OUTPUT != 0 && is_output;
            let role = match role {
                Some(role) => *role,
                None if written => Role::Out,
                None if raw.len == 0 => Role::Object,
                None => Role::In,
            };
            let id = raw.attr_id;
            let _ = match role {
                Role::In => write!(asked, " {id:#06x}=in:{}", word(input.as_deref())),
                Role::Element => {
                    write!(asked, " {id:#06x}=element:{}:{}", raw.attr_data[0], word(input.as_deref()))
                }
                Role::Out => write!(asked, " {id:#06x}=out:{}", raw.len),
                Role::Object => write!(asked, " {id:#06x}=handle:{}", raw.data as u32),
                Role::New => write!(asked, " {id:#06x}=new"),
                Role::Descriptor => write!(asked, " {id:#06x}=fd"),
                Role::NewDescriptor => write!(asked, " {id:#06x}=newfd"),
            };
            let made = outcome == "ok";
            let _ = match role {
                Role::Out if written => {
                    let output = memory.read(raw.data, raw.len.into());
                    write!(answered, " {id:#06x}={}", word(output.as_deref()))
                }
                Role::New if made => write!(answered, " {id:#06x}=handle:{}", behind.data as u32),
                Role::NewDescriptor if made => write!(answered, " {id:#06x}=fd"),
                _ => Ok(()),
            };
        }
        format!("{asked} -> {outcome}{answered}")
    }

    /// A write command inside the ioctl.
    fn tunnelled(&self, memory: &Memory, outcome: &str) -> String {
        let find = |id: u16| self.attributes.iter().find(|asked| asked.raw.attr_id == id);
        let input = |id: u16| find(id).map_or(Some(&[][..]), |asked| asked.input.as_deref());
        let output = |id: u16| find(id).map(|asked| (asked.raw.data, usize::from(asked.raw.len)));
        let number = input(invoke_write::WRITE_CMD).unwrap_or_default();
        let number = number.iter().take(4).rev().fold(0, |number, byte| number << 8 | u32::from(*byte));
        tunnelled(
            number,
            [input(invoke_write::CORE_IN), input(UHW_IN)],
            [output(invoke_write::CORE_OUT), output(UHW_OUT)],
            memory,
            outcome,
        )
    }
}

fn asked(memory: &Memory, role: Option<Role>, raw: IoctlAttribute) -> Asked {
    let length = usize::from(raw.len);
    let input = match role {
        None | Some(Role::In | Role::Element) if length <= INLINE_BYTES => {
            raw.data.to_ne_bytes().get(..length).map(<[u8]>::to_vec)
        }
        None | Some(Role::In | Role::Element) => memory.read(raw.data, length),
        Some(_) => Some(Vec::new()),
    };
    Asked { raw, role, input }
}

#[cfg(test)]
mod tests {
    use pollux_uverbs::abi::id::qp::{OBJECT, create};
    use zerocopy::IntoBytes;

    use super::*;

    fn memory() -> Memory {
        Memory::of(std::process::id(), rustix::thread::gettid().as_raw_nonzero().get())
    }

    fn attribute(attr_id: u16, len: u16, data: u64) -> IoctlAttribute {
        IoctlAttribute { attr_id, len, data, ..IoctlAttribute::default() }
    }

    fn frame((object_id, method_id): (u16, u16), attributes: &[IoctlAttribute]) -> Vec<u8> {
        let length = (HEADER + attributes.len() * ATTRIBUTE) as u16;
        let num_attrs = attributes.len() as u16;
        let head = IoctlHeader { length, object_id, method_id, num_attrs, ..IoctlHeader::default() };
        [head.as_bytes(), attributes.as_bytes()].concat()
    }

    fn at<T: ?Sized>(of: *const T) -> u64 {
        of.cast::<u8>().expose_provenance() as u64
    }

    /// Does what the kernel does to an attribute that it answers.
    fn answer(frame: &mut [u8], index: usize, data: Option<u64>) {
        let place = HEADER + index * ATTRIBUTE;
        match data {
            Some(data) => frame[place + 8..place + 16].copy_from_slice(&data.to_ne_bytes()),
            None => frame[place + 4] |= VALID_OUTPUT as u8,
        }
    }

    #[test]
    fn a_method_is_the_line_that_a_channel_writes() {
        let (cap, number) = ([1_u8; 20], [0x11_u8, 0, 0, 0]);
        let attributes = [
            attribute(create::HANDLE, 0, 0),
            attribute(create::PD_HANDLE, 0, 7),
            attribute(create::USER_HANDLE, 8, 5),
            attribute(create::CAP, 20, at(&raw const cap)),
            attribute(create::EVENT_FD, 0, 4),
            attribute(create::RESP_QP_NUM, 4, at(&raw const number)),
            // Of a driver that nobody here knows: an output, an input, an object.
            attribute(0x1007, 4, at(&raw const number)),
            attribute(0x1008, 2, 0x0201),
            attribute(0x1009, 0, 3),
        ];
        let mut bytes = frame((OBJECT, create::METHOD), &attributes);
        let read = Frame::read(&memory(), at(bytes.as_ptr())).expect("a frame");
        let asked = |seventh: &str| {
            format!(
                "call 0x0004/0x0000 0x0000=new 0x0002=handle:7 0x0007=in:0500000000000000 0x0008=in:{} 0x000c=fd 0x000e=out:4 \
                 0x1007={seventh} 0x1008=in:0102 0x1009=handle:3",
                "01".repeat(20)
            )
        };
        let low = pollux_uverbs::trace::hex(&attributes[6].data.to_ne_bytes()[..4]);
        assert_eq!(read.line(&memory(), "ENOTTY"), format!("{} -> ENOTTY", asked(&format!("in:{low}"))));
        answer(&mut bytes, 0, Some(9));
        answer(&mut bytes, 5, None);
        answer(&mut bytes, 6, None);
        let wanted = format!("{} -> ok 0x0000=handle:9 0x000e=11000000 0x1007=11000000", asked("out:4"));
        assert_eq!(read.line(&memory(), "ok"), wanted);
        std::hint::black_box((cap, number));
    }

    #[test]
    fn a_command_in_an_ioctl_is_that_command() {
        let reply = [0x2a_u8, 0, 0, 0];
        let attributes = [
            attribute(invoke_write::CORE_IN, 8, 0x0807_0605_0403_0201),
            attribute(invoke_write::CORE_OUT, 4, at(&raw const reply)),
            attribute(invoke_write::WRITE_CMD, 8, 3),
            attribute(UHW_OUT, 4, 0x10),
        ];
        let bytes = frame((device::OBJECT, invoke_write::METHOD), &attributes);
        let read = Frame::read(&memory(), at(bytes.as_ptr())).expect("a frame");
        let asked = "write 0x00000003 Tunnelled core=0102030405060708 driver= ->";
        assert_eq!(read.line(&memory(), "EINVAL"), format!("{asked} EINVAL"));
        assert_eq!(read.line(&memory(), "ok"), format!("{asked} ok core=2a000000 driver=unreadable"));
        std::hint::black_box(reply);
    }
}
