//! Tables, groups and entries of the device's steering, shared by all contexts: what Linux's `fs_core.c` does for rules of
//! programs.
//!
//! ```text
//!   root ─► table of priority 0 ─ miss ─► table of priority 3 ─ miss ─► … ─► leftovers ─ miss ─► the kernel's interface
//!             groups, one for each mask             (tables exist while a rule is in them)
//!               entries, one for each value: destinations, tag, counter
//! ```
//!
//! The kernel's own interface is what comes to the end of the chain, or passes a rule that only looks on: the device hands it to
//! [`Frames`](crate::Frames). On a card it has tables of its own there, in front of the leftovers.

mod table;

use std::collections::BTreeMap;

use pollux_mlx5_abi::caps::flow_table::FlowTableProperties;
use pollux_mlx5_abi::command::flow::{Destination, action, criteria, destination, table as kind};
use pollux_mlx5_abi::command::matching::MatchParameters;
use pollux_uverbs::Errno;

use crate::adapter::Adapter;
use crate::capability::Caps;
use table::{Entry, Table};

/// Priorities that a program may name: 16, each for rules that trap and rules that do not. Source: Linux
/// `include/linux/mlx5/fs.h`, `MLX5_BY_PASS_NUM_REGULAR_PRIOS`.
pub(crate) const PRIORITIES: u16 = 16;

/// Place of rules that only multicasts can match, after all the others. Source: Linux
/// `drivers/infiniband/hw/mlx5/mlx5_ib.h`, `MLX5_IB_FLOW_MCAST_PRIO`.
pub(crate) const MULTICAST: u16 = 2 * PRIORITIES;

/// Place of rules for what nobody takes, `MLX5_IB_FLOW_LEFTOVERS_PRIO`.
pub(crate) const LEFTOVERS: u16 = MULTICAST + 1;

/// Behind all of them: a table without entries, that rules for the kernel lead to, and those which only look on where there is no
/// other. It is there while there are such.
const END: u16 = LEFTOVERS + 1;

/// Size of a table, as a logarithm. Source: Linux `drivers/infiniband/hw/mlx5/fs.c`, `MLX5_FS_MAX_ENTRIES`.
const LOG_SIZE: u32 = 16;

/// Bytes of a match: all parts.
pub(crate) type Match = [u8; MatchParameters::BYTES];

/// Which packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    Receive,
    Send,
    /// Copies for sniffers, of what the port receives and of what it sends.
    ReceiveCopy,
    SendCopy,
}

impl Direction {
    /// The firmware's number of its tables.
    const fn table_type(self) -> u32 {
        match self {
            Self::Receive => kind::NIC_RX,
            Self::Send => kind::NIC_TX,
            Self::ReceiveCopy => kind::SNIFFER_RX,
            Self::SendCopy => kind::SNIFFER_TX,
        }
    }
}

/// Where a rule leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Tir(u32),
    Table(u32),
    /// The tables after this one: the rule only looks on.
    Next,
    /// The kernel's own interface, past all rules of programs: Linux's `MLX5_FLOW_CONTEXT_ACTION_FWD_NEXT_NS`.
    Kernel,
    /// Nowhere: its action says all.
    Nothing,
}

impl Target {
    /// To tables that come after the rule's own.
    const fn passes_on(self) -> bool {
        matches!(self, Self::Next | Self::Kernel)
    }
}

/// What a rule does to packets beside where it leads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketChange {
    /// Changes fields, by the list of that number.
    Fields(u32),
    /// Puts on, or replaces, headers by the context of that number.
    Reformat(u32),
    /// Takes a tunnel's headers off, which needs nothing of the device.
    Decapsulate,
}

impl PacketChange {
    /// Its bit of an entry's actions.
    pub(crate) const fn bit(self) -> u32 {
        match self {
            Self::Fields(_) => action::MOD_HDR,
            Self::Reformat(_) => action::PACKET_REFORMAT,
            Self::Decapsulate => action::DECAP,
        }
    }
}

/// The tables behind one.
#[derive(Clone, Copy, Debug)]
struct Behind {
    next: Option<u32>,
    /// The last one, whose misses are the kernel's.
    kernel: Option<u32>,
}

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) direction: Direction,
    /// Place in the chain.
    pub(crate) place: u16,
    /// Which parts of the match count, a mask of [`criteria`].
    pub(crate) enable: u8,
    pub(crate) mask: Box<Match>,
    pub(crate) value: Box<Match>,
    pub(crate) tag: Option<u32>,
    /// `DROP`, `ALLOW` or nothing; where it leads and what counts it are said apart.
    pub(crate) action: u32,
    pub(crate) targets: Vec<Target>,
    pub(crate) counter: Option<u32>,
    /// What it does to packets.
    pub(crate) changes: Vec<PacketChange>,
}

/// What finds a rule again.
#[derive(Clone, Debug)]
pub(crate) struct RuleKey {
    direction: Direction,
    place: u16,
    group: u32,
    index: u32,
    targets: Vec<Target>,
}

