//! Flow matchers and flows of the driver's own calls. Source: Linux `drivers/infiniband/hw/mlx5/fs.c`,
//! `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`, `MLX5_IB_METHOD_CREATE_FLOW`.

use std::sync::{Arc, PoisonError};

use pollux_mlx5_abi::command::flow::action;
use pollux_mlx5_abi::command::matching::{MatchHeaders, MatchParameters};
use pollux_mlx5_abi::command::opcode;
use pollux_mlx5_abi::kernel::attribute::{create_flow as c, flow_matcher_create as m};
use pollux_mlx5_abi::kernel::verbs::flow_table;
use pollux_mlx5_abi::kernel::{flow_flag, flow_type};
use pollux_uverbs::{Call, Errno, Value};

use crate::devx::object::DevxObject;
use crate::flow::Flow;
use crate::flow_action::FlowAction;
use crate::handle::{Object, ObjectKind};
use crate::qp::Qp;
use crate::session::Session;
use crate::steering::{Direction, MULTICAST, Match, PRIORITIES, PacketChange, Rule, Target};
use crate::udata;

/// Longest mask or value that the driver's call takes. Source: rdma-core
/// `kernel-headers/rdma/mlx5_user_ioctl_cmds.h`, `MLX5_IB_DW_MATCH_PARAM`.
const MATCH_BYTES_MAX: usize = pollux_mlx5_abi::kernel::MATCH_DWORDS * 4;

/// Most objects that a flow names which do something to packets. Source: Linux `drivers/infiniband/hw/mlx5/fs.c`,
/// `MLX5_IB_CREATE_FLOW_MAX_FLOW_ACTIONS`.
const FLOW_ACTIONS_MAX: usize = 2;

/// Bit of a matcher's flags: what is sent. Source: Linux `include/rdma/ib_verbs.h`, `IB_FLOW_ATTR_FLAGS_EGRESS`.
const EGRESS: u64 = 1 << 2;

/// A matcher: what flows made with it look at.
#[derive(Debug)]
pub(crate) struct Matcher {
    mask: Box<Match>,
    enable: u8,
    kind: u32,
    priority: u16,
    direction: Direction,
}

impl Object for Matcher {
    fn kind(&self) -> ObjectKind {
        ObjectKind::Matcher
    }
}

impl Session {
    /// `FLOW_MATCHER/CREATE`.
    pub(crate) fn create_matcher(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        let mask = whole(call.input(m::MATCH_MASK).unwrap_or_default())?;
        let enable: u8 = call.input_as(m::MATCH_CRITERIA)?;
        let Some(Value::Element(kind, data)) = call.find(m::FLOW_TYPE).map(|attribute| &attribute.value)
        else {
            return Err(Errno::EINVAL);
        };
        let kind = u32::from(*kind);
        let priority = match kind {
            flow_type::NORMAL => {
                let bytes = data.first_chunk::<2>().ok_or(Errno::EINVAL)?;
                u16::from_ne_bytes(*bytes)
            }
            flow_type::SNIFFER | flow_type::ALL_DEFAULT | flow_type::MC_DEFAULT => 0,
            _ => return Err(Errno::EINVAL),
        };
        let (by_type, by_flags) = (call.find(m::FT_TYPE).is_some(), call.find(m::FLOW_FLAGS).is_some());
        let direction = match (by_type, by_flags) {
            (true, true) => return Err(Errno::EINVAL),
            (true, false) => match call.number(m::FT_TYPE)? {
                flow_table::NIC_RX => Direction::Receive,
                flow_table::NIC_TX => Direction::Send,
                flow_table::FDB | flow_table::RDMA_RX | flow_table::RDMA_TX => return Err(Errno::EOPNOTSUPP),
                _ => return Err(Errno::EINVAL),
            },
            (false, true) => match call.number(m::FLOW_FLAGS)? {
                0 => Direction::Receive,
                EGRESS => Direction::Send,
                _ => return Err(Errno::EINVAL),
            },
            (false, false) => Direction::Receive,
        };
        let matcher = Matcher { mask, enable, kind, priority, direction };
        let handle = self.handles.add(matcher, &[]);
        call.create(m::CREATE_HANDLE, handle)
    }

