//! Flow rules of verbs. Source: Linux `drivers/infiniband/core/uverbs_cmd.c`, `ib_uverbs_ex_create_flow`;
//! `drivers/infiniband/hw/mlx5/fs.c`, `mlx5_ib_create_flow`.

mod spec;

use std::sync::{Arc, PoisonError};

use pollux_mlx5_abi::command::flow::action;
use pollux_uverbs::abi::flags::{FlowFlags, FlowType};
use pollux_uverbs::abi::flow::{CreateFlow, CreateFlowResp, DestroyFlow, FlowAttr};
use pollux_uverbs::flow::SPECS_MAX;
use pollux_uverbs::{Errno, WriteCall};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::handle::{Object, ObjectKind};
use crate::port::PORT;
use crate::qp::Qp;
use crate::session::Session;
use crate::steering::{
    Direction, LEFTOVERS, MULTICAST, Match, PRIORITIES, Rule, RuleKey, Target, criteria_of,
};
use crate::udata;
use spec::Parsed;

/// Longest spec. Source: Linux `drivers/infiniband/core/uverbs.h`, `struct ib_uverbs_flow_spec`.
const SPEC_BYTES_MAX: usize = 88;

/// A flow rule: the entries that it is made of.
#[derive(Debug)]
pub(crate) struct Flow {
    rules: Vec<RuleKey>,
}

impl Flow {
    pub(crate) fn new(rules: Vec<RuleKey>) -> Self {
        Self { rules }
    }
}

impl Object for Flow {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Flow
    }

    fn end(&mut self, core: &Core, _: u16) -> Result<(), Errno> {
        let mut steering = core.steering.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(rule) = self.rules.last() {
            steering.remove(core, rule)?;
            self.rules.pop();
        }
        Ok(())
    }
}

impl Session {
    /// `EX_CREATE_FLOW`.
    pub(crate) fn create_flow(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: CreateFlow = command.request()?;
        let specs = &command.core_in[size_of::<CreateFlow>()..];
        let attr = request.flow_attr;
        let flags = FlowFlags::from_bits(attr.flags).ok_or(Errno::EINVAL)?;
        let kind = FlowType(attr.type_);
        if request.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        if self.core.profile.no_net_raw {
            return Err(Errno::EPERM);
        }
        let default = kind == FlowType::ALL_DEFAULT || kind == FlowType::MC_DEFAULT;
        let count = usize::from(attr.num_of_specs);
        let bytes = usize::from(attr.size);
        if flags.contains(FlowFlags::DONT_TRAP) && default
            || count > SPECS_MAX
            || bytes > specs.len()
            || bytes > count * SPEC_BYTES_MAX
            || attr.reserved != [0; 2]
        {
            return Err(Errno::EINVAL);
        }
        let tirn = self.handles.get::<Qp>(request.qp_handle)?.tirn().ok_or(Errno::EINVAL)?;
        let parsed = spec::parse(&specs[..bytes], count, self.core.caps.matched())?;
        let mut parents = vec![request.qp_handle];
        let counter = match parsed.counters {
            Some(handle) => {
                parents.push(handle);
                Some(self.bind_counters(handle, command.driver_in)?)
            }
            None if udata::is_cleared(command.driver_in) => None,
            None => return Err(Errno::EOPNOTSUPP),
        };
        let core = Arc::clone(&self.core);
        let rules = rules(&attr, kind, flags, &parsed, tirn, counter)?;
        let mut flow = Flow::new(Vec::with_capacity(rules.len()));
        for rule in &rules {
            let added = core.steering.lock().unwrap_or_else(PoisonError::into_inner).add(&core, rule);
            match added {
                Ok(key) => flow.rules.push(key),
                Err(errno) => {
                    let _ = flow.end(&core, self.uid());
                    return Err(errno);
                }
            }
        }
        let flow_handle = self.handles.add(flow, &parents);
        command.core_out.write(CreateFlowResp { comp_mask: 0, flow_handle }.as_bytes());
        Ok(())
    }

    /// `EX_DESTROY_FLOW`.
    pub(crate) fn write_destroy_flow(&mut self, command: &mut WriteCall<'_>) -> Result<(), Errno> {
        let request: DestroyFlow = command.request()?;
        if request.comp_mask != 0 {
            return Err(Errno::EINVAL);
        }
        self.destroy::<Flow>(request.flow_handle).map(drop)
    }
}

/// The entries that a rule is made of.
fn rules(
    attr: &FlowAttr,
    kind: FlowType,
    flags: FlowFlags,
    parsed: &Parsed,
    tirn: u32,
    counter: Option<u32>,
) -> Result<Vec<Rule>, Errno> {
    if attr.priority >= PRIORITIES {
        return Err(Errno::ENOMEM);
    }
    if u64::from(attr.port) > PORT {
        return Err(Errno::EINVAL);
    }
    let egress = flags.contains(FlowFlags::EGRESS);
    let dont_trap = flags.contains(FlowFlags::DONT_TRAP);
    let mut rule = Rule {
        direction: Direction::Receive,
        place: 0,
        enable: criteria_of(&parsed.mask),
        mask: parsed.mask.clone(),
        value: parsed.value.clone(),
        tag: parsed.tag,
        action: if parsed.drops { action::DROP } else { 0 },
        targets: Vec::new(),
        counter,
        changes: Vec::new(),
    };
    if parsed.drops {
        rule.targets.push(Target::Nothing);
    } else {
        rule.targets.push(Target::Tir(tirn));
        if dont_trap {
            rule.targets.push(Target::Next);
        }
    }
    match kind {
        FlowType::NORMAL => {
            // Only rules of IPsec are known for what is sent, and those not here.
            if egress {
                return Err(Errno::EINVAL);
            }
            rule.place = if parsed.multicast_only && !dont_trap {
                MULTICAST
            } else {
                attr.priority * 2 + u16::from(!dont_trap)
            };
            Ok(vec![rule])
        }
        FlowType::ALL_DEFAULT | FlowType::MC_DEFAULT => {
            if egress || rule.tag.is_some() {
                return Err(Errno::EINVAL);
            }
            // What the rule itself says does not matter: all multicasts, and for the first kind all the rest.
            let leftovers = |multicast: bool| {
                let (mut mask, mut value): (Box<Match>, Box<Match>) =
                    (Box::new([0; 512]), Box::new([0; 512]));
                spec::destination_bit(&mut mask, true);
                spec::destination_bit(&mut value, multicast);
                Rule {
                    place: LEFTOVERS,
                    enable: criteria_of(&mask),
                    mask,
                    value,
                    action: 0,
                    counter: None,
                    targets: vec![Target::Tir(tirn)],
                    ..rule.clone()
                }
            };
            let mut rules = vec![leftovers(true)];
            if kind == FlowType::ALL_DEFAULT {
                rules.push(leftovers(false));
            }
            Ok(rules)
        }
        // What the rule itself says does not matter: a copy of all that the port receives and sends.
        FlowType::SNIFFER => {
            if egress {
                return Err(Errno::EINVAL);
            }
            let copies = |direction| Rule {
                direction,
                place: 0,
                enable: 0,
                mask: Box::new([0; 512]),
                value: Box::new([0; 512]),
                tag: None,
                action: 0,
                targets: vec![Target::Tir(tirn)],
                counter: None,
                changes: Vec::new(),
            };
            Ok(vec![copies(Direction::ReceiveCopy), copies(Direction::SendCopy)])
        }
        _ => Err(Errno::EINVAL),
    }
}
