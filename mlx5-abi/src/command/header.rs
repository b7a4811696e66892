//! What all commands begin with, and all answers.

use std::fmt;

use super::{form, opcode, status};
use crate::layout::layouts;

layouts! {
    /// Head of every command.
    CommandIn = "destroy_cq_in" [16] {
        /// One of [`opcode`](super::opcode).
        ///
        OPCODE: field(0x00, 31, 16),
        /// The user context on whose behalf it comes; 0 is the kernel's.
        ///
        UID: field(0x00, 15, 0),
        /// Variant of the command.
        ///
        OP_MOD: field(0x04, 15, 0),
    }

    /// Head of every answer.
    CommandOut = "destroy_cq_out" [16] {
        /// One of [`status`](super::status).
        ///
        STATUS: field(0x00, 31, 24),
        /// Why it failed, as only the vendor can tell.
        ///
        SYNDROME: field(0x04, 31, 0),
    }
}

/// What the head of a command says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// One of [`opcode`].
    pub opcode: u16,
    /// The user context; 0 is the kernel's.
    pub uid: u16,
    /// Variant of the command.
    pub op_mod: u16,
}

/// Reads the head of a command; `None` if not even that is there.
#[must_use]
pub fn header(input: &[u8]) -> Option<Header> {
    let head = input.first_chunk()?;
    Some(Header {
        opcode: CommandIn::OPCODE.get(head) as u16,
        uid: CommandIn::UID.get(head) as u16,
        op_mod: CommandIn::OP_MOD.get(head) as u16,
    })
}

/// Writes the head of a command.
///
/// # Panics
/// Where `input` is shorter than a head; every `ZERO` here is longer.
pub fn start(input: &mut [u8], opcode: u16, uid: u16, op_mod: u16) {
    let head = input.first_chunk_mut().expect("a command has a head of 16 bytes");
    CommandIn::OPCODE.set(head, opcode.into());
    CommandIn::UID.set(head, uid.into());
    CommandIn::OP_MOD.set(head, op_mod.into());
}

/// Writes the head of an answer.
///
/// # Panics
/// Where `output` is shorter than 8 bytes, which no answer is.
pub fn answer(output: &mut [u8], status: u8, syndrome: u32) {
    let head: &mut [u8; 8] = output.first_chunk_mut().expect("an answer has a head of 8 bytes");
    head[0] = status;
    head[4..].copy_from_slice(&syndrome.to_be_bytes());
}

/// A command that the firmware refused.
///
/// Prints as `BAD_PARAM_ERR (0x3), syndrome 0x5d0: a field has a value that is not allowed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// One of [`status`].
    pub status: u8,
    /// Why, as only the vendor can tell.
    pub syndrome: u32,
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, syndrome } = self;
        match status::text(*status) {
            Some((name, meaning)) => write!(out, "{name} ({status:#x}), syndrome {syndrome:#x}: {meaning}"),
            None => write!(out, "unknown status {status:#x}, syndrome {syndrome:#x}"),
        }
    }
}

impl Refused {
    /// What to try about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        status::advice(self.status)
    }
}

impl std::error::Error for Refused {}

/// Whether the command was done.
///
/// # Errors
/// [`Refused`] with status and syndrome; an answer of fewer than 8 bytes counts as
/// [`BAD_OUTP_LEN_ERR`](status::BAD_OUTP_LEN_ERR).
pub fn outcome(output: &[u8]) -> Result<(), Refused> {
    let Some(head) = output.first_chunk::<8>() else {
        return Err(Refused { status: status::BAD_OUTP_LEN_ERR, syndrome: 0 });
    };
    let [code, _, _, _, syndrome @ ..] = *head;
    if code == status::OK {
        return Ok(());
    }
    Err(Refused { status: code, syndrome: u32::from_be_bytes(syndrome) })
}

/// The addresses in a list of pages; bytes that make no whole address are left out.
pub fn pages(list: &[u8]) -> impl ExactSizeIterator<Item = u64> + '_ {
    list.as_chunks().0.iter().map(|address| u64::from_be_bytes(*address))
}

/// A command in one line, fields by name. Takes any bytes.
pub fn describe_input(input: &[u8]) -> impl fmt::Display + '_ {
    Described { opcode: header(input).map(|head| head.opcode), bytes: input, output: false }
}

/// The answer to a command of `opcode` in one line, fields by name. Takes any bytes.
pub fn describe_output(opcode: u16, output: &[u8]) -> impl fmt::Display + '_ {
    Described { opcode: Some(opcode), bytes: output, output: true }
}

struct Described<'a> {
    opcode: Option<u16>,
    bytes: &'a [u8],
    output: bool,
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(code) = self.opcode else {
            return write!(out, "no command in {} bytes", self.bytes.len());
        };
        let unnamed = format!("opcode {code:#x}");
        let name = opcode::name(code).unwrap_or(&unnamed);
        let (input, output) = form(code);
        if !self.output {
            return write!(out, "{}", input.dump_as(name, self.bytes));
        }
        match outcome(self.bytes) {
            Ok(()) => write!(out, "{}", output.dump_as(name, self.bytes)),
            Err(refused) => write!(out, "{name}: {refused}"),
        }
    }
}
