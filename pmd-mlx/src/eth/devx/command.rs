//! Commands to the firmware, and the driver's own methods, through the kernel.

use std::sync::Arc;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::{self, QueryHcaCapIn, QueryHcaCapOut};
use pollux_mlx5_abi::command::{CommandOut, header, opcode, outcome, start};
use pollux_mlx5_abi::kernel::{attribute, flow_flag, flow_type, method, object};
use pollux_uverbs::abi::flags::Access;
use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Value};

use super::Head;
use crate::MlxError;
use crate::context::{Device, Pinning};
use crate::object::{Id, NumberedObject, Object};

/// Where packets that match a rule go.
pub(super) enum Dropping<'a> {
    /// Nowhere.
    Yes,
    /// To a TIR.
    No(&'a Object),
}

/// The way to the firmware.
#[derive(Debug)]
pub(crate) struct Firmware {
    device: Arc<Device>,
}

impl Firmware {
    pub(crate) fn new(device: &Arc<Device>) -> Self {
        Self { device: Arc::clone(device) }
    }

    pub(super) fn device(&self) -> &Arc<Device> {
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

    /// What the device can do, of one kind.
    pub(crate) fn capabilities(&self, kind: u16) -> Result<[u8; GeneralCaps::BYTES], MlxError> {
        use attribute::devx_other as a;
        let mut input = QueryHcaCapIn::ZERO;
        start(&mut input, opcode::QUERY_HCA_CAP, 0, caps::op_mod(kind, caps::NOW));
        let mut call = Call::named(object::DEVX, method::devx::OTHER, "DEVX/OTHER");
        call.bytes(a::CMD_IN, &input).answer(a::CMD_OUT, QueryHcaCapOut::BYTES);
        let what = "ask what the device can do";
        let output = self.carry(what, &mut call, &input, a::CMD_OUT)?;
        let block = output.first_chunk().map(|output| QueryHcaCapOut::CAPABILITY.of(output));
        block.and_then(|block| block.first_chunk().copied()).ok_or_else(|| MlxError::Device {
            device: self.device.name().to_owned(),
            problem: format!("cannot {what}: an answer of {} bytes", output.len()),
        })
    }

    /// Makes an object; `number` finds its number in the answer.
    pub(super) fn create(
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
        let short = || MlxError::Device {
            device: self.device.name().to_owned(),
            problem: format!("cannot {what}: an answer of {} bytes", output.len()),
        };
        let head = output.first_chunk().ok_or_else(short)?;
        Ok(NumberedObject { object, number: number(head) })
    }

    /// Changes an object.
    pub(super) fn modify(&self, what: &'static str, target: &Object, input: &[u8]) -> Result<(), MlxError> {
        use attribute::devx_obj_modify as a;
        let mut call = Call::named(object::DEVX_OBJ, method::devx_obj::MODIFY, "DEVX_OBJ/MODIFY");
        call.object(a::HANDLE, handle_of(target))
            .bytes(a::CMD_IN, input)
            .answer(a::CMD_OUT, CommandOut::BYTES);
        self.carry(what, &mut call, input, a::CMD_OUT).map(drop)
    }

    /// Asks about an object.
    pub(crate) fn query(
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
        let count = answer.len().min(output.len());
        output[..count].copy_from_slice(&answer[..count]);
        Ok(())
    }

    /// Registers memory by number.
    pub(super) fn umem(
        &self,
        what: &'static str,
        start: u64,
        bytes: u64,
    ) -> Result<NumberedObject, MlxError> {
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
    pub(super) fn event_queue(&self, vector: u32) -> Result<u32, MlxError> {
        use attribute::devx_query_eqn as a;
        let mut call = Call::named(object::DEVX, method::devx::QUERY_EQN, "DEVX/QUERY_EQN");
        call.u32(a::USER_VEC, vector).answer(a::DEV_EQN, 4);
        self.number("find the event queue", call, a::DEV_EQN)
    }

    fn number(&self, what: &'static str, mut call: Call<'_>, answer: u16) -> Result<u32, MlxError> {
        let made = self.device.context().call(&mut call).and_then(|()| call.get(answer));
        made.map_err(|error| self.device.failed(what, error))
    }

    /// Makes a matcher: which bits of packets count, and when rules with them are looked at.
    pub(super) fn matcher(&self, mask: &[u8], criteria: u8, priority: u16) -> Result<Object, MlxError> {
        use attribute::flow_matcher_create as a;
        let (priority, criteria) = (priority.to_ne_bytes(), [criteria]);
        let mut call = Call::named(object::FLOW_MATCHER, method::flow_matcher::CREATE, "FLOW_MATCHER/CREATE");
        call.new_object(a::CREATE_HANDLE)
            .bytes(a::MATCH_MASK, mask)
            .attribute(a::FLOW_TYPE, Value::Element(flow_type::NORMAL as u8, &priority))
            .bytes(a::MATCH_CRITERIA, &criteria);
        let made = self.device.context().call(&mut call).and_then(|()| call.created(a::CREATE_HANDLE));
        let handle = made.map_err(|error| self.device.failed("make a flow matcher", error))?;
        Ok(Object::new(&self.device, Id::Matcher(handle)))
    }

    /// Makes a rule; its handle.
    pub(super) fn flow(
        &self,
        matcher: &Object,
        value: &[u8],
        target: Dropping<'_>,
        tag: Option<u32>,
        counter: Option<&Object>,
    ) -> Result<u32, MlxError> {
        use attribute::create_flow as a;
        let counters = counter.map(|counter| handle_of(counter).to_ne_bytes());
        let mut call = Call::named(id::flow::OBJECT, method::flow::CREATE_FLOW, "FLOW/CREATE_FLOW");
        call.new_object(a::HANDLE).bytes(a::MATCH_VALUE, value).object(a::MATCHER, handle_of(matcher));
        match target {
            Dropping::No(queue) => call.object(a::DEST_DEVX, handle_of(queue)),
            Dropping::Yes => call.u32(a::FLAGS, flow_flag::DROP),
        };
        if let Some(tag) = tag {
            call.u32(a::TAG, tag);
        }
        if let Some(counters) = &counters {
            call.bytes(a::ARR_COUNTERS_DEVX, counters);
        }
        let made = self.device.context().call(&mut call).and_then(|()| call.created(a::HANDLE));
        made.map_err(|error| self.device.failed("make a flow rule", error))
    }
}

fn handle_of(target: &Object) -> u32 {
    match target.id() {
        Id::Devx(handle) | Id::Matcher(handle) => handle,
        Id::Qp(handle) => handle.0,
        other => unreachable!("{other:?} is no object of the firmware"),
    }
}
