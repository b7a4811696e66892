//! A socket over a pool's memory, and the mbufs that the kernel has of it.
//!
//! ```text
//!   pool --alloc--> Held of RxEnd --fill ring--> kernel --receive ring--> Held::take --> burst
//!   burst --------> Held of TxEnd --tx ring----> kernel --completions---> Held::take --> pool
//! ```
//!
//! An mbuf that the kernel has stays owned, in a table with a place for each mbuf of the pool. What the kernel gives back is an address:
//! it must lie in a chunk whose place is taken, and then that mbuf is taken out, once. So a wrong address, or one that comes twice, is
//! counted and makes no mbuf.
//!
//! Tables outlive the socket: mbufs that the kernel has when the last end is dropped go home once [`XdpSocket::close`] has said that the
//! kernel is done with them, and never if it does not say so.
//!
//! # Why the kernel may have the memory
//! The memory is the pool's data rooms and what lies between them in whole pages. It stays mapped while mbufs of the pool are out, and
//! those that the kernel has are out, in a table, until [`Shared`] is dropped; there the tables go after `close` has said that the kernel
//! is done, or never. A chunk is given only with its mbuf put into the table first (`fill`), or before the kernel sees the entry
//! (`keep`, `copied`), so nobody else has it, and is a data room as long as the kernel believes or longer (`Chunks::of`), so headers are
//! out of the kernel's reach. An mbuf leaves a table only for an address by which the kernel gives the chunk back (`claim`, `reap`). The
//! bytes of an mbuf in a table are not touched: nothing but these functions reaches it.
#![expect(unsafe_code, reason = "gives mbufs' memory to the kernel")]

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pollux_frame_io::FrameError;
use pollux_frame_io::interface::Interface;
use pollux_frame_io::xdp::{XdpOpen, XdpOptions, XdpRx, XdpSocket, XdpTx};
use pollux_mempool::{BURST_MAX, Burst, Mbuf, MbufPool, PacketType, RxFlags};

use super::chunk::Chunks;

/// Fill entries that are written at once.
const REFILL: usize = 32;

/// What both ends of a socket and the control half have of it.
pub(super) struct Shared {
    /// There until drop.
    socket: Option<XdpSocket>,
    pub(super) chunks: Chunks,
    /// The pool under the chunks.
    pub(super) pool: MbufPool,
    interface: String,
    /// Frames stand in the transmit ring that the kernel had no room for; whoever passes next kicks again.
    pub(super) waiting: AtomicBool,
    /// Addresses from the kernel that name no mbuf it has.
    pub(super) strange: AtomicU64,
    /// Tables of ends that are gone.
    left: Mutex<Vec<Held>>,
}

impl Shared {
    #[inline]
    pub(super) fn socket(&self) -> &XdpSocket {
        self.socket.as_ref().expect("there until drop")
    }

    fn leave(&self, held: Held) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).push(held);
    }

    #[cold]
    fn stranger(&self) {
        self.strange.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let closed = self.socket.take().is_none_or(XdpSocket::close);
        let left = std::mem::take(self.left.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !closed {
            // The kernel may write to them at any time. They stay out, and their pool's memory with them.
            let mbufs: usize = left.iter().map(|held| held.count).sum();
            tracing::error!(
                target: "pmd.net.af_xdp", interface = %self.interface, mbufs,
                "the kernel has not let go of a closed AF_XDP socket: its mbufs are lost; a forked child may hold the socket"
            );
            std::mem::forget(left);
        }
    }
}

/// The mbufs that the kernel has, each at its number in the pool.
struct Held {
    places: Box<[Option<Mbuf>]>,
    count: usize,
}

impl Held {
    fn new(pool: usize) -> Self {
        Self { places: (0..pool).map(|_| None).collect(), count: 0 }
    }

    #[inline]
    fn put(&mut self, index: usize, mbuf: Mbuf) {
        let before = self.places[index].replace(mbuf);
        debug_assert!(before.is_none(), "an mbuf has one owner");
        self.count += 1;
    }

    #[inline]
    fn take(&mut self, index: usize) -> Option<Mbuf> {
        let mbuf = self.places.get_mut(index)?.take()?;
        self.count -= 1;
        Some(mbuf)
    }
}

