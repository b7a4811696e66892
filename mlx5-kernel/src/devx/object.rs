//! Objects of DevX.

use std::sync::Arc;

use pollux_mlx5_abi::command::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, DeleteFlowEntryIn, DestroyFlowGroupIn, DestroyFlowTableIn,
    SetFlowEntryIn,
};
use pollux_mlx5_abi::command::psv::CreatePsvIn;
use pollux_mlx5_abi::command::{self, opcode as code};
use pollux_mlx5_abi::kernel::attribute::{
    devx_obj_create, devx_obj_destroy, devx_obj_modify, devx_obj_query, devx_obj_query_async as asynchronous,
};
use pollux_mlx5_abi::kernel::verbs::AsyncCommand;
use pollux_uverbs::{Call, Errno};
use zerocopy::IntoBytes;

use super::opcode::{Ending, Use, dword, ending, number_made, number_named, set_umem_valid, subject};
use super::{command_of, forward, stamp};
use crate::core::Core;
use crate::event::CqTarget;
use crate::event::file::{Count, FileKind};
use crate::firmware::{Failure, SHORT, begin};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;

/// Most bytes of answers that may wait in one descriptor. Source: Linux `drivers/infiniband/hw/mlx5/devx.c`,
/// `MAX_ASYNC_BYTES_IN_USE`.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// An object that a program's command made.
#[derive(Debug)]
pub(crate) struct DevxObject {
    /// The command that made it.
    made_by: u16,
    /// Kind of a general object.
    kind: u16,
    number: u32,
    /// The command that ends it; empty once that was done.
    end: Vec<u8>,
    /// Flow counters that it stands for, beside the first.
    bulk: u32,
}

impl DevxObject {
    /// The command that made it, and its number.
    pub(crate) fn identity(&self) -> (u16, u32) {
        (self.made_by, self.number)
    }

    /// How many counters it is, if it is many.
    pub(crate) fn bulk(&self) -> u32 {
        self.bulk
    }

    /// Whether a command names this object.
    fn is_named(&self, input: &[u8], made_by: u16) -> bool {
        let Some(head) = command::header(input) else { return false };
        let general = self.made_by == code::CREATE_GENERAL_OBJECT;
        // The low half of the second dword is the kind of a general object.
        let kind_fits = !general || dword(input, 4).is_some_and(|word| word as u16 == self.kind);
        self.made_by == made_by && kind_fits && number_named(head.opcode, input) == Some(self.number)
    }
}

impl Object for DevxObject {
    fn kind(&self) -> ObjectKind {
        ObjectKind::DevxObject
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        if !self.end.is_empty() {
            core.execute(&self.end, &mut [0; SHORT])?;
            self.end.clear();
        }
        core.events.unsubscribe(self.identity());
        if self.made_by == code::CREATE_CQ {
            core.events.remove_cq(self.number);
        }
        Ok(())
    }
}

/// The command that ends what `input` made.
fn end_command(how: Ending, uid: u16, number: u32, input: &[u8]) -> Vec<u8> {
    let word = |at: usize| dword(input, at).unwrap_or(0);
    let copy_vport = |command: &mut [u8]| command[8..12].copy_from_slice(&word(8).to_be_bytes());
    match how {
        Ending::Short(end) => {
            let mut command: [u8; SHORT] = begin(end, uid, 0);
            command[8..12].copy_from_slice(&number.to_be_bytes());
            command.to_vec()
        }
        Ending::General => {
            let mut command: [u8; SHORT] = begin(code::DESTROY_GENERAL_OBJECT, uid, word(4) as u16);
            command[8..12].copy_from_slice(&number.to_be_bytes());
            command.to_vec()
        }
        Ending::Table => {
            let mut command: [u8; DestroyFlowTableIn::BYTES] = begin(code::DESTROY_FLOW_TABLE, uid, 0);
            copy_vport(&mut command);
            if let Some(input) = input.first_chunk() {
                DestroyFlowTableIn::TABLE_TYPE.set(&mut command, CreateFlowTableIn::TABLE_TYPE.get(input));
            }
            DestroyFlowTableIn::TABLE_ID.set(&mut command, number);
            command.to_vec()
        }
        Ending::Group => {
            let mut command: [u8; DestroyFlowGroupIn::BYTES] = begin(code::DESTROY_FLOW_GROUP, uid, 0);
            copy_vport(&mut command);
            if let Some(input) = input.first_chunk() {
                DestroyFlowGroupIn::TABLE_TYPE.set(&mut command, CreateFlowGroupIn::TABLE_TYPE.get(input));
                DestroyFlowGroupIn::TABLE_ID.set(&mut command, CreateFlowGroupIn::TABLE_ID.get(input));
            }
            DestroyFlowGroupIn::GROUP_ID.set(&mut command, number);
            command.to_vec()
        }
        Ending::Entry => {
            let mut command: [u8; DeleteFlowEntryIn::BYTES] = begin(code::DELETE_FLOW_TABLE_ENTRY, uid, 0);
            copy_vport(&mut command);
            if let Some(input) = input.first_chunk() {
                DeleteFlowEntryIn::TABLE_TYPE.set(&mut command, SetFlowEntryIn::TABLE_TYPE.get(input));
                DeleteFlowEntryIn::TABLE_ID.set(&mut command, SetFlowEntryIn::TABLE_ID.get(input));
            }
            DeleteFlowEntryIn::FLOW_INDEX.set(&mut command, number);
            command.to_vec()
        }
    }
}

