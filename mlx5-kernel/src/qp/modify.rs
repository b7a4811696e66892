//! States of queue pairs. Source: Linux `drivers/infiniband/core/verbs.c` (`qp_state_table`),
//! `drivers/infiniband/hw/mlx5/qp.c` (`modify_raw_packet_qp`, `query_raw_packet_qp_state`).

use std::mem::offset_of;
use std::sync::Arc;

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::rq::{QueryRqIn, QueryRqOut, RqContext};
use pollux_mlx5_abi::command::sq::{QuerySqIn, QuerySqOut, SqContext};
use pollux_mlx5_abi::command::wq::state;
use pollux_mlx5_abi::kernel::queue_pair::{self, ModifyQpAnswer};
use pollux_uverbs::abi::flags::{QpMask, QpState, QpType};
use pollux_uverbs::abi::queue_pair::{ExModifyQp, ExModifyQpResp, ModifyQp, QueryQp, QueryQpResp};
use pollux_uverbs::{Errno, WriteCall};
use zerocopy::IntoBytes;

use super::raw::RawQp;
use super::rules::leads;
use super::shared::locked;
use super::{Body, Qp};
use crate::core::Core;
use crate::firmware::begin;
use crate::port::PORT;
use crate::rate::RateLimit;
use crate::session::Session;
use crate::udata;

/// Fields that the older command knows: up to `dest_qp_num`.
const OLD_MASK: u32 = (QpMask::DEST_QPN.bits() << 1) - 1;

/// Fields that the newer one knows: up to `rate_limit`.
const NEW_MASK: u32 = (QpMask::RATE_LIMIT.bits() << 1) - 1;

impl Session {
    /// `MODIFY_QP`.
    pub(crate) fn modify_qp(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ModifyQp = command.request()?;
        if request.attr_mask & !OLD_MASK != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        self.change_qp(&request, 0, command.driver_in).map(|_| ())
    }

    /// `EX_MODIFY_QP`.
    pub(crate) fn ex_modify_qp(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: ExModifyQp = udata::lenient(command.core_in);
        if request.base.attr_mask & !NEW_MASK != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let ece_options = self.change_qp(&request.base, request.rate_limit, command.driver_in)?;
        let offset = offset_of!(ExModifyQpResp, response_length);
        udata::answer_counted(&mut command.core_out, ExModifyQpResp::default().as_bytes(), offset);
        let answer = ModifyQpAnswer { ece_options, ..ModifyQpAnswer::default() };
        let offset = offset_of!(ModifyQpAnswer, response_length);
        udata::answer_counted(&mut command.driver_out, answer.as_bytes(), offset);
        Ok(())
    }

    /// The answer is what became of the enhanced connection options.
    fn change_qp(&mut self, request: &ModifyQp, rate: u32, driver: &[u8]) -> Result<u32, Errno> {
        let driver: queue_pair::ModifyQp = udata::strict(driver, 0)?;
        if driver.comp_mask != 0 || driver.burst_info.reserved != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let mask = QpMask::from_bits_retain(request.attr_mask);
        let core = Arc::clone(&self.core);
        if mask.contains(QpMask::PORT) && !core.is_port(request.port_num) {
            return Err(Errno::EINVAL);
        }
        let qp = self.handles.get_mut::<Qp>(request.qp_handle)?;
        let (current, wanted) = (QpState(request.cur_qp_state), QpState(request.qp_state));
        if mask.contains(QpMask::CUR_STATE) && current > QpState::ERR
            || mask.contains(QpMask::STATE) && wanted > QpState::ERR
        {
            return Err(Errno::EINVAL);
        }
        if let Body::Transport { qp, .. } = &qp.body {
            if mask.contains(QpMask::RATE_LIMIT) {
                return Err(Errno::EINVAL);
            }
            return locked(qp).modify(&core, request, driver.ece_options);
        }
        let Body::Raw(raw) = &mut qp.body else { return Err(Errno::ENOSYS) };
        // Ethernet goes by the function's own port.
        if mask.contains(QpMask::PORT) && u64::from(request.port_num) != PORT {
            return Err(Errno::EINVAL);
        }
        let current = if mask.contains(QpMask::CUR_STATE) { current } else { qp.state };
        let wanted = if mask.contains(QpMask::STATE) { wanted } else { current };
        if !leads(QpType::RAW_PACKET, current, wanted, mask) {
            return Err(Errno::EINVAL);
        }
        let limit = if mask.contains(QpMask::RATE_LIMIT) {
            Some(RateLimit::asked(&core, rate, &driver.burst_info)?)
        } else {
            None
        };
        let of_queues = match (current, wanted) {
            (QpState::RESET, QpState::RESET) => None,
            (QpState::RESET, QpState::INIT) => Some(state::READY),
            (_, QpState::ERR) => Some(state::ERROR),
            (_, QpState::RESET) => Some(state::RESET),
            _ => None,
        };
        if let Some(of_queues) = of_queues {
            raw.go(&core, qp.uid, of_queues, false)?;
        }
        if let Some(limit) = limit {
            raw.hold_to(&core, qp.uid, limit)?;
        }
        qp.state = wanted;
        Ok(0)
    }