/// The receiving end of a socket.
pub(super) struct RxEnd {
    pub(super) ring: XdpRx,
    held: Held,
    /// Mbufs in `held` that are not given to the kernel, since a device would not find them in one piece.
    unfit: usize,
    /// Dropped last: the rings are unmapped, and the table is left with it.
    pub(super) shared: Arc<Shared>,
}

/// The sending end of a socket.
pub(super) struct TxEnd {
    pub(super) ring: XdpTx,
    held: Held,
    pub(super) shared: Arc<Shared>,
}

impl Drop for RxEnd {
    fn drop(&mut self) {
        self.shared.leave(std::mem::replace(&mut self.held, Held::new(0)));
    }
}

impl Drop for TxEnd {
    fn drop(&mut self) {
        self.shared.leave(std::mem::replace(&mut self.held, Held::new(0)));
    }
}

/// Opens a socket over a pool. The receiving end, if there is one, has taken as many mbufs as its ring has entries, or as there were.
pub(super) fn open(
    interface: &Interface,
    pool: &MbufPool,
    chunks: Chunks,
    options: &XdpOptions,
) -> Result<(Arc<Shared>, Option<RxEnd>, TxEnd), FrameError> {
    // SAFETY: "Why the kernel may have the memory" above.
    let opened = unsafe { XdpSocket::open(interface, chunks.memory, options)? };
    let XdpOpen { socket, rx, tx } = opened;
    let shared = Arc::new(Shared {
        socket: Some(socket),
        chunks,
        pool: pool.clone(),
        interface: interface.found_as().into(),
        waiting: AtomicBool::new(false),
        strange: AtomicU64::new(0),
        left: Mutex::default(),
    });
    let held = || Held::new(chunks.count());
    let rx = rx.map(|ring| {
        let mut end = RxEnd { ring, held: held(), unfit: 0, shared: shared.clone() };
        end.refill();
        end
    });
    let tx = TxEnd { ring: tx, held: held(), shared: shared.clone() };
    Ok((shared, rx, tx))
}

impl RxEnd {
    /// Gives the kernel mbufs for those that it gave back, when there are enough of them. False when the pool had too few.
    #[inline]
    pub(super) fn refill(&mut self) -> bool {
        let slots = self.ring.slots();
        let missing = slots.saturating_sub(self.held.count - self.unfit);
        missing < REFILL.min(slots) || self.fill(missing)
    }

    fn fill(&mut self, mut missing: usize) -> bool {
        let chunks = &self.shared.chunks;
        let device = self.shared.socket().is_zero_copy();
        let mut burst = Burst::new();
        while missing > 0 && self.ring.has_room() {
            if self.shared.pool.alloc_up_to(&mut burst, missing.min(BURST_MAX)) == 0 {
                break;
            }
            for mbuf in burst.drain(..) {
                let at = chunks.distance(mbuf.room_ptr());
                let Some((index, 0)) = chunks.find(at) else { continue };
                if device && chunks.crosses(at, chunks.bytes) {
                    self.unfit += 1;
                    self.held.put(index, mbuf);
                } else if self.ring.has_room() {
                    self.held.put(index, mbuf);
                    self.ring.fill(at);
                    missing -= 1;
                }
            }
        }
        self.ring.publish();
        missing == 0
    }

    /// The next piece that was received: its mbuf, with the data in it, and whether more follow. `Some(Err)`: the kernel named none that
    /// it has.
    #[inline]
    pub(super) fn claim(&mut self, port: u16) -> Option<(Result<Mbuf, ()>, bool)> {
        let frame = self.ring.next()?;
        let found = self.shared.chunks.find(frame.chunk);
        let made = found.and_then(|(index, within)| {
            let mut mbuf = self.held.take(index)?;
            let offset = within + usize::from(frame.offset);
            let fits =
                mbuf.set_received(offset, frame.bytes as usize, port, RxFlags::empty(), PacketType::UNKNOWN);
            fits.then_some(mbuf)
        });
        if made.is_none() {
            self.shared.stranger();
        }
        Some((made.ok_or(()), frame.more))
    }
}

