//! Flow rules of a port, as rules of the device.
//!
//! ```text
//!   FlowPlan (checked by the port) ──► parts: one, or for `rss` one for each kind of packet that is hashed apart
//!     part ──► FlowSpecs, priority ──► hash queue over a table of receive queues ──► rule of the device
//! ```
//!
//! Rules are kept as plans. Their objects on the device exist while the port is started: they lead to queues, and stopping
//! takes the tables over queues away. What their counters have counted by then is kept; a counter that no rule uses is
//! never read, for kernels forget what stands where in it (Linux `drivers/infiniband/hw/mlx5/counters.c`,
//! `mlx5_ib_counters_clear_description`).
//!
//! The device's priorities, as many as trial finds, are dealt out in threes: within one priority of a port's rule, parts
//! that match layer 4 are looked at first, then layer 3, then the rest ([`Kind::level`](super::port::spread::Kind::level)).
//! The last three are those of the port's own [filter](super::filter).
//!
//! Rules go through one tunnel: VXLAN, GRE, or MPLS in UDP, in GRE or behind Ethernet. Of VXLAN the device knows the UDP ports that it was told,
//! 4789 from the first on; of GRE the kernel matches protocol and key, the firmware also whether checksum, key and sequence number are there; labels of MPLS
//! only a card whose parser is set up for it (`port/tunnels.rs`). Inner headers are matched in VXLAN and GRE. Rules on tunnels are
//! looked at first within their priority and hash the outer headers.
//!
//! What the kernel does with rules that only multicasts can match (Ethernet first, with the group bit): it looks at them
//! after all others, whatever their priority (Linux `drivers/infiniband/hw/mlx5/fs.c`, `flow_is_multicast_only`,
//! `raw_fs_is_multicast`). A promiscuous port sees such packets first.

pub(crate) mod port;
mod spec;

use std::collections::BTreeMap;

use pollux_port::PortError;
use pollux_port::flow::{FlowActions, FlowCount, FlowFate, FlowInfo, FlowItems, FlowPart, FlowPlan, FlowRss};

use self::spec::{Part, parts};
use super::parts::{FLOW_TAG_FLAG, flow_tag};
use super::port::spread::TABLE_ENTRIES;
use super::port::spread::{Kind, LEVELS, SpreadSpec};
use super::rss;
use crate::eth::backend::{Backend, FlowAction, FlowCounter, FlowRule, HashSpec};
use pollux_mlx5_abi::kernel::queue_pair::HASH_KEY_BYTES;
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::object::{NumberedObject, Object};

/// Largest mark. Source: see [`flow_tag`].
const MARK_MAX: u32 = FLOW_TAG_FLAG - 2;

/// What rules can be, with the last priorities for default rules from `reserved` on. A card whose firmware is not set up for it
/// matches no labels.
pub(super) fn info(reserved: u16, labels: bool) -> FlowInfo {
    FlowInfo {
        groups: 1,
        priorities: u32::from(reserved / LEVELS),
        items: if labels { FlowItems::all() } else { FlowItems::all() - FlowItems::MPLS },
        actions: FlowActions::QUEUE
            | FlowActions::RSS
            | FlowActions::DROP
            | FlowActions::MARK
            | FlowActions::FLAG
            | FlowActions::COUNT,
        mark_max: MARK_MAX,
    }
}

/// What rules are made with.
pub(super) struct Place<'a> {
    pub(super) backend: &'a dyn Backend,
    /// The port's own hash, for rules that leave it to the port.
    pub(super) spread: &'a SpreadSpec,
    /// By number; `None` where a queue is not set up.
    pub(super) queues: &'a [Option<NumberedObject>],
}

/// One rule.
#[derive(Debug)]
struct Rule {
    plan: FlowPlan,
    /// One for each part, while it is on the device.
    counters: Vec<FlowCounter>,
    /// What earlier counters had counted.
    past: FlowCount,
    /// What was counted when it was last set back.
    base: FlowCount,
    /// On the device, while the port is started.
    made: Vec<Object>,
}

