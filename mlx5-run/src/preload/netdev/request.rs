//! The ioctls of an interface: a request with its name, and room for the answer behind it.
//!
//! Source: netdevice(7); Linux `include/uapi/linux/if.h`, `struct ifreq`, `include/uapi/linux/sockios.h`.

use libc::c_ulong;
use pollux_uverbs::Errno;

use super::super::client::{self, Client};
use super::super::letter::ask;
use super::super::{host, planned};
use super::{Netdev, ethtool};
use crate::interface;

/// Bytes of a request, and of the name that it begins with.
const BYTES: usize = 40;
const NAME_BYTES: usize = libc::IFNAMSIZ;
/// `ARPHRD_ETHER`, the family of an Ethernet address.
const ETHERNET: u16 = libc::ARPHRD_ETHER;

/// What is answered to a request at that address, if it is about an interface of ours.
pub(crate) fn answer(request: c_ulong, address: u64) -> Option<Result<(), Errno>> {
    // All requests of sockets about interfaces.
    if !(0x8900..0x8a00).contains(&request) {
        return None;
    }
    let plan = planned::plan()?;
    let mut bytes = [0; BYTES];
    client::read(address, &mut bytes).ok()?;
    let number = if request == libc::SIOCGIFNAME {
        interface::by_index(plan, number_of(&bytes).cast_unsigned())?
    } else {
        let name = bytes[..NAME_BYTES].split(|byte| *byte == 0).next()?;
        interface::by_name(plan, std::str::from_utf8(name).ok()?)?
    };
    let asked = host::ask(ask::NETDEV, &[number as u64, request, address]);
    Some(asked.map_or_else(|| carry_out(Client::own(), number, request, address), |answer| answer.map(drop)))
}

fn number_of(bytes: &[u8; BYTES]) -> i32 {
    let union = &bytes[NAME_BYTES..];
    i32::from_ne_bytes([union[0], union[1], union[2], union[3]])
}

/// Carries out a request about the interface of a device of this process's, whose structure is at an address of the client's.
pub(crate) fn carry_out(client: Client, number: usize, request: c_ulong, address: u64) -> Result<(), Errno> {
    let netdev = Netdev::of(number)?;
    let mut bytes = [0; BYTES];
    client.read(address, &mut bytes)?;
    let given = number_of(&bytes);
    let union = &mut bytes[NAME_BYTES..];
    match request {
        libc::SIOCGIFNAME => {
            let name = netdev.name();
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            bytes[name.len()..NAME_BYTES].fill(0);
        }
        libc::SIOCGIFINDEX => {
            union[..4].copy_from_slice(&interface::index(number).to_ne_bytes());
        }
        libc::SIOCGIFFLAGS => {
            // The field is a short, as netdevice(7) has it.
            union[..2].copy_from_slice(&netdev.flags().to_ne_bytes()[..2]);
        }
        libc::SIOCSIFFLAGS => {
            netdev.set_flags(given);
            return Ok(());
        }
        libc::SIOCGIFMTU => {
            union[..4].copy_from_slice(&i32::from(netdev.model.device().mtu()).to_ne_bytes());
        }
        libc::SIOCSIFMTU => return netdev.set_mtu(given),
        libc::SIOCGIFHWADDR => {
            union[..2].copy_from_slice(&ETHERNET.to_ne_bytes());
            union[2..8].copy_from_slice(&netdev.model.device().mac());
            union[8..16].fill(0);
        }
        libc::SIOCSIFHWADDR => {
            if u16::from_ne_bytes([union[0], union[1]]) != ETHERNET {
                return Err(Errno::EINVAL);
            }
            return netdev.set_mac([union[2], union[3], union[4], union[5], union[6], union[7]]);
        }
        // The length of a queue that there is not.
        libc::SIOCGIFTXQLEN => union[..4].fill(0),
        libc::SIOCETHTOOL => {
            let data = u64::from_ne_bytes([
                union[0], union[1], union[2], union[3], union[4], union[5], union[6], union[7],
            ]);
            return ethtool::carry_out(&netdev, client, data);
        }
        // It has no address of IP: no socket goes through it.
        libc::SIOCGIFADDR | libc::SIOCGIFNETMASK | libc::SIOCGIFBRDADDR => {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        _ => return Err(Errno::EOPNOTSUPP),
    }
    client.write(address, &bytes)
}
