//! A wire made worse: frames lost, out of order, late, twice, damaged. By chance from a seed, so that a run can be repeated.
//!
//! Both directions are treated alike and draw from sequences of their own, so what one direction carries does not change
//! what happens in the other. At a cable between two models it is enough to name impairments at one end.

use std::collections::VecDeque;
use std::time::Duration;

use super::{Sent, Wire, deliver};
use crate::port::Traffic;
use crate::random::Random;
use crate::spare::Spare;
use crate::time::Clock;

/// Most frames that wait in one direction. While so many do, sending waits, and nothing is taken from the wire.
const WAITING_MAX: usize = 4096;

/// What happens to frames, each as a share from 0 to 1 of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairments {
    /// Lost.
    pub loss: f64,
    /// Overtaken by the frame behind.
    pub reorder: f64,
    /// Each frame arrives so much later, on the model's clock.
    pub delay: Duration,
    /// Delivered twice.
    pub dup: f64,
    /// One bit turned over.
    pub corrupt: f64,
    /// Where the chances come from.
    pub seed: u64,
}

impl Default for Impairments {
    fn default() -> Self {
        Self { loss: 0.0, reorder: 0.0, delay: Duration::ZERO, dup: 0.0, corrupt: 0.0, seed: 1 }
    }
}

impl Impairments {
    /// Whether a wire stays as it is.
    #[must_use]
    pub fn is_none(&self) -> bool {
        Self { seed: 1, ..*self } == Self::default()
    }
}

#[derive(Debug)]
struct Waiting {
    due: Duration,
    bytes: Vec<u8>,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    random: Random,
    queue: VecDeque<Waiting>,
    /// The frame that the next one overtakes.
    overtaken: Option<Vec<u8>>,
    spare: Spare,
}

impl Lane {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), queue: VecDeque::new(), overtaken: None, spare: Spare::default() }
    }

    fn is_full(&self) -> bool {
        self.queue.len() >= WAITING_MAX
    }

    fn put(&mut self, frame: &[u8], what: &Impairments, now: Duration) {
        let due = now + what.delay;
        if self.random.chance(what.loss) {
            return;
        }
        let mut bytes = self.spare.copy(frame);
        if self.random.chance(what.corrupt) && !bytes.is_empty() {
            let bit = self.random.below(8 * bytes.len() as u64);
            bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
        }
        let twice = self.random.chance(what.dup).then(|| bytes.clone());
        if self.overtaken.is_none() && twice.is_none() && self.random.chance(what.reorder) {
            self.overtaken = Some(bytes);
            return;
        }
        self.queue.push_back(Waiting { due, bytes });
        for behind in [twice, self.overtaken.take()].into_iter().flatten() {
            self.queue.push_back(Waiting { due, bytes: behind });
        }
    }

    /// The frame whose time has come.
    fn front(&self, now: Duration) -> Option<&[u8]> {
        self.queue.front().filter(|waiting| waiting.due <= now).map(|waiting| waiting.bytes.as_slice())
    }

    fn pop(&mut self) {
        if let Some(waiting) = self.queue.pop_front() {
            self.spare.give_back(waiting.bytes);
        }
    }
}

/// A wire with impairments around another.
#[derive(Debug)]
pub struct Impaired {
    inner: Box<dyn Wire>,
    what: Impairments,
    clock: Clock,
    incoming: Lane,
    outgoing: Lane,
    /// As long as the longest frame that was asked for.
    buffer: Vec<u8>,
}

impl Impaired {
    /// Puts impairments around a wire.
    #[must_use]
    pub fn new(inner: Box<dyn Wire>, what: Impairments, clock: &Clock) -> Self {
        let mut seeds = Random::new(what.seed);
        Self {
            inner,
            what,
            clock: clock.clone(),
            incoming: Lane::new(seeds.next()),
            outgoing: Lane::new(seeds.next()),
            buffer: Vec::new(),
        }
    }

    /// Hands on what is due; false when the wire lost some of it.
    fn drain(&mut self) -> bool {
        let now = self.clock.now();
        let mut kept = true;
        while let Some(frame) = self.outgoing.front(now) {
            match self.inner.send(frame) {
                Sent::Busy => break,
                Sent::Yes => {}
                Sent::Lost => kept = false,
            }
            self.outgoing.pop();
        }
        kept
    }

    /// Takes what the wire has. A wire without end is asked for one frame for each that is handed on, else it would fill the
    /// queue whatever the delay.
    fn fill(&mut self, bytes_max: usize) {
        if self.buffer.len() < bytes_max {
            self.buffer.resize(bytes_max, 0);
        }
        let now = self.clock.now();
        while !self.incoming.is_full() {
            if self.inner.is_endless() && self.incoming.front(now).is_some() {
                break;
            }
            let Some(bytes) = self.inner.receive(&mut self.buffer) else { break };
            if bytes > self.buffer.len() {
                // Too long for the port, which is to count it: its length is kept.
                let mut long = self.buffer.clone();
                long.resize(bytes, 0);
                self.incoming.put(&long, &self.what, now);
            } else {
                self.incoming.put(&self.buffer[..bytes], &self.what, now);
            }
        }
    }
}

impl Wire for Impaired {
    fn poll(&mut self) {
        self.inner.poll();
        self.drain();
    }

    fn send(&mut self, frame: &[u8]) -> Sent {
        if self.outgoing.is_full() {
            return Sent::Busy;
        }
        if !self.is_up() {
            self.lost();
            return Sent::Lost;
        }
        self.outgoing.put(frame, &self.what, self.clock.now());
        // Without delay it is this frame.
        if self.drain() { Sent::Yes } else { Sent::Lost }
    }