    /// The driver's `FLOW/CREATE_FLOW`.
    pub(crate) fn create_raw_flow(&mut self, call: &mut Call<'_>) -> Result<(), Errno> {
        if self.core.profile.no_net_raw {
            return Err(Errno::EPERM);
        }
        let matcher_handle = call.handle(c::MATCHER)?;
        let matcher = self.handles.get::<Matcher>(matcher_handle)?;
        let mut parents = vec![matcher_handle];
        let (drops, targets) = self.destinations(call, matcher, &mut parents)?;
        let value = whole(call.input(c::MATCH_VALUE).unwrap_or_default())?;
        let counter = self.devx_counter(call, &mut parents)?;
        let changes = self.changes(call, &mut parents)?;
        let tag = match call.find(c::TAG) {
            Some(_) => Some(call.number(c::TAG)?).filter(|tag| *tag < 1 << 24).map(|tag| tag as u32),
            None => None,
        };
        if call.find(c::TAG).is_some() && tag.is_none() {
            return Err(Errno::EINVAL);
        }
        if matcher.kind != flow_type::NORMAL {
            return Err(Errno::EOPNOTSUPP);
        }
        if matcher.priority >= PRIORITIES {
            return Err(Errno::ENOMEM);
        }
        let sends = matcher.direction == Direction::Send;
        let rule = Rule {
            direction: matcher.direction,
            place: if is_multicast(matcher, &value) { MULTICAST } else { matcher.priority * 2 + 1 },
            enable: matcher.enable,
            mask: matcher.mask.clone(),
            value,
            tag,
            action: match (drops, sends) {
                (true, _) => action::DROP,
                (false, true) => action::ALLOW,
                (false, false) => 0,
            },
            targets: if targets.is_empty() { vec![Target::Nothing] } else { targets },
            counter,
            changes,
        };
        let core = Arc::clone(&self.core);
        let key = core.steering.lock().unwrap_or_else(PoisonError::into_inner).add(&core, &rule)?;
        let handle = self.handles.add(Flow::new(vec![key]), &parents);
        call.create(c::HANDLE, handle)
    }

    /// Whether a flow drops, and where it leads otherwise.
    fn destinations(
        &self,
        call: &Call<'_>,
        matcher: &Matcher,
        parents: &mut Vec<u32>,
    ) -> Result<(bool, Vec<Target>), Errno> {
        let devx = call.find(c::DEST_DEVX).map(|_| call.handle(c::DEST_DEVX)).transpose()?;
        let qp = call.find(c::DEST_QP).map(|_| call.handle(c::DEST_QP)).transpose()?;
        let flags = if call.find(c::FLAGS).is_some() { call.number(c::FLAGS)? } else { 0 };
        let known = u64::from(flow_flag::DEFAULT_MISS | flow_flag::DROP);
        if flags & !known != 0 || flags == known {
            return Err(Errno::EINVAL);
        }
        if matcher.direction == Direction::Receive
            && usize::from(devx.is_some()) + usize::from(qp.is_some()) + usize::from(flags != 0) > 1
        {
            return Err(Errno::EINVAL);
        }
        if flags == u64::from(flow_flag::DEFAULT_MISS) {
            return Ok((false, vec![Target::Kernel]));
        }
        let drops = flags != 0;
        let target = if let Some(handle) = devx {
            parents.push(handle);
            let (made_by, number) = self.handles.get::<DevxObject>(handle)?.identity();
            match made_by {
                opcode::CREATE_TIR => Target::Tir(number),
                opcode::CREATE_FLOW_TABLE => Target::Table(number),
                _ => return Err(Errno::EINVAL),
            }
        } else if let Some(handle) = qp {
            parents.push(handle);
            Target::Tir(self.handles.get::<Qp>(handle)?.tirn().ok_or(Errno::EINVAL)?)
        } else {
            return Ok((drops, Vec::new()));
        };
        if matcher.direction == Direction::Send && matches!(target, Target::Tir(_)) {
            return Err(Errno::EINVAL);
        }
        Ok((drops, vec![target]))
    }

