//! Rules of steering, which the kernel takes in the firmware's own words; with the firmware's objects and with the kernel's.

use std::sync::Arc;

use pollux_mlx5_abi::kernel::{attribute, flow_flag, flow_type, method, object};
use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Value};

use super::matching::{self, IpVersions};
use crate::eth::backend::{FlowAction, FlowRule};
use pollux_mlx5_common::MlxError;
use pollux_mlx5_common::context::Device;
use pollux_mlx5_common::firmware::handle_of;
use pollux_mlx5_common::object::{Id, Object};

/// Makes a rule. `versions` is asked where it has a header of IP.
pub(super) fn create(
    device: &Arc<Device>,
    rule: &FlowRule<'_>,
    versions: impl FnOnce() -> Result<IpVersions, MlxError>,
) -> Result<Object, MlxError> {
    use attribute::create_flow as a;
    let (mask, value, criteria) = matching::parameters(rule.items, versions)?;
    let matcher = matcher(device, &mask, criteria, rule.priority)?;
    let counters = rule.counter.map(|counter| handle_of(&counter.object).to_ne_bytes());
    let mut call = Call::named(id::flow::OBJECT, method::flow::CREATE_FLOW, "FLOW/CREATE_FLOW");
    call.new_object(a::HANDLE).bytes(a::MATCH_VALUE, &value).object(a::MATCHER, handle_of(&matcher));
    let mut over = vec![matcher];
    match &rule.action {
        FlowAction::Queue(queue) => {
            over.push(queue.clone());
            call.object(a::DEST_DEVX, handle_of(queue))
        }
        FlowAction::Drop => call.u32(a::FLAGS, flow_flag::DROP),
        FlowAction::Kernel => call.u32(a::FLAGS, flow_flag::DEFAULT_MISS),
    };
    if let Some(tag) = rule.tag {
        call.u32(a::TAG, tag);
    }
    if let Some(counters) = &counters {
        call.bytes(a::ARR_COUNTERS_DEVX, counters);
    }
    over.extend(rule.counter.map(|counter| counter.object.clone()));
    let made = device.context().call(&mut call).and_then(|()| call.created(a::HANDLE));
    let handle = made.map_err(|error| device.failed("create a flow rule", error))?;
    Ok(Object::over(device, Id::Mlx5Flow(handle), over))
}

/// Makes a matcher: which bits of packets count, and when rules with them are looked at.
fn matcher(device: &Arc<Device>, mask: &[u8], criteria: u8, priority: u16) -> Result<Object, MlxError> {
    use attribute::flow_matcher_create as a;
    let (priority, criteria) = (priority.to_ne_bytes(), [criteria]);
    let mut call = Call::named(object::FLOW_MATCHER, method::flow_matcher::CREATE, "FLOW_MATCHER/CREATE");
    call.new_object(a::CREATE_HANDLE)
        .bytes(a::MATCH_MASK, mask)
        .attribute(a::FLOW_TYPE, Value::Element(flow_type::NORMAL as u8, &priority))
        .bytes(a::MATCH_CRITERIA, &criteria);
    let made = device.context().call(&mut call).and_then(|()| call.created(a::CREATE_HANDLE));
    let handle = made.map_err(|error| device.failed("create a flow matcher", error))?;
    Ok(Object::new(device, Id::Matcher(handle)))
}
