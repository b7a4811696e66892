//! Commands on targets of dynamic connections.

use pollux_mlx5_abi::command::dct::{
    CreateDctIn, CreateDctOut, DATA_IN_ORDER, DctContext, QueryDctOut, state,
};
use pollux_mlx5_abi::command::qp::context::QpContext;
use pollux_mlx5_abi::command::{opcode as op, status};

use super::qp::NO_USER_INDEX;
use super::{Call, No, caps, need, no};
use crate::device::core::Core;
use crate::rdma::dynamic::{TARGETS_MAX, Target};
use crate::rdma::ece::Ece;
use crate::rdma::path::{ADDRESSES, Path};
use crate::rdma::state::{Service, State};
use crate::rdma::{Make, Qp, Rights, Source};
use crate::receive::PoolKind;

impl Core {
    pub(super) fn target_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        need!(self.traits.dynamic_connections, BAD_OP_ERR, 16);
        if opcode == op::CREATE_DCT {
            return self.create_target(call);
        }
        let number = call.named()?;
        let owner = self.rdma.pairs.owner(number);
        let data_in_order = self.traits.data_in_order;
        let absent = no(status::BAD_RES_ERR, 17);
        let pair = self.rdma.pairs.get_mut(number).ok_or(absent)?;
        let target = pair.target.as_deref_mut().ok_or(absent)?;
        match opcode {
            op::QUERY_DCT => {
                need!(call.may_name(owner), BAD_RES_ERR, 18);
                let mut context = target.context;
                let code = match pair.state {
                    State::Draining => state::DRAINING,
                    State::Drained => state::DRAINED,
                    _ => state::ACTIVE,
                };
                DctContext::STATE.set(&mut context, code);
                DctContext::DC_ACCESS_KEY_VIOLATION_COUNT.set(&mut context, target.violations);
                DctContext::ECE.set(&mut context, pair.ece.agreed());
                DATA_IN_ORDER.set(&mut context, data_in_order.into());
                QueryDctOut::DCT_CONTEXT_ENTRY.set(call.output()?, context);
                Ok(())
            }
            op::ARM_DCT_FOR_KEY_VIOLATION => {
                need!(call.may_change(owner), BAD_RES_ERR, 18);
                target.armed = true;
                Ok(())
            }
            op::DRAIN_DCT => {
                need!(call.may_change(owner), BAD_RES_ERR, 18);
                need!(!matches!(pair.state, State::Draining | State::Drained), BAD_RES_STATE_ERR, 19);
                pair.state = State::Draining;
                self.rdma.wake(number);
                Ok(())
            }
            _ => {
                need!(call.may_change(owner), BAD_RES_ERR, 18);
                // Source: Linux `drivers/infiniband/hw/mlx5/qpc.c`, `_mlx5_core_destroy_dct`, and `devx.c`, `devx_obj_cleanup`,
                // which drain it, wait for the event and only then destroy it.
                need!(pair.state == State::Drained, BAD_RES_STATE_ERR, 19);
                self.rdma.remove(number);
                Ok(())
            }
        }
    }

    fn create_target(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use DctContext as D;
        let context = CreateDctIn::DCT_CONTEXT_ENTRY.get(call.input::<{ CreateDctIn::BYTES }>()?);
        let (domain, cqn, pool) = (D::PD.get(&context), D::CQN.get(&context), D::SRQN_XRQN.get(&context));
        need!(call.may_work_in(self.domains.owner(domain)), BAD_RES_ERR, 20);
        need!(call.may_name(self.completions.queues.owner(cqn)), BAD_RES_ERR, 21);
        need!(call.may_name(self.receivers.pools.owner(pool)), BAD_RES_ERR, 22);
        let kind = self.receivers.pools.get(pool).map(|pool| pool.kind);
        need!(matches!(kind, Some(PoolKind::Memory | PoolKind::Shared)), BAD_PARAM_ERR, 23);
        let set = D::COUNTER_SET_ID.get(&context);
        need!(set == 0 || call.may_name(self.receivers.counters.owner(set)), BAD_RES_ERR, 24);
        need!(D::STATE.get(&context) == state::ACTIVE, BAD_PARAM_ERR, 25);
        need!((1..=5).contains(&D::MTU.get(&context)), BAD_PARAM_ERR, 26);
        need!(D::PKEY_INDEX.get(&context) == 0, BAD_PARAM_ERR, 27);
        let second = self.is_second_port(D::PORT.get(&context))?;
        need!((D::MY_ADDR_INDEX.get(&context) as usize) < ADDRESSES, BAD_PARAM_ERR, 28);
        // The key for any memory is the kernel's.
        need!(call.uid == 0 || !D::RLKY.is_set(&context), BAD_PARAM_ERR, 29);
        let targets = self.rdma.pairs.iter().filter(|(_, pair)| pair.target.is_some()).count();
        need!(targets < TARGETS_MAX, NO_RES_ERR, 30);
        need!(call.output.len() >= CreateDctOut::BYTES, BAD_OUTP_LEN_ERR, 31);
        let mut as_pair = QpContext::ZERO;
        QpContext::CQN_RCV.set(&mut as_pair, cqn);
        QpContext::COUNTER_SET_ID.set(&mut as_pair, set);
        QpContext::RLKY.set(&mut as_pair, D::RLKY.get(&context));
        let named = D::USER_INDEX.get(&context);
        let user_index = (self.traits.cqe_version > 0 && named != NO_USER_INDEX).then_some(named);
        let ece = Ece::new(self.traits.ece, false, Service::Target, D::ECE.get(&context));
        let mut pair = Qp::new(Make {
            service: Service::Target,
            kernel: call.uid == 0,
            copies: false,
            signs: false,
            domain,
            uar: 0,
            send: None,
            source: Source::Pool(pool),
            user_index,
            context: as_pair,
            ece,
        });
        let class = match D::TCLASS.get(&context) as u8 {
            0 => (D::DSCP.get(&context) << 2 | D::ECN.get(&context)) as u8,
            class => class,
        };
        pair.path = Path {
            own: D::MY_ADDR_INDEX.get(&context) as u8,
            hop_limit: D::HOP_LIMIT.get(&context) as u8,
            class,
            flow_label: D::FLOW_LABEL.get(&context),
            priority: D::ETH_PRIO.get(&context) as u8,
            second,
            ..Path::default()
        };
        pair.rights = Rights {
            read: D::RRE.is_set(&context),
            write: D::RWE.is_set(&context),
            atomic: D::RAE.is_set(&context),
        };
        pair.mtu = 128 << D::MTU.get(&context);
        pair.log_message_max = caps::LOG_MESSAGE;
        pair.rnr_timer = D::MIN_RNR_NAK.get(&context) as u8;
        pair.in_max = 1 << caps::LOG_READS;
        pair.state = State::Receive;
        pair.target = Some(Box::new(Target::new(D::DC_ACCESS_KEY.get(&context), context)));
        let number = self.rdma.insert(call.uid, pair).ok_or(no(status::NO_RES_ERR, 32))?;
        CreateDctOut::ECE.set(call.output()?, ece.agreed());
        call.answer_number(number)
    }
}
