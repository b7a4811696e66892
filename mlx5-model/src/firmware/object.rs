//! Objects that are a number and little more: UARs, domains, user contexts, umems, TISes, sets of counters.

use pollux_mlx5_abi::caps::general::GeneralCaps;
use pollux_mlx5_abi::command::counter::{QueryQCounterIn, QueryQCounterOut};
use pollux_mlx5_abi::command::tir::{CreateTisIn, ModifyTisIn, QueryTisOut, TisContext};
use pollux_mlx5_abi::command::user::{CreateUctxIn, CreateUmemIn, UmemContext};
use pollux_mlx5_abi::command::{opcode as op, pages, status};

use super::{Call, No, need, no};
use crate::device::core::Core;
use crate::device::object::{Tis, Umem};
use crate::device::table::Table;
use crate::rdma::state::Service;
use crate::receive::{Pool, PoolKind, QueueCounters};
use crate::send;

/// Pages of a umem at most: 1 TiB of 4 KiB pages would not be a command any more.
const UMEM_PAGES_MAX: u64 = 1 << 20;

fn insert<T>(table: &mut Table<T>, call: &mut Call<'_>, object: T) -> Result<u32, No> {
    call.output::<16>()?;
    let number = table.insert(call.uid, object).ok_or(no(status::NO_RES_ERR, 8))?;
    call.answer_number(number)?;
    Ok(number)
}

fn remove<T>(table: &mut Table<T>, call: &Call<'_>, number: u32) -> Result<(), No> {
    need!(call.may_change(table.owner(number)), BAD_RES_ERR, 9);
    table.remove(number);
    Ok(())
}

