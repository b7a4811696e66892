//! Completion queues and their channels. Source: Linux `drivers/infiniband/hw/mlx5/cq.c`.

use std::mem::offset_of;
use std::sync::Arc;

use pollux_mlx5_abi::caps::general::{GeneralCaps, stamps};
use pollux_mlx5_abi::command::cq::{CqContext, CreateCqIn, DestroyCqIn, ModifyCqIn, modify, stride};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::wq::stamp;
use pollux_mlx5_abi::kernel::completion_queue::{CreateCq, ResizeCq, cq_flag, mini_format};
use pollux_uverbs::abi::flags::CqFlags;
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::object::{UHW_IN, UHW_OUT};
use pollux_uverbs::abi::queue::{
    self, CreateCompChannelResp, CreateCqResp, DestroyCqResp, ExCreateCq, ExCreateCqResp, ExModifyCq,
    ResizeCqResp,
};
use pollux_uverbs::{Call, Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::event::file::{Count, EventFile, FileKind};
use crate::event::{CqTarget, reported};
use crate::firmware::{SHORT, begin, number};
use crate::handle::{Object, ObjectKind};
use crate::session::Session;
use crate::umem::{Record, Umem};
use crate::{device::Rights, udata};

/// Longest moderation. Source: Linux `include/linux/mlx5/driver.h`, `MLX5_MAX_CQ_PERIOD`.
pub(crate) const PERIOD_MAX: u16 = 0xfff;

/// MODIFY_CQ's op_mod for another ring, and the mask for its size and place. Source: Linux
/// `include/linux/mlx5/cq.h`, `MLX5_CQ_OPMOD_RESIZE`, `MLX5_MODIFY_CQ_MASK_*`.
const RESIZE: (u16, u32) = (1, 0b111);

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) cqn: u32,
    pub(crate) cqe_bytes: u32,
    pub(crate) stamps_real_time: bool,
    pub(crate) stamps: bool,
    /// Whether it is still on the device.
    lives: bool,
    entries: u32,
    ring: Umem,
    _record: Record,
    channel: Option<Arc<EventFile>>,
    file: Option<Arc<EventFile>>,
    completions: Count,
    events: Count,
}

/// What is asked for.
#[derive(Debug)]
struct Wanted<'a> {
    entries: u32,
    vector: u32,
    flags: u32,
    user_handle: u64,
    channel: Option<Arc<EventFile>>,
    file: Option<Arc<EventFile>>,
    driver: &'a [u8],
}

/// What was made.
#[derive(Clone, Copy, Debug)]
struct Made {
    handle: u32,
    entries: u32,
    cqn: u32,
}

impl Object for Cq {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Cq
    }

    fn end(&mut self, core: &Core, uid: u16) -> Result<(), Errno> {
        if self.lives {
            let mut input: [u8; DestroyCqIn::BYTES] = begin(opcode::DESTROY_CQ, uid, 0);
            DestroyCqIn::CQN.set(&mut input, self.cqn);
            core.execute(&input, &mut [0; SHORT])?;
            self.lives = false;
        }
        core.events.remove_cq(self.cqn);
        Ok(())
    }

    fn parts(&self) -> Vec<(u16, u32)> {
        vec![(opcode::CREATE_CQ, self.cqn)]
    }
}

impl Cq {
    /// What its destruction answers; takes back what was not read.
    fn reported(&self) -> DestroyCqResp {
        DestroyCqResp {
            comp_events_reported: reported(self.channel.as_ref(), &self.completions),
            async_events_reported: reported(self.file.as_ref(), &self.events),
        }
    }
}

