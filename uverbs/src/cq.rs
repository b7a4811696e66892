//! Completion queues and their channels.

use std::os::fd::{AsFd, AsRawFd};

use crate::abi::flags::CqFlags;
use crate::abi::queue::{
    CreateCompChannel, CreateCompChannelResp, CreateCq, CreateCqResp, DestroyCq, DestroyCqResp, ExCreateCq,
    ExCreateCqResp, ExModifyCq, ReqNotifyCq, ResizeCq, ResizeCqResp,
};
use crate::abi::{id, write};
use crate::call::Call;
use crate::context::filled;
use crate::event::CompChannel;
use crate::handle::CqHandle;
use crate::{Context, Driver, Operation, UverbsError};

/// What completion queue to make.
#[derive(Clone, Copy, Debug)]
pub struct CqRequest<'a> {
    /// Entries, at least.
    pub entries: u32,
    /// What events about it carry.
    pub user_handle: u64,
    /// Where it tells that it has something.
    pub channel: Option<&'a CompChannel>,
    /// Which completion vector (interrupt) it uses; below [`Context::comp_vectors`].
    pub vector: u32,
    /// Options.
    pub flags: CqFlags,
}

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cq {
    /// Its handle.
    pub handle: CqHandle,
    /// Entries that it has.
    pub entries: u32,
}

impl Context {
    /// Makes a completion channel.
    ///
    /// # Errors
    /// What the kernel says, or an answer without a descriptor.
    pub fn create_comp_channel(&self) -> Result<CompChannel, UverbsError> {
        let (answer, fd): (CreateCompChannelResp, _) =
            self.write_for_fd(write::CREATE_COMP_CHANNEL, &CreateCompChannel::default())?;
        let fd = fd.ok_or(UverbsError::Unexpected {
            operation: Operation::Write { command: write::CREATE_COMP_CHANNEL },
            attribute: "fd".into(),
            value: u64::from(answer.fd),
            allowed: "a descriptor",
        })?;
        CompChannel::new(fd)
    }

    /// Makes a completion queue.
    ///
    /// # Errors
    /// What the kernel says: `EINVAL` for too many entries or no such vector. Options need a kernel that has the method or
    /// the extended command.
    pub fn create_cq(&self, request: &CqRequest<'_>, mut driver: Driver<'_>) -> Result<Cq, UverbsError> {
        use id::cq::create as a;
        let mut call = Call::new(id::cq::OBJECT, a::METHOD);
        call.new_object(a::HANDLE)
            .answer(a::RESP_CQE, 4)
            .u32(a::CQE, request.entries)
            .u64(a::USER_HANDLE, request.user_handle)
            .u32(a::COMP_VECTOR, request.vector)
            // Kernels before 5.7 know one event descriptor a context, and not this attribute.
            .fd(a::EVENT_FD, self.event_fd())
            .optional();
        if let Some(channel) = request.channel {
            call.fd(a::COMP_CHANNEL, channel.as_fd());
        }
        if !request.flags.is_empty() {
            call.u32(a::FLAGS, request.flags.bits());
        }
        if self.native(&mut call, driver.reborrow())? {
            return Ok(Cq { handle: CqHandle(call.created(a::HANDLE)?), entries: call.get(a::RESP_CQE)? });
        }
        drop(call);
        let comp_channel = request.channel.map_or(-1, |channel| channel.as_fd().as_raw_fd());
        let answer = if request.flags.is_empty() {
            let request = CreateCq {
                response: 0,
                user_handle: request.user_handle,
                cqe: request.entries,
                comp_vector: request.vector,
                comp_channel,
                reserved: 0,
            };
            self.write::<_, CreateCqResp>(write::CREATE_CQ, &request, driver)?
        } else {
            let request = ExCreateCq {
                user_handle: request.user_handle,
                cqe: request.entries,
                comp_vector: request.vector,
                comp_channel,
                comp_mask: 0,
                flags: request.flags.bits(),
                reserved: 0,
            };
            let answer: ExCreateCqResp = self.write(write::EX_CREATE_CQ, &request, driver)?;
            filled(write::EX_CREATE_CQ, answer.response_length, size_of::<CreateCqResp>())?;
            answer.base
        };
        Ok(Cq { handle: CqHandle(answer.cq_handle), entries: answer.cqe })
    }

    /// Changes the size of a completion queue; the answer is what it has.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn resize_cq(&self, cq: CqHandle, entries: u32, driver: Driver<'_>) -> Result<u32, UverbsError> {
        let request = ResizeCq { response: 0, cq_handle: cq.0, cqe: entries };
        self.write::<_, ResizeCqResp>(write::RESIZE_CQ, &request, driver).map(|answer| answer.cqe)
    }

    /// Moderates the events of a completion queue: one after `count` completions or `period_us` microseconds.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn moderate_cq(&self, cq: CqHandle, count: u16, period_us: u16) -> Result<(), UverbsError> {
        let request =
            ExModifyCq { cq_handle: cq.0, attr_mask: 1, cq_count: count, cq_period: period_us, reserved: 0 };
        self.write_only(write::EX_MODIFY_CQ, &request, Driver::none())
    }

    /// Arms a completion queue through the kernel, for devices that are not armed by a register.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn req_notify_cq(&self, cq: CqHandle, solicited_only: bool) -> Result<(), UverbsError> {
        let request = ReqNotifyCq { cq_handle: cq.0, solicited_only: u32::from(solicited_only) };
        self.write_only(write::REQ_NOTIFY_CQ, &request, Driver::none())
    }

    /// Destroys a completion queue. The answer tells how many of its events were read; events that were not are gone.
    ///
    /// # Errors
    /// What the kernel says: `EBUSY` while a queue uses it.
    pub fn destroy_cq(&self, cq: CqHandle) -> Result<DestroyCqResp, UverbsError> {
        let command = (write::DESTROY_CQ, DestroyCq { response: 0, cq_handle: cq.0, reserved: 0 });
        self.destroy_counted((id::cq::OBJECT, id::cq::destroy::METHOD), cq.0, command)
    }
}
