//! Commands on queue pairs and multicast groups.

use pollux_mlx5_abi::command::group::AttachToMcgIn;
use pollux_mlx5_abi::command::qp::context::{AddressPath, QpContext, optional, receive};
use pollux_mlx5_abi::command::qp::{CreateQpIn, CreateQpOut, QueryQpOut, TransitionIn, TransitionOut};
use pollux_mlx5_abi::command::user::place;
use pollux_mlx5_abi::command::{dct, opcode as op, order, source_port, status};

use super::work::{Place, quantized};
use super::{Call, No, caps, need, no};
use crate::device::bus::Bus;
use crate::device::core::Core;
use crate::device::ring::send::SendRing;
use crate::rdma::dynamic::{FAILED_MAX_LOG, STREAMS_MAX_LOG};
use crate::rdma::ece::{Ece, Settled};
use crate::rdma::path::{self, ADDRESSES};
use crate::rdma::state::{Service, State, transition};
use crate::rdma::{GROUPS_MAX, MEMBERS_MAX, Make, Qp, Source};
use crate::receive::{Kind, PoolKind, WorkRing};

/// A user index that asks for completions of the older form. Source: Linux `drivers/infiniband/hw/mlx5/qp.c`, where
/// `user_index` is set.
pub(super) const NO_USER_INDEX: u32 = 0xff_ffff;

