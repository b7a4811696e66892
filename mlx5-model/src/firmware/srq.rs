//! Commands on pools that queue pairs take receive entries from: RMP, SRQ, XRC SRQ.

use pollux_mlx5_abi::command::rq::{CreateRmpIn, ModifyRmpIn, QueryRmpOut, RmpContext};
use pollux_mlx5_abi::command::srq::{
    ArmRqIn, CreateSrqIn, CreateXrcSrqIn, QuerySrqOut, QueryXrcSrqOut, SrqContext, XrcSrqContext,
};
use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::wq::WorkQueue;
use pollux_mlx5_abi::command::{opcode as op, status};

use super::qp::NO_USER_INDEX;
use super::work::{Place, quantized};
use super::{Call, No, caps, need, no};
use crate::device::bus::Bus;
use crate::device::core::Core;
use crate::receive::{Kind, Pool, PoolKind, Source, WorkRing};

/// State of a shared receive queue that failed. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_SRQC_STATE_ERROR`.
const FAILED: u32 = 1;

impl Core {
    pub(super) fn pool_command(
        &mut self,
        bus: &mut Bus<'_>,
        opcode: u16,
        call: &mut Call<'_>,
    ) -> Result<(), No> {
        match opcode {
            op::CREATE_RMP => return self.create_memory_pool(call),
            op::CREATE_SRQ => return self.create_shared(call),
            op::CREATE_XRC_SRQ => return self.create_xrc(call),
            _ => {}
        }
        let number = call.named()?;
        let owner = self.receivers.pools.owner(number);
        let Some(kind) = self.receivers.pools.get(number).map(|pool| pool.kind) else {
            return Err(no(status::BAD_RES_ERR, 16));
        };
        let fits = match opcode {
            op::QUERY_RMP | op::MODIFY_RMP | op::DESTROY_RMP => kind == PoolKind::Memory,
            op::QUERY_SRQ | op::ARM_RQ | op::DESTROY_SRQ => kind == PoolKind::Shared,
            _ => matches!(kind, PoolKind::Xrc { .. }),
        };
        need!(fits, BAD_RES_ERR, 17);
        match opcode {
            op::QUERY_RMP | op::QUERY_SRQ | op::QUERY_XRC_SRQ => {
                need!(call.may_name(owner), BAD_RES_ERR, 18);
                self.query_pool(opcode, call, number)
            }
            op::MODIFY_RMP | op::ARM_RQ | op::ARM_XRC_SRQ => {
                need!(call.may_change(owner), BAD_RES_ERR, 18);
                let limit = if opcode == op::MODIFY_RMP {
                    let input: &[u8; ModifyRmpIn::BYTES] = call.input()?;
                    if !ModifyRmpIn::BITMASK_LWM.is_set(input) {
                        return Ok(());
                    }
                    WorkQueue::LWM.get(RmpContext::WQ.of(ModifyRmpIn::CTX.of(input)))
                } else {
                    ArmRqIn::LWM.get(call.input()?)
                };
                let Some(pool) = self.receivers.pools.get_mut(number) else { return Ok(()) };
                need!(limit <= 1 << pool.ring.log_entries, BAD_PARAM_ERR, 19);
                pool.arm(bus, &mut self.events, limit as u16);
                Ok(())
            }
            _ => {
                need!(call.may_change(owner), BAD_RES_ERR, 18);
                let used =
                    self.receivers.queues.iter().any(|(_, queue)| queue.source == Source::Pool(number))
                        || self.rdma.pairs.iter().any(|(_, pair)| pair.pool() == Some(number));
                need!(!used, RES_BUSY, 20);
                self.receivers.pools.remove(number);
                Ok(())
            }
        }
    }

