//! Two ends in one process.
//!
//! Each way has a batch that the sender fills and the receiver takes whole: the lock is taken once a frame on one side and
//! once a batch on the other, and an empty batch is seen without it. A full batch makes the sender wait, so nothing is lost.
//! What is sent while the other end is not there is lost; each end sees whether the other one
//! has carrier.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Sent, Wire, deliver};
use crate::ModelError;

/// Most frames under way in one direction, and as many again that the receiver has taken over.
const FRAMES_MAX: usize = 512;

/// The cables of this process by name: a name is as good as a socket on the wall, whoever knows it may plug in.
static CABLES: Mutex<Option<HashMap<String, Weak<Shared>>>> = Mutex::new(None);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frames one behind the other.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend_from_slice(frame);
        self.ends.push(self.bytes.len());
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// One direction.
#[derive(Debug, Default)]
struct Lane {
    batch: Mutex<Batch>,
    /// Frames in it; written under the lock.
    count: AtomicUsize,
}

impl Lane {
    fn clear(&self) {
        locked(&self.batch).clear();
        self.count.store(0, Ordering::Release);
    }
}

#[derive(Debug)]
struct Shared {
    name: String,
    /// Which ends are in use.
    ends: Mutex<[bool; 2]>,
    /// Both are.
    up: AtomicBool,
    /// Which ends have no carrier.
    without_carrier: [AtomicBool; 2],
    /// Frames for each end that the other one did not send, because there was no carrier.
    missed: [AtomicU64; 2],
    /// Lane *n* leads to end *n*.
    lanes: [Lane; 2],
}

impl Shared {
    fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            ends: Mutex::default(),
            up: AtomicBool::new(false),
            without_carrier: Default::default(),
            missed: Default::default(),
            lanes: Default::default(),
        })
    }

    /// Takes a free end.
    fn end(self: &Arc<Self>) -> Option<Cable> {
        let mut ends = locked(&self.ends);
        let end = ends.iter().position(|used| !used)?;
        ends[end] = true;
        // What was meant for an earlier device at this end, or for nobody.
        self.lanes[end].clear();
        self.missed[end].store(0, Ordering::Relaxed);
        self.up.store(*ends == [true; 2], Ordering::Release);
        drop(ends);
        Some(Cable::new(Arc::clone(self), end))
    }
}

/// One end of a cable.
#[derive(Debug)]
pub struct Cable {
    shared: Arc<Shared>,
    end: usize,
    /// The batch being handed out: its next frame, and where that begins.
    taken: Batch,
    next: usize,
    start: usize,
}

impl Cable {
    fn new(shared: Arc<Shared>, end: usize) -> Self {
        Self { shared, end, taken: Batch::default(), next: 0, start: 0 }
    }

    /// An end of the cable of that name in this process.
    ///
    /// # Errors
    /// [`ModelError::CableTaken`] when both are in use.
    pub fn join(name: &str) -> Result<Self, ModelError> {
        let mut guard = locked(&CABLES);
        let cables = guard.get_or_insert_default();
        cables.retain(|_, cable| cable.strong_count() > 0);
        let shared = cables.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Shared::new(name);
            cables.insert(name.into(), Arc::downgrade(&shared));
            shared
        });
        shared.end().ok_or_else(|| ModelError::CableTaken { name: name.into() })
    }

    /// Both ends of a cable that nobody else can reach.
    #[must_use]
    pub fn pair() -> (Self, Self) {
        let shared = Shared::new("-");
        *locked(&shared.ends) = [true; 2];
        shared.up.store(true, Ordering::Release);
        (Self::new(Arc::clone(&shared), 0), Self::new(shared, 1))
    }

    /// Takes over what the other end has sent.
    #[cold]
    fn take_batch(&mut self) {
        let lane = &self.shared.lanes[self.end];
        self.taken.clear();
        (self.next, self.start) = (0, 0);
        let mut batch = locked(&lane.batch);
        std::mem::swap(&mut *batch, &mut self.taken);
        lane.count.store(0, Ordering::Release);
    }
}

impl Wire for Cable {
    fn send(&mut self, frame: &[u8]) -> Sent {
        if !self.is_up() {
            self.lost();
            return Sent::Lost;
        }
        let lane = &self.shared.lanes[1 - self.end];
        if lane.count.load(Ordering::Acquire) >= FRAMES_MAX {
            return Sent::Busy;
        }
        let mut batch = locked(&lane.batch);
        batch.push(frame);
        lane.count.store(batch.ends.len(), Ordering::Release);
        Sent::Yes
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        if self.next == self.taken.ends.len() {
            if self.shared.lanes[self.end].count.load(Ordering::Acquire) == 0 {
                return None;
            }
            self.take_batch();
        }
        let end = *self.taken.ends.get(self.next)?;
        let bytes = deliver(&self.taken.bytes[self.start..end], room);
        self.next += 1;
        self.start = end;
        Some(bytes)
    }

    fn is_up(&self) -> bool {
        self.shared.up.load(Ordering::Acquire)
            && !self.shared.without_carrier[1 - self.end].load(Ordering::Acquire)
    }