impl Core {
    pub(super) fn pair_command(&mut self, bus: &Bus<'_>, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        if opcode == op::CREATE_QP {
            return self.create_pair(call);
        }
        let number = call.named()?;
        // A target is no queue pair, though their numbers are of one space.
        let is_target = self.rdma.pairs.get(number).is_some_and(|pair| pair.service == Service::Target);
        let owner = self.rdma.pairs.owner(number).filter(|_| !is_target);
        match opcode {
            op::QUERY_QP => {
                need!(call.may_name(owner), BAD_RES_ERR, 16);
                let Some(pair) = self.rdma.pairs.get(number) else { return Ok(()) };
                let mut context = pair.query();
                order::QPC.set(&mut context, self.traits.data_in_order.into());
                QueryQpOut::QPC.set(call.output()?, context);
                QueryQpOut::ECE.set(call.output()?, pair.ece.agreed());
                Ok(())
            }
            op::ATTACH_TO_MCG | op::DETACH_FROM_MCG => self.group_command(opcode, call, number, owner),
            op::DESTROY_QP => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                self.rdma.remove(number);
                self.keys.absent.forget(number);
                Ok(())
            }
            op::TO_RST_QP => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                self.rdma.reset_pair(number);
                self.keys.absent.forget(number);
                Ok(())
            }
            op::TO_ERR_QP => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                self.rdma.fail_pair(number);
                Ok(())
            }
            _ => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                self.change_pair(bus, opcode, call, number)
            }
        }
    }

    fn change_pair(
        &mut self,
        bus: &Bus<'_>,
        opcode: u16,
        call: &mut Call<'_>,
        number: u32,
    ) -> Result<(), No> {
        use QpContext as Q;
        let input: &[u8; TransitionIn::BYTES] = call.input()?;
        let (mask, context) = (TransitionIn::OPT_PARAM_MASK.get(input), TransitionIn::QPC.get(input));
        let Some(pair) = self.rdma.pairs.get(number) else { return Ok(()) };
        let service = pair.service;
        let Some(step) = transition(opcode, service) else { return Err(no(status::BAD_OP_ERR, 17)) };
        need!(pair.state == step.from, BAD_QP_STATE_ERR, 18);
        // Source: rdma-core `providers/mlx5/mlx5.c`, `mlx5_modify_qp_drain_sigerr`.
        let drains = self.traits.signatures && opcode == op::INIT2INIT_QP && service.is_reliable();
        let further = if drains { optional::DRAIN_SIGERR } else { 0 };
        need!(mask & !(step.optional | further) == 0, BAD_PARAM_ERR, 19);
        // The key for any memory is the kernel's, at whatever transition it is asked for.
        need!(call.uid == 0 || !Q::RLKY.is_set(&context), BAD_PARAM_ERR, 31);
        let path = Q::PRIMARY_ADDRESS_PATH.of(&context);
        let port = AddressPath::VHCA_PORT_NUM.get(path);
        let domain = Q::PD.get(&context);
        match step.to {
            State::Init => {
                self.is_second_port(port)?;
                need!(AddressPath::PKEY_INDEX.get(path) == 0, BAD_PARAM_ERR, 21);
            }
            State::Receive => {
                need!(service == Service::Keys || (1..=5).contains(&Q::MTU.get(&context)), BAD_PARAM_ERR, 22);
                if service.is_connected() {
                    self.is_second_port(port)?;
                    need!((AddressPath::SRC_ADDR_INDEX.get(path) as usize) < ADDRESSES, BAD_PARAM_ERR, 23);
                    need!(Q::LOG_RRA_MAX.get(&context) <= caps::LOG_READS, BAD_PARAM_ERR, 24);
                }
            }
            State::Send if step.from == State::Receive => {
                need!(Q::LOG_SRA_MAX.get(&context) <= caps::LOG_READS, BAD_PARAM_ERR, 25);
            }
            _ => {}
        }
        let mut ece = pair.ece;
        // The other two have no field for it. Source: Linux `drivers/infiniband/hw/mlx5/qpc.c`, `modify_qp_mbox_alloc`.
        let has_options = !matches!(opcode, op::SQERR2RTS_QP | op::SQD_RTS_QP | op::RTS2SQD_QP);
        if has_options {
            let asked = ece.ask(TransitionIn::ECE.get(input), service, step.from);
            asked.map_err(|Settled| no(status::BAD_PARAM_ERR, 26))?;
        }
        // The kernel's own queues get their domain late.
        let late = step.from == State::Reset && pair.domain == 0 && call.uid == 0;
        let late = late && self.domains.get(domain).is_some();
        let more = if opcode == op::RTS2RTS_QP { source_port::MORE_PARTS.get(input) } else { 0 };
        let known = match service {
            Service::Initiator => dct::stream::PART,
            _ if service.is_connected() => source_port::PART,
            _ => 0,
        };
        need!(more & !known == 0, BAD_PARAM_ERR, 27);
        let mended = match service {
            Service::Initiator if more & dct::stream::PART != 0 => {
                need!(dct::stream::HAS_MORE.is_set(input), BAD_PARAM_ERR, 28);
                let behind = call.behind::<{ TransitionIn::BYTES }>().first_chunk();
                let Some(behind) = behind else { return Err(no(status::BAD_INP_LEN_ERR, 29)) };
                Some(dct::stream::NUMBER.get(behind) as u16)
            }
            _ => None,
        };
        if let Some(stream) = mended {
            let initiator = self.rdma.pairs.get_mut(number).and_then(|pair| pair.initiator.as_deref_mut());
            // One that works cannot be mended. Source: rdma-core `tests/mlx5_base.py` (v56), `dci_reset_stream_id`, and
            // `providers/mlx5/man/mlx5dv_dci_stream_id_reset.3.md`: of an errored stream.
            need!(initiator.is_some_and(|initiator| initiator.mend(stream)), BAD_PARAM_ERR, 30);
        }
        if let Some(pair) = self.rdma.pairs.get_mut(number) {
            pair.apply(step.to, step.from, &context);
            pair.apply_optional(mask, &context);
            if more & source_port::PART != 0 && service.is_connected() {
                pair.change_source_port(AddressPath::UDP_SPORT.get(Q::PRIMARY_ADDRESS_PATH.of(&context)));
            }
            pair.state = step.to;
            pair.ece = ece;
            if late {
                pair.domain = domain;
            }
        }
        if has_options && call.output.len() >= TransitionOut::BYTES {
            TransitionOut::ECE.set(call.output()?, ece.agreed());
        }
        if step.from == State::Reset
            && let Some(pair) = self.rdma.pairs.get_mut(number)
            && let Err(violation) = pair.at_ready(bus, self.traits.send_record_at_ready)
        {
            self.violations.note(violation);
            if self.strict {
                pair.state = State::Error;
            }
        }
        self.rdma.wake(number);
        Ok(())
    }

    fn group_command(
        &mut self,
        opcode: u16,
        call: &mut Call<'_>,
        number: u32,
        owner: Option<u16>,
    ) -> Result<(), No> {
        let gid = AttachToMcgIn::MULTICAST_GID.get(call.input()?);
        need!(call.may_change(owner), BAD_RES_ERR, 16);
        let datagrams = self.rdma.pairs.get(number).is_some_and(|pair| pair.service == Service::Datagram);
        need!(datagrams && path::is_group(&gid), BAD_PARAM_ERR, 17);
        let groups = self.rdma.groups();
        let at = groups.iter().position(|group| *group == (gid, number));
        if opcode == op::DETACH_FROM_MCG {
            let Some(at) = at else { return Err(no(status::BAD_RES_ERR, 18)) };
            groups.swap_remove(at);
            return Ok(());
        }
        need!(at.is_none(), BAD_PARAM_ERR, 19);
        let members = groups.iter().filter(|(other, _)| *other == gid).count();
        need!(members < MEMBERS_MAX && groups.len() < GROUPS_MAX, NO_RES_ERR, 20);
        groups.push((gid, number));
        Ok(())
    }

    fn create_pair(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use QpContext as Q;
        let input: &[u8; CreateQpIn::BYTES] = call.input()?;
        let context = CreateQpIn::QPC.get(input);
        let Some(service) = Service::of(Q::ST.get(&context)) else {
            return Err(no(status::BAD_PARAM_ERR, 16));
        };
        need!(self.traits.rdma, BAD_OP_ERR, 17);
        need!(!Q::WQ_SIGNATURE.is_set(&context), BAD_PARAM_ERR, 18);
        // The key for any memory is the kernel's, and so is the queue pair that changes keys of all domains.
        need!(call.uid == 0 || !Q::RLKY.is_set(&context), BAD_PARAM_ERR, 53);
        need!(call.uid == 0 || service != Service::Keys, BAD_PARAM_ERR, 54);
        if service == Service::Initiator {
            need!(self.traits.dynamic_connections, BAD_OP_ERR, 32);
            let streams = Q::LOG_NUM_DCI_STREAM_CHANNELS.get(&context) <= STREAMS_MAX_LOG;
            let failed = Q::LOG_NUM_DCI_ERRORED_STREAMS.get(&context) <= FAILED_MAX_LOG;
            need!(streams && failed, BAD_PARAM_ERR, 33);
        }
        let domain = Q::PD.get(&context);
        let late = domain == 0 && call.uid == 0;
        need!(late || call.may_work_in(self.domains.owner(domain)), BAD_RES_ERR, 19);
        let (has_send, uar) = (!Q::NO_SQ.is_set(&context), Q::UAR_PAGE.get(&context));
        need!(!has_send || call.may_name(self.uars.owner(uar)), BAD_RES_ERR, 20);
        for cqn in [Q::CQN_SND.get(&context), Q::CQN_RCV.get(&context)] {
            // A queue that nothing is posted to needs none.
            need!(cqn == 0 || call.may_name(self.completions.queues.owner(cqn)), BAD_RES_ERR, 21);
        }
        let kind = Q::RQ_TYPE.get(&context);
        let pool = Q::SRQN_RMPN_XRQN.get(&context);
        if kind == receive::SRQ {
            need!(call.may_name(self.receivers.pools.owner(pool)), BAD_RES_ERR, 22);
            let found = self.receivers.pools.get(pool).map(|pool| pool.kind);
            let xrc = matches!(found, Some(PoolKind::Xrc { .. }));
            need!(xrc == (service == Service::Xrc) || service != Service::Xrc, BAD_PARAM_ERR, 23);
        }
        if service == Service::Xrc {
            need!(call.may_name(self.xrc_domains.owner(Q::XRCD.get(&context))), BAD_RES_ERR, 24);
        }
        let (log_receive, log_stride) = (Q::LOG_RQ_SIZE.get(&context), Q::LOG_RQ_STRIDE.get(&context) + 4);
        let log_send = Q::LOG_SQ_SIZE.get(&context);
        need!(log_receive <= caps::LOG_WQ && log_send <= caps::LOG_WQ, BAD_PARAM_ERR, 25);
        need!(log_stride <= 9, BAD_PARAM_ERR, 26);
        let own = kind == receive::OWN;
        let receive_bytes = if own { 1_u64 << (log_receive + log_stride) } else { 0 };
        need!(receive_bytes.is_multiple_of(64), BAD_PARAM_ERR, 27);
        let record = if own || has_send {
            let umem = Q::DBR_UMEM_VALID.is_set(&context).then(|| place::QP_RECORD_UMEM.get(&context));
            self.record_at(call, Q::DBR_ADDR.get(&context), umem, 8)?
        } else {
            0
        };
        let by_umem = CreateQpIn::WQ_UMEM_VALID.is_set(input);
        let (umem, umem_offset) = (place::QP_UMEM.get(input), place::QP_OFFSET.get(input));
        let list = call.behind::<{ CreateQpIn::BYTES }>();
        let at = |offset: u64| Place {
            umem: by_umem.then(|| (umem, umem_offset + offset)),
            list,
            log_page: Q::LOG_PAGE_SIZE.get(&context) + 12,
            offset: quantized(Q::PAGE_OFFSET.get(&context), Q::LOG_PAGE_SIZE.get(&context)) + offset,
        };
        need!(umem_offset < 1 << 48, BAD_PARAM_ERR, 28);
        let source = match kind {
            receive::OWN => {
                let ring = self.ring_at(call, &at(0), receive_bytes)?;
                Source::Own(Box::new(WorkRing::new(
                    Kind::Cyclic,
                    None,
                    ring,
                    log_receive as u8,
                    log_stride as u8,
                    record,
                    domain,
                    false,
                )))
            }
            receive::SRQ => Source::Pool(pool),
            receive::NONE => Source::None,
            _ => return Err(no(status::BAD_PARAM_ERR, 29)),
        };
        let send = if has_send {
            let ring = self.ring_at(call, &at(receive_bytes), 64 << log_send)?;
            Some(SendRing::new(ring, log_send as u8, record + 4))
        } else {
            None
        };
        let named = Q::USER_INDEX.get(&context);
        let user_index = (self.traits.cqe_version > 0 && named != NO_USER_INDEX).then_some(named);
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 30);
        // Nothing is agreed on between the ends of dynamic connections.
        let selective = self.traits.selective_repeat && !service.is_dynamic();
        let ece = Ece::new(self.traits.ece, selective, service, CreateQpIn::ECE.get(input));
        let copies = self.traits.copies_memory && matches!(service, Service::Reliable | Service::Initiator);
        let signs = self.traits.signatures && (service.is_connected() || service == Service::Initiator);
        let pair = Qp::new(Make {
            service,
            kernel: call.uid == 0 && Q::FRE.is_set(&context),
            copies,
            signs,
            domain,
            uar,
            send,
            source,
            user_index,
            context,
            ece,
        });
        let number = self.rdma.insert(call.uid, pair).ok_or(no(status::NO_RES_ERR, 31))?;
        CreateQpOut::ECE.set(call.output()?, ece.agreed());
        call.answer_number(number)
    }
}
