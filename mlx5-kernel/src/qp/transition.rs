//! Changes of state of queue pairs of a transport, in the firmware's commands. Source: Linux
//! `drivers/infiniband/core/uverbs_cmd.c`, `modify_qp`; `drivers/infiniband/hw/mlx5/qp.c`, `mlx5_ib_modify_qp` and
//! `__mlx5_ib_modify_qp`.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::opcode as op;
use pollux_mlx5_abi::command::qp::context::{
    AddressPath, QpContext, atomic_mode, migration, optional, service,
};
use pollux_mlx5_abi::command::qp::{TransitionIn, TransitionOut};
use pollux_uverbs::Errno;
use pollux_uverbs::abi::flags::{Access, QpMask, QpState, QpType};
use pollux_uverbs::abi::queue_pair::ModifyQp;

use super::path::{self, Ends};
use super::rules::{heeded, leads};
use super::shared::TransportQp;
use super::transport::service_of;
use crate::core::Core;
use crate::firmware::{SHORT, begin, naming};
use crate::port::PORT;

/// An acknowledge is asked for at least every 2 to the power of so many packets. Source: Linux
/// `drivers/infiniband/hw/mlx5/qp.c`, `MLX5_IB_ACK_REQ_FREQ`.
const LOG_ACK_EVERY: u32 = 8;

/// MTU codes: 256 bytes to 4096. Source: Linux `include/rdma/ib_verbs.h`, `enum ib_mtu`.
const MTUS: std::ops::RangeInclusive<u8> = 1..=5;

/// What a datagram's context says: the longest MTU, and messages of one packet.
const DATAGRAM: (u32, u32) = (5, 12);

/// Codes of path migration. Source: Linux `include/rdma/ib_verbs.h`, `enum ib_mig_state`.
mod migrates {
    pub(super) const REARM: u8 = 1;
    pub(super) const ARMED: u8 = 2;
}

impl TransportQp {
    /// MODIFY_QP. The answer is what the firmware makes of the enhanced connection options.
    pub(super) fn modify(&mut self, core: &Core, request: &ModifyQp, ece: u32) -> Result<u32, Errno> {
        let mut request = *request;
        let mut mask = QpMask::from_bits_retain(request.attr_mask);
        self.check_ports(core, &mut request, &mut mask)?;
        let (current, wanted) = (QpState(request.cur_qp_state), QpState(request.qp_state));
        if mask.contains(QpMask::CUR_STATE) && current > QpState::ERR
            || mask.contains(QpMask::STATE) && wanted > QpState::ERR
        {
            return Err(Errno::EINVAL);
        }
        let current = if mask.contains(QpMask::CUR_STATE) { current } else { self.state };
        let wanted = if mask.contains(QpMask::STATE) { wanted } else { current };
        let mask = heeded(self.kind, mask);
        if !leads(self.kind, current, wanted, mask) {
            return Err(Errno::EINVAL);
        }
        check_values(core, &request, mask)?;
        if (current, wanted) == (QpState::RESET, QpState::RESET) {
            return Ok(0);
        }
        let answer = self.carry_out(core, &request, mask, (current, wanted), ece)?;
        self.state = wanted;
        if mask.contains(QpMask::ACCESS_FLAGS) {
            self.access = Access::from_bits_retain(request.qp_access_flags);
        }
        if mask.contains(QpMask::MAX_DEST_RD_ATOMIC) {
            self.serves = request.max_dest_rd_atomic;
        }
        if mask.contains(QpMask::PORT) {
            self.port = request.port_num;
        }
        Ok(answer)
    }

