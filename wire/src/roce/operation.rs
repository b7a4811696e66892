//! Opcodes: a transport in the upper three bits, an operation in the lower five.

/// Reliable connection.
pub const RC: u8 = 0x00;
/// Unreliable connection.
pub const UC: u8 = 0x20;
/// Unreliable datagram.
pub const UD: u8 = 0x60;
/// Extended reliable connection.
pub const XRC: u8 = 0xa0;
/// The bits of the transport.
pub const TRANSPORT: u8 = 0xe0;

/// First packet of a send.
pub const SEND_FIRST: u8 = 0x00;
/// One in the middle.
pub const SEND_MIDDLE: u8 = 0x01;
/// The last.
pub const SEND_LAST: u8 = 0x02;
/// The last, with immediate data.
pub const SEND_LAST_IMM: u8 = 0x03;
/// The only one.
pub const SEND_ONLY: u8 = 0x04;
/// The only one, with immediate data.
pub const SEND_ONLY_IMM: u8 = 0x05;
/// First packet of a write.
pub const WRITE_FIRST: u8 = 0x06;
/// One in the middle.
pub const WRITE_MIDDLE: u8 = 0x07;
/// The last.
pub const WRITE_LAST: u8 = 0x08;
/// The last, with immediate data.
pub const WRITE_LAST_IMM: u8 = 0x09;
/// The only one.
pub const WRITE_ONLY: u8 = 0x0a;
/// The only one, with immediate data.
pub const WRITE_ONLY_IMM: u8 = 0x0b;
/// Request to read.
pub const READ_REQUEST: u8 = 0x0c;
/// First answer to it.
pub const READ_RESPONSE_FIRST: u8 = 0x0d;
/// One in the middle.
pub const READ_RESPONSE_MIDDLE: u8 = 0x0e;
/// The last.
pub const READ_RESPONSE_LAST: u8 = 0x0f;
/// The only one.
pub const READ_RESPONSE_ONLY: u8 = 0x10;
/// Acknowledgement.
pub const ACKNOWLEDGE: u8 = 0x11;
/// Acknowledgement of an atomic.
pub const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
/// Compare and swap.
pub const COMPARE_SWAP: u8 = 0x13;
/// Fetch and add.
pub const FETCH_ADD: u8 = 0x14;
/// Last packet of a send that invalidates a key.
pub const SEND_LAST_INVALIDATE: u8 = 0x16;
/// The only one.
pub const SEND_ONLY_INVALIDATE: u8 = 0x17;

/// What an operation is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A send.
    Send,
    /// A write.
    Write,
    /// A request to read.
    Read,
    /// A request of an atomic.
    Atomic,
    /// An answer to a read.
    ReadResponse,
    /// An acknowledgement, of an atomic too.
    Acknowledge,
}

/// What an opcode says of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What it is part of.
    pub class: Class,
    /// It begins a message.
    pub first: bool,
    /// It ends one.
    pub last: bool,
    /// Immediate data follow.
    pub immediate: bool,
    /// A key to invalidate follows.
    pub invalidate: bool,
}

/// The shape of an operation, of the opcode's lower five bits; `None` for those that are not there.
#[must_use]
pub const fn shape(opcode: u8) -> Option<Shape> {
    Some(match opcode & !TRANSPORT {
        SEND_FIRST => plain(Class::Send, true, false),
        SEND_MIDDLE => plain(Class::Send, false, false),
        SEND_LAST => plain(Class::Send, false, true),
        SEND_LAST_IMM => Shape { immediate: true, ..plain(Class::Send, false, true) },
        SEND_ONLY => plain(Class::Send, true, true),
        SEND_ONLY_IMM => Shape { immediate: true, ..plain(Class::Send, true, true) },
        SEND_LAST_INVALIDATE => Shape { invalidate: true, ..plain(Class::Send, false, true) },
        SEND_ONLY_INVALIDATE => Shape { invalidate: true, ..plain(Class::Send, true, true) },
        WRITE_FIRST => plain(Class::Write, true, false),
        WRITE_MIDDLE => plain(Class::Write, false, false),
        WRITE_LAST => plain(Class::Write, false, true),
        WRITE_LAST_IMM => Shape { immediate: true, ..plain(Class::Write, false, true) },
        WRITE_ONLY => plain(Class::Write, true, true),
        WRITE_ONLY_IMM => Shape { immediate: true, ..plain(Class::Write, true, true) },
        READ_REQUEST => plain(Class::Read, true, true),
        READ_RESPONSE_FIRST => plain(Class::ReadResponse, true, false),
        READ_RESPONSE_MIDDLE => plain(Class::ReadResponse, false, false),
        READ_RESPONSE_LAST => plain(Class::ReadResponse, false, true),
        READ_RESPONSE_ONLY => plain(Class::ReadResponse, true, true),
        ACKNOWLEDGE | ATOMIC_ACKNOWLEDGE => plain(Class::Acknowledge, true, true),
        COMPARE_SWAP | FETCH_ADD => plain(Class::Atomic, true, true),
        _ => return None,
    })
}

const fn plain(class: Class, first: bool, last: bool) -> Shape {
    Shape { class, first, last, immediate: false, invalidate: false }
}

/// Whether a transport has an operation.
#[must_use]
pub const fn has(transport: u8, opcode: u8) -> bool {
    let operation = opcode & !TRANSPORT;
    match transport {
        RC | XRC => shape(operation).is_some(),
        UC => operation <= WRITE_ONLY_IMM,
        UD => matches!(operation, SEND_ONLY | SEND_ONLY_IMM),
        _ => false,
    }
}
