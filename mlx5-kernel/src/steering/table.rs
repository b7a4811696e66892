//! One table: groups by mask, entries by value. Source of how room is shared: Linux
//! `drivers/net/ethernet/mellanox/mlx5/core/fs_core.c`, `alloc_auto_flow_group`.

use std::collections::BTreeMap;

use pollux_mlx5_abi::command::flow::{
    CreateFlowGroupIn, CreateFlowGroupOut, CreateFlowTableIn, CreateFlowTableOut, DeleteFlowEntryIn,
    DestroyFlowGroupIn, DestroyFlowTableIn, FlowContext, FlowCounter, FlowTableContext, ModifyFlowTableIn,
    SetFlowEntryIn, SetFlowTableRootIn, action, modify,
};
use pollux_mlx5_abi::command::opcode;
use pollux_uverbs::Errno;

use super::{Behind, Match, PacketChange, Rule, RuleKey, TableFlags, Target};
use crate::adapter::Adapter;
use crate::firmware::{SHORT, begin};

/// Groups that share a table's room evenly; later ones hold a single entry. Source: Linux
/// `drivers/infiniband/hw/mlx5/fs.c`, `MLX5_FS_MAX_TYPES`.
const LARGE_GROUPS: u32 = 6;

/// `table_miss_action`: to the table that is named. Source: Linux `include/linux/mlx5/mlx5_ifc.h`,
/// `MLX5_FLOW_TABLE_MISS_ACTION_FWD`.
const MISS_TO_TABLE: u32 = 1;

/// A table of the device.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) id: u32,
    kind: u32,
    size: u32,
    groups: Vec<Group>,
}

#[derive(Debug)]
struct Group {
    id: u32,
    start: u32,
    count: u32,
    enable: u8,
    mask: Box<Match>,
    entries: BTreeMap<u32, Entry>,
}

/// An entry, made of all rules that match the same.
#[derive(Debug)]
pub(super) struct Entry {
    value: Box<Match>,
    tag: Option<u32>,
    action: u32,
    counter: Option<u32>,
    changes: Vec<PacketChange>,
    /// Where it leads, and for how many rules.
    pub(super) targets: Vec<(Target, u32)>,
}

impl Table {
    pub(super) fn create(
        adapter: &Adapter,
        kind: u32,
        (level, flags): (u16, TableFlags),
        log_size: u32,
        next: Option<u32>,
    ) -> Result<Self, Errno> {
        let mut input: [u8; CreateFlowTableIn::BYTES] = begin(opcode::CREATE_FLOW_TABLE, 0, 0);
        CreateFlowTableIn::TABLE_TYPE.set(&mut input, kind);
        let context = CreateFlowTableIn::FLOW_TABLE_CONTEXT.of_mut(&mut input);
        FlowTableContext::DECAP_EN.set(context, flags.decapsulate.into());
        FlowTableContext::REFORMAT_EN.set(context, flags.reformat.into());
        FlowTableContext::LEVEL.set(context, u32::from(level));
        FlowTableContext::LOG_SIZE.set(context, log_size);
        write_miss(context, next);
        let mut output = CreateFlowTableOut::ZERO;
        adapter.execute(&input, &mut output)?;
        let id = CreateFlowTableOut::TABLE_ID.get(&output);
        Ok(Self { id, kind, size: 1 << log_size.min(24), groups: Vec::new() })
    }