impl Session {
    /// `CREATE_COMP_CHANNEL`.
    pub(crate) fn create_comp_channel(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let (_, user) = self.add_file(FileKind::Completion)?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&user).cast_unsigned();
        command.core_out.write(CreateCompChannelResp { fd }.as_bytes());
        command.fd = Some(user);
        Ok(())
    }

    /// `CQ/CREATE`.
    pub(crate) fn create_cq(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::cq::create as a;
        let channel = match call.descriptor(a::COMP_CHANNEL) {
            Some(fd) => Some(self.file(fd, |kind| kind == FileKind::Completion)?),
            None => None,
        };
        let flags = if call.find(a::FLAGS).is_some() { call.number(a::FLAGS)? } else { 0 };
        let known = CqFlags::TIMESTAMP_COMPLETION | CqFlags::IGNORE_OVERRUN;
        if flags & !u64::from(known.bits()) != 0 {
            return Err(Errno::EINVAL);
        }
        let made = self.make_cq(&Wanted {
            entries: call.input_as(a::CQE)?,
            vector: call.input_as(a::COMP_VECTOR)?,
            flags: flags as u32,
            user_handle: call.number(a::USER_HANDLE)?,
            channel,
            file: self.event_file(call, a::EVENT_FD)?,
            driver: call.input(UHW_IN).unwrap_or_default(),
        })?;
        call.create(a::HANDLE, made.handle)?;
        call.reply(a::RESP_CQE, &made.entries)?;
        udata::answer(call.output(UHW_OUT), made.cqn.as_bytes());
        Ok(())
    }

    /// `CREATE_CQ`.
    pub(crate) fn write_create_cq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: queue::CreateCq = command.request()?;
        let extended = ExCreateCq {
            user_handle: request.user_handle,
            cqe: request.cqe,
            comp_vector: request.comp_vector,
            comp_channel: request.comp_channel,
            ..ExCreateCq::default()
        };
        let made = self.make_written_cq(&extended, command.driver_in)?;
        command.core_out.write(CreateCqResp { cq_handle: made.handle, cqe: made.entries }.as_bytes());
        udata::answer(Some(&mut command.driver_out), made.cqn.as_bytes());
        Ok(())
    }

    /// `EX_CREATE_CQ`.
    pub(crate) fn ex_create_cq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExCreateCq = command.request()?;
        if request.comp_mask != 0 || request.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        let made = self.make_written_cq(&request, command.driver_in)?;
        let base = CreateCqResp { cq_handle: made.handle, cqe: made.entries };
        let answer = ExCreateCqResp { base, ..ExCreateCqResp::default() };
        let offset = offset_of!(ExCreateCqResp, response_length);
        udata::answer_counted(&mut command.core_out, answer.as_bytes(), offset);
        udata::answer(Some(&mut command.driver_out), made.cqn.as_bytes());
        Ok(())
    }

    fn make_written_cq(&mut self, request: &ExCreateCq, driver: &[u8]) -> Result<Made, Errno> {
        let channel = if request.comp_channel >= 0 {
            // Source: Linux `drivers/infiniband/core/uverbs_cmd.c`, `create_cq`, which answers so whatever is wrong with it.
            let file = self.file_by_number(request.comp_channel, FileKind::Completion);
            Some(file.map_err(|_| Errno::EINVAL)?)
        } else {
            None
        };
        self.make_cq(&Wanted {
            entries: request.cqe,
            vector: request.comp_vector,
            flags: request.flags,
            user_handle: request.user_handle,
            channel,
            file: self.default_file.clone(),
            driver,
        })
    }

    fn make_cq(&mut self, wanted: &Wanted<'_>) -> Result<Made, Errno> {
        let core = Arc::clone(&self.core);
        let granted = self.granted()?;
        if wanted.vector >= core.vectors() {
            return Err(Errno::EINVAL);
        }
        let flags = CqFlags::from_bits_retain(wanted.flags);
        if !(flags - (CqFlags::TIMESTAMP_COMPLETION | CqFlags::IGNORE_OVERRUN)).is_empty() {
            return Err(Errno::EOPNOTSUPP);
        }
        let entries = ring_entries(&core, wanted.entries)?;
        if wanted.driver.len() < offset_of!(CreateCq, flags) {
            return Err(Errno::EINVAL);
        }
        let driver: CreateCq = udata::lenient(wanted.driver);
        check(&core, &driver)?;
        let uar = if driver.flags & cq_flag::UAR_PAGE_INDEX != 0 {
            u32::from(driver.uar_page_index)
        } else {
            granted.registers.as_ref().and_then(|registers| registers.first_uar()).ok_or(Errno::EINVAL)?
        };
        let eqn = core.eqn(wanted.vector)?;
        let bytes = u64::from(entries) * u64::from(driver.cqe_size);
        let memory = core.memory.as_ref();
        let ring = Umem::pin(memory, driver.buf_addr, bytes, Rights::ReadWrite)?;
        ring.begins_on_page()?;
        let record = self.records.pin(memory, driver.db_addr)?;
        let mut head: [u8; CreateCqIn::BYTES] = begin(opcode::CREATE_CQ, granted.uid, 0);
        let context = CreateCqIn::CQ_CONTEXT.of_mut(&mut head);
        CqContext::CQE_SZ.set(
            context,
            match (driver.cqe_size, driver.flags & cq_flag::CQE_128B_PAD != 0) {
                (128, true) => stride::BYTES_128_PAD,
                (128, false) => stride::BYTES_128,
                _ => stride::BYTES_64,
            },
        );
        CqContext::OI.set(context, flags.contains(CqFlags::IGNORE_OVERRUN).into());
        if driver.cqe_comp_en == 1 {
            CqContext::CQE_COMP_EN.set(context, 1);
            CqContext::MINI_CQE_RES_FORMAT.set(context, mini(&core, driver.cqe_comp_res_format)?);
        }
        CqContext::LOG_CQ_SIZE.set(context, entries.ilog2());
        CqContext::UAR_PAGE.set(context, uar & 0xff_ffff);
        CqContext::C_EQN_OR_APU_ELEMENT.set(context, eqn.into());
        CqContext::DBR_ADDR.set(context, record.dma);
        let mut input = head.to_vec();
        input.extend_from_slice(&ring.pages(12, 0));
        let mut output = [0; SHORT];
        core.execute(&input, &mut output)?;
        let cqn = number(&output);
        let cq = Cq {
            cqn,
            cqe_bytes: driver.cqe_size,
            stamps_real_time: driver.flags & cq_flag::REAL_TIME_TS != 0,
            stamps: flags.contains(CqFlags::TIMESTAMP_COMPLETION),
            lives: true,
            entries,
            ring,
            _record: record,
            channel: wanted.channel.clone(),
            file: wanted.file.clone(),
            completions: Count::default(),
            events: Count::default(),
        };
        core.events.add_cq(
            cqn,
            CqTarget {
                channel: cq.channel.clone(),
                file: cq.file.clone(),
                user_handle: wanted.user_handle,
                completions: Arc::clone(&cq.completions),
                events: Arc::clone(&cq.events),
            },
        );
        let handle = self.handles.add(cq, &[]);
        Ok(Made { handle, entries: entries - 1, cqn })
    }

    /// `RESIZE_CQ`.
    pub(crate) fn resize_cq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: queue::ResizeCq = command.request()?;
        let core = Arc::clone(&self.core);
        if !core.caps.has(GeneralCaps::CQ_RESIZE) {
            return Err(Errno::ENOSYS);
        }
        let uid = self.uid();
        let cq = self.handles.get_mut::<Cq>(request.cq_handle)?;
        if request.cqe < 1 {
            return Err(Errno::EINVAL);
        }
        let entries = ring_entries(&core, request.cqe)?;
        if entries != cq.entries {
            let driver: ResizeCq = udata::strict(command.driver_in, size_of::<ResizeCq>())?;
            if driver.reserved0 != 0 || driver.reserved1 != 0 {
                return Err(Errno::EINVAL);
            }
            if u32::from(driver.cqe_size) != cq.cqe_bytes {
                return Err(Errno::EINVAL);
            }
            let bytes = u64::from(entries) * u64::from(driver.cqe_size);
            let ring = Umem::pin(core.memory.as_ref(), driver.buf_addr, bytes, Rights::ReadWrite)?;
            ring.begins_on_page()?;
            let mut head: [u8; ModifyCqIn::BYTES] = begin(opcode::MODIFY_CQ, uid, RESIZE.0);
            ModifyCqIn::CQN.set(&mut head, cq.cqn);
            ModifyCqIn::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.set(&mut head, RESIZE.1);
            let context = ModifyCqIn::CQ_CONTEXT.of_mut(&mut head);
            CqContext::LOG_CQ_SIZE.set(context, entries.ilog2());
            CqContext::CQE_SZ
                .set(context, if cq.cqe_bytes == 128 { stride::BYTES_128 } else { stride::BYTES_64 });
            let mut input = head.to_vec();
            input.extend_from_slice(&ring.pages(12, 0));
            core.execute(&input, &mut [0; SHORT])?;
            cq.ring = ring;
            cq.entries = entries;
        }
        command.core_out.write(ResizeCqResp { cqe: entries - 1, reserved: 0 }.as_bytes());
        Ok(())
    }

    /// `EX_MODIFY_CQ`: moderation.
    pub(crate) fn modify_cq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExModifyCq = command.request()?;
        if request.attr_mask == 0 || request.reserved != 0 {
            return Err(Errno::EINVAL);
        }
        if request.attr_mask > 1 {
            return Err(Errno::EOPNOTSUPP);
        }
        let cqn = self.handles.get::<Cq>(request.cq_handle)?.cqn;
        if !self.core.caps.has(GeneralCaps::CQ_MODERATION) {
            return Err(Errno::EOPNOTSUPP);
        }
        if request.cq_period > PERIOD_MAX {
            return Err(Errno::EINVAL);
        }
        let mut input: [u8; ModifyCqIn::BYTES] = begin(opcode::MODIFY_CQ, self.uid(), 0);
        ModifyCqIn::CQN.set(&mut input, cqn);
        let mask = modify::PERIOD | modify::COUNT;
        ModifyCqIn::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT.set(&mut input, mask);
        let context = ModifyCqIn::CQ_CONTEXT.of_mut(&mut input);
        CqContext::CQ_PERIOD.set(context, request.cq_period.into());
        CqContext::CQ_MAX_COUNT.set(context, request.cq_count.into());
        self.core.execute(&input, &mut [0; SHORT])
    }

    /// `CQ/DESTROY`.
    pub(crate) fn destroy_cq(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let answer = self.end_cq(call.handle(id::cq::destroy::HANDLE)?)?;
        call.reply(id::cq::destroy::RESP, &answer)
    }

    /// `DESTROY_CQ`.
    pub(crate) fn write_destroy_cq(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: queue::DestroyCq = command.request()?;
        let answer = self.end_cq(request.cq_handle)?;
        command.core_out.write(answer.as_bytes());
        Ok(())
    }

    fn end_cq(&mut self, handle: u32) -> Result<DestroyCqResp, Errno> {
        self.destroy::<Cq>(handle).map(|cq| cq.reported())
    }
}