/// The rules of a port, by the number that names them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    next: u64,
    rules: BTreeMap<u64, Rule>,
}

impl Rules {
    /// Whether a rule can be said in the device's terms.
    pub(super) fn check(
        plan: &FlowPlan,
        backend: &dyn Backend,
        spread: &SpreadSpec,
    ) -> Result<(), PortError> {
        if plan.mark.is_some() && plan.flag {
            return Err(refuse("flag", "it stands beside mark, which says more"));
        }
        if plan.fate == FlowFate::Drop && (plan.mark.is_some() || plan.flag) {
            let name = if plan.flag { "flag" } else { "mark" };
            return Err(refuse(name, "a dropped packet carries none"));
        }
        for part in parts(plan, &hashed(plan, spread)?) {
            part.specs(backend.name() == "devx")?;
        }
        Ok(())
    }

    /// Takes a rule; `place` is given when its objects are to be made at once.
    pub(super) fn add(&mut self, plan: &FlowPlan, place: Option<&Place<'_>>) -> Result<u64, PortError> {
        let mut rule = Rule {
            plan: plan.clone(),
            counters: Vec::new(),
            past: FlowCount::default(),
            base: FlowCount::default(),
            made: Vec::new(),
        };
        if let Some(place) = place {
            rule.make(place)?;
        }
        let number = self.next;
        self.next += 1;
        self.rules.insert(number, rule);
        Ok(number)
    }

    /// Lets a rule go; false when there is none of that number.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        self.rules.remove(&number).is_some()
    }

    /// Makes all objects: the port starts.
    pub(super) fn make(&mut self, place: &Place<'_>) -> Result<(), PortError> {
        let made = self.rules.values_mut().try_for_each(|rule| rule.make(place));
        if made.is_err() {
            self.unmake(place.backend);
        }
        made
    }

    /// Takes all objects away: the port stops. Packets that match between the last look at a counter and the end of its
    /// rule are not counted.
    pub(super) fn unmake(&mut self, backend: &dyn Backend) {
        for rule in self.rules.values_mut() {
            match rule.counted(backend) {
                Ok(counted) => rule.past = counted,
                Err(error) => {
                    tracing::warn!(target: "pmd.net.mlx5", "what a flow rule has counted is lost: {error}")
                }
            }
            rule.made.clear();
            rule.counters.clear();
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// What a rule has counted since it was last set back.
    pub(super) fn count(
        &mut self,
        number: u64,
        reset: bool,
        backend: &dyn Backend,
    ) -> Result<FlowCount, PortError> {
        let Some(rule) = self.rules.get_mut(&number) else {
            return Err(PortError::flow(FlowPart::Rule, "the driver has no such rule"));
        };
        let all = rule.counted(backend).map_err(failed)?;
        let since = FlowCount {
            packets: all.packets.wrapping_sub(rule.base.packets),
            bytes: all.bytes.wrapping_sub(rule.base.bytes),
        };
        if reset {
            rule.base = all;
        }
        Ok(since)
    }
}

impl Rule {
    fn make(&mut self, place: &Place<'_>) -> Result<(), PortError> {
        self.made = self.objects(place)?;
        Ok(())
    }

    /// Since it was made first.
    fn counted(&self, backend: &dyn Backend) -> Result<FlowCount, MlxError> {
        let mut all = self.past;
        for counter in &self.counters {
            let (packets, bytes) = backend.read_counter(counter)?;
            all.packets += packets;
            all.bytes += bytes;
        }
        Ok(all)
    }

    fn objects(&mut self, place: &Place<'_>) -> Result<Vec<Object>, PortError> {
        let kinds = hashed(&self.plan, place.spread)?;
        let parts = parts(&self.plan, &kinds);
        let counts = if self.plan.count { parts.len() } else { 0 };
        let counters = (0..counts).map(|_| place.backend.create_counter().map_err(failed));
        let counters: Vec<FlowCounter> = counters.collect::<Result<_, _>>()?;
        let tag = match self.plan.mark {
            Some(mark) => flow_tag(mark),
            None => self.plan.flag.then_some(FLOW_TAG_FLAG),
        };
        let target = Target::new(&self.plan.fate, place)?;
        let mut made = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let items = part.specs(place.backend.name() == "devx")?;
            let action = target.action(part, place)?;
            let rule = FlowRule {
                items: &items,
                // The port has checked the priority against what is stated.
                priority: self.plan.priority as u16 * LEVELS + part.level(),
                action,
                tag,
                counter: counters.get(index),
            };
            made.push(place.backend.create_flow(&rule).map_err(failed)?);
        }
        self.counters = counters;
        Ok(made)
    }
}

