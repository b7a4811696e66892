//! The network interfaces of the devices, as far as programs ask for them: what the kernel would answer of an interface of mlx5's.
//!
//! ```text
//!   ioctl ───────────────► request     SIOCGIF..., SIOCSIF...
//!                            └► ethtool ──► statistic
//!   sendmsg, recvmsg, bind
//!           └────────────► netlink     of NETLINK_ROUTE
//!                            ├► message     what names one of these interfaces
//!                            ├► news        what changes
//!                            └► waiting     answers and news, among the kernel's own
//!   if_nametoindex ... ──► name
//!   open of /sys ────────► live        files whose content changes
//! ```
//!
//! Behind all of it is the port of the device's model, in whichever process that is: requests are told apart here, and carried out there.
//! The interface itself keeps only what a kernel keeps of one: its flags.

mod ethtool;
pub(crate) mod live;
pub(crate) mod message;
mod name;
pub(crate) mod netlink;
pub(crate) mod news;
pub(crate) mod request;
mod statistic;
mod waiting;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use libc::c_int;
use pollux_mlx5_model::Model;
use pollux_uverbs::Errno;

use crate::interface;
use crate::plan::DevicePlan;

use super::{opened, planned};

/// What is known of sockets, held by the thread that forks, so that a child finds it whole.
pub(super) struct Quiet {
    news: MutexGuard<'static, news::News>,
    waiting: MutexGuard<'static, waiting::Messages>,
}

pub(super) fn hold() -> Quiet {
    Quiet { news: news::lock(), waiting: waiting::lock() }
}

impl Quiet {
    /// In a child: what its parent's sockets are told is told there. The answer is what the child closes once nothing is held.
    pub(super) fn leave(&mut self) -> Vec<OwnedFd> {
        self.waiting.clear();
        waiting::forget_all();
        self.news.leave()
    }
}

/// Flags that programs set.
const SETTABLE: c_int = libc::IFF_UP | libc::IFF_PROMISC | libc::IFF_ALLMULTI;

/// The settable flags of interfaces that have others than at first.
static FLAGS: Mutex<BTreeMap<usize, c_int>> = Mutex::new(BTreeMap::new());

/// An interface of a device that is there.
pub(crate) struct Netdev {
    number: usize,
    described: &'static DevicePlan,
    model: Arc<Model>,
}

impl Netdev {
    /// The interface of a device; the device is made if it is not there yet.
    fn of(number: usize) -> Result<Self, Errno> {
        let plan = planned::plan().ok_or(Errno::ENODEV)?;
        let described = plan.devices.get(number).ok_or(Errno::ENODEV)?;
        Ok(Self { number, described, model: opened::device(plan, number)? })
    }

    fn name(&self) -> String {
        interface::name(self.number)
    }

    fn is_running(&self) -> bool {
        self.settable() & libc::IFF_UP != 0 && self.model.device().link_is_up()
    }

    fn settable(&self) -> c_int {
        let flags = FLAGS.lock().unwrap_or_else(PoisonError::into_inner);
        flags.get(&self.number).copied().unwrap_or(libc::IFF_UP)
    }

    /// As netdevice(7) has them.
    fn flags(&self) -> c_int {
        let running = if self.is_running() { libc::IFF_RUNNING } else { 0 };
        self.settable() | libc::IFF_BROADCAST | libc::IFF_MULTICAST | running
    }

    /// Sets those that can be; the port follows.
    fn set_flags(&self, wanted: c_int) {
        let (before, wanted) = (self.settable(), wanted & SETTABLE);
        let has = |flag: c_int| (before ^ wanted) & flag != 0;
        let device = self.model.device();
        if has(libc::IFF_UP) {
            // As Linux's driver, which takes the port down with the interface: `drivers/net/ethernet/mellanox/mlx5/core/en_main.c`,
            // `mlx5e_close`.
            device.set_link(wanted & libc::IFF_UP != 0);
        }
        if has(libc::IFF_PROMISC) {
            device.set_promiscuous(wanted & libc::IFF_PROMISC != 0);
        }
        if has(libc::IFF_ALLMULTI) {
            device.set_all_multicast(wanted & libc::IFF_ALLMULTI != 0);
        }
        FLAGS.lock().unwrap_or_else(PoisonError::into_inner).insert(self.number, wanted);
    }

    fn set_mac(&self, mac: [u8; 6]) -> Result<(), Errno> {
        // Source: Linux `include/linux/etherdevice.h`, `is_valid_ether_addr`.
        if mac[0] & 1 != 0 || mac == [0; 6] {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        self.model.device().set_mac(mac);
        Ok(())
    }

    fn set_mtu(&self, mtu: i32) -> Result<(), Errno> {
        let fits = u16::try_from(mtu).is_ok_and(|mtu| self.model.device().set_mtu(mtu));
        if fits { Ok(()) } else { Err(Errno::EINVAL) }
    }
}