/// How a queue's completions are stamped, from what its completion queue asks for. Source: Linux
/// `drivers/infiniband/hw/mlx5/qp.c`, `get_ts_format`; the codes: `include/linux/mlx5/mlx5_ifc.h`,
/// `MLX5_TIMESTAMP_FORMAT_*`.
pub(crate) fn stamp_format(cq: Option<&Cq>, offered: u32) -> Result<u32, Errno> {
    use stamp::{DEFAULT, FREE_RUNNING, REAL_TIME};
    let (runs_free, has_real_time) = (offered != stamps::REAL_TIME, offered != stamps::FREE_RUNNING);
    match cq {
        Some(cq) if cq.stamps_real_time && !has_real_time => Err(Errno::EOPNOTSUPP),
        Some(cq) if cq.stamps_real_time => Ok(REAL_TIME),
        Some(cq) if cq.stamps && !runs_free => Err(Errno::EOPNOTSUPP),
        Some(cq) if cq.stamps => Ok(FREE_RUNNING),
        _ => Ok(if runs_free { FREE_RUNNING } else { DEFAULT }),
    }
}

/// Entries of the ring for so many completions: one more, and a power of two.
fn ring_entries(core: &Core, wanted: u32) -> Result<u32, Errno> {
    let most = core.caps.count(GeneralCaps::LOG_MAX_CQ_SZ);
    if wanted > most {
        return Err(Errno::EINVAL);
    }
    let entries = (wanted + 1).next_power_of_two();
    if entries > most { Err(Errno::EINVAL) } else { Ok(entries) }
}