    fn insert_pool(
        &mut self,
        call: &mut Call<'_>,
        kind: PoolKind,
        ring: WorkRing,
        limit: u32,
    ) -> Result<(), No> {
        need!(limit <= 1 << ring.log_entries, BAD_PARAM_ERR, 30);
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 31);
        let pool = Pool::new(kind, ring, limit as u16);
        let number = self.receivers.pools.insert(call.uid, pool).ok_or(no(status::NO_RES_ERR, 32))?;
        if let Some(pool) = self.receivers.pools.get_mut(number) {
            (pool.number, pool.ring.number) = (number, number);
        }
        call.answer_number(number)
    }

    fn create_memory_pool(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        let context = CreateRmpIn::CTX.get(call.input()?);
        // A pool has two states; it is made ready. Source: Linux `MLX5_RMPC_STATE_RDY`.
        need!(RmpContext::STATE.get(&context) == 1, BAD_PARAM_ERR, 16);
        let work = RmpContext::WQ.of(&context);
        let basic = RmpContext::BASIC_CYCLIC_RCV_WQE.is_set(&context);
        let ring = self.pool_ring(call, work, call.behind::<{ CreateRmpIn::BYTES }>(), basic)?;
        self.insert_pool(call, PoolKind::Memory, ring, WorkQueue::LWM.get(work))
    }

    fn create_shared(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use SrqContext as S;
        let context = CreateSrqIn::SRQ_CONTEXT_ENTRY.get(call.input()?);
        need!(!S::WQ_SIGNATURE.is_set(&context), BAD_PARAM_ERR, 21);
        let place = Place {
            umem: None,
            list: call.behind::<{ CreateSrqIn::BYTES }>(),
            log_page: S::LOG_PAGE_SIZE.get(&context) + 12,
            offset: quantized(S::PAGE_OFFSET.get(&context), S::LOG_PAGE_SIZE.get(&context)),
        };
        let record = self.record_at(call, S::DBR_ADDR.get(&context), None, 8)?;
        let (log, log_stride) = (S::LOG_SRQ_SIZE.get(&context), S::LOG_RQ_STRIDE.get(&context) + 4);
        let ring = self.linked_ring(call, &place, log, log_stride, S::PD.get(&context), record)?;
        self.insert_pool(call, PoolKind::Shared, ring, S::LWM.get(&context))
    }

    fn create_xrc(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use XrcSrqContext as X;
        let input: &[u8; CreateXrcSrqIn::BYTES] = call.input()?;
        let context = CreateXrcSrqIn::XRC_SRQ_CONTEXT_ENTRY.get(input);
        need!(!X::WQ_SIGNATURE.is_set(&context), BAD_PARAM_ERR, 21);
        let (domain, cqn) = (X::XRCD.get(&context), X::CQN.get(&context));
        need!(call.may_name(self.xrc_domains.owner(domain)), BAD_RES_ERR, 22);
        need!(cqn == 0 || call.may_name(self.completions.queues.owner(cqn)), BAD_RES_ERR, 23);
        let by_umem = CreateXrcSrqIn::XRC_SRQ_UMEM_VALID.is_set(input);
        let place = Place {
            umem: by_umem.then(|| (place::XRC_SRQ_UMEM.get(input), place::XRC_SRQ_OFFSET.get(input))),
            list: call.behind::<{ CreateXrcSrqIn::BYTES }>(),
            log_page: X::LOG_PAGE_SIZE.get(&context) + 12,
            offset: quantized(X::PAGE_OFFSET.get(&context), X::LOG_PAGE_SIZE.get(&context)),
        };
        let umem = X::DBR_UMEM_VALID.is_set(&context).then(|| place::XRC_SRQ_RECORD_UMEM.get(&context));
        let record = self.record_at(call, X::DBR_ADDR_4.get(&context) << 2, umem, 8)?;
        let (log, log_stride) = (X::LOG_XRC_SRQ_SIZE.get(&context), X::LOG_RQ_STRIDE.get(&context) + 4);
        let ring = self.linked_ring(call, &place, log, log_stride, X::PD.get(&context), record)?;
        // Completions of version 0 know no names.
        let named = X::USER_INDEX.get(&context);
        let user_index = (self.traits.cqe_version > 0 && named != NO_USER_INDEX).then_some(named);
        self.insert_pool(call, PoolKind::Xrc { domain, cqn, user_index }, ring, X::LWM.get(&context))
    }

    fn linked_ring(
        &self,
        call: &Call<'_>,
        place: &Place<'_>,
        log: u32,
        log_bytes: u32,
        domain: u32,
        record: u64,
    ) -> Result<WorkRing, No> {
        need!(log <= caps::LOG_WQ, BAD_PARAM_ERR, 24);
        need!((5..=9).contains(&log_bytes), BAD_PARAM_ERR, 25);
        need!(call.may_work_in(self.domains.owner(domain)), BAD_RES_ERR, 26);
        let ring = self.ring_at(call, place, 1 << (log + log_bytes))?;
        Ok(WorkRing::new(Kind::Linked, None, ring, log as u8, log_bytes as u8, record, domain, false))
    }

    fn query_pool(&mut self, opcode: u16, call: &mut Call<'_>, number: u32) -> Result<(), No> {
        let Some(pool) = self.receivers.pools.get(number) else { return Ok(()) };
        let (ring, limit) = (&pool.ring, u32::from(pool.limit));
        let (log, log_bytes) = (u32::from(ring.log_entries), u32::from(ring.log_entry_bytes));
        match (opcode, pool.kind) {
            (op::QUERY_RMP, _) => {
                let mut context = RmpContext::ZERO;
                // Ready, or in error. Source: Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_RMPC_STATE_*`.
                RmpContext::STATE.set(&mut context, if pool.dead { 3 } else { 1 });
                let work = RmpContext::WQ.of_mut(&mut context);
                WorkQueue::LOG_WQ_SZ.set(work, log);
                WorkQueue::LOG_WQ_STRIDE.set(work, log_bytes);
                WorkQueue::PD.set(work, ring.domain);
                WorkQueue::LWM.set(work, limit);
                WorkQueue::DBR_ADDR.set(work, ring.record);
                WorkQueue::HW_COUNTER.set(work, ring.next.into());
                QueryRmpOut::RMP_CONTEXT.set(call.output()?, context);
            }
            (_, PoolKind::Xrc { domain, cqn, user_index }) => {
                use XrcSrqContext as X;
                let mut context = X::ZERO;
                X::STATE.set(&mut context, if pool.dead { FAILED } else { 0 });
                X::LOG_XRC_SRQ_SIZE.set(&mut context, log);
                X::LOG_RQ_STRIDE.set(&mut context, log_bytes - 4);
                X::XRCD.set(&mut context, domain);
                X::CQN.set(&mut context, cqn);
                X::USER_INDEX.set(&mut context, user_index.unwrap_or(NO_USER_INDEX));
                X::PD.set(&mut context, ring.domain);
                X::LWM.set(&mut context, limit);
                X::DBR_ADDR_4.set(&mut context, ring.record >> 2);
                QueryXrcSrqOut::XRC_SRQ_CONTEXT_ENTRY.set(call.output()?, context);
            }
            _ => {
                use SrqContext as S;
                let mut context = S::ZERO;
                S::STATE.set(&mut context, if pool.dead { FAILED } else { 0 });
                S::LOG_SRQ_SIZE.set(&mut context, log);
                S::LOG_RQ_STRIDE.set(&mut context, log_bytes - 4);
                S::PD.set(&mut context, ring.domain);
                S::LWM.set(&mut context, limit);
                S::DBR_ADDR.set(&mut context, ring.record);
                QuerySrqOut::SRQ_CONTEXT_ENTRY.set(call.output()?, context);
            }
        }
        Ok(())
    }
}
