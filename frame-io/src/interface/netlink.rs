//! Changes that the kernel takes by netlink alone, or takes there with less harm: flags of an interface one by one, and
//! unicast addresses beside its own.
//!
//! Source: Linux `include/uapi/linux/{netlink,rtnetlink,neighbour}.h`; rtnetlink(7); DPDK
//! `drivers/common/mlx5/linux/mlx5_nl.c` for what a ConnectX function understands.

use std::fs::File;
use std::io::{self, Read, Write};

use super::Interface;
use crate::sys;

const RTM_NEWLINK: u16 = 16;
const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;
const NTF_SELF: u8 = 2;
/// Bytes of a message's head.
const HEAD_BYTES: usize = 16;

impl Interface {
    /// Lets it take frames to every address, or no more.
    ///
    /// # Errors
    /// The kernel's; `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_promiscuous(&self, on: bool) -> io::Result<()> {
        self.set_flag(libc::IFF_PROMISC as u32, on)
    }

    /// Lets it take all multicast frames, or no more.
    ///
    /// # Errors
    /// The kernel's; `EPERM` without `CAP_NET_ADMIN`.
    pub fn set_all_multicast(&self, on: bool) -> io::Result<()> {
        self.set_flag(libc::IFF_ALLMULTI as u32, on)
    }

    /// Lets it take frames to a further address, or no more. What is so already is no error.
    ///
    /// # Errors
    /// The kernel's; `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP` where the interface has no list of addresses.
    pub fn set_further_mac(&self, mac: [u8; 6], wanted: bool) -> io::Result<()> {
        match request(&neighbour(self.index, mac, wanted)) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOENT)) => Ok(()),
            other => other,
        }
    }

    fn set_flag(&self, flag: u32, on: bool) -> io::Result<()> {
        request(&link_flag(self.index, flag, on))
    }
}

fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let bytes = (HEAD_BYTES + body.len()) as u32;
    let mut message = bytes.to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK | flags).to_ne_bytes());
    // Sequence and port: one request a socket, and the kernel gives the port.
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// `struct ifinfomsg`: the flag's new value, and that only it changes.
fn link_flag(index: i32, flag: u32, on: bool) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(index.to_ne_bytes());
    body.extend(if on { flag } else { 0 }.to_ne_bytes());
    body.extend(flag.to_ne_bytes());
    message(RTM_NEWLINK, 0, &body)
}

/// `struct ndmsg` with the address: an entry of the interface's own table.
fn neighbour(index: i32, mac: [u8; 6], wanted: bool) -> Vec<u8> {
    let mut body = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(NUD_PERMANENT.to_ne_bytes());
    body.extend([NTF_SELF, 0]);
    body.extend(10_u16.to_ne_bytes());
    body.extend(NDA_LLADDR.to_ne_bytes());
    body.extend(mac);
    body.extend([0; 2]);
    match wanted {
        true => message(RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_EXCL, &body),
        false => message(RTM_DELNEIGH, 0, &body),
    }
}

/// Sends a request and takes its acknowledgement.
fn request(message: &[u8]) -> io::Result<()> {
    // A socket that is not connected writes to the kernel.
    let mut socket = File::from(sys::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?);
    socket.write_all(message)?;
    let mut room = [0; 4096];
    let bytes = socket.read(&mut room)?;
    acknowledged(&room[..bytes])
}

fn acknowledged(answer: &[u8]) -> io::Result<()> {
    let nonsense = || io::Error::other("the kernel's answer makes no sense");
    let kind = answer.get(4..6).and_then(|bytes| bytes.first_chunk()).ok_or_else(nonsense)?;
    let code = answer.get(HEAD_BYTES..).and_then(|bytes| bytes.first_chunk()).ok_or_else(nonsense)?;
    match (u16::from_ne_bytes(*kind), i32::from_ne_bytes(*code)) {
        (NLMSG_ERROR, 0) => Ok(()),
        (NLMSG_ERROR, code) => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
        _ => Err(nonsense()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the C structs, by hand (little-endian hosts).
    #[test]
    #[cfg(target_endian = "little")]
    fn messages_are_laid_out_as_the_kernel_reads_them() {
        let expected = [
            [32, 0, 0, 0, 16, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 7, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0],
        ]
        .concat();
        assert_eq!(link_flag(7, 0x100, true), expected);
        let add = neighbour(7, [2, 0, 0, 0, 0, 1], true);
        assert_eq!((add.len(), add[0], add[4], add[6], add[7]), (40, 40, 28, 5, 6));
        assert_eq!(add[16..], [7, 0, 0, 0, 7, 0, 0, 0, 0x80, 0, 2, 0, 10, 0, 2, 0, 2, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(neighbour(7, [2, 0, 0, 0, 0, 1], false)[4..8], [29, 0, 5, 0]);
    }

    #[test]
    fn an_answer_is_an_error_or_none() {
        let answer = |code: i32| message(NLMSG_ERROR, 0, &code.to_ne_bytes());
        acknowledged(&answer(0)).expect("done");
        let refused = acknowledged(&answer(-libc::EPERM)).expect_err("refused");
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
        acknowledged(&answer(0)[..18]).expect_err("cut off");
        acknowledged(&[]).expect_err("nothing");
    }
}