    /// What a flow does to packets: objects of different kinds.
    fn changes(&self, call: &Call<'_>, parents: &mut Vec<u32>) -> Result<Vec<PacketChange>, Errno> {
        let list = call.input(c::ARR_FLOW_ACTIONS).unwrap_or_default();
        let (handles, rest) = list.as_chunks::<4>();
        if !rest.is_empty() || handles.len() > FLOW_ACTIONS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut changes: Vec<PacketChange> = Vec::new();
        for handle in handles.iter().map(|bytes| u32::from_ne_bytes(*bytes)) {
            let change = self.handles.get::<FlowAction>(handle)?.change();
            if changes.iter().any(|other| other.bit() == change.bit()) {
                return Err(Errno::EINVAL);
            }
            changes.push(change);
            parents.push(handle);
        }
        Ok(changes)
    }

    /// The counter that a flow names: one object, and which of its many.
    fn devx_counter(&self, call: &Call<'_>, parents: &mut Vec<u32>) -> Result<Option<u32>, Errno> {
        let list = call.input(c::ARR_COUNTERS_DEVX).unwrap_or_default();
        let handles = list.as_chunks::<4>().0;
        let Some(first) = handles.first() else { return Ok(None) };
        if handles.len() > 1 || list.len() != 4 {
            return Err(Errno::EINVAL);
        }
        let handle = u32::from_ne_bytes(*first);
        let object = self.handles.get::<DevxObject>(handle)?;
        let offset = match call.input(c::ARR_COUNTERS_DEVX_OFFSET) {
            Some(bytes) if bytes.len() == 4 => call.input_as(c::ARR_COUNTERS_DEVX_OFFSET)?,
            Some(_) => return Err(Errno::EINVAL),
            None => 0_u32,
        };
        let (made_by, number) = object.identity();
        if made_by != opcode::ALLOC_FLOW_COUNTER || (offset != 0 && offset >= object.bulk()) {
            return Err(Errno::EINVAL);
        }
        parents.push(handle);
        number.checked_add(offset).map(Some).ok_or(Errno::EINVAL)
    }
}

/// A mask or value of whatever length the program knows.
fn whole(bytes: &[u8]) -> Result<Box<Match>, Errno> {
    if bytes.len() > MATCH_BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    // Parts that the device's commands here do not carry must not be asked for.
    if !udata::is_cleared(bytes.get(MatchParameters::BYTES..).unwrap_or_default()) {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut whole = Box::new([0; MatchParameters::BYTES]);
    let count = bytes.len().min(whole.len());
    whole[..count].copy_from_slice(&bytes[..count]);
    Ok(whole)
}

/// Source: Linux `drivers/infiniband/hw/mlx5/fs.c`, `raw_fs_is_multicast`.
fn is_multicast(matcher: &Matcher, value: &Match) -> bool {
    if matcher.enable & 1 == 0 || matcher.direction == Direction::Send {
        return false;
    }
    let mask = MatchParameters::OUTER_HEADERS.of(&matcher.mask);
    let value = MatchParameters::OUTER_HEADERS.of(value);
    let both = |bit: &dyn Fn(&[u8; MatchHeaders::BYTES]) -> bool| bit(mask) && bit(value);
    both(&|side| MatchHeaders::DMAC.get(side) >> 40 & 1 != 0)
        || both(&|side| MatchHeaders::DST_IPV4.get(side) >> 28 == 0xe)
}
