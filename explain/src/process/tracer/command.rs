//! A write command as a line of a trace: of write(2), or inside an ioctl. Source: Linux `drivers/infiniband/core/uverbs_main.c`,
//! `ib_uverbs_write`.

use std::fmt::Write;

use pollux_uverbs::abi::form::{self, Form};
use pollux_uverbs::abi::frame::{ExtendedHeader, WriteHeader};
use pollux_uverbs::abi::write::EXTENDED;
use zerocopy::FromBytes;

use super::memory::Memory;
use super::word;

const HEADER: usize = size_of::<WriteHeader>();
const EXTENDED_HEADER: usize = size_of::<ExtendedHeader>();

/// Where an answer goes, and how many bytes of it.
type Room = Option<(u64, usize)>;

/// A command as it was given to write(2).
#[derive(Debug)]
pub(super) struct Command {
    number: u32,
    core: Option<Vec<u8>>,
    driver: Option<Vec<u8>>,
    answers: [Room; 2],
}

impl Command {
    /// Reads the command that a process writes from an address.
    ///
    /// # Errors
    /// What is no command, in words.
    pub(super) fn read(memory: &Memory, address: u64, bytes: u64) -> Result<Self, String> {
        let unreadable = || format!("a write command at {address:#x} that cannot be read");
        // No command is longer than its head can say.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes < HEADER {
            return Err(format!("a write of {bytes} bytes, which is no command"));
        }
        let head = memory.read(address, HEADER).ok_or_else(unreadable)?;
        let (head, _) = WriteHeader::read_from_prefix(&head).map_err(|_| unreadable())?;
        let (words, answer) = (usize::from(head.in_words), usize::from(head.out_words));
        let behind = address.wrapping_add(HEADER as u64);
        if head.command & EXTENDED != 0 {
            let more = memory.read(behind, EXTENDED_HEADER).ok_or_else(unreadable)?;
            let (more, _) = ExtendedHeader::read_from_prefix(&more).map_err(|_| unreadable())?;
            let (core, driver) = (words * 8, usize::from(more.provider_in_words) * 8);
            let whole = HEADER + EXTENDED_HEADER + core + driver;
            if whole != bytes {
                return Err(mismatch(head.command, whole, bytes));
            }
            let at = behind.wrapping_add(EXTENDED_HEADER as u64);
            return Ok(Self {
                number: head.command,
                core: memory.read(at, core),
                driver: memory.read(at.wrapping_add(core as u64), driver),
                answers: rooms(more.response, answer * 8, usize::from(more.provider_out_words) * 8),
            });
        }
        if words * 4 != bytes {
            return Err(mismatch(head.command, words * 4, bytes));
        }
        // Where the core's part ends only the command itself tells.
        let forms = form::of_command(head.command);
        let rest = bytes - HEADER;
        let core = forms.map_or(rest, |(request, _)| size(request).min(rest));
        let request = memory.read(behind, core);
        // Commands that answer begin with the address for it.
        let response =
            request.as_deref().and_then(|core| core.first_chunk()).map(|at| u64::from_ne_bytes(*at));
        let reply = forms.and_then(|(_, reply)| reply).zip(response);
        let answers = reply.map_or([None; 2], |(reply, response)| {
            let core = size(reply).min(answer * 4);
            rooms(response, core, answer * 4 - core)
        });
        let driver = memory.read(behind.wrapping_add(core as u64), rest - core);
        Ok(Self { number: head.command, core: request, driver, answers })
    }

    /// The line of the command, once it is answered.
    pub(super) fn line(&self, memory: &Memory, outcome: &str) -> String {
        let asked = [self.core.as_deref(), self.driver.as_deref()];
        line(self.number, "Plain", asked, self.answers, memory, outcome)
    }
}

/// The line of a command that went through an ioctl.
pub(super) fn tunnelled(
    number: u32,
    asked: [Option<&[u8]>; 2],
    answers: [Room; 2],
    memory: &Memory,
    outcome: &str,
) -> String {
    line(number, "Tunnelled", asked, answers, memory, outcome)
}

fn line(
    number: u32,
    route: &str,
    [core, driver]: [Option<&[u8]>; 2],
    answers: [Room; 2],
    memory: &Memory,
    outcome: &str,
) -> String {
    let mut line =
        format!("write {number:#010x} {route} core={} driver={} -> {outcome}", word(core), word(driver));
    for (name, room) in ["core", "driver"].into_iter().zip(answers) {
        if let Some((at, bytes)) = room.filter(|(_, bytes)| *bytes > 0 && outcome == "ok") {
            let _ = write!(line, " {name}={}", word(memory.read(at, bytes).as_deref()));
        }
    }
    line
}

fn rooms(at: u64, core: usize, driver: usize) -> [Room; 2] {
    [Some((at, core)), Some((at.wrapping_add(core as u64), driver))]
}

fn mismatch(number: u32, told: usize, bytes: usize) -> String {
    format!("a write command {number:#010x} that says {told} bytes, of a write of {bytes}")
}

/// Bytes of a layout.
fn size(form: Form) -> usize {
    form.fields.iter().map(|(_, offset, size)| offset + size).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use pollux_uverbs::abi::write;
    use zerocopy::IntoBytes;

    use super::*;

    fn memory() -> Memory {
        Memory::of(std::process::id(), rustix::thread::gettid().as_raw_nonzero().get())
    }

    fn at(bytes: &[u8]) -> u64 {
        bytes.as_ptr().expose_provenance() as u64
    }

    #[test]
    fn parts_are_told_apart() {
        // The core's answer, and behind it the driver's.
        let reply = std::hint::black_box([0x2a_u8, 0, 0, 0, 7, 0, 0, 0]);
        let head = WriteHeader { command: write::ALLOC_PD, in_words: 5, out_words: 2 };
        let address = at(&reply).to_ne_bytes();
        let bytes = [head.as_bytes(), &address, &[1, 2, 3, 4]].concat();
        let command = Command::read(&memory(), at(&bytes), bytes.len() as u64).expect("a command");
        let core = pollux_uverbs::trace::hex(&address);
        let asked = format!("write 0x00000003 Plain core={core} driver=01020304 ->");
        assert_eq!(command.line(&memory(), "ok"), format!("{asked} ok core=2a000000 driver=07000000"));
        assert_eq!(command.line(&memory(), "EINVAL"), format!("{asked} EINVAL"));
    }

    #[test]
    fn an_extended_command_says_where_its_parts_end() {
        let reply = std::hint::black_box([1_u8; 16]);
        let head = WriteHeader { command: write::EX_CREATE_QP, in_words: 1, out_words: 1 };
        let more = ExtendedHeader {
            response: at(&reply),
            provider_in_words: 1,
            provider_out_words: 1,
            cmd_hdr_reserved: 0,
        };
        let bytes = [head.as_bytes(), more.as_bytes(), &[2; 8], &[3; 8]].concat();
        let command = Command::read(&memory(), at(&bytes), bytes.len() as u64).expect("a command");
        let wanted = format!(
            "write 0x80000018 Plain core={} driver={} -> ok core={one} driver={one}",
            "02".repeat(8),
            "03".repeat(8),
            one = "01".repeat(8)
        );
        assert_eq!(command.line(&memory(), "ok"), wanted);
        let short = Command::read(&memory(), at(&bytes), bytes.len() as u64 - 8);
        assert_eq!(
            short.map(drop),
            Err("a write command 0x80000018 that says 40 bytes, of a write of 32".into())
        );
    }
}
