//! What changes about interfaces, told to sockets that listen for it: the link goes down or comes up, the address or the MTU changes.
//!
//! A real port's driver is told by the device. Here a thread looks at the ports from time to time, as long as somebody listens.
//! DPDK does: `drivers/net/mlx5/linux/mlx5_os.c`, `mlx5_os_dev_shared_handler_install`.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use libc::c_int;

use super::super::{descriptor, inode, opened, thread};
use super::{Netdev, message, waiting};

/// How long a change may go unseen.
const PAUSE: Duration = Duration::from_millis(20);

/// What is looked at: flags, MTU, address.
type Seen = (c_int, u16, [u8; 6]);

/// Who listens, and what was seen last.
struct News {
    listeners: Vec<(u64, OwnedFd)>,
    seen: BTreeMap<usize, Seen>,
}

static NEWS: Mutex<News> = Mutex::new(News { listeners: Vec::new(), seen: BTreeMap::new() });
static STARTED: Once = Once::new();

fn news() -> MutexGuard<'static, News> {
    NEWS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A socket listens from now on.
pub(super) fn listen(fd: RawFd) {
    let (Some(inode), Ok(copy)) = (inode::of(fd), descriptor::high(fd)) else { return };
    let mut news = news();
    // What changes from here on counts; others may have to be told of more.
    for netdev in there() {
        news.seen.entry(netdev.number).or_insert_with(|| netdev.seen());
    }
    news.listeners.push((inode, copy));
    drop(news);
    STARTED.call_once(|| {
        thread::start("mlx5-run-news", watch);
    });
}

/// Whether anybody has listened.
pub(super) fn is_on() -> bool {
    STARTED.is_completed()
}

/// A socket listens no more.
pub(super) fn closed(inode: u64) {
    let mut news = news();
    let (gone, left) = news.listeners.drain(..).partition(|(socket, _)| *socket == inode);
    news.listeners = left;
    drop(news);
    // Closing a descriptor comes back to here.
    drop::<Vec<(u64, OwnedFd)>>(gone);
}

fn watch() {
    loop {
        std::thread::sleep(PAUSE);
        let mut news = news();
        if news.listeners.is_empty() {
            continue;
        }
        for netdev in look(&mut news.seen) {
            let message = message::news(&netdev);
            for (inode, socket) in &news.listeners {
                // One whose room is full has missed it, as it would the kernel's.
                let _missed = waiting::put(socket.as_raw_fd(), *inode, message.clone());
            }
        }
    }
}

/// The interfaces whose devices are there.
fn there() -> impl Iterator<Item = Netdev> {
    let count = opened::plan().map_or(0, |plan| plan.devices.len());
    (0..count).filter(|number| opened::made(*number).is_some()).filter_map(|number| Netdev::of(number).ok())
}

/// The interfaces that are not as they were seen last. One that was not there before is no change.
fn look(seen: &mut BTreeMap<usize, Seen>) -> Vec<Netdev> {
    let changed = |netdev: &Netdev| {
        let now = netdev.seen();
        seen.insert(netdev.number, now).is_some_and(|before| before != now)
    };
    there().filter(changed).collect()
}

impl Netdev {
    fn seen(&self) -> Seen {
        let device = self.model.device();
        (self.flags(), device.mtu(), device.mac())
    }
}