    /// `QUERY_QP`.
    pub(crate) fn query_qp(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: QueryQp = command.request()?;
        let core = Arc::clone(&self.core);
        let qp = self.handles.get_mut::<Qp>(request.qp_handle)?;
        if let Body::Transport { qp: inside, .. } = &qp.body {
            let sq_sig_all = u8::from(qp.signals_all);
            let answer = QueryQpResp { sq_sig_all, ..locked(inside).query(&core)? };
            command.core_out.write(answer.as_bytes());
            return Ok(());
        }
        let Body::Raw(raw) = &mut qp.body else { return Err(Errno::ENOSYS) };
        qp.state = observe(&core, qp.uid, raw, qp.state)?;
        let answer = QueryQpResp {
            qp_state: qp.state.0,
            cur_qp_state: qp.state.0,
            port_num: PORT as u8,
            max_recv_wr: qp.cap.max_recv_wr,
            max_recv_sge: qp.cap.max_recv_sge,
            // Of a queue pair of a program the kernel knows nothing of the send side.
            max_send_wr: 0,
            max_send_sge: 0,
            max_inline_data: 0,
            sq_sig_all: u8::from(qp.signals_all),
            ..QueryQpResp::default()
        };
        command.core_out.write(answer.as_bytes());
        Ok(())
    }
}

/// The state that both queues' states make up.
fn observe(core: &Core, uid: u16, raw: &mut RawQp, known: QpState) -> Result<QpState, Errno> {
    let sq_state = match raw.sqn {
        Some(sqn) => {
            let mut input: [u8; QuerySqIn::BYTES] = begin(opcode::QUERY_SQ, uid, 0);
            QuerySqIn::SQN.set(&mut input, sqn);
            let mut output = QuerySqOut::ZERO;
            core.execute(&input, &mut output)?;
            Some(SqContext::STATE.get(QuerySqOut::SQ_CONTEXT.of(&output)))
        }
        None => None,
    };
    let rq_state = match raw.rqn {
        Some(rqn) => {
            let mut input: [u8; QueryRqIn::BYTES] = begin(opcode::QUERY_RQ, uid, 0);
            QueryRqIn::RQN.set(&mut input, rqn);
            let mut output = QueryRqOut::ZERO;
            core.execute(&input, &mut output)?;
            Some(RqContext::STATE.get(QueryRqOut::RQ_CONTEXT.of(&output)))
        }
        None => None,
    };
    raw.observed(rq_state, sq_state);
    // What is not there agrees with what is.
    let both_are = |state| rq_state.is_none_or(|own| own == state) && sq_state.is_none_or(|own| own == state);
    if rq_state.is_none() && sq_state.is_some() {
        // Of a send queue alone it keeps to what was asked for.
        Ok(known)
    } else if both_are(state::RESET) {
        Ok(QpState::RESET)
    } else if both_are(state::READY) {
        Ok(known)
    } else if both_are(state::ERROR) {
        Ok(QpState::ERR)
    } else if (rq_state, sq_state) == (Some(state::READY), Some(state::ERROR)) {
        Ok(QpState::SQE)
    } else {
        Err(Errno::EINVAL)
    }
}
