//! What the control handle checks of the parts that packets are split into.

use super::Port;
use crate::{PortError, RxOffloads, RxQueueConfig, RxSegment, SplitInfo};

impl Port {
    /// Parts are what the port can do, were asked for by the offload, and fit into their mbufs.
    pub(super) fn check_segments(
        &self,
        config: &RxQueueConfig,
        offloads: RxOffloads,
        scatter: Option<bool>,
    ) -> Result<(), PortError> {
        let segments = &config.segments;
        if segments.is_empty() {
            return Ok(());
        }
        let Some(info) = self.info.split else {
            let reason = "the port has no way to split packets";
            return Err(PortError::unsupported("rx segments", reason).named(&self.name));
        };
        let wrong = |value: String, expected: &str| PortError::Argument {
            port: self.name.to_string(),
            key: "rx segments".into(),
            value,
            expected: expected.into(),
        };
        if !offloads.contains(RxOffloads::BUFFER_SPLIT) {
            let expected =
                "ask for the rx offload BUFFER_SPLIT of this queue or of the port, or leave them out";
            return Err(wrong(segments.len().to_string(), expected));
        }
        if scatter == Some(false) {
            let expected = "scatter is off, and the parts of a packet are a chain: leave one of the two out";
            return Err(wrong(segments.len().to_string(), expected));
        }
        self.within("rx segments", segments.len() as u64, 1, info.max_segments.into())?;
        let Some(first) = segments.iter().find_map(|segment| segment.pool.as_ref()) else {
            return Err(wrong("no pool".into(), "at least one part must have a pool"));
        };
        let other =
            |segment: &RxSegment| segment.pool.as_ref().is_some_and(|pool| pool.name() != first.name());
        if !info.multi_pools && segments.iter().any(other) {
            let reason = "all parts of a packet come from one pool";
            return Err(PortError::unsupported("rx segments of several pools", reason).named(&self.name));
        }
        for (at, segment) in segments.iter().enumerate() {
            self.check_segment(at, segment, &info)?;
        }
        Ok(())
    }

    fn check_segment(&self, at: usize, segment: &RxSegment, info: &SplitInfo) -> Result<(), PortError> {
        let wrong = |expected: String| PortError::Argument {
            port: self.name.to_string(),
            key: format!("rx segment {at}"),
            value: format!("length {}, offset {}", segment.length, segment.offset),
            expected,
        };
        let Some(pool) = &segment.pool else {
            if !info.selective {
                let reason = "the port receives all of a packet or nothing of it";
                return Err(PortError::unsupported("rx segment without a pool", reason).named(&self.name));
            }
            return Ok(());
        };
        if segment.offset != 0 && !info.offsets {
            let reason = "data begins where an mbuf's room does";
            return Err(PortError::unsupported("rx segment with an offset", reason).named(&self.name));
        }
        if !segment.offset.is_multiple_of(info.offset_align.max(1)) {
            return Err(wrong(format!("its offset must be a multiple of {}", info.offset_align)));
        }
        let headroom = if at == 0 { pool.headroom() } else { 0 };
        let room = pool.data_room().saturating_sub(headroom + usize::from(segment.offset));
        if room < usize::from(segment.length).max(1) {
            return Err(wrong(format!(
                "pool {} has {} bytes of room an mbuf, {headroom} of them headroom: that leaves {room} behind the offset",
                pool.name(),
                pool.data_room()
            )));
        }
        Ok(())
    }
}
