//! What requests of NETLINK_ROUTE say, and what is answered.
//!
//! Source: rtnetlink(7), netlink(7).

use std::num::NonZeroI32;

use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage, State};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage};
use pollux_mlx5_model::MTU_MAX;
use pollux_uverbs::Errno;

use super::super::host;
use super::super::letter::ask;
use super::Netdev;
use crate::interface;
use crate::plan::Plan;

/// Least MTU. Source: Linux `include/uapi/linux/if_ether.h`, `ETH_MIN_MTU`.
const MTU_MIN: u32 = 68;

/// What a request is answered with, if it is about an interface of ours; `port` is the number of the socket that it came through.
pub(crate) fn answer(plan: &Plan, bytes: &[u8], port: u32) -> Option<Vec<Vec<u8>>> {
    let request = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).ok()?;
    let header = request.header;
    let NetlinkPayload::InnerMessage(request) = request.payload else { return None };
    let number = subject(plan, &request)?;
    let place = [bytes.as_ptr().expose_provenance() as u64, bytes.len() as u64, port.into()];
    let done = match host::ask_for_bytes(ask::NETLINK, &place) {
        Some(Ok(told)) => return Some(apart(&told)),
        Some(Err(errno)) => Err(errno),
        None => Netdev::of(number).and_then(|netdev| carry_out(&netdev, &request, header.flags)),
    };
    Some(answers(done, header, port, bytes))
}

/// Messages one behind the other, each at a multiple of 4 bytes.
pub(crate) fn together(messages: Vec<Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for message in messages {
        bytes.extend_from_slice(&message);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// Messages that stand one behind the other. Source: netlink(7), `NLMSG_NEXT`.
fn apart(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let Some((length, _)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_ne_bytes(*length) as usize;
        let Some(message) = bytes.get(..length).filter(|_| length >= 16) else { break };
        messages.push(message.to_vec());
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

/// What those who listen are told of an interface that has changed: what they would be told if they asked.
pub(super) fn news(plan: &Plan, number: usize) -> Option<Vec<u8>> {
    let mut link = LinkMessage::default();
    link.header.index = interface::index(number);
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let question = serialized(header, NetlinkPayload::from(RouteNetlinkMessage::GetLink(link)));
    answer(plan, &question, 0)?.into_iter().next()
}

/// The device whose interface a request is about.
fn subject(plan: &Plan, request: &RouteNetlinkMessage) -> Option<usize> {
    use RouteNetlinkMessage as M;
    match request {
        M::GetLink(link) | M::NewLink(link) | M::SetLink(link) | M::DelLink(link) => {
            interface::by_index(plan, link.header.index).or_else(|| {
                link.attributes.iter().find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) if link.header.index == 0 => interface::by_name(plan, name),
                    _ => None,
                })
            })
        }
        M::GetNeighbour(entry) | M::NewNeighbour(entry) | M::DelNeighbour(entry) => {
            interface::by_index(plan, entry.header.ifindex)
        }
        _ => None,
    }
}

/// Does what a request says; the answer to a question.
fn carry_out(
    netdev: &Netdev,
    request: &RouteNetlinkMessage,
    flags: u16,
) -> Result<Option<RouteNetlinkMessage>, Errno> {
    use RouteNetlinkMessage as M;
    match request {
        M::GetLink(_) if flags & NLM_F_DUMP != NLM_F_DUMP => Ok(Some(M::NewLink(link(netdev)))),
        M::NewLink(wanted) | M::SetLink(wanted) => change(netdev, wanted).map(|()| None),
        M::NewNeighbour(entry) => further(netdev, entry, true).map(|()| None),
        M::DelNeighbour(entry) => further(netdev, entry, false).map(|()| None),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

fn link(netdev: &Netdev) -> LinkMessage {
    let device = netdev.model.device();
    let mut link = LinkMessage::default();
    link.header.index = interface::index(netdev.number);
    link.header.link_layer_type = LinkLayerType::Ether;
    let running = netdev.is_running();
    let lower = if running { LinkFlags::LowerUp } else { LinkFlags::empty() };
    link.header.flags = LinkFlags::from_bits_retain(netdev.flags().cast_unsigned()) | lower;
    link.attributes = vec![
        LinkAttribute::IfName(netdev.name()),
        LinkAttribute::OperState(if running { State::Up } else { State::Down }),
        LinkAttribute::Mtu(device.mtu().into()),
        LinkAttribute::MinMtu(MTU_MIN),
        LinkAttribute::MaxMtu(MTU_MAX.into()),
        LinkAttribute::Carrier(running.into()),
        LinkAttribute::Address(device.mac().to_vec()),
        LinkAttribute::Broadcast(vec![0xff; 6]),
        LinkAttribute::PermAddress(netdev.described.mac().to_vec()),
    ];
    link
}

fn change(netdev: &Netdev, wanted: &LinkMessage) -> Result<(), Errno> {
    for attribute in &wanted.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => netdev.set_mtu(i32::try_from(*mtu).map_err(|_| Errno::EINVAL)?)?,
            LinkAttribute::Address(mac) => {
                netdev.set_mac(<[u8; 6]>::try_from(mac.as_slice()).map_err(|_| Errno::EINVAL)?)?;
            }
            LinkAttribute::IfName(_) => {}
            _ => return Err(Errno::EOPNOTSUPP),
        }
    }
    let (mask, flags) = (wanted.header.change_mask.bits(), wanted.header.flags.bits());
    // Without a mask all flags are meant, if any is given.
    let mask = if mask == 0 && flags != 0 { u32::MAX } else { mask };
    if mask != 0 {
        netdev.set_flags((netdev.flags().cast_unsigned() & !mask | flags & mask).cast_signed());
    }
    Ok(())
}

/// A further address, or group, of the port.
fn further(netdev: &Netdev, entry: &NeighbourMessage, wanted: bool) -> Result<(), Errno> {
    let mac = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(mac) => <[u8; 6]>::try_from(mac.as_slice()).ok(),
        _ => None,
    });
    let is_new = netdev.model.device().set_further_mac(mac.ok_or(Errno::EINVAL)?, wanted);
    match (is_new, wanted) {
        (true, _) => Ok(()),
        (false, true) => Err(Errno::EEXIST),
        (false, false) => Err(Errno::ENOENT),
    }
}