    pub(super) fn destroy(&self, adapter: &Adapter) {
        let mut input: [u8; DestroyFlowTableIn::BYTES] = begin(opcode::DESTROY_FLOW_TABLE, 0, 0);
        DestroyFlowTableIn::TABLE_TYPE.set(&mut input, self.kind);
        DestroyFlowTableIn::TABLE_ID.set(&mut input, self.id);
        let _ = adapter.execute(&input, &mut [0; SHORT]);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether a rule in it leads to the tables behind, or to the kernel.
    pub(super) fn passes_on(&self) -> bool {
        let mut entries = self.groups.iter().flat_map(|group| group.entries.values());
        entries.any(|entry| entry.targets.iter().any(|(target, _)| target.passes_on()))
    }

    /// Adds a rule; the answer is its group and entry.
    pub(super) fn add(
        &mut self,
        adapter: &Adapter,
        rule: &Rule,
        behind: Behind,
    ) -> Result<(u32, u32), Errno> {
        let (table, kind) = (self.id, self.kind);
        let alike = |group: &Group| group.enable == rule.enable && group.mask == rule.mask;
        for group in self.groups.iter_mut().filter(|group| alike(group)) {
            let id = group.id;
            if let Some((index, entry)) =
                group.entries.iter_mut().find(|(_, entry)| entry.value == rule.value)
            {
                entry.join(rule)?;
                if let Err(errno) = entry.write(adapter, (kind, table, id, *index), behind, true) {
                    entry.leave(&rule.targets);
                    return Err(errno);
                }
                return Ok((id, *index));
            }
        }
        let place = self.groups.iter().position(|group| alike(group) && group.free().is_some());
        let place = match place {
            Some(place) => place,
            None => self.add_group(adapter, rule)?,
        };
        let group = &mut self.groups[place];
        let index = group.free().ok_or(Errno::ENOSPC)?;
        let entry = Entry::new(rule);
        if let Err(errno) = entry.write(adapter, (kind, table, group.id, index), behind, false) {
            self.remove_group_if_empty(adapter, place);
            return Err(errno);
        }
        group.entries.insert(index, entry);
        Ok((group.id, index))
    }

    /// Takes a rule out.
    pub(super) fn remove(&mut self, adapter: &Adapter, key: &RuleKey, behind: Behind) -> Result<(), Errno> {
        let (table, kind) = (self.id, self.kind);
        let Some(place) = self.groups.iter().position(|group| group.id == key.group) else { return Ok(()) };
        let group = &mut self.groups[place];
        let Some(entry) = group.entries.get_mut(&key.index) else { return Ok(()) };
        entry.leave(&key.targets);
        if entry.targets.is_empty() {
            let mut input: [u8; DeleteFlowEntryIn::BYTES] = begin(opcode::DELETE_FLOW_TABLE_ENTRY, 0, 0);
            DeleteFlowEntryIn::TABLE_TYPE.set(&mut input, kind);
            DeleteFlowEntryIn::TABLE_ID.set(&mut input, table);
            DeleteFlowEntryIn::FLOW_INDEX.set(&mut input, key.index);
            adapter.execute(&input, &mut [0; SHORT])?;
            group.entries.remove(&key.index);
            self.remove_group_if_empty(adapter, place);
            return Ok(());
        }
        entry.write(adapter, (kind, table, key.group, key.index), behind, true)
    }

    /// Writes entries that look on anew, after another table became the next one.
    pub(super) fn refresh(&self, adapter: &Adapter, behind: Behind) {
        for group in &self.groups {
            for (index, entry) in &group.entries {
                if entry.targets.iter().any(|(target, _)| *target == Target::Next) {
                    let _ = entry.write(adapter, (self.kind, self.id, group.id, *index), behind, true);
                }
            }
        }
    }

    fn add_group(&mut self, adapter: &Adapter, rule: &Rule) -> Result<usize, Errno> {
        let large = (self.size / (LARGE_GROUPS + 1)).max(1);
        let count = if (self.groups.len() as u32) < LARGE_GROUPS { large } else { 1 };
        let (place, start) = self.room(count).ok_or(Errno::ENOSPC)?;
        let mut input: Box<[u8; CreateFlowGroupIn::BYTES]> = Box::new(begin(opcode::CREATE_FLOW_GROUP, 0, 0));
        CreateFlowGroupIn::TABLE_TYPE.set(&mut input, self.kind);
        CreateFlowGroupIn::TABLE_ID.set(&mut input, self.id);
        CreateFlowGroupIn::START_FLOW_INDEX.set(&mut input, start);
        CreateFlowGroupIn::END_FLOW_INDEX.set(&mut input, start + count - 1);
        CreateFlowGroupIn::MATCH_CRITERIA_ENABLE.set(&mut input, rule.enable.into());
        CreateFlowGroupIn::MATCH_CRITERIA.set(&mut input, *rule.mask);
        let mut output = CreateFlowGroupOut::ZERO;
        adapter.execute(input.as_slice(), &mut output)?;
        let id = CreateFlowGroupOut::GROUP_ID.get(&output);
        let (enable, mask) = (rule.enable, rule.mask.clone());
        self.groups.insert(place, Group { id, start, count, enable, mask, entries: BTreeMap::new() });
        Ok(place)
    }

    /// Where so many indices are free, and which group comes after them.
    fn room(&self, count: u32) -> Option<(usize, u32)> {
        let mut start = 0_u32;
        for (place, group) in self.groups.iter().enumerate() {
            if start + count <= group.start {
                return Some((place, start));
            }
            start = group.start + group.count;
        }
        (start.checked_add(count)? <= self.size).then_some((self.groups.len(), start))
    }

    fn remove_group_if_empty(&mut self, adapter: &Adapter, place: usize) {
        if !self.groups[place].entries.is_empty() {
            return;
        }
        let group = self.groups.remove(place);
        let mut input: [u8; DestroyFlowGroupIn::BYTES] = begin(opcode::DESTROY_FLOW_GROUP, 0, 0);
        DestroyFlowGroupIn::TABLE_TYPE.set(&mut input, self.kind);
        DestroyFlowGroupIn::TABLE_ID.set(&mut input, self.id);
        DestroyFlowGroupIn::GROUP_ID.set(&mut input, group.id);
        let _ = adapter.execute(&input, &mut [0; SHORT]);
    }
}

impl Group {
    fn free(&self) -> Option<u32> {
        (self.start..self.start + self.count).find(|index| !self.entries.contains_key(index))
    }
}

impl Entry {
    fn new(rule: &Rule) -> Self {
        let targets = rule.targets.iter().map(|target| (*target, 1)).collect();
        let value = rule.value.clone();
        let changes = rule.changes.clone();
        Self { value, tag: rule.tag, action: rule.action, counter: rule.counter, changes, targets }
    }

