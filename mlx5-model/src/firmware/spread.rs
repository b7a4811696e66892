//! Commands on TIRs and tables of queues.

use pollux_mlx5_abi::command::rqt::{CreateRqtIn, ModifyRqtIn, QueryRqtOut, RqtContext};
use pollux_mlx5_abi::command::tir::{
    CreateTirIn, HashFields, ModifyTirIn, QueryTirOut, TirContext, dispatch, hash, hash_field, merge, modify,
    protocol,
};
use pollux_mlx5_abi::command::{opcode as op, status};
use pollux_wire::toeplitz::Toeplitz;

use super::caps::LOG_RQT;
use super::{Call, No, need, no};
use crate::device::core::Core;
use crate::receive::join::{Merge, PERIODS_US};
use crate::steering::{Destination, Dispatch, HashFields as Fields, HashFunction, QueueTable, Tir};

fn fields(word: u32) -> Result<Fields, No> {
    let block = word.to_be_bytes();
    let selected = HashFields::SELECTED_FIELDS.get(&block);
    // No packet here has a security parameters index: selected or not, there is nothing of it to hash.
    let known = hash_field::SRC_IP
        | hash_field::DST_IP
        | hash_field::L4_SPORT
        | hash_field::L4_DPORT
        | hash_field::IPSEC_SPI;
    need!(selected & !known == 0, BAD_PARAM_ERR, 32);
    Ok(Fields {
        ipv6: HashFields::L3_PROT_TYPE.get(&block) == protocol::IPV6,
        udp: HashFields::L4_PROT_TYPE.get(&block) == protocol::UDP,
        selected,
    })
}

