//! Commands on steering: tables, groups, entries, counters.

use pollux_mlx5_abi::command::counter::{
    AllocFlowCounterIn, DeallocFlowCounterIn, QueryFlowCounterIn, QueryFlowCounterOut, TrafficCounter,
};
use pollux_mlx5_abi::command::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, Destination as DestinationBlock, DestroyFlowGroupIn,
    DestroyFlowTableIn, FlowContext, FlowCounter, FlowTableContext, ModifyFlowTableIn, QueryFlowEntryIn,
    QueryFlowEntryOut, QueryFlowTableIn, QueryFlowTableOut, SetFlowEntryIn, SetFlowTableRootIn, action,
    destination, modify, table,
};
use pollux_mlx5_abi::command::matching::{MatchHeaders, MatchMisc, MatchParameters};
use pollux_mlx5_abi::command::{opcode as op, status};

use super::caps::LOG_FT;
use super::{Call, No, need, no};
use crate::card::Traits;
use crate::device::core::Core;
use crate::steering::rewrite::Reformat;
use crate::steering::{
    Allows, Changes, Destination, ENTRIES_MAX, Entry, FlowTable, GROUPS_HELD_MAX, GROUPS_MAX, LEVELS, Mask,
    Miss, Way,
};

/// `table_miss_action`: to the table that is named. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `MLX5_FLOW_TABLE_MISS_ACTION_FWD`.
const MISS_FORWARD: u32 = 1;
/// Destinations and counters of one entry at most: `log_max_destination`.
const LIST_MAX: usize = 64;
/// Counters in one bulk at most: 128 times the bits of `flow_counter_bulk_alloc`.
const BULK_UNIT: usize = 128;

/// What this device does with packets.
const ACTIONS: u32 = action::ALLOW
    | action::DROP
    | action::FWD_DEST
    | action::COUNT
    | action::DECAP
    | action::MOD_HDR
    | action::PACKET_REFORMAT;

/// Which packets a table of that type looks at.
pub(super) fn way(kind: u32, traits: &Traits) -> Option<Way> {
    match kind {
        table::NIC_RX => Some(Way::In),
        table::NIC_TX => Some(Way::Out),
        table::SNIFFER_RX if traits.sniffer => Some(Way::CopyIn),
        table::SNIFFER_TX if traits.sniffer => Some(Way::CopyOut),
        _ => None,
    }
}