impl TxEnd {
    /// Takes back what the kernel is done with, up to `max` mbufs and no more than the ring has; how many.
    pub(super) fn reap(&mut self, max: usize) -> usize {
        let mut done = Burst::new();
        let mut count = 0;
        while count < max.min(self.ring.slots()) {
            let Some(at) = self.ring.completed() else { break };
            let found = self.shared.chunks.find(at);
            match found.and_then(|(index, _)| self.held.take(index)) {
                Some(mbuf) => done.push(mbuf),
                None => self.shared.stranger(),
            }
            count += 1;
            if done.is_full() {
                done.clear();
            }
        }
        if count > 0 {
            self.ring.release();
        }
        count
    }

    /// Where the data of an mbuf lies in the memory, if it can be sent from there.
    #[inline]
    pub(super) fn place(&self, mbuf: &Mbuf) -> Option<u64> {
        let chunks = &self.shared.chunks;
        let bytes = mbuf.data_len();
        if !mbuf.is_plain_of(&self.shared.pool) || bytes == 0 || bytes > chunks.bytes as usize {
            return None;
        }
        let at = chunks.distance(mbuf.data_ptr());
        let split = self.shared.socket().is_zero_copy() && chunks.crosses(at, bytes as u32);
        (!split).then_some(at)
    }

    /// Writes an entry for an mbuf of which [`place`](Self::place) told the place; [`keep`](Self::keep) comes before the kernel sees it.
    #[inline]
    pub(super) fn push(&mut self, at: u64, bytes: usize) {
        self.ring.push(at, bytes as u32, false);
    }

    /// Keeps an mbuf that was pushed, until the kernel is done with it.
    #[inline]
    pub(super) fn keep(&mut self, mbuf: Mbuf) {
        match self.shared.chunks.find(self.shared.chunks.distance(mbuf.room_ptr())) {
            Some((index, _)) => self.held.put(index, mbuf),
            None => unreachable!("`place` found it in the pool"),
        }
    }

    /// Copies a packet into mbufs of the pool, as many as it takes, and pushes those. False when the pool has too few.
    pub(super) fn copied(&mut self, mbuf: &Mbuf) -> bool {
        let chunks = self.shared.chunks;
        let (whole, piece) = (mbuf.pkt_len() as usize, chunks.bytes as usize);
        let mut pieces = Burst::new();
        for _ in 0..whole.div_ceil(piece) {
            let Some(fit) = self.alloc() else { return false };
            pieces.push(fit);
        }
        let mut done = 0;
        for mut to in pieces.drain(..) {
            let bytes = (whole - done).min(piece);
            if let (true, Some(data)) = (to.set_data(0, bytes), to.data_mut()) {
                mbuf.read(done, data);
            }
            done += bytes;
            self.ring.push(chunks.distance(to.room_ptr()), bytes as u32, done < whole);
            self.keep(to);
        }
        true
    }

    /// An mbuf whose room a device finds in one piece.
    fn alloc(&mut self) -> Option<Mbuf> {
        loop {
            let mbuf = self.shared.pool.alloc()?;
            let chunks = &self.shared.chunks;
            let at = chunks.distance(mbuf.room_ptr());
            if !self.shared.socket().is_zero_copy() || !chunks.crosses(at, chunks.bytes) {
                return Some(mbuf);
            }
            // Back in the pool it would come again.
            self.keep(mbuf);
        }
    }

    /// Mbufs that the kernel has.
    pub(super) fn held(&self) -> usize {
        self.held.count
    }
}

impl AsFd for RxEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.socket().as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mbuf_is_given_back_once_and_only_where_it_was_put() {
        let pool = MbufPool::builder("held", 8).build_anonymous().expect("memory");
        let chunks = Chunks::of(&pool).expect("one piece of memory");
        let mut held = Held::new(chunks.count());
        let mbuf = pool.alloc().expect("full");
        let (index, _) = chunks.find(chunks.distance(mbuf.room_ptr())).expect("of the pool");
        held.put(index, mbuf);
        for other in (0..10).filter(|other| *other != index) {
            assert!(held.take(other).is_none(), "{other}");
        }
        assert_eq!((held.count, pool.in_use()), (1, 1));
        assert!(held.take(index).is_some() && held.take(index).is_none());
        assert_eq!((held.count, pool.in_use()), (0, 0));
    }
}