impl Session {
    /// `DEVX_OBJ/CREATE`.
    pub(crate) fn devx_create(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let (mut input, opcode) = command_of(call, devx_obj_create::CMD_IN)?;
        let uid = self.devx_uid(opcode)?;
        let head = command::header(&input).ok_or(Errno::EINVAL)?;
        let how = ending(opcode, head.op_mod).ok_or(Errno::EINVAL)?;
        // An object is one thing, and would end one.
        if opcode == code::CREATE_PSV
            && input.first_chunk().map(|input| CreatePsvIn::NUM_PSV.get(input)) != Some(1)
        {
            return Err(Errno::EINVAL);
        }
        stamp(&mut input, uid);
        set_umem_valid(&mut input);
        let core = Arc::clone(&self.core);
        let output = forward(&core, call, devx_obj_create::CMD_OUT, &input)?;
        let number = number_made(opcode, &input, &output).ok_or(Errno::EINVAL)?;
        let kind = if how == Ending::General { head.op_mod } else { 0 };
        let bulk = if opcode == code::ALLOC_FLOW_COUNTER { bulk_of(&input) } else { 0 };
        let end = end_command(how, uid, number, &input);
        let object = DevxObject { made_by: opcode, kind, number, end, bulk };
        if opcode == code::CREATE_CQ {
            core.events.add_cq(
                number,
                CqTarget {
                    channel: None,
                    file: None,
                    user_handle: 0,
                    completions: Count::default(),
                    events: Count::default(),
                },
            );
        }
        let handle = self.handles.add(object, &[]);
        call.create(devx_obj_create::HANDLE, handle)
    }

    /// `DEVX_OBJ/DESTROY`.
    pub(crate) fn devx_destroy(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        self.destroy::<DevxObject>(call.handle(devx_obj_destroy::HANDLE)?).map(drop)
    }

    /// `DEVX_OBJ/MODIFY`.
    pub(crate) fn devx_modify(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let handle = call.handle(devx_obj_modify::HANDLE)?;
        let mut input = self.checked(call, devx_obj_modify::CMD_IN, handle, Use::Change)?;
        set_umem_valid(&mut input);
        forward(&self.core, call, devx_obj_modify::CMD_OUT, &input).map(|_| ())
    }

    /// `DEVX_OBJ/QUERY`.
    pub(crate) fn devx_query(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let handle = call.handle(devx_obj_query::HANDLE)?;
        let input = self.checked(call, devx_obj_query::CMD_IN, handle, Use::Ask)?;
        forward(&self.core, call, devx_obj_query::CMD_OUT, &input).map(|_| ())
    }

    /// `DEVX_OBJ/ASYNC_QUERY`: answered at once, and told through the descriptor.
    pub(crate) fn devx_query_async(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let handle = call.handle(asynchronous::HANDLE)?;
        let input = self.checked(call, asynchronous::CMD_IN, handle, Use::Ask)?;
        let room = u16::try_from(call.number(asynchronous::OUT_LEN)?).map_err(|_| Errno::EINVAL)?;
        let fd = call.descriptor(asynchronous::FD).ok_or(Errno::EINVAL)?;
        let file = self.file(fd, |kind| kind == FileKind::DevxCommand)?;
        let wr_id = call.number(asynchronous::WR_ID)?;
        if file.unread_bytes() + usize::from(room) > WAITING_BYTES_MAX {
            return Err(Errno::EAGAIN);
        }
        let mut output = vec![0; room.into()];
        match self.core.try_execute(&input, &mut output) {
            // The program reads the status itself.
            Ok(()) | Err(Failure::Refused(_)) => {}
            Err(gone) => return Err(gone.into()),
        }
        file.tell(&[AsyncCommand { wr_id }.as_bytes(), &output].concat(), None);
        Ok(())
    }

    /// `DEVX_ASYNC_CMD_FD/ALLOC`.
    pub(crate) fn devx_alloc_command_fd(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let (_, user) = self.add_file(FileKind::DevxCommand)?;
        call.create_fd(pollux_mlx5_abi::kernel::attribute::devx_async_cmd_fd_alloc::HANDLE, user)
    }

    /// A program's command on an object, checked and stamped. The object may be one of verbs: then it is what that is made of.
    fn checked(&self, call: &Call<'_>, attribute: u16, handle: u32, wanted: Use) -> Result<Vec<u8>, Errno> {
        let (mut input, opcode) = command_of(call, attribute)?;
        let uid = self.devx_uid(opcode)?;
        let head = command::header(&input).ok_or(Errno::EINVAL)?;
        let (used, made_by) = subject(opcode, head.op_mod).ok_or(Errno::EINVAL)?;
        if used != wanted {
            return Err(Errno::EINVAL);
        }
        let named = number_named(opcode, &input);
        let fits = match self.handles.get::<DevxObject>(handle) {
            Ok(object) => object.is_named(&input, made_by),
            Err(_) => {
                let parts = self.handles.any(handle)?.parts();
                named.is_some_and(|number| parts.contains(&(made_by, number)))
            }
        };
        if !fits {
            return Err(Errno::EINVAL);
        }
        stamp(&mut input, uid);
        Ok(input)
    }
}

/// How many counters a command asks for at once: 128 for each unit of the bits, or a power of two.
fn bulk_of(input: &[u8]) -> u32 {
    use pollux_mlx5_abi::command::counter::AllocFlowCounterIn as In;
    let Some(input) = input.first_chunk() else { return 0 };
    match (In::FLOW_COUNTER_BULK_LOG_SIZE.get(input), In::FLOW_COUNTER_BULK.get(input)) {
        (0, units) => units * 128,
        (log, _) => 1 << log,
    }
}
