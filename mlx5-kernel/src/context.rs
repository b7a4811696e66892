//! Contexts: what opening the device gives. Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `mlx5_ib_alloc_ucontext`.

pub(crate) mod granted;

use std::mem::offset_of;
use std::sync::Arc;

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::caps::roce::RoceCaps;
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::user::capability;
use pollux_mlx5_abi::kernel::attribute::query_context;
use pollux_mlx5_abi::kernel::context::{ContextAnswer, ContextRequest, answer, context_flag, library, uhw};
use pollux_uverbs::abi::device::GetContextResp;
use pollux_uverbs::abi::flags::CoreSupport;
use pollux_uverbs::abi::id;
use pollux_uverbs::abi::object::UHW_IN;
use pollux_uverbs::abi::object::UHW_OUT;
use pollux_uverbs::{Call, Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::capability::Caps;
use crate::core::Core;
use crate::event::file::FileKind;
use crate::loopback::User;
use crate::pieces::Pieces;
use crate::session::Session;
use crate::uar::map::Maps;
use crate::uar::register::StaticRegisters;
use crate::{start, udata};
use granted::Granted;

impl Session {
    /// `DEVICE/GET_CONTEXT`.
    pub(crate) fn get_context(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::get_context as a;
        self.tell_core(call, a::NUM_COMP_VECTORS, a::CORE_SUPPORT);
        let answer = self.grant(call.input(UHW_IN).unwrap_or_default())?;
        if let Some(output) = call.output(UHW_OUT) {
            udata::answer_counted(output, answer.as_bytes(), offset_of!(ContextAnswer, response_length));
        }
        Ok(())
    }

    /// The older command, which also makes the descriptor of events.
    pub(crate) fn write_get_context(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let answer = self.grant(command.driver_in)?;
        let (_, user) = self.add_file(FileKind::Asynchronous)?;
        let core_answer = GetContextResp {
            async_fd: std::os::fd::AsRawFd::as_raw_fd(&user).cast_unsigned(),
            num_comp_vectors: self.core.vectors(),
        };
        command.fd = Some(user);
        command.core_out.write(core_answer.as_bytes());
        let offset = offset_of!(ContextAnswer, response_length);
        udata::answer_counted(&mut command.driver_out, answer.as_bytes(), offset);
        Ok(())
    }

    /// `DEVICE/QUERY_CONTEXT`.
    pub(crate) fn query_context(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        use id::device::query_context as a;
        let answer = context_answer(&self.core, self.granted()?)?;
        self.tell_core(call, a::NUM_COMP_VECTORS, a::CORE_SUPPORT);
        if let Some(output) = call.output(query_context::RESP_UCTX) {
            udata::answer_counted(output, answer.as_bytes(), offset_of!(ContextAnswer, response_length));
        }
        Ok(())
    }

    /// `ASYNC_EVENT/ALLOC`.
    pub(crate) fn alloc_async_event(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let (_, user) = self.add_file(FileKind::Asynchronous)?;
        call.create_fd(id::async_event::alloc::FD_HANDLE, user)
    }

    fn tell_core(&self, call: &mut Call<'_>, vectors: u16, support: u16) {
        if let Some(output) = call.output(vectors) {
            output.write(self.core.vectors().as_bytes());
        }
        if let Some(output) = call.output(support) {
            output.write(CoreSupport::OPTIONAL_MR_ACCESS.bits().as_bytes());
        }
    }

    fn grant(&mut self, driver_in: &[u8]) -> Result<ContextAnswer, Errno> {
        if self.granted.is_some() {
            return Err(Errno::EINVAL);
        }
        // The oldest form has 8 bytes; the second one is as long as its kernel knew, from the version of completions on.
        if driver_in.len() != 8 && driver_in.len() < offset_of!(ContextRequest, max_cqe_version) {
            return Err(Errno::EINVAL);
        }
        let mut request: ContextRequest = udata::lenient(driver_in);
        let unknown = request.flags & !context_flag::DEVX != 0
            || request.comp_mask != 0
            || request.reserved0 != 0
            || request.reserved1 != 0
            || request.reserved2 != 0;
        if unknown {
            return Err(Errno::EOPNOTSUPP);
        }
        let core = Arc::clone(&self.core);
        if core.profile.no_uar_alloc {
            request.lib_caps &= !library::DYN_UAR;
        }
        let dynamic = request.lib_caps & library::DYN_UAR != 0;
        let has_devx = request.flags & context_flag::DEVX != 0;
        let uid = if has_devx { devx_context(&core)? } else { 0 };
        let second = driver_in.len() != 8;
        let registers = if dynamic {
            None
        } else {
            match StaticRegisters::new(&core, uid, &request, second) {
                Ok(registers) => Some(registers),
                Err(errno) => {
                    if uid != 0 {
                        start::destroy_user_context(&core.firmware, uid);
                    }
                    return Err(errno);
                }
            }
        };
        let offered = core.caps.general(GeneralCaps::CQE_VERSION) as u8;
        let cqe_version =
            offered.min(request.max_cqe_version).min(core.profile.cqe_version_max.unwrap_or(u8::MAX));
        let mut granted = Granted {
            uid,
            domain: 0,
            has_domain: false,
            cqe_version,
            registers,
            maps: Maps::default(),
            pieces: Pieces::default(),
        };
        let answer = Self::complete(&core, &mut granted);
        match answer {
            Ok(answer) => {
                self.granted = Some(granted);
                Ok(answer)
            }
            Err(errno) => {
                granted.end(&core);
                Err(errno)
            }
        }
    }

    fn complete(core: &Core, granted: &mut Granted) -> Result<ContextAnswer, Errno> {
        if core.caps.general(GeneralCaps::LOG_MAX_TRANSPORT_DOMAIN) > 0 {
            let input: [u8; 16] = crate::firmware::begin(opcode::ALLOC_TRANSPORT_DOMAIN, granted.uid, 0);
            let end = opcode::DEALLOC_TRANSPORT_DOMAIN;
            granted.domain = granted.pieces.make(core, &input, end, granted.uid)?;
            core.loopback.enter(core, User::Context)?;
            granted.has_domain = true;
        }
        context_answer(core, granted)
    }
}

/// Makes the firmware's user context. Source: Linux `drivers/infiniband/hw/mlx5/devx.c`, `mlx5_ib_devx_create`.
fn devx_context(core: &Core) -> Result<u16, Errno> {
    if core.profile.no_devx || core.caps.general(GeneralCaps::LOG_MAX_UCTX) == 0 {
        return Err(Errno::EINVAL);
    }
    let offered = core.caps.general(GeneralCaps::UCTX_CAP);
    let raw = if core.profile.no_net_raw { 0 } else { offered & capability::RAW_TX };
    start::create_user_context(&core.firmware, raw)
}

/// Source: Linux `drivers/infiniband/hw/mlx5/main.c`, `set_ucontext_resp`.
fn context_answer(core: &Core, granted: &Granted) -> Result<ContextAnswer, Errno> {
    let caps = &core.caps;
    let mut mask = answer::CORE_CLOCK_OFFSET | answer::MKEY_UPDATE_TAG;
    if core.firmware.queue.clock().is_none() {
        mask &= !answer::CORE_CLOCK_OFFSET;
    }
    let flags = [
        (core.dump_fill_mkey.is_some(), answer::DUMP_FILL_MKEY),
        (caps.has(GeneralCaps::ECE_SUPPORT), answer::ECE),
        (caps.has(GeneralCaps::DRAIN_SIGERR), answer::SQD2RTS),
        (real_time(caps), answer::REAL_TIME_TS),
    ];
    for (_, bit) in flags.iter().filter(|(is, _)| *is) {
        mask |= bit;
    }
    let uar_4k = caps.has(GeneralCaps::UAR_4K);
    let registers = granted.registers.as_ref();
    Ok(ContextAnswer {
        qp_tab_size: caps.count(GeneralCaps::LOG_MAX_QP),
        bf_reg_size: if core.write_combining { caps.count(GeneralCaps::LOG_BF_REG_SIZE) } else { 0 },
        tot_bfregs: registers.map_or(0, StaticRegisters::count),
        cache_line_size: 64,
        max_sq_desc_sz: caps.general(GeneralCaps::MAX_WQE_SZ_SQ) as u16,
        max_rq_desc_sz: caps.general(GeneralCaps::MAX_WQE_SZ_RQ) as u16,
        max_send_wqebb: caps.count(GeneralCaps::LOG_MAX_QP_SZ),
        max_recv_wr: caps.count(GeneralCaps::LOG_MAX_QP_SZ),
        max_srq_recv_wr: caps.count(GeneralCaps::LOG_MAX_SRQ_SZ),
        num_ports: core.ports().into(),
        flow_action_flags: 0,
        comp_mask: mask,
        response_length: 0,
        cqe_version: granted.cqe_version,
        cmds_supp_uhw: uhw::QUERY_DEVICE | uhw::CREATE_AH,
        eth_min_inline: caps.min_inline(core.port.min_inline) + 1,
        clock_info_versions: u8::from(core.clock.is_some()),
        // The clock stands at the start of its page. Source: Linux `include/linux/mlx5/device.h`, `struct mlx5_init_seg`.
        hca_core_clock_offset: 0,
        log_uar_size: 12,
        num_uars_per_page: if uar_4k { caps.general(GeneralCaps::NUM_OF_UARS_PER_PAGE) } else { 1 },
        num_dyn_bfregs: registers.map_or(0, StaticRegisters::dynamic),
        dump_fill_mkey: core.dump_fill_mkey.unwrap_or(0),
    })
}

/// Whether all queues can stamp real time.
fn real_time(caps: &Caps) -> bool {
    Caps::real_time(caps.general(GeneralCaps::SQ_TS_FORMAT))
        && Caps::real_time(caps.general(GeneralCaps::RQ_TS_FORMAT))
        && Caps::real_time(caps.roce(RoceCaps::QP_TS_FORMAT))
}
