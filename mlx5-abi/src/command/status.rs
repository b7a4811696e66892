//! Status of an answer.
//!
//! Source: Linux `include/linux/mlx5/device.h`, `MLX5_CMD_STAT_*`.

/// Done.
pub const OK: u8 = 0x00;
/// The firmware failed.
pub const INT_ERR: u8 = 0x01;
/// A command, or a variant of one, that the device does not have.
pub const BAD_OP_ERR: u8 = 0x02;
/// A field has a value that is not allowed.
pub const BAD_PARAM_ERR: u8 = 0x03;
/// Not in this state of the function.
pub const BAD_SYS_STATE_ERR: u8 = 0x04;
/// An object that is not there, or not the caller's.
pub const BAD_RES_ERR: u8 = 0x05;
/// An object that others still use.
pub const RES_BUSY: u8 = 0x06;
/// A limit is reached.
pub const LIM_ERR: u8 = 0x08;
/// Not in this state of the object.
pub const BAD_RES_STATE_ERR: u8 = 0x09;
/// An index out of range.
pub const IX_ERR: u8 = 0x0a;
/// Nothing left.
pub const NO_RES_ERR: u8 = 0x0f;
/// Not from this state of the queue pair.
pub const BAD_QP_STATE_ERR: u8 = 0x10;
/// A packet that cannot be.
pub const BAD_PKT_ERR: u8 = 0x30;
/// More completions outstanding than the new size holds.
pub const BAD_SIZE_OUTS_CQES_ERR: u8 = 0x40;
/// The command is too short or too long.
pub const BAD_INP_LEN_ERR: u8 = 0x50;
/// The answer would not fit.
pub const BAD_OUTP_LEN_ERR: u8 = 0x51;

/// Every status that has a name.
pub const KNOWN: &[u8] = &[
    OK,
    INT_ERR,
    BAD_OP_ERR,
    BAD_PARAM_ERR,
    BAD_SYS_STATE_ERR,
    BAD_RES_ERR,
    RES_BUSY,
    LIM_ERR,
    BAD_RES_STATE_ERR,
    IX_ERR,
    NO_RES_ERR,
    BAD_QP_STATE_ERR,
    BAD_PKT_ERR,
    BAD_SIZE_OUTS_CQES_ERR,
    BAD_INP_LEN_ERR,
    BAD_OUTP_LEN_ERR,
];

/// What to try when a command is refused with this status.
#[must_use]
pub const fn advice(status: u8) -> &'static str {
    match status {
        INT_ERR => "reset the function, and update the firmware if it happens again",
        BAD_OP_ERR => "update the firmware, or turn off what needs the command",
        BAD_PARAM_ERR | BAD_PKT_ERR => {
            "turn off the options that this card may lack, or give the syndrome to its vendor"
        }
        BAD_SYS_STATE_ERR => "try again when the function is up; `devlink health show` tells its state",
        BAD_RES_ERR | BAD_RES_STATE_ERR | BAD_QP_STATE_ERR | RES_BUSY => "close the device and open it again",
        LIM_ERR | NO_RES_ERR | IX_ERR => {
            "ask for fewer queues, entries or rules, or close other programs on the device"
        }
        BAD_SIZE_OUTS_CQES_ERR => "poll completions first, or ask for a larger size",
        BAD_INP_LEN_ERR | BAD_OUTP_LEN_ERR => "update the firmware: it has another layout of the command",
        _ => "update this driver, or give status and syndrome to the card's vendor",
    }
}

/// The name in the C headers, without prefix, and what it means.
#[must_use]
pub const fn text(status: u8) -> Option<(&'static str, &'static str)> {
    Some(match status {
        OK => ("OK", "done"),
        INT_ERR => ("INT_ERR", "the firmware failed"),
        BAD_OP_ERR => ("BAD_OP_ERR", "the device has no such command or variant"),
        BAD_PARAM_ERR => ("BAD_PARAM_ERR", "a field has a value that is not allowed"),
        BAD_SYS_STATE_ERR => ("BAD_SYS_STATE_ERR", "not in this state of the function"),
        BAD_RES_ERR => ("BAD_RES_ERR", "an object is not there or not the caller's"),
        RES_BUSY => ("RES_BUSY", "the object is still in use"),
        LIM_ERR => ("LIM_ERR", "a limit of the device is reached"),
        BAD_RES_STATE_ERR => ("BAD_RES_STATE_ERR", "not in this state of the object"),
        IX_ERR => ("IX_ERR", "an index is out of range"),
        NO_RES_ERR => ("NO_RES_ERR", "the device has none left"),
        BAD_QP_STATE_ERR => ("BAD_QP_STATE_ERR", "not from this state of the queue pair"),
        BAD_PKT_ERR => ("BAD_PKT_ERR", "a packet that cannot be"),
        BAD_SIZE_OUTS_CQES_ERR => ("BAD_SIZE_OUTS_CQES_ERR", "more completions than the new size holds"),
        BAD_INP_LEN_ERR => ("BAD_INP_LEN_ERR", "the command has a wrong length"),
        BAD_OUTP_LEN_ERR => ("BAD_OUTP_LEN_ERR", "the answer has a wrong length"),
        _ => return None,
    })
}
