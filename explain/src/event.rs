//! Events that a program reads, in words.

use pollux_uverbs::abi::device::{AsyncEventDesc, CompEventDesc};
use pollux_uverbs::event::AsyncKind;
use zerocopy::FromBytes;

use crate::names::Names;

/// An event in one line. Their lengths tell the kinds apart.
pub(crate) fn said(bytes: &[u8], names: &mut Names) -> String {
    if let Ok(event) = CompEventDesc::read_from_bytes(bytes) {
        return format!("completion event of completion queue {}", names.address(event.cq_handle));
    }
    match AsyncEventDesc::read_from_bytes(bytes) {
        Ok(event) => {
            let kind = AsyncKind(event.event_type);
            format!("asynchronous event {kind} of {:?} {}", kind.subject(), names.address(event.element))
        }
        Err(_) => format!("event of {} bytes", bytes.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_by_their_kind() {
        let mut names = Names::new(false);
        let said = |bytes: &[u8], names: &mut Names| super::said(bytes, names);
        assert_eq!(
            said(&0x1000_u64.to_ne_bytes(), &mut names),
            "completion event of completion queue 0x1000"
        );
        let port = [&1_u64.to_ne_bytes()[..], &10_u32.to_ne_bytes(), &[0; 4]].concat();
        assert_eq!(said(&port, &mut names), "asynchronous event PORT_ERR of Port 0x1");
        let unknown = [&1_u64.to_ne_bytes()[..], &99_u32.to_ne_bytes(), &[0; 4]].concat();
        assert_eq!(said(&unknown, &mut names), "asynchronous event event 99 of Device 0x1");
        assert_eq!(said(&[], &mut names), "event of 0 bytes");
    }
}
