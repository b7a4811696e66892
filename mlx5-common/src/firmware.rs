//! Commands to the firmware through the kernel (DevX): what uverbs has no call for.

use std::sync::Arc;

use pollux_mlx5_abi::caps::{self, QueryHcaCapIn, QueryHcaCapOut};
use pollux_mlx5_abi::command::{CommandOut, header, opcode, outcome, start};
use pollux_mlx5_abi::kernel::{attribute, method, object};
use pollux_uverbs::Call;
use pollux_uverbs::abi::flags::Access;

use crate::MlxError;
use crate::context::{Device, Pinning};
use crate::object::{Id, NumberedObject, Object};

/// An answer's fixed part, for readers of its number.
pub type Head = [u8; CommandOut::BYTES];

/// The way to the firmware.
#[derive(Debug)]
pub struct Firmware {
    device: Arc<Device>,
}

impl Firmware {
    /// Over a device that may be sent commands ([`Device::devx`](crate::context::Device)).
    #[must_use]
    pub fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::clone(device) }
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Makes a call that carries a command. Where the firmware refused it, its answer says why; the kernel's error says
    /// only that.
    fn carry(
        &self,
        what: &'static str,
        call: &mut Call<'_>,
        input: &[u8],
        answer: u16,
    ) -> Result<Vec<u8>, MlxError> {
        let made = self.device.context().call(call);
        let output = call.answered(answer).map(<[u8]>::to_vec).unwrap_or_default();
        if output.len() >= CommandOut::BYTES
            && let Err(refused) = outcome(&output)
        {
            let opcode = header(input).map_or(0, |head| head.opcode);
            return Err(MlxError::Firmware { what, opcode, refused });
        }
        made.map_err(|error| self.device.failed(what, error))?;
        Ok(output)
    }

    /// An answer that ends before what is read of it.
    fn short(&self, call: &'static str, bytes: usize, wanted: usize) -> MlxError {
        let problem = format!("an answer of {bytes} bytes, {wanted} are needed");
        self.device.answered(call, problem, "the kernel or the firmware")
    }

    /// What the device can do, of one kind: the first `N` bytes of it.
    ///
    /// # Errors
    /// What the kernel or the firmware says.
    pub fn capabilities<const N: usize>(&self, kind: u16) -> Result<[u8; N], MlxError> {
        use attribute::devx_other as a;
        let mut input = QueryHcaCapIn::ZERO;
        start(&mut input, opcode::QUERY_HCA_CAP, 0, caps::op_mod(kind, caps::NOW));
        let mut call = Call::named(object::DEVX, method::devx::OTHER, "DEVX/OTHER");
        call.bytes(a::CMD_IN, &input).answer(a::CMD_OUT, QueryHcaCapOut::BYTES);
        let what = "query the device";
        let output = self.carry(what, &mut call, &input, a::CMD_OUT)?;
        let block = output.first_chunk().map(|output| QueryHcaCapOut::CAPABILITY.of(output));
        let block = block.and_then(|block| block.first_chunk().copied());
        block.ok_or_else(|| self.short("QUERY_HCA_CAP", output.len(), QueryHcaCapOut::BYTES))
    }

    /// Makes an object; `number` finds its number in the answer.
    ///
    /// # Errors
    /// What the kernel or the firmware says.
    pub fn create(
        &self,
        what: &'static str,
        input: &[u8],
        over: Vec<Object>,
        number: impl FnOnce(&Head) -> u32,
    ) -> Result<NumberedObject, MlxError> {
        use attribute::devx_obj_create as a;
        let mut call = Call::named(object::DEVX_OBJ, method::devx_obj::CREATE, "DEVX_OBJ/CREATE");
        call.new_object(a::HANDLE).bytes(a::CMD_IN, input).answer(a::CMD_OUT, CommandOut::BYTES);
        let output = self.carry(what, &mut call, input, a::CMD_OUT)?;
        let handle = call.created(a::HANDLE).map_err(|error| self.device.failed(what, error))?;
        let object = Object::over(&self.device, Id::Devx(handle), over);
        let name = header(input).and_then(|head| opcode::name(head.opcode)).unwrap_or("DEVX_OBJ/CREATE");
        let short = || self.short(name, output.len(), CommandOut::BYTES);
        let head = output.first_chunk().ok_or_else(short)?;
        Ok(NumberedObject { object, number: number(head) })
    }

    /// Changes an object.
    ///
    /// # Errors
    /// What the kernel or the firmware says.
    pub fn modify(&self, what: &'static str, target: &Object, input: &[u8]) -> Result<(), MlxError> {
        use attribute::devx_obj_modify as a;
        let mut call = Call::named(object::DEVX_OBJ, method::devx_obj::MODIFY, "DEVX_OBJ/MODIFY");
        call.object(a::HANDLE, handle_of(target))
            .bytes(a::CMD_IN, input)
            .answer(a::CMD_OUT, CommandOut::BYTES);
        self.carry(what, &mut call, input, a::CMD_OUT).map(drop)
    }

    /// Asks about an object.
    ///
    /// # Errors
    /// What the kernel or the firmware says.
    pub fn query(
        &self,
        what: &'static str,
        target: &Object,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), MlxError> {
        use attribute::devx_obj_query as a;
        let mut call = Call::named(object::DEVX_OBJ, method::devx_obj::QUERY, "DEVX_OBJ/QUERY");
        call.object(a::HANDLE, handle_of(target)).bytes(a::CMD_IN, input).answer(a::CMD_OUT, output.len());
        let answer = self.carry(what, &mut call, input, a::CMD_OUT)?;
        // What is missing would count as zeros, which mean something.
        if answer.len() < output.len() {
            let name = header(input).and_then(|head| opcode::name(head.opcode)).unwrap_or("DEVX_OBJ/QUERY");
            return Err(self.short(name, answer.len(), output.len()));
        }
        output.copy_from_slice(&answer[..output.len()]);
        Ok(())
    }

    /// Registers memory by number.
    ///
    /// # Errors
    /// What the kernel or the firmware says.
    pub fn umem(&self, what: &'static str, start: u64, bytes: u64) -> Result<NumberedObject, MlxError> {
        use attribute::devx_umem_reg as a;
        let mut call = Call::named(object::DEVX_UMEM, method::devx_umem::REG, "DEVX_UMEM/REG");
        call.new_object(a::HANDLE)
            .u64(a::ADDR, start)
            .u64(a::LEN, bytes)
            .u32(a::ACCESS, Access::LOCAL_WRITE.bits())
            .answer(a::OUT_ID, 4);
        self.device.pinning(what, Pinning::Queue, bytes, |context| context.call(&mut call))?;
        let failed = |error| self.device.failed(what, error);
        let handle = call.created(a::HANDLE).map_err(failed)?;
        let object = Object::pinning(&self.device, Id::Umem(handle), Vec::new(), bytes);
        Ok(NumberedObject { object, number: call.get(a::OUT_ID).map_err(failed)? })
    }

    /// The event queue behind a completion vector.
    ///
    /// # Errors
    /// What the kernel or the firmware says.
    pub fn event_queue(&self, vector: u32) -> Result<u32, MlxError> {
        use attribute::devx_query_eqn as a;
        let mut call = Call::named(object::DEVX, method::devx::QUERY_EQN, "DEVX/QUERY_EQN");
        call.u32(a::USER_VEC, vector).answer(a::DEV_EQN, 4);
        self.number("find the event queue", call, a::DEV_EQN)
    }

    fn number(&self, what: &'static str, mut call: Call<'_>, answer: u16) -> Result<u32, MlxError> {
        let made = self.device.context().call(&mut call).and_then(|()| call.get(answer));
        made.map_err(|error| self.device.failed(what, error))
    }
}

/// By which handle the kernel knows an object of the firmware's, or a queue pair.
///
/// # Panics
/// It is none: it is our mistake.
#[must_use]
pub fn handle_of(target: &Object) -> u32 {
    match target.id() {
        Id::Devx(handle) | Id::Matcher(handle) => handle,
        Id::Qp(handle) => handle.0,
        other => unreachable!("{other:?} is not a firmware object"),
    }
}
