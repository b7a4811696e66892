//! Rules of steering, which the kernel takes in the firmware's own words.

use pollux_mlx5_abi::kernel::{attribute, flow_flag, flow_type, method, object};
use pollux_uverbs::abi::id;
use pollux_uverbs::{Call, Value};

use crate::MlxError;
use crate::firmware::{Firmware, handle_of};
use crate::object::{Id, Object};

/// Where packets that match a rule go.
pub(super) enum Dropping<'a> {
    /// Nowhere.
    Yes,
    /// To a TIR.
    No(&'a Object),
}

impl Firmware {
    /// Makes a matcher: which bits of packets count, and when rules with them are looked at.
    pub(super) fn matcher(&self, mask: &[u8], criteria: u8, priority: u16) -> Result<Object, MlxError> {
        use attribute::flow_matcher_create as a;
        let (priority, criteria) = (priority.to_ne_bytes(), [criteria]);
        let mut call = Call::named(object::FLOW_MATCHER, method::flow_matcher::CREATE, "FLOW_MATCHER/CREATE");
        call.new_object(a::CREATE_HANDLE)
            .bytes(a::MATCH_MASK, mask)
            .attribute(a::FLOW_TYPE, Value::Element(flow_type::NORMAL as u8, &priority))
            .bytes(a::MATCH_CRITERIA, &criteria);
        let made = self.device().context().call(&mut call).and_then(|()| call.created(a::CREATE_HANDLE));
        let handle = made.map_err(|error| self.device().failed("make a flow matcher", error))?;
        Ok(Object::new(self.device(), Id::Matcher(handle)))
    }

    /// Makes a rule; its handle.
    pub(super) fn flow(
        &self,
        matcher: &Object,
        value: &[u8],
        target: Dropping<'_>,
        tag: Option<u32>,
        counter: Option<&Object>,
    ) -> Result<u32, MlxError> {
        use attribute::create_flow as a;
        let counters = counter.map(|counter| handle_of(counter).to_ne_bytes());
        let mut call = Call::named(id::flow::OBJECT, method::flow::CREATE_FLOW, "FLOW/CREATE_FLOW");
        call.new_object(a::HANDLE).bytes(a::MATCH_VALUE, value).object(a::MATCHER, handle_of(matcher));
        match target {
            Dropping::No(queue) => call.object(a::DEST_DEVX, handle_of(queue)),
            Dropping::Yes => call.u32(a::FLAGS, flow_flag::DROP),
        };
        if let Some(tag) = tag {
            call.u32(a::TAG, tag);
        }
        if let Some(counters) = &counters {
            call.bytes(a::ARR_COUNTERS_DEVX, counters);
        }
        let made = self.device().context().call(&mut call).and_then(|()| call.created(a::HANDLE));
        made.map_err(|error| self.device().failed("make a flow rule", error))
    }
}