impl Core {
    pub(super) fn flow_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        match opcode {
            op::CREATE_FLOW_TABLE => self.create_flow_table(call),
            op::MODIFY_FLOW_TABLE => {
                let input: &[u8; ModifyFlowTableIn::BYTES] = call.input()?;
                let (number, fields) = (
                    ModifyFlowTableIn::TABLE_ID.get(input),
                    ModifyFlowTableIn::MODIFY_FIELD_SELECT.get(input),
                );
                let context = ModifyFlowTableIn::FLOW_TABLE_CONTEXT.get(input);
                need!(call.may_change(self.steering.tables.owner(number)), BAD_RES_ERR, 16);
                need!(fields == 1, BAD_PARAM_ERR, 17);
                let (way, level) =
                    self.steering.tables.get(number).map_or((Way::In, 0), |table| (table.way, table.level));
                let miss = self.miss(call, &context, way, level)?;
                if let Some(table) = self.steering.tables.get_mut(number) {
                    table.miss = miss;
                }
                Ok(())
            }
            op::QUERY_FLOW_TABLE => {
                let number = QueryFlowTableIn::TABLE_ID.get(call.input()?);
                need!(call.may_name(self.steering.tables.owner(number)), BAD_RES_ERR, 16);
                let Some(table) = self.steering.tables.get(number) else { return Ok(()) };
                let context = QueryFlowTableOut::FLOW_TABLE_CONTEXT.of_mut(call.output()?);
                FlowTableContext::LEVEL.set(context, table.level);
                FlowTableContext::LOG_SIZE.set(context, table.log_size);
                FlowTableContext::DECAP_EN.set(context, table.allows.decapsulate.into());
                FlowTableContext::REFORMAT_EN.set(context, table.allows.reformat.into());
                if let Miss::Table(other) = table.miss {
                    FlowTableContext::TABLE_MISS_ACTION.set(context, MISS_FORWARD);
                    FlowTableContext::TABLE_MISS_ID.set(context, other);
                }
                Ok(())
            }
            op::DESTROY_FLOW_TABLE => {
                let number = DestroyFlowTableIn::TABLE_ID.get(call.input()?);
                need!(call.may_change(self.steering.tables.owner(number)), BAD_RES_ERR, 16);
                let empty = self.steering.tables.get(number).is_some_and(|table| table.groups().is_empty());
                // A root may go: nothing is let in then.
                let named = self.steering.is_destination(Destination::Table(number))
                    || self.steering.tables.iter().any(|(_, table)| table.miss == Miss::Table(number));
                need!(empty && !named, RES_BUSY, 17);
                self.steering.forget_root(number);
                self.steering.tables.remove(number);
                Ok(())
            }
            op::SET_FLOW_TABLE_ROOT => {
                let input: &[u8; SetFlowTableRootIn::BYTES] = call.input()?;
                let number = SetFlowTableRootIn::TABLE_ID.get(input);
                need!(call.uid == 0, BAD_RES_ERR, 16);
                let way = way(SetFlowTableRootIn::TABLE_TYPE.get(input), &self.traits)
                    .ok_or(no(status::BAD_PARAM_ERR, 17))?;
                need!(
                    self.steering.tables.get(number).is_some_and(|table| table.way == way),
                    BAD_RES_ERR,
                    18
                );
                let root = self.steering.root_mut(way);
                match call.op_mod {
                    0 => *root = Some(number),
                    1 if *root == Some(number) => *root = None,
                    1 => {}
                    _ => return Err(no(status::BAD_PARAM_ERR, 19)),
                }
                Ok(())
            }
            op::CREATE_FLOW_GROUP => self.create_flow_group(call),
            op::DESTROY_FLOW_GROUP => {
                let input: &[u8; DestroyFlowGroupIn::BYTES] = call.input()?;
                let (number, group) =
                    (DestroyFlowGroupIn::TABLE_ID.get(input), DestroyFlowGroupIn::GROUP_ID.get(input));
                need!(call.may_change(self.steering.tables.owner(number)), BAD_RES_ERR, 16);
                let Some(table) = self.steering.tables.get_mut(number) else { return Ok(()) };
                let found = table.group_mut(group);
                need!(found.is_some(), BAD_RES_ERR, 17);
                need!(found.is_some_and(|group| group.is_empty()), RES_BUSY, 18);
                table.remove_group(group);
                self.steering.groups -= 1;
                Ok(())
            }
            op::SET_FLOW_TABLE_ENTRY => self.set_flow_entry(call),
            op::QUERY_FLOW_TABLE_ENTRY => {
                let input: &[u8; QueryFlowEntryIn::BYTES] = call.input()?;
                let (number, index) =
                    (QueryFlowEntryIn::TABLE_ID.get(input), QueryFlowEntryIn::FLOW_INDEX.get(input));
                need!(call.may_name(self.steering.tables.owner(number)), BAD_RES_ERR, 16);
                let group = self.steering.tables.get_mut(number).and_then(|table| table.group_at(index));
                let Some(entry) = group.as_ref().and_then(|group| group.entry(index)) else {
                    return Err(no(status::BAD_RES_ERR, 17));
                };
                call.output::<{ QueryFlowEntryOut::BYTES }>()?;
                let at = QueryFlowEntryOut::FLOW_CONTEXT.offset();
                let bytes = entry.context.len().min(call.output.len() - at);
                call.output[at..at + bytes].copy_from_slice(&entry.context[..bytes]);
                Ok(())
            }
            op::DELETE_FLOW_TABLE_ENTRY => {
                let input: &[u8; 64] = call.input()?;
                let (number, index) =
                    (QueryFlowEntryIn::TABLE_ID.get(input), QueryFlowEntryIn::FLOW_INDEX.get(input));
                need!(call.may_change(self.steering.tables.owner(number)), BAD_RES_ERR, 16);
                let group = self.steering.tables.get_mut(number).and_then(|table| table.group_at(index));
                need!(group.is_some_and(|group| group.remove(index)), BAD_RES_ERR, 17);
                self.steering.entries -= 1;
                Ok(())
            }
            _ => self.flow_counter_command(opcode, call),
        }
    }

    /// Where a table's misses go: to the end, or to a table of a higher level.
    fn miss(&self, call: &Call<'_>, context: &[u8; 40], way: Way, level: u32) -> Result<Miss, No> {
        match FlowTableContext::TABLE_MISS_ACTION.get(context) {
            0 => Ok(Miss::End),
            MISS_FORWARD => {
                let other = FlowTableContext::TABLE_MISS_ID.get(context);
                need!(call.may_name(self.steering.tables.owner(other)), BAD_RES_ERR, 32);
                let other_table = self.steering.tables.get(other);
                let higher = other_table.is_some_and(|other| other.way == way && other.level > level);
                need!(higher, BAD_PARAM_ERR, 33);
                Ok(Miss::Table(other))
            }
            _ => Err(no(status::BAD_PARAM_ERR, 34)),
        }
    }

    fn create_flow_table(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        let input: &[u8; CreateFlowTableIn::BYTES] = call.input()?;
        let kind = CreateFlowTableIn::TABLE_TYPE.get(input);
        let context = CreateFlowTableIn::FLOW_TABLE_CONTEXT.get(input);
        let (level, log_size) =
            (FlowTableContext::LEVEL.get(&context), FlowTableContext::LOG_SIZE.get(&context));
        let way = way(kind, &self.traits).ok_or(no(status::BAD_PARAM_ERR, 16))?;
        need!(level < LEVELS && log_size <= LOG_FT, BAD_PARAM_ERR, 17);
        let allows = Allows {
            decapsulate: FlowTableContext::DECAP_EN.is_set(&context),
            reformat: FlowTableContext::REFORMAT_EN.is_set(&context),
        };
        // A flag needs its capability: `decap` of what is received alone, `reformat` both ways. This device has neither `sw_owner` nor
        // `termination_table`.
        let able = (allows == Allows::default() || self.traits.change_packets && !way.is_copy())
            && (!allows.decapsulate || way == Way::In)
            && !FlowTableContext::SW_OWNER.is_set(&context)
            && !FlowTableContext::TERMINATION_TABLE.is_set(&context);
        need!(able, BAD_PARAM_ERR, 18);
        let miss = self.miss(call, &context, way, level)?;
        need!(call.output.len() >= 16, BAD_OUTP_LEN_ERR, 19);
        let table = FlowTable::new(way, level, log_size, miss, allows);
        let number = self.steering.tables.insert(call.uid, table).ok_or(no(status::NO_RES_ERR, 20))?;
        call.answer_number(number)
    }

    fn create_flow_group(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use CreateFlowGroupIn as G;
        let input: &[u8; G::BYTES] = call.input()?;
        let number = G::TABLE_ID.get(input);
        let (start, end) = (G::START_FLOW_INDEX.get(input), G::END_FLOW_INDEX.get(input));
        let criteria = G::MATCH_CRITERIA_ENABLE.get(input);
        need!(call.may_change(self.steering.tables.owner(number)), BAD_RES_ERR, 16);
        need!(G::GROUP_TYPE.get(input) == 0, BAD_PARAM_ERR, 17);
        let Some(mask) = Mask::new(criteria, G::MATCH_CRITERIA.of(input), &self.tunnels) else {
            return Err(no(status::BAD_PARAM_ERR, 18));
        };
        let versions = [MatchParameters::OUTER_HEADERS, MatchParameters::INNER_HEADERS]
            .map(|part| MatchHeaders::IP_VERSION.get(part.of(G::MATCH_CRITERIA.of(input))));
        need!(self.traits.match_ip_version || versions == [0; 2], BAD_PARAM_ERR, 21);
        // What is received was sent by none of this device's queues.
        let queue =
            MatchMisc::SOURCE_SQN.get(MatchParameters::MISC_PARAMETERS.of(G::MATCH_CRITERIA.of(input)));
        let received = self.steering.tables.get(number).is_some_and(|table| table.way.is_received());
        need!(queue == 0 || !received, BAD_PARAM_ERR, 22);
        call.output::<16>()?;
        let Some(table) = self.steering.tables.get_mut(number) else { return Ok(()) };
        need!(start <= end && u64::from(end) < 1 << table.log_size, BAD_PARAM_ERR, 19);
        let room = table.groups().len() < GROUPS_MAX && self.steering.groups < GROUPS_HELD_MAX;
        need!(room, NO_RES_ERR, 23);
        let group = table.add_group(start, end, mask, criteria).ok_or(no(status::BAD_PARAM_ERR, 20))?;
        self.steering.groups += 1;
        call.answer_number(group)
    }

    fn set_flow_entry(&mut self, call: &mut Call<'_>) -> Result<(), No> {
        use SetFlowEntryIn as S;
        let input: &[u8; S::BYTES] = call.input()?;
        let (number, index) = (S::TABLE_ID.get(input), S::FLOW_INDEX.get(input));
        let (any_level, changes) = (S::IGNORE_FLOW_LEVEL.is_set(input), S::MODIFY_ENABLE_MASK.get(input));
        let context = S::FLOW_CONTEXT.of(input);
        need!(call.may_change(self.steering.tables.owner(number)), BAD_RES_ERR, 16);
        need!(!any_level, BAD_PARAM_ERR, 17);
        let parsed = self.entry(call, number, context)?;
        let group = FlowContext::GROUP_ID.get(context);
        let Some(table) = self.steering.tables.get_mut(number) else { return Ok(()) };
        match call.op_mod {
            0 => {
                let Some(group) = table.group_at(index).filter(|found| found.number == group) else {
                    return Err(no(status::BAD_PARAM_ERR, 18));
                };
                need!(group.entry(index).is_none(), BAD_RES_STATE_ERR, 19);
                let value = FlowContext::MATCH_VALUE.of(context);
                need!(group.mask.is_within(value, group.criteria), BAD_PARAM_ERR, 20);
                need!(self.steering.entries < ENTRIES_MAX, NO_RES_ERR, 23);
                let entry = Entry { value: group.mask.value(value), ..parsed };
                group.insert(index, entry);
                self.steering.entries += 1;
            }
            1 => {
                let Some(entry) = table.group_at(index).and_then(|group| group.entry_mut(index)) else {
                    return Err(no(status::BAD_RES_ERR, 21));
                };
                if changes & modify::FLOW_TAG != 0 {
                    entry.tag = parsed.tag;
                }
                if changes & (modify::DESTINATION_LIST | modify::ACTION) != 0 {
                    (entry.destinations, entry.drops) = (parsed.destinations, parsed.drops);
                }
                if changes & modify::ACTION != 0 {
                    entry.changes = parsed.changes;
                }
                if changes & (modify::FLOW_COUNTERS | modify::ACTION) != 0 {
                    entry.counters = parsed.counters;
                }
                entry.context = parsed.context;
            }
            _ => return Err(no(status::BAD_PARAM_ERR, 22)),
        }
        Ok(())
    }

    /// What an entry does; its value is filled in by the caller, who knows the mask.
    fn entry(&self, call: &Call<'_>, table: u32, context: &[u8; 768]) -> Result<Entry, No> {
        use FlowContext as F;
        let actions = F::ACTION.get(context);
        need!(actions & !ACTIONS == 0, BAD_PARAM_ERR, 40);
        let (forward, drop) = (actions & action::FWD_DEST != 0, actions & action::DROP != 0);
        need!(!(forward && drop), BAD_PARAM_ERR, 41);
        need!(!F::EXTENDED_DESTINATION.is_set(context), BAD_PARAM_ERR, 42);
        let count = if forward { F::DESTINATION_LIST_SIZE.get(context) as usize } else { 0 };
        let counted = actions & action::COUNT != 0;
        let counters = if counted { F::FLOW_COUNTER_LIST_SIZE.get(context) as usize } else { 0 };
        need!(!forward || count > 0, BAD_PARAM_ERR, 43);
        need!(!counted || counters > 0, BAD_PARAM_ERR, 44);
        need!(count <= LIST_MAX && counters <= LIST_MAX, BAD_PARAM_ERR, 45);
        let list = call.behind::<{ SetFlowEntryIn::BYTES }>().as_chunks::<8>().0;
        need!(list.len() >= count + counters, BAD_INP_LEN_ERR, 46);
        let (way, level, allows) = self
            .steering
            .tables
            .get(table)
            .map_or((Way::In, 0, Allows::default()), |table| (table.way, table.level, table.allows));
        let mut destinations = Vec::with_capacity(count);
        for block in &list[..count] {
            let id = DestinationBlock::DESTINATION_ID.get(block);
            match DestinationBlock::DESTINATION_TYPE.get(block) {
                destination::TIR if way.ends_in_queues() => {
                    need!(call.may_name(self.steering.tirs.owner(id)), BAD_RES_ERR, 47);
                    destinations.push(Destination::Tir(id));
                }
                destination::FLOW_TABLE => {
                    need!(call.may_name(self.steering.tables.owner(id)), BAD_RES_ERR, 48);
                    let other = self.steering.tables.get(id);
                    let higher = other.is_some_and(|other| other.way == way && other.level > level);
                    need!(higher, BAD_PARAM_ERR, 49);
                    destinations.push(Destination::Table(id));
                }
                _ => return Err(no(status::BAD_PARAM_ERR, 50)),
            }
        }
        let mut numbers = Vec::with_capacity(counters);
        for block in &list[count..count + counters] {
            let id = FlowCounter::FLOW_COUNTER_ID.get(block);
            need!(call.may_name(self.steering.counters.owner(id)), BAD_RES_ERR, 51);
            numbers.push(id);
        }
        let mut whole = context.to_vec();
        whole.extend(list[..count + counters].as_flattened());
        Ok(Entry {
            value: Vec::new(),
            tag: F::FLOW_TAG.get(context),
            destinations,
            drops: drop,
            counters: numbers,
            changes: self.changes(call, (way, allows), context)?,
            context: whole,
        })
    }

    /// How an entry changes packets: a tunnel comes off what is received, and onto what is sent, where the table was made for that.
    /// Source: Linux `drivers/infiniband/hw/mlx5/fs.c`, `_get_flow_table`, and
    /// `drivers/net/ethernet/mellanox/mlx5/core/fs_cmd.c`, `mlx5_cmd_create_flow_table`; DPDK `drivers/net/mlx5/hws/mlx5dr_action.c`
    /// and rdma-core `providers/mlx5/dr_devx.c`, `dr_devx_create_flow_table`, which set `reformat_en` for tables of such entries.
    fn changes(
        &self,
        call: &Call<'_>,
        (way, allows): (Way, Allows),
        context: &[u8; 768],
    ) -> Result<Changes, No> {
        use FlowContext as F;
        let has = |bit: u32| F::ACTION.get(context) & bit != 0;
        let mut changes = Changes { decapsulate: has(action::DECAP), ..Changes::default() };
        if has(action::MOD_HDR) {
            need!(!way.is_copy(), BAD_PARAM_ERR, 56);
            let number = F::MODIFY_HEADER_ID.get(context);
            need!(call.may_name(self.steering.rewrites.owner(number)), BAD_RES_ERR, 53);
            changes.rewrite = self.steering.rewrites.get(number).cloned();
        }
        if has(action::PACKET_REFORMAT) {
            let number = F::PACKET_REFORMAT_ID.get(context);
            need!(call.may_name(self.steering.reformats.owner(number)), BAD_RES_ERR, 54);
            changes.reformat = self.steering.reformats.get(number).cloned();
            let bare = matches!(changes.reformat.as_deref(), Some(Reformat::Bare(_)));
            need!(bare == (way == Way::In), BAD_PARAM_ERR, 55);
        }
        need!(allows.allows(&changes), BAD_PARAM_ERR, 52);
        Ok(changes)
    }

    fn flow_counter_command(&mut self, opcode: u16, call: &mut Call<'_>) -> Result<(), No> {
        match opcode {
            op::ALLOC_FLOW_COUNTER => {
                let input: &[u8; AllocFlowCounterIn::BYTES] = call.input()?;
                let bulk = AllocFlowCounterIn::FLOW_COUNTER_BULK.get(input);
                need!(bulk == 0 || bulk.is_power_of_two(), BAD_PARAM_ERR, 16);
                need!(AllocFlowCounterIn::FLOW_COUNTER_BULK_LOG_SIZE.get(input) == 0, BAD_PARAM_ERR, 17);
                let count = if bulk == 0 { 1 } else { bulk as usize * BULK_UNIT };
                call.output::<16>()?;
                let first = self.steering.counters.add(call.uid, count).ok_or(no(status::NO_RES_ERR, 18))?;
                call.answer_number(first)
            }
            op::DEALLOC_FLOW_COUNTER => {
                let number = DeallocFlowCounterIn::FLOW_COUNTER_ID.get(call.input()?);
                need!(call.may_change(self.steering.counters.owner(number)), BAD_RES_ERR, 16);
                need!(!self.steering.is_counting(number), RES_BUSY, 17);
                self.steering.counters.remove(number);
                Ok(())
            }
            _ => {
                let input: &[u8; QueryFlowCounterIn::BYTES] = call.input()?;
                let first = QueryFlowCounterIn::FLOW_COUNTER_ID.get(input);
                let count = QueryFlowCounterIn::NUM_OF_COUNTERS.get(input).max(1);
                let clear = QueryFlowCounterIn::CLEAR.is_set(input);
                let room =
                    call.output.len().saturating_sub(QueryFlowCounterOut::BYTES) / TrafficCounter::BYTES;
                need!(room >= count as usize, BAD_OUTP_LEN_ERR, 16);
                for index in 0..count {
                    let number = first.wrapping_add(index);
                    need!(call.may_name(self.steering.counters.owner(number)), BAD_RES_ERR, 17);
                    let Some(traffic) = self.steering.counters.get_mut(number) else { continue };
                    let at = QueryFlowCounterOut::BYTES + index as usize * TrafficCounter::BYTES;
                    if let Some(block) = call.output[at..].first_chunk_mut() {
                        TrafficCounter::PACKETS.set(block, traffic.packets);
                        TrafficCounter::OCTETS.set(block, traffic.bytes);
                    }
                    if clear {
                        *traffic = crate::port::Traffic::default();
                    }
                }
                Ok(())
            }
        }
    }
}