/// Where the parts of a rule lead.
enum Target {
    Nowhere,
    Queues {
        /// All of them, in a table.
        table: NumberedObject,
        table_log2: u8,
        /// The first of them alone: packets of no hashed kind.
        first: NumberedObject,
        key: [u8; HASH_KEY_BYTES],
    },
}

impl Target {
    fn new(fate: &FlowFate, place: &Place<'_>) -> Result<Self, PortError> {
        let queue = |number: pollux_port::QueueId| {
            let found = place.queues.get(usize::from(number.0)).and_then(Option::as_ref);
            found.ok_or_else(|| refuse("queue", &format!("rx queue {number} is not set up")))
        };
        let single = |number| place.backend.create_table(&[queue(number)?]).map_err(failed);
        match fate {
            FlowFate::Queue(number) => {
                let table = single(*number)?;
                Ok(Self::Queues { first: table.clone(), table, table_log2: 0, key: place.spread.key })
            }
            FlowFate::Rss(rss) => {
                let numbers = table_of(rss);
                let queues: Vec<&NumberedObject> =
                    numbers.iter().map(|number| queue(*number)).collect::<Result<_, _>>()?;
                let key = rss.key.as_deref().and_then(|key| key.try_into().ok());
                Ok(Self::Queues {
                    table: place.backend.create_table(&queues).map_err(failed)?,
                    table_log2: numbers.len().ilog2() as u8,
                    first: single(rss.queues[0])?,
                    key: key.unwrap_or(place.spread.key),
                })
            }
            _ => Ok(Self::Nowhere),
        }
    }

    fn action(&self, part: &Part, place: &Place<'_>) -> Result<FlowAction, PortError> {
        match self {
            Self::Nowhere => Ok(FlowAction::Drop),
            Self::Queues { table, table_log2, first, key } => {
                let hash = HashSpec { fields: part.fields, key: *key, merge: place.spread.merge };
                let (table, log2) = if part.fields == 0 { (first, 0) } else { (table, *table_log2) };
                let queue = place.backend.create_hash(&hash, table, log2).map_err(failed)?;
                Ok(FlowAction::Queue(queue.object))
            }
        }
    }
}

/// The queues of an action as a table: a power of two of them, or as many as the port's own table has where they are none.
fn table_of(rss: &FlowRss) -> Vec<pollux_port::QueueId> {
    let count = rss.queues.len();
    let entries = if count.is_power_of_two() { count } else { count.next_power_of_two().max(TABLE_ENTRIES) };
    rss.queues.iter().copied().cycle().take(entries).collect()
}

/// The kinds that a rule hashes apart.
fn hashed(plan: &FlowPlan, spread: &SpreadSpec) -> Result<Vec<(Kind, u64)>, PortError> {
    match &plan.fate {
        FlowFate::Rss(rss) if rss.fields.is_empty() => Ok(spread.kinds.clone()),
        FlowFate::Rss(rss) => rss::kinds(rss.fields),
        _ => Ok(Vec::new()),
    }
}

fn refuse(action: &'static str, reason: &str) -> PortError {
    PortError::flow(FlowPart::Action(None, action), reason)
}

fn failed(error: MlxError) -> PortError {
    PortError::device("use a flow rule", error)
}