    fn set_carrier(&mut self, on: bool) {
        self.shared.without_carrier[self.end].store(!on, Ordering::Release);
    }

    fn lost(&mut self) {
        self.shared.missed[1 - self.end].fetch_add(1, Ordering::Relaxed);
    }

    fn missed(&self) -> u64 {
        self.shared.missed[self.end].load(Ordering::Relaxed)
    }

    fn is_pending(&self) -> bool {
        self.shared.lanes[1 - self.end].count.load(Ordering::Acquire) > 0
    }

    fn waits(&self) -> bool {
        true
    }

    fn describe(&self) -> String {
        format!("cable:{}", self.shared.name)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let mut ends = locked(&self.shared.ends);
        ends[self.end] = false;
        self.shared.up.store(false, Ordering::Release);
        // The next device here begins with carrier.
        self.shared.without_carrier[self.end].store(false, Ordering::Release);
        drop(ends);
        self.shared.lanes[self.end].clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(wire: &mut Cable) -> Option<Vec<u8>> {
        let mut room = [0; 2048];
        wire.receive(&mut room).map(|bytes| room[..bytes].to_vec())
    }

    #[test]
    fn frames_cross_in_order_both_ways() {
        let (mut a, mut b) = Cable::pair();
        assert!(a.is_up() && b.is_up() && !a.is_pending());
        for number in 0..3_u8 {
            assert_eq!(a.send(&[number; 60]), Sent::Yes);
            assert_eq!(b.send(&[number | 0x80; 61]), Sent::Yes);
        }
        assert!(a.is_pending());
        for number in 0..3_u8 {
            assert_eq!(take(&mut b), Some(vec![number; 60]));
            assert_eq!(take(&mut a), Some(vec![number | 0x80; 61]));
        }
        assert_eq!((take(&mut a), take(&mut b)), (None, None));
        assert!(!a.is_pending());
    }

    #[test]
    fn a_full_cable_makes_the_sender_wait_and_loses_nothing() {
        let (mut a, mut b) = Cable::pair();
        let (mut sent, mut got) = (0_u32, 0_u32);
        while got < 10_000 {
            while sent < 10_000 && a.send(&sent.to_be_bytes()) == Sent::Yes {
                sent += 1;
            }
            for _ in 0..100 {
                let Some(frame) = take(&mut b) else { break };
                assert_eq!(frame, got.to_be_bytes());
                got += 1;
            }
            assert!(sent - got <= 2 * FRAMES_MAX as u32);
        }
    }

    #[test]
    fn ends_meet_by_name_and_a_third_is_refused() {
        let a = Cable::join("ends-meet").expect("an end");
        assert!(!a.is_up());
        let b = Cable::join("ends-meet").expect("the other");
        assert!(a.is_up() && b.is_up());
        let error = Cable::join("ends-meet").expect_err("taken").to_string();
        assert_eq!(
            error,
            "cable 'ends-meet' has both its ends in use: name another cable, or let one device go first"
        );
        drop(b);
        assert!(!a.is_up());
        let _b = Cable::join("ends-meet").expect("free again");
        assert!(a.is_up());
    }

    #[test]
    fn what_is_sent_into_the_dark_is_lost_and_what_was_sent_before_is_not() {
        let (mut a, b) = Cable::pair();
        let mut b = b;
        assert_eq!(b.send(&[1; 60]), Sent::Yes);
        drop(b);
        assert_eq!(a.send(&[2; 60]), Sent::Lost);
        assert!(!a.is_pending());
        assert_eq!(take(&mut a), Some(vec![1; 60]));
    }

    #[test]
    fn each_end_sees_the_others_carrier() {
        let (mut a, mut b) = Cable::pair();
        b.set_carrier(false);
        assert!(!a.is_up() && b.is_up(), "the end without carrier sees the other's");
        assert_eq!((a.send(&[1; 60]), b.send(&[2; 60])), (Sent::Lost, Sent::Yes));
        a.lost();
        assert_eq!((a.missed(), b.missed()), (0, 2), "what b would have got");
        assert_eq!((take(&mut a), take(&mut b)), (Some(vec![2; 60]), None));
        b.set_carrier(true);
        assert!(a.is_up());
        a.set_carrier(false);
        let shared = Arc::clone(&a.shared);
        drop(a);
        b.lost();
        let next = shared.end().expect("a free end");
        assert!(b.is_up(), "another device begins with carrier");
        assert_eq!(next.missed(), 0, "what the one before it, or nobody, would have got");
    }

    #[test]
    fn a_frame_that_is_too_long_is_cut_and_told() {
        let (mut a, mut b) = Cable::pair();
        assert_eq!(a.send(&[7; 100]), Sent::Yes);
        assert_eq!(a.send(&[8; 10]), Sent::Yes);
        let mut room = [0; 60];
        assert_eq!(b.receive(&mut room), Some(100));
        assert_eq!(room, [7; 60]);
        assert_eq!(b.receive(&mut room), Some(10));
    }
}
