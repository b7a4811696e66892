//! Changes that the kernel takes by netlink alone, or takes there with less harm: flags of an interface one by one, and
//! unicast addresses beside its own.
//!
//! Source: rtnetlink(7); DPDK `drivers/common/mlx5/linux/mlx5_nl.c` for what a ConnectX function understands.

use std::fs::File;
use std::io::{self, Read, Write};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Interface;
use crate::sys;

impl Interface {
    /// Lets it take frames to every address, or no more.
    ///
    /// # Errors
    /// The kernel's; `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_promiscuous(&self, on: bool) -> io::Result<()> {
        request(0, link_flag(self.index, LinkFlags::Promisc, on))
    }

    /// Lets it take all multicast frames, or no more.
    ///
    /// # Errors
    /// The kernel's; `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_all_multicast(&self, on: bool) -> io::Result<()> {
        request(0, link_flag(self.index, LinkFlags::Allmulti, on))
    }

    /// Lets it take frames to a further address or group, or no more. The answer is whether it was otherwise before.
    ///
    /// # Errors
    /// The kernel's; `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP` where the interface has no list of addresses.
    pub fn set_further_mac(&self, mac: [u8; 6], wanted: bool) -> io::Result<bool> {
        let entry = neighbour(self.index, mac);
        let done = if wanted {
            request(NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewNeighbour(entry))
        } else {
            request(0, RouteNetlinkMessage::DelNeighbour(entry))
        };
        match done {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOENT)) => Ok(false),
            other => other.map(|()| true),
        }
    }
}

/// The flag's new value, and that only it changes.
fn link_flag(index: i32, flag: LinkFlags, on: bool) -> RouteNetlinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index.cast_unsigned();
    link.header.flags = if on { flag } else { LinkFlags::empty() };
    link.header.change_mask = flag;
    RouteNetlinkMessage::NewLink(link)
}

/// The address, in the interface's own table.
fn neighbour(index: i32, mac: [u8; 6]) -> NeighbourMessage {
    let mut entry = NeighbourMessage::default();
    entry.header.family = AddressFamily::Bridge;
    entry.header.ifindex = index.cast_unsigned();
    entry.header.state = NeighbourState::Permanent;
    entry.header.flags = NeighbourFlags::Own;
    entry.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.to_vec()));
    entry
}

fn bytes(flags: u16, message: RouteNetlinkMessage) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Sends a request and takes its acknowledgement.
fn request(flags: u16, message: RouteNetlinkMessage) -> io::Result<()> {
    // A socket that is not connected writes to the kernel.
    let mut socket = File::from(sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?);
    socket.write_all(&bytes(flags, message))?;
    let mut room = [0; 4096];
    let bytes = socket.read(&mut room)?;
    acknowledged(&room[..bytes])
}

fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer)
        .map_err(|why| io::Error::other(format!("the kernel's answer makes no sense: {why}")))?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_none() => Ok(()),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::Error::other("the kernel's answer is no acknowledgement")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the C structs of `include/uapi/linux/{netlink,rtnetlink,neighbour}.h`, by hand (little-endian hosts).
    #[test]
    #[cfg(target_endian = "little")]
    fn messages_are_laid_out_as_the_kernel_reads_them() {
        let expected = [
            [32, 0, 0, 0, 16, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0],
        ]
        .concat();
        assert_eq!(bytes(0, link_flag(7, LinkFlags::Promisc, true)), expected);
        let entry = neighbour(7, [2, 0, 0, 0, 0, 1]);
        let add = bytes(NLM_F_CREATE | NLM_F_EXCL, RouteNetlinkMessage::NewNeighbour(entry.clone()));
        assert_eq!((add.len(), add[0], add[4], add[6], add[7]), (40, 40, 28, 5, 6));
        assert_eq!(add[16..], [7, 0, 0, 0, 7, 0, 0, 0, 0x80, 0, 2, 0, 10, 0, 2, 0, 2, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(bytes(0, RouteNetlinkMessage::DelNeighbour(entry))[4..8], [29, 0, 5, 0]);
    }

    #[test]
    fn an_answer_is_an_error_or_none() {
        // `struct nlmsgerr`: the code, and the header of what it answers.
        let answer = |code: i32| {
            let head =
                [36_u32.to_ne_bytes(), (2_u32).to_ne_bytes(), [0; 4], [0; 4], code.to_ne_bytes()].concat();
            [head, bytes(0, link_flag(7, LinkFlags::Promisc, true))[..16].to_vec()].concat()
        };
        acknowledged(&answer(0)).expect("done");
        let refused = acknowledged(&answer(-libc::EPERM)).expect_err("refused");
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        acknowledged(&answer(0)[..18]).expect_err("cut off");
        acknowledged(&[]).expect_err("nothing");
        acknowledged(&bytes(0, link_flag(7, LinkFlags::Promisc, true))).expect_err("no acknowledgement");
    }
}
