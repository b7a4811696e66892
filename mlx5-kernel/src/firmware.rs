//! Commands to the firmware, and what its answers mean to callers.

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_mlx5_abi::command::{self, Refused, opcode, status};
use pollux_uverbs::{Errno, FIRMWARE_SAID};

use crate::device::{CommandQueue, Gone};
use crate::error::KernelError;

/// Bytes of a command or an answer that has no more than a head and two dwords.
pub(crate) const SHORT: usize = 16;

/// What a refused call foundered on, where that is neither a check of the kernel nor that the device is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// The firmware refused the command of this opcode.
    Refused(u16, Refused),
    /// Nobody on the wire has the address.
    Unanswered(IpAddr),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code, refused) => {
                let name = opcode::name(*code).unwrap_or("a command");
                write!(f, "{FIRMWARE_SAID} to {name}: {refused}; {}", refused.advice())
            }
            Self::Unanswered(address) => {
                write!(f, "{address} was asked for; see that it is up and in the subnet of this end")
            }
        }
    }
}

thread_local! {
    /// The first of this thread's call: what follows it is what undoes the call.
    static CAUSE: Cell<Option<Cause>> = const { Cell::new(None) };
}

/// A call begins: nothing went wrong yet.
pub(crate) fn begin_call() {
    CAUSE.set(None);
}

fn note(cause: Cause) {
    CAUSE.set(CAUSE.get().or(Some(cause)));
}

/// This thread's call foundered on an address that nobody on the wire has.
pub(crate) fn note_unanswered(address: IpAddr) {
    note(Cause::Unanswered(address));
}

/// The device's command queue, until the device is gone.
#[derive(Debug)]
pub(crate) struct Firmware {
    pub(crate) queue: Arc<dyn CommandQueue>,
    gone: AtomicBool,
}

/// Why a command was not done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    Gone,
    Refused(Refused),
}

impl Firmware {
    pub(crate) fn new(queue: Arc<dyn CommandQueue>) -> Self {
        Self { queue, gone: AtomicBool::new(false) }
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Takes the device for gone; `false` when it already was.
    pub(crate) fn set_gone(&self) -> bool {
        !self.gone.swap(true, Ordering::AcqRel)
    }

    /// What Linux would have in its log of this thread's call, which was refused.
    pub(crate) fn words(&self) -> String {
        match CAUSE.get() {
            Some(cause) => cause.to_string(),
            None if self.is_gone() => Gone.to_string(),
            None => "a check of the kernel refused it, not the firmware; compare it with the limits that \
                     `ibv_devinfo -v` tells"
                .into(),
        }
    }

    /// Executes one command.
    pub(crate) fn execute(&self, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
        if self.is_gone() {
            return Err(Failure::Gone);
        }
        self.queue.execute(input, output).map_err(|Gone| Failure::Gone)?;
        command::outcome(output).map_err(|refused| {
            let code = command::header(input).map_or(0, |head| head.opcode);
            note(Cause::Refused(code, refused));
            Failure::Refused(refused)
        })
    }

    /// Executes a command of the start.
    pub(crate) fn must(&self, input: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
        let code = command::header(input).map_or(0, |head| head.opcode);
        self.execute(input, output).map_err(|failure| failure.of(code))
    }
}

impl Failure {
    /// The error of a start that stands on the command `code`.
    pub(crate) fn of(self, code: u16) -> KernelError {
        match self {
            Self::Gone => KernelError::Gone(Gone),
            Self::Refused(refused) => {
                KernelError::Refused { command: opcode::name(code).unwrap_or("a command"), refused }
            }
        }
    }
}

impl From<Failure> for Errno {
    /// Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`, `cmd_status_to_err`.
    fn from(failure: Failure) -> Self {
        let Failure::Refused(refused) = failure else { return Self::EIO };
        match refused.status {
            status::RES_BUSY => Self::EBUSY,
            status::LIM_ERR => Self::ENOMEM,
            status::NO_RES_ERR => Self::EAGAIN,
            status::BAD_OP_ERR
            | status::BAD_PARAM_ERR
            | status::BAD_RES_ERR
            | status::BAD_RES_STATE_ERR
            | status::IX_ERR
            | status::BAD_QP_STATE_ERR
            | status::BAD_PKT_ERR
            | status::BAD_SIZE_OUTS_CQES_ERR => Self::EINVAL,
            _ => Self::EIO,
        }
    }
}

/// A command with its head written.
pub(crate) fn begin<const N: usize>(code: u16, uid: u16, op_mod: u16) -> [u8; N] {
    let mut input = [0; N];
    command::start(&mut input, code, uid, op_mod);
    input
}

/// The number that an answer of [`SHORT`] bytes carries in its third dword, 24 bits.
pub(crate) fn number(output: &[u8; SHORT]) -> u32 {
    let [.., a, b, c, d, _, _, _, _] = *output;
    u32::from_be_bytes([a, b, c, d]) & 0xff_ffff
}

/// A command that names one object by its number in the third dword, 24 bits, and says no more.
pub(crate) fn naming(code: u16, uid: u16, number: u32) -> [u8; SHORT] {
    let mut input: [u8; SHORT] = begin(code, uid, 0);
    input[8..12].copy_from_slice(&(number & 0xff_ffff).to_be_bytes());
    input
}
