//! DevX: firmware commands of a program's own, on objects of its own.
//!
//! The kernel stamps each command with the context's number (`uid`), by which the firmware refuses it the objects of others,
//! and keeps what is needed to end the objects when the context goes. Source: Linux `drivers/infiniband/hw/mlx5/devx.c`.

pub(crate) mod event;
pub(crate) mod object;
pub(crate) mod opcode;
pub(crate) mod umem;

use pollux_mlx5_abi::command::{self, CommandIn};
use pollux_mlx5_abi::kernel::attribute::{devx_other, devx_query_eqn};
use pollux_uverbs::{Call, Errno};

use crate::core::Core;
use crate::firmware::Failure;
use crate::session::Session;

/// A program's command, to be stamped.
pub(crate) fn command_of(call: &Call<'_>, attribute: u16) -> Result<(Vec<u8>, u16), Errno> {
    let bytes = call.input(attribute).ok_or(Errno::EINVAL)?;
    let head = command::header(bytes).ok_or(Errno::EINVAL)?;
    Ok((bytes.to_vec(), head.opcode))
}

/// Stamps a command with the number of the user context.
pub(crate) fn stamp(input: &mut [u8], uid: u16) {
    if let Some(head) = input.first_chunk_mut() {
        CommandIn::UID.set(head, uid.into());
    }
}

/// Executes a program's command; its answer, with the status of a refused one, goes back as it is. `EREMOTEIO` says that it
/// was refused.
pub(crate) fn forward(
    core: &Core,
    call: &mut Call<'_>,
    attribute: u16,
    input: &[u8],
) -> Result<Vec<u8>, Errno> {
    let room = call.output(attribute).ok_or(Errno::EINVAL)?.room();
    let mut output = vec![0; room];
    let result = match core.try_execute(input, &mut output) {
        Ok(()) => Ok(()),
        Err(Failure::Refused(_)) => Err(Errno::EREMOTEIO),
        Err(gone) => return Err(gone.into()),
    };
    call.reply(attribute, output.as_slice())?;
    result.map(|()| output)
}

impl Session {
    /// Under which number a command goes. Commands that only ask for capabilities are open to contexts without DevX.
    fn devx_uid(&self, code: u16) -> Result<u16, Errno> {
        match (self.granted()?.uid, opcode::is_open(code)) {
            (0, true) if self.core.general_uid != 0 => Ok(self.core.general_uid),
            (0, true) => Err(Errno::EOPNOTSUPP),
            (0, false) => Err(Errno::EINVAL),
            (uid, _) => Ok(uid),
        }
    }

    /// `DEVX/OTHER`.
    pub(crate) fn devx_other(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let (mut input, code) = command_of(call, devx_other::CMD_IN)?;
        let uid = self.devx_uid(code)?;
        if !opcode::is_general(code) {
            return Err(Errno::EINVAL);
        }
        stamp(&mut input, uid);
        forward(&self.core, call, devx_other::CMD_OUT, &input).map(|_| ())
    }

    /// `DEVX/QUERY_EQN`.
    pub(crate) fn devx_query_eqn(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let vector: u32 = call.input_as(devx_query_eqn::USER_VEC)?;
        let eqn = self.core.eqn(vector)?;
        call.reply(devx_query_eqn::DEV_EQN, &u32::from(eqn))
    }
}