/// All tables.
#[derive(Debug)]
pub(crate) struct Steering {
    tables: BTreeMap<(Direction, u16), Table>,
    receive: Limits,
    send: Limits,
    copies: [Limits; 2],
}

/// What entries of a table may do to packets. Source: Linux `drivers/infiniband/hw/mlx5/fs.c`, `get_flow_table`, and
/// `drivers/net/ethernet/mellanox/mlx5/core/fs_cmd.c`, `mlx5_cmd_create_flow_table`, which ask for all that the device can.
#[derive(Clone, Copy, Debug, Default)]
struct TableFlags {
    decapsulate: bool,
    reformat: bool,
}

/// What the device can in one direction.
#[derive(Clone, Copy, Debug)]
struct Limits {
    works: bool,
    log_size: u32,
    level_max: u32,
    counts: bool,
    flags: TableFlags,
}

impl Limits {
    fn new(direction: Direction, block: &[u8; FlowTableProperties::BYTES]) -> Self {
        type P = FlowTableProperties;
        Self {
            works: P::FT_SUPPORT.is_set(block),
            log_size: P::LOG_MAX_FT_SIZE.get(block).min(LOG_SIZE),
            level_max: P::MAX_FT_LEVEL.get(block),
            counts: P::FLOW_COUNTER.is_set(block),
            flags: match direction {
                Direction::Receive => TableFlags {
                    decapsulate: P::DECAP.is_set(block),
                    reformat: P::REFORMAT_L3_TUNNEL_TO_L2.is_set(block),
                },
                Direction::Send => TableFlags { decapsulate: false, reformat: P::REFORMAT.is_set(block) },
                Direction::ReceiveCopy | Direction::SendCopy => TableFlags::default(),
            },
        }
    }
}

impl Steering {
    pub(crate) fn new(caps: &Caps) -> Self {
        Self {
            tables: BTreeMap::new(),
            receive: Limits::new(Direction::Receive, caps.receive()),
            send: Limits::new(Direction::Send, caps.transmit()),
            copies: [
                Limits::new(Direction::ReceiveCopy, caps.receive_sniffer()),
                Limits::new(Direction::SendCopy, caps.transmit_sniffer()),
            ],
        }
    }

    /// Whether there is steering of what is received.
    pub(crate) fn works(&self) -> bool {
        self.receive.works
    }

    fn limits(&self, direction: Direction) -> Limits {
        match direction {
            Direction::Receive => self.receive,
            Direction::Send => self.send,
            Direction::ReceiveCopy => self.copies[0],
            Direction::SendCopy => self.copies[1],
        }
    }

    /// Adds a rule. One that matches the same as another leads to both.
    pub(crate) fn add(&mut self, adapter: &Adapter, rule: &Rule) -> Result<RuleKey, Errno> {
        let limits = self.limits(rule.direction);
        let leads = rule.targets.iter().any(|target| *target != Target::Nothing);
        if !leads && rule.action & (action::DROP | action::ALLOW) == 0 {
            return Err(Errno::EINVAL);
        }
        if !limits.works
            || u32::from(rule.place) > limits.level_max
            || (rule.counter.is_some() && !limits.counts)
            || (rule.targets.contains(&Target::Kernel)
                && (rule.direction == Direction::Send || u32::from(END) > limits.level_max))
        {
            return Err(Errno::EOPNOTSUPP);
        }
        let at = (rule.direction, rule.place);
        if !self.tables.contains_key(&at) {
            self.add_table(adapter, at, limits.log_size)?;
        }
        let end = (rule.direction, END);
        if rule.targets.iter().any(|target| target.passes_on())
            && rule.direction == Direction::Receive
            && u32::from(END) <= limits.level_max
            && !self.tables.contains_key(&end)
            && let Err(errno) = self.add_table(adapter, end, 0)
        {
            self.remove_if_empty(adapter, at);
            return Err(errno);
        }
        let behind = self.behind(at);
        let Some(table) = self.tables.get_mut(&at) else { return Err(Errno::EINVAL) };
        match table.add(adapter, rule, behind) {
            Ok((group, index)) => {
                let targets = rule.targets.clone();
                Ok(RuleKey { direction: rule.direction, place: rule.place, group, index, targets })
            }
            Err(errno) => {
                self.remove_if_empty(adapter, at);
                self.remove_end(adapter);
                Err(errno)
            }
        }
    }

    /// Removes a rule.
    pub(crate) fn remove(&mut self, adapter: &Adapter, key: &RuleKey) -> Result<(), Errno> {
        let at = (key.direction, key.place);
        let behind = self.behind(at);
        if let Some(table) = self.tables.get_mut(&at) {
            table.remove(adapter, key, behind)?;
        }
        self.remove_if_empty(adapter, at);
        self.remove_end(adapter);
        Ok(())
    }