impl Core {
    pub(super) fn spread_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        match opcode {
            op::CREATE_RQT | op::MODIFY_RQT | op::QUERY_RQT | op::DESTROY_RQT => {
                self.table_command(opcode, call)
            }
            _ => self.tir_command(opcode, call),
        }
    }

    /// The queues that are listed behind a table's context.
    fn queues(&self, call: &Call<'_>, context: &[u8; 240], list: &[u8]) -> Result<Vec<u32>, No> {
        let count = RqtContext::RQT_ACTUAL_SIZE.get(context) as usize;
        need!(count > 0 && count.is_power_of_two() && count <= 1 << LOG_RQT, BAD_PARAM_ERR, 24);
        need!(list.len() / 4 >= count, BAD_INP_LEN_ERR, 25);
        let queues: Vec<u32> = list
            .as_chunks()
            .0
            .iter()
            .take(count)
            .map(|entry| u32::from_be_bytes(*entry) & 0xff_ffff)
            .collect();
        need!(queues.iter().all(|queue| call.may_name(self.receivers.queues.owner(*queue))), BAD_RES_ERR, 26);
        Ok(queues)
    }

    fn table_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        let number = call.named()?;
        let owner = self.steering.queue_tables.owner(number);
        match opcode {
            op::CREATE_RQT => {
                let context = CreateRqtIn::RQT_CONTEXT.get(call.input()?);
                let most = RqtContext::RQT_MAX_SIZE.get(&context) as usize;
                need!(RqtContext::LIST_Q_TYPE.get(&context) == 0, BAD_PARAM_ERR, 16);
                let queues = self.queues(call, &context, call.behind::<{ CreateRqtIn::BYTES }>())?;
                need!(most <= 1 << LOG_RQT && queues.len() <= most, BAD_PARAM_ERR, 17);
                need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 18);
                let table = QueueTable { queues, most };
                let number =
                    self.steering.queue_tables.insert(call.uid, table).ok_or(no(status::NO_RES_ERR, 19))?;
                call.answer_number(number)
            }
            op::MODIFY_RQT => {
                let input: &[u8; ModifyRqtIn::BYTES] = call.input()?;
                let context = ModifyRqtIn::CTX.get(input);
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                need!(ModifyRqtIn::BITMASK.get(input) == 1, BAD_PARAM_ERR, 17);
                let queues = self.queues(call, &context, call.behind::<{ ModifyRqtIn::BYTES }>())?;
                if let Some(table) = self.steering.queue_tables.get_mut(number) {
                    need!(queues.len() <= table.most, BAD_PARAM_ERR, 18);
                    table.queues = queues;
                }
                Ok(())
            }
            op::QUERY_RQT => {
                need!(call.may_name(owner), BAD_RES_ERR, 16);
                let Some(table) = self.steering.queue_tables.get(number) else { return Ok(()) };
                let context = QueryRqtOut::RQT_CONTEXT.of_mut(call.output()?);
                RqtContext::RQT_MAX_SIZE.set(context, table.most as u32);
                RqtContext::RQT_ACTUAL_SIZE.set(context, table.queues.len() as u32);
                let room = call.output.get_mut(QueryRqtOut::BYTES..).unwrap_or_default();
                for (place, queue) in room.as_chunks_mut::<4>().0.iter_mut().zip(&table.queues) {
                    *place = queue.to_be_bytes();
                }
                Ok(())
            }
            _ => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                let used = self
                    .steering
                    .tirs
                    .iter()
                    .any(|(_, tir)| matches!(tir.dispatch, Dispatch::Table(table) if table == number));
                need!(!used, RES_BUSY, 17);
                self.steering.queue_tables.remove(number);
                Ok(())
            }
        }
    }

    fn tir_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        let number = call.named()?;
        let owner = self.steering.tirs.owner(number);
        match opcode {
            op::CREATE_TIR => {
                let context = CreateTirIn::CTX.get(call.input()?);
                let tir = self.tir(call, &context)?;
                need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 40);
                let number = self.steering.tirs.insert(call.uid, tir).ok_or(no(status::NO_RES_ERR, 41))?;
                call.answer_number(number)
            }
            op::MODIFY_TIR => {
                let input: &[u8; ModifyTirIn::BYTES] = call.input()?;
                let (changes, mask) = (ModifyTirIn::CTX.get(input), ModifyTirIn::BITMASK.get(input));
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                need!(
                    mask & !(modify::LRO | modify::INDIRECT_TABLE | modify::HASH | modify::SELF_LB_EN) == 0,
                    BAD_PARAM_ERR,
                    17
                );
                let Some(tir) = self.steering.tirs.get(number) else { return Ok(()) };
                let mut context = tir.context;
                use TirContext as T;
                if mask & modify::LRO != 0 {
                    for field in
                        [T::LRO_TIMEOUT_PERIOD_USECS, T::PACKET_MERGE_MASK, T::LRO_MAX_IP_PAYLOAD_SIZE]
                    {
                        field.set(&mut context, field.get(&changes));
                    }
                }
                if mask & modify::INDIRECT_TABLE != 0 {
                    T::INDIRECT_TABLE.set(&mut context, T::INDIRECT_TABLE.get(&changes));
                }
                if mask & modify::HASH != 0 {
                    for field in [
                        T::RX_HASH_FN,
                        T::RX_HASH_SYMMETRIC,
                        T::RX_HASH_FIELD_SELECTOR_OUTER,
                        T::RX_HASH_FIELD_SELECTOR_INNER,
                    ] {
                        field.set(&mut context, field.get(&changes));
                    }
                    T::RX_HASH_TOEPLITZ_KEY.set(&mut context, T::RX_HASH_TOEPLITZ_KEY.get(&changes));
                }
                if mask & modify::SELF_LB_EN != 0 {
                    T::SELF_LB_BLOCK.set(&mut context, T::SELF_LB_BLOCK.get(&changes));
                }
                let changed = self.tir(call, &context)?;
                self.receivers.joins.end(number);
                if let Some(tir) = self.steering.tirs.get_mut(number) {
                    *tir = changed;
                }
                Ok(())
            }
            op::QUERY_TIR => {
                need!(call.may_name(owner), BAD_RES_ERR, 16);
                let context = self.steering.tirs.get(number).map_or([0; 240], |tir| tir.context);
                QueryTirOut::TIR_CONTEXT.set(call.output()?, context);
                Ok(())
            }
            _ => {
                need!(call.may_change(owner), BAD_RES_ERR, 16);
                need!(!self.steering.is_destination(Destination::Tir(number)), RES_BUSY, 17);
                self.receivers.joins.end(number);
                self.steering.tirs.remove(number);
                Ok(())
            }
        }
    }

    fn tir(&self, call: &Call<'_>, context: &[u8; 240]) -> Result<Tir, No> {
        use TirContext as T;
        let transport_domain = T::TRANSPORT_DOMAIN.get(context);
        // Domain 0 is everybody's: DPDK's driver names it where it has asked for none. Source: DPDK
        // `drivers/net/mlx5/mlx5_devx.c`, `mlx5_devx_tir_attr_set`, with `tdn` never set.
        let owner = self.transport_domains.owner(transport_domain);
        need!(transport_domain == 0 || call.may_name(owner), BAD_RES_ERR, 33);
        let merged = T::PACKET_MERGE_MASK.get(context);
        let known = if self.traits.lro { merge::IPV4_LRO | merge::IPV6_LRO } else { 0 };
        need!(merged & !known == 0, BAD_PARAM_ERR, 34);
        let bytes_max = T::LRO_MAX_IP_PAYLOAD_SIZE.get(context) as usize * merge::SIZE_UNIT;
        need!(merged == 0 || bytes_max > 0, BAD_PARAM_ERR, 42);
        let timeout_us = T::LRO_TIMEOUT_PERIOD_USECS.get(context);
        need!(merged == 0 || PERIODS_US.contains(&timeout_us), BAD_PARAM_ERR, 43);
        let merge = (merged != 0).then_some(Merge {
            ipv4: merged & merge::IPV4_LRO != 0,
            ipv6: merged & merge::IPV6_LRO != 0,
            timeout_us,
            bytes_max,
        });
        let tunneled = T::TUNNELED_OFFLOAD_EN.is_set(context);
        need!(!tunneled || self.tunnels.any(), BAD_PARAM_ERR, 35);
        let (dispatch, function) = match T::DISP_TYPE.get(context) {
            dispatch::DIRECT => {
                let queue = T::INLINE_RQN.get(context);
                need!(call.may_name(self.receivers.queues.owner(queue)), BAD_RES_ERR, 36);
                (Dispatch::Queue(queue), HashFunction::None)
            }
            dispatch::INDIRECT => {
                let table = T::INDIRECT_TABLE.get(context);
                need!(call.may_name(self.steering.queue_tables.owner(table)), BAD_RES_ERR, 37);
                // No function at all is for DIRECT alone. Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en/tir.c`,
                // `mlx5e_tir_builder_build_inline`; every TIR over a table of Linux, mlx5_ib and DPDK's driver has one.
                let function = match T::RX_HASH_FN.get(context) {
                    // Linux tells `ethtool -X hfunc xor` that it is done whatever the firmware says: it has to be there.
                    // Source: Linux `drivers/net/ethernet/mellanox/mlx5/core/en/rss.c`, `mlx5e_rss_set_rxfh`.
                    hash::INVERTED_XOR8 => HashFunction::InvertedXor8,
                    hash::TOEPLITZ => Toeplitz::new(T::RX_HASH_TOEPLITZ_KEY.of(context))
                        .map_or(HashFunction::None, HashFunction::Toeplitz),
                    _ => return Err(no(status::BAD_PARAM_ERR, 38)),
                };
                (Dispatch::Table(table), function)
            }
            _ => return Err(no(status::BAD_PARAM_ERR, 39)),
        };
        Ok(Tir {
            dispatch,
            function,
            symmetric: T::RX_HASH_SYMMETRIC.is_set(context),
            outer: fields(T::RX_HASH_FIELD_SELECTOR_OUTER.get(context))?,
            inner: fields(T::RX_HASH_FIELD_SELECTOR_INNER.get(context))?,
            tunneled,
            merge,
            context: *context,
        })
    }
}