    fn receive(&mut self, room: &mut [u8]) -> Option<usize> {
        self.fill(room.len());
        let frame = self.incoming.front(self.clock.now())?;
        let bytes = deliver(frame, room);
        self.incoming.pop();
        Some(bytes)
    }

    fn is_up(&self) -> bool {
        self.inner.is_up()
    }

    fn set_carrier(&mut self, on: bool) {
        self.inner.set_carrier(on);
    }

    fn lost(&mut self) {
        self.inner.lost();
    }

    fn missed(&self) -> u64 {
        self.inner.missed()
    }

    fn take_lost(&mut self) -> Traffic {
        self.inner.take_lost()
    }

    fn is_pending(&self) -> bool {
        !self.outgoing.queue.is_empty() || !self.incoming.queue.is_empty() || self.inner.is_pending()
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn is_endless(&self) -> bool {
        self.inner.is_endless()
    }

    fn is_stored(&self) -> bool {
        self.inner.is_stored()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::STEP;
    use crate::wire::{Cable, Source};

    /// Sends numbered frames through impairments at one end; what the other end sees.
    fn run(what: Impairments, count: u32) -> Vec<Vec<u8>> {
        let (a, mut b) = Cable::pair();
        let clock = Clock::stepped();
        let mut a = Impaired::new(Box::new(a), what, &clock);
        let mut seen = Vec::new();
        let mut room = [0; 128];
        let mut sent = 0_u32;
        let mut idle = 0;
        while idle < 10_000 {
            clock.advance(STEP);
            a.poll();
            let mut frame = [0; 60];
            frame[..4].copy_from_slice(&sent.to_be_bytes());
            if sent < count && a.send(&frame) == Sent::Yes {
                sent += 1;
            }
            idle += 1;
            while let Some(bytes) = b.receive(&mut room) {
                seen.push(room[..bytes].to_vec());
                idle = 0;
            }
        }
        assert_eq!(sent, count);
        seen
    }

    fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
        frames.iter().map(|frame| u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])).collect()
    }

    #[test]
    fn without_impairments_nothing_happens() {
        assert!(Impairments { seed: 9, ..Impairments::default() }.is_none());
        assert!(!Impairments { dup: 0.1, ..Impairments::default() }.is_none());
        assert_eq!(numbers(&run(Impairments::default(), 1000)), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn each_impairment_does_its_own() {
        let plain = Impairments::default();
        let lost = run(Impairments { loss: 0.1, ..plain }, 10_000);
        assert!((8_700..9_300).contains(&lost.len()), "{}", lost.len());
        assert!(numbers(&lost).is_sorted());

        let twice = run(Impairments { dup: 0.1, ..plain }, 10_000);
        assert!((10_700..11_300).contains(&twice.len()), "{}", twice.len());

        let turned = numbers(&run(Impairments { reorder: 0.1, ..plain }, 10_000));
        let back = turned.windows(2).filter(|pair| pair[0] > pair[1]).count();
        assert!((700..1_100).contains(&back), "{back}");
        let mut sorted = turned.clone();
        sorted.sort_unstable();
        // The very last one may still wait for one to overtake it.
        assert!(sorted.len() >= 9_999 && sorted.windows(2).all(|pair| pair[0] + 1 == pair[1]));

        let bad = run(Impairments { corrupt: 0.1, ..plain }, 10_000);
        let damaged = bad.iter().enumerate().filter(|(at, frame)| {
            let mut right = [0; 60];
            right[..4].copy_from_slice(&(*at as u32).to_be_bytes());
            frame[..] != right
        });
        assert!((800..1_200).contains(&damaged.count()));
    }

    #[test]
    fn a_seed_repeats_a_run_bit_for_bit() {
        let what = Impairments { loss: 0.1, reorder: 0.1, dup: 0.1, corrupt: 0.1, seed: 5, delay: 7 * STEP };
        assert_eq!(run(what, 2000), run(what, 2000));
        assert_ne!(run(what, 2000), run(Impairments { seed: 6, ..what }, 2000));
    }

    #[test]
    fn delay_is_kept_both_ways() {
        let (a, mut b) = Cable::pair();
        let clock = Clock::stepped();
        let mut a =
            Impaired::new(Box::new(a), Impairments { delay: 10 * STEP, ..Impairments::default() }, &clock);
        let mut room = [0; 64];
        assert_eq!(a.send(&[1; 60]), Sent::Yes);
        assert_eq!(b.send(&[2; 60]), Sent::Yes);
        for _ in 0..10 {
            a.poll();
            assert_eq!((a.receive(&mut room), b.receive(&mut room)), (None, None));
            assert!(a.is_pending());
            clock.advance(STEP);
        }
        a.poll();
        assert_eq!((a.receive(&mut room), b.receive(&mut room)), (Some(60), Some(60)));
        assert!(!a.is_pending());
    }

    #[test]
    fn a_full_queue_makes_the_sender_wait() {
        let (a, _b) = Cable::pair();
        let clock = Clock::stepped();
        let mut a = Impaired::new(Box::new(a), Impairments { delay: STEP, ..Impairments::default() }, &clock);
        for _ in 0..WAITING_MAX {
            assert_eq!(a.send(&[1; 60]), Sent::Yes);
        }
        assert_eq!(a.send(&[1; 60]), Sent::Busy);
    }

    #[test]
    fn a_source_is_not_drunk_empty() {
        let clock = Clock::stepped();
        let source = Source::new(64, [2; 6]).expect("a source");
        let mut wire =
            Impaired::new(Box::new(source), Impairments { loss: 0.5, ..Impairments::default() }, &clock);
        let mut room = [0; 64];
        for _ in 0..100 {
            assert_eq!(wire.receive(&mut room), Some(64));
        }
        assert!(wire.incoming.queue.len() < 2);
    }
}