/// The messages that a request is answered with: what it asks for, and whether it was done if that was to be said, or was not.
fn answers(
    done: Result<Option<RouteNetlinkMessage>, Errno>,
    request: NetlinkHeader,
    port: u32,
    bytes: &[u8],
) -> Vec<Vec<u8>> {
    let mut told = Vec::new();
    let mut tell = |payload| {
        let mut header = NetlinkHeader::default();
        (header.sequence_number, header.port_number) = (request.sequence_number, port);
        told.push(serialized(header, payload));
    };
    let code = match done {
        Ok(answer) => {
            if let Some(answer) = answer {
                tell(NetlinkPayload::from(answer));
            }
            None
        }
        Err(errno) => NonZeroI32::new(-errno.0),
    };
    if code.is_some() || request.flags & NLM_F_ACK != 0 {
        let mut error = ErrorMessage::default();
        error.code = code;
        error.header = bytes.get(..16).unwrap_or_default().to_vec();
        tell(NetlinkPayload::Error(error));
    }
    told
}

fn serialized(header: NetlinkHeader, payload: NetlinkPayload<RouteNetlinkMessage>) -> Vec<u8> {
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DevicePlan;

    /// Against the C structs of `include/uapi/linux/{netlink,rtnetlink}.h`, by hand (little-endian hosts).
    fn request(kind: u8, flags: u16, index: u32) -> Vec<u8> {
        let head = [32_u32.to_ne_bytes(), [kind, 0, 0, 0], 7_u32.to_ne_bytes(), [0; 4]].concat();
        let link = [[0; 4], index.to_ne_bytes(), [0; 4], [0; 4]].concat();
        let mut bytes = [head, link].concat();
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_request_is_ours_by_the_number_of_the_interface() {
        const GETLINK: u8 = 18;
        let plan = Plan::of_a_test(std::path::Path::new("/nowhere"), vec![DevicePlan::of_a_test("cx5")]);
        let ours = |index| {
            let bytes = request(GETLINK, 1, index);
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&bytes).expect("a request");
            let NetlinkPayload::InnerMessage(message) = message.payload else { panic!("a question") };
            subject(&plan, &message)
        };
        assert_eq!((ours(interface::index(0)), ours(interface::index(1)), ours(1)), (Some(0), None, None));
    }

    #[test]
    fn messages_of_another_process_are_told_apart() {
        let message = |length: u32| {
            let bytes = length.to_ne_bytes().into_iter().chain(5..);
            bytes.take((length as usize).next_multiple_of(4)).collect::<Vec<u8>>()
        };
        let both = [message(18), message(16)].concat();
        assert_eq!(apart(&both), [message(18)[..18].to_vec(), message(16)]);
        assert_eq!(apart(&together(apart(&both))), apart(&both));
        assert!(apart(&message(3)).is_empty(), "too short");
        assert!(apart(&message(40)[..36]).is_empty(), "cut off");
        assert!(apart(&[]).is_empty());
    }

    #[test]
    fn who_asks_to_be_told_is_told_and_others_of_failures_alone() {
        let mut header = NetlinkHeader::default();
        header.sequence_number = 7;
        assert!(answers(Ok(None), header, 9, &[0; 16]).is_empty());
        header.flags = NLM_F_ACK;
        let [done] = &answers(Ok(None), header, 9, &[1; 16])[..] else { panic!("one answer") };
        assert_eq!(done[4..20], [2, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        header.flags = 0;
        let [refused] = &answers(Err(Errno::EINVAL), header, 9, &[1; 16])[..] else { panic!("one answer") };
        assert_eq!(refused[16..20], (-libc::EINVAL).to_ne_bytes());
        assert_eq!(refused[20..36], [1; 16], "what it answers");
    }
}
