//! What a queue pair of a transport is. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `query_qp_attr`.

use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext, migration, state};
use pollux_mlx5_abi::command::qp::{QueryQpIn, QueryQpOut};
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::{Access, QpState, QpType};
use pollux_uverbs::abi::queue_pair::QueryQpResp;

use super::path;
use super::shared::TransportQp;
use crate::core::Core;
use crate::firmware::begin;

/// Codes of path migration. Source: Linux `include/rdma/ib_verbs.h`, `enum ib_mig_state`.
mod migrates {
    pub(super) const MIGRATED: u8 = 0;
    pub(super) const REARM: u8 = 1;
    pub(super) const ARMED: u8 = 2;
}

impl TransportQp {
    /// Asks the device, and takes note of the state, which it may have changed by itself.
    pub(super) fn query(&mut self, core: &Core) -> Result<QueryQpResp, Errno> {
        let mut input: [u8; QueryQpIn::BYTES] = begin(opcode::QUERY_QP, self.uid, 0);
        QueryQpIn::QPN.set(&mut input, self.qpn);
        let mut output = QueryQpOut::ZERO;
        core.execute(&input, &mut output)?;
        let context = QueryQpOut::QPC.of(&output);
        let is = QpContext::STATE.get(context);
        self.state = match is {
            state::RST => QpState::RESET,
            state::INIT => QpState::INIT,
            state::RTR => QpState::RTR,
            state::RTS => QpState::RTS,
            state::SQER => QpState::SQE,
            state::SQD | state::SQ_DRAINING => QpState::SQD,
            state::ERR => QpState::ERR,
            _ => return Err(Errno::EINVAL),
        };
        let mut access = Access::empty();
        for (field, right) in [
            (QpContext::RRE, Access::REMOTE_READ),
            (QpContext::RWE, Access::REMOTE_WRITE),
            (QpContext::RAE, Access::REMOTE_ATOMIC),
        ] {
            access.set(right, field.is_set(context));
        }
        let primary = QpContext::PRIMARY_ADDRESS_PATH.of(context);
        let secondary = QpContext::SECONDARY_ADDRESS_PATH.of(context);
        let mut answer = QueryQpResp {
            max_recv_wr: self.receive_entries,
            max_recv_sge: self.receive_pieces,
            qkey: QpContext::Q_KEY.get(context),
            rq_psn: QpContext::NEXT_RCV_PSN.get(context),
            sq_psn: QpContext::NEXT_SEND_PSN.get(context),
            dest_qp_num: QpContext::REMOTE_QPN.get(context),
            qp_access_flags: access.bits(),
            pkey_index: AddressPath::PKEY_INDEX.get(primary) as u16,
            qp_state: self.state.0,
            cur_qp_state: self.state.0,
            path_mtu: QpContext::MTU.get(context) as u8,
            path_mig_state: match QpContext::PM_STATE.get(context) {
                migration::ARMED => migrates::ARMED,
                migration::REARM => migrates::REARM,
                _ => migrates::MIGRATED,
            },
            sq_draining: u8::from(is == state::SQ_DRAINING),
            max_rd_atomic: 1 << QpContext::LOG_SRA_MAX.get(context),
            max_dest_rd_atomic: 1 << QpContext::LOG_RRA_MAX.get(context),
            min_rnr_timer: QpContext::MIN_RNR_NAK.get(context) as u8,
            port_num: AddressPath::VHCA_PORT_NUM.get(primary) as u8,
            timeout: AddressPath::ACK_TIMEOUT.get(primary) as u8,
            retry_cnt: QpContext::RETRY_COUNT.get(context) as u8,
            rnr_retry: QpContext::RNR_RETRY.get(context) as u8,
            alt_timeout: AddressPath::ACK_TIMEOUT.get(secondary) as u8,
            ..QueryQpResp::default()
        };
        if !matches!(self.kind, QpType::UD | QpType::GSI) {
            answer.dest = path::read(primary);
            answer.alt_dest = path::read(secondary);
            answer.alt_pkey_index = AddressPath::PKEY_INDEX.get(secondary) as u16;
            answer.alt_port_num = answer.alt_dest.port_num;
        }
        Ok(answer)
    }
}