/// Source: Linux `drivers/infiniband/hw/mlx5/cq.c`, `create_cq_user`.
fn check(core: &Core, driver: &CreateCq) -> Result<(), Errno> {
    let known = cq_flag::CQE_128B_PAD | cq_flag::UAR_PAGE_INDEX | cq_flag::REAL_TIME_TS;
    if driver.flags & !known != 0 || driver.reserved0 != 0 || driver.reserved1 != 0 {
        return Err(Errno::EINVAL);
    }
    if driver.cqe_size != 64 && driver.cqe_size != 128 {
        return Err(Errno::EINVAL);
    }
    let caps = &core.caps;
    let compresses = match driver.cqe_size {
        128 => caps.has(GeneralCaps::CQE_COMPRESSION_128),
        _ => caps.has(GeneralCaps::CQE_COMPRESSION),
    };
    if driver.cqe_comp_en == 1 && !compresses {
        return Err(Errno::EOPNOTSUPP);
    }
    let pads = driver.cqe_size == 128 && caps.has(GeneralCaps::CQE_128_ALWAYS);
    if driver.flags & cq_flag::CQE_128B_PAD != 0 && !pads {
        return Err(Errno::EOPNOTSUPP);
    }
    Ok(())
}

/// The firmware's number of a format of compressed completions. Source: Linux `drivers/infiniband/hw/mlx5/cq.c`,
/// `mini_cqe_res_format_to_hw`.
fn mini(core: &Core, format: u8) -> Result<u32, Errno> {
    match format {
        mini_format::HASH => Ok(0),
        mini_format::CSUM => Ok(1),
        mini_format::CSUM_STRIDX if core.caps.has(GeneralCaps::MINI_CQE_RESP_STRIDE_INDEX) => Ok(3),
        mini_format::CSUM_STRIDX => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}