    /// One more rule that matches the same. Source of what is refused: Linux
    /// `drivers/net/ethernet/mellanox/mlx5/core/fs_core.c`, `check_conflicting_ftes`.
    fn join(&mut self, rule: &Rule) -> Result<(), Errno> {
        if self.action != rule.action || self.tag != rule.tag || self.changes != rule.changes {
            return Err(Errno::EEXIST);
        }
        for target in &rule.targets {
            match self.targets.iter_mut().find(|(other, _)| other == target) {
                Some((_, rules)) => *rules += 1,
                None => self.targets.push((*target, 1)),
            }
        }
        self.counter = self.counter.or(rule.counter);
        Ok(())
    }

    /// One rule fewer.
    fn leave(&mut self, targets: &[Target]) {
        for target in targets {
            if let Some((_, rules)) = self.targets.iter_mut().find(|(other, _)| other == target) {
                *rules = rules.saturating_sub(1);
            }
        }
        self.targets.retain(|(_, rules)| *rules > 0);
    }

    /// Writes the entry: a new one, or where it leads and what counts it.
    fn write(
        &self,
        adapter: &Adapter,
        (kind, table, group, index): (u32, u32, u32, u32),
        behind: Behind,
        exists: bool,
    ) -> Result<(), Errno> {
        let mut head: Box<[u8; SetFlowEntryIn::BYTES]> =
            Box::new(begin(opcode::SET_FLOW_TABLE_ENTRY, 0, u16::from(exists)));
        SetFlowEntryIn::TABLE_TYPE.set(&mut head, kind);
        SetFlowEntryIn::TABLE_ID.set(&mut head, table);
        SetFlowEntryIn::FLOW_INDEX.set(&mut head, index);
        if exists {
            let mask = modify::ACTION | modify::DESTINATION_LIST | modify::FLOW_COUNTERS;
            SetFlowEntryIn::MODIFY_ENABLE_MASK.set(&mut head, mask);
        }
        let destinations = self.destinations(behind);
        let mut actions = self.action;
        if !destinations.is_empty() && actions & action::DROP == 0 {
            actions |= action::FWD_DEST;
        }
        if self.counter.is_some() {
            actions |= action::COUNT;
        }
        actions |= self.changes.iter().fold(0, |bits, change| bits | change.bit());
        if actions & (action::FWD_DEST | action::DROP | action::ALLOW) == 0 {
            // A rule that looks on where nothing comes after.
            actions |= action::DROP;
        }
        let context = SetFlowEntryIn::FLOW_CONTEXT.of_mut(&mut head);
        FlowContext::GROUP_ID.set(context, group);
        FlowContext::FLOW_TAG.set(context, self.tag.unwrap_or(0));
        FlowContext::ACTION.set(context, actions);
        for change in &self.changes {
            match *change {
                PacketChange::Fields(number) => FlowContext::MODIFY_HEADER_ID.set(context, number),
                PacketChange::Reformat(number) => FlowContext::PACKET_REFORMAT_ID.set(context, number),
                PacketChange::Decapsulate => {}
            }
        }
        FlowContext::MATCH_VALUE.set(context, *self.value);
        let leads = if actions & action::FWD_DEST != 0 { destinations } else { Vec::new() };
        FlowContext::DESTINATION_LIST_SIZE.set(context, leads.len() as u32);
        FlowContext::FLOW_COUNTER_LIST_SIZE.set(context, u32::from(self.counter.is_some()));
        let mut input = head.to_vec();
        leads.iter().for_each(|destination| input.extend_from_slice(destination));
        if let Some(counter) = self.counter {
            let mut block = FlowCounter::ZERO;
            FlowCounter::FLOW_COUNTER_ID.set(&mut block, counter);
            input.extend_from_slice(&block);
        }
        adapter.execute(&input, &mut [0; SHORT])
    }
}

fn write_miss(context: &mut [u8; FlowTableContext::BYTES], next: Option<u32>) {
    if let Some(next) = next {
        FlowTableContext::TABLE_MISS_ACTION.set(context, MISS_TO_TABLE);
        FlowTableContext::TABLE_MISS_ID.set(context, next);
    }
}

/// Leads misses of a table elsewhere.
pub(super) fn set_miss(adapter: &Adapter, kind: u32, table: u32, next: Option<u32>) -> Result<(), Errno> {
    let mut input: [u8; ModifyFlowTableIn::BYTES] = begin(opcode::MODIFY_FLOW_TABLE, 0, 0);
    ModifyFlowTableIn::TABLE_TYPE.set(&mut input, kind);
    ModifyFlowTableIn::TABLE_ID.set(&mut input, table);
    ModifyFlowTableIn::MODIFY_FIELD_SELECT.set(&mut input, 1);
    write_miss(ModifyFlowTableIn::FLOW_TABLE_CONTEXT.of_mut(&mut input), next);
    adapter.execute(&input, &mut [0; SHORT])
}

/// Makes a table the first one, or none.
pub(super) fn set_root(adapter: &Adapter, kind: u32, table: u32, is_root: bool) -> Result<(), Errno> {
    let mut input: [u8; SetFlowTableRootIn::BYTES] =
        begin(opcode::SET_FLOW_TABLE_ROOT, 0, u16::from(!is_root));
    SetFlowTableRootIn::TABLE_TYPE.set(&mut input, kind);
    SetFlowTableRootIn::TABLE_ID.set(&mut input, table);
    adapter.execute(&input, &mut [0; SHORT])
}
