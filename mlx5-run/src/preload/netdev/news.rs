//! What changes about interfaces, told to sockets that listen for it: the link goes down or comes up, the address or the MTU changes.
//!
//! A real port's driver is told by the device. Here a thread looks at the ports from time to time, as long as somebody listens.
//! DPDK does: `drivers/net/mlx5/linux/mlx5_os.c`, `mlx5_os_dev_shared_handler_install`.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use libc::c_int;
use pollux_uverbs::Errno;

use super::super::letter::ask;
use super::super::{descriptor, host, inode, opened, planned, thread};
use super::{Netdev, message, waiting};

/// How long a change may go unseen.
const PAUSE: Duration = Duration::from_millis(20);

/// What is looked at: flags, MTU, address.
type Seen = (c_int, u16, [u8; 6]);

/// Who listens, what was seen last, and whether somebody looks.
pub(super) struct News {
    listeners: Vec<(u64, Arc<OwnedFd>)>,
    seen: BTreeMap<usize, Seen>,
    watched: bool,
}

/// Held for as long as it is looked at: what it is for asks the host, which closes descriptors.
static NEWS: Mutex<News> = Mutex::new(News { listeners: Vec::new(), seen: BTreeMap::new(), watched: false });

pub(super) fn lock() -> MutexGuard<'static, News> {
    NEWS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl News {
    /// In a child, which has no thread that looks. The answer is what it closes.
    pub(super) fn leave(&mut self) -> Vec<OwnedFd> {
        self.watched = false;
        let listeners = std::mem::take(&mut self.listeners);
        listeners.into_iter().filter_map(|(_, socket)| Arc::into_inner(socket)).collect()
    }
}

/// A socket listens from now on.
pub(super) fn listen(fd: RawFd) {
    let (Some(inode), Ok(copy)) = (inode::of(fd), descriptor::high(fd)) else { return };
    // What changes from here on counts; others may have to be told of more.
    let now = there();
    let mut news = lock();
    for (number, seen) in now {
        news.seen.entry(number).or_insert(seen);
    }
    news.listeners.push((inode, Arc::new(copy)));
    // Whoever listens next tries again.
    news.watched = news.watched || thread::start("mlx5-run-news", watch).is_ok();
}

/// Whether anybody has listened.
pub(super) fn is_on() -> bool {
    lock().watched
}

/// A socket listens no more.
pub(super) fn closed(inode: u64) {
    let mut news = lock();
    let (gone, left) = news.listeners.drain(..).partition(|(socket, _)| *socket == inode);
    news.listeners = left;
    drop(news);
    // Closing a descriptor comes back to here.
    drop::<Vec<(u64, Arc<OwnedFd>)>>(gone);
}

fn watch() {
    let Some(plan) = planned::plan() else { return };
    loop {
        std::thread::sleep(PAUSE);
        let listeners = lock().listeners.clone();
        if listeners.is_empty() {
            continue;
        }
        let now = there();
        let changed = changed(&mut lock().seen, now);
        for number in changed {
            let Some(message) = message::news(plan, number) else { continue };
            for (inode, socket) in &listeners {
                // One whose room is full has missed it, as it would the kernel's.
                let _missed = waiting::put(socket.as_raw_fd(), *inode, message.clone());
            }
        }
    }
}

/// The interfaces whose devices are there, as they are.
fn there() -> Vec<(usize, Seen)> {
    let count = planned::plan().map_or(0, |plan| plan.devices.len());
    (0..count).filter_map(|number| Some((number, seen(number)?))).collect()
}

/// An interface as it is, if its device is there.
fn seen(number: usize) -> Option<Seen> {
    match host::ask(ask::INTERFACE, &[number as u64]) {
        Some(told) => {
            let [_, is_there, flags, mtu, mac, _] = told.ok()?;
            let mac = mac.to_ne_bytes();
            let mac = [mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]];
            (is_there != 0).then_some((c_int::try_from(flags).ok()?, u16::try_from(mtu).ok()?, mac))
        }
        None => own(number),
    }
}

/// The same of a device of this process.
fn own(number: usize) -> Option<Seen> {
    let device = Arc::clone(opened::made(number)?.device());
    Some((Netdev::of(number).ok()?.flags(), device.mtu(), device.mac()))
}

/// What another process is told, which asks for an interface: whether it is there, its flags, MTU and address.
pub(crate) fn told(number: usize) -> Result<[u64; 4], Errno> {
    let Some((flags, mtu, mac)) = own(number) else { return Ok([0; 4]) };
    let [a, b, c, d, e, f] = mac;
    let flags = u64::try_from(flags).map_err(|_| Errno::EINVAL)?;
    Ok([1, flags, mtu.into(), u64::from_ne_bytes([a, b, c, d, e, f, 0, 0])])
}

/// The interfaces that are not as they were seen last. One that was not there before is no change.
fn changed(seen: &mut BTreeMap<usize, Seen>, now: Vec<(usize, Seen)>) -> Vec<usize> {
    let changed = now
        .into_iter()
        .filter(|(number, now)| seen.insert(*number, *now).is_some_and(|before| before != *now));
    changed.map(|(number, _)| number).collect()
}