    /// Ends the last table where no rule leads there.
    fn remove_end(&mut self, adapter: &Adapter) {
        if !self.tables.values().any(Table::passes_on) {
            self.remove_if_empty(adapter, (Direction::Receive, END));
        }
    }

    /// Makes a table and puts it into its chain.
    fn add_table(&mut self, adapter: &Adapter, at: (Direction, u16), log_size: u32) -> Result<(), Errno> {
        let next = self.next_of(at);
        let flags = if at.1 <= MULTICAST { self.limits(at.0).flags } else { TableFlags::default() };
        let table = Table::create(adapter, at.0.table_type(), (at.1, flags), log_size, next)?;
        let id = table.id;
        let linked = match self.previous_of(at) {
            Some(previous) => table::set_miss(adapter, at.0.table_type(), previous, Some(id)),
            None => table::set_root(adapter, at.0.table_type(), id, true),
        };
        if let Err(errno) = linked {
            table.destroy(adapter);
            return Err(errno);
        }
        self.tables.insert(at, table);
        self.refresh_before(adapter, at);
        Ok(())
    }

    /// Takes a table without rules out of its chain and ends it.
    fn remove_if_empty(&mut self, adapter: &Adapter, at: (Direction, u16)) {
        if !self.tables.get(&at).is_some_and(Table::is_empty) {
            return;
        }
        let Some(table) = self.tables.remove(&at) else { return };
        let next = self.next_of(at);
        // Whatever is refused here: the table has no entry, and who comes to it goes on to the next.
        let _ = match (self.previous_of(at), next) {
            (Some(previous), next) => table::set_miss(adapter, at.0.table_type(), previous, next),
            (None, Some(next)) => table::set_root(adapter, at.0.table_type(), next, true),
            (None, None) => table::set_root(adapter, at.0.table_type(), table.id, false),
        };
        self.refresh_before(adapter, at);
        table.destroy(adapter);
    }

    /// Rules that look on lead to the table after theirs, which may be another one now.
    fn refresh_before(&mut self, adapter: &Adapter, at: (Direction, u16)) {
        let Some(before) = self.tables.range((at.0, 0)..at).next_back().map(|(at, _)| *at) else { return };
        let behind = self.behind(before);
        if let Some(table) = self.tables.get(&before) {
            table.refresh(adapter, behind);
        }
    }

    fn behind(&self, at: (Direction, u16)) -> Behind {
        Behind { next: self.next_of(at), kernel: self.tables.get(&(at.0, END)).map(|table| table.id) }
    }

    fn next_of(&self, at: (Direction, u16)) -> Option<u32> {
        let end = (at.0, u16::MAX);
        self.tables.range(at..=end).find(|(other, _)| **other != at).map(|(_, table)| table.id)
    }

    fn previous_of(&self, at: (Direction, u16)) -> Option<u32> {
        self.tables.range((at.0, 0)..at).next_back().map(|(_, table)| table.id)
    }
}

/// Which parts of a mask have a bit set.
pub(crate) fn criteria_of(mask: &Match) -> u8 {
    let parts = [
        (MatchParameters::OUTER_HEADERS, criteria::OUTER_HEADERS),
        (MatchParameters::MISC_PARAMETERS, criteria::MISC_PARAMETERS),
        (MatchParameters::INNER_HEADERS, criteria::INNER_HEADERS),
        (MatchParameters::MISC_PARAMETERS_2, criteria::MISC_PARAMETERS_2),
        (MatchParameters::MISC_PARAMETERS_3, criteria::MISC_PARAMETERS_3),
        (MatchParameters::MISC_PARAMETERS_4, criteria::MISC_PARAMETERS_4),
        (MatchParameters::MISC_PARAMETERS_5, criteria::MISC_PARAMETERS_5),
    ];
    let set = parts.iter().filter(|(part, _)| part.of(mask).iter().any(|byte| *byte != 0));
    set.fold(0, |all, (_, bit)| all | *bit as u8)
}

/// The firmware's form of where an entry leads.
fn destination_bytes(kind: u32, number: u32) -> [u8; Destination::BYTES] {
    let mut block = Destination::ZERO;
    Destination::DESTINATION_TYPE.set(&mut block, kind);
    Destination::DESTINATION_ID.set(&mut block, number & 0xff_ffff);
    block
}

impl Entry {
    /// All of them.
    fn destinations(&self, behind: Behind) -> Vec<[u8; Destination::BYTES]> {
        self.targets
            .iter()
            .filter_map(|(target, _)| match target {
                Target::Tir(tirn) => Some(destination_bytes(destination::TIR, *tirn)),
                Target::Table(table) => Some(destination_bytes(destination::FLOW_TABLE, *table)),
                Target::Next => behind.next.map(|table| destination_bytes(destination::FLOW_TABLE, table)),
                Target::Kernel => {
                    behind.kernel.map(|table| destination_bytes(destination::FLOW_TABLE, table))
                }
                Target::Nothing => None,
            })
            .collect()
    }
}