    /// Ports that are named must be there, and be the same.
    fn check_ports(&self, core: &Core, request: &mut ModifyQp, mask: &mut QpMask) -> Result<(), Errno> {
        let is_port = |number: u8| core.is_port(number);
        if mask.contains(QpMask::PORT) && !is_port(request.port_num) {
            return Err(Errno::EINVAL);
        }
        if mask.contains(QpMask::AV) {
            let port = request.dest.port_num;
            if !is_port(port) {
                return Err(Errno::EINVAL);
            }
            if mask.contains(QpMask::STATE) && QpState(request.qp_state) == QpState::RTR {
                if port != self.port {
                    return Err(Errno::EINVAL);
                }
            } else if !mask.contains(QpMask::PORT) {
                // Drained: the path's port is the queue pair's.
                *mask |= QpMask::PORT;
                request.port_num = port;
            }
        }
        let alternate = request.alt_port_num;
        if mask.contains(QpMask::ALT_PATH) && !(is_port(alternate) && alternate == request.alt_dest.port_num)
        {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    fn carry_out(
        &self,
        core: &Core,
        request: &ModifyQp,
        mask: QpMask,
        (current, wanted): (QpState, QpState),
        ece: u32,
    ) -> Result<u32, Errno> {
        use QpState as S;
        let code = match (current, wanted) {
            (_, S::RESET) => {
                return core.execute(&naming(op::TO_RST_QP, self.uid, self.qpn), &mut [0; SHORT]).map(|()| 0);
            }
            (_, S::ERR) => {
                return core.execute(&naming(op::TO_ERR_QP, self.uid, self.qpn), &mut [0; SHORT]).map(|()| 0);
            }
            (S::RESET, S::INIT) => op::RST2INIT_QP,
            (S::INIT, S::INIT) => op::INIT2INIT_QP,
            (S::INIT, S::RTR) => op::INIT2RTR_QP,
            (S::RTR, S::RTS) => op::RTR2RTS_QP,
            (S::RTS, S::RTS) => op::RTS2RTS_QP,
            (S::SQE, S::RTS) => op::SQERR2RTS_QP,
            (S::SQD, S::RTS) => op::SQD_RTS_QP,
            // Not from RTS to SQD, though the firmware has a command for that: its queue pairs come there by themselves.
            _ => return Err(Errno::EINVAL),
        };
        let mut input: [u8; TransitionIn::BYTES] = begin(code, self.uid, 0);
        TransitionIn::QPN.set(&mut input, self.qpn);
        let service = service_of(self.kind).ok_or(Errno::EINVAL)?;
        let optional = optional_of(mask) & optional_in(current, wanted, service);
        TransitionIn::OPT_PARAM_MASK.set(&mut input, optional);
        if core.caps.has(GeneralCaps::ECE_SUPPORT) {
            TransitionIn::ECE.set(&mut input, ece);
        }
        let context = TransitionIn::QPC.of_mut(&mut input);
        QpContext::ST.set(context, service);
        QpContext::PM_STATE.set(context, path_migration(request, mask));
        QpContext::PD.set(context, self.pdn);
        QpContext::CQN_SND.set(context, self.send_cqn);
        QpContext::CQN_RCV.set(context, self.recv_cqn);
        QpContext::LOG_ACK_REQ_FREQ.set(context, LOG_ACK_EVERY);
        self.write_values(core, request, mask, context)?;
        if (current, wanted) == (S::RESET, S::INIT) {
            if self.kind == QpType::GSI {
                let primary = QpContext::PRIMARY_ADDRESS_PATH.of_mut(context);
                AddressPath::VHCA_PORT_NUM.set(primary, PORT as u32);
            }
            if self.receive_entries != 0 {
                QpContext::DBR_ADDR.set(context, self.record);
            }
            // Those of its port, which it has from here on.
            let port = if mask.contains(QpMask::PORT) { request.port_num.into() } else { PORT };
            if let Some(set) = core.outlet(port)?.counters.set {
                QpContext::COUNTER_SET_ID.set(context, set.into());
            }
        }
        let mut output = TransitionOut::ZERO;
        core.execute(&input, &mut output)?;
        Ok(TransitionOut::ECE.get(&output))
    }

    /// The values that the mask names.
    fn write_values(
        &self,
        core: &Core,
        request: &ModifyQp,
        mask: QpMask,
        context: &mut [u8; QpContext::BYTES],
    ) -> Result<(), Errno> {
        let has = |field| mask.contains(field);
        if matches!(self.kind, QpType::UD | QpType::GSI) {
            QpContext::MTU.set(context, DATAGRAM.0);
            QpContext::LOG_MSG_MAX.set(context, DATAGRAM.1);
        } else if has(QpMask::PATH_MTU) {
            if !MTUS.contains(&request.path_mtu) {
                return Err(Errno::EINVAL);
            }
            QpContext::MTU.set(context, request.path_mtu.into());
            QpContext::LOG_MSG_MAX.set(context, core.caps.general(GeneralCaps::LOG_MAX_MSG) & 0x1f);
        }
        if has(QpMask::DEST_QPN) {
            QpContext::REMOTE_QPN.set(context, request.dest_qp_num & 0xff_ffff);
        }
        let primary = QpContext::PRIMARY_ADDRESS_PATH.of_mut(context);
        if has(QpMask::AV) {
            let peer = has(QpMask::DEST_QPN).then_some(request.dest_qp_num);
            let ends = peer.map(|peer| Ends { qpn: self.qpn, peer: peer & 0xff_ffff });
            path::write(core, primary, &request.dest, ends)?;
        }
        if has(QpMask::PKEY_INDEX) {
            AddressPath::PKEY_INDEX.set(primary, request.pkey_index.into());
        }
        if has(QpMask::PORT) {
            AddressPath::VHCA_PORT_NUM.set(primary, request.port_num.into());
        }
        if has(QpMask::TIMEOUT) {
            AddressPath::ACK_TIMEOUT.set(primary, u32::from(request.timeout & 0x1f));
        }
        if has(QpMask::ALT_PATH) {
            let secondary = QpContext::SECONDARY_ADDRESS_PATH.of_mut(context);
            path::write(core, secondary, &request.alt_dest, None)?;
            AddressPath::PKEY_INDEX.set(secondary, request.alt_pkey_index.into());
            AddressPath::ACK_TIMEOUT.set(secondary, u32::from(request.alt_timeout & 0x1f));
            AddressPath::VHCA_PORT_NUM.set(secondary, request.alt_port_num.into());
        }
        if has(QpMask::RNR_RETRY) {
            QpContext::RNR_RETRY.set(context, u32::from(request.rnr_retry & 7));
        }
        if has(QpMask::RETRY_CNT) {
            QpContext::RETRY_COUNT.set(context, u32::from(request.retry_cnt & 7));
        }
        if has(QpMask::MAX_QP_RD_ATOMIC) {
            QpContext::LOG_SRA_MAX.set(context, log_at_least(request.max_rd_atomic));
        }
        if has(QpMask::SQ_PSN) {
            QpContext::NEXT_SEND_PSN.set(context, request.sq_psn & 0xff_ffff);
        }
        if has(QpMask::MAX_DEST_RD_ATOMIC) {
            QpContext::LOG_RRA_MAX.set(context, log_at_least(request.max_dest_rd_atomic));
        }
        if mask.intersects(QpMask::ACCESS_FLAGS | QpMask::MAX_DEST_RD_ATOMIC) {
            self.write_access(core, request, mask, context)?;
        }
        if has(QpMask::MIN_RNR_TIMER) {
            QpContext::MIN_RNR_NAK.set(context, u32::from(request.min_rnr_timer & 0x1f));
        }
        if has(QpMask::RQ_PSN) {
            QpContext::NEXT_RCV_PSN.set(context, request.rq_psn & 0xff_ffff);
        }
        if has(QpMask::QKEY) {
            QpContext::Q_KEY.set(context, request.qkey);
        }
        Ok(())
    }

    /// What the other side may do. One that is served no READ may write alone. Source: Linux
    /// `drivers/infiniband/hw/mlx5/qp.c`, `set_qpc_atomic_flags`.
    fn write_access(
        &self,
        core: &Core,
        request: &ModifyQp,
        mask: QpMask,
        context: &mut [u8; QpContext::BYTES],
    ) -> Result<(), Errno> {
        let serves =
            if mask.contains(QpMask::MAX_DEST_RD_ATOMIC) { request.max_dest_rd_atomic } else { self.serves };
        let mut access = if mask.contains(QpMask::ACCESS_FLAGS) {
            Access::from_bits_retain(request.qp_access_flags)
        } else {
            self.access
        };
        if serves == 0 {
            access &= Access::REMOTE_WRITE;
        }
        QpContext::RRE.set(context, access.contains(Access::REMOTE_READ).into());
        QpContext::RWE.set(context, access.contains(Access::REMOTE_WRITE).into());
        if access.contains(Access::REMOTE_ATOMIC) {
            if !core.caps.has(GeneralCaps::ATOMIC) {
                return Err(Errno::EOPNOTSUPP);
            }
            QpContext::RAE.set(context, 1);
            QpContext::ATOMIC_MODE.set(context, atomic_mode::IB_COMP);
        }
        Ok(())
    }
}

fn check_values(core: &Core, request: &ModifyQp, mask: QpMask) -> Result<(), Errno> {
    // There is one partition.
    let wrong = mask.contains(QpMask::PKEY_INDEX) && request.pkey_index != 0
        || mask.contains(QpMask::ALT_PATH) && request.alt_pkey_index != 0
        || mask.contains(QpMask::MAX_QP_RD_ATOMIC)
            && u32::from(request.max_rd_atomic) > core.caps.count(GeneralCaps::LOG_MAX_RA_RES_QP)
        || mask.contains(QpMask::MAX_DEST_RD_ATOMIC)
            && u32::from(request.max_dest_rd_atomic) > core.caps.count(GeneralCaps::LOG_MAX_RA_REQ_QP)
        || mask.intersects(QpMask::MAX_QP_RD_ATOMIC) && log_at_least(request.max_rd_atomic) > 7
        || mask.intersects(QpMask::MAX_DEST_RD_ATOMIC) && log_at_least(request.max_dest_rd_atomic) > 7;
    if wrong { Err(Errno::EINVAL) } else { Ok(()) }
}

/// The logarithm of the power of two that is at least so many.
fn log_at_least(count: u8) -> u32 {
    u32::from(count).max(1).next_power_of_two().ilog2()
}

fn path_migration(request: &ModifyQp, mask: QpMask) -> u32 {
    match request.path_mig_state {
        migrates::REARM if mask.contains(QpMask::PATH_MIG_STATE) => migration::REARM,
        migrates::ARMED if mask.contains(QpMask::PATH_MIG_STATE) => migration::ARMED,
        _ => migration::MIGRATED,
    }
}

/// What fields of a request change, in the firmware's bits. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`,
/// `ib_nr_to_mlx5_nr`.
fn optional_of(mask: QpMask) -> u32 {
    use optional as o;
    let access = o::RWE | o::RRE | o::RAE;
    let bits = [
        (QpMask::ACCESS_FLAGS, access),
        (QpMask::PKEY_INDEX, o::PKEY_INDEX),
        (QpMask::PORT, o::PRI_PORT),
        (QpMask::QKEY, o::Q_KEY),
        (QpMask::AV, o::PRIMARY_ADDR_PATH | o::PRI_PORT),
        (QpMask::TIMEOUT, o::ACK_TIMEOUT),
        (QpMask::RETRY_CNT, o::RETRY_COUNT),
        (QpMask::RNR_RETRY, o::RNR_RETRY),
        (QpMask::MAX_QP_RD_ATOMIC, o::SRA_MAX),
        (QpMask::ALT_PATH, o::ALT_ADDR_PATH),
        (QpMask::MIN_RNR_TIMER, o::RNR_TIMEOUT),
        (QpMask::MAX_DEST_RD_ATOMIC, o::RRA_MAX | access),
        (QpMask::PATH_MIG_STATE, o::PM_STATE),
    ];
    bits.iter().filter(|(field, _)| mask.contains(*field)).fold(0, |all, (_, bits)| all | bits)
}

/// What a step may change beside what it must. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, `opt_mask`.
fn optional_in(current: QpState, wanted: QpState, service: u32) -> u32 {
    use QpState as S;
    use optional as o;
    let is_reliable = matches!(service, service::RC | service::XRC);
    let access = match service {
        service::RC | service::XRC => o::RRE | o::RAE | o::RWE,
        service::UC => o::RWE,
        _ => 0,
    };
    let (paths, timer) = match service {
        service::UD | service::QP1 => (0, 0),
        _ => (o::ALT_ADDR_PATH | o::PM_STATE, if is_reliable { o::RNR_TIMEOUT } else { 0 }),
    };
    let key = if matches!(service, service::UD | service::QP1) { o::Q_KEY } else { 0 };
    match (current, wanted) {
        (S::INIT, S::INIT) => access | key | o::PKEY_INDEX | o::PRI_PORT,
        (S::INIT, S::RTR) => access | key | o::PKEY_INDEX | paths & o::ALT_ADDR_PATH,
        (S::RTR | S::RTS | S::SQD, S::RTS) => access | key | paths | timer,
        (S::SQE, S::RTS) => access | key | timer,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_round_up() {
        let logs: Vec<u32> = [0, 1, 2, 3, 4, 5, 16, 17, 128].into_iter().map(log_at_least).collect();
        assert_eq!(logs, [0, 0, 1, 2, 2, 3, 4, 5, 7]);
    }
}