impl Core {
    pub(super) fn object_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        let named = call.named()?;
        match opcode {
            op::ALLOC_UAR => insert(&mut self.uars, call, ()).map(drop),
            op::DEALLOC_UAR => {
                need!(call.may_change(self.uars.owner(named)), BAD_RES_ERR, 9);
                let used = self.senders.queues.iter().any(|(_, queue)| queue.uar == named)
                    || self.rdma.pairs.iter().any(|(_, pair)| pair.send.is_some() && pair.uar == named)
                    || self.completions.queues.iter().any(|(_, queue)| queue.uar == named)
                    || self.events.queues.iter().any(|(_, queue)| queue.uar == named);
                need!(!used, RES_BUSY, 16);
                self.turns.forget(named);
                self.order.forget(named);
                remove(&mut self.uars, call, named)
            }
            op::ALLOC_PD => insert(&mut self.domains, call, ()).map(drop),
            op::DEALLOC_PD => {
                need!(call.may_change(self.domains.owner(named)), BAD_RES_ERR, 9);
                let used = self.senders.queues.iter().any(|(_, queue)| queue.domain == named)
                    || self.keys.table().iter().any(|(_, key)| key.domain == named)
                    || self.keys.signatures.variables.iter().any(|(_, variable)| variable.domain == named)
                    || self.receivers.uses_domain(named)
                    || self.rdma.pairs.iter().any(|(_, pair)| pair.domain == named);
                need!(!used, RES_BUSY, 16);
                remove(&mut self.domains, call, named)
            }
            op::ALLOC_TRANSPORT_DOMAIN => insert(&mut self.transport_domains, call, ()).map(drop),
            op::DEALLOC_TRANSPORT_DOMAIN => {
                need!(call.may_change(self.transport_domains.owner(named)), BAD_RES_ERR, 9);
                let used = self.tises.iter().any(|(_, tis)| tis.transport_domain == named);
                need!(!used, RES_BUSY, 16);
                remove(&mut self.transport_domains, call, named)
            }
            op::ALLOC_XRCD => insert(&mut self.xrc_domains, call, ()).map(drop),
            op::DEALLOC_XRCD => {
                need!(call.may_change(self.xrc_domains.owner(named)), BAD_RES_ERR, 9);
                let shared =
                    |pool: &Pool| matches!(pool.kind, PoolKind::Xrc { domain, .. } if domain == named);
                let used = self.receivers.pools.iter().any(|(_, pool)| shared(pool))
                    || self
                        .rdma
                        .pairs
                        .iter()
                        .any(|(_, pair)| pair.service == Service::Xrc && pair.xrc_domain == named);
                need!(!used, RES_BUSY, 16);
                remove(&mut self.xrc_domains, call, named)
            }
            op::CREATE_UCTX => {
                let wanted = CreateUctxIn::CAP.get(call.input()?);
                need!(self.traits.devx, BAD_OP_ERR, 16);
                let offered = self.function.caps.get(&0).and_then(|block| block.first_chunk::<256>());
                let offered = offered.map_or(0, |block| GeneralCaps::UCTX_CAP.get(block));
                need!(call.uid == 0 && wanted & !offered == 0, BAD_PARAM_ERR, 17);
                insert(&mut self.users, call, wanted).map(drop)
            }
            op::DESTROY_UCTX => {
                let uid = named as u16;
                need!(call.uid == 0 && self.users.get(uid.into()).is_some(), BAD_RES_ERR, 16);
                self.forget_objects_of(uid);
                self.users.remove(uid.into());
                Ok(())
            }
            op::CREATE_UMEM => self.create_umem(call),
            op::DESTROY_UMEM => remove(&mut self.umems, call, named),
            op::CREATE_TIS | op::MODIFY_TIS | op::DESTROY_TIS | op::QUERY_TIS => {
                self.tis_command(opcode, call)
            }
            _ => self.counter_command(opcode, call),
        }
    }

    fn create_umem(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        need!(self.traits.devx, BAD_OP_ERR, 16);
        let umem = CreateUmemIn::UMEM.get(call.input()?);
        let count = UmemContext::NUM_OF_MTT.get(&umem);
        let list = call.behind::<{ CreateUmemIn::BYTES }>();
        need!(count > 0 && count <= UMEM_PAGES_MAX, BAD_PARAM_ERR, 17);
        need!(list.len() as u64 / 8 >= count, BAD_INP_LEN_ERR, 18);
        let log_page = UmemContext::LOG_PAGE_SIZE.get(&umem) + 12;
        let offset = u64::from(UmemContext::PAGE_OFFSET.get(&umem));
        need!(offset < 1 << log_page, BAD_PARAM_ERR, 19);
        // The low bits of an address tell the host's rights (bit 0 reading, bit 1 writing) and are not part of it.
        let list: Vec<u64> = pages(list).take(count as usize).map(|page| page & !0xfff).collect();
        insert(&mut self.umems, call, Umem { log_page: log_page as u8, offset, pages: list }).map(drop)
    }

    fn tis_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        let named = call.named()?;
        match opcode {
            op::CREATE_TIS => {
                let context = CreateTisIn::CTX.get(call.input()?);
                let transport_domain = TisContext::TRANSPORT_DOMAIN.get(&context);
                need!(call.may_name(self.transport_domains.owner(transport_domain)), BAD_RES_ERR, 16);
                insert(&mut self.tises, call, Tis { transport_domain, context }).map(drop)
            }
            op::MODIFY_TIS => {
                let context = ModifyTisIn::CTX.get(call.input()?);
                need!(call.may_change(self.tises.owner(named)), BAD_RES_ERR, 16);
                if let Some(tis) = self.tises.get_mut(named) {
                    let (old, new) = (TisContext::PRIO.get(&tis.context), TisContext::PRIO.get(&context));
                    TisContext::PRIO.set(&mut tis.context, new);
                    let its = |queue: &send::Queue| old != new && queue.tis == Some(named);
                    let changed = self.senders.queues.iter().filter(|(_, queue)| its(queue)).count();
                    self.senders.priority_changes += changed as u64;
                }
                Ok(())
            }
            op::QUERY_TIS => {
                need!(call.may_name(self.tises.owner(named)), BAD_RES_ERR, 16);
                let context = self.tises.get(named).map_or([0; 160], |tis| tis.context);
                QueryTisOut::TIS_CONTEXT.set(call.output()?, context);
                Ok(())
            }
            _ => {
                need!(call.may_change(self.tises.owner(named)), BAD_RES_ERR, 9);
                need!(self.senders.queues.iter().all(|(_, queue)| queue.tis != Some(named)), RES_BUSY, 17);
                remove(&mut self.tises, call, named)
            }
        }
    }

    fn counter_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        match opcode {
            op::ALLOC_Q_COUNTER => {
                insert(&mut self.receivers.counters, call, QueueCounters::default()).map(drop)
            }
            op::DEALLOC_Q_COUNTER => {
                let set = call.named()? & 0xff;
                remove(&mut self.receivers.counters, call, set)
            }
            _ => {
                let query: &[u8; QueryQCounterIn::BYTES] = call.input()?;
                let (set, clear) =
                    (QueryQCounterIn::COUNTER_SET_ID.get(query), QueryQCounterIn::CLEAR.is_set(query));
                need!(call.may_name(self.receivers.counters.owner(set)), BAD_RES_ERR, 16);
                let Some(counters) = self.receivers.counters.get_mut(set) else { return Ok(()) };
                let values = *counters;
                if clear {
                    *counters = QueueCounters::default();
                }
                let out = call.output()?;
                // Counters of 32 bits, which run over.
                QueryQCounterOut::OUT_OF_BUFFER.set(out, values.out_of_buffer as u32);
                QueryQCounterOut::RESP_LOCAL_LENGTH_ERROR.set(out, values.length_errors as u32);
                QueryQCounterOut::RESP_LOCAL_PROTECTION.set(out, values.protection_errors as u32);
                QueryQCounterOut::RESP_CQE_ERROR
                    .set(out, (values.length_errors + values.protection_errors) as u32);
                QueryQCounterOut::RESP_CQE_FLUSH_ERROR.set(out, values.flushed as u32);
                QueryQCounterOut::RX_WRITE_REQUESTS.set(out, values.writes as u32);
                QueryQCounterOut::RX_READ_REQUESTS.set(out, values.reads as u32);
                QueryQCounterOut::RX_ATOMIC_REQUESTS.set(out, values.atomics as u32);
                QueryQCounterOut::RX_DCT_CONNECT.set(out, values.connects as u32);
                QueryQCounterOut::OUT_OF_SEQUENCE.set(out, values.out_of_sequence as u32);
                QueryQCounterOut::DUPLICATE_REQUEST.set(out, values.duplicates as u32);
                QueryQCounterOut::RNR_NAK_RETRY_ERR.set(out, values.not_ready as u32);
                QueryQCounterOut::PACKET_SEQ_ERR.set(out, values.sequence_naks as u32);
                QueryQCounterOut::IMPLIED_NAK_SEQ_ERR.set(out, values.implied_naks as u32);
                QueryQCounterOut::LOCAL_ACK_TIMEOUT_ERR.set(out, values.timeouts as u32);
                QueryQCounterOut::REQ_CQE_ERROR.set(out, values.request_errors as u32);
                QueryQCounterOut::RESP_REMOTE_ACCESS_ERRORS.set(out, values.remote_access_errors as u32);
                Ok(())
            }
        }
    }

    /// All objects of a user context end with it.
    fn forget_objects_of(&mut self, uid: u16) {
        self.steering.forget(uid);
        for pair in self.rdma.pairs.owned_by(uid) {
            self.keys.absent.forget(pair);
        }
        self.rdma.forget(uid);
        self.lent.forget(uid);
        macro_rules! forget {
            ($($table:expr),*) => { $(for number in $table.owned_by(uid) { $table.remove(number); })* };
        }
        forget!(
            self.senders.queues,
            self.receivers.queues,
            self.receivers.pools,
            self.receivers.counters,
            self.completions.queues,
            self.events.queues,
            self.keys,
            self.keys.signatures.variables,
            self.tises,
            self.umems,
            self.domains,
            self.transport_domains,
            self.reserved_pairs,
            self.xrc_domains,
            self.uars
        );
    }

    /// All objects end: the function is torn down.
    pub(super) fn forget_objects(&mut self) {
        for (number, _) in self.users.iter().map(|(number, _)| (number, ())).collect::<Vec<_>>() {
            self.forget_objects_of(number as u16);
            self.users.remove(number);
        }
        self.forget_objects_of(0);
    }
}
